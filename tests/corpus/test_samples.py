"""Every sample against its card."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from formats.layouts import all_layouts, by_id
from inspector.decode import decode
from inspector.findings import CODES, Severity
from inspector.report import examined
from inspector.source import opened
from samples.make import HERE, files

MOST_BYTES = 1 << 16
CARDS = sorted(HERE.glob("*/*.toml"))
INTACT = [card for card in CARDS if card.parent.name == "intact"]
DAMAGED = [card for card in CARDS if card.parent.name == "damaged"]
NAME = re.compile(r"(?P<layout>[a-z0-9_.-]+?)--(?P<what>[a-z0-9_.-]+)\.toml")


def told(card: Path) -> dict[str, Any]:
    return tomllib.loads(card.read_text())


def sample(card: Path) -> Path:
    return card.with_name(card.name.removesuffix(".toml") + ".slot")


def named(card: Path) -> re.Match[str]:
    match = NAME.fullmatch(card.name)
    assert match is not None
    return match


def stem(card: Path) -> str:
    return card.name.removesuffix(".toml")


@pytest.mark.parametrize("card", CARDS, ids=stem)
def test_card(card: Path) -> None:
    on_card = told(card)
    assert named(card)["layout"] == on_card["layout"]
    assert by_id(on_card["layout"]) is not None
    assert on_card["licence"] in ("CC0-1.0", "MIT")
    assert on_card["about"].endswith(".")
    assert on_card["origin"]["kind"] in ("synthetic", "written")
    assert on_card["origin"]["made_by"]
    data = sample(card).read_bytes()
    assert len(data) <= MOST_BYTES
    assert hashlib.sha256(data).hexdigest() == on_card["sha256"]
    for companion in on_card.get("companions", ()):
        beside = sample(card).with_name(sample(card).name + companion["suffix"])
        assert len(beside.read_bytes()) <= MOST_BYTES
        assert hashlib.sha256(beside.read_bytes()).hexdigest() == companion["sha256"]


def test_every_file_has_a_card() -> None:
    expected = set()
    for card in CARDS:
        suffixes = [companion["suffix"] for companion in told(card).get("companions", ())]
        expected |= {card, sample(card)}
        expected |= {sample(card).with_name(sample(card).name + suffix) for suffix in suffixes}
    assert {path for path in HERE.glob("*/*") if path.parent.name != "__pycache__"} == expected


def test_synthetic_samples_are_rebuilt_byte_for_byte() -> None:
    made = files()
    assert {path: (HERE / path).read_bytes() for path in made} == made
    synthetic = {card for card in CARDS if told(card)["origin"]["kind"] == "synthetic"}
    assert {HERE / path for path in made if path.endswith(".toml")} == synthetic


@pytest.mark.parametrize("card", INTACT, ids=stem)
def test_intact_samples_are_explained_by_their_layout(card: Path) -> None:
    on_card = told(card)
    parts = [("", on_card["layout"])]
    parts += [(c["suffix"], c["layout"]) for c in on_card.get("companions", ())]
    for suffix, layout_id in parts:
        if layout_id == "ik-tokens":
            continue
        layout = by_id(layout_id)
        assert layout is not None
        with opened(f"{sample(card)}{suffix}") as source:
            assert decode(source, layout, source.whole()).complete


@pytest.mark.parametrize("card", CARDS, ids=stem)
def test_findings_are_those_of_the_card(card: Path) -> None:
    """Errors and warnings; notes are not on cards."""
    with examined(sample(card), deep=True) as report:
        findings = [f for f in report.findings if f.severity is not Severity.NOTE]
    found = [(f.code, f.span.start, f.carrier.removeprefix(report.name)) for f in findings]
    expected = [(f["code"], f["offset"], f.get("suffix", "")) for f in told(card)["findings"]]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("card", DAMAGED, ids=stem)
def test_damaged_samples_are_named_after_a_code(card: Path) -> None:
    code = named(card)["what"]
    assert code in CODES
    assert code in {finding["code"] for finding in told(card)["findings"]}


def test_every_file_format_has_samples_of_all_its_layouts() -> None:
    """Slot files, whole-context files since version 8, and checkpoint sidecars."""
    shown = {on_card["layout"] for on_card in map(told, INTACT)}
    shown |= {c["layout"] for on_card in map(told, INTACT) for c in on_card.get("companions", ())}
    formats = {"ggsq", "ggsn", "pkcl", "llcp", "lsckpt2", "stck", "stck-gen", "bkcp", "slck"}
    formats.add("ik-checkpoints")
    wanted = {
        layout.id
        for layout in all_layouts()
        if layout.format in formats and "hparams" not in layout.id and layout.id != "sdft"
    }
    assert not wanted - shown
