"""What all text for people has in common: styles, tables without lines, numbers, severities."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from inspector.render.escape import printable

STYLES = {
    "error": "bold red",
    "warning": "yellow",
    "note": "cyan",
    "recognised": "green",
    "ambiguous": "yellow",
    "damaged": "bold red",
    "unknown": "bold red",
}
"""Severity or verdict -> style."""

TIMES = "\N{MULTIPLICATION SIGN}"
QUIET = "dim"
STRONG = "bold"


def text(*parts: str | tuple[str, str]) -> Text:
    """One piece of text, never read as markup.

    Args:
        parts: strings, or strings with a style.
    """
    found = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        found.append(printable(words), style)
    return found


def columns(*names: str, numbers: Iterable[str] = (), fixed: Iterable[str] = ()) -> Table:
    """A table without lines; the last column takes what is left.

    Args:
        names: headings; a table whose headings are all empty has none.
        numbers: those of columns that are aligned to the right.
        fixed: those of columns that are never folded.
    """
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(names), header_style=QUIET
    )
    for name in names:
        table.add_column(
            name,
            justify="right" if name in numbers else "left",
            overflow="fold",
            no_wrap=name in fixed or name in numbers,
        )
    return table


def labelled(width: int | None = None) -> Table:
    """A table of labels, each with text that folds beside it.

    Args:
        width: of the labels; what the longest needs if None.
    """
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=width, no_wrap=True, style=QUIET)
    table.add_column(overflow="fold")
    return table


def counted(n: int, what: str) -> str:
    """`1 cell`, `303 cells`."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {re.sub('y$', 'ie', what)}s"


def shortened(words: str, room: int) -> str:
    """The words with their middle left out if there are more than `room` characters."""
    if len(words) <= room:
        return words
    head = max(1, (room - 1) // 2)
    return words[:head] + "…" + words[len(words) - max(1, room - 1 - head) :]
