"""Two files against each other: all that is different about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from inspector.bundle import Companion
from inspector.diff.cells import Match, matched
from inspector.diff.numbers import Compared, Layer, Part, Progress, compared
from inspector.diff.structure import (
    FieldDiff,
    TokensDiff,
    field_diffs,
    first_difference,
    owner,
    tokens_diff,
)
from inspector.lists import Checkpoint
from inspector.report import Report
from inspector.sections import Section
from inspector.source import Source, Unreadable, opened


class NotCompared(Exception):
    """Two files that are not of a kind that is compared; the message says why."""


@dataclass(frozen=True)
class SectionDiff:
    """A section of two files.

    Attributes:
        a: of the first; None if it has none.
        b: of the second.
        match: their cells; None if one is missing.
        numbers: what their numbers are like; None if nobody looked.
    """

    a: Section | None
    b: Section | None
    match: Match | None = None
    numbers: Compared | None = None

    @property
    def path(self) -> str:
        """Of the section in the first file that has it."""
        found = self.a or self.b
        return found.path if found is not None else ""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, as far as they were compared."""
        return self.numbers.layers if self.numbers is not None else ()

    def within(self, tolerance: float) -> bool:
        """Whether all of it is in both files, and no error is larger than that."""
        if self.match is None or self.numbers is None or not self.match.complete:
            return False
        assert self.a is not None  # it was matched
        if self.a.blocks and not len(self.match.a):
            return False
        return self.numbers.complete and all(layer.within(tolerance) for layer in self.layers)


@dataclass(frozen=True)
class CheckpointDiff:
    """A checkpoint of two files, matched by tokens and positions.

    Attributes:
        a: of the first; None if it has none such.
        b: of the second.
        equal: whether all their blobs are equal.
        others_equal: whether those besides the target blobs are.
        parts: sections of the target blobs, if those were compared.
    """

    a: Checkpoint | None
    b: Checkpoint | None
    equal: bool = False
    others_equal: bool = False
    parts: tuple[SectionDiff, ...] = ()

    def within(self, tolerance: float) -> bool:
        """Whether both have it, and no error is larger than that."""
        if self.equal or not (self.others_equal and self.parts):
            return self.equal
        blobs = [one.record.blob for one in (self.a, self.b) if one is not None]
        sound = all(blob is not None and blob.sound for blob in blobs)
        return sound and all(part.within(tolerance) for part in self.parts)


@dataclass(frozen=True)
class CompanionDiff:
    """A file beside either.

    Attributes:
        suffix: what its name adds to that of the state.
        a: beside the first; None if there is none.
        b: beside the second.
        equal: whether both have the same bytes; None if one cannot be read.
    """

    suffix: str
    a: Companion | None
    b: Companion | None
    equal: bool | None = False


