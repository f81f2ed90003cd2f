"""What commands cost, as ratios: `python -m tests.benchmarks`.

Each is the best processor time of several runs, divided by that of what it is compared with.
"""

from __future__ import annotations

import compileall
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from json import dumps
from pathlib import Path
from unittest.mock import patch

import numpy as np
from xxhash import xxh3_64

from formats.ggml_types import TYPES
from inspector.arrays.numbers import dequantize
from inspector.arrays.quantize import WRITABLE, quantize
from inspector.arrays.rotation import rotate
from inspector.arrays.transpose import chunks_transposed
from inspector.render.as_json import to_dict
from inspector.repair.draft import Options
from inspector.repair.outcome import carry_out
from inspector.repair.plan import planned
from inspector.report import examined
from inspector.seal import digests
from inspector.server.target import target_of
from inspector.source import opened
from inspector.span import Span
from tests.support.large import large_slot
from tests.support.writer import (
    DIALECTS,
    F16,
    Cache,
    Memory,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
)

ROOT = Path(__file__).resolve().parents[2]
RUNS = 7
N_SAVES = 2000
COMMANDS = (("inspect",), ("inspect", "--json"), ("check",), ("check", "--json"))
STATES = (".bin", ".slot", ".ckpt", ".checkpoints")
DEEP_BYTES, COPIED_BYTES = 256 << 20, 1 << 30
MAIN = ("-c", "from inspector.cli import main; main()")


