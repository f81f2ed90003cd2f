"""Words that lie though the file reads well, where the rest of it or its model tells the value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from formats.bodies.attention import N_LAYER
from formats.ggml_types import IK
from inspector.identify import Identification, identify
from inspector.mend import Mend, Patched
from inspector.model.expectation import ALWAYS_ROTATED
from inspector.node import Node, Rows, walk
from inspector.repair.lists import OF_ANOTHER
from inspector.report import report_of
from inspector.seal import Seal, digests
from inspector.sections import Block, Section, sections
from inspector.server.loader import Own
from inspector.server.restore import own_caches
from inspector.span import Span

if TYPE_CHECKING:
    from inspector.check import Check
    from inspector.model.identity import Identity
    from inspector.model.section import SectionExpectation
    from inspector.report import Report

_ASTRAY = "loaders go astray there, or refuse it"
_AGREES = ", with which all the rest of the file agrees"
_TRIED = {
    "cell_count": "b10229 and b11549",
    "n_token_count": "b10229 and b11549",
    "n_tokens": "b10229 and b11549",
    "appendix.magic": "b11549",
    "appendix.count": "b11549",
}
"""On which servers words were put right, by their name or path."""
_LEAST_CELLS = 4
"""So many show a row without gaps in which one is out of place."""


@dataclass(frozen=True, slots=True)
class Known:
    """A word with the value that belongs there.

    Attributes:
        mend: the word.
        why: how that is known.
    """

    mend: Mend
    why: str = _ASTRAY

    @property
    def changes(self) -> str:
        """What is written."""
        told_by_file = self.why == _ASTRAY
        return f"{self.mend.path}: {self.mend.value:,}{_AGREES if told_by_file else ''}"

    @property
    def proven(self) -> str:
        """On which servers such words were put right."""
        name = self.mend.path.rpartition(".")[2]
        return _TRIED.get(self.mend.path) or _TRIED.get(name, "")


def known_word(report: Report, check: Check | None, seal: Seal | None) -> Known | None:
    """The first of them.

    Args:
        report: of the file.
        check: of the file, for the server that is to load it; None without one.
        seal: that lies beside the file, if there is one.
    """
    wrong = (one for one in _known(report, check, seal) if one.mend.value != one.mend.stored)
    return next(wrong, None)


def _known(report: Report, check: Check | None, seal: Seal | None) -> Iterator[Known]:
    identified = report.identification
    word = identified.mend or identified.undecided
    if word is not None and seal is not None:
        yield from _sealed(report, word, seal)
    own = _own(report, check)
    if check is not None and own is not None:
        yield from _layers_of_model(report, check, own)
        yield from _always_rotated(report, check, own)
    if (undecided := identified.undecided) is not None:
        yield from _decided(report, undecided, check, own)
    elif identified.mend is not None:
        yield Known(identified.mend)
    for finding in report.findings:
        if finding.code in ("appendix.magic", "recurrent.layer-count"):
            magic = finding.code == "appendix.magic"
            value = int.from_bytes(b"SCKP", "little") if magic else int(finding.expected)
            yield Known(_other(report, finding.path, finding.span, value))
    yield from _layers_of_checkpoints(report, own)
    reading = identified.reading
    for section in report.sections if reading is not None and reading.explains else ():
        if section.kind in ("attention", "swa") and len(section.tables) == 1:
            yield from _out_of_place(report, section, section.tables[0])
    if check is not None:
        yield from _rotated(report, check.identity)
        yield from _end_of_tokens(report, check.identity)


def _own(report: Report, check: Check | None) -> Own | None:
    """The caches that the server makes for its model; None if it or its model is not known."""
    if check is None or check.target.memory is None or report.identification.writer == IK:
        return None
    own = own_caches(report, check.target, [])
    return own if isinstance(own, Own) else None


def _expected(own: Own | None, path: str) -> SectionExpectation | None:
    """What the server's section of a word stores."""
    member = path.partition(".")[0]
    return next((one for one in own.sections if one.member == member), None) if own else None


