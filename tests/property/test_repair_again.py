"""A repaired file is left as it is, and what no step changes stays byte for byte."""

from __future__ import annotations

import zlib
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from inspector.cli.exits import USAGE
from inspector.repair.draft import Options
from inspector.repair.lists import BY_NAME
from inspector.repair.plan import NAMES, Plan, planned
from inspector.repair.segments import Keep, Write
from inspector.repair.state import Refused
from inspector.server.target import target_of

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "samples").glob("*/*.slot"))
REAL = sorted(
    path
    for folder in ROOT.parent.glob("shared/corpus*")
    for path in folder.rglob("*")
    if path.suffix in (".bin", ".slot", ".ckpt", ".checkpoints") and path.stat().st_size < 1 << 20
)
TARGETS = (None, "b10229", "b11549", "turboquant@b9079")
SHARES = 4
MOST_REAL, MOST_ASKED = 24, 6


def chosen(target: str | None, share: int) -> list[Path]:
    """A part of the files: of the samples half without a target, a fifth for each."""

    def part(path: Path) -> int:
        return zlib.crc32(path.name.encode()) % SHARES

    samples = [path for path in SAMPLES if part(path) == share]
    samples = samples[TARGETS.index(target) :: 2 if target is None else 5]
    real = [path for path in REAL if part(path) == share]
    return samples + real[TARGETS.index(target) :: max(1, len(real) * SHARES // MOST_REAL)]


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("target", TARGETS)
def test_repairing_again_changes_nothing(tmp_path: Path, target: str | None, share: int) -> None:
    with ExitStack() as stack:
        server = None
        if target is not None:
            server = stack.enter_context(target_of(None, target, None))
        for number, path in enumerate(chosen(target, share)):
            new = tmp_path / f"{number}.bin"
            try:
                with planned(path, server, Options(), new.name) as plan:
                    _written(plan, new)
                    _check_kept(plan, path)
                    _check_companions(plan)
            except Refused:
                continue
            with planned(new, server, Options(), new.name) as again:
                assert not again.steps, (path.name, plan.steps, again.steps)
                for output in again.outputs:
                    copy = new.with_name(new.name + output.suffix)
                    kept = all(isinstance(one, Keep) for one in output.content.content)
                    assert kept, (path.name, output.suffix)
                    assert output.content.size == copy.stat().st_size


BARRED = {f"without {name}": Options(skip=(name,), allow_loss=True) for name in NAMES}
ALONE = {f"{name} alone": Options(only=(name,), allow_loss=True) for name in NAMES}
LISTS = {f"to {name}": Options(to=name, allow_loss=True) for name in BY_NAME}
ASKED = BARRED | ALONE | LISTS


@pytest.mark.parametrize("asked", ASKED)
def test_what_was_asked_for_is_done_once(tmp_path: Path, asked: str) -> None:
    """With every option on some files, each for some server: the copy needs nothing more."""
    options, number = ASKED[asked], list(ASKED).index(asked)
    files = [path for path in SAMPLES if ".hybrid" in path.name or ".iswa" in path.name] + REAL
    done = 0
    for path in files[number % 7 :: 7]:
        build = TARGETS[zlib.crc32(path.name.encode()) % len(TARGETS)]
        with ExitStack() as stack:
            server = stack.enter_context(target_of(None, build, None)) if build else None
            new = tmp_path / f"{done}.bin"
            try:
                with planned(path, server, options, new.name) as plan:
                    _written(plan, new)
                    if not plan.refused:
                        _check_kept(plan, path)
                    steps = [step.action for step in plan.steps]
            except Refused:
                continue
            with planned(new, server, options, new.name) as again:
                assert not again.steps, (path.name, build, steps, again.steps)
        done += 1
        if done == MOST_ASKED:
            break


def _written(plan: Plan, new: Path) -> None:
    for output in plan.outputs:
        data = output.content.read_at(0, output.content.size)
        assert len(data) == output.content.size
        new.with_name(new.name + output.suffix).write_bytes(data)


def _check_kept(plan: Plan, path: Path) -> None:
    """Without a step nothing differs; kept bytes are the file's own, and every write is named."""
    names = {step.action for step in plan.steps} | {"copy"}
    for output in plan.outputs:
        original = path.with_name(path.name + output.suffix)
        for segment in output.content.content:
            if not isinstance(segment, Keep):
                assert segment.why in names, (path.name, segment.why, names)
                assert not isinstance(segment, Write) or segment.why != "copy" or not plan.steps
        if not plan.steps:
            assert output.content.read_at(0, output.content.size) == original.read_bytes()


def _check_companions(plan: Plan) -> None:
    """Without a step all of them are copied."""
    if not plan.steps:
        companions = [one.suffix for one in plan.report.bundle.companions if one.suffix != ".tmp"]
        assert sorted(companions) == sorted(one.suffix for one in plan.outputs[1:])


TIP = ROOT / "samples/intact/ggsq2.hybrid--lfm2-b10229.slot"
LONE = ("lsckpt2", "pkcl1", "slck1", "sckp1")


@pytest.mark.parametrize("family", LONE)
@pytest.mark.parametrize("build", [None, "b8000", "b10229", "b11549"])
def test_a_new_checkpoint_is_written_as_its_readers_want_it(
    tmp_path: Path, build: str | None, family: str
) -> None:
    """Of a file without any: it is in the form that was asked for, and as it is the next time."""
    options, new = Options(to=family), tmp_path / "new.bin"
    with ExitStack() as stack:
        server = stack.enter_context(target_of(None, build, None)) if build else None
        with planned(TIP, server, options, new.name) as plan:
            assert "synthesize-tip" in [step.action for step in plan.steps]
            assert not plan.undone
            _written(plan, new)
            (found,) = plan.copied.checkpoints
            assert found.record.format == BY_NAME[family].format
        with planned(new, server, options, new.name) as again:
            assert not again.steps
            assert not again.undone


def test_a_state_without_any_is_not_said_to_have_them_in_a_form(tmp_path: Path) -> None:
    path = ROOT / "samples/intact/ggsq2.kv--twelve-tokens.slot"
    with planned(path, None, Options(to="pkcl1"), "new.bin") as plan:
        assert plan.undone == ("convert-checkpoints",)
        assert plan.refused == (("convert-checkpoints", "it has no checkpoints"),)


def test_ways_there_and_back_are_wrong_usage(tmp_path: Path) -> None:
    path, new = ROOT / "samples/intact/ggsn9.kv--twelve-tokens.slot", tmp_path / "new.bin"
    words = ["repair", str(path), "--only", "from-session", "--only", "to-session", "-o", str(new)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == USAGE
    assert "to-session undoes from-session" in " ".join(result.output.split())
    assert not new.exists()


@pytest.mark.parametrize("name", ["ggsn9.hybrid-iswa", "ggsn10.hybrid-idx"])
def test_a_whole_context_gets_no_checkpoints(name: str) -> None:
    path = ROOT / f"samples/intact/{name}--twelve-tokens.slot"
    for options in (Options(only=("synthesize-tip",)), Options(to="pkcl1"), Options(to="slck1")):
        with planned(path, None, options, "new.bin") as plan:
            assert plan.undone == options.demands
            assert not plan.steps
            (output,) = plan.outputs
            assert output.content.read_at(0, output.content.size) == path.read_bytes()


def test_a_list_of_which_nothing_is_left_is_asked_for_in_vain(tmp_path: Path) -> None:
    """The first time and the next."""
    path, new = ROOT / "samples/damaged/ggsq2.hybrid--sidecar.foreign.slot", tmp_path / "new.bin"
    options = Options(to="pkcl1", skip=("synthesize-tip",))
    with planned(path, None, options, new.name) as plan:
        assert plan.undone == ("convert-checkpoints",)
        _written(plan, new)
    with planned(new, None, options, new.name) as again:
        assert again.undone == ("convert-checkpoints",)
        assert not again.steps


@pytest.mark.parametrize("options", [Options(skip=("correct-word",)), Options(only=("restamp",))])
@pytest.mark.parametrize("code", ["envelope.version-unknown", "layout.one-word-away"])
def test_no_word_is_corrected_where_that_is_not_allowed(code: str, options: Options) -> None:
    """A copy that is said to be unchanged is unchanged."""
    (path,) = (ROOT / "samples/damaged").glob(f"ggsq2.kv--{code}.slot")
    stack = ExitStack()
    with pytest.raises(Refused, match="correct-word is not allowed"), stack:
        stack.enter_context(planned(path, None, options, "new.bin"))


def test_an_empty_list_is_not_left_out_unsaid() -> None:
    path = ROOT / "samples/damaged/ggsq4.hybrid--appendix.empty.slot"
    with planned(path, None, Options(only=("drop-values",)), "new.bin") as plan:
        assert plan.copied.size < plan.report.size
        assert [name for name, _ in plan.refused] == ["drop-checkpoints"]
