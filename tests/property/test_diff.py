"""Samples of all layouts against copies: equal, with one changed byte, and damaged anyhow."""

from __future__ import annotations

import io
import json
import random
import zlib
from pathlib import Path

import pytest
from rich.console import Console

from inspector.diff.diff import Diff, NotCompared, differences
from inspector.render.diff import page
from inspector.render.diff_json import to_dict
from inspector.report import examined

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "samples").glob("*/*.slot"))
COMPACTED = "ik4.swac--a-window.slot"
"""Layers of which the last rows alone are stored are not compared."""
INTACT = [p for p in SAMPLES if p.parent.name == "intact" and p.name != COMPACTED]
WIDTH, MUTANTS = 80, 1
WORDS = (0, 1, 2, 64, 0x7C00, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def by_name(path: Path) -> str:
    return path.name


def compared(a: Path, b: Path) -> Diff | None:
    """What is different, once it was shown to people and to programs; None for models."""
    with examined(a) as one, examined(b) as two:
        try:
            found = differences(one, two, deep=True)
        except NotCompared:
            return None
        json.loads(json.dumps(to_dict(found, None, show_tokens=False), allow_nan=False))
        out = io.StringIO()
        console = Console(file=out, width=WIDTH, markup=False, highlight=False, emoji=False)
        for part in page(found, (a.name, b.name), WIDTH, None, show_tokens=False):
            console.print(part)
        assert all(len(line.rstrip()) <= WIDTH for line in out.getvalue().split("\n"))
        return found


@pytest.mark.parametrize("path", SAMPLES, ids=by_name)
def test_a_copy_and_what_became_of_it(path: Path, tmp_path: Path) -> None:
    copy, data, rng = tmp_path / path.name, path.read_bytes(), random.Random(path.name)
    copy.write_bytes(data)
    found = compared(path, copy)
    assert found is None or found.same_bytes
    for _ in range(MUTANTS):
        bad = bytearray(data)
        at = rng.randrange(len(bad) or 1)
        match rng.randrange(3):
            case 0:
                bad[at : at + 4] = rng.choice(WORDS).to_bytes(4, "little")
            case 1:
                bad[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                del bad[at:]
        copy.write_bytes(bad)
        for pair in ((path, copy), (copy, path)):
            found = compared(*pair)
            assert found is None or found.same_bytes == (bytes(bad) == data)


@pytest.mark.parametrize("path", INTACT, ids=by_name)
def test_a_changed_number_is_found_where_it_is(path: Path, tmp_path: Path) -> None:
    """In its tensor and in no other, in one cell; structure and tokens are the same."""
    copy, data = tmp_path / path.name, path.read_bytes()
    with examined(path) as report:
        blocks = [
            (section.path, block)
            for section in report.sections
            for block in section.blocks
            if block.data is not None and len(block.data)
        ]
    rng = random.Random(zlib.crc32(path.name.encode()))
    for section, block in rng.sample(blocks, min(2, len(blocks))):
        assert block.data is not None
        at = rng.randrange(block.data.start, block.data.stop)
        copy.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        found = compared(path, copy)
        assert found is not None
        assert (found.first, found.fields) == (at, ())
        assert found.owners[0].startswith(block.path)
        differ = [
            (part.path, layer)
            for part in found.sections
            for layer in part.layers
            if layer.differ or layer.why
        ]
        ((where, layer),) = differ
        assert where == section
        assert layer.differ == 1
        assert not found.same_content()
