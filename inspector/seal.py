"""A seal: digests of a file by section, kept beside it, that tell later which bytes changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspector.bundle import RECORD
from inspector.node import Kind, walk
from inspector.source import Source, Unreadable, opened
from inspector.span import Span, gaps

if TYPE_CHECKING:
    from inspector.model.gguf import ModelFile
    from inspector.report import Report
    from inspector.server.target import Target

SCHEMA = "slotscope.record/1"

SMALL = 1 << 20
"""Bytes of a file up to which all of it is compared with its seal, whenever it is looked at."""
_TO = " to "
"""Between the paths of the first and the last part of a stretch that is no part itself."""
_SHORTEST = 256
_MOST_TILES = 4096
_CHUNK = 1 << 20
_MOST_BYTES = 16 << 20
"""Of a record that is read; the largest that is written has a tenth."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A stretch of a file.

    Attributes:
        path: of the part that it is, or of the first and the last one in it, as `A to B`.
        span: its bytes.
        xxh3: xxh3-128 of them, hex.
    """

    path: str
    span: Span
    xxh3: str

    @property
    def first(self) -> str:
        """The path of the part that it begins with."""
        return self.path.partition(_TO)[0]

    @property
    def holder(self) -> str:
        """The path of what all of it lies in; empty if that is the file."""
        if _TO not in self.path:
            return self.path
        steps = zip(*(path.split(".") for path in self.path.split(_TO)), strict=False)
        return ".".join(same[0] for same in takewhile(lambda pair: len(set(pair)) == 1, steps))


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A companion as it was when its state was sealed."""

    name: str
    size: int
    xxh3: str


@dataclass(frozen=True, slots=True)
class Seal:
    """What a file was when it was sealed.

    Attributes:
        size: bytes.
        mtime_ns: its last change then, nanoseconds since 1970.
        sealed_ns: when it was sealed.
        sha256: of all bytes, hex; for other programs, we compare the sections.
        tiles: the file from its first byte to its last.
        n_tokens: tokens it stood for.
        tokens: xxh3-128 of their ids, hex; empty without any.
        companions: the files that belonged to it.
        model: name and fingerprint of its model, if that was given.
        target: the server that it was meant for, if that was given.
    """

    size: int
    mtime_ns: int
    sealed_ns: int
    sha256: str
    tiles: tuple[Tile, ...]
    n_tokens: int
    tokens: str
    companions: tuple[SealedFile, ...]
    model: dict[str, str] | None = None
    target: str | None = None


class BadSeal(Exception):
    """A record that cannot be read; the message says why, beginning with its name alone."""


