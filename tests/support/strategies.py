"""Hypothesis strategies: intact files of every layout, by the id of the layout.

An id reads `family.memory.dialect`: `ggsq2.kv.flat`, `blob.iswa-partial.prefixed`, `ggsn9.hybrid`.
What stands for what is said here once more and independently of the declarations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.support.writer import (
    BF16,
    COMPOSITIONS,
    DIALECTS,
    F16,
    F32,
    FAMILIES,
    Q8_0,
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
    Media,
    Memory,
    Outputs,
    Packable,
    Packed,
    Recurrent,
    Row,
    Session,
    Slot,
    Tokens,
    cells_of,
    checkpoint,
    ik_checkpoints,
    pack,
    pkcl2,
    stck2,
)

Draw = st.DrawFn
Described = st.SearchStrategy[Packable]


@dataclass(frozen=True)
class Specimen:
    """An intact file: the layout it is written in, its description, its bytes."""

    layout: str
    what: Packable
    packed: Packed

    @property
    def data(self) -> bytes:
        """The bytes."""
        return self.packed.data


# -- tokens ----------------------------------------------------------------------------------------

TOKEN_IDS = st.integers(1, 32000)


@st.composite
def media(draw: Draw, start: int) -> Media:
    """An image or a piece of audio of a few tokens."""
    if draw(st.booleans()):
        return Audio(start, draw(st.integers(1, 3)))
    nx, ny, pos_type = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
    entries = ((nx * 32, ny * 32),) * draw(st.integers(1, 2))
    return Image(start, nx, ny, pos_type, len(entries), entries=entries)


@st.composite
def plain_tokens(draw: Draw) -> Tokens:
    """Up to seven text tokens, as a plain list."""
    return Tokens(tuple(draw(st.lists(TOKEN_IDS, max_size=7))))


@st.composite
def token_fields(draw: Draw, version: int) -> Tokens:
    """What `llama-server` wrote with this version of the file: plain or packed, media at times."""
    tokens = draw(plain_tokens())
    if draw(st.booleans()):
        return tokens
    ids, chunks = tokens.ids, tuple[Media, ...]()
    if draw(st.integers(0, 3)) == 0:
        chunk = draw(media(len(ids)))
        ids, chunks = (*ids, *[-1] * chunk.n_tokens, draw(TOKEN_IDS)), (chunk,)
    chunk_version = draw(st.integers(1, 2)) if version >= 3 else 1
    return Tokens(ids, packed=True, media=chunks, chunk_version=chunk_version)


# -- memories --------------------------------------------------------------------------------------

UNQUANTIZED = st.sampled_from([(F16, 2), (F32, 4), (BF16, 2)])


@dataclass(frozen=True)
class Content:
    """What all sections of one memory have in common.

    Attributes:
        cells: of the sequence, or of all sequences in a full save.
        dialect: how they are written.
        window: tokens that a windowed layer sees.
        v_trans: 1 with flash attention off.
    """

    cells: tuple[Cell, ...]
    dialect: Dialect
    window: int
    v_trans: int

    @property
    def full(self) -> bool:
        """Whether all sequences are saved."""
        return self.dialect.ids == "all"

    @property
    def windowed_cells(self) -> tuple[Cell, ...]:
        """Cells of the window that ends with the last token; a full save keeps all."""
        last = max((cell.pos for cell in self.cells), default=0)
        return tuple(c for c in self.cells if self.full or last - c.pos < self.window)

    @property
    def last_cells(self) -> tuple[Cell, ...]:
        """The cells of a recurrent state: the last position of every sequence."""
        if not self.full:
            return self.cells[-1:]
        last = {seq_id: cell for cell in self.cells for seq_id in cell.seq_ids}
        return tuple(cell._replace(seq_ids=(seq_id,)) for seq_id, cell in sorted(last.items()))


@st.composite
def contents(draw: Draw, tokens: Tokens, dialect: Dialect) -> Content:
    """A context that holds these tokens; in a full save of one or two sequences."""
    cells = cells_of(tokens, mrope=dialect.ext > 0)
    if dialect.ids == "all":
        ids = st.sampled_from([(0,), (1,), (0, 1)])
        cells = tuple(cell._replace(seq_ids=draw(ids)) for cell in cells)
    return Content(cells, dialect, draw(st.integers(1, 6)), draw(st.integers(0, 1)))


@st.composite
def rows(draw: Draw, *, unquantized: bool = False) -> Row:
    """A row of a few elements; a few blocks of q8_0 sometimes."""
    if not unquantized and draw(st.integers(0, 3)) == 0:
        return Row(Q8_0, 34 * draw(st.integers(1, 2)))
    kind, element = draw(UNQUANTIZED)
    return Row(kind, element * 4 * draw(st.integers(1, 4)))


@st.composite
def streams(draw: Draw, cells: tuple[Cell, ...], content: Content) -> tuple[tuple[Cell, ...], ...]:
    """The cells in one of up to four streams, where the dialect has streams.

    A full save with more than one has the cells of sequence i in stream i.
    """
    n_stream = draw(st.integers(1, 4)) if content.dialect.streams else 1
    if content.full and n_stream > 1:
        own = (tuple(c for c in cells if i in c.seq_ids) for i in range(n_stream))
        return tuple(tuple(c._replace(seq_ids=(i,)) for c in cs) for i, cs in enumerate(own))
    chosen = draw(st.integers(0, n_stream - 1))
    return tuple(cells if i == chosen else () for i in range(n_stream))


@st.composite
def caches(draw: Draw, content: Content, *, values: bool = True, windowed: bool = False) -> Cache:
    """An attention cache of one to three layers."""
    n_layer = draw(st.integers(1, 3))
    v_row = draw(rows(unquantized=bool(content.v_trans)))
    n_rot = draw(st.sampled_from([(0, 0), (64, 64), (128, 64)]))
    return Cache(
        draw(streams(content.windowed_cells if windowed else content.cells, content)),
        (draw(rows()),) * n_layer,
        (v_row,) * n_layer if values else None,
        content.v_trans,
        n_rot if content.dialect.rotation else (0, 0),
        windowed,
    )


@st.composite
def recurrents(draw: Draw, content: Content, *, history: bool = False) -> Recurrent:
    """A recurrent state whose R and S rows differ in width, as those of all models do."""
    r, s = draw(st.sampled_from([(96, 64), (768, 1024), (64, 0), (0, 128)]))
    histories: tuple[Row | None, ...] = ()
    n = draw(st.integers(1, 3))
    if history:
        r, s = 512, 1024
        histories = tuple(draw(st.sampled_from([None, Row(F32, 384)])) for _ in range(n))
    n_layer = n + draw(st.integers(0, 2))
    return Recurrent(content.last_cells, n_layer, (Row(F32, r),) * n, (Row(F32, s),) * n, histories)


@st.composite
def minimax_caches(draw: Draw, content: Content) -> Cache:
    """A cache with indexer keys between its keys and its values."""
    cache = draw(caches(content))
    index = tuple(draw(st.sampled_from([None, Row(F32, 16)])) for _ in cache.k)
    return replace(cache, index=index)


@st.composite
def dsv4_memories(draw: Draw, content: Content) -> Dsv4:
    """A raw cache without layers, a window, compressed keys, and the compressors' states."""
    base = Cache(draw(streams(content.cells, content)), (), None, content.v_trans)
    swa = draw(caches(content, values=False, windowed=True))
    ns = len(base.streams) if content.full else 1
    version = draw(st.sampled_from([1, 2]))
    n_rows = 8 if version == 1 or content.full else len(content.cells) // 4
    four, many = (0, 2), (1,)
    compressed = {
        "csa": Compressed(four, 8, n_rows, version, ns),
        "hca": Compressed(many, 8, 8 if version == 1 or content.full else 0, version, ns),
        "lid": Compressed(four, 4, n_rows, version, ns),
    }
    compressors = {
        "csa": Compressor(four, 4, 8, 16, ns),
        "hca": Compressor(many, 128, 8, 8, ns),
        "lid": Compressor(four, 4, 8, 8, ns),
    }
    return Dsv4(base, swa, compressed, compressors)


