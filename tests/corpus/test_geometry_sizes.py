"""What is expected of a model's state against the states that real servers wrote."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from inspector.model.expectation import StateExpectation, expected_state
from inspector.model.geometry import memory_of
from inspector.report import examined
from inspector.sections import Block, Section
from inspector.server.servers import Build, build_named, ggsq_version
from inspector.server.target import Target, target_of
from tests.support.gguf import model_file

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
QWEN_9B = {
    "block_count": 32,
    "embedding_length": 4096,
    "attention.head_count": 16,
    "attention.head_count_kv": 4,
    "attention.key_length": 256,
    "attention.value_length": 256,
    "full_attention_interval": 4,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 4096,
    "ssm.group_count": 16,
    "ssm.state_size": 128,
    "ssm.time_step_rank": 32,
}
QWEN_27B = QWEN_9B | {"block_count": 64, "embedding_length": 5120, "ssm.inner_size": 6144}

OPTIONS = {
    "n_ctx": "-c",
    "n_batch": "-b",
    "n_ubatch": "-ub",
    "n_parallel": "-np",
    "n_seq_max": "-np",
    "flash_attn": "-fa",
    "type_k": "-ctk",
    "type_v": "-ctv",
    "ctx_checkpoints": "--ctx-checkpoints",
    "cache_ram": "--cache-ram",
}
SWITCHES = {"kv_unified": "--kv-unified", "swa_full": "--swa-full"}
BUILDS = {"2024-04": "b2700", "2024-06": "b3100", "2024-09": "b3700"}
"""A build of those months in which the collection's packages were made."""


def command(entry: dict[str, Any]) -> str:
    """The server, or one that makes the same context as the library did."""
    words = ["llama-server", *(() if "n_parallel" in entry["settings"] else ("-np", "1"))]
    for name, value in entry["settings"].items():
        if name in OPTIONS:
            words += [OPTIONS[name], str(value)]
        elif name in SWITCHES and value:
            words.append(SWITCHES[name])
    return " ".join(words)


def truth(shared: Path) -> dict[str, Any]:
    return dict(json.loads((shared / "corpus/manifest.json").read_text()))


