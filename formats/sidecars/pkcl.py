"""PKCL: `<state>.ckpt` of the turboquant fork; version 2, with a hash and a third blob, of another.

Source: tools/server/server-context.cpp of TheTom/llama-cpp-turboquant PR #206 (commit cff2ea367,
2026-07-05); version 2 of commit 001d906a6 in the fork network of ggml-org/llama.cpp.
"""

from __future__ import annotations

from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import U32, U64
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

PKCL_MAGIC = 0x4C434B50
_MAGIC = "magic" / Scalar("I", {PKCL_MAGIC: "PKCL"}) * '0x4c434b50, on disk "PKCL"'

PKCL1 = checkpoints(
    _MAGIC,
    "version" / U32 * "1",
    "count" / U32 * "records that follow, at most 1024",
    record=(N_TOKENS, POS_MIN, POS_MAX, N_TGT, N_DFT, TGT, DFT),
)

PKCL2 = checkpoints(
    _MAGIC,
    "version" / U32 * "2",
    "state_hash" / U64 * "FNV-1a-64 of every byte of the state file",
    "count" / U32 * "records that follow, at most n_ctx_checkpoints of the server",
    record=(N_TOKENS, POS_MIN, POS_MAX, N_TGT, TGT, N_DFT, DFT, N_SPEC, SPEC),
)

_FILE = "tools/server/server-context.cpp"

ROWS = (
    Layout(
        id="pkcl1",
        title="checkpoint sidecar of the turboquant fork, version 1",
        format="pkcl",
        version=1,
        magic=b"PKCL",
        declare=lambda: PKCL1,
        origins=(Origin("TheTom/llama-cpp-turboquant", "cff2ea367 (PR #206)", _FILE),),
        since="turboquant@2026-07-05",
        tells=("both lengths in front of both blobs",),
        writer="turboquant",
    ),
    Layout(
        id="pkcl2",
        title="checkpoint sidecar with the hash of its state file, PKCL version 2",
        format="pkcl",
        version=2,
        magic=b"PKCL",
        declare=lambda: PKCL2,
        origins=(Origin("ggml-org/llama.cpp fork network", "001d906a6", _FILE),),
        tells=("a hash in front of the count", "each length in front of its own blob, three blobs"),
    ),
)
