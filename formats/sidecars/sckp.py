"""SCKP: checkpoints appended to the slot file itself, behind the payload.

Source: ggml-org/llama.cpp PR #26004 (commit 033df86b6, 2026-10-08), tools/server/server-context.cpp.
"""

from __future__ import annotations

from construct import this

from formats.scalars import U32
from formats.sidecars.record import (
    DFT,
    N_DFT,
    N_RECORDS,
    N_SPEC,
    N_TGT,
    N_TOKENS,
    POS_MAX,
    POS_MIN,
    SPEC,
    TGT,
)
from formats.spans import Ahead, Record, Scalar, Series

SCKP_MAGIC = 0x504B4353
SCKP_AHEAD = Ahead("<I", lambda word: word == SCKP_MAGIC, '"SCKP" comes next')

SCKP = Record(
    "magic" / Scalar("I", {SCKP_MAGIC: "SCKP"}) * '0x504b4353, on disk "SCKP"',
    "version" / U32 * "1",
    "count" / U32 * "records that follow",
    "records"
    / Series(
        this.count,
        Record(N_TOKENS, POS_MIN, POS_MAX, N_TGT, TGT, N_DFT, DFT, N_SPEC, SPEC),
        at_most=N_RECORDS,
    )
    * "checkpoints, oldest first",
    role="checkpoints",
)
