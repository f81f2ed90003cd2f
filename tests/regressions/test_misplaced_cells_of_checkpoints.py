"""A checkpoint with cells at negative or repeated positions was called usable.

llama.cpp b11549 with gemma3: after a return to a checkpoint whose third cell stands at -1 the first
answer is another one, and the next request ends the server.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from inspector.check import checked
from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.server.prompt import Outcome
from inspector.server.target import Target, target_of
from samples.make import HERE as SAMPLES

SAMPLE = SAMPLES / "intact/ggsq4.iswa--gemma3-b11549-checkpoints.slot"
MODEL = SAMPLES.parent / "tests/oracle/models/gemma3-iswa.gguf"
SERVER = f"llama-server -m {MODEL} -c 512 -np 1 -fa on"
CELL_2, CELL_BYTES = 0x551C, 12
"""Where the position of the third cell of the first checkpoint stands."""


def with_cell_at(position: int, path: Path) -> Path:
    data = bytearray(SAMPLE.read_bytes())
    assert struct.unpack_from("<i", data, CELL_2) == (2,)
    struct.pack_into("<i", data, CELL_2, position)
    path.write_bytes(data)
    return path


def outcomes(path: Path, target: Target) -> list[Outcome]:
    with checked(path, target) as check:
        return [one.found.outcome for one in check.reuse]


@pytest.mark.parametrize("position", [-1, -5, 9])
def test_no_reuse_is_promised_and_the_record_is_dropped(tmp_path: Path, position: int) -> None:
    path = with_cell_at(position, tmp_path / "a.slot")
    with target_of(SERVER, "b11549") as target:
        assert Outcome.UNKNOWN not in outcomes(SAMPLE, target)
        assert Outcome.UNKNOWN in outcomes(path, target)
        with planned(path, target, Options(), "b.slot") as plan:
            assert "appendix.blob-cells" in {finding.code for finding in plan.report.findings}
            assert [one.usable for one in plan.report.checkpoints] == [False]
            assert [step.action for step in plan.steps] == ["drop-checkpoints", "synthesize-tip"]
            assert not plan.left
            assert plan.after is not None
            after = [one.found.outcome for one in plan.after.reuse]
            assert after == [Outcome.REUSES] * len(after)
