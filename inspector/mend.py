"""One word away: the single changed word with which a damaged file would be whole.

A file that stops early is either cut or has a word that lies. Where another value of one count,
flag, type or size makes a layout explain the file to its exact end, with every other fact in its
favour, the word is the damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from formats.bodies.attention import N_LAYER
from formats.envelopes.tokens import PACKED_MARKER
from inspector.node import Kind, Node, Rows, join, walk
from inspector.source import Source
from inspector.span import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_COUNTS = ("n_token_count", "n_tokens", "n_stream", "cell_count", "n_layer", "count", "n_media")
_FLAGS = ("v_trans", "v_state", "s_trans", "qnext_state", "dsa_indexer_state")
_ROTATIONS = ("n_rot_k", "n_rot_v")
_SIZES = (
    "k_type",
    "v_type",
    "type",
    "k_size_row",
    "v_size_row",
    "row_size",
    "v_size_el",
    "n_embd_v_gqa",
)
_CELL_WORDS = (2, 3, 5, 6)
"""Words of a cell: position, number of sequences, coordinates and token of some, its sequence."""
_EXTENSION_WORDS = (0, 2, 3)
_FIRST_CELLS, _CELLS_READ = 1 << 8, 1 << 20
"""Bytes in which cells are looked for at first, and at most."""
_MOST_SEQUENCES = 256
_MOST_WORDS = 12
_MOST_SIZES = 3
_MOST_CELLS = 4
_ENOUGH = {N_LAYER - 1, N_LAYER}
"""As many layers as a recurrent section can have states of."""


@dataclass(frozen=True, slots=True)
class Mend:
    """A word and the value with which the file would be whole.

    Attributes:
        path: of the field.
        span: its bytes.
        stored: what is there.
        value: what makes the file whole.
        others: what makes it whole just as well; what belongs there is not known then.
        rival: another word that makes it whole just as well.
    """

    path: str
    span: Span
    stored: int
    value: int
    others: tuple[int, ...] = ()
    rival: Mend | None = None

    @property
    def change(self) -> int:
        """How far apart the two are."""
        return abs(self.value - self.stored)

    @property
    def choice(self) -> str:
        """What makes the file whole: the values, or another word."""
        if self.rival:
            return f"{self.value:,}, or {self.rival.value:,} as {self.rival.path}"
        values = sorted((self.value, *self.others))
        if set(values) >= _ENOUGH:
            return "any that is large enough"
        return ", ".join(f"{value:,}" for value in values)

    @property
    def data(self) -> bytes:
        """The bytes of the value."""
        return self.value.to_bytes(len(self.span), "little", signed=self.value < 0)


class Patched(Source):
    """A source in which one word reads as something else. The file is not touched.

    Attributes:
        of: the source as it is.
        mend: the word.
    """

    def __init__(self, source: Source, mend: Mend) -> None:
        self.of = source
        self.mend = mend
        self.name, self.size = source.name, source.size

    @property
    def bytes_read(self) -> int:
        """What was read from the system so far."""
        return self.of.bytes_read

    @bytes_read.setter
    def bytes_read(self, value: int) -> None:
        self.of.bytes_read = value

    def read_at(self, offset: int, size: int) -> bytes:
        """As the source reads, with the word replaced."""
        data = self.of.read_at(offset, size)
        span, patch = self.mend.span, self.mend.data
        first, last = max(offset, span.start), min(offset + len(data), span.stop)
        if first >= last:
            return data
        return (
            data[: first - offset]
            + patch[first - span.start : last - span.start]
            + data[last - offset :]
        )

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill a buffer from `offset` on, as far as there are bytes."""
        data = self.read_at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)


