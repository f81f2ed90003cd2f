"""`<state>.checkpoints` of ik_llama.cpp: the magic and the version of its slot file, then records.

It is written only if there are checkpoints, so an older one may lie beside a newer slot file. The
blobs have no prefix and say no version of their own.

Source: ikawrakow/ik_llama.cpp PR #1584 (5e8bb724c, 2026-04-05), examples/server/server-context.cpp.
"""

from __future__ import annotations

from formats.envelopes.ggsq import MAGIC
from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import LLAMA_POS, U32, U64
from formats.sidecars.record import N_TGT, POS_MAX, POS_MIN, TGT, checkpoints

IK_CHECKPOINTS = checkpoints(
    "magic" / MAGIC * '0x67677371, on disk "qsgg"',
    "version" / U32 * "version of the slot file: 3, or 4 from 2026-07-18 on",
    "count" / U64 * "records that follow, at most 32 unless the server was told otherwise",
    record=(
        POS_MIN,
        POS_MAX,
        "pos_min_prompt" / LLAMA_POS * "pos_min plus what a context shift discarded",
        "pos_max_prompt" / LLAMA_POS * "pos_max plus what a context shift discarded",
        N_TGT,
        TGT,
    ),
)


def _row(version: int, since: str, until: str | None) -> Layout:
    return Layout(
        id=f"ik-checkpoints{version}",
        title=f"checkpoint sidecar of ik_llama.cpp, version {version}",
        format="ik-checkpoints",
        version=version,
        magic=b"qsgg",
        declare=lambda: IK_CHECKPOINTS,
        origins=(
            Origin(
                "ikawrakow/ik_llama.cpp",
                "5e8bb724c (PR #1584)",
                "examples/server/server-context.cpp",
                basis="ran",
            ),
        ),
        since=since,
        until=until,
        tells=("a 64-bit count and four positions behind the version of a slot file",),
        writer="ik_llama.cpp",
    )


ROWS = (
    _row(3, "ik@2026-04-05", "ik@2026-07-18"),
    _row(4, "ik@2026-07-18", None),
)
