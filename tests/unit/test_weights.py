"""Numbers of weights, and what rounding does, against readings of one element at a time."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from formats.ggml_types import TYPES
from formats.gguf import TENSOR_TYPES
from inspector.arrays.numbers import READABLE
from inspector.model.layer0.rounding import as_stored, multiplied
from inspector.model.layer0.side import Way
from inspector.model.layer0.weights import K_QUANTS, NotTestable, dequantize
from tests.support.first_layer import decoded, encoded

BY_NAME = {kind.name: kind for kind in (*TYPES, *TENSOR_TYPES.values())}


def half(block: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", block, at)[0])


def scale_and_minimum(j: int, q: bytes) -> tuple[int, int]:
    """`get_scale_min_k4` of ggml-quants.c."""
    if j < 4:
        return q[j] & 63, q[j + 4] & 63
    return (q[j + 4] & 15) | (q[j - 4] >> 6) << 4, (q[j + 4] >> 4) | (q[j] >> 6) << 4


def q4_k(block: bytes, i: int) -> float:
    group = i // 32
    scale, low = scale_and_minimum(group, block[4:16])
    code = block[16 + group // 2 * 32 + i % 32] >> 4 * (group % 2) & 15
    return half(block, 0) * scale * code - half(block, 2) * low


def q5_k(block: bytes, i: int) -> float:
    group = i // 32
    scale, low = scale_and_minimum(group, block[4:16])
    code = block[48 + group // 2 * 32 + i % 32] >> 4 * (group % 2) & 15
    code += 16 * (block[16 + i % 32] >> group & 1)
    return half(block, 0) * scale * code - half(block, 2) * low


def q6_k(block: bytes, i: int) -> float:
    n, quarter, j = i // 128, i % 128 // 32, i % 32
    low = block[64 * n + 32 * (quarter % 2) + j] >> 4 * (quarter // 2) & 15
    code = low | (block[128 + 32 * n + j] >> 2 * quarter & 3) << 4
    (scale,) = struct.unpack_from("<b", block, 192 + i // 16)
    return half(block, 208) * scale * (code - 32)


ELEMENT: dict[str, Callable[[bytes, int], float]] = {"q4_K": q4_k, "q5_K": q5_k, "q6_K": q6_k}


def random_blocks(name: str, n_blocks: int, seed: int = 0) -> bytes:
    """Any bytes, with scales that are finite."""
    size = BY_NAME[name].block_bytes
    blocks = np.random.default_rng(seed).integers(0, 256, (n_blocks, size), np.uint8)
    for at in (0, 2, size - 2):
        blocks[:, at + 1] &= 0x3F
    return blocks.tobytes()


@pytest.mark.parametrize("name", K_QUANTS)
def test_k_quants_against_a_slow_reading(name: str) -> None:
    data, size = random_blocks(name, 6), BY_NAME[name].block_bytes
    slow = [
        [ELEMENT[name](data[at : at + size], i) for i in range(256)]
        for at in range(0, len(data), size)
    ]
    found = dequantize(data, BY_NAME[name], 512)
    assert found.shape == (3, 512)
    np.testing.assert_allclose(found.reshape(6, 256), slow, rtol=1e-5, atol=1e-6)


EVERYWHERE = sorted(
    {*K_QUANTS, "iq4_xs", "iq3_s", "iq2_xxs", "q2_K", "q3_K", "q8_0", "q5_1", "mxfp4"}
)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_types_as_the_package_reads_them(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    kind = BY_NAME[name]
    data = random_blocks(name, 4)
    blocks = np.frombuffer(data, np.uint8).reshape(-1, kind.block_bytes)
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(kind.id)).ravel()
    found = dequantize(data, kind, 2 * kind.block_elements)
    np.testing.assert_allclose(found.ravel(), expected, rtol=2e-6)


def test_other_types_ask_for_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(NotTestable, match=r"iq4_xs.*slotscope\[weights\]"):
        dequantize(bytes(136), BY_NAME["iq4_xs"], 256)


@pytest.mark.parametrize("name", ["i32", "q8_K"])
def test_types_that_nobody_reads(name: str) -> None:
    with pytest.raises(NotTestable, match=name):
        dequantize(bytes(BY_NAME[name].block_bytes), BY_NAME[name], BY_NAME[name].block_elements)


# -- rounding --------------------------------------------------------------------------------------

NUMBERS = np.random.default_rng(4).normal(0, 3, (5, 2, 64)).astype(np.float32)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q8_0", "q4_0"])
def test_rounding_is_what_writing_and_reading_costs(name: str) -> None:
    slow = np.array(decoded(encoded(NUMBERS.ravel(), name), name)).reshape(NUMBERS.shape)
    found = as_stored(NUMBERS, BY_NAME[name])
    assert (np.abs(found - slow) > 1e-6).mean() < 0.002  # ties may go either way


LEVELS = {"q4_0": 16, "q4_1": 16, "q5_0": 32, "q5_1": 32, "q6_0": 64, "q8_0": 255, "iq4_nl": 16}


@pytest.mark.parametrize("name", LEVELS)
def test_a_block_keeps_as_many_numbers_as_it_has_codes(name: str) -> None:
    """And the finer it is, the closer they are; 0 stays 0, odd lengths are filled up."""
    found = as_stored(NUMBERS, BY_NAME[name]).reshape(-1, 32)
    assert max(len(np.unique(block)) for block in found) <= LEVELS[name]
    span = np.ptp(NUMBERS.reshape(-1, 32), axis=1, keepdims=True)
    steps = 3.0 if name == "iq4_nl" else 1.2
    assert (np.abs(found - NUMBERS.reshape(-1, 32)) <= steps * span / LEVELS[name]).all()
    assert not as_stored(np.zeros((2, 40), np.float32), BY_NAME[name]).any()
    assert as_stored(NUMBERS[..., :40], BY_NAME[name]).shape == (5, 2, 40)


def test_rows_of_q8_kv_have_one_scale() -> None:
    found = as_stored(NUMBERS, BY_NAME["q8_KV"])
    step = np.abs(NUMBERS).max(axis=-1, keepdims=True) / 127
    np.testing.assert_allclose(found / step, np.rint(NUMBERS / step), atol=1e-3)


def test_every_readable_type_can_be_rounded_to() -> None:
    for name in READABLE - {"f32"}:
        assert (as_stored(NUMBERS, BY_NAME[name]) != NUMBERS).any(), name


def test_what_weights_are_multiplied_by() -> None:
    """By type and way: nothing, halves, blocks of 32, blocks of 256 whose peak is -127 steps."""

    def given(name: str, way: Way) -> Any:
        return multiplied(x, BY_NAME[name], way)

    x = np.random.default_rng(5).normal(0, 1, (3, 512)).astype(np.float32)
    eighths = as_stored(x, BY_NAME["q8_0"])
    for way in Way:
        assert (given("f32", way) == x).all()
    assert all((given(name, Way.EXACT) == x).all() for name in ("f16", "q4_0", "q4_K"))
    for way in (Way.CPU, Way.BLOCKS):
        assert (given("f16", way) == as_stored(x, BY_NAME["f16"])).all()
        assert (given("bf16", way) == as_stored(x, BY_NAME["bf16"])).all()
        assert (given("q5_0", way) == eighths).all()
    assert (given("q6_K", Way.BLOCKS) == eighths).all()
    large = given("q6_K", Way.CPU).reshape(-1, 256)
    for block, exact in zip(large, x.reshape(-1, 256), strict=True):
        peak = exact[np.abs(exact).argmax()]
        codes = block / (peak / -127)
        np.testing.assert_allclose(codes, np.rint(codes), atol=1e-3)
        assert codes.min() == pytest.approx(-127, abs=1e-3)
