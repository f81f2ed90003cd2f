"""Recurrent memory: the state of Mamba, RWKV, short convolutions and delta nets.

Source: ggml-org/llama.cpp b10587, src/llama-memory-recurrent.cpp
`llama_memory_recurrent::state_write`.
"""

from __future__ import annotations

from construct import Container, this

from formats.bodies.attention import N_LAYER
from formats.scalars import GGML_TYPE, U32, U64
from formats.spans import Ahead, Cursor, Payload, Record, Run, Span, When

F32_TYPE = 0

_BLOCK = (
    "type" / GGML_TYPE * "ggml type id, F32 in every build",
    "row_size" / U64 * "bytes that one cell occupies in this layer; may be 0",
    "data" / Payload(this.row_size * this._.cell_count) * "the state, a row per cell",
)
BLOCK = Record(*_BLOCK)

_HISTORY_AHEAD = Ahead(
    "<Q", lambda size: size > 256 and size % 4 == 0 and size < 1 << 32, "a row size comes next"
)

PLE_BLOCK = Record(
    *_BLOCK,
    When(
        _HISTORY_AHEAD,
        "ple_row_size"
        / U64
        * "bytes of the n-gram embedding history of one cell; no type word in front",
        "ple_data"
        / Payload(this.ple_row_size * this._.cell_count)
        * "the n-gram embedding history, a row per cell",
        says="a row size comes next",
    ),
)
"""An R or S block of a model with the PLE module: a history follows some R blocks (b10662 on)."""


def settle(heads: list[tuple[int, ...]], scope: Container) -> int | None:
    """How many of the blocks in sight belong to the section: R blocks, then as many S blocks.

    Their number is stored nowhere. All S rows of a model have one size, all R rows too (two sizes
    where the PLE history is folded in), and the two differ; so the longest run that splits so is
    taken. Zeros behind the section read as rows of 0 bytes: S rows are that short in models whose
    R rows are all alike (LFM2), and in no others.

    Returns:
        The number of blocks, or None if no split makes sense: blocks are missing or damaged.
    """
    sizes = [head[1] for head in heads]
    most = min(len(sizes), 2 * int(scope.n_layer))
    for total in range(most - most % 2, 0, -2):
        r, s = set(sizes[: total // 2]), set(sizes[total // 2 : total])
        if len(s) == 1 and len(r) <= (2 if any(s) else 1) and not r & s:
            return total
    if most == 2 * scope.n_layer and len(set(sizes[:most])) == 1:
        return most
    return 0 if not sizes and scope.n_layer == 0 else None


def _stride(cursor: Cursor, scope: Container, kind: int, size: int) -> int:
    return int(12 + size * scope.cell_count)


def _stride_with_history(cursor: Cursor, scope: Container, kind: int, size: int) -> int:
    stride, start = _stride(cursor, scope, kind, size), cursor.offset
    cursor.offset = min(start + stride, cursor.wall)
    if _HISTORY_AHEAD(scope):
        stride += int(8 + int.from_bytes(cursor.peek(8), "little") * scope.cell_count)
    cursor.offset = start
    return stride


def recurrent_state(cells: Span, *, ple: bool = False) -> Record:
    """The recurrent section; n_layer counts the model's layers, not the blocks that follow.

    Args:
        cells: the cell records.
        ple: whether R blocks of some layers are followed by an n-gram embedding history.
    """
    return Record(
        "cell_count" / U32 * "cells that follow, one per sequence",
        "cells" / cells * "cells; pos is the last position that the state has seen",
        "s_trans" / U32 * "whether states are stored transposed, which no build does",
        "n_layer" / U32 * "layers of the model, without next-token layers from b9523 on",
        "blocks"
        / Run(
            PLE_BLOCK if ple else BLOCK,
            ahead="<iQ",
            plausible=lambda kind, size: kind == F32_TYPE and size % 4 == 0 and size < 1 << 40,
            stride=_stride_with_history if ple else _stride,
            settle=settle,
            at_most=lambda scope: 2 * min(scope.n_layer, N_LAYER),
        )
        * "R (convolution, token shift) of every recurrent layer, then S (state) of these",
        role="recurrent",
        facts={"cell_ext": 0},
    )
