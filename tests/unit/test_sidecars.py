"""Checkpoint lists byte by byte, against vectors that an independent parser read to their end."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from formats.layout import Layout
from formats.sidecars import bkcp, llcp, lsckpt2, pkcl, sckp, slck, stck
from formats.spans import StopReason
from inspector.decode import Decoding, decode
from inspector.node import Absent, Kind, leaves, walk
from inspector.source import opened

LAYOUTS: dict[str, Layout] = {
    layout.id: layout
    for module in (pkcl, llcp, lsckpt2, sckp, stck, bkcp, slck)
    for layout in module.ROWS
}

T, D, S = bytes.fromhex("11223344"), bytes.fromhex("aabb"), bytes.fromhex("cc")

# One checkpoint each: 100 tokens, positions 99 to 99, as many of the three blobs as the family has.
VECTORS = {
    "pkcl1": "504b434c0100000001000000640000000000000063000000630000000400000000000000020000000000"
    "000011223344aabb",
    "pkcl2": "504b434c0200000016b1b145adaa63ee0100000064000000000000006300000063000000040000000000"
    "0000112233440200000000000000aabb0100000000000000cc",
    "llcp1": "50434c4c010000000100000063000000630000006400000000000000040000000000000011223344",
    "llcp2": "50434c4c02000000010000006300000063000000640000000000000004000000000000001122334402"
    "00000000000000aabb",
    "lsckpt2": "4c53434b50543200010000000000000063000000630000006400000000000000040000000000000002"
    "0000000000000011223344aabb",
    "sckp1": "53434b5001000000010000006400000000000000630000006300000004000000000000001122334402"
    "00000000000000aabb0100000000000000cc",
    "bkcp1": "424b435001000000010000006400000000000000ffffffff630000006300000004000000000000001122"
    "33440200000000000000aabb0100000000000000cc",
    "slck1": "534c434b010000000100000064000000000000006300000063000000040000000000000011223344",
    "stck2": "5354434b020000000100000005000000000000006400000000000000948e7ef06d23ee78640000000000"
    "000063000000630000000400000000000000112233440200000000000000aabb0100000000000000cc",
}

HEADS = {
    "pkcl1": [("magic", 4, 0x4C434B50), ("version", 4, 1), ("count", 4, 1)],
    "pkcl2": [
        ("magic", 4, 0x4C434B50),
        ("version", 4, 2),
        ("state_hash", 8, 0xEE63AAAD45B1B116),
        ("count", 4, 1),
    ],
    "llcp1": [("magic", 4, 0x4C4C4350), ("version", 4, 1), ("count", 4, 1)],
    "llcp2": [("magic", 4, 0x4C4C4350), ("version", 4, 2), ("count", 4, 1)],
    "lsckpt2": [("magic", 8, 0x0032_5450_4B43_534C), ("count", 8, 1)],
    "sckp1": [("magic", 4, 0x504B4353), ("version", 4, 1), ("count", 4, 1)],
    "bkcp1": [("magic", 4, 0x50434B42), ("version", 4, 1), ("count", 4, 1)],
    "slck1": [("magic", 4, 0x4B434C53), ("version", 4, 1), ("count", 4, 1)],
    "stck2": [
        ("magic", 4, 0x4B435453),
        ("version", 4, 2),
        ("count", 4, 1),
        ("prompt_size", 8, 5),
        ("prompt_tokens", 8, 100),
        ("prompt_hash", 8, 0x78EE236DF07E8E94),
    ],
}

TOKENS = [("n_tokens", 8, 100)]
POSITIONS = [("pos_min", 4, 99), ("pos_max", 4, 99)]
TGT = [("n_tgt", 8, 4), ("data_tgt", 4, T)]
DFT = [("n_dft", 8, 2), ("data_dft", 2, D)]
SPEC = [("n_spec", 8, 1), ("data_spec", 1, S)]
LENGTHS_FIRST = [TGT[0], DFT[0], TGT[1], DFT[1]]

RECORDS = {
    "pkcl1": TOKENS + POSITIONS + LENGTHS_FIRST,
    "pkcl2": TOKENS + POSITIONS + TGT + DFT + SPEC,
    "llcp1": POSITIONS + TOKENS + TGT,
    "llcp2": POSITIONS + TOKENS + TGT + DFT,
    "lsckpt2": POSITIONS + TOKENS + LENGTHS_FIRST,
    "sckp1": TOKENS + POSITIONS + TGT + DFT + SPEC,
    "bkcp1": [*TOKENS, ("id_task", 4, -1), *POSITIONS, *TGT, *DFT, *SPEC],
    "slck1": TOKENS + POSITIONS + TGT,
    "stck2": TOKENS + POSITIONS + TGT + DFT + SPEC,
}


def decoded(directory: Path, layout_id: str, data: bytes) -> Decoding:
    path = directory / "list"
    path.write_bytes(data)
    with opened(path) as source:
        return decode(source, LAYOUTS[layout_id], source.whole())


def vector(layout_id: str) -> bytes:
    return bytes.fromhex(VECTORS[layout_id])


@pytest.mark.parametrize("layout_id", VECTORS)
def test_every_byte_of_the_vector(layout_id: str, tmp_path: Path) -> None:
    data = vector(layout_id)
    decoding = decoded(tmp_path, layout_id, data)
    assert decoding.complete
    assert decoding.root.role == "checkpoints"
    at, seen = 0, list(leaves(decoding.root))
    expected = HEADS[layout_id] + RECORDS[layout_id]
    assert [node.name for node in seen] == [name for name, _, _ in expected]
    for node, (_, size, value) in zip(seen, expected, strict=True):
        assert (node.span.start, node.span.stop) == (at, at + size)
        if isinstance(value, bytes):
            assert node.kind is Kind.PAYLOAD
            assert node.value is Absent.NOT_READ
            assert data[at : at + size] == value
        else:
            assert node.value == value
        at += size
    assert at == len(data)


@pytest.mark.parametrize("layout_id", VECTORS)
def test_layout_names_the_magic_and_the_version_of_its_vector(layout_id: str) -> None:
    layout, data = LAYOUTS[layout_id], vector(layout_id)
    assert data.startswith(layout.magic)
    if layout_id != "lsckpt2":
        assert int.from_bytes(data[4:8], "little") == layout.version


@pytest.mark.parametrize("layout_id", VECTORS)
def test_magic_has_a_meaning(layout_id: str, tmp_path: Path) -> None:
    magic = decoded(tmp_path, layout_id, vector(layout_id)).root.get("magic")
    assert magic is not None
    assert magic.meaning is not None


@pytest.mark.parametrize("layout_id", VECTORS)
def test_no_other_family_reads_the_vector_to_its_end(layout_id: str, tmp_path: Path) -> None:
    also = {
        other
        for other in VECTORS
        if other != layout_id and decoded(tmp_path, other, vector(layout_id)).complete
    }
    # Same record length, other field order: only the magic sets these two apart.
    assert also == {"llcp1": {"slck1"}, "slck1": {"llcp1"}}.get(layout_id, set())


@pytest.mark.parametrize("layout_id", VECTORS)
def test_cut_anywhere_stops_at_the_cut_and_keeps_what_was_read(
    layout_id: str, tmp_path: Path
) -> None:
    data = vector(layout_id)
    whole = {
        (path, node.span): node.value
        for path, node in walk(decoded(tmp_path, layout_id, data).root)
        if not node.children
    }
    for cut in range(len(data)):
        decoding = decoded(tmp_path, layout_id, data[:cut])
        assert not decoding.complete
        assert len(decoding.stops) == 1
        assert decoding.stops[0].offset <= cut
        kept = {
            (path, node.span): node.value
            for path, node in walk(decoding.root)
            if not node.children and node.kind not in (Kind.GAP, Kind.SERIES, Kind.RECORD)
        }
        assert kept.items() <= whole.items()
        assert kept.keys() == {
            (path, span) for path, span in whole if span.stop <= decoding.stops[0].offset
        }


def pair(layout_id: str, count: int) -> bytes:
    """The vector with its record twice, and a count of its own."""
    data = vector(layout_id)
    head = sum(size for _, size, _ in HEADS[layout_id])
    at = 0
    for name, size, _ in HEADS[layout_id]:
        if name == "count":
            data = data[:at] + count.to_bytes(size, "little") + data[at + size :]
        at += size
    return data + data[head:]


@pytest.mark.parametrize("layout_id", VECTORS)
@pytest.mark.parametrize("count", [3, 1000, 0xFFFF_FFFF])
def test_count_beyond_the_file_leaves_the_records_that_are_there(
    layout_id: str, count: int, tmp_path: Path
) -> None:
    data = pair(layout_id, count)
    decoding = decoded(tmp_path, layout_id, data)
    assert not decoding.complete
    assert [stop.offset for stop in decoding.stops] == [len(data)]
    series = decoding.root.get("records")
    assert series is not None
    records = [record for record in series.children if record.children]
    assert [record.number("n_tokens") for record in records] == [100, 100]
    assert records[-1].span.stop == len(data)


@pytest.mark.parametrize("layout_id", VECTORS)
def test_count_below_the_truth_leaves_a_gap(layout_id: str, tmp_path: Path) -> None:
    data = pair(layout_id, 1)
    decoding = decoded(tmp_path, layout_id, data)
    assert decoding.ended
    assert not decoding.complete
    assert decoding.end == len(vector(layout_id))
    assert [node.kind for node in leaves(decoding.root)][-1] is Kind.GAP


@pytest.mark.parametrize("layout_id", VECTORS)
def test_empty_list(layout_id: str, tmp_path: Path) -> None:
    head = sum(size for _, size, _ in HEADS[layout_id])
    decoding = decoded(tmp_path, layout_id, pair(layout_id, 0)[:head])
    assert decoding.complete


@pytest.mark.parametrize("layout_id", VECTORS)
@pytest.mark.parametrize("lie", [5, 1 << 34, (1 << 64) - 1])
def test_blob_longer_than_the_file_stops_at_the_blob(
    layout_id: str, lie: int, tmp_path: Path
) -> None:
    data = vector(layout_id)
    last = [name for name, _, _ in RECORDS[layout_id] if name.startswith("n_")][-1]
    at, where = 0, 0
    for name, size, _ in HEADS[layout_id] + RECORDS[layout_id]:
        where = at if name == last else where
        at += size
    decoding = decoded(
        tmp_path, layout_id, data[:where] + struct.pack("<Q", lie) + data[where + 8 :]
    )
    blob = last.replace("n_", "data_")
    size = {name: size for name, size, _ in RECORDS[layout_id]}[blob]
    (stop,) = decoding.stops
    assert stop.reason is StopReason.PAYLOAD_EXCEEDS_FILE
    assert stop.path == f"records[0].{blob}"
    assert (stop.offset, stop.wanted, stop.available) == (len(data) - size, lie, size)


def test_commit_marker(tmp_path: Path) -> None:
    data = struct.pack("<4sIQQQ", b"SGEN", 1, 100, 2048, 77)
    decoding = decoded(tmp_path, "stck-gen", data)
    assert decoding.complete
    assert [(node.name, node.value) for node in leaves(decoding.root)] == [
        ("magic", 0x4E454753),
        ("version", 1),
        ("n_tokens", 100),
        ("n_hbnd", 2048),
        ("n_drft", 77),
    ]
    assert not decoded(tmp_path, "stck-gen", data[:31]).complete
