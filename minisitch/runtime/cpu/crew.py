"""The cores of a kernel's tasks, without the interpreter: threads that wait, take chunks and finish in machine code.

In:  the address of a kernel's machine code and the sizes of its arrays. Out: a function of the arrays that runs all tasks.

A Python thread that is woken needs the interpreter's lock before it can do anything, which for a kernel of 50 microseconds takes
longer than half of it. So the threads of a crew live in a loop of machine code. What they share with a caller is a *board*:

    ticket     number of the job, and the chunk that is taken next; with every bit of the chunk set, no job is open
    finished   chunks of this job that are done; the caller returns when all are
    busy       1 while a caller has the crew; another one runs its tasks by itself
    asleep     threads that have to be woken
    chunks, job, helpers   of the open job: how many chunks, its block of memory, how many threads may help

A chunk is taken by raising the ticket, which fails if it is another job's by now: so nobody takes a chunk of a job that is over.
A thread that finds nothing to do looks again for 80 microseconds, letting others have the core each time, since one kernel often
follows another; then it sleeps. Where others want the core, as a matrix product's threads do, it sleeps at once. The caller takes
chunks too, and waits only for chunks that a thread has taken. To wake a thread costs the caller some ten microseconds, and the
thread begins ten to a hundred microseconds later. So a job that is not large wakes nobody, but every 16th one does, in case more
follow; a thread that comes too late for it looks for the next one all the same. The other fifteen are refused where nobody
is awake: their caller runs them by itself, and pays one microsecond instead of two and a half for having asked.

Elsewhere than on Linux, or where NumPy keeps an array's address elsewhere, there is no crew: ``workers.run`` does it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pkgutil
import string
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors.undisturbed import undisturbed
from . import compile as compiler

# Positions on the board, in words of 8 bytes: what several threads write has a cache line, or two, of its own.
TICKET, FINISHED, BUSY, ASLEEP, CHUNKS, JOB, HELPERS = 0, 16, 32, 48, 64, 65, 66
MUTEX, CONDITION, WORDS = 80, 96, 112
KERNEL, TASKS, CHUNK, STATUS, ARRAYS = 0, 1, 2, 3, 4  # positions in a job; three words an array: address, elements, bytes of one
# (CHUNK: the address of the code that runs one chunk of so many arrays)
CLOSED = (1 << 32) - 1  # no chunk has this number
LOOKING = 80_000  # nanoseconds that a thread with nothing to do looks for a job, before it sleeps
CROWDED = 4_000  # nanoseconds away from a core that it let others have: they need it, so the thread sleeps at once
WEARY = 2_000_000  # nanoseconds that a caller waits by yielding; after them
NAP = 20  # it sleeps so many microseconds before it looks again
CLOCK = getattr(time, "CLOCK_MONOTONIC", 0)
SPARED = 16  # of so many small jobs that meet a thread asleep, the last one wakes it
SYMBOLS = ("sched_yield", "clock_gettime", "pthread_mutex_lock", "pthread_mutex_unlock", "pthread_cond_wait",
           "pthread_cond_broadcast", "usleep")
DONE, REFUSED, FAILED = 0, 1, 2  # what a job comes to: all tasks ran; the crew was busy, or asleep, and none did; a chunk failed

_board: int | None = None  # its address; another one after a fork
_threads = 0  # that serve it
_full = False  # the system starts no more
_spared = 0  # small jobs since the last one for which somebody was woken
_jobs: list[Any] = []  # their blocks of memory: machine code has the addresses
_starting = threading.Lock()


def launcher(kernel: int, tasks: int, arrays: Sequence[tuple[int, int]]) -> Callable[..., int] | None:
    """``launch(helpers, chunks, large, *arrays)``: all tasks, in so many chunks, by the caller and at most ``helpers`` threads.

    ``kernel``: address of the code that Numba made of ``kernel(first, last, *arrays)``. ``arrays``: elements and bytes of one, of
    each. ``large``: worth waking threads for. 1 <= ``chunks`` <= ``tasks``, and every array is flat, in C order, of the dtype
    compiled for and no shorter than said: nothing is checked. Gives back DONE, REFUSED or FAILED. None where there can be no crew.
    """
    if not can_work():
        return None
    job = (ctypes.c_int64 * (ARRAYS + 3 * len(arrays)))(kernel, tasks)
    for k, (size, itemsize) in enumerate(arrays):
        job[ARRAYS + 3 * k + 1], job[ARRAYS + 3 * k + 2] = size, itemsize
    (run, _), _, at = _code(len(arrays)), _code(0), ctypes.addressof(job)

    _jobs.append(job)

    def launch(helpers: int, chunks: int, large: bool, *given: np.ndarray) -> int:
        global _spared
        ready, wake = _board if _board and (_full or helpers <= _threads) else undisturbed(board, helpers), large
        if not large and _threads - (asleep := ctypes.c_int64.from_address(ready + 8 * ASLEEP).value) < helpers:
            _spared = (_spared + 1) % SPARED
            wake = _spared == 0
            if asleep >= _threads and not wake:
                return REFUSED
        return run(ready, at, _threads, helpers, chunks, wake, *given)
    return launch


@functools.cache
def can_work() -> bool:
    """Whether the system has what a crew needs."""
    probe = np.zeros(3, np.int8)
    address = ctypes.c_void_p.from_address(id(probe) + object.__basicsize__).value
    return address == probe.ctypes.data and all(hasattr(ctypes.pythonapi, s) for s in (*SYMBOLS, "pthread_mutex_init"))


def board(helpers: int) -> int:
    """The board's address, once ``helpers`` threads serve it, or as many as the system starts. Never freed: the threads
    may still read it while the process ends."""
    global _board, _threads, _full
    with _starting:
        if _board is None:
            allocate = ctypes.pythonapi.PyMem_RawCalloc
            allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
            _board = -(-allocate(WORDS + 8, 8) // 64) * 64
            ctypes.c_int64.from_address(_board + 8 * TICKET).value = CLOSED
            for init, where in (("pthread_mutex_init", MUTEX), ("pthread_cond_init", CONDITION)):
                getattr(ctypes.pythonapi, init)(ctypes.c_void_p(_board + 8 * where), None)
        while _threads < helpers:
            thread = threading.Thread(target=_code(0)[1], args=(_board, _threads), name="minisitch crew", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # as at the interpreter's exit
                _full = True
                break
            _threads += 1
        return _board


def _after_fork() -> None:
    """The child has none of the threads: another board, and another crew once it is wanted."""
    global _board, _threads, _full, _starting
    _board, _threads, _full, _starting = None, 0, False, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ---------------------------------------------------------------- machine code
@functools.cache
def _code(arity: int) -> tuple[Callable[..., int], Callable[..., None]]:
    """``run(board, job, threads, helpers, chunks, wake, *arrays)`` for so many arrays, and ``serve(board, thread)``, a thread's
    life."""
    addresses = {s: ctypes.cast(getattr(ctypes.pythonapi, s), ctypes.c_void_p).value or 0 for s in SYMBOLS}
    run, serve = compiler.assemble_llvm(text(arity), (f"run_{arity}", f"serve_{arity}"), addresses)
    words: list[Any] = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_bool]
    return (ctypes.CFUNCTYPE(ctypes.c_int64, *words, *[ctypes.py_object] * arity)(run),
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(serve))


def text(arity: int) -> str:
    """``crew.ll`` for kernels of so many arrays."""
    numbers = range(arity)
    load = "\n  %{name}{k}_at = getelementptr i64, ptr %job, i64 {at}\n  %{name}{k} = load {type}, ptr %{name}{k}_at"
    fields = (("data", "ptr"), ("size", "i64"), ("item", "i64"))
    arrays = "".join(load.format(name=name, k=k, at=ARRAYS + 3 * k + n, type=type)
                     for k in numbers for n, (name, type) in enumerate(fields))
    # An array as Numba hands it on: no owner to be counted, elements, bytes of one, address, shape, strides.
    passed = "".join(f", ptr null, ptr null, i64 %size{k}, i64 %item{k}, ptr %data{k}, i64 %size{k}, i64 %item{k}" for k in numbers)
    fetched = "".join(f"""
  %field{k} = getelementptr i8, ptr %array{k}, i64 {object.__basicsize__}
  %data{k} = load ptr, ptr %field{k}
  %data{k}_at = getelementptr i64, ptr %job, i64 {ARRAYS + 3 * k}
  store ptr %data{k}, ptr %data{k}_at""" for k in numbers)
    positions = {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)}
    template = string.Template((pkgutil.get_data(__package__, "crew.ll") or b"").decode())
    return template.substitute(positions, arrays=arrays, passed=passed, fetched=fetched,
                               parameters="".join(f", ptr %array{k}" for k in numbers), arity=arity)
