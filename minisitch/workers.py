"""A segment's tasks to the cores.

In: a kernel ``function(first, last, *args)`` that releases the interpreter lock, and how many tasks there are.
Out: nothing; every task was run exactly once.

The caller's thread works too, so a machine with one core, a busy pool and a small job all take the same road: the
plain call. Threads are started at the first use, sleep when there is nothing to do and never spin.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

SERIAL_BELOW = 250_000  # element-operations; below, waking a thread costs more than it saves
CHUNKS_EACH = 4  # chunks a thread, so that a core disturbed by other programs does not hold up the rest

_limit: ContextVar[int | None] = ContextVar("minisitch_threads", default=None)
_busy = threading.Lock()  # held by the one caller that has the pool; any other runs serially
_inboxes: list[queue.SimpleQueue[_Job]] = []  # one a worker thread


def run(function: Callable[..., None], tasks: int, args: tuple[Any, ...], *, work: int) -> None:
    """Call ``function(first, last, *args)`` until [0, ``tasks``) is covered; ``work`` is the job's size in all."""
    threads = min(thread_count(), tasks) if work >= SERIAL_BELOW else 1
    if threads <= 1 or not _busy.acquire(blocking=False):
        function(0, tasks, *args)
        return
    try:
        _in_parallel(function, tasks, args, threads)
    finally:
        _busy.release()


def thread_count() -> int:
    """How many threads a job may use: ``threads(n)`` in force here, else MINISITCH_THREADS, else one a core."""
    return _limit.get() or _default_threads()


@contextlib.contextmanager
def threads(n: int) -> Iterator[None]:
    """Let jobs started inside the block use at most ``n`` threads, the caller's included."""
    if n < 1:
        raise ValueError(f"threads({n}): at least one thread, the caller's, does the work")
    token = _limit.set(n)
    try:
        yield
    finally:
        _limit.reset(token)


class _Job:
    """One call of ``run``: who wants a chunk takes the next number; who finishes the last one wakes the caller."""

    def __init__(self, function: Callable[..., None], tasks: int, args: tuple[Any, ...], chunks: int):
        self.function, self.tasks, self.args, self.chunks = function, tasks, args, chunks
        self.started, self.finished = itertools.count(), itertools.count(1)  # next() is atomic
        self.all_finished = threading.Lock()
        self.all_finished.acquire()
        self.error: BaseException | None = None

    def work(self) -> None:
        for chunk in self.started:
            if chunk >= self.chunks:
                return
            try:
                if self.error is None:
                    first, last = (n * self.tasks // self.chunks for n in (chunk, chunk + 1))
                    self.function(first, last, *self.args)
            except BaseException as error:
                self.error = error
            if next(self.finished) == self.chunks:
                self.all_finished.release()


def _in_parallel(function: Callable[..., None], tasks: int, args: tuple[Any, ...], threads: int) -> None:
    while len(_inboxes) < threads - 1:
        inbox: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(inbox,), name="minisitch", daemon=True).start()
        _inboxes.append(inbox)
    job = _Job(function, tasks, args, min(tasks, threads * CHUNKS_EACH))
    for inbox in _inboxes[: threads - 1]:
        inbox.put(job)
    job.work()
    job.all_finished.acquire()  # waits for chunks, not for threads: one that wakes up late finds nothing to do
    if job.error is not None:
        raise job.error


def _serve(inbox: queue.SimpleQueue[_Job]) -> None:
    while True:
        inbox.get().work()


@functools.cache
def _default_threads() -> int:
    setting = os.environ.get("MINISITCH_THREADS", "")
    if setting:
        return max(1, int(setting))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _after_fork() -> None:
    """The child has only the thread that forked: forget the others, and whoever held the pool."""
    global _busy
    _busy = threading.Lock()
    _inboxes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
