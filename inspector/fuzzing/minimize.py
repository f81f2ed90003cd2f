"""A file made as small as can be while a loader fails on it in the same way."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from formats.layout import Layout
from inspector.bundle import SUFFIXES
from inspector.decode import Decoding, decode
from inspector.fuzzing.loader import Loader, Observed, Outcome
from inspector.fuzzing.reshape import Change, Piece, reshaped
from inspector.identify import identify
from inspector.node import Kind, Node, leaves, walk
from inspector.repair.apart import state_of
from inspector.repair.compose import slot_file
from inspector.repair.draft import stored_form
from inspector.repair.segments import Composed, Write, chunks
from inspector.repair.state import Refused, State
from inspector.report import examined
from inspector.source import Source, Unreadable
from inspector.span import Span

_INDEX = re.compile(r"\[\d+\]")
_LARGEST_BY_BYTES = 4096
"""A file up to this size is also made smaller byte by byte."""
_MOST_ROUNDS = 4
_AGAIN = 2
"""How often the small file must fail once more."""
_WHY = "minimize"


class NoFailure(Exception):
    """The loader takes or refuses the file, or fails another way each time."""


@dataclass(frozen=True)
class Small:
    """What became of a file.

    Attributes:
        data: its bytes.
        pieces: the same by what they are; a single one if no layout explains them.
        layout: that they were read as; None if none explains them.
        failure: what the loader does with it, as with the file before.
        tries: how often the loader was run.
        steps: what was taken away, and the bytes left after it.
        companions: what must lie beside it, by what the names add: where that is now.
        stopped: whether the user ended it with Ctrl-C: more might go.
    """

    data: bytes
    pieces: tuple[Piece, ...]
    layout: Layout | None
    failure: Observed
    tries: int
    steps: tuple[tuple[str, int], ...]
    companions: Mapping[str, Path]
    stopped: bool = False


class Minimizer:
    """One file, and the loader that it must go on failing.

    Args:
        path: the file.
        loader: the loader.
        seconds: after which no more is tried.
        name: that the small file will have; loaders may go by what it ends in.
        progress: is told every step and the bytes left.
    """

    def __init__(
        self,
        path: Path,
        loader: Loader,
        seconds: float,
        name: str,
        progress: Callable[[str, int], None] = lambda step, size: None,
    ) -> None:
        """Args are those of the class."""
        self.path, self.loader, self.progress = path, loader, progress
        self.data = path.read_bytes()
        self.tries = 0
        self.steps: list[tuple[str, int]] = []
        self._deadline = time.monotonic() + seconds
        self._known: dict[bytes, bool] = {}
        self._name = _with_ending_of(name, path.name)
        self._companions = {
            suffix: beside for suffix in SUFFIXES if (beside := Path(f"{path}{suffix}")).is_file()
        }

    def run(self) -> Small:
        """Make it smaller until nothing more can go, the time is over, or the user ends it.

        Raises:
            NoFailure: if there is no failure to keep, or the small file does not fail every time.
            KeyboardInterrupt: if the user ends it before anything is known, or a second time.
            NoLoader: if the loader cannot be started.
            Unreadable: if a companion cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="slotscope-fuzz-") as room:
            self._room = Path(room)
            self._failure = self._to_keep()
            self._layout = self._read_as()
            size, stopped = len(self.data), False
            try:
                self._all()
            except _TimeIsOver:
                pass
            except KeyboardInterrupt:
                stopped = True
            failure = self._failure
            if not stopped or len(self.data) < size:
                failure = self._seen_again()
        return Small(
            self.data,
            self._pieces(),
            self._layout,
            failure,
            self.tries,
            tuple(self.steps),
            self._companions,
            stopped,
        )

    def _to_keep(self) -> Observed:
        """What the loader does with the file as it will lie: named so, with companions if needed.

        Raises:
            NoFailure: if there is no failure to keep.
        """
        own = self._tried(self.path.name, self._companions)
        if own.outcome is Outcome.OK:
            raise NoFailure("the loader takes this file")
        if own.outcome is Outcome.REFUSED:
            raise NoFailure(
                f"the loader only refuses this file ({own.detail}): nothing to make small. Of a "
                "program, --refuses says which exit codes are refusals; all others are failures "
                "then"
            )
        found = self._tried(self._name, self._companions)
        renamed = self._name != self.path.name
        again = self._tried(self.path.name, self._companions) if renamed else found
        if again.key != own.key:
            raise NoFailure("the loader does not fail the same way twice")
        if found.key[:2] != own.key[:2]:  # what it says may hold the name
            ending = "".join(self.path.suffixes)
            only = f"that ends in {ending}: -o must end so" if ending else "without an ending"
            raise NoFailure(f"the loader fails only under a name {only}")
        if self._companions and self._tried(self._name, {}).key == found.key:
            self._companions = {}
        self._bring(self._name, self._companions)
        return found

    def _tried(self, name: str, companions: Mapping[str, Path]) -> Observed:
        """What the loader does with the file under a name, with these companions beside it."""
        self._bring(name, companions)
        return self._observed(self.data)

    def _bring(self, name: str, companions: Mapping[str, Path]) -> None:
        self._place = Path(tempfile.mkdtemp(dir=self._room), name)
        for suffix, path in companions.items():
            try:
                shutil.copyfile(path, f"{self._place}{suffix}")
            except OSError as error:
                raise Unreadable(f"{path}: {error.strerror}") from error

    def _seen_again(self) -> Observed:
        """What the loader does with what is left, as it did before.

        Raises:
            NoFailure: if it does so no more.
        """
        for _ in range(_AGAIN):
            observed = self._observed(self.data)
            if observed.key != self._failure.key:
                raise NoFailure(
                    f"the loader fails at random: it did so with the {len(self.data):,} bytes that "
                    f"are left, and did not when it was given them again ({observed.outcome})"
                )
        return observed

    def _all(self) -> None:
        for _ in range(_MOST_ROUNDS):
            size = len(self.data)
            if self._layout is not None:
                self._cut()
                self._count()
                self._cells()
            if len(self.data) == size:
                break
        if self._layout is not None:
            self._zero()
        if len(self.data) <= _LARGEST_BY_BYTES:
            self._bytes()

    # what is tried

    def _cut(self) -> None:
        """Cut it at the boundary of a field, as early as it still fails."""
        decoding = self._decoding()
        ends = sorted({leaf.span.start for leaf in leaves(decoding.root)} - {0})
        low, high = 0, len(ends)
        while low < high:
            middle = (low + high) // 2
            if self._take("cut", self.data[: ends[middle]]):
                high = middle
            else:
                low = middle + 1

    def _count(self) -> None:
        """Lower every number that something follows from."""
        numbers = dict.fromkeys((_of(path), value) for path, value in self._fields() if value > 0)
        for pattern, value in numbers:
            for last in (False, True):
                if self._lowered(pattern, value, last=last):
                    break
        self._take("what follows", self._changed(Change(rest=False)))

    def _lowered(self, pattern: str, value: int, *, last: bool) -> bool:
        """Find the lowest value that some numbers can have; whether that is a lower one."""
        now = value

        def tried(lower: int) -> bool:
            nonlocal now
            paths = [path for path, held in self._fields() if held == now and _of(path) == pattern]
            change = Change(dict.fromkeys(paths, lower), last=last)
            if not self._take(f"{pattern} lowered", self._changed(change)):
                return False
            now = lower
            return True

        if any(first < value and tried(first) for first in (0, 1)):
            return True
        low = 2
        while low < now:
            middle = (low + now) // 2
            if not tried(middle):
                low = middle + 1
        return now < value

    def _cells(self) -> None:
        """Leave cells out, wherever they stand, with their rows in all layers."""
        with self._state() as state:
            members = [] if state is None else [cache.member for cache in state.caches]
        for member in members:
            left = self._n_cells(member)
            width = left // 2
            while width:
                at = 0
                while at < left and left > 1:
                    if self._without(member, at, at + width):
                        left = self._n_cells(member)
                    else:
                        at += width
                width //= 2

    def _n_cells(self, member: str) -> int:
        with self._state() as state:
            found = [] if state is None else [c for c in state.caches if c.member == member]
            return len(found[0].cells) if found else 0

    def _without(self, member: str, start: int, stop: int) -> bool:
        """Leave some cells out of a cache."""
        with self._state() as state:
            cache = next((c for c in state.caches if c.member == member), None) if state else None
            if state is None or cache is None:
                return False
            index = np.delete(np.arange(len(cache.cells)), np.s_[start:stop])
            whole = state.part(member, cache.taken(index, _WHY))
            content = tuple(slot_file(whole, self._form, _WHY))
            return self._take("cells", b"".join(chunks(content)))

    @contextmanager
    def _state(self) -> Iterator[State | None]:
        """The state by its parts, of a whole file that can be taken apart."""
        path = self._place.with_name(f"{self._place.name}.now")
        path.write_bytes(self.data)
        with examined(path) as report:
            state = None
            with suppress(Refused):
                state = state_of(report)
                self._form = stored_form(report)
                if state.missing or report.identification.reading is None:
                    state = None
            yield state

    def _zero(self) -> None:
        """Fill payloads with zeros: all of them, or as many as can be."""
        paths = [path for path, node in self._nodes() if node.kind is Kind.PAYLOAD]
        cut = [stop.path for stop in self._decoding().stops]
        self._zeroed([*paths, *cut])

    def _zeroed(self, paths: list[str]) -> None:
        if not paths:
            return
        data = self._changed(Change(zero=frozenset(paths)))
        if self._take("zeros", data, smaller=False) or len(paths) == 1:
            return
        middle = len(paths) // 2
        self._zeroed(paths[:middle])
        self._zeroed(paths[middle:])

    def _bytes(self) -> None:
        """Leave bytes out, then set them to zero, in ever smaller stretches."""
        for fill in (False, True):
            width = max(1, len(self.data) // 2)
            while width:
                at = 0
                while at < len(self.data):
                    end = min(at + width, len(self.data))
                    new = bytes(end - at) if fill else b""
                    data = self.data[:at] + new + self.data[end:]
                    what = "bytes to zero" if fill else "bytes"
                    if not self._take(what, data, smaller=not fill) or fill:
                        at += width
                width //= 2

    # how it is tried

    def _take(self, what: str, data: bytes | None, *, smaller: bool = True) -> bool:
        """Keep other bytes if the loader fails on them in the same way."""
        if data is None or data == self.data or (smaller and len(data) >= len(self.data)):
            return False
        if data not in self._known:
            if time.monotonic() > self._deadline:
                raise _TimeIsOver
            self._known[data] = self._observed(data).key == self._failure.key
        if not self._known[data]:
            return False
        self.data = data
        if self.steps and self.steps[-1][0] == what:
            self.steps.pop()
        self.steps.append((what, len(data)))
        self.progress(what, len(data))
        return True

    def _observed(self, data: bytes) -> Observed:
        self._place.write_bytes(data)
        self.tries += 1
        return self.loader.load(self._place)

    # what it is made of

    def _source(self) -> Source:
        return Composed((Write(self.data, _WHY),), self.path.name)

    def _read_as(self) -> Layout | None:
        reading = identify(self._source()).reading
        if reading is None or reading.decoding.root.span.start:
            return None
        return reading.layout

    def _decoding(self) -> Decoding:
        assert self._layout is not None  # asked only then
        return decode(self._source(), self._layout, Span(0, len(self.data)))

    def _changed(self, change: Change) -> bytes | None:
        with suppress(OverflowError):
            return b"".join(
                piece.data for piece in reshaped(self._source(), self._decoding(), change)
            )
        return None

    def _pieces(self) -> tuple[Piece, ...]:
        if self._layout is None:
            return (Piece("", self.data),)
        return reshaped(self._source(), self._decoding(), Change())

    def _nodes(self) -> Iterator[tuple[str, Node]]:
        return walk(self._decoding().root)

    def _fields(self) -> list[tuple[str, int]]:
        """The numbers of the file, and of lists without a count how many items they have."""
        found = []
        for path, node in self._nodes():
            if node.kind is Kind.FIELD and isinstance(node.value, int):
                found.append((path, node.value))
            elif node.kind is Kind.SERIES:
                found.append((path, len(node.children)))
        return found


def _of(path: str) -> str:
    """A path without the places in lists."""
    return _INDEX.sub("[]", path)


def _with_ending_of(name: str, own: str) -> str:
    """The own name of a file with all suffixes of another, and none of its own."""
    return own.removesuffix("".join(Path(own).suffixes)) + "".join(Path(name).suffixes)


class _TimeIsOver(Exception):
    """No more is tried."""
