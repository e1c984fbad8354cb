"""Reductions and scans: sum, max, mean, var, argmax, cumsum ... in NumPy's three spellings.

In:  ``np.sum(x)``, ``x.sum()`` and ``np.add.reduce(x)``: the first two call the third.
Out: one ``reduce`` node, or the composition that NumPy computes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from .array import (
    TracedArray,
    bools,
    broadcast,
    cast,
    choose,
    composite,
    constant,
    deliver,
    fresh,
    handles,
    iota,
    lift,
    normal_axes,
    record,
    reshaped,
    traced,
)
from .guards import assignable
from .recorder import refuse
from .ufuncs import METHODS

FOLDS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"}
ON_BOOL = {"max": "any", "min": "all", "sum": "any", "prod": "all"}
START = {"sum": 0, "prod": 1, "all": True, "any": False}
SCANS = {"add": "cumsum", "multiply": "cumprod"}


# ---------------------------------------------------------------- one function for all spellings
def accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype that NumPy sums in. Small integers and bools widen."""
    if dtype.kind in "bi":
        return np.result_type(dtype, np.int64)
    return np.result_type(dtype, np.uint64) if dtype.kind == "u" else dtype


def reduce_method(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
                  initial: Any = np._NoValue, where: Any = True) -> TracedArray:
    """``ufunc.reduce``: one node, after NumPy's casts and with its defaults."""
    if ufunc.__name__ not in FOLDS:
        raise refuse(f"np.{ufunc.__name__}.reduce", "the graph has no such reduction", f"Reductions are {', '.join(FOLDS)}")
    op, x = FOLDS[ufunc.__name__], lift(a)
    # a number may be folded along an axis it lacks
    absent = not x.ndim and not isinstance(axis, tuple) and axis in (0, -1)
    axes = () if absent else normal_axes(axis, x.ndim)
    if out is Ellipsis or (op in ("any", "all") and dtype not in (None, bool)):
        raise TypeError("no such reduction")
    dtype = dtype_with(out, x) if dtype is None else dtype
    identity = START.get(op) if initial is np._NoValue else None
    if op in ("any", "all"):
        x = cast(x, bool)
    elif dtype is not None or op in ("sum", "prod"):
        x = cast(x, accumulator(x.dtype) if dtype is None else dtype)
    initial = None if initial is np._NoValue or initial is None else _first(initial, x.dtype)
    if where is not True:
        neutral = START.get(op, initial)
        if neutral is None:
            raise ValueError(f"reduction operation '{ufunc.__name__}' does not have an identity, so to use a where mask "
                             "one has to specify 'initial'")
        mask = bools(where)
        broadcast(mask, x.shape)  # it is not stretched to the mask
        x = choose(mask, x, cast(lift(neutral), x.dtype), x.dtype, x.shape)
    if initial is None and identity is None and x.size == 0 and count_of(x, axes) == 0:
        raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
    if x.dtype.kind == "b":
        op = ON_BOOL.get(op, op)
    # ``initial`` is the only value
    if initial is not None and op in ("max", "min") and x.size == 0 and count_of(x, axes) == 0:
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes]
        return deliver(cast(broadcast(lift(initial), shape), x.dtype), out, "unsafe")
    result = record(op, x, axes=axes, keepdims=bool(keepdims)) if axes else fresh(x.node, x.row_major)
    return deliver(result if initial is None else cast(ufunc(result, initial), result.dtype), out, "unsafe")


def _first(initial: Any, dtype: np.dtype) -> TracedArray:
    """``initial=`` in the dtype of the reduction, as NumPy stores it into an array of that dtype."""
    value = cast(assignable(initial, dtype), dtype)
    if value.ndim:
        raise ValueError("setting an array element with a sequence.")
    return value


def dtype_with(out: Any, x: TracedArray) -> np.dtype | None:
    """The dtype to sum in if there is an ``out=`` and no ``dtype=``."""
    out = out[0] if isinstance(out, tuple) else out
    return np.result_type(out.dtype, x.dtype) if isinstance(out, TracedArray) and not out.is_scalar else None


def count_of(x: TracedArray, axes: Any) -> int:
    """How many elements a reduction over ``axes`` folds into one."""
    return math.prod(x.shape[a] for a in normal_axes(axes, x.ndim))


# ---------------------------------------------------------------- NumPy's names
def _reduction(ufunc: np.ufunc, takes_dtype: bool) -> Any:
    """A handler with the parameters of ``np.sum`` or of ``np.max``."""
    def with_dtype(a, axis=None, dtype=None, out=None, *others, **options):
        return reduce_method(ufunc, a, axis, dtype, out, *others, **options)

    def without_dtype(a, axis=None, out=None, *others, **options):
        return reduce_method(ufunc, a, axis, None, out, *others, **options)
    return with_dtype if takes_dtype else without_dtype


handles(np.sum)(_reduction(np.add, True))
handles(np.prod)(_reduction(np.multiply, True))
handles(np.max)(_reduction(np.maximum, False))
handles(np.min)(_reduction(np.minimum, False))
handles(np.any)(_reduction(np.logical_or, False))
handles(np.all)(_reduction(np.logical_and, False))


@handles(np.count_nonzero)
def count_nonzero(a, axis=None, *, keepdims=False):
    return traced.sum(cast(a, bool), axis, keepdims=keepdims)


# ---------------------------------------------------------------- averages
def _count(x: TracedArray, axis: Any, where: Any) -> Any:
    """How many elements each result folds: a number, or an array under a mask."""
    return count_of(x, axis) if where is True else np.sum(broadcast(lift(where), x.shape), axis, keepdims=True)


