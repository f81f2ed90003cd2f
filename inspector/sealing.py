"""Seals, written beside the files that they are of."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspector.bundle import RECORD
from inspector.repair.apply import File, NotWritten, write
from inspector.repair.segments import Composed, Write
from inspector.report import examined
from inspector.seal import SCHEMA, BadSeal, record_of, seal_in, seal_of
from inspector.source import Unreadable

if TYPE_CHECKING:
    from inspector.model.gguf import ModelFile
    from inspector.server.target import Target


class Refused(Exception):
    """A file that is not sealed; the message says why."""


def sealed(
    path: Path, target: Target | None, model: ModelFile | None, *, force: bool = False
) -> dict[str, Any]:
    """Seal a file together with its companions.

    Args:
        path: the file; what a record beside it says of its making stays.
        target: the server that it is said to be of.
        model: the model that it is said to be of.
        force: whether a seal that does not hold, or cannot be read, may be replaced.

    Returns:
        The record that was written.

    Raises:
        Refused: for a companion, a record, and a file that is not what was sealed before.
        BadSeal: if there is a record that cannot be read.
        Unreadable: if the system does not give us the file.
        NotWritten: if the record cannot be written, or the file changed meanwhile.
    """
    if path.name.endswith(RECORD):
        raise Refused("it is a seal itself")
    with examined(path, deep=False) as report:
        around = report.bundle
        if around.state is not None and not report.sections:
            raise Refused(f"it is sealed with its state, {around.state.name}")
        document = _before(path, force=force)
        seal = seal_of(report, target, model)
        if "seal" in document and not force and not _agree(document["seal"], seal):
            raise Refused(
                "it is not what was sealed before: inspect --deep says where; --force seals it anew"
            )
        if report.changed:
            raise NotWritten("it changed while it was read")
        document = {**document, "schema": SCHEMA, "seal": seal}
        mode = os.fstat(report.source.descriptor).st_mode & 0o666 | stat.S_IWUSR
    data = (json.dumps(document, indent=1) + "\n").encode()
    record = path.with_name(path.name + RECORD)
    content = Composed((Write(data, "record"),), RECORD)

    def look(places: Sequence[Path]) -> None:
        pass

    write([File(record, content, mode)], (), look, force=True)
    return document


def _before(path: Path, *, force: bool) -> dict[str, Any]:
    """The record that is there; nothing for one that may be replaced."""
    try:
        document = record_of(path) or {}
    except BadSeal as error:
        if force:
            return {}
        raise _forced(error) from error
    try:
        seal_in(document, path)
    except BadSeal as error:
        if not force:
            raise _forced(error) from error
    return document


def _forced(error: BadSeal) -> BadSeal:
    """The error with the way out, which there is if the record is a file."""
    unreadable = isinstance(error.__cause__, Unreadable)
    return error if unreadable else BadSeal(f"{error}: --force replaces it")


def _agree(old: object, new: dict[str, Any]) -> bool:
    """Whether a file and its companions are what they were."""
    parts = ("sha256", "companions")
    return isinstance(old, dict) and all(old.get(part) == new[part] for part in parts)
