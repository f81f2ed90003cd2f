"""States of whole contexts, as `llama_state_get_data` returns them; a `ggsn` file holds one too.

Programs that keep them raw, without the head and the tokens of a `ggsn` file: llama-cpp-python
(`Llama.save_state`), LLamaSharp (`LLamaContext.SaveState`).

Source: ggml-org/llama.cpp, `llama_context::state_write_data` (b8133), `llama_context::state_write`
and `llama_state_get_data_internal` before.
"""

from __future__ import annotations

from typing import Any

from construct import this

from formats.bodies.compositions import (
    FULL,
    FULL_FLAT,
    FULL_ROTATED,
    FULL_ROTATED_XYT,
    FULL_XY,
    FULL_XYT,
    ORIGINS,
    Dialect,
    described,
    sections,
    tells,
)
from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import I32, U32, U64
from formats.spans import Payload, Record, Table, Text

N_OUTPUTS = 1 << 24
"""Outputs that a state is believed to hold."""

WINDOW = 512
"""Bytes to fetch at once: cells of unequal length are read one by one."""

RNG_BYTES = 1 << 16
"""LLAMA_MAX_RNG_STATE."""

ARCH = (
    "arch_size" / U32 * "bytes of the architecture's name",
    "arch" / Text(this.arch_size, at_most=256) * "architecture, as in general.architecture",
)
RNG = (
    "rng_size" / U32 * "bytes of the random generator's state",
    "rng"
    / Text(this.rng_size, at_most=RNG_BYTES)
    * "state of an mt19937 as decimal numbers; b3483 to b3680",
)
OUTPUTS = (
    "n_outputs" / U32 * "outputs of the last batch; b3483 to b8132",
    "output_pos"
    / Table(this.n_outputs, I32, at_most=N_OUTPUTS)
    * "index in the batch of each output",
    "logits_size" / U64 * "logits that follow",
    "logits" / Payload(4 * this.logits_size) * "logits as F32, a row per output",
    "embd_size" / U64 * "elements of the embeddings that follow",
    "embd" / Payload(4 * this.embd_size) * "embeddings as F32, a row per output",
)

_WITH_RNG = (*ARCH, *RNG, *OUTPUTS)
_WITH_OUTPUTS = (*ARCH, *OUTPUTS)
HEADS: dict[str, tuple[tuple[Any, ...], str, Origin]] = {
    "rng": (
        _WITH_RNG,
        "the random generator behind the architecture",
        Origin("ggml-org/llama.cpp", "b3483 (PR #8699)", "src/llama.cpp", "write_rng"),
    ),
    "outputs": (
        _WITH_OUTPUTS,
        "outputs, logits and embeddings behind the architecture",
        Origin("ggml-org/llama.cpp", "b3681 (PR #9294)", "src/llama.cpp", "write_output_ids"),
    ),
    "bare": (
        ARCH,
        "the memory directly behind the architecture",
        Origin(
            "ggml-org/llama.cpp",
            "b8133 (PR #18862)",
            "src/llama-context.cpp",
            "llama_context::state_write_data",
        ),
    ),
}
"""What stands in front of the memory -> its members, what shows it, where that is written."""


def _row(
    memory: str, dialect: Dialect, name: str, since: str, until: str | None, head: str = "bare"
) -> Layout:
    members, shown, origin = HEADS[head]
    return Layout(
        id=f"context.{memory}{name and f'.{name}'}",
        title=f"state of a whole context without tokens: {described(memory)}",
        format="context",
        version=None,
        magic=b"",
        declare=lambda: Record(*members, *sections(memory, dialect)),
        origins=(origin, ORIGINS[memory]),
        since=since,
        until=until,
        tells=(shown, *tells(memory, dialect)),
        writer="llama.cpp",
        memory=memory,
        window=WINDOW,
    )


