"""SCKP: checkpoints appended to the slot file itself, behind the payload.

Source: tools/server/server-context.cpp of ggml-org/llama.cpp PR #26004 (commit 033df86b6,
2026-10-08).
"""

from __future__ import annotations

from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import U32
from formats.sidecars.record import (
    DFT,
    N_DFT,
    N_SPEC,
    N_TGT,
    N_TOKENS,
    POS_MAX,
    POS_MIN,
    SPEC,
    TGT,
    checkpoints,
)
from formats.spans import Ahead, Scalar

SCKP_MAGIC = 0x504B4353
SCKP_AHEAD = Ahead("<I", lambda word: word == SCKP_MAGIC, '"SCKP" comes next')

SCKP = checkpoints(
    "magic" / Scalar("I", {SCKP_MAGIC: "SCKP"}) * '0x504b4353, on disk "SCKP"',
    "version" / U32 * "1",
    "count" / U32 * "records that follow",
    record=(N_TOKENS, POS_MIN, POS_MAX, N_TGT, TGT, N_DFT, DFT, N_SPEC, SPEC),
)

ROWS = (
    Layout(
        id="sckp1",
        title="checkpoint appendix of a slot file, cut out of it",
        format="sckp",
        version=1,
        magic=b"SCKP",
        declare=lambda: SCKP,
        origins=(
            Origin(
                "ggml-org/llama.cpp",
                "033df86b6 (PR #26004)",
                "tools/server/server-context.cpp",
                basis="ran",
            ),
        ),
        since="b11435",
        tells=("each length in front of its own blob, three blobs",),
        writer="llama.cpp",
    ),
)
