"""Methods, functions and properties of the user's classes are one world with the function that is traced.

Each program runs twice from its text: as it is, and jitted. Results, their types and what is left outside are the same.
"""

from __future__ import annotations

import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sources import executed

import minisitch as ms

HEAD = """
import contextlib, copy, enum, functools, sys, types, weakref
from dataclasses import dataclass, field
import numpy as np
from sources import executed
X = np.arange(1.0, 4.0)
"""
NO_GRAD = """
GRAD = True
class no_grad:
    def __enter__(self):
        global GRAD
        self.before, GRAD = GRAD, False
    def __exit__(self, *error):
        global GRAD
        GRAD = self.before
@contextlib.contextmanager
def without():
    global GRAD
    before, GRAD = GRAD, False
    try:
        yield
    finally:
        GRAD = before
class Op:
    def __call__(self, x): return x * 2 if GRAD else x
method = Op()
def function(x): return x * 2 if GRAD else x
"""
LAYERS = """
class Layer:
    def __init__(self, k): self.w = np.full(3, k)
layers = [Layer(1.0), Layer(2.0)]
"""
# What is read and written -> the program's text: ``f`` is jitted, and ``run`` yields what is to be the same.
PROGRAMS = {
    "a global that one's method sets and another's function reads": NO_GRAD + """
@jit
def f(x):
    with no_grad(): y = function(x), method(x)
    with without(): z = function(x), method(x)
    return y, z, function(x), method(x)
def run():
    global GRAD
    yield f(X)
    GRAD = False
    yield f(X), GRAD
""",
    "an object that a function changes for a while and a method reads": """
class Net:
    def __init__(self): self.w, self.training = np.ones(3), True
net, stack = Net(), [np.ones(3)]
class Predict:
    def __call__(self, x): return x * net.w * stack[-1] * (2 if net.training else 1)
predict = Predict()
@jit
def f(x):
    net.training = False
    stack.append(x * 3)
    y = predict(x)
    net.training = True
    stack.pop()
    return y, predict(x)
def run():
    yield f(X)
    net.w, stack[0] = X, X
    yield f(X), net.training, len(stack)
""",
    "a large array that a method computes with alone": """
W = np.ones(2000)
class Scale:
    V = np.ones(2000)
    def __call__(self, x): return x * (2.0 * W)
    @property
    def twice(self): return 2.0 * W
    @classmethod
    def of_class(cls, x): return x + 2.0 * W
    @staticmethod
    def fixed(x): return x - 2.0 * W
scale = Scale()
@jit
def f(x): return scale(x), scale.twice, Scale.of_class(x), scale.fixed(x)
def run():
    x = np.arange(2000.0)
    yield f(x)
    W[:] = 3
    yield f(x)
    globals().update(W=np.zeros(2000))
    yield f(x)
""",
    "buffers and stacks that methods make": """
class Conv:
    def __init__(self): self.k = np.array([1.0, 2.0])
    def __call__(self, x):
        out = np.zeros(len(x) - 1)
        for i in range(len(out)): out[i] = (x[i:i + 2] * self.k).sum()
        return out
    @functools.cached_property
    def order(self): return np.argsort([2, 1])
    def turned(self, t): return np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
class Deep(Conv):
    def __call__(self, x): return np.asarray(super().__call__(x)) * 2
class Meta(type):
    def make(cls): return cls()
class Made(metaclass=Meta):
    def __matmul__(self, x): out = np.empty(3); out[:] = x; return out
@dataclass
class Sum:
    total: np.ndarray = field(default_factory=lambda: np.zeros(3))
    def add(self, x): self.total[:] = self.total + x; return self
conv = Deep()
@jit
def f(x): return conv(x), conv.turned(x[0]), Made.make() @ x, Sum().add(x).add(x).total, conv.order
def run():
    yield f(X)
    conv.k = X[:2]
    yield f(X * 2)
""",
    "functions of a module of one's own": """
own = types.ModuleType("own_module")
executed('import numpy as np\\ngain = 2.0\\ndef pad(x):\\n    out = np.zeros(len(x) + 2)\\n    out[1:-1] = x * gain\\n    return out', vars(own))
sys.modules["own_module"] = own
@jit
def f(x): return own.pad(x)
def run():
    yield f(X)
    own.gain = 3.0
    yield f(X)
    own.pad = lambda x: x
    yield f(X)
""",
    "functions in a list and a dict": """
def conv(x): out = np.zeros(len(x) - 1); out[:] = x[1:] - x[:-1]; return out
def relu(x): return np.maximum(x, 0)
chain, known = [conv, relu], {"relu": relu}
@jit
def f(x):
    for each in chain: x = each(x)
    return known["relu"](x) * (2 if relu in chain else 3)
def run():
    yield f(X)
    chain.pop()
    yield f(X)
    known["relu"] = chain[0]
    yield f(X)
""",
    "objects and functions that are keys": LAYERS + """
frozen, rates, moments = {layers[0]}, {layers[0]: 0.5}, weakref.WeakKeyDictionary({each: np.zeros(3) for each in layers})
def relu(x): return np.maximum(x, 0)
slope = {relu: lambda x: x > 0, np.tanh: lambda x: 1 - np.tanh(x) ** 2}
@jit
def f(x, act):
    for each in layers: x = x * rates.get(each, 1.0) + moments[each] + (each.w if each in frozen else 0)
    return act(x), slope[act](x)
def run():
    yield f(X, relu), f(X, np.tanh)
    frozen.add(layers[1]); rates[layers[1]] = 7.0; moments[layers[0]] += 2
    yield f(X, relu), f(X, np.tanh)
""",
    "which function it is": """
def relu(x): return np.maximum(x, 0)
class Layer:
    def __init__(self, act): self.act, self.w = act, np.ones(3)
    def __call__(self, x): return self.act(x * self.w) * (2 if self.act is relu else 3) * (5 if self.act == np.tanh else 7)
layer = Layer(relu)
@jit
def f(x, act): return layer(x), act is np.exp, act is layer.act
def run():
    for act in (relu, np.tanh, np.exp):
        layer.act = act
        yield f(X, act), f(X, relu)
""",
    "what kind of thing it is": """
@functools.singledispatch
def kind(x): return 0
@kind.register(np.ndarray)
def _(x): return x * 2
@kind.register(np.floating)
def _(x): return x * 3
table = {np.ndarray: 2, np.float64: 3}
class Asks:
    def __call__(self, x): return isinstance(x, np.ndarray), type(x) is np.ndarray, isinstance(x, float), isinstance(x, np.generic), type(x).__name__
asks = Asks()
@jit
def f(x):
    match x:
        case np.ndarray(): y = x * 5
    return kind(x), kind(x.sum()), table[type(x)], table.get(type(x.sum()), 9), asks(x), asks(x[0]), type(x) in (np.ndarray, float), x.__class__.__name__, y
def run():
    yield f(X)
    yield f(X[:2])
""",
    "what a class of arrays of one's own does": """
class Dict(dict):
    __getattr__ = dict.__getitem__
class Params(list):
    def scaled(self, k): return [each * k for each in self]
own, params = Dict(rate=0.5, w=np.ones(2000)), Params([np.ones(2000)])
@jit
def f(x): return x - own.rate * own.w + params.scaled(2.0)[0]
def run():
    x = np.zeros(2000)
    yield f(x)
    own["w"][:] = 3; params[0] = np.zeros(2000)
    yield f(x)
    own["rate"] = 2.0
    yield f(x)
""",
    "weak references": """
class Child:
    def __init__(self, parent): self.parent = weakref.ref(parent)
    def __call__(self, x): return x * self.parent().w * (2 if self.parent().training else 1)
class Parent:
    def __init__(self): self.w, self.training, self.child = np.ones(3), True, Child(self)
    def __call__(self, x):
        before, self.training = self.training, False
        y = self.child(x)
        self.training = before
        return y, self.child(x), self.child.parent() is self
parent, other = Parent(), Parent()
held = weakref.ref(parent)
@jit
def f(x): return parent(x), held() is parent, held() is other, x * held().w
def run():
    yield f(X)
    parent.w, parent.training = X, False
    yield f(X)
    globals().update(held=weakref.ref(other))
    yield f(X)
""",
    "caches of functions": """
@functools.cache
def table(n): return np.arange(3.0) * n
class Taps:
    @staticmethod
    @functools.lru_cache
    def ramp(n): return np.arange(3.0) + n
@jit
def f(x, n): return x + table(n) * Taps.ramp(2)
def run():
    for n in (1, 2, 3, 2, 1.5, 2.5): yield f(X, n)
    yield f(X, 2), table.cache_info().currsize
""",
    "what is kept to compute it once": """
class Kept:
    def __init__(self, n): self.n, self.w = n, np.ones(3)
    @functools.cached_property
    def scale(self): return 1 / self.n
    @functools.cached_property
    def taps(self): return np.exp(-np.linspace(-1, 1, 3)) * self.n
kept = Kept(4)
@jit
def f(x): return x * kept.scale * kept.taps * kept.w
def run():
    yield f(X)
    kept.n = 9
    yield f(X), {**vars(kept)}
    kept.taps = np.zeros(3)
    del kept.scale
    yield f(X)
""",
    "generators with seeds that are arguments": """
@jit
def f(x, seed):
    first, second = np.random.SeedSequence(seed).spawn(2)
    draws = [np.random.default_rng(each).random(3) for each in (seed, first, [seed, 1], np.random.PCG64(seed))]
    legacy = np.random.RandomState(seed)
    return x + sum(draws), np.random.Generator(np.random.PCG64(seed)).random(3), legacy.rand(3), isinstance(legacy, np.random.RandomState)
def run():
    for seed in (3, 4, 5, 3): yield f(X, seed)
""",
    "jitted special methods, and copies of objects": """
class Net:
    def __init__(self): self.w, self.parts = np.ones(3), {"b": np.zeros(3), "k": 2.0}
    @jit
    def __call__(self, x): return x * self.w
net = Net()
@jit
def f(x, model):
    target = copy.deepcopy(net)
    target.w = target.w * 0.9 + net.w * 0.1
    target.parts["k"] = 5
    return model(x) + net(x) * target.w + target.parts["b"], copy.copy(net).parts["k"]
def run():
    yield f(X, net)
    net.w, net.parts["k"] = X, 3.0
    net.parts["b"] += 1
    yield f(X, net), net.parts
    Net.__call__ = lambda self, x: x
    yield f(X, net)
""",
    "members and combinations of an enum": """
class Act(enum.Enum):
    RELU, TANH = "relu", "tanh"
    def __call__(self, x): out = np.zeros(3); out[:] = np.maximum(x, 0) if self is Act.RELU else np.tanh(x); return out
    @property
    def gain(self): return {Act.RELU: 2.0, Act.TANH: 3.0}[self]
class Mode(enum.Flag):
    A, B = 1, 2
act, mode = Act.RELU, Mode.A
@jit
def f(x, name=None):
    chosen = act if name is None else Act(name)
    return chosen(x) * chosen.gain * (2 if Mode.A in mode else 1) * (3 if mode & Mode.B else 1)
def run():
    global act, mode
    yield f(X), f(X, "tanh")
    act, mode = Act.TANH, Mode.A | Mode.B
    yield f(X), f(X, "relu")
    mode = Mode.B
    yield f(X)
""",
    "a class defined inside, and errors of one's own": """
class Bad(Exception):
    def __init__(self, k): super().__init__(f"bad {k}"); self.k = k
class Base:
    def go(self, x):
        if x.ndim > 1: raise Bad(x.ndim)
        return x
class Heir(Base):
    def go(self, x): return super().go(x) + super(Heir, self).go(x)
@jit
def f(x):
    class Total:
        n = 0
        def add(self, x): self.n = self.n + x; return self
    return Total().add(Heir().go(x)).n, isinstance(Heir(), Base), type(Heir()) is Heir
def run():
    yield f(X)
    try: f(X[None])
    except Bad as error: yield error.k, str(error)
    yield Heir.go.__code__.co_name, Heir.__mro__[1].__name__
""",
}


