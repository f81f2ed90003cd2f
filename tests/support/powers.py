"""Permissions, which do not bind who runs tests as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

MAIN = "from inspector.cli import main; main()"
POWERLESS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


def powerless(*words: object) -> subprocess.CompletedProcess[str]:
    """A command of ours, run by somebody whom permissions bind."""
    before = POWERLESS if os.geteuid() == 0 else ()
    if before and shutil.which(before[0]) is None:
        pytest.skip("permissions do not bind root")
    command = (*before, sys.executable, "-c", MAIN, *map(str, words))
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
