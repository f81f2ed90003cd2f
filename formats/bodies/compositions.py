"""Which sections a memory type stores, in which order; and the dialects in which they were written.

Source: ggml-org/llama.cpp b10587, src/llama-model.cpp `llama_model::create_memory` and the `state_write` of each memory class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from formats.bodies.attention import attention_cache
from formats.bodies.cells import anonymous_cells, full_cells, seq_cells
from formats.bodies.dsv4 import dsv4_memory
from formats.bodies.recurrent import recurrent_state
from formats.spans import Span


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one stretch of builds wrote the sections.

    Attributes:
        cells: makes the cell records of attention caches.
        recurrent_cells: makes those of recurrent sections.
        cell_ext: bytes of the cell extension.
        streams: whether attention caches begin with n_stream.
        rotation: whether they carry the rotation words.
    """

    cells: Callable[[], Span]
    recurrent_cells: Callable[[], Span] = anonymous_cells
    cell_ext: int = 0
    streams: bool = True
    rotation: bool = False


ANONYMOUS = Dialect(anonymous_cells, streams=False)
"""Seq saves of b3483 to b5484."""
NUMBERED = Dialect(seq_cells, streams=False)
"""Seq saves of b5485 to b5912."""
STREAMED = Dialect(seq_cells)
"""Seq saves from b5913 on."""
STREAMED_XY = Dialect(lambda: seq_cells(8), cell_ext=8)
"""Seq saves of M-RoPE models, b8215 to ggsq 2."""
STREAMED_XYT = Dialect(lambda: seq_cells(12), cell_ext=12)
"""Seq saves of M-RoPE models, ggsq 3."""
ROTATED = Dialect(seq_cells, rotation=True)
"""Seq saves, ggsq 4."""
ROTATED_XYT = Dialect(lambda: seq_cells(12), cell_ext=12, rotation=True)
"""Seq saves of M-RoPE models, ggsq 4."""

FULL_FLAT = Dialect(full_cells, full_cells, streams=False)
"""Full saves of b3483 to b5912."""
FULL = Dialect(full_cells, full_cells)
"""Full saves from b5913 on."""
FULL_XY = Dialect(lambda: full_cells(8), full_cells, cell_ext=8)
"""Full saves of M-RoPE models, b8215 to ggsn 9."""
FULL_XYT = Dialect(lambda: full_cells(12), full_cells, cell_ext=12)
"""Full saves of M-RoPE models, ggsn 10."""
FULL_ROTATED = Dialect(full_cells, full_cells, rotation=True)
"""Full saves, ggsn 11."""
FULL_ROTATED_XYT = Dialect(lambda: full_cells(12), full_cells, cell_ext=12, rotation=True)
"""Full saves of M-RoPE models, ggsn 11."""

_ATTENTION = ("attention", True)
_KEYS = ("attention", False)
_INDEXER = ("indexer", False)
_INDEXER_WITH_VALUES = ("indexer", True)
_RECURRENT = ("recurrent", False)
_WITH_HISTORY = ("recurrent", True)

