"""Kills repairs at random moments: `python -m tests.support.kills STATE FOLDER WAY KILLS SEED`.

Everything is imported and planned once; a child of this process does the writing, slowed down, and
is killed. Prints how often nothing was found, the state alone, and all of it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspector.repair import apply
from inspector.repair.draft import Options
from inspector.repair.outcome import RECORD, carry_out
from inspector.repair.plan import Plan, planned

PAUSE = 0.0002
SLOW = ("write", "copy_file_range", "link", "unlink", "replace", "fsync", "utime", "ftruncate")
OLD = b"of an earlier repair"
SUFFIXES = ("", ".checkpoints", RECORD)


def slow_down() -> None:
    """Let every call that writes take long enough to be hit."""

    def slowed(call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: Any, **more: Any) -> Any:
            time.sleep(PAUSE)
            found = call(*args, **more)
            time.sleep(PAUSE)
            return found

        return slow

    for name in SLOW:
        setattr(os, name, slowed(getattr(os, name)))
    apply.CHUNK = 1024
    apply._AT_ONCE = 1024


def child(plan: Plan, new: Path, *, force: bool) -> int:
    """Start a repair in a process of its own."""
    number = os.fork()
    if not number:
        try:
            carry_out(plan, new, force=force)
        finally:
            os._exit(0)
    return number


def run(state: Path, folder: Path, way: str, kills: int, seed: int) -> Counter[str]:
    """Kill repairs and look at what each leaves.

    Args:
        state: the original, with companions beside it.
        folder: an empty one to write to.
        way: `nameless` or `hidden`, and `force` behind it to replace what is there.
        kills: how many.
        seed: of the moments.
    """
    moments, found = random.Random(seed), Counter[str]()
    force = way.endswith("force")
    if way.startswith("hidden"):
        apply._nameless = lambda folder: None
    new = folder / "new.bin"
    names = [new.with_name(new.name + suffix) for suffix in SUFFIXES]
    originals = {path: path.read_bytes() for path in state.parent.glob(f"{state.name}*")}
    with planned(state, None, Options(to="llcp1"), new.name) as plan:
        slow_down()
        start = time.perf_counter()
        os.waitpid(child(plan, new, force=force), 0)
        takes = time.perf_counter() - start
        whole = {path: path.read_bytes() for path in names}
        for _ in range(kills):
            for path in folder.iterdir():
                path.unlink()
            if force:
                for path in names[:2]:
                    path.write_bytes(OLD)
            number = child(plan, new, force=force)
            time.sleep(moments.uniform(0, 1.05 * takes))
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
            found[judged(names, whole, force=force)] += 1
            assert {path: path.read_bytes() for path in originals} == originals
    return found


def judged(names: list[Path], whole: dict[Path, bytes], *, force: bool) -> str:
    """What a killed repair left.

    Raises:
        AssertionError: if that is anything but nothing, a whole state, or all of it.
    """
    there = {path: path.read_bytes() for path in names if path.exists()}
    others = {path.name for path in names[0].parent.iterdir()} - {path.name for path in names}
    assert all(name.startswith(".slotscope.") for name in others), others
    state = there.get(names[0])
    if state is None or state == OLD:
        assert (state is None) != force
        assert not there.keys() - {names[0], names[1]}
        assert there.get(names[1], OLD) == OLD
        assert force or not there
        return "nothing"
    assert there == {path: whole[path] for path in names[: len(there)]}
    return "all" if len(there) == len(names) else "state"


if __name__ == "__main__":
    words = sys.argv[1:]
    counts = run(Path(words[0]), Path(words[1]), words[2], int(words[3]), int(words[4]))
    print(*(f"{name}={counts[name]}" for name in ("nothing", "state", "all")))
