"""Independent facts about one reading: what must hold if the bytes really are what a layout says.

Structure is evidence only where it could have been otherwise: a type id that exists, a row of
whole blocks, cells
that count as they should. Skipped payload is no evidence.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from formats.bodies.attention import N_LAYER
from formats.bodies.cells import N_SEQ
from formats.bodies.dsv4 import DSV4_MAGIC
from formats.envelopes.tokens import PACKED_MARKER
from formats.ggml_types import TYPES
from formats.layout import Layout
from inspector.decode import Decoding
from inspector.mend import unmarked
from inspector.node import Kind, Node, Rows, walk
from inspector.sections import Block, Section, section_nodes, section_of
from inspector.tokens import tokens_of

_SAMPLE = 64
_MOST_CELLS = 8
"""What cells can weigh: a few that count as they should are evidence, a thousand are no more."""
_LARGEST_ROTATION = 4096
_MOSTLY = 0.9
"""A text of numbers with a damaged digit is still one."""
_TAG = 4
_VERSION = 2
_CELLS_FOR_TOKENS = 2
AS_MANY_CELLS = "cells, as many as tokens"
_MOST_RECORDS = 4096
"""The largest limit of a known writer; a longer list is a slot file that looks like one."""
_BLOCK_HEAD = struct.Struct("<iQ")
_TRANSPOSED_HEAD = struct.Struct("<iII")
_ELEMENT_BYTES = {t.id: t.block_bytes for t in TYPES if t.block_elements == 1}


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that holds or fails at one place.

    Attributes:
        offset: where it is read.
        path: of the node.
        says: what should hold.
        holds: whether it does.
        actual: what is there instead, for a fact that fails.
        weight: how much it counts.
        structural: whether the bytes are laid out otherwise if it fails, or only say something odd.
    """

    offset: int
    path: str
    says: str
    holds: bool
    actual: str = ""
    weight: int = 1
    structural: bool = True


Judged = dict[tuple[int, str], tuple[Node, Section, tuple[Fact, ...]]]
"""Sections whose facts were found: (members, path) -> record, section, facts.

Readings that share a section share its members.
"""


def facts(
    decoding: Decoding, peek: Callable[[int, int], bytes], judged: Judged | None = None
) -> tuple[Fact, ...]:
    """The facts of a reading, in file order.

    Args:
        decoding: the reading.
        peek: reads so many bytes at an offset.
        judged: sections of other readings of this source; more are added.
    """
    root, judged = decoding.root, {} if judged is None else judged
    found = [*_head(decoding), *_historic(root), *_tokens(root), *_tagged(root)]
    parts = []
    for path, node in section_nodes(root):
        key = id(node.children), path
        if key not in judged or node.name == "kv_self" or not node.children:
            section = section_of(root, path, node)
            judged[key] = node, section, tuple(_section(section))
        _, part, of_part = judged[key]
        parts.append(part)
        found += of_part
        if part.k and not part.has_values and part.kind != "dsv4":
            found += _no_values(part, peek(part.span.stop, _BLOCK_HEAD.size))
    found += _composition(decoding.layout, tuple(parts))
    found += _as_many_cells(decoding, tuple(parts))
    return tuple(sorted(found, key=lambda fact: fact.offset))


def score(found: Iterable[Fact]) -> int:
    """How much speaks for a reading: what holds less what fails.

    All facts count, not only those before the first that fails: one damaged word leaves the rest
    as good as it was,
    while a wrong layout derails and finds little that holds afterwards.
    """
    return sum(fact.weight if fact.holds else -fact.weight for fact in found)


def _fact(node: Node, path: str, says: str, holds: object, actual: object = "") -> Fact:
    return Fact(node.span.start, path, says, bool(holds), "" if holds else str(actual))


def _head(decoding: Decoding) -> Iterator[Fact]:
    layout, root = decoding.layout, decoding.root
    if (node := root.get("magic")) is not None and layout.magic:
        yield _fact(node, "magic", f"magic {layout.magic!r}", node.meaning is not None, node.value)
    if (node := root.get("version")) is not None and layout.version is not None:
        holds = node.value == layout.version
        says, actual = f"version {layout.version}", "" if holds else str(node.value)
        yield Fact(node.span.start, "version", says, holds, actual, _VERSION, structural=False)
    if root.role == "checkpoints" and (node := root.get("count")) is not None:
        count = node.value if isinstance(node.value, int) else 0
        says, actual = f"at most {_MOST_RECORDS} records", str(count)
        weight = _TAG if count else 1
        yield Fact(node.span.start, "count", says, count <= _MOST_RECORDS, actual, weight)
    for name in ("qnext_state", "dsa_indexer_state"):
        if (node := root.get(name)) is not None:
            yield _fact(node, name, "0 or 1", node.value in (0, 1), node.value)
    if (node := root.get("size_t_size")) is not None:
        yield _fact(
            node, "size_t_size", "a size_t of 4 or 8 bytes", node.value in (4, 8), node.value
        )


