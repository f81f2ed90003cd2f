"""`slotscope fuzz run` and `minimize` with a real server: the abort on a state that is cut."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from samples.make import HERE as SAMPLES
from tests.oracle.builds import BUILDS, installed
from tests.oracle.trial import MODELS
from tests.support.writer import DIALECTS, F16, Cache, Memory, Row, Slot, Tokens, cells_of, pack

pytestmark = pytest.mark.oracle

WHOLE = SAMPLES / "intact" / "ggsq4.kv--llama-b11549-short.slot"
MODEL = MODELS / "llama-gqa.gguf"
N_CELLS = 2000


def server(n_ctx: int) -> str:
    if sys.platform != "linux":
        pytest.skip("the servers are limited in memory by a Linux call")
    program = Path(__file__).with_name("llama_server.py")
    words = (sys.executable, program, installed(BUILDS[-1]), "-m", MODEL, "-c", n_ctx, "-fa", "on")
    return shlex.join(map(str, words))


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