def _quotient(total: TracedArray, count: Any) -> TracedArray:
    """total / count in total's dtype. float16 holds few integers, so it goes through float32."""
    if total.dtype == np.float16:
        return cast(_quotient(cast(total, np.float32), count), np.float16)
    if isinstance(count, TracedArray):
        return cast(traced.true_divide(total, reshaped(count, total.shape)), total.dtype)
    if total.dtype.kind != "f":
        return cast(np.true_divide(total, count), total.dtype)
    return record("div", total, constant(float(count), total.shape, total.dtype))


@composite(np.mean)
def mean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=True):
    """sum / count. As in NumPy, integers use float64, and float16 is summed in float32."""
    x = lift(a)
    half = dtype is None and x.dtype == np.float16
    wide = np.float32 if half else np.float64 if dtype is None and x.dtype.kind in "biu" else dtype or dtype_with(out, x)
    count = _count(x, axis, where)
    result = _quotient(np.sum(x, axis, wide, keepdims=keepdims, where=where), count)
    return deliver(cast(result, np.float16) if half else result, out, "unsafe")


@composite(np.var)
def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=True, mean=None, correction=None):
    """The mean of squared deviations from the mean, in two passes as NumPy does."""
    x, ddof = lift(a), ddof if correction is None else correction
    wide = np.float64 if dtype is None and x.dtype.kind in "biu" else dtype
    count = _count(x, axis, where)
    centre = _quotient(np.sum(x, axis, wide, keepdims=True, where=where), count) if mean is None else mean
    apart = np.subtract(x, centre)
    total = np.sum(np.multiply(apart, apart), axis, wide or dtype_with(out, apart), keepdims=keepdims, where=where)
    degrees = np.maximum(count - ddof, 0) if isinstance(count, TracedArray) else np.maximum(count - ddof, 0).item()
    return deliver(_quotient(total, degrees), out, "unsafe")


@composite(np.std)
def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, **options):
    """The square root of the variance."""
    variance: TracedArray = var(a, axis, dtype, None, ddof, keepdims, **options)
    root = np.sqrt(variance)
    if variance.ndim and variance.dtype.kind != "f":  # NumPy takes the root of an array in place
        raise TypeError("a root of integers is no integer")
    return deliver(cast(root, variance.dtype), out, "unsafe")


# ---------------------------------------------------------------- positions
def _position(extreme: Any, a: Any, axis: Any, out: Any, keepdims: bool) -> TracedArray:
    """The index of the extreme: the smallest one, or the first NaN if there is one."""
    x = lift(a)
    shape = (1,) * x.ndim if keepdims and axis is None else None
    if axis is None:
        x, axis = traced.ravel(x), 0
    (axis,) = normal_axes(axis, x.ndim)
    if x.shape[axis] == 0:
        raise ValueError(f"attempt to get arg{extreme.__name__} of an empty sequence")
    if x.dtype.kind == "b":
        x = cast(x, np.uint8)
    hit = record("eq", x, broadcast(extreme(x, axis, keepdims=True), x.shape))
    if x.dtype.kind == "f":
        hit = record("or", hit, record("isnan", x))
    index = record("select", hit, iota(x.shape, axis), constant(x.shape[axis], x.shape, np.int64))
    result = np.min(index, axis, keepdims=keepdims)
    x.recorder.nonnegative.add(result.node)
    return deliver(reshaped(result, result.shape if shape is None else shape), out)


@composite(np.argmax)
def argmax(a, axis=None, out=None, *, keepdims=False):
    return _position(np.max, a, axis, out, keepdims)


@composite(np.argmin)
def argmin(a, axis=None, out=None, *, keepdims=False):
    return _position(np.min, a, axis, out, keepdims)


# ---------------------------------------------------------------- scans and order
def accumulate_method(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> TracedArray:
    """``np.add.accumulate`` and ``np.multiply.accumulate``."""
    if ufunc.__name__ not in SCANS:
        raise refuse(f"np.{ufunc.__name__}.accumulate", "only sums and products have a scan in the graph",
                     "Write np.cumsum, np.cumprod, or a Python loop over the axis")
    x = lift(a)
    along = normalize_axis_index(axis, x.ndim)
    summed = cast(x, dtype or dtype_with(out, x) or accumulator(x.dtype))
    return deliver(record(SCANS[ufunc.__name__], summed, axis=along), out, "unsafe")


def _scan(ufunc: np.ufunc, a: Any, axis: Any, dtype: Any, out: Any) -> TracedArray:
    """``np.cumsum`` and ``np.cumprod``: without an axis over all elements."""
    x = lift(a)
    return accumulate_method(ufunc, traced.ravel(x) if axis is None or not x.ndim else x, axis or 0, dtype, out)


@handles(np.cumsum)
def cumsum(a, axis=None, dtype=None, out=None):
    return _scan(np.add, a, axis, dtype, out)


@handles(np.cumprod)
def cumprod(a, axis=None, dtype=None, out=None):
    return _scan(np.multiply, a, axis, dtype, out)


def _along(a: Any, axis: Any, order: Any) -> tuple[TracedArray, int]:
    """The array to sort, and the axis to sort along."""
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")
    x = traced.ravel(a) if axis is None else lift(a)
    return x, normalize_axis_index(-1 if axis is None else axis, x.ndim)


@handles(np.sort)
def sort(a, axis=-1, kind=None, order=None, *, stable=None):
    x, along = _along(a, axis, order)
    return record("sort", x, axis=along)


@handles(np.argsort)
def argsort(a, axis=-1, kind=None, order=None, *, stable=None):
    x, along = _along(a, axis, order)
    result = record("argsort", x, axis=along)
    x.recorder.nonnegative.add(result.node)
    return result


METHODS.update({"reduce": reduce_method, "accumulate": accumulate_method})
