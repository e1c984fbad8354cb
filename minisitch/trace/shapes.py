"""Functions that move data and compute nothing: reshape, transpose, split, concatenate, pad, flip ...

In:  NumPy calls. Out: *views*, wherever NumPy would give a view, so that writes go through; else move nodes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from .array import (
    Array,
    broadcast,
    cast,
    common_dtype,
    constant,
    deliver,
    fresh,
    iota,
    lift,
    only_ones_differ,
    operand,
    permuted,
    record,
    recorder_of,
    reshaped,
    settle,
    strides_of,
    view,
)
from .recorder import refuse
from .reductions import composite, handles


# ---------------------------------------------------------------- views
def seen(array: Array) -> Array:
    """Record a view where the user wrote it, not where it is first read."""
    array.node  # noqa: B018
    return array


def _viewed_strides(x: Array, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of ``x`` seen in another shape, or None where NumPy must copy.

    NumPy is asked, with a stand-in that has the strides and no memory: it is never read.
    """
    strides = x.strides_in_elements
    assert strides is not None
    if strides == strides_of(x.shape):
        return strides_of(shape)
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), x.shape, strides)
    try:
        return np.reshape(stand_in, shape, copy=False).strides
    except ValueError:
        return None


def reshape_view(x: Array, shape: tuple[int, ...]) -> Array:
    """``x`` in another shape: a view or a copy, as NumPy would have it."""
    if x.strides_in_elements is None:
        return view(x, "reshape", shape=shape)  # the layout is unknown: reading is safe, writing is refused
    strides = _viewed_strides(x, shape) if x.size else strides_of(shape)
    if strides is not None:
        return view(x, "reshape", shape=shape, strides=strides)
    return fresh(x.recorder, reshaped(x, shape).node)


def slice_view(x: Array, start: Sequence[int], size: Sequence[int], step: Sequence[int]) -> Array:
    """A window of ``x``; all of it is an alias."""
    shape = tuple(size)
    strides = x.strides_in_elements
    if shape == x.shape and all(s == 1 for s, n in zip(step, shape, strict=True) if n > 1):
        return view(x, "alias", shape=shape, strides=strides)
    if strides is not None:
        strides = tuple(a * s for a, s in zip(strides, step, strict=True))
    return view(x, "slice", shape=shape, strides=strides, start=tuple(start), size=shape, step=tuple(step))


def transpose_view(x: Array, perm: Sequence[int]) -> Array:
    """``x`` with permuted axes."""
    perm, strides = tuple(perm), x.strides_in_elements
    shape = tuple(x.shape[p] for p in perm)
    if strides is not None:
        strides = tuple(strides[p] for p in perm)
    if perm == tuple(range(x.ndim)):
        return view(x, "alias", shape=shape, strides=strides)
    return view(x, "transpose", shape=shape, strides=strides, perm=perm)


def ones_view(x: Array, shape: tuple[int, ...]) -> Array:
    """``x`` with axes of one added or taken away: always a view."""
    assert only_ones_differ(x.shape, shape)
    return reshape_view(x, shape) if shape != x.shape else view(x, "alias", shape=shape, strides=x.strides_in_elements)


