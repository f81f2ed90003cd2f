"""Cell records: one per stored position.

Source: ggml-org/llama.cpp, `llama_kv_cache::state_write_meta` and
`llama_memory_recurrent::state_write_meta`. A seq save writes no sequence ids until b5484 and one
from b5485 (PR #13706); M-RoPE models add x and y from b8215 (PR #20132), and the token from ggsq 3
(PR #27762); a full save writes all ids.
"""

from __future__ import annotations

from construct import this

from formats.scalars import LLAMA_POS, LLAMA_SEQ_ID, LLAMA_TOKEN, U32, U64
from formats.spans import Expression, Ragged, Record, Span, Table

N_CELLS = 1 << 24
"""Cells that a section is believed to hold: sixteen times the longest context in use."""

N_SEQ = 256
"""LLAMA_MAX_SEQ since b6507 (64 before)."""

_POS = "pos" / LLAMA_POS * "position of the token in its sequence"
_N_SEQ_ID = "n_seq_id" / U32 * "sequence ids that follow"
_SEQ_ID = "seq_id" / LLAMA_SEQ_ID * "sequence the cell was saved from; ignored when it is loaded"
_X = "x" / LLAMA_POS * "column of an image token; equals pos for text"
_Y = "y" / LLAMA_POS * "row of an image token; equals pos for text"
_TOK = "tok" / LLAMA_TOKEN * "token id of the cell, or -1"

_EXTENSION = {0: (), 8: (_X, _Y), 12: (_X, _Y, _TOK)}


def anonymous_cells(count: Expression = this.cell_count) -> Span:
    """Cells of seq saves until b5484, recurrent sections and ik_llama.cpp: n_seq_id 0, no ids."""
    return Table(count, Record(_POS, _N_SEQ_ID), at_most=N_CELLS)


def seq_cells(cell_ext: int = 0) -> Span:
    """Cells of a seq save from b5485: one sequence id, behind `cell_ext` bytes of extension."""
    return Table(
        this.cell_count, Record(_POS, _N_SEQ_ID, *_EXTENSION[cell_ext], _SEQ_ID), at_most=N_CELLS
    )


def full_cells(cell_ext: int = 0) -> Span:
    """Cells of a full save: all sequence ids, behind `cell_ext` bytes of extension."""
    head = Record(_POS, _N_SEQ_ID, *_EXTENSION[cell_ext])
    return Ragged(
        this.cell_count,
        head,
        "n_seq_id",
        LLAMA_SEQ_ID,
        "seq_id",
        at_most=N_CELLS,
        items_at_most=N_SEQ,
    )


def historic_cells(count: Expression) -> Span:
    """Cells of whole-context states before July 2024, ggsn 2 to 7: a 64-bit count, then the ids."""
    head = Record(_POS, "n_seq_id" / U64 * "sequence ids that follow")
    return Ragged(
        count, head, "n_seq_id", LLAMA_SEQ_ID, "seq_id", at_most=N_CELLS, items_at_most=N_SEQ
    )
