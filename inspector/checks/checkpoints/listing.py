"""A checkpoint list as a whole: where it ends, its head, its records among each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from formats.sidecars.record import N_RECORDS
from inspector.checkpoints import CheckpointRecord
from inspector.checks.checkpoints.state import State
from inspector.checks.checkpoints.subject import ListSubject, counted_bytes
from inspector.findings import Finding
from inspector.span import Span

_ABSURD = 64
"""A count or a length so many times beyond the bytes that are there is a lie, not a cut."""


def check_extent(subject: ListSubject) -> Iterator[Finding]:
    """Where the list ends, and where it should."""
    listing, reader = subject.listing, subject.reader
    count, limit = listing.count or 0, reader.count_limit or N_RECORDS
    if count > limit and len(listing.whole) >= min(limit, N_RECORDS) and not subject.appended:
        yield subject.of_head(
            "sidecar.count-above-limit",
            "count",
            f"{_checkpoints(count)}, more than "
            f"{f'{reader.name} takes' if reader.count_limit else 'any program writes'}",
            f"at most {limit:,}",
            f"{count:,}",
        )
    if listing.cut:
        if len(listing.whole) < N_RECORDS:
            yield _cut(subject)
        return
    if listing.rest is not None and not subject.appended:
        yield subject.finding(
            "sidecar.trailing-bytes",
            listing.path,
            listing.rest,
            f"{counted_bytes(len(listing.rest))} follow {_checkpoints(len(listing.whole))}",
            f"the end at 0x{listing.rest.start:x}",
            f"{len(listing.rest):,} more bytes",
        )


def _cut(subject: ListSubject) -> Finding:
    listing, reader = subject.listing, subject.reader
    end = listing.rest.stop if listing.rest is not None else listing.node.span.stop
    whole, count = len(listing.whole), listing.count
    partial = next((record for record in listing.records if not record.complete), None)
    if partial is not None:
        path, start = partial.path, partial.span.start
    else:
        path, start = listing.path, listing.rest.start if listing.rest is not None else end
    size = end - listing.node.span.start
    name, length = _longest(partial)
    boundless = not reader.checks_sizes and not subject.appended
    limit = reader.length_limit if not subject.appended else None
    if partial is not None and boundless and length > _ABSURD * size:
        return _too_long(subject, "sidecar.unchecked-size", partial, name, length, end - start)
    if partial is not None and limit is not None and length > limit:
        return _too_long(subject, "sidecar.length-above-limit", partial, name, length, limit)
    lies = (count or 0) > _ABSURD * max(1, size // 24)
    if count is None:
        message = f"the head of the checkpoint list ends at 0x{end:x}"
    elif partial is None or lies:
        message = f"the list claims {_checkpoints(count)} and holds {whole:,}"
    else:
        message = f"of {_checkpoints(count)} that of index {whole} is cut at 0x{end:x}"
    expected = _checkpoints(count) if count is not None else "a whole head"
    counted = count is not None and (partial is None or lies)
    if subject.appended:
        code = "appendix.count-exceeds-file" if counted else "appendix.truncated"
    elif lies and boundless:
        code = "sidecar.unchecked-size"
    elif listing.format == "ik-checkpoints" and count is not None:
        code = "sidecar.truncated-unchecked"
    else:
        code = "sidecar.count-exceeds-file" if counted else "sidecar.truncated"
    return subject.finding(code, path, Span(start, end), message, expected, f"{whole} complete")


def _too_long(
    subject: ListSubject, code: str, record: CheckpointRecord, name: str, length: int, at_most: int
) -> Finding:
    why = f"more than {subject.reader.name} takes"
    if code == "sidecar.unchecked-size":
        why = f"more than there are, and {subject.reader.name} believes any number"
    return subject.of_record(
        code,
        record,
        name,
        f"claims a blob of {length:,} bytes, {why}",
        f"at most {at_most:,} bytes",
        f"{length:,} bytes",
    )


def foreign(subject: ListSubject, state: State) -> Finding:
    """What is said of a list that no reader of the state reads."""
    return subject.finding(
        "sidecar.foreign",
        subject.listing.path,
        subject.listing.node.span,
        f"a sidecar that {subject.reader.name} reads, beside a state of {state.writer}",
        f"a sidecar that {state.writer} reads",
        subject.listing.format,
    )


def check_head(subject: ListSubject) -> Iterator[Finding]:
    """The words in front of the records."""
    listing, state = subject.listing, subject.state
    region = "appendix" if subject.appended else "sidecar"
    magic = listing.node.get("magic")
    if subject.appended and magic is not None and magic.meaning is None:
        yield subject.of_head(
            "appendix.magic",
            "magic",
            f"{_checkpoints(listing.count or 0)} follow the payload, without their magic",
            repr("SCKP"),
            repr(subject.source.read_at(magic.span.start, 4).decode("latin-1")),
        )
    if listing.count == 0:
        yield subject.of_head(
            f"{region}.empty", "count", "the list holds no checkpoints", "at least 1", "0"
        )
    version = listing.node.get("version")
    if version is not None and version.value != listing.version:
        yield subject.of_head(
            f"{region}.unknown-version",
            "version",
            f"version {version.value}, while the rest reads as version {listing.version}",
            f"{listing.version}",
            f"{version.value}",
        )
    stored = listing.node.get("state_hash")
    digest = state.digest if state is not None and stored is not None else None
    if stored is not None and digest is not None and stored.value != digest:
        yield subject.of_head(
            "sidecar.hash-mismatch",
            "state_hash",
            "the stored hash is not that of the state file",
            f"{digest:016x}",
            f"{stored.value:016x}",
        )
    tokens = listing.node.get("prompt_tokens")
    if tokens is not None and state is not None and tokens.value != state.tokens.count:
        yield subject.of_head(
            "sidecar.prompt-mismatch",
            "prompt_tokens",
            f"written for {tokens.value} tokens, the state has {state.tokens.count}",
            f"{state.tokens.count}",
            f"{tokens.value}",
        )


def check_order(subject: ListSubject) -> Iterator[Finding]:
    """The records among each other."""
    records = subject.listing.whole
    for before, record in pairwise(records):
        if _order(record) <= _order(before):
            yield subject.of_record(
                "checkpoint.not-ascending",
                record,
                "n_tokens" if record.stores_n_tokens else "pos_max",
                f"covers {record.n_tokens} tokens, the one before it {before.n_tokens}",
                f"more than {before.n_tokens}",
                f"{record.n_tokens}",
            )
            break
    drafted = [record for record in records if record.n_dft or record.n_spec]
    if drafted:
        yield subject.of_record(
            "checkpoint.draft-data",
            drafted[0],
            "data_dft" if drafted[0].n_dft else "data_spec",
            f"holds draft data, as {len(drafted):,} of {_checkpoints(len(records))} do",
            "none, unless the server has a draft model",
            f"{drafted[0].n_dft or drafted[0].n_spec:,} bytes",
        )
    state = subject.state
    kinds = {section.kind for section in state.sections} if state is not None else set()
    if records and kinds and kinds <= {"attention", "indexer"}:
        yield subject.of_record(
            "checkpoint.full-blob",
            records[0],
            "data_tgt",
            f"holds a whole attention cache, as all {len(records):,} of the list do",
            "no checkpoints: this memory can be cut back to any position",
            f"{sum(record.n_tgt or 0 for record in records):,} bytes",
        )


def _checkpoints(count: int) -> str:
    return f"{count:,} checkpoint{'s' if count != 1 else ''}"


def _order(record: CheckpointRecord) -> tuple[int, int]:
    return record.n_tokens or 0, record.pos_max or 0


def _longest(record: CheckpointRecord | None) -> tuple[str, int]:
    """The largest declared length of a record, and its name."""
    names = ("n_tgt", "n_dft", "n_spec") if record is not None else ()
    lengths = [(getattr(record, name) or 0, name) for name in names]
    length, name = max(lengths, default=(0, ""))
    return name, length
