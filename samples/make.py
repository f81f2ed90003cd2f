"""Rebuilds the synthetic samples and their cards byte for byte: `python -m samples.make`.

The samples of real programs are kept as they were written; only their cards tell where they are
from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.damage import Damaged, cut, hole, overwrite, set_field, trail
from tests.support.writer import (
    COMPOSITIONS,
    DIALECTS,
    F16,
    F32,
    FAMILIES,
    RNG,
    Audio,
    Blob,
    Cache,
    Cell,
    Checkpoint,
    CheckpointList,
    Compressed,
    Compressor,
    Context,
    Dialect,
    Dsv4,
    FirstMemory,
    Generation,
    IkMemory,
    Image,
    Mark,
    Memory,
    Outputs,
    Packable,
    Recurrent,
    Row,
    Section,
    Session,
    Slot,
    Tokens,
    cells_of,
    checkpoint,
    ik_checkpoints,
    ik_tokens,
    pack,
    pkcl2,
    stck2,
)

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Companion:
    """A file beside a sample: the suffix it has behind the sample's name, its layout, its bytes."""

    suffix: str
    layout: str
    data: bytes


@dataclass(frozen=True)
class Expected:
    """A finding: its code, the offset of its bytes, and the companion's suffix if it is in one."""

    code: str
    offset: int
    suffix: str = ""


@dataclass(frozen=True)
class Sample:
    """A synthetic sample.

    Attributes:
        layout: the layout it is written in.
        name: what it shows; for a damaged one the code of the finding.
        about: a sentence about it.
        data: its bytes.
        companions: files beside it.
        findings: the errors and warnings in it.
    """

    layout: str
    name: str
    about: str
    data: bytes
    companions: tuple[Companion, ...] = ()
    findings: tuple[Expected, ...] = ()

    @property
    def file(self) -> str:
        """The path below this folder."""
        return f"{'damaged' if self.findings else 'intact'}/{self.layout}--{self.name}.slot"


def sha256(data: bytes) -> str:
    """The digest that cards carry."""
    return hashlib.sha256(data).hexdigest()


def card(sample: Sample) -> str:
    """The card of a synthetic sample, as TOML."""
    lines = [
        f'layout = "{sample.layout}"',
        f"about = {json.dumps(sample.about)}",
        f'sha256 = "{sha256(sample.data)}"',
        'licence = "CC0-1.0"',
        *(["findings = []"] if not sample.findings else []),
        "",
        "[origin]",
        'kind = "synthetic"',
        'made_by = "python -m samples.make"',
    ]
    for companion in sample.companions:
        lines += [
            "",
            "[[companions]]",
            f'suffix = "{companion.suffix}"',
            f'layout = "{companion.layout}"',
            f'sha256 = "{sha256(companion.data)}"',
        ]
    for finding in sample.findings:
        lines += ["", "[[findings]]", f'code = "{finding.code}"', f"offset = {finding.offset}"]
        if finding.suffix:
            lines.append(f'suffix = "{finding.suffix}"')
    return "\n".join(lines) + "\n"


# -- one small model for all of them ---------------------------------------------------------------

TEXT = Tokens((1, 15043, 3186, 29892, 306, 626, 263, 4802, 3699, 310, 1426, 29889))
WINDOW = 5
K, V, INDEXER = Row(F16, 16), Row(F16, 16), Row(F16, 8)
R, S, HISTORY = Row(F32, 512), Row(F32, 1024), Row(F32, 384)


def cache(cells: tuple[Cell, ...], *, values: bool = True, windowed: bool = False) -> Cache:
    """Two layers in one stream."""
    return Cache((cells,), (K, K), (V, V) if values else None, windowed=windowed)


def section(kind: str, cells: tuple[Cell, ...], dialect: Dialect) -> Section:
    """A section of this kind that holds these cells."""
    window = cells if dialect.ids == "all" else cells[-WINDOW:]
    match kind:
        case "cache":
            return cache(cells)
        case "keys":
            return cache(cells, values=False)
        case "indexer":
            return Cache((cells,), (INDEXER,), (INDEXER,))
        case "indexer-keys":
            return Cache((cells,), (INDEXER,), None)
        case "window":
            return cache(window, windowed=True)
        case "window-keys":
            return cache(window, values=False, windowed=True)
        case "minimax-m3":
            return replace(cache(cells), index=(None, Row(F32, 16)))
        case "dsv4":
            return dsv4(cells, window)
    histories = (HISTORY, None) if kind == "state-with-history" else ()
    return Recurrent(cells[-1:], 3, (R, R), (S, S), histories)


