"""Slot files before July 2024, version 1: positions without sequence ids, sizes as `size_t`.

Source: ggml-org/llama.cpp b2630 (PR #6341), llama.cpp `llama_state_seq_get_data`; from b2771
(PR #5021) values may be rows, which no field says; from b3305 the stored width is that of layer 0.
"""

from __future__ import annotations

from construct import Container, this

from formats.bodies.attention import N_LAYER
from formats.bodies.cells import N_CELLS
from formats.envelopes.ggsq import plain_slot_file
from formats.ggml_types import TYPES
from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import GGML_TYPE, LLAMA_POS, U32, U64
from formats.spans import Ahead, Choose, Payload, Record, Scalar, Series, Table

_ELEMENT_BYTES = {t.id: t.block_bytes for t in TYPES if t.block_elements == 1}


def _values_by_channel(scope: Container) -> int:
    """Channels of the layer, as many times n_embd_v_gqa as its keys are wider than layer 0's."""
    attn = scope._
    first, own = (attn.k[layer].k_size_row for layer in (0, attn._index))
    channels = attn.n_embd_v_gqa * own // first if first else attn.n_embd_v_gqa
    return int(channels * attn.cell_count * scope.v_size_el)


def _memory(size_t: Scalar) -> Record:
    """The memory of one sequence, as a build wrote it whose `size_t` is this."""
    keys = Record(
        "k_type" / GGML_TYPE * "ggml type id",
        "k_size_row" / size_t * "bytes that one cell occupies in this layer",
        "data" / Payload(this.k_size_row * this._.cell_count) * "keys, a row per cell",
    )
    rows = Record(
        "v_type" / GGML_TYPE * "ggml type id",
        "v_size_row" / size_t * "bytes that one cell occupies in this layer",
        "data" / Payload(this.v_size_row * this._.cell_count) * "values, a row per cell",
    )
    channels = Record(
        "v_type" / GGML_TYPE * "ggml type id",
        "v_size_el" / size_t * "bytes of one element",
        "data"
        / Payload(_values_by_channel)
        * "values, channel by channel: the elements of all cells one after another",
    )
    transposed = Ahead(
        "<i" + size_t.layout.format[-1],
        lambda kind, size: _ELEMENT_BYTES.get(kind) == size,
        "the size is that of one element",
    )
    return Record(
        "cell_count" / U32 * "cells that follow",
        "n_layer" / U32 * "layers of the model",
        "n_embd_v_gqa" / U32 * "elements that the values of one cell occupy in layer 0",
        "cells"
        / Table(
            this.cell_count, Record("pos" / LLAMA_POS * "position of the token"), at_most=N_CELLS
        )
        * "cells in cell order",
        "k" / Series(this.n_layer, keys, at_most=N_LAYER) * "keys by ascending layer",
        "v"
        / Series(
            this.n_layer,
            Choose(transposed, channels, rows, says=transposed.says),
            at_most=N_LAYER,
        )
        * "values by ascending layer; transposed with flash attention off",
        role="attention",
        facts={"cell_ext": 0, "values": True, "rotation": False},
    )


def _row(name: str, size_t: Scalar, *tells: str) -> Layout:
    return Layout(
        id=f"ggsq1.kv{name}",
        title="slot file, version 1: one attention cache",
        format="ggsq",
        version=1,
        magic=b"qsgg",
        declare=lambda: plain_slot_file(
            "size_t_size" / U32 * "bytes of the writer's size_t",
            "attn" / _memory(size_t) * "keys and values of all layers",
        ),
        origins=(
            Origin(
                "ggml-org/llama.cpp",
                "b2630 (PR #6341)",
                "llama.cpp",
                "llama_state_seq_get_data",
                basis="ran",
            ),
        ),
        since="b2630",
        until="b3482",
        tells=("positions without sequence ids", *tells),
        writer="llama.cpp",
        memory="kv",
    )


ROWS: tuple[Layout, ...] = (
    _row("", U64, "size_t_size 8"),
    _row(".size_t-4", U32, "size_t_size 4, of a 32-bit build"),
)
