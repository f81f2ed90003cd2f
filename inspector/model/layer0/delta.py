"""Which way round a delta net stores its state: keys by values, or values by keys.

The state of the first head is computed from the last tokens, as if nothing had come before, and
held against the stored block and against its transpose.

Source: ggml-org/llama.cpp b10587, src/models/delta-net-base.cpp `build_delta_net_autoregressive`,
src/models/qwen3next.cpp, qwen35.cpp.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from formats.ggml_types import TYPES
from inspector.arrays.numbers import Floats, Indices, dequantize
from inspector.model.layer0.convolution import n_taps
from inspector.model.layer0.projection import Layer0
from inspector.model.layer0.weights import NotTestable
from inspector.sections import Block, Section
from inspector.source import Source

ARCHITECTURES = ("qwen3next", "qwen35", "qwen35moe")
_N_TOKENS = 64
"""Tokens that the state is computed from."""
_LARGEST = 1024
"""Elements of a key that are believed; 128 in every known model."""
_ALIKE = 0.3
"""Correlation from which on a block is taken for the computed one."""
_CLEARLY = 3
"""How much better one way has to fit than the other."""
_F32 = next(kind for kind in TYPES if kind.name == "f32")


class Likeness(NamedTuple):
    """How alike the stored block and the computed one are, 1 for equal but for a factor.

    Attributes:
        keys_by_values: if rows go with keys, and columns with values.
        values_by_keys: if they go the other way.
    """

    keys_by_values: float
    values_by_keys: float

    @property
    def values_first(self) -> bool | None:
        """Whether rows go with values; None if neither way fits clearly."""
        best, other = max(self), min(self)
        if not best > max(_ALIKE, _CLEARLY * abs(other)):
            return None
        return best == self.values_by_keys


def likeness(
    source: Source, section: Section, layer: Layer0, tokens: Indices, row: int
) -> Likeness | None:
    """Hold the stored block of the first head against the computed one.

    Args:
        source: the file.
        section: the recurrent one.
        layer: the first layer of the model, a delta net.
        tokens: those that the state has seen.
        row: of the block, which has a row for each sequence.

    Returns:
        How alike they are; None if there is no such block.

    Raises:
        NotTestable: if the state cannot be computed.
    """
    number = layer.keys.number
    size, inner, groups = (
        number(f"ssm.{key}") for key in ("state_size", "inner_size", "group_count")
    )
    n_head = number("ssm.time_step_rank")
    if not (0 < size <= _LARGEST and n_head * size == inner and 0 < groups <= n_head):
        raise NotTestable("the blocks of the state are not square")
    width = inner + 2 * groups * size
    found = _stored(source, section, row, size, n_taps(layer) * width)
    if found is None:
        return None
    computed = _computed(layer, tokens[-_N_TOKENS - n_taps(layer) :], size, groups, n_head)
    return Likeness(_correlation(found, computed), _correlation(found, computed.T))


def _correlation(a: Floats, b: Floats) -> float:
    return float((a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b)))


def _stored(
    source: Source, section: Section, row: int, size: int, n_convolution: int
) -> Floats | None:
    """The block of the first head, shape `(size, size)`."""
    block: Block | None = section.s[0] if section.s else None
    at = 0 if section.r else 4 * n_convolution  # ik_llama.cpp: behind the convolution state
    n_bytes = 4 * size * size
    if block is None or block.data is None or at + n_bytes > block.row_bytes:
        return None
    data = source.read_at(block.data.start + row * block.row_bytes + at, n_bytes)
    return dequantize(data, _F32, size)[:size] if len(data) == n_bytes else None


def _computed(layer: Layer0, tokens: Indices, size: int, groups: int, n_head: int) -> Floats:
    """The state of the first head, keys by values, as if these tokens were all."""
    if not len(tokens) or not ((tokens >= 0) & (tokens < layer.n_vocab)).all():
        raise NotTestable("the last tokens are not all known to the model")
    n, weights = layer.n_embd, layer.weights
    x = layer.inputs(tokens, np.arange(len(tokens)))[None]
    width = n_head * size + 2 * groups * size
    # of the first head: queries do not matter
    channels = tuple(range(at, at + size) for at in (groups * size, 2 * groups * size))
    u = layer.projected("blk.0.attn_qkv", (n, width), channels, x)[0]
    taps = n_taps(layer) + 1
    filters = weights.tensor("blk.0.ssm_conv1d.weight", taps, width)
    kernel = np.concatenate([weights.rows(filters, c.start, c.stop) for c in channels]).T
    padded = np.concatenate([np.zeros((taps - 1, 2 * size), np.float32), u])
    convolved = sum(kernel[i] * padded[i : i + len(u)] for i in range(taps))
    activated = convolved / (1 + np.exp(-convolved))
    keys, values = activated[:, :size], activated[:, size:]
    keys = keys / np.maximum(np.linalg.norm(keys, axis=1, keepdims=True), layer.epsilon())
    write, decay = _gates(layer, x, n_head, groups)
    state = np.zeros((size, size), np.float32)
    for t in range(min(len(tokens), taps - 1) if len(tokens) > _N_TOKENS else 0, len(tokens)):
        state *= decay[t]
        state += np.outer(keys[t], (values[t] - keys[t] @ state) * write[t])
    return state


def _gates(layer: Layer0, x: Floats, n_head: int, groups: int) -> tuple[Floats, Floats]:
    """How much of each token is written by the first head, and how much of the rest is kept."""
    n, weights = layer.n_embd, layer.weights
    if weights.has("blk.0.ssm_ba.weight"):  # of every group: writes of its heads, then decays
        rows = (range(1), range(n_head // groups, n_head // groups + 1))
        gates = layer.projected("blk.0.ssm_ba", (n, 2 * n_head), rows, x)[0]
        written, kept = gates[:, 0], gates[:, 1]
    else:
        written, kept = (
            layer.projected(f"blk.0.{name}", (n, n_head), (range(1),), x)[0, :, 0]
            for name in ("ssm_beta", "ssm_alpha")
        )
    slope = weights.vector("blk.0.ssm_a", n_head)[0]
    kept = kept + weights.vector("blk.0.ssm_dt.bias", n_head)[0]
    return 1 / (1 + np.exp(-written)), np.exp(slope * np.logaddexp(0, kept))
