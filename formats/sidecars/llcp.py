"""LLCP: `<state>.checkpoints` of a pull request against llama.cpp, and of a fork with it.

Source: tools/server/server-context.cpp of ggml-org/llama.cpp PR #20819 (commit d5c325051,
2026-03-20); version 2 of 362132718/llamacpp-gfx906-slot-save commit daddd3beb (2026-06-23).
"""

from __future__ import annotations

from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import U32
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

LLCP_MAGIC = 0x4C4C4350
_MAGIC = "magic" / Scalar("I", {LLCP_MAGIC: "LLCP"}) * '0x4c4c4350, on disk "PCLL"'
_COUNT = "count" / U32 * "records that follow"

LLCP1 = checkpoints(
    _MAGIC,
    "version" / U32 * "1",
    _COUNT,
    record=(POS_MIN, POS_MAX, N_TOKENS, N_TGT, TGT),
)

LLCP2 = checkpoints(
    _MAGIC,
    "version" / U32 * "2",
    _COUNT,
    record=(POS_MIN, POS_MAX, N_TOKENS, N_TGT, TGT, N_DFT, DFT),
)

_FILE = "tools/server/server-context.cpp"

ROWS = (
    Layout(
        id="llcp1",
        title="checkpoint sidecar of llama.cpp PR #20819, version 1",
        format="llcp",
        version=1,
        magic=b"PCLL",
        declare=lambda: LLCP1,
        origins=(Origin("ggml-org/llama.cpp", "d5c325051 (PR #20819)", _FILE),),
        tells=("positions in front of n_tokens", "one blob"),
    ),
    Layout(
        id="llcp2",
        title="checkpoint sidecar of the gfx906 fork, LLCP version 2",
        format="llcp",
        version=2,
        magic=b"PCLL",
        declare=lambda: LLCP2,
        origins=(Origin("362132718/llamacpp-gfx906-slot-save", "daddd3beb", _FILE),),
        tells=("positions in front of n_tokens", "each length in front of its own blob, two blobs"),
    ),
)
