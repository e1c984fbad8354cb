"""Runs the tasks of a Python function on several cores.

It serves the tiles of a pipeline, and kernels on systems where ``thread_pool`` cannot work.

In:  a ``function(first, last, *args)`` that mostly releases the interpreter lock, and a number of
tasks. Out: nothing; every task was run exactly once.

The caller's thread works too. With one core, a busy pool or a small job it makes one plain call.
Threads are started at the first use, sleep when there is nothing to do, and never spin. A job is
cut into more chunks than threads, and each chunk goes to a thread that is free. A thread that wakes
up late finds less to do, or nothing, and no thread waits for it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from typing import Any

from ..this_machine import usable_cores

WORTH_PYTHON_THREADS = 4_000_000  # scalar operations, some 100 us a core: waking a Python thread takes 50 to 100 us
CHUNKS_EACH = 4  # chunks a thread, so that a core disturbed by other programs does not hold up the rest

_limit: ContextVar[int | None] = ContextVar("minisitch_threads", default=None)
_busy = threading.Lock()  # held by the one caller that has the pool; any other runs serially
_pool = ThreadPoolExecutor(1024, "minisitch")  # it starts threads as they are needed


def run(function: Callable[..., None], tasks: int, args: tuple[Any, ...], *, work: int) -> None:
    """Call ``function(first, last, *args)`` until [0, ``tasks``) is covered.

    ``work``: the scalar operations of all tasks. Below ``WORTH_PYTHON_THREADS`` one core does them.

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
    """``run`` as a function of the arguments alone. For a small job it is the plain call."""
    if work < WORTH_PYTHON_THREADS:
        return functools.partial(function, 0, tasks)
    return lambda *args: run(function, tasks, args, work=work)


def is_busy() -> bool:
    """Whether a job is under way. What the job calls has one core."""
    return _busy.locked()


def thread_count() -> int:
    """How many threads a job may use: ``threads(n)`` in force here, else MINISITCH_THREADS, else one a core."""
    return _limit.get() or _default_threads()


@contextlib.contextmanager
def threads(n: int) -> Iterator[None]:
    """Let jobs started inside the block use at most ``n`` threads, the caller's included."""
    if n < 1:
        raise ValueError(f"threads({n}): the caller's thread always works; give at least one")
    token = _limit.set(n)
    try:
        yield
    finally:
        _limit.reset(token)


def _in_parallel(function: Callable[..., None], tasks: int, args: tuple[Any, ...], count: int) -> None:
    chunks = min(tasks, count * CHUNKS_EACH)
    left = iter(range(chunks))  # ``next`` is one step of the interpreter, so each chunk goes to one thread
    errors: list[BaseException] = []
    helpers: list[Future[None]] = []

    def work() -> None:
        try:
            for chunk in left:
                function(chunk * tasks // chunks, (chunk + 1) * tasks // chunks, *args)
                if errors:
                    return
        except BaseException as error:
            errors.append(error)

    try:
        with contextlib.suppress(RuntimeError):  # the system starts no more, as at interpreter exit
            for _ in range(count - 1):
                helpers.append(_pool.submit(work))
        work()
    except BaseException as interrupt:
        errors.append(interrupt)
    # A thread that has not begun has nothing to do. What is under way ends first: it writes to
    # memory that the next call uses.
    wait([helper for helper in helpers if not helper.cancel()])
    if errors:
        raise errors[0]


_default_threads = functools.cache(usable_cores)


def _after_fork() -> None:
    """The child has only the thread that forked: forget the other threads and the lock's holder."""
    global _busy, _pool
    _busy, _pool = threading.Lock(), ThreadPoolExecutor(1024, "minisitch")
    _default_threads.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
