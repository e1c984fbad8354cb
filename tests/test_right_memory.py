"""Memory does not grow with the combinations of shapes: programs used least lately go, and what a function leaves is freed."""

import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from programs import softmax

import minisitch as ms
from minisitch.runtime import call, pool, programs, steps
from minisitch.runtime.cpu import compile as compiler
from minisitch.runtime.cpu import object_code

ROOT = Path(__file__).parent.parent


def two_products(x, w):
    return np.exp(x @ w) @ w


def rows(n, columns=8):
    return np.linspace(-1, 1, n * columns, dtype=np.float32).reshape(n, columns)


@pytest.fixture
def room_for_six(monkeypatch):
    """Programs of this file's softmax: three are used lately, three go next."""
    one = programs.size(ms.jit(softmax, target="reference").compile(rows(2)))
    monkeypatch.setattr(programs, "limit", lambda: 6 * one)
    programs._turn()  # what was used before is not counted


def used_and_unused():
    """Whether a program that is called between all others is still the same, and whether one that is not is still there."""
    f = ms.jit(softmax, target="reference")
    f(rows(1)), f(rows(2))
    used, unused = (weakref.ref(f._ready.find(k)) for k in (*f._ready,))
    for n in range(3, 20):
        f(rows(n))
        np.testing.assert_allclose(f(rows(1)), softmax(rows(1)), rtol=1e-6)
    gc.collect()
    assert len(f._ready) + len(f._ready.earlier) <= 6
    return used() is not None, unused() is not None


# ---------------------------------------------------------------- the bound
def test_programs_used_least_lately_go(room_for_six):
    assert used_and_unused() == (True, False)


def test_the_bound_is_for_all_functions_together(room_for_six):
    functions = [ms.jit(lambda x, k=k: softmax(x) * k, target="reference") for k in range(12)]
    for f in functions:
        f(rows(2))
    assert sum(len(f._ready) + len(f._ready.earlier) for f in functions) <= 6
    for k, f in enumerate(functions):
        np.testing.assert_allclose(f(rows(2)), softmax(rows(2)) * k, rtol=1e-6)


def test_a_program_that_goes_while_a_thread_runs_it_ends_its_calls(room_for_six):
    f, stop, wrong = ms.jit(two_products, target="python"), threading.Event(), []
    w, x = rows(8), rows(4)
    expected = two_products(x, w)

    def keep_calling():
        while not stop.is_set():
            if not np.allclose(f(x, w), expected, rtol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=keep_calling) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        f.clear()
        programs._turn()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_wrong_bound_is_refused(monkeypatch):
    monkeypatch.setenv("MINISITCH_PROGRAMS", "much")
    programs.limit.cache_clear()
    try:
        with pytest.raises(ms.MinisitchError, match="MINISITCH_PROGRAMS='much' is not a number; set it to the bytes"):
            programs.limit()
    finally:
        programs.limit.cache_clear()


# ---------------------------------------------------------------- what a function leaves
def left(forget):
    """What is alive of a function's programs after it was forgotten."""
    def mine(x):
        return softmax(x) + np.float32(0.125)

    f = ms.jit(mine, target="cpu")
    for n in (3, 5):
        f(rows(n))
    launches = [step.launch for run in f._ready.values() for step in run.steps]
    alive = [weakref.ref(thing) for thing in (*f._ready.values(), *launches)]
    lines = [path for path in compiler.linecache.cache if path.startswith("<minisitch call")]
    keys = {key for key, launch in steps._built.items() if launch in launches}
    del launches
    forget(f)
    del f, mine
    gc.collect()
    return (sum(thing() is not None for thing in alive), len(keys & {*steps._built}),
            len([path for path in lines if path in compiler.linecache.cache]) - (len(lines) - 2))


@pytest.mark.parametrize("forget", [lambda f: None, lambda f: f.clear()], ids=["del", "clear"])
def test_what_a_function_leaves_is_freed(forget):
    assert left(forget) == (0, 0, 0)


def test_a_cleared_function_compiles_again():
    f = ms.jit(softmax, target="python")
    before = f(rows(4))
    assert len(f._ready) == 1
    f.clear()
    assert not f._ready and np.array_equal(f(rows(4)), before)


def test_clear_of_a_method_is_for_all_objects_or_for_one():
    class Scaled:
        def __init__(self, by):
            self.by = by

        @ms.jit(target="python")
        def of(self, x):
            return softmax(x) * self.by

    one, two = Scaled(2.0), Scaled(3.0)
    one.of(rows(2)), two.of(rows(2))
    one.of.clear()
    assert [len(each.of._bound()._ready) for each in (one, two)] == [0, 1]
    Scaled.of.clear()
    assert not two.of._bound()._ready


