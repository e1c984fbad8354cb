"""A crew runs every task once, under all orders of threads that this machine comes up with; nothing hangs, also around forks and exits."""

import ctypes
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import minisitch as ms
from minisitch.device import BUILT_IN, SERIAL_BESIDE_LIBRARY
from minisitch.runtime import lower_program, steps
from minisitch.runtime.cpu import crew, workers
from minisitch.runtime.cpu.compile import compile_cpu
from minisitch.runtime.this_machine import cpu_with

ROOT = Path(__file__).resolve().parent.parent
COUNT = """
def count(first, last, x, y):
    for i in range(first, last):
        y[i] = y[i] + x[i]
"""
LONG = """
def long(first, last, x, y):
    for i in range(first, last):
        total = 0.0
        for k in range(400000):
            total += np.sqrt(x[k % 7])
        y[i] = total
"""
pytestmark = pytest.mark.skipif(not crew.can_work(), reason="needs POSIX threads")


@pytest.fixture(scope="module")
def count():
    """``count(tasks, helpers, chunks)`` runs so many tasks, each of which adds one to a cell, and gives the cells and the outcome."""
    compiled = compile_cpu(COUNT, "count", ("int64", "int64"))

    def run(tasks, helpers, chunks, large=True, times=1):
        x, y = np.ones(max(1, tasks), np.int64), np.zeros(max(1, tasks), np.int64)
        launch = crew.launcher(compiled.address, tasks, [(x.size, 8), (y.size, 8)])
        outcomes = set()
        for _ in range(times):
            outcome = launch(helpers, chunks, large, x, y)
            if outcome == crew.REFUSED and not large:  # by a crew that sleeps
                outcome = launch(helpers, chunks, True, x, y)
            outcomes.add(outcome)
        return y[:tasks], outcomes
    return run


@pytest.mark.parametrize("helpers", [0, 1, 2, 7])
@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 8, 31, 32, 33, 1000])
def test_every_task_runs_once(count, tasks, helpers):
    for chunks in {1, min(2, tasks), min(tasks, 8), tasks}:
        cells, outcomes = count(tasks, helpers, chunks)
        assert (cells == 1).all() and outcomes == {crew.DONE}


def test_jobs_that_follow_each_other_closely_keep_their_chunks_apart(count):
    """A thread that is late for one job must not run its chunk of the next one; jobs here are as short as they get."""
    generator = random.Random(0)
    for _ in range(300):
        tasks = generator.randint(1, 40)
        cells, outcomes = count(tasks, generator.randint(0, 5), generator.randint(1, tasks), generator.random() < 0.5, times=100)
        assert (cells == 100).all() and outcomes == {crew.DONE}


def test_helpers_take_part_and_the_limit_is_kept():
    text = ("def where(first, last, x, y):\n    for i in range(first, last):\n        total = 0.0\n"
            "        for k in range(20000):\n            total += np.sqrt(x[k % 7])\n        y[i] = total\n")
    compiled = compile_cpu(text, "where", ("float64", "float64"))
    x, y = np.ones(7), np.zeros(64)
    launch = crew.launcher(compiled.address, 64, [(7, 8), (64, 8)])
    launch(2, 64, True, x, y)  # starts the threads

    def helped(helpers, enough):
        """Seconds that each of the crew's threads computed in 20 jobs, and in more where other processes have the cores."""
        clocks = [time.pthread_getcpuclockid(t.ident) for t in threading.enumerate() if t.name == "minisitch crew"]
        time.sleep(0.01)  # those awake go to sleep
        before, until = [time.clock_gettime(clock) for clock in clocks], time.monotonic() + 20
        while True:
            for _ in range(20):
                launch(helpers, 64, True, x, y)
            spent = sorted(time.clock_gettime(clock) - was for clock, was in zip(clocks, before, strict=True))
            if spent[-1] >= enough or time.monotonic() > until:
                return spent

    assert helped(0, enough=0.0)[-1] < 0.002
    some = helped(1, enough=0.02)
    assert some[-1] >= 0.02 and some[-2] < some[-1] / 2, "one of them, and no other"
    assert (y == 20000).all()


