"""What holds for `decode`, whatever the bytes and whatever the layout."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from construct import this
from hypothesis import given
from hypothesis import strategies as st

from formats.layout import Layout
from formats.layouts import all_layouts
from formats.spans import Choose, Nested, Ragged, Record, Run, Series, Switch, Table, When
from formats.spans import Span as Declared
from inspector.decode import Decoding, decode
from inspector.node import Kind, Node, Rows, leaves, walk
from inspector.span import Span
from inspector.trace import Memory
from tests.support.damage import at_random
from tests.support.disk import source_of
from tests.support.strategies import Specimen, described, specimens
from tests.support.writer import Mark

LAYOUTS = {layout.id: layout for layout in all_layouts()}
WRITTEN = [layout_id for layout_id in LAYOUTS if described(layout_id) is not None]


def any_specimen() -> st.SearchStrategy[Specimen]:
    return st.sampled_from(WRITTEN).flatmap(specimens)


@st.composite
def any_bytes(draw: st.DrawFn) -> bytes:
    """Noise, noise behind a magic that some layout has, or a file that something happened to."""
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.binary(max_size=300))
    if kind == 1:
        head = draw(st.sampled_from(sorted({layout.magic for layout in LAYOUTS.values()})))
        words = draw(st.lists(st.one_of(st.integers(0, 4), st.integers(0, 2**32 - 1)), max_size=60))
        return head + struct.pack(f"<{len(words)}I", *words) + draw(st.binary(max_size=3))
    specimen = draw(any_specimen())
    return at_random(specimen.packed, draw(st.integers(0, 2**32 - 1))).data


def assert_sound(decoding: Decoding, size: int) -> None:
    """The leaves tile the bytes, spans nest, stops lie within."""
    at = 0
    for leaf in leaves(decoding.root):
        assert leaf.span.start == at
        assert leaf.span.stop >= at
        at = leaf.span.stop
    assert at == size
    for _, node in walk(decoding.root):
        for child in node.children:
            assert node.span.start <= child.span.start <= child.span.stop <= node.span.stop
    for stop in decoding.stops:
        assert 0 <= stop.offset <= size
    assert 0 <= decoding.end <= size


def comparable(node: Node) -> Any:
    """The value of a node, with the rows of a table as tuples."""
    if isinstance(node.value, Rows):
        return [tuple(row) for row in node.value.table.tolist()], node.value.items().tolist()
    return node.value


def owners(root: Node) -> list[tuple[str, Node]]:
    """The leaves that own bytes, without the gaps."""
    return [
        (path, node)
        for path, node in walk(root)
        if not node.children and len(node.span) and node.kind is not Kind.GAP
    ]


# -- totality --------------------------------------------------------------------------------------


@given(any_bytes(), st.sampled_from(list(LAYOUTS)))
def test_any_bytes_are_read(data: bytes, layout_id: str) -> None:
    with source_of(data) as source:
        decoding = decode(source, LAYOUTS[layout_id], source.whole())
        assert_sound(decoding, len(data))
        for _, node in walk(decoding.root):
            comparable(node)


@given(any_bytes(), st.sampled_from(list(LAYOUTS)), st.data())
def test_only_the_span_is_read(data: bytes, layout_id: str, choice: st.DataObject) -> None:
    """What surrounds a span changes nothing but the offsets."""
    front = choice.draw(st.binary(max_size=9))
    with source_of(data) as alone, source_of(front + data + b"\xff" * 16) as within:
        layout = LAYOUTS[layout_id]
        expected = decode(alone, layout, alone.whole())
        actual = decode(within, layout, Span(len(front), len(front) + len(data)))
        assert [(path, node.kind) for path, node in walk(actual.root)] == [
            (path, node.kind) for path, node in walk(expected.root)
        ]
        assert [stop.path for stop in actual.stops] == [stop.path for stop in expected.stops]
        assert actual.end - len(front) == expected.end


@given(any_bytes(), st.lists(st.sampled_from(list(LAYOUTS)), min_size=2, max_size=6))
def test_sections_read_for_another_layout_are_the_same(data: bytes, ids: list[str]) -> None:
    memory: Memory = {}
    with source_of(data) as source:
        for layout in (LAYOUTS[layout_id] for layout_id in ids):
            shared = decode(source, layout, source.whole(), memory)
            alone = decode(source, layout, source.whole())
            assert shared.stops == alone.stops
            assert shared.end == alone.end
            assert [(path, node.span, node.doc) for path, node in walk(shared.root)] == [
                (path, node.span, node.doc) for path, node in walk(alone.root)
            ]


# -- what a writer wrote ---------------------------------------------------------------------------


NOT_WRITTEN = (
    *(f"ggsn{version}." for version in range(8)),
    "context.b",
    "ik4.blob.pangu",
    "gguf",
    "llamasharp",
    "gpt4all",
    "ses1",
    "cachyllama",
    "lcpc1",
    "lcpi1",
    "kvc1",
    "sdft",
)
"""Layouts that the writer does not write; tests of their own pack them."""


def test_every_other_layout_is_written() -> None:
    assert [i for i in LAYOUTS if i not in WRITTEN and not i.startswith(NOT_WRITTEN)] == []


def assert_read_as(mark: Mark, nodes: dict[str, Node]) -> None:
    """The field is in the tree under its name, with its bytes and its number."""
    node = nodes[mark.path]
    assert (node.span.start, node.span.stop) == (mark.start, mark.stop), mark
    if mark.value is not None:
        assert node.value == mark.value, mark


@pytest.mark.parametrize("fmt", sorted({LAYOUTS[layout_id].format for layout_id in WRITTEN}))
@given(data=st.data())
def test_intact_files_are_read_as_they_were_written(fmt: str, data: st.DataObject) -> None:
    ids = [layout_id for layout_id in WRITTEN if LAYOUTS[layout_id].format == fmt]
    specimen = data.draw(st.sampled_from(ids).flatmap(specimens))
    with source_of(specimen.data) as source:
        decoding = decode(source, LAYOUTS[specimen.layout], source.whole())
        assert decoding.stops == ()
        assert decoding.complete
        nodes = dict(walk(decoding.root))
        for mark in specimen.packed.marks:
            inside_a_blob = ".data_" in mark.path
            if mark.path != "tokens" and not inside_a_blob and mark.start < mark.stop:
                assert_read_as(mark, nodes)


# -- cuts ------------------------------------------------------------------------------------------

LOOK_AHEAD = 20
"""Bytes that declarations look at to tell what comes next; a cut within them may mislead them."""


@given(any_specimen(), st.data())
def test_a_cut_file_is_read_up_to_the_cut(specimen: Specimen, choice: st.DataObject) -> None:
    size = choice.draw(st.integers(0, len(specimen.data)))
    layout = LAYOUTS[specimen.layout]
    with source_of(specimen.data) as whole, source_of(specimen.data[:size]) as cut:
        expected = dict(owners(decode(whole, layout, whole.whole()).root))
        decoding = decode(cut, layout, cut.whole())
        assert_sound(decoding, size)
        first = min((stop.offset for stop in decoding.stops), default=decoding.end)
        first = min(first, size - LOOK_AHEAD) if size < len(specimen.data) else first
        read = [(path, node) for path, node in owners(decoding.root) if node.span.stop <= first]
        for path, node in read:
            original = expected.pop(path)
            assert node.span.start == original.span.start
            if node.kind is Kind.TABLE:
                rows, items = comparable(node)
                all_rows, all_items = comparable(original)
                assert (rows, items) == (all_rows[: len(rows)], all_items[: len(items)])
            else:
                assert (node.span, node.value) == (original.span, original.value)
        assert not [path for path, node in expected.items() if node.span.stop <= first]


# -- tables ----------------------------------------------------------------------------------------


def declarations(con: Any) -> Iterator[Declared]:
    """A declaration and all that it is made of."""
    yield con
    match con:
        case Record():
            parts: list[Any] = [*con.members]
        case When():
            parts = [*con.members]
        case Series() | Run():
            parts = [con.item]
        case Nested():
            parts = [con.body]
        case Choose():
            parts = [con.then, con.otherwise]
        case Switch():
            parts = [*con.cases.values()]
        case _:
            parts = []
    for part in parts:
        yield from declarations(part if isinstance(part, When | Declared) else part.con)


ALL = [con for layout in LAYOUTS.values() for con in declarations(layout.record)]
TABLES = list({con.fields: con for con in ALL if isinstance(con, Table)}.values())
RAGGED = list({con.fields: con for con in ALL if isinstance(con, Ragged)}.values())


def read_alone(con: Any, data: bytes) -> Node:
    layout = Layout("test", "test", "test", None, b"", lambda: Record("rows" / con), ())
    with source_of(data) as source:
        decoding = decode(source, layout, source.whole())
        assert decoding.complete
        (node,) = decoding.root.children
        comparable(node)
        return node


def values(node: Node) -> tuple[Any, ...]:
    """The numbers of a record in order; those of a list in it too."""
    if node.kind is not Kind.RECORD:
        return (node.value,)
    return tuple(child.value for child in node.children if child.kind is Kind.FIELD)


@pytest.mark.parametrize(
    "table", TABLES, ids=lambda table: "+".join(name for name, _ in table.fields)
)
@given(data=st.data())
def test_numpy_and_construct_read_the_same_row_alike(table: Table, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 5))
    size = count * table.row_bytes
    noise = data.draw(st.binary(min_size=size, max_size=size))
    rows, _ = comparable(read_alone(Table(count, table.row, at_most=count), noise))
    each = read_alone(Series(count, table.row, at_most=count), noise)
    expected = [values(child) for child in each.children]
    assert repr(rows) == repr(expected)


@pytest.mark.parametrize("ragged", RAGGED, ids=lambda ragged: "+".join(n for n, _ in ragged.fields))
@given(data=st.data())
def test_rows_of_unequal_length_are_read_alike(ragged: Ragged, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 3), max_size=5) | st.just([1, 1, 1]))
    noise = st.binary(min_size=ragged.row_bytes, max_size=ragged.row_bytes)
    out = b""
    for n_items in counts:
        head, at = bytearray(data.draw(noise)), 0
        for member in ragged.head.members:
            if member.name == ragged.counter:
                head[at : at + member.con.size] = n_items.to_bytes(member.con.size, "little")
            at += member.con.size
        out += head + data.draw(st.binary(min_size=4 * n_items, max_size=4 * n_items))
    node = read_alone(
        Ragged(
            len(counts), ragged.head, ragged.counter, ragged.item, ragged.items, 9, items_at_most=9
        ),
        out,
    )
    one = Record(
        "head" / ragged.head,
        "items" / Series(this.head[ragged.counter], ragged.item, at_most=9),
    )
    each = read_alone(Series(len(counts), one, at_most=9), out)
    n_fields = len(ragged.fields)
    rows, items = comparable(node)
    assert [row[:n_fields] for row in rows] == [values(row.children[0]) for row in each.children]
    assert items == [item.value for row in each.children for item in row.children[1].children]
    assert isinstance(node.value, Rows)
    starts = [node.value.row_span(i).start for i in range(len(counts))]
    assert starts == [row.span.start for row in each.children]
