"""What repair says: of files that no step helps, of one of a kind, of what it does not write."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inspector.cli.app import app
from inspector.model.identity import Outcome as Belongs
from inspector.node import walk
from inspector.repair import plan as plans
from inspector.repair.apply import NotWritten
from inspector.repair.draft import Draft, Options, Step
from inspector.repair.outcome import carry_out
from inspector.repair.plan import planned
from inspector.repair.state import Cache
from inspector.report import examined
from inspector.server.target import target_of

ROOT = Path(__file__).resolve().parents[2]
INTACT, DAMAGED = ROOT / "samples/intact", ROOT / "samples/damaged"
MODELS = ROOT / "tests/oracle/models"
LLAMA = INTACT / "ggsq2.kv--llama-b10229-short.slot"
LFM2 = INTACT / "ggsq2.hybrid--lfm2-b10229.slot"


def ran(*words: object) -> Result:
    return CliRunner().invoke(app, ["repair", *map(str, words)])


def said(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("ggsq2.kv--cells.pos-not-tokens.slot", "http-error"),
        ("ggsq2.kv--tokens.no-cells.slot", "aborts"),
        ("ggsq2.kv--layers.type-unknown.slot", "refuses"),
    ],
)
def test_what_no_step_helps(name: str, row: str) -> None:
    found = said(ran(DAMAGED / name, "--build", "b10229"))
    assert row in found
    assert "llama.cpp b10229: nothing can be repaired" in found


def test_where_all_is_well() -> None:
    found = said(ran(LLAMA, "--build", "b10229"))
    assert "nothing to repair" in found
    assert "can stay as it is" in found


def test_a_dry_run_says_what_it_did_not_write(tmp_path: Path) -> None:
    new, words = tmp_path / "new.bin", (LLAMA, "--build", "b11549")
    found = "".join(said(ran(*words, "--dry-run", "-o", new)).split())
    assert f"nothingiswritten:without--dry-runthecopybecomes{new}" in found
    assert not new.exists()
    assert "nothing is written: -o NEW writes the copy" in said(ran(*words))
    assert "-o NEW without --dry-run writes the copy" in said(ran(*words, "--dry-run"))


@pytest.mark.parametrize(
    ("less", "changes", "loses"),
    [
        (1, "cuts 1 token and its cell from", "the last of {n} tokens: it has to be"),
        (2, "cuts 2 tokens and their cells", "the last 2 of {n} tokens: they have to be"),
    ],
)
def test_one_token_is_no_tokens(less: int, changes: str, loses: str) -> None:
    with examined(LLAMA) as report:
        assert report.tokens is not None
        n = report.tokens.count
    found = said(ran(LLAMA, "--at", n - less))
    assert changes in found
    assert loses.format(n=n) in found


@pytest.mark.parametrize(("n", "words"), [(1, "1 zero follows"), (3, "3 zeros follow")])
def test_one_zero_is_no_zeros(tmp_path: Path, n: int, words: str) -> None:
    path = tmp_path / "slot.bin"
    path.write_bytes(LLAMA.read_bytes() + bytes(n))
    assert f"{words} the end of the state" in said(ran(path))


def test_one_of_several_checkpoints(tmp_path: Path) -> None:
    name = "ggsq2.hybrid--checkpoint.blob-unreadable.slot"
    for suffix in ("", ".ckpt"):
        shutil.copyfile(DAMAGED / (name + suffix), tmp_path / ("slot.bin" + suffix))
    with examined(tmp_path / "slot.bin") as report:
        n = len(report.checkpoints)
    found = said(ran(tmp_path / "slot.bin"))
    assert f"leaves out 1 of {n} checkpoint{'s' * (n > 1)}:" in found


def test_several_sequences_are_not_chosen_from() -> None:
    found = said(ran(INTACT / "ggsn9.hybrid--lfm2-b10229-two-sequences.slot", "--build", "b10229"))
    assert "holds several sequences" in found
    assert "a copy can have one: repair does not choose between them" in found


def test_the_help_promises_what_is_kept() -> None:
    """A copy on which a prompt ends the server is written, and so is one of unknown fate."""
    found = said(ran("--help"))
    assert "Nothing is written that the server would refuse" not in found
    assert "some may still get an error" in found


# -- a copy that is further from its model than the file -------------------------------------------


def _spoil(draft: Draft) -> None:
    """Swap the values of the first and the last layer: no server sees that."""

    def spoilt(part: object) -> object:
        return replace(part, v=part.v[::-1]) if isinstance(part, Cache) else part

    draft.convert_parts(spoilt)  # type: ignore[arg-type]
    draft.take(Step("trim", "a test", "the order of values"))


def test_a_copy_further_from_its_model_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "_ACTIONS", (*plans._ACTIONS, (("trim",), _spoil)))
    new, model = tmp_path / "new.bin", MODELS / "llama-gqa.gguf"
    result = ran(LLAMA, "--model", model, "--build", "b10229", "-o", new)
    assert result.exit_code == 1
    assert "nothing is written: the copy would not be of the model any more" in said(result)
    with target_of(None, "b10229", model) as target, planned(LLAMA, target, Options(), "n") as plan:
        assert plan.before is not None
        assert plan.before.identity.outcome is Belongs.MATCHES
        with pytest.raises(NotWritten, match="would not be of the model"):
            carry_out(plan, new)
    assert list(tmp_path.iterdir()) == []


# -- a wrong number of layers ----------------------------------------------------------------------


@pytest.fixture
def miscounted(tmp_path: Path) -> Path:
    """A hybrid state whose recurrent section says one layer more than its model has."""
    with examined(LFM2) as report:
        nodes = dict(walk(report.tree))
        at = next(node.span.start for path, node in nodes.items() if path == "recr.n_layer")
    data = bytearray(LFM2.read_bytes())
    data[at] += 1
    path = tmp_path / "slot.bin"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("build", ["b10229", "b11549"])
def test_a_wrong_number_of_layers_is_a_wrong_word(miscounted: Path, build: str) -> None:
    model = MODELS / "lfm2.gguf"
    words = (miscounted, "--model", model, "--build", build)
    document = json.loads(ran(*words, "--json").output)
    first, *others = document["actions"]
    assert first["action"] == "correct-word"
    assert "lfm2.gguf has another number of layers than the file says" in first["why"]
    assert first["changes"] == "n_layer of recr: 5 becomes 4"
    assert ("relayout" in [one["action"] for one in others]) == (build != "b10229")
    assert document["after"]["restore"]["outcome"] == "accepts"
    if build == "b10229":
        new = miscounted.with_name("new.bin")
        assert ran(*words, "-o", new, "--only", "correct-word").exit_code == 0
        assert new.read_bytes() == LFM2.read_bytes()
    skipped = ran(*words, "--skip", "correct-word", "-o", miscounted.with_name("other.bin"))
    assert skipped.exit_code == 1
    assert not miscounted.with_name("other.bin").exists()


def test_a_damaged_state_is_not_said_to_be_of_what_it_looks_like(tmp_path: Path) -> None:
    sound = INTACT / "ggsq2.mla--deepseek2-b10229.slot"
    with examined(sound) as report:
        nodes = dict(walk(report.tree))
        span = next(node.span for path, node in nodes.items() if path.endswith("n_layer"))
        kind = next(node.span for path, node in nodes.items() if path.endswith("k[1].k_size_row"))
    data = bytearray(sound.read_bytes())
    data[span.start : span.stop] = bytes(4)
    data[kind.start : kind.start + 4] = b"\x4d\0\0\0"
    path = tmp_path / "slot.bin"
    path.write_bytes(data)
    assert "it is damaged, and what can be read of it looks like minimax-m3" in said(ran(path))
