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
class Sample:
    """A synthetic sample: its layout, a name for what it shows, a sentence about it, its bytes."""

    layout: str
    name: str
    about: str
    data: bytes
    companions: tuple[Companion, ...] = ()

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{self.layout}--{self.name}.slot"


def sha256(data: bytes) -> str:
    """The digest that cards carry."""
    return hashlib.sha256(data).hexdigest()


def card(sample: Sample) -> str:
    """The card of an intact synthetic sample, as TOML."""
    lines = [
        f'layout = "{sample.layout}"',
        f"about = {json.dumps(sample.about)}",
        f'sha256 = "{sha256(sample.data)}"',
        'licence = "CC0-1.0"',
        "findings = []",
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
    for kind in ("kv", "iswa", "hybrid"):
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


# -- all of them -----------------------------------------------------------------------------------


def intact() -> Iterator[Sample]:
    """Every intact synthetic sample."""
    yield from slot_files()
    yield from special_slot_files()
    yield from session_files()
    yield from blob_files()
    yield from ik_files()
    yield from sidecars()


def files() -> dict[str, bytes]:
    """Path below this folder -> bytes, of every file that this script writes."""
    made: dict[str, bytes] = {}
    for sample in intact():
        made[f"intact/{sample.file}"] = sample.data
        made[f"intact/{sample.file.removesuffix('.slot')}.toml"] = card(sample).encode()
        for companion in sample.companions:
            made[f"intact/{sample.file}{companion.suffix}"] = companion.data
    return made


def main() -> None:
    """Write the synthetic samples."""
    for path, data in files().items():
        (HERE / path).write_bytes(data)


if __name__ == "__main__":
    main()
