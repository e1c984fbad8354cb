"""The rest of NumPy's functions: choosing, taking, rounding, comparing, and those that must be refused.

In:  NumPy calls. Out: select and gather nodes, or a TraceError that says what to write instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from .array import (
    FUNCTIONS,
    Array,
    broadcast,
    cast,
    common_dtype,
    constant,
    deliver,
    iota,
    lift,
    must_be_traced,
    operand,
    record,
    recorder_of,
    reshaped,
    settle,
    traced,
)
from .indexing import wrapped
from .recorder import refuse
from .reductions import composite, handles
from .ufuncs import elementwise

DATA_DEPENDENT = (np.nonzero, np.argwhere, np.flatnonzero, np.unique, np.extract, np.compress, np.union1d, np.intersect1d,
                  np.setdiff1d, np.trim_zeros, np.histogram, np.bincount)


# ---------------------------------------------------------------- choosing
@handles(np.where)
def where(condition, x=np._NoValue, y=np._NoValue, /):
    if x is np._NoValue:
        raise refuse("np.where(condition) with one argument", "the shape of its result depends on values",
                     "Use np.where(condition, a, b), or keep the mask")
    recorder = recorder_of(condition, x, y)
    chosen, a, b = lift(condition, recorder), operand(x, recorder), operand(y, recorder)
    dtype, shape = common_dtype(a, b), np.broadcast_shapes(*map(np.shape, (chosen, a, b)))
    return record("select", settle(chosen, bool, shape, recorder), settle(a, dtype, shape, recorder),
                  settle(b, dtype, shape, recorder))


@composite(np.select)
def select(condlist, choicelist, default=0):
    result = default
    dtype = np.result_type(*(c.dtype if isinstance(c, Array) else c for c in (*choicelist, default)))
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = where(condition, choice, result)
    return cast(result, dtype)


@handles(np.clip)
def clip(a, a_min=np._NoValue, a_max=np._NoValue, out=None, *, min=np._NoValue, max=np._NoValue, dtype=None, **options):
    low, high = (second if first is np._NoValue else first for first, second in ((a_min, min), (a_max, max)))
    low, high = (None if each is np._NoValue else each for each in (low, high))
    recorder = recorder_of(a, low, high, out)
    with recorder.composite("clip"):
        x: Any = lift(a, recorder)
        bounds = [each for each in (low, high) if each is not None]
        if not bounds:
            return deliver(x.copy(), out)
        operands = [x, *(operand(each, recorder) for each in bounds)]
        x = cast(x, dtype or common_dtype(*operands))
        if low is not None:
            x = elementwise(np.maximum, [x, operands[1]], recorder)[0]
        if high is not None:
            x = elementwise(np.minimum, [x, operands[-1]], recorder)[0]
        return deliver(x, out)


@composite(np.nan_to_num)
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    if x.dtype.kind != "f":
        return x.copy()
    limits = np.finfo(x.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    result = where(np.isnan(x), nan, x)
    result = where(np.equal(x, np.inf), high, result)
    result = cast(where(np.equal(x, -np.inf), low, result), x.dtype)
    return result if copy else deliver(result, x)


# ---------------------------------------------------------------- taking
@handles(np.take)
def take(a, indices, axis=None, out=None, mode="raise"):
    recorder = recorder_of(a, indices, out)
    x = lift(a, recorder)
    if axis is None:
        x, axis = traced.ravel(x), 0
    axis = normalize_axis_index(axis, x.ndim)
    if mode != "raise":
        indices = lift(indices, recorder)
        n = x.shape[axis]
        indices = np.clip(indices, 0, n - 1) if mode == "clip" else np.remainder(indices, n)
    result = x[(slice(None),) * axis + (indices,)]
    return deliver(result.copy() if result.ndim else result, out)


def _along(x: Array, indices: Any, axis: int) -> tuple[Array, ...]:
    """One index array per axis for ``take_along_axis``: iotas everywhere but on ``axis``."""
    positions = lift(indices, x.recorder)
    if positions.ndim != x.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    shape = np.broadcast_shapes(positions.shape, tuple(1 if i == axis else n for i, n in enumerate(x.shape)))
    taken = broadcast(positions, shape)
    return tuple(taken if i == axis else iota(x.recorder, shape, i) for i in range(x.ndim))


@composite(np.take_along_axis)
def take_along_axis(arr, indices, axis=-1):
    recorder = recorder_of(arr, indices)
    x, indices = lift(arr, recorder), lift(indices, recorder)
    if axis is None:
        x, axis = traced.ravel(x), 0
    axis = normalize_axis_index(axis, x.ndim)
    n = x.shape[axis]
    if indices.node not in recorder.nonnegative and indices.dtype.kind != "u":
        indices = wrapped(indices, n)
    places = _along(x, indices, axis)
    return record("gather", x, *(cast(p, np.int64) for p in places), axes=tuple(range(x.ndim)), row_major=False)


@handles(np.put_along_axis)
def put_along_axis(arr, indices, values, axis):
    must_be_traced(arr)
    places = _along(arr, indices, normalize_axis_index(axis, arr.ndim))
    arr[places] = values


@handles(np.put)
def put(a, ind, v, mode="raise"):
    must_be_traced(a)
    np.reshape(a, -1)[ind] = v


@handles(np.copyto)
def copyto(dst, src, casting="same_kind", where=True):
    recorder = recorder_of(dst, src, where)
    must_be_traced(dst)
    value = operand(src, recorder)
    if isinstance(value, Array) and not np.can_cast(value.dtype, dst.dtype, casting):
        raise TypeError(f"Cannot cast array data from {value.dtype!r} to {dst.dtype!r} according to the rule {casting!r}")
    settled = settle(value, dst.dtype, dst.shape, recorder)
    if where is not True:
        settled = record("select", settle(lift(where, recorder), bool, dst.shape, recorder), settled, dst)
    dst.write(settled.node)


@handles(np.putmask)
def putmask(a, mask, values):
    recorder = recorder_of(a, mask, values)
    must_be_traced(a)
    given = lift(values, recorder)
    if given.shape not in ((), (1,), a.shape):
        raise refuse("np.putmask with fewer values than elements", "they repeat by position", "Use np.where")
    copyto(a, given, "unsafe", mask)


@handles(np.fill_diagonal)
def fill_diagonal(a, val, wrap=False):
    n = min(a.shape)
    on = iota(a.recorder, (n,), 0)
    a[(on,) * a.ndim] = val


@handles(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x, window_shape, axis=None, *, subok=False, writeable=False):
    """Windows as a gather along each windowed axis; NumPy's is a read-only view."""
    sides = tuple(np.atleast_1d(window_shape).tolist())
    axes = normalize_axis_tuple(tuple(range(x.ndim)) if axis is None else axis, x.ndim)
    for along, side in zip(axes, sides, strict=True):
        count = x.shape[along] - side + 1
        if count <= 0:
            raise ValueError("window shape cannot be larger than input array shape")
        places = record("add", iota(x.recorder, (count, side), 0), iota(x.recorder, (count, side), 1))
        x.recorder.nonnegative.add(places.node)
        x = np.moveaxis(x[(slice(None),) * along + (places,)], along + 1, -1)
    return x.copy()


