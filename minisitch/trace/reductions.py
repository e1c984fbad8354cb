"""Reductions and scans: sum, max, mean, var, argmax, cumsum ... through all three of NumPy's doors.

In:  ``np.sum(x)``, ``x.sum()`` (which calls the former) and ``np.add.reduce(x)``.
Out: one ``reduce`` node, or the composition NumPy itself computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from .array import (
    FUNCTIONS,
    UFUNC_METHODS,
    Array,
    broadcast,
    cast,
    constant,
    count_of,
    deliver,
    fresh,
    given,
    iota,
    lift,
    normal_axes,
    record,
    recorder_of,
    reshaped,
    settle,
    traced,
)
from .recorder import refuse

FOLDS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"}
PAIRS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "all": np.logical_and,
         "any": np.logical_or}
START = {"sum": 0, "prod": 1, "all": True, "any": False}


def handles(*functions: Callable) -> Callable[[Callable], Callable]:
    """Register the handler of a NumPy function; its nodes carry the user's function name."""
    def register(handler: Callable) -> Callable:
        FUNCTIONS.update(dict.fromkeys(functions, handler))
        return handler
    return register


def composite(*functions: Callable) -> Callable[[Callable], Callable]:
    """Register the handler of a NumPy function that becomes several nodes; they carry its name as ``via``."""
    def register(handler: Callable) -> Callable:
        @wraps(handler)
        def named(*args: Any, **kwargs: Any) -> Any:
            with recorder_of(*args, *kwargs.values()).composite(handler.__name__):
                return handler(*args, **kwargs)
        FUNCTIONS.update(dict.fromkeys(functions, named))
        return named
    return register


# ---------------------------------------------------------------- the one door inside
def accumulator(dtype: np.dtype) -> np.dtype:
    """What NumPy sums a dtype in: small integers and bools widen."""
    if dtype.kind in "bi":
        return np.result_type(dtype, np.int64)
    return np.result_type(dtype, np.uint64) if dtype.kind == "u" else dtype


def fold(op: str, x: Array, axis: Any = None, *, dtype: Any = None, keepdims: bool = False, initial: Any = None,
         where: Any = True) -> Array:
    """Reduce ``x`` with ``op``, as ``ufunc.reduce`` does."""
    axes = normal_axes(axis, x.ndim)
    if op in ("any", "all"):
        x = cast(x, bool)
    elif dtype is not None or op in ("sum", "prod"):
        x = cast(x, accumulator(x.dtype) if dtype is None else dtype)
    if where is not True:
        x = _only_where(op, x, where, initial)
    if initial is None and op in ("max", "min") and x.size == 0 and count_of(x.shape, axes) == 0:
        raise ValueError(f"zero-size array to reduction operation {PAIRS[op].__name__} which has no identity")
    result = _reduce(op, x, axes, keepdims)
    return result if initial is None else cast(PAIRS[op](result, initial), result.dtype)


def _only_where(op: str, x: Array, where: Any, initial: Any) -> Array:
    """Put the neutral element in the places that do not take part."""
    neutral = START.get(op, initial)
    if neutral is None:
        raise ValueError(f"reduction operation '{PAIRS[op].__name__}' does not have an identity, so to use a where mask "
                         "one has to specify 'initial'")
    mask = lift(where, x.recorder)
    shape = np.broadcast_shapes(x.shape, mask.shape)
    return record("select", settle(mask, bool, shape, x.recorder), settle(x, x.dtype, shape, x.recorder),
                  constant(x.recorder, neutral, shape, x.dtype))


def _reduce(op: str, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    if x.dtype.kind == "b":
        op = {"max": "any", "min": "all", "sum": "any", "prod": "all"}.get(op, op)
    if not axes:
        return fresh(x.recorder, x.node, x.row_major)
    if x.size == 0 and op in ("max", "min"):  # other axes are empty: so is the result
        shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes)
        return constant(x.recorder, 0, shape, x.dtype)
    return record(op, x, axes=axes, keepdims=bool(keepdims))


