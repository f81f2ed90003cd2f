"""What ik_llama.cpp stores of its model: one cell array, and every layer in it.

Source: ikawrakow/ik_llama.cpp 8337e4cd3, src/llama.cpp `llama_kv_cache_init`,
`llama_data_write::write_kv_cache_data`.
"""

from __future__ import annotations

from inspector.model.geometry import Keys, MemoryExpectation
from inspector.model.gguf import ModelFile
from inspector.model.section import SectionExpectation, rows_of
from inspector.server.target import FlashAttention, Target, cache_type

MLA = frozenset({"deepseek2", "glm-dsa", "mistral4", "bailingmoe3"})
"""Architectures with latent keys, if `-mla` is not 0."""
RECURRENT = frozenset({"qwen3next", "qwen35", "qwen35moe", "bailingmoe3"})
"""Architectures with a recurrent state that it can store."""
UNKNOWN = frozenset({"deepseek4", "openpangu", "laguna"})
"""Architectures of which it stores more than is computed here."""
Side = tuple[int, int]
"""Elements of a row, and of one head in it."""
_NOTHING: Side = (0, 0)
_F32 = 4
_LATENT_ROTATION = 64


def ik_sections(target: Target, memory: MemoryExpectation) -> tuple[SectionExpectation, ...] | str:
    """The parts of a state, in file order; or why they are not known, in words."""
    model = target.model
    assert model is not None  # what the memory is of
    has_state = memory.recurrent is not None
    if memory.architecture in UNKNOWN or (has_state and memory.architecture not in RECURRENT):
        return f"what ik_llama.cpp stores of a {memory.architecture} is not computed"
    attention = _attention(target, memory, model)
    if isinstance(attention, str):
        return attention
    parts = [attention]
    if target.build.has("ggsq-3") or target.build.has("ggsq-4"):
        parts.append(_recurrent(target, memory))
    if target.build.has("ggsq-4"):
        indexer = _indexer(target, memory, model)
        if isinstance(indexer, str):
            return indexer
        parts.append(indexer)
    return tuple(parts)


def _attention(
    target: Target, memory: MemoryExpectation, model: ModelFile
) -> SectionExpectation | str:
    """Keys and values of all layers; rows of no bytes where a layer has no cache."""
    owned = {
        layer: (
            (cache.k[at], cache.head_k[at]),
            (cache.v[at], cache.head_v[at]) if cache.v else _NOTHING,
        )
        for cache in memory.caches
        if cache.kind != "indexer"
        for at, layer in enumerate(cache.layers)
    }
    latent = memory.architecture in MLA and target.mla > 0
    transposed = target.flash_attention is FlashAttention.OFF
    values = not latent or (target.mla == 1 and transposed)
    type_k = target.type_v if latent and transposed and target.mla > 1 else target.type_k
    if memory.architecture in MLA:
        owned = dict.fromkeys(owned, _latent(target, Keys(model.architecture, model.metadata)))
    layers = range(memory.n_layer)
    keys = [owned.get(layer, (_NOTHING, _NOTHING))[0] for layer in layers]
    its_values = [owned.get(layer, (_NOTHING, _NOTHING))[1] for layer in layers]
    k = _rows(target, type_k, keys)
    v = _rows(target, target.type_v, its_values)
    if isinstance(k, str) or isinstance(v, str):
        return k if isinstance(k, str) else str(v)
    return SectionExpectation(
        "attn",
        "attention",
        tuple(layer for layer in layers if layer in owned),
        memory.n_layer,
        type_k,
        target.type_v if values else None,
        k,
        v if values else (),
        _rotation(target, type_k, keys, latent=latent) if target.k_hadamard else 0,
        _rotation(target, target.type_v, its_values, latent=False) if target.v_hadamard else 0,
        capacity=target.n_ctx_seq,
    )


def _rotation(target: Target, name: str, sides: list[Side], *, latent: bool) -> int:
    """Elements of the matrix that rotates a side, 0 for none: unlike upstream, whole heads.

    Source: ikawrakow/ik_llama.cpp 18fdd80ea, a95981013, 3bf7e836c.
    """
    kind = cache_type(name, target.build)
    head = max((head for _, head in sides), default=0)
    if kind is None or kind.block_elements == 1 or not head:
        return 0
    if latent:
        return _LATENT_ROTATION
    if head & (head - 1) == 0:
        return head
    return next((n for n in (512, 256, 128, 64) if head % n == 0), 0)


def _rows(target: Target, name: str, sides: list[Side]) -> tuple[int, ...] | str:
    widths, heads = zip(*sides, strict=True)
    return rows_of(target, name, widths, heads)


def _latent(target: Target, keys: Keys) -> tuple[Side, Side]:
    """Keys and values in the layers of a latent model."""
    n_head = keys.number("attention.head_count")
    head_k, head_v = (
        keys.number(f"attention.{part}_length_mla", keys.number(f"attention.{part}_length"))
        for part in ("key", "value")
    )
    values = n_head * head_v, head_v
    if target.mla == 0:
        return (n_head * head_k, head_k), values
    latent = keys.number("attention.kv_lora_rank") + keys.number("rope.dimension_count")
    return (latent, latent), values


def _recurrent(target: Target, memory: MemoryExpectation) -> SectionExpectation:
    """One row a layer, of no bytes where a layer has no state; no rows without such layers."""
    state = memory.recurrent
    rows: tuple[int, ...] = ()
    if state is not None:
        row = _F32 * (state.r + state.s)
        rows = tuple(row if layer in state.layers else 0 for layer in range(memory.n_layer))
    return SectionExpectation(
        "qnext",
        "recurrent",
        state.layers if state is not None else (),
        memory.n_layer,
        "f32",
        None,
        rows,
        (),
        capacity=target.n_parallel,
    )


def _indexer(
    target: Target, memory: MemoryExpectation, model: ModelFile
) -> SectionExpectation | str:
    """Keys of the layers that own an indexer."""
    width = Keys(model.architecture, model.metadata).number("attention.indexer.key_length")
    layers: tuple[int, ...] = ()
    if width and memory.architecture == "glm-dsa":
        layers = tuple(n for n in range(memory.n_layer) if n <= 1 or n % 4 == 2)
    n = len(layers)
    k = rows_of(target, target.type_indexer, (width,) * n, (width,) * n)
    if isinstance(k, str):
        return k
    return SectionExpectation("dsa", "indexer", layers, n, target.type_indexer, None, k, ())
