"""States in containers that are no binary layout: JSON companions, pickles, an SQLite cache.

Nothing of them is executed: JSON is scanned without recursion, a pickle is walked opcode by opcode,
a database is queried in a copy in memory. Sources:

- ik_llama.cpp `<state>.tokens.json`: ikawrakow/ik_llama.cpp 5e8bb724c (PR #1584, 2026-04-05),
  examples/server/server-context.cpp.
- llama-cpp-python: abetlen/llama-cpp-python 0.3.34, llama_cpp/llama.py `LlamaState` and
  llama_cpp/llama_cache.py `LlamaDiskCache`; grantjenks/python-diskcache 5.6.3, diskcache/core.py.
- Jan's `<same>.json` beside a slot file, as of 2026.
"""

from __future__ import annotations

import json
import math
import pickletools
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import IO, TYPE_CHECKING, cast

from formats.envelopes.tokens import N_TOKENS
from inspector.source import Cursor, Source
from inspector.span import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LARGEST_JSON = 128 << 20
"""Bytes; enough for as many tokens as a slot file is believed to hold."""
DEEPEST_JSON = 64
MOST_MEMBERS = 64
LONGEST_SCALAR = 4096
MOST_OPCODES = 1 << 16
LARGEST_DATABASE = 64 << 20
MOST_ENTRIES = 1 << 12

IK_TOKENS_MAGIC = 1819112310


class Trouble(StrEnum):
    """What is wrong with a container."""

    CUT = "cut"
    """The bytes end before the structure does."""
    MALFORMED = "malformed"
    """The bytes are not of that grammar."""
    LIMIT = "limit"
    """More than is believed: bytes, depth, items."""
    MISSING = "missing"
    """A member that the reader needs is not there."""
    WRONG = "wrong"
    """A member has a value or a type that the writer never writes."""
    TRAILING = "trailing"
    """Bytes follow the end of the structure."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, at one place.

    Attributes:
        kind: what sort of problem.
        path: the member it is about, empty for the container itself.
        span: its bytes.
        expected: what should be there.
        actual: what is there.
    """

    kind: Trouble
    path: str
    span: Span
    expected: str
    actual: str


Plain = int | float | str | bool | None

FORMATS = ("ik-tokens", "jan", "llama-cpp-python", "diskcache")
"""Of containers."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A member of the container as a plain value; no span where its bytes are not in one piece."""

    path: str
    value: Plain
    span: Span | None


@dataclass(frozen=True, slots=True)
class Inner:
    """Bytes of a state inside the container.

    Attributes:
        path: the member that holds it.
        span: its bytes.
        holds: `context`: a session file from the architecture name on, without its head and tokens.
    """

    path: str
    span: Span
    holds: str


@dataclass(frozen=True, slots=True)
class Container:
    """What a container is and holds.

    Attributes:
        format: one of `FORMATS`.
        facts: members in file order.
        tokens: token ids, shape `(n_tokens,)`; None if the format has none or they are damaged.
        inner: the states inside.
        problems: what is wrong, in the order it was found.
    """

    format: str
    facts: tuple[Fact, ...] = ()
    tokens: NDArray[np.int64] | None = None
    inner: tuple[Inner, ...] = ()
    problems: tuple[Problem, ...] = ()

    def fact(self, path: str) -> Plain:
        """The value of a member, None if it is not there."""
        return next((fact.value for fact in self.facts if fact.path == path), None)


def recognise(source: Source) -> Container | None:
    """The container that `source` is, told by its first bytes; None if it is none of these."""
    head = source.read_at(0, 4096)
    if head.startswith(_SQLITE):
        return diskcache(source)
    if _LLAMA_STATE.match(head):
        return llama_cpp_python(source)
    if not head.lstrip(b" \t\r\n").startswith(b"{"):
        return None
    if _IK_KEYS.search(head):
        return ik_tokens(source)
    return jan_sidecar(source) if _JAN_KEYS.search(head) else None


# JSON

