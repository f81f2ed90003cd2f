"""Words that lie though the file reads well, where the rest of it or its model tells the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from inspector.mend import Mend
from inspector.model.identity import Identity
from inspector.node import Node, Rows, walk
from inspector.report import Report
from inspector.sections import Section
from inspector.span import Span

_ASTRAY = "loaders go astray there, or refuse it"
_TRIED = (
    "counts of cells and of tokens on b10229 and b11549; count and magic of checkpoints on b11549"
)
_LEAST_CELLS = 4
"""So many show a row without gaps in which one is out of place."""


@dataclass(frozen=True, slots=True)
class Known:
    """A word with the value that belongs there.

    Attributes:
        mend: the word.
        why: how that is known.
        proven: on which servers such words were put right.
    """

    mend: Mend
    why: str = _ASTRAY
    proven: str = ""


def known_word(report: Report, identity: Identity | None) -> Known | None:
    """The first of them.

    Args:
        report: of the file.
        identity: how its rows compare with the model of the server; None without a server.
    """
    wrong = (one for one in _known(report, identity) if one.mend.value != one.mend.stored)
    return next(wrong, None)


def _known(report: Report, identity: Identity | None) -> Iterator[Known]:
    if report.identification.mend is not None:
        yield Known(report.identification.mend, proven=_TRIED)
    for finding in report.findings:
        if finding.code in ("appendix.magic", "recurrent.layer-count"):
            magic = finding.code == "appendix.magic"
            value = int.from_bytes(b"SCKP", "little") if magic else int(finding.expected)
            yield Known(_other(report, finding.path, finding.span, value), proven=_TRIED)
    yield from _layers_of_checkpoints(report)
    for section in report.sections:
        if section.kind in ("attention", "swa") and len(section.tables) == 1:
            yield from _out_of_place(report, section, section.tables[0])
    if identity is not None:
        yield from _rotated(report, identity)
        yield from _end_of_tokens(report, identity)


def _other(report: Report, path: str, span: Span, value: int) -> Mend:
    stored = int.from_bytes(report.source.read_at(span.start, len(span)), "little", signed=True)
    return Mend(path, span, stored, value)


def _recurrent(report: Report) -> Section | None:
    return next((part for part in report.sections if part.kind == "recurrent"), None)


def _layers_of_checkpoints(report: Report) -> Iterator[Known]:
    """The number of layers of a recurrent state that all its checkpoints contradict."""
    recurrent = _recurrent(report)
    node = recurrent.node.get("n_layer") if recurrent is not None else None
    if recurrent is None or node is None:
        return
    named = {
        part.n_layer
        for one in report.checkpoints
        if one.record.blob is not None
        for part in one.record.blob.sections
        if part.kind == "recurrent"
    }
    stored = sum(len(part.k) + len(part.r) for part in report.sections)
    if named == {stored} and stored != recurrent.n_layer:
        yield Known(_other(report, f"{recurrent.path}.n_layer", node.span, stored))


def _out_of_place(report: Report, section: Section, table: Rows) -> Iterator[Known]:
    """The one cell that is at no place, or at that of another, while all others leave one for it.

    A cell that is behind all others can be right: its place was that of a token that was removed.
    """
    pos = table.column("pos")
    if len(pos) < _LEAST_CELLS:
        return
    start = pos - np.arange(len(pos))
    first = int(np.median(start))
    astray = np.flatnonzero(start != first)
    if len(astray) != 1 or first < 0:
        return
    index = int(astray[0])
    value, there = int(pos[index]), first + index
    if value >= 0 and np.count_nonzero(pos == value) == 1:
        return
    tables = walk(section.node, section.path)
    path = next((path for path, node in tables if node.value is table), section.path)
    why = f"the cells around it leave position {there:,} free, and none stands there"
    mend = _other(report, f"{path}[{index}].pos", table.field_span(index, "pos"), there)
    yield Known(mend, why)


def _rotated(report: Report, identity: Identity) -> Iterator[Known]:
    """What the rows of the first layer were multiplied by, if the file says something else."""
    nodes = _nodes(report)
    for finding in identity.findings:
        if finding.code == "identity.rotation-differs":
            name, _, size = finding.expected.partition(" ")
            path = f"{finding.path.rpartition('.')[0]}.{name}"
            if path in nodes:
                mend = _other(report, path, nodes[path].span, int(size))
                yield Known(mend, f"the rows were multiplied by a matrix of size {size}")


def _end_of_tokens(report: Report, identity: Identity) -> Iterator[Known]:
    """Where a recurrent state stands that the model computes of the last tokens of the list."""
    recurrent, side, tokens = _recurrent(report), identity.side("r"), report.tokens
    codes = {finding.code for finding in report.findings}
    if recurrent is None or side is None or tokens is None or not side.agrees:
        return
    if "recurrent.pos-mismatch" not in codes or len(recurrent.pos) != 1 or tokens.media:
        return
    span = recurrent.tables[0].field_span(0, "pos")
    last = tokens.count - 1
    why = f"the model computes this state of the tokens up to position {last:,}"
    yield Known(_other(report, f"{recurrent.path}.cells[0].pos", span, last), why)


def _nodes(report: Report) -> dict[str, Node]:
    root = report.identification.root
    return dict(walk(root)) if root is not None else {}
