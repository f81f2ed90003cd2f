"""A model file: metadata and tensor directory; long arrays are read only when somebody asks."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from formats.ggml_types import GgmlType
from formats.gguf import (
    ARRAY,
    BOOL,
    GGUF_MAGIC,
    N_DIMENSIONS,
    NUMBERS,
    ROWS,
    STRING,
    TENSOR_TYPES,
    VALUE_TYPE_NAMES,
)
from inspector.decode import decode
from inspector.node import Kind, Node, Rows
from inspector.source import Source
from inspector.span import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHORT = 1024
"""Elements up to which an array is read at once: one per layer fits, a vocabulary does not."""
SHORT_BYTES = 1 << 16
AT_MOST = 1 << 28
"""Bytes that are read of an array of strings at most."""


@dataclass(frozen=True, slots=True)
class Array:
    """A value that was not read: a long array, or the bytes of a long string.

    Attributes:
        type: name of the element's type; `uint8` for the bytes of a long string.
        count: elements.
        span: their bytes.
    """

    type: str
    count: int
    span: Span
    source: Source = field(repr=False)

    def numbers(self) -> NDArray[np.number]:
        """The elements of an array of numbers, shape `(count,)`; fewer if the file shrank."""
        import numpy as np

        code = next(scalar.numpy for name, scalar in NUMBERS.values() if name == self.type)
        data = self.source.read_at(self.span.start, len(self.span))
        dtype = np.dtype(code)
        return np.frombuffer(data[: len(data) - len(data) % dtype.itemsize], dtype)

    def strings(self) -> list[str]:
        """The elements of an array of strings; those behind the first 256 MiB are left out."""
        data = self.source.read_at(self.span.start, min(len(self.span), AT_MOST))
        found, at, unpack = [], 0, struct.Struct("<Q").unpack_from
        for _ in range(self.count):
            if at + 8 > len(data):
                break
            start = at + 8
            at = start + unpack(data, at)[0]
            found.append(data[start:at].decode("utf-8", "replace"))
        return found


Value = int | float | bool | str | tuple[int | float | bool | str, ...] | Array
Metadata = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Tensor:
    """An entry of the tensor directory.

    Attributes:
        name: such as `blk.0.attn_k.weight`.
        dims: elements in each dimension, the length of a row first.
        type_id: ggml type id.
        type: what the id means, None for an unknown one.
        offset: where its bytes start in the file.
        data: its bytes; None for an unknown type, a broken block, or bytes that are not there.
    """

    name: str
    dims: tuple[int, ...]
    type_id: int
    type: GgmlType | None
    offset: int
    data: Span | None

    @property
    def n_bytes(self) -> int | None:
        """Bytes that it has, by its shape; None for an unknown type or a broken block."""
        return _size(self.dims, self.type) if self.type is not None else None


@dataclass(frozen=True, slots=True)
class Cut:
    """Tensors whose bytes are not all there.

    Attributes:
        first: the one that begins first.
        n_tensors: how many there are.
        of: tensors in all.
        size: bytes that the file needs.
        actual: bytes that it has.
    """

    first: Tensor
    n_tensors: int
    of: int
    size: int
    actual: int

    def __str__(self) -> str:
        """In words."""
        return (
            f"the file is cut: {self.n_tensors:,} of {self.of:,} tensors are not all there, "
            f"first {self.first.name}; it has {self.actual:,} bytes of at least {self.size:,}"
        )


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What the header of a model file says.

    Attributes:
        source: the open file, which arrays and tensors are read from.
        version: of the format.
        metadata: key -> number, text, tuple of a short array, or Array.
        tensors: name -> entry, in file order.
    """

    source: Source = field(repr=False)
    version: int
    metadata: Metadata
    tensors: Mapping[str, Tensor]

    @property
    def architecture(self) -> str:
        """`general.architecture`, empty if missing."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) else ""

    @property
    def cut(self) -> Cut | None:
        """What the file ends in front of; None if all tensors are there."""
        return cut_of(tuple(self.tensors.values()), self.source.size)


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a file is no model that llama.cpp would open.

    Attributes:
        reason: for people.
        offset: where the trouble is.
    """

    reason: str
    offset: int


def read_model(source: Source) -> ModelFile | Unusable:
    """Read the header of a model file. Never raises for what the bytes are.

    Args:
        source: the open file; it must stay open for arrays and tensors to be read later.

    Returns:
        The model, or why it cannot be one.
    """
    head = source.read_at(0, 8)
    if head[:4] != GGUF_MAGIC.to_bytes(4, "little"):
        return Unusable("not a GGUF file: it does not begin with GGUF", 0)
    version = int.from_bytes(head[4:], "little")
    layout = next((row for row in ROWS if row.version == version), None)
    if layout is None:
        swapped = int.from_bytes(head[4:], "big") <= 0xFFFF
        return Unusable(
            "a big-endian GGUF file" if swapped else f"GGUF version {version}, which is not read", 4
        )
    decoding = decode(source, layout, source.whole())
    if decoding.stops:
        stop = decoding.stops[-1]
        return Unusable(
            f"{stop.path}: {stop.reason}, {stop.wanted} needed and {stop.available} there",
            stop.offset,
        )
    return model_in(source, version, decoding.root)


