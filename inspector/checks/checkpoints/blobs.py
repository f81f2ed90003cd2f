"""The blob of a checkpoint: whether it loads, and whether it is of this state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from inspector.checkpoints import Blob, CheckpointRecord
from inspector.checks.checkpoints.subject import ListSubject, counted_bytes
from inspector.findings import Finding
from inspector.node import Rows, join
from inspector.sections import Block, Section

_SAMPLED_ROWS = 8
_SAMPLED_BYTES = 256

_SHAPE = ("n_layer", "n_stream", "cell_ext", "v_trans", "keys", "values", "R rows", "S rows")
_BLOCKS = ("keys", "values", "R rows", "S rows")


def check_blob(subject: ListSubject, record: CheckpointRecord) -> Iterator[Finding]:
    """Whether the target blob loads."""
    blob = record.blob
    if not record.n_tgt:
        yield subject.of_blob("blob-empty", record, "has no target blob", "a state", "0 bytes")
    elif blob is None:
        yield subject.of_blob(
            "blob-unreadable",
            record,
            f"has {record.n_tgt:,} bytes that no layout of a state explains",
            "the state of one sequence",
            f"{record.n_tgt:,} bytes",
        )
    elif subject.needs_prefix and not blob.prefixed:
        yield subject.of_blob(
            "blob-prefix",
            record,
            "begins without the magic of a sequence state",
            "d8 3c 14 af and a sequence id",
            "neither",
        )
    elif not blob.ended:
        yield subject.of_blob(
            "blob-truncated",
            record,
            f"has {record.n_tgt:,} bytes, fewer than its own counts need ({blob.layout})",
            "as many bytes as its counts need",
            f"{record.n_tgt:,} bytes",
        )
    elif blob.rest is not None:
        yield subject.of_blob(
            "blob-trailing-bytes",
            record,
            f"has {counted_bytes(len(blob.rest))} behind its state ({blob.layout})",
            f"{record.n_tgt - len(blob.rest):,} bytes",
            f"{record.n_tgt:,} bytes",
        )
    else:
        spoilt = [*_geometry(subject, record, blob), *_sequences(subject, record, blob)]
        yield from spoilt
        if not spoilt:
            yield from _cells(subject, record, blob)


def _geometry(subject: ListSubject, record: CheckpointRecord, blob: Blob) -> Iterator[Finding]:
    """The sections of the blob against those of the state that they were taken from."""
    state = subject.state
    if state is None or not state.sections:
        return
    stored, expected = _kinds(blob.sections), _kinds(state.partial)
    if "dsv4" in expected:  # its partial form leaves out tensors of every layer
        return
    if stored != expected:
        yield subject.of_blob(
            "blob-geometry",
            record,
            f"holds {' and '.join(stored)}, not what a checkpoint of this memory holds",
            " and ".join(expected),
            " and ".join(stored),
        )
        return
    for mine, own in zip(blob.sections, state.partial, strict=True):
        if not mine.cells or not own.cells:
            continue
        if mine.node.facts.get("rotation", False) != own.node.facts.get("rotation", False):
            says = {True: "with rotation words", False: "without rotation words"}
            yield subject.of_blob(
                "blob-rotation",
                record,
                f"is stored {says[bool(mine.node.facts.get('rotation'))]}, unlike the state",
                says[bool(own.node.facts.get("rotation"))],
                says[bool(mine.node.facts.get("rotation"))],
            )
            return
        for what, here, there in zip(_SHAPE, _shape(mine), _shape(own), strict=True):
            if here != there and not (what in _BLOCKS and not mine.blocks):
                yield subject.of_blob(
                    "blob-geometry",
                    record,
                    f"has {what} {here} in its {own.kind} section, the state {there}",
                    f"{what} {there}",
                    f"{what} {here}",
                )
                return


def _sequences(subject: ListSubject, record: CheckpointRecord, blob: Blob) -> Iterator[Finding]:
    """A blob holds one sequence: every cell has as many ids as its format has room for."""
    for section in blob.sections:
        for table in section.tables:
            names = [name for name, _ in table.fields]
            if table.ragged or "n_seq_id" not in names:
                continue
            found, fits = table.column("n_seq_id"), int("seq_id" in names)
            wrong = np.flatnonzero(found != fits)
            if len(wrong):
                index = int(wrong[0])
                yield subject.of_blob(
                    "blob-unreadable",
                    record,
                    f"holds cell {index} with n_seq_id {found[index]}: {len(wrong):,} of its "
                    f"{len(found):,} cells are such",
                    f"n_seq_id {fits}",
                    f"n_seq_id {found[index]}",
                )
                return


def _cells(subject: ListSubject, record: CheckpointRecord, blob: Blob) -> Iterator[Finding]:
    """The first cell that stands where no writer puts one; the rest of the blob loads with it."""
    for section in blob.sections:
        if section.kind == "dsv4":
            continue
        inside = f"{section.path}.streams" if section.node.get("streams") else section.path
        for table, stream in zip(section.tables, section.streams, strict=True):
            path = f"{inside}[{stream}].cells" if section.node.get("streams") else f"{inside}.cells"
            pos = table.column("pos")
            wrong = np.flatnonzero(pos < 0)
            says, expected = "a negative position", "at least 0"
            if not len(wrong):
                wrong = _repeated(subject, table, pos)
                says, expected = "the position of another cell", "each position once"
            if len(wrong):
                index = int(wrong[0])
                yield subject.finding(
                    "appendix.blob-cells" if subject.appended else "checkpoint.blob-cells",
                    join(blob.path, f"{path}[{index}].pos"),
                    table.field_span(index, "pos"),
                    f"checkpoint {record.index} holds cell {index} at {pos[index]}, {says}: "
                    f"{len(wrong):,} of its {len(pos):,} cells are such",
                    expected,
                    f"{pos[index]}",
                )
                return


def _repeated(subject: ListSubject, table: Rows, pos: NDArray[np.int64]) -> NDArray[np.int64]:
    """The cells at a position that an earlier one has; those of one image differ in x or y."""
    names = [name for name, _ in table.fields if name in ("x", "y")]
    text = subject.state is not None and not subject.state.tokens.media
    columns = [pos] if text else [pos, *(table.column(name) for name in names)]
    _, first = np.unique(np.stack(columns, 1), axis=0, return_index=True)
    return np.setdiff1d(np.arange(len(pos)), first, assume_unique=True)


def check_contents(subject: ListSubject, record: CheckpointRecord) -> Iterator[Finding]:
    """What a target blob holds that loads."""
    if record.blob is not None:
        if not subject.recurrent(record):
            yield from _covers_window(subject, record, record.blob)
        yield from _rows(subject, record, record.blob)


def _covers_window(subject: ListSubject, record: CheckpointRecord, blob: Blob) -> Iterator[Finding]:
    window, last = subject.window, blob.sections[0].pos_max if blob.sections else None
    if window is None or len(blob.sections) != 1 or last is None:
        return
    first = max(0, last - window + 1)
    held = set(blob.sections[0].pos.tolist())
    missing = [pos for pos in range(first, last) if pos not in held]
    if not missing:
        return
    code = "checkpoint.window-short" if missing == [first] else "checkpoint.window-gap"
    yield subject.of_record(
        code,
        record,
        "data_tgt",
        f"lacks {len(missing)} of the {window} positions of the window, the first at {missing[0]}",
        f"positions {first} to {last - 1}",
        f"{len(held)} cells",
    )


def _rows(subject: ListSubject, record: CheckpointRecord, blob: Blob) -> Iterator[Finding]:
    """Rows at positions that are in the state too: the first layer's depend on little else."""
    for kind, pos, here, there, alike in _compared(subject, blob):
        if not alike:
            yield subject.of_record(
                "checkpoint.other-content",
                record,
                "data_tgt",
                f"holds another {kind} row for position {pos} than the state",
                f"the row at 0x{there:x} of the state",
                f"the row at 0x{here:x}",
            )
            return


