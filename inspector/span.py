"""Half-open byte ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The bytes [start, stop) of a file; absolute offsets."""

    start: int
    stop: int

    def __len__(self) -> int:
        """Bytes."""
        return self.stop - self.start

    def __contains__(self, offset: int) -> bool:
        """Whether the byte at `offset` lies inside."""
        return self.start <= offset < self.stop

    def __str__(self) -> str:
        """As people read it: hex, half open."""
        return f"0x{self.start:x}..0x{self.stop:x}"


def gaps(spans: Iterable[Span], within: Span) -> Iterator[Span]:
    """The parts of `within` that none of the ascending `spans` covers."""
    at = within.start
    for span in spans:
        if span.start > at:
            yield Span(at, span.start)
        at = max(at, span.stop)
    if at < within.stop:
        yield Span(at, within.stop)
