"""``x[mask]`` under a traced mask: reductions of it, and writes by ``np.place`` and ``np.putmask``."""

# ruff: noqa: B023  each function is called at once
import numpy as np
import pytest

import minisitch as ms

V = np.array([3.0, 1, 4, 1, 5, 9, 2, 6])
M = np.arange(12.0).reshape(3, 4) - 5.5
CUBE = np.arange(24.0).reshape(2, 3, 4) - 11.5


def outcome(function, values, jit=False):
    try:
        return (ms.jit(function, target="reference") if jit else function)(values.copy())
    except (ValueError, IndexError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def same(function, values):
    with np.errstate(all="ignore"):
        wanted, found = outcome(function, values), outcome(function, values, jit=True)
    assert type(found) is type(wanted) and np.shape(found) == np.shape(wanted), f"{found} is not {wanted}"
    if isinstance(wanted, str):
        assert found == wanted
    else:
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", "sum prod mean var std max min any all".split())
@pytest.mark.parametrize("dtype", "f4 f8 i4 u1 ?".split())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_reduction_of_the_masked(name, dtype):
    values = (V - (0 if dtype == "u1" else 3)).astype(dtype)
    function = getattr(np, name)
    for limit in (2, 100):  # 100: none is selected
        same(lambda x: getattr(x[x + 0 > limit], name)(), values)
        same(lambda x: function(x[x + 0 > limit]), values)
        same(lambda x: function(x[x + 0 > limit], axis=0), values)
        same(lambda x: function(x[x + 0 > limit] * x[x + 0 > limit]), values)


@pytest.mark.parametrize("reduce", [
    lambda x: x[x[:, 0] > -3].mean(axis=0), lambda x: x[x[:, 0] > -3].max(0), lambda x: x[x[:, 0] > -3].sum(), lambda x: x[:, x[0] > -4].sum(1),
    lambda x: x[:, x[0] > -4].min(-1), lambda x: x[x > 0].sum(), lambda x: np.std(x[x > 0], ddof=1), lambda x: x[x[:, 0] > 99].max(0),
    lambda x: x[x[:, 0] > -3].sum(0, dtype=np.float32), lambda x: x[x > 0].sum() / x[x <= 0].sum(), lambda x: (x[x > 0] - x[x > 0].mean()).sum(),
    lambda x: np.exp(x[x > 0]).max(), lambda x: x[..., x[0] > -4].sum((0, 1))], ids=range(13))
def test_masks_of_rows_and_columns(reduce):
    same(reduce, M)


@pytest.mark.parametrize("reduce", [
    lambda x: x[:, x[0, :, 0] > -9].mean(1), lambda x: x[:, x[0] > -9].max(1), lambda x: x[x[..., 0] > 0].min(0), lambda x: x[x[..., 0] > 0].sum((0, 1)),
    lambda x: x[x[:, 0, 0] > 0].sum((0, 2))], ids=range(5))
def test_masks_of_some_axes(reduce):
    same(reduce, CUBE)


@pytest.mark.parametrize("read", [lambda x: x[x[:, 0] > 0].sum(1), lambda x: x[x > 0].cumsum(), lambda x: x[x > 0].sum(keepdims=True),
                                  lambda x: x[x > 0].argmax(), lambda x: np.sort(x[x > 0]), lambda x: x[x > 0].size], ids=range(6))
def test_the_rest_is_refused_by_its_line(read):
    with pytest.raises(ms.TraceError, match=r"test_trace_masks.py:\d+: x\[mask\] under a traced mask is read"):
        ms.jit(read, target="reference")(M)


@pytest.mark.parametrize("function", [np.place, np.putmask], ids=["place", "putmask"])
@pytest.mark.parametrize("values", [[10, 20], [7], 5, np.array([1.5, 2.5, 3.5]), np.arange(12), np.arange(20), True, [[1, 2], [3, 4]], np.float32(2)], ids=repr)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_values_put_where_a_mask_holds(function, values, dtype):
    def whole(x):
        function(x, x > 0, values)
        return x

    def by_row(x):
        function(x[1], x[0] > -4, values)
        return x

    def computed(x):
        y = x * 2
        function(y, x > 0, x[0] + 1)
        return y
    for change in (whole, by_row, computed):
        wanted, found = outcome(change, M.astype(dtype)), outcome(change, M.astype(dtype), jit=True)
        assert found == wanted if isinstance(wanted, str) else np.array_equal(found, wanted)


def test_a_mask_of_another_shape():
    def put(x):
        np.putmask(x, (x > 0).ravel(), -x)
        return x
    same(put, M)
    same(lambda x: np.putmask(x, x[0] > 0, 1), M)
