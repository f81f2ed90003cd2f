"""What a sliding window masks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inspector.builds import build_number
from inspector.model.geometry import MemoryExpectation, WindowType
from inspector.render.page import counted
from inspector.repair.draft import Draft, Step
from inspector.repair.state import Cache, Numbers

TRIM_WINDOW = "trim-window"
_MASKED_LEFT_OUT = 9473
"""Builds from which on a save holds the window alone. Source: llama.cpp PR #23981."""
_ALONE = 3
"""First version of slot files that no other builds write."""


def window_of(draft: Draft) -> int | None:
    """Tokens of the sliding window, by the model or by the cells of a save that holds no others."""
    memory = draft.target.memory if draft.target is not None else None
    if memory is not None and memory.n_swa:
        return memory.n_swa if memory.swa_type is WindowType.STANDARD else None
    swa, base = draft.state.cache("swa"), draft.state.cache("attention")
    since = draft.report.identification.builds.since
    only_window = since is not None and build_number(since) >= _MASKED_LEFT_OUT
    only_window |= draft.form.version >= _ALONE and not draft.form.session
    if swa is None or base is None or not only_window:
        return None
    return len(swa.cells) if 0 < len(swa.cells) < len(base.cells) else None


def is_open(draft: Draft, swa: Cache) -> bool:
    """Whether cells stand in front of the window, so that servers can go back as it is."""
    window, n_tokens = window_of(draft), len(draft.state.tokens.ids)
    return window is not None and bool((swa.cells.pos < n_tokens - window).any())


def seen(pos: Numbers, memory: MemoryExpectation) -> NDArray[np.bool_]:
    """Which positions the window shows to the highest of them.

    Source: ggml-org/llama.cpp b10587, src/llama-hparams.cpp `llama_hparams::is_masked_swa`.

    Args:
        pos: positions, shape `(n_cells,)`.
        memory: of a model with windows.
    """
    first = int(pos.max(initial=0)) - memory.n_swa + 1
    if memory.swa_type is WindowType.CHUNKED:
        first = int(pos.max(initial=0)) // memory.n_swa * memory.n_swa
    found: NDArray[np.bool_] = pos >= first
    return found


def trim_window(draft: Draft) -> None:
    """Windowed cells that no token can see any more, where the server has no room for them."""
    swa, memory = draft.state.cache("swa"), draft.target.memory if draft.target else None
    expected = draft.expects(swa.member) if swa is not None else None
    if swa is None or memory is None or expected is None or expected.capacity is None:
        return
    if len(swa.cells) <= expected.capacity:
        return
    kept = np.flatnonzero(seen(swa.cells.pos, memory))
    draft.take(
        Step(
            TRIM_WINDOW,
            f"the windowed cache of this server has "
            f"{counted(expected.capacity, 'cell')}, the file has "
            f"{len(swa.cells):,} for it: the restore is refused",
            f"drops {counted(len(swa.cells) - len(kept), 'cell')} in front of the window of "
            f"{memory.n_swa:,}",
            "nothing that the next token can see; a prompt that goes back needs a checkpoint",
            proven="b10229, b11549",
        )
    )
    draft.state = draft.state.part(swa.member, swa.taken(kept, TRIM_WINDOW))
