"""`slotscope fuzz generate` and `mutate`: folders, manifests, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from inspector.cli.app import app
from inspector.fuzzing.mutators import mutations
from inspector.fuzzing.subject import Subject
from inspector.report import examined

SAMPLE = Path(__file__).resolve().parents[2] / "samples/intact/ggsq4.hybrid--two-checkpoints.slot"
LISTED = SAMPLE.with_name("ggsq2.hybrid--with-stck2.slot")
PACKED = SAMPLE.with_name("ggsq2.hybrid--with-pkcl1.slot")
NAMED = {
    "name-of-a-model": "file.named-like-a-model",
    "name-link": "file.symlink",
    "companion-alone": "sidecar.orphan",
    "companion-link": "sidecar.unreadable",
}
"""Mutations that leave every byte as it is -> what is found then."""


def fuzz(*words: object) -> Result:
    return CliRunner().invoke(app, ["fuzz", *map(str, words)])


def manifest(folder: Path) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = json.loads((folder / "manifest.json").read_text())["files"]
    for one in files:
        assert hashlib.sha256((folder / one["file"]).read_bytes()).hexdigest() == one["sha256"]
        for companion in one["companions"]:
            assert (folder / companion["file"]).exists()
    return files


def test_generate(tmp_path: Path) -> None:
    words = ("--layout", "ggsq4.iswa", "--layout", "pkcl1", "--seed", 7, "--count", 12)
    made = fuzz("generate", "--out", tmp_path / "one", *words)
    assert made.exit_code == 0, made.output
    files = manifest(tmp_path / "one")
    assert len(files) == 12
    assert [one["layout"] for one in files[:2]] == ["ggsq4.iswa", "pkcl1"]
    assert any(one["companions"] for one in files)
    assert {one["expected"]["verdict"] for one in files} == {"recognised"}
    fuzz("generate", "--out", tmp_path / "two", *words)
    assert manifest(tmp_path / "two") == files


def test_generate_says_how_far_it_is(tmp_path: Path) -> None:
    """On a terminal; a pipe has nothing of it."""
    terminal, theirs = pty.openpty()
    layouts = [f"--layout=ggsq{n}.{kind}" for n in (2, 3, 4) for kind in ("hybrid", "iswa", "kv")]
    words = ("-c", "from inspector.cli import main; main()", "fuzz", "generate", *layouts)
    with subprocess.Popen(
        (sys.executable, *words, "--out", tmp_path / "a"), stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):
            while data := os.read(terminal, 4096):
                shown += data
        os.close(terminal)
    assert process.returncode == 0
    n_files = len(manifest(tmp_path / "a"))
    assert f" of {n_files} files".encode() in shown
    assert shown.endswith(b"\r\x1b[K"), "taken away at the end"
    assert fuzz("generate", "--layout", "pkcl1", "--out", tmp_path / "b").stderr == ""


def test_generate_writes_over_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"kept")
    refused = fuzz("generate", "--out", tmp_path, "--layout", "slck1")
    assert refused.exit_code == 2
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]
    assert fuzz("generate", "--out", tmp_path, "--layout", "slck1", "--force").exit_code == 0
    assert (tmp_path / "mine").read_bytes() == b"kept"


def test_generate_small_files_only(tmp_path: Path) -> None:
    words = ("--layout", "ggsq2.kv", "--layout", "cachyllama2", "--max-bytes", 4000)
    made = fuzz("generate", "--out", tmp_path, *words)
    (smallest,) = re.findall(
        r"nothing of 1 layout, cachyllama2: its smallest file has ([\d,]+) bytes, more than --max",
        made.stderr,
    )
    assert int(smallest.replace(",", "")) > 4000
    assert all(one["bytes"] <= 4000 for one in manifest(tmp_path))


def test_generate_nothing(tmp_path: Path) -> None:
    made = fuzz("generate", "--out", tmp_path, "--layout", "ggsq2.kv", "--max-bytes", 9)
    assert made.exit_code == 2
    assert "no file is left to write" in made.stderr
    assert not list(tmp_path.iterdir())


def test_generate_says_what_count_leaves_out(tmp_path: Path) -> None:
    layouts = ("--layout", "ggsq2.kv", "--layout", "ggsq2.iswa", "--layout", "ggsq2.hybrid")
    made = fuzz("generate", "--out", tmp_path, *layouts, "--count", 1)
    assert made.exit_code == 0
    assert made.stderr == "slotscope: --count 1 leaves out 2 of 3 layouts\n"


def test_generate_an_unknown_layout(tmp_path: Path) -> None:
    assert fuzz("generate", "--out", tmp_path, "--layout", "ggsq9.kv").exit_code == 2


def test_mutate(tmp_path: Path) -> None:
    made = fuzz("mutate", SAMPLE, LISTED, "--out", tmp_path / "out", "--count", 70, "--seed", 3)
    assert made.exit_code == 0, made.output
    files = manifest(tmp_path / "out")
    assert len(files) == 140
    assert len({one["mutator"] for one in files}) > 65
    assert {one["expected"]["loader"] for one in files} == {"refuse", "accept", "either"}
    for one in files[::20]:
        original, new = (SAMPLE, LISTED)[one["of"] == LISTED.name], tmp_path / "again.slot"
        again = fuzz("mutate", original, "--only", one["id"], "-o", new, "--force")
        assert again.exit_code == 0, again.output
        assert hashlib.sha256(new.read_bytes()).hexdigest() == one["sha256"]


def test_mutants_told_by_their_names(tmp_path: Path) -> None:
    fuzz("mutate", PACKED, "--out", tmp_path, "--count", 90)
    entries = {one["mutator"]: one for one in manifest(tmp_path)}
    found = {kind: entries[kind]["findings"] for kind in NAMED}
    assert all(code in found[kind] for kind, code in NAMED.items()), found
    model, link, alone, barred = (tmp_path / entries[kind]["file"] for kind in NAMED)
    assert (model.suffix, alone.suffix) == (".gguf", ".ckpt")
    assert alone.read_bytes() == Path(f"{PACKED}.ckpt").read_bytes()
    assert link.is_symlink()
    assert link.read_bytes() == PACKED.read_bytes()
    assert not Path(f"{barred}.ckpt").exists()
    assert entries["name-link"]["links"] == [link.name]
    assert entries["companion-link"]["links"] == [f"{barred.name}.ckpt"]


def test_one_mutant_told_by_its_name(tmp_path: Path) -> None:
    only = ("mutate", PACKED, "--only", "name-of-a-model@:0", "-o")
    assert "must end in .gguf" in fuzz(*only, tmp_path / "new.slot").output
    assert fuzz(*only, tmp_path / "new.gguf").exit_code == 0
    link = ("mutate", PACKED, "--only", "name-link@:0", "-o", tmp_path / "new.slot")
    assert fuzz(*link).exit_code == 0
    assert (tmp_path / "new.slot").readlink() == Path(".new.slot")
    assert (tmp_path / "new.slot").read_bytes() == PACKED.read_bytes()
    assert fuzz(*link).exit_code == 2
    assert fuzz(*link, "--force").exit_code == 0
    over = ("mutate", PACKED, "--only", "companion-link@.ckpt:0", "-o", tmp_path / "over.slot")
    (mine := tmp_path / "over.slot.ckpt").write_bytes(b"mine")
    assert fuzz(*over).exit_code == 2
    assert mine.read_bytes() == b"mine"
    assert not (tmp_path / "over.slot").exists()


def test_no_links_over_originals(tmp_path: Path) -> None:
    state = tmp_path / "a.slot"
    shutil.copyfile(PACKED, state)
    shutil.copyfile(f"{PACKED}.ckpt", f"{state}.ckpt")
    refused = fuzz("mutate", state, "--only", "name-link@:0", "-o", state, "--force")
    assert refused.exit_code == 2
    assert state.read_bytes() == PACKED.read_bytes()


def test_what_known_builds_do(tmp_path: Path) -> None:
    cut = tmp_path / "cut.slot"
    assert fuzz("mutate", SAMPLE, "--only", "cut-last@:0", "-o", cut).exit_code == 0
    with examined(cut) as report:
        assert "appendix.truncated" in {one.code for one in report.findings}
    fuzz("mutate", SAMPLE, "--out", tmp_path / "out", "--count", 70)
    builds = [one["builds"] for one in manifest(tmp_path / "out") if one["builds"]]
    assert {one["b10229"]["reason"] for one in builds} >= {"target.version-mismatch"}
    assert {one["b11549"]["outcome"] for one in builds} >= {"accepts", "refuses", "aborts"}


def test_originals_are_never_replaced(tmp_path: Path) -> None:
    fuzz("mutate", SAMPLE, "--out", tmp_path / "out", "--count", 1)
    (name,) = (one["file"] for one in manifest(tmp_path / "out"))
    state = tmp_path / "in" / name
    state.parent.mkdir()
    shutil.copyfile(SAMPLE, state)
    (beside := state.with_name(f"{name}.ckpt")).write_bytes(b"PKCL")
    (link := state.with_name("hard.slot")).hardlink_to(state)
    before = {path: path.read_bytes() for path in state.parent.iterdir()}
    only = ("mutate", state, "--only", "cut-last@:0", "-o")
    for words in (
        *((*only, new) for new in (state, beside, link)),
        ("mutate", state, "--out", state.parent),
    ):
        refused = fuzz(*words, "--force")
        assert refused.exit_code == 2
        assert "it is never written" in refused.output
        assert {path: path.read_bytes() for path in state.parent.iterdir()} == before
    new = tmp_path / "new"
    assert fuzz(*only, new).exit_code == 0
    new.unlink()
    (tmp_path / "new.ckpt").write_bytes(b"mine")
    assert fuzz(*only, new).exit_code == 2
    assert (tmp_path / "new.ckpt").read_bytes() == b"mine"


def test_wrong_words_of_mutate(tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert fuzz("mutate", SAMPLE).exit_code == 2
    assert fuzz("mutate", SAMPLE, "--only", "cut@recr:0").exit_code == 2
    for wrong in (
        "cut",
        "cut@nowhere:0",
        "burn@recr:0",
        "cut@.ckpt/records:0",
        "cut-inside@magic:1",
    ):
        assert fuzz("mutate", SAMPLE, "--only", wrong, "-o", new).exit_code == 2, wrong
    assert not new.exists()
    assert fuzz("mutate", tmp_path / "none", "--out", new).exit_code == 2


@pytest.mark.parametrize("name", ["", ".", "/", "-"])
def test_outputs_that_name_no_file(name: str) -> None:
    asked = ("--only", "cut-last@:0", "-o", name)
    for made in (
        fuzz("mutate", SAMPLE, *asked),
        fuzz("minimize", SAMPLE, "-o", name, "--", "true", "{}"),
        CliRunner().invoke(app, ["anonymize", str(SAMPLE), "-o", name]),
    ):
        assert made.exit_code == 2
        assert "is no name of a file" in made.output


def test_no_name_is_not_the_folder_where_we_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("--layout", "slck1", "--count", 1)
    for made in (fuzz("generate", "--out", "", *asked), fuzz("mutate", SAMPLE, "--out", "")):
        assert made.exit_code == 2
        assert "'' is no name of a folder" in made.output
    assert not list(tmp_path.iterdir())
    assert fuzz("generate", "--out", ".", *asked).exit_code == 0
    assert (tmp_path / "manifest.json").exists()


def test_companions_of_an_earlier_file_do_not_stay(tmp_path: Path) -> None:
    new, stale, record = (tmp_path / f"n.slot{end}" for end in ("", ".ckpt", ".slotscope.json"))
    only = ("mutate", SAMPLE, "--only", "cut-last@:0", "-o", new)
    for old in (stale, record):
        old.write_bytes(b"of an earlier file")
        refused = fuzz(*only)
        assert (refused.exit_code, new.exists(), old.exists()) == (2, False, True)
        assert f"{old} is there already, and would be taken for a companion" in refused.output
        done = fuzz(*only, "--force")
        assert (done.exit_code, old.exists()) == (0, False)
        assert f"{old}: removed" in done.output
        new.unlink()
    (save := tmp_path / "n.slot.tmp").write_bytes(b"of another program")
    refused = fuzz(*only, "--force")
    assert (refused.exit_code, new.exists(), save.exists()) == (2, False, True)
    assert "it is not removed" in refused.output


def test_originals_are_no_stale_companions(tmp_path: Path) -> None:
    state, new = tmp_path / "a.slot", tmp_path / "n.slot"
    shutil.copyfile(PACKED, state)
    shutil.copyfile(f"{PACKED}.ckpt", f"{state}.ckpt")
    (beside := tmp_path / "n.slot.ckpt").hardlink_to(f"{state}.ckpt")
    refused = fuzz("mutate", state, "--only", "companion-lost@.ckpt:0", "-o", new, "--force")
    assert (refused.exit_code, new.exists(), beside.exists()) == (2, False, True)
    assert "it is never written" in refused.output


def test_a_link_to_nowhere_leads_nowhere(tmp_path: Path) -> None:
    (hidden := tmp_path / ".n.slot.ckpt").write_bytes(b"of an earlier file")
    only = ("mutate", PACKED, "--only", "companion-link@.ckpt:0", "-o", tmp_path / "n.slot")
    assert fuzz(*only).exit_code == 2
    assert hidden.exists()
    assert fuzz(*only, "--force").exit_code == 0
    assert (tmp_path / "n.slot.ckpt").is_symlink()
    assert not (tmp_path / "n.slot.ckpt").exists()


def test_of_an_earlier_run_nothing_stays(tmp_path: Path) -> None:
    """Files, companions, links and what they lead to; not what somebody changed or added."""
    first = ("mutate", PACKED, "--out", tmp_path)
    fuzz(*first, "--count", 90)
    files = manifest(tmp_path)
    assert {name for one in files for name in named(one)} | {"manifest.json"} == names(tmp_path)
    assert any(one["hidden"] for one in files)
    changed, mine = tmp_path / files[1]["file"], tmp_path / "mine"
    for path in (changed, mine):
        path.write_bytes(b"kept")
    done = fuzz(*first, "--count", 1, "--force")
    assert done.exit_code == 0, done.output
    assert "of an earlier run removed" in done.output
    (one,) = manifest(tmp_path)
    assert names(tmp_path) == {*named(one), "manifest.json", changed.name, "mine"}
    assert changed.read_bytes() == mine.read_bytes() == b"kept"


def named(entry: dict[str, Any]) -> set[str]:
    files = (entry, *entry["companions"], *entry["hidden"])
    return {one["file"] for one in files} | {*entry["links"]}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["mutate", "generate"])
def test_what_would_be_a_companion_stops_it(tmp_path: Path, kind: str) -> None:
    words = {"mutate": ("mutate", SAMPLE), "generate": ("generate", "--layout", "ggsq2.kv")}[kind]
    words = (*words, "--count", 3, "--out", tmp_path)
    fuzz(*words)
    name = manifest(tmp_path)[2]["file"]
    for foreign in (f"{name}.ckpt", f".{name}.checkpoints", f"{name}.slotscope.json"):
        (tmp_path / foreign).write_bytes(b"of somebody else")
        before = names(tmp_path)
        refused = fuzz(*words, "--force")
        assert refused.exit_code == 2
        assert f"{foreign} would be taken for a companion of a new file" in refused.output
        assert names(tmp_path) == before
        (tmp_path / foreign).unlink()
    assert fuzz(*words, "--force").exit_code == 0


def test_originals_of_an_earlier_run_stay(tmp_path: Path) -> None:
    fuzz("generate", "--layout", "ggsq2.kv", "--count", 3, "--out", tmp_path)
    original, *others = (tmp_path / one["file"] for one in manifest(tmp_path))
    before = original.read_bytes()
    assert fuzz("mutate", original, "--count", 1, "--out", tmp_path, "--force").exit_code == 0
    assert original.read_bytes() == before
    assert not any(path.exists() for path in others)


@pytest.mark.parametrize("text", ["{", '{"schema": "of/1", "files": []}', "[]"])
def test_other_manifests_are_never_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    refused = fuzz("generate", "--layout", "slck1", "--out", tmp_path, "--force")
    assert refused.exit_code == 2
    assert "it is never replaced" in refused.output
    assert (tmp_path / "manifest.json").read_text() == text
    assert names(tmp_path) == {"manifest.json"}


def test_manifests_name_no_files_elsewhere(tmp_path: Path) -> None:
    out = tmp_path / "out"
    fuzz("generate", "--layout", "slck1", "--count", 1, "--out", out)
    (entry,) = manifest(out)
    document = json.loads((out / "manifest.json").read_text())
    outside = Path(shutil.copy(out / entry["file"], tmp_path / "outside"))
    for name in ("../outside", str(outside), "..", ""):
        document["files"].append({**entry, "file": name})
    (out / "manifest.json").write_text(json.dumps(document))
    again = fuzz("generate", "--layout", "slck1", "--count", 1, "--out", out, "--force")
    assert again.exit_code == 0
    assert outside.exists()


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    other.write_bytes(b"kept")
    fuzz("generate", "--layout", "slck1", "--count", 1, "--out", out)
    (entry,) = manifest(out)
    (out / entry["file"]).unlink()
    (out / entry["file"]).symlink_to(other)
    refused = fuzz("generate", "--layout", "slck1", "--count", 1, "--out", out, "--force")
    assert refused.exit_code == 2
    assert "is a symbolic link" in refused.output
    assert other.read_bytes() == b"kept"


@pytest.mark.parametrize("kind", ["fuzz", "fuzz_mutate"])
def test_ctrl_c_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    written: list[Path] = []

    def put(path: Path, *rest: object) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        path.write_bytes(b"")
        written.append(path)

    monkeypatch.setattr(f"inspector.cli.{kind}.put", put)
    words = {"fuzz": ("generate",), "fuzz_mutate": ("mutate", SAMPLE)}[kind]
    stopped = fuzz(*words, "--out", tmp_path)
    assert stopped.exit_code == 130
    assert f"stopped: {tmp_path} has no manifest.json\n" in stopped.stderr
    assert not (tmp_path / "manifest.json").exists()


def test_a_companion_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    state, beside = tmp_path / "a.slot", tmp_path / "a.slot.ckpt"
    shutil.copyfile(SAMPLE, state)
    beside.touch()
    os.truncate(beside, (64 << 20) + 1)
    refused = fuzz("mutate", state, "--only", "cut-last@:0", "-o", tmp_path / "new")
    assert refused.exit_code == 2
    assert f"{beside}: larger than 64 MiB" in refused.output


def test_names_move_no_cursor(tmp_path: Path) -> None:
    name, shown = "a\x1b[2Jb", "a\\x1b[2Jb"
    for words in (
        ("generate", "--layout", "slck1", "--count", 1, "--out", tmp_path / f"{name}1"),
        ("mutate", SAMPLE, "--count", 1, "--out", tmp_path / f"{name}2"),
        ("mutate", SAMPLE, "--only", "cut-last@:0", "-o", tmp_path / f"{name}3"),
    ):
        made = fuzz(*words)
        assert (made.exit_code, "\x1b" in made.stdout, shown in made.stdout) == (0, False, True)


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "x.slot" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        shutil.copyfile(SAMPLE, path)
    asked = (*paths, LISTED, paths[0], "--count", 2, "--out", tmp_path / "out")
    made = fuzz("mutate", *asked)
    assert made.stderr == f"slotscope: {paths[0]}: named twice, taken once\n"
    of = [one["of"] for one in manifest(tmp_path / "out")]
    assert of == [name for name in (*map(str, paths), LISTED.name) for _ in range(2)]


def test_a_list_is_added_where_there_is_none() -> None:
    subjects = (
        Subject(b"PK\3\4", {suffix: b""} if suffix else {}) for suffix in ("", ".gen", ".ckpt")
    )
    added = [
        [path for mutator, path in mutations(one) if mutator.name == "companion-added"]
        for one in subjects
    ]
    assert added == [[""], [""], []]
