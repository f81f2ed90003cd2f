"""Containers: what they hold, and that no bytes make the walk fail, read much or take long."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import sqlite3
import struct
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.containers import (
    DEEPEST_JSON,
    LARGEST_JSON,
    MOST_ENTRIES,
    MOST_MEMBERS,
    MOST_OPCODES,
    Container,
    Inner,
    Plain,
    Trouble,
    diskcache,
    ik_tokens,
    jan_sidecar,
    llama_cpp_python,
    recognise,
)
from inspector.fuzzing.pickled import llama_state
from inspector.source import Source, opened
from inspector.span import Span

READERS = (recognise, ik_tokens, jan_sidecar, llama_cpp_python, diskcache)

TOKENS = [1, 15043, 3186]
IK_TOKENS = {
    "has_mtmd": False,
    "map_idx_to_media": [],
    "tokens": TOKENS,
    "magic": 1819112310,
    "version": 1,
}
MEDIA = [
    {
        "index": 1,
        "chunk": {"type": 1, "tokens_text": [], "tokens_image": {"nx": 2, "ny": 2, "id": "a\\u"}},
    }
]
JAN = {
    "model": "org/model",
    "thread": "t-1",
    "spec": "c=8192",
    "llama_build": 11549,
    "llama_commit": "abc",
    "model_bytes": 4_000_000_000,
    "model_mtime": 1791000000.5,
    "n_tokens": 300,
    "saved_at": 1791000001,
}


@pytest.fixture
def source(tmp_path: Path):
    """Makes a file of the given bytes and opens it; all are closed at the end."""
    contexts = []

    def make(data: bytes) -> Source:
        path = tmp_path / f"{len(contexts)}.bin"
        path.write_bytes(data)
        contexts.append(opened(path))
        return contexts[-1].__enter__()

    yield make
    for context in contexts:
        context.__exit__(None, None, None)


def in_memory(data: bytes) -> Source:
    """A source without a file, for properties with many examples."""

    class Bytes(Source):
        def read_at(self, offset: int, size: int) -> bytes:
            return data[offset : offset + size]

    return Bytes(-1, "memory", len(data))


def dumped(document: object) -> bytes:
    """As nlohmann's `dump` writes it."""
    return json.dumps(document, separators=(",", ":")).encode()


def kinds(container: Container | None) -> list[tuple[Trouble, str]]:
    assert container is not None
    return [(problem.kind, problem.path) for problem in container.problems]


def values(container: Container | None) -> dict[str, Plain]:
    assert container is not None
    return {fact.path: fact.value for fact in container.facts}


# JSON


def test_ik_tokens_are_read_with_their_places(source) -> None:
    data = dumped(IK_TOKENS)
    container = recognise(source(data))
    assert container is not None
    assert container.format == "ik-tokens"
    assert container.tokens is not None
    assert container.tokens.tolist() == TOKENS
    assert values(container) == {"has_mtmd": False, "magic": 1819112310, "version": 1}
    assert not container.problems
    for fact in container.facts:
        assert fact.span is not None
        assert json.loads(data[fact.span.start : fact.span.stop]) == fact.value


@pytest.mark.parametrize("indent", [None, 2])
def test_other_spellings_of_the_same_json_are_read_alike(source, indent: int | None) -> None:
    document = IK_TOKENS | {"map_idx_to_media": MEDIA, "has_mtmd": True, "tokens": [1, -1, -1, 2]}
    container = ik_tokens(source(json.dumps(document, indent=indent).encode() + b"\n"))
    assert not container.problems
    assert container.tokens is not None
    assert container.tokens.tolist() == [1, -1, -1, 2]


