"""What would be another at each call is refused at the line that asks for it: draws, files, clocks, settings, writes."""

from __future__ import annotations

import argparse
import array
import contextvars
import ctypes
import datetime
import decimal
import functools
import importlib
import inspect
import io
import itertools
import logging
import os
import queue
import random
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from test_right_frozen import OUT, PAIR, Base, Heir, Other, X, cached, defaulted, new_world, other

import minisitch as ms

HERE = Path(__file__).name
depth = 1.0


NUMBERS = itertools.count(1)
STEP, LISTED = NUMBERS.__next__, [1.0, 2.0]
LEVEL, WAITING, SIMPLE = contextvars.ContextVar("level", default=1.0), queue.Queue(), queue.SimpleQueue()
EVENT = threading.Event()
SIMPLE.put(1.0), WAITING.put(1.0)
UFUNC = np.frompyfunc(lambda k: k * depth, 1, 1)


class Local(threading.local):
    k = 1.0


LOCAL = Local()


class Day(datetime.date):
    pass


class Doubling:
    def __init__(self):
        self.w = np.ones(4)

    @functools.cached_property
    def doubled(self):
        return self.w * 2


class Log(list):
    calls = 0


LOG = Log()
LOG.o = DOUBLING = Doubling()
OUTER = argparse.Namespace(inner=argparse.Namespace(k=1.0), cache={}, generator=np.random.default_rng(0), numbers=iter([1.0, 2.0]))
FLAT, LOG_OF, LOCK, CONTEXT = np.ones(4).flat, logging.getLogger("hunted"), threading.Lock(), contextvars.copy_context()


class Caching:
    k = 1.0

    @functools.cache  # noqa: B019
    def number(self):
        return self.k


