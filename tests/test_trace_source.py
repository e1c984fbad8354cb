"""NumPy's own source is traced where it asks a truth only to warn, which changes no value, or to raise, which becomes a guard."""

import warnings

import numpy as np
import pytest

import minisitch as ms

N = np.array([[1, np.nan, 3], [np.nan, np.nan, 2], [4, np.nan, 1]])
ONES = np.ones((3, 3))


def same(function, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = function(*arguments)
        except (ValueError, ZeroDivisionError) as error:
            with pytest.raises(type(error), match=str(error)):
                ms.jit(function, target="reference")(*arguments)
            return
    found = ms.jit(function, target="reference")(*arguments)
    assert type(found) is type(wanted) and found.dtype == wanted.dtype and np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.parametrize("function", [np.nanmax, np.nanmin, np.nanargmax, np.nanargmin, np.fmax.reduce, np.fmin.reduce])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_extremes_beside_nans(function, axis):
    for values in (N, ONES, N[:, ::2], np.arange(9).reshape(3, 3)):
        same(lambda x: function(x, axis), values)


def test_options_of_the_extremes():
    same(lambda x: np.nanmax(x, 0, keepdims=True), N)
    same(lambda x: np.nanmax(x, 0, initial=2.0, where=x > 0), N)
    same(lambda x: np.nanmin(x, (0, 1)), N)
    same(lambda x: np.fmax.accumulate(x, 0), N)
    graph = ms.trace(lambda x: np.nanmax(x, 0), (N,)).graph
    assert [node.op for node in graph.nodes].count("max") == 1, "one reduction, and no halves"
    assert {node.via for node in graph.nodes if node.op == "max"} == {"nanmax"}


def test_averages_and_their_guard():
    same(lambda x: np.average(x[0], weights=x[:, 2]), N)
    same(lambda x: np.average(x, axis=0, weights=x[0], returned=True)[1], ONES)
    same(lambda x: np.average(x, 1, [1, 2, 3], keepdims=True), ONES)
    same(lambda x: np.average(x, (0, 1), x), ONES)
    same(lambda x: np.average(x, weights=x * 0), ONES)
    same(lambda x: np.average(x), ONES)
    with pytest.raises(TypeError, match="shapes of a and weights differ"):
        ms.jit(lambda x: np.average(x, weights=[1, 2, 3]))(ONES)
