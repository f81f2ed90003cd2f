"""What a verdict on a save of 16 GiB costs in memory, and a page about it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.large import large_slot
from tests.support.meter import process

MOST_BYTES = 120 << 20
MAIN = ("-c", "from inspector.cli import main; main()")


@pytest.mark.parametrize("words", [("check",), ("report", "-o", "page.html")], ids=lambda w: w[0])
def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    large = large_slot(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = (sys.executable, *MAIN, *words, "--build", "b10229", str(large))
    usage = process(*command, scratch=tmp_path)
    assert usage.returncode == 0, usage.stderr
    assert usage.peak_bytes < MOST_BYTES
