"""`slotscope fuzz run` and `slotscope fuzz minimize`, with a program that loads as servers do."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from inspector.fuzzing.gist import gist_of
from inspector.fuzzing.loader import CommandLoader, Limits, Outcome, ended
from inspector.fuzzing.minimize import Minimizer
from inspector.fuzzing.reshape import Change, reshaped
from inspector.identify import identify
from inspector.report import examined
from inspector.source import opened
from samples.make import HERE as SAMPLES
from tests.support.powers import powerless
from tests.support.writer import (
    DIALECTS,
    F16,
    Cache,
    Memory,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
)

STAND_IN = Path(__file__).parents[1] / "support" / "stand_in.py"
LOADER = (sys.executable, "-I", "-S", str(STAND_IN), "{}")
PATIENT = Limits(seconds=60)
"""Machines that run tests have other things to do."""
KINDS = {".slot", ".ckpt", ".checkpoints", ".gen", ".hbnd"}


def state(n_cells: int, row_bytes: int = 32) -> bytes:
    tokens = Tokens(tuple(1 + i % 250 for i in range(n_cells)))
    rows = (Row(F16, row_bytes),) * 2
    memory = Memory({"attn": Cache((cells_of(tokens),), k=rows, v=rows)}, DIALECTS[""])
    return pack(Slot(2, tokens, memory)).data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of which the loader does one of everything with each."""
    files = tmp_path / "files"
    files.mkdir()
    data = state(12)
    count_at = 12 + 4 * 12 + 4
    (files / "whole.slot").write_bytes(data)
    (files / "cut.slot").write_bytes(data[:-1])
    (files / "cut-early.slot").write_bytes(data[:-700])
    (files / "version.slot").write_bytes(data[:4] + b"\3" + data[5:])
    (files / "huge.slot").write_bytes(data[:count_at] + b"\xff\xff\xff\x7f" + data[count_at + 4 :])
    pos_at = count_at + 4
    (files / "hangs.slot").write_bytes(data[:pos_at] + struct.pack("<i", -666) + data[pos_at + 4 :])
    return files


def invoked(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["fuzz", *map(str, words)])
    return done.exit_code, done.stdout if "--json" in words else done.output


def test_run(folder: Path, tmp_path: Path) -> None:
    xml = tmp_path / "run.xml"
    limits = ("--timeout", "60", "--cpu-time", "1", "--memory", "2048", "--jobs", "2")
    asked = ("run", folder, "--compare", "--junit", xml, *limits)
    code, said = invoked(*asked, "--json", "--", *LOADER)
    found = json.loads(said)
    assert code == 1
    assert {one["file"]: one["outcome"] for one in found["results"]} == {
        "whole.slot": "ok",
        "cut.slot": "crash",
        "cut-early.slot": "crash",
        "version.slot": "refused",
        "huge.slot": "out of memory",
        "hangs.slot": "hang",
    }
    crashes = [one for one in found["failures"] if one["outcome"] == "crash"]
    assert [sorted(one["files"]) for one in crashes] == [["cut-early.slot", "cut.slot"]]
    assert crashes[0]["detail"] == "SIGABRT"
    assert crashes[0]["gist"] == "what(): unexpectedly reached end of buffer (# + #)"
    suite = ElementTree.fromstring(xml.read_text()).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("6", "5"), (
        "two kinds of crashes, and version 3"
    )
    journal = (folder / ".slotscope-run.jsonl").read_text()
    code, said = invoked(*asked, "--", *LOADER)
    assert code == 1
    assert (folder / ".slotscope-run.jsonl").read_text() == journal, "nothing is loaded again"
    assert "6 files · 1 ok · 1 refused · 2 crash · 1 hang · 1 out of memory" in said
    assert 0 < said.index("\ndisagreement: we say ") < said.index("\ncrash SIGABRT"), (
        "they come first"
    )


def test_a_record_is_no_file_to_load(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.slot").write_bytes(state(12))
    (files / "a.slot.slotscope.json").write_text("{}")
    _, said = invoked("run", files, "--json", "--", "true", "{}")
    assert [one["file"] for one in json.loads(said)["results"]] == ["a.slot"]


def test_goes_on_where_it_was_stopped(folder: Path) -> None:
    journal = folder / ".slotscope-run.jsonl"
    (folder / "hangs.slot").unlink()
    invoked("run", folder, "--timeout", "60", "--", *LOADER)
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:3]) + lines[3][:20])
    (folder / "whole.slot").write_bytes(state(13))
    code, said = invoked("run", folder, "--timeout", "60", "--json", "--", *LOADER)
    assert (code, json.loads(said)["done"]) == (1, 5)
    known = [
        json.loads(line)["file"] for line in journal.read_text().splitlines()[1:] if "}" in line
    ]
    assert len(known) == 5 + ("whole.slot" in "".join(lines[1:3]))
    code, said = invoked("run", folder, "--", sys.executable, "{}")
    assert code == 2
    assert "is the journal of" in said


