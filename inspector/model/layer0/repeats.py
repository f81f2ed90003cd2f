"""A state alone: values of the first layer depend on the token, so equal tokens have equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inspector.arrays.numbers import READABLE, Indices
from inspector.model.layer0 import stored
from inspector.model.layer0.side import AGREES
from inspector.model.layer0.weights import NotTestable
from inspector.sections import Section
from inspector.source import Source
from inspector.span import Span

_N_CHANNELS = 64
"""Channels that are compared."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Cells of one token, compared with one another.

    Attributes:
        n_pairs: how many pairs were compared.
        n_equal: how many of them hold the same values, bit for bit.
        error: median of the relative differences.
        path: of the values.
        span: bytes of the values.
    """

    n_pairs: int
    n_equal: int
    error: float
    path: str
    span: Span

    @property
    def agree(self) -> bool:
        """Whether values go with tokens."""
        return self.error <= AGREES

    def __str__(self) -> str:
        """In words."""
        if self.agree:
            return f"{self.n_equal} of {self.n_pairs} pairs of cells of one token hold equal values"
        return f"cells of one token hold values that are {self.error:.2g} apart"


def repeats_of(source: Source, sections: Sequence[Section], tokens: Indices) -> Repeats | None:
    """Compare the values of cells of one token in the first layer.

    Args:
        source: the file.
        sections: its memory sections.
        tokens: its token list.

    Returns:
        The best of the sections, one of which has layer 0; None if nothing can be said: no token
        occurs twice, the layer stores no values, or the first attention layer is not layer 0.
    """
    if any(section.kind == "recurrent" for section in sections):
        return None
    found = [_of(source, section, tokens) for section in sections]
    return min((r for r in found if r is not None), key=lambda r: r.error, default=None)


def _of(source: Source, section: Section, tokens: Indices) -> Repeats | None:
    cells = next(stored.sequences(section), None)
    if section.kind not in ("attention", "swa") or cells is None or cells.v is None:
        return None
    block, ids = cells.v, stored.tokens_by_position(cells.pos, tokens)
    kind = next((kind for kind in block.readings if kind.name in READABLE), None)
    n_elements = kind.elements(block.row_bytes) if kind is not None else None
    if ids is None or kind is None or not n_elements:
        return None
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    same = np.flatnonzero((ids[1:] == ids[:-1]) & (ids[1:] >= 0))
    if not len(same):
        return None
    same = same[_spread(len(same), stored.N_SAMPLES)]
    channels = _spread(n_elements, _N_CHANNELS)
    try:
        first, second = (
            np.concatenate(
                [
                    stored.rows(source, block, kind, cells.index[[i]], channels)[:, channels]
                    for i in order[same + step]
                ]
            )
            for step in (0, 1)
        )
    except NotTestable:
        return None
    sizes = np.sqrt(np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1))
    errors = np.linalg.norm(first - second, axis=1) / sizes
    if not (finite := np.isfinite(errors)).any():
        return None
    return Repeats(
        n_pairs=len(same),
        n_equal=int((first == second).all(axis=1).sum()),
        error=float(np.median(errors[finite])),
        path=block.path,
        span=block.data or block.span,
    )


def _spread(count: int, most: int) -> Indices:
    """At most so many places below `count`, spread evenly."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)
