"""Repairs that are killed, that race, and that write what is too large to read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import copy

import pytest

from inspector.repair.draft import Options
from inspector.repair.outcome import RECORD, carry_out
from inspector.repair.plan import planned
from inspector.report import examined
from inspector.server.target import target_of
from tests.support.meter import write_sparse
from tests.support.writer import (
    DIALECTS,
    F16,
    F32,
    Cache,
    Cell,
    Memory,
    Recurrent,
    Row,
    Slot,
    Tokens,
    cells_of,
)

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples/intact/ggsq2.hybrid--with-pkcl1.slot"
KILLS = 52


@pytest.fixture
def original(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "new").mkdir()
    for suffix in ("", ".ckpt"):
        copy(SAMPLE.with_name(SAMPLE.name + suffix), tmp_path / "own" / ("slot.bin" + suffix))
    return tmp_path / "own/slot.bin"


@pytest.mark.parametrize("way", ["nameless", "hidden", "nameless, force", "hidden, force"])
def test_killed_at_any_moment(original: Path, way: str) -> None:
    """Nothing, the whole state, or all of it; the original as it was; nothing partial by name."""
    folder = original.parents[1] / "new"
    words = ("-m", "tests.support.kills", str(original), str(folder), way, str(KILLS), "1")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    counts = dict(word.split("=") for word in done.stdout.split())
    assert sum(map(int, counts.values())) == KILLS
    assert int(counts["nothing"])


@pytest.mark.parametrize("force", [False, True])
def test_repairs_that_race(original: Path, *, force: bool) -> None:
    """Of several commands for one output one wins; the state and its list are of one of them."""
    folder = original.parents[1] / "new"
    new = folder / "new.bin"
    families = {"llcp1": ".checkpoints", "pkcl1": ".ckpt", "bkcp1": ".ckpt"}
    words = (sys.executable, "-c", "from inspector.cli import main; main()", "repair")
    more = ("--force",) if force else ()
    running = [
        subprocess.Popen(
            [*words, str(original), "-o", str(new), "--to", family, *more],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for family in families
    ]
    complaints = [process.communicate()[1] for process in running]
    codes = [process.returncode for process in running]
    if not force:
        assert sorted(codes) == [0, 2, 2]
        why = ("is there already", "written by another program meanwhile")
        assert all(any(w in text for w in why) for text in complaints if text)
    assert 0 in codes
    suffixes = {path.name.removeprefix("new.bin") for path in folder.iterdir()}
    with examined(new) as report:
        (carrier,) = {one.record.carrier for one in report.checkpoints}
        (family,) = {f"{o.record.format}{o.record.version}" for o in report.checkpoints}
    assert suffixes == {"", carrier.removeprefix("new.bin"), RECORD}
    assert codes[list(families).index(family)] == 0


def test_a_tip_costs_the_metadata_and_the_suffix(tmp_path: Path) -> None:
    """A sparse hybrid state of 2.6 GB gets a checkpoint of its recurrent section."""
    n, layers = 20_000, 16
    tokens = Tokens(tuple(1 + i % 30_000 for i in range(n)))
    rows = (Row(F16, 4096),) * layers
    r, s = (Row(F32, 122_880),) * layers, (Row(F32, 1 << 20),) * layers
    recurrent = Recurrent((Cell(n - 1),), 2 * layers, r, s)
    cache = Cache((cells_of(tokens),), k=rows, v=rows)
    path = tmp_path / "slot.bin"
    write_sparse(path, Slot(2, tokens, Memory({"attn": cache, "recr": recurrent}, DIALECTS[""])))
    suffix = layers * ((1 << 20) + 122_880)
    metadata = 24 * n
    with (
        target_of(None, "turboquant@b9079", None) as target,
        planned(path, target, Options(), "new.bin") as plan,
    ):
        assert [step.action for step in plan.steps] == ["synthesize-tip"]
        carry_out(plan, tmp_path / "new.bin")
        assert plan.report.source.bytes_read < 8 * metadata + suffix
    for name in ("new.bin", "new.bin.ckpt"):
        assert (tmp_path / name).stat().st_blocks * 512 < 8 << 20