CACHING = Caching()
CACHING.number()
DRAW, SYSTEM, HANDLE = np.random.default_rng(0).random, random.SystemRandom(), io.StringIO("1")
REFUSED = {
    "a bound method of a generator": (lambda x: x * OUT.draw(4), "OUT.draw().*Draw outside"),  # was a segmentation fault
    "the next of an iterator": (lambda x: x * STEP(), r"STEP\(\).*Take the next one outside"),
    "a generator without a state": (lambda x: x * SYSTEM.random(), "SYSTEM.random.*Draw outside"),
    "python's generator without a seed": (lambda x: x * random.Random().random(), r"random.Random\(\).*Draw outside"),
    "a line of a file": (lambda x: x * len(HANDLE.readline()), "HANDLE.readline.*Take the next one outside"),
    "a bound method that changes its list": (lambda x: x * OUT.pop(), "changes? nothing there.*Pass it in"),
    "a file": (lambda x: x * len(Path(__file__).read_text(encoding="utf-8")), r"read_text\(\).*Ask outside"),
    "an array in a file": (lambda x: x * np.load(OUT.path), r"np.load\(\).*Ask outside"),
    "bytes of a file": (lambda x: x * np.fromfile(__file__), "np.fromfile.*Ask outside"),
    "whether there is a file": (lambda x: x * os.path.exists(__file__), r"os.path.exists\(\).*Ask outside"),
    "the environment": (lambda x: x * len(os.environ["PATH"]), "os.environ.*Ask outside"),
    "a variable of the environment": (lambda x: x * len(os.getenv("PATH", "")), "os.environ.*Ask outside"),
    "a clock of the thread": (lambda x: x * time.thread_time(), r"time.thread_time\(\).*Ask outside"),
    "globals": (lambda x: x * globals()["depth"], r"globals\(\).*Write the name"),
    "eval": (lambda x: x * eval("depth"), r"eval\(\).*Write the name"),
    "a frame": (lambda x: x * len(inspect.currentframe().f_back.f_locals), r"inspect.currentframe\(\).*Write the name"),
    "a table of its own": (lambda x: x * TABLE.setdefault(x.shape, 1), r"TABLE\[\(4,\)\].*Return what is new.*functools.cache"),
    "an error state": (lambda x: (np.seterr(all="ignore"), x)[1], r"np.seterr\(\).*np.errstate"),
    "a variable that is set": (lambda x: (os.environ.update(MINISITCH_HUNT="1"), x)[1], "os.environ.*Set it outside"),
    "an error that NumPy would raise": (lambda x: raising(x), r"np.errstate\(... 'raise'\).*np.isfinite"),
    "a counter that is a default": (lambda x: counting(x), "counts.*nothing there"),
    "a counter of a list's class": (lambda x: (LOG.__setattr__("calls", LOG.calls + 1), x)[1], "LOG.calls.*nothing there"),
    "a variable of the context": (lambda x: x * LEVEL.get(), r"ContextVar.get\(\).*Ask outside"),
    "an event that is set": (lambda x: (EVENT.set(), x)[1], "EVENT._flag.*nothing there"),
    "a queue": (lambda x: x * WAITING.get(), r"WAITING.queue\[0\].*nothing there"),
    "a queue written in C": (lambda x: x * SIMPLE.get(), r"SimpleQueue.get\(\).*Ask outside"),
    "the error state": (lambda x: x * len(np.geterr()), r"np.geterr\(\).*Ask outside"),
    "how numbers are printed": (lambda x: x * np.get_printoptions()["precision"], r"get_printoptions\(\).*Ask outside"),
    "how decimals are rounded": (lambda x: x * decimal.getcontext().prec, r"getcontext\(\).*Ask outside"),
    "the number of the process": (lambda x: x * os.getpid(), r"os.getpid\(\).*Ask outside"),
    "the thread": (lambda x: x * len(threading.current_thread().name), r"current_thread\(\).*Ask outside"),
    "how deep calls may go": (lambda x: x * sys.getrecursionlimit(), r"getrecursionlimit\(\).*Ask outside"),
    "the day, of a class of one's own": (lambda x: x * Day.today().day, r"Day.today\(\).*Ask outside"),
    "all variables of the environment": (lambda x: x * len(os.environ), "os.environ.*Ask outside"),
    "where an object lies": (lambda x: x * (id(OUT) % 7), r"id\(\) of an object outside.*is"),
    "the hash of an object": (lambda x: x * (hash(LOG.o) % 7), r"hash\(\) of an object outside"),
    "how often a cache was asked": (lambda x: x * cached.cache_info().hits, "cached.cache_info.*Ask outside"),
    "a function in a ufunc": (lambda x: x * float(UFUNC(1.0)), r"<lambda>\(\), which the program calls through an object of a library"),
    "what each thread has for itself": (lambda x: x * LOCAL.k, r"LOCAL\.k: .*Ask outside"),
    "a write to what each thread has for itself": (lambda x: (setattr(LOCAL, "k", 2.0), x)[1], r"LOCAL\.k: .*Ask outside"),
    "a pointer": (lambda x: x * OUT.pointer[0], "a pointer that Python.*Pass it in"),
    "a new size in place": (lambda x: (OUT.w.resize((2, 2)), x)[1], "ndarray.resize"),
    "other bits of a new array": (lambda x: (np.ones(4).view(np.int64).__setitem__(0, 5), x)[1], "writes to an array"),
    "a new name in NumPy": (lambda x: (setattr(np, "hunted", 1), x)[1], "numpy.hunted.*Set it outside"),
    "the bases of a class, changed": (lambda x: (setattr(Heir, "__bases__", (Other,)), x * Heir.rate)[1], "Heir.__bases__.*nothing there"),
    "the code of a function, changed": (lambda x: (setattr(other, "__code__", PAIR), x)[1], "other.__code__.*nothing there"),
    "the defaults of a function, changed": (lambda x: (setattr(defaulted, "__defaults__", (9.0,)), x)[1], "defaulted.__defaults__.*nothing"),
    "an attribute of an object in a library's": (
        lambda x: (setattr(OUTER.inner, "k", 2.0), x)[1], "OUTER.inner.k.*nothing there"),
    "a cache of a library's object": (lambda x: (OUTER.cache.update(k=2.0), x)[1], r"OUTER.cache\['k'\].*nothing there"),
    "a generator of a library's object": (lambda x: x * OUTER.generator.random(4), "random numbers from OUTER.generator.*Draw outside"),
    "an iterator of a library's object": (lambda x: x * next(OUTER.numbers), "numbers, an iterator that.*Take the next one"),
    "the strides of an array outside": (lambda x: x * OUT.w.strides[0], "ndarray.strides.*outside the traced function"),
    "the owner of an array's memory": (lambda x: x * (OUT.w.base is None), "ndarray.base.*outside the traced function"),
    "the hour here": (lambda x: x * datetime.datetime.fromtimestamp(0).hour, r"fromtimestamp\(\).*Ask outside"),
    "numbers in a file": (lambda x: x * np.loadtxt("x.txt"), "np.loadtxt.*Ask outside"),
    "an element of a.flat": (lambda x: x * FLAT[0], r"FLAT\[...\].*a.ravel\(\)"),
    "a write to an element of a.flat": (lambda x: (FLAT.__setitem__(0, 1.0), x)[1], r"FLAT\[...\].*a.ravel\(\)"),
    "whether a logger is on": (lambda x: x * LOG_OF.isEnabledFor(10), r"isEnabledFor\(\).*Ask outside"),
    "how loud a logger is": (lambda x: x * LOG_OF.getEffectiveLevel(), r"getEffectiveLevel\(\).*Ask outside"),
    "the classes made of a class": (lambda x: x * len(Base.__subclasses__()), r"Base.__subclasses__\(\).*Ask outside"),
    "whether a lock is held": (lambda x: x * LOCK.locked(), r"lock.locked\(\).*Ask outside"),
    "a context of variables": (lambda x: x * CONTEXT.run(lambda: 1.0), r"Context.run\(\).*Ask outside"),
    "the context of variables": (lambda x: x * len(contextvars.copy_context()), r"copy_context\(\).*Ask outside"),
    "a module by its name": (lambda x: x * importlib.import_module("string").hunted, r"import_module\(\).*import statement"),
    "a method with a cache": (lambda x: x * CACHING.number(), r"Caching.number\(\), a method with a cache.*Give a function the cache"),
    "the text of an array": (lambda x: x * len(repr(x)), r"repr\(\) of a traced f64\[4\].*x.shape"),
    "the text of an array in a list": (lambda x: x * len(f"{[x]}"), "repr.*of a traced .*x.shape"),
    "what a cached property makes of arrays": (lambda x: x * DOUBLING.doubled, "DOUBLING.doubled.*nothing there"),
}


