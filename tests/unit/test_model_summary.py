"""What `inspect` says of a model file."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from inspector.model.summary import ModelSummary, summary
from inspector.report import examined
from tests.support.gguf import model_file
from tests.unit.test_gguf import F16, F32, STRING, UINT32, array, entry, packed, tensor

MODELS = Path(__file__).parents[1] / "oracle/models"
LLAMA = {"block_count": 2, "embedding_length": 32, "attention.head_count": 4}


def summed_up(path: Path) -> ModelSummary | None:
    with examined(path) as report:
        return summary(report)


def shown(path: Path, *words: str) -> str:
    result = CliRunner().invoke(app, ["inspect", *words, str(path)])
    assert result.exit_code in (0, 1), result.output
    return result.output


def line(page: str, label: str) -> str:
    found = [line for line in page.splitlines() if line.startswith(f"{label} ")]
    assert len(found) == 1, page
    return found[0].removeprefix(label).strip()


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("llama-gqa", "kv: one attention cache (3 attention layers)"),
        ("mamba", "recurrent: recurrent state (4 recurrent layers)"),
        ("deepseek2-mla", "mla: one attention cache without values (MLA) (3 attention layers)"),
    ],
)
def test_what_its_state_is(name: str, state: str) -> None:
    page = shown(MODELS / f"{name}.gguf")
    assert line(page, "state") == state
    assert line(page, "name") == name
    assert line(page, "context") == "4,096 tokens"
    assert "slotscope geometry says more" in page


def test_windows_and_states_are_counted() -> None:
    page = " ".join(shown(MODELS / "gemma3-iswa.gguf").split())
    assert "(1 attention layer, 5 windowed attention layers, a window of 32 tokens)" in page
    page = " ".join(shown(MODELS / "qwen35.gguf").split())
    assert "(1 attention layer, 3 recurrent layers)" in page
    assert "tensors 56: 33 × f16, 23 × f32" in page
    assert "metadata 30 entries" in page


def complete(path: Path, *extra: bytes) -> Path:
    entries = [
        entry("general.architecture", STRING, "llama"),
        *(entry(f"llama.{key}", UINT32, value) for key, value in LLAMA.items()),
        *extra,
    ]
    tensors = [
        tensor("a", (32,), F32, 0),
        tensor("b", (32,), F16, 128),
        tensor("c", (1,), 250, 192),
    ]
    path.write_bytes(packed(entries, tensors, bytes(224)))
    return path


def test_every_fact(tmp_path: Path) -> None:
    path = complete(
        tmp_path / "model.gguf",
        entry("general.name", STRING, "A [bold]model[/] \x1b[31m"),
        entry("general.type", STRING, "model"),
        entry("general.size_label", STRING, "4B"),
        entry("general.file_type", UINT32, 15),
        entry("llama.context_length", UINT32, 131072),
        entry("split.no", UINT32, 0),
        entry("split.count", UINT32, 3),
    )
    page = shown(path)
    assert line(page, "name").startswith("A [bold]model[/] ")
    assert "\x1b" not in page
    assert line(page, "model") == "llama"
    assert line(page, "size") == "4B"
    assert line(page, "weights") == "Q4_K_M"
    assert line(page, "context") == "131,072 tokens"
    assert line(page, "part") == "1 of 3"
    assert line(page, "tensors") == "3: 1 × f32, 1 × f16, 1 × type 250"
    assert line(page, "layers") == "2"
    told: dict[str, Any] = json.loads(shown(path, "--json"))["model"]
    assert told["architecture"] == "llama"
    assert told["file_type"] == "Q4_K_M"
    assert told["tensor_types"] == {"f32": 1, "f16": 1, "type 250": 1}
    assert told["part"] == [1, 3]
    assert (told["memory"], told["layers"], told["context_length"]) == ("kv", 2, 131072)


def test_an_unknown_file_type_is_a_number(tmp_path: Path) -> None:
    page = shown(complete(tmp_path / "m.gguf", entry("general.file_type", UINT32, 777)))
    assert line(page, "weights") == "type 777"


@pytest.mark.parametrize("kind", ["adapter", "mmproj"])
def test_what_is_no_whole_model_has_no_state(kind: str, tmp_path: Path) -> None:
    page = shown(complete(tmp_path / "m.gguf", entry("general.type", STRING, kind)))
    assert line(page, "model") == f"llama ({kind})"
    assert "state" not in page


def test_models_without_memory_and_without_layers(tmp_path: Path) -> None:
    path = model_file(tmp_path / "bert.gguf", "bert", LLAMA)
    assert line(shown(path), "state") == "none: nothing of it can be saved"
    path = model_file(tmp_path / "odd.gguf", "llama", {})
    assert line(shown(path), "state").startswith("not known")


def test_a_vocabulary_is_not_read(tmp_path: Path) -> None:
    words = array("tokenizer.ggml.tokens", STRING, ["word" * 8] * 50_000)
    path = complete(tmp_path / "m.gguf", words)
    with examined(path) as report:
        before = report.source.bytes_read
        assert summary(report) is not None
        assert report.source.bytes_read - before < 1 << 16


def test_other_files_and_damaged_headers_have_no_summary(tmp_path: Path) -> None:
    whole = complete(tmp_path / "m.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for at in range(8, len(whole) - 224, 7):
        path.write_bytes(whole[:at])
        assert summed_up(path) is None
        assert "model" not in shown(path).split()[:1]
    twice = entry("llama.block_count", UINT32, 2)
    assert summed_up(complete(path, twice)) is None
    assert json.loads(shown(path, "--json"))["model"] is None


@pytest.mark.parametrize("seed", range(40))
def test_numbers_that_no_model_has(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    data = bytearray((MODELS / "qwen35.gguf").read_bytes())
    path = tmp_path / "m.gguf"
    for _ in range(4):
        at = dice.randrange(24, 2048)
        data[at : at + 4] = struct.pack("<I", dice.choice((0, 1, 3, 255, 1 << 16, (1 << 32) - 1)))
    path.write_bytes(data)
    shown(path)
    shown(path, "--json")
