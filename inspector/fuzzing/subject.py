"""A file to be mutated: its bytes, its tree, and what lies beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from inspector.identify import Identification, identify
from inspector.node import Kind, Node, Rows, join
from inspector.source import Source


class Held(Source):
    """Bytes in memory as a source."""

    def __init__(self, data: bytes, name: str = "") -> None:
        super().__init__(-1, name, len(data))
        self._data = data

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`."""
        return self._data[offset : offset + size]


class NoSuchPlace(Exception):
    """A mutation that does not apply: no such mutator, no such path. The message says which."""


@dataclass(frozen=True)
class Subject:
    """Bytes, what they are, and the companions beside them by what their names add."""

    data: bytes
    companions: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def identification(self) -> Identification:
        """What it is."""
        return identify(Held(self.data))

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Every node by its path, in file order; those of blobs too."""
        root = self.identification.root
        return dict(_walk(root, "")) if root is not None else {}

    @property
    def layout(self) -> str:
        """The id of its layout; empty if unknown."""
        reading = self.identification.reading
        return reading.layout.id if reading is not None else ""

    def node(self, path: str) -> Node:
        """The node at a path.

        Raises:
            NoSuchPlace: if there is none.
        """
        if path not in self.nodes:
            raise NoSuchPlace(f"no {path!r} in it")
        return self.nodes[path]

    def number(self, path: str, default: int = 0) -> int:
        """The value of a field."""
        found = self.nodes.get(path)
        return found.value if found is not None and isinstance(found.value, int) else default

    def rows(self, path: str) -> Rows:
        """The rows of a table.

        Raises:
            NoSuchPlace: if there is none.
        """
        value = self.node(path).value
        if not isinstance(value, Rows):
            raise NoSuchPlace(f"{path!r} is no table")
        return value

    def fields(self) -> Iterator[tuple[str, Node]]:
        """The fields that hold a number."""
        for path, node in self.nodes.items():
            if node.kind is Kind.FIELD and isinstance(node.value, int):
                yield path, node

    def tables(self, name: str) -> Iterator[str]:
        """The paths of the tables of that name that have rows."""
        for path, node in self.nodes.items():
            if node.name == name and isinstance(node.value, Rows) and len(node.value):
                yield path


def _walk(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    if path:
        yield path, node
    for child in node.children:
        yield from _walk(child, join(path, child.name))


Edit = tuple[int, int, bytes]
"""Bytes [start, stop) and what takes their place."""


def edited(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The data with those bytes replaced; edits do not overlap."""
    out, at = bytearray(), 0
    for start, stop, new in sorted(edits, key=lambda edit: edit[:2]):
        out += data[at:start] + new
        at = max(at, stop)
    return bytes(out + data[at:])


def packed(node: Node, value: int) -> Edit:
    """The edit that gives a field another number; it wraps around as the field does."""
    size = len(node.span)
    new = (value % (1 << 8 * size)).to_bytes(size, "little")
    return node.span.start, node.span.stop, new
