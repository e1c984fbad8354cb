"""Conversions are NumPy's on every target: floats to integers, scalars stored, integer powers, long variances."""

import numpy as np
import pytest
from numpy_api import differs, outcome

import minisitch as ms

NAN, INF = np.nan, np.inf
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# In range, or below zero for an unsigned type. What no integer type holds (NaN, 1e30) C leaves open; here it is what x86 makes of it.
FLOATS = (-2, -2.5, 0.7, 300, -300, 70000, -70000, -0.0, 127.5, -128.9, -2147483648.0)
WIDE = (3e9, -3e9, 4294967295.0, 5e9, 1e19, -1e19, 1.7e19, NAN, INF, -INF, 2.0**31, 2.0**32, 2.0**63, 2.0**64)
NEXT_TO = ("reference", "python", "step")


def to_all(x):
    return tuple(x.astype(name) for name in INTEGERS)


def check(function, *args, targets=NEXT_TO, strategy="astitch"):
    want, expected = outcome(lambda: function(*args))
    for target in targets:
        got, error = outcome(lambda: ms.jit(function, target=target, strategy=strategy)(*args))  # noqa: B023
        assert type(error) is type(expected), (target, error, expected)
        assert error is not None or differs(got, want) == "", target
    return expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_become_integers_as_numpy_has_it(dtype):
    x = np.array(FLOATS * 4).astype(dtype)
    check(to_all, x[np.isfinite(x)], targets=(*NEXT_TO, "cpu"))
    if dtype != "float16":  # whose NaN as uint32 differs in NumPy itself by where in the array it stands
        check(to_all, np.array((*FLOATS, *WIDE) * 3).astype(dtype), targets=(*NEXT_TO, "cpu"))


def into(x, value):
    x = x.copy()
    x[0] = value
    return x


STORED = (np.float64(2.7), np.float64(NAN), np.float64(INF), np.float64(-3e10), np.float32(2**31), np.float32(-2**31),
          np.float64(-2**31 - 0.5), np.int64(2**40), np.int64(-129), np.uint64(2**63), np.float16(300), np.float64(-2), np.bool_(True))


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool", "float16"])
def test_a_scalar_is_asked_whether_a_signed_dtype_holds_it(dtype):
    """As an argument, whose value each call asks for, and as part of the program."""
    x = np.arange(3).astype(dtype)
    for value in STORED:
        check(into, x, value, targets=("reference",) if dtype == "uint32" and not abs(float(value)) < 2**31 else NEXT_TO[:2])
        check(lambda x, value=value: into(x, value), x, targets=("reference",))
    for value in (NAN, INF, -1, 300, 2.7, -1.5, 2**63, 2**70, 1e30, "3", "a", None, *([[NAN, 1], [1, 300]] if dtype != "bool" else [])):
        check(lambda x, value=value: into(x, value), x, targets=("reference",))


def test_the_same_function_raises_for_one_value_and_not_for_the_next():
    f = ms.jit(into, target="step")
    x = np.arange(3)
    assert f(x, np.float64(7.9)).tolist() == [7, 1, 2]
    with pytest.raises(ValueError, match="cannot convert float NaN to integer"):
        f(x, np.float64(NAN))
    with pytest.raises(OverflowError, match="too large|out of bounds"):
        f(x, np.float64(1e19))
    assert f(x, np.float64(-2.9)).tolist() == [-2, 1, 2]


def test_at_positions_and_masks_numpy_asks_pythons_numbers_only():
    def at(x, value, index):
        x = x.copy()
        x[index] = value
        return x
    for value in (np.float64(NAN), np.float64(1e30), np.int64(2**40), NAN, 300, 1e30):
        for index in ([0, 1], np.array([True, False, True])):
            check(lambda x, value=value, index=index: at(x, value, index), np.arange(3, dtype=np.int32), targets=("reference",))


@pytest.mark.parametrize("strategy", ["none", "astitch"])
def test_integers_to_negative_powers(strategy):
    x = np.arange(1, 4)
    for exponent in (np.array([1, 2, 3]), np.array([1, -2, 3]), np.array([3, 2, 1], np.uint8), np.array([-1], np.int8), np.int64(-1)):
        check(lambda x, y: x ** y, x, exponent, strategy=strategy, targets=(*NEXT_TO, "cpu"))
    assert isinstance(check(lambda x: 2 ** -x, x), ValueError)
    assert check(lambda x: 2 ** (x & 7), -x) is None
    assert check(lambda x: x.astype(float) ** -x, x) is None
    assert isinstance(check(lambda x: 2 ** np.array([1, -1]) + x[:2], x), ValueError)


def test_guards_are_few_however_many_stores_there_are():
    def program(x, s):
        x = x.copy()
        for i in range(5):
            x[i] = s[i]
        return x
    program = ms.jit(program).lower(np.arange(5), np.ones(5), stop_after="trace")
    assert program.unlike and len(program.graph.outputs) == 2


def test_numbers_that_a_choice_does_not_hold_wrap():
    x, c = np.array([1, 2], np.uint8), np.array([True, False])
    for value in (-1, 300, 2.5, -2.5, True, 2**40):
        check(lambda c, x, value=value: np.where(c, x, value), c, x)


@pytest.mark.parametrize("value", [2**70, 2**63, -2**63 - 1, 2**62, -1])
def test_an_integer_that_is_to_fill_bools_is_an_int64_first(value):
    x = np.array([True, False])
    for fill in (lambda x: np.full_like(x, value), lambda x: x & np.full(2, value, bool), lambda x: np.full(2, value, bool) | x):
        check(fill, x, targets=("reference",))
    check(lambda x: into(x, value), x, targets=("reference",))  # a scalar that is stored is asked whether it is zero


