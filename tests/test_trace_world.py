"""What a program reads outside of itself is never stale."""

from __future__ import annotations

import collections
import enum
import functools
import gc
import types

import numpy as np
import pytest
import right_world
from right_world import (
    BIG,
    CONFIG,
    NET,
    POINT,
    RATE,
    SCALES,
    SLOTTED,
    TABLE,
    TAPS,
    VIEW,
    Dense,
    Net,
    Point,
    Slotted,
    W,
    X,
    fresh_world,
)

import minisitch as ms


@pytest.fixture(autouse=True)
def world():
    fresh_world(globals())
    yield
    fresh_world(globals())


# ---------------------------------------------------------------- what a program reads outside
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
    NET.layers[1].w, right_world.SCALES = np.full(3, 0.5), SCALES


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
    fresh_world(globals())
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


def test_arrays_of_the_programs_own_are_no_ones_else():
    @functools.cache
    def table(n):
        return np.hanning(n)

    def fn(x):
        k = np.array([1.0, 2.0, 3.0])
        generator = np.random.default_rng(3)

        def go(n):
            return x * k if n == 0 else go(n - 1)
        order = np.array([2, 0, 1])  # it and a view of it are read
        return go(2)[order][order[::-1]] + np.linspace(0, 1, 3) * 2 + generator.random(3) + table(3)

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


class Constants:
    w = np.ones(3)


class Helpers:
    w = np.ones(3)

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
