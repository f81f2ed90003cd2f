"""Positions by cell, and checkpoints along the tokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from inspector.findings import Finding, Severity
from inspector.render.html.figures import drawing, figure, number, path, plot, rectangle
from inspector.render.html.markup import Html, aside, element, inside, table
from inspector.render.page import counted
from inspector.report import Report

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from inspector.lists import Checkpoint
    from inspector.node import Rows
    from inspector.sections import Section

_MOST_RUNS = 400
"""Stretches of consecutive positions that are drawn one by one; more are drawn as ranges."""
_BINS = 300
_MOST_STREAMS = 8
_MOST_TRACKS = 24
_ANCHOR = "cells.window-anchor"


def positions(report: Report) -> Html:
    """A drawing for every section and stream, all to one scale of positions; nothing without."""
    drawn = [(section, *one) for section in report.sections for one in _tables(section)]
    if not drawn:
        return Html("")
    low = min(0, *(section.pos_min or 0 for section, _, _ in drawn))
    top = max(0, *(section.pos_max or 0 for section, _, _ in drawn)) + 1
    anchors = [one.span.start for one in report.findings if one.code == _ANCHOR]
    window = next((one for one in report.sections if one.kind == "swa" and one.pos_min), None)
    figures = (
        _positions(section, name, rows, range(low, top), anchors, window)
        for section, name, rows in drawn[:_MOST_STREAMS]
    )
    more = len(drawn) - _MOST_STREAMS
    return inside(
        element(
            "p",
            "Every stored cell by its place in the file, upwards by its position. "
            "A step up is a hole, a step down is another order."
            + (
                " Shaded: the positions that the windowed layers hold."
                if window is not None
                else ""
            ),
            class_="quiet",
        ),
        element("div", *figures, class_="grid"),
        element("p", f"{more:,} more cell arrays", class_="quiet") if more > 0 else "",
        aside(
            "the sections as a table",
            table(
                ("section", "kind", "from", "to", "cells", "positions", "holes"),
                (_facts(section) for section in report.sections),
                (2, 3, 4, 6),
            ),
        ),
    )


def _tables(section: Section) -> Iterator[tuple[str, Rows]]:
    for stream, rows in zip(section.streams, section.tables, strict=True):
        several = section.n_stream > 1
        yield f"{section.path}, stream {stream}" if several else section.path, rows


def _positions(
    section: Section,
    name: str,
    rows: Rows,
    scale: range,
    anchors: Sequence[int],
    window: Section | None,
) -> Html:
    pos = rows.column("pos")
    n, top = len(pos), scale.stop
    if not n:
        return Html("")
    says = f"{counted(n, 'cell')}, {_range(int(pos.min()), int(pos.max()))}"
    holes = _holes(pos)
    if holes:
        says += f", {counted(holes, 'hole')}"
    if bool((pos[1:] < pos[:-1]).any()):
        says += ", not in order"
    masked = [
        path("masked", f"M{number(0.5)} {number(top - int(pos[0]) - 0.5)}h0")
        for start in anchors
        if start == rows.row_span(0).start
    ]
    if masked:
        says += "; the first cell is masked, an anchor in front of the window"
    shaded = Html("")
    if window is not None and window is not section:
        low, high = window.pos_min or 0, window.pos_max or 0
        shaded = path("win", rectangle(0, top - high - 1, n, high - low + 1))
    shapes, height = (shaded, _line(pos, top), *masked), top - scale.start
    picture = drawing(f"positions of {name}", *shapes, width=n, height=height, says=says)
    kind = section.kind if section.kind != name else ""
    return figure(
        name,
        plot(
            picture,
            (f"{top - 1:,}", f"{scale.start:,}"),
            ("cell 0", f"{n - 1:,}") if n > 1 else ("cell 0",),
        ),
        caption=" · ".join(filter(None, (kind, says))),
    )


def _range(low: int, high: int) -> str:
    return f"position {low}" if low == high else f"positions {low} to {high}"


def _line(pos: NDArray[np.int64], top: int) -> Html:
    """Consecutive positions as one stroke; where there are too many, the range of each bin."""
    n = len(pos)
    ends = [0, *(np.flatnonzero(np.diff(pos) != 1) + 1).tolist(), n]
    if len(ends) <= _MOST_RUNS:
        strokes, dots = list[str](), list[str]()
        for a, b in itertools.pairwise(ends):
            stroke = f"M{number(a + 0.5)} {number(top - int(pos[a]) - 0.5)}"
            (dots if b - a == 1 else strokes).append(f"{stroke}l{b - a - 1} {a + 1 - b}")
        found = (("cells", strokes), ("dots", dots))
        return inside(*(path(kind, "".join(shapes)) for kind, shapes in found if shapes))
    edges = np.linspace(0, n, min(n, _BINS) + 1).astype(np.int64)
    low, high = np.minimum.reduceat(pos, edges[:-1]), np.maximum.reduceat(pos, edges[:-1])
    spread = (
        rectangle(a, top - int(up) - 1, b - a, int(up) - int(down) + 1)
        for a, b, down, up in zip(edges, edges[1:], low, high, strict=False)
    )
    return path("spread", "".join(spread))


def _holes(pos: NDArray[np.int64]) -> int:
    return int(np.count_nonzero(np.diff(np.sort(pos)) > 1))


def _facts(section: Section) -> Sequence[str]:
    span, has_cells = section.span, section.pos_min is not None
    return (
        section.path,
        section.kind,
        f"0x{span.start:x}",
        f"0x{span.stop:x}",
        f"{section.cells:,}" if section.tables else f"{section.declared_cells:,}",
        f"{section.pos_min}..{section.pos_max}" if has_cells else "",
        f"{_holes(section.pos):,}" if has_cells else "",
    )


# Checkpoints


def checkpoints(report: Report, cards: Mapping[Finding, str]) -> Html:
    """Every checkpoint on the axis of tokens, below the memory of the state itself.

    Args:
        report: of the file.
        cards: ids of the cards of findings.
    """
    found = report.checkpoints
    if not found:
        return Html("")
    n = report.tokens.count if report.tokens is not None else 0
    ends = [one.record.n_tokens or 0 for one in found] + [
        (one.record.pos_max or 0) + 1 for one in found
    ]
    width = max(1, n, min(max(ends), max(1, n) * 2) if n else max(ends))
    head = found if len(found) <= _MOST_TRACKS else found[: _MOST_TRACKS // 2]
    tail = found[len(found) - _MOST_TRACKS // 2 :] if len(head) < len(found) else ()
    between = len(found) - len(head) - len(tail)
    several = len({one.record.carrier for one in found}) > 1
    return inside(
        element(
            "p",
            "A bar is the range of positions that a checkpoint holds, the upright line is where "
            f"the prompt goes on. The axis is that of the {counted(n, 'token')} of the state."
            if n
            else "A bar is the range of positions that a checkpoint holds, the upright line is "
            "where the prompt goes on.",
            class_="quiet",
        ),
        element(
            "ol",
            *(_own(section, width) for section in report.sections),
            *(_track(one, width, _why(one, report, cards), several=several) for one in head),
            element("li", f"… {between:,} more", class_="quiet") if between > 0 else "",
            *(_track(one, width, _why(one, report, cards), several=several) for one in tail),
            class_="tracks",
        ),
        aside(
            "the checkpoints as a table",
            table(
                ("", "in", "returns to", "positions", "bytes", "memory", "usable"),
                (_record(one) for one in (*head, *tail)),
                (2, 4),
            ),
        ),
    )


def _own(section: Section, width: int) -> Html:
    if section.pos_min is None or section.pos_max is None:
        return Html("")
    says = _range(section.pos_min, section.pos_max)
    bar = path("reach state", _bar(section.pos_min, section.pos_max, width))
    return element(
        "li",
        element("span", section.path),
        drawing(f"memory of {section.path}", bar, width=width, height=1, says=says),
        element("span", "the state itself", class_="quiet"),
    )


def _track(one: Checkpoint, width: int, why: Html, *, several: bool) -> Html:
    record = one.record
    shapes, says = [], "usable" if one.usable else "not usable"
    if record.pos_min is not None and record.pos_max is not None:
        kind = "reach" if one.usable else "reach no"
        shapes.append(path(kind, _bar(record.pos_min, record.pos_max, width)))
        says += f", {_range(record.pos_min, record.pos_max)}"
    if record.n_tokens is not None:
        at = min(max(0, record.n_tokens), width)
        shapes.append(path("returns", f"M{at} 0v1"))
        says += f", returns to {counted(record.n_tokens, 'token')}"
    name = f"[{record.index}]" + (f" {record.format}" if several else "")
    goes = "" if record.n_tokens is None else f" at {record.n_tokens:,}"
    verdict = (
        element("span", element("span", "✓ usable", class_="badge good"), goes)
        if one.usable
        else element("span", element("span", "✕ not usable", class_="badge bad"), why)
    )
    return element(
        "li",
        element("span", name),
        drawing(f"checkpoint {record.index}", *shapes, width=width, height=1, says=says),
        verdict,
    )


def _bar(pos_min: int, pos_max: int, width: int) -> str:
    start = min(max(0, pos_min), width)
    stop = min(max(start, pos_max + 1), width)
    return f"M{start} .5h{stop - start}"


def _why(one: Checkpoint, report: Report, cards: Mapping[Finding, str]) -> Html:
    """The findings that speak against a checkpoint, linked."""
    record = one.record
    carrier = record.carrier if record.carrier != report.name else ""
    codes: dict[str, Html] = {}
    for finding in report.findings:
        inside_it = finding.path == record.path or finding.path.startswith(
            (f"{record.path}.", f"{record.path}[")
        )
        if finding.carrier == carrier and inside_it and finding.code not in codes:
            card = cards.get(finding)
            code = element("a", finding.code, href=f"#{card}") if card else _plain(finding.code)
            codes[finding.code] = code
    if not record.complete:
        codes["cut"] = _plain("cut")
    for finding in report.findings if not codes else ():  # what spoils the whole list
        card = cards.get(finding)
        if finding.carrier == carrier and finding.severity is Severity.ERROR and card:
            codes[finding.code] = element("a", finding.code, href=f"#{card}")
    words = itertools.chain.from_iterable((" ", code) for code in codes.values())
    return inside(*words)


def _plain(words: str) -> Html:
    return element("span", words)


def _record(one: Checkpoint) -> Sequence[str]:
    record = one.record
    ends = dict.fromkeys(pos for pos in (record.pos_min, record.pos_max) if pos is not None)
    version = "" if record.version is None else f" {record.version}"
    return (
        f"[{record.index}]",
        f"{record.carrier} ({record.format}{version})",
        "" if record.n_tokens is None else counted(record.n_tokens, "token"),
        "..".join(map(str, ends)),
        "" if record.n_tgt is None else f"{record.n_tgt:,}",
        record.blob.layout if record.blob is not None else "not understood",
        "yes" if one.usable else "no",
    )
