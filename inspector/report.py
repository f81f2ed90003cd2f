"""The report on one file: everything that was found, ready to be shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from formats.ggml_types import IK
from inspector.builds import Interval
from inspector.bundle import Beside, Bundle, bundle, looked_into
from inspector.checks import findings_of, in_order
from inspector.checks.containers import check_container
from inspector.checks.envelope import check_link, unrecognised
from inspector.checks.ik import check_ik
from inspector.checks.reuse import check_reuse
from inspector.checks.subject import Subject
from inspector.findings import Finding
from inspector.identify import Identification, Verdict, identify
from inspector.node import Absent, Kind, Node, covering
from inspector.sections import Section, sections
from inspector.source import Source, opened
from inspector.span import Span
from inspector.tokens import Tokens, tokens_of

if TYPE_CHECKING:
    from inspector.checks.seals import Compared
    from inspector.checks.tensors import Statistics
    from inspector.containers import Container
    from inspector.lists import Checkpoint
    from inspector.model.geometry import MemoryExpectation

SCHEMA = "slotscope.inspect/1"

_CONTAINERS = (b"{", b" ", b"\t", b"\r", b"\n", b"S", b"\x80")
"""First bytes of JSON, SQLite and pickles; only they are worth loading what reads those."""


@dataclass(frozen=True)
class Report:
    """What is known about one file, while it is open.

    Attributes:
        source: the file, open.
        bundle: the file and the names beside it.
        identification: what it is.
        container: what it holds, if it is another program's container.
        sections: its memory sections in file order.
        tokens: its token field; None if nothing is known of one.
        checkpoints: of the file itself, then of the companions beside it.
        beside: the companions that were looked into.
        findings: the worst first, then in file order.
        statistics: of the stored numbers, by block, if they were read.
        sealed: how it compares with the seal beside it, if there is one.
    """

    source: Source
    bundle: Bundle
    identification: Identification
    container: Container | None = None
    sections: tuple[Section, ...] = ()
    tokens: Tokens | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    beside: tuple[Beside, ...] = ()
    findings: tuple[Finding, ...] = ()
    statistics: tuple[Statistics, ...] = ()
    sealed: Compared | None = None

    @property
    def name(self) -> str:
        """The file's name, without folders."""
        return self.bundle.subject.name

    @property
    def size(self) -> int:
        """Bytes."""
        return self.bundle.subject.size

    @property
    def aligned(self) -> bool:
        """Whether positions count tokens: of text alone, every token with a cell."""
        tokens = self.tokens
        if tokens is None or tokens.media:
            return False
        ends = [section.pos_max for section in self.sections if section.pos_max is not None]
        return bool(ends) and max(ends) + 1 == tokens.count

    @property
    def changed(self) -> bool:
        """Whether somebody has written to the file since we looked at it."""
        subject = self.bundle.subject
        return self.source.stamp() != (subject.size, subject.mtime_ns)

    @property
    def tree(self) -> Node:
        """What every byte of the file is; one gap if nothing explains it."""
        whole = Span(0, self.size)
        reading = self.identification.reading
        if reading is None:
            return Node("", Kind.GAP, whole, Absent.NOT_READ)
        return covering(reading.decoding.root, whole)


@contextmanager
def examined(
    path: str | Path, *, model: MemoryExpectation | None = None, deep: bool = False
) -> Iterator[Report]:
    """Look at the file at `path` and at its companions; they stay open within the context.

    Args:
        path: a state, a sidecar, a model, or anything.
        model: what the model it is said to belong to stores.
        deep: whether to read the stored numbers too.

    Raises:
        Unreadable: if the system does not give us the file.
    """
    with opened(path) as source:
        around = bundle(path)
        with looked_into(around.companions) as beside:
            report = report_of(source, around, beside, model)
            if deep:
                report = _deep(source, report)
            yield with_seal(report, path, deep=deep)


def with_seal(report: Report, path: str | Path, *, deep: bool) -> Report:
    """The report, compared with the seal beside the file if there is a record.

    Args:
        report: of the file.
        path: of it.
        deep: whether to read all that was sealed.
    """
    if not report.bundle.record:
        return report
    from inspector.checks.seals import compared

    return compared(report, path, deep=deep)


