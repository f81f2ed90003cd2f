"""The state of a whole context before July 2024: what follows the tokens of ggsn 0 to 7.

Neither the types nor the widths of keys and values are stored. The widths follow from the
hyper-parameters; the bytes of an element from the bytes that are there, if exactly one choice of
cache types explains them. What stays open: keys and values of unequal types whose rows are equally
long, since swapping the types gives the same sum.

Source: ggerganov/llama.cpp, llama.cpp `llama_copy_state_data` at b451 (PR #1169), b494 (PR #1272),
b1315 (PR #3400), b1619 (PR #4309), b1857 (PR #4820), b2325 (PR #5840), b2540 (PR #6122), b2771
(PR #5021). Seen in files: 5 and 6.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from construct import Container, this

from formats.bodies.attention import N_LAYER
from formats.bodies.cells import N_SEQ, historic_cells
from formats.bodies.hparams import row_widths
from formats.ggml_types import TYPES, UPSTREAM
from formats.scalars import FLAG, I32, U32, U64
from formats.spans import (
    Choose,
    Computed,
    Cursor,
    Expression,
    Nested,
    Payload,
    Record,
    Rest,
    Series,
    Table,
    Text,
)

RNG_BYTES = 1 << 16
"""LLAMA_MAX_RNG_STATE."""

N_OUTPUTS = 1 << 24
"""Outputs that a state is believed to hold."""

_ROW = 32
"""Elements that the blocks of every cache type divide."""

_BYTES = {t.name: _ROW * t.block_bytes // t.block_elements for t in TYPES if t.writer == UPSTREAM}
_PLAIN = (_BYTES["f16"], _BYTES["f32"])
_QUANTIZED = tuple(_BYTES[name] for name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0"))

Types = tuple[tuple[int, int], ...]
"""Bytes that 32 elements of keys, and of values, can occupy."""

_EQUAL: Types = tuple((size, size) for size in _PLAIN)
_KEYS_QUANTIZED: Types = tuple((k, v) for v in _PLAIN for k in _PLAIN + _QUANTIZED)
_ANY: Types = tuple(product(_PLAIN + _QUANTIZED, _PLAIN + _QUANTIZED))

Layers = tuple[tuple[int, int], ...]
"""Bytes of the keys and of the values of every layer."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where the keys and values lie.

    Attributes:
        total: bytes of all of them.
        layers: bytes layer by layer; None if several divisions are possible, or none.
    """

    total: int
    layers: Layers | None


def _divisions(hparams: Container, n_rows: int, types: Types) -> list[Layers]:
    """The sizes of all layers under each choice of types, without repetitions."""
    if n_rows == 0:
        return [()]
    widths = row_widths(hparams)
    found = {
        tuple((n_rows * k * k_bytes // _ROW, n_rows * v * v_bytes // _ROW) for k, v in widths): None
        for k_bytes, v_bytes in types
        if all(_whole(k, k_bytes) and _whole(v, v_bytes) for k, v in widths)
    }
    return [layers for layers in found if layers]


def _whole(n_elements: int, size: int) -> bool:
    return size in _PLAIN or n_elements % _ROW == 0


def _total(layers: Layers) -> int:
    return sum(k + v for k, v in layers)


def _up_to_the_end(scope: Container) -> Extent:
    """Version 1: nothing follows the values. If no choice fits, the default type is taken."""
    left = scope._cursor.wall - scope._cursor.offset
    found = _divisions(scope._.hparams, scope.kv_ntok, _EQUAL)
    for layers in found:
        if _total(layers) == left:
            return Extent(left, layers)
    return Extent(_total(found[0]), found[0]) if found else Extent(scope.kv_size, None)


def _up_to_the_cells(types: Types, n_cells: str) -> Callable[[Container], Extent]:
    """Versions 2 to 4: cells follow and show which choice fits; else the default type is taken."""

    def extent(scope: Container) -> Extent:
        found = _divisions(scope._.hparams, scope.kv_head, types)
        fitting = [layers for layers in found if _cells_at(scope, _total(layers), scope[n_cells])]
        if len({_total(layers) for layers in fitting}) == 1:
            layers = fitting[0] if len(fitting) == 1 else None
            return Extent(_total(fitting[0]), layers)
        return Extent(_total(found[0]), found[0]) if found else Extent(scope.kv_buf_size, None)

    return extent


_CELL = struct.Struct("<iQ")


def _cells_at(scope: Container, distance: int, n_cells: int) -> bool:
    """Whether so many cells can begin at this distance and fill what is left."""
    cursor: Cursor = scope._cursor
    left = cursor.wall - cursor.offset - distance
    if not _CELL.size * n_cells <= left <= (_CELL.size + 4 * N_SEQ) * n_cells:
        return False
    if not n_cells:
        return True
    start, cursor.offset = cursor.offset, cursor.offset + distance
    head = cursor.peek(_CELL.size)
    cursor.offset = start
    if len(head) < _CELL.size:
        return False
    pos, n_seq_id = _CELL.unpack(head)
    return bool(n_seq_id <= N_SEQ and (pos >= 0 if n_seq_id else pos == -1))


def _as_stored(scope: Container) -> Extent:
    """Version 5 on: kv_buf_size counts the bytes. One division must fit, or none is shown."""
    types = _ANY if scope.get("v_trans", 1) == 0 else _KEYS_QUANTIZED
    found = _divisions(scope._.hparams, scope.kv_head, types)
    fitting = [layers for layers in found if _total(layers) == scope.kv_buf_size]
    return Extent(scope.kv_buf_size, fitting[0] if len(fitting) == 1 else None)


def _divided(scope: Container) -> bool:
    return scope.extent.layers is not None


def _n_layers(scope: Container) -> int:
    """n_layer of the hyper-parameters."""
    return len(scope.extent.layers or ())


def _keys(scope: Container) -> int:
    """Rows times the width that follows from the hyper-parameters."""
    return _layer(scope)[0]


def _values(scope: Container) -> int:
    """Rows times the width that follows from the hyper-parameters."""
    return _layer(scope)[1]


def _layer(scope: Container) -> tuple[int, int]:
    own = scope if "extent" in scope else scope._
    layers: Layers = own.extent.layers
    return layers[own._index]


def _all_layers(scope: Container) -> int:
    """The bytes of all layers."""
    return int(scope.extent.total)


_UNDIVIDED = Payload(_all_layers)


def _extent(extent: Callable[[Container], Extent]) -> Any:
    return "extent" / Computed(extent)


_K_THEN_V = (
    "k"
    / Choose(
        _divided,
        Series(_n_layers, Payload(_keys), at_most=N_LAYER),
        _UNDIVIDED,
        says="hyper-parameters explain the size",
    )
    * "keys by ascending layer, a row per cell",
    "v"
    / Series(_n_layers, Payload(_values), at_most=N_LAYER)
    * "values by ascending layer, channel by channel",
)
_LAYER = Record(
    "k" / Payload(_keys) * "keys, a row per cell",
    "v" / Payload(_values) * "values, channel by channel or a row per cell",
)
_LAYERS = (
    "layers"
    / Choose(
        _divided,
        Series(_n_layers, _LAYER, at_most=N_LAYER),
        _UNDIVIDED,
        says="hyper-parameters explain the size in one way only",
    )
    * "keys and values by ascending layer",
)

_KV_NTOK = (
    "kv_size" / U64 * "bytes of the allocated cache",
    "kv_ntok" / I32 * "tokens in the cache",
)
_KV_HEAD = (
    "kv_buf_size" / U64 * "bytes of the allocated cache; from version 5 on of what follows",
    "kv_head" / U32 * "rows that follow: cells up to the highest used one from b2325 on",
    "kv_size" / U32 * "cells of the cache",
)
_KV_USED = (*_KV_HEAD, "kv_used" / U32 * "cells in use")
_V_TRANS = (
    *_KV_USED,
    "v_trans" / FLAG * "whether values are stored transposed, as they are with flash attention off",
)


def _cells(count: Expression) -> Any:
    return "cells" / historic_cells(count) * "cells in cell order; pos -1 for an empty one"


_PADDED_HEAD = (
    "rng_size" / U64 * "characters of the random generator's state",
    "rng"
    / Nested(
        RNG_BYTES,
        Record(
            "text" / Text(this._.rng_size, at_most=RNG_BYTES) * "an mt19937 as decimal numbers",
            "padding" / Rest() * "zeros",
        ),
    )
    * "state of the random generator",
    "logits_cap" / U64 * "logits that there is room for",
    "logits_size" / U64 * "logits that follow",
    "logits" / Payload(4 * this.logits_size) * "logits as F32",
    "logits_unused" / Payload(4 * (this.logits_cap - this.logits_size)) * "the rest of the room",
    "embedding_size" / U64 * "elements of the embedding",
    "embedding" / Payload(4 * this.embedding_size) * "embedding as F32",
)
_RNG = (
    "rng_size" / U64 * "characters of the random generator's state",
    "rng" / Text(this.rng_size, at_most=RNG_BYTES) * "an mt19937 as decimal numbers",
)
_COMPACT_HEAD = (
    *_RNG,
    "logits_size" / U64 * "logits that follow",
    "logits" / Payload(4 * this.logits_size) * "logits as F32",
    "embedding_size" / U64 * "elements of the embedding",
    "embedding" / Payload(4 * this.embedding_size) * "embedding as F32",
)
_OUTPUTS_HEAD = (
    *_RNG,
    "n_outputs" / U64 * "outputs of the last batch",
    "output_pos"
    / Table(this.n_outputs, I32, at_most=N_OUTPUTS)
    * "index in the batch of each output",
    "logits_size" / U64 * "logits that follow",
    "logits" / Payload(4 * this.logits_size) * "logits as F32, a row per output",
    "embeddings_size" / U64 * "elements of the embeddings",
    "embeddings" / Payload(4 * this.embeddings_size) * "embeddings as F32, a row per output",
)


def _state(head: tuple[Any, ...], *kv: Any) -> tuple[Any, ...]:
    return (*head, "kv_self" / Record(*kv, role="attention", alone=False) * "the cache")


STATES: dict[str, tuple[Any, ...]] = {
    "0": _state(
        _PADDED_HEAD,
        *_KV_NTOK,
        "data" / Payload(this.kv_size) * "the allocated cache: keys, values, and what ggml needs",
    ),
    "1": _state(_PADDED_HEAD, *_KV_NTOK, _extent(_up_to_the_end), *_K_THEN_V),
    "2": _state(
        _PADDED_HEAD,
        *_KV_HEAD,
        _extent(_up_to_the_cells(_EQUAL, "kv_size")),
        *_K_THEN_V,
        _cells(this.kv_size),
    ),
    "3": _state(
        _PADDED_HEAD,
        *_KV_USED,
        _extent(_up_to_the_cells(_KEYS_QUANTIZED, "kv_size")),
        *_LAYERS,
        _cells(this.kv_size),
    ),
    "4": _state(
        _COMPACT_HEAD,
        *_KV_USED,
        _extent(_up_to_the_cells(_KEYS_QUANTIZED, "kv_size")),
        *_LAYERS,
        _cells(this.kv_size),
    ),
    "4-used-cells": _state(
        _COMPACT_HEAD,
        *_KV_USED,
        _extent(_up_to_the_cells(_KEYS_QUANTIZED, "kv_head")),
        *_LAYERS,
        _cells(this.kv_head),
    ),
    "5": _state(_OUTPUTS_HEAD, *_KV_USED, _extent(_as_stored), *_LAYERS, _cells(this.kv_head)),
    "6": _state(_OUTPUTS_HEAD, *_V_TRANS, _extent(_as_stored), *_LAYERS, _cells(this.kv_head)),
}
"""Version -> the state that its files hold behind the tokens; 7 is 6."""


def _up_to_twice_the_cache(scope: Container) -> int:
    """What is left, if no more than twice kv_buf_size."""
    return int(min(scope._cursor.wall - scope._cursor.offset, 2 * scope.kv_buf_size))


_UNKNOWN_WIDTHS = (
    "kv_buf_size" / U64 * "bytes of the allocated cache",
    "data"
    / Payload(_up_to_twice_the_cache)
    * "row count, keys, values and cells, which only hyper-parameters could tell apart",
)
_DATA = "data" / Payload(this.kv_buf_size) * "keys and values by ascending layer"

RAW_STATES: dict[str, tuple[Any, ...]] = {
    "1": _state(_PADDED_HEAD, *_UNKNOWN_WIDTHS),
    "4": _state(_COMPACT_HEAD, *_UNKNOWN_WIDTHS),
    "5": _state(_OUTPUTS_HEAD, *_KV_USED, _DATA, _cells(this.kv_head)),
    "6": _state(_OUTPUTS_HEAD, *_V_TRANS, _DATA, _cells(this.kv_head)),
}
"""The same without a file around it, hence without hyper-parameters; 1 is 2 and 3 too, 6 is 7."""
