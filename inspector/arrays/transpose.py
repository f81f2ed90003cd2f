"""Transposition of stored values, which may be larger than memory: by cell <-> by channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspector.source import Unreadable

BUDGET = 32 << 20
"""Bytes of the result that are put together at a time."""
PIECE_BYTES = 1 << 20
"""Bytes that are read or given out at a time."""
SKIPPED_BYTES = 64 << 10
"""Bytes between two wanted pieces that are quicker read than skipped."""

Matrix = NDArray[Any]


def chunks_transposed(
    read_at: Callable[[int, int], bytes],
    start: int,
    n_cells: int,
    n_channels: int,
    element_bytes: int,
    *,
    to_rows: bool,
    budget: int = BUDGET,
) -> Iterator[bytes]:
    """The bytes of a matrix in the other order, piece by piece.

    Memory stays below the budget and a few pieces, unless one line of the result is larger. The
    input is read once for each `budget` bytes of it if its lines are short.

    Args:
        read_at: gives bytes from (offset, size).
        start: offset of the matrix.
        n_cells: cells, with all channels of each together in rows.
        n_channels: channels, with all cells of each together if they are transposed.
        element_bytes: bytes of an element, 2 or 4.
        to_rows: whether the input is by channel and the result by cell, or the other way round.
        budget: bytes of the result to put together at a time.

    Raises:
        Unreadable: if the input ends before the matrix does.
    """
    n_lines, n_columns = (n_channels, n_cells) if to_rows else (n_cells, n_channels)
    if not n_lines or not n_columns:
        return
    stored = _Stored(read_at, start, n_lines, n_columns, np.dtype(f"u{element_bytes}"))
    width = min(budget // n_lines, PIECE_BYTES) // element_bytes
    width = min(n_columns, max(1, width))
    room = np.empty((width, n_lines), stored.element)
    for first in range(0, n_columns, width):
        block = room[: min(width, n_columns - first)]
        for line, piece in stored.pieces(first, len(block)):
            block[:, line : line + len(piece)] = piece.T
        flat, step = block.reshape(-1), PIECE_BYTES // element_bytes
        for at in range(0, len(flat), step):
            yield flat[at : at + step].tobytes()


class _Stored:
    """The matrix as it is stored."""

    def __init__(
        self,
        read_at: Callable[[int, int], bytes],
        start: int,
        n_lines: int,
        n_columns: int,
        element: np.dtype[Any],
    ) -> None:
        self._read_at, self._start = read_at, start
        self._n_lines, self._n_columns = n_lines, n_columns
        self.element = element

    def pieces(self, first: int, width: int) -> Iterator[tuple[int, Matrix]]:
        """Some columns of a few lines each, with the number of the first of the lines."""
        skipped = (self._n_columns - width) * self.element.itemsize
        apart = skipped > SKIPPED_BYTES
        line_bytes = (width if apart else self._n_columns) * self.element.itemsize
        n_together = max(1, PIECE_BYTES // line_bytes)
        for line in range(0, self._n_lines, n_together):
            n = min(n_together, self._n_lines - line)
            if apart:
                lines = [self._run(line + i, first, width) for i in range(n)]
                yield line, np.stack(lines)
            else:
                whole = self._run(line, 0, n * self._n_columns)
                yield line, whole.reshape(n, -1)[:, first : first + width]

    def _run(self, line: int, column: int, n: int) -> Matrix:
        """Elements one after another."""
        size = n * self.element.itemsize
        place = (line * self._n_columns + column) * self.element.itemsize
        data = self._read_at(self._start + place, size)
        if len(data) < size:
            raise Unreadable(f"only {len(data)} of {size} bytes at 0x{self._start + place:x}")
        return np.frombuffer(data, self.element)
