"""How each architecture makes the keys and values of its first layer: one row each.

What a row leaves out is as in most models: RMS norm, K-norm per head where the tensor exists, RoPE
on every layer. Only the architectures listed here are tested; names of tensors prove nothing.

Source: ggml-org/llama.cpp b10587, src/llama-model.cpp `llama_model_rope_type`, `load_hparams`;
src/models/*.cpp. But for `NOT_MEASURED`, files of b11549 or another build were reproduced with each
row, to seven digits, and with no other weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt

from inspector.model.geometry import Keys


class RopeType(StrEnum):
    """Which elements of a head make a pair, and which position turns it."""

    NONE = "none"
    NORM = "norm"
    """Neighbours."""
    NEOX = "neox"
    """Half of the turned elements apart."""
    MROPE = "mrope"
    """As neox; the position's part goes by sections."""
    IMROPE = "imrope"
    """As neox; the position's parts alternate."""


class Norm(StrEnum):
    """What the input of the projections went through."""

    RMS = "rms"
    LAYER = "layer"
    NONE = "none"


class KNorm(StrEnum):
    """What keys go through, if the model has the tensor for it."""

    HEAD = "rms of each head"
    ROW = "rms of the whole row"
    HEAD_LAYER = "layer norm of each head, weights for all heads"
    ROW_LAYER = "layer norm of the whole row"
    HEAD_AFTER = "rms of each head, after RoPE"
    PLAIN_AFTER = "rms of each head without weights, after RoPE"


def real(keys: Keys, key: str, default: float = 0.0) -> float:
    """A finite number of the metadata; the first element of an array; the default otherwise."""
    value = keys.metadata.get(f"{keys.architecture}.{key}")
    if isinstance(value, tuple):
        value = value[0] if value else default
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
        return default
    return float(value)


def _always(keys: Keys, windowed: bool) -> bool:
    return True


def _if_windowed(keys: Keys, windowed: bool) -> bool:
    return windowed


def _unless_fourth(keys: Keys, windowed: bool) -> bool:
    """Where there are windows, layers 0, 4, 8, … have no RoPE, unless there are but four layers."""
    return not keys.number("attention.sliding_window") or keys.number("block_count") == 4


def _seven_billion(keys: Keys, windowed: bool) -> bool:
    return keys.number("block_count") == 32


def _finetuned(keys: Keys, windowed: bool) -> bool:
    return keys.metadata.get(f"{keys.architecture}.rope.scaling.finetuned") is not False


def _unscaled(keys: Keys) -> float:
    return 1.0


def _sqrt_n_embd(keys: Keys) -> float:
    return sqrt(keys.number("embedding_length"))


def _embedding_scale(default: float) -> Callable[[Keys], float]:
    return lambda keys: real(keys, "embedding_scale", default) or 1.0


