"""The rest of NumPy's functions: choosing, taking, rounding, and those that must be refused.

In:  NumPy calls. Out: select and gather nodes, or a TraceError that says what to write instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from .array import (
    Array,
    cast,
    choose,
    common_dtype,
    composite,
    constant,
    deliver,
    fresh,
    handles,
    iota,
    lift,
    must_be_traced,
    operand,
    settle,
    traced,
)
from .recorder import refuse
from .shapes import shape_of

DATA_DEPENDENT = (np.nonzero, np.argwhere, np.flatnonzero, np.unique, np.extract, np.compress, np.union1d, np.intersect1d,
                  np.setdiff1d, np.trim_zeros, np.histogram, np.bincount)


# ---------------------------------------------------------------- choosing
@handles(np.where)
def where(condition, x=None, y=None, /):
    if x is None:
        raise refuse("np.where(condition) with one argument", "the shape of its result depends on values",
                     "Use np.where(condition, a, b), or keep the mask")
    a, b = operand(x), operand(y)
    return choose(condition, a, b, common_dtype(a, b), np.broadcast_shapes(*map(np.shape, (condition, a, b))))


@composite(np.clip)
def clip(a, a_min=None, a_max=None, out=None, *, min=None, max=None, dtype=None, **options):
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    operands = [lift(a), *(operand(each) for each in (low, high) if each is not None)]
    x = cast(operands[0], dtype or common_dtype(*operands))
    if low is not None:
        x = np.maximum(x, low)
    return deliver(np.minimum(x, high) if high is not None else x.copy(), out)


@handles(np.copyto)
def copyto(dst, src, casting="same_kind", where=True):
    must_be_traced(dst)
    value = operand(src)
    if isinstance(value, Array) and not np.can_cast(value.dtype, dst.dtype, casting):
        raise TypeError(f"Cannot cast array data from {value.dtype!r} to {dst.dtype!r} according to the rule {casting!r}")
    settled = settle(value, dst.dtype, dst.shape)
    dst.write((settled if where is True else choose(where, settled, dst, dst.dtype, dst.shape)).node)


# ---------------------------------------------------------------- taking
@handles(np.take)
def take(a, indices, axis=None, out=None, mode="raise"):
    x = lift(a) if axis is not None else traced.ravel(a)
    axis = normalize_axis_index(axis or 0, x.ndim)
    if mode != "raise":
        n = x.shape[axis]
        indices = np.clip(lift(indices), 0, n - 1) if mode == "clip" else np.remainder(lift(indices), n)
    result = x[(slice(None),) * axis + (indices,)]
    return deliver(result.copy() if result.ndim else result, out)


@handles(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x, window_shape, axis=None, **options):
    """Windows as a gather along each windowed axis; NumPy's is a read-only view."""
    sides = shape_of(window_shape)
    axes = normalize_axis_tuple(tuple(range(x.ndim)) if axis is None else axis, x.ndim)
    for along, side in zip(axes, sides, strict=True):
        count = x.shape[along] - side + 1
        if count <= 0:
            raise ValueError("window shape cannot be larger than input array shape")
        places = iota((count, side), 0) + iota((count, side), 1)
        x = np.moveaxis(x[(slice(None),) * along + (places,)], along + 1, -1)
    return x.copy()


@handles(np.put_along_axis)
def put_along_axis(arr, indices, values, axis):
    must_be_traced(arr)
    return NotImplemented


# ---------------------------------------------------------------- rounding and types
@composite(np.round)
def round(a, decimals=0, out=None):
    x = lift(a)
    if x.dtype.kind in "iu" and decimals < 0:
        raise refuse("np.round of integers to tens", "it is no primitive", "Write x // 10 * 10")
    scale = 10.0 ** abs(decimals)
    if x.dtype.kind in "iu":
        rounded = x.copy()
    elif decimals == 0:
        rounded = np.rint(x)
    else:
        rounded = np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale
    return deliver(rounded, out)


@handles(np.empty_like)
def empty_like(prototype, dtype=None, order="K", subok=True, shape=None, *, device=None):
    like = lift(prototype)
    empty = constant(0, like.shape if shape is None else shape_of(shape), dtype or like.dtype)
    return fresh(empty.node, scalar=False)


handles(np.astype)(lambda x, dtype, /, *, copy=True, device=None: x.astype(dtype, copy=copy))
handles(np.can_cast)(lambda from_, to, casting="safe": np.can_cast(from_.dtype, to, casting))


# ---------------------------------------------------------------- what has no fixed shape
def _data_dependent(name: str) -> Any:
    def handler(*args: Any, **kwargs: Any) -> Any:
        raise refuse(f"np.{name}", "the shape of its result depends on values",
                     "Keep a mask of the full shape and use np.where(mask, a, b), np.count_nonzero or where=")
    return handler


for _function in DATA_DEPENDENT:
    handles(_function)(_data_dependent(_function.__name__))
