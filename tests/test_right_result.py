"""The type of a result is NumPy's: scalar or array of no axes, class of container, byte order; what hides a stand-in is refused."""

import collections
import contextlib
import dataclasses
import functools
import pprint
import re
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy_api import differs, outcome, verdict

import minisitch as ms

X = np.arange(3.0)


class Pair(NamedTuple):
    left: Any
    right: Any


class Params(dict):
    """As many have it: keys are attributes, too."""

    def __getattr__(self, name):
        return self[name]


class Stack(list):
    def __init__(self, label, *parts):
        super().__init__(parts)
        self.label = label


class BlockCut(tuple):
    pass


@pytest.mark.parametrize("target", ["reference", "python", "step"])
def test_a_scalar_is_a_scalar_and_an_array_without_axes_an_array(target):
    for text in ("s.T", "s[...]", "s[()]", "s.reshape(())", "np.asarray(s)", "s + 0", "s.copy()", "s", "n", "n.T", "n[...]", "np.asarray(n)", "n.copy()",
                 "v[0]", "v[..., 0]", "v[0, ...]", "v.sum()", "v.sum()[...]", "np.zeros(())", "np.where(l, n, n)", "(s, [n, {'a': s}])",
                 "o = np.zeros(()) $ r = np.add(s, s, out=o) $ return r, o", "np.exp(s, out=...)", "s.astype(int)", "n.astype(int)", "s.real, n.real, s.imag, n.imag",
                 "s *= 2 $ return s", "s[...] = 3 $ return s", "n += 1 $ return n"):
        assert verdict(text, target) == "equal", text


@pytest.mark.parametrize("container", [
    lambda a, b: collections.OrderedDict(b=b, a=a), lambda a, b: collections.defaultdict(list, a=a, b=b), Pair, lambda a, b: Params(a=a, b=b),
    lambda a, b: Stack("both", a, b), lambda a, b: BlockCut((a, b)), lambda a, b: {"x": [a, (b,)]}, lambda a, b: collections.Counter(a=a, b=b),
], ids=["OrderedDict", "defaultdict", "namedtuple", "dict", "list", "tuple", "nest", "Counter"])
@pytest.mark.parametrize("target", ["reference", "python"])
def test_containers_keep_their_class(container, target):
    def f(given, x):
        assert type(given) is type(container(1, 2))  # as an argument, too
        return container(x + 1, x[0]), given
    given = container(X, np.float64(2))
    got, want = ms.jit(f, target=target)(given, X), f(given, X)
    for g, w in zip(got, want, strict=True):
        assert type(g) is type(w) and vars(g) == vars(w) if hasattr(w, "__dict__") else type(g) is type(w)
        assert differs([*g.values()] if isinstance(g, dict) else [*g], [*w.values()] if isinstance(w, dict) else [*w]) == ""
        assert not isinstance(w, dict) or list(g) == list(w)
    if isinstance(got[0], collections.defaultdict):
        assert got[0]["new"] == []


@dataclasses.dataclass
class State:
    value: Any


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


async def later(x):
    return x


HIDE = {
    "zip": lambda x: zip([x + 1], strict=True), "map": lambda x: map(abs, [x + 1]), "generator": lambda x: (x + i for i in range(2)),
    "list_iterator": lambda x: iter([x + 1]), "enumerate": lambda x: enumerate([x + 1]), "reversed": lambda x: reversed([x + 1]),
    "deque": lambda x: collections.deque([x + 1]), "dict_values": lambda x: {"a": x + 1}.values(), "dict_items": lambda x: {"a": x + 1}.items(),
    "dict_keys": lambda x: {"a": x + 1}.keys(), "State": lambda x: State(x + 1), "Slotted": lambda x: Slotted(x + 1),
    "SimpleNamespace": lambda x: types.SimpleNamespace(a=[{"b": (x + 1,)}]), "coroutine": lambda x: later(x + 1),
    "function": lambda x: lambda: x + 1, "partial": lambda x: functools.partial(abs, x + 1), "method": lambda x: State(x + 1).__eq__,
    "nested": lambda x: (x, [State([{"a": Slotted((x + 1,))}])]), "default": lambda x: [lambda y=x + 1: y], "frozenset": lambda x: frozenset([State]) and {State(x).__repr__},
    "plain iterator": lambda x: iter([1, 2]), "range iterator": lambda x: iter(range(3)), "memo": lambda x: functools.lru_cache(lambda y=x: y),
    "ExitStack": lambda x: contextlib.ExitStack().enter_context(contextlib.closing(types.SimpleNamespace(close=print, x=x))),
    "set": lambda x: {1, 2}, "bytearray": lambda x: bytearray(3), "queue": lambda x: collections.deque([1]), "generator of numbers": lambda x: np.random.default_rng(0),
    "of numbers": lambda x: State(3), "in a nest": lambda x: [x, {"a": Slotted(3)}],
    "text": lambda x: pprint.pformat(x), "flat": lambda x: x.flat,
}


