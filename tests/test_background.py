"""Compiling in the background (row 37 of docs/papers.md): calls run unfused until the kernels are there, and never see half of it.

No test sleeps or measures time: a strategy of the test holds the background thread at an event.
"""

from __future__ import annotations

import pickle
import queue
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from numpy_programs import check_program, programs
from programs import softmax

import minisitch as ms
from minisitch.errors import BackgroundWarning, PlanError, TraceError
from minisitch.fuse import STRATEGIES
from minisitch.runtime import Executable
from minisitch.runtime.executable import ReferenceExecutable

PATIENCE = 60  # seconds after which a test that hangs fails


X = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)


class Held:
    """A strategy that plans only when told to: ``go`` lets it, ``error`` is raised instead of a plan."""

    def __init__(self):
        self.go, self.asked, self.error = threading.Event(), threading.Event(), None

    def __call__(self, graph, device):
        self.asked.set()
        assert self.go.wait(PATIENCE)
        if self.error:
            raise self.error
        return STRATEGIES["astitch"](graph, device)


@pytest.fixture
def held(monkeypatch):
    strategy = Held()
    monkeypatch.setitem(STRATEGIES, "held", strategy)
    yield strategy
    strategy.go.set()


def behind(fn, target="python"):
    return ms.jit(fn, strategy="held", target=target, background=True)


def serving(f):
    run, = f._ready.values()
    return run


# ---------------------------------------------------------------- row 37: asynchronous compilation
@pytest.mark.paper(37)
@pytest.mark.parametrize("target", ["python", "cpu"])
def test_first_calls_run_unfused_and_then_the_kernels_take_over(held, target):
    f = behind(softmax, target)
    before = [f(X) for _ in range(3)]
    assert held.asked.wait(PATIENCE) and not f.ready(X) and isinstance(serving(f), ReferenceExecutable)
    held.go.set()
    f.wait(X)
    assert f.ready(X) and isinstance(serving(f), Executable) and len(serving(f).stages.kernels) == 1
    for got in (*before, f(X)):
        np.testing.assert_allclose(got, softmax(X), rtol=1e-6)


def test_it_is_off_unless_asked_for(held):
    held.go.set()
    f = ms.jit(softmax, strategy="held", target="python")
    f(X)
    assert f.ready(X) and isinstance(serving(f), Executable) and not f._behind


def test_the_way_of_a_later_call_is_as_short_as_without(held):
    """One look into one table; what the call finds there is the same executable that a plain jit would have."""
    held.go.set()
    f, plain = behind(softmax), ms.jit(softmax, strategy="held", target="python")
    f.wait(X)
    plain.wait(X)
    assert type(serving(f)) is type(serving(plain)) and serving(f).steps == serving(plain).steps
    assert list(f._ready) == list(plain._ready) and f.__call__.__func__ is plain.__call__.__func__


def test_a_jitted_function_that_nobody_called_is_compiled_by_wait_and_not_run(held):
    held.go.set()
    for f in (behind(softmax), ms.jit(softmax, target="python")):
        assert not f.ready(X)
        f.wait(X)
        assert f.ready(X) and not f.ready(X[:2])


def test_what_is_traced_is_traced_in_the_call(held):
    """The user's function runs in the user's thread, once, and its errors are the call's."""
    threads = queue.SimpleQueue()

    def fn(x):
        threads.put(threading.current_thread())
        return np.exp(x)

    f = behind(fn)
    f(X)
    held.go.set()
    f.wait(X)
    f(X)
    assert threads.get_nowait() is threading.current_thread() and threads.empty()
    with pytest.raises(TraceError):
        behind(lambda x: x if x.sum() > 0 else -x)(X)


def test_each_signature_waits_for_itself(held):
    f = behind(softmax)
    f(X)
    f(X[:3])
    held.go.set()
    f.wait(X[:3])
    f.wait(X)
    assert f.ready(X) and f.ready(X[:3]) and not f.ready(X[:2])


@settings(max_examples=40, deadline=None)
@given(programs())
def test_random_programs_mean_the_same_before_and_after_the_swap(program):
    for results in (0, 1):
        strategy = Held()
        STRATEGIES["held"] = strategy

        def run(function, *inputs, strategy=strategy, results=results):
            f = behind(function)
            seen = [f(*inputs)]
            assert not f.ready(*inputs)
            strategy.go.set()
            f.wait(*inputs)
            assert f.ready(*inputs)
            return [*seen, f(*inputs)][results]

        try:
            check_program(program, run)
        finally:
            strategy.go.set()
            del STRATEGIES["held"]


def test_what_a_program_writes_is_written_before_and_after(held):
    def step(x, velocity):
        velocity *= 0.5
        x += velocity
        return np.sum(x)

    f = behind(step)
    mine, theirs = (X.copy(), X.copy() + 1), (X.copy(), X.copy() + 1)
    for turn in range(4):
        if turn == 2:
            held.go.set()
            f.wait(*mine)
        np.testing.assert_allclose(f(*mine), step(*theirs), rtol=1e-5)
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


