"""Random NumPy sources, and small programs that once gave other bits than NumPy: views, in-place writes, ``out=``, ``where=``.

``python tools/random_sources.py --count 2000`` runs many more.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy_api import POOL, outcome, program
from sources import executed

import minisitch as ms

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
from random_sources import check, different, program_of

EXTRA = {"x": np.array([-2.5, 0.1, 3, np.nan], "f2"), "j": np.array([[1, np.nan, 3], [np.nan, np.nan, np.nan], [0, -1, -np.inf]]), "g": np.arange(7.0).astype("f4"), "o": np.array([2**63, 7, 2**53 + 1], "u8")}


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_random_sources_have_numpys_bits(first):
    for seed in range(first, first + 8):
        text, given = program_of(seed)
        why = check(text, given, "step" if seed % 4 == 1 else "python", ("astitch", "none", "fs20", "auto")[seed // 2 % 4])
        assert not why or why.startswith("refused"), f"program {seed}: {why}\n{text}# {given}"


def test_few_random_sources_are_refused():
    """What a program reaches is not decided by what tracing refuses."""
    found = [check(*program_of(seed), "reference", "none") for seed in range(200, 220)]
    assert sum(why.startswith("refused") for why in found) < 5, found


def bits(text, target="reference"):
    """What is wrong with a program of ``numpy_api``'s language: nothing, also where both raise the same."""
    function, names = program(text)
    pool = POOL | EXTRA
    theirs, ours = ([np.array(pool[name]) if isinstance(pool[name], np.ndarray) else pool[name] for name in names] for _ in range(2))
    want, expected = outcome(lambda: function(*theirs))
    got, error = outcome(lambda: ms.jit(function, target=target)(*ours))
    if expected is not None or error is not None:
        return "" if type(error) is type(expected) else f"{error!r} for {expected!r}"
    return different(got, want) or different(ours, theirs)


CASES = {
    "initial": """np.max(u, initial=300); np.max(u, initial=np.nan); np.sum(i, initial=2.5); np.prod(u, axis=-1, initial=2.5); np.sum(i, initial=-np.inf);
        np.min(u, initial=np.int64(-300)); np.max(u, initial=np.float64(300.0)); np.min(b, initial=np.nan); np.sum(b, initial=True); np.sum(h, initial=1e9);
        np.sum(i, initial=v); np.sum(i, initial='3'); np.sum(i, initial=s); np.sum(e, axis=0, initial=None); np.sum(e, axis=0); np.max(f, where=b, initial=n)""",
    "where": """np.sum(d, where=i); np.sum(d, where=1); np.sum(d, where=[1, 0, 1, 0]); np.sum(d, where=None); np.mean(d, where=k); np.sum(d[:1], where=b);
        np.sum(d, where=b[None]); o = np.zeros((3, 4)) $ np.add(d, 1, where=i, out=o) $ return o; np.copyto(d, 1, where=i) $ return d;
        np.sum(d, where=y); np.any(d, where=np.int64(1)); np.sum(d, where=np.array(1))""",
    "dtype": "np.std(i, dtype=int); np.std(i, 0, dtype=int); np.var(i, dtype=bool); np.std(h, 0, dtype=bool); np.std(b); np.argmax(s, keepdims=True); np.argmin(v, keepdims=True)",
    "degrees": "np.deg2rad(x); np.radians(x); np.rad2deg(x); np.degrees(u); np.degrees(g); np.rad2deg(v); np.radians(b)",
    "nan": """np.nanmax(j); np.nanmin(j, 1); np.nanmax(j, where=j > 0, initial=-3.0); np.nanmean(j); np.nanmean(x); np.nanvar(j, 1, ddof=1); np.nanstd(x);
        np.nanvar(j); np.nanargmax(j); np.nanargmin(j, 1); np.nanargmax(j[::2], 1); np.nanmax(j, 0, out=np.zeros(3)); np.nanmean(j, 1, keepdims=True);
        np.nanmax(i); np.nanstd(i); np.nanmean(u, 0); np.nanmin(e); np.nanmean(j, where=j > 0)""",
    "scan": """np.maximum.accumulate(f, axis=1); np.minimum.accumulate(v); np.maximum.accumulate(j, -1); np.logical_or.accumulate(w); np.fmax.accumulate(j);
        np.bitwise_or.reduce(i); np.bitwise_and.reduce(u, axis=(0, 1)); np.bitwise_xor.reduce(i, axis=1, keepdims=True); np.logical_xor.reduce(b);
        np.fmax.reduce(j, 1); np.gcd.reduce(i); np.bitwise_and.reduce(i[:0]); np.fmin.reduce(e); np.bitwise_or.reduce(f); np.logical_or.accumulate(w, dtype=int);
        np.maximum.accumulate(v, out=v) $ return v; np.bitwise_or.reduce(b, None)""",
    "out": """np.sum(f, 0, out=np.zeros((2, 4))); np.argmax(f, 0, out=np.zeros(4)); np.cumsum(v, out=np.zeros((2, 4))); np.mean(v, out=np.zeros(4));
        np.argmin(f, 0, out=np.zeros(4, 'i1')); np.var(f, 1, out=np.zeros((1, 3))); u[0, 0] *= 300 $ return u; p += 300 $ return p""",
    "flat": """np.copyto(i, np.nan, 'unsafe'); np.copyto(u, 300, 'unsafe'); np.copyto(i, 2.7, 'unsafe') $ return i; r = d.flat[2:5] $ r[0] = 9 $ return d, r; np.add(d.flat[:4], 1, out=d.flat[:4]) $ return d; d.flat[3] += 1 $ return d; r = d.flat[3] $ return r;
        d.flat[2:9:3] *= 2 $ return d; r = d.T.flat[3:6] $ r *= 0 $ return d, r; r = np.meshgrid(v, k, copy=False, sparse=True) $ r[0][0, 0] = 5 $ return v""",
    "at": """np.add.at(o, [0, 2, 2], 127) $ return o; np.add.at(g, [0, 1], 0.1) $ return g; np.subtract.at(g, [0, 3], np.float64(0.1)) $ return g;
        np.add.at(g, 3, 0.1) $ return g; np.add.at(u[0], 0, 300) $ return u; np.add.at(u, [0, 0], -1) $ return u; np.subtract.at(i, 0, 0.1) $ return i;
        np.multiply.at(d, [0, 0, 1], 3) $ return d; np.maximum.at(v, [0, 2, 2], [5.0, 1.0, np.nan]) $ return v; np.bitwise_or.at(w, [1, 1], 9) $ return w;
        np.minimum.at(f.T, [1, 1], c3) $ return f; np.bitwise_xor.at(i, [0, 2], w) $ return i; np.divide.at(d, 0, 3) $ return d; np.add.at(x, [0, 0], 0.1) $ return x;
        np.add.at(i, [0, 0], 0.5) $ return i; np.maximum.at(u, [0, 1], -1) $ return u; np.minimum.at(w, [0, 0], np.int64(2**40)) $ return w;
        np.add.at(b, [0, 0], -1) $ return b; np.subtract.at(o, [0, 1], -1.5) $ return o""",
}


