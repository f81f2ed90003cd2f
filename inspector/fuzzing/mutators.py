"""Named mutations that know the fields: what each changes, and what a correct loader must do."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from formats.ggml_types import GGML_TYPE_NAMES, TYPES
from formats.layouts import by_id
from inspector.bundle import RECORD
from inspector.fuzzing.case import Case
from inspector.fuzzing.generator import with_sidecar
from inspector.fuzzing.pickled import llama_state
from inspector.fuzzing.subject import Edit, NoSuchPlace, Subject, edited, packed
from inspector.node import Kind, Node
from inspector.seal import SCHEMA


class Must(StrEnum):
    """What a correct loader does with a mutant."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    EITHER = "either"
    """Nothing in the file forbids it; a loader may take it or not, but it must live on."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a mutation makes of a file and its companions."""

    data: bytes
    companions: Mapping[str, bytes]


Places = Callable[[Subject], Iterator[str]]
Change = Callable[[Subject, str, random.Random], Changed]


@dataclass(frozen=True, slots=True)
class Mutator:
    """A kind of mutation.

    Attributes:
        name: in ids.
        meaning: what it does, in one line.
        must: what a correct loader does then.
        places: the paths that it applies to.
        change: makes the mutant; the seed decides what is left open.
    """

    name: str
    meaning: str
    must: Must
    places: Places
    change: Change


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutated file.

    Attributes:
        id: `name@path:seed`.
        mutator: its kind.
        data: the bytes.
        companions: what lies beside it, by what the names add.
    """

    id: str
    mutator: Mutator
    data: bytes
    companions: Mapping[str, bytes] = field(default_factory=dict)


MUTATORS: dict[str, Mutator] = {}


def _mutator(name: str, must: Must, places: Places, meaning: str) -> Callable[[Change], Change]:
    def enter(change: Change) -> Change:
        MUTATORS[name] = Mutator(name, meaning, must, places, change)
        return change

    return enter


def _with(subject: Subject, *edits: Edit) -> Changed:
    return Changed(edited(subject.data, edits), subject.companions)


# -- fields ----------------------------------------------------------------------------------------

_COUNT = re.compile(
    r"n_(token|tokens|media|stream|layer|outputs|seq_id|entries|checkpoints|records|rows|dim).*"
    r"|.*count|s_rows|rows|ns|live_rows|n_text"
)
_LENGTH = re.compile(r"(?!size_t).*size.*|len|n_tgt|n_dft|n_spec|n_embd_v_gqa|n_hbnd|n_drft|ne0")
_ROW = ("k_size_row", "v_size_row", "row_size", "s_size_row", "v_size_el")
_TYPE = ("k_type", "v_type", "s_type")
_FLAGS = (
    *("v_trans", "s_trans", "v_state", "qnext_state", "dsa_indexer_state", "present"),
    *("has_index", "has_image", "has_audio", "mode", "size_t_size"),
)
_POSITION = re.compile(r"pos(_min|_max|_min_prompt|_max_prompt)?|n_tokens")
_WORD = 1 << 32

Number = Callable[[int, int, random.Random], int]
"""(value, bytes of the field, dice) -> another value."""


def _named(pattern: re.Pattern[str] | tuple[str, ...]) -> Callable[[str, Node], bool]:
    def named(path: str, node: Node) -> bool:
        if isinstance(pattern, tuple):
            return node.name in pattern
        return pattern.fullmatch(node.name) is not None

    return named


def _is_count(path: str, node: Node) -> bool:
    """Whether it counts what follows; the number of tokens of a record or of a list does not."""
    counts = node.name != "n_tokens" or path.startswith("tokens.")
    return counts and _COUNT.fullmatch(node.name) is not None


def _is_type(path: str, node: Node) -> bool:
    return node.name in _TYPE or (node.name == "type" and "blocks" in path)


def _top(name: str) -> Callable[[str, Node], bool]:
    """Fields of that name, outside the token field."""
    return lambda path, node: node.name == name and not path.startswith("tokens.")


def _field_mutator(
    name: str, meaning: str, must: Must, applies: Callable[[str, Node], bool], number: Number
) -> None:
    def places(subject: Subject) -> Iterator[str]:
        return (path for path, node in subject.fields() if applies(path, node))

    def change(subject: Subject, path: str, dice: random.Random) -> Changed:
        node = subject.node(path)
        if not isinstance(node.value, int):
            raise NoSuchPlace(f"{path!r} holds no number")
        return _with(subject, packed(node, number(node.value, len(node.span), dice)))

    MUTATORS[name] = Mutator(name, meaning, must, places, change)


for _name, _meaning, _must, _applies, _number in (
    ("count-plus-one", "a count says one more", Must.REFUSE, _is_count, lambda v, n, d: v + 1),
    (
        "count-minus-one",
        "a count says one less",
        Must.REFUSE,
        _is_count,
        lambda v, n, d: v - 1,
    ),
    ("count-zero", "a count says none", Must.REFUSE, _is_count, lambda v, n, d: 0),
    (
        "count-huge",
        "a count that no file can hold",
        Must.REFUSE,
        _is_count,
        lambda v, n, d: (1 << (8 * n - 1)) - d.randrange(2),
    ),
    (
        "count-all-ones",
        "a count of all ones: -1 for who reads it signed",
        Must.REFUSE,
        _is_count,
        lambda v, n, d: -1,
    ),
    (
        "count-overflow",
        "a count that wraps around to the right number of bytes when it is multiplied",
        Must.REFUSE,
        _is_count,
        lambda v, n, d: v + (1 << (8 * n - d.choice((2, 3, 4)))),
    ),
    (
        "length-plus-one",
        "a length of one byte more",
        Must.REFUSE,
        _named(_LENGTH),
        lambda v, n, d: v + 1,
    ),
    (
        "length-minus-one",
        "a length of one byte less",
        Must.REFUSE,
        _named(_LENGTH),
        lambda v, n, d: v - 1,
    ),
    ("length-zero", "a length of nothing", Must.REFUSE, _named(_LENGTH), lambda v, n, d: 0),
    (
        "length-huge",
        "a length that no file can hold",
        Must.REFUSE,
        _named(_LENGTH),
        lambda v, n, d: (1 << (8 * n - 1)) - d.randrange(2),
    ),
    (
        "length-overflow",
        "a length that wraps around to the right number of bytes when it is multiplied",
        Must.REFUSE,
        _named(_LENGTH),
        lambda v, n, d: v + (1 << (8 * n - d.choice((1, 2, 3, 4)))),
    ),
    (
        "length-above-limit",
        "a length above what readers take",
        Must.REFUSE,
        _named(_LENGTH),
        lambda v, n, d: (1 << 34) + 1 if n == 8 else (1 << 31) + 1,
    ),
    (
        "row-odd",
        "a row that is no whole number of blocks",
        Must.REFUSE,
        _named(_ROW),
        lambda v, n, d: v | 1,
    ),
    (
        "row-doubled",
        "rows said to be twice as long",
        Must.REFUSE,
        _named(_ROW),
        lambda v, n, d: 2 * v,
    ),
    ("type-unknown", "a type that no program knows", Must.REFUSE, _is_type, lambda v, n, d: 77),
    (
        "type-other",
        "another type, for which the row is of another width",
        Must.REFUSE,
        _is_type,
        lambda v, n, d: d.choice([t for t in sorted(GGML_TYPE_NAMES) if t not in (v, -1)]),
    ),
    (
        "flag-set",
        "a flag of 2 or 3",
        Must.REFUSE,
        _named(_FLAGS),
        lambda v, n, d: 2 + d.randrange(2),
    ),
    (
        "flag-flipped",
        "a flag of the other value",
        Must.REFUSE,
        _named(_FLAGS),
        lambda v, n, d: v ^ 1,
    ),
    (
        "size-t-odd",
        "a size_t of six bytes",
        Must.REFUSE,
        _named(("size_t_size",)),
        lambda v, n, d: 6,
    ),
    (
        "rotation-odd",
        "a rotation by no power of two",
        Must.REFUSE,
        _named(("n_rot_k", "n_rot_v")),
        lambda v, n, d: 63,
    ),
    (
        "version-next",
        "the version after its own",
        Must.REFUSE,
        _top("version"),
        lambda v, n, d: v + 1,
    ),
    (
        "version-before",
        "the version before its own",
        Must.REFUSE,
        _top("version"),
        lambda v, n, d: v - 1,
    ),
    (
        "version-unknown",
        "a version that nobody writes",
        Must.REFUSE,
        _top("version"),
        lambda v, n, d: 99,
    ),
    (
        "magic-bit",
        "one bit of a magic flipped",
        Must.REFUSE,
        _named(("magic", "marker")),
        lambda v, n, d: v ^ (1 << d.randrange(8)),
    ),
    (
        "magic-zero",
        "a magic that never reached the disk",
        Must.REFUSE,
        _named(("magic",)),
        lambda v, n, d: 0,
    ),
    (
        "hash-other",
        "the hash of other bytes",
        Must.REFUSE,
        _named(re.compile(r".*hash")),
        lambda v, n, d: v ^ d.getrandbits(32) or 1,
    ),
    (
        "prompt-longer",
        "a list for another number of tokens",
        Must.REFUSE,
        _named(("prompt_tokens", "prompt_size")),
        lambda v, n, d: v + 1,
    ),
    (
        "position-plus-one",
        "a record's number is one higher",
        Must.EITHER,
        _named(_POSITION),
        lambda v, n, d: v + 1,
    ),
    (
        "position-minus-one",
        "a record's number is one lower",
        Must.EITHER,
        _named(_POSITION),
        lambda v, n, d: v - 1,
    ),
    ("position-zero", "a record's number is 0", Must.EITHER, _named(_POSITION), lambda v, n, d: 0),
    (
        "position-negative",
        "a record's number is negative",
        Must.EITHER,
        _named(_POSITION),
        lambda v, n, d: -1 - d.randrange(5),
    ),
    (
        "position-huge",
        "a record's number is beyond any context",
        Must.EITHER,
        _named(_POSITION),
        lambda v, n, d: (1 << (8 * n - 1)) - 1,
    ),
    (
        "layers-more",
        "one layer more than there are",
        Must.REFUSE,
        _named(("n_layer",)),
        lambda v, n, d: v + 1 + d.randrange(3),
    ),
    (
        "any-number",
        "a number of random bits",
        Must.EITHER,
        lambda path, node: True,
        lambda v, n, d: d.getrandbits(8 * n),
    ),
):
    _field_mutator(_name, _meaning, _must, _applies, _number)


# -- cells and tokens ------------------------------------------------------------------------------


def _tables(name: str, column: str = "", least: int = 1) -> Places:
    def places(subject: Subject) -> Iterator[str]:
        for path in subject.tables(name):
            rows = subject.rows(path)
            named = [own for own, _ in rows.fields]
            if (not column or column in named) and len(rows) >= least:
                yield path

    return places


def _cell_mutator(
    name: str,
    meaning: str,
    must: Must,
    column: str,
    number: Callable[[list[int], int, random.Random], int],
    least: int = 1,
) -> None:
    """One cell in one column: the number from those of all rows, and the row that is changed."""

    def change(subject: Subject, path: str, dice: random.Random) -> Changed:
        rows = subject.rows(path)
        values, row = rows.column(column).tolist(), dice.randrange(len(rows))
        span = rows.field_span(row, column)
        value = number(values, row, dice) % (1 << 8 * len(span))
        return _with(subject, (span.start, span.stop, value.to_bytes(len(span), "little")))

    MUTATORS[name] = Mutator(name, meaning, must, _tables("cells", column, least), change)


for _name, _meaning, _must, _column, _cell, _least in (
    (
        "cell-pos-duplicate",
        "two cells at one position",
        Must.EITHER,
        "pos",
        lambda v, i, d: v[i - 1],
        2,
    ),
    (
        "cell-pos-negative",
        "a cell at a negative position",
        Must.REFUSE,
        "pos",
        lambda v, i, d: -5,
        1,
    ),
    (
        "cell-pos-empty",
        "a cell at position -1, as one that holds nothing",
        Must.REFUSE,
        "pos",
        lambda v, i, d: -1,
        1,
    ),
    (
        "cell-pos-huge",
        "a cell beyond any context",
        Must.EITHER,
        "pos",
        lambda v, i, d: (1 << 31) - 1,
        1,
    ),
    (
        "cell-pos-far",
        "a cell behind all others, a gap in its place",
        Must.EITHER,
        "pos",
        lambda v, i, d: max(v) + 1 + d.randrange(3),
        1,
    ),
    (
        "cell-ids-two",
        "a cell that claims two sequences",
        Must.REFUSE,
        "n_seq_id",
        lambda v, i, d: 2,
        1,
    ),
    ("cell-ids-none", "a cell of no sequence", Must.REFUSE, "n_seq_id", lambda v, i, d: 0, 1),
    (
        "cell-ids-huge",
        "a cell of more sequences than the file can hold",
        Must.REFUSE,
        "n_seq_id",
        lambda v, i, d: 1 << 30,
        1,
    ),
    (
        "cell-token-other",
        "a cell of another token than the list has",
        Must.EITHER,
        "tok",
        lambda v, i, d: v[i] + 1,
        1,
    ),
    (
        "cell-x-other",
        "a text cell at a column of its own",
        Must.EITHER,
        "x",
        lambda v, i, d: v[i] + 1 + d.randrange(9),
        1,
    ),
):
    _cell_mutator(_name, _meaning, _must, _column, _cell, _least)


def _rewritten(subject: Subject, path: str, column: str, values: list[int]) -> list[Edit]:
    rows, edits = subject.rows(path), []
    for row, value in enumerate(values):
        span = rows.field_span(row, column)
        new = (value % (1 << 8 * len(span))).to_bytes(len(span), "little")
        edits.append((span.start, span.stop, new))
    return edits


@_mutator("cells-turned", Must.EITHER, _tables("cells", "pos", 2), "the later positions come first")
def _turned(subject: Subject, path: str, dice: random.Random) -> Changed:
    values = subject.rows(path).column("pos").tolist()
    at = dice.randrange(1, len(values))
    return _with(subject, *_rewritten(subject, path, "pos", values[at:] + values[:at]))


@_mutator("cells-apart", Must.EITHER, _tables("cells", "pos", 2), "a gap of two positions")
def _apart(subject: Subject, path: str, dice: random.Random) -> Changed:
    values = subject.rows(path).column("pos").tolist()
    at = dice.randrange(1, len(values))
    apart = [value + 2 * (i >= at) for i, value in enumerate(values)]
    return _with(subject, *_rewritten(subject, path, "pos", apart))


@_mutator(
    "cells-moved", Must.EITHER, _tables("cells", "pos"), "all positions of a section are others"
)
def _moved(subject: Subject, path: str, dice: random.Random) -> Changed:
    values = subject.rows(path).column("pos").tolist()
    by = dice.choice((-2, -1, 1, 2, 1000))
    return _with(subject, *_rewritten(subject, path, "pos", [max(0, v + by) for v in values]))


@_mutator(
    "cells-end-back", Must.EITHER, _tables("cells", "pos", 2), "the last cell is at an early place"
)
def _end_back(subject: Subject, path: str, dice: random.Random) -> Changed:
    values = subject.rows(path).column("pos").tolist()
    values[-1] = values[dice.randrange(len(values) - 1)]
    return _with(subject, *_rewritten(subject, path, "pos", values))


def _sequences(subject: Subject) -> Iterator[str]:
    for path in subject.tables("cells"):
        if any(name.startswith("seq_id") for name, _ in subject.rows(path).fields):
            yield path


@_mutator("cell-sequence", Must.REFUSE, _sequences, "a cell of sequence 300, -1 or 2^31-1")
def _sequence(subject: Subject, path: str, dice: random.Random) -> Changed:
    rows = subject.rows(path)
    name = next(name for name, _ in rows.fields if name.startswith("seq_id"))
    span = rows.field_span(dice.randrange(len(rows)), name)
    value = (300, -1, (1 << 31) - 1)[dice.randrange(3)]
    return _with(subject, (span.start, span.stop, struct.pack("<i", value)))


_ANY_TOKENS = _tables("tokens")


def _token(name: str, meaning: str, value: Callable[[random.Random], int], must: Must) -> None:
    def change(subject: Subject, path: str, dice: random.Random) -> Changed:
        span = subject.rows(path).row_span(dice.randrange(len(subject.rows(path))))
        return _with(subject, (span.start, span.stop, struct.pack("<i", value(dice))))

    MUTATORS[name] = Mutator(name, meaning, must, _ANY_TOKENS, change)


_token("token-negative", "a token id of -2 or -5", lambda d: d.choice((-2, -5)), Must.REFUSE)
_token("token-huge", "a token id beyond any vocabulary", lambda d: (1 << 31) - 1, Must.REFUSE)
_token(
    "token-media",
    "a token that stands for media, of which there are none",
    lambda d: -1,
    Must.REFUSE,
)
_token("token-other", "another token id", lambda d: d.randrange(32000), Must.EITHER)


@_mutator(
    "token-repeated", Must.EITHER, _tables("tokens", least=2), "a token id of elsewhere in the list"
)
def _token_repeated(subject: Subject, path: str, dice: random.Random) -> Changed:
    rows = subject.rows(path)
    span, other = (rows.row_span(row) for row in dice.sample(range(len(rows)), 2))
    return _with(subject, (span.start, span.stop, subject.data[other.start : other.stop]))


@_mutator("tokens-none", Must.EITHER, _tables("tokens"), "the list is gone, and its count says so")
def _tokens_none(subject: Subject, path: str, dice: random.Random) -> Changed:
    count = "n_token_count"
    if path != "tokens" or count not in subject.nodes:
        raise NoSuchPlace(f"{path!r} has no count of its own")
    span = subject.node(path).span
    return _with(subject, packed(subject.node(count), 0), (span.start, span.stop, b""))


@_mutator("tokens-longer", Must.EITHER, _tables("tokens"), "a token more than there are cells")
def _tokens_longer(subject: Subject, path: str, dice: random.Random) -> Changed:
    count = "n_token_count" if path == "tokens" else "tokens.n_tokens"
    stop, counts = (
        subject.node(path).span.stop,
        [packed(subject.node(count), subject.number(count) + 1)],
    )
    if path != "tokens":
        counts.append(packed(subject.node("n_token_count"), subject.number("n_token_count") + 1))
    return _with(subject, *counts, (stop, stop, struct.pack("<i", dice.randrange(32000))))


@_mutator("media-start", Must.REFUSE, _tables("media_start"), "media begin at another token")
def _media_start(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.rows(path).row_span(0)
    start = int.from_bytes(subject.data[span.start : span.stop], "little")
    return _with(subject, (span.start, span.stop, struct.pack("<I", start + 1)))


# -- structure -------------------------------------------------------------------------------------


def _everything(subject: Subject) -> Iterator[str]:
    yield ""


def _boundaries(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.kind is not Kind.GAP and 0 < node.span.start < len(subject.data):
            yield path


def _stretches(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.kind in (Kind.TABLE, Kind.PAYLOAD) and len(node.span) > 1:
            yield path


@_mutator("cut", Must.REFUSE, _boundaries, "the file ends where this begins")
def _cut(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.data[: subject.node(path).span.start], subject.companions)


@_mutator("cut-inside", Must.REFUSE, _stretches, "the file ends inside this")
def _cut_inside(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.node(path).span
    return Changed(subject.data[: dice.randrange(span.start + 1, span.stop)], subject.companions)


@_mutator("cut-last", Must.REFUSE, _everything, "the last byte is missing")
def _cut_last(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.data[:-1], subject.companions)


@_mutator("emptied", Must.REFUSE, _everything, "a file of no bytes")
def _emptied(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(b"", subject.companions)


@_mutator("head-lost", Must.REFUSE, _everything, "the first block never reached the disk")
def _head_lost(subject: Subject, path: str, dice: random.Random) -> Changed:
    size = min(len(subject.data), 64)
    return Changed(bytes(size) + subject.data[size:], subject.companions)


@_mutator("byte-order", Must.REFUSE, _everything, "numbers of a machine with the high byte first")
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


@_mutator("trailing-zeros", Must.EITHER, _everything, "zeros behind the end")
def _trailing_zeros(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.data + bytes(dice.randrange(1, 64)), subject.companions)


@_mutator("trailing-noise", Must.EITHER, _everything, "bytes behind the end that mean nothing")
def _trailing_noise(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(
        subject.data + b"\xa5" + dice.randbytes(dice.randrange(4, 64)), subject.companions
    )


@_mutator("trailing-itself", Must.EITHER, _everything, "the file once more behind its end")
def _trailing_itself(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.data * 2, subject.companions)


def _listed(subject: Subject) -> Iterator[str]:
    return (path for path in subject.tables("tokens") if path in ("tokens", "tokens.tokens"))


@_mutator("pickled", Must.REFUSE, _listed, "a pickle of llama-cpp-python with the state in it")
def _pickled(subject: Subject, path: str, dice: random.Random) -> Changed:
    ids, field = subject.node(path).span, subject.node("tokens").span
    state = subject.data[field.stop :]
    return Changed(llama_state(subject.data[ids.start : ids.stop], state), subject.companions)


_ROTATION = re.compile(r"(?!appendix\.).*\.n_rot_[kv]")


def _with_rotation(subject: Subject) -> Iterator[str]:
    if "version" in subject.nodes and any(map(_ROTATION.fullmatch, subject.nodes)):
        yield "version"


@_mutator(
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
    return _with(subject, *edits)


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


@_mutator("part-dropped", Must.REFUSE, _parts, "a section, a layer or a record is missing")
def _dropped(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.node(path).span
    return _with(subject, (span.start, span.stop, b""))


@_mutator("part-repeated", Must.REFUSE, _parts, "a section, a layer or a record comes twice")
def _repeated(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.node(path).span
    return _with(subject, (span.stop, span.stop, subject.data[span.start : span.stop]))


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


@_mutator("parts-swapped", Must.EITHER, _followed, "two sections, layers or records change places")
def _swapped(subject: Subject, path: str, dice: random.Random) -> Changed:
    one, other = subject.node(path), _next(subject, path)
    if other is None:
        raise NoSuchPlace(f"nothing follows {path!r}")
    a, b = one.span, other.span
    both = subject.data[b.start : b.stop] + subject.data[a.start : a.stop]
    return _with(subject, (a.start, b.stop, both))


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


@_mutator(
    "item-repeated", Must.EITHER, _counted, "a stream, a layer or a record twice, and counted"
)
def _item_repeated(subject: Subject, path: str, dice: random.Random) -> Changed:
    counter, span = _counter(subject, path), subject.node(path).span
    return _with(
        subject,
        packed(subject.node(counter), subject.number(counter) + 1),
        (span.stop, span.stop, subject.data[span.start : span.stop]),
    )


@_mutator("item-dropped", Must.EITHER, _counted, "a stream, a layer or a record less, and counted")
def _item_dropped(subject: Subject, path: str, dice: random.Random) -> Changed:
    counter, span = _counter(subject, path), subject.node(path).span
    return _with(
        subject,
        packed(subject.node(counter), subject.number(counter) - 1),
        (span.start, span.stop, b""),
    )


def _lists(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.name == "records" and len(node.span):
            yield path


@_mutator("records-none", Must.ACCEPT, _lists, "a list without records, and counted")
def _records_none(subject: Subject, path: str, dice: random.Random) -> Changed:
    counter = _counter(subject, f"{path}[0]")
    span = subject.node(path).span
    return _with(subject, packed(subject.node(counter), 0), (span.start, span.stop, b""))


@_mutator("records-many", Must.REFUSE, _lists, "more records than readers take, all of them whole")
def _records_many(subject: Subject, path: str, dice: random.Random) -> Changed:
    counter, first = _counter(subject, f"{path}[0]"), subject.node(f"{path}[0]").span
    n = 1025 if len(first) < 4096 else 65
    more = subject.data[first.start : first.stop] * n
    return _with(
        subject,
        packed(subject.node(counter), subject.number(counter) + n),
        (first.start, first.start, more),
    )


def _streams(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if path.endswith("]") and path.rpartition("[")[0].endswith("streams") and node.get("cells"):
            yield path


@_mutator("stream-emptied", Must.EITHER, _streams, "no cells, and counted")
def _stream_emptied(subject: Subject, path: str, dice: random.Random) -> Changed:
    count, span = subject.node(f"{path}.cell_count"), subject.node(path).span
    return _with(subject, packed(count, 0), (count.span.stop, span.stop, b""))


def _caches(subject: Subject) -> Iterator[str]:
    """Records that hold the cells of one cache, and their rows."""
    for path, node in subject.nodes.items():
        if node.get("cells") and node.get("cell_count") and len(node.rows("cells") or ()) > 1:
            yield path


def _without(subject: Subject, path: str, gone: int) -> list[Edit]:
    """The edits that take a cell and its rows out of a cache."""
    node = subject.node(path)
    rows = subject.rows(f"{path}.cells")
    count, row = len(rows), rows.row_span(gone)
    edits = [packed(subject.node(f"{path}.cell_count"), count - 1), (row.start, row.stop, b"")]
    for name, block in subject.nodes.items():
        if not name.startswith(f"{path}.") or block.kind is not Kind.PAYLOAD:
            continue
        inner = block.span
        if not node.span.start <= inner.start < node.span.stop or len(inner) % count:
            continue
        edits += _rows_out(subject, name, gone, count)
    return edits


def _rows_out(subject: Subject, name: str, gone: int, count: int) -> list[Edit]:
    span, outer = subject.node(name).span, name.rpartition(".")[0]
    channels = subject.number(f"{outer}.n_embd_v_gqa")
    if channels:
        size = subject.number(f"{outer}.v_size_el", 1)
        starts = [span.start + (c * count + gone) * size for c in range(channels)]
        return [(start, start + size, b"") for start in starts if start + size <= span.stop]
    size = len(span) // count
    return [(span.start + gone * size, span.start + (gone + 1) * size, b"")]


@_mutator("cell-dropped", Must.EITHER, _caches, "a cell less, with its rows, and counted")
def _cell_dropped(subject: Subject, path: str, dice: random.Random) -> Changed:
    count = len(subject.rows(f"{path}.cells"))
    gone = dice.choice((0, count - 1, count // 2))
    return _with(subject, *_without(subject, path, gone))


@_mutator("memory-emptied", Must.EITHER, _everything, "no tokens and no cells, and counted")
def _memory_emptied(subject: Subject, path: str, dice: random.Random) -> Changed:
    count, tokens = subject.node("n_token_count"), subject.node("tokens").span
    edits = [packed(count, 0), (tokens.start, tokens.stop, b"")]
    for stream in _streams(subject):
        cells, span = subject.node(f"{stream}.cell_count"), subject.node(stream).span
        edits += [packed(cells, 0), (cells.span.stop, span.stop, b"")]
    return _with(subject, *edits)


def _windows(subject: Subject) -> Iterator[str]:
    return (path for path in _caches(subject) if path.startswith("swa"))


@_mutator(
    "window-anchored", Must.ACCEPT, _windows, "zeros in the first cell of a window, all layers"
)
def _anchored(subject: Subject, path: str, dice: random.Random) -> Changed:
    count, edits = len(subject.rows(f"{path}.cells")), []
    for name, block in subject.nodes.items():
        if name.startswith(f"{path}.") and block.kind is Kind.PAYLOAD:
            edits += [(a, b, bytes(b - a)) for a, b, _ in _rows_out(subject, name, 0, count)]
    return _with(subject, *edits)


def _recurrents(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.role == "recurrent" and node.get("blocks") and len(node.rows("cells") or ()) == 1:
            yield path


@_mutator("state-twice", Must.REFUSE, _recurrents, "two cells of recurrent state in one sequence")
def _state_twice(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.rows(f"{path}.cells").span
    edits = [
        packed(subject.node(f"{path}.cell_count"), 2),
        (span.stop, span.stop, subject.data[span.start : span.stop]),
    ]
    for name, block in subject.nodes.items():
        if name.startswith(f"{path}.blocks") and block.kind is Kind.PAYLOAD:
            own = block.span
            edits.append((own.stop, own.stop, subject.data[own.start : own.stop]))
    return _with(subject, *edits)


# -- numbers in tensors ----------------------------------------------------------------------------

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
    return _with(subject, (start, stop, new))


@_mutator("values-not-a-number", Must.EITHER, _tensors, "NaN among the numbers")
def _nan(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _filled(subject, path, dice, _F16_NAN + b"\xc0\x7f", 4)


@_mutator("values-infinite", Must.EITHER, _tensors, "infinity among the numbers")
def _infinite(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _filled(subject, path, dice, b"\x80\x7f" + _F16_INFINITY, 4)


@_mutator("values-zero", Must.EITHER, _tensors, "a tensor of zeros")
def _zero(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _filled(subject, path, dice, b"\0", 1)


@_mutator("values-zero-row", Must.EITHER, _tensors, "a part of a tensor is zeros")
def _zero_row(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _filled(subject, path, dice, b"\0", 3)


@_mutator("values-tiny", Must.EITHER, _tensors, "numbers smaller than what a model computes")
def _tiny(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _filled(subject, path, dice, _F16_TINY, 1)


@_mutator("values-other", Must.EITHER, _tensors, "other numbers, all of them finite")
def _other(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.node(path).span
    noise = bytes(byte ^ 0x03 for byte in subject.data[span.start : span.stop])
    return _with(subject, (span.start, span.stop, noise))


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
    for path in _caches(subject):
        if any(size >= 2 * _PART_BYTES.get(kind, size) for _, size, kind in _keys(subject, path)):
            yield path


@_mutator("key-parts-swapped", Must.EITHER, _in_parts, "the end of every key comes first")
def _parts_swapped(subject: Subject, path: str, dice: random.Random) -> Changed:
    edits, part = [], dice.random()
    for node, size, kind in _keys(subject, path):
        step = _PART_BYTES.get(kind, size)
        at = step * (1 + int(part * (size // step - 1)))
        for start in range(node.span.start, node.span.stop, size):
            row = subject.data[start : min(start + size, node.span.stop)]
            edits.append((start, start + len(row), row[at:] + row[:at]))
    return _with(subject, *edits)


def _of_two_heads(subject: Subject) -> Iterator[str]:
    for path in _caches(subject):
        if any(kind == _Q8_KV and size % 64 == 8 for _, size, kind in _keys(subject, path)):
            yield path


@_mutator(
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
    return _with(subject, *edits)


# -- blobs of checkpoints --------------------------------------------------------------------------


def _blobs(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.name == "data_tgt" and len(node.span) and f"{path[:-8]}n_tgt" in subject.nodes:
            yield path


def _blob(name: str, meaning: str, new: Callable[[bytes, random.Random], bytes]) -> None:
    def change(subject: Subject, path: str, dice: random.Random) -> Changed:
        span, length = subject.node(path).span, subject.node(f"{path[:-8]}n_tgt")
        blob = new(subject.data[span.start : span.stop], dice)
        return _with(subject, packed(length, len(blob)), (span.start, span.stop, blob))

    MUTATORS[name] = Mutator(name, meaning, Must.REFUSE, _blobs, change)


def _of_other_layers(blob: bytes, dice: random.Random) -> bytes:
    inner = Subject(blob)
    for path, node in inner.fields():
        if node.name == "n_layer" and "blocks" not in path:
            return edited(blob, [packed(node, int(str(node.value)) + 1)])
    return blob


def _other_cells(blob: bytes, dice: random.Random) -> bytes:
    """The blob without a cell of its window."""
    inner = Subject(blob)
    path = next(_caches(inner), "")
    if not path:
        return blob
    count = len(inner.rows(f"{path}.cells"))
    return edited(blob, _without(inner, path, dice.choice((0, count // 2))))


def _of_another_dialect(blob: bytes, dice: random.Random) -> bytes:
    """The blob without its rotation words, or with some."""
    inner = Subject(blob)
    edits: list[Edit] = []
    for path, node in inner.fields():
        if node.name in ("n_rot_k", "n_rot_v"):
            edits.append((node.span.start, node.span.stop, b""))
        elif node.name == "n_layer" and not any(e[2] == b"" for e in edits):
            outer = path.rpartition(".")[0]
            if f"{outer}.v_trans" in inner.nodes and f"{outer}.n_rot_k" not in inner.nodes:
                edits.append((node.span.stop, node.span.stop, bytes(8)))
    return edited(blob, edits)


for _name, _meaning, _new in (
    ("blob-emptied", "a record without a blob", lambda blob, d: b""),
    ("blob-cut", "a blob without its last byte", lambda blob, d: blob[:-1]),
    ("blob-longer", "a blob with a byte too many", lambda blob, d: blob + b"\1"),
    ("blob-zeroed", "a blob of zeros", lambda blob, d: bytes(len(blob))),
    ("blob-noise", "a blob of noise", lambda blob, d: d.randbytes(len(blob))),
    ("blob-prefix-lost", "a blob without its first eight bytes", lambda blob, d: blob[8:]),
    (
        "blob-prefix-other",
        "a blob with eight bytes in front",
        lambda blob, d: b"\xd8\x3c\x14\xaf\0\0\0\0" + blob,
    ),
    ("blob-of-other-layers", "a blob of a model of another depth", _of_other_layers),
    ("blob-cell-dropped", "a blob that lacks a cell", _other_cells),
    ("blob-of-another-dialect", "a blob of a build with other words in it", _of_another_dialect),
):
    _blob(_name, _meaning, _new)


# -- companions ------------------------------------------------------------------------------------


def _any_companion(subject: Subject) -> Iterator[str]:
    yield from subject.companions


def _ckpt(subject: Subject) -> Iterator[str]:
    return (suffix for suffix in subject.companions if suffix in (".ckpt", ".checkpoints"))


def _json(subject: Subject) -> Iterator[str]:
    return (suffix for suffix in subject.companions if suffix == ".tokens.json")


def _beside(subject: Subject, **changes: bytes | None) -> Changed:
    held = {**subject.companions}
    for suffix, data in changes.items():
        held.pop(suffix, None)
        if data is not None:
            held[suffix] = data
    return Changed(subject.data, held)


@_mutator("companion-lost", Must.ACCEPT, _any_companion, "a companion is missing")
def _lost(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{path: None})


@_mutator("companion-cut", Must.REFUSE, _any_companion, "the last byte of a companion is missing")
def _companion_cut(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{path: subject.companions[path][:-1]})


@_mutator("companion-longer", Must.REFUSE, _any_companion, "bytes behind the end of a companion")
def _companion_longer(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{path: subject.companions[path] + dice.randbytes(16)})


@_mutator("companion-strange", Must.REFUSE, _ckpt, "what no known program writes, under that name")
def _strange(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{path: b"PK\3\4" + dice.randbytes(60)})


_OTHERS = ("pkcl1", "pkcl2", "llcp1", "llcp2", "lsckpt2", "stck2", "bkcp1", "slck1")


def _list_of(family: str, dice: random.Random) -> Mapping[str, bytes]:
    """The companions of another file, with a list of that family."""
    layout = by_id("ik4" if family.startswith("ik-") else "ggsq2.hybrid")
    assert layout is not None
    case = Case(layout, dice.getrandbits(16), {"suffix": "recurrent", "n_tokens": 33})
    return with_sidecar(case, family, ".ckpt").companions


@_mutator("companion-of-another", Must.REFUSE, _ckpt, "the list of another state")
def _of_another(subject: Subject, path: str, dice: random.Random) -> Changed:
    family = Subject(subject.companions[path]).layout
    if family not in _OTHERS and not family.startswith("ik-"):
        raise NoSuchPlace(f"{path!r} is of no known family")
    return _beside(subject, **{path: _list_of(family, dice)[".ckpt"]})


@_mutator("companion-foreign", Must.REFUSE, _ckpt, "the list of another program")
def _foreign(subject: Subject, path: str, dice: random.Random) -> Changed:
    own = Subject(subject.companions[path]).layout
    family = dice.choice([f for f in (*_OTHERS, "ik-checkpoints4") if f != own])
    return _beside(subject, **{path: _list_of(family, dice)[".ckpt"]})


@_mutator("companion-twice", Must.EITHER, _ckpt, "the lists of two programs")
def _twice(subject: Subject, path: str, dice: random.Random) -> Changed:
    other = ".checkpoints" if path == ".ckpt" else ".ckpt"
    return _beside(subject, **{other: _list_of(dice.choice(("slck1", "llcp1")), dice)[".ckpt"]})


@_mutator("companion-unfinished", Must.ACCEPT, _everything, "half a save under a temporary name")
def _unfinished(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{".tmp": subject.data[: len(subject.data) // 2]})


@_mutator("companion-record", Must.ACCEPT, _everything, "half a record of slotscope beside it")
def _record(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{RECORD: f'{{"schema": "{SCHEMA}"'.encode()})


@_mutator("companion-added", Must.EITHER, _everything, "the list of another program beside a state")
def _added(subject: Subject, path: str, dice: random.Random) -> Changed:
    family = dice.choice((*_OTHERS, "ik-checkpoints4"))
    return _beside(subject, **{".ckpt": _list_of(family, dice)[".ckpt"]})


def _json_mutator(
    name: str, meaning: str, change: Callable[[dict[str, object], random.Random], object]
) -> None:
    def apply(subject: Subject, path: str, dice: random.Random) -> Changed:
        try:
            document = json.loads(subject.companions[path])
            change(document, dice)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NoSuchPlace(f"{path!r} is no token list") from error
        return _beside(subject, **{path: json.dumps(document).encode()})

    MUTATORS[name] = Mutator(name, meaning, Must.REFUSE, _json, apply)


def _other_last(document: dict[str, object], dice: random.Random) -> None:
    tokens = document["tokens"]
    assert isinstance(tokens, list)
    tokens[-1] += 1


_json_mutator("json-version", "a token list of version 2", lambda d, dice: d.update(version=2))
_json_mutator("json-magic", "a token list of another magic", lambda d, dice: d.update(magic=1))
_json_mutator("json-token", "a token list with another last token", _other_last)
_json_mutator(
    "json-no-map",
    "a token list without its map of media",
    lambda d, dice: d.pop("map_idx_to_media"),
)


# -- ids -------------------------------------------------------------------------------------------

_ID = re.compile(r"(?P<name>[a-z0-9-]+)@(?P<path>[^:]*):(?P<seed>\d+)")
_INSIDE = ("companion-", "json-")
"""Mutators that do not apply inside companions."""


def mutations(subject: Subject) -> Iterator[tuple[Mutator, str]]:
    """All that can be done to a file and to the lists beside it: kinds and paths."""
    for mutator in MUTATORS.values():
        for path in mutator.places(subject):
            yield mutator, path
    for suffix, data in subject.companions.items():
        inner = Subject(data)
        for mutator in MUTATORS.values():
            if not mutator.name.startswith(_INSIDE):
                yield from ((mutator, f"{suffix}/{path}") for path in mutator.places(inner))


def mutate(data: bytes, mutation: str, companions: Mapping[str, bytes] | None = None) -> Mutant:
    """The mutant of that id: the same id gives the same bytes.

    Args:
        data: the file.
        mutation: `name@path:seed`; a path into a companion begins with what its name adds and `/`.
        companions: what lies beside the file, by what the names add.

    Raises:
        NoSuchPlace: if the id is none, or nothing in the file is at its path.
    """
    return mutant(Subject(data, companions or {}), mutation)


def mutant(subject: Subject, mutation: str) -> Mutant:
    """The same for a file that was looked at before."""
    found = _ID.fullmatch(mutation)
    if found is None:
        raise NoSuchPlace(f"{mutation!r} does not read name@path:seed")
    mutator = MUTATORS.get(found["name"])
    if mutator is None:
        raise NoSuchPlace(f"no mutator {found['name']!r}")
    dice = random.Random(mutation)
    suffix, slash, path = found["path"].partition("/")
    if not slash:
        changed = _applied(mutator, subject, found["path"], dice)
        return Mutant(mutation, mutator, changed.data, changed.companions)
    if suffix not in subject.companions:
        raise NoSuchPlace(f"no companion {suffix!r}")
    inner = _applied(mutator, Subject(subject.companions[suffix]), path, dice)
    companions = {**subject.companions, suffix: inner.data}
    return Mutant(mutation, mutator, subject.data, companions)


def _applied(mutator: Mutator, subject: Subject, path: str, dice: random.Random) -> Changed:
    if path not in mutator.places(subject):
        raise NoSuchPlace(f"{mutator.name} does not apply to {path!r}")
    return mutator.change(subject, path, dice)
