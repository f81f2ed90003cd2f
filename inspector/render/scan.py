"""A scan as text for people: a line for every state, and what is to be said of all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING

from rich.cells import set_cell_size
from rich.text import Text

from inspector.render.escape import printable
from inspector.render.page import QUIET, STRONG, STYLES, counted, labelled, shortened, text
from inspector.scanning.scan import Kind, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from inspector.scanning.ledger import Group, Totals

_RESTORE = {"accepts": "green", "refuses": "bold red", "aborts": "bold red", "unknown": "yellow"}
_WORST = {"error": "E ", "warning": "W ", "note": "N "}
_NAME, _FINDING = 18, 20
"""Columns that a name and a finding have at least."""
_LABEL = 13
_SEVERITIES = ("error", "warning", "note", "sound")
_SHOWN = 4
"""Files of a group that are named."""
_ROOMY = 100
"""Columns of a page from which on those of the table are set apart by two blanks."""
_GROUPS = 8
"""Groups of a kind that are shown."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column.

    Attributes:
        title: its heading.
        width: in characters.
        of: its text in a row.
        number: whether it is aligned to the right.
        needs: the smallest width of the page that has room for it.
    """

    title: str
    width: int
    of: Callable[[Row], str]
    number: bool = False
    needs: int = 0


def age(mtime_ns: int | None) -> str:
    """Time since the last change in its largest unit: `3 d`."""
    if mtime_ns is None:
        return "?"
    seconds = max(0.0, time.time() - mtime_ns / 1e9)
    for unit, size in (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def size(n: int) -> str:
    """Bytes in at most three digits and a unit: `8.0 G`."""
    value = float(n)
    for unit in ("", "K", "M", "G", "T"):
        if value < 999.5 or unit == "T":
            break
        value /= 1024
    return f"{n}" if not unit else f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"


def _what(row: Row) -> str:
    if row.kind is Kind.FAILED or row.format is None:
        return "-"
    return f"{row.format}{'' if row.version is None else row.version}"


def _builds(row: Row) -> str:
    if row.since is None and row.until is None:
        return "-"
    return f"{row.since or ''}..{row.until or ''}"


def _checkpoints(row: Row) -> str:
    if row.n_checkpoints == row.n_listed:
        return str(row.n_listed or "-")
    return f"{row.n_checkpoints}/{row.n_listed}"


def _reused(row: Row) -> str:
    return "-" if not row.restore else "?" if row.reused is None else f"{row.reused}"


_COLUMNS = (
    _Column("size", 5, lambda row: size(row.size), number=True),
    _Column("age", 5, lambda row: age(row.mtime_ns), number=True, needs=90),
    _Column("what", 7, _what),
    _Column("writer", 12, lambda row: row.writer or "-", needs=142),
    _Column("builds", 14, _builds, needs=128),
    _Column("memory", 11, lambda row: row.memory or "-", needs=112),
    _Column("tokens", 7, lambda row: f"{row.n_tokens}" if row.tokens else "-", number=True),
    _Column("ckpt", 5, _checkpoints, number=True, needs=100),
    _Column("restore", 7, lambda row: row.restore or "-"),
    _Column("reused", 7, _reused, number=True),
)


class Lines:
    """Lines of one width.

    Args:
        width: columns of the page.
        folder: that all paths begin with; it is left out.
    """

    def __init__(self, width: int, folder: str = "") -> None:
        self._folder = folder
        self._gap = "  " if width >= _ROOMY else " "
        self._columns = [column for column in _COLUMNS if column.needs <= width]
        gaps = len(self._gap) * (len(self._columns) + 1)
        left = width - sum(column.width for column in self._columns) - gaps
        self._finding = max(_FINDING, min(left - _NAME, left // 2))
        self._name = max(_NAME, left - self._finding)

    def head(self) -> Text:
        """The headings."""
        parts = [_fitted("state", self._name)]
        parts += [_aligned(column, column.title) for column in self._columns]
        return Text(self._gap.join([*parts, "worst finding"]), QUIET)

    def of(self, row: Row) -> Text:
        """The line of a row."""
        name = printable(row.path.removeprefix(self._folder))
        line = Text(no_wrap=True, overflow="crop")
        line.append(_fitted(shortened(name, self._name), self._name), STRONG)
        for column in self._columns:
            words = column.of(row)
            style = _RESTORE.get(words, "") if column.title == "restore" else ""
            line.append(self._gap)
            line.append(_aligned(column, words), style)
        line.append(self._gap)
        line.append_text(self._worst(row))
        return line

    def _worst(self, row: Row) -> Text:
        if row.problem:
            words, style = printable(row.problem), STYLES["error"]
        elif not row.findings:
            return Text()
        else:
            worst = row.findings[0]
            more = f" +{len(row.findings) - 1}" if len(row.findings) > 1 else ""
            words, style = _WORST[worst.severity] + worst.code, STYLES[worst.severity]
            room = self._finding - len(more)
            words = shortened(words, room) + more
        return Text(_fitted(words, self._finding).rstrip(), style)


def _aligned(column: _Column, words: str) -> str:
    words = words if len(words) <= column.width else words[: column.width - 1] + "…"
    return words.rjust(column.width) if column.number else words.ljust(column.width)


def _fitted(words: str, width: int) -> str:
    """The words in exactly `width` columns."""
    return set_cell_size(words, width)


def apart(rows: Iterator[Row], folder: str = "") -> Iterator[RenderableType]:
    """Files that are no states and lie about."""
    titles = {Kind.ORPHAN: "companions without a state", Kind.LEFTOVER: "left behind by saves"}
    kind = None
    for row in rows:
        if row.kind is not kind:
            kind = row.kind
            yield Text()
            yield text((titles[kind], QUIET))
        what = f"  {_what(row)}" if row.format else ""
        yield text(f"{size(row.size):>5}  {row.path.removeprefix(folder)}{what}")


_SEALS = {
    "holds": "hold",
    "differs": "do not",
    "tokens hold": "hold as to length and tokens (--verify reads the rest)",
}


def _several(n: int, kind: Kind) -> str:
    if kind in (Kind.UNKNOWN, Kind.FAILED, Kind.OTHER):
        return f"{n:,} {_UNCOUNTABLE[kind]}"
    return counted(n, str(kind))


_UNCOUNTABLE = {Kind.UNKNOWN: "unknown", Kind.FAILED: "unreadable", Kind.OTHER: "others"}

_SHARE = {
    "contents": "equal, byte for byte",
    "tokens": "the same tokens, other bytes",
    "prefix": "the same first tokens",
}


def groups(found: Iterator[Group], folder: str = "") -> Iterator[RenderableType]:
    """States that have something in common."""
    for shared, members in groupby(found, key=lambda group: group.shared):
        yield Text()
        yield text((_SHARE[shared], QUIET))
        table = labelled(_LABEL)
        for group in islice(members, _GROUPS):
            names = [path.removeprefix(folder) for path in group.paths[:_SHOWN]]
            further = group.n_files - len(names) + group.n_closer
            names += [f"and {further:,} more"] if further else []
            label = counted(group.n_tokens, "token")
            table.add_row(label, Text("\n").join(text(name) for name in names))
        yield table
        left = sum(1 for _ in members)
        if left:
            yield text((f"and {counted(left, 'more group')}: --json names them", QUIET))


def totals(
    found: Totals, shown: int, server: str, assumed: Sequence[str]
) -> Iterator[RenderableType]:
    """What there is of everything."""
    lines = sum(found.by_worst.values())
    yield Text()
    yield text(
        (counted(found.states, "state"), STRONG),
        f", {size(found.bytes)} with companions" if found.states else "",
        f" · {shown:,} of {counted(lines, 'line')} shown" if shown != lines else "",
    )
    table = labelled()
    restore = [f"{n:,} {outcome}" for outcome, n in sorted(found.by_restore.items())]
    if restore:
        table.add_row("restore", text(f"{', '.join(restore)}: {server}"))
    worst = [
        f"{n:,} sound" if name == "sound" else counted(n, name)
        for name in _SEVERITIES
        if (n := found.by_worst.get(name))
    ]
    if worst:
        table.add_row("worst", text(", ".join(worst)))
    kinds = [kind for kind in Kind if kind is not Kind.STATE]
    others = [_several(n, kind) for kind in kinds if (n := found.by_kind.get(kind))]
    if others:
        table.add_row("besides", text(", ".join(others)))
    for index, line in enumerate(assumed):
        table.add_row("" if index else "assumed", text((line, QUIET)))
    if table.row_count:
        yield table
