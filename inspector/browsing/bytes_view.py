"""Annotated bytes that scroll: of a file of any size, only those on the screen are read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from inspector.browsing.parts import Part, way_at
from inspector.node import Rows
from inspector.render.hexdump import Dump, Line, cells
from inspector.render.nodes import private_gaps
from inspector.render.page import shortened, text
from inspector.report import Report
from inspector.source import Unreadable
from inspector.span import Span

_NOTE = 18
"""Columns that notes should have, at least."""
_WHEEL = 3
"""Lines."""
_CHOSEN = "bold cyan"


class BytesView(Widget, can_focus=True):
    """The bytes from some offset on, those of the chosen part marked.

    Args:
        report: of the file, which is open.
        root: the whole file.
        show_tokens: whether token ids may be shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_lines(-1)", show=False),
        Binding("down,j", "scroll_lines(1)", show=False),
        Binding("pageup", "scroll_pages(-1)", show=False),
        Binding("pagedown,space", "scroll_pages(1)", show=False),
        Binding("home", "scroll_to(0)", show=False),
        Binding("end", "scroll_to(-1)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Chosen(Message):
        """A byte was chosen.

        Args:
            offset: of the byte.
        """

        def __init__(self, offset: int) -> None:
            super().__init__()
            self.offset = offset

    def __init__(self, report: Report, root: Part, *, show_tokens: bool) -> None:
        super().__init__()
        self._report = report
        self._root = root
        self._show_tokens = show_tokens
        self._private = private_gaps(report)
        self._first = 0
        self._chosen = Span(0, 0)

    @property
    def first(self) -> int:
        """The offset of the first line."""
        return self._first

    def choose(self, span: Span) -> None:
        """Mark some bytes, and show them from their first on."""
        self._chosen = span
        self._first = min(span.start, max(0, self._report.size - 1))
        self.refresh()

    def render(self) -> Group:
        """What fits on the screen, under the path of the first part and how far down it is."""
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        letters = self._letters
        widths = [len(f"{self._report.size:x}") + 2, 3 * self._per_line - 1]
        for width in [*widths, self._per_line] if letters else widths:
            table.add_column(width=width, no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        for line in self._lines(self._height):
            table.add_row(*self._shown(line, letters=letters))
        if self._report.changed:
            return Group()
        path = way_at(self._root, self._first)[-1].path or "file"
        share = f"{self._first / max(1, self._report.size):.0%}"
        path = shortened(path, max(1, self.size.width - len(share) - 2))
        head = text((f"{share:>4} {path}", "bold" if self.has_focus else "dim"))
        return Group(head, table)

    @property
    def _height(self) -> int:
        """Lines that fit."""
        return max(1, self.size.height - 1)

    def _shown(self, line: Line, *, letters: bool) -> Iterator[Text]:
        try:
            offset, digits, shown, note = cells(self._report.source, line)
        except Unreadable as error:
            offset, digits, shown, note = (Text() for _ in range(4))
            note.append(str(error), "red")
        start = max(self._chosen.start, line.span.start) - line.span.start
        stop = min(self._chosen.stop, line.span.stop) - line.span.start
        if start < stop:
            digits.stylize(_CHOSEN, 3 * start, 3 * stop - 1)
            shown.stylize(_CHOSEN, start, stop)
        yield offset
        yield digits
        if letters:
            yield shown
        _, bracket, index = line.parent.rpartition("[")
        within = bracket and index.endswith("]") and line.note
        yield Text.assemble((f"[{index}." if within else "", "dim"), note)

    @property
    def _room(self) -> int:
        """Columns for bytes, letters and notes."""
        return self.size.width - len(f"{self._report.size:x}") - 4

    @property
    def _per_line(self) -> int:
        return next((n for n in (16, 8) if self._room >= 3 * n + 1 + _NOTE), 4)

    @property
    def _letters(self) -> bool:
        return self._room >= 4 * self._per_line + 3 + _NOTE

    def _lines(self, most: int) -> list[Line]:
        """At most so many lines from the first on."""
        window = Span(self._first, min(self._first + most * self._per_line, self._report.size))
        dump = Dump(window, self._per_line, self._show_tokens, self._private)
        lines = dump.lines("", self._root.node, len(window))
        return list(islice((line for line in lines if len(line.span)), most))

    def _line_at(self, offset: int) -> int:
        """Where the line begins that has the byte at an offset."""
        way = way_at(self._root, offset)
        start = way[-1].span.start
        lists = [part for part in way if _is_list(part)]
        start = lists[0].node.span.start if lists else start
        return offset - (offset - start) % self._per_line

    def action_scroll_lines(self, n: int) -> None:
        """Go on by some lines, or back."""
        if n > 0:
            lines = self._lines(n + 1)
            self._first = lines[-1].span.start if lines else 0
        for _ in range(-n):
            if self._first:
                self._first = self._line_at(self._first - 1)
        self.refresh()

    def action_scroll_pages(self, n: int) -> None:
        """Go on by a screen, or back."""
        self.action_scroll_lines(n * max(1, self._height - 1))

    def action_scroll_to(self, offset: int) -> None:
        """Go to an offset, or to the end of the file."""
        if offset < 0:
            self._first = self._report.size
            self.action_scroll_lines(-self._height)
        else:
            self._first = offset
        self.refresh()

    def action_choose(self) -> None:
        """Choose what the first line shows."""
        self.post_message(self.Chosen(self._first))

    def on_click(self, event: events.Click) -> None:
        """Choose what is clicked, below the heading."""
        lines = self._lines(max(1, event.y))
        if 0 < event.y <= len(lines):
            self.post_message(self.Chosen(lines[event.y - 1].span.start))

    def on_mouse_scroll_down(self) -> None:
        """Go on by a few lines."""
        self.action_scroll_lines(_WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """Go back by a few lines."""
        self.action_scroll_lines(-_WHEEL)


def _is_list(part: Part) -> bool:
    """Whether several items of a table share a line."""
    rows = part.node.value
    return isinstance(rows, Rows) and [name for name, _ in rows.fields] == ["value"]
