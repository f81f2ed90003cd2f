"""Trials of files on real servers; deselected by default, `pytest -m oracle` runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.oracle.trial import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A place to try files on servers; their logs stay in the test's temporary folder."""
    if sys.platform != "linux":
        pytest.skip("the servers are limited in memory by a Linux call")
    return Bench(tmp_path)
