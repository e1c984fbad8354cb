"""The world outside of a program: what it writes there is refused, what it reads there is never stale, what it draws is refused."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
import gc
import importlib
import itertools
import math
import os
import random
import re
import secrets
import threading
import time
import types
import uuid

import numpy as np
import pytest

import minisitch as ms
from minisitch.trace import Program, outside, reads, recorder, trace

X = np.ones(3)
HERE = r"test_right_state.py:(\d+)"


@dataclasses.dataclass
class Point:
    w: np.ndarray
    n: float = 1.0


class Slotted:
    __slots__ = ("n", "w")

    def __init__(self):
        self.w, self.n = np.ones(3), 1.0


class Dense:
    taps = np.array([1.0, 2.0, 3.0])
    calls = 0

    def __init__(self, scale=1.0):
        self.w, self.b, self.act = np.full(3, scale), np.zeros(3), np.tanh

    def __call__(self, x):
        return self.act(x * self.w + self.b)

    @property
    def doubled(self):
        return self.w * 2

    def hidden(self, x):
        return x * SCALES[0]


class Net:
    def __init__(self):
        self.layers, self.training, self.params, self.deep = [Dense(), Dense(2)], True, {"w": np.ones(3)}, Point(np.ones(3))
        self.seen, self.queue, self.n = set(), collections.deque([1.0]), 0.0

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * 2 if self.training else x

    def counting(self, x):
        self.n += 1.0
        return x * self.n


SCALES = [np.full(3, 2.0), np.full(3, 3.0)]
TAPS = [1.0, 2.0, 3.0]
W = np.arange(3.0)
BIG = np.zeros(5000)
TABLE = np.zeros((4, 3))
COUNT = 0.0
RATE = 0.5
NET, POINT, SLOTTED = Net(), Point(np.ones(3)), Slotted()
CONFIG = {"rate": 0.5, "names": ["a"], "nested": {"scale": 2.0}}
VIEW = TABLE[1]
RNG, LEGACY, PYTHONS = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)


def fresh_world():
    """The module's state as it was, for each test."""
    global SCALES, TAPS, W, BIG, TABLE, COUNT, RATE, NET, POINT, SLOTTED, CONFIG, VIEW
    SCALES, TAPS, W, BIG, TABLE = [np.full(3, 2.0), np.full(3, 3.0)], [1.0, 2.0, 3.0], np.arange(3.0), np.zeros(5000), np.zeros((4, 3))
    COUNT, RATE, NET, POINT, SLOTTED, VIEW = 0.0, 0.5, Net(), Point(np.ones(3)), Slotted(), TABLE[1]
    CONFIG = {"rate": 0.5, "names": ["a"], "nested": {"scale": 2.0}}
    Dense.taps, Dense.calls = np.array([1.0, 2.0, 3.0]), 0


@pytest.fixture(autouse=True)
def world():
    fresh_world()
    yield
    fresh_world()


# ---------------------------------------------------------------- (a) what a program writes outside
def writes_a_slice(x):
    BIG[:] += 1.0
    return x + BIG[0]


def writes_an_element(x):
    TABLE[1, 2] = 5.0
    return x


def writes_by_out(x):
    np.add(W, 1.0, out=W)
    return x * W


def writes_in_place(x):
    global W
    W += 1
    return x * W


def writes_by_copyto(x):
    np.copyto(W, 2.0)
    return x * W


def writes_by_at(x):
    np.add.at(W, [0, 0], 1.0)
    return x * W


def sorts(x):
    W.sort()
    return x * W


def fills(x):
    SCALES[1].fill(7.0)
    return x


def writes_far_away(x):
    NET.deep.w[0] = 3.0
    return x * NET.deep.w


def writes_through_a_view(x):
    VIEW[:] = 1.0
    return x * TABLE[1]


def writes_what_it_was_given(x):
    np.multiply(x, 2, out=W)
    return x


def writes_a_class_array(x):
    Dense.taps[0] = 9.0
    return x * Dense.taps


