"""The bytes of a state in the form that ik_llama.cpp reads.

Source: ikawrakow/ik_llama.cpp 8337e4cd3, src/llama.cpp `llama_state_seq_save_file`,
`llama_data_write::write_kv_cache`; examples/server/server-context.cpp (`.tokens.json`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator

import numpy as np

from formats.envelopes.ggsq import GGSQ_MAGIC
from formats.ggml_types import ABSENT
from inspector.containers import IK_TOKENS_MAGIC
from inspector.repair.compose import block
from inspector.repair.ik import IkCache, IkState
from inspector.repair.segments import Segment, Write
from inspector.repair.state import Numbers, Part, Refused, State, Tensor, words

_STATE, _INDEXER = 3, 4
"""Versions from which on the recurrent and the indexer word exist."""
_NO_VALUES = 2


def ik_slot_file(state: State, version: int, why: str) -> Iterator[Segment]:
    """A slot file.

    Args:
        state: what it holds, in the form of ik_llama.cpp.
        version: of the file.
        why: the action that bytes are written for which the state's source does not have.
    """
    yield Write(words(GGSQ_MAGIC), why)
    yield Write(words(version), why)
    yield Write(words(len(state.tokens.ids)), why)
    yield Write(state.tokens.ids.astype("<i4").tobytes(), why)
    yield from ik_payload(state.parts, version, why)


def ik_payload(parts: Iterable[Part], version: int, why: str) -> Iterator[Segment]:
    """The memory of one sequence, of a state or of a checkpoint.

    Raises:
        Refused: if the version has no place for a part of it.
    """
    caches = {part.member: part for part in parts if isinstance(part, IkCache)}
    recurrent = next((part for part in parts if isinstance(part, IkState)), None)
    attention, indexer = caches["attn"], caches.get("indexer")
    yield from _attention(attention, version, why)
    if version >= _STATE:
        yield Write(words(int(recurrent is not None)), why)
    elif recurrent is not None:
        raise Refused(f"version {version} has no place for recurrent layers")
    if recurrent is not None:
        rows = dict(zip(recurrent.layers, recurrent.s, strict=True))
        for layer in range(recurrent.n_layer):
            yield from _state_row(rows.get(layer), why)
    if version >= _INDEXER:
        yield Write(words(int(indexer is not None)), why)
    elif indexer is not None:
        raise Refused(f"version {version} has no place for the keys of indexers")
    for tensor in indexer.k if indexer is not None else ():
        yield from block(tensor, why)


def _attention(cache: IkCache, version: int, why: str) -> Iterator[Segment]:
    cells = np.zeros((len(cache.cells), 2), "<i4")
    cells[:, 0] = cache.cells.pos
    yield Write(words(len(cells)), why)
    yield Write(cells.tobytes(), why)
    yield Write(words(cache.v_trans if cache.values else _NO_VALUES), why)
    yield Write(words(cache.n_layer), why)
    yield from _layers(cache.k, cache.layers, cache.n_layer, version, why)
    if cache.values:
        yield from _layers(cache.v, cache.value_layers, cache.n_layer, version, why)


def _layers(
    tensors: tuple[Tensor, ...], layers: tuple[int, ...], n_layer: int, version: int, why: str
) -> Iterator[Segment]:
    held = dict(zip(layers, tensors, strict=True))
    if len(held) < n_layer and version < _STATE:
        raise Refused(f"version {version} has no place for layers without a cache")
    for layer in range(n_layer):
        if layer in held:
            yield from block(held[layer], why)
        else:
            yield Write(struct.pack("<iQ", ABSENT, 0), why)


def _state_row(tensor: Tensor | None, why: str) -> Iterator[Segment]:
    if tensor is None:
        yield Write(struct.pack("<iQI", ABSENT, 0, 0), why)
        return
    yield Write(struct.pack("<iQI", tensor.type_id, tensor.row_bytes, 1), why)
    yield from tensor.content


def tokens_json(ids: Numbers) -> bytes:
    """The token list that the server gives to the restored slot; one line, of text alone."""
    document = {
        "has_mtmd": False,
        "map_idx_to_media": [],
        "tokens": ids.tolist(),
        "magic": IK_TOKENS_MAGIC,
        "version": 1,
    }
    return json.dumps(document, separators=(",", ":")).encode()
