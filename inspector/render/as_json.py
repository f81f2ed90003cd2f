"""A report as one JSON document, under a versioned schema."""

from __future__ import annotations

from typing import Any

from inspector.findings import Finding
from inspector.identify import Identification
from inspector.report import SCHEMA, Report
from inspector.sections import Block, Section


def to_dict(report: Report) -> dict[str, Any]:
    """The document for one file; offsets are integers."""
    tokens = report.tokens
    return {
        "schema": SCHEMA,
        "file": {"name": report.name, "bytes": report.size},
        "identity": identity(report.identification),
        "tokens": {
            "count": tokens.count if tokens else 0,
            "words": tokens.words if tokens else 0,
            "packing": tokens.packing if tokens else "none",
            "media": tokens.media if tokens else 0,
            "digest": tokens.digest if tokens and tokens.rows is not None else None,
        },
        "sections": [_section(section) for section in report.sections],
        "checkpoints": [],
        "findings": [finding_dict(finding) for finding in report.findings],
    }


def identity(identification: Identification) -> dict[str, Any]:
    """What a file is."""
    reading = identification.reading
    if reading is None:
        builds = {"from": None, "to": None}
        return {
            "verdict": str(identification.verdict),
            "format": None,
            "version": None,
            "writer": None,
            "layout": None,
            "builds": builds,
            "competing": [],
        }
    version = reading.decoding.root.get("version")
    return {
        "verdict": str(identification.verdict),
        "format": reading.layout.format,
        "version": version.value if version is not None else reading.layout.version,
        "writer": identification.writer,
        "layout": reading.layout.id,
        "builds": {"from": identification.builds.since, "to": identification.builds.until},
        "competing": [other.layout.id for other in identification.competing],
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
    """One finding; `start` and `stop` are bytes of `carrier`, or of the file where that is empty."""
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
