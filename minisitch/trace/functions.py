"""NumPy's functions that are no ufuncs: those that move data, reductions, scans and products.

In:  NumPy calls. Out: *views* wherever NumPy returns a view, so that writes go through; else move
nodes, one ``reduce`` node, or the composition that NumPy computes; for a product transposes,
reshapes and one ``matmul`` a contraction, in NumPy's dtype. NumPy writes others in Python on top of
these (``stack``, ``moveaxis``, ``tile``, ``roll`` ...). They have no handler: their own source is
traced.
"""

import inspect
import math
import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .array import (
    TracedArray,
    broadcast,
    cast,
    choose,
    common_dtype,
    composite,
    constant,
    fresh,
    handles,
    iota,
    lies_in_rows,
    lift,
    method,
    normal_axes,
    normal_axis,
    only_ones_differ,
    operand,
    permuted,
    record,
    require,
    reshaped,
    shape_of,
    stand_in,
    strides_of,
    traced,
    view,
)
from .calls import INSTEAD
from .creation import opened
from .recorder import refuse
from .refusals import SORT
from .scalars import Number, plain
from .ufuncs import (
    CLIP,
    FOLDS,
    accumulate_method,
    assignable,
    count_of,
    deliver,
    deliver_whole,
    dtype_with,
    matmul,
    reduce_method,
)


# ---------------------------------------------------------------- views
def seen(array: TracedArray) -> TracedArray:
    """Record a view on the line where the user wrote it, not where it is first read."""
    array.node  # noqa: B018
    return array


