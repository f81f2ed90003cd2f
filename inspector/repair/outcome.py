"""A plan carried out: the files on the disk, and what they were made of."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from inspector.bundle import SUFFIXES
from inspector.repair.apply import File, NotWritten, write
from inspector.repair.plan import Plan
from inspector.repair.segments import CHUNK, Composed, Make
from inspector.source import Source, opened

RECORD = ".slotscope.json"
"""What the name of the record adds to that of the copy."""
SCHEMA = "slotscope.record/1"


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
    source = plan.report.source
    stamp, mode = source.stamp(), os.fstat(source.descriptor).st_mode & 0o777 | stat.S_IWUSR
    targets = [new.with_name(new.name + output.suffix) for output in plan.outputs]
    names = {target.name for target in targets}
    stale = [
        new.with_name(new.name + suffix) for suffix in SUFFIXES if new.name + suffix not in names
    ]
    with ThreadPoolExecutor(1) as beside:
        digest = beside.submit(_digest, source)
        size = len(_record(plan, _UNKNOWN))
        record = Make(size, lambda: iter((_record(plan, digest.result()),)), "record")
        contents = [*(output.content for output in plan.outputs), Composed((record,), RECORD)]
        targets.append(new.with_name(new.name + RECORD))
        files = [File(t, content, mode) for t, content in zip(targets, contents, strict=True)]

        def look(places: Sequence[Path]) -> None:
            if source.stamp() != stamp:
                raise NotWritten(f"{source.name} changed while it was read")
            with ExitStack() as stack:
                found = [stack.enter_context(opened(place)) for place in places[:-1]]
                if not plan.is_seen_in(found):
                    raise NotWritten(f"{new}: what is on the disk is not what was planned")

        write(files, stale, look, force=force, progress=progress)


_UNKNOWN = "0" * 32
"""A digest, before it is known."""


def _digest(source: Source) -> str:
    from xxhash import xxh3_128

    state = xxh3_128()
    for offset in range(0, source.size, CHUNK):
        state.update(source.read_at(offset, CHUNK))
    return state.hexdigest()


def _record(plan: Plan, digest: str) -> bytes:
    document = {
        "schema": SCHEMA,
        "tool": f"slotscope {version('slotscope')}",
        "source": {
            "name": plan.report.name,
            "bytes": plan.report.size,
            "xxh3": digest,
        },
        "actions": [
            {"action": step.action, "changes": step.changes, "loss": step.loss}
            for step in plan.steps
        ],
    }
    return (json.dumps(document, indent=2) + "\n").encode()