def outcome(name: str, text: str, jit: object, monkeypatch: pytest.MonkeyPatch) -> list:
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    vars(module)["jit"] = jit
    executed(HEAD + text, vars(module), "program.py")
    return [*module.run()]


def require_same(got: object, want: object) -> None:
    assert type(got) is type(want)
    if isinstance(want, list | tuple | dict):
        assert len(got) == len(want)
        for g, w in zip(got.values() if isinstance(got, dict) else got, want.values() if isinstance(want, dict) else want, strict=True):
            require_same(g, w)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-12, strict=True) if isinstance(want, np.ndarray | float) else require_equal(got, want)


def require_equal(got: object, want: object) -> None:
    assert got == want


@pytest.mark.parametrize("what", PROGRAMS)
def test_methods_see_what_functions_see(what, monkeypatch):
    want = outcome("as_it_is", PROGRAMS[what], lambda f: f, monkeypatch)
    got = outcome("jitted", PROGRAMS[what], lambda f: ms.jit(f, target="reference"), monkeypatch)
    require_same(got, want)


class Net:
    def __init__(self):
        self.w = np.ones(4)

    def forward(self, x):
        out = np.zeros(4)
        out += x * self.w
        return out

    @property
    def twice(self):
        return np.asarray(self.w) * 2


