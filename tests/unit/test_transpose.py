"""Transposition piece by piece against numpy's in memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.arrays.transpose import BUDGET, PIECE_BYTES, SKIPPED_BYTES, chunks_transposed
from inspector.source import Unreadable


class Bytes:
    """Bytes to read from, and how often that was done."""

    def __init__(self, data: bytes) -> None:
        self.data, self.reads, self.n_bytes = data, 0, 0

    def read_at(self, offset: int, size: int) -> bytes:
        assert offset >= 0
        assert size > 0
        self.reads += 1
        self.n_bytes += size
        return self.data[offset : offset + size]


def by_cell(n_cells: int, n_channels: int, element_bytes: int) -> np.ndarray:
    data = np.random.default_rng(8).bytes(n_cells * n_channels * element_bytes)
    return np.frombuffer(data, f"u{element_bytes}").reshape(n_cells, n_channels)


def check(rows: np.ndarray, budget: int = BUDGET, before: int = 0) -> None:
    """Both ways, behind some bytes that do not belong to the matrix."""
    shape = (*rows.shape, rows.itemsize)
    stored, transposed = rows.tobytes(), rows.T.tobytes()
    for to_rows, data, expected in ((False, stored, transposed), (True, transposed, stored)):
        source = Bytes(b"\xaa" * before + data + b"\xbb")
        found = list(
            chunks_transposed(source.read_at, before, *shape, to_rows=to_rows, budget=budget)
        )
        assert b"".join(found) == expected
        assert all(0 < len(chunk) <= PIECE_BYTES for chunk in found)


@given(
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from([2, 4]),
    st.integers(1, 20_000),
    st.integers(0, 5),
)
def test_any_shape_and_budget(
    n_cells: int, n_channels: int, element_bytes: int, budget: int, before: int
) -> None:
    check(by_cell(n_cells, n_channels, element_bytes), budget, before)


@pytest.mark.parametrize("element_bytes", [2, 4])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4099), (4099, 1), (3, 600_001), (600_001, 3)])
@pytest.mark.parametrize("budget", [1 << 18, BUDGET])
def test_long_and_narrow(shape: tuple[int, int], budget: int, element_bytes: int) -> None:
    check(by_cell(*shape, element_bytes), budget)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("to_rows", [False, True])
def test_nothing(shape: tuple[int, int], to_rows: bool) -> None:
    assert list(chunks_transposed(Bytes(b"").read_at, 0, *shape, 2, to_rows=to_rows)) == []


@pytest.mark.parametrize("to_rows", [False, True])
def test_an_input_that_ends_early(to_rows: bool) -> None:
    source = Bytes(bytes(11 + 2 * 40 * 7 - 1))
    with pytest.raises(Unreadable, match="bytes at 0x"):
        list(chunks_transposed(source.read_at, 11, 40, 7, 2, to_rows=to_rows))


@pytest.mark.parametrize("to_rows", [False, True])
@pytest.mark.parametrize(("n_cells", "n_channels"), [(16_384, 512), (1 << 23, 1), (1 << 22, 2)])
def test_memory_and_reads_are_bounded(n_cells: int, n_channels: int, to_rows: bool) -> None:
    """A matrix eight times as large as the budget of 2 MiB."""
    budget = 2 << 20
    source = Bytes(bytes(n_cells * n_channels * 2))
    shape = (n_cells, n_channels, 2)
    tracemalloc.start()
    try:
        chunks = chunks_transposed(source.read_at, 0, *shape, to_rows=to_rows, budget=budget)
        assert sum(map(len, chunks)) == len(source.data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < max(budget, n_cells * 2 if not to_rows else 0) + 6 * PIECE_BYTES
    assert source.reads <= 8 * max(n_channels, 16)
    assert source.n_bytes <= 8 * len(source.data)


def test_long_lines_are_skipped_over() -> None:
    n_channels, n_cells = 16, SKIPPED_BYTES
    source = Bytes(bytes(n_cells * n_channels * 2))
    chunks = chunks_transposed(
        source.read_at, 0, n_cells, n_channels, 2, to_rows=True, budget=1 << 19
    )
    assert sum(map(len, chunks)) == len(source.data)
    assert source.n_bytes == len(source.data)
    assert source.reads == 4 * n_channels