def states(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The undamaged states of one sequence."""
    return [
        entry
        for entry in manifest["files"]
        if entry["kind"] in ("slot", "seq")
        and entry["made_by"] != "damage"
        and entry["fork"] == "upstream"
    ]


@pytest.fixture(scope="module")
def manifest(shared: Path) -> dict[str, Any]:
    return truth(shared)


@pytest.fixture(scope="module")
def expectations(
    shared: Path, manifest: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, StateExpectation]:
    """What is expected of every state, by file."""
    gemma = model_file(tmp_path_factory.mktemp("model") / "gemma.gguf", "gemma3", GEMMA_270M)
    found = {}
    for entry in states(manifest):
        model = manifest["models"][entry["model"]]["file"]
        path = shared / "corpus" / model if model else gemma
        build = BUILDS.get(entry["build_label"], entry["build_label"])
        with target_of(command(entry), build, path) as target:
            state = expected_state(target)
        assert isinstance(state, StateExpectation), (entry["file"], state)
        packed = state.packed and entry["made_by"] == "llama-server"
        found[entry["file"]] = replace(state, packed=packed)
    assert len(found) == 188
    return found


def test_every_state_has_the_expected_size(
    shared: Path, manifest: dict[str, Any], expectations: dict[str, StateExpectation]
) -> None:
    differing = {}
    for entry in states(manifest):
        with examined(shared / "corpus" / entry["file"]) as report:
            reading, tokens = report.identification.reading, report.tokens
            assert reading is not None
            assert tokens is not None
            appendix = reading.decoding.root.get("appendix")
            size = report.size - (len(appendix.span) if appendix is not None else 0)
        expected = expectations[entry["file"]].file_bytes(tokens.count)
        if expected != size:
            differing[entry["file"]] = expected, size
    assert not differing


def test_every_state_is_laid_out_as_expected(
    shared: Path, manifest: dict[str, Any], expectations: dict[str, StateExpectation]
) -> None:
    differing = {}
    for entry in states(manifest):
        state = expectations[entry["file"]]
        with examined(shared / "corpus" / entry["file"]) as report:
            stored = [seen(section) for section in report.sections]
        expected = [hoped(state, n) for n in range(len(state.sections))]
        for one, other in zip(expected, stored, strict=True):
            for key in one.keys() & other.keys():
                if one[key] != other[key] and None not in (one[key], other[key]):
                    differing[entry["file"], key] = one[key], other[key]
    assert not differing


def seen(section: Section) -> dict[str, Any]:
    """What a section of a file is like; None for what the format does not say there."""
    recurrent = section.kind == "recurrent"
    k, v = (section.r, section.s) if recurrent else (section.k, section.v)
    found: dict[str, Any] = {
        "kind": section.kind,
        "n_layer": section.n_layer,
        "k": rows(k),
        "v": rows(v),
        "type_k": {block.type_name for block in k},
    }
    if not recurrent:
        found |= {"n_stream": section.n_stream, "cell_ext": section.cell_ext}
        if section.v_trans is not None:
            found["v_trans"] = bool(section.v_trans)
    stream = next((child for child in section.node.children if child.name == "streams"), None)
    words = [stream.children[0].number(name) for name in ("n_rot_k", "n_rot_v")] if stream else []
    if None not in words:
        found["rotation"] = words
    return found


def rows(blocks: tuple[Block, ...]) -> list[int]:
    return [block.row_bytes for block in blocks]


def hoped(state: StateExpectation, index: int) -> dict[str, Any]:
    """The same of what is expected."""
    section = state.sections[index]
    found: dict[str, Any] = {
        "kind": section.kind,
        "n_layer": section.n_layer,
        "k": list(section.k),
        "v": list(section.v),
        "type_k": {section.type_k},
    }
    if section.kind != "recurrent":
        found |= {"n_stream": state.n_stream or 1, "cell_ext": state.cell_ext}
        found["v_trans"] = state.v_trans
        if state.rotation_words:
            found["rotation"] = [section.n_rot_k, section.n_rot_v]
    return found


def test_every_build_writes_the_version_it_is_said_to_read(
    shared: Path, manifest: dict[str, Any]
) -> None:
    for entry in states(manifest):
        with (shared / "corpus" / entry["file"]).open("rb") as file:
            version = struct.unpack("<4sI", file.read(8))[1]
        label = entry["build_label"]
        build = build_named(BUILDS.get(label, label))
        assert isinstance(build, Build)
        assert ggsq_version(build) == version, entry["file"]


IK_OPTIONS = OPTIONS | {"mla_attn": "-mla", "idx_type_k": "-ictk"}
IK_SWITCHES = {"k_cache_hadamard": "-khad", "v_cache_hadamard": "-vhad"}
GLM_DSA = {
    "block_count": 5,
    "embedding_length": 64,
    "attention.head_count": 2,
    "attention.key_length": 64,
    "attention.value_length": 32,
    "attention.kv_lora_rank": 64,
    "rope.dimension_count": 32,
    "attention.indexer.key_length": 64,
}
"""What the header of the collection's small GLM-DSA says; the file itself was not kept."""
BY_LAYER = "qwen2.ik-2026-09.first-last-k.seq.bin"
"""A state with a cache type for each layer, which only the library can make."""


def test_every_state_of_ik_has_the_expected_size(shared: Path, tmp_path: Path) -> None:
    manifest = json.loads((shared / "corpus-ik/manifest.json").read_text())
    glm = model_file(tmp_path / "glm.gguf", "glm-dsa", GLM_DSA)
    differing, n = {}, 0
    for entry in manifest["files"]:
        if entry["kind"] != "seq" or entry["made_by"] == "damage" or entry["file"] == BY_LAYER:
            continue
        model = manifest["models"][entry["model"]]["file"]
        words = ["llama-server"]
        for name, value in entry["settings"].items():
            if name in IK_OPTIONS:
                words += [IK_OPTIONS[name], str(value)]
            elif name in IK_SWITCHES and value:
                words.append(IK_SWITCHES[name])
        commit = entry["build_label"].partition("(")[2].rstrip(")")  # the package is older inside
        path = shared / "corpus-ik" / model if model else glm
        with target_of(" ".join(words), f"ik@{commit or '2026-07-01'}", path) as target:
            state = expected(target)
        stored = entry["structure"]
        size = state.file_bytes(stored["cells"])
        assert size is not None
        if not entry["tokens"]:  # the library was given none, whatever the cells
            size -= 4 * stored["cells"]
        if (size, state.version) != (entry["size"], entry["version"]):
            differing[entry["file"]] = size, entry["size"]
        n += 1
    assert not differing
    assert n == 38


def expected(target: Target) -> StateExpectation:
    state = expected_state(target)
    assert isinstance(state, StateExpectation), state
    return state


@pytest.mark.parametrize(
    ("model", "build", "n_tokens", "published"),
    [
        (QWEN_9B, "b10086", 1108, 89025296),
        (QWEN_27B, "b10573", 84, 162401824),
        (QWEN_27B, "b10573", 256, 173678144),
    ],
)
def test_published_sizes(
    tmp_path: Path, model: dict[str, Any], build: str, n_tokens: int, published: int
) -> None:
    """Sizes that users published: issue #26676, llama-swap issue #1064, and a 27B save."""
    path = model_file(tmp_path / "m.gguf", "qwen35", model)
    with target_of("llama-server -np 1", build, path) as target:
        assert expected(target).file_bytes(n_tokens) == published


def test_published_size_of_a_checkpoint(tmp_path: Path) -> None:
    """Public logs of the same model: the recurrent section behind the 8 bytes of a blob."""
    path = model_file(tmp_path / "m.gguf", "qwen35", QWEN_27B)
    with target_of("llama-server -np 1", "b10573", path) as target:
        state = expected(target)
    recurrent = state.sections[-1]
    assert state.section_bytes(recurrent, 1) + 8 == 156894364


SMALL = {"block_count": 4, "embedding_length": 64, "attention.head_count": 2}


def sections(tmp_path: Path, architecture: str, keys: dict[str, Any], build: str) -> list[Any]:
    path = model_file(tmp_path / "m.gguf", architecture, SMALL | keys)
    with target_of("llama-server -c 4096 -np 1", build, path) as target:
        state = expected(target)
        return [(s.member, s.n_layer, s.k[:1], s.v[:1]) for s in state.sections]


def test_builds_without_a_sample(tmp_path: Path) -> None:
    nextn = {"nextn_predict_layers": 1}
    assert sections(tmp_path, "glm4moe", nextn, "b9522")[0][1] == 3
    assert sections(tmp_path, "glm4moe", nextn, "b9523")[0][1] == 4
    assert sections(tmp_path, "glm4moe", nextn, "b10865")[0][1] == 4
    assert sections(tmp_path, "glm4moe", nextn, "b10909")[0][1] == 3
    mla = {
        "attention.head_count_kv": 1,
        "attention.key_length": 48,
        "attention.value_length": 32,
        "attention.key_length_mla": 24,
        "attention.value_length_mla": 16,
    }
    assert sections(tmp_path, "deepseek2", mla, "b7831") == [("attn", 4, (96,), (64,))]
    assert sections(tmp_path, "deepseek2", mla, "b7832") == [("attn", 4, (96,), ())]
    window = {"attention.sliding_window": 16}
    assert [s[:2] for s in sections(tmp_path, "gemma2", window, "b5428")] == [("attn", 4)]
    assert [s[:2] for s in sections(tmp_path, "gemma2", window, "b5429")] == [
        ("base", 2),
        ("swa", 2),
    ]
    state = {"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 8}
    hybrid = state | nextn | {"full_attention_interval": 4, "block_count": 5}
    assert sections(tmp_path, "qwen35", hybrid, "b9522")[1][1] == 5
    assert sections(tmp_path, "qwen35", hybrid, "b9523")[1][1] == 4


@pytest.mark.parametrize(
    ("build", "words", "heads", "rotated"),
    [
        ("b8618", "-ctk q8_0 -ctv q8_0", (128, 128), (0, 0)),
        ("b8619", "-ctk q8_0 -ctv q8_0", (128, 128), (128, 64)),
        ("b11549", "-ctk q8_0 -ctv q8_0", (128, 128), (128, 64)),
        ("b11549", "-ctk q8_0", (192, 128), (64, 0)),
        ("b11549", "-ctv q4_0", (192, 128), (0, 64)),
        ("b11549", "-ctk bf16", (128, 128), (0, 0)),
        ("b11549", "-ctk q8_0 -ctv q8_0", (96, 96), (0, 0)),
        ("b11549", "-ctk q8_0 -ctv q8_0", (320, 320), (64, 64)),
        ("turboquant@b9079", "-ctk q8_0 -ctv q8_0", (128, 128), (0, 0)),
    ],
)
def test_rotation(
    tmp_path: Path, build: str, words: str, heads: tuple[int, int], rotated: tuple[int, int]
) -> None:
    keys = {"attention.key_length": heads[0], "attention.value_length": heads[1]}
    path = model_file(tmp_path / "m.gguf", "llama", SMALL | keys)
    with target_of(f"llama-server {words} -fa on", build, path) as target:
        (section,) = expected(target).sections
    assert (section.n_rot_k, section.n_rot_v) == rotated
    disabled = {"LLAMA_ATTN_ROT_DISABLE": "1"}
    with target_of(f"{words} -fa on", build, path, environment=disabled) as target:
        (section,) = expected(target).sections
    assert (section.n_rot_k, section.n_rot_v) == (0, 0)


def test_rotation_wanted_one_width_in_all_layers_at_first(tmp_path: Path) -> None:
    keys = {
        "attention.sliding_window": 16,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "attention.key_length_swa": 128,
        "attention.value_length_swa": 128,
    }
    path = model_file(tmp_path / "m.gguf", "gemma2", SMALL | keys)
    found = {}
    for build in ("b8698", "b8699"):
        with target_of("-ctk q8_0", build, path) as target:
            found[build] = [section.n_rot_k for section in expected(target).sections]
    assert found == {"b8698": [0, 0], "b8699": [256, 128]}


@pytest.mark.parametrize(
    ("words", "build", "capacity"),
    [  # the first three are measured
        ("-c 1000 -np 3 -ub 64 -kvu", "b11549", [1024, 256]),
        ("-c 1000 -np 3 -kvu", "b10229", [1024, 768]),
        ("-c 1000 -np 3", "b10229", [512, 512]),
        ("-c 4096 -np 1", "b11549", [4096, 768]),
        ("-c 4096 -np 1 --swa-full", "b11549", [4096, 4096]),
        ("", "b11549", [None, 768]),
    ],
)
def test_cells_of_caches(shared: Path, words: str, build: str, capacity: list[int | None]) -> None:
    with target_of(words, build, shared / "corpus/models/gemma3-iswa.gguf") as target:
        assert [section.capacity for section in expected(target).sections] == capacity


def test_cells_in_the_window(shared: Path, tmp_path: Path) -> None:
    gemma = shared / "corpus/models/gemma3-iswa.gguf"  # window 32
    with target_of("-c 512 -np 1", "b11549", gemma) as target:
        state = expected(target)
    swa = state.sections[1]
    assert [state.cells(swa, n) for n in (0, 31, 32, 303)] == [0, 31, 32, 32]
    with target_of("-c 2048 -np 1 -ub 64", "b9472", gemma) as target:
        older = expected(target)
    assert [older.cells(older.sections[1], n) for n in (31, 256, 257)] == [31, 256, None]
    assert older.file_bytes(257) is None
    chunked = model_file(tmp_path / "m.gguf", "llama4", SMALL)
    with target_of("-c 20000 -np 1", "b11549", chunked) as target:
        state = expected(target)
    assert [state.cells(state.sections[1], n) for n in (8192, 8193, 16384)] == [8192, 1, 8192]


def test_what_is_not_computed(tmp_path: Path) -> None:
    keys = SMALL | {"attention.sliding_window": 16, "attention.indexer.key_length": 32}
    for architecture, build, reason in (
        ("bert", "b11549", "has no memory"),
        ("deepseek4", "b11549", "not computed"),
        ("llama", "b2629", "knows no slot files"),
        ("jamba", "b5967", "cannot save"),
    ):
        hybrid = {"attention.head_count_kv": [0, 1, 0, 1]} if architecture == "jamba" else {}
        path = model_file(tmp_path / "m.gguf", architecture, keys | hybrid)
        with target_of(None, build, path) as target:
            state = expected_state(target)
        assert isinstance(state, str)
        assert reason in state
    with target_of() as target:
        assert expected_state(target) == "no model was read"
    narrow = model_file(tmp_path / "m.gguf", "llama", SMALL | {"attention.key_length": 8})
    with target_of("-ctk q8_0", None, narrow) as target:
        assert "no whole number of q8_0 blocks" in str(expected_state(target))


def test_geometry_as_json(shared: Path) -> None:
    model = shared / "corpus/models/gemma3-iswa.gguf"
    words = ["geometry", str(model), "--build", "b11549", "--json", "--tokens", "303"]
    result = CliRunner().invoke(app, [*words, "--for", "llama-server -c 512 -np 1 -fa on"])
    found = json.loads(result.stdout)
    assert found["schema"] == "slotscope.geometry/1"
    assert found["target"]["build"] == "b11549"
    assert (found["memory"], found["version"], found["v_trans"]) == ("iswa", 4, False)
    assert [section["layers"] for section in found["sections"]] == [[5], [0, 1, 2, 3, 4]]
    assert found["sections"][1]["k"] == [{"type": "f16", "row_bytes": 64}] * 5
    (size,) = found["sizes"]
    assert size["bytes"] == 12 + 4 * (303 + 4) + sum(size["sections"])


def test_memory_depends_on_the_build(shared: Path) -> None:
    with target_of("-np 1", "b5129", shared / "corpus/models/gemma3-iswa.gguf") as target:
        assert target.model is not None
        newest = memory_of(target.model)
        assert target.memory is not None
        assert newest is not None
        assert (target.memory.memory, newest.memory) == ("kv", "iswa")
