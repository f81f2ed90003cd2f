"""Packs state files and checkpoint lists the way their writers do, field by field.

Nothing here knows `formats` or `inspector`: it is the second source of truth that declarations are
tested against. A file is described by a few dataclasses; `pack` turns a description into bytes and
a map of its fields, named as in the writers' sources. A section sign refers to the specification
of the formats (S state files, C checkpoint lists, K ik_llama.cpp).
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import BinaryIO, NamedTuple, Protocol

GGSQ, GGSN = 0x67677371, 0x6767736E
BLOB_PREFIX = 0xAF143CD8

F32, F16, Q8_0, BF16 = 0, 1, 8, 30
ELEMENT_BYTES = {F32: 4, F16: 2, BF16: 2}

# -- the pen ---------------------------------------------------------------------------------------

Values = Callable[[str, int, int, int], bytes]
"""(part, layer, pos, size) -> the bytes of one row of a tensor."""

_NOISE = hashlib.shake_128(b"slotscope").digest(1 << 14)
_NUMBERS = b"".join(
    struct.pack("<H", 0x3C00 | (word & 0x83FF)) for (word,) in struct.iter_unpack("<H", _NOISE)
)


def small_numbers(part: str, layer: int, pos: int, size: int) -> bytes:
    """Numbers that are finite and never zero, whether read as f16, bf16 or f32."""
    at = 2 * (zlib.crc32(f"{part}/{layer}/{pos}".encode()) % (len(_NUMBERS) // 2))
    return (_NUMBERS[at:] + _NUMBERS * (size // len(_NUMBERS) + 1))[:size]


class Mark(NamedTuple):
    """A field as it was written: its path, its bytes [start, stop), and its number if it is one."""

    path: str
    start: int
    stop: int
    value: int | None = None


class Pen:
    """Writes little-endian numbers and remembers where each went.

    Args:
        out: a seekable binary file.
        values: makes the rows of tensors; None leaves holes instead.
    """

    def __init__(self, out: BinaryIO, values: Values | None = small_numbers) -> None:
        self.out = out
        self.values = values
        self.marks: list[Mark] = []
        self._inside = ""

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Prefix the paths of what is written meanwhile."""
        outer = self._inside
        self._inside = f"{outer}{name}."
        yield
        self._inside = outer

    def put(self, code: str, **numbers: int) -> None:
        """Write numbers by their `struct` letters."""
        for letter, (name, value) in zip(code, numbers.items(), strict=True):
            self.raw(name, struct.pack("<" + letter, value), value)

    def raw(self, name: str, data: bytes, value: int | None = None) -> None:
        """Write bytes as they are."""
        start = self.out.tell()
        self.out.write(data)
        self.marks.append(Mark(self._inside + name, start, start + len(data), value))

    def rows(
        self, part: str, layer: int, positions: Sequence[int], size: int, name: str = "data"
    ) -> None:
        """Write the row of `size` bytes of every position."""
        if self.values is None:
            self._hole(name, size * len(positions))
            return
        values = self.values
        self.raw(name, b"".join(values(part, layer, pos, size) for pos in positions))

    def columns(
        self, part: str, layer: int, positions: Sequence[int], size: int, element: int
    ) -> None:
        """Write the same rows transposed: for every channel the elements of all positions."""
        if self.values is None:
            self._hole("data", size * len(positions))
            return
        rows = [self.values(part, layer, pos, size) for pos in positions]
        self.raw(
            "data",
            b"".join(row[i : i + element] for i in range(0, size, element) for row in rows),
        )

    def _hole(self, name: str, size: int) -> None:
        start = self.out.tell()
        self.out.seek(size, 1)
        self.marks.append(Mark(self._inside + name, start, start + size))


class Packable(Protocol):
    """A description of something that a program writes."""

    def pack(self, pen: Pen) -> None:
        """Write it."""
        ...


@dataclass(frozen=True)
class Packed:
    """The bytes of a description, and where each field lies in them."""

    data: bytes
    marks: tuple[Mark, ...]

    def mark(self, path: str) -> Mark:
        """The field at `path`."""
        return next(mark for mark in self.marks if mark.path == path)


def packed_size(what: Packable) -> int:
    """How many bytes a description takes."""
    pen = Pen(BytesIO(), values=None)
    what.pack(pen)
    return pen.out.tell()


def pack(what: Packable, values: Values = small_numbers) -> Packed:
    """Write a description to memory."""
    pen = Pen(BytesIO(), values)
    what.pack(pen)
    pen.out.seek(0)
    return Packed(pen.out.read(), tuple(pen.marks))


