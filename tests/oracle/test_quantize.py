"""Quantization against the C code of real builds, and the caches that their servers save."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from formats.ggml_types import TYPES, GgmlType
from inspector.arrays.quantize import WRITABLE, quantize
from inspector.report import examined
from inspector.sections import sections
from tests.oracle.builds import BUILDS, Build, installed
from tests.oracle.test_saves import PROMPT
from tests.oracle.trial import MODELS, NAME, Bench

pytestmark = pytest.mark.oracle

BY_NAME = {t.name: t for t in TYPES}
BLOCKWISE = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
FUNCTIONS = {
    "f16": "ggml_fp32_to_fp16_row",
    "bf16": "ggml_fp32_to_bf16_row",
    **{name: f"quantize_row_{name}_ref" for name in BLOCKWISE},
}
NO_SCALE = 1e-14
"""Below, builds up to b11549 leave the codes of an earlier block of iq4_nl beside a scale of 0."""
ONE_OFF = 1 / 5_000
"""Codes of q8_0 that a server on x86 rounds otherwise, at most: 1 in 400,000 of numbers that are
f32, in 7,000 of those that were f16."""


def by(build: Build, function: str, numbers: NDArray[Any], kind: GgmlType) -> NDArray[Any]:
    (library,) = installed(build).glob("xllamacpp/*.so")
    n_rows, n = numbers.shape
    found = np.zeros((n_rows, n // kind.block_elements * kind.block_bytes), np.uint8)
    ctypes.CDLL(str(library))[function](
        ctypes.c_void_p(numbers.ctypes.data),
        ctypes.c_void_p(found.ctypes.data),
        ctypes.c_int64(numbers.size),
    )
    return found


def numbers_of_all_kinds(kind: GgmlType) -> NDArray[Any]:
    """A million ordinary numbers, and every size that there is, zeros and infinities."""
    random = np.random.default_rng(11)
    ordinary = random.normal(0, 1, (4096, 256))
    halves = random.integers(-254, 255, (256, 256)) / 2
    wide = random.normal(0, 1, (1024, 256)) * 2.0 ** random.integers(-150, 120, (1024, 1))
    mixed = random.normal(0, 1, (1024, 256)) * 2.0 ** random.integers(-150, 120, (1024, 256))
    sparse = np.where(random.random((256, 256)) < 0.5, -0.0, random.normal(0, 1, (256, 256)))
    endless = np.where(random.random((256, 256)) < 0.01, np.inf, random.normal(0, 1, (256, 256)))
    zeros = np.repeat([[0.0], [-0.0]], 256, axis=1)
    found = np.concatenate([ordinary, halves, wide, mixed, sparse, endless, -endless, zeros])
    found = found.astype(np.float32)
    if kind.name == "iq4_nl":
        peaks = np.abs(found.reshape(len(found), -1, 32)).max(axis=2)
        found = found[(peaks > NO_SCALE).all(axis=1)]
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_bits_are_those_of_the_reference(build: Build, name: str) -> None:
    kind = BY_NAME[name]
    numbers = numbers_of_all_kinds(kind)
    expected = by(build, FUNCTIONS[name], numbers, kind)
    np.testing.assert_array_equal(quantize(numbers, kind), expected)


def first_layer(bench: Bench, build: Build, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The K and V rows of a prompt in the cache of a server; its heads are too small to rotate."""
    model, flags = MODELS / "llama-gqa.gguf", ("-fa", "on", "-ctk", name, "-ctv", name)
    with bench.serve(build, model, flags) as server:
        assert server.complete(PROMPT, n_predict=1).ok
        assert server.save(NAME).ok
    with examined(bench.path) as report:
        reading = report.identification.reading
        assert reading is not None
        section, read_at = sections(reading.decoding.root)[0], report.source.read_at
        k, v = (
            np.frombuffer(read_at(b.data.start, b.data.stop - b.data.start), np.uint8)
            for b in (section.k[0], section.v[0])
            if b.data is not None
        )
        return k.reshape(section.k[0].n_cells, -1), v.reshape(section.v[0].n_cells, -1)


def test_servers_write_the_same_numbers_like_this(bench: Bench) -> None:
    build = BUILDS[-1]
    exact = [rows.view("<f4") for rows in first_layer(bench, build, "f32")]
    for name in sorted(WRITABLE - {"f32"}):
        for numbers, stored in zip(exact, first_layer(bench, build, name), strict=True):
            found = quantize(numbers, BY_NAME[name])
            if name != "q8_0":
                np.testing.assert_array_equal(found, stored, name)
                continue
            ours, theirs = (rows.reshape(-1, 34) for rows in (found, stored))
            np.testing.assert_array_equal(ours[:, :2], theirs[:, :2])
            codes, others = (rows[:, 2:].view(np.int8).astype(int) for rows in (ours, theirs))
            assert np.abs(codes - others).max() <= 1
            assert (codes != others).mean() < ONE_OFF