def corrected(report: Report, model: MemoryExpectation | None) -> Report:
    """The report on the file with the word that is damaged read as what makes it whole.

    The same report where no such word is known. The file is not touched.
    """
    mend = report.identification.mend
    if mend is None:
        return report
    from inspector.mend import Patched

    return report_of(Patched(report.source, mend), report.bundle, report.beside, model)


def report_of(
    source: Source, around: Bundle, beside: tuple[Beside, ...], model: MemoryExpectation | None
) -> Report:
    if source.read_at(0, 1) in _CONTAINERS:
        from inspector.containers import recognise

        if (container := recognise(source)) is not None:
            return _of_container(source, around, container)
    identification = identify(source, memory=model.memory if model else None)
    reading = identification.reading
    if reading is None:
        findings = (unrecognised(source.size, source.read_at(0, 16)),)
        return Report(source, around, identification, findings=findings)
    root = reading.decoding.root
    parts, tokens = sections(root), tokens_of(root)
    subject = Subject(
        around.subject.name, source.size, identification, reading, parts, tokens, model
    )
    report = Report(source, around, identification, sections=parts, tokens=tokens, beside=beside)
    found = [
        *findings_of(subject),
        *check_ik(subject, source),
        *check_link(subject, around.subject),
    ]
    if subject.section("swa") is not None:
        from inspector.checks.anchor import check_anchor

        found += check_anchor(subject, source)
    if model is not None:
        from inspector.checks.model import check_model

        found += check_model(subject, model)
    checkpoints, more = _lists(subject, source, around, beside)
    if subject.is_state and not any(checkpoint.usable for checkpoint in checkpoints):
        found += check_reuse(subject, found)
    return replace(report, checkpoints=checkpoints, findings=in_order((*found, *more)))


def _lists(
    subject: Subject, source: Source, around: Bundle, beside: tuple[Beside, ...]
) -> tuple[tuple[Checkpoint, ...], tuple[Finding, ...]]:
    """The checkpoints of a file and of its companions; most states have neither."""
    alone = not (around.companions or around.barred) and around.role is None
    whole = subject.reading.decoding.complete and subject.root.get("appendix") is None
    if subject.is_state and alone and whole and subject.identification.writer != IK:
        return (), ()
    from inspector.lists import of_list, of_state

    judge = of_state if subject.is_state else of_list
    return judge(subject, source, around, beside)


def _of_container(source: Source, around: Bundle, container: Container) -> Report:
    """A container, and the state in it if there is one."""
    ids = container.tokens
    count = 0 if ids is None else len(ids)
    span = Span(0, source.size)
    tokens = Tokens("none" if ids is None else "plain", count, count, 0, "tokens", span, None, ids)
    findings = tuple(check_container(container))
    state = next((inner for inner in container.inner if inner.holds == "context"), None)
    if state is None:
        verdict = Verdict.DAMAGED if container.problems else Verdict.RECOGNISED
        nothing = Identification(verdict, None, (), Interval(None, None), container.format, None)
        return Report(source, around, nothing, container, tokens=tokens, findings=findings)
    identification = identify(source, state.span)
    reading = identification.reading
    if reading is None or container.problems:
        identification = replace(identification, verdict=Verdict.DAMAGED)
    if reading is None:
        return Report(source, around, identification, container, tokens=tokens, findings=findings)
    parts = sections(reading.decoding.root)
    subject = Subject(around.subject.name, source.size, identification, reading, parts, tokens)
    found = in_order((*findings, *findings_of(subject)))
    return Report(source, around, identification, container, parts, tokens, findings=found)


def _deep(source: Source, report: Report) -> Report:
    """The report with the stored numbers read."""
    from inspector.checks.tensors import check_tensors, statistics

    blocks = [block for section in report.sections for block in section.blocks]
    measured = tuple(statistics(source, blocks))
    found = check_tensors(report.sections, measured)
    return replace(report, statistics=measured, findings=in_order((*report.findings, *found)))
