"""What a folder of test files holds: names, hashes, what each covers, what loaders must do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from inspector.fuzzing.generator import TWINS, Generated
from inspector.fuzzing.mutators import Mutant
from inspector.report import Report, examined
from inspector.server.restore import restore
from inspector.server.target import Target

GENERATE_SCHEMA = "slotscope.fuzz-generate/1"
MUTATE_SCHEMA = "slotscope.fuzz-mutate/1"
MANIFEST = "manifest.json"
BUILDS = ("b10229", "b11063", "b11549")
"""Builds for which the manifest says what becomes of a slot file: of versions 2, 3 and 4."""


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


def entry_of_mutant(
    mutant: Mutant, original: str, name: str, path: Path, targets: Sequence[Target]
) -> dict[str, Any]:
    """The manifest's entry of a mutant that was written to `path`.

    Args:
        mutant: what it is.
        original: the file that it was made of: its name, or its path if that is not unique.
        name: of the mutant.
        path: where it is.
        targets: servers to say what becomes of it, if it is a slot file.
    """
    held = {"": mutant.data, **mutant.companions}
    with examined(path) as report:
        identification = report.identification
        reading = identification.reading
        slot = reading is not None and reading.layout.format == "ggsq"
        builds = {target.build.label: _verdict(report, target) for target in targets if slot}
        return {
            "file": name,
            "of": original,
            "id": mutant.id,
            "mutator": mutant.mutator.name,
            "meaning": mutant.mutator.meaning,
            "bytes": len(mutant.data),
            "sha256": hashlib.sha256(mutant.data).hexdigest(),
            "companions": [
                {"file": name + suffix, "sha256": hashlib.sha256(data).hexdigest()}
                for suffix, data in mutant.companions.items()
            ],
            "links": [link.name for link in mutant.linked(path)],
            "hidden": [
                {"file": f".{name}{end}", "sha256": hashlib.sha256(held[end]).hexdigest()}
                for end in sorted(mutant.links & held.keys())
            ],
            "expected": {"loader": str(mutant.mutator.must)},
            "verdict": str(identification.verdict),
            "findings": sorted({finding.code for finding in report.findings}),
            "builds": builds,
        }


def _verdict(report: Report, target: Target) -> dict[str, Any]:
    outcome = restore(report, target)
    return {"outcome": str(outcome.outcome), "reason": outcome.reason}


def still_listed(folder: Path) -> list[Path]:
    """What the manifest of a folder lists and is still what it says, and the manifest, last.

    Nothing if there is no manifest, or it is none of ours.
    """
    path = folder / MANIFEST
    found: list[Path] = []
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        document = json.loads(path.read_bytes())
        if document["schema"] in (GENERATE_SCHEMA, MUTATE_SCHEMA):
            found = [one for entry in document["files"] for one in _still(folder, entry)]
            found.append(path)
    return found


def _still(folder: Path, entry: dict[str, Any]) -> Iterator[Path]:
    """The files and links of an entry that nobody changed."""
    links = entry.get("links", [])
    files = [entry, *entry["companions"], *entry.get("hidden", [])]
    digests = {one["file"]: one["sha256"] for one in files}
    for name in dict.fromkeys((*digests, *links)):
        path = folder / name
        if Path(name).name != name:
            continue
        if path.is_symlink():
            if name in links and path.readlink() == Path(f".{name}"):
                yield path
        elif path.is_file():
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digests.get(name):
                    yield path
