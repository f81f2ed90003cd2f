"""Words that no writer writes there, where the rest of the file says what belongs there."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.node import walk
from inspector.repair.compose import slot_file
from inspector.repair.compose_ik import ik_slot_file
from inspector.repair.draft import Draft, Step
from inspector.repair.ik import is_ik
from inspector.repair.segments import Composed, Write
from inspector.repair.state import Hopeless, Refused

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
