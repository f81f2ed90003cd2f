"""What was measured of one kind of row, and what the number means.

Source: measurements on llama.cpp of 2024-06 to b11549 and ik_llama.cpp, 29 models. Right models
are at most 0.026 off, other quantizations of the same weights 0.06 to 0.63, other weights 1.2 to
1.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

from inspector.span import Span

AGREES = 0.04
"""Between 0.026, a right model none of whose rounding is known, and 0.06, the nearest of 5 bits."""
OTHER = 0.8
"""Between 0.63, the same weights at 1.6 bits, and 1.2, the lowest file of another model."""
BLIND = 0.35
"""Rounding from which on rows say nothing."""
EXACT = 3e-3
"""Up to which the very tensors were used, if products are rounded as upstream's CPU code does."""
DISTINCT = 4
"""Distinct tokens that it takes to tell what all tokens share."""
SINGLE = 1e-6
"""Below it the order in which a machine adds singles decides."""
SHIFTED = 3
"""How much more than its rounding a key may be off: every context shift rounds it again."""

_NAMES = {"k": "keys", "v": "values", "r": "convolution state"}


class Way(StrEnum):
    """How a backend rounds what it multiplies weights by."""

    CPU = "cpu"
    """To the partner of the weight type: f16, bf16, blocks of 32 or of 256."""
    BLOCKS = "blocks of 32"
    """To blocks of 32 for all quantized types."""
    EXACT = "exact"
    """Not at all."""


@dataclass(frozen=True, slots=True)
class Side:
    """One kind of row: how far the stored ones are from the computed ones.

    Attributes:
        name: `k`, `v` or `r`; of a latent row, the turned part is `k` and the latent `v`.
        content: whether it depends on tokens and weights alone.
        error: median over rows, relative to what sets their token apart from others.
        rounding: what storing the computed rows costs, measured likewise.
        way: the rounding of products that fits best.
        rotation: size of the Hadamard matrix that rows were multiplied by, 0 for none.
        type: of the cache.
        n_cells: cells that were compared; of a convolution, tokens.
        n_distinct: distinct tokens among them.
        first: the lowest position among them.
        last: the highest.
        agreeing: positions of those that agree, ascending.
        foreign: positions of those that other weights or tokens would have, ascending.
        path: of the block.
        span: bytes of the block.
        empty: positions of rows that are all zero although the model computes others, ascending.
    """

    name: str
    content: bool
    error: float
    rounding: float
    way: Way
    rotation: int
    type: str
    n_cells: int
    n_distinct: int
    first: int
    last: int
    agreeing: tuple[int, ...]
    foreign: tuple[int, ...]
    path: str
    span: Span
    empty: tuple[int, ...] = ()

    @property
    def excess(self) -> float:
        """The error that rounding does not explain."""
        return sqrt(max(0.0, self.error**2 - self.rounding**2))

    @property
    def blind(self) -> bool:
        """Whether rounding is too coarse for what sets tokens apart."""
        return not self.rounding <= BLIND

    @property
    def agrees(self) -> bool:
        """Whether the rows are those of the model."""
        return self.excess <= (AGREES if self.content else max(AGREES, SHIFTED * self.rounding))

    @property
    def exact(self) -> bool:
        """Whether they are those of the very tensors."""
        return self.way is Way.CPU and self.excess <= EXACT

    @property
    def what(self) -> str:
        """In words, what the rows are."""
        return _NAMES[self.name]

    def __str__(self) -> str:
        """In words."""
        if self.error < SINGLE:
            return f"{self.what} less than {SINGLE:g} off"
        return (
            f"{self.what} {self.error:.2g} off, of which {self.type} explains {self.rounding:.2g}"
        )
