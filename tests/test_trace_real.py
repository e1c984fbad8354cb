"""What real programs call: ufuncs of SciPy, linspace, quantiles, convolutions, strides."""

# ruff: noqa: B023  each function is called at once
import itertools
import sys

import numpy as np
import pytest
import scipy.special as sp
from sources import evaluated

import minisitch as ms
from minisitch.errors import GraphError
from minisitch.trace import rewrite
from minisitch.trace.parser import parse

X = np.arange(6.0).reshape(2, 3) / 2
M = np.random.default_rng(0).random((5, 7))


def outcome(function, values, target=""):
    try:
        return (ms.jit(function, target=target) if target else function)(*values)
    except (ValueError, IndexError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def same(function, *values, rtol=0.0, target="reference"):
    with np.errstate(all="ignore"):
        wanted, found = outcome(function, values), outcome(function, values, target)
    assert type(found) is type(wanted) and np.shape(found) == np.shape(wanted), f"{found} is not {wanted}"
    if isinstance(wanted, np.ndarray | np.generic):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)
    else:
        assert found == wanted or found != found


# ---------------------------------------------------------------- scipy.special
@pytest.mark.parametrize("name", "expit logit gammaln erfc log1p exp2 cbrt ndtr i0 psi entr log_expit".split())
@pytest.mark.parametrize("dtype", "f2 f4 f8 i4 ?".split())
def test_a_ufunc_of_scipy_is_its_own(name, dtype):
    """Also where NumPy has one of the same name."""
    same(lambda x: getattr(sp, name)(x), X.astype(dtype))


def test_ufuncs_of_scipy_with_several_operands():
    same(lambda x: sp.xlogy(x, 2), X)
    same(lambda x: sp.xlogy(2, x.astype(np.float32)), X)
    same(lambda x: sp.sici(x)[1] + sp.rel_entr(x, x[0]), X)
    same(lambda x: sp.expit(x, out=np.zeros_like(x)) * 2, X)
    for target in ("python", "step"):
        same(lambda x: sp.expit(x) * 2 + np.sum(sp.gammaln(x + 1)), X, rtol=1e-12, target=target)
    with pytest.raises(ms.TraceError, match="not NumPy's or scipy"):
        ms.jit(lambda x: np.frompyfunc(abs, 1, 1)(x))(X)


@pytest.mark.parametrize("name", ["os.system", "scipy.special.jv.types", "scipy.special.softmax", "scipy.linalg.solve", "matmul", "zeros", ".expit", "scipy.special."])
def test_only_elementwise_ufuncs_are_named(name):
    """A graph's text comes from outside: its names call nothing else."""
    text = str(ms.trace(lambda x: sp.expit(x), (X,)).graph)
    assert "scipy.special.expit" in text and str(parse(text)) == text
    with pytest.raises(GraphError, match="not an elementwise ufunc"):
        parse(text.replace("scipy.special.expit", name))


def test_scipy_is_not_imported_for_a_program_without_it():
    assert "scipy.special" in sys.modules
    same(lambda x: np.exp2(x), X)


# ---------------------------------------------------------------- linspace, quantiles
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("options", [{}, {"endpoint": False}, {"axis": -1}, {"dtype": "f4"}, {"dtype": "i4"}, {"num": 1}, {"num": 0}, {"num": -1},
                                     {"num": 1, "endpoint": False}, {"num": 2.5}], ids=repr)
def test_linspace(dtype, options):
    options, values = {"num": 6} | options, (M * 9).astype(dtype)
    same(lambda x: np.linspace(x[0], x[1], **options), values)
    same(lambda x: np.linspace(x[0, 0], x[1, 1], **options), values)
    same(lambda x: np.linspace(x[0, 0], 3, **options), values)
    same(lambda x: np.linspace(0.1, x[0, 0], **options), values)
    same(lambda x: np.linspace(0, x[0, 0], retstep=True, **options)[1], values)
    same(lambda x: np.linspace(x[0], x[0], **options), values)
    same(lambda x: np.linspace(0, x[0, 0] * 5e-324, **options), values)  # a step that rounds to zero


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1"])
@pytest.mark.parametrize("q", [30, [10, 50.5, 100], 0, 100, np.array([[1.0, 2], [3, 4]]), -1, 33.3], ids=repr)
def test_quantiles(dtype, q):
    holes = np.array([[1, np.nan, 3], [5, 7, 2], [4, 3, 1], [2, 2, 2]])
    for axis in (None, 0, 1, (0, 1)):
        same(lambda x: np.percentile(x, q, axis), (M * 20).astype(dtype))
        same(lambda x: np.quantile(x, np.divide(q, 100).tolist(), axis, keepdims=True), (M * 20).astype(dtype))
        if dtype[0] == "f":
            same(lambda x: np.percentile(x, q, axis=axis), holes.astype(dtype))
    same(lambda x: np.percentile(x, q, method="nearest"), (M * 20).astype(dtype))


