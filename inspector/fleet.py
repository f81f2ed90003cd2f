"""Rows of many files: in this process, on all cores, or on a cluster; always in order."""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import get_context

from inspector.scan import Item, Job, Kind, Row, rows_of

FEW = 32
"""Files for which other processes are not worth starting."""
CHUNK = 16
"""Files that a process is given at once."""
_AHEAD = 4
"""Chunks for every worker that are under way."""
_TRIES = 2
"""How often a file may kill the process that looks at it; the first may be an accident."""

_Chunk = list[Item]


def rows(items: Iterable[Item], job: Job, n_workers: int | None = None) -> Iterator[Row]:
    """One row for every item, in order, made on this machine.

    Args:
        items: the files; taken as they are needed.
        job: the server to judge for.
        n_workers: processes; None for one on every core.
    """
    n_workers = n_workers or cores()
    items = iter(items)
    head = list(islice(items, FEW))
    if n_workers == 1 or len(head) < FEW:
        for item in chain(head, items):
            yield from rows_of([item], job)
        return
    chunks = _chunks(chain(head, items))
    lost: list[_Chunk] | None = []
    while lost is not None:
        yield from _one_by_one(lost, job)
        lost = yield from _ahead(chunks, job, n_workers)


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _chunks(items: Iterable[Item]) -> Iterator[_Chunk]:
    items = iter(items)
    while chunk := list(islice(items, CHUNK)):
        yield chunk


def _ahead(
    chunks: Iterator[_Chunk], job: Job, n_workers: int
) -> Generator[Row, None, list[_Chunk] | None]:
    """Rows of chunks, several of them under way.

    Returns:
        The chunks that were under way when a process was killed; None if all are done.
    """
    under_way: deque[_Chunk] = deque()
    waiting: deque[Future[list[Row]]] = deque()
    with _processes(n_workers) as pool:
        try:
            while True:
                while len(waiting) < n_workers * _AHEAD and (chunk := next(chunks, None)):
                    under_way.append(chunk)
                    waiting.append(pool.submit(rows_of, chunk, job))
                if not waiting:
                    return None
                done = waiting.popleft().result()
                under_way.popleft()
                yield from done
        except BrokenProcessPool:
            return list(under_way)


def _one_by_one(chunks: Iterable[_Chunk], job: Job) -> Iterator[Row]:
    """Rows of chunks of which a file may have killed its process: so that we know which."""
    left, killed = deque(chain.from_iterable(chunks)), 0
    while left:
        with _processes(1) as pool:
            try:
                while left:
                    yield from pool.submit(rows_of, [left[0]], job).result()
                    left.popleft()
                    killed = 0
            except BrokenProcessPool:
                killed += 1
        if killed == _TRIES:
            item, killed = left.popleft(), 0
            problem = "the process that looked at it was killed; memory may be short"
            yield Row(item.path, Kind.FAILED, named=item.named, problem=problem)


@contextmanager
def _processes(n: int) -> Iterator[Executor]:
    pool = ProcessPoolExecutor(n, get_context("forkserver"), _begin)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    """What a process does first: Ctrl-C is for the one that the user started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000)
