"""While a function is traced, twice: what it does outside, what it leaves, and what others do beside it."""

import functools
import itertools
import logging
import os
import random
import signal
import threading
import time
import warnings
import weakref

import numpy as np
import pytest

import minisitch as ms

X = np.arange(1.0, 4.0)


class Thing:
    """An object with any attributes."""

    def __init__(self, **named):
        self.__dict__.update(named)


# ---------------------------------------------------------------- two traces
TABLE, COUNTS, STEPS, CLOCK = {}, Thing(n=0), itertools.count(), functools.partial(time.perf_counter)
RNG, PLAIN = np.random.default_rng(), random.Random()


def counted(x):
    COUNTS.n += 1
    return x * COUNTS.n


def growing(x):
    TABLE.setdefault("log", []).append(1)
    return x * len(TABLE["log"])


TWICE = {
    "a generator": lambda x: x + RNG.random(3), "NumPy's own": lambda x: x + np.random.rand(3), "random": lambda x: x * random.random(),
    "another of random": lambda x: x * PLAIN.gauss(0, 1), "a clock": lambda x: x * time.time(), "a clock behind partial": lambda x: x * CLOCK(),
    "a clock behind map": lambda x: x * next(map(lambda f: f(), [time.perf_counter])), "next": lambda x: x * next(STEPS), "a counter": counted,
    "a growing list": growing, "urandom": lambda x: x * int.from_bytes(os.urandom(4)), "an unseeded generator": lambda x: x + np.random.default_rng().random(3),
    "a branch": lambda x: x * 2 if COUNTS.__dict__.update(n=COUNTS.n + 1) or COUNTS.n % 2 else x,
}


@pytest.mark.parametrize("what", TWICE)
def test_a_program_that_two_traces_see_differently_is_refused_at_its_line(what):
    with pytest.raises(ms.TraceError, match=r"test_trace_runs.py:\d+: .*traced twice, and gave two different programs.*np.random.default_rng\(seed\)|"
                       r"test_trace_runs.py:\d+: what .* is another at each look"):
        ms.jit(TWICE[what], target="reference")(X)


def drawn(name):
    """A program that draws numbers, puts them outside, and reads them from there."""
    held = Thing(mask=np.ones(3), parts=[np.ones(3)])

    def f(x):
        numbers = np.random.rand(3)
        if name == "an attribute":
            held.mask = numbers
        elif name == "a new object":
            held.new = Thing(mask=numbers)
            return x * held.new.mask
        elif name == "the dict":
            vars(held)["mask"] = numbers
        elif name == "the class":
            Thing.shared = numbers
            return x * held.shared
        else:
            held.parts.append(numbers)
            return x * held.parts[-1]
        return x * held.mask
    return f


@pytest.mark.parametrize("name", ["an attribute", "a new object", "the dict", "the class", "a list"])
def test_what_a_program_put_outside_itself_is_not_read_from_there(name):
    """Or each call would read what the last trace drew."""
    with pytest.raises(ms.TraceError, match="two different programs"):
        ms.jit(drawn(name), target="reference")(X)
    Thing.shared = None


def test_a_generator_with_a_seed_inside_is_part_of_the_program():
    jitted = ms.jit(lambda x: x + np.random.default_rng(3).random(3), target="reference")
    assert np.array_equal(jitted(X), jitted(X)) and np.array_equal(jitted(X), X + np.random.default_rng(3).random(3))


def test_the_second_run_is_silent(capsys, caplog):
    def f(x):
        print("hello")
        logging.getLogger("program").warning("logged")
        warnings.warn("warned", stacklevel=1)
        return x * 2
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ms.jit(f, target="reference")(X)
    assert capsys.readouterr().out == "hello\n" and [each.message for each in caplog.records] == ["logged"]
    assert [str(each.message) for each in seen] == ["warned"]


def test_what_a_program_does_to_the_outside_it_did():
    notes, net = [], Thing(name="old")

    def f(x):
        notes.append("called")
        net.name = "new"
        return x * 2
    jitted = ms.jit(f, target="reference")
    assert np.array_equal(jitted(X), X * 2) and np.array_equal(jitted(X), X * 2)
    assert notes == ["called"] * 2 and net.name == "new"


