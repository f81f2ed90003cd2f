"""States of ik_llama.cpp: slot files, whole-context files, and blobs without magic or version.

Source: ikawrakow/ik_llama.cpp 8337e4cd3 (2026-08-15), src/llama.cpp `llama_state_seq_save_file`,
`llama_state_save_file_internal`, `llama_state_get_data`, `llama_state_seq_get_data`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from formats.bodies.cells import anonymous_cells, full_cells
from formats.bodies.ik import memory, openpangu_partial, without_values
from formats.envelopes.context import HEADS
from formats.envelopes.ggsn import session_file
from formats.envelopes.ggsq import plain_slot_file
from formats.layout import Layout
from formats.provenance import Basis, Origin
from formats.spans import Record

CONTEXT_HEAD, _RNG, _ = HEADS["rng"]
"""What upstream wrote until b3680: ik_llama.cpp still stores random generator and outputs."""


def _seq(*, indexer: bool, compacted: bool = False) -> tuple[Any, ...]:
    return memory(anonymous_cells(), indexer=indexer, compacted=compacted)


def _full(*, indexer: bool) -> tuple[Any, ...]:
    return *CONTEXT_HEAD, *memory(full_cells(), indexer=indexer)


def _origin(commit: str, symbol: str, basis: Basis = "ran") -> Origin:
    return Origin("ikawrakow/ik_llama.cpp", commit, "src/llama.cpp", symbol, basis)


_WITHOUT_VALUES = _origin("b3d223911 (2025-05-30)", "write_kv_cache_data", "read")
_V3 = _origin("e30198a55 (2026-02-16)", "write_kv_cache_data")
_V4 = _origin("65891dcdb (2026-07-18)", "write_kv_cache_data")
_SWAC = _origin("d44e2cbe5 (2026-08-06)", "write_kv_cache", "read")
_PANGU = _origin("87eeec9f7 (2026-08-03)", "write_openpangu_state", "read")

_SINCE2, _SINCE3, _SINCE4 = "ik@2025-05-30", "ik@2026-02-16", "ik@2026-07-18"

_ONE_LIST = "cell_count comes first, n_seq_id 0 in every cell"
_ABSENT = "headers of type -1 for layers without a cache"
_PARTIAL = "all headers of type -1 if partial"
_END3 = "qnext_state behind the last block"
_END4 = "qnext_state and dsa_indexer_state behind the last block"
_WINDOW = '"CAWS" in front of cell_count'
_NO_VALUES = "v_state 2 and no V blocks"


def _row(
    layout_id: str,
    title: str,
    version: int,
    magic: bytes,
    declare: Callable[[], Record],
    origin: Origin,
    since: str,
    until: str | None,
    *tells: str,
) -> Layout:
    formats = {b"qsgg": "ggsq", b"nsgg": "ggsn"}
    return Layout(
        id=layout_id,
        title=f"ik_llama.cpp {title}",
        format="context" if "context" in layout_id else formats.get(magic, "blob"),
        version=version,
        magic=magic,
        declare=declare,
        origins=(origin,),
        since=since,
        until=until,
        tells=tells,
        writer="ik_llama.cpp",
        memory="ik",
    )


ROWS: tuple[Layout, ...] = (
    _row(
        "ik2.mla",
        "slot file, version 2 without values (MLA)",
        2,
        b"qsgg",
        lambda: plain_slot_file(*without_values(anonymous_cells())),
        _WITHOUT_VALUES,
        _SINCE2,
        _SINCE3,
        _ONE_LIST,
        _NO_VALUES,
    ),
    _row(
        "ik3",
        "slot file, version 3",
        3,
        b"qsgg",
        lambda: plain_slot_file(*_seq(indexer=False)),
        _V3,
        _SINCE3,
        _SINCE4,
        _ONE_LIST,
        _ABSENT,
        _END3,
    ),
    _row(
        "ik4",
        "slot file, version 4",
        4,
        b"qsgg",
        lambda: plain_slot_file(*_seq(indexer=True)),
        _V4,
        _SINCE4,
        None,
        _ONE_LIST,
        _ABSENT,
        _END4,
    ),
    _row(
        "ik4.swac",
        "slot file, version 4 with compacted windows",
        4,
        b"qsgg",
        lambda: plain_slot_file(*_seq(indexer=True, compacted=True)),
        _SWAC,
        "ik@2026-08-06",
        None,
        _WINDOW,
        _END4,
    ),
    _row(
        "ik8.session.mla",
        "whole-context file, version 8 without values (MLA)",
        8,
        b"nsgg",
        lambda: session_file(*CONTEXT_HEAD, *without_values(full_cells())),
        _WITHOUT_VALUES,
        _SINCE2,
        _SINCE3,
        _RNG,
        _NO_VALUES,
    ),
    _row(
        "ik9.session",
        "whole-context file, version 9",
        9,
        b"nsgg",
        lambda: session_file(*_full(indexer=False)),
        _V3,
        _SINCE3,
        _SINCE4,
        _RNG,
        _END3,
    ),
    _row(
        "ik10.session",
        "whole-context file, version 10",
        10,
        b"nsgg",
        lambda: session_file(*_full(indexer=True)),
        _V4,
        _SINCE4,
        None,
        _RNG,
        _END4,
    ),
    _row(
        "ik9.context",
        "state of a whole context without tokens, of version 9",
        9,
        b"",
        lambda: Record(*_full(indexer=False)),
        _V3,
        _SINCE3,
        _SINCE4,
        _RNG,
        _END3,
    ),
    _row(
        "ik10.context",
        "state of a whole context without tokens, of version 10",
        10,
        b"",
        lambda: Record(*_full(indexer=True)),
        _V4,
        _SINCE4,
        None,
        _RNG,
        _END4,
    ),
    _row(
        "ik3.blob",
        "state of one sequence, of version 3",
        3,
        b"",
        lambda: Record(*_seq(indexer=False)),
        _V3,
        _SINCE3,
        _SINCE4,
        _ONE_LIST,
        _PARTIAL,
        _END3,
    ),
    _row(
        "ik4.blob",
        "state of one sequence, of version 4",
        4,
        b"",
        lambda: Record(*_seq(indexer=True)),
        _V4,
        _SINCE4,
        None,
        _ONE_LIST,
        _PARTIAL,
        _END4,
    ),
    _row(
        "ik4.blob.swac",
        "state of one sequence, of version 4 with compacted windows",
        4,
        b"CAWS",
        lambda: Record(*_seq(indexer=True, compacted=True)),
        _SWAC,
        "ik@2026-08-06",
        None,
        _WINDOW,
        _END4,
    ),
    _row(
        "ik4.blob.pangu",
        "partial state of openPangu, of version 4",
        4,
        b"2GAP",
        openpangu_partial,
        _PANGU,
        "ik@2026-08-03",
        None,
        '"2GAP" in place of the cells',
    ),
)
