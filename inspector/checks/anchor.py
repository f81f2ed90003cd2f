"""The window anchor: a cell that was put in front of a window so that a server reuses the state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from formats.ggml_types import IK
from inspector.checks.subject import Subject
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.sections import Block, Section
from inspector.source import Source

register(
    Code(
        "cells.window-anchor",
        Severity.NOTE,
        "One masked cell in front of the window, with zero rows",
        "a restore succeeds, and servers that keep no checkpoints reuse the whole prompt (b9473 "
        "and later, as long as the window lasts); the cell's content can never be attended to",
        RemedyKind.NONE,
        "not needed: a tool put the cell there to open the gate of those servers",
        "llama.cpp b9538, b10566, b10809, b11063 and b11549 with gemma2, gemma3 and gpt-oss: "
        "restore of such files, answers compared with those of a cold run",
    )
)

MOST_BYTES = 1 << 16
"""Bytes that are read of one block at most."""


def check_anchor(subject: Subject, source: Source) -> Iterator[Finding]:
    """Whether the first cell of the window is an anchor: by its place, then by its rows.

    Args:
        subject: the state.
        source: the open file, of which only the rows of that cell are read, up to the first that
            is not zero.
    """
    layout, swa, full = subject.reading.layout, subject.section("swa"), subject.section("attention")
    if layout.format != "ggsq" or layout.writer == IK or swa is None or full is None:
        return
    model = subject.model
    if model is not None and (model.swa_type, model.n_swa) != ("standard", swa.cells - 1):
        return
    if not _in_front_of_a_window(swa, full):
        return
    blocks = [block for block in (*swa.k, *swa.v) if block.row_bytes]
    if not blocks or not all(_is_zero(source, block) for block in blocks):
        return
    first, n_swa = int(swa.pos[0]), swa.cells - 1
    path = f"{swa.path}.streams[{swa.streams[0]}]" if swa.node.get("streams") else swa.path
    yield Finding(
        "cells.window-anchor",
        f"{path}.cells[0]",
        swa.tables[0].row_span(0),
        f"the cell at position {first} stands in front of a window of {n_swa:,} cells, "
        f"{first + 1} to {swa.pos_max}, and all its rows are zero",
        f"{n_swa:,} cells, as servers save them",
        f"{swa.cells:,}",
        (
            f"positions {first} to {swa.pos_max} are contiguous and end where the state does",
            _looked_at(blocks),
        ),
    )


def _in_front_of_a_window(swa: Section, full: Section) -> bool:
    """Whether the first cell is the lowest, and the positions behind it are those of a window."""
    if len(swa.tables) != 1 or swa.cells < 2 or swa.cells > full.cells:
        return False
    contiguous = bool((np.diff(swa.ordered) == 1).all())
    return contiguous and int(swa.pos[0]) == swa.pos_min and swa.pos_max == full.pos_max


def _is_zero(source: Source, block: Block) -> bool:
    """Whether the row of the first cell is zero, as far as it is read."""
    if block.data is None:
        return False
    if not block.element_bytes:
        size = min(block.row_bytes, MOST_BYTES)
        row = source.read_at(block.data.start, size)
        return len(row) == size and not any(row)
    size = _channels(block) * block.n_cells * block.element_bytes
    raw = source.read_at(block.data.start, size)
    if not size or len(raw) < size:
        return False
    channels = np.frombuffer(raw, np.uint8).reshape(-1, block.n_cells, block.element_bytes)
    return not channels[:, 0].any()


def _channels(block: Block) -> int:
    """Channels of transposed values that are read."""
    return min(block.row_bytes, MOST_BYTES // block.n_cells) // block.element_bytes


def _looked_at(blocks: list[Block]) -> str:
    """What was read to know that."""
    words = f"zero in {len(blocks):,} rows"
    if any(b.element_bytes and _channels(b) * b.element_bytes < b.row_bytes for b in blocks):
        fewest = min(_channels(block) for block in blocks if block.element_bytes)
        words += f", of transposed values the first {fewest:,} channels"
    return words