def reshape_view(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """``x`` in another shape, a view or a copy as in NumPy.

    If the layout is unknown, only reading is safe.
    """
    strides, shape = x.strides_in_elements, tuple(shape)
    if strides is not None and (not x.size or strides == strides_of(x.shape)):
        strides = strides_of(shape)
    elif strides is not None:
        try:
            strides = np.reshape(stand_in(x), shape, copy=False).strides
        except ValueError:
            return x.recorder.by_layout(x, fresh(reshaped(x, shape).node))
    return view(x, "reshape", shape=shape, strides=strides)


def slice_view(x: TracedArray, ranges: Sequence[range]) -> TracedArray:
    """A window of ``x``, from a range for each axis. The whole of ``x`` is an alias."""
    start = tuple(each.start if each else 0 for each in ranges)
    step = tuple(each.step if each else 1 for each in ranges)
    strides, shape = x.strides_in_elements, tuple(map(len, ranges))
    if shape == x.shape and all(s == 1 for s, n in zip(step, shape, strict=True) if n > 1):
        return view(x, "alias", shape=shape, strides=strides)
    strides = strides and tuple(a * s for a, s in zip(strides, step, strict=True))
    return view(x, "slice", shape=shape, strides=strides, start=start, size=shape, step=step)


def gather_view(x: TracedArray, axes: Sequence[int], places: Sequence[TracedArray], mode: str) -> TracedArray:
    """The elements at known ``places`` along ``axes``: one step further for each.

    The axes of the places come first.
    """
    rest = [i for i in range(x.ndim) if i not in axes]
    steps = x.strides_in_elements
    strides = steps and (sum(steps[i] for i in axes),) * places[0].ndim + tuple(steps[i] for i in rest)
    shape = places[0].shape + tuple(x.shape[i] for i in rest)
    return view(x, "gather", *(each.node for each in places), shape=shape, strides=strides, axes=tuple(axes), mode=mode)


def transpose_view(x: TracedArray, perm: Sequence[int]) -> TracedArray:
    """``x`` with permuted axes."""
    perm, strides = tuple(perm), x.strides_in_elements
    shape, strides = tuple(x.shape[p] for p in perm), strides and tuple(strides[p] for p in perm)
    if perm == tuple(range(x.ndim)):
        return view(x, "alias", shape=shape, strides=strides)
    return view(x, "transpose", shape=shape, strides=strides, perm=perm)


def ones_view(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """``x`` with axes of one added or taken away: always a view."""
    assert only_ones_differ(x.shape, shape)
    same = tuple(shape) == x.shape
    return view(x, "alias", shape=x.shape, strides=x.strides_in_elements) if same else reshape_view(x, shape)


def _order(order: str, x: TracedArray) -> str:
    """"C" or "F". Refuses an order that depends on an unknown memory layout."""
    if order in ("A", "K") and x.row_major:
        x.recorder.by_layout(x)
        return "C"
    if order not in ("C", "F"):
        raise refuse(f"order={order!r}", "the memory layout is not traced", "Write order='C' or order='F'")
    return order


def _backwards(x: TracedArray) -> TracedArray:
    return transpose_view(x, tuple(reversed(range(x.ndim))))


@handles(np.reshape)
def reshape(a, /, shape=None, order="C", *, newshape=None, copy=None):
    x = lift(a)
    target = np.broadcast_to(np.int8(0), x.size).reshape(shape_of(newshape if shape is None else shape)).shape  # or NumPy's error
    if x.is_scalar and not target:
        return x
    if _order(order, x) == "F":
        result = _backwards(reshape_view(_backwards(x), target[::-1]))
    else:
        result = reshape_view(x, target) if target != x.shape else ones_view(x, target)
    require(copy is not False or result._parent is not None)
    return result.copy() if copy else seen(result)


@handles(np.ravel)
def ravel(a, order="C"):
    """A view if the memory is contiguous in that order, else a copy.

    ``reshape(-1)`` is a view for more strides.
    """
    x = lift(a)
    x = _backwards(x) if _order(order, x) == "F" else x
    unsure = x.strides_in_elements is None
    if unsure or stand_in(x).flags.c_contiguous:
        return seen(view(x, "reshape", shape=(x.size,), strides=(1,), mode="unsure" if unsure else "ravel"))
    return x.recorder.by_layout(x, reshaped(x, (x.size,)).copy())


def _permuting(function: Any) -> Any:
    """NumPy tells where the axes go, of an array whose sides are the numbers of its axes."""
    def permute(a, *args, **options):
        x = lift(a)
        perm = function(np.empty(tuple(range(x.ndim)), bool), *args, **options).shape
        return x if x.is_scalar else seen(transpose_view(x, perm))
    return permute


for _function in (np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.matrix_transpose):
    handles(_function)(_permuting(_function))


@handles(np.squeeze)
def squeeze(a, axis=None):
    shape = np.squeeze(stand_in(a), axis).shape
    return a if a.is_scalar else seen(ones_view(a, shape))


@handles(np.broadcast_to)
def broadcast_to(array, shape, subok=False):
    x, shape = lift(array), shape_of(shape)
    np.broadcast_to(stand_in(x), shape)  # raises NumPy's error
    padded = ones_view(x, (1,) * (len(shape) - x.ndim) + x.shape)
    return seen(view(padded, "broadcast", shape=shape))


@handles(np.broadcast_arrays)
def broadcast_arrays(*args, subok=False):
    shape = np.broadcast_shapes(*map(np.shape, args))
    return tuple(broadcast_to(each, shape) for each in args)


@handles(np.meshgrid)
def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    np.meshgrid(indexing=indexing)  # raises NumPy's error
    grids = [np.reshape(x, (1,) * i + (-1,) + (1,) * (len(xi) - 1 - i)) for i, x in enumerate(xi)]
    if not sparse:
        grids = np.broadcast_arrays(*grids)
    if indexing == "xy" and len(xi) > 1:
        grids = [np.swapaxes(each, 0, 1) for each in grids]
    return tuple(each.copy() if copy else each for each in grids)


@handles(np.array_split)
def array_split(ary, indices_or_sections, axis=0):
    """Views along one axis. NumPy's own code swaps that axis to the front and back."""
    axis = normal_axis(axis, ary.ndim)
    n = ary.shape[axis]
    if np.iterable(indices_or_sections):
        cuts = [0, *map(int, indices_or_sections), n]
    else:
        parts = int(indices_or_sections)
        require(parts > 0)
        cuts = [n // parts * i + min(i, n % parts) for i in range(parts + 1)]
    return [ary[(slice(None),) * axis + (slice(a, b),)] for a, b in zip(cuts, cuts[1:], strict=False)]


# ---------------------------------------------------------------- joining and repeating
@handles(np.concatenate)
def concatenate(arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind"):
    parts = [lift(each) if axis is not None else ravel(each) for each in arrays]
    axis = normal_axis(0 if axis is None else axis, parts[0].ndim)
    target = common_dtype(*parts) if dtype is None else np.dtype(dtype)
    require(all(np.can_cast(each.dtype, target, casting) for each in parts))
    parts = [cast(each, target) for each in parts]
    return deliver(parts[0].copy() if len(parts) == 1 else record("concatenate", *parts, axis=axis), out)


@handles(np.repeat)
def repeat(a, repeats, axis=None):
    x = lift(a) if axis is not None else ravel(a)
    axis = normal_axis(0 if axis is None else axis, x.ndim)
    if isinstance(repeats, TracedArray):
        repeats = repeats.known("np.repeat by a traced count: the shape", "Repeat by Python integers")
    if np.size(repeats) != 1:
        return np.take(x, np.repeat(np.arange(x.shape[axis]), repeats), axis)
    before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1:]
    count = int(np.reshape(repeats, ()))
    wide = broadcast(reshaped(x, (*before, n, 1, *after)), (*before, n, count, *after))
    return reshaped(wide, (*before, n * count, *after)).copy()


@composite(np.linspace)
def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *, device=None):
    """NumPy's source asks whether a step is zero. Here both answers are computed."""
    np.linspace(0, 1, num, endpoint)  # raises NumPy's errors
    parts = operator.index(num) - bool(endpoint)
    start, stop = operand(start), operand(stop)
    delta = np.subtract(stop, start, dtype=common_dtype(start, stop, 0.0))
    y = cast(reshaped(iota((num,), 0), (num,) + (1,) * delta.ndim), delta.dtype)
    step = delta / parts if parts > 0 else math.nan
    y = np.where(np.any(step == 0), y / parts * delta, y * step) if parts > 0 else y * delta
    y = cast(y + start, delta.dtype)
    if endpoint and num > 1:
        y[-1, ...] = stop
    dtype = delta.dtype if dtype is None else np.dtype(dtype)
    y = cast(traced.moveaxis(traced.floor(y) if dtype.kind in "iu" else y, 0, axis), dtype)
    return (y, step) if retstep else y


# ---------------------------------------------------------------- padding and diagonals
@handles(np.pad)
def pad(array, pad_width, mode="constant", **options):
    """A frame of one value that is written into. NumPy's own source does the rest."""
    value = options.get("constant_values", 0)
    framed = mode == "constant" and not np.ndim(value) and not isinstance(value, TracedArray)
    if not framed or np.asarray(pad_width).dtype.kind not in "iu" or np.min(pad_width) < 0:
        return NotImplemented
    sides = [*zip(np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)).tolist(), array.shape, strict=True)]
    filled = assignable(np.asarray(value)[()], array.dtype)
    frame = fresh(broadcast(filled, [a + n + b for (a, b), n in sides]).node, (array,), scalar=False)
    frame[tuple(slice(a, a + n) for (a, _), n in sides)] = array
    return frame