def _historic(root: Node) -> Iterator[Fact]:
    """What stood in front of the memory once: hyper-parameters, the state of a random generator."""
    hparams = root.get("hparams")
    if hparams is not None and (node := hparams.get("n_layer")) is not None:
        good = 1 <= hparams.number("n_layer") <= N_LAYER
        yield _fact(node, "hparams.n_layer", f"1 to {N_LAYER} layers", good, node.value)
    if (rng := root.get("rng")) is not None:
        node = rng.get("text") or rng
        if isinstance(node.value, str):
            n_decimal = sum(map(node.value.count, "0123456789 "))
            says, decimal = "decimal numbers", n_decimal > _MOSTLY * len(node.value)
            yield _fact(node, "rng", says, decimal, f"{node.value[:16]!r}…")


def _tokens(root: Node) -> Iterator[Fact]:
    tokens = root.get("tokens")
    if tokens is None:
        return
    if tokens.kind is not Kind.RECORD:
        yield from _plain(tokens)
        return
    for name, expected in (("marker", PACKED_MARKER), ("version", 1)):
        if (node := tokens.get(name)) is not None:
            yield _fact(
                node, f"tokens.{name}", f"{name} {expected}", node.value == expected, node.value
            )
    if (node := tokens.get("padding")) is not None:
        yield _fact(
            node,
            "tokens.padding",
            "at most three bytes of padding",
            len(node.span) < 4,
            len(node.span),
        )


def _plain(tokens: Node) -> Iterator[Fact]:
    """A plain list does not begin as packed tokens do: it would be their frame."""
    rows = tokens.value if isinstance(tokens.value, Rows) else None
    ids = rows.first(2)["value"].tolist() if rows is not None else []
    first = unmarked(rows) if rows is not None else None
    if first is not None or (ids[:1] == [PACKED_MARKER] and ids[1:] in ([], [1])):
        says = "a token list, not the frame of one"
        yield Fact(tokens.span.start, "tokens", says, False, str(ids), _MOST_CELLS)


def _tagged(root: Node) -> Iterator[Fact]:
    if (block := root.get("dsv4")) is not None:
        for name, expected in (("magic", DSV4_MAGIC), ("version", 1)):
            if (node := block.get(name)) is not None:
                holds = node.value == expected
                actual = "" if holds else str(node.value)
                yield Fact(
                    node.span.start, f"dsv4.{name}", f"{name} {expected}", holds, actual, _TAG
                )


def _section(section: Section) -> Iterator[Fact]:
    path = section.path
    if (node := section.node.get("n_stream")) is not None:
        yield _fact(
            node,
            f"{path}.n_stream",
            f"1 to {N_SEQ} streams",
            1 <= section.n_stream <= N_SEQ,
            section.n_stream,
        )
    for at, node in walk(section.node, path):
        name = node.name
        if isinstance(node.value, Rows) and len(node.value):
            yield from _cells(node, at, node.value)
        elif name in ("v_trans", "qnext_state", "dsa_indexer_state", "present", "has_index"):
            yield _fact(node, at, "0 or 1", node.value in (0, 1), node.value)
        elif name == "v_state":
            yield _fact(node, at, "0, 1 or 2", node.value in (0, 1, 2), node.value)
        elif name == "n_layer":
            good = 1 <= int(str(node.value)) <= N_LAYER or section.path.startswith("dsv4")
            yield _fact(node, at, f"1 to {N_LAYER} layers", good, node.value)
        elif name == "s_trans":
            yield _fact(node, at, "0", node.value == 0, node.value)
        elif name in ("n_rot_k", "n_rot_v"):
            size = node.value if isinstance(node.value, int) else -1
            good = size == 0 or (size & (size - 1) == 0 and 2 <= size <= _LARGEST_ROTATION)
            says = "0 or a power of two that divides a row"
            blocks = section.k if name == "n_rot_k" else section.v
            widths = [b.readings[0].elements(b.row_bytes) for b in blocks if b.readings]
            good = good and (size == 0 or all(not (width or 0) % size for width in widths))
            if _of_floats(section, blocks):
                good, says = size == 0, "0: rows that are not quantized are not rotated"
            yield _fact(node, at, says, good, size)
    for block in section.blocks:
        found = block.readings
        whole = bool(found) or block.row_bytes == 0
        if section.marks_absent:
            whole = bool(found) and _holds_rows(section, block)
        if block.element_bytes:
            whole = any(
                t.block_elements == 1 and t.block_bytes == block.element_bytes for t in found
            )
        if section.kind == "recurrent":
            whole = whole and block.type_id == 0
        says = "a known type, and a row of whole blocks of it"
        actual = f"type {block.type_id}, row of {block.row_bytes} bytes"
        yield Fact(block.span.start, block.path, says, whole, "" if whole else actual)