def _sealed(report: Report, word: Mend, seal: Seal) -> Iterator[Known]:
    """The value with which the stretch around it is the one that was sealed."""
    tile = next((one for one in seal.tiles if word.span.start in one.span), None)
    if tile is None or tile.span.stop > report.source.size or len(tile.span) > _MOST_SEALED:
        return
    for value in dict.fromkeys((word.value, *word.others, *range(N_LAYER + 1))):
        mend = replace(word, value=value, others=(), rival=None)
        if next(digests(Patched(report.source, mend), [tile.span])) == tile.xxh3:
            yield Known(mend, "with another one its bytes are those that were sealed")
            return


_MOST_SEALED = 1 << 16
"""Bytes of a stretch for which some hundred values are tried."""


def _decided(report: Report, word: Mend, check: Check | None, own: Own | None) -> Iterator[Known]:
    """A word with several values that explain the file, where something else tells which."""
    if word.rival is not None:
        if check is not None and own is not None:
            yield from _of_model((word, word.rival), report, check, own)
        return
    name, expected = word.path.rpartition(".")[2], _expected(own, word.path)
    model = check.target.model_name if check is not None else ""
    told: list[tuple[int, str]] = []
    if name == "n_layer":
        if expected is not None:
            told.append((expected.n_layer, f"{model} has {expected.n_layer:,} there"))
        readable = report_of(_patched(report, word), report.bundle, report.beside, None)
        named, n = _named_by_checkpoints(readable)
        if n:
            told.append((named, _SAID.format(named)))
        told += _every_layer(report, word)
    elif name == "v_trans":
        others = {
            part.v_trans
            for part in report.sections
            if part.v_trans in (0, 1) and not word.path.startswith(f"{part.path}.")
        }
        told += [(value, f"the other caches of the file say {value}") for value in others]
        if own is not None and check is not None and not check.target.caches_as_saved:
            told.append((int(own.v_trans), "there are no values, and the server wants it so"))
        if len(others) > 1:
            return
    elif name in ("n_rot_k", "n_rot_v") and expected is not None and check is not None:
        size, side = getattr(expected, name), check.identity.side(name[-1])
        if not size:
            told.append((size, f"no build rotates such rows of {model}"))
        elif side is not None and side.agrees and side.rotation == size:
            told.append((size, f"the rows of {model} are multiplied by a matrix of size {size}"))
    for value, why in told:
        mend = replace(word, value=value, others=(), rival=None)
        if value in (word.value, *word.others) or _is_whole(_with(report, mend)):
            yield Known(mend, why)
            return


def _of_model(words: Iterable[Mend], report: Report, check: Check, own: Own) -> Iterator[Known]:
    """The one of several words with which the file has the rows of its model."""
    memory, name = check.target.memory, check.target.model_name
    for word in words:
        found = identify(_patched(report, word), memory=memory.memory if memory else None)
        if _is_whole(found) and _are_of(found, own):
            yield Known(word, f"with another one the file has the rows of {name}")


def _patched(report: Report, mend: Mend) -> Patched:
    return Patched(report.source, mend)


def _with(report: Report, mend: Mend) -> Identification:
    return identify(_patched(report, mend))


def _is_whole(found: Identification) -> bool:
    """Whether every byte is explained, and nothing speaks against it."""
    reading = found.reading
    return reading is not None and reading.sound and not reading.failed


def _always_rotated(report: Report, check: Check, own: Own) -> Iterator[Known]:
    """A word on keys that every build rotates, though they are not quantized."""
    memory = check.target.memory
    if memory is None or memory.architecture not in ALWAYS_ROTATED:
        return
    for section in report.sections:
        if section.kind != "indexer":
            continue
        expected = _expected(own, section.path)
        size = expected.n_rot_k if expected is not None else 0
        fields = walk(section.node, section.path) if size and _is_plain(section.k) else ()
        for path, node in fields:
            if node.name == "n_rot_k":
                why = f"{check.target.model_name} multiplies such keys by a matrix of size {size}"
                yield Known(_other(report, path, node.span, size), why)


