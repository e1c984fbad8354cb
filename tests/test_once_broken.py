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


def two_values_of_one_name(a, x, z):
    """Of rows taken together in a second segment: v0 and v0_1 both found v0's place taken."""
    u, w = x * a[:64, None], z * a[:-1, None] + a[1:, None]
    return u - u.max(1, keepdims=True), w - w.max(1, keepdims=True)


def one_array_two_positions(x, t, u):
    """A row that is read again was kept in registers, under a position that means another row in the next loop."""
    return x[u] - x[t].max(axis=1, keepdims=True)


def carries_beside_a_split_row(x, z):
    """The block was made for the split row; the parts of the column sums were counted before."""
    return x.sum(-1), x.sum(0), z.sum()


def kept_rows_of_two_segments(x, z):
    """A kept row took over another segment's bytes in place, where other threads still read them."""
    e, g = np.exp(x), np.exp(z[:, 1:])
    return e / e.sum(1, keepdims=True), g / g.sum(1, keepdims=True)


def a_block_without_a_task_between(x, y, z):
    """A block skipped the segment whose barrier lay between two uses of one place to meet."""
    return x.sum(1), y.sum(1), z.sum(1)


def a_guarded_load_before_a_plain_one(x, y, w):
    """The row is kept from the second loop on; the first loop's guarded load was to read it, too."""
    c = np.concatenate([np.broadcast_to(x, (4, 64)), y])
    e = np.exp(w + x - c.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) + x


def one_element_under_two_guards(a, b, e, t, u):
    """Its load is clamped, so that it needs neither position; one of them was not known yet."""
    return np.concatenate([a, b])[t] + np.concatenate([a, e])[u]


def a_row_of_odd_length_in_place(x):
    """The last column is no group's: the checker took its element for overwritten when the others' were."""
    e = np.tanh(x)
    f = np.tanh(e / e.sum() + np.exp(e))
    return f / f.sum()


def array(*shape, scale=1.0):
    return (np.random.default_rng(0).standard_normal(shape) * scale).astype(np.float32)


CASES = [  # a function; its arguments; and fewer rows for the stepper, where they give the same texts but for the numbers
    (concatenate_under_a_gather, (array(1, 7), array(4, 7), np.array([0, 6, 2, 3, 3]))),
    (column_sums_beside_a_wider_row, (array(100, 64), array(100, 512)), (array(20, 64), array(20, 512))),
    (views_of_two_lengths, (array(40, 16),)),
    (column_sums_too_many_for_shared_memory, (array(8, 4096, scale=0.01),), (array(2, 4096, scale=0.01),)),
    (one_table_two_indices, (array(64, 40), array(30), np.arange(64) % 30, np.arange(64)[::-1] % 30)),
    (rows_together_of_two_widths, (array(128, 32), array(120, 200), array(1, 1)), (array(64, 32), array(56, 136), array(1, 1))),
    (two_values_of_one_name, (array(100), array(64, 32), array(99, 32))),
    (one_array_two_positions, (array(50, 64), np.arange(8), np.arange(8)[::-1] + 20)),
    (carries_beside_a_split_row, (array(40, 64), array(2048))),
    (kept_rows_of_two_segments, (array(3, 1024), array(5, 1025)), (array(2, 1024), array(3, 1025))),
    (a_block_without_a_task_between, (array(3, 1024), array(4, 512), array(5, 1024))),
    (a_guarded_load_before_a_plain_one, (array(64), array(4, 64), array(8, 64))),
    (one_element_under_two_guards, (array(1), array(1), array(1), np.array([0, 1, 1]), np.array([1, 0, 1]))),
    (a_row_of_odd_length_in_place, (array(33) + 5,)),
]


@pytest.mark.parametrize(("target", "device", "strategy"), [
    *(("python", None, strategy) for strategy in ("none", "xla", "astitch")),
    ("step", "v100", "xla"), ("step", "v100", "astitch"), ("step", "h100", "astitch")])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_what_once_broke_holds(case, strategy, target, device):
    function, args = case[0], case[-1] if target == "step" else case[1]
    wanted = function(*args)
    got = ms.jit(function, strategy=strategy, target=target, device=device)(*args)
    for g, w in zip(got if isinstance(got, tuple) else (got,), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)
