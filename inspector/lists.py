"""The checkpoint lists of a file and of its companions, judged together with their state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from inspector.bundle import Beside, Bundle
from inspector.checkpoints import CheckpointRecord, appendix_of, checkpoint_list
from inspector.checks.checkpoints import agreeing, check_list, usable
from inspector.checks.checkpoints.state import State, state_of
from inspector.checks.companions import check_companions
from inspector.checks.subject import Subject
from inspector.findings import Finding
from inspector.identify import identify
from inspector.sections import sections
from inspector.source import Source, opened
from inspector.tokens import tokens_of


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, and what is known of it.

    Attributes:
        record: the checkpoint.
        usable: whether its server would take it and go on from it rightly.
        tested: whether rows of it were compared, with those of the state or those that the model
            makes of its tokens, and are the same.
    """

    record: CheckpointRecord
    usable: bool
    tested: bool = False


def of_state(
    subject: Subject, source: Source, around: Bundle, beside: tuple[Beside, ...]
) -> tuple[tuple[Checkpoint, ...], tuple[Finding, ...]]:
    """The checkpoints of a state: behind its payload, and in the lists beside it."""
    state = state_of(subject, source)
    own = appendix_of(source, subject.root, subject.name)
    found = list(check_companions(around, beside, state, own))
    checkpoints = []
    lists = [(own, source, "")] if own is not None else []
    lists += [
        (other.listing, other.source, other.companion.file.name)
        for other in beside
        if other.listing is not None
    ]
    for listing, where, carrier in lists:
        problems = check_list(listing, where, state, carrier)
        found += problems
        alike = agreeing(listing, where, state, problems)
        checkpoints += [
            Checkpoint(record, fit, record.index in alike)
            for record, fit in zip(listing.records, usable(listing, problems), strict=True)
        ]
    return tuple(checkpoints), tuple(found)


def of_list(
    subject: Subject, source: Source, around: Bundle, beside: tuple[Beside, ...]
) -> tuple[tuple[Checkpoint, ...], tuple[Finding, ...]]:
    """The checkpoints of a sidecar, held against the state beside it if there is one."""
    found = check_companions(around, beside)
    layout = subject.reading.layout
    listing = checkpoint_list(subject.root, subject.name, layout.format, layout.version)
    if listing is None:
        return (), found
    with _state_beside(around) as state:
        problems = check_list(listing, source, state)
    fits = usable(listing, problems)
    checkpoints = (Checkpoint(r, fit) for r, fit in zip(listing.records, fits, strict=True))
    return tuple(checkpoints), (*found, *problems)


@contextmanager
def _state_beside(around: Bundle) -> Iterator[State | None]:
    if around.state is None:
        yield None
        return
    with opened(around.state.path) as source:
        identification = identify(source)
        reading = identification.reading
        if reading is None or not reading.layout.memory:
            yield None
            return
        root, name = reading.decoding.root, around.state.name
        parts, tokens = sections(root), tokens_of(root)
        yield state_of(Subject(name, source.size, identification, reading, parts, tokens), source)