@dataclass(frozen=True)
class Diff:
    """All that is different about two files.

    Attributes:
        a: the first.
        b: the second.
        first: offset of the first byte that differs; None if the shorter file begins the other.
        tokens: their token lists; None if one has none.
        fields: parts that differ, or that only one has.
        sections: their memory, matched by name and kind.
        checkpoints: of the files and their companions.
        companions: what lies beside them.
        deep: whether numbers were compared.
    """

    a: Report
    b: Report
    first: int | None
    tokens: TokensDiff | None = None
    fields: tuple[FieldDiff, ...] = ()
    sections: tuple[SectionDiff, ...] = ()
    checkpoints: tuple[CheckpointDiff, ...] = ()
    companions: tuple[CompanionDiff, ...] = ()
    deep: bool = field(default=False, kw_only=True)

    @property
    def same_bytes(self) -> bool:
        """Whether the two files are equal byte for byte."""
        return self.first is None and self.a.size == self.b.size

    @property
    def identical(self) -> bool:
        """The same, and for what lies beside them."""
        return self.same_bytes and all(one.equal for one in self.companions)

    @property
    def owners(self) -> tuple[str, str]:
        """What holds the first byte that differs, in either file."""
        if self.first is None:
            return "", ""
        a, b = (
            owner(side.identification.root, self.first) if side.size > self.first else ""
            for side in (self.a, self.b)
        )
        return a, b

    def same_content(self, tolerance: float = 0.0) -> bool:
        """Whether both hold the same tokens and the same memory, in whatever form.

        Of checkpoint lists it is the checkpoints. A state may have more of them than the other, and
        more companions, but what both have is the same.

        Args:
            tolerance: largest error of a layer, relative to its largest number.
        """
        if not self._same_beside(tolerance):
            return False
        if self.same_bytes:
            return True
        readings = self.a.identification.reading, self.b.identification.reading
        whole = all(one is not None and not one.decoding.stops for one in readings)
        if not (self.deep and whole):
            return False
        if not self.sections:
            return bool(self.checkpoints) and all(one.within(tolerance) for one in self.checkpoints)
        given = [
            one is not None and one.packing != "none" for one in (self.a.tokens, self.b.tokens)
        ]
        tokens = self.tokens.equal if self.tokens is not None else not any(given)
        return tokens and all(section.within(tolerance) for section in self.sections)

    def _same_beside(self, tolerance: float) -> bool:
        """Whether the checkpoints and companions that both have hold the same."""
        own, other = ([one for one in self.checkpoints if getattr(one, s) is None] for s in "ba")
        pairs = (one for one in self.checkpoints if one.a is not None and one.b is not None)
        return (
            not (own and other)
            and all(one.within(tolerance) for one in pairs)
            and all(self._same_companion(one) for one in self.companions)
        )

    def _same_companion(self, one: CompanionDiff) -> bool:
        """Whether only one side has it, or it is equal, or the checkpoints in it say all of it."""
        if one.equal or one.a is None or one.b is None:
            return True
        sides = zip((self.a, self.b), (one.a, one.b), strict=True)
        found = [
            other.listing
            for side, file in sides
            for other in side.beside
            if other.companion == file
        ]
        whole = [listing for listing in found if listing and not (listing.cut or listing.rest)]
        return len(whole) == 2

    @property
    def beginning(self) -> str:
        """Which of them, A or B, the other holds all of and goes on; empty if neither.

        Their numbers count as far as they were compared.
        """
        tokens = self.tokens
        if tokens is None or not tokens.whole or tokens.divergent or tokens.equal:
            return ""
        side = "A" if tokens.a.count < tokens.b.count else "B"
        both = (one for one in self.checkpoints if one.a is not None and one.b is not None)
        if self.deep and not all(one.within(0) for one in both):
            return ""
        for one in self.sections:
            match = one.match
            if match is None or match.why or match.others:
                return ""
            left = match.only_a if side == "A" else match.only_b
            equal = all(layer.within(0) for layer in one.layers)
            if len(left) or not equal or (one.numbers is not None and not one.numbers.complete):
                return ""
        return side if self.sections else ""


def differences(a: Report, b: Report, *, deep: bool, progress: Progress = lambda n: None) -> Diff:
    """All that is different about two files.

    Args:
        a: the first, open; errors are relative to its numbers.
        b: the second, open.
        deep: whether to compare their numbers too.
        progress: is told how many bytes of the first were compared.

    Raises:
        NotCompared: for models.
        Unreadable: if a file cannot be read any more.
    """
    for side in (a, b):
        root = side.identification.root
        if root is not None and root.role == "model":
            raise NotCompared(f"{side.name} is a model: states and checkpoint lists are compared")
    first = None
    if a.bundle.subject.identity != b.bundle.subject.identity:
        first = first_difference(a.source, b.source, a.source.whole(), b.source.whole(), progress)
    companions = tuple(_companions(a, b))
    tokens = tokens_diff(a.tokens, b.tokens)
    if first is None and a.size == b.size:
        beside = any(not one.equal for one in companions)
        checkpoints = tuple(_checkpoints(a, b, deep, progress)) if beside else ()
        return Diff(a, b, first, tokens, checkpoints=checkpoints, companions=companions, deep=deep)
    return Diff(
        a,
        b,
        first,
        tokens,
        tuple(field_diffs(a.identification.root, b.identification.root)),
        tuple(_sections(a, b, (a.source, a.sections), (b.source, b.sections), deep, progress)),
        tuple(_checkpoints(a, b, deep, progress)),
        companions,
        deep=deep,
    )


def bytes_to_compare(a: Report, *, deep: bool) -> int:
    """Bytes of the first file that are read at most, for a progress bar."""
    blocks = [block for section in a.sections for block in section.blocks] if deep else []
    return a.size + sum(len(block.data) for block in blocks if block.data is not None)


Sections = tuple[Source, tuple[Section, ...]]