ROWS: tuple[Layout, ...] = (
    _row("kv", FULL, "", "b8133", "b11433"),
    _row("iswa", FULL, "", "b8133", "b11433"),
    _row("recurrent", FULL, "", "b8133", None),
    _row("hybrid", FULL, "", "b8133", "b11433"),
    _row("hybrid-iswa", FULL, "", "b8133", "b11433"),
    _row("mla", FULL, "", "b8133", "b11433"),
    _row("hybrid-mla", FULL, "", "b8133", "b11433"),
    _row("dsa", FULL, "", "b9411", "b11433"),
    _row("dsa-iswa", FULL, "", "b10569", "b11433"),
    _row("minimax-m3", FULL, "", "b10135", "b10243"),
    _row("msa", FULL, "", "b10244", "b11433"),
    _row("dsv4", FULL, "", "b9840", "b11433"),
    _row("hybrid-idx", FULL, "", "b11237", "b11433"),
    _row("hybrid-idx-mla", FULL, "", "b11237", "b11433"),
    _row("kv", FULL_XY, "xy", "b8215", "b10643"),
    _row("hybrid", FULL_XY, "xy", "b8215", "b10643"),
    _row("kv", FULL_XYT, "xyt", "b10636", "b11433"),
    _row("hybrid", FULL_XYT, "xyt", "b10636", "b11433"),
    _row("hybrid-ple", FULL_XYT, "xyt", "b10645", "b11433"),
    _row("hybrid-idx-values", FULL_XYT, "xyt", "b10645", "b10908"),
    _row("hybrid-idx", FULL_XYT, "xyt", "b10866", "b11433"),
    _row("kv", FULL_ROTATED, "rotated", "b11402", None),
    _row("iswa", FULL_ROTATED, "rotated", "b11402", None),
    _row("hybrid", FULL_ROTATED, "rotated", "b11402", None),
    _row("hybrid-iswa", FULL_ROTATED, "rotated", "b11402", None),
    _row("mla", FULL_ROTATED, "rotated", "b11402", None),
    _row("hybrid-mla", FULL_ROTATED, "rotated", "b11402", None),
    _row("dsa", FULL_ROTATED, "rotated", "b11402", None),
    _row("dsa-iswa", FULL_ROTATED, "rotated", "b11402", None),
    _row("msa", FULL_ROTATED, "rotated", "b11402", None),
    _row("dsv4", FULL_ROTATED, "rotated", "b11402", None),
    _row("hybrid-idx", FULL_ROTATED, "rotated", "b11402", None),
    _row("hybrid-idx-mla", FULL_ROTATED, "rotated", "b11402", None),
    _row("kv", FULL_ROTATED_XYT, "rotated-xyt", "b11402", None),
    _row("hybrid", FULL_ROTATED_XYT, "rotated-xyt", "b11402", None),
    _row("hybrid-ple", FULL_ROTATED_XYT, "rotated-xyt", "b11402", None),
    _row("hybrid-idx", FULL_ROTATED_XYT, "rotated-xyt", "b11402", None),
    _row("kv", FULL, "outputs", "b5913", "b8132", "outputs"),
    _row("iswa", FULL, "outputs", "b5913", "b8132", "outputs"),
    _row("recurrent", FULL, "outputs", "b3681", "b8132", "outputs"),
    _row("hybrid", FULL, "outputs", "b5968", "b8132", "outputs"),
    _row("hybrid-iswa", FULL, "outputs", "b7789", "b8132", "outputs"),
    _row("mla", FULL, "outputs", "b7832", "b8132", "outputs"),
    _row("hybrid-mla", FULL, "outputs", "b7832", "b8132", "outputs"),
    _row("kv", FULL_FLAT, "flat", "b3681", "b5912", "outputs"),
    _row("iswa", FULL_FLAT, "flat", "b5429", "b5912", "outputs"),
    _row("kv", FULL_FLAT, "rng", "b3483", "b3680", "rng"),
    _row("recurrent", FULL_FLAT, "rng", "b3483", "b3680", "rng"),
)
