"""Keys, before RoPE, and values of layer 0, of the first and the last head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inspector.arrays.numbers import Floats, Indices
from inspector.model.geometry import Keys
from inspector.model.layer0.projection import (
    LARGEST_WIDTH,
    Layer0,
    Part,
    biased,
    layer_norm,
    rms,
)
from inspector.model.layer0.recipes import LAYER_0_ATTENDS_UNVERIFIED, KNorm, Norm
from inspector.model.layer0.rope import Rope, ropes_of
from inspector.model.layer0.weights import NotTestable

PLAIN = ""
LATENT_FIRST, ROPE_FIRST = "latent, then rope", "rope, then latent"
NOPE_FIRST, ROPE_THEN_NOPE = "nope, then rope", "rope, then nope"
"""Orders of the parts of a key. Latent keys: the first of each pair since b7812."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form that rows of layer 0 can have.

    Attributes:
        order: of the parts of a key.
        k_width: elements of a K row.
        v_width: elements of a V row; 0 if what plays its part is in the K row.
        k: what to compare with keys.
        v: what to compare with values, or with the latent.
    """

    order: str
    k_width: int
    v_width: int
    k: Part
    v: Part


@dataclass(frozen=True, slots=True)
class Heads:
    """The attention of layer 0.

    Attributes:
        n_head: query heads.
        n_head_kv: heads of keys and values.
        head_k: elements of a key.
        head_v: elements of a value.
    """

    n_head: int
    n_head_kv: int
    head_k: int
    head_v: int


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention.

    Attributes:
        rank: elements of the latent.
        n_rot: elements of the turned part, which all heads share.
        nope: elements of a key in front of it.
        value: elements of a value.
    """

    rank: int
    n_rot: int
    nope: int
    value: int


def heads_of(keys: Keys, *, windowed: bool) -> Heads:
    """The heads of layer 0 by the metadata.

    Raises:
        NotTestable: if they make no sense.
    """
    n_head = keys.at("attention.head_count", 0)
    default = keys.number("embedding_length") // n_head if n_head else 0
    widths = []
    for part in ("key", "value"):
        width = keys.number(f"attention.{part}_length", default)
        widths.append(keys.number(f"attention.{part}_length_swa", width) if windowed else width)
    n_head_kv = keys.at("attention.head_count_kv", 0, n_head)
    if not all(0 < n < LARGEST_WIDTH for n in (n_head, n_head_kv, *widths)):
        raise NotTestable("the metadata do not say how many heads layer 0 has, and how wide")
    return Heads(n_head, n_head_kv, *widths)


def latent_of(layer: Layer0) -> Latent | None:
    """The latent attention, None if layer 0 has another.

    Raises:
        NotTestable: if its metadata make no sense.
    """
    if not layer.weights.has("blk.0.attn_kv_a_mqa.weight"):
        return None
    number = layer.keys.number
    rank, n_rot = number("attention.kv_lora_rank"), number("rope.dimension_count")
    key = number("attention.key_length_mla") or number("attention.key_length")
    value = number("attention.value_length_mla") or number("attention.value_length")
    if not (0 < n_rot < key and all(0 < n < LARGEST_WIDTH for n in (rank, key, value))):
        raise NotTestable("the metadata do not say how wide latent keys are")
    return Latent(rank, n_rot, key - n_rot, value)


def ropes_of_layer(layer: Layer0) -> tuple[Rope, ...]:
    """What the model says of RoPE in layer 0; several where the context size decides."""
    latent = latent_of(layer)
    heads = heads_of(layer.keys, windowed=layer.windowed) if latent is None else None
    head_k = heads.head_k if heads is not None else latent.n_rot if latent is not None else 0
    return ropes_of(layer.keys, layer.weights, layer.recipe, head_k, windowed=layer.windowed)


def forms_of(layer: Layer0, x: Floats) -> tuple[Form, ...]:
    """The forms that rows can have, computed for some inputs.

    Args:
        layer: the first layer.
        x: its inputs, shape `(tokens, n_embd)`.

    Raises:
        NotTestable: if they cannot be computed.
    """
    if layer.keys.architecture in LAYER_0_ATTENDS_UNVERIFIED:
        raise NotTestable(
            f"{layer.keys.architecture}: attention in the first layer was not verified"
        )
    if (latent := latent_of(layer)) is not None:
        return _latent_forms(layer, x, latent)
    heads = heads_of(layer.keys, windowed=layer.windowed)
    k, v = _k_and_v(layer, x, heads)
    widths = heads.n_head_kv * heads.head_k, heads.n_head_kv * heads.head_v
    return (Form(PLAIN, *widths, k, v),)


def _ends(count: int, size: int, at: int = 0) -> tuple[range, ...]:
    """The first and the last of `count` pieces of `size` rows, the first of them at row `at`."""
    return tuple(range(at + i * size, at + (i + 1) * size) for i in sorted({0, count - 1}))


def _places(count: int, size: int) -> Indices:
    return np.array(_ends(count, size), np.int64)