@handles(np.diagonal)
def diagonal(a, offset=0, axis1=0, axis2=1):
    """A gather along both axes, read-only like NumPy's view."""
    first, second = normal_axis(axis1, a.ndim), normal_axis(axis2, a.ndim)
    require(first != second)
    rows, columns = max(0, -offset), max(0, offset)
    along = iota((max(0, min(a.shape[first] - rows, a.shape[second] - columns)),), 0)
    return traced.moveaxis(gather_view(a, (first, second), [along + rows, along + columns], "read-only"), 0, -1)


@handles(np.trace)
def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    return np.sum(diagonal(a, offset, axis1, axis2), -1, dtype, out)


# ---------------------------------------------------------------- elementwise, but no ufuncs
@handles(np.where)
def where(condition, x=None, y=None, /):
    if x is None:
        raise refuse("np.where(condition) with one argument", "the shape of its result depends on "
                     "values", "Use np.where(condition, a, b), or keep the mask")
    a, b = operand(x), operand(y)
    dtype, shape = common_dtype(a, b), np.broadcast_shapes(*map(np.shape, (condition, a, b)))
    # Unlike in arithmetic, a number that the dtype cannot hold wraps.
    a, b = (each if isinstance(each, TracedArray) or (type(each) is Number and dtype.kind == "f")
            else constant(np.asarray(plain(each)), (), dtype) for each in (a, b))
    like = tuple(each for each in (lift(condition), a, b) if isinstance(each, TracedArray))
    return fresh(choose(condition, a, b, dtype, shape).node, like, scalar=False)


