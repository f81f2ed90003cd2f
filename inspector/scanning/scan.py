"""One file of many as one row: what it is, what a server will do with it, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from inspector.bundle import RECORD, Bundle, Role, bundle, looked_into
from inspector.check import Check, check_of
from inspector.checks import in_order
from inspector.report import Report, report_of, with_seal
from inspector.server.target import Target
from inspector.source import Source, Unreadable, opened

if TYPE_CHECKING:
    from inspector.findings import Finding
    from inspector.tokens import Tokens

SMALL = 1 << 20
"""Bytes of a file up to which all of it is read, to tell whether another one is equal."""
SHORTEST_PREFIX = 16
"""Tokens; prefixes are digested at every power of two from here on."""
_TEXT = 4096
_STATE_MAGICS = (b"qsgg", b"nsgg")
_FOLDED = (Role.TOKENS, Role.MARKER, Role.HIDDEN, Role.DRAFT, Role.SETTINGS)


class Kind(StrEnum):
    """What a file is among others."""

    STATE = "state"
    COMPANION = "companion"
    """It belongs to a state beside it, and is part of that state's row."""
    ORPHAN = "orphan"
    """A companion without its state."""
    LEFTOVER = "leftover"
    """Of a save that did not finish."""
    MODEL = "model"
    OTHER = "other"
    """Text, or another program's."""
    UNKNOWN = "unknown"
    """Bytes that nothing explains."""
    SPECIAL = "special"
    """No file: a pipe, a socket, a device, a link to a folder."""
    FAILED = "failed"
    """It could not be read."""


class Sealed(StrEnum):
    """How a file compares with its seal."""

    HOLDS = "holds"
    TOKENS = "tokens hold"
    """Its length and its tokens; no more was compared."""
    DIFFERS = "differs"
    UNREADABLE = "unreadable"
    """The seal."""


LISTED = (Kind.STATE, Kind.UNKNOWN, Kind.FAILED)
"""What has a line of its own."""


@dataclass(frozen=True, slots=True)
class Item:
    """A file to look at.

    Attributes:
        path: as it is shown.
        named: whether the user named this very file: then it has a line whatever it is.
        problem: why it cannot be looked at, if that is known already.
        special: whether it is no regular file.
        around: what lies beside it, for an object in a store.
        mtime_ns: when an object was stored.
    """

    path: str
    named: bool = False
    problem: str = ""
    special: bool = False
    around: Bundle | None = None
    mtime_ns: int | None = None

    @property
    def remote(self) -> bool:
        """Whether it is an object in a store."""
        return "://" in self.path


@dataclass(frozen=True, slots=True)
class Found:
    """A finding in short."""

    severity: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one file, in plain values.

    Attributes:
        path: as given.
        kind: what it is among others.
        size: bytes.
        mtime_ns: last change, nanoseconds since 1970; None if unknown.
        named: whether the user named this very file.
        identity: equal for all names of one file; None if unknown.
        link: whether the name is a symbolic link.
        verdict: how well it is understood.
        format, version, writer, layout: what it is; None where undecidable.
        since, until: the builds that can have written it.
        memory: the composition (`kv`, `iswa`, `hybrid` …), empty without one.
        n_tokens: tokens the state stands for; None without a token list, or if none of it is left.
        tokens: digest of the token list, empty without one.
        prefixes: number of tokens and digest of them, at powers of two.
        contents: digest of all bytes, empty if they were not read.
        n_usable: checkpoints that their server would take.
        n_checkpoints: all of them.
        companions: names of the files that belong to it.
        companion_bytes: their size together.
        sealed: how it compares with its seal; empty without one.
        restore, reason, message: what the server does; empty for what is no state.
        reused: tokens it reuses of a prompt that goes on from all of them; None if unknown.
        model: whether it belongs to the server's model.
        findings: the worst first, one of every code.
        problem: why it could not be looked at.
        bug: whether that is our own.
        bytes_read: from this file.
    """

    path: str
    kind: Kind
    size: int = 0
    mtime_ns: int | None = None
    named: bool = False
    identity: str | None = None
    link: bool = False
    verdict: str = ""
    format: str | None = None
    version: int | None = None
    writer: str | None = None
    layout: str | None = None
    since: str | None = None
    until: str | None = None
    memory: str = ""
    n_tokens: int | None = None
    tokens: str = ""
    prefixes: tuple[tuple[int, int], ...] = ()
    contents: str = ""
    n_usable: int = 0
    n_checkpoints: int = 0
    companions: tuple[str, ...] = ()
    companion_bytes: int = 0
    sealed: str = ""
    restore: str = ""
    reason: str | None = None
    message: str = ""
    reused: int | None = None
    model: str = ""
    findings: tuple[Found, ...] = ()
    problem: str = ""
    bug: bool = False
    bytes_read: int = 0

    @property
    def name(self) -> str:
        """Without folders."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def listed(self) -> bool:
        """Whether it has a line of its own."""
        return self.named or self.kind in LISTED

    @property
    def worst(self) -> str:
        """The severity of the worst finding, empty without one."""
        return self.findings[0].severity if self.findings else ""


