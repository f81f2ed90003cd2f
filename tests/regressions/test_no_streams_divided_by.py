"""A whole-context file that says it has no cell arrays made `repair` divide by their number."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.repair.state import Refused
from inspector.server.target import target_of

NO_STREAMS = b"nsgg\x09" + bytes(7) + b"\x05\x00\x00\x00llama" + bytes(4) + b"\x01\x00\x00\x00"


@pytest.mark.parametrize("build", ["b5000", "b7551", "b10229", "b11549"])
def test_a_plan_for_a_file_without_streams(build: str, tmp_path: Path) -> None:
    path = tmp_path / "slot.bin"
    path.write_bytes(NO_STREAMS)
    with (
        target_of(None, build) as target,
        pytest.raises(Refused),
        planned(path, target, Options(), "new"),
    ):
        pass
