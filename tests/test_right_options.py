"""Options of NumPy's functions do what NumPy makes of them, or are refused: none is swallowed."""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pytest
from sources import evaluated

import minisitch as ms

ODD = np.array([-np.inf, -2.5, -0.0, 0.25, 1.0, np.nan, 7.0, np.inf], np.float32)
WHOLE = np.array([-(2**31), -3, 0, 1, 2, 100, 2**31 - 1, 5], np.int32)
MASK = np.arange(8) % 3 != 1
HONOURED = [
    "np.clip(x, -1, 2, out=o, where=m)", "x.clip(-1, 2, o, where=m)", "np.clip(i, -1, 2, out=o, where=m)",
    "np.clip(i, 0.5, 1.5, out=o, casting='unsafe')", "np.clip(x, -1, 1.5, dtype='f8')", "np.clip(i, None, 9, dtype='i8')",
    "np.clip(2.5, x, 9)", "np.clip(i, -(2**40), 2**40)",
    "np.add(i, 1.5, out=o, casting='unsafe')", "np.multiply(x, 2, dtype='f2', casting='same_kind')",
    "np.multiply(np.nan_to_num(x, posinf=1, neginf=0), 2, dtype='i2', casting='unsafe')",
    "np.einsum('i,i->', x[3:5], x[3:5], dtype='f2', casting='unsafe')", "np.var(d[1:5], correction=1) > 0",
]
RAISED = [
    "np.add(x, d, casting='no')", "np.add(i, x, casting='equiv')", "np.add(x, 1, casting='never')", "np.sqrt(i, casting='no')",
    "np.add(d, d, dtype='f4', casting='safe')", "np.einsum('i,i', d, d, dtype='f4')", "np.sort(x, kind='bubble')",
    "np.argsort(x, kind='bubble')", "np.argsort(x, kind='stable', stable=True)", "np.sort(x, order='f')",
    "np.meshgrid(x, x, indexing='ji')", "np.std(x, ddof=1, correction=1)", "np.nanvar(x, ddof=1, correction=1)",
    "np.take(x, 0, mode='turn')", "d.reshape(2, 4).__setitem__((0, 0), [3])",
    "d.reshape(2, 4).__setitem__((1, 1), x[:1])", "np.clip(x, 0, max=3)", "np.clip(x, a_min=0, min=2)", "np.clip(x, 0, 1, 2)",
]


def program(line: str) -> FunctionType:
    return evaluated(f"lambda x, i, d, m, o: {line}", {"np": np})


def arguments() -> tuple:
    return ODD.copy(), WHOLE.copy(), ODD.astype("f8"), MASK, np.full(8, 9, np.float32)


@pytest.mark.parametrize("line", HONOURED)
@pytest.mark.parametrize("target", ["reference", "python"])
def test_options_are_honoured(line, target):
    given, expected = arguments(), arguments()
    with np.errstate(all="ignore"):
        wanted = program(line)(*expected)
    found = ms.jit(program(line), target=target)(*given)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(given[-1], expected[-1])


@pytest.mark.parametrize("line", RAISED)
def test_options_that_numpy_refuses_raise_its_error(line):
    with pytest.raises(Exception) as wanted:
        program(line)(*arguments())
    with pytest.raises(wanted.type):
        ms.jit(program(line), target="reference")(*arguments())


def test_where_without_out_is_refused():
    with pytest.raises(ms.TraceError, match="where= but no traced out=.*np.where"):
        ms.jit(program("np.clip(x, 0, 1, where=m)"), target="reference")(*arguments())
