"""The pool runs every task once, under all orders of threads that this machine comes up with; nothing hangs, also around forks and exits."""

import ctypes
import random
import threading
import time
from dataclasses import replace
from pathlib import Path

import children
import numpy as np
import pytest

import minisitch as ms
from minisitch.runtime import lower_program, steps
from minisitch.runtime.cpu import thread_pool, workers
from minisitch.runtime.cpu.compile import compile_cpu
from minisitch.runtime.this_machine import BUILT_IN, cpu_with

ROOT = Path(__file__).resolve().parent.parent
COUNT = """
def count(first, last, x, y):
    for i in range(first, last):
        y[i] = y[i] + x[i]
"""
WORK = """
def work(first, last, x, y):
    for i in range(first, last):
        total = 0.0
        for k in range({turns}):
            total += np.sqrt(x[k % 7])
        y[i] = total
"""
pytestmark = pytest.mark.skipif(not thread_pool.can_work(), reason="needs POSIX threads")


def launch(compiled, helpers, chunks, large, *arrays):
    """All tasks, one for each element of the last array: by the caller, and at most ``helpers`` threads. Whether these could help."""
    board = thread_pool.board(helpers, large)
    compiled.start(compiled.code.address, board, thread_pool.spread(len(arrays)), helpers, chunks, 0, arrays[-1].size, *arrays)
    return board != 0


def work(turns, tasks):
    """A kernel of so many square roots a task, and its arrays."""
    text = WORK.format(turns=turns)
    return compile_cpu(text, "work", ("float64", "float64")), np.ones(7), np.zeros(tasks)


@pytest.fixture(scope="module")
def count():
    """``count(tasks, helpers, chunks)`` runs so many tasks, each of which adds one to a cell, and gives the cells."""
    compiled = compile_cpu(COUNT, "count", ("int64", "int64"))

    def run(tasks, helpers, chunks, large=True, times=1):
        x, y = np.ones(tasks, np.int64), np.zeros(tasks, np.int64)
        for _ in range(times):
            launch(compiled, helpers, chunks, large, x, y)
        return y
    return run


def clocks():
    """The processor's clocks of the pool's threads."""
    return [time.pthread_getcpuclockid(t.ident) for t in threading.enumerate() if t.name == "minisitch pool"]


def awake():
    return int(thread_pool._pool.words[thread_pool.AWAKE])


def at_rest():
    """The seconds that all threads have worked, once they sleep."""
    until = time.monotonic() + 5
    while awake() and time.monotonic() < until:
        time.sleep(0.0005)
    assert awake() == 0, "with nothing to do they sleep"
    return sum(map(time.clock_gettime, clocks()))


@pytest.mark.parametrize("helpers", [0, 1, 2, 7])
@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 8, 31, 32, 33, 1000])
def test_every_task_runs_once(count, tasks, helpers):
    for chunks in {1, min(2, tasks), min(tasks, 8), tasks}:
        assert (count(tasks, helpers, chunks) == 1).all()


def test_some_tasks_of_a_kernel():
    """Not only from the first on: a chunk's tasks lie between the job's."""
    compiled = compile_cpu(COUNT, "count", ("int64", "int64"))
    x, y = np.ones(100, np.int64), np.zeros(100, np.int64)
    compiled.start(compiled.code.address, thread_pool.board(1, True), thread_pool.spread(2), 1, 7, 30, 71, x, y)
    assert (y[30:71] == 1).all() and y.sum() == 41


def test_jobs_that_follow_each_other_closely_keep_their_chunks_apart(count):
    """A thread that is late for one job must not run its chunk of the next one; jobs here are as short as they get."""
    generator = random.Random(0)
    for _ in range(300):
        tasks = generator.randint(1, 40)
        assert (count(tasks, generator.randint(0, 5), generator.randint(1, tasks), generator.random() < 0.5, times=100) == 100).all()


