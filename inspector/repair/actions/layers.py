"""No next-token layers in the main cache, where the target has none there.

Source: ggml-org/llama.cpp PR #28330 (b10866 to b10909); they are evaluated in a context of their
own, so that their rows in the main cache were never written.
"""

from __future__ import annotations

from dataclasses import replace

from inspector.repair.draft import Draft, Step
from inspector.repair.state import Cache, Hopeless

ACTION = "drop-layers"


def drop_layers(draft: Draft) -> None:
    """Only the layers that the target's caches have."""
    memory = draft.target.memory if draft.target is not None else None
    if memory is None or draft.ik:
        return
    surplus = {cache.member: _surplus(draft, cache) for cache in draft.state.caches}
    lacking = [member for member, n in surplus.items() if 0 < -n <= memory.n_layer_nextn]
    if lacking and draft.target is not None:
        raise Hopeless(
            f"{draft.target.build.label} has rows for next-token layers in {lacking[0]}, and this "
            "file has none, as newer builds write it: rows are not added"
        )
    found = {member: n for member, n in surplus.items() if 0 < n <= memory.n_layer_nextn}
    if not found:
        return
    n = max(found.values())
    draft.take(
        Step(
            ACTION,
            f"the file has rows for {n} next-token layers, which this server keeps in a cache of "
            "their own: the restore is refused",
            f"drops their rows from {', '.join(found)}: no server reads or writes them there",
            proven="b10229 and b10809 on b11063 and b11549, with glm4moe",
        )
    )

    def changed(cache: Cache) -> Cache:
        if cache.member not in found:
            return cache
        kept = len(cache.k) - found[cache.member]
        return replace(
            cache, n_layer=cache.n_layer - found[cache.member], k=cache.k[:kept], v=cache.v[:kept]
        )

    draft.convert(changed)


def _surplus(draft: Draft, cache: Cache) -> int:
    expected = draft.expects(cache.member)
    return len(cache.k) - len(expected.k) if expected is not None else 0
