"""The verdict on a file for a server, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from formats.ggml_types import UPSTREAM
from inspector.render.as_text import findings_part
from inspector.render.page import QUIET, STRONG, columns, labelled, text
from inspector.server.loader import Outcome
from inspector.server.servers import NEWEST

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from inspector.check import Check
    from inspector.server.prompt import Prediction
    from inspector.server.target import Target

_STYLES = {
    Outcome.ACCEPTS: "green",
    Outcome.REFUSES: "bold red",
    Outcome.ABORTS: "bold red",
    Outcome.UNKNOWN: "yellow",
}
_MODEL_STYLES = {"matches": "green", "differs": "bold red"}


def page(check: Check, name: str) -> Iterator[RenderableType]:
    """What a server will do with a file.

    Args:
        check: the verdict.
        name: of the file, as the user gave it.
    """
    target, outcome = check.target, check.restore
    yield text((name, STRONG), f" on {server_name(target)}{_newer(target)}")
    answers = labelled()
    restore = [(str(outcome.outcome), _STYLES[outcome.outcome])]
    more = f": {outcome.message}" if outcome.outcome is not Outcome.ACCEPTS else ""
    more += f" ({outcome.reason})" if outcome.reason else ""
    answers.add_row("restore", text(*restore, more))
    judged = check.identity.outcome.in_short
    answers.add_row(
        "model",
        text((judged, _MODEL_STYLES.get(judged, "yellow")), f": {check.identity.evidence}"),
    )
    yield answers
    yield Text()
    yield _reuse(check)
    yield from _remarks(check)
    found = list(findings_part(check.findings))
    if found:
        yield Text()
        yield from found


def server_name(target: Target) -> str:
    """The server in few words."""
    label = target.build.label
    server = label if "@" in label else f"{target.build.server} {label}"
    return f"{server} with {target.model_name}" if target.model_name else server


def _newer(target: Target) -> str:
    build = target.build
    known = build.server != UPSTREAM or (build.number or 0) <= NEWEST
    return "" if known else f", a build newer than b{NEWEST}, the newest known"


def _reuse(check: Check) -> Table:
    numbers = ("shared", "of", "reused")
    table = columns("next prompt", *numbers, "why", numbers=numbers)
    for one in check.reuse:
        _row(table, one.name or "asked", one.found)
        if one.then is not None:
            _row(table, "  and then", one.then)
    return table


def _row(table: Table, name: str, found: Prediction) -> None:
    request = found.request
    reused = f"{found.reused:,}" if found.reused is not None else str(found.outcome)
    words = [text(found.why)]
    words += [text((f"more with: {line}", QUIET)) for line in found.would_change]
    words += [text((line, "yellow")) for line in found.notes]
    table.add_row(name, f"{request.shared:,}", f"{request.total:,}", reused, Text("\n").join(words))


def _remarks(check: Check) -> Iterator[RenderableType]:
    yield from remarks(
        ("unproven", tuple(filter(None, (check.identity.unproven,)))),
        ("assumed", check.assumed),
        ("if", check.conditions),
        ("note", (*check.target.notes, *check.identity.notes)),
    )


def remarks(*groups: tuple[str, Sequence[str]]) -> Iterator[RenderableType]:
    """Lines in small print, those of a group behind its label."""
    table = labelled()
    for label, lines in groups:
        for index, line in enumerate(lines):
            table.add_row("" if index else label, text((line, QUIET)))
    if table.row_count:
        yield Text()
        yield table
