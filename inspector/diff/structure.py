"""What is different about two files without a look at their numbers: bytes, tokens, fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from inspector.diff.numbers import Progress
from inspector.node import Absent, Node, Rows, join
from inspector.source import Source
from inspector.span import Span
from inspector.tokens import Tokens

_PIECE = 1 << 20
"""Bytes that are compared at once."""


def first_difference(
    a: Source, b: Source, one: Span, two: Span, progress: Progress = lambda n: None
) -> int | None:
    """The first place at which bytes differ, from the start of either span.

    Args:
        a: the first file.
        b: the second.
        one: bytes of the first.
        two: bytes of the second.
        progress: is told how many bytes of the first are done with.

    Returns:
        The place; None if they are equal as far as the shorter one goes.
    """
    common = min(len(one), len(two))
    for at in range(0, common, _PIECE):
        n = min(_PIECE, common - at)
        own, other = a.read_at(one.start + at, n), b.read_at(two.start + at, n)
        progress(n if own == other else common - at)
        if own != other:
            n = min(len(own), len(other))
            pieces = (np.frombuffer(data, np.uint8, n) for data in (own, other))
            places = np.flatnonzero(np.not_equal(*pieces))
            return at + (int(places[0]) if len(places) else n)
    return None


def owner(root: Node | None, offset: int) -> str:
    """The path of what holds the byte at `offset`; empty if nothing is known of it."""
    path, node = "", root
    while node is not None:
        inside = next((c for c in node.children if c.span.start <= offset < c.span.stop), None)
        if inside is None:
            break
        path, node = join(path, inside.name), inside
    if node is not None and isinstance(node.value, Rows) and len(node.value):
        rows = node.value
        index = _row(rows, offset)
        names = [name for name, _ in rows.fields]
        held = (name for name in names if offset in _bytes_of(rows, index, name))
        field = next(held, "") if not rows.ragged else ""
        return f"{path}[{index}]" + (f".{field}" if field and field != "value" else "")
    return path


def _row(rows: Rows, offset: int) -> int:
    low, high = 0, len(rows) - 1
    while low < high:
        middle = (low + high) // 2
        if rows.row_span(middle).stop <= offset:
            low = middle + 1
        else:
            high = middle
    return low


def _bytes_of(rows: Rows, index: int, name: str) -> range:
    span = rows.field_span(index, name)
    return range(span.start, span.stop)


@dataclass(frozen=True)
class TokensDiff:
    """The token lists of two files.

    Attributes:
        a: of the first.
        b: of the second.
        common: tokens that both begin with.
    """

    a: Tokens
    b: Tokens
    common: int

    @property
    def whole(self) -> bool:
        """Whether both lists were read to their end."""
        return all(len(side.ids) == side.count for side in (self.a, self.b))

    @property
    def equal(self) -> bool:
        """Whether both stand for the same tokens."""
        return self.whole and self.common == self.a.count == self.b.count

    @property
    def divergent(self) -> bool:
        """Whether the token behind the common ones is there in both, and differs."""
        return self.common < min(len(self.a.ids), len(self.b.ids))


def tokens_diff(a: Tokens | None, b: Tokens | None) -> TokensDiff | None:
    """How two token lists differ; None if one of the files has none."""
    if a is None or b is None or "none" in (a.packing, b.packing):
        return None
    n = min(len(a.ids), len(b.ids))
    differ = np.flatnonzero(a.ids[:n] != b.ids[:n])
    return TokensDiff(a, b, int(differ[0]) if len(differ) else n)


@dataclass(frozen=True)
class FieldDiff:
    """A part that differs, or that only one of the files has.

    Attributes:
        path: of it.
        a: in the first file; None if it is not there.
        b: in the second.
    """

    path: str
    a: Node | None
    b: Node | None

    @property
    def pattern(self) -> str:
        """Its path without numbers: what is alike in all layers is equal here."""
        return re.sub(r"\[\d+\]", "[]", self.path)


def field_diffs(a: Node | None, b: Node | None, path: str = "") -> Iterator[FieldDiff]:
    """The fields of two trees that differ, matched by path, in file order.

    Tables and bulk are no fields, and records of checkpoint lists are matched otherwise. Of what
    only one of the trees has, or has in another form, only the outermost part is given.
    """
    if a is None or b is None:
        return
    if _value(a) != _value(b) or bool(a.children) != bool(b.children):
        yield FieldDiff(path, a, b)
        return
    if "checkpoints" in (a.role, b.role):
        a, b = (_without_records(node) for node in (a, b))
    others = {child.name: child for child in b.children}
    for child in a.children:
        other = others.pop(child.name, None)
        at = join(path, child.name)
        if other is None:
            yield FieldDiff(at, child, None)
        else:
            yield from field_diffs(child, other, at)
    for child in others.values():
        yield FieldDiff(join(path, child.name), None, child)


def _value(node: Node) -> int | float | str | None:
    return None if isinstance(node.value, Rows | Absent) else node.value


def _without_records(node: Node) -> Node:
    kept = tuple(child for child in node.children if child.name != "records")
    return replace(node, children=kept)
