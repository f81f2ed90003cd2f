"""Checkpoint lists of every family, composed from records.

Source: the loaders that `formats.sidecars` cites.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from formats.bodies.compositions import MEMORY, PARTIAL
from inspector.bundle import Role
from inspector.checkpoints import (
    CheckpointList,
    CheckpointRecord,
    appendix_of,
    checkpoint_list,
    fnv1a,
    ik_list_of,
)
from inspector.checks.checkpoints import by_record, spoiling
from inspector.identify import Verdict
from inspector.repair.apart import parts_of
from inspector.repair.ik import parts_of_payload as ik_parts_of
from inspector.repair.segments import Composed, Content, Keep, Segment, Write, chunks, size_of
from inspector.repair.state import Hopeless, Part, Recurrent
from inspector.report import Report
from inspector.source import Source
from inspector.span import Span

DRAFT, THIRD = "draft data", "data of the speculative decoder"
_LARGEST_HASHED = 2 << 30
"""Bytes of a state whose FNV-1a takes less than a minute."""
_OF_OTHERS = {"sidecar.foreign", "sidecar.hash-mismatch", "sidecar.prompt-mismatch"}
"""Findings on lists that belong to another state, or to another program."""
_OF_OTHER_TOKENS = {"checkpoint.other-content", "identity.checkpoint-differs"}
"""Findings on records that show that the list beside a state is of another one."""
OF_ANOTHER = {"sidecar.stale", *_OF_OTHERS, *_OF_OTHER_TOKENS}
"""Findings on lists that tell nothing of the state."""
_MENDED = {
    "appendix.count-exceeds-file",
    "appendix.truncated",
    "appendix.unknown-version",
    "sidecar.count-above-limit",
    "sidecar.count-exceeds-file",
    "sidecar.length-above-limit",
    "sidecar.trailing-bytes",
    "sidecar.truncated",
    "sidecar.truncated-unchecked",
    "sidecar.unchecked-size",
    "sidecar.unknown-version",
}
"""Findings on lists that are gone once its records are written anew."""


@dataclass(frozen=True)
class Carried:
    """A checkpoint list of a file or of a companion, and what of it is of use.

    Attributes:
        listing: the list.
        source: the file that holds it.
        records: its records that are whole and right, whatever its reader makes of the list.
        mended: whether it has to be written anew even if nothing is changed.
        remade: those of the records whose blobs are right but for their first or last bytes.
        renumbered: those whose numbers were wrong, as they are in the file; `records` has them with
            the numbers that their blobs prove.
        reasons: why the other records are of no use, by their index.
    """

    listing: CheckpointList
    source: Source
    records: tuple[CheckpointRecord, ...]
    mended: bool
    remade: tuple[CheckpointRecord, ...] = ()
    renumbered: tuple[CheckpointRecord, ...] = ()
    reasons: dict[int, str] = field(default_factory=dict)

    @property
    def family(self) -> Family | None:
        """How it is written."""
        return family_of(self.listing.format, self.listing.version)

    @property
    def trusting(self) -> bool:
        """Whether records are used of which more may be wrong than could be seen."""
        return bool(self.remade or self.renumbered)


def list_of(report: Report) -> CheckpointList | None:
    """The checkpoint list that a file is, also one of ik_llama.cpp that passes for a state."""
    reading = report.identification.reading
    if reading is None or not reading.layout.memory:
        root = reading.decoding.root if reading is not None else None
        if root is None or reading is None:
            return None
        return checkpoint_list(root, report.name, reading.layout.format, reading.layout.version)
    damaged = report.identification.verdict is not Verdict.RECOGNISED
    if damaged and report.bundle.role is Role.CHECKPOINTS:
        return ik_list_of(report.source, report.name)
    return None


def carried_in(
    report: Report, *, remaking: bool = True, renumbering: bool = True
) -> tuple[Carried, ...]:
    """The checkpoint lists of a file and of its companions.

    Args:
        report: of the file.
        remaking: whether blobs may be used that are right but for their first or last bytes.
        renumbering: whether records may be used whose numbers are wrong and follow from their blob.
    """
    reading = report.identification.reading
    if reading is None:
        return ()
    root, layout = reading.decoding.root, reading.layout
    own = list_of(report)
    if own is None and layout.memory:
        own = appendix_of(report.source, root, report.name)
    lists = [(own, report.source, "")] if own is not None else []
    lists += [
        (other.listing, other.source, other.companion.file.name)
        for other in report.beside
        if other.listing is not None
    ]
    tested = {(one.record.carrier, one.record.index) for one in report.checkpoints if one.tested}
    found = []
    for listing, source, carrier in lists:
        findings = [finding for finding in report.findings if finding.carrier == carrier]
        codes = {finding.code for finding in findings}
        blamed, said = spoiling(listing, findings), by_record(listing, findings)
        foreign = next((one.message for one in findings if one.code in _OF_OTHERS), None)
        alien = bool(carrier) and any(one.code in _OF_OTHER_TOKENS for one in findings)
        records, remade, renumbered, reasons = [], [], [], dict[int, str]()
        for record in listing.records:
            causes = blamed.get(record.index, [])
            numbered = None
            if renumbering and any(one.code in _NUMBERS for one in said.get(record.index, [])):
                numbered = _numbered(record, report)
            if numbered is not None:
                causes = [cause for cause in causes if cause.code not in _NUMBERS]
            mendable = remaking and _readable(record) and all(c.code in _REMADE for c in causes)
            if foreign is not None or not record.complete:
                reasons[record.index] = foreign or "is cut"
            elif causes and not mendable:
                reasons[record.index] = causes[0].message
            elif alien and (listing.carrier, record.index) not in tested:
                reasons[record.index] = (
                    f"{carrier} holds one of another save, and of those that could not be tested "
                    "any may be such"
                )
            else:
                records.append(numbered or record)
                remade += [record] if causes else []
                renumbered += [record] if numbered is not None else []
        mended = bool(codes & _MENDED) or listing.cut or listing.rest is not None
        found.append(
            Carried(
                listing,
                source,
                tuple(records),
                mended,
                tuple(remade),
                tuple(renumbered),
                reasons,
            )
        )
    return _without_rivals(found, report, tested)


def _without_rivals(
    found: Sequence[Carried], report: Report, tested: set[tuple[str, int]]
) -> tuple[Carried, ...]:
    """One list with records, and what is of no use: at most one is of the save of the state.

    Args:
        found: the lists.
        report: of the file.
        tested: carrier and index of the records that were shown to be of the state.
    """
    rivals = [one for one in found if one.records]
    if len(rivals) < 2:
        return tuple(found)
    times = {other.companion.file.name: other.companion.file.mtime_ns for other in report.beside}

    others = {one.carrier for one in report.findings if one.code in _OF_OTHER_TOKENS}

    def standing(one: Carried) -> tuple[bool, bool, bool, int]:
        name, own = one.listing.carrier, one.source is report.source
        shown = any((name, record.index) in tested for record in one.records)
        return shown, ("" if own else name) not in others, own, times.get(name, 0)

    ranks = sorted((standing(one) for one in rivals), reverse=True)
    kept = next(one for one in rivals if standing(one) == ranks[0])
    differs = (mine != other for mine, other in zip(*ranks[:2], strict=True))
    why = next((why for why, told in zip(_WHY, differs, strict=True) if told), _UNTOLD)
    reason = f"one list is kept, and that of {kept.listing.carrier} {why}"
    return tuple(
        one
        if one is kept or not one.records
        else replace(
            one,
            records=(),
            mended=False,
            remade=(),
            renumbered=(),
            reasons={**{record.index: reason for record in one.records}, **one.reasons},
        )
        for one in found
    )


_WHY = (
    "alone has checkpoints that are shown to be of this state",
    "has none of another save",
    "stands in its file",
    "was written last",
)
_UNTOLD = "was written at the same time as the other: which is of this state is not known"
"""Why one of several lists is kept."""


def _numbered(record: CheckpointRecord, report: Report) -> CheckpointRecord | None:
    """A record with the numbers of its blob, if one of its own agrees with these; else None.

    Only of text, of which every token has a position, n_tokens follows from a position.
    """
    tokens, blob = report.tokens, record.blob
    if tokens is None or not report.aligned or blob is None:
        return None
    if not _readable(record) or not record.stores_n_tokens:
        return None
    held = [part for part in blob.sections if part.tables]
    state = next((part for part in held if part.kind == "recurrent"), None)
    cells = state if state is not None else held[0] if len(held) == 1 else None
    if cells is None or cells.pos_min is None or cells.pos_max is None or cells.kind == "dsv4":
        return None
    first, last, pos_min = cells.pos_min, cells.pos_max, record.pos_min or 0
    agreed = last in (record.pos_max, (record.n_tokens or 0) - 1)
    if not agreed or not 0 <= last < tokens.count:
        return None
    lowest = pos_min if state is None and 0 <= pos_min <= first else first
    return replace(record, n_tokens=last + 1, pos_min=lowest, pos_max=last)


_NUMBERS = {
    "checkpoint.n-tokens-high",
    "checkpoint.n-tokens-invalid",
    "checkpoint.n-tokens-low",
    "checkpoint.n-tokens-mismatch",
    "checkpoint.position-mismatch",
    "checkpoint.positions-differ",
    "checkpoint.positions-invalid",
    "checkpoint.recurrent-range",
}
"""Findings on numbers that follow from the blob."""


def _readable(record: CheckpointRecord) -> bool:
    """Whether a layout explains the blob, perhaps with bytes behind it.

    Keys and values of no bytes are what zeros in place of the rest look like, and of no cells what
    a wrong count leaves.
    """
    blob = record.blob
    if blob is None or not blob.ended:
        return False
    filled = all(part.cells for part in blob.sections) and all(
        block.row_bytes for part in blob.sections for block in (*part.k, *part.v)
    )
    return blob.sound or (blob.rest is not None and filled)


_REMADE = {
    f"{carrier}.{problem}"
    for carrier in ("checkpoint", "appendix")
    for problem in ("blob-prefix", "blob-trailing-bytes")
}
"""Findings on blobs of which nothing is missing."""


@dataclass(frozen=True)
class Record:
    """A checkpoint.

    Attributes:
        n_tokens: tokens of the prompt that it returns to.
        pos_min: lowest position.
        pos_max: highest position.
        tgt: its blob.
        dft: the blob of the draft context.
        spec: the private state of the speculative decoder.
        id_task: the task that made it.
        parts: the memory in its blob; None if nothing explains that.
        prefixed: whether the blob begins with eight bytes of its own.
        shift: positions that a context shift discarded before it was made.
    """

    n_tokens: int
    pos_min: int
    pos_max: int
    tgt: Content
    dft: Content = ()
    spec: Content = ()
    id_task: int = -1
    parts: tuple[Part, ...] | None = None
    prefixed: bool = False
    shift: int = 0


def record_of(record: CheckpointRecord, source: Source) -> Record:
    """A record as it was found.

    Args:
        record: a complete one.
        source: the file that holds it.
    """
    assert record.data_tgt is not None  # it is complete
    blob = record.blob
    parts = None
    if blob is not None and _readable(record):
        of_ik = record.format == "ik-checkpoints"
        parts = (ik_parts_of if of_ik else parts_of)(source, blob.sections)
    dft, spec = (
        (Keep(source, span),) if span is not None and len(span) else ()
        for span in (record.data_dft, record.data_spec)
    )
    return Record(
        record.n_tokens or 0,
        record.pos_min or 0,
        record.pos_max or 0,
        (Keep(source, _without_rest(record, record.data_tgt)),),
        dft,
        spec,
        record.node.number("id_task", -1),
        parts,
        blob is not None and blob.prefixed,
        record.node.number("pos_max_prompt", record.pos_max or 0) - (record.pos_max or 0),
    )


def _without_rest(record: CheckpointRecord, blob: Span) -> Span:
    rest = record.blob.rest if record.blob is not None else None
    return blob if rest is None or not _readable(record) else Span(blob.start, rest.start)


def named(record: Record, memory: str) -> Record:
    """A record whose parts have the names that they have in a state of this memory type.

    A blob of one attention section does not say whether that is the windowed one.
    """
    roles = MEMORY[PARTIAL.get(memory, memory)][1] if memory in MEMORY else ()
    parts = record.parts or ()
    if len(parts) != len(roles) or any(
        isinstance(part, Recurrent) != (role == "recurrent")
        for part, (_, (role, _), _) in zip(parts, roles, strict=True)
    ):
        return record
    renamed = tuple(
        replace(part, member=member)
        if isinstance(part, Recurrent)
        else replace(part, member=member, kind=role)
        for part, (member, (role, _), _) in zip(parts, roles, strict=True)
    )
    return replace(record, parts=renamed)


@dataclass(frozen=True)
class Family:
    """How a family of lists is written.

    Attributes:
        format: as layouts name it.
        version: of it, None if it has none.
        magic: its first bytes.
        members: of a record, in order: name and struct code, or the name of a blob.
        suffix: of the companion file; empty for what stands behind a state.
        most: records that its readers take; None for no limit.
        counts: struct code of the number of records.
    """

    format: str
    version: int | None
    magic: bytes
    members: tuple[str, ...]
    suffix: str
    most: int | None = None
    counts: str = "I"

    @property
    def name(self) -> str:
        """As users name it."""
        return f"{self.format.removesuffix('-checkpoints')}{self.version or ''}"

    def holds(self, name: str) -> bool:
        """Whether its records have a member."""
        return name in self.members


_CODES = {
    "n_tokens": "q",
    "id_task": "i",
    "pos_min": "i",
    "pos_max": "i",
    "pos_min_prompt": "i",
    "pos_max_prompt": "i",
    "n_tgt": "Q",
    "n_dft": "Q",
    "n_spec": "Q",
}
_POSITIONS = ("n_tokens", "pos_min", "pos_max")
_BLOBS = ("tgt", "dft", "spec")
_ALL = ("n_tgt", "tgt", "n_dft", "dft", "n_spec", "spec")

# fmt: off
FAMILIES = (
    Family("sckp", 1, b"SCKP", (*_POSITIONS, *_ALL), ""),
    Family("pkcl", 1, b"PKCL", (*_POSITIONS, "n_tgt", "n_dft", "tgt", "dft"), ".ckpt", 1024),
    Family("pkcl", 2, b"PKCL", (*_POSITIONS, *_ALL), ".ckpt", 32),
    Family("llcp", 1, b"PCLL", ("pos_min", "pos_max", "n_tokens", "n_tgt", "tgt"), ".checkpoints"),
    Family("llcp", 2, b"PCLL", ("pos_min", "pos_max", "n_tokens", "n_tgt", "tgt", "n_dft", "dft"),
           ".checkpoints"),
    Family("lsckpt2", None, b"LSCKPT2\0",
           ("pos_min", "pos_max", "n_tokens", "n_tgt", "n_dft", "tgt", "dft"), ".ckpt",
           counts="Q"),
    Family("stck", 2, b"STCK", (*_POSITIONS, *_ALL), ".ckpt", 64),
    Family("bkcp", 1, b"BKCP", ("n_tokens", "id_task", "pos_min", "pos_max", *_ALL), ".ckpt"),
    Family("slck", 1, b"SLCK", (*_POSITIONS, "n_tgt", "tgt"), ".ckpt", 4096),
    Family("ik-checkpoints", 3, b"qsgg",
           ("pos_min", "pos_max", "pos_min_prompt", "pos_max_prompt", "n_tgt", "tgt"),
           ".checkpoints", counts="Q"),
    Family("ik-checkpoints", 4, b"qsgg",
           ("pos_min", "pos_max", "pos_min_prompt", "pos_max_prompt", "n_tgt", "tgt"),
           ".checkpoints", counts="Q"),
)
# fmt: on
"""Every family whose lists can be written."""

BY_NAME = {family.name: family for family in FAMILIES}


def family_of(format_: str, version: int | None) -> Family | None:
    """The family of a list."""
    return next((f for f in FAMILIES if (f.format, f.version) == (format_, version)), None)


def losses(records: Sequence[Record], family: Family) -> tuple[str, ...]:
    """What a family has no place for."""
    found = []
    if any(record.dft for record in records) and not family.holds("dft"):
        found.append(DRAFT)
    if any(record.spec for record in records) and not family.holds("spec"):
        found.append(THIRD)
    if any(record.id_task != -1 for record in records) and not family.holds("id_task"):
        found.append("the number of the task that made a checkpoint")
    return tuple(found)


_BOUND = {
    ("pkcl", 2): ("state_hash",),
    ("stck", 2): ("prompt_size", "prompt_tokens", "prompt_hash"),
}
"""Members of the head by which a list is bound to its state, 64 bits each."""


def binding_of(listing: CheckpointList, source: Source) -> bytes | None:
    """The words by which a list is bound to its state; None if its family has none."""
    names = _BOUND.get((listing.format, listing.version or 0), ())
    nodes = [node for name in names if (node := listing.node.get(name)) is not None]
    return b"".join(source.read_at(node.span.start, 8) for node in nodes) or None


def binding_to(state: Composed) -> bytes:
    """The hash of a state that PKCL 2 lists hold.

    Raises:
        Hopeless: if that takes too long.
    """
    if state.size > _LARGEST_HASHED:
        raise Hopeless(
            f"PKCL 2 lists hold a hash of their state, which takes more than a minute for "
            f"{state.size:,} bytes: --to names another family"
        )
    basis = fnv1a(b"")
    for data in chunks(state.content):
        basis = fnv1a(data, basis)
    return struct.pack("<Q", basis)


def composed(
    records: Sequence[Record], family: Family, why: str, binding: bytes | None = None
) -> Iterator[Segment]:
    """A list.

    Args:
        records: its records.
        family: how to write it.
        why: the action that writes it.
        binding: the words by which it is bound to its state; only some families have them.

    Raises:
        Hopeless: if the family has some, and they are not known.
    """
    if (family.format, family.version or 0) in _BOUND and binding is None:
        raise Hopeless(_UNBOUND[family.format])
    head, count = family.magic, struct.pack(f"<{family.counts}", len(records))
    if family.version is not None:
        head += struct.pack("<I", family.version)
    if family.format == "pkcl":
        head += (binding or b"") if family.version == 2 else b""
    yield Write(head + count + (binding or b"" if family.format == "stck" else b""), why)
    for record in records:
        yield from _record(record, family, why)


_UNBOUND = {
    "pkcl": "PKCL 2 lists hold a hash of their state: repair that, and the list goes along",
    "stck": "STCK lists hold a hash of the prompt as their own server packs it, which is known "
    "only from a list of the same tokens: --to names another family",
}


def _record(record: Record, family: Family, why: str) -> Iterator[Segment]:
    numbers = {
        "n_tokens": record.n_tokens,
        "id_task": record.id_task,
        "pos_min": record.pos_min,
        "pos_max": record.pos_max,
        "pos_min_prompt": record.pos_min + record.shift,
        "pos_max_prompt": record.pos_max + record.shift,
        "n_tgt": size_of(record.tgt),
        "n_dft": size_of(record.dft),
        "n_spec": size_of(record.spec),
    }
    for member in family.members:
        if member in _BLOBS:
            yield from getattr(record, member)
        else:
            yield Write(struct.pack(f"<{_CODES[member]}", numbers[member]), why)


def sorted_and_capped(records: Sequence[Record], most: int | None) -> tuple[Record, ...]:
    """By ascending tokens, each once, the newest if there are too many."""
    by_tokens = {record.n_tokens: record for record in records}
    found = tuple(by_tokens[n] for n in sorted(by_tokens))
    return found if most is None else found[-most:]


def without_extras(record: Record, family: Family) -> Record:
    """The record with nothing that the family has no place for."""
    return replace(
        record,
        dft=record.dft if family.holds("dft") else (),
        spec=record.spec if family.holds("spec") else (),
        id_task=record.id_task if family.holds("id_task") else -1,
    )