@pytest.mark.parametrize("kind", CASES)
def test_once_unlike_numpy(kind):
    """The kinds that random sources and the sweep of calls found."""
    for text in re.split(r";\s*", CASES[kind]):
        assert bits(text) == "", text
    assert bits(text, "step") == "", text


NUMBERS = (3, 2.5, 300, -129, 2**40, 2**63, float("nan"), float("inf"), 1e300, 7, -1, 0.5)
WITH_NUMBERS = """x[0] = k; x[:] = k; x[[0, 1]] = k; x[x > 1] = k; x.fill(k); x += k; x = np.full_like(x, k);
    x = np.where(x > 1, k, x); x = np.clip(x, -k, k); x = x != k; x = k < x; x = np.select([x > 1], [x], k); x = np.sum(x, initial=k);
    x = np.pad(x, 1, constant_values=k); x = (k & 3) * x if type(k) is int else x / k; x = ~k + x if type(k) is not float else k; x = type(k);
    x = np.array([k, 1]); x = (k << 2 | 1) >> 1 if isinstance(k, int) else x; x = x.astype(type(k)); x = np.max(x, initial=k); x = np.add(x, k)"""


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_python_numbers_fit_or_raise_at_each_call(dtype):
    """One jitted function: what a number is decides at each call what NumPy does, whatever it was before."""
    for line in re.split(r";\s*", WITH_NUMBERS):
        space = {"np": np}
        executed(f"def program(x, k):\n    {line}\n    return x", space)
        jitted = ms.jit(space["program"], target="reference")
        for number in NUMBERS:
            want, expected = outcome(lambda: space["program"](np.arange(4).astype(dtype), number))  # noqa: B023
            got, error = outcome(lambda: jitted(np.arange(4).astype(dtype), number))  # noqa: B023
            assert type(error) is type(expected), (line, number, error, expected)
            assert expected is not None or different(got, want) == "", (line, number)
