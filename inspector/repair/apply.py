"""Writes what a plan says: beside the target, synced, looked at again, renamed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp

from inspector.repair.segments import CHUNK, Composed, Keep, Segment, Write
from inspector.source import Unreadable

Progress = Callable[[int], None]

_NOT_HERE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EISDIR)
"""What systems answer to a call that they do not have for these files."""
_AT_ONCE = 64 << 20
"""Bytes between two reports of progress."""


class NotWritten(Exception):
    """An output that could not be written; nothing of it is left. The message says why."""


@dataclass(frozen=True)
class File:
    """A file to be written.

    Attributes:
        path: where.
        content: what.
        mode: its permissions.
    """

    path: Path
    content: Composed
    mode: int


def write(
    files: Sequence[File],
    stale: Sequence[Path],
    look: Callable[[Sequence[Path]], None],
    *,
    force: bool = False,
    progress: Progress = lambda n: None,
) -> None:
    """Write all files, or none.

    They get their names in order when all are on the disk, so whoever ends this early leaves none
    of them, or the first ones whole.

    Args:
        files: what to write; the state first.
        stale: files that would be taken for companions of the state, which are none of `files`.
        look: is shown where the files lie before they get their names; what it raises stops all.
        force: whether files that are there may be replaced.
        progress: is told the bytes of every piece that was written.

    Raises:
        NotWritten: if one cannot be; those that are there already stay as they are.
        Unreadable: if the source cannot be read.
    """
    for path in (*(file.path for file in files), *stale):
        _check_place(path, force=force)
    with ExitStack() as stack:
        places = []
        for file in files:
            with _explained(file.path):
                place = stack.enter_context(_unnamed(file.path))
                places.append(place)
                _fill(place.descriptor, file, progress)
        look([place.path for place in places])
        for path in stale:
            with _explained(path):
                path.unlink(missing_ok=True)
        for file, place in zip(files, places, strict=True):
            with _explained(file.path):
                _name(place, file.path, force=force)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What the system does not do becomes a message."""
    try:
        yield
    except OSError as error:
        raise NotWritten(f"{path}: {error.strerror}") from error


def _check_place(path: Path, *, force: bool) -> None:
    with _explained(path):
        try:
            status = path.lstat()
        except FileNotFoundError:
            return
    if stat.S_ISLNK(status.st_mode):
        raise NotWritten(f"{path} is a symbolic link: name the file itself")
    if not stat.S_ISREG(status.st_mode):
        raise NotWritten(f"{path} is no regular file")
    if not force:
        raise NotWritten(f"{path} is there already: --force replaces it")


@dataclass
class _Place:
    """A file that has no name yet, or one that nobody looks for.

    Attributes:
        descriptor: open for writing.
        path: to read it by.
        named: whether that is a name in the folder, which is removed in the end.
    """

    descriptor: int
    path: Path
    named: bool


@contextmanager
def _unnamed(target: Path) -> Iterator[_Place]:
    """A new file on the disk of the target; nothing is left of it unless it gets a name."""
    place = _nameless(target.parent) or _hidden(target)
    try:
        yield place
    finally:
        os.close(place.descriptor)
        if place.named:
            place.path.unlink(missing_ok=True)


def _nameless(folder: Path) -> _Place | None:
    """A file without a name, where the system has such: it vanishes with whoever holds it."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None:
        return None
    try:
        descriptor = os.open(folder, flag | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return None
        raise
    path = Path(f"/proc/self/fd/{descriptor}")
    if path.exists():
        return _Place(descriptor, path, named=False)
    os.close(descriptor)
    return None


def _hidden(target: Path) -> _Place:
    descriptor, name = mkstemp(".part", f".{target.name[:_LONGEST]}.", target.parent)
    return _Place(descriptor, Path(name), named=True)


_LONGEST = 100
"""Characters of a name that a hidden one begins with."""


def _fill(descriptor: int, file: File, progress: Progress) -> None:
    for segment in file.content.content:
        _copy(descriptor, segment, progress)
    os.fchmod(descriptor, file.mode)
    os.fsync(descriptor)
    if os.fstat(descriptor).st_size != file.content.size:
        raise OSError(errno.EIO, "not all bytes were written")


def _name(place: _Place, path: Path, *, force: bool) -> None:
    """Give a file its name, and make that last.

    Raises:
        OSError: among others if the name was taken meanwhile.
    """
    if force and path.exists():
        hidden = path.with_name(f".{path.name[:_LONGEST]}.{os.getpid()}.part")
        _link(place, hidden)
        hidden.replace(path)
    else:
        try:
            _link(place, path)
        except OSError as error:
            if error.errno not in _NOT_HERE or not place.named or path.exists():
                raise
            place.path.rename(path)  # a disk without hard links
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _link(place: _Place, path: Path) -> None:
    """Give a file one more name; `src_dir_fd` only makes Python follow the link in /proc."""
    os.link(place.path, path, src_dir_fd=place.descriptor, follow_symlinks=True)


def _copy(descriptor: int, segment: Segment, progress: Progress) -> None:
    at, size = 0, len(segment)
    if isinstance(segment, Keep):
        at = _in_kernel(descriptor, segment, progress)
        for offset in range(at, size, CHUNK):
            data = segment.read_at(offset, min(CHUNK, size - offset))
            if len(data) < min(CHUNK, size - offset):
                raise Unreadable("it became shorter while it was read")
            _put(descriptor, data, progress)
        return
    for data in (segment.data,) if isinstance(segment, Write) else segment.chunks():
        at += len(data)
        _put(descriptor, data, progress)
    if at != size:
        raise Unreadable("it changed while it was read")


def _put(descriptor: int, data: bytes, progress: Progress) -> None:
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        progress(written)
        view = view[written:]


def _in_kernel(descriptor: int, segment: Keep, progress: Progress) -> int:
    """Copy without reading; as much as the file systems can do so."""
    own = getattr(segment.source, "descriptor", None)
    if own is None or not hasattr(os, "copy_file_range"):
        return 0
    start, size, done = segment.span.start, len(segment), 0
    while done < size:
        try:
            moved = os.copy_file_range(own, descriptor, min(_AT_ONCE, size - done), start + done)
        except OSError as error:
            if error.errno in _NOT_HERE:
                return done
            raise
        if not moved:
            return done
        done += moved
        progress(moved)
    return done
