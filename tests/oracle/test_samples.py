"""Samples that real servers saved, restored by the build that saved them."""

from __future__ import annotations

import pytest

from inspector.report import examined
from tests.oracle.trial import Bench, Case, cases, contradictions

CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sample(bench: Bench, case: Case) -> None:
    bench.path.write_bytes(case.data)
    with examined(bench.path) as report:
        assert report.tokens is not None
        tokens = [int(token) for token in report.tokens.ids]
        trial = bench.trial(case, tokens)
        wrong = contradictions(report, trial)
    assert not wrong, f"{wrong}; {trial}\n{trial.log}"
