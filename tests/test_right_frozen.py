"""What changes between two calls is seen at the second, and what cannot be seen is refused at its line."""

from __future__ import annotations

import argparse
import array
import collections
import contextlib
import enum
import io
import itertools
import operator
import os
import random
import re
import time
import types
from pathlib import Path

import numpy as np
import pytest

import minisitch as ms

HERE = Path(__file__).name
X = np.arange(1.0, 5.0)
OUT = types.SimpleNamespace()  # what the cases change
depth = 1.0


class Base:
    k = 2.0

    def scaled(self, x):
        return x * self.k

    def more(self, x):
        return self.scaled(x) + 1


class Derived(Base):
    pass


class Mode(enum.Enum):
    SLOW, FAST = 1.0, 2.0


class Field:
    """A descriptor with a state of its own."""

    def __init__(self, value):
        self.value = value

    def __get__(self, holder, kind=None):
        return self.value


class Looked:
    def __init__(self):
        self.table = {"k": 2.0}

    def __getattribute__(self, name):
        table = object.__getattribute__(self, "table")
        return table[name] if name in table else object.__getattribute__(self, name)


class Settings(collections.UserDict):
    pass


@contextlib.contextmanager
def deeper():
    global depth
    before, depth = depth, 3.0
    try:
        yield
    finally:
        depth = before


def helper(x):
    return x + 1


def other(x):
    return x + 7


def of_deeper(x):
    with deeper():
        return x * depth


# name -> what a call reads, and what a user does before call number i
SEEN = {
    "the code of a function, as a notebook's autoreload changes it": (
        lambda x: helper(x), lambda i: setattr(helper, "__code__", (helper, other)[i % 2].__code__)),
    "a method of the class": (lambda x: OUT.o.more(x), lambda i: setattr(OUT.o, "k", i) or setattr(Base, "scaled", [SCALED, PLUS][i % 2])),
    "a method of the object": (lambda x: OUT.o.more(x), lambda i: setattr(OUT.o, "scaled", lambda x: x - i)),
    "a method of a class in between": (lambda x: OUT.d.more(x), lambda i: setattr(Derived, "scaled", lambda self, x: x - i)),
    "a member of an enum": (lambda x: x * OUT.mode.value, lambda i: setattr(OUT, "mode", [Mode.SLOW, Mode.FAST][i % 2])),
    "a descriptor": (lambda x: x * OUT.held.field, lambda i: setattr(type(OUT.held).__dict__["field"], "value", i)),
    "through __getattribute__": (lambda x: x * OUT.looked.k, lambda i: OUT.looked.table.update(k=i)),
    "attrgetter": (lambda x: x * OUT.get(OUT.o), lambda i: setattr(OUT.o, "k", i)),
    "a ChainMap": (lambda x: x * OUT.chained["a"], lambda i: OUT.numbers.update(a=i)),
    "a mapping proxy": (lambda x: x * OUT.proxy["a"], lambda i: OUT.numbers.update(a=i)),
    "a dict of a class of one's own": (lambda x: x * OUT.settings["a"], lambda i: OUT.settings.update(a=i)),
    "an array of Python's": (lambda x: x * OUT.plain[0], lambda i: OUT.plain.__setitem__(0, i)),
    "bytes that change": (lambda x: x * OUT.buffer[0], lambda i: OUT.buffer.__setitem__(0, i)),
    "a memoryview": (lambda x: x * OUT.view[0], lambda i: OUT.plain.__setitem__(0, i)),
    "an object of the standard library": (lambda x: x * OUT.namespace.rate, lambda i: setattr(OUT.namespace, "rate", i)),
    "a bound method of a list": (lambda x: x * OUT.take(0), lambda i: OUT.listed.__setitem__(0, i)),
    "a bound method of a dict": (lambda x: x * OUT.ask("a"), lambda i: OUT.numbers.update(a=i)),
    "a bound method of an array": (lambda x: x * OUT.total(), lambda i: OUT.w.__setitem__(0, i)),
    "an object in a set": (lambda x: sum(o.k for o in OUT.few) * x, lambda i: setattr(OUT.o, "k", i)),
    "an object that is a key": (lambda x: sum(o.k for o in OUT.keyed) * x, lambda i: setattr(OUT.o, "k", i)),
    "a shape alone": (lambda x: x * OUT.v.shape[0], lambda i: setattr(OUT, "v", np.ones((i + 1, 3)))),
    "an attribute that was missing": (lambda x: missing(x), lambda i: setattr(OUT.o, "extra", i)),
    "a default": (lambda x: x * defaulted(), lambda i: setattr(defaulted, "__defaults__", (i,))),
    "a named default": (lambda x: x * defaulted(), lambda i: setattr(defaulted, "__kwdefaults__", {"b": i})),
    "a global that a context manager sets": (of_deeper, lambda i: None),
    "an object that is an array": (lambda x: np.asarray(OUT.like) + x, lambda i: setattr(OUT.like, "value", np.full(4, i))),
}
SCALED, PLUS = Base.scaled, lambda self, x: x + 5
CODE = helper.__code__


