"""Layer 0 of a state against layer 0 of a model: every way to read the one is tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from formats.ggml_types import TYPES
from inspector.arrays.numbers import READABLE, Floats, Indices, dequantize
from inspector.model.geometry import Keys, memory_of
from inspector.model.gguf import ModelFile
from inspector.model.layer0 import stored
from inspector.model.layer0.attention import Form, forms_of, ropes_of_layer
from inspector.model.layer0.convolution import kept, n_taps
from inspector.model.layer0.projection import Layer0, Part
from inspector.model.layer0.recipes import RopeType, recipe_of
from inspector.model.layer0.rope import POSITION, Rope
from inspector.model.layer0.rows import Rows
from inspector.model.layer0.side import Side
from inspector.model.layer0.stored import Cells, Sample
from inspector.model.layer0.unfit import Unfit
from inspector.model.layer0.weights import NotTestable, Weights
from inspector.sections import Block, Section
from inspector.source import Source

_F32 = next(kind for kind in TYPES if kind.name == "f32")
_NO_KEYS = "the state holds no keys of layer 0"
_FULL = "base"
"""The section of layers without a window beside that of layers with one."""
MOST_SETTLED = 64
"""Cells that name another token than the list, and others, whose rows are looked at."""
_UNTURNED = Rope(RopeType.NONE, 0)


class OtherShape(Exception):
    """Rows of other widths than the model's."""


@dataclass(frozen=True, eq=False)
class Attention:
    """Attention rows with one assignment of tokens to cells, read in one form.

    Attributes:
        by: how tokens were found for cells: `position` or `rank`.
        form: what the rows were read as.
        rope: how the keys were turned.
        k: the keys, None if they could not be compared.
        v: the values, or the latent part of keys.
        sides: what was measured.
        n_held: cells of layer 0 that have a token which the model knows.
    """

    by: str
    form: Form
    rope: Rope
    k: Rows | None
    v: Rows | None
    sides: tuple[Side, ...]
    n_held: int

    @property
    def rank(self) -> tuple[float, float]:
        """Smaller is better: what depends on tokens alone counts first."""
        content = [side.error for side in self.sides if side.content]
        others = [side.error for side in self.sides if not side.content]
        return max(content, default=np.inf), max(others, default=np.inf)


@dataclass(frozen=True, eq=False)
class Convolution:
    """The convolution state with one assignment of tokens.

    Attributes:
        side: what was measured.
        row: of the block, which has a row for each sequence.
        end: the place of its last token in the list.
    """

    side: Side
    row: int
    end: int


@dataclass(frozen=True, eq=False)
class _Candidate:
    """One assignment of tokens to cells, and the cells that are compared."""

    by: str
    cells: Cells
    k: Sample
    v: Sample
    n_held: int


