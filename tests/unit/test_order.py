"""Orders that only numbers show: turned for the target, and back again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from inspector.model.layer0.attention import LATENT_FIRST, ROPE_FIRST
from inspector.repair.actions.order import Key, swapped_rows
from inspector.repair.apart import state_of
from inspector.repair.compose import slot_file
from inspector.repair.draft import Options, stored_form
from inspector.repair.plan import Plan, planned
from inspector.repair.segments import chunks
from inspector.repair.state import Refused
from inspector.report import examined
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from tests.support.gguf import model_file
from tests.support.writer import (
    DIALECTS,
    F16,
    F32,
    Cache,
    Memory,
    Recurrent,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
    small_numbers,
)

ROOT = Path(__file__).resolve().parents[2]
SAMPLES, MODELS = ROOT / "samples/intact", ROOT / "tests/oracle/models"
IDS = tuple(range(1, 13))
RANK, ROPE, HEADS = 32, 16, 2
LATENT_KEYS = {
    "block_count": 2,
    "embedding_length": 64,
    "attention.head_count": HEADS,
    "attention.head_count_kv": 1,
    "attention.kv_lora_rank": RANK,
    "attention.key_length": RANK + ROPE,
    "attention.value_length": RANK,
    "attention.key_length_mla": 48,
    "attention.value_length_mla": 32,
    "rope.dimension_count": ROPE,
}
PER_HEAD_KEYS = {
    **{name: value for name, value in LATENT_KEYS.items() if not name.endswith("_mla")},
    "attention.head_count_kv": HEADS,
}


@contextmanager
def plan_for(
    file: Path, model: Path | None, build: str, options: Options | None = None
) -> Iterator[Plan]:
    words = "llama-server -c 512 -np 1 -fa on"
    with (
        target_of(words, build, model) as target,
        planned(file, target, options or Options(), "new.bin") as plan,
    ):
        yield plan


def turned(file: Path, model: Path, build: str, folder: Path) -> Path:
    """The copy for a build."""
    new = folder / f"for-{build}.bin"
    with plan_for(file, model, build, Options(skip=("synthesize-tip",))) as plan:
        new.write_bytes(b"".join(chunks(plan.outputs[0].content.content)))
    return new


def taken(plan: Plan) -> list[str]:
    return [step.action for step in plan.steps]


def latent(path: Path, dialect: str = "flat", heads: int = 1, kind: int = F16) -> Path:
    """Keys with their rope part first, as builds before b7812 have them; values are latent."""
    size = (2 * (RANK + ROPE) if kind == F16 else 34 * (RANK + ROPE) // 32) * heads
    keys = (Row(kind, size),) * 2
    values = (Row(F16, 2 * RANK * heads),) * 2
    memory = Memory({"attn": Cache((cells_of(Tokens(IDS)),), keys, values)}, DIALECTS[dialect])
    path.write_bytes(pack(Slot(2, Tokens(IDS), memory)).data)
    return path


def test_latent_keys_of_an_old_build(tmp_path: Path) -> None:
    file = latent(tmp_path / "old.bin")
    model = model_file(tmp_path / "m.gguf", "deepseek2", LATENT_KEYS)
    with plan_for(file, model, "b11549") as plan:
        assert taken(plan) == ["drop-values", "swap-latent-keys", "relayout"]
        assert plan.after is not None
        assert plan.after.restore.outcome is Outcome.ACCEPTS
        (cache,) = state_of(plan.copied).caches
        assert cache.v == ()
        rows = np.frombuffer(cache.k[1].reader().read_at(0, 1 << 20), "<u2").reshape(len(IDS), -1)
        stored = np.frombuffer(
            b"".join(small_numbers("attn.k", 1, pos, 96) for pos in range(len(IDS))), "<u2"
        ).reshape(len(IDS), -1)
        assert (rows == np.hstack([stored[:, ROPE:], stored[:, :ROPE]])).all()


def test_each_head_of_a_model_without_keys_for_mla(tmp_path: Path) -> None:
    file = latent(tmp_path / "old.bin", heads=HEADS)
    model = model_file(tmp_path / "m.gguf", "deepseek2", PER_HEAD_KEYS)
    with plan_for(file, model, "b11549") as plan:
        assert taken(plan) == ["swap-latent-keys", "relayout"]
        assert plan.after is not None
        assert plan.after.restore.outcome is Outcome.ACCEPTS
        (cache,) = state_of(plan.copied).caches
        shape = (len(IDS), HEADS, -1)
        rows = np.frombuffer(cache.k[0].reader().read_at(0, 1 << 20), "<u2").reshape(shape)
        stored = np.frombuffer(
            b"".join(small_numbers("attn.k", 0, pos, 192) for pos in range(len(IDS))), "<u2"
        ).reshape(shape)
        assert (rows == np.concatenate([stored[..., ROPE:], stored[..., :ROPE]], axis=2)).all()


@pytest.mark.parametrize("dialect", ["anonymous", ""])
def test_an_order_that_nobody_knows(dialect: str, tmp_path: Path) -> None:
    """Without its weights nothing tells, and a newer form would hide what is not known."""
    file = latent(tmp_path / "old.bin", dialect, heads=HEADS)
    model = model_file(tmp_path / "m.gguf", "deepseek2", PER_HEAD_KEYS)
    with plan_for(file, model, "b11549") as plan:
        assert [name for name, _ in plan.refused] == ["swap-latent-keys", "restamp"]
        assert not plan.whole


def test_parts_that_are_no_whole_blocks(tmp_path: Path) -> None:
    file = latent(tmp_path / "old.bin", heads=2, kind=8)
    keys = {**PER_HEAD_KEYS, "attention.key_length": 48}
    model = model_file(tmp_path / "m.gguf", "deepseek2", keys)
    with plan_for(file, model, "b11549") as plan:
        assert ("swap-latent-keys", "the parts of a key are no whole number of q8_0 blocks") in (
            plan.refused
        )


def test_latent_keys_there_and_back(tmp_path: Path) -> None:
    file, model = SAMPLES / "ggsq2.mla--deepseek2-b10229.slot", MODELS / "deepseek2-mla.gguf"
    there = tmp_path / "there.bin"
    with examined(file) as report:
        state, form = state_of(report), stored_form(report)
        (cache,) = state.caches
        keys = tuple(swapped_rows(k, Key(64, 32), 0, newer=False) for k in cache.k)
        old = state.part(cache.member, replace(cache, k=keys))
        there.write_bytes(b"".join(chunks(tuple(slot_file(old, form, "")))))
    assert there.read_bytes() != file.read_bytes()
    with plan_for(there, model, "b10229") as plan:
        assert taken(plan) == ["swap-latent-keys"]
        assert plan.before is not None
        assert plan.before.identity.order == ROPE_FIRST
        assert [f.code for f in plan.before.findings][:1] == ["target.layout-silent"]
        assert plan.after is not None
        assert plan.after.identity.order == LATENT_FIRST
    assert turned(there, model, "b10229", tmp_path).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("build", ["b7551", "b7831"])
@pytest.mark.parametrize("model", [MODELS / "deepseek2-mla.gguf", None])
@pytest.mark.parametrize("sample", ["ggsq2.mla--deepseek2-b10229", "ggsq4.mla--deepseek2-b11549"])
def test_values_are_not_added(build: str, model: Path | None, sample: str) -> None:
    """Latent keys alone are no state of builds that store values too, whatever the model."""
    file = SAMPLES / f"{sample}.slot"
    with (
        pytest.raises(Refused, match=f"{build} stores values .* values are not added"),
        plan_for(file, model, build),
    ):
        pass
    words = ["check", str(file), "--build", build]
    if sample.startswith("ggsq2"):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 1
        assert "restore  refuses" in result.output
    with (
        pytest.raises(Refused, match="it is not of llama-gqa"),
        plan_for(file, MODELS / "llama-gqa.gguf", build),
    ):
        pass


def test_states_there_and_back(tmp_path: Path) -> None:
    file, model = SAMPLES / "ggsq2.hybrid.xy--qwen35-b10229.slot", MODELS / "qwen35.gguf"
    there = turned(file, model, "b8156", tmp_path)
    with plan_for(there, model, "b10229") as plan:
        assert taken(plan) == ["transpose-states", "relayout"]
        assert plan.after is not None
        assert plan.after.identity.values_first
    assert turned(there, model, "b10229", tmp_path).read_bytes() == file.read_bytes()


def test_checkpoints_are_turned_too(tmp_path: Path) -> None:
    file = SAMPLES / "ggsq4.hybrid.xyt--qwen35-b11549-checkpoints.slot"
    model = MODELS / "qwen35.gguf"
    with plan_for(file, model, "b11549") as plan:
        state = state_of(plan.copied).recurrent
        (blob,) = [one.record.blob for one in plan.copied.checkpoints]
        assert state is not None
        assert taken(plan) == []
        assert blob is not None
    with plan_for(file, model, "b8156", Options(to="llcp2")) as plan:
        (list_,) = plan.outputs[1:]
        assert "transpose-states" in taken(plan)
        found = b"".join(chunks(list_.content.content))
    (section,) = blob.sections
    block = section.s[0]
    assert block.data is not None
    size = 32
    stored = file.read_bytes()[block.data.start : block.data.start + 4 * size * size]
    mirrored = np.frombuffer(stored, "<u4").reshape(size, size).T.tobytes()
    assert mirrored in found
    assert stored not in found


def test_states_of_another_model(tmp_path: Path) -> None:
    """Blocks that are not square are left alone, and the copy is not called newer."""
    recurrent = Recurrent((cells_of(Tokens(IDS))[-1],), 4, (Row(F32, 64),) * 3, (Row(F32, 96),) * 3)
    cache = Cache((cells_of(Tokens(IDS)),), (Row(F16, 64),), (Row(F16, 64),))
    memory = Memory({"attn": cache, "recr": recurrent}, DIALECTS[""])
    file = tmp_path / "old.bin"
    file.write_bytes(pack(Slot(2, Tokens(IDS), memory)).data)
    keys = {
        "block_count": 4,
        "embedding_length": 64,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
        "attention.key_length": 32,
        "attention.value_length": 32,
        "ssm.state_size": 4,
        "ssm.inner_size": 8,
        "ssm.time_step_rank": 2,
        "ssm.group_count": 1,
        "ssm.conv_kernel": 2,
    }
    model = model_file(tmp_path / "m.gguf", "qwen3next", keys)
    with plan_for(file, model, "b11549") as plan:
        assert plan.refused[0][0] == "transpose-states"
        assert not plan.whole
