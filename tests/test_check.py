"""``check=True`` finds what is looked at once: the kinds that docs/index.md gives up."""

import collections
import functools
import inspect
import itertools
import logging
import operator
import os
import threading
import weakref

import numpy as np
import pytest

import minisitch as ms

X = np.arange(1.0, 4.0)


class Thing:
    """An object with any attributes."""

    def __init__(self, **named):
        self.__dict__.update(named)


def put(holder, name, value):
    return lambda: setattr(holder, name, value)


def defaults(x, k=1.0):
    return x * k


TABLE = {"cache": 1.0}
FRAME, GET, LOGGER, CELL = collections.ChainMap({"a": [1.0, 2.0, 3.0]}), operator.attrgetter("k"), logging.getLogger("quiet"), Thing(k=2.0)
MEMORY, BITS = bytearray(b"\x01"), type("Bits", (frozenset,), {})({1})


@functools.cache
def cached(n):
    return X * TABLE["cache"] * n


def of_c(x):
    return x * GET(CELL)


class Made:
    seen = 1.0

    def __init_subclass__(cls):
        cls.k = Made.seen


def subclassed(x):
    class Heir(Made):
        pass
    return x * Heir.k


HELD = {CELL}
GIVEN_UP = {
    "a library's object": (lambda x: x * np.array(FRAME["a"]), lambda: FRAME.update(a=[3.0, 2.0, 1.0])),
    "a cache": (lambda x: x * cached(1), lambda: (TABLE.update(cache=2.0), cached.cache_clear())),
    "what C code asks": (of_c, put(CELL, "k", 3.0)),
    "a library's module": (lambda x: x * np.pi, put(np, "pi", 3.0)),
    "the environment": (lambda x: x * float(os.environ.get("SCALE_OF_A_TEST", "1")), lambda: os.environ.update(SCALE_OF_A_TEST="2")),
    "a function's annotations": (lambda x: x * len(inspect.get_annotations(defaults)), lambda: setattr(defaults, "__annotations__", {"x": 1})),
    "a logger": (lambda x: x * LOGGER.isEnabledFor(10), lambda: LOGGER.setLevel(10)),
    "a bytearray": (lambda x: x * MEMORY[0], lambda: MEMORY.__setitem__(0, 2)),
    "an iterator's place": (lambda x: x * len(ITERATOR.__reduce__()), None),
    "an element of a set": (lambda x: x * sum(each.k for each in HELD), put(CELL, "k", 8.0)),
    "what makes a subclass": (subclassed, put(Made, "seen", 4.0)),
    "a weak dict": (lambda x: x * len(WEAK), lambda: WEAK.clear()),
}
ITERATOR, WEAK = iter([1, 2]), weakref.WeakValueDictionary(a=CELL)


@pytest.mark.parametrize("what", [what for what, (_, change) in GIVEN_UP.items() if change])
def test_check_finds_what_is_looked_at_once(what):
    function, change = GIVEN_UP[what]
    was = np.pi
    jitted = ms.jit(function, target="reference", check=True)
    try:
        assert np.array_equal(jitted(X), function(X))
        change()
        with pytest.raises(ms.MinisitchError, match="differs from NumPy's.*(Looked at once|another program)|Looked at once"):
            jitted(X)
    finally:
        np.pi = was
        os.environ.pop("SCALE_OF_A_TEST", None)


def test_check_finds_what_another_thread_writes_while_the_function_is_traced():
    cell, read, runs = Thing(k=2.0), threading.Event(), itertools.count(1)

    def f(x):
        y = x * GET(cell)  # C code reads it, so no call looks again
        if next(runs) == 3:  # the plain function and both traces have read it
            read.set()
            writer.join()
        return y

    def write():
        read.wait()
        cell.k = 5.0
    writer = threading.Thread(target=write)
    writer.start()
    jitted = ms.jit(f, target="reference", check=True)
    assert np.array_equal(jitted(X), X * 2)
    with pytest.raises(ms.CheckError, match="differs from NumPy's"):
        jitted(X)


def test_check_says_which_element_and_lets_right_calls_pass(monkeypatch):
    monkeypatch.setenv("MINISITCH_CHECK", "1")
    FRAME["a"] = [1.0, 2.0, 3.0]
    jitted = ms.jit(lambda x: (x + 1, x * np.array(FRAME["a"])), target="cpu")
    for k in range(3):
        assert np.array_equal(jitted(X + k)[1], (X + k) * X)
    FRAME["a"] = [1.0, 2.0, 9.0]
    with pytest.raises(ms.MinisitchError, match=r"result 1 differs from NumPy's: at \(2,\) it is 9.0, and NumPy has 27.0.*test_check.py:\d+"):
        jitted(X)

    @ms.jit
    def written(x, y):
        x += y
        return {"sum": x.sum(), "n": 3}
    x = X.copy()
    assert written(x, X)["n"] == 3 and np.array_equal(x, X * 2)


def test_check_gives_the_plain_function_the_arrays_themselves():
    jitted = ms.jit(lambda x: x * (2.0 if x is X else 7.0), target="reference", check=True)
    assert np.array_equal(jitted(X), X * 2)
    held = X.copy()

    def scaled(x):
        x *= 2
        return x + 1
    assert np.array_equal(ms.jit(scaled, target="reference", check=True)(held), X * 2 + 1) and np.array_equal(held, X * 2)


def test_explain_lists_what_is_looked_at_once():
    FRAME["a"] = [1.0, 2.0, 3.0]
    said = str(ms.explain(lambda x: x * np.array(FRAME["a"]), X))
    assert "looked at once" in said and "test_check.py" in said
