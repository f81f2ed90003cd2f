"""`slotscope anonymize`: nothing that was said survives, and the copy reads the same."""

from __future__ import annotations

import json
import os
import struct
import time
import tracemalloc
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from inspector import anonymize
from inspector.anonymize import anonymized
from inspector.cli.app import app
from inspector.model.identity import judge
from inspector.node import Kind, Rows, walk
from inspector.repair.state import Refused
from inspector.report import Report, examined
from inspector.source import Unreadable
from samples.make import HERE as SAMPLES

KEY = b"a key of the tests"
SECRET = "TOP-SECRET my password is hunter2, ян"
VARIED = 8
"""Different bytes of a run from which on it says something."""
SUBJECTS = sorted(
    path
    for path in SAMPLES.glob("*/*")
    if path.suffix in {".slot", ".ckpt", ".checkpoints"} and "container" not in path.name
)[::4]


def findings(report: Report) -> list[tuple[str, str, int]]:
    """Without those about seals and leftovers, which are no part of a copy.

    Other ids have other digits: places in a JSON text move.
    """
    return [
        (one.code, one.path, 0 if one.carrier.endswith(".json") else one.span.start)
        for one in report.findings
        if not one.code.startswith(("seal.", "sidecar.leftover"))
    ]


def has_tok(rows: Rows) -> bool:
    return any(name == "tok" for name, _ in rows.fields)


def payloads(path: Path) -> list[slice]:
    with examined(path) as report:
        reading = report.identification.reading
        assert reading is not None
        nodes = walk(reading.decoding.root)
        return [slice(n.span.start, n.span.stop) for _, n in nodes if n.kind is Kind.PAYLOAD]


def runs(data: bytes, spans: list[slice]) -> set[bytes]:
    """All stretches of 16 bytes of payloads that are not just a pattern."""
    found = set()
    for span in spans:
        part = data[span]
        found |= {part[i : i + 16] for i in range(len(part) - 15)}
    return {run for run in found if len(set(run)) >= VARIED}


@pytest.mark.parametrize("path", SUBJECTS, ids=lambda path: path.name)
def test_nothing_survives(path: Path, tmp_path: Path) -> None:
    try:
        made = anonymized(path, KEY)
    except Refused:
        return
    copy = tmp_path / path.name
    for suffix, data in made.files.items():
        beside = path.with_name(path.name + suffix)
        copy.with_name(copy.name + suffix).write_bytes(data)
        if suffix != ".tokens.json":
            spans = payloads(beside)
            assert len(data) == beside.stat().st_size
            assert not runs(beside.read_bytes(), spans) & runs(data, spans)
    with examined(path) as before, examined(copy) as after:
        if before.bundle.state is None:
            assert findings(after) == findings(before)
        parts = [(s.path, s.span, s.cells, s.pos.tolist()) for s in before.sections]
        assert [(s.path, s.span, s.cells, s.pos.tolist()) for s in after.sections] == parts
        if before.tokens is None or len(before.tokens.ids) < 3:
            return
        old, new = before.tokens.ids.tolist(), after.tokens.ids.tolist()  # type: ignore[union-attr]
        assert [one < 0 for one in new] == [one < 0 for one in old]
        pairs = set(zip(old, new, strict=True))
        assert len(pairs) == len(set(old)) == len(set(new)), "one for one"
        in_cells = [t.column("tok") for s in before.sections for t in s.tables if has_tok(t)]
        assert max(new) <= max(255, *old, *(int(column.max()) for column in in_cells))
        three = {tuple(old[i : i + 3]) for i in range(len(old) - 2)}
        kept = [one for one in zip(new, new[1:], new[2:], strict=False) if one in three]
        assert [one for one in kept if min(one) >= 0] == []


def test_most_samples_can_be_shown() -> None:
    refused = 0
    for path in SUBJECTS:
        try:
            anonymized(path, KEY)
        except Refused:
            refused += 1
    assert refused <= len(SUBJECTS) // 20


def test_numbers_stay_finite(tmp_path: Path) -> None:
    for name in ("ggsq4.kv--llama-b11549-rotated", "ggsq4.hybrid.xyt--qwen35-b11549-checkpoints"):
        path = SAMPLES / "intact" / f"{name}.slot"
        copy = tmp_path / path.name
        copy.write_bytes(anonymized(path, KEY).files[""])
        with examined(path, deep=True) as before, examined(copy, deep=True) as after:
            assert findings(after) == findings(before)
            for old, new in zip(before.statistics, after.statistics, strict=True):
                assert (old.block.path, old.non_finite) == (new.block.path, new.non_finite)


