"""Sources of a generator's choices: NumPy for speed, Hypothesis for shrinking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np


class Choices(Protocol):
    """The choices that a generator asks for. NumPy or Hypothesis makes them."""

    def integer(self, low: int, high: int) -> int: ...  # both ends included

    def pick(self, options: Sequence[Any]) -> Any: ...


class FromNumpy:
    """Choices from a seeded generator: fast, for thousands of programs."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]


class FromHypothesis:
    """Choices that Hypothesis records and shrinks, towards low integers and first options."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        from hypothesis import strategies as st
        return self.draw(st.integers(low, high))

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]
