"""The reuse curve: what is reused of the next prompt, by the tokens that it shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from inspector.server.loader import Outcome
from inspector.server.prompt import Request
from inspector.server.restored import restored
from inspector.server.reuse import predict

if TYPE_CHECKING:
    from inspector.check import Check
    from inspector.server.slot import Slot

_EVENLY = 128
"""Places that are looked at in any case."""
_MOST = 2000
"""Places that are looked at; the curve of a real list has a few hundred."""
_MOST_CHECKPOINTS = 256

Point = tuple[int, int | None]


@dataclass(frozen=True, slots=True)
class Curve:
    """What is reused, by what is shared.

    Attributes:
        n_tokens: tokens of the slot.
        points: tokens shared and tokens reused (None where that is not known, or the server does
            not answer), ascending. Straight between two points, but for a jump between neighbours.
    """

    n_tokens: int
    points: tuple[Point, ...]


def curve(check: Check) -> Curve:
    """What the first prompt after a restore reuses.

    Its first tokens are those of the file, and at least one follows that is not.

    Args:
        check: the verdict on the file, still open.
    """
    report = check.report
    n = report.tokens.count if report.tokens is not None else 0
    if check.restore.outcome is Outcome.REFUSES:
        return Curve(n, ((0, 0), (n, 0)))
    slot = restored(report, check.target)
    if check.restore.outcome is not Outcome.ACCEPTS or isinstance(slot, str):
        return Curve(n, ((0, None), (n, None)))

    def reused(shared: int) -> int | None:
        request = Request(shared, shared + 1)
        return predict(slot, check.target, request, remedies=False).reused

    places = {at for at in _places(slot, n) if 0 <= at <= n}
    return Curve(n, tuple(_bends(_traced(reused, places))))


def _places(slot: Slot, n: int) -> Iterator[int]:
    """Where something may change: at checkpoints, and evenly."""
    for step in range(_EVENLY + 1):
        yield n * step // _EVENLY
    for checkpoint in slot.checkpoints[:_MOST_CHECKPOINTS]:
        for end in (checkpoint.n_tokens, checkpoint.pos_min, checkpoint.pos_max + 1):
            yield from (end - 1, end, end + 1)


def _traced(reused: Callable[[int], int | None], places: Iterable[int]) -> list[Point]:
    """The values at some places, and at more of them where it is not straight in between."""
    known = {at: reused(at) for at in places}
    waiting = list(pairwise(sorted(known)))
    while waiting and len(known) < _MOST:
        low, high = waiting.pop()
        if high - low > 1 and not _straight((low, known[low]), (high, known[high])):
            middle = (low + high) // 2
            known[middle] = reused(middle)
            waiting += [(low, middle), (middle, high)]
    return sorted(known.items())


def _straight(one: Point, other: Point) -> bool:
    """Whether all in between follows: nothing more is reused, or every further token is."""
    if one[1] is None or other[1] is None:
        return one[1] is other[1]
    return other[1] - one[1] in (0, other[0] - one[0])


def _bends(points: list[Point]) -> Iterator[Point]:
    """The points without those that lie on the line between their neighbours."""
    for index, point in enumerate(points):
        if 0 < index < len(points) - 1:
            before, after = _slope(points[index - 1], point), _slope(point, points[index + 1])
            if before is not None and before == after:
                continue
        yield point


def _slope(one: Point, other: Point) -> int | None:
    """Tokens reused for every token shared; None at a jump. Where nothing is known it is -1."""
    if one[1] is None or other[1] is None:
        return -1 if one[1] is other[1] else None
    rise = other[1] - one[1]
    return {0: 0, other[0] - one[0]: 1}.get(rise)
