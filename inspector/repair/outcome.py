"""A plan carried out: the files on the disk, and what they were made of."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path

from inspector.bundle import RECORD, SUFFIXES
from inspector.node import Kind, walk
from inspector.repair.apply import File, NotWritten, write
from inspector.repair.plan import Plan
from inspector.repair.segments import CHUNK, Composed, Write
from inspector.report import Report
from inspector.seal import SCHEMA
from inspector.source import opened
from inspector.span import gaps


def carry_out(
    plan: Plan, new: Path, *, force: bool = False, progress: Callable[[int], None] = lambda n: None
) -> None:
    """Write the files of a plan, and a record of what was done.

    Args:
        plan: the repair; its files are still open.
        new: where the copy goes; companions and the record lie beside it.
        force: whether files that are there may be replaced.
        progress: is told the bytes of every piece that was written.

    Raises:
        NotWritten: if one cannot be written, the source changed meanwhile, or what is on the disk
            is not what was planned; nothing is left then.
        Unreadable: if the source cannot be read.
    """
    report, source = plan.report, plan.report.source
    _check_unchanged(report)
    mode = os.fstat(source.descriptor).st_mode & 0o777 | stat.S_IWUSR
    targets = [new.with_name(new.name + output.suffix) for output in plan.outputs]
    targets.append(new.with_name(new.name + RECORD))
    stale = [new.with_name(new.name + suffix) for suffix in SUFFIXES if plan.of_state]
    stale = [path for path in stale if path not in targets]
    for path in (*targets, *stale):
        _check_other(path, report)
    record = Composed((Write(_record(plan), "record"),), RECORD)
    contents = [*(output.content for output in plan.outputs), record]
    files = [File(t, content, mode) for t, content in zip(targets, contents, strict=True)]

    def look(places: Sequence[Path]) -> None:
        _check_unchanged(report)
        with ExitStack() as stack:
            found = [stack.enter_context(opened(place)) for place in places[:-1]]
            if not plan.is_seen_in(found):
                raise NotWritten(f"{new}: what is on the disk is not what was planned")

    write(files, stale, look, force=force, progress=progress)


def _check_unchanged(report: Report) -> None:
    """See that the files that were read are still what they were when they were opened."""
    files = [(report.bundle.subject, report.source)]
    files += [(other.companion.file, other.source) for other in report.beside]
    for file, source in files:
        if source.stamp() != (file.size, file.mtime_ns):
            raise NotWritten(f"{file.path} changed while it was read")


def _check_other(path: Path, report: Report) -> None:
    """See that a name is none of a file that was read, or that belongs to it."""
    around = report.bundle
    companions = (*around.companions, *around.siblings)
    originals = [around.subject, *(companion.file for companion in companions)]
    if around.state is not None:
        originals.append(around.state)
    with suppress(OSError):
        status = path.stat()
        for file in originals:
            if (status.st_dev, status.st_ino) == file.identity:
                raise NotWritten(
                    f"{path} is the same file as {file.path}: originals are never written"
                )


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
