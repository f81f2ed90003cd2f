"""One word away: the single changed word with which a damaged file would be whole.

A file that stops early is either cut or has a word that lies. Where another value of one count,
flag, type or size makes
a layout explain the file to its exact end, with every other fact in its favour, the word is the
damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from inspector.node import Kind, Node, walk
from inspector.source import Source
from inspector.span import Span

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
_MOST_WORDS = 12
_MOST_SIZES = 3


@dataclass(frozen=True, slots=True)
class Mend:
    """A word and the value with which the file would be whole.

    Attributes:
        path: of the field.
        span: its bytes.
        stored: what is there.
        value: what makes the file whole.
    """

    path: str
    span: Span
    stored: int
    value: int

    @property
    def change(self) -> int:
        """How far apart the two are."""
        return abs(self.value - self.stored)

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


def mends(root: Node, trouble: int) -> Iterator[Mend]:
    """Words worth another value in a reading that went wrong at offset `trouble`.

    Counts and flags before it, and the sizes next to it.
    """
    fields = [
        (path, node)
        for path, node in walk(root)
        if node.kind is Kind.FIELD
        and isinstance(node.value, int)
        and node.span.start <= trouble
        and node.name in _COUNTS + _FLAGS + _ROTATIONS + _SIZES
    ]
    tokens = root.get("tokens")
    n_tokens = 0 if tokens is None else tokens.number("n_tokens", len(tokens.span) // 4)
    words = [pair for pair in fields if pair[1].name not in _SIZES][-_MOST_WORDS:]
    sizes = [pair for pair in fields if pair[1].name in _SIZES][-_MOST_SIZES:]
    for path, node in reversed(words + sizes):
        stored = int(node.value)  # type: ignore[arg-type]
        for value in _other_values(node, stored, fields, n_tokens):
            if value != stored and 0 <= value < 1 << (8 * len(node.span) - 1):
                yield Mend(path, node.span, stored, value)


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
    return values | {n_tokens} if node.name == "cell_count" else values


def single_mend(
    root: Node, trouble: int, whole: Callable[[Mend], int | None]
) -> tuple[int, Mend] | None:
    """The best word to change in one reading.

    Args:
        root: the tree of the reading.
        trouble: where it went wrong.
        whole: how well the file reads with a word changed; None if it is not whole then.

    Returns:
        How well, and the word, of equal ones that which changes least; None if none helps.
    """
    found = [(points, mend) for mend in mends(root, trouble) if (points := whole(mend)) is not None]
    return max(found, key=lambda pair: (pair[0], -pair[1].change), default=None)