def _is_plain(blocks: Iterable[Block]) -> bool:
    """Whether rows are not quantized; those are rotated in any case or in none."""
    readings = [block.readings for block in blocks]
    return bool(readings) and all(found and found[0].block_elements == 1 for found in readings)


def _every_layer(report: Report, word: Mend) -> list[tuple[int, str]]:
    """A model with nothing but recurrent layers has a state for each."""
    reading = report.identification.reading
    if reading is None or reading.layout.memory != "recurrent":
        return []
    root = _with(report, replace(word, value=N_LAYER)).root
    states = [len(part.r) for part in sections(root) if part.kind == "recurrent"] if root else []
    return [(n, f"the section holds states of {n:,} layers") for n in states if n]


def undecided(report: Report, check: Check | None) -> str:
    """What speaks against a word, where it is not known what belongs there; empty if nothing does.

    Args:
        report: of the file.
        check: of the file, for the server that is to load it; None without one.
    """
    own, word = _own(report, check), report.identification.undecided
    model = check.target.model_name if check is not None and check.target.memory else None
    missing = f"{model} does not tell which" if model else "name the model with --model"
    if word is not None and word.path.endswith(".v_trans"):  # an option of the server
        missing = "name the server with --for"
    if word is not None:
        return (
            f"{word.path} says {word.stored:,}, and with several other values all the rest of the "
            f"file agrees ({word.choice}): {missing}"
        )
    recurrent, (named, n) = _recurrent(report), _named_by_checkpoints(report)
    if recurrent is None or recurrent.n_layer in (None, named) or n != 1 or own is not None:
        return ""
    likely = _likely(report, own)
    if (named in likely) != (recurrent.n_layer in likely):
        return ""
    return (
        f"{recurrent.path}.n_layer says {recurrent.n_layer:,}, its checkpoint {named:,}, and both "
        f"can be right: {missing}"
    )


def _other(report: Report, path: str, span: Span, value: int) -> Mend:
    data = report.source.read_at(span.start, len(span))
    stored = int.from_bytes(data, "little", signed=path.endswith(".pos"))
    return Mend(path, span, stored, value)


def _recurrent(report: Report) -> Section | None:
    return next((part for part in report.sections if part.kind == "recurrent"), None)


def _named_by_checkpoints(report: Report) -> tuple[int, int]:
    """The number of layers that all recurrent states in its checkpoints say, and how many do.

    None do if they say several. Lists of another save are left out.
    """
    alien = {one.carrier for one in report.findings if one.code in OF_ANOTHER}
    named = [
        part.n_layer or 0
        for one in report.checkpoints
        if one.record.blob is not None
        and ("" if one.record.carrier == report.name else one.record.carrier) not in alien
        for part in one.record.blob.sections
        if part.kind == "recurrent"
    ]
    return (named[0], len(named)) if len(set(named)) == 1 else (0, 0)


_SAID = "its checkpoints say {:,}"


def _likely(report: Report, own: Own | None) -> set[int]:
    """Numbers of layers that a recurrent state is likely to say.

    That of its model, or without one the layers with rows: a layer can have both kinds of them.
    """
    recurrent = _recurrent(report)
    expected = _expected(own, recurrent.path) if recurrent is not None else None
    if expected is not None:
        return {expected.n_layer}
    held = [len(part.k) or len(part.r) for part in report.sections]
    return {sum(held), max(held, default=0)}


