"""One view of every checkpoint list: an appendix of a state, or a sidecar's own tree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from formats.sidecars import ik, sckp
from inspector.decode import Decoding, decode
from inspector.node import Kind, Node, join, walk
from inspector.sections import Section, sections
from inspector.source import Source
from inspector.span import Span

_SCKP = sckp.ROWS[0]

_LARGEST_DIGESTED = 32 << 20
"""Bytes; about a second."""


@dataclass(frozen=True)
class Blob:
    """What a record's target blob says, once it was decoded.

    Attributes:
        path: of the blob in the tree of its carrier.
        layout: the id of the layout that it was read as.
        sound: whether that layout explains every byte of it, and no fact speaks against it.
        ended: whether the bytes suffice for that layout.
        prefixed: whether it begins with the eight bytes that upstream writes from b9028 on.
        sections: the memory in it; paths are relative to the blob.
        span: its bytes.
        rest: bytes at its end that the layout does not explain.
    """

    path: str
    layout: str
    sound: bool
    ended: bool
    prefixed: bool
    sections: tuple[Section, ...]
    span: Span
    rest: Span | None


@dataclass(frozen=True)
class CheckpointRecord:
    """One record of a checkpoint list.

    Attributes:
        carrier: name of the file that holds it.
        format: family of the list.
        version: of the family, None if it has none.
        index: place in the list, from 0.
        path: in the tree of the carrier.
        node: its record there.
        n_tokens: tokens of the prompt it returns to; derived where the family does not store it.
        pos_min: lowest position.
        pos_max: highest position.
        span: its bytes, as many as are there.
        n_tgt: declared bytes of the target blob; None if cut before.
        n_dft: of the draft blob; None also where the family has none.
        n_spec: of the third blob; None also where the family has none.
        data_tgt: the target blob; None if it is not there in full.
        data_dft: the draft blob.
        data_spec: the third blob.
        complete: whether every member of the record was read.
        blob: the target blob decoded; None if it was not, or nothing fits it.
    """

    carrier: str
    format: str
    version: int | None
    index: int
    path: str
    node: Node
    n_tokens: int | None
    pos_min: int | None
    pos_max: int | None
    span: Span
    n_tgt: int | None
    n_dft: int | None
    n_spec: int | None
    data_tgt: Span | None
    data_dft: Span | None
    data_spec: Span | None
    complete: bool
    blob: Blob | None

    @property
    def stores_n_tokens(self) -> bool:
        """Whether n_tokens is in the file, rather than derived from positions."""
        return self.node.get("n_tokens") is not None


@dataclass(frozen=True)
class CheckpointList:
    """A checkpoint list.

    Attributes:
        carrier: name of the file that holds it.
        format: family.
        version: of the family, None if it has none.
        path: in the tree of the carrier.
        node: its record there.
        count: records that it claims; None if the head is cut.
        records: those that are there, the last one perhaps cut.
        rest: bytes behind the last record, or behind what could be read of it.
        decoded: whether its blobs were looked into.
    """

    carrier: str
    format: str
    version: int | None
    path: str
    node: Node
    count: int | None
    records: tuple[CheckpointRecord, ...]
    rest: Span | None
    decoded: bool

    @cached_property
    def whole(self) -> tuple[CheckpointRecord, ...]:
        """The records that are complete."""
        return tuple(record for record in self.records if record.complete)

    @property
    def cut(self) -> bool:
        """Whether it ends before its own head and count say."""
        return self.count is None or len(self.whole) < self.count


def checkpoint_list(
    root: Node,
    carrier: str,
    family: str,
    version: int | None,
    *,
    at: str = "",
    decoded: bool = True,
) -> CheckpointList | None:
    """The checkpoint list in a tree, or None if there is none.

    Args:
        root: the tree of a state with an appendix, or of a sidecar.
        carrier: name of the file.
        family: format of the list: `sckp` for an appendix, else the layout's.
        version: version of the family.
        at: path of `root` in the file.
        decoded: whether the blobs in the tree were looked into, as `identify` does.
    """
    found = next((pair for pair in walk(root, at) if pair[1].role == "checkpoints"), None)
    if found is None:
        return None
    path, node = found
    members: tuple[str, ...] = node.facts["record"]
    series = node.get("records")
    items = [child for child in series.children if child.children] if series is not None else []
    return CheckpointList(
        carrier=carrier,
        format=family,
        version=version,
        path=path,
        node=node,
        count=_number(node, "count"),
        records=tuple(
            _record(
                item, join(path, f"records{item.name}"), carrier, family, version, index, members
            )
            for index, item in enumerate(items)
        ),
        rest=_rest(root, node),
        decoded=decoded,
    )


def appendix_of(source: Source, root: Node, name: str) -> CheckpointList | None:
    """The checkpoints behind the payload of a state; also those whose magic alone is damaged.

    Args:
        source: the state, open.
        root: its tree.
        name: of the file.
    """
    if root.get("appendix") is not None:
        return checkpoint_list(root, name, _SCKP.format, _SCKP.version)
    rest = root.children[-1] if root.children else None
    if rest is None or rest.kind is not Kind.GAP:
        return None
    decoding = decode(source, _SCKP, rest.span)
    if not decoding.complete or decoding.root.number("version") != _SCKP.version:
        return None
    return _undecoded(decoding, name, at="appendix")


def ik_list_of(source: Source, name: str) -> CheckpointList | None:
    """The checkpoints in a file that is one of ik_llama.cpp's lists by its name.

    Its first bytes are those of a state, so a damaged one cannot be told from a damaged state.
    """
    for layout in ik.ROWS:
        head = layout.magic + (layout.version or 0).to_bytes(4, "little")
        if source.read_at(0, len(head)) == head:
            return _undecoded(decode(source, layout, source.whole()), name)
    return None


def _undecoded(decoding: Decoding, name: str, at: str = "") -> CheckpointList | None:
    layout = decoding.layout
    return checkpoint_list(decoding.root, name, layout.format, layout.version, at=at, decoded=False)


def records(
    root: Node, carrier: str, family: str, version: int | None
) -> tuple[CheckpointRecord, ...]:
    """The checkpoint records in a tree; arguments as for `checkpoint_list`."""
    found = checkpoint_list(root, carrier, family, version)
    return found.records if found is not None else ()


def _record(
    node: Node,
    path: str,
    carrier: str,
    family: str,
    version: int | None,
    index: int,
    members: tuple[str, ...],
) -> CheckpointRecord:
    pos_max = _number(node, "pos_max")
    n_tokens = _number(node, "n_tokens")
    prompt_end = _number(node, "pos_max_prompt")
    if n_tokens is None and prompt_end is not None:
        n_tokens = prompt_end + 1
    return CheckpointRecord(
        carrier=carrier,
        format=family,
        version=version,
        index=index,
        path=path,
        node=node,
        n_tokens=n_tokens,
        pos_min=_number(node, "pos_min"),
        pos_max=pos_max,
        span=node.span,
        n_tgt=_number(node, "n_tgt"),
        n_dft=_number(node, "n_dft"),
        n_spec=_number(node, "n_spec"),
        data_tgt=_span(node, "data_tgt"),
        data_dft=_span(node, "data_dft"),
        data_spec=_span(node, "data_spec"),
        complete=tuple(child.name for child in node.children) == members,
        blob=_blob(node, path),
    )


def _blob(record: Node, path: str) -> Blob | None:
    node = record.get("data_tgt")
    if node is None or "layout" not in node.facts:
        return None
    rest = node.children[-1] if node.children else None
    return Blob(
        path=join(path, "data_tgt"),
        layout=node.facts["layout"],
        sound=node.facts["sound"],
        ended=node.facts.get("ended", node.facts["sound"]),
        prefixed=node.get("seq_id") is not None,
        sections=sections(node),
        span=node.span,
        rest=rest.span if rest is not None and rest.kind is Kind.GAP else None,
    )


def _rest(root: Node, node: Node) -> Span | None:
    """The bytes behind a list that nothing explains."""
    gaps = (child for holder in (node, root) for child in holder.children)
    return next((gap.span for gap in gaps if gap.kind is Kind.GAP), None)


def _number(node: Node, name: str) -> int | None:
    child = node.get(name)
    return child.value if child is not None and isinstance(child.value, int) else None


def _span(node: Node, name: str) -> Span | None:
    child = node.get(name)
    return child.span if child is not None else None


_PRIME, _WORD = 0x100000001B3, 0xFFFFFFFFFFFFFFFF
_PIECE = 1 << 15
"""Bytes that are hashed at once."""


def fnv1a(data: bytes, basis: int = 0xCBF29CE484222325) -> int:
    """FNV-1a of 64 bits, some 40 MB a second."""
    if len(data) < _SHORT:
        for byte in data:
            basis = (basis ^ byte) * _PRIME & _WORD
        return basis
    numbers = np.frombuffer(data, np.uint8)
    for at in range(0, len(numbers), _PIECE):
        basis = _hashed(numbers[at : at + _PIECE], basis)
    return basis


_SHORT = 256
"""Bytes up to which one after another is faster."""


def _hashed(data: NDArray[np.uint8], basis: int) -> int:
    """FNV-1a without a loop over the bytes.

    A byte changes only the low byte of the hash before that is multiplied, by an amount that
    depends on nothing but the low byte; and bit k of the low byte is the exclusive or of all that
    went into bit k before, which depends on lower bits alone. With all amounts known the hash is a
    sum.
    """
    low = np.zeros(len(data), np.uint8)  # of the hash and the byte, as far as its bits are known
    for bit in range(8):
        carried = low * np.uint8(_PRIME & 0xFF) >> np.uint8(bit)
        into = (data >> np.uint8(bit) ^ carried) & np.uint8(1)
        state = np.bitwise_xor.accumulate(into)
        state[1:] = state[:-1]
        state[0] = 0
        state ^= np.uint8(basis >> bit & 1)
        low |= ((state ^ (data >> np.uint8(bit))) & np.uint8(1)) << np.uint8(bit)
    amounts = low.astype(np.int64) - (low ^ data)
    powers = _powers()
    total = int((amounts.view(np.uint64) * powers[len(powers) - len(data) :]).sum())
    return (basis * pow(_PRIME, len(data), 1 << 64) + total) & _WORD


@cache
def _powers() -> NDArray[np.uint64]:
    """Powers of the prime, the first one last."""
    found = np.full(_PIECE, _PRIME, np.uint64)
    return np.multiply.accumulate(found)[::-1].copy()


def digest_of(source: Source) -> int | None:
    """FNV-1a of a whole file, which PKCL 2 stores; None if that would take more than a second."""
    return fnv1a(source.read_at(0, source.size)) if source.size <= _LARGEST_DIGESTED else None
