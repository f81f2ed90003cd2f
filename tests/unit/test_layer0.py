"""The first layer of each kind of model, and of each type, against a slow reading of its formulas.

What real builds wrote is in tests/corpus/test_identity.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.model.identity import Outcome
from inspector.model.layer0.side import AGREES
from tests.support.belonging import (
    HEAD,
    IDS,
    N_EMBD,
    N_VOCAB,
    Kept,
    Rows,
    attention_state,
    by_head,
    codes,
    identity,
    keys,
    latent_first,
    latent_model,
    llama,
    neox,
    plain,
    recurrent_state,
    rope_first,
    usual,
)
from tests.support.first_layer import Model, angles, layer_norm, rms, turned, yarn_angles
from tests.support.writer import Cell, Image, Tokens, cells_of

# -- attention -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An architecture: how to make a model of it, and what its first layer stores.

    Attributes:
        build: makes the model with that seed of weights.
        rows: what it stores.
        options: of the state.
    """

    build: Callable[[int], Model]
    rows: Rows
    options: dict[str, Any]


CASES: dict[str, Case] = {}


def case(name: str, rows: Rows, **options: Any) -> Callable[[Callable[[int], Model]], None]:
    def enter(build: Callable[[int], Model]) -> None:
        CASES[name] = Case(build, rows, options)

    return enter


case("llama", llama)(lambda seed: usual(seed=seed))
case("llama of three heads", llama)(lambda seed: usual(seed=seed, n_kv=3))
case("llama, values by channel", llama, transposed=True)(lambda seed: usual(seed=seed))
case("neighbours less than turned", lambda m, t, p: plain(m, t, p, turn=lambda p: angles(p, 16)))(
    lambda seed: usual(seed=seed, rope__dimension_count=16)
)
case("another base", lambda m, t, p: plain(m, t, p, turn=lambda p: angles(p, HEAD, 5e5)))(
    lambda seed: usual(seed=seed, rope__freq_base=5e5)
)
case("linear scaling", lambda m, t, p: plain(m, t, p, turn=lambda p: angles(p, HEAD, 1e4, 0.25)))(
    lambda seed: usual(seed=seed, rope__scaling__type="linear", rope__scaling__factor=4.0)
)
case(
    "scaling by an old key",
    lambda m, t, p: plain(m, t, p, turn=lambda p: angles(p, HEAD, 1e4, 0.5)),
)(lambda seed: usual(seed=seed, rope__scale_linear=2.0))


