"""A declaration as plain types and fields, for languages that describe formats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from construct.expr import BinExpr, Path

from formats.describe import in_words
from formats.layout import Layout
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
)

_WORD = re.compile(r"\['(\w+)'\]")
_NO_WORD = re.compile(r"[^a-z0-9_]")

AHEAD = {1: "u1", 4: "u4", 8: "u8"}
"""Bytes that a condition looks at -> type."""


@dataclass(frozen=True, slots=True)
class Look:
    """A condition on the next bytes.

    Attributes:
        name: of what is looked at.
        size: how many: those of one number, of which the type follows.
        holds: what must hold for the number, `{}`.
        first: what must hold before it is looked at; empty for nothing.
        room: bytes that must be left, if more than those.
    """

    name: str
    size: int
    holds: str
    first: str = ""
    room: int = 0


_LOOKS = {
    '"SCKP" comes next': Look("sckp_ahead", 4, "{} == 0x504b4353"),
    "PAG1 comes next": Look("pag1_ahead", 4, "{} == 0x50414731"),
    "a row size comes next": Look(
        "row_size_ahead", 8, "{0} > 256 and {0} % 4 == 0 and {0} < 0x100000000"
    ),
    "_dsv4_follows": Look("dsv4_ahead", 4, "{} == attn.n_layer", room=16),
    "_is_packed": Look("marker_ahead", 4, "{} == 0xffffffff", "n_token_count > 0"),
}
"""What declarations say with functions, in the words of the exports."""
_FORMULAS = {"padding": "(32 - _io.pos % 32) % 32"}
_SWITCHED = "_{}"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a type.

    Attributes:
        name: its id.
        type: `u4`, `s8`, `f4`, `str`, `bytes`, or the name of a type; with `be` if big-endian.
        doc: what the declaration says.
        size: bytes as a formula; `eos` for all that is left; empty if the type says it.
        count: items as a formula; `eos` for as many as there are; `alike` for as many as begin
            with the same number; empty for a single one.
        conditions: formulas and looks that must hold for it to be there.
        remark: what the export cannot say.
    """

    name: str
    type: str
    doc: str = ""
    size: str = ""
    count: str = ""
    conditions: tuple[str | Look, ...] = ()
    remark: str = ""


@dataclass(slots=True)
class Type:
    """A type: its fields in file order."""

    name: str
    doc: str = ""
    fields: list[Field] = field(default_factory=list)


def types_of(layout: Layout) -> list[Type]:
    """The types of a layout, the whole file first; every type is used in one place only."""
    walk = _Walk()
    walk.record(layout.record, "file", layout.title)
    return walk.types


