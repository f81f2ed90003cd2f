"""One file on one real server: does it restore, and what do the next prompts get from it?"""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from inspector.builds import build_number
from inspector.findings import Severity
from inspector.report import Report
from samples.make import HERE as SAMPLES
from tests.oracle.builds import BUILDS, Build, installed
from tests.oracle.server import Answer, Server

MODELS = Path(__file__).with_name("models")
NAME = "state.slot"
SUFFIX = (300, 301, 302)
"""What an append adds to the saved tokens."""

_LOG_CHARACTERS = 3000
_ALIKE = 0.02
"""Log probabilities differ by up to 0.011 between an intact state and a cold evaluation, which cuts
the same tokens into other batches; wrong states differ by 0.02 to infinity."""
_ALL_IGNORED = {
    "appendix.truncated",
    "appendix.count-exceeds-file",
    "appendix.magic",
    "appendix.unknown-version",
    "appendix.blob-empty",
}
"""Claims that a server takes no checkpoint of the file."""

_TAKEN = re.compile(r"restored (\d+) context checkpoint\(s\) from")
_WENT_BACK = re.compile(
    r"restored context checkpoint "
    r"\(pos_min = (-?\d+), pos_max = (-?\d+), n_tokens = (-?\d+)"
)


@dataclass(frozen=True)
class Case:
    """A real state file and the server that wrote it.

    Attributes:
        name: of the file's sample, without its suffix.
        build: of the server.
        model: its file.
        flags: of llama-server, without model and folder.
    """

    name: str
    build: Build
    model: Path
    flags: tuple[str, ...]

    @property
    def data(self) -> bytes:
        return (SAMPLES / f"{self.name}.slot").read_bytes()

    def __str__(self) -> str:
        """Its name."""
        return self.name


def cases() -> Iterator[Case]:
    """The samples that servers of these builds saved from models that are at hand."""
    builds = {build.package: build for build in BUILDS}
    for card in sorted(SAMPLES.glob("*/ggsq*.toml")):
        origin = tomllib.loads(card.read_text())["origin"]
        build = builds.get(origin.get("package", "").replace(" ", "=="))
        program, *words = shlex.split(origin["made_by"])
        if build is None or program != "llama-server":
            continue
        model = MODELS / words[words.index("-m") + 1]
        words = words[words.index("-m") + 2 : words.index("--slot-save-path")]
        if model.is_file():
            name = f"{card.parent.name}/{card.stem}"
            yield Case(name, build, model, tuple(words))


@dataclass(frozen=True)
class Trial:
    """What a server did with a file.

    Attributes:
        build: the server.
        restored: its answer to the restore.
        identical: its answer to the saved tokens, sent right after the restore; None without one.
        append: the same for the saved tokens and some more, in a server of its own.
        taken: checkpoints that the restore took from the file.
        returned: positions and n_tokens of the checkpoints that the requests went back to.
        cold: what the same requests find likeliest without any memory.
        log: the end of what the server logged.
    """

    build: Build
    restored: Answer
    identical: Answer | None
    append: Answer | None
    taken: int
    returned: tuple[tuple[int, int, int], ...]
    cold: tuple[dict[int, float], ...]
    log: str

    @property
    def answers(self) -> tuple[Answer, ...]:
        """To the requests after the restore."""
        return tuple(answer for answer in (self.identical, self.append) if answer is not None)

    @property
    def succeeds(self) -> bool:
        """Whether the restore and the requests after it are answered."""
        return self.restored.ok and all(answer.ok for answer in self.answers)

    @property
    def distance(self) -> float:
        """How far the likelihood of the next token is from that without memory, at most."""
        pairs = zip(self.answers, self.cold, strict=True)
        return max(_distance(answer.likeliest, cold) for answer, cold in pairs)

    @property
    def right(self) -> bool:
        """Whether the requests after the restore get what they get without memory."""
        return self.distance < _ALIKE

    @property
    def reuses(self) -> bool:
        """Whether a request found tokens in memory."""
        return any(answer.reused for answer in self.answers if answer.ok)

    def __str__(self) -> str:
        """In words."""
        if not self.restored.ok:
            return f"{self.build}: {self.restored}"
        words = [f"{self.build}: {self.restored.body.get('n_restored')} tokens restored"]
        words.append(f"{self.taken} checkpoints taken")
        for what, answer in (("identical", self.identical), ("append", self.append)):
            words.append(f"{what}: {f'{answer.reused} reused' if answer and answer.ok else answer}")
        if self.succeeds:
            words.append(f"{self.distance:.4f} away from a cold evaluation")
        return ", ".join(words)


