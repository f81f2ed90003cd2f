"""One prompt in caches of several types: the first layer's numbers, quantized, against the files.

Layer 0 of this model depends on its token alone, and the flash attention of the quantized caches
does not reach it. The build's loops for x86 round q8_0 otherwise than the reference now and then:
one code in 700 for numbers of a bf16 cache, in 7,000 for f16 and in 400,000 for f32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from formats.ggml_types import TYPES
from inspector.arrays.numbers import dequantize
from inspector.arrays.quantize import quantize
from inspector.report import examined
from inspector.sections import sections

BY_NAME = {t.name: t for t in TYPES}
N_PROMPT = 22
"""Tokens of the prompt; what follows is each server's own answer."""


def first_layer(path: Path, part: str) -> NDArray[np.uint8]:
    with examined(path) as report:
        reading = report.identification.reading
        assert reading is not None
        block = getattr(sections(reading.decoding.root)[0], part)[0]
        data = report.source.read_at(block.data.start, block.data.stop - block.data.start)
    return np.frombuffer(data, np.uint8).reshape(-1, block.row_bytes)[:N_PROMPT]


def of_type(shared: Path, name: str, part: str) -> NDArray[Any]:
    return first_layer(shared / "corpus" / f"llama-gqa.b10229.kv-{name}.bin", part)


@pytest.mark.parametrize("name", ["bf16", "q8_0", "q4_0"])
@pytest.mark.parametrize("part", ["k", "v"])
def test_f32_becomes_what_the_server_wrote(shared: Path, part: str, name: str) -> None:
    numbers = of_type(shared, "f32", part).view("<f4")
    found = quantize(numbers, BY_NAME[name])
    np.testing.assert_array_equal(found, of_type(shared, name, part))


@pytest.mark.parametrize("part", ["k", "v"])
def test_f16_is_between(shared: Path, part: str) -> None:
    """The default cache, made into q8_0: a code is one off where the rounding to f16 decides."""
    halves = first_layer(shared / "corpus" / "llama-gqa.b10229.default.bin", part)
    numbers = dequantize(halves.tobytes(), BY_NAME["f16"], halves.shape[1] // 2)
    np.testing.assert_array_equal(
        quantize(of_type(shared, "f32", part).view("<f4"), BY_NAME["f16"]), halves
    )
    found = quantize(numbers, BY_NAME["q8_0"]).reshape(-1, 34)
    codes = found[:, 2:].view(np.int8).astype(int)
    stored = of_type(shared, "q8_0", part).reshape(-1, 34)[:, 2:].view(np.int8)
    assert np.abs(codes - stored).max() <= 1
    assert (codes != stored).mean() < 0.05
