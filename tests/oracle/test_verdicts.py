"""Verdicts against servers here and now: saves restored on several builds, four prompts each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from inspector.check import Check, checked
from inspector.server.loader import Outcome
from inspector.server.reuse import Outcome as Answered
from inspector.server.reuse import Request
from inspector.server.target import target_of
from tests.oracle.builds import BUILDS, Build, build_of
from tests.oracle.server import Answer
from tests.oracle.trial import MODELS, NAME, Bench

pytestmark = pytest.mark.oracle

SERVERS = (build_of(7551), build_of(9538), BUILDS[-1])
SINCE = {"qwen35": 8000, "glm4moe-nextn": 8000}
"""Builds that know a model."""
PROMPT = (1, *(262 + (37 * i + 11) % 200 for i in range(60)))
OTHERS = tuple(300 + (7 * i) % 90 for i in range(12))
"""Tokens that continue a prompt otherwise than the saved ones."""
PLAIN = "-c 512 -np 1 --no-kv-unified --cache-ram 0"
VARIANTS = (
    PLAIN,
    "-c 1024 -np 2 --no-kv-unified --cache-ram 0",
    f"{PLAIN} -fa off",
    f"{PLAIN} -ctk q8_0 -fa on",
    "-c 512 -np 1 --no-kv-unified --cache-ram 0 -ub 64",
)


class Pair(NamedTuple):
    """A save, and a server that restores it."""

    model: Path
    wrote: Build
    reads: Build
    flags: str

    def __str__(self) -> str:
        """In short."""
        options = self.flags.replace(PLAIN, "").strip() or "plain"
        return f"{self.model.stem}-{self.wrote}-{self.reads}-{options.replace(' ', '_')}"


def pairs() -> Iterator[Pair]:
    for model in sorted(MODELS.glob("*.gguf")):
        servers = [build for build in SERVERS if build.number >= SINCE.get(model.stem, 0)]
        for wrote in servers:
            for reads in servers:
                yield Pair(model, wrote, reads, PLAIN)
        for flags in VARIANTS[1:]:
            if (model.stem, "-fa off" in flags) != ("deepseek2-mla", True):
                yield Pair(model, SERVERS[1], SERVERS[1], flags)


PAIRS = list(pairs())


@pytest.fixture(scope="module")
def saves(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Path, Build], Path]:
    """Saves that were made so far in this process."""
    return {}


def saved(
    made: dict[tuple[Path, Build], Path], model: Path, build: Build, bench: Bench
) -> tuple[Path, tuple[int, ...]]:
    """A slot after one prompt and its answer, and its tokens."""
    if (model, build) not in made:
        with bench.serve(build, model, PLAIN.split()) as server:
            answer = server.complete(PROMPT, n_predict=5)
            assert answer.ok, answer
            assert server.save(NAME).ok
        made[model, build] = bench.path
        made[model, build].with_suffix(".txt").write_text(" ".join(map(str, answer.tokens[:-1])))
    path = made[model, build]
    answered = map(int, path.with_suffix(".txt").read_text().split())
    return path, (*PROMPT, *answered)


def prompts(held: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    n = len(held)
    return {
        "append": (*held, *OTHERS),
        "identical": held,
        "roll back 8": (*held[: n - 8], *OTHERS),
        "half": (*held[: n // 2], *OTHERS),
    }


def common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def outcome(answer: Answer) -> Outcome:
    if answer.ok:
        return Outcome.ACCEPTS
    return Outcome.ABORTS if answer.death else Outcome.REFUSES


def verdict(pair: Pair, path: Path, requests: list[Request]) -> Check:
    command = f"llama-server {pair.flags}"
    with (
        target_of(command, str(pair.reads), pair.model) as target,
        checked(path, target, requests) as found,
    ):
        return found


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 60
    assert len({pair.model for pair in PAIRS}) >= 6


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_server_does_what_was_said(
    pair: Pair, bench: Bench, saves: dict[tuple[Path, Build], Path]
) -> None:
    path, held = saved(saves, pair.model, pair.wrote, bench)
    if path != bench.path:
        shutil.copyfile(path, bench.path)
    asked = prompts(held)
    requests = [Request(common(held, prompt), len(prompt)) for prompt in asked.values()]
    found = verdict(pair, bench.path, requests)
    for (name, prompt), answer in zip(asked.items(), found.reuse, strict=True):
        with bench.serve(pair.reads, pair.model, pair.flags.split()) as server:
            restored = server.restore(NAME)
            assert found.restore.outcome == outcome(restored), (found.restore, str(restored))
            if not restored.ok:
                return
            reply = server.complete(prompt)
        predicted = answer.found
        if predicted.outcome is Answered.REUSES:
            assert reply.ok, (name, str(reply), predicted.why)
            assert (name, predicted.reused) == (name, reply.reused), predicted.why
        else:
            assert predicted.outcome is not Answered.UNKNOWN, (name, predicted.why)
            assert bool(reply.death) == (predicted.outcome is Answered.ABORTS), (name, str(reply))
