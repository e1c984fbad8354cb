"""Dtypes follow NumPy 2 (NEP 50): every pair of dtypes, every kind of Python scalar, or the same error."""

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_help import check

from minisitch.trace import trace

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
UFUNCS = [np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.power, np.maximum, np.minimum,
          np.arctan2, np.logaddexp, np.equal, np.less, np.greater_equal, np.bitwise_and, np.left_shift, np.logical_or,
          np.copysign, np.fmod, np.hypot, np.ldexp, np.gcd, np.float_power, np.heaviside, np.fmax]
VALUES = np.array([[0, 1, 2, 3], [3, 2, 1, 1]])


def outcome(call: Any) -> Any:
    """The dtype of a call's result, or the class of its error."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = call()
        except (TypeError, OverflowError, ValueError) as error:
            return next(each for each in (OverflowError, ValueError, TypeError) if isinstance(error, each))
    return result


def agree(fn: Any, *args: Any) -> None:
    """Same error class, or same dtype, shape and values."""
    expected = outcome(lambda: fn(*args))
    if isinstance(expected, type):
        assert outcome(lambda: trace(fn, args)) is expected
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(fn, *args)


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
def test_pairs_of_dtypes(ufunc: np.ufunc) -> None:
    """A third of the pairs for each function, each type on both sides: every pair is tried by eight functions."""
    turn = UFUNCS.index(ufunc)
    for (i, left), (j, right) in itertools.product(enumerate(DTYPES), enumerate(DTYPES)):
        if (i + j + turn) % 3:
            continue
        agree(lambda x, y: ufunc(x, y), VALUES[0].astype(left), VALUES[1].astype(right))


SCALARS = st.one_of(st.booleans(), st.integers(-5, 300), st.sampled_from([-2**70, -2**63, 2**63, 2**64, 2**31, -129, 127]),
                    st.sampled_from([0.5, -1.0, 2.0, 1e5, 1e300, float("inf"), float("nan")]),
                    st.sampled_from([np.float64(2), np.float32(0.5), np.int8(3), np.uint64(4), np.bool_(True), np.float16(1)]))
OPERATORS = [np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.maximum, np.less, np.equal, np.not_equal,
             np.greater_equal, np.bitwise_or, np.arctan2]


@given(st.sampled_from(OPERATORS), st.sampled_from(DTYPES), SCALARS, st.booleans())
def test_scalars_adapt_or_do_not(ufunc: np.ufunc, dtype: str, scalar: Any, on_the_left: bool) -> None:
    array = VALUES[0].astype(dtype)
    agree((lambda x: ufunc(scalar, x)) if on_the_left else (lambda x: ufunc(x, scalar)), array)


@given(st.sampled_from(DTYPES), SCALARS)
def test_assignment_casts_like_numpy(dtype: str, scalar: Any) -> None:
    def fill(x):
        x[1:] = scalar
        return x
    if isinstance(scalar, float) and not abs(scalar) <= 1e4:
        return  # a float out of an integer's range is undefined
    agree(fill, VALUES[0].astype(dtype))


@given(st.sampled_from([np.add, np.multiply, np.divide, np.power, np.bitwise_xor]), st.sampled_from(DTYPES),
       st.sampled_from(DTYPES))
def test_in_place_casts_only_within_a_kind(ufunc: np.ufunc, left: str, right: str) -> None:
    def change(x, y):
        ufunc(x, y, out=x)
        return x
    agree(change, VALUES[0].astype(left), VALUES[1].astype(right))


REDUCTIONS = [np.sum, np.prod, np.max, np.min, np.mean, np.var, np.std, np.any, np.all, np.argmax, np.cumsum, np.ptp]


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda f: f.__name__)
def test_reductions_of_each_dtype(reduction: Any) -> None:
    for dtype in DTYPES:
        agree(lambda x: reduction(x), VALUES.astype(dtype))
        agree(lambda x: reduction(x, axis=0), VALUES.astype(dtype))


FUNCTIONS = [
    lambda x, y: np.where(x > 1, x, y), lambda x, y: np.concatenate([x, y]), lambda x, y: np.matmul(x, y),
    lambda x, y: np.clip(x, 0, y), lambda x, y: np.einsum("i,i->i", x, y), lambda x, y: np.outer(x, y),
]


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_functions_of_two_dtypes(number: int) -> None:
    for left, right in itertools.product(DTYPES, DTYPES):
        agree(FUNCTIONS[number], VALUES[0].astype(left), VALUES[1].astype(right))