def dsv4(cells: tuple[Cell, ...], window: tuple[Cell, ...]) -> Dsv4:
    """Three layers: two that compress four positions to one, one that compresses 128."""
    n = len(cells) // 4
    four, many = (0, 2), (1,)
    return Dsv4(
        Cache((cells,), (), None),
        Cache((window,), (K, K, K), None, windowed=True),
        {
            "csa": Compressed(four, 8, n),
            "hca": Compressed(many, 8, 0),
            "lid": Compressed(four, 4, n),
        },
        {
            "csa": Compressor(four, 4, 8, 16),
            "hca": Compressor(many, 128, 128, 8),
            "lid": Compressor(four, 4, 8, 8),
        },
    )


def memory(kind: str, dialect: Dialect, tokens: Tokens = TEXT) -> Memory:
    """A memory of this type that holds these tokens."""
    cells = cells_of(tokens, mrope=dialect.ext > 0)
    sections = {name: section(part, cells, dialect) for name, part in COMPOSITIONS[kind].items()}
    return Memory(sections, dialect)


# -- slot files ------------------------------------------------------------------------------------

PLAIN = ["kv", "mla", "iswa", "recurrent", "hybrid", "hybrid-mla", "hybrid-iswa"]
SPARSE = ["dsa", "dsa-iswa", "msa", "dsv4"]
SLOTS = {
    (2, "anonymous"): ["kv", "iswa"],
    (2, "flat"): ["kv", "iswa"],
    (2, ""): [*PLAIN, *SPARSE, "minimax-m3"],
    (2, "xy"): ["kv", "hybrid"],
    (3, ""): [*PLAIN, *SPARSE, "hybrid-idx", "hybrid-idx-mla"],
    (3, "xyt"): ["kv", "hybrid", "hybrid-ple", "hybrid-idx-values", "hybrid-idx"],
    (4, ""): [*PLAIN, *SPARSE, "hybrid-idx", "hybrid-idx-mla"],
    (4, "xyt"): ["kv", "hybrid", "hybrid-ple", "hybrid-idx"],
}
"""Version and dialect -> memory types that were written so."""


def layout_id(family: str, kind: str, dialect: str) -> str:
    """The id of a layout."""
    return f"{family}.{kind}.{dialect}" if dialect else f"{family}.{kind}"


def seq_dialect(version: int, name: str) -> Dialect:
    """How a slot file of this version writes cells and sections."""
    return replace(DIALECTS[name], rotation=version == 4)


def slot_files() -> Iterator[Sample]:
    """One slot file of every upstream layout."""
    for (version, name), kinds in SLOTS.items():
        for kind in kinds:
            held = memory(kind, seq_dialect(version, name))
            packed = version >= 3
            data = pack(Slot(version, replace(TEXT, packed=packed), held)).data
            about = f"Twelve tokens, {'packed' if packed else 'as a plain list'}."
            yield Sample(layout_id(f"ggsq{version}", kind, name), "twelve-tokens", about, data)
    first = FirstMemory(tuple(range(12)), (K, K), (V, V), v_trans=False)
    for size_t, suffix in ((8, ""), (4, ".size_t-4")):
        for v_trans, state in ((False, "rows"), (True, "transposed")):
            slot = Slot(1, TEXT, replace(first, v_trans=v_trans, size_t=size_t))
            about = f"Twelve tokens, values {'transposed' if v_trans else 'in rows'}."
            yield Sample(f"ggsq1.kv{suffix}", state, about, pack(slot).data)


