"""Reductions and scans: sum, max, mean, var, argmax, cumsum ... in NumPy's three spellings.

In:  ``np.sum(x)``, ``x.sum()`` and ``np.add.reduce(x)``: the first two call the third.
Out: one ``reduce`` node, or the composition that NumPy computes.
"""

import math
import operator
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
    deliver,
    fresh,
    handles,
    iota,
    lift,
    normal_axes,
    normal_axis,
    permuted,
    record,
    reshaped,
    splat,
    traced,
)
from .guards import assignable, guard
from .recorder import refuse
from .ufuncs import METHODS, resolve

FOLDS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"}
ON_BOOL = {"max": "any", "min": "all", "sum": "any", "prod": "all"}
START = {"sum": -0.0, "prod": 1, "all": True, "any": False}
SCANS = {"add": "cumsum", "multiply": "cumprod"}
# Of any grouping, so two halves are folded into one. Its value on no elements, if it has one.
GROUPED = {"bitwise_and": -1, "bitwise_or": 0, "bitwise_xor": 0, "logical_xor": False, "fmax": None, "fmin": None, "gcd": 0}


# ---------------------------------------------------------------- one function for all spellings
def accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype that NumPy sums in. Small integers and bools widen."""
    if dtype.kind in "bi":
        return np.result_type(dtype, np.int64)
    return np.result_type(dtype, np.uint64) if dtype.kind == "u" else dtype


def reduce_method(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None,
                  keepdims: bool = False, initial: Any = np._NoValue,
                  where: Any = True) -> TracedArray:
    """``ufunc.reduce``: one node, after NumPy's casts and with its defaults."""
    if ufunc.__name__ in GROUPED and where is True and initial in (None, np._NoValue):
        return _halved(ufunc, lift(a), axis, dtype, out, keepdims)
    if ufunc.__name__ not in FOLDS:
        raise refuse(f"np.{ufunc.__name__}.reduce", "the graph has no such reduction",
                     f"Reductions are {', '.join((*FOLDS, *GROUPED))}; "
                     "the last seven take no where= and no initial=")
    op, x = FOLDS[ufunc.__name__], lift(a)
    # a number may be folded along an axis it lacks
    absent = not x.ndim and not isinstance(axis, tuple) and axis in (0, -1)
    axes = () if absent else normal_axes(axis, x.ndim)
    if out is Ellipsis or (op in ("any", "all") and dtype not in (None, bool)):
        raise TypeError("no such reduction")
    dtype = dtype_with(out, x) if dtype is None else dtype
    start = START.get(op) if initial is np._NoValue else initial  # None: the first element
    if op in ("any", "all"):
        x = cast(x, bool)
    elif dtype is not None or op in ("sum", "prod"):
        x = cast(x, accumulator(x.dtype) if dtype is None else dtype)
    adds = op == "sum" and x.dtype.kind == "f"
    if adds and (initial is None or (initial is np._NoValue and not axes)):
        initial = -0.0 if initial is None else 0.0
    initial = None if initial is np._NoValue or initial is None else _first(initial, x.dtype)
    if where is not True:
        if start is None:
            raise ValueError(f"reduction operation '{ufunc.__name__}' does not have an identity, "
                             "so to use a where mask one has to specify 'initial'")
        mask = bools(where)
        broadcast(mask, x.shape)  # it is not stretched to the mask
        x = choose(mask, x, cast(lift(START.get(op, initial)), x.dtype), x.dtype, x.shape)
    if start is None and x.size == 0 and count_of(x, axes) == 0:
        raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
    if x.dtype.kind == "b":
        op = ON_BOOL.get(op, op)
    # ``initial`` is the only value
    if initial is not None and op in ("max", "min") and x.size == 0 and count_of(x, axes) == 0:
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes]
        return _into(out, cast(broadcast(lift(initial), shape), x.dtype))
    result = record(op, x, axes=axes, keepdims=bool(operator.index(keepdims))) if axes else fresh(x.node, x.row_major)
    if initial is None:
        return _into(out, result)
    total = cast(ufunc(result, initial), result.dtype)
    # The graph's sum starts from 0.0, which a sum of -0.0 must not.
    if adds and axes and str(splat(initial)) in ("-0.0", "None"):
        nothing = record("all", np.signbit(x) & (x == 0), axes=axes, keepdims=bool(keepdims))
        total = choose(nothing, initial, total, total.dtype, total.shape)
    return _into(out, total)