_SPACE = rb"[ \t\r\n]*+"
_BLANK = re.compile(_SPACE)
_STRING = rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_KEY = re.compile(_SPACE + rb"(" + _STRING + rb")" + _SPACE + rb":")
_NUMBER = rb"-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][-+]?\d++)?"
_SCALAR = re.compile(_STRING + rb"|" + _NUMBER + rb"|true|false|null")
_INTEGERS = re.compile(
    rb"\["
    + _SPACE
    + rb"(?:-?(?:0|[1-9]\d{0,9})"
    + _SPACE
    + rb"(?:,"
    + _SPACE
    + rb"(?=[-\d])|(?=\])))*+\]"
)
"""An array of integers of up to ten digits: by far the most of a token list, matched at once."""
_EMPTY = re.compile(rb"\[" + _SPACE + rb"\]|\{" + _SPACE + rb"\}")
_CLOSERS = {b"[": b"]", b"{": b"}"}
_IK_KEYS = re.compile(rb'"(?:has_mtmd|map_idx_to_media)"')
_JAN_KEYS = re.compile(rb'"llama_(?:build|commit)"')


class _Broken(Exception):
    """Text that is no JSON, from `offset` on."""

    def __init__(self, offset: int, kind: Trouble, expected: str) -> None:
        super().__init__(offset)
        self.offset, self.kind, self.expected = offset, kind, expected


class _Json:
    """The members of a JSON object, with their spans.

    Args:
        source: the file that holds nothing but the object.
    """

    def __init__(self, source: Source) -> None:
        self.text = b""
        self.members: dict[str, Span] = {}
        self.problems: list[Problem] = []
        self.broken = False
        try:
            if source.size > LARGEST_JSON:
                raise _Broken(0, Trouble.LIMIT, f"at most {LARGEST_JSON} bytes")
            self.text = source.read_at(0, source.size)
            if not self.text.isascii():
                self.text.decode()
            end = self._object(_skip(self.text, 0))
        except UnicodeDecodeError as error:
            self._stop(_Broken(error.start, Trouble.MALFORMED, "UTF-8"), source.size)
        except _Broken as broken:
            self._stop(broken, source.size)
        else:
            if end < len(self.text):
                rest = Span(end, len(self.text))
                self.problems.append(
                    Problem(Trouble.TRAILING, "", rest, "the end", f"{len(rest)} bytes more")
                )

    def _stop(self, broken: _Broken, size: int) -> None:
        """Note that the text makes no sense from `broken.offset` on."""
        self.broken = True
        kind, rest = broken.kind, Span(broken.offset, size)
        opened, closed = self.text[:16].lstrip(), self.text[-16:].rstrip()
        ends_early = opened.startswith(b"{") and not closed.endswith(b"}")
        if kind is Trouble.MALFORMED and (ends_early or not len(rest)):
            kind = Trouble.CUT
        found = self.text[rest.start : rest.start + 1]
        actual = repr(found) if found else "the end of the text" if self.text else f"{size} bytes"
        self.problems.append(Problem(kind, "", rest, broken.expected, actual))

    def _object(self, at: int) -> int:
        """Note the members of the object at `at`; returns the offset behind it and blanks."""
        text = self.text
        if text[at : at + 1] != b"{":
            raise _Broken(at, Trouble.MALFORMED, '"{"')
        at = _skip(text, at + 1)
        if text[at : at + 1] == b"}":
            return _skip(text, at + 1)
        for _ in range(MOST_MEMBERS):
            start = _behind_key(text, at)
            stop = _value(text, start)
            self._note(at, Span(start, stop))
            at = _skip(text, stop)
            if text[at : at + 1] == b"}":
                return _skip(text, at + 1)
            if text[at : at + 1] != b",":
                raise _Broken(at, Trouble.MALFORMED, '"," or "}"')
            at += 1
        raise _Broken(at, Trouble.LIMIT, f"at most {MOST_MEMBERS} members")

    def _note(self, at: int, value: Span) -> None:
        key = _KEY.match(self.text, at)
        if key and len(key[1]) <= LONGEST_SCALAR:
            self.members[_characters(json.loads(key[1]))] = value

    def facts(self) -> Iterator[Fact]:
        """The members that are scalars."""
        for path, span in self.members.items():
            value = self.scalar(path)
            if value is not None or self.text[span.start : span.stop] == b"null":
                yield Fact(path, value, span)

    def scalar(self, path: str) -> Plain:
        """A member's value; None if it is absent, null, too long or no scalar."""
        span = self.members.get(path)
        if span is None or len(span) > LONGEST_SCALAR or self.text[span.start] in b"[{":
            return None
        value = json.loads(self.text[span.start : span.stop])
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return _characters(value) if isinstance(value, str) else value

    def expect(self, path: str, expected: str, holds: Callable[[Plain], bool]) -> None:
        """Note a problem unless the member is there and its value passes."""
        span = self.members.get(path)
        if span is None:
            end = Span(len(self.text), len(self.text))
            self.problems.append(Problem(Trouble.MISSING, path, end, expected, "nothing"))
        elif not holds(self.scalar(path)):
            private = self.text[span.start] in b"[{"  # it can hold tokens
            stop = min(span.stop, span.start + 32)
            actual = "something else" if private else repr(self.text[span.start : stop])
            self.problems.append(Problem(Trouble.WRONG, path, span, expected, actual))

    def integers(self, path: str) -> NDArray[np.int64] | None:
        """A member that is an array of integers; anything else is noted as a problem."""
        import numpy as np

        span = self.members.get(path)
        expected = "an array of token ids"
        if span is None or not _INTEGERS.fullmatch(self.text, span.start, span.stop):
            self.expect(path, expected, lambda _: False)
            return None
        body = self.text[span.start + 1 : span.stop - 1]
        if body.count(b",") >= N_TOKENS:
            expected = f"at most {N_TOKENS} token ids"
            self.problems.append(Problem(Trouble.LIMIT, path, span, expected, "more"))
            return None
        return np.fromstring(body, np.int64, sep=",") if body.strip() else np.zeros(0, np.int64)


