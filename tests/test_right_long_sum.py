"""A sum of many elements is as near the true one as NumPy's: blocks have totals of their own, and what rounding takes comes back."""

import numpy as np
import pytest
from nests import found, phases
from sources import evaluated

import minisitch as ms
from minisitch.kernel.ir import Loop
from minisitch.runtime.cpu import math as cpu_math
from minisitch.simt import math as cuda_math

STRATEGIES = ("none", "xla", "fs18", "fs20", "astitch", "auto")
ULP = 2.0**-23


def error(value, x, count):
    """Relative error of a sum of ``count`` elements, all equal to ``x``'s first."""
    exact = np.longdouble(x.flat[0]) * count
    return float(abs(np.longdouble(value) - exact) / exact)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("size", [1000, 1025, 4095, 100_000, 10_000_019])
def test_a_long_row_of_tenths_on_the_cpu(size, strategy):
    x = np.full(size, 0.1, np.float32)
    got = ms.jit(lambda x: x.sum(), strategy=strategy, target="cpu")(x)
    assert error(got, x, size) <= max(2 * error(x.sum(), x, size), 2 * ULP)


@pytest.mark.parametrize("strategy", ["none", "astitch"])
@pytest.mark.parametrize("size", [1000, 30_003])
def test_a_long_row_of_tenths_in_cuda_text(size, strategy):
    x = np.full(size, 0.1, np.float32)
    got = ms.jit(lambda x: x.sum(), strategy=strategy, target="step", device="v100")(x)
    assert error(got, x, size) <= max(2 * error(x.sum(), x, size), 2 * ULP)


FORMS = {
    "rows of eight": (lambda x: x.sum(), (60_000, 8)),
    "rows of eight, scaled": (lambda x: (x * np.ones(8, np.float32)).sum(), (60_000, 8)),
    "columns": (lambda x: x.sum(0), (100_000, 4)),
    "a transpose's columns": (lambda x: x.T.sum(0), (4, 100_000)),
    "first and last axis": (lambda x: x.sum((0, 2)), (50_000, 4, 10)),
    "mean": (lambda x: x.mean() * np.float32(480_000), (480_000,)),
}


