"""Types that lie though the file reads well, where other layers or the model tell the right one."""

from __future__ import annotations

from collections.abc import Iterator

from formats.ggml_types import IK, TURBOQUANT, TYPES, GgmlType
from inspector.mend import Mend
from inspector.model.section import SectionExpectation
from inspector.peers import by_choice, lopsided, outvoted, series
from inspector.repair.draft import expected_of
from inspector.repair.known import Known
from inspector.report import Report
from inspector.sections import Block, Section
from inspector.server.restore import own_caches
from inspector.server.target import Target, cache_type
from inspector.span import Span

_TYPE_BYTES = 4


def known_type(report: Report, target: Target | None) -> Known | None:
    """The first type word that the model of the server contradicts, or that most layers do.

    Args:
        report: of the file.
        target: the server that is to load it; None without one.
    """
    for found in (_of_the_model(report, target), _of_most_layers(report)):
        for block, type_id, why in found:
            span = Span(block.span.start, block.span.start + _TYPE_BYTES)
            side = block.path.rpartition("[")[0].rpartition(".")[2]
            name = f"{'v' if side == 'v' else 'k'}_type"
            return Known(Mend(f"{block.path}.{name}", span, block.type_id, type_id), why)
    return None


def _of_most_layers(report: Report) -> Iterator[tuple[Block, int, str]]:
    """Types that most layers of one cache, with rows of the same size, do not have.

    The full and the windowed cache of a context have the same types.
    """
    attention = [part for part in report.sections if part.kind in ("attention", "swa")]
    for section in report.sections:
        if section.kind in ("recurrent", "dsv4"):
            continue
        for name, blocks in series(section).items():
            others = [
                block
                for part in attention
                if section in attention and part is not section
                for block in series(part).get(name, ())
            ]
            freely = by_choice(section, blocks)
            for block, type_id in outvoted(blocks, others, freely=freely):
                yield block, type_id, "other layers have rows of the same size, of another type"
        odd = lopsided(section)
        if odd is not None and odd[1] is not None:
            why = "its keys and values are not as wide, one by the other, as in all other layers"
            yield odd[0], odd[1], why


def _of_the_model(report: Report, target: Target | None) -> Iterator[tuple[Block, int, str]]:
    """Types with which a row of one layer is not as wide as the model has it; most others are.

    Of several that make it so the type of the server comes first, then those of its series.
    """
    if target is None or target.memory is None:
        return
    own = own_caches(report, target, [])
    if own is None or isinstance(own, str):
        return
    for section in report.sections:
        expected = expected_of(own, section.path.rpartition(".")[2], target)
        of_ik = target.build.server == IK
        if expected is None or section.marks_absent != of_ik:
            continue  # its layers are counted otherwise
        if section.kind in ("attention", "swa"):
            yield from _of_another_width(section, expected, target)


def _of_another_width(
    section: Section, expected: SectionExpectation, target: Target
) -> Iterator[tuple[Block, int, str]]:
    wrong = []
    for side, name in (("k", expected.type_k), ("v", expected.type_v)):
        blocks: tuple[Block, ...] = getattr(section, side)
        if not blocks:
            continue
        rows: tuple[int, ...] = getattr(expected, side)
        kind = cache_type(name, target.build) if name is not None else None
        layers = [int(block.path.rpartition("[")[2].rstrip("]")) for block in blocks]
        if kind is None or kind.writer == TURBOQUANT or max(layers) >= len(rows):
            return
        for block, layer in zip(blocks, layers, strict=True):
            width = kind.elements(rows[layer])
            if not any(one.elements(block.row_bytes) == width for one in block.readings):
                asked = [[kind.id], [one.type_id for one in blocks]]
                asked.append([one.type_id for one in section.blocks])
                fitting = ({one for one in ids if _fits(one, block, width)} for ids in asked)
                right: set[int] = next(filter(None, fitting), set())
                wrong.append((block, right, f"rows of the model have {width:,} elements"))
    if 2 * len(wrong) > len(section.k) + len(section.v):
        return  # it is of another model
    for block, right, why in wrong:
        if len(right) == 1:
            yield block, right.pop(), why


def _fits(type_id: int, block: Block, width: int | None) -> bool:
    """Whether the row of a block has a width as numbers of a type."""
    kinds: list[GgmlType] = [kind for kind in TYPES if kind.id == type_id]
    if block.element_bytes:
        kinds = [kind for kind in kinds if kind.block_bytes == block.element_bytes]
    return bool(width) and any(kind.elements(block.row_bytes) == width for kind in kinds)
