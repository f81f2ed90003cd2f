"""libFuzzer, through atheris, on our own parser: any bytes give a report, soon and in little room.

    pip install atheris
    python tests/fuzz/harness.py CORPUS samples/intact -max_len=65536 -runs=100000

`SLOTSCOPE_FUZZ_ENTRY` chooses what is called: `inspect` (the default), `check` or `repair`. A run
fails with a traceback, after a second of the processor, or over 200 MB; what failed is written by
libFuzzer to `crash-…`. `-seed=N` repeats a run.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))
gc.set_threshold(100_000)

with atheris.instrument_imports(include=["formats", "inspector"]):
    from inspector.fuzzing.afl import changed
    from tests.fuzz.entries import ENTRIES

MOST_SECONDS = 1.0
MOST_BYTES = 200 << 20


class TooMuch(Exception):
    """A run that took longer, or more memory, than any file is worth."""


ENTRY = ENTRIES[os.environ.get("SLOTSCOPE_FUZZ_ENTRY", "inspect")]
ROOM = Path(tempfile.mkdtemp(prefix="slotscope-harness-", dir="/dev/shm")) / "state.slot"


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def one_input(data: bytes) -> None:
    ROOM.write_bytes(data)
    start, before = time.thread_time(), peak()
    ENTRY(ROOM)
    took, more = time.thread_time() - start, peak() - before
    if took > MOST_SECONDS or more > MOST_BYTES:
        raise TooMuch(f"{took:.2f} s, {more >> 20} MB more")


def mutated(data: bytes, most: int, seed: int) -> bytes:
    dice = random.Random(seed)
    if dice.random() < 0.5:
        return atheris.Mutate(data, most)
    return changed(bytes(data), dice, most)[0]


def main() -> None:
    atheris.Setup(sys.argv, one_input, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
