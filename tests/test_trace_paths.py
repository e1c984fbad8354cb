"""What a program reads by plain path is read again at each call: each case changes it before each call."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import gc
import inspect
import math
import sys
import time
import types
import weakref
from pathlib import Path

import numpy as np
import pytest

import minisitch as ms

HERE = Path(__file__).name
X = np.arange(1.0, 5.0)
OUT = types.SimpleNamespace()  # what the cases change
depth = 1.0


class Base:
    k: 1 = 2.0

    def scaled(self, x):
        return x * self.k

    def more(self, x):
        return self.scaled(x) + 1


class Derived(Base):
    pass


class Field:
    """A descriptor with a state of its own."""

    def __init__(self, value):
        self.value = value

    def __get__(self, holder, kind=None):
        return self.value


class Parent:
    rate, table, field = 1.0, np.ones(4), Field(1.0)

    @staticmethod
    def plus(x):
        return x + 1

    @classmethod
    def times(cls, x):
        return x * cls.rate


class Other(Parent):
    rate = 3.0


class Heir(Parent):
    pass


FORMER = dict(vars(Parent))


class One:
    __match_args__ = ("first",)
    first, second = 1.0, 2.0


def in_a_pattern(x) -> 2:
    match OUT.first:
        case One(found):
            return x * found
    return x


class Mode(enum.Enum):
    SLOW, FAST = 1.0, 2.0


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
    "a method of the class": (lambda x: OUT.o.more(x), lambda i: setattr(OUT.o, "k", i) or setattr(Base, "scaled", [SCALED, PLUS][i % 2])),
    "a method of the object": (lambda x: OUT.o.more(x), lambda i: setattr(OUT.o, "scaled", lambda x: x - i)),
    "a method of a class in between": (lambda x: OUT.d.more(x), lambda i: setattr(Derived, "scaled", lambda self, x: x - i)),
    "a member of an enum": (lambda x: x * OUT.mode.value, lambda i: setattr(OUT, "mode", [Mode.SLOW, Mode.FAST][i % 2])),
    "through __getattribute__": (lambda x: x * OUT.looked.k, lambda i: OUT.looked.table.update(k=i)),
    "a mapping proxy": (lambda x: x * OUT.proxy["a"], lambda i: OUT.numbers.update(a=i)),
    "a dict of a class of one's own": (lambda x: x * OUT.settings["a"], lambda i: OUT.settings.update(a=i)),
    "a bound method of a list": (lambda x: x * OUT.take(0), lambda i: OUT.listed.__setitem__(0, i)),
    "a bound method of a dict": (lambda x: x * OUT.ask("a"), lambda i: OUT.numbers.update(a=i)),
    "a bound method of an array": (lambda x: x * OUT.total(), lambda i: OUT.w.__setitem__(0, i)),
    "a shape alone": (lambda x: x * OUT.v.shape[0], lambda i: setattr(OUT, "v", np.ones((i + 1, 3)))),
    "an attribute that was missing": (lambda x: missing(x), lambda i: setattr(OUT.o, "extra", i)),
    "a named default": (lambda x: x * defaulted(), lambda i: setattr(defaulted, "__kwdefaults__", {"b": i})),
    "a global that a context manager sets": (of_deeper, lambda i: None),
    "an object that is an array": (lambda x: np.asarray(OUT.like) + x, lambda i: setattr(OUT.like, "value", np.full(4, i))),
    "a weak reference": (lambda x: x * OUT.weak().k, lambda i: setattr(OUT.o, "k", i)),
    "the array of an object that is weakly held": (lambda x: x * OUT.weak().v, lambda i: setattr(OUT.o, "v", np.full(4, i))),
    "an attribute of the metaclass": (lambda x: x * Made.level, lambda i: setattr(Meta, "level", i)),
    "a method of the metaclass": (lambda x: x * Made.of_class(), lambda i: setattr(Meta, "of_class", lambda cls: i)),
    "an attribute of a function": (lambda x: x * helper.k, lambda i: setattr(helper, "k", i)),
    "an attribute that a function gets": (
        lambda x: x * getattr(other, "k", 3.0), lambda i: setattr(other, "k", i) if i == 2 else vars(other).clear()),
    "the name of a function": (lambda x: x * len(helper.__name__), lambda i: setattr(helper, "__name__", "n" * i)),
    "the text of a function": (lambda x: x * len(helper.__doc__ or ""), lambda i: setattr(helper, "__doc__", "n" * i)),
    "an attribute that a class gets": (lambda x: x * (2 if hasattr(OUT.o, "extra") else 3), lambda i: i == 2 and setattr(Base, "extra", 1)),
    "a slot that is filled": (lambda x: x * getattr(OUT.slotted, "k", 5.0), lambda i: i == 2 and setattr(OUT.slotted, "k", 7.0)),
    "a global that appears": (lambda x: guessed(x), lambda i: i == 2 and globals().__setitem__("appears", 9.0)),
    "an attribute of a list": (lambda x: x * OUT.kinds[0].k, lambda i: setattr(OUT.kinds[0], "k", i)),
    "an attribute of a float": (lambda x: x * OUT.kinds[1].k + OUT.kinds[1], lambda i: setattr(OUT.kinds[1], "k", i)),
    "an attribute of an error": (lambda x: x * OUT.kinds[2].k * OUT.kinds[2].args[0], lambda i: setattr(OUT.kinds[2], "k", i)),
    "the dict of a default": (lambda x: x * OUT.kinds[3]["q"], lambda i: setattr(OUT.kinds[3], "k", i)),
    "the sign of a zero among many": (lambda x: x / OUT.many[3], lambda i: OUT.many.__setitem__(3, [0.0, -0.0][i % 2])),
    "the type of a number among many": (lambda x: x.astype(int) * OUT.many[5], lambda i: OUT.many.__setitem__(5, [1, 1.0, True][i % 3])),
    "the order of many": (lambda x: x * next(iter(OUT.ordered)), lambda i: OUT.ordered.update({i: OUT.ordered.pop(i)})),
    "a partial method": (lambda x: x * OUT.o.part(), lambda i: setattr(Base, "part", functools.partialmethod(Base.held, i))),
    "which of two objects it is": (lambda x: x * (2 if OUT.one is OUT.o else 3), lambda i: setattr(OUT, "one", [OUT.o, OUT.d][i % 2])),
    "an attribute where __getattr__ answered": (lambda x: x * OUT.asked.k, lambda i: i == 2 and setattr(OUT.asked, "k", 1.0)),
    "a module that the program imports": (lambda x: imported(x), lambda i: setattr(sys.modules["hunted_module"], "k", i)),
    "an attribute in a match": (lambda x: matched(x), lambda i: setattr(OUT.o, "k", i)),
    "what another name of NumPy is": (
        lambda x: xp.tanh(x), lambda i: globals().update(xp=[types.SimpleNamespace(tanh=np.exp), np][i % 2])),
    "which of two arrays it is": (
        lambda x: x * (2 if OUT.places[0] is OUT.places[1] else 3), lambda i: OUT.places.__setitem__(1, [OUT.w, OUT.rows][i % 2])),
    "whether an array is among others": (
        lambda x: x * (2 if any(each is OUT.w for each in OUT.places) else 3), lambda i: OUT.places.__setitem__(0, [OUT.w, OUT.rows][i % 2])),
    "how many objects there are": (lambda x: x * len({OUT.o, OUT.one}), lambda i: setattr(OUT, "one", [OUT.o, OUT.d][i % 2])),
    "the shape of an array in place": (lambda x: x * OUT.rows.sum(-1), lambda i: setattr(OUT.rows, "shape", [(4,), (4, 1)][i % 2])),
    "the dtype of an array in place": (
        lambda x: (OUT.rows + x).sum(), lambda i: OUT.__dict__.update(rows=OUT.rows.view([np.int64, np.float64][i % 2]))),
}
SEEN |= {  # what a class has from its bases
    "an attribute between a class and its base": (lambda x: x * Heir.rate, lambda i: setattr([Parent, Heir][i > 1], "rate", i)),
    "an array of a class's base": (lambda x: x * Heir.table, lambda i: Parent.table.fill(i)),
    "an attribute of any name of a class's base": (lambda x: x * getattr(Heir(), OUT.named), lambda i: setattr(Parent, "rate", i)),
    "a static method of a class's base": (lambda x: Heir.plus(x), lambda i: setattr(Parent, "plus", staticmethod(lambda x: x + i))),
    "a static method of both classes": (
        lambda x: Parent.plus(x) * Heir.plus(x), lambda i: setattr([Parent, Heir][i > 1], "plus", staticmethod(lambda x: x + i))),
    "a class method of a class's base": (
        lambda x: Heir.times(x), lambda i: setattr(Parent, "times", classmethod(lambda cls, x: x * cls.rate * i))),
    "the bases of a class": (lambda x: x * Heir.rate, lambda i: setattr(Heir, "__bases__", [(Parent,), (Other,)][i % 2])),
    "a descriptor that another hides": (lambda x: x * Heir().field, lambda i: setattr([Parent, Heir][i > 1], "field", Field(i))),
    "an attribute in a class pattern": (lambda x: in_a_pattern(x), lambda i: setattr(OUT.first, "first", i)),
    "the names of a class pattern": (
        lambda x: in_a_pattern(x), lambda i: setattr(One, "__match_args__", [("first",), ("second",)][i % 2])),
    "an annotation": (lambda x: x * len(in_a_pattern.__annotations__["return"]), lambda i: None),
}
SEEN |= {  # what a function tells without a call of it, and names that come to hide others
    "an entry of the annotations": (
        lambda x: x * annotated.__annotations__["return"], lambda i: annotated.__annotations__.update({"return": i})),
    "the annotations of a class": (lambda x: x * Base.__annotations__["k"], lambda i: Base.__annotations__.update(k=i)),
    "a default of a function that is not called": (
        lambda x: x * inspect.signature(defaulted).parameters["a"].default, lambda i: setattr(defaulted, "__defaults__", (i,))),
    "a named default of a function that is not called": (
        lambda x: x * defaulted.__kwdefaults__["b"], lambda i: setattr(defaulted, "__kwdefaults__", {"b": i})),
    "the code of a function that is not called": (
        lambda x: x * helper.__code__.co_argcount, lambda i: setattr(helper, "__code__", (CODE, PAIR)[i % 2])),
    "the closure of a function that is not called": (
        lambda x: x * OUT.closed.__closure__[0].cell_contents, lambda i: setattr(OUT.closed.__closure__[0], "cell_contents", i)),
    "a list in a slice": (lambda x: x * OUT.slices[0].stop[0], lambda i: OUT.slices[0].stop.__setitem__(0, i)),
    "an object in a slice": (lambda x: x * OUT.slices[1].stop.k, lambda i: setattr(OUT.o, "k", i)),
    "an attribute of a partial": (lambda x: x * OUT.partial.k, lambda i: setattr(OUT.partial, "k", i)),
    "a special method that a class gets": (lambda x: x * (2 if OUT.empty else 3), lambda i: setattr(Empty, "__bool__", lambda self: i % 2 == 0)),
    "a way to compare that a class gets": (lambda x: x * (2 if OUT.empty == 5 else 3), lambda i: setattr(Empty, "__eq__", lambda self, other: i % 2)),
    "a method that a class in between gets": (
        lambda x: x * OUT.lowest.above(), lambda i: i == 2 and setattr(Middle, "above", lambda self: 7.0)),
    "a property that hides an attribute": (lambda x: x * OUT.hiding.k, lambda i: OUT.hiding.__dict__.update(k=i)),
    "a property that comes to hide an attribute": (
        lambda x: x * OUT.empty.k, lambda i: i == 2 and setattr(Empty, "k", property(lambda self: 9.0))),
    "a name between underscores of a class": (lambda x: x * OUT.empty.__scale__, lambda i: setattr(Empty, "__scale__", i)),
    "a name between underscores of a module": (lambda x: x * OUT.module.__scale__, lambda i: setattr(OUT.module, "__scale__", i)),
    "a name between underscores of a slot": (lambda x: x * OUT.under.__scale__, lambda i: setattr(OUT.under, "__scale__", i)),
    "the name of a module": (lambda x: x * len(OUT.module.__name__), lambda i: setattr(OUT.module, "__name__", "n" * i)),
    "a jitted static method": (lambda x: Hiding.fixed(x), lambda i: setattr(Hiding, "rate", i)),
    "a jitted class method": (lambda x: Lower.of_class(x) + Hiding.of_class(x), lambda i: setattr([Hiding, Lower][i % 2], "rate", i)),
    "a jitted method of an object": (lambda x: OUT.hiding.jitted(x), lambda i: OUT.hiding.__dict__.update(k=i)),
}
SCALED, PLUS = Base.scaled, lambda self, x: x + 5
PAIR = (lambda a, b: a).__code__
SEEN |= {  # what is kept, and what libraries in Python do with it
    "a method that is kept": (lambda x: OUT.kept(x), lambda i: setattr(OUT.o, "k", i)),
    "the method of another object": (lambda x: OUT.kept(x), lambda i: setattr(OUT, "kept", of(i).scaled)),
    "a method in a list": (lambda x: OUT.methods[0](x), lambda i: OUT.methods.__setitem__(0, of(i).scaled)),
    "what a partial holds": (lambda x: OUT.step(x), lambda i: setattr(OUT.o, "k", i)),
    "an object in a deque": (lambda x: sum(o.k for o in OUT.queue) * x, lambda i: OUT.queue.append(of(i))),
    "__getattr__ that is written in C": (lambda x: x * OUT.own.a + OUT.own.v, lambda i: OUT.own.update(a=i, v=np.full(4, i))),
    "an object in a dict of one's own": (lambda x: x * OUT.settings["o"].k, lambda i: setattr(OUT.o, "k", i)),
    "dataclasses.replace": (lambda x: x * dataclasses.replace(OUT.point, n=3.0).w, lambda i: setattr(OUT.point, "w", np.full(4, i))),
    "dataclasses.astuple": (lambda x: x * dataclasses.astuple(OUT.point)[1], lambda i: setattr(OUT.point, "n", i)),
    "a buffer that a dataclass makes": (lambda x: Point(x).filled() + OUT.o.k, lambda i: setattr(OUT.o, "k", i)),
    "a deep copy": (lambda x: x * copy.deepcopy(OUT.sequence).o.v, lambda i: setattr(OUT.o, "v", np.full(4, i))),
    "a copy": (lambda x: x * copy.copy(OUT.o).v, lambda i: setattr(OUT.o, "v", np.full(4, i))),
    "list() of an object": (lambda x: x * sum(list(OUT.sequence)), lambda i: setattr(OUT.o, "k", i)),
    "map() of an object": (lambda x: sum(map(OUT.sequence, [x])), lambda i: setattr(OUT.o, "k", i)),
    "an array of objects": (lambda x: x * OUT.objects[0], lambda i: OUT.objects.__setitem__(0, float(i))),
    "an object in an array": (lambda x: x * OUT.objects[1].k, lambda i: OUT.objects.__setitem__(1, of(i))),
    "math.sqrt": (lambda x: x * math.sqrt(OUT.o.k), lambda i: setattr(OUT.o, "k", i)),
}


def of(k):
    made = Base()
    made.k = k
    return made


class Own(dict):
    __getattr__ = dict.__getitem__


@dataclasses.dataclass
class Point:
    w: np.ndarray
    n: float = 1.0
    buffer: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(4))

    def __post_init__(self):
        self.sum = np.zeros(4)
        self.sum += self.n

    def filled(self):
        self.buffer[:] = self.w
        return self.buffer + self.sum


class Sequence:
    def __init__(self, o):
        self.o = o

    def __iter__(self):
        yield self.o.k

    def __call__(self, x):
        return x * self.o.k
xp = np


def annotated(x) -> 2:
    return x


class Empty:
    pass


class Under:
    __slots__ = ("__scale__",)


class Highest:
    def above(self):
        return 1.0


class Middle(Highest):
    pass


class Lowest(Middle):
    def above(self):
        return super().above() * 2


class Hiding:
    k = property(lambda self: vars(self)["k"] * 2)

    rate = 1.0

    @ms.jit
    def jitted(self, x):
        return x * self.k

    @staticmethod
    @ms.jit
    def fixed(x):
        return x * Hiding.rate

    @classmethod
    @ms.jit
    def of_class(cls, x):
        return x * cls.rate


class Lower(Hiding):
    pass


class Meta(type):
    level = 1.0

    def of_class(cls):
        return 1.0


class Made(metaclass=Meta):
    pass


class Slotted:
    __slots__ = ("k",)


def guessed(x):
    try:
        return x * appears
    except NameError:
        return x


class Asked:
    def __getattr__(self, name):
        return 5.0


def imported(x):
    import hunted_module
    return x * hunted_module.k


def made_after_a_check(k, name="scaled"):
    if not (k > 0 or k == -1.0) or (name.islower() and name[0] in "xyz"):
        raise ValueError(name)

    def scaled(x):
        if x.ndim > 2 or any(n > 9 for n in x.shape):
            raise ValueError("large")
        return sum(x * each for each in [k, k])

    def shifted(x, by=1.0):
        return x + k * by
    return scaled, shifted


def test_a_function_that_is_defined_after_a_check_is_itself():
    """The parts of the conditions are functions of the rewritten text, and are not counted."""
    scaled, shifted = made_after_a_check(3.0)
    for jitted, function in ((ms.jit(scaled), scaled), (ms.jit(shifted), shifted), (ms.jit(lambda x: shifted(x, by=2.0)), lambda x: x + 6)):
        assert jitted(X).tolist() == function(X).tolist()
    pair = collections.namedtuple("pair", "a b")(2.0, X)
    assert ms.jit(lambda x: x * pair._replace(a=3.0).a + pair._asdict()["b"])(X).tolist() == (X * 4).tolist()


def test_a_users_error_at_a_later_call_is_the_users_own():
    new_world()
    f = ms.jit(failing, target="reference")
    f(X)
    OUT.factor = -1.0
    with pytest.raises(AssertionError, match="negative") as caught:
        f(X)
    assert caught.value.__context__ is None
    OUT.factor = 2.0
    assert f(X).tolist() == (X * 2).tolist()


def failing(x):
    if OUT.factor < 0:
        raise AssertionError("negative")
    return x * OUT.factor


def matched(x):
    match OUT.o:
        case Base(k=2.0):
            return x
    return x * 3
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


def closing(number):
    return lambda: number


def new_world():
    for kind, names in ((Empty, ("__bool__", "__eq__", "k")), (Middle, ("above",))):
        [delattr(kind, name) for name in names if name in vars(kind)]
    annotated.__annotations__["return"], Base.__annotations__["k"] = 1.0, 1.0
    globals().pop("appears", None)
    if "extra" in vars(Base):
        del Base.extra
    One.__match_args__ = ("first",)
    for name in ("rate", "plus", "field"):
        setattr(Parent, name, FORMER[name])
        vars(Heir).get(name) and delattr(Heir, name)
    Meta.level, helper.k, helper.__doc__, Meta.of_class = 1.0, 1.0, None, lambda cls: 1.0
    Base.held, Base.part = lambda self, k: k, functools.partialmethod(lambda self, k: k, 1.0)
    Base.scaled, helper.__code__, defaulted.__defaults__, defaulted.__kwdefaults__ = SCALED, CODE, (1.0,), {"b": 2.0}
    if "scaled" in vars(Derived):
        del Derived.scaled
    sys.modules["hunted_module"] = types.ModuleType("hunted_module")
    sys.modules["hunted_module"].k = 1.0
    numbers, listed, w, partial, empty, hiding, o = {"a": 1.0}, [1.0, 2.0], np.ones(4), functools.partial(len), Empty(), Hiding(), Base()
    partial.k = empty.k = vars(hiding)["k"] = Empty.__scale__ = 1.0
    o.v = np.ones(4)
    OUT.__dict__.update(
        under=Under(), closed=closing(1.0), slices=(slice([1.0]), slice(o)), partial=partial, empty=empty, lowest=Lowest(), hiding=hiding,
        o=o, d=Derived(), one=o, mode=Mode.SLOW, looked=Looked(), numbers=numbers, proxy=types.MappingProxyType(numbers),
        settings=Settings(a=1.0, o=o), asked=Asked(), weak=weakref.ref(o), slotted=Slotted(), factor=1.0,
        kinds=[type("Kind", (kind,), {"__module__": __name__, "k": 1.0, "__missing__": lambda self, key: self.k})(*given)
               for kind, given in ((list, ()), (float, (2.0,)), (ValueError, (2.0,)), (dict, ()))],
        many=[1.0] * 40, ordered={i: 1.0 for i in range(40)}, listed=listed, take=listed.__getitem__, ask=numbers.get, w=w, total=w.sum, objects=np.array([2.0, o], object),
        v=np.ones((1, 3)), like=Like(np.ones(4)), rows=np.ones(4), places=[w, np.zeros(4)], named="rate", first=One(),
        module=types.ModuleType("hunted"), kept=o.scaled, methods=[o.scaled], step=functools.partial(Base.scaled, o),
        queue=collections.deque([o]), own=Own(a=1.0, v=np.ones(4)), point=Point(np.ones(4)), sequence=Sequence(o))


@pytest.mark.parametrize("name", SEEN)
def test_a_change_between_two_calls_is_seen(name):
    function, change = SEEN[name]
    new_world()
    jitted = ms.jit(function, target="reference")
    for i in range(4):
        change(i)
        np.testing.assert_array_equal(jitted(X), function(X), strict=True)


class Tee:
    """What a notebook or a logger puts in the place of ``sys.stdout``."""

    def __init__(self):
        self.lines = []

    def write(self, text):
        self.lines.append((time.time(), self.spaced(text)))

    def spaced(self, text):
        return text.replace(" ", "_")

    def flush(self):
        pass


def test_the_program_may_print_to_a_stream_of_the_users_class(monkeypatch):
    def program(x):
        print("traced", x.shape)
        sys.stdout.write("again")
        sys.stderr.write("")
        return helper(x)

    monkeypatch.setattr(sys, "stdout", Tee())
    jitted = ms.jit(program, target="reference")
    results = [jitted(X).tolist(), jitted(X).tolist()]
    assert [text for _, text in sys.stdout.lines] == ["traced", "_", "(4,)", "\n", "again"], "printed once, while it is traced"
    assert results == [(X + 1).tolist()] * 2
    monkeypatch.setitem(globals(), "helper", other)
    assert jitted(X).tolist() == (X + 7).tolist(), "what runs after it is watched"


def test_what_the_program_has_read_may_die_after_the_call():
    new_world()
    there = weakref.ref(OUT.o)
    jitted = ms.jit(lambda x: x * (2.0 if there() is None else there().k * there().v), target="reference")
    OUT.o.v = np.ones(4)
    gc.disable()
    try:
        jitted(X)
        OUT.__dict__.clear()
        assert there() is None
    finally:
        gc.enable()
    assert jitted(X).tolist() == (X * 2).tolist()


def test_what_a_jitted_method_reads_is_read_again_where_it_is_called_in_a_trace():
    class Model:
        def __init__(self):
            self.w = np.ones(2)

        def loss(self, x):
            return np.sum(self.w * x)
    model = Model()
    inner = ms.jit(model.loss)
    outer = ms.jit(lambda x: inner(x))
    assert outer(np.ones(2)) == 2
    model.w = np.full(2, 5.0)
    assert outer(np.ones(2)) == 10
