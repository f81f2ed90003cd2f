"""The verdict on one file for one server: restore, reuse, identity, and what stands against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from inspector.checks import in_order
from inspector.checks import target as _codes  # noqa: F401 - registers the codes
from inspector.findings import Finding
from inspector.model.identity import Identity, judge
from inspector.report import Report, corrected, examined
from inspector.server.loader import Outcome
from inspector.server.prompt import Outcome as Answer
from inspector.server.prompt import Prediction, Request, usual
from inspector.server.restore import Restore, restore
from inspector.server.servers import carriers
from inspector.server.target import UNREAD, Target
from inspector.span import Span

if TYPE_CHECKING:
    from inspector.server.slot import Slot

_ANSWERED_ELSEWHERE = ("reuse.", "model.")
"""Findings about servers in general, which the verdict for one server replaces."""
_UNTESTED = "identity.not-tested"


class BadRequest(Exception):
    """A prompt that cannot be; the message says why."""


@dataclass(frozen=True, slots=True)
class Next:
    """A prompt, and what becomes of it.

    Attributes:
        name: of a usual case; empty for what the user asked.
        found: the answer.
        then: the answer for the prompt after it, if that was asked.
    """

    name: str
    found: Prediction
    then: Prediction | None = None


@dataclass(frozen=True)
class Check:
    """What a server will do with a file.

    Attributes:
        report: of the file, still open.
        target: the server.
        restore: whether it takes it.
        reuse: what the next prompt reuses.
        identity: whether the state belongs to the server's model.
        findings: against the file, for this server; the worst first.
        assumed: what had to be guessed.
        conditions: what the answers on reuse take for granted.
    """

    report: Report
    target: Target
    restore: Restore
    reuse: tuple[Next, ...]
    identity: Identity
    findings: tuple[Finding, ...]
    assumed: tuple[str, ...]
    conditions: tuple[str, ...]


@contextmanager
def checked(
    path: Path,
    target: Target,
    requests: Sequence[Request] = (),
    *,
    then: Request | None = None,
    ids: Sequence[int] | None = None,
) -> Iterator[Check]:
    """Judge a file for a server; it stays open within the context.

    Args:
        path: the file.
        target: the server.
        requests: the prompts to predict; none for the usual ones.
        then: the prompt after each of them.
        ids: one more prompt, as tokens.

    Raises:
        Unreadable: if the system does not give us the file.
        BadRequest: for a prompt that shares more tokens than the file has.
    """
    with examined(path, model=target.memory) as report:
        asked = [*requests, *([shared_with(report, ids)] if ids is not None else [])]
        yield check_of(report, target, tuple(asked), then)


def shared_with(report: Report, ids: Sequence[int]) -> Request:
    import numpy as np

    held = report.tokens.ids if report.tokens is not None else np.zeros(0, np.int64)
    n = min(len(held), len(ids))
    differs = np.flatnonzero(held[:n] != np.asarray(ids[:n], np.int64))
    return Request(int(differs[0]) if len(differs) else n, len(ids))


def check_of(
    report: Report,
    target: Target,
    requests: tuple[Request, ...],
    then: Request | None,
    *,
    numbers: bool = True,
    remedies: bool = True,
) -> Check:
    """Judge a file for a server.

    Args:
        report: of the file.
        target: the server.
        requests: prompts to answer; none for the usual ones.
        then: the prompt after each of them, if there is one.
        numbers: whether to look at what its tensors hold.
        remedies: whether to say what would make the server reuse more.
    """
    held = report.tokens.count if report.tokens is not None else 0
    most = max((request.shared for request in requests), default=0)
    if most > held:
        raise BadRequest(f"no prompt shares {most:,} tokens with it: it has {held:,}")
    writer = report.identification.writer
    whole = corrected(report, target.memory)
    looked_at = whole.sections if numbers else ()
    identity = judge(whole.source, looked_at, whole.tokens, target.model, writer=writer)
    if target.model is None and (why := _no_model(target)):
        identity = replace(identity, evidence=why)
    report = _dated(report, identity)
    if numbers and target.model is not None:
        from inspector.model.checkpoints import tested

        report = tested(report, whole.tokens, target.model, identity.outcome)
    rotated = rotated_rows(report, identity)
    outcome = restore(report, target, rotated=rotated, identity=identity)
    reuse, taken_for_granted = _reuse(report, target, outcome, requests, then, remedies=remedies)
    assumed = (*target.assumed_of_states, *outcome.assumed)
    findings = in_order(
        (
            *_of_the_file(report, target, outcome, identity),
            *outcome.findings,
            *_of_the_model(report, target),
            *_of_requests(report, reuse),
            *(finding for finding in identity.findings if _says(finding, target, outcome)),
        )
    )
    return Check(report, target, outcome, reuse, identity, findings, assumed, taken_for_granted)


def _no_model(target: Target) -> str:
    """Why there is no model to compare with although one was named; empty if none was."""
    for note in target.notes:
        if "name the model's file" in note or " is not understood" in note:
            return f"no model was read: {note}"
        if note.startswith(UNREAD):
            return note
    return ""


def _dated(report: Report, identity: Identity) -> Report:
    """The report with what the numbers say about the build that wrote them."""
    builds = report.identification.builds
    for dating in identity.datings:
        builds = builds.narrowed(dating.builds.since, dating.builds.until)
    return replace(report, identification=replace(report.identification, builds=builds))


def rotated_rows(report: Report, identity: Identity) -> bool | None:
    """Whether quantized rows were found to be rotated; None if none were recognised."""
    section = next((part for part in report.sections if part.k), None)
    found = set()
    for side in identity.sides:
        blocks = getattr(section, side.name, ()) if side.name in ("k", "v") else ()
        readings = blocks[0].readings if blocks else ()
        if readings and readings[0].block_elements > 1 and side.agrees and not side.blind:
            found.add(bool(side.rotation))
    return found.pop() if len(found) == 1 else None


def _says(finding: Finding, target: Target, outcome: Restore) -> bool:
    """Whether a finding about identity is news: not that nothing was compared with no model."""
    if finding.code == _UNTESTED:
        return target.model is not None and outcome.outcome is Outcome.ACCEPTS
    return True


def _reuse(
    report: Report,
    target: Target,
    outcome: Restore,
    requests: tuple[Request, ...],
    then: Request | None,
    *,
    remedies: bool,
) -> tuple[tuple[Next, ...], tuple[str, ...]]:
    held = report.tokens.count if report.tokens is not None else 0
    named = [("", request) for request in requests] or list(usual(held).items())
    if outcome.outcome is Outcome.REFUSES:
        how, reused, why = Answer.REUSES, 0, "the restore is refused"
    elif outcome.outcome is Outcome.ABORTS:
        how, reused, why = Answer.UNKNOWN, None, "the server dies before"
    else:
        from inspector.server.restored import restored

        slot = restored(report, target)
        if outcome.outcome is Outcome.ACCEPTS and not isinstance(slot, str):
            return _answers(report, target, slot, named, then, remedies=remedies)
        how, reused, why = Answer.UNKNOWN, None, slot if isinstance(slot, str) else outcome.message
    nothing = [(name, Prediction(r, how, reused, None, "", why)) for name, r in named]
    after = None if then is None else Prediction(then, Answer.UNKNOWN, None, None, "", why)
    return tuple(Next(name, found, after) for name, found in nothing), ()


def _answers(
    report: Report,
    target: Target,
    slot: Slot,
    named: Sequence[tuple[str, Request]],
    then: Request | None,
    *,
    remedies: bool,
) -> tuple[tuple[Next, ...], tuple[str, ...]]:
    from inspector.server.reuse import conditions, follow_up, predictions

    asked = tuple(request for _, request in named)
    found = predictions(report, target, asked, remedies=remedies)
    assert not isinstance(found, str)
    answers = []
    for (name, request), one in zip(named, found, strict=True):
        after = None if then is None else follow_up(slot, target, request, then)
        answers.append(Next(name, one, after))
    return tuple(answers), conditions(slot, target)


def _of_the_file(
    report: Report, target: Target, outcome: Restore, identity: Identity
) -> Iterator[Finding]:
    """What is wrong with the file and with those companions that the server reads."""
    read = carriers(target.build)
    suffixes = {carrier.suffix for carrier in read if carrier.suffix}
    names = {report.name + suffix for suffix in suffixes}
    if target.build.has("ik-companions") and outcome.reason != "target.companion-aborts":
        names.add(f"{report.name}.tokens.json")
    reads_appendix = any(not carrier.suffix for carrier in read)
    ignored = set[str]()
    answered: tuple[str, ...] = ()
    if outcome.outcome is not Outcome.UNKNOWN:
        answered = _ANSWERED_ELSEWHERE
    if rotated_rows(report, identity) is not None or target.build.has("rotation-words"):
        answered = (*answered, "rotation.unrecorded")
    for finding in report.findings:
        if finding.code.startswith(answered):
            continue
        if finding.carrier and finding.carrier not in names:
            continue
        if finding.path.startswith("appendix") and not reads_appendix:
            continue
        yield finding
    for held in report.checkpoints:
        record = held.record
        mine = record.carrier in names if record.carrier != report.name else reads_appendix
        if not mine and record.carrier not in ignored:
            ignored.add(record.carrier)
            yield Finding(
                "target.companion-ignored",
                "" if record.carrier != report.name else "appendix",
                Span(record.span.start, record.span.start),
                f"{target.build.label} does not read the checkpoints in {record.carrier}",
                ", ".join(sorted(suffixes)) or ("checkpoints in the file" if read else "none"),
                record.format,
                carrier=record.carrier if record.carrier != report.name else "",
            )


def _of_the_model(report: Report, target: Target) -> Iterator[Finding]:
    """A model file with which no server starts."""
    cut = target.model.cut if target.model is not None else None
    if cut is not None:
        yield Finding(
            "target.model-truncated",
            "",
            Span(0, report.size),
            f"{target.model_name}: {cut}",
            f"at least {cut.size:,} bytes",
            f"{cut.actual:,} bytes",
        )


def _of_requests(report: Report, reuse: Sequence[Next]) -> Iterator[Finding]:
    """Prompts that a server does not survive, or does not answer."""
    codes = {Answer.ABORTS: "target.request-aborts", Answer.HTTP_ERROR: "target.request-refused"}
    asked = [one.found for one in reuse] + [one.then for one in reuse if one.then is not None]
    for found in asked:
        if found.outcome in codes:
            request = found.request
            message = f"a prompt of {request.total:,} tokens that shares {request.shared:,}"
            yield Finding(
                codes[found.outcome],
                "",
                Span(0, report.size),
                f"{message}: {found.why}",
                "an answer",
                str(found.outcome),
            )
