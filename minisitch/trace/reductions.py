"""Reductions and scans: sum, max, mean, var, argmax, cumsum ... in NumPy's three spellings.

In:  ``np.sum(x)``, ``x.sum()`` and ``np.add.reduce(x)``: the first two call the third.
Out: one ``reduce`` node, or the composition that NumPy computes.
"""

import inspect
import math
import operator
import warnings
from typing import Any

import numpy as np

from .array import (
    TracedArray,
    bools,
    broadcast,
    cast,
    choose,
    composite,
    constant,
    fresh,
    handles,
    iota,
    lift,
    method,
    normal_axes,
    normal_axis,
    permuted,
    record,
    require,
    reshaped,
    splat,
    traced,
)
from .creation import opened
from .recorder import refuse
from .refusals import SORT
from .ufuncs import METHODS, assignable, deliver_whole, resolve

FOLDS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"}
ON_BOOL = {"max": "any", "min": "all", "sum": "any", "prod": "all"}
START = {"sum": -0.0, "prod": 1, "all": True, "any": False}
SCANS = {"add": "cumsum", "multiply": "cumprod"}
# Of any grouping, so two halves are folded into one. Its value on no elements.
GROUPED = {"bitwise_and": -1, "bitwise_or": 0, "bitwise_xor": 0, "logical_xor": False, "gcd": 0}


# ---------------------------------------------------------------- one function for all spellings
def accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype that NumPy sums in. Small integers and bools widen."""
    return np.result_type(dtype, np.uint64 if dtype.kind == "u" else np.int64) if dtype.kind in "biu" else dtype


def reduce_method(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None,
                  keepdims: bool = False, initial: Any = np._NoValue,
                  where: Any = True) -> TracedArray:
    """``ufunc.reduce``: one node, after NumPy's casts and with its defaults."""
    x, name, kept = lift(a), ufunc.__name__, bool(operator.index(keepdims))
    require(out is not Ellipsis)
    if name in ("fmax", "fmin"):
        return _without_nans(np.maximum if name == "fmax" else np.minimum, x, axis, dtype, out, kept, initial, where)
    if name in GROUPED and where is True and initial in (None, np._NoValue):
        return _halved(ufunc, x, axis, dtype, out, kept)
    if name not in FOLDS:
        raise refuse(f"np.{name}.reduce", "the graph has no such reduction",
                     f"Reductions are {', '.join((*FOLDS, 'fmax', 'fmin', *GROUPED))}; "
                     "the last five take no where= and no initial=")
    # a number may be folded along an axis it lacks
    axes = () if not x.ndim and not isinstance(axis, tuple) and axis in (0, -1) else normal_axes(axis, x.ndim)
    op, dtype = FOLDS[name], dtype_with(out, x) if dtype is None else dtype
    start = START.get(op) if initial is np._NoValue else initial  # None: the first element
    if op in ("any", "all"):
        require(dtype in (None, bool) or out is not None)
        dtype = bool
    elif op in ("sum", "prod") and dtype is None:
        dtype = accumulator(x.dtype)
    x = x if dtype is None else cast(x, dtype)
    adds, empty = op == "sum" and x.dtype.kind == "f", x.size == 0 and count_of(x, axes) == 0
    if adds and (initial is None or (initial is np._NoValue and not axes)):
        initial = -0.0 if initial is None else 0.0
    first = None if initial is np._NoValue or initial is None else cast(assignable(initial, x.dtype), x.dtype)
    require((start is not None or (where is True and not empty)) and (first is None or not first.ndim))
    if where is not True:
        mask = bools(where)
        broadcast(mask, x.shape)  # it is not stretched to the mask
        x = choose(mask, x, cast(lift(START.get(op, first)), x.dtype), x.dtype, x.shape)
    if empty and op in ("max", "min"):  # of the initial value alone
        x = broadcast(first, [1 if i in axes else n for i, n in enumerate(x.shape)])
    if x.dtype.kind == "b":
        op = ON_BOOL.get(op, op)
    result = record(op, x, axes=axes, keepdims=kept) if axes else fresh(x.node, (x,))
    if first is None:
        return _folded(result, out)
    total = cast(ufunc(result, first), result.dtype)
    # The graph's sum starts from 0.0, which a sum of -0.0 must not.
    if adds and axes and str(splat(first)) in ("-0.0", "None"):
        nothing = record("all", np.signbit(x) & (x == 0), axes=axes, keepdims=kept)
        total = choose(nothing, first, total, total.dtype, total.shape)
    return _folded(total, out)


