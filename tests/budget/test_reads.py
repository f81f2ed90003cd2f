"""What a file of many GiB costs to look at: bytes read, seconds, memory; also one that lies."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from formats.layouts import marked_layouts
from inspector.identify import Verdict
from inspector.node import Kind, leaves
from inspector.render.as_json import to_dict
from inspector.report import examined
from tests.support.meter import python, write_sparse
from tests.support.writer import (
    DIALECTS,
    F16,
    F32,
    Cache,
    Context,
    Dialect,
    IkMemory,
    Memory,
    Packable,
    Recurrent,
    Row,
    Session,
    Slot,
    Tokens,
    cells_of,
    checkpoint,
)

ROOT = Path(__file__).resolve().parents[2]

GIB = 1 << 30
LARGE = 16 * GIB
PER_CANDIDATE = 64 << 10
MOST_BYTES_READ_IN_VAIN = 8 << 20
MOST_SECONDS = 2.0
MOST_MEMORY = 120 << 20

N_CELLS = 200_000
TOKENS = Tokens(tuple(1 + i % 32000 for i in range(N_CELLS)))
CELLS = cells_of(TOKENS)
N_LAYER = 32
ROWS = (Row(F16, 1344),) * N_LAYER
"""Keys and values of all cells are 16 GiB together."""
ATTENTION = Cache((CELLS,), ROWS, ROWS)
N_RECORDS = 32
RECORD_BYTES = 150_000_000


@dataclass(frozen=True)
class Cost:
    """What a report took.

    Attributes:
        bytes_read: from the file.
        seconds: of the processor.
        metadata_bytes: everything in the file but tensors and what nobody claims.
        layout: the layout it is read as, empty if none explains it.
        verdict: how well that does.
    """

    bytes_read: int
    seconds: float
    metadata_bytes: int
    layout: str
    verdict: Verdict


def inspected(path: Path) -> Cost:
    """The cost of a report that is made into a document."""
    start = time.process_time()
    with examined(path) as report:
        json.dumps(to_dict(report))
        seconds = time.process_time() - start
        reading, root = report.identification.reading, report.identification.root
        metadata = [
            len(leaf.span)
            for leaf in (leaves(root) if root is not None else ())
            if leaf.kind in (Kind.FIELD, Kind.TABLE)
        ]
        layout = "" if reading is None else reading.layout.id
        read, verdict = report.source.bytes_read, report.identification.verdict
    return Cost(read, seconds, sum(metadata), layout, verdict)


_COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from inspector.cli import main
main()
"""


def peak_of_inspect(path: Path, *options: str) -> int:
    """The largest memory of a process that inspects the file, in bytes."""
    arguments = [str(ROOT), "inspect", "--fail-on", "never", *options, str(path)]
    usage = python(_COMMAND, *arguments, scratch=path.parent)
    assert usage.returncode == 0, usage.stderr
    return usage.peak_bytes


# -- large states ----------------------------------------------------------------------------------


