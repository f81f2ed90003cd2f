"""Sequence states in memory: what `llama_state_seq_get_data_ext` returns and checkpoints hold.

The memory of one sequence, as in a slot file, without head and tokens. With PARTIAL_ONLY it is what
cannot be cut back to an earlier position: windowed caches and recurrent state
(`formats.bodies.compositions.PARTIAL`). From b9028 on eight bytes stand in front.

Source: ggml-org/llama.cpp b9028 (PR #22679, d6e7b033a), src/llama-context.cpp
`llama_context::state_seq_write_data`; seen in blobs of b6673, b10229 and b11549.
"""

from __future__ import annotations

from formats.bodies.compositions import (
    ANONYMOUS,
    NUMBERED,
    ORIGINS,
    ROTATED,
    ROTATED_XYT,
    STREAMED,
    STREAMED_XY,
    STREAMED_XYT,
    Dialect,
    described,
    sections,
    tells,
)
from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import LLAMA_SEQ_ID
from formats.spans import Record, Scalar

BLOB_MAGIC = 0xAF143CD8
BLOB_MAGIC_BYTES = BLOB_MAGIC.to_bytes(4, "little")

PREFIX = (
    "magic" / Scalar("I", {BLOB_MAGIC: "sequence state"}) * "0xaf143cd8; from b9028 on",
    "seq_id" / LLAMA_SEQ_ID * "sequence that was saved; ignored when it is loaded",
)

_PREFIXED = Origin(
    "ggml-org/llama.cpp",
    "b9028 (PR #22679, d6e7b033a)",
    "src/llama-context.cpp",
    "llama_context::state_seq_write_data",
    basis="ran",
)


def _row(memory: str, dialect: Dialect, name: str, since: str, until: str | None) -> Layout:
    """A blob without a prefix."""
    return Layout(
        id=f"blob.{memory}{name and f'.{name}'}",
        title=f"sequence state in memory: {described(memory)}",
        format="blob",
        version=None,
        magic=b"",
        declare=lambda: Record(*sections(memory, dialect)),
        origins=(ORIGINS[memory],),
        since=since,
        until=until,
        tells=("no prefix", *tells(memory, dialect)),
        writer="llama.cpp",
        memory=memory,
    )


def _prefixed(memory: str, dialect: Dialect, name: str, since: str, until: str | None) -> Layout:
    return Layout(
        id=f"blob.{memory}.prefixed{name and f'.{name}'}",
        title=f"sequence state in memory, with prefix: {described(memory)}",
        format="blob",
        version=None,
        magic=BLOB_MAGIC_BYTES,
        declare=lambda: Record(*PREFIX, *sections(memory, dialect)),
        origins=(_PREFIXED, ORIGINS[memory]),
        since=since,
        until=until,
        tells=("d8 3c 14 af and the sequence id in front", *tells(memory, dialect)),
        writer="llama.cpp",
        memory=memory,
    )


_END_UNPREFIXED = "b9027"
_END_UNROTATED = "b11433"