def _without_nans(ufunc: np.ufunc, x: TracedArray, axis: Any, dtype: Any, out: Any, kept: bool, initial: Any,
                  where: Any) -> TracedArray:
    """``np.fmax.reduce`` with ``np.maximum``: the extreme of the others, or NaN if there are none."""
    if x.dtype.kind != "f":
        return reduce_method(ufunc, x, axis, dtype, out, kept, initial, where)
    holes, worst = np.isnan(x), -math.inf if ufunc is np.maximum else math.inf
    found = reduce_method(ufunc, np.where(holes, worst, x), axis, dtype or dtype_with(out, x), None, kept, initial, where)
    if initial is np._NoValue:
        nothing = reduce_method(np.logical_and, holes, axis, None, None, kept, True, where)
        found = choose(nothing, math.nan, found, found.dtype, found.shape)
    return _folded(found, out)


def _halved(ufunc: np.ufunc, x: TracedArray, axis: Any, dtype: Any, out: Any, kept: bool) -> TracedArray:
    """A reduction as element-wise work on halves, and halves of the result."""
    axes = normal_axes(axis, x.ndim)
    x = _in_loop(ufunc, x, dtype_with(out, x) if dtype is None and ufunc is not np.logical_xor else dtype)
    others = [a for a in range(x.ndim) if a not in axes]
    rows = reshaped(permuted(x, (*axes, *others)), (count_of(x, axes), *(x.shape[a] for a in others)))
    if not rows.shape[0]:
        rows = cast(constant(GROUPED[ufunc.__name__], (1, *rows.shape[1:]), np.int64), rows.dtype)
    while len(rows) > 1:
        half = len(rows) // 2
        rows = np.concatenate([ufunc(rows[:half], rows[half:2 * half]), rows[2 * half:]])
    return _folded(reshaped(rows, [1 if a in axes else x.shape[a] for a in range(x.ndim) if kept or a not in axes]), out)


def _in_loop(ufunc: np.ufunc, x: TracedArray, dtype: Any) -> TracedArray:
    """The operand in the dtype of the loop that folds it. Raises NumPy's error if there is none."""
    resolve(ufunc, [x, x], dtype)
    logical = ufunc.__name__.startswith("logical")
    require(not logical or dtype in (None, bool))
    return cast(x, bool if logical else x.dtype if dtype is None else dtype)


def _folded(result: TracedArray, out: Any) -> TracedArray:
    """``deliver_whole`` of a fold.

    NumPy folds into ``out`` itself, which must hold each partial result.
    """
    target = out[0] if isinstance(out, tuple) else out
    checked = isinstance(target, TracedArray) and result.dtype.kind + target.dtype.kind != "ff"
    if checked and not np.can_cast(result.dtype, target.dtype):
        raise refuse(f"a reduction of {result.dtype} into an out= of {target.dtype}", "NumPy rounds each partial result to it",
                     "Write out[...] = of the reduction")
    return deliver_whole(result, out)


def dtype_with(out: Any, x: TracedArray) -> np.dtype | None:
    """The dtype to sum in if there is an ``out=`` and no ``dtype=``."""
    out = out[0] if isinstance(out, tuple) else out
    return np.result_type(out.dtype, x.dtype) if isinstance(out, TracedArray) and not out.is_scalar else None


def count_of(x: TracedArray, axes: Any) -> int:
    """How many elements a reduction over ``axes`` folds into one."""
    return math.prod(x.shape[a] for a in normal_axes(axes, x.ndim))


