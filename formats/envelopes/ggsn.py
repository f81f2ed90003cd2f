"""Whole-context state files since July 2024: `--prompt-cache` and `llama_state_save_file`.

Tokens, always as a plain list, in front of what `formats.envelopes.context` declares. Unlike slot
files they must end exactly where the memory ends.

Source: ggml-org/llama.cpp, src/llama-context.cpp `llama_context::state_save_file`.
"""

from __future__ import annotations

from typing import Any

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
from formats.envelopes.context import HEADS, WINDOW
from formats.envelopes.tokens import PLAIN_TOKENS
from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import U32
from formats.spans import Record, Scalar

GGSN_MAGIC = 0x6767736E
GGSN_MAGIC_BYTES = b"nsgg"

MAGIC = (
    "magic" / Scalar("I", {GGSN_MAGIC: "ggsn"}) * '0x6767736e, on disk "nsgg"',
    "version" / U32 * "format version; a loader takes only its own",
)
TOKENS = (
    "n_token_count" / U32 * "tokens that follow",
    "tokens" / PLAIN_TOKENS * "tokens that the state stands for",
)


def session_file(*body: Any) -> Record:
    """A whole-context file since version 8: head, tokens, the state of the context."""
    return Record(*MAGIC, *TOKENS, *body)


_VERSIONS = {
    version: Origin("ggml-org/llama.cpp", commit, file, "LLAMA_SESSION_VERSION", basis="ran")
    for version, commit, file in (
        (8, "b3483 (PR #8699)", "src/llama.cpp"),
        (9, "b3681 (PR #9294)", "include/llama.h"),
        (10, "b10644 (PR #27762, 925e11799)", "include/llama.h"),
        (11, "b11434 (PR #28498, 210791069)", "include/llama.h"),
    )
}


_SHARED_WITH_IK = (8, "kv")
"""Byte-identical to what ik_llama.cpp wrote as version 8."""


def _row(
    version: int,
    memory: str,
    dialect: Dialect,
    name: str,
    since: str,
    until: str | None,
    head: str = "bare",
) -> Layout:
    members, shown, origin = HEADS[head]
    return Layout(
        id=f"ggsn{version}.{memory}{name and f'.{name}'}",
        title=f"whole-context file, version {version}: {described(memory)}",
        format="ggsn",
        version=version,
        magic=GGSN_MAGIC_BYTES,
        declare=lambda: session_file(*members, *sections(memory, dialect)),
        origins=(_VERSIONS[version], origin, ORIGINS[memory]),
        since=since,
        until=until,
        tells=(shown, *tells(memory, dialect)),
        writer=None if (version, memory) == _SHARED_WITH_IK else "llama.cpp",
        memory=memory,
        window=WINDOW,
    )


_END9 = "b10643"
_END10 = "b11433"