@dataclass(frozen=True, slots=True)
class Job:
    """What every process needs to know to make rows.

    Attributes:
        target: the server, its model not open.
        model: where the model is; None without one.
        verify: whether to read all that was sealed.
        folder: where relative paths begin; empty for where the process is.
    """

    target: Target
    model: str | None
    verify: bool = False
    folder: str = ""


def job_for(target: Target, *, verify: bool = False) -> Job:
    """What other processes need to judge for this server; the model must be at the same place."""
    model = None if target.model is None else str(Path(target.model.source.name).resolve())
    return Job(replace(target, model=None, memory=None), model, verify)


_prepared: list[tuple[Job, Target]] = []
"""The last job of this process, and its server with the model open."""
_open = ExitStack()


def rows_of(items: Sequence[Item], job: Job) -> list[Row]:
    """One row for every item, in order; the same in every process and on every machine."""
    if not _prepared or _prepared[0][0] != job:
        _open.close()
        _prepared[:] = [(job, _target(job))]
    target = _prepared[0][1]
    return [row_of(item, target, verify=job.verify, folder=job.folder) for item in items]


def _target(job: Job) -> Target:
    if job.model is None:
        return job.target
    from inspector.server.target import with_model

    made = with_model(job.target, _open, Path(job.model))
    return replace(made, model_name=job.target.model_name)


def row_of(item: Item, target: Target, *, verify: bool = False, folder: str = "") -> Row:
    """Look at one file.

    Args:
        item: the file.
        target: the server to judge for.
        verify: whether to read all that was sealed.
        folder: where a relative path begins.

    Returns:
        Its row; whatever goes wrong is said in it.
    """
    if item.special:
        return Row(item.path, Kind.SPECIAL)
    if item.problem:
        return _failed(item, item.problem)
    try:
        return _looked_at(item, Path(folder, item.path), target, verify=verify)
    except Unreadable as error:
        return _failed(item, str(error))
    except Exception as error:  # one file that we cannot handle must not end the scan of others
        return replace(_failed(item, f"{type(error).__name__}: {error}"), bug=True)


def _failed(item: Item, problem: str) -> Row:
    return Row(item.path, Kind.FAILED, named=item.named, problem=problem)


def _looked_at(item: Item, place: Path, target: Target, *, verify: bool) -> Row:
    if not item.named and item.path.endswith(RECORD):
        return _of_record(item, place)
    around = item.around or bundle(place)
    subject = around.subject
    changed = item.mtime_ns if item.remote else subject.mtime_ns
    row = Row(item.path, Kind.OTHER, subject.size, changed, item.named, link=subject.link)
    row = replace(row, identity="{}:{}".format(*subject.identity))
    with opened(subject.path) as source:
        if not item.named and (kind := _by_name(around, source)) is not None:
            return replace(row, kind=kind, bytes_read=source.bytes_read)
        with looked_into(around.companions) as beside:
            report = report_of(source, around, beside, target.memory)
            report = with_seal(report, subject.path, deep=verify)
            row = _described(row, report)
            if row.kind is Kind.ORPHAN and around.state is not None and not item.named:
                row = replace(row, kind=Kind.COMPANION)
            if row.kind is Kind.STATE:
                numbers = target.model is not None or not item.remote
                check = check_of(report, target, (), None, numbers=numbers, remedies=False)
                row = _judged(row, check)
            if row.kind in LISTED and source.size <= SMALL and not item.remote:
                from xxhash import xxh3_128_hexdigest

                row = replace(row, contents=xxh3_128_hexdigest(source.read_at(0, source.size)))
            read = source.bytes_read + sum(other.source.bytes_read for other in beside)
            return replace(row, bytes_read=read)


def _of_record(item: Item, path: Path) -> Row:
    if item.around is not None:
        held, size = item.around.state is not None, item.around.subject.size
        changed = item.mtime_ns
    else:
        try:
            status = path.stat()
        except OSError as error:
            raise Unreadable(error.strerror or str(error)) from error
        held = path.with_name(path.name.removesuffix(RECORD)).is_file()
        size, changed = status.st_size, status.st_mtime_ns
    return Row(item.path, Kind.COMPANION if held else Kind.ORPHAN, size, changed)


