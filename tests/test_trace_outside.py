"""The frontend's contract: what is read again by plain path, what is refused, and what is looked at once."""

import collections
import contextlib
import dataclasses
import functools
import types
import warnings
from typing import ClassVar

import numpy as np
import pytest

import minisitch as ms

X = np.arange(1.0, 4.0)


class Thing:
    """An object with any attributes."""

    def __init__(self, **named):
        self.__dict__.update(named)


# ---------------------------------------------------------------- read again by plain path
SCALE, TABLE, NET = 2.0, {"w": X.copy(), "k": 3.0, "f": np.sin}, Thing(layers=[Thing(w=X.copy(), on=True)], name="relu")


def helper(x):
    return x * SCALE


def other_helper(x):
    return x - SCALE


@dataclasses.dataclass
class Config:
    __match_args__ = ("k", "name")
    k: float = 2.0
    name: str = "tanh"


class Base:
    k = 2.0

    def scaled(self, x):
        return x * self.k


class Heir(Base):
    table: ClassVar = {"a": 1.0}

    def __init__(self):
        self.w, self._hidden = X.copy(), 5.0

    @property
    def half(self):
        return self.w * 0.5

    @functools.cached_property
    def once(self):
        return self._hidden + 1

    @staticmethod
    def added(x):
        return x + SCALE

    @classmethod
    def of_class(cls, x):
        return x * cls.k

    def scaled(self, x):
        return super().scaled(x) + super().k

    def __call__(self, x):
        out = np.zeros(3)
        out[:] = x @ np.outer(self.w, self.w)
        return out

    def __getitem__(self, i):
        return self.w[i]

    def __matmul__(self, other):
        return other * self.w

    def __radd__(self, other):
        return other + self.w

    def __neg__(self):
        return -self.w

    def __len__(self):
        return int(self._hidden)

    def __contains__(self, value):
        return value == self._hidden

    def __iter__(self):
        yield self.w
        yield self._hidden

    def __enter__(self):
        return self.w

    def __exit__(self, *error):
        return False

    def __getattr__(self, name):
        if name.startswith("any_"):
            return self._hidden
        raise AttributeError(name)


class Twice:
    factor = 2.0

    def __get__(self, holder, kind):
        return self.factor


class Holder:
    scale = Twice()


def defaults(x, k=TABLE):
    return x * k["k"]


def wrapped(function):
    @functools.wraps(function)
    def inner(x):
        return function(x) * SCALE
    return inner


@wrapped
def decorated(x):
    return x + NET.layers[0].w


@contextlib.contextmanager
def scaled_by():
    yield SCALE


def unpacked(x):
    a, *rest = TABLE["list"]
    return x * a + len(rest)


def matching(x):
    match CONFIG:
        case Config(k, "tanh"):
            return np.tanh(x) * k
    return x


def in_a_with(x):
    with scaled_by() as s:
        return x * s


def in_own_with(x):
    with HEIR as w:
        return x * w


def absent(x):
    try:
        return x * NET.missing
    except Exception:
        return x


def no_key(x):
    try:
        return x * TABLE["missing"]
    except KeyError:
        return x


CONFIG, HEIR, HOLDER, MODULE = Config(), Heir(), Holder(), types.ModuleType("settings")
MODULE.depth, TABLE["list"], TABLE["deep"] = 2, [1.0, 2.0], {"a": [X.copy(), {"b": 4.0}]}
PAIR = collections.namedtuple("PAIR", "a b")(2.0, X.copy())
OPTIONS, LIMIT, PART = {"fast"}, np.float32(2), functools.partial(np.add, 2.0)


def put(holder, name, value):
    return lambda: setattr(holder, name, value)


def item(holder, key, value):
    return lambda: holder.__setitem__(key, value)


def name(key, value):
    return lambda: globals().__setitem__(key, value)


