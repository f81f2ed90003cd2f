"""What lies beside a file: lists of checkpoints, token lists, leftovers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping

from formats.layouts import by_id
from inspector.bundle import RECORD
from inspector.fuzzing.case import Case
from inspector.fuzzing.generator import with_sidecar
from inspector.fuzzing.mutators.kinds import MUTATORS, Changed, Must, Mutator, everything, mutator
from inspector.fuzzing.subject import NoSuchPlace, Subject
from inspector.seal import SCHEMA


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


@mutator("companion-lost", Must.ACCEPT, _any_companion, "a companion is missing")
def _lost(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{path: None})


@mutator("companion-cut", Must.REFUSE, _any_companion, "the last byte of a companion is missing")
def _companion_cut(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{path: subject.companions[path][:-1]})


@mutator("companion-longer", Must.REFUSE, _any_companion, "bytes behind the end of a companion")
def _companion_longer(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{path: subject.companions[path] + dice.randbytes(16)})


@mutator("companion-strange", Must.REFUSE, _ckpt, "what no known program writes, under that name")
def _strange(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{path: b"PK\3\4" + dice.randbytes(60)})


_OTHERS = ("pkcl1", "pkcl2", "llcp1", "llcp2", "lsckpt2", "stck2", "bkcp1", "slck1")


def _list_of(family: str, dice: random.Random) -> Mapping[str, bytes]:
    """The companions of another file, with a list of that family."""
    layout = by_id("ik4" if family.startswith("ik-") else "ggsq2.hybrid")
    assert layout is not None
    case = Case(layout, dice.getrandbits(16), {"suffix": "recurrent", "n_tokens": 33})
    return with_sidecar(case, family, ".ckpt").companions


@mutator("companion-of-another", Must.REFUSE, _ckpt, "the list of another state")
def _of_another(subject: Subject, path: str, dice: random.Random) -> Changed:
    family = Subject(subject.companions[path]).layout
    if family not in _OTHERS and not family.startswith("ik-"):
        raise NoSuchPlace(f"{path!r} is of no known family")
    return _beside(subject, **{path: _list_of(family, dice)[".ckpt"]})


@mutator("companion-foreign", Must.REFUSE, _ckpt, "the list of another program")
def _foreign(subject: Subject, path: str, dice: random.Random) -> Changed:
    own = Subject(subject.companions[path]).layout
    family = dice.choice([f for f in (*_OTHERS, "ik-checkpoints4") if f != own])
    return _beside(subject, **{path: _list_of(family, dice)[".ckpt"]})


@mutator("companion-twice", Must.EITHER, _ckpt, "the lists of two programs")
def _twice(subject: Subject, path: str, dice: random.Random) -> Changed:
    other = ".checkpoints" if path == ".ckpt" else ".ckpt"
    return _beside(subject, **{other: _list_of(dice.choice(("slck1", "llcp1")), dice)[".ckpt"]})


@mutator("companion-unfinished", Must.ACCEPT, everything, "half a save under a temporary name")
def _unfinished(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{".tmp": subject.data[: len(subject.data) // 2]})


@mutator("companion-record", Must.ACCEPT, everything, "half a record of slotscope beside it")
def _record(subject: Subject, path: str, dice: random.Random) -> Changed:
    return _beside(subject, **{RECORD: f'{{"schema": "{SCHEMA}"'.encode()})


def _no_ckpt(subject: Subject) -> Iterator[str]:
    if ".ckpt" not in subject.companions:
        yield ""


@mutator("companion-added", Must.EITHER, _no_ckpt, "the list of another program beside a state")
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
