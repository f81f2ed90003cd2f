"""Caches in other types: the numbers are those of the file, rounded, and turned as they must be."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from formats.ggml_types import TYPES, GgmlType
from inspector.arrays.numbers import dequantize
from inspector.arrays.quantize import WRITABLE, quantize
from inspector.arrays.rotation import rotate
from inspector.repair.apart import state_of
from inspector.repair.draft import Options
from inspector.repair.outcome import carry_out
from inspector.repair.plan import Plan, planned
from inspector.repair.segments import Rows, Write, chunks
from inspector.repair.state import Cache as StateCache
from inspector.repair.state import Tensor
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from inspector.source import Unreadable
from tests.support.gguf import model_file
from tests.support.writer import (
    DIALECTS,
    Cache,
    Checkpoint,
    Memory,
    Row,
    Slot,
    Tokens,
    cells_of,
    checkpoint,
    pack,
)

KINDS: dict[str, GgmlType] = {kind.name: kind for kind in TYPES if kind.name in WRITABLE}
IDS = tuple(range(1, 41))
HEAD, N_HEAD = 64, 2
WIDTH = HEAD * N_HEAD
QUANTIZED = sorted(name for name, kind in KINDS.items() if kind.block_elements > 1)
PLAIN = sorted(set(KINDS) - set(QUANTIZED))
ROUNDING = {"f32": 0.0, "f16": 0.0005, "bf16": 0.005, "q8_0": 0.01, "q5_0": 0.06, "q5_1": 0.06,
            "q4_0": 0.12, "q4_1": 0.12, "iq4_nl": 0.12}  # fmt: skip
"""What a type may cost relative to the norm of normally distributed numbers."""

Numbers = NDArray[np.float32]


def numbers(part: str, layer: int, pos: int, width: int = WIDTH) -> Numbers:
    """Of a row; f16 holds them exactly."""
    rng = np.random.default_rng(zlib.crc32(f"{part}/{layer}/{pos}".encode()))
    return rng.normal(0, 1, (1, width)).astype(np.float16).astype(np.float32)


def row(kind: GgmlType) -> Row:
    return Row(kind.id, WIDTH // kind.block_elements * kind.block_bytes)


def written(
    path: Path,
    k: str = "f16",
    v: str = "f16",
    *,
    version: int = 4,
    turned: tuple[int, int] = (0, 0),
    v_trans: int = 0,
    windowed: bool = False,
    odd: Callable[[Numbers], None] = lambda row: None,
) -> Path:
    """A state whose rows are rounded to types, and turned."""

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        side = part.rpartition(".")[2]
        row = numbers(part, layer, pos)
        if (layer, pos) == (1, 7):
            odd(row)
        kind, size = (KINDS[k], turned[0]) if side == "k" else (KINDS[v], turned[1])
        return quantize(rotate(row, size), kind).tobytes()

    cells = cells_of(Tokens(IDS))
    layers = {"attn": 2} if not windowed else {"base": 1, "swa": 1}
    sections = {
        name: Cache(
            (cells,),
            (row(KINDS[k]),) * n,
            (row(KINDS[v]),) * n,
            v_trans=v_trans,
            n_rot=turned,
            windowed=name == "swa",
        )
        for name, n in layers.items()
    }
    dialect = DIALECTS["rotated" if version == 4 else ""]
    memory = Memory(sections, dialect)
    appendix: tuple[Checkpoint, ...] | None = None
    if windowed:
        appendix = (checkpoint(memory, len(IDS)),)
    path.write_bytes(pack(Slot(version, Tokens(IDS), memory, appendix), values).data)
    return path


def model(path: Path, *, window: int = 0) -> Path:
    keys: dict[str, Any] = {
        "block_count": 2,
        "embedding_length": 4 * HEAD,
        "attention.head_count": 4,
        "attention.head_count_kv": N_HEAD,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
    }
    if window:
        keys["attention.sliding_window"] = window
    return model_file(path, "gemma2" if window else "llama", keys)


@contextmanager
def plan_for(
    file: Path,
    flags: str = "",
    build: str = "b11549",
    options: Options | None = None,
    *,
    named: bool = True,
    window: int = 0,
) -> Iterator[Plan]:
    own = model(file.with_suffix(".gguf"), window=window) if named else None
    words = f"llama-server -c 512 -np 1 {flags}"
    with (
        target_of(words, build, own) as target,
        planned(file, target, options or Options(), "new.bin") as plan,
    ):
        yield plan


def taken(plan: Plan) -> list[str]:
    return [step.action for step in plan.steps]


def held(cache: StateCache, side: str) -> Numbers:
    """All rows of one side as numbers, turned back, shape `(layers, cells, WIDTH)`."""
    assert cache.rotation is not None
    size = cache.rotation["kv".index(side)]
    return np.stack([rotate(_rows(tensor), size) for tensor in getattr(cache, side)])


def _rows(tensor: Tensor) -> Numbers:
    assert tensor.kind is not None
    data = tensor.reader().read_at(0, tensor.row_bytes * tensor.n_cells)
    if tensor.element_bytes:
        return dequantize(data, tensor.kind, tensor.n_cells).T
    return dequantize(data, tensor.kind, WIDTH)


def truth(side: str, member: str = "attn", n_layers: int = 2) -> Numbers:
    positions = range(len(IDS))
    return np.stack(
        [
            np.concatenate([numbers(f"{member}.{side}", layer, pos) for pos in positions])
            for layer in range(n_layers)
        ]
    )


def error(found: Numbers, expected: Numbers) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("new", sorted(KINDS))
@pytest.mark.parametrize("old", ["f16", "f32", "bf16", "q8_0", "q4_1"])
def test_numbers_stay(old: str, new: str, tmp_path: Path) -> None:
    turned = (64, 64) if old in QUANTIZED else (0, 0)
    file = written(tmp_path / "old.bin", old, old, turned=turned)
    flags = f"-fa on -ctk {new} -ctv {new}"
    with plan_for(file, flags) as plan:
        assert taken(plan) == (["transcode"] if old != new else [])
        assert plan.after is not None
        assert plan.after.restore.outcome is Outcome.ACCEPTS
        (cache,) = state_of(plan.copied).caches
        assert cache.rotation == ((64, 64) if new in QUANTIZED else (0, 0))
        for side in ("k", "v"):
            bound = np.hypot(ROUNDING[old], ROUNDING[new])
            assert error(held(cache, side), truth(side)) <= bound
        assert plan.unconfirmed == ()


@pytest.mark.parametrize("new", sorted(KINDS))
def test_there_and_back_within_what_was_said(new: str, tmp_path: Path) -> None:
    file = written(tmp_path / "old.bin")
    there = tmp_path / "there.bin"
    with plan_for(file, f"-fa on -ctk {new} -ctv {new}") as plan:
        there.write_bytes(b"".join(chunks(plan.outputs[0].content.content)))
        said = [step.loss or "" for step in plan.steps]
    with plan_for(there, "-fa on") as plan:
        (cache,) = state_of(plan.copied).caches
        found = error(held(cache, "k"), truth("k"))
    percent = float(said[0].split("keys ")[1].split(" %")[0]) if said and said[0] else 0.0
    assert found <= percent / 100 * 1.05 + 2 * ROUNDING["f16"]
    assert found >= percent / 100 * 0.95 - 2 * ROUNDING["f16"]
    assert (percent == 0) == (new in ("f16", "f32"))


@pytest.mark.parametrize(("k", "v"), [("q8_0", "f16"), ("f16", "q8_0"), ("q4_0", "q8_0")])
def test_each_side_for_itself(k: str, v: str, tmp_path: Path) -> None:
    file = written(tmp_path / "old.bin", "q8_0", "f16", turned=(64, 0))
    with plan_for(file, f"-fa on -ctk {k} -ctv {v}") as plan:
        (cache,) = state_of(plan.copied).caches
        assert [t.kind for t in (*cache.k, *cache.v)] == [KINDS[k]] * 2 + [KINDS[v]] * 2
        assert cache.rotation == (64 * (k in QUANTIZED), 64 * (v in QUANTIZED))
        assert error(held(cache, "k"), truth("k")) <= 0.13
        assert error(held(cache, "v"), truth("v")) <= 0.02


@pytest.mark.parametrize("build", ["b8156", "b11549"])
def test_the_same_type_turned(build: str, tmp_path: Path) -> None:
    """A file of another rotation than the target has: what changes is not the type."""
    turned = (64, 64) if build == "b8156" else (0, 0)
    file = written(tmp_path / "old.bin", "q8_0", "q8_0", turned=turned)
    with plan_for(file, "-fa on -ctk q8_0 -ctv q8_0", build) as plan:
        assert "transcode" in taken(plan)
        cache = state_of(plan.copied).caches[0]
        size = 0 if build == "b8156" else 64
        rows = rotate(_rows(cache.k[0]), size)
        assert error(rows, truth("k")[0]) <= 0.02


def test_values_by_channel_change_type_where_they_stand(tmp_path: Path) -> None:
    file = written(tmp_path / "old.bin", v_trans=1)
    with plan_for(file, "-fa off -ctk f32 -ctv f32") as plan:
        assert taken(plan) == ["transcode"]
        assert plan.steps[0].loss is None
        (cache,) = state_of(plan.copied).caches
        assert cache.v[0].element_bytes == 4
        assert error(held(cache, "v"), truth("v")) == 0


@pytest.mark.parametrize(
    ("v", "v_trans", "flags", "steps"),
    [
        ("f16", 1, "-fa on -ctv q8_0", ["transpose-values", "transcode"]),
        ("q8_0", 0, "-fa off", ["transcode", "transpose-values"]),
    ],
)
def test_values_are_turned_while_they_are_numbers(
    v: str, v_trans: int, flags: str, steps: list[str], tmp_path: Path
) -> None:
    turned = (0, 64 if v in QUANTIZED else 0)
    file = written(tmp_path / "old.bin", v=v, v_trans=v_trans, turned=turned)
    with plan_for(file, flags) as plan:
        assert taken(plan) == steps
        assert plan.after is not None
        assert plan.after.restore.outcome is Outcome.ACCEPTS
        (cache,) = state_of(plan.copied).caches
        assert error(held(cache, "v"), truth("v")) <= 0.01
    with plan_for(file, flags, options=Options(skip=("transpose-values",))) as plan:
        assert "transpose-values" not in taken(plan)
        assert plan.after is not None
        assert plan.after.restore.outcome is Outcome.REFUSES


def test_checkpoints_change_too(tmp_path: Path) -> None:
    file = written(tmp_path / "old.bin", windowed=True)
    with plan_for(file, "-fa on -ctk q8_0 -ctv q8_0", window=64) as plan:
        assert taken(plan) == ["transcode"]
        (one,) = plan.copied.checkpoints
        assert one.usable
        assert one.record.blob is not None
        (section,) = one.record.blob.sections
        assert {block.type_name for block in section.blocks} == {"q8_0"}


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("new", ["q8_0", "iq4_nl", "f32"])
def test_numbers_that_are_none(value: float, new: str, tmp_path: Path) -> None:
    def odd(row: Numbers) -> None:
        row[0, 3] = value

    file = written(tmp_path / "old.bin", odd=odd)
    with plan_for(file, f"-fa on -ctk {new} -ctv {new}") as plan:
        assert plan.refused == (("transcode", "it holds numbers that are not finite"),)


def test_numbers_that_are_too_large(tmp_path: Path) -> None:
    def odd(row: Numbers) -> None:
        row[0, 3] = 1e6

    file = written(tmp_path / "old.bin", "f32", "f32", odd=odd)
    with plan_for(file, "-fa on") as plan:
        assert plan.refused == (("transcode", "it holds numbers that are too large for f16"),)
    with plan_for(file, "-fa on -ctk bf16 -ctv bf16") as plan:
        assert taken(plan) == ["transcode"]


def test_a_rotation_that_nobody_knows(tmp_path: Path) -> None:
    """Version 2 was written before and after quantized rows were turned."""
    file = written(tmp_path / "old.bin", "q8_0", "q8_0", version=2)
    with plan_for(file, "-fa on", "b10229") as plan:
        assert [name for name, _ in plan.refused] == ["transcode"]
        assert "is not known" in plan.refused[0][1]


def test_without_a_model(tmp_path: Path) -> None:
    """Whether a server turns quantized rows follows from the width of a head."""
    file = written(tmp_path / "old.bin")
    with plan_for(file, "-fa on -ctk q8_0 -ctv q8_0", named=False) as plan:
        assert [name for name, _ in plan.refused] == ["transcode"]
    with plan_for(file, "-fa on -ctk f32 -ctv bf16", named=False) as plan:
        assert taken(plan) == ["transcode"]
        assert plan.refused == ()
    with plan_for(file, "-fa on -ctk q8_0 -ctv q8_0", "b8156", named=False) as plan:
        assert "transcode" in taken(plan)


def test_nothing_to_do_in_what_was_written(tmp_path: Path) -> None:
    file, new = written(tmp_path / "old.bin", v_trans=1), tmp_path / "new.bin"
    with plan_for(file, "-fa on -ctk q8_0 -ctv q4_0") as plan:
        new.write_bytes(b"".join(chunks(plan.outputs[0].content.content)))
    with plan_for(new, "-fa on -ctk q8_0 -ctv q4_0") as plan:
        assert taken(plan) == []


@pytest.mark.parametrize("offset", [0, 1, 7, 8, 100, 799])
@pytest.mark.parametrize("size", [0, 1, 8, 9, 300, 2000])
def test_any_bytes_of_rows(offset: int, size: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, 1600, np.uint8)
    made = Rows((Write(data.tobytes(), ""),), (16, 8), 100, _halves, "")
    whole = b"".join(made.chunks())
    assert len(made) == len(whole) == 800
    assert made.read_at(offset, size) == whole[offset : offset + size]


def _halves(data: bytes) -> bytes:
    return np.frombuffer(data, np.uint8).reshape(-1, 16)[:, 4:12].tobytes()


def test_what_the_sample_did_not_show_stops_the_writing(tmp_path: Path) -> None:
    """One row of a thousand: nothing is left of a copy that would hide it."""
    tokens = Tokens(tuple(range(1, 1001)))
    cache = Cache((cells_of(tokens),), (row(KINDS["f16"]),) * 2, (row(KINDS["f16"]),) * 2)

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        found = np.full(size // 2, 1.0, np.float16)
        found[5] = np.nan if (part, layer, pos) == ("attn.v", 1, 7) else 2.0
        return found.tobytes()

    file = tmp_path / "old.bin"
    memory = Memory({"attn": cache}, DIALECTS["rotated"])
    file.write_bytes(pack(Slot(4, tokens, memory), values).data)
    new = tmp_path / "new.bin"
    with plan_for(file, "-fa on -ctk iq4_nl -ctv iq4_nl -c 1024") as plan:
        assert taken(plan) == ["transcode"]
        with pytest.raises(Unreadable, match="not finite"):
            carry_out(plan, new)
    assert {path.name for path in tmp_path.iterdir()} == {"old.bin", "old.gguf"}
