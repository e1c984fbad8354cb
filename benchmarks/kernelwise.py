"""Each kernel of a program on the values that it is given in a call, against the reference.

In:  an ``Executable`` and the leaves of its arguments. Out: the kernels that compute something else, and how.

A whole program may stray from float64 although each kernel is right (one unit next to zero changes the side of its relu, and all
gradients with it), and agree although one is wrong (a gradient that hardly counts). So each kernel is held to its own program, by
the reference's derived bounds, on the very values that the steps before it left in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minisitch.runtime import Executable
from minisitch.runtime.steps import KernelStep
from minisitch.testing.judge import judge


def wrong_kernels(run: Executable, leaves: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """The name of each kernel whose results are refused, and the judge's reason. Equal kernels are judged once, and pipelines not
    at all."""
    arrays, calls = run.prepare([np.array(x) for x in leaves])
    kernels = iter(zip(run.stages.bodies, run.stages.digests, strict=True))
    judged: set[str] = set()
    with np.errstate(all="ignore"):
        for step, call in zip(run.steps, calls, strict=True):
            body, key = next(kernels) if isinstance(step, KernelStep) else (None, "")
            if body is None or key in judged:
                call()
                continue
            judged.add(key)
            graph, memory = body.graph, [arrays[slot] for slot in step.slots]  # inputs, outputs, scratch
            given = [_seen(array[offset:], graph[node].type.shape).copy()
                     for array, offset, node in zip(memory, body.offsets, graph.inputs, strict=False)]
            call()
            got = [_seen(array, graph[node].type.shape)
                   for array, node in zip(memory[len(graph.inputs):], graph.outputs, strict=False)]
            for verdict in judge(graph, given, got):
                if not verdict.ok:
                    yield step.name, verdict.why
                    break


def _seen(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array from its start on in this shape; of a window nothing behind its end is ever read."""
    size = int(np.prod(shape))
    return np.resize(array[:size], size).reshape(shape) if array.size else np.zeros(shape, array.dtype)
