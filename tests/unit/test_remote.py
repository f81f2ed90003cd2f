"""Ranges of objects: every byte is fetched once, and what a store fails to give is said."""

from __future__ import annotations

import pickle
import random

import pytest

from inspector.remote import Remote, Url, local_path
from inspector.source import Unreadable

DATA = bytes(random.Random(1).randbytes(5000))


class Fake:
    """A store that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.fails: Exception | None = None
        self.gives = len(DATA)

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        self.asked.append((start, end))
        if self.fails is not None:
            raise self.fails
        return DATA[start : min(end, self.gives)]


def test_every_byte_is_fetched_once() -> None:
    store, chance = Fake(), random.Random(2)
    source = Remote(store, "a", "s3://b/a", len(DATA))
    for _ in range(500):
        offset, size = chance.randrange(len(DATA) + 10), chance.randrange(300)
        assert source.read_at(offset, size) == DATA[offset : offset + size]
    fetched = [at for start, end in store.asked for at in range(start, end)]
    assert len(fetched) == len(set(fetched)) == source.bytes_read


def test_what_is_not_kept() -> None:
    store = Fake()
    source = Remote(store, "a", "s3://b/a", len(DATA))
    buffer = memoryview(bytearray(64))
    assert source.read_into(buffer, len(DATA) - 10) == 10
    assert bytes(buffer[:10]) == DATA[-10:]
    assert source.read_into(buffer, len(DATA)) == 0


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (FileNotFoundError("x"), "404"),
        (PermissionError("x"), "403"),
        (ConnectionResetError("reset  by\npeer"), "ConnectionResetError: reset by peer"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_what_fails_is_said(error: Exception, says: str) -> None:
    store = Fake()
    store.fails = error
    with pytest.raises(Unreadable, match=says):
        Remote(store, "a", "s3://b/a", len(DATA)).read_at(0, 4)


def test_an_object_that_became_shorter() -> None:
    store = Fake()
    store.gives = 100
    source = Remote(store, "a", "s3://b/a", len(DATA))
    assert source.read_at(0, 100) == DATA[:100]
    with pytest.raises(Unreadable, match="not those asked"):
        source.read_at(90, 20)


def test_addresses() -> None:
    url = Url("s3://b/a")
    url.size = 7
    copy = pickle.loads(pickle.dumps(url))
    assert (copy, copy.size) == (url, 7)
    assert local_path("file:///a%20b/c") == "/a b/c"
    assert local_path("s3://a/b") is None
