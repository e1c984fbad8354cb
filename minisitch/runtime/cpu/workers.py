"""Tasks of a Python function to the cores: a pipeline's tiles, and kernels where ``thread_pool`` cannot work.

In: a ``function(first, last, *args)`` that mostly releases the interpreter lock, and how many tasks there are.
Out: nothing; every task was run exactly once.

The caller's thread works too, so a machine with one core, a busy pool and a small job all take the same road: the
plain call. Threads are started at the first use, sleep when there is nothing to do and never spin. Jobs are cut in
more chunks than threads, and a chunk goes to whoever is free: a thread that wakes up late finds less to do, or
nothing, and nobody waits for it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from ..this_machine import usable_cores

WORTH_PYTHON_THREADS = 4_000_000  # scalar operations, some 100 us of one core: waking a Python thread takes 50 to 100 us
CHUNKS_EACH = 4  # chunks a thread, so that a core disturbed by other programs does not hold up the rest

_limit: ContextVar[int | None] = ContextVar("minisitch_threads", default=None)
_busy = threading.Lock()  # held by the one caller that has the pool; any other runs serially
_inboxes: list[queue.SimpleQueue[_Job]] = []  # one a worker thread


def run(function: Callable[..., None], tasks: int, args: tuple[Any, ...], *, work: int) -> None:
    """Call ``function(first, last, *args)`` until [0, ``tasks``) is covered; ``work`` is all their scalar operations, of which
    one core does less than ``WORTH_PYTHON_THREADS`` by itself.

    An exception that a chunk raises is raised here, after the chunks under way have ended.
    """
    count = min(thread_count(), tasks) if work >= WORTH_PYTHON_THREADS else 1
    busy = _busy  # after a fork inside ``function`` the name means another lock
    if count <= 1 or not busy.acquire(blocking=False):
        function(0, tasks, *args)
        return
    try:
        _in_parallel(function, tasks, args, count)
    finally:
        busy.release()


def runner(function: Callable[..., None], tasks: int, *, work: int) -> Callable[..., None]:
    """``run`` as a function of the arguments alone; for a small job the plain call, with nothing in between."""
    if work < WORTH_PYTHON_THREADS:
        return functools.partial(function, 0, tasks)
    return lambda *args: run(function, tasks, args, work=work)


def is_busy() -> bool:
    """Whether a job is under way; what it calls has one core."""
    return _busy.locked()


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
        self.counting = threading.Lock()
        self.started = self.finished = 0
        self.error: BaseException | None = None
        self.all_finished = threading.Lock()
        self.all_finished.acquire()

    def work(self) -> None:
        """Run chunks until none are left to start."""
        while True:
            with self.counting:
                chunk = self.started
                if chunk == self.chunks:
                    return
                self.started += 1
            try:
                if self.error is None:
                    first, last = chunk * self.tasks // self.chunks, (chunk + 1) * self.tasks // self.chunks
                    self.function(first, last, *self.args)
            except BaseException as error:
                self.error = error
            with self.counting:
                self.finished += 1
                if self.finished == self.chunks:
                    self.all_finished.release()


def _in_parallel(function: Callable[..., None], tasks: int, args: tuple[Any, ...], count: int) -> None:
    job = _Job(function, tasks, args, min(tasks, count * CHUNKS_EACH))
    inboxes = _workers(count - 1)
    try:
        for inbox in inboxes:
            inbox.put(job)
        job.work()
        job.all_finished.acquire()  # waits for chunks, not for threads
    except BaseException as interrupt:  # what is under way ends first: it writes to memory that the next call uses
        job.error = interrupt
        for inbox in inboxes:
            inbox.put(last := _Job(lambda first, last: None, 1, (), 1))
            last.all_finished.acquire()
    if job.error is not None:
        raise job.error


def _workers(count: int) -> list[queue.SimpleQueue[_Job]]:
    """The inboxes of ``count`` threads, fewer if the system starts no more (as at interpreter exit)."""
    with contextlib.suppress(RuntimeError):
        while len(_inboxes) < count:
            inbox: queue.SimpleQueue[_Job] = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(inbox,), name="minisitch", daemon=True).start()
            _inboxes.append(inbox)
    return _inboxes[:count]


def _serve(inbox: queue.SimpleQueue[_Job]) -> None:
    while True:
        inbox.get().work()


_default_threads = functools.cache(usable_cores)


def _after_fork() -> None:
    """The child has only the thread that forked: forget the others, and whoever held the pool."""
    global _busy
    _busy = threading.Lock()
    _inboxes.clear()
    _default_threads.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
