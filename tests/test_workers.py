"""Every task runs exactly once, whoever runs it; errors surface; nothing hangs, also around forks and exits."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from minisitch.runtime.cpu import workers
from minisitch.runtime.cpu.compile import compile_cpu

BIG = 10 * workers.WORTH_PYTHON_THREADS
ROOT = Path(__file__).resolve().parent.parent


def count_tasks(tasks, threads, work=BIG):
    counts = np.zeros(tasks, np.int64)

    def function(first, last, target):
        time.sleep(0.0005)  # lets the other threads have their share
        target[first:last] += 1

    with workers.threads(threads):
        workers.run(function, tasks, (counts,), work=work)
    return counts


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 7, 8, 31, 32, 33, 1000])
def test_every_task_runs_once(tasks, threads):
    assert (count_tasks(tasks, threads) == 1).all()


def test_other_threads_take_part():
    seen = set()

    def function(first, last):
        seen.add(threading.current_thread().name)
        time.sleep(0.02)

    with workers.threads(3):
        workers.run(function, 100, (), work=BIG)
    assert len(seen) >= 2 and threading.current_thread().name in seen


def test_small_jobs_stay_here_in_one_call():
    calls = []
    with workers.threads(4):
        workers.run(lambda first, last: calls.append((first, last)), 100, (), work=workers.WORTH_PYTHON_THREADS - 1)
    assert calls == [(0, 100)]


def test_a_kernel_of_machine_code(monkeypatch):
    monkeypatch.setenv("MINISITCH_CACHE", "0")
    text = "def twice(first, last, x, y):\n    for i in range(first, last):\n        y[i] = x[i] + x[i]\n"
    kernel = compile_cpu(text, "twice", ("float32", "float32")).function
    x, y = np.arange(100_001, dtype=np.float32), np.zeros(100_001, np.float32)
    with workers.threads(4):
        workers.run(kernel, len(x), (x, y), work=BIG)
    assert np.array_equal(y, 2 * x)


def test_an_error_reaches_the_caller_and_the_pool_lives_on():
    def fails(first, last):
        if first <= 500 < last:
            raise ArithmeticError("task 500")

    with workers.threads(4):
        for _ in range(3):
            with pytest.raises(ArithmeticError, match="task 500"):
                workers.run(fails, 1000, (), work=BIG)
    assert (count_tasks(100, 4) == 1).all()


def test_a_job_inside_a_job_runs_serially():
    calls = []

    def outer(first, last):
        workers.run(lambda a, b: calls.append((a, b)), 10, (), work=BIG)

    with workers.threads(2):
        workers.run(outer, 2, (), work=BIG)
    assert calls == [(0, 10), (0, 10)]


def test_many_users_at_once():
    results, errors = [], []

    def user():
        try:
            for _ in range(20):
                results.append((count_tasks(50, 3) == 1).all())
        except BaseException as error:
            errors.append(error)

    users = [threading.Thread(target=user) for _ in range(6)]
    for u in users:
        u.start()
    for u in users:
        u.join(30)
    assert not errors and len(results) == 120 and all(results)


def test_threads_is_a_setting_of_the_block_and_of_its_thread():
    before = workers.thread_count()
    with workers.threads(5):
        assert workers.thread_count() == 5
        elsewhere = []
        other = threading.Thread(target=lambda: elsewhere.append(workers.thread_count()))
        other.start()
        other.join()
        assert elsewhere == [before]
    assert workers.thread_count() == before
    with pytest.raises(ValueError, match="at least one"), workers.threads(0):
        pass


def test_idle_threads_use_no_time():
    count_tasks(100, 4)
    began = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - began < 0.1


def in_fresh_python(code, **environment):
    """Run ``code`` in a process of its own, which must end by itself."""
    prelude = ("import os, sys, threading, time\nfrom minisitch.runtime.cpu import workers\n"
               "from minisitch.runtime.this_machine import get_device\nfrom minisitch.errors import DeviceError\nBIG = 10**9\n"
               "def nap(first, last): time.sleep(0.001)\n")
    done = subprocess.run([sys.executable, "-c", prelude + code], capture_output=True, text=True, timeout=20,
                          env={**os.environ, "PYTHONPATH": str(ROOT), **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_environment_sets_the_number_of_threads():
    assert in_fresh_python("print(workers.thread_count())", MINISITCH_THREADS="3") == ["3"]
    assert in_fresh_python("workers.run(nap, 9, (), work=BIG); print(threading.active_count())",
                           MINISITCH_THREADS="1") == ["1"]
    for asked in ("workers.thread_count()", "get_device('cpu')"):
        bad = f"try: {asked}\nexcept DeviceError as e: print('MINISITCH_THREADS' in str(e))"
        for setting in ("many", "-1", "0"):
            assert in_fresh_python(bad, MINISITCH_THREADS=setting) == ["True"]


def test_exit_does_not_hang():
    in_fresh_python("workers.run(nap, 100, (), work=BIG)", MINISITCH_THREADS="4")
    in_fresh_python("import atexit; workers.run(nap, 10, (), work=BIG)\n"
                    "atexit.register(workers.run, nap, 10, (), work=BIG)", MINISITCH_THREADS="4")
    in_fresh_python("import atexit; atexit.register(workers.run, nap, 10, (), work=BIG)", MINISITCH_THREADS="4")
    in_fresh_python("def forever():\n    while True: workers.run(nap, 100, (), work=BIG)\n"
                    "threading.Thread(target=forever, daemon=True).start(); time.sleep(0.1)", MINISITCH_THREADS="4")


def test_a_forked_child_has_a_pool_of_its_own():
    if not hasattr(os, "fork"):
        return
    code = """
import warnings; warnings.simplefilter("ignore")
workers.run(nap, 10, (), work=BIG)
held = threading.Thread(target=lambda: workers.run(nap, 400, (), work=BIG)); held.start(); time.sleep(0.01)
child = os.fork()
if child == 0:
    seen = []
    def note(first, last): seen.append(last - first); time.sleep(0.005)
    workers.run(note, 40, (), work=BIG)
    print(sum(seen), len(seen) > 1, threading.active_count() > 1, flush=True)
    os._exit(0)
held.join()
assert os.waitpid(child, 0)[1] == 0
"""
    assert in_fresh_python(code, MINISITCH_THREADS="3") == ["40", "True", "True"]
