"""Repairs of files with more than one fault left work to the next repair, or bytes out."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from inspector.node import Rows, walk
from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.repair.state import Refused
from inspector.report import examined
from inspector.server.target import target_of
from samples.make import HERE as SAMPLES

MODELS = Path(__file__).parents[1] / "oracle/models"
NONE_KNOWN = struct.pack("<I", 77)


def changed(name: str, path: Path, *words: tuple[int, bytes]) -> Path:
    """A copy of a sample in which some bytes say something else."""
    data = bytearray((SAMPLES / name).read_bytes())
    for offset, word in words:
        data[offset : offset + len(word)] = word
    path.write_bytes(data)
    return path


def steps_of(path: Path, new: Path, build: str | None = None) -> list[str]:
    """The actions of a repair, which is written to `new`."""
    with target_of(None, build) as target:
        asked = target if build is not None else None
        with planned(path, asked, Options(), new.name) as plan:
            (output,) = plan.outputs
            new.write_bytes(output.content.read_at(0, output.content.size))
            return [step.action for step in plan.steps]


def test_two_wrong_words(tmp_path: Path) -> None:
    name = "damaged/ggsq4.hybrid--appendix.magic.slot"
    path = changed(name, tmp_path / "a.slot", (0x28C, NONE_KNOWN))
    new = tmp_path / "b.slot"
    assert steps_of(path, new) == ["correct-word", "correct-word"]
    assert steps_of(new, tmp_path / "c.slot") == []


def test_a_count_that_takes_the_next_word_for_a_token(tmp_path: Path) -> None:
    """One stream behind the tokens reads as a token 1 of a layout without streams."""
    name = "intact/ggsq2.kv--llama-b10229-short.slot"
    path = changed(name, tmp_path / "a.slot", (8, struct.pack("<I", 6)))
    new = tmp_path / "b.slot"
    assert steps_of(path, new) == ["correct-word"]
    assert new.read_bytes() == (SAMPLES / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("ggsq1.kv--llama-2024-06.slot", "n_token_count"),
        ("ggsn9.hybrid--lfm2-b10229-two-sequences.slot", "n_token_count"),
        ("ggsn9.hybrid--lfm2-b10229-two-sequences.slot", "attn.streams[0].cell_count"),
        ("ggsq2.recurrent--mamba2-b10229.slot", "recr.n_layer"),
        ("ggsq4.hybrid--lfm2-b11549-checkpoints.slot", "recr.n_layer"),
    ],
)
@pytest.mark.parametrize("by", [-1, 1])
def test_a_count_in_files_that_are_not_taken_apart(
    name: str, word: str, by: int, tmp_path: Path
) -> None:
    """Of version 1, or of several sequences; or one that only other words contradict."""
    original = SAMPLES / "intact" / name
    with examined(original) as report:
        assert report.identification.root is not None
        node = dict(walk(report.identification.root))[word]
    assert isinstance(node.value, int)
    value = (node.value + by).to_bytes(len(node.span), "little")
    path = changed(f"intact/{name}", tmp_path / "a.slot", (node.span.start, value))
    new = tmp_path / "b.slot"
    assert steps_of(path, new) == ["correct-word"]
    assert new.read_bytes() == original.read_bytes()


def test_the_slot_that_made_a_checkpoint_stays(tmp_path: Path) -> None:
    """Its number stands in front of the blob; nothing was to be repaired, and it was made 0."""
    name = "intact/ggsq4.hybrid--lfm2-b11549-checkpoints.slot"
    data = (SAMPLES / name).read_bytes()
    words = [(m.end(), struct.pack("<I", 3)) for m in re.finditer(b"\xd8\x3c\x14\xaf", data)]
    path = changed(name, tmp_path / "a.slot", *words)
    new = tmp_path / "b.slot"
    assert words
    assert steps_of(path, new) == []
    assert new.read_bytes() == path.read_bytes()


def test_a_blob_of_a_list_that_nothing_explains(tmp_path: Path) -> None:
    name = "damaged/pkcl1--sidecar.orphan.slot"
    path = changed(name, tmp_path / "a.slot", (0x44, struct.pack("<i", -1)))
    new = tmp_path / "b.slot"
    assert steps_of(path, new, "turboquant@b9079") == ["convert-checkpoints"]
    assert steps_of(new, tmp_path / "c.slot", "turboquant@b9079") == []


@pytest.mark.parametrize("size", [0, 40, 4000])
def test_a_media_chunk_that_is_cut(size: int, tmp_path: Path) -> None:
    data = (SAMPLES / "intact/ggsq2.kv--an-image.slot").read_bytes()
    chunk = data.index(struct.pack("<QI", 1, 1))
    word = (chunk - 4, struct.pack("<I", size))
    path = changed("intact/ggsq2.kv--an-image.slot", tmp_path / "a.slot", word)
    with pytest.raises(Refused, match="token field"), planned(path, None, Options(), "new"):
        pass


def test_a_window_beside_layers_of_other_positions(tmp_path: Path) -> None:
    """An anchor is no use there, and would get another one in front."""
    name, first, stride = "intact/ggsq3.dsa-iswa--twelve-tokens.slot", 84, 12
    later = [(first + stride * n, struct.pack("<I", n + 1)) for n in range(12)]
    path, new = changed(name, tmp_path / "a.slot", *later), tmp_path / "b.slot"
    assert steps_of(path, new, "b10229") == ["restamp", "unpack-tokens"]
    assert steps_of(new, tmp_path / "c.slot", "b10229") == []


def test_a_word_of_a_state_with_checkpoints_behind_it(tmp_path: Path) -> None:
    """It was put right without a word."""
    sample = "intact/ggsq4.hybrid--two-checkpoints.slot"
    with examined(SAMPLES / sample) as report:
        (cells,) = [part.tables[0] for part in report.sections if part.path == "recr"]
        at = cells.span.start + 4
    path = changed(sample, tmp_path / "a.slot", (at, struct.pack("<I", 1)))
    assert steps_of(path, tmp_path / "b.slot") == ["correct-word"]


def test_zeros_at_the_end_of_a_checkpoint(tmp_path: Path) -> None:
    """They were called bytes behind its state, and cut off."""
    path, new = tmp_path / "a.slot", tmp_path / "b.slot"
    data = (SAMPLES / "intact/ggsq4.iswa--two-checkpoints.slot").read_bytes()
    path.write_bytes(data[:-200] + bytes(200))
    assert steps_of(path, new) == ["drop-checkpoints"]


CELLS = "attn.streams[0].cells"


@pytest.mark.parametrize(
    ("name", "table", "row", "column", "value"),
    [
        ("ggsq2.kv--llama-b10229-short.slot", CELLS, 3, "pos", 2),
        ("ggsq2.kv--llama-b10229-short.slot", CELLS, 4, "pos", -7),
        ("ggsq4.kv--llama-b11549-short.slot", CELLS, 0, "pos", 1),
        ("ggsq4.kv--llama-b11549-short.slot", CELLS, 2, "seq_id", 1),
        ("ggsq4.iswa--twelve-tokens.slot", "swa.streams[0].cells", 2, "pos", 8),
    ],
)
def test_a_cell_out_of_place(
    name: str, table: str, row: int, column: str, value: int, tmp_path: Path
) -> None:
    """All other cells are in a row; whose sequence it is, a slot file need not say."""
    original = SAMPLES / "intact" / name
    with examined(original) as report:
        assert report.identification.root is not None
        rows = dict(walk(report.identification.root))[table].value
        assert isinstance(rows, Rows)
        at = rows.field_span(row, column).start
    path = changed(f"intact/{name}", tmp_path / "a.slot", (at, struct.pack("<i", value)))
    new = tmp_path / "b.slot"
    assert steps_of(path, new) == ["correct-word"]
    assert new.read_bytes() == original.read_bytes()


def test_a_cell_behind_all_others_is_no_error(tmp_path: Path) -> None:
    """It can be in the place of a token that was removed."""
    name = "intact/ggsq2.kv--llama-b10229-short.slot"
    path = changed(name, tmp_path / "a.slot", (0x28 + 2 * 12, struct.pack("<i", 5)))
    with examined(path) as report:
        assert report.sections[0].pos.tolist() == [0, 1, 5, 3, 4]
    assert steps_of(path, tmp_path / "b.slot") == []


@pytest.mark.parametrize("build", ["b10229", "b11549"])
@pytest.mark.parametrize(
    ("name", "model", "word", "value"),
    [
        ("ggsq3.recurrent--mamba-b10809.slot", "mamba", "recr.cells", 0),
        ("ggsq4.hybrid--lfm2-b11549-checkpoints.slot", "lfm2", "recr.cells", 1),
        ("ggsq4.kv--llama-b11549-short.slot", "llama-gqa", "attn.streams[0].n_rot_k", 32),
        ("ggsq4.kv--llama-b11549-q8_0.slot", "llama-gqa", "attn.streams[0].n_rot_v", 32),
    ],
)
def test_a_word_that_the_model_tells(
    name: str, model: str, word: str, value: int, build: str, tmp_path: Path
) -> None:
    """Where a recurrent state stands; whether rows are rotated, which was undone before."""
    original = SAMPLES / "intact" / name
    with examined(original) as report:
        assert report.identification.root is not None
        at = dict(walk(report.identification.root))[word].span.start
    path = changed(f"intact/{name}", tmp_path / "a.slot", (at, struct.pack("<i", value)))
    types = "-ctk q8_0 -ctv q8_0" if "q8_0" in name else ""
    words = f"llama-server -m {MODELS / model}.gguf -c 512 -np 1 -fa on {types}"
    with target_of(words, build) as target:
        with planned(original, target, Options(), "new.slot") as plan:
            expected, steps = plan.outputs[0].content, [step.action for step in plan.steps]
            sound = expected.read_at(0, expected.size)
        with planned(path, target, Options(), "new.slot") as plan:
            content = plan.outputs[0].content
            assert [step.action for step in plan.steps] == ["correct-word", *steps]
            assert content.read_at(0, content.size) == sound


def test_a_state_at_the_end_of_the_tokens_stays_there(tmp_path: Path) -> None:
    """The attention cache ends elsewhere: the word that the model tells is the one in the file."""
    name = "intact/ggsq2.hybrid--lfm2-b10229.slot"
    with examined(SAMPLES / name) as report:
        assert report.identification.root is not None
        rows = dict(walk(report.identification.root))[CELLS].value
        assert isinstance(rows, Rows)
        at = rows.field_span(len(rows) - 1, "pos").start
    path = changed(name, tmp_path / "a.slot", (at, struct.pack("<i", 30)))
    words = f"llama-server -m {MODELS / 'lfm2'}.gguf -c 512 -np 1 -fa on"
    with (
        target_of(words, "b10229") as target,
        planned(path, target, Options(), "new.slot") as plan,
    ):
        assert "correct-word" not in [step.action for step in plan.steps]
        assert "recurrent.pos-mismatch" in plan.staying