# ---------------------------------------------------------------- NumPy's names for it
def _reduction(op: str, takes_dtype: bool) -> Callable:
    """The handler with the signature of ``np.sum`` or of ``np.max``."""
    def with_dtype(a, axis=None, dtype=None, out=None, keepdims=np._NoValue, initial=np._NoValue, where=np._NoValue):
        return without_dtype(a, axis, out, keepdims, initial, where, dtype=dtype)

    def without_dtype(a, axis=None, out=None, keepdims=np._NoValue, initial=np._NoValue, where=np._NoValue, dtype=None):
        recorder = recorder_of(a, out, where)
        result = fold(op, lift(a, recorder), axis, dtype=dtype, keepdims=given(keepdims, False),
                      initial=given(initial), where=given(where, True))
        return deliver(result, out, "unsafe")
    return with_dtype if takes_dtype else without_dtype


handles(np.sum)(_reduction("sum", True))
handles(np.prod)(_reduction("prod", True))
handles(np.max, np.amax)(_reduction("max", False))
handles(np.min, np.amin)(_reduction("min", False))


def _logical_reduction(op: str) -> Callable:
    def handler(a, axis=None, out=None, keepdims=np._NoValue, *, where=np._NoValue):
        recorder = recorder_of(a, out, where)
        result = fold(op, lift(a, recorder), axis, keepdims=given(keepdims, False), where=given(where, True))
        return deliver(result, out, "unsafe")
    return handler


handles(np.any)(_logical_reduction("any"))
handles(np.all)(_logical_reduction("all"))


def reduce_method(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
                  initial: Any = np._NoValue, where: Any = True) -> Array:
    """``ufunc.reduce``: axis 0 unless said otherwise."""
    if ufunc.__name__ not in FOLDS:
        raise refuse(f"np.{ufunc.__name__}.reduce", "it is no reduction of the graph",
                     f"Reductions are {', '.join(FOLDS)}")
    recorder = recorder_of(a, out, where)
    result = fold(FOLDS[ufunc.__name__], lift(a, recorder), axis, dtype=dtype, keepdims=keepdims, initial=given(initial),
                  where=where)
    return deliver(result, out, "unsafe")


UFUNC_METHODS["reduce"] = reduce_method


# ---------------------------------------------------------------- averages
def _count(x: Array, axis: Any, where: Any) -> Any:
    """How many elements each result folds: a number, or an array where a mask decides."""
    if where is True:
        return count_of(x.shape, normal_axes(axis, x.ndim))
    mask = broadcast(lift(where, x.recorder), x.shape)
    return fold("sum", mask, axis, keepdims=True)


def _quotient(total: Array, count: Any) -> Array:
    """total / count in the dtype of total."""
    if isinstance(count, Array):
        return cast(traced.true_divide(total, reshaped(count, total.shape)), total.dtype)
    if total.dtype.kind != "f":
        return cast(np.true_divide(total, count), total.dtype)
    return record("div", total, constant(total.recorder, float(count), total.shape, total.dtype))


@composite(np.mean)
def mean(a, axis=None, dtype=None, out=None, keepdims=np._NoValue, *, where=np._NoValue):
    """sum / count; integers in float64, float16 summed in float32, as NumPy does."""
    x, where = lift(a, recorder_of(a, out, where)), given(where, True)
    wide = dtype
    if dtype is None and x.dtype.kind in "biu":
        wide = np.float64
    elif dtype is None and x.dtype == np.float16:
        wide = np.float32
    total = fold("sum", x, axis, dtype=wide, keepdims=given(keepdims, False), where=where)
    result = _quotient(total, _count(x, axis, where))
    return deliver(cast(result, np.float16) if dtype is None and x.dtype == np.float16 else result, out, "unsafe")


