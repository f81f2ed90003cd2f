"""The numbers themselves (`--deep`): values that no model computes, and cells that are empty.

Every stored block is read once, a chunk at a time. Floats are judged one by one, quantized blocks
by their scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from formats.bodies.cells import N_CELLS
from formats.ggml_types import GgmlType
from inspector.arrays.numbers import WORDS, magnitudes, sum_of_squares
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.sections import Block, Section
from inspector.source import Source
from inspector.span import Span

CHUNK = 1 << 18
"""Bytes read at once: they and what is made of them stay in the cache of a core."""
FLOOD = 0.25
"""Share of the numbers of a block that may be subnormal."""
FEWEST = 256
"""Numbers that make a share worth computing."""
LISTED = 8
"""Blocks that a finding names."""

register(
    Code(
        "tensors.non-finite",
        Severity.ERROR,
        "Keys, values or a state contain NaN or infinity",
        "the file loads and answers turn to noise; erasing the slot does not help: keys and "
        "values spoil later prompts until new cells take their place, a recurrent state until the "
        "server is started again; before b11193 other slots can be poisoned too",
        RemedyKind.LOSSY,
        "keep the cells in front of the first bad one; the server computes the rest again",
        "llama.cpp issue #27068; ik_llama.cpp 8337e4cd3, restore of such a file; prompts after an "
        "erase on llama.cpp b10229, b10809 and b11549",
    ),
    Code(
        "tensors.zero-rows",
        Severity.WARNING,
        "Rows of cells that are in use are all zero",
        "the file loads; the tokens of these cells are as good as forgotten",
        RemedyKind.LOSSY,
        "keep the cells in front of the first empty one; the server computes the rest again",
        "holes in copied files; saves of slots that a failed restore had emptied",
    ),
    Code(
        "tensors.subnormal-flood",
        Severity.WARNING,
        "Many numbers of a block are smaller than what a model computes",
        "the file loads; if the bytes are shifted or of another type, answers turn to noise",
        RemedyKind.NONE,
        "what the numbers were cannot be known",
        "intact states of 21 models, llama.cpp b4798 to b11549 and ik_llama.cpp: at most 1 in 640",
    ),
)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the numbers of one block are like. Words are its numbers, or its scales if quantized.

    Attributes:
        block: where they are.
        type: what they were read as.
        n_words: words that were looked at.
        non_finite: words that are NaN or infinite.
        first_non_finite: offset of the first of them; None if all are finite.
        zero_rows: cells of which all numbers are zero.
        first_zero_row: the first such cell; None if there is none.
        subnormal: words that are not zero, but too small for the full precision of their type.
        rms: root of the mean square of the numbers; NaN if some are not finite.
    """

    block: Block
    type: GgmlType
    n_words: int
    non_finite: int
    first_non_finite: int | None
    zero_rows: int
    first_zero_row: int | None
    subnormal: int
    rms: float

    @property
    def flooded(self) -> bool:
        """Whether too many numbers are subnormal."""
        return self.n_words >= FEWEST and self.subnormal > FLOOD * self.n_words