def _holds_rows(section: Section, block: Block) -> bool:
    """Whether a block has a size, and that of a recurrent layer a sequence."""
    return block.row_bytes > 0 and (section.kind != "recurrent" or block.n_cells > 0)


def _of_floats(section: Section, blocks: tuple[Block, ...]) -> bool:
    """Whether these are rows of a cache that is only rotated if it is quantized: no indexer."""
    types = [block.readings for block in blocks]
    floats = all(found and found[0].block_elements == 1 for found in types)
    return bool(types) and floats and section.kind in ("attention", "swa")


def _no_values(section: Section, following: bytes) -> Iterator[Fact]:
    """A cache without values is not followed by what opens a block of values like its keys.

    Nor by the beginning of that, where the file ends soon.
    """
    last = section.k[-1]
    alike = _BLOCK_HEAD.pack(last.type_id, last.row_bytes)
    values = following == alike
    if len(following) == _BLOCK_HEAD.size:
        type_id, element, channels = _TRANSPOSED_HEAD.unpack(following)
        values = values or (channels > 1 and element == _ELEMENT_BYTES.get(type_id))
    elif following.strip(b"\0"):
        transposed = _TRANSPOSED_HEAD.pack(last.type_id, _ELEMENT_BYTES.get(last.type_id, 0), 0)
        values = alike.startswith(following) or transposed.startswith(following[:8])
    if values:
        where, actual = section.span.stop, f"a block of type {last.type_id}"
        yield Fact(where, section.path, "no values behind the keys", False, actual, _MOST_CELLS)


def _cells(node: Node, path: str, rows: Rows) -> Iterator[Fact]:
    import numpy as np

    names = [name for name, _ in rows.fields]
    if "pos" not in names:
        return
    if "n_seq_id" not in names:
        return
    ends = rows.first(_SAMPLE), rows.last(_SAMPLE)
    pos, n_seq_id = (
        np.concatenate([end[name] for end in ends], dtype=np.int64) for name in ("pos", "n_seq_id")
    )
    if path.startswith("kv_self."):  # versions 2 to 4 store the cells that hold nothing too
        used = (n_seq_id != 0) | (pos != -1)
        pos, n_seq_id = pos[used], n_seq_id[used]
    if rows.ragged:
        what, good = "n_seq_id of at least 1", (n_seq_id >= 1) & (n_seq_id <= N_SEQ)
    else:
        expected = int("seq_id" in names)
        what, good = f"n_seq_id {expected}", n_seq_id == expected
    where, says = f"{path}.n_seq_id", f"{what} in every cell"
    if n_good := int(good.sum()):
        yield Fact(node.span.start, where, says, holds=True, weight=min(n_good, _MOST_CELLS))
    if n_bad := len(good) - n_good:
        actual = str(n_seq_id[~good][0])
        yield Fact(node.span.start, where, says, False, actual, min(n_bad, _MOST_CELLS))
    x = np.concatenate([end["x"] for end in ends]) if "x" in names else pos[:0]
    if len(x) and np.count_nonzero(x == pos) * 2 >= len(pos):
        yield _fact(node, f"{path}.x", "x equal to pos", holds=True)
    says, lowest = "positions that are not negative", int(pos.min(initial=0))
    actual = "" if lowest >= 0 else str(lowest)
    yield Fact(node.span.start, f"{path}.pos", says, lowest >= 0, actual, structural=False)


