"""Programs that a reader or a random search once broke: each against NumPy, every strategy, both texts."""

from __future__ import annotations

import numpy as np
import pytest

import minisitch as ms


def concatenate_under_a_gather(a, b, at):
    """The index is needed by a guard only."""
    return np.concatenate([np.broadcast_to(a, (3, 7)), b])[at]


def column_sums_beside_a_wider_row(dy, z):
    """The partial results are counted by the map of the column sums."""
    return dy.sum(-1), dy.sum(0), z.max(-1)


def views_of_two_lengths(x):
    """Two phases read the same rows, one of them fewer elements."""
    y = x * x - (x * x).sum()
    return np.tanh(y), y[:-3].copy()


def column_sums_too_many_for_shared_memory(x):
    return x.sum(-1), x.sum(0), (x * x).sum(0), (x + 1).prod(0)


def array(*shape, scale=1.0):
    return (np.random.default_rng(0).standard_normal(shape) * scale).astype(np.float32)


CASES = [
    (concatenate_under_a_gather, (array(1, 7), array(4, 7), np.array([0, 6, 2, 3, 3]))),
    (column_sums_beside_a_wider_row, (array(100, 64), array(100, 512))),
    (views_of_two_lengths, (array(40, 16),)),
    (column_sums_too_many_for_shared_memory, (array(8, 4096, scale=0.01),)),
]


@pytest.mark.parametrize("strategy", ["none", "xla", "astitch"])
@pytest.mark.parametrize(("function", "args"), CASES, ids=lambda case: getattr(case, "__name__", ""))
@pytest.mark.parametrize("target", ["python", "step"])
def test_what_once_broke_holds(function, args, strategy, target):
    wanted = function(*args)
    got = ms.jit(function, strategy=strategy, target=target, device="v100" if target == "step" else None)(*args)
    for g, w in zip(got if isinstance(got, tuple) else (got,), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)
