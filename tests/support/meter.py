"""What reading costs: bytes, seconds, memory; and the large files to measure it with."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inspector.source import Source
from tests.support.writer import Packable, Pen


def write_sparse(path: Path, what: Packable) -> None:
    """Write a description with holes in the place of tensors: many GiB of file, little on disk."""
    with path.open("wb") as out:
        what.pack(Pen(out, values=None))
        out.truncate(out.tell())


@dataclass
class Reading:
    """What a stretch of work cost.

    Attributes:
        bytes_read: read from the system, through one source.
        seconds: wall clock.
    """

    bytes_read: int = 0
    seconds: float = 0.0


@contextmanager
def metered(source: Source) -> Iterator[Reading]:
    """Measure what the body reads from `source`, and its time."""
    reading, read_before, start = Reading(), source.bytes_read, time.perf_counter()
    try:
        yield reading
    finally:
        reading.bytes_read = source.bytes_read - read_before
        reading.seconds = time.perf_counter() - start


@dataclass(frozen=True)
class Usage:
    """What a process cost.

    Attributes:
        returncode: its exit code, negative for a signal.
        stdout: what it printed.
        stderr: what it complained of.
        seconds: wall clock.
        peak_bytes: largest resident memory.
    """

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int


_ATTENDANT = """
import json, os, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[2:])
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
if sys.platform != "darwin":
    peak *= 1024
with open(sys.argv[1], "w") as out:
    json.dump([done.returncode, seconds, peak], out)
"""
"""A small process in between, because a child's peak begins with that of its parent."""


def process(*argv: str, scratch: Path) -> Usage:
    """Run a program and measure it.

    Args:
        argv: the program and its arguments.
        scratch: a directory to write the measurement to.
    """
    note = scratch / "usage.json"
    attended = [sys.executable, "-I", "-S", "-c", _ATTENDANT, str(note), *argv]
    done = subprocess.run(attended, capture_output=True, text=True, check=True)
    returncode, seconds, peak = json.loads(note.read_text())
    return Usage(returncode, done.stdout, done.stderr, seconds, peak)


def python(code: str, *args: str, scratch: Path) -> Usage:
    """Run Python code with `args` in a process of its own and measure that."""
    return process(sys.executable, "-c", code, *args, scratch=scratch)
