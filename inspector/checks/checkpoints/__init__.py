"""Checkpoint lists: each by itself, and against the state that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable

from inspector.checkpoints import CheckpointList
from inspector.checks.checkpoints.blobs import check_blob, check_contents, has_rows_of_state
from inspector.checks.checkpoints.codes import BLOB_PROBLEMS
from inspector.checks.checkpoints.listing import check_extent, check_head, check_order, foreign
from inspector.checks.checkpoints.numbers import check_numbers, held_in
from inspector.checks.checkpoints.readers import READERS, Reader
from inspector.checks.checkpoints.state import State, is_foreign
from inspector.checks.checkpoints.subject import ListSubject
from inspector.findings import Finding, Severity
from inspector.node import join
from inspector.source import Source

_UNUSABLE = {
    "checkpoint.n-tokens-invalid",
    "checkpoint.never-picked",
    "checkpoint.other-content",
    *(f"appendix.{name}" for name, _, _, _ in BLOB_PROBLEMS),
}
"""Warnings that cost the record all the same."""

_REJECTED = {
    "sidecar.count-above-limit",
    "sidecar.count-exceeds-file",
    "sidecar.foreign",
    "sidecar.hash-mismatch",
    "sidecar.length-above-limit",
    "sidecar.prompt-mismatch",
    "sidecar.truncated",
    "sidecar.unchecked-size",
    "sidecar.unknown-version",
    "appendix.blob-empty",
    "appendix.magic",
    "appendix.count-exceeds-file",
    "appendix.truncated",
    "appendix.unknown-version",
}
"""Findings after which the reader drops the whole list."""

_ABSURD_NUMBERS = {
    "checkpoint.beyond-state",
    "checkpoint.n-tokens-invalid",
    "checkpoint.positions-invalid",
}
"""Findings after which a reader does so that checks numbers."""


def check_list(
    listing: CheckpointList, source: Source, state: State | None = None, carrier: str = ""
) -> tuple[Finding, ...]:
    """Everything that is wrong with a checkpoint list.

    Args:
        listing: the list, its blobs decoded.
        source: the file that holds it, open.
        state: the state it belongs to; None if that is not at hand.
        carrier: name of the companion file that holds the list; empty if it is the file itself.
    """
    if state is not None and is_foreign(listing, state):
        subject = ListSubject(listing, source, None, carrier)
        return (foreign(subject, state), *check_extent(subject))
    subject = ListSubject(listing, source, state, carrier)
    findings = [*check_extent(subject), *check_head(subject), *check_order(subject)]
    for record in listing.whole:
        spoilt = list(check_blob(subject, record)) if listing.decoded else []
        sound = listing.decoded and not spoilt
        findings += spoilt
        findings += check_numbers(subject, record, held_in(subject, record, sound=sound))
        if sound:
            findings += check_contents(subject, record)
    return tuple(findings)


def usable(listing: CheckpointList, findings: tuple[Finding, ...]) -> tuple[bool, ...]:
    """For each record whether its server would take it, and go on from it rightly.

    Args:
        listing: the list.
        findings: what `check_list` found in it.
    """
    reader = READERS.get((listing.format, listing.version), Reader("its reader"))
    rejecting = set(_REJECTED)
    if reader.keeps_whole:
        rejecting -= {"sidecar.truncated", "sidecar.count-exceeds-file"}
    if reader.insists_on_end:
        rejecting.add("sidecar.trailing-bytes")
    if reader.checks_numbers:
        rejecting |= _ABSURD_NUMBERS
    if any(finding.code in rejecting for finding in findings):
        return (False,) * len(listing.records)
    return sound_alone(listing, findings)


def agreeing(
    listing: CheckpointList, source: Source, state: State, findings: Iterable[Finding]
) -> set[int]:
    """The records that hold the rows of the state at positions that both have, by their index.

    Args:
        listing: the list.
        source: the file that holds it, open.
        state: the state it lies beside.
        findings: what was found in the list; nothing is read if no record of it has other rows.
    """
    if all(finding.code != "checkpoint.other-content" for finding in findings):
        return set()
    subject = ListSubject(listing, source, state, "")
    return {record.index for record in listing.whole if has_rows_of_state(subject, record)}


def sound_alone(listing: CheckpointList, findings: Iterable[Finding]) -> tuple[bool, ...]:
    """For each record whether it is whole and right, whatever becomes of its list.

    Args:
        listing: the list.
        findings: what was found in it.
    """
    blamed = spoiling(listing, findings)
    return tuple(r.complete and not blamed.get(r.index) for r in listing.records)


def spoiling(listing: CheckpointList, findings: Iterable[Finding]) -> dict[int, list[Finding]]:
    """What makes single records useless, by their index.

    Args:
        listing: the list.
        findings: what was found in it.
    """
    return {
        index: spoilt
        for index, all_of_it in by_record(listing, findings).items()
        if (spoilt := [f for f in all_of_it if f.severity is Severity.ERROR or f.code in _UNUSABLE])
    }


def by_record(listing: CheckpointList, findings: Iterable[Finding]) -> dict[int, list[Finding]]:
    """What was found in single records, by their index.

    Args:
        listing: the list.
        findings: what was found in it.
    """
    prefix, found = join(listing.path, "records"), dict[int, list[Finding]]()
    for finding in findings:
        index = finding.path.removeprefix(prefix)[1:].partition("]")[0]
        if finding.path.startswith(prefix) and index.isdigit():
            found.setdefault(int(index), []).append(finding)
    return found
