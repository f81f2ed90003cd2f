"""Checkpoints as the server reads them, and none that it cannot use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inspector.bundle import Role
from inspector.repair.draft import Draft, Step
from inspector.repair.lists import (
    Carried,
    Family,
    Record,
    binding_of,
    losses,
    sorted_and_capped,
    without_extras,
)
from inspector.repair.state import Hopeless

DROP, MEND, CONVERT = "drop-checkpoints", "mend-list", "convert-checkpoints"
COMPANIONS = "drop-companions"
IK_LIST = "ik-checkpoints"
KINDS = (
    "checkpoints of ik_llama.cpp are of another kind than those of llama.cpp, and of another one "
    "in each version: only with their state, for a server that is named, one becomes the other"
)


def drop(draft: Draft) -> None:
    """Records that no server can use, and those that stand in the way of others."""
    draft.steps += dropped(draft.carried)


def dropped(carried: Sequence[Carried]) -> list[Step]:
    """What is left out of lists, because no server could use it."""
    records = [(one, record) for one in carried for record in one.listing.records]
    unusable = [record for one, record in records if record not in one.records]
    empty = [one.listing.carrier for one in carried if not one.listing.records]
    steps = []
    if unusable:
        which = ", ".join(f"{r.carrier}[{r.index}]" for r in unusable[:_MOST])
        more = f" and {len(unusable) - _MOST} more" if len(unusable) > _MOST else ""
        steps.append(
            Step(
                DROP,
                "they are cut, of another state or another model, or would end the server",
                f"leaves out {len(unusable):,} of {len(records):,} checkpoints: {which}{more}",
                "the checkpoints that are left out",
                proven="b11549",
            )
        )
    if empty:
        steps.append(
            Step(
                DROP,
                "it holds no checkpoint",
                f"leaves out the list of {', '.join(empty)}",
            )
        )
    return steps


_MOST = 4


def counted(n: int) -> str:
    """So many checkpoints, in words."""
    return f"{n:,} checkpoint{'' if n == 1 else 's'}"


def mend(draft: Draft) -> None:
    """Lists that claim more than they hold, or are followed by more."""
    draft.steps += mended(draft.carried)


def mended(carried: Sequence[Carried]) -> list[Step]:
    """What is wrong with the lists themselves, whatever their records are worth."""
    return [
        Step(
            MEND,
            f"what stands around the checkpoints of {one.listing.carrier} is not true of them: "
            "their number, their version, or their end",
            f"writes the list anew: {counted(len(one.records))} that are whole, and nothing behind",
        )
        for one in carried
        if one.mended and one.records
    ]


def convert(draft: Draft) -> None:
    """The list in the family that the server reads, beside or behind the state."""
    family = draft.family
    if not draft.records:
        return
    if family is None:
        names = {one.listing.carrier for one in draft.carried if one.records}
        draft.take(
            Step(
                DROP,
                "this server reads no checkpoint lists",
                f"leaves out {counted(len(draft.records))} of {', '.join(sorted(names))}",
                "the checkpoints, of which this server would take none",
                proven="b10229, b11063, b11549",
            )
        )
        draft.records = ()
        return
    if family.format == IK_LIST and family.version != draft.form.version:
        raise Hopeless(KINDS)
    kept, steps = converted(
        draft.carried,
        draft.records,
        family,
        asked=draft.target is None,
        ik=draft.ik,
    )
    draft.steps += steps
    draft.records = kept


def prompt(draft: Draft) -> bytes | None:
    """What an STCK list says of the prompt, if that is still the one of the state."""
    tokens = draft.report.tokens
    if tokens is None or not np.array_equal(draft.state.tokens.ids, tokens.ids):
        return None
    lists = (one for one in draft.carried if one.records and one.listing.format == "stck")
    return next((binding_of(one.listing, one.source) for one in lists), None)


def converted(
    carried: Sequence[Carried],
    records: Sequence[Record],
    family: Family,
    *,
    asked: bool,
    ik: bool,
) -> tuple[tuple[Record, ...], list[Step]]:
    """Records in a family, and what that changes and loses.

    Args:
        carried: the lists that they come from.
        records: what is left of them.
        family: how they are to be written.
        asked: whether the user names the family, rather than the server.
        ik: whether their blobs are of ik_llama.cpp.

    Raises:
        Hopeless: if their blobs are not those of the family's server.
    """
    if ik != (family.format == IK_LIST):
        raise Hopeless(KINDS)
    kept = sorted_and_capped(records, family.most)
    lists = [one for one in carried if one.records]
    lost = losses(kept, family)
    n_dropped = len(records) - len(kept)
    same = all(one.family == family for one in lists) and len(lists) <= 1
    steps = []
    if not same or lost or n_dropped or kept != tuple(records):
        words = [*lost, *([f"{n_dropped:,} older checkpoints"] if n_dropped else [])]
        where = f"beside it ({family.suffix})" if family.suffix else "behind the state"
        names = ", ".join(one.listing.carrier for one in lists)
        steps.append(
            Step(
                CONVERT,
                f"checkpoints are asked for in {family.name} form"
                if asked
                else f"the server reads checkpoints {where} in {family.name} form alone",
                f"writes {counted(len(kept))} of {names} {where}",
                ", ".join(words) or None,
                proven="turboquant@b9079, b11549",
            )
        )
    return tuple(without_extras(record, family) for record in kept), steps


def companions(draft: Draft) -> None:
    """Other files beside the state, which are of use only with its own tokens and server."""
    tokens, kept = draft.report.tokens, dict(draft.companions)
    same = tokens is not None and np.array_equal(draft.state.tokens.ids, tokens.ids)
    marked = draft.family is not None and draft.family.format == "stck" and bool(draft.records)
    codes = {finding.code for finding in draft.report.findings}
    if not same or draft.target is not None:
        kept = {}
    if codes & _SPOILT:
        kept.pop(_TOKENS, None)
    if not marked or "sidecar.marker-mismatch" in codes:
        kept = {suffix: one for suffix, one in kept.items() if suffix not in _MARKED}
    unknown = [
        other.companion.file.name
        for other in draft.report.beside
        if other.companion.role is Role.CHECKPOINTS and other.listing is None
    ]
    left = [suffix for suffix in draft.companions if suffix not in kept]
    if draft.ik and _TOKENS in left:
        left.remove(_TOKENS)  # it is written anew
    names = [*unknown, *(draft.report.name + suffix for suffix in left)]
    if names:
        draft.take(
            Step(
                COMPANIONS,
                "they are of no known kind, of other tokens, or of no use to this server",
                f"no copy of {', '.join(names)}",
                "what these files hold" if unknown or not same else None,
            )
        )
    draft.companions = kept


_TOKENS = ".tokens.json"
_SPOILT = {"sidecar.tokens-mismatch", "sidecar.tokens-unreadable", "sidecar.tokens-ignored"}
"""Findings on a token list beside a state that is worth nothing."""
_MARKED = (".gen", ".hbnd", ".drft")
"""Companions that belong to an STCK list."""
