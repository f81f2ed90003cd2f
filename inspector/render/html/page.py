"""The page: a section for each file, and an index where there are several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from inspector.findings import Finding, Severity, worst
from inspector.identify import Verdict
from inspector.render.as_text import tally
from inspector.render.html.bytes import Map, byte_map, patterns
from inspector.render.html.findings import Shown, badge, cards, left_out, shown
from inspector.render.html.markup import Html, aside, element, inside, labelled, prose, table
from inspector.render.html.memory import checkpoints, positions
from inspector.render.html.numbers import heat
from inspector.render.html.reuse import gain, repair, reuse, reused, verdict
from inspector.render.html.style import POLICY, SCRIPT, STYLE
from inspector.render.page import counted
from inspector.render.verdict import server_name
from inspector.server.loader import Outcome
from inspector.server.prompt import Outcome as Answer

if TYPE_CHECKING:
    from inspector.overview import Overview
    from inspector.report import Report

_TONES = {
    Verdict.RECOGNISED: "good",
    Verdict.AMBIGUOUS: "warn",
    Verdict.DAMAGED: "bad",
    Verdict.UNKNOWN: "bad",
}
_MOST_UNFOLDED = 8
"""Files of a page that needs no folding."""
_UNFOLDED = 3
"""Bad files that are unfolded where the others are folded."""
_GOOD = (2, Severity.WARNING.rank)
"""The rank from which on a file is not bad."""


@dataclass(frozen=True)
class Entry:
    """A file on the page.

    Attributes:
        name: without folders.
        body: its section.
        cells: its line in the index: name, restore, worst finding, reused, what it is, bytes.
        rank: how bad it is; the worst has the least.
    """

    name: str
    body: Html
    cells: tuple[str, ...]
    rank: tuple[int, int]


def entry(one: Overview, index: int, *, alone: bool, show_tokens: bool) -> Entry:
    """The section of a file.

    Args:
        one: the file, open.
        index: its place on the page, from 1.
        alone: whether it is the only one.
        show_tokens: whether token ids may be shown.
    """
    prefix, level = f"f{index}", 2 if alone else 3
    findings = shown([_named_only(found, one.report) for found in one.findings], prefix)
    others = shown(one.elsewhere, prefix, len(findings) + 1)
    maps = list(_maps(one.report))
    marked = {mark.mark for each in maps for mark in each.marks([*findings, *others])}
    card_of = {each.finding: each.card for each in (*findings, *others)}
    parts = (
        ("map", "What is in it", _map_part(maps, [*findings, *others])),
        ("findings", "Findings", _findings_part(one, findings, others, level + 1, marked)),
        ("reuse", "What the next prompt reuses", reuse(one)),
        ("repair", "What a repair would do", repair(one.plan, one.hopeless, one.report.name)),
        ("memory", "What the memory holds", positions(one.report)),
        ("checkpoints", "Where it can go back to", checkpoints(one.report, card_of)),
        ("numbers", "The stored numbers", heat(one.report, one.strips)),
        ("beside", "What lies beside it", _companions(one.report)),
        ("tokens", "Tokens", _tokens(one.report, show_tokens=show_tokens)),
        ("terms", "What this takes for granted", _terms(one)),
    )
    body = element(
        "section",
        element(
            "header",
            element(f"h{level - 1}", one.report.name, class_="name", id=prefix),
            element("p", _what(one.report), class_="what"),
            _tiles(one),
        ),
        *(
            element(
                "section",
                element(f"h{level}", title, id=f"{prefix}-{name}"),
                part,
                class_="part",
                aria_labelledby=f"{prefix}-{name}",
            )
            for name, title, part in parts
            if part
        ),
        class_="file",
        aria_labelledby=prefix,
    )
    return Entry(one.report.name, body, tuple(_line(one, prefix)), _rank(one))


def document(entries: Sequence[Entry], *, alone: bool) -> str:
    """The whole page.

    Args:
        entries: the files.
        alone: whether only one was named.
    """
    title = entries[0].name if alone else counted(len(entries), "file")
    index = Html("")
    if not alone:
        entries = sorted(entries, key=lambda one: one.rank)
        names = ("file", "restore", "findings", "reused", "what", "bytes")
        lines = table(names, [one.cells for one in entries], (3, 5))
        index = inside(
            element("h1", title, class_="name"),
            element("section", lines, class_="part index"),
        )
    body = element(
        "body",
        element("a", "to the report", href="#report", class_="skip"),
        patterns(),
        element("main", index, *_bodies(entries), id="report"),
        element(
            "footer",
            f"slotscope {version('slotscope')} · ",
            prose("`slotscope explain CODE` says more about a finding · "),
            "token ids and texts are left out unless they were asked for",
        ),
        element("script", Html(SCRIPT)),
    )
    head = inside(
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Html('<meta name="viewport" content="width=device-width,initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        element("title", f"{title} · slotscope"),
        element("style", Html(STYLE)),
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>{body}</html>\n'


def _bodies(entries: Sequence[Entry]) -> Iterator[Html]:
    """The sections; of many files each is folded, but for the first of the bad ones."""
    if len(entries) <= _MOST_UNFOLDED:
        yield from (one.body for one in entries)
        return
    for at, one in enumerate(entries):
        unfolded = "" if at < _UNFOLDED and one.rank < _GOOD else None
        yield element(
            "details",
            element("summary", one.name, " · ", one.cells[1], " · ", one.cells[2]),
            one.body,
            class_="fold",
            open=unfolded,
        )


def _rank(one: Overview) -> tuple[int, int]:
    """What kills the server, then what it refuses, then the rest by its worst finding."""
    outcome, severity = one.check.restore.outcome, worst(one.findings)
    dies = any(asked.found.outcome is Answer.ABORTS for asked in one.check.reuse)
    lost = 0 if dies or outcome is Outcome.ABORTS else 1 if outcome is Outcome.REFUSES else 2
    return lost, len(Severity) if severity is None else severity.rank


def _what(report: Report) -> str:
    """What it is and when it can have been written, in a line."""
    identification = report.identification
    reading, builds = identification.reading, identification.builds
    words = []
    if report.container is not None:
        words.append(f"a container of another program ({report.container.format})")
    if reading is not None:
        title, writer = reading.layout.title.partition(":")[0], identification.writer
        words.append(f"{writer} {title}" if writer and writer not in title else title)
        by = "by " if builds.since and builds.until else ""
        words.append(
            f"written {by}{builds}" if builds.since or builds.until else "builds not known"
        )
        words.append(f"layout {reading.layout.id}")
    words.append(counted(report.size, "byte"))
    if report.tokens is not None and report.tokens.packing != "none":
        words.append(counted(report.tokens.count, "token"))
    return " · ".join(words)


def _tiles(one: Overview) -> Html:
    """The answers: is it sound, does it restore, what is reused, what would a repair win."""
    report, check = one.report, one.check
    identification = report.identification
    numbers = "".join(part if isinstance(part, str) else part[0] for part in tally(one.findings))
    others = [other.layout.id for other in identification.competing]
    understood = f"{identification.verdict}"
    understood += f": could be {', '.join(others)} as well" if others else ""
    tone = _TONES[identification.verdict]
    rank = min((found.severity.rank for found in one.findings), default=2)
    tone = "bad" if tone == "bad" or not rank else "warn" if rank == 1 else tone
    tiles = [_tile("the file", tone, numbers, understood)]
    tiles.append(_tile(f"restore on {server_name(check.target)}", *verdict(check)))
    first = check.reuse[0]
    total = first.found.request.shared
    lost = not first.found.reused
    tone = "warn" if first.found.reused is None else "bad" if lost and total else "good"
    value, more = "not known", first.found.why
    if first.found.reused is not None:
        half = check.reuse[-1]
        value = f"{reused(first)} of {total:,}"
        more = f"tokens are reused; {reused(half)} if it shares {half.found.request.shared:,}"
    tiles.append(_tile("the next prompt, going on", tone, value, more))
    if one.plan is not None or one.hopeless:
        tiles.append(_tile("after a repair", *gain(one)))
    return element("ul", *tiles, class_="tiles")


def _tile(label: str, tone: str, value: str, more: str) -> Html:
    return element(
        "li",
        element("span", label, class_="label"),
        element("span", value, class_="value"),
        element("span", prose(more), class_="more") if more else "",
        class_=f"tile {tone}",
    )


def _maps(report: Report) -> Iterator[Map]:
    if report.container is None or report.identification.root is not None:
        yield Map("", report.name, report.tree, report.size)
    for other in report.beside:
        identified = other.identification
        if identified is not None and identified.root is not None and identified.root.children:
            file = other.companion.file
            yield Map(file.name, file.name, identified.root, file.size)


def _map_part(maps: Sequence[Map], findings: Sequence[Shown]) -> Html:
    return inside(*(byte_map(one, findings) for one in maps))


def _findings_part(
    one: Overview,
    findings: Sequence[Shown],
    others: Sequence[Shown],
    level: int,
    marked: set[str],
) -> Html:
    if not findings and not others:
        return element("p", element("span", "✓ ", class_="badge good"), "Nothing found.")
    return inside(
        cards(findings, f"h{level}", marked)
        if findings
        else element("p", "Nothing that this server meets."),
        left_out(one.findings),
        element("p", "Also found, and not counted for this server:", class_="quiet")
        if others
        else "",
        cards(others, f"h{level}", marked),
        left_out(one.elsewhere),
    )


def _named_only(finding: Finding, report: Report) -> Finding:
    """The finding without the folders of what a symbolic link points to."""
    target = report.bundle.subject.target
    name = target.replace("\\", "/").rpartition("/")[2]
    if not target or finding.code != "file.symlink":
        return finding
    message, actual = finding.message.replace(target, name), finding.actual.replace(target, name)
    return replace(finding, message=message, actual=actual)


def _companions(report: Report) -> Html:
    around = report.bundle
    rows = []
    for companion in around.companions:
        name = companion.file.name
        inner = next((other for other in report.beside if other.companion == companion), None)
        identified = inner.identification if inner is not None else None
        what = str(companion.role)
        if identified is not None and identified.reading is not None:
            what = identified.reading.layout.title
        codes = sorted(
            {
                found.code
                for found in report.findings
                if found.carrier == name and found.severity is not Severity.NOTE
            }
        )
        belongs = "not looked into" if inner is None else ", ".join(codes) or "yes"
        rows.append((name, f"{companion.file.size:,}", what, belongs))
    rows += [(name, "", "cannot be read", why) for name, why in around.barred]
    found = (
        [table(("companion", "bytes", "what it is", "belongs to it"), rows, (1,))] if rows else []
    )
    if around.role is not None and not report.sections:
        state = around.state
        where = f"{state.name}, beside it" if state is not None else "not beside it"
        found.append(element("p", "The state that it belongs to: ", where))
    if (sealed := report.sealed) is not None:
        held = (
            "holds" if sealed.complete else "holds as to length and tokens; --deep reads the rest"
        )
        found.append(element("p", "Seal: ", held if sealed.holds else "does not hold"))
    return inside(*found)


def _tokens(report: Report, *, show_tokens: bool) -> Html:
    tokens = report.tokens
    if not show_tokens or tokens is None or not len(tokens.ids):
        return Html("")
    return aside(
        "token ids", element("p", element("code", " ".join(map(str, tokens.ids.tolist()))))
    )


def _terms(one: Overview) -> Html:
    """What was assumed, what is not proven, and what the answers hold for."""
    check = one.check
    judged = check.identity.outcome.in_short
    evidence = check.identity.evidence
    lines = [("model", f"{judged}: {evidence}" if _is_public(evidence) else judged)]
    if check.identity.unproven:
        lines.append(("unproven", check.identity.unproven))
    notes = (*check.target.notes, *check.identity.notes)
    for label, found in (("assumed", check.assumed), ("if", check.conditions), ("note", notes)):
        shown = [line for line in found if label != "note" or _is_public(line)]
        lines += [("" if at else label, line) for at, line in enumerate(shown)]
    return labelled(lines)


def _is_public(note: str) -> bool:
    """Whether a remark names no path, and repeats nothing of a command line."""
    return not any(word in note for word in ("/", "\\", "in front of the server"))


def _line(one: Overview, prefix: str) -> Iterator[str]:
    report, check = one.report, one.check
    yield element("a", report.name, href=f"#{prefix}")
    yield str(check.restore.outcome)
    yield _worst(one.findings)
    yield reused(check.reuse[0])
    reading = report.identification.reading
    yield reading.layout.id if reading is not None else str(report.identification.verdict)
    yield f"{report.size:,}"


def _worst(findings: Sequence[Finding]) -> Html:
    if not findings:
        return inside("sound")
    more = f" +{len(findings) - 1}" if len(findings) > 1 else ""
    return inside(badge(findings[0].severity), f" {findings[0].code}{more}")
