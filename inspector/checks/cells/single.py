"""Findings at one cell, which say how many are like it."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.findings import Finding
from inspector.node import Rows

LAST = (1 << 31) - 1
"""The highest position that a cell can have."""


def at_cell(
    code: str,
    path: str,
    table: Rows,
    index: int,
    field: str,
    message: str,
    expected: str,
    actual: str,
) -> Finding:
    """A finding at a field of one cell."""
    return Finding(
        code, f"{path}[{index}].{field}", table.field_span(index, field), message, expected, actual
    )


def empty(table: Rows, path: str, marks: tuple[int, ...] = (-1,)) -> Iterator[Finding]:
    """Position -1 is what a cell without a token has; a state holds none."""
    import numpy as np

    pos = table.column("pos")
    empty = np.flatnonzero(np.isin(pos, marks))
    if len(empty) and not (table.ragged and "kv_self" in path):
        index = int(empty[0])
        value = int(pos[index])
        message = f"cell {index} is at position {value}; {len(empty):,} of {len(table):,} are"
        yield at_cell(
            "cells.pos-empty", path, table, index, "pos", message, "at least 0", str(value)
        )
