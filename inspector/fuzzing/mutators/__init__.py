"""Named mutations that know the fields: what each changes, and what a correct loader must do.

One module a subject; `kinds` says what a mutation is, and has the register that they enter.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from importlib import import_module

from inspector.fuzzing.mutators.kinds import MUTATORS, Changed, Must, Mutant, Mutator
from inspector.fuzzing.subject import NoSuchPlace, Subject

__all__ = ("MUTATORS", "OF_THE_STATE", "Must", "Mutant", "Mutator", "mutant", "mutate", "mutations")

_IN_ORDER = ("fields", "cells", "structure", "memory", "tensors", "blobs", "companions", "names")
"""They enter their mutators in this order; what a seed makes of a file depends on it."""

for _module in _IN_ORDER:
    import_module(f"{__name__}.{_module}")

_ID = re.compile(r"(?P<name>[a-z0-9-]+)@(?P<path>[^:]*):(?P<seed>\d+)")
OF_THE_STATE = ("companion-", "json-", "name-")
"""How mutators begin that change names and companions: none of a file alone, or inside one."""


def mutations(subject: Subject) -> Iterator[tuple[Mutator, str]]:
    """All that can be done to a file and to the lists beside it: kinds and paths."""
    for mutator in MUTATORS.values():
        for path in mutator.places(subject):
            yield mutator, path
    for suffix, data in subject.companions.items():
        inner = Subject(data)
        for mutator in MUTATORS.values():
            if not mutator.name.startswith(OF_THE_STATE):
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
        made = _applied(mutator, subject, found["path"], dice)
    elif suffix not in subject.companions or mutator.name.startswith(OF_THE_STATE):
        raise NoSuchPlace(f"no companion {suffix!r} that {mutator.name} applies to")
    else:
        inner = _applied(mutator, Subject(subject.companions[suffix]), path, dice)
        made = Changed(subject.data, {**subject.companions, suffix: inner.data})
    return Mutant(made.data, made.companions, made.ending, made.links, id=mutation, mutator=mutator)


def _applied(mutator: Mutator, subject: Subject, path: str, dice: random.Random) -> Changed:
    if path not in mutator.places(subject):
        raise NoSuchPlace(f"{mutator.name} does not apply to {path!r}")
    return mutator.change(subject, path, dice)
