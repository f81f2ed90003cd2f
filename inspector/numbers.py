"""Tensor rows as float32: the bit layouts of the types that caches have.

Source: ggml-org/llama.cpp b10587, ggml/src/ggml-quants.c `dequantize_row_*`; q6_0 and q8_KV from
ikawrakow/ik_llama.cpp 8337e4cd3, ggml/src/iqk/iqk_quantize.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from formats.ggml_types import GgmlType

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

IQ4_NL = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
"""What the sixteen codes of iq4_nl stand for. Source: ggml/src/ggml-common.h `kvalues_iq4nl`."""


def dequantize(data: bytes | Bytes, kind: GgmlType, n_elements: int) -> Floats:
    """The numbers of whole rows.

    Args:
        data: rows one after another; an unfinished last one is left out.
        kind: their type, one of `READABLE`.
        n_elements: elements of a row, a whole number of blocks. A row of q8_KV is a tensor row: one head.

    Returns:
        The numbers, shape `(n_rows, n_elements)`.

    Raises:
        ValueError: if the type is not readable or rows are no whole number of blocks.
    """
    blocks, rest = divmod(n_elements, kind.block_elements)
    if kind.name not in READABLE or rest or n_elements <= 0:
        raise ValueError(f"{n_elements} elements of {kind.name}")
    raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data.reshape(-1)
    row_bytes = kind.row_prefix_bytes + blocks * kind.block_bytes
    n_rows = len(raw) // row_bytes
    rows = raw[: n_rows * row_bytes].reshape(n_rows, row_bytes)
    if kind.row_prefix_bytes:
        return _q8_kv(rows)
    return READABLE[kind.name](rows.reshape(-1, kind.block_bytes)).reshape(n_rows, n_elements)


def _part(blocks: Bytes, start: int, code: str, count: int = 1) -> NDArray[np.generic]:
    """`count` numbers of every block, from byte `start` on; shape `(n_blocks, count)`."""
    dtype = np.dtype(code)
    part = blocks[:, start : start + count * dtype.itemsize]
    return np.ascontiguousarray(part).view(dtype)


def _float(blocks: Bytes, start: int, code: str, count: int = 1) -> Floats:
    return _part(blocks, start, code, count).astype(np.float32)


def _nibbles(blocks: Bytes, start: int) -> Bytes:
    """Sixteen bytes as 32 codes: the low halves, then the high ones; shape `(n_blocks, 32)`."""
    packed = blocks[:, start : start + 16]
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _fifth_bits(blocks: Bytes, start: int) -> Bytes:
    """A u32 as 32 codes of 0 or 16, the lowest bit first; shape `(n_blocks, 32)`."""
    bits = np.unpackbits(blocks[:, start : start + 4], axis=1, bitorder="little")
    return bits << 4


def _sixth_bits(blocks: Bytes, start: int) -> Bytes:
    """Eight bytes as 32 codes of 0, 16, 32 or 48; shape `(n_blocks, 32)`.

    Byte j holds two bits each of the elements j, j + 16, j + 8 and j + 24, the lowest first.
    """
    packed = blocks[:, start : start + 8]
    pairs = [packed & 3, packed >> 4 & 3, packed >> 2 & 3, packed >> 6]
    return np.concatenate(pairs, axis=1) << 4


def _f32(blocks: Bytes) -> Floats:
    return _float(blocks, 0, "<f4")


def _f16(blocks: Bytes) -> Floats:
    return _float(blocks, 0, "<f2")


def _bf16(blocks: Bytes) -> Floats:
    return (_part(blocks, 0, "<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    return _float(blocks, 0, "<f2") * (_nibbles(blocks, 2).astype(np.float32) - 8)


def _q4_1(blocks: Bytes) -> Floats:
    d, m = _float(blocks, 0, "<f2"), _float(blocks, 2, "<f2")
    return d * _nibbles(blocks, 4).astype(np.float32) + m


def _q5_0(blocks: Bytes) -> Floats:
    codes = _nibbles(blocks, 6) | _fifth_bits(blocks, 2)
    return _float(blocks, 0, "<f2") * (codes.astype(np.float32) - 16)


def _q5_1(blocks: Bytes) -> Floats:
    d, m = _float(blocks, 0, "<f2"), _float(blocks, 2, "<f2")
    return d * (_nibbles(blocks, 8) | _fifth_bits(blocks, 4)).astype(np.float32) + m


def _q6_0(blocks: Bytes) -> Floats:
    codes = _nibbles(blocks, 10) | _sixth_bits(blocks, 2)
    return _float(blocks, 0, "<f2") * (codes.astype(np.float32) - 32)


def _q8_0(blocks: Bytes) -> Floats:
    return _float(blocks, 0, "<f2") * _float(blocks, 2, "i1", 32)


def _iq4_nl(blocks: Bytes) -> Floats:
    return _float(blocks, 0, "<f2") * IQ4_NL[_nibbles(blocks, 2)]


def _q8_kv(rows: Bytes) -> Floats:
    """A f32 scale, the sum of the codes, and the codes of the whole row."""
    return _float(rows, 0, "<f4") * _float(rows, 8, "i1", rows.shape[1] - 8)


READABLE: dict[str, Callable[[Bytes], Floats]] = {
    "f32": _f32,
    "f16": _f16,
    "bf16": _bf16,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "q6_0": _q6_0,
    "q8_0": _q8_0,
    "iq4_nl": _iq4_nl,
    "q8_KV": _q8_kv,
}
"""Types whose numbers are known, by name: the numbers of blocks, shape `(n_blocks, block_elements)`."""
