"""What the bytes behind a count or a size suggest as its value, should it be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from formats.envelopes.tokens import PACKED_MARKER
from formats.ggml_types import TYPES
from inspector.node import Node
from inspector.source import Source
from inspector.span import Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CELL_WORDS = (2, 3, 5, 6)
"""Words of a cell: position, number of sequences, coordinates and token of some, its sequence."""
_EXTENSION_WORDS = (0, 2, 3)
_FIRST_CELLS, _READ = 1 << 8, 1 << 20
"""Bytes in which cells are looked for at first; and bytes that are looked at, at most."""
_MOST_SEQUENCES = 256
_MOST_STREAMS = 256
_MOST_ROW_BYTES = 1 << 14
_MOST_LAYERS = 1024
_MOST_PLACES = 4
_HEADER = 12
"""Bytes of a block's type and row size."""
_TYPES = frozenset(kind.id for kind in TYPES)
_OF_MEDIA = -1
"""Stands for a token of an image or of a sound."""
_AROUND_TOKENS = 4
"""Words around packed tokens: marker, version, n_tokens, n_media."""


Hints = dict[tuple[Span, str, int], set[int]]
"""What was found already: by the bytes of a word, its name, and the cells of its section."""


def hints(source: Source, path: str, fields: Mapping[str, Node], found: Hints) -> set[int]:
    """Values that the bytes behind a word suggest; few of them, and none of them is sure.

    Args:
        source: the file.
        path: of the word.
        fields: all words in front of what went wrong, by path.
        found: for other readings of the file; what is found is added.
    """
    node, section = fields[path], path.rpartition(".")[0]
    if node.name in ("k_size_row", "v_size_row"):
        section = section.rpartition(".")[0]
    count = fields.get(f"{section}.cell_count")
    n_cells = 0 if count is None else _number(count)
    key = node.span, node.name, n_cells
    if key not in found:
        found[key] = _suggested(source, node, section, fields, n_cells)
    return found[key]


def _suggested(
    source: Source, node: Node, section: str, fields: Mapping[str, Node], n_cells: int
) -> set[int]:
    stop = node.span.stop
    if node.name == "cell_count":
        return _cells(source, stop, uneven=not node.value)
    if node.name == "n_token_count":
        return _tokens(source, stop)
    if node.name == "n_tokens" and (words := fields.get("n_token_count")) is not None:
        n = _number(words) - _AROUND_TOKENS
        return {n} if _text(source, stop, 4 * n) else set()
    if node.name == "n_media" and (ids := fields.get(f"{section}.n_tokens")) is not None:
        return {0} if _text(source, ids.span.stop, node.span.start - ids.span.stop) else set()
    if not 0 < n_cells <= _READ:
        return set()
    if node.name == "n_layer" and f"{section}.v_trans" in fields:
        return _layers(source, stop, n_cells)
    if node.name in ("k_size_row", "v_size_row") and len(node.span) == _HEADER - 4:
        return _row_bytes(source, stop, n_cells)
    return set()


def _number(node: Node) -> int:
    return node.value if isinstance(node.value, int) else 0


def _words(source: Source, offset: int, size: int) -> NDArray[np.int32]:
    data = source.read_at(offset, size)
    return np.frombuffer(data[: len(data) // 4 * 4], "<i4")


def _text(source: Source, offset: int, size: int) -> bool:
    """Whether these bytes are tokens, none of them of an image or of a sound."""
    return 0 < size <= _READ and bool((_words(source, offset, size) != _OF_MEDIA).all())


def _cells(source: Source, offset: int, *, uneven: bool) -> set[int]:
    """How many rows look like cells; words behind the cells can look like one more.

    Args:
        source: the file.
        offset: where the cells begin.
        uneven: whether they may be of several sequences.
    """
    found = {_even(source, offset, width) for width in _CELL_WORDS}
    if uneven:
        words = _words(source, offset, _READ).tolist()
        found |= {_uneven(words, more) for more in _EXTENSION_WORDS}
    return (found | {n - 1 for n in found}) - {0, -1}


def _even(source: Source, offset: int, width: int) -> int:
    """How many rows of so many words look like cells of one sequence at changing positions."""
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
        if n < len(rows) or size == _READ:
            return n
        size = min(16 * size, _READ)


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


def _tokens(source: Source, offset: int) -> set[int]:
    """Words of tokens behind which as many cells follow, the first at position 0.

    Packed tokens say how many they are.
    """
    words = _words(source, offset, _READ)
    if len(words) > _AROUND_TOKENS and words[0] == PACKED_MARKER:
        return {int(words[2]) + _AROUND_TOKENS}
    n = np.arange(max(0, len(words) - 2))
    one, other, third = words[: len(n)], words[1 : len(n) + 1], words[2 : len(n) + 2]
    bare = (one == n) & (other == 0)
    streamed = (one > 0) & (one <= _MOST_STREAMS) & (other == n) & (third == 0)
    found = np.flatnonzero((bare | streamed) & (n > 0))
    return set(found[:_MOST_PLACES].tolist())


def _row_bytes(source: Source, offset: int, n_cells: int) -> set[int]:
    """Row sizes behind whose rows the same type and that row size stand again.

    Args:
        source: the file.
        offset: where the rows begin; type and row size stand in front.
        n_cells: rows.
    """
    header = source.read_at(offset - _HEADER, 4)
    data = np.frombuffer(source.read_at(offset, _READ), np.uint8)
    most = min(_MOST_ROW_BYTES, (len(data) - _HEADER) // n_cells)
    sizes = np.arange(1, max(1, most + 1))
    places = sizes * n_cells
    alike = np.ones(len(sizes), np.bool_)
    for i, byte in enumerate(header):
        alike &= data[places + i] == byte
    for i in range(_HEADER - 4):
        alike &= data[places + 4 + i] == (sizes >> 8 * i & 0xFF)
    return set(sizes[alike][:_MOST_PLACES].tolist())


def _layers(source: Source, offset: int, n_cells: int) -> set[int]:
    """Blocks that follow one another, or half of them: keys, then as many of values.

    Args:
        source: the file.
        offset: behind the number of layers, where blocks begin or two words in front of them.
        n_cells: rows of a block.
    """
    found = {_chain(source, offset + skipped, n_cells) for skipped in (0, 8)}
    return {n for length in found for n in (length, length // 2)} - {0}


def _chain(source: Source, at: int, n_cells: int) -> int:
    """How many blocks follow one another."""
    for n in range(_MOST_LAYERS):
        header = source.read_at(at, _HEADER)
        kind, size = (int.from_bytes(part, "little") for part in (header[:4], header[4:]))
        at += _HEADER + size * n_cells
        if len(header) < _HEADER or kind not in _TYPES or not size or at > source.size:
            return n
    return _MOST_LAYERS
