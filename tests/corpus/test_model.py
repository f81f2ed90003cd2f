"""States against the headers of models: their own, with one word changed, and others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inspector.model.geometry import MemoryExpectation, memory_of
from inspector.model.gguf import ModelFile, read_model
from inspector.node import walk
from inspector.report import Report, examined
from inspector.source import opened
from samples.make import HERE as SAMPLES
from tests.support.damage import overwrite

MODELS = Path(__file__).parents[1] / "oracle/models"
OWN = {
    "ggsq2.kv--llama-b10229-short": "llama-gqa",
    "ggsq2.mla--deepseek2-b10229": "deepseek2-mla",
    "ggsq4.iswa--gemma3-b11549-checkpoints": "gemma3-iswa",
    "ggsq2.hybrid--lfm2-b10229": "lfm2",
    "ggsq4.hybrid--lfm2-b11549-checkpoints": "lfm2",
    "ggsq4.hybrid.xyt--qwen35-b11549-checkpoints": "qwen35",
    "ggsq3.recurrent--mamba-b10809": "mamba",
}
"""A sample, and the model of the server that saved it."""


def memory(name: str) -> MemoryExpectation:
    with opened(MODELS / f"{name}.gguf") as source:
        header = read_model(source)
    assert isinstance(header, ModelFile)
    found = memory_of(header)
    assert found is not None
    return found


def claims(report: Report) -> list[tuple[str, str]]:
    return [(f.code, f.path) for f in report.findings if f.code.startswith("model.")]


@pytest.mark.parametrize("name", OWN)
def test_a_state_is_of_its_model(name: str) -> None:
    with examined(SAMPLES / f"intact/{name}.slot", model=memory(OWN[name])) as report:
        assert claims(report) == []


@pytest.mark.parametrize("name", [name for name in OWN if "hybrid" in name])
def test_only_the_model_knows_the_layers_of_a_hybrid_memory(name: str, tmp_path: Path) -> None:
    whole = SAMPLES / f"intact/{name}.slot"
    with examined(whole) as report:
        assert report.identification.root is not None
        word = dict(walk(report.identification.root))["recr.n_layer"]
    assert isinstance(word.value, int)
    path = tmp_path / "state.slot"
    more = (word.value + 1).to_bytes(4, "little")
    path.write_bytes(overwrite(whole.read_bytes(), word.span.start, more).data)
    with examined(path) as report:
        assert claims(report) == []
    with examined(path, model=memory(OWN[name])) as report:
        assert claims(report) == [("model.layers-differ", "recr")]


@pytest.mark.parametrize(
    ("name", "other", "claim"),
    [
        ("ggsq2.hybrid--lfm2-b10229", "qwen35", ("model.layers-differ", "recr")),
        ("ggsq3.recurrent--mamba-b10809", "llama-gqa", ("model.memory-differs", "")),
    ],
)
def test_a_state_of_another_model(name: str, other: str, claim: tuple[str, str]) -> None:
    with examined(SAMPLES / f"intact/{name}.slot", model=memory(other)) as report:
        assert claim in claims(report)


@pytest.mark.parametrize("member", ["r", "s"])
def test_a_state_of_another_width(member: str) -> None:
    own = memory("mamba")
    assert own.recurrent is not None
    changed = {member: getattr(own.recurrent, member) + 32}
    wider = replace(own, recurrent=replace(own.recurrent, **changed))
    with examined(SAMPLES / "intact/ggsq3.recurrent--mamba-b10809.slot", model=wider) as report:
        ((code, path),) = claims(report)
    assert code == "model.width-differs"
    assert path.startswith("recr.blocks[")
