"""How far long work is, on the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EVERY = 0.1
"""Seconds."""
_WIDTH = 24


class Bar:
    """Progress of a scan on standard error; drawn by hand, for lines pass above it.

    Args:
        total: files; None if unknown.
    """

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._begun = self._drawn = time.monotonic()
        self._shown = False

    def at(self, n: int) -> None:
        """Say that `n` files are done."""
        now = time.monotonic()
        if now - self._drawn < _EVERY:
            return
        self._drawn, self._shown = now, True
        words = f"{n:,} files"
        if self._total:
            full = min(_WIDTH, n * _WIDTH // self._total)
            words = f"{'█' * full}{'░' * (_WIDTH - full)} {n:,} of {self._total:,} files"
        print(f"\r\x1b[K{words}, {n / (now - self._begun):,.0f}/s", end="", file=sys.stderr)
        sys.stderr.flush()

    def clear(self) -> None:
        """Take it away, for what is printed next."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr)
            sys.stderr.flush()
            self._shown = False


LONG = 256 << 20
"""Bytes from which on work takes long enough to watch it."""


@contextmanager
def watched(total: int) -> Iterator[Callable[[int], None]]:
    """What is told how many bytes are done, and draws them on a terminal if they are many."""
    if total < LONG or sys.stderr is None or not sys.stderr.isatty():
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda n: bar.advance(task, n)
