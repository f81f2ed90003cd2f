"""A scan as text for people: a line for every state, and what is to be said of all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from inspector.render.escape import printable
from inspector.render.page import QUIET, STRONG, STYLES, counted, labelled, shortened, text
from inspector.scanning.scan import Kind, Row, Sealed

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from inspector.scanning.ledger import Group, Totals

_RESTORE = {"accepts": "green", "refuses": "bold red", "aborts": "bold red", "unknown": "yellow"}
_WORST = {"error": "E ", "warning": "W ", "note": "N "}
_NAME, _FINDING = 18, 20
"""Columns that a name and a finding have at least on a terminal."""
_UNCUT = 28
"""Columns of findings that are not cut; most need no more."""
_LABEL = 13
_SEVERITIES = ("error", "warning", "note", "sound")
_SHOWN = 4
"""Files of a group that are named on a terminal."""
_ROOMY = 100
"""Columns of a page from which on those of the table are set apart by two blanks."""
_GROUPS = 8
"""Groups of a kind that are shown on a terminal."""


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
    if row.n_usable == row.n_checkpoints:
        return str(row.n_checkpoints or "-")
    return f"{row.n_usable}/{row.n_checkpoints}"


def _tokens(row: Row) -> str:
    return "-" if row.n_tokens is None else str(row.n_tokens)


def _reused(row: Row) -> str:
    return "-" if not row.restore else "?" if row.reused is None else f"{row.reused}"


_COLUMNS = (
    _Column("size", 5, lambda row: "-" if row.problem else size(row.size), number=True),
    _Column("age", 5, lambda row: age(row.mtime_ns), number=True, needs=90),
    _Column("what", 7, _what),
    _Column("writer", 12, lambda row: row.writer or "-", needs=142),
    _Column("builds", 14, _builds, needs=128),
    _Column("memory", 11, lambda row: row.memory or "-", needs=112),
    _Column("tokens", 7, _tokens, number=True),
    _Column("ckpt", 5, _checkpoints, number=True, needs=100),
    _Column("restore", 7, lambda row: row.restore or "-"),
    _Column("reused", 7, _reused, number=True),
)


_SEAL = _Column("seal", 11, lambda row: row.sealed or "-")


class Lines:
    """Lines of one width, the path last, as it can be of any length.

    Args:
        width: columns of the page.
        folder: that all paths begin with; it is left out.
        cut: whether paths and findings are cut to the page.
        verify: whether there is a column for seals, if there is room.
    """

    def __init__(
        self, width: int, folder: str = "", *, cut: bool = True, verify: bool = False
    ) -> None:
        self._folder = folder
        self._gap = "  " if width >= _ROOMY else " "
        self._columns = [column for column in _COLUMNS if column.needs <= width]
        left = width - sum(len(self._gap) + column.width for column in self._columns)
        left -= len(self._gap)
        needs = len(self._gap) + _SEAL.width
        if verify and (left >= needs + _NAME + _FINDING or not cut):
            self._columns.append(_SEAL)
            left -= needs
        self._cut = cut
        self._finding = max(_FINDING, min(left - _NAME, left // 2)) if cut else _UNCUT
        self._name = max(_NAME, left - self._finding)

    def head(self) -> Text:
        """The headings."""
        parts = [_aligned(column, column.title) for column in self._columns]
        parts += ["worst finding".ljust(self._finding), "state"]
        return _unfolded(Text(self._gap.join(parts), QUIET))

    def of(self, row: Row) -> Text:
        """The line of a row."""
        line = _unfolded(Text())
        for column in self._columns:
            words = column.of(row)
            style = _RESTORE.get(words, "") if column.title == "restore" else ""
            line.append(_aligned(column, words), style)
            line.append(self._gap)
        line.append_text(self._worst(row))
        name = printable(row.path.removeprefix(self._folder))
        if self._cut and cell_len(name) > self._name:
            name = set_cell_size(shortened(name, self._name), self._name).rstrip()
        line.append(self._gap)
        line.append(name, STRONG)
        return line

    def _worst(self, row: Row) -> Text:
        if row.problem:
            words, style = printable(row.problem), STYLES["error"]
        elif not row.findings:
            words, style = "", ""
        else:
            worst = row.findings[0]
            more = f" +{len(row.findings) - 1}" if len(row.findings) > 1 else ""
            words, style = _WORST[worst.severity] + worst.code, STYLES[worst.severity]
            if self._cut:
                words = shortened(words, self._finding - len(more))
            words += more
        if self._cut or cell_len(words) < self._finding:
            words = set_cell_size(words, self._finding)
        return Text(words, style)


def _unfolded(line: Text) -> Text:
    """A line that stays one: what is copied from it is a whole path."""
    line.no_wrap = True
    return line


def _aligned(column: _Column, words: str) -> str:
    words = words if len(words) <= column.width else words[: column.width - 1] + "…"
    return words.rjust(column.width) if column.number else words.ljust(column.width)


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
        yield _unfolded(text(f"{size(row.size):>5}  {row.path.removeprefix(folder)}{what}"))


_SEALS = {
    Sealed.HOLDS: ("holds", "hold"),
    Sealed.TOKENS: ("holds as to length and tokens", "hold as to length and tokens"),
    Sealed.DIFFERS: ("differs", "differ"),
    Sealed.UNREADABLE: ("cannot be read", "cannot be read"),
    "none": ("unsealed", "unsealed"),
}
"""How a seal compares -> what that is called of one, and of several."""


def _several(n: int, kind: Kind) -> str:
    if kind in _UNCOUNTABLE:
        return f"{n:,} {_UNCOUNTABLE[kind]}"
    return counted(n, str(kind))


_UNCOUNTABLE = {
    Kind.UNKNOWN: "unknown",
    Kind.FAILED: "unreadable",
    Kind.OTHER: "others",
    Kind.SPECIAL: "not regular",
}

_SHARE = {
    ("file", True): "the same file under several names: links, no copies",
    ("contents", True): "equal, byte for byte",
    ("tokens", True): "the same tokens, other bytes",
    ("tokens", False): "the same tokens, bytes not compared",
    ("prefix", False): "the same first tokens",
}
"""What states share, and whether their bytes were compared -> how that is called."""


def groups(
    found: Iterator[Group], folder: str = "", *, brief: bool = True
) -> Iterator[RenderableType]:
    """States that have something in common.

    Args:
        found: by what they share.
        folder: that all paths begin with; it is left out.
        brief: whether a few groups and files of each are enough.
    """
    for shared, members in groupby(found, key=lambda group: (group.shared, group.compared)):
        yield Text()
        yield text((_SHARE[shared], QUIET))
        for group in islice(members, _GROUPS if brief else None):
            label = "" if group.n_tokens is None else counted(group.n_tokens, "token")
            names = group.paths[: _SHOWN if brief else None]
            for name in names:
                link = "  (symbolic link)" if name in group.links else ""
                yield _labelled(label, name.removeprefix(folder), link)
                label = ""
            if further := group.n_files - len(names) + group.n_closer:
                yield _labelled(label, "", f"and {further:,} more")
        left = sum(1 for _ in members)
        if left:
            yield text((f"and {counted(left, 'more group')}: --json names them", QUIET))


def _labelled(label: str, name: str, more: str) -> Text:
    return _unfolded(text((f"{label:{_LABEL}}  ", QUIET), name, (more, QUIET)))


def totals(
    found: Totals, shown: int, server: str, assumed: Sequence[str], *, verify: bool = False
) -> Iterator[RenderableType]:
    """What there is of everything."""
    yield Text()
    yield text(
        (counted(found.states, "state"), STRONG),
        f", {size(found.bytes)} with companions" if found.states else "",
        f" · {shown:,} of {counted(found.lines, 'line')} shown" if shown != found.lines else "",
    )
    table = labelled()
    restore = [f"{n:,} {outcome}" for outcome, n in sorted(found.by_restore.items())]
    if restore:
        table.add_row("restore", text(f"{', '.join(restore)}: {server}"))
        table.add_row("reused", text("append: of a prompt that goes on from all of the tokens"))
    worst = [
        f"{n:,} sound" if name == "sound" else f"{n:,} with {name}s"
        for name in _SEVERITIES
        if (n := found.by_worst.get(name))
    ]
    if worst:
        table.add_row("worst", text(", ".join(worst)))
    seals = [
        f"{n:,} {words[n > 1]}" for how, words in _SEALS.items() if (n := found.by_seal.get(how))
    ]
    if verify or found.by_seal.keys() - {"none"}:
        more = "" if verify else " (--verify reads the rest)"
        table.add_row(
            "seals",
            text(", ".join(seals) or "none", more if Sealed.TOKENS in found.by_seal else ""),
        )
    kinds = [kind for kind in Kind if kind is not Kind.STATE]
    others = [_several(n, kind) for kind in kinds if (n := found.by_kind.get(kind))]
    if found.links:
        others.insert(0, counted(found.links, "further name"))
    if others:
        table.add_row("besides", text(", ".join(others)))
    for index, line in enumerate(assumed):
        table.add_row("" if index else "assumed", text((line, QUIET)))
    if table.row_count:
        yield table
