"""The files below folders, in order of their paths, one folder at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from inspector.scanning.scan import Item
from inspector.source import Unreadable


def items(paths: Iterable[str]) -> Iterator[Item]:
    """The files that the user names, and all files below the folders that the user names.

    Folders are listed as they are reached; links to folders are not followed.
    """
    for path in paths:
        if "://" in path:
            yield from _stored(path)
        elif Path(path).is_dir():
            yield from _below(path)
        else:
            yield Item(path, named=True)


def _stored(url: str) -> Iterator[Item]:
    from inspector.remote import listed, local_path

    if (path := local_path(url)) is not None:
        yield from items([path])
        return
    try:
        for address, changed, around, named in listed(url):
            yield Item(address, named, around=around, mtime_ns=changed)
    except Unreadable as error:
        yield Item(url, named=True, problem=str(error))


def _below(folder: str) -> Iterator[Item]:
    try:
        with os.scandir(folder) as found:
            entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
    except OSError as error:
        yield Item(folder, problem=error.strerror or str(error))
        return
    for name, is_folder in entries:
        path = os.path.join(folder, name)  # noqa: PTH118 - a tenth of what a Path costs
        if is_folder:
            yield from _below(path)
        elif Path(path).is_file() or not Path(path).exists():
            yield Item(path)
