"""The documentation of a layout, held against real trees of it."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest
from construct import this

from formats.describe import Row, describe, in_words
from formats.envelopes.tokens import CHUNK_TYPE
from formats.layout import Layout
from formats.layouts import all_layouts, by_id
from formats.scalars import FLAG, GGML_TYPE, I32, U8, U32, U64
from formats.spans import (
    Ahead,
    Choose,
    Nested,
    Payload,
    Ragged,
    Record,
    Rest,
    Series,
    Switch,
    Table,
    Text,
    When,
)
from inspector.decode import decode
from inspector.node import Kind, Rows, walk
from inspector.source import opened

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
INTACT = sorted((SAMPLES / "intact").glob("*.slot"))
TIMES = "\N{MULTIPLICATION SIGN}"
SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


def rows(*members: object) -> list[tuple[object, ...]]:
    """What is said of a record: depth, name, type, offset, size, condition."""
    found = describe(Record(*members))
    return [
        (r.depth, r.name, r.type, f"+{r.offset}" if r.relative else r.offset, r.size, r.condition)
        for r in found
    ]


def test_offsets_are_said_while_they_are_known() -> None:
    assert rows(
        "magic" / U32,
        "n" / U64,
        "name" / Text(4, at_most=4),
        "fixed" / Table(2, U32, at_most=2),
        "ids" / Table(this.n, I32, at_most=9),
        "last" / U8,
    ) == [
        (0, "magic", "u32", 0, "4", ""),
        (0, "n", "u64", 4, "8", ""),
        (0, "name", "text", 12, "4", ""),
        (0, "fixed", "u32 list", 16, "2", ""),
        (0, "ids", "i32 list", 24, "n", ""),
        (0, "last", "u8", None, "1", ""),
    ]


def test_items_and_frames_count_from_their_own_start() -> None:
    item = Record("size" / U32, "data" / Payload(this.size * this._.cells), "end" / U8)
    assert rows(
        "n" / U32,
        "items" / Series(this.n, item, at_most=9),
        "frame" / Nested(16, Record("a" / U32, "rest" / Rest())),
        "blobs" / Series(2, Payload(8), at_most=2),
    ) == [
        (0, "n", "u32", 0, "4", ""),
        (0, "items", "list", 4, "n", ""),
        (1, "size", "u32", "+0", "4", ""),
        (1, "data", "bytes", "+4", f"size {TIMES} cells", ""),
        (1, "end", "u8", "+None", "1", ""),
        (0, "frame", "frame", None, "16", ""),
        (1, "a", "u32", "+0", "4", ""),
        (1, "rest", "bytes", "+4", "to the end", ""),
        (0, "blobs", "list", None, "2", ""),
        (1, "", "bytes", "+0", "8", ""),
    ]


def test_a_frame_of_fixed_size_keeps_the_offset() -> None:
    frame = Nested(16, Record("rest" / Rest()))
    assert rows("frame" / frame, "next" / U8)[-1] == (0, "next", "u8", 16, "1", "")


def test_conditions() -> None:
    ahead = Ahead("<I", lambda word: word == 1, "a one comes next")
    assert rows(
        "n" / U32,
        When(this.n > 2, "a" / U8),
        When(ahead, "b" / U8, "c" / U8),
        "d" / Choose(this.n == 1, U8, U32, says="one"),
        "e" / Switch(this.n, {1: U8, 1 << 20: U32}),
    ) == [
        (0, "n", "u32", 0, "4", ""),
        (0, "a", "u8", 4, "1", "n > 2"),
        (0, "", "", None, "", "a one comes next"),
        (1, "b", "u8", None, "1", ""),
        (1, "c", "u8", None, "1", ""),
        (0, "", "", None, "", "one"),
        (1, "d", "u8", None, "1", ""),
        (0, "", "", None, "", "else"),
        (1, "d", "u32", None, "4", ""),
        (0, "e", "u8", None, "1", "n = 1"),
        (0, "e", "u32", None, "4", "n = 0x100000"),
    ]


def test_rows_of_unequal_length() -> None:
    head = Record("pos" / I32, "n_seq_id" / U32)
    cells = Ragged(this.n, head, "n_seq_id", I32, "seq_id", at_most=9, items_at_most=9)
    assert rows("n" / U32, "cells" / cells) == [
        (0, "n", "u32", 0, "4", ""),
        (0, "cells", "table", 4, "n", ""),
        (1, "pos", "i32", "+0", "4", ""),
        (1, "n_seq_id", "u32", "+4", "4", ""),
        (1, "seq_id", "i32 list", "+8", "n_seq_id", ""),
    ]


def padding(scope: object) -> int:
    """Bytes up to the next multiple of 32."""
    raise NotImplementedError


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (4096, "4,096"),
        (this.size, "size"),
        (this._.cell_count, "cell_count"),
        (4 * (this.room - this.used), f"4 {TIMES} (room - used)"),
        (this.n * 4 + 1, f"n {TIMES} 4 + 1"),
        (this.n >= 2, "n ≥ 2"),
        (padding, "bytes up to the next multiple of 32"),
        (lambda scope: 1, ""),
    ],
)
def test_expressions_in_words(expression: object, words: str) -> None:
    assert in_words(expression) == words  # type: ignore[arg-type]


def test_a_few_meanings_are_said() -> None:
    found = describe(Record("kind" / CHUNK_TYPE, "type" / GGML_TYPE, "flag" / FLAG))
    assert [row.meanings for row in found] == ["0 text, 1 image, 2 audio", "", ""]


@pytest.mark.parametrize("layout", all_layouts(), ids=lambda layout: layout.id)
def test_every_member_is_documented(layout: Layout) -> None:
    found = list(describe(layout.record))
    assert found
    for row in found:
        assert bool(row.type) == bool(row.path)
        assert row.type or row.condition
        assert row.doc or not row.type or row.path.endswith("[]") or row.type == "record", row.path
        assert not row.doc.endswith("."), row.path


def general(path: str) -> str:
    return re.sub(r"\[\d+\]", "[]", path)


def base(path: str, frames: Collection[str]) -> str:
    """The innermost item or frame around a path, which may be an item itself."""
    if not path or path.endswith("]"):
        return path
    path = path[: max(path.rfind("."), 0)]
    return path if general(path) in frames else base(path, frames)


@pytest.mark.parametrize("file", INTACT, ids=lambda file: file.stem)
def test_what_is_said_is_what_is_there(file: Path) -> None:
    layout = by_id(file.name.partition("--")[0])
    assert layout is not None
    said: dict[str, list[Row]] = {}
    for row in describe(layout.record):
        if row.type:
            said.setdefault(row.path, []).append(row)
    frames = {path for path, found in said.items() if any(row.type == "frame" for row in found)}
    with opened(file) as source:
        nodes = dict(walk(decode(source, layout, source.whole()).root))
    for path, node in nodes.items():
        known = general(path)
        if not path or node.kind is Kind.GAP or (known not in said and known.endswith("[]")):
            continue  # of an item of a list only the members are said
        start = nodes[base(path, frames)].span.start
        alike = [
            row
            for row in said[known]
            if row.offset in (None, node.span.start - (start if row.relative else 0))
            and (row.type[1:] not in SIZES or SIZES[row.type[1:]] == len(node.span))
        ]
        assert alike, path
        if isinstance(node.value, Rows):
            columns = {name.partition("[")[0] for name, _ in node.value.fields} - {"value"}
            inside = {row.name for at in said for row in said[at] if at.startswith(f"{known}[].")}
            assert columns <= inside, path