def recurrent(dialect: Dialect, state_bytes: int) -> Recurrent:
    """The state of one layer at the last token."""
    last = CELLS[-1:]
    return Recurrent(last, N_LAYER, (Row(F32, 98304),), (Row(F32, state_bytes // 4 * 4),))


def hybrid(*, with_checkpoints: bool) -> Slot:
    dialect = DIALECTS["rotated"]
    memory = Memory({"attn": ATTENTION, "recr": recurrent(dialect, RECORD_BYTES)}, dialect)
    counts = range(N_CELLS // N_RECORDS, N_CELLS + 1, N_CELLS // N_RECORDS)
    then = (
        Memory({"recr": Recurrent(CELLS[n - 1 : n], N_LAYER, state.r, state.s)}, dialect)
        for n in counts
        if isinstance(state := memory.sections["recr"], Recurrent)
    )
    records = tuple(checkpoint(one, n) for one, n in zip(then, counts, strict=True))
    return Slot(4, TOKENS, memory, records if with_checkpoints else None)


def kv() -> Slot:
    return Slot(4, TOKENS, Memory({"attn": ATTENTION}, DIALECTS["rotated"]))


def whole_context() -> Session:
    """Two sequences that share their cells."""
    cells = tuple(cell._replace(seq_ids=(0, 1)[: 1 + cell.pos % 2]) for cell in CELLS)
    memory = Memory({"attn": Cache((cells,), ROWS, ROWS)}, Dialect(ids="all", rotation=True))
    return Session(11, TOKENS.ids, Context(b"llama", memory))


def ik() -> Slot:
    return Slot(4, TOKENS, IkMemory(4, CELLS, ROWS, ROWS))


STATES: dict[str, Callable[[], Packable]] = {
    "ggsq4.kv": kv,
    "ggsq4.hybrid": lambda: hybrid(with_checkpoints=False),
    "ggsq4.hybrid with checkpoints": lambda: hybrid(with_checkpoints=True),
    "ggsn11.kv": whole_context,
    "ik4": ik,
}


@pytest.mark.parametrize("name", STATES)
def test_a_large_state(name: str, tmp_path: Path) -> None:
    path = tmp_path / "slot.bin"
    write_sparse(path, STATES[name]())
    assert path.stat().st_size > LARGE
    cost = inspected(path)
    assert (cost.layout, cost.verdict) == (name.partition(" ")[0], Verdict.RECOGNISED)
    with path.open("rb") as file:
        candidates = marked_layouts(file.read(4))
    assert cost.bytes_read <= cost.metadata_bytes + PER_CANDIDATE * len(candidates)
    assert cost.seconds < MOST_SECONDS
    assert peak_of_inspect(path, "--json") < MOST_MEMORY
    assert peak_of_inspect(path) < MOST_MEMORY


# -- large lies ------------------------------------------------------------------------------------

EVERYTHING = 0xFFFFFFFF
A_BILLION = 1_000_000_000
GGSQ, GGSN, SCKP, PKCL, GGUF = (
    int.from_bytes(magic, "little") for magic in (b"qsgg", b"nsgg", b"SCKP", b"PKCL", b"GGUF")
)


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


HOSTILE = {
    "nothing": b"",
    "ones": b"\xff" * 4096,
    "tokens of a slot": words(GGSQ, 2, EVERYTHING),
    "a billion tokens of a slot": words(GGSQ, 2, A_BILLION),
    "packed tokens": words(GGSQ, 4, A_BILLION, EVERYTHING, 1, A_BILLION, A_BILLION),
    "streams": words(GGSQ, 2, 1, 5, EVERYTHING),
    "cells of a slot": words(GGSQ, 2, 1, 5, 1, EVERYTHING),
    "a billion cells of a slot": words(GGSQ, 2, 1, 5, 1, A_BILLION),
    "layers of a slot": words(GGSQ, 2, 1, 5, 1, 1, 0, 1, 0, 0, EVERYTHING),
    "a million layers of a slot": words(GGSQ, 2, 1, 5, 1, 1, 0, 1, 0, 0, 1_000_000),
    "cells of a sequence of ik_llama.cpp": words(GGSQ, 4, 1, 5, EVERYTHING),
    "tokens of a context": words(GGSN, 11, EVERYTHING),
    "an architecture": words(GGSN, 11, 0, EVERYTHING),
    "sequences of a cell": words(GGSN, 11, 0, 0, 1, 2, 0, EVERYTHING),
    "outputs": words(GGSN, 9, 0, 0, EVERYTHING),
    "logits": words(GGSN, 9, 0, 0, 0, EVERYTHING, EVERYTHING),
    "checkpoints behind a slot": words(GGSQ, 4, 0, *(0,) * 7, SCKP, 1, EVERYTHING),
    "checkpoints": words(PKCL, 1, EVERYTHING),
    "a million checkpoints": words(PKCL, 1, 1_000_000),
    "checkpoints of ik_llama.cpp": words(GGSQ, 3, EVERYTHING, 0),
    "metadata of a model": words(GGUF, 3, 0, 0, EVERYTHING, EVERYTHING),
    "tensors of a model": words(GGUF, 3, EVERYTHING, 0, 0, 0),
    "strings of a model": words(GGUF, 3, 0, 0, 1, 0, 1, 0) + b"a" + words(9, 8, A_BILLION, 0),
    "a model's string": words(GGUF, 3, 0, 0, 1, 0, A_BILLION, 1),
    "a token list": b'{"tokens":[' + b"1," * 1000,
    "brackets": b"[" * 100_000,
    "a pickle": b"\x80\x04\x95" + b"\xff" * 8,
    "a pickled string": b"\x80\x04\x8d" + b"\xff" * 4 + bytes(4),
    "an SQLite database": b"SQLite format 3\0" + bytes([16, 0, 1, 1, 0, 64, 32, 32]),
}
"""What a file begins with that is zeros for the rest of its 16 GiB."""


def write_zeros(path: Path, head: bytes) -> None:
    """A file of 16 GiB that begins with `head`."""
    with path.open("wb") as out:
        out.write(head)
        out.truncate(LARGE)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_large_lie(name: str, tmp_path: Path) -> None:
    path = tmp_path / "slot.bin"
    write_zeros(path, HOSTILE[name])
    cost = inspected(path)
    assert cost.bytes_read < MOST_BYTES_READ_IN_VAIN
    assert cost.seconds < MOST_SECONDS
    assert peak_of_inspect(path, "--json") < MOST_MEMORY


@pytest.mark.parametrize("n_cells", [1_000_000, 16_000_000, A_BILLION, EVERYTHING])
def test_a_lie_about_cells_that_have_to_be_read(n_cells: int, tmp_path: Path) -> None:
    """Where every cell lists its sequences, only the cells say where they end: in vain here."""
    path = tmp_path / "context.bin"
    write_zeros(path, words(GGSN, 11, 0, 0, 1, n_cells))
    assert inspected(path).seconds < 5 * MOST_SECONDS
    assert peak_of_inspect(path, "--json") < MOST_MEMORY
