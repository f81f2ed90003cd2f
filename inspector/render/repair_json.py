"""A repair as one JSON document, under a versioned schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspector.render import as_json, verdict_json

if TYPE_CHECKING:
    from inspector.check import Check
    from inspector.repair.plan import Plan
    from inspector.report import Report

SCHEMA = "slotscope.repair/1"


def to_dict(plan: Plan, written: Path | None) -> dict[str, Any]:
    """The document for one repair.

    Args:
        plan: the repair.
        written: where the copy was written; None if it was not.
    """
    outputs = [written.with_name(written.name + one.suffix) for one in plan.outputs if written]
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
        "outputs": [str(path) for path in outputs],
        "before": _seen(plan.report, plan.before),
        "after": _seen(plan.copied, plan.after),
    }


def _seen(report: Report, check: Check | None) -> dict[str, Any]:
    return verdict_json.to_dict(check) if check is not None else as_json.to_dict(report)
