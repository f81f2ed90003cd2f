"""What is different about two files, as one JSON document under a versioned schema."""

from __future__ import annotations

import math
from typing import Any

from inspector.diff.diff import CheckpointDiff, Diff, SectionDiff
from inspector.diff.numbers import Layer
from inspector.diff.structure import FieldDiff
from inspector.lists import Checkpoint
from inspector.node import Node
from inspector.render.as_json import identity
from inspector.render.nodes import HIDDEN, holds_tokens
from inspector.report import Report

SCHEMA = "slotscope.diff/1"


def to_dict(diff: Diff, tolerance: float | None, *, show_tokens: bool) -> dict[str, Any]:
    """The document for two files; offsets are integers, what is no number is null."""
    same: bool | None = diff.same_content(tolerance or 0.0)
    tokens = diff.tokens
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "a": _file(diff.a),
        "b": _file(diff.b),
        "identical": diff.same_bytes,
        "same_content": same if diff.deep or same else None,
        "beginning": diff.beginning.lower() or None,
        "tolerance": tolerance,
        "first_difference": diff.first,
        "first_difference_in": list(diff.owners) if diff.first is not None else None,
        "tokens": None
        if tokens is None
        else {
            "equal": tokens.equal,
            "a": tokens.a.count,
            "b": tokens.b.count,
            "common": tokens.common,
            "divergent": tokens.common if tokens.divergent else None,
        },
        "fields": [_field(one, show_tokens=show_tokens) for one in diff.fields],
        "sections": [_section(one) for one in diff.sections],
        "checkpoints": [_checkpoint(one) for one in diff.checkpoints],
        "companions": [
            {
                "suffix": one.suffix,
                "a": one.a.file.size if one.a else None,
                "b": one.b.file.size if one.b else None,
                "equal": one.equal,
            }
            for one in diff.companions
        ],
    }
    if show_tokens and tokens is not None and tokens.divergent:
        sides = {"a": tokens.a, "b": tokens.b}
        found["tokens"]["ids"] = {k: int(one.ids[tokens.common]) for k, one in sides.items()}
    return found


def _file(report: Report) -> dict[str, Any]:
    return {
        "file": {"name": report.name, "path": report.source.name, "bytes": report.size},
        "identity": identity(report),
        "findings": sorted({finding.code for finding in report.findings}),
    }


def _field(one: FieldDiff, *, show_tokens: bool) -> dict[str, Any]:
    hidden = holds_tokens(one.path) and not show_tokens
    return {"path": one.path, "a": _value(one.a, hidden), "b": _value(one.b, hidden)}


def _value(node: Node | None, hidden: bool) -> Any:
    """The value of a field; of any other part its bytes; null for what is not there."""
    if node is None:
        return None
    if isinstance(node.value, int | float | str):
        return HIDDEN if hidden else node.value
    return {"start": node.span.start, "stop": node.span.stop}


def _section(one: SectionDiff) -> dict[str, Any]:
    match, numbers = one.match, one.numbers
    found: dict[str, Any] = {
        "a": one.a.path if one.a is not None else None,
        "b": one.b.path if one.b is not None else None,
        "kind": (one.a or one.b).kind,  # type: ignore[union-attr]
    }
    if match is not None:
        found["cells"] = {
            "matched": len(match.a),
            "only_a": len(match.only_a),
            "only_b": len(match.only_b),
            "first_only_a": int(match.only_a[0]) if len(match.only_a) else None,
            "first_only_b": int(match.only_b[0]) if len(match.only_b) else None,
            "reordered": match.reordered,
            "extension": dict(match.extension),
            "sequences_of_one": list(match.others),
            "why": match.why or None,
        }
    if numbers is not None:
        found["notes"] = list(numbers.notes)
        found["layers"] = [_layer(layer) for layer in numbers.layers]
    return found


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "cells": layer.n_cells,
        "differ": layer.differ,
        "max_error": _number(layer.max_error),
        "max_error_of_max": _number(layer.relative) if layer.differ else 0.0,
        "rms": _number(layer.rms) if layer.differ else 0.0,
        "first": layer.first,
        "worst": layer.worst,
        "non_finite": list(layer.non_finite),
        "why": layer.why or None,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _checkpoint(one: CheckpointDiff) -> dict[str, Any]:
    return {
        "a": _place(one.a),
        "b": _place(one.b),
        "equal": one.equal,
        "sections": [_section(part) for part in one.parts],
    }


def _place(point: Checkpoint | None) -> dict[str, Any] | None:
    if point is None:
        return None
    record = point.record
    return {
        "carrier": record.carrier,
        "index": record.index,
        "n_tokens": record.n_tokens,
        "pos_min": record.pos_min,
        "pos_max": record.pos_max,
    }
