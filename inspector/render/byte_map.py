"""The byte map: a whole file as one picture, to scale; what each part holds stands below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from inspector.node import Kind, Node
from inspector.render.page import QUIET
from inspector.span import Span

WIDEST = 120
GAP, FIELDS = "gap", "fields"
_NARROWEST = 20
_MOST_PARTS = 40
"""Parts that one is divided into."""
_NARROWEST_PART = 8
"""Columns from which on a part is divided."""
_FILL = "░"
_EDGE = "│"
_COLOURS = {
    "attention": "blue",
    "swa": "cyan",
    "indexer": "green",
    "recurrent": "magenta",
    "dsv4": "blue",
    "checkpoints": "yellow",
    GAP: "red",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the map.

    Attributes:
        label: written into it if there is room.
        span: its bytes.
        role: that of its node, `gap` or `fields`.
        within: what it is made of.
    """

    label: str
    span: Span
    role: str
    within: tuple[Part, ...] = ()


class ByteMap:
    """A file as two bars, to scale: its parts, and what each of them is made of.

    Args:
        root: the tree; it has children.
    """

    def __init__(self, root: Node) -> None:
        self._span = root.span
        self._parts = parts_of(root)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as the terminal, but not wider than an eye can follow."""
        width = max(_NARROWEST, min(options.max_width, WIDEST)) - 1
        widths = _shared_out(self._parts, width)
        yield self._ruler(widths, width)
        upper, lower = Text(no_wrap=True), Text(no_wrap=True)
        for part, room in zip(self._parts, widths, strict=True):
            _draw(upper, part, room, style="bold reverse")
            divided = part.within if room >= _NARROWEST_PART else ()
            inner = divided or (Part("", part.span, part.role),)
            for small, columns in zip(inner, _shared_out(inner, room), strict=True):
                _draw(lower, small, columns, style="")
        for line in (upper, lower):
            line.append(_EDGE)
            yield line

    def _ruler(self, widths: Sequence[int], width: int) -> Text:
        """Where the parts begin, as far as there is room; gaps first."""
        end = f"0x{self._span.stop:x}"
        line = list(" " * (width + 1 - len(end)) + end)
        starts = accumulate(widths, initial=0)
        places = [
            (part.role != GAP, at, f"0x{part.span.start:x}")
            for part, at in zip(self._parts, starts, strict=False)
        ]
        for _, at, label in sorted(places):
            around = line[max(0, at - 1) : at + len(label) + 1]
            if "".join(around).isspace() and at + len(label) < width:
                line[at : at + len(label)] = label
        return Text("".join(line), QUIET, no_wrap=True)


def parts_of(root: Node) -> tuple[Part, ...]:
    """What a file is made of, in file order."""
    return tuple(_parts(root.children, split=True))


def _parts(nodes: Iterable[Node], *, split: bool) -> Iterator[Part]:
    """The nodes that have bytes; fields that follow one another are one part."""
    sized = (node for node in nodes if len(node.span))
    for are_fields, group in groupby(sized, key=lambda node: node.kind is Kind.FIELD):
        members = list(group)
        if are_fields:
            label = members[0].name if len(members) == 1 else ""
            yield Part(label, Span(members[0].span.start, members[-1].span.stop), FIELDS)
            continue
        for node in members:
            role = GAP if node.kind is Kind.GAP else node.role
            within = tuple(_within(node, len(node.span) // WIDEST)) if split else ()
            yield Part(node.name, node.span, role, within)


def _within(node: Node, negligible: int) -> Iterator[Part]:
    """What a node is made of, or its only child that is large enough to be seen."""
    large = [node]
    while len(large) == 1 and large[0].children:
        node = large[0]
        large = [child for child in node.children if len(child.span) > negligible]
    if 1 < len(large) <= _MOST_PARTS:
        prefix = node.name if node.kind is Kind.SERIES else ""
        for part in _parts(node.children, split=False):
            yield Part(prefix + part.label, part.span, part.role)


def _shared_out(parts: Sequence[Part], width: int) -> list[int]:
    """Columns for each part, `width` in all: at least one if there is room, but for fields."""
    total = sum(len(part.span) for part in parts)
    found = [
        max(round(len(part.span) * width / total), int(part.role != FIELDS and len(parts) < width))
        for part in parts
    ]
    while excess := sum(found) - width:
        widest = max(range(len(found)), key=found.__getitem__)
        found[widest] -= min(excess, max(1, found[widest] // 2))
    return found


def _draw(line: Text, part: Part, room: int, *, style: str) -> None:
    if not room:
        return
    short = part.label[part.label.rfind("[") :] if "[" in part.label else ""
    label = next((words for words in (part.label, short) if len(words) < room), "")
    fill = _FILL if part.role == GAP else " "
    line.append(_EDGE)
    line.append(label + fill * (room - 1 - len(label)), f"{style} {_COLOURS.get(part.role, '')}")
