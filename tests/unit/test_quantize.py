"""Quantization against the `gguf` package, and iq4_nl against a reading of one number at a time."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from formats.ggml_types import TYPES, GgmlType
from inspector.arrays.numbers import IQ4_NL, dequantize
from inspector.arrays.quantize import PIECE_ELEMENTS, WRITABLE, quantize

BY_NAME = {t.name: t for t in TYPES}
IN_GGUF = sorted(WRITABLE - {"iq4_nl"})


def random(n_rows: int = 40, n_elements: int = 128, seed: int = 3) -> NDArray[Any]:
    return np.random.default_rng(seed).normal(0, 1, (n_rows, n_elements)).astype(np.float32)


def some(numbers: NDArray[Any], value: float, share: float = 0.01) -> NDArray[Any]:
    chosen = np.random.default_rng(4).random(numbers.shape) < share
    return np.where(chosen, np.float32(value), numbers)


def wide(exponents: range) -> NDArray[Any]:
    scales = 2.0 ** np.random.default_rng(5).choice(np.array(exponents), (300, 128))
    return (random(300) * scales).astype(np.float32)


def numbers_of_all_kinds() -> dict[str, NDArray[Any]]:
    bits = np.random.default_rng(6).integers(0, 1 << 32, (300, 128), dtype=np.uint32)
    anything = bits.view(np.float32)
    halves = np.random.default_rng(7).integers(-254, 255, (300, 128)) / 2
    return {
        "random": random(),
        "of an f16 cache": random().astype(np.float16).astype(np.float32),
        "zeros": np.zeros((2, 64), np.float32),
        "constants": np.repeat(np.array([[1], [-1], [3.3], [-7e-5]], np.float32), 64, axis=1),
        "halves": halves.astype(np.float32),
        "sparse": some(np.zeros((40, 128), np.float32), -2.5),
        "infinity": some(some(random(), np.inf), -np.inf),
        "all infinity": np.full((1, 32), np.inf, np.float32),
        "NaN": some(random(), np.nan),
        "any finite": np.where(np.isfinite(anything), anything, 0),
        **{f"times 2^{e}": random() * np.float32(2.0**e) for e in (-140, -126, -120, -14, 4, 18)},
        "close to the largest": np.ldexp(np.tanh(random()), 128).astype(np.float32),
        "from small to large": wide(range(-148, 126)),
        "denormals of f16": wide(range(-26, -13)),
    }


NUMBERS = numbers_of_all_kinds()


def by_gguf(numbers: NDArray[Any], kind: GgmlType) -> NDArray[Any]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = quants.quantize(numbers, GGMLQuantizationType[kind.name.upper()])
    return found.view(np.uint8).reshape(len(numbers), -1)


@pytest.mark.parametrize("name", IN_GGUF)
@pytest.mark.parametrize("what", NUMBERS)
def test_bits_are_those_of_the_gguf_package(what: str, name: str) -> None:
    numbers, kind = NUMBERS[what], BY_NAME[name]
    found = quantize(numbers, kind)
    assert found.shape == (len(numbers), numbers.shape[1] // kind.block_elements * kind.block_bytes)
    np.testing.assert_array_equal(found, by_gguf(numbers, kind))


@given(arrays(np.float32, (2, 32), elements=st.floats(width=32, allow_nan=False)))
def test_bits_of_what_nobody_thought_of(numbers: NDArray[Any]) -> None:
    numbers += np.float32(0)  # the package keeps the sign of a block of zeros, llama.cpp does not
    for name in IN_GGUF:
        found = quantize(numbers, BY_NAME[name])
        np.testing.assert_array_equal(found, by_gguf(numbers, BY_NAME[name]), name)


def nearest(scaled: Any) -> int:
    """`best_index_int8` of ggml-quants.c."""
    if scaled <= IQ4_NL[0]:
        return 0
    for upper in range(1, 16):
        low, high = np.float32(IQ4_NL[upper - 1]), np.float32(IQ4_NL[upper])
        if scaled < high:
            return upper - 1 if scaled - low < high - scaled else upper
    return 15


def one_block(x: NDArray[Any]) -> bytes:
    """`quantize_row_iq4_nl_impl` without weights and without tries, a C float at a time."""
    amax = peak = sumqx = sumq2 = np.float32(0)
    for number in x:
        if abs(number) > amax:
            amax, peak = abs(number), number
    codes, d = [0] * 32, np.float32(0)
    if amax >= np.float32(1e-15):
        inverse = np.float32(1) / (peak / np.float32(-127))
        codes = [nearest(inverse * number) for number in x]
        for number, code in zip(x, codes, strict=True):
            q, w = np.float32(IQ4_NL[code]), number * number
            sumqx += w * q * number
            sumq2 += w * q * q
        d = sumqx / sumq2 if sumq2 > 0 else np.float32(0)
    return d.astype("<f2").tobytes() + bytes(codes[j] | codes[j + 16] << 4 for j in range(16))


@pytest.mark.parametrize("what", sorted(NUMBERS.keys() - {"NaN"}))
def test_bits_of_iq4_nl(what: str) -> None:
    numbers = NUMBERS[what]
    found = quantize(numbers, BY_NAME["iq4_nl"]).reshape(-1, 18)
    with np.errstate(all="ignore"):
        expected = b"".join(map(one_block, numbers.reshape(-1, 32)))
    np.testing.assert_array_equal(found, np.frombuffer(expected, np.uint8).reshape(-1, 18))


def test_iq4_nl_between_two_codes() -> None:
    between = (IQ4_NL[1:].astype(np.float32) + IQ4_NL[:-1]) / 2
    near = [np.nextafter(between, -np.inf, dtype=np.float32), between]
    numbers = np.concatenate([[-127], *near, [0]]).astype(np.float32)[None]
    found = quantize(numbers, BY_NAME["iq4_nl"])
    assert found[0].tobytes() == one_block(numbers[0])


@pytest.mark.parametrize("name", sorted(WRITABLE))
def test_a_block_that_is_not_finite_does_not_become_finite(name: str) -> None:
    kind = BY_NAME[name]
    for value in (np.nan, np.inf, -np.inf):
        numbers = random(3, 64)
        numbers[1, 40] = value
        stored = dequantize(quantize(numbers, kind).reshape(-1), kind, 64)
        finite = np.isfinite(stored)
        assert finite[[0, 2]].all()
        assert finite[1, :32].all()
        if kind.block_elements == 1:
            np.testing.assert_equal(stored[1, 40], np.float32(value))
        elif name == "iq4_nl" and np.isnan(value):
            assert (stored[1, 32:] == 0).all()
        else:
            assert not finite[1, 32:].any()


@pytest.mark.parametrize("name", ["q4_0", "q5_0"])
def test_negative_zeros_are_zeros(name: str) -> None:
    zeros = np.zeros((1, 32), np.float32)
    assert (quantize(-zeros, BY_NAME[name]) == quantize(zeros, BY_NAME[name])).all()


@pytest.mark.parametrize("name", sorted(WRITABLE))
def test_pieces_and_strides_change_nothing(name: str) -> None:
    kind = BY_NAME[name]
    numbers = random(PIECE_ELEMENTS // 1024 * 2 + 3, 1024)
    whole = quantize(numbers, kind)
    assert (whole == np.concatenate([quantize(row[None], kind) for row in numbers])).all()
    assert (quantize(np.asfortranarray(numbers), kind) == whole).all()
    assert (quantize(np.repeat(numbers, 2, axis=0)[::2], kind) == whole).all()


@pytest.mark.parametrize("name", sorted(WRITABLE - {"iq4_nl"}))
def test_what_was_written_is_written_again(name: str) -> None:
    kind, numbers = BY_NAME[name], random()
    stored = dequantize(quantize(numbers, kind).reshape(-1), kind, 128)
    if kind.block_elements == 1:
        assert (dequantize(quantize(stored, kind).reshape(-1), kind, 128) == stored).all()
    else:
        again = dequantize(quantize(stored, kind).reshape(-1), kind, 128)
        np.testing.assert_allclose(again, stored, atol=2e-3)


def test_no_rows() -> None:
    assert quantize(np.zeros((0, 64), np.float32), BY_NAME["q8_0"]).shape == (0, 68)


@pytest.mark.parametrize(("name", "n"), [("q8_0", 48), ("q4_1", 16), ("f16", 0), ("q6_0", 32)])
def test_what_is_not_writable(name: str, n: int) -> None:
    with pytest.raises(ValueError, match=f"{n} elements of {name}"):
        quantize(np.zeros((2, n), np.float32), BY_NAME[name])
