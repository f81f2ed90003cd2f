"""Numbers in tensors, and the order of those of a key."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator

from formats.ggml_types import TYPES
from inspector.fuzzing.mutators.kinds import Changed, Must, mutator, with_edits
from inspector.fuzzing.mutators.memory import caches
from inspector.fuzzing.subject import Subject
from inspector.node import Kind, Node

_F16_NAN, _F16_INFINITY, _F16_TINY = b"\x00\x7e", b"\x00\x7c", b"\x01\x00"


def _tensors(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.kind is Kind.PAYLOAD and node.name.endswith("data") and len(node.span) >= 4:
            yield path


def _filled(subject: Subject, path: str, dice: random.Random, what: bytes, part: int) -> Changed:
    """A tensor with the `part`-th part of it filled with one number."""
    span = subject.node(path).span
    size = max(4, len(span) // part // 4 * 4)
    start = span.start + dice.randrange(part) * (len(span) // part) // 4 * 4
    stop = min(start + size, span.stop)
    new = (what * (stop - start))[: stop - start]
    return with_edits(subject, (start, stop, new))


@mutator("values-not-a-number", Must.EITHER, _tensors, "NaN among the numbers")
def _nan(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _filled(subject, path, dice, _F16_NAN + b"\xc0\x7f", 4)


@mutator("values-infinite", Must.EITHER, _tensors, "infinity among the numbers")
def _infinite(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _filled(subject, path, dice, b"\x80\x7f" + _F16_INFINITY, 4)


@mutator("values-zero", Must.EITHER, _tensors, "a tensor of zeros")
def _zero(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _filled(subject, path, dice, b"\0", 1)


@mutator("values-zero-row", Must.EITHER, _tensors, "a part of a tensor is zeros")
def _zero_row(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _filled(subject, path, dice, b"\0", 3)


@mutator("values-tiny", Must.EITHER, _tensors, "numbers smaller than what a model computes")
def _tiny(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _filled(subject, path, dice, _F16_TINY, 1)


@mutator("values-other", Must.EITHER, _tensors, "other numbers, all of them finite")
def _other(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.node(path).span
    noise = bytes(byte ^ 0x03 for byte in subject.data[span.start : span.stop])
    return with_edits(subject, (span.start, span.stop, noise))


_PART = 32
"""Elements that a part of a key is a multiple of, as are the blocks of types of a cache."""
_PART_BYTES = {
    t.id: t.block_bytes * _PART // t.block_elements
    for t in TYPES
    if t.cache and not t.row_prefix_bytes and _PART % t.block_elements == 0
}
_Q8_KV, _HEAD = 151, struct.Struct("<4si")
"""A type of ik_llama.cpp; the scale and the sum in front of the quants of a head."""


def _keys(subject: Subject, path: str) -> Iterator[tuple[Node, int, int]]:
    """The keys of every layer of a cache: all rows, bytes of a row, and the type."""
    layer = re.compile(re.escape(path) + r"\.k\[\d+\]")
    for name in filter(layer.fullmatch, subject.nodes):
        size = subject.number(f"{name}.k_size_row")
        if size > 0 and f"{name}.data" in subject.nodes:
            yield subject.nodes[f"{name}.data"], size, subject.number(f"{name}.k_type")


def _in_parts(subject: Subject) -> Iterator[str]:
    for path in caches(subject):
        if any(size >= 2 * _PART_BYTES.get(kind, size) for _, size, kind in _keys(subject, path)):
            yield path


@mutator("key-parts-swapped", Must.EITHER, _in_parts, "the end of every key comes first")
def _parts_swapped(subject: Subject, path: str, dice: random.Random) -> Changed:
    edits, part = [], dice.random()
    for node, size, kind in _keys(subject, path):
        step = _PART_BYTES.get(kind, size)
        at = step * (1 + int(part * (size // step - 1)))
        for start in range(node.span.start, node.span.stop, size):
            row = subject.data[start : min(start + size, node.span.stop)]
            edits.append((start, start + len(row), row[at:] + row[:at]))
    return with_edits(subject, *edits)


def _of_two_heads(subject: Subject) -> Iterator[str]:
    for path in caches(subject):
        if any(kind == _Q8_KV and size % 64 == 8 for _, size, kind in _keys(subject, path)):
            yield path


@mutator(
    "keys-short", Must.EITHER, _of_two_heads, "q8_KV keys of two heads, 8 bytes too few a cell"
)
def _keys_short(subject: Subject, path: str, dice: random.Random) -> Changed:
    """As ik_llama.cpp saves them: head behind head, and cut after rows with room for one scale."""
    edits = []
    for node, size, kind in _keys(subject, path):
        if kind != _Q8_KV or size % 64 != 8:
            continue
        rows, span = bytearray(), node.span
        for start in range(span.start, span.stop, size):
            row = subject.data[start : start + size]
            half = (size - _HEAD.size) // 2 + _HEAD.size
            for quants in (row[_HEAD.size : half], row[half:]):
                rows += _HEAD.pack(row[:4], sum(memoryview(quants).cast("b"))) + quants
        edits.append((span.start, span.stop, bytes(rows[: len(span)])))
    return with_edits(subject, *edits)
