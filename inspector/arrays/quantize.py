"""Bytes of tensors from numbers: what a reference quantizer makes of them, bit for bit.

Source: ggml-org/llama.cpp b10587, ggml/src/ggml-quants.c `quantize_row_*_ref`, ggml/src/ggml-impl.h
`ggml_compute_fp32_to_bf16`. A server on x86 multiplies by 127 / peak for q8_0 and rounds halves to
even (ggml/src/ggml-cpu/arch/x86/quants.c `quantize_row_q8_0`): now and then a code of its is one
off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats.ggml_types import GgmlType
from inspector.arrays.numbers import IQ4_NL, Bytes, Floats

PIECE_ELEMENTS = 1 << 16
"""Elements in work at a time: a few arrays of them fit the cache of a processor."""

SMALLEST_IQ4_NL = np.float32(1e-15)
"""Blocks of smaller numbers are zero. Source: `GROUP_MAX_EPS`."""

_CURVE = IQ4_NL.astype(np.float32)
_BETWEEN = (_CURVE[1:] + _CURVE[:-1]) / 2
_SIGN = np.uint32(1 << 31)
_BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0)).view(np.uint32)


def quantize(numbers: Floats, kind: GgmlType) -> Bytes:
    """The bytes of whole rows.

    Infinity or NaN in a block gives it a scale of infinity or NaN, so that none of its numbers is
    finite afterwards; only a block of iq4_nl with NaN becomes zero, as llama.cpp has it. Codes that
    llama.cpp leaves undefined are 0, which they are on x86.

    Args:
        numbers: shape `(n_rows, n_elements)`.
        kind: the type to write, one of `WRITABLE`.

    Returns:
        The bytes, shape `(n_rows, row_bytes)`.

    Raises:
        ValueError: if the type is not writable or rows are no whole number of blocks.
    """
    n_rows, n_elements = numbers.shape
    n_blocks, rest = divmod(n_elements, kind.block_elements)
    if kind.name not in WRITABLE or rest or not n_elements:
        raise ValueError(f"{n_elements} elements of {kind.name}")
    rows = np.empty((n_rows, n_blocks * kind.block_bytes), np.uint8)
    lines = np.ascontiguousarray(numbers, np.float32).reshape(-1, kind.block_elements)
    blocks, write = rows.reshape(-1, kind.block_bytes), _WRITERS[kind.name]
    step = PIECE_ELEMENTS // kind.block_elements
    with np.errstate(all="ignore"):
        for at in range(0, len(lines), step):
            write(lines[at : at + step], blocks[at : at + step])
    return rows


def _f32(numbers: Floats, blocks: Bytes) -> None:
    _words(blocks, "<f4")[...] = numbers


def _f16(numbers: Floats, blocks: Bytes) -> None:
    _words(blocks, "<f2")[...] = numbers


def _bf16(numbers: Floats, blocks: Bytes) -> None:
    """Nearest, half to even; NaN stays NaN."""
    bits = numbers.view(np.uint32)
    nearest = bits >> 16
    nearest &= 1
    nearest += 0x7FFF
    nearest += bits
    nearest >>= 16
    unequal = np.isnan(numbers)
    if unequal.any():
        nearest[unequal] = bits[unequal] >> 16 | 0x40
    _words(blocks, "<u2")[...] = nearest


def _q8_0(numbers: Floats, blocks: Bytes) -> None:
    d = np.abs(_peak(numbers))
    d /= np.float32(127)
    scaled = numbers * _inverse(d)
    half = scaled.view(np.uint32) & _SIGN
    half |= _BELOW_HALF
    scaled += half.view(np.float32)  # once cut off, this is half away from zero
    _words(blocks, "<f2", 0)[...] = d
    _cut(scaled, d, blocks[:, 2:].view(np.int8))


def _q4_0(numbers: Floats, blocks: Bytes) -> None:
    codes = _around_zero(numbers, 8, blocks)
    _pack(codes, blocks[:, 2:])


def _q4_1(numbers: Floats, blocks: Bytes) -> None:
    codes = _from_minimum(numbers, 15, blocks)
    _pack(codes, blocks[:, 4:])


def _q5_0(numbers: Floats, blocks: Bytes) -> None:
    codes = _around_zero(numbers, 16, blocks)
    _pack_fifth(codes, blocks[:, 2:6])
    _pack(codes, blocks[:, 6:])


def _q5_1(numbers: Floats, blocks: Bytes) -> None:
    codes = _from_minimum(numbers, 31, blocks)
    _pack_fifth(codes, blocks[:, 4:8])
    _pack(codes, blocks[:, 8:])


def _iq4_nl(numbers: Floats, blocks: Bytes) -> None:
    """The nearest code each, then the scale that fits them best, large numbers counting more."""
    peak = _peak(numbers)
    scaled = numbers * (1 / (peak / _CURVE[0]))
    codes = np.full(numbers.shape, len(_BETWEEN), np.uint8)
    for between in _BETWEEN:
        codes -= (scaled < between).view(np.uint8)
    terms = numbers * numbers
    values = np.take(_CURVE, codes)
    terms *= values
    above = _one_by_one(np.multiply(terms, numbers, out=scaled))
    below = _one_by_one(np.multiply(terms, values, out=scaled))
    nothing = ~(np.abs(peak) >= SMALLEST_IQ4_NL)
    codes[nothing[:, 0]] = 0
    _words(blocks, "<f2", 0)[...] = np.where(nothing | ~(below > 0), 0, above / below)
    _pack(codes, blocks[:, 2:])


def _around_zero(numbers: Floats, half: int, blocks: Bytes) -> Bytes:
    """Writes d, the peak being -half, and gives codes from 0 on."""
    d = _peak(numbers)
    d += 0  # no negative zero
    d /= np.float32(-half)
    scaled = numbers * _inverse(d)
    scaled += np.float32(half + 0.5)
    _words(blocks, "<f2", 0)[...] = d
    return _up_to(2 * half - 1, scaled, d)


def _from_minimum(numbers: Floats, largest: int, blocks: Bytes) -> Bytes:
    """Writes d and the minimum m, and gives codes from 0 on."""
    m = _taken(numbers, numbers.argmin(axis=1))
    d = _taken(numbers, numbers.argmax(axis=1)) - m
    d /= np.float32(largest)
    scaled = numbers - m
    scaled *= _inverse(d)
    scaled += np.float32(0.5)
    _words(blocks, "<f2", 0)[...] = d
    _words(blocks, "<f2", 2)[...] = m
    return _up_to(largest, scaled, d)


def _up_to(largest: int, scaled: Floats, d: Floats) -> Bytes:
    codes = np.empty(scaled.shape, np.uint8)
    _cut(scaled, d, codes)
    return np.minimum(codes, np.uint8(largest), out=codes)


def _cut(scaled: Floats, d: Floats, codes: NDArray[Any]) -> None:
    """Cuts to integers, and what is none to 0: a d so small or large leads there."""
    doubtful = ~(np.isfinite(d) & np.isfinite(_inverse(d)))[:, 0]
    if doubtful.any():
        some = scaled[doubtful]
        some[~np.isfinite(some)] = 0
        scaled[doubtful] = some
    np.copyto(codes, scaled, casting="unsafe")


def _peak(numbers: Floats) -> Floats:
    """The first number of the largest magnitude of every line, NaN being larger than any."""
    return _taken(numbers, np.abs(numbers).argmax(axis=1))


def _taken(numbers: Floats, places: NDArray[np.intp]) -> Floats:
    """One number of every line; shape `(n_lines, 1)`."""
    return numbers[np.arange(len(numbers)), places][:, None]


def _inverse(d: Floats) -> Floats:
    found = np.zeros_like(d)
    np.divide(1, d, out=found, where=d != 0)
    return found


def _one_by_one(terms: Floats) -> Floats:
    """Sums of lines, added in order as the C code does: another order rounds otherwise."""
    found = terms[:, :1].copy()
    for j in range(1, terms.shape[1]):
        found += terms[:, j : j + 1]
    return found


def _words(blocks: Bytes, code: str, start: int = 0) -> NDArray[Any]:
    """One word of every block, to write to; shape `(n_blocks, 1)`."""
    dtype = np.dtype(code)
    return blocks[:, start : start + dtype.itemsize].view(dtype)


def _pack(codes: Bytes, packed: Bytes) -> None:
    """32 codes as sixteen bytes: the first sixteen in the low halves, the others in the high."""
    np.left_shift(codes[:, 16:], 4, out=packed)
    packed |= codes[:, :16] & 15


def _pack_fifth(codes: Bytes, packed: Bytes) -> None:
    """The fifth bits of 32 codes as a u32, the lowest bit first."""
    packed[...] = np.packbits(codes >> 4, axis=1, bitorder="little")


_WRITERS: dict[str, Callable[[Floats, Bytes], None]] = {
    "f32": _f32,
    "f16": _f16,
    "bf16": _bf16,
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "iq4_nl": _iq4_nl,
}
WRITABLE = frozenset(_WRITERS)
"""Names of the types that numbers can be written as."""