def statistics(source: Source, blocks: Iterable[Block]) -> Iterator[Statistics]:
    """What the numbers of blocks are like; blocks of a type that is not understood are left out.

    Args:
        source: the open file.
        blocks: stored blocks of it, each of which is read once.
    """
    for block in blocks:
        kind = next((t for t in block.readings[:1] if t.name in WORDS), None)
        if kind is None or block.data is None or not len(block.data):
            continue
        if block.element_bytes in (0, kind.block_bytes):
            yield _measured(source, block, block.data, kind)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Bytes of some lines, or of a part of one. A line is a row; a channel if transposed."""

    raw: bytes
    offset: int
    lines: slice
    columns: slice


def _tiles(source: Source, data: Span, line_bytes: int, unit: int) -> Iterator[_Tile]:
    """Cut `data` into lines, and lines into whole units if they are longer than a chunk."""
    n_lines = len(data) // line_bytes
    at_once = max(1, CHUNK // line_bytes)
    width = min(line_bytes, max(1, CHUNK // unit) * unit)
    for line in range(0, n_lines, at_once):
        lines = slice(line, min(n_lines, line + at_once))
        for column in range(0, line_bytes, width):
            columns = slice(column // unit, min(line_bytes, column + width) // unit)
            offset = data.start + line * line_bytes + column
            size = (lines.stop - lines.start) * (columns.stop - columns.start) * unit
            raw = source.read_at(offset, size)
            if len(raw) < size:
                return
            yield _Tile(raw, offset, lines, columns)


def _measured(source: Source, block: Block, data: Span, kind: GgmlType) -> Statistics:
    words, transposed = WORDS[kind.name], bool(block.element_bytes)
    line_bytes = block.n_cells * block.element_bytes if transposed else block.row_bytes
    n_cells = block.n_cells if transposed else len(data) // line_bytes
    largest = np.zeros(n_cells if n_cells <= N_CELLS else 0, words.code)
    n_words = n_bytes = non_finite = subnormal = 0
    first_non_finite, squares = None, 0.0
    for tile in _tiles(source, data, line_bytes, kind.block_bytes):
        parts = magnitudes(tile.raw, kind)
        either = parts[0] if len(parts) == 1 else np.maximum(*parts)
        if len(largest):
            lines = either.reshape(tile.lines.stop - tile.lines.start, -1)
            cells, axis = (tile.columns, 0) if transposed else (tile.lines, 1)
            np.maximum(largest[cells], lines.max(axis=axis), out=largest[cells])
        if either.max() >= words.infinite:
            bad = np.flatnonzero(either >= words.infinite)
            non_finite += sum(int(np.count_nonzero(part >= words.infinite)) for part in parts)
            if first_non_finite is None:
                first_non_finite = tile.offset + int(bad[0]) * kind.block_bytes
        # zero wraps around to the largest integer, so one comparison leaves it out
        subnormal += sum(int(np.count_nonzero(part - 1 < words.normal - 1)) for part in parts)
        squares += sum_of_squares(tile.raw, kind)
        n_words += sum(part.size for part in parts)
        n_bytes += len(tile.raw)
    all_read = n_bytes == len(data) // line_bytes * line_bytes  # the file may shrink meanwhile
    empty = np.flatnonzero(largest == 0) if all_read else largest[:0]
    n_numbers = n_bytes // kind.block_bytes * kind.block_elements
    return Statistics(
        block=block,
        type=kind,
        n_words=n_words,
        non_finite=non_finite,
        first_non_finite=first_non_finite,
        zero_rows=len(empty),
        first_zero_row=int(empty[0]) if len(empty) else None,
        subnormal=subnormal,
        rms=math.sqrt(squares / n_numbers) if n_numbers and not non_finite else math.nan,
    )


def check_tensors(parts: Iterable[Section], measured: Iterable[Statistics]) -> Iterator[Finding]:
    """What is wrong with the numbers of some sections.

    Args:
        parts: the sections.
        measured: what `statistics` found in their blocks.
    """
    by_path = {one.block.path: one for one in measured}
    for section in parts:
        found = [by_path[block.path] for block in section.blocks if block.path in by_path]
        yield from _non_finite(section, [one for one in found if one.non_finite])
        if section.kind in ("attention", "swa"):
            yield from _zero_rows(section, [one for one in found if _forgotten(section, one)])
        yield from _floods(section, [one for one in found if one.flooded])


def _forgotten(section: Section, one: Statistics) -> bool:
    """Whether cells that are attended to have zero rows.

    A single empty cell at the start of a window is allowed: it widens the range of positions so
    that servers reuse the state, and lies outside the window of whatever comes next.
    """
    if section.kind == "swa" and one.zero_rows == 1 and len(section.tables) == 1:
        return int(section.pos[one.first_zero_row or 0]) != section.pos_min
    return one.zero_rows > 0


def _non_finite(section: Section, found: list[Statistics]) -> Iterator[Finding]:
    if not found:
        return
    block, kind = found[0].block, found[0].type
    offset = found[0].first_non_finite or 0
    what = "numbers" if kind.block_elements == 1 else "scales"
    yield Finding(
        "tensors.non-finite",
        f"{block.path}.data",
        Span(offset, offset + kind.block_bytes),
        f"NaN or infinity in {_counted(found)} of {section.path}, "
        f"first in cell {_cell(block, offset)} of {block.path}",
        f"finite {what}",
        f"{sum(one.non_finite for one in found):,} that are not finite",
        _listed(found, lambda one: f"{one.non_finite:,} of {one.n_words:,}"),
    )


def _zero_rows(section: Section, found: list[Statistics]) -> Iterator[Finding]:
    if not found:
        return
    block, cell = found[0].block, found[0].first_zero_row or 0
    start = _data(block).start + cell * block.row_bytes
    yield Finding(
        "tensors.zero-rows",
        f"{block.path}.data",
        _data(block) if block.element_bytes else Span(start, start + block.row_bytes),
        f"cells without content in {_counted(found)} of {section.path}, "
        f"first cell {cell} of {block.path}",
        "rows with numbers in them",
        f"{found[0].zero_rows:,} of {block.n_cells:,} rows all zero",
        _listed(found, lambda one: f"{one.zero_rows:,} of {one.block.n_cells:,} rows"),
    )


def _floods(section: Section, found: list[Statistics]) -> Iterator[Finding]:
    if not found:
        return
    block = found[0].block
    yield Finding(
        "tensors.subnormal-flood",
        f"{block.path}.data",
        _data(block),
        f"improbably small numbers in {_counted(found)} of {section.path}, first in {block.path}",
        f"at most {FLOOD:.0%} subnormal",
        f"{found[0].subnormal / found[0].n_words:.0%}",
        _listed(found, lambda one: f"{one.subnormal:,} of {one.n_words:,}"),
    )


def _data(block: Block) -> Span:
    assert block.data is not None  # nothing else was measured
    return block.data


def _cell(block: Block, offset: int) -> int:
    """The cell that the byte at `offset` belongs to."""
    inside = offset - _data(block).start
    if block.element_bytes:
        return inside // block.element_bytes % block.n_cells
    return inside // block.row_bytes


def _counted(found: list[Statistics]) -> str:
    return f"{len(found):,} block" + "s" * (len(found) > 1)


def _listed(found: list[Statistics], says: Callable[[Statistics], str]) -> tuple[str, ...]:
    """What is so in each block, for the first few."""
    listed = tuple(f"{one.block.path} ({one.type.name}): {says(one)}" for one in found[:LISTED])
    more = len(found) - LISTED
    return (*listed, f"and {more:,} blocks more") if more > 0 else listed
