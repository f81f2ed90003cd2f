"""Hypothesis strategies over descriptions of intact files, and the layouts they are written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.support.writer import (
    BF16,
    F16,
    F32,
    Q8_0,
    Audio,
    Blob,
    Cache,
    Cell,
    Checkpoint,
    CheckpointList,
    Compressed,
    Compressor,
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
    Section,
    Session,
    Slot,
    Tokens,
    cells_of,
    checkpoint,
    pack,
)

Draw = Callable[[st.SearchStrategy[Any]], Any]


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


def specimen(layout: str, what: Packable) -> Specimen:
    """Pack a description of a file of this layout."""
    return Specimen(layout, what, pack(what))


# -- rows and cells --------------------------------------------------------------------------------

UNQUANTIZED = st.sampled_from([(F16, 2), (F32, 4), (BF16, 2)])


@st.composite
def rows(draw: Draw, *, unquantized: bool = False) -> Row:
    """A row of a few elements; a few blocks of q8_0 sometimes."""
    if not unquantized and draw(st.integers(0, 3)) == 0:
        return Row(Q8_0, 34 * draw(st.integers(1, 2)))
    kind, element = draw(UNQUANTIZED)
    return Row(kind, element * 4 * draw(st.integers(1, 4)))


@st.composite
def layers(draw: Draw, row: Row | None = None) -> tuple[Row, ...]:
    """One to three layers with rows alike."""
    return (row or draw(rows()),) * draw(st.integers(1, 3))


@st.composite
def streams(draw: Draw, cells: tuple[Cell, ...], dialect: Dialect) -> tuple[tuple[Cell, ...], ...]:
    """The cells in one of up to three streams, where the dialect has streams."""
    n_stream = draw(st.integers(1, 3)) if dialect.streams else 1
    chosen = draw(st.integers(0, n_stream - 1))
    return tuple(cells if i == chosen else () for i in range(n_stream))


# -- memories --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Context:
    """What all sections of one memory have in common.

    Attributes:
        tokens: what the memory stands for.
        dialect: how it is written.
        window: tokens that a windowed layer sees.
        v_trans: 1 with flash attention off.
    """

    tokens: Tokens
    dialect: Dialect
    window: int
    v_trans: int

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A cell for every token."""
        return cells_of(self.tokens, mrope=self.dialect.ext > 0)

    @property
    def windowed_cells(self) -> tuple[Cell, ...]:
        """Cells of the window that ends with the last token."""
        last = max((cell.pos for cell in self.cells), default=0)
        return tuple(cell for cell in self.cells if last - cell.pos < self.window)

    @property
    def last_cell(self) -> tuple[Cell, ...]:
        """The cell of a recurrent state: the last position."""
        return self.cells[-1:]


@st.composite
def caches(draw: Draw, context: Context, *, values: bool = True, windowed: bool = False) -> Cache:
    """An attention cache of the context."""
    cells = context.windowed_cells if windowed else context.cells
    k = draw(layers())
    v_row = draw(rows(unquantized=bool(context.v_trans)))
    n_rot = draw(st.sampled_from([(0, 0), (64, 64), (128, 64)]))
    return Cache(
        draw(streams(cells, context.dialect)),
        k,
        (v_row,) * len(k) if values else None,
        context.v_trans,
        n_rot if context.dialect.rotation else (0, 0),
        windowed,
    )


@st.composite
def recurrents(draw: Draw, context: Context, *, history: bool = False) -> Recurrent:
    """A recurrent state of the context: R and S rows of different widths, one of them 0 at times."""
    r, s = draw(st.sampled_from([(96, 64), (768, 1024), (64, 0), (0, 128)]))
    if history:
        r, s = 512, 1024
    n = draw(st.integers(1, 3))
    n_layer = n + draw(st.integers(0, 2))
    histories = tuple(
        draw(st.sampled_from([None, Row(F32, 384)])) if history else None for _ in range(n)
    )
    return Recurrent(context.last_cell, n_layer, (Row(F32, r),) * n, (Row(F32, s),) * n, histories)


@st.composite
def minimax_caches(draw: Draw, context: Context) -> Cache:
    """A cache with indexer keys between its keys and its values."""
    cache = draw(caches(context))
    index = tuple(draw(st.sampled_from([None, Row(F32, 16)])) for _ in cache.k)
    return Cache(cache.streams, cache.k, cache.v, cache.v_trans, cache.n_rot, index=index)


@st.composite
def dsv4_memories(draw: Draw, context: Context) -> Dsv4:
    """The memory of DeepSeek-V4: a raw cache without layers, a window, compressed keys and states."""
    n_stream = streams(context.cells, context.dialect)
    base = Cache(draw(n_stream), (), None, context.v_trans)
    swa = draw(caches(context, values=False, windowed=True))
    csa, hca = (0, 2), (1,)
    version = draw(st.sampled_from([1, 2]))
    n_rows = 8 if version == 1 else len(context.cells) // 4
    compressed = {
        "csa": Compressed(csa, 8, n_rows, version),
        "hca": Compressed(hca, 8, 8 if version == 1 else 0, version),
        "lid": Compressed(csa, 4, n_rows, version),
    }
    compressors = {
        "csa": Compressor(csa, 4, 8, 16),
        "hca": Compressor(hca, 128, 8, 8),
        "lid": Compressor(csa, 4, 8, 8),
    }
    return Dsv4(base, swa, compressed, compressors)


