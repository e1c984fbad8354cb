"""Compile CUDA text with Numba: to a function for a GPU, or to PTX without one.

In:  emitted CUDA text that calls ``simt.math`` and ``primitives``. Out: PTX.

Numba keeps Python's meaning, which costs registers: an index may be negative, a loop variable
outlives its loop, a thread number may have any value. Emitted text uses none of this. ``_Plain``
rewrites the text so that Numba knows. Measured on softmax for sm_90: 72 registers a thread before
and 28 after, and a third of the PTX.
"""

import ast
import contextlib
import copy
import functools
import importlib
import importlib.util
import itertools
import math
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import DeviceError
from ...errors.forks import forks_wait
from ...errors.undisturbed import undisturbed
from ...simt.dialect import ORDERED
from ...simt.math import DEVICE_FUNCTIONS
from ..cpu.compile import execute, names_in, over_helpers, wrapping

INSTALL = "pip install 'minisitch[offline-cuda]'"
RANGES = {"cuda.threadIdx.x": 1023, "cuda.blockIdx.x": 2**31 - 1}  # largest values by CUDA's limits


def ptx(text: str, name: str, dtypes: Sequence[str], architecture: str, exact: bool = True) -> str:
    """The PTX of a kernel for an architecture such as ``sm_90``. It needs no driver.

    A launch takes the same steps. With ``exact`` no product is fused with a sum, except where the
    text says ``cuda.fma`` and inside device functions. Raises DeviceError without numba-cuda.
    """
    if importlib.util.find_spec("numba_cuda") is None:
        raise DeviceError(f"PTX needs numba-cuda, which is not installed: {INSTALL}")
    return undisturbed(_ptx, text, name, dtypes, architecture, exact)


def _ptx(text: str, name: str, dtypes: Sequence[str], architecture: str, exact: bool) -> str:
    capability = (int(architecture[3:-1]), int(architecture[-1]))
    with forks_wait, _compiling_for(capability):
        import numba
        from numba import cuda

        arrays = [numba.from_dtype(np.dtype(d))[::1] for d in dtypes]
        made: Any = cuda.compile  # older Numbas declare another signature
        kernel = _function(text, name, architecture, exact)
        return made(kernel, numba.void(*arrays), device=False, abi="numba", cc=capability)[0]


@contextlib.contextmanager
def _compiling_for(capability: tuple[int, int]) -> Iterator[None]:
    """Tell Numba the architecture. It otherwise asks the device, and fails if there is none."""
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
    before = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = before


# ---------------------------------------------------------------- text to functions
def _function(text: str, name: str, architecture: str, exact: bool) -> Callable[..., None]:
    """The kernel as a Python function for Numba, with device functions for one architecture."""
    from numba import cuda

    namespace: dict[str, Any] = {"__name__": __name__, "np": np, "math": math, "cuda": cuda}
    code = compile(plain(text, exact), f"<minisitch cuda {name}>", "exec")
    if own := names_in(code) & {"load_wide", "store_wide", "rounded_product", *ORDERED}:
        # Only here, because it imports Numba.
        module = importlib.import_module(f"{__package__}.primitives")
        namespace |= {n: getattr(module, n) for n in own}
    namespace |= {n: _helper(n, architecture) for n in names_in(code) & DEVICE_FUNCTIONS.keys()}
    return execute(code, name, text, namespace)


@functools.cache
def _helper(name: str, architecture: str) -> Any:
    from numba import cuda

    function = over_helpers(DEVICE_FUNCTIONS, name, lambda n: _helper(n, architecture))
    return cuda.jit(device=True)(function)


# ---------------------------------------------------------------- rewrites before Numba
def plain(text: str, exact: bool = True) -> ast.Module:
    """The module after ``_Unrolled`` and ``_Plain``."""
    return ast.fix_missing_locations(_Plain(exact).visit(_Unrolled().visit(ast.parse(text))))


