"""NumPy's functions that a traced program calls in another form.

These are the ones that make arrays, and NumPy's own Python code.

In:  calls of the rewritten program (see ``hooks``). Out: traced arrays.

72 of NumPy's functions never dispatch on their arguments (``np.zeros``, ``np.asarray``,
``np.arange`` ...). A buffer from ``np.zeros`` is a real array, and writing a traced value into it
cannot be recorded. So the trace calls another function in their place. The program still holds
NumPy's own in its hand.

Functions of NumPy that have no handler are mostly written in Python on top of others
(``np.gradient``, ``np.cross``, ``np.kron``). Their own source is rewritten and traced.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import TraceError
from .array import (
    FUNCTIONS,
    OUTSIDE,
    TracedArray,
    answers,
    as_numpy_raises,
    cast,
    common_dtype,
    constant,
    fresh,
    handles,
    iota,
    is_traced,
    lies_in_rows,
    lift,
    method,
    operand,
    record,
    require,
    settle,
    shape_of,
    stand_in,
    strides_of,
)
from .calls import INSTEAD, NUMPY
from .hooks import call, special
from .recorder import current, refuse
from .refusals import APART, COUNT, NO_VALUE, REMEDIES
from .rewrite import rewritten
from .scalars import Number, plain
from .tree import flatten, unflatten


def replaces(*functions: Callable) -> Callable[[Callable], Callable]:
    """Register what a traced program calls in place of functions that never dispatch."""
    def register(handler: Callable) -> Callable:
        INSTEAD.update(dict.fromkeys(functions, answers(functions[0])(handler)))
        return handler
    return register


# ---------------------------------------------------------------- creation
@replaces(np.full)
def full(shape, fill_value, dtype=None, order="C", *, device=None, like=None):
    """A buffer with one value: an array, not a scalar, so that it can be written to."""
    value = operand(fill_value)
    dtype = common_dtype(value) if dtype is None else dtype
    return fresh(settle(value, dtype, shape_of(shape)).node, lies_in_rows(order), scalar=False)


@handles(np.empty_like)
def empty_like(prototype, dtype=None, order="K", subok=True, shape=None, *, device=None):
    like = lift(prototype)
    empty = constant(0, like.shape if shape is None else shape_of(shape), dtype or like.dtype)
    return fresh(empty.node, lies_in_rows(order, like), scalar=False)


def _filled(value: int) -> Callable:
    return lambda shape, dtype=None, order="C", *, device=None, like=None: full(shape, value, dtype or float, order)


for _function, _value in ((np.zeros, 0), (np.empty, 0), (np.ones, 1)):
    replaces(_function)(_filled(_value))


def _diagonals(op: str, N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C",
               **options: Any) -> TracedArray:
    """Ones where ``row + k op column``."""
    shape = shape_of((N, N if M is None else M))
    rows, columns = iota(shape, 0), iota(shape, 1)
    return cast(record(op, rows + k if k else rows, columns), dtype or float)


replaces(np.eye)(functools.partial(_diagonals, "eq"))
replaces(np.tri)(functools.partial(_diagonals, "ge"))
replaces(np.identity)(lambda n, dtype=float, *, like=None: _diagonals("eq", n, dtype=dtype))


@replaces(np.arange)
def arange(*args, dtype=None, device=None, like=None, **named):
    """Integers become an iota, scaled and shifted if needed. Other numbers are NumPy's array."""
    args, named = tuple(map(plain, args)), {key: plain(each) for key, each in named.items()}
    if any(map(is_traced, (*args, *named.values()))):
        raise refuse("np.arange with a traced number", "its length depends on values",
                     "Pass the number as a Python int, n and not np.int64(n): "
                     "it is part of the program then")
    values = np.arange(*args, dtype=dtype, **named)
    if values.dtype.kind not in "iu" or values.size < 2:
        return values
    start, step = int(values[0]), int(values[1]) - int(values[0])
    result = iota(values.shape, 0, values.dtype.name)
    if step != 1:
        # -1 wraps in an unsigned dtype
        result = record("mul", result, constant(np.int64(step), values.shape, values.dtype))
    return record("add", result, constant(start, values.shape, values.dtype)) if start else result


@replaces(np.fromiter)
def fromiter(iter, dtype, count=-1, *, like=None):
    values = [*itertools.islice(iter, None if count < 0 else count)]
    require(not any(map(np.ndim, values)))
    return array(values, dtype) if is_traced(values) else np.fromiter(values, dtype, count)


@replaces(np.array)
def array(object, dtype=None, *, copy=True, order="K", subok=False, ndmin=0, like=None):
    """A copy of a traced array, or a stack of a list with one in it. Otherwise NumPy's array."""
    object = _said(object)
    if not is_traced(object):
        return np.array(object, dtype=dtype, copy=copy, order=order, subok=subok, ndmin=ndmin)
    result = lift(object) if dtype is None else cast(lift(object), dtype)
    if result is not object or copy or result.is_scalar:
        result = fresh(result.node, lies_in_rows(order, result), scalar=False)
    elif result.ndim and order in ("C", "F"):
        result = _laid_out(result, order)
    require(copy is not False or result is object)
    return np.reshape(result, (1,) * (ndmin - result.ndim) + result.shape) if result.ndim < ndmin else result


