"""What a rewriter of text can get wrong: each program is run plain and traced, then again after a change outside."""

import numpy as np
import pytest

import minisitch as ms

BEGIN = """
import collections, contextlib, copy, dataclasses, functools, inspect, operator, sys, warnings
import numpy as np
import minisitch as ms
X, S, L, D = np.arange(1.0, 4.0), 2.0, [1.0, 2.0], {"k": 2.0, "w": np.arange(1.0, 4.0)}
class Thing:
    def __init__(self, **named): self.__dict__.update(named)
class Held:
    def __init__(self): self.k, self.v = 2.0, [1.0, 2.0]
    def __bool__(self): return self.k > 2
    def __contains__(self, value): return value == self.k
    def __iter__(self): yield from self.v
    def __lt__(self, other): return self.k < other
    def __gt__(self, other): return self.k > other
    def __format__(self, how): return format(self.k, how)
O = Held()
"""
# name: (the program, what changes outside, ...)
SAME = {
    "a real array that gets traced values": ("""
def put(array, x): array[0] = x[0]
def f(x):
    m, n = np.array([1.0, 2.0, 3.0]), np.arange(3.0)
    other, held, k = m, {"m": np.linspace(0.0, 1.0, 4), "n": np.arange(6.0).reshape(2, 3)}, m.sum()
    put(m, x)
    n += x[1]
    held["m"][1:] *= x
    held["n"][0] = x
    np.add(x, 1.0, out=m[:3])
    whole = np.array([1, 2, 3])
    whole += x.astype(int)
    return m, other * k, n, held, whole""",),
    "what goes over an old sequence, a mapping, or compares two": ("""
class Old:
    def __init__(self): self.v = [1.0, 2.0]
    def __getitem__(self, i): return self.v[i]
class Mapped(Old):
    def keys(self): return ["a"]
    def __getitem__(self, key): return 3.0
    def __iter__(self): return iter(["a"])
A, M, P = Old(), Mapped(), Held()
def f(x): return x * sum(list(A)) + dict(M)["a"] + max(P, O).k""", "A.v = [7.0]"),
    "methods that a library's class has": ("""
class Table(collections.UserDict): pass
T = Table(a=2.0)
def f(x): return x * T.get("a", 1.0) + sum(v for _, v in T.items()) + ("b" in T)""", "T['a'] = 5.0", "T['b'] = 6.0"),
    "an item that is set and deleted": ("""
def f(x):
    D["now"] = 5.0
    y = x * D["now"]
    del D["now"]
    return y * D["k"]""", "D['k'] = 4.0"),
    "and asks once": ("""
class Asked:
    n = 0
    def __bool__(self):
        self.n += 1
        return False
def f(x):
    a = Asked()
    b, c = a and 1, a or 2
    return x * a.n if b is a and c == 2 else x""",),
    "Python's own functions in the user's hand": ("""
def f(x): return operator.add(operator.getitem(D, "k"), x) * operator.contains(O, 2.0) + getattr(O, "k") - operator.neg(S)""",
                                                  "D['k'] = 5.0", "O.k = 9.0"),
    "a walrus in a check": ("""
def f(x):
    if (n := len(x)) > 5 or (s := x.sum()) < 0: raise ValueError
    return x * n + s""",),
    "super in a check": ("""
class A:
    def ok(self, x): return x.sum() < 0
class B(A):
    def m(self, x):
        if super().ok(x) or x.max() > 100: raise ValueError
        return x * 2
def f(x): return B().m(x)""",),
    "a check in the body of a class": ("""
def f(x):
    class A:
        n = 3
        if n < 0 or n > 10 or not n: raise ValueError
    return x * A.n""",),
    "a default behind or": ("def f(x): return x * (L or [7.0])[0] + (D and 3.0 or 5.0)", "L.clear()", "D.clear()"),
    "the truth of an object before and": ("def f(x): return x * (O and 2 or 3)", "O.k = 3.0", "O = None"),
    "a list in a match": ("""
def f(x):
    match L:
        case [a, b]: return x * a + b
        case [a]: return x - a""", "L[0] = 5.0", "L.pop()"),
    "a dict in a match": ("""
class N: KEY = "k"
def f(x):
    match D:
        case {N.KEY: k, "w": w} if k > 0: return x * k + w""", "D.update(k=3.0)", "D.update(w=X * 7)"),
    "nested objects in a match": ("""
class P:
    k = 3.0
    @property
    def half(self): return self.k / 2
A, N = Thing(a=[Thing(w=X.copy())], p=P()), Thing(ONE=1, TWO=2)
def f(x, kind=2):
    match A:
        case Thing(a=[Thing(w=w)], p=P(half=h)): x = x * w + h
    match kind:
        case N.ONE: return x
        case N.TWO: return x * 2
    return x * 3""", "A.a[0].w = X * 3", "A.p.k = 7.0", "N.TWO = 5"),
    "in an object, and in a list of arrays": ("""
W = X.copy()
A = [W, X]
def f(x): return x * (2.0 in O) + (W in A) + 3 * (7.0 not in O) + sum(2.0 in O for _ in L)""", "O.k = 7.0"),
    "a chain of comparisons": ("""
def f(x):
    log = []
    def t(value): log.append(value); return value
    r = [t(0) < t(5) < t(1) < t(9), t(1) < t(2) <= t(2) != t(3) in t([3, 4]), [a < b < 3 for a, b in [(1, 2)]]]
    return x * (0 < O < 5), r, log""", "O.k = 7.0"),
    "yield from": ("""
def g(values): yield from values
def f(x): return x * sum(g(L)) + sum(g(O))""", "L.append(3.0)", "O.v.append(4.0)"),
    "two targets, one unpacked": ("""
def f(x):
    o = (a, b) = O
    return x * a + b if o is O else x""", "O.v[0] = 5.0"),
    "an f-string": ("""
T = {"2.0": 2.0, "3.0": 3.0, "[1.0, 2.0]": 7}
def f(x):
    n = 4
    return x * T[f"{O}"] + len(f"{O:>{n + 2}.1f}|{n=}|{'a' + 'b'!r:>{n}}|{{}}|{0.5:%}|{L}|{O.v!s:>20}")""", "O.k = 3.0", "O.v.append(1.0)"),
    "an item of a class": ("""
class A:
    def __class_getitem__(cls, i): return i * L[0]
def f(x): return x * A[3]""", "L[0] = 5.0"),
    "setters of all kinds": ("""
class Scaled:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, held, kind): return getattr(held, self.name)
    def __set__(self, held, value): setattr(held, self.name, value * S)
class A:
    c = Scaled()
    def __init__(self): self.d = {}
    @property
    def w(self): return self._w
    @w.setter
    def w(self, value):
        self._w = np.zeros(3)
        self._w[:] = value * S
    def __setitem__(self, key, value): self.d[key] = value * S
    def __delitem__(self, key): self.d[key + "x"] = S
    def __getitem__(self, key): return self.d[key]
class B:
    def __setattr__(self, name, value): object.__setattr__(self, name, value * S)
def f(x):
    a, b = A(), B()
    a.w = a.c = a["k"] = b.v = x
    a.w += 1
    a["k"] *= 2
    del a["q"]
    setattr(b, "u", x)
    return a.w, a.c, a.d, b.v + b.u""", "S = 3.0"),
    "decorators inside": ("""
def scaled(g):
    k = np.zeros(3)
    k[:] = S
    return lambda x: g(x) * k
def marked(kind):
    kind.s = S
    return kind
def f(x):
    @scaled
    def g(y): return y + x
    @marked
    class A:
        @functools.lru_cache
        def m(self): return 2.0
        @staticmethod
        def n(): return 3.0
    return g(x) * A.s + A().m() + A.n()""", "S = 3.0"),
    "its own attribute, made and taken away": ("""
class A:
    def run(self, x):
        self.__t = x.ndim
        self.__t += 2
        y = x * self.__t
        del self.__t
        return y
A = A()
def f(x): return A.run(x)""",),
    "an object gets another class": ("""
class Other:
    def __bool__(self): return False
    def __add__(self, value): return 5.0
class Sub(Thing): pass
A, B = Held(), Thing(k=1.0)
Held.__add__, A.k = (lambda self, value: 3.0), 9.0
def f(x): return (x if A else -x) + (A + 1) + isinstance(A, Other) + 2 * (type(B) is Sub) + 4 * isinstance(B, Sub)""",
                                     "A.__class__ = Other", "B.__class__ = Sub"),
    "methods that a dataclass generates, and functions without source, read their arguments": ("""
@dataclasses.dataclass(unsafe_hash=True, order=True)
class P: a: float
@dataclasses.dataclass
class Kept: held: list
A, B, K, W = P(1.0), P(1.0), P(3.0), [X.copy()]
exec("def g(o, l, x): return x * o.k * l[0]")
def f(x): return x * (A == B) + (A < B) + len(repr(A)) + len(str(hash(K))) * 0 + g(O, L, x) + Kept(W).held[0]""",
                                                                                              "A.a = 222.0", "B.a = 333.0", "O.k = 7.0",
                                                                                              "L[0] = 6.0", "W[0][0] = 7.0"),
    "what an import inside the function reads": ("""
sys.modules["other_world"] = type(sys)("other_world")
sys.modules["other_world"].k = 2.0
def f(x):
    from other_world import k, k as again
    return x * k + again""", "sys.modules['other_world'].k = 5.0"),
    "an array of a subclass": ("""
class Kind(np.ndarray): pass
A, B = np.ones(3).view(Kind), np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
def f(x): return x * np.asarray(A) + B.filled(0.0)""", "A[0] = 5.0", "B.mask[1] = False"),
    "a number in an array of its own": ("""
def f(x):
    n = m = np.array(3)
    n = n + x[0]
    return n, m""",),
}


def shown(value):
    if isinstance(value, dict | list | tuple):
        return type(value), [*map(shown, value.items() if isinstance(value, dict) else value)]
    return (type(value), value.dtype, value.shape, value.tolist()) if isinstance(value, np.ndarray | np.generic) else (type(value), repr(value))


def spaces(tmp_path, text):
    """The program twice, each in a world of its own."""
    path = tmp_path / "program.py"
    path.write_text(BEGIN + text)
    made = [{"__name__": f"program_{i}", "__file__": str(path)} for i in range(2)]
    for space in made:
        exec(compile(path.read_text(), path, "exec"), space)
    return made


@pytest.mark.parametrize("what", SAME)
def test_a_program_means_what_python_means(what, tmp_path):
    text, *changes = SAME[what]
    plain, traced = spaces(tmp_path, text)
    jitted = ms.jit(traced["f"], target="reference")
    for change in ["", *changes]:
        exec(change, plain)
        exec(change, traced)
        for _ in range(2):
            assert shown(jitted(traced["X"].copy())) == shown(plain["f"](plain["X"].copy()))
