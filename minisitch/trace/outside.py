"""What a program can write to besides its arguments, and how it is put back.

In:  a function and its arguments. Out: ``Outside``, which knows what was there before the function ran.

A function's text runs once. A traced array that it leaves in an attribute, or in a list or dict from outside, would be a dead
stand-in there, and no later call would change it: ``trace`` refuses such a program, and nothing of what was there is lost.

Before:  self.w = self.w - step          After:  TraceError: ... keeps a computed array in w ...; self.w is the array that it was
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CellType, ModuleType
from typing import Any

import numpy as np

from .array import Array


class Outside:
    """Attributes of ``given`` objects and of a method's own; lists and dicts among these, the globals and the closure."""

    def __init__(self, fn: Callable, given: Iterable[object]) -> None:
        objects = getattr(fn, "__self__", None), *given
        owners = [vars(x) for x in objects if hasattr(x, "__dict__") and not isinstance(x, type | ModuleType | np.ndarray | Array)]
        reached = [*(("", owner) for owner in owners), *(pair for owner in owners for pair in owner.items()), *_named_in(fn)]
        self._before = [(name, value, value.copy()) for name, value in reached if isinstance(value, list | dict)]

    def put_back(self) -> str:
        """What holds a traced array is as it was before; the name of the first such thing, empty if there is none."""
        found = ""
        for name, value, was in self._before:
            items = value.items() if isinstance(value, dict) else [(name, each) for each in value]
            if held := [key for key, each in items if _holds_traced(each)]:
                found = found or name or str(held[0])
                value.clear()
                value.update(was) if isinstance(value, dict) else value.extend(was)
        return found


def _named_in(fn: Callable) -> list[tuple[str, Any]]:
    """The values of the globals and of the closure that a function names; an empty cell has none."""
    if (code := getattr(fn, "__code__", None)) is None:
        return []
    cells = zip(code.co_freevars, getattr(fn, "__closure__", None) or (), strict=True)
    known = [(name, value) for name, value in fn.__globals__.items() if name in code.co_names]
    return known + [(name, cell.cell_contents) for name, cell in cells if cell != CellType()]


def _holds_traced(value: object) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(each, Array) for each in inside)
