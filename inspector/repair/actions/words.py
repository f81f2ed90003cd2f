"""Words that no writer writes there, where the rest of the file says what belongs there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from inspector.model.layer0.comparison import MOST_SETTLED
from inspector.node import walk
from inspector.repair.compose import slot_file
from inspector.repair.compose_ik import ik_slot_file
from inspector.repair.draft import Draft, Step
from inspector.repair.ik import is_ik
from inspector.repair.segments import Composed, Write
from inspector.repair.state import Cache, Hopeless, Numbers, Refused

ACTION = "correct-word"
FIRST = "a word of it has to be corrected before anything else, and correct-word is not allowed"
_WORD = 4
_MOST = 4


def correct_words(draft: Draft) -> None:
    """Words around the numbers, with which loaders go astray or which they refuse.

    Raises:
        Hopeless: if there are some and it is not allowed: whatever is written anew corrects them.
    """
    reading = draft.report.identification.reading
    if draft.state.missing or reading is None:
        return
    try:
        if is_ik(draft.state):
            content = tuple(ik_slot_file(draft.state, draft.stored.version, ACTION))
        else:
            content = tuple(slot_file(draft.state, draft.stored, ACTION))
        whole = Composed(content, "")
    except Refused:
        return  # what the target needs may do without
    appendix = reading.decoding.root.get("appendix")
    if whole.size != (reading.decoding.end if appendix is None else appendix.span.start):
        return
    found = list(_differing(draft, whole))
    if found and not draft.options.allows(ACTION):
        raise Hopeless(FIRST)
    if found:
        more = f"; {len(found) - _MOST:,} more" if len(found) > _MOST else ""
        draft.take(
            Step(
                ACTION,
                "no writer writes these words, and loaders refuse them or go astray",
                "; ".join(found[:_MOST]) + more,
            )
        )


def correct_tokens(draft: Draft) -> None:
    """Tokens in which the list and the cells differ, where the model tells which are right."""
    identity = draft.check.identity if draft.check is not None else None
    cache = next((one for one in draft.state.caches if "tok" in one.cells.extension), None)
    if identity is None or cache is None or not (identity.of_list or identity.of_cell):
        return
    ids, pos, tok = draft.state.tokens.ids, cache.cells.pos, cache.cells.extension["tok"]
    order, by_cell, by_list = np.argsort(pos), list(identity.of_cell), list(identity.of_list)
    n = len(pos)
    if draft.state.tokens.media_start or n > len(ids) or (pos[order] != np.arange(n)).any():
        return  # positions do not count tokens
    if int(((tok >= 0) & (ids[pos] != tok)).sum()) > MOST_SETTLED:
        raise Refused(f"the list and more than {MOST_SETTLED} cells name different tokens")
    changed = []
    if by_cell:
        listed = ids.copy()
        listed[by_cell] = tok[order][by_cell]
        draft.state = replace(draft.state, tokens=replace(draft.state.tokens, ids=listed))
        changed.append(f"the list: {_tokens(by_cell)}, as the cells have it")
    if by_list:
        draft.convert(lambda part: _renamed(part, by_list, ids))
        changed.append(f"the cells: {_tokens(by_list)}, as the list has it")
    draft.take(
        Step(
            ACTION,
            "the list and the cells name different tokens, and the rows of the first layer are "
            "those that the model computes for one of the two: the other was changed",
            "; ".join(changed),
        )
    )


def _tokens(positions: list[int]) -> str:
    if len(positions) == 1:
        return f"token {positions[0]:,}"
    return f"{len(positions):,} tokens from {positions[0]:,} to {positions[-1]:,}"


def _renamed(cache: Cache, positions: list[int], ids: Numbers) -> Cache:
    """A cache in which the cells at some positions name the tokens of the list."""
    if "tok" not in cache.cells.extension:
        return cache
    pos, tok = cache.cells.pos, cache.cells.extension["tok"].copy()
    wrong = np.isin(pos, positions)
    tok[wrong] = ids[pos[wrong]]
    cells = replace(cache.cells, extension={**cache.cells.extension, "tok": tok})
    return replace(cache, cells=cells)


def _differing(draft: Draft, whole: Composed) -> Iterator[str]:
    """The words of the file that are others once it is written anew."""
    reading, source = draft.report.identification.reading, draft.report.source
    assert reading is not None
    at = 0
    for segment in whole.content:
        if isinstance(segment, Write):
            new, old = segment.data, source.read_at(at, len(segment))
            for offset in range(0, len(new) if new != old else 0, _WORD):
                ours, theirs = new[offset : offset + _WORD], old[offset : offset + _WORD]
                if ours != theirs:
                    words = (int.from_bytes(w, "little", signed=True) for w in (theirs, ours))
                    yield "{}: {:,} becomes {:,}".format(_path(draft, at + offset), *words)
        at += len(segment)


def _path(draft: Draft, offset: int) -> str:
    reading = draft.report.identification.reading
    assert reading is not None
    paths = [path for path, node in walk(reading.decoding.root) if offset in node.span]
    return f"{paths[-1] if paths else 'the word'} at 0x{offset:x}"
