"""Damaged states: one for every finding, and nothing else is found in it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace

from samples.sample import Expected, Sample, part
from samples.small import (
    CELLS,
    PACKED,
    TEXT,
    WINDOW,
    K,
    S,
    V,
    cache,
    first,
    header,
    memory,
    section,
    seq_dialect,
    usual,
)
from samples.whole import ik_memory, with_media
from tests.support.damage import Damaged, cut, hole, overwrite, set_field, trail
from tests.support.writer import (
    BF16,
    DIALECTS,
    F16,
    F32,
    Q8_0,
    Blob,
    Cell,
    Context,
    FirstMemory,
    IkMemory,
    Image,
    Memory,
    Packed,
    Recurrent,
    Row,
    Section,
    Session,
    Slot,
    Tokens,
    ik_tokens,
    media_chunk,
    pack,
)

STREAM = "attn.streams[0]"


def spoilt(
    layout: str, code: str, about: str, made: Damaged | Packed, place: tuple[int, int]
) -> Sample:
    """A sample in which nothing but `code` is found, at the bytes `place`."""
    return Sample(layout, code, about, made.data, (), (Expected(code, *place),), "damaged")


def slot(
    kind: str,
    tokens: Tokens = TEXT,
    version: int = 2,
    dialect: str = "",
    sections: Mapping[str, Section] | None = None,
) -> Packed:
    """A slot file of our text, in which some sections are others."""
    held = memory(kind, seq_dialect(version, dialect), tokens)
    held = replace(held, sections={**held.sections, **(sections or {})})
    return pack(Slot(version, tokens, held))


def session(**sections: Section) -> Packed:
    """A whole context with one attention cache, in which some sections are others."""
    held = memory("kv", replace(DIALECTS[""], ids="all"))
    held = replace(held, sections={**held.sections, **sections})
    return pack(Session(9, TEXT.ids, Context(b"llama", held)))


def word(value: int) -> bytes:
    """A number of 32 bits."""
    return struct.pack("<I", value % (1 << 32))


# -- words in front of the memory ------------------------------------------------------------------


def wrong_heads() -> Iterator[Sample]:
    """Files whose first words are wrong, or their name."""
    layout, plain = "ggsq2.kv", slot("kv")
    for code, path, value, about in (
        ("envelope.magic-wrong", "magic", 0x67677370, "One bit of the magic flipped."),
        ("envelope.version-unknown", "version", 9, "A version that nobody writes."),
        ("envelope.version-contradicts-body", "version", 4, "Version 4 without rotation words."),
    ):
        mark = plain.mark(path)
        yield spoilt(layout, code, about, set_field(plain, mark, value), part(plain, path))
    about = "A state that was saved through a symbolic link to a model."
    name, whole = "file.named-like-a-model", (0, len(plain.data))
    yield replace(spoilt(layout, name, about, plain, whole), called="model.gguf")
    about = "A state whose name is a symbolic link."
    linked = spoilt(layout, "file.symlink", about, plain, whole)
    yield replace(linked, link="elsewhere.bin")
    about = "A slot file of a machine that writes the high byte first."
    yield spoilt(layout, "file.big-endian", about, swapped(plain), (0, 4))
    about = "The first 64 bytes never reached the disk."
    yield spoilt(layout, "file.unrecognised", about, hole(plain.data, 0, 64), whole)
    about = "A save that failed at once."
    yield spoilt(layout, "file.empty", about, cut(plain.data, 0), (0, 0))

    about = "A model whose download stopped in its only tensor."
    model = header("llama", {"output_norm.weight": 64})
    where = (len(model) - 256, len(model) - 56)
    yield spoilt("gguf3", "gguf.truncated", about, Damaged("cut", model[:-56]), where)

    oldest = pack(Slot(1, TEXT, FirstMemory(tuple(range(12)), (K, K), (V, V), v_trans=False)))
    made = set_field(oldest, oldest.mark("size_t_size"), 6)
    about = "A size_t of six bytes."
    yield spoilt("ggsq1.kv", "layout.flag", about, made, part(oldest, "size_t_size"))


def swapped(packed: Packed) -> Damaged:
    """The same file with the bytes of every word in the opposite order."""
    out = b""
    for mark in packed.marks:
        data, words = packed.data[mark.start : mark.stop], ("tokens", "cells")
        size = len(data) if mark.value is not None else 4 if mark.path.endswith(words) else 2
        out += b"".join(data[at : at + size][::-1] for at in range(0, len(data), size))
    return Damaged("byte order", out)


def wrong_tokens() -> Iterator[Sample]:
    """Token fields that contradict themselves, or the cells."""
    layout, plain = "ggsq2.kv", slot("kv")
    start, stop = part(plain, "tokens")
    made = set_field(plain, plain.mark("n_token_count"), 2**31)
    made = overwrite(made.data, stop + 8, word(7))
    about = "More tokens than there are bytes, and the first cell is out of its place."
    yield spoilt(layout, "tokens.count-exceeds-file", about, made, (start, len(plain.data)))
    made = overwrite(plain.data, start + 4, word(-2))
    yield spoilt(layout, "tokens.negative", "Token 1 is -2.", made, (start + 4, start + 8))

    packed = slot("kv", PACKED, 3)
    begin, end = part(packed, "tokens")
    third = begin + 12 + 3 * 4
    made = overwrite(packed.data, third, word(-5))
    yield spoilt("ggsq3.kv", "tokens.packed-negative", "Token 3 is -5.", made, (third, third + 4))
    made = overwrite(packed.data, begin + 8, word(200))
    made = overwrite(made.data, third, word(-1))
    about = "Two hundred tokens in a field of sixteen words, one of them of an image."
    yield spoilt("ggsq3.kv", "layout.frame-damaged", about, made, (begin + 12, end))

    image = Image(2, 3, 2)
    pictured = with_media((image,), 1)
    packed = slot("kv", pictured)
    where = part(packed, "tokens")[0] + 12 + 4 * len(pictured.ids) + 4
    made = overwrite(packed.data, where, word(3))
    about = "An image that is said to start a token later than it does."
    chunk = (where + 4, where + 8 + len(media_chunk(image, 1)))
    yield spoilt(layout, "tokens.media-mismatch", about, made, chunk)

    about = "Twelve cells, and no token list."
    packed = slot("kv", first(0), sections={"attn": cache(CELLS)})
    yield spoilt(layout, "tokens.none", about, packed, part(packed, "n_token_count"))
    about = "Twelve tokens and not one cell."
    packed = slot("kv", sections={"attn": cache(())})
    yield spoilt(layout, "tokens.no-cells", about, packed, part(packed, "attn"))
    about = "Ten cells for twelve tokens."
    packed = slot("kv", sections={"attn": cache(CELLS[:-2])})
    yield spoilt(layout, "tokens.cells-mismatch", about, packed, part(packed, "attn"))
    about = "A prompt cache of b9300 or later: the last token has no cell."
    packed = session(attn=cache(CELLS[:-1]))
    start, stop = part(packed, "tokens")
    yield spoilt("ggsn9.kv", "tokens.beyond-cells", about, packed, (stop - 4, stop))
    about = "A slot in which nothing was ever decoded."
    packed = slot("kv", first(0))
    yield spoilt(layout, "state.empty", about, packed, (0, len(packed.data)))


# -- cells -----------------------------------------------------------------------------------------


def wrong_cells() -> Iterator[Sample]:
    """Cells with wrong numbers, or an order that is worth a note."""
    layout, plain = "ggsq2.kv", slot("kv")
    start, _ = part(plain, f"{STREAM}.cells")
    for code, row, offset, value, about in (
        ("cells.n-seq-id", 3, 4, 2, "A cell that claims two sequences."),
        ("cells.pos-unerasable", 3, 0, -5, "A cell at position -5, which no erase removes."),
        ("cells.pos-empty", 3, 0, -1, "A cell at position -1, as one without a token has."),
        ("cells.pos-duplicate", 3, 0, 2, "Two cells at position 2."),
    ):
        place = start + 12 * row + offset
        made = overwrite(plain.data, place, word(value))
        yield spoilt(layout, code, about, made, (place, place + 4))
    windowed = slot("iswa")
    begin, _ = part(windowed, "base.streams[0].cells")
    made = overwrite(windowed.data, begin + 12 * 3, word(-1))
    about = "A cell of the full cache at position -1; the windowed one has it not."
    held = spoilt("ggsq2.iswa", "cells.pos-negative", about, made, (begin + 36, begin + 40))
    slides = Expected("reuse.window-cut", *part(windowed, "swa"))
    yield replace(held, findings=(*held.findings, slides))
    made = overwrite(plain.data, start + 12 * 11, word(5))
    about = "The last cell is said to be at position 5, like another one."
    code = "cells.end-mismatch"
    twice = Expected("cells.pos-duplicate", start + 12 * 11, start + 12 * 11 + 4)
    back = Expected("cells.pos-not-ascending", twice.start, twice.stop)
    short = spoilt(layout, code, about, made, part(plain, "attn"))
    yield replace(short, findings=(*short.findings, twice, back))
    about = "The cells of the second half were reused for the first."
    packed = slot("kv", sections={"attn": cache(CELLS[6:] + CELLS[:6])})
    place = start + 12 * 6
    yield spoilt(layout, "cells.pos-not-ascending", about, packed, (place, place + 4))
    about = "Positions 6 and 7 were removed from the indexer before the save."
    apart = tuple(cell._replace(pos=cell.pos + 2 * (cell.pos > 5)) for cell in CELLS)
    packed = slot("msa", sections={"idx": section("indexer", apart, DIALECTS[""])})
    place = part(packed, "idx.streams[0].cells")
    yield spoilt("ggsq2.msa", "cells.pos-gaps", about, packed, place)

    grid = with_media((Image(2, 3, 2, pos_type=1),), 1)
    packed = slot("kv", grid, dialect="xy")
    begin, end = part(packed, f"{STREAM}.cells")
    stride = (end - begin) // len(grid.ids)
    place = begin + 3 * stride
    about = "The cells of an image: one position, a column and a row for each patch."
    code = "cells.ext-differs"
    yield spoilt("ggsq2.kv.xy", code, about, packed, (place, place + stride))
    packed = slot("kv", PACKED, 3, "xyt")
    begin, end = part(packed, f"{STREAM}.cells")
    place = begin + 3 * (end - begin) // len(CELLS) + 16
    made = overwrite(packed.data, place, word(77))
    about = "A cell that was computed from another token than the list has."
    yield spoilt("ggsq3.kv.xyt", "cells.token-differs", about, made, (place, place + 4))

    packed = session()
    begin, end = part(packed, f"{STREAM}.cells")
    made = overwrite(packed.data, begin + 12 * 3 + 8, word(300))
    about = "A cell of sequence 300."
    place = begin + 12 * 3
    yield spoilt("ggsn9.kv", "cells.seq-id-out-of-range", about, made, (place, place + 12))
    packed = slot("iswa")
    made = set_field(packed, packed.mark("swa.streams[0].cell_count"), 2**31)
    place = part(packed, "swa.streams[0].cells")[0]
    made = overwrite(made.data, place + 4, word(7))
    about = "Two thousand million cells in the window, the first of them in seven sequences."
    yield spoilt("ggsq2.iswa", "cells.count-exceeds-file", about, made, (place, len(made.data)))


# -- sections against each other -------------------------------------------------------------------


def wrong_sections() -> Iterator[Sample]:
    """Memories whose parts are whole and do not fit together."""

    def sample(kind: str, code: str, about: str, place: str, **sections: Section) -> Sample:
        packed = slot(kind, sections=sections)
        made = spoilt(f"ggsq2.{kind}", code, about, packed, part(packed, place))
        held = Memory({**memory(kind, DIALECTS[""]).sections, **sections})
        notes = tuple(note for note in usual(packed, held) if note.code != code)
        return replace(made, findings=(*made.findings, *notes))

    both = replace(cache(CELLS), streams=(CELLS[:6], CELLS[6:]))
    about = "Two streams of one sequence have cells."
    yield sample("kv", "streams.several-in-seq", about, "attn", attn=both)
    window = cache(CELLS[:-2][-WINDOW:], windowed=True)
    about = "The window ends two positions before the full cache."
    yield sample("iswa", "swa.behind", about, "swa", swa=window)
    ahead = cache((*CELLS[-WINDOW + 1 :], Cell(12)), windowed=True)
    about = "The window has a position more than the full cache."
    yield sample("iswa", "swa.more-cells", about, "swa", swa=ahead)
    holed = cache((*CELLS[-WINDOW:-3], *CELLS[-2:]), windowed=True)
    about = "A cell is missing inside the window."
    yield sample("iswa", "swa.gaps", about, "swa.streams[0].cells", swa=holed)
    about = "A cell of zeros in front of the window, which opens the gate of servers."
    anchored = slot("iswa", sections={"swa": cache(CELLS[-WINDOW - 1 :], windowed=True)})
    made = Damaged("as written", anchored.data)
    for block in ("k[0]", "k[1]", "v[0]", "v[1]"):
        made = hole(made.data, part(anchored, f"swa.streams[0].{block}.data")[0], K.size)
    start, stop = part(anchored, "swa.streams[0].cells")
    place = (start, start + (stop - start) // (WINDOW + 1))
    yield spoilt("ggsq2.iswa", "cells.window-anchor", about, made, place)
    about = "A window and no checkpoints: intact, and of little use."
    yield sample("iswa", "reuse.window-cut", about, "swa")
    about = "A recurrent state and no checkpoints: intact, and of limited use."
    yield sample("recurrent", "reuse.needs-exact-append", about, "recr")
    about = "Keys without values, as a model with latent attention has them."
    yield sample("mla", "layout.key-only", about, "attn")

    early = section("state", CELLS[:-2], DIALECTS[""])
    packed = slot("hybrid", sections={"recr": early})
    about = "The state stands two positions before the end of the attention cache."
    place = part(packed, "recr")
    yield spoilt("ggsq2.hybrid", "recurrent.pos-mismatch", about, packed, place)
    two = Recurrent(CELLS[-2:], 2, (Row(F32, 64),) * 2, (Row(F32, 128),) * 2)
    packed = slot("recurrent", PACKED, 3, sections={"recr": two})
    about = "Two recurrent cells in the save of one sequence."
    place = part(packed, "recr.cells")
    yield spoilt("ggsq3.recurrent", "recurrent.several-cells", about, packed, place)
    packed = slot("recurrent")
    place, about = part(packed, "recr.n_layer"), "Three layers are claimed, two have a state."
    made = set_field(packed, packed.mark("recr.n_layer"), 3)
    yield spoilt("ggsq2.recurrent", "recurrent.layer-count", about, made, place)
    about = "The form of a fork: a ring of replayed states behind the blocks."
    place = part(packed := slot("recurrent"), "recr.s_trans")
    yield spoilt("ggsq2.recurrent", "recurrent.transposed", about, _with_ring(packed), place)


def _with_ring(packed: Packed) -> Damaged:
    """Recurrent state as a gated-delta-net fork writes it (S §3.4.4)."""
    data = set_field(packed, packed.mark("recr.s_trans"), 2).data
    at, n_ring = packed.mark("recr.n_layer").stop, 4
    ring = b"".join(struct.pack("<iQ", F32, S.size) + bytes(S.size) for _ in range(2))
    return Damaged("a ring", data[:at] + struct.pack("<II", n_ring, 1) + data[at:] + ring)


# -- layers ----------------------------------------------------------------------------------------


def wrong_layers() -> Iterator[Sample]:
    """Blocks whose heads contradict each other, or what is known of types."""
    layout, attn = "ggsq2.kv", cache(CELLS)

    def sample(code: str, about: str, place: str, **changes: object) -> Sample:
        packed = slot("kv", sections={"attn": replace(attn, **changes)})  # type: ignore[arg-type]
        start, stop = part(packed, place)
        return spoilt(layout, code, about, packed, (start, min(stop, start + 12)))

    odd, strange = Row(F16, 15), Row(77, 16)
    about = "Keys of fifteen bytes of f16."
    yield sample("layers.row-not-whole", about, f"{STREAM}.k[0]", k=(odd, odd))
    about = "Blocks of type 77, which no program knows."
    place = f"{STREAM}.k[0]"
    yield sample("layers.type-unknown", about, place, k=(strange,) * 2, v=(strange,) * 2)
    about = "The second of three layers of keys is said to be bf16."
    place, rows = f"{STREAM}.k[1].k_type", (K, Row(BF16, K.size), K)
    yield sample("layers.types-disagree", about, place, k=rows, v=(V, V, V))

    quantized = Row(Q8_0, 68)
    packed = slot("kv", sections={"attn": replace(attn, k=(quantized,) * 2, v=(quantized,) * 2)})
    about = "A q8_0 cache of 64 elements: nothing says whether it is rotated."
    yield spoilt(layout, "rotation.unrecorded", about, packed, part(packed, "attn"))
    mixed = IkMemory(3, CELLS, (Row(Q8_0, 34), Row(F16, 64)), (Row(F16, 64),) * 2)
    packed = pack(Slot(3, TEXT, mixed))
    about = "The first layer of keys has a type of its own, which ik_llama.cpp lets users choose."
    yield spoilt("ik3", "layers.types-differ", about, packed, part(packed, "attn.k[1].k_type"))

    plain = slot("kv")
    n_layer, behind = plain.mark(f"{STREAM}.n_layer"), part(plain, f"{STREAM}.k[0]")[0]
    about = "Three layers are claimed, two are there."
    made = set_field(plain, n_layer, 3)
    place = (n_layer.start, n_layer.stop)
    yield spoilt(layout, "layout.one-word-away", about, made, place)
    about = "A million layers, the first of an unknown type."
    made = set_field(plain, n_layer, 2**20)
    made = overwrite(made.data, behind, word(77))
    yield spoilt(layout, "layout.count-exceeds-file", about, made, (behind, len(plain.data)))
    wide = Row(F16, 128)
    large = slot("kv", sections={"attn": replace(attn, k=(wide,) * 2, v=(wide,) * 2)})
    about = (
        "Five hundred and thirteen layers, one more than any program allows, the first of an "
        "unknown type."
    )
    made = set_field(large, large.mark(f"{STREAM}.n_layer"), 513)
    made = overwrite(made.data, behind, word(77))
    place = (behind, len(large.data))
    yield spoilt(layout, "layout.count-unbelievable", about, made, place)

    one = Recurrent((Cell(0),), 1, (Row(F32, 16),), (Row(F32, 16),))
    blob = pack(Blob(Memory({"recr": one}), None))
    about = "One cell at position 0 and rows of one size: a state, or keys and values."
    whole = (0, len(blob.data))
    yield spoilt("blob.recurrent", "layout.ambiguous", about, blob, whole)


# -- where files end -------------------------------------------------------------------------------


def wrong_ends() -> Iterator[Sample]:
    """Files that end too early or too late."""
    layout, plain = "ggsq2.kv", slot("kv")
    end, last = len(plain.data), part(plain, f"{STREAM}.v[1].data")[0]
    about = "The last byte is missing: a disk that was full."
    yield spoilt(layout, "file.truncated", about, cut(plain.data, end - 1), (last, end - 1))
    about = "Sixteen zeros behind a slot file, which loaders ignore."
    yield spoilt(
        layout, "file.trailing-bytes", about, trail(plain.data, bytes(16)), (end, end + 16)
    )
    about = "Twenty bytes of another program behind a slot file."
    unknown = b"NOTE" + bytes(range(1, 17))
    yield spoilt(
        layout, "file.trailing-unknown", about, trail(plain.data, unknown), (end, end + 20)
    )
    about = "Sixteen zeros behind a whole context, which loaders refuse."
    data = session().data
    end, code = len(data), "file.trailing-bytes-refused"
    yield spoilt("ggsn9.kv", code, about, trail(data, bytes(16)), (end, end + 16))


# -- numbers ---------------------------------------------------------------------------------------


def wrong_numbers() -> Iterator[Sample]:
    """Slot files in which tensors hold what no model computes."""
    plain, tokens = slot("kv"), Tokens(tuple(range(100, 140)))
    start, _ = part(plain, f"{STREAM}.k[1].data")
    third = start + 3 * K.size
    long = slot("kv", tokens)
    begin, end = part(long, f"{STREAM}.k[1].data")
    shifted = struct.pack("<H", 3) * ((end - begin) // 2)
    for code, about, made, place in (
        (
            "tensors.non-finite",
            "A NaN among the keys.",
            overwrite(plain.data, third, b"\0\x7e"),
            (third, third + 2),
        ),
        (
            "tensors.zero-rows",
            "The keys of two cells are zeros.",
            hole(plain.data, third, 2 * K.size),
            (third, third + K.size),
        ),
        (
            "tensors.subnormal-flood",
            "Keys that are all too small for the precision of their type.",
            overwrite(long.data, begin, shifted),
            (begin, end),
        ),
    ):
        yield replace(spoilt("ggsq2.kv", code, about, made, place), deep=True)


# -- against a model -------------------------------------------------------------------------------


def wrong_models() -> Iterator[Sample]:
    """Intact states that are not of the model they are held against."""

    def sample(layout: str, code: str, about: str, made: Packed, place: str, model: str) -> Sample:
        where = part(made, place) if place else (0, len(made.data))
        return replace(spoilt(layout, code, about, made, where), model=model)

    attn, wide = cache(CELLS), Row(F16, 32)
    about = "A state with a recurrent part, held against a model without."
    yield sample("ggsq2.hybrid", "model.memory-differs", about, slot("hybrid"), "", "llama")
    packed = slot("kv", sections={"attn": replace(attn, k=(K,) * 3, v=(V,) * 3)})
    about = "A state of three layers, held against a model of two."
    yield sample("ggsq2.kv", "model.layers-differ", about, packed, "attn", "llama")
    packed = slot("kv", sections={"attn": replace(attn, k=(wide,) * 2, v=(wide,) * 2)})
    about = "Keys of sixteen elements, held against a model with eight."
    yield sample("ggsq2.kv", "model.width-differs", about, packed, f"{STREAM}.k[0]", "llama")
    packed = slot("kv")
    where = part(packed, "tokens")[0] + 4 * 2
    made = overwrite(packed.data, where, word(32000))
    about = "Token 2 is the first id behind those of a model of 32,000."
    beyond = spoilt("ggsq2.kv", "tokens.beyond-vocabulary", about, made, (where, where + 4))
    yield replace(beyond, model="llama")
    packed = slot("iswa", sections={"swa": cache(CELLS[-WINDOW - 2 :], windowed=True)})
    about = "Seven cells of a window of five: a state of a build before b9473."
    yield sample("ggsq2.iswa", "swa.count", about, packed, "swa", "gemma2")


# -- ik_llama.cpp ----------------------------------------------------------------------------------


def wrong_states_of_ik() -> Iterator[Sample]:
    """What only ik_llama.cpp gets wrong."""
    packed = pack(Slot(3, first(0), replace(ik_memory(3, "plain"), cells=())))
    about = "A slot in which nothing was ever decoded."
    yield spoilt("ik3", "ik.empty-state", about, packed, part(packed, "attn"))
    size = 32
    held = IkMemory(3, CELLS, (Row(151, 2 * size + 8),) * 2, (Row(F16, 4 * size),) * 2)
    packed = pack(Slot(3, TEXT, held))
    data = packed.data
    for layer in range(2):
        start, stop = part(packed, f"attn.k[{layer}].data")
        data = overwrite(data, start, _q8_kv(2 * len(CELLS), size)[: stop - start]).data
    about = "Keys of two heads as q8_KV: the last two cells of twelve are missing."
    start, _ = part(packed, "attn.k[0]")
    made = Damaged("saved short", data)
    short = spoilt("ik3", "ik.keys-saved-short", about, made, (start, start + 12))
    note = Expected("rotation.unrecorded", *part(packed, "attn"))
    yield replace(short, findings=(*short.findings, note))


def _q8_kv(n: int, size: int) -> bytes:
    """`n` heads of ik_llama.cpp's q8_KV: a scale, the sum of the quants, the quants (K §8)."""
    out = b""
    for head in range(n):
        quants = [(7 * i + 3 * head) % 100 - 50 for i in range(size)]
        out += struct.pack(f"<fi{size}b", 0.01, sum(quants), *quants)
    return out


def wrong_token_lists() -> Iterator[Sample]:
    """The `.tokens.json` of ik_llama.cpp by itself."""
    text = ik_tokens(TEXT.ids)
    about = "A token list that was cut inside its magic."
    at = text.index(b"1819112310") + 4
    yield spoilt("ik-tokens", "container.damaged", about, cut(text, at), (at, at))


def spoilt_states() -> Iterator[Sample]:
    """All of these."""
    yield from wrong_heads()
    yield from wrong_tokens()
    yield from wrong_cells()
    yield from wrong_sections()
    yield from wrong_layers()
    yield from wrong_ends()
    yield from wrong_numbers()
    yield from wrong_models()
    yield from wrong_states_of_ik()
    yield from wrong_token_lists()
