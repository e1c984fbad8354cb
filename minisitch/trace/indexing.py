"""Reading and writing ``x[...]``: an index selects a *place*, a view that is read or written.

In:  any NumPy index. Out: a view of the array. Reading it records a ``slice`` or a ``gather``.
Writing to it records an ``update`` or a ``scatter``, through all views up to the storage.

An index is first parsed into one ``Item`` per axis of the array and per new axis, in the index's
order. NumPy's rule for the axes of an advanced index then asks one question: are its items
neighbours?
"""

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..ops import OPS, SCATTERS
from .array import (
    TracedArray,
    answers,
    broadcast,
    cast,
    choose,
    common_dtype,
    constant,
    fresh,
    handles,
    iota,
    is_traced,
    lift,
    method,
    normal_axes,
    normal_axis,
    operand,
    record,
    require,
    reshaped,
    settle,
    shape_of,
    strides_of,
    traced,
    view,
)
from .creation import replaces
from .functions import gather_view, ones_view, seen, slice_view, transpose_view
from .recorder import Recorder, refuse, user_line
from .ufuncs import METHODS, assignable, deliver, deliver_whole, guard, must_be_traced, resolve

DEPENDS = "how many elements it selects depends on values"
FOLDED: dict[str, Any] = {name: getattr(np, name) for name in "sum prod mean var std max min any all".split()}
REMEDY = "Use np.where(mask, x, other), a reduction with where=mask, or x[mask] = value"
OVERWRITTEN = "NumPy reads elements that it has already overwritten"
KEPT = ("slice", "new", "mask")  # items that leave an axis in the result


@dataclass(frozen=True)
class Item:
    """What an index does to one axis: a ``slice`` (a range), an ``int``, or an ``array``.

    Or a traced ``mask``, which may cover several axes. A ``new`` axis belongs to no axis of the
    array. Nor does a ``gap``: an Ellipsis that stands for no axes, but still separates its
    neighbours.
    """

    kind: str
    axis: int = -1
    value: Any = None


class Held(NamedTuple):
    """What a known mask holds along one axis, and the axis's size."""

    positions: np.ndarray
    size: int


# ---------------------------------------------------------------- parsing
def parse(x: TracedArray, index: Any) -> list[Item]:
    """One item per axis of ``x`` and per new axis. Raises an error where NumPy does."""
    entries = [part for each in _entries(index) for part in _plain(each)]
    used = sum(each is not None and each is not Ellipsis for each in entries)
    dots = sum(each is Ellipsis for each in entries)
    require(dots <= 1 and used <= x.ndim)
    items: list[Item] = []
    axis = 0
    for each in entries if dots else [*entries, Ellipsis]:
        if each is None:
            items.append(Item("new"))
            continue
        if each is Ellipsis and x.ndim == used:
            items.append(Item("gap"))
        for entry in [slice(None)] * (x.ndim - used) if each is Ellipsis else [each]:
            items.append(_item(entry, axis, x))
            axis += 1
    return items


def _entries(index: Any) -> tuple:
    return index if isinstance(index, tuple) else (index,)


def _is_array_of_one(entry: Any) -> bool:
    """Whether an index is an array of shape (), which makes a copy. A scalar does not."""
    return isinstance(entry, TracedArray | np.ndarray) and not np.shape(entry) and not getattr(entry, "is_scalar", False)


def _plain(entry: Any) -> list[Any]:
    """An entry as None, Ellipsis, slice, int, arrays, or a mask for each of its axes.

    A known mask becomes an integer array for each of its axes.
    """
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return [entry]
    if is_dynamic_mask(entry):
        return [entry] * entry.ndim
    if isinstance(entry, list | range | tuple):
        entry = lift(entry) if is_traced(entry) else np.asarray(entry, None if len(entry) else np.intp)
    if np.shape(entry) == () and getattr(entry, "dtype", type(entry)) in (bool, np.bool_):
        raise refuse("a single bool as an index", "it adds an axis of length 0 or 1", "Write x[None] or a slice")
    if isinstance(entry, TracedArray) and (entry.dtype.kind == "b" or not entry.shape):
        value = entry.recorder.known(entry.node, asks=entry.dtype.kind == "b")
        entry = entry if value is None else value
    if not isinstance(entry, TracedArray | np.ndarray):
        return [operator.index(entry)]
    if entry.dtype.kind == "b":
        return [Held(*each) for each in zip(np.nonzero(entry), entry.shape, strict=True)]
    require(entry.dtype.kind in "iu")
    return [entry] if isinstance(entry, TracedArray) or entry.shape else [int(entry)]


