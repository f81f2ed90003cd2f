"""Values in rows or channel by channel, as flash attention wants them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inspector.repair.draft import Draft, Step
from inspector.repair.segments import Make
from inspector.repair.state import Cache, Refused, Tensor

ACTION = "transpose-values"


def into_rows(draft: Draft) -> None:
    """Values in rows, if the target's flash attention setting wants them so."""
    _turn(draft, 0)


def into_channels(draft: Draft) -> None:
    """Values channel by channel, if it wants them so."""
    _turn(draft, 1)


_HOW = {0: "in rows (flash attention on)", 1: "channel by channel (flash attention off)"}


def _turn(draft: Draft, wanted: int) -> None:
    if draft.own is None or int(draft.own.v_trans) != wanted:
        return
    others = [cache for cache in draft.state.caches if cache.v_trans != wanted]
    if not any(len(cache.cells) for cache in others):
        return
    size = sum(tensor.row_bytes * tensor.n_cells for cache in others for tensor in cache.v)
    order = f", and the order of {size:,} bytes of values" if size else ""
    draft.take(
        Step(
            ACTION,
            f"the server wants values {_HOW[wanted]}, the file has them {_HOW[1 - wanted]}: the "
            "restore is refused",
            f"the word v_trans{order}",
            proven="b10229, b11549",
        )
    )
    draft.convert(lambda cache: _transposed(cache, wanted))


def _transposed(cache: Cache, wanted: int) -> Cache:
    if cache.v_trans == wanted:
        return cache
    turn = in_channels if wanted else in_rows
    return replace(cache, v_trans=wanted, v=tuple(turn(tensor) for tensor in cache.v))


def in_rows(tensor: Tensor) -> Tensor:
    """The same numbers, a row a cell."""
    if not tensor.element_bytes:
        return tensor
    return replace(tensor, element_bytes=0, content=_turned(tensor, to_rows=True))


def in_channels(tensor: Tensor) -> Tensor:
    """The same numbers, channel by channel.

    Raises:
        Refused: for types that are stored in blocks.
    """
    if tensor.element_bytes:
        return tensor
    if tensor.kind is None or tensor.kind.block_elements != 1:
        raise Refused("quantized values cannot be stored channel by channel")
    turned = replace(tensor, element_bytes=tensor.kind.block_bytes)
    return replace(turned, content=_turned(turned, to_rows=False))


def _turned(tensor: Tensor, *, to_rows: bool) -> tuple[Make]:
    def chunks() -> Iterator[bytes]:
        from inspector.arrays.transpose import chunks_transposed

        yield from chunks_transposed(
            tensor.reader().read_at,
            0,
            tensor.n_cells,
            tensor.row_bytes // tensor.element_bytes,
            tensor.element_bytes,
            to_rows=to_rows,
        )

    return (Make(tensor.row_bytes * tensor.n_cells, chunks, ACTION),)
