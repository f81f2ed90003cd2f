"""The fallback tip checkpoint: the end of a state as a checkpoint of its own.

Source: TheTom/llama-cpp-turboquant PR #206 (`create_checkpoint` behind a restore); measured on
b9079 of it and on llama.cpp b11549 with gemma3, gpt-oss, gemma2, cohere2, qwen35, lfm2, jamba.
"""

from __future__ import annotations

import numpy as np

from formats.ggml_types import IK
from inspector.render.page import counted
from inspector.repair.actions.window import is_open, window_of
from inspector.repair.draft import OBSTRUCTED, Draft, Step
from inspector.repair.lists import Record
from inspector.repair.state import Cache, Recurrent, Refused

ACTION = "synthesize-tip"
_STRICT = 8450
"""Builds from which on a checkpoint must begin below the threshold. Source: PR #20726."""


def synthesize_tip(draft: Draft) -> None:
    """A checkpoint of the end, where the state can go back no other way."""
    swa, recurrent = draft.state.cache("swa"), draft.state.recurrent
    ik = draft.ik or (draft.family is not None and draft.family.format == "ik-checkpoints")
    if ik or (swa is None and recurrent is None):
        if draft.options.asks_for(ACTION):
            raise Refused(
                f"{IK} needs no checkpoint of the end"
                if ik
                else "plain attention can be cut anywhere: it needs no checkpoint"
            )
        return
    if draft.records and not draft.options.asks_for(ACTION):
        return
    if draft.form.session:
        if draft.options.asks_for(ACTION):
            raise Refused(
                "whole-context files have no place for it: from-session makes a slot file"
            )
        return
    if draft.family is None:
        if draft.options.asks_for(ACTION):
            raise Refused("this server reads no checkpoint lists: see window-anchor, materialize")
        return
    windowed = swa if recurrent is None else None
    if windowed is not None and is_open(draft, windowed) and not draft.options.asks_for(ACTION):
        return
    if not draft.fits:
        if draft.options.asks_for(ACTION):
            raise Refused("trim would have to be done first")
        return
    if draft.obstructed and draft.options.allows(ACTION):
        raise Refused(OBSTRUCTED)
    if any(record.n_tokens == len(draft.state.tokens.ids) for record in draft.records):
        return
    record = _of_windows(draft, windowed) if windowed is not None else _of_state(draft)
    draft.records = (*draft.records, record)


def _of_state(draft: Draft) -> Record:
    """Of a recurrent state: it stands at its last position and nowhere else."""
    recurrent = draft.state.recurrent
    assert recurrent is not None
    if len(recurrent.pos) != 1:
        raise Refused(f"the recurrent section has {counted(len(recurrent.pos), 'cell')}")
    pos, n_tokens = int(recurrent.pos[0]), len(draft.state.tokens.ids)
    _check_end(draft, pos)
    parts = tuple(
        part for part in draft.state.parts if isinstance(part, Recurrent) or part.kind == "swa"
    )
    draft.take(
        Step(
            ACTION,
            "a recurrent state cannot go back: after the next prompt the saved end is lost",
            f"adds a checkpoint of {counted(n_tokens, 'token')} at position {pos:,}: the recurrent "
            "section "
            "once more. The next prompt reuses as much as without it; one after that, back at the "
            "saved end, reuses all of it, also where the text in between was longer than a batch",
            proven="turboquant@b9079, b11549",
        )
    )
    return Record(n_tokens, pos, pos, (), parts=parts)


def _of_windows(draft: Draft, swa: Cache) -> Record:
    """Of a sliding window: its lowest position is written one lower.

    Only the last position is evaluated again, and it sees what lies above the lowest stored one.

    Raises:
        Refused: if the window is not known, or not stored as far as it reaches.
    """
    window, n_tokens = window_of(draft), len(draft.state.tokens.ids)
    if window is None:
        raise Refused("the size of its window is not known: name the model with --model")
    if not len(swa.cells):
        raise Refused("the windowed section is empty")
    if swa.n_stream > 1 and len(draft.state.caches[0].cells) != n_tokens:
        raise Refused("its cells are not one for every token")
    lowest, highest = int(swa.cells.pos.min()), int(swa.cells.pos.max())
    _check_end(draft, highest)
    needed = np.arange(max(0, highest - window + 1), highest)
    if not np.isin(needed, swa.cells.pos).all():
        raise Refused(f"not all cells from {needed[0]:,} to {highest - 1:,} are stored")
    build = draft.target.build if draft.target is not None else None
    if build is None or (build.number or 0) < _STRICT:
        raise Refused("which checkpoints a server picks has to be known: name it with --build")
    if lowest == 1:
        raise Refused("the window begins at position 1, and one lower is 0, which always fits")
    pos_min = max(0, lowest - 1)
    draft.take(
        Step(
            ACTION,
            "servers want cells or a checkpoint below what the next token sees, and a save holds "
            "exactly that",
            f"adds a checkpoint of {counted(n_tokens, 'token')}, positions {pos_min:,} to "
            f"{highest:,}: the windowed section once more, its lowest position written one lower. "
            f"Sound, for only position {highest:,} is evaluated again, which sees the positions "
            f"from {max(0, highest - window + 1):,} on, all of them stored",
            proven="b11549, with gemma3, gpt-oss, gemma2, cohere2",
        )
    )
    return Record(n_tokens, pos_min, highest, (), parts=(swa,))


def _check_end(draft: Draft, pos: int) -> None:
    tokens = draft.state.tokens
    if not tokens.media_start and pos != len(tokens.ids) - 1:
        raise Refused(
            f"memory ends at position {pos:,}, and the list has "
            f"{counted(len(tokens.ids), 'token')}: what a checkpoint would return to is not known"
        )
    if tokens.media_start:
        raise Refused("of a state with media no checkpoint is made")