def _shape_of(newshape: Any, size: int) -> tuple[int, ...]:
    """A shape with its -1 worked out. Raises ValueError as NumPy does."""
    try:
        shape = tuple(map(operator.index, newshape))
    except TypeError:
        shape = (operator.index(newshape),)
    known = math.prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and known and size % known == 0:
        shape = tuple(size // known if n == -1 else n for n in shape)
    if -1 in shape or math.prod(shape) != size:
        raise ValueError(f"cannot reshape array of size {size} into shape {shape}")
    return shape


def _order(order: str, x: Array) -> str:
    """"C" or "F"; refuses the orders that ask for the memory layout where it is not known."""
    if order in ("A", "K") and x.row_major:
        return "C"
    if order not in ("C", "F"):
        raise refuse(f"order={order!r}", "the memory layout is not traced", "Write order='C' or order='F'")
    return order


@handles(np.reshape)
def reshape(a, /, shape=None, order="C", *, newshape=None, copy=None):
    x = lift(a, recorder_of(a))
    target = _shape_of(newshape if shape is None else shape, x.size)
    if _order(order, x) == "F":
        backwards = tuple(reversed(range(len(target))))
        flipped = reshape_view(transpose_view(x, tuple(reversed(range(x.ndim)))), tuple(reversed(target)))
        result = transpose_view(flipped, backwards)
    else:
        result = reshape_view(x, target) if target != x.shape else ones_view(x, target)
    return result.copy() if copy else seen(result)


@handles(np.ravel)
def ravel(a, order="C"):
    """A view only of what lies in memory in that order, else a copy; unlike ``reshape(-1)``, which takes any stride."""
    x = lift(a, recorder_of(a))
    if _order(order, x) == "F":
        x = transpose_view(x, tuple(reversed(range(x.ndim))))
    strides = x.strides_in_elements
    if strides is not None and not _contiguous(x.shape, strides):
        return reshaped(x, (x.size,)).copy()
    return seen(reshape_view(x, (x.size,)))


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return all(a == b for n, a, b in zip(shape, strides, strides_of(shape), strict=True) if n != 1)


@handles(np.transpose)
def transpose(a, axes=None):
    x = lift(a, recorder_of(a))
    perm = tuple(reversed(range(x.ndim))) if axes is None else normalize_axis_tuple(axes, x.ndim)
    if len(perm) != x.ndim:
        raise ValueError("axes don't match array")
    return seen(transpose_view(x, perm))


@handles(np.matrix_transpose)
def matrix_transpose(x, /):
    return swapaxes(x, -1, -2)


@handles(np.swapaxes)
def swapaxes(a, axis1, axis2):
    perm = list(range(a.ndim))
    i, j = normalize_axis_index(axis1, a.ndim), normalize_axis_index(axis2, a.ndim)
    perm[i], perm[j] = perm[j], perm[i]
    return transpose(a, perm)


@handles(np.moveaxis)
def moveaxis(a, source, destination):
    sources = normalize_axis_tuple(source, a.ndim, "source")
    destinations = normalize_axis_tuple(destination, a.ndim, "destination")
    if len(sources) != len(destinations):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [n for n in range(a.ndim) if n not in sources]
    for place, axis in sorted(zip(destinations, sources, strict=True)):
        order.insert(place, axis)
    return transpose(a, order)


@handles(np.rollaxis)
def rollaxis(a, axis, start=0):
    axis = normalize_axis_index(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    order = [n for n in range(a.ndim) if n != axis]
    order.insert(start - 1 if axis < start else start, axis)
    return transpose(a, order)


@handles(np.expand_dims)
def expand_dims(a, axis):
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    rank = a.ndim + len(axes)
    axes = normalize_axis_tuple(axes, rank)
    sides = iter(a.shape)
    return seen(ones_view(a, tuple(1 if i in axes else next(sides) for i in range(rank))))


@handles(np.squeeze)
def squeeze(a, axis=None):
    if axis is None:
        axes = tuple(i for i, n in enumerate(a.shape) if n == 1)
    else:
        axes = normalize_axis_tuple(axis, a.ndim)
    if any(a.shape[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return seen(ones_view(a, tuple(n for i, n in enumerate(a.shape) if i not in axes)))


@handles(np.broadcast_to)
def broadcast_to(array, shape, subok=False):
    x = lift(array, recorder_of(array))
    shape = (shape,) if isinstance(shape, int) else tuple(map(operator.index, shape))
    if len(shape) < x.ndim or np.broadcast_shapes(x.shape, shape) != shape:
        raise ValueError(f"operands could not be broadcast together with remapped shapes {x.shape} and {shape}")
    padded = ones_view(x, (1,) * (len(shape) - x.ndim) + x.shape)
    return seen(view(padded, "broadcast", shape=shape))


@handles(np.broadcast_arrays)
def broadcast_arrays(*args, subok=False):
    recorder = recorder_of(*args)
    arrays = [lift(each, recorder) for each in args]
    shape = np.broadcast_shapes(*(each.shape for each in arrays))
    return tuple(broadcast_to(each, shape) for each in arrays)


def _at_least(rank: int, *arrays: Any) -> Any:
    """``atleast_1d`` and its kin; the new axes stand where NumPy puts them."""
    recorder = recorder_of(*arrays)
    results = []
    for each in arrays:
        x = lift(each, recorder)
        shapes = {0: (1,) * rank, 1: ((1,) if rank > 1 else ()) + x.shape + ((1,) if rank > 2 else ()),
                  2: x.shape + ((1,) if rank > 2 else ())}
        results.append(seen(ones_view(x, shapes[x.ndim])) if x.ndim < rank else x)
    return results[0] if len(results) == 1 else tuple(results)


handles(np.atleast_1d)(lambda *arrays: _at_least(1, *arrays))
handles(np.atleast_2d)(lambda *arrays: _at_least(2, *arrays))
handles(np.atleast_3d)(lambda *arrays: _at_least(3, *arrays))


def window(x: Array, axis: int, start: int, stop: int) -> Array:
    """A view of ``x[..., start:stop, ...]`` along one axis."""
    return x[(slice(None),) * axis + (slice(start, stop),)]


@handles(np.split, np.array_split)
def split(ary, indices_or_sections, axis=0):
    axis = normalize_axis_index(axis, ary.ndim)
    n = ary.shape[axis]
    if isinstance(indices_or_sections, int | np.integer):
        parts = int(indices_or_sections)
        cuts = [n // parts * i + min(i, n % parts) for i in range(parts + 1)]
    else:
        cuts = [0, *map(int, indices_or_sections), n]
    return [window(ary, axis, a, b) for a, b in zip(cuts, cuts[1:], strict=False)]


def equal_split(ary, indices_or_sections, axis=0):
    """``np.split`` refuses an uneven division, ``np.array_split`` does not."""
    if isinstance(indices_or_sections, int | np.integer) and ary.shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return split(ary, indices_or_sections, axis)


handles(np.split)(equal_split)
handles(np.vsplit)(lambda ary, indices_or_sections: equal_split(ary, indices_or_sections, 0))
handles(np.hsplit)(lambda ary, indices_or_sections: equal_split(ary, indices_or_sections, min(1, ary.ndim - 1)))
handles(np.dsplit)(lambda ary, indices_or_sections: equal_split(ary, indices_or_sections, 2))
handles(np.unstack)(lambda x, /, *, axis=0: tuple(np.moveaxis(x, axis, 0)))


# ---------------------------------------------------------------- joining
@handles(np.concatenate)
def concatenate(arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind"):
    recorder = recorder_of(*arrays, out)
    parts = [lift(each, recorder) for each in arrays]
    if axis is None:
        parts, axis = [ravel(each) for each in parts], 0
    if any(each.ndim == 0 for each in parts):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axis = normalize_axis_index(axis, parts[0].ndim)
    target = common_dtype(*parts) if dtype is None else np.dtype(dtype)
    for each in parts:
        if each.shape[:axis] + each.shape[axis + 1:] != parts[0].shape[:axis] + parts[0].shape[axis + 1:]:
            raise ValueError("all the input array dimensions except for the concatenation axis must match exactly, got "
                             f"{[p.shape for p in parts]} along axis {axis}")
    return deliver(joined([cast(each, target) for each in parts], axis), out)


def joined(parts: Sequence[Array], axis: int) -> Array:
    """Parts of one dtype, end to end."""
    return parts[0].copy() if len(parts) == 1 else record("concatenate", *parts, axis=axis)


@handles(np.stack)
def stack(arrays, axis=0, out=None, *, dtype=None, casting="same_kind"):
    recorder = recorder_of(*arrays, out)
    parts = [lift(each, recorder) for each in arrays]
    if len({each.shape for each in parts}) != 1:
        raise ValueError("all input arrays must have the same shape")
    axis = normalize_axis_index(axis, parts[0].ndim + 1)
    tall = [reshaped(each, each.shape[:axis] + (1,) + each.shape[axis:]) for each in parts]
    return concatenate(tall, axis, out, dtype=dtype)


@handles(np.vstack)
def vstack(tup, *, dtype=None, casting="same_kind"):
    recorder = recorder_of(*tup)
    return concatenate([np.atleast_2d(lift(each, recorder)) for each in tup], 0, dtype=dtype)


@handles(np.hstack)
def hstack(tup, *, dtype=None, casting="same_kind"):
    recorder = recorder_of(*tup)
    parts = [np.atleast_1d(lift(each, recorder)) for each in tup]
    return concatenate(parts, min(1, parts[0].ndim - 1), dtype=dtype)


@handles(np.dstack)
def dstack(tup):
    recorder = recorder_of(*tup)
    return concatenate([np.atleast_3d(lift(each, recorder)) for each in tup], 2)


@handles(np.column_stack)
def column_stack(tup):
    recorder = recorder_of(*tup)
    parts = [lift(each, recorder) for each in tup]
    return concatenate([p if p.ndim > 1 else np.reshape(p, (-1, 1)) for p in parts], 1)


@handles(np.append)
def append(arr, values, axis=None):
    return concatenate([arr, values], axis)


# ---------------------------------------------------------------- repeating
@handles(np.tile)
def tile(A, reps):
    counts = (reps,) if isinstance(reps, int | np.integer) else tuple(map(int, reps))
    rank = max(A.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + tuple(map(int, counts))
    shape = (1,) * (rank - A.ndim) + A.shape
    apart = reshaped(A, [n for side in shape for n in (1, side)])
    wide = broadcast(apart, [n for count, side in zip(counts, shape, strict=True) for n in (count, side)])
    return reshaped(wide, [c * n for c, n in zip(counts, shape, strict=True)]).copy()


@handles(np.repeat)
def repeat(a, repeats, axis=None):
    x = lift(a, recorder_of(a, repeats))
    if axis is None:
        x, axis = ravel(x), 0
    axis = normalize_axis_index(axis, x.ndim)
    if isinstance(repeats, Array):
        repeats = repeats.known("np.repeat by a traced count: the shape", "Repeat by Python integers")
    counts = np.asarray(repeats)
    if counts.size == 1:
        n = int(counts.reshape(()))
        tall = reshaped(x, (*x.shape[:axis + 1], 1, *x.shape[axis + 1:]))
        wide = broadcast(tall, (*x.shape[:axis + 1], n, *x.shape[axis + 1:]))
        return reshaped(wide, (*x.shape[:axis], x.shape[axis] * n, *x.shape[axis + 1:])).copy()
    return np.take(x, np.repeat(np.arange(x.shape[axis]), counts), axis)


@composite(np.roll)
def roll(a, shift, axis=None):
    if axis is None:
        return reshaped(roll(np.ravel(a), shift, 0), a.shape)
    shifts, axes = np.broadcast_arrays(shift, axis)
    for each, along in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True):
        along = normalize_axis_index(along, a.ndim)
        n = a.shape[along]
        cut = -each % n if n else 0
        a = joined([window(a, along, cut, n), window(a, along, 0, cut)], along) if cut else a
    return a.copy()


@handles(np.flip)
def flip(m, axis=None):
    axes = range(m.ndim) if axis is None else normalize_axis_tuple(axis, m.ndim)
    return m[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(m.ndim))]


handles(np.flipud)(lambda m: flip(m, 0))
handles(np.fliplr)(lambda m: flip(m, 1))


# ---------------------------------------------------------------- padding
@composite(np.pad)
def pad(array, pad_width, mode="constant", **options):
    """Constant padding is an update of a constant; the other modes join slices, axis by axis."""
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(i, pad_width.get(i - array.ndim, (0, 0))) for i in range(array.ndim)]
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)).tolist()
    modes = {"edge": _edge, "reflect": _reflect, "symmetric": _symmetric, "wrap": _wrap}
    if mode == "constant":
        return _pad_constant(array, widths, options.get("constant_values", 0))
    if mode == "empty":
        return _pad_constant(array, widths, 0)
    if mode not in modes or options.get("reflect_type", "even") != "even":
        raise refuse(f"np.pad with mode={mode!r}", "it is not one of the modes that only move data",
                     f"Modes are constant, {', '.join(modes)}")
    x = array
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        where = modes[mode](np.arange(-before, n + after), n)
        x = _pieces(x, axis, where.tolist())
    return x.copy()


def _pad_constant(x: Array, widths: list[list[int]], values: Any) -> Array:
    """Frame by frame along each axis; one update where all the frame has one value."""
    filler = np.broadcast_to(np.asarray(values), (x.ndim, 2)) if not isinstance(values, Array) else None
    if filler is None:
        raise refuse("np.pad with a traced constant_values", "the frame is a constant of the graph", "Use np.concatenate")
    if len(set(filler.ravel().tolist())) <= 1:
        shape = tuple(a + n + b for (a, b), n in zip(widths, x.shape, strict=True))
        value = filler.flat[0].item() if filler.size else 0
        frame = constant(x.recorder, np.asarray(value).astype(x.dtype).item(), shape, x.dtype)
        return record("update", frame, x, start=tuple(a for a, _ in widths), step=(1,) * x.ndim)
    for axis, (before, after) in enumerate(widths):
        sides = [constant(x.recorder, filler[axis, i].item(), (*x.shape[:axis], width, *x.shape[axis + 1:]), x.dtype)
                 for i, width in enumerate((before, after))]
        x = joined([sides[0], x, sides[1]], axis)
    return x


def _edge(i: np.ndarray, n: int) -> np.ndarray:
    return np.clip(i, 0, n - 1)


def _wrap(i: np.ndarray, n: int) -> np.ndarray:
    return i % n


def _symmetric(i: np.ndarray, n: int) -> np.ndarray:
    return np.minimum(i % (2 * n), 2 * n - 1 - i % (2 * n))


def _reflect(i: np.ndarray, n: int) -> np.ndarray:
    period = max(2 * n - 2, 1)
    return np.minimum(i % period, period - i % period)


def _pieces(x: Array, axis: int, positions: list[int]) -> Array:
    """Positions along an axis as a join of runs, each a slice with step 1, -1 or a stretched element."""
    parts, first = [], 0
    while first < len(positions):
        last = first + 1
        step = positions[last] - positions[first] if last < len(positions) else 1
        if step not in (-1, 0, 1):
            step = 1
        while last < len(positions) and positions[last] - positions[last - 1] == step:
            last += 1
        parts.append(_run(x, axis, positions[first], last - first, step))
        first = last
    return joined(parts, axis) if parts else window(x, axis, 0, 0)


def _run(x: Array, axis: int, start: int, count: int, step: int) -> Array:
    sides = list(x.shape)
    starts, steps = [0] * x.ndim, [1] * x.ndim
    starts[axis], steps[axis], sides[axis] = start, step or 1, count if step else 1
    part = slice_view(x, starts, sides, steps)
    sides[axis] = count
    return broadcast(part, sides)


# ---------------------------------------------------------------- triangles and diagonals
def _triangle(m: Any, k: int, keep_lower: bool) -> Array:
    x = lift(m, recorder_of(m))
    if x.ndim < 2:
        x = broadcast(x, (x.size, x.size))
    rows, columns = iota(x.recorder, x.shape, x.ndim - 2), iota(x.recorder, x.shape, x.ndim - 1)
    if k:
        rows = record("add", rows, constant(x.recorder, k, x.shape, np.int64))
    inside = record("ge" if keep_lower else "le", rows, columns)
    return record("select", inside, x, constant(x.recorder, 0, x.shape, x.dtype))


@composite(np.tril)
def tril(m, k=0):
    return _triangle(m, k, True)


@composite(np.triu)
def triu(m, k=0):
    return _triangle(m, k, False)


@composite(np.diagonal)
def diagonal(a, offset=0, axis1=0, axis2=1):
    """A gather along both axes; NumPy's is a read-only view."""
    i, j = normalize_axis_index(axis1, a.ndim), normalize_axis_index(axis2, a.ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same")
    rows, columns = max(0, -offset), max(0, offset)
    length = max(0, min(a.shape[i] - rows, a.shape[j] - columns))
    rest = [axis for axis in range(a.ndim) if axis not in (i, j)]
    if length == 0:
        return constant(a.recorder, 0, [*(a.shape[axis] for axis in rest), 0], a.dtype)
    along = iota(a.recorder, (length,), 0)
    steps = [record("add", along, constant(a.recorder, shift, (length,), np.int64)) if shift else along
             for shift in (rows, columns)]
    found = record("gather", a, *steps, axes=(i, j), row_major=False)
    return permuted(found, (*range(1, found.ndim), 0))


@composite(np.trace)
def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    return np.sum(diagonal(a, offset, axis1, axis2), -1, dtype, out)


@composite(np.diag)
def diag(v, k=0):
    if v.ndim == 2:
        return diagonal(v, k)
    n = v.shape[0] + abs(k)
    placed = record("update", constant(v.recorder, 0, (n,), v.dtype), v, start=(max(k, 0),), step=(1,))
    rows, columns = iota(v.recorder, (n, n), 0), iota(v.recorder, (n, n), 1)
    on = record("eq", record("add", rows, constant(v.recorder, k, (n, n), np.int64)), columns)
    return record("select", on, broadcast(placed, (n, n)), constant(v.recorder, 0, (n, n), v.dtype))


@handles(np.meshgrid)
def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    recorder = recorder_of(*xi)
    rank, grids = len(xi), []
    for i, each in enumerate(xi):
        place = {0: 1, 1: 0}.get(i, i) if indexing == "xy" and rank > 1 else i
        line = ravel(lift(each, recorder))
        grids.append(reshaped(line, [line.size if j == place else 1 for j in range(rank)]))
    if not sparse:
        shape = np.broadcast_shapes(*(g.shape for g in grids))
        grids = [broadcast(g, shape) for g in grids]
    return tuple(g.copy() for g in grids)


# ---------------------------------------------------------------- arrays like another
def _filled(a: Any, value: Any, dtype: Any, shape: Any) -> Array:
    recorder = recorder_of(a, value)
    x = lift(a, recorder)
    sides = x.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(map(int, shape))
    target = x.dtype if dtype is None else np.dtype(dtype)
    result = settle(operand(value, recorder), target, sides, recorder)
    return result if result is not value else result.copy()


@handles(np.full_like)
def full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None, *, device=None):
    return _filled(a, fill_value, dtype, shape)


handles(np.zeros_like, np.empty_like)(
    lambda a, dtype=None, order="K", subok=True, shape=None, *, device=None: _filled(a, 0, dtype, shape))
handles(np.ones_like)(
    lambda a, dtype=None, order="K", subok=True, shape=None, *, device=None: _filled(a, 1, dtype, shape))
handles(np.copy)(lambda a, order="K", subok=False: a.copy())
handles(np.shape)(lambda a: a.shape if isinstance(a, Array) else np.asarray(a).shape)
handles(np.ndim)(lambda a: a.ndim)
handles(np.size)(lambda a, axis=None: a.size if axis is None else a.shape[axis])
handles(np.result_type)(lambda *values: common_dtype(*values))
handles(np.can_cast)(lambda from_, to, casting="safe": np.can_cast(from_.dtype, to, casting))
handles(np.iscomplexobj)(lambda x: False)
handles(np.isrealobj)(lambda x: True)
handles(np.real)(lambda val: val)
handles(np.imag)(lambda val: np.zeros_like(val))
handles(np.may_share_memory, np.shares_memory)(
    lambda a, b, max_work=None: isinstance(a, Array) and isinstance(b, Array) and a._storage is b._storage)
