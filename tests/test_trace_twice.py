"""What a program draws is refused, as two traces differ; and Python floats are arguments."""

from __future__ import annotations

import collections
import datetime
import decimal
import itertools
import json
import math
import os
import random
import re
import secrets
import statistics
import threading
import time
import uuid

import numpy as np
import pytest
from right_world import NET, POINT, X, fresh_world

import minisitch as ms
from minisitch.trace import recorder

HERE = r"test_trace_twice.py:(\d+)"
RNG, LEGACY, PYTHONS = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)


@pytest.fixture(autouse=True)
def world():
    fresh_world(globals())
    yield
    fresh_world(globals())


# ---------------------------------------------------------------- draws
def draws(x):
    return np.where(RNG.random(x.shape) < 0.5, x, 0)


DRAWERS = {
    "a generator": draws,
    "one in an attribute": lambda x: x * NET.rng.standard_normal(3),
    "one in a list": lambda x: x + LIST[0].normal(),
    "one that is handed to a helper": lambda x: helped(x, RNG),
    "an old one": lambda x: x * LEGACY.rand(3),
    "numpy's own": lambda x: x * np.random.rand(3),
    "its function": lambda x: x * RAND(3),
    "python's": lambda x: x * random.random(),
    "its gauss": lambda x: x * random.gauss(0, 1),
    "an object of python's": lambda x: x * PYTHONS.random(),
    "no seed": lambda x: x * np.random.default_rng().random(3),
    "no seed in a method": lambda x: x * Noisy().noise(),
    "an iterator": lambda x: x * next(BATCHES),
    "a counting loop": lambda x: x + sum(n for n in COUNTER if n > 3),
    "the clock": lambda x: x * time.time(),
    "a counter": lambda x: x * time.perf_counter(),
    "entropy": lambda x: x * int.from_bytes(os.urandom(8)),
    "a secret": lambda x: x * secrets.randbits(60),
    "a uuid": lambda x: x * uuid.uuid4().int,
    "a uuid of the time": lambda x: x * uuid.uuid1().int,
}
BATCHES, COUNTER = iter(np.arange(15.0).reshape(5, 3)), iter(range(9))
LIST, RAND = [np.random.default_rng(1)], np.random.rand


class Noisy:
    def noise(self):
        return np.random.default_rng().random(3)


def helped(x, rng):
    return x * rng.random(3)


@pytest.mark.parametrize("name", DRAWERS)
def test_what_two_traces_draw_differently_is_refused(name):
    NET.rng = np.random.default_rng(2)
    with pytest.raises(ms.TraceError, match=rf"{HERE}: .*traced twice, and gave two different programs.*(Draw or ask) outside"):
        ms.jit(DRAWERS[name], target="reference")(X)


def test_the_remedy_for_draws_works():
    f = ms.jit(lambda x, drawn: np.where(drawn < 0.5, x, 0), target="reference")
    assert len({f(X, RNG.random(3)).tobytes() for _ in range(20)}) > 1
    seeded = ms.jit(lambda x: x * np.random.default_rng(3).random(3), target="reference")
    np.testing.assert_array_equal(seeded(X), np.random.default_rng(3).random(3))


def test_a_generator_that_is_an_argument_is_refused_too():
    with pytest.raises(ms.TraceError, match=rf"{HERE}: np.random._generator.Generator.random.., .*Draw or ask outside"):
        ms.jit(lambda x, rng: x * rng.random(3))(X, np.random.default_rng(0))


def test_another_thread_may_read_while_a_program_is_traced():
    """The arrays it sees are its own, never a trace's."""
    stop, seen = threading.Event(), []

    def reader():
        while not stop.is_set():
            seen.append(type(NET.layers[0].w * 2 + POINT.w))

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for k in itertools.count():
            ms.jit(lambda x: NET(x) * POINT.w, target="reference")(np.ones((k % 7 + 1, 3)))
            if k > 20 and len(seen) > 100:
                break
    finally:
        stop.set()
        thread.join()
    assert set(seen) == {np.ndarray}
    assert recorder.ACTIVE.get() is None


