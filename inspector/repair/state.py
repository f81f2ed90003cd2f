"""A state by its parts: what actions change and what is composed again."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from formats.ggml_types import GgmlType
from inspector.repair.segments import Composed, Content, Keep, Make
from inspector.source import Source
from inspector.span import Span

if TYPE_CHECKING:
    from collections.abc import Iterator


Numbers = NDArray[np.int64]


class Refused(Exception):
    """What was asked for cannot be had from these bytes; the message says why."""


class Hopeless(Refused):
    """What was refused is what the target needs before anything else."""


@dataclass(frozen=True)
class Cells:
    """The cells of a section, in cell order.

    Attributes:
        pos: positions, shape `(n_cells,)`.
        extension: `x`, `y` and `tok` as far as they are stored, each shape `(n_cells,)`.
        seq_id: the sequence they were saved from.
    """

    pos: Numbers
    extension: dict[str, Numbers] = field(default_factory=dict)
    seq_id: int = 0

    def __len__(self) -> int:
        """Cells."""
        return len(self.pos)

    def taken(self, index: Numbers) -> Cells:
        """Some of them."""
        extension = {name: column[index] for name, column in self.extension.items()}
        return Cells(self.pos[index], extension, self.seq_id)


@dataclass(frozen=True)
class Tensor:
    """The numbers of one layer for all cells of a section.

    Attributes:
        type_id: ggml type id.
        row_bytes: bytes that one cell occupies.
        n_cells: rows.
        content: the bytes.
        element_bytes: of one element if stored channel by channel, else 0.
        kind: the type; None if unknown.
    """

    type_id: int
    row_bytes: int
    n_cells: int
    content: Content
    element_bytes: int = 0
    kind: GgmlType | None = None

    def reader(self) -> Composed:
        """To read the numbers."""
        return Composed(self.content, "")

    def taken(self, index: Numbers, why: str) -> Tensor:
        """The rows of some cells.

        Args:
            index: which, shape `(n,)`, in the order in which they are to stand.
            why: the action that takes them.
        """
        if len(index) == self.n_cells and bool((index == np.arange(len(index))).all()):
            return self
        n = len(index)
        if self.element_bytes:
            content: Content = (Make(self.row_bytes * n, lambda: _columns(self, index), why),)
        else:
            content = tuple(_runs(self, index))
        return replace(self, n_cells=n, content=content)


_MOST_COLUMN_BYTES = 16 << 20


def _columns(tensor: Tensor, index: Numbers) -> Iterator[bytes]:
    """The numbers of some cells, channel by channel."""
    reader, size = tensor.reader(), tensor.element_bytes
    stride = size * tensor.n_cells
    at_once = max(1, _MOST_COLUMN_BYTES // max(1, stride))
    n_channels = tensor.row_bytes // size
    for first in range(0, n_channels, at_once):
        n = min(at_once, n_channels - first)
        data = np.frombuffer(reader.read_at(first * stride, n * stride), f"V{size}")
        yield data.reshape(n, tensor.n_cells)[:, index].tobytes()


def _runs(tensor: Tensor, index: Numbers) -> Iterator[Keep]:
    """Rows of some cells as runs of the kept bytes."""
    row, reader = tensor.row_bytes, tensor.reader()
    single = reader.content[0] if len(reader.content) == 1 else None
    source: Source = reader
    start = 0
    if isinstance(single, Keep):
        source, start = single.source, single.span.start
    if not len(index) or not row:
        return
    cuts = np.flatnonzero(np.diff(index) != 1) + 1
    for first, last in zip((0, *cuts), (*cuts, len(index)), strict=True):
        begin = start + int(index[first]) * row
        yield Keep(source, Span(begin, begin + int(last - first) * row))


@dataclass(frozen=True)
class Cache:
    """An attention cache.

    Attributes:
        member: its name in the composition.
        kind: attention, swa or indexer.
        cells: what is stored.
        n_stream: cell arrays, 1 for a unified cache.
        stream: the one with the cells.
        v_trans: the word: whether values are stored channel by channel.
        n_layer: the word.
        rotation: the words n_rot_k and n_rot_v; None if the form has none.
        k: keys by layer.
        v: values by layer, none for caches of keys alone.
    """

    member: str
    kind: str
    cells: Cells
    n_stream: int
    stream: int
    v_trans: int
    n_layer: int
    rotation: tuple[int, int] | None
    k: tuple[Tensor, ...]
    v: tuple[Tensor, ...]

    def taken(self, index: Numbers, why: str) -> Cache:
        """With some of its cells."""
        return replace(
            self,
            cells=self.cells.taken(index),
            k=tuple(tensor.taken(index, why) for tensor in self.k),
            v=tuple(tensor.taken(index, why) for tensor in self.v),
        )


@dataclass(frozen=True)
class Recurrent:
    """A recurrent section of one sequence.

    Attributes:
        member: its name in the composition.
        pos: positions of its cells, shape `(n_cells,)`.
        n_layer: the word.
        r: R rows by recurrent layer.
        s: S rows by recurrent layer.
        stored: all blocks as they stand in the file; None once one was changed.
        seq_id: the sequence they were saved from, as far as that is stored.
    """

    member: str
    pos: Numbers
    n_layer: int
    r: tuple[Tensor, ...]
    s: tuple[Tensor, ...]
    stored: Keep | None = None
    seq_id: int = field(default=0, kw_only=True)


Part = Cache | Recurrent


@dataclass(frozen=True)
class TokenList:
    """The tokens that a state stands for.

    Attributes:
        ids: in order, -1 at media, shape `(n,)`.
        packed: whether they are packed, as servers from b10388 on do.
        media_start: index of the first token of every media chunk.
        media: the chunks, each behind its length, as stored.
    """

    ids: Numbers
    packed: bool = False
    media_start: tuple[int, ...] = ()
    media: bytes = b""


@dataclass(frozen=True)
class State:
    """A state of one sequence.

    Attributes:
        source: the file that most of it stands in.
        memory: memory type, as compositions are named.
        tokens: its tokens.
        parts: its memory in file order, as far as it is whole.
        missing: names of the sections that are not.
        head: what stands between tokens and memory, in whole-context files.
    """

    source: Source
    memory: str
    tokens: TokenList
    parts: tuple[Part, ...]
    missing: tuple[str, ...] = ()
    head: Content = field(default=(), kw_only=True)

    @property
    def caches(self) -> tuple[Cache, ...]:
        """Its attention caches."""
        return tuple(part for part in self.parts if isinstance(part, Cache))

    @property
    def recurrent(self) -> Recurrent | None:
        """Its recurrent section."""
        return next((part for part in self.parts if isinstance(part, Recurrent)), None)

    def cache(self, kind: str) -> Cache | None:
        """Its attention cache of a kind."""
        return next((cache for cache in self.caches if cache.kind == kind), None)

    def part(self, member: str, part: Part) -> State:
        """With another part in place of the one of that name."""
        parts = tuple(part if own.member == member else own for own in self.parts)
        return replace(self, parts=parts)


OPAQUE = ("dsv4", "minimax-m3")
"""Memory types that are never taken apart."""
IK_MEMORY = "ik"
"""What the layouts of ik_llama.cpp name all its memory."""


def words(*values: int) -> bytes:
    """Unsigned words of 32 bits."""
    return struct.pack(f"<{len(values)}I", *values)
