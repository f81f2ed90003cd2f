"""What a verdict on a save of 16 GiB costs in memory."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.large import large_slot
from tests.support.meter import process

MOST_BYTES = 120 << 20
COMMAND = ("-c", "from inspector.cli import main; main()", "check", "--build", "b10229")


def test_memory(tmp_path: Path) -> None:
    large = large_slot(tmp_path)
    usage = process(sys.executable, *COMMAND, str(large), scratch=tmp_path)
    assert usage.returncode == 0, usage.stderr
    assert usage.peak_bytes < MOST_BYTES