def _sections(memory: str, context: Context) -> Mapping[str, st.SearchStrategy[Section]]:
    """The sections of a memory type (S §3.1), by the names that the writers' classes give them."""
    cache, keys = caches(context), caches(context, values=False)
    swa = caches(context, windowed=True)
    state, with_history = recurrents(context), recurrents(context, history=True)
    kinds: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "kv": {"attn": cache},
        "mla": {"attn": keys},
        "iswa": {"base": cache, "swa": swa},
        "recurrent": {"recr": state},
        "hybrid": {"attn": cache, "recr": state},
        "hybrid-mla": {"attn": keys, "recr": state},
        "hybrid-iswa": {"base": cache, "swa": swa, "recr": state},
        "hybrid-ple": {"attn": cache, "recr": with_history},
        "dsa": {"mla": keys, "lid": keys},
        "dsa-iswa": {
            "mla": keys,
            "lid": keys,
            "swa": caches(context, values=False, windowed=True),
        },
        "msa": {"base": cache, "idx": cache},
        "minimax-m3": {"attn": minimax_caches(context)},
        "hybrid-idx-values": {"attn": cache, "recr": with_history, "indexer": cache},
        "hybrid-idx": {"attn": cache, "recr": with_history, "indexer": keys},
        "hybrid-idx-mla": {"attn": keys, "recr": state, "indexer": keys},
        "dsv4": {"dsv4": dsv4_memories(context)},
    }
    return kinds[memory]


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
def token_fields(draw: Draw, version: int) -> Tokens:
    """Up to seven text tokens; packed and with media where the version can have it."""
    ids = list(draw(st.lists(TOKEN_IDS, max_size=7)))
    packed = version >= 2 and draw(st.booleans())
    chunks: list[Media] = []
    if packed and draw(st.integers(0, 3)) == 0:
        chunks.append(draw(media(len(ids))))
        ids += [-1] * chunks[0].n_tokens + [draw(TOKEN_IDS)]
    chunk_version = draw(st.integers(1, 2)) if version >= 3 else 1
    return Tokens(tuple(ids), packed, tuple(chunks), chunk_version)


@st.composite
def contexts(draw: Draw, tokens: Tokens, dialect: Dialect) -> Context:
    """A context that holds these tokens."""
    return Context(tokens, dialect, draw(st.integers(1, 6)), draw(st.integers(0, 1)))


@st.composite
def memories(draw: Draw, memory: str, context: Context) -> Memory:
    """A memory of this type."""
    made = {name: draw(section) for name, section in _sections(memory, context).items()}
    return Memory(made, context.dialect)


# -- slot files ------------------------------------------------------------------------------------

DIALECTS = {
    "anonymous": Dialect(streams=False, ids="none"),
    "flat": Dialect(streams=False),
    "": Dialect(),
    "xy": Dialect(ext=8),
    "xyt": Dialect(ext=12),
}
"""Last part of a layout's name -> the dialect of a seq save, without rotation words."""

_BEFORE_V3 = "kv mla iswa recurrent hybrid hybrid-mla hybrid-iswa dsa dsa-iswa msa dsv4".split()

SLOTS: dict[str, tuple[int, str, Dialect]] = {
    f"ggsq{version}.{memory}{'.' if name else ''}{name}": (
        version,
        memory,
        Dialect(d.streams, d.ids, d.ext, rotation=version == 4),
    )
    for version, name, kinds in (
        (2, "anonymous", ["kv", "iswa"]),
        (2, "flat", ["kv", "iswa"]),
        (2, "", [*_BEFORE_V3, "minimax-m3"]),
        (2, "xy", ["kv", "hybrid"]),
        (3, "", [*_BEFORE_V3, "hybrid-idx", "hybrid-idx-mla"]),
        (3, "xyt", ["kv", "hybrid", "hybrid-ple", "hybrid-idx-values", "hybrid-idx"]),
        (4, "", [*_BEFORE_V3, "hybrid-idx", "hybrid-idx-mla"]),
        (4, "xyt", ["kv", "hybrid", "hybrid-ple", "hybrid-idx"]),
    )
    for memory in kinds
    for d in [DIALECTS[name]]
}
"""Layout of an upstream slot file -> its version, memory type and dialect."""


@st.composite
def appendices(draw: Draw, memory: Memory, n_tokens: int) -> tuple[Checkpoint, ...] | None:
    """Checkpoints of the memory, as many as the server may have made of it; None for none."""
    if n_tokens == 0 or memory.partial() == memory or draw(st.booleans()):
        return None
    return tuple(checkpoint(memory, n) for n in range(1, 1 + draw(st.integers(0, 2))))


@st.composite
def slots(draw: Draw, layouts: st.SearchStrategy[str] | None = None) -> Specimen:
    """An upstream slot file of version 2 to 4."""
    layout = draw(layouts or st.sampled_from(sorted(SLOTS)))
    version, memory_type, dialect = SLOTS[layout]
    tokens = draw(token_fields(version if dialect.streams else 1))
    memory = draw(memories(memory_type, draw(contexts(tokens, dialect))))
    appendix = draw(appendices(memory, len(tokens.ids))) if version == 4 else None
    return specimen(layout, Slot(version, tokens, memory, appendix))
