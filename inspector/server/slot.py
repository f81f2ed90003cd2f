"""A slot of a server by positions alone: what it holds, and how its windowed cache fills.

Source: ggml-org/llama.cpp b7551 to b11549, src/llama-kv-cache.cpp `find_slot`, `apply_ubatch`,
`seq_rm`, `state_read_meta`; src/llama-kv-cache-iswa.cpp; src/llama-memory-hybrid.cpp;
src/llama-memory-recurrent.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NOWHERE = -1
"""The position that a memory without cells reports."""


class Memory(StrEnum):
    """What decides how far a memory can go back."""

    UNIFIED = "unified"
    """One attention cache, perhaps with an indexer: any tail can be removed."""
    WINDOWED = "windowed"
    """An attention cache and a windowed one."""
    RECURRENT = "recurrent"
    """A state of the last position."""
    HYBRID = "hybrid"
    """An attention cache and such a state."""
    HYBRID_WINDOWED = "hybrid, windowed"
    """An attention cache, a windowed one, and such a state."""
    COMPRESSED = "compressed"
    """DeepSeek-V4: compressors know the last position only."""

    @property
    def windowed(self) -> bool:
        """Whether there is a windowed cache."""
        return self in (Memory.WINDOWED, Memory.HYBRID_WINDOWED)

    @property
    def at_tip(self) -> bool:
        """Whether a part of it knows the last position only, so that no tail can be removed."""
        return self not in (Memory.UNIFIED, Memory.WINDOWED)


@dataclass(frozen=True, slots=True)
class Window:
    """Which positions a windowed layer sees.

    Attributes:
        n_swa: tokens.
        chunked: whether it begins at the last multiple of `n_swa`, rather than slides.
    """

    n_swa: int
    chunked: bool = False

    def begin(self, pos: int) -> int:
        """The first position that is visible from `pos`."""
        return pos // self.n_swa * self.n_swa if self.chunked else pos - self.n_swa + 1


class Cells:
    """The cells of a windowed cache, of one sequence that has it for itself.

    Attributes:
        pos: position of every cell, -1 for an empty one, shape `(capacity,)`.
        head: where the search for free cells begins.
    """

    def __init__(self, pos: NDArray[np.int64], head: int) -> None:
        """Args are the attributes."""
        self.pos = pos
        self.head = head

    @classmethod
    def restored(cls, capacity: int, positions: NDArray[np.int64]) -> Cells | None:
        """An empty cache into which a state was read; None if it does not fit."""
        import numpy as np

        cells = cls(np.full(capacity, NOWHERE, np.int64), 0)
        return cells if cells.place(positions, None) else None

    def copy(self) -> Cells:
        """A cache of its own."""
        return Cells(self.pos.copy(), self.head)

    @property
    def lowest(self) -> int:
        """`seq_pos_min`."""
        held = self.pos[self.pos != NOWHERE]
        return int(held.min()) if len(held) else NOWHERE

    @property
    def highest(self) -> int:
        """`seq_pos_max`."""
        return max(NOWHERE, int(self.pos.max(initial=NOWHERE)))

    def remove(self, start: int, stop: int | None = None) -> None:
        """`seq_rm` of the positions from `start` to `stop`, or to the end."""
        import numpy as np

        hit = self.pos >= max(0, start)
        if stop is not None:
            hit &= self.pos < stop
        freed = np.flatnonzero(hit)
        if len(freed):
            self.pos[freed] = NOWHERE
            self.head = min(self.head, int(freed[0]))

    def place(self, positions: NDArray[np.int64], window: Window | None) -> bool:
        """`find_slot` and `apply_ubatch`: cells for positions that follow, in place of masked ones.

        Returns:
            Whether there are enough cells; if not, nothing has changed.
        """
        import numpy as np

        usable = self.pos == NOWHERE
        n_used, n_new = len(usable) - int(np.count_nonzero(usable)), len(positions)
        if window is not None and n_used:
            usable |= self.pos < window.begin(self.highest + 1)
        head = 0 if self.head > n_used + 2 * n_new else self.head
        free = np.flatnonzero(usable)
        found = np.concatenate((free[free >= head], free[free < head]))[:n_new]
        if len(found) < n_new:
            return False
        overwritten = int(self.pos[found].max(initial=NOWHERE))
        self.pos[found] = positions
        if overwritten >= 0:
            self.remove(0, overwritten + 1)
        if n_new:
            self.head = int(found[-1]) + 1
        return True

    def saved(self, window: Window | None) -> NDArray[np.int64]:
        """The positions that a checkpoint holds, in cell order.

        Args:
            window: if what it masks is left out.
        """
        first = 0 if window is None else max(0, window.begin(self.highest))
        return self.pos[self.pos >= first]


@dataclass(frozen=True, slots=True)
class Media:
    """An image or a piece of audio among the tokens.

    Attributes:
        start: index of its first token.
        n_tokens: how many it takes.
        n_pos: positions that they take.
    """

    start: int
    n_tokens: int
    n_pos: int


class Blob(StrEnum):
    """What becomes of a server that loads the blob of a checkpoint."""

    LOADS = "loads"
    FAILS = "fails"
    """It warns, and evaluates everything again."""
    ABORTS = "aborts"
    MISLEADS = "misleads"
    """It loads, and answers from it are wrong: of other tokens, or with cells out of place."""


@dataclass(frozen=True)
class Checkpoint:
    """A context checkpoint.

    Attributes:
        n_tokens: tokens in front of it.
        pos_min: lowest position, as recorded.
        pos_max: highest position.
        window: positions of the windowed cells in its blob, in order; None if it has none.
        tip: position of the recurrent cell in its blob; None if it has none.
        blob: what loading it leads to.
        index: its place in the list that a file holds; None if a request or the restore made it.
        task: number of the request that made it; 0 for those that came with the file.
    """

    n_tokens: int
    pos_min: int
    pos_max: int
    window: NDArray[np.int64] | None = None
    tip: int | None = None
    blob: Blob = Blob.LOADS
    index: int | None = None
    task: int = 0


@dataclass(frozen=True)
class Slot:
    """What a slot holds.

    Attributes:
        memory: what it is made of.
        n_tokens: tokens in its list.
        lowest: lowest position in the attention cache, -1 without cells.
        highest: highest position in it.
        cells: its windowed cache; None if it has none.
        tip: the position of its recurrent state, -1 without one.
        window: what windowed layers see; None without such layers.
        mrope: whether positions may be left out.
        media: what is no text among the tokens.
        checkpoints: its checkpoints, as the server lists them.
        task: requests that it has served since the restore.
        n_possible: tokens in front of the first id that no prompt has; None if all can be shared.
        alien: why no prompt can share tokens with it, in words; empty if any can.
        unsure: why its checkpoints are not known, in words; empty if they are.
        parked: what the host prompt cache holds of it from before the last request.
        assumed: what was guessed to get there, in words.
        scattered: positions that a file put into the attention cache, ascending, if one below
            the highest is missing; None if none is.
    """

    memory: Memory
    n_tokens: int
    lowest: int = NOWHERE
    highest: int = NOWHERE
    cells: Cells | None = None
    tip: int = NOWHERE
    window: Window | None = None
    mrope: bool = False
    media: tuple[Media, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    task: int = 0
    n_possible: int | None = None
    alien: str = ""
    unsure: str = ""
    parked: Slot | None = None
    assumed: tuple[str, ...] = ()
    scattered: NDArray[np.int64] | None = None

    @property
    def sharable(self) -> int:
        """Tokens that a prompt can share at most."""
        return self.n_tokens if self.n_possible is None else min(self.n_tokens, self.n_possible)

    @property
    def pos_min(self) -> int:
        """The lowest position as the memory reports it; where it knows one only, that one."""
        attended = self._attended(self.lowest, "lowest")
        if self.memory in (Memory.HYBRID, Memory.HYBRID_WINDOWED):
            return max(attended, self.tip)
        return self.tip if self.memory.at_tip else attended

    @property
    def pos_max(self) -> int:
        """The highest position as the memory reports it."""
        attended = self._attended(self.highest, "highest")
        if self.memory in (Memory.HYBRID, Memory.HYBRID_WINDOWED):
            return min(attended, self.tip)
        return self.tip if self.memory.at_tip else attended

    def _attended(self, of_base: int, end: str) -> int:
        return of_base if self.cells is None else int(getattr(self.cells, end))

    def shared(self, n_tokens: int) -> int:
        """How many of the first tokens count as shared: media are taken whole or not at all."""
        n_tokens = min(n_tokens, self.sharable)
        cut = (m.start for m in self.media if m.start < n_tokens < m.start + m.n_tokens)
        return 0 if self.alien else next(cut, n_tokens)

    def position(self, n_tokens: int) -> int:
        """The position of the token behind so many."""
        return n_tokens - sum(
            m.n_tokens - m.n_pos for m in self.media if m.start + m.n_tokens <= n_tokens
        )

    def tokens_up_to(self, pos: int) -> int:
        """The tokens whose positions are below `pos`; all of them if that is negative.

        The server takes `pos` for a number without a sign.
        """
        if pos < 0:
            return self.n_tokens
        n_tokens = pos
        for m in self.media:
            if self.position(m.start) < pos:
                n_tokens += m.n_tokens - m.n_pos
        return min(n_tokens, self.n_tokens)

    def emptied(self) -> Slot:
        """Without tokens and memory; checkpoints stay."""
        return self.cut(0, 0)

    def cut(self, n_tokens: int, pos: int) -> Slot:
        """With the first tokens only, and no memory from `pos` on."""
        cells = self.cells
        if cells is not None:
            cells = cells.copy()
            cells.remove(pos)
        kept = self.lowest < pos and self.lowest != NOWHERE
        highest, scattered = min(self.highest, pos - 1), self.scattered if kept else None
        if scattered is not None and scattered[-1] >= pos:
            scattered = scattered[: scattered.searchsorted(pos)]
            highest = int(scattered[-1])
        return replace(
            self,
            n_tokens=n_tokens,
            lowest=self.lowest if kept else NOWHERE,
            highest=highest if kept else NOWHERE,
            scattered=scattered,
            cells=cells,
            tip=self.tip if self.tip < pos else NOWHERE,
            media=tuple(m for m in self.media if m.start + m.n_tokens <= n_tokens),
        )

    def loaded(self, checkpoint: Checkpoint) -> Slot:
        """With a checkpoint in place of the parts that cannot go back."""
        cells, tip = self.cells, self.tip
        if cells is not None and checkpoint.window is not None:
            cells = cells.copy()
            cells.remove(0)
            cells.place(checkpoint.window, None)
        if self.memory.at_tip and checkpoint.tip is not None:
            tip = checkpoint.tip
        return replace(self, cells=cells, tip=tip)

    def grown(self, pos: int, n_tokens: int, n_ubatch: int) -> Slot | None:
        """With tokens evaluated from `pos` on; None if the windowed cache has no place for them."""
        import numpy as np

        cells = self.cells
        if cells is not None:
            cells = cells.copy()
            for start, stop in batches(pos, pos + n_tokens, n_ubatch):
                if not cells.place(np.arange(start, stop), self.window):
                    return None
        last = pos + n_tokens - 1
        attention = self.memory not in (Memory.RECURRENT, Memory.COMPRESSED)
        first = pos if self.lowest == NOWHERE else min(self.lowest, pos)
        return replace(
            self,
            n_tokens=self.n_tokens + n_tokens,
            lowest=first if attention else NOWHERE,
            highest=last if attention else NOWHERE,
            cells=cells,
            tip=last if self.memory.at_tip else NOWHERE,
        )


def batches(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `size` that cover one."""
    for at in range(start, stop, max(1, size)):
        yield at, min(stop, at + max(1, size))
