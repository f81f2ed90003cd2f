"""Checkpoint lists: each by itself, and against the state that it belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from formats.ggml_types import IK
from formats.sidecars.record import N_RECORDS
from inspector.checkpoints import Blob, CheckpointList, CheckpointRecord, digest_of
from inspector.checks.returns import Held, Numbers, Return, returned
from inspector.checks.subject import Subject
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.node import join
from inspector.sections import Block, Section
from inspector.source import Source
from inspector.span import Span
from inspector.tokens import Tokens

_B11549 = "llama.cpp b11549: answers to requests that pick a record with wrong numbers"
_LOAD = "llama.cpp b9109 (PR #22838), common/common.h load_tgt; measured on b11549"
_SCKP = "llama.cpp 033df86b6 (PR #26004), tools/server/server-context.cpp; measured on b11549"
_LISTS = "the loaders that formats/sidecars cites"
_IK = "ik_llama.cpp 5e8bb724c (PR #1584), examples/server/server-context.cpp; measured"

_DIES = (
    "the restore succeeds; the server aborts at the first request that picks the record "
    "(ik_llama.cpp evaluates that request from the start)"
)
_STARTS_OVER = "the restore succeeds; a request that picks the record is evaluated from the start"

register(
    Code(
        "sidecar.truncated",
        Severity.WARNING,
        "A checkpoint sidecar ends before its records do",
        "its reader drops all of its checkpoints (bongo: those from the cut on): prompts that do "
        "not extend the saved one are evaluated again",
        RemedyKind.LOSSY,
        "drop the incomplete record and correct the count: the others become usable",
        _LISTS,
    ),
    Code(
        "sidecar.truncated-unchecked",
        Severity.ERROR,
        "A checkpoint sidecar ends before its records do, and its reader does not notice",
        "records behind the cut are made of leftovers in memory; a length among them can end the "
        "server with bad_alloc",
        RemedyKind.LOSSY,
        "drop the incomplete record and correct the count",
        _IK,
    ),
    Code(
        "sidecar.trailing-bytes",
        Severity.WARNING,
        "Bytes follow the last record of a checkpoint sidecar",
        "readers of PKCL 2 and STCK reject the sidecar, others ignore the bytes",
        RemedyKind.EXACT,
        "cut them off",
        _LISTS,
    ),
    Code(
        "sidecar.count-exceeds-file",
        Severity.WARNING,
        "A checkpoint sidecar claims more records than it holds",
        "its reader drops all of its checkpoints (bongo keeps those that are there)",
        RemedyKind.EXACT,
        "write the number of records that are there",
        _LISTS,
    ),
    Code(
        "sidecar.unchecked-size",
        Severity.ERROR,
        "A count or a length exceeds the sidecar, and its reader believes any",
        "the reader allocates without bound or loops over missing records: restoring can end the "
        "server with bad_alloc",
        RemedyKind.LOSSY,
        "drop what is incomplete and correct the count, or delete the sidecar",
        _LISTS,
    ),
    Code(
        "sidecar.count-above-limit",
        Severity.WARNING,
        "A checkpoint sidecar has more records than its reader takes",
        "the reader drops all of them",
        RemedyKind.LOSSY,
        "keep the newest records, as many as the limit allows",
        _LISTS,
    ),
    Code(
        "sidecar.length-above-limit",
        Severity.WARNING,
        "A blob of a checkpoint sidecar is larger than its reader takes",
        "the reader drops all checkpoints",
        RemedyKind.LOSSY,
        "drop the record",
        _LISTS,
    ),
    Code(
        "sidecar.empty",
        Severity.NOTE,
        "A checkpoint sidecar without records",
        "the reader succeeds with no checkpoints, and only that of PKCL 2 makes one of the "
        "restored end",
        RemedyKind.EXACT,
        "delete it",
        _LISTS,
    ),
    Code(
        "sidecar.unknown-version",
        Severity.WARNING,
        "The version of a checkpoint sidecar is none that a known program writes",
        "its reader rejects the sidecar: the restore goes on without checkpoints (the turboquant "
        "fork at cff2ea367 crashes)",
        RemedyKind.EXACT,
        "write the version whose layout explains the file",
        _LISTS,
    ),
    Code(
        "sidecar.hash-mismatch",
        Severity.WARNING,
        "The state is not the one that the sidecar was written for",
        "the reader rejects the sidecar",
        RemedyKind.EXACT,
        "write its hash if the records fit the state, else delete the sidecar",
        "commit 001d906a6 in the fork network of ggml-org/llama.cpp",
    ),
    Code(
        "sidecar.prompt-mismatch",
        Severity.WARNING,
        "The sidecar was written for another number of prompt tokens than the state has",
        "the reader rejects the sidecar",
        RemedyKind.LOSSY,
        "delete it",
        "formats/sidecars/stck.py",
    ),
    Code(
        "sidecar.foreign",
        Severity.WARNING,
        "The sidecar is of another program than the state",
        "the server that reads the state looks for another sidecar, or rejects this one",
        RemedyKind.LOSSY,
        "delete it: the blobs of ik_llama.cpp and of llama.cpp are no copies of each other",
        _IK,
    ),
    Code(
        "appendix.truncated",
        Severity.WARNING,
        "The checkpoint appendix ends before its records do",
        "the server ignores all of its records; the state itself restores",
        RemedyKind.LOSSY,
        "drop the incomplete record and correct the count, or cut the file at the payload's end",
        _SCKP,
    ),
    Code(
        "appendix.count-exceeds-file",
        Severity.WARNING,
        "The checkpoint appendix claims more records than it holds",
        "the server ignores all of its records; the state itself restores",
        RemedyKind.EXACT,
        "write the number of records that are there",
        _SCKP,
    ),
    Code(
        "appendix.magic",
        Severity.WARNING,
        "A checkpoint appendix whose magic is damaged: all else of it reads to the exact end",
        "the server takes it for bytes that are not its own and ignores them without a message",
        RemedyKind.EXACT,
        "write SCKP",
        _SCKP,
    ),
    Code(
        "appendix.unknown-version",
        Severity.WARNING,
        "The version of the checkpoint appendix is not 1",
        "the server ignores all of its records; the state itself restores",
        RemedyKind.EXACT,
        "write 1 if the records are whole",
        _SCKP,
    ),
    Code(
        "appendix.empty",
        Severity.NOTE,
        "A checkpoint appendix without records",
        "none: revisions before the merge wrote it for every model, and mainline accepts it",
        RemedyKind.EXACT,
        "cut it off",
        _SCKP,
    ),
    Code(
        "checkpoint.beyond-state",
        Severity.ERROR,
        "A checkpoint lies behind the end of the state",
        "it belongs to another save: a request that picks it is answered from another "
        "conversation. That happens if it ends right behind the state, and with servers from "
        "before b9593 that find it by pos_min alone; others forget it",
        RemedyKind.LOSSY,
        "drop the record; if the sidecar is from another save, delete it",
        _B11549,
    ),
    Code(
        "checkpoint.never-picked",
        Severity.WARNING,
        "No request can pick a checkpoint after the restore",
        "it is of no use: servers forget a record whose pos_max lies behind what is shared, and "
        "pass over one of a sliding window whose pos_min is neither 0 nor below the window in "
        "memory",
        RemedyKind.LOSSY,
        "drop the record; if its blob is of this save, write the positions of its cells, or a "
        "pos_min that is one lower",
        _B11549,
    ),
    Code(
        "checkpoint.positions-invalid",
        Severity.WARNING,
        "The positions of a checkpoint are negative or in the wrong order",
        "no writer writes this: a negative pos_min lets more requests pick the record, one above "
        "pos_max fewer. STCK and SLCK are dropped as a whole",
        RemedyKind.EXACT,
        "take the positions from the blob",
        _B11549,
    ),
    Code(
        "checkpoint.n-tokens-invalid",
        Severity.WARNING,
        "A checkpoint that goes back to no tokens",
        "a request that picks the record is evaluated from the start, even if an earlier record "
        "would do. STCK and SLCK are dropped as a whole",
        RemedyKind.EXACT,
        "write the positions of the blob and n_tokens = pos_max + 1 (text)",
        _B11549,
    ),
    Code(
        "checkpoint.n-tokens-mismatch",
        Severity.ERROR,
        "A checkpoint's n_tokens is too small for its blob",
        "a request that picks the record goes on below it: a recurrent or hybrid model aborts the "
        "server (b9180 on), a sliding-window model answers from a window that lacks positions",
        RemedyKind.EXACT,
        "write n_tokens = pos_max + 1 (text)",
        _B11549,
    ),
    Code(
        "checkpoint.n-tokens-low",
        Severity.WARNING,
        "A checkpoint's n_tokens is too small, but its blob reaches down to there",
        "a few tokens more are evaluated, the first of them perhaps with a window that lacks a few "
        "positions: answers hardly change",
        RemedyKind.EXACT,
        "write n_tokens = pos_max + 1 (text)",
        _B11549,
    ),
    Code(
        "checkpoint.n-tokens-high",
        Severity.WARNING,
        "A checkpoint's n_tokens is larger than its last position + 1, or negative",
        "none while the positions are right: the server goes on from these",
        RemedyKind.EXACT,
        "write n_tokens = pos_max + 1 (text)",
        _B11549,
    ),
    Code(
        "checkpoint.not-ascending",
        Severity.NOTE,
        "Checkpoints are not in ascending order",
        "the search runs from the end of the list, so an earlier one can be picked and some "
        "tokens more are evaluated; llama-server itself leaves such lists after a prompt that "
        "went back",
        RemedyKind.EXACT,
        "sort the records by n_tokens",
        "llama.cpp b11549, sixth record of a saved slot whose prompt went back",
    ),
    Code(
        "checkpoint.recurrent-range",
        Severity.ERROR,
        "A recurrent checkpoint's pos_min lies below its blob",
        "the record is picked for a prompt that ends where it ends, and the server aborts (b9180 "
        "on)",
        RemedyKind.EXACT,
        "write pos_min = pos_max = the position in the blob",
        _B11549,
    ),
    Code(
        "checkpoint.window-gap",
        Severity.ERROR,
        "The blob of a sliding-window checkpoint does not cover the window",
        "answers after a return to the checkpoint are computed from a window with holes",
        RemedyKind.LOSSY,
        "drop the record",
        _B11549,
    ),
    Code(
        "checkpoint.window-short",
        Severity.NOTE,
        "The blob of a sliding-window checkpoint lacks the first position of the window",
        "the first token after a return to the checkpoint is computed with one cell less; "
        "llama-server itself leaves such records after it went back to a checkpoint",
        RemedyKind.LOSSY,
        "drop the record",
        _B11549,
    ),
    Code(
        "checkpoint.position-mismatch",
        Severity.ERROR,
        "The positions of a checkpoint are not those in its blob, and the server goes on from them",
        "too low: abort (recurrent, hybrid; b9180 on) or answers from a window that lacks "
        "positions; too high, with n_tokens too high as well: HTTP 500, or wrong answers of a "
        "model with M-RoPE",
        RemedyKind.EXACT,
        "trust the blob: write its positions and n_tokens = pos_max + 1 (text)",
        _B11549,
    ),
    Code(
        "checkpoint.positions-differ",
        Severity.WARNING,
        "The positions of a checkpoint are not those in its blob, but it goes on from a right one",
        "too high: requests that share less than they say do not pick the record, and n_tokens "
        "keeps the others in place; too low: a few tokens more are evaluated, answers hardly "
        "change",
        RemedyKind.EXACT,
        "trust the blob and write its positions",
        _B11549,
    ),
    Code(
        "checkpoint.other-content",
        Severity.WARNING,
        "The blob of a checkpoint holds other rows than the state at the same positions",
        "the checkpoint was taken in another conversation, or before a context shift: answers "
        "after a return to it come from there",
        RemedyKind.LOSSY,
        "drop the record; if all records differ, delete the sidecar",
        "rows of 13 checkpoints saved by llama.cpp b11549: equal byte for byte",
    ),
    Code(
        "checkpoint.full-blob",
        Severity.NOTE,
        "The blobs are complete attention caches",
        "none; a model whose memory can be cut back needs no checkpoints, the bytes are wasted",
        RemedyKind.LOSSY,
        "drop the records",
        "llama.cpp b10587, src/llama-kv-cache.cpp ignores PARTIAL_ONLY",
    ),
    Code(
        "checkpoint.draft-data",
        Severity.NOTE,
        "Checkpoints hold the state of a draft context or of a speculative decoder",
        "a server without that draft model ignores the bytes; the draft context itself is not in "
        "a slot file, so drafts are accepted less often until it is rebuilt",
        RemedyKind.NONE,
        "not needed",
        "llama.cpp b11549; issue ggml-org/llama.cpp#28619",
    ),
)

_BLOB_PROBLEMS = (
    (
        "blob-empty",
        "A checkpoint without a target blob",
        RemedyKind.LOSSY,
        "drop the record",
    ),
    (
        "blob-truncated",
        "The blob of a checkpoint ends before its own counts say",
        RemedyKind.LOSSY,
        "drop the record",
    ),
    (
        "blob-trailing-bytes",
        "The blob of a checkpoint is longer than its own counts say",
        RemedyKind.EXACT,
        "cut the bytes off and lower the length",
    ),
    (
        "blob-unreadable",
        "The blob of a checkpoint is no state that a known program writes",
        RemedyKind.LOSSY,
        "drop the record",
    ),
    (
        "blob-geometry",
        "The blob of a checkpoint has other layers, types or row sizes than the state",
        RemedyKind.LOSSY,
        "drop the record: it is of another model or of another cache type",
    ),
    (
        "blob-prefix",
        "The blob of a checkpoint lacks the eight bytes in front that the server looks for",
        RemedyKind.EXACT,
        "put d8 3c 14 af and a zero in front, or in place of the first eight bytes if spoilt",
    ),
    (
        "blob-rotation",
        "The blob of a checkpoint is not in the dialect of the state: rotation words",
        RemedyKind.LOSSY,
        "drop the record, or take the words from the state's own section",
    ),
)

for _name, _meaning, _kind, _advice in _BLOB_PROBLEMS:
    register(
        Code(f"checkpoint.{_name}", Severity.ERROR, _meaning, _DIES, _kind, _advice, _LOAD),
        Code(
            f"appendix.{_name}",
            Severity.WARNING,
            _meaning,
            "the restore succeeds and all records are ignored"
            if _name == "blob-empty"
            else _STARTS_OVER,
            _kind,
            _advice,
            _SCKP,
        ),
    )

_UNUSABLE = {
    "checkpoint.n-tokens-invalid",
    "checkpoint.never-picked",
    "checkpoint.other-content",
    *(f"appendix.{name}" for name, _, _, _ in _BLOB_PROBLEMS),
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


@dataclass(frozen=True, slots=True)
class Reader:
    """What the program that reads a family insists on.

    Attributes:
        name: the program, for people.
        count_limit: records that it takes at most; None for any number.
        length_limit: bytes of a blob that it takes at most; None for any length.
        checks_sizes: whether it tests counts and lengths before it believes them.
        checks_numbers: whether it rejects the list if n_tokens or positions of a record are absurd.
        insists_on_end: whether bytes behind the last record make it reject the list.
        keeps_whole: whether records in front of a cut survive the cut.
        leaves_stale: whether a save without checkpoints leaves an older list in place.
    """

    name: str
    count_limit: int | None = None
    length_limit: int | None = None
    checks_sizes: bool = True
    checks_numbers: bool = False
    insists_on_end: bool = False
    keeps_whole: bool = False
    leaves_stale: bool = False


_UPSTREAM_PR = "builds with llama.cpp PR #20819"
READERS: dict[tuple[str, int | None], Reader] = {
    ("pkcl", 1): Reader("the turboquant fork", 1024, 1 << 34, leaves_stale=True),
    ("pkcl", 2): Reader("a fork with PKCL 2", insists_on_end=True),
    ("llcp", 1): Reader(_UPSTREAM_PR, checks_sizes=False, leaves_stale=True),
    ("llcp", 2): Reader("the gfx906 fork", checks_sizes=False, leaves_stale=True),
    ("lsckpt2", None): Reader("llama-hdd", checks_sizes=False),
    ("sckp", 1): Reader("llama.cpp from b11549 on"),
    ("stck", 2): Reader("the STCK fork", 64, 1 << 32, checks_numbers=True, insists_on_end=True),
    ("bkcp", 1): Reader("bongo", checks_sizes=False, keeps_whole=True, leaves_stale=True),
    ("slck", 1): Reader("siliang-engine", 4096, 1 << 34, checks_numbers=True),
    ("ik-checkpoints", 3): Reader("ik_llama.cpp", checks_sizes=False, leaves_stale=True),
    ("ik-checkpoints", 4): Reader("ik_llama.cpp", checks_sizes=False, leaves_stale=True),
}
"""Family and version -> its reader. Source: the loaders that `formats.sidecars` cites."""

_ABSURD = 64
"""A count or a length so many times beyond the bytes that are there is a lie, not a cut."""

_SAMPLED_ROWS = 8
_SAMPLED_BYTES = 256

_LEAST_WINDOW = 2
"""A window of unknown size is taken for this one: what it lacks, any lacks."""

_CHUNK = 8192
"""Tokens of an attention chunk (Llama 4): what begins at a multiple of it may be no window."""


@dataclass(frozen=True)
class State:
    """What checkpoints are held against.

    Attributes:
        writer: the program that wrote the state, None if undecidable.
        version: of its format.
        tokens: its token field.
        sections: its memory; empty if the state was not read to its end.
        window: positions that a sliding window spans; None if there is none, or it is not known.
        source: the open file.
    """

    writer: str | None
    version: int | None
    tokens: Tokens
    sections: tuple[Section, ...]
    window: int | None
    source: Source

    @cached_property
    def digest(self) -> int | None:
        """FNV-1a of the whole file; None if the file is too large for that."""
        return digest_of(self.source)

    @cached_property
    def next_pos(self) -> int | None:
        """The position behind the last one in memory; None if it holds no cells."""
        ends = [section.pos_max for section in self.sections if section.pos_max is not None]
        return max(ends) + 1 if ends else None

    @property
    def aligned(self) -> bool:
        """Whether position and number of tokens are the same thing: text only, nothing removed."""
        return not self.tokens.media and self.next_pos == self.tokens.count

    def section(self, kind: str) -> Section | None:
        """The first section of this kind."""
        return next((section for section in self.sections if section.kind == kind), None)

    @property
    def partial(self) -> tuple[Section, ...]:
        """The sections that a checkpoint of this memory holds.

        Windowed and recurrent ones; all if there are none of these. ik_llama.cpp adds the cells of
        the attention section, without keys and values.
        """
        kept = [section for section in self.sections if section.kind in ("swa", "recurrent")]
        if any(section.kind == "dsv4" for section in self.sections):
            return self.sections
        if kept and self.writer == "ik_llama.cpp":
            return self.sections[:1] + tuple(kept)
        return tuple(kept) or self.sections


def state_of(subject: Subject, source: Source) -> State:
    """What there is to know of a state that checkpoints depend on.

    Args:
        subject: the state.
        source: its file, open.
    """
    decoding = subject.reading.decoding
    sound = all(stop.path.startswith("appendix") for stop in decoding.stops)
    sound = sound and all(fact.path == "version" for fact in subject.reading.failed)
    sections = subject.sections if sound else ()
    return State(
        writer=subject.identification.writer,
        version=subject.reading.layout.version,
        tokens=subject.tokens,
        sections=sections,
        window=_window(subject.reading.layout.version, sections),
        source=source,
    )


def _window(version: int | None, sections: tuple[Section, ...]) -> int | None:
    """How far a sliding window reaches, by a state whose writer keeps nothing else of it.

    From b9473 on (PR #23981) masked cells are not saved; only versions 3 and 4 prove such a writer.
    """
    swa = next((section for section in sections if section.kind == "swa"), None)
    if swa is None or version is None or version < 3 or not swa.pos_min:
        return None
    size = (swa.pos_max or 0) + 1 - swa.pos_min
    return size if swa.cells == size and swa.pos_min % _CHUNK else None


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
        judge = _Judge(listing, source, None, carrier)
        return (judge.foreign(state), *judge.extent())
    judge = _Judge(listing, source, state, carrier)
    findings = [*judge.extent(), *judge.head(), *judge.order()]
    for record in listing.whole:
        spoilt = list(judge.blob(record)) if listing.decoded else []
        sound = listing.decoded and not spoilt
        findings += spoilt
        findings += judge.numbers(record, judge.held(record, sound=sound))
        if sound:
            findings += judge.contents(record)
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
    prefix, found = join(listing.path, "records"), dict[int, list[Finding]]()
    for finding in findings:
        spoilt = finding.severity is Severity.ERROR or finding.code in _UNUSABLE
        index = finding.path.removeprefix(prefix)[1:].partition("]")[0]
        if spoilt and finding.path.startswith(prefix) and index.isdigit():
            found.setdefault(int(index), []).append(finding)
    return found


def is_foreign(listing: CheckpointList, state: State) -> bool:
    """Whether a list is of ik_llama.cpp and its state is not, or the reverse."""
    ik_list, ik_state = listing.format == "ik-checkpoints", state.writer == IK
    return state.writer is not None and ik_list != ik_state


def beyond_state(record: CheckpointRecord, state: State) -> tuple[str, str, str, str] | None:
    """How a record reaches beyond the end of the state, or None if it does not.

    Returns:
        The member that tells, what it says, what it could say at most, and the number that it has.
    """
    n_tokens, pos_max = record.n_tokens or 0, record.pos_max or 0
    count, next_pos = state.tokens.count, state.next_pos
    if state.tokens.packing != "none" and n_tokens > count:
        name = "n_tokens" if record.stores_n_tokens else "pos_max_prompt"
        message = f"covers {n_tokens:,} tokens, the state has {count:,}"
        return name, message, f"at most {count}", f"{n_tokens}"
    if next_pos is not None and pos_max >= next_pos:
        message = f"ends at position {pos_max}, the state at {next_pos - 1}"
        return "pos_max", message, f"at most {next_pos - 1}", f"{pos_max}"
    return None


@dataclass(frozen=True)
class _Judge:
    """One list against its state."""

    listing: CheckpointList
    source: Source
    state: State | None
    carrier: str

    @property
    def reader(self) -> Reader:
        return READERS.get((self.listing.format, self.listing.version), Reader("its reader"))

    @property
    def appended(self) -> bool:
        return self.listing.format == "sckp"

    def _finding(
        self,
        code: str,
        path: str,
        span: Span,
        message: str,
        expected: str,
        actual: str,
        *evidence: str,
    ) -> Finding:
        return Finding(code, path, span, message, expected, actual, evidence, self.carrier)

    def _of_head(
        self, code: str, name: str, message: str, expected: str, actual: str, *evidence: str
    ) -> Finding:
        node = self.listing.node.get(name)
        span = node.span if node is not None else self.listing.node.span
        path = join(self.listing.path, name)
        return self._finding(code, path, span, message, expected, actual, *evidence)

    def _of_record(
        self,
        code: str,
        record: CheckpointRecord,
        name: str,
        message: str,
        expected: str,
        actual: str,
        *evidence: str,
    ) -> Finding:
        node = record.node.get(name)
        span = node.span if node is not None else record.span
        path = join(record.path, name)
        message = f"checkpoint {record.index} {message}"
        return self._finding(code, path, span, message, expected, actual, *evidence)

    def _of_blob(
        self, problem: str, record: CheckpointRecord, message: str, expected: str, actual: str
    ) -> Finding:
        code = f"{'appendix' if self.appended else 'checkpoint'}.{problem}"
        return self._of_record(code, record, "data_tgt", message, expected, actual)

    # -- the list ---------------------------------------------------------------------------------

    def extent(self) -> Iterator[Finding]:
        """Where the list ends, and where it should."""
        listing, reader = self.listing, self.reader
        count, limit = listing.count or 0, reader.count_limit or N_RECORDS
        if count > limit and len(listing.whole) >= min(limit, N_RECORDS) and not self.appended:
            yield self._of_head(
                "sidecar.count-above-limit",
                "count",
                f"{_checkpoints(count)}, more than "
                f"{f'{reader.name} takes' if reader.count_limit else 'any program writes'}",
                f"at most {limit:,}",
                f"{count:,}",
            )
        if listing.cut:
            if len(listing.whole) < N_RECORDS:
                yield self._cut()
            return
        if listing.rest is not None and not self.appended:
            yield self._finding(
                "sidecar.trailing-bytes",
                listing.path,
                listing.rest,
                f"{_bytes(len(listing.rest))} follow {_checkpoints(len(listing.whole))}",
                f"the end at 0x{listing.rest.start:x}",
                f"{len(listing.rest):,} more bytes",
            )

    def _cut(self) -> Finding:
        listing, reader = self.listing, self.reader
        end = listing.rest.stop if listing.rest is not None else listing.node.span.stop
        whole, count = len(listing.whole), listing.count
        partial = next((record for record in listing.records if not record.complete), None)
        if partial is not None:
            path, start = partial.path, partial.span.start
        else:
            path, start = listing.path, listing.rest.start if listing.rest is not None else end
        size = end - listing.node.span.start
        name, length = _longest(partial)
        boundless = not reader.checks_sizes and not self.appended
        limit = reader.length_limit if not self.appended else None
        if partial is not None and boundless and length > _ABSURD * size:
            return self._too_long("sidecar.unchecked-size", partial, name, length, end - start)
        if partial is not None and limit is not None and length > limit:
            return self._too_long("sidecar.length-above-limit", partial, name, length, limit)
        lies = (count or 0) > _ABSURD * max(1, size // 24)
        if count is None:
            message = f"the head of the checkpoint list ends at 0x{end:x}"
        elif partial is None or lies:
            message = f"the list claims {_checkpoints(count)} and holds {whole:,}"
        else:
            message = f"of {_checkpoints(count)} that of index {whole} is cut at 0x{end:x}"
        expected = _checkpoints(count) if count is not None else "a whole head"
        counted = count is not None and (partial is None or lies)
        if self.appended:
            code = "appendix.count-exceeds-file" if counted else "appendix.truncated"
        elif lies and boundless:
            code = "sidecar.unchecked-size"
        elif listing.format == "ik-checkpoints" and count is not None:
            code = "sidecar.truncated-unchecked"
        else:
            code = "sidecar.count-exceeds-file" if counted else "sidecar.truncated"
        return self._finding(code, path, Span(start, end), message, expected, f"{whole} complete")

    def _too_long(
        self, code: str, record: CheckpointRecord, name: str, length: int, at_most: int
    ) -> Finding:
        why = f"more than {self.reader.name} takes"
        if code == "sidecar.unchecked-size":
            why = f"more than there are, and {self.reader.name} believes any number"
        return self._of_record(
            code,
            record,
            name,
            f"claims a blob of {length:,} bytes, {why}",
            f"at most {at_most:,} bytes",
            f"{length:,} bytes",
        )

    def foreign(self, state: State) -> Finding:
        """What is said of a list that no reader of the state reads."""
        return self._finding(
            "sidecar.foreign",
            self.listing.path,
            self.listing.node.span,
            f"a sidecar that {self.reader.name} reads, beside a state of {state.writer}",
            f"a sidecar that {state.writer} reads",
            self.listing.format,
        )

    def head(self) -> Iterator[Finding]:
        """The words in front of the records."""
        listing, state = self.listing, self.state
        region = "appendix" if self.appended else "sidecar"
        magic = listing.node.get("magic")
        if self.appended and magic is not None and magic.meaning is None:
            yield self._of_head(
                "appendix.magic",
                "magic",
                f"{_checkpoints(listing.count or 0)} follow the payload, without their magic",
                repr("SCKP"),
                repr(self.source.read_at(magic.span.start, 4).decode("latin-1")),
            )
        if listing.count == 0:
            yield self._of_head(
                f"{region}.empty", "count", "the list holds no checkpoints", "at least 1", "0"
            )
        version = listing.node.get("version")
        if version is not None and version.value != listing.version:
            yield self._of_head(
                f"{region}.unknown-version",
                "version",
                f"version {version.value}, while the rest reads as version {listing.version}",
                f"{listing.version}",
                f"{version.value}",
            )
        stored = listing.node.get("state_hash")
        digest = state.digest if state is not None and stored is not None else None
        if stored is not None and digest is not None and stored.value != digest:
            yield self._of_head(
                "sidecar.hash-mismatch",
                "state_hash",
                "the stored hash is not that of the state file",
                f"{digest:016x}",
                f"{stored.value:016x}",
            )
        tokens = listing.node.get("prompt_tokens")
        if tokens is not None and state is not None and tokens.value != state.tokens.count:
            yield self._of_head(
                "sidecar.prompt-mismatch",
                "prompt_tokens",
                f"written for {tokens.value} tokens, the state has {state.tokens.count}",
                f"{state.tokens.count}",
                f"{tokens.value}",
            )

    def order(self) -> Iterator[Finding]:
        """The records among each other."""
        records = self.listing.whole
        for before, record in pairwise(records):
            if _order(record) <= _order(before):
                yield self._of_record(
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
            yield self._of_record(
                "checkpoint.draft-data",
                drafted[0],
                "data_dft" if drafted[0].n_dft else "data_spec",
                f"holds draft data, as {len(drafted):,} of {_checkpoints(len(records))} do",
                "none, unless the server has a draft model",
                f"{drafted[0].n_dft or drafted[0].n_spec:,} bytes",
            )
        state = self.state
        kinds = {section.kind for section in state.sections} if state is not None else set()
        if records and kinds and kinds <= {"attention", "indexer"}:
            yield self._of_record(
                "checkpoint.full-blob",
                records[0],
                "data_tgt",
                f"holds a whole attention cache, as all {len(records):,} of the list do",
                "no checkpoints: this memory can be cut back to any position",
                f"{sum(record.n_tgt or 0 for record in records):,} bytes",
            )

    # -- one record -------------------------------------------------------------------------------

    def held(self, record: CheckpointRecord, *, sound: bool) -> Held | None:
        """What a record's blob holds; None if that is not known, or cannot do harm.

        Args:
            record: whose.
            sound: whether its blob is; the record itself tells where a state stands that is not.
        """
        blob, at_tip, pos_max = record.blob, self._recurrent(record), record.pos_max
        assert pos_max is not None
        if not sound or blob is None:
            return Held(pos_max, pos_max, 0, at_tip=True) if at_tip else None
        kinds = {section.kind for section in self.state.sections} if self.state else set()
        cells = [section for section in blob.sections if section.tables]
        if "dsv4" in kinds or (kinds and kinds <= {"attention", "indexer"}):
            return None
        if at_tip:
            last = next((c.pos_max for c in cells if c.kind == "recurrent"), None)
            last = pos_max if last is None else last
            return Held(last, last, self._window or 0, at_tip=True)
        if len(cells) != 1 or cells[0].pos_min is None or cells[0].pos_max is None:
            return None
        first, last = cells[0].pos_min, cells[0].pos_max
        return Held(first, last, self._window or _LEAST_WINDOW, at_tip=False)

    def numbers(self, record: CheckpointRecord, held: Held | None) -> Iterator[Finding]:
        """n_tokens and positions, and what becomes of a request that goes back to the record."""
        pos_min, pos_max = record.pos_min, record.pos_max
        assert pos_min is not None
        assert pos_max is not None
        last = held.last if held is not None else pos_max
        invalid = pos_min < 0 or pos_max < pos_min
        if invalid:
            yield self._of_record(
                "checkpoint.positions-invalid",
                record,
                "pos_min",
                f"spans positions {pos_min} to {pos_max}",
                "0 <= pos_min <= pos_max",
                f"{pos_min} to {pos_max}",
            )
        outside = self._outside(record, last)
        if outside is not None:
            yield outside
            return
        numbers = Numbers(self._comparable(record, last), pos_min, pos_max)
        blamed = ""
        if held is not None:
            code, blamed = _blame(numbers, held)
            if code:
                yield self._goes_on(code, record, blamed, numbers, held)
        if not invalid and not blamed.startswith("pos_"):
            yield from self._positions(record, held)
        if blamed != "n_tokens":
            yield from self._n_tokens(record, last)

    def _outside(self, record: CheckpointRecord, last: int) -> Finding | None:
        """What is said of a record that is of another save, or that no request picks."""
        state, pos_min, pos_max = self.state, record.pos_min or 0, record.pos_max or 0
        if state is None:
            return None
        beyond, next_pos = beyond_state(record, state), state.next_pos
        if beyond is not None:
            picked = next_pos is None or not record.stores_n_tokens
            picked = picked or last == pos_max == next_pos
            if picked or (last >= (next_pos or 0) and not self.appended):
                return self._of_record("checkpoint.beyond-state", record, *beyond)
        if next_pos is not None and pos_max > next_pos:
            return self._of_record(
                "checkpoint.never-picked",
                record,
                "pos_max",
                f"ends at position {pos_max}, the state at {next_pos - 1}",
                f"at most {next_pos}",
                f"{pos_max}",
            )
        swa = state.section("swa") if not self._recurrent(record) else None
        if swa is not None and swa.pos_min is not None and pos_min >= max(1, swa.pos_min):
            return self._of_record(
                "checkpoint.never-picked",
                record,
                "pos_min",
                f"begins at position {pos_min}, the window of the state at {swa.pos_min}",
                f"0, or less than {swa.pos_min}" if swa.pos_min else "0",
                f"{pos_min}",
            )
        return None

    def _comparable(self, record: CheckpointRecord, last: int) -> int | None:
        """n_tokens, if it is stored and counts positions too."""
        n_tokens, state = record.n_tokens, self.state
        if n_tokens is None or not record.stores_n_tokens:
            return None
        text = state.aligned if state is not None else n_tokens <= last + 1
        return n_tokens if text else None

    def _goes_on(
        self, code: str, record: CheckpointRecord, name: str, numbers: Numbers, held: Held
    ) -> Finding:
        """What is said of a record that leads a server to a wrong position."""
        start = numbers.resumed
        where = f"from position {start}" if start is not None else "wherever it is"
        holds = f"ends at {held.last}" if held.at_tip else f"holds {held.first} to {held.last}"
        return self._of_record(
            code,
            record,
            name,
            f"has {name} {getattr(record, name)}: its server goes on {where}, its blob {holds}",
            f"{held.last + 1 if name == 'n_tokens' else held.last}",
            f"{getattr(record, name)}",
        )

    def _positions(self, record: CheckpointRecord, held: Held | None) -> Iterator[Finding]:
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
        yield self._of_record(
            "checkpoint.positions-differ", record, name, message, expected, f"{actual}"
        )

    def _n_tokens(self, record: CheckpointRecord, last: int) -> Iterator[Finding]:
        """An n_tokens that is not what follows from the positions, and does no harm."""
        state, n_tokens = self.state, self._comparable(record, last)
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
        yield self._of_record(
            "checkpoint.n-tokens-high" if high else "checkpoint.n-tokens-low",
            record,
            "n_tokens",
            f"covers {n_tokens} tokens and ends at position {last}",
            expected,
            f"{n_tokens}",
        )

    def _recurrent(self, record: CheckpointRecord) -> bool:
        if self.state is not None and self.state.sections:
            return self.state.section("recurrent") is not None
        return record.blob is not None and any(
            section.kind == "recurrent" for section in record.blob.sections
        )

    def blob(self, record: CheckpointRecord) -> Iterator[Finding]:
        """Whether the target blob loads."""
        blob = record.blob
        if not record.n_tgt:
            yield self._of_blob("blob-empty", record, "has no target blob", "a state", "0 bytes")
        elif blob is None:
            yield self._of_blob(
                "blob-unreadable",
                record,
                f"has {record.n_tgt:,} bytes that no layout of a state explains",
                "the state of one sequence",
                f"{record.n_tgt:,} bytes",
            )
        elif self._needs_prefix and not blob.prefixed:
            yield self._of_blob(
                "blob-prefix",
                record,
                "begins without the magic of a sequence state",
                "d8 3c 14 af and a sequence id",
                "neither",
            )
        elif not blob.ended:
            yield self._of_blob(
                "blob-truncated",
                record,
                f"has {record.n_tgt:,} bytes, fewer than its own counts need ({blob.layout})",
                "as many bytes as its counts need",
                f"{record.n_tgt:,} bytes",
            )
        elif blob.rest is not None:
            yield self._of_blob(
                "blob-trailing-bytes",
                record,
                f"has {_bytes(len(blob.rest))} behind its state ({blob.layout})",
                f"{record.n_tgt - len(blob.rest):,} bytes",
                f"{record.n_tgt:,} bytes",
            )
        else:
            yield from self._geometry(record, blob)

    @cached_property
    def _needs_prefix(self) -> bool:
        """Whether the server looks for the magic of b9028: others have it, or it is that new."""
        state = self.state
        if state is not None and state.writer == "llama.cpp" and (state.version or 0) >= 3:
            return True
        return self.appended or any(
            record.blob is not None and record.blob.prefixed for record in self.listing.whole
        )

    def _geometry(self, record: CheckpointRecord, blob: Blob) -> Iterator[Finding]:
        """The sections of the blob against those of the state that they were taken from."""
        state = self.state
        if state is None or not state.sections:
            return
        stored, expected = _kinds(blob.sections), _kinds(state.partial)
        if "dsv4" in expected:  # its partial form leaves out tensors of every layer
            return
        if stored != expected:
            yield self._of_blob(
                "blob-geometry",
                record,
                f"holds {' and '.join(stored)}, not what a checkpoint of this memory holds",
                " and ".join(expected),
                " and ".join(stored),
            )
            return
        for mine, own in zip(blob.sections, state.partial, strict=True):
            if not mine.cells or not own.cells:
                continue
            if mine.node.facts.get("rotation", False) != own.node.facts.get("rotation", False):
                says = {True: "with rotation words", False: "without rotation words"}
                yield self._of_blob(
                    "blob-rotation",
                    record,
                    f"is stored {says[bool(mine.node.facts.get('rotation'))]}, unlike the state",
                    says[bool(own.node.facts.get("rotation"))],
                    says[bool(mine.node.facts.get("rotation"))],
                )
                return
            for what, here, there in zip(_SHAPE, _shape(mine), _shape(own), strict=True):
                if here != there and not (what in _BLOCKS and not mine.blocks):
                    yield self._of_blob(
                        "blob-geometry",
                        record,
                        f"has {what} {here} in its {own.kind} section, the state {there}",
                        f"{what} {there}",
                        f"{what} {here}",
                    )
                    return

    def contents(self, record: CheckpointRecord) -> Iterator[Finding]:
        """What a target blob holds that loads."""
        if record.blob is not None:
            if not self._recurrent(record):
                yield from self._covers_window(record, record.blob)
            yield from self._rows(record, record.blob)

    def _covers_window(self, record: CheckpointRecord, blob: Blob) -> Iterator[Finding]:
        window, last = self._window, blob.sections[0].pos_max if blob.sections else None
        if window is None or len(blob.sections) != 1 or last is None:
            return
        first = max(0, last - window + 1)
        held = set(blob.sections[0].pos.tolist())
        missing = [pos for pos in range(first, last) if pos not in held]
        if not missing:
            return
        code = "checkpoint.window-short" if missing == [first] else "checkpoint.window-gap"
        yield self._of_record(
            code,
            record,
            "data_tgt",
            f"lacks {len(missing)} of the {window} positions of the window, the first at "
            f"{missing[0]}",
            f"positions {first} to {last - 1}",
            f"{len(held)} cells",
        )

    def _rows(self, record: CheckpointRecord, blob: Blob) -> Iterator[Finding]:
        """Rows at positions that are in the state too: the first layer's depend on little else."""
        state = self.state
        if state is None or _kinds(blob.sections) != _kinds(state.partial):
            return
        for mine, own in zip(blob.sections, state.partial, strict=True):
            theirs = _places(own)
            common = [(pos, at) for pos, at in _places(mine).items() if pos in theirs]
            sample = common[:: max(1, len(common) // _SAMPLED_ROWS)][:_SAMPLED_ROWS]
            for pos, at in sample:
                here = self.source.read_at(at, _row_bytes(mine))
                there = state.source.read_at(theirs[pos], _row_bytes(own))
                if any(here) and any(there) and _alike(here, there) < 0.5:
                    yield self._of_record(
                        "checkpoint.other-content",
                        record,
                        "data_tgt",
                        f"holds another {own.kind} row for position {pos} than the state",
                        f"the row at 0x{theirs[pos]:x} of the state",
                        f"the row at 0x{at:x}",
                    )
                    return

    @cached_property
    def _window(self) -> int | None:
        """The window, corrected by one where the state holds an anchor cell below it."""
        state = self.state
        if state is None or state.window is None:
            return None
        sizes = {
            section.cells
            for record in self.listing.whole
            if record.blob is not None and (record.pos_max or 0) + 1 >= state.window
            for section in record.blob.sections
        }
        return state.window - 1 if sizes == {state.window - 1} else state.window


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


_SHAPE = ("n_layer", "n_stream", "cell_ext", "v_trans", "keys", "values", "R rows", "S rows")
_BLOCKS = ("keys", "values", "R rows", "S rows")


def _shape(section: Section) -> tuple[object, ...]:
    """What must be equal in a checkpoint and in the state, in the order of `_SHAPE`."""
    words = (section.n_layer, section.n_stream, section.cell_ext, section.v_trans)
    blocks = (section.k, section.v, section.r, section.s)
    return words + tuple(" ".join(f"{b.type_name}:{b.row_bytes}" for b in row) for row in blocks)


def _first_block(section: Section) -> Block | None:
    """The first stored block that has a row per cell."""
    return next((b for b in section.k + section.r if b.data is not None and b.row_bytes), None)


def _row_bytes(section: Section) -> int:
    block = _first_block(section)
    return min(block.row_bytes, _SAMPLED_BYTES) if block is not None else 0


def _places(section: Section) -> dict[int, int]:
    """Position -> offset of its row in the first block; without positions that two cells have."""
    block = _first_block(section)
    if block is None or block.data is None or len(section.pos) != block.n_cells:
        return {}
    start, size, positions = block.data.start, block.row_bytes, section.pos.tolist()
    once = {pos for pos, count in Counter(positions).items() if count == 1}
    return {pos: start + i * size for i, pos in enumerate(positions) if pos in once}


def _alike(here: bytes, there: bytes) -> float:
    """The part of 16-bit words that two rows have in common."""
    pairs = zip(here[::2], here[1::2], there[::2], there[1::2], strict=False)
    same = sum(a == c and b == d for a, b, c, d in pairs)
    return same / max(1, min(len(here), len(there)) // 2)


def _kinds(sections: tuple[Section, ...]) -> tuple[str, ...]:
    """The kinds of sections as far as their own bytes tell: one cache looks like another."""
    own = ("recurrent", "dsv4")
    return tuple(s.kind if s.kind in own else "an attention cache" for s in sections)


def _bytes(count: int) -> str:
    return f"{count:,} byte{'s' if count != 1 else ''}"


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
