"""Numbers of tensors: the bit layouts of the types that caches have.

Source: ggml-org/llama.cpp b10587, ggml/src/ggml-quants.c `dequantize_row_*`; q6_0 and q8_KV from
ikawrakow/ik_llama.cpp 8337e4cd3, ggml/src/iqk/iqk_quantize.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats.ggml_types import GgmlType

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Codes = NDArray[np.int8]
Indices = NDArray[np.int64]

IQ4_NL = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
"""What the sixteen codes of iq4_nl stand for. Source: ggml/src/ggml-common.h `kvalues_iq4nl`."""


def _nibbles(blocks: Bytes, start: int) -> Codes:
    """Sixteen bytes as 32 codes: the low halves, then the high ones; shape `(n_blocks, 32)`."""
    packed, codes = blocks[:, start : start + 16], np.empty((len(blocks), 32), np.uint8)
    np.bitwise_and(packed, 15, out=codes[:, :16])
    np.right_shift(packed, 4, out=codes[:, 16:])
    return codes.view(np.int8)


def _fifth_bits(blocks: Bytes, start: int) -> Codes:
    """A u32 as 32 codes of 0 or 16, the lowest bit first; shape `(n_blocks, 32)`."""
    bits = np.unpackbits(blocks[:, start : start + 4], axis=1, bitorder="little")
    bits <<= 4
    return bits.view(np.int8)


def _sixth_bits(blocks: Bytes, start: int) -> Codes:
    """Eight bytes as 32 codes of 0, 16, 32 or 48; shape `(n_blocks, 32)`.

    Byte j holds two bits each of the elements j, j + 16, j + 8 and j + 24, the lowest first.
    """
    packed = blocks[:, start : start + 8]
    bits = np.concatenate([packed, packed >> 4, packed >> 2, packed >> 6], axis=1)
    bits &= 3
    bits <<= 4
    return bits.view(np.int8)


@dataclass(frozen=True, slots=True)
class Quantized:
    """A type of 32 codes to a block: number = d * code + m.

    Attributes:
        codes: bytes of blocks, one block a line -> codes, shape `(n_blocks, 32)`.
        has_m: whether the f16 m follows the f16 d, with which a block begins; else m is 0.
    """

    codes: Callable[[Bytes], Codes]
    has_m: bool = False


QUANTIZED = {
    "q4_0": Quantized(lambda b: _nibbles(b, 2) - np.int8(8)),
    "q4_1": Quantized(lambda b: _nibbles(b, 4), has_m=True),
    "q5_0": Quantized(lambda b: (_nibbles(b, 6) | _fifth_bits(b, 2)) - np.int8(16)),
    "q5_1": Quantized(lambda b: _nibbles(b, 8) | _fifth_bits(b, 4), has_m=True),
    "q6_0": Quantized(lambda b: (_nibbles(b, 10) | _sixth_bits(b, 2)) - np.int8(32)),
    "q8_0": Quantized(lambda b: b[:, 2:].view(np.int8)),
    "iq4_nl": Quantized(lambda b: np.take(IQ4_NL, _nibbles(b, 2))),
}
READABLE = frozenset({"f32", "f16", "bf16", "q8_KV", *QUANTIZED})
"""Names of the types whose numbers are known."""


def dequantize(data: bytes | Bytes, kind: GgmlType, n_elements: int) -> Floats:
    """The numbers of whole rows.

    Args:
        data: rows one after another; an unfinished last one is left out.
        kind: their type, one of `READABLE`.
        n_elements: elements of a row, a whole number of blocks; a row of q8_KV is one head.

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
    with np.errstate(all="ignore"):  # any bytes are numbers here, infinities and NaN too
        return _numbers(rows, kind).reshape(n_rows, n_elements)


def _numbers(rows: Bytes, kind: GgmlType) -> Floats:
    if kind.name == "q8_KV":  # a f32 scale, the sum of the codes, the codes
        return _words(rows, "<f4") * rows[:, 8:].view(np.int8)
    blocks = rows.reshape(-1, kind.block_bytes)
    if kind.name == "bf16":
        return (_words(blocks, "<u2").astype(np.uint32) << 16).view(np.float32)
    if kind.name == "f32":
        return _words(blocks, "<f4").astype(np.float32)
    if kind.name == "f16":
        return _halves(_words(blocks, "<i2"))
    quantized = QUANTIZED[kind.name]
    numbers = quantized.codes(blocks).astype(np.float32)
    numbers *= _words(blocks, "<f2").astype(np.float32)
    if quantized.has_m:
        numbers += _words(blocks, "<f2", 2).astype(np.float32)
    return numbers