@composite(np.var)
def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=np._NoValue, *, where=np._NoValue, mean=np._NoValue,
        correction=np._NoValue):
    """The mean of squared deviations from the mean, in two passes as NumPy does."""
    x, where = lift(a, recorder_of(a, out, where)), given(where, True)
    ddof = given(correction, ddof)
    wide = np.float64 if dtype is None and x.dtype.kind in "biu" else dtype
    count = _count(x, axis, where)
    centre = given(mean)
    if centre is None:
        centre = _quotient(fold("sum", x, axis, dtype=wide, keepdims=True, where=where), count)
    apart = np.subtract(x, centre)
    total = fold("sum", np.multiply(apart, apart), axis, dtype=wide, keepdims=given(keepdims, False), where=where)
    degrees = np.maximum(count - ddof, 0) if isinstance(count, Array) else max(count - ddof, 0)
    return deliver(_quotient(total, degrees), out, "unsafe")


@composite(np.std)
def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=np._NoValue, *, where=np._NoValue, mean=np._NoValue,
        correction=np._NoValue):
    """The square root of the variance."""
    variance = var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction)
    return deliver(np.sqrt(variance), out, "unsafe")


@composite(np.ptp)
def ptp(a, axis=None, out=None, keepdims=np._NoValue):
    """The largest less the smallest."""
    keep = given(keepdims, False)
    return deliver(traced.subtract(fold("max", a, axis, keepdims=keep), fold("min", a, axis, keepdims=keep)), out, "unsafe")


@composite(np.count_nonzero)
def count_nonzero(a, axis=None, *, keepdims=False):
    return fold("sum", cast(a, bool), axis, keepdims=keepdims)


# ---------------------------------------------------------------- positions
def _position(op: str, a: Any, axis: Any, out: Any, keepdims: Any) -> Array:
    """Where the extreme is: the least index that hits it, and the first NaN where there is one."""
    x = lift(a, recorder_of(a, out))
    keep = given(keepdims, False)
    rank = x.ndim
    if axis is None:
        x, axis, along_all = traced.ravel(x), 0, True
    else:
        (axis,), along_all = normal_axes(axis, x.ndim), False
    if x.shape[axis] == 0:
        raise ValueError(f"attempt to get arg{op} of an empty sequence")
    if x.dtype.kind == "b":
        x = cast(x, np.uint8)
    extreme = broadcast(_reduce(op, x, (axis,), True), x.shape)
    hit = record("eq", x, extreme)
    if x.dtype.kind == "f":
        hit = record("or", hit, record("isnan", x))
    index = record("select", hit, iota(x.recorder, x.shape, axis),
                   constant(x.recorder, x.shape[axis], x.shape, np.int64))
    result = _reduce("min", index, (axis,), keep and not along_all)
    x.recorder.nonnegative.add(result.node)
    return deliver(reshaped(result, (1,) * rank) if keep and along_all else result, out)


@composite(np.argmax)
def argmax(a, axis=None, out=None, *, keepdims=np._NoValue):
    return _position("max", a, axis, out, keepdims)


@composite(np.argmin)
def argmin(a, axis=None, out=None, *, keepdims=np._NoValue):
    return _position("min", a, axis, out, keepdims)


# ---------------------------------------------------------------- scans and order
def _scan(op: str, a: Any, axis: Any, dtype: Any, out: Any) -> Array:
    x = lift(a, recorder_of(a, out))
    if axis is None:
        x, axis = traced.ravel(x), 0
    if x.ndim == 0:
        x = traced.reshape(x, 1)
    (axis,) = normal_axes(axis, x.ndim)
    return deliver(record(op, cast(x, accumulator(x.dtype) if dtype is None else dtype), axis=axis), out, "unsafe")


@handles(np.cumsum)
def cumsum(a, axis=None, dtype=None, out=None):
    return _scan("cumsum", a, axis, dtype, out)


@handles(np.cumprod)
def cumprod(a, axis=None, dtype=None, out=None):
    return _scan("cumprod", a, axis, dtype, out)


