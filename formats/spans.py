"""The vocabulary of declarations: construct classes that report the span of all they read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from construct import Construct, Container, Renamed

_WORD = 0xFFFFFFFF

Expression = int | Callable[[Any], Any]
"""A number, or what `construct.this` builds: a function of the values read so far."""


class StopReason(StrEnum):
    """Why parsing could not go on."""

    SHORT_READ = "short-read"
    COUNT_EXCEEDS_FILE = "count-exceeds-file"
    PAYLOAD_EXCEEDS_FILE = "payload-exceeds-file"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Stop:
    """The exact place where parsing ended early: `wanted` units were needed, `available` were left.

    Bytes for a short read or a payload, items for a count or a limit.
    """

    reason: StopReason
    path: str
    offset: int
    wanted: int
    available: int


class Halted(Exception):
    """Carries a Stop up to the nearest wall (a Nested frame, or the file)."""

    def __init__(self, stop: Stop) -> None:
        """Wrap `stop`."""
        super().__init__(stop)
        self.stop = stop


class Cursor(Protocol):
    """A place in the source, and the wall that reads must not pass. Offsets are absolute bytes."""

    offset: int
    wall: int

    def peek(self, size: int) -> bytes:
        """At most `size` bytes from here; fewer only at the wall."""
        ...


class Trace(Protocol):
    """Receives every span in file order; builds whatever the caller wants of it."""

    def enter(self, name: str, offset: int, doc: str, con: Span) -> None:
        """Open a record or a series at `offset`."""
        ...

    def leave(self, offset: int) -> None:
        """Close the innermost open record or series at `offset`."""
        ...

    def field(
        self, name: str, start: int, stop: int, doc: str, con: Scalar | Text, value: Any
    ) -> None:
        """A scalar or a text of [start, stop)."""
        ...

    def table(
        self, name: str, start: int, stop: int, doc: str, con: Table | Ragged, rows: RowShape
    ) -> None:
        """An array of rows of [start, stop)."""
        ...

    def payload(self, name: str, start: int, stop: int, doc: str, con: Payload) -> None:
        """Bytes of [start, stop) that were skipped."""
        ...

    def halted(
        self, name: str, reason: StopReason, offset: int, wanted: int, available: int
    ) -> Halted:
        """The signal to raise for a stop at `offset`, with the path of `name`."""
        ...

    def walled(self, stop: Stop, depth: int, resume: int) -> None:
        """A stop inside a frame: what is open beyond `depth` ends, up to `resume` is unread."""
        ...

    def depth(self) -> int:
        """How many records and series are open."""
        ...

    def recall(self, name: str, cursor: Cursor, doc: str, con: Record) -> Container | None:
        """The values of `con` if it was read here before; then the cursor stands behind it.

        Raises:
            Halted: if it stopped.
        """
        ...

    def remember(self, start: int, cursor: Cursor, con: Record, values: Container) -> None:
        """Keep what `con` read from `start` up to the cursor."""
        ...

    def remember_stop(
        self, start: int, cursor: Cursor, con: Record, stop: Stop, depth: int
    ) -> None:
        """Keep that `con`, opened at `depth`, stopped at the cursor, and what it had read."""
        ...


@dataclass(frozen=True, slots=True)
class RowShape:
    """How the rows of a table lie: `count` rows of `fields`, each a name and a numpy code.

    `starts` and `heads` are given for rows of unequal length only: their offsets, and the packed
    fixed fields of all of them; `items` then holds the variable parts one after another. `ragged`
    tells that rows
    could have been of unequal length.
    """

    count: int
    fields: tuple[tuple[str, str], ...]
    starts: tuple[int, ...] | None = None
    heads: bytes = b""
    items: bytes = b""
    ragged: bool = False


def evaluate(expression: Expression, scope: Container) -> int:
    """The value of an expression among the values read so far, as a plain int."""
    return int(expression(scope)) if callable(expression) else expression


class Span(Construct):
    """Base of all declarations. `read` does the work; construct's `_parse` calls it."""

    smallest: int = 0
    """The fewest bytes an instance can occupy."""

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> Any:
        """Read one instance at the cursor and report it; returns its value."""
        raise NotImplementedError

    def _parse(self, stream: Cursor, context: Container, path: str) -> Any:
        return self.read(stream, context, context._params.trace, self.name or "", self.docs or "")