def seconds(*argv: str) -> float:
    """Processor time of a program, the best of several runs."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(RUNS))


def report(what: str, compared: str, ratio: float, limit: float | None = None) -> None:
    aim = "" if limit is None else f" (aim: {limit})"
    print(f"{what}: {ratio:.2f} times {compared}{aim}")


def files_per_second() -> float:
    """Samples, and real files if they are at hand, that one process can report on."""
    folders = [ROOT / "samples", *(ROOT.parent / "shared").glob("corpus*")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in STATES]
    before = time.process_time()
    for path in files:
        with examined(path) as report:
            dumps(to_dict(report))
    return len(files) / (time.process_time() - before)


def within(run: Callable[[], object]) -> float:
    """Processor time of a call in this process, the best of several runs."""

    def once() -> float:
        before = time.process_time()
        run()
        return time.process_time() - before

    return min(once() for _ in range(RUNS))


def report_numerics() -> None:
    """What it costs to write a cache anew: f16 of 8192 cells and 1024 channels, 1 MiB at a time."""
    kinds = {kind.name: kind for kind in TYPES}
    n_cells, n_channels, step = 8192, 1024, 1 << 20
    numbers = np.random.default_rng(1).normal(0, 1, (n_cells, n_channels)).astype(np.float32)
    stored = quantize(numbers, kinds["f16"]).tobytes()
    pieces = [stored[at : at + step] for at in range(0, len(stored), step)]
    halves = kinds["f16"]

    def requantized(name: str, size: int = 0) -> None:
        for piece in pieces:
            quantize(rotate(dequantize(piece, halves, n_channels), size), kinds[name])

    def transposed(*, to_rows: bool) -> None:
        def read_at(offset: int, size: int) -> bytes:
            return stored[offset : offset + size]

        for _ in chunks_transposed(read_at, 0, n_cells, n_channels, 2, to_rows=to_rows):
            pass

    copied = within(lambda: [bytearray(piece) for piece in pieces])
    tasks: dict[str, Callable[[], None]] = {
        **{f"f16 to {name}": partial(requantized, name) for name in sorted(WRITABLE)},
        "f16 to q8_0, rotated by 128": partial(requantized, "q8_0", 128),
        "values by channel to by cell": partial(transposed, to_rows=True),
        "values by cell to by channel": partial(transposed, to_rows=False),
    }
    for what, task in tasks.items():
        took = within(task)
        speed, ratio = len(stored) / took / 1e6, took / copied
        print(f"{what}: {speed:.0f} MB/s (aim: 150), {ratio:.0f} times a copy of the f16")


def elapsed(run: Callable[[], object]) -> float:
    """Wall clock of a call, the best of three runs."""

    def once() -> float:
        before = time.perf_counter()
        run()
        return time.perf_counter() - before

    return min(once() for _ in range(3))


def report_copies(state: Path) -> None:
    """What it costs to write a copy, against `cp` of that copy on the same disk.

    A repair waits until its copy is on the disk, as `cp` and `sync` do; `cp` alone does not, and is
    compared with a repair that does not either. They take turns, so that who else uses the machine
    slows all of them.
    """
    new, other = state.with_name("new.slot"), state.with_name("other.slot")
    tasks = {
        "trim": ("b10229", "", Options(at=3072)),
        "stream": ("b10229", "-np 4 --no-kv-unified -c 16384", Options()),
        "restamp": ("b10809", "", Options()),
        "relayout": ("b11549", "", Options()),
        "a plain copy": ("", "", Options()),
    }
    for name, (build, words, options) in tasks.items():
        server = f"llama-server {words}" if words else None

        def repaired(
            server: str | None = server, build: str = build, options: Options = options
        ) -> None:
            new.unlink(missing_ok=True)
            with ExitStack() as stack:
                target = stack.enter_context(target_of(server, build, None)) if build else None
                plan = stack.enter_context(planned(state, target, options, new.name))
                carry_out(plan, new, force=True)

        def left_in_memory(repaired: Callable[[], None] = repaired) -> None:
            with patch("os.fsync"), patch("os.posix_fadvise"):
                repaired()

        def copied() -> None:
            other.unlink(missing_ok=True)
            subprocess.run(["cp", new, other], check=True)

        def copied_and_synced() -> None:
            copied()
            subprocess.run(["sync", other], check=True)

        took, left, alone, synced = in_turns(repaired, left_in_memory, copied, copied_and_synced)
        report(f"repair: {name}, speed", "cp and sync of the copy", synced / took, 0.7)
        report(f"repair without sync: {name}, speed", "cp alone", alone / left, 0.7)
    for path in (new, other):
        path.unlink()


def in_turns(*runs: Callable[[], object]) -> list[float]:
    """Wall clock of calls that take turns, the best of several runs of each, on a quiet disk."""

    def once(run: Callable[[], object]) -> float:
        os.sync()
        before = time.perf_counter()
        run()
        return time.perf_counter() - before

    return [
        min(times) for times in zip(*([once(r) for r in runs] for _ in range(RUNS)), strict=True)
    ]


def report_scans(folder: Path) -> None:
    """What a scan of small saves costs, against the function of `inspect` in a loop."""
    saves = sorted((ROOT / "samples/intact").glob("*.slot"))
    paths = [folder / f"{n:05}.bin" for n in range(N_SAVES)]
    for n, path in enumerate(paths):
        path.write_bytes(saves[n % len(saves)].read_bytes())

    def alone() -> None:
        for path in paths:
            with examined(path):
                pass

    command = [sys.executable, *MAIN, "scan", "--json", "--fail-on", "never", str(folder)]
    took = elapsed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))
    print(f"slotscope scan: {N_SAVES / took:.0f} files a second (aim: 400 on two cores)")
    report("slotscope scan, speed", "a loop over inspect's function", elapsed(alone) / took)


def report_seals(path: Path) -> None:
    """What it costs to compare a file with its seal, against xxh3 of it."""
    with opened(path) as source:
        step = source.size // 256
        spans = [Span(at, min(at + step, source.size)) for at in range(0, source.size, step)]

        def library() -> None:
            state, buffer = xxh3_64(), memoryview(bytearray(1 << 20))
            with path.open("rb", buffering=0) as file:
                while n := file.readinto(buffer):
                    state.update(buffer[:n])

        took = within(lambda: list(digests(source, spans)))
        report("scan --verify, speed", "xxh3 of the file", within(library) / took, 0.8)


def main() -> None:
    for package in ("formats", "inspector"):  # as an installed copy is
        compileall.compile_dir(str(ROOT / package), quiet=1)
    python = sys.executable
    libraries = seconds(python, "-c", "import construct, numpy, typer, rich")
    typer = seconds(python, "-c", "import typer")
    report("slotscope --help", "import typer", seconds(python, *MAIN, "--help") / typer, 1.3)
    with tempfile.TemporaryDirectory() as folder:
        large = str(large_slot(Path(folder)))
        for words in COMMANDS:
            ratio = seconds(python, *MAIN, *words, large) / libraries
            report(f"slotscope {' '.join(words)}, 16 GiB", "import of the libraries", ratio, 1.5)
        noise = _noise(Path(folder, "noise.slot"), DEEP_BYTES)
        deep = seconds(python, *MAIN, "inspect", "--deep", str(noise))
        deep -= seconds(python, *MAIN, "inspect", str(noise))
        speed = seconds("sha256sum", str(noise)) / deep
        report("reading tensors, speed", "sha256sum", speed, 0.5)
        report_seals(noise)
        noise.unlink()
        report_copies(_noise(Path(folder, "gib.slot"), COPIED_BYTES))
        saves = Path(folder, "saves")
        saves.mkdir()
        report_scans(saves)
    report_numerics()
    print(f"reports in one process: {files_per_second():.0f} files a second")


def _noise(path: Path, size: int) -> Path:
    """A state of 4,096 tokens and so many bytes."""
    tokens = Tokens(tuple(range(1, 4097)))
    rows = (Row(F16, size // 4096 // 8),) * 4
    memory = Memory({"attn": Cache((cells_of(tokens),), k=rows, v=rows)}, DIALECTS[""])
    path.write_bytes(pack(Slot(2, tokens, memory), values=_numbers).data)
    return path


def _numbers(part: str, layer: int, pos: int, size: int) -> bytes:
    """Ordinary half floats."""
    return bytes((layer + pos) % 251 if i % 2 == 0 else 0x3A for i in range(64)) * (size // 64)


if __name__ == "__main__":
    main()
