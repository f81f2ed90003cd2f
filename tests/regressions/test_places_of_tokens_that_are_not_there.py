"""A token count and a position that lie took memory for all the places in between."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

from inspector.node import walk
from inspector.report import examined
from samples.make import HERE as SAMPLES


def test_a_far_position_of_many_tokens(tmp_path: Path) -> None:
    sample = SAMPLES / "intact/ggsq4.iswa--twelve-tokens.slot"
    data = bytearray(sample.read_bytes())
    with examined(sample) as report:
        assert report.identification.root is not None
        nodes = dict(walk(report.identification.root))
    count = nodes["tokens.n_tokens"].span
    pos = nodes["base.streams[0]"].rows("cells").field_span(11, "pos")
    data[count.start : count.stop] = struct.pack("<I", (1 << 31) - 1)
    data[count.stop : count.stop + 4] = struct.pack("<i", -1)  # else the count can be put right
    data[pos.start : pos.stop] = struct.pack("<i", (1 << 30) + 7)
    path = tmp_path / "a.slot"
    path.write_bytes(data)
    tracemalloc.start()
    with examined(path) as report:
        codes = {finding.code: finding for finding in report.findings}
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20
    said = codes["cells.pos-not-tokens"]
    assert said.message.startswith("1,073,741,820 of 2,147,483,647 tokens have no cell")
    assert said.expected == "a cell at position 11"
