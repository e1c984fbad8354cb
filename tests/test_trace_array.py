"""What an array says of itself: NumPy's own objects, or a refusal with the line."""

import numpy as np
import pytest

import minisitch as ms

X = np.arange(6.0).reshape(2, 3)


def traced(function, *arguments):
    return ms.jit(function, target="reference")(*arguments or (X.copy(),))


def test_a_dtype_is_numpys_own():
    for dtype in "f2 f4 f8 i1 u8 ?".split():
        assert traced(lambda x: (x.dtype is np.dtype(x.dtype.type), (x > 0).dtype is np.dtype(bool)), X.astype(dtype)) == (True, True)
    assert traced(lambda x: x.dtype == X.dtype.newbyteorder("S"), X.astype(X.dtype.newbyteorder("S"))) is True


@pytest.mark.parametrize("asks", [lambda x: x.__array_interface__["shape"], lambda x: x.__array_struct__, lambda x: x.__dlpack__(),
                                  lambda x: np.zeros(3).__array_interface__ and x], ids=range(4))
def test_what_only_memory_can_say_is_refused_by_name(asks):
    with pytest.raises(ms.TraceError, match=r"test_trace_array.py:\d+: ndarray.__(array_interface|array_struct|dlpack)__"):
        traced(asks)


def test_numpys_c_code_may_ask_and_get_nothing():
    assert np.array_equal(traced(lambda x: np.stack([np.sum(x), x[0, 1]]) + np.float64(1)), [16, 2])
    assert traced(lambda x: hasattr(x, "__array_interface__")) is True


def test_its_namespace_is_numpy():
    def program(x):
        xp = x.__array_namespace__(api_version="2024.12")
        return xp.sin(x) + xp.sum(x, axis=0)
    assert np.array_equal(traced(program), program(X))
    with pytest.raises(ValueError, match="2000"):
        traced(lambda x: x.__array_namespace__(api_version="2000"))


def test_values_are_asked_in_one_way():
    """Each of these asks for the value of an array, which a known one has."""
    def program(x):
        k = np.arange(3)[1]
        return [int(k), float(k), bool(k), complex(k), str(k), f"{k:3d}", round(k * 1.5, 1), k.item(), np.arange(2).tolist(), hash(k), [1, 2][k]]
    assert traced(program) == program(X)
    for asks in (int, bool, complex, round, str):
        with pytest.raises(ms.TraceError, match=r"test_trace_array.py:\d+: .* it has no values while the program is traced"):
            traced(lambda x, asks=asks: asks(x[0, 0]))
