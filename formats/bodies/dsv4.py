"""DeepSeek-V4 memory: a raw window, compressed keys, and the state of the compressors.

Source: ggml-org/llama.cpp b10587, src/llama-kv-cache-dsv4.cpp `state_write`; first in b9840.
"""

from __future__ import annotations

from construct import this

from formats.bodies.attention import N_LAYER, attention_cache
from formats.scalars import GGML_TYPE, U32, U64
from formats.spans import Payload, Record, Series, Span, When

DSV4_MAGIC = 0x34565344

_TENSOR = Record(
    "type" / GGML_TYPE * "ggml type id",
    "ne0" / U64 * "elements of a row",
    "rows" / U64 * "rows of one stream",
    "row_size" / U64 * "bytes of a row",
    "data"
    / Payload(this._._.ns * this.rows * this.row_size)
    * "rows of all streams one after another",
)
_COMPRESSED_LAYER = Record(
    "layer_index" / U32 * "layer of the model",
    "keys" / _TENSOR * "compressed keys",
)
_COMPRESSED = Record(
    "version" / U32 * "2, or 1 in b9840 to b10072, which wrote every allocated row",
    "n_rows" / U32 * "rows of one stream",
    "ns" / U32 * "streams: 1 in a seq save",
    "n_layer" / U32 * "layers that follow",
    "layers"
    / Series(this.n_layer, _COMPRESSED_LAYER, at_most=N_LAYER)
    * "layers with this compression",
    role="dsv4",
)
_STATE_LAYER = Record(
    "layer_index" / U32 * "layer of the model",
    "kv" / _TENSOR * "keys and values that wait to be compressed",
    "score" / _TENSOR * "their scores",
)
_STATE = Record(
    "version" / U32 * "1",
    "ratio" / U32 * "positions that one compressed row stands for",
    "state_size" / U32 * "rows of one stream",
    "n_embd_state" / U32 * "elements of a row",
    "ns" / U32 * "streams: 1 in a seq save",
    "n_layer" / U32 * "layers that follow",
    "layers" / Series(this.n_layer, _STATE_LAYER, at_most=N_LAYER) * "layers with this compression",
    role="dsv4",
)


def dsv4_memory(cells: Span, *, rotation: bool = False) -> Record:
    """The tagged block that holds all memory of a DeepSeek-V4 context."""
    raw = {"rotation": rotation, "values": False}
    return Record(
        "magic" / U32 * '0x34565344, "DSV4"',
        "version" / U32 * "1",
        "mode" / U32 * "0 everything, 1 without the compressed keys",
        "base" / attention_cache("attention", cells, **raw) * "the raw cache: all cells, no layers",
        "swa" / attention_cache("swa", cells, **raw) * "the raw window of every layer",
        When(
            this.mode == 0,
            "csa" / _COMPRESSED * "keys of the layers that compress four positions to one",
            "hca" / _COMPRESSED * "keys of the layers that compress 128 positions to one",
            "lid" / _COMPRESSED * "keys of the indexer",
            says="mode = 0",
        ),
        "csa_state" / _STATE * "compressor state of the layers with ratio 4",
        "hca_state" / _STATE * "compressor state of the layers with ratio 128",
        "lid_state" / _STATE * "compressor state of the indexer",
    )