# ---------------------------------------------------------------- NumPy's names
def _reduction(ufunc: np.ufunc) -> Any:
    """A handler with the parameters of ``np.sum``, or with those of ``np.max``, which has no ``dtype=``."""
    def with_dtype(a, axis=None, dtype=None, out=None, *others, **options):
        return reduce_method(ufunc, a, axis, dtype, out, *others, **options)

    def without_dtype(a, axis=None, out=None, *others, **options):
        return reduce_method(ufunc, a, axis, None, out, *others, **options)
    return with_dtype if ufunc in (np.add, np.multiply) else without_dtype


for _ufunc, _name in FOLDS.items():
    handles(getattr(np, _name))(_reduction(getattr(np, _ufunc)))


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
    count = reshaped(count, total.shape) if isinstance(count, TracedArray) else float(count)
    return cast(traced.true_divide(total, count), total.dtype)


@composite(np.mean)
def mean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=True):
    """sum / count. As in NumPy, integers use float64, and float16 is summed in float32."""
    x = lift(a)
    half = dtype is None and x.dtype == np.float16
    wide = np.float32 if half else np.float64 if dtype is None and x.dtype.kind in "biu" else dtype or dtype_with(out, x)
    result = _quotient(np.sum(x, axis, wide, out, keepdims, where=where), _count(x, axis, where))
    return deliver_whole(cast(result, np.float16) if half and out is None else result, out)


@composite(np.var)
def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=True, mean=None, correction=None):
    """The mean of squared deviations from the mean, in two passes as NumPy does."""
    require(ddof == 0 or correction is None)
    x = lift(a)
    wide = np.float64 if dtype is None and x.dtype.kind in "biu" else dtype
    count = _count(x, axis, where)
    centre = _quotient(np.sum(x, axis, wide, keepdims=True, where=where), count) if mean is None else mean
    apart = np.subtract(x, centre)
    total = np.sum(np.multiply(apart, apart), axis, wide, out, keepdims, where=where)
    return deliver_whole(_quotient(total, np.maximum(count - (ddof if correction is None else correction), 0)), out)


@composite(np.std)
def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, **options):
    """The root of the variance. NumPy takes that of an array in place."""
    square: TracedArray = var(a, axis, dtype, out, ddof, keepdims, **options)
    return cast(np.sqrt(square), square.dtype) if square.is_scalar else traced.sqrt(square, out=square)


@composite(np.nanvar)
def nanvar(*args, **options):
    """NumPy's source puts NaN into an array. So a scalar is made of an array of one element."""
    given = inspect.signature(np.nanvar).bind(*args, **options).arguments
    x = lift(given["a"])
    every = len(normal_axes(given.get("axis"), x.ndim)) == x.ndim
    scalar = every and given.get("out") is None and not given.get("keepdims")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = opened(np.nanvar)(**given | {"a": np.atleast_1d(x)} | ({"keepdims": True} if scalar else {}))
    return fresh(reshaped(found, ()).node) if scalar else found


# ---------------------------------------------------------------- positions
def _position(extreme: Any) -> Any:
    """The index of the extreme: the smallest one, or the first NaN if there is one."""
    def position(a, axis=None, out=None, *, keepdims=False):
        x = lift(a)
        shape = (1,) * x.ndim if keepdims and axis is None else None
        x = traced.ravel(x) if axis is None else x
        axis = normal_axis(0 if axis is None else axis, x.ndim)
        require(x.shape[axis] > 0)
        x = cast(x, np.uint8) if x.dtype.kind == "b" else x
        hit = record("eq", x, broadcast(extreme(x, axis, keepdims=True), x.shape))
        if x.dtype.kind == "f":
            hit = record("or", hit, record("isnan", x))
        index = record("select", hit, iota(x.shape, axis), constant(x.shape[axis], x.shape, np.int64))
        result = np.min(index, axis, keepdims=keepdims)
        x.recorder.nonnegative.add(result.node)
        return deliver_whole(reshaped(result, result.shape if shape is None else shape), out, "safe")
    return position


