"""A model's metadata -> the sections that its state must have.

Source: ggml-org/llama.cpp b10587, src/llama-model.cpp `llama_model::load_hparams`, `create_memory`;
src/llama-hparams.cpp; src/models/*.cpp `load_arch_hparams`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from formats.bodies.attention import N_LAYER
from formats.bodies.compositions import MEMORY
from inspector.model.gguf import Array, Metadata, ModelFile
from inspector.server.servers import NEWEST_BUILD, Build


class WindowType(StrEnum):
    """Which positions a windowed layer sees."""

    STANDARD = "standard"
    """The last `n_swa`."""
    CHUNKED = "chunked"
    """Those since the last multiple of `n_swa`."""


@dataclass(frozen=True, slots=True)
class CacheExpectation:
    """One attention cache.

    Attributes:
        member: its name in the composition: `attn`, `base`, `swa`, `lid`, …
        kind: attention, swa or indexer.
        layers: layers of the model that it owns, ascending.
        k: elements of a K row, by layer.
        v: elements of a V row, by layer; empty if no values are stored.
        head_k: elements of one head's key, by layer.
        head_v: elements of one head's value, by layer; empty if no values are stored.
    """

    member: str
    kind: str
    layers: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    head_k: tuple[int, ...]
    head_v: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RecurrentExpectation:
    """The recurrent section.

    Attributes:
        layers: layers of the model that have a state, ascending.
        r: elements of an R row.
        s: elements of an S row.
        n_layer: the word in the section, which is not the number of `layers`.
    """

    layers: tuple[int, ...]
    r: int
    s: int
    n_layer: int


@dataclass(frozen=True, slots=True)
class MemoryExpectation:
    """What a build stores of a model.

    Attributes:
        architecture: as the model names it.
        memory: the composition (`kv`, `iswa`, `hybrid`, …), or `none`.
        n_layer_all: layers of the model, next-token layers included.
        n_layer_nextn: the last of them, which predict further tokens.
        caches: in file order.
        recurrent: None if the memory has no such section.
        n_swa: tokens of the sliding window, 0 without one.
        swa_type: how it slides, None without one.
        mrope: whether a position has several parts, which the cells of attention caches then carry.
        mla: whether keys are latent.
        n_vocab: ids of its vocabulary, 0 if unknown.
    """

    architecture: str
    memory: str
    n_layer_all: int
    n_layer_nextn: int
    caches: tuple[CacheExpectation, ...]
    recurrent: RecurrentExpectation | None
    n_swa: int
    swa_type: WindowType | None
    mrope: bool
    mla: bool
    n_vocab: int = 0

    @property
    def n_layer(self) -> int:
        """Layers without next-token layers."""
        return self.n_layer_all - self.n_layer_nextn


@dataclass(frozen=True, slots=True)
class Keys:
    """Numbers of a model's metadata, by key without the architecture in front."""

    architecture: str
    metadata: Metadata

    def number(self, key: str, default: int = 0) -> int:
        """A scalar; the first element of an array; the default if it is missing or no count."""
        return self.at(key, 0, default)

    def at(self, key: str, layer: int, default: int = 0) -> int:
        """The element of a layer, or the scalar that all layers share."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, tuple):
            value = value[layer] if layer < len(value) else default
        return value if isinstance(value, int) and value >= 0 else default

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return f"{self.architecture}.{key}" in self.metadata

    def is_array(self, key: str) -> bool:
        """Whether the key is there, with one element per layer."""
        return isinstance(self.metadata.get(f"{self.architecture}.{key}"), tuple)


def _each(memory: str, *architectures: str) -> dict[str, str]:
    return dict.fromkeys(architectures, memory)


MEMORY_OF: dict[str, str] = {
    **_each("none", "clef", "bert", "jina-bert-v2", "jina-bert-v3", "nomic-bert", "nomic-bert-moe"),
    **_each("none", "neo-bert", "eurobert", "modern-bert", "wavtokenizer-dec", "gemma-embedding"),
    **_each("none", "dream", "llada", "llada-moe", "rnd1"),
    **_each("recurrent", "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"),
    **_each("hybrid", "jamba", "falcon-h1", "plamo2", "granitehybrid", "lfm2", "lfm2moe"),
    **_each("hybrid", "nemotron_h", "nemotron_h_moe", "qwen3next", "qwen35", "qwen35moe"),
    **_each("hybrid", "kimi-linear", "kimi-k3", "bailingmoe3", "minimax-01"),
    **_each("hybrid-idx", "qwen4exp", "glm5-next"),
    **_each("dsa", "glm-dsa", "deepseek32", "hy_v4"),
    **_each("dsa-iswa", "dots3note"),
    **_each("dsv4", "deepseek4"),
    **_each("msa", "minimax-m3"),
}
"""Memory by architecture; `kv` for all others. What `SPECIAL` says is applied afterwards."""

WITHOUT_INDEXER = {"hy_v4": "kv", "qwen4exp": "hybrid-ple"}
"""What those become if the model has no indexer."""

SPECIAL = {
    ("kv", "windows"): "iswa",
    ("kv", "mla"): "mla",
    ("hybrid", "windows"): "hybrid-iswa",
    ("hybrid", "mla"): "hybrid-mla",
    ("hybrid-idx", "mla"): "hybrid-idx-mla",
}
"""What a memory becomes if some layers have a window, or keys are latent."""

BEFORE = (
    ("hybrid-idx", "indexer-without-values", "hybrid-idx-values"),
    ("msa", "minimax-two-sections", "minimax-m3"),
    ("hybrid-mla", "mla-without-values", "hybrid"),
    ("mla", "mla-without-values", "kv"),
    ("hybrid-iswa", "hybrid-iswa", "hybrid"),
    ("iswa", "swa-split", "kv"),
)
"""What a memory was before a change."""

_DSV4 = (("base", ("attention", False), ""), ("swa", ("swa", False), ""))


@dataclass(frozen=True, slots=True)
class Windows:
    """How an architecture tells which layers have a window.

    Attributes:
        period: layers of which one is dense; 0 if none is, None if only the metadata tell.
        dense_first: the dense layer is the first of its period, not the last.
        per_layer: `sliding_window_pattern` is read as a flag per layer, otherwise as the period.
        default: tokens of the window if the metadata do not say.
        always: tokens of the window whatever the metadata say, unless they say 0.
        type: how the window slides.
        n_layer: the only number of layers with which the model has windows; 0 for any.
    """

    period: int | None = None
    dense_first: bool = False
    per_layer: bool = False
    default: int = 0
    always: int = 0
    type: WindowType = WindowType.STANDARD
    n_layer: int = 0


_FLAGS = Windows(per_layer=True)

WINDOWS: dict[str, Windows] = {
    "gemma2": Windows(2, default=4096),
    "gemma3": Windows(6),
    "gemma3n": Windows(5),
    "gemma4": _FLAGS,
    "cohere2": Windows(4),
    "cohere2moe": Windows(4, dense_first=True, per_layer=True),
    "llama4": Windows(4, default=8192, always=8192, type=WindowType.CHUNKED),
    "gpt-oss": Windows(2),
    "exaone4": Windows(4, default=4096, n_layer=64),
    "exaone-moe": Windows(4, default=128),
    "olmo2": Windows(4),
    "plamo3": Windows(8),
    "smallthinker": Windows(4, dense_first=True, always=4096),
    "afmoe": Windows(4),
    "laguna": Windows(4, dense_first=True),
    "mellum": Windows(4, per_layer=True),
    "muse-glimmer": Windows(4, per_layer=True),
    "mimo2": _FLAGS,
    "step35": _FLAGS,
    "granite_swa": _FLAGS,
    "dots3note": _FLAGS,
    "dflash": _FLAGS,
    "maple": _FLAGS,
    "spark2_5": _FLAGS,
    "lfm2": Windows(0),
    "lfm2moe": Windows(0),
    "deepseek4": Windows(0),
}
"""Architectures with windowed layers; phi3 names a window and does not use it."""

NEXTN_WINDOWED = frozenset({"deepseek4"})
"""Architectures whose next-token layers have a window; they are dense elsewhere."""

NEXTN_NEVER_CACHED = frozenset(
    {
        *("step35", "hy_v3", "glm-dsa", "deepseek32", "mimo2", "dots3note"),
        *("qwen3next", "qwen35", "qwen35moe", "minimax-01"),
    }
)
"""Architectures whose next-token layers no build has put into the main cache."""

CACHED_LAYERS: dict[str, Callable[[Keys, int], int]] = {
    "gemma3n": lambda keys, n_layer_all: 20,
    "gemma4": lambda keys, n_layer_all: n_layer_all - keys.number("attention.shared_kv_layers"),
}
"""Layers from the first on that own keys and values; the others use those of an earlier layer."""

FEED_FORWARD_LAYERS = frozenset({"nemotron_h", "nemotron_h_moe"})
"""Architectures in which a layer with a feed-forward part has nothing else."""

FULL_ATTENTION_INTERVAL = {
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe", "qwen4exp"), 4),
    "minimax-01": 8,
}
"""Architectures in which one layer of an interval attends: the interval if none is stated."""

ATTENTION_AND_STATE = frozenset({"falcon-h1"})
"""Architectures whose layers are attention and recurrent at once."""

KEY_POOL = {"qwen4exp": 2, "glm5-next": 3}
"""Indexer keys that a row holds since they are pooled; 1 for all others."""

MROPE = frozenset(
    {
        *("qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"),
        *("qwen4exp", "paddleocr", "qwen3tts"),
    }
)
MROPE_BY_SECTIONS = frozenset({"glm4", "glm4moe", "hunyuan_vl"})
"""Architectures that have M-RoPE if the first two `rope.dimension_sections` are not 0."""


def memory_of(model: ModelFile, build: Build = NEWEST_BUILD) -> MemoryExpectation | None:
    """What a state of this model must hold.

    Args:
        model: whose metadata to use.
        build: the one that stores it.

    Returns:
        The sections; None without an architecture or a believable number of layers.
    """
    keys = Keys(model.architecture, model.metadata)
    n_layer_all = keys.number("block_count")
    if keys.architecture == "nanbeige":
        n_layer_all *= keys.number("num_loops", 1)
    n_nextn = keys.number("nextn_predict_layers")
    if not keys.architecture or not 0 < n_layer_all <= N_LAYER or n_nextn > n_layer_all:
        return None
    return _Model(keys, n_layer_all, n_nextn, build).expectation()


def _n_vocab(keys: Keys) -> int:
    listed = keys.metadata.get("tokenizer.ggml.tokens")
    if isinstance(listed, Array):
        return listed.count
    return len(listed) if isinstance(listed, tuple) else keys.number("vocab_size")


@dataclass(frozen=True, slots=True)
class _Model:
    keys: Keys
    n_layer_all: int
    n_nextn: int
    build: Build

    def expectation(self) -> MemoryExpectation:
        n_swa, windows = self.windows()
        swa = self.windowed(n_swa, windows)
        memory = self.memory(windowed=bool(swa))
        recurrent = self.recurrent_layers(memory)
        dense = self.attention_layers(recurrent)
        members = _DSV4 if memory == "dsv4" else MEMORY[memory][1] if memory in MEMORY else ()
        caches = tuple(
            self.cache(member, kind, values, dense, swa)
            for member, (kind, values), _ in members
            if kind != "recurrent"
        )
        has_state = any(kind == "recurrent" for _, (kind, _), _ in members)
        return MemoryExpectation(
            architecture=self.keys.architecture,
            memory=memory,
            n_layer_all=self.n_layer_all,
            n_layer_nextn=self.n_nextn,
            caches=caches,
            recurrent=self.state(recurrent) if has_state else None,
            n_swa=n_swa if swa else 0,
            swa_type=windows.type if windows is not None and swa else None,
            mrope=self.mrope(),
            mla=self.mla,
            n_vocab=_n_vocab(self.keys),
        )

    @property
    def n_layer(self) -> int:
        return self.n_layer_all - self.n_nextn

    @property
    def mla(self) -> bool:
        lengths = ("attention.key_length_mla", "attention.value_length_mla")
        return all(self.keys.number(key) for key in lengths)

    def memory(self, *, windowed: bool) -> str:
        memory = MEMORY_OF.get(self.keys.architecture, "kv")
        if not self.keys.number("attention.indexer.key_length"):
            memory = WITHOUT_INDEXER.get(self.keys.architecture, memory)
        for special, holds in (("windows", windowed), ("mla", self.mla)):
            if holds and (memory, special) in SPECIAL:
                memory = SPECIAL[memory, special]
                break
        for newer, change, older in BEFORE:
            if memory == newer and not self.build.has(change):
                memory = older
        return memory

    def windows(self) -> tuple[int, Windows | None]:
        """Tokens of the window, 0 without one, and how layers are chosen."""
        windows = WINDOWS.get(self.keys.architecture)
        if windows is None or windows.n_layer not in (0, self.n_layer):
            return 0, None
        n_swa = self.keys.number("attention.sliding_window", windows.default)
        return (windows.always or n_swa) if n_swa else 0, windows

    def windowed(self, n_swa: int, windows: Windows | None) -> frozenset[int]:
        """Layers with a window."""
        if not n_swa or windows is None:
            return frozenset()
        return frozenset(
            layer
            for layer in range(self.n_layer_all)
            if (
                self.has_window(layer, windows)
                if layer < self.n_layer
                else self.keys.architecture in NEXTN_WINDOWED
            )
        )

    def has_window(self, layer: int, windows: Windows) -> bool:
        key = "attention.sliding_window_pattern"
        if windows.per_layer and (self.keys.is_array(key) or windows.period is None):
            return bool(self.keys.at(key, layer))
        period = windows.period or 0
        if not self.keys.is_array(key):
            period = self.keys.number(key, period)
        if period == 0:
            return True
        return layer % period != 0 if windows.dense_first else layer % period < period - 1

    def recurrent_layers(self, memory: str) -> tuple[int, ...]:
        if "hybrid" not in memory and memory != "recurrent":
            return ()
        everywhere = memory == "recurrent" or self.keys.architecture in ATTENTION_AND_STATE
        return tuple(
            layer for layer in range(self.n_layer) if everywhere or self.is_recurrent(layer)
        )

    def is_recurrent(self, layer: int) -> bool:
        architecture = self.keys.architecture
        if architecture in FULL_ATTENTION_INTERVAL:
            if self.keys.has("attention.recurrent_layers"):
                return bool(self.keys.at("attention.recurrent_layers", layer))
            default = FULL_ATTENTION_INTERVAL[architecture]
            interval = self.keys.number("full_attention_interval", default) or default
            return (layer + 1) % interval != 0
        if architecture in FEED_FORWARD_LAYERS and self.keys.at("feed_forward_length", layer):
            return False
        return self.n_head_kv(layer) == 0

    def attention_layers(self, recurrent: tuple[int, ...]) -> tuple[int, ...]:
        """Layers that own keys and values."""
        architecture = self.keys.architecture
        keep_nextn = self.n_layer == 0 or (
            self.build.has("nextn-cached")
            and not self.build.has("nextn-left-out")
            and architecture not in NEXTN_NEVER_CACHED
        )
        layers = range(self.n_layer_all if keep_nextn else self.n_layer)
        if architecture in CACHED_LAYERS:
            layers = layers[: max(0, CACHED_LAYERS[architecture](self.keys, self.n_layer_all))]
        state_only = set() if architecture in ATTENTION_AND_STATE else set(recurrent)
        return tuple(
            layer
            for layer in layers
            if layer not in state_only
            and not (
                architecture in FEED_FORWARD_LAYERS and self.keys.at("feed_forward_length", layer)
            )
        )

    def cache(
        self, member: str, kind: str, values: bool, attention: tuple[int, ...], swa: frozenset[int]
    ) -> CacheExpectation:
        if kind == "indexer":
            return self.indexer(member, values, attention, swa)
        split = member in ("base", "mla", "swa")
        layers = tuple(n for n in attention if not split or (n in swa) == (kind == "swa"))
        heads = tuple(1 if self.mla else self.n_head_kv(layer) for layer in layers)
        head_k = tuple(self.head_width("key", windowed=layer in swa) for layer in layers)
        head_v = tuple(self.head_width("value", windowed=layer in swa) for layer in layers)
        k = tuple(head * n for head, n in zip(head_k, heads, strict=True))
        v = tuple(head * n for head, n in zip(head_v, heads, strict=True))
        if not values:
            v = head_v = ()
        return CacheExpectation(member, kind, layers, k, v, head_k, head_v)

    def indexer(
        self, member: str, values: bool, attention: tuple[int, ...], swa: frozenset[int]
    ) -> CacheExpectation:
        first = self.keys.number("leading_dense_block_count") if member == "idx" else 0
        layers = tuple(
            layer
            for layer in attention
            if layer >= first
            and layer not in swa
            and (not self.has_indexer_types or self.keys.at("attention.indexer.types", layer))
        )
        head = self.keys.number("attention.indexer.key_length")
        pool = 1
        if self.build.has("pooled-indexer-keys"):
            pool = KEY_POOL.get(self.keys.architecture, 1)
        n = len(layers)
        v = (self.head_width("value", windowed=False),) * n if values else ()
        return CacheExpectation(member, "indexer", layers, (head * pool,) * n, v, (head,) * n, v)

    @property
    def has_indexer_types(self) -> bool:
        """Whether some layers share the indexer of another one, and keep no keys of their own."""
        return self.build.has("full-indexer-layers") and self.keys.is_array(
            "attention.indexer.types"
        )

    def state(self, layers: tuple[int, ...]) -> RecurrentExpectation:
        newer = self.build.has("recurrent-n-layer")
        n_layer = self.n_layer if newer else self.n_layer_all
        return RecurrentExpectation(layers, *self.state_widths(), n_layer)

    def n_head_kv(self, layer: int) -> int:
        n_head = self.keys.at("attention.head_count", layer)
        return self.keys.at("attention.head_count_kv", layer, n_head)

    def head_width(self, part: str, *, windowed: bool) -> int:
        """Elements of one head's key or value."""
        n_head = self.keys.number("attention.head_count")
        default = self.keys.number("embedding_length") // n_head if n_head else 0
        width = self.keys.number(f"attention.{part}_length", default)
        return self.keys.number(f"attention.{part}_length_swa", width) if windowed else width

    def state_widths(self) -> tuple[int, int]:
        """Elements of an R row and of an S row."""
        number = self.keys.number
        n_embd, n_head = number("embedding_length"), number("attention.head_count")
        state, inner = number("ssm.state_size"), number("ssm.inner_size")
        if head_size := number("wkv.head_size"):
            return number("token_shift_count", 2) * n_embd, n_embd * head_size
        if l_cache := number("shortconv.l_cache"):
            return n_embd * (l_cache - 1), state * inner
        if head_dim := number("kda.head_dim"):
            convolved = max(0, (number("ssm.conv_kernel") or 4) - 1)
            return 3 * convolved * n_head * head_dim, head_dim**2 * n_head
        if self.keys.architecture == "minimax-01":
            return 0, self.head_width("key", windowed=False) ** 2 * n_head
        convolved = max(0, number("ssm.conv_kernel") - 1)
        return convolved * (inner + 2 * number("ssm.group_count") * state), state * inner

    def mrope(self) -> bool:
        if self.keys.architecture in MROPE_BY_SECTIONS:
            return all(self.keys.at("rope.dimension_sections", axis) for axis in (0, 1))
        return self.keys.architecture in MROPE
