"""A file with other tokens and other numbers that reads the same: to be shown to others."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from formats.ggml_types import GgmlType
from formats.layouts import by_id
from formats.scalars import LLAMA_TOKEN
from formats.sidecars import sckp
from formats.spans import Record, Scalar, Table, Text
from inspector.bundle import NOT_OPENED, Role
from inspector.checkpoints import fnv1a
from inspector.decode import Decoding, decode
from inspector.fuzzing.reshape import Change, Piece, reshaped
from inspector.node import Node, Rows, walk
from inspector.repair.state import Refused
from inspector.report import Report, examined
from inspector.sections import Block, sections
from inspector.source import Source
from inspector.span import Span

_SCKP = sckp.ROWS[0]
_LARGEST = 1 << 30
"""Bytes; larger ones are too much to show to anybody."""
_CONTROL = 256
"""Ids below are of one kind: bytes and control tokens."""
_NOT_COPIED = ("file.symlink", "file.hard-link", "sidecar.leftover", "seal.")
"""Findings about names, and about companions that are left out."""
_F16_HEAD = {"q4_1": 2, "q5_1": 2}
"""f16 numbers that a block begins with, where they are not one."""

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Anonymous:
    """The copies of a file and of its companions.

    Attributes:
        files: what is added to the name of the copy -> bytes; the file itself first.
        originals: the files that were read.
        left_out: names of companions that are not copied.
        n_ids: how many different token ids were replaced.
    """

    files: dict[str, bytes]
    originals: tuple[Path, ...]
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
    with ExitStack() as stack:
        report = stack.enter_context(examined(path))
        whole = [("", path, report)]
        left_out = []
        for companion in report.bundle.companions:
            if companion.role in NOT_OPENED or companion.role is Role.SETTINGS:
                left_out.append(companion.file.name)
                continue
            beside = Path(companion.file.path)
            own = stack.enter_context(examined(beside))
            whole.append((companion.suffix, beside, own))
        scrambler = _Scrambler(key or os.urandom(16))
        for _, _, own in whole:
            scrambler.learn(_ids(own))
        files = {suffix: _copy(own, scrambler) for suffix, _, own in whole}
        _put_hashes_right(whole, files)
        _check(path, report, files)
    originals = tuple(original for _, original, _ in whole)
    return Anonymous(files, originals, tuple(left_out), len(scrambler.known))


@dataclass
class _Scrambler:
    """What replaces what.

    Attributes:
        key: decides it.
        known: token id -> its replacement.
    """

    key: bytes
    known: dict[int, int] = field(default_factory=dict)

    def learn(self, ids: NDArray[np.int64]) -> None:
        """Choose replacements: as small or as large, none for two, and rarely the id itself."""
        missing = sorted({int(one) for one in np.unique(ids) if one >= 0} - self.known.keys())
        most = max((*missing, *self.known, _CONTROL - 1))
        dice = random.Random(self.key + b"ids")
        taken = set(self.known.values())
        for low, high in _magnitudes(most):
            mine = [one for one in missing if low <= one < high]
            free = dice.sample(range(low, high), min(high - low, 4 * len(mine) + 8))
            free = [one for one in free if one not in taken]
            free += [one for one in range(low, high) if one not in taken and one not in free][
                : len(mine)
            ]
            for old in mine:
                at = next((i for i, new in enumerate(free) if new != old), 0)
                self.known[old] = free.pop(at)

    def ids(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The replacements; what is negative stays."""
        distinct, where = np.unique(ids, return_inverse=True)
        new = [self.known.get(int(one), int(one)) for one in distinct]
        return np.asarray(new, np.int64)[where].reshape(np.shape(ids))

    def text(self, data: bytes) -> bytes:
        """Characters of the same kinds, the same for the same text."""
        dice = random.Random(self.key + data)
        kinds = (b"0123456789", b"abcdef", b"ghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        return bytes(
            next((dice.choice(kind) for kind in kinds if byte in kind), byte) for byte in data
        )

    def numbers(self, data: bytes, row_bytes: int, kind: GgmlType | None) -> bytes:
        """Other numbers of the same type and size: what is zero or not finite stays."""
        if not data:
            return data
        row_bytes = row_bytes if 0 < row_bytes <= len(data) else len(data)
        whole = len(data) - len(data) % row_bytes
        rows = np.frombuffer(data[:whole], np.uint8).reshape(-1, row_bytes)
        changed = self._rows(rows, kind).tobytes()
        return changed + (self.numbers(data[whole:], 0, kind) if whole < len(data) else b"")

    def _rows(self, rows: NDArray[np.uint8], kind: GgmlType | None) -> NDArray[np.uint8]:
        name = kind.name if kind is not None else ""
        n_rows, size = rows.shape
        if kind is not None and kind.row_prefix_bytes and size > kind.row_prefix_bytes:
            prefix = np.ascontiguousarray(rows[:, : kind.row_prefix_bytes])
            codes = np.ascontiguousarray(rows[:, kind.row_prefix_bytes :])
            return np.concatenate([self._rows(prefix, None), self._rows(codes, _CODES)], axis=1)
        if kind is not None and kind.block_elements > 1 and not size % kind.block_bytes:
            blocks = rows.reshape(-1, kind.block_bytes)
            head = 2 * _F16_HEAD.get(name, 1)
            scales = self._rows(np.ascontiguousarray(blocks[:, :head]), _HALF)
            noise = self._noise(blocks, -(-(kind.block_bytes - head) // 8))
            codes = noise.view(np.uint8)[:, : kind.block_bytes - head]
            live = blocks[:, head:].any(axis=1, keepdims=True)
            return np.concatenate([scales, np.where(live, codes, 0)], axis=1).reshape(n_rows, size)
        width = {"f16": 2, "bf16": 2, "half": 2, "codes": 1}.get(name, 4)
        if size % width:
            width = 1
        words = rows.view(f"<u{width}")
        noise = self._noise(rows, words.shape[1])
        if width == 1:
            return np.where(words == 0, 0, 1 + noise % np.uint64(255)).astype(np.uint8)
        mantissa = {"f16": 10, "half": 10, "bf16": 7}.get(name, 23)
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


_HALF, _CODES = GgmlType(-1, "half", 1, 2), GgmlType(-1, "codes", 1, 1)


def _magnitudes(most: int) -> Iterator[tuple[int, int]]:
    """Ranges of ids that are replaced among themselves."""
    yield 0, _CONTROL
    low = _CONTROL
    while low <= most:
        yield low, min(2 * low, most + 1)
        low *= 2


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
    return np.where(live, changed, np.where(subnormal, small, words))


def _ids(report: Report) -> NDArray[np.int64]:
    """All token ids of a file, wherever they are."""
    if report.container is not None:
        return np.zeros(0, np.int64) if report.tokens is None else report.tokens.ids
    found = [np.zeros(0, np.int64)]
    for piece, node in _all_pieces(report.source, _decoding(report)):
        for data, dtype in _token_columns(piece, node):
            found.append(np.frombuffer(data, dtype)["tok"].astype(np.int64))
    return np.concatenate(found)


def _decoding(report: Report) -> Decoding:
    reading = report.identification.reading
    if reading is None or reading.layout.format == "gguf":
        raise Refused(f"{report.name}: it is not known where its tokens are")
    if report.size > _LARGEST:
        raise Refused(f"{report.name}: too large to be shown; `slotscope repair --at` shortens it")
    return reading.decoding


def _all_pieces(source: Source, decoding: Decoding) -> Iterator[tuple[Piece, Node | None]]:
    """All bytes of a file with what they are, also inside blobs."""
    nodes = dict(walk(decoding.root))
    at = decoding.root.span.start
    for piece in reshaped(source, decoding, Change()):
        node = nodes.get(piece.path)
        layout = by_id(str(node.facts["layout"])) if node and "layout" in node.facts else None
        at += len(piece.data)
        if not piece.path and at == decoding.root.span.stop and decoding.layout is not _SCKP:
            rest = decode(source, _SCKP, Span(at - len(piece.data), at))
            if rest.complete:  # checkpoints behind a magic that is none
                yield from _all_pieces(source, rest)
                continue
        if node is None or layout is None:
            yield piece, node
        else:
            yield from _all_pieces(source, decode(source, layout, node.span))


def _token_columns(piece: Piece, node: Node | None) -> Iterator[tuple[bytes, np.dtype[np.void]]]:
    """The bytes of a table that holds token ids, and how they lie in its rows."""
    rows = node.value if node is not None else None
    if not isinstance(rows, Rows) or not len(rows):
        return
    dtype = np.dtype(list(rows.fields))
    con = piece.con
    if (
        isinstance(con, Table)
        and isinstance(con.row, Scalar)
        and (con.row is LLAMA_TOKEN or "token" in piece.path.rpartition(".")[2])
    ):
        yield piece.data, np.dtype([("tok", rows.fields[0][1])])
    elif "tok" in (dtype.names or ()) and dtype.itemsize * len(rows) == len(piece.data):
        yield piece.data, dtype


def _copy(report: Report, scrambler: _Scrambler) -> bytes:
    if report.container is not None:
        return _document(report, scrambler)
    decoding = _decoding(report)
    source, blocks = report.source, _blocks(decoding.root)
    out, at = bytearray(), decoding.root.span.start
    for piece, node in _all_pieces(source, decoding):
        out += _changed(piece, node, blocks, at + len(out), scrambler)
    if len(out) != report.size:
        raise Refused(f"{report.name}: not all of its bytes are understood")
    return bytes(out)


def _changed(
    piece: Piece, node: Node | None, blocks: dict[int, Block], at: int, scrambler: _Scrambler
) -> bytes:
    for data, dtype in _token_columns(piece, node):
        table = np.frombuffer(data, dtype).copy()
        table["tok"] = scrambler.ids(table["tok"].astype(np.int64))
        return table.tobytes()
    if isinstance(piece.con, Text):
        return scrambler.text(piece.data)
    if isinstance(piece.con, Scalar | Table | Record) or (node and isinstance(node.value, Rows)):
        if piece.path.endswith("hash") and not piece.path.endswith("state_hash"):
            return random.Random(scrambler.key + piece.data).randbytes(len(piece.data))
        return piece.data
    block = blocks.get(at)
    if block is None:
        return scrambler.numbers(piece.data, 0, None)
    kind = block.readings[0] if block.readings else None
    row_bytes = block.n_cells * block.element_bytes or block.row_bytes
    return scrambler.numbers(piece.data, row_bytes, kind)


def _blocks(root: Node) -> dict[int, Block]:
    """The blocks of all sections, also in blobs, by where their numbers begin."""
    roots = [root, *(node for _, node in walk(root) if "layout" in node.facts)]
    found = {}
    for part in roots:
        for section in sections(part):
            for block in section.blocks:
                start = block.data.start if block.data is not None else block.span.stop
                found[start] = block
    return found


def _document(report: Report, scrambler: _Scrambler) -> bytes:
    """A token list in JSON."""
    container = report.container
    if container is None or container.format != "ik-tokens" or container.tokens is None:
        raise Refused(f"{report.name}: containers of other programs are not anonymized")
    text = report.source.read_at(0, report.size).decode("utf-8", "replace")
    document = json.loads(text)
    document["tokens"] = scrambler.ids(container.tokens).tolist()
    return json.dumps(document, separators=(",", ":")).encode()


def _put_hashes_right(whole: list[tuple[str, Path, Report]], files: dict[str, bytes]) -> None:
    """Write the hash of the copy where a sidecar holds that of the state."""
    state = whole[0][2]
    before = state.source.read_at(0, state.size)
    for suffix, _, report in whole:
        for piece_at, held in _state_hashes(report):
            if held == fnv1a(before):
                new = fnv1a(files[""]).to_bytes(8, "little")
                data = files[suffix]
                files[suffix] = data[:piece_at] + new + data[piece_at + 8 :]


def _state_hashes(report: Report) -> Iterator[tuple[int, int]]:
    reading = report.identification.reading
    for _, node in walk(reading.decoding.root) if reading is not None else ():
        if node.name == "state_hash" and isinstance(node.value, int):
            yield node.span.start, node.value


def _check(path: Path, report: Report, files: dict[str, bytes]) -> None:
    """See that the copies read as the originals do.

    Raises:
        Refused: if they do not.
    """
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
            differences = [what for what, says in _SAYS.items() if says(report) != says(after)]
    if differences:
        raise Refused(f"the copy would have other {' and '.join(differences)}")


def _findings(report: Report) -> list[tuple[str, str, Span | None]]:
    return [
        (one.code, one.path, None if one.carrier.endswith(".json") else one.span)
        for one in report.findings
        if not one.code.startswith(_NOT_COPIED)
    ]


_SAYS: dict[str, Callable[[Report], object]] = {
    "findings": _findings,
    "sections": lambda report: [
        (part.kind, part.path, part.span, part.cells, part.pos.tolist()) for part in report.sections
    ],
    "structure": lambda report: (
        report.identification.verdict,
        report.identification.reading and report.identification.reading.layout.id,
    ),
}
