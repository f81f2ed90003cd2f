"""Slots that real servers save here and now: what is said of them, and what their reuse proves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from inspector.builds import build_number
from inspector.findings import Severity
from inspector.identify import Verdict
from inspector.report import Report, examined
from tests.oracle.builds import BUILDS
from tests.oracle.server import Answer, Server
from tests.oracle.trial import MODELS, NAME, Bench, Case

pytestmark = pytest.mark.oracle

PROMPT = (1, *(262 + (37 * i + 11) % 200 for i in range(60)))
SECOND_TURN = (401, 388, 310, 295, 333, 300, 301)
AGAIN = "again.slot"

CASES = [
    Case(f"{model.stem}-{build}", build, model, ())
    for build in BUILDS
    for model in sorted(MODELS.glob("*.gguf"))
]

_CREATED = re.compile(
    r"created context checkpoint \d+ of \d+ "
    r"\(pos_min = (-?\d+), pos_max = (-?\d+), n_tokens = (\d+)"
)
_APPENDED = re.compile(r"appended (\d+) context checkpoint\(s\)")


@dataclass(frozen=True)
class Saved:
    """A slot as its server speaks of it.

    Attributes:
        tokens: prompts and answers.
        answer: to the save.
        log: of the server.
    """

    tokens: tuple[int, ...]
    answer: Answer
    log: str


def talk(server: Server, held: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """Continue the conversation in slot 0; the last token of an answer is not in memory."""
    prompt = held + new
    answer = server.complete(prompt, n_predict=5)
    assert answer.ok, answer
    return prompt + answer.tokens[:-1]


def saved(bench: Bench, case: Case) -> Saved:
    """Two turns, saved to the file on trial."""
    with bench.serve(case.build, case.model, case.flags) as server:
        tokens = talk(server, talk(server, (), PROMPT), SECOND_TURN)
        answer = server.save(NAME)
    assert answer.ok, answer
    return Saved(tokens, answer, server.logged())


def judge(report: Report, path: Path, case: Case, answer: Answer) -> None:
    """What must be true of any save of this build."""
    assert report.identification.verdict is Verdict.RECOGNISED
    assert not [f for f in report.findings if f.severity is not Severity.NOTE]
    reading = report.identification.reading
    assert reading is not None
    assert reading.layout.version == case.build.version
    assert report.identification.writer == "llama.cpp"
    builds = report.identification.builds
    assert build_number(builds.since or "") <= case.build.number
    assert builds.until is None or case.build.number <= build_number(builds.until)
    assert report.tokens is not None
    assert report.tokens.count == answer.body["n_saved"]
    assert path.stat().st_size == answer.body["n_written"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_saved_slot_is_recognised(bench: Bench, case: Case) -> None:
    save = saved(bench, case)
    created = [tuple(map(int, found)) for found in _CREATED.findall(save.log)]
    with examined(bench.path) as report:
        judge(report, bench.path, case, save.answer)
        assert report.tokens is not None
        assert tuple(report.tokens.ids) == save.tokens
        records = [one.record for one in report.checkpoints if one.usable]
        listed = [(one.pos_min, one.pos_max, one.n_tokens) for one in records]
    assert len(listed) == sum(map(int, _APPENDED.findall(save.log)))
    assert listed == (created if case.build.version >= 4 else [])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_restored_slot_is_saved_again(bench: Bench, case: Case) -> None:
    save = saved(bench, case)
    with bench.serve(case.build, case.model, case.flags) as server:
        assert server.restore(NAME).body["n_restored"] == len(save.tokens)
        talk(server, save.tokens, SECOND_TURN)
        answer = server.save(AGAIN)
    appended = sum(map(int, _APPENDED.findall(server.logged())))
    again = bench.folder / AGAIN
    with examined(again) as report:
        judge(report, again, case, answer)
        assert len(report.checkpoints) == appended


@pytest.mark.parametrize("case", CASES, ids=str)
def test_notes_on_reuse(bench: Bench, case: Case) -> None:
    save = saved(bench, case)
    held = len(save.tokens)
    with examined(bench.path) as report:
        trial = bench.trial(case, save.tokens)
        codes = {finding.code for finding in report.findings}
        usable = [one.record.n_tokens or 0 for one in report.checkpoints if one.usable]
        kinds = {section.kind for section in report.sections}
    assert trial.succeeds
    assert trial.right
    assert trial.taken == len(usable)
    assert trial.identical is not None
    assert trial.append is not None
    reused = trial.identical.reused, trial.append.reused
    if "reuse.needs-exact-append" in codes:
        assert reused == (0, held)
    elif "reuse.window-cut" in codes:
        assert reused == (0, 0)
    elif "recurrent" in kinds:
        assert reused == (max(n for n in usable if n < held), held)
    elif usable:
        assert min(reused) > 0
    else:
        assert reused == (held - 1, held)
