"""Loads one slot file as servers from b7725 on do, and fails as they do; for tests of drivers.

    python -I -S stand_in.py FILE

Only files of one attention cache: `ggsq` version 2 with n_stream, values not transposed. A state
that is cut aborts the program; an unbelievable count asks for the memory; position -666 hangs, -667
is one that it asserts not to meet.
"""

import os
import struct
import sys
from pathlib import Path

LAYERS, MOST_CELLS = 2, 1 << 20


class Loading:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            sys.stderr.write(
                "terminate called after throwing an instance of 'std::runtime_error'\n"
                f"  what():  unexpectedly reached end of buffer ({self.at} + {size})\n"
            )
            sys.stderr.flush()
            os.abort()
        self.at += size
        return self.data[self.at - size : self.at]

    def word(self) -> int:
        return int(struct.unpack("<I", self.take(4))[0])


def refuse(why: str) -> None:
    sys.stderr.write(f"error: {why}\n")
    raise SystemExit(1)


def blocks(loading: Loading, cells: int) -> None:
    for _ in range(2 * LAYERS):
        kind, row = struct.unpack("<iQ", loading.take(12))
        if kind != 1:
            refuse(f"mismatched type {kind}")
        if row > 1 << 16:
            refuse(f"mismatched row size {row}")
        loading.take(row * cells)


def main() -> None:
    loading = Loading(Path(sys.argv[1]).read_bytes())
    if len(loading.data) < 12 or loading.take(4) != b"qsgg":
        refuse("bad magic")
    if loading.word() != 2:
        refuse("bad version")
    n_tokens = loading.word()
    if 4 * n_tokens > len(loading.data) - 12:
        refuse(f"token count {n_tokens} exceeds the file")
    loading.take(4 * n_tokens)
    if loading.word() != 1:
        refuse("n_stream mismatch")
    cells = loading.word()
    if cells > MOST_CELLS:
        bytearray(1 << 46)
    for _ in range(cells):
        pos, n_seq_id = struct.unpack("<ii", loading.take(8))
        loading.take(4 * n_seq_id)
        if pos == -666:
            while True:
                pass
        if pos == -667:
            sys.stderr.write(f"kv.cpp:31: GGML_ASSERT(pos != {pos}) failed\n")
            sys.stderr.flush()
            os.abort()
    if loading.word() != 0 or loading.word() != LAYERS:
        refuse("mismatched layer count")
    blocks(loading, cells)


main()
