"""Reading and writing ``x[...]``: slices are views, integer arrays gather and scatter, masks select.

In:  any NumPy index. Out: views (basic indexing) or ``gather`` nodes; writes become ``update``,
``scatter`` or ``select``, through every view up to the storage.

An index is first parsed into one ``Item`` per axis of the array and per new axis, in the index's order.
NumPy's rule for where the axes of an advanced index end up is then one question: are its items neighbours?
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .array import (
    Array,
    assignable,
    broadcast,
    cast,
    constant,
    fresh,
    inverse,
    is_traced,
    lift,
    method,
    must_be_traced,
    operand,
    permuted,
    record,
    reshaped,
    settle,
    traced,
    view,
)
from .masked import DEPENDS, Masked, is_dynamic_mask, write_masked
from .recorder import Recorder, refuse
from .shapes import ones_view, seen, slice_view
from .ufuncs import METHODS

KEPT = ("slice", "new", "mask")  # items that leave an axis in the result


@dataclass(frozen=True)
class Item:
    """What an index does to one axis: a ``slice`` (a range), an ``int``, an ``array``, a traced ``mask`` (also of more axes).

    Or to none: a ``new`` axis, or an Ellipsis with nothing to stand for, which still parts its neighbours (``gap``).
    """

    kind: str
    axis: int = -1
    value: Any = None


# ---------------------------------------------------------------- parsing
def parse(x: Array, index: Any) -> list[Item]:
    """One item per axis of ``x`` and per new axis. Raises IndexError as NumPy does."""
    entries = [part for each in _entries(index) for part in _plain(each)]
    used = sum(each is not None and each is not Ellipsis for each in entries)
    dots = sum(each is Ellipsis for each in entries)
    if dots > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > x.ndim:
        raise IndexError(f"too many indices for array: array is {x.ndim}-dimensional, but {used} were indexed")
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


def _plain(entry: Any) -> list[Any]:
    """An entry as None, Ellipsis, slice, int, arrays (a known mask becomes several), or a mask for each of its axes."""
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return [entry]
    if is_dynamic_mask(entry):
        return [entry] * entry.ndim
    if isinstance(entry, list | range):
        entry = lift(entry) if is_traced(entry) else np.asarray(entry, None if len(entry) else np.intp)
    if np.shape(entry) == () and getattr(entry, "dtype", type(entry)) in (bool, np.bool_):
        raise refuse("a single bool as an index", "it adds an axis of length 0 or 1", "Write x[None] or a slice")
    if isinstance(entry, Array) and entry.recorder.known(entry.node) is not None:
        entry = entry.recorder.known(entry.node) if entry.dtype.kind == "b" or not entry.shape else entry
    if not isinstance(entry, Array | np.ndarray):
        try:
            return [operator.index(entry)]
        except TypeError:
            raise IndexError("only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
                             "boolean arrays are valid indices") from None
    if entry.dtype.kind == "b" and isinstance(entry, np.ndarray) and entry.shape:
        return list(np.nonzero(entry))
    if entry.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    return [int(entry)] if isinstance(entry, np.ndarray) and not entry.shape else [entry]


def _item(entry: Any, axis: int, x: Array) -> Item:
    n = x.shape[axis]
    if isinstance(entry, slice):
        return Item("slice", axis, range(*slice(*map(_bound, (entry.start, entry.stop, entry.step))).indices(n)))
    if isinstance(entry, int):
        if not -n <= entry < n:
            raise IndexError(f"index {entry} is out of bounds for axis {axis} with size {n}")
        return Item("int", axis, entry % n)
    if entry.dtype.kind == "b":
        return Item("mask", axis, entry)
    return Item("array", axis, _in_bounds(entry, axis, n, x.recorder))


def _bound(value: Any) -> int | None:
    """A slice bound; a traced one would make the shape depend on values."""
    if isinstance(value, Array):
        return int(value.known("a slice bound", "Use a fixed window, or np.take with an index array of a fixed shape"))
    return None if value is None else operator.index(value)


def _in_bounds(index: Array | np.ndarray, axis: int, n: int, recorder: Recorder) -> Array:
    """Integer indices with negative ones wrapped; known values are checked against the side now."""
    values = index if isinstance(index, np.ndarray) else recorder.known(index.node)
    if values is not None and values.size:
        low, high = int(values.min()), int(values.max())
        if low < -n or high >= n:
            wrong = low if low < -n else high
            raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {n}")
    positions = lift(index)
    if (values is not None and (not values.size or low >= 0)) or positions.dtype.kind == "u" \
            or positions.node in recorder.nonnegative:
        return positions
    return wrapped(positions, n)


def wrapped(positions: Array, n: int) -> Array:
    """Negative positions count from the end."""
    if n > np.iinfo(positions.dtype).max:
        positions = cast(positions, np.int64)
    side = constant(n, positions.shape, positions.dtype)
    zero = constant(0, positions.shape, positions.dtype)
    return record("select", record("lt", positions, zero), record("add", positions, side), positions)


# ---------------------------------------------------------------- basic indexing
def _window(x: Array, items: Sequence[Item]) -> Array:
    """The part of ``x`` its slices and ints select, rank kept; array items take all of their axis."""
    start, size, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for item in items:
        if item.kind == "slice":
            size[item.axis] = len(item.value)
            if len(item.value):
                start[item.axis], step[item.axis] = item.value.start, item.value.step
        elif item.kind == "int":
            start[item.axis], size[item.axis] = item.value, 1
    return slice_view(x, start, size, step)


def _basic(x: Array, items: Sequence[Item]) -> Array:
    """The view of an index made of slices, ints, new axes, and a mask, whose axes it takes whole."""
    window = _window(x, items)
    shape = tuple(1 if item.kind == "new" else window.shape[item.axis] for item in items if item.kind in KEPT)
    return window if shape == window.shape else ones_view(window, shape)


# ---------------------------------------------------------------- advanced indexing
@dataclass(frozen=True)
class Advanced:
    """An index with integer arrays, worked out: what to gather, and how the result's axes are arranged."""

    window: Array  # the view that the slices select
    axes: tuple[int, ...]  # of the window: one per index array
    indices: tuple[Array, ...]  # of one shape
    perm: tuple[int, ...]  # from gathered axes (index axes first) to NumPy's order
    shape: tuple[int, ...]  # of the result, new axes included


