"""LSCKPT2: `<state>.ckpt` of llama-hdd.

Source: tools/server/server-context.cpp of ggml-org/llama.cpp PR #24028 (2026-06-02) and of
LuminaNAO/llama-hdd.cpp (commits e691c835, 0a8c1568).
"""

from __future__ import annotations

from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import U64
from formats.sidecars.record import (
    DFT,
    N_DFT,
    N_TGT,
    N_TOKENS,
    POS_MAX,
    POS_MIN,
    TGT,
    checkpoints,
)
from formats.spans import Scalar

LSCKPT2_MAGIC = int.from_bytes(b"LSCKPT2\0", "little")

LSCKPT2 = checkpoints(
    "magic"
    / Scalar("Q", {LSCKPT2_MAGIC: "LSCKPT2"})
    * 'on disk "LSCKPT2" and a zero; there is no version word',
    "count" / U64 * "records that follow",
    record=(POS_MIN, POS_MAX, N_TOKENS, N_TGT, N_DFT, TGT, DFT),
)

ROWS = (
    Layout(
        id="lsckpt2",
        title="checkpoint sidecar of llama-hdd",
        format="lsckpt2",
        version=None,
        magic=b"LSCKPT2\0",
        declare=lambda: LSCKPT2,
        origins=(
            Origin(
                "LuminaNAO/llama-hdd.cpp",
                "e691c835 (ggml-org/llama.cpp PR #24028)",
                "tools/server/server-context.cpp",
            ),
        ),
        tells=("64-bit count", "both lengths in front of both blobs"),
        writer="llama-hdd",
    ),
)
