"""Scans on a real Dask cluster of processes: the same rows in the same order, whoever dies."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from inspector.cli.exits import SOUND, USAGE
from inspector.scanning.fleet import NoCluster, on_cluster, rows
from inspector.scanning.folder import items
from inspector.scanning.scan import job_for
from inspector.server.target import target_of

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.stores, pytest.mark.filterwarnings("default")]

INTACT = Path(__file__).resolve().parents[2] / "samples/intact"
N_FILES = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saves = sorted(INTACT.glob("ggsq*.slot"))
    for n in range(N_FILES):
        shutil.copyfile(saves[n % len(saves)], tmp_path / f"{n:03}.bin")
    return tmp_path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


def test_the_same_rows_although_a_worker_is_killed(
    folder: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    with target_of(None, "b10229") as target:
        job = job_for(target)
        local = list(rows(items([folder.name]), job, 1))
        found = []
        for row in on_cluster(items([folder.name]), job, cluster.scheduler_address):
            found.append(row)
            if len(found) == 1:
                with distributed.Client(cluster.scheduler_address) as client:
                    victim = next(iter(client.run(os.getpid).values()))
                os.kill(victim, signal.SIGKILL)
    assert found == local


def test_the_command(folder: Path, cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    table = tmp_path_factory.mktemp("tables") / "scan.parquet"
    words = ["scan", str(folder), "--build", "b10229", "--fail-on", "never", "--json"]
    spread = CliRunner().invoke(
        app, [*words, "--dask", cluster.scheduler_address, "--parquet", str(table)]
    )
    alone = CliRunner().invoke(app, [*words, "--workers", "1"])
    assert spread.exit_code == alone.exit_code == SOUND, spread.output
    assert spread.stdout == alone.stdout
    read = pytest.importorskip("pyarrow.parquet").read_table(table).to_pylist()
    assert len(read) == N_FILES
    assert read[0]["path"] == str(folder / "000.bin")


def test_no_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspector.scanning.fleet._PATIENCE", 0.2)
    with target_of(None, "b10229") as target, pytest.raises(NoCluster):
        next(on_cluster(items([str(folder)]), job_for(target), "tcp://127.0.0.1:9"))
    result = CliRunner().invoke(app, ["scan", str(folder), "--dask", "tcp://127.0.0.1:9"])
    assert result.exit_code == USAGE