class _Unrolled(ast.NodeTransformer):
    """Unroll loops whose variable indexes a thread's registers, since registers have fixed numbers.

    Before:  for each in range(4):             After:  v0 = v0s[0]
                 v0 = v0s[each]                        r1 = maximum(r1, v0)
                 r1 = maximum(r1, v0)                  v0 = v0s[1] ...
    """

    def __init__(self) -> None:
        self.registers: set[str] = set()

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "cuda.local.array":
            self.registers |= {ast.unparse(target) for target in node.targets}
        return node

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        counter = ast.unparse(node.target)
        places = [place for s in node.body for n in ast.walk(s) for place in self._places(n)]
        inside = (n for place in places for n in ast.walk(place))
        counts = any(isinstance(n, ast.Name) and n.id == counter for n in inside)
        turns = re.fullmatch(r"range\((\d+)\)", ast.unparse(node.iter))
        if not counts or not turns:
            return node
        return [_With(counter, turn).visit(copy.deepcopy(s)) for turn in range(int(turns[1]))
                for s in node.body]

    def _places(self, node: ast.AST) -> list[ast.expr]:
        """The index expressions of a thread's register arrays in an expression."""
        if isinstance(node, ast.Subscript):
            return [node.slice] if ast.unparse(node.value) in self.registers else []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("load_wide", "store_wide"):
            return [after for array, after in itertools.pairwise(node.args)
                    if ast.unparse(array) in self.registers]
        return []


class _With(ast.NodeTransformer):
    """Replace a name by a number, and compute sums and products of numbers."""

    def __init__(self, name: str, value: int) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Constant(self.value), node) if node.id == self.name else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        sides = (side for side in (node.left, node.right) if isinstance(side, ast.Constant))
        parts = [side.value for side in sides if isinstance(side.value, int)]
        if len(parts) < 2 or not isinstance(node.op, ast.Add | ast.Mult):
            return node
        value = sum(parts) if isinstance(node.op, ast.Add) else parts[0] * parts[1]
        return ast.copy_location(ast.Constant(value), node)


class _Plain(ast.NodeTransformer):
    """Rewrite what costs registers in Numba. The stepper checks the text before this rewrite.

    Before:  thread = cuda.threadIdx.x
             for col in range(thread, 1024, 128):
                 y[col] = x[col + row * 1024]
    After:   thread = cuda.threadIdx.x & 1023
             col = thread
             while col < 1024:
                 y[np.uint64(col)] = x[np.uint64(col + row * 1024)]
                 col += 128

    Loops: ``range`` counts iterations beside the variable, and keeps the variable's last value.
    Indices: a negative index counts from the end. Thread numbers: they are signed, so ``% 32``
    takes four instructions. Products ``v2 * v3``: NVIDIA's compiler would fuse them with sums,
    which ``exact`` forbids.
    """

    def __init__(self, exact: bool = True) -> None:
        self.loops, self.exact = 0, exact

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        scaled = any(isinstance(side, ast.Constant) for side in (node.left, node.right))  # an index
        if not self.exact or scaled or not isinstance(node.op, ast.Mult):
            return node
        product = ast.Name("rounded_product", ast.Load())
        return ast.copy_location(ast.Call(product, [node.left, node.right], []), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        largest = RANGES.get(ast.unparse(node))
        if largest is None:
            return node
        return ast.copy_location(ast.BinOp(node, ast.BitAnd(), ast.Constant(largest)), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self.generic_visit(wrapping(node))  # type: ignore[return-value]

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
        counter = ast.unparse(node.target)
        limit = ast.unparse(last) if isinstance(last, ast.Constant) else bound
        lines = [f"{bound} = {ast.unparse(last)}"] * (limit == bound)
        lines += [f"{counter} = {ast.unparse(first)}",
                  f"while {counter} < {limit}:\n    {counter} += {ast.unparse(step)}"]
        made = ast.parse("\n".join(lines)).body
        made[-1].body[:0] = node.body  # type: ignore[attr-defined]
        return [ast.copy_location(statement, node) for statement in made]


def _bounds(arguments: list[ast.expr]) -> tuple[ast.expr, ast.expr, ast.expr]:
    """First, last and step of a ``range``, whose step is positive in emitted text."""
    if len(arguments) == 1:
        return ast.Constant(0), arguments[0], ast.Constant(1)
    return arguments[0], arguments[1], arguments[2] if len(arguments) == 3 else ast.Constant(1)
