"""Rows of 2^60 bytes made the loader's next read, of no byte, one at an offset that no file has."""

from __future__ import annotations

import struct
from pathlib import Path

from inspector.check import checked
from inspector.server.restore import Outcome
from inspector.server.target import target_of
from samples.make import HERE as SAMPLES

K_SIZE_ROW = 0x2D34


def test_check_of_rows_beyond_any_offset(tmp_path: Path) -> None:
    sample = SAMPLES / "intact" / "ggsq2.kv--llama-b10229-third-of-four-streams.slot"
    data = bytearray(sample.read_bytes())
    data[K_SIZE_ROW : K_SIZE_ROW + 8] = struct.pack("<Q", 1 << 60)
    path = tmp_path / "slot.bin"
    path.write_bytes(data)
    with target_of(None, "b10229") as target, checked(path, target) as check:
        assert check.restore.outcome is Outcome.REFUSES
