"""Cells: positions, sequences and streams; and the sections against each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from formats.ggml_types import IK
from inspector.checks.subject import Subject
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.node import Rows
from inspector.sections import Section

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_KV = "llama.cpp b10587, src/llama-kv-cache.cpp llama_kv_cache::state_read_meta"
_LAST = (1 << 31) - 1
"""The highest position that a cell can have."""
_TRIED = "restores of such files on llama.cpp b10229, b10809, b11063 and b11549"
_REC = "llama.cpp b10587, src/llama-memory-recurrent.cpp llama_memory_recurrent::state_read_meta"

register(
    Code(
        "cells.n-seq-id",
        Severity.ERROR,
        "A cell has another number of sequence ids than this format allows",
        'the loader refuses the file ("invalid seq_id-agnostic kv cell") after it has emptied '
        "the slot",
        RemedyKind.EXACT,
        "write the number that all other cells have",
        _KV,
    ),
    Code(
        "cells.seq-id-out-of-range",
        Severity.ERROR,
        "A cell belongs to a sequence that no context can have",
        'the loader refuses the file ("invalid seq_id"); old builds write out of bounds (before '
        "b5485, recurrent cells before b8487)",
        RemedyKind.NONE,
        "which sequence the cell belonged to cannot be known",
        _KV,
    ),
    Code(
        "cells.pos-empty",
        Severity.ERROR,
        "A cell is marked as empty",
        "the restore is accepted, and every request after it aborts the server",
        RemedyKind.NONE,
        "the position follows from its neighbours only if they are in order: repair writes it then",
        "llama.cpp b10229, b10809 and b11549, restore of such a file; a recurrent cell at "
        "2147483647 counts as empty too",
    ),
    Code(
        "cells.end-mismatch",
        Severity.ERROR,
        "The cells end before the tokens do",
        'the restore is accepted, and a prompt that goes on from it fails: "Invalid input batch."',
        RemedyKind.NONE,
        "the positions of the cells, or the tokens, are damaged",
        "llama.cpp b10229, b10809 and b11549, restore of such a file",
    ),
    Code(
        "cells.pos-negative",
        Severity.WARNING,
        "A position is negative",
        "the file loads; the cell counts as empty but stays owned, or is attended to at a "
        "wrong place",
        RemedyKind.NONE,
        "the position follows from its neighbours only if they are in order: repair writes it then",
        _KV,
    ),
    Code(
        "cells.pos-unerasable",
        Severity.ERROR,
        "A cell stands where no erase reaches: below -1, or at 2147483647",
        "the file loads, and its slot is spoilt until the server is started again: neither an "
        "erase nor another restore removes the cell; below -1, all later prompts see it and get "
        "other answers; at 2147483647, all of them get HTTP 500",
        RemedyKind.NONE,
        "the position follows from its neighbours only if they are in order: repair writes it then",
        _TRIED,
    ),
    Code(
        "cells.pos-duplicate",
        Severity.WARNING,
        "Two text cells have the same position",
        "the file loads; both cells are attended to",
        RemedyKind.NONE,
        "which of them is right is known only where all other cells are in a row: repair puts one "
        "back into it",
        "llama.cpp b10229 and b11549, restore of such a file",
    ),
    Code(
        "cells.pos-not-ascending",
        Severity.NOTE,
        "Cells are not in the order of their positions",
        "nothing: cells are stored in cell order, which differs after a context shift or when "
        "a window has wrapped",
        RemedyKind.NONE,
        "not needed",
        _KV,
    ),
    Code(
        "cells.pos-gaps",
        Severity.NOTE,
        "Positions are missing between the lowest and the highest",
        "the file loads; what stood at those positions is not remembered",
        RemedyKind.NONE,
        "the missing cells were removed before the save",
        _KV,
    ),
    Code(
        "cells.pos-not-tokens",
        Severity.NOTE,
        "A token has no cell at its place, and later ones have",
        "the file loads; a prompt that goes on behind the gap is not answered as the same prompt "
        'without memory, one that goes on inside it gets HTTP 500: "Invalid input batch."',
        RemedyKind.NONE,
        "only what is in front of the gap can be reused: let the server evaluate the rest again",
        "llama.cpp b10229 and b11549, every prompt that shares a part of such a file",
    ),
    Code(
        "cells.ext-differs",
        Severity.NOTE,
        "The coordinates of some cells are not their position: tokens of an image",
        "nothing: the cells of an image share a position and differ in column and row",
        RemedyKind.NONE,
        "not needed",
        "llama.cpp b8215 (PR #20132)",
    ),
    Code(
        "cells.token-differs",
        Severity.WARNING,
        "The token id in a cell is not that of the token list",
        "the file loads; if the list was changed, prompts are compared with the wrong token; if "
        "the cell was, n-gram embeddings of later tokens are computed from the wrong history",
        RemedyKind.EXACT,
        "write it anew with slotscope repair and --model, which tells whose row it is where the "
        "first layer of the model has attention; without it which of the two was changed cannot be "
        "told",
        "llama.cpp b10644 (PR #27762)",
    ),
    Code(
        "streams.several-in-seq",
        Severity.ERROR,
        "More than one stream of a sequence save has cells",
        "the loader puts them all into one sequence: the last one overwrites the others",
        RemedyKind.NONE,
        "no writer does this; which stream is right cannot be known",
        _KV,
    ),
    Code(
        "swa.more-cells",
        Severity.WARNING,
        "The window holds positions that the full cache lacks",
        "the file loads; the two caches disagree about what was said",
        RemedyKind.NONE,
        "the sections come from different moments",
        _KV,
    ),
    Code(
        "swa.behind",
        Severity.WARNING,
        "The window ends before the full cache does",
        "the file loads; the last tokens see a window that is not theirs",
        RemedyKind.NONE,
        "the sections come from different moments",
        _KV,
    ),
    Code(
        "swa.gaps",
        Severity.WARNING,
        "Positions are missing inside the window",
        "the file loads; answers degrade, since the windowed layers lack context",
        RemedyKind.NONE,
        "the missing cells are not in the file",
        _KV,
    ),
    Code(
        "recurrent.several-cells",
        Severity.ERROR,
        "A recurrent section of a sequence save has more than one cell",
        "restoring it aborts the server, unless it has fewer slots than cells and is b11193 "
        "or newer: then it refuses",
        RemedyKind.NONE,
        "no writer does this",
        "llama.cpp b8672 to b11549, restore of such a file",
    ),
    Code(
        "recurrent.transposed",
        Severity.ERROR,
        "The recurrent state claims to be transposed",
        'llama.cpp refuses the file: "incompatible s transposition"',
        RemedyKind.NONE,
        "restore it with the program that wrote it: a gated-delta-net fork writes 2, upstream "
        "nothing but 0",
        _REC,
    ),
    Code(
        "recurrent.pos-mismatch",
        Severity.ERROR,
        "The recurrent state stands at another position than the attention cache or the tokens",
        "the file loads; the state and the keys describe different prefixes, and answers go wrong",
        RemedyKind.NONE,
        "the sections come from different moments, unless the model computes the state of the last "
        "tokens: repair writes its position then",
        _REC,
    ),
)

_MOST_SEQUENCES = 256


def check_cells(subject: Subject) -> Iterator[Finding]:
    """Every section by itself, then the sections against each other."""
    for section in subject.sections:
        if section.tables:
            yield from _section(subject, section)
    yield from _together(subject)
    yield from _end(subject)


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
            yield from _positions(subject, section, table, path)


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
            yield _at(
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


def _at(
    code: str,
    path: str,
    table: Rows,
    index: int,
    field: str,
    message: str,
    expected: str,
    actual: str,
) -> Finding:
    return Finding(
        code, f"{path}[{index}].{field}", table.field_span(index, field), message, expected, actual
    )


def _positions(subject: Subject, section: Section, table: Rows, path: str) -> Iterator[Finding]:
    import numpy as np

    pos = table.column("pos")
    # the cache that tells the server where the state begins: the windowed one if there is one
    first = section.kind == "swa" or subject.section("swa") is None
    if first:
        yield from _empty(table, path)
    negative = np.flatnonzero(pos < 0)
    stays = (pos < -1) | (pos == _LAST)
    if table.ragged or subject.identification.writer == IK:
        stays &= False
    if stays.any():
        yield _unerasable(table, path, np.flatnonzero(stays))
    odd = np.flatnonzero((pos < -1 if first else pos < 0) & ~stays)
    if len(odd):
        index = int(odd[0])
        message = f"cell {index} is at {pos[index]}, {len(negative):,} of {len(pos):,} are negative"
        yield _at(
            "cells.pos-negative",
            path,
            table,
            index,
            "pos",
            message,
            "at least 0",
            str(int(pos[index])),
        )
    steps = np.diff(pos)
    falling = np.flatnonzero(steps < 0)
    if len(falling) and not len(negative):
        index = int(falling[0]) + 1
        message = (
            f"cell {index} is at position {pos[index]}, the one before it at {pos[index - 1]}; "
            f"the order breaks {_times(len(falling))}"
        )
        yield _at(
            "cells.pos-not-ascending",
            path,
            table,
            index,
            "pos",
            message,
            f"more than {pos[index - 1]}",
            str(int(pos[index])),
        )
    if (apart := _apart(table, pos)) is not None:
        yield _on_a_grid(table, path, apart)
        return
    if table.ragged or subject.tokens.media:
        return
    ordered = np.sort(pos) if len(falling) else pos
    steps = np.diff(ordered)
    same = np.flatnonzero(steps == 0)
    if len(same):
        value = int(ordered[same[0]])
        index = int(np.flatnonzero(pos == value)[1])
        message = (
            f"cell {index} is at position {value}, and so is an earlier one; "
            f"this happens {_times(len(same))}"
        )
        yield _at(
            "cells.pos-duplicate",
            path,
            table,
            index,
            "pos",
            message,
            "each position once",
            f"{value} again",
        )
    missing = int(steps[steps > 1].sum()) - int(np.count_nonzero(steps > 1))
    astray = None
    if not len(same) and not len(negative) and not stays.any() and len(section.tables) == 1:
        astray = _astray(subject, section, table, ordered, path)
    if astray is not None:
        yield astray
    elif missing > len(same) and not len(negative):  # else it is where the repeated ones were
        code = "swa.gaps" if section.kind == "swa" else "cells.pos-gaps"
        yield Finding(
            code,
            path,
            table.span,
            f"no cell for {missing:,} of the positions from {ordered[0]} to {ordered[-1]}",
            f"{int(ordered[-1] - ordered[0]) + 1:,} cells",
            f"{len(ordered):,}",
        )
    yield from _extension(subject, table, pos, path)


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
    expected = f"0 to {_LAST - 1}"
    return _at("cells.pos-unerasable", path, table, index, "pos", message, expected, str(value))


def _empty(table: Rows, path: str, marks: tuple[int, ...] = (-1,)) -> Iterator[Finding]:
    """Position -1 is what a cell without a token has; a state holds none."""
    import numpy as np

    pos = table.column("pos")
    empty = np.flatnonzero(np.isin(pos, marks))
    if len(empty) and not (table.ragged and "kv_self" in path):
        index = int(empty[0])
        value = int(pos[index])
        message = f"cell {index} is at position {value}; {len(empty):,} of {len(table):,} are"
        yield _at("cells.pos-empty", path, table, index, "pos", message, "at least 0", str(value))


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


def _extension(subject: Subject, table: Rows, pos: object, path: str) -> Iterator[Finding]:
    import numpy as np

    names = [name for name, _ in table.fields]
    ids = subject.tokens.ids if subject.tokens.packing != "none" else None
    if "tok" not in names or ids is None or not len(ids):
        return
    at = np.asarray(pos)
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
        yield _at("cells.token-differs", path, table, index, "tok", message, same, two)


def _end(subject: Subject) -> Iterator[Finding]:
    """Text that was saved whole has a position for every token, the last of them one less."""
    tokens, layout = subject.tokens, subject.reading.layout
    main = subject.section("attention", "recurrent")
    if layout.format != "ggsq" or not tokens.count or tokens.media or main is None:
        return
    if main.pos_max is None or subject.reading.decoding.stops or main.pos_max < 0:
        return
    last = tokens.count - 1
    if main.pos_max < last and main.cells == tokens.count and subject.section("swa") is None:
        yield Finding(
            "cells.end-mismatch",
            main.path,
            main.span,
            f"{tokens.count:,} tokens and as many cells, the highest position is {main.pos_max}",
            f"position {last}",
            f"position {main.pos_max}",
        )
    # a library may save one more token than it evaluated
    if main.kind == "recurrent" and main.pos_max not in (last, last - 1):
        yield Finding(
            "recurrent.pos-mismatch",
            main.path,
            main.span,
            f"the state stands at position {main.pos_max}, the last token at {last}",
            f"position {last}",
            f"position {main.pos_max}",
        )


def _recurrent(section: Section, table: Rows, path: str, seq_save: bool) -> Iterator[Finding]:
    yield from _empty(table, path, (-1, _LAST))
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


def _together(subject: Subject) -> Iterator[Finding]:
    if subject.reading.layout.format not in ("ggsq", "blob"):
        return
    attention, swa, recurrent = (
        subject.section(kind) for kind in ("attention", "swa", "recurrent")
    )
    if (
        attention is not None
        and swa is not None
        and attention.pos_max is not None
        and swa.pos_max is not None
    ):
        if swa.pos_max < attention.pos_max:
            yield Finding(
                "swa.behind",
                swa.path,
                swa.span,
                f"the window ends at position {swa.pos_max}, the full cache at {attention.pos_max}",
                f"position {attention.pos_max}",
                f"position {swa.pos_max}",
            )
        import numpy as np

        full = attention.ordered
        nearest = np.searchsorted(full, swa.pos).clip(max=len(full) - 1)
        strangers = np.sort(swa.pos[full[nearest] != swa.pos])
        if len(strangers):
            yield Finding(
                "swa.more-cells",
                swa.path,
                swa.span,
                f"the window holds position {strangers[0]}, which the full cache lacks; so it "
                f"does {len(strangers):,} of {swa.cells:,} positions of the window",
                "positions of the full cache",
                f"position {strangers[0]}",
            )
    ahead = attention or swa
    if recurrent is None or ahead is None or None in (recurrent.pos_max, ahead.pos_max):
        return
    if recurrent.pos_max != ahead.pos_max:
        yield Finding(
            "recurrent.pos-mismatch",
            recurrent.path,
            recurrent.span,
            f"the state stands at position {recurrent.pos_max}, "
            f"the attention cache ends at {ahead.pos_max}",
            f"position {ahead.pos_max}",
            f"position {recurrent.pos_max}",
        )