ROWS: tuple[Layout, ...] = (
    _prefixed("kv", ROTATED, "rotated", "b11402", None),
    _prefixed("iswa", ROTATED, "rotated", "b11402", None),
    _prefixed("iswa-partial", ROTATED, "rotated", "b11402", None),
    _prefixed("hybrid", ROTATED, "rotated", "b11402", None),
    _prefixed("hybrid-iswa", ROTATED, "rotated", "b11402", None),
    _prefixed("hybrid-iswa-partial", ROTATED, "rotated", "b11402", None),
    _prefixed("mla", ROTATED, "rotated", "b11402", None),
    _prefixed("hybrid-mla", ROTATED, "rotated", "b11402", None),
    _prefixed("dsa", ROTATED, "rotated", "b11402", None),
    _prefixed("dsa-iswa", ROTATED, "rotated", "b11402", None),
    _prefixed("dsa-iswa-partial", ROTATED, "rotated", "b11402", None),
    _prefixed("msa", ROTATED, "rotated", "b11402", None),
    _prefixed("dsv4", ROTATED, "rotated", "b11402", None),
    _prefixed("hybrid-idx", ROTATED, "rotated", "b11402", None),
    _prefixed("hybrid-idx-mla", ROTATED, "rotated", "b11402", None),
    _prefixed("kv", ROTATED_XYT, "rotated-xyt", "b11402", None),
    _prefixed("hybrid", ROTATED_XYT, "rotated-xyt", "b11402", None),
    _prefixed("hybrid-ple", ROTATED_XYT, "rotated-xyt", "b11402", None),
    _prefixed("hybrid-idx", ROTATED_XYT, "rotated-xyt", "b11402", None),
    _prefixed("recurrent", STREAMED, "", "b9028", None),
    _prefixed("hybrid-ple-partial", STREAMED, "", "b10645", None),
    _prefixed("kv", STREAMED, "", "b9028", _END_UNROTATED),
    _prefixed("iswa", STREAMED, "", "b9028", _END_UNROTATED),
    _prefixed("iswa-partial", STREAMED, "", "b9028", _END_UNROTATED),
    _prefixed("hybrid", STREAMED, "", "b9028", _END_UNROTATED),
    _prefixed("hybrid-iswa", STREAMED, "", "b9028", _END_UNROTATED),
    _prefixed("hybrid-iswa-partial", STREAMED, "", "b9028", _END_UNROTATED),
    _prefixed("mla", STREAMED, "", "b9028", _END_UNROTATED),
    _prefixed("hybrid-mla", STREAMED, "", "b9028", _END_UNROTATED),
    _prefixed("dsa", STREAMED, "", "b9411", _END_UNROTATED),
    _prefixed("dsa-iswa", STREAMED, "", "b10569", _END_UNROTATED),
    _prefixed("dsa-iswa-partial", STREAMED, "", "b10569", _END_UNROTATED),
    _prefixed("minimax-m3", STREAMED, "", "b10135", "b10243"),
    _prefixed("msa", STREAMED, "", "b10244", _END_UNROTATED),
    _prefixed("dsv4", STREAMED, "", "b9840", _END_UNROTATED),
    _prefixed("hybrid-idx", STREAMED, "", "b11237", _END_UNROTATED),
    _prefixed("hybrid-idx-mla", STREAMED, "", "b11237", _END_UNROTATED),
    _prefixed("kv", STREAMED_XYT, "xyt", "b10636", _END_UNROTATED),
    _prefixed("hybrid", STREAMED_XYT, "xyt", "b10636", _END_UNROTATED),
    _prefixed("hybrid-ple", STREAMED_XYT, "xyt", "b10645", _END_UNROTATED),
    _prefixed("hybrid-idx-values", STREAMED_XYT, "xyt", "b10645", "b10908"),
    _prefixed("hybrid-idx", STREAMED_XYT, "xyt", "b10866", _END_UNROTATED),
    _prefixed("kv", STREAMED_XY, "xy", "b9028", "b10643"),
    _prefixed("hybrid", STREAMED_XY, "xy", "b9028", "b10643"),
    _row("recurrent", STREAMED, "", "b3483", _END_UNPREFIXED),
    _row("kv", STREAMED, "", "b5913", _END_UNPREFIXED),
    _row("iswa", STREAMED, "", "b5913", _END_UNPREFIXED),
    _row("iswa-partial", STREAMED, "", "b6160", _END_UNPREFIXED),
    _row("hybrid", STREAMED, "", "b5968", _END_UNPREFIXED),
    _row("hybrid-iswa", STREAMED, "", "b7789", _END_UNPREFIXED),
    _row("hybrid-iswa-partial", STREAMED, "", "b7789", _END_UNPREFIXED),
    _row("mla", STREAMED, "", "b7832", _END_UNPREFIXED),
    _row("hybrid-mla", STREAMED, "", "b7832", _END_UNPREFIXED),
    _row("kv", STREAMED_XY, "xy", "b8215", _END_UNPREFIXED),
    _row("hybrid", STREAMED_XY, "xy", "b8215", _END_UNPREFIXED),
    _row("kv", NUMBERED, "flat", "b5485", "b5912"),
    _row("iswa", NUMBERED, "flat", "b5485", "b5912"),
    _row("kv", ANONYMOUS, "anonymous", "b3483", "b5484"),
    _row("iswa", ANONYMOUS, "anonymous", "b5429", "b5484"),
)
