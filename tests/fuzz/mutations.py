"""Named mutations of the samples, on our own parser, without atheris: for so long, on all cores.

    python -m tests.fuzz.mutations --seconds 120 --seed 1

`--entry check` and `--entry repair` ask for a verdict and a plan for some server instead. A run
fails with a traceback, after a second of the processor, or over 200 MB; what failed is kept in the
folder that is named. The same seed tries the same files in the same order.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

from inspector.fuzzing.afl import changed
from samples.make import HERE as SAMPLES
from tests.fuzz.entries import ENTRIES

MOST_SECONDS = 1.0
MOST_BYTES = 200 << 20
MOST_OF_A_FILE = 1 << 16
ROUNDS = 200
"""Mutants of a file before the next one: its places are found once."""


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def tried(entry: str, path: Path, *, again: bool = True) -> str:
    """Give a file to an entry; what is wrong with how that went, if anything is.

    What takes too long is given `again`: the machine may have been held up, but not twice.
    """
    start, before = time.thread_time(), peak()
    try:
        ENTRIES[entry](path)
    except Exception:
        return traceback.format_exc()
    took, more = time.thread_time() - start, peak() - before
    if took > MOST_SECONDS and more <= MOST_BYTES and again:
        return tried(entry, path, again=False)
    if took > MOST_SECONDS or more > MOST_BYTES:
        return f"{took:.2f} s, {more >> 20} MB more"
    return ""


def work(entry: str, seed: int, seconds: float, room: str) -> tuple[int, int]:
    """Runs, and how many of them failed."""
    gc.set_threshold(100_000)
    dice, done, failed = random.Random(seed), 0, 0
    seeds = sorted(path for path in SAMPLES.glob("*/*") if path.suffix not in (".toml", ".py"))
    path, end = Path(room, f"{seed}.slot"), time.monotonic() + seconds
    while time.monotonic() < end:
        data = dice.choice(seeds).read_bytes()[:MOST_OF_A_FILE]
        for _ in range(ROUNDS):
            mutated, _ = changed(data, dice, MOST_OF_A_FILE)
            if dice.random() < 0.1:
                mutated, _ = changed(mutated, dice, MOST_OF_A_FILE)
            path.write_bytes(mutated)
            done += 1
            if what := tried(entry, path):
                failed += 1
                kept = path.with_name(f"failed-{seed}-{done}")
                path.rename(kept)
                print(f"{kept}: {what}", flush=True)
            if time.monotonic() >= end:
                break
    return done, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--entry", choices=sorted(ENTRIES), default="inspect")
    asked = parser.parse_args()
    room = tempfile.mkdtemp(prefix="slotscope-mutations-")
    start = time.monotonic()
    with multiprocessing.Pool(asked.jobs) as pool:
        seeds = range(asked.seed, asked.seed + asked.jobs)
        found = pool.starmap(work, [(asked.entry, seed, asked.seconds, room) for seed in seeds])
    done, failed = (sum(column) for column in zip(*found, strict=True))
    rate = done / (time.monotonic() - start)
    print(f"{done - failed:,} reports, {rate:.0f} a second; failures are kept in {room}")
    print(f"{done - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
