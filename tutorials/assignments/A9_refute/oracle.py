"""What draws the cases of A9, and knows which laws are false. It stays at home."""

from __future__ import annotations

import math

import numpy as np

from items import KINDS, LAWS, Divisor, Law, Laws
from minisitch.course import Drawing, prediction

MOST_TRIED = 2000  # where a division fails, it fails for a whole number up to this one


# Which laws are true is said here. What makes the others false is your work.
TRUE = ("x - 0 == x", "x * 2 == x + x", "x / 4 == x * 0.25", "x + y == y + x")


def draw_law(at: Drawing) -> Law:
    """The laws in turn."""
    law = list(LAWS)[at.size - 2]
    return Law(law, at.variant, law in TRUE)


def draw_laws(at: Drawing) -> Laws:
    return Laws(tuple(Law(law, at.variant, law in TRUE) for law in LAWS))


def draw_power(at: Drawing) -> Divisor:
    """A power of two. The whole numbers up to ``MOST_TRIED`` divided by it do not overflow."""
    least, most = (-5, 13) if at.variant == "float16" else (-30, 30)
    return Divisor(at.random.choice((-1.0, 1.0)) * 2.0 ** at.random.randint(least, most), at.variant)


def fails(case: Divisor) -> bool:
    """Whether the law is false for a whole number that is not too large."""
    kind = KINDS[case.variant]
    x, c = np.arange(1, MOST_TRIED + 1).astype(kind), kind(case.c)
    with np.errstate(all="ignore"):
        return bool(np.any(x / c != x * (kind(1) / c)))


def draw_divisor(at: Drawing) -> Divisor:
    """A divisor for which the law is false. Some are whole, some are close to a power of two."""
    kind = KINDS[at.variant]
    while True:
        c = at.random.choice(
            (
                float(at.random.randint(3, 99)),
                at.random.uniform(0.1, 30),
                1.0 + at.random.randint(1, 40) * float(np.finfo(kind).eps),
                2.0 - at.random.randint(1, 40) * float(np.finfo(kind).eps),
            )
        )
        made = Divisor(at.random.choice((-1, 1)) * float(kind(c)), at.variant)
        if fails(made):
            return made


# ---------------------------------------------------------------- predictions
@prediction
def whole_number(at):
    number = at.random.randrange(2049, 8000, 2)
    return f"Which whole number does {number} become in float16?", int(np.float16(number))


@prediction
def breaks_difference(at):
    pool = ("inf", "-inf", "nan", "-0.0", "0.0", "1e-45", "65504.0", "-3.5")
    numbers = [at.random.choice(pool) for _ in range(9)]
    count = sum(not math.isfinite(float(each)) for each in numbers)
    return f"For how many of {', '.join(numbers)} is the law x - x == 0 false in float32?", count


@prediction
def reciprocals(at):
    numbers = [at.random.choice((1, 3, 5, 7)) * 2.0 ** at.random.randint(-6, 6) for _ in range(10)]
    count = sum(math.frexp(each)[0] == 0.5 for each in numbers)
    return f"For how many c of {numbers} is 1 / c exact in float32?", count