def test_cells_and_companions_go_along(tmp_path: Path) -> None:
    state = SAMPLES / "intact" / "ik4--with-companions.slot"
    made = anonymized(state, KEY)
    copy = tmp_path / "copy.slot"
    for suffix, data in made.files.items():
        copy.with_name(copy.name + suffix).write_bytes(data)
    with examined(copy) as report:
        assert report.tokens is not None
        listed = json.loads((tmp_path / "copy.slot.tokens.json").read_text())["tokens"]
        assert listed == report.tokens.ids.tolist()
    xyt = SAMPLES / "intact" / "ggsq4.hybrid.xyt--qwen35-b11549-checkpoints.slot"
    copy.write_bytes(anonymized(xyt, KEY).files[""])
    with examined(copy) as report:
        assert report.tokens is not None
        tok = report.sections[0].tables[0].column("tok")
        assert np.array_equal(tok[tok >= 0], report.tokens.ids[tok >= 0])


def test_command(tmp_path: Path) -> None:
    state = SAMPLES / "intact" / "ggsq4.kv--llama-b11549-short.slot"
    file, new = tmp_path / "file.slot", tmp_path / "new.slot"
    file.write_bytes(state.read_bytes())
    done = CliRunner().invoke(app, ["anonymize", str(file), "-o", str(new)])
    assert done.exit_code == 0
    assert new.stat().st_size == file.stat().st_size
    again = CliRunner().invoke(app, ["anonymize", str(file), "-o", str(file), "--force"])
    assert again.exit_code == 2
    assert "never written" in again.output
    assert file.read_bytes() == state.read_bytes()
    unknown = tmp_path / "unknown"
    unknown.write_bytes(b"what is this?")
    done = CliRunner().invoke(app, ["anonymize", str(unknown), "-o", str(tmp_path / "x")])
    assert done.exit_code == 1
    assert not (tmp_path / "x").exists()


def copied(state: Path, folder: Path) -> Path:
    """The copy of a state and of what lies beside it."""
    copy = folder / "copy.slot"
    for suffix, data in anonymized(state, KEY).files.items():
        copy.with_name(copy.name + suffix).write_bytes(data)
    return copy


def with_list(folder: Path, text: bytes) -> Path:
    """A state of ik_llama.cpp with this `.tokens.json`."""
    state = folder / "ik.slot"
    state.write_bytes((SAMPLES / "intact" / "ik4--with-companions.slot").read_bytes())
    state.with_name("ik.slot.tokens.json").write_bytes(text)
    return state


def token_list(**more: Any) -> dict[str, Any]:
    path = SAMPLES / "intact" / "ik4--with-companions.slot.tokens.json"
    listed: dict[str, Any] = json.loads(path.read_text())
    return listed | more


def test_of_json_only_known_members_are_copied(tmp_path: Path) -> None:
    ids = token_list()["tokens"][:3]
    chunk = {
        "type": 1,
        "tokens_text": ids,
        "tokens_image": {"nx": 4, "ny": 3, "use_mrope_pos": False, "id": SECRET, SECRET: 1},
    }
    text = token_list(note=SECRET, map_idx_to_media=[{"index": 2, "chunk": chunk}, SECRET])
    copy = copied(with_list(tmp_path, json.dumps(text).encode()), tmp_path)
    shown = json.loads(copy.with_name("copy.slot.tokens.json").read_bytes())
    assert shown.keys() == token_list().keys()
    media, word = shown["map_idx_to_media"]
    assert media["index"] == 2
    assert media["chunk"]["tokens_text"] == shown["tokens"][:3] != ids
    image = media["chunk"]["tokens_image"]
    assert (image.pop("id") != SECRET, image) == (
        True,
        {"nx": 4, "ny": 3, "use_mrope_pos": False},
    )
    said = json.dumps(shown)
    assert not any(part in said for part in (*SECRET.split(), "hunter", "\\u044f"))
    assert len(word.encode("latin-1")) == len(SECRET.encode())


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(token_list(note=SECRET)).encode()[:-9],
        b"",
        SECRET.encode(),
        json.dumps(token_list()).encode() + b" " + SECRET.encode(),
        json.dumps(token_list(magic=123456789)).encode(),
        json.dumps(token_list(version=SECRET)).encode(),
        json.dumps(token_list(tokens=[1, SECRET, 9**99, 1.5, None])).encode(),
        json.dumps({"note": SECRET, "tokens": [1, 2]}).encode(),
    ],
    ids=["cut", "empty", "no JSON", "more behind", "magic", "version", "tokens", "no media"],
)
def test_damaged_lists_stay_damaged(text: bytes, tmp_path: Path) -> None:
    state = with_list(tmp_path, text)
    copy = copied(state, tmp_path)
    with examined(state) as before, examined(copy) as after:
        codes = [[one.code for one in report.findings] for report in (before, after)]
        assert codes[0] == codes[1]
        assert any(code.startswith("sidecar.tokens-") for code in codes[0])
    said = copy.with_name("copy.slot.tokens.json").read_bytes()
    assert not any(part in said for part in (b"SECRET", b"hunter", "\u044f".encode(), b"123456789"))