def _halved(ufunc: np.ufunc, x: TracedArray, axis: Any, dtype: Any, out: Any, keepdims: bool) -> TracedArray:
    """A reduction as element-wise work on halves, and halves of the result."""
    axes = normal_axes(axis, x.ndim)
    _require_loop(ufunc, x, dtype)
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = [1 if a in axes else x.shape[a] for a in range(x.ndim) if keepdims or a not in axes]
    first = permuted(x if dtype is None else cast(x, dtype), (*axes, *kept))
    rows = reshaped(first, (count_of(x, axes), *(x.shape[a] for a in kept)))
    if not rows.shape[0]:
        if GROUPED[ufunc.__name__] is None:
            raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
        rows = cast(constant(GROUPED[ufunc.__name__], (1, *rows.shape[1:]), np.int64), rows.dtype)
    while len(rows) > 1:
        half = len(rows) // 2
        folded = ufunc(rows[:half], rows[half:2 * half])
        rows = np.concatenate([folded, cast(rows[2 * half:], folded.dtype)])
    return _into(out, reshaped(cast(lift(rows), bool) if ufunc.__name__ == "logical_xor" else rows, shape))


def _require_loop(ufunc: np.ufunc, x: TracedArray, dtype: Any) -> None:
    """Raise NumPy's TypeError for operands that the ufunc does not take."""
    resolve(ufunc, [x, x], dtype)
    if ufunc.__name__.startswith("logical") and dtype not in (None, bool):
        raise TypeError("a logical operation gives bools")


def _first(initial: Any, dtype: np.dtype) -> TracedArray:
    """``initial=`` in the dtype of the reduction, as NumPy stores it into an array of it."""
    value = cast(assignable(initial, dtype), dtype)
    if value.ndim:
        raise ValueError("setting an array element with a sequence.")
    return value


def _into(out: Any, result: TracedArray) -> TracedArray:
    """``deliver``, where ``out=`` is not stretched to."""
    target = out[0] if isinstance(out, tuple) else out
    if isinstance(target, TracedArray) and not target.is_scalar and target.shape != result.shape:
        raise ValueError(f"output parameter for reduction has shape {target.shape}, not {result.shape}")
    return deliver(result, out, "unsafe")


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
    return _into(out, cast(result, np.float16) if half else result)


@composite(np.average)
def average(a, axis=None, weights=None, returned=False, *, keepdims=False):
    """sum(x * weights) / sum(weights). NumPy's own source does the rest, as weights of another shape."""
    if weights is None:
        return NotImplemented
    x, w = lift(a), lift(weights)
    if w.ndim == 1 < x.ndim and type(axis) is int and w.shape == x.shape[axis:][:1]:
        w = reshaped(w, [w.size if i == axis % x.ndim else 1 for i in range(x.ndim)])
    elif w.shape != x.shape:
        return NotImplemented
    dtype = np.result_type(x.dtype, w.dtype, *(["f8"] if x.dtype.kind in "biu" else []))
    total = np.sum(w, axis, dtype, keepdims=keepdims)
    guard(lift(np.any(total == 0)), ZeroDivisionError, "Weights sum to zero, can't be normalized")
    result = np.sum(np.multiply(x, w, dtype=dtype), axis, keepdims=keepdims) / total
    if not returned:
        return result
    return result, total if total.shape == result.shape else np.broadcast_to(total, result.shape).copy()


def _ddof(ddof: Any, correction: Any) -> Any:
    if ddof != 0 and correction is not None:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return ddof if correction is None else correction


