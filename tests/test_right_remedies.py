"""Each remedy works when it is followed: the program that it makes traces, and its values are those of the refused one in NumPy."""

from __future__ import annotations

import itertools
import linecache
import math

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from sources import executed

import minisitch as ms
from minisitch.trace import refusals

X = np.array([1.5, -0.5, 3.25, 0.5, 2.0])
Y = np.array([0.5, 2.5, -1.0, 0.0, 1.0])
M = np.arange(12.0).reshape(3, 4) - 5
SPACE = {"np": np, "math": math, "ms": ms, "sliding_window_view": sliding_window_view, "itertools": itertools}

# what is refused -> what its remedy makes of it, and a part of the remedy
FOLLOWED = {
    "float(x[0]) // 2": ("x[0] // 2", "Compute with the array as with a number"),
    "int(x[2]) + 1": ("x[2].astype(np.int64) + 1", "Write x.astype(np.int64)"),
    "round(x[2], 1)": ("np.round(x[2], 1)", "Write np.round(x, digits)"),
    "np.where(bool(x[0]), x, y)": ("np.where(x[0] != 0, x, y)", "np.where(x != 0, a, b)"),
    "any(x > 2)": ("np.any(x > 2)", "Write np.any(x)"), "all(x > 2)": ("np.all(x > 2)", "Write np.all(x)"),
    "max(x[0], x[1])": ("np.maximum(x[0], x[1])", "np.maximum(a, b)"), "max(x)": ("np.max(x)", "np.max(x)"),
    "min(x[0], x[1])": ("np.minimum(x[0], x[1])", "np.minimum(a, b)"), "min(x)": ("np.min(x)", "np.min(x)"),
    "np.array(sorted(x))": ("np.sort(x)", "np.sort(x)"),
    "math.fsum(x)": ("np.sum(x)", "np.sum(x)"), "math.erf(x[0])": ("ms.erf(x[0])", "minisitch.erf(x)"),
    "math.dist(x, y)": ("np.sqrt(np.sum((x - y) ** 2))", "np.sqrt(np.sum((a - b) ** 2))"),
    "math.isqrt(k[1])": ("np.floor(np.sqrt(k[1])).astype(np.int64)", "np.floor(np.sqrt(x)).astype(np.int64)"),
    "math.exp(x[0])": ("np.exp(x[0])", "Write np.exp(x)"), "math.pow(x[0], 2)": ("np.pow(x[0], 2)", "Write np.pow(x)"),
    "math.atan2(x[0], y[1])": ("np.atan2(x[0], y[1])", "np.atan2"), "math.floor(x[0])": ("np.floor(x[0])", "np.floor"),
    "math.hypot(x[0], y[1])": ("np.hypot(x[0], y[1])", "np.hypot"), "math.copysign(x[0], y[2])": ("np.copysign(x[0], y[2])", "np.copysign"),
    "math.log2(x[0])": ("np.log2(x[0])", "np.log2"), "math.degrees(x[0])": ("np.degrees(x[0])", "np.degrees"),
    "np.array([e for _, e in np.ndenumerate(x)])": ("np.stack([x[i] for i in range(x.shape[0])])", "for i in range(x.shape[0]): x[i]"),
    "np.vectorize(lambda e: e if e > 0 else -e)(x)": ("(lambda e: np.where(e > 0, e, -e))(x)", "f(x), and write np.where in it for if"),
    "np.int32(x[0])": ("x[0].astype(np.int32)", "Write x.astype(dtype)"),
    "np.median(x)": ("np.sort(x)[2]", "Write np.sort(x, axis=...)"), "np.partition(x, 1)[1]": ("np.sort(x)[1]", "np.sort(x, axis=...)"),
    "np.interp(x, t, s)": ("(lambda i: s[i] + (x - t[i]) * ((s[i + 1] - s[i]) / (t[i + 1] - t[i])))"
                           "(np.clip(np.sum(t <= x[..., None], -1) - 1, 0, len(t) - 2))", "i = np.clip(np.sum(xp <= x[..., None], -1) - 1"),
    "np.array_equal(x, x)": ("np.all(x == x)", "Return np.all(a == b)"), "np.allclose(x, y)": ("np.all(np.isclose(x, y))", "or of np.isclose(a, b)"),
    "np.searchsorted(t, x)": ("np.sum(t < x[..., None], axis=-1)", "Count: np.sum(x < v[..., None], axis=-1)"),
    "np.searchsorted(t, x, 'right')": ("np.sum(t <= x[..., None], axis=-1)", "<= for side='right'"),
    "np.digitize(x, t)": ("np.sum(t <= x[..., None], axis=-1)", "np.sum(bins <= x[..., None], axis=-1)"),
    "np.insert(x, k[:2] % 2, 7.0)": ("np.concatenate([[7.0], x[:1], [7.0], x[1:]])", "np.concatenate([x[:i], values, x[i:]])"),
    "np.isin(x, np.tile(y, 9))": ("np.any(x[..., None] == np.ravel(np.tile(y, 9)), axis=-1)", "np.any(x[..., None] == np.ravel(values), axis=-1)"),
    "np.array([e for e in np.nditer(x)])": ("np.stack([x[i] for i in range(x.shape[0])])", "for i in range(x.shape[0]): x[i]"),
    "np.choose(k % 2, [x, y])": ("np.select([k % 2 == 0, k % 2 == 1], [x, y])", "np.select([k == 0, k == 1], [a, b])"),
    "np.piecewise(x, [x < 0, x >= 0], [lambda e: -e, lambda e: e * 2])": ("np.select([x < 0, x >= 0], [-x, x * 2])", "np.select(conditions, [f(x), g(x)])"),
    "[7, 8, 9, 6, 5][x.argmax()]": ("np.take([7, 8, 9, 6, 5], x.argmax(), axis=0)", "np.take(values, x, axis=0)"),
    "np.array([[7, 8], [9, 6], [5, 1]])[k % 3]": ("np.take([[7, 8], [9, 6], [5, 1]], k % 3, axis=0)", "np.take(values, x, axis=0) for values[x]"),
    "np.array([x, y])": ("np.stack([x, y])", ""), "np.r_[x, y]": ("np.concatenate([x, y])", ""),
    "x if x.sum() > 0 else -x": ("np.where(x.sum() > 0, x, -x)", "np.where(condition, a, b)"),
    "(x[0] > 0) and (y[0] > 0)": ("np.logical_and(x[0] > 0, y[0] > 0)", "np.logical_and(a, b)"),
    "(x[0] > 0) or (y[0] > 0)": ("(x[0] > 0) | (y[0] > 0)", "& and | between comparisons"),
    "not (x[0] > 9)": ("np.logical_not(x[0] > 9)", "np.logical_not(x)"), "1.5 in x": ("np.any(x == 1.5)", "Write np.any(x == 1.5)"),
    "x[0] in [1, 1.5]": ("np.any([1, 1.5] == x[0])", "Write np.any([1, 1.5] == x[0])"),
    "0 < x[3] < 1": ("(0 < x[3]) & (x[3] < 1)", "Write (0 < x[3]) & (x[3] < 1)"),
    "np.ma.masked_array(x, x > 2).sum()": ("np.sum(x, where=~(x > 2))", "where=~mask in reductions"),
    "np.ma.masked_where(x > 2, x).filled(0)": ("np.where(x > 2, 0, x)", "np.where(mask, other, x)"),
    "x.item(0)": ("x[0]", ""),
}
T, S, K = np.array([-1.0, 0.0, 1.0, 2.5, 4.0]), np.array([2.0, 4.0, 8.0, -1.0, 3.0]), np.array([4, 9, 16, 3, 8])


