"""The tree: what every byte of a file is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from formats.spans import RowShape
from inspector.source import Source
from inspector.span import Span, gaps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Kind(StrEnum):
    """What a node stands for."""

    RECORD = "record"
    FIELD = "field"
    SERIES = "series"
    TABLE = "table"
    PAYLOAD = "payload"
    GAP = "gap"


class Absent(Enum):
    """Why a node has no value."""

    NOT_READ = "not read"
    NOT_APPLICABLE = "not applicable"


class Rows:
    """The rows of a table, read once when first asked for.

    Attributes:
        span: the bytes they occupy.
        fields: names and numpy codes of a row.
        ragged: whether the rows could have been of unequal length.
    """

    def __init__(self, source: Source, span: Span, shape: RowShape) -> None:
        self._source = source
        self._shape = shape
        self.span = span
        self.fields = shape.fields
        self.ragged = shape.ragged

    def __len__(self) -> int:
        """Rows."""
        return self._shape.count

    @cached_property
    def table(self) -> NDArray[np.void]:
        """All rows as a structured array, shape `(n,)`; fewer if the file shrank meanwhile."""
        import numpy as np

        dtype = np.dtype(list(self.fields))
        data = (
            self._shape.heads
            if self._shape.starts is not None
            else self._source.read_at(self.span.start, len(self.span))
        )
        return np.frombuffer(data[: len(data) - len(data) % dtype.itemsize], dtype)

    def first(self, n: int) -> NDArray[np.void]:
        """The first `n` rows, without reading the others."""
        import numpy as np

        if "table" in self.__dict__ or self._shape.starts is not None:
            return self.table[:n]
        dtype = np.dtype(list(self.fields))
        data = self._source.read_at(self.span.start, min(n, len(self)) * dtype.itemsize)
        return np.frombuffer(data[: len(data) - len(data) % dtype.itemsize], dtype)

    def last(self, n: int) -> NDArray[np.void]:
        """The last `n` rows, without reading the others."""
        import numpy as np

        if "table" in self.__dict__ or self._shape.starts is not None:
            return self.table[-n:] if n else self.table[:0]
        dtype = np.dtype(list(self.fields))
        n = min(n, len(self))
        data = self._source.read_at(self.span.stop - n * dtype.itemsize, n * dtype.itemsize)
        return np.frombuffer(data[: len(data) - len(data) % dtype.itemsize], dtype)

    def column(self, name: str) -> NDArray[np.int64]:
        """One field of all rows as int64, shape `(n,)`."""
        import numpy as np

        return self.table[name].astype(np.int64)

    def items(self) -> NDArray[np.int64]:
        """The variable parts of all rows one after another (sequence ids), shape `(total,)`."""
        import numpy as np

        if self._shape.starts is not None:
            return np.frombuffer(self._shape.items, "<i4").astype(np.int64)
        names = [name for name, _ in self.fields if "[" in name]
        if not names:
            return np.zeros(0, np.int64)
        return np.stack([self.column(name) for name in names], axis=1).reshape(-1)

    def behind(self, size: int) -> bytes:
        """Bytes that follow the rows, as those of a row that could not be read to its end."""
        return self._source.read_at(self.span.stop, size)

    def row_span(self, index: int) -> Span:
        """The bytes of one row."""
        if (starts := self._shape.starts) is not None:
            last = index + 1 == len(starts)
            return Span(starts[index], self.span.stop if last else starts[index + 1])
        stride = len(self.span) // max(1, len(self))
        return Span(self.span.start + index * stride, self.span.start + (index + 1) * stride)

    def field_span(self, index: int, name: str) -> Span:
        """The bytes of one field of one row."""
        start = self.row_span(index).start
        for field_name, code in self.fields:
            size = int(code[-1])
            if field_name == name:
                return Span(start, start + size)
            start += size
        raise KeyError(name)


Value = int | float | str | Rows | Absent


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a file: its bytes, its value, and what a declaration says about it.

    Attributes:
        name: the member's name, or `[i]` for an item of a series.
        kind: what it stands for.
        span: its bytes.
        value: a number or a text for a field, Rows for a table, Absent otherwise.
        meaning: what the value stands for (`F16` for type 1); never replaces it.
        doc: what the declaration says.
        role: the part of a state it is (`attention`, `recurrent`, …), or `blob`.
        facts: what the declaration fixes about that part.
        children: in file order.
    """

    name: str
    kind: Kind
    span: Span
    value: Value = Absent.NOT_APPLICABLE
    meaning: str | None = None
    doc: str = ""
    role: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    children: tuple[Node, ...] = ()

    def get(self, name: str) -> Node | None:
        """The child of that name."""
        for child in self.children:
            if child.name == name:
                return child
        return None

    def number(self, name: str, default: int = 0) -> int:
        """The value of the child field of that name."""
        child = self.get(name)
        return child.value if child is not None and isinstance(child.value, int) else default

    def rows(self, name: str) -> Rows | None:
        """The rows of the child table of that name."""
        child = self.get(name)
        return child.value if child is not None and isinstance(child.value, Rows) else None


def join(path: str, name: str) -> str:
    """The path of the part `name` of `path`."""
    return name if not path else path + name if name.startswith("[") else f"{path}.{name}"


def walk(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every node with its path, in file order, parents first. The root's path is empty."""
    yield path, node
    for child in node.children:
        yield from walk(child, join(path, child.name))


def leaves(node: Node) -> Iterator[Node]:
    """The nodes that own bytes themselves, in file order."""
    if node.children:
        for child in node.children:
            yield from leaves(child)
    else:
        yield node


_LONGEST_INDEX = 20


def find(root: Node, path: str) -> Node | None:
    """The node at `path`; rows of tables have paths too: `cells[12]`, `cells[12].pos`."""
    best: tuple[str, Node] | None = None
    for at, node in walk(root):
        if at == path:
            return node
        if isinstance(node.value, Rows) and path.startswith(at + "["):
            best = at, node
    if best is None or not isinstance(best[1].value, Rows):
        return None
    rows, (index, _, name) = best[1].value, path[len(best[0]) + 1 :].partition("]")
    if not (index.isascii() and index.isdigit() and len(index) < _LONGEST_INDEX):
        return None
    if int(index) >= len(rows):
        return None
    found = row(rows, int(index))
    return found.get(name.lstrip(".")) if name else found


def row(rows: Rows, index: int) -> Node:
    """One row of a table; without fields if the file shrank meanwhile."""
    span, fields = rows.row_span(index), []
    if index < len(rows.table):
        for label, _ in rows.fields:
            value = rows.table[index][label].item()
            fields.append(Node(label, Kind.FIELD, rows.field_span(index, label), value))
    if fields and fields[-1].span.stop < span.stop:  # of a row of unequal length
        rest = Span(fields[-1].span.stop, span.stop)
        fields.append(Node("items", Kind.PAYLOAD, rest, Absent.NOT_READ))
    return Node(f"[{index}]", Kind.RECORD, span, children=tuple(fields))


def row_at(rows: Rows, offset: int) -> int:
    """The index of the row that holds a byte."""
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rows.row_span(middle).start <= offset else (low, middle)
    return low


def covering(root: Node, whole: Span) -> Node:
    """The tree of a state inside a container, with the container's bytes around it."""
    around = [Node("gap", Kind.GAP, gap, Absent.NOT_READ) for gap in gaps([root.span], whole)]
    children = sorted((*root.children, *around), key=lambda node: node.span)
    return replace(root, span=whole, children=tuple(children)) if around else root