def writes_slots(x):
    SLOTTED.n += 1.0
    return x * SLOTTED.n


def writes_far_attributes(x):
    NET.deep.n += 1.0
    return x * NET.deep.n


def writes_class_attributes(x):
    Dense.calls += 1
    return x * Dense.calls


def writes_function_attributes(x):
    writes_function_attributes.calls = getattr(writes_function_attributes, "calls", 0) + 1
    return x


def writes_globals(x):
    global COUNT
    COUNT += 1.0
    return x * COUNT


def adds_to_a_set(x):
    NET.seen.add(4)
    return x


def turns_a_queue(x):
    NET.queue.append(2.0)
    return x * len(NET.queue)


def writes_a_list(x):
    TAPS[0] += 1.0
    return x * TAPS[0]


def writes_a_dict(x):
    CONFIG["nested"]["scale"] *= 2
    return x * CONFIG["nested"]["scale"]


def deletes(x):
    del CONFIG["names"][0]
    return x


WRITERS = [writes_a_slice, writes_an_element, writes_by_out, writes_in_place, writes_by_copyto, writes_by_at, sorts, fills, writes_far_away,
           writes_through_a_view, writes_what_it_was_given, writes_a_class_array, writes_slots, writes_far_attributes,
           writes_class_attributes, writes_function_attributes, writes_globals, adds_to_a_set, turns_a_queue, writes_a_list,
           writes_a_dict, deletes]


def whole_world():
    return repr((SCALES, TAPS, W, BIG.sum(), TABLE, COUNT, vars(NET.deep), NET.seen, NET.queue, NET.n, SLOTTED.n, CONFIG, Dense.taps,
                 Dense.calls, vars(writes_function_attributes)))


@pytest.mark.parametrize("fn", WRITERS, ids=lambda fn: fn.__name__)
def test_a_write_outside_is_refused_at_its_line_and_undone(fn):
    before = whole_world()
    with pytest.raises(ms.TraceError, match=rf"{HERE}: .*(outside|written to)") as caught:
        ms.jit(fn, target="reference")(X)
    first = fn.__code__.co_firstlineno
    line = int(re.search(HERE, str(caught.value))[1])
    assert first < line <= first + 3, "the line that writes"
    assert whole_world() == before
    assert W.flags.writeable and BIG.flags.writeable and Dense.taps.flags.writeable and VIEW.flags.writeable and TABLE.flags.writeable


def test_a_method_that_counts_is_refused():
    net = Net()
    for f in (ms.jit(net.counting), ms.jit(lambda x: net.counting(x)), functools.partial(ms.jit(Net.counting), net)):
        with pytest.raises(ms.TraceError, match=rf"{HERE}: the program puts what it computed into .*n, outside of it"):
            f(X)
        assert net.n == 0.0


def test_the_remedy_for_a_write_works():
    def counted(x, big):
        big[:] += 1.0
        return x + big[0]

    def step(x, n):
        n = n + 1.0
        return x * n, n

    f, big, n, g = ms.jit(counted, target="reference"), np.zeros(5000), 0.0, ms.jit(step, target="reference")
    for k in range(1, 4):
        assert f(X, big).tolist() == [1 + k] * 3
        y, n = g(X, n)
        assert y.tolist() == [k] * 3 and n == k and type(n) is float


def test_write_flags_come_back_and_what_was_read_only_stays_so():
    fixed, base = np.ones(3), np.ones((4, 3))
    fixed.flags.writeable = False
    view = base[2]

    def reads_them(x):
        return x * fixed + view + base[0]

    def fails(x):
        raise KeyError(str(view.sum() + base.sum()))

    ms.jit(reads_them, target="reference")(X)
    with pytest.raises(KeyError):
        ms.jit(fails, target="reference")(X)
    assert not fixed.flags.writeable and base.flags.writeable and view.flags.writeable
    view[:] = 5
    assert base[2, 0] == 5