def _skip(text: bytes, at: int) -> int:
    """The offset behind the blanks at `at`."""
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _behind_key(text: bytes, at: int) -> int:
    """The offset of the value behind the key at `at`."""
    key = _KEY.match(text, at)
    if key is None:
        raise _Broken(_skip(text, at), Trouble.MALFORMED, "a key")
    return _skip(text, key.end())


def _value(text: bytes, at: int) -> int:
    """The offset behind the value that begins at `at`.

    Raises:
        _Broken: if there is none.
    """
    closers: list[bytes] = []
    while True:
        atom = _INTEGERS.match(text, at) or _EMPTY.match(text, at) or _SCALAR.match(text, at)
        if atom is None:
            closer = _CLOSERS.get(text[at : at + 1])
            if closer is None:
                raise _Broken(at, Trouble.MALFORMED, "a value")
            if len(closers) == DEEPEST_JSON:
                raise _Broken(at, Trouble.LIMIT, f"at most {DEEPEST_JSON} levels")
            closers.append(closer)
            at = _behind_key(text, at + 1) if closer == b"}" else _skip(text, at + 1)
            continue
        at = atom.end()
        while closers:
            at = _skip(text, at)
            mark = text[at : at + 1]
            if mark == b",":
                at = _behind_key(text, at + 1) if closers[-1] == b"}" else _skip(text, at + 1)
                break
            if mark != closers[-1]:
                raise _Broken(at, Trouble.MALFORMED, f'"," or "{closers[-1].decode()}"')
            closers.pop()
            at += 1
        else:
            return at