def yarn(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    def turn(pos: int) -> list[float]:
        return yarn_angles(pos, HEAD, 1e4, 0.25, 64)

    return plain(model, token, pos, turn=turn, magnitude=1.3 + 0.13 * math.log(4), pairs="neox")


@case("qwen3 with YaRN", lambda m, t, p: yarn(m, t, p))
def _qwen3(seed: int) -> Model:
    return usual(
        "qwen3",
        seed,
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=64,
        rope__scaling__attn_factor=1.3,
    )


def with_factors(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    factors = model.tensors["rope_freqs.weight"]
    turn = [a / f for a, f in zip(angles(pos, HEAD), factors, strict=True)]
    return plain(model, token, pos, turn=lambda pos: turn)


@case("frequency factors", with_factors)
def _llama3(seed: int) -> Model:
    model = usual(seed=seed)
    model.vector("rope_freqs.weight", HEAD // 2, 2.0, 0.3)
    return model


def short_factors(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """phi3: fused projections, queries first; of the factors those of a short context."""
    x = rms(model.tensors["token_embd.weight"][token]) * model.tensors["blk.0.attn_norm.weight"]
    fused = model.tensors["blk.0.attn_qkv.weight"] @ x
    k, v = fused[2 * HEAD : 3 * HEAD], fused[3 * HEAD :]
    factors = model.tensors["rope_factors_short.weight"]
    turn = [a / f for a, f in zip(angles(pos, HEAD), factors, strict=True)]
    return turned(k, turn, "neox", 1.25), v


@case("phi3, a short context of a long model", short_factors)
def _phi3(seed: int) -> Model:
    model = Model("phi3", keys(rope__scaling__attn_factor=1.25), seed)
    model.embeddings(N_VOCAB)
    model.vector("blk.0.attn_norm.weight", N_EMBD)
    model.matrix("blk.0.attn_qkv.weight", 4 * HEAD)
    for name in ("long", "short"):
        model.vector(f"rope_factors_{name}.weight", HEAD // 2, 3.0, 0.5)
    return model


@case("qwen2 with biases", neox)
def _qwen2(seed: int) -> Model:
    model = usual("qwen2", seed)
    for letter in "kv":
        model.vector(f"blk.0.attn_{letter}.bias", HEAD, 0.0, 2.0)
    return model


def gemma(model: Model, token: int, pos: int, base: float = 1e6) -> tuple[Any, Any]:
    """Embeddings times √n_embd, which an RMS norm hides but for ε; K-norm of each head."""
    x = rms(model.tensors["token_embd.weight"][token] * math.sqrt(N_EMBD))
    x = x * model.tensors["blk.0.attn_norm.weight"]
    k, v = (model.tensors[f"blk.0.attn_{letter}.weight"] @ x for letter in "kv")
    k = rms(k, model.tensors["blk.0.attn_k_norm.weight"])
    return turned(k, angles(pos, HEAD, base), "neox"), v


def gemma_model(seed: int, **more: Any) -> Model:
    model = usual("gemma3", seed, rope__freq_base=1e6, **more)
    model.vector("blk.0.attn_k_norm.weight", HEAD)
    return model


case("gemma3 without a window", gemma)(gemma_model)
case("gemma3, layer 0 windowed", lambda m, t, p: gemma(m, t, p, 1e4), window=24)(
    lambda seed: gemma_model(seed, block_count=6, attention__sliding_window=24)
)


@case(
    "gemma3 with YaRN, which leaves windowed layers alone",
    lambda m, t, p: gemma(m, t, p, 1e4),
    window=24,
)
def _gemma3_yarn(seed: int) -> Model:
    scaling = {"type": "yarn", "factor": 8.0, "original_context_length": 64}
    own = {f"rope__scaling__{key}": value for key, value in scaling.items()}
    return gemma_model(seed, block_count=6, attention__sliding_window=24, **own)


def gemma3n(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """Layer 0 sees the embedding and what alternating updates predict; values are normed too."""
    t = model.tensors
    x = t["token_embd.weight"][token] * math.sqrt(N_EMBD)
    parts = [x]
    for j in range(3):
        part = t["altup_proj.weight"][j] @ x
        parts.append(part * np.linalg.norm(x) / np.linalg.norm(part))
    routed = t["blk.0.altup_router.weight"] @ (rms(x, t["blk.0.altup_router_norm.weight"]) / N_EMBD)
    shares = t["blk.0.altup_predict_coef.weight"][:4] @ np.tanh(routed)
    x = x + sum(share * part for share, part in zip(shares, parts, strict=True))
    x = rms(x, t["blk.0.attn_norm.weight"])
    k, v = (t[f"blk.0.attn_{letter}.weight"] @ x for letter in "kv")
    k = rms(k, t["blk.0.attn_k_norm.weight"])
    return turned(k, angles(pos, HEAD), "neox"), rms(v)


@case("gemma3n", gemma3n)
def _gemma3n(seed: int) -> Model:
    model = usual("gemma3n", seed)
    model.vector("blk.0.attn_k_norm.weight", HEAD)
    cube = np.random.default_rng(seed).normal(0, 1 / 8, (3, N_EMBD, N_EMBD))
    model._put("altup_proj.weight", cube, "f32")
    model.vector("blk.0.altup_router_norm.weight", N_EMBD)
    model.matrix("blk.0.altup_router.weight", 4, scale=400.0)
    model.matrix("blk.0.altup_predict_coef.weight", 16, 4)
    return model


def row_norm(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """olmo2: no first norm, RMS over the whole K row of all three heads."""
    t = model.tensors
    x = t["token_embd.weight"][token]
    k = rms(t["blk.0.attn_k.weight"] @ x, t["blk.0.attn_k_norm.weight"])
    heads = [turned(head, angles(pos, HEAD), "neox") for head in k.reshape(-1, HEAD)]
    return np.concatenate(heads), t["blk.0.attn_v.weight"] @ x


@case("olmo2", row_norm)
def _olmo2(seed: int) -> Model:
    model = usual("olmo2", seed, n_kv=3, norm=False)
    model.vector("blk.0.attn_k_norm.weight", 3 * HEAD)
    return model


def heads_layer_norm(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """stablelm: layer norms with weights and biases; that of keys with weights for each head."""
    t = model.tensors
    x = layer_norm(
        t["token_embd.weight"][token], t["blk.0.attn_norm.weight"], t["blk.0.attn_norm.bias"]
    )
    k, v = (t[f"blk.0.attn_{letter}.weight"] @ x for letter in "kv")
    weights = t["blk.0.attn_k_norm.weight"]
    normed = [layer_norm(h, w) for h, w in zip(k.reshape(-1, HEAD), weights, strict=True)]
    return np.concatenate([turned(h, angles(pos, HEAD), "neox") for h in normed]), v


@case("stablelm", heads_layer_norm)
def _stablelm(seed: int) -> Model:
    model = usual("stablelm", seed, n_kv=2)
    model.vector("blk.0.attn_norm.bias", N_EMBD, 0.0)
    model._put(
        "blk.0.attn_k_norm.weight", np.random.default_rng(seed).normal(1, 0.2, (2, 32)), "f32"
    )
    return model


def norm_after(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    k, v = neox(model, token, pos)
    return rms(k, model.tensors["blk.0.attn_k_norm.weight"]), v


@case("hunyuan, K-norm after RoPE undoes its magnitude", norm_after)
def _hunyuan(seed: int) -> Model:
    model = usual("hunyuan-dense", seed, rope__scaling__attn_factor=1.5)
    model.vector("blk.0.attn_k_norm.weight", HEAD)
    return model


def llama4(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    k, v = llama(model, token, pos)
    return rms(k), v


case("llama4, K-norm without weights", llama4, window=30)(
    lambda seed: usual("llama4", seed, block_count=4)
)


def grok(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """A scale so small that ε counts."""
    x = rms(model.tensors["token_embd.weight"][token] * 0.01)
    return plain(model, token, pos, x=x, pairs="neox")


case("grok, scaled embeddings", grok)(lambda seed: usual("grok", seed, embedding_scale=0.01))


def falcon(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """A norm of its own for attention, the second one."""
    t = model.tensors
    x = layer_norm(
        t["token_embd.weight"][token], t["blk.0.attn_norm_2.weight"], t["blk.0.attn_norm_2.bias"]
    )
    k, v = (t[f"blk.0.attn_{letter}.weight"] @ x for letter in "kv")
    return turned(k, angles(pos, HEAD), "neox"), v


@case("falcon of two norms", falcon)
def _falcon(seed: int) -> Model:
    model = usual("falcon", seed)
    model.vector("blk.0.attn_norm_2.weight", N_EMBD)
    model.vector("blk.0.attn_norm_2.bias", N_EMBD, 0.0)
    return model


def learned_positions(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """gpt2: positions are added, layer norm, no RoPE."""
    t = model.tensors
    x = layer_norm(
        t["token_embd.weight"][token] + t["position_embd.weight"][pos],
        t["blk.0.attn_norm.weight"],
        t["blk.0.attn_norm.bias"],
    )
    fused = t["blk.0.attn_qkv.weight"] @ x + t["blk.0.attn_qkv.bias"]
    return fused[N_EMBD : 2 * N_EMBD], fused[2 * N_EMBD :]


@case("gpt2", learned_positions)
def _gpt2(seed: int) -> Model:
    model = Model("gpt2", keys(2, 2), seed)
    model.embeddings(N_VOCAB)
    model.embeddings(64, "position_embd.weight", 0.3)
    model.vector("blk.0.attn_norm.weight", N_EMBD)
    model.vector("blk.0.attn_norm.bias", N_EMBD, 0.0)
    model.matrix("blk.0.attn_qkv.weight", 3 * N_EMBD)
    model.vector("blk.0.attn_qkv.bias", 3 * N_EMBD, 0.0)
    return model


def row_layer_norm(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """mpt: of the keys a layer norm of the whole row, with a bias."""
    t = model.tensors
    x = layer_norm(t["token_embd.weight"][token], t["blk.0.attn_norm.weight"])
    k, v = np.split(t["blk.0.attn_qkv.weight"] @ x, 3)[1:]
    return layer_norm(k, t["blk.0.attn_k_norm.weight"], t["blk.0.attn_k_norm.bias"]), v


@case("mpt", row_layer_norm)
def _mpt(seed: int) -> Model:
    model = Model("mpt", keys(2, 2), seed)
    model.embeddings(N_VOCAB)
    model.vector("blk.0.attn_norm.weight", N_EMBD)
    model.matrix("blk.0.attn_qkv.weight", 3 * N_EMBD)
    model.vector("blk.0.attn_k_norm.weight", N_EMBD)
    model.vector("blk.0.attn_k_norm.bias", N_EMBD, 0.0)
    return model


def scaled_matrices(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """bitnet: a number for each matrix."""
    k, v = neox(model, token, pos)
    return k * model.tensors["blk.0.attn_k.scale"][0], v * model.tensors["blk.0.attn_v.scale"][0]


@case("bitnet", scaled_matrices)
def _bitnet(seed: int) -> Model:
    model = usual("bitnet", seed)
    for letter in "kv":
        model.vector(f"blk.0.attn_{letter}.scale", 1, 3.0)
    return model


def bloom(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """A layer norm of the embeddings, then the layer's own; no RoPE; clamped."""
    t = model.tensors
    x = layer_norm(
        t["token_embd.weight"][token], t["token_embd_norm.weight"], t["token_embd_norm.bias"]
    )
    x = layer_norm(x, t["blk.0.attn_norm.weight"])
    k, v = (t[f"blk.0.attn_{letter}.weight"] @ x for letter in "kv")
    return np.clip(k, -1, 1), np.clip(v, -1, 1)


@case("bloom, clamped", bloom)
def _bloom(seed: int) -> Model:
    model = usual("bloom", seed, attention__clamp_kqv=1.0)
    model.vector("token_embd_norm.weight", N_EMBD)
    model.vector("token_embd_norm.bias", N_EMBD, 0.0)
    return model


def cohere2(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    """Layer norm; RoPE only in windowed layers, such as layer 0, with the base of all."""
    x = layer_norm(model.tensors["token_embd.weight"][token])
    return plain(model, token, pos, x=x, turn=lambda pos: angles(pos, HEAD, 5e4))


case("cohere2, layer 0 windowed", cohere2, window=25)(
    lambda seed: usual(
        "cohere2",
        seed,
        block_count=4,
        attention__sliding_window=25,
        rope__freq_base=5e4,
        rope__freq_base_swa=123.0,
    )
)


def unturned(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    return plain(model, token, pos, turn=lambda pos: [])


case(
    "cohere2 without windows, no RoPE",
    lambda m, t, p: plain(
        m, t, p, x=layer_norm(m.tensors["token_embd.weight"][t]), turn=lambda pos: []
    ),
)(lambda seed: usual("cohere2", seed, block_count=4))
case("baichuan 13B, no RoPE", unturned)(lambda seed: usual("baichuan", seed, block_count=40))
case("smallthinker, no RoPE in layer 0", unturned)(
    lambda seed: usual("smallthinker", seed, block_count=8, attention__sliding_window=4096)
)
case("granite, RoPE switched off", unturned)(
    lambda seed: usual("granite", seed, rope__scaling__finetuned=False)
)


LATENT_YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
    "rope.scaling.yarn_log_multiplier": 0.05,
}


def latent_yarn(model: Model, token: int, pos: int, magnitude: float) -> tuple[Any, Any]:
    t = model.tensors
    x = rms(t["token_embd.weight"][token], t["blk.0.attn_norm.weight"])
    z = t["blk.0.attn_kv_a_mqa.weight"] @ x
    turns = yarn_angles(pos, 16, 1e4, 0.25, 64)
    latent = rms(z[:48], t["blk.0.attn_kv_a_norm.weight"])
    return np.concatenate([latent, turned(z[48:], turns, "norm", magnitude)]), np.zeros(0)


case("deepseek2, latent first", latent_first)(lambda seed: latent_model(seed, absorbed=True))
case("deepseek2, rope first", rope_first)(lambda seed: latent_model(seed, absorbed=True))
case("deepseek2 with YaRN, whose magnitude stays", lambda m, t, p: latent_yarn(m, t, p, 1.0))(
    lambda seed: latent_model(seed, absorbed=True, scaling=LATENT_YARN)
)
case(
    "deepseek32 with YaRN",
    lambda m, t, p: latent_yarn(m, t, p, (1 + 0.1 * math.log(4)) / (1 + 0.05 * math.log(4))),
)(lambda seed: latent_model(seed, absorbed=True, scaling=LATENT_YARN, architecture="deepseek32"))
case("deepseek2 by head", by_head)(lambda seed: latent_model(seed, absorbed=False))
case("deepseek2 by head, rope first", lambda m, t, p: by_head(m, t, p, nope_first=False))(
    lambda seed: latent_model(seed, absorbed=False)
)


@pytest.mark.parametrize("name", CASES)
def test_rows_of_a_model_are_its_own_and_no_other_models(name: str, tmp_path: Path) -> None:
    made = CASES[name]
    state = attention_state(made.build(1), made.rows, **made.options)
    right, wrong = (identity(tmp_path, state, made.build(seed)) for seed in (1, 2))
    assert right.outcome is Outcome.MATCHES, right.evidence
    assert max(side.error for side in right.sides) < 2e-6
    assert {side.name for side in right.sides} == {"k", "v"}
    assert not right.findings
    assert wrong.outcome is Outcome.DIFFERS, wrong.evidence
    assert min(side.error for side in wrong.sides if side.content) > 1
    assert codes(wrong) == ["identity.differs"]


# parts of positions


@pytest.mark.parametrize("architecture", ["qwen2vl", "qwen3vl"])
def test_positions_of_an_image_have_parts(architecture: str, tmp_path: Path) -> None:
    """Image cells share a position and are not compared; text behind them is, and has moved."""
    model = usual(architecture, rope__dimension_sections=[6, 5, 5, 0])
    image = Image(start=12, nx=4, ny=3, pos_type=1)
    ids = (*IDS[:12], *[-1] * image.n_tokens, *IDS[12:])
    tokens = Tokens(ids, packed=True, media=(image,))
    cells = cells_of(tokens, mrope=True)
    text = {cell.pos: token for cell, token in zip(cells, ids, strict=True) if token >= 0}
    state = attention_state(
        model,
        lambda m, t, p: neox(m, text.get(p, 0), p),
        ids=ids,
        cells=cells,
        dialect="xyt",
        tokens=tokens,
    )
    found = identity(tmp_path, state, model)
    assert found.outcome is Outcome.MATCHES, found.evidence
    assert found.tokens_by == "rank"
    assert max(side.last for side in found.sides) == len(ids) - image.n_tokens + 4 - 1


def test_rows_and_columns_turn_their_own_pairs(tmp_path: Path) -> None:
    """Text with odd columns and rows, as no server writes it, to see which pairs they turn."""
    sections_of = {"qwen2vl": (6, 5, 5, 0), "qwen3vl": (6, 5, 5, 0)}
    for architecture, (time, height, width, _) in sections_of.items():
        model = usual(architecture, rope__dimension_sections=[time, height, width, 0])
        cells = tuple(Cell(pos, x=3 * pos + 1, y=2 * pos + 5) for pos in range(len(IDS)))

        def turn(pos: int, architecture: str = architecture) -> list[float]:
            y, x = 2 * pos + 5, 3 * pos + 1
            found = []
            for i in range(16):
                part = pos if i < 6 else y if i < 11 else x
                if architecture == "qwen3vl":
                    third, limits = i % 3, (18, 15, 15)
                    part = (pos, y, x)[third] if i < limits[third] else 0
                found.append(part / 10000 ** (2 * i / HEAD))
            return found

        state = attention_state(
            model,
            lambda m, t, p, turn=turn: plain(m, t, p, pairs="neox", turn=turn),
            cells=cells,
            dialect="xyt",
        )
        found = identity(tmp_path, state, model)
        assert found.outcome is Outcome.MATCHES, (architecture, found.evidence)


# -- convolution states ----------------------------------------------------------------------------


def ssm(architecture: str, seed: int, tensors: dict[str, int], **more: Any) -> Model:
    own = {"ssm.conv_kernel": 4, "ssm.inner_size": 96, "ssm.state_size": 16, "ssm.group_count": 2}
    own |= {"ssm.time_step_rank": 4, "attention.head_count_kv": 0}
    own |= {key.replace("__", "."): value for key, value in more.items()}
    model = Model(architecture, keys() | own, seed)
    model.embeddings(N_VOCAB)
    model.vector("blk.0.attn_norm.weight", N_EMBD)
    for name, rows in tensors.items():
        model.matrix(f"blk.0.{name}.weight", rows)
    return model


def projected(model: Model, token: int, name: str) -> Any:
    x = rms(model.tensors["token_embd.weight"][token], model.tensors["blk.0.attn_norm.weight"])
    return model.tensors[f"blk.0.{name}.weight"] @ x


def second_halves(model: Model, token: int) -> Any:
    return projected(model, token, "ssm_in").reshape(4, 2, 24)[:, 1].ravel()


def grouped(model: Model, token: int) -> Any:
    """q, k, v and z of one group after the other: all q, then all k, then all v."""
    groups = projected(model, token, "ssm_in").reshape(2, 2 * 16 + 2 * 48)
    return np.concatenate(
        [groups[:, :16].ravel(), groups[:, 16:32].ravel(), groups[:, 32:80].ravel()]
    )


def b_times_x(model: Model, token: int) -> Any:
    b, _, x = projected(model, token, "shortconv.in_proj").reshape(3, N_EMBD)
    return b * x


def three(model: Model, token: int) -> Any:
    return np.concatenate([projected(model, token, f"attn_{letter}") for letter in "qkv"])


def normed_input(model: Model, token: int) -> Any:
    t = model.tensors
    x = layer_norm(
        t["token_embd.weight"][token], t["token_embd_norm.weight"], t["token_embd_norm.bias"]
    )
    x = layer_norm(x, t["blk.0.attn_norm.weight"])
    return np.concatenate([x, np.arange(N_EMBD)])  # the second half needs the whole layer


def rwkv7(seed: int) -> Model:
    model = ssm("rwkv7", seed, {}, wkv__head_size=32)
    model.vector("token_embd_norm.weight", N_EMBD)
    model.vector("token_embd_norm.bias", N_EMBD, 0.0)
    return model


CONVOLVED: dict[str, tuple[Callable[[int], Model], Kept, int]] = {
    "mamba": (
        lambda seed: ssm("mamba", seed, {"ssm_in": 192}, ssm__group_count=0),
        lambda m, t: projected(m, t, "ssm_in")[:96],
        3,
    ),
    "mamba2": (
        lambda seed: ssm("mamba2", seed, {"ssm_in": 96 + 160 + 4}),
        lambda m, t: projected(m, t, "ssm_in")[96 : 96 + 160],
        3,
    ),
    "plamo2": (
        lambda seed: ssm("plamo2", seed, {"ssm_in": 192}, ssm__group_count=0),
        second_halves,
        3,
    ),
    "qwen35": (
        lambda seed: ssm("qwen35", seed, {"attn_qkv": 160}),
        lambda m, t: projected(m, t, "attn_qkv"),
        3,
    ),
    "qwen3next of an old converter": (
        lambda seed: ssm("qwen3next", seed, {"ssm_in": 256}),
        grouped,
        3,
    ),
    "lfm2": (
        lambda seed: ssm("lfm2", seed, {"shortconv.in_proj": 192}, shortconv__l_cache=3),
        b_times_x,
        2,
    ),
    "kimi-linear": (
        lambda seed: ssm(
            "kimi-linear", seed, {f"attn_{letter}": 64 for letter in "qkv"}, kda__head_dim=32
        ),
        three,
        3,
    ),
    "rwkv7": (rwkv7, normed_input, 1),
    "a wide mamba": (
        lambda seed: ssm("mamba", seed, {"ssm_in": 3000}, ssm__group_count=0, ssm__inner_size=1500),
        lambda m, t: projected(m, t, "ssm_in")[:1500],
        3,
    ),
}


@pytest.mark.parametrize("name", CONVOLVED)
def test_what_a_convolution_keeps_is_its_models(name: str, tmp_path: Path) -> None:
    build, kept, n_taps = CONVOLVED[name]
    state = recurrent_state(build(1), kept, n_taps)
    right, wrong = (identity(tmp_path, state, build(seed)) for seed in (1, 2))
    assert right.outcome is Outcome.MATCHES, right.evidence
    side = right.side("r")
    assert side is not None
    assert (side.n_cells, side.last) == (n_taps, len(IDS) - 1)
    assert side.error < 2e-6
    assert f"the last {n_taps} of these tokens" in right.evidence
    assert wrong.outcome is Outcome.DIFFERS, wrong.evidence


def test_both_ends_of_a_wide_convolution_count(tmp_path: Path) -> None:
    build, kept, n_taps = CONVOLVED["a wide mamba"]
    first, second = build(1), build(2)

    def halves(model: Model, token: int) -> Any:
        return np.concatenate([kept(first, token)[:1100], kept(second, token)[1100:]])

    found = identity(tmp_path, recurrent_state(first, halves, n_taps), first)
    assert found.outcome is not Outcome.MATCHES


def test_a_recurrent_state_of_fewer_tokens_than_are_listed(tmp_path: Path) -> None:
    build, kept, n_taps = CONVOLVED["mamba"]
    state = recurrent_state(build(1), kept, n_taps, pos=30)
    found = identity(tmp_path, state, build(1))
    assert found.outcome is Outcome.MATCHES
    assert found.sides[0].last == 30


# -- types of weights and of caches ----------------------------------------------------------------

CACHES = ("f32", "f16", "bf16", "q8_0", "q4_0")
WEIGHTS = ("f32", "q8_0", "q4_0", "q4_K")


def wide(seed: int, weight_type: str) -> Model:
    """A model whose rows are whole blocks of 256."""
    model = Model("llama", keys() | {"embedding_length": 256}, seed, weight_type)
    model.embeddings(N_VOCAB)
    model.vector("blk.0.attn_norm.weight", 256)
    for letter in "kv":
        model.matrix(f"blk.0.attn_{letter}.weight", HEAD)
    return model


@pytest.fixture(scope="module")
def wides() -> dict[tuple[int, str], Model]:
    return {(seed, kind): wide(seed, kind) for seed in (1, 2) for kind in WEIGHTS}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_every_type_of_weights_and_of_cache(
    weights: str, cache: str, wides: dict[tuple[int, str], Model], tmp_path: Path
) -> None:
    state = attention_state(wides[1, weights], llama, k_type=cache, v_type=cache)
    right, wrong = (identity(tmp_path, state, wides[seed, weights]) for seed in (1, 2))
    assert right.outcome is Outcome.MATCHES, right.evidence
    assert wrong.outcome is Outcome.DIFFERS, wrong.evidence
    most = max(side.excess for side in right.sides)
    least = min(side.excess for side in wrong.sides)
    assert least > 50 * most
    if cache in ("q8_0", "q4_0"):
        rounding = {"q8_0": (4e-3, 8e-3), "q4_0": (0.06, 0.13)}[cache]
        assert all(rounding[0] < side.rounding < rounding[1] for side in right.sides)


def test_another_quantization_of_the_same_weights_is_related(
    wides: dict[tuple[int, str], Model], tmp_path: Path
) -> None:
    original = wides[1, "f32"]
    for kind, least, most in (("q4_0", AGREES, 0.3), ("q4_K", AGREES, 0.3), ("q8_0", 3e-3, AGREES)):
        found = identity(tmp_path, attention_state(original.stored_as(kind), llama), original)
        side = found.side("v")
        assert side is not None
        assert least < side.excess < most, kind
        expected = Outcome.RELATED if least == AGREES else Outcome.MATCHES
        assert found.outcome is expected, kind
        assert "exactly" not in found.evidence
    related = identity(tmp_path, attention_state(original.stored_as("q4_0"), llama), original)
    assert codes(related) == ["identity.related"]
    assert related.outcome.in_short == "matches"
