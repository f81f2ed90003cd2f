"""The window anchor: one masked cell that lets servers without checkpoint lists reuse a save.

Source: measured on llama.cpp b9538, b10566, b10809, b11063 and b11549 with gemma3, gpt-oss and
gemma2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from inspector.model.geometry import WindowType
from inspector.render.page import counted
from inspector.repair.actions.window import is_open, window_of
from inspector.repair.draft import Draft, Step
from inspector.repair.segments import Make, Write
from inspector.repair.state import Cache, Cells, Refused, Tensor

ACTION = "window-anchor"
_PROVEN_FROM = 9473
"""From which on saves hold the window alone, and every request meets the gate."""
_WORTH = 32
"""Tokens behind the last checkpoint for which a file is changed."""


def window_anchor(draft: Draft) -> None:
    """A cell in front of the window, with zero rows, where that opens the gate."""
    swa = draft.state.cache("swa")
    asked, build = draft.options.asks_for(ACTION), draft.target.build if draft.target else None
    if swa is None or draft.state.recurrent is not None:
        if asked:
            raise Refused("only a memory of windowed layers alone has use for it")
        return
    if any(finding.code == "cells.window-anchor" for finding in draft.report.findings):
        return
    n_tokens = len(draft.state.tokens.ids)
    kept = max((record.n_tokens for record in draft.records), default=0)
    enough = bool(draft.records) and n_tokens - kept < _WORTH
    needless = build is None or (build.number or 0) < _PROVEN_FROM or enough
    if (needless or is_open(draft, swa)) and not asked:
        return
    if not draft.fits:
        if asked:
            raise Refused("trim would have to be done first")
        return
    window = _sound(draft, swa)
    pos = n_tokens - window - 1
    draft.take(
        Step(
            ACTION,
            "the server looks for a cell in front of what the next token sees, finds none, and "
            + (
                f"goes back to the checkpoint at {kept:,} of {n_tokens:,} tokens"
                if kept
                else f"evaluates all {n_tokens:,} tokens again"
            ),
            f"adds one cell at position {pos:,} in front of the windowed section, with zero rows. "
            f"Every token that can follow stands at {n_tokens:,} or later and sees {pos + 1:,} and "
            "later: what the cell holds is never attended to",
            proven="b9538, b10566, b10809, b11063, b11549, with gemma3, gpt-oss, gemma2",
        )
    )
    order = np.argsort(swa.cells.pos, kind="stable")
    sorted_ = swa.taken(order, ACTION)
    cells = Cells(
        np.concatenate(([pos], sorted_.cells.pos)),
        {
            name: np.concatenate(([_filled(name, pos, draft)], column))
            for name, column in sorted_.cells.extension.items()
        },
        sorted_.cells.seq_id,
    )
    changed = replace(
        sorted_,
        cells=cells,
        k=tuple(_with_zero_row(tensor) for tensor in sorted_.k),
        v=tuple(_with_zero_row(tensor) for tensor in sorted_.v),
    )
    draft.state = draft.state.part(swa.member, changed)


def _sound(draft: Draft, swa: Cache) -> int:
    """The window, where a cell in front of it can never be attended to.

    Raises:
        Refused: where that is not certain, or of no use.
    """
    memory = draft.target.memory if draft.target is not None else None
    if memory is not None and memory.n_swa and memory.swa_type is not WindowType.STANDARD:
        raise Refused("its windows do not slide")
    window, n_tokens = window_of(draft), len(draft.state.tokens.ids)
    if window is None:
        raise Refused("the size of its window is not known: name the model with --model")
    if draft.state.tokens.media_start:
        raise Refused("it holds media, whose positions are counted otherwise")
    if n_tokens <= window:
        raise Refused(f"it has {counted(n_tokens, 'token')}, all inside the window")
    held = np.sort(swa.cells.pos)
    if not np.array_equal(held, np.arange(n_tokens - window, n_tokens)):
        raise Refused("the windowed section does not hold the last window and nothing else")
    full = draft.state.cache("attention")
    if full is not None and not np.array_equal(np.sort(full.cells.pos), np.arange(n_tokens)):
        raise Refused("the other layers do not hold a cell for every token")
    return window


def _filled(name: str, pos: int, draft: Draft) -> int:
    return int(draft.state.tokens.ids[pos]) if name == "tok" else pos


def _with_zero_row(tensor: Tensor) -> Tensor:
    n = tensor.n_cells + 1
    if not tensor.element_bytes:
        zeros = Write(bytes(tensor.row_bytes), ACTION)
        return replace(tensor, n_cells=n, content=(zeros, *tensor.content))
    column, reader = tensor.element_bytes * tensor.n_cells, tensor.reader()
    n_channels = tensor.row_bytes // tensor.element_bytes

    def chunks() -> Iterator[bytes]:
        for channel in range(n_channels):
            yield bytes(tensor.element_bytes) + reader.read_at(channel * column, column)

    return replace(tensor, n_cells=n, content=(Make(tensor.row_bytes * n, chunks, ACTION),))
