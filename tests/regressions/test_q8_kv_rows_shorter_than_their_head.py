"""Rows of q8_KV too short for a scale and a sum were unpacked as a negative number of quants."""

from __future__ import annotations

from pathlib import Path

from inspector.report import examined
from tests.support.writer import F16, IkMemory, Row, Slot, Tokens, cells_of, pack

Q8_KV = 151


def test_q8_kv_rows_shorter_than_their_head(tmp_path: Path) -> None:
    tokens = Tokens((5, 6))
    memory = IkMemory(3, cells_of(tokens), (Row(Q8_KV, 4),), (Row(F16, 8),))
    path = tmp_path / "slot.bin"
    path.write_bytes(pack(Slot(3, tokens, memory)).data)
    with examined(path) as report:
        assert report.identification.reading is not None
