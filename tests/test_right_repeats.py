"""Which of several writes at one position stays: the last in C order, or the program is refused.

NumPy goes through positions and values in the order of memory, if both lie in another order than C's.
"""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pytest
from sources import executed

import minisitch as ms

RNG = np.random.default_rng(5)
SAME = [
    "a[K] = V", "a[K.T] = V.T.copy()", "a[K] = V.T.copy().T", "a[K.T] = 1", "a[K] += V", "a[k[::-1]] = v[::-1]", "a[k[::-1]] += v",
    "m[k[::-1], k[::-1]] = v", "m[k, k] = v[::-1]", "m[K.T] = W.swapaxes(0, 1)", "m[K.T] += W.swapaxes(0, 1)", "m[:, K.T] = 2",
    "m[k[:, None], k] = np.outer(v, v).T", "m[np.ix_(k, k)] += np.outer(v, v).T", "m[k, 1] = v[::-1]", "m[np.arange(4), k] -= 1",
    "m[[1, 2], [3, 0]] = m[[2, 1], [0, 3]]", "m[np.arange(8).reshape(2, 4).T // 2, np.arange(8).reshape(2, 4).T % 2] = V[:2].T",
]
OTHER = ["a[K.T] = V.T", "a[K.T] += V.T.copy()", "a[K[::-1]] = V[::-1]", "m[k[::-1], k[::-1]] = v[::-1]", "a[K.T] = V.T + 0", "a[K.T] = v[:3]"]


def program(line: str) -> FunctionType:
    scope: dict = {"np": np}
    executed(f"def f(a, m, k, v, K, V, W):\n    {line}\n    return a, m", scope)
    return scope["f"]


def arguments() -> list:
    return [np.zeros(4), np.zeros((4, 4)), RNG.integers(0, 4, 4), RNG.random(4), RNG.integers(0, 4, (3, 4)), RNG.random((3, 4)),
            RNG.random((3, 4, 4))]


@pytest.mark.parametrize("line", SAME)
def test_the_last_write_stays(line):
    f = ms.jit(program(line), target="reference")
    for _ in range(20):
        given = arguments()
        wanted = program(line)(*[each.copy() for each in given])
        for found, right in zip(f(*given), wanted, strict=True):
            np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("line", OTHER)
def test_where_numpy_takes_another_order_it_is_refused(line):
    with pytest.raises(ms.TraceError, match="a write at positions that may repeat.*i.copy()"):
        ms.jit(program(line), target="reference")(*arguments())


@pytest.mark.parametrize("line", OTHER)
def test_the_remedy_works(line):
    copied = line.replace("K.T]", "K.T.copy()]").replace("[::-1]]", "[::-1].copy()]").replace("k[::-1],", "k[::-1].copy(),")
    test_the_last_write_stays(copied)


def test_positions_given_in_another_order_are_refused():
    f = ms.jit(program("a[K] = V"), target="reference")
    a, m, k, v, K, V, W = arguments()
    f(a, m, k, v, K, V, W)
    with pytest.raises(ms.TraceError, match="how the argument K lies in memory.*ascontiguousarray"):
        f(a, m, k, v, np.asfortranarray(K), np.asfortranarray(V), W)
