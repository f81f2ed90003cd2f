"""Whether large states that hold the same tokens are equal, at a bounded cost."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from xxhash import xxh3_128

from inspector.scanning.ledger import Ledger, Like
from inspector.source import Unreadable, opened

MOST_BYTES = 1 << 30
"""That are read of files as a whole in one scan, of the smallest first."""
_PLACES = 16
"""Where files are looked at before they are read as a whole: evenly, both ends among them."""
_PLACE = 4096
"""Bytes that are read there."""
_CHUNK = 1 << 22


def compare(book: Ledger, most_bytes: int = MOST_BYTES) -> int:
    """Find out which states with equal tokens and of equal size are equal.

    Those that differ at one of a few places are not; the others are read as a whole, while there is
    budget for it. Of objects in stores nothing is read.

    Args:
        book: with all states; takes what is found.
        most_bytes: that may be read of files as a whole.

    Returns:
        The bytes that were read.
    """
    n_read = 0
    for (size, _), members in groupby(book.undecided(), key=lambda one: (one.size, one.tokens)):
        seen: dict[str, list[Like]] = {}
        for one in members:
            if places := _digest(one, _places(size), _PLACE):
                n_read += _PLACES * _PLACE
                seen.setdefault(places, []).append(one)
        for alike in seen.values():
            if len(alike) == 1:
                book.differs(alike[0])
            elif size * len(alike) <= most_bytes:
                most_bytes -= size * len(alike)
                for one in alike:
                    n_read += size
                    book.holds(one, _digest(one, range(0, size, _CHUNK), _CHUNK))
    return n_read


def _digest(one: Like, offsets: Iterable[int], width: int) -> str:
    """xxh3-128 of `width` bytes at each offset, hex; empty if they cannot be read, or no more."""
    state = xxh3_128()
    try:
        if one.remote:
            return ""
        with opened(Path(one.path)) as source:
            if source.size != one.size:
                return ""
            for offset in offsets:
                state.update(source.read_at(offset, min(width, one.size - offset)))
    except Unreadable:
        return ""
    return state.hexdigest()


def _places(size: int) -> Iterable[int]:
    """Offsets in a file of this size: its beginning, its end, and some between them."""
    return (i * (size - _PLACE) // (_PLACES - 1) for i in range(_PLACES))
