"""The custom mutator in a real AFL++, where one is at hand: it finds an abort behind the cells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inspector.fuzzing.mutators import MUTATORS
from samples.make import HERE as SAMPLES

pytestmark = pytest.mark.oracle

SECONDS = 20
TARGET = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *file;

static uint32_t word(void) {
    uint32_t value;
    if (fread(&value, 4, 1, file) != 1) exit(1);
    return value;
}

int main(int argc, char **argv) {
    file = fopen(argv[1], "rb");
    if (word() != 0x67677371 || word() != 2) return 1;
    for (uint32_t left = word(); left; left--) word();
    if (word() != 1) return 1;
    uint32_t cells = word(), last = -1;
    if (cells > 512) return 1;
    for (uint32_t i = 0; i < cells; i++) {
        uint32_t pos = word();
        if (word() != 1 || word() != 0) return 1;
        if (pos == last) abort();
        last = pos;
    }
    return 0;
}
"""


def python_of_afl() -> str:
    """The version of Python in the AFL++ that is installed; empty without either."""
    if shutil.which("afl-fuzz") is None or shutil.which("afl-cc") is None:
        return ""
    said = subprocess.run(["afl-fuzz", "-h"], capture_output=True, text=True, check=False)
    found = re.search(r"Compiled with Python (\d+\.\d+)", said.stdout + said.stderr)
    return found[1] if found else ""


def test_finds_two_cells_at_one_position(tmp_path: Path) -> None:
    if python_of_afl() != "{}.{}".format(*sys.version_info):
        pytest.skip("no AFL++ with this version of Python in it: apt-get install afl++")
    inputs, out, target = tmp_path / "in", tmp_path / "out", tmp_path / "target"
    inputs.mkdir()
    shutil.copy(SAMPLES / "intact" / "ggsq2.kv--twelve-tokens.slot", inputs)
    (tmp_path / "target.c").write_text(TARGET)
    quiet = {"AFL_QUIET": "1", "AFL_NO_UI": "1", "AFL_SKIP_CPUFREQ": "1", "AFL_NO_AFFINITY": "1"}
    quiet["AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES"] = "1"
    environment = {
        **os.environ,
        **quiet,
        "AFL_PYTHON_MODULE": "inspector.fuzzing.afl",
        "AFL_CUSTOM_MUTATOR_ONLY": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    compiler = ["afl-cc", "-O1", "-o", target, tmp_path / "target.c"]
    subprocess.run(compiler, check=True, env=environment)
    fuzzer = ["afl-fuzz", "-V", str(SECONDS), "-i", inputs, "-o", out, "--", target, "@@"]
    done = subprocess.run(fuzzer, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    names = [path.name for path in (out / "default" / "crashes").glob("id*")]
    assert names
    assert any(f",{name}@" in crash for crash in names for name in MUTATORS), names