def _k_and_v(layer: Layer0, x: Floats, heads: Heads) -> tuple[Part, Part]:
    n_kv, head_k, head_v, n_embd = heads.n_head_kv, heads.head_k, heads.head_v, layer.n_embd
    if layer.weights.has("blk.0.attn_qkv.weight"):
        k_name = v_name = "blk.0.attn_qkv"
        k_at = head_k * heads.n_head
        v_at = k_at + head_k * n_kv
        k_dims = v_dims = n_embd, v_at + head_v * n_kv
    else:
        k_name, v_name, k_at, v_at = "blk.0.attn_k", "blk.0.attn_v", 0, 0
        k_dims, v_dims = (n_embd, head_k * n_kv), (n_embd, head_v * n_kv)
    if layer.keys.architecture == "gemma4" and not layer.weights.has(f"{v_name}.weight"):
        v_name, v_at, v_dims = k_name, k_at, k_dims
    by_row = layer.recipe.k_norm in (KNorm.ROW, KNorm.ROW_LAYER)
    k_runs = (range(k_at, k_at + head_k * n_kv),) if by_row else _ends(n_kv, head_k, k_at)
    k = layer.projected(k_name, k_dims, k_runs, x[None])
    k = k.reshape(*k.shape[:2], -1, head_k)
    v = layer.projected(v_name, v_dims, _ends(n_kv, head_v, v_at), x[None])
    v = v.reshape(*v.shape[:2], -1, head_v)
    if layer.recipe.v_norm:
        v = rms(v, layer.epsilon())
    return _normed_keys(layer, k, heads), Part("v", v, _places(n_kv, head_v))


def _normed_keys(layer: Layer0, k: Floats, heads: Heads) -> Part:
    """The keys after their norm.

    Args:
        layer: the first layer.
        k: of the first and the last head, or of all if the norm is over the whole row.
        heads: the attention.
    """
    form, weights, epsilon = layer.recipe.k_norm, layer.weights, layer.epsilon()
    name, n_kv, head_k = "blk.0.attn_k_norm", heads.n_head_kv, heads.head_k
    places, chosen = _places(n_kv, head_k), sorted({0, n_kv - 1})
    by_row = form in (KNorm.ROW, KNorm.ROW_LAYER)
    if form is KNorm.PLAIN_AFTER:
        return Part("k", rms(k, epsilon), places, normed_after=True)
    if not weights.has(f"{name}.weight"):
        return Part("k", k[:, :, chosen] if by_row else k, places)
    n = head_k if form in (KNorm.HEAD, KNorm.HEAD_AFTER) else n_kv * head_k
    weight, bias = weights.vector(f"{name}.weight", n), weights.optional(f"{name}.bias", n)
    if form is KNorm.HEAD_AFTER:
        return Part("k", rms(k, epsilon), places, normed_after=True, after=weight)
    if form is KNorm.HEAD:
        return Part("k", biased(rms(k, epsilon, weight), bias), places)
    if form is KNorm.HEAD_LAYER:
        shaped = [v if v is None else v.reshape(n_kv, head_k)[chosen] for v in (weight, bias)]
        return Part("k", layer_norm(k, layer.epsilon(Norm.LAYER), *shaped), places)
    row = k.reshape(*k.shape[:2], -1)
    if form is KNorm.ROW:
        row = biased(rms(row, epsilon, weight), bias)
    else:
        row = layer_norm(row, layer.epsilon(Norm.LAYER), weight, bias)
    return Part("k", row.reshape(k.shape)[:, :, chosen], places)


def _latent_forms(layer: Layer0, x: Floats, latent: Latent) -> tuple[Form, ...]:
    """Rows of one latent and the turned part; without the MLA keys, keys and values by head."""
    rank, n_rot, nope = latent.rank, latent.n_rot, latent.nope
    width = rank + n_rot
    z = layer.projected("blk.0.attn_kv_a_mqa", (layer.n_embd, width), (range(width),), x[None])
    norm = layer.weights.vector("blk.0.attn_kv_a_norm.weight", rank)
    compressed, turned = rms(z[..., :rank], layer.epsilon(), norm), z[..., None, rank:]
    places = np.arange(width)
    forms = [
        Form(
            order,
            width,
            0,
            Part("k", turned, at[None, rank:], latent=True),
            Part("v", compressed[:, :, None], at[None, :rank], latent=True),
        )
        for order, at in ((LATENT_FIRST, places), (ROPE_FIRST, np.roll(places, -n_rot)))
    ]
    if layer.weights.has("blk.0.attn_kv_b.weight"):
        n_head, per_head = heads_of(layer.keys, windowed=False).n_head, nope + latent.value
        dims = rank, n_head * per_head
        full = layer.projected("blk.0.attn_kv_b", dims, _ends(n_head, per_head), compressed)
        full = full.reshape(*full.shape[:2], -1, per_head)
        shared = np.broadcast_to(turned, (*full.shape[:3], n_rot))
        k = np.concatenate([full[..., :nope], shared], axis=-1)
        v = Part("v", full[..., nope:], _places(n_head, latent.value))
        at = _places(n_head, nope + n_rot)
        widths = n_head * (nope + n_rot), n_head * latent.value
        forms += [
            Form(order, *widths, Part("k", k, places, nope), v)
            for order, places in (
                (NOPE_FIRST, at),
                (ROPE_THEN_NOPE, np.roll(at, -n_rot, axis=1)),
            )
        ]
    return tuple(forms)
