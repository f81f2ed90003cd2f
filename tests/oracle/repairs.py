"""A save, a server, and what `slotscope repair` makes of the one for the other."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inspector.check import checked
from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.server.loader import Outcome
from inspector.server.reuse import Outcome as Answered
from inspector.server.reuse import Request
from inspector.server.target import target_of
from tests.oracle.builds import Build, build_of
from tests.oracle.server import Answer, Server
from tests.oracle.test_records import prompt
from tests.oracle.trial import MODELS, NAME, OTHERWISE, Bench, agree
from tests.oracle.whole import Whole

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
"""Saves and models that are too many to lie beside these tests."""
NEW = "new.slot"
PLAIN = "-np 1 --no-kv-unified --cache-ram 0"
N_PREDICT = 16

Tokens = tuple[int, ...]

REFUSED, DIES, WRONG = "refused", "dies", "wrong"
"""What a server does instead of reusing anything: with the restore, with the request, and with the
answer, which no prediction is made of."""


def _more(n: int) -> Tokens:
    """Tokens that go on from a save otherwise than `OTHERWISE`."""
    return tuple(300 + (7 * i + i * i // 5) % 90 for i in range(n))


REQUESTS: dict[str, Callable[[Tokens], tuple[Tokens, ...]]] = {
    "append": lambda held: ((*held, *OTHERWISE),),
    "identical": lambda held: (held,),
    "back 8": lambda held: ((*held[:-8], *OTHERWISE),),
    "back 20": lambda held: ((*held[:-20], *OTHERWISE),),
    "back to 230": lambda held: ((*held[:230], *OTHERWISE),),
    "append 150, then back": lambda held: ((*held, *_more(150)), (*held, *OTHERWISE)),
    "append 100, then back": lambda held: ((*held, *_more(100)), (*held, *OTHERWISE)),
    "append 300, then back": lambda held: ((*held, *_more(300)), (*held, *OTHERWISE)),
}
"""Prompts behind a restore; the last one of each is the one that is looked at."""


@dataclass(frozen=True)
class Save:
    """A slot after one prompt, saved by a server here and now.

    Attributes:
        model: of the server.
        build: its number.
        n: tokens of the prompt.
        flags: of the server.
        slot: the one that is saved.
        n_predict: tokens of the answer; the last one is not in memory.
    """

    model: str
    build: int
    n: int = 100
    flags: str = f"-c 512 {PLAIN}"
    slot: int = 0
    n_predict: int = 1

    def put(self, bench: Bench, path: Path) -> None:
        """Write it, with what lies beside it."""
        build, model = build_of(self.build), model_of(self.model)
        with bench.serve(build, model, self.flags.split()) as server:
            asked = (1, *prompt(self.n - 1))
            answer = server.complete(asked, self.slot, n_predict=self.n_predict)
            assert answer.ok, answer
            assert server.save(path.name, self.slot).ok

    def __str__(self) -> str:
        """In short."""
        return f"{self.model} of b{self.build}"


@dataclass(frozen=True)
class Stored:
    """A save that another writer left us.

    Attributes:
        model: that it belongs to.
        name: of the file, below the folder of all of them.
    """

    model: str
    name: str

    def put(self, bench: Bench, path: Path) -> None:
        """Copy it, with what lies beside it."""
        source = SHARED / self.name
        if not source.is_file():
            pytest.skip(f"{self.name} is not at hand")
        for one in source.parent.glob(f"{source.name}*"):
            shutil.copyfile(one, path.with_name(path.name + one.name.removeprefix(source.name)))

    def __str__(self) -> str:
        """In short."""
        return self.name.removeprefix("corpus").strip("/-").removesuffix(".bin")


@dataclass(frozen=True)
class Case:
    """A repair, and what a server does before and after it.

    Attributes:
        save: what is repaired.
        reads: the number of the build that restores it.
        steps: the actions that are taken.
        reused: tokens reused by requests, without and with the repair.
        flags: of the server that restores it.
        options: of the repair.
        damage: what is done to the save first.
    """

    save: Save | Stored
    reads: int
    steps: str
    reused: dict[str, tuple[int | str, int]]
    flags: str = f"-c 512 {PLAIN}"
    options: str = ""
    damage: Callable[[Whole], bytes] | None = None

    @property
    def build(self) -> Build:
        return build_of(self.reads)

    @property
    def model(self) -> Path:
        return model_of(self.save.model)

    def __str__(self) -> str:
        """In short."""
        flags = " ".join(self.flags.replace(PLAIN, "").replace("-c 512", "").split())
        words = f"{self.steps}: {self.save} to b{self.reads} {flags} {self.options}"
        return words.strip().replace(" ", "_")


def model_of(name: str) -> Path:
    """The file of a model."""
    path = MODELS / f"{name}.gguf"
    if not path.is_file():
        path = SHARED / "corpus" / "models" / path.name
    if not path.is_file():
        pytest.skip(f"the model {name} is not at hand")
    return path


class Workshop:
    """Makes saves and cold runs once, and tries repairs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._saves: dict[Save | Stored, Path] = {}
        self._cold: dict[tuple[Path, int, str, Tokens], Answer] = {}

    def put(self, save: Save | Stored, bench: Bench) -> Path:
        """A fresh copy of a save at the file on trial, and what lies beside it."""
        if save not in self._saves:
            save.put(bench, bench.path)
            self._saves[save] = self._folder / str(len(self._saves))
            self._saves[save].mkdir()
            for one in bench.folder.glob(f"{NAME}*"):
                shutil.copyfile(one, self._saves[save] / one.name)
        for one in self._saves[save].iterdir():
            shutil.copyfile(one, bench.folder / one.name)
        return bench.path

    def cold(self, case: Case, prompt: Tokens, bench: Bench) -> Answer:
        """The answer of the server that restores to a prompt, without memory."""
        key = (case.model, case.reads, case.flags, prompt)
        if key not in self._cold:
            with bench.serve(case.build, case.model, case.flags.split()) as server:
                answer = server.complete(prompt, n_predict=N_PREDICT, reuse=False)
            assert answer.ok, answer
            assert answer.reused == 0
            self._cold[key] = answer
        return self._cold[key]