def model_in(source: Source, version: int, root: Node) -> ModelFile | Unusable:
    """The model whose header was decoded without a stop.

    Args:
        source: the open file.
        version: of the format.
        root: the tree of the header.
    """
    metadata: dict[str, Value] = {}
    for entry in _children(root, "metadata_kv"):
        key = _text(entry, "key")
        if key in metadata:
            return Unusable(f"the key {key} occurs twice", entry.span.start)
        metadata[key] = _value(source, entry)
    base = _child(root, "tensor_data").span.start
    tensors: dict[str, Tensor] = {}
    for entry in _children(root, "tensor_infos"):
        tensor = _tensor(entry, base, source.size)
        if tensor.name in tensors:
            return Unusable(f"the tensor {tensor.name} occurs twice", entry.span.start)
        tensors[tensor.name] = tensor
    return ModelFile(source, version, metadata, tensors)


def tensors_in(root: Node, size: int) -> tuple[Tensor, ...]:
    """The tensor directory of a header that was decoded without a stop.

    Args:
        root: the tree of the header.
        size: bytes of the file.
    """
    base = _child(root, "tensor_data").span.start
    return tuple(_tensor(entry, base, size) for entry in _children(root, "tensor_infos"))


def cut_of(tensors: tuple[Tensor, ...], size: int) -> Cut | None:
    """What a file of so many bytes ends in front of; None if all tensors are there."""
    ends = [(t, t.offset + (t.n_bytes or 0)) for t in tensors]
    beyond = [t for t, end in ends if end > size]
    if not beyond:
        return None
    first = min(beyond, key=lambda t: t.offset)
    return Cut(first, len(beyond), len(tensors), max(end for _, end in ends), size)


def _child(node: Node, name: str) -> Node:
    found = node.get(name)
    assert found is not None  # the declaration was read to its end
    return found


def _children(node: Node, name: str) -> tuple[Node, ...]:
    return _child(node, name).children


def _text(node: Node, name: str) -> str:
    return str(_child(_child(node, name), "string").value)


def _value(source: Source, entry: Node) -> Value:
    value_type, value = entry.number("value_type"), _child(entry, "value")
    if value_type == STRING:
        return _string(source, _child(value, "string"))
    if value_type == ARRAY:
        return _array(source, value)
    assert isinstance(value.value, int | float)
    return bool(value.value) if value_type == BOOL else value.value


def _string(source: Source, characters: Node) -> Value:
    span = characters.span
    if characters.kind is Kind.PAYLOAD:
        return Array("uint8", len(span), span, source)
    return source.read_at(span.start, len(span)).decode("utf-8", "replace")


def _array(source: Source, value: Node) -> Value:
    element_type, count = value.number("type"), value.number("len")
    span = _child(value, "array").span
    array = Array(VALUE_TYPE_NAMES[element_type], count, span, source)
    if count > SHORT or len(span) > SHORT_BYTES:
        return array
    if element_type == STRING:
        return tuple(array.strings())
    numbers = array.numbers().tolist()
    return tuple(bool(number) for number in numbers) if element_type == BOOL else tuple(numbers)


def _tensor(entry: Node, base: int, file_bytes: int) -> Tensor:
    dims = _dims(entry)
    type_id = entry.number("type")
    kind = TENSOR_TYPES.get(type_id)
    offset = base + entry.number("offset")
    size = _size(dims, kind) if kind is not None else None
    inside = size is not None and offset + size <= file_bytes
    data = Span(offset, offset + size) if size is not None and inside else None
    return Tensor(_text(entry, "name"), dims, type_id, kind, offset, data)


def _dims(entry: Node) -> tuple[int, ...]:
    rows = entry.rows("dimensions")
    assert isinstance(rows, Rows)
    return tuple(rows.first(N_DIMENSIONS)["value"].tolist())


def _size(dims: tuple[int, ...], kind: GgmlType) -> int | None:
    """Bytes of a tensor; None if its rows are no whole number of blocks."""
    blocks, rest = divmod(dims[0] if dims else 1, kind.block_elements)
    if rest:
        return None
    size = blocks * kind.block_bytes + kind.row_prefix_bytes
    for n in dims[1:]:
        size *= n
    return size
