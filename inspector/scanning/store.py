"""What lies in stores that fsspec reaches, and what lies beside it there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inspector.bundle import Bundle, File, bundle_among
from inspector.remote import Url, explained, is_url, store_of


def listed(url: str) -> Iterator[tuple[str, int | None, Bundle, bool]]:
    """All objects below an address, or that object alone, folder by folder.

    Yields:
        Address, last change in nanoseconds since 1970, what lies beside it, and whether it is the
        object that was asked for.

    Raises:
        Unreadable: if the store does not answer.
    """
    store, path = store_of(url)
    prefix = url[: len(url) - len(path)] if url.endswith(path) else f"{url.partition('://')[0]}://"
    with explained():
        found = store.info(path)
    if found.get("type") != "directory":
        yield from _objects(prefix, [found], named=True)
        return
    yield from _below(store, path, prefix)


def _below(store: Any, path: str, prefix: str) -> Iterator[tuple[str, int | None, Bundle, bool]]:
    with explained():
        entries = sorted(store.ls(path, detail=True), key=lambda entry: str(entry["name"]))
    entries = [one for one in entries if one["name"].rstrip("/") != path.rstrip("/")]
    files = [entry for entry in entries if entry.get("type") != "directory"]
    objects = _objects(prefix, files, named=False)
    for entry in entries:
        if entry.get("type") == "directory":
            yield from _below(store, entry["name"], prefix)
        else:
            yield next(objects)


def _objects(
    prefix: str, entries: list[dict[str, Any]], *, named: bool
) -> Iterator[tuple[str, int | None, Bundle, bool]]:
    """Objects of one folder, each with its companions among them."""
    files = {}
    for entry in entries:
        file = _file(prefix, entry)
        files[file.name] = file
    for entry in entries:
        name = str(entry["name"]).rstrip("/").rpartition("/")[2]
        yield str(files[name].path), _changed(entry), bundle_among(name, files), named


def _file(prefix: str, entry: Mapping[str, Any]) -> File:
    """An object as a store shows it; its time says when it was stored, and is left out."""
    address = str(entry["name"])
    url = Url(address if is_url(address) else prefix + address)
    url.size = int(entry["size"]) if entry.get("size") is not None else None
    name = address.rstrip("/").rpartition("/")[2]
    return File(url, name, url.size or 0, 0, link=False, n_links=1, identity=(0, hash(url)))


def _changed(entry: Mapping[str, Any]) -> int | None:
    for key in ("LastModified", "mtime", "last_modified", "created"):
        value = entry.get(key)
        if isinstance(value, (int, float)):
            return int(value * 1e9)
        if value is not None and hasattr(value, "timestamp"):
            return int(value.timestamp() * 1e9)
    return None
