"""`slotscope tokens`: ids, text and requests, out of whole files and out of wrecks."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.report import examined
from inspector.salvage import Media, TokenList, token_list
from tests.support.damage import at_random
from tests.support.strategies import Specimen, specimens
from tests.support.writer import ik_tokens
from tests.unit.test_cli import ESCAPE, INTACT, SAMPLES, on_terminal, slotscope, started
from tests.unit.test_foreign import FILES

MODEL = Path(__file__).parents[1] / "oracle" / "models" / "llama-gqa.gguf"
PLAIN = SAMPLES / "intact" / "ggsq2.kv--twelve-tokens.slot"
PACKED = SAMPLES / "intact" / "ggsq4.kv--twelve-tokens.slot"
MEDIA = SAMPLES / "intact" / "ggsq4.kv.xyt--an-image-and-audio.slot"
REAL = SAMPLES / "intact" / "ggsq4.kv--llama-b11549-short.slot"
SIDECAR = SAMPLES / "intact" / "ggsq2.hybrid--with-pkcl1.slot.ckpt"
IDS = [1, 15043, 3186, 29892, 306, 626, 263, 4802, 3699, 310, 1426, 29889]
COUNT_AT = 8

Write = Callable[[bytes], Path]


def found(path: Path) -> TokenList:
    with examined(path) as report:
        listed = token_list(report)
        assert listed.tokens.count == len(listed.tokens.ids)
        return listed


def ids(path: Path) -> list[int]:
    return [int(one) for one in found(path).tokens.ids]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of some bytes."""

    def to_file(data: bytes) -> Path:
        path = tmp_path / "a.slot"
        path.write_bytes(data)
        return path

    return to_file


def with_word(data: bytes, offset: int, word: int) -> bytes:
    return data[:offset] + struct.pack("<I", word) + data[offset + 4 :]


# -- whole files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", INTACT, ids=lambda path: path.stem)
def test_intact_samples_have_what_inspect_counts(path: Path) -> None:
    with examined(path) as report:
        listed = token_list(report)
        count = report.tokens.count if report.tokens is not None else 0
        assert len(listed.tokens.ids) == count
        assert bool(listed.why) == (count == 0)
        assert sum(one.n_tokens for one in listed.media) == int((listed.tokens.ids == -1).sum())


