"""A state with cells missing between others: every prompt that shares a part of it."""

from __future__ import annotations

import shutil

import pytest

from inspector.check import checked
from inspector.server.reuse import Outcome, Request
from inspector.server.target import target_of
from tests.oracle.builds import BUILDS, Build
from tests.oracle.repairs import ran
from tests.oracle.trial import MODELS, OTHERWISE, SAMPLES, Bench, Case

pytestmark = pytest.mark.oracle

HOLES = SAMPLES / "damaged" / "ggsq2.kv--cells.pos-not-tokens.slot"
MODEL = MODELS / "llama-gqa.gguf"


@pytest.mark.parametrize("build", [BUILDS[0], BUILDS[-1]], ids=str)
def test_prompts_are_refused_where_the_memory_left_does_not_end_before_them(
    build: Build, bench: Bench
) -> None:
    shutil.copyfile(HOLES, bench.path)
    if build.version != BUILDS[0].version:
        words = ("--for", f"llama-server -m {MODEL}", "--build", build)
        assert ran(HOLES, bench.path.with_name("new"), *words)["exit"] == 0
        bench.path.with_name("new").replace(bench.path)
    with target_of("llama-server -c 512 -np 1", str(build), MODEL) as target:
        with checked(bench.path, target) as found:
            assert found.report.tokens is not None
            held = tuple(found.report.tokens.ids.tolist())
        requests = [Request(n, n + len(OTHERWISE)) for n in range(1, len(held) + 1)]
        with checked(bench.path, target, requests) as found:
            predicted = [one.found for one in found.reuse]
    case = Case("holes", build, MODEL, ("-c", "512", "-np", "1"))
    trials = bench.requests(case, held, range(1, len(held) + 1))
    assert len(trials) == len(held)
    refused, wrong = [], []
    for prediction, trial in zip(predicted, trials, strict=True):
        assert trial.answer.ok == (prediction.outcome is Outcome.REUSES), (prediction, trial)
        if not trial.answer.ok:
            assert "Invalid input batch." in str(trial.answer)
            refused.append(trial.shared)
            continue
        assert trial.answer.reused == prediction.reused, (prediction, trial)
        assert trial.harmed == bool(prediction.notes), (prediction, trial)
        wrong += [trial.shared] * trial.harmed
    assert refused == list(range(13, 21))
    assert wrong == list(range(21, 36))
