"""Bytes behind the end of a state that are no part of it."""

from __future__ import annotations

from inspector.render.page import counted
from inspector.repair.draft import Draft, Step
from inspector.repair.segments import size_of
from inspector.repair.state import Refused

ACTION = "strip-trailing"


def strip_trailing(draft: Draft) -> None:
    """Cut off what follows the end.

    Raises:
        Refused: if it may be what a section holds that is empty by its count.
    """
    if not draft.tail:
        return
    reading, size = draft.report.identification.reading, size_of(draft.tail)
    padded = reading is not None and reading.padded
    sections = draft.report.sections
    empty = next((part.path for part in sections if not (part.cells and part.blocks)), None)
    if empty is not None and not padded and len(draft.state.tokens.ids):
        raise Refused(
            f"{empty} is said to be empty, and the bytes behind the end may be what it holds"
        )
    codes = (finding.code for finding in draft.report.findings)
    model = draft.target.memory if draft.target is not None else None
    proven = model is not None and not any(code.startswith("model.") for code in codes)
    bytes_ = counted(size, "zero") if padded else f"{counted(size, 'byte')} that nothing explains"
    one = size == 1
    draft.take(
        Step(
            ACTION,
            f"{bytes_} {'follows' if one else 'follow'} the end of the state"
            + (", which is where that of its model ends" if proven else ""),
            f"cuts {'it' if one else 'them'} off: the copy ends at 0x{draft.report.size - size:x}",
            None if padded or proven else "what is cut off, if it is a part of the state after all",
            "whole-context files in the libraries of b10229 and b11549, and states that get "
            "checkpoints in their place on b11549",
            confirm=not padded and not proven,
        )
    )
    draft.tail = ()