# what shares its memory -> how a program writes to it
WRITTEN = {
    "plain": lambda x: OUT.plain.__setitem__(0, 7.0), "longer": lambda x: OUT.longer.append(7.0), "buffer": lambda x: OUT.buffer.pop(),
    "view": lambda x: OUT.view.__setitem__(0, 7), "every_second": lambda x: OUT.every_second.__setitem__(1, 7.0),
    "c_double": lambda x: setattr(OUT.c_double, "value", 7.0), "c_array": lambda x: ctypes.memset(OUT.c_array, 1, 8),
    "structure": lambda x: setattr(OUT.structure, "k", 7.0), "record": lambda x: OUT.record.__setitem__("a", 7.0),
    "memory": lambda x: np.frombuffer(OUT.memory).fill(7.0),
}


class Structure(ctypes.Structure):
    _fields_ = [("k", ctypes.c_double), ("pointer", ctypes.POINTER(ctypes.c_double))]


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("is_read", [False, True])
def test_a_write_to_memory_outside_is_refused_at_its_line_and_undone(name, is_read):
    new_world()
    OUT.longer, OUT.every_second, OUT.structure = array.array("d", [1, 2]), memoryview(array.array("d", range(6)))[::2], Structure(1.0)
    OUT.memory, OUT.view, write = array.array("d", [1.0, 2.0]), memoryview(bytearray(8)), WRITTEN[name]

    def program(x):
        write(x)
        return x * len(bytes(getattr(OUT, name))) if is_read else x

    before = memoryview(getattr(OUT, name)).tobytes()
    with pytest.raises(ms.TraceError, match=f"^{HERE}:\\d+: the program puts what it computed into OUT.{name}, .*Pass it in"):
        ms.jit(program, target="reference")(X)
    assert memoryview(getattr(OUT, name)).tobytes() == before


def test_errors_that_numpy_would_raise_are_refused_at_the_call_that_asks_for_them():
    jitted = ms.jit(lambda x: x / (x - 1), target="reference")
    with np.errstate(all="warn"):
        first = jitted(X)
    for asked in ("raise", "print", "log"):
        with np.errstate(under=asked), pytest.raises(ms.TraceError, match=rf"{HERE}:\d+: .*errstate\(under='{asked}'\).*all='warn'"):
            jitted(X)
        with np.errstate(all=asked), np.errstate(all="warn"):  # the remedy
            np.testing.assert_array_equal(jitted(X), first)


def raising(x):
    with np.errstate(divide="raise"):
        return x / 0


def counting(x, counts=[]):  # noqa: B006
    counts.append(1)
    return x * len(counts)


@pytest.mark.parametrize("name", REFUSED)
def test_what_each_call_would_do_anew_is_refused_at_its_line(name, tmp_path):
    function, said = REFUSED[name]
    OUT.draw, OUT.pop, OUT.path = DRAW, LISTED.pop, tmp_path / "x.npy"
    OUT.w, OUT.pointer = np.ones(4), ctypes.pointer(ctypes.c_double(1.0))
    np.save(OUT.path, X)
    before = np.geterr(), dict(os.environ), len(LISTED), counting.__defaults__
    with pytest.raises(ms.TraceError, match=f"(?s)^{HERE}:\\d+: .*{said}") as refused:
        ms.jit(function, target="reference")(X)
    assert "caught this error itself" not in str(refused.value)
    line = int(re.search(r":(\d+):", str(refused.value))[1])
    assert Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1].strip()[:3] != "def"
    assert before == (np.geterr(), dict(os.environ), len(LISTED), counting.__defaults__)


def test_what_a_library_keeps_to_compute_it_once_is_no_write():
    path = Path("a") / "b.c"
    assert ms.jit(lambda x: x * len(str(path)) * len(path.suffix), target="reference")(X).tolist() == (X * 10).tolist()


TABLE = {}


@functools.cache
def tabled(n):
    return np.arange(n) * 2.0


def test_the_remedies_work():
    number = 3.0
    assert ms.jit(lambda x: x * tabled(len(x)), target="reference")(X).tolist() == (X * tabled(4)).tolist()
    assert ms.jit(lambda x, k: x * k, target="reference")(X, float(len(os.environ["PATH"]))).shape == (4,)
    assert ms.jit(lambda x: x * number, target="reference")(X).tolist() == (X * 3).tolist()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ms.jit(silent, target="reference")(X), silent(X))


def silent(x):
    with np.errstate(divide="ignore"):
        return x / 0
