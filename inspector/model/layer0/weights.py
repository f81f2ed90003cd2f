"""Numbers of a model's tensors: the rows that are asked for, and no others.

Source: ggml-org/llama.cpp b10587, ggml/src/ggml-quants.c `dequantize_row_q4_K`, `_q5_K`, `_q6_K`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from formats.ggml_types import GgmlType
from inspector.arrays import numbers
from inspector.arrays.numbers import Bytes, Floats

if TYPE_CHECKING:
    from inspector.model.gguf import ModelFile, Tensor

MOST_ELEMENTS = 1 << 26
"""Elements that are read of one tensor; the largest known layer needs a quarter."""
_CHUNK = 1 << 21
"""Elements that are dequantized at once."""


class NotTestable(Exception):
    """Why layer 0 cannot be recomputed or compared, for people."""


def _halves(blocks: Bytes, at: int) -> Floats:
    """The f16 at byte `at` of every block, shape `(n_blocks, 1)`."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _sixes(packed: Bytes) -> tuple[Floats, Floats]:
    """Twelve bytes as eight scales and eight minima of six bits, shape `(n_blocks, 8)` each."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """128 bytes as eight groups of 32 codes: low halves, then high ones, of 32 bytes each."""
    groups = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([groups & 15, groups >> 4], axis=2).reshape(-1, 8, 32)


def _scaled(blocks: Bytes, codes: Bytes) -> Floats:
    """Codes of eight groups to a block: d * scale * code - dmin * minimum."""
    scales, minima = _sixes(blocks[:, 4:16])
    found: Floats = codes.astype(np.float32)
    found *= (_halves(blocks, 0) * scales)[:, :, None]
    found -= (_halves(blocks, 2) * minima)[:, :, None]
    return found


def _q4_k(blocks: Bytes) -> Floats:
    return _scaled(blocks, _nibbles(blocks[:, 16:]))


def _q5_k(blocks: Bytes) -> Floats:
    bits = np.arange(8, dtype=np.uint8)[:, None]
    fifth: Bytes = blocks[:, None, 16:48] >> bits & np.uint8(1)
    return _scaled(blocks, _nibbles(blocks[:, 48:]) | fifth << np.uint8(4))


def _q6_k(blocks: Bytes) -> Floats:
    low = blocks[:, :128].reshape(-1, 2, 2, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    codes = np.concatenate([low & 15, low >> 4], axis=2) | (high >> shifts & 3) << 4
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32) * _halves(blocks, 208)
    numbers: Floats = (codes.view(np.int8) - np.int8(32)).astype(np.float32)
    found = numbers.reshape(-1, 16, 16)
    found *= scales[:, :, None]
    return found


K_QUANTS: dict[str, Callable[[Bytes], Floats]] = {"q4_K": _q4_k, "q5_K": _q5_k, "q6_K": _q6_k}


def dequantize(data: bytes, kind: GgmlType, n_elements: int) -> Floats:
    """The numbers of whole rows, shape `(n_rows, n_elements)`.

    Args:
        data: rows one after another.
        kind: their type.
        n_elements: elements of a row, a whole number of blocks.

    Raises:
        NotTestable: if neither we nor the package `gguf` know the type.
    """
    if kind.name in numbers.READABLE:
        return numbers.dequantize(data, kind, n_elements)
    blocks = np.frombuffer(data, np.uint8).reshape(-1, kind.block_bytes)
    with np.errstate(all="ignore"):
        read = K_QUANTS.get(kind.name)
        found = read(blocks) if read is not None else _by_package(blocks, kind)
    return found.reshape(-1, n_elements)


def _by_package(blocks: Bytes, kind: GgmlType) -> Floats:
    try:
        from gguf import GGMLQuantizationType, quants
    except ImportError:
        raise NotTestable(
            f"weights of type {kind.name} are read by the package gguf, "
            "which `pip install slotscope[weights]` adds"
        ) from None
    try:
        found: Any = quants.dequantize(blocks, GGMLQuantizationType(kind.id))
    except (NotImplementedError, ValueError):
        raise NotTestable(f"nothing here reads weights of type {kind.name}") from None
    return np.asarray(found, np.float32)


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors of a model file."""

    model: ModelFile

    def has(self, name: str) -> bool:
        """Whether the file has the tensor."""
        return name in self.model.tensors

    def present(self, name: str) -> Tensor:
        """The entry of a tensor that must be there.

        Raises:
            NotTestable: if it is not.
        """
        tensor = self.model.tensors.get(name)
        if tensor is None:
            count = self.model.metadata.get("split.count")
            here = "this part of the model" if isinstance(count, int) and count > 1 else "the model"
            raise NotTestable(f"{here} has no tensor {name}")
        return tensor

    def tensor(self, name: str, *dims: int) -> Tensor:
        """The entry of a tensor that must be there, with these dimensions.

        Raises:
            NotTestable: if it is missing, damaged, or shaped otherwise.
        """
        tensor = self.present(name)
        if tensor.data is None or tensor.type is None:
            raise NotTestable(f"the bytes of {name} are not there, or of no known type")
        if _significant(tensor.dims) != _significant(dims):
            shape, wanted = ("×".join(map(str, shape)) for shape in (tensor.dims, dims))
            raise NotTestable(f"{name} is {shape}, and its metadata make it {wanted}")
        return tensor

    def vector(self, name: str, n: int) -> Floats:
        """All `n` numbers of a tensor that must be there, shape `(n,)`."""
        dims = self.model.tensors[name].dims if self.has(name) else ()
        tensor = self.tensor(name, *(dims if prod(dims) == n else (n,)))
        return self.rows(tensor, 0, prod(dims[1:])).reshape(n)

    def optional(self, name: str, n: int) -> Floats | None:
        """The same, or None if the model has no such tensor."""
        return self.vector(name, n) if self.has(name) else None

    def rows(self, tensor: Tensor, start: int, stop: int) -> Floats:
        """The rows [start, stop) of a tensor, shape `(stop - start, n_elements)`.

        Raises:
            NotTestable: if the file does not have them, or they are too many.
        """
        kind, n_elements = tensor.type, tensor.dims[0] if tensor.dims else 1
        if kind is None or tensor.data is None or not n_elements:
            raise NotTestable(f"the bytes of {tensor.name} are not there, or of no known type")
        size = n_elements // kind.block_elements * kind.block_bytes + kind.row_prefix_bytes
        at, wanted = tensor.data.start + start * size, (stop - start) * size
        if at + wanted > tensor.data.stop or (stop - start) * n_elements > MOST_ELEMENTS:
            raise NotTestable(f"{tensor.name} has no rows {start} to {stop}, or too long ones")
        data = self.model.source.read_at(at, wanted)
        if len(data) < wanted:
            raise NotTestable(f"the model file ends inside {tensor.name}")
        return dequantize(data, kind, n_elements)

    def chunks(self, tensor: Tensor, runs: tuple[range, ...]) -> Iterator[Floats]:
        """The rows of all runs in order, a bounded number at a time."""
        step = max(1, _CHUNK // max(1, tensor.dims[0]))
        if sum(map(len, runs)) * tensor.dims[0] > MOST_ELEMENTS:
            raise NotTestable(f"too many rows of {tensor.name} would be needed")
        for run in runs:
            for start in range(run.start, run.stop, step):
                yield self.rows(tensor, start, min(start + step, run.stop))


def _significant(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions without those of 1, which some converters add in front or behind."""
    return tuple(n for n in dims if n != 1)