def _builders(content: Content) -> dict[str, st.SearchStrategy[Any]]:
    """Kind of section -> sections of that kind."""
    return {
        "cache": caches(content),
        "keys": caches(content, values=False),
        "indexer": caches(content),
        "indexer-keys": caches(content, values=False),
        "window": caches(content, windowed=True),
        "window-keys": caches(content, values=False, windowed=True),
        "state": recurrents(content),
        "state-with-history": recurrents(content, history=True),
        "minimax-m3": minimax_caches(content),
        "dsv4": dsv4_memories(content),
    }


@st.composite
def memories(draw: Draw, memory: str, tokens: Tokens, dialect: Dialect) -> Memory:
    """A memory of this type; `…-partial` is what PARTIAL_ONLY leaves of one."""
    builders = _builders(draw(contents(tokens, dialect)))
    kinds = COMPOSITIONS[memory.removesuffix("-partial")]
    whole = Memory({name: draw(builders[kind]) for name, kind in kinds.items()}, dialect)
    return whole.partial() if memory.endswith("-partial") else whole


# -- upstream files --------------------------------------------------------------------------------


@st.composite
def appendices(draw: Draw, memory: Memory, n_tokens: int) -> tuple[Checkpoint, ...] | None:
    """Checkpoints of the memory, as many as a server may have made of it; None for no appendix."""
    if n_tokens == 0 or memory.partial() == memory or draw(st.booleans()):
        return None
    return tuple(checkpoint(memory, n) for n in range(1, 1 + draw(st.integers(0, 2))))


