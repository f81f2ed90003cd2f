"""Seals: what they hold, what they tell of changed bytes and of other companions."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from xxhash import xxh3_128_hexdigest

from inspector.bundle import RECORD
from inspector.checks import seals
from inspector.cli.app import app
from inspector.cli.exits import FINDINGS, SOUND, USAGE
from inspector.node import walk
from inspector.report import examined
from inspector.seal import seal_beside
from tests.support.writer import DIALECTS, F16, Cache, Memory, Row, Slot, Tokens, cells_of, pack

ROOT = Path(__file__).resolve().parents[2]
INTACT = ROOT / "samples/intact"
HYBRID = "ggsq2.hybrid--with-pkcl1.slot"
MODEL = ROOT / "samples/models/llama.gguf"
SAVED = 1_000_000_000


def ran(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state of two sections with a sidecar."""
    for suffix in ("", ".ckpt"):
        copy = tmp_path / f"slot.bin{suffix}"
        shutil.copyfile(INTACT / (HYBRID + suffix), copy)
        os.utime(copy, (SAVED, SAVED))
    return tmp_path / "slot.bin"


def sealed(state: Path, *words: object) -> dict[str, Any]:
    result = ran("seal", state, *words)
    assert result.exit_code == SOUND, result.output
    document = json.loads(Path(f"{state}{RECORD}").read_text())
    assert isinstance(document, dict)
    return document


def codes(state: Path, *, deep: bool = True) -> list[tuple[str, str]]:
    with examined(state, deep=deep) as report:
        return [(one.code, one.path) for one in report.findings if one.code.startswith("seal.")]