READ = {
    "a global number": (lambda x: x * SCALE, name("SCALE", 3.0)),
    "a number that a helper reads": (lambda x: helper(x), name("SCALE", 4.0)),
    "another helper": (lambda x: helper(x), name("helper", other_helper)),
    "a new global hides a builtin": (lambda x: x * len([1, 2]), name("len", lambda _: 7)),
    "an array in an object in a list": (lambda x: x * NET.layers[0].w, lambda: setattr(NET.layers[0], "w", X * 5)),
    "computed from outside arrays alone": (lambda x: x * (NET.layers[0].w * 2).sum(), lambda: setattr(NET.layers[0], "w", X * 7)),
    "a flag": (lambda x: x * 2 if NET.layers[0].on else x, lambda: setattr(NET.layers[0], "on", False)),
    "a text": (lambda x: x * 2 if NET.name == "relu" else x, put(NET, "name", "gelu")),
    "a list that grows": (lambda x: x * len(NET.layers), lambda: NET.layers.append(Thing(w=X, on=1))),
    "a loop over objects": (lambda x: sum(x * each.w for each in NET.layers), lambda: setattr(NET.layers[-1], "w", X * 9)),
    "a dict's array": (lambda x: x * TABLE["w"], item(TABLE, "w", X * 3)),
    "dict.get": (lambda x: x * TABLE.get("k", 1.0), item(TABLE, "k", 8.0)),
    "a key that was absent": (lambda x: x * TABLE.get("new", 1.0), item(TABLE, "new", 6.0)),
    "a key in a dict": (lambda x: x * ("newer" in TABLE), item(TABLE, "newer", 6.0)),
    "a function in a dict": (lambda x: TABLE["f"](x), item(TABLE, "f", np.cos)),
    "items of a dict": (lambda x: x * sum(v for k, v in TABLE["deep"]["a"][1].items()), lambda: TABLE["deep"]["a"][1].update(c=1.0)),
    "a list in a dict in a dict": (lambda x: x * TABLE["deep"]["a"][0], lambda: TABLE["deep"]["a"].__setitem__(0, X * 4)),
    "an except clause": (absent, put(NET, "missing", 5.0)),
    "a KeyError": (no_key, item(TABLE, "missing", 5.0)),
    "hasattr": (lambda x: x * 7 if hasattr(NET, "bias") else x, put(NET, "bias", 1.0)),
    "getattr with a default": (lambda x: x * getattr(NET, "gain", 1.0), put(NET, "gain", 3.0)),
    "vars": (lambda x: x * vars(CONFIG)["k"], put(CONFIG, "k", 11.0)),
    "a dataclass in a match": (matching, put(CONFIG, "name", "exp")),
    "a class attribute": (lambda x: HEIR.of_class(x), put(Base, "k", 3.0)),
    "super().k and a parent's method": (lambda x: HEIR.scaled(x), put(Base, "k", 4.0)),
    "a method of the class": (lambda x: HEIR.added(x), put(Heir, "added", staticmethod(lambda x: x * 5))),
    "a method hidden by the object": (lambda x: HEIR.scaled(x), put(HEIR, "scaled", lambda x: x * 6)),
    "a property": (lambda x: x * HEIR.half, lambda: setattr(HEIR, "w", X * 2)),
    "what a property is": (lambda x: x * HEIR.half, put(Heir, "half", property(lambda self: self.w * 4))),
    "a call of an object": (lambda x: HEIR(x), lambda: setattr(HEIR, "w", X * 3)),
    "an item of an object": (lambda x: x * HEIR[1], lambda: setattr(HEIR, "w", X * 4)),
    "operators of an object": (lambda x: (2.0 + HEIR) * (HEIR @ x) + -HEIR, lambda: setattr(HEIR, "w", X * 5)),
    "len() of an object": (lambda x: x * len(HEIR) + (5.0 in HEIR), put(HEIR, "_hidden", 6.0)),
    "the truth of an object": (lambda x: x * 2 if HEIR else x, put(HEIR, "_hidden", 0.0)),
    "a loop over an object": (lambda x: sum(x * each for each in HEIR), lambda: setattr(HEIR, "w", X * 6)),
    "with an object": (in_own_with, lambda: setattr(HEIR, "w", X * 7)),
    "__getattr__": (lambda x: x * HEIR.any_thing, put(HEIR, "_hidden", 2.0)),
    "a descriptor": (lambda x: x * HOLDER.scale, put(Twice, "factor", 3.0)),
    "a descriptor that is hidden": (lambda x: x * HOLDER.scale, put(HOLDER, "scale", 5.0)),
    "a class's dict": (lambda x: x * Heir.table["a"], lambda: Heir.table.update(a=2.0)),
    "a module": (lambda x: x ** MODULE.depth, put(MODULE, "depth", 3)),
    "a default": (lambda x: defaults(x), item(TABLE, "k", 9.0)),
    "other defaults": (lambda x: defaults(x), put(defaults, "__defaults__", ({"k": 77.0},))),
    "code loaded anew": (lambda x: defaults(x), put(defaults, "__code__", helper.__code__)),
    "a decorated function": (decorated, lambda: setattr(NET.layers[0], "w", X * 8)),
    "a context manager": (in_a_with, name("SCALE", 6.0)),
    "an unpacked list": (unpacked, lambda: TABLE["list"].append(1.0)),
    "a namedtuple": (lambda x: x * PAIR.a + PAIR.b, lambda: name("PAIR", PAIR._replace(a=5.0))()),
    "a set": (lambda x: x * ("fast" in OPTIONS), lambda: OPTIONS.clear()),
    "a NumPy scalar": (lambda x: x * LIMIT, name("LIMIT", np.float32(3))),
    "a list of arrays for NumPy": (lambda x: x + np.stack([NET.layers[0].w, X])[0], lambda: setattr(NET.layers[0], "w", X * 10)),
    "map over a list": (lambda x: x * sum(map(np.max, [NET.layers[0].w])), lambda: setattr(NET.layers[0], "w", X * 12)),
    "a reduction of outside arrays": (lambda x: x * functools.reduce(np.multiply, list(TABLE["arrays"])), lambda: TABLE["arrays"].append(X)),
    "a partial": (lambda x: PART(x), name("PART", functools.partial(np.add, 3.0))),
    "1 and True and 1.0": (lambda x: np.ones(3, int) * TABLE["kind"], item(TABLE, "kind", True)),
    "0.0 and -0.0": (lambda x: np.copysign(x, TABLE["zero"]), item(TABLE, "zero", -0.0)),
}
TABLE.update(arrays=[X.copy(), X + 1], kind=1, zero=0.0)