def _said(value: Any) -> Any:
    """What an object of the user's says that it is as an array, which may be a traced one."""
    method = special(value, "__array__")
    return value if method is None else call(method, value)


def _laid_out(x: TracedArray, order: str) -> Any:
    """The array itself if it is known to lie in this order, else a copy. At least one axis."""
    lies = not x.is_scalar and x.strides_in_elements is not None and getattr(stand_in(x).flags, f"{order.lower()}_contiguous")
    given = x if lies else fresh(x.node, scalar=False)
    if not lies:
        given.strides_in_elements = strides_of(x.shape) if order == "C" else strides_of(x.shape[::-1])[::-1]
    x.recorder.by_layout(x, given)
    return given if given.ndim else np.reshape(given, 1)


def _contiguous(function: Callable, order: str) -> Callable:
    def contiguous(a, dtype=None, *, like=None):
        return _laid_out(lift(a) if dtype is None else cast(lift(a), dtype), order) if is_traced(a) else function(a, dtype)
    return contiguous


for _function, _order in ((np.ascontiguousarray, "C"), (np.asfortranarray, "F")):
    replaces(_function)(_contiguous(_function, _order))


@replaces(np.asarray, np.asanyarray)
def asarray(a, dtype=None, order=None, *, copy=None, device=None, like=None):
    """A traced array stays as it is, unless another order is asked for."""
    a = _said(a)
    return array(a, dtype, copy=copy, order=order) if is_traced(a) else np.asarray(a, dtype, order, copy=copy)


class Converter(tuple):
    """``_array_converter``: the arrays among the arguments of NumPy's own code."""

    def __new__(cls, *arrays: Any) -> Converter:
        return super().__new__(cls, map(asarray, arrays))

    def as_arrays(self, **options: Any) -> Converter:
        return self

    def result_type(self, *, ensure_inexact: bool = False, **options: Any) -> np.dtype:
        return common_dtype(*self, *([0.0] if ensure_inexact else []))

    def wrap(self, result: Any, **options: Any) -> Any:
        return result


INSTEAD[np._core._multiarray_umath._array_converter] = Converter
# the one that ``np.block`` calls, which does not dispatch
INSTEAD[np.concatenate.__wrapped__] = np.concatenate


@replaces(np.broadcast)
class broadcast:
    """``np.broadcast``: the shape, and tuples of the elements, traced where the array is."""

    def __init__(self, *arrays: Any) -> None:
        self._arrays = [x if isinstance(x, TracedArray) else np.asarray(x) for x in arrays]
        self.shape = np.broadcast_shapes(*(each.shape for each in self._arrays))
        self.nd = self.ndim = len(self.shape)
        self.size, self.numiter = math.prod(self.shape), len(arrays)

    def __iter__(self) -> Any:
        wide: list[Any] = [np.broadcast_to(each, self.shape) for each in self._arrays]
        return (tuple(each[index] for each in wide) for index in np.ndindex(self.shape))

    def __getattr__(self, name: str) -> Any:
        raise refuse(f"np.broadcast(...).{name}", "it goes through an array's memory",
                     "Write a loop over np.ndindex(shape)")


def _quiet(function: Callable) -> Callable:
    """``np.errstate`` or ``np.seterr`` without what a call cannot do: raise, print, log."""
    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        asked = {x for x in (*args, *kwargs.values()) if isinstance(x, str)} - {"ignore", "warn"}
        if asked:
            raise refuse(f"np.{function.__name__}(... {min(asked)!r})",
                         "kernels divide by zero in silence", "Check the result outside the traced "
                         "function, as with np.isfinite(y).all()")
        return function(*args, **kwargs)
    return checked


INSTEAD.update({each: _quiet(each) for each in (np.errstate, np.seterr)})


@replaces(np.isscalar)
def isscalar(element):
    return element.is_scalar if isinstance(element, TracedArray) else np.isscalar(element)


def _dispatching(function: Callable) -> Callable:
    """NumPy asks no list of traced arrays, and no indices of ``np.take``; its classes ask nothing."""
    @functools.wraps(function, updated=())
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        asks = any(is_traced(each) and type(each) is not Number for each in (*args, *kwargs.values()))
        return _recorded(function, args, kwargs) if asks else function(*args, **kwargs)
    return dispatch


for _name in "sum prod mean var std max min any all argmax argmin take nditer finfo iinfo".split():
    INSTEAD[getattr(np, _name)] = _dispatching(getattr(np, _name))


@replaces(float)
def as_float(x=0.0, /):
    """A number that only a kernel can tell stays one."""
    return x.item() if isinstance(x, TracedArray) and x.dtype.kind == "f" and x.size == 1 else float(x)


def _converting(dtype: type) -> Callable:
    """``np.float32(x)``, which NumPy's own source writes, too."""
    return lambda x=0, /: fresh(cast(x, dtype).node) if isinstance(x, TracedArray) else dtype(plain(x))


