"""The numbers of two files against each other, layer by layer, cells matched by position.

Only what is needed is held: some cells of one layer at a time. Where the bytes are equal, and mean
the same, nothing is computed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from formats.ggml_types import IK, GgmlType
from inspector.arrays.numbers import READABLE, Bytes, Floats, dequantize
from inspector.arrays.rotation import rotate
from inspector.builds import build_number
from inspector.diff.cells import Match, Numbers
from inspector.model.expectation import V_ROTATION
from inspector.report import Report
from inspector.sections import Block, Section
from inspector.server.servers import CHANGES
from inspector.source import Source, Unreadable

BINS = 16
"""Parts of the range of positions whose largest error is kept."""
_TILE = 1 << 18
"""Numbers in work at once."""
_LINES_TILE = 1 << 21
"""The same where some stand channel by channel: a read of each channel has to be worth it."""
_SPARSE = 4
"""Rows that are read for one that is wanted, before each run is read by itself."""
_SAMPLED = 64
"""Cells that tell by which matrix rows are turned."""
_AGREE = 0.5
"""RMS of differences, relative to that of the numbers, up to which rows are those of one content.

The coarsest types cost 0.1; rows that have nothing to do with each other, or are turned otherwise,
differ by 1.4.
"""

Progress = Callable[[int], None]
Turned = tuple[int, int]
"""Elements of the matrices that turned the rows of either file."""


@dataclass(frozen=True)
class Layer:
    """The numbers of one layer of two files.

    Attributes:
        name: of the tensor in the section of the first file, as `k[3]`.
        n_cells: cells that were compared.
        differ: those of them with a difference.
        max_error: largest |a - b| of numbers that are finite in both.
        peak: largest |a| of the same numbers.
        rms: root of the sum of (a - b)² by the sum of a²; NaN where all a are 0.
        first: first position with a difference; None without positions, or without any.
        worst: position of the largest error.
        non_finite: numbers that are NaN or infinite, in either file.
        strip: largest error by part of the range of positions, NaN for a part without cells.
        why: why they were not compared as numbers, or not at all; empty if they were.
    """

    name: str
    n_cells: int
    differ: int = 0
    max_error: float = 0.0
    peak: float = 0.0
    rms: float = 0.0
    first: int | None = None
    worst: int | None = None
    non_finite: tuple[int, int] = (0, 0)
    strip: tuple[float, ...] = ()
    why: str = ""

    @property
    def relative(self) -> float:
        """max|a - b| / max|a|; NaN where all a are 0."""
        return self.max_error / self.peak if self.peak else math.nan

    def within(self, tolerance: float) -> bool:
        """Whether all was compared, and no error is larger than that, relative to max|a|."""
        if not self.differ:
            return not self.why
        return self.non_finite == (0, 0) and not self.why and self.relative <= tolerance


@dataclass(frozen=True)
class Compared:
    """The numbers of a section of two files.

    Attributes:
        layers: in the order of the first file.
        notes: what had to be found out or could not be.
        complete: whether the tensors of either are known to belong to those of the other.
    """

    layers: tuple[Layer, ...]
    notes: tuple[str, ...] = ()
    complete: bool = True


@dataclass(frozen=True)
class Part:
    """A section, and where it is read from.

    Attributes:
        report: on the file that it belongs to.
        source: the file, or the companion, that holds it.
        section: the section.
    """

    report: Report
    source: Source
    section: Section


def compared(a: Part, b: Part, match: Match, progress: Progress = lambda n: None) -> Compared:
    """The numbers of two sections.

    Args:
        a: the section that errors are relative to.
        b: the other.
        match: their cells.
        progress: is told how many bytes of the first were compared.

    Raises:
        Unreadable: if a file becomes shorter meanwhile.
    """
    if match.why:
        return Compared((), (match.why,), complete=False)
    notes: list[str] = []
    layers: list[Layer] = []
    complete = True
    for letter in "kvrs" if len(match.a) else "":
        own, other = _tensors(a, letter), _tensors(b, letter)
        if len(own) != len(other):
            complete = False
            counts = f"{letter.upper()}: {len(own):,} and {len(other):,} tensors"
            if not _cut(a, own, other) and not _cut(b, other, own):
                notes.append(f"{counts}, not known to be of the same layers")
                continue
            notes.append(f"{counts}: one of the files ends early")
        pairs = [(x, y) for x, y in zip(own, other, strict=False) if x.row_bytes or y.row_bytes]
        turned, note = _rotations(a, b, letter, pairs, match) if pairs else (None, "")
        notes += [note] if note else []
        layers += [_layer(_Pair(one, two, match, turned, progress)) for one, two in pairs]
    return Compared(tuple(layers), tuple(notes), complete)


def _cut(part: Part, own: list[_Stored], whole: list[_Stored]) -> bool:
    """Whether a section has fewer tensors than another because its file ends early."""
    reading = part.report.identification.reading
    names = [stored.name for stored in own]
    begins = names == [stored.name for stored in whole][: len(names)]
    return begins and reading is not None and bool(reading.decoding.stops)


@dataclass(frozen=True)
class _Stored:
    """The tensor of one layer of a file.

    Attributes:
        name: in its section.
        source: the file.
        blocks: one for each cell array that holds cells.
        edges: the first cell of each of them, and the end.
    """

    name: str
    source: Source
    blocks: Sequence[Block]
    edges: Numbers

    @property
    def first(self) -> Block:
        """The block that stands for all."""
        return self.blocks[0]

    @cached_property
    def kind(self) -> GgmlType | None:
        """Its type; None if that is not known."""
        found = self.first.readings
        return found[0] if found else None

    @property
    def n_elements(self) -> int:
        """Elements of a row; 0 if they are not known."""
        return (self.kind and self.kind.elements(self.row_bytes)) or 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row; 0 for models that have no such numbers."""
        return self.first.row_bytes

    @property
    def form(self) -> tuple[int, int, int]:
        """What has to be equal for bytes to mean the same."""
        return self.first.type_id, self.row_bytes, self.first.element_bytes

    def owner(self, cells: Numbers) -> Numbers:
        """The block of each cell."""
        return np.searchsorted(self.edges, cells, "right") - 1

    def problem(self, cells: Numbers) -> str:
        """Why rows of these cells cannot be read; empty if they can."""
        if len(self.blocks) != len(self.edges) - 1 or any(b.data is None for b in self.blocks):
            return "it is not whole"
        if len({(b.type_id, b.row_bytes, b.element_bytes) for b in self.blocks}) > 1:
            return "it is of several types"
        size, kind = self.first.element_bytes, self.kind
        if not self.row_bytes or (size and (kind is None or kind.block_bytes != size)):
            return "its rows make no sense"
        held = np.array([block.n_cells for block in self.blocks])
        if bool((held != np.diff(self.edges)).any()) or cells.max(initial=-1) >= self.edges[-1]:
            return "it has not a row for every cell"
        return ""

    def unread(self) -> str:
        """Why its bytes are not known as numbers; empty if they are."""
        if self.kind is None or self.kind.name not in READABLE or self.kind.row_prefix_bytes:
            return f"the numbers of {self.first.type_name} are not known"
        return ""

    def rows(self, cells: Numbers, columns: slice) -> Bytes:
        """The bytes of some elements of some cells of one block, shape `(n_cells, n_bytes)`.

        Args:
            cells: indices in the section.
            columns: bytes of a row.
        """
        which = int(self.owner(cells[:1])[0])
        block, inside = self.blocks[which], cells - self.edges[which]
        assert block.data is not None  # it was looked at before
        low, high = int(inside.min()), int(inside.max()) + 1
        straight = high - low == len(inside) and bool((np.diff(inside) == 1).all())
        wanted = slice(None) if straight else inside - low
        start, row, size = block.data.start, block.row_bytes, block.element_bytes
        if size:
            channels = range(columns.start // size, columns.stop // size)
            lines = np.empty((len(channels), len(cells)), f"u{size}")
            for line, channel in enumerate(channels):
                at = start + (channel * block.n_cells + low) * size
                found = np.frombuffer(self._read(at, (high - low) * size), lines.dtype)
                lines[line] = found[wanted]
            return np.ascontiguousarray(lines.T).view(np.uint8)
        if columns == slice(0, row) and high - low <= _SPARSE * len(cells):
            data = self._read(start + low * row, (high - low) * row)
            return np.frombuffer(data, np.uint8).reshape(-1, row)[wanted]
        width = columns.stop - columns.start
        places = (start + columns.start + inside * row).tolist()
        data = b"".join(self._read(place, width) for place in places)
        return np.frombuffer(data, np.uint8).reshape(-1, width)

    def _read(self, offset: int, size: int) -> bytes:
        data = self.source.read_at(offset, size)
        if len(data) < size:
            raise Unreadable("it became shorter while it was read")
        return data

    def numbers(self, rows: Bytes, rotation: int) -> Floats:
        """Rows as numbers, turned back."""
        assert self.kind is not None  # it was looked at before
        n = rows.shape[1] // self.kind.block_bytes * self.kind.block_elements
        return rotate(dequantize(rows, self.kind, n), rotation)


def _tensors(part: Part, letter: str) -> list[_Stored]:
    """The tensors of a section; those of a layer in all cell arrays are one."""
    section = part.section
    by_name: dict[str, list[Block]] = {}
    for index, block in enumerate(getattr(section, letter)):
        name = re.sub(r"^streams\[\d+\]\.", "", block.path.removeprefix(f"{section.path}."))
        name = f"{letter}[{index}]" if section.kind == "recurrent" else name
        by_name.setdefault(name, []).append(block)
    found = []
    for name, blocks in by_name.items():
        sizes = [block.n_cells for block in blocks]
        if section.node.name != _OLDEST:
            sizes = [len(rows) for rows in section.tables] or sizes
        found.append(_Stored(name, part.source, blocks, np.cumsum([0, *sizes])))
    return found


@dataclass(frozen=True)
class _Pair:
    a: _Stored
    b: _Stored
    match: Match
    turned: Turned | None
    progress: Progress

    def why(self) -> str:
        """Why the two cannot be compared as numbers; empty if they can."""
        a, b = self.a, self.b
        if why := a.unread() or b.unread():
            return why
        if a.n_elements != b.n_elements:
            return f"rows of {a.n_elements:,} and of {b.n_elements:,} elements"
        return "" if self.turned is not None else "whether its rows are rotated is not known"

    def tiles(self, unit: int) -> Iterator[tuple[slice, slice, slice]]:
        """Some matched cells each, and the bytes of some elements in rows of both files."""
        n, lines = self.a.n_elements, self.a.first.element_bytes or self.b.first.element_bytes
        most = _LINES_TILE if lines else _TILE
        width = n if n <= most else max(unit, most // unit * unit)
        at_once = max(1, most // max(1, width))
        for cells in self._cells(at_once):
            for column in range(0, n, width):
                span = column, min(n, column + width)
                yield cells, _bytes(self.a, span), _bytes(self.b, span)

    def rows(self) -> Iterator[tuple[slice, slice, slice]]:
        """The same for rows whose numbers are not known."""
        row = self.a.row_bytes
        for cells in self._cells(max(1, _TILE // row)):
            for column in range(0, row, _TILE):
                columns = slice(column, min(row, column + _TILE))
                yield cells, columns, columns

    def _cells(self, at_once: int) -> Iterator[slice]:
        """Matched cells that stand in one cell array of either file."""
        owners = self.a.owner(self.match.a), self.b.owner(self.match.b)
        changes = np.flatnonzero(np.diff(owners[0]) | np.diff(owners[1])) + 1
        ends = [*changes.tolist(), len(self.match.a)]
        for start, stop in zip([0, *ends], ends, strict=False):
            for at in range(start, stop, at_once):
                yield slice(at, min(stop, at + at_once))


def _bytes(stored: _Stored, span: tuple[int, int]) -> slice:
    kind = stored.kind
    assert kind is not None  # its numbers are known
    start, stop = (at // kind.block_elements * kind.block_bytes for at in span)
    return slice(start, stop)


def _layer(pair: _Pair) -> Layer:
    """The numbers of one layer."""
    a, b, match = pair.a, pair.b, pair.match
    if problem := a.problem(match.a):
        return Layer(a.name, 0, why=f"in A {problem}")
    if problem := b.problem(match.b):
        return Layer(a.name, 0, why=f"in B {problem}")
    why = pair.why()
    if why and a.form != b.form:
        return Layer(a.name, 0, why=why)
    found = _Errors(len(match.a))
    turned = pair.turned or (0, 0)
    exact = a.form == b.form and turned[0] == turned[1]
    unit = 1 if why else _unit(pair, turned)
    equal = []
    for tile in pair.rows() if why else pair.tiles(unit):
        cells, columns, others = tile
        rows, other = a.rows(match.a[cells], columns), b.rows(match.b[cells], others)
        pair.progress(rows.size)
        if exact and np.array_equal(rows, other):
            equal.append(tile)
        elif why:
            found.bad[cells] |= (rows != other).any(axis=1)
        else:
            found.add(cells, a.numbers(rows, turned[0]), b.numbers(other, turned[1]))
    if found.any and not why:  # what is relative is so to all numbers
        for cells, columns, _ in equal:
            numbers = a.numbers(a.rows(match.a[cells], columns), turned[0])
            found.add(cells, numbers, numbers)
    return found.layer(a.name, match.pos, why if found.any else "")


def _unit(pair: _Pair, turned: Turned) -> int:
    """Elements that have to stay together."""
    kinds = [side.kind for side in (pair.a, pair.b)]
    return math.lcm(*(max(1, n) for n in turned), *(k.block_elements for k in kinds if k))


class _Errors:
    """What differs in one layer, gathered piece by piece.

    Attributes:
        largest: error of each matched cell, shape `(n_cells,)`.
        bad: whether a cell differs where no error can be told.
    """

    def __init__(self, n_cells: int) -> None:
        self.largest = np.zeros(n_cells, np.float32)
        self.bad = np.zeros(n_cells, bool)
        self._peak = self._lost = self._held = 0.0
        self._non_finite = [0, 0]

    @property
    def any(self) -> bool:
        """Whether anything differs."""
        return bool(self.largest.any() or self.bad.any())

    def add(self, cells: slice, a: Floats, b: Floats) -> None:
        """The numbers of some cells, each shape `(n_cells, n)`."""
        with np.errstate(all="ignore"):
            error = a - b
            lost, held = _squares(error), _squares(a)
            if not math.isfinite(lost + held):
                a, error = self._finite(cells, a, b, error)
                lost, held = _squares(error), _squares(a)
            np.abs(error, out=error)
            largest = error.max(axis=1)
        np.maximum(self.largest[cells], largest, out=self.largest[cells])
        self._peak = max(self._peak, float(a.max()), -float(a.min()))
        self._lost, self._held = self._lost + lost, self._held + held

    def _finite(self, cells: slice, a: Floats, b: Floats, error: Floats) -> tuple[Floats, Floats]:
        """The numbers, and their differences, with 0 where one of both is not finite."""
        finite_a, finite_b = np.isfinite(a), np.isfinite(b)
        for side, finite in enumerate((finite_a, finite_b)):
            self._non_finite[side] += int(np.count_nonzero(~finite))
        odd = ~(finite_a & finite_b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        self.bad[cells] |= (odd & ~same).any(axis=1)
        return np.where(odd, np.float32(0), a), np.where(odd, np.float32(0), error)

    def layer(self, name: str, pos: Numbers, why: str) -> Layer:
        """All of it.

        Args:
            name: of the tensor.
            pos: positions of the matched cells; empty if they have none.
            why: why there are no errors.
        """
        differ = (self.largest > 0) | self.bad
        placed = len(pos) > 0 and bool(differ.any())
        return Layer(
            name,
            len(self.largest),
            int(np.count_nonzero(differ)),
            float(self.largest.max(initial=0)),
            self._peak,
            math.sqrt(self._lost / self._held) if self._held else math.nan,
            int(pos[differ].min()) if placed else None,
            int(pos[int(self.largest.argmax())]) if placed and self.largest.any() else None,
            (self._non_finite[0], self._non_finite[1]),
            tuple(self._strip(pos)) if placed else (),
            why,
        )

    def _strip(self, pos: Numbers) -> list[float]:
        low, n = int(pos.min()), int(pos.max()) - int(pos.min()) + 1
        parts = min(BINS, n)
        strip = np.full(parts, np.nan)
        errors = np.where(self.bad, np.inf, self.largest)
        np.fmax.at(strip, (pos - low) * parts // n, errors)
        return [float(error) for error in strip]


def _squares(numbers: Floats) -> float:
    """The sum of the squares."""
    flat = numbers.reshape(-1)
    found = float(np.dot(flat, flat))
    if found and math.isfinite(found):
        return found
    wide = flat.astype(np.float64)  # too large or too small for the squares of f32
    return float(np.dot(wide, wide))


def _rotations(
    a: Part, b: Part, letter: str, pairs: list[tuple[_Stored, _Stored]], match: Match
) -> tuple[Turned | None, str]:
    """By which matrices the rows of either section are turned, and how that is known.

    Where no word says it the numbers do: rows of one content agree when both are turned back.
    """
    told = [_told(part, letter, [pair[side] for pair in pairs]) for side, part in enumerate((a, b))]
    if told[0] is not None and told[1] is not None:
        return (told[0], told[1]), ""
    one, two = pairs[0]
    if one.unread() or two.unread() or one.n_elements != two.n_elements:
        return None, ""
    if one.problem(match.a) or two.problem(match.b):
        return None, ""
    sizes = [size for size in _MATRICES if not (size and one.n_elements % size)]
    ways = [(i, j) for i in _ways(told[0], sizes) for j in _ways(told[1], sizes)]
    errors = {way: error for way in ways if (error := _sampled(one, two, match, way)) <= _AGREE}
    if not errors:
        which = " and ".join(name for name, size in zip("AB", told, strict=True) if size is None)
        return None, (
            f"{letter.upper()}: no word in {which} says whether rows are rotated, and turned back "
            "by no matrix do they agree"
        )
    found = min(errors, key=errors.__getitem__)
    undone = (
        f"in {name} by {size}"
        for name, size, word in zip("AB", found, told, strict=True)
        if size and word is None
    )
    how = " and ".join(undone)
    return found, how and f"{letter.upper()}: rotated {how}, which no word says: so rows agree"


_OLDEST = "kv_self"
"""A cache of before July 2024, which lists cells that hold nothing behind the others."""
_MATRICES = (0, *(1 << power for power in range(6, 13)))
"""Elements of the matrices that builds may turn rows with."""


def _ways(told: int | None, sizes: list[int]) -> list[int]:
    return sizes if told is None else [told]


def _told(part: Part, letter: str, tensors: list[_Stored]) -> int | None:
    """Elements of the matrix that turned the rows of a section; None if that is not known."""
    section, elements = part.section, [tensor.n_elements for tensor in tensors]
    if letter not in "kv":
        return 0
    if section.node.facts.get("rotation"):
        streams = section.node.get("streams")
        body = section.node
        if streams is not None and streams.children:
            body = streams.children[section.streams[0] if section.streams else 0]
        size = body.number(f"n_rot_{letter}")
        sane = not size or (size in _WORDS and not any(n % size for n in elements))
        return size if sane else None
    kinds = [tensor.kind for tensor in tensors]
    plain = all(kind is not None and kind.block_elements == 1 for kind in kinds)
    if (plain and section.kind != "indexer") or any(n % V_ROTATION for n in elements):
        return 0
    identification = part.report.identification
    until = build_number(identification.builds.until or "")
    return 0 if identification.writer != IK and 0 < until < _ROTATES else None


_WORDS = tuple(1 << power for power in range(1, 13))
_ROTATES = CHANGES["rotation"].since or 0


def _sampled(a: _Stored, b: _Stored, match: Match, turned: Turned) -> float:
    """RMS of the differences of a few rows, relative to that of the numbers."""
    first = (a.owner(match.a) == a.owner(match.a[:1])) & (b.owner(match.b) == b.owner(match.b[:1]))
    some = np.flatnonzero(first)[: max(1, min(_SAMPLED, _TILE // a.n_elements))]
    whole = (0, min(a.n_elements, _TILE))
    rows = a.rows(match.a[some], _bytes(a, whole)), b.rows(match.b[some], _bytes(b, whole))
    one, two = a.numbers(rows[0], turned[0]), b.numbers(rows[1], turned[1])
    with np.errstate(all="ignore"):
        held, lost = _squares(one), _squares(one - two)
    return math.sqrt(lost / held) if held and math.isfinite(lost / held) else math.inf
