"""When a file can have been written: the build interval that its layout and its contents leave."""

from __future__ import annotations

from dataclasses import dataclass

from formats.ggml_types import IK, TURBOQUANT
from inspector.decode import Decoding
from inspector.node import Kind, Node, walk
from inspector.sections import sections


@dataclass(frozen=True, slots=True)
class Interval:
    """The first and the last build that can have written a file; None at an open end."""

    since: str | None
    until: str | None

    def __str__(self) -> str:
        """In words."""
        if self.since and self.until:
            return f"{self.since} to {self.until}"
        if self.since:
            return f"from {self.since} on"
        return f"up to {self.until}" if self.until else "any build"

    def narrowed(self, since: str | None = None, until: str | None = None) -> Interval:
        """The part of it that lies between two more builds."""
        lower = max((b for b in (self.since, since) if b), key=build_number, default=None)
        upper = min((b for b in (self.until, until) if b), key=build_number, default=None)
        if lower and upper and build_number(lower) > build_number(upper) > 0:
            return self
        return Interval(lower, upper)

    def hull(self, other: Interval) -> Interval:
        """The interval that covers both; open where their builds are not of one program."""
        ends = (self.since, self.until, other.since, other.until)
        if any(end is not None and not build_number(end) for end in ends):
            return self if self == other else Interval(None, None)
        lower = (
            min(self.since, other.since, key=build_number) if self.since and other.since else None
        )
        upper = (
            max(self.until, other.until, key=build_number) if self.until and other.until else None
        )
        return Interval(lower, upper)


def build_number(build: str) -> int:
    """The number of an upstream build (`b5913`); 0 for what is not one."""
    return int(build[1:]) if build[:1] == "b" and build[1:].isdigit() else 0


def interval_of(decoding: Decoding) -> tuple[Interval, str | None]:
    """When and by which program a file can have been written.

    Source: the silent-change registers of the formats; see each layout's origins.
    """
    layout, root = decoding.layout, decoding.root
    interval, writer = Interval(layout.since, layout.until), layout.writer
    writers = {
        t.writer for part in sections(root) for block in part.blocks for t in block.readings[:1]
    }
    if writer in ("llama.cpp", None) and TURBOQUANT in writers:
        return Interval(None, None), TURBOQUANT
    if writer is None and IK in writers:
        writer = IK
    if writer != "llama.cpp":
        return interval, writer
    tokens = root.get("tokens")
    if tokens is not None and tokens.kind is Kind.RECORD:
        interval = interval.narrowed(since="b10388")
    appendix = root.get("appendix")
    if appendix is not None:
        if layout.version is not None and layout.version >= 4:
            interval = interval.narrowed(since="b11435")
        else:
            writer = None
    for _, node in walk(root):
        interval = _by_inner_version(interval, node)
    return interval, writer


def _by_inner_version(interval: Interval, node: Node) -> Interval:
    if node.name == "chunk":
        if node.number("version") == 2:
            return interval.narrowed(since="b10684")
        return interval.narrowed(since="b10388", until="b10815")
    if node.role == "dsv4" and node.name in ("csa", "hca", "lid"):
        if node.number("version") == 1:
            return interval.narrowed(until="b10072")
        return interval.narrowed(since="b10073")
    return interval
