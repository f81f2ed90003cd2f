"""Dequantization against a reading of the block layouts one element at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from formats.ggml_types import TYPES, GgmlType
from inspector.arrays.numbers import READABLE, dequantize

BY_NAME = {t.name: t for t in TYPES}
CURVE = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def half(block: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", block, at)[0])


def nibble(block: bytes, start: int, j: int) -> int:
    return block[start + j] & 15 if j < 16 else block[start + j - 16] >> 4


def q6_code(block: bytes, j: int) -> int:
    i = j % 16
    h = block[2 + i % 8] >> 4 * (i // 8)
    high = h & 3 if j < 16 else h >> 2 & 3
    return nibble(block, 10, j) | high << 4


def bit(block: bytes, start: int, j: int) -> int:
    return int(struct.unpack_from("<I", block, start)[0]) >> j & 1


ELEMENT: dict[str, Callable[[bytes, int], float]] = {
    "f32": lambda b, j: float(struct.unpack("<f", b)[0]),
    "f16": lambda b, j: half(b, 0),
    "bf16": lambda b, j: float(struct.unpack("<f", b"\0\0" + b)[0]),
    "q4_0": lambda b, j: half(b, 0) * (nibble(b, 2, j) - 8),
    "q4_1": lambda b, j: half(b, 0) * nibble(b, 4, j) + half(b, 2),
    "q5_0": lambda b, j: half(b, 0) * ((nibble(b, 6, j) | bit(b, 2, j) << 4) - 16),
    "q5_1": lambda b, j: half(b, 0) * (nibble(b, 8, j) | bit(b, 4, j) << 4) + half(b, 2),
    "q6_0": lambda b, j: half(b, 0) * (q6_code(b, j) - 32),
    "q8_0": lambda b, j: half(b, 0) * int(struct.unpack_from("<b", b, 2 + j)[0]),
    "iq4_nl": lambda b, j: half(b, 0) * CURVE[nibble(b, 2, j)],
}


def slowly(kind: GgmlType, data: bytes) -> list[float]:
    size = kind.block_bytes
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    return [ELEMENT[kind.name](b, j) for b in blocks for j in range(kind.block_elements)]


def test_every_cache_type_is_readable() -> None:
    caches = {t.name for t in TYPES if t.cache and t.writer != "turboquant"}
    assert set(READABLE) == caches == {*ELEMENT, "q8_KV"}


@pytest.mark.parametrize("name", ELEMENT)
@given(st.binary(min_size=34 * 6, max_size=34 * 6))
def test_elements_of_any_blocks(name: str, noise: bytes) -> None:
    kind = BY_NAME[name]
    data = noise[: len(noise) // kind.block_bytes // 2 * 2 * kind.block_bytes]
    slow = np.array(slowly(kind, data))
    fast = dequantize(data, kind, len(slow) // 2)
    assert fast.dtype == np.float32
    assert fast.shape == (2, len(slow) // 2)
    with np.errstate(invalid="ignore"):  # a signalling NaN complains when it is widened
        flat = fast.reshape(-1).astype(np.float64)
    finite = np.isfinite(slow)
    assert np.array_equal(finite, np.isfinite(flat))
    largest = float(np.abs(slow[finite]).max(initial=0))
    assert np.allclose(flat[finite], slow[finite], rtol=1e-6, atol=1e-6 * largest)


def test_a_row_of_q8_kv_has_its_scale_in_front() -> None:
    kind = BY_NAME["q8_KV"]
    codes = [list(range(-32, 32)), [127, -128] * 32]
    rows = [
        struct.pack("<fi64b", scale, sum(row), *row)
        for scale, row in zip((0.5, 2.0), codes, strict=True)
    ]
    found = dequantize(b"".join(rows), kind, 64)
    assert found.tolist() == [[0.5 * n for n in codes[0]], [2.0 * n for n in codes[1]]]


def test_an_unfinished_row_is_left_out() -> None:
    assert dequantize(bytes(34 * 3), BY_NAME["q8_0"], 64).shape == (1, 64)
    assert dequantize(b"", BY_NAME["f16"], 8).shape == (0, 8)


def test_arrays_are_taken_like_bytes() -> None:
    data = bytes(range(64))
    array = np.frombuffer(data, np.uint8).reshape(4, 16)
    f32 = BY_NAME["f32"]
    assert dequantize(array, f32, 4).tobytes() == dequantize(data, f32, 4).tobytes() == data


@pytest.mark.parametrize(("name", "n"), [("q8_0", 33), ("f16", 0), ("turbo3", 128), ("q8_1", 32)])
def test_what_cannot_be_read_is_an_error(name: str, n: int) -> None:
    with pytest.raises(ValueError, match=name):
        dequantize(bytes(4096), BY_NAME[name], n)


# -- the same state, saved by ik_llama.cpp with different cache types ------------------------------


def ik_keys(path: Path) -> list[NDArray[np.float32]]:
    """K rows of every layer, by the plain layout of ik_llama.cpp (cells of eight bytes)."""
    data = path.read_bytes()
    (n_tokens,) = struct.unpack_from("<I", data, 8)
    at = 12 + 4 * n_tokens
    (n_cells,) = struct.unpack_from("<I", data, at)
    at += 4 + 8 * n_cells
    _, n_layer = struct.unpack_from("<II", data, at)
    at += 8
    found = []
    for _ in range(n_layer):
        code, row = struct.unpack_from("<iQ", data, at)
        kind = next(t for t in TYPES if t.id == code)
        n = kind.elements(row)
        assert n is not None
        found.append(dequantize(data[at + 12 : at + 12 + n_cells * row], kind, n))
        at += 12 + n_cells * row
    return found


@pytest.mark.parametrize(
    ("plain", "quantized", "off"),
    [
        ("llama-gqa.ik-2026-09.plain", "llama-gqa.ik-2026-09.kv-q6_0", 0.03),
        ("llama-gqa.ik-2026-09.plain", "llama-gqa.ik-2026-09.kv-q8_0", 0.01),
        ("llama-mqa6.ik-2026-09.k-q8_KV", "llama-mqa6.ik-2026-09.kv-iq4_nl", 0.1),
    ],
)
def test_quantized_states_are_close_to_plain_ones(
    shared: Path, plain: str, quantized: str, off: float
) -> None:
    directory = shared / "corpus-ik"
    one, other = (ik_keys(directory / f"{name}.seq.bin") for name in (plain, quantized))
    truth, close = one[0], other[0]
    assert truth.shape == close.shape
    error = np.linalg.norm(truth - close) / np.linalg.norm(truth)
    assert 0 < error < off
