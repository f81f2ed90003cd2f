"""The register of findings: what is said of every code, and how."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inspector.checks import all_codes, in_order
from inspector.cli.app import app
from inspector.findings import Code, Finding, RemedyKind, Severity, register, worst
from inspector.report import examined
from inspector.span import Span

SAMPLES = Path(__file__).resolve().parents[2] / "samples/intact"
REGISTERED = list(all_codes().values())
NAME = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")
LONGEST_MEANING = 100
IMPERATIVE = re.compile(r"(write|cut|put|take|restamp|sort|delete|trust|use|start|move)\b")


def code_of(code: Code) -> str:
    return code.code


@pytest.mark.parametrize("code", REGISTERED, ids=code_of)
def test_a_code_is_documented(code: Code) -> None:
    assert NAME.fullmatch(code.code)
    texts = {
        f.name: getattr(code, f.name) for f in fields(code) if f.name not in ("code", "severity")
    }
    for name, text in texts.items():
        assert text, name
        assert text == " ".join(text.split()), name
        assert not text.endswith("."), name
    assert code.meaning[0].isupper()
    assert len(code.meaning) <= LONGEST_MEANING
    for text in (code.consequence, code.advice):
        assert not text[0].isupper(), text
    assert len(code.source) > len("llama.cpp")


@pytest.mark.parametrize("code", REGISTERED, ids=code_of)
def test_advice_fits_the_kind_of_remedy(code: Code) -> None:
    if code.remedy is RemedyKind.EXACT:
        assert IMPERATIVE.match(code.advice)
    if code.advice == "not needed" or code.advice.startswith("not needed:"):
        assert code.remedy is RemedyKind.NONE
        assert code.severity is Severity.NOTE


@pytest.mark.parametrize("code", REGISTERED, ids=code_of)
def test_a_code_is_explained_on_the_command_line(code: Code) -> None:
    result = CliRunner().invoke(app, ["explain", code.code])
    assert result.exit_code == 0
    printed = " ".join(result.output.split())
    for text in (
        code.code,
        code.severity,
        code.meaning,
        code.consequence,
        code.advice,
        code.source,
    ):
        assert text in printed


def test_codes_of_the_same_meaning_are_those_of_lists_within_a_state_and_beside_it() -> None:
    by_meaning: dict[str, list[str]] = {}
    for code in REGISTERED:
        by_meaning.setdefault(code.meaning, []).append(code.code)
    for codes in by_meaning.values():
        problems = {code.partition(".")[2] for code in codes}
        assert len(problems) == 1
        assert len(codes) == 1 or {code.partition(".")[0] for code in codes} == {
            "appendix",
            "checkpoint",
        }


def test_a_code_is_registered_once() -> None:
    with pytest.raises(ValueError, match=REGISTERED[0].code):
        register(replace(REGISTERED[0], meaning="Something else"))


def found(code: str, start: int = 0, carrier: str = "") -> Finding:
    return Finding(code, "", Span(start, start + 4), "this", "that", "other", (), carrier)


def test_findings_stand_in_order_of_weight_carrier_and_place() -> None:
    note, warning = found("state.empty", 0), found("cells.pos-negative", 9)
    first, second = found("file.truncated", 4), found("file.truncated", 8)
    beside = found("sidecar.truncated-unchecked", 0, "slot.ckpt")
    findings = (note, beside, second, warning, first)
    assert in_order(findings) == (first, second, beside, warning, note)
    assert worst(findings) is Severity.ERROR
    assert worst((note, warning)) is Severity.WARNING
    assert worst(()) is None


def test_bytes_that_are_a_damaged_appendix_are_no_trailing_bytes() -> None:
    trailing, appendix = found("file.trailing-unknown"), found("appendix.magic")
    assert in_order((trailing, appendix)) == (appendix,)
    assert in_order((trailing,)) == (trailing,)


@pytest.mark.parametrize("cut", [1, 5, 600, 1000, 1900])
def test_a_cut_in_values_says_where_the_whole_file_ended(cut: int, tmp_path: Path) -> None:
    data = (SAMPLES / "ggsq2.kv--llama-b10229-short.slot").read_bytes()
    path = tmp_path / "slot.bin"
    path.write_bytes(data[: len(data) - cut])
    with examined(path) as report:
        truncated = next(f for f in report.findings if f.code == "file.truncated")
    whole = f"whole it has {len(data):,} bytes, if nothing follows this section"
    assert truncated.evidence[0] == whole