def test_no_tokens_are_an_empty_list(source) -> None:
    container = ik_tokens(source(dumped(IK_TOKENS | {"tokens": []})))
    assert not container.problems
    assert container.tokens is not None
    assert container.tokens.tolist() == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"magic": 1}, (Trouble.WRONG, "magic")),
        ({"version": 2}, (Trouble.WRONG, "version")),
        ({"version": True}, (Trouble.WRONG, "version")),
        ({"has_mtmd": 0}, (Trouble.WRONG, "has_mtmd")),
        ({"map_idx_to_media": {}}, (Trouble.WRONG, "map_idx_to_media")),
        ({"tokens": [1, 2.5]}, (Trouble.WRONG, "tokens")),
        ({"tokens": [1, [2]]}, (Trouble.WRONG, "tokens")),
        ({"tokens": [10**11]}, (Trouble.WRONG, "tokens")),
        ({"tokens": "1,2"}, (Trouble.WRONG, "tokens")),
    ],
)
def test_a_wrong_member_is_named(source, change: dict[str, object], expected) -> None:
    assert kinds(ik_tokens(source(dumped(IK_TOKENS | change)))) == [expected]


@pytest.mark.parametrize("member", list(IK_TOKENS))
def test_a_missing_member_is_named(source, member: str) -> None:
    document = {key: value for key, value in IK_TOKENS.items() if key != member}
    assert kinds(ik_tokens(source(dumped(document)))) == [(Trouble.MISSING, member)]


def test_an_empty_object_misses_everything(source) -> None:
    assert kinds(ik_tokens(source(b"{}"))) == [
        (Trouble.MISSING, path)
        for path in ("magic", "version", "has_mtmd", "map_idx_to_media", "tokens")
    ]


def test_every_cut_of_ik_tokens_is_a_cut() -> None:
    data = dumped(IK_TOKENS | {"map_idx_to_media": MEDIA})
    for size in range(len(data)):
        container = ik_tokens(in_memory(data[:size]))
        assert kinds(container) == [(Trouble.CUT, "")], data[:size]
        assert container.problems[0].span.stop == size


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (b'{"has_mtmd":fals,"a":{}}', 12),
        (b'{"has_mtmd":01}', 13),
        (b'{"has_mtmd":1,}', 14),
        (b'{"has_mtmd" 1}', 1),
        (b'{"has_mtmd":"\\x"}', 12),
        (b'{"has_mtmd":"\n"}', 12),
        (b'{"has_mtmd":[1,,2]}', 15),
        (b'{"has_mtmd":[1}}', 14),
        (b'{"has_mtmd":{"a":1]}', 18),
        (b"{has_mtmd:1}", 1),
        (b'{"has_mtmd":"\xff"}', 13),
        (b"\0" * 20, 0),
    ],
)
def test_text_that_is_no_json_stops_where_it_breaks(source, text: bytes, offset: int) -> None:
    container = ik_tokens(source(text))
    assert kinds(container) == [(Trouble.MALFORMED, "")]
    assert container.problems[0].span == Span(offset, len(text))
    with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
        json.loads(text)


def test_bytes_behind_the_object_are_trailing(source) -> None:
    container = ik_tokens(source(dumped(IK_TOKENS) + b"\n\0\0"))
    assert kinds(container) == [(Trouble.TRAILING, "")]
    assert len(container.problems[0].span) == 2


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_whatever_json_writes_is_accepted(value: object) -> None:
    text = json.dumps({"a": value, "tokens": [1]})
    accepted = not any(word in text for word in ("NaN", "Infinity"))
    container = ik_tokens(in_memory(text.encode()))
    assert (Trouble.MALFORMED in {p.kind for p in container.problems}) <= (not accepted)
    if accepted:
        assert container.tokens is not None
        assert container.tokens.tolist() == [1]


@pytest.mark.parametrize(("levels", "good"), [(DEEPEST_JSON, True), (DEEPEST_JSON + 1, False)])
def test_depth_is_limited(source, levels: int, good: bool) -> None:
    nested = b"[" * levels + b"[0.5]"[1:-1] + b"]" * levels
    data = dumped(IK_TOKENS)[:-1] + b',"x":' + nested + b"}"
    assert kinds(ik_tokens(source(data))) == ([] if good else [(Trouble.LIMIT, "")])