@pytest.mark.parametrize("path", [PLAIN, PACKED], ids=lambda path: path.stem)
def test_ids_are_one_json_array(path: Path) -> None:
    result = slotscope("tokens", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == json.dumps(IDS) + "\n"


def test_check_takes_them(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.json"
    prompt.write_text(slotscope("tokens", PACKED).stdout)
    result = slotscope("check", "--json", PACKED, "--next-tokens", prompt)
    (reuse,) = json.loads(result.stdout)["reuse"]
    assert (reuse["shared"], reuse["total"]) == (12, 12)


def test_json() -> None:
    document = json.loads(slotscope("tokens", "--json", MEDIA).stdout)
    assert document["schema"] == "slotscope.tokens/1"
    assert document["file"] == {
        "name": MEDIA.name,
        "path": str(MEDIA),
        "bytes": MEDIA.stat().st_size,
    }
    assert (document["count"], document["missing"], document["packing"]) == (21, 0, "packed")
    assert [(one["start"], one["n_tokens"], one["kind"]) for one in document["media"]] == [
        (2, 6, "image"),
        (10, 3, "audio"),
    ]
    assert all(one["id"] for one in document["media"])
    assert [one for one in document["ids"] if one != -1] == IDS
    assert "text" not in document
    inspected = json.loads(slotscope("inspect", "--json", MEDIA).stdout)
    assert document["digest"] == inspected["tokens"]["digest"]


@pytest.mark.parametrize("name", ["ses1", "lcpc1", "kvc1"])
def test_states_of_other_programs(write: Write, name: str) -> None:
    assert ids(write(FILES[name])) == IDS[:3]


def test_companions_of_ik_llama_cpp(tmp_path: Path) -> None:
    path = tmp_path / "s.tokens.json"
    path.write_bytes(ik_tokens([1, -1, -1, 7]))
    assert ids(path) == [1, -1, -1, 7]
    assert found(path).media == (Media(1, 2),)


# -- wrecks ----------------------------------------------------------------------------------------


def test_a_cut_payload_keeps_the_list() -> None:
    path = SAMPLES / "damaged" / "ggsq2.kv--file.truncated.slot"
    result = slotscope("tokens", path)
    assert (result.exit_code, json.loads(result.stdout)) == (0, IDS)
    assert "12 token ids, all there; the file has file.truncated" in result.stderr


@pytest.mark.parametrize(("path", "first"), [(PLAIN, 12), (PACKED, 24), (MEDIA, 24)])
def test_cut_in_the_list(write: Write, path: Path, first: int) -> None:
    data, whole = path.read_bytes(), ids(path)
    for size in range(COUNT_AT, first + 4 * len(whole)):
        listed, there = found(write(data[:size])), max(0, size - first) // 4
        assert listed.tokens.ids.tolist() == whole[:there]
        assert listed.missing == (len(whole) - there if there else None)
        assert listed.why
    listed = found(write(data[: first + 4 * len(whole)]))
    assert (listed.tokens.ids.tolist(), listed.missing, listed.why) == (whole, 0, "")


def test_how_many_are_missing_is_said(write: Write) -> None:
    result = slotscope("tokens", write(PLAIN.read_bytes()[:33]))
    assert (result.exit_code, json.loads(result.stdout)) == (1, IDS[:5])
    assert "it ends inside its token list: 7 of 12 ids are missing" in result.stderr


@pytest.mark.parametrize("name", ["ggsq2.kv--tokens.negative", "ggsq3.kv--tokens.packed-negative"])
def test_ids_that_no_token_has_cannot_be_trusted(name: str) -> None:
    result = slotscope("tokens", SAMPLES / "damaged" / f"{name}.slot")
    assert result.exit_code == 1
    assert min(json.loads(result.stdout)) < 0
    assert "negative" in result.stderr


@pytest.mark.parametrize("count", [13, 200, 1 << 20, (1 << 32) - 1])
def test_another_count_makes_the_file_whole(write: Write, count: int) -> None:
    listed = found(write(with_word(PLAIN.read_bytes(), COUNT_AT, count)))
    assert (listed.tokens.ids.tolist(), listed.missing) == (IDS, 0)
    assert "n_token_count is damaged" in listed.why


@pytest.mark.parametrize("count", [17, 1 << 20, (1 << 32) - 1])
def test_a_packed_list_counts_itself(write: Write, count: int) -> None:
    assert ids(write(with_word(PACKED.read_bytes(), COUNT_AT, count))) == IDS


@pytest.mark.parametrize("count", [13, 1 << 20, (1 << 32) - 1])
def test_the_frame_of_a_packed_list_counts_too(write: Write, count: int) -> None:
    listed = found(write(with_word(PACKED.read_bytes(), 20, count)))
    assert (listed.tokens.ids.tolist(), listed.missing) == (IDS, 0)
    assert "is damaged" in listed.why


def test_where_a_list_ends_may_not_be_known(write: Write) -> None:
    listed = found(write(with_word(PLAIN.read_bytes(), COUNT_AT, 1 << 31)[:-1]))
    assert listed.tokens.ids.tolist()[:12] == IDS
    assert listed.missing is None
    assert "where the list ends is not known" in listed.why


def test_a_list_of_which_neither_count_nor_end_is_left(write: Write) -> None:
    listed = found(write(with_word(PLAIN.read_bytes(), COUNT_AT, (1 << 32) - 1)[:32]))
    assert listed.tokens.ids.tolist() == IDS[:5]
    assert listed.missing is None
    assert "its token count is damaged (4,294,967,295)" in listed.why


@given(specimen=specimens("ggsq4.kv.xyt"), seed=st.integers(0, 1 << 30))
def test_any_damage(
    specimen: Specimen, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("damaged") / "a.slot"
    file.write_bytes(at_random(specimen.packed, seed).data)
    for words in (("--json",), ("--request",), ("--model", MODEL)):
        result = slotscope("tokens", file, *words)
        assert result.exit_code in (0, 1), result.exception
        assert result.exit_code == 0 or result.stderr


@pytest.mark.parametrize("size", range(45, len(ik_tokens(IDS))))
def test_cut_json_keeps_the_whole_numbers(tmp_path: Path, size: int) -> None:
    text = ik_tokens(IDS)
    first = text.index(b"[1,15043") + 1
    path = tmp_path / "s.tokens.json"
    path.write_bytes(text[:size])
    listed = found(path)
    there = listed.tokens.ids.tolist()
    assert there == (IDS if b"]" in text[first:size] else IDS[: text[first:size].count(b",")])
    assert listed.missing is None
    assert listed.why


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (MODEL, "it has no token list (model file, version 3)"),
        (SIDECAR, "the state it belongs to lies beside it: ggsq2.hybrid--with-pkcl1.slot"),
        (SAMPLES / "intact" / "ggsq2.kv--empty.slot", "its token list is empty"),
        (Path(__file__), "nothing is known of this file"),
    ],
)
def test_files_without_tokens(path: Path, says: str) -> None:
    result = slotscope("tokens", path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert json.loads(slotscope("tokens", path, "--json").stdout)["ids"] == []


def test_a_companion_that_has_them_is_named(tmp_path: Path) -> None:
    source = SAMPLES / "intact" / "ik4--llama-server.slot"
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes()[:20])
    shutil.copy(f"{source}.tokens.json", tmp_path)
    assert "ik4--llama-server.slot.tokens.json beside it has" in found(path).why


# -- requests --------------------------------------------------------------------------------------


def test_a_request_begins_with_exactly_the_saved_ids() -> None:
    result = slotscope("tokens", PACKED, "--request", "--slot", "3", "--text", " and\n“so”")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "prompt": [*IDS, " and\n“so”"],
        "id_slot": 3,
        "cache_prompt": True,
    }