def test_companions_of_no_known_layout_only_keep_their_size(tmp_path: Path) -> None:
    state = tmp_path / "a.slot"
    sample = SAMPLES / "intact" / "ggsq2.hybrid--with-stck2.slot"
    state.write_bytes(sample.read_bytes())
    secret = SECRET.encode() * 9
    for suffix in (".ckpt", ".hbnd", ".drft"):
        state.with_name(f"a.slot{suffix}").write_bytes(secret)
    copy = copied(state, tmp_path)
    for suffix in (".ckpt", ".hbnd", ".drft"):
        data = copy.with_name(f"copy.slot{suffix}").read_bytes()
        assert len(data) == len(secret)
        assert not {secret[i : i + 3] for i in range(99)} & {data[i : i + 3] for i in range(99)}


def test_texts_hashes_and_padding(tmp_path: Path) -> None:
    scrambler = anonymize._scrambler(KEY, np.zeros(0, np.int64))
    told = scrambler.text(SECRET.encode() + b"/\x01\\")
    assert len(told) == len(SECRET.encode()) + 3
    assert [c for c in told if c > 0x7F] == [0xFF] * 4
    assert not {SECRET.encode()[i : i + 3] for i in range(40)} & {
        told[i : i + 3] for i in range(40)
    }
    path = SAMPLES / "intact" / "ggsq2.hybrid--with-stck2.slot.ckpt"
    hashed = bytearray(path.read_bytes())
    with examined(path) as report:
        reading = report.identification.reading
        assert reading is not None
        at = {node.name: node.span for _, node in walk(reading.decoding.root)}["prompt_hash"]
    assert (
        bytes(hashed[at.start : at.stop])
        not in anonymized(path.with_name(path.name.removesuffix(".ckpt")), KEY).files[".ckpt"]
    )


@pytest.mark.parametrize("odd", [341 | 1 << 28, 1_800_000_000, -(2**31) + 341, -7])
def test_one_odd_id_costs_nothing(odd: int, tmp_path: Path) -> None:
    path = tmp_path / "odd.slot"
    data = bytearray((SAMPLES / "intact" / "ggsq2.kv--llama-b10229-short.slot").read_bytes())
    struct.pack_into("<i", data, 16, odd)
    path.write_bytes(data)
    tracemalloc.start()
    started = time.perf_counter()
    made = anonymized(path, KEY)
    seconds, (_, peak) = time.perf_counter() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 10
    assert peak < 32 << 20
    new = struct.unpack_from("<i", made.files[""], 16)[0]
    assert new != odd
    assert (new < 0, abs(new).bit_length() > 9) == (odd < 0, abs(odd).bit_length() > 9)
    others = np.frombuffer(made.files[""][12:32], "<i4")
    assert sorted(others)[-2] < 512


def test_ids_of_many_sizes() -> None:
    ids = np.array([-1, 0, 1, 255, 256, 300, 1000, 40_000, 50_000, 128_255, 1 << 28, 2**31 - 1, -2])
    for key in range(50):
        new = anonymize._scrambler(b"%d" % key, ids).ids(ids)
        assert new[0] == -1
        assert len(set(new.tolist())) == len(ids)
        ordinary = (new >= 0) & (new < 1 << 27)
        assert (ordinary == ((ids >= 0) & (ids < 1 << 27))).all()
        assert new[ordinary].max() <= 128_255, "none beyond the vocabulary"
        kept = ids[new == ids].tolist()
        assert set(kept) <= {-1, 1 << 28}, "alone among those of its size"


def test_the_size_of_an_id_shows_from_256_on() -> None:
    ids = np.array([0, 3, 200, 255, 256, 300, 511, 512, 1000, 1023, 1024, 1 << 20])
    sizes, small = np.frexp(ids)[1], set()
    for key in range(50):
        new = anonymize._scrambler(b"%d" % key, ids).ids(ids)
        large = ids > 255
        assert (np.frexp(new)[1] == sizes)[large].all()
        assert (new < 256).tolist() == (~large).tolist()
        small |= set(np.frexp(new[~large])[1].tolist())
    assert small > {4, 5, 6, 7, 8}
    words = CliRunner().invoke(app, ["anonymize", "--help"]).output.split()
    assert "a token id lies shows too from 256 on" in " ".join(words)