def _composition(layout: Layout, parts: tuple[Section, ...]) -> Iterator[Fact]:
    memory = layout.memory
    by_kind = {part.kind: part for part in reversed(parts)}
    attention, recurrent = by_kind.get("attention"), by_kind.get("recurrent")
    for part in parts:
        without = part.kind not in ("recurrent", "dsv4") and part.cells and not part.has_values
        if without and not part.k and memory != "dsv4":
            says = "keys that show that there are no values"
            yield Fact(part.span.stop, part.path, says, holds=False, actual="none")
    if memory == "iswa-partial" and "swa" in by_kind:
        yield from _holds_a_past(by_kind["swa"])
    if memory in ("kv", "iswa") and attention is not None:
        yield from _holds_a_past(attention)
        if layout.format == "blob" and memory == "kv" and (attention.pos_min or 0) > 0:
            says, actual = "cells from position 0 on", f"position {attention.pos_min}"
            yield _fact(attention.node, attention.path, says, holds=False, actual=actual)
    if memory in ("iswa-partial", "dsa-iswa-partial", "hybrid-iswa-partial") and "swa" in by_kind:
        yield from _moved_window(by_kind["swa"])
    if memory == "recurrent" and recurrent is not None:
        sequences = _sequences(recurrent)
        few = recurrent.cells <= sequences
        says, actual = "one cell a sequence", "" if few else f"{recurrent.cells} cells"
        where, path = recurrent.span.start, recurrent.path
        yield Fact(where, path, says, few, actual, structural=False)
    if memory in ("hybrid-ple", "hybrid-ple-partial") and recurrent is not None:
        history = any(node.name == "ple_row_size" for _, node in walk(recurrent.node))
        yield _fact(recurrent.node, recurrent.path, "an n-gram embedding history", history)
    if memory in ("dsa", "dsa-iswa", "msa") and "indexer" in by_kind:
        index, says = by_kind["indexer"], "layers with an indexer"
        yield Fact(index.span.stop, index.path, says, bool(index.k), "" if index.k else "none")
    if memory == "msa" and attention is not None and "indexer" in by_kind:
        yield from _indexer_with_values(attention, by_kind["indexer"])


def _as_many_cells(decoding: Decoding, parts: tuple[Section, ...]) -> Iterator[Fact]:
    """A slot's attention cache has a cell for every token."""
    tokens = tokens_of(decoding.root)
    if decoding.layout.format == "ggsq" and parts and parts[0].kind == "attention":
        says, cells = f"{tokens.count} {AS_MANY_CELLS}", parts[0].declared_cells
        actual = "" if cells == tokens.count else f"{cells} cells"
        path = parts[0].path
        counts = (node for _, node in walk(parts[0].node) if node.name == "cell_count")
        where = next(counts, parts[0].node).span.start
        yield Fact(where, path, says, not actual, actual, _CELLS_FOR_TOKENS, structural=False)


def _moved_window(swa: Section) -> Iterator[Fact]:
    """A window that does not begin at 0 shows what it is; one that does looks like any cache."""
    moved = (swa.pos_min or 0) > 0
    yield _fact(swa.node, swa.path, "a window that has moved", moved, f"position {swa.pos_min}")


def _holds_a_past(attention: Section) -> Iterator[Fact]:
    """An attention cache keeps a cell for every position; a lone late cell of F32 is a state."""
    late = attention.declared_cells == 1 and (attention.pos_min or 0) > 0
    only_f32 = bool(attention.blocks) and all(block.type_id == 0 for block in attention.blocks)
    if attention.declared_cells and attention.cells <= N_SEQ and only_f32:
        late = late or ((attention.pos_min or 0) > 0 and attention.cells == _sequences(attention))
    actual = f"{attention.cells} cells from position {attention.pos_min}" if late else ""
    yield _fact(
        attention.node, attention.path, "cells of the past", not (late and only_f32), actual
    )


def _sequences(section: Section) -> int:
    """Sequences that own the cells; 1 for a seq save without ids."""
    seen = {seq for table in section.tables for seq in table.items().tolist()}
    return max(1, len(seen))


def _indexer_with_values(attention: Section, index: Section) -> Iterator[Fact]:
    smaller = max((b.row_bytes for b in index.k), default=0) < max(
        (b.row_bytes for b in attention.k), default=0
    )
    yield _fact(index.node, index.path, "rows of one small head", smaller)
    fewer = (index.n_layer or 0) < (attention.n_layer or 0)
    yield _fact(index.node, index.path, "fewer layers than the attention cache", fewer)
    yield _fact(
        index.node,
        index.path,
        "as many cells as the attention cache",
        index.cells == attention.cells,
    )