@pytest.mark.parametrize("what", READ)
def test_a_plain_path_is_read_again(what):
    function, change = READ[what]
    jitted, programs = ms.jit(function, target="reference"), []
    for _ in range(2):
        want, got = function(X.copy()), jitted(X.copy())
        assert np.array_equal(got, want) and np.asarray(got).dtype == np.asarray(want).dtype
        assert np.array_equal(jitted(X.copy()), want)
        programs.append(jitted._anew)
        change()
    globals().pop("len", None)
    assert programs[0] == 0, "the second call, with the same outside, compiled anew"


def test_a_new_array_in_the_same_place_compiles_nothing():
    net = Thing(w=X.copy(), deep=Thing(v=[X.copy()]))
    jitted = ms.jit(lambda x: x * net.w + net.deep.v[0], target="reference")
    for k in range(4):
        net.w, net.deep.v[0] = X * k, X - k
        assert np.array_equal(jitted(X), X * net.w + net.deep.v[0])
    assert jitted._anew == 0 and len(jitted._ready) == 1


def test_a_path_costs_its_own_depth():
    """A program that reads one array of a large object walks to that one."""
    net = Thing(layers=[Thing(w=X + i, name=str(i), more=list(range(50))) for i in range(500)])
    program = ms.trace(lambda x: x * net.layers[7].w, (X,))
    assert len(program.paths.fixed) <= 5
    assert not ms.trace(lambda x: x * 2, (X,)).paths.quick


# ---------------------------------------------------------------- identity
def test_what_the_program_holds_is_itself():
    w = X.copy()

    def f(ps, s, x):
        first = sum(v for i, v in enumerate(ps) if not any(v is u for u in ps[:i]))
        known = {np.exp: 2.0, np.zeros: 3.0}
        assert known.get(np.exp) == 2.0 and np.zeros in known and isinstance(np.exp, np.ufunc) and type(x) is np.ndarray
        assert not hasattr(s, "__len__") and not isinstance(s, collections.abc.Iterable) and isinstance(x, collections.abc.Iterable)
        return first * s + (x is w) * 100

    jitted = ms.jit(f, target="reference")
    for ps, x in (([w, w], w), ([w, w.copy()], w), ([w.copy(), w], w.copy()), ([w, w], w.copy())):
        assert np.array_equal(jitted(ps, np.float64(2), x), f(ps, np.float64(2), x))


@pytest.mark.parametrize(("first", "second"), [
    ({2: X}, {2.0: X}), ({1: X}, {True: X}), ({0.0: X}, {-0.0: X}), ((1, X), (True, X)), ((0.0, X), (-0.0, X)), ((slice(1), X), (slice(2), X)),
    (collections.OrderedDict(a=X, b=X * 2), collections.OrderedDict(b=X * 2, a=X))])
def test_equal_arguments_that_differ_are_other_programs(first, second):
    def f(p):
        keys = [*p] if isinstance(p, dict) else p[:1]
        return repr([each for each in keys if not isinstance(each, float) or isinstance(p, dict)]), [*(p.values() if isinstance(p, dict) else p)][-1] * 2
    jitted = ms.jit(f, target="reference")
    for given in (first, second, first):
        assert jitted(given)[0] == f(given)[0] and np.array_equal(jitted(given)[1], f(given)[1])