def _item(entry: Any, axis: int, x: TracedArray) -> Item:
    n = x.shape[axis]
    if isinstance(entry, Held):
        require(entry.size == n)
        return Item("array", axis, _in_bounds(entry.positions, n, x.recorder))
    if isinstance(entry, slice):
        return Item("slice", axis, range(n)[slice(*map(_bound, (entry.start, entry.stop, entry.step)))])
    if isinstance(entry, int):
        require(-n <= entry < n)
        return Item("int", axis, range(n)[entry:][:1])
    return Item("mask", axis, entry) if entry.dtype.kind == "b" else Item("array", axis, _in_bounds(entry, n, x.recorder))


def _bound(value: Any) -> int | None:
    """A slice bound. A traced one would make the shape depend on values, and is refused."""
    if isinstance(value, TracedArray):
        return int(value.known("a slice bound", "Use a fixed window, or np.take with an index array of a fixed shape"))
    return None if value is None else operator.index(value)


def _in_bounds(index: TracedArray | np.ndarray, n: int, recorder: Recorder) -> TracedArray:
    """Integer indices with negative ones wrapped. Known values are checked now."""
    values = recorder.known(index.node) if isinstance(index, TracedArray) else index
    low = None if values is None else int(values.min(initial=0))
    require(low is None or (low >= -n and not (values >= n).any()))
    positions = lift(index)
    if low == 0 or positions.dtype.kind == "u" or positions.node in recorder.nonnegative:
        return positions
    if n > np.iinfo(positions.dtype).max:
        positions = cast(positions, np.int64)
    side, zero = constant(n, positions.shape, positions.dtype), constant(0, positions.shape, positions.dtype)
    return record("select", record("lt", positions, zero), record("add", positions, side), positions)


# ---------------------------------------------------------------- the view that an index selects
def _window(x: TracedArray, items: Sequence[Item]) -> TracedArray:
    """The part of ``x`` that slices and ints select, with its rank.

    Other items take the whole axis.
    """
    chosen = {item.axis: item.value for item in items if item.kind in ("slice", "int")}
    return slice_view(x, [chosen.get(axis, range(n)) for axis, n in enumerate(x.shape)])


def place(x: TracedArray, items: Sequence[Item], mode: str = "set") -> TracedArray:
    """The view that an index selects.

    A mask takes its axes whole. Integer arrays gather when read, and scatter when written.
    ``mode``: a write at integer positions does ``set`` or ``add``.
    """
    if any(item.kind == "array" for item in items):
        return _advanced(x, items, mode)
    window = _window(x, items)
    return ones_view(window, [1 if i.kind == "new" else window.shape[i.axis] for i in items if i.kind in KEPT])


def _advanced(x: TracedArray, items: Sequence[Item], mode: str) -> TracedArray:
    """The view for integer arrays among the items.

    Ints count as arrays of shape (): they are broadcast, and are neighbours of arrays.
    """
    if any(item.kind == "mask" for item in items):
        raise refuse("a boolean mask beside other index arrays", DEPENDS, "Apply the mask alone, with np.where")
    fancy = [i for i, item in enumerate(items) if item.kind in ("array", "int")]
    rest = [item for item in items if item.kind in ("slice", "new")]
    window = _window(x, rest)
    arrays = [items[i].value if items[i].kind == "array" else constant(items[i].value[0], (), np.int64) for i in fancy]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    neighbours = fancy[-1] - fancy[0] == len(fancy) - 1
    # How many of the result's axes come before those of the index arrays: with and without new
    # axes.
    before = sum(item.kind in ("slice", "new") for item in items[:fancy[0]]) if neighbours else 0
    kept_before = sum(item.kind == "slice" for item in rest[:before])
    sides = [1 if item.kind == "new" else window.shape[item.axis] for item in rest]
    kept = [window.shape[item.axis] for item in rest if item.kind == "slice"]
    rank = len(shape)
    found = view(window, "gather", *(broadcast(a, shape).node for a in arrays),
                 shape=(*shape, *kept), axes=tuple(items[i].axis for i in fancy), mode=mode)
    perm = (*range(rank, rank + kept_before), *range(rank), *range(rank + kept_before, rank + len(kept)))
    return ones_view(transpose_view(found, perm), (*sides[:before], *shape, *sides[before:]))


