"""Tiny models and what their first layer stores, computed in float64, plainly and one by one.

The second source of truth for the identity of a state: nothing here knows `formats` or `inspector`.
Block layouts follow ggml-quants.c, formulas the graphs of llama.cpp.
"""

from __future__ import annotations

import cmath
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Numbers = Any
"""A float64 array."""

TYPE_IDS = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "q4_K": 12, "bf16": 30}
BLOCKS = {"f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q4_0": (32, 18), "q8_0": (32, 34)}
BLOCKS["q4_K"] = (256, 144)

# -- numbers as bytes ------------------------------------------------------------------------------


def half(number: float) -> float:
    return float(struct.unpack("<e", struct.pack("<e", number))[0])


def _f32(block: Sequence[float]) -> bytes:
    return struct.pack("<f", block[0])


def _f16(block: Sequence[float]) -> bytes:
    return struct.pack("<e", block[0])


def _bf16(block: Sequence[float]) -> bytes:
    """The nearest of the two neighbours; half to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", block[0]))
    high, low = bits >> 16, bits & 0xFFFF
    return struct.pack("<H", high + (low > 0x8000 or (low == 0x8000 and high & 1 == 1)))


def _q8_0(block: Sequence[float]) -> bytes:
    d = max(map(abs, block)) / 127
    codes = [round(x / d) if d else 0 for x in block]
    return struct.pack("<e32b", d, *codes)


def _q4_0(block: Sequence[float]) -> bytes:
    peak = max(block, key=abs)
    d = peak / -8
    codes = [min(15, int(x / d + 8.5)) if d else 8 for x in block]
    return struct.pack("<e", d) + bytes(codes[j] | codes[j + 16] << 4 for j in range(16))


def _q4_k(block: Sequence[float]) -> bytes:
    groups = [block[at : at + 32] for at in range(0, 256, 32)]
    minima = [max(0.0, -min(group)) for group in groups]
    steps = [(max(group) + low) / 15 for group, low in zip(groups, minima, strict=True)]
    d, dmin = max(steps) / 63 or 1.0, max(minima) / 63 or 1.0
    scales = [min(63, round(step / d)) for step in steps]
    lows = [min(63, round(low / dmin)) for low in minima]
    packed = bytearray(12)
    for j in range(8):
        if j < 4:
            packed[j], packed[j + 4] = scales[j], lows[j]
        else:
            packed[j + 4] = scales[j] & 15 | (lows[j] & 15) << 4
            packed[j - 4] |= scales[j] >> 4 << 6
            packed[j] |= lows[j] >> 4 << 6
    codes = []
    for j, group in enumerate(groups):
        step, low = half(d) * scales[j], half(dmin) * lows[j]
        codes.append([max(0, min(15, round((x + low) / step))) if step else 0 for x in group])
    nibbles = bytearray()
    for j in range(0, 8, 2):
        nibbles += bytes(a | b << 4 for a, b in zip(codes[j], codes[j + 1], strict=True))
    return struct.pack("<ee", d, dmin) + bytes(packed) + bytes(nibbles)


_ENCODE: dict[str, Callable[[Sequence[float]], bytes]] = {
    "f32": _f32,
    "f16": _f16,
    "bf16": _bf16,
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q4_K": _q4_k,
}


def _decoded(kind: str, block: bytes) -> list[float]:
    match kind:
        case "f32":
            return list(struct.unpack("<f", block))
        case "f16":
            return list(struct.unpack("<e", block))
        case "bf16":
            return list(struct.unpack("<f", bytes(2) + block))
        case "q8_0":
            d, *codes = struct.unpack("<e32b", block)
            return [d * code for code in codes]
        case "q4_0":
            (d,) = struct.unpack_from("<e", block)
            return [d * ((block[2 + j % 16] >> 4 * (j // 16) & 15) - 8) for j in range(32)]
    d, dmin = struct.unpack_from("<ee", block)
    found = []
    for i in range(256):
        group = i // 32
        scale, low = _scale_and_minimum(group, block[4:16])
        code = block[16 + group // 2 * 32 + i % 32] >> 4 * (group % 2) & 15
        found.append(d * scale * code - dmin * low)
    return found


def _scale_and_minimum(j: int, q: bytes) -> tuple[int, int]:
    """`get_scale_min_k4` of ggml-quants.c."""
    if j < 4:
        return q[j] & 63, q[j + 4] & 63
    return (q[j + 4] & 15) | (q[j - 4] >> 6) << 4, (q[j + 4] >> 4) | (q[j] >> 6) << 4


def encoded(numbers: Iterable[float], kind: str) -> bytes:
    """Rows of numbers in a type, whole blocks."""
    flat, n = [float(x) for x in numbers], BLOCKS[kind][0]
    return b"".join(_ENCODE[kind](flat[at : at + n]) for at in range(0, len(flat), n))


def decoded(data: bytes, kind: str) -> list[float]:
    """The numbers of whole blocks."""
    size = BLOCKS[kind][1]
    blocks = (data[at : at + size] for at in range(0, len(data), size))
    return [x for block in blocks for x in _decoded(kind, block)]


# -- a model file ----------------------------------------------------------------------------------

_U32, _F32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: Any) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", _BOOL, value)
        case int():
            return struct.pack("<II", _U32, value)
        case float():
            return struct.pack("<If", _F32, value)
        case str():
            return struct.pack("<I", _STRING) + _text(value)
    return struct.pack("<IIQ", _ARRAY, _U32, len(value)) + b"".join(
        struct.pack("<I", n) for n in value
    )


@dataclass
class Model:
    """A model of one layer, or of several of which only the first has tensors.

    Attributes:
        architecture: `general.architecture`.
        keys: metadata without the architecture in front.
        seed: of the weights.
        weight_type: of all matrices.
    """

    architecture: str
    keys: dict[str, Any]
    seed: int = 1
    weight_type: str = "f32"
    tensors: dict[str, Numbers] = field(default_factory=dict)
    _data: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self.n_embd = int(self.keys["embedding_length"])

    def matrix(self, name: str, rows: int, n: int | None = None, scale: float = 1.0) -> None:
        """A matrix of `rows` outputs; what the file can hold of it is what counts."""
        n = n or self.n_embd
        self._put(name, self._rng.normal(0, scale / math.sqrt(n), (rows, n)), self.weight_type)

    def vector(self, name: str, n: int, mean: float = 1.0, spread: float = 0.2) -> None:
        """A vector: weights of a norm, a bias, factors."""
        self._put(name, self._rng.normal(mean, spread, n), "f32")

    def embeddings(self, rows: int, name: str = "token_embd.weight", scale: float = 1.0) -> None:
        """Rows of embeddings, of tokens or of positions."""
        self._put(name, self._rng.normal(0, scale, (rows, self.n_embd)), self.weight_type)

    def _put(self, name: str, numbers: Numbers, kind: str) -> None:
        data = encoded(numbers.ravel(), kind)
        self.tensors[name] = np.array(decoded(data, kind)).reshape(numbers.shape)
        self._data[name] = kind, data

    def stored_as(self, kind: str) -> Model:
        """The same weights in another type."""
        other = Model(self.architecture, self.keys, self.seed, kind)
        for name, numbers in self.tensors.items():
            other._put(name, numbers, kind if numbers.ndim > 1 else "f32")
        return other

    def get(self, name: str) -> Numbers | None:
        return self.tensors.get(name)

    def write(self, path: Path, *, without: str = "") -> Path:
        """Write the file, but for one tensor."""
        entries = [_text("general.architecture") + _value(self.architecture)]
        entries += [_text(f"{self.architecture}.{k}") + _value(v) for k, v in self.keys.items()]
        names = [name for name in self.tensors if name != without]
        infos, data = b"", b""
        for name in names:
            kind, own = self._data[name]
            dims = self.tensors[name].shape[::-1]
            infos += _text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
            infos += struct.pack("<IQ", TYPE_IDS[kind], len(data))
            data += own + bytes(-len(own) % 32)
        head = b"GGUF" + struct.pack("<IQQ", 3, len(names), len(entries))
        head += b"".join(entries) + infos
        path.write_bytes(head + bytes(-len(head) % 32) + data)
        return path


# -- formulas --------------------------------------------------------------------------------------

EPSILON = 1e-5


def rms(x: Numbers, weight: Numbers | None = None) -> Numbers:
    found = x / math.sqrt(sum(float(v) ** 2 for v in x) / len(x) + EPSILON)
    return found if weight is None else found * weight


def layer_norm(x: Numbers, weight: Numbers | None = None, bias: Numbers | None = None) -> Numbers:
    found = rms(x - sum(map(float, x)) / len(x), weight)
    return found if bias is None else found + bias


def turned(head: Numbers, angles: Sequence[float], pairs: str, magnitude: float = 1.0) -> Numbers:
    """A head with each pair turned as a complex number.

    Args:
        head: elements; those behind the last pair stay.
        angles: of each pair, in radians.
        pairs: `norm` for neighbours, `neox` for halves.
        magnitude: of the turn.
    """
    found, n = head.copy(), len(angles)
    for i, angle in enumerate(angles):
        a, b = (2 * i, 2 * i + 1) if pairs == "norm" else (i, i + n)
        turn = complex(head[a], head[b]) * cmath.rect(magnitude, angle)
        found[a], found[b] = turn.real, turn.imag
    return found


def angles(pos: float, n_rot: int, base: float = 10000.0, scale: float = 1.0) -> list[float]:
    return [pos * scale / base ** (2 * i / n_rot) for i in range(n_rot // 2)]


def yarn_angles(pos: float, n_rot: int, base: float, scale: float, trained: int) -> list[float]:
    """`rope_yarn` and `ggml_rope_yarn_corr_dims` of ggml."""

    def corr(beta: float) -> float:
        return n_rot * math.log(trained / (beta * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(0, math.floor(corr(32))), min(n_rot - 1, math.ceil(corr(1)))
    found = []
    for i, theta in enumerate(angles(pos, n_rot, base)):
        ramp = 1 - min(1.0, max(0.0, (i - low) / max(0.001, high - low)))
        found.append(theta * scale * (1 - ramp) + theta * ramp)
    return found


def hadamard(row: Numbers, size: int) -> Numbers:
    """Consecutive groups of a row times Sylvester's matrix, element by element."""
    found = np.zeros(len(row))
    for i in range(len(row)):
        start = i // size * size
        for j in range(size):
            sign = -1 if ((i - start) & j).bit_count() % 2 else 1
            found[i] += sign * row[start + j] / math.sqrt(size)
    return found
