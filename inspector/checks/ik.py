"""Traps that only ik_llama.cpp's states have."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from formats.ggml_types import IK
from inspector.checks.subject import Subject
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.sections import Block
from inspector.source import Source
from inspector.span import Span

_Q8_KV = 151
_HEAD = struct.Struct("<fi")

register(
    Code(
        "ik.empty-state",
        Severity.ERROR,
        "An unused slot that ik_llama.cpp saved: no cells",
        "loading it aborts ik_llama.cpp: it searches a place for no cells",
        RemedyKind.NONE,
        "delete it; nothing is lost",
        "ik_llama.cpp 0.1.5 (ggsq 3) and 8337e4cd3 (ggsq 4), measured",
    ),
    Code(
        "ik.keys-saved-short",
        Severity.ERROR,
        "Keys of type q8_KV were saved short: the model has several KV heads",
        "the restore is accepted; the keys of the last cells are missing, and answers go wrong",
        RemedyKind.LOSSY,
        "cut the token list, in .tokens.json too, to the cells whose keys are complete: the server "
        "computes the others",
        "ik_llama.cpp 2025-02-19 to 8337e4cd3, row size of q8_KV in write_kv_cache_data",
    ),
)


def check_ik(subject: Subject, source: Source) -> Iterator[Finding]:
    """Empty states, and keys that were saved short."""
    if subject.identification.writer != IK or not subject.is_state:
        return
    attention = subject.section("attention")
    if attention is None or attention.node.get("cell_count") is None:
        return
    if not attention.declared_cells and not subject.reading.decoding.stops:
        yield Finding(
            "ik.empty-state",
            attention.path,
            attention.span,
            "the state holds no cells",
            "at least 1 cell",
            "0",
        )
    short = [block for block in attention.k if (heads := heads_in(source, block)) and heads > 1]
    if short:
        heads = heads_in(source, short[0]) or 1
        size, cells = short[0].row_bytes, short[0].n_cells
        whole = complete_cells(source, short[0])
        head = short[0].span.start
        yield Finding(
            "ik.keys-saved-short",
            short[0].path,
            Span(head, head + 12),
            f"{len(short)} layers have rows of {heads} heads that were saved 8 bytes short for "
            f"each head but one: {whole:,} of {cells:,} cells are complete",
            f"{size + 8 * (heads - 1):,} bytes a cell",
            f"{size:,} bytes a cell",
        )


def complete_cells(source: Source, block: Block) -> int:
    """Cells of a block of keys that are all there: q8_KV keys of several heads are saved short."""
    size = block.row_bytes + _HEAD.size * ((heads_in(source, block) or 1) - 1)
    return block.n_cells * block.row_bytes // size if size else block.n_cells


def heads_in(source: Source, block: Block) -> int | None:
    """KV heads of a q8_KV row, by the sums that stand in it; None if they fit no number of heads.

    Every head is an f32 scale, the i32 sum of its quants, then the quants.
    """
    if block.type_id != _Q8_KV or block.data is None:
        return None
    row = source.read_at(block.data.start, min(block.row_bytes, len(block.data), 1 << 16))
    n_quants = block.row_bytes - 8
    for heads in range(1, 129):
        size, rest = divmod(n_quants, heads)
        if size < 1 or rest or len(row) < 8 + size:
            continue
        quants = struct.unpack_from(f"<{size}b", row, 8)
        if _HEAD.unpack_from(row)[1] == sum(quants):
            return heads
    return None
