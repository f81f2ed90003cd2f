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
from inspector.checkpoints import CheckpointRecord
from inspector.findings import Severity
from inspector.model.geometry import MemoryExpectation, memory_of
from inspector.model.gguf import ModelFile, read_model
from inspector.report import Report
from inspector.server.servers import build_named
from inspector.source import opened
from samples.make import HERE as SAMPLES
from tests.oracle.builds import BUILDS, Build, installed
from tests.oracle.server import Answer, Server

MODELS = Path(__file__).with_name("models")
NAME = "state.slot"
SUFFIX = (300, 301, 302)
"""What an append adds to the saved tokens."""
OTHERWISE = (450, 451, 452, 453)
"""How a prompt goes on that shares the first tokens only; no text of the models has them."""

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

_RECORD = re.compile(r"appendix\.records\[(\d+)\]")
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

    @property
    def memory(self) -> MemoryExpectation:
        """What the build stores of the model."""
        with opened(self.model) as source:
            header = read_model(source)
        assert isinstance(header, ModelFile)
        memory = memory_of(header, build_named(str(self.build)))
        assert memory is not None
        return memory

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


@dataclass(frozen=True)
class Request:
    """A prompt right after a restore, and what came of it.

    Attributes:
        shared: the saved tokens that it begins with.
        ends: whether it ends there.
        answer: to it.
        distance: how far the likelihood of the next token is from that without memory.
        back: positions and n_tokens of the checkpoint that it went back to; None if to none.
    """

    shared: int
    ends: bool
    answer: Answer
    distance: float
    back: tuple[int, int, int] | None

    @property
    def harmed(self) -> bool:
        """Whether the server dies, refuses, or answers otherwise than without memory."""
        return not self.answer.ok or self.distance >= _ALIKE

    def __str__(self) -> str:
        """In words."""
        what = f"{'exactly ' if self.ends else ''}{self.shared} tokens"
        if not self.answer.ok:
            return f"{what}: {self.answer}"
        far = f", {self.distance:.4f} away" if self.harmed else ""
        return f"{what}: {self.answer.reused} reused{far}"


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
        without = self._cold_ones(case, prompts, build)
        cold = tuple(without[prompt] for prompt in prompts)
        end = log[-_LOG_CHARACTERS:]
        most = max(taken, default=0)
        return Trial(build, restored, identical, append, most, back, cold, end)

    def requests(
        self, case: Case, tokens: Sequence[int], lengths: Sequence[int], build: Build | None = None
    ) -> tuple[Request, ...]:
        """Restore the file at `path` and send a prompt that shares some tokens, until it dies.

        Args:
            case: the model and the flags of the server.
            tokens: what the file is a save of.
            lengths: how many tokens are shared: by a prompt that ends there, if they are below 0,
                else by one that goes on otherwise.
            build: of the server; the one that wrote the file if None.
        """
        build, found = build or case.build, []
        prompts = [
            (*tokens[: abs(length)], *(OTHERWISE if length > 0 else ())) for length in lengths
        ]
        cold = self._cold_ones(case, prompts, build)
        with self.serve(build, case.model, case.flags) as server:
            for prompt, length in zip(prompts, lengths, strict=True):
                restored, before = server.restore(NAME), len(server.logged())
                assert restored.ok, restored
                answer = server.complete(prompt)
                back = _WENT_BACK.search(server.logged(), before)
                far = _distance(answer.likeliest, cold[prompt]) if answer.ok else math.inf
                place = (int(back[1]), int(back[2]), int(back[3])) if back else None
                found.append(Request(abs(length), length < 0, answer, far, place))
                if answer.death:
                    break
        return tuple(found)

    def _cold_ones(
        self, case: Case, prompts: Sequence[tuple[int, ...]], build: Build
    ) -> dict[tuple[int, ...], dict[int, float]]:
        """What prompts find likeliest that reuse nothing."""
        missing = [prompt for prompt in prompts if (case, build, prompt) not in self._cold]
        if missing:
            with self.serve(build, case.model, case.flags) as server:
                for prompt in missing:
                    answer = server.complete(prompt, reuse=False)
                    assert answer.reused == 0
                    self._cold[case, build, prompt] = answer.likeliest
        return {prompt: self._cold[case, build, prompt] for prompt in prompts}


