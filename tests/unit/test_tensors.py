"""Statistics of payload against a reading one number at a time, and findings in real states."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.ggml_types import TYPES
from inspector.checks.tensors import CHUNK, Statistics, check_tensors, statistics
from inspector.findings import Finding
from inspector.identify import identify
from inspector.sections import Block, Section, sections
from inspector.source import opened
from inspector.span import Span

BY_NAME = {t.name: t for t in TYPES}
PLAIN = {
    "f16": ("<H", 0x7C00, 0x3C00, 2.0**-14),
    "bf16": ("<H", 0x7F80, 0x3F80, 2.0**-126),
    "f32": ("<I", 0x7F800000, 0x3F800000, 2.0**-126),
}
"""Code of a word, the words of infinity and of 1, the smallest normal number."""


def number(kind: str, raw: bytes) -> float:
    if kind == "bf16":
        return float(struct.unpack("<f", b"\0\0" + raw)[0])
    return float(struct.unpack("<e" if kind == "f16" else "<f", raw)[0])


def measured(
    directory: Path, kind: str, data: bytes, row_bytes: int, *, element_bytes: int = 0
) -> Statistics:
    """Statistics of one block that lies somewhere inside a file."""
    path, start = directory / "block", 13
    path.write_bytes(bytes([255]) * start + data + bytes([255]) * 7)
    n_cells = len(data) // row_bytes
    block = Block(
        "b",
        BY_NAME[kind].id,
        row_bytes,
        n_cells,
        Span(start, start + len(data)),
        Span(start, start + n_cells * row_bytes),
        element_bytes,
    )
    with opened(path) as source:
        (found,) = statistics(source, [block])
        assert source.bytes_read == n_cells * row_bytes
    return found


def rows_of(data: bytes, row_bytes: int, size: int, *, transposed: bool) -> list[list[int]]:
    """Where the words of every cell are."""
    n_cells = len(data) // row_bytes
    if not transposed:
        return [
            list(range(cell * row_bytes, (cell + 1) * row_bytes, size)) for cell in range(n_cells)
        ]
    line = n_cells * size
    return [list(range(cell * size, n_cells * row_bytes, line)) for cell in range(n_cells)]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", PLAIN)
@given(
    st.lists(st.lists(st.sampled_from(range(8)), min_size=6, max_size=6), min_size=1, max_size=9)
)
def test_floats_against_a_slow_reading(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    transposed: bool,
    choices: list[list[int]],
) -> None:
    code, infinity, one, smallest = PLAIN[kind]
    size = struct.calcsize(code)
    sign = 1 << 8 * size - 1
    odd = [0, sign, one, sign | one, 1, infinity, infinity | sign, infinity + 1]
    data = b"".join(struct.pack(code, odd[choice]) for row in choices for choice in row)
    row_bytes = 6 * size
    found = measured(
        tmp_path_factory.getbasetemp(),
        kind,
        data,
        row_bytes,
        element_bytes=size if transposed else 0,
    )
    values = [number(kind, data[at : at + size]) for at in range(0, len(data), size)]
    bad = [i for i, value in enumerate(values) if not math.isfinite(value)]
    cells = rows_of(data, row_bytes, size, transposed=transposed)
    empty = [i for i, at in enumerate(cells) if all(values[a // size] == 0 for a in at)]
    assert found.n_words == len(values)
    assert found.non_finite == len(bad)
    assert found.first_non_finite == (13 + size * bad[0] if bad else None)
    assert found.zero_rows == len(empty)
    assert found.first_zero_row == (empty[0] if empty else None)
    assert found.subnormal == sum(0 < abs(value) < smallest for value in values)
    if bad:
        assert math.isnan(found.rms)
    else:
        mean = sum(value * value for value in values) / len(values)
        assert found.rms == pytest.approx(math.sqrt(mean), rel=1e-5)


QUANTIZED = {
    "q4_0": 1,
    "q4_1": 2,
    "q5_0": 1,
    "q5_1": 2,
    "q6_0": 1,
    "q8_0": 1,
    "iq4_nl": 1,
}


def quantized(kind: str, n_blocks: int) -> bytearray:
    generator = np.random.default_rng(n_blocks)
    size = BY_NAME[kind].block_bytes
    blocks = generator.integers(0, 256, (n_blocks, size), dtype=np.uint8)
    scales = generator.uniform(0.5, 2, (n_blocks, QUANTIZED[kind])).astype("<f2")
    blocks[:, : 2 * QUANTIZED[kind]] = scales.view(np.uint8)
    return bytearray(blocks.tobytes())


@pytest.mark.parametrize("kind", QUANTIZED)
def test_quantized_blocks_are_judged_by_their_scales(tmp_path: Path, kind: str) -> None:
    size, n_scales = BY_NAME[kind].block_bytes, QUANTIZED[kind]
    data = quantized(kind, 12)
    clean = measured(tmp_path, kind, bytes(data), 3 * size)
    assert (clean.n_words, clean.non_finite, clean.zero_rows) == (12 * n_scales, 0, 0)
    struct.pack_into("<H", data, 4 * size + 2 * (n_scales - 1), 0xFC00)
    struct.pack_into("<H", data, 7 * size, 0x7E01)
    struct.pack_into("<H", data, 1 * size, 0x8001)
    for block in range(9, 12):
        data[block * size : block * size + 2 * n_scales] = struct.pack("<H", 0x8000) * n_scales
    found = measured(tmp_path, kind, bytes(data), 3 * size)
    assert (found.non_finite, found.first_non_finite) == (2, 13 + 4 * size)
    assert (found.zero_rows, found.first_zero_row) == (1, 3)
    assert found.subnormal == 1


@pytest.mark.parametrize("kind", QUANTIZED)
def test_norms_of_quantized_blocks(tmp_path: Path, kind: str) -> None:
    from tests.unit.test_numbers import slowly

    data = bytes(quantized(kind, 40))
    found = measured(tmp_path, kind, data, 4 * BY_NAME[kind].block_bytes)
    numbers = np.array(slowly(BY_NAME[kind], data))
    assert found.rms == pytest.approx(math.sqrt(float(np.mean(numbers**2))), rel=1e-4)


@pytest.mark.parametrize(
    ("n_rows", "n_elements"), [(3 * CHUNK // 2048 + 5, 1024), (3, CHUNK // 2 + 96), (1, CHUNK * 2)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_chunks_do_not_show(tmp_path: Path, n_rows: int, n_elements: int, transposed: bool) -> None:
    generator = np.random.default_rng(1)
    rows = generator.standard_normal((n_rows, n_elements)).astype("<f2")
    rows[n_rows // 2] = 0
    expected = float(np.sqrt(np.mean(rows.astype(np.float64) ** 2)))
    if n_rows > 2:
        rows[-1, -2] = np.inf
    data = (rows.T if transposed else rows).tobytes()
    element = 2 if transposed else 0
    found = measured(tmp_path, "f16", data, 2 * n_elements, element_bytes=element)
    assert (found.zero_rows, found.first_zero_row) == (1, n_rows // 2)
    assert found.n_words == n_rows * n_elements
    if n_rows > 2:
        behind = (n_elements - 2) * n_rows + n_rows - 1 if transposed else n_rows * n_elements - 2
        assert (found.non_finite, found.first_non_finite) == (1, 13 + 2 * behind)
    else:
        assert found.rms == pytest.approx(expected, rel=1e-4)


def test_reads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspector.source import Source

    sizes: list[int] = []
    read_at: Callable[[Source, int, int], bytes] = Source.read_at

    def recorded(self: Source, offset: int, size: int) -> bytes:
        sizes.append(size)
        return read_at(self, offset, size)

    monkeypatch.setattr(Source, "read_at", recorded)
    for element in (0, 2):
        measured(tmp_path, "f16", bytes(3 * CHUNK + 64), 64, element_bytes=element)
    measured(tmp_path, "f32", bytes(2 * CHUNK), 2 * CHUNK)
    assert 0 < max(sizes) <= CHUNK


def test_squares_that_no_float32_holds(tmp_path: Path) -> None:
    data = struct.pack("<4f", 3e38, 3e38, 3e38, 3e38)
    assert measured(tmp_path, "f32", data, 16).rms == pytest.approx(3e38, rel=1e-6)


def test_blocks_that_are_not_understood(tmp_path: Path) -> None:
    path = tmp_path / "block"
    path.write_bytes(bytes(64))
    span = Span(0, 64)
    blocks = [
        Block("unknown type", 77, 16, 4, span, span),
        Block("cut off", 1, 16, 4, span, None),
        Block("nothing", 0, 0, 1 << 60, Span(0, 0), Span(0, 0)),
        Block("one head or several", 151, 16, 4, span, span),
        Block("elements of another size", 1, 16, 4, span, span, 4),
    ]
    with opened(path) as source:
        assert not list(statistics(source, blocks))


def test_a_file_that_shrank(tmp_path: Path) -> None:
    path = tmp_path / "block"
    path.write_bytes(bytes(64))
    block = Block("b", 1, 16, 64, Span(0, 1024), Span(0, 1024))
    with opened(path) as source:
        (found,) = statistics(source, [block])
    assert (found.n_words, found.non_finite, found.zero_rows) == (0, 0, 0)


# -- real states -----------------------------------------------------------------------------------


def deep(path: Path) -> tuple[list[Finding], tuple[Section, ...]]:
    with opened(path) as source:
        reading = identify(source).reading
        assert reading is not None, path.name
        parts = sections(reading.decoding.root)
        for part in parts:
            assert len(part.pos) == part.cells
        measured = tuple(statistics(source, [b for part in parts for b in part.blocks]))
        return list(check_tensors(parts, measured)), parts


def test_bytes_of_ff_are_found_where_they_are(shared: Path) -> None:
    corpus = shared / "corpus"
    names = [path.name for path in corpus.glob("*.broken-payload-ff.bin")]
    assert len(names) == 2
    for name in names:
        broken = (corpus / name).read_bytes()
        whole = (corpus / name.replace(".broken-payload-ff", "")).read_bytes()
        at = next(i for i, (a, b) in enumerate(zip(broken, whole, strict=True)) if a != b)
        (finding,), _ = deep(corpus / name)
        assert finding.code == "tensors.non-finite"
        assert finding.span == Span(at - at % 2, at - at % 2 + 2)


def test_intact_states_are_clean(shared: Path) -> None:
    n_files = 0
    for name in ("corpus", "corpus-ik"):
        manifest = json.loads((shared / name / "manifest.json").read_text())
        for entry in manifest["files"]:
            if entry.get("damage") is None and entry["kind"] in ("slot", "seq"):
                findings, _ = deep(shared / name / entry["file"])
                assert not findings, entry["file"]
                n_files += 1
    assert n_files > 200


@pytest.fixture
def altered(tmp_path: Path, shared: Path) -> Callable[[str, Span, bytes], Path]:
    def write(name: str, span: Span, pattern: bytes) -> Path:
        data = bytearray((shared / "corpus" / name).read_bytes())
        data[span.start : span.stop] = (pattern * len(span))[: len(span)]
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def test_a_hole_in_keys(altered: Callable[[str, Span, bytes], Path], shared: Path) -> None:
    name = "llama-gqa.b11549.kv-q8_0.bin"
    _, (attn,) = deep(shared / "corpus" / name)
    block = attn.k[1]
    assert block.data is not None
    row = Span(block.data.start + 3 * block.row_bytes, block.data.start + 5 * block.row_bytes)
    (finding,), _ = deep(altered(name, row, b"\0"))
    assert finding.code == "tensors.zero-rows"
    assert finding.path == f"{block.path}.data"
    assert finding.span == Span(row.start, row.start + block.row_bytes)
    assert "2 of" in finding.actual


def test_one_empty_cell_may_open_a_window(
    altered: Callable[[str, Span, bytes], Path], shared: Path
) -> None:
    name = "gemma3-iswa.b11549.default.bin"
    _, (_, swa) = deep(shared / "corpus" / name)
    block = swa.k[0]
    assert block.data is not None
    lowest = list(swa.pos).index(swa.pos_min)
    for cell, expected in ((lowest, []), (lowest + 1, ["tensors.zero-rows"])):
        start = block.data.start + cell * block.row_bytes
        findings, _ = deep(altered(name, Span(start, start + block.row_bytes), b"\0"))
        assert [finding.code for finding in findings] == expected


def test_small_integers_are_no_halves(
    altered: Callable[[str, Span, bytes], Path], shared: Path
) -> None:
    name = "llama-gqa.b11549.short.bin"
    _, (attn,) = deep(shared / "corpus" / name)
    data = attn.v[2].data
    assert data is not None
    (finding,), _ = deep(altered(name, data, b"\x03\x00"))
    assert (finding.code, finding.span) == ("tensors.subnormal-flood", data)


def test_the_cell_of_a_transposed_value(
    altered: Callable[[str, Span, bytes], Path], shared: Path
) -> None:
    name = "llama-gqa.b11549.fa-off.bin"
    _, (attn,) = deep(shared / "corpus" / name)
    block = attn.v[0]
    assert block.data is not None
    assert block.element_bytes == 2
    at = block.data.start + 2 * (5 * block.n_cells + 7)
    (finding,), _ = deep(altered(name, Span(at, at + 2), b"\x00\x7c"))
    assert finding.span == Span(at, at + 2)
    assert "cell 7 of" in finding.message