NET = Net()


def test_other_threads_call_the_methods_while_programs_are_traced():
    """A class has its own functions again after the last trace, and one trace is not refused for what another did."""
    before, wrong, stop = {**vars(Net)}, [], threading.Event()

    def call():
        while not stop.is_set():
            y = NET.forward(np.ones(4))
            if type(y) is not np.ndarray or y.tolist() != [1.0] * 4 or NET.twice.tolist() != [2.0] * 4:
                wrong.append(y)

    def trace(k):
        f = ms.jit(lambda x: NET.forward(x) * k + NET.twice, target="reference")
        return f(np.ones(4)).tolist() == [k + 2.0] * 4

    threads = [threading.Thread(target=call) for _ in range(2)]
    for each in threads:
        each.start()
    with ThreadPoolExecutor(4) as pool:
        right = [*pool.map(trace, range(24))]
    stop.set()
    for each in threads:
        each.join()
    assert all(right) and not wrong and {**vars(Net)} == before


@pytest.mark.parametrize("error", [KeyError("k"), KeyboardInterrupt()])
def test_a_class_has_its_functions_again_after_any_error(error):
    class Fails(Net):
        def forward(self, x):
            raise error

    before = {**vars(Fails)}
    fails = Fails()
    with pytest.raises(type(error)):
        ms.jit(lambda x: fails.forward(x), target="reference")(np.ones(4))
    assert {**vars(Fails)} == before
