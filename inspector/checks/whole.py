"""Where a file that was cut would have ended: from what is left of it, or from its model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from formats.bodies.compositions import MEMORY, PARTIAL
from formats.ggml_types import IK, TURBOQUANT, GgmlType
from inspector.builds import build_number
from inspector.sections import Block, Section

if TYPE_CHECKING:
    from inspector.checks.subject import Subject
    from inspector.model.geometry import CacheExpectation, MemoryExpectation, RecurrentExpectation

_WORD, _BLOCK_HEAD, _F32 = 4, 12, 4
_STREAM_HEAD = _ROTATION_WORDS = 2 * _WORD
_ANONYMOUS_CELL = 2 * _WORD
_ONE_SEQUENCE = ("ggsq", "blob")
_WINDOW_ONLY = 9473
"""Build from which on only cells in the window are saved (PR #23981)."""


def whole_end(subject: Subject) -> str | None:
    """How long a cut state was, in words, and on what that depends; None if nobody can know."""
    model = subject.model
    found = _Cut(subject).end() if model is None else _Modelled(subject, model).end()
    if found is None or found[0] <= subject.size:
        return None
    end, conditions = found
    depends = f", if {' and '.join(conditions)}" if conditions else ""
    return f"whole it has {end:,} bytes{depends}"


def missing(subject: Subject) -> str | None:
    """Which blocks of the section that was cut are not even begun; None if that is not known."""
    section = subject.sections[-1] if subject.sections else None
    blocks = (section.v or section.k) if section is not None else ()
    if section is None or not blocks or section.kind == "dsv4":
        return None
    series, _, last = blocks[-1].path.removesuffix("]").rpartition("[")
    if blocks[-1].data is not None or not last.isdecimal():  # the oldest forms have no such lists
        return None
    n, first = section.n_layer or 0, int(last) + 1
    if first >= n:
        return None
    if first == n - 1:
        return f"{series}[{first}] is missing altogether"
    return f"{series}[{first}] to [{n - 1}] are missing altogether"


class _Cut:
    """What is left of the file shows where its last section ended, if it is the last one."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.layout = subject.reading.layout
        self.section = subject.sections[-1] if subject.sections else None

    def end(self) -> tuple[int, list[str]] | None:
        members = MEMORY.get(self.layout.memory, ("", ()))[1]
        if self.section is None or len(members) != len(self.subject.sections):
            return None
        _, (kind, flag), _ = members[-1]
        if kind != "recurrent":
            found = self.values(self.section)
        else:
            found = None if flag else self.states(self.section)
        return None if found is None else (found, ["nothing follows this section"])

    def values(self, section: Section) -> int | None:
        """Cut in its values, of which at least one row size is known."""
        begun = section.v
        if not begun or len(section.tables) != 1 or len(section.k) != section.n_layer:
            return None
        if begun[-1].data is None and not begun[-1].row_bytes:  # cut inside the words before it
            begun = begun[:-1]
        if any(kind.writer == TURBOQUANT for block in begun for kind in block.readings[:1]):
            return None  # it can give some layers another type
        rows = [(block.type_id, block.row_bytes) for block in begun]
        by_keys: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for key, row in zip(section.k, rows, strict=False):
            by_keys.setdefault((key.type_id, key.row_bytes), set()).add(row)
        for key in section.k[len(rows) :]:
            alike = by_keys.get((key.type_id, key.row_bytes), set())
            if len(alike) != 1:
                return None
            rows += alike
        if not begun:
            return None
        n_cells, start = section.declared_cells, begun[0].span.start
        head = _head_bytes(begun[0], section)
        empty = section.n_stream - 1 - section.streams[0]
        if empty and self.layout.format not in _ONE_SEQUENCE:
            return None
        return start + sum(head + n_cells * size for _, size in rows) + _WORD * empty

    def states(self, section: Section) -> int | None:
        """Cut in S blocks, which are as many as the R blocks, and of one size."""
        series = section.node.get("blocks")
        if series is None or section.v_trans or (self.layout.version, self.ext) == (3, 12):
            return None  # builds of that time folded a history into some R rows
        rows = [
            child.number("row_size")
            for child in series.children
            if child.get("row_size") is not None
        ]
        runs = [(size, len(list(group))) for size, group in groupby(rows)]
        if len(runs) != 2 or runs[1][1] > runs[0][1]:
            return None
        (r, n), (s, _) = runs
        return series.span.start + n * (2 * _BLOCK_HEAD + (r + s) * section.declared_cells)

    @property
    def ext(self) -> int:
        return max(section.cell_ext for section in self.subject.sections)


def _head_bytes(block: Block, section: Section) -> int:
    """Bytes in front of the values of a layer."""
    if block.data is not None:
        return block.data.start - block.span.start
    return section.k[0].data.start - section.k[0].span.start if section.k[0].data else _BLOCK_HEAD


class _Modelled:
    """The model says which sections there are and how wide; the file says how they are written."""

    def __init__(self, subject: Subject, model: MemoryExpectation) -> None:
        self.subject, self.model = subject, model
        self.layout = subject.reading.layout
        self.parts = subject.sections
        self.conditions: list[str] = []

    def end(self) -> tuple[int, list[str]] | None:
        memory = self.memory
        if memory is None or not self.parts or self.subject.identification.writer == IK:
            return None
        members = MEMORY[memory][1]
        if len(self.parts) > len(members):
            return None
        end = self.parts[0].span.start
        for index, (member, (kind, _), _) in enumerate(members):
            part = self.parts[index] if index < len(self.parts) else None
            if part is not None and part.kind != kind and len(members) > 1:
                return None
            if part is not None and index + 1 < len(self.parts):
                end = part.span.stop
                continue
            size = self.size(member, kind, part)
            if size is None:
                return None
            end += size
        if self.layout.format == "ggsq" and self.layout.version == 4:
            self.conditions.append("no checkpoints follow")
        return end, self.conditions

    @property
    def memory(self) -> str | None:
        """The composition; what a partial save leaves of it, if this is one."""
        memory = self.model.memory
        partial = PARTIAL.get(memory)
        if self.layout.format == "blob" and self.layout.memory == partial != memory:
            return partial
        known = memory in MEMORY and self.layout.format in _ONE_SEQUENCE
        return memory if known and self.layout.version != 1 else None

    def size(self, member: str, kind: str, part: Section | None) -> int | None:
        """Bytes of a section that is cut or not there at all."""
        if kind == "recurrent":
            return None if self.model.recurrent is None else self.states(self.model.recurrent)
        cache = next((one for one in self.model.caches if one.member == member), None)
        cells = self.cells(kind, part)
        if cache is None or cells is None or not self.fits(cache, part):
            return None
        rows = list(self.rows(cache))
        first = self.parts[0]
        if None in rows or first.kind == "recurrent" or not first.tables:
            return None
        blocks = sum(_BLOCK_HEAD + cells * row for row in rows if row is not None)
        head = _STREAM_HEAD + (_ROTATION_WORDS if first.node.facts.get("rotation") else 0)
        stride = len(first.tables[0].span) // len(first.tables[0])
        streams = _WORD * (1 + first.n_stream) if first.node.get("streams") else _WORD
        return streams + cells * stride + head + blocks

    def states(self, state: RecurrentExpectation) -> int:
        blocks = 2 * _BLOCK_HEAD + _F32 * (state.r + state.s)
        return 3 * _WORD + _ANONYMOUS_CELL + len(state.layers) * blocks

    def cells(self, kind: str, part: Section | None) -> int | None:
        """Cells of a section, as it says itself, or as builds of its time saved them."""
        if part is not None:
            return part.cells if len(part.tables) == 1 else None
        attention = self.parts[0].cells
        if kind != "swa":
            return attention
        from inspector.model.geometry import WindowType

        if self.model.swa_type is not WindowType.STANDARD:
            return None
        since = self.subject.identification.builds.since
        cut_to_window = since is not None and build_number(since) >= _WINDOW_ONLY
        fits = attention <= self.model.n_swa
        return min(attention, self.model.n_swa) if fits or cut_to_window else None

    def fits(self, cache: CacheExpectation, part: Section | None) -> bool:
        """Whether the model gives the section what is left of it."""
        if part is None or part.n_layer is None:
            return not self.model.n_layer_nextn  # which builds counted differently
        if part.n_layer != len(cache.layers):
            return False
        sides = ((part.k, cache.k), (part.v, cache.v))
        return all(
            _holds(block, width)
            for blocks, widths in sides
            for block, width in zip(blocks, widths, strict=False)
        )

    def rows(self, cache: CacheExpectation) -> Iterator[int | None]:
        """Bytes of the rows of a section, None for those of no known type."""
        k, v = self.type_of("k"), self.type_of("v")
        if v is None and cache.v:
            v = k
            self.assume("its values are of the type of its keys")
        for kind, widths in ((k, cache.k), (v, cache.v)):
            for width in widths:
                yield None if kind is None else _row_bytes(kind, width)

    def type_of(self, side: str) -> GgmlType | None:
        """The type of the keys or of the values, of which one header is enough."""
        blocks = [block for part in self.parts for block in getattr(part, side)]
        found = [block.readings[0] for block in blocks if block.row_bytes and block.readings]
        return found[0] if found else None

    def assume(self, what: str) -> None:
        if what not in self.conditions:
            self.conditions.append(what)


def _row_bytes(kind: GgmlType, width: int) -> int | None:
    blocks, rest = divmod(width, kind.block_elements)
    return None if rest else blocks * kind.block_bytes + (kind.row_prefix_bytes if width else 0)


def _holds(block: Block, width: int) -> bool:
    """Whether a row can have so many elements, or was cut before it says its size."""
    return not block.row_bytes or width in {
        kind.elements(block.row_bytes) for kind in block.readings
    }
