"""What a server's loader does with a slot file: its checks, in its order, on the file's own bytes.

The loader is followed word by word, as it would read the file: with the sections, types and sizes of
its own caches, whatever the file holds. So a file of another layout fails where it would really fail.

Source: ggml-org/llama.cpp b10587, src/llama-context.cpp `llama_context::state_seq_load_file`,
src/llama-kv-cache.cpp `llama_kv_cache::state_read`, src/llama-memory-recurrent.cpp
`llama_memory_recurrent::state_read`, tools/server; restores on b7551 to b11549.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.own import OwnCache, OwnMemory, OwnState
from inspector.servers import Build, ggsq_version
from inspector.source import Source
from inspector.span import Span


_KV = "llama.cpp b10587, src/llama-kv-cache.cpp llama_kv_cache::state_read"
_CONTEXT = "llama.cpp b10587, src/llama-context.cpp llama_context::state_seq_load_file"
_SERVER = "llama.cpp b10587, tools/server: restore of a slot"
_LOST = "the restore is refused, and what the slot held before is lost"
_KEPT = "the restore is refused; the slot keeps what it held"


def _code(
    name: str,
    severity: Severity,
    meaning: str,
    consequence: str,
    remedy: RemedyKind,
    advice: str,
    source: str,
) -> Code:
    return Code(f"target.{name}", severity, meaning, consequence, remedy, advice, source)


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_EXACT, _LOSSY, _NONE = RemedyKind.EXACT, RemedyKind.LOSSY, RemedyKind.NONE

register(
    _code(
        "not-a-slot-file",
        _E,
        "The file is no slot file",
        _KEPT,
        _NONE,
        "name the slot file",
        _CONTEXT,
    ),
    _code(
        "version-mismatch",
        _E,
        "The server reads another version",
        _KEPT,
        _EXACT,
        "use a build that reads this version, or restamp the file where the layouts are equal",
        _CONTEXT,
    ),
    _code(
        "tokens-exceed-file",
        _E,
        "The token count is larger than the file",
        _KEPT,
        _NONE,
        "see the findings about the file itself",
        _CONTEXT,
    ),
    _code(
        "tokens-exceed-context",
        _E,
        "The slot has no room for so many tokens",
        _LOST,
        _LOSSY,
        "start the server with a larger context, or fewer slots",
        _SERVER,
    ),
    _code(
        "tokens-invalid",
        _E,
        "The server does not take these tokens",
        _LOST,
        _NONE,
        "see the findings about the file itself, and whether the model is the right one",
        _SERVER,
    ),
    _code(
        "tokens-packed",
        _W,
        "The server takes the packed tokens for token ids",
        "the restore succeeds, and no prompt matches it: nothing is reused",
        _EXACT,
        "use a build from b10388 on, or write the tokens as a plain list",
        _SERVER,
    ),
    _code(
        "media-needs-projector",
        _E,
        "The state holds media, the server has no projector",
        _LOST,
        _NONE,
        "start the server with --mmproj",
        _SERVER,
    ),
    _code(
        "media-version",
        _E,
        "The server reads another version of media chunks",
        _LOST,
        _EXACT,
        "use a build that reads this version",
        "llama.cpp b10684, tools/mtmd",
    ),
    _code(
        "projector-refused",
        _E,
        "The server saves and restores no slots with a projector",
        _KEPT,
        _NONE,
        "start it without --mmproj, or use a build from b10388 on",
        _SERVER,
    ),
    _code(
        "n-stream-mismatch",
        _E,
        "The cache of the server is divided otherwise",
        _KEPT,
        _EXACT,
        "start the server with the same --parallel and --kv-unified as the one that saved",
        _KV,
    ),
    _code(
        "seq-id-mismatch",
        _E,
        "Cells are not as this build writes them",
        _LOST,
        _EXACT,
        "use a build of the interval in which the file was written",
        _KV,
    ),
    _code(
        "cells-do-not-fit",
        _E,
        "The cache is too small",
        _LOST,
        _LOSSY,
        "start the server with a larger context, or free other slots",
        _KV,
    ),
    _code(
        "cell-count-allocates",
        _E,
        "The server allocates memory for a count that lies",
        "the restore is refused if the allocation fails, else the system may kill the server",
        _NONE,
        "see the findings about the file itself",
        "llama.cpp b10229, restore of such a file",
    ),
    _code(
        "layer-count-mismatch",
        _E,
        "The model has another number of layers",
        _LOST,
        _NONE,
        "name the model that the state was saved with",
        _KV,
    ),
    _code(
        "v-trans-mismatch",
        _E,
        "Values are stored the other way round",
        _LOST,
        _EXACT,
        "start the server with the same --flash-attn as the one that saved",
        _KV,
    ),
    _code(
        "rotation-mismatch",
        _E,
        "Keys or values are rotated otherwise",
        _LOST,
        _LOSSY,
        "use the same cache types and LLAMA_ATTN_ROT_DISABLE as the server that saved",
        _KV,
    ),
    _code(
        "type-mismatch",
        _E,
        "The cache of the server has another type",
        _LOST,
        _LOSSY,
        "start the server with the same --cache-type-k and --cache-type-v as the one that saved",
        _KV,
    ),
    _code(
        "row-size-mismatch",
        _E,
        "Rows have another size",
        _LOST,
        _NONE,
        "name the model that the state was saved with",
        _KV,
    ),
    _code(
        "truncated",
        _E,
        "The file ends before the state does",
        _LOST,
        _NONE,
        "see the findings about the file itself",
        _KV,
    ),
    _code(
        "truncated-aborts",
        _E,
        "The file ends before the state does, and the server does not notice",
        "the server process dies, with all its slots",
        _NONE,
        "do not restore it; the token list can be prefilled again",
        _CONTEXT,
    ),
    _code(
        "recurrent-cells-abort",
        _E,
        "The recurrent section has several cells",
        "the server process dies, with all its slots",
        _NONE,
        "do not restore it",
        _KV,
    ),
    _code(
        "empty-state",
        _W,
        "There is nothing in the state",
        "the restore is refused, or gives an empty slot",
        _NONE,
        "delete the file",
        _CONTEXT,
    ),
    _code(
        "pos-min-abort",
        _E,
        "Tokens without cells: the next request kills the server",
        "the restore succeeds; the first prompt that shares a prefix aborts the process",
        _NONE,
        "do not restore it",
        "llama.cpp b5554 (PR #13833)",
    ),
    _code(
        "rotation-unrecorded",
        _W,
        "The rows are perhaps rotated otherwise than the server's",
        "the restore succeeds, and answers turn to garbage",
        _LOSSY,
        "restore it with a build of the same side of b8619, or compare layer 0 with the model",
        "llama.cpp b8619 (PR #21038), restores of b8156 files on b8672",
    ),
    _code(
        "layout-silent",
        _W,
        "The numbers were laid out otherwise when the file was written",
        "the restore succeeds, and answers turn to garbage",
        _EXACT,
        "use a build of the interval in which the file was written",
        "llama.cpp b7812 (MLA keys), b8157 to b8390 (delta nets), measured",
    ),
    _code(
        "fork-differs",
        _N,
        "The server is a fork: its loader was not run",
        "the verdict is that of its base",
        _NONE,
        "not needed",
        "the fork's merge base",
    ),
)

_HEAD = 12
_HUGE = 1 << 26
"""Cells for which a build that allocates before it checks needs more than a gigabyte."""
_CHUNK = 1 << 20


class Outcome(StrEnum):
    """What becomes of a restore."""

    ACCEPTS = "accepts"
    REFUSES = "refuses"
    ABORTS = "aborts"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Restore:
    """What the loader does, and why.

    Attributes:
        outcome: in one word.
        reason: code of the finding that decides; None for an acceptance.
        message: what the server logs, or in our words what happens.
        findings: what decides, then what else is to be known.
    """

    outcome: Outcome
    reason: str | None
    message: str
    findings: tuple[Finding, ...] = ()


class _Ends(Exception):  # noqa: N818 - the end of a restore, not an error
    def __init__(self, outcome: Outcome, finding: Finding, message: str) -> None:
        super().__init__(message)
        self.outcome, self.finding, self.message = outcome, finding, message


def follow(
    source: Source, payload: Span, build: Build, memory: OwnMemory
) -> tuple[Outcome, Finding | None, str, int]:
    """Follow the loader through the payload.

    Args:
        source: the file, open.
        payload: from behind the tokens to the end of the file.
        build: whose loader.
        memory: its own caches.

    Returns:
        The outcome, the finding that decides, the message, and the offset that was reached.
    """
    loader = _Loader(source, payload, build)
    try:
        for part in memory.parts:
            if isinstance(part, OwnCache):
                loader.cache(part)
            else:
                loader.state(part)
        loader.end()
    except _Ends as end:
        return end.outcome, end.finding, end.message, loader.offset
    return Outcome.ACCEPTS, None, "", loader.offset


class _Loader:
    """Reads as the loader reads.

    Attributes:
        offset: the next byte; beyond the end of the file once the loader reads what is not there.
    """

    def __init__(self, source: Source, payload: Span, build: Build) -> None:
        self._source, self._build = source, build
        self._start, self._end = payload.start, payload.stop
        self.offset = payload.start

    @property
    def _short(self) -> bool:
        """Whether it has read beyond the end."""
        return self.offset > self._end

    def _words(self, code: str) -> tuple[int, ...] | None:
        """The next words, or None beyond the end: then the loader goes on with what it had before."""
        layout = struct.Struct("<" + code)
        data = self._source.read_at(self.offset, min(layout.size, max(0, self._end - self.offset)))
        self.offset += layout.size
        if len(data) == layout.size:
            return layout.unpack(data)
        self._beyond_end()
        return None

    def _skip(self, size: int) -> None:
        self.offset += size
        if self._short:
            self._beyond_end()

    def _beyond_end(self) -> None:
        if not self._build.has("truncation-aborts"):
            raise self._refusal(
                "target.truncated",
                "the file is shorter than what the server reads",
                "unexpectedly reached end of file",
                "all bytes of the state",
                f"an end at 0x{self._end:x}",
            )

    def end(self) -> None:
        """The assertion behind the last read: no more was consumed than there was."""
        if self._short:
            raise _Ends(
                Outcome.ABORTS,
                self._finding(
                    "target.truncated-aborts",
                    f"the server reads {self.offset - self._end:,} bytes that are not there",
                    f"{self.offset - self._start:,} bytes of state",
                    f"{self._end - self._start:,}",
                ),
                "GGML_ASSERT(nread <= state_size) failed",
            )

    def cache(self, own: OwnCache) -> None:
        """One attention cache."""
        if self._build.has("n-stream"):
            self._next(own.path, "n_stream mismatch", own.n_stream, "target.n-stream-mismatch")
            for _ in range(own.n_stream):
                self._stream(own)
        else:
            self._stream(own)

    def _next(self, path: str, message: str, expected: int, code: str) -> None:
        words = self._words("I")
        if words is None or words[0] != expected:
            actual = "nothing" if words is None else str(words[0])
            raise self._refusal(
                code,
                f"{path} has {actual} cell arrays, the server {expected}",
                message,
                str(expected),
                actual,
            )

    def _stream(self, own: OwnCache) -> None:
        words = self._words("I")
        if words is None:
            return self._next_section_beyond(own.path)
        (count,) = words
        if count == 0 and self._build.has("n-stream"):
            return None
        self._room(own.path, count, own.n_cells)
        self._cells(own.path, count, own.cell_bytes, own.n_seq_id)
        if own.n_cells is not None and count > own.n_cells:
            raise self._refusal(
                "target.cells-do-not-fit",
                f"{count:,} cells of {own.path} do not fit into a cache of {own.n_cells:,}",
                f"failed to find {count} available cells in kv cache",
                f"at most {own.n_cells:,} cells",
                f"{count:,}",
            )
        self._layout(own)
        self._blocks(own, count)
        return None

    def _room(self, path: str, count: int, n_cells: int | None) -> None:
        """What is tested, or allocated, before any cell is read."""
        if self._build.has("cell-count-first"):
            if n_cells is not None and count > n_cells:
                raise self._refusal(
                    "target.cells-do-not-fit",
                    f"{count:,} cells of {path} do not fit into a cache of {n_cells:,}",
                    "not enough cells in kv cache",
                    f"at most {n_cells:,} cells",
                    f"{count:,}",
                )
        elif count > _HUGE:
            raise self._refusal(
                "target.cell-count-allocates",
                f"the server allocates memory for {count:,} cells before it looks at them",
                "std::bad_alloc",
                "cells that the file holds",
                f"{count:,}",
            )

    def _cells(self, path: str, count: int, cell_bytes: int, n_seq_id: int) -> None:
        """Every cell must have the number of sequence ids that this build writes."""
        start, expected = self.offset, struct.pack("<I", n_seq_id)
        per_read = max(1, _CHUNK // cell_bytes)
        for first in range(0, count, per_read):
            rows = min(per_read, count - first)
            at = start + first * cell_bytes
            data = self._source.read_at(at, min(rows * cell_bytes, max(0, self._end - at)))
            whole = len(data) // cell_bytes
            for index in range(4):
                column = data[4 + index :: cell_bytes][:whole]
                if column.strip(expected[index : index + 1]):
                    raise self._refusal(
                        "target.seq-id-mismatch",
                        f"a cell of {path} has another number of sequence ids than {n_seq_id}",
                        "invalid seq_id-agnostic kv cell",
                        f"n_seq_id {n_seq_id} in every cell",
                        "another number",
                    )
            if whole < rows:
                break
        self.offset = start
        self._skip(count * cell_bytes)

    def _layout(self, own: OwnCache) -> None:
        words = self._words("II")
        if words is None:
            return
        v_trans, n_layer = words
        if n_layer != own.n_layer:
            raise self._refusal(
                "target.layer-count-mismatch",
                f"{own.path} has {n_layer} layers, the server's cache {own.n_layer}",
                f"mismatched layer count ({n_layer} instead of {own.n_layer})",
                str(own.n_layer),
                str(n_layer),
            )
        if own.v_trans is not None and v_trans != own.v_trans:
            raise self._refusal(
                "target.v-trans-mismatch",
                f"values of {own.path} are stored {'channel by channel' if v_trans else 'in rows'}, "
                f"the server wants them {'channel by channel' if own.v_trans else 'in rows'}",
                "incompatible V transposition",
                f"v_trans {own.v_trans}",
                f"v_trans {v_trans}",
            )
        if self._build.has("rotation-words"):
            self._rotation(own)

    def _rotation(self, own: OwnCache) -> None:
        words = self._words("II")
        if words is None or own.rotation is None:
            return
        for name, stored, expected in zip(("key", "value"), words, own.rotation, strict=True):
            if stored != expected:
                raise self._refusal(
                    "target.rotation-mismatch",
                    f"{name}s of {own.path} are rotated by {stored}, the server wants {expected}",
                    f"incompatible {name} rotation ({stored} instead of {expected})",
                    str(expected),
                    str(stored),
                )

    def _blocks(self, own: OwnCache, count: int) -> None:
        for layer, (type_id, row) in zip(own.layers, own.k, strict=True):
            self._block("key", layer, type_id, row)
            self._skip(count * row)
        for layer, (type_id, row) in zip(own.layers, own.v, strict=False):
            if own.v_trans:
                self._transposed(layer, type_id, own.v_element_bytes, row)
            else:
                self._block("value", layer, type_id, row)
            self._skip(count * row)

    def _block(self, name: str, layer: int, type_id: int, row: int) -> None:
        words = self._words("iQ")
        if words is None:
            return self._header_beyond(name, layer, type_id)
        if words[0] != type_id:
            raise self._type_mismatch(name, layer, type_id, words[0])
        if words[1] != row:
            raise self._refusal(
                "target.row-size-mismatch",
                f"a {name} row of layer {layer} has {words[1]:,} bytes, the server's {row:,}",
                f"mismatched {name} row size ({words[1]} != {row}, layer {layer})",
                f"{row:,} bytes",
                f"{words[1]:,} bytes",
            )
        return None

    def _transposed(self, layer: int, type_id: int, element: int, row: int) -> None:
        words = self._words("iII")
        if words is None:
            return self._header_beyond("value", layer, type_id)
        if words[0] != type_id:
            raise self._type_mismatch("value", layer, type_id, words[0])
        if words[1:] != (element, row // element):
            raise self._refusal(
                "target.row-size-mismatch",
                f"layer {layer} has {words[2]} channels of {words[1]} bytes",
                f"mismatched GQA size ({words[2]} != {row // element}, layer {layer})",
                f"{row // element} channels of {element} bytes",
                f"{words[2]} of {words[1]}",
            )
        return None

    def _type_mismatch(self, name: str, layer: int, own: int, stored: int) -> _Ends:
        return self._refusal(
            "target.type-mismatch",
            f"{name}s of layer {layer} have type {stored}, the server's cache has type {own}",
            f"mismatched {name} type ({own} != {stored}, layer {layer})",
            f"type {own}",
            f"type {stored}",
        )

    def _header_beyond(self, name: str, layer: int, type_id: int) -> None:
        """A header that is not there reads as zeros, in later builds as the header before it."""
        if not self._build.has("cell-count-first") and type_id != 0:
            raise self._type_mismatch(name, layer, type_id, 0)

    def _next_section_beyond(self, path: str) -> None:
        raise self._refusal(
            "target.truncated",
            f"{path} is not there at all",
            "not enough cells in kv cache",
            path,
            f"an end at 0x{self._end:x}",
        )

    def state(self, own: OwnState) -> None:
        """The recurrent section."""
        words = self._words("I")
        if words is None:
            return self._next_section_beyond(own.path)
        (count,) = words
        if self._build.has("cell-count-first") and count > own.n_cells:
            raise self._refusal(
                "target.cells-do-not-fit",
                f"{count:,} recurrent cells, the server has {own.n_cells} slots",
                "not enough cells in kv cache",
                f"at most {own.n_cells}",
                f"{count:,}",
            )
        self._cells(own.path, count, 8, 0)
        if count > 1:
            raise _Ends(
                Outcome.ABORTS,
                self._finding(
                    "target.recurrent-cells-abort",
                    f"{count:,} recurrent cells in the state of one sequence",
                    "1 cell",
                    f"{count:,}",
                ),
                "GGML_ASSERT of the cells that were found",
            )
        words = self._words("II")
        if words is not None and words[1] != own.n_layer:
            raise self._refusal(
                "target.layer-count-mismatch",
                f"{own.path} was written for {words[1]} layers, the model has {own.n_layer}",
                f"mismatched layer count ({words[1]} instead of {own.n_layer})",
                str(own.n_layer),
                str(words[1]),
            )
        if words is not None and words[0] != 0:
            raise self._refusal(
                "target.v-trans-mismatch",
                "the recurrent state claims to be transposed",
                "incompatible s transposition",
                "s_trans 0",
                f"s_trans {words[0]}",
            )
        for name, row, layers in (("r", own.r, own.layers), ("s", own.s, own.layers)):
            for layer in layers:
                self._block(name, layer, 0, row)
                self._skip(count * row)
        return None

    def _refusal(
        self,
        code: str,
        message: str,
        logged: str,
        expected: str,
        actual: str,
    ) -> _Ends:
        return _Ends(Outcome.REFUSES, self._finding(code, message, expected, actual), logged)

    def _finding(self, code: str, message: str, expected: str, actual: str) -> Finding:
        at = min(self.offset, self._end)
        return Finding(code, "", Span(max(self._start, at - 4), at), message, expected, actual)