def record_of(path: str | Path) -> dict[str, Any] | None:
    """The record beside the file at `path`; None if there is none.

    Raises:
        BadSeal: if it is no record of ours.
    """
    place = f"{path}{RECORD}"
    name = Path(place).name
    try:
        with opened(place) as source:
            data = source.read_at(0, min(source.size, _MOST_BYTES + 1))
    except Unreadable as error:
        if os.path.lexists(place):
            raise BadSeal(f"{name}: {error}") from error
        return None
    if len(data) > _MOST_BYTES:
        raise BadSeal(f"{name}: it is larger than 16 MiB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadSeal(f"{name}: it is no JSON") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BadSeal(f"{name}: its schema is not {SCHEMA}")
    return document


def seal_beside(path: str | Path) -> Seal | None:
    """The seal of the file at `path`; None if it was not sealed.

    Raises:
        BadSeal: if it cannot be read.
    """
    document = record_of(path)
    return None if document is None else seal_in(document, path)


def seal_in(record: dict[str, Any], path: str | Path) -> Seal | None:
    """The seal in the record of the file at `path`; None if the record has none.

    Raises:
        BadSeal: if a part of it is missing, or is not what we write.
    """
    if "seal" not in record:
        return None
    try:
        return _seal(record["seal"])
    except (KeyError, TypeError, AttributeError) as error:
        raise BadSeal(f"{Path(path).name}{RECORD}: its seal lacks parts") from error
    except ValueError as error:
        raise BadSeal(f"{Path(path).name}{RECORD}: {error}") from error


def _seal(found: dict[str, Any]) -> Seal:
    tiles = tuple(
        Tile(_words(one, "path"), Span(_number(one, "start"), _number(one, "stop")), _xxh3(one))
        for one in found["sections"]
    )
    size, tokens = _number(found, "bytes"), found["tokens"]
    ends = [0, *(tile.span.stop for tile in tiles)]
    if any(tile.span.start != end for tile, end in zip(tiles, ends, strict=False)):
        raise ValueError("its sections do not follow each other")
    if any(not len(tile.span) for tile in tiles):
        raise ValueError("a section of it has no bytes")
    if ends[-1] != size:
        raise ValueError("its sections do not end with the file")
    model, target = found.get("model"), found.get("target")
    return Seal(
        size=size,
        mtime_ns=_number(found, "mtime_ns", -_MOST),
        sealed_ns=_number(found, "sealed_ns", -_MOST),
        sha256=_words(found, "sha256", _SHA256),
        tiles=tiles,
        n_tokens=_number(tokens, "count"),
        tokens="" if tokens["xxh3"] is None else _xxh3(tokens),
        companions=tuple(
            SealedFile(_words(one, "name", _NAME), _number(one, "bytes"), _xxh3(one))
            for one in found["companions"]
        ),
        model=None if model is None else {key: _words(model, key) for key in _OF_A_MODEL},
        target=None if target is None else _words(found, "target"),
    )


_MOST = 1 << 63
_ANY, _NAME = re.compile(r".*", re.DOTALL), re.compile(r"[^/\0]+")
_XXH3, _SHA256 = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{64}")
_OF_A_MODEL = ("name", "header_xxh3")


def _number(of: dict[str, Any], name: str, least: int = 0) -> int:
    value = of[name]
    if type(value) is not int or not least <= value < _MOST:
        raise ValueError(f"{name} in its seal is no number that can be")
    return value


def _words(of: dict[str, Any], name: str, form: re.Pattern[str] = _ANY) -> str:
    value = of[name]
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ValueError(f"{name} in its seal is not what it must be")
    return value


def _xxh3(of: dict[str, Any]) -> str:
    return _words(of, "xxh3", _XXH3)


# -- digests ---------------------------------------------------------------------------------------


def digests(source: Source, spans: Sequence[Span], *more: Any) -> Iterator[str]:
    """xxh3-128 of adjoining spans, hex; every byte is read once.

    Args:
        source: the file.
        spans: in file order, each beginning where the one before ends.
        more: further digests that are given all bytes.
    """
    from xxhash import xxh3_128

    buffer = memoryview(bytearray(_CHUNK))
    held = Span(0, 0)
    for span in spans:
        state, at = xxh3_128(), span.start
        while at < span.stop:
            if at not in held:
                n = source.read_into(buffer[: min(_CHUNK, spans[-1].stop - at)], at)
                if not n:
                    break
                held = Span(at, at + n)
                for one in more:
                    one.update(buffer[:n])
            stop = min(span.stop, held.stop)
            state.update(buffer[at - held.start : stop - held.start])
            at = stop
        yield state.hexdigest()


def tiles_of(report: Report) -> list[tuple[str, Span]]:
    """A file in stretches, each a part that is worth naming with what little lies before it."""
    shortest = max(_SHORTEST, report.size // _MOST_TILES)
    found: dict[Span, tuple[str, str]] = {}
    start, first, last, section = 0, "", "", ""
    for path, span in _parts(report, Span(0, report.size)):
        within = path.partition(".")[0] if "." in path else ""
        if span.start > start and (within != section or span.start - start >= shortest):
            found[Span(start, span.start)] = first, last
            start = span.start
        if span.start == start:
            first = path
        last, section = path, within
    if start < report.size:
        found[Span(start, report.size)] = first, last
    root = report.identification.root
    nodes = walk(root) if root is not None else ()
    whole = {node.span: path for path, node in nodes if node.span in found}
    return [
        (a if a == z else whole.get(span) or f"{a}{_TO}{z}", span) for span, (a, z) in found.items()
    ]


def _parts(report: Report, whole: Span) -> Iterator[tuple[str, Span]]:
    """All bytes of a file: the leaves of its tree, and what no leaf owns."""
    root, at = report.identification.root, 0
    for path, node in walk(root) if root is not None else ():
        if node.children or not len(node.span) or node.span.start < at:
            continue
        if node.span.start > at:
            yield "gap", Span(at, node.span.start)
        at = node.span.stop
        yield path if node.kind is not Kind.GAP else "gap", node.span
    for gap in gaps([Span(0, at)], whole):
        yield "gap", gap


def digest_of(path: str | Path) -> tuple[int, str]:
    """Bytes of a file, and xxh3-128 of all of them.

    Raises:
        Unreadable: if the system does not give us the file.
    """
    with opened(path) as source:
        (found,) = digests(source, [source.whole()])
        return source.size, found


# -- making one ------------------------------------------------------------------------------------


def seal_of(report: Report, target: Target | None, model: ModelFile | None) -> dict[str, Any]:
    """The seal of a file, as it is written; reads every byte of it and of its companions."""
    tiles, sha256 = tiles_of(report), hashlib.sha256()
    found = list(digests(report.source, [span for _, span in tiles], sha256))
    tokens, around = report.tokens, report.bundle
    return {
        "tool": f"slotscope {version('slotscope')}",
        "sealed_ns": time.time_ns(),
        "bytes": report.size,
        "mtime_ns": around.subject.mtime_ns,
        "sha256": sha256.hexdigest(),
        "tokens": {
            "count": tokens.count if tokens is not None else 0,
            "xxh3": tokens.digest if tokens is not None and len(tokens.ids) else None,
        },
        "model": None if model is None else fingerprint(model),
        "target": None if target is None else target.build.label,
        "companions": list(_companions(report)),
        "sections": [
            {"path": path, "start": span.start, "stop": span.stop, "xxh3": digest}
            for (path, span), digest in zip(tiles, found, strict=True)
        ],
    }


def _companions(report: Report) -> Iterator[dict[str, Any]]:
    for companion in report.bundle.companions:
        with suppress(Unreadable):
            size, digest = digest_of(companion.file.path)
            yield {"name": companion.file.name, "bytes": size, "xxh3": digest}


def fingerprint(model: ModelFile) -> dict[str, str]:
    """What tells a model file from others: its metadata and the table of its tensors."""
    from xxhash import xxh3_128_hexdigest

    first = min((tensor.offset for tensor in model.tensors.values()), default=0)
    head = model.source.read_at(0, first)
    return {"name": Path(model.source.name).name, "header_xxh3": xxh3_128_hexdigest(head)}