# ---------------------------------------------------------------- writes, and what is left behind
def test_a_write_to_an_array_from_outside_is_refused_at_its_line_and_writes_nothing():
    w, rows = np.zeros(3), [np.zeros(3)]

    def by_name(x):
        w[0] = 1
        return x

    def in_a_loop(x):
        for row in rows:
            row += x
        return x

    def by_out(x):
        return np.add(x, 1, out=w)

    for f in (by_name, in_a_loop, by_out):
        with pytest.raises(ms.TraceError, match=r"test_trace_runs.py:\d+: the program puts what it computed into (w|rows\[0\]), outside of it"):
            ms.jit(f)(X)
    assert not w.any() and not rows[0].any() and w.flags.writeable


def test_a_traced_array_that_is_left_is_taken_out_and_nothing_else_is():
    net, log, table = Thing(h=1.0, n=0), [1.0], {"k": 2.0}

    def attribute(x):
        net.h, net.n = x * 2, net.n + 1
        return x

    def listed(x):
        log.append("text")
        log.append(x)
        return x

    def keyed(x):
        table["k"] = table["new"] = x + 1
        return x

    for f in (attribute, listed, keyed):
        with pytest.raises(ms.TraceError, match=r"test_trace_runs.py:\d+: the program puts what it computed into (net.h|log\[2\]|table\['(k|new)'\])"):
            ms.jit(f)(X)
    assert net.h == 1.0 and net.n == 1 and log == [1.0, "text"] and table == {"k": 2.0}


def test_a_traced_array_that_comes_to_light_later_is_refused():
    hidden = Thing()
    ms.jit(lambda x: object.__setattr__(hidden, "value", x) or x)(X)
    with pytest.raises(ms.TraceError, match="finished trace"):
        hidden.value + 1


# ---------------------------------------------------------------- other threads, signals, callbacks
def slow(k):
    def f(x):
        for _ in range(60):
            x = np.tanh(x) + k
        return x
    return f


def test_what_ten_threads_do_beside_200_first_calls_is_theirs():
    """Numbers are drawn in their order, counters stand where they were raised to, and no trace is refused."""
    stop, lock = threading.Event(), threading.Lock()
    drawn, drawn_by_numpy, counter, table, died = [], [], Thing(n=0), {}, []
    rounds, beats, array, old_state = [0] * 10, [0], np.zeros(10), np.random.get_state()
    random.seed(7)
    np.random.seed(7)

    def work(i):
        while not stop.is_set():
            with lock:
                drawn.append(random.random())
                drawn_by_numpy.append(np.random.random())
                counter.n += 1
            rounds[i] += 1
            array[i] += 1
            table[i, rounds[i]] = counter.n
            weakref.finalize(Thing(), died.append, i)
            time.sleep(0.0005)

    before = signal.signal(signal.SIGALRM, lambda *_: beats.__setitem__(0, beats[0] + 1))
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(10)]
    for each in threads:
        each.start()
    try:
        for k in range(200):
            f = slow(k * 0.5)
            assert np.allclose(ms.jit(f, target="reference")(X), f(X))
    finally:
        stop.set()
        for each in threads:
            each.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        np.random.set_state(old_state)
    again, numpy_again = random.Random(7), np.random.RandomState(7)
    assert drawn == [again.random() for _ in drawn]
    assert drawn_by_numpy == [numpy_again.random_sample() for _ in drawn_by_numpy]
    assert sum(rounds) == counter.n == len(drawn) == len(table) == len(died) and min(rounds) > 0
    assert list(array) == rounds and beats[0] > 0


def test_signals_and_callbacks_keep_what_they_do():
    beats, made, died = {"n": 0}, [0], []

    def beat(*_):
        beats["n"] += 1
        made[0] += 1

    def f(x):
        box = Thing()
        weakref.finalize(box, died.append, "died")
        del box
        return slow(1.0)(x)
    before = signal.signal(signal.SIGALRM, beat)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        ms.jit(f, target="reference")(X)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert beats["n"] == made[0] > 0 and len(died) == 2