def test_a_million_brackets_are_refused_at_once(source) -> None:
    for opener in (b"[", b'{"a":'):
        assert kinds(ik_tokens(source(b'{"has_mtmd":' + opener * 1_000_000))) == [
            (Trouble.LIMIT, "")
        ]


def test_members_are_limited(source) -> None:
    data = dumped({f"k{i}": 0 for i in range(MOST_MEMBERS + 1)})
    assert kinds(ik_tokens(source(data))) == [(Trouble.LIMIT, "")]


def test_json_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.tokens.json"
    path.write_bytes(b'{"has_mtmd":false,"tokens":[')
    os.truncate(path, LARGEST_JSON + 1)
    with opened(path) as file:
        assert kinds(ik_tokens(file)) == [(Trouble.LIMIT, "")]
        assert file.bytes_read == 0


def test_numbers_and_texts_without_bounds_are_no_facts(source) -> None:
    long = "x" * 10_000
    document = dumped(IK_TOKENS | {"long": long})[:-1] + b',"inf":1e999,"ints":' + b"9" * 9999
    container = ik_tokens(source(document + b',"lone":"\\ud800"}'))
    assert not container.problems
    assert values(container).keys() == {"has_mtmd", "magic", "version", "lone"}
    assert container.fact("lone") == "\\ud800"


def test_jan_sidecar_is_read(source) -> None:
    container = recognise(source(dumped(JAN)))
    assert container is not None
    assert container.format == "jan"
    assert values(container) == JAN
    assert not container.problems


@pytest.mark.parametrize("member", list(JAN))
def test_a_member_that_jan_compares_must_be_there(source, member: str) -> None:
    document = {key: value for key, value in JAN.items() if key != member}
    assert kinds(jan_sidecar(source(dumped(document)))) == [(Trouble.MISSING, member)]


def test_other_json_is_none_of_ours(source) -> None:
    assert recognise(source(b'{"name": "x", "tokens": [1, 2]}')) is None
    assert recognise(source(b"[1, 2]")) is None


# Pickles


class LlamaState:
    """Stands for llama-cpp-python's class; `pickle` writes its name as that program's."""


@pytest.fixture
def pickled(monkeypatch: pytest.MonkeyPatch):
    """Pickles a state as llama-cpp-python does: the class by name, attributes in its order."""
    module = types.ModuleType("llama_cpp.llama")
    monkeypatch.setitem(sys.modules, "llama_cpp", types.ModuleType("llama_cpp"))
    monkeypatch.setitem(sys.modules, "llama_cpp.llama", module)
    monkeypatch.setattr(LlamaState, "__module__", "llama_cpp.llama")
    module.LlamaState = LlamaState  # type: ignore[attr-defined]

    def make(protocol: int = 5, **change: object) -> bytes:
        state = LlamaState()
        body = b"\5\0\0\0llama" + bytes(range(100))
        attributes = {
            "input_ids": np.array([*TOKENS, 0, 0, 0, 0, 0], np.intc),
            "scores": np.ones((3, 32), np.single),
            "n_tokens": 3,
            "llama_state": body,
            "llama_state_size": len(body),
            "seed": 0xFFFFFFFF,
        } | change
        for name, value in attributes.items():
            setattr(state, name, value)
        return pickle.dumps(state, protocol)

    return make


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("n_ctx", [8, 100_000])
def test_a_pickled_state_is_found_without_unpickling(source, pickled, protocol, n_ctx) -> None:
    ids = np.zeros(n_ctx, np.intc)
    ids[:3] = TOKENS
    body = os.urandom(70_000)
    data = pickled(protocol, input_ids=ids, llama_state=body, llama_state_size=len(body))
    file = source(data)
    container = recognise(file)
    assert container is not None
    assert container.format == "llama-cpp-python"
    assert not container.problems
    start = data.index(body)
    assert container.inner == (Inner("llama_state", Span(start, start + len(body)), "context"),)
    assert container.tokens is not None
    assert container.tokens.tolist() == TOKENS
    assert values(container) == {"n_tokens": 3, "llama_state_size": 70_000, "seed": 0xFFFFFFFF}
    assert file.bytes_read < 50_000


