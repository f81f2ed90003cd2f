"""Blocks of one series against each other: rows of one size hold numbers of one type."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from formats.ggml_types import IK, TURBOQUANT, TYPES
from inspector.sections import Block, Section


def series(section: Section) -> dict[str, tuple[Block, ...]]:
    """The blocks by the list they stand in: keys, values, indexer keys, states."""
    found: dict[str, list[Block]] = {}
    for block in section.blocks:
        name = block.path.rpartition("[")[0].rpartition(".")[2]
        found.setdefault(name, []).append(block)
    return {name: tuple(blocks) for name, blocks in found.items()}


def by_choice(section: Section, blocks: Iterable[Block]) -> bool:
    """Whether the program that wrote a section lets its layers have types of their own."""
    writers = {reading.writer for block in blocks for reading in block.readings[:1]}
    return bool(writers & {IK, TURBOQUANT}) or section.node.get("v_state") is not None


def contradict(blocks: Iterable[Block]) -> bool:
    """Whether rows of one size are said to have several numbers of elements."""
    return any(
        not _widths(one) & _widths(other)
        for alike in _by_size(block for block in blocks if block.readings)
        for one in alike[:1]
        for other in alike[1:]
    )


def outvoted(
    blocks: Iterable[Block], others: Iterable[Block], *, freely: bool
) -> Iterator[tuple[Block, int]]:
    """Blocks of another type than most whose rows have their size.

    Args:
        blocks: of one series.
        others: of other series that one server stores in the same type.
        freely: whether the program lets layers differ, so that only types of another number of
            elements contradict each other.

    Yields:
        The block, and the type of the others.
    """
    more = Counter(block.type_id for block in others)
    for alike in _by_size(blocks):
        votes = Counter(block.type_id for block in alike)
        ballots = votes if freely else votes + more
        common, n = ballots.most_common(1)[0]
        if 2 * n <= ballots.total() or common not in votes:
            continue
        peer = next(block for block in alike if block.type_id == common)
        for block in alike:
            if block.type_id == common or not block.row_bytes:
                continue
            if not freely or not _widths(block) & _widths(peer):
                yield block, common


def lopsided(section: Section) -> tuple[Block, int | None] | None:
    """The layer of which keys and values are not as wide, one by the other, as in all others.

    Of ik_llama.cpp alone, where layers have types of their own and no rows are padded.

    Returns:
        One of its blocks, and the type with which they would be, if there is but one, among those
        of other layers or, if none of them is, among all; None without such a layer.
    """
    if not section.marks_absent:
        return None
    values = {_layer(block): block for block in section.v}
    pairs = [(block, values[_layer(block)]) for block in section.k if _layer(block) in values]
    shapes = Counter(_shape(*pair) for pair in pairs)
    common, n = shapes.most_common(1)[0] if shapes else (None, 0)
    if common is None or n < _FEWEST_ALIKE or n != len(pairs) - 1:
        return None
    k, v = next(pair for pair in pairs if _shape(*pair) != common)
    own = [{block.type_id for block in blocks} for blocks in (section.k, section.v)]
    every = [{kind.id for kind in TYPES if kind.cache}] * 2
    for keys, held in (own, every):
        found = [(k, one) for one in keys if _shape(replace(k, type_id=one), v) == common]
        found += [(v, one) for one in held if _shape(k, replace(v, type_id=one)) == common]
        if found:
            return found[0] if len(found) == 1 else (k, None)
    return k, None


_FEWEST_ALIKE = 2
"""Layers that show how wide keys and values are."""


def _layer(block: Block) -> str:
    return block.path.rpartition("[")[2]


def _shape(k: Block, v: Block) -> Fraction | None:
    """Elements of a key by those of a value; None if one is not known."""
    sides = [block.readings[0].elements(block.row_bytes) for block in (k, v) if block.readings]
    if len(sides) < len((k, v)) or not all(sides):
        return None
    return Fraction(sides[0] or 0, sides[1] or 1)


def _by_size(blocks: Iterable[Block]) -> list[list[Block]]:
    found: defaultdict[tuple[int, int], list[Block]] = defaultdict(list)
    for block in blocks:
        found[block.row_bytes, block.element_bytes].append(block)
    return list(found.values())


def _widths(block: Block) -> set[int | None]:
    """Elements of a row, of all types that its id can mean."""
    return {kind.elements(block.row_bytes) for kind in block.readings}