@dataclass(frozen=True, slots=True)
class Member:
    """A declaration with the name and the documentation it has in its record."""

    name: str
    doc: str
    con: Span


def member(declared: Any) -> Member:
    """Unwrap `"name" / declaration * "documentation"`."""
    con = declared
    while isinstance(con, Renamed):
        con = con.subcon
    return Member(declared.name or "", declared.docs or "", con)


class Scalar(Span):
    """A little-endian number of a fixed size.

    Args:
        code: the `struct` letter, with `>` in front if big-endian.
        meanings: names for values, such as ggml types or magics.
    """

    _NUMPY: ClassVar = {
        "I": "u4",
        "i": "i4",
        "Q": "u8",
        "q": "i8",
        "H": "u2",
        "h": "i2",
        "B": "u1",
        "b": "i1",
        "f": "f4",
        "d": "f8",
    }

    def __init__(self, code: str, meanings: Mapping[int, str] | None = None) -> None:
        super().__init__()
        order = ">" if code[0] == ">" else "<"
        letter = code[-1]
        self.layout = struct.Struct(order + letter)
        self.numpy = order + self._NUMPY[letter]
        self.smallest = self.size = self.layout.size
        self.meanings = meanings or {}
        kind = {"u": "u", "i": "i", "f": "f"}[self._NUMPY[letter][0]]
        self.type_name = f"{kind}{8 * self.size}" + ("be" if order == ">" else "")

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> Any:
        """Read the number."""
        start, size = cursor.offset, self.size
        data = cursor.peek(size)
        if len(data) < size:
            raise trace.halted(name, StopReason.SHORT_READ, start, size, len(data))
        value = self.layout.unpack(data)[0]
        cursor.offset = stop = start + size
        trace.field(name, start, stop, doc, self, value)
        return value


class Text(Span):
    """Characters without a terminator, `size` bytes of them."""

    def __init__(self, size: Expression, at_most: int) -> None:
        super().__init__()
        self.size = size
        self.at_most = at_most

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> str:
        """Read the characters; bytes that are not ASCII are escaped."""
        start, size = cursor.offset, evaluate(self.size, scope)
        if size > cursor.wall - start:
            raise trace.halted(
                name, StopReason.PAYLOAD_EXCEEDS_FILE, start, size, cursor.wall - start
            )
        if size > self.at_most:
            raise trace.halted(name, StopReason.LIMIT, start, size, self.at_most)
        value = cursor.peek(size).decode("ascii", "backslashreplace")
        cursor.offset = start + size
        trace.field(name, start, start + size, doc, self, value)
        return value


class When:
    """Members that are there only under a condition: spliced into the record around them."""

    def __init__(self, condition: Any, *members: Any, says: str = "") -> None:
        self.condition = condition
        self.members = tuple(m if isinstance(m, When) else member(m) for m in members)
        self.says = says