@composite(np.var)
def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=True, mean=None, correction=None):
    """The mean of squared deviations from the mean, in two passes as NumPy does."""
    x, ddof = lift(a), _ddof(ddof, correction)
    wide = np.float64 if dtype is None and x.dtype.kind in "biu" else dtype
    count = _count(x, axis, where)
    centre = _quotient(np.sum(x, axis, wide, keepdims=True, where=where), count) if mean is None else mean
    apart = np.subtract(x, centre)
    total = np.sum(np.multiply(apart, apart), axis, wide or dtype_with(out, apart), keepdims=keepdims, where=where)
    degrees = np.maximum(count - ddof, 0) if isinstance(count, TracedArray) else np.maximum(count - ddof, 0).item()
    return _into(out, _quotient(total, degrees))


@composite(np.std)
def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, **options):
    """The square root of the variance."""
    variance: TracedArray = var(a, axis, dtype, None, ddof, keepdims, **options)
    root = np.sqrt(variance)
    if variance.ndim and variance.dtype.kind != "f":  # NumPy takes the root of an array in place
        raise TypeError("a root of integers is no integer")
    return _into(out, cast(root, variance.dtype))


# ---------------------------------------------------------------- positions
def _position(extreme: Any, a: Any, axis: Any, out: Any, keepdims: bool) -> TracedArray:
    """The index of the extreme: the smallest one, or the first NaN if there is one."""
    x = lift(a)
    shape = (1,) * x.ndim if keepdims and axis is None else None
    if axis is None:
        x, axis = traced.ravel(x), 0
    axis = normal_axis(axis, x.ndim)
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
    if isinstance(out, TracedArray) and not np.can_cast(out.dtype, np.int64):
        raise TypeError(f"Cannot cast array data from {out.dtype!r} to int64 according to the rule 'safe'")
    return _into(out, reshaped(result, result.shape if shape is None else shape))


@composite(np.argmax)
def argmax(a, axis=None, out=None, *, keepdims=False):
    return _position(np.max, a, axis, out, keepdims)


@composite(np.argmin)
def argmin(a, axis=None, out=None, *, keepdims=False):
    return _position(np.min, a, axis, out, keepdims)


# ---------------------------------------------------------------- without the NaNs
def _nan_extreme(function: Any, ufunc: np.ufunc, worst: float) -> None:
    @composite(function)
    def extreme(a, axis=None, out=None, keepdims=False, initial=np._NoValue, where=True):
        x = lift(a)
        if x.dtype.kind != "f":
            return reduce_method(ufunc, x, axis, None, out, keepdims, initial, where)
        holes = np.isnan(x)
        found = reduce_method(ufunc, np.where(holes, worst, x), axis, None, None, keepdims, initial, where)
        if initial is np._NoValue:
            nothing = reduce_method(np.logical_and, holes, axis, None, None, keepdims, True, where)
            found = choose(nothing, math.nan, found, x.dtype, found.shape)
        return _into(out, found)


_nan_extreme(np.nanmax, np.maximum, -math.inf)
_nan_extreme(np.nanmin, np.minimum, math.inf)


def _nan_position(function: Any, plain: Any, worst: float) -> None:
    @composite(function)
    def position(a, axis=None, out=None, *, keepdims=False):
        x = lift(a)
        if x.dtype.kind == "f":
            holes = np.isnan(x)
            guard(np.all(holes, axis), ValueError, "All-NaN slice encountered")
            x = np.where(holes, worst, x)
        return plain(x, axis, out, keepdims=keepdims)


_nan_position(np.nanargmax, np.argmax, -math.inf)
_nan_position(np.nanargmin, np.argmin, math.inf)


@composite(np.nanmean)
def nanmean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=True):
    x = lift(a)
    if x.dtype.kind != "f":
        return np.mean(x, axis, dtype, out, keepdims, where=where)
    present = ~np.isnan(x)
    total = np.sum(np.where(present, x, 0), axis, dtype, keepdims=keepdims, where=where)
    return _into(out, cast(total / np.sum(present, axis, keepdims=keepdims, where=where), total.dtype))


