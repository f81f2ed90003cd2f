"""A layer without a state that claims two thousand million rows took gigabytes to compare."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from inspector.check import checked
from inspector.fuzzing.subject import Subject, edited, packed
from inspector.server.target import target_of
from samples.make import HERE as SAMPLES

MODEL = SAMPLES.parent / "tests/oracle/models/qwen35.gguf"


def test_rows_of_a_layer_without_a_state(tmp_path: Path) -> None:
    subject = Subject((SAMPLES / "intact/ik3--hybrid.slot").read_bytes())
    rows = packed(subject.node("recr.s[0].s_rows"), 1 << 24)
    path = tmp_path / "a.slot"
    path.write_bytes(edited(subject.data, [rows]))
    with target_of(f"llama-server -m {MODEL} -c 512 -np 1", "ik@2026-08-15") as target:
        tracemalloc.start()
        with checked(path, target) as check:
            assert check.identity is not None
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 32 << 20