def _fitted(value: Any, target: TracedArray, checked: bool = True) -> TracedArray:
    """A value to be assigned, in the target's dtype and shape. Leading ones may be dropped."""
    if isinstance(value, TracedArray) and value._storage is target._storage and _runs_over(target, value):
        raise refuse("x[...] = a view of x that takes other steps", OVERWRITTEN, "Write x[...] = y.copy()")
    value = assignable(value, target.dtype, checked)
    extra = max(0, np.ndim(value) - target.ndim)
    require(value.shape[:extra] == (1,) * extra)
    return settle(reshaped(value, value.shape[extra:]), target.dtype, target.shape)


def _runs_over(target: TracedArray, value: TracedArray) -> bool:
    """Whether NumPy reads what it has already overwritten: it is asked.

    It copies along a single axis without a buffer.
    """
    root, to, by = target, target.strides_in_elements, value.strides_in_elements
    if target.ndim != 1 or not to or not by or to[0] * by[-1] <= 0 or to[0] == by[-1]:
        return False
    while root._parent is not None:
        root = root._parent
    views = [np.arange(root.size).reshape(root.shape)] * 2
    for i, each in enumerate((target, value)):
        for move in reversed(each.path()):
            if move.op == "gather":
                return False
            views[i] = OPS[move.op].numpy(views[i], **{name: value for name, value in move.attrs if name != "mode"})
    wanted = views[1].copy()
    views[0][...] = views[1]
    return bool((views[0] != wanted).any())


# ---------------------------------------------------------------- x[...] and x[...] = value
@method
@answers(operator.getitem)
def __getitem__(x: TracedArray, index: Any) -> Any:
    """``x[index]``: a view, or a copy at integer positions.

    One traced position alone gives a view, since NumPy sees an integer.
    """
    items = parse(x, index)
    result = place(x, items)
    plain = not any(each is Ellipsis for each in _entries(index))
    if found := _mask(x, items, result):
        return Masked(result, *found)
    gathered = any(item.kind == "array" and item.value.ndim for item in items) or any(map(_is_array_of_one, _entries(index)))
    if gathered or _is_flat(x):
        made = fresh(result.node, not gathered or _leads(x, items), scalar=None if plain else False)
        made._storage.layout = x._storage.layout if gathered else made._storage.layout
        return made
    if not seen(result).shape and plain:
        return fresh(result.node)  # a scalar: it keeps its value when x changes
    return result


def _leads(x: TracedArray, items: Sequence[Item]) -> bool:
    """Whether integer positions give an array in C order.

    Those along the first axes do, if all arrays are in C order.
    """
    fancy = [item.kind in ("array", "int") for item in items]
    return x.row_major and fancy == sorted(fancy, reverse=True) and all(
        item.kind != "new" and (item.kind != "array" or item.value.row_major) for item in items)


@method
@answers(operator.setitem)
def __setitem__(x: TracedArray, index: Any, value: Any) -> None:
    """``x[index] = value``."""
    items = parse(x, index)
    target, positions = place(x, items), any(item.kind == "array" for item in items)
    element = all(item.kind in ("int", "gap") for item in items) and not any(each is Ellipsis for each in _entries(index))
    require(not x.is_scalar and not (element and x.ndim and np.ndim(value)))
    if found := _mask(x, items, target):
        write_masked(target, *found, value)
        return
    if positions:
        _require_order(target, index, items, value)
    # the second half of ``x[i] += v``: the first half has already written
    if isinstance(value, TracedArray) and value._storage is target._storage and value.path() == target.path():
        return
    if _is_flat(x) and np.ndim(value):
        if isinstance(value, TracedArray) and value._storage is x._storage:
            raise refuse("x.flat[...] = a view of x", OVERWRITTEN, "Write x.flat[...] = y.copy()")
        if np.size(value) != target.size:
            value = np.resize(value, target.shape)  # repeated until there are enough
    target.write(_fitted(value, target, not positions).node)