@composite(np.nanvar)
def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=True, mean=None, correction=None):
    x, ddof = lift(a), _ddof(ddof, correction)
    if x.dtype.kind != "f":
        return np.var(x, axis, dtype, out, ddof, keepdims, where=where, mean=mean)
    centre = nanmean(x, axis, dtype, None, True, where=where) if mean is None else mean
    apart = np.where(np.isnan(x), 0, cast(x - centre, x.dtype))
    total = np.sum(apart * apart, axis, dtype, keepdims=keepdims, where=where)
    degrees = np.sum(~np.isnan(x), axis, keepdims=keepdims, where=where) - ddof
    return _into(out, choose(degrees <= 0, math.nan, cast(total / degrees, total.dtype), total.dtype, total.shape))


@composite(np.nanstd)
def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, **options):
    return _into(out, np.sqrt(nanvar(a, axis, dtype, None, ddof, keepdims, **options)))


# ---------------------------------------------------------------- scans and order
def accumulate_method(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> TracedArray:
    """``np.add.accumulate`` and the like. Extremes and bits are scanned in steps of 1, 2, 4 ..."""
    x = lift(a)
    along = normal_axis(axis, x.ndim)
    if ufunc.__name__ in (*GROUPED, "maximum", "minimum", "logical_and", "logical_or"):
        _require_loop(ufunc, x, dtype)
        rows = traced.moveaxis(x if dtype is None else cast(x, dtype), along, 0)
        rows = cast(rows, bool) if ufunc.__name__.startswith("logical") else rows.copy()
        step = 1
        while step < len(rows):
            rows = np.concatenate([rows[:step], ufunc(rows[:-step], rows[step:])])
            step *= 2
        return _into(out, traced.moveaxis(rows, 0, along).copy())
    if ufunc.__name__ not in SCANS:
        raise refuse(f"np.{ufunc.__name__}.accumulate", "the graph has no such scan",
                     "Write np.cumsum, np.cumprod, or a Python loop over the axis")
    summed = cast(x, dtype or dtype_with(out, x) or accumulator(x.dtype))
    return _into(out, record(SCANS[ufunc.__name__], summed, axis=along))


def _scan(ufunc: np.ufunc, a: Any, axis: Any, dtype: Any, out: Any) -> TracedArray:
    """``np.cumsum`` and ``np.cumprod``: without an axis over all elements."""
    x = lift(a)
    return accumulate_method(ufunc, traced.ravel(x) if axis is None or not x.ndim else x, 0 if axis is None else axis, dtype, out)


@handles(np.cumsum)
def cumsum(a, axis=None, dtype=None, out=None):
    return _scan(np.add, a, axis, dtype, out)


@handles(np.cumprod)
def cumprod(a, axis=None, dtype=None, out=None):
    return _scan(np.multiply, a, axis, dtype, out)


def _along(a: Any, axis: Any, **options: Any) -> tuple[TracedArray, int]:
    """The array to sort, and the axis to sort along."""
    np.sort(np.empty(0), **options)  # raises NumPy's errors
    x = traced.ravel(a) if axis is None else lift(a)
    return x, normal_axis(-1 if axis is None else axis, x.ndim)


@handles(np.sort)
def sort(a, axis=-1, kind=None, order=None, *, stable=None):
    x, along = _along(a, axis if axis is None else operator.index(axis), kind=kind, order=order, stable=stable)
    return record("sort", x, axis=along)


@handles(np.argsort)
def argsort(a, axis=-1, kind=None, order=None, *, stable=None):
    x, along = _along(a, axis, kind=kind, order=order, stable=stable)
    result = record("argsort", x, axis=along)
    x.recorder.nonnegative.add(result.node)
    return result


METHODS.update({"reduce": reduce_method, "accumulate": accumulate_method})
