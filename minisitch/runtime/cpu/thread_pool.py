"""A thread pool for kernels: threads look for a job without the interpreter's lock, then sleep.

In:  a kernel's machine code and its arrays. Out: all tasks of the kernel have run, each once.

A Python thread that is woken needs the interpreter's lock before it can do anything. For a kernel
of 50 microseconds that takes longer than half of the kernel. So the threads here look for a job in
compiled code, which holds no lock. One kernel often follows another, so a thread that finds no job
looks for 80 microseconds more. Between two looks it offers its core to other programs. If another
program takes the core, for example the threads of a matrix product, it stops looking. After that it
sleeps in Python until a caller wakes it.

What the threads share with a caller is the *board*, an array of integers:

    ticket     number of the job, and of the chunk that is taken next; ``CLOSED`` if no job is open
    finished   how many chunks of this job are done; the caller returns when all are
    busy       1 while a caller has the pool; another caller runs its tasks by itself
    awake      how many threads are looking for a job or working
    job, chunks, helpers   of the open job: its address, its chunks, how many threads may help

A thread takes a chunk by raising the ticket by one. This atomic step fails if the ticket has
changed since the thread read it, so no thread takes a chunk of a job that is over. The caller takes
chunks too. It waits only for chunks that a thread has taken, never for a thread.

To wake a thread costs the caller some ten microseconds, and the thread begins ten to a hundred
microseconds later. So small jobs wake no sleeping thread, except every 16th small job.

The functions at the end of this file are compiled by Numba. Their atomic operations are Numba
intrinsics (``atomics.py``).
"""

import ctypes
import functools
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors.undisturbed import undisturbed
from .compile import RUN, compile_c_functions
from .object_code import Code

# Positions on the board, in words. ``RUN`` holds the address of ``run``. A word that several
# threads write has two cache lines of its own.
TICKET, FINISHED, BUSY, AWAKE = 16, 32, 48, 64
CHUNKS, JOB, HELPERS, WORDS = 80, 81, 82, 96
# Positions in a job, which a caller keeps in its own memory: the address of a function that runs
# some of its tasks, the first and the last task, the status, the address of the kernel, and the
# addresses of its arrays.
SPREAD, FIRST, LAST, STATUS, KERNEL, ARRAYS = 0, 1, 2, 3, 4, 5
CLOSED = (1 << 32) - 1  # no chunk has this number
LOOKING = 80_000  # nanoseconds that a thread looks for a job before it sleeps
CROWDED = 4_000  # nanoseconds: if another program had the core for longer, it needs it, so we sleep
WEARY = 2_000_000  # nanoseconds for which a waiting caller only offers its core to others; then it
NAP = 20  # sleeps, this many microseconds at a time: a thread of lower priority may need the core
SPARED = 16  # the last of this many small jobs wakes threads


# ---------------------------------------------------------------- the threads
class _Pool:
    """The board and the threads that serve it.

    A process has one; after a fork the child has another.
    """

    def __init__(self) -> None:
        words = np.zeros(WORDS + 16, np.int64)
        skipped = -words.ctypes.data % 128 // 8
        self.words = words[skipped:skipped + WORDS]
        self.words[TICKET] = CLOSED
        self.address: int = self.words.ctypes.data
        self.threads = 0
        self.full = False  # whether the system refused to start another thread
        self.spared = 0  # small jobs since the last one that woke threads
        # One a thread, with an entry if it is to wake up.
        self.asked: list[queue.SimpleQueue[None]] = []
        self.starting = threading.Lock()

    def grow(self, helpers: int) -> None:
        """Start threads until there are ``helpers``, or until the system refuses.

        At the interpreter's exit it starts none.
        """
        with self.starting:
            run, look = compiled_functions()
            self.words[RUN] = run
            while self.threads < helpers and not self.full:
                self.asked.append(queue.SimpleQueue())
                try:
                    threading.Thread(target=self.serve, args=(look, self.threads),
                                     name="minisitch pool", daemon=True).start()
                except RuntimeError:
                    self.full = True
                else:
                    self.threads += 1

    def serve(self, look: Callable[[int, int], None], thread: int) -> None:
        """What a thread does all its life: look for jobs, then sleep. It begins awake."""
        while True:
            look(self.address, thread)
            self.asked[thread].get()

    def wake(self, helpers: int, large: bool) -> bool:
        """Wake sleeping threads if the job is worth it. Returns whether any thread may help."""
        awake = int(self.words[AWAKE])
        if awake >= min(helpers, self.threads):
            return True
        if not large:
            self.spared = (self.spared + 1) % SPARED
            if self.spared:
                return awake > 0
        # The threads that may help: a thread of a larger number may not.
        for asked in self.asked[:helpers]:
            if asked.empty():
                asked.put(None)
        return True


