"""A file as positional, bounded, counted reads."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inspector.span import Span


class Unreadable(Exception):
    """The system does not give us this file: missing, a directory, forbidden, no regular file."""


class Source:
    """One file, read by position only; its size is taken once.

    Attributes:
        name: the file's name as given.
        size: bytes, when it was opened.
        bytes_read: what was read from the system so far.
        descriptor: of the open file.
        window: bytes that a cursor may fetch ahead.
    """

    window = 1 << 16

    def __init__(self, descriptor: int, name: str, size: int) -> None:
        self.descriptor = descriptor
        self.name = name
        self.size = size
        self.bytes_read = 0

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at the end of the file.

        Raises:
            Unreadable: if the disk does not give them.
        """
        data = self._pread(offset, size)
        while 0 < len(data) < size and (more := self._pread(offset + len(data), size - len(data))):
            data += more
        self.bytes_read += len(data)
        return data

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill a buffer from `offset` on, as far as there is one read's worth; 0 at the end.

        Raises:
            Unreadable: if the disk does not give them.
        """
        try:
            n = os.preadv(self.descriptor, [buffer], offset)
        except OSError as error:
            raise Unreadable(f"{error.strerror} at 0x{offset:x}") from error
        self.bytes_read += n
        return n

    def _pread(self, offset: int, size: int) -> bytes:
        try:
            return os.pread(self.descriptor, size, offset)
        except OSError as error:
            raise Unreadable(f"{error.strerror} at 0x{offset:x}") from error

    def stamp(self) -> tuple[int, int]:
        """Bytes, and the time of the last change in nanoseconds; equal while nobody writes."""
        status = os.fstat(self.descriptor)
        return status.st_size, status.st_mtime_ns

    def whole(self) -> Span:
        """The whole file."""
        return Span(0, self.size)


@contextmanager
def opened(path: str | Path) -> Iterator[Source]:
    """Open a regular file for reading, or an object in a store by its address.

    Raises:
        Unreadable: with a reason for people.
    """
    if isinstance(path, str) and "://" in path:
        from inspector.remote import opened_url

        with opened_url(path) as remote:
            yield remote
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise Unreadable("a directory")
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("not a regular file")
        yield Source(descriptor, str(path), status.st_size)
    finally:
        os.close(descriptor)


class Cursor:
    """A place in a source and the wall that reads do not pass; the `Cursor` of `formats.spans`.

    Args:
        source: what is read.
        span: where to start, and the wall.
        window: bytes fetched at once, so that neighbouring words cost one read.
    """

    def __init__(self, source: Source, span: Span, window: int = 64) -> None:
        self._source = source
        self._window = min(window, source.window)
        self._held = b""
        self._held_at = 0
        self.offset = span.start
        self.wall = span.stop

    def peek(self, size: int) -> bytes:
        """At most `size` bytes from here; fewer only at the wall."""
        if size > self.wall - self.offset:
            size = self.wall - self.offset
        at = self.offset - self._held_at
        if at < 0 or at + size > len(self._held):
            self._held = self._source.read_at(
                self.offset, max(size, min(self._window, self.wall - self.offset))
            )
            self._held_at, at = self.offset, 0
        return self._held[at : at + size]
