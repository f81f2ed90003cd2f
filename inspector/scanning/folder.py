"""The files below folders, in order of their paths, one folder at a time."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator

from inspector.scanning.scan import Item
from inspector.source import Unreadable

_Place = tuple[int | str, ...]
"""Device and inode of a folder, and a name in it: the same by whatever path it is reached."""


def items(paths: Iterable[str]) -> Iterator[Item]:
    """The files that the user names, and all files below the folders that the user names.

    Folders are listed as they are reached; links to folders are not followed. What is reached by
    several paths is given once; another name of a file, a link, is another item.
    """
    paths = list(dict.fromkeys(map(_here, paths)))
    files: dict[_Place, str] = {}
    for path in paths:
        if "://" not in path and not os.path.isdir(path):  # noqa: PTH112 - a Path("") is one
            files.setdefault(_place(path), path)
    folders: set[_Place] = set()
    for path in paths:
        if "://" in path:
            yield from _stored(path)
        elif os.path.isdir(path):  # noqa: PTH112
            yield from _below(path, files, folders, named=True)
        elif files.get(_place(path), path) == path:
            yield Item(path, named=True, problem="" if path else "an empty name")


def _here(path: str) -> str:
    """The path of an address that is on this machine."""
    if "://" not in path:
        return path
    from inspector.remote import local_path

    return local_path(path) or path


def _place(path: str) -> _Place:
    folder, name = os.path.split(path)
    try:
        status = os.stat(folder or os.curdir)  # noqa: PTH116
    except (OSError, ValueError):
        return (path,)
    return status.st_dev, status.st_ino, name


def _stored(url: str) -> Iterator[Item]:
    from inspector.scanning.store import listed

    try:
        for address, changed, around, named in listed(url):
            yield Item(address, named, around=around, mtime_ns=changed)
    except Unreadable as error:
        yield Item(url, named=True, problem=str(error))


def _below(
    folder: str, files: Container[_Place], folders: set[_Place], *, named: bool = False
) -> Iterator[Item]:
    """The files below a folder.

    Args:
        folder: its path.
        files: what is not given again.
        folders: those that were listed; this one is added.
        named: whether the user named it.
    """
    try:
        status = os.stat(folder)  # noqa: PTH116 - a tenth of what a Path costs
        place = status.st_dev, status.st_ino
        if place in folders:
            return
        folders.add(place)
        with os.scandir(folder) as found:
            entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
    except OSError as error:
        yield Item(folder, named, problem=error.strerror or str(error))
        return
    for name, is_folder in entries:
        path = os.path.join(folder, name)  # noqa: PTH118
        if is_folder:
            yield from _below(path, files, folders)
        elif (*place, name) not in files:
            regular = os.path.isfile(path) or not os.path.exists(path)  # noqa: PTH110, PTH113
            yield Item(path, special=not regular)
