"""Sizes, axes and shapes: NumPy's numbers are sizes or refused with the line, None is no number, overlapping arguments that are read."""

import numpy as np
import pytest
from numpy_api import differs, verdict
from sources import executed

import minisitch as ms
from minisitch import simt

SIZES = ("v.reshape(m, -1)", "v.reshape((m, -1))", "np.zeros((m, 4)) + v", "np.ones(m)", "np.full((2, m), n)", "np.eye(m)", "np.identity(m)", "np.tri(m)",
         "np.broadcast_to(v, (m, 4))", "np.tile(v, m)", "np.repeat(v, m)", "np.split(v, m)", "np.array_split(v, m + 1)", "np.arange(m)", "v[:m]", "[1] * m",
         "np.resize(v, m)", "np.linspace(0, 1, m)", "v.reshape(z, -1)", "np.eye(z)", "np.pad(v, m)", "range(m)", "np.vander(v, m)", "np.indices((m, 2))")


@pytest.mark.parametrize("text", SIZES)
def test_numpys_integers_are_sizes_or_refused_with_the_line(text):
    assert verdict(text) == "refused"  # an argument is known only when it runs
    known = text.replace("m", "np.int64(2)").replace("nu", "nu") if "m" in text and "np." not in text.split("m")[0] else ""
    assert not known or verdict(known) in ("equal", "raises")


@pytest.mark.parametrize("text", ["v.reshape(np.int64(2), -1)", "np.zeros(np.uint8(3)) + c3", "np.eye(np.int32(3)) + q", "np.tile(v, np.int64(2))",
                                  "v[:np.int64(2)]", "f.sum(np.int64(1))", "np.repeat(v, np.int64(2))", "np.full((np.int64(2), 4), v)", "np.round(v, np.int64(1))",
                                  "v.reshape(np.shape(v)[0] // np.int64(2), -1)", "v.reshape(np.array([2, 2]))", "np.moveaxis(t, np.int64(0), -1)"])
def test_numpys_integers_that_are_known_are_sizes(text):
    assert verdict(text) == "equal"


@pytest.mark.parametrize("text", ["v == None", "v != None", "None == v", "np.equal(v, None)", "n == None", "n != None", "s == None", "e == None", "f == None",
                                  "i == None", "b != None", "v is None"])
def test_nothing_equals_none(text):
    assert verdict(text) == "equal"


@pytest.mark.parametrize("text", ["v < None", "v + None", "v * None", "None - v", "np.maximum(v, None)"])
def test_none_is_no_number(text):
    assert verdict(text) == "raises"


@pytest.mark.parametrize("text", ["np.sort(f, axis=(0, 1))", "np.argsort(f, axis=(0, 1))", "f.sort(axis=(0, 1)) $ return f", "np.cumsum(f, (0, 1))", "np.sum(f, 5)",
                                  "np.sum(f, (0, 0))", "np.max(f, 0.5)", "np.concatenate([f, f], (0,))", "np.sum(s, 1)", "np.flip(f, (0, 0))", "f.argmax((0, 1))",
                                  "np.expand_dims(f, (0, 0))", "np.moveaxis(f, 0, 5)", "np.squeeze(f, 0)", "f.transpose(0, 0)", "f.reshape(-1, -1)", "f.reshape(5)"])
def test_wrong_axes_raise_alike(text):
    assert verdict(text) == "raises"


@pytest.mark.parametrize("target", ["step", "python"])
def test_arguments_that_overlap_and_are_only_read(target):
    x = np.arange(6.0)
    for f, args in ((lambda a, b: b - a, (x[:-1], x[1:])), (lambda a, b: a * b, (x, x)), (lambda a, b, c: a + b + c, (x[:4], x[1:5], x[2:])),
                    (lambda a, b: (a @ b, a.sum()), (x[:3], x[2:5]))):
        assert differs(ms.jit(f, target=target)(*args), f(*args)) == ""


def test_arguments_that_overlap_and_are_written_are_refused():
    x = np.arange(6.0)

    def f(a, b):
        a += b
    for target in ("step", "python", "reference"):
        with pytest.raises(ms.MinisitchError, match="shares memory"):
            ms.jit(f, target=target)(x[:-1], x[1:])
    with pytest.raises(ValueError, match="overlaps"):
        simt.step("def k(x, y):\n    y[0] = x[0]", [x[:-1], x[1:]], 1, 1)


def flat(x):
    x.reshape(-1)[::2] = 0


def raveled(x):
    y = x.ravel()
    x += 1
    return y


def turned(x):
    y = x.T.reshape(-1)
    y[0] = 9
    return x + 0


def laid_out(x):
    np.ascontiguousarray(x)[0] = 9


def in_memory_order(x):
    return x.ravel(order="K")


def asked(x):
    return x * 2 if x.flags.c_contiguous else x


@pytest.mark.parametrize("function", [flat, raveled, turned, laid_out, in_memory_order, asked])
def test_where_the_layout_of_an_argument_decides_only_c_order_is_taken(function):
    """In C order it is NumPy's. Elsewhere a reshape may be a copy in place of a view: the call is refused, and nothing is written."""
    rows = np.arange(12.0).reshape(3, 4)
    others = (np.asfortranarray(rows), np.repeat(rows, 2, 1)[:, ::2], rows[::-1].copy()[::-1])
    for target in ("python", "step", "reference"):
        jitted = ms.jit(function, target=target)
        for x in others:
            before = x.copy()
            with pytest.raises(ms.TraceError, match=r"test_right_shape.py:\d+: how the argument x lies in memory.*ascontiguousarray\(x\)"):
                jitted(x)
            np.testing.assert_array_equal(x, before)
        ours, theirs = rows.copy(), rows.copy()
        assert differs(jitted(ours), function(theirs)) == "" and differs(ours, theirs) == ""


@pytest.mark.parametrize("line", ["x.reshape(-1) * 2", "x.ravel() + x.T.ravel()", "x.ravel('C'), x.flatten()", "x.reshape(-1).copy()", "np.argmax(x), x.T.reshape(2, 6)"])
def test_what_is_read_of_an_argument_in_another_order_is_numpys(line):
    x = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    space = {"np": np}
    executed(f"def program(x):\n    y = {line}\n    x += 1\n    return y" if "copy" in line else f"def program(x): return {line}", space)
    assert differs(ms.jit(space["program"], target="python")(x.copy("F")), space["program"](x.copy("F"))) == ""


def test_a_new_ndarray_takes_traced_values():
    """``np.ndarray(shape, dtype)`` makes an array as ``np.empty`` does."""
    def columns(x):
        out = np.ndarray((x.shape[0], 2), x.dtype)
        out[:, 0] = x
        out[:, 1] = x * 2
        assert isinstance(x, np.ndarray) and isinstance(out, np.ndarray)
        return out

    x = np.arange(4.0) + 1
    np.testing.assert_array_equal(ms.jit(columns, target="python")(x), columns(x))
