"""Rows of tables: cells, token ids, where media begin."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

from inspector.fuzzing.mutators.kinds import (
    MUTATORS,
    Changed,
    Must,
    Mutator,
    Places,
    mutator,
    with_edits,
)
from inspector.fuzzing.subject import Edit, NoSuchPlace, Subject, packed


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
        return with_edits(subject, (span.start, span.stop, value.to_bytes(len(span), "little")))

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


@mutator("cells-turned", Must.EITHER, _tables("cells", "pos", 2), "the later positions come first")
def _turned(subject: Subject, path: str, dice: random.Random) -> Changed:
    values = subject.rows(path).column("pos").tolist()
    at = dice.randrange(1, len(values))
    return with_edits(subject, *_rewritten(subject, path, "pos", values[at:] + values[:at]))


@mutator("cells-apart", Must.EITHER, _tables("cells", "pos", 2), "a gap of two positions")
def _apart(subject: Subject, path: str, dice: random.Random) -> Changed:
    values = subject.rows(path).column("pos").tolist()
    at = dice.randrange(1, len(values))
    apart = [value + 2 * (i >= at) for i, value in enumerate(values)]
    return with_edits(subject, *_rewritten(subject, path, "pos", apart))


@mutator(
    "cells-moved", Must.EITHER, _tables("cells", "pos"), "all positions of a section are others"
)
def _moved(subject: Subject, path: str, dice: random.Random) -> Changed:
    values = subject.rows(path).column("pos").tolist()
    by = dice.choice((-2, -1, 1, 2, 1000))
    return with_edits(subject, *_rewritten(subject, path, "pos", [max(0, v + by) for v in values]))


@mutator(
    "cells-end-back", Must.EITHER, _tables("cells", "pos", 2), "the last cell is at an early place"
)
def _end_back(subject: Subject, path: str, dice: random.Random) -> Changed:
    values = subject.rows(path).column("pos").tolist()
    values[-1] = values[dice.randrange(len(values) - 1)]
    return with_edits(subject, *_rewritten(subject, path, "pos", values))


def _sequences(subject: Subject) -> Iterator[str]:
    for path in subject.tables("cells"):
        if any(name.startswith("seq_id") for name, _ in subject.rows(path).fields):
            yield path


@mutator("cell-sequence", Must.REFUSE, _sequences, "a cell of sequence 300, -1 or 2^31-1")
def _sequence(subject: Subject, path: str, dice: random.Random) -> Changed:
    rows = subject.rows(path)
    name = next(name for name, _ in rows.fields if name.startswith("seq_id"))
    span = rows.field_span(dice.randrange(len(rows)), name)
    value = (300, -1, (1 << 31) - 1)[dice.randrange(3)]
    return with_edits(subject, (span.start, span.stop, struct.pack("<i", value)))


_ANY_TOKENS = _tables("tokens")


def _token(name: str, meaning: str, value: Callable[[random.Random], int], must: Must) -> None:
    def change(subject: Subject, path: str, dice: random.Random) -> Changed:
        span = subject.rows(path).row_span(dice.randrange(len(subject.rows(path))))
        return with_edits(subject, (span.start, span.stop, struct.pack("<i", value(dice))))

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


@mutator(
    "token-repeated", Must.EITHER, _tables("tokens", least=2), "a token id of elsewhere in the list"
)
def _token_repeated(subject: Subject, path: str, dice: random.Random) -> Changed:
    rows = subject.rows(path)
    span, other = (rows.row_span(row) for row in dice.sample(range(len(rows)), 2))
    return with_edits(subject, (span.start, span.stop, subject.data[other.start : other.stop]))


@mutator("tokens-none", Must.EITHER, _tables("tokens"), "the list is gone, and its count says so")
def _tokens_none(subject: Subject, path: str, dice: random.Random) -> Changed:
    count = "n_token_count"
    if path != "tokens" or count not in subject.nodes:
        raise NoSuchPlace(f"{path!r} has no count of its own")
    span = subject.node(path).span
    return with_edits(subject, packed(subject.node(count), 0), (span.start, span.stop, b""))


@mutator("tokens-longer", Must.EITHER, _tables("tokens"), "a token more than there are cells")
def _tokens_longer(subject: Subject, path: str, dice: random.Random) -> Changed:
    count = "n_token_count" if path == "tokens" else "tokens.n_tokens"
    stop, counts = (
        subject.node(path).span.stop,
        [packed(subject.node(count), subject.number(count) + 1)],
    )
    if path != "tokens":
        counts.append(packed(subject.node("n_token_count"), subject.number("n_token_count") + 1))
    return with_edits(subject, *counts, (stop, stop, struct.pack("<i", dice.randrange(32000))))


@mutator("media-start", Must.REFUSE, _tables("media_start"), "media begin at another token")
def _media_start(subject: Subject, path: str, dice: random.Random) -> Changed:
    span = subject.rows(path).row_span(0)
    start = int.from_bytes(subject.data[span.start : span.stop], "little")
    return with_edits(subject, (span.start, span.stop, struct.pack("<I", start + 1)))
