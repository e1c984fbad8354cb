"""``x[mask]`` with a traced mask: its number of elements is unknown, so nothing is gathered.

NumPy programs mostly read ``x[mask]`` to write it back (``x[mask] *= 2``, ``x[mask] = y[mask]``).
With the other elements carried along, this has a fixed shape. So ``Masked`` is the whole array
together with its mask. Elementwise work passes through it, and an assignment under the same mask is
a ``select``. Anything else is refused.
"""

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .array import TracedArray, choose, fresh, reshaped
from .guards import assignable
from .recorder import Recorder, refuse, user_line

DEPENDS = "how many elements it selects depends on values"
REMEDY = "Use np.where(mask, x, other), a reduction with where=mask, or x[mask] = value"


class Masked(NDArrayOperatorsMixin):
    """The elements of ``whole`` where ``mask`` holds. Their order and number are unknown."""

    __slots__ = ("line", "mask", "whole")
    __array_priority__ = 2000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, whole: TracedArray, mask: TracedArray) -> None:
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
        return tuple(Masked(r, self.mask) for r in result) if isinstance(result, tuple) else Masked(result, self.mask)

    def refuse(self, *args: Any, **options: Any) -> Any:
        """Raise TraceError, with the line where ``x[mask]`` was read."""
        raise refuse("x[mask] under a traced mask is read", DEPENDS, REMEDY, self.line)

    __array_function__ = __array__ = __len__ = __iter__ = __getitem__ = __setitem__ = __bool__ = __float__ = refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.refuse()


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


def write_masked(target: TracedArray, mask: TracedArray, value: Any, mask_axes: tuple[int, int]) -> None:
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