def special_slot_files() -> Iterator[Sample]:
    """Slot files that show one thing each."""
    streamed = DIALECTS[""]
    for kind in ("kv", "iswa", "hybrid"):
        empty = memory(kind, streamed, Tokens(()))
        about = "A slot in which nothing was ever decoded."
        yield Sample(f"ggsq2.{kind}", "empty", about, pack(Slot(2, Tokens(()), empty)).data)

    packed = replace(TEXT, packed=True)
    attn = cache(cells_of(TEXT))
    transposed = Memory({"attn": replace(attn, v_trans=1)}, streamed)
    about = "Values stored transposed: flash attention was off."
    yield Sample("ggsq2.kv", "transposed", about, pack(Slot(2, packed, transposed)).data)

    cells = tuple(cell._replace(seq_ids=(2,)) for cell in cells_of(TEXT))
    streams = Memory({"attn": replace(attn, streams=((), (), cells, ()))}, streamed)
    about = "Slot 2 of a server with four slots and a cache that is not unified."
    yield Sample("ggsq2.kv", "third-of-four-streams", about, pack(Slot(2, packed, streams)).data)

    for name, tokens, version, dialect in media_tokens():
        held = memory("kv", seq_dialect(version, dialect), tokens)
        about = f"Packed tokens with media: {name.replace('-', ' ')}."
        layout = layout_id(f"ggsq{version}", "kv", dialect)
        yield Sample(layout, name, about, pack(Slot(version, tokens, held)).data)

    rotated = DIALECTS["rotated"]
    for kind in ("iswa", "hybrid", "recurrent"):
        parts = ((memory(kind, rotated, Tokens(TEXT.ids[:n])), n) for n in (4, 8))
        records = tuple(checkpoint(part, n) for part, n in parts)
        slot = Slot(4, packed, memory(kind, rotated), records)
        about = "Two checkpoints in an SCKP appendix, as mainline writes them since PR #26004."
        yield Sample(f"ggsq4.{kind}", "two-checkpoints", about, pack(slot).data)


def media_tokens() -> Iterator[tuple[str, Tokens, int, str]]:
    """A name, a token field with media, and the version and dialect of the file it is in."""
    image = Image(2, 3, 2)
    yield "an-image", with_media((image,), 1), 2, ""
    yield "an-image-on-a-grid", with_media((replace(image, pos_type=1),), 1), 2, "xy"
    yield "an-image-of-hunyuan-vl", with_media((replace(image, pos_type=2),), 1), 2, ""
    yield "audio", with_media((Audio(2, 3),), 1), 2, ""
    two = (replace(image, pos_type=1), Audio(10, 3))
    yield "an-image-and-audio", with_media(two, 2), 4, "xyt"


def with_media(media: tuple[Image | Audio, ...], chunk_version: int) -> Tokens:
    """Text with these chunks where they say they begin."""
    ids, text = list[int](), iter(TEXT.ids)
    for chunk in media:
        ids += [next(text) for _ in range(chunk.start - len(ids))]
        ids += [-1] * chunk.n_tokens
    return Tokens((*ids, *text), packed=True, media=media, chunk_version=chunk_version)


# -- whole contexts --------------------------------------------------------------------------------

SESSIONS = {
    (8, ""): ["kv", "recurrent"],
    (9, "flat"): ["kv", "iswa"],
    (9, "outputs"): PLAIN,
    (9, ""): [*PLAIN, *SPARSE, "minimax-m3"],
    (9, "xy"): ["kv", "hybrid"],
    (10, ""): [*PLAIN, *SPARSE, "hybrid-idx", "hybrid-idx-mla"],
    (10, "xyt"): ["kv", "hybrid", "hybrid-ple", "hybrid-idx-values", "hybrid-idx"],
    (11, ""): [*PLAIN, *SPARSE, "hybrid-idx", "hybrid-idx-mla"],
    (11, "xyt"): ["kv", "hybrid", "hybrid-ple", "hybrid-idx"],
}
"""Version and dialect -> memory types that were written so."""


def session_files() -> Iterator[Sample]:
    """One whole-context file of every upstream layout since version 8."""
    for (version, name), kinds in SESSIONS.items():
        flat = version == 8 or name == "flat"
        dialect = replace(DIALECTS[name], streams=not flat, ids="all", rotation=version == 11)
        outputs = Outputs((11,), 16, 0) if flat or name == "outputs" else None
        for kind in kinds:
            rng = RNG if version == 8 else None
            context = Context(b"llama", memory(kind, dialect), rng, outputs)
            data = pack(Session(version, TEXT.ids, context)).data
            layout = layout_id(f"ggsn{version}", kind, name)
            yield Sample(layout, "twelve-tokens", "One sequence of twelve tokens.", data)