@dataclass(frozen=True, eq=False)
class Comparison:
    """A state and a model.

    Attributes:
        source: the file with the state.
        sections: its memory sections.
        tokens: its token list.
        layer: the first layer of the model.
        attends: whether it has attention.
        recurs: whether it is recurrent.
        notes: what could not be compared, and why.
        unfit: rows that are no numbers; they are not compared.
    """

    source: Source
    sections: tuple[Section, ...]
    tokens: Indices
    layer: Layer0
    attends: bool
    recurs: bool
    notes: list[str] = field(default_factory=list)
    unfit: list[Unfit] = field(default_factory=list)

    def run(self) -> tuple[Attention | None, Convolution | None]:
        """Compare what layer 0 stores.

        Raises:
            NotTestable: if nothing of it can be compared.
            OtherShape: if the rows have widths that the model's cannot have.
        """
        attention = convolution = None
        if self.attends:
            try:
                attention = self._attention()
            except NotTestable as reason:
                self._note(reason)
        if self.recurs:
            try:
                convolution = self._convolution()
            except NotTestable as reason:
                self._note(reason)
        if attention is None and convolution is None:
            raise NotTestable("; ".join(self.notes) or "layer 0 of the model stores nothing")
        return attention, convolution

    def _note(self, reason: object) -> None:
        if str(reason) and str(reason) not in self.notes:
            self.notes.append(str(reason))

    # -- attention ---------------------------------------------------------------------------------

    def _attention(self) -> Attention:
        section = self._section()
        candidates = list(self._candidates(section))
        if not candidates:
            raise NotTestable("no cell of layer 0 has a token of the list that the model knows")
        inputs = _unique(sample for c in candidates for sample in (c.k, c.v))
        forms = forms_of(self.layer, self.layer.inputs(inputs[:, 0], inputs[:, 1]))
        ropes = ropes_of_layer(self.layer)
        found = [
            compared
            for candidate in candidates
            for form in forms
            for compared in self._compared(candidate, form, ropes, inputs)
        ]
        if not found:
            _check_widths(candidates[0].cells, forms)
            raise NotTestable("" if self.notes else _NO_KEYS)
        return min(found, key=lambda compared: compared.rank)

    def _section(self) -> Section:
        """The section with layer 0: that of windowed layers, or the only one that there is."""
        for kind in ("swa", "attention") if self.layer.windowed else ("attention",):
            for section in self.sections:
                if section.kind == kind and not (self.layer.windowed and section.path == _FULL):
                    return section
        raise NotTestable(_NO_KEYS)

    def _candidates(self, section: Section) -> Iterator[_Candidate]:
        widest = max(
            (s for s in self.sections if s.kind in ("attention", "swa")), key=lambda s: s.cells
        )
        for cells, of_all in zip(stored.sequences(section), stored.sequences(widest), strict=False):
            listed = {
                "position": stored.tokens_by_position(cells.pos, self.tokens),
                "rank": stored.tokens_by_rank(cells.pos, of_all.pos, self.tokens),
            }
            seen: list[Indices] = []
            for by, ids in listed.items():
                if ids is None or any(np.array_equal(ids, other) for other in seen):
                    continue
                seen.append(ids)
                known = (ids >= 0) & (ids < self.layer.n_vocab) & (cells.pos >= 0)
                if not known.any():
                    continue
                k = v = stored.spread(cells, ids, known)
                if cells.v is not None and cells.v.element_bytes:
                    v = stored.neighbours(cells, ids, known)
                yield _Candidate(by, cells, k, v, int(known.sum()))

    def _compared(
        self, candidate: _Candidate, form: Form, ropes: tuple[Rope, ...], inputs: Indices
    ) -> Iterator[Attention]:
        cells = candidate.cells
        k = self._rows(cells.k, form.k_width, form.k, candidate.k, inputs)
        if form.v_width:
            v = self._rows(cells.v, form.v_width, form.v, candidate.v, inputs)
        else:
            v = self._rows(cells.k, form.k_width, form.v, candidate.k, inputs)
        value = v.measured(_UNTURNED, content=True) if v is not None else None
        if k is not None and v is not None and value is None:
            self._note("nothing sets the tokens apart: rows or weights are zero or not finite")
        for rope in ropes:
            content = rope.type is RopeType.NONE or value is None or value.blind
            key = k.measured(rope, content=content) if k is not None else None
            if sides := tuple(side for side in (key, value) if side is not None):
                yield Attention(candidate.by, form, rope, k, v, sides, candidate.n_held)

    def _rows(
        self, block: Block | None, width: int, part: Part, sample: Sample, inputs: Indices
    ) -> Rows | None:
        """Rows of a block, if it has rows of that width whose numbers can be read."""
        if block is None or (_widths(block) and width not in _widths(block)):
            return None
        try:
            kind = stored.type_of(block, width)
            if kind.row_prefix_bytes and len(part.elements) > 1:
                raise NotTestable(f"{block.path}: {kind.name} keys of several heads are cut short")
            rows = stored.rows(self.source, block, kind, sample.index, part.elements)
        except NotTestable as reason:
            self._note(reason)
            return None
        usable = self._numbers(block, rows, sample)
        if self.layer.windowed:
            usable &= ~_in_front(rows, sample.positions[:, POSITION])
        if not usable.any():
            self._note(f"{block.path}: the rows are not finite")
            return None
        sample = sample.only(usable)
        computed = part.numbers[:, _places(sample, inputs)]
        if not np.isfinite(computed).any():
            self._note("what the model computes is not finite: its weights are damaged")
        return Rows(part, block, kind, rows[usable], computed, sample)

    def _numbers(self, block: Block, rows: Floats, sample: Sample) -> NDArray[np.bool_]:
        """Which rows are numbers; the others are remembered."""
        finite = np.asarray(np.isfinite(rows).all(axis=1), np.bool_)
        if not finite.all():
            bad = np.unique(sample.positions[~finite, POSITION]).tolist()
            found = Unfit(block, tuple(bad), len(rows))
            if found not in self.unfit:
                self.unfit.append(found)
        return finite

    def settled(self, attention: Attention) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where cells name other tokens than the list: positions whose rows are of which.

        Args:
            attention: the rows as they were found to be.

        Returns:
            Positions whose rows are those of the token in the list; and of the one in the cell.
        """
        cells = next(stored.sequences(self._section()))
        listed = stored.tokens_by_position(cells.pos, self.tokens)
        form = attention.form
        block, width = (cells.v, form.v_width) if form.v_width else (cells.k, form.k_width)
        named = "tok" in {name for name, _ in cells.table.fields}
        if not named or listed is None or block is None or block.element_bytes:
            return (), ()
        in_cell = cells.table.column("tok")[cells.index]
        known = [(ids >= 0) & (ids < self.layer.n_vocab) for ids in (listed, in_cell)]
        named_at_all = (known[0] | known[1]) & (in_cell >= 0)  # cells of media name no token
        differ = np.flatnonzero(named_at_all & (listed != in_cell))[:MOST_SETTLED]
        alike = np.flatnonzero(known[0] & (listed == in_cell))[:MOST_SETTLED]
        found = []
        for ids, usable in zip((listed, in_cell), known, strict=True) if len(differ) else ():
            chosen = np.concatenate((differ[usable[differ]], alike))
            if not len(chosen):
                found.append(set[int]())
                continue
            sample = cells.sample(chosen, ids)
            inputs = _unique([sample])
            forms = forms_of(self.layer, self.layer.inputs(inputs[:, 0], inputs[:, 1]))
            part = next(
                one.v for one in forms if (one.order, one.k_width) == (form.order, form.k_width)
            )
            rows = self._rows(block, width, part, sample, inputs)
            side = rows.measured(_UNTURNED, content=True) if rows is not None else None
            agreeing = set(side.agreeing) if side is not None and not side.blind else set()
            found.append(agreeing & set(cells.pos[differ].tolist()))
        if not found:
            return (), ()
        by_list, by_cell = found
        return tuple(sorted(by_list - by_cell)), tuple(sorted(by_cell - by_list))

    # -- convolution -------------------------------------------------------------------------------

    def _convolution(self) -> Convolution:
        block = self.state_block()
        taps = n_taps(self.layer)
        ends = list(self._ends(block))
        samples = {end: self._last(end, taps) for _, end in ends}
        inputs = _unique(samples.values())
        if not len(inputs):
            raise NotTestable("no token in front of the recurrent state is one the model knows")
        part, n_channels = kept(self.layer, self.layer.inputs(inputs[:, 0], inputs[:, 1]))
        size = 4 * n_channels * taps
        if block.type_id != _F32.id or block.row_bytes < size:
            raise OtherShape(
                f"a convolution state of {block.row_bytes // 4:,} elements, and that of layer 0 "
                f"of the model has {size // 4:,}"
            )
        found = []
        for row, end in ends:
            assert block.data is not None
            data = self.source.read_at(block.data.start + row * block.row_bytes, size)
            sample = samples[end]
            if len(data) < size or not len(sample.index):
                continue
            # a channel's taps lie side by side, the oldest first
            by_tap = dequantize(data, _F32, n_channels * taps).reshape(n_channels, taps).T
            if not by_tap.any():
                self._note(f"{block.path}: row {row} is all zero")
                continue
            usable = self._numbers(block, by_tap[sample.index], sample)
            if not usable.any():
                continue
            sample = sample.only(usable)
            computed = part.numbers[:, _places(sample, inputs)]
            rows = Rows(part, block, _F32, by_tap[sample.index], computed, sample)
            if (side := rows.measured(_UNTURNED, content=True)) is not None:
                found.append(Convolution(side, row, end))
        if not found:
            raise NotTestable("the convolution state of layer 0 is not there, or not finite")
        return min(found, key=lambda convolution: convolution.side.error)

    def state_block(self) -> Block:
        """The block that has the convolution state of layer 0."""
        section = next((s for s in self.sections if s.kind == "recurrent"), None)
        blocks = (section.r or section.s) if section is not None else ()
        first = blocks[0] if blocks else None
        apart = section is not None and bool(section.r)
        if first is None or first.data is None or not (apart or first.path.endswith("[0]")):
            raise NotTestable("the state holds no convolution state of layer 0")
        return first

    def _ends(self, block: Block) -> Iterator[tuple[int, int]]:
        """Rows of the block, each with the places that its last token can have in the list."""
        last = len(self.tokens) - 1
        section = next(s for s in self.sections if s.kind == "recurrent")
        most = stored.MOST_SEQUENCES
        told = section.pos[:most].tolist() if section.tables else [last] * min(block.n_cells, most)
        for row, pos in enumerate(told):
            yield from ((row, end) for end in sorted({min(pos, last), last}) if end >= 0)

    def _last(self, end: int, n: int) -> Sample:
        """The last tokens up to a place in the list; `index` counts them, the oldest first."""
        at = np.arange(end - n + 1, end + 1)
        ids = np.where(at >= 0, self.tokens[np.maximum(at, 0)], -1)
        known = np.flatnonzero((ids >= 0) & (ids < self.layer.n_vocab))
        positions = np.zeros((len(known), 4), np.int64)
        positions[:, POSITION] = at[known]
        return Sample(known, ids[known], positions)


def _in_front(rows: Floats, positions: Indices) -> NDArray[np.bool_]:
    """Whether a row is zero at the lowest position: no model computed it.

    It was put in front of a window, where nothing attends to it; none if all rows are zero.
    """
    empty = ~rows.any(axis=1)
    lowest = positions == positions.min()
    return empty & lowest if not empty.all() else np.zeros_like(empty)


def comparison(
    source: Source,
    sections: Sequence[Section],
    tokens: Indices,
    model: ModelFile,
    unfit: list[Unfit],
) -> Comparison:
    """Prepare to compare a state with a model.

    Args:
        source: the file.
        sections: its memory sections.
        tokens: its token list.
        model: the header of the model.
        unfit: rows that are known to be no numbers; more are added.

    Raises:
        NotTestable: if the model is of no architecture whose first layer can be computed.
    """
    keys = Keys(model.architecture, model.metadata)
    recipe = recipe_of(keys)
    if isinstance(recipe, str):
        raise NotTestable(recipe)
    memory = memory_of(model)
    if memory is None:
        raise NotTestable("the metadata do not say how many layers the model has")
    if not len(tokens):
        raise NotTestable("the state has no token list")
    cache = next((cache for cache in memory.caches if 0 in cache.layers), None)
    windowed = cache is not None and cache.kind == "swa"
    recurs = memory.recurrent is not None and 0 in memory.recurrent.layers
    layer = Layer0(keys, Weights(model), recipe, windowed)
    attends = cache is not None
    return Comparison(source, tuple(sections), tokens, layer, attends, recurs, unfit=unfit)


def _check_widths(cells: Cells, forms: tuple[Form, ...]) -> None:
    for block, name, wanted in (
        (cells.k, "keys", {form.k_width for form in forms}),
        (cells.v, "values", {form.v_width for form in forms if form.v_width}),
    ):
        widths = _widths(block) if block is not None else set()
        if widths and wanted and not widths & wanted:
            raise OtherShape(
                f"{name} of {min(widths):,} elements, and those of layer 0 of the model have "
                f"{min(wanted):,}"
            )


def _widths(block: Block) -> set[int]:
    """Elements that a row can have by its type, of types whose numbers can be read."""
    found = {kind.elements(block.row_bytes) for kind in block.readings if kind.name in READABLE}
    return {n for n in found if n is not None}


def _unique(samples: Iterable[Sample]) -> Indices:
    """The distinct pairs of token and position, shape `(n, 2)`."""
    pairs = [np.stack([s.tokens, s.positions[:, POSITION]], axis=1) for s in samples]
    return np.unique(np.concatenate(pairs), axis=0) if pairs else np.zeros((0, 2), np.int64)


def _places(sample: Sample, inputs: Indices) -> Indices:
    """Where the pairs of a sample are among the distinct ones."""
    order = {pair: i for i, pair in enumerate(map(tuple, inputs.tolist()))}
    pairs = zip(sample.tokens.tolist(), sample.positions[:, POSITION].tolist(), strict=True)
    return np.array([order[pair] for pair in pairs], np.int64)
