"""One word away: the single changed word with which a damaged file would be whole.

A file that stops early is either cut or has a word that lies. Where another value of one count,
flag, type or size makes a layout explain the file to its exact end, with every other fact in its
favour, the word is the damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from struct import Struct

from formats.bodies.attention import N_LAYER
from formats.envelopes.tokens import PACKED_MARKER
from formats.ggml_types import ABSENT, known
from inspector.hints import Hints, hints
from inspector.node import Kind, Node, Rows, join, walk
from inspector.source import Source
from inspector.span import Span

_COUNTS = (
    "n_token_count",
    "n_tokens",
    "n_stream",
    "cell_count",
    "n_layer",
    "count",
    "n_media",
    "s_rows",
)
_FLAGS = ("v_trans", "v_state", "s_trans", "qnext_state", "dsa_indexer_state")
_ROTATIONS = ("n_rot_k", "n_rot_v")
_SIZES = (
    "k_type",
    "v_type",
    "type",
    "s_type",
    "k_size_row",
    "v_size_row",
    "s_size_row",
    "row_size",
    "v_size_el",
    "n_embd_v_gqa",
)
Points = tuple[int, int]
"""How much speaks for a reading, and the negative number of blocks that are not as the others."""
_BLOCK = Struct("<iQ")
_HEAD = 8
"""Bytes in front of the last size of a block: the block is where the trouble is."""
_MOST_WORDS = 12
_MOST_SIZES = 6
_MOST_ALIKE = 16
"""Words of the same name whose values are tried."""
_MOST_CELLS = 4
_CELLS_READ = 1 << 20
"""Bytes of cells up to which the odd ones are looked for."""
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


def mends(source: Source, root: Node, trouble: int, found: Hints) -> Iterator[Mend]:
    """Words worth another value in a reading that went wrong at offset `trouble`.

    Counts and flags before it, the sizes next to it, and words in cells and in front of tokens.
    """
    fields = [
        (path, node)
        for path, node in walk(root)
        if node.kind is Kind.FIELD
        and isinstance(node.value, int)
        and node.name in _COUNTS + _FLAGS + _ROTATIONS + _SIZES
        and node.span.start <= trouble + (_HEAD if node.name in _SIZES else 0)
    ]
    recurrent = [path for path, node in walk(root) if node.role == "recurrent"]
    named = (node.value for _, node in walk(root) if node.name in _SIZES and "type" in node.name)
    types = {one for one in named if isinstance(one, int) and (known(one) or one == ABSENT)}
    by_path, tokens = dict(fields), root.get("tokens")
    n_tokens = 0 if tokens is None else tokens.number("n_tokens", len(tokens.span) // 4)
    words = [pair for pair in fields if pair[1].name not in _SIZES][-_MOST_WORDS:]
    sizes = [pair for pair in fields if pair[1].name in _SIZES][-_MOST_SIZES:]
    for path, node in reversed(words + sizes):
        stored = int(node.value)  # type: ignore[arg-type]
        values = _other_values(node, stored, fields, n_tokens, types)
        least = ABSENT if node.name.endswith("type") else 0
        if node.name == "n_layer" and path.rpartition(".")[0] in recurrent:
            values |= _ENOUGH  # counts layers of the model: any that are not fewer fit
        for value in values | hints(source, path, by_path, found):
            if value != stored and least <= value < 1 << (8 * len(node.span) - 1):
                yield Mend(path, node.span, stored, value)
    for path, node in walk(root):
        if isinstance(node.value, Rows) and node.span.start <= trouble:
            yield from _owners(path, node.value, trouble)
    yield from _marker(tokens)
    yield from _behind_a_run(root, trouble, source)


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
    if len(cells.span) > _CELLS_READ:
        return
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


def _behind_a_run(root: Node, end: int, source: Source) -> Iterator[Mend]:
    """The type of the block behind the last of an indexer of ik_llama.cpp.

    Nothing says how many there are: one whose type cannot be looks like other bytes.
    """
    indexer = root.get("indexer")
    blocks = indexer.get("k") if indexer is not None else None
    if blocks is None or not blocks.children or blocks.span.stop != end:
        return
    last = blocks.children[-1]
    data = source.read_at(end, _BLOCK.size)
    if len(data) < _BLOCK.size:
        return
    stored, size = _BLOCK.unpack(data)
    if size == last.number("k_size_row") and stored != last.number("k_type"):
        path = f"indexer.k[{len(blocks.children)}].k_type"
        yield Mend(path, Span(end, end + 4), stored, last.number("k_type"))


def _other_values(
    node: Node,
    stored: int,
    fields: Iterable[tuple[str, Node]],
    n_tokens: int,
    types: set[int],
) -> set[int]:
    named = [int(str(other.value)) for _, other in fields if other.name == node.name]
    siblings = set(named[-_MOST_ALIKE:])
    if node.name in _FLAGS:
        return {0, 1, 2} if node.name == "v_state" else {0, 1}
    if node.name in _ROTATIONS:
        return {0, 64, 128, 256} | siblings
    if node.name in _SIZES:
        kind = node.name.rpartition("_")[2]
        if kind == "type":  # of a recurrent block it is F32
            return types | {0} if node.name in ("type", "s_type") else types
        alike = {int(str(other.value)) for _, other in fields if other.name.endswith(kind)}
        return alike | {stored // 2, 2 * stored}
    values = siblings | {stored - 1, stored + 1, 1}
    if node.name == "n_layer" and not stored % 2:  # keys and values that pass for keys of more
        values |= {stored // 2}
    return values | {n_tokens} if node.name == "cell_count" else values


def single_mend(
    source: Source,
    root: Node,
    trouble: int,
    whole: Callable[[Mend], Points | None],
    found: Hints,
) -> tuple[Points, Mend] | None:
    """The best word to change in one reading.

    Args:
        source: what was read.
        root: the tree of the reading.
        trouble: where it went wrong.
        whole: how well the file reads with a word changed; None if it is not whole then.
        found: what the bytes behind words suggested in other readings.

    Returns:
        How well, and the word, of equal ones that which changes least, with the other values that
        it can have as well; None if none helps.
    """
    tried = ((whole(mend), mend) for mend in mends(source, root, trouble, found))
    helping = [(points, mend) for points, mend in tried if points is not None]
    best = max(helping, key=lambda pair: (pair[0], -pair[1].change), default=None)
    if best is None:
        return None
    points, word = best
    alike = {mend.value for well, mend in helping if (mend.span, well) == (word.span, points)}
    rivals = (mend for well, mend in helping if well == points and mend.span != word.span)
    others = tuple(sorted(alike - {word.value}))
    return points, replace(word, others=others, rival=next(rivals, None))


def has_its_like(root: Node, path: str) -> bool:
    """Whether another block has the type and the sizes of the one that the word at `path` is of.

    What is told of a type by its row size alone is little: most sizes fit several.
    """
    blocks = [
        (at, tuple(child.value for child in node.children if child.kind is Kind.FIELD))
        for at, node in walk(root)
        if any(child.name in ("k_type", "v_type") for child in node.children)
    ]
    own = path.rpartition(".")[0]
    words = dict(blocks).get(own)
    return any(other == words for at, other in blocks if at != own)
