"""A file with other tokens and other numbers that reads the same: to be shown to others.

Copied as they are, for they say how a file is built and nothing of what was said:

- magics, versions, counts, sizes, offsets, flags, types, hyper-parameters of a model;
- positions, sequence ids, the places of media tokens and the shapes of media;
- numbers of tasks, checkpoints and epochs;
- token -1, which stands for media; zeros, and which numbers are not finite;
- times of the last change of files, by which stale companions are known.

It also shows which tokens and which rows are equal, and between which powers of two a token id from
256 on lies, so that ids beyond a vocabulary stay beyond. All else is replaced: token ids, tensors,
texts, names, hashes, times and padding inside files. Of JSON only known members are copied.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from formats.envelopes.tokens import PACKED_MARKER
from formats.ggml_types import GgmlType
from formats.layouts import by_id
from formats.scalars import LLAMA_POS, LLAMA_TOKEN
from formats.sidecars import sckp
from formats.spans import Record, Scalar, Table, Text
from inspector.bundle import RECORD, Role
from inspector.checkpoints import fnv1a
from inspector.checks.ik import heads_in
from inspector.containers import IK_TOKENS_MAGIC, Trouble, ik_tokens
from inspector.decode import Decoding, decode
from inspector.fuzzing.reshape import Change, Piece, reshaped
from inspector.identify import identify
from inspector.mend import Patched
from inspector.model.identity import judge
from inspector.node import Node, Rows, walk
from inspector.repair.state import Refused
from inspector.report import Report, examined
from inspector.sections import Block, Section, sections
from inspector.source import Source, Unreadable
from inspector.span import Span

_SCKP = sckp.ROWS[0]
_LARGEST = 1 << 30
"""Bytes; larger ones are too much to show to anybody."""
_LARGEST_JSON = 1 << 25
_DIGITS = 18
"""Of a number in JSON; more are left out."""
_BATCH = 1 << 20
"""Bytes that are replaced at once."""
_BYTE = 8
"""Bits of ids that are of one kind: bytes and control tokens."""
_NOT_COPIED = ("file.symlink", "file.hard-link", "sidecar.leftover", "seal.")
"""Findings about names, and about companions that are left out."""
_F16_HEAD = {"q4_1": 2, "q5_1": 2}
"""f16 numbers that a block begins with, where they are not one."""
_DRAWS = 5
"""How often other numbers are drawn where a copy reads otherwise by chance."""
_OPAQUE = (Role.HIDDEN, Role.DRAFT)
"""Companions that only count by their size."""
_LEFT_OUT = {
    Role.SETTINGS: "it names a model and a conversation",
    Role.LEFTOVER: "it is what a save left behind",
}
_PACKED = PACKED_MARKER.to_bytes(4, "little", signed=True)
_PACKED_HEAD = 12
"""Bytes of a packed token list in front of the ids: marker, version, number."""
_CELL_HEAD = 8
"""Bytes of a cell in front of its sequence ids: position, number of them."""
_WORD = 1 << 24
"""Larger words are no count, position or sequence that anybody writes."""
_FLIPPED = 2
"""Odd words, or odd bytes of a word, that still look like damage rather than like tensors."""
_TIMES = ("created_at", "last_used", "saved_unix_ms")

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Anonymous:
    """The copies of a file and of its companions.

    Attributes:
        files: what is added to the name of the copy -> bytes; the file itself first.
        originals: the file and all that lies beside it.
        mtimes_ns: when they were last changed: by that a stale companion is known.
        left_out: companions that are not copied, and why.
        n_ids: how many different token ids were replaced.
    """

    files: dict[str, bytes]
    originals: tuple[Path, ...]
    mtimes_ns: tuple[int, ...]
    left_out: tuple[str, ...]
    n_ids: int


def anonymized(path: Path, key: bytes = b"") -> Anonymous:
    """Copies of a file and of its companions that read the same and say nothing.

    Args:
        path: a state or a sidecar.
        key: decides what replaces what; a random one without it.

    Raises:
        Refused: if it is not known where its tokens are, or the copy would not read the same.
        Unreadable: if the system does not give us the file.
    """
    key = key or os.urandom(16)
    with ExitStack() as stack:
        report = stack.enter_context(examined(path))
        whole, left_out = [_Original("", path, report)], []
        for companion in report.bundle.companions:
            if companion.role in _LEFT_OUT:
                left_out.append(f"{companion.file.name}: {_LEFT_OUT[companion.role]}")
                continue
            beside = Path(companion.file.path)
            try:
                own = stack.enter_context(examined(beside))
            except Unreadable as error:
                raise Unreadable(f"{companion.file.name}: {error}") from error
            if companion.role is Role.TOKENS:
                own = replace(own, container=ik_tokens(own.source))
            opaque = companion.role in _OPAQUE or _unknown(own)
            whole.append(_Original(companion.suffix, beside, own, opaque))
        if report.bundle.record:
            left_out.append(f"{report.name}{RECORD}: what was sealed or repaired is the original")
        ids = np.concatenate([_ids(one.report) for one in whole if not one.opaque])
        for draw in range(_DRAWS):
            scrambler = _scrambler(key + bytes([draw] if draw else ()), ids)
            files = {one.suffix: _copy(one, scrambler) for one in whole}
            _put_hashes_right(whole, files, scrambler)
            if not (differences := _differences(path, report, files)):
                break
        else:
            raise Refused(_why_other(report, differences))
    companions = (Path(companion.file.path) for companion in report.bundle.companions)
    originals = (path, *companions, path.with_name(path.name + RECORD))
    times = tuple(one.report.bundle.subject.mtime_ns for one in whole)
    return Anonymous(files, originals, times, tuple(left_out), len(scrambler.old))


@dataclass(frozen=True)
class _Original:
    """A file that is copied.

    Attributes:
        suffix: what its name adds to that of the state.
        path: where it is.
        report: on it.
        opaque: whether nothing is known of it but its size.
    """

    suffix: str
    path: Path
    report: Report
    opaque: bool = False


def _unknown(report: Report) -> bool:
    return report.container is None and report.identification.reading is None


@dataclass(frozen=True)
class _Scrambler:
    """What replaces what.

    Attributes:
        key: decides it.
        old: token ids, ascending; without -1, which stays.
        new: what replaces each.
    """

    key: bytes
    old: NDArray[np.int64]
    new: NDArray[np.int64]

    def ids(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The replacements."""
        if not len(self.old):
            return ids
        at = np.minimum(np.searchsorted(self.old, ids), len(self.old) - 1)
        return np.where(ids == -1, -1, self.new[at])

    def digest(self, data: bytes) -> bytes:
        """Another hash; none stays none."""
        return random.Random(self.key + data).randbytes(len(data)) if any(data) else data

    def text(self, data: bytes) -> bytes:
        """Characters of the same kinds, the same for the same text."""
        dice = random.Random(self.key + data)
        return bytes(
            byte
            if byte in _MARKS
            else next((dice.choice(k) for k in _KINDS if byte in k), 0x2D if byte < 0x80 else 0xFF)
            for byte in data
        )

    def value(self, value: Any) -> Any:
        """Another value of the same shape, of JSON."""
        match value:
            case bool() | None:
                return value
            case int():
                return int(self.text(str(value).encode()))
            case float():
                return random.Random(self.key + str(value).encode()).random()
            case str():
                return self.text(value.encode("utf-8", "backslashreplace")).decode("latin-1")
            case list():
                return [self.value(one) for one in value]
        return {self.value(name): self.value(one) for name, one in value.items()}

    def unknown(self, data: bytes) -> bytes:
        """Other bytes: zeros stay."""
        return self.numbers(data, 0, _CODES)

    def numbers(self, data: bytes, row_bytes: int, kind: GgmlType) -> bytes:
        """Other numbers of the same type and size: what is zero or not finite stays."""
        if not data:
            return data
        most = _BATCH - _BATCH % kind.block_bytes
        row_bytes = min(row_bytes if 0 < row_bytes <= len(data) else len(data), most)
        whole = len(data) - len(data) % row_bytes
        step = most - most % row_bytes
        out = bytearray()
        for at in range(0, whole, step):
            rows = np.frombuffer(data[at : min(at + step, whole)], np.uint8)
            out += self._rows(rows.reshape(-1, row_bytes), kind).tobytes()
        if whole < len(data):
            out += self.numbers(data[whole:], 0, kind)
        return bytes(out)

    def channels(self, data: bytes, n_cells: int, kind: GgmlType) -> bytes:
        """The same of rows that are stored channel by channel: equal rows stay equal."""
        size = kind.block_bytes
        whole = len(data) - len(data) % (n_cells * size)
        stored = np.frombuffer(data[:whole], np.uint8).reshape(-1, n_cells, size)
        rows = stored.swapaxes(0, 1)
        changed = self.numbers(rows.tobytes(), rows.shape[1] * size, kind)
        back = np.frombuffer(changed, np.uint8).reshape(rows.shape).swapaxes(0, 1)
        return back.tobytes() + self.numbers(data[whole:], 0, kind)

    def heads(self, data: bytes, head_bytes: int) -> bytes:
        """The same of q8_KV: every head is a f32 scale, the i32 sum of its codes, the codes."""
        whole = len(data) - len(data) % head_bytes
        rows = np.frombuffer(data[:whole], np.uint8).reshape(-1, head_bytes)
        scales = np.frombuffer(self.numbers(rows[:, :4].tobytes(), 4, _F32), np.uint8)
        codes = self.numbers(rows[:, 8:].tobytes(), head_bytes - 8, _CODES)
        sums = np.frombuffer(codes, np.int8).reshape(len(rows), -1).sum(axis=1, dtype="<i4")
        parts = [
            part.view(np.uint8).reshape(len(rows), -1)
            for part in (scales, sums, np.frombuffer(codes, np.uint8))
        ]
        return np.concatenate(parts, axis=1).tobytes() + self.unknown(data[whole:])

    def _rows(self, rows: NDArray[np.uint8], kind: GgmlType) -> NDArray[np.uint8]:
        name = kind.name
        n_rows, size = rows.shape
        if kind.block_elements > 1 and not size % kind.block_bytes:
            blocks = rows.reshape(-1, kind.block_bytes)
            head = 2 * _F16_HEAD.get(name, 1)
            scales = self._rows(np.ascontiguousarray(blocks[:, :head]), _HALF)
            noise = self._noise(blocks, -(-(kind.block_bytes - head) // 8))
            codes = noise.view(np.uint8)[:, : kind.block_bytes - head]
            live = blocks[:, head:].any(axis=1, keepdims=True)
            return np.concatenate([scales, np.where(live, codes, 0)], axis=1).reshape(n_rows, size)
        width, mantissa = _FLOATS.get(name, (1, 0))
        if not mantissa or size % width:
            noise = self._noise(rows, size)
            return np.where(rows == 0, 0, 1 + noise % np.uint64(255)).astype(np.uint8)
        words = rows.view(f"<u{width}")
        noise = self._noise(rows, words.shape[1])
        return (
            _floats(words.astype(np.uint64), noise, mantissa, 8 * width)
            .astype(f"<u{width}")
            .view(np.uint8)
            .reshape(n_rows, size)
        )

    def _noise(self, rows: NDArray[np.uint8], n_words: int) -> Words:
        """Random words that follow from the key and the row: equal rows stay equal."""
        seed = np.uint64(xxh3_64_intdigest(self.key))
        digests = np.fromiter(
            (xxh3_64_intdigest(row.tobytes()) for row in rows), np.uint64, len(rows)
        )
        with np.errstate(over="ignore"):
            state = (digests ^ seed)[:, None] + np.arange(
                1, n_words + 1, dtype=np.uint64
            ) * np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.ascontiguousarray(state ^ (state >> np.uint64(31)))


_HALF, _CODES, _F32 = (
    GgmlType(-1, name, 1, size) for name, size in (("f16", 2), ("codes", 1), ("f32", 4))
)
_FLOATS = {"f16": (2, 10), "bf16": (2, 7), "f32": (4, 23)}
"""Bytes of a number, bits of its fraction."""
_KINDS = (b"0123456789", b"abcdef", b"ghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_MARKS = b'\0 \t\r\n{}[]:,"-.'
"""Characters that stay: they part others."""


def _scrambler(key: bytes, ids: NDArray[np.int64]) -> _Scrambler:
    """Choose replacements for token ids: none for two, and rarely the id itself.

    Each is as large as the id, to the bit; and, where no id has one bit more, none is larger than
    the largest: what is beyond a vocabulary stays so, and what is not comes not to be.
    """
    old = np.unique(ids)
    old = old[old != -1]
    new, size = old.copy(), np.abs(old)
    bits = np.maximum(np.frexp(size)[1], _BYTE)
    dice = np.random.default_rng(list(key))
    for sign, n_bits in sorted(set(zip(np.sign(old + 0.5).tolist(), bits.tolist(), strict=True))):
        alike = np.flatnonzero((bits == n_bits) & (np.sign(old + 0.5) == sign))
        low = 0 if n_bits == _BYTE else 1 << (n_bits - 1)
        low = max(low, 2) if sign < 0 else low
        high = 1 << n_bits
        if n_bits > _BYTE and not ((bits == n_bits + 1) & (np.sign(old + 0.5) == sign)).any():
            high = int(size[alike].max()) + 1
        drawn = low + dice.choice(high - low, min(high - low, len(alike) + 1), replace=False)
        for at in np.flatnonzero(drawn[: len(alike)] == size[alike]).tolist():
            drawn[at], drawn[at - 1] = drawn[at - 1], drawn[at]
        new[alike] = int(sign) * drawn[: len(alike)]
    return _Scrambler(key, old, new)


def _floats(words: Words, noise: Words, mantissa: int, bits: int) -> Words:
    """Other signs and fractions, and an exponent between those of the row."""
    one, fraction = np.uint64(1), np.uint64((1 << mantissa) - 1)
    most = np.uint64((1 << (bits - 1 - mantissa)) - 1)
    exponent = (words >> np.uint64(mantissa)) & most
    live = (exponent != 0) & (exponent != most)
    lowest = np.where(live, exponent, most).min(axis=1, keepdims=True)
    highest = np.where(live, exponent, 0).max(axis=1, keepdims=True)
    spread = np.where(highest >= lowest, highest - lowest, 0) + one
    new = lowest + (noise >> np.uint64(40)) % spread
    changed = (noise >> np.uint64(39) & one) << np.uint64(bits - 1)
    changed = changed | new << np.uint64(mantissa) | (noise & fraction)
    subnormal = (exponent == 0) & (words & fraction != 0)
    small = (words & ~fraction) | np.maximum(noise & fraction, one)
    quiet = np.uint64(1 << (mantissa - 1))
    nan = (exponent == most) & (words & fraction != 0)
    other = (words & ~fraction) | (words & quiet) | np.maximum(noise & (quiet - one), one)
    return np.where(live, changed, np.where(subnormal, small, np.where(nan, other, words)))


def _ids(report: Report) -> NDArray[np.int64]:
    """All token ids of a file, wherever they are."""
    found = [np.zeros(0, np.int64)]
    if report.container is not None:

        def listed(ids: NDArray[np.int64]) -> NDArray[np.int64]:
            found.append(ids)
            return ids

        _shown(_parsed(report)[0], "", listed, lambda value: None)
        return np.concatenate(found)
    source, decoding = _read(report)
    for piece, node, _ in _all_pieces(source, decoding):
        words, at = _words(piece, node)
        found.append(words[at])
    return np.concatenate(found)


def _read(report: Report) -> tuple[Source, Decoding]:
    """A file as it was before the one word lied that derails it, if that word is known."""
    reading, mend = report.identification.reading, report.identification.mend
    if report.name.endswith(RECORD):
        raise Refused(f"{report.name}: a record of slotscope is not anonymized")
    if reading is None:
        raise Refused(f"{report.name}: it is not known what it is, nor what it may say")
    if reading.layout.format == "gguf":
        raise Refused(f"{report.name}: it is a model, and says nothing of a conversation")
    if report.size > _LARGEST:
        raise Refused(f"{report.name}: too large to be shown; `slotscope repair --at` shortens it")
    if mend is not None:
        patched = Patched(report.source, mend)
        if (mended := identify(patched).reading) is not None:
            return patched, mended.decoding
    return report.source, reading.decoding


def _all_pieces(
    source: Source, decoding: Decoding
) -> Iterator[tuple[Piece, Node | None, Block | None]]:
    """All bytes of a file with what they are, also inside blobs."""
    nodes = dict(walk(decoding.root))
    blocks = {
        block.data.start if block.data is not None else block.span.stop: block
        for section in sections(decoding.root)
        for block in section.blocks
    }
    at = decoding.root.span.start
    for piece in reshaped(source, decoding, Change()):
        node = nodes.get(piece.path)
        layout = by_id(str(node.facts["layout"])) if node and "layout" in node.facts else None
        if node is not None and node.span.start > at:
            yield _gap(source, at, node.span.start)
            at = node.span.start
        start, at = at, at + len(piece.data)
        if not piece.path and at == decoding.root.span.stop and decoding.layout is not _SCKP:
            rest = decode(source, _SCKP, Span(start, at))
            if rest.complete:  # checkpoints behind a magic that is none
                yield from _all_pieces(source, rest)
                continue
        if node is None or layout is None:
            yield piece, node, blocks.get(start)
        else:
            yield from _all_pieces(source, decode(source, layout, node.span))
    if any(stop.path.endswith(".seq_id") and at < stop.offset for stop in decoding.stops):
        head = Piece("", source.read_at(at, _CELL_HEAD), LLAMA_POS)
        yield head, None, None
        at += len(head.data)
    if at < decoding.root.span.stop:
        yield _gap(source, at, decoding.root.span.stop)


def _gap(source: Source, start: int, stop: int) -> tuple[Piece, None, None]:
    """Bytes that nothing explains."""
    return Piece("", source.read_at(start, stop - start)), None, None


def _words(piece: Piece, node: Node | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The words of a table, and which of them are token ids; none if it is no table of words."""
    rows, nothing = node.value if node is not None else None, np.zeros(0, np.int64)
    if not isinstance(rows, Rows) or not len(rows) or len(piece.data) % 4:
        return nothing, nothing
    dtype, con = np.dtype(list(rows.fields)), piece.con
    words = np.frombuffer(piece.data, _code(dtype)).astype(np.int64)
    names = dtype.names or ()
    if isinstance(con, Table) and isinstance(con.row, Scalar) and dtype.itemsize == 4:
        is_list = con.row is LLAMA_TOKEN or "token" in piece.path.rpartition(".")[2]
        return words, np.arange(len(words)) if is_list else nothing
    if "tok" not in names:
        return words, nothing
    first = dtype.fields["tok"][1] // 4 if dtype.fields is not None else 0
    if dtype.itemsize * len(rows) == len(piece.data):
        return words, np.arange(first, len(words), dtype.itemsize // 4)
    starts = [rows.row_span(i).start - rows.span.start for i in range(len(rows))]
    return words, np.array(starts) // 4 + first


def _code(dtype: np.dtype[np.void]) -> str:
    """Of the words of a table: of unsigned ones if its first field is."""
    unsigned = dtype.fields is not None and dtype[0].kind == "u"
    return "<u4" if unsigned else "<i4"


def _copy(original: _Original, scrambler: _Scrambler) -> bytes:
    report = original.report
    if original.opaque:
        return scrambler.unknown(report.source.read_at(0, report.size))
    if report.container is not None:
        return _document(report, scrambler)
    source, decoding = _read(report)
    out = bytearray()
    for piece, node, block in _all_pieces(source, decoding):
        out += _changed(piece, node, block, source, scrambler)
    if len(out) != report.size:
        raise Refused(f"{report.name}: not all of its bytes are understood")
    if isinstance(source, Patched):
        word = source.mend.span
        out[word.start : word.stop] = report.source.read_at(word.start, len(word))
    return bytes(out)


def _changed(
    piece: Piece, node: Node | None, block: Block | None, source: Source, scrambler: _Scrambler
) -> bytes:
    data, name = piece.data, piece.path.rpartition(".")[2]
    if isinstance(piece.con, Text):
        return scrambler.text(data)
    words, at = _words(piece, node)
    if len(words):
        others = words.copy()
        others[at] = 0
        right = 4 * _derails(others)
        words[at] = scrambler.ids(words[at])
        data = words.astype("<u4").tobytes()
        data = data[:right] + scrambler.unknown(data[right:])
    if isinstance(piece.con, Scalar | Table | Record) or (node and isinstance(node.value, Rows)):
        if name.endswith("hash") and name != "state_hash":
            return scrambler.digest(data)
        if name.startswith(("pad", "reserved")):
            return scrambler.unknown(data)
        if name in _TIMES:
            return bytes(len(data))
        if isinstance(piece.value, int) and name not in ("magic", "state_hash"):
            odd = abs(piece.value) > max(_WORD, source.size) and len(set(data) - {0}) > _FLIPPED
            return scrambler.unknown(data) if odd else data
        return data
    if name == "tokens" and data.startswith(_PACKED):  # a list that was cut
        return data[:_PACKED_HEAD] + scrambler.unknown(data[_PACKED_HEAD:])
    kind = block.readings[0] if block is not None and block.readings else None
    if block is None or kind is None:
        return scrambler.unknown(data)
    if kind.row_prefix_bytes:
        heads = heads_in(source, block)
        return (
            scrambler.heads(data, 8 + (block.row_bytes - 8) // heads)
            if heads
            else scrambler.unknown(data)
        )
    if block.element_bytes == kind.block_bytes and block.n_cells:
        return scrambler.channels(data, block.n_cells, kind)
    return scrambler.numbers(data, block.row_bytes, kind)


def _derails(words: NDArray[np.int64]) -> int:
    """Up to which word cells are cells: from there on they look like numbers of tensors.

    One word that is too large is damage; where many are, a wrong count led there.
    """
    odd = np.flatnonzero(np.abs(words) > _WORD)
    many = len(odd) > _FLIPPED and 4 * len(odd) > np.count_nonzero(words[odd[0] :])
    return int(odd[0]) if many else len(words)


_SHAPES = ("index", "type", "nx", "ny", "use_mrope_pos", "n_tokens")
_MEMBERS = {
    *("has_mtmd", "map_idx_to_media", "tokens", "magic", "version"),
    *("chunk", "tokens_text", "tokens_image", "tokens_audio", "id"),
    *_SHAPES,
}
_SCRAPS = re.compile(rb'"\w+"|[^\s{}\[\]:,"]+')


def _document(report: Report, scrambler: _Scrambler) -> bytes:
    """A token list in JSON, of which only known members are copied."""
    document, rest = _parsed(report)
    if document is not None:
        shown = _shown(document, "", scrambler.ids, scrambler.value)
        return json.dumps(shown, separators=(",", ":")).encode() + scrambler.text(rest)
    kept = {b'"%s"' % name.encode() for name in _MEMBERS} | {b"true", b"false", b"null"}
    return _SCRAPS.sub(lambda m: m[0] if m[0] in kept else scrambler.text(m[0]), rest)


def _parsed(report: Report) -> tuple[Any, bytes]:
    """What is in a token list in JSON, or None if it is no JSON, and the text behind it."""
    container = report.container
    if container is None or container.format != "ik-tokens":
        raise Refused(f"{report.name}: containers of other programs are not anonymized")
    if report.size > _LARGEST_JSON:
        raise Refused(f"{report.name}: too large to be shown")
    text = report.source.read_at(0, report.size)
    if any(not one.path and one.kind is not Trouble.TRAILING for one in container.problems):
        return None, text
    text = text.lstrip()
    decoder = json.JSONDecoder(parse_int=lambda digits: int(digits[:_DIGITS]))
    document, end = decoder.raw_decode(text.decode())
    return document, text.decode()[end:].encode()


def _shown(
    value: Any,
    name: str,
    ids: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    other: Callable[[Any], Any],
) -> Any:
    """A member of a token list in JSON, with other ids and texts."""
    if isinstance(value, dict):
        return {k: _shown(one, k, ids, other) for k, one in value.items() if k in _MEMBERS}
    if isinstance(value, list):
        if name.startswith("tokens") and value and all(type(one) is int for one in value):
            return ids(np.array(value, np.int64)).tolist()
        return [_shown(one, name, ids, other) for one in value]
    if (name, value) in (("magic", IK_TOKENS_MAGIC), ("version", 1)):
        return value
    return value if name in _SHAPES and isinstance(value, int) else other(value)


def _put_hashes_right(
    whole: list[_Original], files: dict[str, bytes], scrambler: _Scrambler
) -> None:
    """Write the hash of the copy where a sidecar holds that of the state, else any other."""
    hashes = [(one.suffix, *held) for one in whole[1:] for held in _state_hashes(one.report)]
    if not hashes:
        return
    state = whole[0].report
    before = fnv1a(state.source.read_at(0, state.size))
    after = fnv1a(files[""]).to_bytes(8, "little")
    for suffix, at, held in hashes:
        new = after if held == before else scrambler.digest(held.to_bytes(8, "little"))
        files[suffix] = files[suffix][:at] + new + files[suffix][at + 8 :]


def _state_hashes(report: Report) -> Iterator[tuple[int, int]]:
    reading = report.identification.reading
    for _, node in walk(reading.decoding.root) if reading is not None else ():
        if node.name == "state_hash" and isinstance(node.value, int):
            yield node.span.start, node.value


def _differences(path: Path, report: Report, files: dict[str, bytes]) -> list[str]:
    """What the copies read otherwise than the originals."""
    with tempfile.TemporaryDirectory(prefix="slotscope-anonymous-") as room:
        copy = Path(room, path.name)
        for suffix, data in files.items():
            one = copy.with_name(copy.name + suffix)
            one.write_bytes(data)
            shutil.copystat(path.with_name(path.name + suffix), one)
        around = report.bundle
        if around.state is not None:  # a sidecar, which is held against its state
            shutil.copy2(around.state.path, Path(room, around.state.name))
            for sibling in around.siblings:
                shutil.copy2(sibling.file.path, Path(room, sibling.file.name))
        with examined(copy) as after:
            return list(_compared(report, after))


def _why_other(report: Report, differences: list[str]) -> str:
    """Why no copy is made, and what to do."""
    advice = "try a copy that `slotscope repair` has mended"
    if report.bundle.state is not None:
        advice = f"anonymize {report.bundle.state.name}: what lies beside it goes along"
    return f"the copy would {', '.join(differences)}; {advice}"


def _compared(before: Report, after: Report) -> Iterator[str]:
    was, now = ({code for code, *_ in _findings(report)} for report in (before, after))
    for verb, codes in (("lose", was - now), ("gain", now - was)):
        if codes:
            yield f"{verb} {', '.join(sorted(codes))}"
    for what, says in _SAYS.items():
        if says(before) != says(after) and (what != "findings" or was == now):
            yield f"have other {what}"


def _findings(report: Report) -> list[tuple[str, str, Span | None]]:
    """What `inspect` says, and what `check` says of the tensors without a model."""
    identity = judge(report.source, report.sections, report.tokens, None)
    in_json = report.container is not None
    return [
        (one.code, one.path, None if in_json or one.carrier.endswith(".json") else one.span)
        for one in (*report.findings, *identity.findings)
        if not one.code.startswith(_NOT_COPIED)
    ]


_SAYS: dict[str, Callable[[Report], object]] = {
    "findings": _findings,
    "sections": lambda report: [
        (part.kind, part.path, part.span, part.cells, part.pos.tolist())
        for part in _sections(report)
    ],
    "structure": lambda report: (
        report.identification.verdict,
        report.identification.reading and report.identification.reading.layout.id,
    ),
}


def _sections(report: Report) -> tuple[Section, ...]:
    if report.identification.mend is None:
        return report.sections
    return sections(_read(report)[1].root)