def test_a_state_that_is_pickled_by_hand_is_a_pickle(source, pickled) -> None:
    body = bytes(range(256))
    data = llama_state(np.array(TOKENS, "<i4").tobytes(), body)
    read = vars(pickle.loads(data))
    assert list(read) == list(vars(pickle.loads(pickled())))
    assert read["input_ids"].tolist() == [*TOKENS, *[0] * 8]
    assert (read["scores"].dtype, len(read["scores"])) == (np.single, 0)
    assert (read["n_tokens"], read["llama_state"], read["llama_state_size"]) == (3, body, 256)
    container = recognise(source(data))
    assert container is not None
    assert not container.problems
    assert container.tokens is not None
    assert container.tokens.tolist() == TOKENS


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"llama_state_size": 7}, (Trouble.WRONG, "llama_state_size")),
        ({"n_tokens": 9}, (Trouble.WRONG, "n_tokens")),
        ({"n_tokens": -1}, (Trouble.WRONG, "n_tokens")),
        ({"n_tokens": 1 << 2000}, (Trouble.WRONG, "n_tokens")),
        ({"n_tokens": "3"}, (Trouble.MISSING, "n_tokens")),
        ({"input_ids": TOKENS}, (Trouble.MISSING, "input_ids")),
        ({"llama_state": "text"}, (Trouble.MISSING, "llama_state")),
    ],
)
def test_a_pickle_that_contradicts_itself_says_so(source, pickled, change, expected) -> None:
    assert expected in kinds(recognise(source(pickled(**change))))


def test_every_cut_of_a_pickle_is_a_cut(pickled) -> None:
    for protocol in (4, 5):
        data = pickled(protocol)
        for size in range(len(data)):
            container = llama_cpp_python(in_memory(data[:size]))
            assert container.problems[0].kind is Trouble.CUT, size
            assert container.problems[0].span.stop == size


def test_bytes_behind_stop_are_trailing(source, pickled) -> None:
    data = pickled()
    container = recognise(source(data + b"more"))
    assert kinds(container) == [(Trouble.TRAILING, "")]
    assert container is not None
    assert container.problems[0].span == Span(len(data), len(data) + 4)


def test_eight_gibibytes_are_stepped_over(tmp_path: Path, pickled) -> None:
    size = 8 << 30
    data = pickled(llama_state=b"", llama_state_size=size)
    at = data.index(b"llama_state") + len(b"llama_state") + 1
    assert data[at : at + 2] == b"C\0"
    path = tmp_path / "big.pkl"
    with path.open("wb") as file:
        file.write(data[:at] + b"\x8e" + struct.pack("<Q", size))
        start = file.tell()
        file.seek(size, os.SEEK_CUR)
        file.write(data[at + 2 :])
    with opened(path) as file:
        container = recognise(file)
        assert container is not None
        assert container.inner == (Inner("llama_state", Span(start, start + size), "context"),)
        assert not container.problems
        assert file.bytes_read < 50_000


@pytest.mark.parametrize(
    "opcodes",
    [
        b"\x8e" + struct.pack("<Q", 1 << 62),
        b"\x8e" + struct.pack("<Q", (1 << 64) - 1),
        b"\x96" + struct.pack("<Q", 1 << 40),
        b"\x8d" + struct.pack("<Q", 1 << 40),
        b"B" + struct.pack("<I", 0xFFFFFFFF),
        b"T" + struct.pack("<i", -1),
        b"\x8b" + struct.pack("<i", 0x7FFFFFFF),
        b"I1\n.",
        b"S'\\q'\n.",
        b"cposix\nsystem\n.",
        b"\xff",
        b"\x8c\x01\xff.",
    ],
)
def test_hostile_opcodes_end_the_walk(source, pickled, opcodes: bytes) -> None:
    head = pickled()
    head = head[: head.index(b"input_ids") - 2]
    container = recognise(source(head + opcodes))
    assert container is not None
    assert container.problems[0].kind in (Trouble.CUT, Trouble.MALFORMED)
    assert container.problems[0].span.start == len(head)