@composite(np.diff)
def diff(a, n=1, axis=-1, prepend=np._NoValue, append=np._NoValue):
    axis = normalize_axis_index(axis, a.ndim)
    parts = [_edge_part(prepend, a, axis), a, _edge_part(append, a, axis)]
    x = np.concatenate([part for part in parts if part is not None], axis) if len([p for p in parts if p is not None]) > 1 \
        else a
    for _ in range(n):
        after, before = ((slice(None),) * axis + (s,) for s in (slice(1, None), slice(None, -1)))
        x = np.not_equal(x[after], x[before]) if x.dtype.kind == "b" else np.subtract(x[after], x[before])
    return x


def _edge_part(value: Any, a: Array, axis: int) -> Array | None:
    if value is np._NoValue:
        return None
    part = lift(value, a.recorder)
    return broadcast(part, (*a.shape[:axis], 1, *a.shape[axis + 1:])) if part.ndim == 0 else part


handles(np.astype)(lambda x, dtype, /, *, copy=True, device=None: x.astype(dtype, copy=copy))


@composite(np.block)
def block(arrays):
    """Lists join along the last axis, lists of lists along the one before it, and so on."""
    depth, inner = 0, arrays
    while isinstance(inner, list):
        depth, inner = depth + 1, inner[0]
    recorder = recorder_of(arrays)
    rank = max(depth, *(lift(each, recorder).ndim for each in _leaves(arrays)))

    def join(each: Any, level: int) -> Array:
        if isinstance(each, list):
            return np.concatenate([join(part, level - 1) for part in each], axis=-level)
        part = lift(each, recorder)
        return reshaped(part, (1,) * (rank - part.ndim) + part.shape)
    return join(arrays, depth)


