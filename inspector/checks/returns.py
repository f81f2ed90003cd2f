"""Where a server goes on that goes back to a checkpoint, and whether the checkpoint allows that.

A server looks for a record by `pos_min` and `pos_max`, loads its blob, and goes on behind
min(max(`pos_min` + 1, `pos_max`), `n_tokens`) tokens. Whether the blob ends there nobody checks.

Source: ggml-org/llama.cpp b9593 (PR #24411), tools/server/server-context.cpp `update_slots`;
measured on b11549: a thousand requests to slots of which one record had wrong numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_NOTICED = 4
"""A window that lacks the fourth part of its positions shows in the answers.

Source: b11549, a window of 32 positions that lacked the first ones, four conversations: the log
probabilities of an answer were off by 0.001 with none missing, up to 0.014 with two, 0.029 with
four, and by at least 0.024 in each conversation with eight.
"""


class Return(StrEnum):
    """How a return to a checkpoint ends."""

    RIGHT = "right"
    SHORT = "short"
    """A few tokens are evaluated with a window that lacks some positions: it hardly shows."""
    FROM_START = "from the start"
    """The whole prompt is evaluated."""
    TOO_LOW = "too low"
    """A state cannot go back: the server dies. A window lacks more: answers are worse."""
    TOO_HIGH = "too high"
    """What is evaluated does not follow what is in memory: HTTP 500, or wrong answers."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a record says of itself.

    Attributes:
        n_tokens: tokens of the prompt in front of it; None if they are not comparable to positions.
        pos_min: lowest position.
        pos_max: highest position.
    """

    n_tokens: int | None
    pos_min: int
    pos_max: int

    @property
    def limit(self) -> int | None:
        """`n_tokens` as a server reads it, without a sign: below 0 it limits nothing."""
        return self.n_tokens if self.n_tokens is not None and self.n_tokens >= 0 else None

    @property
    def end(self) -> int:
        """The position to go on from, as the positions have it; below 0 they limit nothing."""
        return max(self.pos_min + 1, self.pos_max)

    @property
    def resumed(self) -> int | None:
        """The position that the server goes on from; None for the end of what it holds."""
        limits = [limit for limit in (self.end, self.limit) if limit is not None and limit >= 0]
        return min(limits, default=None)

    def cuts_itself(self, window: int) -> bool:
        """Whether a prompt that ends there picks the record too: its last token is taken away.

        Args:
            window: tokens of the sliding window, 0 without one.
        """
        found = self.pos_min <= 0 or self.pos_min < self.pos_max - window - 1
        return found and self.resumed == self.pos_max


@dataclass(frozen=True, slots=True)
class Held:
    """What the blob of a record holds.

    Attributes:
        first: lowest position.
        last: highest position.
        window: tokens of the sliding window, 0 without one.
        at_tip: whether it holds a state, which knows the last position only.
    """

    first: int
    last: int
    window: int
    at_tip: bool

    def lacking(self, start: int) -> int:
        """Positions that the one at `start` sees and that are not in the blob."""
        seen = max(0, start - self.window + 1)
        return max(0, min(start, self.first) - seen)


def returned(numbers: Numbers, held: Held) -> Return:
    """What becomes of a request that goes back to a record.

    Args:
        numbers: of the record.
        held: what its blob holds.
    """
    resumed = numbers.resumed
    if resumed is None or resumed > held.last + 1 or (numbers.end < 0 and resumed > 1):
        return Return.TOO_HIGH
    if resumed == 0:
        return Return.FROM_START
    ends_there = resumed > 1 and numbers.cuts_itself(held.window)
    if held.at_tip:
        return Return.RIGHT if resumed - ends_there > held.last else Return.TOO_LOW
    lacking = held.lacking(resumed) - held.lacking(held.last)
    if lacking <= 0:  # even if it ends there: records of servers do
        return Return.RIGHT
    slight = resumed >= held.first and lacking < held.window / _NOTICED
    return Return.SHORT if slight and not ends_there else Return.TOO_LOW
