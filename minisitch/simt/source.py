"""A kernel that is a Python function becomes text.

In:  a function, such as one that ``cuda.jit`` decorates. Out: its text, in which line numbers are
those of its file. Below it stand the numbers, and the functions, that it takes from outside.
"""

import ast
import inspect
from collections.abc import Callable
from textwrap import dedent
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from ..errors import MinisitchError
from . import math as cuda_math
from .dialect import MODULES, advice
from .text import kernel_bug, lines_of


def text_of(kernel: Callable[..., Any]) -> tuple[str, str]:
    """The text of a kernel, and its name.

    Raises MinisitchError if the function has no source text, and KernelBug if it takes from outside
    what is no number, no tuple of numbers and no function.
    """
    function = inspect.unwrap(getattr(kernel, "py_func", kernel))  # what Numba decorated
    source = _source(function)
    kernel_name, text = function.__name__, source
    wanted, done = [(function, source)], {kernel_name}
    below: list[str] = []
    while wanted:
        function, source = wanted.pop()
        outside = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        for node in ast.walk(ast.Module(ast.parse(source).body[0].body, [])):  # type: ignore[attr-defined]
            name = node.id if isinstance(node, ast.Name) else ""
            if name in {*done, *MODULES, *function.__code__.co_varnames} or name not in outside:
                continue
            done.add(name)
            value = getattr(outside[name], "py_func", outside[name])
            if isinstance(value, FunctionType) and value.__module__ != cuda_math.__name__:
                more = _source(value)
                below.insert(0, more.lstrip("\n"))
                wanted.append((value, more))
            elif (shown := _shown(value)) is not None:
                below.append(f"{name} = {shown}\n")
            elif not isinstance(value, FunctionType) and not advice(name):
                raise kernel_bug(
                    "outside-dialect", f"{name} comes from outside the kernel and is a "
                    f"{type(value).__name__}: a kernel may take numbers, tuples of numbers and "
                    "functions", lines_of(source),
                    (node.lineno, "here"), kernel=kernel_name)  # type: ignore[attr-defined]
    return text + "\n" + "".join(below), kernel_name


def _source(function: Any) -> str:
    """The text of a function, at its place in its file."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise MinisitchError(f"{function!r:.60} has no source text to read: write it in a file, "
                             "or give its text as a str") from None
    text = dedent("".join(lines))
    try:
        if isinstance(function, FunctionType | MethodType) and ast.parse(text).body[0].name == function.__name__:  # type: ignore[attr-defined]
            return "\n" * (first - 1) + text
    except (SyntaxError, AttributeError):
        pass
    raise MinisitchError(f"{lines[0].strip():.60} is no function with a name: write def kernel(x, y): ...")


def _shown(value: Any) -> str | None:
    """A number, or a tuple of numbers, as text."""
    if isinstance(value, tuple):
        parts = [_shown(each) for each in value if not isinstance(each, tuple)]
        return f"({', '.join(map(str, parts))},)" if len(parts) == len(value) and None not in parts else None
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        name = "bool_" if value.dtype.kind == "b" else value.dtype.name
        return f"np.{name}({_shown(value.item())})"
    if not isinstance(value, int | float):
        return None
    finite = isinstance(value, int) or np.isfinite(value)
    return repr(value) if finite else f"{'-' * (value < 0)}math.{'nan' if value != value else 'inf'}"
