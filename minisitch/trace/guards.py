"""Errors of NumPy that depend on values: assignments that do not fit, and guards.

In:  the right side of ``x[i] = value``, or bools that must not hold.
Out: a traced array, or a guard of the recorder. A guard becomes one more output of the graph. A
call raises NumPy's error if it is true (``Program.guards``).
"""

from typing import Any

import numpy as np

from .array import TracedArray, is_traced, lift, record
from .numbers import fitting


def assignable(value: Any, dtype: np.dtype, checked: bool = True) -> TracedArray:
    """The right side of ``x[i] = value``. NumPy itself converts a real one, with its own errors.

    ``checked``: NumPy's scalars must fit the dtype. At integer positions and masks only Python's
    must.
    """
    value = fitting(value, dtype)
    if is_traced(value) or isinstance(value, np.ndarray) or (isinstance(value, np.generic) and not checked):
        if checked and dtype.kind == "i" and isinstance(value, TracedArray) and value.is_scalar:
            _guard_range(value, np.iinfo(dtype))
        return lift(value)
    held = np.zeros(np.shape(value), dtype)
    held[...] = value
    return lift(held if held.ndim else held[()])


def _guard_range(value: TracedArray, holds: np.iinfo) -> None:
    """Guard what NumPy checks of a scalar: whether a signed dtype holds it.

    NumPy checks no arrays, and no other dtypes.
    """
    low, high = int(holds.min), int(holds.max)
    if value.dtype.kind == "f":
        guard(np.isnan(value), ValueError, "cannot convert float NaN to integer")
        whole = np.trunc(value)
        with np.errstate(over="ignore"):
            low, high = value.dtype.type(low), value.dtype.type(high + 1)
            guard((whole < low) | (whole >= high), OverflowError,
                  f"a float is infinite or out of bounds for {holds.dtype}")
    elif value.dtype.kind in "iu" and not np.can_cast(value.dtype, holds.dtype):
        guard((value < low) | (value > high), OverflowError, f"an integer is out of bounds for {holds.dtype}")


def guard(wrong: TracedArray, error: type[Exception], message: str) -> None:
    """Raise NumPy's error if any of these bools holds.

    If they are known, now. Otherwise each call of the program does.
    """
    recorder = wrong.recorder
    known = recorder.known(wrong.node)
    if known is not None:
        if known.any():
            raise error(message)
        return
    found = record("any", wrong, axes=tuple(range(wrong.ndim)), keepdims=False).node if wrong.ndim else wrong.node
    before = recorder.guards.get((error, message))
    recorder.guards[error, message] = found if before is None else recorder.add("or", (before, found))
