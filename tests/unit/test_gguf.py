"""Headers of model files, packed here with `struct` in the order that gguf.cpp reads them."""

from __future__ import annotations

import struct
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.gguf import ROWS
from formats.spans import StopReason
from inspector.decode import Decoding, decode
from inspector.model.gguf import Array, ModelFile, Unusable, read_model
from inspector.node import Kind, find, leaves
from inspector.source import opened

UINT8, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 0, 4, 5, 6, 7, 8, 9, 10
CODES = {UINT8: "B", UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "B", UINT64: "Q"}
F32, F16, Q8_0 = 0, 1, 8


def string(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def plain(code: int, value: Any) -> bytes:
    return string(value) if code == STRING else struct.pack("<" + CODES[code], value)


def entry(key: str | bytes, code: int, value: Any) -> bytes:
    return string(key) + struct.pack("<I", code) + plain(code, value)


def array(key: str, code: int, values: list[Any]) -> bytes:
    head = string(key) + struct.pack("<IIQ", ARRAY, code, len(values))
    return head + b"".join(plain(code, value) for value in values)


def tensor(name: str, dims: tuple[int, ...], code: int, offset: int) -> bytes:
    shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return string(name) + shape + struct.pack("<IQ", code, offset)


def packed(
    entries: list[bytes],
    tensors: list[bytes],
    data: bytes = b"",
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    head += b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


SMALL = packed(
    [
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, "Zwölf ™"),
        entry("llama.block_count", UINT32, 12),
        entry("llama.flag", BOOL, 1),
        entry("llama.rate", FLOAT32, 0.5),
        array("llama.attention.head_count_kv", INT32, [0, 1, 0]),
        array("llama.pattern", BOOL, [1, 0, 1]),
        array("general.tags", STRING, ["a", "", "bc"]),
        array("tokenizer.ggml.tokens", STRING, [f"<{n}>" for n in range(2000)]),
        array("tokenizer.ggml.scores", FLOAT32, [n / 2 for n in range(2000)]),
    ],
    [tensor("token_embd.weight", (64, 2), Q8_0, 0), tensor("norm", (5,), F32, 160)],
    bytes(160 + 20),
)


def read(directory: Path, data: bytes) -> tuple[ModelFile | Unusable, int]:
    path = directory / "model.gguf"
    path.write_bytes(data)
    with opened(path) as source:
        return read_model(source), source.bytes_read


def model(directory: Path, data: bytes) -> ModelFile:
    found, _ = read(directory, data)
    assert isinstance(found, ModelFile), found
    return found


def refused(directory: Path, data: bytes) -> Unusable:
    found, _ = read(directory, data)
    assert isinstance(found, Unusable)
    return found


def decoded(directory: Path, data: bytes) -> Decoding:
    path = directory / "model.gguf"
    path.write_bytes(data)
    with opened(path) as source:
        return decode(source, ROWS[-1], source.whole())


def test_metadata_has_the_values_that_were_packed(tmp_path: Path) -> None:
    found = model(tmp_path, SMALL)
    assert found.architecture == "llama"
    long = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores"}
    assert {key: value for key, value in found.metadata.items() if key not in long} == {
        "general.architecture": "llama",
        "general.name": "Zwölf ™",
        "llama.block_count": 12,
        "llama.flag": True,
        "llama.rate": 0.5,
        "llama.attention.head_count_kv": (0, 1, 0),
        "llama.pattern": (True, False, True),
        "general.tags": ("a", "", "bc"),
    }
    assert found.metadata["llama.flag"] is True


def test_long_arrays_are_read_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(SMALL)
    with opened(path) as source:
        found = read_model(source)
        assert isinstance(found, ModelFile)
        tokens, scores = (found.metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores"))
        assert isinstance(tokens, Array)
        assert isinstance(scores, Array)
        assert (tokens.type, tokens.count) == ("string", 2000)
        assert (scores.type, scores.count, len(scores.span)) == ("float32", 2000, 8000)
        assert SMALL[tokens.span.start :].startswith(string("<0>") + string("<1>"))
        assert tokens.strings() == [f"<{n}>" for n in range(2000)]
        assert np.array_equal(scores.numbers(), np.arange(2000, dtype=np.float32) / 2)


def test_tensors_have_the_spans_of_their_data(tmp_path: Path) -> None:
    found = model(tmp_path, SMALL)
    base = len(SMALL) - 180
    embd, norm = found.tensors["token_embd.weight"], found.tensors["norm"]
    assert (embd.dims, embd.type_id, embd.offset) == ((64, 2), Q8_0, base)
    assert embd.data is not None
    assert (embd.data.start, len(embd.data)) == (base, 2 * 2 * 34)
    assert norm.data is not None
    assert (norm.data.start, norm.data.stop) == (base + 160, len(SMALL))


def test_stated_alignment_moves_the_data(tmp_path: Path) -> None:
    for stated, effective in ((64, 64), (8, 8), (48, 32), (0, 32)):
        data = packed(
            [entry("general.alignment", UINT32, stated)],
            [tensor("t", (1,), F32, 0)],
            bytes(4),
            alignment=effective,
        )
        assert model(tmp_path, data).tensors["t"].offset == len(data) - 4


def test_tensors_that_cannot_be_read_have_no_span(tmp_path: Path) -> None:
    tensors = [
        tensor("unknown", (4,), 12345, 0),
        tensor("broken", (33,), Q8_0, 0),
        tensor("beyond", (2,), F32, 4),
        tensor("huge", (1 << 63, 1 << 63, 1 << 63, 1 << 63), F16, (1 << 64) - 1),
        tensor("whole", (1,), F32, 4),
    ]
    found = model(tmp_path, packed([], tensors, bytes(8)))
    assert [name for name, t in found.tensors.items() if t.data is not None] == ["whole"]


def test_long_strings_are_stepped_over(tmp_path: Path) -> None:
    text = "x" * (1 << 20)
    data = packed([entry("tokenizer.huggingface.json", STRING, text)], [])
    found, n_read = read(tmp_path, data)
    assert isinstance(found, ModelFile)
    value = found.metadata["tokenizer.huggingface.json"]
    assert isinstance(value, Array)
    assert (value.type, value.count) == ("uint8", 1 << 20)
    assert n_read < 1 << 16


def test_tree_tiles_the_file(tmp_path: Path) -> None:
    for size in (len(SMALL), len(SMALL) - 1, 20000, 5000, 300, 30, 5, 0):
        at = 0
        for leaf in leaves(decoded(tmp_path, SMALL[:size]).root):
            assert leaf.span.start == at
            at = leaf.span.stop
        assert at == size


def test_names_and_documentation_in_the_tree(tmp_path: Path) -> None:
    root = decoded(tmp_path, SMALL).root
    key = find(root, "metadata_kv[5].key.string")
    assert key is not None
    assert key.value == "llama.attention.head_count_kv"
    kv_type = find(root, "metadata_kv[5].value.type")
    assert kv_type is not None
    assert kv_type.meaning == "int32"
    tokens = find(root, "metadata_kv[8].value.array")
    assert tokens is not None
    assert (tokens.kind, tokens.role) == (Kind.PAYLOAD, "strings")
    dims = find(root, "tensor_infos[0].dimensions")
    assert dims is not None
    assert (dims.kind, len(dims.span)) == (Kind.TABLE, 16)


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions(tmp_path: Path, version: int) -> None:
    assert model(tmp_path, packed([], [], version=version)).version == version


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a GGUF"),
        (b"GGML" + bytes(20), "not a GGUF"),
        (packed([], [], version=1), "version 1"),
        (packed([], [], version=4), "version 4"),
        (b"GGUF\x00\x00\x00\x03" + bytes(16), "big-endian"),
        (packed([entry("a", UINT8, 1), entry("a", UINT8, 2)], []), "a occurs twice"),
        (packed([], [tensor("t", (1,), F32, 0)] * 2), "t occurs twice"),
    ],
)
def test_files_that_are_no_model(tmp_path: Path, data: bytes, reason: str) -> None:
    assert reason in refused(tmp_path, data).reason


