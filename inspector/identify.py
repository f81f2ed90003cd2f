"""What a file is: every layout is tried, the readings are ranked by what they explain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from formats.bodies.compositions import PARTIAL
from formats.ggml_types import IK, UPSTREAM
from formats.layout import Layout
from formats.layouts import all_layouts, marked_layouts, unmarked_layouts
from formats.spans import StopReason
from inspector.builds import Interval, interval_of
from inspector.decode import Decoding, completes, decode
from inspector.facts import AS_MANY_CELLS, Fact, Judged, facts, score
from inspector.node import Kind, Node
from inspector.sections import sections
from inspector.source import Source
from inspector.span import Span
from inspector.trace import Ends, Memory

if TYPE_CHECKING:
    from inspector.hints import Hints
    from inspector.mend import Mend, Points

_FACTS_OF_A_DAMAGED_BLOB = 8
"""Facts that bytes without a magic must show before they count as a damaged state."""
_BLOBS = ("blob", "draft")
_TAIL = 4096
_MOST_SEARCHES = 32
"""Blobs of one list for which all layouts are tried in vain; a real list has no more records."""
_MOST_READ_IN_VAIN = 1 << 28
"""Bytes after which no other value of any word is tried."""
_EXACT_END = 3
"""What it is worth to a reading to end where the file ends."""
_FEW_WORDS = 2
"""Facts by which a reading is believed behind the end of another."""
_UNEXPLAINED = 2
"""What it costs a reading to stop early, or to end before bytes that are not padding."""


class Verdict(StrEnum):
    """How well a file is understood."""

    RECOGNISED = "recognised"
    """One reading explains every byte, or all up to a trailer that loaders ignore."""
    AMBIGUOUS = "ambiguous"
    """Several readings do, and they mean different things."""
    DAMAGED = "damaged"
    """The best reading stops early, or contradicts what its writer always writes."""
    UNKNOWN = "unknown"
    """No reading gets anywhere."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One layout applied to the file, and how it fared.

    Attributes:
        decoding: the tree.
        facts: what speaks for and against it.
        score: the sum of that, less something if it leaves bytes unexplained.
        padded: whether nothing but zeros follows its end.
    """

    decoding: Decoding
    facts: tuple[Fact, ...]
    score: int
    padded: bool

    @property
    def layout(self) -> Layout:
        """What it was read as."""
        return self.decoding.layout

    @property
    def failed(self) -> tuple[Fact, ...]:
        """The facts that fail."""
        return tuple(fact for fact in self.facts if not fact.holds)

    @property
    def sound(self) -> bool:
        """Whether it explains every byte and nothing about the structure speaks against it."""
        return self.decoding.complete and self.explains and self.stamped

    @property
    def stamped(self) -> bool:
        """Whether the version word is that of the layout."""
        return all(fact.path != "version" for fact in self.failed)

    @property
    def explains(self) -> bool:
        """Whether it is sound but for its version word, its positions, and bytes behind its end."""
        ended = self.decoding.ended and not self.decoding.stops
        return ended and _harmless(self.facts)

    @property
    def doubtful(self) -> bool:
        """Whether it has another number of cells than of tokens."""
        return any(AS_MANY_CELLS in fact.says for fact in self.failed)

    @property
    def cut_off(self) -> bool:
        """Whether all is well up to a payload of which the file has only the beginning."""
        reasons = [stop.reason for stop in self.decoding.stops]
        if reasons != [StopReason.PAYLOAD_EXCEEDS_FILE] or self.failed:
            return False
        return _only_cut(self.decoding.root)

    @property
    def rank(self) -> tuple[bool, int, bool, bool, bool, bool, int]:
        """Better readings have larger ranks; of equal ones the table has the commonest first."""
        done, spotless = self.decoding, not self.failed
        return self.sound, self.score, done.complete, self.stamped, spotless, done.ended, done.end


@dataclass(frozen=True, slots=True)
class Identification:
    """What a file is, and how sure that is.

    Attributes:
        verdict: how well it is understood.
        reading: the best reading, its blobs decoded too; None if unknown.
        competing: other readings that explain the file as well and mean something else.
        builds: when it can have been written.
        writer: the program that wrote it, None if undecidable.
        mend: the word with another value of which a damaged file would be whole, if there is one.
        undecided: such a word that can have several, of which the file does not tell the right one.
    """

    verdict: Verdict
    reading: Reading | None
    competing: tuple[Reading, ...]
    builds: Interval
    writer: str | None
    mend: Mend | None
    undecided: Mend | None = None

    @property
    def root(self) -> Node | None:
        """The tree of the best reading."""
        return self.reading.decoding.root if self.reading else None


def identify(source: Source, span: Span | None = None, memory: str | None = None) -> Identification:
    """Find out what `source` is.

    Args:
        source: the open file.
        span: which bytes; the whole file if None.
        memory: the memory type of the model it belongs to, if that is known: it settles
            ambiguities.

    Returns:
        The verdict with the best reading; never raises for what the bytes are.
    """
    span = span or source.whole()
    readings = _tried(source, span)
    mend = undecided = None
    if _open_to_doubt(readings) and (found := _one_word_away(source, readings, span)):
        mended, mend = found
        readings.sort(key=lambda reading: reading.layout is mended, reverse=True)
        if mend.others or mend.rival:
            mend, undecided = None, mend
    elif more := [reading for reading in readings if _goes_on(reading, readings[0])]:
        readings.sort(key=lambda reading: reading in more, reverse=True)
    if memory:
        readings.sort(key=partial(_is_of, memory, _likely(readings)), reverse=True)
    if not readings:
        return Identification(Verdict.UNKNOWN, None, (), Interval(None, None), None, None)
    best, *others = readings
    competing = tuple(other for other in others if memory is None and _competes(other, best))
    verdict = Verdict.RECOGNISED
    if not (best.explains and best.padded) or undecided is not None:
        verdict = Verdict.DAMAGED
    elif competing:
        verdict = Verdict.AMBIGUOUS
    as_good = others if verdict is Verdict.DAMAGED and mend is None else []
    builds, writer = _written(best, as_good)
    whole = replace(best, decoding=_with_blobs(source, best.decoding))
    return Identification(verdict, whole, competing, builds, writer, mend, undecided)


def _tried(source: Source, span: Span) -> list[Reading]:
    """The readings of all layouts that the file may be of, the best first."""
    sections_read: Memory = {}
    ends: Ends = {}
    judged: Judged = {}
    complete: list[Reading] = []
    partly: list[Reading] = []

    def read(layout: Layout) -> Reading:
        return _judged(source, decode(source, layout, span, sections_read), judged)

    for layouts in _stages(source, span):
        whole = [layout for layout in layouts if completes(source, layout, span, ends)]
        complete += [read(layout) for layout in whole]
        if any(reading.sound and not reading.doubtful for reading in complete):
            partly.clear()
            break
        partly += [read(layout) for layout in layouts if layout not in whole]
        if any(reading.explains or reading.cut_off for reading in complete + partly):
            break
    readings = [reading for reading in complete + partly if _credible(reading)]
    readings.sort(key=lambda reading: reading.rank, reverse=True)
    if readings and not readings[0].explains:  # nor does a wrong version besides
        version = int.from_bytes(source.read_at(span.start + 4, 4), "little")
        readings.sort(key=lambda reading: reading.layout.version in (version, None), reverse=True)
    if readings and readings[0].failed:
        readings.sort(key=_is_list_of_ik, reverse=True)
    return readings


def _written(best: Reading, others: list[Reading]) -> tuple[Interval, str | None]:
    """The builds that can have written the file, and the program if it can be told.

    Args:
        best: the best reading.
        others: those that may be the right ones just as well, if they fare as well.
    """
    builds, writer = interval_of(best.decoding)
    for other in others:
        if (other.score, other.decoding.end) == (best.score, best.decoding.end):
            other_builds, other_writer = interval_of(other.decoding)
            builds = builds.hull(other_builds)
            writer = writer if other_writer == writer else None
    return builds, writer


def _likely(readings: list[Reading]) -> list[Reading]:
    """Those that explain the file; if none does, those that fare as well as the best one.

    Readings that nothing speaks against and that stop in one place do: what tells memory types
    apart is not there any more.
    """
    explaining = [reading for reading in readings if reading.explains]
    if explaining or not readings:
        return explaining
    best = readings[0]
    return [
        reading
        for reading in readings
        if reading.decoding.end == best.decoding.end
        and (reading.score == best.score or not (reading.failed or best.failed))
    ]


def _is_of(memory: str, likely: list[Reading], reading: Reading) -> bool:
    """Whether a likely reading is one of a model with this memory."""
    fits = (memory, PARTIAL.get(memory, memory))
    return reading.layout.memory in fits and any(reading is one for one in likely)


def _stages(source: Source, span: Span) -> Iterable[list[Layout]]:
    """Layouts to try, the likeliest first.

    Those of this magic and version, those of this magic, those without a magic, and in the end
    those of other magics, in case the magic is the damage.
    """
    head = source.read_at(span.start, min(16, len(span)))
    version = int.from_bytes(head[4:8], "little") if len(head) >= 8 else None
    marked = marked_layouts(head)
    yield [layout for layout in marked if version is None or layout.version in (version, None)]
    yield [
        layout for layout in marked if version is not None and layout.version not in (version, None)
    ]
    if not marked:
        yield list(unmarked_layouts())
    known = {layout.id for layout in marked}
    others = (layout for layout in all_layouts() if layout.magic and layout.id not in known)
    yield [layout for layout in others if layout.memory and layout.version == version]


def _judged(source: Source, decoding: Decoding, judged: Judged | None = None) -> Reading:
    found = facts(decoding, source.read_at, judged)
    left = decoding.root.span.stop - decoding.end
    tail = source.read_at(decoding.end, min(_TAIL, left)) if decoding.ended else b""
    padded = not tail.strip(b"\0")
    exact = decoding.complete and _harmless(found)
    points = score(found) + (_EXACT_END if exact else 0)
    points -= 0 if decoding.ended and padded else _UNEXPLAINED
    return Reading(decoding, found, points, padded)


def _open_to_doubt(readings: list[Reading]) -> bool:
    """Whether something about the best reading could be explained by a word that lies."""
    if not readings or readings[0].cut_off:
        return False
    best = readings[0]
    return not (best.explains and best.padded) or best.doubtful or _cut_short(best)


def _cut_short(reading: Reading) -> bool:
    """Whether the number of layers ends a recurrent state before bytes that could be more of it."""
    left, parts = not reading.decoding.complete, sections(reading.decoding.root)
    return left and any(
        part.kind == "recurrent" and len(part.r) + len(part.s) == 2 * (part.n_layer or 0)
        for part in parts[-1:]
    )


def _one_word_away(
    source: Source, readings: list[Reading], span: Span
) -> tuple[Layout, Mend] | None:
    """The layout, and the word with which the file would be whole under it."""
    from inspector.mend import Patched, has_its_like, single_mend

    order = {layout.id: place for place, layout in enumerate(all_layouts())}
    found: list[tuple[Points, int, int, Layout, Mend]] = []
    suggested: Hints = {}
    before = source.bytes_read
    sections_read: defaultdict[tuple[Span, int], Ends] = defaultdict(dict)
    for reading in readings:
        layout, stops = reading.layout, reading.decoding.stops
        if any(fact.path in ("magic", "version") for fact in reading.failed):
            continue
        derailed = [fact.offset for fact in reading.failed if fact.structural]
        trouble = min([*derailed, *(stop.offset for stop in stops)] or [reading.decoding.end])

        def whole(mend: Mend, layout: Layout = layout) -> Points | None:
            if source.bytes_read - before > _MOST_READ_IN_VAIN:
                return None
            patched = Patched(source, mend)
            if not completes(patched, layout, span, sections_read[mend.span, mend.value]):
                return None
            reading = _judged(patched, decode(patched, layout, span))
            if readings[0].sound and (reading.failed or reading.score <= readings[0].score):
                return None  # what explains every byte gives way to what nothing speaks against
            root = reading.decoding.root
            if mend.path.endswith(("k_type", "v_type")) and not has_its_like(root, mend.path):
                return None
            return (reading.score, -_unlike(root)) if reading.sound else None

        if mended := single_mend(source, reading.decoding.root, trouble, whole, suggested):
            points, mend = mended
            found.append((points, mend.change, order[layout.id], layout, mend))
    if not found:
        return None
    points, _, _, _, first = min(found, key=lambda one: ((-one[0][0], -one[0][1]), *one[1:3]))
    alike = [one for one in found if one[0] == points and one[4].span == first.span]
    _, _, _, layout, mend = min(alike, key=lambda one: one[2])  # of one word the commonest layout
    rivals = [one for well, _, _, _, one in found if well == points and one.span != mend.span]
    return layout, replace(mend, rival=rivals[0]) if rivals else mend


def _unlike(root: Node) -> int:
    """Blocks whose type or row size is not that of most others of their series."""
    n = 0
    for section in sections(root):
        for blocks in (section.k, section.v, section.r, section.s):
            kinds = Counter((block.type_id, block.row_bytes) for block in blocks)
            n += len(blocks) - max(kinds.values(), default=0)
    return n


def _only_cut(root: Node) -> bool:
    """Whether no word but the size of the payload in which parsing ended can be to blame for that.

    It is that of a checkpoint, of a block like the one before it, or of the first of several.
    """
    within = node = root
    while below := [child for child in node.children if child.kind is not Kind.GAP]:
        within = node if below[-1].kind is Kind.SERIES else within
        node = below[-1]
    lists = [child for child in within.children if child.kind is Kind.SERIES]
    if any(child.name == "records" for child in lists):
        return True
    blocks = [block for child in lists for block in child.children][-2:]
    opened = [[c.value for c in block.children if c.kind is Kind.FIELD] for block in blocks]
    if len(opened) == 1:
        behind_cells = any(len(c.span) for c in within.children if c.kind is Kind.TABLE)
        return bool(opened[0]) and behind_cells and within.number("n_layer") > 1
    return len(opened) == 2 and opened[0] == opened[1] != []


def _is_list_of_ik(reading: Reading) -> bool:
    """Whether nothing speaks against a list that begins like a state: its first record fits.

    A context shift moves both ends of what a checkpoint covers by the same number of tokens.
    """
    records = reading.decoding.root.get("records")
    if reading.layout.format != "ik-checkpoints" or reading.failed or records is None:
        return False
    first = records.children[0] if records.children else records
    if first.get("n_tgt") is None:
        return False
    low, high = first.number("pos_min"), first.number("pos_max")
    shifts = first.number("pos_min_prompt") - low, first.number("pos_max_prompt") - high
    return 0 <= low <= high and shifts[0] == shifts[1] >= 0 and first.number("n_tgt") > 0


def _goes_on(reading: Reading, other: Reading) -> bool:
    """Whether what follows the end of `other` is the beginning of more, which is then cut off."""
    stops, end = reading.decoding.stops, other.decoding.end
    if not other.explains or other.padded or reading.stamped < other.stamped:
        return False
    if len(stops) != 1 or reading.decoding.end <= end or not _harmless(reading.facts):
        return False
    stop = stops[0]
    if stop.reason is StopReason.PAYLOAD_EXCEEDS_FILE:
        return stop.wanted <= len(reading.decoding.root.span)
    if stop.reason is not StopReason.COUNT_EXCEEDS_FILE:
        return False
    if stop.path.endswith(".cells"):
        return stop.wanted in [part.declared_cells for part in sections(other.decoding.root)]
    return score(fact for fact in reading.facts if fact.offset >= end) >= _FEW_WORDS


def _harmless(found: tuple[Fact, ...]) -> bool:
    """Whether all that fails are values that leave the structure as it is."""
    return all(fact.holds or not fact.structural for fact in found)


def _credible(reading: Reading) -> bool:
    layout = reading.layout
    if layout.magic and reading.facts and reading.facts[0].holds:
        return True
    return reading.sound or reading.score >= _FACTS_OF_A_DAMAGED_BLOB


def _competes(other: Reading, best: Reading) -> bool:
    """Whether another reading is as good and means something else."""
    if not (other.sound and best.sound and other.score >= best.score):
        return False
    return other.layout.memory != best.layout.memory and any(
        node.kind is Kind.TABLE and len(node.span) for node in _below(best.decoding.root)
    )


def _below(node: Node) -> Iterable[Node]:
    for child in node.children:
        if child.name != "tokens":
            yield child
            yield from _below(child)


def _with_blobs(source: Source, decoding: Decoding) -> Decoding:
    """The same reading with the states inside its checkpoints decoded too."""
    blobs = _Blobs(source, decoding.layout)
    root = blobs.graft(decoding.root)
    return replace(decoding, root=root)


class _Blobs:
    """Decodes the blobs of one list; what fitted the last one is tried first on the next.

    After some blobs that nothing fits, only that one is tried.
    """

    def __init__(self, source: Source, outer: Layout) -> None:
        self._source = source
        self._writers = (IK,) if outer.writer == IK else (UPSTREAM, None)
        self._memory = PARTIAL.get(outer.memory, outer.memory)
        self._last: Layout | None = None
        self._searches = 0

    def graft(self, node: Node) -> Node:
        """The node with every blob below it replaced by its tree."""
        if node.kind is Kind.PAYLOAD:
            return self._decoded(node) if node.role in _BLOBS and len(node.span) else node
        if not node.children:
            return node
        children = tuple(self.graft(child) for child in node.children)
        return node if children == node.children else replace(node, children=children)

    def _decoded(self, node: Node) -> Node:
        best: Reading | None = None
        candidates = self._candidates(node)
        if self._searches == _MOST_SEARCHES:
            candidates = candidates[:1]
        for layout in candidates:
            reading = _judged(self._source, decode(self._source, layout, node.span))
            if best is None or reading.rank > best.rank:
                best = reading
            if reading.sound:
                break
        else:
            self._searches = min(self._searches + 1, _MOST_SEARCHES)
        if best is None or not _credible(best):
            return node
        self._last = best.layout
        tree = best.decoding.root
        facts_of = {"layout": best.layout.id, "sound": best.sound, "ended": best.decoding.ended}
        return replace(node, kind=Kind.RECORD, children=tree.children, facts=facts_of)

    def _candidates(self, node: Node) -> list[Layout]:
        head = self._source.read_at(node.span.start, min(4, len(node.span)))
        found = [
            layout
            for layout in marked_layouts(head) or unmarked_layouts()
            if layout.format == "blob" and layout.writer in self._writers
        ]
        return sorted(
            found, key=lambda layout: (layout is not self._last, layout.memory != self._memory)
        )
