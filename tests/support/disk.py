"""Bytes as an open file, and small disks, for whatever reads and writes files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inspector.source import Source


@contextmanager
def source_of(data: bytes) -> Iterator[Source]:
    """A source that holds `data`."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield Source(file.fileno(), "data", len(data))


@contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    """A file system of its own at an empty folder, where this process may mount one."""
    if sys.platform != "linux":
        pytest.skip("small disks are mounted as Linux does it")
    mount = ("mount", "-t", "tmpfs", "-o", f"size={size},huge=never", "slotscope", str(folder))
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no program to mount a small disk")
    if done.returncode:
        pytest.skip(f"no small disk may be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(("umount", str(folder)), check=True)


def free_bytes(folder: Path) -> int:
    """What is left on a disk."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def fill(folder: Path, left: int) -> None:
    """Fill a disk up with a file `ballast` until so many bytes are left, a multiple of a page."""
    ballast = folder / "ballast"
    ballast.unlink(missing_ok=True)
    ballast.write_bytes(bytes(free_bytes(folder) - left))
