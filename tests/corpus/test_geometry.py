"""Models against what real servers wrote for them; rules of architectures without a sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inspector.model.geometry import MemoryExpectation, WindowType, memory_of
from inspector.model.gguf import ModelFile, Value, read_model
from inspector.server.servers import NEWEST_BUILD, Build
from inspector.source import Source, opened

MANIFEST_MEMORY = {"kv": "attention", "mla": "attention"}
OLD = Build("llama.cpp", "b10865", 10865)
GEMMA_270M = {
    "block_count": 18,
    "embedding_length": 640,
    "attention.head_count": 4,
    "attention.head_count_kv": 1,
    "attention.key_length": 256,
    "attention.value_length": 256,
    "attention.sliding_window": 512,
}
"""What the header of the real Gemma 3 270M says; the file itself is too large to keep."""


def model(architecture: str, **entries: Value) -> ModelFile:
    return with_keys(architecture, entries)


def with_keys(architecture: str, keys: dict[str, Any]) -> ModelFile:
    prefixed: dict[str, Value] = {f"{architecture}.{key}": value for key, value in keys.items()}
    metadata = {"general.architecture": architecture, **prefixed}
    return ModelFile(Source(-1, "", 0), 3, metadata, {})


def expected(made: ModelFile, build: Build = NEWEST_BUILD) -> MemoryExpectation:
    found = memory_of(made, build)
    assert found is not None
    return found


def layers(found: MemoryExpectation) -> dict[str, tuple[int, ...]]:
    return {cache.member: cache.layers for cache in found.caches}


@pytest.fixture(scope="module")
def manifest(shared: Path) -> dict[str, Any]:
    return dict(json.loads((shared / "corpus/manifest.json").read_text())["models"])


def test_every_model_of_the_collection_agrees(shared: Path, manifest: dict[str, Any]) -> None:
    differing = {}
    for name, truth in manifest.items():
        if truth["file"] is None:
            found = expected(with_keys(truth["arch"], GEMMA_270M))
        else:
            with opened(shared / "corpus" / truth["file"]) as source:
                read = read_model(source)
                assert isinstance(read, ModelFile), name
                found = expected(read)
        says, should = as_manifest(found), relevant(truth)
        if says != should:
            differing[name] = says, should
    assert not differing
    assert len(manifest) == 20


def as_manifest(found: MemoryExpectation) -> dict[str, Any]:
    attention = [cache for cache in found.caches if cache.kind != "indexer"]
    k = {n: w for cache in attention for n, w in zip(cache.layers, cache.k, strict=True)}
    v = dict.fromkeys(k, 0) | {
        n: w for cache in attention for n, w in zip(cache.layers, cache.v, strict=bool(cache.v))
    }
    state = found.recurrent
    return {
        "memory": MANIFEST_MEMORY.get(found.memory, found.memory),
        "n_layer": found.n_layer,
        "attention_layers": sorted(k),
        "windowed_layers": [n for cache in attention if cache.kind == "swa" for n in cache.layers],
        "window": found.n_swa,
        "recurrent_layers": list(state.layers) if state else [],
        "k_width": k,
        "v_width": v,
        "r_width": state.r if state else None,
        "s_width": state.s if state else None,
        "indexer_width": next((c.k[0] for c in found.caches if c.kind == "indexer"), None),
        "mrope": found.mrope,
        "mla": found.mla,
    }


def relevant(truth: dict[str, Any]) -> dict[str, Any]:
    owned = truth["attention_layers"]
    return {
        "memory": truth["memory"],
        "n_layer": truth["n_layer"],
        "attention_layers": owned,
        "windowed_layers": [n for n in truth.get("windowed_layers", []) if n in owned],
        "window": truth.get("window", 0),
        "recurrent_layers": truth.get("recurrent_layers", []),
        "k_width": {int(n): width for n, width in truth["k_width"].items()},
        "v_width": {int(n): width for n, width in truth["v_width"].items()},
        "r_width": truth.get("r_width"),
        "s_width": truth.get("s_width"),
        "indexer_width": truth.get("indexer_width"),
        "mrope": truth.get("mrope", False),
        "mla": truth.get("mla", False),
    }


def test_widths_of_a_large_hybrid() -> None:
    qwen = with_keys(
        "qwen35",
        {
            "block_count": 64,
            "embedding_length": 5120,
            "attention.head_count": 24,
            "attention.head_count_kv": 4,
            "attention.key_length": 256,
            "attention.value_length": 256,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 6144,
            "ssm.group_count": 16,
            "ssm.state_size": 128,
        },
    )
    state = expected(qwen).recurrent
    assert state is not None
    assert (4 * state.r, 4 * state.s) == (122880, 3145728)
    assert expected(qwen).caches[0].layers == tuple(range(3, 64, 4))


def test_next_token_layers_leave_the_cache() -> None:
    glm = model("glm4moe", block_count=4, nextn_predict_layers=1, embedding_length=64)
    assert layers(expected(glm)) == {"attn": (0, 1, 2)}
    assert layers(expected(glm, OLD)) == {"attn": (0, 1, 2, 3)}
    never = model("hy_v3", block_count=4, nextn_predict_layers=1, embedding_length=64)
    assert layers(expected(never, OLD)) == {"attn": (0, 1, 2)}


def test_a_window_of_zero_makes_one_cache() -> None:
    off = {"block_count": 6, "attention.sliding_window": 0}
    for architecture in ("gemma3", "llama4", "olmo2"):
        assert layers(expected(with_keys(architecture, off))) == {"attn": tuple(range(6))}
    assert expected(model("gemma2", block_count=4)).n_swa == 4096
    assert expected(with_keys("phi3", {"block_count": 4, "attention.sliding_window": 8})).n_swa == 0


def test_windows_by_period_and_by_layer() -> None:
    keys: dict[str, Any] = {"block_count": 8, "attention.sliding_window": 16}
    llama4 = expected(with_keys("llama4", {"block_count": 8}))
    assert layers(llama4) == {"base": (3, 7), "swa": (0, 1, 2, 4, 5, 6)}
    assert (llama4.n_swa, llama4.swa_type) == (8192, WindowType.CHUNKED)
    laguna = expected(with_keys("laguna", keys))
    assert layers(laguna) == {"base": (0, 4), "swa": (1, 2, 3, 5, 6, 7)}
    by_period = expected(with_keys("gemma3", keys | {"attention.sliding_window_pattern": 2}))
    assert layers(by_period) == {"base": (1, 3, 5, 7), "swa": (0, 2, 4, 6)}
    flags = (True,) + (False,) * 7
    ignored = expected(with_keys("gemma3", keys | {"attention.sliding_window_pattern": flags}))
    assert layers(ignored)["base"] == (5,)
    read = expected(with_keys("mimo2", keys | {"attention.sliding_window_pattern": flags}))
    assert layers(read)["swa"] == (0,)


def test_memory_types_without_a_sample() -> None:
    indexed: dict[str, Any] = {
        "block_count": 4,
        "embedding_length": 64,
        "attention.head_count": 2,
        "attention.indexer.key_length": 32,
    }
    latent = {"attention.key_length_mla": 64, "attention.value_length_mla": 32}
    assert expected(with_keys("bert", indexed)).memory == "none"
    assert expected(with_keys("hy_v4", indexed)).memory == "dsa"
    assert expected(model("hy_v4", block_count=4)).memory == "kv"
    msa = expected(with_keys("minimax-m3", indexed | {"leading_dense_block_count": 1}))
    assert [cache.layers for cache in msa.caches] == [(0, 1, 2, 3), (1, 2, 3)]
    assert (msa.caches[1].k, msa.caches[1].v) == ((32,) * 3, (32,) * 3)
    glm = expected(
        with_keys("glm5-next", indexed | latent | {"attention.head_count_kv": (0, 1, 0, 1)})
    )
    assert glm.memory == "hybrid-idx-mla"
    assert [cache.kind for cache in glm.caches] == ["attention", "indexer"]
    assert glm.recurrent is not None
    assert glm.recurrent.layers == (0, 2)
    dsv4 = expected(with_keys("deepseek4", indexed | {"attention.sliding_window": 128}))
    assert layers(dsv4) == {"base": (), "swa": (0, 1, 2, 3)}
    lfm2 = {"block_count": 4, "attention.sliding_window": 9, "attention.head_count_kv": (0, 1) * 2}
    assert layers(expected(with_keys("lfm2", lfm2))) == {"base": (), "swa": (1, 3)}
    nemotron = expected(
        with_keys(
            "nemotron_h",
            {
                "block_count": 4,
                "attention.head_count": 2,
                "attention.head_count_kv": (0, 2, 0, 0),
                "feed_forward_length": (0, 0, 64, 0),
            },
        )
    )
    assert layers(nemotron) == {"attn": (1,)}
    assert nemotron.recurrent is not None
    assert nemotron.recurrent.layers == (0, 3)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"block_count": 0},
        {"block_count": 1 << 32},
        {"block_count": 4, "nextn_predict_layers": 5},
        {"block_count": "4"},
    ],
)
def test_metadata_without_believable_layers(keys: dict[str, Any]) -> None:
    assert memory_of(with_keys("llama", keys)) is None


def test_odd_values_do_not_raise() -> None:
    odd = {
        "block_count": 512,
        "embedding_length": -1,
        "attention.head_count": (0,),
        "attention.head_count_kv": ("x", 1.5),
        "attention.key_length": 1 << 64,
        "full_attention_interval": 0,
        "attention.sliding_window": 7,
        "attention.sliding_window_pattern": (),
        "rope.dimension_sections": (),
        "ssm.conv_kernel": 0,
        "attention.shared_kv_layers": 1 << 40,
    }
    for architecture in ("qwen35", "gemma4", "gemma3", "lfm2", "glm4", "nemotron_h", "kimi-linear"):
        assert memory_of(with_keys(architecture, odd)) is not None
