"""Kernels of ours read only what was written: updates of slices that lie in each other and across."""

import numpy as np
import pytest
from stitch_help import lowered

import minisitch as ms
from minisitch.stitch.index import Digit, Index, Within, lies_within, variable
from minisitch.testing import random_graph

STRATEGIES = ("none", "xla", "fs18", "fs20", "astitch", "auto")


def columns(flat, a):
    c = flat.reshape(4, 2)
    c[:2, 0] += a[:2]
    c[:2, 1] += a[:2]
    c[:3, 0] += a
    c[:3, 1] += a


def rows(flat, a):
    c = flat.reshape(2, 4)
    for row in (0, 1, 0, 1):
        c[row, :3] *= a
        c[row, 1:] -= a


def strided(flat, a):
    flat[::2][:3] += a
    flat[1::2][:3] += a
    flat[::-1][:3] *= a
    flat[2:5] -= flat[:3]
    flat[::2][1:4] += a


def tails(flat, a):
    for k in range(1, 5):
        flat[-k:] += flat[:k] * a[0]


def crossing(flat, a):
    c = flat.reshape(4, 2)
    c[:2, 0] += a[:2]
    c[1:3, 0] += a[:2]
    c[::2, 0] += a[:2]
    c[:3, 0] += a
    c[::2, 1] += c[1:3, 0]
    c[1:, :1] += c[:3, 1:]


@pytest.mark.parametrize("target", ["step", "python"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("function", [columns, rows, strided, tails, crossing])
def test_updates_in_each_other(function, strategy, target):
    a, got, want = np.array([1., 2., 3.]), np.arange(1., 9.), np.arange(1., 9.)
    ms.jit(function, strategy=strategy, target=target)(got, a)
    function(want, a)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", [5000, 5027, 5120])
def test_random_programs_hold_such_updates(seed):
    """Programs that ``tools/random_programs.py`` draws. The loads of each were refused while they were clamped."""
    rng = np.random.default_rng(seed)
    lowered(random_graph(rng, max_nodes=int(rng.integers(3, 25)), max_elements=600), stop_after="schedule")


def test_where_an_index_lies():
    col = variable("col", 8)
    half = Index(0, ((1, Digit("col", 2, 4)),))
    assert not lies_within(half, (), 0, 1) and lies_within(half, (), 0, 3)
    assert lies_within(half, (Within(half, 0, 2),), 0, 1) and not lies_within(half + 1, (Within(half, 0, 2),), 0, 1)
    assert lies_within(half, (Within(col, 0, 4),), 0, 1)  # found by looking
    assert lies_within(half * 2, (Within(half, 1, 2),), 2, 2) and lies_within(half * -1, (Within(half, 1, 3),), -2, -1)


def test_a_row_that_other_loops_read_too_stays_in_shared_memory():
    """``k`` is read by a loop over its 32 columns and by one over 96: threads of the latter have no register of it."""
    def shifted(x):
        rows = x.reshape(3, 32)
        k = np.exp(rows[1, ::-1])
        y = np.minimum(np.exp(rows), k)
        z = np.exp(y[2]) + k
        w = np.tanh(y)
        w[1] += z
        return w[::-1] * y, z

    x = np.linspace(0, 1, 96).astype(np.float32)
    for got, want in zip(ms.jit(shifted, strategy="astitch", target="step")(x), shifted(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
