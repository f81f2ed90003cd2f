"""STCK: `<state>.ckpt` of a fork that streams experts on Apple silicon; `<state>.gen`.

The marker `.gen` is written last: it commits a save. The inner layout of the two further
companions, `.hbnd` and `.drft`, is not known.

Source: commits in the fork network of ggml-org/llama.cpp with the options `--slot-persist` and
`--context-cache-path`; the repository's own name is not known.
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
from formats.spans import Record, Scalar

STCK_MAGIC = 0x4B435453
SGEN_MAGIC = 0x4E454753

STCK = checkpoints(
    "magic" / Scalar("I", {STCK_MAGIC: "STCK"}) * '0x4b435453, on disk "STCK"',
    "version" / U32 * "2",
    "count" / U32 * "records that follow, at most 64",
    "prompt_size" / U64 * "bytes of the serialized prompt",
    "prompt_tokens" / U64 * "tokens of the prompt",
    "prompt_hash" / U64 * "FNV-1a-64 of the serialized prompt, basis 1469598103934665603",
    record=(N_TOKENS, POS_MIN, POS_MAX, N_TGT, TGT, N_DFT, DFT, N_SPEC, SPEC),
)

GEN = Record(
    "magic" / Scalar("I", {SGEN_MAGIC: "SGEN"}) * '0x4e454753, on disk "SGEN"',
    "version" / U32 * "1",
    "n_tokens" / U64 * "tokens of the state",
    "n_hbnd" / U64 * "bytes of the .hbnd companion",
    "n_drft" / U64 * "bytes of the .drft companion",
    role="generation",
)

_ORIGINS = (Origin("ggml-org/llama.cpp fork network", "--slot-persist"),)

ROWS = (
    Layout(
        id="stck2",
        title="checkpoint sidecar with the hash of its prompt, STCK version 2",
        format="stck",
        version=2,
        magic=b"STCK",
        declare=lambda: STCK,
        origins=_ORIGINS,
        tells=("prompt size, tokens and hash behind the count",),
    ),
    Layout(
        id="stck-gen",
        title="commit marker of an STCK save",
        format="stck-gen",
        version=1,
        magic=b"SGEN",
        declare=lambda: GEN,
        origins=_ORIGINS,
        tells=("32 bytes",),
    ),
)
