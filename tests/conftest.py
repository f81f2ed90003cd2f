"""Hypothesis profiles, and the collection of real files that some tests compare with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("deep", max_examples=5000, deadline=None)
settings.load_profile(
    os.environ.get("SLOTSCOPE_HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The collection of real files, `shared` beside the checkout."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip("no collection of real state files beside the checkout")
    return path
