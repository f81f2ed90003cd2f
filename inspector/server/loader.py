"""A server's loader, followed word by word over the payload of a slot file.

It reads what it would read: with the sections, types and sizes of its own caches, whatever the file
holds. So a file of another layout fails where it would really fail, and with the same message.

Source: ggml-org/llama.cpp b10587, src/llama-kv-cache.cpp `llama_kv_cache::state_read`,
src/llama-memory-recurrent.cpp `llama_memory_recurrent::state_read`; restores on b7551 to b11549.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from inspector.findings import Finding
from inspector.server.servers import Build
from inspector.server.target import cache_type
from inspector.source import Source
from inspector.span import Span

if TYPE_CHECKING:
    from inspector.model.section import SectionExpectation

HUGE = 1 << 26
"""Cells for which a build that allocates before it checks needs more than a gigabyte."""
_CHUNK = 1 << 20
_ANONYMOUS_CELL = 8
_UNKNOWN_TYPE = -2
_F32 = 0
_NOT_ENOUGH = "not enough cells in kv cache"


class Outcome(StrEnum):
    """What becomes of a restore."""

    ACCEPTS = "accepts"
    REFUSES = "refuses"
    ABORTS = "aborts"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Own:
    """What the loader expects: the caches of its own context.

    Attributes:
        sections: in the order in which they are read.
        n_stream: cell arrays of an attention cache.
        cell_bytes: of a cell record of an attention cache.
        v_trans: whether values are stored transposed.
    """

    sections: tuple[SectionExpectation, ...]
    n_stream: int
    cell_bytes: int
    v_trans: bool


class Ended(Exception):
    """The loader goes no further."""

    def __init__(self, outcome: Outcome, finding: Finding, message: str) -> None:
        """Say how it ends, the finding that decides, and what the server logs."""
        super().__init__(message)
        self.outcome, self.finding, self.message = outcome, finding, message


class Loader:
    """Reads as the loader reads.

    Attributes:
        offset: the next byte; beyond the end once the loader reads what is not there.
    """

    def __init__(self, source: Source, payload: Span, build: Build) -> None:
        self._source, self._build = source, build
        self._start, self._end = payload.start, payload.stop
        self.offset = payload.start
        self._header: tuple[int, ...] | None = None
        self._first = True

    def run(self, own: Own) -> None:
        """Read everything.

        Raises:
            Ended: where the loader refuses or dies.
        """
        for section in own.sections:
            if section.kind == "recurrent":
                self._state(section)
            else:
                self._cache(section, own)
        if self.offset > self._end:
            beyond = self.offset - self._end
            finding = self._finding(
                "truncated-aborts",
                f"the server reads on for {beyond:,} more than the file has",
                f"{self.offset - self._start:,} bytes of state",
                f"{self._end - self._start:,}",
            )
            raise Ended(Outcome.ABORTS, finding, "GGML_ASSERT(nread <= state_size) failed")

    # Reading

    def _words(self, code: str) -> tuple[int, ...] | None:
        """The next words; None beyond the end, where the loader goes on with what it had before."""
        layout = struct.Struct("<" + code)
        left = self._end - self.offset
        data = self._source.read_at(self.offset, min(layout.size, left)) if left > 0 else b""
        self.offset += layout.size
        if len(data) == layout.size:
            return layout.unpack(data)
        self._past_end()
        return None

    def _skip(self, size: int) -> None:
        self.offset += size
        if self.offset > self._end:
            self._past_end()

    def _past_end(self) -> None:
        if not self._build.has("truncation-aborts"):
            message = "the file is shorter than what the server reads"
            logged = "unexpectedly reached end of file"
            end = f"an end at 0x{self._end:x}"
            raise self._refusal("truncated", message, logged, "all bytes of the state", end)

    # Attention caches

    def _cache(self, section: SectionExpectation, own: Own) -> None:
        if not self._build.has("n-stream"):
            self._stream(section, own)
            return
        words = self._words("I")
        if words is None or words[0] != own.n_stream:
            actual = "nothing" if words is None else f"{words[0]:,}"
            raise self._refusal(
                "n-stream-mismatch",
                f"{section.member} says {actual} where the server has {own.n_stream} cell arrays",
                "n_stream mismatch",
                str(own.n_stream),
                actual,
            )
        for _ in range(own.n_stream):
            self._stream(section, own)

    def _stream(self, section: SectionExpectation, own: Own) -> None:
        self._header = None
        count = self._allocated(section)
        if count == 0 and self._build.has("n-stream"):
            return
        n_seq_id = int(self._build.has("seq-id"))
        self._cells(section.member, count, own.cell_bytes, n_seq_id)
        if section.capacity is not None and count > section.capacity:
            logged = f"failed to find {count} available cells in kv cache"
            raise self._too_many(section, count, logged)
        self._layers(section, own.v_trans)
        self._blocks(section, count, transposed=own.v_trans)

    def _allocated(self, section: SectionExpectation) -> int:
        """The count of a section's cells, for which there is memory now."""
        count = self._cell_count(section)
        if not self._build.has("cell-count-first") and count > HUGE:
            raise self._refusal(
                "cell-count-allocates",
                f"the server allocates memory for {count:,} cells before it looks at them",
                "std::bad_alloc",
                "cells that the file holds",
                f"{count:,}",
            )
        return count

    def _cell_count(self, section: SectionExpectation) -> int:
        words = self._words("I")
        if words is None:
            end = f"an end at 0x{self._end:x}"
            message = f"{section.member} is not there"
            raise self._refusal("truncated", message, _NOT_ENOUGH, section.member, end)
        (count,) = words
        room = section.capacity
        if self._build.has("cell-count-first") and room is not None and count > room:
            raise self._too_many(section, count, _NOT_ENOUGH)
        return count

    def _too_many(self, section: SectionExpectation, count: int, logged: str) -> Ended:
        return self._refusal(
            "cells-do-not-fit",
            f"{count:,} cells of {section.member}, the server's cache has {section.capacity:,}",
            logged,
            f"at most {section.capacity:,} cells",
            f"{count:,}",
        )

    def _cells(self, member: str, count: int, cell_bytes: int, n_seq_id: int) -> None:
        """Every cell must have the number of sequence ids that this build writes."""
        expected, at = struct.pack("<I", n_seq_id), self.offset
        stop = min(at + count * cell_bytes, self._end)
        while at + cell_bytes <= stop:
            rows = min(_CHUNK // cell_bytes, (stop - at) // cell_bytes)
            data = self._source.read_at(at, rows * cell_bytes)
            columns = (data[4 + index :: cell_bytes][:rows] for index in range(4))
            if any(c != expected[i : i + 1] * len(c) for i, c in enumerate(columns)):
                raise self._refusal(
                    "seq-id-mismatch",
                    f"a cell of {member} has another number of sequence ids than {n_seq_id}",
                    "invalid seq_id-agnostic kv cell",
                    f"n_seq_id {n_seq_id} in every cell of {cell_bytes} bytes",
                    "another number",
                )
            at += len(data) or cell_bytes
        self._skip(count * cell_bytes)
        if self.offset > self._end:
            raise self._words_past_end(f"cells of {member}")

    def _layers(self, section: SectionExpectation, v_trans: bool) -> None:
        words = self._words("II")
        if words is None:
            raise self._words_past_end(f"the words behind the cells of {section.member}")
        stored, n_layer = words
        if n_layer != section.n_layer:
            raise self._other_layers(section, n_layer)
        if bool(stored) != v_trans:
            how = {0: "in rows", 1: "channel by channel"}
            raise self._refusal(
                "v-trans-mismatch",
                f"values of {section.member} are stored {how.get(stored, 'in no known way')}, "
                f"the server wants them {how[int(v_trans)]}",
                "incompatible V transposition",
                f"v_trans {int(v_trans)}",
                f"v_trans {stored}",
            )
        if self._build.has("rotation-words"):
            self._rotation(section)

    def _other_layers(self, section: SectionExpectation, n_layer: int) -> Ended:
        return self._refusal(
            "layer-count-mismatch",
            f"{section.member} has {n_layer:,} layers, the server's has {section.n_layer}",
            f"mismatched layer count ({n_layer} instead of {section.n_layer})",
            str(section.n_layer),
            f"{n_layer:,}",
        )

    def _rotation(self, section: SectionExpectation) -> None:
        words = self._words("II")
        if words is None:
            raise self._words_past_end(f"the rotation words of {section.member}")
        expected = section.n_rot_k, section.n_rot_v
        for name, own, stored in zip(("key", "value"), expected, words, strict=True):
            if stored != own:
                raise self._refusal(
                    "rotation-mismatch",
                    f"{name}s of {section.member} are rotated by {stored:,}, the server's by {own}",
                    f"incompatible {name} rotation ({stored} instead of {own})",
                    str(own),
                    f"{stored:,}",
                )

    def _blocks(self, section: SectionExpectation, count: int, *, transposed: bool) -> None:
        keys, values = (self._type(name) for name in (section.type_k, section.type_v))
        self._first = True
        for layer, row in zip(section.layers, section.k, strict=False):
            self._block("key", layer, keys, row)
            self._skip(count * row)
        self._first = True
        if transposed:
            self._header = None
        for layer, row in zip(section.layers, section.v, strict=False):
            if transposed:
                self._columns(section, layer, values, row)
            else:
                self._block("value", layer, values, row)
            self._skip(count * row)

    def _type(self, name: str | None) -> int:
        kind = cache_type(name, self._build) if name else None
        return kind.id if kind is not None else _UNKNOWN_TYPE

    def _block(self, name: str, layer: int, type_id: int, row: int) -> None:
        words = self._words("iQ") or self._leftover(f"the header of the {name}s of layer {layer}")
        self._header, self._first = words, False
        if words[0] != type_id:
            raise self._other_type(name, layer, type_id, words[0])
        if words[1] != row:
            raise self._refusal(
                "row-size-mismatch",
                f"a {name} row of layer {layer} has {words[1]:,} bytes, the server's {row:,}",
                f"mismatched {name} row size ({words[1]} != {row}, layer {layer})",
                f"{row:,} bytes",
                f"{words[1]:,} bytes",
            )

    def _columns(self, section: SectionExpectation, layer: int, type_id: int, row: int) -> None:
        words = self._words("iII") or self._leftover(f"the header of the values of layer {layer}")
        self._header, self._first = words, False
        if words[0] != type_id:
            raise self._other_type("value", layer, type_id, words[0])
        kind = cache_type(section.type_v or "", self._build)
        element = kind.block_bytes if kind is not None else 1
        own = (element, row // element)
        if words[1:] != own:
            raise self._refusal(
                "row-size-mismatch",
                f"layer {layer} has {words[2]:,} channels of {words[1]:,} bytes",
                f"mismatched GQA size ({words[2]} != {own[1]}, layer {layer})",
                f"{own[1]:,} channels of {element} bytes",
                f"{words[2]:,} channels of {words[1]:,} bytes",
            )

    def _other_type(self, name: str, layer: int, own: int, stored: int) -> Ended:
        return self._refusal(
            "type-mismatch",
            f"{name}s of layer {layer} are of type {stored}, the server's cache is of type {own}",
            f"mismatched {name} type ({own} != {stored}, layer {layer})",
            f"type {own}",
            f"type {stored}",
        )

    def _words_past_end(self, what: str) -> Ended:
        """What is not there in front of the first block holds leftovers, which fit no cache."""
        end = f"an end at 0x{self._end:x}"
        return self._refusal("truncated", f"{what} are not there", _NOT_ENOUGH, what, end)

    def _leftover(self, what: str) -> tuple[int, ...]:
        """A header that is not there: what the loader has in its place, the one before it.

        Before b10388 the first header of the values is all zeros then, whatever the keys had.

        Source: cuts at every word and inside of everything, restored on b10229, b10809 and b11549.
        """
        if self._header is None:
            raise self._words_past_end(what)
        if self._first and not self._build.has("packed-tokens"):  # of the builds tried between them
            return (_F32, *self._header[1:])
        return self._header

    # Recurrent sections

    def _state(self, section: SectionExpectation) -> None:
        if self.offset == self._start == self._end and not self._build.has("cell-count-first"):
            message = f"{section.member} is not there: some count is read"
            raise self._abort("truncated-aborts", message, section.member, "nothing")
        count = self._allocated(section)
        self._cells(section.member, count, _ANONYMOUS_CELL, 0)
        if count > 1:
            message = f"{count:,} recurrent cells in the state of one sequence"
            raise self._abort("recurrent-cells-abort", message, "1 cell", f"{count:,}")
        words = self._words("II")
        if words is None:
            raise self._words_past_end(f"the words behind the cells of {section.member}")
        if words[1] != section.n_layer:
            raise self._other_layers(section, words[1])
        if words[0] != 0:
            message, logged = f"s_trans is {words[0]:,}", "incompatible s transposition"
            raise self._refusal("v-trans-mismatch", message, logged, "0", f"{words[0]:,}")
        for name, rows in (("r", section.k), ("s", section.v)):
            self._header = None
            for layer, row in zip(section.layers, rows, strict=False):
                self._block(name, layer, _F32, row)
                self._skip(count * row)

    # Ends

    def _abort(self, code: str, message: str, expected: str, actual: str) -> Ended:
        finding = self._finding(code, message, expected, actual)
        return Ended(Outcome.ABORTS, finding, "GGML_ASSERT on the cells that were found")

    def _refusal(self, code: str, message: str, logged: str, expected: str, actual: str) -> Ended:
        return Ended(Outcome.REFUSES, self._finding(code, message, expected, actual), logged)

    def _finding(self, code: str, message: str, expected: str, actual: str) -> Finding:
        at = min(self.offset, self._end)
        span = Span(max(self._start, at - 4), at)
        return Finding(f"target.{code}", "", span, message, expected, actual)
