"""A child that is forked at any moment of other threads' first calls makes its own: it waits for no lock of a thread that it lacks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from children import run

ROOT = Path(__file__).parent.parent

FIRST_CALLS = """
import os, signal, sys, threading, time
import numpy as np
import minisitch as ms
from minisitch.errors.forks import forks_wait

def first_call(k):
    def f(x):
        return np.tanh(x * (k + 0.25)).sum(-1) + k
    x = np.ones((8, 50 + k))
    return bool(np.allclose(ms.jit(f, strategy="astitch", target="cpu")(x), f(x)))

def forked(work):
    child = os.fork()
    if not child:
        signal.alarm(60)  # a child that hangs is killed
        os._exit(0 if work() else 3)
    return child

def ends(*children):
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
"""

DURING_FIRST_CALLS = """
stop = threading.Event()

def work(k):
    while not stop.is_set():
        assert first_call(k)
        k += 4

threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for each in threads:
    each.start()
children = []
for i in range(FORKS):
    time.sleep(0.02 * (i % 4))
    children.append(forked(lambda: first_call(1000 + i % 3)))
stop.set()
for each in threads:
    each.join()
print(ends(*children))
"""

# Which modules are imported, and how often LLVM's lock is taken, by a thread that a fork does not wait for.
SEEN = """
from importlib.machinery import PathFinder

def waited_for():
    return threading.get_ident() in forks_wait.holders

class Finder:
    def find_spec(self, name, path=None, target=None):
        if not waited_for():
            imports.append(name)
        elif name == "llvmlite.binding.ffi":
            spec = PathFinder.find_spec(name, path)
            load = spec.loader.exec_module
            def loaded(module):
                load(module)
                module.register_lock_callback(lambda: entered.append(waited_for()), lambda: None)
            spec.loader.exec_module = loaded
            return spec

imports, entered = [], []
sys.meta_path.insert(0, Finder())
threads = [threading.Thread(target=lambda k=k: [first_call(k + 2 * i) for i in range(5)]) for k in range(2)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(imports, len(entered) > 100, all(entered))
"""

WHO_HOLDS_THE_LOCK_FORKS = """
with forks_wait:
    child = forked(lambda: first_call(1))
    print(first_call(2))
print(ends(child))
"""

BESIDE_A_USERS_COMPILATION = """
import numba
from numba import types

def compile(k):
    def f(x):
        return x * k + 1
    while not stop.is_set():
        numba.njit(types.float64(types.float64))(f)

stop = threading.Event()
user = threading.Thread(target=compile, args=(3,))
user.start()
children = [forked(lambda: first_call(1)) for _ in range(6) if not time.sleep(0.05)]
stop.set()
user.join()
print(ends(*children))
"""

AT_EXIT = """
import atexit
atexit.register(lambda: print(first_call(1)))  # runs after what minisitch has registered
"""


def started(program, cache):
    """What a program prints that starts without Numba."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "MINISITCH_CACHE": str(cache), "MINISITCH_PROGRESS": "off"})
    return done.stdout.strip() + done.stderr


@pytest.mark.parametrize("forks", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_children_forked_during_first_calls_make_their_own(tmp_path, forks):
    assert started(f"FORKS = {forks}" + FIRST_CALLS + DURING_FIRST_CALLS, tmp_path) == str([0] * forks)


def test_forks_wait_for_imports_and_for_llvm(tmp_path):
    """What is compiled, and freed: 10 programs, which live for one call."""
    assert started(FIRST_CALLS + SEEN, tmp_path) == "[] True True"


def test_a_thread_that_forks_while_it_compiles_waits_for_nothing(tmp_path):
    assert run(FIRST_CALLS + WHO_HOLDS_THE_LOCK_FORKS, tmp_path).stdout == "True\n[0]\n"


def test_a_fork_waits_for_a_users_own_compilation(tmp_path):
    assert run(FIRST_CALLS + BESIDE_A_USERS_COMPILATION, tmp_path).stdout == f"{[0] * 6}\n"


def test_a_first_call_at_the_end_of_the_process(tmp_path):
    assert started(AT_EXIT + FIRST_CALLS + "first_call(2)", tmp_path) == "True"