def _characters(text: str) -> str:
    """The same text with lone surrogates escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def ik_tokens(source: Source) -> Container:
    """`<state>.tokens.json` of ik_llama.cpp: the token list that a restored slot gets.

    Its server aborts on text that is no JSON and on text without `map_idx_to_media`; it ignores
    text with another magic or version.
    """
    found = _Json(source)
    if found.broken:
        return Container("ik-tokens", tuple(found.facts()), problems=tuple(found.problems))
    found.expect("magic", str(IK_TOKENS_MAGIC), lambda value: value == IK_TOKENS_MAGIC)
    found.expect("version", "1", lambda value: value == 1 and value is not True)
    found.expect("has_mtmd", "true or false", lambda value: isinstance(value, bool))
    media = found.members.get("map_idx_to_media")
    if media is None or found.text[media.start : media.start + 1] != b"[":
        found.expect("map_idx_to_media", "an array", lambda _: False)
    tokens = found.integers("tokens")
    return Container("ik-tokens", tuple(found.facts()), tokens, problems=tuple(found.problems))


def jan_sidecar(source: Source) -> Container:
    """`<same>.json` that Jan writes beside a slot file: who wrote it, for which model."""
    found = _Json(source)
    if found.broken:
        return Container("jan", tuple(found.facts()), problems=tuple(found.problems))
    for path in ("model", "thread", "spec", "llama_build", "llama_commit"):
        found.expect(path, "a value", lambda value: value is not None)
    for path in ("model_bytes", "model_mtime", "n_tokens", "saved_at"):
        found.expect(path, "a number", lambda value: isinstance(value, int | float))
    return Container("jan", tuple(found.facts()), problems=tuple(found.problems))


# Pickles

_LLAMA_STATE = re.compile(
    rb"\x80[\x04\x05](?:\x95.{8})?\x8c\x0fllama_cpp\.llama\x94\x8c\x0aLlamaState\x94\x93", re.DOTALL
)
_BYTES_AT = {"SHORT_BINBYTES": 2, "BINBYTES": 5, "BINBYTES8": 9, "BYTEARRAY8": 9}
"""Opcodes that carry bytes, and how far behind the opcode those begin."""
_STRINGS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_INTS = ("BININT", "BININT1", "BININT2", "LONG1")
_ATTRIBUTES = ("input_ids", "scores", "n_tokens", "llama_state", "llama_state_size", "seed")


class _Skipped(bytes):
    """Stands for bytes that were stepped over: `pickletools` only asks how many there are."""

    n = 0

    def __len__(self) -> int:
        return self.n


class _Opcodes:
    """A file for `pickletools.genops` that steps over long arguments instead of reading them."""

    _READ = 4096

    def __init__(self, source: Source) -> None:
        self._cursor = Cursor(source, source.whole(), self._READ)
        self.short = False

    def read(self, size: int) -> bytes:
        """The next `size` bytes, or what stands for them."""
        left = self._cursor.wall - self._cursor.offset
        self.short = size > left
        if size <= self._READ:
            data = self._cursor.peek(size)
        else:
            data = _Skipped()
            data.n = min(size, left)
        self._cursor.offset += len(data)
        return data

    def readline(self) -> bytes:
        """Nothing: opcodes with a line of text are older than the protocols that are read here."""
        return b""

    def tell(self) -> int:
        """The offset of the next opcode."""
        return self._cursor.offset


def llama_cpp_python(source: Source) -> Container:
    """A pickled `LlamaState`, protocol 4 or 5: the result of `Llama.save_state`."""
    facts, spans, problems = _attributes(source)
    container = Container("llama-cpp-python", tuple(facts))
    tokens = _input_ids(source, container.fact("n_tokens"), spans.get("input_ids"), problems)
    inner = tuple(_llama_state(source, container.fact("llama_state_size"), spans, problems))
    return replace(container, tokens=tokens, inner=inner, problems=tuple(problems))


def _attributes(source: Source) -> tuple[list[Fact], dict[str, Span], list[Problem]]:
    """The numbers of a pickled LlamaState, the bytes of its arrays, and what is wrong with it."""
    facts: list[Fact] = []
    spans: dict[str, Span] = {}
    stream = _Opcodes(source)
    attribute, name, end = "", "", 0
    opcodes = pickletools.genops(cast("IO[bytes]", stream))
    try:
        for opcode, argument, position in islice(opcodes, MOST_OPCODES):
            name, start, end = opcode.name, int(position or 0), stream.tell()
            if name in _STRINGS and argument in _ATTRIBUTES:
                attribute = argument
            elif name in _INTS and attribute in ("n_tokens", "llama_state_size", "seed"):
                facts.append(Fact(attribute, argument, Span(start, end)))
                attribute = ""
            elif name in _BYTES_AT and attribute in ("input_ids", "llama_state"):
                data = Span(start + _BYTES_AT[name], end)
                if attribute == "llama_state" or len(data) > 3:  # else it is numpy's own b"b"
                    spans[attribute] = data
                    attribute = ""
    except ValueError as error:
        kind = Trouble.CUT if stream.short else Trouble.MALFORMED
        rest = Span(end, source.size)
        return facts, spans, [Problem(kind, "", rest, "an opcode", str(error)[:LONGEST_SCALAR])]
    rest = Span(end, source.size)
    if name != "STOP":
        expected = f"STOP within {MOST_OPCODES} opcodes"
        return facts, spans, [Problem(Trouble.LIMIT, "", rest, expected, name)]
    if len(rest):
        problem = Problem(Trouble.TRAILING, "", rest, "the end", f"{len(rest)} bytes more")
        return facts, spans, [problem]
    return facts, spans, []


def _input_ids(
    source: Source, n_tokens: Plain, span: Span | None, problems: list[Problem]
) -> NDArray[np.int64] | None:
    """The first `n_tokens` of an array of n_ctx 32-bit ids."""
    import numpy as np

    end = Span(source.size, source.size)
    if span is None or not isinstance(n_tokens, int):
        path = "n_tokens" if span is not None else "input_ids"
        problems.append(Problem(Trouble.MISSING, path, end, "the tokens of the state", "nothing"))
        return None
    most = min(len(span) // 4, N_TOKENS)
    if not 0 <= n_tokens <= most:
        expected = f"0 to {most} tokens"
        problems.append(Problem(Trouble.WRONG, "n_tokens", span, expected, str(n_tokens)))
        return None
    data = source.read_at(span.start, 4 * n_tokens)
    return np.frombuffer(data[: len(data) // 4 * 4], "<i4").astype(np.int64)


def _llama_state(
    source: Source, size: Plain, spans: dict[str, Span], problems: list[Problem]
) -> Iterator[Inner]:
    span = spans.get("llama_state")
    if span is None:
        end = Span(source.size, source.size)
        problems.append(Problem(Trouble.MISSING, "llama_state", end, "a context state", "nothing"))
        return
    if size != len(span):
        expected = f"{len(span)}, the bytes of llama_state"
        problems.append(Problem(Trouble.WRONG, "llama_state_size", span, expected, str(size)))
    yield Inner("llama_state", span, "context")


# SQLite

_SQLITE = b"SQLite format 3\0"
_CREATE = b"CREATE TABLE Cache "
_FILENAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{28}\.val")
_STEPS = 1000
_MOST_STEPS = 5_000
_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'Cache' AND rootpage > 0"
_ENTRIES = "SELECT filename, size, mode, access_count FROM Cache ORDER BY rowid LIMIT ?"


def diskcache(source: Source) -> Container | None:
    """`cache.db` of a `LlamaDiskCache` folder: which files hold its states.

    SQLite gets a copy in memory, so the file is neither locked nor written; entries that are still
    in a `cache.db-wal` beside it are not seen. An entry without a file name holds its value itself.

    Returns:
        None if the database has no table of that cache.
    """
    whole = source.whole()
    if _CREATE not in source.read_at(0, 1 << 16):
        return None
    if source.size > LARGEST_DATABASE:
        expected = f"at most {LARGEST_DATABASE} bytes"
        problem = Problem(Trouble.LIMIT, "", whole, expected, f"{source.size} bytes")
        return Container("diskcache", problems=(problem,))
    try:
        rows = _rows(source.read_at(0, source.size))
    except sqlite3.Error as error:
        problem = Problem(Trouble.MALFORMED, "", whole, "a table of cache entries", str(error))
        return Container("diskcache", problems=(problem,))
    if rows is None:
        return None
    facts: list[Fact] = []
    problems: list[Problem] = []
    for index, row in enumerate(rows[:MOST_ENTRIES]):
        path = f"entries[{index}]"
        for name, value in zip(("filename", "size", "mode", "access_count"), row, strict=True):
            if isinstance(value, int | str):
                facts.append(Fact(f"{path}.{name}", value, None))
        if row[0] is not None and not _FILENAME.fullmatch(str(row[0])):
            expected, actual = "xx/yy/ and 28 hexadecimal digits", repr(row[0])[:LONGEST_SCALAR]
            problems.append(Problem(Trouble.WRONG, f"{path}.filename", whole, expected, actual))
    if len(rows) > MOST_ENTRIES:
        expected = f"at most {MOST_ENTRIES} entries"
        problems.append(Problem(Trouble.LIMIT, "entries", whole, expected, "more"))
    return Container("diskcache", tuple(facts), problems=tuple(problems))


def _rows(data: bytes) -> list[tuple[object, ...]] | None:
    """One row more than is believed at most; None if the cache's table is missing or virtual.

    Raises:
        sqlite3.Error: for a damaged database, or one that takes too long.
    """
    with closing(sqlite3.connect(":memory:")) as database:
        database.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 16)
        steps = iter(range(_MOST_STEPS))
        database.set_progress_handler(lambda: next(steps, None) is None, _STEPS)
        # write and read version 1: in memory there is no write-ahead log
        database.deserialize(data[:18] + b"\1\1" + data[20:])
        database.execute("PRAGMA trusted_schema = OFF")
        if database.execute(_TABLE).fetchone() is None:
            return None
        return database.execute(_ENTRIES, (MOST_ENTRIES + 1,)).fetchall()