def test_what_stands_in_library_code_may_not_write_either():
    class Writer:
        def __init__(self):
            self.table = np.zeros(3)

        @property
        def store(self):
            np.copyto(W, 3.0)  # a property's code sees NumPy itself
            return 1.0

    writer = Writer()
    with pytest.raises(ms.TraceError, match=rf"{HERE}: the program writes to an array from outside"):
        ms.jit(lambda x: x * writer.store, target="reference")(X)
    assert W.tolist() == [0, 1, 2] and W.flags.writeable


def test_without_its_write_flag_taken_away_an_array_is_written_to(monkeypatch):
    monkeypatch.setattr(outside.Outside, "_lock", lambda self, array, name: None)
    with pytest.raises(pytest.fail.Exception):
        test_what_stands_in_library_code_may_not_write_either()


def test_without_looking_at_what_is_there_afterwards_a_counter_stands_still(monkeypatch):
    monkeypatch.setattr(outside, "_changed", lambda value, was, now: [])
    with pytest.raises(pytest.fail.Exception):
        test_a_write_outside_is_refused_at_its_line_and_undone(writes_globals)


# ---------------------------------------------------------------- (c) what a program reads outside
def reads_a_global(x):
    return x * W


def doubles_first(x):
    return x * (W * 2 + W.sum())


def reads_an_attribute(x):
    return x * POINT.w * POINT.n


def reads_slots(x):
    return x * SLOTTED.w + SLOTTED.n


def reads_a_list(x):
    return x * SCALES[1] + SCALES[0]


def loops_over_a_list(x):
    for scale in SCALES:
        x = x * scale
    return x


def reads_a_dict(x):
    return x * NET.params["w"]


def calls_a_net(x):
    return NET(x)


def reads_a_property(x):
    return x * NET.layers[0].doubled


def reads_class_arrays(x):
    return x * Dense.taps + NET.layers[1].taps * NET.layers[1].taps


def reads_a_view(x):
    return x + VIEW + TABLE[1] + TABLE.T[:, 0]


def reads_in_a_method_of_another(x):
    return NET.layers[0].hidden(x)


def reads_numbers(x):
    return x * RATE + CONFIG["rate"] * len(CONFIG["names"]) + CONFIG["nested"]["scale"]


def makes_an_array_of_a_list(x):
    return np.asarray(TAPS) * x + np.array(TAPS).sum()


def branches(x):
    return x + 1 if NET.training else x - 1


def asks_for_values(x):
    return x[:int(W[2])].sum() + (x if W[0] == 0 else -x)


def chooses_by_mask(x):
    return x[W > 0]


def solves(x):
    return np.linalg.inv(np.eye(3) * (W + 1)) @ x


def changes_in_place():
    W[:] = [5, 6, 2]
    BIG[0], TABLE[:], TAPS[1], CONFIG["nested"]["scale"], CONFIG["rate"] = 2.0, 3.0, 7.0, 9.0, 0.75
    POINT.w[1], SLOTTED.w[0], SCALES[0][0], NET.params["w"][:], NET.layers[0].w[1], Dense.taps[1] = 4.0, 5.0, 6.0, 8.0, 3.0, 5.0
    CONFIG["names"].append("b")


def binds_anew():
    global W, SCALES, TABLE, VIEW, TAPS, RATE
    W, SCALES, TABLE, TAPS, RATE = np.array([7.0, 8.0, 1.0]), [np.full(3, 4.0), np.full(3, 5.0)], np.full((4, 3), 2.0), [3.0, 2.0, 1.0], 0.25
    VIEW, POINT.w, POINT.n, SLOTTED.w, SLOTTED.n = TABLE[2], np.full(3, 6.0), 3.0, np.full(3, 2.0), 4.0
    NET.params, NET.training, Dense.taps, NET.layers[0].act = {"w": np.full(3, 3.0)}, False, np.full(3, 2.0), np.exp
    NET.layers[1].w = np.full(3, 0.5)