def test_machine_code_is_freed_with_its_last_function():
    text = "def freed(first, last, x, y):\n    for i in range(first, last):\n        y[i] = x[i] * x[i]\n"
    made = compiler.compile_cpu(text, "freed", ("float32", "float32"))
    function, code = made.function, weakref.ref(made.code)
    del made
    gc.collect()
    x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    function(0, 3, x, y)
    assert y.tolist() == [0, 1, 4] and code() is not None, "a function is enough to keep it"
    del function
    gc.collect()
    assert code() is None


def test_after_some_kernels_others_compile_elsewhere(tmp_path, monkeypatch):
    """LLVM keeps nearly a MB of each kernel that a process compiles; a worker that has compiled as many makes room for another."""
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "MOST_HERE", 2)
    monkeypatch.setattr(compiler, "elsewhere", compiler.Elsewhere())
    built, image_of, workers = [], object_code.image_of, set()
    monkeypatch.setattr(object_code, "image_of", lambda kernel: built.append(kernel) or image_of(kernel))
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    for n in range(5):
        text = f"def k(first, last, x, y):\n    for i in range(first, last):\n        y[i] = x[i] + np.float32({n})\n"
        compiler.compile_cpu(text, "k", ("float32", "float32")).function(0, 3, x, y)
        assert (y == n + 1).all()
        workers.add(compiler.elsewhere.process and compiler.elsewhere.process.pid)
    compiler.elsewhere.process.kill()
    compiler.compile_cpu(text.replace("+", "-"), "k", ("float32", "float32")).function(0, 3, x, y)
    assert (y == 1 - n).all() and len(built) == 3, "two first, and what a dead worker leaves"
    assert len(workers) == 3 and workers > {None}, "none, one of two kernels, one of the rest"
    compiler.elsewhere.end()


# ---------------------------------------------------------------- workspaces
def test_programs_of_a_thread_share_one_workspace_that_grows_and_is_given_back(monkeypatch):
    monkeypatch.setattr(call, "idle", type(call.idle)())
    f, w = ms.jit(two_products, target="python"), rows(8)
    for n in (64, 8, 256, 16):
        x = rows(n)
        np.testing.assert_allclose(f(x, w), two_products(x, w), rtol=1e-5, atol=1e-5)
    (held,) = call.idle.free
    largest = max(run.workspace for run in f._ready.values())
    assert largest <= held.raw.nbytes < largest + 2 * call.ALIGNMENT
    f.clear()
    assert held.raw.nbytes == 0 and not held.made
    np.testing.assert_allclose(f(x, w), two_products(x, w), rtol=1e-5, atol=1e-5)


def test_a_call_within_a_call_has_a_workspace_of_its_own(monkeypatch):
    """As a signal's handler or a finalizer makes one: between two steps of the outer call."""
    f, x, w = ms.jit(two_products, target="python"), rows(8), rows(8)
    run, seen = f.compile(x, w), []
    function = run.call.function
    kernel = next(name for name, step in ((s.name, s) for s in run.steps) if name in function.__globals__)
    launch = function.__globals__[kernel]

    def interrupted(*buffers):
        if not seen:
            seen.append(None)
            seen[0] = run([2 * x, w])
        launch(*buffers)

    monkeypatch.setitem(function.__globals__, kernel, interrupted)
    np.testing.assert_allclose(run([x, w]), two_products(x, w), rtol=1e-5)
    np.testing.assert_allclose(seen[0], two_products(2 * x, w), rtol=1e-5)


def test_memory_of_results_of_sizes_that_nobody_asks_for_goes():
    for n in range(100):
        pool.fresh((1 << 16,), np.dtype("float32"))
        pool.fresh(((1 << 14) + n,), np.dtype("float32"))
    assert (1 << 18) in pool._kept and len(pool._kept) <= 2 * pool.EACH + 1


# ---------------------------------------------------------------- all of it, from outside
GROWS = """
import gc, tracemalloc
import numpy as np, minisitch as ms
from minisitch.runtime import programs

tracemalloc.start()
f = ms.jit(lambda x, w: np.exp(x @ w) @ w, target="python")
w = np.ones((64, 64), np.float32)
at = []
for n in range(1, 51):
    if n == 31:
        programs.limit = lambda: 1 << 40
    f(np.ones((n, 64), np.float32), w)
    if n % 10 == 0:
        gc.collect()
        at.append(tracemalloc.get_traced_memory()[0])
grown = [(after - before) / 10 for before, after in zip(at, at[1:])]
print(max(grown[:2]), min(grown[2:]))
"""


def test_a_process_does_not_grow_with_its_shapes():
    """Bytes of Python and NumPy for a shape, with a bound of 1 MB and, the mutant, without."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MINISITCH_CACHE": "0", "MINISITCH_PROGRAMS": str(1 << 20)}
    said = subprocess.run([sys.executable, "-c", GROWS], env=environment, check=True, capture_output=True, text=True).stdout
    bounded, kept = map(float, said.split())
    assert bounded < kept / 2, said
