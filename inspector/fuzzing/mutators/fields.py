"""Numbers in single fields: counts, lengths, types, flags, versions, positions."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

from formats.ggml_types import GGML_TYPE_NAMES
from inspector.fuzzing.mutators.kinds import MUTATORS, Changed, Must, Mutator, with_edits
from inspector.fuzzing.subject import NoSuchPlace, Subject, packed
from inspector.node import Node

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
        return with_edits(subject, packed(node, number(node.value, len(node.span), dice)))

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
        "rotation-other",
        "a rotation where there is none, or none where there is one",
        Must.REFUSE,
        _named(("n_rot_k", "n_rot_v")),
        lambda v, n, d: 0 if v else 64,
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