def interrupted(
    words: tuple[str | Path, ...], begun: Path, *, group: bool = False
) -> tuple[int, str, str]:
    """`fuzz WORDS`, and Ctrl-C as soon as a loader says in a file that it has begun."""
    ours = subprocess.Popen(
        (sys.executable, "-c", "from inspector.cli import main; main()", "fuzz", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < until:
        time.sleep(0.02)
    (os.killpg if group else os.kill)(ours.pid, signal.SIGINT)
    said, complaints = ours.communicate(timeout=60)
    return ours.returncode, said, complaints


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("jobs", [1, 3])
def test_what_is_being_loaded_when_it_is_stopped_is_loaded_again(
    tmp_path: Path, jobs: int, group: bool
) -> None:
    """A loader that we end ourselves has no result, neither in the counts nor in the journal."""
    files, begun = filled(tmp_path / "files", 8), tmp_path / "begun"
    loader = script(
        tmp_path / "loader",
        f"case $1 in */[5-7].slot) [ -e {begun} ] || {{ sleep 1; touch {begun}; sleep 60; }};; "
        "esac\n",
    )
    asked = ("run", files, "--timeout", "90", "--jobs", str(jobs), "--json", "--", *loader)
    code, said, _ = interrupted(asked, begun, group=group)
    found = json.loads(said)
    journal = (files / ".slotscope-run.jsonl").read_text().splitlines()[1:]
    assert code == 130
    assert {one["outcome"] for one in found["results"]} == {"ok"}
    assert found["done"] == len(journal) == found["counts"]["ok"]
    assert {json.loads(line)["file"] for line in journal} == {
        one["file"] for one in found["results"]
    }
    assert len(journal) < 8, "some were being loaded"
    code, said = invoked(*asked)
    found = json.loads(said)
    assert (code, found["counts"]["ok"], found["from_journal"]) == (0, 8, len(journal))


def test_a_file_in_a_server_that_is_stopped_is_loaded_again(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_bytes(b"well")
    (files / "b").write_bytes(f"waits 5 {tmp_path}/begun".encode())
    (tmp_path / "server.py").write_text(SERVER)
    server = f"{sys.executable} {tmp_path}/server.py"
    asked = ("run", files, "--server", server, "--timeout", "60", "--json")
    code, said, _ = interrupted(asked, tmp_path / "begun")
    assert (code, json.loads(said)["done"]) == (130, 1)
    code, said = invoked(*asked)
    assert (code, json.loads(said)["counts"]["ok"]) == (0, 2)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "either a command or --server"),
        (("--", "true"), "does not say where the file goes"),
        (("--", "no-such-program", "{}"), "there is no program no-such-program"),
        (("--server", "no-such-program -m x"), "there is no program no-such-program"),
        (("--server", "true"), "the server does not start"),
    ],
)
def test_wrong_usage(folder: Path, words: tuple[str, ...], complaint: str) -> None:
    code, said = invoked("run", folder, *words)
    assert code == 2
    assert complaint in said


def test_where_no_journal_can_be(tmp_path: Path) -> None:
    files, run = filled(tmp_path / "files"), ("fuzz", "run")
    (closed := files / "closed").mkdir()
    says = {}
    try:
        files.chmod(0o555)
        says["--state names another"] = powerless(*run, files, "--", "true", "{}")
        state = ("--state", tmp_path / "journal")
        closed.chmod(0o300)
        says["closed: Permission denied"] = powerless(*run, files, *state, "--", "true", "{}")
        (closed / "a.slot").write_bytes(b"1")
        closed.chmod(0o600)
        says["a.slot: Permission denied"] = powerless(*run, files, *state, "--", "true", "{}")
    finally:
        files.chmod(0o700)
        closed.chmod(0o700)
    for words, done in says.items():
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    code, said = invoked("run", files, "--state", tmp_path / "none/j", "--", "true", "{}")
    assert code == 2
    assert "none/j: No such file or directory" in said


