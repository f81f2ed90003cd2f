"""Checkpoints as the server reads them, and none that it cannot use."""

from __future__ import annotations

from inspector.repair.draft import Draft, Step
from inspector.repair.lists import losses, sorted_and_capped, without_extras

DROP, CONVERT = "drop-checkpoints", "convert-checkpoints"


def drop(draft: Draft) -> None:
    """Records that no server can use, and those that stand in the way of others."""
    found = draft.report.checkpoints
    unusable = [one.record for one in found if not one.usable]
    if unusable:
        which = ", ".join(f"{r.carrier}[{r.index}]" for r in unusable[:_MOST])
        more = f" and {len(unusable) - _MOST} more" if len(unusable) > _MOST else ""
        draft.take(
            Step(
                DROP,
                "they are cut, of another state or another model, or would end the server",
                f"leaves out {len(unusable):,} of {len(found):,} checkpoints: {which}{more}",
                "the checkpoints that are left out",
                proven="b11549",
            )
        )


_MOST = 4


def convert(draft: Draft) -> None:
    """The list in the family that the server reads, beside or behind the state."""
    family = draft.family
    if not draft.records or family is None:
        return
    kept = sorted_and_capped(draft.records, family.most)
    carriers = {one.record.carrier for one in draft.report.checkpoints if one.usable}
    families = {
        (one.record.format, one.record.version) for one in draft.report.checkpoints if one.usable
    }
    lost = losses(kept, family)
    dropped = len(draft.records) - len(kept)
    same = families <= {(family.format, family.version)} and len(carriers) <= 1
    if not same or lost or dropped or kept != tuple(draft.records):
        words = [*lost, *([f"{dropped:,} older checkpoints"] if dropped else [])]
        where = f"beside it ({family.suffix})" if family.suffix else "behind the state"
        names = ", ".join(sorted(carriers))
        draft.take(
            Step(
                CONVERT,
                f"the server reads checkpoints {where} in {family.name} form alone"
                if draft.target is not None
                else f"checkpoints are asked for in {family.name} form",
                f"writes {len(kept):,} checkpoints of {names} {where}",
                ", ".join(words) or None,
                proven="turboquant@b9079, b11549",
            )
        )
    draft.records = tuple(without_extras(record, family) for record in kept)