def _leaves(nest: Any) -> list[Any]:
    return [leaf for each in nest for leaf in _leaves(each)] if isinstance(nest, list) else [nest]


# ---------------------------------------------------------------- rounding and comparing
@handles(np.round, np.around)
def round(a, decimals=0, out=None):
    x = lift(a, recorder_of(a, out))
    if x.dtype.kind in "iu":
        if decimals < 0:
            raise refuse("np.round of integers to tens", "it is no primitive", "Write x // 10 * 10")
        return deliver(x.copy(), out)
    if decimals == 0:
        return deliver(traced.rint(x), out)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return deliver(traced.divide(np.rint(np.multiply(x, scale)), scale), out)
    return deliver(traced.multiply(np.rint(np.divide(x, scale)), scale), out)


@handles(np.fix)
def fix(x, out=None):
    return deliver(traced.trunc(x), out)


@composite(np.isclose)
def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    recorder = recorder_of(a, b)
    x, y = lift(a, recorder), lift(b, recorder)
    if y.dtype.kind != "f":
        y = cast(y, np.result_type(y.dtype, 1.0))
    near = np.less_equal(np.abs(np.subtract(x, y)), np.add(atol, np.multiply(rtol, np.abs(y))))
    result = np.logical_or(np.logical_and(near, np.isfinite(y)), np.equal(x, y))
    if equal_nan:
        result = np.logical_or(result, np.logical_and(np.isnan(x), np.isnan(y)))
    return result


@composite(np.allclose)
def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    return np.all(isclose(a, b, rtol, atol, equal_nan))


@composite(np.array_equal)
def array_equal(a1, a2, equal_nan=False):
    recorder = recorder_of(a1, a2)
    x, y = lift(a1, recorder), lift(a2, recorder)
    if x.shape != y.shape:
        return False
    equal = np.equal(x, y)
    if equal_nan:
        equal = np.logical_or(equal, np.logical_and(np.isnan(x), np.isnan(y)))
    return np.all(equal)


@composite(np.average)
def average(a, axis=None, weights=None, returned=False, *, keepdims=False):
    recorder = recorder_of(a, weights)
    x = lift(a, recorder)
    if weights is None:
        result = np.mean(x, axis, keepdims=keepdims)
        return (result, np.full_like(result, x.size / result.size)) if returned else result
    w = lift(weights, recorder)
    dtype = np.result_type(x.dtype, w.dtype, "f8") if x.dtype.kind in "biu" else np.result_type(x.dtype, w.dtype)
    if w.shape != x.shape:
        along = normalize_axis_index(axis, x.ndim)
        w = broadcast(reshaped(w, [w.size if i == along else 1 for i in range(x.ndim)]), x.shape)
    total = np.sum(w, axis, dtype, keepdims=keepdims)
    result = np.divide(np.sum(np.multiply(x, w, dtype=dtype), axis, keepdims=keepdims), total)
    return (result, total) if returned else result


@composite(np.median)
def median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    x = a if axis is not None else np.ravel(a)
    along = normalize_axis_index(0 if axis is None else axis, x.ndim)
    n = x.shape[along]
    ordered = np.sort(x, axis=along)
    pick = (slice(None),) * along
    middle = ordered[(*pick, slice((n - 1) // 2, n // 2 + 1))]
    result = traced.mean(middle, axis=along, keepdims=keepdims)
    if x.dtype.kind == "f":
        has_nan = traced.any(np.isnan(x), axis=along, keepdims=keepdims)
        result = where(has_nan, constant(x.recorder, np.nan, result.shape, result.dtype), result)
    return deliver(traced.reshape(result, (1,) * a.ndim) if keepdims and axis is None else result, out)


# ---------------------------------------------------------------- what has no fixed shape
def _data_dependent(name: str) -> Any:
    def handler(*args: Any, **kwargs: Any) -> Any:
        raise refuse(f"np.{name}", "the shape of its result depends on values",
                     "Keep a mask of the full shape and use np.where(mask, a, b), np.count_nonzero or where=")
    return handler


for _function in DATA_DEPENDENT:
    FUNCTIONS[_function] = _data_dependent(_function.__name__)
