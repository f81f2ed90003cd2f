"""What a running server says of itself.

Source: ggml-org/llama.cpp b7551 to b11549, tools/server/README.md `GET /props`, `GET /slots`,
`GET /health`.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from queue import Empty, Queue
from threading import Thread
from typing import Any

from inspector.server.command import MOST_SLOTS

AT_MOST = 1 << 24
"""Bytes that are taken of an answer; slots of many tokens are long."""

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_PIECE = 1 << 16
_UNAUTHORIZED = 401
_MOST_TOKENS = 1 << 31
_UPSTREAM_BUILD = re.compile(r"b(\d{4,6})-[0-9a-f]{7,40}")


class Unreachable(Exception):
    """No server answers there as llama-server does; the message says how it failed."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs.

    Attributes:
        build: as it names it, if that is a number of upstream's.
        values: what it says of its options, by attribute of a target.
        notes: what else is to be said of it, in words.
    """

    build: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def asked(url: str, timeout: float) -> Running:
    """Ask a server for what decides about a state.

    Args:
        url: where it listens, such as `http://127.0.0.1:8080`.
        timeout: seconds for each answer.

    Raises:
        Unreachable: no answer, or none of a llama-server.
    """
    base = url.rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise Unreachable(f"{url}: a URL begins with http:// or https://")
    health = _answer(f"{base}/health", timeout)
    if health.get("status") not in ("ok", "no slot available"):
        raise Unreachable(f"{url}: the server is not ready: {_words(health)}")
    props = _answer(f"{base}/props", timeout)
    n_slots, settings = props.get("total_slots"), props.get("default_generation_settings")
    if type(n_slots) is not int or not 0 < n_slots <= MOST_SLOTS or not isinstance(settings, dict):
        raise Unreachable(f"{url}: what answers is no llama-server: /props tells of no slots")
    return _running(props, n_slots, settings, _slots(base, timeout))


def _running(
    props: dict[str, Any], n_slots: int, settings: dict[str, Any], slots: list[Any]
) -> Running:
    values: dict[str, Any] = {"n_slots": n_slots}
    notes = []
    told = [slot.get("n_ctx") for slot in slots if isinstance(slot, dict)]
    sizes = {n for n in told or [settings.get("n_ctx")] if isinstance(n, int)}
    if len(sizes) == 1 and type(n_ctx := sizes.pop()) is int and 0 < n_ctx < _MOST_TOKENS:
        values["n_ctx_slot"] = n_ctx
    if isinstance(path := props.get("model_path"), str) and path not in ("", "none"):
        values["model"] = path
    modalities = props.get("modalities")
    if isinstance(modalities, dict) and any(modalities.values()):
        values["mmproj"] = True
    build = props.get("build_info")
    if isinstance(build, str) and _UPSTREAM_BUILD.fullmatch(build):
        return Running(build, values)
    notes.append(f"the server calls itself {build!r}, which is no number of upstream's")
    return Running(None, values, tuple(notes))


def _slots(base: str, timeout: float) -> list[Any]:
    """The slots; none if the server does not show them."""
    try:
        answer = _read(f"{base}/slots", timeout)
    except Unreachable:
        return []
    return answer if isinstance(answer, list) else []


def _answer(url: str, timeout: float) -> dict[str, Any]:
    answer = _read(url, timeout)
    if not isinstance(answer, dict):
        raise Unreachable(f"{url}: what answers is no llama-server: no JSON object")
    return answer


def _read(url: str, timeout: float) -> Any:
    """The document at `url`; headers that drip keep nobody waiting for longer than a body."""
    done: Queue[Any] = Queue()

    def run() -> None:
        try:
            done.put(_fetched(url, timeout))
        except Unreachable as error:
            done.put(error)

    Thread(target=run, daemon=True).start()
    try:
        answer = done.get(timeout=2 * timeout)
    except Empty:
        raise Unreachable(f"{url}: the answer takes too long") from None
    if isinstance(answer, Unreachable):
        raise answer
    return answer


def _fetched(url: str, timeout: float) -> Any:
    try:
        with _OPENER.open(_request(url), timeout=timeout) as reply:
            text = _text(reply, time.monotonic() + timeout)
    except urllib.error.HTTPError as error:
        more = ""
        if error.code == _UNAUTHORIZED:
            more = "; set LLAMA_API_KEY to what the server has as --api-key"
        raise Unreachable(f"{url}: HTTP {error.code}: {_reason(error)}{more}") from error
    except HTTPException as error:
        raise Unreachable(f"{url}: the answer breaks off, or is none of HTTP") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(f"{url}: {getattr(reason, 'strerror', None) or reason}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreachable(f"{url}: what answers is no llama-server: no JSON") from error


def _request(url: str) -> urllib.request.Request:
    """With the key that the server may ask for."""
    key = os.environ.get("LLAMA_API_KEY", "")
    return urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})


def _text(reply: HTTPResponse, deadline: float) -> bytes:
    """An answer that is neither endless nor endlessly slow."""
    if (reply.length or 0) > AT_MOST:
        raise OSError(f"the answer is longer than {AT_MOST:,} bytes")
    text = b""
    while piece := reply.read1(_PIECE):
        text += piece
        if len(text) > AT_MOST:
            raise OSError(f"the answer is longer than {AT_MOST:,} bytes")
        if time.monotonic() > deadline:
            raise OSError("the answer takes too long")
    return text


def _reason(error: urllib.error.HTTPError) -> str:
    """The message of a refusal."""
    try:
        return _words(json.loads(error.read(4096)))
    except (OSError, ValueError, RecursionError):
        return str(error.reason)


def _words(answer: Any) -> str:
    """The message in an answer, or as much of the answer as fits in a line."""
    inner = answer.get("error", answer) if isinstance(answer, dict) else answer
    message = inner.get("message") if isinstance(inner, dict) else None
    return str(message or answer)[:200]
