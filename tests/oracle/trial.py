"""One file on one real server: does it restore, and what do the next prompts get from it?"""

from __future__ import annotations

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
    """A real state file, its writer, and the server that wrote it."""

    name: str
    build: Build
    model: Path
    flags: tuple[str, ...]

    @property
    def data(self) -> bytes:
        return (SAMPLES / f"{self.name}.slot").read_bytes()

    def __str__(self) -> str:
        """The name of its sample."""
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
        cold: what the same requests generate without any memory.
        log: the end of what the server logged.
    """

    build: Build
    restored: Answer
    identical: Answer | None
    append: Answer | None
    taken: int
    returned: tuple[tuple[int, int, int], ...]
    cold: tuple[tuple[int, ...], ...]
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
    def right(self) -> bool:
        """Whether the requests after the restore generate what they generate without memory."""
        return tuple(answer.tokens for answer in self.answers) == self.cold

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
        if self.succeeds and not self.right:
            words.append("answers differ from those without memory")
        return ", ".join(words)


class Bench:
    """Starts servers and tries files on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started = 0
        self._cold: dict[tuple[Build, tuple[int, ...]], tuple[int, ...]] = {}

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
        answers: list[Answer | None] = []
        log = ""
        for prompt in prompts:
            with self.serve(build, case.model, case.flags) as server:
                restored = server.restore(NAME)
                answers.append(server.complete(prompt) if restored.ok else None)
            log += server.logged()
            if not restored.ok:
                return Trial(build, restored, None, None, 0, (), (), log[-_LOG_CHARACTERS:])
        taken = [int(n) for n in _TAKEN.findall(log)]
        back = tuple((int(a), int(b), int(n)) for a, b, n in _WENT_BACK.findall(log))
        cold = tuple(self._without_memory(case, prompt, build) for prompt in prompts)
        end = log[-_LOG_CHARACTERS:]
        return Trial(build, restored, *answers, max(taken, default=0), back, cold, end)

    def _without_memory(self, case: Case, prompt: tuple[int, ...], build: Build) -> tuple[int, ...]:
        if (build, prompt) not in self._cold:
            with self.serve(build, case.model, case.flags) as server:
                self._cold[build, prompt] = server.complete(prompt).tokens
        return self._cold[build, prompt]


def server_for(report: Report, case: Case) -> Build:
    """A build that can have written the file, its own if that can or if none at hand can."""
    interval = report.identification.builds
    since, until = build_number(interval.since or ""), build_number(interval.until or "")
    fit = [build for build in BUILDS if since <= build.number <= (until or build.number)]
    return case.build if case.build in fit or not fit else fit[0]


def contradictions(report: Report, trial: Trial) -> list[str]:
    """What is claimed of a file and not true of the server it was tried on."""
    errors = sorted({f.code for f in report.findings if f.severity is Severity.ERROR})
    codes = {finding.code for finding in report.findings}
    wrong = []
    if not errors and not trial.restored.ok:
        wrong.append("no error is claimed")
    if not errors and trial.restored.ok and not trial.succeeds:
        wrong.append("no error is claimed, and a request after the restore fails")
    if "file.truncated" in codes and trial.restored.ok:
        wrong.append("file.truncated is claimed")
    if errors and trial.succeeds and trial.reuses and trial.right:
        wrong.append(f"{', '.join(errors)}: claimed as an error")
    if _ALL_IGNORED & codes and trial.taken:
        wrong.append("the checkpoints are claimed to be ignored")
    if not errors and trial.succeeds:
        wrong += _about_checkpoints(report, trial)
    return wrong


def _about_checkpoints(report: Report, trial: Trial) -> list[str]:
    """Those that are claimed to be usable are taken, and no others are gone back to."""
    records = [one.record for one in report.checkpoints if one.usable]
    usable = [(record.pos_min, record.pos_max, record.n_tokens) for record in records]
    wrong = []
    if trial.taken < len(usable):
        wrong.append(f"{len(usable)} checkpoints are claimed to be usable")
    wrong += [
        f"the checkpoint {back} is not claimed to be usable"
        for back in sorted(set(trial.returned))
        if back not in usable
    ]
    return wrong