ROWS: tuple[Layout, ...] = (
    _row(8, "kv", FULL_FLAT, "", "b3483", "b3680", "rng"),
    _row(8, "recurrent", FULL_FLAT, "", "b3483", "b3680", "rng"),
    _row(9, "kv", FULL_FLAT, "flat", "b3681", "b5912", "outputs"),
    _row(9, "iswa", FULL_FLAT, "flat", "b5429", "b5912", "outputs"),
    _row(9, "kv", FULL, "outputs", "b5913", "b8132", "outputs"),
    _row(9, "iswa", FULL, "outputs", "b5913", "b8132", "outputs"),
    _row(9, "recurrent", FULL, "outputs", "b3681", "b8132", "outputs"),
    _row(9, "hybrid", FULL, "outputs", "b5968", "b8132", "outputs"),
    _row(9, "hybrid-iswa", FULL, "outputs", "b7789", "b8132", "outputs"),
    _row(9, "mla", FULL, "outputs", "b7832", "b8132", "outputs"),
    _row(9, "hybrid-mla", FULL, "outputs", "b7832", "b8132", "outputs"),
    _row(9, "kv", FULL, "", "b8133", _END9),
    _row(9, "iswa", FULL, "", "b8133", _END9),
    _row(9, "recurrent", FULL, "", "b8133", _END9),
    _row(9, "hybrid", FULL, "", "b8133", _END9),
    _row(9, "hybrid-iswa", FULL, "", "b8133", _END9),
    _row(9, "mla", FULL, "", "b8133", _END9),
    _row(9, "hybrid-mla", FULL, "", "b8133", _END9),
    _row(9, "dsa", FULL, "", "b9411", _END9),
    _row(9, "dsa-iswa", FULL, "", "b10569", _END9),
    _row(9, "minimax-m3", FULL, "", "b10135", "b10243"),
    _row(9, "msa", FULL, "", "b10244", _END9),
    _row(9, "dsv4", FULL, "", "b9840", _END9),
    _row(9, "kv", FULL_XY, "xy", "b8215", _END9),
    _row(9, "hybrid", FULL_XY, "xy", "b8215", _END9),
    _row(10, "kv", FULL, "", "b10636", _END10),
    _row(10, "iswa", FULL, "", "b10636", _END10),
    _row(10, "recurrent", FULL, "", "b10636", _END10),
    _row(10, "hybrid", FULL, "", "b10636", _END10),
    _row(10, "hybrid-iswa", FULL, "", "b10636", _END10),
    _row(10, "mla", FULL, "", "b10636", _END10),
    _row(10, "hybrid-mla", FULL, "", "b10636", _END10),
    _row(10, "dsa", FULL, "", "b10636", _END10),
    _row(10, "dsa-iswa", FULL, "", "b10636", _END10),
    _row(10, "msa", FULL, "", "b10636", _END10),
    _row(10, "dsv4", FULL, "", "b10636", _END10),
    _row(10, "kv", FULL_XYT, "xyt", "b10636", _END10),
    _row(10, "hybrid", FULL_XYT, "xyt", "b10636", _END10),
    _row(10, "hybrid-ple", FULL_XYT, "xyt", "b10645", _END10),
    _row(10, "hybrid-idx-values", FULL_XYT, "xyt", "b10645", "b10908"),
    _row(10, "hybrid-idx", FULL_XYT, "xyt", "b10866", _END10),
    _row(10, "hybrid-idx", FULL, "", "b11237", _END10),
    _row(10, "hybrid-idx-mla", FULL, "", "b11237", _END10),
    _row(11, "kv", FULL_ROTATED, "", "b11402", None),
    _row(11, "iswa", FULL_ROTATED, "", "b11402", None),
    _row(11, "recurrent", FULL_ROTATED, "", "b11402", None),
    _row(11, "hybrid", FULL_ROTATED, "", "b11402", None),
    _row(11, "hybrid-iswa", FULL_ROTATED, "", "b11402", None),
    _row(11, "mla", FULL_ROTATED, "", "b11402", None),
    _row(11, "hybrid-mla", FULL_ROTATED, "", "b11402", None),
    _row(11, "dsa", FULL_ROTATED, "", "b11402", None),
    _row(11, "dsa-iswa", FULL_ROTATED, "", "b11402", None),
    _row(11, "msa", FULL_ROTATED, "", "b11402", None),
    _row(11, "dsv4", FULL_ROTATED, "", "b11402", None),
    _row(11, "kv", FULL_ROTATED_XYT, "xyt", "b11402", None),
    _row(11, "hybrid", FULL_ROTATED_XYT, "xyt", "b11402", None),
    _row(11, "hybrid-ple", FULL_ROTATED_XYT, "xyt", "b11402", None),
    _row(11, "hybrid-idx", FULL_ROTATED_XYT, "xyt", "b11402", None),
    _row(11, "hybrid-idx", FULL_ROTATED, "", "b11402", None),
    _row(11, "hybrid-idx-mla", FULL_ROTATED, "", "b11402", None),
)
