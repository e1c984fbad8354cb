"""Ctrl-C at any moment leaves a process that can compile: real signals to real processes, and a second call in the same process.

    MINISITCH_INTERRUPTS=90 python -m pytest -n 0 tests/test_right_interrupt.py     90 moments instead of 3
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import minisitch as ms
from minisitch import runtime
from minisitch.errors import undisturbed

MOMENTS = int(os.environ.get("MINISITCH_INTERRUPTS", "3"))
FIRST_CALL = 1.2  # seconds of the first call below, about, with nothing in the cache
ROOT = Path(__file__).parent.parent

PROGRAM = """
import os, sys, time
import numpy as np
import minisitch as ms
{before}

@ms.jit(strategy={strategy!r}, target="cpu")
def f(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

x = np.linspace(-1, 1, 64 * 48).reshape(64, 48).astype(np.float32)
print("ready", flush=True)
try:
    while True:  # interrupted in the first call, or in a later one
        f(x)
except KeyboardInterrupt:
    pass
print("interrupted", flush=True)
assert np.allclose(f(x), f.__wrapped__(x), rtol=1e-4)
other = ms.jit(lambda v: np.cosh(v) * 3 + 1, target="cpu")
assert np.allclose(other(x), np.cosh(x) * 3 + 1, rtol=1e-5)
print("right", flush=True)
"""

# Interrupts itself at the so manieth module that is imported after this.
AT_AN_IMPORT = """
import signal
class Interrupts:
    left = {at}
    def find_spec(self, name, path=None, target=None):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)  # until the main thread has been interrupted
sys.meta_path.insert(0, Interrupts())
"""
TORN = """
import minisitch.runtime.cpu.compile
minisitch.runtime.cpu.compile.undisturbed = lambda work, *args: work(*args)
"""


@pytest.fixture(autouse=True)
def an_interrupt_arrives():
    """A process that a script started in the background ignores SIGINT, and so do the processes that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(tmp_path, program: str, delay: float | None = None) -> tuple[int, str, str]:
    """Start a process, send it SIGINT so long after it is ready, or leave that to itself; its exit code and output."""
    environment = {**os.environ, "MINISITCH_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment, cwd=tmp_path)
    assert process.stdout and process.stdout.readline() == "ready\n"
    if delay is not None:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
    try:
        said, errors = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        said, errors = process.communicate()
        errors += "\nhangs"
    return process.returncode, said, errors


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_process_interrupted_at_any_moment_compiles_again(tmp_path, moment):
    program = PROGRAM.format(strategy=("auto", "none", "astitch")[moment % 3], before="")
    code, said, errors = interrupted(tmp_path, program, FIRST_CALL * (moment + 0.5) / MOMENTS)
    assert code == 0 and said == "interrupted\nright\n", f"{said}\n{errors}"


@pytest.mark.parametrize("at", [60, 300])
def test_a_process_interrupted_while_it_imports_numba_compiles_again(tmp_path, at):
    program = PROGRAM.format(strategy="none", before=AT_AN_IMPORT.format(at=at))
    code, said, errors = interrupted(tmp_path, program)
    assert code == 0 and said == "interrupted\nright\n", f"{said}\n{errors}"


def test_mutant_an_import_in_the_main_thread_is_torn(tmp_path):
    program = PROGRAM.format(strategy="none", before=TORN + AT_AN_IMPORT.format(at=150))
    code, said, _ = interrupted(tmp_path, program)
    assert code != 0 and said == "interrupted\n"


def test_who_waits_for_anothers_first_call_is_not_interrupted_with_it(monkeypatch):
    """The first thread is interrupted while it traces; the second one, which waited, compiles itself."""
    began, second, traced = threading.Event(), threading.Event(), []

    def interrupted(*args, trace=runtime.trace, **options):
        traced.append(args)
        if not began.is_set():
            began.set()
            assert second.wait(10)
            time.sleep(0.1)
            raise KeyboardInterrupt
        return trace(*args, **options)

    monkeypatch.setattr(runtime, "trace", interrupted)

    @ms.jit(target="python")
    def f(x):
        return x + 1

    found: dict[str, object] = {}

    def first():
        try:
            f(np.zeros(3))
        except KeyboardInterrupt as error:
            found["first"] = error

    def waiter():
        second.set()
        found["second"] = f(np.zeros(3))
    threads = [threading.Thread(target=first), threading.Thread(target=waiter)]
    threads[0].start()
    assert began.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(20)
    assert isinstance(found["first"], KeyboardInterrupt) and (found["second"] == 1).all()
    assert (f(np.zeros(3)) == 1).all() and len(traced) == 2


def test_the_main_thread_is_interrupted_at_once_and_the_work_goes_on():
    finished, started, go_on = threading.Event(), threading.Event(), threading.Event()

    def work():
        started.set()
        assert go_on.wait(30)
        finished.set()
        return 7

    def interrupt():
        assert started.wait(10)
        signal.raise_signal(signal.SIGINT) if sys.platform == "win32" else os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        undisturbed.undisturbed(work)
    assert not finished.is_set()
    go_on.set()
    assert finished.wait(30) and undisturbed.undisturbed(work) == 7
    with pytest.raises(ZeroDivisionError):
        undisturbed.undisturbed(lambda: 1 / 0)


def test_a_first_call_that_fails_or_is_interrupted_leaves_nothing_behind():
    """Also not the mark of a trace under way, which would make the next call a part of it."""
    errors = KeyboardInterrupt, ZeroDivisionError
    error = None

    @ms.jit(target="python")
    def f(x):
        if error:
            raise error
        return x * 2

    for error in errors:  # f raises it
        with pytest.raises(error):
            f(np.ones(3))
    error = None
    assert (f(np.ones(3)) == 2).all()


def test_a_first_call_may_make_the_same_call(monkeypatch):
    """As the handler of a signal does that comes during a first call: the thread waits for no lock that it holds."""
    asked = []

    def asks_itself(graph, device):
        if not asked:
            asked.append(None)
            asked.append(twice(ones))
        return ms.make_plan(graph, "asks_itself", [])

    ones = np.ones(3)
    monkeypatch.setitem(ms.STRATEGIES, "asks_itself", asks_itself)
    twice = ms.jit(lambda x: x * 2 + 1, strategy="asks_itself", target="python")
    found = []
    thread = threading.Thread(target=lambda: found.append(twice(ones)), daemon=True)
    thread.start()
    thread.join(60)
    assert found and np.array_equal(found[0], [3, 3, 3]) and np.array_equal(asked[1], [3, 3, 3])
