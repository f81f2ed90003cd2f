"""Files that are reached through a symbolic link."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.findings import Severity
from inspector.report import examined
from samples.make import HERE as SAMPLES

STATE = SAMPLES / "intact/ggsq2.kv--llama-b10229-short.slot"
MODEL = SAMPLES / "models/llama.gguf"


def codes(path: Path) -> list[str]:
    with examined(path) as report:
        return [finding.code for finding in report.findings]


@pytest.mark.parametrize("cut", [0, 100])
def test_a_state_behind_a_link(cut: int, tmp_path: Path) -> None:
    data = STATE.read_bytes()
    (tmp_path / "elsewhere").write_bytes(data[: len(data) - cut])
    (tmp_path / "slot.bin").symlink_to(tmp_path / "elsewhere")
    assert codes(tmp_path / "elsewhere") == ["file.truncated"] * bool(cut)
    with examined(tmp_path / "slot.bin") as report:
        found = report.findings[-1]
    assert (found.code, found.severity) == ("file.symlink", Severity.NOTE)
    assert found.message == f"slot.bin is a symbolic link to {tmp_path / 'elsewhere'}"
    assert "overwrites" in found.about.consequence


def test_a_model_behind_a_link_is_usual(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").symlink_to(MODEL)
    assert codes(tmp_path / "model.gguf") == []


def test_a_model_that_a_save_through_a_link_has_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(STATE.read_bytes())
    (tmp_path / "slot.bin").symlink_to("model.gguf")
    assert codes(tmp_path / "slot.bin") == ["file.symlink"]
    with examined(tmp_path / "model.gguf") as report:
        (found,) = report.findings
    assert (found.code, found.severity) == ("file.named-like-a-model", Severity.WARNING)
    assert "overwrote" in found.message
