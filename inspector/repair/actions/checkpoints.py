"""Checkpoints as the server reads them, and none that it cannot use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from inspector.bundle import Role
from inspector.render.page import counted
from inspector.repair.draft import OBSTRUCTED, Draft, Step
from inspector.repair.lists import (
    Carried,
    Family,
    Record,
    binding_of,
    losses,
    sorted_and_capped,
    without_extras,
)
from inspector.repair.state import Hopeless, Refused

DROP, MEND, CONVERT = "drop-checkpoints", "mend-list", "convert-checkpoints"
COMPANIONS = "drop-companions"
IK_LIST = "ik-checkpoints"
KINDS = (
    "checkpoints of ik_llama.cpp are of another kind than those of llama.cpp, and of another one "
    "in each version: only with their state, for a server that is named, one becomes the other"
)


def drop(draft: Draft) -> None:
    """Leaves out checkpoints that no server can use: cut, of another save, or deadly."""
    steps = dropped(draft.carried)
    if steps and not draft.options.allows(DROP):
        lists = [one for one in draft.carried if one.reasons or not one.listing.records]
        _leave_out(draft, DROP, lists)
        return
    draft.steps += steps


def _leave_out(draft: Draft, action: str, lists: Sequence[Carried]) -> None:
    """The copy has nothing of lists that could only be written with an action that is barred."""
    held = iter(draft.records)  # in the order of their lists
    kept = [(one, tuple(next(held) for _ in one.records)) for one in draft.carried]
    draft.carried = tuple(replace(o, records=()) if o in lists else o for o, _ in kept)
    draft.records = tuple(r for one, records in kept if one not in lists for r in records)
    names = " and ".join(one.listing.carrier for one in lists)
    if names:
        draft.refuse(
            action,
            f"it is not allowed, and without it {names} cannot be written: the copy has "
            "none of its checkpoints",
        )


def dropped(carried: Sequence[Carried]) -> list[Step]:
    """What is left out of lists, because no server could use it."""
    records = [(one, record) for one in carried for record in one.listing.records]
    unusable = [(record, one) for one, record in records if record.index in one.reasons]
    empty = [one.listing for one in carried if not one.listing.records]
    steps = []
    if unusable:
        shown = unusable[:_MOST]
        which = ", ".join(f"{r.carrier}[{r.index}]" for r, _ in shown)
        more = f" and {len(unusable) - _MOST} more" if len(unusable) > _MOST else ""
        lacking = sum(_lacking(one) for one in carried)
        if lacking:
            more += f", and {lacking:,} that its list counts and does not hold"
        why = dict.fromkeys(one.reasons[r.index] for r, one in shown)
        left, held = len(unusable) + lacking, len(records) + lacking
        steps.append(
            Step(
                DROP,
                "; ".join(why),
                f"leaves out {left:,} of {counted(held, 'checkpoint')}: {which}{more}",
                "the checkpoints that are left out",
                proven="b11549",
            )
        )
    if empty:
        behind = sum(len(listing.rest) for listing in empty if listing.rest is not None)
        steps.append(
            Step(
                DROP,
                "it holds no checkpoint",
                f"leaves out the list of {', '.join(listing.carrier for listing in empty)}",
                f"{behind:,} bytes behind its number of checkpoints" if behind else None,
                confirm=bool(behind),
            )
        )
    return steps


_MOST = 4
_MOST_COUNTED = 1024
"""Checkpoints of a list that is cut, as its own number has them, up to which that is believed."""


def _lacking(one: Carried) -> int:
    """Checkpoints that a list counts and that are behind its cut; 0 if it ends between two."""
    records, count = one.listing.records, one.listing.count or 0
    cut = bool(records) and not records[-1].complete
    return count - len(records) if cut and len(records) < count <= _MOST_COUNTED else 0


def mend(draft: Draft) -> None:
    """Writes a checkpoint list anew: its count, version and end, first and last bytes of blobs."""
    steps = mended(draft.carried)
    if steps and not draft.options.allows(MEND):
        _leave_out(draft, MEND, [one for one in draft.carried if one.mended or one.remade])
        return
    draft.steps += steps
    if draft.family is not None:
        draft.steps += renumbered(draft.carried)


def renumbered(carried: Sequence[Carried]) -> list[Step]:
    """What is wrong with the numbers of records whose blobs say what belongs there."""
    return [
        Step(
            MEND,
            f"numbers of checkpoints of {one.listing.carrier} are not those of their cells, by "
            "which servers go on from them",
            "; ".join(_renumbered(one)),
            proven=_tried(one),
        )
        for one in carried
        if one.renumbered
    ]


def _renumbered(one: Carried) -> Iterator[str]:
    """The numbers that are written in place of others."""
    held = {record.index: record for record in one.records}
    for record in one.renumbered:
        right = held[record.index]
        for name in ("n_tokens", "pos_min", "pos_max"):
            old, new = getattr(record, name), getattr(right, name)
            if old != new:
                yield f"{name} of {record.carrier}[{record.index}]: {old} becomes {new}"


def mended(carried: Sequence[Carried]) -> list[Step]:
    """What is wrong with the lists themselves, whatever their records are worth."""
    steps = [
        Step(
            MEND,
            "servers refuse a blob that does not begin or end as they write it, and nothing of "
            "these is missing",
            "; ".join(_remade(one)),
            proven=_tried(one),
        )
        for one in carried
        if one.remade
    ]
    return steps + [
        Step(
            MEND,
            f"what stands around the checkpoints of {one.listing.carrier} is not true of them: "
            "their number, their version, or their end",
            f"writes the list anew: {_whole(len(one.records))}, and nothing behind",
            proven=_tried(one),
        )
        for one in carried
        if one.mended and one.records
    ]


def _tried(one: Carried) -> str:
    """On which servers lists of its family were mended."""
    return "b11549" if one.listing.format == "sckp" else ""


def _whole(n: int) -> str:
    return f"{counted(n, 'checkpoint')} that {'is' if n == 1 else 'are'} whole"


def _remade(one: Carried) -> Iterator[str]:
    """What is done to blobs of a list of which nothing is missing."""
    for record in one.remade:
        blob, name = record.blob, f"{record.carrier}[{record.index}]"
        if blob is not None and blob.rest is not None:
            yield f"cuts {counted(len(blob.rest), 'byte')} off the end of the blob of {name}"
        if blob is not None and not blob.prefixed:
            yield f"puts d8 3c 14 af and a zero in front of the blob of {name}"


def convert(draft: Draft) -> None:
    """Writes checkpoints in the family that the server reads, beside or behind the state."""
    family, lists = draft.family, [one for one in draft.carried if one.records]
    if not draft.records:
        _fit_prefix(draft)
        return
    names = {one.listing.carrier for one in lists}
    barred = DROP if family is None else CONVERT
    other = any(one.family != family for one in lists)
    if other and (draft.obstructed or not draft.options.allows(barred)):
        why = OBSTRUCTED if draft.obstructed else "it is not allowed"
        draft.refuse(
            barred,
            f"{why}, and the server does not read {' and '.join(sorted(names))}: the "
            "copy has none of its checkpoints",
        )
        draft.records = ()
        _fit_prefix(draft)
        return
    if family is None:
        draft.take(
            Step(
                DROP,
                "this server reads no checkpoint lists",
                f"leaves out {counted(len(draft.records), 'checkpoint')} of "
                f"{', '.join(sorted(names))}",
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
        asked=draft.target is None or draft.options.to is not None,
        ik=draft.ik,
    )
    draft.steps += steps
    draft.records = kept
    _fit_prefix(draft)


def see_any(draft: Draft) -> None:
    """Sees that there are checkpoints, its own or a new one, where a form for them is asked for.

    Raises:
        Refused: if there are none.
    """
    if draft.options.to is not None and not draft.records:
        raise Refused(
            "none of its checkpoints is left" if draft.carried else "it has no checkpoints"
        )


def _fit_prefix(draft: Draft) -> None:
    """Blobs with the eight bytes in front, or without, as those who read them look for it."""
    wanted = draft.form.prefix if draft.target is None else draft.wanted.prefix
    if draft.family is not None and draft.family.format == "sckp":
        wanted = True  # only builds that want it read such lists
    n = sum(record.parts is not None for record in draft.records)
    if draft.ik:
        return
    if n and draft.stored.prefix != wanted:
        with_prefix(draft.steps, n, added=wanted)
    draft.form = replace(draft.form, prefix=wanted)


def with_prefix(steps: list[Step], n: int, *, added: bool) -> None:
    """Say what happens to so many blobs, in the step that converts them if there is one."""
    changes = f"{'adds' if added else 'strips'} the eight bytes in front of {n:,} of their blobs"
    if steps and steps[-1].action == CONVERT:
        steps[-1] = replace(steps[-1], changes=f"{steps[-1].changes}; {changes}")
        return
    steps.append(
        Step(
            CONVERT,
            "blobs of b9028 and newer begin with d8 3c 14 af and a slot number, those of older "
            f"builds do not, and {'newer' if added else 'older'} ones read them",
            changes.replace("their blobs", "the blobs"),
        )
    )


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
        words = [
            *lost,
            *([f"{counted(n_dropped, 'checkpoint')} that are older"] if n_dropped else []),
        ]
        where = f"beside it ({family.suffix})" if family.suffix else "behind the state"
        names = ", ".join(one.listing.carrier for one in lists)
        if all(one.family == family for one in lists):
            why = "servers read one list, its checkpoints in order and each once"
        elif asked:
            why = f"checkpoints are asked for in {family.name} form"
        else:
            why = f"the server reads checkpoints {where} in {family.name} form alone"
        steps.append(
            Step(
                CONVERT,
                why,
                f"writes {counted(len(kept), 'checkpoint')} of {names} {where}",
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
    if unknown and not draft.options.allows(COMPANIONS):
        draft.refuse(
            COMPANIONS,
            f"it is not allowed, and there is no copy of {', '.join(unknown)}: of no known kind",
        )
        return
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
