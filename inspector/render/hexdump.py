"""Annotated bytes: every field over its own bytes, with its name, value and meaning."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import groupby, islice

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from inspector.node import Kind, Node, Rows, join, row_at
from inspector.render.nodes import HIDDEN, holds_tokens, value_of
from inspector.render.page import QUIET, STRONG, counted, text
from inspector.source import Source
from inspector.span import Span

MOST_BYTES = 4096
"""Bytes of a range that are shown."""
_ALONE, _AMONG_OTHERS = 512, 32
"""Bytes that are shown of a payload, a gap or a table: asked for itself, or as a part."""
_MOST_LINES = 2000
_SIXTEEN_FROM = 110
"""Columns from which on a line shows sixteen bytes."""


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes that are shown beside each other, or a remark if there are none.

    Attributes:
        parent: path of what they are a part of.
        span: the bytes.
        note: what they are.
        hidden: whether they are token ids.
    """

    parent: str
    span: Span
    note: str
    hidden: bool = False


def hex_page(
    source: Source,
    path: str,
    node: Node,
    window: Span,
    width: int,
    *,
    show_tokens: bool,
    private: Container[int] = (),
) -> Iterator[RenderableType]:
    """The bytes of a node, or those of a window that lie in it.

    Args:
        source: the open file.
        path: of the node.
        node: the node.
        window: bytes; all of the node's own, or fewer, which are then shown to the last.
        width: columns of the terminal.
        show_tokens: whether token ids may be shown.
        private: where gaps begin that may hold token ids.
    """
    dump = Dump(window, 16 if width >= _SIXTEEN_FROM else 8, show_tokens, private)
    whole = _AMONG_OTHERS if node.children else _ALONE
    most = whole if window == node.span else MOST_BYTES
    lines = dump.lines(path, node, most)
    shown = list(islice(lines, _MOST_LINES))
    for parent, group in groupby(shown, key=lambda line: line.parent):
        if parent:
            yield text((parent, STRONG))
        table = Table.grid(padding=(0, 2, 0, 0))
        for size in (len(f"{window.stop:x}") + 2, 3 * dump.per_line - 1, dump.per_line):
            table.add_column(width=size, no_wrap=True)
        table.add_column(overflow="fold")
        for line in group:
            table.add_row(*cells(source, line))
        yield table
    if (after := next(lines, None)) is not None:
        yield text((f"… from 0x{after.span.start:x} on not shown: ask for a smaller part", QUIET))


def cells(source: Source, line: Line) -> tuple[Text, Text, Text, Text]:
    """Offset, bytes, letters and note of a line."""
    if not len(line.span):
        return Text(), Text(), Text(), text((line.note, QUIET))
    data = source.read_at(line.span.start, len(line.span))
    if line.hidden:
        digits, letters = " ".join([".."] * len(data)), ""
    else:
        digits = data.hex(" ")
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
    return text((f"0x{line.span.start:x}", QUIET)), text(digits), text(letters), text(line.note)


@dataclass(frozen=True, slots=True)
class Dump:
    """The bytes of a window, line by line; a line shows one field, or a part of something long.

    Attributes:
        window: the bytes.
        per_line: bytes of a line.
        show_tokens: whether token ids may be shown.
        private: where gaps begin that may hold token ids.
    """

    window: Span
    per_line: int
    show_tokens: bool
    private: Container[int]

    def lines(self, path: str, node: Node, most: int, parent: str = "") -> Iterator[Line]:
        """The lines of one node and all that is below it.

        Args:
            path: of the node.
            node: the node.
            most: bytes shown of what is not a field.
            parent: path of what it is a part of, if that is shown too.
        """
        if self._seen(node.span) is None:
            return
        if node.children:
            for child in node.children:
                yield from self.lines(join(path, child.name), child, most, path)
        elif isinstance(node.value, Rows):
            yield from self._table(path, node, node.value, most)
        else:
            yield from self._bulk(path, node, most, parent)

    def _seen(self, span: Span) -> Span | None:
        start, stop = max(span.start, self.window.start), min(span.stop, self.window.stop)
        return Span(start, stop) if start < stop else None

    def _bulk(self, path: str, node: Node, most: int, parent: str) -> Iterator[Line]:
        """One stretch of bytes under one note, the first of them if there are many."""
        seen = self._seen(node.span)
        if seen is None:
            return
        private = node.kind is Kind.GAP and node.span.start in self.private
        hidden = not self.show_tokens and (private or holds_tokens(path))
        if node.kind is Kind.FIELD:
            note = f"{node.name} = {value_of(path, node, show_tokens=self.show_tokens)}"
        else:
            note = f"{node.name or 'file'}, {counted(len(node.span), 'byte')}"
        end = min(seen.stop, seen.start + most)
        for start in range(seen.start, end, self.per_line):
            stop = min(start + self.per_line, end)
            yield Line(parent, Span(start, stop), note if start == seen.start else "", hidden)
        if end < seen.stop:
            yield self._more(parent, end, seen.stop)

    def _more(self, parent: str, start: int, stop: int) -> Line:
        return Line(parent, Span(start, start), f"… {counted(stop - start, 'more byte')}")

    def _table(self, path: str, node: Node, rows: Rows, most: int) -> Iterator[Line]:
        """Row by row and field by field; a list of numbers, a line at a time."""
        seen = self._seen(node.span)
        if seen is None or not len(rows):
            return
        end = min(seen.stop, seen.start + most)
        names = [name for name, _ in rows.fields]
        start = seen.start
        if names == ["value"]:
            yield from self._numbers(path, rows, Span(seen.start, end))
            start = end
        index = row_at(rows, seen.start)
        while start < end and index < len(rows.table):
            span = rows.row_span(index)
            at = join(path, f"[{index}]")
            start = span.start
            for name in names:
                field = rows.field_span(index, name)
                if (part := self._seen(field)) is None:
                    continue
                where = join(at, name)
                hide = holds_tokens(where) and not self.show_tokens
                value = HIDDEN if hide else rows.table[index][name].item()
                yield Line(at, part, f"{name} = {value}", hide)
                start = part.stop
            if start < span.stop and len(rows.fields):  # the items of a row of unequal length
                items = Node("items", Kind.PAYLOAD, Span(start, span.stop))
                yield from self._bulk(at, items, most, at)
            start, index = span.stop, index + 1
        if start < seen.stop:
            yield self._more(path, start, seen.stop)

    def _numbers(self, path: str, rows: Rows, span: Span) -> Iterator[Line]:
        size = len(rows.row_span(0))
        hide = holds_tokens(path) and not self.show_tokens
        for start in range(span.start, span.stop, self.per_line):
            part = Span(start, min(start + self.per_line, span.stop))
            first = (part.start - rows.span.start) // size
            last = (part.stop - 1 - rows.span.start) // size
            label = f"[{first}]" if first == last else f"[{first}..{last}]"
            values = HIDDEN if hide else ", ".join(map(str, rows.table["value"][first : last + 1]))
            yield Line(path, part, f"{label} = {values}", hide)
