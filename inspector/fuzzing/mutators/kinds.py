"""What a mutation is, the register of all of them, and what their modules share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from inspector.fuzzing.subject import Edit, Subject, edited


class Must(StrEnum):
    """What a correct loader does with a mutant."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    EITHER = "either"
    """Nothing in the file forbids it; a loader may take it or not, but it must live on."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a mutation makes of a file and its companions.

    Attributes:
        data: the bytes.
        companions: what lies beside it, by what the names add.
        ending: what the name of the file must end in.
        links: what those names add that are symbolic links, nothing for that of the file. A link
            leads to the same name with a dot before it, where its bytes are if there are any.
    """

    data: bytes
    companions: Mapping[str, bytes]
    ending: str = ""
    links: frozenset[str] = frozenset()

    def files(self, path: Path) -> dict[Path, bytes]:
        """What to write where, if the file is to be found at `path`."""
        held = {"": self.data, **self.companions}
        return {
            path.with_name(f"{'.' if suffix in self.links else ''}{path.name}{suffix}"): data
            for suffix, data in held.items()
        }

    def linked(self, path: Path) -> dict[Path, str]:
        """The links to make then, and what they say."""
        names = (f"{path.name}{suffix}" for suffix in sorted(self.links))
        return {path.with_name(name): f".{name}" for name in names}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant(Changed):
    """A mutated file.

    Attributes:
        id: `name@path:seed`.
        mutator: its kind.
    """

    id: str
    mutator: Mutator


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
