"""The bytes of a file that is not written yet: kept, written anew, or made from others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from inspector.source import Source, Unreadable
from inspector.span import Span

CHUNK = 8 << 20
"""Bytes that are moved at once."""
PIECE = 1 << 20
"""Bytes of rows that are computed at once."""


@dataclass(frozen=True)
class Keep:
    """Bytes of a source as they are."""

    source: Source
    span: Span

    def __len__(self) -> int:
        """Bytes."""
        return len(self.span)

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`."""
        size = min(size, len(self.span) - offset)
        return self.source.read_at(self.span.start + offset, size) if size > 0 else b""


@dataclass(frozen=True)
class Write:
    """Bytes that no source has.

    Attributes:
        data: the bytes.
        why: the action that needs them.
    """

    data: bytes
    why: str

    def __len__(self) -> int:
        """Bytes."""
        return len(self.data)

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`."""
        return self.data[offset : offset + size]


class Make:
    """Bytes that are computed while they are written.

    Attributes:
        size: bytes.
        chunks: computes all of them in order; can be asked again.
        why: the action that needs them.
    """

    def __init__(self, size: int, chunks: Callable[[], Iterator[bytes]], why: str) -> None:
        """Args are the attributes."""
        self.size, self.chunks, self.why = size, chunks, why
        self._at, self._held = 0, b""
        self._rest: Iterator[bytes] = iter(())

    def __len__(self) -> int:
        """Bytes."""
        return self.size

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; cheap when it is asked in ascending order."""
        if offset < self._at or not self._held:
            self._at, self._held, self._rest = 0, b"", self.chunks()
        found, size = b"", min(size, self.size - offset)
        while len(found) < size:
            skip = offset + len(found) - self._at
            if skip >= len(self._held):
                self._at += len(self._held)
                self._held = next(self._rest, b"")
                if not self._held:
                    break
                continue
            found += self._held[skip : skip + size - len(found)]
        return found


class Rows(Make):
    """Bytes that are computed row by row from other bytes; any row can be asked for.

    Attributes:
        content: the bytes that they are computed from.
        old_bytes: bytes of a row there.
        new_bytes: bytes of a row here.
        change: makes rows of whole rows.
    """

    def __init__(
        self,
        content: Content,
        sizes: tuple[int, int],
        n_rows: int,
        change: Callable[[bytes], bytes],
        why: str,
    ) -> None:
        """Args are the attributes, and how many rows there are; `sizes` are old and new bytes."""
        self.content, (self.old_bytes, self.new_bytes) = content, sizes
        self.change, self._reader = change, Composed(content, "")
        super().__init__(n_rows * self.new_bytes, self._chunks, why)

    def _chunks(self) -> Iterator[bytes]:
        step = max(1, PIECE // max(1, self.old_bytes))
        n_rows = self.size // max(1, self.new_bytes)
        for first in range(0, n_rows, step):
            yield self._rows(first, min(step, n_rows - first))

    def _rows(self, first: int, n_rows: int) -> bytes:
        size = n_rows * self.old_bytes
        data = self._reader.read_at(first * self.old_bytes, size)
        if len(data) < size:
            raise Unreadable("it became shorter while it was read")
        return self.change(data)

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`."""
        size = min(size, self.size - offset)
        if size <= 0:
            return b""
        first, skipped = divmod(offset, self.new_bytes)
        n_rows = -(-(skipped + size) // self.new_bytes)
        return self._rows(first, n_rows)[skipped : skipped + size]


Segment = Keep | Write | Make
Content = tuple[Segment, ...]


def size_of(content: Iterable[Segment]) -> int:
    """Bytes of all of them."""
    return sum(len(segment) for segment in content)


def joined(content: Iterable[Segment], source: Source | None = None) -> Content:
    """The same bytes in as few segments as possible.

    Args:
        content: the segments.
        source: what most of them come from: bytes that stand there already, in front of or behind
            bytes that are kept, are kept too.
    """
    found = [segment for segment in content if len(segment)]
    if source is not None:
        found = _kept(found, source)
    merged: list[Segment] = []
    for segment in found:
        last = merged[-1] if merged else None
        if (
            isinstance(segment, Keep)
            and isinstance(last, Keep)
            and segment.source is last.source
            and segment.span.start == last.span.stop
        ):
            merged[-1] = Keep(last.source, Span(last.span.start, segment.span.stop))
        elif isinstance(segment, Write) and isinstance(last, Write) and segment.why == last.why:
            merged[-1] = Write(last.data + segment.data, last.why)
        else:
            merged.append(segment)
    return tuple(merged)


def _kept(content: list[Segment], source: Source) -> list[Segment]:
    """Bytes that are those of the source at their place, as kept."""
    found, at, replaced = list(content), 0, 0
    for index, segment in enumerate(found):
        if isinstance(segment, Keep) and segment.source is source:
            at, replaced = segment.span.stop, 0
            continue
        for start in (at, at + replaced):
            size = len(segment)
            if isinstance(segment, Write) and source.read_at(start, size) == segment.data:
                found[index] = Keep(source, Span(start, start + size))
                at, replaced = start + size, 0
                break
        else:
            replaced += len(segment)
    at = source.size
    for index in range(len(found) - 1, -1, -1):
        segment = found[index]
        if isinstance(segment, Keep) and segment.source is source:
            at = segment.span.start
        elif isinstance(segment, Write) and at >= len(segment):
            start = at - len(segment)
            if source.read_at(start, len(segment)) == segment.data:
                found[index] = Keep(source, Span(start, at))
                at = start
    return found


def chunks(content: Content) -> Iterator[bytes]:
    """All bytes in order, in pieces of bounded size."""
    for segment in content:
        if isinstance(segment, Make):
            yield from segment.chunks()
            continue
        for at in range(0, len(segment), CHUNK):
            yield segment.read_at(at, CHUNK)


class Composed(Source):
    """A file that is not written yet, to be read like one that is."""

    def __init__(self, content: Content, name: str) -> None:
        """Take the bytes, and the name that the file will have."""
        self.content = joined(content)
        self.name = name
        self._ends = list(accumulate(len(segment) for segment in self.content))
        self.size = self._ends[-1] if self._ends else 0
        self.bytes_read = 0

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at the end."""
        found: list[bytes] = []
        size = min(size, self.size - offset)
        index = bisect_right(self._ends, offset)
        while size > 0:
            segment, end = self.content[index], self._ends[index]
            data = segment.read_at(offset - (end - len(segment)), min(size, end - offset))
            if not data:  # a source that shrank
                break
            found.append(data)
            offset, size = offset + len(data), size - len(data)
            index += offset == end
        self.bytes_read += sum(map(len, found))
        return b"".join(found)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill a buffer from `offset` on, as far as there are bytes."""
        data = self.read_at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)
