"""A file and its companions against the seal that lies beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from inspector.bundle import RECORD
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.identify import Verdict
from inspector.seal import SMALL, BadSeal, Seal, digest_of, digests, seal_beside
from inspector.source import Unreadable
from inspector.span import Span

if TYPE_CHECKING:
    from pathlib import Path

    from inspector.report import Report

_SEALED = "the digests in the record, which slotscope seal wrote"

register(
    Code(
        "seal.section-differs",
        Severity.ERROR,
        "Bytes of a section are not those that were sealed",
        "a server restores them all the same, for nothing in a state is checked: answers are wrong "
        "from then on",
        RemedyKind.LOSSY,
        "put a copy in its place that fits the seal; of a state the tokens before it can be "
        "prefilled again",
        _SEALED,
    ),
    Code(
        "seal.length-differs",
        Severity.ERROR,
        "The file has another length than when it was sealed",
        "a part is missing, or something was added",
        RemedyKind.LOSSY,
        "put a copy in its place that fits the seal",
        _SEALED,
    ),
    Code(
        "seal.saved-anew",
        Severity.NOTE,
        "The file was saved again after it was sealed: it is whole, and most of it is other",
        "the seal is of an earlier save and says nothing about this one",
        RemedyKind.NONE,
        "seal it again with slotscope seal --force",
        _SEALED,
    ),
    Code(
        "seal.companion-differs",
        Severity.WARNING,
        "A companion is not the one that was sealed together with its state",
        "a server takes its checkpoints or tokens for those of the state",
        RemedyKind.LOSSY,
        "put a copy in its place that fits the seal, or delete it",
        _SEALED,
    ),
    Code(
        "seal.unreadable",
        Severity.WARNING,
        "The record beside the file cannot be read",
        "nothing that was sealed can be compared",
        RemedyKind.LOSSY,
        "delete it, or put a copy in its place",
        _SEALED,
    ),
)

_MOST_ALIKE = 8
"""Sections that are named one by one."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What became of the comparison with a seal.

    Attributes:
        seal: as it was written.
        complete: whether all bytes were compared, or sizes and tokens alone.
        holds: whether nothing differs.
        companions: names of those that are as they were, as far as they were compared.
    """

    seal: Seal
    complete: bool
    holds: bool
    companions: tuple[str, ...] = ()


def compared(report: Report, path: str | Path, *, deep: bool) -> Report:
    """The report with what the seal beside the file says; the same report without a seal.

    Args:
        report: of the file.
        path: of it.
        deep: whether to read all of it, however long it is.
    """
    from inspector.checks import in_order

    record = f"{report.name}{RECORD}"
    try:
        seal = seal_beside(path)
    except BadSeal as error:
        found = [
            Finding("seal.unreadable", "", Span(0, 0), str(error), "a record", "none", (), record)
        ]
        return replace(report, findings=in_order((*report.findings, *found)))
    if seal is None:
        return report
    complete = deep or report.size <= SMALL
    differing = list(differences(report, seal, complete=complete))
    others, fitting = [], []
    for companion, finding in _of_companions(report, seal, deep=deep):
        if finding is None:
            fitting.append(companion)
        else:
            others.append(finding)
    findings = in_order((*report.findings, *differing, *others))
    holds = not differing and not others
    return replace(
        report,
        findings=findings,
        sealed=Compared(seal, complete, holds, tuple(fitting)),
    )


def differences(report: Report, seal: Seal, *, complete: bool) -> Iterator[Finding]:
    """What is other in a file than in the one that was sealed.

    Args:
        report: of the file.
        seal: of it, or of the file that it is a copy of.
        complete: whether to read all of it, or to compare sizes and tokens alone.
    """
    size, evidence = report.size, _times(report, seal)
    if not complete:
        evidence += ("sizes and tokens alone were compared: --deep reads the rest",)
    tokens = report.tokens
    held = tokens.digest if tokens is not None and len(tokens.ids) else ""
    tiles = [tile for tile in seal.tiles if tile.span.stop <= size] if complete else []
    read = digests(report.source, [tile.span for tile in tiles]) if tiles else iter(())
    wrong = [(tile, now) for tile, now in zip(tiles, read, strict=False) if now != tile.xxh3]
    written = report.bundle.subject.mtime_ns != seal.mtime_ns
    whole = report.identification.verdict in (Verdict.RECOGNISED, Verdict.AMBIGUOUS)
    longer, retold = size != seal.size, held != seal.tokens
    # whoever adds, cuts or changes bytes also sets the time: it alone proves no other save
    if tiles:
        anew = len(wrong) > max(1, len(tiles) // 2) and (longer or retold or not held)
    else:
        anew = longer and retold
    if written and whole and anew:
        yield Finding(
            "seal.saved-anew",
            "",
            Span(0, size),
            "this is another save than the one that was sealed",
            f"{seal.size:,} bytes, sha256 {seal.sha256[:16]}…",
            f"{size:,} bytes, and other contents",
            evidence,
        )
        return
    if size != seal.size:
        yield Finding(
            "seal.length-differs",
            "",
            Span(seal.size, size) if size > seal.size else Span(size, size),
            f"the file has {size:,} bytes; it had {seal.size:,} when it was sealed",
            f"{seal.size:,} bytes",
            f"{size:,} bytes",
            evidence,
        )
    elif not complete and seal.tokens and held != seal.tokens and tokens is not None:
        yield _differs(tokens.path, tokens.span, seal.tokens, held or "none", evidence)
    for tile, now in wrong[:_MOST_ALIKE]:
        found = _differs(tile.path, tile.span, tile.xxh3, now, evidence)
        yield replace(found, path=tile.holder)
    if len(wrong) > _MOST_ALIKE:
        rest = wrong[_MOST_ALIKE:]
        span = Span(rest[0][0].span.start, rest[-1][0].span.stop)
        path, n = rest[0][0].first, len(rest)
        yield replace(
            _differs(rest[0][0].holder, span, rest[0][0].xxh3, rest[0][1], evidence),
            message=f"{n:,} more sections from {path} on are not as they were sealed",
        )


def _differs(path: str, span: Span, sealed: str, now: str, evidence: tuple[str, ...]) -> Finding:
    message = f"{path or 'the file'} is not as it was sealed"
    return Finding(
        "seal.section-differs",
        path,
        span,
        message,
        f"xxh3 {sealed}",
        f"xxh3 {now}",
        evidence,
    )


def _of_companions(
    report: Report, seal: Seal, *, deep: bool
) -> Iterator[tuple[str, Finding | None]]:
    """Every companion that was sealed, and what is wrong with it."""
    files = {companion.file.name: companion.file for companion in report.bundle.companions}
    for sealed in seal.companions:
        file, actual, span = files.get(sealed.name), "no such file", Span(0, 0)
        expected = f"{sealed.size:,} bytes, xxh3 {sealed.xxh3}"
        if file is not None:
            span, actual = Span(0, file.size), f"{file.size:,} bytes"
            if file.size == sealed.size:
                if not deep and file.size > SMALL:
                    yield sealed.name, None
                    continue
                try:
                    actual += f", xxh3 {digest_of(file.path)[1]}"
                except Unreadable as error:
                    actual = str(error)
        if actual == expected:
            yield sealed.name, None
            continue
        message = f"{sealed.name} is not the file that was sealed with {report.name}"
        yield (
            sealed.name,
            Finding("seal.companion-differs", "", span, message, expected, actual, (), sealed.name),
        )


def _times(report: Report, seal: Seal) -> tuple[str, ...]:
    written = report.bundle.subject.mtime_ns
    if written == seal.mtime_ns:
        return ("the time of its last change is that of the seal: nobody wrote to it",)
    return (f"last written {_date(written)}, sealed {_date(seal.sealed_ns)}",)


def _date(ns: int) -> str:
    try:
        return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "at no known date"
