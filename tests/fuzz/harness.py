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
from collections.abc import Callable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))
gc.set_threshold(100_000)

with atheris.instrument_imports(include=["formats", "inspector"]):
    from inspector.check import checked
    from inspector.fuzzing.afl import changed
    from inspector.render.as_json import to_dict
    from inspector.repair.draft import Options
    from inspector.repair.plan import planned
    from inspector.repair.state import Refused
    from inspector.report import examined
    from inspector.server.target import target_of

MOST_SECONDS = 1.0
MOST_BYTES = 200 << 20
COMMAND = "llama-server -m {} -c 512 -np 1 -fa on"
MODELS = Path(__file__).parents[1] / "oracle" / "models"


class TooMuch(Exception):
    """A run that took longer, or more memory, than any file is worth."""


def inspect(path: Path) -> None:
    with examined(path, deep=True) as report:
        to_dict(report)


def check(path: Path) -> None:
    model = MODELS / ("qwen35.gguf", "gemma3-iswa.gguf")[path.stat().st_size % 2]
    with target_of(COMMAND.format(model)) as target, checked(path, target):
        pass


def repair(path: Path) -> None:
    with target_of(COMMAND.format(MODELS / "qwen35.gguf")) as target:
        try:
            with planned(path, target, Options(allow_loss=True), "new"):
                pass
        except Refused:
            pass


ENTRIES: dict[str, Callable[[Path], None]] = {"inspect": inspect, "check": check, "repair": repair}
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
