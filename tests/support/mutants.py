"""Files and mutants of them, written down with all that belongs to their names."""

from __future__ import annotations

from pathlib import Path

from inspector.fuzzing.mutators.kinds import Changed


def put(path: Path, found: Changed) -> Path:
    """Write a mutant, and say where: some have names of another ending.

    What else has a name that begins like `path` is removed.
    """
    for old in path.parent.iterdir():
        if old.name.removeprefix(".").startswith(path.name):
            old.unlink()
    path = path.with_name(path.name + found.ending)
    for file, data in found.files(path).items():
        file.write_bytes(data)
    for link, target in found.linked(path).items():
        link.symlink_to(target)
    return path
