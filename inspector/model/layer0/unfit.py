"""Rows of the first layer that are no numbers, among the few that are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from inspector.arrays.numbers import READABLE, Indices, dequantize
from inspector.model.layer0 import stored
from inspector.model.layer0.weights import NotTestable
from inspector.sections import Block, Section
from inspector.source import Source

_N_CHANNELS = 16
"""Channels of transposed values that are looked at."""
_MOST_BYTES = 1 << 14
"""Bytes that are read of a recurrent state."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """Rows of a block with NaN or infinity.

    Attributes:
        block: where they are.
        positions: of their cells, ascending.
        n_read: cells that were looked at.
    """

    block: Block
    positions: tuple[int, ...]
    n_read: int


def unfit_rows(source: Source, sections: Sequence[Section]) -> Iterator[Unfit]:
    """Look at a few rows of the first stored layer of each section.

    Args:
        source: the file.
        sections: its memory sections.
    """
    for section in sections:
        if section.kind == "recurrent":
            yield from _states(source, section)
            continue
        if section.kind not in ("attention", "swa"):
            continue
        for cells in stored.sequences(section):
            any_token = np.arange(len(cells.pos))
            known = np.ones(len(any_token), np.bool_)
            for block in (cells.k, cells.v):
                if block is None or not len(any_token) or len(block.readings) != 1:
                    continue
                choose = stored.neighbours if block.element_bytes else stored.spread
                sample = choose(cells, any_token, known)
                yield from _attended(source, block, sample.index, sample.positions[:, 0])


def _attended(source: Source, block: Block, index: Indices, positions: Indices) -> Iterator[Unfit]:
    (kind,) = block.readings
    width = kind.elements(block.row_bytes)
    if kind.name not in READABLE or not width or kind.row_prefix_bytes:
        return
    channels = np.unique(np.linspace(0, width - 1, min(width, _N_CHANNELS)).astype(np.int64))
    try:
        rows = stored.rows(source, block, kind, index, channels)
    except NotTestable:
        return
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        yield Unfit(block, tuple(np.unique(positions[bad]).tolist()), len(rows))


def _states(source: Source, section: Section) -> Iterator[Unfit]:
    positions = section.pos.tolist()
    for block in (*section.r[:1], *section.s[:1]):
        kind = next((kind for kind in block.readings if kind.name in READABLE), None)
        if kind is None or block.data is None or not block.row_bytes or len(block.readings) != 1:
            continue
        units = min(block.row_bytes, _MOST_BYTES) // kind.block_bytes
        n_rows = min(block.n_cells, stored.MOST_SEQUENCES)
        bad = []
        for row in range(n_rows):
            data = source.read_at(
                block.data.start + row * block.row_bytes, units * kind.block_bytes
            )
            if len(data) < units * kind.block_bytes or not units:
                break
            if not np.isfinite(dequantize(data, kind, units * kind.block_elements)).all():
                bad.append(positions[row] if row < len(positions) else row)
        if bad:
            yield Unfit(block, tuple(sorted(set(bad))), n_rows)
