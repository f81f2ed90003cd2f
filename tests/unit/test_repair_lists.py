"""Checkpoint lists: salvaged, converted from every family to every other, bound to their state."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from inspector.checkpoints import fnv1a
from inspector.repair.draft import Options
from inspector.repair.lists import DRAFT, THIRD
from inspector.repair.outcome import carry_out
from inspector.repair.plan import Plan, planned
from inspector.repair.state import Refused
from inspector.report import examined
from inspector.server.target import target_of
from tests.support import writer
from tests.support.writer import (
    DIALECTS,
    F16,
    F32,
    FAMILIES,
    Cache,
    Cell,
    Checkpoint,
    CheckpointList,
    Generation,
    Memory,
    Recurrent,
    Row,
    Slot,
    Tokens,
    cells_of,
    checkpoint,
    ik_checkpoints,
    pack,
    pkcl2,
    stck2,
)

TOKENS = Tokens(tuple(range(100, 112)))
ENDS = (4, 8, 11)
TASK = "the number of the task that made a checkpoint"
NAMES = tuple(name for name in FAMILIES if name != "ik")
SUFFIX = {name: ".checkpoints" if name.startswith("llcp") else ".ckpt" for name in NAMES}
SUFFIX["sckp1"] = ""
PROMPT = b"serialized"


def memory(n: int, *, dialect: str = "") -> Memory:
    """A hybrid state of the first tokens."""
    rows = (Row(F16, 16),) * 2
    r, s = (Row(F32, 32),) * 2, (Row(F32, 64),) * 2
    cells = cells_of(Tokens(TOKENS.ids[:n]))
    return Memory(
        {"attn": Cache((cells,), k=rows, v=rows), "recr": Recurrent((Cell(n - 1),), 4, r, s)},
        DIALECTS[dialect],
    )


def records(*, seq_id: int | None = 0) -> tuple[Checkpoint, ...]:
    """A checkpoint at each of the ends, whose parts differ; with all that a family may hold."""
    made = [checkpoint(memory(n), n, seq_id=seq_id) for n in ENDS]
    return tuple(
        replace(one, dft=b"draft%d" % i, spec=b"spec%d" % i, id_task=7 + i)
        for i, one in enumerate(made)
    )


def state(version: int = 2) -> bytes:
    held = memory(len(TOKENS.ids), dialect="" if version == 2 else "rotated")
    return pack(Slot(version, TOKENS, held)).data


def listed(family: str, held: tuple[Checkpoint, ...], whole: bytes) -> bytes:
    """A list of a family as its own writer writes it, beside a state."""
    if family == "pkcl2":
        return pack(pkcl2(held, whole)).data
    if family == "stck2":
        return pack(stck2(held, PROMPT, len(TOKENS.ids))).data
    return pack(CheckpointList(family, held)).data


def keeps(family: str, what: str) -> bool:
    return what in FAMILIES[family][1].split()


def kept(held: tuple[Checkpoint, ...], family: str) -> tuple[Checkpoint, ...]:
    """Records with what a family has a place for."""
    return tuple(
        replace(
            one,
            dft=one.dft if keeps(family, "dft") else b"",
            spec=one.spec if keeps(family, "spec") else b"",
            id_task=one.id_task if keeps(family, "id_task") else -1,
        )
        for one in held
    )


def store(folder: Path, family: str, held: tuple[Checkpoint, ...], version: int = 2) -> Path:
    """A state with a list behind it or beside it."""
    path, whole = folder / "slot.bin", state(version)
    data = listed(family, held, whole)
    if SUFFIX[family]:
        path.write_bytes(whole)
        path.with_name(path.name + SUFFIX[family]).write_bytes(data)
        if family == "stck2":
            path.with_name(path.name + ".gen").write_bytes(pack(Generation(12)).data)
    else:
        path.write_bytes(whole + data)
    return path


@contextmanager
def plan_of(path: Path, build: str | None = None, **asked: object) -> Iterator[Plan]:
    options = Options(**asked)  # type: ignore[arg-type]
    if build is None:
        with planned(path, None, options, "new.bin") as plan:
            yield plan
        return
    with target_of(None, build, None) as target, planned(path, target, options, "new.bin") as plan:
        yield plan


def written(plan: Plan) -> dict[str, bytes]:
    return {one.suffix: one.content.read_at(0, one.content.size) for one in plan.outputs}


def is_finished(path: Path, folder: Path, build: str | None = None, **asked: object) -> bool:
    """Whether repairing what a repair wrote proposes nothing."""
    with plan_of(path, build, **asked) as plan:
        carry_out(plan, folder / "new.bin", force=True)
    with plan_of(folder / "new.bin", build, **asked) as again:
        return not again.steps and written(again)[""] == (folder / "new.bin").read_bytes()


@pytest.mark.parametrize(("old", "new"), list(itertools.product(NAMES, NAMES)))
def test_every_family_becomes_every_other(tmp_path: Path, old: str, new: str) -> None:
    """The matrix: the bytes are those of the other writer, and the losses are named."""
    held = kept(records(), old)
    path = store(tmp_path, old, held)
    if new == "stck2" != old:
        with pytest.raises(Refused, match="hash of the prompt"), plan_of(path, to=new):
            pass
        return
    with plan_of(path, to=new) as plan:
        found = written(plan)
        steps = plan.steps
    lost = [
        text
        for name, text in (("dft", DRAFT), ("spec", THIRD), ("id_task", TASK))
        if keeps(old, name) and not keeps(new, name)
    ]
    whole, wanted = state(), listed(new, kept(held, new), state())
    if SUFFIX[new]:
        assert (found[""], found[SUFFIX[new]]) == (whole, wanted)
    else:
        assert found[""] == whole + wanted
    converted = [step for step in steps if step.action == "convert-checkpoints"]
    assert [step.loss for step in converted] == [", ".join(lost) or None] * (old != new)
    assert {step.action for step in steps} <= {"convert-checkpoints", "drop-companions"}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(NAMES, NAMES)))
def test_there_and_back_where_nothing_is_lost(tmp_path: Path, old: str, new: str) -> None:
    held = kept(records(), old)
    if kept(held, new) != held or "stck2" in (old, new):
        return
    path = store(tmp_path, old, held)
    (tmp_path / "there").mkdir()
    with plan_of(path, to=new) as plan:
        carry_out(plan, tmp_path / "there/new.bin")
    with plan_of(tmp_path / "there/new.bin", to=old) as plan:
        found = written(plan)
    wanted = {"": path.read_bytes()}
    if SUFFIX[old]:
        wanted[SUFFIX[old]] = path.with_name(path.name + SUFFIX[old]).read_bytes()
    assert found == wanted


@pytest.mark.parametrize("family", NAMES)
def test_it_is_finished_when_it_is_written(tmp_path: Path, family: str) -> None:
    (tmp_path / "new").mkdir()
    path = store(tmp_path, family, kept(records(), family))
    assert is_finished(path, tmp_path / "new")
    assert is_finished(path, tmp_path / "new", to="pkcl2")


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("name", ["ik3", "ik4"])
def test_lists_of_ik_are_of_another_kind(tmp_path: Path, family: str, name: str) -> None:
    path = store(tmp_path, family, kept(records(), family))
    with pytest.raises(Refused, match="of another kind"), plan_of(path, to=name):
        pass
    alone = tmp_path / "alone.checkpoints"
    alone.write_bytes(pack(ik_checkpoints(records(seq_id=None), int(name[-1]))).data)
    with pytest.raises(Refused), plan_of(alone, to=family):
        pass


def test_a_hash_of_the_state_is_that_of_the_copy(tmp_path: Path) -> None:
    path = store(tmp_path, "pkcl2", records())
    with plan_of(path, at=8, allow_loss=True) as plan:
        found = written(plan)
    assert len(found[""]) < len(path.read_bytes())
    stored = int.from_bytes(found[".ckpt"][8:16], "little")
    assert stored == writer.fnv1a(found[""])


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 32_768, 32_769, 70_000])
@pytest.mark.parametrize("basis", [14695981039346656037, 1469598103934665603, 0])
def test_fnv_is_that_of_a_loop(size: int, basis: int) -> None:
    data = bytes((i * i * 31 + (i >> 3)) & 0xFF for i in range(size))
    assert fnv1a(data, basis) == writer.fnv1a(data, basis)


def test_a_hash_of_other_tokens_is_not_kept(tmp_path: Path) -> None:
    path = store(tmp_path, "stck2", records())
    with pytest.raises(Refused, match="--to names another family"), plan_of(path, at=8):
        pass
    with plan_of(path, at=8, to="llcp1") as plan:
        assert list(written(plan)) == ["", ".checkpoints"]
        (step,) = [step for step in plan.steps if step.action == "drop-companions"]
        assert "slot.bin.gen" in step.changes


def test_a_marker_goes_along_with_its_list(tmp_path: Path) -> None:
    path = store(tmp_path, "stck2", records())
    with plan_of(path) as plan:
        assert not plan.steps
        assert written(plan)[".gen"] == pack(Generation(12)).data
    with plan_of(path, to="pkcl1") as plan:
        assert ".gen" not in written(plan)


# -- lists of other saves --------------------------------------------------------------------------


def at_the_end(*, other: bool) -> Checkpoint:
    """The checkpoint behind the whole text; its first row is that of the state, or another one."""
    whole = memory(len(TOKENS.ids))
    tip = checkpoint(whole, len(TOKENS.ids))
    packed = pack(writer.Blob(whole.partial()))
    (row,) = [mark for mark in packed.marks if mark.path == "recr.blocks[0].data"]
    changed = bytes(byte ^ 0x5A for byte in packed.data[row.start : row.stop])
    blob = packed.data[: row.start] + changed + packed.data[row.stop :]
    return replace(tip, tgt=blob) if other else tip


@pytest.mark.parametrize("other", [False, True])
def test_of_a_list_with_a_record_of_another_save_none_is_kept_untested(
    tmp_path: Path, other: bool
) -> None:
    """The others stand where the state holds nothing to compare them with."""
    held = (*kept(records()[:2], "pkcl1"), at_the_end(other=other))
    path = store(tmp_path, "pkcl1", held)
    with plan_of(path) as plan:
        assert len(plan.copied.checkpoints) == (0 if other else 3)
        if other:
            (step,) = plan.steps
            assert "leaves out 3 of 3 checkpoints" in step.changes
            assert "could not be tested" in step.why
            assert step.loss
        else:
            assert not plan.steps


@pytest.mark.parametrize(
    ("at", "changes"),
    [
        (9, "1 of 3 checkpoints: slot.bin.ckpt[2]"),
        (-9, "2 of 3 checkpoints: slot.bin.ckpt[1], and 1 that its list counts and does not hold"),
    ],
)
def test_what_a_cut_list_counts_is_lost_too(tmp_path: Path, at: int, changes: str) -> None:
    """Cut in the last record, or in the one before it."""
    held = kept(records(), "pkcl1")
    path = store(tmp_path, "pkcl1", held)
    beside = tmp_path / "slot.bin.ckpt"
    end = len(listed("pkcl1", held[:2], b""))
    beside.write_bytes(beside.read_bytes()[: end + at])
    with plan_of(path) as plan:
        assert plan.steps[0].changes == f"leaves out {changes}"


def test_a_count_that_cannot_be_true_is_not_believed(tmp_path: Path) -> None:
    first, *others = kept(records(), "pkcl1")
    path = store(tmp_path, "pkcl1", (replace(first, dft=bytes(1 << 17)), *others))
    beside = tmp_path / "slot.bin.ckpt"
    data = bytearray(beside.read_bytes()[:-9])
    data[8:12] = (1025).to_bytes(4, "little")
    beside.write_bytes(data)
    with plan_of(path) as plan:
        assert plan.steps[0].changes == "leaves out 1 of 3 checkpoints: slot.bin.ckpt[2]"


# -- lists alone -----------------------------------------------------------------------------------


def alone(folder: Path, family: str, held: tuple[Checkpoint, ...]) -> Path:
    path = folder / "slot.bin.ckpt"
    path.write_bytes(listed(family, held, state()))
    return path


@pytest.mark.parametrize("family", NAMES)
def test_whole_records_of_a_list_that_is_cut(tmp_path: Path, family: str) -> None:
    """Cut anywhere: the records in front of the cut, and their number."""
    held = kept(records(), family)
    path = alone(tmp_path, family, held)
    data = path.read_bytes()
    ends = [len(listed(family, held[:n], state())) for n in range(4)]
    for at in sorted(
        {ends[0], ends[1] - 1, ends[1], ends[1] + 5, ends[2] - 9, ends[2], ends[3] - 1}
    ):
        path.write_bytes(data[:at])
        n = max(i for i, end in enumerate(ends) if end <= at)
        if not n:
            with pytest.raises(Refused, match="none of its checkpoints"), plan_of(path):
                pass
            continue
        with plan_of(path) as plan:
            assert written(plan) == {"": listed(family, held[:n], state())}
            names = [step.action for step in plan.steps]
            assert names in (["mend-list"], ["drop-checkpoints", "mend-list"])
    path.write_bytes(data + b"behind")
    with plan_of(path) as plan:
        assert written(plan) == {"": data}
        assert [step.action for step in plan.steps] == ["mend-list"]
    path.write_bytes(data)
    with plan_of(path) as plan:
        assert written(plan) == {"": data}
        assert not plan.steps


@pytest.mark.parametrize(("old", "new"), list(itertools.product(NAMES, NAMES)))
def test_a_list_alone_becomes_another(tmp_path: Path, old: str, new: str) -> None:
    held = kept(records(), old)
    path = alone(tmp_path, old, held)
    if new in ("stck2", "pkcl2") and new != old:
        with pytest.raises(Refused, match="hash of"), plan_of(path, to=new):
            pass
        return
    with plan_of(path, to=new) as plan:
        assert written(plan) == {"": listed(new, kept(held, new), state())}


@pytest.mark.parametrize("build", ["b10229", "b11063"])
def test_a_list_alone_for_a_server_that_reads_none(tmp_path: Path, build: str) -> None:
    path = alone(tmp_path, "pkcl1", kept(records(), "pkcl1"))
    with pytest.raises(Refused, match=f"{build} reads no checkpoint lists"), plan_of(path, build):
        pass
    with plan_of(path, build, to="llcp2") as plan:  # a fork of it may read them
        assert written(plan) == {"": listed("llcp2", kept(records(), "llcp2"), b"")}


def test_records_are_sorted_and_each_is_there_once(tmp_path: Path) -> None:
    first, second, third = kept(records(), "pkcl1")
    path = alone(tmp_path, "pkcl1", (third, first, second, first))
    (tmp_path / "new").mkdir()
    with plan_of(path) as plan:
        assert written(plan) == {"": listed("pkcl1", (first, second, third), b"")}
        carry_out(plan, tmp_path / "new/new.ckpt")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        "new.ckpt",
        "new.ckpt.slotscope.json",
    ]


@pytest.mark.parametrize(
    ("build", "stored", "wanted"),
    [
        ("pr20819", 0, None),
        ("turboquant@b9079", 0, None),
        ("siliang", None, 0),
        ("bongo", None, 0),
    ],
)
def test_eight_bytes_in_front_of_blobs(
    tmp_path: Path, build: str, stored: int | None, wanted: int | None
) -> None:
    families = {"pr20819": "llcp1", "bongo": "bkcp1", "siliang": "slck1"}
    family = families.get(build, "pkcl1")
    path = alone(tmp_path, "slck1", kept(records(seq_id=stored), "slck1"))
    with plan_of(path, build) as plan:
        held = kept(kept(records(seq_id=wanted), "slck1"), family)
        assert written(plan) == {"": listed(family, held, b"")}


def test_a_list_beside_a_server_that_reads_none_there(tmp_path: Path) -> None:
    path = alone(tmp_path, "pkcl1", kept(records(), "pkcl1"))
    with pytest.raises(Refused, match="behind a state alone"), plan_of(path, "b11549"):
        pass
    with pytest.raises(Refused, match="a list alone is not cut"), plan_of(path, at=4):
        pass


# -- lists of a state ------------------------------------------------------------------------------


def test_an_appendix_that_is_cut(tmp_path: Path) -> None:
    """The state is whole: records in front of the cut stay, their number is corrected."""
    held = kept(records(), "sckp1")
    whole = state(4)
    path = store(tmp_path, "sckp1", held, 4)
    (tmp_path / "new").mkdir()
    data = path.read_bytes()
    ends = [len(whole) + len(listed("sckp1", held[:n], b"")) for n in range(4)]
    for at in (len(whole) + 3, ends[0], ends[1] - 1, ends[1], ends[2] + 41, ends[3] - 1):
        path.write_bytes(data[:at])
        n = max([i for i, end in enumerate(ends) if end <= at], default=0)
        with plan_of(path) as plan:
            appended = listed("sckp1", held[:n], b"") if n else b""
            assert written(plan) == {"": whole + appended}
            assert plan.steps
            assert plan.whole
        assert is_finished(path, tmp_path / "new")


def test_records_beyond_the_state_are_left_out(tmp_path: Path) -> None:
    good = kept(records(), "stck2")
    beyond = replace(good[-1], n_tokens=40, pos_min=39, pos_max=39)
    path = store(tmp_path, "stck2", (*good, beyond))
    with plan_of(path) as plan:
        assert written(plan)[".ckpt"] == listed("stck2", good, state())
        assert [step.action for step in plan.steps] == ["drop-checkpoints"]


def test_a_server_that_reads_no_lists(tmp_path: Path) -> None:
    path = store(tmp_path, "pkcl1", kept(records(), "pkcl1"))
    with plan_of(path, "b10229") as plan:
        assert written(plan) == {"": state()}
        assert [step.action for step in plan.steps] == ["drop-checkpoints"]
        assert "3 checkpoints" in plan.steps[0].changes


@pytest.mark.parametrize("family", ["pkcl1", "llcp2", "lsckpt2", "bkcp1"])
def test_a_cut_list_beside_a_state_for_a_server_that_appends(tmp_path: Path, family: str) -> None:
    held = kept(records(), family)
    path = store(tmp_path, family, held, 4)
    companion = path.with_name(path.name + SUFFIX[family])
    companion.write_bytes(companion.read_bytes()[:-1])
    (tmp_path / "new").mkdir()
    with plan_of(path, "b11549") as plan:
        appended = listed("sckp1", kept(held[:-1], "sckp1"), b"")
        assert written(plan) == {"": state(4) + appended}
    assert is_finished(path, tmp_path / "new", "b11549")


def test_a_list_for_the_other_program(tmp_path: Path) -> None:
    path = tmp_path / "alone.checkpoints"
    path.write_bytes(pack(ik_checkpoints(records(seq_id=None), 4)).data)
    for build in ("b10229", "b11549", "turboquant@b9079"):
        with pytest.raises(Refused), plan_of(path, build):
            pass
    path = alone(tmp_path, "pkcl1", kept(records(), "pkcl1"))
    with pytest.raises(Refused, match="of another kind"), plan_of(path, "ik@2026-08-15"):
        pass


# -- the state itself ------------------------------------------------------------------------------


def plain() -> bytes:
    """A state of plain attention."""
    rows = (Row(F16, 16),) * 2
    held = Memory({"attn": Cache((cells_of(TOKENS),), k=rows, v=rows)}, DIALECTS[""])
    return pack(Slot(2, TOKENS, held)).data


def test_zeros_behind_the_end(tmp_path: Path) -> None:
    path, whole = tmp_path / "slot.bin", plain()
    path.write_bytes(whole + bytes(100))
    with plan_of(path) as plan:
        (step,) = plan.steps
        assert (step.action, step.loss, step.confirm) == ("strip-trailing", None, False)
        assert "100 zeros" in step.why
        assert written(plan) == {"": whole}
    with plan_of(path, skip=("strip-trailing",)) as plan:
        assert not plan.steps
        assert written(plan) == {"": whole + bytes(100)}


@pytest.mark.parametrize("n", [1, 12, 48, 100, 4096])
@pytest.mark.parametrize("version", [2, 4])
def test_zeros_behind_a_recurrent_section(tmp_path: Path, n: int, version: int) -> None:
    """They are no rows of 0 bytes."""
    path = tmp_path / "slot.bin"
    path.write_bytes(state(version) + bytes(n))
    with plan_of(path, skip=("synthesize-tip",)) as plan:
        assert [step.action for step in plan.steps] == ["strip-trailing"]
        assert written(plan) == {"": state(version)}


@pytest.mark.parametrize("junk", [bytes(100), b"something"])
def test_bytes_that_are_kept_leave_no_place_for_checkpoints(tmp_path: Path, junk: bytes) -> None:
    """They would be lost without a word."""
    path = store(tmp_path, "pkcl1", kept(records(), "pkcl1"), 4)
    companion, whole = path.with_name("slot.bin.ckpt"), state(4) + junk
    path.write_bytes(whole)
    for action in ("convert-checkpoints", "synthesize-tip"):
        with plan_of(path, "b11549", skip=("strip-trailing",)) as plan:
            assert written(plan) == {"": whole}
            assert "strip-trailing is not allowed" in dict(plan.refused)[action]
        companion.unlink(missing_ok=True)
    with plan_of(path, "turboquant@b9079", skip=("strip-trailing",)) as plan:
        assert written(plan)[""].endswith(junk)
        assert [step.action for step in plan.steps][-1] == "synthesize-tip"


def test_bytes_behind_the_end_that_nothing_explains(tmp_path: Path) -> None:
    path = tmp_path / "slot.bin"
    path.write_bytes(plain() + b"something")
    with plan_of(path) as plan:
        (step,) = plan.steps
        assert (step.action, step.confirm) == ("strip-trailing", True)
        assert step.loss
        assert plan.unconfirmed


@pytest.mark.parametrize(("offset", "path"), [(0, "magic"), (4, "version")])
def test_words_that_no_writer_writes(tmp_path: Path, offset: int, path: str) -> None:
    """Each is named, with its place."""
    file, whole = tmp_path / "slot.bin", plain()
    word = int.from_bytes(whole[offset : offset + 4], "little")
    file.write_bytes(whole[:offset] + (word ^ 64).to_bytes(4, "little") + whole[offset + 4 :])
    (tmp_path / "new").mkdir()
    with plan_of(file) as plan:
        assert written(plan) == {"": whole}
        (step,) = plan.steps
        assert step.action == "correct-word"
        assert f"{path} at 0x{offset:x}" in step.changes
    assert is_finished(file, tmp_path / "new")


def test_the_end_is_cut_and_a_checkpoint_is_whole(tmp_path: Path) -> None:
    """What is left: the cells up to the newest checkpoint, and its memory in place of the end."""
    held = kept(records(), "pkcl1")
    path = store(tmp_path, "pkcl1", held)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    (tmp_path / "new").mkdir()
    with plan_of(path) as plan:
        (step,) = [step for step in plan.steps if step.action == "materialize"]
        assert step.confirm
        assert "the last of 12 tokens" in (step.loss or "")
        tokens = Tokens(TOKENS.ids[:11])
        assert written(plan)[""] == pack(Slot(2, tokens, memory(11))).data
        assert plan.whole
    assert is_finished(path, tmp_path / "new")
    path.with_name("slot.bin.ckpt").unlink()
    with pytest.raises(Refused, match="slotscope tokens"), plan_of(path):
        pass
    path.write_bytes(whole[: len(whole) // 3])
    with pytest.raises(Refused, match=r"slotscope tokens|not whole"), plan_of(path):
        pass


def test_the_copy_has_no_findings(tmp_path: Path) -> None:
    path = store(tmp_path, "pkcl1", kept(records(), "pkcl1"))
    with plan_of(path, to="sckp1") as plan:
        carry_out(plan, tmp_path / "new.bin")
    with examined(tmp_path / "new.bin") as report:
        assert [one.usable for one in report.checkpoints] == [True, True, True]


# -- blobs of which nothing is missing, and actions that are barred --------------------------------


def reblobbed(
    held: tuple[Checkpoint, ...], change: Callable[[bytes], bytes]
) -> tuple[Checkpoint, ...]:
    """Records, the second with another blob."""
    first, second, *others = held
    return (first, replace(second, tgt=change(pack(second.tgt).data)), *others)


@pytest.mark.parametrize("family", ["pkcl1", "sckp1", "bkcp1"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda blob: blob[8:], "puts d8 3c 14 af and a zero in front of the blob"),
        (lambda blob: blob + b"behind", "cuts 6 bytes off the end of the blob"),
    ],
)
def test_blobs_are_mended_of_which_nothing_is_missing(
    tmp_path: Path, family: str, change: Callable[[bytes], bytes], said: str
) -> None:
    held = kept(records(), family)
    (tmp_path / "new").mkdir()
    path = store(tmp_path, family, reblobbed(held, change), 4)
    with plan_of(path) as plan:
        assert b"".join(written(plan).values()) == state(4) + listed(family, held, b"")
        (step,) = plan.steps
        assert step.action == "mend-list"
        assert said in step.changes
        assert "[1]" in step.changes
        assert step.loss is None
        assert all(one.usable for one in plan.copied.checkpoints)
    assert is_finished(path, tmp_path / "new")
    if SUFFIX[family]:
        list_alone = alone(tmp_path / "new", family, reblobbed(held, change))
        with plan_of(list_alone) as plan:
            assert written(plan) == {"": listed(family, held, b"")}
            assert [step.action for step in plan.steps] == ["mend-list"]


def test_a_blob_with_another_fault_is_left_out(tmp_path: Path) -> None:
    """What the missing bytes hide is seen in the copy, and the record is dropped after all."""
    held = kept(records(), "pkcl1")
    recurrent = Recurrent((Cell(7),), 4, (Row(F32, 16),) * 2, (Row(F32, 64),) * 2)
    other = Memory({**memory(8).sections, "recr": recurrent}, DIALECTS[""])
    spoilt = replace(held[1], tgt=pack(checkpoint(other, 8, seq_id=0).tgt).data[8:])
    path = store(tmp_path, "pkcl1", (held[0], spoilt, held[2]))
    with plan_of(path) as plan:
        assert [step.action for step in plan.steps] == ["drop-checkpoints"]
        assert written(plan)[".ckpt"] == listed("pkcl1", (held[0], held[2]), b"")
        assert all(one.usable for one in plan.copied.checkpoints)


@pytest.mark.parametrize("beside", [True, False])
def test_sckp_lists_always_have_the_eight_bytes(tmp_path: Path, *, beside: bool) -> None:
    bare = kept(records(seq_id=None), "pkcl1")
    path = store(tmp_path, "pkcl1", bare)
    wanted = listed("sckp1", kept(records(), "pkcl1"), b"")
    if beside:
        whole, name = state(), path
    else:
        whole, name = b"", path.with_name("alone.ckpt")
        name.write_bytes(listed("pkcl1", bare, b""))
    with plan_of(name, to="sckp1") as plan:
        assert written(plan) == {"": whole + wanted}
        assert {step.action for step in plan.steps} == {"convert-checkpoints"}
        assert any(
            "adds the eight bytes in front of 3 of their blobs" in s.changes for s in plan.steps
        )
        carry_out(plan, tmp_path / "there.bin")
    with plan_of(tmp_path / "there.bin", "pr20819", to="llcp1") as plan:
        found = written(plan)
        assert found[".checkpoints" if beside else ""] == listed("llcp1", kept(bare, "llcp1"), b"")


@pytest.mark.parametrize("build", ["b8672", "turboquant@b9079", "b11549", None])
@pytest.mark.parametrize("beside", [True, False])
def test_sckp_lists_have_them_whatever_the_server_wants_of_others(
    tmp_path: Path, build: str | None, *, beside: bool
) -> None:
    bare = kept(records(seq_id=None), "pkcl1")
    path = store(tmp_path, "pkcl1", bare) if beside else alone(tmp_path, "pkcl1", bare)
    with plan_of(path, build, to="sckp1") as plan:
        assert written(plan)[""].endswith(listed("sckp1", kept(records(), "pkcl1"), b""))


@pytest.mark.parametrize("barred", [{"skip": ("convert-checkpoints",)}, {"only": ("relayout",)}])
def test_lists_are_not_converted_where_that_is_barred(
    tmp_path: Path, barred: dict[str, tuple[str, ...]]
) -> None:
    path = store(tmp_path, "pkcl1", kept(records(), "pkcl1"))
    skip = (*barred.get("skip", ()), "synthesize-tip")
    with plan_of(path, "b11549", only=barred.get("only", ()), skip=skip) as plan:
        assert written(plan) == {"": state(4)}
        assert plan.copied.checkpoints == ()
        (why,) = [why for action, why in plan.refused if action == "convert-checkpoints"]
        assert "not allowed" in why
        assert "slot.bin.ckpt" in why


def test_other_actions_on_lists_that_are_barred(tmp_path: Path) -> None:
    path = store(tmp_path, "pkcl1", kept(records(), "pkcl1"))
    companion = path.with_name("slot.bin.ckpt")
    companion.write_bytes(companion.read_bytes()[:-1])
    for barred in ("mend-list", "drop-checkpoints"):
        with plan_of(path, skip=(barred, "synthesize-tip")) as plan:
            assert list(written(plan)) == [""]
            assert barred in dict(plan.refused)
    with plan_of(path, "b10229", skip=("drop-checkpoints",)) as plan:
        assert list(written(plan)) == [""]
        assert "drop-checkpoints" in dict(plan.refused)


def test_a_companion_that_nobody_knows_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "slot.bin"
    path.write_bytes(plain())
    path.with_name("slot.bin.ckpt").write_bytes(b"of no known kind")
    for barred in ({"skip": ("drop-companions",)}, {"only": ("trim",)}):
        with plan_of(path, **barred) as plan:
            assert not plan.steps
            assert list(written(plan)) == [""]
            assert "no copy of slot.bin.ckpt" in dict(plan.refused)["drop-companions"]


def test_why_checkpoints_are_left_out(tmp_path: Path) -> None:
    path = store(tmp_path, "pkcl1", kept(records(), "pkcl1"))
    companion = path.with_name("slot.bin.ckpt")
    companion.write_bytes(companion.read_bytes()[:-1])
    with plan_of(path) as plan:
        why = {step.action: step.why for step in plan.steps}
    assert why["drop-checkpoints"] == "is cut"
    good = kept(records(), "stck2")
    beyond = replace(good[-1], n_tokens=40, pos_min=39, pos_max=39)
    with plan_of(store(tmp_path, "stck2", (*good, beyond))) as plan:
        (step,) = plan.steps
        assert step.why == "checkpoint 3 ends at position 39, the state at 11"


def test_nothing_is_added_to_a_state_that_does_not_fit(tmp_path: Path) -> None:
    path, tokens = tmp_path / "slot.bin", Tokens(tuple(range(100, 400)))
    rows, r, s = (Row(F16, 16),) * 2, (Row(F32, 32),) * 2, (Row(F32, 64),) * 2
    sections = {
        "attn": Cache((cells_of(tokens),), k=rows, v=rows),
        "recr": Recurrent((Cell(299),), 4, r, s),
    }
    path.write_bytes(pack(Slot(4, tokens, Memory(sections, DIALECTS["rotated"]))).data)
    target = target_of("llama-server -c 256 -np 1", "b11549", None)
    with target as server, planned(path, server, Options(), "new.bin") as plan:
        assert plan.futile
        assert [action for action, _ in plan.refused] == ["trim"]
        assert not plan.steps


@pytest.mark.parametrize(
    ("build", "prefixed"), [("turboquant@b9079", False), ("siliang", True), ("b11549", True)]
)
def test_a_checkpoint_of_the_end_is_as_the_server_reads_it(
    tmp_path: Path, build: str, *, prefixed: bool
) -> None:
    path = tmp_path / "slot.bin"
    path.write_bytes(state(4 if build == "b11549" else 2))
    with plan_of(path, build) as plan:
        data = b"".join(written(plan).values())
        assert "synthesize-tip" in [step.action for step in plan.steps]
        assert (b"\xd8\x3c\x14\xaf" in data) == prefixed
        assert all(one.usable for one in plan.copied.checkpoints)
    (tmp_path / "new").mkdir()
    assert is_finished(path, tmp_path / "new", build)