def _layers_of_checkpoints(report: Report, own: Own | None) -> Iterator[Known]:
    """The number of layers of a recurrent state that its checkpoints contradict.

    Several in the file itself were written together with the state: one word is wrong, not many.
    """
    recurrent, (named, n) = _recurrent(report), _named_by_checkpoints(report)
    node = recurrent.node.get("n_layer") if recurrent is not None else None
    if recurrent is None or node is None or not n or named == recurrent.n_layer:
        return
    likely = _likely(report, own)
    beside = any(one.record.carrier != report.name for one in report.checkpoints)
    many = n > 1 and not beside and _expected(own, recurrent.path) is None
    if many or (named in likely and recurrent.n_layer not in likely):
        mend = _other(report, f"{recurrent.path}.n_layer", node.span, named)
        yield Known(mend, _SAID.format(named))


def _layers_of_model(report: Report, check: Check, own: Own) -> Iterator[Known]:
    """A number of layers with which rows are taken for others, where the model has another one.

    The one that is wrong is the first, for nothing behind it is where it seems to be.
    """
    for section, expected in zip(report.sections, own.sections, strict=False):
        fields = walk(section.node, section.path)
        words = [pair for pair in fields if pair[1].name == "n_layer"][-1:]
        if section.n_layer == expected.n_layer or section.kind == "recurrent":
            continue
        mends = (_other(report, path, node.span, expected.n_layer) for path, node in words)
        yield from _of_model(mends, report, check, own)
        return


def _are_of(found: Identification, own: Own) -> bool:
    """Whether a file has the rows that the server's caches have."""
    parts = sections(found.root) if found.root is not None else ()

    def rows(blocks: tuple[Block, ...]) -> list[int]:
        return [block.row_bytes for block in blocks]

    return len(parts) == len(own.sections) and all(
        (rows(part.k or part.r), rows(part.v or part.s)) == (list(one.k), list(one.v))
        for part, one in zip(parts, own.sections, strict=True)
    )


def _out_of_place(report: Report, section: Section, table: Rows) -> Iterator[Known]:
    """The one cell that is at no place, or at that of another, while all others leave one for it.

    A cell that is behind all others can be right: its place was that of a token that was removed.
    """
    pos = table.column("pos")
    if len(pos) < _LEAST_CELLS:
        return
    start = pos - np.arange(len(pos))
    first = int(np.median(start))
    astray = np.flatnonzero(start != first)
    if len(astray) != 1 or first < 0:
        return
    index = int(astray[0])
    value, there = int(pos[index]), first + index
    if value >= 0 and np.count_nonzero(pos == value) == 1:
        return
    tables = walk(section.node, section.path)
    path = next((path for path, node in tables if node.value is table), section.path)
    why = f"the cells around it leave position {there:,} free, and none stands there"
    mend = _other(report, f"{path}[{index}].pos", table.field_span(index, "pos"), there)
    yield Known(mend, why)


def _rotated(report: Report, identity: Identity) -> Iterator[Known]:
    """What the rows of the first layer were multiplied by, if the file says something else."""
    nodes = _nodes(report)
    for finding in identity.findings:
        if finding.code == "identity.rotation-differs":
            name, _, size = finding.expected.partition(" ")
            path = f"{finding.path.rpartition('.')[0]}.{name}"
            if path in nodes:
                mend = _other(report, path, nodes[path].span, int(size))
                yield Known(mend, f"the rows were multiplied by a matrix of size {size}")


def _end_of_tokens(report: Report, identity: Identity) -> Iterator[Known]:
    """Where a recurrent state stands that the model computes of the last tokens of the list."""
    recurrent, side, tokens = _recurrent(report), identity.side("r"), report.tokens
    codes = {finding.code for finding in report.findings}
    if recurrent is None or side is None or tokens is None or not side.agrees:
        return
    if "recurrent.pos-mismatch" not in codes or len(recurrent.pos) != 1 or tokens.media:
        return
    span = recurrent.tables[0].field_span(0, "pos")
    last = tokens.count - 1
    why = f"the model computes this state of the tokens up to position {last:,}"
    yield Known(_other(report, f"{recurrent.path}.cells[0].pos", span, last), why)


def _nodes(report: Report) -> dict[str, Node]:
    root = report.identification.root
    return dict(walk(root)) if root is not None else {}
