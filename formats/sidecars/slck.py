"""SLCK: `<state>.ckpt` of siliang-engine.

Source: tools/server/server-context.cpp `slot_checkpoints_save` of SpeederX/siliang-engine commit
d1fdc489.
"""

from __future__ import annotations

from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import U32
from formats.sidecars.record import N_TGT, N_TOKENS, POS_MAX, POS_MIN, TGT, checkpoints
from formats.spans import Scalar

SLCK_MAGIC = int.from_bytes(b"SLCK", "little")

SLCK = checkpoints(
    "magic" / Scalar("I", {SLCK_MAGIC: "SLCK"}) * 'on disk "SLCK"',
    "version" / U32 * "1",
    "count" / U32 * "records that follow, at most 4096",
    record=(N_TOKENS, POS_MIN, POS_MAX, N_TGT, TGT),
)

ROWS = (
    Layout(
        id="slck1",
        title="checkpoint sidecar of siliang-engine",
        format="slck",
        version=1,
        magic=b"SLCK",
        declare=lambda: SLCK,
        origins=(
            Origin(
                "SpeederX/siliang-engine",
                "d1fdc489",
                "tools/server/server-context.cpp",
                "slot_checkpoints_save",
            ),
        ),
        tells=("one blob; records with draft data were not saved",),
        writer="siliang-engine",
    ),
)
