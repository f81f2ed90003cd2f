"""Parts of the tree for people: a node with its children, and the paths nearest to a wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from inspector.node import Kind, Node, Rows, join, walk
from inspector.render.page import QUIET, STRONG, columns, counted, shortened, text

if TYPE_CHECKING:
    from inspector.report import Report

HIDDEN = "not shown"
"""In place of a token id."""

_TOKENS = frozenset({"tokens", "text_tokens", "token_prefix", "prompt", "tok"})
_MOST_CHILDREN = 16
_MOST_ROWS = 8
_MOST_PATHS = 20_000
_LONGEST_TEXT = 120
_LARGE = 1 << 24
"""Values that have a name and are as large as this are magics, in hex."""


def holds_tokens(path: str) -> bool:
    """Whether the bytes at a path are token ids: a list, an item of one, or the field of a cell."""
    return path.removesuffix(".value").rpartition(".")[2].partition("[")[0] in _TOKENS


def private_gaps(report: Report) -> frozenset[int]:
    """Where gaps begin that may hold token ids: the rest of a list, and a container of some."""
    reading = report.identification.reading
    stops = () if reading is None else reading.decoding.stops
    found = {stop.offset for stop in stops if holds_tokens(stop.path)}
    if report.container is not None and report.container.tokens is not None:
        found |= {node.span.start for _, node in walk(report.tree) if node.kind is Kind.GAP}
    return frozenset(found)


def node_page(path: str, node: Node, depth: int, *, show_tokens: bool) -> Iterator[RenderableType]:
    """A node, what it is made of, and the first rows if it is a table.

    Args:
        path: of the node; empty for the whole file.
        node: the node.
        depth: levels of children.
        show_tokens: whether token ids may be shown.
    """
    size = counted(len(node.span), "byte")
    yield text((path or "file", STRONG), f": {node.kind}, {node.span}, {size}")
    if node.doc:
        yield text(f"  {node.doc}")
    if node.children:
        yield _children(path, node, depth, show_tokens=show_tokens)
    elif value := value_of(path, node, show_tokens=show_tokens):
        yield text(f"  {value}")
    if isinstance(node.value, Rows) and len(node.value):
        yield from _rows(path, node.value, show_tokens=show_tokens)


def _children(path: str, node: Node, depth: int, *, show_tokens: bool) -> RenderableType:
    table = columns("name", "at", "bytes", "value", "", numbers=["bytes"], fixed=["name", "at"])
    for level, at, child in _outline(path, node, depth):
        indent = "  " * level
        if child is None:
            table.add_row(text(indent, (at, QUIET)))
            continue
        table.add_row(
            text(indent + child.name),
            text((f"0x{child.span.start:x}", QUIET)),
            f"{len(child.span):,}",
            text(value_of(at, child, show_tokens=show_tokens)),
            text((child.doc, QUIET)),
        )
    return table


def _outline(
    path: str, node: Node, depth: int, level: int = 0
) -> Iterator[tuple[int, str, Node | None]]:
    """Level, path and node of what is below, to some depth; for lack of a node, a remark."""
    for child in node.children[:_MOST_CHILDREN]:
        at = join(path, child.name)
        yield level, at, child
        if depth > 1:
            yield from _outline(at, child, depth - 1, level + 1)
    if len(node.children) > _MOST_CHILDREN:
        left = len(node.children) - _MOST_CHILDREN
        yield level, f"… {left:,} more, up to {node.children[-1].name}", None


def value_of(path: str, node: Node, *, show_tokens: bool) -> str:
    """The value of a node in words, with what it stands for; empty for a record."""
    match node.value:
        case Rows() as rows:
            names = ", ".join(name for name, _ in rows.fields if name != "value")
            return counted(len(rows), "row") + (f": {names}" if names else "")
        case int() | float() | str() if holds_tokens(path) and not show_tokens:
            return HIDDEN
        case str(words):
            return shortened(words, _LONGEST_TEXT)
        case int() | float() as value:
            named = node.meaning is not None and isinstance(value, int) and value >= _LARGE
            shown = hex(value) if named else str(value)  # type: ignore[arg-type]
            return f"{shown} ({node.meaning})" if node.meaning is not None else shown
    if node.kind is Kind.GAP:
        return "unexplained"
    return counted(len(node.children), "item") if node.kind is Kind.SERIES else ""


def _rows(path: str, rows: Rows, *, show_tokens: bool) -> Iterator[RenderableType]:
    names = [name for name, _ in rows.fields]
    hidden = [not show_tokens and holds_tokens(join(path, name)) for name in names]
    if not show_tokens and holds_tokens(path):
        hidden = [True] * len(names)
    table = columns("row", "at", *names, numbers=["row", *names], fixed=["at"])
    for index, row in enumerate(rows.first(_MOST_ROWS)):
        values = [
            HIDDEN if hide else str(row[name].item())
            for name, hide in zip(names, hidden, strict=True)
        ]
        table.add_row(f"[{index}]", text((f"0x{rows.row_span(index).start:x}", QUIET)), *values)
    yield Text()
    yield table
    if len(rows) > _MOST_ROWS:
        yield text((f"… {len(rows) - _MOST_ROWS:,} more, up to [{len(rows) - 1}]", QUIET))


def nearest(root: Node, path: str) -> list[str]:
    """The existing paths that are most like one that does not exist."""
    paths = [at for at, _ in islice(walk(root), _MOST_PATHS) if at]
    if close := get_close_matches(path, paths, n=3):
        return close
    known = max((at for at in paths if path.startswith(at)), key=len, default="")
    return [at for at in paths if known and at.startswith((f"{known}.", f"{known}["))][:3] or [
        child.name for child in root.children
    ]
