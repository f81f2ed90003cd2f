"""A cut `.checkpoints` of ik_llama.cpp begins like a state, and was taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.identify import Verdict
from inspector.report import examined
from samples.make import HERE as SAMPLES
from samples.small import CELLS
from tests.support.writer import F16, IkMemory, Row, Slot, Tokens, pack

LISTS = ("ik3--with-companions", "ik4--with-companions")


def layout(path: Path) -> str | None:
    with examined(path) as report:
        assert report.identification.reading is not None
        assert report.identification.verdict is not Verdict.UNKNOWN
        return report.identification.reading.layout.id


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_was_cut_is_a_list(name: str, tmp_path: Path) -> None:
    data = (SAMPLES / f"intact/{name}.slot.checkpoints").read_bytes()
    path = tmp_path / "list"
    for at in range(16, len(data), 5):
        path.write_bytes(data[:at])
        assert layout(path) == f"ik-checkpoints{data[4]}"


@pytest.mark.parametrize("version", [3, 4])
def test_a_state_whose_tokens_look_like_a_record_is_a_state(version: int, tmp_path: Path) -> None:
    row = Row(F16, 32)
    ids = (0, 3, 5, 3, 5, 100, 0, *range(7, len(CELLS)))
    data = pack(Slot(version, Tokens(ids), IkMemory(version, CELLS, (row,) * 2, (row,) * 2))).data
    path = tmp_path / "state"
    for at in (len(data), len(data) - 1, len(data) - 200):
        path.write_bytes(data[:at])
        assert layout(path) == f"ik{version}"