def has_rows_of_state(subject: ListSubject, record: CheckpointRecord) -> bool:
    """Whether a record and the state have rows of the same positions, and the same ones."""
    compared = list(_compared(subject, record.blob)) if record.blob is not None else []
    return bool(compared) and all(alike for *_, alike in compared)


def _compared(subject: ListSubject, blob: Blob) -> Iterator[tuple[str, int, int, int, bool]]:
    """Kind, position, offset in the list and in the state of a few rows, and if they are alike."""
    state = subject.state
    if state is None or _kinds(blob.sections) != _kinds(state.partial):
        return
    for mine, own in zip(blob.sections, state.partial, strict=True):
        theirs = _places(own)
        common = [(pos, at) for pos, at in _places(mine).items() if pos in theirs]
        sample = common[:: max(1, len(common) // _SAMPLED_ROWS)][:_SAMPLED_ROWS]
        for pos, at in sample:
            here = subject.source.read_at(at, _row_bytes(mine))
            there = state.source.read_at(theirs[pos], _row_bytes(own))
            if any(here) and any(there):
                yield own.kind, pos, at, theirs[pos], _alike(here, there) >= 0.5


def _shape(section: Section) -> tuple[object, ...]:
    """What must be equal in a checkpoint and in the state, in the order of `_SHAPE`."""
    words = (section.n_layer, section.n_stream, section.cell_ext, section.v_trans)
    blocks = (section.k, section.v, section.r, section.s)
    return words + tuple(" ".join(f"{b.type_name}:{b.row_bytes}" for b in row) for row in blocks)


def _first_block(section: Section) -> Block | None:
    """The first stored block that has a row per cell."""
    return next((b for b in section.k + section.r if b.data is not None and b.row_bytes), None)


def _row_bytes(section: Section) -> int:
    block = _first_block(section)
    return min(block.row_bytes, _SAMPLED_BYTES) if block is not None else 0


def _places(section: Section) -> dict[int, int]:
    """Position -> offset of its row in the first block; without positions that two cells have."""
    block = _first_block(section)
    if block is None or block.data is None or len(section.pos) != block.n_cells:
        return {}
    start, size, positions = block.data.start, block.row_bytes, section.pos.tolist()
    once = {pos for pos, count in Counter(positions).items() if count == 1}
    return {pos: start + i * size for i, pos in enumerate(positions) if pos in once}


def _alike(here: bytes, there: bytes) -> float:
    """The part of 16-bit words that two rows have in common."""
    pairs = zip(here[::2], here[1::2], there[::2], there[1::2], strict=False)
    same = sum(a == c and b == d for a, b, c, d in pairs)
    return same / max(1, min(len(here), len(there)) // 2)


def _kinds(sections: tuple[Section, ...]) -> tuple[str, ...]:
    """The kinds of sections as far as their own bytes tell: one cache looks like another."""
    own = ("recurrent", "dsv4")
    return tuple(s.kind if s.kind in own else "an attention cache" for s in sections)