def test_helpers_take_part_and_the_limit_is_kept():
    """A job whose chunks note the thread that runs them: besides the caller's at most as many as may help, and in time all of these."""
    compiled, x, y = work(1, 64)
    launch(compiled, 40, 64, True, x, y)  # starts far more threads than may help below

    def helped(helpers):
        ran = []

        def chunk(job, first, last):
            ran.append(threading.get_ident())
            time.sleep(0.0005)  # lets the others take the next
            return 0

        function = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)(chunk)
        address = ctypes.cast(function, ctypes.c_void_p).value
        compiled.start(compiled.code.address, thread_pool.board(3, True), address, helpers, 64, 0, 64, x, y)
        assert len(ran) == 64, "each chunk once"
        return len(set(ran) - {threading.get_ident()})

    for helpers in (0, 1, 2, 3):
        seen, until = [helped(helpers) for _ in range(10)], time.monotonic() + 10
        while helpers not in seen and time.monotonic() < until:
            seen.append(helped(helpers))
        assert max(seen) == helpers


def test_a_limit_holds_from_the_first_chunk_of_the_next_job_on():
    """Threads that still look for chunks of a job for eight find one for none."""
    compiled, x, y = work(2000, 256)
    launch(compiled, 7, 256, True, x, y)
    before = None
    for _ in range(50):
        launch(compiled, 7, 256, True, x, y)
        now = list(map(time.clock_gettime, clocks()))
        compiled.start(compiled.code.address, thread_pool.board(7, True), thread_pool.spread(2), 0, 256, 0, 256, x, y)
        spent = sum(time.clock_gettime(clock) - was for clock, was in zip(clocks(), now, strict=True))
        before = min(before or spent, spent)
    assert before < 0.001 and (y == 2000).all(), "the others looked for work, found none, and slept"


def test_a_caller_that_finds_the_pool_busy_runs_all_by_itself(count):
    compiled, x, y = work(40_000_000, 2)
    launch(compiled, 1, 2, True, x, y[:0])  # starts a thread
    other = threading.Thread(target=launch, args=(compiled, 1, 2, True, x, y))
    other.start()
    until = time.monotonic() + 5
    while not thread_pool._pool.words[thread_pool.BUSY] and time.monotonic() < until:
        time.sleep(0.0005)
    cells, busy = count(10, 1, 2), bool(thread_pool._pool.words[thread_pool.BUSY])
    other.join()
    assert busy and (cells == 1).all() and (y == 40_000_000).all()
    assert not thread_pool._pool.words[thread_pool.BUSY]


def test_a_small_job_wakes_nobody_but_every_sixteenth():
    compiled, x, y = work(400_000, 8)
    launch(compiled, 1, 8, True, x, y)  # starts a thread, if there is none

    def job(large):
        """Whether threads could help with a job that meets nobody awake. If so, one of them was woken."""
        before, y[:] = at_rest(), 0
        could = launch(compiled, 1, 8, large, x, y)
        assert (y == 400_000).all()
        until = time.monotonic() + 5
        while could and at_rest() == before and time.monotonic() < until:
            time.sleep(0.0005)
        assert could or at_rest() < before + thread_pool.LOOKING * 1e-9, "who just fell asleep may still be on the way"
        return could and at_rest() > before

    found = [job(large=False) for _ in range(2 * thread_pool.SPARED)]
    assert found.count(True) == 2 and found[:thread_pool.SPARED] == found[thread_pool.SPARED:]
    assert job(large=True)


def test_many_callers_at_once_run_all_they_have():
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    f, wrong = ms.jit(softmax, target="cpu"), []

    def user(seed):
        x = np.random.default_rng(seed).normal(size=(300, 700)).astype(np.float32)
        want = softmax(x)
        for _ in range(50):
            if not np.allclose(f(x), want, atol=1e-6):
                wrong.append(seed)

    users = [threading.Thread(target=user, args=(seed,)) for seed in range(5)]
    for u in users:
        u.start()
    for u in users:
        u.join(60)
    assert not wrong and not any(u.is_alive() for u in users)


def test_a_kernel_without_memory_for_its_scratch_rows_raises():
    """In the caller's chunk or in another's."""
    text = ("def hungry(first, last, x, y):\n    for i in range(first, last):\n        if x[i] > 5:\n"
            "            t = np.empty(1 << 58, np.float32)\n            y[i] = t[i]\n        y[i] = x[i]\n")
    compiled = compile_cpu(text, "hungry", ("float64", "float64"))
    x, y = np.arange(10.0), np.zeros(10)
    with pytest.raises(MemoryError, match="scratch rows"):
        compiled.function(0, 10, x, y)
    with pytest.raises(MemoryError, match="scratch rows"):
        launch(compiled, 1, 5, True, x, y)
    launch(compiled, 1, 5, True, x * 0, y)  # one job's error is not another's
    assert (y == 0).all()


