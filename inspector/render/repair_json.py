"""A repair as one JSON document, under a versioned schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inspector.bundle import RECORD
from inspector.render import as_json, verdict_json

if TYPE_CHECKING:
    from inspector.check import Check
    from inspector.repair.outcome import Written
    from inspector.repair.plan import Plan
    from inspector.report import Report

SCHEMA = "slotscope.repair/1"


def to_dict(plan: Plan, written: Written) -> dict[str, Any]:
    """The document for one repair.

    Args:
        plan: the repair.
        written: what became of it.
    """
    new = written.new
    outputs = [new.with_name(new.name + one.suffix) for one in plan.outputs if new is not None]
    return {
        "schema": SCHEMA,
        "actions": [
            {
                "action": step.action,
                "why": step.why,
                "changes": step.changes,
                "loss": step.loss,
                "needs_consent": step.confirm,
                "proven_on": step.proven,
            }
            for step in plan.steps
        ],
        "refused": [{"action": action, "why": why} for action, why in plan.refused],
        "not_needed": list(plan.needless),
        "stays": list(plan.staying),
        "outputs": [str(path) for path in outputs],
        "record": f"{new}{RECORD}" if new is not None else None,
        "removed": [str(path) for path in written.removed],
        "hindrance": written.hindrance or None,
        "before": _seen(plan.report, plan.before),
        "after": _seen(plan.copied, plan.after),
    }


def refused(why: str) -> dict[str, Any]:
    """The document for a file of which no copy can be made."""
    nothing: dict[str, Any] = {
        "actions": [],
        "refused": [],
        "not_needed": [],
        "stays": [],
        "outputs": [],
    }
    rest: dict[str, Any] = {
        "record": None,
        "removed": [],
        "hindrance": why,
        "before": None,
        "after": None,
    }
    return {"schema": SCHEMA, **nothing, **rest}


def _seen(report: Report, check: Check | None) -> dict[str, Any]:
    return verdict_json.to_dict(check) if check is not None else as_json.to_dict(report)
