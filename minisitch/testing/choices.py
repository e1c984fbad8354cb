"""Sources of a generator's choices: NumPy for speed, Hypothesis for shrinking."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Choices:
    """A generator's choices. ``integer(low, high)`` draws one of both ends or between."""

    integer: Callable[[int, int], int]

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]


def from_numpy(rng: np.random.Generator) -> Choices:
    """Choices from a seeded generator: fast, for thousands of programs."""
    return Choices(lambda low, high: int(rng.integers(low, high + 1)))


def from_hypothesis(draw: Callable[[Any], Any]) -> Choices:
    """Choices that Hypothesis records and shrinks, towards low integers and first options."""
    from hypothesis import strategies as st
    return Choices(lambda low, high: draw(st.integers(low, high)))
