"""What the first layer of a model projects, and the products with its weights.

Source: ggml-org/llama.cpp b10587, src/llama-graph.cpp `build_inp_embd`, `build_norm`;
src/models/*.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inspector.arrays.numbers import Floats, Indices
from inspector.model.geometry import Keys
from inspector.model.gguf import Tensor
from inspector.model.layer0.recipes import Norm, Recipe, real
from inspector.model.layer0.rounding import multiplied
from inspector.model.layer0.side import Way
from inspector.model.layer0.weights import NotTestable, Weights

WAYS = tuple(Way)
LARGEST_WIDTH = 1 << 20
"""Elements of a row, or heads, that a model is believed to have."""
N_ALTUP = 4
"""Streams of alternating updates."""

Runs = tuple[range, ...]


class Part(NamedTuple):
    """One thing to compare: what was computed, and where a stored row has it.

    Attributes:
        name: `k`, `v` or `r`.
        numbers: before RoPE, by the way products were rounded: `(ways, tokens, heads, elements)`.
        elements: where each number is in the row of a cell, shape `(heads, elements)`; of `r` the
            channel that it is of.
        rope_at: the first element of a head that RoPE turns.
        normed_after: whether a norm follows RoPE, which undoes its magnitude.
        after: what numbers are multiplied by after RoPE, shape `(elements,)`; None for nothing.
        latent: whether it is a part of a latent row.
    """

    name: str
    numbers: Floats
    elements: Indices
    rope_at: int = 0
    normed_after: bool = False
    after: Floats | None = None
    latent: bool = False


def rms(numbers: Floats, epsilon: float, weight: Floats | None = None) -> Floats:
    """RMS norm along the last axis."""
    size = np.sqrt((numbers * numbers).mean(axis=-1, keepdims=True) + epsilon)
    found: Floats = numbers / size
    return found if weight is None else found * weight


def layer_norm(
    numbers: Floats, epsilon: float, weight: Floats | None = None, bias: Floats | None = None
) -> Floats:
    """Layer norm along the last axis."""
    centred = numbers - numbers.mean(axis=-1, keepdims=True)
    return biased(rms(centred, epsilon, weight), bias)


def biased(numbers: Floats, bias: Floats | None) -> Floats:
    """With the bias, if there is one."""
    return numbers if bias is None else numbers + bias


@dataclass(frozen=True)
class Layer0:
    """The first layer of a model.

    Attributes:
        keys: its metadata.
        weights: its tensors.
        recipe: of its architecture.
        windowed: whether layer 0 has a sliding window.
    """

    keys: Keys
    weights: Weights
    recipe: Recipe
    windowed: bool

    @property
    def n_embd(self) -> int:
        """Elements of an embedding."""
        return self.keys.number("embedding_length")

    @property
    def n_vocab(self) -> int:
        """Tokens that have an embedding."""
        return self._n_rows("token_embd.weight")

    def epsilon(self, norm: Norm = Norm.RMS) -> float:
        """What norms add to the mean square."""
        kind = "layer_norm_epsilon" if norm is Norm.LAYER else "layer_norm_rms_epsilon"
        return real(self.keys, f"attention.{kind}", 1e-5)

    def inputs(self, tokens: Indices, positions: Indices) -> Floats:
        """What is projected, shape `(tokens, n_embd)`.

        Args:
            tokens: ids below `n_vocab`.
            positions: of each; they count only where positions are learned.
        """
        recipe = self.recipe
        if not 0 < self.n_embd < LARGEST_WIDTH:
            raise NotTestable("the metadata do not say how wide embeddings are")
        x = self._rows_of("token_embd.weight", tokens) * np.float32(recipe.scale(self.keys))
        if recipe.position_embd and self.weights.has("position_embd.weight"):
            x = x + self._rows_of("position_embd.weight", positions)
        if recipe.embd_norm is not Norm.NONE:
            weighted = recipe.embd_norm is Norm.LAYER
            x = self._normed(x, recipe.embd_norm, "token_embd_norm" if weighted else "")
        if recipe.altup:
            x = self._with_predictions(x)
        if recipe.norm is Norm.NONE:
            return x
        name = f"blk.0.{recipe.norm_name}"
        if not self.weights.has(f"{name}.weight"):
            name = "blk.0.attn_norm"
        return self._normed(x, recipe.norm, name if recipe.norm_weight else "")

    def _normed(self, x: Floats, norm: Norm, name: str) -> Floats:
        """Normed, with the weights of that name if there is one."""
        weight = self.weights.vector(f"{name}.weight", self.n_embd) if name else None
        bias = self.weights.optional(f"{name}.bias", self.n_embd) if name else None
        if norm is Norm.LAYER:
            return layer_norm(x, self.epsilon(norm), weight, bias)
        return biased(rms(x, self.epsilon(norm), weight), bias)

    def _n_rows(self, name: str) -> int:
        dims = self.weights.present(name).dims
        return dims[1] if len(dims) > 1 else 0

    def _rows_of(self, name: str, indices: Indices) -> Floats:
        n_rows = self._n_rows(name)
        tensor = self.weights.tensor(name, self.n_embd, n_rows)
        if len(indices) and not 0 <= indices.min() <= indices.max() < n_rows:
            raise NotTestable(f"{name} has {n_rows:,} rows, and the state needs others")
        found = [self.weights.rows(tensor, i, i + 1) for i in indices.tolist()]
        return np.concatenate(found) if found else np.zeros((0, self.n_embd), np.float32)

    def _with_predictions(self, x: Floats) -> Floats:
        """Gemma 3n: the embedding and what the alternating updates predict of it."""
        n, weights = self.n_embd, self.weights
        projection = weights.tensor("altup_proj.weight", n, n, N_ALTUP - 1)
        size = np.sqrt((x * x).sum(axis=-1, keepdims=True))
        parts = [x]
        for i in range(N_ALTUP - 1):
            part = self.product(projection, (range(i * n, (i + 1) * n),), x[None])[0]
            own_size = np.sqrt((part * part).sum(axis=-1, keepdims=True))
            parts.append(part * size / np.maximum(own_size, np.float32(1e-30)))
        router_norm = weights.vector("blk.0.altup_router_norm.weight", n)
        router = weights.tensor("blk.0.altup_router.weight", n, N_ALTUP)
        routed = rms(x, self.epsilon(), router_norm) / n
        modalities = np.tanh(routed @ weights.rows(router, 0, N_ALTUP).T)
        coefficients = weights.tensor("blk.0.altup_predict_coef.weight", N_ALTUP, N_ALTUP**2)
        shares = modalities @ weights.rows(coefficients, 0, N_ALTUP).T
        return x + sum(shares[:, i : i + 1] * part for i, part in enumerate(parts))

    def product(self, tensor: Tensor, runs: Runs, x: Floats) -> Floats:
        """Rows of a tensor times the inputs.

        Args:
            tensor: whose rows to use.
            runs: which rows.
            x: inputs, shape `(1 or ways, tokens, n)`.

        Returns:
            The products, shape `(ways, tokens, rows)`.
        """
        assert tensor.type is not None
        inputs = np.broadcast_to(x, (len(WAYS), *x.shape[1:]))
        rounded = np.stack(
            [multiplied(part, tensor.type, way) for part, way in zip(inputs, WAYS, strict=True)]
        )
        flat = rounded.reshape(-1, x.shape[-1])  # one product is three times as fast as three
        chunks = [flat @ chunk.T for chunk in self.weights.chunks(tensor, runs)]
        return np.concatenate(chunks, axis=1).reshape(*rounded.shape[:2], -1)

    def projected(self, name: str, dims: tuple[int, int], runs: Runs, x: Floats) -> Floats:
        """The product with its scale and bias, and clamped."""
        found = self.product(self.weights.tensor(f"{name}.weight", *dims), runs, x)
        if self.weights.has(f"{name}.scale"):
            found = found * self.weights.vector(f"{name}.scale", 1)[0]
        if (bias := self.weights.optional(f"{name}.bias", dims[1])) is not None:
            found = found + np.concatenate([bias[run.start : run.stop] for run in runs])
        limit = real(self.keys, "attention.clamp_kqv")
        return np.clip(found, -limit, limit) if limit > 0 else found
