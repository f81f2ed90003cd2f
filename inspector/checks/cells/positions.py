"""Positions of cells: what no cell has, their order, and what a text has at each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from formats.ggml_types import IK
from inspector.checks.cells.single import LAST, at_cell, empty
from inspector.checks.subject import Subject
from inspector.findings import Finding
from inspector.node import Rows
from inspector.sections import Section

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def check_positions(
    subject: Subject, section: Section, table: Rows, path: str
) -> Iterator[Finding]:
    """Where the cells of one cell array stand."""
    pos = table.column("pos")
    yield from _outside(subject, section, table, path)
    yield from _order(table, path)
    if (apart := _apart(table, pos)) is not None:
        yield _on_a_grid(table, path, apart)
    elif not table.ragged and not subject.tokens.media:
        yield from _in_a_row(subject, section, table, path)
        yield from _extension(subject, table, path)


def _outside(subject: Subject, section: Section, table: Rows, path: str) -> Iterator[Finding]:
    """Positions that no token has."""
    import numpy as np

    pos = table.column("pos")
    # the cache that tells the server where the state begins: the windowed one if there is one
    first = section.kind == "swa" or subject.section("swa") is None
    if first:
        yield from empty(table, path)
    stays = _stay(subject, table)
    if stays.any():
        yield _unerasable(table, path, np.flatnonzero(stays))
    odd = np.flatnonzero((pos < -1 if first else pos < 0) & ~stays)
    if len(odd):
        index = int(odd[0])
        value, n = int(pos[index]), int(np.count_nonzero(pos < 0))
        message = f"cell {index} is at {value}, {n:,} of {len(pos):,} are negative"
        code = "cells.pos-negative"
        yield at_cell(code, path, table, index, "pos", message, "at least 0", str(value))


def _stay(subject: Subject, table: Rows) -> NDArray[np.bool_]:
    """Which cells no server of upstream can erase."""
    import numpy as np

    pos = table.column("pos")
    if table.ragged or subject.identification.writer == IK:
        return np.zeros(len(pos), np.bool_)
    stays: NDArray[np.bool_] = (pos < -1) | (pos == LAST)
    return stays


def _order(table: Rows, path: str) -> Iterator[Finding]:
    """Cells that stand before the one in front of them, where all stand somewhere."""
    import numpy as np

    pos = table.column("pos")
    falling = np.flatnonzero(np.diff(pos) < 0)
    if not len(falling) or (pos < 0).any():
        return
    index = int(falling[0]) + 1
    before, value = int(pos[index - 1]), int(pos[index])
    message = (
        f"cell {index} is at position {value}, the one before it at {before}; the order breaks "
        f"{_times(len(falling))}"
    )
    code, expected = "cells.pos-not-ascending", f"more than {before}"
    yield at_cell(code, path, table, index, "pos", message, expected, str(value))


def _in_a_row(subject: Subject, section: Section, table: Rows, path: str) -> Iterator[Finding]:
    """Positions that text has twice, or not at all."""
    import numpy as np

    pos = table.column("pos")
    ordered = np.sort(pos, kind="stable")
    steps = np.diff(ordered)
    same = np.flatnonzero(steps == 0)
    if len(same):
        yield _repeated(table, path, ordered, same)
    if (pos < 0).any():
        return
    missing = int(steps[steps > 1].sum()) - int(np.count_nonzero(steps > 1))
    stray = not len(same) and not _stay(subject, table).any() and len(section.tables) == 1
    astray = _astray(subject, section, table, ordered, path) if stray else None
    if astray is not None:
        yield astray
    elif missing > len(same):  # else it is where the repeated ones were
        yield Finding(
            "swa.gaps" if section.kind == "swa" else "cells.pos-gaps",
            path,
            table.span,
            f"no cell for {missing:,} of the positions from {ordered[0]} to {ordered[-1]}",
            f"{int(ordered[-1] - ordered[0]) + 1:,} cells",
            f"{len(ordered):,}",
        )


def _repeated(
    table: Rows, path: str, ordered: NDArray[np.int64], same: NDArray[np.int64]
) -> Finding:
    import numpy as np

    value = int(ordered[same[0]])
    index = int(np.flatnonzero(table.column("pos") == value)[1])
    message = (
        f"cell {index} is at position {value}, and so is an earlier one; this happens "
        f"{_times(len(same))}"
    )
    code, expected, actual = "cells.pos-duplicate", "each position once", f"{value} again"
    return at_cell(code, path, table, index, "pos", message, expected, actual)


def _astray(
    subject: Subject, section: Section, table: Rows, ordered: NDArray[np.int64], path: str
) -> Finding | None:
    """Servers take it that the n-th token of a text, from 0, has position n."""
    import numpy as np

    main = subject.reading.layout.format == "ggsq" and section.kind == "attention"
    if not main or subject.tokens.packing == "none" or not len(ordered):
        return None
    n_tokens = min(subject.tokens.count, int(ordered[-1]))
    held = ordered[ordered < n_tokens]
    n_missing = n_tokens - len(held)
    if not n_missing:
        return None
    first = int(np.argmin(np.append(held, -1) == np.arange(len(held) + 1)))
    return Finding(
        "cells.pos-not-tokens",
        path,
        table.span,
        f"{n_missing:,} of {subject.tokens.count:,} tokens have no cell at their place, the first "
        f"is token {first}; the cells stand at positions {ordered[0]} to {ordered[-1]}",
        f"a cell at position {first}",
        "none",
    )


def _unerasable(table: Rows, path: str, cells: NDArray[np.int64]) -> Finding:
    index = int(cells[0])
    value = int(table.column("pos")[index])
    message = f"cell {index} is at position {value}; {len(cells):,} of {len(table):,} are such"
    expected = f"0 to {LAST - 1}"
    return at_cell("cells.pos-unerasable", path, table, index, "pos", message, expected, str(value))


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n:,} times"


def _apart(table: Rows, pos: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The cells whose coordinates are not their position; None if there are none."""
    import numpy as np

    if "x" not in [name for name, _ in table.fields]:
        return None
    cells = np.flatnonzero((table.column("x") != pos) | (table.column("y") != pos))
    return cells if len(cells) else None


def _on_a_grid(table: Rows, path: str, cells: NDArray[np.int64]) -> Finding:
    first = int(cells[0])
    row = table.table[first]
    actual = f"x {row['x']} and y {row['y']}"
    message = (
        f"cell {first} at position {row['pos']} has {actual}; {len(cells):,} of {len(table):,} "
        "cells have coordinates of their own"
    )
    expected = f"x and y {row['pos']}, as text has them"
    span = table.row_span(first)
    return Finding("cells.ext-differs", f"{path}[{first}]", span, message, expected, actual)


def _extension(subject: Subject, table: Rows, path: str) -> Iterator[Finding]:
    import numpy as np

    names = [name for name, _ in table.fields]
    ids = subject.tokens.ids if subject.tokens.packing != "none" else None
    if "tok" not in names or ids is None or not len(ids):
        return
    at = table.column("pos")
    tok = table.column("tok")
    inside = (at >= 0) & (at < len(ids)) & (tok >= 0)
    wrong = np.flatnonzero(inside & (tok != ids[np.clip(at, 0, len(ids) - 1)]))
    if len(wrong):
        index = int(wrong[0])
        message = (
            f"the list and cell {index} have different tokens for position {at[index]}, one of "
            f"the two was changed; so it is for {len(wrong):,} of {len(tok):,} cells"
        )
        same, two = "one token", "two tokens"
        yield at_cell("cells.token-differs", path, table, index, "tok", message, same, two)