def _halves(words: NDArray[np.int16]) -> Floats:
    """Numbers of f16: their bits moved to where a f32 has them, times 2^112.

    Ten times as fast as a conversion, which is left for infinities and NaN.
    """
    bits = words.astype(np.int32)
    bits <<= 13
    bits &= _SIGN_AND_REST
    numbers = bits.view(np.float32)
    numbers *= np.float32(2.0**112)
    if numbers.size and max(numbers.max(), -numbers.min()) >= _LARGEST_HALF:
        return words.view("<f2").astype(np.float32)
    return numbers


_SIGN_AND_REST = np.int32(-0x70002000)
"""The bits that a moved f16 has: 0x8fffe000."""
_LARGEST_HALF = 65536
"""Above all numbers of f16."""


def _words(lines: Bytes, code: str, start: int = 0) -> NDArray[Any]:
    """One word of every line, from byte `start` on; shape `(n_lines, 1)`."""
    dtype = np.dtype(code)
    return np.ascontiguousarray(lines[:, start : start + dtype.itemsize]).view(dtype)


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a type that tell whether its numbers are finite: the numbers, or block scales.

    Attributes:
        code: numpy code of a word as an unsigned integer.
        infinite: the integer of infinity, NaN are above it; both without the sign bit.
        normal: the integer of the smallest normal number.
        at: where the words are in a block, in bytes.
    """

    code: str
    infinite: int
    normal: int
    at: tuple[int, ...] = (0,)

    @property
    def magnitude(self) -> int:
        """The bits of a word without its sign."""
        return (1 << 8 * int(self.code[-1]) - 1) - 1


WORDS = {
    "f32": Words("<u4", 0x7F800000, 0x00800000),
    "f16": Words("<u2", 0x7C00, 0x0400),
    "bf16": Words("<u2", 0x7F80, 0x0080),
} | {
    name: Words("<u2", 0x7C00, 0x0400, (0, 2) if quantized.has_m else (0,))
    for name, quantized in QUANTIZED.items()
}
"""Types that single words judge. q8_KV is not among them: where the rows of a cache with several
heads begin is not in the file."""


def magnitudes(data: bytes, kind: GgmlType) -> tuple[NDArray[Any], ...]:
    """The words of whole blocks without their signs, one array for each word of a block.

    Args:
        data: blocks one after another.
        kind: their type, one of `WORDS`.
    """
    words = WORDS[kind.name]
    if len(words.at) * int(words.code[-1]) == kind.block_bytes:
        return (np.frombuffer(data, words.code) & words.magnitude,)
    blocks = np.frombuffer(data, np.uint8).reshape(-1, kind.block_bytes)
    return tuple(_words(blocks, words.code, at)[:, 0] & words.magnitude for at in words.at)


def sum_of_squares(data: bytes, kind: GgmlType) -> float:
    """The sum of the squares of all numbers of whole blocks; of no use if some are not finite.

    Args:
        data: blocks one after another.
        kind: their type, one of `WORDS`.
    """
    with np.errstate(all="ignore"):
        if kind.name in QUANTIZED:
            return _quantized_squares(np.frombuffer(data, np.uint8), kind)
        numbers = _scaled_halves(data) if kind.name == "f16" else _plain(data, kind)
        found = np.dot(numbers, numbers)
        if not np.isfinite(found):
            numbers = numbers.astype(np.float64)
            found = np.dot(numbers, numbers)
        return float(found)


def _plain(data: bytes, kind: GgmlType) -> NDArray[Any]:
    return _numbers(np.frombuffer(data, np.uint8).reshape(-1, kind.block_bytes), kind)[:, 0]


def _scaled_halves(data: bytes) -> Floats:
    """Magnitudes of f16: their bits moved to where a f32 has them, times 2^112.

    Five times as fast as a conversion.
    """
    bits = (np.frombuffer(data, "<u2") & 0x7FFF).astype(np.uint32)
    bits <<= 13
    numbers = bits.view(np.float32)
    numbers *= np.float32(2.0**112)
    return numbers


def _quantized_squares(raw: Bytes, kind: GgmlType) -> float:
    """Of d * code + m: d² times the squares of the codes, 2dm times the codes, and m² a number."""
    blocks, quantized = raw.reshape(-1, kind.block_bytes), QUANTIZED[kind.name]
    codes = quantized.codes(blocks).astype(np.float32)
    d = _words(blocks, "<f2")[:, 0].astype(np.float32)
    found = float(np.dot(d * d, np.einsum("ij,ij->i", codes, codes)))
    if quantized.has_m:
        m = _words(blocks, "<f2", 2)[:, 0].astype(np.float32)
        found += 2 * float(np.dot(d * m, np.einsum("ij->i", codes)))
        found += kind.block_elements * float(np.dot(m, m))
    return found
