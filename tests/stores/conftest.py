"""What stores and clusters need; skipped where that is not installed."""

from __future__ import annotations

import pytest

pytest.importorskip("fsspec")
