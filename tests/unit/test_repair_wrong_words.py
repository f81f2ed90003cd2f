"""Wrong words: which of them a file, its lists, its seal or its model put right, and which none."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from inspector.cli.app import app
from inspector.node import find, walk
from inspector.report import examined
from tests.support.writer import (
    DIALECTS,
    F16,
    F32,
    Cache,
    Cell,
    CheckpointList,
    Memory,
    Recurrent,
    Row,
    Slot,
    Tokens,
    cells_of,
    checkpoint,
    pack,
)

ROOT = Path(__file__).resolve().parents[2]
INTACT, MODELS = ROOT / "samples/intact", ROOT / "tests/oracle/models"
CHECKPOINTS = "ggsq4.hybrid--lfm2-b11549-checkpoints.slot"
LFM2 = "ggsq2.hybrid--lfm2-b10229.slot"
MLA = "ggsq4.mla--deepseek2-b11549.slot"
DSA = "ggsq4.dsa--deepseek32-b11549.slot"
Q8_0 = "ggsq4.kv--llama-b11549-q8_0.slot"
LLAMA = "ggsq4.kv--llama-b11549-short.slot"
ISWA = "ggsq4.iswa--gemma3-b11549-checkpoints.slot"
SESSION = "ggsn9.kv--llama-b10229.slot"
OLD_SESSION = "ggsn5.hparams-b2440--llama-2024-04.slot"
IK_SESSION = "ik10.session--llama-plain.slot"
PKCL = "ggsq2.hybrid--with-pkcl1.slot"
ROTATED = "ggsq4.kv--llama-b11549-rotated.slot"
UNSIGNED = 0xFFFFFFFF


def ran(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def said(result: Result) -> str:
    return " ".join(result.output.split())


def copied(folder: Path, name: str) -> Path:
    for suffix in ("", ".ckpt"):
        if (INTACT / (name + suffix)).exists():
            shutil.copyfile(INTACT / (name + suffix), folder / f"slot.bin{suffix}")
    return folder / "slot.bin"


def change(path: Path, words: dict[str, int]) -> None:
    """Write other values into words of a file, by their paths in the file as it is."""
    data = bytearray(path.read_bytes())
    with examined(path) as report:
        for place, value in words.items():
            node = find(report.tree, place)
            assert node is not None, place
            data[node.span.start : node.span.start + 4] = (value % (1 << 32)).to_bytes(4, "little")
    path.write_bytes(data)


def damaged(folder: Path, name: str, words: dict[str, int]) -> Path:
    path = copied(folder, name)
    change(path, words)
    return path


def repaired(path: Path, *words: object) -> dict[str, Any]:
    """What is done, where a copy is written."""
    new = path.with_name("new.bin")
    document: dict[str, Any] = json.loads(ran("repair", path, "-o", new, "--json", *words).output)
    assert document["hindrance"] is None
    return document


def corrections(document: dict[str, Any]) -> list[str]:
    return [one["changes"] for one in document["actions"] if one["action"] == "correct-word"]


def served(model: str) -> tuple[object, ...]:
    return "--for", f"llama-server -m {MODELS / model} -c 512 -np 1", "--build", "b11549"


def is_refused(path: Path, *words: object) -> str:
    """What is said, and that no copy is written."""
    new = path.with_name("new.bin")
    result = ran("repair", path, "-o", new, *words)
    assert result.exit_code == 1
    assert not new.exists()
    return said(result)


# -- the number of layers of a recurrent state -----------------------------------------------------


@pytest.mark.parametrize("value", [0, 1, 9, UNSIGNED])
def test_checkpoints_say_how_many_layers_there_are(tmp_path: Path, value: int) -> None:
    path = damaged(tmp_path, CHECKPOINTS, {"recr.n_layer": value})
    document = repaired(path)
    assert corrections(document) == ["recr.n_layer: 4"]
    assert document["actions"][0]["why"] == f"recr.n_layer says {value:,}: its checkpoints say 4"
    assert [one["action"] for one in document["actions"]] == ["correct-word"]
    assert path.with_name("new.bin").read_bytes() == (INTACT / CHECKPOINTS).read_bytes()


@pytest.mark.parametrize("value", [0, 1, UNSIGNED])
def test_without_a_witness_no_number_of_layers_is_written(tmp_path: Path, value: int) -> None:
    path = damaged(tmp_path, LFM2, {"recr.n_layer": value})
    assert f"recr.n_layer says {value:,}, and with several other values" in is_refused(path)
    with examined(path) as report:
        assert report.identification.mend is None
        (flag,) = (one for one in report.findings if one.code == "layout.flag")
    assert "any that is large enough" in flag.message
    model = ("--model", MODELS / "lfm2.gguf", "--build", "b10229")
    document = repaired(path, *model)
    assert corrections(document) == ["recr.n_layer: 4"]
    assert path.with_name("new.bin").read_bytes() == (INTACT / LFM2).read_bytes()


@pytest.mark.parametrize("value", [0, 1, UNSIGNED])
def test_a_seal_tells_the_number_of_layers(tmp_path: Path, value: int) -> None:
    path = copied(tmp_path, LFM2)
    assert ran("seal", path).exit_code == 0
    change(path, {"recr.n_layer": value})
    assert corrections(repaired(path)) == ["recr.n_layer: 4"]
    assert path.with_name("new.bin").read_bytes() == (INTACT / LFM2).read_bytes()


def test_a_model_of_recurrent_layers_alone_has_a_state_for_each(tmp_path: Path) -> None:
    for value in (0, 1, UNSIGNED):
        path = damaged(tmp_path, "ggsq3.recurrent--mamba-b10809.slot", {"recr.n_layer": value})
        repaired(path, "--force")
        sample = INTACT / "ggsq3.recurrent--mamba-b10809.slot"
        assert path.with_name("new.bin").read_bytes() == sample.read_bytes()


def test_words_are_corrected_before_checkpoints_are_judged(tmp_path: Path) -> None:
    path = damaged(tmp_path, CHECKPOINTS, {"recr.n_layer": 9})
    document = repaired(path, *served("lfm2.gguf"))
    assert [one["action"] for one in document["actions"]] == ["correct-word"]
    assert path.with_name("new.bin").read_bytes() == (INTACT / CHECKPOINTS).read_bytes()


def test_a_list_of_another_save_says_nothing(tmp_path: Path) -> None:
    path = copied(tmp_path, PKCL)
    beside = path.with_name("slot.bin.ckpt")
    with examined(beside) as report:
        words = [node.span for at, node in walk(report.tree) if at.endswith("recr.n_layer")]
    data = bytearray(beside.read_bytes())
    for span in words:
        data[span.start] += 1
    beside.write_bytes(data)
    assert corrections(repaired(path)) == ["recr.n_layer: 4"]
    stamp = path.stat().st_mtime_ns - 3600 * 10**9
    os.utime(beside, ns=(stamp, stamp))
    with examined(path) as report:
        assert "sidecar.stale" in {one.code for one in report.findings}
    assert corrections(repaired(path, "--force")) == []


# -- flags and rotations that can have several values ----------------------------------------------


def test_without_values_both_orders_of_them_fit(tmp_path: Path) -> None:
    path = damaged(tmp_path, MLA, {"attn.streams[0].v_trans": 4})
    for words in ((), ("--model", MODELS / "deepseek2-mla.gguf", "--build", "b11549")):
        assert "(0, 1): name the server with --for" in is_refused(path, *words)
    assert corrections(repaired(path, *served("deepseek2-mla.gguf"))) == [
        "attn.streams[0].v_trans: 0"
    ]
    assert path.with_name("new.bin").read_bytes() == (INTACT / MLA).read_bytes()


@pytest.mark.parametrize("member", ["mla", "lid"])
def test_another_cache_of_the_file_tells_the_order_of_values(tmp_path: Path, member: str) -> None:
    path = damaged(tmp_path, DSA, {f"{member}.streams[0].v_trans": 3})
    assert corrections(repaired(path)) == [f"{member}.streams[0].v_trans: 0"]
    assert path.with_name("new.bin").read_bytes() == (INTACT / DSA).read_bytes()


def test_a_rotation_that_can_be_is_not_guessed(tmp_path: Path) -> None:
    path = damaged(tmp_path, DSA, {"lid.streams[0].n_rot_k": 1})
    assert "lid.streams[0].n_rot_k says 1, and with several other values" in is_refused(path)


def test_no_row_is_rotated_by_more_than_it_has(tmp_path: Path) -> None:
    path = damaged(tmp_path, Q8_0, {"attn.streams[0].n_rot_k": 256})
    found = is_refused(path)
    assert "n_rot_k says 256" in found
    assert "(0, 64)" in found
    assert corrections(
        repaired(
            path,
            "--for",
            f"llama-server -m {MODELS / 'llama-gqa.gguf'} -c 512 -np 1 -ctk q8_0 -ctv q8_0",
            "--build",
            "b11549",
        )
    ) == ["attn.streams[0].n_rot_k: 0"]
    assert path.with_name("new.bin").read_bytes() == (INTACT / Q8_0).read_bytes()


# -- keys and values that pass for other keys ------------------------------------------------------


def test_values_that_pass_for_keys_of_a_model_with_latent_attention(tmp_path: Path) -> None:
    place = "attn.streams[0].n_layer"
    with examined(INTACT / LLAMA) as report:
        node = find(report.tree, place)
    assert node is not None
    n = int(str(node.value))
    path = damaged(tmp_path, LLAMA, {place: 2 * n})
    assert corrections(repaired(path, *served("llama-gqa.gguf"))) == [f"{place}: {n}"]
    assert path.with_name("new.bin").read_bytes() == (INTACT / LLAMA).read_bytes()


def test_of_two_words_that_can_be_wrong_none_is_written(tmp_path: Path) -> None:
    place = "swa.streams[0].n_layer"
    path = damaged(tmp_path, ISWA, {place: 10})
    assert "or 5 as swa.streams[0].n_layer" in is_refused(path)
    document = repaired(path, *served("gemma3-iswa.gguf"))
    assert corrections(document) == [f"{place}: 5"]


# -- cells, tokens, lists --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        (SESSION, "attn.streams[0].cells"),
        (IK_SESSION, "attn.cells"),
    ],
)
@pytest.mark.parametrize("value", [0, 2, UNSIGNED])
def test_a_cell_of_one_sequence_says_another_number(
    tmp_path: Path, name: str, cells: str, value: int
) -> None:
    path = damaged(tmp_path, name, {f"{cells}[5].n_seq_id": value})
    assert corrections(repaired(path)) == [
        f"{cells}[5].n_seq_id: 1, with which all the rest of the file agrees"
    ]
    assert path.with_name("new.bin").read_bytes() == (INTACT / name).read_bytes()


@pytest.mark.parametrize("value", [0, 77, -2])
def test_the_frame_of_packed_tokens_shows_its_marker(tmp_path: Path, value: int) -> None:
    path = damaged(tmp_path, CHECKPOINTS, {"tokens.marker": value})
    (changes,) = corrections(repaired(path, *served("lfm2.gguf")))
    assert changes.startswith("tokens.marker: -1")
    assert path.with_name("new.bin").read_bytes() == (INTACT / CHECKPOINTS).read_bytes()


def test_plain_tokens_are_not_taken_for_packed_ones() -> None:
    for name in (LFM2, "ggsq2.kv--llama-b10229-short.slot"):
        with examined(INTACT / name) as report:
            assert report.tokens is not None
            assert report.tokens.packing == "plain"
            assert report.identification.mend is None


def test_a_list_whose_count_hides_it_is_kept(tmp_path: Path) -> None:
    path = copied(tmp_path, PKCL)
    beside = path.with_name("slot.bin.ckpt")
    data = bytearray(beside.read_bytes())
    intact, data[8:12] = bytes(data), bytes(4)
    beside.write_bytes(data)
    document = repaired(path)
    assert [one["action"] for one in document["actions"]] == ["correct-word"]
    assert path.with_name("new.bin.ckpt").read_bytes() == intact
    skipped = ran("repair", path, "-o", tmp_path / "other.bin", "--skip", "correct-word")
    assert skipped.exit_code == 1
    assert "bytes behind its number of checkpoints; needs --allow-loss" in said(skipped)


def test_only_words_of_a_kind_that_was_tried_are_called_so(tmp_path: Path) -> None:
    path = damaged(tmp_path, LLAMA, {"attn.streams[0].cell_count": 1})
    assert repaired(path)["actions"][0]["proven_on"] == "b10229 and b11549"
    path = damaged(tmp_path, DSA, {"mla.streams[0].v_trans": 3})
    assert repaired(path, "--force")["actions"][0]["proven_on"] == ""


def test_one_checkpoint_against_its_state(tmp_path: Path) -> None:
    """Layers can have rows of both kinds: then two numbers are as likely."""
    rows = (Row(F16, 16),) * 3
    states = (Row(F32, 32),) * 3, (Row(F32, 64),) * 3
    tokens = Tokens(tuple(range(100, 112)))

    def state(n: int, n_layer: int) -> Memory:
        cells = (cells_of(Tokens(tokens.ids[:n])),)
        recurrent = Recurrent((Cell(n - 1),), n_layer, *states)
        attention = Cache(cells, k=rows, v=rows)
        return Memory({"attn": attention, "recr": recurrent}, DIALECTS["rotated"])

    path = tmp_path / "slot.bin"
    listed = pack(CheckpointList("sckp1", (checkpoint(state(8, 3), 8),))).data
    path.write_bytes(pack(Slot(4, tokens, state(12, 6))).data + listed)
    found = is_refused(path)
    assert "recr.n_layer says 6, its checkpoint 3, and both can be right" in found
    path.write_bytes(pack(Slot(4, tokens, state(12, 8))).data + listed)
    document = repaired(path)
    assert [one["changes"] for one in document["actions"]] == ["recr.n_layer: 3"]
    intact = pack(Slot(4, tokens, state(12, 3))).data + listed
    assert path.with_name("new.bin").read_bytes() == intact
