"""Token ids to text, as llama.cpp's vocabularies have it."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.model.gguf import ModelFile, read_model
from inspector.model.vocabulary import (
    BYTE,
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    _byte_alphabet,
    vocabulary_of,
)
from inspector.source import opened

MODELS = Path(__file__).parents[1] / "oracle" / "models"
_STRING, _ARRAY, _I32 = 8, 9, 5
NORMAL = 1


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def model_file(path: Path, kind: str | None, pieces: list[str], types: list[int]) -> Path:
    """A model of nothing but a vocabulary, packed without the project's declarations."""
    keys = [text("general.architecture") + struct.pack("<I", _STRING) + text("llama")]
    if kind is not None:
        keys.append(text("tokenizer.ggml.model") + struct.pack("<I", _STRING) + text(kind))
    if pieces:
        head = struct.pack("<IIQ", _ARRAY, _STRING, len(pieces))
        keys.append(text("tokenizer.ggml.tokens") + head + b"".join(map(text, pieces)))
    if types:
        head = struct.pack("<IIQ", _ARRAY, _I32, len(types))
        numbers = struct.pack(f"<{len(types)}i", *types)
        keys.append(text("tokenizer.ggml.token_type") + head + numbers)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys) + bytes(64))
    return path


def of(path: Path) -> Vocabulary | str:
    with opened(path) as source:
        model = read_model(source)
        assert isinstance(model, ModelFile)
        return vocabulary_of(model)


def test_spaces_and_bytes_of_sentencepiece() -> None:
    pieces = ["<s>", "▁the", "▁▁", "<0xE2>", "<0x82>", "<0xAC>", "<0x41>"]
    types = [CONTROL, NORMAL, USER_DEFINED, BYTE, BYTE, BYTE, NORMAL]
    words = Vocabulary("llama", pieces, types)
    assert words.text([0, 1, 1]) == "<s> the the"
    assert words.text([3, 4, 5]) == "€"
    assert words.text([3, 4]) == "\N{REPLACEMENT CHARACTER}"
    assert words.text([2]) == "▁▁"
    assert words.text([6]) == "<0x41>"


def test_bytes_of_gpt2() -> None:
    pieces = ["Hello", "Ġworld", "Ċ", "ĉ", "č", "Ã©", "<|im_endĠ|>", "â", "ĤČ", "漢"]
    types = [NORMAL] * 6 + [CONTROL] + [NORMAL] * 3
    words = Vocabulary("gpt2", pieces, types)
    assert words.text(range(7)) == "Hello world\n\t\ré<|im_endĠ|>"
    assert words.data(7) == b"\xe2"
    assert words.text([9]) == "漢"


def test_the_alphabet_of_gpt2_has_a_letter_for_every_byte() -> None:
    alphabet = _byte_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert all(chr(code).isprintable() and not chr(code).isspace() for code in alphabet)
    words = Vocabulary("gpt2", ["".join(map(chr, alphabet))], [NORMAL])
    assert words.data(0) == bytes(alphabet.values())


@pytest.mark.parametrize(
    ("kind", "piece", "kind_of_token", "expected"),
    [
        ("bert", "▁ing", NORMAL, b" ing"),
        ("bert", "ing", NORMAL, b"ing"),
        ("t5", "▁a", NORMAL, b" a"),
        ("t5", "<unk>", UNKNOWN, b"<unk>"),
        ("gemma4", "▁a▁b", NORMAL, b" a b"),
        ("gemma4", "<0x0A>", BYTE, b"\n"),
        ("plamo2", "▁a", NORMAL, "▁a".encode()),
        ("plamo2", "<0xff>", BYTE, b"\xff"),
        ("llama", "<0xZZ>", BYTE, b"<0xZZ>"),
        ("rwkv", r"a\t\n\r\\\'\x00\xff", NORMAL, b"a\t\n\r\\'\0\xff"),
        ("rwkv", "é\\", NORMAL, "é\\".encode()),
    ],
)
def test_pieces(kind: str, piece: str, kind_of_token: int, expected: bytes) -> None:
    assert Vocabulary(kind, [piece], [kind_of_token]).data(0) == expected


@pytest.mark.parametrize("token", [-1, -7, 1, 1 << 30])
def test_ids_outside(token: int) -> None:
    assert Vocabulary("llama", ["a"], []).text([0, token, 0]) == f"a<{token}>a"


@given(
    kind=st.sampled_from(["llama", "gpt2", "rwkv", "plamo2"]),
    pieces=st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    types=st.lists(st.integers(-1, 9)),
    tokens=st.lists(st.integers(-3, 12)),
)
def test_any_vocabulary(kind: str, pieces: list[str], types: list[int], tokens: list[int]) -> None:
    assert isinstance(Vocabulary(kind, pieces, types).text(tokens), str)


@pytest.mark.parametrize(
    ("kind", "pieces", "types", "says"),
    [
        ("no_vocab", [], [], "no vocabulary"),
        ("none", [], [], "no vocabulary"),
        ("abacus", ["a"], [], "not known: abacus"),
        (None, ["a"], [], "which tokenizer"),
        ("llama", [], [NORMAL], "no list of tokens"),
    ],
)
def test_models_without_text(
    tmp_path: Path, kind: str | None, pieces: list[str], types: list[int], says: str
) -> None:
    found = of(model_file(tmp_path / "m.gguf", kind, pieces, types))
    assert isinstance(found, str)
    assert says in found


@pytest.mark.parametrize("value", [7, (1, 2), (), "words"])
def test_lists_that_are_none(value: Any) -> None:
    keys = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": value}
    with opened(MODELS / "mamba.gguf") as source:
        found = vocabulary_of(ModelFile(source, 3, keys, {}))
    assert isinstance(found, str) or not len(found)


def test_a_real_model() -> None:
    words = of(MODELS / "llama-gqa.gguf")
    assert isinstance(words, Vocabulary)
    assert len(words) == 464
    assert words.text([1, 3 + ord("A"), 3 + 0xE2, 3 + 0x82, 3 + 0xAC]) == "<s>A€"


def test_the_longest_vocabularies_are_read_in_no_time(tmp_path: Path) -> None:
    n = 262_144
    pieces = [f"▁word{index}" for index in range(n)]
    path = model_file(tmp_path / "m.gguf", "llama", pieces, [NORMAL] * n)
    start = time.perf_counter()
    words = of(path)
    took = time.perf_counter() - start
    assert isinstance(words, Vocabulary)
    assert words.text([0, n - 1]) == f" word0 word{n - 1}"
    assert took < 2  # a third of a second on a quiet machine
