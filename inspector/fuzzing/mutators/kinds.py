"""What a mutation is, the register of all of them, and what their modules share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from inspector.fuzzing.subject import Edit, Subject, edited


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


def mutator(name: str, must: Must, places: Places, meaning: str) -> Callable[[Change], Change]:
    """Enters a change into the register, as a mutation of that name."""

    def enter(change: Change) -> Change:
        MUTATORS[name] = Mutator(name, meaning, must, places, change)
        return change

    return enter


def with_edits(subject: Subject, *edits: Edit) -> Changed:
    """The file with those bytes replaced; its companions stay."""
    return Changed(edited(subject.data, edits), subject.companions)


def everything(subject: Subject) -> Iterator[str]:
    """The file as a whole, the path of which is empty."""
    yield ""
