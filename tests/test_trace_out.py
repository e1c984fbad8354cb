"""``out=`` means ``out[...] = result``, with NumPy's casts on the way and NumPy's refusals."""

import numpy as np
import pytest
from sources import executed

import minisitch as ms

DTYPES = "f2 f4 f8 i1 i4 i8 u1 ?".split()
CALLS = """np.sum(x, 0, out=o) | np.prod(x, 0, out=o) | np.max(x, 0, out=o) | np.min(x, 0, out=o) | np.mean(x, 0, out=o) | np.var(x, 0, out=o)
    np.std(x, 0, out=o) | np.any(x, 0, out=o) | np.all(x, 0, out=o) | np.argmax(x, 0, out=o) | np.argmin(x, 0, out=o) | np.sum(x, 0, "f4", out=o)
    np.sum(x, 0, "i4", out=o) | np.mean(x, 0, "f4", out=o) | np.var(x, 0, "f8", out=o) | np.add.reduce(x, out=o) | np.maximum.reduce(x, 0, out=o)
    np.bitwise_or.reduce(x, 0, out=o) | np.fmax.reduce(x, 0, out=o) | np.nanmax(x, 0, out=o) | np.nanmean(x, 0, out=o) | np.nanvar(x, 0, out=o)
    np.cumsum(x, 0, out=p) | np.cumprod(x, 1, out=p) | np.cumsum(x, 0, "f4", out=p) | np.maximum.accumulate(x, 0, out=p) | np.round(x, 1, out=p)
    np.round(x, out=p) | np.round(x, -1, out=p) | np.clip(x, 1, 3, out=p) | np.clip(x, 1, None, out=p) | np.take(x, [0, 2, 1], 1, out=p)
    np.take(x, [2, 0], out=q) | np.dot(x, x.T, out=s) | np.matmul(x, x.T, out=s) | np.einsum("ij,kj->ik", x, x, out=s) | np.einsum("ij->j", x, out=o)
    np.concatenate([x, x], out=d) | np.add(x, x, out=p) | np.add(x, 1, out=p) | np.multiply(x, 1.5, out=p) | np.sqrt(x, out=p) | np.negative(x, out=p)
    np.less(x, 2, out=p) | np.maximum(x, x.T[:1, :1], out=p) | np.floor(x, out=p) | np.isnan(x, out=p) | np.logical_and(x, x, out=p)
    np.power(x, 2, out=p) | np.add(x, x, out=p, casting="unsafe") | np.subtract(x, x, out=p, dtype="f4") | np.exp(x, p) | np.trace(x, out=c)
    np.sum(x, out=c) | np.dot(x[0], x[1], out=c) | np.mean(x, out=c) | np.std(x, out=c) | np.median(x, 0, out=o) | np.add.accumulate(x, 1, out=p)
    np.add(x, x, out=t) | np.sum(x, 0, out=q) | np.sum(x, 0, out=p) | np.max(x, 1, keepdims=True, out=k) | np.dot(x, x.T, out=s.T) | np.ptp(x, 0, out=o)
    np.add(x[0], x[1], where=x[0] > 1, out=o) | np.choose([0, 1, 0], x, out=o) | np.vecdot(x, x, out=q) | np.dot(x, 2, out=p) | np.inner(x, x)"""
SHAPES = {"o": (3,), "p": (2, 3), "q": (2,), "s": (2, 2), "d": (4, 3), "c": (), "t": (3, 2), "k": (2, 1)}
VALUES = np.array([[1.25, 2.75, 3.5], [2.5, 0.0, 1.75]])


def calls():
    return [each.strip() for each in CALLS.replace("\n", "|").split("|")]


