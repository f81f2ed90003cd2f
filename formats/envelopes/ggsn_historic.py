"""Whole-context files before July 2024, versions 0 to 7; and raw states of that time.

Hyper-parameters stand between the head and the tokens. They changed far more often than the
version, so there is a row for each struct: what fits says when a file was written.

Source: ggerganov/llama.cpp b451 (PR #1169) to b3482, llama.cpp `llama_state_save_file`,
`llama_save_session_file` before.
"""

from __future__ import annotations

from formats.bodies.historic import RAW_STATES, STATES
from formats.bodies.hparams import HPARAMS
from formats.envelopes.ggsn import GGSN_MAGIC_BYTES, MAGIC, TOKENS
from formats.layout import Layout
from formats.provenance import Basis, Origin
from formats.spans import Record

_STATE_ORIGINS: dict[str, tuple[str, Basis]] = {
    "0": ("b451 (PR #1169)", "read"),
    "1": ("b494 (PR #1272)", "read"),
    "2": ("b1315 (PR #3400)", "read"),
    "3": ("b1619 (PR #4309)", "read"),
    "4": ("b1857 (PR #4820)", "read"),
    "4-used-cells": ("b2325 (PR #5840)", "read"),
    "5": ("b2540 (PR #6122)", "ran"),
    "6": ("b2771 (PR #5021)", "ran"),
}
_TELLS = {
    "0": "the whole allocated cache",
    "1": "keys and values up to the end, no cells",
    "2": "keys of all layers, values of all layers, kv_size cells",
    "3": "keys and values layer by layer, kv_used, 65536 bytes for the random generator",
    "4": "no room between the random generator and the logits, kv_size cells",
    "4-used-cells": "no room between the random generator and the logits, kv_head cells",
    "5": "n_outputs behind the random generator",
    "6": "n_outputs behind the random generator, v_trans",
}


def _origin(state: str) -> Origin:
    commit, basis = _STATE_ORIGINS[state]
    return Origin("ggml-org/llama.cpp", commit, "llama.cpp", "llama_copy_state_data", basis)


def _row(version: int, hparams: str, since: str, until: str, state: str = "") -> Layout:
    form = state or str(min(version, 6))
    struct = HPARAMS[hparams]
    return Layout(
        id=f"ggsn{version}.hparams-{hparams}{state and f'.{state}'}",
        title=f"whole-context file, version {version}, as {since} to {until} wrote it",
        format="ggsn",
        version=version,
        magic=GGSN_MAGIC_BYTES,
        declare=lambda: Record(
            *MAGIC,
            "hparams" / struct * "hyper-parameters of the model, the struct as in memory",
            *TOKENS,
            *STATES[form],
        ),
        origins=(
            Origin("ggml-org/llama.cpp", hparams, "llama.cpp", "llama_hparams"),
            _origin(form),
        ),
        since=since,
        until=until,
        tells=(f"hyper-parameters of {struct.smallest} bytes", _TELLS[form]),
        writer="llama.cpp",
    )


def _raw(state: str, since: str, until: str) -> Layout:
    return Layout(
        id=f"context.{since}",
        title=f"state of a whole context without tokens, as {since} to {until} returned it",
        format="context",
        version=None,
        magic=b"",
        declare=lambda: Record(*RAW_STATES[state]),
        origins=(_origin(state),),
        since=since,
        until=until,
        tells=(_TELLS[state],),
        writer="llama.cpp",
    )


ROWS: tuple[Layout, ...] = (
    _row(7, "b3421", "b3421", "b3482"),
    _row(6, "b3305", "b3305", "b3420"),
    _row(6, "b3295", "b3295", "b3304"),
    _row(6, "b3274", "b3274", "b3294"),
    _row(6, "b3266", "b3266", "b3273"),
    _row(6, "b3173", "b3173", "b3265"),
    _row(6, "b3023", "b3023", "b3172"),
    _row(6, "b2961", "b2961", "b3022"),
    _row(6, "b2440", "b2771", "b2960"),
    _row(5, "b2440", "b2540", "b2770"),
    _row(4, "b2440", "b2440", "b2539", "4-used-cells"),
    _row(4, "b2366", "b2366", "b2439", "4-used-cells"),
    _row(4, "b2264", "b2325", "b2365", "4-used-cells"),
    _row(4, "b2264", "b2264", "b2324"),
    _row(4, "b2158", "b2158", "b2263"),
    _row(4, "b2127", "b2127", "b2157"),
    _row(4, "b1748", "b1857", "b2126"),
    _row(3, "b1748", "b1748", "b1856"),
    _row(3, "b1629", "b1629", "b1747"),
    _row(3, "b1462", "b1619", "b1628"),
    _row(2, "b1462", "b1462", "b1618"),
    _row(2, "b1359", "b1359", "b1461"),
    _row(2, "b1289", "b1315", "b1358"),
    _row(1, "b1289", "b1289", "b1314"),
    _row(1, "b1041", "b1041", "b1288"),
    _row(1, "b1012", "b1012", "b1040"),
    _row(1, "b899", "b899", "b1011"),
    _row(1, "b888", "b888", "b898"),
    _row(1, "b843", "b843", "b887"),
    _row(1, "b451", "b494", "b842"),
    _row(0, "b451", "b451", "b493"),
    _raw("6", "b2771", "b3482"),
    _raw("5", "b2540", "b2770"),
    _raw("4", "b1857", "b2539"),
    _raw("1", "b451", "b1856"),
)
