"""Writes what a plan says: beside the target, synced, looked at again, renamed."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp

from inspector.bundle import RECORD, SUFFIXES, Role
from inspector.repair.segments import CHUNK, Composed, Keep, Segment, Write
from inspector.source import Unreadable

Progress = Callable[[int], None]

_NOT_HERE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EISDIR)
"""What systems answer to a call that they do not have for these files."""
_AT_ONCE = 64 << 20
"""Bytes between two reports of progress, and between two requests to write them to the disk."""
_MODE = 0o644
"""Permissions of a file that is made from nothing."""
_BUFFER = 1 << 20
"""Bytes that are read and written at once."""


class NotWritten(Exception):
    """An output that could not be written; nothing of it is left. The message says why."""


@dataclass(frozen=True)
class File:
    """A file to be written.

    Attributes:
        path: where.
        content: what.
        mode: its permissions.
        mtime_ns: its time of last change, nanoseconds since 1970; None for now.
    """

    path: Path
    content: Composed
    mode: int
    mtime_ns: int | None = None


def write(
    files: Sequence[File],
    stale: Sequence[Path],
    look: Callable[[Sequence[Path]], None],
    *,
    force: bool = False,
    progress: Progress = lambda n: None,
) -> tuple[Path, ...]:
    """Write all files, or none.

    They get their names in order when all are on the disk: whoever ends this early leaves none of
    them, or the first ones whole. What lay beside a state that is replaced is removed before.

    Args:
        files: what to write, all to one folder; the state first.
        stale: files that would be taken for companions of the state, which are none of `files`.
        look: is shown where the files lie before they get their names; what it raises stops all.
        force: whether files that are there may be replaced.
        progress: is told the bytes of every piece that was written.

    Returns:
        Those of `stale` that were there, and are removed.

    Raises:
        NotWritten: if one cannot be; those that are there already stay as they are.
        Unreadable: if the source cannot be read.
    """
    first, *others = files
    names = (first.path, *(file.path for file in others), *stale)
    before = [_found(path, force=force) for path in names[: len(files)]]
    before += [_found(path, force=force, beside=first.path) for path in stale]
    with ExitStack() as stack:
        places = []
        for file in files:
            with _explained(file.path):
                place = stack.enter_context(_unnamed(file.path.parent))
                places.append(place)
                _fill(place.descriptor, file, progress)
        now = time.time_ns()
        for file, place in zip(files, places, strict=True):
            with _explained(file.path):
                stamp = now if file.mtime_ns is None else file.mtime_ns
                os.utime(place.descriptor, ns=(stamp, stamp))
                os.fsync(place.descriptor)
        look([place.path for place in places])
        folder = stack.enter_context(_locked(first.path.parent))
        for path, old in zip(names, before, strict=True):
            if _found(path, force=True) != old:
                raise NotWritten(f"{path} was written by another program meanwhile")
        for path in names[1:]:
            with _explained(path):
                path.unlink(missing_ok=True)
        _sync(folder, first.path.parent)
        _name_all(files, places, folder)
    return tuple(p for p, old in zip(stale, before[len(files) :], strict=True) if old is not None)


@contextmanager
def growing(path: Path, *, force: bool) -> Iterator[int]:
    """A descriptor to write a file by, which gets its name at the end, unless that is an exception.

    Args:
        path: its name.
        force: whether a file that is there may be replaced.

    Raises:
        NotWritten: if it cannot have that name.
    """
    before = _found(path, force=force)
    with ExitStack() as stack:
        with _explained(path):
            place = stack.enter_context(_unnamed(path.parent))
        yield place.descriptor
        with _explained(path):
            os.fchmod(place.descriptor, _MODE)
            os.fsync(place.descriptor)
            if _found(path, force=True) != before:
                raise NotWritten(f"{path} was written by another program meanwhile")
            _name(place, path)


def stale_beside(new: Path, targets: Collection[Path], originals: Sequence[Path]) -> list[Path]:
    """Names that would be taken for companions, or for the record, of a new file.

    Args:
        new: the file.
        targets: what is written with it; none of the names.
        originals: what is never removed.

    Raises:
        NotWritten: if one is an original, or a save that another program has not finished.
    """
    stale = []
    for suffix, role in {**SUFFIXES, RECORD: None}.items():
        path = new.with_name(new.name + suffix)
        if path not in targets:
            see_apart([path], originals)
            if role is Role.LEFTOVER:
                see_no_leftover(path)
            else:
                stale.append(path)
    return stale


def see_no_leftover(path: Path) -> None:
    """See that no save has that name which its program has not finished.

    Raises:
        NotWritten: if one has.
    """
    if os.path.lexists(path):
        raise NotWritten(
            f"{path} is another program's save that goes on, or did not finish: it is not removed, "
            "also by --force; choose another name"
        )


def see_apart(paths: Sequence[Path], originals: Sequence[Path]) -> None:
    """See that no original would be replaced.

    Raises:
        NotWritten: if one would be.
    """
    for path in paths:
        for original in originals:
            with suppress(OSError):
                if path.samefile(original):
                    raise NotWritten(f"{path} is the same file as {original}: it is never written")


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """A folder in which no other repair gives names; where locks are not known, without one."""
    with _explained(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What the system does not do becomes a message."""
    try:
        yield
    except OSError as error:
        raise NotWritten(f"{path}: {error.strerror}") from error