def test_powers():
    odd = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -2.5, 2.0])
    for dtype in (np.float32, np.float64):
        x, y = (a.ravel().astype(dtype) for a in np.meshgrid(odd, [*odd, 0.5, 3.0, -3.0, -0.5, 1 / 3]))
        check(lambda x, y: x ** y, x, y, targets=("reference", "step", "cpu"))
    for scalar in (np.bool_(True), np.bool_(False)):
        check(lambda x: (x ** 2, x ** 3, 2 ** x, x ** x), scalar)
    check(lambda x: (x ** 2, x ** 3, 2 ** x), np.array([True, False]))


@pytest.mark.parametrize("decimals", [2, 22, 23, 30, 300, 308, 309, -23, -309])
def test_rounding_to_many_decimals_scales_in_steps(decimals):
    """NumPy multiplies by 10 again and again. From 10**23 on, that is another number than 10.0**23."""
    x = np.array([2.2250738585072014e-308, 1e-25, 3.3e-30, -1.25, 0.0, INF, 1e300])
    with np.errstate(all="ignore"):
        want = np.round(x, decimals)
    for target in NEXT_TO:
        got = ms.jit(lambda x: np.round(x, decimals), target=target)(x)
        assert np.array_equal(got, want, equal_nan=True)


HALVES = {  # NumPy takes the root for one exponent that all elements share, and the power elsewhere
    "**": lambda x, p: x ** 0.5, "np.power": lambda x, p: np.power(x, 0.5), "a scalar": lambda x, p: x[1] ** 0.5,
    "np.power of a scalar": lambda x, p: np.power(x[1], 0.5), "two scalars": lambda x, p: x[0] ** p[0], "float_power": lambda x, p: np.float_power(x, 0.5),
    "an exponent each": lambda x, p: x ** p, "an exponent for all": lambda x, p: np.power(x, p[0]), "an array of one": lambda x, p: x ** p[:1],
    "two arrays of one": lambda x, p: x[:1] ** p[:1], "an exponent a row": lambda x, p: x.reshape(3, 2) ** p[:3, None],
    "a scalar to exponents": lambda x, p: x[0] ** p, "NumPy's number": lambda x, p: (x ** x.dtype.type(0.5), x[0] ** x.dtype.type(0.5)),
    "a number to a scalar": lambda x, p: (-INF ** p[0], -0.0 ** p[0], (-INF) ** p[0], (-0.0) ** p[0], np.power(-INF, p[0])),
    "no axes": lambda x, p: x[0, ...] ** 0.5, "rows": lambda x, p: x.reshape(3, 2) ** p[None, :1]}


@pytest.mark.parametrize("case", HALVES)
def test_powers_of_a_half(case):
    """-inf has the power inf and no root, and -0.0 has the power 0.0 and the root -0.0."""
    def with_signs(x, p):
        found = HALVES[case](x, p)
        return found, [1 / each for each in (found if isinstance(found, tuple) else (found,))]
    for dtype in (np.float16, np.float32, np.float64):
        x = np.array([-INF, -0.0, 4.0, INF, NAN, 0.25], dtype)
        check(with_signs, x, np.full(6, 0.5, dtype))
        check(HALVES[case], x, np.full(6, 2, dtype), targets=("reference",))


def test_a_power_of_a_half_in_place():
    def program(x):
        x = x.copy()
        x **= 0.5
        return x, 1 / x
    for dtype in (np.float16, np.float32):
        check(program, np.array([-INF, -0.0, 4.0], dtype), targets=("reference",))
    check(lambda x: x ** 0.5, np.full(3, -INF), targets=("cpu",))
    check(lambda x, p: (x ** p, x ** p[0], x[0] ** p[0]), np.full(3, -INF), np.full(3, 0.5), targets=("cpu",))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_by_way_of_a_float(dtype):
    """A float that the last type does not hold does not wrap around as the integer does. (For uint32, NumPy itself has two answers.)"""
    ends = np.iinfo(dtype)
    x = np.array([ends.min, ends.max, ends.max - ends.max // 3, 5, 200 % (ends.max + 1), 70000 % (ends.max + 1), 3000000001 % (ends.max + 1)], dtype)
    others = [name for name in INTEGERS if name != "uint32"]
    for middle in (np.float16, np.float32, np.float64):
        check(lambda x, middle=middle: tuple(x.astype(middle).astype(name) for name in others), x, targets=("reference", "python"))


def test_integers_by_way_of_a_float_in_one_kernel():
    """LLVM knows that the float is an integer, and takes its low bits if it may."""
    def chain(x):
        y = x.astype(float)
        return y.astype(np.int8), y.astype(np.int32), y.astype(np.uint16), (y * 4).astype(np.int64)
    for dtype in ("uint32", "int64", "uint64"):
        x = np.array([3000000001, 5, np.iinfo(dtype).max, np.iinfo(dtype).min, 2**31, 2**31 - 1], dtype)
        check(chain, x, targets=("python", "step", "cpu"))


@pytest.mark.parametrize("odd", [3e38, INF, -INF, NAN, 1.0])
def test_a_long_variance_whose_mean_overflows(odd):
    x = np.full(2**19, 3e38 if odd == 3e38 else 1, np.float32)
    x[5] = odd
    check(np.var, x, targets=("python", "cpu"), strategy="none")
