"""Of a checkpoint with a negative number, `check` predicted that less than nothing is reused.

What is reused, and that answers are those of a cold run but for `DEAD`, was seen on llama.cpp
b11549. `repair` left wrong numbers as they were, or left the checkpoint out.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from inspector.check import checked
from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.report import examined
from inspector.server.prompt import Outcome, Request
from inspector.server.target import target_of
from samples.make import HERE as SAMPLES

MODELS = SAMPLES.parent / "tests/oracle/models"
WINDOWED = "ggsq4.iswa--gemma3-b11549-checkpoints.slot", "gemma3-iswa"
HYBRID = "ggsq4.hybrid--lfm2-b11549-checkpoints.slot", "lfm2"
REFUSED, DEAD = Outcome.HTTP_ERROR, Outcome.ABORTS
HIGH_HALF = 18 - (1 << 32)

# fmt: off
CASES = (
    (WINDOWED, (-1, 0, 17), 17),
    (WINDOWED, (HIGH_HALF, 0, 17), 17),
    (WINDOWED, (1 << 62, 0, 17), 17),
    (WINDOWED, (18, -5, -3), 18),
    (WINDOWED, (18, -1, 17), 17),
    (WINDOWED, (-1, -5, -3), REFUSED),
    (HYBRID, (-1, 17, 17), 18),
    (HYBRID, (HIGH_HALF, 17, 17), 18),
    (HYBRID, (18, -5, -3), 18),
    (HYBRID, (18, -1, 17), DEAD),
)
# fmt: on
"""A sample and its model, n_tokens, pos_min and pos_max of its first checkpoint, and what becomes
of a prompt that shares twenty tokens with it: those that are reused, or another end."""


def numbered(sample: str, numbers: tuple[int, int, int], path: Path) -> bytes:
    """A copy of a sample whose first checkpoint has other numbers; gives the sample."""
    with examined(SAMPLES / "intact" / sample) as report:
        node = report.checkpoints[0].record.node.get("n_tokens")
        assert node is not None
        whole = report.source.read_at(0, report.size)
    data = bytearray(whole)
    struct.pack_into("<qii", data, node.span.start, *numbers)
    path.write_bytes(data)
    return whole


@pytest.mark.parametrize(("subject", "numbers", "expected"), CASES)
def test_what_is_reused(
    subject: tuple[str, str], numbers: tuple[int, int, int], expected: int | Outcome, tmp_path: Path
) -> None:
    sample, model = subject
    numbered(sample, numbers, tmp_path / "a.slot")
    command = f"llama-server -m {MODELS / model}.gguf -c 512 -np 1"
    with (
        target_of(command, "b11549") as target,
        checked(tmp_path / "a.slot", target, [Request(20, 28)]) as check,
    ):
        found = check.reuse[0].found
        if isinstance(expected, Outcome):
            assert found.outcome is expected
        else:
            assert found.reused == expected


@pytest.mark.parametrize(("subject", "numbers", "expected"), CASES)
def test_numbers_that_the_blob_proves_are_written(
    subject: tuple[str, str], numbers: tuple[int, int, int], expected: int | Outcome, tmp_path: Path
) -> None:
    """But not where none of the record's own agrees with the blob: then the record is left out."""
    whole = numbered(subject[0], numbers, tmp_path / "a.slot")
    proven = 18 in (numbers[0], numbers[2] + 1)
    with planned(tmp_path / "a.slot", None, Options(), "b.slot") as plan:
        (output,) = plan.outputs
        actions = [step.action for step in plan.steps]
        written = output.content.read_at(0, output.content.size)
    if proven:
        assert actions == ["mend-list"]
        assert written == whole
    else:
        assert "drop-checkpoints" in actions


def test_no_number_is_written_where_that_is_barred(tmp_path: Path) -> None:
    numbered(WINDOWED[0], (-1, 0, 17), tmp_path / "a.slot")
    with planned(tmp_path / "a.slot", None, Options(skip=("mend-list",)), "b.slot") as plan:
        assert plan.steps == ()
        assert plan.outputs[0].content.size == plan.report.size
