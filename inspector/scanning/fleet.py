"""Rows of many files: in this process, on all cores, or on a cluster; always in order."""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, groupby, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from inspector.scanning.scan import Item, Job, Kind, Row, rows_of

FEW = 32
"""Files for which other processes are not worth starting."""
CHUNK = 16
"""Files that a process is given at once."""
_AHEAD = 4
"""Chunks for every worker that are under way."""
N_CONNECTIONS = 24
"""Objects in stores that are looked at at once."""
_PATIENCE = 30
"""Seconds in which a cluster must answer."""
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
    for remote, some in groupby(items, key=lambda item: item.remote):
        if remote:
            yield from _waiting_for_stores(some, job)
        else:
            yield from _on_cores(some, job, n_workers or cores())


def _on_cores(items: Iterator[Item], job: Job, n_workers: int) -> Iterator[Row]:
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


def _waiting_for_stores(items: Iterator[Item], job: Job) -> Iterator[Row]:
    """Rows of objects, many at once, for nearly all of the time is spent waiting."""
    rows_of([], job)
    waiting: deque[Future[list[Row]]] = deque()
    with ThreadPoolExecutor(N_CONNECTIONS) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(rows_of, [item], job))
                if len(waiting) >= N_CONNECTIONS * _AHEAD:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class NoCluster(Exception):
    """A cluster that there is not; the message says why."""


def on_cluster(items: Iterable[Item], job: Job, address: str) -> Iterator[Row]:
    """One row for every item, in order, made by the workers of a Dask cluster.

    They need slotscope, and the same files at the same places. What a worker that dies has under
    way is given to another one.

    Args:
        items: the files; taken as they are needed.
        job: the server to judge for.
        address: of the scheduler.

    Raises:
        NoCluster: if it cannot be reached.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise NoCluster("--dask needs the package distributed") from error
    job = replace(job, folder=str(Path.cwd()))
    try:
        client = Client(address, timeout=_PATIENCE)
    except (OSError, ValueError, TypeError) as error:
        raise NoCluster(f"no cluster answers at {address}") from error
    with client:
        n_ahead = max(1, sum(client.nthreads().values())) * _AHEAD
        chunks, under_way, waiting = _chunks(items), deque[_Chunk](), deque[Any]()
        while True:
            while len(waiting) < n_ahead and (chunk := next(chunks, None)):
                under_way.append(chunk)
                waiting.append(client.submit(rows_of, chunk, job, pure=False, retries=_TRIES))
            if not waiting:
                return
            chunk, future = under_way.popleft(), waiting.popleft()
            if future.exception() is None:
                yield from future.result()
                continue
            for item in chunk:  # one of them kills workers
                future = client.submit(rows_of, [item], job, pure=False)
                lost = future.exception() is not None
                yield from [_lost(item)] if lost else future.result()


def _lost(item: Item) -> Row:
    problem = "the process that looked at it was killed; memory may be short"
    return Row(item.path, Kind.FAILED, named=item.named, problem=problem)


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
                    waiting.append(_submitted(pool, chunk, job))
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
                    yield from _submitted(pool, [left[0]], job).result()
                    left.popleft()
                    killed = 0
            except BrokenProcessPool:
                killed += 1
        if killed == _TRIES:
            killed = 0
            yield _lost(left.popleft())


@contextmanager
def _processes(n: int) -> Iterator[Executor]:
    pool = ProcessPoolExecutor(n, get_context("forkserver"), _begin)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _submitted(pool: Executor, chunk: _Chunk, job: Job) -> Future[list[Row]]:
    """A chunk under way; Ctrl-C waits for processes that are started, which know of none."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        return pool.submit(rows_of, chunk, job)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """What a process does first: Ctrl-C is for the one that the user started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000)
