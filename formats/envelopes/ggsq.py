"""Sequence state files: of `llama-server` for a slot, of `llama_state_seq_save_file`.

Source: ggml-org/llama.cpp b10587, src/llama-context.cpp `llama_context::state_seq_save_file`.
"""

from __future__ import annotations

from typing import Any

from formats.bodies.compositions import (
    ANONYMOUS,
    NUMBERED,
    ROTATED,
    ROTATED_XYT,
    STREAMED,
    STREAMED_XY,
    STREAMED_XYT,
    Dialect,
    described,
    sections,
)
from formats.envelopes.tokens import PLAIN_TOKENS, TOKEN_FIELD
from formats.layout import Layout
from formats.provenance import Basis, Origin
from formats.scalars import U32
from formats.sidecars.sckp import SCKP, SCKP_AHEAD
from formats.spans import Record, Scalar, When

GGSQ_MAGIC = 0x67677371
MAGIC = Scalar("I", {GGSQ_MAGIC: "ggsq"})

HEAD = (
    "magic" / MAGIC * '0x67677371, on disk "qsgg"',
    "version" / U32 * "format version; a loader takes only its own",
    "n_token_count" / U32 * "32-bit words of the token field",
)


def slot_file(*body: Any) -> Record:
    """A slot file: head, tokens, the memory of one sequence, and perhaps checkpoints behind it."""
    return Record(
        *HEAD,
        "tokens" / TOKEN_FIELD * "tokens that the state stands for",
        *body,
        When(
            SCKP_AHEAD,
            "appendix" / SCKP * "context checkpoints of the slot",
            says='"SCKP" comes next',
        ),
    )


def plain_slot_file(*body: Any) -> Record:
    """A slot file without packed tokens and appendices: upstream before b3483, ik_llama.cpp."""
    return Record(*HEAD, "tokens" / PLAIN_TOKENS * "tokens that the state stands for", *body)


_MAGIC_BYTES = b"qsgg"


def _row(
    version: int,
    memory: str,
    dialect: Dialect,
    name: str,
    since: str,
    until: str | None,
    *tells: str,
    origin: Origin,
) -> Layout:
    suffix = f".{name}" if name else ""
    return Layout(
        id=f"ggsq{version}.{memory}{suffix}",
        title=f"slot file, version {version}: {described(memory)}",
        format="ggsq",
        version=version,
        magic=_MAGIC_BYTES,
        declare=lambda: slot_file(*sections(memory, dialect)),
        origins=(origin,),
        since=since,
        until=until,
        tells=tells,
        writer=None if (version, memory, name) == _SHARED_WITH_IK else "llama.cpp",
        memory=memory,
    )


_SHARED_WITH_IK = (2, "kv", "anonymous")
"""Byte-identical to what ik_llama.cpp wrote as version 2 from August 2024 to February 2026."""


def _upstream(commit: str, file: str, symbol: str, basis: Basis = "read") -> Origin:
    return Origin("ggml-org/llama.cpp", commit, file, symbol, basis)


_FIRST = _upstream("b3483 (PR #8699)", "src/llama.cpp", "llama_data_write::write_kv_cache")
_SEQ_ID = _upstream(
    "b5485 (PR #13706)", "src/llama-kv-cache.cpp", "llama_kv_cache_unified::state_write_meta"
)
_ISWA = _upstream(
    "b5429 (PR #13194)", "src/llama-kv-cache.cpp", "llama_kv_cache_unified_iswa::state_write"
)
_STREAM = _upstream(
    "b5913 (PR #14363)", "src/llama-kv-cache-unified.cpp", "llama_kv_cache_unified::state_write"
)
_RECURRENT = _upstream(
    "b5262", "src/llama-memory-recurrent.cpp", "llama_memory_recurrent::state_write"
)
_HYBRID = _upstream(
    "b5968 (PR #14675)", "src/llama-memory-hybrid.cpp", "llama_memory_hybrid::state_write"
)
_HYBRID_ISWA = _upstream(
    "b7789", "src/llama-memory-hybrid-iswa.cpp", "llama_memory_hybrid_iswa::state_write"
)
_MLA = _upstream("b7832 (PR #19067)", "src/llama-kv-cache.cpp", "llama_kv_cache::state_write_data")
_MROPE = _upstream("b8215 (PR #20132)", "src/llama-kv-cells.h", "llama_kv_cell_ext")
_DSA = _upstream("b9411", "src/llama-kv-cache-dsa.cpp", "llama_kv_cache_dsa::state_write")
_DSA_ISWA = _upstream("b10569", "src/llama-kv-cache-dsa-iswa.cpp", "state_write")
_DSV4 = _upstream("b9840", "src/llama-kv-cache-dsv4.cpp", "state_write")
_MINIMAX = _upstream(
    "b10135 (PR #24908)", "src/llama-kv-cache.cpp", "llama_kv_cache::state_write_data"
)
_MSA = _upstream("b10244 (PR #26338)", "src/llama-kv-cache-msa.cpp", "state_write")
_V3 = _upstream("b10644 (PR #27762, 925e11799)", "src/llama-kv-cells.h", "llama_kv_cell_ext")
_IDX = _upstream("b10662 (PR #27941)", "src/llama-memory-hybrid-idx.cpp", "state_write")
_IDX_KEYS = _upstream("b10909 (PR #28330)", "src/llama-memory-hybrid-idx.cpp", "state_write")
_V4 = _upstream(
    "b11434 (PR #28498, 210791069)",
    "src/llama-kv-cache.cpp",
    "llama_kv_cache::state_write_data",
    "ran",
)