def test_an_object_that_is_made_anew_at_each_call_is_told():
    jitted = ms.jit(lambda x, c: x * c.k, target="reference")
    with pytest.warns(ms.LoopWarning, match=r"test_trace_outside.py:\d+: <lambda> is compiled for the 10th object of its arguments \(Config\)"):
        for _ in range(10):
            jitted(X, Config(k=3.0))


def test_the_order_of_a_dict_is_its_own():
    given = collections.OrderedDict(a=X, b=X * 2)
    jitted = ms.jit(lambda d: next(iter(d.values())) * 3, target="reference")
    assert np.array_equal(jitted(given), X * 3)
    given.move_to_end("a")
    assert np.array_equal(jitted(given), X * 6)


# ---------------------------------------------------------------- numbers, errors, validation
def test_numbers_are_scalars_of_the_graph():
    def adam(x, lr, beta, t):
        return x * (lr * (1 - beta) / (1 - beta ** t)) + -lr + (t + 1) * 2
    jitted = ms.jit(adam, target="reference")
    for t in range(1, 8):
        assert np.allclose(jitted(X, 0.1 * t, 0.9, t), adam(X, 0.1 * t, 0.9, t), rtol=1e-14)
    assert len(jitted._ready) == 2, "t is an argument from the second call on"
    assert np.allclose(jitted(X, 0.1, 0.9, 2 ** 40), adam(X, 0.1, 0.9, 2 ** 40))


def test_an_error_of_a_number_is_pythons_and_may_be_caught():
    def f(x, n):
        try:
            return x * (1 / n)
        except ZeroDivisionError:
            return x * 0
    jitted = ms.jit(f, target="reference")
    for n in (2.0, 0.0, 4.0, 0.0):
        assert np.array_equal(jitted(X, n), f(X, n))
    with pytest.raises(ZeroDivisionError):
        ms.jit(lambda x, n: x * (1 / n), target="reference")(X, 0.0)
    assert len(jitted._ready) == 1


def test_an_exception_after_a_write_leaves_the_argument_as_numpy_does():
    def f(x):
        x += 1
        raise KeyError("stop")
    x = X.copy()
    with pytest.raises(KeyError):
        ms.jit(f, target="reference")(x)
    assert np.array_equal(x, X + 1)


def validated(x, w):
    if x.ndim != 1 or np.any(x < 0):
        raise ValueError("negative")
    assert (w > 0).all(), "no weight"
    if not np.all(np.isfinite(x)):
        warnings.warn("odd numbers", stacklevel=1)
    if x.sum() < 1e9:
        y = np.sqrt(x) * w
    else:
        raise OverflowError("too large")
    return y


@pytest.mark.parametrize("target", ["reference", "python", "cpu"])
def test_validation_that_only_raises_is_traced_as_passed(target):
    jitted = ms.jit(validated, target=target)
    assert np.allclose(jitted(X, X), validated(X, X))
    for x, w, error in ((-X, X, ValueError), (X, -X, AssertionError), (X * 1e9, X, OverflowError)):
        with pytest.raises(error):
            jitted(x, w)
    with pytest.warns(UserWarning, match="odd"), contextlib.suppress(OverflowError):  # nan < 1e9 is false
        jitted(np.array([1.0, np.nan, 2.0]), X)
    assert np.allclose(jitted(X * 2, X), validated(X * 2, X)) and len(jitted._ready) == 1


def test_no_other_branch_on_values_is_guessed():
    def f(x):
        if x.sum() > 0:
            return x
        raise ValueError
    with pytest.raises(ms.TraceError, match="if"):
        ms.jit(f, target="reference")(X)


# ---------------------------------------------------------------- functions without source
def test_a_function_without_source_is_right_or_refused():
    space = {"np": np, "w": X.copy(), "net": Thing(w=X.copy(), on=True)}
    exec("def f(x):\n    return x * w + (net.w * 2).sum() + net.on\ndef g(x):\n    y = np.zeros(3)\n    y[0] = x[0]\n    return y", space)
    jitted = ms.jit(space["f"], target="reference")
    for _ in range(2):
        assert np.array_equal(jitted(X), space["f"](X))
        space["w"] = X * 3
        space["net"].w[0] = 9
        assert np.array_equal(jitted(X), space["f"](X))
        space["net"].on = False
    with pytest.raises(ms.TraceError, match=r"float\(\) of a traced"):
        ms.jit(space["g"], target="reference")(X)