def _require_order(target: TracedArray, index: Any, items: Sequence[Item], value: Any) -> None:
    """Refuse a write at positions that may repeat, if NumPy may not go through them in C order.

    The last write stays. NumPy takes the order in which the positions and the value lie, if both agree and are elements.
    """
    places = [each.value for each in items if each.kind == "array"]
    shape = np.broadcast_shapes(*(each.shape for each in places))
    arrays = [lift(each) for each in _entries(index) if np.ndim(each)]
    rows = all(each.row_major for each in arrays)
    by = arrays if rows else [value] if isinstance(value, TracedArray) and value.row_major and value.shape == shape else []
    for each in by:
        if each.ndim > 1:
            each.recorder.by_layout(each)
    if by or np.size(value) == 1 or target.size > math.prod(shape) or (len(shape) == len(arrays) == 1):
        return
    known = [target.recorder.known(each.node) for each in places]
    unknown = any(each is None for each in known)
    if unknown or len({*zip(*(np.broadcast_to(each, shape).flat for each in known), strict=True)}) < math.prod(shape):
        raise refuse("a write at positions that may repeat", "NumPy writes them in the order of memory, where another one "
                     "may be the last", "Write i = i.copy() before x[i] = v, for each index that is an array")


def _mask(x: TracedArray, items: Sequence[Item], whole: TracedArray) -> tuple[TracedArray, tuple[int, int]] | None:
    """The mask among the items, stretched to their view, and its axes in the view.

    These are the first one and the last one + 1.
    """
    kept = [item for item in items if item.kind in KEPT]
    own = [i for i, item in enumerate(kept) if item.kind == "mask"]
    if not own:
        return None
    mask = kept[own[0]].value
    if any(kept[i].value is not mask for i in own):
        raise refuse("two boolean masks in one index", DEPENDS, "Combine them with & first")
    require(mask.shape == tuple(x.shape[kept[i].axis] for i in own))
    sides = [x.shape[item.axis] if item.kind == "mask" else 1 for item in kept]
    return broadcast(reshaped(mask, sides), whole.shape), (own[0], own[-1] + 1)


def _is_flat(x: TracedArray) -> bool:
    """Whether it is ``x.flat``. NumPy copies what is read from it."""
    return ("mode", "flat") in (x._move.attrs if x._move else ())


def at(ufunc: np.ufunc, target: Any, index: Any, value: Any = None) -> None:
    """``np.add.at(x, index, value)``: repeated positions add up. A Python number is an array."""
    must_be_traced(target)
    items, change = parse(target, index), lift(value)
    if not any(item.kind == "array" for item in items):
        found = ufunc(target[index], change)
        target[index] = found if isinstance(found, Masked) else cast(found, target.dtype)
        return
    if ufunc.__name__ not in SCATTERS:
        raise refuse(f"np.{ufunc.__name__}.at", "the graph has no such scatter", f"Scatters are {', '.join(SCATTERS)}")
    resolve(ufunc, [target, change])  # raises NumPy's errors
    positions = place(target, items, ufunc.__name__)
    positions.write(broadcast(change, positions.shape).node)


METHODS["at"] = at


# ---------------------------------------------------------------- x[mask]
class Masked(NDArrayOperatorsMixin):
    """``x[mask]`` with a traced mask: the elements of ``whole`` where ``mask`` holds.

    Their number is unknown, so nothing is gathered. NumPy programs mostly read ``x[mask]`` to write
    it back (``x[mask] *= 2``, ``x[mask] = y[mask]``). With the other elements carried along, this
    has a fixed shape: elementwise work passes through, an assignment under the same mask is a
    ``select``, and a reduction is one with ``where=mask``. Anything else is refused. ``axes``: the
    first and the last + 1 of the axes of ``whole`` that the mask covers.
    """

    __slots__ = ("axes", "line", "mask", "whole")
    __array_priority__ = 2000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, whole: TracedArray, mask: TracedArray, axes: tuple[int, int]) -> None:
        self.axes = axes
        self.whole = fresh(whole.node, scalar=False)
        self.mask = mask.copy()
        self.line = user_line()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        masked = [each for each in inputs if isinstance(each, Masked)]
        rest = [each for each in inputs if not isinstance(each, Masked)]
        if method != "__call__" or any(map(np.ndim, rest)) or any(not same_value(each.mask, self.mask) for each in masked):
            raise refuse(f"np.{ufunc.__name__} of x[mask] with another shape", DEPENDS, REMEDY)
        wholes = [each.whole if isinstance(each, Masked) else each for each in inputs]
        if out is not None:
            ufunc(*wholes, out=out[0].whole, **options)
            return out[0]
        result = ufunc(*wholes, **options)
        made = [Masked(each, self.mask, self.axes) for each in (result if isinstance(result, tuple) else [result])]
        return tuple(made) if isinstance(result, tuple) else made[0]

    def fold(self, function: Any, axis: Any = None, **options: Any) -> Any:
        """``np.sum(x[mask], axis)`` and the like, over the masked axis."""
        first, last = self.axes
        places = [*range(first), *[first] * (last - first), *range(first + 1, self.whole.ndim - last + first + 1)]
        axes = normal_axes(axis, places[-1] + 1)
        if first not in axes or options.keys() - {"dtype", "ddof", "out"}:
            self.refuse()
        if function in (np.max, np.min):
            guard(lift(~np.any(self.mask)))
            options["initial"] = start_of(function is np.max, self.whole.dtype)
        return function(self.whole, tuple(i for i, place in enumerate(places) if place in axes), where=self.mask, **options)

    def __array_function__(self, function: Any, types: Any, args: tuple, options: dict[str, Any]) -> Any:
        """NumPy's protocol: a reduction of it."""
        folds = function in FOLDED.values() and args and args[0] is self
        return self.fold(function, *args[1:2], **options) if folds else self.refuse()

    def refuse(self, *args: Any, **options: Any) -> Any:
        """Raise TraceError, with the line where ``x[mask]`` was read."""
        raise refuse("x[mask] under a traced mask is read", DEPENDS, REMEDY, self.line)

    __array__ = __len__ = __iter__ = __getitem__ = __setitem__ = __bool__ = __float__ = refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self.fold, FOLDED[name]) if name in FOLDED else self.refuse()