# -- blobs -----------------------------------------------------------------------------------------


def blob_files() -> Iterator[Sample]:
    """Sequence states as they lie in memory and in checkpoints."""
    for kind in ("iswa", "hybrid"):
        held = memory(kind, DIALECTS[""])
        about = "The state of one sequence, as a program keeps it in memory."
        yield Sample(f"blob.{kind}.prefixed", "twelve-tokens", about, pack(Blob(held)).data)
    partials = {"iswa": "iswa-partial", "hybrid-iswa": "hybrid-iswa-partial", "hybrid": "recurrent"}
    for kind, layout in partials.items():
        held = memory(kind, DIALECTS[""]).partial()
        about = f"What a checkpoint of a context of type {kind} holds."
        for seq_id, suffix in ((None, ""), (0, ".prefixed")):
            data = pack(Blob(held, seq_id)).data
            yield Sample(f"blob.{layout}{suffix}", "checkpoint", about, data)


# -- ik_llama.cpp ----------------------------------------------------------------------------------


def ik_memory(version: int, kind: str) -> IkMemory:
    """A memory of ik_llama.cpp: `plain`, `hybrid`, `mla` or `indexer`."""
    cells = cells_of(TEXT)
    match kind:
        case "hybrid":
            state = (None, (Row(F32, 128), 1))
            return IkMemory(version, cells, (K, None), (V, None), 0, state)
        case "mla":
            return IkMemory(version, cells, (K, K), (None, None), 2)
        case "indexer":
            return IkMemory(version, cells, (K, K), (None, None), 2, indexer=(INDEXER,))
    return IkMemory(version, cells, (K, K), (V, V))


def ik_files() -> Iterator[Sample]:
    """Slot and session files of ik_llama.cpp, and what lies beside them."""
    kinds = {
        "ik2.mla": (2, ["mla"]),
        "ik3": (3, ["plain", "hybrid", "mla"]),
        "ik4": (4, ["plain", "hybrid", "indexer"]),
    }
    for layout, (version, names) in kinds.items():
        for name in names:
            slot = Slot(version, TEXT, ik_memory(version, name))
            yield Sample(layout, name, "Twelve tokens.", pack(slot).data)
    window = replace(
        ik_memory(4, "plain"), window=(32, WINDOW, 12 - WINDOW, WINDOW), compacted=frozenset({0})
    )
    about = "Twelve tokens, of which layer 0 keeps a window of five."
    yield Sample("ik4.swac", "a-window", about, pack(Slot(4, TEXT, window)).data)
    for layout, version, name in (
        ("ik8.session.mla", 2, "mla"),
        ("ik9.session", 3, "hybrid"),
        ("ik10.session", 4, "hybrid"),
    ):
        held = replace(ik_memory(version, name), ids=True)
        context = Context(b"qwen35", held, RNG, Outputs((11,), 16, 0))
        session = Session(version + 6, TEXT.ids, context)
        yield Sample(layout, "twelve-tokens", "One sequence of twelve tokens.", pack(session).data)
    for version in (3, 4):
        held = ik_memory(version, "hybrid")
        records = [checkpoint(replace(held, cells=held.cells[:n]), n, seq_id=None) for n in (4, 8)]
        beside = (
            Companion(
                ".checkpoints",
                f"ik-checkpoints{version}",
                pack(ik_checkpoints(records, version)).data,
            ),
            Companion(".tokens.json", "ik-tokens", ik_tokens(TEXT.ids)),
        )
        about = "A state with its two companions: two checkpoints, and the token list as JSON."
        data = pack(Slot(version, TEXT, held)).data
        yield Sample(f"ik{version}", "with-companions", about, data, beside)


# -- checkpoint sidecars ---------------------------------------------------------------------------

SUFFIXES = {"llcp1": ".checkpoints", "llcp2": ".checkpoints"}
UNPREFIXED = ("pkcl1", "llcp1")
"""Families whose builds were from before blobs had a prefix."""


