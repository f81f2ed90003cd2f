"""What can be opened of a tree, a screenful at a time: items of long lists are in pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from inspector.node import Node, Rows, join, row, row_at, walk
from inspector.render.nodes import holds_tokens
from inspector.span import Span

_PAGE = 100
"""Most items that are listed together."""
_ROW = re.compile(r"(.+)(\[[0-9]+\])(\..+)?")


@dataclass(frozen=True, slots=True)
class Part:
    """A node, or a page of its items.

    Attributes:
        path: of the node.
        node: the node.
        items: indices of its items, or of those on the page.
        paged: whether it is a page.
    """

    path: str
    node: Node
    items: range
    paged: bool = False

    @property
    def name(self) -> str:
        """The node's own name, empty for the file; of a page, its first and last index."""
        return f"[{self.items[0]}..{self.items[-1]}]" if self.paged else self.node.name

    @property
    def span(self) -> Span:
        """Its bytes."""
        if not self.paged:
            return self.node.span
        if isinstance(rows := self.node.value, Rows):
            first, last = rows.row_span(self.items[0]), rows.row_span(self.items[-1])
        else:
            first, last = (self.node.children[self.items[end]].span for end in (0, -1))
        return Span(first.start, last.stop)

    def parts(self) -> Iterator[Part]:
        """What it is made of: its items, or pages of them if they are many."""
        at = self.items.start
        while at < self.items.stop:
            yield (part := self.towards(at))
            at = part.items.stop if part.paged else at + 1

    def towards(self, index: int) -> Part:
        """The item at `index`, or the page that has it."""
        step = 1
        while len(self.items) > step * _PAGE:
            step *= _PAGE
        if step == 1:
            return self._item(index)
        start = index - index % step
        page = range(start, min(start + step, self.items.stop))
        return Part(self.path, self.node, page, paged=True)

    def _item(self, index: int) -> Part:
        if not isinstance(rows := self.node.value, Rows):
            child = self.node.children[index]
            return part_of(join(self.path, child.name), child)
        found = row(rows, index)
        if len(found.children) == 1:  # a list of numbers: the item is the number
            found = Node(found.name, found.children[0].kind, found.span, found.children[0].value)
        return part_of(join(self.path, found.name), found)


def part_of(path: str, node: Node) -> Part:
    """The part that a node is."""
    count = len(node.value) if isinstance(node.value, Rows) else len(node.children)
    return Part(path, node, range(count))


def way_to(root: Part, path: str, offset: int) -> list[Part]:
    """The root, the part at a path, and all between; it ends early where the path leaves the tree.

    Args:
        root: the whole file.
        path: of the part.
        offset: where it begins, for paths that several nodes have.
    """

    def choose(part: Part) -> int | None:
        if part.path == path:
            return None
        if isinstance(part.node.value, Rows):
            index = path.removeprefix(part.path + "[").partition("]")[0]
            return int(index) if index.isdecimal() and int(index) in part.items else None
        found = [
            (offset not in child.span, index)
            for index, child in enumerate(part.node.children)
            if _leads(join(part.path, child.name), path)
        ]
        return min(found)[1] if found else None

    return _way(root, choose)


def way_at(root: Part, offset: int) -> list[Part]:
    """The root, the smallest part that has the byte at an offset, and all between."""

    def choose(part: Part) -> int | None:
        if isinstance(rows := part.node.value, Rows):
            return row_at(rows, offset) if offset in part.span else None
        children = part.node.children
        return next((i for i, child in enumerate(children) if offset in child.span), None)

    return _way(root, choose)


def _way(root: Part, choose: Callable[[Part], int | None]) -> list[Part]:
    way = [root]
    while (index := choose(way[-1])) is not None:
        way.append(way[-1].towards(index))
    return way


def _leads(above: str, path: str) -> bool:
    return path == above or path.startswith((above + ".", above + "["))


def matches(root: Node, words: str) -> list[tuple[str, int]]:
    """Paths and offsets of all whose path or text has the words in it; case does not matter.

    Rows have no nodes: of a table whose columns match it is the first, and any by its index, as in
    `cells[12].pos`.
    """
    words, found = words.lower(), []
    row_path = _ROW.fullmatch(words)
    table, index, field = row_path.groups("") if row_path is not None else ("", "", "")
    for path, node in walk(root):
        rows, at, text = node.value, path.lower(), ""
        if isinstance(rows, str) and not holds_tokens(path):
            text = rows.lower()
        if words in at or words in text:
            found.append((path, node.span.start))
        elif isinstance(rows, Rows) and index and at.endswith(table):
            part = way_to(part_of(path, node), f"{path}{index}{field}", -1)[-1]
            found += [(part.path, part.span.start)] if part.path.lower().endswith(words) else []
        elif isinstance(rows, Rows) and len(rows):
            names = [join(f"{path}[0]", name) for name, _ in rows.fields if name != "value"]
            found += [(name, node.span.start) for name in names if words in name.lower()]
    return found
