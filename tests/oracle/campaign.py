"""Conversations by chance on real servers: what is claimed of their saves, and of repaired copies.

    python -m tests.oracle.campaign --seconds 600 --seed 1

A case is a model, a server that saves a slot, and another one, with options of its own, that
restores it, as it is and repaired. What is claimed is compared with what the server does: the
restore, tokens reused by four prompts, each in a fresh server, and the answers, with those of a
cold evaluation. A contradiction is printed with the seed of its case: `--seed N --cases 1` tries
it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from inspector.check import Check, checked
from inspector.findings import Severity
from inspector.identify import Verdict
from inspector.model.identity import Outcome as Belongs
from inspector.repair.draft import Options
from inspector.repair.outcome import carry_out
from inspector.repair.plan import planned
from inspector.repair.state import Refused
from inspector.report import examined
from inspector.server.loader import Outcome
from inspector.server.prompt import Request
from inspector.server.reuse import Outcome as Answered
from inspector.server.target import target_of
from tests.oracle.builds import BUILDS, EARLIER, Build
from tests.oracle.repairs import NEW, SHARED, common
from tests.oracle.server import Answer
from tests.oracle.trial import MODELS, NAME, SUFFIX, Bench

SERVERS = (*EARLIER, *BUILDS)
TYPES = ("f16", "f16", "f16", "q8_0", "q4_0", "f32", "bf16")
ALIKE = 0.1
"""Log probabilities of a state and of a cold evaluation with other batches or without flash
attention differ by up to 0.04, where sparse attention picks other cells; wrong states by more."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Server:
    """A server by its options.

    Attributes:
        build: the program.
        flags: options, without the model.
        room: tokens of a slot.
        slot: the one that is used.
    """

    build: Build
    flags: tuple[str, ...]
    room: int
    slot: int

    def __str__(self) -> str:
        """As a command line."""
        return f"{self.build} slot {self.slot}: {' '.join(self.flags)}"


def words(dice: random.Random, n: int) -> Tokens:
    """Tokens that are no bytes, of any text."""
    return tuple(dice.randrange(262, 462) for _ in range(n))


def server(dice: random.Random) -> Server:
    """A server with options by chance."""
    n_parallel = dice.choice((1, 1, 2, 4))
    unified = dice.random() < 0.4
    room = dice.choice((256, 512, 1024))
    context = room if unified else room * n_parallel
    flags = ["-c", str(context), "-np", str(n_parallel)]
    flags.append("--kv-unified" if unified else "--no-kv-unified")
    flags += ["--cache-ram", dice.choice(("0", "0", "8192"))]
    flash = dice.choice(("", "on", "off"))
    if flash:
        flags += ["-fa", flash]
    keys = dice.choice(TYPES)
    values = dice.choice((keys, "f16")) if flash == "on" else "f16"
    for option, kind in (("-ctk", keys), ("-ctv", values)):
        if kind != "f16":
            flags += [option, kind]
    for option, chance in (("--swa-full", 0.15), ("-ub 64", 0.4), ("--ctx-checkpoints 2", 0.15)):
        if dice.random() < chance:
            flags += option.split()
    return Server(dice.choice(SERVERS), tuple(flags), room, dice.randrange(n_parallel))