_END2 = "b10643"
_END3 = "b11433"

_NO_STREAM = "cell_count comes first, no n_stream"
_NO_ID = "n_seq_id 0 in every cell"
_ONE_ID = "n_seq_id 1 in every cell"
_KEY_ONLY = "no V blocks behind the K blocks"
_XY = "x and y in every cell, equal to pos for text"
_XYT = "x, y and the token id in every cell"
_ROT = "two rotation words behind n_layer"

ROWS = (
    _row(2, "kv", ANONYMOUS, "anonymous", "b3483", "b5484", _NO_STREAM, _NO_ID, origin=_FIRST),
    _row(2, "iswa", ANONYMOUS, "anonymous", "b5429", "b5484", _NO_STREAM, _NO_ID, origin=_ISWA),
    _row(2, "kv", NUMBERED, "flat", "b5485", "b5912", _NO_STREAM, _ONE_ID, origin=_SEQ_ID),
    _row(2, "iswa", NUMBERED, "flat", "b5485", "b5912", _NO_STREAM, _ONE_ID, origin=_SEQ_ID),
    _row(
        2,
        "recurrent",
        STREAMED,
        "",
        "b3483",
        _END2,
        "R and S blocks of F32, one cell",
        origin=_RECURRENT,
    ),
    _row(2, "kv", STREAMED, "", "b5913", _END2, "n_stream first", origin=_STREAM),
    _row(2, "mla", STREAMED, "", "b7832", _END2, _KEY_ONLY, origin=_MLA),
    _row(2, "kv", STREAMED_XY, "xy", "b8215", _END2, _XY, origin=_MROPE),
    _row(2, "iswa", STREAMED, "", "b5913", _END2, "two sections", origin=_STREAM),
    _row(
        2,
        "hybrid",
        STREAMED,
        "",
        "b5968",
        _END2,
        "a recurrent section behind the attention section",
        origin=_HYBRID,
    ),
    _row(2, "hybrid", STREAMED_XY, "xy", "b8215", _END2, _XY, origin=_MROPE),
    _row(2, "hybrid-mla", STREAMED, "", "b7832", _END2, _KEY_ONLY, origin=_MLA),
    _row(
        2,
        "hybrid-iswa",
        STREAMED,
        "",
        "b7789",
        _END2,
        "two attention sections and a recurrent one",
        origin=_HYBRID_ISWA,
    ),
    _row(2, "dsa", STREAMED, "", "b9411", _END2, _KEY_ONLY, "two sections", origin=_DSA),
    _row(
        2, "dsa-iswa", STREAMED, "", "b10569", _END2, _KEY_ONLY, "three sections", origin=_DSA_ISWA
    ),
    _row(
        2,
        "minimax-m3",
        STREAMED,
        "",
        "b10135",
        "b10243",
        "a flag word behind the K blocks",
        origin=_MINIMAX,
    ),
    _row(
        2,
        "msa",
        STREAMED,
        "",
        "b10244",
        _END2,
        "two sections, the second with one small head",
        origin=_MSA,
    ),
    _row(2, "dsv4", STREAMED, "", "b9840", _END2, '"DSV4" behind the tokens', origin=_DSV4),
    _row(3, "kv", STREAMED, "", "b10636", _END3, "n_stream first", origin=_V3),
    _row(3, "mla", STREAMED, "", "b10636", _END3, _KEY_ONLY, origin=_V3),
    _row(3, "kv", STREAMED_XYT, "xyt", "b10636", _END3, _XYT, origin=_V3),
    _row(3, "iswa", STREAMED, "", "b10636", _END3, "two sections", origin=_V3),
    _row(
        3, "recurrent", STREAMED, "", "b10636", _END3, "R and S blocks of F32, one cell", origin=_V3
    ),
    _row(
        3,
        "hybrid",
        STREAMED,
        "",
        "b10636",
        _END3,
        "a recurrent section behind the attention section",
        origin=_V3,
    ),
    _row(3, "hybrid", STREAMED_XYT, "xyt", "b10636", _END3, _XYT, origin=_V3),
    _row(
        3,
        "hybrid-ple",
        STREAMED_XYT,
        "xyt",
        "b10645",
        _END3,
        _XYT,
        "a history behind R blocks",
        origin=_IDX,
    ),
    _row(3, "hybrid-mla", STREAMED, "", "b10636", _END3, _KEY_ONLY, origin=_V3),
    _row(
        3,
        "hybrid-iswa",
        STREAMED,
        "",
        "b10636",
        _END3,
        "two attention sections and a recurrent one",
        origin=_V3,
    ),
    _row(3, "dsa", STREAMED, "", "b10636", _END3, _KEY_ONLY, "two sections", origin=_V3),
    _row(3, "dsa-iswa", STREAMED, "", "b10636", _END3, _KEY_ONLY, "three sections", origin=_V3),
    _row(
        3,
        "msa",
        STREAMED,
        "",
        "b10636",
        _END3,
        "two sections, the second with one small head",
        origin=_V3,
    ),
    _row(3, "dsv4", STREAMED, "", "b10636", _END3, '"DSV4" behind the tokens', origin=_V3),
    _row(
        3,
        "hybrid-idx-values",
        STREAMED_XYT,
        "xyt",
        "b10645",
        "b10908",
        _XYT,
        "an indexer behind the state",
        origin=_IDX,
    ),
    _row(
        3,
        "hybrid-idx",
        STREAMED_XYT,
        "xyt",
        "b10866",
        _END3,
        _XYT,
        "indexer keys behind the state",
        origin=_IDX_KEYS,
    ),
    _row(
        3,
        "hybrid-idx",
        STREAMED,
        "",
        "b11237",
        _END3,
        "indexer keys behind the state",
        origin=_IDX_KEYS,
    ),
    _row(
        3,
        "hybrid-idx-mla",
        STREAMED,
        "",
        "b11237",
        _END3,
        _KEY_ONLY,
        "indexer keys behind the state",
        origin=_IDX_KEYS,
    ),
    _row(4, "kv", ROTATED, "", "b11402", None, _ROT, origin=_V4),
    _row(4, "mla", ROTATED, "", "b11402", None, _ROT, _KEY_ONLY, origin=_V4),
    _row(4, "kv", ROTATED_XYT, "xyt", "b11402", None, _ROT, _XYT, origin=_V4),
    _row(4, "iswa", ROTATED, "", "b11402", None, _ROT, "two sections", origin=_V4),
    _row(
        4, "recurrent", ROTATED, "", "b11402", None, "R and S blocks of F32, one cell", origin=_V4
    ),
    _row(
        4,
        "hybrid",
        ROTATED,
        "",
        "b11402",
        None,
        _ROT,
        "a recurrent section behind the attention section",
        origin=_V4,
    ),
    _row(4, "hybrid", ROTATED_XYT, "xyt", "b11402", None, _ROT, _XYT, origin=_V4),
    _row(
        4,
        "hybrid-ple",
        ROTATED_XYT,
        "xyt",
        "b11402",
        None,
        _ROT,
        _XYT,
        "a history behind R blocks",
        origin=_V4,
    ),
    _row(4, "hybrid-mla", ROTATED, "", "b11402", None, _ROT, _KEY_ONLY, origin=_V4),
    _row(
        4,
        "hybrid-iswa",
        ROTATED,
        "",
        "b11402",
        None,
        _ROT,
        "two attention sections and a recurrent one",
        origin=_V4,
    ),
    _row(4, "dsa", ROTATED, "", "b11402", None, _ROT, _KEY_ONLY, "two sections", origin=_V4),
    _row(4, "dsa-iswa", ROTATED, "", "b11402", None, _ROT, _KEY_ONLY, "three sections", origin=_V4),
    _row(
        4,
        "msa",
        ROTATED,
        "",
        "b11402",
        None,
        _ROT,
        "two sections, the second with one small head",
        origin=_V4,
    ),
    _row(4, "dsv4", ROTATED, "", "b11402", None, '"DSV4" behind the tokens', origin=_V4),
    _row(
        4,
        "hybrid-idx",
        ROTATED_XYT,
        "xyt",
        "b11402",
        None,
        _ROT,
        _XYT,
        "indexer keys behind the state",
        origin=_V4,
    ),
    _row(
        4,
        "hybrid-idx",
        ROTATED,
        "",
        "b11402",
        None,
        _ROT,
        "indexer keys behind the state",
        origin=_V4,
    ),
    _row(
        4,
        "hybrid-idx-mla",
        ROTATED,
        "",
        "b11402",
        None,
        _ROT,
        _KEY_ONLY,
        "indexer keys behind the state",
        origin=_V4,
    ),
)
