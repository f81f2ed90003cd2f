"""Damaged checkpoint lists and companions: one for every finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from samples.sample import Companion, Expected, Sample, part
from samples.small import CELLS, PACKED, TEXT, R, S, cache, first, memory
from samples.whole import SUFFIXES, ik_memory, listed
from tests.support.damage import Damaged, cut, set_field, trail
from tests.support.writer import (
    DIALECTS,
    F32,
    Blob,
    Cell,
    Checkpoint,
    CheckpointList,
    Dialect,
    Generation,
    Memory,
    Packed,
    Recurrent,
    Row,
    Slot,
    Tokens,
    checkpoint,
    ik_checkpoints,
    ik_tokens,
    pack,
    pkcl2,
    stck2,
)

PLAIN, ROTATED = DIALECTS[""], DIALECTS["rotated"]
HELD = memory("hybrid", PLAIN)
STATE = pack(Slot(2, TEXT, HELD))
STANDS = Expected("reuse.needs-exact-append", *part(STATE, "recr"))
"""The note on the state if no checkpoint of it can be used."""
FIRST, SECOND = "records[0]", "records[1]"
SLCK = "slck1"
"""The family of most lists here: its reader checks what it reads."""


def record(n: int, kind: str = "hybrid", dialect: Dialect = PLAIN, **changes: object) -> Checkpoint:
    """The checkpoint of our text behind its first tokens, with some members changed."""
    made = checkpoint(memory(kind, dialect, first(n)), n)
    return replace(made, **changes)  # type: ignore[arg-type]


def blob(n: int, kind: str = "hybrid", dialect: Dialect = PLAIN) -> bytes:
    """The blob of that checkpoint."""
    return pack(Blob(memory(kind, dialect, first(n)).partial())).data


def beside(
    code: str,
    about: str,
    made: Damaged | Packed,
    place: tuple[int, int],
    family: str = SLCK,
    state: tuple[str, Packed] = ("ggsq2.hybrid", STATE),
    along: Sequence[Expected] = (),
) -> Sample:
    """A state with a sidecar in which nothing but `code` is found, at the bytes `place`."""
    suffix = SUFFIXES.get(family, ".ckpt")
    companion = Companion(suffix, family, made.data)
    findings = (Expected(code, *place, suffix), *along)
    layout, packed = state
    return Sample(layout, code, about, packed.data, (companion,), findings, "damaged")


def sidecar(*records: Checkpoint, family: str = SLCK) -> Packed:
    """A list of checkpoints as a file of its own."""
    return pack(listed(family, list(records), STATE.data))


def appended(
    kind: str, code: str, about: str, place: str, *records: Checkpoint, lost: bool = False
) -> Sample:
    """A slot file of version 4 whose appendix has these records; only `code` is found in it."""
    packed = pack(Slot(4, PACKED, memory(kind, ROTATED), records))
    return in_appendix(kind, code, about, packed, part(packed, f"appendix.{place}"), packed, lost)


def in_appendix(
    kind: str,
    code: str,
    about: str,
    made: Damaged | Packed,
    place: tuple[int, int],
    whole: Packed,
    lost: bool,
) -> Sample:
    """The same, with the bytes changed afterwards; `lost` if no record of it can be used."""
    along = (Expected("reuse.needs-exact-append", *part(whole, "recr")),) if lost else ()
    findings = (Expected(code, *place), *along)
    return Sample(f"ggsq4.{kind}", code, about, made.data, (), findings, "damaged")


# -- lists -----------------------------------------------------------------------------------------


def wrong_lists() -> Iterator[Sample]:
    """Lists with a wrong head, or a wrong length."""
    whole = sidecar(record(4), record(8))
    end, start = len(whole.data), part(whole, SECOND)[0]
    about = "The last byte is missing."
    made, place = cut(whole.data, end - 1), (start, end - 1)
    yield beside("sidecar.truncated", about, made, place, along=[STANDS])
    about = "Eight more bytes."
    made, place = trail(whole.data, bytes(8)), (end, end + 8)
    yield beside("sidecar.trailing-bytes", about, made, place)
    about = "Three records are claimed, two are there."
    made = set_field(whole, whole.mark("count"), 3)
    yield beside("sidecar.count-exceeds-file", about, made, (end, end), along=[STANDS])
    about = "Version 7."
    made, place = set_field(whole, whole.mark("version"), 7), part(whole, "version")
    yield beside("sidecar.unknown-version", about, made, place, along=[STANDS])
    about = "A blob of more than sixteen gibibytes."
    length = part(whole, f"{SECOND}.n_tgt")
    made = set_field(whole, whole.mark(f"{SECOND}.n_tgt"), (1 << 34) + 1)
    yield beside("sidecar.length-above-limit", about, made, length, along=[STANDS])
    about = "No records: the server had made no checkpoints."
    empty = sidecar()
    yield beside("sidecar.empty", about, empty, part(empty, "count"), along=[STANDS])

    unchecked = pack(CheckpointList("llcp1", (record(4), record(8))))
    made = set_field(unchecked, unchecked.mark("count"), 2**31)
    about = "Two thousand million records, which the reader believes."
    end = len(unchecked.data)
    yield beside("sidecar.unchecked-size", about, made, (end, end), "llcp1", along=[STANDS])
    hashed = pack(pkcl2([record(4), record(8)], STATE.data + b"more"))
    about, place = "The hash of another state.", part(hashed, "state_hash")
    yield beside("sidecar.hash-mismatch", about, hashed, place, "pkcl2", along=[STANDS])
    bound = pack(stck2([record(4), record(8)], b"prompt", 13))
    about, place = "A list for thirteen tokens.", part(bound, "prompt_tokens")
    made_for = beside("sidecar.prompt-mismatch", about, bound, place, "stck2", along=[STANDS])
    yield with_marker(made_for, 12)
    yield many_records()


def many_records() -> Sample:
    """A record more than the STCK fork takes."""
    n, code = 70, "sidecar.count-above-limit"

    def tiny(tokens: int) -> Memory:
        state = Recurrent((Cell(tokens - 1),), 1, (Row(F32, 16),), (Row(F32, 32),))
        return Memory({"recr": state}, PLAIN)

    state = pack(Slot(2, Tokens(tuple(range(100, 100 + n))), tiny(n)))
    listing = pack(stck2([checkpoint(tiny(i), i) for i in range(5, n)], b"prompt", n))
    note = Expected("reuse.needs-exact-append", *part(state, "recr"))
    place, holds = part(listing, "count"), ("ggsq2.recurrent", state)
    about = "Sixty-five records, of which the reader takes sixty-four."
    return with_marker(beside(code, about, listing, place, "stck2", holds, [note]), n)


def with_marker(sample: Sample, n_tokens: int) -> Sample:
    """The sample with the marker that its server writes last."""
    marker = Companion(".gen", "stck-gen", pack(Generation(n_tokens)).data)
    return replace(sample, companions=(*sample.companions, marker))


# -- records ---------------------------------------------------------------------------------------


def wrong_records() -> Iterator[Sample]:
    """Records whose numbers contradict their blobs, their state or each other."""
    for code, path, value, about in (
        ("checkpoint.n-tokens-mismatch", f"{FIRST}.n_tokens", 3, "A token too few."),
        ("checkpoint.n-tokens-high", f"{FIRST}.n_tokens", 5, "A token too many."),
        ("checkpoint.n-tokens-invalid", f"{FIRST}.n_tokens", 0, "No tokens."),
        ("checkpoint.recurrent-range", f"{SECOND}.pos_min", 0, "A range of positions."),
        ("checkpoint.positions-invalid", f"{SECOND}.pos_min", 8, "From position 8 to 7."),
        ("checkpoint.positions-differ", f"{SECOND}.pos_max", 8, "A position too many."),
    ):
        whole = sidecar(record(4), record(8))
        made = set_field(whole, whole.mark(path), value)
        along = [STANDS] if code.endswith("-invalid") else []
        yield beside(code, about, made, part(whole, path), along=along)
    for code, place, about, records in (
        (
            "checkpoint.position-mismatch",
            f"{SECOND}.pos_max",
            "The record says position 6, its blob position 7.",
            (record(4), record(8, n_tokens=7, pos_min=6, pos_max=6)),
        ),
        (
            "checkpoint.not-ascending",
            f"{SECOND}.n_tokens",
            "The prompt went back between the two checkpoints.",
            (record(8), record(4)),
        ),
        (
            "checkpoint.other-content",
            f"{SECOND}.data_tgt",
            "A checkpoint of the last token, with other numbers than the state.",
            (record(4), record(12, tgt=other_rows())),
        ),
    ):
        whole = sidecar(*records)
        yield beside(code, about, whole, part(whole, place))
    longer = memory("hybrid", PLAIN, Tokens((*TEXT.ids, 7)))
    whole = sidecar(record(4), checkpoint(longer, 13))
    about = "A checkpoint behind thirteen tokens of a state of twelve."
    place = part(whole, f"{SECOND}.n_tokens")
    yield beside("checkpoint.beyond-state", about, whole, place, along=[STANDS])
    drafted = pack(CheckpointList("lsckpt2", (record(4), record(8, dft=b"draft"))))
    about, place = "The second record has the state of a draft context.", f"{SECOND}.data_dft"
    note = Expected("sidecar.not-counted", 0, len(drafted.data), ".ckpt")
    drafting = part(drafted, place)
    yield beside("checkpoint.draft-data", about, drafted, drafting, "lsckpt2", along=[note])
    attn = pack(Slot(2, TEXT, memory("kv", PLAIN)))
    whole = sidecar(record(4, "kv"), record(8, "kv"))
    about, place = "Checkpoints of a memory that needs none.", part(whole, f"{FIRST}.data_tgt")
    state = ("ggsq2.kv", attn)
    yield beside("checkpoint.full-blob", about, whole, place, state=state)
    for code, name, value, about in (
        ("checkpoint.n-tokens-low", "n_tokens", 9, "A token too few, in a window."),
        ("checkpoint.never-picked", "pos_max", 14, "Position 14 of a state of twelve."),
    ):
        records = (record(6, "iswa", ROTATED), record(10, "iswa", ROTATED, **{name: value}))
        yield appended("iswa", code, about, f"{SECOND}.{name}", *records)
    for code, name, cells in (
        ("checkpoint.window-gap", "inside", (*CELLS[5:7], *CELLS[8:10])),
        ("checkpoint.window-short", "at its start", CELLS[6:10]),
    ):
        lacking = pack(Blob(Memory({"swa": cache(cells, windowed=True)}, ROTATED))).data
        about, place = f"A window that lacks a position {name}.", f"{SECOND}.data_tgt"
        second = record(10, "iswa", ROTATED, tgt=lacking)
        yield appended("iswa", code, about, place, record(6, "iswa", ROTATED), second)


def other_rows() -> bytes:
    """The blob behind the whole text with another first row."""
    packed = pack(Blob(HELD.partial()))
    start, stop = part(packed, "recr.blocks[0].data")
    row = bytes(byte ^ 0x5A for byte in packed.data[start:stop])
    return packed.data[:start] + row + packed.data[stop:]


# -- blobs -----------------------------------------------------------------------------------------


def wrong_blobs() -> Iterator[Sample]:
    """Records whose blob no server loads, in a sidecar and in an appendix."""
    where = f"{SECOND}.data_tgt"
    for problem, about, tgt in (
        ("blob-empty", "A record without a blob.", b""),
        ("blob-truncated", "A blob that lacks its last byte.", blob(8)[:-1]),
        ("blob-trailing-bytes", "A blob with a byte too many.", blob(8) + b"\1"),
        ("blob-unreadable", "A blob of zeros.", bytes(64)),
        ("blob-geometry", "A blob of a model of four layers, not three.", of_four_layers()),
        ("blob-prefix", "A blob without the eight bytes in front.", blob(8)[8:]),
    ):
        whole = sidecar(record(4), record(8, tgt=tgt))
        yield beside(f"checkpoint.{problem}", about, whole, part(whole, where))
        second = record(8, tgt=tgt)
        lost = problem == "blob-empty"
        yield appended("hybrid", f"appendix.{problem}", about, where, record(4), second, lost=lost)
    about = "A blob of a build that wrote no rotation words."
    records = (record(4, "iswa", ROTATED), record(8, "iswa"))
    yield appended("iswa", "appendix.blob-rotation", about, where, *records)
    state = ("ggsq4.iswa", pack(Slot(4, PACKED, memory("iswa", ROTATED))))
    whole = sidecar(*records)
    yield beside("checkpoint.blob-rotation", about, whole, part(whole, where), state=state)
    yield from misplaced_cells(state)


def misplaced_cells(state: tuple[str, Packed]) -> Iterator[Sample]:
    """Records whose blob loads, with a cell where none can be; beside or behind this state."""
    second = f"{SECOND}.data_tgt"
    for appendix, about, pos, index in (
        (True, "A cell of a blob that counts as empty.", -1, 3),
        (False, "Two cells of a blob at one position.", CELLS[7].pos, 4),
    ):
        cells = (*CELLS[3:6], CELLS[6]._replace(pos=pos), CELLS[7])
        held = pack(Blob(Memory({"swa": cache(cells, windowed=True)}, ROTATED)))
        records = (record(4, "iswa", ROTATED), record(8, "iswa", ROTATED, tgt=held.data))
        start, stop = part(held, "swa.streams[0].cells")
        start += index * ((stop - start) // len(cells))
        if appendix:
            whole = pack(Slot(4, PACKED, memory("iswa", ROTATED), records))
            start += part(whole, f"appendix.{second}")[0]
            place, code = (start, start + 4), "appendix.blob-cells"
            yield in_appendix("iswa", code, about, whole, place, whole, lost=False)
        else:
            whole = sidecar(*records)
            start += part(whole, second)[0]
            place, code = (start, start + 4), "checkpoint.blob-cells"
            yield beside(code, about, whole, place, state=state)


def of_four_layers() -> bytes:
    """The blob of a checkpoint of another model."""
    state = Recurrent(CELLS[7:8], 4, (R, R), (S, S))
    return pack(Blob(Memory({"recr": state}, PLAIN))).data


# -- appendices ------------------------------------------------------------------------------------


def wrong_appendices() -> Iterator[Sample]:
    """Slot files of version 4 whose appendix is damaged; the state itself is whole."""
    whole = pack(Slot(4, PACKED, memory("hybrid", ROTATED), (record(4), record(8))))
    end = len(whole.data)
    for code, path, value, about in (
        ("appendix.unknown-version", "appendix.version", 2, "Version 2."),
        ("appendix.magic", "appendix.magic", 0x504B4353 ^ 1, "One bit of the magic flipped."),
    ):
        made = set_field(whole, whole.mark(path), value)
        yield in_appendix("hybrid", code, about, made, part(whole, path), whole, lost=True)
    about, code = "Three records are claimed, two are there.", "appendix.count-exceeds-file"
    made = set_field(whole, whole.mark("appendix.count"), 3)
    yield in_appendix("hybrid", code, about, made, (end, end), whole, lost=True)
    about, start = "The last byte is missing.", part(whole, f"appendix.{SECOND}")[0]
    made, place = cut(whole.data, end - 1), (start, end - 1)
    yield in_appendix("hybrid", "appendix.truncated", about, made, place, whole, lost=True)
    about = "An appendix without records, as revisions before the merge wrote it."
    yield appended("hybrid", "appendix.empty", about, "count", lost=True)


# -- companions ------------------------------------------------------------------------------------


def wrong_companions() -> Iterator[Sample]:
    """States whose companions are of another save, of another program, or alone."""
    whole = sidecar(record(4), record(8), family="pkcl1")
    all_of_it = (0, len(whole.data))
    uncounted = Expected("sidecar.not-counted", *all_of_it, ".ckpt")
    about = "A sidecar that the server's own numbers leave out."
    yield beside("sidecar.not-counted", about, whole, all_of_it, "pkcl1")
    about = "A sidecar that was written a minute before its state."
    stale = beside("sidecar.stale", about, whole, all_of_it, "pkcl1", along=[uncounted])
    older = replace(stale.companions[0], seconds_older=60)
    yield replace(stale, companions=(older,))
    about = "A sidecar without its state."
    found = (Expected("sidecar.orphan", *all_of_it),)
    orphan = Sample("pkcl1", "sidecar.orphan", about, whole.data, (), found, "damaged")
    yield replace(orphan, called="slot.bin.ckpt")
    shared = sidecar(record(4), record(8), family="llcp2")
    about = "A sidecar of the fork that gives all slots of a model one name."
    yield beside("sidecar.shared", about, shared, (0, len(shared.data)), "llcp2")
    about = "What no known server wrote."
    unknown = Damaged("an archive", b"PK\3\4" + bytes(60))
    place = (0, len(unknown.data))
    strange = beside("sidecar.unknown", about, unknown, place, along=[STANDS])
    yield replace(strange, companions=(Companion(".ckpt", "", unknown.data),))
    about = "A save that did not finish, beside one that did."
    half = Damaged("half a save", STATE.data[: len(STATE.data) // 2])
    place = (0, len(half.data))
    left = (Expected("sidecar.leftover", *place, ".tmp"), STANDS)
    beside_it = (Companion(".tmp", "ggsq2.hybrid", half.data),)
    yield Sample("ggsq2.hybrid", "sidecar.leftover", about, STATE.data, beside_it, left, "damaged")
    one, other = sidecar(record(4), record(8)), sidecar(record(4), record(8), family="llcp1")
    lists = (Companion(".ckpt", SLCK, one.data), Companion(".checkpoints", "llcp1", other.data))
    both = (Expected("sidecar.two-carriers", 0, len(STATE.data)),)
    about, code = "Two sidecars of different programs.", "sidecar.two-carriers"
    yield Sample("ggsq2.hybrid", code, about, STATE.data, lists, both, "damaged")
    yield from wrong_markers()


def wrong_markers() -> Iterator[Sample]:
    """STCK sets whose marker is missing, or is of another save."""
    listing = Companion(".ckpt", "stck2", pack(stck2([record(4), record(8)], b"prompt", 12)).data)
    about, code = "The marker that is written last is missing.", "sidecar.marker-missing"
    found = (Expected(code, 0, 0),)
    yield Sample("ggsq2.hybrid", code, about, STATE.data, (listing,), found, "damaged")
    marker = pack(Generation(13))
    about, code = "A marker for thirteen tokens.", "sidecar.marker-mismatch"
    found = (Expected(code, *part(marker, "n_tokens"), ".gen"),)
    beside_it = (listing, Companion(".gen", "stck-gen", marker.data))
    yield Sample("ggsq2.hybrid", code, about, STATE.data, beside_it, found, "damaged")


def wrong_companions_of_ik() -> Iterator[Sample]:
    """States of ik_llama.cpp whose companions are damaged or missing."""
    held = ik_memory(4, "hybrid")
    state = pack(Slot(4, TEXT, held)).data
    records = [checkpoint(replace(held, cells=held.cells[:n]), n, seq_id=None) for n in (4, 8)]
    listing = pack(ik_checkpoints(records, 4))
    text = ik_tokens(TEXT.ids)

    def sample(code: str, about: str, found: Expected, lists: bytes, tokens: bytes) -> Sample:
        companions = (
            Companion(".checkpoints", "ik-checkpoints4", lists),
            Companion(".tokens.json", "ik-tokens", tokens),
        )
        kept = tuple(companion for companion in companions if companion.data)
        return Sample("ik4", code, about, state, kept, (found,), "damaged")

    code, about = "sidecar.truncated-unchecked", "The last byte of the checkpoints is missing."
    end, start = len(listing.data) - 1, part(listing, SECOND)[0]
    found = Expected(code, start, end, ".checkpoints")
    yield sample(code, about, found, listing.data[:end], text)
    code, about = "sidecar.tokens-missing", "The token list is missing."
    yield sample(code, about, Expected(code, 0, 0), listing.data, b"")
    code, about = "sidecar.tokens-unreadable", "The last byte of the token list is missing."
    found = Expected(code, len(text) - 1, len(text) - 1, ".tokens.json")
    yield sample(code, about, found, listing.data, text[:-1])
    code, about = "sidecar.tokens-ignored", "A token list of version 2."
    at = text.index(b'"version":') + len(b'"version":')
    made = text[:at] + b"2" + text[at + 1 :]
    yield sample(code, about, Expected(code, at, at + 1, ".tokens.json"), listing.data, made)
    code, about = "sidecar.tokens-mismatch", "A token list with another last token."
    made = ik_tokens((*TEXT.ids[:-1], 7))
    yield sample(code, about, Expected(code, 0, len(made), ".tokens.json"), listing.data, made)
    code, about = "sidecar.foreign", "Checkpoints of ik_llama.cpp beside a state of llama.cpp."
    foreign = Companion(".checkpoints", "ik-checkpoints4", listing.data)
    tokens = Companion(".tokens.json", "ik-tokens", text)
    findings = (Expected(code, 0, len(listing.data), ".checkpoints"), STANDS)
    yield Sample("ggsq2.hybrid", code, about, STATE.data, (foreign, tokens), findings, "damaged")


def spoilt_lists() -> Iterator[Sample]:
    """All of these."""
    yield from wrong_lists()
    yield from wrong_records()
    yield from wrong_blobs()
    yield from wrong_appendices()
    yield from wrong_companions()
    yield from wrong_companions_of_ik()
