"""The file as a whole and its parts: cut, continued, parts lost, repeated or swapped."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from inspector.fuzzing.mutators.kinds import Changed, Must, everything, mutator, with_edits
from inspector.fuzzing.pickled import llama_state
from inspector.fuzzing.subject import NoSuchPlace, Subject, packed
from inspector.node import Kind, Node


def _boundaries(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.kind is not Kind.GAP and 0 < node.span.start < len(subject.data):
            yield path


def _stretches(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.kind in (Kind.TABLE, Kind.PAYLOAD) and len(node.span) > 1:
            yield path


@mutator("cut", Must.REFUSE, _boundaries, "the file ends where this begins")
def _cut(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.data[: subject.node(path).span.start], subject.companions)


@mutator("cut-inside", Must.REFUSE, _stretches, "the file ends inside this")
def _cut_inside(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.node(path).span
    return Changed(subject.data[: dice.randrange(span.start + 1, span.stop)], subject.companions)


@mutator("cut-last", Must.REFUSE, everything, "the last byte is missing")
def _cut_last(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.data[:-1], subject.companions)


@mutator("emptied", Must.REFUSE, everything, "a file of no bytes")
def _emptied(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(b"", subject.companions)


@mutator("head-lost", Must.REFUSE, everything, "the first block never reached the disk")
def _head_lost(subject: Subject, path: str, dice: random.Random) -> Changed:
    size = min(len(subject.data), 64)
    return Changed(bytes(size) + subject.data[size:], subject.companions)


@mutator("byte-order", Must.REFUSE, everything, "numbers of a machine with the high byte first")
def _byte_order(subject: Subject, path: str, dice: random.Random) -> Changed:
    out = bytearray(subject.data)
    for node in subject.nodes.values():
        start, stop = node.span.start, node.span.stop
        if node.children or stop == start:
            continue
        size = 4 if node.kind is Kind.TABLE else 2 if node.kind is Kind.PAYLOAD else stop - start
        if isinstance(node.value, str) or (stop - start) % size:
            continue
        whole = subject.data[start:stop]
        out[start:stop] = b"".join(whole[at : at + size][::-1] for at in range(0, len(whole), size))
    return Changed(bytes(out), subject.companions)


@mutator("trailing-zeros", Must.EITHER, everything, "zeros behind the end")
def _trailing_zeros(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.data + bytes(dice.randrange(1, 64)), subject.companions)


@mutator("trailing-noise", Must.EITHER, everything, "bytes behind the end that mean nothing")
def _trailing_noise(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(
        subject.data + b"\xa5" + dice.randbytes(dice.randrange(4, 64)), subject.companions
    )


@mutator("trailing-itself", Must.EITHER, everything, "the file once more behind its end")
def _trailing_itself(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.data * 2, subject.companions)


def _listed(subject: Subject) -> Iterator[str]:
    return (path for path in subject.tables("tokens") if path in ("tokens", "tokens.tokens"))


@mutator("pickled", Must.REFUSE, _listed, "a pickle of llama-cpp-python with the state in it")
def _pickled(subject: Subject, path: str, dice: random.Random) -> Changed:
    ids, field = subject.node(path).span, subject.node("tokens").span
    state = subject.data[field.stop :]
    return Changed(llama_state(subject.data[ids.start : ids.stop], state), subject.companions)


_ROTATION = re.compile(r"(?!appendix\.).*\.n_rot_[kv]")


def _with_rotation(subject: Subject) -> Iterator[str]:
    if "version" in subject.nodes and any(map(_ROTATION.fullmatch, subject.nodes)):
        yield "version"


@mutator(
    "rotation-words-lost",
    Must.EITHER,
    _with_rotation,
    "the version before: no words of rotation",
)
def _rotation_words_lost(subject: Subject, path: str, dice: random.Random) -> Changed:
    edits = [packed(subject.node(path), subject.number(path) - 1)]
    for name, node in subject.nodes.items():
        if name == "appendix" or _ROTATION.fullmatch(name):
            edits.append((node.span.start, node.span.stop, b""))
    return with_edits(subject, *edits)


def _items(subject: Subject) -> Iterator[str]:
    """Items of series: layers, streams, records."""
    for path, node in subject.nodes.items():
        if node.name.startswith("[") and len(node.span):
            yield path


def _sections(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.role and "." not in path and node.children:
            yield path


def _parts(subject: Subject) -> Iterator[str]:
    yield from _sections(subject)
    yield from _items(subject)


@mutator("part-dropped", Must.REFUSE, _parts, "a section, a layer or a record is missing")
def _dropped(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.node(path).span
    return with_edits(subject, (span.start, span.stop, b""))


@mutator("part-repeated", Must.REFUSE, _parts, "a section, a layer or a record comes twice")
def _repeated(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.node(path).span
    return with_edits(subject, (span.stop, span.stop, subject.data[span.start : span.stop]))


def _next(subject: Subject, path: str) -> Node | None:
    """The section or the item behind this one."""
    found = list(_sections(subject) if "[" not in path[-4:] else _items(subject))
    node = subject.nodes[path]
    return next(
        (
            one
            for p in found
            if (one := subject.nodes[p]).span.start == node.span.stop and len(one.span)
        ),
        None,
    )


def _followed(subject: Subject) -> Iterator[str]:
    return (path for path in _parts(subject) if _next(subject, path) is not None)


@mutator("parts-swapped", Must.EITHER, _followed, "two sections, layers or records change places")
def _swapped(subject: Subject, path: str, dice: random.Random) -> Changed:
    one, other = subject.node(path), _next(subject, path)
    if other is None:
        raise NoSuchPlace(f"nothing follows {path!r}")
    a, b = one.span, other.span
    both = subject.data[b.start : b.stop] + subject.data[a.start : a.stop]
    return with_edits(subject, (a.start, b.stop, both))


def _counted(subject: Subject) -> Iterator[str]:
    """Items whose number is stored in front of their series."""
    for path in _items(subject):
        if _counter(subject, path):
            yield path


_COUNTERS = {
    "streams": "n_stream",
    "records": "count",
    "k": "n_layer",
    "v": "n_layer",
}


def _counter(subject: Subject, path: str) -> str:
    series, _, _ = path.rpartition("[")
    outer, _, name = series.rpartition(".")
    counter = _COUNTERS.get(name, "")
    found = f"{outer}.{counter}" if outer else counter
    return found if counter and found in subject.nodes else ""


@mutator("item-repeated", Must.EITHER, _counted, "a stream, a layer or a record twice, and counted")
def _item_repeated(subject: Subject, path: str, dice: random.Random) -> Changed:
    counter, span = _counter(subject, path), subject.node(path).span
    return with_edits(
        subject,
        packed(subject.node(counter), subject.number(counter) + 1),
        (span.stop, span.stop, subject.data[span.start : span.stop]),
    )


@mutator("item-dropped", Must.EITHER, _counted, "a stream, a layer or a record less, and counted")
def _item_dropped(subject: Subject, path: str, dice: random.Random) -> Changed:
    counter, span = _counter(subject, path), subject.node(path).span
    return with_edits(
        subject,
        packed(subject.node(counter), subject.number(counter) - 1),
        (span.start, span.stop, b""),
    )


def _lists(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.name == "records" and len(node.span):
            yield path


@mutator("records-none", Must.ACCEPT, _lists, "a list without records, and counted")
def _records_none(subject: Subject, path: str, dice: random.Random) -> Changed:
    counter = _counter(subject, f"{path}[0]")
    span = subject.node(path).span
    return with_edits(subject, packed(subject.node(counter), 0), (span.start, span.stop, b""))


@mutator("records-many", Must.REFUSE, _lists, "more records than readers take, all of them whole")
def _records_many(subject: Subject, path: str, dice: random.Random) -> Changed:
    counter, first = _counter(subject, f"{path}[0]"), subject.node(f"{path}[0]").span
    n = 1025 if len(first) < 4096 else 65
    more = subject.data[first.start : first.stop] * n
    return with_edits(
        subject,
        packed(subject.node(counter), subject.number(counter) + n),
        (first.start, first.start, more),
    )