def mends(source: Source, root: Node, trouble: int) -> Iterator[Mend]:
    """Words worth another value in a reading that went wrong at offset `trouble`.

    Counts and flags before it, the sizes next to it, and words in cells and in front of tokens.
    """
    fields = [
        (path, node)
        for path, node in walk(root)
        if node.kind is Kind.FIELD
        and isinstance(node.value, int)
        and node.span.start <= trouble
        and node.name in _COUNTS + _FLAGS + _ROTATIONS + _SIZES
    ]
    recurrent = [path for path, node in walk(root) if node.role == "recurrent"]
    tokens = root.get("tokens")
    n_tokens = 0 if tokens is None else tokens.number("n_tokens", len(tokens.span) // 4)
    words = [pair for pair in fields if pair[1].name not in _SIZES][-_MOST_WORDS:]
    sizes = [pair for pair in fields if pair[1].name in _SIZES][-_MOST_SIZES:]
    for path, node in reversed(words + sizes):
        stored = int(node.value)  # type: ignore[arg-type]
        values = _other_values(node, stored, fields, n_tokens)
        if node.name == "cell_count":
            values |= _cells_behind(source, node.span.stop, uneven=not stored)
        if node.name == "n_layer" and path.rpartition(".")[0] in recurrent:
            values |= _ENOUGH  # counts layers of the model: any that are not fewer fit
        for value in values:
            if value != stored and 0 <= value < 1 << (8 * len(node.span) - 1):
                yield Mend(path, node.span, stored, value)
    for path, node in walk(root):
        if isinstance(node.value, Rows) and node.span.start <= trouble:
            yield from _owners(path, node.value, trouble)
    yield from _marker(tokens)


def _owners(path: str, cells: Rows, trouble: int) -> Iterator[Mend]:
    """The few cells that do not say that one sequence owns them, where sequences are named."""
    names = [name for name, _ in cells.fields]
    if not cells.ragged or "n_seq_id" not in names:
        return
    head, place = 4 * len(names), 4 * names.index("n_seq_id")
    if trouble == cells.span.stop + head:  # what it says cannot be
        at, index = cells.span.stop + place, len(cells)
        stored = int.from_bytes(cells.behind(head)[place : place + 4], "little")
        yield Mend(f"{join(path, f'[{index}]')}.n_seq_id", Span(at, at + 4), stored, 1)
    counts = cells.column("n_seq_id")
    odd = (counts != 1).nonzero()[0].tolist()
    for index in odd if len(odd) <= _MOST_CELLS and 2 * len(odd) <= len(counts) else ():
        span, stored = cells.field_span(index, "n_seq_id"), int(counts[index])
        for value in {1, stored - 1, stored + 1} - {stored, 0, -1}:
            yield Mend(f"{join(path, f'[{index}]')}.n_seq_id", span, stored, value)


def _marker(tokens: Node | None) -> Iterator[Mend]:
    """The word in front of packed tokens, where it is another and they pass for a plain list."""
    if tokens is None or not isinstance(tokens.value, Rows):
        return
    if (stored := unmarked(tokens.value)) is not None:
        start = tokens.span.start
        yield Mend("tokens.marker", Span(start, start + 4), stored, PACKED_MARKER)


def unmarked(plain: Rows) -> int | None:
    """The first word of a list that is the frame of packed tokens but for that word; else None."""
    words = [name for name, _ in plain.fields]
    if words != ["value"] or len(plain) <= _FRAME:
        return None
    first = plain.first(_FRAME)["value"].tolist()
    n_tokens = first[2]
    if first[0] == PACKED_MARKER or first[1] != 1 or not 0 < n_tokens <= len(plain) - _FRAME - 1:
        return None
    behind = plain.last(len(plain) - _FRAME - n_tokens)["value"].tolist()
    n_media, starts = behind[0], behind[1:]
    if not n_media:
        return first[0] if not starts else None
    placed = starts[:n_media]
    sound = 0 < n_media < len(starts) and placed == sorted(set(placed))
    return first[0] if sound and placed[0] >= 0 and placed[-1] < n_tokens else None


_FRAME = 3
"""Words in front of the ids of packed tokens: marker, version, n_tokens."""


def _other_values(
    node: Node, stored: int, fields: Iterable[tuple[str, Node]], n_tokens: int
) -> set[int]:
    siblings = {int(str(other.value)) for _, other in fields if other.name == node.name}
    if node.name in _FLAGS:
        return {0, 1, 2} if node.name == "v_state" else {0, 1}
    if node.name in _ROTATIONS:
        return {0, 64, 128, 256} | siblings
    if node.name in _SIZES:
        kind = node.name.rpartition("_")[2]
        alike = {int(str(other.value)) for _, other in fields if other.name.endswith(kind)}
        if kind == "type":  # of a recurrent block it is F32
            return alike | {0} if node.name == "type" else alike
        return alike | {stored // 2, 2 * stored}
    values = siblings | {stored - 1, stored + 1, 1}
    if node.name == "n_layer" and not stored % 2:  # keys and values that pass for keys of more
        values |= {stored // 2}
    return values | {n_tokens} if node.name == "cell_count" else values


def _cells_behind(source: Source, offset: int, *, uneven: bool) -> set[int]:
    """How many rows from `offset` on look like cells: what may be their count.

    Words behind the cells can look like one more.

    Args:
        source: what was read.
        offset: where the cells begin.
        uneven: whether they may be of several sequences.
    """
    found = {_even(source, offset, width) for width in _CELL_WORDS}
    if uneven:
        words = _words(source, offset, _CELLS_READ).tolist()
        found |= {_uneven(words, more) for more in _EXTENSION_WORDS}
    return (found | {n - 1 for n in found}) - {0, -1}


def _words(source: Source, offset: int, size: int) -> NDArray[np.int32]:
    import numpy as np

    data = source.read_at(offset, size)
    return np.frombuffer(data[: len(data) // 4 * 4], "<i4")


def _even(source: Source, offset: int, width: int) -> int:
    """How many rows of so many words look like cells of one sequence at changing positions."""
    import numpy as np

    size = _FIRST_CELLS
    while True:
        words = _words(source, offset, size)
        rows = words[: len(words) // width * width].reshape(-1, width)
        if not len(rows) or not 0 <= rows[0, 1] <= 1:
            return 0
        alike = (rows[:, 0] >= 0) & (rows[:, 1] == rows[0, 1])
        alike[1:] &= np.diff(rows[:, 0]) != 0
        if width > _CELL_WORDS[0]:
            alike &= rows[:, -1] == rows[0, -1]
        n = len(rows) if alike.all() else int(alike.argmin())
        if n < len(rows) or size == _CELLS_READ:
            return n
        size = min(16 * size, _CELLS_READ)


def _uneven(words: list[int], more: int) -> int:
    """How many rows look like cells that name all their sequences, in ascending order.

    Args:
        words: from the first cell on.
        more: words of their extension.
    """
    n = at = 0
    while at + 1 < len(words) and words[at] >= 0 and 0 < words[at + 1] <= _MOST_SEQUENCES:
        first = at + 2 + more
        ids, at = words[first : first + words[at + 1]], first + words[at + 1]
        named = at <= len(words) and ids == sorted(set(ids))
        if not named or not 0 <= ids[0] <= ids[-1] < _MOST_SEQUENCES:
            break
        n += 1
    return n


def single_mend(
    source: Source, root: Node, trouble: int, whole: Callable[[Mend], int | None]
) -> tuple[int, Mend] | None:
    """The best word to change in one reading.

    Args:
        source: what was read.
        root: the tree of the reading.
        trouble: where it went wrong.
        whole: how well the file reads with a word changed; None if it is not whole then.

    Returns:
        How well, and the word, of equal ones that which changes least, with the other values that
        it can have as well; None if none helps.
    """
    tried = ((whole(mend), mend) for mend in mends(source, root, trouble))
    found = [(points, mend) for points, mend in tried if points is not None]
    best = max(found, key=lambda pair: (pair[0], -pair[1].change), default=None)
    if best is None:
        return None
    points, word = best
    alike = {mend.value for well, mend in found if (mend.span, well) == (word.span, points)}
    rivals = (mend for well, mend in found if well == points and mend.span != word.span)
    others = tuple(sorted(alike - {word.value}))
    return points, replace(word, others=others, rival=next(rivals, None))
