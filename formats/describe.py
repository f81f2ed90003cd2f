"""A declaration as a list of documented rows: what `slotscope layouts ID` prints."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from construct.expr import BinExpr, Path

from formats.spans import (
    Ahead,
    Choose,
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
    operator.mul: "\N{MULTIPLICATION SIGN}",
    operator.floordiv: "/",
    operator.mod: "mod",
    operator.eq: "=",
    operator.ne: "\N{NOT EQUAL TO}",
    operator.gt: ">",
    operator.ge: "\N{GREATER-THAN OR EQUAL TO}",
    operator.lt: "<",
    operator.le: "\N{LESS-THAN OR EQUAL TO}",
}
_SUMS = (operator.add, operator.sub)
_MOST_MEANINGS = 5
_MAGIC = 1 << 16
"""Values from here on are written in hex."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a layout's documentation: a member, or a condition that several of them share.

    Attributes:
        depth: how many records, lists and conditions it is inside.
        path: as in the tree, with `[]` for any item of a list; empty for a condition.
        name: the member's own; empty for a condition.
        type: a scalar's type, or record, list, table, frame, bytes, text, strings.
        offset: where it begins, in bytes from the start of the file, or of the innermost item or
            frame if `relative`; None if that depends on what was read before.
        relative: whether the offset counts from the innermost item or frame.
        size: bytes, or items of a list or table, in words; empty if only the contents tell.
        doc: what the declaration says.
        condition: in words, what must hold for it, or for all deeper rows behind it, to be there.
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
    condition: str = ""
    meanings: str = ""


def describe(record: Record) -> Iterator[Row]:
    """The rows of a layout, in file order.

    Args:
        record: its declaration.
    """
    return _Walk().members(record.members, "", 0)


def in_words(expression: Expression) -> str:
    """A size, a count or a condition as people write it.

    A function says it in the first line of its docstring; without one there are no words.
    """
    if isinstance(expression, int):
        return f"{expression:,}"
    if isinstance(expression, Ahead):
        return expression.says
    if isinstance(expression, BinExpr | Path):
        return _formula(expression)
    line = (expression.__doc__ or "").partition("\n")[0].rstrip(".")
    return line[:1].lower() + line[1:]


def _formula(expression: Any) -> str:
    if isinstance(expression, Path):
        names = str(expression).removeprefix("this").replace("['", ".").replace("']", "")
        return names.replace("._", "").removeprefix(".")
    if not isinstance(expression, BinExpr):
        return f"{expression:,}" if isinstance(expression, int) else str(expression)
    sides = []
    for side in (expression.lhs, expression.rhs):
        loose = isinstance(side, BinExpr) and side.op in _SUMS and expression.op not in _SUMS
        sides.append(f"({_formula(side)})" if loose else _formula(side))
    return f"{sides[0]} {_SIGNS[expression.op]} {sides[1]}"


class _Walk:
    """One pass over a declaration; knows the offset as long as it is a number."""

    def __init__(self) -> None:
        self.offset: int | None = 0
        self.relative = False

    def members(self, members: tuple[Any, ...], path: str, depth: int) -> Iterator[Row]:
        """The rows of the members of a record."""
        for m in members:
            if isinstance(m, Member):
                yield from self._one(m.con, path, m.name, m.doc, depth)
            elif isinstance(m, When):
                inside = self.members(m.members, path, depth + 1)
                yield from self._under(_says(m), inside, depth)
                self.offset = None

    def _under(self, condition: str, inside: Iterator[Row], depth: int) -> Iterator[Row]:
        """Rows that are there under a condition: a single one says so itself."""
        relative, rows = self.relative, list(inside)
        if len(rows) == 1 and not rows[0].condition:
            yield replace(rows[0], depth=depth, condition=condition)
        else:
            yield Row(depth, "", "", "", None, relative, "", "", condition)
            yield from rows

    def _one(self, con: Span, path: str, name: str, doc: str, depth: int) -> Iterator[Row]:
        own = f"{path}.{name}" if path and name else path + name
        row = Row(depth, own, name, "", self.offset, self.relative, "", doc)
        match con:
            case Scalar():
                size, meanings = str(con.size), _meanings(con)
                yield replace(row, type=con.type_name, size=size, meanings=meanings)
                self._advance(con.size)
            case Text():
                yield replace(row, type="text", size=in_words(con.size))
                self._advance(con.size)
            case Record():
                yield replace(row, type="record")
                yield from self.members(con.members, own, depth + 1)
            case Table():
                yield from self._table(con, con.row, row)
                constant = isinstance(con.count, int)
                self._advance(con.smallest if constant else None)
            case Ragged():
                yield from self._table(con, con.head, row)
                kind, at = f"{con.item.type_name} list", f"{own}[].{con.items}"
                size, doc = con.counter, "items of the row"
                yield Row(depth + 1, at, con.items, kind, con.head.smallest, True, size, doc)
                self._advance(None)
            case Strings():
                yield replace(row, type="strings", size=in_words(con.count))
                self._advance(None)
            case Payload():
                size = "to the end" if isinstance(con, Rest) else in_words(con.size)
                yield replace(row, type="bytes", size=size)
                self._advance(None if isinstance(con, Rest) else con.size)
            case Series() | Run():
                count = in_words(con.count) if isinstance(con, Series) else ""
                yield replace(row, type="list", size=count)
                yield from self._inside(con.item, f"{own}[]", depth + 1)
                self._advance(None)
            case Nested():
                yield replace(row, type="frame", size=in_words(con.size))
                start = self.offset
                yield from self._inside(con.body, own, depth + 1)
                self.offset = start
                self._advance(con.size)
            case Choose():
                start = self.offset
                yield Row(depth, "", "", "", None, self.relative, "", "", _says(con))
                yield from self._one(con.then, path, name, doc, depth + 1)
                self.offset = start
                yield Row(depth, "", "", "", None, self.relative, "", "", "else")
                yield from self._one(con.otherwise, path, name, doc, depth + 1)
                self._advance(None)
            case Switch():
                start, on = self.offset, in_words(con.on)
                for value, case in con.cases.items():
                    self.offset = start
                    condition = f"{on} = {value if value < _MAGIC else hex(value)}"
                    inside = self._one(case, path, name, doc, depth + 1)
                    yield from self._under(condition, inside, depth)
                self._advance(None)

    def _table(self, con: Table | Ragged, item: Span, row: Row) -> Iterator[Row]:
        if isinstance(item, Scalar):
            yield replace(row, type=f"{item.type_name} list", size=in_words(con.count))
            return
        yield replace(row, type="table", size=in_words(con.count))
        yield from self._inside(item, f"{row.path}[]", row.depth + 1)

    def _inside(self, con: Span, path: str, depth: int) -> Iterator[Row]:
        """What is in an item or a frame: its offsets count from its own start."""
        outer, self.offset, self.relative = self.relative, 0, True
        if isinstance(con, Record):
            yield from self.members(con.members, path, depth)
        else:
            yield from self._one(con, path, "", "", depth)
        self.relative = outer

    def _advance(self, size: Expression | None) -> None:
        constant = self.offset is not None and isinstance(size, int)
        self.offset = self.offset + size if constant else None  # type: ignore[operator]


def _says(conditional: When | Choose) -> str:
    return conditional.says or in_words(conditional.condition)


def _meanings(con: Scalar) -> str:
    few = 1 < len(con.meanings) <= _MOST_MEANINGS and set(con.meanings.values()) != {"no", "yes"}
    return ", ".join(f"{value} {meaning}" for value, meaning in con.meanings.items()) if few else ""
