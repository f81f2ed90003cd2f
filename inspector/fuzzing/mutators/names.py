"""Names: what they end in, links, and companions without their states."""

from __future__ import annotations

import random
from collections.abc import Iterator

from inspector.bundle import NOT_OPENED, SUFFIXES
from inspector.fuzzing.mutators.kinds import Changed, Must, everything, mutator
from inspector.fuzzing.subject import Subject


def _opened(subject: Subject) -> Iterator[str]:
    """The companions that servers look into."""
    looked_into = SUFFIXES.keys() - {s for s, role in SUFFIXES.items() if role in NOT_OPENED}
    return (suffix for suffix in subject.companions if suffix in looked_into)


def _no_model(subject: Subject) -> Iterator[str]:
    if not subject.layout.startswith("gguf"):
        yield ""


@mutator("name-of-a-model", Must.ACCEPT, _no_model, "the file is named like a model")
def _of_a_model(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.data, subject.companions, ending=".gguf")


@mutator("name-link", Must.ACCEPT, everything, "the name is a link to the file")
def _link(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.data, subject.companions, links=frozenset({""}))


@mutator("companion-alone", Must.REFUSE, _opened, "a companion whose state is gone")
def _alone(subject: Subject, path: str, dice: random.Random) -> Changed:
    return Changed(subject.companions[path], {}, ending=path)


@mutator("companion-link", Must.EITHER, _opened, "a link that leads nowhere for a companion")
def _lost_link(subject: Subject, path: str, dice: random.Random) -> Changed:
    held = {suffix: data for suffix, data in subject.companions.items() if suffix != path}
    return Changed(subject.data, held, links=frozenset({path}))
