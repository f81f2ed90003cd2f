"""BKCP: `<state>.ckpt` of bongo, off unless `--save-slot-checkpoints` is given.

Source: 03c/bongo commit 8e1c77c7e, tools/patches/slot-checkpoints-sidecar.patch, a patch of
llama.cpp b11223.
"""

from __future__ import annotations

from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import I32, U32
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
from formats.spans import Scalar

BKCP_MAGIC = int.from_bytes(b"BKCP", "little")

BKCP = checkpoints(
    "magic" / Scalar("I", {BKCP_MAGIC: "BKCP"}) * 'on disk "BKCP"',
    "version" / U32 * "1",
    "count" / U32 * "records that follow",
    record=(
        N_TOKENS,
        "id_task" / I32 * "task that made the checkpoint, -1 for none",
        POS_MIN,
        POS_MAX,
        N_TGT,
        TGT,
        N_DFT,
        DFT,
        N_SPEC,
        SPEC,
    ),
)

ROWS = (
    Layout(
        id="bkcp1",
        title="checkpoint sidecar of bongo",
        format="bkcp",
        version=1,
        magic=b"BKCP",
        declare=lambda: BKCP,
        origins=(Origin("03c/bongo", "8e1c77c7e", "tools/patches/slot-checkpoints-sidecar.patch"),),
        tells=("id_task behind n_tokens",),
        writer="bongo",
    ),
)
