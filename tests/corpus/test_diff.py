"""Saves of one prompt by many builds: the same tokens, cells and numbers, in whatever form."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from inspector.diff.diff import Diff, differences
from inspector.report import examined
from tests.corpus.test_check import CORPUS
from tests.corpus.test_manifest import manifest

ROUNDING = {"q4_0": 0.15, "q8_0": 0.01}
"""RMS of what a type costs; two builds, or attention computed otherwise, cost less than q8_0."""
SPLIT = {"gemma3-iswa.b5129.lib-plain.seq.bin"}
"""Saves with windowed layers in one section with the others."""
OTHERWISE = {"qwen2vl.b5129.lib-plain.seq.bin"}
"""Saves whose positions of M-RoPE are not those of others: see `tests.corpus.test_repair`."""


def saves() -> list[dict[str, Any]]:
    return [
        entry
        for entry in manifest()["files"]
        if entry["made_by"] != "damage" and entry["kind"] in ("slot", "seq") and entry["tokens"]
    ]


def pairs() -> list[Any]:
    """Saves of one prompt by one model, each with the next one by another build or otherwise."""
    alike = defaultdict(list)
    for entry in saves():
        alike[entry["model"], tuple(entry["tokens"])].append(entry)
    found = []
    for entries in alike.values():
        entries.sort(key=lambda entry: entry["build"] or 0)
        found += list(pairwise(entries))
    return [pytest.param(a, b, id=f"{a['file']}-{b['file']}") for a, b in found]


def compared(a: str, b: str) -> Diff:
    with examined(CORPUS / a) as one, examined(CORPUS / b) as two:
        return differences(one, two, deep=True)


@pytest.mark.parametrize(("a", "b"), pairs())
def test_of_one_prompt(a: dict[str, Any], b: dict[str, Any]) -> None:
    found = compared(a["file"], b["file"])
    assert found.tokens is not None
    assert found.tokens.equal
    if a["file"] in SPLIT | OTHERWISE:
        return
    cost = max((ROUNDING[t] for t in ROUNDING for e in (a, b) if t in e["file"]), default=0.01)
    for section in found.sections:
        assert section.match is not None
        assert section.match.complete or section.path == "swa"  # of b6673, which keeps fewer cells
        assert section.layers
        for layer in section.layers:
            assert not layer.why
            assert layer.n_cells == len(section.match.a) > 0
            assert not layer.differ or layer.rms < cost


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (a, b)
        for model in sorted({entry["model"] for entry in saves()})
        for own in [[entry for entry in saves() if entry["model"] == model]]
        for a, b in zip(own, own[3:], strict=False)
    ],
    ids=lambda entry: entry["file"],
)
def test_where_tokens_part(a: dict[str, Any], b: dict[str, Any]) -> None:
    """Against the lists in the manifest, which the servers themselves were given."""
    found = compared(a["file"], b["file"]).tokens
    assert found is not None
    both = zip(a["tokens"], b["tokens"], strict=False)
    common = next(
        (i for i, (one, two) in enumerate(both) if one != two),
        min(len(a["tokens"]), len(b["tokens"])),
    )
    assert found.common == common
    assert found.equal == (a["tokens"] == b["tokens"])


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the real files are not at hand")
@pytest.mark.parametrize("build", ["b10229", "b11549"])
def test_attention_computed_otherwise(build: str) -> None:
    """Values by channel and in rows: errors as numpy finds them in the bytes."""
    names = [f"llama-gqa.{build}.fa-{word}.bin" for word in ("off", "on")]
    numbers: list[list[Any]] = []
    for name in names:
        data = (CORPUS / name).read_bytes()
        with examined(CORPUS / name) as report:
            (section,) = report.sections
            rows = []
            for block in section.blocks:
                assert block.data is not None
                flat = np.frombuffer(data[block.data.start : block.data.stop], "<f2")
                n = section.cells
                rows.append(flat.reshape(-1, n).T if block.element_bytes else flat.reshape(n, -1))
        numbers.append([row.astype(np.float64) for row in rows])
    (section_diff,) = compared(*names).sections
    assert len(section_diff.layers) == len(numbers[0])
    for layer, a, b in zip(section_diff.layers, *numbers, strict=True):
        error = np.abs(a - b)
        assert layer.max_error == pytest.approx(error.max(), rel=1e-6)
        assert layer.differ == np.count_nonzero(error.max(axis=1))
        if layer.differ:
            assert layer.rms == pytest.approx(np.sqrt((error**2).sum() / (a**2).sum()), rel=1e-4)
            assert layer.worst == error.max(axis=1).argmax()
            assert layer.first == np.flatnonzero(error.max(axis=1))[0]


def broken() -> list[dict[str, Any]]:
    return [entry for entry in manifest()["files"] if entry.get("damaged_from")]


@pytest.mark.parametrize("entry", broken(), ids=lambda entry: entry["file"])
def test_a_damaged_file_and_the_good_one(entry: dict[str, Any]) -> None:
    """Where the first byte differs, as a plain comparison has it; and never the same content."""
    found = compared(entry["damaged_from"], entry["file"])
    good, bad = ((CORPUS / name).read_bytes() for name in (entry["damaged_from"], entry["file"]))
    first = next((i for i, (a, b) in enumerate(zip(good, bad, strict=False)) if a != b), None)
    assert found.first == first
    assert not found.identical
    if len(good) == len(bad) and "payload" in entry["file"]:
        assert any(layer.differ for part in found.sections for layer in part.layers)
        assert not found.fields
