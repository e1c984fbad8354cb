"""``x[mask]`` where the mask is traced: how many elements there are is not known, so nothing is gathered.

NumPy programs mostly read ``x[mask]`` to write it back (``x[mask] *= 2``, ``x[mask] = y[mask]``) or to sum it.
Both have a fixed shape when the other elements are carried along: ``Masked`` is the whole array beside
its mask. Elementwise work goes through it, assignment under the same mask is a ``select``, a reduction
leaves the others out; anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .array import Array, assignable, broadcast, lift, record, reshaped, settle
from .recorder import Recorder, refuse, user_line

REDUCTIONS: set[Any] = {np.sum, np.prod, np.mean, np.var, np.std, np.any, np.all}
DEPENDS = "how many elements it selects depends on values"
REMEDY = "Use np.where(mask, x, other), a reduction with where=mask, or x[mask] = value"


def is_dynamic_mask(index: Any) -> bool:
    """Is it a boolean array whose values are not known yet?"""
    return isinstance(index, Array) and index.dtype.kind == "b" and index.recorder.known(index.node) is None


class Masked(NDArrayOperatorsMixin):
    """The elements of ``whole`` where ``mask`` holds, in an order and number that nothing may ask for."""

    __slots__ = ("line", "mask", "whole")
    __array_priority__ = 2000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, whole: Array, mask: Array) -> None:
        if mask.shape != whole.shape[:mask.ndim]:
            raise IndexError(f"boolean index of shape {mask.shape} did not match indexed array of shape {whole.shape}")
        self.whole = whole.copy()
        self.mask = mask.copy()
        self.line = user_line()

    @property
    def dtype(self) -> np.dtype:
        return self.whole.dtype

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        for each in inputs:
            if method != "__call__" or not (_same_mask(each, self) if isinstance(each, Masked) else np.ndim(each) == 0):
                raise refuse(f"np.{ufunc.__name__} of x[mask] with another shape", DEPENDS, REMEDY)
        wholes = [each.whole if isinstance(each, Masked) else each for each in inputs]
        result = getattr(ufunc, method)(*wholes, **options)
        if isinstance(result, tuple):
            return tuple(Masked(each, self.mask) for each in result)
        if out is None:
            return Masked(result, self.mask)
        (target,) = out
        if not np.can_cast(result.dtype, target.dtype, "same_kind"):
            raise TypeError(f"Cannot cast output from {result.dtype!r} to {target.dtype!r} with casting rule 'same_kind'")
        target.whole = result.astype(target.dtype)
        return target

    def __array_function__(self, func: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
        whole = len(args) == 1 and args[0] is self and self.mask.shape == self.whole.shape
        if func in REDUCTIONS and whole and not kwargs.get("axis"):
            return func(self.whole, where=self.mask, **kwargs)
        if func in (np.size, np.shape, np.ndim):
            return self.whole.ndim - self.mask.ndim + 1 if func is np.ndim else self.refuse(f"np.{func.__name__}")
        return self.refuse(f"np.{func.__name__}")

    def refuse(self, seen: str) -> Any:
        raise refuse(f"{seen} of x[mask] under a traced mask", DEPENDS, REMEDY, self.line)

    def __getattr__(self, name: str) -> Any:
        functions: dict[str, Callable] = {each.__name__: each for each in REDUCTIONS}
        if name in functions:
            return lambda **options: functions[name](self, **options)
        if name.startswith("_"):
            raise AttributeError(name)
        return self.refuse(name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.refuse("conversion to an ndarray")

    def __len__(self) -> int:
        return self.refuse("len()")

    def __iter__(self) -> Any:
        return self.refuse("iteration")

    def __getitem__(self, index: Any) -> Any:
        return self.refuse("an element")


def _same_mask(a: Masked, b: Masked) -> bool:
    return a.mask.shape == b.mask.shape and same_value(a.mask.recorder, a.mask.node, b.mask.node)


def same_value(recorder: Recorder, a: int, b: int) -> bool:
    """Do two nodes compute the same thing? (``x > 0`` written twice is two nodes.)"""
    waiting, done = [(a, b)], set()
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


def masked_set(x: Array, entries: tuple, value: Any, basic: Callable[[tuple], Array]) -> None:
    """``x[..., mask, ...] = value``: choose per element of the window that the other entries select."""
    masks = [i for i, each in enumerate(entries) if is_dynamic_mask(each)]
    place = masks[0]
    mask: Array = entries[place]
    if len(masks) > 1 or any(isinstance(e, Array | np.ndarray | list) for i, e in enumerate(entries) if i != place):
        raise refuse("a boolean mask beside other index arrays", DEPENDS, "Apply the mask alone, with np.where")
    target = basic((*entries[:place], *[slice(None)] * mask.ndim, *entries[place + 1:]))
    behind = sum(1 for each in entries[place + 1:] if each is None or isinstance(each, slice))
    before = sum(1 for each in entries[:place] if each is None or isinstance(each, slice))
    if any(each is Ellipsis for each in entries[:place]):
        before = target.ndim - mask.ndim - behind
    covered = target.shape[before:before + mask.ndim]
    if covered != mask.shape:
        raise IndexError(f"boolean index of shape {mask.shape} did not match the indexed axes {covered}")
    after = target.ndim - before - mask.ndim
    if isinstance(value, Masked):
        if not same_value(x.recorder, value.mask.node, mask.node) or value.whole.shape != target.shape:
            value.refuse("assignment under another mask")
        chosen = settle(value.whole, x.dtype, target.shape, x.recorder)
    else:
        chosen = _spread(value, mask.ndim, after, target)
    wide = broadcast(reshaped(mask, (*mask.shape, *[1] * after)), target.shape)
    target.write(record("select", wide, chosen, lift(target, x.recorder)).node)


def _spread(value: Any, mask_rank: int, after: int, target: Array) -> Array:
    """A value to assign under a mask: one per masked element would need their number, so it has none."""
    fitted = assignable(value, target.dtype, target.recorder)
    if isinstance(fitted, Array) and fitted.ndim > after:
        axis = fitted.ndim - after - 1  # the axis that counts masked elements
        if fitted.shape[axis] != 1:
            raise refuse("x[mask] = values with one value for each masked element", DEPENDS,
                         "Write x[...] = np.where(mask, values_of_the_whole_shape, x)")
        fitted = reshaped(fitted, (*fitted.shape[:axis], *[1] * mask_rank, *fitted.shape[axis + 1:]))
    return settle(fitted, target.dtype, target.shape, target.recorder)
