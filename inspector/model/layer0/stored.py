"""What a state stored of layer 0: which cells and tokens, and the numbers of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formats.ggml_types import GgmlType
from inspector.arrays.numbers import READABLE, Floats, Indices, dequantize
from inspector.model.layer0.side import DISTINCT
from inspector.model.layer0.weights import NotTestable
from inspector.node import Rows
from inspector.sections import Block, Section
from inspector.source import Source

N_SAMPLES = 16
"""Cells that are compared; they find a wrong tenth of all cells four times out of five."""
MOST_SEQUENCES = 8
"""Sequences of a whole-context state that are tried."""
_NEIGHBOURS = 64
"""Cells that are read at once of a channel, at most."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one sequence in one section.

    Attributes:
        k: the keys of layer 0, None if there are none.
        v: its values, None if there are none.
        table: of all cells of the stream.
        index: the row of each cell in the blocks and in the table.
        pos: position of each.
    """

    k: Block | None
    v: Block | None
    table: Rows
    index: Indices
    pos: Indices

    def sample(self, chosen: Indices, tokens: Indices) -> Sample:
        """Some of them, which have these tokens."""
        index, names = self.index[chosen], {name for name, _ in self.table.fields}
        positions = np.zeros((len(index), 4), np.int64)
        for at, name in enumerate(("pos", "y", "x")):
            positions[:, at] = self.table.column(name if name in names else "pos")[index]
        return Sample(index, tokens[chosen], positions)


@dataclass(frozen=True, eq=False)
class Sample:
    """Cells that are compared, with their tokens.

    Attributes:
        index: the row of each in the blocks.
        tokens: id of each.
        positions: position, row, column and 0 of each, shape `(n, 4)`.
    """

    index: Indices
    tokens: Indices
    positions: Indices

    def only(self, chosen: NDArray[np.bool_]) -> Sample:
        """Some of them."""
        return Sample(self.index[chosen], self.tokens[chosen], self.positions[chosen])


def sequences(section: Section) -> Iterator[Cells]:
    """The cells of a section, sequence by sequence; of a damaged one all together."""
    for table, stream in zip(section.tables, section.streams, strict=True):
        k, v = (_first(section, blocks, stream) for blocks in (section.k, section.v))
        pos = table.column("pos")
        stored_cells = k.n_cells if k is not None else len(pos)
        for rows_of_one in _by_sequence(table):
            index = rows_of_one[: np.searchsorted(rows_of_one, stored_cells)]
            yield Cells(k, v, table, index, pos[index])


def _first(section: Section, blocks: tuple[Block, ...], stream: int) -> Block | None:
    """The block of the first layer in a stream; None if that layer has none."""
    if section.node.get("streams") is not None:
        return next((b for b in blocks if f".streams[{stream}]." in b.path), None)
    first = blocks[0] if blocks else None
    if section.node.get("v_state") is not None:  # ik_llama.cpp: all layers, absent ones too
        return first if first is not None and first.path.endswith("[0]") else None
    return first


def _by_sequence(table: Rows) -> Iterator[Indices]:
    """The rows of each sequence, ascending."""
    everything = np.arange(len(table.table))
    ids = table.items()
    counts = table.column("n_seq_id") if len(ids) else ids
    if not len(ids) or (counts < 0).any() or counts.sum() != len(ids):
        yield everything
        return
    owners = np.repeat(everything, counts)
    for seq_id in np.unique(ids)[:MOST_SEQUENCES]:
        yield owners[ids == seq_id]


def tokens_by_position(pos: Indices, tokens: Indices) -> Indices | None:
    """The token of each cell if positions count tokens; None if they cannot."""
    if not len(pos) or not 0 <= pos.min() <= pos.max() < len(tokens):
        return None
    return tokens[pos]


def tokens_by_rank(pos: Indices, of_all: Indices, tokens: Indices) -> Indices | None:
    """The token of each cell if the n-th lowest position has the n-th token; None if not.

    A run of media tokens counts as one: all its cells share a position.

    Args:
        pos: positions of the cells.
        of_all: positions of all cells of the sequence, in the widest section.
        tokens: the token list.
    """
    places = np.unique(of_all)
    media = tokens < 0
    media[1:] &= media[:-1]
    listed = tokens[~media]
    rank = np.searchsorted(places, pos)
    if not len(rank) or rank.max() >= min(len(listed), len(places)):
        return None
    return listed[rank]


def spread(cells: Cells, tokens: Indices, known: NDArray[np.bool_]) -> Sample:
    """Cells spread evenly over the positions, the last one included.

    Args:
        cells: to choose from.
        tokens: id of each.
        known: which of them have an id that the model knows.
    """
    order = np.argsort(cells.pos, kind="stable")
    usable = order[known[order]]
    chosen = usable[np.unique(np.linspace(0, len(usable) - 1, N_SAMPLES).round().astype(np.int64))]
    if len(np.unique(tokens[chosen])) < DISTINCT:
        _, first = np.unique(tokens[usable], return_index=True)
        chosen = np.union1d(chosen, usable[first[:N_SAMPLES]])
    return cells.sample(chosen, tokens)


def neighbours(cells: Cells, tokens: Indices, known: NDArray[np.bool_]) -> Sample:
    """Cells at the beginning and at the end of the blocks, whose elements lie side by side.

    Args: as for `spread`.
    """
    order = np.argsort(cells.index, kind="stable")
    usable = order[known[order]]
    half = N_SAMPLES // 2
    chosen = np.unique(np.concatenate([usable[:half], usable[-half:]]))
    index = cells.index[chosen]
    near = np.minimum(index - index.min(), index.max() - index) < _NEIGHBOURS
    return cells.sample(chosen[near], tokens)


def type_of(block: Block, n_elements: int) -> GgmlType:
    """The type whose rows of so many elements a block holds.

    Raises:
        NotTestable: if there is none whose numbers are known.
    """
    fits = [kind for kind in block.readings if kind.elements(block.row_bytes) == n_elements]
    kind = next((kind for kind in fits if kind.name in READABLE), None)
    if kind is None:
        raise NotTestable(f"{block.path}: nothing here reads rows of {block.type_name}")
    return kind


def rows(source: Source, block: Block, kind: GgmlType, index: Indices, elements: Indices) -> Floats:
    """Numbers of some cells, shape `(cells, row)`; only some of them if stored channel by channel.

    Args:
        source: the file.
        block: of which tensor.
        kind: its type.
        index: which cells.
        elements: which channels are needed if they are stored apart.

    Raises:
        NotTestable: if they are not there.
    """
    if block.data is None or not len(index) or index.max() >= block.n_cells:
        raise NotTestable(f"{block.path}: the rows are not there")
    if block.element_bytes:
        if block.element_bytes != kind.block_bytes:
            raise NotTestable(f"{block.path}: elements are not of the size of {kind.name}")
        return _channels(source, block, kind, index, np.unique(elements))
    n_elements = kind.elements(block.row_bytes)
    assert n_elements is not None
    starts = [block.data.start + i * block.row_bytes for i in index.tolist()]
    return dequantize(_joined(source, block, starts, block.row_bytes), kind, n_elements)


def _joined(source: Source, block: Block, starts: list[int], size: int) -> bytes:
    """So many bytes from each of some offsets, one after another."""
    parts = [source.read_at(start, size) for start in starts]
    if any(len(part) < size for part in parts):
        raise NotTestable(f"{block.path}: the file ends inside")
    return b"".join(parts)


def _channels(
    source: Source, block: Block, kind: GgmlType, index: Indices, channels: Indices
) -> Floats:
    assert block.data is not None
    size, n_cells = block.element_bytes, block.n_cells
    found = np.zeros((len(index), block.row_bytes // size), np.float32)
    middle = (index.min() + index.max()) / 2
    for run in (index <= middle, index > middle):
        if not run.any():
            continue
        first, last = int(index[run].min()), int(index[run].max())
        n_read = last + 1 - first
        starts = [
            block.data.start + (channel * n_cells + first) * size for channel in channels.tolist()
        ]
        read = dequantize(_joined(source, block, starts, n_read * size), kind, n_read)
        found[np.ix_(run, channels)] = read[:, index[run] - first].T
    return found
