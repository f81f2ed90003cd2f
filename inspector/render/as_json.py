"""A report as one JSON document, under a versioned schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inspector.bundle import Companion
from inspector.findings import Finding
from inspector.report import SCHEMA, Report
from inspector.sections import Block, Section

if TYPE_CHECKING:
    from inspector.bundle import Companion
    from inspector.findings import Finding
    from inspector.lists import Checkpoint


def to_dict(report: Report) -> dict[str, Any]:
    """The document for one file; offsets are integers."""
    tokens = report.tokens
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "file": {"name": report.name, "path": report.source.name, "bytes": report.size},
        "identity": identity(report),
        "tokens": {
            "count": tokens.count if tokens else 0,
            "words": tokens.words if tokens else 0,
            "packing": tokens.packing if tokens else "none",
            "media": tokens.media if tokens else 0,
            "digest": tokens.digest if tokens and len(tokens.ids) else None,
        },
        "sections": [_section(section) for section in report.sections],
        "checkpoints": [_checkpoint(checkpoint) for checkpoint in report.checkpoints],
        "companions": [_companion(report, one) for one in report.bundle.companions],
        "findings": [finding_dict(finding) for finding in report.findings],
    }
    if report.sealed is not None:
        found["seal"] = {
            "holds": report.sealed.holds,
            "complete": report.sealed.complete,
            "companions": list(report.sealed.companions),
        }
    root = report.identification.root
    if root is not None and root.role == "model":
        from inspector.model.summary import summary
        from inspector.render.model import model_dict

        model = summary(report)
        found["model"] = None if model is None else model_dict(model)
    return found


def identity(report: Report) -> dict[str, Any]:
    """What a file is."""
    identification, reading = report.identification, report.identification.reading
    version = layout = family = None
    if reading is not None:
        word = reading.decoding.root.get("version")
        version = word.value if word is not None else reading.layout.version
        layout, family = reading.layout.id, reading.layout.format
    return {
        "verdict": str(identification.verdict),
        "format": report.container.format if report.container else family,
        "version": version,
        "writer": identification.writer,
        "layout": layout,
        "builds": {"from": identification.builds.since, "to": identification.builds.until},
        "competing": [other.layout.id for other in identification.competing],
    }


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    record = checkpoint.record
    return {
        "carrier": record.carrier,
        "format": record.format,
        "version": record.version,
        "index": record.index,
        "n_tokens": record.n_tokens,
        "pos_min": record.pos_min,
        "pos_max": record.pos_max,
        "target_bytes": record.n_tgt or 0,
        "draft_bytes": record.n_dft or 0,
        "spec_bytes": record.n_spec or 0,
        "usable": checkpoint.usable,
        "start": record.span.start,
        "stop": record.span.stop,
        "layout": record.blob.layout if record.blob is not None else None,
    }


def _companion(report: Report, companion: Companion) -> dict[str, Any]:
    name = companion.file.name
    codes = sorted({finding.code for finding in report.findings if finding.carrier == name})
    return {
        "name": name,
        "bytes": companion.file.size,
        "role": str(companion.role),
        "findings": codes,
    }


def _section(section: Section) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "kind": section.kind,
        "path": section.path,
        "start": section.span.start,
        "stop": section.span.stop,
        "n_stream": section.n_stream,
        "cells": section.cells if section.kind != "dsv4" else section.declared_cells,
        "pos_min": section.pos_min,
        "pos_max": section.pos_max,
        "cell_ext": section.cell_ext,
        "v_trans": section.v_trans == 1,
        "n_layer": section.n_layer,
    }
    names = ("r", "s") if section.kind == "recurrent" else ("k", "v")
    for name in names:
        facts[name] = [_block(block) for block in getattr(section, name)]
    return facts


def _block(block: Block) -> dict[str, Any]:
    return {"type": block.type_name, "row_bytes": block.row_bytes}


def finding_dict(finding: Finding) -> dict[str, Any]:
    """One finding; `start` and `stop` are bytes of `carrier`, or of the file if there is none."""
    return {
        "code": finding.code,
        "severity": str(finding.severity),
        "path": finding.path,
        "start": finding.span.start,
        "stop": finding.span.stop,
        "carrier": finding.carrier or None,
        "message": finding.message,
        "expected": finding.expected,
        "actual": finding.actual,
        "consequence": finding.about.consequence,
        "remedy": str(finding.about.remedy),
        "advice": finding.about.advice,
        "source": finding.about.source,
        "evidence": list(finding.evidence),
    }