def _sections(
    a: Report, b: Report, one: Sections, two: Sections, deep: bool, progress: Progress
) -> Iterator[SectionDiff]:
    """Sections of one name and kind, else those of one kind in their order."""
    ends, shared = (_end(one[1]), _end(two[1])), None
    for own, other in _paired(one[1], two[1]):
        if own is None or other is None:
            yield SectionDiff(own, other)
            continue
        match = matched(own, other, ends)
        if own.tables and other.tables:
            shared = shared or match
        elif own.kind == "indexer" and shared is not None and not (own.tables or other.tables):
            match = shared  # ik_llama.cpp lists the cells of its caches once
        found = None
        if deep:
            parts = Part(a, one[0], own), Part(b, two[0], other)
            found = compared(*parts, match, progress)
        yield SectionDiff(own, other, match, found)


def _end(sections: tuple[Section, ...]) -> int | None:
    """The highest position of a state."""
    return max((s.pos_max for s in sections if s.pos_max is not None), default=None)


def _paired(
    a: Sequence[Section], b: Sequence[Section]
) -> Iterator[tuple[Section | None, Section | None]]:
    left = list(b)
    pairs: list[tuple[Section, Section | None]] = []
    for own in a:
        same = [other for other in left if other.kind == own.kind]
        found = next((other for other in same if other.path == own.path), None)
        found = found or next((other for other in same if not _named(other, a)), None)
        if found is not None:
            left.remove(found)
        pairs.append((own, found))
    yield from pairs
    yield from ((None, other) for other in left)


def _named(section: Section, others: Sequence[Section]) -> bool:
    return any(one.path == section.path and one.kind == section.kind for one in others)


def _checkpoints(a: Report, b: Report, deep: bool, progress: Progress) -> Iterator[CheckpointDiff]:
    left: dict[tuple[int | None, ...], list[Checkpoint]] = {}
    for one in b.checkpoints:
        left.setdefault(_key(one), []).append(one)
    for own in a.checkpoints:
        alike = left.get(_key(own))
        if not alike:
            yield CheckpointDiff(own, None)
            continue
        other = alike.pop(0)
        target, others = (
            _equal_blobs((a, own), (b, other), names)
            for names in (("data_tgt",), ("data_dft", "data_spec"))
        )
        equal = target and others
        parts: tuple[SectionDiff, ...] = ()
        blobs = own.record.blob, other.record.blob
        if deep and not equal and blobs[0] is not None and blobs[1] is not None:
            here, there = (
                (_source(side, point), blob.sections)
                for side, point, blob in zip((a, b), (own, other), blobs, strict=True)
                if blob is not None
            )
            parts = tuple(_sections(a, b, here, there, deep, progress))
        yield CheckpointDiff(own, other, equal, others, parts)
    yield from (CheckpointDiff(None, other) for alike in left.values() for other in alike)


def _key(point: Checkpoint) -> tuple[int | None, ...]:
    record = point.record
    return record.n_tokens, record.pos_min, record.pos_max


def _source(report: Report, point: Checkpoint) -> Source:
    """The file that holds a checkpoint."""
    carrier = point.record.carrier
    beside = (one.source for one in report.beside if one.companion.file.name == carrier)
    return report.source if carrier == report.name else next(beside, report.source)


def _equal_blobs(
    a: tuple[Report, Checkpoint], b: tuple[Report, Checkpoint], names: tuple[str, ...]
) -> bool:
    """Whether two checkpoints are complete, and these blobs of them equal."""
    own, other = a[1].record, b[1].record
    if not (own.complete and other.complete):
        return False
    for name in names:
        spans = getattr(own, name), getattr(other, name)
        one, two = (span if span is not None and len(span) else None for span in spans)
        if one is None and two is None:
            continue
        if one is None or two is None or len(one) != len(two):
            return False
        if first_difference(_source(*a), _source(*b), one, two) is not None:
            return False
    return True


def _companions(a: Report, b: Report) -> Iterator[CompanionDiff]:
    found = [(one.suffix, 0, one) for one in a.bundle.companions]
    found += [(one.suffix, 1, one) for one in b.bundle.companions]
    found.sort(key=lambda one: one[:2])
    for suffix, group in groupby(found, key=lambda one: one[0]):
        sides = {side: companion for _, side, companion in group}
        own, other = sides.get(0), sides.get(1)
        equal: bool | None = False
        if own is not None and other is not None and own.file.size == other.file.size:
            equal = _equal_files(own, other)
        yield CompanionDiff(suffix, own, other, equal)


def _equal_files(a: Companion, b: Companion) -> bool | None:
    if a.file.identity == b.file.identity:
        return True
    try:
        with opened(a.file.path) as one, opened(b.file.path) as two:
            return first_difference(one, two, one.whole(), two.whole()) is None
    except Unreadable:
        return None
