"""Bytes as an open file, for whatever reads files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from inspector.source import Source


@contextmanager
def source_of(data: bytes) -> Iterator[Source]:
    """A source that holds `data`."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield Source(file.fileno(), "data", len(data))
