"""Fewer tokens and cells: what fits a smaller context, or an earlier place in a conversation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from formats.bodies.compositions import MEMORY
from inspector.render.page import counted
from inspector.repair.actions.window import window_of
from inspector.repair.draft import Draft, Step
from inspector.repair.ik import IkCache
from inspector.repair.state import IK_MEMORY, Part, Recurrent, Refused, State

TRIM, MATERIALIZE = "trim", "materialize"


def trim(draft: Draft) -> None:
    """At most as many tokens as the target has cells for, or as were asked for."""
    n_tokens, why = _limit(draft)
    count = len(draft.state.tokens.ids)
    if draft.options.at is not None and draft.options.at > count:
        has = counted(count, "token")
        raise Refused(f"it has {has}: nothing is to be cut at {draft.options.at:,}")
    if n_tokens is None or (n_tokens >= count and not draft.state.missing):
        return
    record = None
    whole = not draft.state.missing and draft.state.recurrent is None
    if not whole or not _window_covers(draft, n_tokens):
        fits = [r for r in draft.records if r.parts is not None and r.n_tokens <= n_tokens]
        record = max(fits, key=lambda r: r.n_tokens, default=None)
        if record is None:
            raise Refused(
                f"{why}, the memory of the end cannot go back, and no checkpoint returns to "
                f"{counted(n_tokens, 'token')} or less"
            )
        n_tokens = record.n_tokens
    if n_tokens <= 0:
        raise Refused("nothing would be left")
    last = _position(draft.state, n_tokens)
    changes, lost = without_end(count - n_tokens, count)
    draft.take(
        Step(
            TRIM if record is None else MATERIALIZE,
            why,
            changes
            + (
                ""
                if record is None
                else f", and puts the memory of the checkpoint at token "
                f"{n_tokens:,} in place of that of the end"
            ),
            lost,
            proven="b10229, b11549" if record is None else "b10229, b11063, b11549",
            confirm=draft.options.at is None
            and draft.options.prompt is None
            and not draft.options.asks_for(TRIM)
            and not draft.options.asks_for(MATERIALIZE),
        )
    )
    action = draft.steps[-1].action
    kept = record.parts or () if record is not None else ()
    held = {part.member: part for part in kept if not isinstance(part, IkCache)}
    own = {part.member: part for part in draft.state.parts}
    parts: list[Part] = []
    for member in _members(draft.state):
        part = held.get(member, own.get(member))
        if part is None or (member not in held and isinstance(part, Recurrent)):
            raise Refused(f"the checkpoint holds no {member}")
        if member in held or isinstance(part, Recurrent):
            parts.append(part)
        else:
            parts.append(part.taken(np.flatnonzero(part.cells.pos < last), action))
    tokens = replace(draft.state.tokens, ids=draft.state.tokens.ids[:n_tokens])
    draft.state = replace(draft.state, tokens=tokens, parts=tuple(parts), missing=())
    draft.records = tuple(r for r in draft.records if r.n_tokens <= n_tokens)


def without_end(lost: int, count: int) -> tuple[str, str]:
    """What changes, and what is lost, if so many tokens of all are cut from the end."""
    if lost == 1:
        return (
            "cuts 1 token and its cell from the end",
            f"the last of {counted(count, 'token')}: it has to be evaluated again",
        )
    return (
        f"cuts {lost:,} tokens and their cells from the end",
        f"the last {lost:,} of {count:,} tokens: they have to be evaluated again",
    )


def _members(state: State) -> tuple[str, ...]:
    """Names of its sections, those that are missing too."""
    if state.memory == IK_MEMORY:
        return tuple(part.member for part in state.parts)
    return tuple(member for member, _, _ in MEMORY[state.memory][1])


def _limit(draft: Draft) -> tuple[int | None, str]:
    options, target = draft.options, draft.target
    if options.prompt is not None:
        ids, prompt = draft.state.tokens.ids, np.asarray(options.prompt, np.int64)
        n = min(len(ids), len(prompt))
        differs = np.flatnonzero(ids[:n] != prompt[:n])
        shared = int(differs[0]) if len(differs) else n
        return shared, f"the prompt shares {counted(shared, 'token')} with it"
    if options.at is not None:
        return options.at, f"it is to end at token {options.at:,} or before"
    if draft.state.missing:
        return len(draft.state.tokens.ids), f"{', '.join(draft.state.missing)} is cut off"
    room = target.n_ctx_slot if target is not None else None
    if room is not None and len(draft.state.tokens.ids) > room:
        return room, f"a slot of this server holds {counted(room, 'token')}"
    return None, ""


def _window_covers(draft: Draft, n_tokens: int) -> bool:
    """Whether the windowed cache still has all that the tokens behind so many can see."""
    swa = draft.state.cache("swa")
    if swa is None:
        return True
    if not len(swa.cells):
        return False
    lowest = int(swa.cells.pos.min())
    window = window_of(draft)
    return lowest == 0 or (window is not None and lowest <= n_tokens - window)


def _position(state: State, n_tokens: int) -> int:
    """The position behind so many tokens.

    Raises:
        Refused: where positions do not count tokens.
    """
    tokens, base = state.tokens, state.caches[0] if state.caches else None
    if tokens.media_start and tokens.media_start[0] < n_tokens:
        raise Refused("a state with media is not cut behind them")
    expected = np.arange(len(tokens.ids))
    if base is not None and not np.array_equal(np.sort(base.cells.pos), expected):
        raise Refused("its cells are not one for every token: where to cut is not known")
    return n_tokens
