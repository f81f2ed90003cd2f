"""Blobs in records of checkpoints, with the length in front of them made to fit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from inspector.fuzzing.mutators.kinds import MUTATORS, Changed, Must, Mutator, with_edits
from inspector.fuzzing.mutators.memory import caches, without
from inspector.fuzzing.subject import Edit, Subject, edited, packed


def _blobs(subject: Subject) -> Iterator[str]:
    for path, node in subject.nodes.items():
        if node.name == "data_tgt" and len(node.span) and f"{path[:-8]}n_tgt" in subject.nodes:
            yield path


def _blob(name: str, meaning: str, new: Callable[[bytes, random.Random], bytes]) -> None:
    def change(subject: Subject, path: str, dice: random.Random) -> Changed:
        span, length = subject.node(path).span, subject.node(f"{path[:-8]}n_tgt")
        blob = new(subject.data[span.start : span.stop], dice)
        return with_edits(subject, packed(length, len(blob)), (span.start, span.stop, blob))

    MUTATORS[name] = Mutator(name, meaning, Must.REFUSE, _blobs, change)


def _of_other_layers(blob: bytes, dice: random.Random) -> bytes:
    inner = Subject(blob)
    for path, node in inner.fields():
        if node.name == "n_layer" and "blocks" not in path:
            return edited(blob, [packed(node, int(str(node.value)) + 1)])
    return blob


def _other_cells(blob: bytes, dice: random.Random) -> bytes:
    """The blob without a cell of its window."""
    inner = Subject(blob)
    path = next(caches(inner), "")
    if not path:
        return blob
    count = len(inner.rows(f"{path}.cells"))
    return edited(blob, without(inner, path, dice.choice((0, count // 2))))


def _of_another_dialect(blob: bytes, dice: random.Random) -> bytes:
    """The blob without its rotation words, or with some."""
    inner = Subject(blob)
    edits: list[Edit] = []
    for path, node in inner.fields():
        if node.name in ("n_rot_k", "n_rot_v"):
            edits.append((node.span.start, node.span.stop, b""))
        elif node.name == "n_layer" and not any(e[2] == b"" for e in edits):
            outer = path.rpartition(".")[0]
            if f"{outer}.v_trans" in inner.nodes and f"{outer}.n_rot_k" not in inner.nodes:
                edits.append((node.span.stop, node.span.stop, bytes(8)))
    return edited(blob, edits)


for _name, _meaning, _new in (
    ("blob-emptied", "a record without a blob", lambda blob, d: b""),
    ("blob-cut", "a blob without its last byte", lambda blob, d: blob[:-1]),
    ("blob-longer", "a blob with a byte too many", lambda blob, d: blob + b"\1"),
    ("blob-zeroed", "a blob of zeros", lambda blob, d: bytes(len(blob))),
    ("blob-noise", "a blob of noise", lambda blob, d: d.randbytes(len(blob))),
    ("blob-prefix-lost", "a blob without its first eight bytes", lambda blob, d: blob[8:]),
    (
        "blob-prefix-other",
        "a blob with eight bytes in front",
        lambda blob, d: b"\xd8\x3c\x14\xaf\0\0\0\0" + blob,
    ),
    ("blob-of-other-layers", "a blob of a model of another depth", _of_other_layers),
    ("blob-cell-dropped", "a blob that lacks a cell", _other_cells),
    ("blob-of-another-dialect", "a blob of a build with other words in it", _of_another_dialect),
):
    _blob(_name, _meaning, _new)
