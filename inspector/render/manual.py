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
from inspector.render.page import QUIET, STRONG, STYLES, columns, text


def layout_list(layouts: Iterable[Layout]) -> Iterator[RenderableType]:
    """All layouts, a line each, under the words that their titles share."""
    table = columns("layout", "builds", "what it holds", fixed=["layout", "builds"])
    for kind, group in groupby(layouts, key=lambda layout: layout.title.partition(": ")[0]):
        rows = list(group)
        if len(rows) > 1:
            table.add_row("", "", text((kind, STRONG)))
        for layout in rows:
            _, _, rest = layout.title.partition(": ")
            shown = rest if len(rows) > 1 else layout.title
            table.add_row(text(layout.id), text((_builds(layout), QUIET)), text(shown))
    yield table


def _builds(layout: Layout) -> str:
    return str(Interval(layout.since, layout.until)) if layout.since or layout.until else ""


def layout_page(layout: Layout) -> Iterator[RenderableType]:
    """One layout: how it is told, where it is known from, and every field."""
    yield text((layout.id, STRONG), f": {layout.title}")
    facts = columns("", "", fixed=[""])
    facts.add_row("written", text(_builds(layout) or "builds not known"))
    if layout.writer:
        facts.add_row("by", text(layout.writer))
    for index, tell in enumerate(layout.tells):
        facts.add_row("" if index else "told by", text(tell))
    for index, origin in enumerate(layout.origins):
        facts.add_row("" if index else "source", text(str(origin)))
    yield facts
    yield Text()
    table = columns("offset", "name", "type", "meaning", fixed=["offset", "name"])
    for row in describe(layout.record):
        table.add_row(*_described(row))
    yield table
    yield text(("offsets with + count from the start of the item or frame", QUIET))


def _described(row: Row) -> Iterator[Text]:
    indent = "  " * row.depth
    offset = "" if row.offset is None else f"0x{row.offset:x}"
    yield text((f"+{offset}" if row.relative and offset else offset, QUIET))
    if not row.name and row.condition:
        yield text(indent)
        yield Text()
        yield text((_condition(row.condition), "italic"))
        return
    yield text(indent + (row.name or "[]"))
    match row.type:
        case "text" | "bytes" | "frame":
            kind = f"{row.type}, {row.size}" if row.size else row.type
        case "table" | "list" | "strings":
            kind = f"{row.type} of {row.size}" if row.size else row.type
        case kind if kind.endswith(" list"):
            kind = f"{kind} of {row.size}"
        case kind:
            pass
    yield text(kind)
    parts = [part for part in (_condition(row.condition), row.doc, row.meanings) if part]
    yield text("; ".join(parts))


def _condition(words: str) -> str:
    return words if words in ("", "else") else f"if {words}"


def code_list(codes: Iterable[Code]) -> Iterator[RenderableType]:
    """All codes with severity and meaning."""
    table = columns("code", "severity", "meaning", fixed=["code", "severity"])
    for code in sorted(codes, key=lambda code: code.code):
        table.add_row(code.code, text((code.severity, STYLES[code.severity])), text(code.meaning))
    yield table


def code_page(code: Code) -> Iterator[RenderableType]:
    """One code in full."""
    yield text((code.code, STRONG), "  ", (code.severity, STYLES[code.severity]))
    yield text(code.meaning)
    yield Text()
    table = columns("", "", fixed=[""])
    table.add_row(text(("effect", QUIET)), text(code.consequence))
    table.add_row(text(("remedy", QUIET)), text(f"{code.remedy}: {code.advice}"))
    table.add_row(text(("source", QUIET)), text(code.source))
    yield table


def nearest_name(name: str, known: Iterable[str]) -> str:
    """What a wrong name may have meant."""
    names = list(known)
    family = name.partition(".")[0]
    close = get_close_matches(name, names, n=3) or [n for n in names if n.startswith(family)][:5]
    return f"did you mean {' or '.join(close)}?" if close else "without a name all are listed"
