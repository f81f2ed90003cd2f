"""Attention caches: keys and values of the layers that one cache owns.

Source: ggml-org/llama.cpp b10587, src/llama-kv-cache.cpp `llama_kv_cache::state_write`; earlier
src/llama-context.cpp `llama_data_write::write_kv_cache` (b3483 to b5261).
"""

from __future__ import annotations

from typing import Any

from construct import this

from formats.bodies.cells import N_SEQ
from formats.scalars import FLAG, GGML_TYPE, U32, U64
from formats.spans import Choose, Payload, Record, Series, Span, When

N_LAYER = 512
"""LLAMA_MAX_LAYERS."""

K_BLOCK = Record(
    "k_type" / GGML_TYPE * "ggml type id",
    "k_size_row" / U64 * "bytes that one cell occupies in this layer",
    "data"
    / Payload(this.k_size_row * this._.cell_count)
    * "keys, a row per cell: heads one after another, after RoPE",
)
V_BLOCK = Record(
    "v_type" / GGML_TYPE * "ggml type id",
    "v_size_row" / U64 * "bytes that one cell occupies in this layer",
    "data"
    / Payload(this.v_size_row * this._.cell_count)
    * "values, a row per cell: heads one after another",
)
V_BLOCK_TRANSPOSED = Record(
    "v_type" / GGML_TYPE * "ggml type id",
    "v_size_el" / U32 * "bytes of one element",
    "n_embd_v_gqa" / U32 * "channels: elements that one cell occupies in this layer",
    "data"
    / Payload(this.n_embd_v_gqa * this._.cell_count * this.v_size_el)
    * "values, channel by channel: the elements of all cells one after another",
)
VALUES = Choose(
    this.v_trans == 1,
    Series(this.n_layer, V_BLOCK_TRANSPOSED, at_most=N_LAYER),
    Series(this.n_layer, V_BLOCK, at_most=N_LAYER),
    says="v_trans = 1",
)

_INDEXER_KEYS = Record(
    "present" / FLAG * "whether this layer has indexer keys",
    When(
        this.present == 1,
        "k_type" / GGML_TYPE * "ggml type id",
        "k_size_row" / U64 * "bytes that one cell occupies in this layer",
        "data" / Payload(this.k_size_row * this._.cell_count) * "indexer keys, a row per cell",
        says="present = 1",
    ),
)


def attention_cache(
    role: str,
    cells: Span,
    *,
    cell_ext: int = 0,
    streams: bool = True,
    rotation: bool = False,
    values: bool = True,
    inner_indexer: bool = False,
) -> Record:
    """The section of one attention cache.

    Args:
        role: `attention`, `swa` or `indexer`.
        cells: the cell records.
        cell_ext: bytes of the extension those have.
        streams: whether the section begins with n_stream (b5913, PR #14363); without, empty
            caches keep their headers.
        rotation: whether n_rot_k and n_rot_v follow n_layer (ggsq 4, PR #28498).
        values: whether there are V blocks; MLA caches (b7832, PR #19067) and indexers have none.
        inner_indexer: MiniMax-M3 of b10135 to b10243: indexer keys between the K and the V blocks.
    """
    blocks: list[Any] = [
        "v_trans"
        / FLAG
        * "whether values are stored transposed, which is so with flash attention off",
        "n_layer" / U32 * "layers that this cache owns, keys then values",
    ]
    if rotation:
        blocks += [
            "n_rot_k"
            / U32
            * "size of the Hadamard matrix that the keys were multiplied by, 0 for none",
            "n_rot_v"
            / U32
            * "size of the Hadamard matrix that the values were multiplied by, 0 for none",
        ]
    blocks.append("k" / Series(this.n_layer, K_BLOCK, at_most=N_LAYER) * "keys by ascending layer")
    if inner_indexer:
        blocks += [
            "has_index" / FLAG * "whether indexer keys follow",
            When(
                this.has_index == 1,
                "index"
                / Series(this.n_layer, _INDEXER_KEYS, at_most=N_LAYER)
                * "indexer keys by ascending layer",
                says="has_index = 1",
            ),
        ]
    if values:
        blocks.append("v" / VALUES * "values by ascending layer")
    count = "cell_count" / U32 * "cells that follow"
    table = "cells" / cells * "cells in cell order, which need not be position order"
    facts = {"cell_ext": cell_ext, "values": values, "rotation": rotation}
    if not streams:
        return Record(count, table, *blocks, role=role, facts=facts)
    stream = Record(count, When(this.cell_count > 0, table, *blocks, says="cell_count > 0"))
    return Record(
        "n_stream" / U32 * "cell arrays: 1 for a unified cache, else one per sequence",
        "streams"
        / Series(this.n_stream, stream, at_most=N_SEQ)
        * "the cell arrays; of a seq save all but one are empty",
        role=role,
        facts=facts,
    )