def sidecars() -> Iterator[Sample]:
    """A hybrid state with a checkpoint sidecar of every family that stands alone."""
    held = memory("hybrid", DIALECTS[""])
    state = pack(Slot(2, TEXT, held)).data
    for family in sorted(FAMILIES.keys() - {"ik", "sckp1"}):
        seq_id = None if family in UNPREFIXED else 0
        parts = (memory("hybrid", held.dialect, Tokens(TEXT.ids[:n])) for n in (4, 8))
        records = [
            checkpoint(part, n, seq_id=seq_id) for part, n in zip(parts, (4, 8), strict=True)
        ]
        companions = [
            Companion(
                SUFFIXES.get(family, ".ckpt"), family, pack(listed(family, records, state)).data
            )
        ]
        if family == "stck2":
            companions.append(Companion(".gen", "stck-gen", pack(Generation(12)).data))
        about = f"A state with two checkpoints in a sidecar of the {family} family."
        yield Sample("ggsq2.hybrid", f"with-{family}", about, state, tuple(companions))


def listed(family: str, records: list[Checkpoint], state: bytes) -> Packable:
    """The sidecar of a state, bound to it where the family does that."""
    if family == "pkcl2":
        return pkcl2(records, state)
    if family == "stck2":
        return stck2(records, json.dumps(TEXT.ids).encode(), len(TEXT.ids))
    return CheckpointList(family, tuple(records))


# -- damaged files ---------------------------------------------------------------------------------


def spoilt(layout: str, code: str, about: str, damaged: Damaged, *places: Mark | int) -> Sample:
    """A damaged sample in which nothing but `code` is found, at each of these fields or offsets."""
    offsets = [place.start if isinstance(place, Mark) else place for place in places]
    findings = tuple(Expected(code, offset) for offset in offsets)
    return Sample(layout, code, about, damaged.data, findings=findings)


def wrong_words() -> Iterator[Sample]:
    """Slot files with a wrong number in a field."""
    layout, plain = "ggsq2.kv", pack(Slot(2, TEXT, memory("kv", DIALECTS[""])))
    stream = "attn.streams[0]"
    for code, path, value, about in (
        ("envelope.magic-wrong", "magic", 0x67677370, "One bit of the magic flipped."),
        ("envelope.version-unknown", "version", 9, "A version that nobody writes."),
        ("envelope.version-contradicts-body", "version", 4, "Version 4 without rotation words."),
    ):
        yield spoilt(
            layout, code, about, set_field(plain, plain.mark(path), value), plain.mark(path)
        )
    made = set_field(plain, plain.mark("n_token_count"), 2**31)
    about = "More tokens than there are bytes."
    yield spoilt(layout, "tokens.count-exceeds-file", about, made, plain.mark("tokens"))
    cells = plain.mark(f"{stream}.cells").start
    for code, row, offset, word, about in (
        ("cells.n-seq-id", 3, 4, 2, "A cell that claims two sequences."),
        ("cells.pos-negative", 3, 0, 0xFFFFFFFB, "A cell at position -5."),
        ("cells.pos-duplicate", 3, 0, 2, "Two cells at position 2."),
    ):
        place = cells + 12 * row + offset
        made = overwrite(plain.data, place, word.to_bytes(4, "little"))
        yield spoilt(layout, code, about, made, place)

    place = plain.mark("tokens").start + 4
    made = overwrite(plain.data, place, b"\xfe\xff\xff\xff")
    yield spoilt(layout, "tokens.negative", "Token 1 is -2.", made, place)


def cut_files() -> Iterator[Sample]:
    """Files that end too early or too late."""
    layout, plain = "ggsq2.kv", pack(Slot(2, TEXT, memory("kv", DIALECTS[""])))
    last = plain.mark("attn.streams[0].v[1].data")
    about = "The last byte is missing: a disk that was full."
    yield spoilt(layout, "file.truncated", about, cut(plain.data, len(plain.data) - 1), last)
    yield spoilt(layout, "file.empty", "A save that failed at once.", cut(plain.data, 0), 0)
    full = replace(DIALECTS[""], ids="all")
    session = pack(Session(9, TEXT.ids, Context(b"llama", memory("kv", full)))).data
    about = "Sixteen zeros behind a whole context, which loaders refuse."
    made = trail(session, bytes(16))
    yield spoilt("ggsn9.kv", "file.trailing-bytes-refused", about, made, len(session))