def test_no_files_are_no_success(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    code, said = invoked("run", tmp_path, "--", "true", "{}")
    assert code == 2
    assert "no files" in said


def test_nothing_is_replaced_but_a_report(tmp_path: Path) -> None:
    files = filled(tmp_path / "files")
    (other := tmp_path / "other.xml").write_text("<?xml version='1.0'?>\n<testsuites />\n")
    journal = files / ".slotscope-run.jsonl"
    for path in (files / "1.slot", other):
        before = path.read_bytes()
        code, said = invoked("run", files, "--junit", path, "--", "true", "{}")
        assert (code, path.read_bytes(), journal.exists()) == (2, before, False)
        assert "is no JUnit report of fuzz run" in said
    code, said = invoked(
        "run", files, "--junit", tmp_path / "j", "--state", tmp_path / "j", "--", "true", "{}"
    )
    assert code == 2
    assert "slotscope.fuzz-run/1" in (tmp_path / "j").read_text()
    page = files / "report.xml"
    for _ in range(2):
        code, said = invoked("run", files, "--junit", page, "--json", "--", "true", "{}")
        assert (code, json.loads(said)["files"]) == (0, 3)
    assert page.read_text().count("<testcase") == 3


def test_the_original_is_not_made_small(tmp_path: Path) -> None:
    (path := tmp_path / "state.slot").write_bytes(state(3))
    (loader := tmp_path / "new.py").write_text("exit(9)\n")
    before = path.read_bytes(), loader.read_bytes()
    for new in (path, tmp_path / "new"):
        words = ("minimize", path, "-o", new, "--force", "--refuses", "1")
        code, said = invoked(*words, "--", sys.executable, str(loader), "{}")
        assert (code, path.read_bytes(), loader.read_bytes()) == (2, *before)
        assert "it is never written" in said


def test_exit_codes() -> None:
    assert ended(0, "") == (Outcome.OK, "")
    assert ended(-9, "") == (Outcome.MEMORY, "SIGKILL")
    assert ended(137, "") == (Outcome.REFUSED, "exit code 137")
    assert ended(137, "", frozenset({1})) == (Outcome.CRASH, "exit code 137")
    assert ended(134, "", frozenset({134})) == (Outcome.CRASH, "SIGABRT")
    assert ended(3, "") == (Outcome.REFUSED, "exit code 3")
    assert ended(3, "", frozenset({1})) == (Outcome.CRASH, "exit code 3")
    assert ended(-6, "") == (Outcome.CRASH, "SIGABRT")
    assert ended(139, "") == (Outcome.CRASH, "SIGSEGV")
    assert ended(-6, "what():  std::bad_alloc") == (Outcome.MEMORY, "SIGABRT")
    assert ended(101, "thread 'main' panicked at src/x.rs:3:5:")[0] is Outcome.CRASH


def test_gists() -> None:
    sanitizer = """==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000014
    #0 0x55d0c8 in read_cells(Reader&) /src/a/kv.cpp:31:9
    #1 0x55d1c8 in load /src/a/kv.cpp:99:9
"""
    assert gist_of(sanitizer).endswith(" at read_cells(Reader&) < load")
    python = 'Traceback (most recent call last):\n  File "x.py", line 9, in load\nKeyError: 17\n'
    assert gist_of(python) == "KeyError: # at load"
    assert gist_of("/src/kv.cpp:12: GGML_ASSERT(n <= 4) failed\n") == (
        "kv.cpp:#: GGML_ASSERT(n <= #) failed"
    )
    torn = "0.00.054.054 /src/kv.cpp:12: no cell\nI slot: a task\n0.00.054.064 E slot: failed\n"
    assert gist_of(torn) == "kv.cpp:#: no cell"
    assert gist_of("cannot load a.slot: 3 bytes\n", ("a.slot",)) == "cannot load {}: # bytes"


ASAN = """=================================================================
==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000102 at pc 0x55d0c8
READ of size 1 at 0x602000000102 thread T0
    #0 0x55d0c8 in read_cells /src/a/kv.cpp:31:9
SUMMARY: AddressSanitizer: heap-buffer-overflow /src/a/kv.cpp:31:9 in read_cells
==7==ABORTING
"""
UBSAN = "/src/a/kv.cpp:3:5: runtime error: shift exponent 64 is too large\n"
GAP = "==7==ERROR: Failed to protect the shadow gap. AddressSanitizer cannot proceed. ABORTING.\n"
UNMAPPED = "==7==ERROR: AddressSanitizer failed to allocate 0xdff (3583) bytes (errno: 12)\n"
NO_ROOM = "==7==ERROR: AddressSanitizer: requested allocation size 0xffff exceeds maximum\n"
"""What programs print that gcc 12 has built with sanitizers."""


@pytest.mark.parametrize("code", [0, 1, -6])
@pytest.mark.parametrize(
    ("log", "outcome", "gist"),
    [
        (f"failed to allocate a cache\n{ASAN}", Outcome.CRASH, "AddressSanitizer: heap-buffer-"),
        (UBSAN, Outcome.CRASH, "kv.cpp:#:#: runtime error: shift exponent # is"),
        (GAP, Outcome.CRASH, "==#==ERROR: Failed to protect the shadow gap."),
        (UNMAPPED, Outcome.CRASH, "AddressSanitizer failed to allocate"),
        (NO_ROOM, Outcome.MEMORY, "AddressSanitizer: requested allocation size"),
    ],
)
def test_sanitizers_are_believed(code: int, log: str, outcome: Outcome, gist: str) -> None:
    assert ended(code, log)[0] is outcome
    assert gist in gist_of(log)


def test_long_logs_take_no_long_time() -> None:
    start = time.monotonic()
    assert ended(1, "ERROR: " * (1 << 14))[0] is Outcome.REFUSED
    assert time.monotonic() - start < 5


def test_short_names_are_no_parts_of_words() -> None:
    assert gist_of("cannot load a: bad\n", ("/tmp/a", "a")) == "cannot load {}: bad"


def script(path: Path, body: str) -> tuple[str, str, str]:
    """A loader in the language of shells; $1 is the file."""
    path.write_text(body)
    return "sh", str(path), "{}"


def filled(folder: Path, n: int = 3) -> Path:
    folder.mkdir()
    for index in range(n):
        (folder / f"{index}.slot").write_bytes(bytes([index]) * 8)
    return folder


def test_a_loader_that_never_starts(tmp_path: Path) -> None:
    """As one with AddressSanitizer under a limit of address space that is too low for it."""
    files = filled(tmp_path / "files")
    loader = script(tmp_path / "loader", f"echo '{GAP.strip()}' >&2; exit 1\n")
    code, said = invoked("run", files, "--", *loader)
    assert code == 1, "no refusals"
    assert "3 files · 3 crash" in said
    assert "warning: every file ended the same way" in " ".join(said.split())
    assert "--memory 0" in said
    code, said = invoked("run", filled(tmp_path / "one", 1), "--", *loader)
    assert "warning" not in said, "one file says nothing of a loader"
    other = script(tmp_path / "other", 'read line <"$1"; echo no cells >&2; exit 1\n')
    code, said = invoked("run", files, "--state", tmp_path / "journal", "--", *other)
    assert (code, "warning" in said, "--memory" in said) == (0, True, False)


def test_no_limit_of_memory(tmp_path: Path) -> None:
    loader = script(tmp_path / "loader", "ulimit -v >&2; exit 1\n")
    files = filled(tmp_path / "files", 1)
    for memory, says in (("0", "unlimited"), ("64", "#")):
        _, said = invoked("run", files, "--memory", memory, "--json", "--", *loader)
        assert json.loads(said)["results"][0]["gist"] == says
    assert "0 for no limit" in " ".join(invoked("run", "--help")[1].split())


OVERFLOWS = """
#include <stdio.h>
#include <stdlib.h>
int main(int n, char **words) {
    unsigned char *bytes = calloc(16, 1);
    FILE *file = fopen(words[1], "rb");
    size_t got = fread(bytes, 1, 16, file);
    fclose(file);
    int value = bytes[bytes[0]];
    free(bytes);
    return got < 8 || value > 255;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_a_real_address_sanitizer(tmp_path: Path) -> None:
    source, loader = tmp_path / "loader.c", tmp_path / "loader"
    source.write_text(OVERFLOWS)
    built = subprocess.run(
        ["gcc", "-g", "-fsanitize=address", source, "-o", loader], capture_output=True, check=False
    )
    if built.returncode:
        pytest.skip("this gcc has no AddressSanitizer")
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_bytes(b"\2" + bytes(7))
    (files / "b").write_bytes(b"\xf2" + bytes(7))
    (files / "c").write_bytes(b"\2")
    asked = ("run", files, "--timeout", "60", "--json")
    code, said = invoked(*asked, "--memory", "0", "--", loader, "{}")
    found = json.loads(said)
    assert [one["outcome"] for one in found["results"]] == ["ok", "crash", "refused"]
    assert "AddressSanitizer: heap-buffer-overflow" in found["results"][1]["gist"]
    assert (code, found["all_alike"]) == (1, False)
    code, said = invoked("run", files, "--timeout", "60", "--", loader, "{}")
    assert code == 1
    assert "every file ended the same way" in " ".join(said.split())


def test_results_of_another_program_are_not_used(tmp_path: Path) -> None:
    files = filled(tmp_path / "files")
    loader = script(tmp_path / "loader", "exit 1\n")
    asked = ("run", files, "--", *loader)
    assert "3 refused" in invoked(*asked)[1]
    _, said = invoked(*asked)
    assert "3 results taken from" in said
    assert "delete it to run again" in said
    script(tmp_path / "loader", "exit  0\n# mended\n")
    _, said = invoked(*asked)
    assert "3 results not used: the program has changed since" in said
    assert "3 ok" in said
    assert "taken from" not in said
    _, said = invoked("run", files, "--timeout", "20", "--", *loader)
    assert "or the limits are others" in said
    assert "taken from" not in said
    _, said = invoked(*asked)
    assert "3 results taken from" in said, "those of the first limits are still there"
    assert "not used" not in said


def test_what_lies_beside_a_file_is_part_of_what_is_loaded(tmp_path: Path) -> None:
    """A result is used again only while companions, and what links lead to, are the same."""
    files = filled(tmp_path / "files", 2)
    (away := tmp_path / "away").write_bytes(b"first")
    (tmp_path / "copy").write_bytes(b"first")
    (files / "2.slot").symlink_to(tmp_path / "copy")
    companion = files / "0.slot.ckpt"

    def again() -> list[str]:
        """Files that are loaded anew."""
        journal = files / ".slotscope-run.jsonl"
        n_before = len(journal.read_text().splitlines()) if journal.exists() else 1
        invoked("run", files, "--", "true", "{}")
        lines = journal.read_text().splitlines()[n_before:]
        return [json.loads(line)["file"] for line in lines]

    def linked(path: Path, target: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    assert again() == ["0.slot", "1.slot", "2.slot"]
    for change in (
        lambda: companion.write_bytes(b"first"),
        lambda: companion.write_bytes(b"other"),
        lambda: linked(companion, away),
        lambda: away.write_bytes(b"other"),
        away.unlink,
        lambda: linked(companion, companion),
        lambda: (companion.unlink(), companion.mkdir()),
        lambda: (files / "0.slot.slotscope.json").write_text("{}"),
    ):
        change()
        assert again() == ["0.slot"]
        assert again() == []
    companion.rmdir()
    (files / "0.slot.slotscope.json").unlink()
    assert again() == [], "as it was at first"
    away.write_bytes(b"first")
    linked(files / "2.slot", away)
    assert again() == ["2.slot"], "another link to the same bytes"


def test_libraries_are_of_the_program(tmp_path: Path) -> None:
    program, library = tmp_path / "loader", tmp_path / "libllama.so.1"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    library.write_bytes(b"old")
    before = CommandLoader((str(program), "{}"), Limits()).version
    assert CommandLoader((str(program), "{}"), Limits()).version == before
    library.write_bytes(b"newer")
    assert CommandLoader((str(program), "{}"), Limits()).version != before


def test_who_had_to_wait_does_not_hang(tmp_path: Path) -> None:
    """One waits longer than it may, for the others or for a processor; another for ever."""
    files = filled(tmp_path / "files", 4)
    (files / "2.slot").write_bytes(b"waits")
    (files / "3.slot").write_bytes(b"for ever")
    loader = script(
        tmp_path / "loader",
        f"echo begin $1 >>{tmp_path}/log\n"
        'grep -q waits "$1" && sleep 3\ngrep -q ever "$1" && sleep 600\n'
        f"echo end $1 >>{tmp_path}/log\n",
    )
    asked = ("--timeout", "2", "--jobs", "4", "--json")
    _, said = invoked("run", files, *asked, "--", *loader)
    results = json.loads(said)["results"]
    assert [one["outcome"] for one in results] == ["ok", "ok", "ok", "hang"]
    assert re.fullmatch(r"over 6 s, [01]\.\d s of CPU time", results[3]["detail"])
    assert results[3]["cpu_seconds"] < 2
    log = (tmp_path / "log").read_text().splitlines()
    assert log[-3:] == [f"begin {files}/2.slot", f"end {files}/2.slot", f"begin {files}/3.slot"]
    assert len((files / ".slotscope-run.jsonl").read_text().splitlines()) == 5


def test_who_was_at_work_all_the_time_hangs(tmp_path: Path) -> None:
    """No second look at it: that would take three times as long, and say the same."""
    loader = script(tmp_path / "loader", f"echo begin >>{tmp_path}/log\nwhile :; do :; done\n")
    asked = ("--timeout", "60", "--cpu-time", "1", "--json")
    _, said = invoked("run", filled(tmp_path / "files", 1), *asked, "--", *loader)
    (result,) = json.loads(said)["results"]
    assert (result["outcome"], result["detail"]) == ("hang", "SIGXCPU, 1 s of CPU time")
    assert (tmp_path / "log").read_text() == "begin\n"


def test_who_waits_and_who_computes_hang_otherwise(tmp_path: Path) -> None:
    files = filled(tmp_path / "files", 4)
    for name in ("0.slot", "1.slot"):
        (files / name).write_bytes(b"waits")
    loader = script(
        tmp_path / "loader", 'grep -q waits "$1" && exec sleep 600\nwhile :; do :; done\n'
    )
    asked = ("--timeout", "1.5", "--cpu-time", "1", "--jobs", "2")
    _, said = invoked("run", files, *asked, "--json", "--", *loader)
    groups = {tuple(sorted(one["files"])): one["detail"] for one in json.loads(said)["failures"]}
    assert set(groups) == {("0.slot", "1.slot"), ("2.slot", "3.slot")}
    assert groups["0.slot", "1.slot"].startswith("over 4.5 s, 0.")
    code, said = invoked("run", files, *asked, "--", *loader)
    assert code == 1
    assert len(re.findall(r"^hang .* · 2 files$", said, re.MULTILINE)) == 2


@pytest.mark.parametrize("times", [1, 2])
def test_what_fails_at_random_is_not_minimized(tmp_path: Path, times: int) -> None:
    """It fails with every smaller file so many times, and then no more."""
    (path := tmp_path / "state.slot").write_bytes(b"whatever" * 40)
    log, new = tmp_path / "log", tmp_path / "new"
    loader = script(
        tmp_path / "loader",
        f"size=$(stat -c %s $1); echo $size >>{log}\n"
        f"[ $size = 320 ] || [ $(grep -cx $size {log}) -le {times} ] || exit 1\n"
        "kill -SEGV $$\n",
    )
    code, said = invoked("minimize", path, "-o", new, "--", *loader)
    assert (code, new.exists()) == (1, False)
    assert "the loader fails at random: it did so with the 0 bytes that are left" in said


@pytest.mark.parametrize("group", [False, True])
def test_ctrl_c_keeps_what_is_smaller(tmp_path: Path, group: bool) -> None:
    (path := tmp_path / "state.slot").write_bytes(state(200)[:-1])
    begun, new = tmp_path / "begun", tmp_path / "new"
    (tmp_path / "log").touch()
    loader = script(
        tmp_path / "loader",
        f"[ $(stat -c %s $1) -lt 12000 ] && echo >>{tmp_path}/log\n"
        f"[ $(wc -l <{tmp_path}/log) -gt 3 ] && {{ touch {begun}; sleep 0.5; }}; kill -SEGV $$\n",
    )
    code, said, complaints = interrupted(
        ("minimize", path, "-o", new, "--", *loader), begun, group=group
    )
    assert (code, complaints) == (130, "slotscope: stopped\n")
    assert new.stat().st_size < path.stat().st_size
    assert f"now {new.stat().st_size:,}\nstill fails: crash SIGSEGV\n" in said


def test_ctrl_c_before_anything_is_smaller(tmp_path: Path) -> None:
    (path := tmp_path / "state.slot").write_bytes(state(20))
    begun, new = tmp_path / "begun", tmp_path / "new"
    loader = script(tmp_path / "loader", f"touch {begun}; sleep 5; kill -SEGV $$\n")
    code, said, complaints = interrupted(("minimize", path, "-o", new, "--", *loader), begun)
    assert (code, said, complaints) == (130, "", "slotscope: stopped: nothing smaller was found\n")
    assert not new.exists()


def test_a_refusal_is_not_minimized(tmp_path: Path) -> None:
    loader = script(tmp_path / "loader", "echo bad magic >&2; exit 1\n")
    (path := tmp_path / "state.slot").write_bytes(state(3))
    new = tmp_path / "new"
    code, said = invoked("minimize", path, "-o", new, "--", *loader)
    assert (code, new.exists()) == (1, False)
    assert "the loader only refuses this file (exit code 1)" in said
    code, said = invoked("minimize", path, "-o", new, "--refuses", "9", "--", *loader)
    assert (code, new.read_bytes()) == (0, b""), "asked for"


def test_disagreements_are_grouped(tmp_path: Path) -> None:
    files = tmp_path / "mutants"
    (tmp_path / "state.slot").write_bytes(state(12))
    invoked("mutate", tmp_path / "state.slot", "--out", files, "--count", "200")
    asked, true = ("run", files, "--compare"), ("--", "true", "{}")
    code, said = invoked(*asked, *true)
    assert code == 1
    assert "200 files · 200 ok · " in said
    group = said[said.index("says refuses, it does: ok · ") :].split("\n\n")[0]
    total, rows = int(group.splitlines()[0].split()[-2]), group.splitlines()[2:]
    row = re.fullmatch(r" +(\d+) +([a-z-]+) +\d{5}-\2\.slot \+ (\d+) more", rows[0])
    assert row is not None
    assert int(row[1]) == int(row[3]) + 1
    (left,) = re.findall(r"and (\d+) more kinds", rows[-1])
    assert len(rows) == 41
    assert total > 100
    files = [
        one["file"] for one in json.loads(invoked(*asked, "--json", *true)[1])["disagreements"]
    ]
    kinds = {name.partition("-")[2] for name in files}
    assert (len(files), len(kinds)) == (total, 40 + int(left))


def readable() -> list[Path]:
    found = [path for path in SAMPLES.glob("*/*") if path.suffix in KINDS]
    return sorted(path for path in found if "container" not in path.name)


def test_nothing_changed_is_the_same_file() -> None:
    compared = 0
    for path in readable():
        with opened(path) as source:
            reading = identify(source).reading
            if reading is None or reading.decoding.root.span.start:
                continue
            pieces = reshaped(source, reading.decoding, Change())
            assert b"".join(piece.data for piece in pieces) == path.read_bytes(), path.name
            compared += 1
    assert compared > 300


def test_counts_take_along_what_they_count(tmp_path: Path) -> None:
    path = tmp_path / "state.slot"
    for data, n in ((state(12), 12), (state(5), 5)):
        path.write_bytes(data)
        with examined(path) as report:
            reading = report.identification.reading
            assert reading is not None
            numbers = {"attn.streams[0].cell_count": n - 2, "n_token_count": n - 2}
            pieces = reshaped(report.source, reading.decoding, Change(numbers))
        path.write_bytes(b"".join(piece.data for piece in pieces))
        assert path.stat().st_size == len(state(n - 2))
        with examined(path) as report:
            assert not [one for one in report.findings if one.severity == "error"]


def test_minimizes_a_cut_state(tmp_path: Path) -> None:
    """The abort of 1 MB in less than 1 kB and two minutes; the script writes the same bytes."""
    path, new = tmp_path / "state.slot", tmp_path / "small.slot"
    path.write_bytes(state(8000)[:-1])
    assert path.stat().st_size > 1_000_000
    start = time.monotonic()
    code, said = invoked("minimize", path, "-o", new, "--timeout", "60", "--", *LOADER)
    assert code == 0, said
    assert time.monotonic() - start < 120
    assert new.stat().st_size < 100
    loader = CommandLoader(LOADER, PATIENT)
    assert loader.load(new).key == loader.load(path).key
    again = tmp_path / "again.slot"
    script = tmp_path / "small.slot.py"
    argv, sys.argv = sys.argv, [str(script), str(again)]
    try:
        runpy.run_path(str(script))
    finally:
        sys.argv = argv
    assert again.read_bytes() == new.read_bytes()
    alone = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (alone.returncode, alone.stderr) == (1, f"usage: python {script} FILE\n")
    code, said = invoked("minimize", path, "-o", new, "--", *LOADER)
    assert code == 2
    assert "is there already" in said


def rebuilt(script: Path, new: Path) -> None:
    subprocess.run([sys.executable, script, new], check=True, timeout=60)


def test_a_companion_that_matters_goes_along(tmp_path: Path) -> None:
    """It lies beside the small file too, and the script writes it."""
    path, new, again = (tmp_path / name for name in ("state.slot", "small.slot", "again.slot"))
    path.write_bytes(state(3))
    beside = {suffix: Path(f"{path}{suffix}") for suffix in (".ckpt", ".gen")}
    for suffix, companion in beside.items():
        companion.write_bytes(bytes(range(256)) * 3 + suffix.encode())
    loader = script(tmp_path / "loader", "[ -e $1.ckpt ] && kill -SEGV $$\nexit 0\n")
    code, said = invoked("minimize", path, "-o", new, "--", *loader)
    assert code == 0, said
    assert "step bytes after it" in " ".join(said.split())
    assert f"onlywith{new}.ckpt,{new}.genbesideit" in "".join(said.split())
    assert new.read_bytes() == b""
    rebuilt(tmp_path / "small.slot.py", again)
    for suffix, companion in beside.items():
        for copy in (new, again):
            assert Path(f"{copy}{suffix}").read_bytes() == companion.read_bytes()
    assert "\ncrash SIGSEGV\n" in (tmp_path / "small.slot.py").read_text()


def test_a_large_companion_is_named(tmp_path: Path) -> None:
    path, new = tmp_path / "state.slot", tmp_path / "small.slot"
    path.write_bytes(b"")
    Path(f"{path}.ckpt").write_bytes(bytes(65537))
    loader = script(tmp_path / "loader", "[ -e $1.ckpt ] && kill -SEGV $$\nexit 0\n")
    assert invoked("minimize", path, "-o", new, "--", *loader)[0] == 0
    assert Path(f"{new}.ckpt").read_bytes() == bytes(65537)
    code = (tmp_path / "small.slot.py").read_text()
    assert "small.slot.ckpt beside it, which is too large to be in here: copy it" in code
    rebuilt(tmp_path / "small.slot.py", again := tmp_path / "again.slot")
    assert again.exists()
    assert not Path(f"{again}.ckpt").exists()


def test_companions_that_do_not_matter_stay_behind(tmp_path: Path) -> None:
    path, new = tmp_path / "state.slot", tmp_path / "small.slot"
    path.write_bytes(state(3))
    Path(f"{path}.ckpt").write_bytes(b"of no matter")
    loader = script(tmp_path / "loader", "kill -SEGV $$\n")
    (stale := Path(f"{new}.ckpt")).write_bytes(b"of an earlier file")
    asked = ("minimize", path, "-o", new)
    code, said = invoked(*asked, "--", *loader)
    assert (code, new.exists(), stale.exists()) == (2, False, True)
    assert "would be taken for a companion" in said
    code, said = invoked(*asked, "--force", "--", *loader)
    assert (code, new.exists(), stale.exists()) == (0, True, False)
    assert "beside it" not in said


def test_it_must_fail_under_its_new_name(tmp_path: Path) -> None:
    path = tmp_path / "state.gguf"
    path.write_bytes(state(3))
    loader = script(tmp_path / "loader", "case $1 in *.gguf) kill -SEGV $$;; esac\nexit 0\n")
    new = tmp_path / "small.slot"
    code, said = invoked("minimize", path, "-o", new, "--", *loader)
    assert (code, new.exists()) == (1, False)
    assert "fails only under a name that ends in .gguf: -o must end so" in said
    new = tmp_path / "small.gguf"
    assert invoked("minimize", path, "-o", new, "--", *loader)[0] == 0
    by_chance = script(
        tmp_path / "chance",
        f"[ $(wc -l <{tmp_path}/log) = 0 ] || exit 0\necho >>{tmp_path}/log; kill -SEGV $$\n",
    )
    (tmp_path / "log").touch()
    code, said = invoked("minimize", path, "-o", tmp_path / "x.slot", "--", *by_chance)
    assert code == 1
    assert "does not fail the same way twice" in said
    other = script(tmp_path / "other", "kill -SEGV $$\n")
    (tmp_path / "any.slot").write_bytes(state(3))
    code, _ = invoked("minimize", tmp_path / "any.slot", "-o", tmp_path / "x", "--", *other)
    assert code == 0


def test_keeps_the_cell_that_matters(tmp_path: Path) -> None:
    """A cell in the middle is found, whatever stands around it."""
    data = bytearray(state(40))
    pos_at = 12 + 4 * 40 + 8 + 12 * 23
    data[pos_at : pos_at + 4] = struct.pack("<i", -667)
    path = tmp_path / "state.slot"
    path.write_bytes(data)
    small = Minimizer(path, CommandLoader(LOADER, PATIENT), 300, path.name).run()
    assert small.failure.gist == "kv.cpp:#: GGML_ASSERT(pos != #) failed"
    assert len(small.data) < 200


def test_refuses_to_minimize_what_does_not_fail(tmp_path: Path) -> None:
    path = tmp_path / "state.slot"
    path.write_bytes(state(3))
    code, said = invoked("minimize", path, "-o", tmp_path / "new", "--", *LOADER)
    assert code == 1
    assert "the loader takes this file" in said


SERVER = """
import http.server, json, pathlib, sys, time

given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
slots, spoilt = pathlib.Path(given["--slot-save-path"]), [False]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.say(200, {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "restore" in self.path:
            data = (slots / asked["filename"]).read_bytes()
            spoilt[0] |= b"spoils" in data
            if b"waits" in data:
                _, seconds, *begun = data.split()
                for name in begun:
                    pathlib.Path(name.decode()).touch()
                time.sleep(float(seconds))
            if b"overflows" in data:
                sys.stderr.write("/src/kv.cpp:3:5: runtime error: shift exponent 64\\n")
                sys.stderr.flush()
            self.say(400 if b"refuse" in data else 200, {"error": {"message": "no"}})
        elif "erase" in self.path:
            self.say(200, {})
        else:
            likely = [{"id": 1, "logprob": -0.5 if spoilt[0] else -0.25}]
            self.say(200, {"completion_probabilities": [{"top_logprobs": likely}]})

    def say(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


http.server.HTTPServer((given["--host"], int(given["--port"])), Handler).serve_forever()
"""


def test_what_a_file_leaves_in_a_server(tmp_path: Path) -> None:
    """It shows, whether the file was taken or not, and the next file meets a new server."""
    script, files = tmp_path / "server.py", tmp_path / "files"
    script.write_text(SERVER)
    files.mkdir()
    for name, data in (("a", b"well"), ("b", b"spoils"), ("c", b"well"), ("d", b"refuse, spoils")):
        (files / name).write_bytes(data)
    (files / "e").write_bytes(b"refuse")
    (files / "f").write_bytes(b"overflows")
    server = f"{sys.executable} {script}"
    code, said = invoked("run", files, "--server", server, "--timeout", "60", "--json")
    assert code == 1
    assert [(one["outcome"], one["detail"]) for one in json.loads(said)["results"]] == [
        ("ok", ""),
        ("spoilt", "answers other prompts otherwise than before"),
        ("ok", ""),
        ("spoilt", "answers other prompts otherwise than before, though it refused the file"),
        ("refused", "HTTP 400"),
        ("crash", "without an end of the server"),
    ]


def test_servers_that_had_to_wait(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for name, data in (("a", b"waits 6"), ("b", b"well"), ("c", b"waits 600")):
        (files / name).write_bytes(data)
    (tmp_path / "server.py").write_text(SERVER)
    server = f"{sys.executable} {tmp_path}/server.py"
    _, said = invoked("run", files, "--server", server, "--timeout", "4", "--json")
    results = json.loads(said)["results"]
    assert [one["outcome"] for one in results] == ["ok", "ok", "hang"]
    assert results[2]["detail"] == "over 12 s"


def test_says_what_was_taken_wrongly(tmp_path: Path) -> None:
    files = tmp_path / "mutants"
    (tmp_path / "state.slot").write_bytes(state(12))
    invoked("mutate", tmp_path / "state.slot", "--out", files, "--count", "30")
    code, said = invoked("run", files, "--json", "--", "true", "{}")
    assert code == 0
    taken = json.loads(said)["taken"]
    assert taken["count-plus-one"]
    assert "position-plus-one" not in taken
    code, said = invoked("run", files, "--", "true", "{}")
    assert "to be refused for" in said


def by_name(path: Path) -> tuple[str, ...]:
    """A loader that does what the name of its file says, as in `refuse-ok` after the dash."""
    body = "case $1 in *-ok) exit 0;; *-refused) exit 1;; *) kill -SEGV $$;; esac\n"
    return ("--", *script(path, body))


def with_manifest(folder: Path) -> Path:
    """A file for everything that a manifest can expect and a loader can do; one more is in none."""
    folder.mkdir()
    entries = []
    for must in ("refuse", "accept", "either"):
        for does in ("ok", "refused", "crash"):
            name = f"{must}-{does}"
            (folder / name).write_bytes(state(3))
            expected = {"loader": must}
            entries.append({"file": name, "mutator": f"to-{must}", "expected": expected})
    (folder / "manifest.json").write_text(json.dumps({"files": entries}))
    return folder


def test_a_manifest_says_what_is_expected(tmp_path: Path) -> None:
    """With --compare it goes before what `inspect` says: that takes all of these for sound."""
    files, loader = with_manifest(tmp_path / "files"), by_name(tmp_path / "loader")
    for name in ("found-ok", "found-refused"):
        (files / name).write_bytes(state(3))
    code, said = invoked("run", files, "--compare", "--json", *loader)
    found = json.loads(said)
    judged = {one["file"]: (one["ours"], one["why"]) for one in found["disagreements"]}
    assert (code, judged) == (
        1,
        {
            "accept-refused": ("accepts", "to-accept"),
            "found-refused": ("accepts", None),
            "refuse-ok": ("refuses", "to-refuse"),
        },
    )
    _, said = invoked("run", files, "--compare", *loader)
    assert "disagreement: manifest.json says refuses, it does: ok · 1 file" in said
    assert "disagreement: we say accepts, it does: refused · 1 file" in said
    assert "to be refused for" not in said, "that is said already"
    for name in ("accept-refused", "found-refused", "refuse-ok"):
        (files / name).unlink()
    code, said = invoked("run", files, "--compare", "--json", *loader)
    assert (code, json.loads(said)["disagreements"]) == (1, []), "there are crashes still"


def test_what_contradicts_a_manifest_is_told_without_compare(tmp_path: Path) -> None:
    files, loader = with_manifest(tmp_path / "files"), by_name(tmp_path / "loader")
    for path in files.glob("*-crash"):
        path.unlink()
    xml = tmp_path / "run.xml"
    code, said = invoked("run", files, "--json", "--junit", xml, *loader)
    found = json.loads(said)
    assert (code, found["disagreements"]) == (0, [])
    assert found["taken"] == {"to-refuse": ["refuse-ok"]}
    assert found["rejected"] == {"to-accept": ["accept-refused"]}
    page = xml.read_text()
    assert "<failure" not in page
    assert re.findall("<system-out>(.*)</system-out>", page) == [
        "refused, to be accepted with to-accept",
        "taken, to be refused for to-refuse",
    ]
    _, said = invoked("run", files, *loader)
    assert re.search(r"taken +to be refused for +as in\n +1 +to-refuse +refuse-ok\n", said)
    assert re.search(r"refused +to be accepted with +as in\n +1 +to-accept +accept-refused\n", said)


def test_a_server_that_is_named_goes_before_a_manifest(tmp_path: Path) -> None:
    """Its build restores these states, so none of them is said to be taken wrongly."""
    files, loader = with_manifest(tmp_path / "files"), by_name(tmp_path / "loader")
    code, said = invoked("run", files, "--compare", "--build", "b9473", "--json", *loader)
    found = json.loads(said)
    refused = {one["file"] for one in found["disagreements"] if one["outcome"] == "refused"}
    assert {one["ours"] for one in found["results"]} == {"accepts"}
    assert refused == {"refuse-refused", "accept-refused", "either-refused"}
    assert (code, found["taken"]) == (1, {})
    assert found["rejected"] == {"to-accept": ["accept-refused"]}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not a JSON document"),
        ("{", "not a JSON document"),
        ('{"files": [{"file": "0.sl', "not a JSON document"),
        ("[" * 100_000, "not a JSON document"),
        ("[]", "not a manifest of fuzz generate or fuzz mutate"),
        ('{"files": 3}', "not a manifest of fuzz generate or fuzz mutate"),
        ('{"files": ["0.slot"]}', "not a manifest of fuzz generate or fuzz mutate"),
        ('{"files": [{"file": 3}]}', "not a manifest of fuzz generate or fuzz mutate"),
        (
            '{"files": [{"file": "0.slot", "expected": {"loader": "perhaps"}}]}',
            "not a manifest of fuzz generate or fuzz mutate",
        ),
    ],
)
def test_a_manifest_of_no_known_form(tmp_path: Path, content: str, why: str) -> None:
    files = filled(tmp_path / "files")
    (path := files / "manifest.json").write_text(content)
    code, said = invoked("run", files, "--", "true", "{}")
    assert (code, said.count("slotscope: ")) == (0, 1)
    assert f"slotscope: {path}: {why}; it is left out of account\n" in said
    _, said = invoked("run", files, "--json", "--", "true", "{}")
    assert json.loads(said)["manifest"] == {"fault": why, "files_not_in_it": None}


def test_a_manifest_that_cannot_be_read(tmp_path: Path) -> None:
    files = filled(tmp_path / "files")
    os.mkfifo(path := files / "manifest.json")
    assert f"{path}: not a regular file; it is left" in invoked("run", files, "--", "true", "{}")[1]
    path.unlink()
    path.symlink_to("nowhere")
    _, said = invoked("run", files, "--", "true", "{}")
    assert f"{path}: No such file or directory; it is left" in said


def test_files_that_a_manifest_does_not_list(tmp_path: Path) -> None:
    files = with_manifest(tmp_path / "files")
    said = invoked("run", files, "--", "true", "{}")[1]
    assert "not in manifest.json" not in said
    for n, says in ((1, "1 file is not in manifest.json"), (2, "2 files are not in manifest.json")):
        (files / f"left-{n}").write_bytes(b"1")
        assert f"\n{says}\n" in invoked("run", files, "--", "true", "{}")[1]
    found = json.loads(invoked("run", files, "--json", "--", "true", "{}")[1])
    assert found["manifest"] == {"fault": None, "files_not_in_it": 2}
    (files / "manifest.json").unlink()
    found = json.loads(invoked("run", files, "--json", "--", "true", "{}")[1])
    assert found["manifest"] is None


def test_of_generated_files_inspection_decides(tmp_path: Path) -> None:
    """Their manifest says what they are, and nothing of loaders."""
    files = tmp_path / "files"
    invoked("generate", "--out", files, "--layout", "ggsq2.kv", "--count", "2")
    (first, second) = json.loads((files / "manifest.json").read_text())["files"]
    (files / second["file"]).write_bytes((files / first["file"]).read_bytes()[:-1])
    found = json.loads(invoked("run", files, "--compare", "--json", "--", "true", "{}")[1])
    assert [one["ours"] for one in found["results"]] == ["accepts", "refuses"]
    assert {one["by_manifest"] for one in found["results"]} == {False}


@pytest.mark.parametrize(
    ("body", "outcome", "detail"),
    [
        ('echo x >>"$1"', "spoilt", "changes the file that it is given"),
        ('rm "$1"', "spoilt", "removes the file that it is given"),
        ('cp "$1" "$1~"; mv "$1~" "$1"', "spoilt", "changes the file that it is given"),
        ('printf x >"$1.new"; rm "$1.new"', "ok", ""),
        ('echo x >>"$1.ckpt"', "spoilt", "changes what lies beside the file"),
        ('rm "$1.gen"', "spoilt", "changes what lies beside the file"),
        ('touch "$1.tmp"', "spoilt", "changes what lies beside the file"),
        (
            'echo x >>"$1"; exit 1',
            "spoilt",
            "changes the file that it is given, though it refused the file",
        ),
        (
            'echo x >>"$1"; exec sleep 60',
            "spoilt",
            "changes the file that it is given, and does not end",
        ),
        (
            'echo x >>"$1"; kill -SEGV $$',
            "crash",
            "SIGSEGV, and changes the file that it is given",
        ),
    ],
)
def test_a_program_must_leave_its_file_alone(
    tmp_path: Path, body: str, outcome: str, detail: str
) -> None:
    """That is seen at the first load; our verdict is on the file as it was."""
    (files := tmp_path / "files").mkdir()
    (files / "0.slot").write_bytes(state(3))
    (files / "0.slot.gen").symlink_to("nowhere")
    (tmp_path / "away").write_bytes(b"1")
    (files / "0.slot.ckpt").symlink_to(tmp_path / "away")
    loader = script(tmp_path / "loader", f"{body}\n")
    asked = ("--timeout", "1" if "sleep" in body else "60", "--compare", "--json")
    code, said = invoked("run", files, *asked, "--", *loader)
    (result,) = json.loads(said)["results"]
    assert (result["outcome"], result["detail"]) == (outcome, detail)
    assert (code, result["ours"]) == (int(outcome != "ok"), "accepts")


def test_refusals_that_say_the_same_are_told_apart(tmp_path: Path) -> None:
    files = filled(tmp_path / "files", 4)
    body = "case $1 in */[01].slot) n=3;; */2.slot) n=4;; *) echo other; exit 4;; esac\n"
    loader = script(tmp_path / "loader", f"{body}echo no magic; exit $n\n")
    said = invoked("run", files, "--", *loader)[1]
    rows = [line.split(maxsplit=1) for line in said[said.index("because") :].splitlines()[1:]]
    assert rows == [
        ["2", "no magic (exit code 3)"],
        ["1", "no magic (exit code 4)"],
        ["1", "other"],
    ]


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "{}",
        "[]",
        "[" * 100_000,
        '{"file": "0.slot", "digest": "x", "outcome": "ok", "detail": "", "gist": "", '
        '"seconds": 1, "log": ""}',
        '{"file": "0.slot", "digest": "0", "version": "#", "outcome": "ok", "detail": "", '
        '"gist": "", "seconds": 1, "log": ""}',
    ],
)
def test_lines_of_a_journal_that_cannot_be_read(tmp_path: Path, line: str) -> None:
    files = filled(tmp_path / "files")
    asked = ("run", files, "--", "true", "{}")
    invoked(*asked)
    with (journal := files / ".slotscope-run.jsonl").open("a") as file:
        file.write(f"{line}\n")
    code, said = invoked(*asked)
    assert f"slotscope: {journal}: 1 line not used: no result can be read there\n" in said
    assert (code, "the program has changed" in said) == (0, False)
    assert "3 results taken from" in said


def test_what_is_not_loaded(tmp_path: Path) -> None:
    """The help says so, and how the ends of programs are taken (`test_exit_codes`)."""
    files = filled(tmp_path / "files", 1)
    (files / ".hidden").mkdir()
    for name in (".hidden.slot", ".hidden/1.slot", "0.slot.ckpt", "alone.slot.ckpt"):
        (files / name).write_bytes(b"1")
    found = json.loads(invoked("run", files, "--json", "--", "true", "{}")[1])
    assert [one["file"] for one in found["results"]] == ["0.slot", "alone.slot.ckpt"]
    says = " ".join(invoked("run", "--help")[1].split())
    for words in (
        "hidden ones are not loaded, nor companions by themselves",
        "an end by SIGKILL counts as out of memory",
        "also 137 of a shell, but not what shells make of crashes, as 134 and 139",
        "A program gets the file itself, not a copy",
        "what a manifest expects counts for it with --compare only",
    ):
        assert words in says
