"""float16 is rounded after each operation, as NumPy rounds it; sums of it are added up in float32 and rounded once."""

import numpy as np
import pytest
from sources import evaluated

import minisitch as ms

TARGETS = ("cpu", "python", "step")
half = np.float16


def chain(x):
    return (x * half(1.7) + half(2049)) - half(2048)


def looked_at(x):
    y = x * x
    return y, np.isinf(y), y - y, np.sqrt(y) == abs(x)


def divided(x, y):
    return x / y, (x / y) * y - x, x // y, x % y, np.fmod(x, y), 1 / (x / y), np.hypot(x, y) - x


def cast_to_and_fro(x):
    y = x.astype(np.float32) * np.float32(1.0001)
    return y.astype(half) + x, (x * x).astype(np.float64) - x.astype(np.float64), np.minimum(abs(x * 3), half(99)).astype(np.int32), (x * x) > half(1)


def powers(x):
    """One power is one operation, also where it is made of products."""
    return x ** 3, x ** 4, np.power(x, 3) - x


def counted(x):
    return np.arange(2040, 2040 + x.size).astype(half) + x, np.arange(x.size, dtype=half) * half(0.1)


def against_its_sum(x):
    """The sum is rounded before it is used: under ``none`` it goes through memory."""
    total = x.sum(-1, keepdims=True)
    return x / total, total, x - x.mean(-1, keepdims=True), (x * x).sum(0) * half(0.1), x.prod(-1) + half(0.1)


VALUES = np.concatenate([np.random.default_rng(0).standard_normal(200) * 10, np.array(
    [300, 2.0, 65504, -65504, 6e-8, 1e-4, 0, -0.0, np.inf, -np.inf, np.nan, 2049, 1 / 3])]).astype(half)


def same(function, *args, strategies=("astitch", "none"), targets=TARGETS):
    with np.errstate(all="ignore"):
        expected = function(*args)
    for target in targets:
        for strategy in strategies:
            found = ms.jit(function, target=target, strategy=strategy)(*args)
            for k, (a, b) in enumerate(zip(found if isinstance(found, tuple) else (found,),
                                           expected if isinstance(expected, tuple) else (expected,), strict=True)):
                assert a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), (target, strategy, k)


@pytest.mark.parametrize("function", [chain, looked_at, cast_to_and_fro, powers, counted])
def test_each_operation_rounds(function):
    same(function, VALUES[~np.isnan(VALUES)] if function is cast_to_and_fro else VALUES)


def test_divisions_round():
    rolled = np.roll(VALUES, 7)
    same(divided, VALUES, np.where(rolled == 0, half(3), rolled))


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_done_with_a_sum_is_the_same_under_every_strategy(target):
    """float32 holds the sum of these rows exactly: there is one right value, float16's nearest to it."""
    x = (np.random.default_rng(1).integers(1, 64, (6, 40)) / 8).astype(half)
    small = x[:, :3] / half(4)
    for values in (x, small):
        strategies = ("none", "astitch", "fs20") if target == "cpu" else ("none", "xla", "astitch", "fs20")
        found = [ms.jit(against_its_sum, target=target, strategy=strategy)(values) for strategy in strategies]
        total = values.astype(np.float32).sum(-1, keepdims=True).astype(half)
        assert np.array_equal(found[0][1], total) and np.array_equal(found[0][0], values / total)
        assert all(np.array_equal(a, b) for other in found[1:] for a, b in zip(other, found[0], strict=True))


def test_a_long_sum_is_not_rounded_on_its_way():
    """Added one by one in float16, ones stop at 2048."""
    for target, strategy, count in (("cpu", "astitch", 5000), ("cpu", "none", 5000), ("python", "astitch", 5000), ("step", "astitch", 2500)):
        run = ms.jit(lambda x: (x.sum(-1), x.T.sum(0), x.sum()), target=target, strategy=strategy)
        assert [np.asarray(v).ravel()[0] for v in run(np.ones((3, count), half))] == [count, count, 3 * count]


# ---------------------------------------------------------------- the option
def test_without_exact_values_stay_wide():
    x = np.array([300, 2], half)
    wide = ms.jit(lambda x: (x * x) / half(300), target="cpu", exact=False)(x)
    assert wide[0] == 300 and ms.jit(lambda x: (x * x) / half(300), target="cpu")(x)[0] == np.inf


@pytest.mark.parametrize("line", [
    "np.linalg.norm(x)", "np.linalg.norm(x * 3000)", "np.linalg.norm(y)", "np.linalg.norm(y, keepdims=True)",
    "np.einsum('i,i,i->', x * 6e4 * 2, x * 6e4 * 2, x)", "np.einsum('i,i,i->i', x * 6e4 * 2, x * 6e4 * 2, x)", "np.einsum('i,j,i->ij', x * 6e4 * 2, x * 6e4 * 2, x)"])
@pytest.mark.parametrize("target", ["reference", "python"])
def test_a_sum_of_products_rounds_once(line, target):
    """As np.dot: the squares of these are no float16, and their root is."""
    x = (np.arange(1, 40) * 1e-4).astype(np.float16)
    program = evaluated(f"lambda x, y: {line}", {"np": np})
    with np.errstate(all="ignore"):
        wanted = program(x, x.reshape(3, 13))
        found = ms.jit(program, target=target)(x, x.reshape(3, 13))
    assert found.dtype == wanted.dtype == np.float16
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=2e-3)