def _by_name(around: Bundle, source: Source) -> Kind | None:
    """What a file is by its name alone; None if its contents decide."""
    if around.role is Role.LEFTOVER:
        return Kind.LEFTOVER
    if around.role is None or around.state is None:
        return None
    if around.role in _FOLDED or source.read_at(0, 4) not in _STATE_MAGICS:
        return Kind.COMPANION
    return None


def _described(row: Row, report: Report) -> Row:
    """The row with what the file is."""
    identification, around = report.identification, report.bundle
    reading, builds = identification.reading, identification.builds
    word = reading.decoding.root.get("version") if reading is not None else None
    version = word.value if word is not None and isinstance(word.value, int) else None
    if version is None and reading is not None:
        version = reading.layout.version
    family = reading.layout.format if reading is not None else None
    listed = _list(report.tokens)
    tokens = listed if listed is not None and len(listed.ids) else None
    return replace(
        row,
        kind=_kind(report),
        verdict=str(identification.verdict),
        format=report.container.format if report.container is not None else family,
        version=version,
        writer=identification.writer,
        layout=reading.layout.id if reading is not None else None,
        since=builds.since,
        until=builds.until,
        memory=reading.layout.memory or "" if reading is not None else "",
        n_tokens=None if listed is None else listed.count,
        tokens=tokens.digest if tokens is not None else "",
        prefixes=_prefixes(tokens) if tokens is not None else (),
        n_usable=sum(checkpoint.usable for checkpoint in report.checkpoints),
        n_checkpoints=len(report.checkpoints),
        companions=tuple(companion.file.name for companion in around.companions),
        sealed=_sealed(report),
        companion_bytes=sum(companion.file.size for companion in around.companions),
        findings=_in_short(report.findings),
    )


def _list(tokens: Tokens | None) -> Tokens | None:
    """The token list, if there is one and something of it is left, or it is empty."""
    if tokens is None or tokens.packing == "none":
        return None
    reached = tokens.rows is not None or tokens.given is not None
    return tokens if reached and (len(tokens.ids) or not tokens.count) else None


def _kind(report: Report) -> Kind:
    reading, role = report.identification.reading, report.bundle.role
    if report.sections or (reading is not None and reading.layout.memory):
        return Kind.STATE
    root = report.identification.root
    if root is not None and root.role == "model":
        return Kind.MODEL
    if role is not None:
        return Kind.ORPHAN
    if report.container is not None:
        return Kind.OTHER
    if reading is not None:
        return Kind.ORPHAN
    return Kind.OTHER if _is_text(report.source) else Kind.UNKNOWN


def _is_text(source: Source) -> bool:
    head = source.read_at(0, _TEXT)
    try:
        words = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3 or len(head) < _TEXT:
            return False
        words = head[: error.start].decode()
    return bool(words) and all(char.isprintable() or char.isspace() for char in words)


def _judged(row: Row, check: Check) -> Row:
    """The row with what the server will do."""
    builds = check.report.identification.builds
    appended = next(one.found for one in check.reuse if one.name == "append")
    return replace(
        row,
        since=builds.since,
        until=builds.until,
        restore=str(check.restore.outcome),
        reason=check.restore.reason,
        message=check.restore.message,
        reused=appended.reused,
        model=check.identity.outcome.in_short,
        findings=_in_short(in_order((*check.findings, *_of_seal(check)))),
    )


def _of_seal(check: Check) -> Iterator[Finding]:
    """What differs from the seal in companions that this server does not read."""
    for finding in check.report.findings:
        if finding.code.startswith("seal.") and finding not in check.findings:
            yield finding


def _sealed(report: Report) -> str:
    if report.sealed is None:
        bad = any(finding.code == "seal.unreadable" for finding in report.findings)
        return Sealed.UNREADABLE if bad else ""
    if not report.sealed.holds:
        return Sealed.DIFFERS
    return Sealed.HOLDS if report.sealed.complete else Sealed.TOKENS


def _in_short(findings: tuple[Finding, ...]) -> tuple[Found, ...]:
    found = {}
    for finding in findings:
        if finding.code not in found:
            found[finding.code] = Found(str(finding.severity), finding.code, finding.message)
    return tuple(found.values())


def _prefixes(tokens: Tokens) -> tuple[tuple[int, int], ...]:
    from xxhash import xxh3_64

    ids, state, digests, at = tokens.ids.astype("<i4"), xxh3_64(), [], 0
    size = SHORTEST_PREFIX
    while size <= len(ids):
        state.update(ids[at:size].tobytes())
        digests.append((size, state.intdigest()))
        at, size = size, size * 2
    return tuple(digests)
