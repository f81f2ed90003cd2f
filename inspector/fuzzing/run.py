"""Every file of a folder given to a loader: what came of it, kept in a journal, held against us."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from stat import S_IFMT, S_ISREG
from typing import IO, Any

from xxhash import xxh3_128

from inspector.check import checked
from inspector.findings import Severity
from inspector.fuzzing.listing import MANIFEST, Listing, listing_of
from inspector.fuzzing.loader import BESIDE, Loader, Observed, Outcome, beside
from inspector.fuzzing.mutators.kinds import Must
from inspector.identify import Verdict
from inspector.report import examined
from inspector.server.loader import Outcome as Predicted
from inspector.server.prompt import Outcome as Answer
from inspector.server.target import Target
from inspector.source import Unreadable

JOURNAL = ".slotscope-run.jsonl"
"""Name of the journal in the folder of the files."""
SCHEMA = "slotscope.fuzz-run/1"
_HEX = re.compile("[0-9a-f]*")
_CHUNK = 1 << 20
_PATIENCE = 3.0
"""How many times its seconds a file is given, alone, before it is called a hang."""
_AT_WORK = 0.8
"""Part of its time that a loader used of processors if the machine is not what held it up."""
_STOPPING = 0.1
"""Seconds after which loaders are told once more to end."""
_LOG_CHARACTERS = 4000
"""Of a log that a journal keeps."""

Predict = Callable[[Path], tuple[Predicted, str]]
"""What we say that a loader does with a file, and the finding that it rests on, if it is one."""
_ASKED = "append"
"""The usual request that a server under test is sent after a restore."""
UNEXPECTED = (Outcome.CRASH, Outcome.HANG, Outcome.MEMORY, Outcome.SPOILT)
"""What no file may do to a loader."""


_AGREE: dict[Predicted, tuple[Outcome, ...]] = {
    Predicted.ACCEPTS: (Outcome.OK, Outcome.SPOILT),
    Predicted.REFUSES: (Outcome.REFUSED,),
    Predicted.ABORTS: (Outcome.CRASH, Outcome.MEMORY),
    Predicted.UNKNOWN: tuple(Outcome),
}
_LISTED = {
    Must.REFUSE: Predicted.REFUSES,
    Must.ACCEPT: Predicted.ACCEPTS,
    Must.EITHER: Predicted.UNKNOWN,
}
_CONTRARY = {Predicted.REFUSES: Outcome.OK, Predicted.ACCEPTS: Outcome.REFUSED}
"""What contradicts a manifest; crashes and their like are failures whatever it says."""
_UNNAMED = "unnamed"
"""A mutation of which a manifest says only what loaders must do."""


class OtherRun(Exception):
    """A journal or a report that is of another run, or cannot be written; the message says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a loader did with one file.

    Attributes:
        file: relative to the folder.
        digest: xxh3-128 of its bytes, hex.
        observed: what the loader did.
        ours: what we say that it does; None if that was not asked.
        why: the finding that our verdict rests on, if it is one; or the mutation.
        listed: whether it is the manifest that says so.
        beside: digest of its companions and of where links lead, hex; empty if there are none.
    """

    file: str
    digest: str
    observed: Observed
    ours: Predicted | None = None
    why: str = ""
    listed: bool = False
    beside: str = ""

    @property
    def disagrees(self) -> bool:
        """Whether the loader did something else than we, or the manifest, say."""
        if self.ours is None:
            return False
        if self.listed:
            return self.observed.outcome is _CONTRARY.get(self.ours)
        return self.observed.outcome not in _AGREE[self.ours]

    @property
    def judge(self) -> str:
        """Who says what the loader does."""
        return f"{MANIFEST} says" if self.listed else "we say"

    @property
    def unexpected(self) -> bool:
        """Whether somebody should look at it."""
        return self.disagrees or self.observed.outcome in UNEXPECTED


@dataclass(frozen=True)
class Failure:
    """Files that fail alike: the smallest first."""

    observed: Observed
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Run:
    """All results of a folder.

    Attributes:
        command: of the loader.
        results: by file name.
        total: files of the folder, those that were not reached included.
        listing: what the manifest of the folder says.
        n_unlisted: files of the folder that are not in the manifest, if there is one.
        known: how many results are the journal's, of earlier runs.
    """

    command: str
    results: tuple[Result, ...]
    total: int
    listing: Listing = field(default_factory=Listing)
    n_unlisted: int = 0
    known: int = 0

    @property
    def counts(self) -> dict[Outcome, int]:
        """Files by outcome."""
        found = Counter(result.observed.outcome for result in self.results)
        return {outcome: found[outcome] for outcome in Outcome}

    @property
    def disagreements(self) -> tuple[Result, ...]:
        """Results that we say otherwise of."""
        return tuple(result for result in self.results if result.disagrees)

    @property
    def disagreeing(self) -> dict[tuple[str, Outcome], dict[str, tuple[Result, ...]]]:
        """Who says what, and what it does -> mutation -> results with it, the most frequent first.

        Where no mutation is known, it is the finding of ours, or what the loader says.
        """
        found: dict[tuple[str, Outcome], dict[str, list[Result]]] = {}
        for result in self.disagreements:
            observed = result.observed
            says = result.why or observed.gist or observed.detail
            kinds = found.setdefault((f"{result.judge} {result.ours}", observed.outcome), {})
            kinds.setdefault(self.listing.mutations.get(result.file, says), []).append(result)
        return {
            both: {kind: tuple(kinds[kind]) for kind in sorted(kinds, key=lambda k: -len(kinds[k]))}
            for both, kinds in found.items()
        }

    @property
    def alike(self) -> bool:
        """Whether no file was taken, and all failed in one way: the loader itself may be wrong."""
        keys = {result.observed.key for result in self.results}
        return len(self.results) > 1 and len(keys) == 1 and not self.counts[Outcome.OK]

    @property
    def taken(self) -> dict[str, tuple[str, ...]]:
        """Mutation -> files with it that were taken though they are to be refused."""
        return self._contrary(Must.REFUSE)

    @property
    def rejected(self) -> dict[str, tuple[str, ...]]:
        """Mutation -> files with it that were refused though they are to be accepted."""
        return self._contrary(Must.ACCEPT)

    def _contrary(self, must: Must) -> dict[str, tuple[str, ...]]:
        """Files that contradict the manifest, unless a server that was named does so as well."""
        ours = _LISTED[must]
        found: dict[str, list[str]] = {}
        for result in self.results:
            listed = self.listing.musts.get(result.file) is must
            if result.ours not in (None, ours, Predicted.UNKNOWN):
                continue
            if listed and result.observed.outcome is _CONTRARY[ours]:
                mutation = self.listing.mutations.get(result.file, _UNNAMED)
                found.setdefault(mutation, []).append(result.file)
        return {mutation: tuple(files) for mutation, files in sorted(found.items())}

    @property
    def unexpected(self) -> bool:
        """Whether anything is to be looked at."""
        return any(result.unexpected for result in self.results)

    def failures(self, *outcomes: Outcome) -> tuple[Failure, ...]:
        """Results of some outcomes, one entry for all that fail alike, the most frequent first."""
        alike: dict[tuple[str, ...], list[Result]] = {}
        for result in self.results:
            if result.observed.outcome in outcomes:
                alike.setdefault(result.observed.key, []).append(result)
        found = [Failure(results[0].observed, tuple(results)) for results in alike.values()]
        return tuple(sorted(found, key=lambda failure: -len(failure.results)))


class Campaign:
    """A loader, the files that it is given, and the journal of what was done.

    Args:
        folder: with the files, also in folders below; names that begin with a dot are left out.
        loader: the loader.
        command: how the loader was named, which the journal must agree with.
        journal: where results are kept.
        ours: our verdict on a file and what it rests on; None for none.
        page: what is written of it at the end, which is no file to load either; None for nothing.
        listed: whether what the manifest expects of a file goes before our verdict.
    """

    def __init__(
        self,
        folder: Path,
        loader: Loader,
        command: str,
        journal: Path,
        ours: Predict | None = None,
        page: Path | None = None,
        *,
        listed: bool = False,
    ) -> None:
        """Args are those of the class.

        Raises:
            OtherRun: if the journal is of another loader.
            Unreadable: if a folder cannot be listed.
        """
        self.folder, self.loader, self.command = folder, loader, command
        self.journal, self.ours, self.listed = journal, ours, listed
        self.files = _files(folder, journal, page)
        self.listing = listing_of(folder)
        self.done = _read(journal, command, loader.version)
        self._n_known = 0
        self._writing = threading.Lock()
        self._stopping = False
        self.results: dict[str, Result] = {}

    def run(self, jobs: int = 1) -> Generator[Result, None, None]:
        """Load all files that the journal does not know; yields every result as it is there.

        What does not end, and was not at work all the time, may have had to wait for others: it is
        loaded once more at the end, alone and with more time.

        Args:
            jobs: loaders at a time, where they are processes of their own.

        Raises:
            OtherRun: if the journal cannot be written.
            Unreadable: if a file cannot be read.
        """
        jobs = jobs if self.loader.parallel else 1
        self._stopping = False
        with self._journal() as journal, ThreadPoolExecutor(jobs) as pool:
            waiting = iter(self.files)
            running: dict[Future[Result | None], Path] = {}
            again: list[Path] = []
            try:
                while True:
                    for path in waiting:
                        running[pool.submit(self._one, path, journal)] = path
                        if len(running) >= jobs:
                            break
                    if not running:
                        break
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        path, result = running.pop(future), future.result()
                        if result is None:
                            again.append(path)
                        else:
                            yield result
                for path in sorted(again):
                    result = self._one(path, journal, _PATIENCE)
                    assert result is not None  # asked with patience
                    yield result
            finally:
                with self._writing:
                    self._stopping = True
                pool.shutdown(wait=False, cancel_futures=True)
                left = [future for future in running if not future.cancelled()]
                while left:
                    self.loader.close()
                    left = list(wait(left, _STOPPING).not_done)

    def report(self) -> Run:
        """What is there so far."""
        results = tuple(self.results[name] for name in sorted(self.results))
        n_files, n_unlisted = len(self.files), 0
        if self.listing.there and not self.listing.fault:
            names = {self._name(path) for path in self.files}
            n_unlisted = len(names - self.listing.names)
        return Run(self.command, results, n_files, self.listing, n_unlisted, self._n_known)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _journal(self) -> IO[str]:
        journal = _appended(self.journal)
        if not journal.tell():
            journal.write(json.dumps({"schema": SCHEMA, "command": self.command}) + "\n")
            journal.flush()
        return journal

    def _one(self, path: Path, journal: IO[str], patience: float = 1.0) -> Result | None:
        """The result of a file; None if it is to be loaded once more with patience.

        What ends after the run was stopped is no result: it may be that we killed the loader.
        """
        key = name, digest, near = self._name(path), _digest(path), _beside(path)
        known = self.done.results.get(key)
        ours, why, listed = self._expected(path, name)
        if known is not None:
            result = replace(known, ours=ours, why=why, listed=listed)
        else:
            observed = self.loader.load(path, patience)
            if patience == 1.0 and self._waited(observed):
                return None
            result = Result(name, digest, observed, ours, why, listed, near)
        with self._writing:
            if self._stopping:
                return None
            if known is None:
                journal.write(json.dumps(_entry(result, self.loader.version)) + "\n")
                journal.flush()
            else:
                self._n_known += 1
            self.results[name] = result
        return result

    def _expected(self, path: Path, name: str) -> tuple[Predicted | None, str, bool]:
        """What a loader is to do, why, and whether the manifest says so.

        That is asked before the loader has the file, which it may change.
        """
        if self.ours is None or self._stopping:
            return None, "", False
        if self.listed and (must := self.listing.musts.get(name)) is not None:
            return _LISTED[must], self.listing.mutations.get(name, ""), True
        return *self.ours(path), False

    def _waited(self, observed: Observed) -> bool:
        """Whether a loader did not end, and it may be that it only had to wait."""
        limits = self.loader.limits
        enough = _AT_WORK * min(limits.seconds, limits.cpu_seconds)
        return observed.outcome is Outcome.HANG and (observed.cpu_seconds or 0) < enough


def by_inspection(path: Path) -> tuple[Predicted, str]:
    """What a loader should do with a file, going by the file alone."""
    with examined(path) as report:
        error = next((one for one in report.findings if one.severity is Severity.ERROR), None)
        if error is not None:
            return Predicted.REFUSES, error.code
        if report.identification.verdict is not Verdict.RECOGNISED:
            return Predicted.UNKNOWN, ""
        return Predicted.ACCEPTS, ""


def by_target(target: Target) -> Predict:
    """What a server will do with a file, as `slotscope check` says it."""

    def verdict(path: Path) -> tuple[Predicted, str]:
        with checked(path, target) as check:
            appended = (one.found for one in check.reuse if one.name == _ASKED)
            if any(found.outcome is Answer.ABORTS for found in appended):
                return Predicted.ABORTS, "target.request-aborts"
            return check.restore.outcome, check.restore.reason or ""

    return verdict


def _files(folder: Path, *written: Path | None) -> tuple[Path, ...]:
    """What is to be loaded, in order of names; companions go along with their states.

    Args:
        folder: where they are.
        written: what a run writes itself.

    Raises:
        Unreadable: if a folder cannot be listed.
    """
    found, own = [], [path.resolve() for path in written if path is not None]
    for root, folders, names in os.walk(folder, onerror=_unlisted):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if name.startswith(".") or name == MANIFEST or not _to_load(path):
                continue
            if path.resolve() in own:
                continue
            states = (name.removesuffix(suffix) for suffix in BESIDE if name.endswith(suffix))
            if not any(state in names for state in states):
                found.append(path)
    return tuple(found)


def _unlisted(error: OSError) -> None:
    raise Unreadable(f"{error.filename}: {error.strerror}")


def _to_load(path: Path) -> bool:
    """Whether there is a file, or we may not know: then the run says so."""
    try:
        return S_ISREG(path.stat().st_mode)
    except OSError as error:
        return isinstance(error, PermissionError)


def _digest(path: Path) -> str:
    try:
        return _hashed(path)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error


def _beside(path: Path) -> str:
    """Digest of the companions of a file and of where links lead, hex; empty if there are none."""
    found = []
    for one in (path, *beside(path)):
        link, own = None, one == path
        with suppress(OSError):
            link = str(one.readlink())
        if link is not None or (not own and os.path.lexists(one)):
            found.append((one.name, link, None if own else _content(one)))
    return xxh3_128(repr(found).encode()).hexdigest() if found else ""


def _content(companion: Path) -> str | int:
    """Digest of a companion, hex; what it is if no file, or why it cannot be read."""
    try:
        mode = companion.stat().st_mode
        return _hashed(companion) if S_ISREG(mode) else S_IFMT(mode)
    except OSError as error:
        return error.strerror or str(error)


def _hashed(path: Path) -> str:
    state = xxh3_128()
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            state.update(data)
    return state.hexdigest()


def _entry(result: Result, version: str) -> dict[str, object]:
    observed = asdict(result.observed)
    observed["log"] = result.observed.log[-_LOG_CHARACTERS:]
    names = {"file": result.file, "digest": result.digest, "beside": result.beside}
    return {**names, "version": version, **observed}


@dataclass(frozen=True)
class Journal:
    """What a journal holds.

    Attributes:
        results: of this version of the loader, by file, its digest and that of what lies beside it.
        n_outdated: files with results of other versions only.
        n_unreadable: lines that are no results.
    """

    results: Mapping[tuple[str, str, str], Result] = field(default_factory=dict)
    n_outdated: int = 0
    n_unreadable: int = 0


def _read(journal: Path, command: str, version: str) -> Journal:
    """The results that a journal holds; a line that was cut is done again.

    Raises:
        OtherRun: if it is of another loader.
    """
    try:
        lines = journal.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return Journal()
    except OSError as error:
        raise OtherRun(f"{journal}: {error.strerror}") from error
    if not lines:
        return Journal()
    head = _parsed(lines[0])
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        raise OtherRun(f"{journal} is no journal of fuzz run")
    if head.get("command") != command:
        raise OtherRun(
            f"{journal} is the journal of {head.get('command')}: remove it, or name another --state"
        )
    if not lines[-1].endswith("\n"):
        with _appended(journal) as file:
            file.write("\n")
    return _results(lines[1:], version)


def _results(lines: Iterable[str], version: str) -> Journal:
    found: dict[tuple[str, str, str], Result] = {}
    outdated: set[tuple[str, str, str]] = set()
    n_unreadable = 0
    for line in lines:
        try:
            made_by, result = _result(_parsed(line))
        except (KeyError, TypeError, ValueError):
            n_unreadable += 1
            continue
        key = result.file, result.digest, result.beside
        if made_by == version:
            found[key] = result
        else:
            outdated.add(key)
    return Journal(found, len(outdated - found.keys()), n_unreadable)


def _parsed(line: str) -> object:
    with suppress(ValueError, RecursionError):
        return json.loads(line)
    return None


def _appended(journal: Path) -> IO[str]:
    try:
        return journal.open("a", encoding="utf-8")
    except OSError as error:
        raise OtherRun(
            f"no journal at {journal}: {error.strerror}; --state names another"
        ) from error


def _result(entry: Any) -> tuple[str, Result]:
    """What a line of a journal says: the version of the loader, and the result.

    Raises:
        KeyError, TypeError, ValueError: if it is no result.
    """
    version, beside = str(entry["version"]), str(entry.get("beside", ""))
    if not all(map(_HEX.fullmatch, (version, entry["digest"], beside))):
        raise ValueError
    observed = Observed(
        Outcome(str(entry["outcome"])),
        str(entry["detail"]),
        str(entry["gist"]),
        float(str(entry["seconds"])),
        str(entry["log"]),
        None if (used := entry.get("cpu_seconds")) is None else float(str(used)),
    )
    return version, Result(str(entry["file"]), entry["digest"], observed, beside=beside)
