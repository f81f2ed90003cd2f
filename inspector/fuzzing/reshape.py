"""A file written again by its declaration with other numbers: what they count goes along."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from construct import Container

from formats.spans import (
    Choose,
    Computed,
    Expression,
    Member,
    Nested,
    Payload,
    Ragged,
    Record,
    Rest,
    Run,
    Scalar,
    Series,
    Span,
    StopReason,
    Strings,
    Switch,
    Table,
    Text,
    Values,
    When,
    evaluate,
)
from inspector.decode import Decoding
from inspector.node import Kind, Node, Rows, join
from inspector.source import Source


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file that is written, and what they are.

    Attributes:
        path: in the tree; empty for what no declaration explains.
        data: the bytes.
        con: what they were declared as; None for what no declaration explains.
        doc: what the declaration says.
        value: the number, of a scalar.
    """

    path: str
    data: bytes
    con: Span | None = None
    doc: str = ""
    value: int | float | None = None


@dataclass(frozen=True)
class Change:
    """What is to be different.

    Attributes:
        numbers: values of fields, and numbers of items of lists without a count, by path.
        zero: paths of payloads that become zeros.
        last: whether of lists that become shorter the last items stay, rather than the first.
        rest: whether what no declaration explains stays.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    zero: frozenset[str] = frozenset()
    last: bool = False
    rest: bool = True


class _Ends(Exception):
    """The file ended here."""


class _NoCursor:
    """The cursor that expressions see: what lies ahead is not written yet."""

    def __getattr__(self, name: str) -> Any:
        raise _Unknown


class _Unknown(Exception):
    """An expression looks at bytes; then the size that it had stays."""


def reshaped(source: Source, decoding: Decoding, change: Change) -> tuple[Piece, ...]:
    """The pieces of a file with other numbers.

    Counts decide how many rows and items follow, sizes how many bytes; lengths of frames are put
    right. A file that was cut stays cut at the same place.

    Args:
        source: the file.
        decoding: its tree.
        change: what is to be different.
    """
    pen = _Pen(source, decoding, change)
    whole = True
    try:
        pen.write(decoding.layout.record, decoding.root, "", "", Container(_cursor=pen.cursor))
    except _Ends:
        whole = False
    rest = decoding.root.span.stop - decoding.end
    if change.rest and whole and rest > 0:
        pen.raw(decoding.end, rest)
    return tuple(pen.pieces)


class _Pen:
    def __init__(self, source: Source, decoding: Decoding, change: Change) -> None:
        self.source, self.change = source, change
        self.stops = {stop.path: stop for stop in decoding.stops}
        self.pieces: list[Piece] = []
        self.cursor, self.wall = _NoCursor(), decoding.root.span.stop

    def write(self, con: Span, node: Node | None, path: str, doc: str, scope: Container) -> Any:
        if isinstance(con, Computed):
            return con.value(scope)
        if isinstance(con, Choose):
            return self.write(self._chosen(con, node, scope), node, path, doc, scope)
        if isinstance(con, Switch):
            value = evaluate(con.on, scope)
            if value not in con.cases:
                raise _Ends
            return self.write(con.cases[value], node, path, doc, scope)
        if node is None:
            self._cut(con, path, doc, scope)
        match con:
            case Record():
                return self._record(con, node, path, scope)
            case Scalar():
                return self._scalar(con, node, path, doc, scope)
            case Text():
                return self._text(con, node, path, doc, scope)
            case Series():
                return self._series(con, node, path, scope)
            case Run():
                return self._run(con, node, path, scope)
            case Table() | Ragged():
                return self._rows(con, node, path, doc, scope)
            case Strings():
                return self._strings(con, node, path, doc, scope)
            case Payload():
                return self._payload(con, node, path, doc, scope)
            case Nested():
                return self._nested(con, node, path, doc, scope)
        raise TypeError(type(con).__name__)

    def raw(self, offset: int, size: int) -> None:
        """Bytes that no declaration explains."""
        if size > 0:
            self.pieces.append(Piece("", self.source.read_at(offset, size)))

    def _cut(self, con: Span, path: str, doc: str, scope: Container) -> NoReturn:
        """What is left of the part in which the file ended."""
        stop = self.stops.get(path)
        if stop is not None:
            left = self.wall - stop.offset
            if stop.reason is not StopReason.LIMIT:
                left = max(0, min(left, _wanted(con, scope) - 1))
            data = self.source.read_at(stop.offset, left)
            if path in self.change.zero:
                data = bytes(len(data))
            if data:
                self.pieces.append(Piece(path, data, None, doc))
        raise _Ends

    def _chosen(self, con: Choose, node: Node | None, scope: Container) -> Span:
        """The alternative that the tree has."""
        fitting = [one for one in (con.then, con.otherwise) if node and _fits(one, node)]
        size = len(node.span) if node is not None else 0
        for one in fitting:
            if not isinstance(one, Payload) or self._size(one.size, scope, -1) == size:
                return one
        return fitting[0] if fitting else con.then

    def _record(self, con: Record, node: Node, path: str, scope: Container) -> Container:
        own = Container(_=scope, _cursor=self.cursor, _homes={})
        children = {child.name: child for child in node.children}
        self._members(con.members, children, path, own)
        return own

    def _members(
        self, members: tuple[Any, ...], children: dict[str, Node], path: str, own: Container
    ) -> None:
        for m in members:
            if not isinstance(m, When):
                at = join(path, m.name)
                own[m.name] = self.write(m.con, children.get(m.name), at, m.doc, own)
            elif self._there(m, children, path):
                self._members(m.members, children, path, own)

    def _there(self, when: When, children: dict[str, Node], path: str) -> bool:
        """Whether a file has what it has under a condition."""
        return any(
            self._there(m, children, path)
            if isinstance(m, When)
            else m.name in children or join(path, m.name) in self.stops
            for m in when.members
        )

    def _scalar(self, con: Scalar, node: Node, path: str, doc: str, scope: Container) -> Any:
        value: Any = self.change.numbers.get(path, node.value)
        scope._homes[path.rpartition(".")[2]] = (len(self.pieces), con)
        data = self.source.read_at(node.span.start, len(node.span))
        if value != node.value:
            data = con.layout.pack(value)
        self.pieces.append(Piece(path, data, con, doc, value))
        return value

    def _text(self, con: Text, node: Node, path: str, doc: str, scope: Container) -> Any:
        data = self.source.read_at(node.span.start, len(node.span))
        data = data[: self._size(con.size, scope, len(data))]
        self.pieces.append(Piece(path, data, con, doc))
        return data.decode("ascii", "backslashreplace")

    def _series(self, con: Series, node: Node, path: str, scope: Container) -> list[Any]:
        children = [child for child in node.children if child.kind is not Kind.GAP]
        count = self._size(con.count, scope, len(children))
        values = []
        for index, child in enumerate(self._kept(children, count)):
            scope._index = index
            at = f"{path}{child.name}"
            values.append(self.write(con.item, child, at, "", scope))
        if count > len(children):
            scope._index = len(children)
            values.append(self.write(con.item, None, f"{path}[{len(children)}]", "", scope))
        return values

    def _run(self, con: Run, node: Node, path: str, scope: Container) -> list[Any]:
        children = [child for child in node.children if child.kind is not Kind.GAP]
        kept = self._kept(children, self.change.numbers.get(path, len(children)))
        values = [self.write(con.item, c, f"{path}{c.name}", "", scope) for c in kept]
        following = f"{path}[{len(children)}]"
        if any(stop.startswith(following) for stop in self.stops):
            values.append(self.write(con.item, None, following, "", scope))
        return values

    def _kept(self, children: list[Node], count: int) -> list[Node]:
        if count >= len(children):
            return children
        return children[len(children) - count :] if self.change.last else children[:count]

    def _rows(self, con: Table | Ragged, node: Node, path: str, doc: str, scope: Container) -> Any:
        rows = node.value
        assert isinstance(rows, Rows)  # tables have them
        count = max(0, self._size(con.count, scope, len(rows)))
        kept = min(count, len(rows))
        start, stop = node.span.start, node.span.stop
        if kept < len(rows):
            if self.change.last:
                start = rows.row_span(len(rows) - kept).start if kept else stop
            else:
                stop = rows.row_span(kept).start
        data = self.source.read_at(start, stop - start)
        self.pieces.append(Piece(path, data, con, doc))
        if kept < count and join(path, f"[{len(rows)}]") in self.stops:
            raise _Ends
        if isinstance(con, Values):
            whole = len(data) - len(data) % con.row_bytes
            return tuple(value for (value,) in con.row.layout.iter_unpack(data[:whole]))
        return kept

    def _strings(self, con: Strings, node: Node, path: str, doc: str, scope: Container) -> int:
        data = self.source.read_at(node.span.start, len(node.span))
        count, at, done = self._size(con.count, scope, 0), 0, 0
        while done < count and at + 8 <= len(data):
            at += 8 + int.from_bytes(data[at : at + 8], "little")
            done += 1
        self.pieces.append(Piece(path, data[:at], con, doc))
        return done

    def _payload(self, con: Payload, node: Node, path: str, doc: str, scope: Container) -> int:
        had = len(node.span)
        size = had if isinstance(con, Rest) else self._size(con.size, scope, had)
        if isinstance(con, Rest):
            size = self.change.numbers.get(path, had)
        kept = max(0, min(size, had))
        start = node.span.stop - kept if self.change.last else node.span.start
        data = bytes(kept) if path in self.change.zero else self.source.read_at(start, kept)
        self.pieces.append(Piece(path, data + bytes(max(0, size) - kept), con, doc))
        return size

    def _nested(self, con: Nested, node: Node, path: str, doc: str, scope: Container) -> Any:
        first, value, outer = len(self.pieces), None, self.wall
        self.wall = node.span.stop
        with suppress(_Ends):
            value = self.write(con.body, node, path, doc, scope)
        self.wall = outer
        self._fit(con.size, scope, sum(len(piece.data) for piece in self.pieces[first:]))
        return value

    def _size(self, expression: Expression, scope: Container, had: int) -> int:
        """A size or a count; what it was where only the bytes say it."""
        try:
            return evaluate(expression, scope)
        except _Unknown:
            return had

    def _fit(self, size: Expression, scope: Container, needed: int) -> None:
        """Put the field right that gives the size of a frame; fill the frame up if none can."""
        try:
            now = evaluate(size, scope)
        except _Unknown:
            return
        for owner, name, (index, con) in _homes(scope):
            if now == needed:
                return
            value = owner[name]
            owner[name] = value + 1
            step = evaluate(size, scope) - now
            owner[name] = value
            if not step:
                continue
            more = -(-(needed - now) // step)
            value += more
            owner[name] = value
            piece = self.pieces[index]
            self.pieces[index] = replace(piece, data=con.layout.pack(value), value=value)
            if padding := now + more * step - needed:
                self.pieces.append(Piece("", bytes(padding)))
            return


def _wanted(con: Span, scope: Container) -> int:
    """Bytes that a part of a file would have."""
    try:
        match con:
            case Table():
                return evaluate(con.count, scope) * con.row_bytes
            case Ragged():
                return evaluate(con.count, scope) * con.row_bytes
            case Series():
                return evaluate(con.count, scope) * max(1, con.item.smallest)
            case Rest():
                return 0
            case Payload() | Nested() | Text():
                return evaluate(con.size, scope)
    except _Unknown:
        return con.smallest
    return con.smallest


_KINDS: dict[type[Span], Kind] = {
    Record: Kind.RECORD,
    Series: Kind.SERIES,
    Run: Kind.SERIES,
    Scalar: Kind.FIELD,
    Text: Kind.FIELD,
}


def _fits(con: Span, node: Node) -> bool:
    """Whether a node can have come of a declaration."""
    if isinstance(con, Nested):
        return _fits(con.body, node)
    if isinstance(con, Choose):
        return _fits(con.then, node) or _fits(con.otherwise, node)
    if isinstance(con, Table | Ragged):
        if node.kind is not Kind.TABLE or not isinstance(node.value, Rows):
            return False
        return [name for name, _ in con.fields] == [
            name for name, _ in node.value.fields if "[" not in name
        ]
    if isinstance(con, Payload):
        return node.kind is Kind.PAYLOAD
    if _KINDS.get(type(con)) is not node.kind:
        return False
    if isinstance(con, Record):
        names = [m.name for m in con.members if not isinstance(m, When)]
        mine = [child.name for child in node.children if child.kind is not Kind.GAP]
        return all(name in names for name in mine[:1]) and set(mine) <= _names(con.members)
    if isinstance(con, Series) and node.children:
        return _fits(con.item, node.children[0])
    return True


def _names(members: tuple[Any, ...]) -> set[str]:
    found: set[str] = set()
    for m in members:
        found |= _names(m.members) if isinstance(m, When) else {m.name}
    return found


def _homes(scope: Container) -> Iterator[tuple[Container, str, tuple[int, Scalar]]]:
    """The fields of a record and of the one around it, the nearest first."""
    for owner in (scope, scope.get("_")):
        for name, home in reversed((owner or {}).get("_homes", {}).items()):
            if isinstance(owner[name], int):
                yield owner, name, home


def packing(row: Span) -> struct.Struct:
    """The `struct` of a row of scalars."""
    if isinstance(row, Scalar):
        return struct.Struct(row.layout.format)
    assert isinstance(row, Record)
    codes = (m.con.layout.format for m in row.members if isinstance(m, Member))
    return struct.Struct("<" + "".join(code.lstrip("<") for code in codes))