def program(text):
    return written(f"def f(x, y, t, s, k):\n    return {text}\n")


def written(text):
    """The function f of a text, whose lines are known as those of a file are."""
    name, space = f"remedy {text}", dict(SPACE)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    executed(text, space, name)
    return space["f"]


@pytest.mark.parametrize("refused", FOLLOWED)
def test_a_followed_remedy_traces_and_is_right(refused):
    made, remedy = FOLLOWED[refused]
    want = program(refused)(X, Y, T, S, K)
    try:
        got = ms.jit(program(refused), target="python")(X, Y, T, S, K)
    except ms.TraceError as error:
        assert remedy in str(error)
    else:
        assert not remedy, "it is not refused any more: take its remedy out"
        assert np.array_equal(got, want)
    got = ms.jit(program(made), target="python")(X, Y, T, S, K)
    assert np.allclose(np.asarray(got), np.asarray(want), rtol=1e-12, atol=0) and np.shape(got) == np.shape(want)


STATEMENTS = {
    "while x[0] < 9: x = x * 2": ("for _ in range(5): x = np.where(x[0] < 9, x * 2, x)", "x = np.where(going_on, new, x)"),
    "if x[0] > 1: x = -x": ("x = np.where(x[0] > 1, -x, x)", "np.where(condition, a, b)"),
    "for _ in range(x.argmax()): x = x + 1": ("for _ in range(2): x = x + 1", "pass it as a Python int"),
}


@pytest.mark.parametrize("refused", STATEMENTS)
def test_a_followed_remedy_of_a_statement(refused):
    made, remedy = STATEMENTS[refused]

    def statement(text):
        return written(f"def f(x):\n    x = x + 0\n    {text}\n    return x\n")

    with pytest.raises(ms.TraceError) as caught:
        ms.jit(statement(refused), target="python")(X)
    assert remedy in str(caught.value)
    assert np.array_equal(ms.jit(statement(made), target="python")(X), statement(refused)(X))


def test_every_remedy_is_followed_or_says_to_leave():
    """A remedy that says what to write has a program here; the others send the line out of the traced function."""
    followed = {remedy for _, remedy in FOLLOWED.values()} | {remedy for _, remedy in STATEMENTS.values()}
    for name, remedy in refusals.REMEDIES.items():
        if remedy not in (refusals.OUTSIDE, refusals.PRINT, refusals.APART):
            assert any(part and part in remedy for part in followed) or name in ("view", "resize"), name
