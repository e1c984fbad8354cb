"""Arguments that are equal may differ, and what changes in an argument or in a layout is another program or refused."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import fractions
import itertools
import math
import types
from pathlib import Path

import numpy as np
import pytest

import minisitch as ms

HERE = Path(__file__).name
X = np.arange(1.0, 5.0)


def test_a_function_is_an_argument():
    jitted = ms.jit(lambda x, g: g(x), target="reference")
    assert jitted(X, lambda x: x * 2).tolist() == (X * 2).tolist()
    assert jitted(X, lambda x: x * 3).tolist() == (X * 3).tolist()


class Alike:
    """All are equal, whatever they hold."""

    def __init__(self, k):
        self.k = k

    def __hash__(self):
        return 1

    def __eq__(self, other):
        return isinstance(other, Alike)


class Text(str):
    pass


class Marked(int):
    def __new__(cls, number, mark):
        made = super().__new__(cls, number)
        made.mark = mark
        return made


@dataclasses.dataclass(frozen=True)
class Option:
    k: float = 1.0
    hidden: tuple = dataclasses.field(default=(1.0,), compare=False)


# arguments that are equal, and what a program reads of them
EQUAL = {
    "decimals": ([decimal.Decimal("1.0"), decimal.Decimal("1.00")], lambda x, k: x * len(str(k))),
    "numbers of other classes": ([fractions.Fraction(1), decimal.Decimal(1), 1, True, 1.0], lambda x, k: x * len(type(k).__name__)),
    "texts of other classes": (["a", Text("a")], lambda x, k: x * (2 if type(k) is str else 3)),
    "signs of zeros": ([0.0 + 1j, complex(-0.0, 1)], lambda x, k: x * math.copysign(1.0, k.real)),
    "ranges": ([range(0, 3, 2), range(0, 4, 2)], lambda x, k: x * k.stop),
    "frozen sets": ([frozenset([1]), frozenset([True])], lambda x, k: x * len(str(*k))),
    "objects": ([Alike(1.0), Alike(2.0)], lambda x, k: x * k.k),
    "attributes of numbers": ([Marked(1, 2.0), Marked(1, 3.0)], lambda x, k: x * k.mark),
    "objects in a tuple": ([(Alike(1.0),), (Alike(2.0),)], lambda x, k: x * k[0].k),
    "fields that do not count": ([Option(), Option(hidden=(2.0,))], lambda x, k: x * k.hidden[0]),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_arguments_may_differ(name):
    given, function = EQUAL[name]
    jitted = ms.jit(function, target="reference")
    for each in given * 2:
        assert jitted(X, each).tolist() == function(X, each).tolist()


class Counting:
    """Its attribute is another at each look, though no program writes it."""

    def __init__(self):
        self.k, self.looks = 1.0, itertools.count(2)

    def __getattribute__(self, name):
        return float(next(object.__getattribute__(self, "looks"))) if name == "k" else object.__getattribute__(self, name)


def test_what_is_another_at_each_look_is_refused_with_a_line():
    counting = Counting()
    with pytest.raises(ms.TraceError, match=f"{HERE}:\\d+: .*traced twice, and gave two different programs.*Draw or ask outside"):
        ms.jit(lambda x: x * counting.k, target="reference")(X)


def test_equal_options_made_anew_are_one_program():
    jitted = ms.jit(lambda x, k: x * k.k, target="reference")
    for _ in range(3):
        assert jitted(X, Option(2.0)).tolist() == (X * 2).tolist()
    assert len(jitted._ready) == 1


@pytest.mark.parametrize("given, change", [({1.0}, lambda k: k.add(2.0)), (collections.deque([1.0]), lambda k: k.append(3.0))], ids=["set", "deque"])
def test_an_argument_that_changes_is_read_anew(given, change):
    jitted = ms.jit(lambda x, k: x * sum(k), target="reference")
    for _ in range(3):
        assert jitted(X, given).tolist() == (X * sum(given)).tolist()
        change(given)


@pytest.mark.parametrize("ask", [lambda x, w: w.ravel(order="K")[:4] * x, lambda x, w: x * (2 if w.flags.c_contiguous else 3)])
def test_another_layout_of_an_array_outside_is_refused_at_its_line(ask):
    held = types.SimpleNamespace(w=np.arange(16.0).reshape(4, 4))
    jitted = ms.jit(lambda x: ask(x, held.w), target="reference")
    assert jitted(X).tolist() == ask(X, held.w).tolist()
    held.w = np.asfortranarray(held.w)
    with pytest.raises(ms.TraceError, match=f"{HERE}:\\d+: .*memory"):
        jitted(X)
