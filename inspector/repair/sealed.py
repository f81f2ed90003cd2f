"""What a seal says against a file, and whether a copy of it puts that right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from inspector.checks.seals import differences
from inspector.repair.segments import Composed, Keep, Make, Segment
from inspector.seal import SMALL, digests

if TYPE_CHECKING:
    from inspector.findings import Finding
    from inspector.report import Report

_WRONG = ("seal.section-differs", "seal.length-differs", "seal.companion-differs")
_APPENDIX = "appendix"


def unsealed(
    report: Report, alike: Sequence[Report], contents: dict[str, Composed]
) -> tuple[Finding, ...]:
    """The findings of the seal beside a file that are true of its copy too.

    A copy in another form is never compared: what was found in the file stays with it, except in
    checkpoints of which it has none.

    Args:
        report: of the file.
        alike: on the copy, and on the file as it reads with its wrong words put right; one of them
            that fits the seal shows that its bytes are right again. Files of more than 1 MiB are
            compared by size and tokens alone.
        contents: the files of the copy, by what their names add to that of the state.
    """
    if report.sealed is None or report.sealed.holds:
        return ()
    seal = report.sealed.seal
    right = any(not list(differences(one, seal, complete=one.size <= SMALL)) for one in alike)
    return tuple(
        finding
        for finding in report.findings
        if finding.code in _WRONG
        and (_is_carried(report, finding, contents) if finding.carrier else not right)
        and not (finding.path.startswith(_APPENDIX) and _is_left_out(report, finding, contents))
    )


def _is_carried(report: Report, finding: Finding, contents: dict[str, Composed]) -> bool:
    """Whether the copy has a companion of which the seal knows another, or bytes of it."""
    assert report.sealed is not None  # or there would be no finding
    files = (one for one in report.sealed.seal.companions if one.name == finding.carrier)
    sealed, own = next(files), contents.get(finding.carrier.removeprefix(report.name))
    if own is not None:
        fits = sealed.size == own.size <= SMALL
        return not (fits and next(digests(own, [own.whole()]), "") == sealed.xxh3)
    there = {one.companion.file.name: one.source for one in report.beside}
    source = there.get(finding.carrier)
    return source is None or any(
        isinstance(one, Make) or (isinstance(one, Keep) and one.source is source)
        for one in _segments(contents)
    )


def _is_left_out(report: Report, finding: Finding, contents: dict[str, Composed]) -> bool:
    """Whether no byte of a copy is of that stretch of the file, nor computed from any."""
    return not any(
        isinstance(one, Make)
        or (
            isinstance(one, Keep)
            and one.source is report.source
            and one.span.start < finding.span.stop
            and finding.span.start < one.span.stop
        )
        for one in _segments(contents)
    )


def _segments(contents: dict[str, Composed]) -> Iterator[Segment]:
    for content in contents.values():
        yield from content.content