@st.composite
def slots(draw: Draw, version: int, memory: str, dialect: Dialect) -> Slot:
    """An upstream slot file of version 2 to 4."""
    tokens = draw(token_fields(version) if dialect.streams else plain_tokens())
    held = draw(memories(memory, tokens, replace(dialect, rotation=version == 4)))
    appendix = draw(appendices(held, len(tokens.ids))) if version == 4 else None
    return Slot(version, tokens, held, appendix)


@st.composite
def first_slots(draw: Draw, size_t: int) -> Slot:
    """A slot file of version 1."""
    tokens = draw(plain_tokens())
    n_layer, v_trans = draw(st.integers(1, 3)), draw(st.booleans())
    k, v = draw(rows()), draw(rows(unquantized=v_trans))
    if v.type not in (F16, F32, BF16):
        v = Row(F16, 16)
    positions = tuple(range(len(tokens.ids)))
    memory = FirstMemory(positions, (k,) * n_layer, (v,) * n_layer, v_trans, size_t)
    return Slot(1, tokens, memory)


OUTPUTS = st.builds(
    Outputs, st.sampled_from([(), (0,), (1, 3)]), st.integers(0, 9), st.integers(0, 4)
)


@st.composite
def whole_contexts(draw: Draw, memory: str, tokens: Tokens, dialect: str, head: str) -> Context:
    """The state of a whole context; `head` is what stands in front: "", "outputs" or "rng"."""
    held = draw(memories(memory, tokens, replace(DIALECTS[dialect], ids="all")))
    return Context(
        draw(st.sampled_from([b"llama", b"gemma3", b"qwen35"])),
        held,
        RNG if head == "rng" else None,
        draw(OUTPUTS) if head else None,
    )


def _head(version: int, dialect: str) -> str:
    """What stands in front of the memory in a whole-context file of this version."""
    if version == 8 or dialect == "rng":
        return "rng"
    return "outputs" if dialect in ("outputs", "flat") else ""


@st.composite
def sessions(draw: Draw, version: int, memory: str, dialect: str) -> Session:
    """An upstream whole-context file of version 8 to 11."""
    tokens = draw(plain_tokens())
    name = {8: "rng", 9: dialect, 10: dialect}.get(
        version, f"rotated-{dialect}" if dialect else "rotated"
    )
    context = draw(whole_contexts(memory, tokens, name, _head(version, dialect)))
    return Session(version, tokens.ids, context)


@st.composite
def bare_contexts(draw: Draw, memory: str, dialect: str) -> Context:
    """The state of a whole context without magic and tokens."""
    return draw(whole_contexts(memory, draw(plain_tokens()), dialect, _head(0, dialect)))


@st.composite
def blobs(draw: Draw, memory: str, dialect: str, *, prefixed: bool) -> Blob:
    """An upstream sequence state in memory."""
    held = draw(memories(memory, draw(plain_tokens()), DIALECTS[dialect]))
    return Blob(held, draw(st.integers(0, 3)) if prefixed else None)


# -- ik_llama.cpp ----------------------------------------------------------------------------------


