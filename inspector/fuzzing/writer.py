"""Writes bytes by a declaration: expressions give the sizes, a policy chooses the values."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from construct import Container

from formats.layout import Layout
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
    Strings,
    Switch,
    Table,
    Text,
    Values,
    When,
    evaluate,
)
from inspector.node import join


class Field(NamedTuple):
    """What was written: its path, its bytes [start, stop), and its number if it is one."""

    path: str
    start: int
    stop: int
    value: int | float | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes that a declaration explains, and where each field lies in them."""

    data: bytes
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the writer stands.

    Attributes:
        name: of the member.
        path: of the same.
        scope: the values of its record so far; those around it are its `_`.
        record: the innermost section.
        written: all bytes in front of it.
        frame: where the innermost frame begins.
        row: names of the fields of a row, in a table.
    """

    name: str
    path: str
    scope: Container
    record: Record | None
    written: bytearray
    frame: int
    row: tuple[str, ...] = ()


class Policy(Protocol):
    """Chooses what the declaration leaves open."""

    def number(self, at: Place, con: Scalar) -> int | float:
        """The value of a scalar; a length that its contents decide is put right later."""
        ...

    def content(self, at: Place, con: Text | Payload) -> bytes | None:
        """Contents that decide their own length; None if the length is given."""
        ...

    def size(self, at: Place) -> int | None:
        """Bytes of a payload where the declaration would look at what follows; else None."""
        ...

    def filling(self, at: Place, size: int) -> bytes:
        """So many bytes of a payload or a text."""
        ...

    def cell(self, at: Place, index: int, name: str) -> int:
        """A number of a row of a table."""
        ...

    def items(self, at: Place, index: int) -> tuple[int, ...]:
        """The list at the end of a row of unequal length."""
        ...

    def repeats(self, at: Place) -> int:
        """How many items there are where no count is stored."""
        ...

    def follows(self, at: Place, says: str) -> bool:
        """Whether what is announced by its first bytes is to be written."""
        ...


class _Unwritten(Exception):
    """A condition looks at bytes that are not there yet."""


@dataclass(slots=True)
class _Blank:
    """The cursor that expressions see: nothing lies ahead."""

    offset: int = 0
    wall: int = 0

    def peek(self, size: int) -> bytes:
        raise _Unwritten


@dataclass(slots=True)
class _Pen:
    policy: Policy
    data: bytearray = field(default_factory=bytearray)
    fields: list[Field] = field(default_factory=list)
    cursor: _Blank = field(default_factory=_Blank)
    section: Record | None = None
    frame: int = 0

    def write(self, con: Span, name: str, path: str, scope: Container) -> Any:
        at = Place(name, path, scope, self.section, self.data, self.frame)
        self.cursor.offset = len(self.data)
        match con:
            case Record():
                return self._record(con, path, scope)
            case Scalar():
                return self._scalar(con, at)
            case Text() | Payload():
                return self._stretch(con, at)
            case Table():
                return self._table(con, at)
            case Ragged():
                return self._ragged(con, at)
            case Series():
                values = []
                for index in range(evaluate(con.count, scope)):
                    scope._index = index
                    values.append(self.write(con.item, "", f"{path}[{index}]", scope))
                return values
            case Run():
                n = self.policy.repeats(at)
                return [self.write(con.item, "", f"{path}[{i}]", scope) for i in range(n)]
            case Nested():
                return self._nested(con, at)
            case Choose():
                chosen = con.then if self._holds(con.condition, at, con.says) else con.otherwise
                return self.write(chosen, name, path, scope)
            case Switch():
                return self.write(con.cases[evaluate(con.on, scope)], name, path, scope)
            case Computed():
                return con.value(scope)
        raise TypeError(type(con).__name__)

    def _record(self, con: Record, path: str, scope: Container) -> Container:
        own = Container(_=scope, _cursor=self.cursor, _homes={})
        outer, self.section = self.section, con if con.role else self.section
        self._members(con.members, path, own)
        self.section = outer
        return own

    def _members(self, members: tuple[Any, ...], path: str, own: Container) -> None:
        for m in members:
            if isinstance(m, When):
                self.cursor.offset = len(self.data)
                at = Place("", path, own, self.section, self.data, self.frame)
                if self._holds(m.condition, at, m.says):
                    self._members(m.members, path, own)
            else:
                own[m.name] = self.write(m.con, m.name, join(path, m.name), own)

    def _holds(self, condition: Any, at: Place, says: str) -> bool:
        try:
            return bool(condition(at.scope))
        except _Unwritten:
            return self.policy.follows(at, says)

    def _scalar(self, con: Scalar, at: Place) -> int | float:
        value = self.policy.number(at, con)
        start = len(self.data)
        at.scope._homes[at.name] = (len(self.fields), con)
        self.data += con.layout.pack(value)
        self.fields.append(Field(at.path, start, len(self.data), value))
        return value

    def _stretch(self, con: Text | Payload, at: Place) -> Any:
        start = len(self.data)
        content = self.policy.content(at, con)
        decides = content is not None and not isinstance(con, Rest)
        if content is None:
            content = self._filling(con, at)
        self.data += content
        self.fields.append(Field(at.path, start, len(self.data)))
        if decides:
            self._fit(con.size, at.scope, len(content))
        return content.decode("ascii") if isinstance(con, Text) else len(content)

    def _filling(self, con: Text | Payload, at: Place) -> bytes:
        if isinstance(con, Strings):
            texts = [f"{at.name}{i}".encode() for i in range(evaluate(con.count, at.scope))]
            return b"".join(struct.pack("<Q", len(text)) + text for text in texts)
        size = self.policy.size(at)
        if size is None:
            size = max(0, evaluate(con.size, at.scope))
        return self.policy.filling(at, size)

    def _table(self, con: Table, at: Place) -> Any:
        count, start = evaluate(con.count, at.scope), len(self.data)
        layout, at = _packing(con.row), replace(at, row=tuple(name for name, _ in con.fields))
        rows = [tuple(self.policy.cell(at, i, name) for name in at.row) for i in range(count)]
        self.data += b"".join(layout.pack(*row) for row in rows)
        self.fields.append(Field(at.path, start, len(self.data)))
        return tuple(value for (value,) in rows) if isinstance(con, Values) else count

    def _ragged(self, con: Ragged, at: Place) -> int:
        count, start = evaluate(con.count, at.scope), len(self.data)
        names, layout = [name for name, _ in con.fields], _packing(con.head)
        for i in range(count):
            items = self.policy.items(at, i)
            row = [
                len(items) if name == con.counter else self.policy.cell(at, i, name)
                for name in names
            ]
            self.data += layout.pack(*row) + b"".join(map(con.item.layout.pack, items))
        self.fields.append(Field(at.path, start, len(self.data)))
        return count

    def _nested(self, con: Nested, at: Place) -> Any:
        start, outer = len(self.data), (self.cursor.wall, self.frame)
        self.cursor.wall, self.frame = start, start
        if isinstance(con.size, int):
            self.cursor.wall = start + con.size
        value = self.write(con.body, at.name, at.path, at.scope)
        self.cursor.wall, self.frame = outer
        self._fit(con.size, at.scope, len(self.data) - start)
        return value

    def _fit(self, size: Expression, scope: Container, needed: int) -> None:
        """Put the field right that gives a size."""
        if isinstance(size, int) or evaluate(size, scope) == needed:
            return
        for owner, name, (index, con) in _homes(scope):
            value, now = owner[name], evaluate(size, scope)
            owner[name] = value + 1
            step = evaluate(size, scope) - now
            owner[name] = value
            if step and (needed - now) % step == 0:
                owner[name] = value = value + (needed - now) // step
                written = self.fields[index]
                self.data[written.start : written.stop] = con.layout.pack(value)
                self.fields[index] = written._replace(value=value)
                return


def _homes(scope: Container) -> Iterator[tuple[Container, str, tuple[int, Scalar]]]:
    """The fields of a record and of the one around it, the nearest first."""
    for owner in (scope, scope.get("_")):
        for name, home in reversed((owner or {}).get("_homes", {}).items()):
            if isinstance(owner[name], int):
                yield owner, name, home


def _packing(row: Span) -> struct.Struct:
    if isinstance(row, Scalar):
        return row.layout
    assert isinstance(row, Record)
    scalars = [m.con for m in row.members if isinstance(m, Member)]
    codes = "".join(con.layout.format.lstrip("<") for con in scalars if isinstance(con, Scalar))
    return struct.Struct("<" + codes)


def write(layout: Layout, policy: Policy) -> Written:
    """A file of this layout, first byte to last."""
    pen = _Pen(policy)
    pen.write(layout.record, "", "", Container(_cursor=pen.cursor))
    return Written(bytes(pen.data), tuple(pen.fields))
