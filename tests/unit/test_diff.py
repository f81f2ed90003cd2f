"""Two files against each other: what is said of them is what was done to them."""

from __future__ import annotations

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from inspector.cli.app import app
from inspector.diff import numbers as diff_numbers
from inspector.repair.draft import Options
from inspector.repair.outcome import carry_out
from inspector.repair.plan import planned
from inspector.report import examined
from inspector.server.target import target_of
from tests.support.gguf import model_file
from tests.support.writer import (
    DIALECTS,
    F16,
    F32,
    Q8_0,
    Cache,
    Cell,
    CheckpointList,
    Context,
    Dialect,
    Memory,
    Packed,
    Recurrent,
    Row,
    Session,
    Slot,
    Tokens,
    cells_of,
    checkpoint,
    pack,
)

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
N, WIDTH, LAYERS = 40, 128, 2
IDS = tuple(range(5, 5 + N))


def values(part: str, layer: int, pos: int, size: int) -> bytes:
    """Numbers that depend on the layer and the position alone, not on where they stand."""
    seed = [ord(part[-1]), layer, pos]
    return np.random.default_rng(seed).normal(size=size // 2).astype("<f2").tobytes()


def state(
    ids: tuple[int, ...] = IDS,
    *,
    version: int = 2,
    v_trans: int = 0,
    streams: int = 1,
    order: tuple[int, ...] | None = None,
    row: Row = Row(F16, 2 * WIDTH),  # noqa: B008
) -> Packed:
    cells = cells_of(Tokens(ids))
    cells = tuple(cells[i] for i in order) if order is not None else cells
    arrays = ((),) * (streams - 1) + (cells,)
    cache = Cache(arrays, (row,) * LAYERS, (row,) * LAYERS, v_trans=v_trans, n_rot=(0, 0))
    dialect = DIALECTS["rotated" if version == 4 else ""]
    return pack(Slot(version, Tokens(ids), Memory({"attn": cache}, dialect)), values)


def ran(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["diff", *map(str, words)])


def compared(folder: Path, a: bytes, b: bytes, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document."""
    one, two = folder / "a.slot", folder / "b.slot"
    one.write_bytes(a)
    two.write_bytes(b)
    result = ran(one, two, "--json", *words)
    assert result.exit_code in (0, 1), result.output
    return result.exit_code, json.loads(result.stdout)


def layers(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [layer for section in document["sections"] for layer in section["layers"]]


def test_a_file_and_itself(tmp_path: Path) -> None:
    data = state().data
    code, found = compared(tmp_path, data, data, "--deep")
    assert (code, found["identical"], found["same_content"]) == (0, True, True)
    one = tmp_path / "a.slot"
    assert "identical, byte for byte" in ran(one, one).output
    assert ran(one, tmp_path / "b.slot").exit_code == 0


@given(at=st.integers(0, 2 * LAYERS * N * WIDTH - 1), bit=st.integers(0, 15))
def test_a_changed_number_is_found(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    """Its layer, its position, and how large the change is."""
    packed, folder = state(), tmp_path_factory.mktemp("pair")
    tensor, place = divmod(at, N * WIDTH)
    name = f"attn.streams[0].{'kv'[tensor // LAYERS]}[{tensor % LAYERS}].data"
    start = packed.mark(name).start + 2 * place
    data = bytearray(packed.data)
    data[start + bit // 8] ^= 1 << bit % 8
    code, found = compared(folder, packed.data, bytes(data), "--deep")
    assert code == 1
    assert found["first_difference"] == start + bit // 8
    assert found["first_difference_in"] == [name, name]
    assert found["fields"] == []
    (layer,) = [layer for layer in layers(found) if layer["differ"]]
    assert layer["name"] == name[len("attn.streams[0].") :].removesuffix(".data")
    assert (layer["differ"], layer["first"]) == (1, place // WIDTH)
    old, new = (np.frombuffer(d, "<f2", 1, start).astype(float)[0] for d in (packed.data, data))
    if np.isfinite(new):
        assert layer["max_error"] == pytest.approx(abs(old - new), rel=1e-6)
        assert layer["worst"] == place // WIDTH
    else:
        assert layer["non_finite"] == [0, 1]


def test_who_has_numbers_is_told_how_they_are_compared(tmp_path: Path) -> None:
    """Files that nothing explains have none."""
    says = "--deep compares the numbers"
    packed = state()
    (tmp_path / "a").write_bytes(packed.data)
    at = packed.mark("attn.streams[0].k[0].data").start
    changed = bytes([packed.data[at] ^ 1])
    (tmp_path / "b").write_bytes(packed.data[:at] + changed + packed.data[at + 1 :])
    assert f"bytes alone; {says}" in ran(tmp_path / "a", tmp_path / "b").stdout
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"\x81nothing known" + name.encode() * 40)
    result = ran(tmp_path / "a", tmp_path / "b")
    assert "they differ: bytes alone\n" in result.stdout
    assert says not in result.stdout


def test_where_tokens_part(tmp_path: Path) -> None:
    other = (*IDS[:23], 999, *IDS[24:])
    code, found = compared(tmp_path, state().data, state(other).data)
    assert code == 1
    assert found["tokens"] == {
        "equal": False, "a": N, "b": N, "common": 23, "divergent": 23,
    }  # fmt: skip
    shown = ran(tmp_path / "a.slot", tmp_path / "b.slot")
    assert "the first 23 are equal" in shown.output
    assert "they part at token 23" in shown.output
    assert "999" not in shown.output
    assert "999" in ran(tmp_path / "a.slot", tmp_path / "b.slot", "--show-tokens").output
    assert "999" not in json.dumps(found["tokens"])
    _, found = compared(tmp_path, state().data, state(other).data, "--show-tokens")
    assert found["tokens"]["ids"] == {"a": IDS[23], "b": 999}


def test_one_save_goes_on_where_the_other_ends(tmp_path: Path) -> None:
    _, found = compared(tmp_path, state().data, state(IDS[:25]).data, "--deep")
    assert (found["tokens"]["common"], found["tokens"]["divergent"]) == (25, None)
    assert found["sections"][0]["cells"]["matched"] == 25
    assert found["sections"][0]["cells"]["first_only_a"] == 25
    assert [(layer["cells"], layer["differ"]) for layer in layers(found)] == [(25, 0)] * 4
    assert not found["same_content"]
    shown = ran(tmp_path / "a.slot", tmp_path / "b.slot").output
    assert "A goes on with 15 more where B ends" in shown
    assert found["beginning"] == "b"
    assert "B is the beginning of A: all its tokens and cells are in A" in shown
    packed = state(IDS[:25])
    data = bytearray(packed.data)
    data[packed.mark("attn.streams[0].v[0].data").start + 9] ^= 1
    _, found = compared(tmp_path, bytes(data), state().data, "--deep")
    assert (found["beginning"], found["tokens"]["common"]) == (None, 25)


SHUFFLED = tuple(int(i) for i in np.random.default_rng(0).permutation(N))
FORMS: dict[str, dict[str, Any]] = {
    "version 4": {"version": 4},
    "values by channel": {"v_trans": 1},
    "three cell arrays": {"streams": 3},
    "cells in another order": {"order": SHUFFLED},
    "all of it": {"version": 4, "v_trans": 1, "streams": 2, "order": SHUFFLED},
}


@pytest.mark.parametrize("tile", [1 << 18, 32, 256])
@pytest.mark.parametrize("form", FORMS)
def test_the_same_numbers_in_another_form(
    tmp_path: Path, form: str, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff_numbers, "_TILE", tile)
    monkeypatch.setattr(diff_numbers, "_LINES_TILE", tile)
    one, two = state().data, state(**FORMS[form]).data
    for a, b in ((one, two), (two, one)):
        code, found = compared(tmp_path, a, b, "--deep")
        assert (code, found["identical"], found["same_content"]) == (1, False, True)
        assert [(layer["cells"], layer["differ"]) for layer in layers(found)] == [(N, 0)] * 4
        assert compared(tmp_path, a, b, "--tolerance", "0")[0] == 0
    assert found["sections"][0]["cells"]["reordered"] == ("order" in FORMS[form])
    shown = ran(tmp_path / "a.slot", tmp_path / "b.slot").output
    assert ("order of cells" in shown) == ("order" in FORMS[form])


@pytest.mark.parametrize("tile", [1 << 18, 64])
def test_errors_are_those_of_an_independent_computation(
    tmp_path: Path, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff_numbers, "_TILE", tile)
    monkeypatch.setattr(diff_numbers, "_LINES_TILE", tile)
    a, b = state(), state(order=SHUFFLED, v_trans=1)
    numbers = numbers_of(a.data, a, "k", 1)
    noise = np.random.default_rng(1).normal(0, 0.01, numbers.shape)
    noise[:7] = 0
    changed = (numbers + noise).astype("<f2")
    mark = b.mark("attn.streams[0].k[1].data")
    data = bytearray(b.data)
    data[mark.start : mark.stop] = changed[list(SHUFFLED)].tobytes()
    _, found = compared(tmp_path, a.data, bytes(data), "--deep")
    (layer,) = [layer for layer in layers(found) if layer["differ"]]
    error = np.abs(numbers - changed.astype(np.float64))
    assert layer["name"] == "k[1]"
    assert layer["max_error"] == pytest.approx(error.max(), rel=1e-6)
    assert layer["max_error_of_max"] == pytest.approx(error.max() / np.abs(numbers).max(), rel=1e-6)
    assert layer["rms"] == pytest.approx(np.sqrt((error**2).sum() / (numbers**2).sum()), rel=1e-4)
    assert layer["worst"] == error.max(axis=1).argmax()
    assert layer["first"] == np.flatnonzero(error.max(axis=1))[0]
    assert layer["differ"] == np.count_nonzero(error.max(axis=1))


def numbers_of(data: bytes, packed: Packed, side: str, layer: int) -> NDArray[np.float64]:
    mark = packed.mark(f"attn.streams[0].{side}[{layer}].data")
    return np.frombuffer(data[mark.start : mark.stop], "<f2").reshape(N, -1).astype(np.float64)


def q8_0(data: bytes) -> NDArray[np.float64]:
    blocks = np.frombuffer(data, np.dtype([("d", "<f2"), ("codes", "i1", 32)]))
    return blocks["d"].astype(np.float64)[:, None] * blocks["codes"]


def test_a_copy_in_another_type(tmp_path: Path) -> None:
    """Rows turned by the newest build, by nothing in the file: errors are those of turning back."""
    file, new = tmp_path / "a.slot", tmp_path / "b.slot"
    packed = state()
    file.write_bytes(packed.data)
    model = model_file(
        tmp_path / "m.gguf",
        "llama",
        {
            "block_count": LAYERS,
            "embedding_length": 2 * WIDTH,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "attention.key_length": 64,
            "attention.value_length": 64,
        },
    )
    words = "llama-server -c 512 -np 1 -fa on -ctk q8_0 -ctv q8_0"
    with (
        target_of(words, "b11549", model) as target,
        planned(file, target, Options(), new.name) as plan,
    ):
        carry_out(plan, new, force=False, progress=lambda n: None)
    result = ran(file, new, "--deep", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert not found["same_content"]
    data = new.read_bytes()
    sizes = 136 * N
    size = 64
    hadamard = np.array([[1.0]])
    while len(hadamard) < size:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    for index, layer in enumerate(layers(found)):
        old = numbers_of(packed.data, packed, "kv"[index // LAYERS], index % LAYERS)
        at = len(data) - (4 - index) * sizes - 12 * (3 - index)  # a type and a row size each
        assert struct.unpack_from("<iQ", data, at - 12) == (Q8_0, 136)
        stored = q8_0(data[at : at + sizes]).reshape(-1, size)
        back = (stored @ hadamard / np.sqrt(size)).reshape(N, -1)
        assert layer["max_error"] == pytest.approx(np.abs(old - back).max(), rel=1e-4)
        assert 0.001 < layer["rms"] < 0.02
    assert ran(file, new, "--tolerance", "0.02").exit_code == 0
    assert ran(file, new, "--tolerance", "0.0001").exit_code == 1


def test_rows_that_no_word_says_are_turned(tmp_path: Path) -> None:
    """Version 2 records no rotation: whether it is there shows where rows agree once undone."""
    row = Row(Q8_0, 136)

    def stored(matrix: NDArray[np.float64]) -> bytes:
        def written(part: str, layer: int, pos: int, size: int) -> bytes:
            numbers = np.frombuffer(values(part, layer, pos, 2 * WIDTH), "<f2").astype(float)
            blocks = (numbers.reshape(-1, 64) @ matrix).reshape(-1, 32)
            d = (np.abs(blocks).max(axis=1) / 127).astype("<f2")
            codes = np.rint(blocks / d[:, None].astype(float)).clip(-127, 127).astype("i1")
            return b"".join(d[i].tobytes() + codes[i].tobytes() for i in range(len(d)))

        cache = Cache((cells_of(Tokens(IDS)),), (row,) * LAYERS, (row,) * LAYERS)
        return pack(Slot(2, Tokens(IDS), Memory({"attn": cache})), written).data

    matrix = np.array([[1.0]])
    while len(matrix) < 64:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    plain, turned = stored(np.eye(64)), stored(matrix / 8)
    _, found = compared(tmp_path, plain, turned, "--deep")
    assert all(0 < layer["rms"] < 0.02 for layer in layers(found))
    assert "K: rotated in B by 64" in found["sections"][0]["notes"][0]
    odd = np.linalg.qr(np.random.default_rng(3).normal(size=(64, 64)))[0]
    _, found = compared(tmp_path, plain, stored(odd), "--deep")
    assert all(layer["why"] and layer["max_error"] == 0 for layer in layers(found))
    assert all(layer["differ"] == N for layer in layers(found))


@pytest.mark.parametrize("streams", [1, 2])
def test_a_sequence_among_several(tmp_path: Path, streams: int) -> None:
    """A slot and a whole context are compared by what is in both; cells may have two owners."""
    row = Row(F16, 2 * WIDTH)
    own = cells_of(Tokens(IDS))
    if streams == 1:
        shared = tuple(cell._replace(seq_ids=(0, 1) if cell.pos < 9 else (0,)) for cell in own)
        others = tuple(cell._replace(seq_ids=(1,)) for cell in own[9:20])
        arrays = ((*others, *shared),)
    else:
        arrays = (tuple(cell._replace(seq_ids=(1,)) for cell in own[:20]), own)
    cache = Cache(arrays, (row,) * LAYERS, (row,) * LAYERS)
    memory = Memory({"attn": cache}, Dialect(ids="all"))
    session = pack(Session(9, IDS, Context(b"llama", memory)), values).data
    slot = pack(
        Slot(2, Tokens(IDS), Memory({"attn": Cache((own,), (row,) * 2, (row,) * 2)})), values
    )
    for a, b in ((slot.data, session), (session, slot.data)):
        _, found = compared(tmp_path, a, b, "--deep")
        assert found["sections"][0]["cells"]["matched"] == N
        assert found["sections"][0]["cells"]["sequences_of_one"] == [1]
        assert [layer["differ"] for layer in layers(found)] == [0] * 4
        assert not found["same_content"]


def test_states_of_different_ends_have_nothing_to_compare(tmp_path: Path) -> None:
    def recurrent(pos: int) -> bytes:
        part = Recurrent((Cell(pos),), 1, (Row(0, 64),), (Row(0, 256),))
        return pack(Slot(2, Tokens(IDS[: pos + 1]), Memory({"recr": part})), values).data

    _, found = compared(tmp_path, recurrent(20), recurrent(24), "--deep")
    (section,) = found["sections"]
    assert (section["cells"]["matched"], section["layers"]) == (0, [])
    assert (section["cells"]["first_only_a"], section["cells"]["first_only_b"]) == (20, 24)


def test_what_is_not_finite(tmp_path: Path) -> None:
    packed = state()
    mark = packed.mark("attn.streams[0].k[0].data")
    both = bytearray(packed.data)
    both[mark.start + 10 : mark.start + 12] = struct.pack("<H", 0x7E00)
    one = bytearray(both)
    one[mark.start + 2 * WIDTH * 9 : mark.start + 2 * WIDTH * 9 + 2] = struct.pack("<H", 0x7C00)
    _, found = compared(tmp_path, bytes(both), bytes(one), "--deep")
    layer = layers(found)[0]
    assert (layer["differ"], layer["first"], layer["max_error"]) == (1, 9, 0)
    assert layer["non_finite"] == [1, 2]
    assert compared(tmp_path, bytes(both), bytes(one), "--tolerance", "9")[0] == 1
    assert "not finite: 1 numbers of A, 2 of B" in " ".join(
        ran(tmp_path / "a.slot", tmp_path / "b.slot", "--deep").output.split()
    )


def test_differences_beyond_f32(tmp_path: Path) -> None:
    def stored(number: float) -> bytes:
        cache = Cache((cells_of(Tokens(IDS)),), (Row(F32, 8),), (Row(F32, 8),))
        memory = Memory({"attn": cache})
        return pack(Slot(2, Tokens(IDS), memory), lambda *_: struct.pack("<2f", number, 1)).data

    _, found = compared(tmp_path, stored(3e38), stored(-3e38), "--deep")
    assert [(layer["differ"], layer["max_error"]) for layer in layers(found)] == [(N, None)] * 2
    assert "inf" in ran(tmp_path / "a.slot", tmp_path / "b.slot", "--deep").output


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.95])
def test_a_cut_file_and_its_backup(tmp_path: Path, share: float) -> None:
    data = state().data
    short = data[: int(share * len(data))]
    code, found = compared(tmp_path, data, short, "--deep")
    assert (code, found["identical"], found["first_difference"]) == (1, False, None)
    assert not any(layer["differ"] for layer in layers(found))
    assert not found["same_content"]
    shown = ran(tmp_path / "a.slot", tmp_path / "b.slot", "--deep").output
    assert "A begins with all bytes of B" in shown
    assert f"{len(data) - len(short):,} bytes more follow" in " ".join(shown.split())


def test_fields_are_named_with_both_values(tmp_path: Path) -> None:
    packed = state()
    mark = packed.mark("attn.streams[0].k[1].k_type")
    data = bytearray(packed.data)
    data[mark.start] = 30
    _, found = compared(tmp_path, packed.data, bytes(data))
    assert found["fields"] == [{"path": "attn.streams[0].k[1].k_type", "a": 1, "b": 30}]


def with_lists(folder: Path) -> tuple[Path, Path]:
    """Two copies of a state, each with its checkpoint list beside it."""
    name = "ggsq2.hybrid--with-pkcl1.slot"
    for side in ("a", "b"):
        (folder / side).mkdir()
        for suffix in ("", ".ckpt"):
            shutil.copyfile(SAMPLES / "intact" / (name + suffix), folder / side / (name + suffix))
    return folder / "a" / name, folder / "b" / name


def test_checkpoints_and_companions(tmp_path: Path) -> None:
    one, two = with_lists(tmp_path)
    assert ran(one, two).exit_code == 0
    beside = Path(f"{two}.ckpt")
    data = bytearray(beside.read_bytes())
    data[-3] ^= 1
    beside.write_bytes(data)
    result = ran(one, two, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["identical"]) == (1, True)
    assert [(c["suffix"], c["equal"]) for c in found["companions"]] == [(".ckpt", False)]
    result = ran(Path(f"{one}.ckpt"), beside, "--json", "--deep")
    found = json.loads(result.stdout)
    assert [c["equal"] for c in found["checkpoints"]].count(False) == 1
    (changed,) = [c for c in found["checkpoints"] if not c["equal"]]
    assert sum(layer["differ"] for part in changed["sections"] for layer in part["layers"]) == 1
    beside.unlink()
    assert "only beside A" in ran(one, two).output
    assert ran(one, two).exit_code == 1


def test_a_list_in_the_form_of_another_server(tmp_path: Path) -> None:
    name = "ggsq2.hybrid--with-pkcl1.slot.ckpt"
    one, two = tmp_path / "a" / name, tmp_path / "b.ckpt"
    one.parent.mkdir()
    shutil.copyfile(SAMPLES / "intact" / name, one)
    done = CliRunner().invoke(app, ["repair", str(one), "--to", "sckp1", "-o", str(two)])
    assert done.exit_code == 0, done.output
    result = ran(one, two, "--deep")
    assert (result.exit_code, "every checkpoint is equal" in result.output) == (1, True)
    assert ran(one, two, "--tolerance", "0").exit_code == 0
    data = bytearray(two.read_bytes())
    data[-9] ^= 1
    two.write_bytes(data)
    assert ran(one, two, "--tolerance", "0").exit_code == 1


def test_what_is_not_compared(tmp_path: Path) -> None:
    model = model_file(tmp_path / "m.gguf", "llama", {"block_count": 2})
    one = tmp_path / "a.slot"
    one.write_bytes(state().data)
    for pair in ((model, model), (one, model), (model, one)):
        result = ran(*pair)
        assert result.exit_code == 2
        assert "is a model" in result.output
    assert ran(one, tmp_path / "missing").exit_code == 2
    assert ran(one, tmp_path).exit_code == 2
    (tmp_path / "noise").write_bytes(bytes(range(7, 200)))
    (tmp_path / "empty").write_bytes(b"")
    assert ran(one, tmp_path / "noise", "--deep").exit_code == 1
    assert ran(tmp_path / "empty", tmp_path / "empty").exit_code == 0
    assert ran(tmp_path / "empty", one, "--deep").exit_code == 1


def test_counts_are_not_believed(tmp_path: Path) -> None:
    """Any word may say four billion: of rows that no cell explains, too."""
    name = SAMPLES / "intact" / "ik3--hybrid.slot"
    for data in (state().data, name.read_bytes()):
        for at in range(0, 240, 4):
            huge = data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :]
            compared(tmp_path, data, huge, "--deep")


def test_no_number_is_no_tolerance() -> None:
    file = str(SAMPLES / "intact/ggsq2.kv--twelve-tokens.slot")
    result = CliRunner().invoke(app, ["diff", file, file, "--tolerance", "nan"])
    assert result.exit_code == 2


def test_checkpoints_are_content(tmp_path: Path) -> None:
    """Equal states whose checkpoints are not hold not the same."""
    one, two = with_lists(tmp_path)
    beside = Path(f"{two}.ckpt")
    good = beside.read_bytes()
    beside.write_bytes(good[:-4] + struct.pack("<f", struct.unpack("<f", good[-4:])[0] * 1.001))
    assert [ran(one, two, "--tolerance", words).exit_code for words in ("0", "0.1")] == [1, 0]
    assert json.loads(ran(one, two, "--json", "--deep").stdout)["same_content"] is False
    for damaged in (good[:-1], b"\0" + good[1:]):
        beside.write_bytes(damaged)
        assert ran(one, two, "--tolerance", "0.1").exit_code == 1
    beside.unlink()
    assert ran(one, two, "--tolerance", "0").exit_code == 0


def test_checkpoints_in_the_file_are_content(tmp_path: Path) -> None:
    one = SAMPLES / "intact" / "ggsq4.hybrid--lfm2-b11549-checkpoints.slot"
    data = bytearray(one.read_bytes())
    with examined(one) as report:
        blob = report.checkpoints[0].record.data_tgt
    assert blob is not None
    data[blob.stop - 2] ^= 0x40
    two = tmp_path / "b.slot"
    two.write_bytes(data)
    result = ran(one, two, "--tolerance", "0")
    assert (result.exit_code, "they differ: checkpoints\n" in result.output) == (1, True)
    assert "is equal" not in ran(one, two, "--deep").output


def test_draft_blobs_are_content(tmp_path: Path) -> None:
    """Target blobs that hold the same do not speak for draft blobs that differ."""
    rows = (Row(F32, 64),) * 2
    memory = Memory({"recr": Recurrent((Cell(9),), 2, rows, rows)}, DIALECTS[""])
    record = checkpoint(memory, 10)
    for dft, name in ((b"one draft", "a"), (b"one draft", "b"), (b"other one", "c")):
        made = replace(record, dft=dft)
        packed = pack(CheckpointList("sckp1", (made,)), values)
        data = bytearray(packed.data)
        data[packed.mark("records[0].data_tgt.recr.blocks[0].data").start] ^= name == "a"
        (tmp_path / name).write_bytes(data)
    one, same, other = (tmp_path / name for name in "abc")
    assert ran(one, same, "--tolerance", "0").exit_code == 1
    assert ran(one, same, "--tolerance", "0.1").exit_code == 0
    assert ran(one, other, "--tolerance", "0.1").exit_code == 1
