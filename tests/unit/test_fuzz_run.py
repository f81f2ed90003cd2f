"""`slotscope fuzz run` and `slotscope fuzz minimize`, with a program that loads as servers do."""

from __future__ import annotations

import json
import runpy
import struct
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
    return done.exit_code, done.output


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
    assert 0 < said.index("\ndisagreement ") < said.index("\ncrash SIGABRT"), "they come first"


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


def test_exit_codes() -> None:
    assert ended(0, "") == (Outcome.OK, "")
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
    assert gist_of("cannot load a.slot: 3 bytes\n", ("a.slot",)) == "cannot load {}: # bytes"


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
    code, said = invoked("minimize", path, "-o", new, "--", *LOADER)
    assert code == 2
    assert "is there already" in said


def test_keeps_the_cell_that_matters(tmp_path: Path) -> None:
    """A cell in the middle is found, whatever stands around it."""
    data = bytearray(state(40))
    pos_at = 12 + 4 * 40 + 8 + 12 * 23
    data[pos_at : pos_at + 4] = struct.pack("<i", -667)
    path = tmp_path / "state.slot"
    path.write_bytes(data)
    small = Minimizer(path, CommandLoader(LOADER, PATIENT), seconds=300).run()
    assert small.failure.gist == "kv.cpp:#: GGML_ASSERT(pos != #) failed"
    assert len(small.data) < 200


def test_refuses_to_minimize_what_does_not_fail(tmp_path: Path) -> None:
    path = tmp_path / "state.slot"
    path.write_bytes(state(3))
    code, said = invoked("minimize", path, "-o", tmp_path / "new", "--", *LOADER)
    assert code == 1
    assert "the loader takes this file" in said


SERVER = """
import http.server, json, pathlib, sys

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
    server = f"{sys.executable} {script}"
    code, said = invoked("run", files, "--server", server, "--timeout", "60", "--json")
    assert code == 1
    assert [(one["outcome"], one["detail"]) for one in json.loads(said)["results"]] == [
        ("ok", ""),
        ("spoilt", "answers other prompts otherwise than before"),
        ("ok", ""),
        ("spoilt", "answers other prompts otherwise than before, though it refused the file"),
        ("refused", "HTTP 400"),
    ]


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