composite(np.argmax)(_position(np.max))
composite(np.argmin)(_position(np.min))


# ---------------------------------------------------------------- scans and order
def accumulate_method(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> TracedArray:
    """``np.add.accumulate`` and the like. Extremes and bits are scanned in steps of 1, 2, 4 ..."""
    x, name = lift(a), ufunc.__name__
    along = normal_axis(axis, x.ndim)
    require(out is not Ellipsis)  # NumPy's methods say it so
    if name in SCANS:
        summed = cast(x, dtype or dtype_with(out, x) or accumulator(x.dtype))
        return _folded(record(SCANS[name], summed, axis=along), out)
    if name not in (*GROUPED, "maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or"):
        raise refuse(f"np.{name}.accumulate", "the graph has no such scan",
                     "Write np.cumsum, np.cumprod, or a Python loop over the axis")
    rows, step = traced.moveaxis(_in_loop(ufunc, x, dtype), along, 0).copy(), 1
    while step < len(rows):
        rows = np.concatenate([rows[:step], ufunc(rows[:-step], rows[step:])])
        step *= 2
    return _folded(traced.moveaxis(rows, 0, along).copy(), out)


def _scan(ufunc: np.ufunc) -> Any:
    """``np.cumsum`` and ``np.cumprod``: without an axis over all elements."""
    def scan(a, axis=None, dtype=None, out=None):
        x = lift(a)
        rows = traced.ravel(x) if axis is None or not x.ndim else x
        return accumulate_method(ufunc, rows, 0 if axis is None else axis, dtype, out)
    return scan


handles(np.cumsum)(_scan(np.add))
handles(np.cumprod)(_scan(np.multiply))


def _sorted(op: str, a: Any, axis: Any, **options: Any) -> TracedArray:
    np.sort(np.empty(0), **options)  # raises NumPy's errors
    x = traced.ravel(a) if axis is None else lift(a)
    return record(op, x, like=op == "argsort" or None, axis=normal_axis(-1 if axis is None else axis, x.ndim))


@handles(np.sort)
def sort(a, axis=-1, kind=None, order=None, *, stable=None):
    return _sorted("sort", a, axis if axis is None else operator.index(axis), kind=kind, order=order, stable=stable)


@handles(np.argsort)
def argsort(a, axis=-1, kind=None, order=None, *, stable=None):
    result = _sorted("argsort", a, axis, kind=kind, order=order, stable=stable)
    result.recorder.nonnegative.add(result.node)
    return result


@method
def partition(x: TracedArray, kth: Any, axis: int = -1, **options: Any) -> None:
    """Sort: NumPy's own quantiles only read places that a partition puts right."""
    if x.recorder._composite not in QUANTILES:
        x.__getattr__("partition")  # refused
    x.sort(axis)


def _quantile(function: Any) -> Any:
    """NumPy's source, which is told that there is no NaN. They are put in afterwards."""
    def quantile(*args, **options):
        given = inspect.signature(function).bind(*args, **options).arguments
        if given.keys() & {"out", "weights"}:
            raise refuse(f"np.{function.__name__} with out= or weights=", "its source asks for values", SORT)
        x = lift(given["a"])
        found = lift(opened(function)(**given | {"overwrite_input": False}))
        if x.dtype.kind != "f":
            return found
        if found.dtype != x.dtype and found.size == 1 and not np.ndim(given["q"]):
            raise refuse(f"np.{function.__name__}", f"it is {found.dtype}, or {x.dtype} if there is a NaN", SORT)
        holes = broadcast(lift(np.any(np.isnan(x), given.get("axis"), keepdims=given.get("keepdims", False))), found.shape)
        return fresh(choose(holes, math.nan, found, found.dtype, found.shape).node)
    return quantile


QUANTILES = ("quantile", "percentile")
for _name in QUANTILES:
    composite(getattr(np, _name))(_quantile(getattr(np, _name)))


METHODS.update({"reduce": reduce_method, "accumulate": accumulate_method})
