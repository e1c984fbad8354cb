"""What a program asks that has no answer while it is traced, or means something else at each call, is refused at its line."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

import minisitch as ms

HERE = Path(__file__).name
X, W = np.arange(1.0, 5.0), np.ones(4)
NUMBER = 1.0


def raising(x):
    with np.errstate(divide="raise"):
        return x / 0


REFUSED = {
    "an error that NumPy would raise": (lambda x: raising(x), r"np.errstate\(... 'raise'\).*np.isfinite"),
    "a new size in place": (lambda x: (W.resize((2, 2)), x)[1], "ndarray.resize"),
    "the strides of an array outside": (lambda x: x * W.strides[0], "ndarray.strides.*outside the traced function"),
    "the owner of an array's memory": (lambda x: x * (W.base is None), "ndarray.base.*outside the traced function"),
    "the text of an array": (lambda x: x * len(repr(x)), r"repr\(\) of a traced f64\[4\].*x.shape"),
    "the text of an array in a list": (lambda x: x * len(f"{[x]}"), "repr.*of a traced .*x.shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_answer_is_refused_at_its_line(name):
    function, said = REFUSED[name]
    with pytest.raises(ms.TraceError, match=f"(?s)^{HERE}:\\d+: .*{said}"):
        ms.jit(function, target="reference")(X)


def test_errors_that_numpy_would_raise_are_refused_at_the_call_that_asks_for_them():
    jitted = ms.jit(lambda x: x / (x - 1), target="reference")
    with np.errstate(all="warn"):
        first = jitted(X)
    for asked in ("raise", "print", "log"):
        with np.errstate(under=asked), pytest.raises(ms.TraceError, match=rf"{HERE}:\d+: .*errstate\(under='{asked}'\).*all='warn'"):
            jitted(X)
        with np.errstate(all=asked), np.errstate(all="warn"):  # the remedy
            np.testing.assert_array_equal(jitted(X), first)


@functools.cache
def tabled(n):
    return np.arange(n) * 2.0


def silent(x):
    with np.errstate(divide="ignore"):
        return x / 0


def test_the_remedies_work():
    assert ms.jit(lambda x: x * tabled(len(x)), target="reference")(X).tolist() == (X * tabled(4)).tolist()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ms.jit(silent, target="reference")(X), silent(X))


def test_globals_are_read_again():
    global NUMBER
    jitted = ms.jit(lambda x: x * globals()["NUMBER"], target="reference")
    for NUMBER in (1.0, 2.0, 2.0):
        assert jitted(X).tolist() == (X * NUMBER).tolist()