class _Walk:
    def __init__(self) -> None:
        self.types: list[Type] = []

    def record(self, con: Record, name: str, doc: str) -> Type:
        type_ = Type(name, doc)
        self.types.append(type_)
        self._members(con.members, type_, ())
        return type_

    def _members(
        self, members: tuple[Any, ...], type_: Type, conditions: tuple[str | Look, ...]
    ) -> None:
        for m in members:
            if isinstance(m, Member):
                type_.fields += self._one(m.con, identifier(m.name), m.doc, type_.name, conditions)
            else:
                holds, remark = _condition(m.condition, m.says)
                inner = Type(type_.name)
                self._members(m.members, inner, (*conditions, *holds))
                type_.fields += [_remarked(one, remark) for one in inner.fields]

    def _one(
        self, con: Span, name: str, doc: str, at: str, conditions: tuple[str | Look, ...]
    ) -> Iterator[Field]:
        path = f"{at}_{name}"
        match con:
            case Scalar():
                yield Field(name, scalar(con), doc, conditions=conditions)
            case Text():
                size, remark = formula(con.size)
                yield Field(name, "str", doc, size or "eos", "", conditions, remark)
            case Record():
                yield Field(name, self.record(con, path, doc).name, doc, conditions=conditions)
            case Series() | Table():
                count, remark = formula(con.count)
                item = con.row if isinstance(con, Table) else con.item
                inner = next(self._one(item, f"{name}_item", doc, at, ()))
                yield Field(name, inner.type, doc, inner.size, count or "eos", conditions, remark)
            case Ragged():
                count, remark = formula(con.count)
                row = self.record(con.head, f"{path}_item", doc)
                row.fields.append(
                    Field(identifier(con.items), scalar(con.item), "", "", identifier(con.counter))
                )
                yield Field(name, row.name, doc, "", count or "eos", conditions, remark)
            case Run():
                inner = next(self._one(con.item, f"{name}_item", doc, at, ()))
                remark = "no count is stored: taken to be items as long as the type is the same"
                yield Field(name, inner.type, doc, inner.size, "alike", conditions, remark)
            case Strings():
                count, remark = formula(con.count)
                row = Type(f"{path}_item", "one string")
                row.fields = [Field("size", "u8", "bytes"), Field("text", "str", "", "size")]
                self.types.append(row)
                yield Field(name, row.name, doc, "", count or "eos", conditions, remark)
            case Rest():
                yield Field(name, "bytes", doc, "eos", "", conditions)
            case Payload():
                size, remark = formula(con.size)
                yield Field(name, "bytes", doc, size or "eos", "", conditions, remark)
            case Nested():
                size, remark = formula(con.size)
                inner = next(self._one(con.body, name, doc, at, ()))
                yield Field(name, inner.type, doc, size or "eos", "", conditions, remark)
            case Choose():
                yield from self._choose(con, name, doc, at, conditions)
            case Switch():
                on, remark = formula(con.on)
                for value, case in con.cases.items():
                    own = name + _SWITCHED.format(value)
                    holds = (*conditions, f"{on} == {value}") if on else conditions
                    for one in self._one(case, own, doc, at, holds):
                        yield _remarked(one, remark)

    def _choose(
        self, con: Choose, name: str, doc: str, at: str, conditions: tuple[str | Look, ...]
    ) -> Iterator[Field]:
        holds, remark = _condition(con.condition, con.says)
        if not holds:
            yield from (
                _remarked(one, remark) for one in self._one(con.then, name, doc, at, conditions)
            )
            return
        yield from self._one(con.then, name, doc, at, (*conditions, *holds))
        other = tuple(negated(one) for one in holds)
        yield from self._one(con.otherwise, f"{name}_otherwise", doc, at, (*conditions, *other))


def _remarked(one: Field, remark: str) -> Field:
    remarks = "; ".join(part for part in (one.remark, remark) if part)
    return Field(one.name, one.type, one.doc, one.size, one.count, one.conditions, remarks)


def negated(condition: str | Look) -> str | Look:
    """The condition of what is there otherwise."""
    if isinstance(condition, Look):
        first = f"not ({condition.first}) or " if condition.first else ""
        return Look(condition.name, condition.size, f"{first}not ({condition.holds})")
    return f"not ({condition})"


def _condition(condition: Any, says: str) -> tuple[tuple[str | Look, ...], str]:
    """A condition; or what it says, if that cannot be written down."""
    if isinstance(condition, Ahead):
        look = _LOOKS.get(condition.says)
        return ((look,), "") if look else ((), f"only if {condition.says}")
    if isinstance(condition, BinExpr | Path):
        return (_written(condition),), ""
    look = _LOOKS.get(getattr(condition, "__name__", ""))
    return ((look,), "") if look else ((), f"only if {says or in_words(condition)}")


def formula(expression: Expression) -> tuple[str, str]:
    """A number as a formula; or an empty one, and in words what the number is."""
    if isinstance(expression, int):
        return str(expression), ""
    if isinstance(expression, BinExpr | Path):
        return _written(expression), ""
    known = _FORMULAS.get(getattr(expression, "__name__", ""))
    return (known, "") if known else ("", in_words(expression) or "only the bytes tell")


def _written(expression: Any) -> str:
    """In the words that the exports have in common: `_parent`, `and`, `/` for whole numbers."""
    if isinstance(expression, BinExpr):
        sides = [_written(side) for side in (expression.lhs, expression.rhs)]
        sign = {"floordiv": "/", "add": "+", "sub": "-", "mul": "*", "mod": "%"}
        sign |= {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
        return f"({sides[0]} {sign[expression.op.__name__]} {sides[1]})"
    if isinstance(expression, Path):
        names = _WORD.findall(str(expression))
        return ".".join("_parent" if name == "_" else identifier(name) for name in names)
    return str(expression)


def scalar(con: Scalar) -> str:
    """A type like `u4`, `s8be` and `f4`."""
    kind, big = con.type_name[0].replace("i", "s"), con.type_name.endswith("be")
    return f"{kind}{con.size}" + ("be" if big else "")


def identifier(name: str) -> str:
    """A name that all these languages take."""
    found = _NO_WORD.sub("_", name.lower())
    return found if found[:1].isalpha() else f"f_{found}"