# ---------------------------------------------------------------- Python floats are arguments
def adam(w, g, m, v, lr, b1, b2, t):
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    step = lr * math.sqrt(1 - b2**t) / (1 - b1**t)
    return w - step * m / (np.sqrt(v) + 1e-8), m, v, t + 1.0


FLOATS = {
    "weak": lambda x, a: (x * a, a - x, x / a, np.maximum(x, a), x < a, x + (a - 1)),
    "double": lambda x, a: x.astype(np.float64) * a,
    "half": lambda x, a: x.astype(np.float16) * a,
    "integers": lambda x, a: (x.astype(np.int32) * a, x.astype(np.uint8) + a, (x > 1) * a),
    "where": lambda x, a: (np.where(x > 1, x, a), np.where(x > 1, a, 0.0), np.clip(x, a, 2.0), np.full_like(x, a)),
    "full": lambda x, a: (np.full(3, a), np.full(3, a, np.float32), np.array([a, 2.0]), np.asarray(a) * x, np.array([x[0], a])),
    "numpy scalars": lambda x, a: (np.float32(a) * x, np.float64(2) * a * x, a * np.float32(3), np.sqrt(a), np.exp(a) * x),
    "powers": lambda x, a: (x ** a, a ** x, np.power(x, a), x ** (a * 4)),
    "python's own": lambda x, a: (a * 2, a ** 2, -a, abs(a), a // 0.3, a % 0.3, divmod(a, 0.3), round(a, 1), int(a), float(a), x + math.sin(a)),
    "branches": lambda x, a: x + 1 if a > 0.4 else x - 1,
    "choices": lambda x, a: (x * max(a, 0.3), x if a else -x, x[:int(a * 4)].sum(), [x, -x][a == 0.5]),
    "writes": lambda x, a: written(x, a),
    "nests": lambda x, a: {"a": a, "b": [a * 2, x * a]},
    "types": lambda x, a: (isinstance(a, float), isinstance(a, np.ndarray), np.isscalar(a), hasattr(a, "shape"), f"{a:.2f}", a.is_integer()),
    "means": lambda x, a: np.mean([x.sum(), a]) + sum([a, a]) * x,
}


def written(x, a):
    y, k = x.copy(), np.zeros(3, np.int64)
    y[1], k[0] = a, a
    y += a
    return y, k


@pytest.mark.parametrize("name", FLOATS)
def test_a_float_is_an_argument_and_means_what_numpy_means(name):
    fn, f, x = FLOATS[name], ms.jit(FLOATS[name], target="reference"), np.array([0.5, 1.25, 3.0], np.float32)
    for a in (0.5, 0.75, 0.1, 0.5, 2.0, -0.0, 0.0, 1e-300, 0.1):
        with np.errstate(all="ignore"):
            got, want = outcome(f, x, a), outcome(fn, x, a)
        assert repr(got) == repr(want), a


def outcome(f, *args):
    try:
        return f(*args)
    except ArithmeticError as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", ["weak", "double", "half", "integers", "where", "full", "writes", "nests", "means"])
def test_a_new_float_compiles_nothing(name):
    f, x, programs = ms.jit(FLOATS[name], target="reference"), np.ones(3, np.float32), set()
    for k in range(1, 12):
        f(x, k + 0.125 if name != "writes" else 1.5)
        programs.add(id(next(iter(f._ready.values()))))
    assert len(programs) == 1 and len(f._ready) == 1


@pytest.mark.parametrize("target", ["python", "cpu", "step", "reference"])
def test_an_optimizer_runs_one_program(target):
    f, w = ms.jit(adam, target=target), np.linspace(-1, 1, 5, dtype=np.float32)
    state, t, lr = (w, w * 0, w * 0), 1.0, 0.1
    for _ in range(4):
        want = adam(state[0], w, *state[1:], lr, 0.9, 0.999, t)
        got = f(state[0], w, *state[1:], lr, 0.9, 0.999, t)
        assert [type(each) for each in got] == [type(each) for each in want] and got[3] == want[3]
        for a, b in zip(got[:3], want[:3], strict=True):
            np.testing.assert_array_equal(a, b)
        state, t, lr = got[:3], got[3], lr * 0.9
    assert len(f._ready) == 1 and not f._ready.others


def test_an_int_that_varies_becomes_an_argument():
    """A step counter; the first one is part of the program."""
    f, w = ms.jit(lambda w, t: (w / (1 - 0.9**t), t + 1), target="reference"), np.ones(3, np.float32)
    t, programs = 1, set()
    for _ in range(12):
        got, want = f(w, t), (w / (1 - 0.9**t), t + 1)
        assert repr(got) == repr(want)
        t = got[1]
        programs.add(id(next(reversed(f._ready.values()))))
    assert len(f._ready) == 2


@pytest.mark.parametrize(("fn", "values"), [(lambda x, n: x[:n] * n, (1, 2, 3)), (lambda x, p: x**p, (2.0, 0.5, 3.0)),
                                            (lambda x, n: x.reshape(n, -1), (1, 3)), (lambda x, n: np.zeros(n) + x[0], (4, 5, 6)),
                                            (lambda x, p: x ** (2 * p), (1.0, 0.25)), (lambda x, n: x + sum(range(n)), (2, 3, 9))])
def test_a_number_whose_value_is_asked_for_is_part_of_the_program(fn, values):
    """Each value has a program of its own, and all are kept."""
    f = ms.jit(fn, target="reference")
    for value in values * 2:
        assert repr(f(X, value)) == repr(fn(X, value))
    known = len(f._ready)
    for value in values * 3:
        f(X, value)
    assert len(f._ready) == known <= len(values) + 1 and not f._ready.others


TAKES = {  # libraries that do not know a number which each call computes
    "json": (lambda x, k, a: (x * a, json.dumps([k, a]))), "decimal": (lambda x, k, a: x * float(decimal.Decimal(a) + k)),
    "deque": (lambda x, k, a: x + a * collections.deque(range(5), maxlen=k)[0]), "days": (lambda x, k, a: x * a * datetime.timedelta(days=k).days),
    "permutation": (lambda x, k, a: x * a + np.random.default_rng(k).permutation(k)[0]), "mean": (lambda x, k, a: x * statistics.mean([k, a])),
    "pow": (lambda x, k, a: x * a * pow(k, 2, 5)), "where": (lambda x, k, a: x + np.where(np.linspace(-1, 1, 3) > 0, a, k)),
}


@pytest.mark.parametrize("what", TAKES)
def test_a_number_that_a_library_does_not_take_is_a_constant(what):
    f = ms.jit(TAKES[what], target="reference")
    for k, a in ((1, 0.5), (2, 0.25), (3, 0.75), (2, 0.5)):
        got, want = f(X, k, a), TAKES[what](X, k, a)
        assert type(got) is type(want) and np.array_equal(got[0], want[0]) and (type(got) is not tuple or got[1] == want[1])


def test_an_error_that_the_user_raises_runs_the_program_once(capsys):
    def program(x, a):
        print("ran")
        raise ValueError(f"{a}")

    with pytest.raises(ValueError, match="0.5"):
        ms.jit(program, target="reference")(X, 0.5)
    assert capsys.readouterr().out == "ran\n"


RATE_OF_ALL = 0.0


def test_a_number_outside_that_changes_at_each_call_is_warned_of_and_the_remedy_works(recwarn):
    global RATE_OF_ALL
    read, given = ms.jit(lambda x: x * RATE_OF_ALL, target="reference"), ms.jit(lambda x, rate: x * rate, target="reference")
    for i in range(30):
        RATE_OF_ALL = i * 0.5
        assert read(X).tolist() == given(X, i * 0.5).tolist() == (X * i * 0.5).tolist()
    found = [each for each in recwarn if each.category is ms.LoopWarning]
    assert len(found) == 1 and found[0].filename == __file__
    assert re.search(HERE + r": .*compiled anew for the 10th time.*\(5.0 is where 4.5 was\). Pass a number that changes as an argument", str(found[0].message))
