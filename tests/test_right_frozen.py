"""What changes between two calls is seen at the second, and what cannot be seen is refused at its line."""

from __future__ import annotations

import abc
import argparse
import array
import builtins
import collections
import contextlib
import ctypes
import dataclasses
import decimal
import enum
import functools
import gc
import inspect
import math
import operator
import os
import reprlib
import string
import sys
import threading
import time
import types
import typing
import warnings
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
SEEN |= {  # what a call reads through something that is no object, list or dict of the user's
    "a weak reference": (lambda x: x * OUT.weak().k, lambda i: setattr(OUT.o, "k", i)),
    "the array of an object that is weakly held": (lambda x: x * OUT.weak().v, lambda i: setattr(OUT.o, "v", np.full(4, i))),
    "a dict of weak references": (lambda x: x * OUT.weakly["o"].k, lambda i: setattr(OUT.o, "k", i)),
    "a set of weak references": (lambda x: x * sum(o.k for o in OUT.weak_set), lambda i: setattr(OUT.o, "k", i)),
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
    "a global that hides a builtin": (lambda x: x * len([1, 2]), lambda i: i == 2 and globals().__setitem__("len", lambda each: 9)),
    "a builtin of one's own": (lambda x: x * my_builtin,  # noqa: F821
        lambda i: setattr(builtins, "my_builtin", i)),
    "an attribute of a list": (lambda x: x * OUT.kinds[0].k, lambda i: setattr(OUT.kinds[0], "k", i)),
    "an attribute of a float": (lambda x: x * OUT.kinds[1].k + OUT.kinds[1], lambda i: setattr(OUT.kinds[1], "k", i)),
    "an attribute of an error": (lambda x: x * OUT.kinds[2].k * OUT.kinds[2].args[0], lambda i: setattr(OUT.kinds[2], "k", i)),
    "the dict of a default": (lambda x: x * OUT.kinds[3]["q"], lambda i: setattr(OUT.kinds[3], "k", i)),
    "the sign of a zero among many": (lambda x: x / OUT.many[3], lambda i: OUT.many.__setitem__(3, [0.0, -0.0][i % 2])),
    "the type of a number among many": (lambda x: x.astype(int) * OUT.many[5], lambda i: OUT.many.__setitem__(5, [1, 1.0, True][i % 3])),
    "the order of many": (lambda x: x * next(iter(OUT.ordered)), lambda i: OUT.ordered.update({i: OUT.ordered.pop(i)})),
    "a view of a dict": (lambda x: x * sum(OUT.values), lambda i: OUT.numbers.update(a=i)),
    "a number of C": (lambda x: x * OUT.c_double.value, lambda i: setattr(OUT.c_double, "value", i)),
    "numbers of C": (lambda x: x * OUT.c_array[1], lambda i: OUT.c_array.__setitem__(1, i)),
    "a record": (lambda x: x * OUT.record["a"], lambda i: OUT.record.__setitem__("a", i)),
    "a library's list": (lambda x: x * len(sys.argv), lambda i: sys.argv.__setitem__(slice(None), ["a"] * i)),
    "a function in a vectorized one": (lambda x: x * OUT.vectorized(1.0), lambda i: setattr(OUT, "factor", i)),
    "a partial method": (lambda x: x * OUT.o.part(), lambda i: setattr(Base, "part", functools.partialmethod(Base.held, i))),
    "a function by the type of its argument": (lambda x: x * by_type(3), lambda i: by_type.register(int, lambda k: i)),
    "a cache that is asked again": (lambda x: x * cached(), lambda i: (setattr(OUT, "factor", i), i % 2 and cached.cache_clear())),
    "an array in a cache": (lambda x: x * cached_array(4), lambda i: (setattr(OUT, "factor", i), i % 2 and cached_array.cache_clear())),
    "an object of a library": (lambda x: x * (2 if OUT.event.is_set() else 3), lambda i: OUT.event.set() if i % 2 else OUT.event.clear()),
    "a name in a format": (lambda x: x * float(OUT.text.format(OUT.o)), lambda i: setattr(OUT.o, "k", i)),
    "which of two objects it is": (lambda x: x * (2 if OUT.one is OUT.o else 3), lambda i: setattr(OUT, "one", [OUT.o, OUT.d][i % 2])),
    "an attribute where __getattr__ answered": (lambda x: x * OUT.asked.k, lambda i: i == 2 and setattr(OUT.asked, "k", 1.0)),
    "a module that the program imports": (lambda x: imported(x), lambda i: setattr(sys.modules["hunted_module"], "k", i)),
    "an attribute in a match": (lambda x: matched(x), lambda i: setattr(OUT.o, "k", i)),
}
SEEN |= {  # settings, and what a library has: each is back in place after the last call
    "how arrays are printed": (
        lambda x: x * len(str(np.linspace(0, 1, 4))), lambda i: np.set_printoptions(precision=[3, 8][i % 2])),
    "how exactly decimals are divided": (lambda x: x * float(THIRD[0] / THIRD[1]), lambda i: setattr(decimal.getcontext(), "prec", [3, 28][i % 2])),
    "how exactly new decimals are divided": (
        lambda x: x * float(1 / decimal.Decimal(3)), lambda i: setattr(decimal.getcontext(), "prec", [3, 28][i % 2])),
    "a function of NumPy": (lambda x: np.tanh(x), lambda i: setattr(np, "tanh", [np.exp, TANH][i % 2])),
    "a function of NumPy, by one's own": (lambda x: np.tanh(x), lambda i: setattr(np, "tanh", [lambda x: x * OUT.w * i, TANH][i % 2])),
    "a function of np.linalg": (
        lambda x: x * np.linalg.norm(np.ones(3)), lambda i: setattr(np.linalg, "norm", [lambda x: 5.0, NORM][i % 2])),
    "a number of NumPy": (lambda x: x * np.pi, lambda i: setattr(np, "pi", [3.0, PI][i % 2])),
    "a function of math": (lambda x: x * math.sin(1.0), lambda i: setattr(math, "sin", [math.cos, SINE][i % 2])),
    "a function of math, imported inside": (lambda x: by_math(x), lambda i: setattr(math, "sin", [math.cos, SINE][i % 2])),
    "a builtin function": (lambda x: x * abs(-2.0), lambda i: setattr(builtins, "abs", [lambda k: 9.0, ABS][i % 2])),
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
SEEN |= {  # what a class has from its bases, and what an array of objects holds
    "an attribute of a class's base": (lambda x: x * Heir.rate, lambda i: setattr(Parent, "rate", i)),
    "an attribute between a class and its base": (lambda x: x * Heir.rate, lambda i: setattr([Parent, Heir][i > 1], "rate", i)),
    "an array of a class's base": (lambda x: x * Heir.table, lambda i: Parent.table.fill(i)),
    "an attribute of any name of a class's base": (lambda x: x * getattr(Heir(), OUT.named), lambda i: setattr(Parent, "rate", i)),
    "a static method of a class's base": (lambda x: Heir.plus(x), lambda i: setattr(Parent, "plus", staticmethod(lambda x: x + i))),
    "a static method of both classes": (
        lambda x: Parent.plus(x) * Heir.plus(x), lambda i: setattr([Parent, Heir][i > 1], "plus", staticmethod(lambda x: x + i))),
    "a class method of a class's base": (
        lambda x: Heir.times(x), lambda i: setattr(Parent, "times", classmethod(lambda cls, x: x * cls.rate * i))),
    "the bases of a class": (lambda x: x * Heir.rate, lambda i: setattr(Heir, "__bases__", [(Parent,), (Other,)][i % 2])),
    "a class that is registered": (lambda x: x * (2 if isinstance(OUT.o, OUT.kind) else 3), lambda i: OUT.kind.register([int, Base][i % 2])),
    "a descriptor that another hides": (lambda x: x * Heir().field, lambda i: setattr([Parent, Heir][i > 1], "field", Field(i))),
    "an attribute in a class pattern": (lambda x: in_a_pattern(x), lambda i: setattr(OUT.first, "first", i)),
    "the names of a class pattern": (
        lambda x: in_a_pattern(x), lambda i: setattr(One, "__match_args__", [("first",), ("second",)][i % 2])),
    "a new name in a module": (
        lambda x: x * (2 if hasattr(OUT.module, "extra") else 3), lambda i: i % 2 and setattr(OUT.module, "extra", i)),
    "the values of a dict, and its keys": (lambda x: x * sum(OUT.values) + len(OUT.keys), lambda i: OUT.numbers.update({str(i): i})),
    "an annotation": (lambda x: x * len(in_a_pattern.__annotations__["return"]), lambda i: None),
    "a list in an array of objects": (lambda x: x * OUT.objects[1][0], lambda i: OUT.objects[1].__setitem__(0, i)),
    "a list in a field of an array": (lambda x: x * OUT.fields["a"][0][0], lambda i: OUT.fields["a"][0].__setitem__(0, i)),
    "a list in a record": (lambda x: x * OUT.field["a"][0], lambda i: OUT.field["a"].__setitem__(0, i)),
    "another list in a record": (lambda x: x * OUT.field["a"][0], lambda i: OUT.field.__setitem__("a", [i])),
    "an attribute behind an array of objects": (lambda x: x * OUT.objects[0].k, lambda i: setattr(OUT.o, "k", i)),
}
SEEN |= {  # what a function tells without a call of it, and what an object of a library holds
    "an entry of the annotations": (
        lambda x: x * annotated.__annotations__["return"], lambda i: annotated.__annotations__.update({"return": i})),
    "the annotations, asked for by a library": (lambda x: x * typing.get_args(typing.get_type_hints(annotated)["return"])[0],
                                                lambda i: annotated.__annotations__.update({"return": typing.Literal[i]})),
    "the annotations of a class": (lambda x: x * Base.__annotations__["k"], lambda i: Base.__annotations__.update(k=i)),
    "a default of a function that is not called": (
        lambda x: x * inspect.signature(defaulted).parameters["a"].default, lambda i: setattr(defaulted, "__defaults__", (i,))),
    "a named default of a function that is not called": (
        lambda x: x * defaulted.__kwdefaults__["b"], lambda i: setattr(defaulted, "__kwdefaults__", {"b": i})),
    "the code of a function that is not called": (
        lambda x: x * helper.__code__.co_argcount, lambda i: setattr(helper, "__code__", (CODE, PAIR)[i % 2])),
    "the closure of a function that is not called": (
        lambda x: x * OUT.closed.__closure__[0].cell_contents, lambda i: setattr(OUT.closed.__closure__[0], "cell_contents", i)),
    "the default of a dataclass's field": (
        lambda x: x * dataclasses.fields(Kept)[0].default, lambda i: setattr(Kept.__dataclass_fields__["k"], "default", i)),
    "a list in a slice": (lambda x: x * OUT.slices[0].stop[0], lambda i: OUT.slices[0].stop.__setitem__(0, i)),
    "an object in a slice": (lambda x: x * OUT.slices[1].stop.k, lambda i: setattr(OUT.o, "k", i)),
    "an attribute of a partial": (lambda x: x * OUT.partial.k, lambda i: setattr(OUT.partial, "k", i)),
    "an object of a library in another": (lambda x: x * OUT.outer.inner.k, lambda i: setattr(OUT.outer.inner, "k", i)),
    "an array of an object in one of a library": (lambda x: x * OUT.outer.mine.v, lambda i: setattr(OUT.o, "v", np.full(4, i))),
    "a cache of an object of a library": (lambda x: x * OUT.outer.cache["k"], lambda i: OUT.outer.cache.update(k=i)),
    "an attribute of a library's class": (
        lambda x: x * len(string.Template.delimiter), lambda i: setattr(string.Template, "delimiter", "$" * (4 - i))),
    "an attribute of the class of a library's object": (
        lambda x: x * len(OUT.template.delimiter), lambda i: setattr(string.Template, "delimiter", "$" * (4 - i))),
    "a method of a library's class": (lambda x: x * len(string.Template("ab").safe_substitute()),
                                      lambda i: setattr(string.Template, "safe_substitute", [lambda self: "", SUBSTITUTE][i % 2])),
    "an object in a library's module": (lambda x: x * reprlib.aRepr.maxlist, lambda i: setattr(reprlib.aRepr, "maxlist", 9 - i)),
    "a module in a library's module": (lambda x: x * os.path.sep.count(os.path.altsep or "/"), lambda i: setattr(os.path, "altsep", ["?", None][i % 2])),
    "a special method that a class gets": (lambda x: x * (2 if OUT.empty else 3), lambda i: setattr(Empty, "__bool__", lambda self: i % 2 == 0)),
    "a way to compare that a class gets": (lambda x: x * (2 if OUT.empty == 5 else 3), lambda i: setattr(Empty, "__eq__", lambda self, other: i % 2)),
    "a method that a class in between gets": (
        lambda x: x * OUT.lowest.above(), lambda i: i == 2 and setattr(Middle, "above", lambda self: 7.0)),
    "a property that hides an attribute": (lambda x: x * OUT.hiding.k, lambda i: OUT.hiding.__dict__.update(k=i)),
    "a property that comes to hide an attribute": (
        lambda x: x * OUT.empty.k, lambda i: i == 2 and setattr(Empty, "k", property(lambda self: 9.0))),
    "whether a warning is an error": (lambda x: x * warned(), lambda i: warnings.simplefilter(["error", "ignore"][i % 2])),
    "how a number is printed": (
        lambda x: x * len(str(OUT.third)), lambda i: np.set_printoptions(legacy=["1.13", False][i % 2])),
    "a name between underscores of a class": (lambda x: x * OUT.empty.__scale__, lambda i: setattr(Empty, "__scale__", i)),
    "a name between underscores of a module": (lambda x: x * OUT.module.__scale__, lambda i: setattr(OUT.module, "__scale__", i)),
    "a name between underscores of a slot": (lambda x: x * OUT.under.__scale__, lambda i: setattr(OUT.under, "__scale__", i)),
    "the name of a module": (lambda x: x * len(OUT.module.__name__), lambda i: setattr(OUT.module, "__name__", "n" * i)),
    "a note on an error": (lambda x: x * len(getattr(OUT.fault, "__notes__", ())), lambda i: OUT.fault.add_note("heard")),
    "whether a library's objects are equal": (lambda x: x * (2 if OUT.outer.inner == SAME else 3), lambda i: setattr(SAME, "k", [1.0, 2.0][i % 2])),
    "whether a library's object has a name": (
        lambda x: x * (2 if "k" in OUT.outer else 3), lambda i: setattr(OUT.outer, "k", 1) if i == 2 else None),
    "any name of a library's object": (lambda x: x * getattr(OUT.outer.inner, OUT.letter), lambda i: setattr(OUT.outer.inner, "k", i)),
    "a jitted static method": (lambda x: Hiding.fixed(x), lambda i: setattr(Hiding, "rate", i)),
    "a jitted class method": (lambda x: Lower.of_class(x) + Hiding.of_class(x), lambda i: setattr([Hiding, Lower][i % 2], "rate", i)),
    "a jitted method of an object": (lambda x: OUT.hiding.jitted(x), lambda i: OUT.hiding.__dict__.update(k=i)),
}
SAME = argparse.Namespace(k=1.0)
SCALED, PLUS = Base.scaled, lambda self, x: x + 5
SUBSTITUTE, PAIR = string.Template.safe_substitute, (lambda a, b: a).__code__
TANH, NORM, PI, SINE, ABS, THIRD = np.tanh, np.linalg.norm, np.pi, math.sin, abs, (decimal.Decimal(1), decimal.Decimal(3))
xp = np


def annotated(x) -> 2:
    return x


def warned():
    try:
        warnings.warn("heard", stacklevel=1)
    except UserWarning:
        return 2
    return 3


@dataclasses.dataclass
class Kept:
    k: float = 1.0


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


def by_math(x):
    import math
    return x * math.sin(1.0)


class Meta(type):
    level = 1.0

    def of_class(cls):
        return 1.0


class Made(metaclass=Meta):
    pass


class Slotted:
    __slots__ = ("k",)


@functools.singledispatch
def by_type(k):
    return 1.0


@functools.lru_cache
def cached():
    return OUT.factor


@functools.lru_cache
def cached_array(n):
    return np.full(n, OUT.factor)


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
    annotated.__annotations__["return"], Base.__annotations__["k"], Kept.__dataclass_fields__["k"].default = 1.0, 1.0, 1.0
    for name in ("appears", "len"):
        globals().pop(name, None)
    if "extra" in vars(Base):
        del Base.extra
    One.__match_args__ = ("first",)
    for name in ("rate", "plus", "field"):
        setattr(Parent, name, FORMER[name])
        vars(Heir).get(name) and delattr(Heir, name)
    builtins.my_builtin, Meta.level, helper.k, helper.__doc__, Meta.of_class = 1.0, 1.0, 1.0, None, lambda cls: 1.0
    Base.held, Base.part = lambda self, k: k, functools.partialmethod(lambda self, k: k, 1.0)
    cached.cache_clear(), cached_array.cache_clear(), by_type.register(int, lambda k: 1.0)
    Base.scaled, helper.__code__, defaulted.__defaults__, defaulted.__kwdefaults__ = SCALED, CODE, (1.0,), {"b": 2.0}
    if "scaled" in vars(Derived):
        del Derived.scaled
    sys.modules["hunted_module"] = types.ModuleType("hunted_module")
    sys.modules["hunted_module"].k = 1.0
    numbers, listed, plain, w = {"a": 1.0}, [1.0, 2.0], array.array("d", [1.0, 2.0]), np.ones(4)
    o = Base()
    inner, partial, empty, hiding = argparse.Namespace(k=1.0), functools.partial(len), Empty(), Hiding()
    partial.k = empty.k = vars(hiding)["k"] = Empty.__scale__ = 1.0
    o.v = np.ones(4)
    OUT.__dict__.update(
        under=Under(), letter="k", fault=ValueError("first"), closed=closing(1.0), slices=(slice([1.0]), slice(o)), partial=partial, template=string.Template(""), empty=empty, third=np.float64(1 / 3),
        outer=argparse.Namespace(inner=inner, mine=o, cache={"k": 1.0}), lowest=Lowest(), hiding=hiding,
        o=o, d=Derived(), mode=Mode.SLOW, held=type("Held", (), {"__module__": __name__, "field": Field(2.0)})(), looked=Looked(),
        get=operator.attrgetter("k"), numbers=numbers, chained=collections.ChainMap({}, numbers), proxy=types.MappingProxyType(numbers),
        settings=Settings(a=1.0), plain=plain, buffer=bytearray(b"\1\2"), view=memoryview(plain),
        one=o, asked=Asked(), weak=weakref.ref(o), text="{0.k}", weakly=weakref.WeakValueDictionary(o=o), weak_set=weakref.WeakSet([o]), slotted=Slotted(), factor=1.0,
        kinds=[type("Kind", (kind,), {"__module__": __name__, "k": 1.0, "__missing__": lambda self, key: self.k})(*given)
               for kind, given in ((list, ()), (float, (2.0,)), (ValueError, (2.0,)), (dict, ()))],
        many=[1.0] * 40, ordered={i: 1.0 for i in range(40)}, values=numbers.values(), c_double=ctypes.c_double(1.0), event=threading.Event(),
        c_array=(ctypes.c_double * 2)(1, 2), record=np.zeros(2, [("a", "f8")])[0], vectorized=np.vectorize(lambda k: k * OUT.factor),
        namespace=argparse.Namespace(rate=1.0), listed=listed, take=listed.__getitem__, ask=numbers.get, w=w, total=w.sum, few={o},
        keyed={o: 1}, v=np.ones((1, 3)), like=Like(np.ones(4)), rows=np.ones(4), places=[w, np.zeros(4)], named="rate",
        first=One(), keys=numbers.keys(), module=types.ModuleType("hunted"),
        kind=abc.ABCMeta("Kind", (), {}), objects=np.array([o, [1.0]], object),
        fields=np.array([([1.0],)], [("a", object)]), field=np.array([([1.0],)], [("a", object)])[0])


@pytest.mark.parametrize("name", SEEN)
def test_a_change_between_two_calls_is_seen(name):
    function, change = SEEN[name]
    new_world()
    jitted = ms.jit(function, target="reference")
    with np.printoptions():  # some of these change them, for the tests that follow, too
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