@dataclass(frozen=True, slots=True)
class Window:
    """What RoPE does differently if layer 0 has a sliding window.

    Attributes:
        base: without `rope.freq_base_swa`; None for that of all layers.
        own_base: whether `rope.freq_base_swa` is looked at.
        scaled: whether `rope.scaling.factor` applies.
        yarn: whether YaRN applies.
        factors: whether `rope_freqs.weight` applies.
    """

    base: float | None = None
    own_base: bool = True
    scaled: bool = True
    yarn: bool = True
    factors: bool = True


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an architecture's first layer makes keys and values.

    Attributes:
        rope: which pairs RoPE turns.
        scale: what embeddings are multiplied by.
        position_embd: whether learned positions are added.
        embd_norm: the norm of the embeddings, before the layer's own.
        norm: the layer's own first norm.
        norm_weight: whether that norm has weights.
        norm_name: the tensor of its weights, if the model has it; else `attn_norm`.
        k_norm: what keys go through.
        v_norm: whether each head of the values is normed without weights.
        turns_layer_0: whether RoPE turns the keys of layer 0.
        window: what differs if layer 0 has a sliding window.
        log_multiplier: how much larger the stored `yarn_log_multiplier` counts.
        keeps_magnitude: whether YaRN leaves the magnitude if there is such a multiplier.
        altup: whether layer 0 sees the predictions of alternating updates (Gemma 3n).
    """

    rope: RopeType
    scale: Callable[[Keys], float] = _unscaled
    position_embd: bool = False
    embd_norm: Norm = Norm.NONE
    norm: Norm = Norm.RMS
    norm_weight: bool = True
    norm_name: str = "attn_norm"
    k_norm: KNorm = KNorm.HEAD
    v_norm: bool = False
    turns_layer_0: Callable[[Keys, bool], bool] = _always
    window: Window = Window()
    log_multiplier: float = 1.0
    keeps_magnitude: bool = False
    altup: bool = False


def _each(recipe: Recipe, *architectures: str) -> dict[str, Recipe]:
    return dict.fromkeys(architectures, recipe)


_NORM = Recipe(RopeType.NORM)
_NEOX = Recipe(RopeType.NEOX)
_NONE = Recipe(RopeType.NONE)
_LAYER_NORM = Recipe(RopeType.NORM, norm=Norm.LAYER)
_LAYER_NEOX = Recipe(RopeType.NEOX, norm=Norm.LAYER)
_LAYER_NONE = Recipe(RopeType.NONE, norm=Norm.LAYER)
_GEMMA = Recipe(RopeType.NEOX, scale=_sqrt_n_embd)
_GRANITE = Recipe(RopeType.NORM, scale=_embedding_scale(0.0), turns_layer_0=_finetuned)
_MLA = Recipe(RopeType.NORM, log_multiplier=10.0)
_RWKV = Recipe(RopeType.NONE, norm=Norm.LAYER, embd_norm=Norm.LAYER)
_OWN_BASE = Window(base=10000.0, scaled=False)
_UNSCALED = Window(own_base=False, scaled=False, yarn=False)

RECIPES: dict[str, Recipe] = {
    # RoPE turns neighbours
    **_each(_NORM, "llama", "mistral3", "mistral4", "deci", "internlm2", "xverse", "arctic"),
    **_each(_NORM, "arcee", "smollm3", "nanbeige", "chatglm", "glm4", "ernie4_5", "ernie4_5-moe"),
    **_each(_NORM, "deepseek", "bailingmoe", "cohere2moe", "plm"),
    **_each(_MLA, "deepseek32", "glm-dsa"),
    "deepseek2": replace(_MLA, keeps_magnitude=True),
    "llama4": replace(_NORM, k_norm=KNorm.PLAIN_AFTER),
    "olmo": replace(_LAYER_NORM, norm_weight=False),
    "command-r": replace(_LAYER_NORM, k_norm=KNorm.HEAD_LAYER),
    "cohere2": replace(_LAYER_NORM, turns_layer_0=_if_windowed, window=Window(own_base=False)),
    "chameleon": replace(_NORM, k_norm=KNorm.HEAD_LAYER),
    "minicpm": replace(_NORM, scale=_embedding_scale(12.0)),
    **_each(_GRANITE, "granite", "granitemoe", "granitehybrid", "granite_swa"),
    "baichuan": replace(_NORM, turns_layer_0=_seven_billion),
    "maincoder": replace(_NORM, k_norm=KNorm.HEAD_AFTER),
    "muse-glimmer": replace(_NORM, embd_norm=Norm.RMS, turns_layer_0=_if_windowed),
    # RoPE turns halves
    **_each(_NEOX, "qwen", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gpt-oss", "phi3", "phimoe"),
    **_each(_NEOX, "apertus", "bitnet", "openelm", "seed_oss", "laguna", "falcon-h1", "lfm2"),
    **_each(_NEOX, "lfm2moe", "exaone", "exaone-moe", "plamo", "dots1", "bailingmoe2", "glm4moe"),
    **_each(_NEOX, "hy_v3", "grovemoe", "minimax-m3", "pangu-embedded", "deepseek2-ocr"),
    **_each(_LAYER_NEOX, "phi2", "starcoder2", "gptneox", "orion", "nemotron", "dbrx"),
    **_each(_LAYER_NEOX, "codeshell", "jais2"),
    "falcon": replace(_LAYER_NEOX, norm_name="attn_norm_2"),
    "stablelm": replace(_LAYER_NEOX, k_norm=KNorm.HEAD_LAYER),
    "gemma": _GEMMA,
    "gemma2": _GEMMA,
    "gemma3": replace(_GEMMA, window=_OWN_BASE),
    "gemma3n": replace(_GEMMA, window=_OWN_BASE, v_norm=True, altup=True),
    "gemma4": replace(_GEMMA, window=replace(_OWN_BASE, factors=False), v_norm=True),
    "afmoe": replace(_NEOX, scale=_sqrt_n_embd),
    "grok": replace(_NEOX, scale=_embedding_scale(78.38367176906169)),
    "minicpm3": replace(_NEOX, scale=lambda keys: 12.0),
    **_each(replace(_NEOX, window=_OWN_BASE), "mimo2", "plamo3"),
    "step35": replace(_NEOX, window=replace(_OWN_BASE, factors=False)),
    "mellum": replace(_NEOX, window=_UNSCALED),
    "olmo2": replace(_NEOX, norm=Norm.NONE, k_norm=KNorm.ROW, window=_UNSCALED),
    "exaone4": replace(_NEOX, norm=Norm.NONE),
    "smallthinker": replace(_NEOX, turns_layer_0=_unless_fourth),
    "talkie": replace(_NEOX, embd_norm=Norm.RMS, norm_weight=False, k_norm=KNorm.PLAIN_AFTER),
    **_each(replace(_NEOX, k_norm=KNorm.ROW), "olmoe", "minimax-m2"),
    **_each(replace(_NEOX, k_norm=KNorm.HEAD_AFTER), "hunyuan-dense", "hunyuan-moe", "hunyuan_vl"),
    # positions have parts
    **_each(Recipe(RopeType.MROPE), "qwen2vl", "paddleocr"),
    **_each(Recipe(RopeType.IMROPE), "qwen3vl", "qwen3vlmoe"),
    # no RoPE
    **_each(replace(_LAYER_NONE, position_embd=True), "gpt2", "starcoder"),
    "mpt": replace(_LAYER_NONE, position_embd=True, k_norm=KNorm.ROW_LAYER),
    "bloom": replace(_LAYER_NONE, embd_norm=Norm.LAYER),
    "jais": _LAYER_NONE,
    **_each(_NONE, "refact", "jamba", "nemotron_h", "nemotron_h_moe", "mamba", "mamba2"),
    **_each(_NONE, "plamo2", "qwen3next", "qwen35", "qwen35moe", "kimi-linear"),
    **_each(_NONE, "rwkv6qwen2", "arwkv7"),
    **_each(_RWKV, "rwkv6", "rwkv7"),
}

NOT_MEASURED = frozenset(
    {
        *("chameleon", "plm", "glm-dsa", "dots1", "minimax-m3", "deepseek2-ocr"),
        *("nemotron_h_moe", "plamo2", "rwkv6", "rwkv6qwen2", "arwkv7"),
    }
)
"""Architectures of which no file of a real build was reproduced; they follow the source alone."""

MROPE_WITH_SECTIONS = {"glm4", "glm4moe", "hunyuan_vl"}
"""Architectures that have M-RoPE if the first two `rope.dimension_sections` are not 0."""

LAYER_0_ATTENDS_UNVERIFIED = {"qwen3next", "qwen35", "qwen35moe", "kimi-linear", "plamo2"}
"""Hybrids of which only a recurrent layer 0 was verified."""

UNVERIFIED: dict[str, str] = {
    **dict.fromkeys(
        ("deepseek4", "kimi-k3", "bailingmoe3", "dots3note", "qwen4exp", "cogvlm", "qwen3tts"),
        "how its first layer makes keys and values was not verified",
    ),
    "pockettts": "how its first layer makes keys and values was not verified",
    "minimax-01": "its first layer keeps no convolution state, and its other state depends on "
    "every token",
    "graniteswitch": "its layer 0 is a router",
    **dict.fromkeys(
        ("eagle3", "dflash", "gemma4-assistant"), "a draft model sees more than token ids"
    ),
}
"""Architectures that are not tested, and why."""


def recipe_of(keys: Keys) -> Recipe | str:
    """The recipe of a model, or why it is not tested."""
    recipe = RECIPES.get(keys.architecture)
    if recipe is None:
        why = UNVERIFIED.get(keys.architecture, "no verified recipe for this architecture")
        return f"{keys.architecture or 'a model without architecture'}: {why}"
    match keys.architecture:
        case "cohere2moe" if not keys.has("attention.layer_norm_rms_epsilon"):
            recipe = replace(recipe, norm=Norm.LAYER)
        case "chameleon" if keys.metadata.get("chameleon.swin_norm") is True:
            recipe = replace(recipe, norm=Norm.NONE)
        case "llama4" if keys.number("expert_count") == 128:
            recipe = replace(recipe, k_norm=KNorm.HEAD)
    if keys.architecture in MROPE_WITH_SECTIONS and all(
        keys.at("rope.dimension_sections", axis) for axis in (0, 1)
    ):
        recipe = replace(recipe, rope=RopeType.MROPE)
    return recipe


class Layout(StrEnum):
    """Which rows of which tensor go through the convolution, one channel each."""

    FIRST = "the first `ssm.inner_size` of ssm_in"
    BEHIND_GATE = "those of ssm_in behind the first `ssm.inner_size`, two per group and state too"
    HEADS_SECOND_HALF = "of every head of ssm_in the second half"
    QKV = "attn_qkv, or q, k and v of every group of ssm_in"
    B_TIMES_X = "shortconv.in_proj: its first third times its last third"
    Q_K_V = "attn_q, attn_k and attn_v one after another"
    INPUT = "no tensor: the normed input of the last token"


CONVOLUTIONS: dict[str, Layout] = {
    **dict.fromkeys(("mamba", "jamba"), Layout.FIRST),
    **dict.fromkeys(
        ("mamba2", "falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe"),
        Layout.BEHIND_GATE,
    ),
    "plamo2": Layout.HEADS_SECOND_HALF,
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe"), Layout.QKV),
    **dict.fromkeys(("lfm2", "lfm2moe"), Layout.B_TIMES_X),
    "kimi-linear": Layout.Q_K_V,
    **dict.fromkeys(("rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7"), Layout.INPUT),
}
"""What the convolution of a recurrent layer 0 keeps, by architecture."""