@pytest.mark.parametrize("asks", [lambda x: np.quantile(x, x[0, 0]), lambda x: np.partition(x, 3), lambda x: x.partition(2),
                                  lambda x: np.quantile(x, 0.5, out=np.zeros(())), lambda x: np.percentile(x.astype(np.float32), np.float64(3))], ids=range(5))
def test_what_depends_on_values_is_refused(asks):
    with pytest.raises(ms.TraceError, match=r"test_trace_real.py:\d+: "):
        ms.jit(asks, target="reference")(M)


# ---------------------------------------------------------------- convolutions
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1", "?"])
@pytest.mark.parametrize("mode", ["valid", "same", "full", "other"])
def test_convolutions(dtype, mode):
    a, v = np.arange(7).astype(dtype), np.array([3, 1, 2]).astype(dtype)
    for function in (np.convolve, np.correlate):
        for m in (1, 2, 3):
            same(lambda a, v: function(a, v[:m], mode), a, v)
            same(lambda a, v: function(v[:m], a, mode), a, v)
        same(lambda a, v: function(a, [1.0, 0.5, 0.25], mode), a, v)
        same(lambda a, v: function(a[:0], v, mode), a, v)


def test_a_border_does_not_see_what_lies_outside():
    same(lambda a: np.convolve(a, [np.inf, 1.0, 2.0], "full"), np.arange(1.0, 6))


# ---------------------------------------------------------------- strides
def test_strides():
    same(lambda x: np.array(x.strides) + np.array(x.T.strides) + (x * 2).strides[0] + x[:, ::2].strides[1], X)
    with pytest.raises(ms.TraceError, match="lies in memory decides"):
        ms.jit(lambda x: (x * 2).strides[0] * x, target="reference")(np.asfortranarray(X))


@pytest.mark.parametrize("shape, strides", [((3, 2), (16, 8)), ((5, 2), (8, 8)), ((2, 3), (8, 16)), ((4,), None), ((2, 2, 2), (24, 8, 0)), ((), ()), ((1, 6), (80, 8))])
def test_as_strided(shape, strides):
    strided = np.lib.stride_tricks.as_strided

    def wrote(v):
        y = v * 2
        strided(y, shape, strides)[...] = 7
        return y
    v = np.arange(6.0)
    same(lambda v: strided(v * 2, shape, strides) + 1, v)
    same(lambda x: strided(x, shape, strides or (8,)), X)
    if strides in ((16, 8), (8, 16), None, (), (80, 8)):
        same(wrote, v)
    else:
        with pytest.raises((ValueError, ms.TraceError), match="read-only"):
            ms.jit(wrote, target="reference")(v)


@pytest.mark.parametrize("shape, strides", [((4, 2), (16, 8)), ((3,), (-8,)), ((3,), (4,)), ((0,), (8,))])
def test_what_is_not_in_the_array_is_refused(shape, strides):
    with pytest.raises(ms.TraceError, match=r"test_trace_real.py:\d+: as_strided out of the array"):
        ms.jit(lambda v: np.lib.stride_tricks.as_strided(v, shape, strides), target="reference")(np.arange(6.0))


# ---------------------------------------------------------------- roll
def test_roll_by_a_known_number():
    same(lambda x: np.roll(x, np.int64(2)) + np.roll(x, np.arange(3)[2].item(), 1), X)


# ---------------------------------------------------------------- classes
class Layers:
    def first(self, x):
        return self.second(x) + 1

    def second(self, x):
        return self.third(x) * 2

    def third(self, x):
        return x - 1


def test_the_methods_of_a_class_are_rewritten_together():
    before = rewrite._compiled_statement.cache_info().misses
    same(lambda x: Layers().first(x), X)
    assert rewrite._compiled_statement.cache_info().misses <= before + 2, "this function's, and the class's"


# ---------------------------------------------------------------- what NumPy does not ask
@pytest.mark.parametrize("line", [
    "np.fromiter(x[0], float)", "np.fromiter((e * 2 for e in x[0]), np.float32)", "np.fromiter(itertools.cycle(x[0]), float, 5)",
    "np.float32(x[0, 0]) + np.float16(x)", "np.mean([x[0], x[1]])", "np.take([1, 2], x.astype(int) % 2)"])
def test_numpys_c_code_that_asks_nothing_is_traced(line):
    function = evaluated(f"lambda x: {line}", {"np": np, "itertools": itertools})
    same(function, X)
