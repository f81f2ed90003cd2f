"""The numbers of a checkpoint, and what becomes of a request that goes back to it."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.checkpoints import CheckpointRecord
from inspector.checks.checkpoints.state import beyond_state
from inspector.checks.checkpoints.subject import ListSubject
from inspector.checks.returns import Held, Numbers, Return, returned
from inspector.findings import Finding

_LEAST_WINDOW = 2
"""A window of unknown size is taken for this one: what it lacks, any lacks."""


def held_in(subject: ListSubject, record: CheckpointRecord, *, sound: bool) -> Held | None:
    """What a record's blob holds; None if that is not known, or cannot do harm.

    Args:
        subject: the list.
        record: whose.
        sound: whether its blob is; the record itself tells where a state stands that is not.
    """
    blob, at_tip, pos_max = record.blob, subject.recurrent(record), record.pos_max
    assert pos_max is not None
    if not sound or blob is None:
        return Held(pos_max, pos_max, 0, at_tip=True) if at_tip else None
    kinds = {section.kind for section in subject.state.sections} if subject.state else set()
    cells = [section for section in blob.sections if section.tables]
    if "dsv4" in kinds or (kinds and kinds <= {"attention", "indexer"}):
        return None
    if at_tip:
        last = next((c.pos_max for c in cells if c.kind == "recurrent"), None)
        last = pos_max if last is None else last
        return Held(last, last, subject.window or 0, at_tip=True)
    if len(cells) != 1 or cells[0].pos_min is None or cells[0].pos_max is None:
        return None
    first, last = cells[0].pos_min, cells[0].pos_max
    return Held(first, last, subject.window or _LEAST_WINDOW, at_tip=False)


def check_numbers(
    subject: ListSubject, record: CheckpointRecord, held: Held | None
) -> Iterator[Finding]:
    """n_tokens and positions, and what becomes of a request that goes back to the record."""
    pos_min, pos_max = record.pos_min, record.pos_max
    assert pos_min is not None
    assert pos_max is not None
    last = held.last if held is not None else pos_max
    invalid = pos_min < 0 or pos_max < pos_min
    if invalid:
        yield subject.of_record(
            "checkpoint.positions-invalid",
            record,
            "pos_min",
            f"spans positions {pos_min} to {pos_max}",
            "0 <= pos_min <= pos_max",
            f"{pos_min} to {pos_max}",
        )
    outside = _outside(subject, record, last)
    if outside is not None:
        yield outside
        return
    numbers = Numbers(_comparable(subject, record, last), pos_min, pos_max)
    blamed = ""
    if held is not None:
        code, blamed = _blame(numbers, held)
        if code:
            yield _goes_on(subject, code, record, blamed, numbers, held)
    if not invalid and not blamed.startswith("pos_"):
        yield from _positions(subject, record, held)
    if blamed != "n_tokens":
        yield from _n_tokens(subject, record, last)


def _outside(subject: ListSubject, record: CheckpointRecord, last: int) -> Finding | None:
    """What is said of a record that is of another save, or that no request picks."""
    state, pos_min, pos_max = subject.state, record.pos_min or 0, record.pos_max or 0
    if state is None:
        return None
    beyond, next_pos = beyond_state(record, state), state.next_pos
    if beyond is not None:
        picked = next_pos is None or not record.stores_n_tokens
        picked = picked or last == pos_max == next_pos
        if picked or (last >= (next_pos or 0) and not subject.appended):
            return subject.of_record("checkpoint.beyond-state", record, *beyond)
    if next_pos is not None and pos_max > next_pos:
        return subject.of_record(
            "checkpoint.never-picked",
            record,
            "pos_max",
            f"ends at position {pos_max}, the state at {next_pos - 1}",
            f"at most {next_pos}",
            f"{pos_max}",
        )
    swa = state.section("swa") if not subject.recurrent(record) else None
    if swa is not None and swa.pos_min is not None and pos_min >= max(1, swa.pos_min):
        return subject.of_record(
            "checkpoint.never-picked",
            record,
            "pos_min",
            f"begins at position {pos_min}, the window of the state at {swa.pos_min}",
            f"0, or less than {swa.pos_min}" if swa.pos_min else "0",
            f"{pos_min}",
        )
    return None


def _comparable(subject: ListSubject, record: CheckpointRecord, last: int) -> int | None:
    """n_tokens, if it is stored and counts positions too."""
    n_tokens, state = record.n_tokens, subject.state
    if n_tokens is None or not record.stores_n_tokens:
        return None
    text = state.aligned if state is not None else n_tokens <= last + 1
    return n_tokens if text else None


def _goes_on(
    subject: ListSubject,
    code: str,
    record: CheckpointRecord,
    name: str,
    numbers: Numbers,
    held: Held,
) -> Finding:
    """What is said of a record that leads a server to a wrong position."""
    start = numbers.resumed
    where = f"from position {start}" if start is not None else "wherever it is"
    holds = f"ends at {held.last}" if held.at_tip else f"holds {held.first} to {held.last}"
    return subject.of_record(
        code,
        record,
        name,
        f"has {name} {getattr(record, name)}: its server goes on {where}, its blob {holds}",
        f"{held.last + 1 if name == 'n_tokens' else held.last}",
        f"{getattr(record, name)}",
    )


def _positions(
    subject: ListSubject, record: CheckpointRecord, held: Held | None
) -> Iterator[Finding]:
    """Positions that are not those of the blob, and do no harm."""
    pos_min, pos_max = record.pos_min, record.pos_max
    if held is None or pos_min is None:
        return
    least = held.last if held.at_tip else held.first
    if pos_max != held.last:
        name, actual, message = "pos_max", pos_max, f"ends at position {pos_max}"
        message += f", the cells of its blob at {held.last}"
    elif pos_min > least or (held.at_tip and pos_min != least):
        name, actual, message = "pos_min", pos_min, f"begins at position {pos_min}"
        message += f", the cells of its blob at {least}"
    else:
        return
    expected = f"{held.last}" if name == "pos_max" or held.at_tip else f"at most {least}"
    yield subject.of_record(
        "checkpoint.positions-differ", record, name, message, expected, f"{actual}"
    )


def _n_tokens(subject: ListSubject, record: CheckpointRecord, last: int) -> Iterator[Finding]:
    """An n_tokens that is not what follows from the positions, and does no harm."""
    state, n_tokens = subject.state, _comparable(subject, record, last)
    expected = f"{last + 1}"
    if n_tokens is None:
        listed = state.tokens if state is not None and state.tokens.packing != "none" else None
        n_tokens = record.n_tokens if record.stores_n_tokens else None
        if listed is None or n_tokens is None or 0 <= n_tokens <= listed.count:
            return
        expected = f"at most {listed.count}"
    elif n_tokens in (last + 1, (record.pos_max or 0) + 1):
        return
    high = n_tokens < 0 or n_tokens > last + 1
    yield subject.of_record(
        "checkpoint.n-tokens-high" if high else "checkpoint.n-tokens-low",
        record,
        "n_tokens",
        f"covers {n_tokens} tokens and ends at position {last}",
        expected,
        f"{n_tokens}",
    )


def _blame(numbers: Numbers, held: Held) -> tuple[str, str]:
    """The code for what a return to a record leads to, and the member that is to blame for it."""
    outcome, too_few = returned(numbers, held), numbers.limit
    if outcome is Return.FROM_START:
        return "checkpoint.n-tokens-invalid", "n_tokens" if too_few == 0 else "pos_max"
    if outcome is Return.TOO_HIGH:
        name = "pos_min" if numbers.pos_max <= held.last < numbers.pos_min else "pos_max"
        return "checkpoint.position-mismatch", name
    if outcome is not Return.TOO_LOW:
        return "", ""
    if too_few is not None and too_few < numbers.end:
        return "checkpoint.n-tokens-mismatch", "n_tokens"
    if held.at_tip and numbers.pos_max >= held.last:
        return "checkpoint.recurrent-range", "pos_min"
    return "checkpoint.position-mismatch", "pos_max"