def test_what_a_seal_holds(state: Path) -> None:
    document = sealed(state, "--model", MODEL, "--build", "b10229")
    seal, data = document["seal"], state.read_bytes()
    assert document["schema"] == "slotscope.record/1"
    assert (seal["bytes"], seal["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert seal["model"]["name"] == "llama.gguf"
    assert seal["target"] == "b10229"
    (companion,) = seal["companions"]
    assert companion["xxh3"] == xxh3_128_hexdigest(Path(f"{state}.ckpt").read_bytes())
    at = 0
    for section in seal["sections"]:
        assert section["start"] == at
        at = section["stop"]
        assert section["xxh3"] == xxh3_128_hexdigest(data[section["start"] : at])
    assert at == len(data)
    names = [one["path"] for one in seal["sections"]]
    assert names[0] == "magic to tokens"
    assert {name.partition(".")[0] for name in names[1:]} == {"attn", "recr"}
    assert codes(state) == []


def test_a_changed_bit_is_found_in_its_section(state: Path) -> None:
    seal, data = sealed(state)["seal"], state.read_bytes()
    for offset in (*range(0, 64, 8), *range(64, len(data), 97), len(data) - 1):
        state.write_bytes(data[:offset] + bytes([data[offset] ^ 16]) + data[offset + 1 :])
        os.utime(state, (SAVED, SAVED))
        within = [one for one in seal["sections"] if one["start"] <= offset < one["stop"]]
        with examined(state, deep=True) as report:
            found = [one for one in report.findings if one.code.startswith("seal.")]
            assert report.sealed is not None
            assert not report.sealed.holds
        assert [one.code for one in found] == ["seal.section-differs"]
        assert found[0].message == f"{within[0]['path']} is not as it was sealed"
        assert (found[0].span.start, found[0].span.stop) == (within[0]["start"], within[0]["stop"])


def test_the_name_of_a_section_covers_all_of_it(state: Path) -> None:
    """Every leaf lies in the part that a section is named after, or between its two parts."""
    with examined(state) as report:
        nodes = dict(walk(report.tree))
        leaves = [node.span for node in nodes.values() if not node.children and len(node.span)]
    seal = sealed(state) and seal_beside(state)
    assert seal is not None
    for tile in seal.tiles:
        first, _, last = tile.path.partition(" to ")
        assert nodes[first].span.start == tile.span.start
        assert nodes[last or first].span.stop == tile.span.stop
        assert len(nodes[tile.holder].span) >= len(tile.span)
    spans = [tile.span for tile in seal.tiles]
    assert all(any(leaf.start in s and leaf.stop - 1 in s for s in spans) for leaf in leaves)


def test_what_is_changed_in_a_short_part(state: Path) -> None:
    seal, data = sealed(state)["seal"], state.read_bytes()
    with examined(state) as report:
        nodes = dict(walk(report.tree))
    for path, holder, words in (
        ("version", "", "magic to tokens"),
        ("attn.n_stream", "attn", "attn.n_stream to attn.streams[0].k[0].data"),
        ("recr.blocks[3].type", "recr.blocks[3]", "recr.blocks[3]"),
    ):
        assert words in [one["path"] for one in seal["sections"]]
        at = nodes[path].span.start
        state.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        os.utime(state, (SAVED, SAVED))
        with examined(state, deep=True) as report:
            (found,) = [one for one in report.findings if one.code == "seal.section-differs"]
        assert (found.path, found.message) == (holder, f"{words} is not as it was sealed")


def test_of_a_long_file_only_the_tokens_are_compared_unless_it_is_read(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seals, "SMALL", 0)
    sealed(state)
    data = state.read_bytes()
    state.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert codes(state, deep=False) == []
    assert [code for code, _ in codes(state)] == ["seal.section-differs"]
    state.write_bytes(data[:16] + b"\1" + data[17:])
    assert codes(state, deep=False) == [("seal.section-differs", "tokens")]


def test_the_length(state: Path) -> None:
    sealed(state)
    data = state.read_bytes()
    state.write_bytes(data[:-1])
    assert [code for code, _ in codes(state)] == ["seal.length-differs"]
    shutil.copyfile(INTACT / "ggsq2.iswa--gemma3-b10229-long.slot", state)
    assert [code for code, _ in codes(state)] == ["seal.saved-anew"]


@pytest.mark.parametrize("small", [seals.SMALL, 0])
@pytest.mark.parametrize("n", [1, 100])
def test_bytes_behind_the_end_are_no_other_save_whatever_the_time(
    state: Path, n: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seals, "SMALL", small)
    sealed(state)
    size = state.stat().st_size
    with state.open("ab") as file:
        file.write(bytes(n))
    for deep in (False, True):
        with examined(state, deep=deep) as report:
            (found,) = [one for one in report.findings if one.code.startswith("seal.")]
            assert (found.code, str(found.severity)) == ("seal.length-differs", "error")
            assert (found.span.start, found.span.stop) == (size, size + n)


def test_a_cut_that_leaves_a_whole_file_is_no_other_save(state: Path) -> None:
    """The attention layers of this hybrid state alone are a state too."""
    sealed(state)
    shutil.copyfile(INTACT / "ggsq2.kv--twelve-tokens.slot", state)
    assert Path(INTACT / HYBRID).read_bytes().startswith(state.read_bytes())
    assert [code for code, _ in codes(state)] == ["seal.length-differs"]


def test_other_numbers_of_the_same_tokens_may_be_damage(state: Path) -> None:
    sections = sealed(state)["seal"]["sections"]
    with state.open("r+b") as file:
        for section in sections[2:]:
            file.seek(section["stop"] - 2)
            file.write(b"\1\1")
    assert {code for code, _ in codes(state)} == {"seal.section-differs"}


def test_another_save_of_the_same_length(tmp_path: Path) -> None:
    state = tmp_path / "slot.bin"
    for number in (1, 2):
        tokens = Tokens(tuple(range(number, number + 40)))
        rows = (Row(F16, 16),) * 4
        memory = Memory({"attn": Cache((cells_of(tokens),), k=rows, v=rows)}, DIALECTS[""])

        def values(part: str, layer: int, pos: int, size: int, number: int = number) -> bytes:
            return bytes([number]) * size

        state.write_bytes(pack(Slot(2, tokens, memory), values=values).data)
        os.utime(state, (SAVED + number, SAVED + number))
        if number == 1:
            sealed(state)
    assert codes(state) == [("seal.saved-anew", "")]


def test_companions(state: Path) -> None:
    sealed(state)
    sidecar = Path(f"{state}.ckpt")
    data = sidecar.read_bytes()
    sidecar.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(sidecar, (SAVED, SAVED))
    assert codes(state) == [("seal.companion-differs", "")]
    sidecar.unlink()
    assert codes(state) == [("seal.companion-differs", "")]
    sidecar.write_bytes(data)
    os.utime(sidecar, (SAVED, SAVED))
    assert codes(state) == []
    assert "holds" in ran("inspect", state).stdout
    assert json.loads(ran("inspect", state, "--json").stdout)["seal"] == {
        "holds": True,
        "complete": True,
        "companions": ["slot.bin.ckpt"],
    }


def test_the_record_of_a_repair_stays(state: Path) -> None:
    record = {"schema": "slotscope.record/1", "tool": "x", "source": {"name": "a"}, "actions": []}
    Path(f"{state}{RECORD}").write_text(json.dumps(record))
    assert codes(state) == []
    document = sealed(state)
    assert {key: document[key] for key in record} == record
    assert document["seal"]["bytes"] == state.stat().st_size
    assert sealed(state)["seal"]["sections"] == document["seal"]["sections"]


def test_a_file_that_changed_is_not_sealed_again_unless_it_is_forced(state: Path) -> None:
    before = sealed(state)
    data = state.read_bytes()
    state.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    result = ran("seal", state)
    assert result.exit_code == FINDINGS
    assert "--force" in result.stderr
    assert json.loads(Path(f"{state}{RECORD}").read_text()) == before
    assert sealed(state, "--force")["seal"]["sha256"] != before["seal"]["sha256"]
    assert codes(state) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other"}', "\0"])
def test_a_record_that_cannot_be_read(state: Path, text: str) -> None:
    Path(f"{state}{RECORD}").write_text(text)
    assert codes(state) == [("seal.unreadable", "")]
    assert ran("seal", state).exit_code == FINDINGS
    sealed(state, "--force")


WRONG: dict[str, list[str]] = {
    "bytes": ["1e999", "NaN", '"4176"', "4176.0", "true", "-1", "1" + "0" * 30, "null", "[1]"],
    "mtime_ns": ["1e999", '"1"', "1.5", "1" + "0" * 40, "null"],
    "sealed_ns": ["1e999", "null", "{}"],
    "sha256": ['""', "null", '"' + "g" * 64 + '"', '"' + "A" * 64 + '"', "1"],
    "tokens": ["null", '{"count": 1e999, "xxh3": null}', '{"count": 1, "xxh3": 5}', "[]"],
    "sections": ["null", '"words"', "{}", "[]", "[1]", '[{"path": "", "start": 0, "stop": 4176}]'],
    "companions": ["null", "[1]", '[{"name": "../a", "bytes": 1, "xxh3": "' + "0" * 32 + '"}]'],
    "model": ["[1]", '"words"', "{}"],
    "target": ["7"],
}
"""Parts of a seal -> what no seal of ours says."""


@pytest.mark.parametrize("part", WRONG)
def test_a_seal_with_a_wrong_part(state: Path, part: str) -> None:
    document = sealed(state)
    record = Path(f"{state}{RECORD}")
    for wrong in WRONG[part]:
        document["seal"][part] = "HERE"
        record.write_text(json.dumps(document).replace('"HERE"', wrong))
        assert codes(state) == [("seal.unreadable", "")], wrong
    del document["seal"][part]
    record.write_text(json.dumps(document))
    lacks = part not in ("model", "target")
    assert codes(state) == [("seal.unreadable", "")] * lacks
    if lacks:
        before, result = record.read_bytes(), ran("seal", state)
        assert result.exit_code == FINDINGS
        assert f"{state}: {record.name}: " in result.stderr
        assert "--force" in result.stderr
        assert record.read_bytes() == before
        sealed(state, "--force")


def test_a_wrong_seal_costs_a_scan_nothing_but_the_comparison(state: Path) -> None:
    document = sealed(state)
    document["seal"]["bytes"] = float("inf")
    Path(f"{state}{RECORD}").write_text(json.dumps(document))
    result = ran("scan", state.parent, "--build", "b10229", "--verify", "--json")
    line = json.loads(result.stdout.splitlines()[0])
    assert (line["kind"], line["restore"]["outcome"]) == ("state", "accepts")
    assert line["seal"] == "unreadable"
    assert "seal.unreadable" in [one["code"] for one in line["findings"]]


def test_a_record_that_is_no_file(state: Path) -> None:
    Path(f"{state}{RECORD}").mkdir()
    assert codes(state) == [("seal.unreadable", "")]
    assert ran("seal", state).exit_code == FINDINGS


def test_what_is_not_sealed(state: Path, tmp_path: Path) -> None:
    assert ran("seal", f"{state}.ckpt").exit_code == FINDINGS
    sealed(state)
    assert ran("seal", f"{state}{RECORD}").exit_code == FINDINGS
    assert not Path(f"{state}{RECORD}{RECORD}").exists()
    assert ran("seal", tmp_path / "nothing").exit_code == USAGE
    assert ran("seal", state, "--build", "b0").exit_code == USAGE


def test_a_file_without_any_layout(tmp_path: Path) -> None:
    file = tmp_path / "noise.bin"
    file.write_bytes(bytes(range(256)) * 20)
    sealed(file)
    assert codes(file) == []
    assert seal_beside(file) is not None
    file.write_bytes(b"")
    assert [code for code, _ in codes(file)] == ["seal.length-differs"]


def test_scan_verifies(state: Path) -> None:
    sealed(state)
    words = ("scan", state.parent, "--build", "b10229", "--json")
    lines = [json.loads(line) for line in ran(*words, "--verify").stdout.splitlines()]
    assert lines[0]["seal"] == "holds"
    assert lines[-1]["seals"] == {"holds": 1}
    shutil.copyfile(state, state.with_name("other.bin"))
    assert "\nseals    1 holds, 1 unsealed\n" in ran(*words[:-1], "--verify").stdout
    assert "seals" not in ran(*words[:-1][:1], state.with_name("other.bin")).stdout
    state.with_name("other.bin").unlink()
    data = state.read_bytes()
    state.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    result = ran(*words, "--verify")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == FINDINGS
    assert lines[0]["seal"] == "differs"
    assert lines[0]["worst"] == "error"


def test_scan_verifies_companions_and_seals_too(state: Path) -> None:
    sealed(state)
    sidecar, record = Path(f"{state}.ckpt"), Path(f"{state}{RECORD}")
    data, seal = sidecar.read_bytes(), record.read_text()
    words = ("scan", state.parent, "--build", "b10229")
    assert ran(*words, "--verify").exit_code == SOUND
    sidecar.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert ran(*words, "--verify").exit_code == FINDINGS
    assert ran(*words, "--verify", "--fail-on", "never").exit_code == SOUND
    assert ran(*words).exit_code == SOUND
    sidecar.unlink()
    assert ran(*words, "--verify").exit_code == FINDINGS
    sidecar.write_bytes(data)
    record.write_text(seal[:-9])
    assert ran(*words, "--verify").exit_code == FINDINGS
    record.write_text(seal)
    assert ran(*words, "--verify").exit_code == SOUND
