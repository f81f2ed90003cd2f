"""Which files below folders change: by their sizes and times, looked at again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inspector.bundle import RECORD, belongs_to
from inspector.scanning.folder import items
from inspector.scanning.scan import Item

Stamp = tuple[int, int, int]
"""Inode, bytes, nanoseconds of the last change."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened between two looks.

    Attributes:
        settled: files that are new or changed, and that nobody wrote since the last look; of a
            companion, its state.
        gone: paths of files that are there no more.
    """

    settled: tuple[Item, ...]
    gone: tuple[str, ...]


class Watch:
    """Looks at the same paths again and again.

    Args:
        paths: files and folders.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._before = self._known = self._stamps()

    def look(self) -> Changes:
        """What has changed since the first look, and was not said yet."""
        now = self._stamps()
        settled = {
            item: stamp
            for item, stamp in now.items()
            if self._known.get(item) != stamp == self._before.get(item)
        }
        gone = [item for item in self._known if item not in now]
        kept = {item: stamp for item, stamp in self._known.items() if item in now}
        self._known = kept | settled
        self._before = now
        touched = dict.fromkeys(_subject(item, now) for item in settled)
        return Changes(tuple(touched), tuple(item.path for item in gone))

    def _stamps(self) -> dict[Item, Stamp]:
        found = {}
        for item in items(self._paths):
            if item.special:
                continue
            try:
                status = Path(item.path).stat()
            except (OSError, ValueError):
                continue
            found[item] = status.st_ino, status.st_size, status.st_mtime_ns
        return found


def _subject(item: Item, now: dict[Item, Stamp]) -> Item:
    """The state that a companion belongs to, if it is there; else the file itself."""
    path = Path(item.path)
    owner = belongs_to(path)[1]
    if item.path.endswith(RECORD):
        owner = path.with_name(path.name.removesuffix(RECORD))
    if owner is None or item.named:
        return item
    state = replace(item, path=str(owner))
    return state if state in now else item