@method
def clip(x: TracedArray, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Any:
    """``x.clip``. As in NumPy's source, a Python integer that the dtype lacks bounds nothing."""
    if x.dtype.kind in "iu":
        ends = np.iinfo(x.dtype)  # type: ignore[arg-type]
        min = None if min.__class__ is int and min <= ends.min else min
        max = None if max.__class__ is int and max >= ends.max else max
    bounds = [each for each in (min, max) if each is not None]
    ufunc: Any = CLIP if len(bounds) == 2 else np.positive if not bounds else np.maximum if max is None else np.minimum
    return ufunc(x, *bounds, out=out, **options)


@composite(np.round)
def round(a, decimals=0, out=None):
    x, decimals = lift(a), operator.index(decimals)
    scale = math.prod([10.0] * abs(decimals))  # one by one, as NumPy: above 10**22 it rounds
    there, back = (np.multiply, np.true_divide) if decimals > 0 else (np.true_divide, np.multiply)
    if x.dtype.kind in "iu" and decimals >= 0:
        return deliver(fresh(x.node, (x,)), out)
    require(x.dtype.kind != "b" or not decimals)
    if not decimals:
        return np.rint(x, out=out)
    rounded = back(np.rint(there(x, scale, out=out), out=out), scale, out=out)
    return rounded if out is not None else fresh(cast(rounded, x.dtype).node, lies_in_rows("A", x))


handles(np.astype)(lambda x, dtype, /, *, copy=True, device=None: x.astype(dtype, copy=copy))


# ---------------------------------------------------------------- reductions and scans
def _reduction(ufunc: np.ufunc) -> Any:
    """A handler with the parameters of ``np.sum``. ``np.max`` and others have no ``dtype=``."""
    first = () if ufunc in (np.add, np.multiply) else (None,)
    return lambda a, axis=None, *others, **options: reduce_method(ufunc, a, axis, *first, *others, **options)


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


# ---------------------------------------------------------------- products: dot and its kin
@handles(np.dot)
def dot(a, b, out=None):
    a, b = lift(a), lift(b)
    if a.ndim == 0 or b.ndim == 0:
        product: Any = np.multiply(a, b)
        if product.size > 1 and product.dtype in (np.float32, np.float64):  # BLAS adds to zeros, and skips a factor of 0
            factor, other = (b, a) if a.ndim else (a, b)
            product = factor * np.where((factor == 0) & ~np.isfinite(other), 0, other) + 0.0
    elif (a.ndim <= 2 and b.ndim <= 2) or b.ndim == 1:
        product = matmul(a, b)
    else:
        product = np.tensordot(a, b, (-1, max(b.ndim - 2, 0)))
    if isinstance(out, TracedArray):
        require(out.row_major)
        out.recorder.by_layout(out)
    return deliver_whole(product, out, "no")


@handles(np.inner)
def inner(a, b, /):
    a, b = lift(a), lift(b)
    if not a.ndim or not b.ndim:
        return dot(a, b)
    result: Any = np.tensordot(a, b, (-1, -1))
    return result if result.ndim else fresh(result.node)


@handles(np.vdot)
def vdot(a, b, /):
    return matmul(np.ravel(lift(a)), np.ravel(lift(b)))


@composite(np.linalg.norm)
def norm(x, ord=None, axis=None, keepdims=False):
    """The root of the sum of squares. NumPy's own source does the other norms."""
    if ord is not None:
        return NotImplemented
    x = x if x.dtype.kind == "f" else cast(x, np.float64)
    product = cast(x, np.float32) if axis is None and x.dtype == np.float16 else x  # np.dot rounds only the sum
    axes = axis if axis is None or isinstance(axis, tuple) else (axis,)  # a number has none, not even -1
    return np.sqrt(cast(np.sum(np.square(product), axis=axes, keepdims=keepdims), x.dtype))


def _slid(a: TracedArray, v: TracedArray, mode: str) -> Any:
    """The sums of ``a * v`` for each place of ``v`` along ``a``: the elements that both have."""
    if a.ndim != 1 or v.ndim != 1 or not v.size:
        raise ValueError("two vectors are needed, which are not empty")
    most = v.size - 1
    before, count = {"valid": (0, a.size - most), "same": (v.size // 2, a.size), "full": (most, a.size + most)}[mode]
    places = iota((count, v.size), 0) + iota((count, v.size), 1) - before
    both = np.where((places >= 0) & (places < a.size), a[np.clip(places, 0, a.size - 1)] * v, a.dtype.type(0))
    return np.sum(both, 1, both.dtype)


@composite(np.correlate)
def correlate(a, v, mode="valid"):
    a, v = lift(a), lift(v)
    return _slid(a, v, mode) if a.size >= v.size else _slid(v, a, mode)[::-1].copy()


INSTEAD[np._core.multiarray.correlate] = correlate  # NumPy's own convolve calls it


# ---------------------------------------------------------------- einsum
@dataclass(frozen=True)
class Term:
    """An operand of an einsum, with a letter for each axis."""

    array: TracedArray
    letters: str

    def sides(self) -> dict[str, int]:
        return dict(zip(self.letters, self.array.shape, strict=True))

    def arranged(self, letters: Sequence[str]) -> TracedArray:
        return permuted(self.array, [self.letters.index(letter) for letter in letters])


def _diagonal(term: Term) -> Term:
    """A repeated letter reads the diagonal: a gather along its axes, or a scatter when written."""
    array, letters = term.array, term.letters
    for letter in dict.fromkeys(letters):
        axes = tuple(i for i, each in enumerate(letters) if each == letter)
        require(len({array.shape[i] for i in axes}) == 1)
        if len(axes) > 1:
            array = gather_view(array, axes, [iota((array.shape[axes[0]],), 0)] * len(axes), "set")
            letters = letter + letters.replace(letter, "")
    return Term(array, letters)


def _sum_out(term: Term, kept: str) -> Term:
    """Sum over the letters that are not kept. Integers are not widened."""
    axes = tuple(i for i, letter in enumerate(term.letters) if letter not in kept)
    return Term(np.sum(term.array, axes, term.array.dtype), "".join(c for c in term.letters if c in kept)) if axes else term


def _contract(a: Term, b: Term, needed: str) -> Term:
    """Two operands into one. A ``matmul`` sums over common letters that are not needed."""
    a, b = _sum_out(a, b.letters + needed), _sum_out(b, a.letters + needed)
    sides = a.sides() | {x: n for x, n in b.sides().items() if n != 1 or x not in a.letters}
    batch = [c for c in a.letters if c in b.letters and c in needed]
    inner = [c for c in a.letters if c in b.letters and c not in needed]
    rows, columns = [c for c in a.letters if c not in b.letters], [c for c in b.letters if c not in a.letters]
    letters = batch + rows + columns

    def matrix(term: Term, first: list[str], second: list[str]) -> TracedArray:
        order = batch + first + second
        wide = broadcast(term.arranged(order), [sides[c] for c in order])
        return reshaped(wide, [*wide.shape[:len(batch)], *(math.prod(sides[c] for c in group) for group in (first, second))])

    def spread(term: Term) -> TracedArray:
        own = term.sides()
        return reshaped(term.arranged([c for c in letters if c in own]), [own.get(c, 1) for c in letters])

    if inner:
        product = record("matmul", matrix(a, rows, inner), matrix(b, inner, columns))
        return Term(reshaped(product, [sides[c] for c in letters]), "".join(letters))
    product = np.multiply(spread(a), spread(b))  # NumPy adds it to zeros: -0.0 becomes 0.0
    return Term(product if product.dtype.kind == "b" else product + 0, "".join(letters))


@composite(np.einsum)
def einsum(*operands, out=None, dtype=None, optimize=False, order="K", casting="safe"):
    """Contract operands from left to right. NumPy's own parser reads the subscripts."""
    inputs, result, arrays = opened(opened(np.einsum).__globals__["_parse_einsum_input"])(operands)
    arrays = [lift(each) for each in arrays]
    terms = [_diagonal(Term(x, each)) for x, each in zip(arrays, inputs.split(","), strict=True)]
    # nothing to compute: NumPy returns a view, in any dtype
    if len(terms) == 1 and sorted(terms[0].letters) == sorted(result):
        return deliver(transpose_view(terms[0].array, [terms[0].letters.index(letter) for letter in result]), out, casting)
    target = common_dtype(*arrays, *([] if out is None else [out])) if dtype is None else np.dtype(dtype)
    require(all(np.can_cast(each.dtype, target, casting) for each in arrays))
    # NumPy rounds the product of all operands once
    wide = np.dtype(np.float32) if target == np.float16 and len(terms) > 2 else target
    terms = [Term(cast(term.array, wide), term.letters) for term in terms]
    while len(terms) > 1:
        first, second, *others = terms
        needed = result + "".join(each.letters for each in others)
        terms = [_contract(first, second, needed), *others]
    return deliver(cast(_sum_out(terms[0], result).arranged(result), target), out, casting)