class Bench:
    """Starts servers and tries files on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started = 0
        self._cold: dict[tuple[Case, Build, tuple[int, ...]], dict[int, float]] = {}

    @property
    def path(self) -> Path:
        """The file on trial."""
        return self.folder / NAME

    def serve(self, build: Build, model: Path, flags: Sequence[str] = ()) -> Server:
        """A server that is started by `with`."""
        self._started += 1
        log = self.folder / f"server-{self._started}.log"
        return Server(installed(build), model, self.folder, log, flags)

    def trial(self, case: Case, tokens: Sequence[int], build: Build | None = None) -> Trial:
        """Restore the file at `path`, then send the saved tokens; then again with some more.

        Args:
            case: the model and the flags of the server.
            tokens: what the file is a save of.
            build: of the server; the one that wrote the file if None.
        """
        build = build or case.build
        prompts = (tuple(tokens), (*tokens, *SUFFIX))
        answers: list[Answer] = []
        log = ""
        for prompt in prompts:
            with self.serve(build, case.model, case.flags) as server:
                restored = server.restore(NAME)
                if restored.ok:
                    answers.append(server.complete(prompt))
            log += server.logged()
            if not restored.ok:
                return Trial(build, restored, None, None, 0, (), (), log[-_LOG_CHARACTERS:])
        identical, append = answers
        taken = [int(n) for n in _TAKEN.findall(log)]
        back = tuple((int(a), int(b), int(n)) for a, b, n in _WENT_BACK.findall(log))
        cold = tuple(self._without_memory(case, prompt, build) for prompt in prompts)
        end = log[-_LOG_CHARACTERS:]
        most = max(taken, default=0)
        return Trial(build, restored, identical, append, most, back, cold, end)

    def _without_memory(
        self, case: Case, prompt: tuple[int, ...], build: Build
    ) -> dict[int, float]:
        asked = case, build, prompt
        if asked not in self._cold:
            with self.serve(build, case.model, case.flags) as server:
                self._cold[asked] = server.complete(prompt).likeliest
        return self._cold[asked]


def _distance(some: dict[int, float], others: dict[int, float]) -> float:
    """The largest difference of two sets of log probabilities; without end if the sets differ."""
    if some.keys() != others.keys():
        return math.inf
    return max(abs(some[token] - others[token]) for token in some)


def can_be_of(report: Report, build: Build) -> bool:
    """Whether the file is claimed to be of a time that the build lies in."""
    builds = report.identification.builds
    since, until = build_number(builds.since or ""), build_number(builds.until or "")
    return since <= build.number <= (until or build.number)


def server_for(report: Report, case: Case) -> Build:
    """A build that can have written the file: its own if that can, or if none at hand can."""
    fit = [build for build in BUILDS if can_be_of(report, build)]
    return case.build if case.build in fit or not fit else fit[0]


def contradictions(report: Report, trial: Trial) -> list[str]:
    """What is claimed of a file and not true of the server it was tried on."""
    codes = {finding.code for finding in report.findings}
    errors = sorted({f.code for f in report.findings if f.severity is Severity.ERROR})
    warned = any(finding.severity is Severity.WARNING for finding in report.findings)
    loads = not errors and can_be_of(report, trial.build)
    wrong = []
    if loads and not trial.restored.ok:
        wrong.append("no error is claimed")
    if loads and trial.restored.ok and not trial.succeeds:
        wrong.append("no error is claimed, and a request after the restore fails")
    if loads and not warned and trial.succeeds and not trial.right:
        wrong.append("neither an error nor a warning is claimed")
    if "file.truncated" in codes and trial.restored.ok:
        wrong.append("file.truncated is claimed")
    if errors and trial.succeeds and trial.reuses and trial.right:
        wrong.append(f"{', '.join(errors)}: claimed as an error")
    if trial.succeeds:
        wrong += _about_checkpoints(report, trial, codes)
    return wrong


def _about_checkpoints(report: Report, trial: Trial, codes: set[str]) -> list[str]:
    """Usable ones are taken; no other of an appendix is gone back to."""
    records = [one.record for one in report.checkpoints if one.usable]
    usable = [(record.pos_min, record.pos_max, record.n_tokens) for record in records]
    wrong = []
    if trial.taken < len(usable):
        wrong.append(f"{len(usable)} checkpoints are claimed to be usable")
    if _ALL_IGNORED & codes and trial.taken:
        wrong.append("the checkpoints are claimed to be ignored")
    if any(code.startswith("appendix.") for code in codes):
        back = sorted(set(trial.returned) - set(usable))
        wrong += [f"the checkpoint {one} is not claimed to be usable" for one in back]
    return wrong
