"""States of ik_llama.cpp: slot files, session files, and blobs, which have no magic and no version.

Source: ikawrakow/ik_llama.cpp 8337e4cd3 (2026-08-15), src/llama.cpp `llama_state_seq_save_file`,
`llama_state_save_file_internal`, `llama_state_seq_get_data`.
"""

from __future__ import annotations

from typing import Any

from construct import this

from formats.bodies.cells import anonymous_cells, full_cells
from formats.bodies.ik import OPENPANGU_PARTIAL, memory, without_values
from formats.envelopes.ggsq import plain_slot_file
from formats.envelopes.tokens import PLAIN_TOKENS
from formats.layout import Layout
from formats.provenance import Basis, Origin
from formats.scalars import I32, U32, U64
from formats.spans import Payload, Record, Scalar, Table, Text

GGSN_MAGIC = 0x6767736E

_N_OUTPUTS = 1 << 20


def _session_file(*body: Any) -> Record:
    """Tokens, the random generator and the outputs, which upstream has dropped, then the memory."""
    return Record(
        "magic" / Scalar("I", {GGSN_MAGIC: "ggsn"}) * '0x6767736e, on disk "nsgg"',
        "version" / U32 * "format version; a loader takes only its own",
        "n_token_count" / U32 * "tokens that follow",
        "tokens" / PLAIN_TOKENS * "tokens that the state stands for",
        "arch_size" / U32 * "bytes of the architecture name",
        "arch" / Text(this.arch_size, at_most=256) * "architecture, as in general.architecture",
        "rng_size" / U32 * "bytes of the random generator's state",
        "rng" / Text(this.rng_size, at_most=1 << 16) * "random generator (mt19937), in decimal",
        "n_outputs" / U32 * "outputs of the last batch",
        "output_pos" / Table(this.n_outputs, I32, at_most=_N_OUTPUTS) * "indices in the batch",
        "logits_size" / U64 * "logits that follow",
        "logits" / Payload(4 * this.logits_size) * "logits of the outputs, F32",
        "embeddings_size" / U64 * "embedding elements that follow",
        "embeddings" / Payload(4 * this.embeddings_size) * "embeddings of the outputs, F32",
        *body,
    )


def _origin(commit: str, symbol: str, basis: Basis = "ran") -> Origin:
    return Origin("ikawrakow/ik_llama.cpp", commit, "src/llama.cpp", symbol, basis)


_V2 = _origin("b3d223911 (2025-05-30)", "llama_data_write::write_kv_cache_data", "read")
_V3 = _origin("e30198a55 (2026-02-16)", "llama_data_write::write_kv_cache_data")
_V4 = _origin("65891dcdb (2026-07-18)", "llama_data_write::write_kv_cache_data")
_SWAC = _origin("d44e2cbe5 (2026-08-06)", "llama_data_write::write_kv_cache")
_PANGU = _origin("87eeec9f7 (2026-08-03)", "llama_data_write::write_openpangu_state", "read")

_SINCE2, _SINCE3, _SINCE4 = "ik@2025-05-30", "ik@2026-02-16", "ik@2026-07-18"

_ONE_LIST = "cell_count comes first, n_seq_id 0 in every cell"
_ABSENT = "headers of type -1 for layers without a cache"
_END3 = "qnext_state behind the last block"
_END4 = "qnext_state and dsa_indexer_state behind the last block"
_RNG = "the random generator's state behind the architecture name"
_WINDOW = '"CAWS" in front of cell_count'
_NO_VALUES = "v_state 2 and no V blocks"


def _row(
    layout_id: str,
    title: str,
    version: int,
    magic: bytes,
    record: Record,
    origin: Origin,
    since: str,
    *tells: str,
    until: str | None = None,
) -> Layout:
    formats = {b"qsgg": "ggsq", b"nsgg": "ggsn"}
    return Layout(
        id=layout_id,
        title=f"ik_llama.cpp {title}",
        format=formats.get(magic, "blob"),
        version=version,
        magic=magic,
        declare=lambda: record,
        origins=(origin,),
        since=since,
        until=until,
        tells=tells,
        writer="ik_llama.cpp",
        memory="ik",
    )


_SEQ3 = memory(anonymous_cells(), indexer=False)
_SEQ4 = memory(anonymous_cells(), indexer=True)
_SEQ4_COMPACTED = memory(anonymous_cells(), indexer=True, compacted=True)

ROWS = (
    _row(
        "ik2.mla",
        "slot file, version 2 without values (MLA)",
        2,
        b"qsgg",
        plain_slot_file(*without_values(anonymous_cells())),
        _V2,
        _SINCE2,
        _ONE_LIST,
        _NO_VALUES,
        until=_SINCE3,
    ),
    _row(
        "ik3",
        "slot file, version 3",
        3,
        b"qsgg",
        plain_slot_file(*_SEQ3),
        _V3,
        _SINCE3,
        _ONE_LIST,
        _ABSENT,
        _END3,
        until=_SINCE4,
    ),
    _row(
        "ik4",
        "slot file, version 4",
        4,
        b"qsgg",
        plain_slot_file(*_SEQ4),
        _V4,
        _SINCE4,
        _ONE_LIST,
        _ABSENT,
        _END4,
    ),
    _row(
        "ik4.swac",
        "slot file, version 4 with compacted windows",
        4,
        b"qsgg",
        plain_slot_file(*_SEQ4_COMPACTED),
        _SWAC,
        "ik@2026-08-06",
        _WINDOW,
        _END4,
    ),
    _row(
        "ik8.session.mla",
        "session file, version 8 without values (MLA)",
        8,
        b"nsgg",
        _session_file(*without_values(full_cells())),
        _V2,
        _SINCE2,
        _RNG,
        _NO_VALUES,
        until=_SINCE3,
    ),
    _row(
        "ik9.session",
        "session file, version 9",
        9,
        b"nsgg",
        _session_file(*memory(full_cells(), indexer=False)),
        _V3,
        _SINCE3,
        _RNG,
        _END3,
        until=_SINCE4,
    ),
    _row(
        "ik10.session",
        "session file, version 10",
        10,
        b"nsgg",
        _session_file(*memory(full_cells(), indexer=True)),
        _V4,
        _SINCE4,
        _RNG,
        _END4,
    ),
    _row(
        "ik3.blob",
        "sequence state, full or partial, of version 3",
        3,
        b"",
        Record(*_SEQ3),
        _V3,
        _SINCE3,
        _ONE_LIST,
        "all headers of type -1 if partial",
        _END3,
        until=_SINCE4,
    ),
    _row(
        "ik4.blob",
        "sequence state, full or partial, of version 4",
        4,
        b"",
        Record(*_SEQ4),
        _V4,
        _SINCE4,
        _ONE_LIST,
        "all headers of type -1 if partial",
        _END4,
    ),
    _row(
        "ik4.blob.swac",
        "sequence state, full or partial, of version 4 with compacted windows",
        4,
        b"CAWS",
        Record(*_SEQ4_COMPACTED),
        _SWAC,
        "ik@2026-08-06",
        _WINDOW,
        _END4,
    ),
    _row(
        "ik4.blob.pangu",
        "partial state of openPangu, of version 4",
        4,
        b"2GAP",
        OPENPANGU_PARTIAL,
        _PANGU,
        "ik@2026-08-03",
        '"2GAP" in place of the cells',
    ),
)
