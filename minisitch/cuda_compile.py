"""CUDA text to machine code, by Numba: a function to launch on a GPU, or PTX on a machine without one.

In:  emitted CUDA text over the functions of ``cuda_math`` and ``cuda_order``. Out: what ``numba.cuda`` makes of it.

Numba compiles Python as Python means it, and a kernel pays for freedoms that emitted text never takes: an index may
be negative, a loop variable outlives its loop, a thread has any number. ``_Plain`` takes them away before Numba
reads the text. Measured on softmax for sm_90: 72 registers a thread before, 28 after, and a third of the PTX.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import math
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .compile import execute, functions_of, lock, names_in, over_helpers
from .cuda_order import ORDERED, ordered_operations
from .errors import DeviceError

INSTALL = "pip install 'minisitch[offline-cuda]'"
RANGES = {"cuda.threadIdx.x": 1023, "cuda.blockIdx.x": 2**31 - 1}  # the largest there are: CUDA's limits


def ptx(text: str, name: str, dtypes: Sequence[str], architecture: str) -> str:
    """The PTX of a kernel for ``sm_75``, ``sm_90`` ...; asks for no driver. Raises DeviceError without numba-cuda.

    The same steps as of a launch, up to the assembler.
    """
    if importlib.util.find_spec("numba_cuda") is None:
        raise DeviceError(f"PTX takes numba-cuda, which is not installed: {INSTALL}")
    import numba
    from numba import cuda

    arrays = [numba.from_dtype(np.dtype(d))[::1] for d in dtypes]
    capability = (int(architecture[3:-1]), int(architecture[-1]))
    with lock, _compiling_for(capability):
        made: Any = cuda.compile  # the built-in target of older Numbas declares another signature
        return made(_function(text, name, architecture), numba.void(*arrays), device=False, abi="numba", cc=capability)[0]


@contextlib.contextmanager
def _compiling_for(capability: tuple[int, int]) -> Iterator[None]:
    """Numba compiles device functions for the device it finds, and fails where there is none: here it is told which."""
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
    before = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = before


# ---------------------------------------------------------------- text to functions
def _function(text: str, name: str, architecture: str) -> Callable[..., None]:
    """The kernel as a Python function that Numba can compile; its device functions are jitted for one architecture."""
    from numba import cuda

    namespace: dict[str, Any] = {"__name__": "minisitch.cuda_compile", "np": np, "math": math, "cuda": cuda}
    code = compile(plain(text), f"<minisitch cuda {name}>", "exec")
    namespace |= {n: _helper(n, architecture) for n in names_in(code) & _device_functions().keys()}
    namespace |= {n: ordered_operations()[n] for n in names_in(code) & set(ORDERED)}
    return execute(code, name, text, namespace)


@functools.cache
def _device_functions() -> dict[str, Callable[..., Any]]:
    return functions_of(importlib.import_module(f"{__package__}.cuda_math"))


@functools.cache
def _helper(name: str, architecture: str) -> Any:
    from numba import cuda

    return cuda.jit(device=True)(over_helpers(_device_functions(), name, lambda n: _helper(n, architecture)))


# ---------------------------------------------------------------- what Numba need not keep open
def plain(text: str) -> ast.Module:
    """The module with loops, indices and thread numbers as a machine has them; see ``_Plain``."""
    return ast.fix_missing_locations(_Plain().visit(ast.parse(text)))


class _Plain(ast.NodeTransformer):
    """Say what every kernel of ours keeps to, and Numba cannot know. The stepper has checked the text as it was.

    Before:  thread = cuda.threadIdx.x                 After:  thread = cuda.threadIdx.x & 1023
             for col in range(thread, 1024, 128):              col = thread
                 y[col] = x[col + row * 1024]                  while col < 1024:
                                                                   y[np.uint64(col)] = x[np.uint64(col + row * 1024)]
                                                                   col += 128

    A loop: ``range`` counts what is left beside the variable, and keeps the variable's last value. An index: a
    negative one counts from the end. A thread's number: signed, so that ``% 32`` takes four instructions.
    """

    def __init__(self) -> None:
        self.loops = 0

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        largest = RANGES.get(ast.unparse(node))
        return node if largest is None else ast.copy_location(ast.BinOp(node, ast.BitAnd(), ast.Constant(largest)), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        unsigned = ast.Attribute(ast.Name("np", ast.Load()), "uint64", ast.Load())
        node.slice = ast.copy_location(ast.Call(unsigned, [node.slice], []), node)
        return node

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        if not (isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range"):
            return node
        first, last, step = _bounds(node.iter.args)
        self.loops += 1
        bound = f"stop_{self.loops}"
        counter, limit = ast.unparse(node.target), ast.unparse(last) if isinstance(last, ast.Constant) else bound
        lines = [f"{bound} = {ast.unparse(last)}"] * (limit == bound)
        lines += [f"{counter} = {ast.unparse(first)}", f"while {counter} < {limit}:\n    {counter} += {ast.unparse(step)}"]
        made = ast.parse("\n".join(lines)).body
        made[-1].body[:0] = node.body  # type: ignore[attr-defined]
        return [ast.copy_location(statement, node) for statement in made]


def _bounds(arguments: list[ast.expr]) -> tuple[ast.expr, ast.expr, ast.expr]:
    """First, last and step of a ``range``, which counts upwards in emitted text."""
    if len(arguments) == 1:
        return ast.Constant(0), arguments[0], ast.Constant(1)
    return arguments[0], arguments[1], arguments[2] if len(arguments) == 3 else ast.Constant(1)
