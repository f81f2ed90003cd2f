"""Which sections a memory type stores, in which order; and the dialects in which they were written.

Source: ggml-org/llama.cpp b10587, src/llama-model.cpp `llama_model::create_memory` and the
`state_write` of each memory class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from formats.bodies.attention import attention_cache
from formats.bodies.cells import anonymous_cells, full_cells, seq_cells
from formats.bodies.dsv4 import dsv4_memory
from formats.bodies.recurrent import recurrent_state
from formats.provenance import Origin
from formats.spans import Record, Span


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one stretch of builds wrote the sections.

    Attributes:
        cells: makes the cell records of attention caches.
        recurrent_cells: makes those of recurrent sections.
        cell_ext: bytes of the cell extension.
        streams: whether attention caches begin with n_stream.
        rotation: whether they carry the rotation words.
        tells: what shows it in the bytes of an attention cache.
    """

    cells: Callable[[], Span]
    recurrent_cells: Callable[[], Span] = anonymous_cells
    cell_ext: int = 0
    streams: bool = True
    rotation: bool = False
    tells: tuple[str, ...] = ()


_NO_STREAM = "cell_count comes first, no n_stream"
_XY = "x and y in every cell, equal to pos for text"
_XYT = "x, y and the token id in every cell"
_ROTATION = "two rotation words behind n_layer"

ANONYMOUS = Dialect(anonymous_cells, streams=False, tells=(_NO_STREAM, "n_seq_id 0 in every cell"))
"""Seq saves of b3483 to b5484."""
NUMBERED = Dialect(seq_cells, streams=False, tells=(_NO_STREAM, "n_seq_id 1 in every cell"))
"""Seq saves of b5485 to b5912."""
STREAMED = Dialect(seq_cells)
"""Seq saves from b5913 on."""
STREAMED_XY = Dialect(lambda: seq_cells(8), cell_ext=8, tells=(_XY,))
"""Seq saves of M-RoPE models, b8215 to ggsq 2."""
STREAMED_XYT = Dialect(lambda: seq_cells(12), cell_ext=12, tells=(_XYT,))
"""Seq saves of M-RoPE models, ggsq 3."""
ROTATED = Dialect(seq_cells, rotation=True, tells=(_ROTATION,))
"""Seq saves, ggsq 4."""
ROTATED_XYT = Dialect(lambda: seq_cells(12), cell_ext=12, rotation=True, tells=(_ROTATION, _XYT))
"""Seq saves of M-RoPE models, ggsq 4."""

FULL_FLAT = Dialect(full_cells, full_cells, streams=False, tells=(_NO_STREAM,))
"""Full saves of b3483 to b5912."""
FULL = Dialect(full_cells, full_cells)
"""Full saves from b5913 on."""
FULL_XY = Dialect(lambda: full_cells(8), full_cells, cell_ext=8, tells=(_XY,))
"""Full saves of M-RoPE models, b8215 to ggsn 9.

Builds before b8353 (PR #20273) wrote them but could not load them.
"""
FULL_XYT = Dialect(lambda: full_cells(12), full_cells, cell_ext=12, tells=(_XYT,))
"""Full saves of M-RoPE models, ggsn 10."""
FULL_ROTATED = Dialect(full_cells, full_cells, rotation=True, tells=(_ROTATION,))
"""Full saves, ggsn 11."""
FULL_ROTATED_XYT = Dialect(
    lambda: full_cells(12), full_cells, cell_ext=12, rotation=True, tells=(_ROTATION, _XYT)
)
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
    "iswa-partial": (
        "a windowed attention cache alone",
        (("swa", ("swa", True), "layers that attend to a sliding window"),),
    ),
    "dsa-iswa-partial": (
        "windowed latent keys alone",
        (("swa", ("swa", False), "latent keys of the layers that attend to a sliding window"),),
    ),
    "hybrid-iswa-partial": (
        "a windowed attention cache and recurrent state",
        (
            ("swa", ("swa", True), "layers that attend to a sliding window"),
            ("recr", _RECURRENT, "recurrent layers"),
        ),
    ),
    "hybrid-ple-partial": (
        "recurrent state with n-gram embedding history",
        (("recr", _WITH_HISTORY, "recurrent layers"),),
    ),
}
"""Memory type -> what it is in words, and its sections: member, (role, values or history), doc.

Those called partial exist in memory and in checkpoints only, see PARTIAL.
"""

TAGGED = {
    "dsv4": "the tagged memory block of DeepSeek-V4",
    "minimax-m3": "one attention cache with indexer keys between keys and values (MiniMax-M3)",
}


PARTIAL = {
    "iswa": "iswa-partial",
    "dsa-iswa": "dsa-iswa-partial",
    "hybrid": "recurrent",
    "hybrid-mla": "recurrent",
    "hybrid-iswa": "hybrid-iswa-partial",
    "hybrid-ple": "hybrid-ple-partial",
    "hybrid-idx-values": "hybrid-ple-partial",
    "hybrid-idx": "hybrid-ple-partial",
    "hybrid-idx-mla": "recurrent",
}
"""Memory type -> what PARTIAL_ONLY leaves of it.

Other types ignore the flag; dsv4 has a word for it. Since b6160 for iswa (PR #15293, as SWA_ONLY),
since b6685 for those with recurrent state.
"""

