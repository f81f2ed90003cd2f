"""A real llama.cpp server in a process of its own: started, asked, stopped, its log kept."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

START_SECONDS = 60
ANSWER_SECONDS = 120
LIKELIEST = 8
"""Tokens whose probability is asked for."""
BYTE_TOKENS = 259
"""Token ids below are bytes and control tokens, and never generated: builds b8672 to b11000 answer
text that is no UTF-8 with an error."""


@dataclass(frozen=True)
class Answer:
    """What a server said: an HTTP status and a document, or how it died.

    Attributes:
        status: of HTTP; 0 if it died.
        body: the document.
        death: the signal or the exit code that ended the server; empty if it lives.
    """

    status: int
    body: dict[str, Any] = field(default_factory=dict)
    death: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def reused(self) -> int:
        """Tokens of a prompt that were in memory already."""
        return int(self.body["timings"]["cache_n"])

    @property
    def tokens(self) -> tuple[int, ...]:
        """What was generated."""
        return tuple(self.body["tokens"])

    @property
    def likeliest(self) -> dict[int, float]:
        """Log probabilities of the likeliest tokens in the place of the first generated one."""
        return self.likeliest_at(0)

    def likeliest_at(self, index: int) -> dict[int, float]:
        """The same in the place of another one."""
        place = self.body["completion_probabilities"][index]
        return {one["id"]: one["logprob"] for one in place["top_logprobs"]}

    def __str__(self) -> str:
        """In words."""
        if self.death:
            return f"died: {self.death}"
        error = self.body.get("error", {}).get("message", "")
        return f"{self.status} {error}".strip()


class Server:
    """A server on 127.0.0.1, for as long as the context lasts."""

    def __init__(
        self, wheel: Path, model: Path, slots: Path, log: Path, flags: Sequence[str] = ()
    ) -> None:
        self.log = log
        self._port = _free_port()
        serve = Path(__file__).with_name("serve.py")
        where = (serve, wheel, model, self._port, slots)
        self._command = [sys.executable, *map(str, where), *flags]

    def __enter__(self) -> Server:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=dict(os.environ, GGML_NO_BACKTRACE="1"),  # no debugger on a failed assertion
            )
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._listens() and self.ask("/health").ok:
                return self
            time.sleep(0.02)
        self.__exit__(None, None, None)
        if self._process.returncode == -signal.SIGILL:
            pytest.skip("this processor lacks instructions that the build was compiled for")
        raise RuntimeError(f"the server did not start:\n{self.logged()[-2000:]}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def restore(self, name: str, slot: int = 0) -> Answer:
        """Load `name` of the slot folder into a slot."""
        return self.ask(f"/slots/{slot}?action=restore", {"filename": name})

    def save(self, name: str, slot: int = 0) -> Answer:
        """Write a slot to `name` of the slot folder."""
        answer = self.ask(f"/slots/{slot}?action=save", {"filename": name})
        self._settle()
        return answer

    def _settle(self) -> None:
        """Wait until the log, which the server writes when it finds the time, grows no more."""
        size, still = -1, 0
        while still < 3:
            time.sleep(0.1)
            now = self.log.stat().st_size
            still, size = (still + 1 if now == size else 0), now

    def complete(
        self, prompt: Sequence[int], slot: int = 0, n_predict: int = 2, *, reuse: bool = True
    ) -> Answer:
        """Evaluate a prompt of token ids in a slot and generate greedily."""
        asked = {
            "prompt": list(prompt),
            "id_slot": slot,
            "n_predict": n_predict,
            "temperature": 0,
            "seed": 1,
            "cache_prompt": reuse,
            "ignore_eos": True,
            "return_tokens": True,
            "n_probs": LIKELIEST,
            "logit_bias": [[token, False] for token in range(BYTE_TOKENS)],
        }
        return self.ask("/completion", asked)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Answer:
        """Send a request: POST if it has a body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as reply:
                return Answer(reply.status, json.loads(reply.read()))
        except urllib.error.HTTPError as refusal:
            with refusal:
                return Answer(refusal.code, json.loads(refusal.read()))
        except (OSError, ValueError) as error:
            return Answer(0, death=self._death() or f"no answer: {error}")

    def _listens(self) -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", self._port)) == 0

    def _death(self) -> str:
        """How the process ended; empty if it does not end within five seconds."""
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return ""
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def logged(self) -> str:
        """What it wrote to its log so far."""
        return self.log.read_text(errors="replace")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
