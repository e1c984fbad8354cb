"""Items of A9. None of them holds a counterexample: each says what must be true of yours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minisitch.course import item

RETURNS = {"refute": list[float], "divide": list[float]}
KINDS = {"float32": np.float32, "float16": np.float16}

Sides = Callable[..., tuple[Any, Any]]
# Each law, and both of its sides. ``k`` makes a number of the term's type.
LAWS: dict[str, Sides] = {
    "x + 0 == x": lambda k, x: (x + k(0), x),
    "x - 0 == x": lambda k, x: (x - k(0), x),
    "x - x == 0": lambda k, x: (x - x, k(0)),
    "x * 2 == x + x": lambda k, x: (x * k(2), x + x),
    "-(x - y) == y - x": lambda k, x, y: (-(x - y), y - x),
    "log(exp(x)) == x": lambda k, x: (np.log(np.exp(x)), x),
    "x * 0 == 0": lambda k, x: (x * k(0), k(0)),
    "x / 4 == x * 0.25": lambda k, x: (x / k(4), x * k(0.25)),
    "(x + y) + z == x + (y + z)": lambda k, x, y, z: ((x + y) + z, x + (y + z)),
    "x + y == y + x": lambda k, x, y: (x + y, y + x),
    "(x if x > y else y) == (y if y > x else x)": lambda k, x, y: (
        x if x > y else y,
        y if y > x else x,
    ),
    "1 / sqrt(x) == sqrt(1 / x)": lambda k, x: (k(1) / np.sqrt(x), np.sqrt(k(1) / x)),
}


@dataclass(frozen=True)
class Law:
    """A law of the handout, in numbers of one type. ``holds`` for all of them, or not."""

    law: str
    variant: str
    holds: bool = False

    def __str__(self) -> str:
        return f"law = {self.law!r}"

    @property
    def letters(self) -> list[str]:
        return [letter for letter in "xyz" if letter in self.law.replace("exp", "")]

    def sides(self, numbers: list[float]) -> tuple[Any, Any]:
        kind = KINDS[self.variant]
        with np.errstate(all="ignore"):
            return LAWS[self.law](kind, *map(kind, numbers))


@dataclass(frozen=True)
class Divisor:
    """The law x / c == x * (1 / c) for one c."""

    c: float
    variant: str

    def __str__(self) -> str:
        return f"c = {self.c!r}"

    def sides(self, numbers: list[float]) -> tuple[Any, Any]:
        kind = KINDS[self.variant]
        x, c = kind(numbers[0]), kind(self.c)
        with np.errstate(all="ignore"):
            return x / c, x * (kind(1) / c)


def same(left: Any, right: Any) -> bool:
    """Whether two numbers have the same bits. Every NaN is the same here."""
    return left.tobytes() == right.tobytes() or bool(np.isnan(left) and np.isnan(right))


def is_exact(number: float, variant: str) -> bool:
    """Whether a float is a number of the term's type."""
    with np.errstate(all="ignore"):
        return same(np.float64(number), np.float64(KINDS[variant](number)))


@dataclass(frozen=True)
class Laws:
    """All laws together."""

    laws: tuple[Law, ...]

    def __str__(self) -> str:
        return "all laws of the handout"


# ---------------------------------------------------------------- the laws
@item(
    "form",
    "There is a number for each letter of a law, or none.",
    draw="draw_law",
    visible=12,
    hidden=0,
    size=13,
)
def form(case, ask):
    found = ask("refute", case.law)
    if len(found) in (0, len(case.letters)):
        return None
    return f"you give {len(found)} numbers, and the letters are {', '.join(case.letters)}"


@item(
    "type",
    "Each number is one of this term's type: its nearest such number is itself.",
    draw="draw_law",
    visible=12,
    hidden=0,
    size=13,
    needs=("form",),
)
def of_type(case, ask):
    for number in ask("refute", case.law):
        if not is_exact(number, case.variant):
            with np.errstate(all="ignore"):
                near = float(KINDS[case.variant](number))
            return f"{number!r} is no {case.variant}; the nearest one is {near!r}"
    return None


@item(
    "false",
    "For the numbers that are given, the two sides of the law have different bits.",
    draw="draw_law",
    visible=12,
    hidden=0,
    size=13,
    weight=2,
    needs=("form",),
)
def is_false(case, ask):
    found = ask("refute", case.law)
    if not found or len(found) != len(case.letters):
        return None
    left, right = case.sides(found)
    return f"both sides are {float(left)!r}" if same(left, right) else None


@item(
    "most",
    "Of every four laws at least three are judged rightly, with numbers that refute those that are refuted.",
    draw="draw_laws",
    visible=1,
    hidden=1,
    builds=True,
)
def most(case, ask):
    right = 0
    for law in case.laws:
        found = ask("refute", law.law)
        fits = len(found) == len(law.letters) and all(is_exact(number, law.variant) for number in found)
        right += not found if law.holds else fits and not same(*law.sides(found))
    return f"{right} of {len(case.laws)} are" if 4 * right < 3 * len(case.laws) else None


@item(
    "verdict",
    "A law is refuted exactly if it is false for some numbers.",
    draw="draw_law",
    visible=6,
    hidden=12,
    size=7,
    hidden_size=13,
    weight=3,
    needs=("form", "type", "false"),
)
def verdict(case, ask):
    found = ask("refute", case.law)
    if case.holds:
        return "you give numbers, and this law is true for all" if found else None
    return None if found else "you say that it is true for all numbers, and it is not"


# ---------------------------------------------------------------- division
@item(
    "division",
    "The number that refutes a division is one of this term's type, and its two sides have different bits.",
    draw="draw_divisor",
    weight=2,
)
def division(case, ask):
    found = ask("divide", case.c)
    if not found:
        return None
    if len(found) > 1:
        return f"you give {len(found)} numbers; the law has one letter"
    if not is_exact(found[0], case.variant):
        return f"{found[0]!r} is no {case.variant}"
    left, right = case.sides(found)
    return f"both sides are {float(left)!r}" if same(left, right) else None


@item(
    "exact",
    "A division that may be replaced is not refuted.",
    draw="draw_power",
)
def exact(case, ask):
    found = ask("divide", case.c)
    if not found:
        return None
    return f"you give {found}; 1 / c is exact here, so both sides round the same number"


@item(
    "found",
    "A division that may not be replaced is refuted.",
    draw="draw_divisor",
    weight=2,
    builds=True,
)
def found_one(case, ask):
    if not (found := ask("divide", case.c)):
        return "you say that it is true for all numbers; it is false for a whole number up to 2,000"
    return None if len(found) == 1 and not same(*case.sides(found)) else "what you give does not refute it"
