"""One section of what a server stores of its model: its layers, and the bytes of their rows.

Source: ggml-org/llama.cpp b10587, src/llama-kv-cache.cpp `llama_kv_cache::llama_kv_cache`.
"""

from __future__ import annotations

from dataclasses import dataclass

from formats.ggml_types import TURBOQUANT
from inspector.server.target import Target, cache_type, padded

TURBO_HEAD = 128
"""Elements that heads of turbo types are padded to. Source: TheTom/llama-cpp-turboquant."""


@dataclass(frozen=True, slots=True)
class SectionExpectation:
    """One section of a state.

    Attributes:
        member: its name in the composition.
        kind: attention, swa, indexer or recurrent.
        layers: layers of the model that it holds, ascending.
        n_layer: the word in the section.
        type_k: of keys, or of R rows.
        type_v: of values, or of S rows; None if no values are stored.
        k: bytes of a K row, or of an R row, by layer.
        v: bytes of a V row, or of an S row, by layer; empty if no values are stored.
        n_rot_k: elements of the matrix that rotates keys, 0 for none.
        n_rot_v: elements of the matrix that rotates values, 0 for none.
        capacity: cells that one cell array of the section has; None if unknown.
    """

    member: str
    kind: str
    layers: tuple[int, ...]
    n_layer: int
    type_k: str
    type_v: str | None
    k: tuple[int, ...]
    v: tuple[int, ...]
    n_rot_k: int = 0
    n_rot_v: int = 0
    capacity: int | None = None

    @property
    def rows_bytes(self) -> int:
        """Bytes of all rows of one cell."""
        return sum(self.k) + sum(self.v)

    @property
    def headers_bytes(self) -> int:
        """Bytes in front of the rows of its blocks."""
        return _BLOCK * (len(self.k) + len(self.v))


_BLOCK = 12
"""Bytes of a block's type and row size."""


def rows_of(
    target: Target, name: str, widths: tuple[int, ...], heads: tuple[int, ...]
) -> tuple[int, ...] | str:
    """Bytes of rows.

    Args:
        target: whose cache it is.
        name: type of the cache.
        widths: elements of a row, by layer; 0 where there is none.
        heads: elements of one head, by layer.

    Returns:
        Bytes by layer; or why no server starts with such rows, in words.
    """
    kind = cache_type(name, target.build)
    assert kind is not None  # the target was refused otherwise
    rows = []
    for width, head in zip(widths, heads, strict=True):
        if kind.writer == TURBOQUANT and head:
            width = width // head * padded(head, TURBO_HEAD)
        blocks, rest = divmod(width, kind.block_elements)
        if rest:
            return f"rows of {width:,} elements are no whole number of {name} blocks"
        rows.append(blocks * kind.block_bytes + (kind.row_prefix_bytes if width else 0))
    return tuple(rows)
