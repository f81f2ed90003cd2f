"""Slot files with a wrong token count were called drafts of a fork, or of other versions."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from inspector.identify import Verdict
from inspector.report import examined

INTACT = Path(__file__).resolve().parents[2] / "samples/intact"
SAVES = ("ggsq2.kv--llama-b10229-q8_0", "ggsq2.iswa--gemma3-b10229-long", "ggsq3.kv--llama-b10809")


@pytest.mark.parametrize("by", [-5, -4, -3, -2, 2, 3])
@pytest.mark.parametrize("save", SAVES)
def test_it_stays_a_slot_file_of_its_version(save: str, by: int, tmp_path: Path) -> None:
    data = bytearray((INTACT / f"{save}.slot").read_bytes())
    version, count = struct.unpack_from("<II", data, 4)
    struct.pack_into("<I", data, 8, count + by)
    path = tmp_path / "state.slot"
    path.write_bytes(data)
    with examined(path) as report:
        found = report.identification
        assert found.verdict is Verdict.DAMAGED
        assert found.reading is not None
        assert (found.reading.layout.format, found.reading.layout.version) == ("ggsq", version)
        codes = {finding.code for finding in report.findings}
    assert "envelope.version-contradicts-body" not in codes