# -- token fields ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Image:
    """An image: a grid of `nx` by `ny` tokens, made of `entries` preprocessed images (S §1.4)."""

    start: int
    nx: int
    ny: int
    pos_type: int = 0
    n_temporal_merge: int = 1
    id: bytes = b"0f1e2d3c"
    entries: tuple[tuple[int, int], ...] = ((32, 32),)

    @property
    def n_tokens(self) -> int:
        """Tokens that the chunk stands for."""
        if self.pos_type == 2:
            return (self.nx + 1) * self.ny + 2
        return self.nx * self.ny * -(-len(self.entries) // self.n_temporal_merge)


@dataclass(frozen=True)
class Audio:
    """An audio chunk of `n_tokens` tokens (S §1.4)."""

    start: int
    n_tokens: int
    id: bytes = b"4b5a6978"
    entries: tuple[tuple[int, int], ...] = ((3000, 128),)


Media = Image | Audio


@dataclass(frozen=True)
class Tokens:
    """The token field of a slot file.

    Attributes:
        ids: token ids; -1 at each media token.
        packed: whether it has the form that `llama-server` writes from b10388 on (S §1.3).
        media: what the runs of -1 stand for.
        chunk_version: version of the media chunks, 1 or 2.
    """

    ids: tuple[int, ...]
    packed: bool = False
    media: tuple[Media, ...] = ()
    chunk_version: int = 1

    def pack(self, pen: Pen) -> None:
        """Write the count of words and the words (S §1.1)."""
        words = _packed_tokens(self) if self.packed else _words(self.ids)
        pen.put("I", n_token_count=len(words) // 4)
        pen.raw("tokens", words)


def _words(ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(ids)}i", *ids)


def _packed_tokens(tokens: Tokens) -> bytes:
    """Marker, version, tokens, media, zeros up to a multiple of four (S §1.3)."""
    out = struct.pack("<iII", -1, 1, len(tokens.ids)) + _words(tokens.ids)
    out += struct.pack("<I", len(tokens.media)) + _words([media.start for media in tokens.media])
    for media in tokens.media:
        chunk = media_chunk(media, tokens.chunk_version)
        out += struct.pack("<I", len(chunk)) + chunk
    return out + bytes(-len(out) % 4)


def media_chunk(media: Media, version: int) -> bytes:
    """One multimodal chunk, which holds no pixels or samples (S §1.4)."""
    image = isinstance(media, Image)
    out = struct.pack("<QIQB", version, 1 if image else 2, 0, image)
    if isinstance(media, Image):
        grid = (media.nx, media.ny, media.pos_type, 0, media.n_temporal_merge, len(media.id))
        out += struct.pack("<5IQ", *grid) + media.id + _batch(media, version) + b"\0"
    else:
        out += struct.pack("<BIQ", 1, media.n_tokens, len(media.id)) + media.id
        out += _batch(media, version)
    return out


def _batch(media: Media, version: int) -> bytes:
    """The shapes of the preprocessed entries; version 2 has lead_pad in front of them (S §1.4)."""
    out = struct.pack("<BQ", isinstance(media, Audio), len(media.entries))
    for nx, ny in media.entries:
        out += struct.pack("<BB", 0, 0) + (b"\0\0\0\0" if version == 2 else b"")
        out += struct.pack("<ii", nx, ny)
    return out


# -- upstream memory -------------------------------------------------------------------------------


class Cell(NamedTuple):
    """One stored position; `x` and `y` equal it for text."""

    pos: int
    seq_ids: tuple[int, ...] = (0,)
    x: int | None = None
    y: int | None = None
    tok: int = -1


def cells_of(tokens: Tokens, *, mrope: bool = False) -> tuple[Cell, ...]:
    """The cells that a server makes of these tokens (S §1.4, §3.2.3).

    Args:
        tokens: text and media.
        mrope: whether the tokens of an image share one position and spread over x and y.
    """
    out: list[Cell] = []
    pos, media = 0, {chunk.start: chunk for chunk in tokens.media}
    while len(out) < len(tokens.ids):
        chunk = media.get(len(out))
        if chunk is None:
            out.append(Cell(pos, tok=tokens.ids[len(out)]))
            pos += 1
        elif mrope and isinstance(chunk, Image) and chunk.pos_type == 1:
            grid = range(chunk.n_tokens)
            out += [Cell(pos, x=pos + i % chunk.nx, y=pos + i // chunk.nx % chunk.ny) for i in grid]
            pos += max(chunk.nx, chunk.ny)
        else:
            out += [Cell(pos + i) for i in range(chunk.n_tokens)]
            pos += chunk.n_tokens
    return tuple(out)


class Row(NamedTuple):
    """What one cell occupies in one layer: a ggml type and bytes."""

    type: int
    size: int


@dataclass(frozen=True)
class Dialect:
    """How one stretch of builds wrote the sections (S §3.7).

    Attributes:
        streams: whether attention caches begin with n_stream (b5913 on).
        ids: sequence ids of a cell: "none" (seq saves until b5484), "one" (seq saves from b5485)
            or "all" (full saves).
        ext: bytes of the cell extension: 0; 8 for x and y; 12 for x, y and the token.
        rotation: whether the rotation words follow n_layer (ggsq 4, ggsn 11).
    """

    streams: bool = True
    ids: str = "one"
    ext: int = 0
    rotation: bool = False


DIALECTS = {
    "anonymous": Dialect(streams=False, ids="none"),
    "flat": Dialect(streams=False),
    "rng": Dialect(streams=False),
    "": Dialect(),
    "outputs": Dialect(),
    "xy": Dialect(ext=8),
    "xyt": Dialect(ext=12),
    "rotated": Dialect(rotation=True),
    "rotated-xyt": Dialect(ext=12, rotation=True),
}
"""Last part of a layout's id -> the dialect of a seq save (S §3.7, §8)."""


def _cells(pen: Pen, cells: Sequence[Cell], ids: str, ext: int) -> None:
    """Cell records: pos, n_seq_id, extension, sequence ids (S §3.2.2, §3.2.3)."""
    out = bytearray()
    for cell in cells:
        own = {"none": (), "one": cell.seq_ids[:1], "all": cell.seq_ids}[ids]
        x = cell.pos if cell.x is None else cell.x
        y = cell.pos if cell.y is None else cell.y
        extension = struct.pack("<iii", x, y, cell.tok)[:ext]
        out += struct.pack("<iI", cell.pos, len(own)) + extension + _words(own)
    pen.raw("cells", bytes(out))


def _positions(cells: Sequence[Cell]) -> list[int]:
    return [cell.pos for cell in cells]


@dataclass(frozen=True)
class Cache:
    """An attention cache.

    Attributes:
        streams: the cells of every stream; of a seq save only one has any.
        k: the keys of every layer that the cache owns.
        v: its values; None for MLA caches and indexers, which have none (S §3.3).
        v_trans: 1 with flash attention off.
        n_rot: the rotation words, keys and values (S §3.8).
        windowed: whether it is the sliding window's.
        index: MiniMax-M3 of b10135 to b10243: indexer keys of each layer, or None (S §3.6).
    """

    streams: tuple[tuple[Cell, ...], ...]
    k: tuple[Row, ...]
    v: tuple[Row, ...] | None
    v_trans: int = 0
    n_rot: tuple[int, int] = (0, 0)
    windowed: bool = False
    index: tuple[Row | None, ...] | None = None

    def pack(self, pen: Pen, name: str, dialect: Dialect) -> None:
        """Write the section: n_stream and the streams, or the only stream (S §3.2, §3.7)."""
        if dialect.streams:
            pen.put("I", n_stream=len(self.streams))
            for i, cells in enumerate(self.streams):
                with pen.inside(f"streams[{i}]"):
                    pen.put("I", cell_count=len(cells))
                    if cells:
                        self._stream(pen, name, cells, dialect)
        else:
            (cells,) = self.streams
            pen.put("I", cell_count=len(cells))
            self._stream(pen, name, cells, dialect)

    def _stream(self, pen: Pen, name: str, cells: Sequence[Cell], dialect: Dialect) -> None:
        _cells(pen, cells, dialect.ids, dialect.ext)
        pen.put("II", v_trans=self.v_trans, n_layer=len(self.k))
        if dialect.rotation:
            pen.put("II", n_rot_k=self.n_rot[0], n_rot_v=self.n_rot[1])
        positions = _positions(cells)
        for layer, row in enumerate(self.k):
            with pen.inside(f"k[{layer}]"):
                pen.put("iQ", k_type=row.type, k_size_row=row.size)
                pen.rows(f"{name}.k", layer, positions, row.size)
        if self.index is not None:
            self._index(pen, name, positions)
        for layer, row in enumerate(self.v or ()):
            with pen.inside(f"v[{layer}]"):
                self._values(pen, f"{name}.v", layer, positions, row)

    def _index(self, pen: Pen, name: str, positions: Sequence[int]) -> None:
        """A flag, then a flag and perhaps keys for every layer (S §3.6)."""
        assert self.index is not None
        pen.put("I", has_index=1)
        for layer, row in enumerate(self.index):
            with pen.inside(f"index[{layer}]"):
                pen.put("I", present=row is not None)
                if row is not None:
                    pen.put("iQ", k_type=row.type, k_size_row=row.size)
                    pen.rows(f"{name}.index", layer, positions, row.size)

    def _values(self, pen: Pen, part: str, layer: int, positions: Sequence[int], row: Row) -> None:
        """Rows like those of the keys, or channel by channel (S §3.2.4)."""
        if self.v_trans:
            element = ELEMENT_BYTES[row.type]
            pen.put("iII", v_type=row.type, v_size_el=element, n_embd_v_gqa=row.size // element)
            pen.columns(part, layer, positions, row.size, element)
        else:
            pen.put("iQ", v_type=row.type, v_size_row=row.size)
            pen.rows(part, layer, positions, row.size)


@dataclass(frozen=True)
class Recurrent:
    """Recurrent state.

    Attributes:
        cells: one per sequence that has state.
        n_layer: layers of the model, whichever of them are recurrent.
        r: convolution or token shift of every recurrent layer.
        s: state of the same layers.
        history: n-gram embedding history behind the R block of each layer, or None (S §3.4.4, b).
    """

    cells: tuple[Cell, ...]
    n_layer: int
    r: tuple[Row, ...]
    s: tuple[Row, ...]
    history: tuple[Row | None, ...] = ()

    def pack(self, pen: Pen, name: str, dialect: Dialect) -> None:
        """Write the section (S §3.4.1); seq saves never have ids here."""
        pen.put("I", cell_count=len(self.cells))
        _cells(pen, self.cells, "all" if dialect.ids == "all" else "none", 0)
        pen.put("II", s_trans=0, n_layer=self.n_layer)
        positions = _positions(self.cells)
        histories = [*self.history, *([None] * (len(self.r) + len(self.s) - len(self.history)))]
        for block, (row, history) in enumerate(zip(self.r + self.s, histories, strict=True)):
            with pen.inside(f"blocks[{block}]"):
                pen.put("iQ", type=row.type, row_size=row.size)
                pen.rows(f"{name}.blocks", block, positions, row.size)
                if history is not None:
                    pen.put("Q", ple_row_size=history.size)
                    pen.rows(f"{name}.ple", block, positions, history.size, "ple_data")


@dataclass(frozen=True)
class Compressed:
    """Compressed keys of DeepSeek-V4: `n_rows` rows of `ne0` f16 in each stream (S §3.5, KC)."""

    layers: tuple[int, ...]
    ne0: int
    n_rows: int
    version: int = 2
    ns: int = 1

    def pack(self, pen: Pen, part: str) -> None:
        """Write version, rows, streams, then every layer."""
        pen.put(
            "IIII", version=self.version, n_rows=self.n_rows, ns=self.ns, n_layer=len(self.layers)
        )
        for i, layer in enumerate(self.layers):
            with pen.inside(f"layers[{i}]"):
                pen.put("I", layer_index=layer)
                _tensor(pen, "keys", part, layer, F16, self.ne0, self.n_rows, self.ns)


@dataclass(frozen=True)
class Compressor:
    """A compressor of DeepSeek-V4: `state_size` rows of `n_embd_state` f32 (S §3.5, CS)."""

    layers: tuple[int, ...]
    ratio: int
    state_size: int
    n_embd_state: int
    ns: int = 1

    def pack(self, pen: Pen, part: str) -> None:
        """Write version, sizes, streams, then two tensors for every layer."""
        pen.put(
            "IIIIII",
            version=1,
            ratio=self.ratio,
            state_size=self.state_size,
            n_embd_state=self.n_embd_state,
            ns=self.ns,
            n_layer=len(self.layers),
        )
        for i, layer in enumerate(self.layers):
            with pen.inside(f"layers[{i}]"):
                pen.put("I", layer_index=layer)
                for name in ("kv", "score"):
                    shape = (F32, self.n_embd_state, self.state_size, self.ns)
                    _tensor(pen, name, f"{part}.{name}", layer, *shape)


def _tensor(
    pen: Pen, name: str, part: str, layer: int, kind: int, ne0: int, rows: int, ns: int
) -> None:
    """Type, shape and rows of all streams (S §3.5)."""
    size = ne0 * ELEMENT_BYTES[kind]
    with pen.inside(name):
        pen.put("iQQQ", type=kind, ne0=ne0, rows=rows, row_size=size)
        pen.rows(part, layer, range(ns * rows), size)


@dataclass(frozen=True)
class Dsv4:
    """The memory of DeepSeek-V4: a raw window, compressed keys, compressor states (S §3.5)."""

    base: Cache
    swa: Cache
    compressed: Mapping[str, Compressed]
    compressors: Mapping[str, Compressor]
    mode: int = 0

    def pack(self, pen: Pen, name: str, dialect: Dialect) -> None:
        """Write the tagged block; mode 1 leaves the compressed keys out."""
        pen.put("III", magic=0x34565344, version=1, mode=self.mode)
        for part, cache in (("base", self.base), ("swa", self.swa)):
            with pen.inside(part):
                cache.pack(pen, part, dialect)
        if self.mode == 0:
            for part, keys in self.compressed.items():
                with pen.inside(part):
                    keys.pack(pen, part)
        for part, state in self.compressors.items():
            with pen.inside(f"{part}_state"):
                state.pack(pen, f"{part}_state")


Section = Cache | Recurrent | Dsv4


COMPOSITIONS: dict[str, dict[str, str]] = {
    "kv": {"attn": "cache"},
    "mla": {"attn": "keys"},
    "iswa": {"base": "cache", "swa": "window"},
    "recurrent": {"recr": "state"},
    "hybrid": {"attn": "cache", "recr": "state"},
    "hybrid-mla": {"attn": "keys", "recr": "state"},
    "hybrid-iswa": {"base": "cache", "swa": "window", "recr": "state"},
    "hybrid-ple": {"attn": "cache", "recr": "state-with-history"},
    "dsa": {"mla": "keys", "lid": "indexer-keys"},
    "dsa-iswa": {"mla": "keys", "lid": "indexer-keys", "swa": "window-keys"},
    "msa": {"base": "cache", "idx": "indexer"},
    "minimax-m3": {"attn": "minimax-m3"},
    "hybrid-idx-values": {"attn": "cache", "recr": "state-with-history", "indexer": "indexer"},
    "hybrid-idx": {"attn": "cache", "recr": "state-with-history", "indexer": "indexer-keys"},
    "hybrid-idx-mla": {"attn": "keys", "recr": "state", "indexer": "indexer-keys"},
    "dsv4": {"dsv4": "dsv4"},
}
"""Memory type -> its sections in their order, each with its kind (S §3.1)."""


@dataclass(frozen=True)
class Memory:
    """What a context or a sequence holds: sections in the order of the memory type (S §3.1)."""

    sections: Mapping[str, Section]
    dialect: Dialect = Dialect()

    def pack(self, pen: Pen) -> None:
        """Write the sections one after another, without tags or lengths."""
        for name, section in self.sections.items():
            with pen.inside(name):
                section.pack(pen, name, self.dialect)

    def partial(self) -> Memory:
        """What PARTIAL_ONLY leaves of it (S §3.1).

        Windowed and recurrent sections; everything if there are none of these.
        """
        kept: dict[str, Section] = {
            name: section
            for name, section in self.sections.items()
            if isinstance(section, Recurrent) or (isinstance(section, Cache) and section.windowed)
        }
        if isinstance(dsv4 := self.sections.get("dsv4"), Dsv4):
            kept = {"dsv4": Dsv4(dsv4.base, dsv4.swa, {}, dsv4.compressors, mode=1)}
        return Memory(kept or self.sections, self.dialect)


@dataclass(frozen=True)
class FirstMemory:
    """The memory of slot files before b3483, version 1 (S §3.9).

    Attributes:
        positions: of the cells.
        k: the keys of every layer.
        v: the values of every layer.
        v_trans: whether values are transposed, which no field says.
        size_t: bytes of the writer's `size_t`.
    """

    positions: tuple[int, ...]
    k: tuple[Row, ...]
    v: tuple[Row, ...]
    v_trans: bool = True
    size_t: int = 8

    def pack(self, pen: Pen) -> None:
        """Write the head, the positions, keys and values."""
        pen.put("I", size_t_size=self.size_t)
        with pen.inside("attn"):
            self._attention(pen)

    def _attention(self, pen: Pen) -> None:
        size = {8: "Q", 4: "I"}[self.size_t]
        n_embd_v = self.v[0].size // ELEMENT_BYTES[self.v[0].type]
        n_cells, n_layer = len(self.positions), len(self.k)
        pen.put("III", cell_count=n_cells, n_layer=n_layer, n_embd_v_gqa=n_embd_v)
        pen.raw("cells", _words(self.positions))
        for layer, row in enumerate(self.k):
            with pen.inside(f"k[{layer}]"):
                pen.put("i" + size, k_type=row.type, k_size_row=row.size)
                pen.rows("attn.k", layer, self.positions, row.size)
        for layer, row in enumerate(self.v):
            element = ELEMENT_BYTES[row.type]
            with pen.inside(f"v[{layer}]"):
                if self.v_trans:
                    pen.put("i" + size, v_type=row.type, v_size_el=element)
                    pen.columns("attn.v", layer, self.positions, row.size, element)
                else:
                    pen.put("i" + size, v_type=row.type, v_size_row=row.size)
                    pen.rows("attn.v", layer, self.positions, row.size)


# -- ik_llama.cpp memory ---------------------------------------------------------------------------


@dataclass(frozen=True)
class IkMemory:
    """The memory of ik_llama.cpp: one cell list for all layers (K §3).

    Attributes:
        version: of the slot files it belongs to: 2, 3 or 4.
        cells: all of them.
        k: keys of every layer; None where a layer has none.
        v: values of every layer; unused with `v_state` 2.
        v_state: 0 rows, 1 transposed, 2 no V blocks.
        recurrent: row and number of rows of every layer that has recurrent state (K §4.1).
        indexer: rows of the layers that own an indexer cache; None in a model without (K §4.5).
        ids: whether the cells list their sequences, as in a whole-context save (K §5).
        window: size_swa, live, pos_base and head of the header for compacted windows (K §4.2).
        compacted: layers whose rows that header cuts to the last `live` cells.
    """

    version: int
    cells: tuple[Cell, ...]
    k: tuple[Row | None, ...]
    v: tuple[Row | None, ...]
    v_state: int = 0
    recurrent: tuple[tuple[Row, int] | None, ...] = ()
    indexer: tuple[Row, ...] | None = None
    ids: bool = False
    window: tuple[int, int, int, int] | None = None
    compacted: frozenset[int] = frozenset()

    def pack(self, pen: Pen) -> None:
        """Write the payload (K §3)."""
        if self.window is not None:
            size_swa, live, pos_base, head = self.window
            with pen.inside("swac"):
                pen.put("II", magic=0x53574143, size_swa=size_swa)
                pen.put("IiI", live_rows=live, pos_base_swa=pos_base, head_swa=head)
        with pen.inside("attn"):
            self._attention(pen)
        if self.version >= 3:
            pen.put("I", qnext_state=bool(self.recurrent))
            with pen.inside("recr"):
                self._recurrent(pen)
        if self.version >= 4:
            pen.put("I", dsa_indexer_state=self.indexer is not None)
            with pen.inside("indexer"):
                self._indexer(pen)

    def partial(self) -> IkMemory:
        """What a partial blob holds: all cells, empty headers, the recurrent state (K §6)."""
        none = (None,) * len(self.k)
        indexer = None if self.indexer is None else ()
        return replace(self, k=none, v=none, indexer=indexer, window=None)

    def _stored(self, layer: int) -> list[int]:
        live = self.window[1] if self.window and layer in self.compacted else len(self.cells)
        return _positions(self.cells)[len(self.cells) - live :]

    def _attention(self, pen: Pen) -> None:
        pen.put("I", cell_count=len(self.cells))
        _cells(pen, self.cells, "all" if self.ids else "none", 0)
        pen.put("II", v_state=self.v_state, n_layer=len(self.k))
        for layer, row in enumerate(self.k):
            with pen.inside(f"k[{layer}]"):
                self._keys(pen, layer, row)
        for layer, row in enumerate(self.v if self.v_state != 2 else ()):
            with pen.inside(f"v[{layer}]"):
                self._values(pen, layer, row)

    def _keys(self, pen: Pen, layer: int, row: Row | None) -> None:
        if row is None:
            pen.put("iQ", k_type=-1, k_size_row=0)
        else:
            pen.put("iQ", k_type=row.type, k_size_row=row.size)
            pen.rows("attn.k", layer, self._stored(layer), row.size)

    def _values(self, pen: Pen, layer: int, row: Row | None) -> None:
        if self.v_state == 1:
            element = ELEMENT_BYTES[row.type] if row else 0
            width = row.size // element if row else 0
            pen.put("iII", v_type=row.type if row else -1, v_size_el=element, n_embd_v_gqa=width)
            if row:
                pen.columns("attn.v", layer, self._stored(layer), row.size, element)
        elif row is None:
            pen.put("iQ", v_type=-1, v_size_row=0)
        else:
            pen.put("iQ", v_type=row.type, v_size_row=row.size)
            pen.rows("attn.v", layer, self._stored(layer), row.size)

    def _recurrent(self, pen: Pen) -> None:
        for layer, state in enumerate(self.recurrent):
            row, n = state or (Row(-1, 0), 0)
            with pen.inside(f"s[{layer}]"):
                pen.put("iQI", s_type=row.type, s_size_row=row.size, s_rows=n)
                pen.rows("recr.s", layer, range(n), row.size)

    def _indexer(self, pen: Pen) -> None:
        for layer, row in enumerate(self.indexer or ()):
            with pen.inside(f"k[{layer}]"):
                pen.put("iQ", k_type=row.type, k_size_row=row.size)
                pen.rows("indexer.k", layer, _positions(self.cells), row.size)


# -- checkpoint lists ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Raw:
    """Bytes whose inside does not matter."""

    data: bytes

    def pack(self, pen: Pen) -> None:
        """Write them."""
        pen.raw("bytes", self.data)


@dataclass(frozen=True)
class Checkpoint:
    """One record of a checkpoint list (C §1); formats leave out what they lack."""

    n_tokens: int
    pos_min: int
    pos_max: int
    tgt: bytes | Packable
    dft: bytes = b""
    spec: bytes = b""
    id_task: int = -1


Checkpoints = Sequence[Checkpoint]


@dataclass(frozen=True)
class CheckpointList:
    """A checkpoint list of one of the families that differ only in head and order of fields (C §5).

    Attributes:
        family: a key of `FAMILIES`.
        records: oldest first.
        head: numbers between version and count, or behind the count, where the family has any.
    """

    family: str
    records: tuple[Checkpoint, ...]
    head: Mapping[str, int] = field(default_factory=dict)

    def pack(self, pen: Pen) -> None:
        """Write the head, then the fields of each record in the order of the family."""
        head, order = FAMILIES[self.family]
        known = {"count": len(self.records), **self.head}
        for name, code, value in head:
            pen.put(code, **{name: known[name] if value is None else value})
        for i, record in enumerate(self.records):
            with pen.inside(f"records[{i}]"):
                self._record(pen, record, order)

    @staticmethod
    def _record(pen: Pen, record: Checkpoint, order: str) -> None:
        blobs = {
            name: Raw(blob) if isinstance(blob, bytes) else blob
            for name, blob in (("tgt", record.tgt), ("dft", record.dft), ("spec", record.spec))
        }
        for name in order.split():
            if name in blobs:
                with pen.inside(f"data_{name}"):
                    blobs[name].pack(pen)
            elif name.startswith("n_") and name[2:] in blobs:
                pen.put("Q", **{name: packed_size(blobs[name[2:]])})
            elif name == "n_tokens":
                pen.put("q", n_tokens=record.n_tokens)
            elif name.endswith("_prompt"):
                pen.put("i", **{name: getattr(record, name.removesuffix("_prompt"))})
            else:
                pen.put("i", **{name: getattr(record, name)})


_T = "n_tgt tgt"
_TD = "n_tgt tgt n_dft dft"
_TDS = "n_tgt tgt n_dft dft n_spec spec"


def _magic(word: int, version: int) -> tuple[tuple[str, str, int | None], ...]:
    return (("magic", "I", word), ("version", "I", version))


_COUNT = ("count", "I", None)

FAMILIES: dict[str, tuple[tuple[tuple[str, str, int | None], ...], str]] = {
    "pkcl1": (
        (*_magic(0x4C434B50, 1), _COUNT),
        "n_tokens pos_min pos_max n_tgt n_dft tgt dft",
    ),
    "pkcl2": (
        (*_magic(0x4C434B50, 2), ("state_hash", "Q", None), _COUNT),
        f"n_tokens pos_min pos_max {_TDS}",
    ),
    "llcp1": ((*_magic(0x4C4C4350, 1), _COUNT), f"pos_min pos_max n_tokens {_T}"),
    "llcp2": ((*_magic(0x4C4C4350, 2), _COUNT), f"pos_min pos_max n_tokens {_TD}"),
    "lsckpt2": (
        (("magic", "Q", 0x3254504B43534C), ("count", "Q", None)),
        "pos_min pos_max n_tokens n_tgt n_dft tgt dft",
    ),
    "sckp1": ((*_magic(0x504B4353, 1), _COUNT), f"n_tokens pos_min pos_max {_TDS}"),
    "ik": (
        (("magic", "I", GGSQ), ("version", "I", None), ("count", "Q", None)),
        f"pos_min pos_max pos_min_prompt pos_max_prompt {_T}",
    ),
    "stck2": (
        (
            *_magic(0x4B435453, 2),
            _COUNT,
            ("prompt_size", "Q", None),
            ("prompt_tokens", "Q", None),
            ("prompt_hash", "Q", None),
        ),
        f"n_tokens pos_min pos_max {_TDS}",
    ),
    "bkcp1": (
        (*_magic(0x50434B42, 1), _COUNT),
        f"n_tokens id_task pos_min pos_max {_TDS}",
    ),
    "slck1": ((*_magic(0x4B434C53, 1), _COUNT), f"n_tokens pos_min pos_max {_T}"),
}
"""Family -> its head (names, letters, values or None) and the order of a record's fields (C §5)."""


def fnv1a(data: bytes, basis: int = 14695981039346656037) -> int:
    """FNV-1a of 64 bits (C §5 A2)."""
    for byte in data:
        basis = (basis ^ byte) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    return basis


def pkcl2(records: Checkpoints, state: bytes) -> CheckpointList:
    """A PKCL list of version 2, bound to the bytes of its state file (C §5 A2)."""
    return CheckpointList("pkcl2", tuple(records), {"state_hash": fnv1a(state)})


def stck2(records: Checkpoints, prompt: bytes, prompt_tokens: int) -> CheckpointList:
    """An STCK list of version 2, bound to a serialized prompt by a hash (C §5 G)."""
    head = {
        "prompt_size": len(prompt),
        "prompt_tokens": prompt_tokens,
        "prompt_hash": fnv1a(prompt, 1469598103934665603),
    }
    return CheckpointList("stck2", tuple(records), head)


def ik_checkpoints(records: Checkpoints, version: int) -> CheckpointList:
    """A `.checkpoints` file of ik_llama.cpp, with the version of its slot files (C §5 F)."""
    return CheckpointList("ik", tuple(records), {"version": version})


@dataclass(frozen=True)
class Generation:
    """The `.gen` file of an STCK set: a commit marker (C §5 G)."""

    n_tokens: int
    n_hbnd: int = 0
    n_drft: int = 0

    def pack(self, pen: Pen) -> None:
        """Write 32 bytes."""
        pen.put("II", magic=0x4E454753, version=1)
        pen.put("QQQ", n_tokens=self.n_tokens, n_hbnd=self.n_hbnd, n_drft=self.n_drft)


def ik_tokens(ids: Sequence[int]) -> bytes:
    """The `.tokens.json` of ik_llama.cpp, without media (K §10.2)."""
    document = {
        "has_mtmd": False,
        "map_idx_to_media": [],
        "tokens": list(ids),
        "magic": 1819112310,
        "version": 1,
    }
    return json.dumps(document, separators=(",", ":")).encode()


# -- files -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """A slot file: `ggsq` (S §1.1, K §2).

    Attributes:
        version: 1 to 4 upstream, 2 to 4 for ik_llama.cpp.
        tokens: the token field.
        memory: what follows it.
        appendix: checkpoints behind the memory, version 4 only (C §5 D); None for no appendix.
    """

    version: int
    tokens: Tokens
    memory: Memory | FirstMemory | IkMemory
    appendix: tuple[Checkpoint, ...] | None = None

    def pack(self, pen: Pen) -> None:
        """Write head, tokens, memory, appendix."""
        pen.put("II", magic=GGSQ, version=self.version)
        self.tokens.pack(pen)
        self.memory.pack(pen)
        if self.appendix is not None:
            with pen.inside("appendix"):
                CheckpointList("sckp1", self.appendix).pack(pen)


class Outputs(NamedTuple):
    """The output blocks of a whole-context file: batch indices, logits, embeddings (S §2.5)."""

    output_pos: tuple[int, ...]
    n_logits: int
    n_embd: int


RNG = " ".join(str((i * 2654435761) % 2**32) for i in range(625)).encode()
"""What the text of an mt19937 looks like."""


@dataclass(frozen=True)
class Context:
    """The state of a whole context: what `llama_state_get_data` returns (S §2.5, K §5).

    Attributes:
        architecture: `general.architecture` of the model.
        memory: of all sequences; None for a context without any.
        rng: text of the random generator; until b3680, and in ik_llama.cpp.
        outputs: the output blocks; until b8132, and in ik_llama.cpp.
    """

    architecture: bytes
    memory: Memory | IkMemory | None
    rng: bytes | None = None
    outputs: Outputs | None = None

    def pack(self, pen: Pen) -> None:
        """Write architecture, what else the build writes, memory."""
        pen.put("I", arch_size=len(self.architecture))
        pen.raw("arch", self.architecture)
        if self.rng is not None:
            pen.put("I", rng_size=len(self.rng))
            pen.raw("rng", self.rng)
        if self.outputs is not None:
            output_pos, n_logits, n_embd = self.outputs
            pen.put("I", n_outputs=len(output_pos))
            pen.raw("output_pos", _words(output_pos))
            pen.put("Q", logits_size=n_logits)
            pen.rows("logits", 0, range(n_logits), 4, "logits")
            pen.put("Q", embd_size=n_embd)
            pen.rows("embd", 0, range(n_embd), 4, "embd")
        if self.memory is not None:
            self.memory.pack(pen)


@dataclass(frozen=True)
class Session:
    """A whole-context file: `ggsn` of version 8 or later (S §2.2, K §5).

    Attributes:
        version: 8 to 11.
        ids: tokens, always the plain list.
        context: what follows them.
    """

    version: int
    ids: tuple[int, ...]
    context: Context

    def pack(self, pen: Pen) -> None:
        """Write head, tokens, context."""
        pen.put("III", magic=GGSN, version=self.version, n_token_count=len(self.ids))
        pen.raw("tokens", _words(self.ids))
        self.context.pack(pen)


@dataclass(frozen=True)
class Blob:
    """What `llama_state_seq_get_data_ext` returns, and checkpoint lists hold (C §2).

    Attributes:
        memory: what it stores; `memory.partial()` for a partial blob.
        seq_id: in the prefix that upstream writes from b9028 on (C §2.1); None for no prefix.
    """

    memory: Memory | IkMemory
    seq_id: int | None = 0

    def pack(self, pen: Pen) -> None:
        """Write the prefix, if there is one, and the memory."""
        if self.seq_id is not None:
            pen.put("Ii", magic=BLOB_PREFIX, seq_id=self.seq_id)
        self.memory.pack(pen)


def checkpoint(memory: Memory | IkMemory, n_tokens: int, *, seq_id: int | None = 0) -> Checkpoint:
    """The record that a server would make of this memory after `n_tokens` tokens (C §1, §2).

    Args:
        memory: as it was then; only its partial form is stored.
        n_tokens: tokens of the prompt up to there, text only.
        seq_id: in the prefix of the blob, from b9028 on; None for no prefix.
    """
    windowed = isinstance(memory, Memory) and "recr" not in memory.sections
    last = n_tokens - 1
    return Checkpoint(n_tokens, 0 if windowed else last, last, Blob(memory.partial(), seq_id))