def other_objects():
    global NET, POINT, SLOTTED, CONFIG
    NET, POINT, SLOTTED = Net(), Point(np.full(3, 9.0), 2.0), Slotted()
    NET.layers, NET.training = [Dense(3), Dense(4)], False
    CONFIG = {"rate": 3.0, "names": [], "nested": {"scale": 1.0}}


def more_layers():
    NET.layers.append(Dense(5))
    SCALES.append(np.full(3, 7.0))
    TAPS[:] = [9.0, 9.0, 9.0]


def floats_of_another_type():
    global W
    W = W.astype(np.float32) + 1
    POINT.w, NET.params["w"] = POINT.w.astype(np.float32), np.ones(3, np.int32)


READERS = [reads_a_global, doubles_first, reads_an_attribute, reads_slots, reads_a_list, loops_over_a_list, reads_a_dict, calls_a_net,
           reads_a_property, reads_class_arrays, reads_a_view, reads_in_a_method_of_another, reads_numbers, makes_an_array_of_a_list,
           branches, asks_for_values, chooses_by_mask, solves]
CHANGES = [changes_in_place, binds_anew, other_objects, more_layers, floats_of_another_type]


@pytest.mark.parametrize("change", CHANGES, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("fn", READERS, ids=lambda fn: fn.__name__)
def test_nothing_that_is_read_outside_is_stale(fn, change):
    """Nothing of it, after a change; and again after it is changed back and forth."""
    f = ms.jit(fn, target="reference")
    for _ in range(2):
        np.testing.assert_array_equal(f(X), fn(X))
    change()
    for _ in range(2):
        got, want = f(X), fn(X)
        np.testing.assert_allclose(got, want, rtol=1e-12)
        assert got.dtype == want.dtype
    fresh_world()
    np.testing.assert_allclose(f(X), fn(X), rtol=1e-12)


@pytest.mark.parametrize("target", ["cpu", "step", "python"])
def test_compiled_programs_read_anew_too(target):
    f = ms.jit(calls_a_net, target=target)
    np.testing.assert_allclose(f(X), calls_a_net(X), rtol=1e-6)
    binds_anew()
    np.testing.assert_allclose(f(X), calls_a_net(X), rtol=1e-6)
    changes_in_place()
    np.testing.assert_allclose(f(X), calls_a_net(X), rtol=1e-6)


def test_closures_methods_and_arguments_are_read_anew():
    w, net = np.ones(3), Net()

    def closure(x):
        return x * w

    def argument(net, x):
        return x * net.deep.w * net.deep.n

    f, g, h = ms.jit(closure, target="reference"), ms.jit(net.__call__, target="reference"), ms.jit(argument, target="reference")
    for k in range(1, 4):
        w, net.layers[0].w, net.deep = np.full(3, k), np.full(3, 0.1 * k), Point(np.full(3, k * 1.5), k)
        assert f(X).tolist() == [k] * 3
        np.testing.assert_array_equal(g(X), net(X))
        assert h(net, X).tolist() == [k * 1.5 * k] * 3


def test_arrays_that_were_one_may_part():
    """Two names of one array are one input; afterwards they are two."""
    online = target = Point(np.ones(3))
    pair = {"online": online, "target": target}
    f = ms.jit(lambda x: x * pair["online"].w - pair["target"].w, target="reference")
    assert f(X).tolist() == [0] * 3
    pair["target"] = Point(np.full(3, 5.0))
    assert f(X).tolist() == [-4] * 3
    shared = types.SimpleNamespace(a=W, b=W)
    g = ms.jit(lambda x: x * shared.a - shared.b, target="reference")
    assert g(X).tolist() == [0] * 3
    shared.b = np.full(3, 5.0)
    assert g(X).tolist() == [-5, -4, -3]


def test_without_comparing_what_was_read_flags_are_stale(monkeypatch):
    monkeypatch.setattr(reads, "_same", lambda found, was: None)
    with pytest.raises(AssertionError):
        test_nothing_that_is_read_outside_is_stale(branches, binds_anew)


def test_without_asking_for_the_path_arrays_are_stale(monkeypatch):
    monkeypatch.setattr(Program, "outside", lambda self, leaves: self.captured)
    with pytest.raises(AssertionError):
        test_nothing_that_is_read_outside_is_stale(reads_a_global, binds_anew)


def test_programs_for_a_world_that_comes_back_are_kept():
    f = ms.jit(branches, target="reference")
    first = f(X)
    programs = set()
    for flag in (False, True) * 5:
        NET.training = flag
        assert f(X).tolist() == ([2] * 3 if flag else [0] * 3)
        programs.add(next(iter(f._ready.values())))
    assert first.tolist() == [2] * 3 and len(programs) == 2


def test_what_the_program_did_not_read_may_change():
    f = ms.jit(calls_a_net, target="reference")
    f(X)
    program = next(iter(f._ready.values()))
    for k in range(3):
        NET.n, NET.queue, CONFIG["rate"], Dense.calls = k + 5.0, [k], k, k
        f(X)
    assert next(iter(f._ready.values())) is program


def test_an_array_that_no_call_would_find_is_refused():
    hidden = types.MappingProxyType({"w": np.ones(3)})  # no object, list or dict of the user's
    with pytest.raises(ms.TraceError, match=rf"{HERE}: an array of shape \(3,\) that something outside the program keeps.*Pass it in"):
        ms.jit(lambda x: x * hidden["w"], target="reference")(X)
    assert ms.jit(lambda x, w: x * w, target="reference")(X, hidden["w"]).tolist() == [1] * 3, "the remedy"


def test_arrays_of_the_programs_own_are_no_ones_else():
    @functools.cache
    def table(n):
        return np.hanning(n)

    def fn(x):
        k = np.array([1.0, 2.0, 3.0])
        generator = np.random.default_rng(3)

        def go(n):
            return x * k if n == 0 else go(n - 1)
        return go(2) + np.linspace(0, 1, 3) * 2 + generator.random(3) + table(3)

    for _ in range(2):
        np.testing.assert_allclose(ms.jit(fn, target="reference")(X), fn(X))


def test_a_compiled_method_does_not_keep_its_object():
    class Model:
        def __init__(self):
            self.w, self.inner = np.ones(3), Point(np.ones(3))

        @ms.jit(target="reference")
        def forward(self, x):
            return x * self.w + self.inner.w

    import weakref
    model = Model()
    assert model.forward(X).tolist() == [2] * 3
    model.w = model.w * 4
    assert model.forward(X).tolist() == [5] * 3
    dead = weakref.ref(model)
    del model
    gc.collect()
    assert dead() is None


def test_the_reader_of_a_usual_program_is_a_few_lines():
    """Of two arrays and a flag: a third of a microsecond."""
    program = trace(lambda x: x * POINT.w + W if NET.training else x, (X,))
    lines = [re.sub(r"_\d+", "", line.strip()) for line in program.reader.text.splitlines()]
    assert lines == ["def read(leaves):", "try:", "v1 = globals['NET']", "if v1.__class__ is not Net: raise Stale",
                     "if v1.training is not c: same(v1.training, c)", "v5 = globals['POINT']",
                     "if v5.__class__ is not Point: raise Stale", "a0 = v5.w", "if a0 is not was: like(a0, was)", "a1 = globals['W']",
                     "if a1 is not was: like(a1, was)", "return (a0, a1, )", "except GONE:", "raise Stale from None"]


class Constants:
    w = np.ones(3)


class Helpers:
    w, big = np.ones(3), np.ones(3000)

    @staticmethod
    def twice(x):
        return x * 2


class Mode(enum.Enum):
    TRAIN, TEST = 1, 2


def world_of_objects():
    return types.SimpleNamespace(w=np.ones(3), mode=Mode.TRAIN, bias=None, order={"a": np.ones(3), "b": np.full(3, 2.0)}, box=[np.tanh],
                                 sizes={1, 2}, dtype=np.float32, scalar=np.float32(2), complex=np.ones(3, complex), index=np.array([0, 2, 1]),
                                 pair=collections.namedtuple("Pair", "a b")(np.ones(3), 2.0), table=list(range(100)), deep=[[1.0], [2.0]])


OBJECTS = {  # what a program reads of a world, and what then happens to it
    "None becomes an array": (lambda x, s: x if s.bias is None else x + s.bias, lambda s, k: setattr(s, "bias", np.full(3, k))),
    "an enumeration": (lambda x, s: x * 2 if s.mode is Mode.TRAIN else x * s.w, lambda s, k: setattr(s, "mode", Mode.TEST)),
    "the order of a dict": (lambda x, s: functools.reduce(lambda a, b: a * 2 + b, s.order.values(), x),
                            lambda s, k: s.order.update({"a": s.order.pop("a")})),
    "a new attribute": (lambda x, s: x * getattr(s, "scale", 1.0), lambda s, k: setattr(s, "scale", k + 2.0)),
    "another attribute": (lambda x, s: x + s.extra if hasattr(s, "extra") else x, lambda s, k: setattr(s, "extra", np.full(3, k))),
    "all attributes": (lambda x, s: sum((v * x for v in vars(s).values() if isinstance(v, np.ndarray) and v.dtype == float), x),
                       lambda s, k: setattr(s, f"w{k}", np.full(3, k + 1.0))),
    "a function in a list": (lambda x, s: s.box[0](x), lambda s, k: s.box.__setitem__(0, [np.exp, np.sin][k % 2])),
    "a lambda": (lambda x, s: s.box[0](x), lambda s, k: s.box.__setitem__(0, lambda x, k=k: x * (k + 5))),
    "a named tuple": (lambda x, s: x * s.pair.a + s.pair.b, lambda s, k: setattr(s, "pair", s.pair._replace(a=np.full(3, k), b=k))),
    "a set": (lambda x, s: x * sum(s.sizes), lambda s, k: s.sizes.add(k + 7)),
    "a dtype": (lambda x, s: x.astype(s.dtype) * 2, lambda s, k: setattr(s, "dtype", [np.float64, np.int32][k % 2])),
    "a NumPy scalar": (lambda x, s: x.astype(np.float32) * s.scalar, lambda s, k: setattr(s, "scalar", [np.float64(2), np.float32(3)][k % 2])),
    "a complex array": (lambda x, s: x * np.abs(s.complex), lambda s, k: setattr(s, "complex", s.complex + 1j)),
    "an index": (lambda x, s: (x * np.arange(3.0))[s.index], lambda s, k: setattr(s, "index", np.array([k, 1, 0]))),
    "a long list": (lambda x, s: x * np.array(s.table).sum(), lambda s, k: s.table.__setitem__(50, k)),
    "a nested list": (lambda x, s: x * np.array(s.deep), lambda s, k: s.deep[1].__setitem__(0, float(k))),
    "a class of data": (lambda x, s: x * (Constants.w * 2) + Constants.w, lambda s, k: setattr(Constants, "w", np.full(3, k))),
    "a class of functions": (lambda x, s: Helpers.twice(x) * (Helpers.w * 2) + Helpers.w, lambda s, k: Helpers.w.fill(k)),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_whatever_a_world_is_made_of_is_read_anew(name):
    (fn, change), s = OBJECTS[name], world_of_objects()
    f = ms.jit(lambda x: fn(x, s), target="reference")
    for k in range(3):
        got, want = f(X), fn(X, s)
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
        change(s, k)


def test_a_large_array_of_a_class_that_only_numpy_reads_is_refused():
    with pytest.raises(ms.TraceError, match=rf"{HERE}: Helpers.big, an array of shape \(3000,\) that NumPy reads"):
        ms.jit(lambda x: x * (Helpers.big * 2).sum(), target="reference")(X)
    assert ms.jit(lambda x, total: x * total, target="reference")(X, (Helpers.big * 2).sum()).tolist() == [6000] * 3, "the remedy"


# ---------------------------------------------------------------- (b) draws
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
    "the date": lambda x: x * datetime.datetime.now().second,
    "entropy": lambda x: x * os.urandom(1)[0],
    "a secret": lambda x: x * secrets.randbelow(10),
    "a uuid": lambda x: x * uuid.uuid4().int,
    "a uuid of the time": lambda x: x * uuid.uuid1().int,
}
BATCHES, COUNTER = iter(np.ones((5, 3))), iter(range(9))
LIST, RAND = [np.random.default_rng(1)], np.random.rand


class Noisy:
    def noise(self):
        return np.random.default_rng().random(3)


def helped(x, rng):
    return x * rng.random(3)


@pytest.mark.parametrize("name", DRAWERS)
def test_draws_are_refused_and_generators_as_they_were(name):
    NET.rng = np.random.default_rng(2)
    generators = [RNG, NET.rng, LIST[0]]
    before = repr([g.bit_generator.state for g in generators]), repr(LEGACY.get_state()), random.getstate(), np.random.get_state()[1].tolist()
    with pytest.raises(ms.TraceError, match=rf"{HERE}: .*the same at every call.*(Draw|Take the next one) outside"):
        ms.jit(DRAWERS[name], target="reference")(X)
    after = repr([g.bit_generator.state for g in generators]), repr(LEGACY.get_state()), random.getstate(), np.random.get_state()[1].tolist()
    assert before == after


def test_the_remedy_for_draws_works():
    f = ms.jit(lambda x, drawn: np.where(drawn < 0.5, x, 0), target="reference")
    assert len({f(X, RNG.random(3)).tobytes() for _ in range(20)}) > 1
    seeded = ms.jit(lambda x: x * np.random.default_rng(3).random(3), target="reference")
    np.testing.assert_array_equal(seeded(X), np.random.default_rng(3).random(3))


def test_a_generator_that_is_an_argument_is_refused_too():
    with pytest.raises(ms.TraceError, match=rf"{HERE}: rng.random"):
        ms.jit(lambda x, rng: x * rng.random(3))(X, np.random.default_rng(0))


def test_without_comparing_states_and_watching_draws_are_frozen(monkeypatch):
    monkeypatch.setattr(outside.Outside, "_watch_generators", lambda self: None)
    monkeypatch.setattr(outside, "DRAWS", set())
    with pytest.raises(pytest.fail.Exception):
        test_draws_are_refused_and_generators_as_they_were("python's")


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


GROWING = """
import warnings
import numpy as np

class Old(type):
    def __getattr__(cls, name):  # a warning adds __warningregistry__ to this module
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("deprecated")
        raise AttributeError(name)

class Holder(metaclass=Old):
    def __init__(self):
        self.w = np.full(3, 2.0)

holder = Holder()
"""


def test_a_module_may_grow_while_it_is_copied(tmp_path, monkeypatch):
    (tmp_path / "growing_module.py").write_text(GROWING)
    monkeypatch.syspath_prepend(tmp_path)
    growing = importlib.import_module("growing_module")
    assert ms.jit(lambda x: growing.holder.w * x, target="reference")(X).tolist() == [2.0] * 3
    assert "__warningregistry__" in vars(growing)


# ---------------------------------------------------------------- (d) Python floats are arguments
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


def test_without_asking_anew_an_answer_about_a_float_is_frozen(monkeypatch):
    monkeypatch.setattr(recorder.Recorder, "require", lambda self, text, value: None)
    with pytest.raises(AssertionError):
        test_a_float_is_an_argument_and_means_what_numpy_means("branches")


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
    """One program a value, all of which are kept."""
    f = ms.jit(fn, target="reference")
    for value in values * 2:
        assert repr(f(X, value)) == repr(fn(X, value))
    known = len(f._ready)
    for value in values * 3:
        f(X, value)
    assert len(f._ready) == known <= len(values) + 1 and not f._ready.others