@st.composite
def ik_memories(
    draw: Draw, version: int, tokens: Tokens, *, full: bool, mla: bool, compacted: bool
) -> IkMemory:
    """A memory of ik_llama.cpp: layers without a cache, recurrent layers, an indexer at times."""
    cells = draw(contents(tokens, Dialect(ids="all" if full else "none"))).cells
    n_layer, v_state = draw(st.integers(1, 3)), 2 if mla else draw(st.integers(0, 2))
    present = [version == 2 or compacted or draw(st.booleans()) for _ in range(n_layer)]
    k_row, v_row = draw(rows()), draw(rows(unquantized=v_state == 1))
    recurrent: tuple[tuple[Row, int] | None, ...] = ()
    if version >= 3 and draw(st.booleans()):
        n = 2 if full else 1
        recurrent = tuple(None if here else (Row(F32, 32), n) for here in present)
    indexer = None
    if version >= 4 and all(present) and not compacted and draw(st.booleans()):
        indexer = (Row(F16, 16),) * draw(st.integers(1, n_layer))
    live = min(len(cells), 2)
    window = (32, live, len(cells) - live, live) if compacted else None
    return IkMemory(
        version,
        cells,
        tuple(k_row if here else None for here in present),
        tuple(v_row if here else None for here in present),
        v_state,
        recurrent if any(recurrent) else (),
        indexer,
        full,
        window,
        frozenset(range(0, n_layer, 2)),
    )


@st.composite
def ik_files(draw: Draw, version: int, kind: str, *, mla: bool, compacted: bool) -> Packable:
    """A slot file, a session file, a whole context or a blob of ik_llama.cpp."""
    tokens = draw(plain_tokens())
    full = kind in ("session", "context")
    options = {"full": full, "mla": mla, "compacted": compacted}
    memory = draw(ik_memories(version, tokens, **options))
    if kind == "slot":
        return Slot(version, tokens, memory)
    if full:
        context = Context(b"llama", memory, RNG, draw(OUTPUTS))
        return context if kind == "context" else Session(version + 6, tokens.ids, context)
    partial = draw(st.booleans()) and not compacted
    return Blob(memory.partial() if partial else memory, None)


# -- checkpoint lists ------------------------------------------------------------------------------


@st.composite
def checkpoint_lists(draw: Draw, family: str) -> Packable:
    """Up to three checkpoints with small blobs, ascending in n_tokens."""
    small = st.binary(max_size=5)
    n_tokens = sorted(draw(st.sets(st.integers(1, 99), max_size=3)))
    records = tuple(
        Checkpoint(n, n - 1, n - 1, draw(st.binary(min_size=1, max_size=9)), draw(small))
        for n in n_tokens
    )
    match family:
        case "pkcl2":
            return pkcl2(records, draw(small))
        case "stck2":
            return stck2(records, draw(small), draw(st.integers(0, 99)))
        case "stck-gen":
            return Generation(draw(st.integers(0, 99)))
        case "ik-checkpoints3" | "ik-checkpoints4":
            return ik_checkpoints(records, int(family[-1]))
    return CheckpointList(family, records)


# -- by the id of a layout -------------------------------------------------------------------------

_LISTS = {*FAMILIES, "stck-gen", "ik-checkpoints3", "ik-checkpoints4"} - {"ik"}


def _known(memory: str) -> bool:
    return memory.removesuffix("-partial") in COMPOSITIONS


def described(layout: str) -> Described | None:
    """Descriptions of files of this layout; None if the writer does not know it."""
    family, *words = layout.split(".")
    match re.split(r"(\d+)", family, maxsplit=1), words:
        case _, [] if layout in _LISTS:
            return checkpoint_lists(layout)
        case ["ggsq", "1", ""], ["kv", *rest]:
            return first_slots(4 if rest else 8)
        case ["ggsq", version, ""], [memory, *rest] if _known(memory):
            return slots(int(version), memory, DIALECTS["".join(rest)])
        case ["ggsn", version, ""], [memory, *rest] if _known(memory):
            return sessions(int(version), memory, "".join(rest))
        case ["context"], [memory, *rest] if _known(memory):
            return bare_contexts(memory, "".join(rest))
        case ["blob"], [memory, *rest] if _known(memory):
            dialect = "".join(word for word in rest if word != "prefixed")
            return blobs(memory, dialect, prefixed="prefixed" in rest)
        case ["ik", version, ""], rest if "pangu" not in rest:
            kind = next((word for word in rest if word in ("session", "context", "blob")), "slot")
            number = int(version) - 6 if kind in ("session", "context") else int(version)
            return ik_files(number, kind, mla="mla" in rest, compacted="swac" in rest)
    return None


def specimens(layout: str) -> st.SearchStrategy[Specimen]:
    """Intact files of this layout."""
    what = described(layout)
    assert what is not None, layout
    return what.map(lambda description: Specimen(layout, description, pack(description)))
