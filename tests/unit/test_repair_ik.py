"""States of ik_llama.cpp for llama.cpp, and the other way round, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.repair.actions import from_ik
from inspector.repair.draft import Options
from inspector.repair.plan import Plan, planned
from inspector.repair.segments import chunks
from inspector.repair.state import Refused
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from tests.support.gguf import model_file
from tests.support.writer import (
    DIALECTS,
    F16,
    F32,
    Q8_0,
    Blob,
    Cache,
    Cell,
    Checkpoint,
    IkMemory,
    Memory,
    Packable,
    Recurrent,
    Row,
    Slot,
    Tokens,
    ik_checkpoints,
    ik_tokens,
    pack,
    small_numbers,
)

Q8_KV, Q6_0 = 151, 133
N = 40
IDS = tuple(range(300, 300 + N))
CELLS = tuple(Cell(pos, tok=IDS[pos]) for pos in range(N))
OLD, NEW, NEWEST = "ik@2026-01-01", "ik@2026-03-01", "ik@2026-08-15"

LLAMA = {
    "block_count": 2,
    "embedding_length": 64,
    "context_length": 4096,
    "vocab_size": 464,
    "attention.head_count": 2,
    "attention.head_count_kv": 2,
}
GEMMA3 = {**LLAMA, "block_count": 6, "attention.sliding_window": 32, "attention.key_length": 32}
QWEN35 = {
    **LLAMA,
    "block_count": 4,
    "full_attention_interval": 4,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 8,
    "ssm.state_size": 4,
    "ssm.time_step_rank": 2,
    "ssm.group_count": 1,
}
DEEPSEEK2 = {
    **LLAMA,
    "attention.head_count_kv": 1,
    "attention.key_length": 96,
    "attention.value_length": 64,
    "attention.key_length_mla": 64,
    "attention.value_length_mla": 32,
    "attention.kv_lora_rank": 64,
    "rope.dimension_count": 32,
}
WINDOWED = (0, 1, 2, 3, 4)
N_R, N_S, HEAD = 3 * (8 + 2 * 4), 32, 4
"""Elements of the parts of a recurrent row, and the side of a square block in it."""
ROW = Row(F16, 128)


def rows(layers: dict[str, tuple[int, ...]]) -> Callable[[str, int, int, int], bytes]:
    """The same numbers for a layer in whichever section it stands, zeros at positions below 0."""

    def values(part: str, at: int, pos: int, size: int) -> bytes:
        member, _, side = part.partition(".")
        if side == "s":
            return recurrent("r", at, pos) + turned(recurrent("s", at, pos))
        if side == "blocks":
            n = len(layers[member])
            return recurrent("rs"[at // n], layers[member][at % n], pos)
        return small_numbers(side, layers[member][at] if member in layers else at, pos, size)

    return values


def recurrent(part: str, layer: int, pos: int) -> bytes:
    del pos  # a sequence in ik_llama.cpp, a position in llama.cpp
    return small_numbers(part, layer, 0, 4 * (N_R if part == "r" else N_S))


def turned(data: bytes) -> bytes:
    return np.frombuffer(data, "<u4").reshape(-1, HEAD, HEAD).transpose(0, 2, 1).tobytes()


@dataclass(frozen=True)
class Pair:
    """One state in the forms of both programs.

    Attributes:
        architecture: of its model.
        keys: metadata of its model.
        ik: its memory in ik_llama.cpp, version 3.
        upstream: its memory in llama.cpp, in no dialect.
        mrope: whether its cells have coordinates.
        layers: by section of llama.cpp.
    """

    architecture: str
    keys: dict[str, Any]
    ik: IkMemory
    upstream: Memory
    layers: dict[str, tuple[int, ...]]
    mrope: bool = False

    def ik_file(self, version: int) -> bytes:
        memory = replace(self.ik, version=version)
        return pack(Slot(version, Tokens(IDS), memory), rows({})).data

    def upstream_file(self, version: int) -> bytes:
        dialect = {2: "xy" if self.mrope else "", 4: "rotated-xyt" if self.mrope else "rotated"}
        memory = replace(self.upstream, dialect=DIALECTS[dialect[version]])
        return pack(Slot(version, Tokens(IDS), memory), rows(self.layers)).data


def attention(n: int, cells: tuple[Cell, ...] = CELLS, *, windowed: bool = False) -> Cache:
    return Cache((cells,), (ROW,) * n, (ROW,) * n, windowed=windowed)


PLAIN = Pair(
    "llama",
    LLAMA,
    IkMemory(3, CELLS, (ROW,) * 2, (ROW,) * 2),
    Memory({"attn": attention(2)}),
    {"attn": (0, 1)},
)
WINDOW = Pair(
    "gemma3",
    GEMMA3,
    IkMemory(3, CELLS, (ROW,) * 6, (ROW,) * 6),
    Memory({"base": attention(1), "swa": attention(5, windowed=True)}),
    {"base": (5,), "swa": WINDOWED},
)
CUT = replace(
    WINDOW,
    upstream=Memory({"base": attention(1), "swa": attention(5, CELLS[-32:], windowed=True)}),
)
"""As upstream saves it."""
_STATE = (Row(F32, 4 * (N_R + N_S)), 1)
HYBRID = Pair(
    "qwen35",
    QWEN35,
    IkMemory(
        3, CELLS, (None, None, None, ROW), (None, None, None, ROW), 0, (_STATE,) * 3 + (None,)
    ),
    Memory(
        {
            "attn": attention(1),
            "recr": Recurrent(
                (Cell(N - 1),), 4, (Row(F32, 4 * N_R),) * 3, (Row(F32, 4 * N_S),) * 3
            ),
        }
    ),
    {"attn": (3,), "recr": (0, 1, 2)},
    mrope=True,
)


@dataclass(frozen=True)
class Bed:
    """Where files are repaired.

    Attributes:
        folder: of them.
    """

    folder: Path

    def put(self, data: bytes, **companions: bytes) -> Path:
        path = self.folder / "slot.bin"
        path.write_bytes(data)
        for suffix, content in companions.items():
            path.with_name(f"{path.name}.{suffix.replace('_', '.')}").write_bytes(content)
        return path

    def model(self, architecture: str, keys: dict[str, Any]) -> Path:
        return model_file(self.folder / "model.gguf", architecture, keys)

    def repaired(
        self, path: Path, build: str, model: Path | None, command: str = "", **options: Any
    ) -> Result:
        words = f"llama-server -c 512 -np 1 {command}"
        with (
            target_of(words, build, model) as target,
            planned(path, target, Options(**options), "new.bin") as plan,
        ):
            return Result(
                plan,
                {one.suffix: b"".join(chunks(one.content.content)) for one in plan.outputs},
            )


@dataclass(frozen=True)
class Result:
    """What a repair comes to.

    Attributes:
        plan: the repair; its files are closed.
        files: what it writes, by suffix.
    """

    plan: Plan
    files: dict[str, bytes]

    @property
    def steps(self) -> list[str]:
        return [step.action for step in self.plan.steps]

    @property
    def accepted(self) -> bool:
        return self.plan.after is not None and self.plan.after.restore.outcome is Outcome.ACCEPTS


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


PAIRS = {"plain": PLAIN, "windows": WINDOW, "hybrid": HYBRID}
ADDED = ("synthesize-tip", "window-anchor")


@pytest.mark.parametrize("build", ["b10229", "b11549"])
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("version", [3, 4])
def test_from_ik_is_what_upstream_writes(bed: Bed, name: str, version: int, build: str) -> None:
    pair = PAIRS[name]
    path, model = bed.put(pair.ik_file(version)), bed.model(pair.architecture, pair.keys)
    result = bed.repaired(path, build, model, skip=("synthesize-tip",))
    assert result.steps == ["from-ik"]
    assert result.files == {"": pair.upstream_file(4 if build == "b11549" else 2)}
    assert result.accepted


@pytest.mark.parametrize("name", ["plain", "hybrid"])
@pytest.mark.parametrize("build", [NEW, NEWEST])
def test_to_ik_is_what_ik_writes(bed: Bed, name: str, build: str) -> None:
    pair = PAIRS[name]
    path, model = bed.put(pair.upstream_file(4)), bed.model(pair.architecture, pair.keys)
    result = bed.repaired(path, build, model)
    assert result.accepted
    if build == NEW:
        assert result.steps == ["to-ik"]
        assert result.files == {"": pair.ik_file(3)}
    else:
        assert result.steps == ["to-ik", "write-tokens"]
        assert result.files == {"": pair.ik_file(4), ".tokens.json": ik_tokens(IDS)}


def test_to_ik_needs_no_version_of_its_own_before_february_2026(bed: Bed) -> None:
    path, model = bed.put(PLAIN.upstream_file(4)), bed.model("llama", LLAMA)
    result = bed.repaired(path, OLD, model)
    assert result.files == {"": PLAIN.ik_file(2)}
    assert bed.repaired(bed.put(PLAIN.ik_file(2)), OLD, model).steps == []


def test_to_ik_fills_what_windows_left_out_with_zeros(bed: Bed) -> None:
    path, model = bed.put(CUT.upstream_file(4)), bed.model("gemma3", GEMMA3)
    result = bed.repaired(path, NEW, model)
    whole = rows({})

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        masked = layer in WINDOWED and pos < N - 32
        return bytes(size) if masked else whole(part, layer, pos, size)

    assert result.steps == ["to-ik"]
    assert result.files[""] == pack(Slot(3, Tokens(IDS), WINDOW.ik), values).data
    (step,) = result.plan.unconfirmed
    assert "shares fewer than 39 tokens with it is answered wrongly" in (step.loss or "")
    assert bed.repaired(path, NEW, model, only=("to-ik",)).plan.unconfirmed == ()


@pytest.mark.parametrize("flash", ["on", "off"])
def test_to_ik_takes_rows_of_checkpoints_first(bed: Bed, flash: str) -> None:
    """The window of 32 before token 40, that of 33 and that of 20."""
    trans = int(flash == "off")

    def windowed(first: int, last: int) -> Cache:
        return replace(attention(5, CELLS[first:last], windowed=True), v_trans=trans)

    sections = {"base": replace(attention(1), v_trans=trans), "swa": windowed(8, N)}
    memory = Memory(sections, DIALECTS["rotated"])
    earlier = [Memory({"swa": windowed(1, 33)}, memory.dialect)]
    earlier.append(Memory({"swa": windowed(0, 20)}, memory.dialect))
    appendix = tuple(
        Checkpoint(n, 0, n - 1, Blob(one)) for n, one in zip((33, 20), earlier, strict=True)
    )
    model = bed.model("gemma3", GEMMA3)
    made = []
    for records in (appendix[::-1], appendix[:1]):
        file = pack(Slot(4, Tokens(IDS), memory, records), rows({"swa": WINDOWED, "base": (5,)}))
        made.append(bed.repaired(bed.put(file.data), NEW, model, f"-fa {flash}"))
    assert made[0].steps == made[1].steps == ["to-ik"]
    assert not made[0].plan.unconfirmed
    assert made[0].files[""] == _state(replace(WINDOW.ik, v_state=trans))
    assert "zeros for 1 cell in front" in made[1].plan.steps[0].changes


def test_zeros_in_front_of_a_window_are_left_out_again(bed: Bed) -> None:
    path, model = bed.put(CUT.upstream_file(4)), bed.model("gemma3", GEMMA3)
    there = bed.repaired(path, NEW, model)
    back = bed.repaired(bed.put(there.files[""]), "b11549", model, skip=ADDED)
    assert back.steps == ["from-ik"]
    assert back.files[""] == CUT.upstream_file(4)


def test_to_ik_fills_transposed_values_too(bed: Bed) -> None:
    def off(cache: Any) -> Cache:
        return replace(cache, v_trans=1)

    sections = {name: off(cache) for name, cache in CUT.upstream.sections.items()}
    pair = replace(CUT, upstream=Memory(sections))
    path, model = bed.put(pair.upstream_file(4)), bed.model("gemma3", GEMMA3)
    result = bed.repaired(path, NEW, model, "-fa off")
    assert result.steps == ["to-ik"]
    rows_again = bed.repaired(bed.put(result.files[""]), NEW, model, "-fa on")
    path = bed.put(CUT.upstream_file(4))
    assert rows_again.steps == ["transpose-values"]
    assert rows_again.files == bed.repaired(path, NEW, model, "-fa on").files


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("build", ["b10229", "b11549"])
def test_there_and_back_is_the_same_file(bed: Bed, name: str, build: str) -> None:
    pair = PAIRS[name]
    model, data = bed.model(pair.architecture, pair.keys), pair.ik_file(3)
    there = bed.repaired(bed.put(data), build, model, skip=ADDED)
    if name == "hybrid" and build == "b10229":
        with pytest.raises(Refused, match="order"):  # of its numbers, without weights
            bed.repaired(bed.put(there.files[""]), NEW, model)
        return
    back = bed.repaired(bed.put(there.files[""]), NEW, model, allow_loss=True)
    again = bed.repaired(bed.put(back.files[""]), build, model, skip=ADDED)
    assert again.files == there.files
    assert back.files[""] == data


LATENT = replace(
    PLAIN,
    architecture="deepseek2",
    keys=DEEPSEEK2,
    ik=IkMemory(3, CELLS, (Row(F16, 192),) * 2, (), 2),
    upstream=Memory({"attn": Cache((CELLS,), (Row(F16, 192),) * 2, None)}),
)


def test_latent_keys_change_places(bed: Bed) -> None:
    model = bed.model("deepseek2", DEEPSEEK2)

    def latent_first(part: str, layer: int, pos: int, size: int) -> bytes:
        row = rows({})(part, layer, pos, size)
        return row[64:] + row[:64]

    data = LATENT.ik_file(3)
    result = bed.repaired(bed.put(data), "b11549", model)
    memory = replace(LATENT.upstream, dialect=DIALECTS["rotated"])
    assert result.steps == ["from-ik"]
    assert result.files[""] == pack(Slot(4, Tokens(IDS), memory), latent_first).data
    back = bed.repaired(bed.put(result.files[""]), NEW, model)
    assert back.steps == ["to-ik"]
    assert back.files[""] == data
    off = bed.repaired(bed.put(result.files[""]), NEW, model, "-fa off -mla 3")
    assert off.files[""] == data


def test_values_of_mla_1_without_flash_attention_are_left_out(bed: Bed) -> None:
    model = bed.model("deepseek2", DEEPSEEK2)
    stored = IkMemory(3, CELLS, (Row(F16, 192),) * 2, (Row(F16, 128),) * 2, 1)
    path = bed.put(pack(Slot(3, Tokens(IDS), stored), rows({})).data)
    result = bed.repaired(path, NEW, model, "-mla 1 -fa on")
    assert result.steps == ["drop-values"]
    assert result.files[""] == LATENT.ik_file(3)
    assert bed.repaired(path, "b11549", model).steps == ["from-ik"]


RESTAMPED = {NEW: 3, NEWEST: 4, OLD: 2}


@pytest.mark.parametrize("build", RESTAMPED)
@pytest.mark.parametrize("version", [3, 4])
def test_versions_of_ik_differ_in_words_at_the_end(bed: Bed, version: int, build: str) -> None:
    path, model = bed.put(PLAIN.ik_file(version)), bed.model("llama", LLAMA)
    result = bed.repaired(path, build, model, skip=("write-tokens",))
    assert result.files == {"": PLAIN.ik_file(RESTAMPED[build])}
    assert result.steps == ([] if RESTAMPED[build] == version else ["relayout"])
    assert bed.repaired(bed.put(result.files[""]), build, model, skip=("write-tokens",)).steps == []


def test_restamping_needs_no_model(bed: Bed) -> None:
    path = bed.put(HYBRID.ik_file(3))
    result = bed.repaired(path, NEWEST, None)
    assert result.steps == ["relayout", "write-tokens"]
    assert result.files[""] == HYBRID.ik_file(4)


def checkpoints(version: int) -> bytes:
    memory = replace(HYBRID.ik, version=version, cells=CELLS[:20]).partial()
    record = Checkpoint(20, 19, 19, Blob(memory, None))
    return pack(ik_checkpoints([record], version), rows({})).data


def test_checkpoints_get_the_version_of_their_state(bed: Bed) -> None:
    path = bed.put(HYBRID.ik_file(3), checkpoints=checkpoints(3), tokens_json=ik_tokens(IDS))
    result = bed.repaired(path, NEWEST, bed.model("qwen35", QWEN35))
    assert result.steps == ["relayout", "convert-checkpoints"]
    assert result.files[".checkpoints"] == checkpoints(4)
    assert result.files[".tokens.json"] == ik_tokens(IDS)


def test_checkpoints_go_along_in_both_directions(bed: Bed) -> None:
    model = bed.model("qwen35", QWEN35)
    path = bed.put(HYBRID.ik_file(4), checkpoints=checkpoints(4), tokens_json=ik_tokens(IDS))
    there = bed.repaired(path, "b11549", model)
    assert there.steps == ["from-ik", "convert-checkpoints", "drop-companions"]
    assert [(one.record.n_tokens, one.usable) for one in there.plan.copied.checkpoints] == [
        (20, True)
    ]
    for other in bed.folder.glob("slot.bin.*"):
        other.unlink()
    back = bed.repaired(bed.put(there.files[""]), NEWEST, model)
    assert back.steps == ["to-ik", "convert-checkpoints", "write-tokens"]
    assert back.files[".checkpoints"] == checkpoints(4)
    assert back.files[""] == HYBRID.ik_file(4)


def test_a_wrong_token_list_is_written_anew(bed: Bed) -> None:
    model = bed.model("llama", LLAMA)
    for listed in (b"", b"{", ik_tokens(IDS[:-1]), ik_tokens(IDS).replace(b"1819112310", b"7")):
        path = bed.put(PLAIN.ik_file(4), tokens_json=listed)
        result = bed.repaired(path, NEWEST, model)
        assert result.steps == ["write-tokens"]
        assert result.files[".tokens.json"] == ik_tokens(IDS)
        assert result.accepted
    path = bed.put(PLAIN.ik_file(4), tokens_json=result.files[".tokens.json"])
    result = bed.repaired(path, NEWEST, model)
    assert result.steps == []
    assert result.files[".tokens.json"] == ik_tokens(IDS)


def test_the_token_list_is_cut_with_the_tokens(bed: Bed) -> None:
    path = bed.put(PLAIN.ik_file(4), tokens_json=ik_tokens(IDS))
    result = bed.repaired(path, NEWEST, bed.model("llama", LLAMA), at=10)
    assert result.steps == ["trim", "write-tokens"]
    assert json.loads(result.files[".tokens.json"])["tokens"] == list(IDS[:10])
    memory = replace(PLAIN.ik, version=4, cells=CELLS[:10])
    assert result.files[""] == pack(Slot(4, Tokens(IDS[:10]), memory), rows({})).data


def test_it_is_cut_for_no_server_in_particular(bed: Bed) -> None:
    path = bed.put(PLAIN.ik_file(4), tokens_json=ik_tokens(IDS))
    with planned(path, None, Options(at=10), "new.bin") as plan:
        assert [step.action for step in plan.steps] == ["trim", "write-tokens"]
        contents = {one.suffix: b"".join(chunks(one.content.content)) for one in plan.outputs}
    assert contents[".tokens.json"] == ik_tokens(IDS[:10])
    with planned(path, None, Options(), "new.bin") as plan:
        assert [one.suffix for one in plan.outputs] == ["", ".tokens.json"]
        assert not plan.steps


def q8_kv(rows_of: int, heads: int, width: int) -> np.ndarray:
    """Rows of keys: for every head a scale, the sum of its codes, the codes."""
    random = np.random.default_rng(7)
    codes = random.integers(-127, 128, (rows_of, heads, width), np.int8)
    head = np.zeros((rows_of, heads), [("scale", "<f4"), ("sum", "<i4"), ("codes", "i1", width)])
    head["scale"], head["sum"], head["codes"] = 0.5, codes.sum(axis=2), codes
    return head


@pytest.mark.parametrize("heads", [1, 2])
def test_q8_kv_keys_become_those_of_upstream(
    bed: Bed, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = q8_kv(N, heads, 32)
    size = heads * 32 + 8
    stored = keys.tobytes()[: N * size]
    whole = len(stored) // (heads * 40)
    row = Row(F16, heads * 64)
    memory = IkMemory(3, CELLS, (Row(Q8_KV, size),), (row,))

    def values(part: str, layer: int, pos: int, n: int) -> bytes:
        if part == "attn.k":
            return stored[pos * n : (pos + 1) * n]
        return small_numbers(part, layer, pos, n)

    path = bed.put(pack(Slot(3, Tokens(IDS), memory), values).data)
    own = {**LLAMA, "block_count": 1, "attention.head_count_kv": heads}
    with pytest.raises(Refused, match="-khad"):
        bed.repaired(path, "b11549", bed.model("llama", own), "-ctk f16")
    monkeypatch.setattr(from_ik, "rotation_of", lambda identity, cache: (0, 0))
    monkeypatch.setattr(from_ik, "_is_turned", lambda draft, target, cache, size: not size)
    result = bed.repaired(path, "b11549", bed.model("llama", own), "-ctk f16")
    assert result.steps == ["from-ik", *(["trim"] if heads > 1 else []), "transcode"]
    assert bool(result.plan.unconfirmed) == (heads > 1)
    assert whole == (N if heads == 1 else 36)
    numbers = (keys["scale"][..., None] * keys["codes"]).astype("<f2").reshape(N, -1)[:whole]
    copied = result.plan.copied
    assert copied.tokens is not None
    assert copied.tokens.count == copied.sections[0].cells == whole
    span = copied.sections[0].k[0].data
    assert span is not None
    assert result.files[""][span.start : span.stop] == numbers.tobytes()


def test_q8_kv_keys_that_were_saved_short_cost_their_tokens(bed: Bed) -> None:
    keys = q8_kv(N, 2, 32)
    memory = IkMemory(4, CELLS, (Row(Q8_KV, 72),), (Row(F16, 128),))

    def values(part: str, layer: int, pos: int, n: int) -> bytes:
        if part == "attn.k":
            return keys.tobytes()[pos * n : (pos + 1) * n]
        return small_numbers(part, layer, pos, n)

    data = pack(Slot(4, Tokens(IDS), memory), values).data
    path = bed.put(data, tokens_json=ik_tokens(IDS))
    model = bed.model("llama", {**LLAMA, "block_count": 1})
    result = bed.repaired(path, NEWEST, model, "-ctk q8_KV")
    assert result.steps == ["trim", "write-tokens"]
    assert len(result.plan.unconfirmed) == 1
    assert result.files[""] == pack(Slot(4, Tokens(IDS[:36]), memory), values).data
    assert result.files[".tokens.json"] == ik_tokens(IDS[:36])
    path = bed.put(result.files[""], tokens_json=ik_tokens(IDS[:36]))
    assert bed.repaired(path, NEWEST, model, "-ctk q8_KV").steps == []


def test_a_state_for_its_own_server_keeps_its_options(bed: Bed) -> None:
    off = replace(PLAIN.ik, v_state=1)
    path = bed.put(pack(Slot(3, Tokens(IDS), off), rows({})).data)
    model = bed.model("llama", LLAMA)
    assert bed.repaired(path, NEW, model, "-fa off").steps == []
    result = bed.repaired(path, NEW, model, "-fa on")
    assert result.steps == ["transpose-values"]
    assert result.files[""] == PLAIN.ik_file(3)


MEDIA = Tokens((*IDS[:10], *(-1,) * 10, *IDS[20:]))
_WITH = dict[str, Any]


def _state(memory: IkMemory, tokens: Tokens = Tokens(IDS)) -> bytes:  # noqa: B008
    return pack(Slot(memory.version, tokens, memory), rows({})).data


REFUSED: dict[str, tuple[bytes, str, _WITH | None, str, str]] = {
    "no model": (PLAIN.ik_file(3), "", None, "", "name the model"),
    "no cells": (_state(replace(PLAIN.ik, cells=())), "llama", LLAMA, "", "no cells"),
    "cut": (PLAIN.ik_file(3)[:-300], "llama", LLAMA, "", "cut or damaged"),
    "media": (_state(PLAIN.ik, MEDIA), "llama", LLAMA, "", "media"),
    "llama4": (PLAIN.ik_file(3), "llama4", LLAMA, "", "Llama 4"),
    "gemma4 without flash attention": (
        _state(replace(WINDOW.ik, v_state=1)),
        "gemma4",
        {**GEMMA3, "attention.sliding_window_pattern": [True] * 5 + [False]},
        "-fa off",
        "Gemma 4",
    ),
    "openpangu": (PLAIN.ik_file(4), "openpangu", LLAMA, "", "of another kind"),
    "deepseek4": (PLAIN.ik_file(4), "deepseek4", LLAMA, "", "of another kind"),
    "glm-dsa": (
        _state(replace(LATENT.ik, version=4, indexer=(Row(F16, 64),) * 2)),
        "glm-dsa",
        {**DEEPSEEK2, "attention.indexer.key_length": 32},
        "",
        "indexer",
    ),
    "compacted windows": (
        _state(
            replace(WINDOW.ik, version=4, window=(288, 32, 8, 32), compacted=frozenset(WINDOWED))
        ),
        "gemma3",
        GEMMA3,
        "",
        "compacted",
    ),
    "another model": (PLAIN.ik_file(3), "llama", {**LLAMA, "block_count": 3}, "", "layer 2"),
    "another width": (
        PLAIN.ik_file(3),
        "llama",
        {**LLAMA, "embedding_length": 128},
        "",
        "not those of this model",
    ),
    "a recurrent state that was not saved": (
        pack(Slot(3, Tokens(IDS), HYBRID.ik), lambda part, layer, pos, size: bytes(size)).data,
        "qwen35",
        QWEN35,
        "",
        "all zeros",
    ),
    "no recurrent state": (
        _state(replace(HYBRID.ik, recurrent=())),
        "qwen35",
        QWEN35,
        "",
        "no state of the recurrent layers",
    ),
    "rotation unknown": (
        _state(replace(PLAIN.ik, k=(Row(Q8_0, 68),) * 2)),
        "llama",
        LLAMA,
        "",
        "-khad",
    ),
    "rotation of others": (
        _state(replace(PLAIN.ik, v=(Row(Q6_0, 52),) * 2)),
        "llama",
        LLAMA,
        "",
        "-vhad",
    ),
    "head by head": (
        _state(IkMemory(3, CELLS, (Row(F16, 256),) * 2, (Row(F16, 128),) * 2)),
        "deepseek2",
        DEEPSEEK2,
        "",
        "not those of this model",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refusals_towards_upstream(bed: Bed, why: str) -> None:
    data, architecture, keys, command, says = REFUSED[why]
    model = bed.model(architecture, keys) if keys is not None else None
    with pytest.raises(Refused, match=says):
        bed.repaired(bed.put(data), "b11549", model, command)


def _upstream(pair: Pair, tokens: Tokens = Tokens(IDS), **sections: Any) -> bytes:  # noqa: B008
    memory = Memory(
        {**pair.upstream.sections, **sections}, DIALECTS["rotated-xyt" if pair.mrope else "rotated"]
    )
    what: Packable = Slot(4, tokens, memory)
    return pack(what, rows(pair.layers)).data


_SHORT = attention(5, CELLS[-20:], windowed=True)
REFUSED_TO: dict[str, tuple[bytes, str, _WITH | None, str, str, str]] = {
    "no model": (PLAIN.upstream_file(4), "", None, "", NEW, "name the model"),
    "no cells": (_upstream(PLAIN, attn=attention(2, ())), "llama", LLAMA, "", NEW, "no cells"),
    "llama4": (PLAIN.upstream_file(4), "llama4", LLAMA, "", NEW, "Llama 4"),
    "another model": (
        PLAIN.upstream_file(4),
        "llama",
        {**LLAMA, "block_count": 3},
        "",
        NEW,
        "not of this model",
    ),
    "less than the window": (
        _upstream(WINDOW, swa=_SHORT),
        "gemma3",
        GEMMA3,
        "",
        NEW,
        "all that the next token sees",
    ),
    "a version without layers that have no cache": (
        HYBRID.upstream_file(4),
        "qwen35",
        QWEN35,
        "",
        OLD,
        "version 2 has no place",
    ),
    "values wanted": (
        pack(
            Slot(4, Tokens(IDS), replace(LATENT.upstream, dialect=DIALECTS["rotated"])),
            rows({}),
        ).data,
        "deepseek2",
        DEEPSEEK2,
        "-mla 1 -fa off",
        NEW,
        "keeps values",
    ),
}


@pytest.mark.parametrize("why", REFUSED_TO)
def test_refusals_towards_ik(bed: Bed, why: str) -> None:
    data, architecture, keys, command, build, says = REFUSED_TO[why]
    model = bed.model(architecture, keys) if keys is not None else None
    with pytest.raises(Refused, match=says):
        bed.repaired(bed.put(data), build, model, command)
