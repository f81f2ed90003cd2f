"""RoPE: how far each pair of a key is turned at a position.

Source: ggml-org/llama.cpp b10587, ggml/src/ggml-cpu/ops.cpp `ggml_compute_forward_rope_flt`,
`ggml_mrope_cache_init`, `rope_yarn`; src/llama-context.cpp `yarn_attn_factor`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, log, pi

import numpy as np
from numpy.typing import NDArray

from inspector.arrays.numbers import Floats
from inspector.model.geometry import Keys
from inspector.model.layer0.recipes import Recipe, RopeType, real
from inspector.model.layer0.weights import NotTestable, Weights

DEFAULT_BASE = 10000.0
BETA_FAST, BETA_SLOW = 32.0, 1.0
POSITION, ROW, COLUMN, NOTHING = range(4)
"""The parts of a position, as the columns of an array of positions."""


@dataclass(frozen=True, eq=False)
class Rope:
    """How keys are turned.

    Attributes:
        type: which elements make a pair.
        n_rot: elements that are turned.
        base: the angle of pair i falls with base^(-2i / n_rot).
        scale: what positions are multiplied by.
        trained: tokens of the context that YaRN extends; None without YaRN.
        magnitude: what turned elements are multiplied by.
        sections: pairs of each part of an M-RoPE position.
        factors: what the angle of each pair is divided by, shape `(n_rot / 2,)`; None for 1.
        says: in words, what differs from what the model says; empty for that.
    """

    type: RopeType
    n_rot: int
    base: float = DEFAULT_BASE
    scale: float = 1.0
    trained: float | None = None
    magnitude: float = 1.0
    sections: tuple[int, ...] = ()
    factors: Floats | None = None
    says: str = ""

    def angles(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Radians for each pair, shape `(n, n_rot / 2)`.

        Args:
            positions: position, row, column and 0 of each cell, shape `(n, 4)`.
        """
        pairs = np.arange(self.n_rot // 2)
        turns = positions[:, self._parts(pairs)] * self.base ** (-2.0 * pairs / self.n_rot)
        if self.factors is not None:
            turns = turns / self.factors
        if self.trained is None:
            return turns * self.scale
        kept = self._kept(pairs)
        return turns * (self.scale * (1 - kept) + kept)

    def _kept(self, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
        """By how much YaRN leaves each pair alone: 1 for the fast ones, 0 for the slow."""
        low = max(0, floor(self._pair_of(BETA_FAST)))
        high = min(self.n_rot - 1, ceil(self._pair_of(BETA_SLOW)))
        return 1 - np.clip((pairs - low) / max(0.001, high - low), 0, 1)

    def _pair_of(self, turns: float) -> float:
        """The pair that turns so often in the context trained on."""
        assert self.trained is not None
        return self.n_rot * log(self.trained / (turns * 2 * pi)) / (2 * log(self.base))

    def _parts(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which part of the position turns each pair."""
        total = sum(self.sections)
        if self.type not in (RopeType.MROPE, RopeType.IMROPE) or not total:
            return np.full(len(pairs), POSITION)
        time, height, width = (*self.sections, 0, 0, 0)[:3]
        place = pairs % total
        if self.type is RopeType.IMROPE:
            conditions = [
                (place % 3 == 1) & (place < 3 * height),
                (place % 3 == 2) & (place < 3 * width),
                (place % 3 == 0) & (place < 3 * time),
            ]
            return np.select(conditions, [ROW, COLUMN, POSITION], NOTHING)
        conditions = [place < time, place < time + height, place < time + height + width]
        return np.select(conditions, [POSITION, ROW, COLUMN], NOTHING)

    def turn(self, rows: Floats, positions: NDArray[np.int64], at: int = 0) -> Floats:
        """The rows at their positions.

        Args:
            rows: of shape `(..., n, heads, elements)`.
            positions: as for `angles`.
            at: the first element of a head that is turned.
        """
        if self.type is RopeType.NONE:
            return rows
        angles = self.angles(positions)
        cosine = (np.cos(angles) * self.magnitude).astype(np.float32)[:, None, :]
        sine = (np.sin(angles) * self.magnitude).astype(np.float32)[:, None, :]
        half = self.n_rot // 2
        if self.type is RopeType.NORM:
            first, second = slice(at, at + self.n_rot, 2), slice(at + 1, at + self.n_rot, 2)
        else:
            first, second = slice(at, at + half), slice(at + half, at + self.n_rot)
        u, w = rows[..., first], rows[..., second]
        found = rows.copy()
        found[..., first] = u * cosine - w * sine
        found[..., second] = u * sine + w * cosine
        return found


def ropes_of(
    keys: Keys, weights: Weights, recipe: Recipe, head_k: int, *, windowed: bool
) -> tuple[Rope, ...]:
    """What the model says of RoPE in layer 0; several where the context size decides.

    Args:
        keys: its metadata.
        weights: its tensors.
        recipe: of its architecture.
        head_k: elements of a head, or of the turned part alone if that is stored apart.
        windowed: whether layer 0 has a sliding window.
    """
    if recipe.rope is RopeType.NONE or not recipe.turns_layer_0(keys, windowed):
        return (Rope(RopeType.NONE, 0),)
    n_rot = keys.number("rope.dimension_count", head_k)
    if windowed:
        n_rot = keys.number("rope.dimension_count_swa", n_rot)
    if keys.architecture == "plamo":
        n_rot = head_k
    if not 0 < n_rot <= head_k or n_rot % 2:
        raise NotTestable(f"rope.dimension_count is {n_rot} and a key has {head_k} elements")
    rope = Rope(
        recipe.rope,
        n_rot,
        base=_base(keys, recipe, head_k, windowed=windowed),
        sections=tuple(keys.at("rope.dimension_sections", i) for i in range(4)),
    )
    rope = _scaled(rope, keys, recipe, windowed=windowed)
    return tuple(
        replace(rope, factors=factors) for factors in _factors(weights, recipe, rope, windowed)
    )


def _base(keys: Keys, recipe: Recipe, head_k: int, *, windowed: bool) -> float:
    base, window = real(keys, "rope.freq_base", DEFAULT_BASE), recipe.window
    if windowed and window.own_base:
        base = real(keys, "rope.freq_base_swa", window.base or base)
    alpha = real(keys, "rope.scaling.alpha")
    if keys.architecture == "hunyuan_vl" and alpha > 0 and head_k > 2:
        base *= alpha ** (head_k / (head_k - 2))
    if not base > 1:
        raise NotTestable(f"rope.freq_base is {base:g}")
    return base


def _scaled(rope: Rope, keys: Keys, recipe: Recipe, *, windowed: bool) -> Rope:
    kind = keys.metadata.get(f"{keys.architecture}.rope.scaling.type")
    factor = real(keys, "rope.scaling.factor") or real(keys, "rope.scale_linear")
    model_scale = 1 / factor if factor > 0 and kind != "none" else 1.0
    scale = model_scale if recipe.window.scaled or not windowed else 1.0
    magnitude = real(keys, "rope.scaling.attn_factor", 1.0)
    if kind != "yarn" or (windowed and not recipe.window.yarn):
        return replace(rope, scale=scale, magnitude=magnitude)
    trained = real(keys, "rope.scaling.original_context_length") or keys.number("context_length")
    if not trained > 0:
        raise NotTestable("YaRN, and the context length of the training is not in the metadata")
    multiplier = real(keys, "rope.scaling.yarn_log_multiplier") * recipe.log_multiplier
    return with_yarn(
        replace(rope, magnitude=magnitude),
        trained,
        scale,
        multiplier=multiplier,
        model_scale=model_scale,
        keeps=recipe.keeps_magnitude and multiplier not in (0.0, 1.0),
    )


def with_yarn(
    rope: Rope,
    trained: float,
    scale: float,
    *,
    multiplier: float = 0.0,
    model_scale: float | None = None,
    keeps: bool = False,
) -> Rope:
    """The same with YaRN.

    Args:
        rope: whose magnitude is the attention factor.
        trained: tokens of the context that is extended.
        scale: what positions of slow pairs are multiplied by.
        multiplier: `yarn_log_multiplier`, 0 without.
        model_scale: the scale of layers without a window, if it is another.
        keeps: whether the magnitude stays.
    """
    inner, outer = (1 - 0.1 * log(s) for s in (scale, model_scale or scale))
    grown = 1.0 if keeps else outer / (1 - 0.1 * multiplier * log(model_scale or scale) or 1.0)
    return replace(
        rope, trained=trained, scale=scale, magnitude=rope.magnitude * grown * inner / (outer or 1)
    )


def _factors(
    weights: Weights, recipe: Recipe, rope: Rope, windowed: bool
) -> tuple[Floats | None, ...]:
    half = rope.n_rot // 2
    if windowed and not recipe.window.factors:
        return (None,)
    for names in (("rope_freqs",), ("rope_factors_long", "rope_factors_short")):
        found = [weights.optional(f"{name}.weight", half) for name in names]
        if present := [factors for factors in found if factors is not None]:
            return tuple(present)
    return (None,)
