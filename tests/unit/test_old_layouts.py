"""States of builds since April 2024 in later layouts: what is added, split and counted anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.model.expectation import expected_state
from inspector.model.geometry import WindowType
from inspector.repair.actions.window import seen
from inspector.repair.apart import state_of
from inspector.repair.draft import Options
from inspector.repair.plan import Plan, planned
from inspector.repair.segments import chunks
from inspector.repair.state import Cache as StateCache
from inspector.repair.state import Refused
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from tests.support.gguf import model_file
from tests.support.writer import (
    DIALECTS,
    F16,
    F32,
    Cache,
    FirstMemory,
    Memory,
    Recurrent,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
    small_numbers,
)

IDS = tuple(range(1, 25))
CELLS = cells_of(Tokens(IDS))
ROW = Row(F16, 64)
N_LAYER = 4
ATTENTION: dict[str, Any] = {
    "block_count": N_LAYER,
    "embedding_length": 64,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.key_length": 32,
    "attention.value_length": 32,
}


@contextmanager
def plan_for(
    file: Path, model: Path | None, build: str = "b11549", flags: str = "-fa on"
) -> Iterator[Plan]:
    with (
        target_of(f"llama-server -c 512 -np 1 {flags}", build, model) as target,
        planned(file, target, Options(skip=("synthesize-tip", "window-anchor")), "new.bin") as plan,
    ):
        yield plan


def llama(folder: Path) -> Path:
    return model_file(folder / "llama.gguf", "llama", ATTENTION)


def windowed(folder: Path, window: int = 8, architecture: str = "gemma2") -> Path:
    keys = {**ATTENTION, "attention.sliding_window": window}
    return model_file(folder / "windowed.gguf", architecture, keys)


def slot(path: Path, memory: Memory | FirstMemory, version: int = 2) -> Path:
    path.write_bytes(pack(Slot(version, Tokens(IDS), memory)).data)
    return path


def one_cache(dialect: str, v_trans: int = 0) -> Memory:
    cache = Cache((CELLS,), (ROW,) * N_LAYER, (ROW,) * N_LAYER, v_trans=v_trans)
    return Memory({"attn": cache}, DIALECTS[dialect])


def taken(plan: Plan) -> list[str]:
    return [step.action for step in plan.steps]


def rows(cache: StateCache, side: str) -> np.ndarray:
    """Stored bytes, shape `(layers, cells, 64)`."""
    found = []
    for tensor in getattr(cache, side):
        data = np.frombuffer(tensor.reader().read_at(0, 1 << 20), "<u2")
        shape = (32, -1) if tensor.element_bytes else (-1, 32)
        found.append(data.reshape(shape).T if tensor.element_bytes else data.reshape(shape))
    return np.stack(found)


def truth(side: str, layers: Sequence[int], cells: range) -> np.ndarray:
    return np.stack(
        [
            np.stack(
                [
                    np.frombuffer(small_numbers(f"attn.{side}", layer, pos, 64), "<u2")
                    for pos in cells
                ]
            )
            for layer in layers
        ]
    )


def accepted(plan: Plan) -> bool:
    return plan.after is not None and plan.after.restore.outcome is Outcome.ACCEPTS


@pytest.mark.parametrize("flags", ["-fa on", "-fa off"])
@pytest.mark.parametrize("v_trans", [False, True])
@pytest.mark.parametrize("size_t", [4, 8])
def test_version_1(size_t: int, v_trans: bool, flags: str, tmp_path: Path) -> None:
    positions = tuple(range(len(IDS)))
    memory = FirstMemory(positions, (ROW,) * N_LAYER, (ROW,) * N_LAYER, v_trans, size_t)
    file = slot(tmp_path / "old.bin", memory, 1)
    with plan_for(file, llama(tmp_path), flags=flags) as plan:
        turned = ["transpose-values"] if v_trans != (flags == "-fa off") else []
        assert taken(plan) == ["relayout", *turned]
        assert accepted(plan)
        (cache,) = state_of(plan.copied).caches
        layers, cells = range(N_LAYER), range(len(IDS))
        for side in ("k", "v"):
            assert (rows(cache, side) == truth(side, layers, cells)).all()
        assert "channel by channel, which their sizes tell" in plan.steps[0].changes


@pytest.mark.parametrize("build", ["b3889", "b5671", "b6123", "b10229", "b10809", "b11549"])
@pytest.mark.parametrize("dialect", ["anonymous", "flat", ""])
def test_cells_and_cell_arrays(dialect: str, build: str, tmp_path: Path) -> None:
    file = slot(tmp_path / "old.bin", one_cache(dialect))
    with plan_for(file, llama(tmp_path), build) as plan:
        assert accepted(plan)
        assert not plan.refused
        (cache,) = state_of(plan.copied).caches
        assert (rows(cache, "v") == truth("v", range(N_LAYER), range(len(IDS)))).all()


@pytest.mark.parametrize("build", ["b5485", "b9472", "b11549"])
def test_windowed_layers_apart(build: str, tmp_path: Path) -> None:
    """The even layers of gemma2 have a window."""
    file = slot(tmp_path / "old.bin", one_cache("anonymous"))
    with plan_for(file, windowed(tmp_path), build) as plan:
        assert taken(plan)[:2] == ["split-window", "relayout"]
        assert accepted(plan)
        base, swa = state_of(plan.copied).caches
        assert (base.n_layer, swa.n_layer) == (2, 2)
        assert (rows(base, "k") == truth("k", (1, 3), range(24))).all()
        assert (rows(swa, "v") == truth("v", (0, 2), range(24))).all()
        assert plan.steps[0].loss is None
        assert plan.unconfirmed == ()


@pytest.mark.parametrize("architecture", ["gemma2", "llama4"])
def test_more_cells_than_a_windowed_cache_has(architecture: str, tmp_path: Path) -> None:
    """Standard windows slide, those of llama4 begin at multiples of 8192."""
    window, n = (300, 1000) if architecture == "gemma2" else (8192, 9000)
    tokens = Tokens(tuple(range(1, n + 1)))
    cache = Cache((cells_of(tokens),), (Row(F16, 2),) * N_LAYER, (Row(F16, 2),) * N_LAYER)
    file, memory = tmp_path / "old.bin", Memory({"attn": cache}, DIALECTS["anonymous"])
    file.write_bytes(pack(Slot(2, tokens, memory)).data)
    narrow = {**ATTENTION, "attention.key_length": 1, "attention.value_length": 1}
    keys = {**narrow, "attention.sliding_window": window}
    model = model_file(tmp_path / "m.gguf", architecture, keys)
    with plan_for(file, model, flags="-fa on -c 16384 -ub 256") as plan:
        assert "trim-window" in taken(plan)
        assert accepted(plan)
        first = n - window if architecture == "gemma2" else 8192
        assert state_of(plan.copied).caches[1].cells.pos.tolist() == list(range(first, n))


def test_windowed_layers_of_version_1(tmp_path: Path) -> None:
    memory = FirstMemory(tuple(range(24)), (ROW,) * N_LAYER, (ROW,) * N_LAYER)
    file = slot(tmp_path / "old.bin", memory, 1)
    with plan_for(file, windowed(tmp_path)) as plan:
        assert taken(plan) == ["split-window", "relayout", "transpose-values"]
        assert accepted(plan)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [(WindowType.STANDARD, range(14, 24)), (WindowType.CHUNKED, range(20, 24))],
)
def test_what_a_window_shows(kind: WindowType, shown: range, tmp_path: Path) -> None:
    with target_of("llama-server", "b11549", windowed(tmp_path)) as target:
        assert target.memory is not None
        memory = replace(target.memory, n_swa=10, swa_type=kind)
    assert np.flatnonzero(seen(np.arange(24), memory)).tolist() == list(shown)


def test_layers_that_do_not_match(tmp_path: Path) -> None:
    cache = Cache((CELLS,), (ROW,) * 3, (ROW,) * 3)
    file = slot(tmp_path / "old.bin", Memory({"attn": cache}, DIALECTS["anonymous"]))
    with plan_for(file, windowed(tmp_path)) as plan:
        assert [name for name, _ in plan.refused] == ["split-window", "restamp"]
        assert not plan.whole


@pytest.mark.parametrize(
    ("build", "more", "steps"),
    [
        ("b11549", 0, ["relayout"]),
        ("b11549", 1, ["drop-layers", "relayout"]),
        ("b10229", 1, ["relayout"]),
    ],
)
def test_layers_are_counted_as_the_target_counts(
    build: str, more: int, steps: list[str], tmp_path: Path
) -> None:
    """Recurrent sections counted next-token layers until b9522, the main cache had them longer."""
    keys = {
        **ATTENTION,
        "block_count": 5,
        "nextn_predict_layers": 1,
        "attention.head_count_kv": [0, 0, 1, 0, 1],
        "ssm.state_size": 16,
        "ssm.inner_size": 32,
        "ssm.time_step_rank": 2,
        "ssm.conv_kernel": 4,
    }
    model = model_file(tmp_path / "m.gguf", "jamba", keys)
    with target_of("llama-server", "b11549", model) as target:
        expected = expected_state(target)
        assert not isinstance(expected, str)
        attn, recr = expected.sections
    r, s = (tuple(Row(F32, n) for n in side) for side in (recr.k, recr.v))
    cells = Recurrent(CELLS[-1:], recr.n_layer + 1, r, s)
    cache = Cache((CELLS,), (ROW,) * (len(attn.k) + more), (ROW,) * (len(attn.v) + more))
    file = slot(tmp_path / "old.bin", Memory({"attn": cache, "recr": cells}, DIALECTS[""]))
    with plan_for(file, model, build) as plan:
        assert taken(plan) == steps
        assert "n_layer of recr: 5 becomes 4" in plan.steps[-1].changes
        assert accepted(plan)
        state = state_of(plan.copied)
        assert state.recurrent is not None
        assert state.recurrent.n_layer == 4
        (kept,) = state.caches
        assert (rows(kept, "k") == truth("k", range(kept.n_layer), range(24))).all()


def test_rows_of_next_token_layers_are_not_added(tmp_path: Path) -> None:
    keys = {**ATTENTION, "block_count": 4, "nextn_predict_layers": 1}
    model = model_file(tmp_path / "m.gguf", "glm4moe", keys)
    cache = Cache((CELLS,), (ROW,) * 3, (ROW,) * 3)
    file = slot(tmp_path / "old.bin", Memory({"attn": cache}, DIALECTS[""]))
    with plan_for(file, model, "b11063") as plan:
        assert taken(plan) == ["restamp"]
        assert accepted(plan)
    with (
        pytest.raises(Refused, match="b10229 has rows for next-token layers in attn"),
        plan_for(file, model, "b10229"),
    ):
        pass


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    """A window that is split off, in a form that never had one."""
    file, model = slot(tmp_path / "old.bin", one_cache("anonymous", 1)), windowed(tmp_path)
    only = Options(only=("split-window", "to-session"))
    with (
        target_of("llama-server -c 512 -np 1", "b11549", model) as target,
        pytest.raises(Refused, match=r"the copy would have a fault|taken for something else"),
        planned(file, target, only, "new.bin"),
    ):
        pass


def test_nothing_to_do_in_what_was_written(tmp_path: Path) -> None:
    file, new = slot(tmp_path / "old.bin", one_cache("anonymous", 1)), tmp_path / "new.bin"
    model = windowed(tmp_path)
    with plan_for(file, model) as plan:
        new.write_bytes(b"".join(chunks(plan.outputs[0].content.content)))
    with plan_for(new, model) as plan:
        assert taken(plan) == []