def conversation(bench: Bench, model: Path, wrote: Server, dice: random.Random) -> Tokens:
    """A few turns, some of which go back in the one before, saved to the file on trial."""
    held: Tokens = ()
    with bench.serve(wrote.build, model, wrote.flags) as running:
        for _ in range(dice.randint(1, 3)):
            back = dice.choice((0, 0, dice.randrange(len(held) // 2 + 1)))
            more = words(dice, dice.randint(1, (wrote.room - len(held)) // 3))
            prompt = ((1,) if not held else held[: len(held) - back]) + more
            answer = running.complete(prompt, wrote.slot, dice.randint(1, 8))
            if not answer.ok:
                raise RuntimeError(f"the conversation: {answer}")
            held = (*prompt, *answer.tokens[:-1])
        saved = running.save(NAME, wrote.slot)
        if not saved.ok:
            raise RuntimeError(f"the save: {saved}")
        prompt = (*held, *SUFFIX)
        answers = [running.complete(prompt, wrote.slot, reuse=reuse) for reuse in (True, False)]
        if all(answer.ok for answer in answers) and not alike(*answers):
            raise RuntimeError("its own server answers otherwise than without memory")
    return held


def prompts(held: Tokens, dice: random.Random) -> list[Tokens]:
    """Four prompts that share something with what was saved."""
    n = len(held)
    lengths = (n, dice.randrange(n // 2, n) if n > 1 else 1, dice.randint(1, n))
    return [held, *((*held[:length], *words(dice, dice.randint(1, 9))) for length in lengths)]


def verdict(file: Path, model: Path, reads: Server, held: Tokens, asked: Sequence[Tokens]) -> Check:
    requests = [Request(common(held, prompt), len(prompt)) for prompt in asked]
    with ExitStack() as stack:
        command = f"llama-server {' '.join(reads.flags)}"
        target = stack.enter_context(target_of(command, str(reads.build), model))
        return stack.enter_context(checked(file, target, requests))


class Trial:
    """One case."""

    def __init__(self, bench: Bench, dice: random.Random, models: Sequence[Path]) -> None:
        self.bench, self.dice, self.models = bench, dice, models
        self.model, self.wrote, self.reads = dice.choice(models), server(dice), server(dice)
        self.seen: Counter[str] = Counter()

    def __str__(self) -> str:
        """What is tried."""
        return f"{self.model.stem}: {self.wrote} -> {self.reads}"

    def contradictions(self) -> Iterator[str]:
        """What is claimed, and what the servers do."""
        path = self.bench.path
        held = conversation(self.bench, self.model, self.wrote, self.dice)
        yield from self._about_the_save(path, held)
        asked = prompts(held, self.dice)
        yield from self._restored(path, held, asked, exact=True)
        yield from self._of_another_model(path)
        new = path.with_name(NEW)
        with ExitStack() as stack:
            command = f"llama-server {' '.join(self.reads.flags)}"
            build = str(self.reads.build)
            target = stack.enter_context(target_of(command, build, self.model))
            try:
                plan = stack.enter_context(planned(path, target, Options(), NEW))
            except Refused as refused:
                self.seen[f"no repair: {str(refused)[:60]}"] += 1
                return
            steps = [step.action for step in plan.steps]
            self.seen[" ".join(steps) or "no step"] += 1
            if not steps or plan.futile or plan.undone or plan.unconfirmed:
                return
            carry_out(plan, new, force=True)
        with examined(new) as report:
            assert report.tokens is not None
            kept = tuple(report.tokens.ids)
        asked = [prompt for prompt in asked if common(kept, prompt)]
        for line in self._restored(new, kept, asked, exact="transcode" not in steps):
            yield f"the copy ({' '.join(steps)}): {line}"

    def _about_the_save(self, path: Path, held: Tokens) -> Iterator[str]:
        with examined(path) as report:
            if report.identification.verdict is not Verdict.RECOGNISED:
                yield f"inspect: {report.identification.verdict}"
            for finding in report.findings:
                if finding.severity is not Severity.NOTE:
                    yield f"inspect: {finding.code} {finding.message}"
            if report.tokens is None or tuple(report.tokens.ids) != held:
                yield "inspect: other tokens"

    def _of_another_model(self, path: Path) -> Iterator[str]:
        """Nothing belongs to a model with other numbers."""
        other = self.dice.choice([model for model in self.models if model != self.model])
        found = verdict(path, other, self.reads, (), ())
        self.seen[f"another model {found.identity.outcome}"] += 1
        if found.identity.outcome in (Belongs.MATCHES, Belongs.RELATED):
            yield f"{found.identity.outcome} {other.name}: {found.identity.evidence}"

    def _restored(
        self, path: Path, held: Tokens, asked: Sequence[Tokens], *, exact: bool
    ) -> Iterator[str]:
        """What a restore and each prompt behind it do otherwise than was said."""
        found = verdict(path, self.model, self.reads, held, asked)
        warned = [f.code for f in found.findings if f.severity is not Severity.NOTE]
        self.seen[f"model {found.identity.outcome}"] += 1
        if found.identity.outcome.in_short == Belongs.DIFFERS:
            yield f"model: {found.identity.outcome}, {found.identity.evidence}"
        for prompt, claim in zip(asked, found.reuse, strict=True):
            with self.bench.serve(self.reads.build, self.model, self.reads.flags) as running:
                restored = running.restore(path.name, self.reads.slot)
                did = outcome(restored)
                self.seen[f"restore {did}"] += 1
                if did is not found.restore.outcome:
                    yield f"restore: {found.restore.outcome} claimed, {restored}"
                if not restored.ok:
                    return
                answer = running.complete(prompt, self.reads.slot)
                cold = None
                if answer.ok:
                    cold = running.complete(prompt, self.reads.slot, reuse=False)
            what = f"{common(held, prompt)}/{len(prompt)}"
            if claim.found.outcome is Answered.UNKNOWN:
                self.seen["unknown"] += 1
            elif claim.found.outcome is not Answered.REUSES:
                if answer.ok:
                    yield f"{what}: {claim.found.outcome} claimed ({claim.found.why}), {answer}"
            elif not answer.ok:
                yield f"{what}: {claim.found.reused} claimed ({claim.found.why}), {answer}"
            elif claim.found.reused != answer.reused:
                yield f"{what}: {claim.found.reused} claimed ({claim.found.why}), {answer.reused}"
            if exact and cold is not None and not warned and not alike(answer, cold):
                yield f"{what}: another answer than without memory, {answer.reused} reused"


def alike(one: Answer, other: Answer) -> bool:
    """Whether two answers find tokens alike likely; one that is not listed is the least likely."""
    some, others = one.likeliest, other.likeliest
    if None in (*some.values(), *others.values()):  # what is no number
        return some.keys() == others.keys()
    least, lowest = min(some.values()), min(others.values())
    return all(
        abs(some.get(token, least) - others.get(token, lowest)) < ALIKE
        for token in {*some, *others}
    )


def outcome(answer: Answer) -> Outcome:
    if answer.ok:
        return Outcome.ACCEPTS
    return Outcome.ABORTS if answer.death else Outcome.REFUSES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=sys.maxsize)
    asked = parser.parse_args()
    models = sorted([*MODELS.glob("*.gguf"), *SHARED.glob("corpus/models/*.gguf")])
    models = list({model.name: model for model in models}.values())
    end, passed, failed = time.monotonic() + asked.seconds, 0, 0
    seen: Counter[str] = Counter()
    for seed in range(asked.seed, asked.seed + asked.cases):
        if time.monotonic() >= end:
            break
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(Bench(Path(folder)), random.Random(seed), models)
            try:
                wrong = list(trial.contradictions())
            except RuntimeError as error:  # no server, or no conversation, with these options
                seen[f"not tried: {str(error).splitlines()[-1]}"] += 1
                continue
        seen += trial.seen
        passed, failed = passed + (not wrong), failed + bool(wrong)
        if wrong:
            print(f"seed {seed}: {trial}", *wrong, sep="\n    ", flush=True)
    for what, n in sorted(seen.items()):
        print(f"{n:6} {what}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
