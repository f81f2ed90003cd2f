"""A save of 16 GiB and 200,000 cells that takes almost no room on the disk."""

from __future__ import annotations

from pathlib import Path

from tests.support.meter import write_sparse
from tests.support.writer import DIALECTS, F16, Cache, Memory, Row, Slot, Tokens, cells_of

CELLS = 200_000
LAYERS = 32
ROW_BYTES = 1344


def large_slot(folder: Path) -> Path:
    """Write the save to `folder`."""
    tokens = Tokens(tuple(1 + i % 30_000 for i in range(CELLS)))
    rows = (Row(F16, ROW_BYTES),) * LAYERS
    memory = Memory({"attn": Cache((cells_of(tokens),), k=rows, v=rows)}, DIALECTS[""])
    path = folder / "large.slot"
    write_sparse(path, Slot(2, tokens, memory))
    return path