def test_a_limit_holds_from_the_first_chunk_of_the_next_job_on(count):
    """Threads that still look for chunks of a job for eight find one for two."""
    marks = compile_cpu("def marks(first, last, x, y):\n    for i in range(first, last):\n        total = 0.0\n"
                        "        for k in range(2000):\n            total += np.sqrt(x[k % 7])\n        y[i] = total\n",
                        "marks", ("float64", "float64"))
    x, y = np.ones(7), np.zeros(256)
    launch = crew.launcher(marks.address, 256, [(7, 8), (256, 8)])
    launch(7, 256, True, x, y)
    crowd = [t for t in threading.enumerate() if t.name == "minisitch crew"]
    before = None
    for _ in range(50):
        launch(7, 256, True, x, y)
        now = [time.clock_gettime(time.pthread_getcpuclockid(t.ident)) for t in crowd]
        launch(0, 256, True, x, y)
        then = [time.clock_gettime(time.pthread_getcpuclockid(t.ident)) for t in crowd]
        spent = sum(b - a for a, b in zip(now, then, strict=True))
        before = min(before or spent, spent)
    assert before < 0.001 and (y == 2000).all(), "the others looked for work, found none, and slept"


def test_a_caller_that_finds_the_crew_busy_is_refused_and_nothing_was_run(count):
    slow = compile_cpu("def slow(first, last, x, y):\n    for i in range(first, last):\n        total = 0.0\n"
                       "        for k in range(40_000_000):\n            total += np.sqrt(x[k % 7])\n        y[i] = total\n",
                       "slow", ("float64", "float64"))
    x, y = np.ones(7), np.zeros(2)
    launch = crew.launcher(slow.address, 2, [(7, 8), (2, 8)])
    other = threading.Thread(target=launch, args=(1, 2, True, x, y))
    busy, until = ctypes.c_int64.from_address(crew._board + 8 * crew.BUSY), time.monotonic() + 5
    other.start()
    while not busy.value and time.monotonic() < until:
        time.sleep(0.0005)
    cells, outcomes = count(10, 1, 2)
    refused = outcomes == {crew.REFUSED} and not cells.any()
    other.join()
    assert refused and (y == 40_000_000).all()
    assert count(10, 1, 2)[1] == {crew.DONE}


def test_a_small_job_is_refused_by_a_crew_that_sleeps_but_for_every_sixteenth():
    compiled = compile_cpu(LONG, "long", ("float64", "float64"))
    x, y = np.ones(7), np.zeros(8)
    launch = crew.launcher(compiled.address, 8, [(7, 8), (8, 8)])
    assert launch(1, 8, True, x, y) == crew.DONE  # starts a thread, if there is none
    asleep = ctypes.c_int64.from_address(crew._board + 8 * crew.ASLEEP)
    clocks = [time.pthread_getcpuclockid(t.ident) for t in threading.enumerate() if t.name == "minisitch crew"]

    def at_rest():
        """The seconds that all threads have worked, once they sleep."""
        until = time.monotonic() + 5
        while asleep.value < crew._threads and time.monotonic() < until:
            time.sleep(0.0005)
        assert asleep.value == crew._threads, "with nothing to do they sleep"
        return sum(map(time.clock_gettime, clocks))

    def job(large):
        """What a job comes to that meets nobody awake, and whether it woke somebody."""
        before, y[:] = at_rest(), 0
        outcome, until = launch(1, 8, large, x, y), time.monotonic() + 5
        assert (y == (400_000 if outcome == crew.DONE else 0)).all(), "what is refused has not begun"
        if outcome == crew.REFUSED:
            return outcome, at_rest() > before + crew.LOOKING * 1e-9 / 2  # who just fell asleep may still be on the way
        while at_rest() == before and time.monotonic() < until:  # who is woken begins when it gets a core
            time.sleep(0.0005)
        return outcome, at_rest() > before

    found = [job(large=False) for _ in range(2 * crew.SPARED)]
    assert [o for o, _ in found].count(crew.DONE) == 2 and all(woken == (o == crew.DONE) for o, woken in found)
    assert found[:crew.SPARED] == found[crew.SPARED:], "every sixteenth"
    assert job(large=True) == (crew.DONE, True)


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


def test_a_kernel_that_reports_an_error_is_run_again_to_raise_it(monkeypatch):
    """The crew says that some chunk failed; the plain call then says what."""
    text = "def fails(first, last, x, y):\n    for i in range(first, last):\n        if x[i] > 5:\n            raise ValueError('of cell 6')\n"
    compiled = compile_cpu(text, "fails", ("float64", "float64"))
    x, y = np.arange(10.0), np.zeros(10)
    launch = crew.launcher(compiled.address, 10, [(10, 8), (10, 8)])
    assert launch(1, 5, True, x, y) == crew.FAILED
    assert launch(1, 5, True, x * 0, y) == crew.DONE, "one error is not another job's"
    large = 3000 * 1000
    monkeypatch.setattr(steps.compiler, "compile_cpu", lambda *given, **how: compiled)
    run, _, _ = traced_launch(3000)
    with workers.threads(2), pytest.raises(ValueError, match="of cell 6"):
        run(np.arange(float(large)), np.zeros(large))


