"""The verdict on a file for a server as one JSON document, under a versioned schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inspector.model.identity import DOES_NOT_PROVE
from inspector.render.as_json import finding_dict, identity

if TYPE_CHECKING:
    from inspector.check import Check, Next
    from inspector.server.prompt import Prediction

SCHEMA = "slotscope.check/1"


def to_dict(check: Check) -> dict[str, Any]:
    """The document for one file."""
    report, target, found = check.report, check.target, check.identity
    return {
        "schema": SCHEMA,
        "file": {"name": report.name, "path": report.source.name, "bytes": report.size},
        "identity": identity(report),
        "target": {
            "server": target.build.server,
            "build": target.build.label,
            "model": target.model_name,
            "assumed": list(check.assumed),
            "notes": list(target.notes),
        },
        "restore": {
            "outcome": str(check.restore.outcome),
            "reason": check.restore.reason,
            "message": check.restore.message,
        },
        "reuse": [_next(one) for one in check.reuse],
        "conditions": list(check.conditions),
        "model": {
            "outcome": found.outcome.in_short,
            "evidence": found.evidence,
            "detail": str(found.outcome),
            "unproven": found.unproven or DOES_NOT_PROVE,
            "notes": list(found.notes),
        },
        "findings": [finding_dict(finding) for finding in check.findings],
    }


def _next(one: Next) -> dict[str, Any]:
    answer = {"case": one.name or None, **_prediction(one.found)}
    if one.then is not None:
        answer["then"] = _prediction(one.then)
    return answer


def _prediction(found: Prediction) -> dict[str, Any]:
    return {
        "shared": found.request.shared,
        "total": found.request.total,
        "outcome": str(found.outcome),
        "reused": found.reused,
        "checkpoint": found.checkpoint,
        "why": found.why,
        "rule": found.rule,
        "would_change": list(found.would_change),
        "notes": list(found.notes),
    }
