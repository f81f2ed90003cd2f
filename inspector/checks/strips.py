"""Norms and non-finite numbers of stored blocks, by ranges of cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formats.bodies.cells import N_CELLS
from inspector.arrays.numbers import WORDS, dequantize, magnitudes, sum_of_squares
from inspector.checks.tensors import CHUNK, Statistics
from inspector.source import Source

MOST_BINS = 48


@dataclass(frozen=True, slots=True)
class Strip:
    """The numbers of one block along its cells.

    Attributes:
        of: what is known of the block as a whole.
        edges: the first cell of every range, and the end of the last one.
        rms: root of the mean square in every range; NaN if some numbers there are not finite.
        non_finite: words in every range that are NaN or infinite.
    """

    of: Statistics
    edges: tuple[int, ...]
    rms: tuple[float, ...]
    non_finite: tuple[int, ...]


def strips(source: Source, measured: Iterable[Statistics]) -> Iterator[Strip]:
    """Blocks along their cells.

    Args:
        source: the open file.
        measured: what `statistics` found in the blocks; each is read once more.
    """
    for one in measured:
        block = one.block
        data = block.data
        if data is None or not block.row_bytes:
            continue
        n_cells = block.n_cells if block.element_bytes else len(data) // block.row_bytes
        if not 0 < n_cells <= N_CELLS or n_cells * block.element_bytes > len(data):
            continue
        bins = min(n_cells, MOST_BINS)
        edges = np.array([n_cells * at // bins for at in range(bins + 1)], np.int64)
        squares, counts, bad = (_by_channels if block.element_bytes else _by_rows)(
            source, one, edges
        )
        rms = [
            math.sqrt(square / count) if count and not worse else math.nan
            for square, count, worse in zip(squares, counts, bad, strict=True)
        ]
        yield Strip(one, tuple(edges.tolist()), tuple(rms), tuple(map(int, bad)))


Sums = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]
"""Of every range of cells: squares, numbers, and words that are not finite."""


def _by_rows(source: Source, one: Statistics, edges: NDArray[np.int64]) -> Sums:
    """A range of cells is a range of bytes."""
    block, kind = one.block, one.type
    assert block.data is not None  # nothing else was measured
    n = len(edges) - 1
    squares, counts, bad = np.zeros(n), np.zeros(n, np.int64), np.zeros(n, np.int64)
    at_once = max(1, CHUNK // kind.block_bytes) * kind.block_bytes
    for index in range(n):
        start, stop = (block.data.start + int(edge) * block.row_bytes for edge in edges[index:][:2])
        for offset in range(start, stop, at_once):
            raw = source.read_at(offset, min(at_once, stop - offset))
            raw = raw[: len(raw) - len(raw) % kind.block_bytes]
            if raw:
                squares[index] += sum_of_squares(raw, kind)
                counts[index] += len(raw) // kind.block_bytes * kind.block_elements
                words = magnitudes(raw, kind)
                limit = WORDS[kind.name].infinite
                bad[index] += sum(int(np.count_nonzero(part >= limit)) for part in words)
    return squares, counts, bad


def _by_channels(source: Source, one: Statistics, edges: NDArray[np.int64]) -> Sums:
    """Every channel has a number of each cell: all ranges are in every line."""
    block, kind = one.block, one.type
    assert block.data is not None
    n_cells, n = block.n_cells, len(edges) - 1
    squares, counts, bad = np.zeros(n), np.zeros(n, np.int64), np.zeros(n, np.int64)
    line_bytes = n_cells * block.element_bytes
    at_once = max(1, CHUNK // line_bytes) * line_bytes
    for offset in range(block.data.start, block.data.stop, at_once):
        raw = source.read_at(offset, min(at_once, block.data.stop - offset))
        raw = raw[: len(raw) - len(raw) % line_bytes]
        if not raw:
            break
        numbers = dequantize(raw, kind, kind.block_elements).reshape(-1, n_cells)
        finite = np.isfinite(numbers)
        by_cell = np.where(finite, numbers, 0).astype(np.float64) ** 2
        squares += np.add.reduceat(by_cell.sum(axis=0), edges[:-1])
        bad += np.add.reduceat((~finite).sum(axis=0), edges[:-1])
        counts += np.diff(edges) * len(numbers)
    return squares, counts, bad
