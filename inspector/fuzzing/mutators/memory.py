"""Cells together with their rows: taken out of a memory, zeroed, or doubled."""

from __future__ import annotations

import random
from collections.abc import Iterator

from inspector.fuzzing.mutators.kinds import Changed, Must, everything, mutator, with_edits
from inspector.fuzzing.subject import Edit, Subject, packed
from inspector.node import Kind


def _streams(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if path.endswith("]") and path.rpartition("[")[0].endswith("streams") and node.get("cells"):
            yield path


@mutator("stream-emptied", Must.EITHER, _streams, "no cells, and counted")
def _stream_emptied(subject: Subject, path: str, dice: random.Random) -> Changed:
    count, span = subject.node(f"{path}.cell_count"), subject.node(path).span
    return with_edits(subject, packed(count, 0), (count.span.stop, span.stop, b""))


def caches(subject: Subject) -> Iterator[str]:
    """Records that hold the cells of one cache, and their rows."""
    for path, node in subject.nodes.items():
        if node.get("cells") and node.get("cell_count") and len(node.rows("cells") or ()) > 1:
            yield path


def without(subject: Subject, path: str, gone: int) -> list[Edit]:
    """The edits that take a cell and its rows out of a cache."""
    node = subject.node(path)
    rows = subject.rows(f"{path}.cells")
    count, row = len(rows), rows.row_span(gone)
    edits = [packed(subject.node(f"{path}.cell_count"), count - 1), (row.start, row.stop, b"")]
    for name, block in subject.nodes.items():
        if not name.startswith(f"{path}.") or block.kind is not Kind.PAYLOAD:
            continue
        inner = block.span
        if not node.span.start <= inner.start < node.span.stop or len(inner) % count:
            continue
        edits += _rows_out(subject, name, gone, count)
    return edits


def _rows_out(subject: Subject, name: str, gone: int, count: int) -> list[Edit]:
    span, outer = subject.node(name).span, name.rpartition(".")[0]
    channels = subject.number(f"{outer}.n_embd_v_gqa")
    if channels:
        size = subject.number(f"{outer}.v_size_el", 1)
        starts = [span.start + (c * count + gone) * size for c in range(channels)]
        return [(start, start + size, b"") for start in starts if start + size <= span.stop]
    size = len(span) // count
    return [(span.start + gone * size, span.start + (gone + 1) * size, b"")]


@mutator("cell-dropped", Must.EITHER, caches, "a cell less, with its rows, and counted")
def _cell_dropped(subject: Subject, path: str, dice: random.Random) -> Changed:
    count = len(subject.rows(f"{path}.cells"))
    gone = dice.choice((0, count - 1, count // 2))
    return with_edits(subject, *without(subject, path, gone))


@mutator("memory-emptied", Must.EITHER, everything, "no tokens and no cells, and counted")
def _memory_emptied(subject: Subject, path: str, dice: random.Random) -> Changed:
    count, tokens = subject.node("n_token_count"), subject.node("tokens").span
    edits = [packed(count, 0), (tokens.start, tokens.stop, b"")]
    for stream in _streams(subject):
        cells, span = subject.node(f"{stream}.cell_count"), subject.node(stream).span
        edits += [packed(cells, 0), (cells.span.stop, span.stop, b"")]
    return with_edits(subject, *edits)


def _windows(subject: Subject) -> Iterator[str]:
    return (path for path in caches(subject) if path.startswith("swa"))


@mutator(
    "window-anchored", Must.ACCEPT, _windows, "zeros in the first cell of a window, all layers"
)
def _anchored(subject: Subject, path: str, dice: random.Random) -> Changed:
    count, edits = len(subject.rows(f"{path}.cells")), []
    for name, block in subject.nodes.items():
        if name.startswith(f"{path}.") and block.kind is Kind.PAYLOAD:
            edits += [(a, b, bytes(b - a)) for a, b, _ in _rows_out(subject, name, 0, count)]
    return with_edits(subject, *edits)


def _recurrents(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.role == "recurrent" and node.get("blocks") and len(node.rows("cells") or ()) == 1:
            yield path


@mutator("state-twice", Must.REFUSE, _recurrents, "two cells of recurrent state in one sequence")
def _state_twice(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.rows(f"{path}.cells").span
    edits = [
        packed(subject.node(f"{path}.cell_count"), 2),
        (span.stop, span.stop, subject.data[span.start : span.stop]),
    ]
    for name, block in subject.nodes.items():
        if name.startswith(f"{path}.blocks") and block.kind is Kind.PAYLOAD:
            own = block.span
            edits.append((own.stop, own.stop, subject.data[own.start : own.stop]))
    return with_edits(subject, *edits)
