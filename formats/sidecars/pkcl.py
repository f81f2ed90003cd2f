"""PKCL: `<state>.ckpt` of the turboquant fork.

Source: TheTom/llama-cpp-turboquant PR #206 (commit cff2ea367, 2026-07-05), tools/server/server-context.cpp.
"""

from __future__ import annotations

from construct import this

from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import U32
from formats.sidecars.record import DFT, N_DFT, N_RECORDS, N_TGT, N_TOKENS, POS_MAX, POS_MIN, TGT
from formats.spans import Record, Scalar, Series

PKCL_MAGIC = 0x4C434B50
_MAGIC = "magic" / Scalar("I", {PKCL_MAGIC: "PKCL"}) * '0x4c434b50, on disk "PKCL"'

PKCL1 = Record(
    _MAGIC,
    "version" / U32 * "1",
    "count" / U32 * "records that follow, at most 1024",
    "records"
    / Series(
        this.count, Record(N_TOKENS, POS_MIN, POS_MAX, N_TGT, N_DFT, TGT, DFT), at_most=N_RECORDS
    )
    * "checkpoints, oldest first",
    role="checkpoints",
)

ROWS = (
    Layout(
        id="pkcl1",
        title="checkpoint sidecar of the turboquant fork, version 1",
        format="pkcl",
        version=1,
        magic=b"PKCL",
        declare=lambda: PKCL1,
        origins=(
            Origin(
                "TheTom/llama-cpp-turboquant",
                "cff2ea367 (PR #206)",
                "tools/server/server-context.cpp",
            ),
        ),
        since="turboquant@2026-07-05",
        tells=("both lengths in front of both blobs",),
        writer="turboquant",
    ),
)