_KEY_ONLY = "no V blocks behind the K blocks"
_HISTORY = "a row size without a type word behind R blocks"

_TELLS: dict[str, tuple[str, ...]] = {
    "kv": ("one section",),
    "mla": ("one section", _KEY_ONLY),
    "iswa": ("two sections",),
    "recurrent": ("R and S blocks of F32, one cell a sequence",),
    "hybrid": ("a recurrent section behind the attention section",),
    "hybrid-mla": ("a recurrent section behind the attention section", _KEY_ONLY),
    "hybrid-iswa": ("two attention sections and a recurrent one",),
    "hybrid-ple": ("a recurrent section behind the attention section", _HISTORY),
    "dsa": ("two sections", _KEY_ONLY),
    "dsa-iswa": ("three sections", _KEY_ONLY),
    "msa": ("two sections, the second with one small head",),
    "hybrid-idx-values": ("an attention section behind the recurrent one",),
    "hybrid-idx": ("an attention section without V blocks behind the recurrent one",),
    "hybrid-idx-mla": ("an attention section behind the recurrent one", _KEY_ONLY),
    "dsv4": ('"DSV4" comes first',),
    "minimax-m3": ("a flag word behind the K blocks",),
    "iswa-partial": ("one section, no more cells than the window holds from b9473 on",),
    "dsa-iswa-partial": ("one section", _KEY_ONLY),
    "hybrid-iswa-partial": ("one attention section and a recurrent one",),
    "hybrid-ple-partial": ("R and S blocks of F32, one cell a sequence", _HISTORY),
}


def _writer(commit: str, file: str, symbol: str) -> Origin:
    return Origin("ggml-org/llama.cpp", commit, f"src/{file}", f"{symbol}::state_write")


_ISWA = _writer("b5429 (PR #13194)", "llama-kv-cache.cpp", "llama_kv_cache_unified_iswa")
_MLA = _writer("b7832 (PR #19067)", "llama-kv-cache.cpp", "llama_kv_cache")
_HYBRID = _writer("b5968 (PR #14675)", "llama-memory-hybrid.cpp", "llama_memory_hybrid")
_HYBRID_ISWA = _writer("b7789", "llama-memory-hybrid-iswa.cpp", "llama_memory_hybrid_iswa")
_HYBRID_IDX = _writer(
    "b10662 (PR #27941)", "llama-memory-hybrid-idx.cpp", "llama_memory_hybrid_idx"
)
_HYBRID_IDX_KEYS = _writer(
    "b10909 (PR #28330)", "llama-memory-hybrid-idx.cpp", "llama_memory_hybrid_idx"
)
_DSA_ISWA = _writer("b10569", "llama-kv-cache-dsa-iswa.cpp", "llama_kv_cache_dsa_iswa")
_RECURRENT_STATE = _writer("b5262", "llama-memory-recurrent.cpp", "llama_memory_recurrent")

ORIGINS: dict[str, Origin] = {
    "kv": Origin("ggml-org/llama.cpp", "b3483 (PR #8699)", "src/llama.cpp", "write_kv_cache"),
    "mla": _MLA,
    "iswa": _ISWA,
    "recurrent": _RECURRENT_STATE,
    "hybrid": _HYBRID,
    "hybrid-mla": _MLA,
    "hybrid-iswa": _HYBRID_ISWA,
    "hybrid-ple": _HYBRID_IDX,
    "dsa": _writer("b9411", "llama-kv-cache-dsa.cpp", "llama_kv_cache_dsa"),
    "dsa-iswa": _DSA_ISWA,
    "msa": _writer("b10244 (PR #26338)", "llama-kv-cache-msa.cpp", "llama_kv_cache_msa"),
    "hybrid-idx-values": _HYBRID_IDX,
    "hybrid-idx": _HYBRID_IDX_KEYS,
    "hybrid-idx-mla": _HYBRID_IDX_KEYS,
    "dsv4": _writer("b9840", "llama-kv-cache-dsv4.cpp", "llama_kv_cache_dsv4"),
    "minimax-m3": _writer("b10135 (PR #24908)", "llama-kv-cache.cpp", "llama_kv_cache"),
    "iswa-partial": _ISWA,
    "dsa-iswa-partial": _DSA_ISWA,
    "hybrid-iswa-partial": _HYBRID_ISWA,
    "hybrid-ple-partial": _HYBRID_IDX,
}
"""Memory type -> where its sections are written."""


def tells(memory: str, dialect: Dialect) -> tuple[str, ...]:
    """What shows a memory of this type in this dialect."""
    attends = memory in TAGGED or any(role != "recurrent" for _, (role, _), _ in MEMORY[memory][1])
    return (*_TELLS[memory], *(dialect.tells if attends else ()))


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


def _section(role: str, flag: bool, dialect: Dialect) -> Record:
    if role == "recurrent":
        return _recurrent(dialect.recurrent_cells, flag)
    return _attention(role, flag, dialect)


@cache
def _attention(role: str, values: bool, dialect: Dialect) -> Record:
    return attention_cache(
        role,
        dialect.cells(),
        cell_ext=dialect.cell_ext,
        streams=dialect.streams,
        rotation=dialect.rotation,
        values=values,
    )


@cache
def _recurrent(cells: Callable[[], Span], ple: bool) -> Record:
    return recurrent_state(cells(), ple=ple)