HOSTILE = {
    "entries": (struct.pack("<QQ", 0, 1 << 63), "metadata_kv", StopReason.COUNT_EXCEEDS_FILE),
    "tensors": (struct.pack("<QQ", 1 << 40, 0), "tensor_infos", StopReason.COUNT_EXCEEDS_FILE),
    "key": (
        struct.pack("<QQQ", 0, 1, 1 << 62),
        "metadata_kv[0].key.string",
        StopReason.PAYLOAD_EXCEEDS_FILE,
    ),
    "value type": (
        struct.pack("<QQ", 0, 1) + string("k") + struct.pack("<I", 13),
        "metadata_kv[0].value",
        StopReason.LIMIT,
    ),
    "nested array": (
        struct.pack("<QQ", 0, 1) + string("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1),
        "metadata_kv[0].value.array",
        StopReason.LIMIT,
    ),
    "numbers": (
        struct.pack("<QQ", 0, 1) + string("k") + struct.pack("<IIQ", ARRAY, UINT64, 1 << 61),
        "metadata_kv[0].value.array",
        StopReason.COUNT_EXCEEDS_FILE,
    ),
    "strings": (
        struct.pack("<QQ", 0, 1) + string("k") + struct.pack("<IIQ", ARRAY, STRING, 1 << 61),
        "metadata_kv[0].value.array",
        StopReason.COUNT_EXCEEDS_FILE,
    ),
    "second string": (
        struct.pack("<QQ", 0, 1)
        + string("k")
        + struct.pack("<IIQ", ARRAY, STRING, 2)
        + string("a")
        + struct.pack("<Q", 1 << 63),
        "metadata_kv[0].value.array[1]",
        StopReason.PAYLOAD_EXCEEDS_FILE,
    ),
    "dimensions": (
        struct.pack("<QQ", 1, 0) + string("t") + struct.pack("<I", 5),
        "tensor_infos[0].dimensions",
        StopReason.LIMIT,
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_counts_stop_exactly(tmp_path: Path, case: str) -> None:
    words, path, reason = HOSTILE[case]
    data = b"GGUF" + struct.pack("<I", 3) + words
    (stop,) = decoded(tmp_path, data + bytes(64)).stops
    assert (stop.path, stop.reason, stop.offset) == (path, reason, len(data))
    assert refused(tmp_path, data + bytes(64)).offset == len(data)


def test_a_cut_string_array_keeps_what_was_there(tmp_path: Path) -> None:
    tokens = array("k", STRING, ["abc"] * 3000)
    whole = packed([tokens], [])
    start = whole.index(string("abc"))
    cut = start + 2500 * 11 + 5
    decoding = decoded(tmp_path, whole[:cut])
    (stop,) = decoding.stops
    assert (stop.path, stop.offset) == ("metadata_kv[0].value.array[2500]", start + 2500 * 11)
    kept = find(decoding.root, "metadata_kv[0].value.array")
    assert kept is not None
    assert (kept.span.start, kept.span.stop) == (start, start + 2500 * 11)


@given(st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=8), st.booleans())
def test_any_damage_gives_an_answer(
    tmp_path_factory: pytest.TempPathFactory, at: int, noise: bytes, near: bool
) -> None:
    at = at % 400 if near else at
    data = SMALL[:at] + noise + SMALL[at + len(noise) :]
    found, _ = read(tmp_path_factory.getbasetemp(), data)
    if isinstance(found, ModelFile):
        for value in found.metadata.values():
            assert not isinstance(value, Array) or value.span.stop <= len(data)
        assert all(t.data is None or t.data.stop <= len(data) for t in found.tensors.values())
    else:
        assert 0 <= found.offset <= len(data)


def test_a_large_vocabulary_opens_fast(tmp_path: Path) -> None:
    n = 262_144
    numbers = np.zeros(n, np.uint32).tobytes()
    tokens = b"".join(string(f"token{i}") for i in range(n))
    entries = [
        entry("general.architecture", STRING, "gemma3"),
        string("tokenizer.ggml.tokens") + struct.pack("<IIQ", ARRAY, STRING, n) + tokens,
        string("tokenizer.ggml.scores") + struct.pack("<IIQ", ARRAY, FLOAT32, n) + numbers,
        string("tokenizer.ggml.token_type") + struct.pack("<IIQ", ARRAY, INT32, n) + numbers,
    ]
    tensors = [tensor(f"blk.{i}.weight", (256, 2), F16, 1024 * i) for i in range(1000)]
    path = tmp_path / "model.gguf"
    path.write_bytes(packed(entries, tensors, bytes(1024 * 1000)))
    with opened(path) as source:
        start = time.perf_counter()
        found = read_model(source)
        seconds = time.perf_counter() - start
        assert isinstance(found, ModelFile)
        assert len(found.tensors) == 1000
        assert source.bytes_read < len(tokens) + (1 << 20)
        vocabulary = found.metadata["tokenizer.ggml.tokens"]
        assert isinstance(vocabulary, Array)
        assert vocabulary.strings()[-1] == f"token{n - 1}"
    assert seconds < 1


def test_models_of_the_collection(shared: Path) -> None:
    paths = sorted(shared.glob("corpus*/models/*.gguf"))
    assert len(paths) == 20
    for path in paths:
        with opened(path) as source:
            found = read_model(source)
            assert isinstance(found, ModelFile), path.name
            spans = sorted(t.data for t in found.tensors.values() if t.data is not None)
            assert len(spans) == len(found.tensors)
            assert spans[-1].stop == source.size
            for one, next_one in pairwise(spans):
                assert 0 <= next_one.start - one.stop < 32


def test_a_file_that_ends_in_its_tensors(tmp_path: Path) -> None:
    infos = [tensor("a", (64,), F32, 0), tensor("b", (32, 2), Q8_0, 256), tensor("c", (2,), 99, 0)]
    whole = packed([entry("general.architecture", STRING, "llama")], infos, bytes(256 + 68))
    for missing, names in ((0, 0), (1, 1), (68, 1), (69, 2), (324, 2)):
        path = tmp_path / f"{missing}.gguf"
        path.write_bytes(whole[: len(whole) - missing])
        with opened(path) as source:
            model = read_model(source)
            assert isinstance(model, ModelFile)
            cut = model.cut
        assert (cut.n_tensors if cut is not None else 0) == names
        if cut is not None:
            assert (cut.size, cut.actual) == (len(whole), len(whole) - missing)