class Record(Span):
    """A struct that reports the span of every member.

    Args:
        members: `"name" / declaration * "documentation"`, or `When(condition, …)`.
        role: what part of a state this is (`attention`, `swa`, `recurrent`, …).
        alone: whether its bytes say all about it; then it is read once for all layouts that have
            it; by default if it has a role.
        facts: what the declaration itself fixes, such as `cell_ext`; carried into the tree.
    """

    def __init__(
        self,
        *members: Any,
        role: str = "",
        alone: bool | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.members = tuple(m if isinstance(m, When) else member(m) for m in members)
        self.role = role
        self.alone = bool(role) if alone is None else alone
        self.facts = dict(facts or {})
        self.smallest = sum(m.con.smallest for m in self.members if isinstance(m, Member))

    def read(
        self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str
    ) -> Container:
        """Read the members in order; returns their values."""
        if self.alone and (known := trace.recall(name, cursor, doc, self)) is not None:
            return known
        own, start = Container(_=scope, _cursor=cursor), cursor.offset
        depth = trace.depth()
        trace.enter(name, start, doc, self)
        try:
            self._splice(self.members, cursor, own, trace)
        except Halted as halted:
            if self.alone and self.role:  # else it may be all of a frame, which goes on behind it
                trace.remember_stop(start, cursor, self, halted.stop, depth)
            raise
        trace.leave(cursor.offset)
        if self.alone:
            trace.remember(start, cursor, self, own)
        return own

    def _splice(
        self, members: tuple[Any, ...], cursor: Cursor, own: Container, trace: Trace
    ) -> None:
        for m in members:
            if isinstance(m, When):
                if m.condition(own):
                    self._splice(m.members, cursor, own, trace)
            else:
                own[m.name] = m.con.read(cursor, own, trace, m.name, m.doc)


class Series(Span):
    """`count` items one after another, if the bytes that are left can hold so many.

    Items find their own index as `this._._index`.

    Args:
        count: how many items.
        item: what repeats.
        at_most: the most items that are believed.
        salvage: whether the items that are there are read although the count says more; for lists
            in
            which every item makes sense alone.
    """

    def __init__(
        self, count: Expression, item: Any, at_most: int, *, salvage: bool = False
    ) -> None:
        super().__init__()
        self.count = count
        self.item = member(item).con
        self.at_most = at_most
        self.salvage = salvage

    def read(
        self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str
    ) -> list[Any]:
        """Read the items; returns their values."""
        count, left = evaluate(self.count, scope), cursor.wall - cursor.offset
        fitting = left // max(1, self.item.smallest)
        salvage = self.salvage and count <= _WORD
        if count < 0 or (count > fitting and not salvage):
            raise trace.halted(name, StopReason.COUNT_EXCEEDS_FILE, cursor.offset, count, fitting)
        possible = min(count, self.at_most)
        if possible < count and not salvage:
            raise trace.halted(name, StopReason.LIMIT, cursor.offset, count, self.at_most)
        trace.enter(name, cursor.offset, doc, self)
        values = []
        for index in range(possible):
            scope._index = index
            values.append(self.item.read(cursor, scope, trace, f"[{index}]", ""))
        if possible < count:
            raise trace.halted("", StopReason.LIMIT, cursor.offset, count, self.at_most)
        trace.leave(cursor.offset)
        return values


class Run(Span):
    """Items without a stored count.

    Args:
        item: what repeats.
        ahead: `struct` format of the words that open an item.
        plausible: whether those words can open one.
        stride: bytes an item occupies, from the cursor at its start, the scope and those words.
        settle: how many of the items in sight belong here, from the words of each of them and the
            scope;
            None if they make no sense together: then they are read until the bytes end or
            `at_most`, and must not end.
        at_most: the most items there can be.
    """

    def __init__(
        self,
        item: Any,
        *,
        ahead: str,
        plausible: Callable[..., bool],
        stride: Callable[..., int],
        settle: Callable[[list[tuple[int, ...]], Container], int | None],
        at_most: Expression,
    ) -> None:
        super().__init__()
        self.item = member(item).con
        self.ahead = struct.Struct(ahead)
        self.plausible, self.stride, self.settle = plausible, stride, settle
        self.at_most = at_most

    def read(
        self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str
    ) -> list[Any]:
        """Read the items; returns their values."""
        at_most = evaluate(self.at_most, scope)
        heads = self._in_sight(cursor, scope, at_most)
        count = self.settle(heads, scope)
        trace.enter(name, cursor.offset, doc, self)
        values: list[Any] = []
        while len(values) < (at_most if count is None else count):
            values.append(self.item.read(cursor, scope, trace, f"[{len(values)}]", ""))
        trace.leave(cursor.offset)
        return values

    def _in_sight(self, cursor: Cursor, scope: Container, at_most: int) -> list[tuple[int, ...]]:
        heads: list[tuple[int, ...]] = []
        start = cursor.offset
        while len(heads) < at_most and cursor.offset < cursor.wall:
            data = cursor.peek(self.ahead.size)
            if len(data) < self.ahead.size:
                break
            head = self.ahead.unpack(data)
            if not self.plausible(*head):
                break
            heads.append(head)
            cursor.offset += self.stride(cursor, scope, *head)
        cursor.offset = start
        return heads


class Table(Span):
    """`count` rows of equal size: one node, and nothing is read until somebody asks.

    Args:
        count: how many rows.
        row: a Record of scalars, or one scalar.
        at_most: the most rows that are believed.
    """

    def __init__(self, count: Expression, row: Any, at_most: int) -> None:
        super().__init__()
        self.count = count
        self.row = member(row).con
        self.at_most = at_most
        self.fields = row_fields(self.row)
        self.row_bytes: int = self.row.smallest
        self.smallest = count * self.row_bytes if isinstance(count, int) else 0

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> int:
        """Step over the rows; returns their count."""
        start, count = cursor.offset, evaluate(self.count, scope)
        left = cursor.wall - start
        if count < 0 or count * self.row_bytes > left:
            raise trace.halted(
                name, StopReason.COUNT_EXCEEDS_FILE, start, count, left // self.row_bytes
            )
        if count > self.at_most:
            raise trace.halted(name, StopReason.LIMIT, start, count, self.at_most)
        cursor.offset = stop = start + count * self.row_bytes
        trace.table(name, start, stop, doc, self, RowShape(count, self.fields))
        return count


class Values(Table):
    """A table of one scalar whose values later members need: these are read at once."""

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> Any:
        """Read the rows; returns their values as a tuple."""
        start = cursor.offset
        super().read(cursor, scope, trace, name, doc)
        stop, cursor.offset = cursor.offset, start
        data = cursor.peek(stop - start)
        cursor.offset = stop
        whole = len(data) - len(data) % self.row_bytes
        return tuple(value for (value,) in self.row.layout.iter_unpack(data[:whole]))


class Ragged(Span):
    """`count` rows that end in a list of their own: `head`, then `counter` items of `item`.

    The rows are read, because only they say where the table ends: as an array while every row has
    the same number
    of items, row by row from the first that has not.
    """

    _CHUNKS = (1 << 12, 1 << 20)
    """Bytes read at once: few first, since a reading under the wrong declaration ends soon."""
    _AHEAD = 1 << 16
    """Bytes read at once where rows differ: what lies behind the last one is read in vain."""

    def __init__(
        self,
        count: Expression,
        head: Any,
        counter: str,
        item: Scalar,
        items: str,
        at_most: int,
        items_at_most: int,
    ) -> None:
        super().__init__()
        self.count = count
        self.head = member(head).con
        self.counter, self.item, self.items = counter, item, items
        self.at_most, self.items_at_most = at_most, items_at_most
        self.fields = row_fields(self.head)
        self._unpack = struct.Struct(
            "<" + "".join(m.con.layout.format.lstrip("<") for m in self.head.members)
        )
        self._counter_at = [m.name for m in self.head.members].index(counter)
        self.row_bytes: int = self.head.smallest

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> int:
        """Read the rows; returns their count."""
        start, count = cursor.offset, evaluate(self.count, scope)
        left = cursor.wall - start
        if count < 0 or count * self.row_bytes > left:
            raise trace.halted(
                name, StopReason.COUNT_EXCEEDS_FILE, start, count, left // self.row_bytes
            )
        if count > self.at_most:
            raise trace.halted(name, StopReason.LIMIT, start, count, self.at_most)
        n_items = self._equal_items(cursor, count, trace, name)
        if n_items is not None:
            fields = self.fields + tuple(
                (f"{self.items}[{i}]", self.item.numpy) for i in range(n_items)
            )
            shape = RowShape(count, fields, ragged=True)
            cursor.offset = start + count * (self.row_bytes + n_items * self.item.size)
            trace.table(name, start, cursor.offset, doc, self, shape)
            return count
        return self._row_by_row(cursor, count, trace, name, doc)

    def _n_items(self, cursor: Cursor, trace: Trace, name: str, index: int) -> int:
        head = cursor.peek(self.row_bytes)
        where = f"{name}[{index}]"
        if len(head) < self.row_bytes:
            raise trace.halted(
                where, StopReason.SHORT_READ, cursor.offset, self.row_bytes, len(head)
            )
        n_items = int(self._unpack.unpack(head)[self._counter_at])
        left = (cursor.wall - cursor.offset - self.row_bytes) // self.item.size
        at = f"{where}.{self.items}"
        if n_items > left:
            raise trace.halted(
                at, StopReason.COUNT_EXCEEDS_FILE, cursor.offset + self.row_bytes, n_items, left
            )
        if n_items > self.items_at_most:
            raise trace.halted(
                at, StopReason.LIMIT, cursor.offset + self.row_bytes, n_items, self.items_at_most
            )
        return n_items

    def _equal_items(self, cursor: Cursor, count: int, trace: Trace, name: str) -> int | None:
        """The number of items every row has; None if they differ, or the bytes end before."""
        if not count:
            return 0
        start = cursor.offset
        n_items = self._n_items(cursor, trace, name, 0)
        stride = self.row_bytes + n_items * self.item.size
        if count * stride > cursor.wall - start:
            return None
        lead = sum(m.con.size for m in self.head.members[: self._counter_at])
        size = self.head.members[self._counter_at].con.size
        expected = n_items.to_bytes(size, "little")
        first, chunk = 0, self._CHUNKS[0]
        try:
            while first < count:
                rows = min(max(1, chunk // stride), count - first)
                data = cursor.peek(rows * stride)
                columns = (data[lead + i :: stride] for i in range(size))
                if any(column != expected[i : i + 1] * rows for i, column in enumerate(columns)):
                    return None
                cursor.offset += len(data)
                first, chunk = first + rows, min(2 * chunk, self._CHUNKS[1])
        finally:
            cursor.offset = start
        return n_items

    def _whole_rows(self, data: bytes, at_most: int) -> Iterator[tuple[int, int]]:
        """Where heads and rows end that are whole in some bytes and have a believable counter."""
        start, last, unpack = 0, len(data) - self.row_bytes, self._unpack.unpack_from
        for _ in range(at_most):
            if start > last:
                return
            n_items = unpack(data, start)[self._counter_at]
            head = start + self.row_bytes
            start = head + n_items * self.item.size
            if n_items > self.items_at_most or start > len(data):
                return
            yield head, start

    def _row_by_row(self, cursor: Cursor, count: int, trace: Trace, name: str, doc: str) -> int:
        start = cursor.offset
        starts: list[int] = []
        heads: list[bytes] = []
        items: list[bytes] = []
        chunk = self._CHUNKS[0]
        try:
            while len(starts) < count:
                data, at, rows = cursor.peek(chunk), 0, len(starts)
                for head, stop in self._whole_rows(data, count - rows):
                    starts.append(cursor.offset + at)
                    heads.append(data[at:head])
                    items.append(data[head:stop])
                    at = stop
                cursor.offset += at
                chunk = min(2 * chunk, self._AHEAD)
                if len(starts) == rows:
                    n_items = self._n_items(cursor, trace, name, rows)
                    chunk = max(chunk, self.row_bytes + n_items * self.item.size)
        finally:
            shape = RowShape(
                len(starts),
                self.fields,
                tuple(starts),
                b"".join(heads),
                b"".join(items),
                ragged=True,
            )
            trace.table(name, start, cursor.offset, doc, self, shape)
        return count


class Payload(Span):
    """`size` bytes that are stepped over, never read.

    Args:
        size: bytes.
        holds: `blob` where the bytes are a state of their own, to be looked into by whoever knows
            its kind.
    """

    def __init__(self, size: Expression, holds: str = "") -> None:
        super().__init__()
        self.size = size
        self.holds = holds

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> int:
        """Step over the bytes; returns their number."""
        start, size = cursor.offset, evaluate(self.size, scope)
        if size < 0 or size > cursor.wall - start:
            raise trace.halted(
                name, StopReason.PAYLOAD_EXCEEDS_FILE, start, size, cursor.wall - start
            )
        cursor.offset = start + size
        trace.payload(name, start, start + size, doc, self)
        return size


class Rest(Payload):
    """Everything up to the wall, stepped over."""

    def __init__(self, holds: str = "") -> None:
        super().__init__(lambda scope: scope._cursor.wall - scope._cursor.offset, holds)


class Nested(Span):
    """A body inside an envelope of `size` bytes. Offsets stay absolute; the frame is a wall.

    A stop inside the frame ends the body, not what follows the frame.
    """

    def __init__(self, size: Expression, body: Any) -> None:
        super().__init__()
        self.size = size
        self.body = member(body).con

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> Any:
        """Read the body within the frame; returns its value, or None if it stopped early."""
        start, size = cursor.offset, evaluate(self.size, scope)
        if size < 0 or size > cursor.wall - start:
            raise trace.halted(
                name, StopReason.PAYLOAD_EXCEEDS_FILE, start, size, cursor.wall - start
            )
        outer, cursor.wall = cursor.wall, start + size
        value, depth = None, trace.depth()
        try:
            value = self.body.read(cursor, scope, trace, name, doc)
        except Halted as halted:
            trace.walled(halted.stop, depth, start + size)
        cursor.wall = outer
        cursor.offset = start + size
        return value


class Computed(Span):
    """What follows from the values read so far, for later members; it owns no bytes and no node."""

    def __init__(self, value: Callable[[Container], Any]) -> None:
        super().__init__()
        self.value = value

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> Any:
        """Work it out."""
        return self.value(scope)


class Choose(Span):
    """One of two declarations, by a condition on what was read so far."""

    def __init__(self, condition: Any, then: Any, otherwise: Any, says: str = "") -> None:
        super().__init__()
        self.condition = condition
        self.then, self.otherwise = member(then).con, member(otherwise).con
        self.says = says
        self.smallest = min(self.then.smallest, self.otherwise.smallest)

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> Any:
        """Read the declaration that applies."""
        con = self.then if self.condition(scope) else self.otherwise
        return con.read(cursor, scope, trace, name, doc)


class Switch(Span):
    """The declaration that a value read before asks for; a value without one ends the parse.

    Args:
        on: the value.
        cases: value -> declaration.
    """

    def __init__(self, on: Expression, cases: Mapping[int, Any]) -> None:
        super().__init__()
        self.on = on
        self.cases = {value: member(declared).con for value, declared in cases.items()}
        self.smallest = min(con.smallest for con in self.cases.values())

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> Any:
        """Read the declaration that applies; the stop says the value and the highest known one."""
        value = evaluate(self.on, scope)
        if value not in self.cases:
            raise trace.halted(name, StopReason.LIMIT, cursor.offset, value, max(self.cases))
        return self.cases[value].read(cursor, scope, trace, name, doc)


class Strings(Payload):
    """`count` strings, each a u64 length and its characters: one node; only lengths are looked at.

    A string that is cut off ends the parse behind its length; those before it stay in the tree.
    """

    _LENGTH = struct.Struct("<Q")
    _CHUNKS = (1 << 12, 1 << 18)
    """Bytes looked through at once: few first, since most arrays are short."""

    def __init__(self, count: Expression, at_most: int) -> None:
        super().__init__(0, holds="strings")
        self.count = count
        self.at_most = at_most

    def read(self, cursor: Cursor, scope: Container, trace: Trace, name: str, doc: str) -> int:
        """Step from length to length; returns the number of strings."""
        start, count = cursor.offset, evaluate(self.count, scope)
        left = (cursor.wall - start) // self._LENGTH.size
        if count > left:
            raise trace.halted(name, StopReason.COUNT_EXCEEDS_FILE, start, count, left)
        if count > self.at_most:
            raise trace.halted(name, StopReason.LIMIT, start, count, self.at_most)
        done, chunk = 0, self._CHUNKS[0]
        try:
            while done < count:
                done = self._step(cursor, done, count, chunk, trace, name)
                chunk = min(2 * chunk, self._CHUNKS[1])
        finally:
            trace.payload(name, start, cursor.offset, doc, self)
        return count

    def _step(
        self, cursor: Cursor, done: int, count: int, chunk: int, trace: Trace, name: str
    ) -> int:
        """Step over the strings whose lengths lie in the next bytes; returns how many are done."""
        data, unpack, first = cursor.peek(chunk), self._LENGTH.unpack_from, done
        at, length, last = 0, 0, len(data) - 8
        while at <= last and done < count:
            (length,) = unpack(data, at)
            at += 8 + length
            done += 1
        if done == first:
            where = f"{name}[{done}]"
            raise trace.halted(where, StopReason.SHORT_READ, cursor.offset, 8, len(data))
        if at > cursor.wall - cursor.offset:
            cursor.offset += at - length
            where, left = f"{name}[{done - 1}]", cursor.wall - cursor.offset
            raise trace.halted(where, StopReason.PAYLOAD_EXCEEDS_FILE, cursor.offset, length, left)
        cursor.offset += at
        return done


class Ahead:
    """A condition on the bytes that come next, for When and Choose; false when too few are left."""

    def __init__(self, code: str, test: Callable[..., bool], says: str) -> None:
        self.layout = struct.Struct(code)
        self.test = test
        self.says = says

    def __call__(self, scope: Container) -> bool:
        """Whether the next bytes pass the test."""
        data = scope._cursor.peek(self.layout.size)
        return len(data) == self.layout.size and self.test(*self.layout.unpack(data))


def row_fields(row: Span) -> tuple[tuple[str, str], ...]:
    """The names and numpy codes of a row of scalars; a bare scalar is one field called `value`."""
    if isinstance(row, Scalar):
        return (("value", row.numpy),)
    assert isinstance(row, Record)
    return tuple(
        (m.name, m.con.numpy)
        for m in row.members
        if isinstance(m, Member) and isinstance(m.con, Scalar)
    )
