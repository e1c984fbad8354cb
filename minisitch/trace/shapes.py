"""Functions that move data and compute nothing: reshape, transpose, split, concatenate, repeat ...

In:  NumPy calls. Out: *views* wherever NumPy returns a view, so that writes go through, else move
nodes. NumPy writes others in Python on top of these (``stack``, ``moveaxis``, ``tile``, ``roll``
...). They have no handler: their own source is traced.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from .array import (
    OutsideStorage,
    TracedArray,
    broadcast,
    cast,
    common_dtype,
    composite,
    constant,
    fresh,
    handles,
    iota,
    lift,
    no_bool,
    normal_axis,
    only_ones_differ,
    operand,
    record,
    require,
    reshaped,
    stand_in,
    strides_of,
    traced,
    view,
)
from .recorder import refuse
from .ufuncs import assignable, deliver


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
    start, step = ([getattr(each, name) if each else (name == "step") * 1 for each in ranges] for name in ("start", "step"))
    strides, shape = x.strides_in_elements, tuple(map(len, ranges))
    if shape == x.shape and all(s == 1 for s, n in zip(step, shape, strict=True) if n > 1):
        return view(x, "alias", shape=shape, strides=strides)
    strides = strides and tuple(a * s for a, s in zip(strides, step, strict=True))
    return view(x, "slice", shape=shape, strides=strides, start=tuple(start), size=shape, step=tuple(step))


def gather_view(x: TracedArray, axes: Sequence[int], places: Sequence[TracedArray], mode: str) -> TracedArray:
    """The elements at known ``places`` along ``axes``, one step further for each. The axes of the places come first."""
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


def shape_of(shape: Any) -> tuple[int, ...]:
    """``shape=`` of a NumPy call: a sequence of integers, or one."""
    return tuple(operator.index(no_bool(n)) for n in (shape if np.iterable(shape) else (shape,)))


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


def _imag(x: TracedArray) -> TracedArray:
    """Zeros: no traced value is complex. An array of them is read-only, as NumPy's."""
    zeros = constant(0, x.shape, x.dtype)
    return zeros if x.is_scalar else view(zeros, "broadcast", shape=x.shape, strides=x.strides_in_elements)


class Flags:
    """``x.flags``. The layout is known or refused. Ownership and write access are refused."""

    def __init__(self, array: TracedArray) -> None:
        self._array = array

    def __getattr__(self, name: str) -> bool:
        if self._array.strides_in_elements is None or name not in ("c_contiguous", "f_contiguous", "contiguous", "fnc", "forc"):
            raise refuse(f"x.flags.{name}", "the array has no memory while the program is traced", "Ask the result, outside")
        self._array.recorder.by_layout(self._array)
        return bool(getattr(stand_in(self._array).flags, name))

    def __getitem__(self, name: str) -> bool:
        return getattr(self, name.lower())


def _strides(x: TracedArray) -> tuple[int, ...]:
    """``x.strides``, which the layout of the arguments decides."""
    if x.strides_in_elements is None or isinstance(x._storage, OutsideStorage):
        x.__getattr__("strides")  # refused
    x.recorder.by_layout(x)
    return tuple(step * x.itemsize for step in x.strides_in_elements)


TracedArray.strides, TracedArray.imag, TracedArray.flags = property(_strides), property(_imag), property(Flags)


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


def _numbered(x: TracedArray) -> np.ndarray:
    """An array whose sides are the numbers of its axes. NumPy's functions tell where these go."""
    return np.empty(tuple(range(x.ndim)), bool)


@handles(np.transpose)
def transpose(a, axes=None):
    x = lift(a)
    perm = np.transpose(_numbered(x), axes).shape
    return x if x.is_scalar else seen(transpose_view(x, perm))


@handles(np.swapaxes)
def swapaxes(a, axis1, axis2):
    return seen(transpose_view(a, np.swapaxes(_numbered(a), axis1, axis2).shape))


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
    frame = fresh(broadcast(filled, [a + n + b for (a, b), n in sides]).node, scalar=False)
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
