"""Cells: positions, sequences and streams; and the sections against each other."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from inspector.checks.cells.positions import check_positions
from inspector.checks.cells.single import LAST, at_cell, empty
from inspector.checks.cells.together import check_end, check_together
from inspector.checks.subject import Subject
from inspector.findings import Finding
from inspector.node import Rows
from inspector.sections import Section

import_module(f"{__name__}.codes")

_MOST_SEQUENCES = 256


def check_cells(subject: Subject) -> Iterator[Finding]:
    """Every section by itself, then the sections against each other."""
    for section in subject.sections:
        if section.tables:
            yield from _section(subject, section)
    yield from check_together(subject)
    yield from check_end(subject)


def _section(subject: Subject, section: Section) -> Iterator[Finding]:
    seq_save = subject.reading.layout.format in ("ggsq", "blob")
    if seq_save and len(section.tables) > 1:
        yield Finding(
            "streams.several-in-seq",
            f"{section.path}.streams",
            section.span,
            f"{len(section.tables)} of {section.n_stream} streams have cells",
            "cells in one stream",
            f"streams {', '.join(map(str, section.streams))}",
        )
    for table, stream in zip(section.tables, section.streams, strict=True):
        path = (
            f"{section.path}.streams[{stream}].cells"
            if section.node.get("streams")
            else f"{section.path}.cells"
        )
        yield from _sequences(path, table)
        if section.kind == "recurrent":
            yield from _recurrent(section, table, path, seq_save)
        else:
            yield from check_positions(subject, section, table, path)


def _sequences(path: str, table: Rows) -> Iterator[Finding]:
    import numpy as np

    names = [name for name, _ in table.fields]
    if "n_seq_id" not in names:
        return
    n_seq_id = table.column("n_seq_id")
    if not table.ragged:
        expected = int("seq_id" in names)
        wrong = np.flatnonzero(n_seq_id != expected)
        if len(wrong):
            yield at_cell(
                "cells.n-seq-id",
                path,
                table,
                int(wrong[0]),
                "n_seq_id",
                f"cell {wrong[0]} has n_seq_id {n_seq_id[wrong[0]]}, {len(wrong):,} of "
                f"{len(n_seq_id):,} cells do not fit",
                str(expected),
                str(int(n_seq_id[wrong[0]])),
            )
        return
    ids = table.items()
    strange = np.flatnonzero((ids < 0) | (ids >= _MOST_SEQUENCES))
    if len(strange):
        index = int(np.searchsorted(np.cumsum(n_seq_id), strange[0], side="right"))
        worst = int(ids[strange[0]])
        yield Finding(
            "cells.seq-id-out-of-range",
            f"{path}[{index}]",
            table.row_span(index),
            f"cell {index} belongs to sequence {worst}, {len(strange):,} of {len(ids):,} "
            "sequence ids do not fit",
            f"0 to {_MOST_SEQUENCES - 1}",
            str(worst),
        )


def _recurrent(section: Section, table: Rows, path: str, seq_save: bool) -> Iterator[Finding]:
    yield from empty(table, path, (-1, LAST))
    if seq_save and len(table) > 1:
        yield Finding(
            "recurrent.several-cells",
            path,
            table.span,
            f"{len(table):,} recurrent cells in the save of one sequence",
            "1 cell",
            f"{len(table):,}",
        )
    node = section.node.get("s_trans")
    if section.v_trans and node is not None:
        yield Finding(
            "recurrent.transposed",
            f"{section.path}.s_trans",
            node.span,
            f"{section.path}.s_trans is {section.v_trans}",
            "0",
            str(section.v_trans),
        )
