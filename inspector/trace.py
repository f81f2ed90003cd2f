"""Builds the tree while a layout is parsed; what was read stays when parsing stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from construct import Container

from formats.spans import (
    Cursor,
    Halted,
    Payload,
    Ragged,
    Record,
    RowShape,
    Scalar,
    Stop,
    StopReason,
    Table,
    Text,
)
from formats.spans import Span as Declared
from inspector.node import Absent, Kind, Node, Rows, join
from inspector.source import Source
from inspector.span import Span


@dataclass(slots=True)
class _Open:
    name: str
    kind: Kind
    start: int
    doc: str
    role: str
    facts: Mapping[str, Any]
    children: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Known:
    """A section that was read.

    Attributes:
        node: its tree.
        values: its values; None if it stopped.
        stop: where it stopped, its path relative to the section; None if it did not.
    """

    node: Node
    values: Container | None
    stop: Stop | None = None


Memory = dict[tuple[int, int, int], Known]
"""Sections that were read, by declaration, start, and wall.

Many layouts begin with the same section; it is read once for all of them.
"""


class TreeTrace:
    """The `Trace` of `formats.spans` that keeps everything as nodes.

    Attributes:
        stops: every stop so far, in file order.
    """

    def __init__(self, source: Source, memory: Memory) -> None:
        self._source = source
        self._memory = memory
        self._open: list[_Open] = [_Open("", Kind.RECORD, 0, "", "", {})]
        self.stops: list[Stop] = []

    def enter(self, name: str, offset: int, doc: str, con: Declared) -> None:
        """Open a record or a series at `offset`."""
        kind = Kind.RECORD if isinstance(con, Record) else Kind.SERIES
        role, facts = (con.role, con.facts) if isinstance(con, Record) else ("", {})
        self._open.append(_Open(name, kind, offset, doc, role, facts))

    def leave(self, offset: int) -> None:
        """Close the innermost open record or series at `offset`."""
        top = self._open.pop()
        node = Node(
            top.name,
            top.kind,
            Span(top.start, offset),
            doc=top.doc,
            role=top.role,
            facts=top.facts,
            children=tuple(top.children),
        )
        self._open[-1].children.append(node)

    def field(
        self, name: str, start: int, stop: int, doc: str, con: Scalar | Text, value: Any
    ) -> None:
        """A scalar or a text of [start, stop)."""
        meaning = con.meanings.get(value) if isinstance(con, Scalar) else None
        self._open[-1].children.append(
            Node(name, Kind.FIELD, Span(start, stop), value, meaning, doc)
        )

    def table(
        self, name: str, start: int, stop: int, doc: str, con: Table | Ragged, rows: RowShape
    ) -> None:
        """An array of rows of [start, stop)."""
        span = Span(start, stop)
        self._open[-1].children.append(
            Node(name, Kind.TABLE, span, Rows(self._source, span, rows), doc=doc)
        )

    def payload(self, name: str, start: int, stop: int, doc: str, con: Payload) -> None:
        """Bytes of [start, stop) that were skipped."""
        self._open[-1].children.append(
            Node(name, Kind.PAYLOAD, Span(start, stop), Absent.NOT_READ, doc=doc, role=con.holds)
        )

    def halted(
        self, name: str, reason: StopReason, offset: int, wanted: int, available: int
    ) -> Halted:
        """The signal to raise for a stop at `offset`, with the path of `name`."""
        return Halted(Stop(reason, self._path(name), offset, wanted, available))

    def walled(self, stop: Stop, depth: int, resume: int) -> None:
        """A stop inside a frame: what is open beyond `depth` ends, up to `resume` is a gap."""
        self.stops.append(stop)
        if len(self._open) == depth:  # the frame's body is no record: nothing of it was opened
            self.gap(stop.offset, resume)
            return
        while len(self._open) > depth + 1:
            self.leave(stop.offset)
        self.gap(stop.offset, resume)
        self.leave(resume)

    def gap(self, start: int, stop: int) -> None:
        """Bytes of [start, stop) that nobody claims."""
        if stop > start:
            self._open[-1].children.append(
                Node("gap", Kind.GAP, Span(start, stop), Absent.NOT_READ)
            )

    def depth(self) -> int:
        """How many records and series are open."""
        return len(self._open)

    def recall(self, name: str, cursor: Cursor, doc: str, con: Record) -> Container | None:
        """The values of `con` if it was read here before; then the cursor stands behind it."""
        if (known := self._memory.get((id(con), cursor.offset, cursor.wall))) is None:
            return None
        self._open[-1].children.append(replace(known.node, name=name, doc=doc))
        cursor.offset = known.node.span.stop
        if known.stop is not None:
            path = join(self._path(name), known.stop.path)
            raise Halted(replace(known.stop, path=path))
        return known.values

    def remember(self, start: int, cursor: Cursor, con: Record, values: Container) -> None:
        """Keep what `con` read from `start` up to the cursor."""
        node = self._open[-1].children[-1]
        self._memory[id(con), start, cursor.wall] = Known(node, values)

    def remember_stop(
        self, start: int, cursor: Cursor, con: Record, stop: Stop, depth: int
    ) -> None:
        """Keep that `con`, opened at `depth`, stopped at the cursor, and what it had read."""
        while len(self._open) > depth:
            self.leave(cursor.offset)
        node = self._open[-1].children[-1]
        path = stop.path.removeprefix(self._path(node.name)).removeprefix(".")
        self._memory[id(con), start, cursor.wall] = Known(node, None, replace(stop, path=path))

    def _path(self, name: str) -> str:
        """The path of what is called `name` here."""
        path = ""
        for part in (*(frame.name for frame in self._open[1:]), name):
            path = join(path, part) if part else path
        return path

    def finish(self, end: int, span: Span) -> Node:
        """Close everything at `end`; what follows in `span` is a gap. Returns the root."""
        while len(self._open) > 1:
            self.leave(end)
        self.gap(end, span.stop)
        children = self._open[0].children
        if len(children) and children[0].kind is Kind.RECORD:  # the layout's own record is the root
            record, rest = children[0], tuple(children[1:])
            return Node(
                "",
                Kind.RECORD,
                span,
                doc=record.doc,
                role=record.role,
                facts=record.facts,
                children=record.children + rest,
            )
        return Node("", Kind.RECORD, span, children=tuple(children))


Ends = dict[tuple[int, int, int], tuple[int, Container | Stop]]
"""Sections that were read: (declaration, start, wall) -> end, and values or where it stopped."""


class NoTrace:
    """The `Trace` that keeps no tree, for readings of which only the end matters.

    Attributes:
        stopped: whether a frame's body stopped early.
    """

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self.stopped = False

    def _ignore(self, *args: Any, **kwargs: Any) -> None:
        """Whatever was read, it is not kept."""

    enter = leave = field = table = payload = _ignore

    def recall(self, name: str, cursor: Cursor, doc: str, con: Record) -> Container | None:
        """The values of `con` if it was read here before; then the cursor stands behind it."""
        if (kept := self._ends.get((id(con), cursor.offset, cursor.wall))) is None:
            return None
        cursor.offset, found = kept
        if isinstance(found, Stop):
            raise Halted(found)
        return found

    def remember(self, start: int, cursor: Cursor, con: Record, values: Container) -> None:
        """Keep where `con`, read from `start`, ends."""
        self._ends[id(con), start, cursor.wall] = cursor.offset, values

    def remember_stop(
        self, start: int, cursor: Cursor, con: Record, stop: Stop, depth: int
    ) -> None:
        """Keep that `con`, read from `start`, stopped."""
        self._ends[id(con), start, cursor.wall] = cursor.offset, stop

    def halted(
        self, name: str, reason: StopReason, offset: int, wanted: int, available: int
    ) -> Halted:
        """The signal to raise for a stop at `offset`, without a path."""
        return Halted(Stop(reason, name, offset, wanted, available))

    def walled(self, stop: Stop, depth: int, resume: int) -> None:
        """A stop inside a frame."""
        self.stopped = True

    def depth(self) -> int:
        """Nothing is open."""
        return 0
