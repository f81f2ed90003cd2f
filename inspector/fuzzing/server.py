"""A server under test: a file is restored into its slot, and the server must live on."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from inspector.bundle import SUFFIXES
from inspector.fuzzing.gist import LOG_BYTES, gist_of, sanitizer
from inspector.fuzzing.loader import (
    Limits,
    Loader,
    NoLoader,
    Observed,
    Outcome,
    end,
    ended,
    environment,
    limited,
    version_of,
)
from inspector.report import examined

_START_SECONDS = 120
_DEATH_SECONDS = 5
"""How long a process may take to end once it stopped answering."""
_TICK = 0.02
_HOST = "127.0.0.1"
_NAME = "fuzz.slot"
"""What every file is called in the folder of the slots."""
_MOST_TOKENS = 4096
"""Of a file that are sent back as a prompt."""
_HIGHEST_TOKEN = (1 << 31) - 1
_OTHERS = tuple(range(start, start + 32) for start in range(32, 64, 4))
"""Prompts that have nothing to do with any file; how they are answered must not depend on one.

The first that a server answers is used: some builds fail where a token is half a character.
"""
_ASKED = {
    "n_predict": 1,
    "temperature": 0,
    "n_probs": 8,
    "cache_prompt": False,
    "id_slot": 0,
}
_ALIKE = 0.01
"""Of log probabilities: servers repeat themselves exactly, and leftovers move them by 0.017 on."""
_ERASE = "/slots/0?action=erase"
_OTHERWISE = "answers other prompts otherwise than before"
_AFTER = ("/health", "/completion", _ERASE, "/completion")
"""Where requests are sent after a restore."""
_PLACES = ("", " in /health", " in /completion", " in the erase", " in the prompt after it")
"""In which of the requests a server died."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """An HTTP status, 0 if none came, and what was said; `late` if the time ran out."""

    status: int
    says: str = ""
    late: bool = False


class ServerLoader(Loader):
    """A llama-server on loopback; it is started again when it dies.

    Args:
        command: as for a shell; `--port`, `--host` and `--slot-save-path` are added where missing.
        limits: for every file, and of memory for the server.
    """

    parallel = False

    def __init__(self, command: str, limits: Limits) -> None:
        """Args are those of the class.

        Raises:
            NoLoader: if there is no such program.
        """
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise NoLoader(f"not a command: {error}") from error
        if not words or shutil.which(words[0]) is None:
            raise NoLoader(f"there is no program {words[0] if words else ''}")
        self.limits, self.version = limits, version_of(words, limits)
        self._room = tempfile.TemporaryDirectory(prefix="slotscope-fuzz-")
        self._log = Path(self._room.name, "server.log")
        self._port = _after(words, "--port")
        if self._port is None:
            self._port = str(_free_port())
            words += ["--port", self._port]
        if _after(words, "--host") is None:
            words += ["--host", _HOST]
        slots = _after(words, "--slot-save-path")
        if slots is None:
            folder = Path(self._room.name, "slots")
            folder.mkdir()
            slots = f"{folder}/"
            words += ["--slot-save-path", slots]
        self._slots = Path(slots)
        self._words = words
        self._seconds = limits.seconds
        self._other: dict[str, Any] = {}
        self._sane: dict[int, float] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def load(self, path: Path, patience: float = 1.0) -> Observed:
        """Restore a file into an empty slot, evaluate a token more, erase, and see what is left.

        Args:
            path: the file.
            patience: how many times the seconds of the limits it may take.

        Raises:
            NoLoader: if the server does not start.
        """
        try:
            return self._loaded(path, patience)
        except KeyboardInterrupt:  # it may be busy with the file still
            self._stop()
            raise

    def _loaded(self, path: Path, patience: float) -> Observed:
        if self._process is None or self._process.poll() is not None:
            self._start()
        self._bring(path)
        self._seconds = self.limits.seconds
        self._ask(_ERASE, {}, time.monotonic())
        self._seconds *= patience
        start, logged = time.monotonic(), self._log.stat().st_size
        restored = self._ask("/slots/0?action=restore", {"filename": _NAME}, start)
        answers = [restored]
        asked: tuple[dict[str, Any] | None, ...] = (None, _prompt(path), {}, self._other)
        for where, body in zip(_AFTER, asked, strict=True):
            if answers[-1].status:
                answers.append(self._ask(where, body, start))
        return self._observed(path, answers, start, logged)

    def _observed(self, path: Path, answers: list[_Answer], start: float, logged: int) -> Observed:
        last, restored = answers[-1], answers[0]
        after = _PLACES[len(answers) - 1]
        if last.status and (spoilt := self._spoilt(last)):
            self._stop()
            refused = "" if restored.status == 200 else ", though it refused the file"
            outcome, detail = Outcome.SPOILT, f"{spoilt}{refused}"
        elif last.status and sanitizer(self._logged(logged)):
            self._stop()
            outcome, detail = Outcome.CRASH, "without an end of the server"
        elif last.status:
            outcome = Outcome.OK if restored.status == 200 else Outcome.REFUSED
            detail = "" if outcome is Outcome.OK else f"HTTP {restored.status}"
        elif last.late:
            self._stop()
            outcome, detail = Outcome.HANG, f"over {self._seconds:g} s{after}"
        else:
            code = self._death()
            outcome, detail = ended(code, self._logged(logged))
            if outcome in (Outcome.OK, Outcome.REFUSED):
                outcome, detail = Outcome.CRASH, f"exit code {code}"
            detail += after
        log, names = self._logged(logged), (str(path), path.name, _NAME, str(self._slots))
        gist = ""
        if outcome is Outcome.REFUSED:
            gist = gist_of(restored.says, names)
        elif outcome not in (Outcome.OK, Outcome.SPOILT):
            gist = gist_of(log, names)
        return Observed(outcome, detail, gist, time.monotonic() - start, log)

    def close(self) -> None:
        """Stop the server, and forget its folder."""
        self._stop()
        self._room.cleanup()

    def _start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                limited(self._words, self.limits, cpu=False),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._ask("/health", None, time.monotonic()).status == 200:
                self._look_around()
                return
            time.sleep(_TICK)
        self._stop()
        last = self._logged(0).strip().rpartition("\n")[2]
        raise NoLoader(f"the server does not start: {last or 'it says nothing'}")

    def _look_around(self) -> None:
        """Find a prompt that the server answers before it sees any file."""
        for prompt in _OTHERS:
            self._other = {**_ASKED, "prompt": list(prompt)}
            self._sane = _likeliest(self._ask("/completion", self._other, time.monotonic()))
            if self._sane is not None:
                return

    def _spoilt(self, answer: _Answer) -> str:
        """What is wrong with an answer to the prompt that was asked before any file; else empty."""
        if self._sane is None:
            return ""
        if answer.status != 200:
            return f"HTTP {answer.status} for other prompts: {answer.says}"
        now = _likeliest(answer)
        if now is None or now.keys() != self._sane.keys():
            return _OTHERWISE
        far = max(abs(now[token] - self._sane[token]) for token in now)
        return _OTHERWISE if far >= _ALIKE else ""

    def _stop(self) -> None:
        if self._process is not None:
            end(self._process)
            self._process = None

    def _death(self) -> int:
        """How the server ended; one that stays without answering is killed."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_SECONDS)
        end(self._process)
        return int(self._process.returncode)

    def _bring(self, path: Path) -> None:
        """Copy a file and its companions into the folder of the slots."""
        for suffix in ("", *SUFFIXES):
            beside, new = Path(f"{path}{suffix}"), self._slots / f"{_NAME}{suffix}"
            new.unlink(missing_ok=True)
            if beside.is_file():
                shutil.copyfile(beside, new)

    def _ask(self, where: str, body: dict[str, Any] | None, start: float) -> _Answer:
        """Send a request: POST if it has a body. The time of the file began at `start`."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{_HOST}:{self._port}{where}", data, headers)
        left = max(_TICK, start + self._seconds - time.monotonic())
        try:
            with urllib.request.urlopen(request, timeout=left) as reply:
                return _Answer(reply.status, reply.read(LOG_BYTES).decode(errors="replace"))
        except urllib.error.HTTPError as refusal:
            with refusal:
                return _Answer(refusal.code, _message(refusal.read(LOG_BYTES)))
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            return _Answer(0, late=isinstance(reason, TimeoutError))

    def _logged(self, start: int) -> str:
        with self._log.open("rb") as log:
            log.seek(max(start, self._log.stat().st_size - LOG_BYTES))
            return log.read().decode(errors="replace")


def _likeliest(answer: _Answer) -> dict[int, float] | None:
    """Tokens that may come next and the logarithms of their likelihoods, if it says them."""
    with suppress(ValueError, KeyError, IndexError, TypeError):
        likeliest = json.loads(answer.says)["completion_probabilities"][0]["top_logprobs"]
        return {one["id"]: float(one["logprob"]) for one in likeliest}
    return None


def _message(body: bytes) -> str:
    """What an error of a server says; the body itself if it is none."""
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(body)["error"]["message"])
    return body.decode(errors="replace")


def _prompt(path: Path) -> dict[str, Any]:
    """A request that goes on from the tokens of a file, where they can be sent."""
    with examined(path) as report:
        held = [] if report.tokens is None else report.tokens.ids[:_MOST_TOKENS].tolist()
    sendable = all(0 <= token <= _HIGHEST_TOKEN for token in held)
    prompt = [*held, held[-1]] if held and sendable else [1]
    return {"prompt": prompt, "id_slot": 0, "n_predict": 1, "cache_prompt": True}


def _after(words: list[str], option: str) -> str | None:
    """The value of an option, the last one as for servers."""
    found = [value for word, value in pairwise(words) if word == option]
    return found[-1] if found else None


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind((_HOST, 0))
        port: int = listening.getsockname()[1]
        return port
