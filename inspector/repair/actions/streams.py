"""As many cell arrays as the server has."""

from __future__ import annotations

from dataclasses import replace

from inspector.repair.draft import Draft, Step


def fit_streams(draft: Draft) -> None:
    """Cells in the first of as many cell arrays as the target has."""
    if draft.own is None or draft.ik or not draft.form.streams:
        return
    wanted = draft.own.n_stream
    others = [cache for cache in draft.state.caches if cache.n_stream != wanted]
    if not others:
        return
    draft.take(
        Step(
            "fit-streams",
            f"the server has {wanted} cell array{'s' * (wanted != 1)} (-np, --kv-unified), the "
            f"file has {others[0].n_stream}: the restore is refused",
            f"the number of cell arrays, and that of counts of empty ones by "
            f"{abs(wanted - others[0].n_stream)} in every cache",
            proven="b10229, b11549",
        )
    )
    draft.convert(
        lambda cache: replace(cache, n_stream=wanted, stream=min(cache.stream, wanted - 1))
    )
