"""Values that two regions of a long program need: views and constants that library calls of both read from memory."""

from functools import partial

import numpy as np
import pytest

import minisitch as ms
from minisitch.fuse import GENERATED, VIEWS, view_source
from minisitch.strategies import regions

STRATEGIES = ("none", "xla", "fs18", "fs20", "astitch", "auto", "kitsune")
N = 6
# What makes an N by N value that a product cannot read from x by strides, from x and the sum so far.
SHARED = {
    "transposed": lambda x, y: x.T.reshape(N // 2, 2 * N).reshape(N, N),
    "transposed twice": lambda x, y: x.T.reshape(4, 9).T.reshape(N, N),
    "of an operation": lambda x, y: y.T.reshape(4, 9).reshape(N, N),
    "zeros": lambda x, y: np.zeros((N, N)),
    "ones": lambda x, y: np.ones((N, N)),
    "column": lambda x, y: np.broadcast_to(x[:, 1:2].reshape(2, 3).T.reshape(N), (N, N)),
    "repeated": lambda x, y: np.repeat(x[:, :3], 2, axis=1),
    "tiled": lambda x, y: np.tile(x[:2], (3, 1)),
    "counted": lambda x, y: np.arange(1. * N * N).reshape(N, N) / 8,
    "identity": lambda x, y: np.eye(N),
    "windows": lambda x, y: np.lib.stride_tricks.sliding_window_view(x, (2, 3))[::2, ::2].transpose(0, 2, 1, 3).reshape(-1, N)[:N],
    "input": lambda x, y: x,
    "computed": lambda x, y: np.exp(-y),
}


def program(seed):
    """A program that reads shared values in products and in operations, in all of its regions, and may return them."""
    rng = np.random.default_rng(seed)
    steps = [(rng.choice(list(SHARED)), rng.integers(0, 8, 2), *rng.random(4)) for _ in range(rng.integers(4, 8))]

    def function(x, w):
        y, shared, returned = x, [], []
        for i, (kind, readers, new, product, added, out) in enumerate(steps):
            if new < 0.6 or not shared:
                shared.append(SHARED[kind](x, y))
            for value in [shared[r % len(shared)] for r in readers]:
                y = np.tanh(y + value @ w) if product < 0.7 else y * value + w @ value
            y = np.sin(np.sin(y + i)) + (shared[-1] if added < 0.3 else 1)
            returned += [shared[-1]] if out < 0.2 else []
        return [y, *returned]
    return function


def of_two_regions(graph, spans):
    """The views and constants that library calls in more than one of these ranges of nodes read from memory."""
    read = [{view_source(graph, a) for i in span if graph[i].kind == "library" for a in graph[i].args} for span in spans]
    return [v for v in set().union(*read) if graph[v].op in VIEWS | GENERATED and sum(v in each for each in read) > 1]


@pytest.mark.parametrize("device", ["cpu", "v100"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_values_that_calls_of_several_regions_read_are_written_once(strategy, device, monkeypatch):
    monkeypatch.setattr(regions, "MOST_STITCHED", 2)
    monkeypatch.setattr(regions, "MOST_OPERATIONS", 6)
    monkeypatch.setattr(regions, "MOST_STATEMENTS", 24)
    x, w = np.random.default_rng(0).random((2, N, N))
    several = 0
    for seed in range(12):
        function = program(seed)
        plan = ms.lower(function, x, w, strategy=strategy, device=device, stop_after="fuse")  # refuses what is written twice
        several += bool(of_two_regions(plan.graph, regions.regions(plan.graph, 6)))
        if device == "cpu":
            for got, want in zip(ms.jit(function, strategy=strategy, target="python")(x, w), function(x, w), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
    assert several > 6, "most programs have such a value"


def long(make, x, w, v):
    """A program that is long enough to be cut, with one value read in its first region, its last, and between."""
    shared = make(x, x)
    y = shared @ w
    for i in range(150):
        y = np.sin(y + i)
        if i == 100:
            y = y - shared
    return y + shared @ v, shared


@pytest.mark.parametrize("shared", SHARED)
def test_a_long_program_reads_one_value_in_several_regions(shared):
    x, w, v = np.random.default_rng(0).random((3, N, N))
    f = partial(long, SHARED[shared])
    assert any(d.rule == "region" for d in ms.lower(f, x, w, v, strategy="astitch", stop_after="fuse").decisions)
    for got, want in zip(ms.jit(f, strategy="astitch", target="python")(x, w, v), f(x, w, v), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
