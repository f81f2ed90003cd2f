"""A loader under test: one file given to it, and what became of that."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Protocol

from xxhash import xxh3_64

from inspector.bundle import RECORD, SUFFIXES
from inspector.fuzzing.gist import LOG_BYTES, crashed, gist_of, out_of_memory, sanitizer

BESIDE = (*SUFFIXES, RECORD)
"""What names of companions add to that of their state."""
PLACE = "{}"
"""Stands for the file in a command."""

_SHELLS_SIGNAL = 128
"""Exit codes from here on are what shells make of a signal."""
_OF_CRASHES = frozenset(
    {signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGTRAP}
)
_AT_WORK = 0.25
"""Part of its time from which on a loader that hung computed; busy machines give it no more."""
_TICK = 0.05
"""Seconds between two looks at a process that says nothing."""


_XCPU = signal.SIGXCPU.name
"""What ends a program that used all its time of processors."""


class Outcome(StrEnum):
    """What a loader made of a file."""

    OK = "ok"
    REFUSED = "refused"
    CRASH = "crash"
    HANG = "hang"
    MEMORY = "out of memory"
    SPOILT = "spoilt"
    """What the file left in a server shows in other answers, or a program changed the file."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a loader may use for one file.

    Attributes:
        seconds: on the clock.
        cpu_seconds: of processors, where it is a process of its own.
        memory_bytes: of address space; 0 for no limit.
    """

    seconds: float = 10.0
    cpu_seconds: int = 10
    memory_bytes: int = 6 << 30


@dataclass(frozen=True, slots=True)
class Observed:
    """What a loader did with one file.

    Attributes:
        outcome: in one word.
        detail: the signal, the exit code, or what the server answered.
        gist: what tells this failure from others; empty where the loader said nothing.
        seconds: how long it took.
        log: the end of what it printed.
        cpu_seconds: CPU time of a program that hung; None for servers, and where it ended.
    """

    outcome: Outcome
    detail: str
    gist: str
    seconds: float
    log: str = ""
    cpu_seconds: float | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for equal failures; where a hanging program stood is chance.

        One that computes for ever is told from one that waits, and a server by the request that it
        does not answer.
        """
        if self.outcome is not Outcome.HANG:
            return self.outcome, self.detail, self.gist
        if self.cpu_seconds is None:
            return self.outcome, self.detail.partition(" in ")[2]
        works = _XCPU in self.detail or self.cpu_seconds >= _AT_WORK * self.seconds
        return self.outcome, "computes" if works else "waits"


_SPOILT = {
    Outcome.OK: "",
    Outcome.REFUSED: ", though it refused the file",
    Outcome.HANG: ", and does not end",
}
"""What came otherwise of a file that a program changed."""


class NoLoader(Exception):
    """The loader cannot be started at all; the message says why."""


class Loader(Protocol):
    """A loader that is given files, from several threads if `parallel`.

    Attributes:
        parallel: whether it may be given several at a time.
        limits: for each file.
        version: equal for equal programs and limits; another one makes old results worthless.
    """

    parallel: bool
    limits: Limits
    version: str

    def load(self, path: Path, patience: float = 1.0) -> Observed:
        """Give it a file, and `patience` times the seconds of its limits."""
        ...

    def close(self) -> None:
        """Stop whatever still runs."""
        ...


class CommandLoader:
    """A program that loads one file and exits: 0 if it took it, something else if it refused.

    Args:
        command: its words; `{}` stands for the file.
        limits: what it may use.
        refuses: the exit codes that mean a refusal; others are crashes. None for all but 0.
    """

    parallel = True

    def __init__(
        self, command: Sequence[str], limits: Limits, refuses: frozenset[int] | None = None
    ) -> None:
        """Args are those of the class.

        Raises:
            NoLoader: if there is no such program, or the command names no file.
        """
        if not any(PLACE in word for word in command):
            raise NoLoader(f"the command does not say where the file goes: {PLACE} stands for it")
        if shutil.which(command[0]) is None:
            raise NoLoader(f"there is no program {command[0]}")
        self.command, self.limits, self.refuses = tuple(command), limits, refuses
        self.version = version_of(command, limits, sorted(refuses or ()))
        self._running: set[int] = set()

    def load(self, path: Path, patience: float = 1.0) -> Observed:
        """Give it a file, and `patience` times the seconds of its limits."""
        seconds = patience * self.limits.seconds
        words = [word.replace(PLACE, str(path)) for word in self.command]
        before = _stats(path)
        start = time.monotonic()
        process = subprocess.Popen(
            limited(words, self.limits, cpu=True),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )
        self._running.add(process.pid)
        try:
            assert process.stdout is not None
            log, hung = _followed(process, process.stdout, start + seconds)
        finally:
            cpu_seconds = end(process)
            self._running.discard(process.pid)
            if process.stdout is not None:
                process.stdout.close()
        if hung and cpu_seconds is not None:
            outcome, detail = Outcome.HANG, f"over {seconds:g} s, {cpu_seconds:.1f} s of CPU time"
        else:
            outcome, detail = ended(process.returncode, log, self.refuses)
            cpu_seconds = None
            if outcome is Outcome.HANG:
                cpu_seconds = self.limits.cpu_seconds
                detail += f", {cpu_seconds} s of CPU time"
        gist = "" if outcome is Outcome.OK else gist_of(log, (str(path), path.name))
        outcome, detail = _with_harm(outcome, detail, _harm(path, before, _stats(path)))
        took = time.monotonic() - start
        return Observed(outcome, detail, gist, took, log[-LOG_BYTES:], cpu_seconds)

    def close(self) -> None:
        """Stop whatever still runs."""
        for pid in tuple(self._running):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def beside(path: Path) -> tuple[Path, ...]:
    """Where the companions of a file lie, if it has any."""
    return tuple(path.with_name(path.name + suffix) for suffix in BESIDE)


