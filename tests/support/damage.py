"""What happens to files: named damages, reproducible from a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.writer import Mark, Packed


@dataclass(frozen=True)
class Damaged:
    """Bytes that something happened to, and what it was."""

    what: str
    data: bytes


def cut(data: bytes, at: int) -> Damaged:
    """Keep the first `at` bytes: a full disk, a killed writer."""
    return Damaged(f"cut at {at}", data[:at])


def flip(data: bytes, bit: int) -> Damaged:
    """Turn one bit of the file over."""
    byte = data[bit // 8] ^ 1 << bit % 8
    return Damaged(f"bit {bit} flipped", data[: bit // 8] + bytes([byte]) + data[bit // 8 + 1 :])


def overwrite(data: bytes, at: int, new: bytes) -> Damaged:
    """Put other bytes in the place of those at `at`."""
    return Damaged(f"{len(new)} bytes at {at} overwritten", data[:at] + new + data[at + len(new) :])


def insert(data: bytes, at: int, new: bytes) -> Damaged:
    """Push everything from `at` on back."""
    return Damaged(f"{len(new)} bytes inserted at {at}", data[:at] + new + data[at:])


def delete(data: bytes, at: int, size: int) -> Damaged:
    """Pull everything behind the `size` bytes at `at` forward."""
    return Damaged(f"{size} bytes deleted at {at}", data[:at] + data[at + size :])


def trail(data: bytes, new: bytes) -> Damaged:
    """Append bytes that do not belong there."""
    return Damaged(f"{len(new)} bytes appended", data + new)


def hole(data: bytes, at: int, size: int) -> Damaged:
    """Zeros where a block never reached the disk."""
    return overwrite(data, at, bytes(min(size, len(data) - at)))


def set_field(packed: Packed, mark: Mark, value: int) -> Damaged:
    """Write another number into a field; it wraps around like the field does."""
    size = mark.stop - mark.start
    new = (value % (1 << 8 * size)).to_bytes(size, "little")
    return Damaged(f"{mark.path} = {value}", overwrite(packed.data, mark.start, new).data)


NUMBERS: tuple[Callable[[int], int], ...] = (
    lambda value: value + 1,
    lambda value: value - 1,
    lambda value: 0,
    lambda value: -1,
    lambda value: value ^ 0x80000000,
    lambda value: value << 8,
    lambda value: 0x7FFFFFFF,
)
"""What a field is set to: off by one, empty, all ones, a flipped sign, a shifted byte, huge."""


def fields(packed: Packed) -> list[Mark]:
    """The fields that hold a number."""
    return [mark for mark in packed.marks if mark.value is not None]


def every_field(packed: Packed) -> list[Damaged]:
    """Every numeric field set to every wrong number once."""
    damaged = [
        set_field(packed, mark, number(mark.value or 0))
        for mark in fields(packed)
        for number in NUMBERS
    ]
    return [one for one in damaged if one.data != packed.data]


def at_random(packed: Packed, seed: int) -> Damaged:
    """One damage of any kind, chosen by the seed."""
    dice = random.Random(seed)
    data = packed.data
    at = dice.randrange(len(data)) if data else 0
    size = min(dice.choice((1, 2, 4, 8, 64)), len(data) - at)
    noise = struct.pack("<Q", dice.getrandbits(64)) * 8
    kinds: list[Callable[[], Damaged]] = [
        lambda: cut(data, at),
        lambda: insert(data, at, noise[:size]),
        lambda: delete(data, at, size),
        lambda: hole(data, at, size),
        lambda: overwrite(data, at, noise[:size]),
        lambda: trail(data, noise[: 1 + size]),
    ]
    if data:
        kinds.append(lambda: flip(data, dice.randrange(8 * len(data))))
    if marks := fields(packed):
        mark = dice.choice(marks)
        kinds.append(lambda: set_field(packed, mark, dice.choice(NUMBERS)(mark.value or 0)))
    return dice.choice(kinds)()