def agree(answer: Answer, cold: Answer) -> bool:
    """Whether an answer is the one that a prompt gets without memory.

    Tokens may differ from one on that is as likely as the other, as random numbers have it.
    """
    if _distance(answer.likeliest, cold.likeliest) >= _ALIKE:
        return False
    pairs = zip(answer.tokens, cold.tokens, strict=True)
    place = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
    if place is None:
        return True
    likeliest = cold.likeliest_at(place)
    one, other = answer.tokens[place], cold.tokens[place]
    return abs(likeliest[other] - likeliest.get(one, -math.inf)) < _ALIKE


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
    """What is claimed of a file and not true of the server it was tried on.

    Errors of one checkpoint are left out: they hurt a request that picks it, see `misjudged`.
    """
    codes = {finding.code for finding in report.findings}
    found = [f for f in report.findings if f.severity is Severity.ERROR]
    errors = sorted({f.code for f in found if not _RECORD.match(f.path)})
    warned = any(finding.severity is Severity.WARNING for finding in report.findings)
    loads = not errors and can_be_of(report, trial.build)
    sound = loads and not found
    wrong = []
    if loads and not trial.restored.ok:
        wrong.append("no error is claimed")
    if sound and trial.restored.ok and not trial.succeeds:
        wrong.append("no error is claimed, and a request after the restore fails")
    if sound and not warned and trial.succeeds and not trial.right:
        wrong.append("neither an error nor a warning is claimed")
    if "file.truncated" in codes and trial.restored.ok:
        wrong.append("file.truncated is claimed")
    if errors and trial.succeeds and trial.reuses and trial.right:
        wrong.append(f"{', '.join(errors)}: claimed as an error")
    if trial.succeeds:
        wrong += _about_checkpoints(report, trial, codes)
    return wrong


def judged(report: Report) -> set[int]:
    """The checkpoints behind the payload about which something is found."""
    places = (_RECORD.match(finding.path) for finding in report.findings)
    return {int(place[1]) for place in places if place is not None}


def lengths(report: Report, index: int) -> list[int]:
    """Shared tokens of prompts that try a checkpoint from all sides, as `Bench.requests` has them.

    A prompt that ends where the blob of a windowed record ends is left out: the server itself
    writes records with which it gets a window that lacks a position.
    """
    assert report.tokens is not None
    record, count = report.checkpoints[index].record, report.tokens.count
    pos_min, pos_max, n_tokens = _numbers(record)
    around = {pos_max, pos_max + 1, pos_max + 2, pos_min + 1, pos_min + 2, n_tokens, n_tokens + 1}
    ends = [one.record.blob.sections[-1].pos_max for one in report.checkpoints if one.record.blob]
    last = ends[index] if len(ends) == len(report.checkpoints) else None
    around |= {last, last + 1, last + 2} if last is not None else set()
    shared = sorted({n for n in around if 1 < n < count} | {count - 1, count})
    windowed = any(section.kind == "swa" for section in report.sections)
    return [*shared, *(-n for n in shared if not (windowed and n in ends))]


def misjudged(report: Report, index: int, requests: Sequence[Request]) -> list[str]:
    """What is claimed of a checkpoint and not true of the requests that tried it."""
    checkpoint = report.checkpoints[index]
    found = [f for f in report.findings if f.path.startswith(f"appendix.records[{index}]")]
    errors = sorted({f.code for f in found if f.severity is Severity.ERROR})
    warned = any(f.severity is Severity.WARNING for f in found)
    harmed = [request for request in requests if request.harmed]
    failed = [request for request in harmed if not request.answer.ok]
    place = _numbers(checkpoint.record)
    gone_back = [r for r in requests if r.back == place and r.answer.ok and r.answer.reused]
    wrong = []
    if errors and not harmed:
        wrong.append(f"{', '.join(errors)}: claimed as an error")
    if not errors and failed:
        wrong.append(f"no error is claimed; {failed[0]}")
    if not errors and not warned and harmed:
        wrong.append(f"neither an error nor a warning is claimed; {harmed[0]}")
    if checkpoint.usable and not gone_back:
        wrong.append("it is claimed to be usable")
    if not checkpoint.usable and gone_back and not harmed:
        wrong.append("it is not claimed to be usable")
    return wrong


def _numbers(record: CheckpointRecord) -> tuple[int, int, int]:
    """As the server logs them."""
    return record.pos_min or 0, record.pos_max or 0, record.n_tokens or 0


def _about_checkpoints(report: Report, trial: Trial, codes: set[str]) -> list[str]:
    """Usable ones are taken; no other of an appendix is gone back to."""
    usable = [_numbers(one.record) for one in report.checkpoints if one.usable]
    wrong = []
    if trial.taken < len(usable):
        wrong.append(f"{len(usable)} checkpoints are claimed to be usable")
    if _ALL_IGNORED & codes and trial.taken:
        wrong.append("the checkpoints are claimed to be ignored")
    if any(code.startswith("appendix.") for code in codes):
        back = sorted(set(trial.returned) - set(usable))
        wrong += [f"the checkpoint {one} is not claimed to be usable" for one in back]
    return wrong