def wrong_memories() -> Iterator[Sample]:
    """Slot files whose parts are whole and do not fit together."""
    streamed, cells = DIALECTS[""], cells_of(TEXT)
    shorter = Tokens(TEXT.ids[:-2])

    def sample(kind: str, code: str, about: str, place: str, **sections: Section) -> Sample:
        held = memory(kind, streamed)
        packed = pack(Slot(2, TEXT, replace(held, sections={**held.sections, **sections})))
        return spoilt(f"ggsq2.{kind}", code, about, Damaged(code, packed.data), packed.mark(place))

    attn = cache(cells)
    both = replace(attn, streams=(cells[:6], cells[6:]))
    about = "Two streams of one sequence have cells."
    yield sample("kv", "streams.several-in-seq", about, "attn.n_stream", attn=both)
    about = "Ten cells for twelve tokens."
    fewer = cache(cells_of(shorter))
    yield sample("kv", "tokens.cells-mismatch", about, "attn.n_stream", attn=fewer)
    about = "Twelve tokens and not one cell."
    yield sample("kv", "tokens.no-cells", about, "attn.n_stream", attn=cache(()))
    about = "The second layer of keys is stored as f32."
    mixed = replace(attn, k=(K, Row(F32, 32), K))
    place = "attn.streams[0].k[1].k_type"
    mixed = replace(mixed, v=(V, V, V))
    yield sample("kv", "layers.types-disagree", about, place, attn=mixed)
    about = "Keys of fifteen bytes of f16."
    odd = replace(attn, k=(Row(F16, 15), Row(F16, 15)))
    packed = pack(Slot(2, TEXT, Memory({"attn": odd}, streamed)))
    places = [packed.mark(f"attn.streams[0].k[{i}].k_type") for i in (0, 1)]
    made = Damaged("odd rows", packed.data)
    yield spoilt("ggsq2.kv", "layers.row-not-whole", about, made, *places)

    window = cache(cells_of(shorter)[-WINDOW:], windowed=True)
    about = "The window ends two positions before the full cache."
    yield sample("iswa", "swa.behind", about, "swa.n_stream", swa=window)
    holed = cache((*cells[-WINDOW:-3], *cells[-2:]), windowed=True)
    about = "A cell is missing inside the window."
    yield sample("iswa", "swa.gaps", about, "swa.streams[0].cells", swa=holed)

    early = section("state", cells_of(shorter), streamed)
    about = "The state stands two positions before the end of the attention cache."
    yield sample("hybrid", "recurrent.pos-mismatch", about, "recr.cell_count", recr=early)


def wrong_lists() -> Iterator[Sample]:
    """Checkpoint lists that are damaged, or that are not those of their state."""
    held = memory("hybrid", DIALECTS[""])
    state = pack(Slot(2, TEXT, held)).data
    parts = [(memory("hybrid", held.dialect, Tokens(TEXT.ids[:n])), n) for n in (4, 8)]
    records = [checkpoint(part, n, seq_id=None) for part, n in parts]
    first, second = "records[0]", "records[1]"

    def beside(code: str, about: str, made: Damaged, place: Mark | int, layout: str) -> Sample:
        suffix = SUFFIXES.get(layout, ".ckpt")
        offset = place.start if isinstance(place, Mark) else place
        companion = Companion(suffix, layout, made.data)
        findings = (Expected(code, offset, suffix),)
        return Sample("ggsq2.hybrid", code, about, state, (companion,), findings)

    pkcl = pack(CheckpointList("pkcl1", tuple(records)))
    end, start = len(pkcl.data), pkcl.mark(f"{second}.n_tokens")
    for code, about, made, place in (
        ("sidecar.truncated", "The last byte is missing.", cut(pkcl.data, end - 1), start),
        ("sidecar.trailing-bytes", "Eight more bytes.", trail(pkcl.data, bytes(8)), end),
    ):
        yield beside(code, about, made, place, "pkcl1")
    for code, path, value, about in (
        ("sidecar.unknown-version", "version", 7, "Version 7."),
        ("checkpoint.n-tokens-mismatch", f"{first}.n_tokens", 3, "A token too few."),
        ("checkpoint.n-tokens-high", f"{first}.n_tokens", 5, "A token too many."),
        ("checkpoint.recurrent-range", f"{second}.pos_min", 0, "A range of positions."),
    ):
        mark = pkcl.mark(path)
        yield beside(code, about, set_field(pkcl, mark, value), mark, "pkcl1")
    count = pkcl.mark("count")
    about = "Three records are claimed, two are there."
    yield beside("sidecar.count-exceeds-file", about, set_field(pkcl, count, 3), end, "pkcl1")
    llcp = pack(CheckpointList("llcp1", tuple(records)))
    made = set_field(llcp, llcp.mark("count"), 2**31)
    about = "Two thousand million records, which the reader believes."
    yield beside("sidecar.unchecked-size", about, made, len(llcp.data), "llcp1")
    hashed = pack(pkcl2([checkpoint(part, n) for part, n in parts], state + b"more"))
    about = "The hash of another state."
    made = Damaged("another hash", hashed.data)
    yield beside("sidecar.hash-mismatch", about, made, hashed.mark("state_hash"), "pkcl2")
    moved = replace(records[1], n_tokens=7, pos_min=6, pos_max=6)
    wrong = pack(CheckpointList("pkcl1", (records[0], moved)))
    about = "The record says position 6, its blob position 7."
    made = Damaged("another position", wrong.data)
    place = wrong.mark(f"{second}.pos_max")
    yield beside("checkpoint.position-mismatch", about, made, place, "pkcl1")


