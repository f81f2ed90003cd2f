"""The cells of two sections, matched by sequence and position, wherever they stand in the file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formats.bodies.cells import N_CELLS
from inspector.node import Rows
from inspector.sections import Section

Numbers = NDArray[np.int64]
_EXTENSION = ("x", "y", "tok")


@dataclass(frozen=True)
class Match:
    """Which cells of two sections stand for the same position.

    Attributes:
        a: indices of the matched cells in the first section, ascending, shape `(n,)`.
        b: the cells of the second section that they match.
        pos: their positions; empty if there are none, and cells are matched by their place.
        only_a: positions that only the first section has, ascending.
        only_b: positions that only the second section has.
        seq_a: sequences of the first section that were looked at; none if it names none.
        seq_b: of the second section.
        others: sequences that only one of the files has, while it has several.
        reordered: whether the second section has them in another order.
        extension: matched cells that differ in `x`, `y` or `tok`, for those stored in both.
        why: why nothing could be matched; empty if it could.
    """

    a: Numbers
    b: Numbers
    pos: Numbers
    only_a: Numbers
    only_b: Numbers
    seq_a: tuple[int, ...] = ()
    seq_b: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    reordered: bool = False
    extension: tuple[tuple[str, int], ...] = ()
    why: str = ""

    @property
    def complete(self) -> bool:
        """Whether every cell of either section has one in the other that says the same."""
        alone = len(self.only_a) or len(self.only_b) or self.others
        return not (self.why or alone or self.extension)


_NONE = np.zeros(0, np.int64)


def matched(a: Section, b: Section, ends: tuple[int | None, int | None] = (None, None)) -> Match:
    """The cells of two sections that stand for the same positions of the same sequences.

    A sequence alone in its file needs no name: servers load it under any.

    Args:
        a: the first section.
        b: the second section.
        ends: highest positions of the states, which single rows without a position stand for.
    """
    if not (a.tables and b.tables):
        return _by_place(a, b, ends)
    own, other = _Listed(a), _Listed(b)
    seqs, others = _together(own, other)
    keys_a, keys_b = _keys(own.taken(seqs[0]), other.taken(seqs[1]))
    _, in_a, in_b = np.intersect1d(keys_a[1], keys_b[1], assume_unique=True, return_indices=True)
    cells_a, cells_b = keys_a[0][in_a], keys_b[0][in_b]
    # a cell of several sequences once, if its partner is the same for all of them
    _, once = np.unique(cells_a * (1 + len(b.pos)) + cells_b, return_index=True)
    cells_a, cells_b = cells_a[once], cells_b[once]
    return Match(
        a=cells_a,
        b=cells_b,
        pos=a.pos[cells_a],
        only_a=np.sort(a.pos[np.delete(keys_a[0], in_a)]),
        only_b=np.sort(b.pos[np.delete(keys_b[0], in_b)]),
        seq_a=seqs[0] or tuple(own.names),
        seq_b=seqs[1] or tuple(other.names),
        others=others,
        reordered=bool((np.diff(cells_b) < 0).any()),
        extension=tuple(_extension(own, other, cells_a, cells_b)),
    )


def _by_place(a: Section, b: Section, ends: tuple[int | None, int | None]) -> Match:
    """Sections without cells: rows of the end of a state, or rows that have a place alone."""
    n_a, n_b = _n_rows(a), _n_rows(b)
    bare = any(n and not section.tables for n, section in ((n_a, a), (n_b, b)))
    if not bare:
        return Match(_NONE, _NONE, _NONE, a.ordered, b.ordered)
    if n_a != n_b or n_a > N_CELLS or a.kind not in _WITHOUT_CELLS:
        why = f"{n_a:,} and {n_b:,} rows, of which positions are not stored"
        return Match(_NONE, _NONE, _NONE, _NONE, _NONE, why=why)
    index, pos = np.arange(n_a), _NONE
    if n_a == 1 and a.kind == "recurrent":
        end_a, end_b = (
            own.pos_max if own.tables else end for own, end in zip((a, b), ends, strict=True)
        )
        if end_a is not None and end_b is not None:
            if end_a != end_b:
                return Match(_NONE, _NONE, _NONE, np.array([end_a]), np.array([end_b]))
            pos = np.array([end_a])
    return Match(index, index, pos, _NONE, _NONE)


_WITHOUT_CELLS = ("recurrent", "dsv4")
"""Kinds of memory that some programs store without cells."""


def _n_rows(section: Section) -> int:
    """Rows that are there, whatever the counts say."""
    blocks = [block for block in section.blocks if block.data is not None and block.row_bytes]
    return max((len(block.data or ()) // block.row_bytes for block in blocks), default=0)


class _Listed:
    """Cells of a section, once for each sequence that they belong to.

    Attributes:
        cell: indices, shape `(n,)`.
        seq: the sequence, shape `(n,)`; all 0 where none is named.
        names: the sequences, ascending; none where none is named.
        extension: `x`, `y` and `tok` by cell, as far as stored.
    """

    def __init__(self, section: Section) -> None:
        cells, seqs, start, self.names = [], [], 0, list[int]()
        for rows in section.tables:
            cell, seq = _owners(rows)
            cells.append(start + cell)
            seqs.append(seq)
            start += len(rows.table)
        self.cell, self.seq = np.concatenate(cells), np.concatenate(seqs)
        self.pos = section.pos
        if any(_named(rows) for rows in section.tables):
            self.names = np.unique(self.seq).tolist()
        names = [{name for name, _ in rows.fields} for rows in section.tables]
        stored = [name for name in _EXTENSION if all(name in own for own in names)]
        self.extension = {
            name: np.concatenate([rows.column(name) for rows in section.tables]) for name in stored
        }

    def taken(self, seqs: tuple[int, ...]) -> tuple[Numbers, Numbers, Numbers, dict[str, Numbers]]:
        """Cells, sequences, positions and extension of some sequences; without any, of all.

        Those of one sequence are taken as of sequence 0, whatever its name.
        """
        wanted = np.isin(self.seq, seqs) if seqs else np.ones(len(self.seq), bool)
        cell, seq = self.cell[wanted], self.seq[wanted]
        if len(seqs) < 2:
            seq = np.zeros_like(seq)
        return cell, seq, self.pos[cell], {n: c[cell] for n, c in self.extension.items()}


def _named(rows: Rows) -> bool:
    return rows.ragged or any(name.startswith("seq_id") for name, _ in rows.fields)


def _owners(rows: Rows) -> tuple[Numbers, Numbers]:
    """Cells and the sequence of each, those of several sequences several times."""
    n, names = len(rows.table), [name for name, _ in rows.fields]
    if not rows.ragged:
        seq = rows.column("seq_id") if "seq_id" in names else np.zeros(n, np.int64)
        return np.arange(n), seq
    items, counts = rows.items(), rows.column("n_seq_id")
    if not len(items):
        return np.arange(n), np.zeros(n, np.int64)
    return np.repeat(np.arange(n), counts)[: len(items)], items


def _together(
    a: _Listed, b: _Listed
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]]:
    """The sequences of either side that are held against each other, and those left over."""
    if len(a.names) < 2 and len(b.names) < 2:
        return ((), ()), ()
    shared = tuple(sorted(set(a.names) & set(b.names)))
    others = tuple(sorted(set(a.names) ^ set(b.names)))
    if shared:
        return (shared, shared), others
    first = tuple(a.names[:1]), tuple(b.names[:1])
    return first, tuple(sorted({*a.names[1:], *b.names[1:]}))


def _keys(
    a: tuple[Numbers, Numbers, Numbers, dict[str, Numbers]],
    b: tuple[Numbers, Numbers, Numbers, dict[str, Numbers]],
) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
    """Cells of both sides, each with a number that is equal exactly where they match.

    Cells of one position, such as those of an image, are told apart by x and y, and then by order.
    """
    n = len(a[0])
    shared = [name for name in ("x", "y") if name in a[3] and name in b[3]]
    columns = [(a[1], b[1]), (a[2], b[2]), *((a[3][name], b[3][name]) for name in shared)]
    code = np.zeros(n + len(b[0]), np.int64)
    for column in columns:
        values, inverse = np.unique(np.concatenate(column), return_inverse=True)
        code = np.unique(code * max(1, len(values)) + inverse, return_inverse=True)[1]
    sides = []
    for own in (code[:n], code[n:]):
        order = np.argsort(own, kind="stable")
        ordered = own[order]
        first = np.flatnonzero(np.diff(ordered, prepend=-1))
        turn = np.arange(len(own)) - np.repeat(first, np.diff(first, append=len(own)))
        nth = np.empty_like(turn)
        nth[order] = turn
        sides.append(nth)
    most = 1 + max((int(side.max(initial=0)) for side in sides), default=0)
    return (a[0], code[:n] * most + sides[0]), (b[0], code[n:] * most + sides[1])


def _extension(a: _Listed, b: _Listed, cells_a: Numbers, cells_b: Numbers) -> list[tuple[str, int]]:
    found = []
    for name, column in a.extension.items():
        if name in b.extension:
            n = int(np.count_nonzero(column[cells_a] != b.extension[name][cells_b]))
            found += [(name, n)] if n else []
    return found
