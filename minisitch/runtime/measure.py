"""Filling FusionStitching 2018's performance library: one operation under one schedule, run on this CPU.

In:  an ``Entry`` that the library does not hold. Out: microseconds, stored beside the compile cache.

It is on when MINISITCH_MEASURE=1 was set as the package was imported: a first compile then takes seconds, since every
operation is compiled under every schedule that is weighed (the paper's own limitation); a second one measures nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import store
from ..fuse import make_plan
from ..graph import Builder
from ..ops import kind_of
from ..strategies.fs18.library import MEASURING, Entry, Library
from ..trace import Program
from ..trace.tree import Leaf
from ..triples import BlockComposition
from .executable import Executable, assemble
from .stages import lower_plan

FILE = "fs18_prices.json"
RUNS, LONG_ENOUGH_US = 5, 200.0  # the least of this many timings, each of calls that take so long together


def install() -> Library:
    """Answer misses by measuring from now on; prices are kept in the compile cache's folder, if there is one."""
    folder = store.folder()
    installed = Library(folder / FILE if folder else None, measure)
    MEASURING[:] = [installed]
    return installed


def measure(entry: Entry) -> float:
    """Microseconds of one call of a kernel that holds this operation alone, cut as the entry says."""
    executable, inputs = executable_for(entry)
    _, calls = executable.prepare(inputs)
    least, count = float("inf"), 1
    for _ in range(RUNS):
        while (us := _time(calls, count)) < LONG_ENOUGH_US:
            count *= 2
        least = min(least, us / count)
    return least


def executable_for(entry: Entry) -> tuple[Executable, list[np.ndarray]]:
    """The one-operation program of an entry, compiled, and arrays to call it with."""
    b, attrs = Builder(), dict[str, Any](entry.attrs)
    inputs = [b.add("input", type=t, name=f"x{i}") for i, t in enumerate(entry.operands)]
    graph = b.finish([b.add(entry.op, inputs, **attrs)])
    how = BlockComposition(((graph.outputs[0], entry.triple),), (), entry.threads)  # its body is the graph itself
    drawn = make_plan(graph, "measure", [graph.outputs], (), how)
    program = Program(graph, Leaf(0), Leaf(0), (), ())  # called by position, never nested
    return assemble(lower_plan(program, drawn, "cpu", entry.device), "cpu"), [_array(t.shape, t.dtype) for t in entry.operands]


def _array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Ordinary numbers: no denormals, no division by zero."""
    if kind_of(dtype) == "bool":
        return np.ones(shape, dtype)
    return (np.arange(np.prod(shape, dtype=int)) % 7 + 1).astype(dtype).reshape(shape)


def _time(calls: Sequence[Callable[[], Any]], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        for call in calls:
            call()
    return (time.perf_counter() - began) * 1e6
