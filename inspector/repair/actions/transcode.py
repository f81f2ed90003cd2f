"""Caches in the types of the target, turned as the target turns them.

What is lost is rounding, and it is measured. No consent is asked for: a server that computed the
state with these types would have rounded its numbers as well, and the file is left as it is. What
a coarser type has cost before is in the file already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np

from formats.ggml_types import GgmlType
from inspector.arrays.numbers import READABLE, WORDS, Floats, dequantize, magnitudes
from inspector.arrays.quantize import WRITABLE, quantize
from inspector.arrays.rotation import rotate
from inspector.model.expectation import V_ROTATION
from inspector.model.section import SectionExpectation
from inspector.repair.draft import Draft, Step
from inspector.repair.segments import Keep, Rows
from inspector.repair.state import Cache, Refused, Tensor
from inspector.server.target import cache_type
from inspector.source import Unreadable

ACTION = "transcode"
_SAMPLED_BYTES = 256 << 10
"""Bytes of a layer that the error is measured on."""
_SAMPLED_ROWS = 64
_NAMES = {"k": "keys", "v": "values"}


@dataclass(frozen=True)
class Change:
    """What becomes of the rows of one side of a cache.

    Attributes:
        old: their type.
        new: the type of the target.
        undone: elements of the matrix that turned them, 0 for none.
        turned: elements of the matrix that the target turns them with.
    """

    old: GgmlType
    new: GgmlType
    undone: int
    turned: int

    @property
    def nothing(self) -> bool:
        """Whether they stay as they are."""
        return self.old == self.new and self.undone == self.turned

    def rows(self, data: bytes, n_elements: int) -> bytes:
        """Rows in the new type.

        Raises:
            Unreadable: if numbers are not finite, or not in the new type.
        """
        if not data:
            return b""
        if not _finite(data, self.old):
            raise Unreadable("it holds numbers that are not finite")
        made = quantize(self.numbers(data, n_elements), self.new).tobytes()
        if not _finite(made, self.new):
            raise Unreadable(f"it holds numbers that are too large for {self.new.name}")
        return made

    def numbers(self, data: bytes, n_elements: int) -> Floats:
        """Rows as numbers, turned as the target turns them."""
        numbers = dequantize(data, self.old, n_elements)
        if self.undone != self.turned:
            numbers = rotate(rotate(numbers, self.undone), self.turned)
        return numbers

    def __str__(self) -> str:
        """In words."""
        old, new = (_turned(*side) for side in ((self.old, self.undone), (self.new, self.turned)))
        return f"{old} becomes {new}"


@dataclass
class _Error:
    """What rounding costs.

    Attributes:
        lost: sum of the squares of all differences.
        held: sum of the squares of all numbers.
    """

    lost: float = 0.0
    held: float = 0.0

    def __str__(self) -> str:
        """Relative to the norm."""
        return f"{100 * sqrt(self.lost / self.held) if self.held else 0.0:.2g} %"


@dataclass
class _Told:
    changes: set[str] = field(default_factory=set)
    errors: dict[str, _Error] = field(default_factory=dict)
    old_bytes: int = 0
    new_bytes: int = 0


def transcode(draft: Draft) -> None:
    """Keys and values, each in the target's type and turned as it turns them."""
    told = _Told()

    def changed(cache: Cache) -> Cache:
        expected = draft.expects(cache.member)
        return cache if expected is None else _changed(draft, cache, expected, told)

    draft.convert(changed)
    if not told.changes:
        return
    found = {side: str(error) for side, error in sorted(told.errors.items()) if error.lost}
    rounding = ", ".join(f"{_NAMES[side]} {error}" for side, error in found.items())
    assert draft.target is not None  # whose caches are known
    draft.take(
        Step(
            ACTION,
            "a server takes rows of its own cache types alone, turned as its build turns quantized "
            "rows: it refuses others, or answers with noise",
            f"{'; '.join(sorted(told.changes))}: {told.old_bytes:,} bytes become "
            f"{told.new_bytes:,}",
            f"rounding: {rounding} of their norm, measured in every layer. A server with these "
            "cache types rounds so itself"
            if rounding
            else None,
            proven="b10229, b11549",
        )
    )


def _changed(draft: Draft, cache: Cache, expected: SectionExpectation, told: _Told) -> Cache:
    """The cache in the types of the target.

    Raises:
        Refused: if that cannot be.
    """
    if not len(cache.cells):
        return cache
    k, n_rot_k = _side(draft, cache, "k", expected, told)
    v, n_rot_v = _side(draft, cache, "v", expected, told)
    rotation = None if n_rot_k is None or n_rot_v is None else (n_rot_k, n_rot_v)
    return replace(cache, k=k, v=v, rotation=rotation)


