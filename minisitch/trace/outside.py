"""What a program can write to besides its arguments, and how it is put back.

In:  the values that a function is given, then each function as it is copied. Out: ``Outside``, which knows what was there.

A function's text runs once, so no later call would write again what it leaves outside. ``trace`` refuses a program that leaves a
traced array in an object, a list or a dict; one that changes what an object, list, dict or small array held that it names itself,
such as a counter; and one that binds a ``global`` or ``nonlocal`` name anew. What is new there and computed already, such as
what is kept for later or a log's next line, stays. Attributes in ``__slots__`` and those of classes are not seen.

Before:  self.w = self.w - step          After:  TraceError: the program puts what it computed into w ...; self.w is as it was
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterable
from types import CellType, CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np

from .recorder import user_file

MOST_MET = 10_000  # objects, lists and dicts, the nearest first
SMALL = 1 << 12  # bytes of arrays whose content is compared
NEAR = 1  # steps from what the program names to where a change of what was there counts


class Outside:
    """What is reached from a program's arguments, and from the globals and closures of its functions.

    ``is_traced``: whether a value is an array of the running trace, or a list of such.
    """

    def __init__(self, given: Iterable[object], is_traced: Callable[[object], bool]) -> None:
        self._is_traced = is_traced
        self._met: dict[int, object] = {}  # by their id, which stays theirs
        # How it is called, and whether its elements are; attributes, a list, a dict or an array; its copy; whether it is near.
        self._before: list[tuple[tuple[str, bool], Any, Any, bool]] = []
        self._cells: list[tuple[str, CellType, Any]] = []
        self.modules: list[tuple[dict[str, Any], dict[str, Any]]] = []  # the globals that copied functions see, as they were
        for value in given:
            self._meet("", value)

    def _meet(self, name: str, value: object) -> None:
        """Note what a value holds, and what that holds."""
        pending = deque([(name, value, 0)])
        while pending:
            name, value, steps = pending.popleft()
            content = _content(value)
            if content is None or id(value) in self._met or len(self._met) >= MOST_MET:
                continue
            self._met[id(value)] = value
            if not isinstance(content, tuple):
                self._before.append(((name, content is value), content, content.copy(), steps <= NEAR))
            if not isinstance(content, np.ndarray):
                pending += [(_path(name, key, content is value), each, steps + 1) for key, each in _items(content)]

    def watch(self, fn: FunctionType) -> None:
        """What the function names outside of itself; an empty cell has nothing yet."""
        for name in _names(fn.__code__):
            self._meet(name, fn.__globals__.get(name))
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            if cell != CellType():
                self._cells.append((name, cell, cell.cell_contents))
                self._meet(name, cell.cell_contents)

    def put_back(self) -> str:
        """What was written is as it was before; the name of the first such thing, empty if there is none."""
        found = next((name for seen, was in self.modules for name in seen if seen[name] is not was.get(name)), "")
        for name, cell, content in self._cells:
            if cell.cell_contents is not content:
                found = found or name
                cell.cell_contents = content
        for (name, is_one), content, was, near in self._before:
            if isinstance(content, np.ndarray):
                if near and content.tobytes() != was.tobytes():
                    found, content[...] = found or name, was
                continue
            now = dict(_items(content))
            written = [key for key, each in now.items() if self._is_traced([*each.values()] if isinstance(each, dict) else each)]
            if near:
                written += [key for key, each in _items(was) if not _same(now.get(key, now), each)]
            if written:
                found = found or _path(name, written[0], is_one)
                content.clear()
                content.update(was) if isinstance(content, dict) else content.extend(was)
        return found


def _content(value: object) -> Any:
    """What of a value can be written to, or leads there: its attributes, or itself; None of all else and of libraries' objects."""
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, MethodType):
        return {"self": value.__self__}
    if isinstance(value, list | dict | tuple):
        return value
    if isinstance(value, np.ndarray):
        return value if value.nbytes <= SMALL else None
    return vars(value) if hasattr(value, "__dict__") and _is_users(type(value)) else None


def _is_users(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)  # a session's own classes have none
    return kind is SimpleNamespace or kind.__module__ == "__main__" or bool(user_file(file or ""))


def _path(name: str, key: object, is_one: bool) -> str:
    """How a program calls an element of a list or dict, or else an attribute."""
    return f"{name}[{key!r}]" if is_one else f"{name}.{key}".removeprefix(".")


def _items(content: Any) -> Iterable[tuple[Any, Any]]:
    return content.items() if isinstance(content, dict) else enumerate(content)


def _same(now: object, was: object) -> bool:
    """The same thing, or a number or text that says the same."""
    return now is was or (type(now) is type(was) and isinstance(now, int | float | str) and now == was)


def _names(code: CodeType) -> set[str]:
    """The global names of a function and of those written in it."""
    return {*code.co_names, *(name for inner in code.co_consts if isinstance(inner, CodeType) for name in _names(inner))}