def traced_launch(rows, serial_below=None):
    """The function of ``exp(x) + 1`` over so many rows of 1000, how much work that is, and the device."""
    device = cpu_with(BUILT_IN, 2)
    device = replace(device, serial_below=serial_below) if serial_below else device
    program = ms.trace(lambda x: np.exp(x) + 1, (np.ones((rows, 1000), np.float32),), {})
    stages = lower_program(program, "xla", "cpu", device)
    (source,), (kernel,) = stages.sources, stages.kernels
    return steps.to_the_cores(kernel, source.launches[0], steps.requests(source)[0]), source.launches[0].work, device


def test_small_work_is_a_plain_call_and_one_thread_asks_for_no_help(monkeypatch):
    small, work, device = traced_launch(16)
    assert work < device.serial_below and hasattr(small, "func"), "a partial of the compiled function"
    taken = []
    monkeypatch.setattr(thread_pool, "board", lambda *given: taken.append(given) or 0)
    run, work, device = traced_launch(3000)
    x, y = np.zeros(3_000_000, np.float32), np.zeros(3_000_000, np.float32)
    with workers.threads(2):
        run(x, y)
    with workers.threads(1):
        run(x, y)
    assert taken == [(1, True)], "once: the other had one thread"
    assert y[0] == 2.0


def test_threads_are_woken_for_large_work_only(monkeypatch):
    """Four times what one core does by itself."""
    asked = []
    monkeypatch.setattr(thread_pool, "board", lambda *given: asked.append(given) or 0)
    for rows, serial_below in ((500, 3_000_000), (500, 1_000_000), (500, 100_000)):
        run, work, _ = traced_launch(rows, serial_below)
        x = np.zeros(rows * 1000, np.float32)
        with workers.threads(64):
            run(x, x.copy())
        helpers, large = asked[-1]
        assert helpers == min(15, 2 * work // serial_below - 1)
        assert large == (work >= 4 * serial_below)
    assert [large for _, large in asked] == [False, True, True]


def test_without_posix_threads_one_core_does_it(monkeypatch):
    monkeypatch.setattr(thread_pool, "can_work", lambda: False)
    run, _, _ = traced_launch(3000)
    x, y = np.zeros(3_000_000, np.float32), np.zeros(3_000_000, np.float32)
    run(x, y)
    assert (y == 2.0).all()


# ---------------------------------------------------------------- processes
PRELUDE = f"""
import os, sys, threading, time
import numpy as np
from minisitch.runtime.cpu import thread_pool
from minisitch.runtime.cpu.compile import compile_cpu
compiled = compile_cpu({COUNT!r}, "count", ("int64", "int64"))
x, y = np.ones(1000, np.int64), np.zeros(1000, np.int64)
def launch(helpers, chunks, large, *arrays):
    board = thread_pool.board(helpers, large)
    compiled.start(compiled.code.address, board, thread_pool.spread(2), helpers, chunks, 0, arrays[-1].size, *arrays)
"""


def in_fresh_python(code):
    return children.run(PRELUDE + code, ROOT, check=True).stdout.split()


def test_exits_and_forks():
    code = """
import warnings; warnings.simplefilter("ignore")
import atexit
def last():
    mine = np.zeros_like(y)
    launch(3, 8, True, x, mine)
    print((mine == 1).all())
atexit.register(last)
def forever():
    while True: launch(3, 16, True, x, np.zeros_like(y))
busy = threading.Thread(target=forever, daemon=True); busy.start(); time.sleep(0.05)
child = os.fork()
if child == 0:
    mine = np.zeros_like(y)
    launch(2, 8, True, x, mine)
    print((mine == 1).all(), threading.active_count(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    assert in_fresh_python(code) == ["True", "3", "True"], "the child's own threads; at exit"


def test_a_process_ends_while_its_threads_look_for_work():
    for _ in range(3):
        in_fresh_python("for _ in range(100): launch(3, 8, True, x, y)")


def test_threads_with_nothing_to_do_use_no_time():
    spent = in_fresh_python("launch(3, 8, True, x, y); time.sleep(0.1); began = time.process_time(); time.sleep(0.3)\n"
                            "print(time.process_time() - began)")
    assert float(spent[0]) < 0.1