def wrong_appendices() -> Iterator[Sample]:
    """Slot files of version 4 whose SCKP appendix is damaged; the state itself is whole."""
    rotated = DIALECTS["rotated"]
    parts = [(memory("hybrid", rotated, Tokens(TEXT.ids[:n])), n) for n in (4, 8)]
    records = tuple(checkpoint(part, n) for part, n in parts)
    slot = Slot(4, replace(TEXT, packed=True), memory("hybrid", rotated), records)
    whole = pack(slot)
    layout = "ggsq4.hybrid"
    for code, path, value, about in (
        ("appendix.unknown-version", "appendix.version", 2, "Version 2."),
        ("appendix.magic", "appendix.magic", 0x504B4353 ^ 1, "One bit of the magic flipped."),
    ):
        mark = whole.mark(path)
        yield spoilt(layout, code, about, set_field(whole, mark, value), mark)


def wrong_numbers() -> Iterator[Sample]:
    """Slot files in which tensors hold what no model computes."""
    plain = pack(Slot(2, TEXT, memory("kv", DIALECTS[""])))
    block = plain.mark("attn.streams[0].k[1].data")
    made = overwrite(plain.data, block.start + 3 * K.size, b"\0\x7e")
    about = "A NaN among the keys."
    yield spoilt("ggsq2.kv", "tensors.non-finite", about, made, block.start + 3 * K.size)
    made = hole(plain.data, block.start + 3 * K.size, 2 * K.size)
    about = "The keys of two cells are zeros."
    yield spoilt("ggsq2.kv", "tensors.zero-rows", about, made, block.start + 3 * K.size)


# -- all of them -----------------------------------------------------------------------------------


def intact() -> Iterator[Sample]:
    """Every intact synthetic sample."""
    yield from slot_files()
    yield from special_slot_files()
    yield from session_files()
    yield from blob_files()
    yield from ik_files()
    yield from sidecars()


def damaged() -> Iterator[Sample]:
    """Every damaged synthetic sample."""
    yield from wrong_words()
    yield from cut_files()
    yield from wrong_memories()
    yield from wrong_lists()
    yield from wrong_appendices()
    yield from wrong_numbers()


def files() -> dict[str, bytes]:
    """Path below this folder -> bytes, of every file that this script writes."""
    made: dict[str, bytes] = {}
    for sample in (*intact(), *damaged()):
        made[sample.file] = sample.data
        made[sample.file.removesuffix(".slot") + ".toml"] = card(sample).encode()
        for companion in sample.companions:
            made[sample.file + companion.suffix] = companion.data
    return made


def main() -> None:
    """Write the synthetic samples."""
    for path, data in files().items():
        (HERE / path).write_bytes(data)


if __name__ == "__main__":
    main()