def start_of(largest: bool, dtype: np.dtype) -> float:
    """What a search for the largest, or the least, value of a dtype starts from."""
    if dtype.kind in "fb":
        return (-math.inf if largest else math.inf) if dtype.kind == "f" else not largest
    return int(getattr(np.iinfo(dtype), "min" if largest else "max"))


def is_dynamic_mask(index: Any) -> bool:
    """Whether it is a boolean array with unknown values."""
    is_mask = isinstance(index, TracedArray) and index.dtype.kind == "b" and index.ndim > 0
    return is_mask and index.recorder.known(index.node, asks=True) is None


def same_value(a: TracedArray, b: TracedArray) -> bool:
    """Whether two arrays are computed in the same way. ``x > 0`` written twice is two nodes."""
    recorder: Recorder = a.recorder
    waiting, done = [(a.node, b.node)], set()
    while waiting:
        pair = waiting.pop()
        if pair[0] == pair[1] or pair in done:
            continue
        done.add(pair)
        left, right = recorder[pair[0]], recorder[pair[1]]
        if (left.op, left.attrs, left.type) != (right.op, right.attrs, right.type) or left.op == "input":
            return False
        waiting.extend(zip(left.args, right.args, strict=True))
    return True


def write_masked(target: TracedArray, mask: TracedArray, mask_axes: tuple[int, int], value: Any) -> None:
    """Write a value where the mask holds.

    ``mask_axes``: the first and the last + 1 of the target's axes that the mask covers.
    """
    first, last = mask_axes
    if isinstance(value, Masked):
        if value.whole.shape != target.shape or not same_value(value.mask, mask):
            value.refuse()
        fitted: Any = value.whole
    else:
        fitted = assignable(value, target.dtype, False)
        # of the value: the axis that counts masked elements
        axis = np.ndim(fitted) - (target.ndim - last) - 1
        if axis >= 0:
            if fitted.shape[axis] != 1:
                raise refuse("x[mask] = values with one value for each masked element", DEPENDS,
                             "Write x[...] = np.where(mask, values_of_the_whole_shape, x)")
            fitted = reshaped(fitted, (*fitted.shape[:axis], *[1] * (last - first), *fitted.shape[axis + 1:]))
    target.write(choose(mask, fitted, target, target.dtype, target.shape).node)


# ---------------------------------------------------------------- functions on places
def positions_of(indices: Any) -> Any:
    """``indices`` of ``np.take`` and ``np.put``. Bools are the integers 0 and 1, not a mask."""
    found = lift(indices) if is_traced(indices) else np.asarray(indices)
    return found.astype(np.int64) if found.dtype.kind == "b" else indices


