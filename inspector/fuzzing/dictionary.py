"""A dictionary for fuzzers: the magics, and the values of fields that mean something."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from formats.layout import Layout
from formats.spans import (
    Choose,
    Member,
    Nested,
    Ragged,
    Record,
    Run,
    Scalar,
    Series,
    Span,
    Switch,
    Table,
    When,
)

_NO_NAME = re.compile(r"\W")
_SMALLEST = 4
"""Bytes of a word that is worth an entry."""


def dictionary(layouts: Iterable[Layout]) -> str:
    """The text of a dictionary, as AFL++ and libFuzzer read it.

    Args:
        layouts: whose words it holds.
    """
    entries: dict[bytes, str] = {}
    for layout in layouts:
        if layout.magic:
            entries.setdefault(layout.magic, f"magic_{layout.format}")
            if layout.version is not None:
                word = layout.magic + layout.version.to_bytes(4, "little")
                entries.setdefault(word, f"head_{layout.format}_{layout.version}")
        for con, name in _scalars(layout.record, "", set()):
            for value in con.meanings:
                if con.size >= _SMALLEST:
                    entries.setdefault(con.layout.pack(value), f"{name}_{abs(value):x}")
    used: set[str] = set()
    lines = []
    for data, name in entries.items():
        own = _NO_NAME.sub("_", name)
        while own in used:
            own += "_"
        used.add(own)
        escaped = "".join(f"\\x{byte:02x}" for byte in data)
        lines.append(f'{own}="{escaped}"\n')
    return "".join(lines)


def _scalars(con: Span, name: str, seen: set[int]) -> Iterator[tuple[Scalar, str]]:
    if id(con) in seen:
        return
    seen.add(id(con))
    match con:
        case Scalar():
            yield con, name
        case Record():
            yield from _members(con.members, seen)
        case Series() | Run():
            yield from _scalars(con.item, name, seen)
        case Table():
            yield from _scalars(con.row, name, seen)
        case Ragged():
            yield from _scalars(con.head, name, seen)
        case Nested():
            yield from _scalars(con.body, name, seen)
        case Choose():
            yield from _scalars(con.then, name, seen)
            yield from _scalars(con.otherwise, name, seen)
        case Switch():
            for case in con.cases.values():
                yield from _scalars(case, name, seen)


def _members(members: tuple[Member | When, ...], seen: set[int]) -> Iterator[tuple[Scalar, str]]:
    for m in members:
        if isinstance(m, When):
            yield from _members(m.members, seen)
        else:
            yield from _scalars(m.con, m.name, seen)