def test_nothing_is_executed(source, pickled, tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    data = pickled(input_ids=Payload())
    assert any(opcode.name == "REDUCE" for opcode, _, _ in pickletools.genops(data))
    assert recognise(source(data)) is not None
    assert not (tmp_path / "executed").exists()


def test_opcodes_are_limited(source, pickled) -> None:
    head = pickled()
    head = head[: head.index(b"input_ids") - 2]
    container = recognise(source(head + b"N" * (MOST_OPCODES + 1)))
    assert container is not None
    assert container.problems[0].kind is Trouble.LIMIT


def test_other_pickles_are_none_of_ours(source) -> None:
    assert recognise(source(pickle.dumps({"llama_state": b"x"}))) is None
    assert recognise(source(pickle.dumps(("llama_cpp.llama", "LlamaState"), 4))) is None


# SQLite

SCHEMA = (
    "CREATE TABLE Settings ( key TEXT NOT NULL UNIQUE, value);"
    "CREATE TABLE Cache ( rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL,"
    " expire_time REAL, access_time REAL, access_count INTEGER DEFAULT 0, tag BLOB,"
    " size INTEGER DEFAULT 0, mode INTEGER DEFAULT 0, filename TEXT, value BLOB);"
)
FILENAME = "e8/14/e234a1d19074fa918087eab65306.val"


@pytest.fixture
def database(tmp_path: Path):
    """Writes a database with the given statements, and returns its path."""

    def make(script: str, *rows: tuple[object, ...]) -> Path:
        path = tmp_path / "cache.db"
        with sqlite3.connect(path) as connection:
            connection.executescript(script)
            connection.executemany(
                "INSERT INTO Cache (filename, size, mode, value) VALUES (?, ?, ?, ?)", rows
            )
        connection.close()
        return path

    return make


def test_entries_of_a_disk_cache(database) -> None:
    path = database(SCHEMA, (FILENAME, 53393, 4, None), (None, 0, 4, b"inline"))
    before = path.read_bytes(), sorted(path.parent.iterdir())
    with opened(path) as file:
        container = recognise(file)
    assert container is not None
    assert container.format == "diskcache"
    assert not container.problems
    assert values(container) == {
        "entries[0].filename": FILENAME,
        "entries[0].size": 53393,
        "entries[0].mode": 4,
        "entries[0].access_count": 0,
        "entries[1].size": 0,
        "entries[1].mode": 4,
        "entries[1].access_count": 0,
    }
    assert before == (path.read_bytes(), sorted(path.parent.iterdir()))


def test_a_database_in_wal_mode_is_read(database) -> None:
    path = database("PRAGMA journal_mode = wal;" + SCHEMA, (FILENAME, 1, 4, None))
    assert path.read_bytes()[18:20] == b"\2\2"
    with opened(path) as file:
        assert values(recognise(file))["entries[0].filename"] == FILENAME


@pytest.mark.parametrize("filename", ["../../etc/passwd", "/etc/passwd", "\udcff", 7, b"x", ""])
def test_a_file_name_that_is_no_entry_is_named(database, filename: object) -> None:
    if filename == "\udcff":
        path = database(SCHEMA)
        with sqlite3.connect(path) as connection:
            connection.execute("INSERT INTO Cache (filename) VALUES (CAST(x'ff' AS TEXT))")
        connection.close()
    else:
        path = database(SCHEMA, (filename, 1, 4, None))
    with opened(path) as file:
        assert kinds(recognise(file)) == [(Trouble.WRONG, "entries[0].filename")]


def test_entries_are_limited(database) -> None:
    path = database(SCHEMA, *[(FILENAME, 1, 4, None)] * (MOST_ENTRIES + 1))
    with opened(path) as file:
        container = recognise(file)
    assert kinds(container) == [(Trouble.LIMIT, "entries")]
    assert f"entries[{MOST_ENTRIES}].size" not in values(container)


def test_a_view_in_place_of_the_table_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "view.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE VIEW Cache AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT i AS filename, i AS size, i AS mode, i AS access_count, i AS rowid FROM n "
            "/* CREATE TABLE Cache ( */"
        )
    connection.close()
    with opened(path) as file:
        assert recognise(file) is None