def _advanced(x: Array, items: Sequence[Item]) -> Advanced:
    """Ints take part as arrays of shape (): they are broadcast and count as neighbours."""
    if any(item.kind == "mask" for item in items):
        raise refuse("a boolean mask beside other index arrays", DEPENDS, "Apply the mask alone, with np.where")
    fancy = [i for i, item in enumerate(items) if item.kind in ("array", "int")]
    window = _window(x, [item for item in items if item.kind == "slice"])
    arrays = [items[i].value if items[i].kind == "array" else constant(items[i].value, (), np.int64)
              for i in fancy]
    try:
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        raise IndexError("shape mismatch: indexing arrays could not be broadcast together with shapes "
                         + " ".join(str(a.shape) for a in arrays)) from None
    rest = [item for item in items if item.kind in ("slice", "new")]
    neighbours = fancy[-1] - fancy[0] == len(fancy) - 1
    # How many result axes stand before those of the index.
    before = sum(item.kind in ("slice", "new") for item in items[:fancy[0]]) if neighbours else 0
    kept_before = sum(item.kind == "slice" for item in rest[:before])
    sides = [1 if item.kind == "new" else window.shape[item.axis] for item in rest]
    rank, kept = len(shape), sum(item.kind == "slice" for item in rest)
    perm = (*range(rank, rank + kept_before), *range(rank), *range(rank + kept_before, rank + kept))
    return Advanced(window, tuple(items[i].axis for i in fancy), tuple(broadcast(a, shape) for a in arrays), perm,
                    (*sides[:before], *shape, *sides[before:]))


def _gather(index: Advanced) -> Array:
    """A copy in general; a view for one traced position (``x[i]``), which NumPy sees as an integer."""
    if index.indices[0].ndim == 0 and index.shape:
        window = index.window
        shape = tuple(n for axis, n in enumerate(window.shape) if axis not in index.axes)
        found = view(window, "gather", *(i.node for i in index.indices), shape=shape, axes=index.axes)
        return seen(ones_view(found, index.shape))
    found = record("gather", index.window, *index.indices, axes=index.axes, row_major=False)
    return reshaped(permuted(found, index.perm), index.shape)