def accumulate_method(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Array:
    """``np.add.accumulate`` and ``np.multiply.accumulate``."""
    scans = {"add": "cumsum", "multiply": "cumprod"}
    if ufunc.__name__ not in scans:
        raise refuse(f"np.{ufunc.__name__}.accumulate", "only sums and products have a scan in the graph",
                     "Write np.cumsum, np.cumprod, or a Python loop over the axis")
    return _scan(scans[ufunc.__name__], a, axis, dtype, out)


UFUNC_METHODS["accumulate"] = accumulate_method


@handles(np.sort)
def sort(a, axis=-1, kind=None, order=None, *, stable=None):
    x, axis = (traced.ravel(a), 0) if axis is None else (a, normal_axes(axis, a.ndim)[0])
    return record("sort", x, axis=axis)


@handles(np.argsort)
def argsort(a, axis=-1, kind=None, order=None, *, stable=None):
    x, axis = (traced.ravel(a), 0) if axis is None else (a, normal_axes(axis, a.ndim)[0])
    result = record("argsort", x, axis=axis)
    x.recorder.nonnegative.add(result.node)
    return result


# ---------------------------------------------------------------- reductions that skip NaN
def _without_nan(a: Array, filler: float) -> Array:
    """``a`` with another value in place of each NaN."""
    return traced.where(np.isnan(a), filler, a) if a.dtype.kind == "f" else a


@composite(np.nansum)
def nansum(a, axis=None, dtype=None, out=None, keepdims=np._NoValue, initial=np._NoValue, where=np._NoValue):
    return np.sum(_without_nan(a, 0.0), axis, dtype, out, keepdims, initial, where)


@composite(np.nanprod)
def nanprod(a, axis=None, dtype=None, out=None, keepdims=np._NoValue, initial=np._NoValue, where=np._NoValue):
    return np.prod(_without_nan(a, 1.0), axis, dtype, out, keepdims, initial, where)


@composite(np.nanmean)
def nanmean(a, axis=None, dtype=None, out=None, keepdims=np._NoValue, *, where=np._NoValue):
    if a.dtype.kind != "f":
        return mean(a, axis, dtype, out, keepdims, where=where)
    return mean(a, axis, dtype, out, keepdims, where=np.logical_and(~np.isnan(a), given(where, True)))


@composite(np.nanvar)
def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims=np._NoValue, *, where=np._NoValue, mean=np._NoValue,
           correction=np._NoValue):
    chosen = given(where, True) if a.dtype.kind != "f" else np.logical_and(~np.isnan(a), given(where, True))
    options = {"where": chosen, "mean": mean, "correction": correction}
    variance = var(_without_nan(a, 0.0), axis, dtype, None, ddof, keepdims, **options)
    degrees = fold("sum", broadcast(lift(chosen, a.recorder), a.shape), axis, keepdims=given(keepdims, False))
    ddof = given(correction, ddof)
    return deliver(traced.where(degrees > ddof, variance, np.nan) if a.dtype.kind == "f" else variance, out, "unsafe")


@composite(np.nanstd)
def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims=np._NoValue, *, where=np._NoValue, mean=np._NoValue,
           correction=np._NoValue):
    options = {"where": where, "mean": mean, "correction": correction}
    return deliver(traced.sqrt(nanvar(a, axis, dtype, None, ddof, keepdims, **options)), out, "unsafe")


def _nan_extreme(op: str, a: Array, axis: Any, out: Any, keepdims: Any) -> Array:
    """The extreme of the numbers; NaN where there is none."""
    if a.dtype.kind != "f":
        return deliver(fold(op, a, axis, keepdims=given(keepdims, False)), out, "unsafe")
    keep, missing = given(keepdims, False), traced.isnan(a)
    extreme = fold(op, traced.where(missing, -np.inf if op == "max" else np.inf, a), axis, keepdims=keep)
    return deliver(traced.where(fold("all", missing, axis, keepdims=keep), np.nan, extreme), out, "unsafe")


@composite(np.nanmax)
def nanmax(a, axis=None, out=None, keepdims=np._NoValue):
    return _nan_extreme("max", a, axis, out, keepdims)


@composite(np.nanmin)
def nanmin(a, axis=None, out=None, keepdims=np._NoValue):
    return _nan_extreme("min", a, axis, out, keepdims)

