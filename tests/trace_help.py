"""What the tests of ``trace`` share: does a traced program give what NumPy gives?"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from minisitch.reference import evaluate
from minisitch.trace import Program, flatten, trace, unflatten
from minisitch.trace.parser import parse

ROUNDING = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-14}


def run(program: Program, args: tuple, kwargs: dict | None = None) -> Any:
    """Execute a program as a caller would: bind inputs, evaluate, store what was changed in place."""
    leaves, tree = flatten((tuple(args), dict(kwargs or {})))
    assert tree == program.inputs
    assert parse(str(program.graph)) == program.graph
    results = evaluate(program.graph, [np.array(each) for each in (*leaves, *program.captured)])
    for place, output in program.mutated:
        leaves[place][...] = results[output]
    return unflatten(program.outputs, results)


def assert_same(found: Any, expected: Any, exact: bool = False) -> None:
    """Nest, dtype, shape, then values: equal, or for floats within a few roundings of the largest."""
    found_leaves, found_tree = flatten(found)
    leaves, tree = flatten(expected)
    assert found_tree == tree
    for got, want in zip(found_leaves, leaves, strict=True):
        got, want = np.asarray(got), np.asarray(want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if exact or want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
        else:
            finite = np.abs(want[np.isfinite(want)])
            rounding = ROUNDING[want.dtype.name]
            np.testing.assert_allclose(got, want, rtol=rounding, atol=rounding * max(finite, default=0.0))


def check(fn: Any, *args: Any, exact: bool = False, **kwargs: Any) -> Program:
    """Trace a function, run the graph, and compare with the function itself: results and changed arguments."""
    ours, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
    with np.errstate(all="ignore"):
        expected = fn(*theirs[0], **theirs[1])
    program = trace(fn, args, kwargs)
    found = run(program, *ours)
    assert_same(found, expected, exact)
    assert_same(ours, theirs, exact)
    return program