def test_a_request_of_saved_ids_alone_says_what_is_wanting() -> None:
    result = slotscope("tokens", PACKED, "--request")
    assert (result.exit_code, json.loads(result.stdout)["prompt"]) == (0, IDS)
    assert "add at least one id or a text" in result.stderr


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (MEDIA, "only the first 2 of 21 are text"),
        (SAMPLES / "damaged" / "ggsq2.kv--tokens.negative.slot", "only the first 1 of 12"),
        (SAMPLES / "intact" / "ggsq2.kv--empty.slot", "its token list is empty"),
    ],
)
def test_requests_that_cannot_be(path: Path, says: str) -> None:
    result = slotscope("tokens", path, "--request", "--text", "x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert says in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("missing.slot",),
        (SAMPLES,),
        (PLAIN, "--model", "missing.gguf"),
        (PLAIN, "--model", PLAIN),
        (PLAIN, "--request", "--json"),
        (PLAIN, "--request", "--model", MODEL),
        (PLAIN, "--text", "x"),
        (PLAIN, "--slot", "1"),
        (PLAIN, "--request", "--slot", "-1"),
        (),
    ],
)
def test_wrong_usage(words: tuple[str | Path, ...]) -> None:
    result = slotscope("tokens", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


# -- text ------------------------------------------------------------------------------------------


def test_text_is_printed_as_it_is() -> None:
    result = slotscope("tokens", REAL, "--model", MODEL)
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(slotscope("tokens", REAL, "--model", MODEL, "--json").stdout)
    assert result.stdout == document["text"]
    assert document["text"].startswith("<s>")
    assert not document["text"].endswith("\n")


def test_media_and_ids_of_another_model_are_shown() -> None:
    result = slotscope("tokens", MEDIA, "--model", MODEL)
    assert result.exit_code == 0
    assert result.stdout.startswith("<s><15043><image><3186><29892><audio>it")
    assert "the model does not fit: 8 ids are beyond its 464 tokens" in result.stderr


CONTROLS = (1, 3 + 0x1B, 3 + ord("["), 3 + 0x0A, 3 + 0x0D, 3 + ord("x"))


@pytest.fixture
def controls(tmp_path: Path) -> Path:
    """A state whose text would move a cursor."""
    path = tmp_path / "s.tokens.json"
    path.write_bytes(ik_tokens(CONTROLS))
    return path


def test_a_pipe_gets_control_characters(controls: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C"}
    words = ("tokens", controls, "--model", MODEL)
    process = started(*words, stdout=subprocess.PIPE, env=environment)
    assert process.communicate()[0] == b"<s>\x1b[\n\rx"


def test_a_terminal_does_not(controls: Path) -> None:
    shown = on_terminal(80, "tokens", controls, "--model", MODEL)
    assert shown == "<s>\\x1b[\n\\rx\n"
    assert ESCAPE not in shown


def test_a_reader_that_leaves_early() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for words in ((), ("--model", MODEL), ("--json",)):
        process = started("tokens", REAL, *words, stdout=writer)
        _, complaints = process.communicate()
        assert (process.returncode, complaints) == (0, b"")
    os.close(writer)