def repaired(case: Case, file: Path) -> dict[str, Any]:
    """What the command says of a repair for the server of a case; the copy lies beside the file."""
    server = f"llama-server -m {case.model} {case.flags}"
    words = ("--for", server, "--build", case.build, *case.options.split())
    return ran(file, file.with_name(NEW), *words)


def ran(file: Path, new: Path, *words: object) -> dict[str, Any]:
    """What the command says of a repair, and how it ends."""
    command = (sys.executable, "-c", "from inspector.cli import main; main()", "repair")
    done = subprocess.run(
        [*command, *map(str, (file, "-o", new, *words)), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr[-500:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"exit": done.returncode}


def steps_left(case: Case, file: Path) -> list[str]:
    """What would still be done to a file for the server of a case."""
    command = f"llama-server -m {case.model} {case.flags}"
    with (
        target_of(command, str(case.build)) as target,
        planned(file, target, Options(), file.name) as plan,
    ):
        return [step.action for step in plan.steps]


def predicted(case: Case, path: Path, held: Tokens, prompts: Sequence[Tokens]) -> int | str:
    """What is claimed that the last of some prompts reuses behind a restore."""
    requests = [Request(common(held, one), len(one)) for one in prompts]
    if len(requests) > 1:
        requests[1] = Request(common(prompts[0], prompts[1]), len(prompts[1]))
    command = f"llama-server -m {case.model} {case.flags}"
    with (
        target_of(command, str(case.build)) as target,
        checked(path, target, requests[:1], then=requests[1] if requests[1:] else None) as found,
    ):
        if found.restore.outcome is not Outcome.ACCEPTS:
            return REFUSED
        (answer,) = found.reuse
        last = answer.then or answer.found
        if last.outcome is Answered.ABORTS:
            return DIES
        assert last.reused is not None, last.why
        return last.reused


def asked(server: Server, name: str, prompts: Sequence[Tokens]) -> Answer:
    """The answer to the last of some prompts behind a restore, or to the restore if that fails."""
    answer = server.restore(name)
    for prompt_ in prompts:
        if not answer.ok:
            return answer
        last = prompt_ == prompts[-1]
        answer = server.complete(prompt_, n_predict=N_PREDICT if last else 1)
    return answer


def measured(answer: Answer) -> int | str:
    """What came of a prompt, as cases have it."""
    if answer.ok:
        return answer.reused
    return DIES if answer.death else REFUSED


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """First tokens that are alike."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def outcomes(case: Case, held: Sequence[int], bench: Bench, workshop: Workshop) -> Iterator[str]:
    """What is not as the case has it, of the files on trial, repaired and not."""
    new = Whole(bench.folder / NEW).tokens
    for name, (before, after) in case.reused.items():
        prompts = REQUESTS[name](tuple(held))
        for file, tokens, expected in ((NAME, held, before), (NEW, new, after)):
            with bench.serve(case.build, case.model, case.flags.split()) as server:
                answer = asked(server, file, prompts)
            found = measured(answer)
            if answer.ok and (file == NEW or expected == WRONG):
                cold = workshop.cold(case, prompts[-1], bench)
                if not agree(answer, cold):
                    found = WRONG
            if found != expected:
                yield f"{name} of {file}: {expected} expected, {found} measured: {answer}"
            claimed = predicted(case, bench.folder / file, tuple(tokens), prompts)
            if claimed != found and found != WRONG:
                yield f"{name} of {file}: {claimed} predicted, {found} measured"