def traced_launch(rows, serial_below=None):
    """The function of ``exp(x) + 1`` over so many rows of 1000, how much work that is, and the device."""
    device = cpu_with(BUILT_IN, 2)
    device = replace(device, serial_below=serial_below) if serial_below else device
    program = ms.trace(lambda x: np.exp(x) + 1, (np.ones((rows, 1000), np.float32),), {})
    stages = lower_program(program, "xla", "cpu", device)
    (source,), (kernel,) = stages.sources, stages.kernels
    return steps.to_the_cores(kernel, source.launches[0], steps.requests(source)[0]), source.launches[0].work, device


def test_small_work_is_a_plain_call_and_the_pools_are_not_used_at_once(monkeypatch):
    small, work, device = traced_launch(16)
    assert work < device.serial_below and hasattr(small, "func"), "a partial of the compiled function"
    taken = []
    monkeypatch.setattr(crew, "launcher", lambda *given: lambda *given: taken.append(given[:3]) or crew.DONE)
    run, work, device = traced_launch(3000)
    x, y = np.zeros(3_000_000, np.float32), np.zeros(3_000_000, np.float32)
    with workers.threads(2):
        run(x, y)
        with workers._busy:
            run(x, y)
    with workers.threads(1):
        run(x, y)
    assert len(taken) == 1 and taken[0][0] == 1 and taken[0][2], "once: the others found the pool taken, or had one thread"
    assert y[0] == 2.0


def test_threads_are_woken_for_large_work_only(monkeypatch):
    """Four times what one core does by itself, or what it does by itself beside a library's threads: they sleep then."""
    asked = []
    monkeypatch.setattr(crew, "launcher", lambda *given: lambda *given: asked.append(given[:3]) or crew.DONE)
    for rows, serial_below in ((500, 3_000_000), (500, 1_000_000), (500, 100_000), (1000, 3_000_000), (1000, SERIAL_BESIDE_LIBRARY)):
        run, work, _ = traced_launch(rows, serial_below)
        x = np.zeros(rows * 1000, np.float32)
        with workers.threads(64):
            run(x, x.copy())
        helpers, _, large = asked[-1]
        assert helpers == min(15, 2 * work // serial_below - 1)
        assert large == (work >= 4 * serial_below or work >= SERIAL_BESIDE_LIBRARY)
    assert [large for _, _, large in asked] == [False, True, True, True, True]


def test_without_posix_threads_the_python_pool_does_it(monkeypatch):
    monkeypatch.setattr(crew, "can_work", lambda: False)
    assert crew.launcher(1, 10, [(10, 8)]) is None
    run, _, _ = traced_launch(3000)
    x, y = np.zeros(3_000_000, np.float32), np.zeros(3_000_000, np.float32)
    run(x, y)
    assert (y == 2.0).all()


# ---------------------------------------------------------------- processes
PRELUDE = f"""
import os, sys, threading, time
import numpy as np
from minisitch.runtime.cpu import crew
from minisitch.runtime.cpu.compile import compile_cpu
compiled = compile_cpu({COUNT!r}, "count", ("int64", "int64"))
x, y = np.ones(1000, np.int64), np.zeros(1000, np.int64)
launch = crew.launcher(compiled.address, 1000, [(1000, 8), (1000, 8)])
"""


def in_fresh_python(code):
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_exits_and_forks():
    code = """
import warnings; warnings.simplefilter("ignore")
import atexit; atexit.register(lambda: print(launch(3, 8, True, x, y)))
def forever():
    while True: launch(3, 16, True, x, np.zeros_like(y))
busy = threading.Thread(target=forever, daemon=True); busy.start(); time.sleep(0.05)
child = os.fork()
if child == 0:
    mine = np.zeros_like(y)
    print(launch(2, 8, True, x, mine), (mine == 1).all(), threading.active_count(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    said = in_fresh_python(code)
    assert said[:3] == ["0", "True", "3"] and said[3] in "01", "the child's own crew; at exit, done or refused"


def test_threads_with_nothing_to_do_use_no_time():
    spent = in_fresh_python("launch(3, 8, True, x, y); time.sleep(0.1); began = time.process_time(); time.sleep(0.3)\n"
                            "print(time.process_time() - began)")
    assert float(spent[0]) < 0.1
