"""Layers of before July 2024 hold keys and values together: a cut state ended in a ValueError."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.layout import Layout
from inspector.report import examined
from tests.unit.test_historic import FILES, state_for


@pytest.mark.parametrize("row", FILES, ids=lambda row: row.id)
def test_a_cut_state_gives_a_report(row: Layout, tmp_path: Path) -> None:
    data = state_for(row).file()
    path = tmp_path / "state"
    for missing in range(1, 1200, 60):
        path.write_bytes(data[:-missing])
        with examined(path) as report:
            assert report.findings
