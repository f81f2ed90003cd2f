"""Stored rows against computed ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats.ggml_types import GgmlType
from inspector.arrays.numbers import Floats
from inspector.arrays.rotation import rotate
from inspector.model.layer0.projection import WAYS, Part
from inspector.model.layer0.rope import Rope
from inspector.model.layer0.rounding import BLOCK, as_stored, grain
from inspector.model.layer0.side import AGREES, DISTINCT, OTHER, SINGLE, Side
from inspector.model.layer0.stored import Sample
from inspector.sections import Block


class _Fit(NamedTuple):
    """How far rows are off with one way and one rotation."""

    error: float
    way: int
    rotation: int
    errors: Floats


@dataclass(frozen=True, eq=False)
class Rows:
    """Stored rows of some cells, and what was computed for them.

    Attributes:
        part: what is compared.
        block: where the rows are.
        kind: their type.
        stored: the rows, shape `(cells, row)`.
        computed: `part.numbers` of the tokens of each, shape `(ways, cells, heads, elements)`.
        sample: the cells.
    """

    part: Part
    block: Block
    kind: GgmlType
    stored: Floats
    computed: Floats
    sample: Sample

    def measured(self, rope: Rope, *, content: bool) -> Side | None:
        """How far apart they are, with the way and the rotation that fit best.

        Args:
            rope: how keys are turned.
            content: whether the rows depend on tokens and weights alone.

        Returns:
            The measurement; None if no row has finite numbers.
        """
        predicted = self._placed(self.computed, rope)
        apart = np.linalg.norm(predicted - self._placed(self._shared(), rope), axis=-1)
        best = self._fit(predicted, apart)
        if best is None:
            return None
        kind, turned = self._grain
        exact = predicted[best.way]
        for size in (best.rotation, turned):
            if size and exact.shape[-1] % size == 0:
                exact = rotate(exact, size)
        lost = np.linalg.norm(as_stored(exact, kind) - exact, axis=-1) / apart[best.way]
        known = np.isfinite(lost)
        compared = np.isfinite(best.errors).any(axis=1)
        off, lost_here = np.median(best.errors, axis=1), np.median(lost, axis=1)
        empty = self._empty(exact)
        pos = self.sample.positions[:, 0]
        return Side(
            name=self.part.name,
            content=content,
            error=best.error,
            rounding=float(np.median(lost[known])) if known.any() else np.inf,
            way=WAYS[best.way],
            rotation=best.rotation,
            type=kind.name,
            n_cells=int(compared.sum()),
            n_distinct=len(np.unique(self.sample.tokens[compared])),
            first=int(pos[compared].min()),
            last=int(pos[compared].max()),
            agreeing=_ascending(pos[~empty & (off <= np.hypot(AGREES, 2 * lost_here))]),
            foreign=_ascending(pos[~empty & (off > np.hypot(OTHER, lost_here))]),
            empty=_ascending(pos[empty]),
            path=self.block.path,
            span=self.block.data or self.block.span,
        )

    @cached_property
    def _grain(self) -> tuple[GgmlType, int]:
        """The coarsest type that the rows have been through, and how they were rotated for it."""
        usual = self.computed[0]
        partly = self.block.element_bytes and usual.shape[-1] % BLOCK  # not all elements are read
        if partly or self.part.name == "r":
            return self.kind, 0
        for size in (0, *(size for size in self._sizes() if self.stored.shape[1] % size == 0)):
            rows = rotate(self.stored, size)
            if self.block.element_bytes:
                rows = rows[:, self.part.elements]
            kind = grain(rows, usual, self.kind)
            if kind is not self.kind:
                return kind, size
        return self.kind, 0

    def _empty(self, exact: Floats) -> NDArray[np.bool_]:
        """Whether a row is zero although the computed one is not, as its type stores it."""
        zero = np.abs(self.stored[:, self.part.elements]).max(axis=(1, 2)) == 0
        held = np.abs(as_stored(exact, self.kind)).max(axis=(1, 2)) > 0
        return np.asarray(zero & held, np.bool_)

    def _fit(self, predicted: Floats, apart: Floats) -> _Fit | None:
        best: _Fit | None = None
        for rotation in self._rotations():
            rows = rotate(self.stored, rotation)[:, self.part.elements]
            errors = np.linalg.norm(rows - predicted, axis=-1) / apart
            for way, of_way in enumerate(errors):
                if (finite := np.isfinite(of_way)).any():
                    fit = _Fit(float(np.median(of_way[finite])), way, rotation, of_way)
                    best = fit if best is None or fit.error < best.error - SINGLE else best
        return best

    def _shared(self) -> Floats:
        """What all tokens share: the mean of distinct ones; 0 if they are too few."""
        _, first = np.unique(self.sample.tokens, return_index=True)
        mean = self.computed[:, first].mean(axis=1, keepdims=True)
        if len(first) < DISTINCT:
            mean = np.zeros_like(mean)
        return np.broadcast_to(mean, self.computed.shape)

    def _placed(self, numbers: Floats, rope: Rope) -> Floats:
        """Computed rows at their positions."""
        part = self.part
        if part.name != "k":
            return numbers
        if part.normed_after:
            rope = replace(rope, magnitude=1.0)
        found = rope.turn(numbers, self.sample.positions, part.rope_at)
        return found if part.after is None else found * part.after

    def _sizes(self) -> list[int]:
        """Sizes of the matrices that rows may have been multiplied by.

        Source: llama.cpp b8619 (PR #21038): 64 for values, for keys the largest power of two that
        divides a head; ik_llama.cpp 18fdd80ea `-khad`, a95981013 `-vhad`: the head if it is a
        power of two, 64 for latent rows.
        """
        head, width = self.part.elements.shape[1], self.stored.shape[1]
        sizes = {size for size in (64, 128, 256, 512) if head % size == 0}
        if head.bit_count() == 1 and width % head == 0:
            sizes.add(head)
        if self.part.latent and width % 64 == 0:
            sizes.add(64)
        return sorted(sizes)

    def _rotations(self) -> tuple[int, ...]:
        """Those sizes, and 0 for none; nothing else for types without blocks, never rotated."""
        plain = self.kind.block_elements == 1 and not self.kind.row_prefix_bytes
        return (0,) if plain else (0, *self._sizes())

    def multiple(self, rope: Rope, rotation: int) -> float:
        """How many times as large as computed the turned elements are, the median over rows."""
        predicted = self._placed(self.computed, rope)[0]
        rows = rotate(self.stored, rotation)[:, self.part.elements]
        at = slice(self.part.rope_at, self.part.rope_at + rope.n_rot)
        products = (rows[..., at] * predicted[..., at]).sum(axis=-1)
        squares = (predicted[..., at] ** 2).sum(axis=-1)
        return float(np.median(products / squares))


def _ascending(positions: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(np.unique(positions).tolist())