def _found(path: Path, *, force: bool, beside: Path | None = None) -> tuple[int, ...] | None:
    """What tells the file that has a name from any other; None if none has it.

    Args:
        path: the name.
        force: whether it may be replaced, or removed.
        beside: the copy that it would be taken for a companion of; None if it is written itself.

    Raises:
        NotWritten: if it may not be replaced.
    """
    with _explained(path):
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None
    if stat.S_ISLNK(status.st_mode) and beside is not None:
        raise NotWritten(
            f"{path} is a symbolic link, and would be taken for a companion of {beside}: remove it"
        )
    if stat.S_ISLNK(status.st_mode):
        raise NotWritten(f"{path} is a symbolic link: name the file itself")
    if not stat.S_ISREG(status.st_mode):
        raise NotWritten(f"{path} is no regular file")
    if not force and beside is not None:
        raise NotWritten(
            f"{path} is there already, and would be taken for a companion of {beside}: --force "
            "removes it"
        )
    if not force:
        raise NotWritten(f"{path} is there already: --force replaces it")
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


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
def _unnamed(folder: Path) -> Iterator[_Place]:
    """A new file in a folder; nothing is left of it unless it gets a name."""
    place = _nameless(folder) or _hidden(folder)
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


def _hidden(folder: Path) -> _Place:
    descriptor, name = mkstemp(_PART, _HIDDEN, folder)
    return _Place(descriptor, Path(name), named=True)


_HIDDEN, _PART = ".slotscope.", ".part"
"""How names begin and end that nobody looks for."""


def _fill(descriptor: int, file: File, progress: Progress) -> None:
    os.fchmod(descriptor, file.mode)
    progress = _sent_on(descriptor, progress)
    for segment in file.content.content:
        _copy(descriptor, segment, progress)
    if os.lseek(descriptor, 0, os.SEEK_CUR) != file.content.size:
        raise OSError(errno.EIO, "not all bytes were written")
    os.ftruncate(descriptor, file.content.size)


def _sent_on(descriptor: int, progress: Progress) -> Progress:
    """A progress that asks the system to write what it holds already, while more is copied.

    Without that, all of a copy waits in memory until it is synced. Linux begins to write bytes that
    are said not to be needed soon, and keeps them until they are on the disk.
    """
    if not hasattr(os, "posix_fadvise"):
        return progress
    sent = written = 0

    def told(n: int) -> None:
        nonlocal sent, written
        written += n
        if written - sent >= _AT_ONCE:
            with suppress(OSError):
                os.posix_fadvise(descriptor, sent, written - sent, os.POSIX_FADV_DONTNEED)
            sent = written
        progress(n)

    return told


def _name(place: _Place, path: Path) -> None:
    """Give a file its name, also in place of another.

    Raises:
        OSError: among others if the name was taken meanwhile.
    """
    if path.exists():
        hidden = place.path
        if not place.named:
            hidden = path.with_name(f"{_HIDDEN}{os.getpid()}{_PART}")
            hidden.unlink(missing_ok=True)
            _link(place, hidden)
        hidden.replace(path)
        return
    try:
        _link(place, path)
    except OSError as error:
        if error.errno not in _NOT_HERE or not place.named:
            raise
        place.path.rename(path)  # a disk without hard links


def _name_all(files: Sequence[File], places: Sequence[_Place], folder: int) -> None:
    """Give all files their names, or take away those that were given."""
    given: list[Path] = []
    try:
        for file, place in zip(files, places, strict=True):
            with _explained(file.path):
                _name(place, file.path)
            given.append(file.path)
            _sync(folder, file.path.parent)
    except BaseException:
        for path in reversed(given):
            path.unlink(missing_ok=True)
        raise


def _sync(folder: int, path: Path) -> None:
    """Make names last, where the system knows how."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise NotWritten(f"{path}: {error.strerror}") from error


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
    """Copy within the system, holes as holes; as much as the file systems can do so.

    Whatever stops it is met again by who reads and writes the rest, and told from there. Bytes that
    move within their page cost the kernel twice what a buffer costs: measured on ext4, Linux 6.
    """
    own = getattr(segment.source, "descriptor", None)
    if own is None or not hasattr(os, "copy_file_range"):
        return 0
    start, size, done = segment.span.start, len(segment), 0
    moves = (start - os.lseek(descriptor, 0, os.SEEK_CUR)) % mmap.PAGESIZE
    buffer = memoryview(bytearray(min(size, _BUFFER) if moves else 0))
    with suppress(OSError):
        while done < size:
            at = start + done
            moved = min(_data_from(own, at), start + size) - at
            if moved > 0:
                os.lseek(descriptor, moved, os.SEEK_CUR)
            else:
                stop = min(os.lseek(own, at, os.SEEK_HOLE), start + size, at + _AT_ONCE)
                if moves:
                    n = os.preadv(own, [buffer[: stop - at]], at)
                    moved = os.write(descriptor, buffer[:n])
                else:
                    moved = os.copy_file_range(own, descriptor, stop - at, at)
            if not moved:
                break
            done += moved
            progress(moved)
    return done


def _data_from(descriptor: int, at: int) -> int:
    """Where bytes begin that are no hole; the end of the file if none do."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return os.fstat(descriptor).st_size
