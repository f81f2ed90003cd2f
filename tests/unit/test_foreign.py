"""Files of other programs, packed as their sources say."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.envelopes import foreign, sdft
from formats.layout import Layout
from formats.spans import StopReason
from inspector.decode import Decoding, decode
from inspector.node import Rows, find, walk
from inspector.source import opened
from inspector.span import Span

ROWS: dict[str, Layout] = {row.id: row for row in (*foreign.ROWS, *sdft.ROWS)}
T, D, S = bytes.fromhex("11223344"), bytes.fromhex("aabb"), bytes.fromhex("cc")
IDS = struct.pack("<3i", 1, 15043, 3186)
PREFIX = struct.pack("<4096I", 1, 15043, 3186, *[0] * 4093)


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def sized(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<Q", len(body)) + bytes(32)


HEADER = json.dumps({"Version": 1, "TokenCount": 3}).encode()
PACKED = struct.pack("<iII", -1, 1, 3) + IDS + struct.pack("<I", 0)
RECORD = (
    struct.pack("<QIii4xQI4xQQI4xQ", 7, 2, 0, 2, 3, 5, len(T), 0xFEED, 3, 0xBEEF) + PREFIX
)  # fmt: skip
CHECKPOINT = (
    struct.pack("<qiiiQQIQqq", 100, -1, 99, 99, 1, 2, 1, 3, 100, 100)
    + text(b"exec") + text(b"adapters") + text(b"") + b"\1"
    + sized(T) + sized(D) + sized(b"") + sized(b"") + sized(S)
)  # fmt: skip
ENTRY = (
    text(b"pc-1-00000000.bin") + struct.pack("<QIQ", 1000, 3, 1791000000000)
    + text(b"model") + text(b"") + bytes(32)
)  # fmt: skip
SDFT = struct.pack("<4sIII", b"SDFT", 1, len(PACKED), len(S)) + PACKED + S + bytes(3)

FILES = {
    "llamasharp": b"\xcc\x77\xc0\xb4" + struct.pack(">I", len(HEADER)) + HEADER + T,
    "gpt4all": b"\xf5\xd5\x53\xcc" + struct.pack(">i", 9) + b"stream",
    "ses1": b"SES1" + struct.pack("<I", 3) + IDS + T,
    "cachyllama2": b"CRVK" + struct.pack("<I", 2) + RECORD + T,
    "cachyllama3": b"CRVK" + struct.pack("<I", 3) + RECORD
    + struct.pack("<QQ", len(D), len(S)) + T + D + S,
    "cachyllama-index": b"DIVK" + struct.pack("<IQQ12Q", 3, 8, 0xBEEF, *range(12)),
    "cachyllama-system": b"YSVK"
    + struct.pack("<IQIIQQQII", 1, 0xFEED, 3, len(T), 0xBEEF, 10, 20, 1, 3) + PREFIX + T,
    "lcpc1": sealed(
        b"LCPC" + struct.pack("<II", 1, 3) + IDS + text(b"model") + text(b"")
        + struct.pack("<Q", 4) + sized(T) + sized(D) + struct.pack("<I", 2) + CHECKPOINT * 2
    ),
    "lcpi1": sealed(b"LCPI" + struct.pack("<II", 1, 2) + ENTRY * 2),
    "kvc1": b"KVC1" + struct.pack("<IQQIIQQ", 1, 2, 3, 3, 0, len(PACKED), len(T)) + PACKED + T,
    "sdft": struct.pack("<4sII", b"qsgg", 3, len(SDFT) // 4) + SDFT + D,
}  # fmt: skip

HEADERS = {
    "cachyllama2": ("token_prefix", 16464),
    "cachyllama3": ("spec_data_size", 16480),
    "cachyllama-index": ("reserved", 120),
    "cachyllama-system": ("token_prefix", 16440),
    "kvc1": ("state_size", 48),
}
"""The last field of a native struct, and where the struct ends."""

BLOBS = {
    "llamasharp": [("blob", T)],
    "ses1": [("blob", T)],
    "cachyllama2": [("blob", T)],
    "cachyllama3": [("blob", T), ("draft", D)],
    "cachyllama-system": [("blob", T)],
    "lcpc1": [("blob", T), ("draft", D), ("blob", T), ("draft", D), ("blob", T), ("draft", D)],
    "kvc1": [("blob", T)],
    "sdft": [("draft", D)],
}

VALUES = {
    "llamasharp": {"header": HEADER.decode()},
    "gpt4all": {"version": 9},
    "ses1": {"n_tokens": 3},
    "cachyllama2": {"id": 7, "slot_id": 2, "pos_max": 2, "n_tokens": 3, "token_count": 3},
    "cachyllama3": {"turn_created": 5, "token_hash": 0xFEED, "compat_hash": 0xBEEF},
    "cachyllama-index": {"version": 3, "next_id": 8},
    "cachyllama-system": {"n_tokens": 3, "last_used": 20, "access_count": 1},
    "lcpc1": {"producer_identity": "model", "sequence_epoch": 4, "n_checkpoints": 2},
    "lcpi1": {"entries[1].file": "pc-1-00000000.bin", "entries[1].saved_unix_ms": 1791000000000},
    "kvc1": {"compat_hash": 2, "chain_hash": 3, "tokens.n_tokens": 3, "tokens.marker": -1},
    "sdft": {"tokens.envelope.prompt_bytes": len(PACKED), "tokens.envelope.spec_bytes": 1},
}

Reader = Callable[[bytes, str], Decoding]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    """Decodes bytes as the layout of that id."""

    def as_layout(data: bytes, layout_id: str) -> Decoding:
        path = tmp_path / "file.bin"
        path.write_bytes(data)
        with opened(path) as source:
            decoding = decode(source, ROWS[layout_id], source.whole())
            for _, node in walk(decoding.root):
                if isinstance(node.value, Rows):
                    assert len(node.value.table) == len(node.value)
        return decoding

    return as_layout


def test_every_row_has_a_sample() -> None:
    assert FILES.keys() == ROWS.keys() == VALUES.keys()


@pytest.mark.parametrize("layout_id", list(FILES))
def test_samples_are_explained_to_their_end(read: Reader, layout_id: str) -> None:
    data = FILES[layout_id]
    assert data.startswith(ROWS[layout_id].magic)
    decoding = read(data, layout_id)
    assert decoding.complete
    for path, value in VALUES[layout_id].items():
        node = find(decoding.root, path)
        assert node is not None, path
        assert node.value == value
    blobs = [
        (node.role, data[node.span.start : node.span.stop])
        for _, node in walk(decoding.root)
        if node.role in ("blob", "draft")
    ]
    assert blobs == BLOBS.get(layout_id, [])


@pytest.mark.parametrize("layout_id", list(HEADERS))
def test_native_structs_have_their_size(read: Reader, layout_id: str) -> None:
    last, size = HEADERS[layout_id]
    node = read(FILES[layout_id], layout_id).root.get(last)
    assert node is not None
    assert node.span.stop == size


OPEN_ENDS = {"llamasharp": len(T), "sdft": len(D), "gpt4all": 6, "ses1": len(T)}
"""Bytes up to the end of file that no length announces."""


@pytest.mark.parametrize("layout_id", list(FILES))
def test_cuts_are_stops(read: Reader, layout_id: str) -> None:
    data = FILES[layout_id]
    announced = len(data) - OPEN_ENDS.get(layout_id, 0)
    for size in {4, announced // 2, announced - 1}:
        assert not read(data[:size], layout_id).complete, size


def test_a_slot_file_with_tokens_is_no_draft_companion(read: Reader) -> None:
    tokens = struct.pack("<8I", 1, 5, 4, 8, 0, 0, 0, 0)
    data = struct.pack("<4sII", b"qsgg", 3, 8) + tokens + b"payload"
    decoding = read(data, "sdft")
    assert [(stop.reason, stop.path, stop.wanted) for stop in decoding.stops] == [
        (StopReason.LIMIT, "tokens.envelope", 1)
    ]


def test_counts_beyond_the_file_are_stops(read: Reader) -> None:
    data = bytearray(FILES["lcpc1"])
    data[8:12] = b"\xff\xff\xff\xff"
    assert read(bytes(data), "lcpc1").stops[0].reason is StopReason.COUNT_EXCEEDS_FILE
    data = bytearray(FILES["cachyllama3"])
    data[48:56] = b"\xff" * 8
    (stop,) = read(bytes(data), "cachyllama3").stops
    assert (stop.reason, stop.path) == (StopReason.PAYLOAD_EXCEEDS_FILE, "data")
    assert Span(stop.offset, len(data)) == Span(16480, len(FILES["cachyllama3"]))
