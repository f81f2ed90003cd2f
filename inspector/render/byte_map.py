"""The byte map: a whole file as one picture, to scale; what each part holds stands below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from inspector.node import Kind, Node
from inspector.span import Span

WIDEST = 120
_NARROWEST = 20
_FILL = "░"
_EDGE = "│"
_COLOURS = {
    "attention": "blue",
    "swa": "cyan",
    "indexer": "green",
    "recurrent": "magenta",
    "dsv4": "blue",
    "checkpoints": "yellow",
    "gap": "red",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the map.

    Attributes:
        label: written into it if there is room.
        span: its bytes.
        role: decides the colour; `gap` is filled.
        within: what it is made of.
    """

    label: str
    span: Span
    role: str
    within: tuple[Part, ...] = ()


class ByteMap:
    """A file of `size` bytes as two bars: its parts, and theirs.

    Args:
        root: the tree.
    """

    def __init__(self, root: Node) -> None:
        self._span = root.span
        self._parts = tuple(_parts(root.children, "head", split=True))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as the terminal, but not wider than a person can follow."""
        width = max(_NARROWEST, min(options.max_width, WIDEST)) - 1
        widths = _shared_out([len(part.span) for part in self._parts], width)
        yield self._ruler(widths, width)
        upper, lower = Text(no_wrap=True), Text(no_wrap=True)
        for part, room in zip(self._parts, widths, strict=True):
            _draw(upper, part, room, bold=True)
            inner = part.within or (Part("", part.span, part.role),)
            for small, own in zip(
                inner, _shared_out([len(p.span) for p in inner], room), strict=True
            ):
                _draw(lower, small, own, bold=False)
        for line in (upper, lower):
            line.append(_EDGE, "dim")
            yield line

    def _ruler(self, widths: Sequence[int], width: int) -> Text:
        """Where the parts begin, as far as there is room; gaps first."""
        end = f"0x{self._span.stop:x}"
        taken = [" "] * (width + 1)
        taken[width + 1 - len(end) :] = end
        places, at = [], 0
        for part, room in zip(self._parts, widths, strict=True):
            places.append((part.role != "gap", at, f"0x{part.span.start:x}"))
            at += room
        for _, at, label in sorted(places):
            here = taken[max(0, at - 1) : at + len(label) + 1]
            if len(here) > len(label) and not "".join(here).strip():
                taken[at : at + len(label)] = label
        return Text("".join(taken), "dim", no_wrap=True)


def _parts(nodes: Iterable[Node], first: str, *, split: bool) -> Iterator[Part]:
    """The nodes that have bytes; fields that follow one another are one part."""
    run: list[Node] = []
    label = first
    for node in nodes:
        if not len(node.span):
            continue
        if node.kind is Kind.FIELD:
            run.append(node)
            continue
        if run:
            yield _fields(run, label)
            run = []
        label = ""
        role = "gap" if node.kind is Kind.GAP else node.role
        within = tuple(_within(node, len(node.span) // WIDEST)) if split else ()
        yield Part(node.name, node.span, role, within)
    if run:
        yield _fields(run, label)


def _fields(run: Sequence[Node], label: str) -> Part:
    name = run[0].name if len(run) == 1 else label
    return Part(name, Span(run[0].span.start, run[-1].span.stop), "")


def _within(node: Node, negligible: int) -> Iterator[Part]:
    """The parts of a node; those of its one large child if the others are too small to be seen."""
    prefix = ""
    large = [node]
    while len(large) == 1 and large[0].children:
        node = large[0]
        prefix = node.name if node.kind is Kind.SERIES else ""
        large = [child for child in node.children if len(child.span) > negligible]
    if 1 < len(large) <= WIDEST // 3:
        for part in _parts(node.children, "", split=False):
            yield Part(prefix + part.label, part.span, part.role)


def _shared_out(sizes: Sequence[int], width: int) -> list[int]:
    """Columns for parts of these sizes: at least one each while there is room, `width` in all."""
    total = sum(sizes)
    least = 1 if len(sizes) <= width else 0
    found = [max(least, round(size * width / total)) for size in sizes]
    while (over := sum(found) - width) != 0:
        widest = max(range(len(found)), key=found.__getitem__)
        found[widest] -= min(over, max(1, found[widest] // 2)) if over > 0 else over
    return found


def _draw(line: Text, part: Part, room: int, *, bold: bool) -> None:
    if not room:
        return
    colour = _COLOURS.get(part.role, "")
    label = part.label if len(part.label) < room else ""
    fill = _FILL if part.role == "gap" else " "
    line.append(_EDGE, "dim")
    line.append(label + fill * (room - 1 - len(label)), f"bold {colour}" if bold else colour)
