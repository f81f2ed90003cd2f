"""Every sample against its card.

Samples are looked at as copies, since what is found may depend on names and on times of change,
which a checkout does not keep. A card says so: `called` is the name that a sample must have, `link`
that of the file it must be a symbolic link to, and `seconds_older` how much earlier a companion was
written.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from formats.layouts import all_layouts, by_id
from inspector.checks import all_codes
from inspector.decode import decode
from inspector.findings import CODES, Finding, Severity
from inspector.identify import Verdict
from inspector.model.geometry import MemoryExpectation, memory_of
from inspector.model.gguf import ModelFile, read_model
from inspector.report import Report, examined
from inspector.source import opened
from samples.make import HERE, files

MOST_BYTES = 1 << 16
MOST_BYTES_OF_ALL = 6 << 20
SAVED = 1_000_000_000
NAME = re.compile(r"(?P<layout>[a-z0-9_.-]+?)--(?P<what>[a-z0-9_.-]+)\.toml")
CARDS = sorted(HERE.glob("*/*.toml"))
MODELS = [card for card in CARDS if card.parent.name == "models"]
INTACT = [card for card in CARDS if card.parent.name == "intact"]
DAMAGED = [card for card in CARDS if card.parent.name == "damaged"]
CONTAINERS = {"ik-tokens", "llama-cpp-python"}
"""Formats that are no rows of the layout table."""

READ_AS = {"blob.iswa-partial--gemma3-b6673": "blob.kv"}
"""Intact samples that look like something else: a window that has not moved is like any cache."""


@cache
def told(card: Path) -> dict[str, Any]:
    return tomllib.loads(card.read_text())


def stem(card: Path) -> str:
    return card.name.removesuffix(".toml")


def sample(card: Path, suffix: str = "") -> Path:
    ending = ".gguf" if card.parent.name == "models" else ".slot"
    return card.with_name(f"{stem(card)}{ending}{suffix}")


def parts(card: Path) -> Iterator[dict[str, Any]]:
    """The sample itself and its companions, as the card describes them."""
    yield {**told(card), "suffix": ""}
    yield from told(card).get("companions", ())


def named(card: Path) -> re.Match[str]:
    match = NAME.fullmatch(card.name)
    assert match is not None
    return match


def laid_out(card: Path, folder: Path) -> Path:
    """A copy of the sample and its companions, with the name and the times on the card."""
    path = folder / told(card).get("called", sample(card).name)
    for one in parts(card):
        copy = path.with_name(path.name + one["suffix"])
        if not one["suffix"] and "link" in one:
            copy.symlink_to(one["link"])
        copy.write_bytes(sample(card, one["suffix"]).read_bytes())
        saved = SAVED - one.get("seconds_older", 0)
        os.utime(copy, (saved, saved))
    return path


@cache
def model(name: str) -> MemoryExpectation:
    with opened(HERE / "models" / f"{name}.gguf") as source:
        header = read_model(source)
        assert isinstance(header, ModelFile)
        memory = memory_of(header)
        assert memory is not None
        return memory


@contextmanager
def looked_at(card: Path, folder: Path, *, deep: bool = True) -> Iterator[Report]:
    architecture = told(card).get("model")
    memory = model(architecture) if architecture else None
    with examined(laid_out(card, folder), model=memory, deep=deep) as report:
        yield report


def seen(report: Report) -> list[tuple[str, tuple[int, int], str]]:
    return sorted(
        (f.code, (f.span.start, f.span.stop), f.carrier.removeprefix(report.name))
        for f in report.findings
    )


# -- cards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("card", CARDS, ids=stem)
def test_card(card: Path) -> None:
    on_card = told(card)
    if card.parent.name != "models":
        assert named(card)["layout"] == on_card["layout"]
    assert on_card["layout"] in CONTAINERS or by_id(on_card["layout"]) is not None
    assert on_card["licence"] in ("CC0-1.0", "MIT")
    assert on_card["about"].endswith(".")
    assert on_card["origin"]["kind"] in ("synthetic", "written")
    assert on_card["origin"]["made_by"]
    for one in parts(card):
        data = sample(card, one["suffix"]).read_bytes()
        assert len(data) <= MOST_BYTES
        assert hashlib.sha256(data).hexdigest() == one["sha256"]


def test_every_file_has_a_card() -> None:
    expected = set(CARDS) | {sample(c, one["suffix"]) for c in CARDS for one in parts(c)}
    here = {path for path in HERE.glob("*/*") if path.parent.name != "__pycache__"}
    assert here == expected
    assert sum(path.stat().st_size for path in here) <= MOST_BYTES_OF_ALL


def test_synthetic_samples_are_rebuilt_byte_for_byte() -> None:
    made = files()
    assert {path: (HERE / path).read_bytes() for path in made} == made
    synthetic = {card for card in CARDS if told(card)["origin"]["kind"] == "synthetic"}
    assert {HERE / path for path in made if path.endswith(".toml")} == synthetic


# -- what is found ---------------------------------------------------------------------------------


@pytest.mark.parametrize("card", CARDS, ids=stem)
def test_all_that_is_found_is_on_the_card(card: Path, tmp_path: Path) -> None:
    expected = [(f["code"], tuple(f["span"]), f.get("suffix", "")) for f in told(card)["findings"]]
    with looked_at(card, tmp_path) as report:
        assert seen(report) == sorted(expected)
        for finding in report.findings:
            assert_it_says_what_it_must(finding, tmp_path / (finding.carrier or report.name))
        if card in INTACT:
            assert_it_is_recognised_without_complaint(report, card)


def assert_it_says_what_it_must(finding: Finding, file: Path) -> None:
    assert finding.message
    assert not finding.message.endswith(".")
    assert "  " not in finding.message
    assert finding.expected
    assert finding.actual
    assert finding.expected != finding.actual
    assert 0 <= finding.span.start <= finding.span.stop <= file.stat().st_size


def assert_it_is_recognised_without_complaint(report: Report, card: Path) -> None:
    assert report.identification.verdict is Verdict.RECOGNISED
    assert report.identification.reading is not None
    layout = READ_AS.get(stem(card), told(card)["layout"])
    assert report.identification.reading.layout.id == layout
    assert {finding.severity for finding in report.findings} <= {Severity.NOTE}


@pytest.mark.parametrize("card", [card for card in CARDS if told(card).get("model")], ids=stem)
def test_without_a_model_nothing_is_said_against_a_sample(card: Path, tmp_path: Path) -> None:
    with examined(laid_out(card, tmp_path), deep=True) as report:
        assert_it_is_recognised_without_complaint(report, card)


@pytest.mark.parametrize("card", INTACT, ids=stem)
def test_intact_samples_are_explained_by_their_layout(card: Path) -> None:
    for one in parts(card):
        if one["layout"] in CONTAINERS:
            continue
        layout = by_id(one["layout"])
        assert layout is not None
        with opened(sample(card, one["suffix"])) as source:
            assert decode(source, layout, source.whole()).complete


# -- one fault, one finding ------------------------------------------------------------------------


TOGETHER = {"cells.end-mismatch": {"cells.pos-duplicate"}}
"""As many cells as tokens end early only where a position stands twice: where, and what follows."""


@pytest.mark.parametrize("card", DAMAGED, ids=stem)
def test_a_damaged_sample_stands_for_its_code_alone(card: Path) -> None:
    code = named(card)["what"]
    codes = [finding["code"] for finding in told(card)["findings"]]
    assert codes.count(code) == 1
    faults = {other for other in codes if all_codes()[other].severity is not Severity.NOTE}
    assert faults - {code} == TOGETHER.get(code, set())


def test_every_code_has_a_damaged_sample() -> None:
    """But those of a verdict, which need a server: tests/unit/test_check.py has them.

    And that of files which cannot be read, of which a checkout has none: tests/unit/test_apply.py.
    """
    of_files = {code for code in all_codes() if not code.startswith(("target.", "identity."))}
    assert {named(card)["what"] for card in DAMAGED} == of_files - {"sidecar.unreadable"}


@pytest.mark.parametrize("card", [card for card in DAMAGED if told(card).get("deep")], ids=stem)
def test_the_numbers_must_be_read_for_what_a_card_calls_deep(card: Path, tmp_path: Path) -> None:
    with looked_at(card, tmp_path, deep=False) as report:
        assert seen(report) == []


LISTS = [
    (card, companion["suffix"])
    for card in (*INTACT, *DAMAGED)
    for companion in told(card).get("companions", ())
    if companion["suffix"] in (".ckpt", ".checkpoints") and companion["layout"]
]


def label(value: Path | str) -> str:
    return value if isinstance(value, str) else stem(value)


@pytest.mark.parametrize(("card", "suffix"), LISTS, ids=label)
def test_a_list_alone_has_the_same_faults(card: Path, suffix: str, tmp_path: Path) -> None:
    """No more than is said of it beside its state, and all that is wrong with it."""
    path = laid_out(card, tmp_path)
    with examined(path.with_name(path.name + suffix)) as report:
        alone = {(code, span) for code, span, _ in seen(report)}
    beside = {
        (finding["code"], tuple(finding["span"]))
        for finding in told(card)["findings"]
        if finding.get("suffix") == suffix
    }
    of_the_pair = {
        "sidecar.not-counted",
        "sidecar.shared",
        "sidecar.stale",
        "seal.companion-differs",
    }
    assert alone == {(code, span) for code, span in beside if code not in of_the_pair}


# -- the whole table -------------------------------------------------------------------------------


def test_every_file_format_has_samples_of_all_its_layouts() -> None:
    """Slot files, whole-context files since version 8, and checkpoint sidecars."""
    shown = {one["layout"] for card in INTACT for one in parts(card)}
    formats = {"ggsq", "ggsn", "pkcl", "llcp", "lsckpt2", "stck", "stck-gen", "bkcp", "slck"}
    formats.add("ik-checkpoints")
    wanted = {
        layout.id
        for layout in all_layouts()
        if layout.format in formats and "hparams" not in layout.id and layout.id != "sdft"
    }
    assert not wanted - shown


def test_codes_are_registered_once() -> None:
    assert all_codes() is CODES
