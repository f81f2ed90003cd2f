"""The gate of each build, as tables: what a server keeps of a slot when the next prompt comes.

Source: ggml-org/llama.cpp, tools/server `update_slots` and `create_checkpoint`, as of the pull
request that each row names; the answers of b7551 to b11549 to 7 777 prompts after restores.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from inspector.server.slot import Checkpoint, Slot


@dataclass(frozen=True, slots=True)
class Gate:
    """When a server thinks that its memory cannot go on from the common prefix.

    Attributes:
        since: first build.
        source: pull request.
        says: the rule. P: tokens of the common prefix, N: of the slot, W: of the window.
        entered: of P and N, whether the memory is looked at.
        threshold: of the position behind P, of W, and of whether the prompt has more tokens.
        resets: of the lowest position in memory and the threshold, whether memory will not do.
    """

    since: int
    source: str
    says: str
    entered: Callable[[int, int], bool]
    threshold: Callable[[int, int, bool], int]
    resets: Callable[[int, int], bool]


def _never(shared: int, held: int) -> bool:
    return False


def _diverging(shared: int, held: int) -> bool:
    return 0 < shared < held


def _sharing(shared: int, held: int) -> bool:
    return 0 < shared <= held


# fmt: off
GATES = (
    Gate(0, "before PR #13194", "never",
         _never, lambda pos, window, more: 0, operator.gt),
    Gate(5429, "PR #13194", "0 < P < N and pos_min > 0",
         _diverging, lambda pos, window, more: 0, operator.gt),
    Gate(5554, "PR #13833", "0 < P < N and pos_min > P - W",
         _diverging, lambda pos, window, more: pos - window, operator.gt),
    Gate(5653, "PR #14163", "0 < P < N and pos_min > max(0, P - W)",
         _diverging, lambda pos, window, more: max(0, pos - window), operator.gt),
    Gate(6685, "PR #16382", "0 < P < N and pos_min > max(0, P - max(1, W))",
         _diverging, lambda pos, window, more: max(0, pos - max(1, window)), operator.gt),
    Gate(8450, "PR #20726", "0 < P < N and pos_min >= max(0, P - W)",
         _diverging, lambda pos, window, more: max(0, pos - window), operator.ge),
    Gate(9231, "PR #23280", "0 < P <= N and pos_min >= max(0, P - W - 1)",
         _sharing, lambda pos, window, more: max(0, pos - window - 1), operator.ge),
    Gate(9509, "PR #24110", "0 < P <= N and pos_min >= max(0, P - W), one less for a prompt of P",
         _sharing, lambda pos, window, more: max(0, pos - window - (not more)), operator.ge),
)
# fmt: on
"""The gate, by the first build that has it. W is 0 without a window."""


@dataclass(frozen=True, slots=True)
class Search:
    """Which checkpoint a server goes back to, looking at the newest first, and where it goes on.

    Attributes:
        since: first build.
        source: pull request.
        says: the rule. T: the threshold of the gate.
        fits: of a checkpoint, T, and the position behind P.
        resumes: of the slot, a checkpoint, and the position behind P: the position and the number
            of tokens to go on from.
    """

    since: int
    source: str
    says: str
    fits: Callable[[Checkpoint, int, int], bool]
    resumes: Callable[[Slot, Checkpoint, int], tuple[int, int]]


def _to_pos_max(slot: Slot, checkpoint: Checkpoint, pos: int) -> tuple[int, int]:
    pos = min(pos, checkpoint.pos_max)
    return pos, pos


def _to_end(slot: Slot, checkpoint: Checkpoint, pos: int) -> tuple[int, int]:
    pos = min(pos, max(checkpoint.pos_min + 1, checkpoint.pos_max))
    return pos, pos


def _past_end(slot: Slot, checkpoint: Checkpoint, pos: int) -> tuple[int, int]:
    pos, _ = _to_end(slot, checkpoint, pos)
    return pos, slot.tokens_up_to(pos + 1)


def _to_tokens(slot: Slot, checkpoint: Checkpoint, pos: int) -> tuple[int, int]:
    """An n_tokens below 0 limits nothing: the server takes it for a number without a sign."""
    pos, _ = _to_end(slot, checkpoint, pos)
    n_tokens = slot.tokens_up_to(pos)
    return pos, n_tokens if checkpoint.n_tokens < 0 else min(n_tokens, checkpoint.n_tokens)


def _at_most(checkpoint: Checkpoint, threshold: int, pos: int) -> bool:
    return checkpoint.pos_min <= threshold


def _below(checkpoint: Checkpoint, threshold: int, pos: int) -> bool:
    return checkpoint.pos_min < threshold


def _below_or_zero(checkpoint: Checkpoint, threshold: int, pos: int) -> bool:
    return checkpoint.pos_min < threshold or checkpoint.pos_min == 0


def _inside(checkpoint: Checkpoint, threshold: int, pos: int) -> bool:
    return checkpoint.pos_max <= pos and _below_or_zero(checkpoint, threshold, pos)


# fmt: off
SEARCHES = (
    Search(6160, "PR #15293", "pos_min <= T", _at_most, _to_pos_max),
    Search(6685, "PR #16382", "pos_min < T", _below, _to_end),
    Search(8152, "PR #19849", "pos_min < T, and one token is skipped", _below, _past_end),
    Search(8166, "PR #19924", "pos_min < T", _below, _to_tokens),
    Search(8693, "PR #21510", "pos_min < T or pos_min = 0", _below_or_zero, _to_tokens),
    Search(9593, "PR #24411", "pos_max <= P, and pos_min < T or pos_min = 0",
           _inside, _to_tokens),
)
# fmt: on
"""The search, by the first build that has it."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """Which checkpoints a server forgets before it evaluates.

    Attributes:
        since: first build.
        source: pull request.
        hits: of a checkpoint, the threshold of the gate, and the position to go on from.
    """

    since: int
    source: str
    hits: Callable[[Checkpoint, int, int], bool]


# fmt: off
ERASURES = (
    Erasure(6160, "PR #15293", lambda checkpoint, threshold, pos: checkpoint.pos_min > threshold),
    Erasure(8393, "PR #20671", lambda checkpoint, threshold, pos: checkpoint.pos_max > pos),
)
# fmt: on
"""The erasure, by the first build that has it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of the prompt, about to be evaluated.

    Attributes:
        start: tokens in front of it.
        stop: tokens up to its end.
        total: tokens of the prompt.
        pos_max: highest position in memory.
        last: the newest checkpoint; None without any.
        n_ubatch: `--ubatch-size`.
        min_step: `--checkpoint-min-step`.
    """

    start: int
    stop: int
    total: int
    pos_max: int
    last: Checkpoint | None
    n_ubatch: int
    min_step: int

    @property
    def ends(self) -> bool:
        """Whether it ends the prompt."""
        return self.stop == self.total

    @property
    def near(self) -> bool:
        """Whether it ends near the end of the prompt."""
        return self.total < self.stop + self.n_ubatch

    @property
    def far(self) -> bool:
        """Whether it begins far behind the last checkpoint."""
        return self.start - (self.last.n_tokens if self.last else 0) >= _FAR

    @property
    def large(self) -> bool:
        """Whether memory has enough positions to be worth it."""
        return self.pos_max >= _LEAST

    @property
    def positions_apart(self) -> bool:
        """Whether memory ends behind the last checkpoint by enough positions."""
        return self.last is None or self.pos_max > self.last.pos_max + _LEAST

    def tokens_apart(self, step: int) -> bool:
        """Whether it begins more than so many tokens behind the last checkpoint."""
        return self.last is None or self.start > self.last.n_tokens + step


_FAR = 8192
"""Tokens; default of `--checkpoint-every-n-tokens`."""
_LEAST = 64


@dataclass(frozen=True, slots=True)
class Taking:
    """Where a server cuts a prompt to take checkpoints, and which it takes.

    Attributes:
        since: first build.
        source: pull request.
        cuts: of n_batch and n_ubatch, how many tokens before the end of a prompt a batch ends.
        takes: of a batch, whether a checkpoint is taken in front of it.
        thins: of the length of the list and its limit, whether those of earlier requests that
            stand closer than the least step to the one before are dropped first.
        replaces: whether one with as many tokens is replaced.
        sure: first build that surely does so, if that is not `since`.
    """

    since: int
    source: str
    cuts: Callable[[int, int], tuple[int, ...]]
    takes: Callable[[Batch], bool]
    thins: Callable[[int, int], bool] = lambda length, limit: False
    replaces: bool = False
    sure: int = 0


def _once(n_batch: int, n_ubatch: int) -> tuple[int, ...]:
    return (min(n_batch, 512),)


def _twice(n_batch: int, n_ubatch: int) -> tuple[int, ...]:
    return min(n_batch, 4 + n_ubatch), min(n_batch, 4)


# fmt: off
TAKINGS = (
    Taking(6711, "PR #16440", lambda n_batch, n_ubatch: (64,),
           lambda b: b.ends and b.large and b.positions_apart),
    Taking(7970, "PR #19408", _once,
           lambda b: b.ends and b.large and b.positions_apart),
    Taking(8218, "PR #20087", _once,
           lambda b: (b.ends or b.far) and b.large and b.positions_apart),
    Taking(8271, "PR #20288", _twice,
           lambda b: (b.near or b.far) and b.large and b.positions_apart),
    Taking(8450, "PR #20726", _twice,
           lambda b: (b.near or b.far) and b.stop >= _LEAST and b.tokens_apart(_LEAST)),
    Taking(9310, "PR #22929", _twice,
           lambda b: b.near and b.tokens_apart(b.min_step)),
    Taking(9978, "PR #25472", _twice,
           lambda b: b.near,
           thins=lambda length, limit: True),
    Taking(10853, "PR #28302", _twice,
           lambda b: b.near,
           thins=lambda length, limit: length >= limit - 1, replaces=True, sure=10865),
)
# fmt: on
"""How checkpoints are taken, by the first build that does so."""

_Row = TypeVar("_Row", Gate, Search, Erasure, Taking)


def row(rows: Sequence[_Row], number: int) -> _Row | None:
    """The last row that a build of this number has; None if it is older than all."""
    return next((row for row in reversed(rows) if row.since <= number), None)