@method
def put(x: TracedArray, indices: Any, values: Any, mode: str = "raise") -> None:
    """``x.put``: values are repeated until there are enough, and superfluous ones are left out."""
    if mode != "raise":
        raise refuse(f"np.put with mode={mode!r}", "positions are checked, not wrapped or clipped",
                     "Write indices % x.size, or np.clip(indices, 0, x.size - 1)")
    count, given = math.prod(np.shape(indices)), np.ravel(assignable(values, x.dtype))
    if count and given.size:
        x.flat[np.ravel(positions_of(indices))] = given if given.size == count else given[np.arange(count) % given.size]


def _put_where(ranked: bool) -> Any:
    """``np.place``: the n-th masked element takes the n-th value.

    With ``np.putmask`` the n-th element does.
    """
    def put_where(a, mask, values):
        must_be_traced(a)
        holds, given = cast(np.ravel(lift(mask)), bool), np.ravel(assignable(values, a.dtype))
        require(holds.size == a.size and given.size and np.can_cast(given.dtype, a.dtype))
        places = np.cumsum(holds) - 1 if ranked else iota((a.size,), 0)
        a[...] = np.reshape(np.where(holds, given[places % given.size], np.ravel(a)), a.shape)
    return put_where


handles(np.place)(_put_where(True))
handles(np.putmask)(_put_where(False))


@handles(np.take)
def take(a, indices, axis=None, out=None, mode="raise"):
    np.take(np.zeros(1), 0, mode=mode)  # raises NumPy's error
    x = lift(a) if axis is not None else traced.ravel(lift(a))
    axis = normal_axis(0 if axis is None else axis, x.ndim)
    indices = positions_of(indices)
    if mode != "raise":
        n = x.shape[axis]
        indices = np.clip(lift(indices), 0, n - 1) if mode == "clip" else np.remainder(lift(indices), n)
    result = x[(slice(None),) * axis + (indices,)]
    return deliver_whole(result.copy() if result.ndim else result, out, "safe")


@handles(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x, window_shape, axis=None, **options):
    """Windows as a gather along each windowed axis, read-only like NumPy's view."""
    sides = shape_of(window_shape)
    axes = normalize_axis_tuple(tuple(range(x.ndim)) if axis is None else axis, x.ndim, allow_duplicate=True)
    for along, side in zip(axes, sides, strict=True):
        count = x.shape[along] - side + 1
        require(count > 0)
        places = iota((count, side), 0) + iota((count, side), 1)
        x = traced.moveaxis(gather_view(x, (along,), [places], "read-only"), (0, 1), (along, -1))
    return x


@replaces(np.lib.stride_tricks.as_strided)
def as_strided(x, shape=None, strides=None, subok=False, writeable=True, **options):
    """A gather from all elements of an array in C order. Read-only if places repeat."""
    if not isinstance(x, TracedArray):
        return np.lib.stride_tricks.as_strided(x, shape, strides, subok, writeable, **options)
    shape = x.shape if shape is None else shape_of(shape)
    steps = [step // x.itemsize for step in (x.strides if strides is None else strides)]
    reach = [(step, (n - 1) * step) for step, n in sorted(zip(steps, shape, strict=True)) if n > 1]
    within = 0 not in shape and min(steps, default=0) >= 0 and sum(far for _, far in reach) < x.size
    whole = tuple(n * x.itemsize for n in strides_of(x.shape))
    if not within or x.strides != whole or any(step % x.itemsize for step in strides or ()):
        raise refuse("as_strided out of the array, or of one that is not in C order", "only the array's elements are traced",
                     "Write it with slices, reshape and sliding_window_view")
    places = sum((iota(shape, axis) * step for axis, step in enumerate(steps)), start=constant(0, shape, np.int64))
    apart = all(step > sum(far for _, far in reach[:i]) for i, (step, _) in enumerate(reach))
    elements, mode = view(x, "reshape", shape=(x.size,), strides=(1,)), "set" if apart and writeable else "read-only"
    return view(elements, "gather", places.node, shape=shape, strides=tuple(steps), axes=(0,), mode=mode)


@handles(np.copyto)
def copyto(dst, src, casting="same_kind", where=True):
    must_be_traced(dst)
    value = operand(src)
    given = value.dtype if isinstance(value, TracedArray) else common_dtype(value)
    whole = value.__class__ is int and dst.dtype.kind != "b"
    require((whole and given.kind == "i") or np.can_cast(given, dst.dtype, casting))
    if value.__class__ is int and not whole:
        value = constant(value, (), bool)
    deliver(_fitted(value if whole else lift(value), dst, False), dst, "unsafe", where)