def _scatter(index: Advanced, value: Any, mode: str) -> None:
    """Write (or add) a value at integer positions of the window, and so into the array behind it."""
    window = index.window
    placed = _fitted(value, window, index.shape)
    gathered = [n for axis, n in enumerate(window.shape) if axis not in index.axes]
    gathered = [*index.indices[0].shape, *gathered]
    placed = permuted(reshaped(placed, [gathered[p] for p in index.perm]), inverse(index.perm))
    window.write(record("scatter", window, placed, *index.indices, axes=index.axes, mode=mode).node)


def _fitted(value: Any, target: Array, shape: tuple[int, ...]) -> Array:
    """A value to be assigned, in the target's dtype and the wanted shape (leading ones may be dropped)."""
    value = assignable(value, target.dtype)
    if isinstance(value, Array):
        extra = value.ndim - len(shape)
        if extra > 0 and value.shape[:extra] == (1,) * extra:
            value = reshaped(value, value.shape[extra:])
        if value.ndim > len(shape):
            raise ValueError(f"could not broadcast input array from shape {value.shape} into shape {shape}")
    return settle(value, target.dtype, shape)


# ---------------------------------------------------------------- x[...] and x[...] = value
@method
def __getitem__(x: Array, index: Any) -> Any:
    """``x[index]``."""
    items = parse(x, index)
    kinds = {item.kind for item in items}
    if "array" in kinds:
        return _gather(_advanced(x, items))
    result = _basic(x, items)
    if "mask" in kinds:
        return Masked(result, broadcast(_mask(x, items)[0], result.shape))
    if not seen(result).shape and not any(each is Ellipsis for each in _entries(index)):
        return fresh(result.node)  # a scalar: it keeps its value when x changes
    return result


@method
def __setitem__(x: Array, index: Any, value: Any) -> None:
    """``x[index] = value``."""
    if x.is_scalar:
        raise TypeError(f"'numpy.{x.dtype.name}' object does not support item assignment")
    items = parse(x, index)
    kinds = {item.kind for item in items}
    if "array" in kinds:
        advanced = _advanced(x, items)
        if not _is_same_row(value, advanced):
            _scatter(advanced, value, "set")
        return
    target = _basic(x, items)
    if "mask" in kinds:
        mask, axes = _mask(x, items)
        write_masked(target, broadcast(mask, target.shape), value, axes)
    elif not _same_view(value, target):
        target.write(_fitted(value, target, target.shape).node)


def _mask(x: Array, items: Sequence[Item]) -> tuple[Array, tuple[int, int]]:
    """The mask among the items, ready to be broadcast to their view, and which of the view's axes are its own."""
    kept = [item for item in items if item.kind in KEPT]
    own = [i for i, item in enumerate(kept) if item.kind == "mask"]
    mask = kept[own[0]].value
    if any(kept[i].value is not mask for i in own):
        raise refuse("two boolean masks in one index", DEPENDS, "Combine them with & first")
    covered = tuple(x.shape[kept[i].axis] for i in own)
    if mask.shape != covered:
        raise IndexError(f"boolean index of shape {mask.shape} did not match the indexed axes {covered}")
    sides = [x.shape[item.axis] if item.kind == "mask" else 1 for item in kept]
    return reshaped(mask, sides), (own[0], own[-1] + 1)


def _same_view(value: Any, target: Array) -> bool:
    """Is this the second half of ``x[i] += v``, whose first half has already written through the view?"""
    return isinstance(value, Array) and value._storage is target._storage and value.path() == target.path()


def _is_same_row(value: Any, index: Advanced) -> bool:
    """The same for a row at a traced position, whose path names the position's nodes."""
    if not isinstance(value, Array) or value._storage is not index.window._storage:
        return False
    nodes = {node for move in value.path() for node in move.indices}
    return bool(nodes) and value.shape == index.shape and nodes == {i.node for i in index.indices}


def at(ufunc: np.ufunc, target: Any, index: Any, value: Any = None) -> None:
    """``np.add.at(x, index, value)``: repeated positions add up."""
    must_be_traced(target)
    if ufunc.__name__ not in ("add", "subtract"):
        raise refuse(f"np.{ufunc.__name__}.at", "only sums can be scattered", "Use np.add.at")
    change = operand(value) if ufunc.__name__ == "add" else traced.negative(operand(value))
    items = parse(target, index)
    if any(item.kind == "array" for item in items):
        _scatter(_advanced(target, items), change, "add")
    else:
        target[index] += change


METHODS["at"] = at