def defaulted(a=1.0, *, b=2.0):
    return a + b


def missing(x):
    try:
        return x * OUT.o.extra
    except AttributeError:
        return x


class Like(Field):
    def __array__(self, dtype=None, copy=None):
        return self.value


def new_world():
    Base.scaled, helper.__code__, defaulted.__defaults__, defaulted.__kwdefaults__ = SCALED, CODE, (1.0,), {"b": 2.0}
    if "scaled" in vars(Derived):
        del Derived.scaled
    numbers, listed, plain, w = {"a": 1.0}, [1.0, 2.0], array.array("d", [1.0, 2.0]), np.ones(4)
    o = Base()
    OUT.__dict__.update(
        o=o, d=Derived(), mode=Mode.SLOW, held=type("Held", (), {"__module__": __name__, "field": Field(2.0)})(), looked=Looked(),
        get=operator.attrgetter("k"), numbers=numbers, chained=collections.ChainMap({}, numbers), proxy=types.MappingProxyType(numbers),
        settings=Settings(a=1.0), plain=plain, buffer=bytearray(b"\1\2"), view=memoryview(plain),
        namespace=argparse.Namespace(rate=1.0), listed=listed, take=listed.__getitem__, ask=numbers.get, w=w, total=w.sum, few={o},
        keyed={o: 1}, v=np.ones((1, 3)), like=Like(np.ones(4)))


@pytest.mark.parametrize("name", SEEN)
def test_a_change_between_two_calls_is_seen(name):
    function, change = SEEN[name]
    new_world()
    jitted = ms.jit(function, target="reference")
    for i in range(4):
        change(i)
        np.testing.assert_array_equal(jitted(X), function(X), strict=True)


class Random(random.Random):
    pass


NUMBERS = itertools.count(1)
STEP, LISTED = NUMBERS.__next__, [1.0, 2.0]
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
    "an error state": (lambda x: (np.seterr(all="ignore"), x)[1], "a change of np.seterr.*np.errstate"),
    "a variable that is set": (lambda x: (os.environ.update(MINISITCH_HUNT="1"), x)[1], "a change of os.environ.*Set it outside"),
    "an error that NumPy would raise": (lambda x: raising(x), r"np.errstate\(... 'raise'\).*np.isfinite"),
    "a counter that is a default": (lambda x: counting(x), "counts.*nothing there"),
}


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
    np.save(OUT.path, X)
    before = np.geterr(), dict(os.environ), len(LISTED), counting.__defaults__
    with pytest.raises(ms.TraceError, match=f"(?s)^{HERE}:\\d+: .*{said}") as refused:
        ms.jit(function, target="reference")(X)
    assert "caught this error itself" not in str(refused.value)
    line = int(re.search(r":(\d+):", str(refused.value))[1])
    assert Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1].strip()[:3] != "def"
    assert before == (np.geterr(), dict(os.environ), len(LISTED), counting.__defaults__)


def test_the_remedies_work():
    number = 3.0
    assert ms.jit(lambda x, k: x * k, target="reference")(X, float(len(os.environ["PATH"]))).shape == (4,)
    assert ms.jit(lambda x: x * number, target="reference")(X).tolist() == (X * 3).tolist()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ms.jit(silent, target="reference")(X), silent(X))


def silent(x):
    with np.errstate(divide="ignore"):
        return x / 0


def test_a_function_is_an_argument():
    jitted = ms.jit(lambda x, g: g(x), target="reference")
    assert jitted(X, lambda x: x * 2).tolist() == (X * 2).tolist()
    assert jitted(X, lambda x: x * 3).tolist() == (X * 3).tolist()


def test_more_objects_than_a_call_may_look_at_are_refused():
    many = [[float(i)] for i in range(30_000)]
    with pytest.raises(ms.TraceError, match=f"{HERE}:.*more than 20,000 objects outside of the program, such as many.*Pass it in"):
        ms.jit(lambda x: x * many[29_000][0], target="reference")(X)