MEMORY: dict[str, tuple[str, tuple[tuple[str, tuple[str, bool], str], ...]]] = {
    "kv": ("one attention cache", (("attn", _ATTENTION, "keys and values of all layers"),)),
    "mla": (
        "one attention cache without values (MLA)",
        (("attn", _KEYS, "latent keys of all layers"),),
    ),
    "iswa": (
        "a full and a windowed attention cache",
        (
            ("base", _ATTENTION, "layers that attend to everything"),
            ("swa", ("swa", True), "layers that attend to a sliding window"),
        ),
    ),
    "recurrent": ("recurrent state", (("recr", _RECURRENT, "state of all layers"),)),
    "hybrid": (
        "an attention cache and recurrent state",
        (("attn", _ATTENTION, "attention layers"), ("recr", _RECURRENT, "recurrent layers")),
    ),
    "hybrid-mla": (
        "an attention cache without values (MLA) and recurrent state",
        (("attn", _KEYS, "attention layers"), ("recr", _RECURRENT, "recurrent layers")),
    ),
    "hybrid-iswa": (
        "a full and a windowed attention cache, and recurrent state",
        (
            ("base", _ATTENTION, "layers that attend to everything"),
            ("swa", ("swa", True), "layers that attend to a sliding window"),
            ("recr", _RECURRENT, "recurrent layers"),
        ),
    ),
    "hybrid-ple": (
        "an attention cache, and recurrent state with n-gram embedding history",
        (("attn", _ATTENTION, "attention layers"), ("recr", _WITH_HISTORY, "recurrent layers")),
    ),
    "dsa": (
        "latent keys and the keys of a lightning indexer",
        (("mla", _KEYS, "latent keys"), ("lid", _INDEXER, "indexer keys")),
    ),
    "dsa-iswa": (
        "latent keys, indexer keys and windowed latent keys",
        (
            ("mla", _KEYS, "latent keys"),
            ("lid", _INDEXER, "indexer keys"),
            ("swa", ("swa", False), "latent keys of the layers that attend to a sliding window"),
        ),
    ),
    "msa": (
        "an attention cache and an indexer with values (MiniMax-M3)",
        (
            ("base", _ATTENTION, "keys and values of all layers"),
            ("idx", _INDEXER_WITH_VALUES, "indexer, from the first sparse layer on"),
        ),
    ),
    "hybrid-idx-values": (
        "an attention cache, recurrent state, and an indexer with values",
        (
            ("attn", _ATTENTION, "attention layers"),
            ("recr", _WITH_HISTORY, "recurrent layers"),
            ("indexer", _INDEXER_WITH_VALUES, "indexer keys and values"),
        ),
    ),
    "hybrid-idx": (
        "an attention cache, recurrent state and indexer keys",
        (
            ("attn", _ATTENTION, "attention layers"),
            ("recr", _WITH_HISTORY, "recurrent layers"),
            ("indexer", _INDEXER, "indexer keys"),
        ),
    ),
    "hybrid-idx-mla": (
        "latent keys, recurrent state and indexer keys",
        (
            ("attn", _KEYS, "attention layers"),
            ("recr", _RECURRENT, "recurrent layers"),
            ("indexer", _INDEXER, "indexer keys"),
        ),
    ),
}
"""Memory type -> (what it is in words, its sections: member, (role, values or history), documentation)."""

TAGGED = {
    "dsv4": "the tagged memory block of DeepSeek-V4",
    "minimax-m3": "one attention cache with indexer keys between keys and values (MiniMax-M3)",
}


def described(memory: str) -> str:
    """What a memory type stores, in words."""
    return TAGGED[memory] if memory in TAGGED else MEMORY[memory][0]


def sections(memory: str, dialect: Dialect) -> tuple[Any, ...]:
    """The members that hold a memory of this type in this dialect."""
    if memory == "dsv4":
        return (
            "dsv4"
            / dsv4_memory(dialect.cells(), rotation=dialect.rotation)
            * "the memory of the context",
        )
    if memory == "minimax-m3":
        cache = attention_cache(
            "attention", dialect.cells(), rotation=dialect.rotation, inner_indexer=True
        )
        return ("attn" / cache * "keys, indexer keys and values of all layers",)
    return tuple(
        name / _section(role, flag, dialect) * doc for name, (role, flag), doc in MEMORY[memory][1]
    )


def _section(role: str, flag: bool, dialect: Dialect) -> Any:
    if role == "recurrent":
        return recurrent_state(dialect.recurrent_cells(), ple=flag)
    return attention_cache(
        role,
        dialect.cells(),
        cell_ext=dialect.cell_ext,
        streams=dialect.streams,
        rotation=dialect.rotation,
        values=flag,
    )
