"""Files in stores that fsspec reaches, of which ranges are read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from inspector.source import Source, Unreadable

_MOST_HELD = 64 << 20
"""Bytes of one object that are kept; more than the metadata of any."""
_LONGEST = 160
"""Characters of an error that are shown."""


class Url(str):
    """The address of an object, and its size if that is known already; pickles keep both."""

    size: int | None = None


def is_url(path: str) -> bool:
    """Whether a path is an address."""
    return "://" in path


def local_path(url: str) -> str | None:
    """The path of a `file://` address; None for another one."""
    return unquote(urlsplit(url).path) if url.startswith("file://") else None


class Remote(Source):
    """An object of which ranges are fetched, and every byte at most once."""

    window = 16

    def __init__(self, store: Any, path: str, name: str, size: int) -> None:
        super().__init__(-1, name, size)
        self._store = store
        self._path = path
        self._starts: list[int] = []
        self._held: list[bytes] = []
        self._n_held = 0

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at the end of the object.

        Raises:
            Unreadable: if the store does not give them.
        """
        at, stop, parts = offset, min(offset + size, self.size), []
        while at < stop:
            i = bisect_right(self._starts, at) - 1
            if i >= 0 and at < self._starts[i] + len(self._held[i]):
                first = at - self._starts[i]
                part = self._held[i][first : first + stop - at]
            else:
                end = self._starts[i + 1] if i + 1 < len(self._starts) else stop
                part = self._fetched(at, min(end, stop))
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill a buffer from `offset` on; nothing is kept of it."""
        stop = min(offset + len(buffer), self.size)
        if stop <= offset:
            return 0
        data = self._got(offset, stop)
        buffer[: len(data)] = data
        return len(data)

    def stamp(self) -> tuple[int, int]:
        """Bytes, and no time."""
        return self.size, 0

    def _fetched(self, start: int, stop: int) -> bytes:
        data = self._got(start, stop)
        if self._n_held + len(data) > _MOST_HELD:
            self._starts, self._held, self._n_held = [], [], 0
        i = bisect_right(self._starts, start)
        self._starts.insert(i, start)
        self._held.insert(i, data)
        self._n_held += len(data)
        return data

    def _got(self, start: int, stop: int) -> bytes:
        with explained():
            data: bytes = self._store.cat_file(self._path, start=start, end=stop)
        if len(data) != stop - start:
            raise Unreadable(f"the store gives {len(data):,} bytes at 0x{start:x}, not those asked")
        self.bytes_read += len(data)
        return data


@contextmanager
def opened_url(url: str) -> Iterator[Source]:
    """An object, for reading ranges of it.

    Raises:
        Unreadable: with a reason for people.
    """
    store, path = store_of(url)
    size = url.size if isinstance(url, Url) else None
    if size is None:
        with explained():
            size = _size(store.info(path))
    yield Remote(store, path, url, size)


def _size(info: Mapping[str, Any]) -> int:
    if info.get("type") == "directory":
        raise Unreadable("a folder")
    if info.get("size") is None or info.get("partial") is False:
        raise Unreadable("the server does not give parts of it")
    return int(info["size"])


@cache
def _store(protocol: str, root: str) -> Any:
    from fsspec.core import url_to_fs

    return url_to_fs(root, use_listings_cache=False)[0]


def store_of(url: str) -> tuple[Any, str]:
    """The store of an address, and what the store calls the object.

    Raises:
        Unreadable: if there is no such store, or what reaches it is not installed.
    """
    protocol, _, rest = url.partition("://")
    try:
        store = _store(protocol, f"{protocol}://{rest.partition('/')[0]}")
        return store, store._strip_protocol(url)
    except ImportError as error:
        needed = "fsspec" if (error.name or "").startswith("fsspec") else str(error)
        raise Unreadable(f"{protocol}:// needs what is not installed: {needed}") from error
    except ValueError as error:
        raise Unreadable(str(error)) from error


@contextmanager
def explained() -> Iterator[None]:
    """What stores raise, as `Unreadable`; they raise anything."""
    try:
        yield
    except Unreadable:
        raise
    except FileNotFoundError as error:
        raise Unreadable("no such object (404)") from error
    except PermissionError as error:
        raise Unreadable("access denied (403)") from error
    except Exception as error:
        words = " ".join(str(error).split())[:_LONGEST]
        raise Unreadable(
            f"{type(error).__name__}: {words}" if words else type(error).__name__
        ) from error
