"""What rounding does to numbers: of a cache to its rows, of a backend to what it multiplies.

Source: ggml-org/llama.cpp b10587, ggml/src/ggml-quants.c `quantize_row_*_ref`,
ggml/src/ggml-cpu/ggml-cpu.c `vec_dot_type`; q6_0 and q8_KV from ikawrakow/ik_llama.cpp 8337e4cd3,
ggml/src/iqk/iqk_quantize.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from formats.ggml_types import TYPES, GgmlType
from inspector.arrays.numbers import IQ4_NL, Floats
from inspector.model.layer0.side import Way

BLOCK, LARGE_BLOCK = 32, 256


def _halved(numbers: Floats) -> Floats:
    return numbers.astype(np.float16).astype(np.float32)


def _brain(numbers: Floats) -> Floats:
    """To bf16: nearest, half to even."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return nearest.astype(np.uint32).view(np.float32)


def _inverse(scale: Floats) -> Floats:
    found = np.zeros_like(scale)
    np.divide(1, scale, out=found, where=scale != 0)
    return found


def _peak(numbers: Floats) -> Floats:
    """The number of the largest magnitude, with its sign, along the last axis."""
    found: Floats = np.take_along_axis(
        numbers, np.abs(numbers).argmax(axis=-1, keepdims=True), axis=-1
    )
    return found


def _q8_0(numbers: Floats) -> Floats:
    codes, d = _eight_bits(numbers)
    return codes * _halved(d)


def _q8_kv(numbers: Floats) -> Floats:
    codes, d = _eight_bits(numbers)
    return codes * d


def _eight_bits(numbers: Floats) -> tuple[Floats, Floats]:
    """Codes up to 127 either way, and what one stands for."""
    d: Floats = np.abs(numbers).max(axis=-1, keepdims=True) / np.float32(127)
    codes: Floats = np.rint(numbers * _inverse(d))
    return codes, d


def _q8_k(numbers: Floats) -> Floats:
    inverse: Floats = _inverse(_peak(numbers)) * np.float32(-127)
    codes: Floats = np.minimum(np.float32(127), np.rint(numbers * inverse))
    return codes * _inverse(inverse)


def _around_zero(half: int) -> Callable[[Floats], Floats]:
    """Codes from -half on, the peak at -half."""

    def rounded(numbers: Floats) -> Floats:
        d: Floats = _peak(numbers) / np.float32(-half)
        codes: Floats = np.floor(numbers * _inverse(d) + np.float32(half + 0.5))
        return (np.clip(codes, 0, 2 * half - 1) - np.float32(half)) * _halved(d)

    return rounded


def _from_minimum(largest: int) -> Callable[[Floats], Floats]:
    """Codes from 0 to the largest, above the minimum."""

    def rounded(numbers: Floats) -> Floats:
        low: Floats = numbers.min(axis=-1, keepdims=True)
        d: Floats = (numbers.max(axis=-1, keepdims=True) - low) / np.float32(largest)
        codes: Floats = np.floor((numbers - low) * _inverse(d) + np.float32(0.5))
        return np.clip(codes, 0, largest) * _halved(d) + _halved(low)

    return rounded


def _iq4_nl(numbers: Floats) -> Floats:
    """The nearest code each, then the scale that fits them best, large numbers counting more."""
    curve: Floats = IQ4_NL.astype(np.float32)
    scaled = numbers * _inverse(_peak(numbers) / curve[0])
    codes: Floats = curve[np.abs(scaled[..., None] - curve).argmin(axis=-1)]
    above: Floats = (codes * numbers**3).sum(axis=-1, keepdims=True)
    below: Floats = (codes * numbers) ** 2
    below = below.sum(axis=-1, keepdims=True)
    return codes * _halved(above * _inverse(below))


_BLOCKWISE: dict[str, Callable[[Floats], Floats]] = {
    "q8_0": _q8_0,
    "q4_0": _around_zero(8),
    "q5_0": _around_zero(16),
    "q6_0": _around_zero(32),
    "q4_1": _from_minimum(15),
    "q5_1": _from_minimum(31),
    "iq4_nl": _iq4_nl,
}


def _in_blocks(numbers: Floats, size: int, rounded: Callable[[Floats], Floats]) -> Floats:
    """Rounded in blocks along the last axis, the last one filled up with zeros."""
    n = numbers.shape[-1]
    filled = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -n % size)])
    blocks = filled.reshape(*filled.shape[:-1], -1, size)
    return rounded(blocks).reshape(filled.shape)[..., :n].astype(np.float32)


def as_stored(numbers: Floats, kind: GgmlType) -> Floats:
    """The numbers after a cache of that type; unchanged for f32 and for what is not known."""
    match kind.name:
        case "f16":
            return _halved(numbers)
        case "bf16":
            return _brain(numbers)
        case "q8_KV":
            return _q8_kv(numbers)
        case name if name in _BLOCKWISE:
            return _in_blocks(numbers, BLOCK, _BLOCKWISE[name])
    return numbers


def grain(rows: Floats, computed: Floats, kind: GgmlType) -> GgmlType:
    """The coarsest type that rows have been through: the one they are in, or one before it.

    Args:
        rows: as they are stored, shape `(cells, row)`.
        computed: what they are of, which tells what a type costs rows that are new to it.
        kind: their type.
    """
    found, most = kind, 0.0
    size = float(np.linalg.norm(computed))
    usual = computed * np.float32(float(np.linalg.norm(rows)) / size if size else 0)
    for other in _COARSE:
        cost = _changed(usual, other)
        if cost > most and _changed(rows, other) < _KEPT * cost:
            found, most = other, cost
    return found


def _changed(numbers: Floats, kind: GgmlType) -> float:
    """What storing numbers costs, relative to their size."""
    size = float(np.linalg.norm(numbers))
    return float(np.linalg.norm(as_stored(numbers, kind) - numbers)) / size if size else 0.0


_COARSE = tuple(kind for kind in TYPES if kind.name in _BLOCKWISE)
_KEPT = 1 / 3
"""What comes back in a type costs little: a tenth of what it did if it was in f16 meanwhile."""


def multiplied(numbers: Floats, kind: GgmlType, way: Way) -> Floats:
    """The numbers as a backend multiplies weights of that type by them."""
    if way is Way.EXACT or kind.name == "f32":
        return numbers
    if kind.block_elements == 1:
        return _brain(numbers) if kind.name == "bf16" else _halved(numbers)
    if way is Way.CPU and kind.block_elements == LARGE_BLOCK:
        return _in_blocks(numbers, LARGE_BLOCK, _q8_k)
    return _in_blocks(numbers, BLOCK, _q8_0)