def becomes(call, inward, outward, values=VALUES):
    """"equal", "raises" or "refused", or what differs from NumPy."""
    space = {"np": np}
    names = [name for name in SHAPES if f"out={name}" in call or f", {name})" in call]
    executed(f"def program(x, {', '.join(names)}):\n    return {call}{''.join(f', {n}' for n in names)}\n", space, "program.py")

    def given():
        return [values.astype(inward), *(np.full(SHAPES[name], 1, outward) for name in names)]
    with np.errstate(all="ignore"):
        try:
            wanted, error = space["program"](*given()), None
        except (TypeError, ValueError) as raised:
            wanted, error = None, raised
    try:
        found = ms.jit(space["program"], target="reference")(*given())
    except ms.TraceError as refused:
        return "refused" if "program.py:2" in str(refused) else str(refused)
    except Exception as raised:
        return "raises" if isinstance(error, type(raised)) else f"{raised!r} and not {error!r}"
    if error is not None:
        return f"no {error!r}"
    for got, want in zip(found if names else [found], wanted if names else [wanted], strict=True):
        near = np.allclose(got, want, rtol=4e-3 if got.dtype == np.float16 else 1e-6, atol=0, equal_nan=True)
        if got.dtype != want.dtype or np.shape(got) != np.shape(want) or not near:
            return f"{got!r} is not {want!r}"
    return "equal"


@pytest.mark.parametrize("call", calls())
def test_every_dtype_of_out(call):
    found = {(inward, outward): becomes(call, inward, outward) for inward in DTYPES for outward in DTYPES}
    assert {key: what for key, what in found.items() if what not in ("equal", "raises", "refused")} == {}
    if not any(each in call for each in ("median", "choose", '"i4"', "s.T")):
        assert "refused" not in (found["f4", "f4"], found["f8", "f8"]), "an out= of the result's own dtype works"


@pytest.mark.parametrize("call", [each for each in calls() if "reduce" in each or "accumulate" in each or "sum" in each or "max" in each])
def test_integers_that_out_does_not_hold(call):
    values = np.array([[300, -3, 70], [200, 150, -120]])
    for inward in ("i4", "i8"):
        found = {outward: becomes(call, inward, outward, values) for outward in DTYPES if outward != "f2"}
        assert {key: what for key, what in found.items() if what not in ("equal", "raises", "refused")} == {}


@pytest.mark.parametrize("line", [
    "np.add(x, x, out=np.float64(0))", "np.add(x[0, 0], 1, out=np.float64(0))", "np.add(x[0, 0], 1, out=x[0, 0])",
    "np.add(x[0, 0], 1, out=...)", "np.sum(x, out=...)", "x.sum(out=...)", "np.max(x, out=...)",
    "np.cumsum(x, out=...)", "np.sum(x, out=x.sum())", "np.dot(x[0], x[1], out=x[0, 0])",
    "np.maximum.reduce(x, 0, out=...)", "np.matmul(x[0], x[1], out=...)", "np.add.accumulate(x[0], out=...)", "np.mean(x, out=...)"])
def test_arrays_and_scalars(line):
    """Ellipsis asks for an array, also of shape (). A scalar takes no result."""
    space = {"np": np}
    executed(f"def program(x):\n    y = {line}\n    return type(y) is np.ndarray, y\n", space, "program.py")
    try:
        wanted = space["program"](VALUES.copy())
    except TypeError:
        with pytest.raises((TypeError, ms.TraceError)):
            ms.jit(space["program"], target="reference")(VALUES.copy())
        return
    found = ms.jit(space["program"], target="reference")(VALUES.copy())
    assert found[0] == wanted[0] and type(found[1]) is type(wanted[1]) and np.array_equal(found[1], wanted[1])


def test_a_scalar_in_place_is_a_new_one():
    def program(x):
        s = t = x.sum()
        s *= 2
        s += x[0, 0]
        s -= 1
        s /= 3
        return s, t
    assert ms.jit(program, target="reference")(VALUES) == program(VALUES)


def test_a_sum_goes_through_out():
    """The dtype of ``out`` and of x decide together in which dtype NumPy adds."""
    def program(x, out):
        np.sum(x, 0, out=out)
        return x.astype(np.float32).mean(0, out=np.zeros_like(out))
    x = np.random.default_rng(0).random((100, 3)).astype(np.float16)
    ours, wanted = np.zeros(3), np.zeros(3)
    assert np.allclose(ms.jit(program, target="reference")(x, ours), program(x, wanted), rtol=1e-12)
    assert np.allclose(ours, wanted, rtol=1e-12) and not np.allclose(ours, x.sum(0), rtol=1e-6)
