"""The next prompt, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ends."""

    REUSES = "reuses"
    """It is answered."""
    ABORTS = "aborts"
    """The server dies."""
    HTTP_ERROR = "http-error"
    """It is refused."""
    UNKNOWN = "unknown"
    """What would be needed to tell is not known."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt.

    Attributes:
        shared: its first tokens that are those of the slot.
        total: its tokens.
        returning: its first tokens that are those which the slot held before the last request;
            None if nothing is said of it.
    """

    shared: int
    total: int
    returning: int | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a server does with a prompt.

    Attributes:
        request: the prompt.
        outcome: how it ends.
        reused: tokens that it does not evaluate, the server's `cache_n`; None unless it answers.
        checkpoint: the place in the file's list of the checkpoint that it goes back to; None if
            it goes back to none, or to one that the file does not hold.
        rule: the row of the tables that decided.
        why: the reason, in words.
        would_change: what would make it reuse more, in words.
        notes: what else is to be known, in words.
    """

    request: Request
    outcome: Outcome
    reused: int | None
    checkpoint: int | None
    rule: str
    why: str
    would_change: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def usual(n_tokens: int) -> dict[str, Request]:
    """The four cases that people meet, by name.

    Args:
        n_tokens: tokens that the slot holds.
    """
    back = max(0, n_tokens - 8)
    return {
        "append": Request(n_tokens, n_tokens + 1),
        "identical": Request(n_tokens, max(1, n_tokens)),
        "roll back 8": Request(back, max(1, n_tokens)),
        "half": Request(n_tokens // 2, max(1, n_tokens)),
    }
