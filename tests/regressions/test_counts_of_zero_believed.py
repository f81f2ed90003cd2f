"""A count of cells that was 0 was believed, and what follows it was called surplus.

Of a window so emptied repair cut all the rest of the file off; llama.cpp b11549 ends at the first
request after such a restore. Of a checkpoint so emptied it cut the cells off, and b11549 answered
otherwise after a return to it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.fuzzing.subject import Subject, edited, packed
from inspector.repair.draft import Options
from inspector.repair.outcome import carry_out
from inspector.repair.plan import planned
from inspector.report import examined
from inspector.server.target import target_of
from samples.make import HERE as SAMPLES

WINDOWED = SAMPLES / "intact/ggsq4.iswa--gemma3-b11549-checkpoints.slot"
SHARED = SAMPLES / "intact/ggsn9.hybrid--lfm2-b10229-two-sequences.slot"
MODEL = SAMPLES.parent / "tests/oracle/models/gemma3-iswa.gguf"
SERVER = f"llama-server -m {MODEL} -c 512 -np 1 -fa on"
WINDOW = "swa.streams[0]"
BLOB = "appendix.records[0].data_tgt.attn.streams[0]"


def with_words(path: Path, sample: Path, words: dict[str, int]) -> Path:
    subject = Subject(sample.read_bytes())
    edits = [packed(subject.node(name), value) for name, value in words.items()]
    path.write_bytes(edited(subject.data, edits))
    return path


@pytest.mark.parametrize("member", ["base", "swa"])
def test_an_emptied_section_is_mended(tmp_path: Path, member: str) -> None:
    path = with_words(tmp_path / "a.slot", WINDOWED, {f"{member}.streams[0].cell_count": 0})
    with (
        target_of(SERVER, "b11549") as target,
        planned(path, target, Options(), "b.slot") as plan,
    ):
        assert plan.steps[0].action == "correct-word"
        assert not any(step.loss for step in plan.steps)
        carry_out(plan, tmp_path / "b.slot", force=False)
    assert (tmp_path / "b.slot").read_bytes() == WINDOWED.read_bytes()


def test_cells_of_several_sequences_are_counted(tmp_path: Path) -> None:
    subject = Subject(SHARED.read_bytes())
    name = next(path for path, _ in subject.fields() if path.endswith("cell_count"))
    with examined(with_words(tmp_path / "a.slot", SHARED, {name: 0})) as report:
        mend = report.identification.mend
        assert mend is not None
        assert (mend.path, mend.value) == (name, subject.number(name))


def test_what_an_empty_section_may_hold_is_not_cut_off(tmp_path: Path) -> None:
    """Nor where a second word is wrong, so that no single one explains the file."""
    words = {f"{WINDOW}.cell_count": 0, f"{WINDOW}.v[0].v_type": 77}
    path = with_words(tmp_path / "a.slot", WINDOWED, words)
    with target_of(SERVER, "b11549") as target:
        for options in (Options(), Options(allow_loss=True)):
            with planned(path, target, options, "b.slot") as plan:
                assert "strip-trailing" not in [step.action for step in plan.steps]
                refused = dict(plan.refused)
                assert "may be what it holds" in refused["strip-trailing"]


def test_an_emptied_checkpoint_is_left_out(tmp_path: Path) -> None:
    path = with_words(tmp_path / "a.slot", WINDOWED, {f"{BLOB}.cell_count": 0})
    with (
        target_of(SERVER, "b11549") as target,
        planned(path, target, Options(), "b.slot") as plan,
    ):
        step = plan.steps[0]
        assert step.action == "drop-checkpoints"
        assert step.loss == "the checkpoints that are left out"
        assert all(one.action != "mend-list" for one in plan.steps)


def test_a_checkpoint_with_another_number_of_sequences_is_not_usable(tmp_path: Path) -> None:
    """llama.cpp b11549: "invalid seq_id-agnostic kv cell"."""
    subject = Subject(WINDOWED.read_bytes())
    at = subject.rows(f"{BLOB}.cells").field_span(3, "n_seq_id")
    path = tmp_path / "a.slot"
    path.write_bytes(edited(subject.data, [(at.start, at.stop, b"\3\0\0\0")]))
    with examined(path) as report:
        assert "appendix.blob-unreadable" in {finding.code for finding in report.findings}
        assert not report.checkpoints[0].usable
