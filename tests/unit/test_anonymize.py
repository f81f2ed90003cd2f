"""`slotscope anonymize`: nothing that was said survives, and the copy reads the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from inspector.anonymize import anonymized
from inspector.cli.app import app
from inspector.node import Kind, walk
from inspector.repair.state import Refused
from inspector.report import Report, examined
from samples.make import HERE as SAMPLES

KEY = b"a key of the tests"
VARIED = 8
"""Different bytes of a run from which on it says something."""
SUBJECTS = sorted(
    path
    for path in SAMPLES.glob("*/*")
    if path.suffix in {".slot", ".ckpt", ".checkpoints"} and "container" not in path.name
)[::4]


def findings(report: Report) -> list[tuple[str, str, int]]:
    """Without those about seals and leftovers, which are no part of a copy."""
    return [
        (one.code, one.path, one.span.start)
        for one in report.findings
        if not one.code.startswith(("seal.", "sidecar.leftover"))
    ]


def payloads(path: Path) -> list[slice]:
    with examined(path) as report:
        reading = report.identification.reading
        assert reading is not None
        nodes = walk(reading.decoding.root)
        return [slice(n.span.start, n.span.stop) for _, n in nodes if n.kind is Kind.PAYLOAD]


def runs(data: bytes, spans: list[slice]) -> set[bytes]:
    """All stretches of 16 bytes of payloads that are not just a pattern."""
    found = set()
    for span in spans:
        part = data[span]
        found |= {part[i : i + 16] for i in range(len(part) - 15)}
    return {run for run in found if len(set(run)) >= VARIED}


@pytest.mark.parametrize("path", SUBJECTS, ids=lambda path: path.name)
def test_nothing_survives(path: Path, tmp_path: Path) -> None:
    try:
        made = anonymized(path, KEY)
    except Refused:
        return
    copy = tmp_path / path.name
    for suffix, data in made.files.items():
        beside = path.with_name(path.name + suffix)
        copy.with_name(copy.name + suffix).write_bytes(data)
        if suffix != ".tokens.json":
            spans = payloads(beside)
            assert len(data) == beside.stat().st_size
            assert not runs(beside.read_bytes(), spans) & runs(data, spans)
    with examined(path) as before, examined(copy) as after:
        if before.bundle.state is None:
            assert findings(after) == findings(before)
        parts = [(s.path, s.span, s.cells, s.pos.tolist()) for s in before.sections]
        assert [(s.path, s.span, s.cells, s.pos.tolist()) for s in after.sections] == parts
        if before.tokens is None or len(before.tokens.ids) < 3:
            return
        old, new = before.tokens.ids.tolist(), after.tokens.ids.tolist()  # type: ignore[union-attr]
        assert [one < 0 for one in new] == [one < 0 for one in old]
        pairs = set(zip(old, new, strict=True))
        assert len(pairs) == len(set(old)) == len(set(new)), "one for one"
        assert max(new) <= max(255, *old)
        three = {tuple(old[i : i + 3]) for i in range(len(old) - 2)}
        kept = [one for one in zip(new, new[1:], new[2:], strict=False) if one in three]
        assert [one for one in kept if min(one) >= 0] == []


def test_most_samples_can_be_shown() -> None:
    refused = 0
    for path in SUBJECTS:
        try:
            anonymized(path, KEY)
        except Refused:
            refused += 1
    assert refused <= len(SUBJECTS) // 20


def test_numbers_stay_finite(tmp_path: Path) -> None:
    for name in ("ggsq4.kv--llama-b11549-rotated", "ggsq4.hybrid.xyt--qwen35-b11549-checkpoints"):
        path = SAMPLES / "intact" / f"{name}.slot"
        copy = tmp_path / path.name
        copy.write_bytes(anonymized(path, KEY).files[""])
        with examined(path, deep=True) as before, examined(copy, deep=True) as after:
            assert findings(after) == findings(before)
            for old, new in zip(before.statistics, after.statistics, strict=True):
                assert (old.block.path, old.non_finite) == (new.block.path, new.non_finite)


def test_cells_and_companions_go_along(tmp_path: Path) -> None:
    state = SAMPLES / "intact" / "ik4--with-companions.slot"
    made = anonymized(state, KEY)
    copy = tmp_path / "copy.slot"
    for suffix, data in made.files.items():
        copy.with_name(copy.name + suffix).write_bytes(data)
    with examined(copy) as report:
        assert report.tokens is not None
        listed = json.loads((tmp_path / "copy.slot.tokens.json").read_text())["tokens"]
        assert listed == report.tokens.ids.tolist()
    xyt = SAMPLES / "intact" / "ggsq4.hybrid.xyt--qwen35-b11549-checkpoints.slot"
    copy.write_bytes(anonymized(xyt, KEY).files[""])
    with examined(copy) as report:
        assert report.tokens is not None
        tok = report.sections[0].tables[0].column("tok")
        assert np.array_equal(tok[tok >= 0], report.tokens.ids[tok >= 0])


def test_command(tmp_path: Path) -> None:
    state = SAMPLES / "intact" / "ggsq4.kv--llama-b11549-short.slot"
    file, new = tmp_path / "file.slot", tmp_path / "new.slot"
    file.write_bytes(state.read_bytes())
    done = CliRunner().invoke(app, ["anonymize", str(file), "-o", str(new)])
    assert done.exit_code == 0
    assert new.stat().st_size == file.stat().st_size
    again = CliRunner().invoke(app, ["anonymize", str(file), "-o", str(file), "--force"])
    assert again.exit_code == 2
    assert "never written" in again.output
    assert file.read_bytes() == state.read_bytes()
    unknown = tmp_path / "unknown"
    unknown.write_bytes(b"what is this?")
    done = CliRunner().invoke(app, ["anonymize", str(unknown), "-o", str(tmp_path / "x")])
    assert done.exit_code == 1
    assert not (tmp_path / "x").exists()
