"""A program on small arrays: a film of a row of 1,024 columns is too long to watch.

In:  a function and its arguments. Out: the traced program with shortened axes, and what to say
about that on the page.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...device import DEVICES
from ...trace import Program, trace
from ...trace.tree import flatten, unflatten

COLUMNS = (40, 16, 8)  # the longest last axis: more than a warp if the arrays stay short enough
ROWS = (4, 8)  # the longest other axis, and a longer one for functions that 4 are too few for
SHORT = 4_000  # elements of all arrays together
# Two warps a block and two blocks at a time: what can go wrong between threads goes wrong on it.
TOY = replace(DEVICES["h100"], name="toy", sms=1, threads_per_sm=128, max_block=64)
GPUS = {"toy": TOY, **{name: device for name, device in DEVICES.items() if device.kind == "gpu"}}


@dataclass(frozen=True)
class SmallProgram:
    """A traced program, one array for each input of its graph, and what was shortened."""

    program: Program
    inputs: tuple[np.ndarray, ...]
    notes: tuple[str, ...] = ()


def shortened(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> SmallProgram:
    """Trace the function on the first few rows and columns of each array.

    Axes of equal size stay equal. A function that does not run on the shorter arrays, because it
    names a size, is traced on the arrays as they are.
    """
    leaves, tree = flatten((args, kwargs))
    arrays = [x for x in leaves if isinstance(x, np.ndarray)]
    for rows in ROWS:
        sizes = _sizes(arrays, rows)
        if all(new == old for old, new in sizes.items()):
            return _traced(function, tree, leaves)
        short = [_cut(x, sizes) if isinstance(x, np.ndarray) else x for x in leaves]
        try:
            own_args, own_kwargs = unflatten(tree, [np.array(x) for x in short])
            function(*own_args, **own_kwargs)  # NumPy raises for an index that is not there now
            return replace(_traced(function, tree, short), notes=tuple(_sentences(arrays, sizes)))
        except Exception:
            continue  # whatever the function raises: it needs longer arrays
    note = "the arrays keep their sizes, since the function does not run on shorter ones"
    return replace(_traced(function, tree, leaves), notes=(note,))


def _sizes(arrays: list[np.ndarray], rows: int) -> dict[int, int]:
    """The shorter size for each size of an axis. What is a last axis anywhere counts as columns."""
    last = {x.shape[-1] for x in arrays if x.ndim}
    sizes: dict[int, int] = {}
    for columns in COLUMNS:
        sizes = {n: min(n, columns if n in last else rows) for x in arrays for n in x.shape}
        if sum(prod(sizes[n] for n in x.shape) for x in arrays) <= SHORT:
            break
    return sizes


def _cut(array: np.ndarray, sizes: Mapping[int, int]) -> np.ndarray:
    return np.array(array[tuple(slice(sizes[n]) for n in array.shape)])


def _sentences(arrays: list[np.ndarray], sizes: Mapping[int, int]) -> Iterator[str]:
    last = {x.shape[-1] for x in arrays if x.ndim}
    for old, new in sorted(sizes.items(), reverse=True):
        if new < old:
            yield f"{'columns' if old in last else 'rows'} shortened from {old:,} to {new}"


def _traced(function: Callable[..., Any], tree: Any, leaves: list[Any]) -> SmallProgram:
    args, kwargs = unflatten(tree, leaves)
    program = trace(function, args, kwargs)
    arrays = [np.array(x) for x in leaves]
    return SmallProgram(program, tuple(map(np.asarray, (*arrays, *program.outside(arrays)))))
