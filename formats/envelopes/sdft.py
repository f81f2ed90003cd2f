"""A draft companion that looks like a slot file: an envelope stands in place of its tokens.

Source: ggml-org/llama.cpp fork network, draft envelope SDFT, version 1.
"""

from __future__ import annotations

from construct import this

from formats.envelopes.ggsq import HEAD
from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import U32
from formats.spans import Nested, Payload, Record, Rest, Scalar, Switch

_SDFT = 0x54464453
_SDFT_TOKENS = Record(
    "magic" / Scalar("I", {_SDFT: "SDFT"}) * '0x54464453, on disk "SDFT"',
    "envelope"
    / Switch(
        this.magic,
        {
            _SDFT: Record(
                "version" / U32 * "1",
                "prompt_bytes" / U32 * "bytes of the packed prompt",
                "spec_bytes" / U32 * "bytes of the speculative decoder's state",
                "prompt" / Payload(this.prompt_bytes) * "packed tokens of the prompt",
                "spec" / Payload(this.spec_bytes) * "state of the speculative decoder",
                "padding" / Rest() * "zeros up to a multiple of four bytes",
            )
        },
    )
    * "what stands in place of tokens",
)
SDFT = Record(
    *HEAD,
    "tokens" / Nested(4 * this.n_token_count, _SDFT_TOKENS) * "an envelope in place of tokens",
    "draft" / Rest(holds="draft") * "state of the draft context",
)

ROWS = (
    Layout(
        id="sdft",
        title="draft companion of a slot file",
        format="sdft",
        version=None,
        magic=b"qsgg",
        mark=(12, b"SDFT"),
        declare=lambda: SDFT,
        origins=(Origin("ggml-org/llama.cpp fork network", "draft envelope SDFT, version 1"),),
        tells=('"SDFT" in place of the first token',),
    ),
)