_pool = _Pool()


def board(helpers: int, large: bool) -> int:
    """The address of the board if up to ``helpers`` threads may help with a job, else 0.

    ``large``: whether the job is worth waking threads for.
    """
    pool = _pool
    if helpers < 1:
        return 0
    if pool.threads < helpers and not pool.full:
        undisturbed(pool.grow, helpers)
    return pool.address if pool.wake(helpers, large) else 0


def can_work() -> bool:
    """Whether the system has what the compiled functions call."""
    return hasattr(os, "sched_yield") and hasattr(time, "clock_gettime")


def _after_fork() -> None:
    """The child has none of the threads."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ---------------------------------------------------------------- compiled by Numba
@functools.cache
def compiled_functions() -> tuple[int, Callable[[int, int], None]]:
    """The address of ``run``, and ``look`` as a function that holds no interpreter lock."""
    run, look = _codes("the pool", _compile)
    return run.address, ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(look.address)


@functools.cache
def spread(arrays: int) -> int:
    """The address of a function ``(job, first, last)`` that runs tasks of a job.

    The job's kernel has this number of arrays.
    """
    return _codes(f"spread {arrays}", lambda: [_compile_spread(arrays)])[0].address


@functools.cache
def _codes(name: str, compile: Callable[[], list[Any]]) -> list[Code]:
    """C functions of this file, compiled or from the disk.

    They are never freed: threads are in them when the process ends.
    """
    return undisturbed(compile_c_functions, name, compile)


def _compile_spread(arrays: int) -> Any:
    import numba

    given = ", ".join(["first", "last", *(f"load(job, {ARRAYS + k})" for k in range(arrays))])
    from .atomics import call, load

    known: dict[str, Any] = {"__name__": __name__, "call": call, "load": load}
    exec(f"def spread(job, first, last):\n    return call(load(job, {KERNEL}), ({given}))", known)
    return numba.cfunc(numba.int64(numba.int64, numba.int64, numba.int64))(known["spread"])


def _compile() -> list[Any]:
    """Two C functions: callers call ``run``, the pool's threads call ``look``."""
    import numba

    from .atomics import add, call, load, nap, now, replace, store, yield_core

    word = numba.int64

    @numba.njit(error_model="numpy")
    def work(board, thread):
        """Run chunks of the open job until none is left. Returns how many."""
        ran = 0
        while True:
            ticket = load(board, TICKET)
            chunk, chunks = ticket & CLOSED, load(board, CHUNKS)
            if chunk >= chunks or thread >= load(board, HELPERS):
                return ran
            # If the ticket is still the same, all that was read belongs to its job.
            if replace(board, TICKET, ticket, ticket + 1):
                job = load(board, JOB)
                first, tasks = load(job, FIRST), load(job, LAST) - load(job, FIRST)
                begin = first + chunk * tasks // chunks
                end = first + (chunk + 1) * tasks // chunks
                if call(load(job, SPREAD), (job, begin, end)) != 0:
                    store(job, STATUS, 1)
                add(board, FINISHED, 1)
                ran += 1

    @numba.cfunc(numba.void(word, word), error_model="numpy")
    def look(board, thread):
        """A thread's time awake: work, and look for more until there has been none for a while."""
        add(board, AWAKE, 1)
        since = before = now()
        while True:
            if work(board, thread) > 0:
                since = before = now()
            yield_core()
            time = now()
            if time - before > CROWDED or time - since > LOOKING:
                break
            before = time
        add(board, AWAKE, -1)

    @numba.cfunc(word(word, word, word, word), error_model="numpy")
    def run(board, job, helpers, chunks):
        """Run a job with the threads that help. Returns 0, or 1 if the kernel reported an error."""
        if not replace(board, BUSY, 0, 1):
            return call(load(job, SPREAD), (job, load(job, FIRST), load(job, LAST)))
        store(job, STATUS, 0)
        store(board, JOB, job)
        store(board, FINISHED, 0)
        store(board, HELPERS, helpers)
        store(board, CHUNKS, chunks)
        ticket = load(board, TICKET) + 1  # closed, so this is the first chunk of the next job
        store(board, TICKET, ticket)  # last: threads read the other words only after it
        work(board, -1)
        since = now()
        while load(board, FINISHED) < chunks:
            if now() - since > WEARY:
                nap(NAP)
            else:
                yield_core()
        store(board, TICKET, ticket | CLOSED)
        status = load(job, STATUS)
        store(board, BUSY, 0)
        return status

    return [run, look]