TRANSPOSED = sorted(
    path
    for path in SAMPLES.glob("intact/*.slot")
    if path.name.split("--")[-1].removesuffix(".slot")
    in ("llama-b10229-flash-attention-off", "llama-2024-06", "llama-2024-04", "llama-b5671")
)


@pytest.mark.parametrize("path", TRANSPOSED, ids=lambda path: path.name)
def test_equal_rows_stay_equal(path: Path, tmp_path: Path) -> None:
    with examined(path) as before, examined(copied(path, tmp_path)) as after:
        for report in (before, after):
            found = judge(report.source, report.sections, report.tokens, None)
            assert found.notes, "equal tokens are compared"
            assert [one.code for one in found.findings] == []


def test_a_copy_of_which_check_says_more_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(TRANSPOSED) >= 4
    monkeypatch.setattr(
        anonymize._Scrambler, "channels", lambda self, data, n, kind: self.numbers(data, 0, kind)
    )
    new = tmp_path / "new.slot"
    done = CliRunner().invoke(app, ["anonymize", str(TRANSPOSED[-1]), "-o", str(new)])
    assert done.exit_code == 1
    assert "gain identity.repeated-tokens" in done.output
    assert not new.exists()


SHORT = SAMPLES / "intact" / "ggsq2.kv--llama-b10229-short.slot"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("attn.streams[0].cell_count", None),
        ("attn.streams[0].cell_count", 0xFFFFFFFF),
        ("attn.streams[0].v_trans", 1),
        ("attn.streams[0].n_layer", None),
        ("n_token_count", None),
    ],
)
def test_a_word_that_derails_lets_nothing_through(
    path: str, value: int | None, tmp_path: Path
) -> None:
    whole = SHORT.read_bytes()
    with examined(SHORT) as report:
        reading = report.identification.reading
        assert reading is not None
        found = dict(walk(reading.decoding.root))
        span, stored = found[path].span, int(str(found[path].value))
        spans = [slice(n.span.start, n.span.stop) for n in found.values() if n.kind is Kind.PAYLOAD]
        spans.append(slice(found["tokens"].span.start, found["tokens"].span.stop))
    wrong = tmp_path / "wrong.slot"
    word = (stored + 1 if value is None else value).to_bytes(len(span), "little")
    wrong.write_bytes(whole[: span.start] + word + whole[span.stop :])
    copy = copied(wrong, tmp_path)
    with examined(wrong) as before, examined(copy) as after:
        assert findings(after) == findings(before)
        assert after.findings
    everywhere = [slice(0, len(whole))]
    assert not runs(whole, spans) & runs(copy.read_bytes(), everywhere)


def test_sums_of_codes_stay_right(tmp_path: Path) -> None:
    path = SAMPLES / "damaged" / "ik3--ik.keys-saved-short.slot"
    with examined(path) as before, examined(copied(path, tmp_path)) as after:
        assert findings(after) == findings(before)
        assert "ik.keys-saved-short" in [one.code for one in after.findings]


def test_what_is_refused_says_why(tmp_path: Path) -> None:
    alone = SAMPLES / "damaged" / "ggsq2.kv--checkpoint.full-blob.slot.ckpt"
    for path, says in (
        (SAMPLES / "damaged" / "gguf3--gguf.truncated.slot", "is a model"),
        (SAMPLES / "damaged" / "ggsq2.kv--file.unrecognised.slot", "not known what it is"),
        (alone, f"gain checkpoint.other-content; anonymize {alone.name.removesuffix('.ckpt')}"),
    ):
        with pytest.raises(Refused, match=says):
            anonymized(path, KEY)


def test_seals_are_left_out_aloud(tmp_path: Path) -> None:
    state, new = tmp_path / "a.slot", tmp_path / "new.slot"
    state.write_bytes(SHORT.read_bytes())
    os.utime(state, ns=(1, 10**18))
    assert CliRunner().invoke(app, ["seal", str(state)]).exit_code == 0
    done = CliRunner().invoke(app, ["anonymize", str(state), "-o", str(new)])
    assert done.exit_code == 0
    assert "left out: a.slot.slotscope.json: " in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.slot",
        "a.slot.slotscope.json",
        "new.slot",
    ]
    assert new.stat().st_mtime_ns == 10**18
    seal = tmp_path / "a.slot.slotscope.json"
    for kept in (state, seal):
        before = kept.read_bytes()
        done = CliRunner().invoke(app, ["anonymize", str(state), "-o", str(kept), "--force"])
        assert (done.exit_code, kept.read_bytes()) == (2, before)


