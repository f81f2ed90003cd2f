"""A plan carried out: the files on the disk, and what they were made of."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from inspector.bundle import RECORD, SUFFIXES, Role, belongs_to
from inspector.node import Kind, walk
from inspector.repair.apply import File, NotWritten, see_no_leftover, write
from inspector.repair.plan import Plan
from inspector.repair.segments import CHUNK, Composed, Write
from inspector.report import Report
from inspector.seal import SCHEMA
from inspector.source import opened
from inspector.span import gaps


@dataclass(frozen=True)
class Written:
    """What became of a plan.

    Attributes:
        new: the copy; None if it was not written.
        removed: files that lay beside it and would have been taken for its companions.
        hindrance: why it may not be written; empty if it may.
        dry: whether it was to be explained only.
        unwritten: the copy that was named all the same.
    """

    new: Path | None
    removed: tuple[Path, ...] = ()
    hindrance: str = ""
    dry: bool = False
    unwritten: Path | None = None


def carry_out(
    plan: Plan, new: Path, *, force: bool = False, progress: Callable[[int], None] = lambda n: None
) -> tuple[Path, ...]:
    """Write the files of a plan, and a record of what was done.

    Args:
        plan: the repair; its files are still open.
        new: where the copy goes; companions and the record lie beside it.
        force: whether files that are there may be replaced, and others removed that would be taken
            for companions of the copy.
        progress: is told the bytes of every piece that was written.

    Returns:
        The files that were removed.

    Raises:
        NotWritten: if one cannot be written, the source changed meanwhile, or what is on the disk
            is not what was planned; nothing is left then.
        Unreadable: if the source cannot be read.
    """
    report, source = plan.report, plan.report.source
    if plan.estranged:
        raise NotWritten(f"{new} would not be of the model any more")
    _check_unchanged(report)
    mode = os.fstat(source.descriptor).st_mode & 0o777 | stat.S_IWUSR
    targets = [new.with_name(new.name + output.suffix) for output in plan.outputs]
    targets.append(new.with_name(new.name + RECORD))
    stale = []
    for suffix, role in SUFFIXES.items() if plan.of_state else ():
        path = new.with_name(new.name + suffix)
        if role is Role.LEFTOVER:
            _check_leftover(path, new, report)
        elif path not in targets:
            stale.append(path)
    for path in (*targets, *stale):
        _check_other(path, report)
    _check_place(new, plan)
    record = Composed((Write(_record(plan), "record"),), RECORD)
    contents = [*(output.content for output in plan.outputs), record]
    files = [File(t, content, mode) for t, content in zip(targets, contents, strict=True)]

    def look(places: Sequence[Path]) -> None:
        _check_unchanged(report)
        with ExitStack() as stack:
            found = [stack.enter_context(opened(place)) for place in places[:-1]]
            if not plan.is_seen_in(found):
                raise NotWritten(f"{new}: what is on the disk is not what was planned")

    return write(files, stale, look, force=force, progress=progress)


def _check_place(new: Path, plan: Plan) -> None:
    """See that the copy itself is taken for no companion of a file that is there."""
    _, owner = belongs_to(new)
    if new.name.endswith(RECORD):
        owner = new.with_name(new.name.removesuffix(RECORD))
    if owner is None or not os.path.lexists(owner):
        return
    if plan.of_state or new.name.endswith(RECORD) or _original(owner, plan.report) is not None:
        raise NotWritten(f"{new} would be taken for a companion of {owner}: choose another name")


def _check_leftover(path: Path, new: Path, report: Report) -> None:
    """See that no save lies beside the copy that its server has not finished."""
    if not os.path.lexists(path):
        return
    if _original(path, report) is not None:
        raise NotWritten(
            f"{path} would be taken for an unfinished save of {new}, and originals are never "
            "renamed or removed: write to another name, then rename both"
        )
    see_no_leftover(path)


def _check_unchanged(report: Report) -> None:
    """See that the files that were read are still what they were when they were opened."""
    files = [(report.bundle.subject, report.source)]
    files += [(other.companion.file, other.source) for other in report.beside]
    for file, source in files:
        if source.size != file.size or source.stamp() != (file.size, file.mtime_ns):
            raise NotWritten(f"{file.path} changed while it was read")


def _check_other(path: Path, report: Report) -> None:
    """See that a name is none of a file that was read, or that belongs to it."""
    if (original := _original(path, report)) is not None:
        raise NotWritten(f"{path} is the same file as {original}: originals are never written")


def _original(path: Path, report: Report) -> Path | str | None:
    """The file that was read, or that belongs to it, which has this name too."""
    around = report.bundle
    companions = (*around.companions, *around.siblings)
    originals = [around.subject, *(companion.file for companion in companions)]
    if around.state is not None:
        originals.append(around.state)
    with suppress(OSError):
        status = path.stat()
        for file in originals:
            if (status.st_dev, status.st_ino) == file.identity:
                return file.path
    return None


_SMALL = 64 << 20
"""Bytes of a file up to which a digest of all of it costs next to nothing."""


def _digest(report: Report) -> tuple[str, str]:
    """A digest of a file, and what of it was digested."""
    from xxhash import xxh3_128

    source, reading = report.source, report.identification.reading
    spans, name = [source.whole()], "all bytes"
    if source.size > _SMALL and reading is not None:
        kinds = (Kind.PAYLOAD, Kind.GAP)
        left = [node.span for _, node in walk(reading.decoding.root) if node.kind in kinds]
        spans, name = list(gaps(left, source.whole())), "all bytes outside tensors"
    state = xxh3_128()
    for span in spans:
        for offset in range(span.start, span.stop, CHUNK):
            state.update(source.read_at(offset, min(CHUNK, span.stop - offset)))
    return state.hexdigest(), name


def _record(plan: Plan) -> bytes:
    digest, digested = _digest(plan.report)
    document = {
        "schema": SCHEMA,
        "tool": f"slotscope {version('slotscope')}",
        "source": {
            "name": plan.report.name,
            "bytes": plan.report.size,
            "mtime_ns": plan.report.bundle.subject.mtime_ns,
            "xxh3": digest,
            "xxh3_of": digested,
        },
        "actions": [
            {"action": step.action, "changes": step.changes, "loss": step.loss}
            for step in plan.steps
        ],
    }
    return (json.dumps(document, indent=2) + "\n").encode()
