"""A line on the terminal that says how far a scan is; drawn by hand, for lines pass above it."""

from __future__ import annotations

import sys
import time

_EVERY = 0.1
"""Seconds."""
_WIDTH = 24


class Bar:
    """Progress on standard error, if that is a terminal.

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