def _side(
    draft: Draft, cache: Cache, side: str, expected: SectionExpectation, told: _Told
) -> tuple[tuple[Tensor, ...], int | None]:
    """Keys or values in the type of the target, and the matrix that turned them."""
    tensors: tuple[Tensor, ...] = getattr(cache, side)
    name: str | None = getattr(expected, f"type_{side}")
    stored = cache.rotation["kv".index(side)] if cache.rotation is not None else None
    assert draft.target is not None  # whose caches are known
    new = cache_type(name, draft.target.build) if name else None
    if not tensors or new is None:
        return tensors, stored
    wanted = _rotation(draft, tensors, new, getattr(expected, f"n_rot_{side}"), stored)
    if all(tensor.kind == new for tensor in tensors) and stored == wanted:
        return tensors, stored
    if stored is None or wanted is None:
        raise Refused(
            f"whether the {_NAMES[side]} of {cache.member} are rotated is not known: name the "
            "model with --model"
        )
    changes = [_change(tensor, new, (stored, wanted), cache.member) for tensor in tensors]
    error = told.errors.setdefault(side, _Error())
    for tensor, change in zip(tensors, changes, strict=True):
        if not change.nothing:
            _measure(tensor, change, error)
            told.changes.add(f"{_NAMES[side]} of {cache.member}: {change}")
    made = tuple(transcoded(t, change) for t, change in zip(tensors, changes, strict=True))
    told.old_bytes += sum(tensor.row_bytes * tensor.n_cells for tensor in tensors)
    told.new_bytes += sum(tensor.row_bytes * tensor.n_cells for tensor in made)
    return made, wanted


def _rotation(
    draft: Draft, tensors: tuple[Tensor, ...], new: GgmlType, expected: int, stored: int | None
) -> int | None:
    """Elements of the matrix that the target turns such rows with; None if that is not known."""
    assert draft.target is not None  # whose caches are known
    if draft.target.memory is not None:
        return expected
    if new.block_elements == 1 or not (
        draft.target.build.has("rotation") and draft.target.rotation
    ):
        return 0
    elements = [(t.kind and t.kind.elements(t.row_bytes)) or 0 for t in tensors]
    if all(n % V_ROTATION for n in elements):
        return 0
    same = all(tensor.kind == new for tensor in tensors)
    return stored if same and draft.form.rotation else None


def _change(tensor: Tensor, new: GgmlType, rotation: tuple[int, int], member: str) -> Change:
    """What becomes of a tensor.

    Raises:
        Refused: if its numbers are not known, or cannot be of that type.
    """
    old, (undone, turned) = tensor.kind, rotation
    if old is None or old.name not in READABLE or old.row_prefix_bytes:
        name = old.name if old is not None else f"type {tensor.type_id}"
        raise Refused(f"{member} holds {name}, whose numbers are not known")
    change = Change(old, new, undone, turned)
    if change.nothing:
        return change
    n_elements = old.elements(tensor.row_bytes) or 0
    if new.name not in WRITABLE:
        raise Refused(f"{new.name} is not written")
    if n_elements % new.block_elements or (undone and n_elements % undone):
        raise Refused(f"rows of {n_elements:,} elements are no whole number of {new.name} blocks")
    if turned and n_elements % turned:
        raise Refused(f"rows of {n_elements:,} elements cannot be turned by {turned}")
    if tensor.element_bytes and (new.block_elements > 1 or undone or turned):
        raise Refused(f"values of {member} are stored channel by channel")
    return change


def transcoded(tensor: Tensor, change: Change) -> Tensor:
    """The tensor in its new type, computed when it is read."""
    if change.nothing:
        return tensor
    old, new = change.old, change.new
    n_elements = old.elements(tensor.row_bytes) or 0
    row_bytes = n_elements // new.block_elements * new.block_bytes
    made = replace(tensor, type_id=new.id, kind=new, row_bytes=row_bytes)
    if tensor.element_bytes:  # a line holds one channel of all cells
        n_lines, length = n_elements, tensor.n_cells
        sizes = length * old.block_bytes, length * new.block_bytes
        made = replace(made, element_bytes=new.block_bytes)
    else:
        n_lines, length, sizes = tensor.n_cells, n_elements, (tensor.row_bytes, row_bytes)
    rows = Rows(tensor.content, sizes, n_lines, lambda data: change.rows(data, length), ACTION)
    return replace(made, content=(rows,))


def _measure(tensor: Tensor, change: Change, error: _Error) -> None:
    """Add what rounding costs some rows of a tensor.

    Raises:
        Refused: if their numbers are not finite.
    """
    n_elements = change.old.elements(tensor.row_bytes) or 0
    length = tensor.n_cells if tensor.element_bytes else n_elements
    if not length:
        return
    for data in _sample(tensor, length * change.old.block_bytes // change.old.block_elements):
        try:
            made = change.rows(data, length)
        except Unreadable as reason:
            raise Refused(str(reason)) from reason
        numbers = change.numbers(data, length).astype(np.float64)
        error.held += float(np.sum(numbers * numbers))
        numbers -= dequantize(made, change.new, length)
        error.lost += float(np.sum(numbers * numbers))


def _sample(tensor: Tensor, line_bytes: int) -> Iterator[bytes]:
    """Some lines of a tensor, from all over it where that costs nothing."""
    reader = tensor.reader()
    n_lines = reader.size // line_bytes if line_bytes else 0
    n = min(n_lines, _SAMPLED_ROWS, max(1, _SAMPLED_BYTES // max(1, line_bytes)))
    if n == n_lines or not all(isinstance(s, Keep | Rows) for s in reader.content):
        yield reader.read_at(0, n * line_bytes)
        return
    for line in np.linspace(0, n_lines - 1, n).astype(int).tolist():
        yield reader.read_at(line * line_bytes, line_bytes)


def _finite(data: bytes, kind: GgmlType) -> bool:
    infinite = WORDS[kind.name].infinite
    return all(not len(words) or words.max() < infinite for words in magnitudes(data, kind))


def _turned(kind: GgmlType, rotation: int) -> str:
    return f"{kind.name} rotated by {rotation}" if rotation else kind.name
