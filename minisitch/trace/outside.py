"""What a program can write to besides its arguments, and how it is put back.

In:  the objects that a function is given, then each function as it is copied. Out: ``Outside``, which knows what was there.

A function's text runs once, so no later call would write again what it leaves outside: ``trace`` refuses a program that puts a
traced array into an attribute, or a list or dict, and one that binds a ``global`` or ``nonlocal`` name anew. Nothing is lost.

Before:  self.w = self.w - step          After:  TraceError: the program puts what it computed into w ...; self.w is as it was
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np


class Outside:
    """Attributes of objects; the globals and closures of functions; lists and dicts among all these.

    ``is_traced``: whether a value is an array of the running trace, or a list of such.
    """

    def __init__(self, objects: Iterable[object], is_traced: Callable[[object], bool]) -> None:
        self._is_traced = is_traced
        self._before: list[tuple[str, Any, Any]] = []  # a list or dict, and its copy
        self._cells: list[tuple[str, CellType, Any]] = []
        self._modules: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for owner in objects:
            if hasattr(owner, "__dict__") and not isinstance(owner, type | ModuleType | np.ndarray):
                self._keep("", vars(owner))
                for name, value in vars(owner).items():
                    self._keep(name, value)

    def _keep(self, name: str, value: object) -> None:
        if isinstance(value, list | dict):
            self._before.append((name, value, value.copy()))

    def watch(self, fn: FunctionType) -> None:
        """What the function names outside of itself; an empty cell has nothing yet."""
        for name in fn.__code__.co_names:
            self._keep(name, fn.__globals__.get(name))
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            if cell != CellType():
                self._cells.append((name, cell, cell.cell_contents))
                self._keep(name, cell.cell_contents)

    def watch_module(self, seen: dict[str, Any]) -> None:
        """The globals that copied functions see, and may write to: a module's own are not changed by that."""
        self._modules.append((seen, dict(seen)))

    def put_back(self) -> str:
        """What was written is as it was before; the name of the first such thing, empty if there is none."""
        found = next((name for seen, was in self._modules for name in seen if seen[name] is not was.get(name)), "")
        for name, cell, content in self._cells:
            if cell.cell_contents is not content:
                found = found or name
                cell.cell_contents = content
        for name, value, was in self._before:
            items = value.items() if isinstance(value, dict) else [(name, each) for each in value]
            if held := [key for key, each in items if self._is_traced([*each.values()] if isinstance(each, dict) else each)]:
                found = found or name or str(held[0])
                value.clear()
                value.update(was) if isinstance(value, dict) else value.extend(was)
        return found
