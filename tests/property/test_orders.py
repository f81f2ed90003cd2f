"""Orders that are changed twice are what they were; rows that are asked for apart are the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from formats.ggml_types import TYPES, UPSTREAM, GgmlType
from inspector.arrays.numbers import dequantize
from inspector.arrays.quantize import WRITABLE, quantize
from inspector.repair.actions.order import Key, swapped_rows, transposed
from inspector.repair.actions.transcode import Change, transcoded
from inspector.repair.segments import Write
from inspector.repair.state import Tensor

KINDS = [kind for kind in TYPES if kind.name in WRITABLE and kind.writer == UPSTREAM]
F16, F32 = (next(kind for kind in KINDS if kind.name == name) for name in ("f16", "f32"))
SEEDS = st.integers(0, 1 << 16)


def tensor(kind: GgmlType, n_cells: int, n_elements: int, seed: int) -> Tensor:
    numbers = np.random.default_rng(seed).normal(0, 1, (n_cells, n_elements)).astype(np.float32)
    data = quantize(numbers, kind).tobytes()
    return Tensor(kind.id, len(data) // n_cells, n_cells, (Write(data, ""),), 0, kind)


def content(tensor: Tensor) -> bytes:
    return tensor.reader().read_at(0, tensor.row_bytes * tensor.n_cells)


@given(
    st.sampled_from(KINDS),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
    SEEDS,
)
def test_swapping_keys_twice(
    kind: GgmlType, n_cells: int, rest: int, rope: int, heads: int, newer: bool, seed: int
) -> None:
    key = Key(32 * rest, 32 * rope)
    stored = tensor(kind, n_cells, heads * 32 * (rest + rope), seed)
    once = swapped_rows(stored, key, 0, newer=newer)
    assert content(swapped_rows(once, key, 0, newer=not newer)) == content(stored)
    rows = dequantize(content(stored), kind, 32 * (rest + rope))
    front = key.rope if newer else key.rest
    turned = dequantize(content(once), kind, 32 * (rest + rope))
    assert (turned == np.hstack([rows[:, front:], rows[:, :front]])).all()


@given(st.integers(1, 3), st.integers(1, 8), st.integers(1, 4), SEEDS)
def test_transposing_states_twice(n_cells: int, size: int, n_head: int, seed: int) -> None:
    stored = tensor(F32, n_cells, n_head * size * size, seed)
    once = transposed(stored, size, n_head)
    assert content(transposed(once, size, n_head)) == content(stored)


@given(st.sampled_from(KINDS), st.integers(1, 9), st.sampled_from([0, 64, 128]), SEEDS, st.data())
def test_rows_asked_for_apart(
    new: GgmlType, n_cells: int, turned: int, seed: int, data: st.DataObject
) -> None:
    made = transcoded(tensor(F16, n_cells, 256, seed), Change(F16, new, 0, turned))
    whole, offset = content(made), data.draw(st.integers(0, made.row_bytes * n_cells))
    size = data.draw(st.integers(0, len(whole)))
    assert made.reader().read_at(offset, size) == whole[offset : offset + size]


@given(st.sampled_from(KINDS), st.integers(1, 9), st.sampled_from([0, 64, 128]), SEEDS)
def test_there_and_back(new: GgmlType, n_cells: int, turned: int, seed: int) -> None:
    """What comes back is as far off as the rounding of the way there, and that of the way back."""
    stored = tensor(F16, n_cells, 256, seed)
    there = transcoded(stored, Change(F16, new, 0, turned))
    back = transcoded(there, Change(new, F16, turned, 0))
    first, last = (dequantize(content(one), F16, 256) for one in (stored, back))
    bound = {"q8_0": 0.01, "bf16": 0.005, "f16": 1e-3, "f32": 1e-3}.get(new.name, 0.15)
    assert np.linalg.norm(last - first) <= bound * np.linalg.norm(first)
