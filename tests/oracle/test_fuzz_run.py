"""`slotscope fuzz run` and `minimize` with a real server: the abort on a state that is cut."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inspector.check import checked
from inspector.cli.app import app
from inspector.findings import Severity
from inspector.fuzzing.loader import Limits
from inspector.fuzzing.server import ServerLoader
from inspector.report import examined
from inspector.server.target import target_of
from samples.crashing import crashes
from samples.make import HERE as SAMPLES
from tests.oracle.builds import BUILDS, Build, installed
from tests.oracle.trial import MODELS
from tests.support.writer import DIALECTS, F16, Cache, Memory, Row, Slot, Tokens, cells_of, pack

pytestmark = pytest.mark.oracle

WHOLE = SAMPLES / "intact" / "ggsq4.kv--llama-b11549-short.slot"
MODEL = MODELS / "llama-gqa.gguf"
N_CELLS = 2000


KINDS = {
    ("crash", "SIGABRT"): {"cut", "cut-inside", "cut-last"},
    ("crash", "SIGABRT in /completion"): {"cell-pos-empty", "stream-emptied"},
    ("spoilt", "answers other prompts otherwise than before"): {"cell-pos-negative"},
    ("spoilt", "HTTP 500 for other prompts: Invalid input batch."): {"cell-pos-huge"},
}
"""How a server is harmed -> the mutations of a state of attention that do so."""


def server(
    n_ctx: int, build: Build = BUILDS[-1], model: str = "llama-gqa", n_slots: int = 1
) -> str:
    if sys.platform != "linux":
        pytest.skip("the servers are limited in memory by a Linux call")
    program = Path(__file__).with_name("llama_server.py")
    words = (sys.executable, program, installed(build), "-m", MODELS / f"{model}.gguf", "-fa", "on")
    return shlex.join(map(str, (*words, "-c", n_ctx, "-np", n_slots)))


def invoked(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["fuzz", *map(str, words)])
    return done.exit_code, done.output


def large() -> bytes:
    """A state of more than 1 MB for the model."""
    tokens = Tokens(tuple(260 + i % 200 for i in range(N_CELLS)), packed=True)
    rows = (Row(F16, 128),) * 3
    cache = Cache((cells_of(tokens),), k=rows, v=rows)
    return pack(Slot(4, tokens, Memory({"attn": cache}, DIALECTS["rotated"]))).data


def test_finds_the_abort_and_lives_on(tmp_path: Path) -> None:
    data = WHOLE.read_bytes()
    files = {"a": data, "b": data[:-1], "c": data[:-20], "d": data, "e": b"qsgg" + data[:40]}
    folder = tmp_path / "files"
    folder.mkdir()
    for name, content in files.items():
        (folder / f"{name}.slot").write_bytes(content)
    command, target = server(512), f"llama-server -m {MODEL} -c 512 -np 1 -fa on"
    words = ("run", folder, "--server", command, "--for", target, "--build", "b11549")
    code, said = invoked(*words, "--timeout", "120", "--json")
    found = json.loads(said)
    assert code == 1
    assert {one["file"][0]: one["outcome"] for one in found["results"]} == {
        "a": "ok",
        "b": "crash",
        "c": "crash",
        "d": "ok",
        "e": "refused",
    }
    assert not found["disagreements"]
    assert len([one for one in found["failures"] if one["outcome"] == "crash"]) == 1


def test_finds_what_harms_a_server(tmp_path: Path) -> None:
    """By `fuzz mutate` and `fuzz run` alone: a mutant of every kind, and one server."""
    folder = tmp_path / "mutants"
    invoked("mutate", WHOLE, "--out", folder, "--count", "90")
    mutants = json.loads((folder / "manifest.json").read_text())["files"]
    kinds = {one["file"]: one["mutator"] for one in mutants}
    code, said = invoked("run", folder, "--server", server(512), "--timeout", "120", "--json")
    assert code == 1
    found = json.loads(said)["failures"]
    harms: dict[tuple[str, str], set[str]] = {}
    for one in found:
        if one["outcome"] != "refused":
            of = harms.setdefault((one["outcome"], one["detail"]), set())
            of.update(kinds[file] for file in one["files"])
    assert harms.keys() == KINDS.keys()
    assert all(KINDS[harm] <= done for harm, done in harms.items())
    named = {file for file, kind in kinds.items() if kind in ("name-link", "name-of-a-model")}
    assert len(named) == 2
    assert not named & {file for one in found for file in one["files"]}


@pytest.mark.parametrize("build", [b for b in BUILDS if b.number != 11063], ids=str)
def test_samples_harm_servers(tmp_path: Path, build: Build) -> None:
    """As their cards say, and `check` calls each of them an error."""
    wrong = []
    for one in crashes(build.version):
        path = tmp_path / f"{one.name}.slot"
        path.write_bytes(one.data)
        command = server(512, build, one.model, one.slots)
        loader = ServerLoader(command, Limits(seconds=120))
        try:
            observed = loader.load(path)
        finally:
            loader.close()
        said = f"{observed.outcome}{observed.detail.partition('SIGABRT')[2]}"
        if said != one.does:
            wrong.append(f"{one.name}: {said} instead of {one.does}: {observed.log[-500:]}")
        model = MODELS / f"{one.model}.gguf"
        words = f"llama-server -m {model} -c 512 -np {one.slots} -fa on --kv-unified"
        with target_of(words, str(build)) as target, examined(path, deep=True) as report:
            codes = {f.code for f in report.findings if f.severity is Severity.ERROR}
            with checked(path, target) as found:
                codes |= {f.code for f in found.findings if f.severity is Severity.ERROR}
        if not codes:
            wrong.append(f"{one.name}: no error is found")
    assert not wrong, "\n".join(wrong)


def test_minimizes_the_abort(tmp_path: Path) -> None:
    """From 1 MB to less than 1 kB, in two minutes."""
    path, new = tmp_path / "state.slot", tmp_path / "small.slot"
    path.write_bytes(large()[:-1])
    assert path.stat().st_size > 1_000_000
    words = ("minimize", path, "-o", new, "--server", server(N_CELLS + 96), "--timeout", "120")
    start = time.monotonic()
    code, said = invoked(*words)
    assert code == 0, said
    assert time.monotonic() - start < 120
    assert new.stat().st_size < 1000