@pytest.mark.parametrize("n_cells", [20, 40, 200])
@pytest.mark.parametrize("name", ["ggsq1.kv--llama-2024-06", "ggsn9.kv--llama-b10229"])
def test_tensors_that_are_read_as_structure(name: str, n_cells: int, tmp_path: Path) -> None:
    path = SAMPLES / "intact" / f"{name}.slot"
    data = bytearray(path.read_bytes())
    with examined(path) as report:
        count = report.sections[0].tables[0].span.start - 4
        behind = report.sections[0].blocks[0].span.start + 12
    struct.pack_into("<I", data, count, n_cells)
    wrong = tmp_path / "wrong.slot"
    wrong.write_bytes(data[:-7])  # no single word makes it whole
    copy = copied(wrong, tmp_path).read_bytes()
    twelve = {bytes(data[i : i + 12]) for i in range(behind, len(data) - 11)}
    kept = {copy[i : i + 12] for i in range(len(copy) - 11)} & twelve
    assert not [run for run in kept if len(set(run)) >= VARIED - 1]


def test_cells_of_several_sequences(tmp_path: Path) -> None:
    path = SAMPLES / "intact" / "ggsn11.kv.xyt--qwen2vl-b11549-two-sequences.slot"
    data = bytearray(path.read_bytes())
    with examined(path) as report:
        table = report.sections[0].tables[0]
        at, width = table.row_span(0), dict(table.fields)
        assert "tok" in width
    # one cell more of both sequences: rows are no longer of one length
    data[at.start + 4 : at.start + 8] = struct.pack("<I", 2)
    data[at.stop : at.stop] = struct.pack("<i", 1)
    shared = tmp_path / "shared.slot"
    shared.write_bytes(data)
    copy = copied(shared, tmp_path)
    with examined(shared) as before, examined(copy) as after:
        old, new = (report.sections[0].tables[0].column("tok") for report in (before, after))
        assert len(before.sections[0].tables[0].items()) == len(old) + 1
        assert findings(after) == findings(before)
    assert (old != new).all()
    assert len(set(zip(old.tolist(), new.tolist(), strict=True))) == len(set(old.tolist()))


def test_companions_of_an_earlier_file_do_not_stay(tmp_path: Path) -> None:
    new, stale = tmp_path / "new.slot", tmp_path / "new.slot.ckpt"
    stale.write_bytes(b"of an earlier file")
    asked = ["anonymize", str(SHORT), "-o", str(new)]
    done = CliRunner().invoke(app, asked)
    assert (done.exit_code, new.exists(), stale.exists()) == (2, False, True)
    assert "would be taken for a companion" in done.output
    done = CliRunner().invoke(app, [*asked, "--force"])
    assert (done.exit_code, new.exists(), stale.exists()) == (0, True, False)
    assert f"{stale}: removed" in done.output


def test_what_differs_by_chance_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path, key = SAMPLES / "damaged" / "ggsq2.recurrent--recurrent.transposed.slot", b"key 27"
    made = anonymized(path, key)
    assert len(made.files[""]) == path.stat().st_size
    assert made == anonymized(path, key)
    monkeypatch.setattr(anonymize, "_DRAWS", 1)
    with pytest.raises(Refused, match=r"lose recurrent\.transposed"):
        anonymized(path, key)


def test_a_companion_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = copied(SAMPLES / "intact" / "ggsq2.hybrid--with-pkcl1.slot", tmp_path)

    def examined_unless_barred(path: Path) -> AbstractContextManager[Report]:
        if path.suffix == ".ckpt":
            raise Unreadable("Permission denied")
        return examined(path)

    monkeypatch.setattr(anonymize, "examined", examined_unless_barred)
    done = CliRunner().invoke(app, ["anonymize", str(state), "-o", str(tmp_path / "new")])
    assert done.exit_code == 2
    assert f"{state.name}.ckpt: Permission denied" in done.output


def test_names_move_no_cursor(tmp_path: Path) -> None:
    new = tmp_path / "a\x1b[2Jb.slot"
    done = CliRunner().invoke(app, ["anonymize", str(SHORT), "-o", str(new)])
    assert (done.exit_code, new.exists()) == (0, True)
    assert "a\\x1b[2Jb.slot: " in done.stdout
