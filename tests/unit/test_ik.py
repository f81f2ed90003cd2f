"""Layouts of ik_llama.cpp that no real file is at hand for, and the worked examples."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.envelopes import ik
from formats.layout import Layout
from formats.sidecars import ik as checkpoints
from formats.spans import StopReason
from inspector.decode import Decoding, decode
from inspector.node import Node, Rows, find, walk
from inspector.source import opened
from tests.support.writer import Cell, IkMemory, Row, Slot, Tokens, pack

ROWS: dict[str, Layout] = {row.id: row for row in (*ik.ROWS, *checkpoints.ROWS)}

Reader = Callable[[bytes, str], Decoding]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    """Decodes bytes as the layout of that id."""

    def as_layout(data: bytes, layout_id: str) -> Decoding:
        path = tmp_path / "state.bin"
        path.write_bytes(data)
        with opened(path) as source:
            decoding = decode(source, ROWS[layout_id], source.whole())
            for _, node in walk(decoding.root):
                if isinstance(node.value, Rows):
                    assert len(node.value.table) == len(node.value)
        return decoding

    return as_layout


def at(decoding: Decoding, path: str) -> Node:
    node = find(decoding.root, path)
    assert node is not None, path
    return node


def sizes(decoding: Decoding, path: str) -> list[int]:
    """The data bytes of every block of a series."""
    return [len(block.children[-1].span) for block in at(decoding, path).children]


# The worked example: two layers, one head of four f16, three cells, tokens 1, 15043, 3186.

TOKENS = struct.pack("<3i", 1, 15043, 3186)
CELLS = struct.pack("<I6I", 3, 0, 0, 1, 0, 2, 0)


def _block(layer: int, sign: int) -> bytes:
    values = [sign * (1 + 8 * layer + 2 * c + i / 4) for c in range(3) for i in range(4)]
    return struct.pack("<iQ12e", 1, 8, *values)


PAYLOAD = CELLS + struct.pack("<II", 0, 2) + _block(0, 1) + _block(1, 1)
PAYLOAD += _block(0, -1) + _block(1, -1)
PARTIAL = CELLS + struct.pack("<II", 0, 2) + struct.pack("<iQ", -1, 0) * 4
WORDS = {2: b"", 3: bytes(4), 4: bytes(8)}


def _file(version: int) -> bytes:
    return struct.pack("<III", 0x67677371, version, 3) + TOKENS + PAYLOAD + WORDS[version]


def _list(version: int, blob: bytes) -> bytes:
    head = struct.pack("<IIQ", 0x67677371, version, 1)
    return head + struct.pack("<4iQ", 2, 2, 2, 2, len(blob)) + blob


EXAMPLES = {
    "ik3": (
        _file(3),
        "32b3c25f1d1a5f69300e51adca7879458a84592befd1b89017c49ba353ae5b76",
    ),
    "ik4": (
        _file(4),
        "074702d624629bc719f866640cde25efb6f59260a11a127e3abb69d95c59a27f",
    ),
    "ik3.blob": (
        PARTIAL + WORDS[3],
        "2a2a92494992a2585b830896f5b483009c6d3b2a1b180ba31624c581676ea758",
    ),
    "ik4.blob": (
        PARTIAL + WORDS[4],
        "2b094563a66d4c384f58086ce1a47798ca3a287e1ec145a200772e9ae01dec9c",
    ),
    "ik-checkpoints3": (
        _list(3, PARTIAL + WORDS[3]),
        "2e6b4fca17e219aaf43011a381c812b739f53003e0c0a0b50e1f4909a6e0178b",
    ),
    "ik-checkpoints4": (
        _list(4, PARTIAL + WORDS[4]),
        "d33fc48cefcf502123ef524ec0bd881f8f76e3678e79130a55cf16f0baf503f9",
    ),
}


@pytest.mark.parametrize("layout_id", list(EXAMPLES))
def test_worked_examples(read: Reader, layout_id: str) -> None:
    data, digest = EXAMPLES[layout_id]
    assert hashlib.sha256(data).hexdigest() == digest
    decoding = read(data, layout_id)
    assert decoding.complete
    same = ROWS[layout_id]
    others = [
        row.id
        for row in ROWS.values()
        if (row.magic, row.version) == (same.magic, same.version)
        and row is not same
        and read(data, row.id).complete
    ]
    assert not others


@pytest.mark.parametrize("layout_id", ["ik3", "ik4"])
def test_values_of_the_worked_example(read: Reader, layout_id: str) -> None:
    data = EXAMPLES[layout_id][0]
    decoding = read(data, layout_id)
    assert at(decoding, "attn").span.start == 24
    assert at(decoding, "attn.cells[2].pos").value == 2
    assert at(decoding, "attn.k[1]").span.start == 0x60
    assert at(decoding, "attn.v[1].v_type").meaning == "F16"
    assert sizes(decoding, "attn.k") == sizes(decoding, "attn.v") == [24, 24]


def test_version_2_with_values_is_left_to_upstream(read: Reader) -> None:
    data = _file(2)
    digest = "b55e23b63eff122891a082fb890815ffdd40639986ae9444dd495b719e248072"
    assert hashlib.sha256(data).hexdigest() == digest
    assert not any(read(data, row.id).complete for row in ROWS.values() if row.version == 2)


def test_version_2_without_values(read: Reader) -> None:
    row = Row(1, 8)
    cells = tuple(Cell(pos) for pos in range(3))
    memory = IkMemory(2, cells, (row, row), (), v_state=2)
    decoding = read(pack(Slot(2, Tokens((1, 2, 3)), memory)).data, "ik2.mla")
    assert decoding.complete
    assert sizes(decoding, "attn.k") == [24, 24]


# Compacted windows: layers 0 and 2 keep the last five of twelve cells.

WINDOWED = frozenset({0, 2})


def _compacted(v_state: int, indexer: tuple[Row, ...] | None = None) -> IkMemory:
    row = Row(1, 64)
    return IkMemory(
        4,
        tuple(Cell(pos) for pos in range(12)),
        (row, row, row, None),
        (row, row, row, None) if v_state < 2 else (),
        v_state=v_state,
        indexer=indexer,
        window=(32, 5, 7, 5),
        compacted=WINDOWED,
    )


@pytest.mark.parametrize("v_state", [0, 1, 2])
@pytest.mark.parametrize("indexer", [None, (Row(1, 16), Row(1, 16))])
@pytest.mark.parametrize("layout_id", ["ik4.swac", "ik4.blob.swac"])
def test_windowed_layers_are_told_by_what_follows(
    read: Reader, v_state: int, indexer: tuple[Row, ...] | None, layout_id: str
) -> None:
    memory = _compacted(v_state, indexer)
    what = memory if "blob" in layout_id else Slot(4, Tokens((1,) * 12), memory)
    decoding = read(pack(what).data, layout_id)
    assert decoding.complete
    stored = [5 * 64, 12 * 64, 5 * 64, 0]
    assert sizes(decoding, "attn.k") == stored
    if v_state < 2:
        assert sizes(decoding, "attn.v") == stored
    if indexer:
        assert sizes(decoding, "indexer.k") == [12 * 16] * 2
    assert at(decoding, "swac.live_rows").value == 5


def test_rows_of_zeros_do_not_hide_the_window(read: Reader) -> None:
    data = pack(_compacted(0), values=lambda part, layer, pos, size: bytes(size)).data
    decoding = read(data, "ik4.blob.swac")
    assert decoding.complete
    assert sizes(decoding, "attn.k") == [5 * 64, 12 * 64, 5 * 64, 0]


def test_a_partial_state_with_windows_has_nothing_else(read: Reader) -> None:
    row = Row(1, 64)
    cells = tuple(Cell(pos) for pos in range(12))
    layers = (row, None, row, None)
    memory = IkMemory(4, cells, layers, layers, window=(32, 5, 7, 5), compacted=WINDOWED)
    decoding = read(pack(memory).data, "ik4.blob.swac")
    assert decoding.complete
    assert sizes(decoding, "attn.k") == [320, 0, 320, 0]


# openPangu and DeepSeek-V4: packed here, in the order of `llama_data_write`.

LATENT = CELLS + struct.pack("<II", 2, 2) + _block(0, 1) + _block(1, 1)
STATES = struct.pack("<iQI", 0, 8, 1) + struct.pack("<iQI", -1, 0, 0)
PANGU = struct.pack("<Ii", 0x50414731, 2) + STATES
INDEXER = struct.pack("<iQ", 1, 4) + bytes(range(12))


@pytest.mark.parametrize("indexer", [b"", INDEXER, INDEXER * 2])
def test_openpangu_follows_the_indexer(read: Reader, indexer: bytes) -> None:
    words = struct.pack("<II", 0, int(bool(indexer)))
    decoding = read(LATENT + words + indexer + PANGU + b"pangu-st", "ik4.blob")
    assert decoding.complete
    assert at(decoding, "pangu.pos").value == 2
    assert sizes(decoding, "pangu.s") == [4, 4]
    assert len(at(decoding, "pangu.data").span) == 8
    if indexer:
        assert sizes(decoding, "indexer.k") == [12] * (len(indexer) // 24)


def test_partial_state_of_openpangu(read: Reader) -> None:
    heads = struct.pack("<III", 0x50414732, 2, 2) + struct.pack("<iQ", -1, 0) * 2
    data = heads + struct.pack("<I", 1) + PANGU + struct.pack("<I", 1) + b"pangu-st"
    assert data.startswith(ROWS["ik4.blob.pangu"].magic)
    decoding = read(data, "ik4.blob.pangu")
    assert decoding.complete
    assert at(decoding, "pangu.dsa_indexer_state").span.start == len(data) - 12
    short = read(data[:-1], "ik4.blob.pangu")
    assert [(stop.reason, stop.path) for stop in short.stops] == [
        (StopReason.PAYLOAD_EXCEEDS_FILE, "pangu.data")
    ]


@pytest.mark.parametrize(
    ("head", "follows"),
    [
        ((2, 1, 0, 1), True),
        ((2, 1, 3, 4), True),
        ((2, 0, -1, 4), True),
        ((3, 1, 0, 1), False),
        ((2, 1, -1, 1), False),
        ((2, 0, 0, 1), False),
        ((2, 1, 0, 0), False),
        ((0, 0, 0, 0), False),
    ],
)
def test_deepseek4_suffix_is_told_by_its_head(read: Reader, head: tuple[int, ...], follows) -> None:
    data = LATENT + bytes(8) + struct.pack("<IIiI", *head) + bytes(100)
    decoding = read(data, "ik4.blob")
    assert decoding.complete == follows
    assert decoding.ended
    assert decoding.end == (len(data) if follows else len(LATENT) + 8)


# The indexer, of which no count is stored.


def test_an_indexer_without_blocks_is_a_partial_one(read: Reader) -> None:
    marked = struct.pack("<II", 0, 1)
    empty = CELLS + struct.pack("<II", 2, 2) + struct.pack("<iQ", -1, 0) * 2
    assert read(empty + marked, "ik4.blob").complete
    full = read(LATENT + marked, "ik4.blob")
    assert [(stop.reason, stop.path) for stop in full.stops] == [
        (StopReason.SHORT_READ, "indexer.k[0].k_type")
    ]


def test_a_cut_indexer_block_stops_inside_it(read: Reader) -> None:
    data = LATENT + struct.pack("<II", 0, 1) + INDEXER * 2
    decoding = read(data[:-1], "ik4.blob")
    assert [(stop.reason, stop.path, stop.wanted) for stop in decoding.stops] == [
        (StopReason.PAYLOAD_EXCEEDS_FILE, "indexer.k[1].data", 12)
    ]
