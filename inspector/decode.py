"""(source, layout) -> Decoding: one reading of one span of bytes."""

from __future__ import annotations

from dataclasses import dataclass

from construct import Container

from formats.layout import Layout
from formats.spans import Halted, Stop
from inspector.node import Node
from inspector.source import Cursor, Source
from inspector.span import Span
from inspector.trace import Ends, Memory, NoTrace, TreeTrace


@dataclass(frozen=True, slots=True)
class Decoding:
    """One reading of some bytes.

    Attributes:
        layout: the declaration that was applied.
        root: the tree; its leaves tile `root.span`.
        stops: where parsing could not go on: at most one that ended it, and those inside frames.
        end: the offset that parsing reached.
        ended: whether the declaration was read to its own end.
    """

    layout: Layout
    root: Node
    stops: tuple[Stop, ...]
    end: int
    ended: bool

    @property
    def complete(self) -> bool:
        """Whether the declaration explains every byte."""
        return self.ended and not self.stops and self.end == self.root.span.stop


def decode(source: Source, layout: Layout, span: Span, memory: Memory | None = None) -> Decoding:
    """Read `span` of `source` as `layout`. Never raises for what the bytes are.

    Args:
        source: the open file.
        layout: what to read it as.
        span: which bytes; nothing outside is looked at.
        memory: sections of this source that other layouts have read; more are added.

    Returns:
        The tree of what was read, with the stop if it ended early.
    """
    trace = TreeTrace(source, {} if memory is None else memory)
    cursor = Cursor(source, span, layout.window)
    ended = True
    try:
        layout.record.read(cursor, Container(_cursor=cursor), trace, "", "")
        end = cursor.offset
    except Halted as halted:
        trace.stops.append(halted.stop)
        end, ended = cursor.offset, False
    return Decoding(layout, trace.finish(end, span), tuple(trace.stops), end, ended)


def completes(source: Source, layout: Layout, span: Span, ends: Ends) -> bool:
    """Whether a decoding of `span` as `layout` would be complete; no tree is built to find out.

    Args:
        source: the open file.
        layout: what to read it as.
        span: which bytes.
        ends: of sections of this source that other layouts have read; more are added.
    """
    trace, cursor = NoTrace(ends), Cursor(source, span, layout.window)
    try:
        layout.record.read(cursor, Container(_cursor=cursor), trace, "", "")
    except Halted:
        return False
    return not trace.stopped and cursor.offset == span.stop
