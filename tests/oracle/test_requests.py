"""Requests that `slotscope tokens` prints, sent to real servers; its text, held against theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from tests.oracle.builds import BUILDS
from tests.oracle.server import BYTE_TOKENS
from tests.oracle.test_saves import saved
from tests.oracle.trial import MODELS, NAME, SUFFIX, Bench, Case

pytestmark = pytest.mark.oracle

CASES = [
    Case(f"{model}-{build}", build, MODELS / f"{model}.gguf", ())
    for build in (BUILDS[0], BUILDS[-1])
    for model in ("llama-gqa", "qwen35", "mamba")
]
FEW = {
    "n_predict": 1,
    "temperature": 0,
    "ignore_eos": True,
    "logit_bias": [[token, False] for token in range(BYTE_TOKENS)],
}
"""What a user may add."""


def printed(*words: object) -> str:
    result = CliRunner().invoke(app, ["tokens", *map(str, words)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_resume_is_an_exact_append(bench: Bench, case: Case) -> None:
    held = len(saved(bench, case).tokens)
    body: dict[str, Any] = json.loads(printed(bench.path, "--request"))
    assert len(body["prompt"]) == held
    body["prompt"].append(SUFFIX[0])
    with bench.serve(case.build, case.model, case.flags) as server:
        assert server.restore(NAME).ok
        answer = server.ask("/completion", body | FEW)
        assert answer.ok, answer
        assert answer.reused == held
        assert answer.body["id_slot"] == 0


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_text_is_appended_too(bench: Bench, case: Case) -> None:
    held = len(saved(bench, case).tokens)
    body = json.loads(printed(bench.path, "--request", "--text", " to be continued"))
    with bench.serve(case.build, case.model, case.flags) as server:
        assert server.restore(NAME).ok
        tokenized = server.ask("/tokenize", {"content": " to be continued"}).body["tokens"]
        answer = server.ask("/completion", body | FEW)
        assert answer.ok, answer
        assert answer.reused == held
        assert answer.body["tokens_evaluated"] == held + len(tokenized)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_text_is_the_servers(bench: Bench, case: Case) -> None:
    tokens = saved(bench, case).tokens
    with bench.serve(case.build, case.model, case.flags) as server:
        answer = server.ask("/detokenize", {"tokens": list(tokens)})
    assert printed(bench.path, "--model", case.model) == answer.body["content"]
