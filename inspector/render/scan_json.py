"""A scan as JSON lines, and as columns of a table, under a versioned schema."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from inspector.scanning.scan import Kind, Row

if TYPE_CHECKING:
    from inspector.scanning.ledger import Group, Totals
    from inspector.server.target import Target

SCHEMA = "slotscope.scan/1"


def line(row: Row) -> dict[str, Any]:
    """The line of one file; `worst` is null where nothing was found, which is sound."""
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": str(row.kind),
        "path": row.path,
        "file": {"name": row.name, "bytes": row.size, "mtime_ns": row.mtime_ns},
    }
    if exact := _exactly([row.path]):
        found["path_bytes"] = exact[0]
    if row.problem:
        found["problem"] = row.problem
        return found
    return found | {
        "identity": {
            "verdict": row.verdict or None,
            "format": row.format,
            "version": row.version,
            "writer": row.writer,
            "layout": row.layout,
            "builds": {"from": row.since, "to": row.until},
        },
        "memory": row.memory or None,
        "tokens": {"count": row.n_tokens, "digest": row.tokens or None},
        "contents": row.contents or None,
        "checkpoints": {"usable": row.n_usable, "count": row.n_checkpoints},
        "companions": {"names": list(row.companions), "bytes": row.companion_bytes},
        "restore": {
            "outcome": row.restore or None,
            "reason": row.reason,
            "message": row.message,
        },
        "reuse": {"case": "append", "reused": row.reused},
        "model": row.model or None,
        "seal": row.sealed or None,
        "worst": row.worst or None,
        "findings": [asdict(one) for one in row.findings],
        "bytes_read": row.bytes_read,
    }


def _exactly(paths: Sequence[str]) -> list[str]:
    """The bytes of paths, hex, if one of them is no text: by these a program can open them."""
    try:
        "".join(paths).encode()
    except UnicodeEncodeError:
        return [os.fsencode(path).hex() for path in paths]
    return []


def group_line(group: Group) -> dict[str, Any]:
    """The line of states that have something in common."""
    exact = _exactly(group.paths)
    return {
        "schema": SCHEMA,
        "kind": "group",
        "shared": group.shared,
        "compared": group.compared,
        "n_tokens": group.n_tokens,
        "files": group.n_files,
        "closer": group.n_closer,
        "bytes": group.bytes,
        "paths": list(group.paths),
        "links": list(group.links),
        **({"paths_bytes": exact} if exact else {}),
    }


def totals_line(totals: Totals, target: Target, *, interrupted: bool) -> dict[str, Any]:
    """The last line."""
    return {
        "schema": SCHEMA,
        "kind": "totals",
        "complete": not interrupted,
        "target": {
            "server": target.build.server,
            "build": target.build.label,
            "model": target.model_name,
            "assumed": list(target.assumed_of_states),
            "notes": list(target.notes),
        },
        "files": totals.files,
        "states": totals.states,
        "links": totals.links,
        "bytes": totals.bytes,
        "kinds": dict(totals.by_kind),
        "restore": dict(totals.by_restore),
        "seals": dict(totals.by_seal),
        "worst": dict(totals.by_worst),
        "bytes_read": totals.bytes_read,
    }


def record(row: Row) -> dict[str, Any]:
    """The row of one file in a table."""
    worst = row.findings[0] if row.findings else None
    return {
        "path": row.path,
        "kind": str(row.kind),
        "bytes": row.size,
        "mtime_ns": row.mtime_ns,
        "identity": row.verdict,
        "format": row.format,
        "version": row.version,
        "writer": row.writer,
        "layout": row.layout,
        "builds_from": row.since,
        "builds_to": row.until,
        "memory": row.memory,
        "tokens": row.n_tokens,
        "tokens_digest": row.tokens,
        "checkpoints_usable": row.n_usable,
        "checkpoints": row.n_checkpoints,
        "companions": len(row.companions),
        "companion_bytes": row.companion_bytes,
        "restore": row.restore,
        "restore_reason": row.reason,
        "reused_append": row.reused,
        "model": row.model,
        "seal": row.sealed,
        "worst": row.worst,
        "worst_finding": worst.code if worst is not None else None,
        "findings": " ".join(found.code for found in row.findings),
        "problem": row.problem,
        "path_bytes": next(iter(_exactly([row.path])), None),
    }


COLUMNS = tuple(record(Row("", Kind.OTHER)))
"""Of a table."""
