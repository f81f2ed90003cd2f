"""Samples that real servers saved, restored by the build that saved them."""

from __future__ import annotations

import pytest

from inspector.report import examined
from tests.oracle.trial import Bench, Case, cases, contradictions

pytestmark = pytest.mark.oracle

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


@pytest.mark.parametrize("case", [case for case in CASES if "lfm2" in case.name], ids=str)
def test_a_companion_is_not_read(bench: Bench, case: Case) -> None:
    """Checkpoint sidecars are another program's: this server takes what is in the file, no more."""
    bench.path.write_bytes(case.data)
    bench.path.with_name(f"{bench.path.name}.ckpt").write_bytes(b"PKCL" + bytes(60))
    with examined(bench.path) as report:
        assert any(one.code.startswith("sidecar.") for one in report.findings)
        assert report.tokens is not None
        trial = bench.trial(case, [int(token) for token in report.tokens.ids])
        own = [one for one in report.checkpoints if one.record.carrier in ("", report.name)]
    assert trial.succeeds, str(trial)
    assert trial.taken == len(own)
