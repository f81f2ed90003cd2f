"""The manual: layouts with their fields, and finding codes, as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from formats.describe import Row, describe
from formats.layout import Layout
from inspector.builds import Interval
from inspector.findings import Code
from inspector.render.page import QUIET, STRONG, STYLES, columns, labelled, text

_ITALIC = "italic"


def layout_list(layouts: Iterable[Layout]) -> Iterator[RenderableType]:
    """All layouts, a line each, under the words that their titles share."""
    table = columns("layout", "what it holds", fixed=["layout"])
    for kind, group in groupby(layouts, key=lambda layout: layout.title.partition(": ")[0]):
        rows = list(group)
        if len(rows) > 1:
            table.add_row(text((kind, STRONG)))
        for layout in rows:
            what = layout.title.partition(": ")[2] if len(rows) > 1 else layout.title
            builds = _builds(layout)
            table.add_row(text(layout.id), text(what, (f" ({builds})" if builds else "", QUIET)))
    yield table


def _builds(layout: Layout) -> str:
    return str(Interval(layout.since, layout.until)) if layout.since or layout.until else ""


def layout_page(layout: Layout) -> Iterator[RenderableType]:
    """One layout: how it is told, where it is known from, and every field."""
    yield text((layout.id, STRONG), f": {layout.title}")
    facts = labelled()
    by = f"by {layout.writer}, " if layout.writer else ""
    facts.add_row("written", text(by + (_builds(layout) or "builds not known")))
    for index, tell in enumerate(layout.tells):
        facts.add_row("" if index else "told by", text(tell))
    for index, origin in enumerate(layout.origins):
        facts.add_row("" if index else "source", text(str(origin)))
    yield facts
    yield Text()
    table = columns("offset", "name", "type and meaning", fixed=["offset", "name"])
    for row in describe(layout.record):
        table.add_row(*_described(row))
    yield table
    yield Text()
    yield text(("An offset with + counts from the start of the item or frame it is in.", QUIET))


def _described(row: Row) -> tuple[Text, Text, Text]:
    indent = "  " * row.depth
    word, words = ("else", "") if row.condition == "else" else ("if", row.condition)
    if not row.name and row.condition:
        return Text(), text(indent, (word, _ITALIC)), text((words, _ITALIC))
    offset = "" if row.offset is None else f"{'+' if row.relative else ''}0x{row.offset:x}"
    notes = "; ".join(part for part in (row.doc, row.meanings) if part)
    condition = f" {word} {words}".rstrip() if row.condition else ""
    meaning = text((_type(row), STRONG), (condition, _ITALIC), f"  {notes}" if notes else "")
    return text((offset, QUIET)), text(indent + (row.name or "[]")), meaning


def _type(row: Row) -> str:
    """The type with the size that it does not imply."""
    match row.type:
        case "text" | "bytes" | "frame":
            return f"{row.type}, {row.size}" if row.size else row.type
        case "table" | "list" | "strings":
            return f"{row.type} of {row.size}" if row.size else row.type
        case numbers if numbers.endswith(" list"):
            return f"{numbers} of {row.size}"
    return row.type


def code_list(codes: Iterable[Code]) -> Iterator[RenderableType]:
    """All codes with severity and meaning."""
    table = columns("code", "severity", "meaning", fixed=["code", "severity"])
    for code in sorted(codes, key=lambda code: code.code):
        table.add_row(
            text(code.code), text((code.severity, STYLES[code.severity])), text(code.meaning)
        )
    yield table


def code_page(code: Code) -> Iterator[RenderableType]:
    """One code in full."""
    yield text((code.code, STRONG), "  ", (code.severity, STYLES[code.severity]))
    yield text(code.meaning)
    yield Text()
    table = labelled()
    table.add_row("effect", text(code.consequence))
    table.add_row("remedy", text(f"{code.remedy}: {code.advice}"))
    table.add_row("source", text(code.source))
    yield table


def action_page(name: str, meaning: str) -> Iterator[RenderableType]:
    """What an action of a repair does."""
    yield text((name, STRONG), "  an action of slotscope repair")
    yield text(meaning)


def nearest_name(name: str, known: Iterable[str]) -> str:
    """What a wrong name may have meant."""
    names = list(known)
    family = name.partition(".")[0]
    close = get_close_matches(name, names, n=3) or [n for n in names if n.startswith(family)][:5]
    return f"did you mean {' or '.join(close)}?" if close else "without a name all are listed"
