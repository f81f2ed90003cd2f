"""A custom mutator for AFL++, and the same for libFuzzer: field-aware mutations of any input.

export PYTHONPATH=FOLDER_OF_SLOTSCOPE AFL_PYTHON_MODULE=inspector.fuzzing.afl
afl-fuzz -i samples/intact -o out -x slotscope.dict -- loader @@
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import lru_cache

from inspector.fuzzing.mutators import Mutator, mutant, mutations
from inspector.fuzzing.subject import NoSuchPlace, Subject

_dice = random.Random()
_KEPT = 64
"""Inputs whose places are remembered: fuzzers change the same one many times."""
_BY_BYTES = 0.25
"""Share of changes that do not look at fields."""


def changed(data: bytes, dice: random.Random, most: int) -> bytes:
    """Other bytes, at most `most`: mostly a named mutation of what they are, else a few bytes."""
    subject, places = _places(data)
    if places and dice.random() >= _BY_BYTES:
        mutator, path = dice.choice(places)
        with suppress(NoSuchPlace):
            return mutant(subject, f"{mutator.name}@{path}:{dice.getrandbits(32)}").data[:most]
    found = bytearray(data or b"\0")
    for _ in range(dice.choice((1, 1, 2, 4))):
        found[dice.randrange(len(found))] = dice.choice(
            (0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256))
        )
    return bytes(found[:most])


@lru_cache(_KEPT)
def _places(data: bytes) -> tuple[Subject, tuple[tuple[Mutator, str], ...]]:
    subject = Subject(data)
    return subject, tuple(mutations(subject))


def init(seed: int) -> None:
    """Called by AFL++ once."""
    _dice.seed(seed)


def fuzz(buf: bytearray, add_buf: bytearray | None, max_size: int) -> bytearray:
    """Called by AFL++ for every change."""
    return bytearray(changed(bytes(buf), _dice, max_size))


def deinit() -> None:
    """Called by AFL++ in the end."""
