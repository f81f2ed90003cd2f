"""Slot files of tiny models, and what is said about whom they belong to.

Rows come from `first_layer`, bytes from `writer`; only `identity` is of the project.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from inspector.identify import identify
from inspector.model.gguf import ModelFile, read_model
from inspector.model.identity import Identity, judge
from inspector.sections import sections
from inspector.source import opened
from inspector.tokens import tokens_of
from tests.support.first_layer import (
    BLOCKS,
    TYPE_IDS,
    Model,
    angles,
    encoded,
    hadamard,
    rms,
    turned,
)
from tests.support.writer import (
    DIALECTS,
    Cache,
    Cell,
    Memory,
    Recurrent,
    Row,
    Slot,
    Tokens,
    pack,
    small_numbers,
)

N_VOCAB = 48
IDS = tuple((7 * i * i + 3 * i + 1) % N_VOCAB for i in range(40))
Rows = Callable[[Model, int, int], tuple[Any, Any]]
"""(model, token, position) -> the elements of its K row and of its V row."""

# -- files -----------------------------------------------------------------------------------------


def row(kind: str, width: int) -> Row:
    n, size = BLOCKS[kind]
    return Row(TYPE_IDS[kind], width // n * size)


def attention_state(
    model: Model,
    rows: Rows,
    *,
    k_type: str = "f32",
    v_type: str = "f32",
    ids: tuple[int, ...] = IDS,
    transposed: bool = False,
    rotated: tuple[int, int] = (0, 0),
    said: tuple[int, int] | None = None,
    moved: int = 0,
    window: int = 0,
    cells: tuple[Cell, ...] | None = None,
    dialect: str = "",
    tokens: Tokens | None = None,
) -> bytes:
    """A slot file of one layer.

    Args:
        model: that computed it.
        rows: how.
        k_type: of keys.
        v_type: of values.
        ids: tokens that it computed.
        transposed: whether values are stored channel by channel.
        rotated: sizes of the matrices that rows are multiplied by.
        said: what the file says about that; None for a version that says nothing.
        moved: how far the positions that keys were computed at are from the stored ones.
        window: tokens of the windowed cache that has the layer; 0 for an ordinary cache.
        cells: the cells, if they are not those of plain text.
        dialect: how sections are written.
        tokens: the token field, if it is not the plain list.
    """
    cells = cells or tuple(Cell(pos) for pos in range(len(ids)))
    listed = {cell.pos: token for cell, token in zip(cells, ids, strict=True)}
    k, v = rows(model, ids[0], 0)

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        if layer or part not in ("attn.k", "attn.v", "swa.k", "swa.v"):
            return small_numbers(part, layer, pos, size)
        side = part[-1] == "v"
        numbers = rows(model, listed[pos], pos if side else pos + moved)[side]
        if rotated[side]:
            numbers = hadamard(numbers, rotated[side])
        return encoded(numbers, v_type if side else k_type)

    cache = Cache(
        (cells,), (row(k_type, len(k)),), (row(v_type, len(v)),) if len(v) else None, transposed
    )
    if said is not None:
        dialect, cache = "rotated", replace(cache, n_rot=said)
    if window:
        base = replace(cache, k=(row("f32", 32),), v=(row("f32", 32),))
        last = replace(cache, streams=(cells[-window:],), windowed=True)
        memory = Memory({"base": base, "swa": last}, DIALECTS[dialect])
    else:
        memory = Memory({"attn": cache}, DIALECTS[dialect])
    version = 4 if said is not None else 3 if dialect == "xyt" else 2
    return pack(Slot(version, tokens or Tokens(ids), memory), values).data


def identity(
    folder: Path,
    state: bytes,
    model: Model | None,
    *,
    without: str = "",
    writer: str | None = None,
) -> Identity:
    """What is said of a state.

    Args:
        folder: for the files.
        state: the bytes of a slot file.
        model: that it is compared with; None for no model.
        without: a tensor that the model's file lacks.
        writer: the program that wrote the state.
    """
    (folder / "state.bin").write_bytes(state)
    with opened(folder / "state.bin") as source:
        root = identify(source).root
        assert root is not None
        parts, tokens = sections(root), tokens_of(root)
        if model is None:
            return judge(source, parts, tokens, None)
        with opened(model.write(folder / "model.gguf", without=without)) as weights:
            header = read_model(weights)
            assert isinstance(header, ModelFile), header
            return judge(source, parts, tokens, header, writer=writer)


def codes(found: Identity) -> list[str]:
    return [finding.code for finding in found.findings]


Kept = Callable[[Model, int], Any]
"""(model, token) -> what a convolution keeps of it."""


def recurrent_state(model: Model, kept: Kept, n_taps: int, pos: int = len(IDS) - 1) -> bytes:
    """A slot file of one recurrent layer: channel by channel, the oldest token first."""
    taken = [kept(model, token) for token in IDS[pos + 1 - n_taps : pos + 1]]
    numbers = np.stack(taken, axis=1).ravel()

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        return encoded(numbers, "f32") if layer == 0 else small_numbers(part, layer, pos, size)

    r = Row(0, 4 * len(numbers))
    memory = Memory({"recr": Recurrent((Cell(pos),), 1, (r,), (Row(0, r.size + 64),))})
    return pack(Slot(2, Tokens(IDS), memory), values).data


# -- models ----------------------------------------------------------------------------------------

HEAD, N_EMBD = 32, 64


def keys(n_head: int = 2, n_kv: int = 1, head: int = HEAD, **more: Any) -> dict[str, Any]:
    return {
        "block_count": 1,
        "embedding_length": N_EMBD,
        "context_length": 4096,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_kv,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def usual(
    architecture: str = "llama",
    seed: int = 1,
    *,
    n_kv: int = 1,
    head: int = HEAD,
    norm: bool = True,
    weight_type: str = "f32",
    **more: Any,
) -> Model:
    """A model with a norm and separate projections."""
    model = Model(architecture, keys(2, n_kv, head, **more), seed, weight_type)
    model.embeddings(N_VOCAB)
    if norm:
        model.vector("blk.0.attn_norm.weight", model.n_embd)
    model.matrix("blk.0.attn_k.weight", n_kv * head)
    model.matrix("blk.0.attn_v.weight", n_kv * head)
    return model


def plain(
    model: Model,
    token: int,
    pos: int,
    *,
    pairs: str = "norm",
    turn: Callable[[int], list[float]] | None = None,
    magnitude: float = 1.0,
    x: Any = None,
) -> tuple[Any, Any]:
    """RMS norm, projections with biases if there are any, RoPE of every head."""
    head = int(model.keys["attention.key_length"])
    x = rms(model.tensors["token_embd.weight"][token]) if x is None else x
    if (weight := model.get("blk.0.attn_norm.weight")) is not None:
        x = x * weight
    k, v = (model.tensors[f"blk.0.attn_{letter}.weight"] @ x for letter in "kv")
    for letter, side in (("k", k), ("v", v)):
        if (bias := model.get(f"blk.0.attn_{letter}.bias")) is not None:
            side += bias
    turns = turn(pos) if turn is not None else angles(pos, head)
    heads = [turned(h, turns, pairs, magnitude) for h in k.reshape(-1, head)]
    return np.concatenate(heads), v


def llama(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    return plain(model, token, pos)


def neox(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    return plain(model, token, pos, pairs="neox")


def latent_row(model: Model, token: int, pos: int) -> tuple[Any, Any, Any]:
    """The latent, the turned part that all heads share, and the input."""
    t = model.tensors
    x = rms(t["token_embd.weight"][token], t["blk.0.attn_norm.weight"])
    z = t["blk.0.attn_kv_a_mqa.weight"] @ x
    return rms(z[:48], t["blk.0.attn_kv_a_norm.weight"]), turned(z[48:], angles(pos, 16), "norm"), x


def latent_first(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    latent, rope, _ = latent_row(model, token, pos)
    return np.concatenate([latent, rope]), np.zeros(0)


def rope_first(model: Model, token: int, pos: int) -> tuple[Any, Any]:
    latent, rope, _ = latent_row(model, token, pos)
    return np.concatenate([rope, latent]), np.zeros(0)


def by_head(model: Model, token: int, pos: int, *, nope_first: bool = True) -> tuple[Any, Any]:
    latent, rope, _ = latent_row(model, token, pos)
    full = (model.tensors["blk.0.attn_kv_b.weight"] @ latent).reshape(3, 24 + 20)
    parts = [(head[:24], rope) if nope_first else (rope, head[:24]) for head in full]
    k = np.concatenate([part for pair in parts for part in pair])
    return k, np.concatenate([head[24:] for head in full])


def latent_model(
    seed: int,
    *,
    absorbed: bool,
    scaling: dict[str, Any] | None = None,
    architecture: str = "deepseek2",
) -> Model:
    lengths = {"attention__key_length": 64, "attention__value_length": 48}
    lengths |= {"attention__key_length_mla": 40, "attention__value_length_mla": 20}
    if not absorbed:
        lengths = {"attention__key_length": 40, "attention__value_length": 20}
    own = {key.replace("__", "."): value for key, value in lengths.items()}
    own |= {"attention.kv_lora_rank": 48, "rope.dimension_count": 16}
    own |= scaling or {}
    model = Model(architecture, keys(3, 1 if absorbed else 3) | own, seed)
    model.embeddings(N_VOCAB)
    model.vector("blk.0.attn_norm.weight", N_EMBD)
    model.matrix("blk.0.attn_kv_a_mqa.weight", 64)
    model.vector("blk.0.attn_kv_a_norm.weight", 48)
    if not absorbed:
        model.matrix("blk.0.attn_kv_b.weight", 3 * 44, 48)
    return model
