"""Findings as cards, each linked to its bytes on the map."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from inspector.findings import Finding, Severity
from inspector.render.html.markup import Html, element, inside, labelled, prose

MOST_ALIKE = 3
"""Findings of one code that are shown in full."""
TONES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.NOTE: "note"}
ICONS = {Severity.ERROR: "✕", Severity.WARNING: "▲", Severity.NOTE: "●"}


@dataclass(frozen=True)
class Shown:
    """A finding that has a card.

    Attributes:
        finding: what was found.
        number: on the card and on the map.
        card: id of the card.
        mark: id of the mark on the map.
    """

    finding: Finding
    number: int
    card: str
    mark: str

    @property
    def tone(self) -> str:
        """Class of its colour."""
        return TONES[self.finding.severity]


def shown(findings: Sequence[Finding], prefix: str, first: int = 1) -> list[Shown]:
    """Those findings that have cards: the first few of every code.

    Args:
        findings: all of them.
        prefix: of the ids of this file.
        first: number of the first card.
    """
    seen: dict[str, int] = {}
    found: list[Shown] = []
    for finding in findings:
        seen[finding.code] = seen.get(finding.code, 0) + 1
        if seen[finding.code] <= MOST_ALIKE:
            n = first + len(found)
            found.append(Shown(finding, n, f"{prefix}-finding-{n}", f"{prefix}-mark-{n}"))
    return found


def cards(shown: Sequence[Shown], heading: str, marked: Collection[str]) -> Html:
    """Findings as cards.

    Args:
        shown: the findings.
        heading: tag of their headings.
        marked: ids of the marks that there are.
    """
    return inside(*(_card(one, heading, marked) for one in shown))


def left_out(findings: Sequence[Finding]) -> Html:
    """How many there are of a code beyond those that have cards."""
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.code] = counts.get(finding.code, 0) + 1
    return inside(
        *(
            element("p", f"{n - MOST_ALIKE:,} more of ", element("code", code), class_="quiet")
            for code, n in counts.items()
            if n > MOST_ALIKE
        )
    )


def _card(one: Shown, heading: str, marked: Collection[str]) -> Html:
    finding = one.finding
    return element(
        "article",
        element(heading, badge(finding.severity), f" {one.number} · ", prose(finding.message)),
        element("p", *_where(one, marked), class_="where"),
        labelled(_lines(finding)),
        id=one.card,
        class_=f"card {one.tone}",
        data_mark=one.card,
    )


def badge(severity: Severity) -> Html:
    """A severity as a sign and a word."""
    sign = element("span", ICONS[severity], aria_hidden="true")
    return element("span", sign, f" {severity}", class_=f"badge {TONES[severity]}")


def _where(one: Shown, marked: Collection[str]) -> Iterator[str]:
    finding = one.finding
    yield element("code", finding.code)
    for part in (finding.carrier, finding.path):
        if part:
            yield " · "
            yield element("code", part)
    yield " · "
    span = str(finding.span)
    if one.mark in marked:
        yield element("a", span, href=f"#{one.mark}", class_="hex", title="show it on the map")
    else:
        yield element("span", span, class_="hex")


def _lines(finding: Finding) -> Iterator[tuple[str, str]]:
    """What else there is to be said; of a note only what follows from it."""
    about, is_note = finding.about, finding.severity is Severity.NOTE
    if not is_note:
        yield "expected", finding.expected
        yield "actual", finding.actual
        for line in finding.evidence:
            yield "because", line
    if not (is_note and about.consequence.startswith(("nothing", "none"))):
        yield "effect", about.consequence
    if not is_note:
        yield "remedy", f"{about.remedy}: {about.advice}"