# ---------------------------------------------------------------- threads
@pytest.mark.paper(37)
def test_calls_of_many_threads_during_the_swap_see_one_plan_or_the_other(held):
    f = behind(softmax)
    expected, seen = softmax(X), []
    start, swapped = threading.Barrier(5), threading.Event()

    def call():
        start.wait(PATIENCE)
        while not swapped.is_set():
            seen.append(f(X))
        seen.append(f(X))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for thread in callers:
        thread.start()
    start.wait(PATIENCE)
    held.go.set()
    f.wait(X)
    swapped.set()
    for thread in callers:
        thread.join(PATIENCE)
    assert len(seen) >= 4 and len(f._behind) == 1
    for got in seen:
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_two_threads_that_call_first_start_one_compile(held):
    f = behind(softmax)
    start, planned = threading.Barrier(2), []
    held_call = held.__call__
    STRATEGIES["held"] = lambda graph, device: planned.append(1) or held_call(graph, device)

    def call():
        start.wait(PATIENCE)
        f(X)

    callers = [threading.Thread(target=call) for _ in range(2)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(PATIENCE)
    held.go.set()
    f.wait(X)
    assert planned == [1]


def test_one_program_is_compiled_at_a_time(held):
    """The second one's turn comes when the first is done: planning holds the interpreter, and calls need it too."""
    first, second = behind(softmax), behind(lambda x: np.exp(x))
    first(X)
    assert held.asked.wait(PATIENCE)
    held.asked.clear()
    second(X)
    assert not held.asked.is_set()
    held.go.set()
    second.wait(X)
    assert first.ready(X) and held.asked.is_set()


def test_where_no_thread_starts_the_call_compiles(held, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    held.go.set()
    f = behind(softmax)
    np.testing.assert_allclose(f(X), softmax(X), rtol=1e-6)
    assert f.ready(X)


# ---------------------------------------------------------------- errors
def test_an_error_in_the_background_is_said_once_and_calls_go_on(held):
    held.error = PlanError("no plan today")
    f = behind(softmax)
    f(X)
    held.go.set()
    with pytest.raises(PlanError, match="no plan today"):
        f.wait(X)
    assert not f.ready(X)
    with pytest.warns(BackgroundWarning, match="softmax: no kernels.*PlanError: no plan today.*wait") as caught:
        np.testing.assert_allclose(f(X), softmax(X), rtol=1e-6)
    assert [w.filename for w in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(f(X), softmax(X), rtol=1e-6)


def test_an_unknown_strategy_is_not_lost():
    f = ms.jit(softmax, strategy="magic", target="python", background=True)
    with pytest.raises(PlanError, match="unknown strategy 'magic'"):
        f.wait(X)


def test_where_warnings_are_errors_the_next_call_is_served(held):
    held.error, f = ValueError("broken"), behind(softmax)
    held.go.set()
    with pytest.raises(ValueError):
        f.wait(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ms.MinisitchError, match="ValueError: broken"):
            f(X)
        np.testing.assert_allclose(f(X), softmax(X), rtol=1e-6)


# ---------------------------------------------------------------- processes
@ms.jit(target="python", background=True)
def shadowed(x):
    return np.exp(x) * 2


class Model:
    @ms.jit(target="python", background=True)
    def forward(self, x):
        return np.exp(x) * 3


def test_the_option_travels_with_methods_and_pickles():
    model = Model()
    model.forward.wait(X)
    assert model.forward.ready(X) and model.forward._bound().options.background
    again = pickle.loads(pickle.dumps(ms.jit(shadowed, target="reference", background=True)))
    assert again.options.background and again.options.target == "reference"
    assert not ms.jit(shadowed, target="python").options.background


def test_a_forked_child_starts_its_own():
    """The thread is not in the child; what it was making is forgotten there, and the next call asks again."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "child ready\nparent ready\n", "")


FORKS = """
import os, sys, threading
import numpy as np, minisitch as ms
from minisitch.fuse import STRATEGIES
asked, go = threading.Event(), threading.Event()
def held(graph, device):
    asked.set()
    go.wait()
    return STRATEGIES["astitch"](graph, device)
STRATEGIES["held"] = held
f = ms.jit(lambda x: np.exp(x) + 1, strategy="held", target="cpu", background=True)
x = np.ones((3, 4), np.float32)
f(x)
asked.wait()
child = os.fork()
if not child:
    STRATEGIES["held"] = STRATEGIES["astitch"]
    assert not f.ready(x)
    f(x)
    f.wait(x)
    print("child ready" if f.ready(x) else "not ready", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
go.set()
f.wait(x)
print("parent ready" if f.ready(x) else "not ready")
"""


@pytest.mark.parametrize("where", ["planning", "compiling"])
def test_the_process_ends_while_the_background_works(where, tmp_path):
    """At once while it plans, after the kernel under way while it compiles; silent, and with the program's exit code."""
    program = f"""
import os, threading
os.environ["MINISITCH_CACHE"] = {str(tmp_path)!r}
import numpy as np, minisitch as ms
from minisitch.runtime.cpu import compile as compiler
from minisitch.fuse import STRATEGIES
asked = threading.Event()
def held(graph, device):
    asked.set()
    threading.Event().wait()
STRATEGIES["held"] = held
if "{where}" == "compiling":
    build = compiler._build
    def telling(*args):
        asked.set()
        return build(*args)
    compiler._build = telling
f = ms.jit(lambda x: [np.exp(x[i:]) for i in range(4)], strategy="held" if "{where}" == "planning" else "none",
           target="cpu", background=True)
f(np.ones((9, 4), np.float32))
asked.wait()
raise SystemExit(7)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
