"""The memory of an ik_llama.cpp context: one cell list, all layers, and what only some models have.

Layers without a cache keep their place with a header of type -1. Not in the bytes: which layers
hold a window instead of all cells, how many indexer blocks follow, and how long the suffix of
DeepSeek-V4 is.

Source: ikawrakow/ik_llama.cpp 8337e4cd3 (2026-08-15), src/llama.cpp `llama_data_write`:
`write_kv_cache`, `write_kv_cache_meta`, `write_kv_cache_data`, `write_openpangu_state`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from construct import Container, this

from formats.bodies.attention import K_BLOCK, N_LAYER, V_BLOCK, V_BLOCK_TRANSPOSED
from formats.bodies.cells import N_SEQ
from formats.ggml_types import ABSENT, TYPES, readings
from formats.scalars import FLAG, GGML_TYPE, LLAMA_POS, LLAMA_SEQ_ID, U32, U64
from formats.spans import (
    Ahead,
    Choose,
    Cursor,
    Payload,
    Record,
    Rest,
    Run,
    Scalar,
    Series,
    Span,
    When,
)

SWA_COMPACT_LAYOUT_MAGIC = 0x53574143
OPENPANGU_PARTIAL_STATE_MAGIC = 0x50414731
OPENPANGU_PARTIAL_LAYOUT_MAGIC = 0x50414732

V_STATE = Scalar("I", {0: "rows", 1: "transposed", 2: "none"})

_LARGEST_ROW = 1 << 32
_HEAD = struct.Struct("<iQ")
_HEAD_TRANSPOSED = struct.Struct("<iII")

_V_STATE = "v_state" / V_STATE * "storage of the values; none with MLA"
_N_LAYER = "n_layer" / U32 * "layers that follow, those without a cache included"
_CELL_COUNT = "cell_count" / U32 * "cells that follow"
_QNEXT_STATE = "qnext_state" / FLAG * "whether the state of recurrent layers follows"
_DSA_INDEXER_STATE = "dsa_indexer_state" / FLAG * "whether the model has indexer keys"


def _opens_block(kind: int, row_bytes: int) -> bool:
    """Whether these words can be the header of a block of rows."""
    if kind == ABSENT:
        return row_bytes == 0
    return 0 < row_bytes < _LARGEST_ROW and bool(readings(kind, row_bytes))


def _opens_transposed(kind: int, element_bytes: int, n_embd: int) -> bool:
    """Whether these words can be the header of a block of transposed values."""
    if kind == ABSENT:
        return element_bytes == n_embd == 0
    sizes = [t.block_bytes for t in TYPES if t.id == kind and t.block_elements == 1]
    return n_embd > 0 and element_bytes in sizes


def _goes_on(scope: Container, skip: int) -> bool:
    """Whether another block, or the words behind the last one, can begin `skip` bytes from here."""
    cursor: Cursor = scope._cursor
    start = cursor.offset
    if skip > cursor.wall - start:
        return False
    cursor.offset += skip
    data = cursor.peek(20)
    cursor.offset = start
    if _is_head(data):
        return True
    match (data[:4], data[4:8]):
        case (b"\1\0\0\0", _):
            return _is_head(data[4:])
        case (b"\0\0\0\0", b"\1\0\0\0"):
            return len(data) == 8 or _is_head(data[8:])
        case (b"\0\0\0\0", b"\0\0\0\0"):
            return len(data) == 8 or data[8:12] == int(scope._.n_layer).to_bytes(4, "little")
    return False


def _is_head(data: bytes) -> bool:
    if len(data) < _HEAD.size:
        return False
    transposed = _opens_transposed(*_HEAD_TRANSPOSED.unpack_from(data))
    return transposed or _opens_block(*_HEAD.unpack_from(data))


def _window_or_all(row_bytes: Callable[[Container], int]) -> Payload:
    """The rows of a layer under `--swa-compress`, where nothing says which layers have a window."""

    def size(scope: Container) -> int:
        """The bytes of live_rows rows if the payload goes on behind them, else of cell_count."""
        live, cells, row = scope._._.swac.live_rows, scope._.cell_count, row_bytes(scope)
        return int(row * (live if live < cells and _goes_on(scope, row * live) else cells))

    return Payload(size)


_COMPACTED_K = Record(
    "k_type" / GGML_TYPE * "ggml type id",
    "k_size_row" / U64 * "bytes that one cell occupies in this layer",
    "data" / _window_or_all(lambda scope: scope.k_size_row) * "keys, a row per cell or live row",
)
_COMPACTED_V = Record(
    "v_type" / GGML_TYPE * "ggml type id",
    "v_size_row" / U64 * "bytes that one cell occupies in this layer",
    "data" / _window_or_all(lambda scope: scope.v_size_row) * "values, a row per cell or live row",
)
_COMPACTED_V_TRANSPOSED = Record(
    "v_type" / GGML_TYPE * "ggml type id",
    "v_size_el" / U32 * "bytes of one element",
    "n_embd_v_gqa" / U32 * "channels: elements that one cell occupies in this layer",
    "data"
    / _window_or_all(lambda scope: scope.n_embd_v_gqa * scope.v_size_el)
    * "values, channel by channel: the elements of all cells or of all live rows",
)

_SWAC = Record(
    "magic" / Scalar("I", {SWA_COMPACT_LAYOUT_MAGIC: "SWAC"}) * '0x53574143, on disk "CAWS"',
    "size_swa" / U32 * "rows that the context allocates for a windowed layer",
    "live_rows" / U32 * "rows that are stored for a windowed layer",
    "pos_base_swa" / LLAMA_POS * "position of the first of them",
    "head_swa" / U32 * "row behind the last of them in the context, sinks included",
)


def _attention(cells: Span, blocks: tuple[Record, Record, Record]) -> Record:
    k, v, v_transposed = blocks
    values = Choose(
        this.v_state == 1,
        Series(this.n_layer, v_transposed, at_most=N_LAYER),
        Series(this.n_layer, v, at_most=N_LAYER),
        says="v_state = 1",
    )
    return Record(
        _CELL_COUNT,
        "cells" / cells * "cells in cell order, shared by all layers",
        _V_STATE,
        _N_LAYER,
        "k" / Series(this.n_layer, k, at_most=N_LAYER) * "keys by ascending layer",
        When(this.v_state < 2, "v" / values * "values by ascending layer", says="v_state = 0 or 1"),
        role="attention",
        facts={"cell_ext": 0},
    )


_STATE_HEAD = (
    "s_type" / GGML_TYPE * "ggml type id, F32 in every build",
    "s_size_row" / U64 * "bytes of the state of one sequence",
    "s_rows" / U32 * "sequences: 1 in a seq save, all slots in a full save",
)


def _recurrent() -> Record:
    state = Record(
        *_STATE_HEAD,
        "data"
        / Payload(this.s_rows * this.s_size_row)
        * "the state, a row per sequence: convolution, then delta net with transposed heads",
    )
    return Record(
        "s" / Series(this._.attn.n_layer, state, at_most=N_LAYER) * "state by ascending layer",
        role="recurrent",
    )


def _settle(heads: list[tuple[int, ...]], scope: Container) -> int | None:
    """How many indexer blocks there are: all in sight, and none only in a partial state."""
    partial = all(block.k_type == ABSENT for block in scope._.attn.k)
    return len(heads) if heads or partial else None


def _indexer() -> Record:
    block = Record(
        "k_type" / GGML_TYPE * "ggml type id",
        "k_size_row" / U64 * "bytes that one cell occupies in this layer",
        "data"
        / Payload(this.k_size_row * this._._.attn.cell_count)
        * "indexer keys, a row per cell; zeros where sparse attention was off",
    )
    return Record(
        "k"
        / Run(
            block,
            ahead="<iQ",
            plausible=lambda kind, row: kind != ABSENT and _opens_block(kind, row),
            stride=lambda cursor, scope, kind, row: 12 + row * scope._.attn.cell_count,
            settle=_settle,
            at_most=lambda scope: min(scope._.attn.n_layer, N_LAYER),
        )
        * "keys of the layers that own an indexer, by ascending layer; none in a partial state",
        role="indexer",
    )


_PANGU_AHEAD = Ahead("<I", lambda word: word == OPENPANGU_PARTIAL_STATE_MAGIC, "PAG1 comes next")


def _all_states(scope: Container) -> int:
    """The sum of s_rows times s_size_row over all layers."""
    return sum(int(state.s_rows * state.s_size_row) for state in scope.s)


def _pangu(*marker: Any) -> Record:
    """The state of openPangu: all headers, then perhaps the indexer word, then all rows."""
    return Record(
        "magic" / Scalar("I", {OPENPANGU_PARTIAL_STATE_MAGIC: "PAG1"}) * "0x50414731",
        "pos" / LLAMA_POS * "last position that the state has seen",
        "s"
        / Series(this._.attn.n_layer, Record(*_STATE_HEAD), at_most=N_LAYER)
        * "state headers by ascending layer",
        *marker,
        "data" / Payload(_all_states) * "convolution states of all layers one after another",
        role="recurrent",
    )


_DSV4 = Record(
    "n_layer" / U32 * "layers that follow",
    "single_stream" / U32 * "whether one sequence was saved",
    "stream_idx" / LLAMA_SEQ_ID * "sequence that was saved, -1 for all",
    "n_stream" / U32 * "sequences of the context",
    "layers"
    / Rest()
    * "tensors of the compressed caches without headers: sizes are those of the context",
    role="dsv4",
)


def _dsv4_follows(scope: Container) -> bool:
    data = scope._cursor.peek(16)
    if len(data) < 16:
        return False
    n_layer, single_stream, stream_idx, n_stream = struct.unpack("<IIiI", data)
    one = single_stream == 1 and stream_idx >= 0
    every = single_stream == 0 and stream_idx == -1
    return bool(n_layer == scope.attn.n_layer and (one or every) and 1 <= n_stream <= N_SEQ)


def without_values(cells: Span) -> tuple[Any, ...]:
    """Version 2 with v_state 2 (MLA); with values its bytes are those of upstream's version 2.

    Source: ikawrakow/ik_llama.cpp b3d223911 (2025-05-30), src/llama.cpp.
    """
    keys = Record(
        _CELL_COUNT,
        "cells" / cells * "cells in cell order, shared by all layers",
        _V_STATE,
        _N_LAYER,
        "k" / Series(this.n_layer, K_BLOCK, at_most=N_LAYER) * "latent keys by ascending layer",
        role="attention",
        facts={"cell_ext": 0, "values": False},
    )
    return ("attn" / keys * "latent keys of all layers",)


def memory(cells: Span, *, indexer: bool, compacted: bool = False) -> tuple[Any, ...]:
    """The members of a seq save, a full save or a partial state.

    Args:
        cells: the cell records.
        indexer: whether the indexer word and the suffixes of single models exist (version 4).
        compacted: whether the context ran with `--swa-compress`.
    """
    blocks = (K_BLOCK, V_BLOCK, V_BLOCK_TRANSPOSED)
    members: list[Any] = []
    if compacted:
        blocks = (_COMPACTED_K, _COMPACTED_V, _COMPACTED_V_TRANSPOSED)
        members.append("swac" / _SWAC * "the window that windowed layers are stored for")
    members += [
        "attn" / _attention(cells, blocks) * "keys and values of all layers",
        _QNEXT_STATE,
        When(
            this.qnext_state != 0,
            "recr" / _recurrent() * "state of the recurrent layers",
            says="qnext_state = 1",
        ),
    ]
    if indexer:
        members += [
            _DSA_INDEXER_STATE,
            When(
                this.dsa_indexer_state != 0,
                "indexer" / _indexer() * "keys of the lightning indexer",
                says="dsa_indexer_state = 1",
            ),
            When(_PANGU_AHEAD, "pangu" / _pangu() * "state of openPangu", says=_PANGU_AHEAD.says),
            When(
                _dsv4_follows,
                "dsv4" / _DSV4 * "compressed caches of DeepSeek-V4",
                says="n_layer comes next, and words that fit a DeepSeek-V4 suffix",
            ),
        ]
    return tuple(members)


def openpangu_partial() -> Record:
    """A partial state of openPangu: a magic in place of the cells, and nothing of the attention.

    Source: ikawrakow/ik_llama.cpp 87eeec9f7 (2026-08-03), src/llama.cpp.
    """
    head = Record("k_type" / GGML_TYPE * "-1, the type of no keys", "k_size_row" / U64 * "0")
    attention = Record(
        _V_STATE,
        _N_LAYER,
        "k" / Series(this.n_layer, head, at_most=N_LAYER) * "empty headers by ascending layer",
        role="attention",
        facts={"values": False},
    )
    layout_magic = Scalar("I", {OPENPANGU_PARTIAL_LAYOUT_MAGIC: "PAG2"})
    return Record(
        "magic" / layout_magic * '0x50414732, on disk "2GAP"',
        "attn" / attention * "attention layers, of which a partial state holds nothing",
        _QNEXT_STATE,
        "pangu" / _pangu(_DSA_INDEXER_STATE) * "state of openPangu",
    )