@pytest.mark.parametrize("what", HIDE)
def test_results_that_hold_stand_ins_are_refused_by_name(what):
    """At the line where the function begins; what it makes is made once, and callers may change it."""
    f = HIDE[what]
    with pytest.raises(ms.TraceError, match=rf"test_right_result.py:{f.__code__.co_firstlineno}: the program returns (a \w+|x.flat)"):
        ms.jit(f, target="reference")(X)


def test_what_holds_none_is_returned():
    """And what callers cannot change, or what is the same object in NumPy, too."""
    there = State(3)
    f = ms.jit(lambda x: (x, there, {"a": frozenset([1, 2])}, "text", None, range(3), np.float32, slice(1), np, len, type(x), np.add), target="reference")
    assert f(X)[1:] == (there, {"a": {1, 2}}, "text", None, range(3), np.float32, slice(1), np, len, np.ndarray, np.add) and f(X)[1] is there


# ---------------------------------------------------------------- byte order
BIG = X.astype(">f8")


@pytest.mark.parametrize("f", [lambda x: x, lambda x: x[1:], lambda x: x.copy(), lambda x: x.T, lambda x: np.sort(x), lambda x: x[[0, 1]],
                               lambda x: np.zeros_like(x), lambda x: np.zeros(2, x.dtype), lambda x: [x + 1, x.reshape(3, 1)], lambda x: np.roll(x, 1),
                               lambda x: np.flip(x), lambda x: np.take(x, [0]), lambda x: x.astype(x.dtype),
                               lambda x: (np.add.at(x, [0], 1), x)[1], lambda x: (y := x.copy(), y.__setitem__(y > 1, 0))[0]])
def test_results_in_the_order_of_swapped_bytes_are_refused(f):
    with pytest.raises(ms.TraceError, match=r"test_right_result.py:\d+: "):
        ms.jit(f, target="reference")(BIG)


@pytest.mark.parametrize("f", [lambda x: x + 1, lambda x: np.exp(x), lambda x: x.sum(), lambda x: x > 1, lambda x: x[1] * 2, lambda x: x.mean(keepdims=True),
                               lambda x: (x.shape, x.ndim), lambda x: np.argmax(x)])
def test_what_is_computed_from_swapped_bytes_is_in_the_machines_order(f):
    assert differs(ms.jit(f, target="python")(BIG), f(BIG)) == ""


# ---------------------------------------------------------------- subclasses of ndarray
class Doubling(np.ndarray):
    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        inputs = [np.asarray(each) if isinstance(each, Doubling) else each for each in inputs]
        return getattr(ufunc, method)(*inputs, **options) * 2


class Shifted(np.ndarray):
    def __getitem__(self, index):
        return super().__getitem__(index) + 100


class Functions(np.ndarray):
    def __array_function__(self, func, types, args, kwargs):
        return "mine"


class Plain(np.ndarray):
    pass


SUBCLASSES = [X.view(kind) for kind in (Doubling, Shifted, Functions, Plain)] + [np.ma.masked_less(X, 1), X.view(np.recarray)]


@pytest.mark.parametrize("given", SUBCLASSES, ids=lambda given: type(given).__name__)
def test_subclasses_of_ndarray_are_refused_by_name(given):
    """As arguments, in nests, from outside and as results."""
    for f, args in ((lambda x: np.concatenate([x, x]), (given,)), (lambda p: p["w"] + 1, ({"w": given},)), (lambda x: x + np.add(1, given), (X,)),
                    (lambda x: (x, given), (X,)), (lambda x: x * given, (X,))):
        result, error = outcome(lambda: ms.jit(f, target="reference")(*args))  # noqa: B023
        if error is None:  # the class did it all itself, outside of the trace
            assert type(given) is Doubling and differs(result, f(*args)) == ""
        else:
            assert re.match(r"test_right_result.py:\d+: ", str(error)) and re.search(f"{type(given).__name__}|conversion", str(error))


def test_an_array_in_a_file_is_as_any_other(tmp_path):
    given = np.memmap(tmp_path / "x", np.float64, "w+", shape=3)
    given[:] = X
    f = ms.jit(lambda x: (x * 2, x.sum(), x[1:] + given[0]), target="python")
    assert differs(f(given), (X * 2, X.sum(), X[1:] + 0.0)) == ""
