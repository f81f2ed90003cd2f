"""Saves of all builds since June 2024, each repaired for the newest: accepted, matched, reused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inspector.model.identity import Outcome as Belongs
from inspector.node import walk
from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.repair.segments import chunks
from inspector.report import examined
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from tests.corpus.test_check import CORPUS, by_name, command
from tests.corpus.test_manifest import manifest

NEWEST = "b11549"
OTHERWISE = {
    "qwen2vl.b5129.lib-plain.seq.bin": Belongs.OTHER_POSITIONS,  # and so it does unrepaired
}
"""Files whose repaired copies do not match their model exactly."""
TYPES = ("f16", "q8_0", "q4_0", "iq4_nl", "bf16")


def saves() -> list[dict[str, Any]]:
    return [
        entry
        for entry in manifest()["files"]
        if entry["kind"] in ("seq", "slot")
        and entry["fork"] == "upstream"
        and entry["made_by"] != "damage"
        and manifest()["models"][entry["model"]]["file"]
    ]


def older() -> list[dict[str, Any]]:
    return [entry for entry in saves() if (entry["build"] or 0) < int(NEWEST[1:])]


def model_of(entry: dict[str, Any]) -> Path:
    return CORPUS / str(manifest()["models"][entry["model"]]["file"])


@pytest.mark.parametrize("entry", older(), ids=by_name)
def test_newest_build(entry: dict[str, Any], tmp_path: Path) -> None:
    file, model = CORPUS / entry["file"], model_of(entry)
    new = tmp_path / "new.bin"
    with target_of("llama-server -c 512 -np 1", NEWEST, model) as target:
        with planned(file, target, Options(), new.name) as plan:
            after, before = plan.after, plan.before
            assert after is not None
            assert before is not None
            assert not plan.refused
            assert after.restore.outcome is Outcome.ACCEPTS, after.restore
            assert after.identity.outcome == OTHERWISE.get(file.name, Belongs.MATCHES)
            assert plan.copied.tokens is not None
            (state,) = plan.outputs
            new.write_bytes(b"".join(chunks(state.content.content)))
            held, windowed = plan.copied.tokens.count, bool(target.memory and target.memory.n_swa)
            append = next(one.found.reused for one in after.reuse if one.name == "append")
            assert append in ((held - 1, held) if windowed else (held,))
            assert not any(step.confirm for step in plan.steps)
        with planned(new, target, Options(), new.name) as again:
            assert [step.action for step in again.steps] == []
            assert again.refused == ()


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the real files are not at hand")
@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("name", ["b8156.kv-q8_0", "b10229.kv-q8_0", "b10229.k-q8_0", "b10229.f16"])
def test_types(name: str, type_name: str) -> None:
    """Heads of 128 elements, which builds turn by different matrices, or not."""
    words = f"llama-server -c 512 -np 1 -fa on -ctk {type_name} -ctv {type_name}"
    model = CORPUS / "models/llama-hd128.gguf"
    with (
        target_of(words, NEWEST, model) as target,
        planned(CORPUS / f"llama-hd128.{name}.bin", target, Options(), "new.bin") as plan,
    ):
        assert plan.after is not None
        assert plan.after.restore.outcome is Outcome.ACCEPTS
        assert plan.after.identity.outcome is Belongs.MATCHES


@pytest.mark.parametrize(
    "entry", [e for e in saves() if e["model"] == "llama-gqa"][::4], ids=by_name
)
@pytest.mark.parametrize("build", ["b5129", "b5671", "b6123", "b8156", "b9538", "b10809"])
def test_back_to_older_builds(entry: dict[str, Any], build: str) -> None:
    words = command({"n_ctx": 512, "n_parallel": 1, "flash_attn": "off"})
    with (
        target_of(words, build, model_of(entry)) as target,
        planned(CORPUS / entry["file"], target, Options(), "new.bin") as plan,
    ):
        assert plan.after is not None
        assert plan.after.restore.outcome is Outcome.ACCEPTS, plan.after.restore
        assert not plan.refused


def with_checkpoints() -> list[dict[str, Any]]:
    return [e for e in saves() if e["build"] == 11549 and e["made_by"] == "llama-server"]


@pytest.mark.parametrize("entry", with_checkpoints(), ids=by_name)
def test_checkpoints_in_another_type(entry: dict[str, Any]) -> None:
    words = "llama-server -c 512 -np 1 -fa on -ctk q8_0 -ctv q8_0"
    with (
        target_of(words, NEWEST, model_of(entry)) as target,
        planned(CORPUS / entry["file"], target, Options(), "new.bin") as plan,
    ):
        assert plan.after is not None
        assert plan.after.restore.outcome is Outcome.ACCEPTS, plan.after.restore
        assert not plan.refused
        usable = [
            sum(one.usable for one in report.checkpoints) for report in (plan.report, plan.copied)
        ]
        assert usable[1] >= usable[0]


def composed(path: Path) -> tuple[bytes, list[str]]:
    """The state as a repair without a server writes it, and the steps to that."""
    with planned(path, None, Options(), "new.bin") as plan:
        state, *_ = plan.outputs
        return b"".join(chunks(state.content.content)), [step.action for step in plan.steps]


@pytest.mark.parametrize("entry", saves()[::3], ids=by_name)
def test_counts(entry: dict[str, Any], tmp_path: Path) -> None:
    """The file as it is, and with one more or less of what it counts: the right count is found."""
    file = CORPUS / entry["file"]
    data, path = file.read_bytes(), tmp_path / file.name
    version_1 = entry["build"] is None  # is only written for a server that is named
    sound, steps = (data, []) if version_1 else composed(file)
    assert steps or sound == data
    with examined(file) as report:
        root = report.identification.root
        assert root is not None
        counts = [
            node
            for name, node in walk(root)
            if node.name in ("n_token_count", "cell_count") and not name.startswith("appendix")
        ]
    for node in counts:
        assert isinstance(node.value, int)
        for wrong in {node.value - 1, node.value + 1} if node.value else ():
            word = wrong.to_bytes(len(node.span), "little")
            path.write_bytes(data[: node.span.start] + word + data[node.span.stop :])
            assert composed(path) == (sound, ["correct-word", *steps]), (node.name, wrong)