for _type in (np.float16, np.float32, np.float64):
    replaces(_type)(_converting(_type))


# ---------------------------------------------------------------- what cannot be recorded
LAPACK = ("solve tensorsolve inv tensorinv pinv cholesky qr svd svdvals eig eigh eigvals eigvalsh "
          "det slogdet lstsq cond matrix_rank")
FULL = "Keep a mask of the full shape and use np.where(mask, a, b), np.count_nonzero or where="
BINS = ("Choose n bins, and the bin of each value: counts = np.zeros(n, np.int64), "
        "then np.add.at(counts, bin, 1)")
REFUSED = {
    "nonzero argwhere flatnonzero unique extract compress union1d intersect1d setdiff1d trim_zeros":
        ("the shape of its result depends on values", FULL),
    "save savez savez_compressed savetxt": (NO_VALUE, REMEDIES["save"]),  # before they make a file
    "histogram": ("where its bins lie depends on values", BINS),
    "bincount": ("how many counts it has depends on values", BINS),
    "linalg." + LAPACK.replace(" ", " linalg."): ("LAPACK computes it, and the graph has no operation for that", APART),
}


def _refusing(name: str, reason: str, remedy: str) -> Callable:
    def handler(*args: Any, **kwargs: Any) -> Any:
        raise refuse(f"np.{name}", reason, remedy)
    return handler


for _names, _why in REFUSED.items():
    for _name in _names.split():
        handles(operator.attrgetter(_name)(np))(_refusing(_name, *_why))


@replaces(np.ndarray)
def ndarray(*args, **options):
    """A new array is ``np.empty``'s, so that traced values can be stored in it.

    A view of a buffer stays NumPy's.
    """
    new = len(args) <= 2 and options.keys() <= {"shape", "dtype", "order"}
    return INSTEAD[np.zeros](*args, **options) if new else np.ndarray(*args, **options)


# ---------------------------------------------------------------- NumPy's own Python code
@functools.cache
def opened(func: Callable) -> Any:
    """NumPy's own Python source of a function, rewritten. None if it is written in C."""
    inner = getattr(func, "__wrapped__", func)
    return rewritten(inner) if isinstance(inner, types.FunctionType) else None


HIDDEN = "its source does something that cannot be recorded"


def _of_numbers(x: Number, func: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
    """NumPy's protocol for a ``Number``. Shape functions need no value.

    Beside a traced array, that array handles the call. Otherwise NumPy computes with the values,
    also beside its own arrays.
    """
    if func in (np.shape, np.ndim, np.size):
        return func(0.0)
    if any(kind not in (Number, np.ndarray) for kind in types):
        return NotImplemented
    numbers, tree = flatten((args, kwargs), lambda value: type(value) is Number)
    positional, named = unflatten(tree, [each.now() for each in numbers])
    return func(*positional, **named)


Number.__array_function__ = _of_numbers


@method
def __array_function__(x: TracedArray, func: Callable, types: Any, args: tuple,
                       kwargs: dict) -> Any:
    """NumPy's protocol: call the handler if it takes the call, else trace NumPy's own source.

    A call that cannot be recorded is computed now, if all its values are known. Raises TraceError
    if they are not.
    """
    refused = len(current().refused)
    try:
        return _recorded(func, args, kwargs)
    except TraceError as error:
        values = flatten((args, kwargs), lambda value: isinstance(value, TracedArray))
        known = [each.recorder.known(each.node, asks=True) for each in values[0]]
        if OUTSIDE in str(error) or any(each is None for each in known):
            raise
        del current().refused[refused:]
        positional, named = unflatten(values[1], known)
        return func(*positional, **named)


def _recorded(func: Callable, args: tuple, kwargs: dict) -> Any:
    if func in FUNCTIONS:
        result = FUNCTIONS[func](*args, **{k: v for k, v in kwargs.items() if v is not np._NoValue})
        if result is not NotImplemented:
            return result
    return _traced_source(func, args, kwargs)


def _traced_source(func: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Trace a function of NumPy that has no handler. Raises TraceError, or NumPy's own error."""
    name = f"{func.__module__}.{func.__qualname__}".replace("numpy", "np", 1)
    part = f"{func.__module__}.".split(".")[1]
    remedy = REMEDIES.get(part if part in ("ma", "fft", "linalg") else func.__name__,
                          "Write it with arithmetic, reductions, np.where, slices and products")
    source = None if part == "ma" else opened(func)
    if source is None:
        raise refuse(name, "the graph has no operation for it", remedy)
    try:
        with current().composite(func.__name__):
            return source(*args, **kwargs)
    except TraceError as error:
        if OUTSIDE in str(error):
            raise
        # the line is given once; the remedy is ours
        why = re.sub(r"^[^:]*:\d+: ", "", str(error)).partition(". ")[0]
        # the reason of the innermost function
        why = why.partition(f"{HIDDEN} (")[2].removesuffix(")") or why
        raise refuse(name, f"{HIDDEN} ({why})", COUNT if str(error).endswith(COUNT) else remedy) from error
    except Exception as error:
        raise as_numpy_raises(func, args, kwargs, error) from error


NUMPY["source"] = _traced_source
