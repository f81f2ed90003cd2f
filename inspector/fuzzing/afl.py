"""A custom mutator for AFL++, and the same for libFuzzer: field-aware mutations of any input.

python -c 'import sys; print(":".join(filter(None, sys.path)))'  # in the environment of slotscope
export PYTHONPATH=THAT AFL_PYTHON_MODULE=inspector.fuzzing.afl
slotscope fuzz dictionary > slotscope.dict
afl-fuzz -i INPUTS -o OUT -x slotscope.dict -- loader @@

AFL++ has a Python of its own built in, which `afl-fuzz -h` names: the environment must be of the
same version. What it keeps is named by the mutation that made it, as in `fuzz mutate --only`.
Tried with AFL++ 4.04c of Debian 12.
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import lru_cache

from inspector.fuzzing.mutators import OF_THE_STATE, Mutator, mutant, mutations
from inspector.fuzzing.subject import NoSuchPlace, Subject

_dice = random.Random()
_last = ""
_KEPT = 64
"""Inputs whose places are remembered: fuzzers change the same one many times."""
_BY_BYTES = 0.25
"""Share of changes that do not look at fields."""


def changed(data: bytes, dice: random.Random, most: int) -> tuple[bytes, str]:
    """Other bytes, at least one and at most `most`, and how they were made.

    Mostly that is a named mutation of what they are, else a few bytes are changed.
    """
    subject, places = _places(data)
    if places and dice.random() >= _BY_BYTES:
        mutator, path = dice.choice(places)
        mutation = f"{mutator.name}@{path}:{dice.getrandbits(32)}"
        with suppress(NoSuchPlace):
            if new := mutant(subject, mutation).data[:most]:
                return new, mutation
    found = bytearray(data or b"\0")
    for _ in range(dice.choice((1, 1, 2, 4))):
        found[dice.randrange(len(found))] = dice.choice(
            (0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256))
        )
    return bytes(found[:most]), "bytes"


@lru_cache(_KEPT)
def _places(data: bytes) -> tuple[Subject, tuple[tuple[Mutator, str], ...]]:
    subject = Subject(data)
    found = ((mutator, path) for mutator, path in mutations(subject))
    return subject, tuple(one for one in found if not one[0].name.startswith(OF_THE_STATE))


def init(seed: int) -> None:
    """Called by AFL++ once."""
    _dice.seed(seed)


def fuzz(buf: bytearray, add_buf: bytearray | None, max_size: int) -> bytearray:
    """Called by AFL++ for every change; nothing at all would end it."""
    global _last
    new, _last = changed(bytes(buf), _dice, max_size)
    return bytearray(new)


def describe(max_description_length: int) -> bytes:
    """Called by AFL++ to name a file that it keeps: the id of the mutation that made it."""
    return _last.encode()[:max_description_length]


def deinit() -> None:
    """Called by AFL++ in the end."""