_Stats = dict[Path, tuple[tuple[int, ...], ...]]
"""Of each name size, time of the last change, device and inode: of a link and where it leads."""


def _stats(path: Path) -> _Stats:
    """What tells whether a file, or what lies beside it, was changed."""
    places = (path, *beside(path))
    return {one: (_stat(one, follow=False), _stat(one, follow=True)) for one in places}


def _stat(path: Path, *, follow: bool) -> tuple[int, ...]:
    """What the system says of a name; nothing if it gives none."""
    with suppress(OSError):
        found = path.stat(follow_symlinks=follow)
        return found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino
    return ()


def _harm(path: Path, before: _Stats, after: _Stats) -> str:
    """What a program did to the file that it was given, or to what lies beside it; else empty."""
    if before[path] != after[path]:
        return f"{'changes' if after[path][1] else 'removes'} the file that it is given"
    return "" if before == after else "changes what lies beside the file"


def _with_harm(outcome: Outcome, detail: str, harm: str) -> tuple[Outcome, str]:
    """The outcome for a file that was changed: a crash stays one."""
    if not harm:
        return outcome, detail
    if outcome in _SPOILT:
        return Outcome.SPOILT, harm + _SPOILT[outcome]
    return outcome, f"{detail}, and {harm}"


def limited(words: Sequence[str], limits: Limits, *, cpu: bool) -> list[str]:
    """A command that sets its own limits before it becomes the program.

    A shell does that: what Python runs between fork and exec is not safe with threads.
    """
    say = "ulimit -c 0; "
    if limits.memory_bytes:
        say += f"ulimit -v {limits.memory_bytes >> 10}; "
    if cpu:
        say += f"ulimit -t {limits.cpu_seconds + 1}; ulimit -S -t {limits.cpu_seconds}; "
    return ["/bin/sh", "-c", f'{say}exec "$@"', "sh", *words]


def version_of(words: Sequence[str], limits: Limits, refuses: Sequence[int] = ()) -> str:
    """Of a command: its words, size and time of each file among them, and how it is run.

    The libraries beside the program count too: builds of llama.cpp have most of their code there.
    """
    program = Path(shutil.which(words[0]) or words[0])
    places = [program, *map(Path, words[1:]), *sorted(program.resolve().parent.glob("*.so*"))]
    found: list[object] = [tuple(words), limits, tuple(refuses)]
    for path in places:
        with suppress(OSError, ValueError):
            if path.is_file():
                stat = path.stat()
                found.append((str(path), stat.st_size, stat.st_mtime_ns))
    return xxh3_64(repr(found).encode()).hexdigest()


def environment() -> dict[str, str]:
    """What a loader sees: ours, without a debugger on each failed assertion of ggml."""
    return {**os.environ, "GGML_NO_BACKTRACE": "1"}


def ended(code: int, log: str, refuses: frozenset[int] | None = None) -> tuple[Outcome, str]:
    """What the end of a process means.

    Args:
        code: as `Popen` tells it.
        log: what the process printed.
        refuses: the exit codes that mean a refusal; None for all but 0.
    """
    number = -code if code < 0 else code - _SHELLS_SIGNAL
    if code < 0 or number in _OF_CRASHES:
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        if number == signal.SIGXCPU:
            return Outcome.HANG, name
        if number == signal.SIGKILL or out_of_memory(log):
            return Outcome.MEMORY, name
        return Outcome.CRASH, name
    detail = f"exit code {code}"
    if code == 0 and not sanitizer(log):
        return Outcome.OK, ""
    if out_of_memory(log):
        return Outcome.MEMORY, detail
    if sanitizer(log) or crashed(log) or (refuses is not None and code not in refuses):
        return Outcome.CRASH, detail
    return Outcome.REFUSED, detail


def end(process: subprocess.Popen[bytes]) -> float | None:
    """Stop a process and all that it started.

    Returns:
        Seconds of processors that it used; None if it had ended already, or its end was seen by
        another thread.
    """
    over = process.poll() is not None
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if over:
        return None
    try:
        _, status, used = os.wait4(process.pid, 0)
    except ChildProcessError:  # another thread was there first
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def _followed(
    process: subprocess.Popen[bytes], out: IO[bytes], deadline: float
) -> tuple[str, bool]:
    """What a process prints until it ends, beginning and end of it; and whether it did not end."""
    head, tail = bytearray(), bytearray()
    os.set_blocking(out.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        open_ = True
        while True:
            done = process.poll() is not None
            left = deadline - time.monotonic()
            if open_ and selector.select(0 if done else max(0.0, min(_TICK, left))):
                data = out.read(LOG_BYTES)
                open_ = bool(data)
                room = LOG_BYTES - len(head)
                head += data[:room]
                tail += data[room:]
                del tail[:-LOG_BYTES]
                if open_:
                    if left > 0:
                        continue
                    return _text(head, tail), not done
            if done:
                return _text(head, tail), False
            if left <= 0:
                return _text(head, tail), True
            if not open_:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(min(_TICK, left))


def _text(head: bytearray, tail: bytearray) -> str:
    return (head + tail).decode(errors="replace")