def test_a_slow_database_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "slow.db"
    columns = ", ".join(
        f"{name} GENERATED ALWAYS AS ({' + '.join(['length(key || key)'] * 300)})"
        for name in ("size", "mode", "access_count")
    )
    with sqlite3.connect(path) as connection:
        connection.executescript(f"CREATE TABLE Cache ( key, filename, {columns});")
        connection.executemany("INSERT INTO Cache (key) VALUES (?)", [("x",)] * 40_000)
    connection.close()
    with opened(path) as file:
        container = recognise(file)
    assert container is not None
    assert {problem.kind for problem in container.problems} <= {Trouble.MALFORMED, Trouble.LIMIT}
    assert container.problems


def test_huge_texts_are_refused(database) -> None:
    path = database(SCHEMA, ("x" * 100_000, 1, 4, None))
    with opened(path) as file:
        assert kinds(recognise(file)) == [(Trouble.MALFORMED, "")]


def test_a_cut_database_says_so(database, source) -> None:
    path = database(SCHEMA, *[(FILENAME, 1, 4, b"x" * 3000)] * 20)
    data = path.read_bytes()
    assert kinds(recognise(source(data[: len(data) // 2]))) == [(Trouble.MALFORMED, "")]


def test_other_databases_are_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    with opened(path) as file:
        assert recognise(file) is None


# Totality


def within(container: Container | None, size: int) -> bool:
    spans = [
        item.span
        for item in (*container.facts, *container.inner, *container.problems)
        if item.span is not None
    ] if container else []  # fmt: skip
    return all(0 <= span.start <= span.stop <= size for span in spans)


@given(st.binary(max_size=400))
def test_any_bytes_give_an_answer(data: bytes) -> None:
    for reader in READERS:
        assert within(reader(in_memory(data)), len(data))


@given(st.data())
def test_damaged_containers_give_an_answer(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(DAMAGEABLE))
    at = data.draw(st.integers(0, len(original)))
    drop, insert = data.draw(st.integers(0, 8)), data.draw(st.binary(max_size=8))
    damaged = original[:at] + insert + original[at + drop :]
    for reader in READERS:
        assert within(reader(in_memory(damaged)), len(damaged))


def _database_bytes() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    connection.execute("INSERT INTO Cache (filename, size, mode) VALUES (?, 1, 4)", (FILENAME,))
    connection.commit()
    data = connection.serialize()
    connection.close()
    return data


STATE = (
    b"\x80\x04\x95" + struct.pack("<Q", 200) + b"\x8c\x0fllama_cpp.llama\x94\x8c\x0aLlamaState"
    b"\x94\x93\x94)\x81\x94}\x94(\x8c\x09input_ids\x94C\x0c" + struct.pack("<3i", *TOKENS)
    + b"\x94\x8c\x08n_tokens\x94K\x03\x8c\x0bllama_state\x94C\x04body\x94"
    b"\x8c\x10llama_state_size\x94K\x04ub."
)  # fmt: skip
DAMAGEABLE = (
    dumped(IK_TOKENS | {"map_idx_to_media": MEDIA}),
    dumped(JAN),
    STATE,
    _database_bytes(),
)


def test_the_damaged_ones_were_whole() -> None:
    for data in DAMAGEABLE:
        container = recognise(in_memory(data))
        assert container is not None
        assert not container.problems