@pytest.mark.parametrize("strategy", ["xla", "astitch"])
@pytest.mark.parametrize("form", FORMS)
def test_other_forms_of_a_long_sum(form, strategy):
    f, shape = FORMS[form]
    x = np.full(shape, 0.1, np.float32)
    got = np.atleast_1d(ms.jit(f, strategy=strategy, target="cpu")(x))
    assert max(error(v, x, x.size // got.size) for v in got) <= 4 * ULP


@pytest.mark.parametrize("strategy", ["fs18", "fs20", "astitch"])
@pytest.mark.parametrize("size", [1025, 20_000])
def test_long_rows_in_a_block(size, strategy):
    """The blocks of FusionStitching 2018 sum up a row in one register: a pass had dropped what keeps the rounding."""
    def f(x):
        return (x - x.max(-1, keepdims=True) * 0).sum(-1, keepdims=True) * x
    x = np.full((64, size), 0.1, np.float32)
    got, exact = ms.jit(f, strategy=strategy, target="cpu")(x), np.longdouble(x[0, 0]) ** 2 * size
    own = float(abs(f(x) / exact - 1).max())
    assert float(abs(got / exact - 1).max()) <= 2 * own + ULP


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_kept_row_is_summed_up_to_its_end(dtype):
    """The sum runs block by block, and the row ends inside the last block: the checker took that block for a whole one."""
    def f(x):
        e = np.exp(x)
        return (e - e.max(-1, keepdims=True)).sum(-1, keepdims=True) * e
    x = np.tile(np.linspace(-1, 1, 1025), (64, 1)).astype(dtype)
    kernel, = ms.lower(f, x, strategy="astitch", target="cpu", stop_after="block_totals")
    assert any(loop.within and p.cols % loop.last for p in phases(kernel) for loop in found(p, Loop))
    got = ms.jit(f, strategy="astitch", target="cpu")(x)
    np.testing.assert_allclose(got, f(x.astype(float)), rtol=4e-3 if dtype == np.float16 else 1e-5)


def test_doubles():
    x = np.full(1_000_003, 0.1)
    got = ms.jit(lambda x: x.sum(), strategy="none", target="cpu")(x)
    assert error(got, x, x.size) <= max(2 * error(x.sum(), x, x.size), 2 * float(np.finfo(float).eps))


@pytest.mark.parametrize("target", ["cpu", "step", "python"])
@pytest.mark.parametrize("values, total", [((np.inf,), np.inf), ((np.inf, -np.inf), np.nan), ((np.nan,), np.nan),
                                           ((3e38, 3e38), np.inf), ((-3e38, -3e38), -np.inf)])
def test_a_total_that_is_infinite_stays_so(values, total, target):
    x = np.full(40_000, 0.1, np.float32)
    x[1000:1000 + len(values)] = values
    got = ms.jit(lambda x: x.sum(), strategy="none", target=target, device=None if target != "step" else "v100")(x)
    np.testing.assert_equal(got, np.float32(total))


def test_a_short_sum_is_added_up_as_it_stands():
    for target in ("cpu", "cuda"):
        text, = ms.lower(lambda x: x.sum(-1), "f32[64,1024]", target=target, device="v100" if target == "cuda" else None)
        assert "kahan" not in text.text


@pytest.mark.parametrize("module", [cpu_math, cuda_math])
def test_what_rounding_took_comes_back(module):
    total, lost, plain, value = np.float32(0), np.float32(0), np.float32(0), np.float32(0.1)
    for _ in range(10_000):
        total, lost = module.kahan_add(total, lost, value)
        plain += value
    assert abs(total / (10_000 * float(value)) - 1) <= ULP < 100 * ULP < abs(plain / (10_000 * float(value)) - 1)


# ---------------------------------------------------------------- where a sum starts
STARTS = (lambda x, s: np.sum(x, initial=-0.0), lambda x, s: np.sum(x, 1, initial=-0.0), lambda x, s: np.sum(x, 0, initial=s),
          lambda x, s: np.sum(x, where=x > 1, initial=-0.0), lambda x, s: np.add.reduce(x, initial=None), lambda x, s: np.sum(x, ()),
          lambda x, s: np.sum(x[0, 0]), lambda x, s: np.sum(x[:, :1], 1), lambda x, s: np.nansum(x, initial=-s), lambda x, s: np.sum(x, initial=0.0))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["reference", "python", "step"])
def test_the_zero_that_a_sum_of_zeros_is_depends_on_where_it_starts(target, dtype):
    """0.0 + -0.0 is 0.0, and -0.0 + -0.0 is -0.0: the first is where NumPy's sum starts unless it is told ``initial=``."""
    for f in STARTS:
        run = ms.jit(f, target=target)
        for x in (np.full((2, 3), -0.0, dtype), np.zeros((2, 3), dtype), np.array([[-0.0, 0.0], [-0.0, -0.0]], dtype), np.array([[2.0, -2.0]], dtype)):
            for start in (-0.0, 0.0):
                assert np.copysign(1, run(x, start)).tolist() == np.copysign(1, f(x, start)).tolist()


@pytest.mark.parametrize("line", ["np.add.reduce(x[:0], initial=None)", "np.sum(x, initial=None, where=x == 0)"])
def test_a_sum_that_starts_nowhere_raises_numpys_error(line):
    f = evaluated(f"lambda x: {line}", {"np": np})
    with pytest.raises(ValueError, match="identity"):
        f(np.ones(3))
    with pytest.raises(ValueError, match="identity"):
        ms.jit(f, target="reference")(np.ones(3))


PRODUCTS = {"i,j->ij": lambda x, k: np.einsum("i,j->ij", x, x), "i,->i": lambda x, k: np.einsum("i,->i", x, k), "i,i->i": lambda x, k: np.einsum("i,i->i", x, -x),
            "dot": lambda x, k: np.dot(x, k), "dot of a row": lambda x, k: np.dot(k, x[None]), "inner": lambda x, k: np.inner(x, k), "dot of one": lambda x, k: np.dot(x[:1], k),
            "dot of 2": lambda x, k: (x.dot(2), np.dot(2.0, x), np.dot(x, 0)), "dot of integers": lambda x, k: np.dot(np.isinf(x).astype(int), 2)}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("form", PRODUCTS)
def test_products_without_a_sum_are_added_to_zeros_as_numpy_does(form, dtype):
    """np.einsum adds to zeros, and so does BLAS, which skips a factor of 0 altogether: np.dot([inf, nan], 0.0) is [0, 0]."""
    x = np.array([np.inf, np.nan, -0.0, 0.0, -1, 2], dtype)
    for k in (2.0, -1.0, 0.0, -0.0, np.inf):
        with np.errstate(all="ignore"):
            wants = PRODUCTS[form](x, np.array(k, dtype))
        gots = ms.jit(PRODUCTS[form], target="reference" if k else "python")(x, np.array(k, dtype))
        for got, want in zip(*(each if isinstance(each, tuple) else (each,) for each in (gots, wants)), strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape) and np.array_equal(got, want, equal_nan=want.dtype.kind == "f")
            assert np.isnan(want).tolist() == np.isnan(got).tolist() and np.array_equal(np.signbit(got) & ~np.isnan(want), np.signbit(want) & ~np.isnan(want))
