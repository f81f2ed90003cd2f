"""What a folder of test files holds: names, hashes, what each covers, what loaders must do."""

from __future__ import annotations

import hashlib
from typing import Any

from inspector.fuzzing.generator import TWINS, Generated

GENERATE_SCHEMA = "slotscope.fuzz-generate/1"


def entry_of(one: Generated) -> dict[str, Any]:
    """The manifest's entry of a generated file."""
    layout = one.case.layout
    expected: dict[str, Any] = {"verdict": "recognised", "layout": layout.id}
    if layout.id in TWINS:
        expected["recognised_as"], expected["because"] = TWINS[layout.id]
    return {
        "file": one.name,
        "bytes": len(one.data),
        "sha256": hashlib.sha256(one.data).hexdigest(),
        "layout": layout.id,
        "format": layout.format,
        "version": layout.version,
        "seed": one.case.seed,
        "options": dict(one.case.options),
        "companions": [
            {"file": one.name + suffix, "sha256": hashlib.sha256(data).hexdigest()}
            for suffix, data in one.companions.items()
        ],
        "expected": expected,
        "writer": layout.writer,
        "builds": {"from": layout.since, "to": layout.until},
    }
