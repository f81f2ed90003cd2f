"""What a scan costs: memory that does not grow with the files, and no more bytes than metadata."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.support.large import CELLS, large_slot
from tests.support.meter import Usage, process

ROOT = Path(__file__).resolve().parents[2]
SAVE = ROOT / "samples/intact/ggsq2.kv--twelve-tokens.slot"
COMMAND = ("-c", "from inspector.cli import main; main()", "scan", "--build", "b10229", "--json")
FEW, MANY = 40, 640
MOST_BYTES_MORE = 8 << 20
"""The cache of the ledger may fill up."""
N_LARGE = 4
BYTES_OF_A_CELL = 4 + 12
"""Its token and its record, without sequences."""


def scanned(folder: Path, scratch: Path, *words: str) -> Usage:
    usage = process(sys.executable, *COMMAND, *words, str(folder), scratch=scratch)
    assert usage.returncode == 0, usage.stderr
    return usage


def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    folder, data = tmp_path / "saves", SAVE.read_bytes()
    folder.mkdir()
    peaks = []
    for start, stop in ((0, FEW), (FEW, MANY)):
        for n in range(start, stop):
            (folder / f"{n:05}.bin").write_bytes(data)
        peaks.append(scanned(folder, tmp_path, "--workers", "1").peak_bytes)
    assert peaks[1] - peaks[0] < MOST_BYTES_MORE


def test_large_saves_cost_their_metadata(tmp_path: Path) -> None:
    folder = tmp_path / "saves"
    folder.mkdir()
    first = large_slot(folder)
    for n in range(1, N_LARGE):
        os.link(first, folder / f"{n}.slot")
    lines = [json.loads(line) for line in scanned(folder, tmp_path).stdout.splitlines()]
    states = [line for line in lines if line["kind"] == "state"]
    assert len(states) == N_LARGE
    for line in states:
        assert line["file"]["bytes"] > 16 << 30
        assert line["bytes_read"] < 3 * CELLS * BYTES_OF_A_CELL


def test_large_saves_of_the_same_tokens_cost_no_more(tmp_path: Path) -> None:
    """Whether they are equal is not found out by reading 48 GiB, and not claimed either."""
    folder = tmp_path / "saves"
    for n in range(3):
        (folder / str(n)).mkdir(parents=True)
        large_slot(folder / str(n))
    lines = [json.loads(line) for line in scanned(folder, tmp_path).stdout.splitlines()]
    groups = [(one["shared"], one["compared"]) for one in lines if one["kind"] == "group"]
    assert groups == [("tokens", False)]
    assert lines[-1]["states"] == 3
    assert lines[-1]["bytes_read"] < 3 * 3 * CELLS * BYTES_OF_A_CELL
