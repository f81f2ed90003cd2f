"""What commands cost, as ratios: `python -m tests.benchmarks`.

Each is the best processor time of several runs, divided by that of what it is compared with.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from json import dumps
from pathlib import Path

from inspector.render.as_json import to_dict
from inspector.report import examined
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
COMMANDS = (("inspect",), ("inspect", "--json"), ("check",), ("check", "--json"))
STATES = (".bin", ".slot", ".ckpt", ".checkpoints")
DEEP_BYTES = 256 << 20
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


def main() -> None:
    python = sys.executable
    libraries = seconds(python, "-c", "import construct, numpy, typer, rich")
    typer = seconds(python, "-c", "import typer")
    report("slotscope --help", "import typer", seconds(python, *MAIN, "--help") / typer, 1.3)
    with tempfile.TemporaryDirectory() as folder:
        large = str(large_slot(Path(folder)))
        for words in COMMANDS:
            ratio = seconds(python, *MAIN, *words, large) / libraries
            report(f"slotscope {' '.join(words)}, 16 GiB", "import of the libraries", ratio, 1.5)
        noise = Path(folder, "noise.slot")
        tokens = Tokens(tuple(range(1, 4097)))
        row_bytes = DEEP_BYTES // 4096 // 8
        rows = (Row(F16, row_bytes),) * 4
        memory = Memory({"attn": Cache((cells_of(tokens),), k=rows, v=rows)}, DIALECTS[""])
        noise.write_bytes(pack(Slot(2, tokens, memory), values=_numbers).data)
        deep = seconds(python, *MAIN, "inspect", "--deep", str(noise))
        deep -= seconds(python, *MAIN, "inspect", str(noise))
        speed = seconds("sha256sum", str(noise)) / deep
        report("reading tensors, speed", "sha256sum", speed, 0.5)
    print(f"reports in one process: {files_per_second():.0f} files a second")


def _numbers(part: str, layer: int, pos: int, size: int) -> bytes:
    """Ordinary half floats."""
    return bytes((layer + pos) % 251 if i % 2 == 0 else 0x3A for i in range(64)) * (size // 64)


if __name__ == "__main__":
    main()
