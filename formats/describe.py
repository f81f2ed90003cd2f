"""A declaration as a list of documented rows: what `slotscope layouts ID` prints."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from construct.expr import BinExpr, Path

from formats.spans import (
    Ahead,
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
    When,
)

_SIGNS = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "×",
    operator.floordiv: "/",
    operator.mod: "mod",
    operator.eq: "=",
    operator.ne: "≠",
    operator.gt: ">",
    operator.ge: "≥",
    operator.lt: "<",
    operator.le: "≤",
}
_LOOSE = (operator.add, operator.sub)
_MOST_MEANINGS = 5
_SMALL = 1 << 16
"""Values from here on are magics, in hex."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a layout's documentation.

    Attributes:
        depth: how many lists, records and conditions it is inside.
        path: as in the tree, with `[]` for any item of a list; that of its record for a condition.
        name: the member's own; a condition in words where `type` is empty.
        type: a scalar's type, or record, list, table, frame, bytes, text, strings.
        offset: where it begins, in bytes from the start of the file, or of the innermost item or frame if
            `relative`; None if that depends on what was read before.
        relative: whether the offset counts from the innermost item or frame.
        size: bytes, or items of a list or table, in words; empty if only its contents tell.
        doc: what the declaration says.
        meanings: what single values stand for, where they are few.
    """

    depth: int
    path: str
    name: str
    type: str
    offset: int | None
    relative: bool
    size: str
    doc: str
    meanings: str = ""


def describe(record: Record) -> Iterator[Row]:
    """The rows of a layout, in file order.

    Args:
        record: its declaration.
    """
    return _Walk().members(record, "", 0)


def in_words(expression: Expression) -> str:
    """A size, a count or a condition as people write it: `k_size_row × cell_count`.

    A function says it in the first line of its docstring; without one there are no words.
    """
    if isinstance(expression, int):
        return f"{expression:,}"
    if isinstance(expression, Ahead):
        return expression.says
    if isinstance(expression, BinExpr | Path):
        return _words(expression)
    line = (getattr(expression, "__doc__", None) or "").partition("\n")[0].rstrip(".")
    return line[:1].lower() + line[1:]


def _words(expression: Any) -> str:
    if isinstance(expression, Path):
        names = str(expression).removeprefix("this").replace("['", ".").replace("']", "")
        return names.replace("._", "").removeprefix(".")
    if not isinstance(expression, BinExpr):
        return f"{expression:,}" if isinstance(expression, int) else str(expression)
    sides = []
    for side in (expression.lhs, expression.rhs):
        loose = isinstance(side, BinExpr) and side.op in _LOOSE and expression.op not in _LOOSE
        sides.append(f"({_words(side)})" if loose else _words(side))
    return f"{sides[0]} {_SIGNS.get(expression.op, '?')} {sides[1]}"


class _Walk:
    """One pass over a declaration; keeps the offset as long as it is a number."""

    def __init__(self) -> None:
        self.offset: int | None = 0
        self.relative = False

    def members(self, record: Record, path: str, depth: int) -> Iterator[Row]:
        """The rows of the members of a record."""
        yield from self._splice(record.members, path, depth)

    def _splice(self, members: tuple[Any, ...], path: str, depth: int) -> Iterator[Row]:
        for m in members:
            if isinstance(m, Member):
                yield from self._one(m.con, path, m.name, m.doc, depth)
            elif isinstance(m, When):
                yield self._condition(depth, path, f"if {m.says or in_words(m.condition)}")
                yield from self._splice(m.members, path, depth + 1)
                self.offset = None

    def _one(self, con: Span, path: str, name: str, doc: str, depth: int) -> Iterator[Row]:
        own = name if not path else path + name if name == "[]" else f"{path}.{name}"

        def row(kind: str, size: str = "", meanings: str = "") -> Row:
            return Row(depth, own, name, kind, self.offset, self.relative, size, doc, meanings)

        match con:
            case Scalar():
                yield row(con.type_name, str(con.size), _meanings(con))
                self._advance(con.size)
            case Text():
                yield row("text", in_words(con.size))
                self._advance(con.size)
            case Record():
                yield row("record")
                yield from self.members(con, own, depth + 1)
            case Table() | Ragged():
                yield from self._table(con, row, own, depth)
            case Strings():
                yield row("strings", in_words(con.count))
                self.offset = None
            case Rest():
                yield row("bytes", "to the end")
                self.offset = None
            case Payload():
                yield row("bytes", in_words(con.size))
                self._advance(con.size)
            case Series() | Run():
                yield row("list", in_words(con.count) if isinstance(con, Series) else "")
                yield from self._apart(con.item, own, "[]", depth)
                self.offset = None
            case Nested():
                after = self._after(con.size)
                yield row("frame", in_words(con.size))
                yield from self._apart(con.body, own, "", depth)
                self.offset = after
            case Choose():
                yield from self._choose(con, path, name, doc, depth)
            case Switch():
                yield from self._switch(con, path, name, doc, depth)
            case Computed():
                pass

    def _apart(self, con: Span, path: str, name: str, depth: int) -> Iterator[Row]:
        """What is inside an item or a frame: its offsets count from its own start."""
        outer, self.offset, self.relative = self.relative, 0, True
        if isinstance(con, Record):
            yield from self.members(con, path + name, depth + 1)
        else:
            yield from self._one(con, path, name or "body", "", depth + 1)
        self.relative = outer

    def _table(
        self, con: Table | Ragged, row: Callable[..., Row], path: str, depth: int
    ) -> Iterator[Row]:
        head = con.row if isinstance(con, Table) else con.head
        if isinstance(head, Scalar):
            yield row(f"{head.type_name} list", in_words(con.count))
        else:
            yield row("table", in_words(con.count))
            yield from self._apart(head, path, "[]", depth)
        if isinstance(con, Ragged):
            kind, size, doc = (
                f"{con.item.type_name} list",
                con.counter,
                f"as many as {con.counter} says",
            )
            at, inside = f"{path}[].{con.items}", depth + 1
            yield Row(inside, at, con.items, kind, con.head.smallest, True, size, doc)
        constant = isinstance(con, Table) and isinstance(con.count, int)
        self._advance(con.count * con.row_bytes if constant else None)

    def _choose(self, con: Choose, path: str, name: str, doc: str, depth: int) -> Iterator[Row]:
        yield self._condition(depth, path, f"if {con.says or in_words(con.condition)}")
        start = self.offset
        yield from self._one(con.then, path, name, doc, depth + 1)
        yield self._condition(depth, path, "else")
        self.offset = start
        yield from self._one(con.otherwise, path, name, doc, depth + 1)
        self.offset = None

    def _switch(self, con: Switch, path: str, name: str, doc: str, depth: int) -> Iterator[Row]:
        start, on = self.offset, in_words(con.on)
        for value, case in con.cases.items():
            self.offset = start
            shown = value if value < _SMALL else f"0x{value:x}"
            yield self._condition(depth, path, f"if {on} = {shown}")
            yield from self._one(case, path, name, doc, depth + 1)
        self.offset = None

    def _condition(self, depth: int, path: str, words: str) -> Row:
        return Row(depth, path, words, "", None, self.relative, "", "")

    def _after(self, size: Expression) -> int | None:
        constant = self.offset is not None and isinstance(size, int)
        return self.offset + size if constant else None  # type: ignore[operator]

    def _advance(self, size: Expression | None) -> None:
        self.offset = self._after(size) if size is not None else None


def _meanings(con: Scalar) -> str:
    few = 1 < len(con.meanings) <= _MOST_MEANINGS and set(con.meanings.values()) != {"no", "yes"}
    return ", ".join(f"{value} {meaning}" for value, meaning in con.meanings.items()) if few else ""
