"""Intact samples: one of every layout that a known program wrote, and what is special to some."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from samples.sample import Companion, Expected, Sample, part
from samples.small import (
    CELLS,
    INDEXER,
    PACKED,
    TEXT,
    WINDOW,
    K,
    V,
    cache,
    first,
    keys_alone,
    layout_id,
    memory,
    seq_dialect,
    usual,
)
from tests.support.writer import (
    DIALECTS,
    F32,
    FAMILIES,
    RNG,
    Audio,
    Blob,
    Checkpoint,
    CheckpointList,
    Context,
    FirstMemory,
    Generation,
    IkMemory,
    Image,
    Memory,
    Outputs,
    Packable,
    Row,
    Session,
    Slot,
    Tokens,
    checkpoint,
    ik_checkpoints,
    ik_tokens,
    pack,
    pkcl2,
    stck2,
)

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

MODEL_OF = {"kv": "llama", "iswa": "gemma2"}
"""Memory -> the model of `samples/models` that has it."""


def slot_files() -> Iterator[Sample]:
    """One slot file of every upstream layout."""
    for (version, name), kinds in SLOTS.items():
        for kind in kinds:
            held = memory(kind, seq_dialect(version, name))
            made = pack(Slot(version, PACKED if version >= 3 else TEXT, held))
            yield Sample(
                layout_id(f"ggsq{version}", kind, name),
                "twelve-tokens",
                f"Twelve tokens, {'packed' if version >= 3 else 'as a plain list'}.",
                made.data,
                findings=tuple(usual(made, held)),
                model=MODEL_OF.get(kind, ""),
            )
    oldest = FirstMemory(tuple(range(12)), (K, K), (V, V), v_trans=False)
    for size_t, suffix in ((8, ""), (4, ".size_t-4")):
        for v_trans, state in ((False, "rows"), (True, "transposed")):
            slot = Slot(1, TEXT, replace(oldest, v_trans=v_trans, size_t=size_t))
            about = f"Twelve tokens, values {'transposed' if v_trans else 'in rows'}."
            yield Sample(f"ggsq1.kv{suffix}", state, about, pack(slot).data)


def special_slot_files() -> Iterator[Sample]:
    """Slot files that show one thing each."""
    streamed, attn = DIALECTS[""], cache(CELLS)
    for kind in ("kv", "iswa", "hybrid"):
        data = pack(Slot(2, first(0), memory(kind, streamed, first(0)))).data
        about = "A slot in which nothing was ever decoded."
        nothing = Expected("state.empty", 0, len(data))
        yield Sample(f"ggsq2.{kind}", "empty", about, data, findings=(nothing,))

    transposed = Memory({"attn": replace(attn, v_trans=1)}, streamed)
    about = "Values stored transposed: flash attention was off."
    yield Sample("ggsq2.kv", "transposed", about, pack(Slot(2, PACKED, transposed)).data)

    cells = tuple(cell._replace(seq_ids=(2,)) for cell in CELLS)
    streams = Memory({"attn": replace(attn, streams=((), (), cells, ()))}, streamed)
    about = "Slot 2 of a server with four slots and a cache that is not unified."
    yield Sample("ggsq2.kv", "third-of-four-streams", about, pack(Slot(2, PACKED, streams)).data)

    for name, tokens, version, dialect in media_tokens():
        held = memory("kv", seq_dialect(version, dialect), tokens)
        about = f"Packed tokens with media: {name.replace('-', ' ')}."
        layout = layout_id(f"ggsq{version}", "kv", dialect)
        made = pack(Slot(version, tokens, held))
        grid = []
        if dialect:
            start, stop = part(made, "attn.streams[0].cells")
            stride, apart = (stop - start) // len(tokens.ids), 3  # the second patch of the image
            grid = [
                Expected("cells.ext-differs", start + apart * stride, start + (apart + 1) * stride)
            ]
        yield Sample(layout, name, about, made.data, findings=tuple(grid))

    rotated = DIALECTS["rotated"]
    for kind in ("iswa", "hybrid", "recurrent"):
        parts = ((memory(kind, rotated, first(n)), n) for n in (4, 8))
        records = tuple(checkpoint(held, n) for held, n in parts)
        slot = Slot(4, PACKED, memory(kind, rotated), records)
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
            made = pack(Session(version, TEXT.ids, context))
            yield Sample(
                layout_id(f"ggsn{version}", kind, name),
                "twelve-tokens",
                "One sequence of twelve tokens.",
                made.data,
                findings=tuple(keys_alone(made, memory(kind, dialect))),
            )


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
    match kind:
        case "hybrid":
            state = (None, (Row(F32, 128), 1))
            return IkMemory(version, CELLS, (K, None), (V, None), 0, state)
        case "mla":
            return IkMemory(version, CELLS, (K, K), (None, None), 2)
        case "indexer":
            return IkMemory(version, CELLS, (K, K), (None, None), 2, indexer=(INDEXER,))
    return IkMemory(version, CELLS, (K, K), (V, V))


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
        records = [
            checkpoint(memory("hybrid", held.dialect, first(n)), n, seq_id=seq_id) for n in (4, 8)
        ]
        data, suffix = pack(listed(family, records, state)).data, SUFFIXES.get(family, ".ckpt")
        companions = [Companion(suffix, family, data)]
        if family == "stck2":
            companions.append(Companion(".gen", "stck-gen", pack(Generation(12)).data))
        about = f"A state with two checkpoints in a sidecar of the {family} family."
        noted = {"llcp2": "sidecar.shared", "pkcl1": "sidecar.not-counted"}
        noted["lsckpt2"] = noted["pkcl1"]
        notes = (Expected(noted[family], 0, len(data), suffix),) if family in noted else ()
        yield Sample("ggsq2.hybrid", f"with-{family}", about, state, tuple(companions), notes)


def listed(family: str, records: list[Checkpoint], state: bytes) -> Packable:
    """The sidecar of a state, bound to it where the family does that."""
    if family == "pkcl2":
        return pkcl2(records, state)
    if family == "stck2":
        return stck2(records, json.dumps(TEXT.ids).encode(), len(TEXT.ids))
    return CheckpointList(family, tuple(records))


def intact() -> Iterator[Sample]:
    """Every intact synthetic sample."""
    yield from slot_files()
    yield from special_slot_files()
    yield from session_files()
    yield from blob_files()
    yield from ik_files()
    yield from sidecars()
