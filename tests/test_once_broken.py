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


def one_table_two_indices(x, t, i, j):
    """Each loop numbers the positions it has read from memory; the second one's first is not the first one's first."""
    return x * t[j][:, None] - np.max(x * t[i][:, None], axis=1, keepdims=True)


def rows_together_of_two_widths(x, y, t):
    """What crosses the loops of short rows had one name in both segments, and the length of the wider rows, of which fewer
    are taken together."""
    a, b = x * t, y * t
    return a - np.max(a, axis=1, keepdims=True), b - np.max(b, axis=1, keepdims=True)


def array(*shape, scale=1.0):
    return (np.random.default_rng(0).standard_normal(shape) * scale).astype(np.float32)


CASES = [
    (concatenate_under_a_gather, (array(1, 7), array(4, 7), np.array([0, 6, 2, 3, 3]))),
    (column_sums_beside_a_wider_row, (array(100, 64), array(100, 512))),
    (views_of_two_lengths, (array(40, 16),)),
    (column_sums_too_many_for_shared_memory, (array(8, 4096, scale=0.01),)),
    (one_table_two_indices, (array(64, 40), array(30), np.arange(64) % 30, np.arange(64)[::-1] % 30)),
    (rows_together_of_two_widths, (array(128, 32), array(120, 200), array(1, 1))),
]


@pytest.mark.parametrize("strategy", ["none", "xla", "astitch"])
@pytest.mark.parametrize(("function", "args"), CASES, ids=lambda case: getattr(case, "__name__", ""))
@pytest.mark.parametrize("target", ["python", "step"])
def test_what_once_broke_holds(function, args, strategy, target):
    wanted = function(*args)
    got = ms.jit(function, strategy=strategy, target=target, device="v100" if target == "step" else None)(*args)
    for g, w in zip(got if isinstance(got, tuple) else (got,), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)
