"""Integers of every width wrap around as NumPy's do, on every target: signed overflow is nowhere undefined."""

import ast

import numpy as np
import pytest

import minisitch as ms
from minisitch.runtime.cpu import compile as compiler

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


def ends(dtype):
    """The ends of a type and what lies beside them, and its square roots, whose products just overflow."""
    info = np.iinfo(dtype)
    root = 1 << info.bits // 2
    return np.array([info.max, info.max - 1, info.min, info.min + 1, 0, 1, 2, 3, root - 1, info.max // root, info.max // 3], dtype)


def pairs(dtype):
    x = ends(dtype)
    return np.repeat(x, len(x)), np.tile(x, len(x))


def arithmetic(x, y):
    one = x.dtype.type(1)
    return (x + y, x - y, x * y, -x, abs(x), x + one > x, x * 2 // 2, x - one < x, (x * y + x) * y - x, x * x * x, x ** 3,
            abs(x) < 0, np.square(x), x << 1, (x << 3) * y, (x ^ y) + y, np.sign(x - y), np.maximum(x * 2, y), x // 3, x % 7)


def divisions(x, y):
    return x // y, x % y, np.fmod(x, y), (x + y) // y, x // (y - y - 1), x % (y - y - 1)


def folded(x):
    """Sums and products whose order does not matter, since they wrap; and what runs along."""
    return x.sum(dtype=x.dtype), x.prod(dtype=x.dtype), x.cumsum(dtype=x.dtype), np.cumprod(x, dtype=x.dtype), (x * x).sum(dtype=x.dtype)


def rows_and_columns(x):
    return x.sum(0, dtype=x.dtype), x.sum(1, dtype=x.dtype), x.prod(0, dtype=x.dtype), (x + 1).prod(1, dtype=x.dtype)


def congruential(x):
    for _ in range(3):
        x = x * 6364136223846793005 + 1442695040888963407
    return x, x >> 33, (x >> 33) % 100


def hashed(x):
    h = np.full(x.shape[0], -3750763034362895579)
    for k in range(x.shape[1]):
        h = (h ^ x[:, k]) * 1099511628211
    return h


def picked(x, table):
    """The user's own indices wrap before they are brought into range."""
    return table[(x * 2654435761) % 8], table[abs(x + 1) % 8]


def literals(x):
    return x + -2**63, x - -2**63, x * -2**63, x > -2**63, np.maximum(x, -2**63 + 1), x & -2**63, x // -2**63


def counted(x):
    return np.arange(8) * 2**62 + x, np.arange(8) + (2**63 - 4) > 0


def same(function, *args, target="cpu", strategies=("astitch", "none"), **options):
    with np.errstate(all="ignore"):
        expected = function(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for strategy in strategies:
        found = ms.jit(function, target=target, strategy=strategy, **options)(*args)
        for k, (a, b) in enumerate(zip(found if isinstance(found, tuple) else (found,), expected, strict=True)):
            assert a.dtype == b.dtype and np.array_equal(a, b), (strategy, target, k, np.argwhere(np.asarray(a != b))[:3].tolist())


@pytest.mark.parametrize("target", ["cpu", "python", "step"])
@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_arithmetic_at_the_ends_of_every_type(dtype, target):
    same(arithmetic, *pairs(dtype), target=target, strategies=("astitch",))


@pytest.mark.parametrize("target", ["cpu", "python", "step"])
@pytest.mark.parametrize("dtype", SIGNED)
def test_divisions_at_the_ends_of_every_type(dtype, target):
    x, y = pairs(dtype)
    same(divisions, x, y, target=target, strategies=("astitch",))


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_reductions_and_running_sums(dtype):
    x = np.random.default_rng(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 1000, dtype, endpoint=True)
    for target in ("cpu", "step"):
        strategies = ("astitch", "none") if target == "step" or dtype == "int32" else ("astitch",)  # a kernel an operation is many to compile
        same(folded, x, target=target, strategies=strategies)
        same(rows_and_columns, x.reshape(40, 25) | 1, target=target, strategies=strategies)


@pytest.mark.parametrize("target", ["cpu", "step"])
def test_programs_that_count_on_it(target):
    x = np.concatenate([ends("int64"), np.arange(5)])
    for function, args in ((congruential, (x,)), (hashed, (x[:12].reshape(4, 3),)), (picked, (x, np.arange(8.0))), (literals, (x,)),
                           (counted, (x[:8],))):
        same(function, *args, target=target)


# ---------------------------------------------------------------- the text
def test_the_text_says_nothing_of_it_and_the_compiler_does():
    source, = ms.lower(lambda x: x + 1, "i64[8]", target="cpu")
    code = ast.unparse(compiler._Idioms().visit(ast.parse(source.text)))
    assert "np.uint64" not in source.text and "np.int64(np.uint64(v0) + np.uint64(C0))" in code
    assert "np.uint64" not in ast.unparse(compiler._Idioms().visit(ast.parse("col = np.int64(row // 4)\nx = y[row * 4 + col]")))
