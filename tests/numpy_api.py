"""NumPy's public interface as small programs: each function with typical arguments, and what became of it.

``CALLS`` is the table. A line holds the calls of one function, separated by ``;``. In a call ``@a`` stands for any array or scalar
of ``POOL``, ``@x`` for any axis, and so on (``CHOICES``): one text stands for all combinations. A call with ``return`` in it is the
body of a program, its statements separated by ``$``.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from sources import executed

import minisitch as ms

RNG = np.random.default_rng(3)
POOL: dict[str, Any] = {
    "f": RNG.normal(size=(3, 4)).astype("f4"),
    "d": RNG.normal(size=(3, 4)),
    "h": RNG.normal(size=(3, 4)).astype("f2"),
    "i": RNG.integers(-9, 9, (3, 4)),
    "u": RNG.integers(0, 255, (3, 4)).astype("u1"),
    "b": RNG.integers(0, 2, (3, 4)).astype(bool),
    "t": RNG.normal(size=(2, 3, 4)).astype("f4"),
    "v": RNG.normal(size=4),
    "w": RNG.integers(-3, 3, 4).astype("i4"),
    "k": np.array([2, 0, 3, 1]),
    "q": RNG.normal(size=(3, 3)),
    "e": np.zeros((0, 3), "f4"),
    "r": np.ones((1, 1, 4)),
    "s": np.array(1.5),
    "z": np.array(2),
    "y": np.array(True),
    "n": np.float32(2.5),
    "m": np.int64(2),
    "p": np.uint8(200),
    "l": np.bool_(True),
    "odd": np.array([np.nan, np.inf, -np.inf, -0.0, 1.0, -2.5]),
    "c3": np.array([1.0, -2.0, 3.0]),
    "i3": np.array([1, 2, 3]),
}
CHOICES = {
    "@a": "f i u b h v t s z n m l e odd",  # anything
    "@g": "f i v s n",  # a few of them
    "@j": "i u w z m p",  # integers
    "@o": "v s n m 2 2.5 True",  # a second operand
    "@x": "None 0 -1 1 np.int64(0) z m (0,) (0,-1) 5 0.5",  # an axis, or some
    "@y": "0 -1 1 np.int64(0) 5 None",  # one axis
    "@d": "float np.float32 int bool np.uint8",
    "@k": "True False",
    "@n": "0 1 2 -1 np.int64(1)",
}

UFUNC_CALLS = {1: "F(@a); F(2); F(2.5); F(True); F(@g, dtype=@d); F(f, where=b, out=np.zeros_like(f)); o = np.zeros((3, 4)) $ r = F(d, out=o) $ return r, o;"
                  "o = np.zeros(()) $ r = F(s, out=o) $ return r, o; F(s, out=...); F(v, out=(None,)); F(v, None); F(f, v, out=f); o = np.zeros(4, int) $ F(v, o) $ return o;"
                  "F(v, order='C'); F(v, casting='no'); F(v, subok=False); F.reduce(v); F(v, where=False); F(v, where=True); F([v, v]); F((2, m))",
               2: "F(@g, @o); F(@o, @g); F(@a, @a); F(@j, @j); F(@j, w); F(u, @j); F(2, @j); F(@g, v, dtype=@d); F(f, f, where=b, out=np.zeros_like(f)); o = np.zeros((3, 4)) $ r = F(d, d, out=o) $ return r, o;"
                  "o = np.zeros(()) $ r = F(s, s, out=o) $ return r, o; F(s, s, out=...); F(2, 3); F(v, 2, None); o = np.zeros(4, int) $ F(v, 2, o) $ return o; F(f, q);"
                  "F.reduce(@g); F.reduce(@g, axis=@x); F.reduce(f, keepdims=True); F.accumulate(@g); F.accumulate(f, axis=@y); F.outer(v, w); F.outer(2, v); F.outer(n, s); F.reduceat(v, [0, 2]);"
                  "F.at(v, [0, 0], 1) $ return v; F.at(w, k, w) $ return w; F.reduce(f, initial=2); F.reduce(f, where=b, initial=2); F.reduce(f, dtype=float); F.reduce(v, out=np.zeros(())); F(v, [1, 2, 3, 4]); F(v, None)"}

CALLS = """
np.sum(@a); np.sum(@a, @x); np.sum(f, @x, keepdims=True); np.sum(@g, dtype=@d); np.sum(f, where=b); np.sum(f, 0, where=b[0]); np.sum(@g, initial=2); np.sum(2.5); np.sum([v, v]); np.sum([1, 2]); o = np.zeros(4) $ r = np.sum(f, 0, out=o) $ return r, o; o = np.zeros(4, int) $ r = np.sum(f, 0, out=o) $ return r, o; o = np.zeros(4, 'f4') $ r = np.sum(d, 0, out=o) $ return r, o; o = np.zeros(4, 'f4') $ r = np.sum(i, 0, out=o) $ return r, o; o = np.zeros(4, 'i4') $ r = np.sum(i, 0, out=o) $ return r, o; o = np.zeros(4, bool) $ r = np.max(f, 0, out=o) $ return r, o; o = np.zeros(4, int) $ r = np.max(f, 0, out=o) $ return r, o; o = np.zeros(4, 'f4') $ r = np.mean(d, 0, out=o) $ return r, o; o = np.zeros(4, 'f4') $ r = np.var(i, 0, out=o) $ return r, o; o = np.zeros(4, 'f4') $ r = np.cumsum(v, out=o) $ return r, o; o = np.zeros(4, int) $ r = np.cumsum(v, out=o) $ return r, o; o = np.zeros(4, int) $ r = np.any(f, 0, out=o) $ return r, o; o = np.zeros(4, 'i1') $ r = np.argmax(f, 0, out=o) $ return r, o; o = np.zeros(3, bool) $ r = np.all(f, 1, None, o) $ return r, o; np.sum(f, 0, out=...)
np.prod(@a); np.prod(@a, @x); np.prod(f, @x, keepdims=True); np.prod(@g, dtype=@d); np.prod(f, where=b); np.prod(@g, initial=2); np.prod(2.5); np.prod([v, v])
np.max(@a); np.max(@a, @x); np.max(f, @x, keepdims=True); np.max(f, where=b); np.max(f, where=b, initial=0); np.max(@g, initial=2); np.max(2.5); np.max([v, v]); o = np.zeros(4) $ np.max(f, 0, o) $ return o
np.min(@a); np.min(@a, @x); np.min(f, @x, keepdims=True); np.min(f, where=b, initial=0); np.min(@g, initial=2); np.min([1, 2])
np.amax(@g, @x); np.amin(@g, @x)
np.any(@a); np.any(@a, @x); np.any(f, @x, keepdims=True); np.any(b, where=b); np.any(2); np.any([v, v])
np.all(@a); np.all(@a, @x); np.all(f, @x, keepdims=True); np.all(b, where=~b); np.all(True)
np.mean(@a); np.mean(@a, @x); np.mean(f, @x, keepdims=True); np.mean(@g, dtype=@d); np.mean(f, where=b); np.mean(2); np.mean([v, v]); o = np.zeros(4) $ np.mean(f, 0, out=o) $ return o
np.var(@a); np.var(@a, @x); np.var(f, @x, keepdims=True); np.var(@g, dtype=@d); np.var(f, ddof=1); np.var(f, where=b); np.var(2); np.var(v, correction=1); np.var(f, 0, mean=np.mean(f, 0, keepdims=True)); np.var(v, ddof=9)
np.std(@a); np.std(@a, @x); np.std(f, @x, keepdims=True); np.std(f, ddof=np.int64(1)); np.std([1, 2, 3])
np.average(@a); np.average(@g, @x); np.average(f, 1, weights=v); np.average(f, weights=f); np.average(f, 0, c3, returned=True); np.average(f, keepdims=True); np.average(v, returned=True)
np.ptp(@a); np.ptp(@g, @x); np.ptp(f, 0, keepdims=True)
np.argmax(@a); np.argmax(@g, @y); np.argmax(f, 0, keepdims=@k); np.argmax([1, 3, 2]); np.argmax([v, v]); o = np.zeros(4, int) $ r = np.argmax(f, 0, out=o) $ return r, o
np.argmin(@a); np.argmin(@g, @y); np.argmin(f, keepdims=@k)
np.nansum(@a); np.nansum(@g, @x); np.nanprod(@a); np.nanprod(@g, @x); np.nanmean(@a); np.nanmean(@g, @x); np.nanmean(f, where=b); np.nanvar(@a); np.nanvar(@g, @x); np.nanstd(@a); np.nanstd(f, 0, ddof=1); np.nanmax(@a); np.nanmax(@g, @x); np.nanmin(@a); np.nanmin(@g, @x); np.nanmin(f, initial=0)
np.nanargmax(@a); np.nanargmax(@g, @y); np.nanargmin(@a); np.nanargmin(@g, @y); np.nancumsum(@a); np.nancumsum(@g, @y); np.nancumprod(@a); np.nancumprod(@g, @y); np.nanmedian(@g); np.nanpercentile(@g, 50); np.nanquantile(@g, 0.5)
np.median(@g); np.median(f, @x); np.percentile(@g, 50); np.quantile(@g, 0.5, axis=-1)
np.cumsum(@a); np.cumsum(@a, @y); np.cumsum(@g, dtype=@d); o = np.zeros(4) $ r = np.cumsum(v, out=o) $ return r, o; np.cumsum([1, 2]); np.cumsum(3); np.cumprod(@a); np.cumprod(@g, @y); np.cumprod(@g, dtype=@d)
np.cumulative_sum(@a); np.cumulative_sum(@g, axis=@y); np.cumulative_sum(v, include_initial=True); np.cumulative_prod(@a); np.cumulative_prod(f, axis=1, include_initial=True)
np.count_nonzero(@a); np.count_nonzero(@a, @x); np.count_nonzero(f, axis=@x, keepdims=True); np.count_nonzero(3); np.count_nonzero([0, 1])
np.sort(@a); np.sort(@a, @y); np.sort(f, axis=(0, 1)); np.sort(v, kind='stable'); np.sort(v, stable=True); np.sort(v, order='x'); np.sort([3, 1]); np.argsort(@a); np.argsort(@a, @y); np.argsort(f, axis=(0, 1)); np.argsort(v, kind='stable'); np.argsort([3, 1])
np.partition(@g, 1); np.argpartition(@g, 1); np.lexsort((v, w)); np.sort_complex(v); np.searchsorted(v, 0.5); np.searchsorted([1, 2, 3], v); np.digitize(v, [0, 1]); np.digitize([0.5], v)
np.diff(@a); np.diff(@a, 2); np.diff(@g, axis=@y); np.diff(v, prepend=0); np.diff(v, append=v); np.diff(v, n=0); np.diff(v, n=-1); np.diff(f, prepend=f); np.diff([1, 3]); np.diff(v, @n)
np.ediff1d(@a); np.ediff1d(v, 1, 2); np.gradient(@g); np.gradient(v, 2.0); np.gradient(v, np.float64(2)); np.gradient(v, v); np.gradient(f, axis=@x); np.gradient(f, 1, 2); np.gradient(v, edge_order=2); np.gradient(f, v, axis=1)
np.cross(i3, i3); np.cross(c3, i3); np.cross(q, c3); np.cross(q, q, axis=0); np.cross(c3, c3[:2]); np.cross(q[:, :2], c3[:2]); np.cross(q, q, -1, -1, 0); np.cross(v, v); np.cross([1, 2, 3], c3); np.cross(s, s); np.linalg.cross(q, q); np.linalg.cross(c3, i3)
np.roll(@a, 1); np.roll(@a, @n); np.roll(@g, 1, @y); np.roll(v, z); np.roll(v, m); np.roll(v, p); np.roll(f, (1, 2), (0, 1)); np.roll(f, 1, (0, 1)); np.roll(f, [1, 2], 0); np.roll(f, m, axis=1); np.roll(v, -np.argmax(v)); np.roll(v, k[0]); np.roll(v, 1.5); np.roll(v, w); np.roll(f, (m, 1), (0, 1)); np.roll(v, 2 * len(v) + 1); np.roll(e, 1, 0); np.roll(v, 3, z); np.roll([1, 2, 3], 1)
np.flip(@a); np.flip(@g, @x); np.flipud(@a); np.fliplr(@a); np.rot90(@g); np.rot90(f, @n); np.rot90(t, 1, (1, 2)); np.rot90(f, k=3, axes=(1, 0))
np.zeros_like(@a); np.zeros_like(@g, dtype=@d); np.zeros_like(f, shape=(2, 2)); np.zeros_like(2); np.zeros_like(2.5); np.zeros_like([v, v]); np.zeros_like(f, shape=3); np.zeros_like(f, order='F'); np.zeros_like(s) + 1
np.ones_like(@a); np.ones_like(@g, dtype=@d); np.ones_like(2); np.ones_like([1, 2]); np.zeros_like(np.empty_like(@a)); np.zeros_like(np.empty_like(2)); np.full_like(@a, 3); np.full_like(@g, 2.5); np.full_like(f, s); np.full_like(f, v); np.full_like(i, n); np.full_like(u, 300); np.full_like(i, np.nan); np.full_like(b, 2); np.full_like(f, 2, dtype=@d); np.full_like(u, -1)
np.zeros((2, 3)) + v[:3]; np.zeros(m) + 1; np.zeros((m, 4)) + v; np.zeros(z); np.zeros(2.0); np.zeros(-1); np.ones(m); np.full(m, s); np.full((2, m), n); np.full(3, @g); np.full((3, 4), v); np.full((3, 4), 2, dtype=@d); np.zeros_like(np.empty(m)); np.full(2, 2.5, int); np.full(2, np.nan, int); np.full((), v); np.full((3,), [1, 2, 3]); np.zeros((2, 2), np.uint8) - 1; np.full(2, 300, np.uint8)
np.eye(3) + q; np.eye(m); np.eye(3, 4, 1); np.eye(3, k=-1, dtype=int); np.identity(3) @ q; np.identity(m); np.tri(3); np.tri(3, 4, @n); np.eye(z)
np.arange(4) + v; np.arange(m); np.arange(0, m); np.arange(4.0) + v; np.arange(len(v)); np.arange(5)[1:] * 2; np.arange(3, dtype=@d); np.arange(0, 1, 0.25) + v; np.arange(4, 0, -1) + v; np.linspace(0, 1, 4) + v; np.linspace(0, s, 4); np.linspace(v, 1, 3); np.linspace(0, n, 4); np.linspace(0, 1, m); np.linspace(0, 1, 4, retstep=True); np.linspace(v, v, 3, axis=1); np.linspace(0, m, 5, dtype=int); np.linspace(0, s, 4, endpoint=False); np.logspace(0, 1, 4) + v; np.logspace(0, s, 4); np.geomspace(1, 8, 4) + v; np.geomspace(1, s, 4); np.geomspace(v + 9, 2, 3)
np.indices((2, 3)); np.indices(f.shape) + i; np.fromfunction(lambda a, b: a + b, (3, 4)) + f; np.fromiter(v, float); np.frombuffer(v); np.fromiter(range(4), float) + v; np.meshgrid(v, w); np.meshgrid(v, w, indexing='ij', sparse=True); np.meshgrid(v, 3); np.meshgrid(v, copy=False); np.meshgrid(s, n); np.ix_(k, k); np.ix_([0, 1], k); np.ix_(b[0], k); np.mgrid[0:3] + c3; np.ogrid[0:3, 0:4][1] + f; np.r_[v, 1]; np.c_[v, v]; np.s_[1:2]; np.r_[1:4] + c3
np.real(@a); np.imag(@a); np.isreal(@a); np.iscomplex(@a); np.isrealobj(@a); np.iscomplexobj(@a); np.angle(@a); np.angle(f, deg=True); np.real_if_close(@a); np.imag(2); np.imag([v]); np.isreal(2); np.real(2); np.conj(@a); np.conjugate(2)
np.isneginf(@a); np.isposinf(@a); np.isneginf(odd, np.zeros(6, bool)); np.fix(@a); np.fix(odd, out=np.zeros(6)); np.nan_to_num(@a); np.nan_to_num(odd, nan=1, posinf=2, neginf=3); np.nan_to_num(odd, copy=False); np.nan_to_num(np.nan); np.isclose(@a, @o); np.isclose(odd, odd, equal_nan=True); np.allclose(v, v); np.array_equal(v, v); np.array_equal(v, f); np.array_equiv(v, f)
np.polyval([1, 2, 3], @a); np.polyval(v, 2); np.polyval(v, @a); np.polyval([v, v], 2); np.polyval(c3, m); np.polyval(np.poly1d([1, 2]), v); np.polyval(s, v); np.polyadd(v, c3); np.polysub(v, c3); np.polymul(v, c3); np.polyder(v); np.polyder(v, 2); np.polyint(v); np.polydiv(v, c3); np.polyfit(v, v, 1); np.poly(v); np.roots(v); np.poly1d(v); np.poly1d([1, 2])(v); np.polynomial.polynomial.polyval(v, [1, 2, 3]); np.polynomial.chebyshev.chebval(v, [1, 2, 3]); np.polynomial.Polynomial([1, 2])(v); np.polynomial.polynomial.polyval(2.0, v); np.vander(v); np.vander(v, 3); np.vander(v, m, increasing=True)
np.i0(@a); np.i0(2.0); np.i0([1.0, 2.0]); np.sinc(@a); np.sinc(2); np.unwrap(@g); np.unwrap(f, axis=@y); np.unwrap(v, discont=1); np.unwrap(i, period=4); np.interp(@a, [0, 1, 2], [1, 2, 3]); np.interp(0.5, v, v); np.trapezoid(@g); np.trapezoid(f, axis=@y); np.trapezoid(v, v); np.trapezoid(v, dx=2); np.trapezoid(f, v); np.convolve(v, c3); np.convolve(v, c3, @k); np.convolve(v, c3, 'same'); np.convolve(s, v); np.correlate(v, c3); np.correlate(v, c3, 'full'); np.corrcoef(f); np.corrcoef(v, w); np.corrcoef(v); np.cov(f); np.cov(v); np.cov(f, rowvar=False); np.cov(v, w); np.cov(f, bias=True, ddof=0); np.cov(f, fweights=[1, 2, 3, 4]); np.cov(i); np.bartlett(4) + v; np.hanning(4) + v; np.kaiser(4, 2) * v; np.hamming(m); np.blackman(4) + v; np.kaiser(4, s)
np.copyto(f, 2) $ return f; x = np.zeros(3) $ np.copyto(x, np.ones((1, 3))) $ return x; x = np.zeros(3) $ np.copyto(x, c3) $ return x; x = np.zeros((3, 4)) $ np.copyto(x, v) $ return x; np.copyto(i, 2.5) $ return i; np.copyto(i, v) $ return i; np.copyto(i, f, 'unsafe') $ return i; np.copyto(f, 0, where=b) $ return f; np.copyto(v, r) $ return v; np.copyto(v, f) $ return v; np.copyto(u, 300) $ return u; np.copyto(v, v[::-1]) $ return v; np.copyto(v, s) $ return v; np.copyto(s, 3) $ return s; np.copyto(n, 3) $ return n; np.copyto(f, 1, where=b[:, :1]) $ return f; np.copyto(i, m) $ return i; np.copyto(i, True) $ return i; np.copyto(v, [1, 2, 3, 4]) $ return v; np.copyto(u, i) $ return u; np.copyto(u, m) $ return u; np.copyto(v, 1, where=b) $ return v; np.copyto(b, 2) $ return b
np.putmask(f, b, 0) $ return f; np.putmask(v, v > 0, [1, 2]) $ return v; np.put(v, [0, 1], [5, 6]) $ return v; np.put(v, k, 3) $ return v; np.put(v, 9, 3) $ return v; np.put(v, [0, 9], 3, 'clip') $ return v; np.place(v, v > 0, [1]) $ return v; np.put_along_axis(f, np.argmax(f, 1, keepdims=True), 9, 1) $ return f; np.fill_diagonal(q, 3) $ return q; np.fill_diagonal(q, c3) $ return q; np.fill_diagonal(f, 1, wrap=True) $ return f; np.fill_diagonal(t, 1) $ return t; np.fill_diagonal(v, 1) $ return v
np.where(b, @a, 2); np.where(b, @g, @o); np.where(b[0], @o, @o); np.where(b, u, -1); np.where(b, u, 300); np.where(b, i, 2.5); np.where(True, @a, 0); np.where(s, @g, 2); np.where(y, s, 2.5); np.where(l, n, m); np.where(b, 1, 0); np.where(b, 1.5, True); np.where(b); np.where(b, f); np.where([True, False, True, False], v, 0); np.where(b, [1, 2, 3, 4], v); np.where(f, f, h); np.where(b, h, 1e9); np.where(b, u, np.int64(-1)); np.where(b, u, p); np.where(b, b, 2); np.where(b, f, np.inf)
np.select([f > 0, f < 0], [f, -f]); np.select([f > 0], [f], 2.5); np.select([b, b], [1, 2], 3); np.select([f > 0, b], [i, f]); np.select([b], [u], -1); np.select([v > 0], [s], 1); np.choose(k, [v, v, v, v]); np.choose(b.astype(int), [f, i]); np.choose(m, [1, 2, 3]); np.choose(k % 2, [v, 0]); np.choose(k, [v, v]); np.choose(k, [v, v], mode='wrap'); np.piecewise(v, [v > 0, v < 0], [1, -1]); np.piecewise(v, [v > 0], [lambda x: x, 0]); np.clip(@a, 0, 1); np.clip(@a, -0.5, 0.5); np.clip(@g, None, 1); np.clip(@g, 1, None); np.clip(@g); np.clip(u, -1, 300); np.clip(v, w, 2); np.clip(2, 0, 1); np.clip(v, min=0); np.clip(v, max=z); np.clip(i, 0.5, 2); np.clip(f, v, None); o = np.zeros(4) $ r = np.clip(v, 0, 1, out=o) $ return r, o; np.clip(v, 0, 1, dtype=@d); np.clip(u, n, 9); np.clip(v, 2, 1); np.clip(u, 0, m)
np.round(@a); np.round(@a, 1); np.round(@g, @n); np.round(2.567, 2); np.round(v, decimals=m); np.around(@g, -1); np.round(v, 1, np.zeros(4)); np.rint(@a); np.fix(2.5); np.round(odd, 1); np.round(v * 1e300, 10); np.round(p, -1)
np.reshape(@a, -1); np.reshape(f, (4, 3)); np.reshape(f, (m, -1)); np.reshape(f, (z, -1)); np.reshape(f, np.array([2, 6])); np.reshape(v, (m, m)); np.reshape(f, (4, 3), order='F'); np.reshape(f, (4, 3), order='A'); np.reshape(f, 5); np.reshape(f, (-1, -1)); np.reshape(s, (1, 1)); np.reshape(n, (1,)); np.reshape(s, ()); np.reshape(2, (1, 1)); np.reshape(f, 12.0); np.reshape(f, (3.0, 4)); np.reshape([v, v], 8); np.reshape(f, len(v) * 3); np.reshape(e, (3, 0)); np.reshape(e, (-1, 3)); np.reshape(e, (0, -1)); np.reshape(f, shape=(12,)); np.reshape(f, (12,), copy=True)
np.ravel(@a); np.ravel(f, order='F'); np.ravel(2); np.ravel([v, w]); np.transpose(@a); np.transpose(t, (2, 0, 1)); np.transpose(t, (-1, 0, 1)); np.transpose(f, (0, 0)); np.transpose(f, (m - 1, 0)); np.transpose([v, v]); np.permute_dims(t, (1, 0, 2)); np.matrix_transpose(@g); np.swapaxes(@g, 0, -1); np.swapaxes(t, m, 0); np.swapaxes(f, 0, 5); np.swapaxes([v, v], 0, 1); np.moveaxis(t, 0, -1); np.moveaxis(t, (0, 1), (-1, 0)); np.moveaxis(@g, 0, -1); np.moveaxis(t, m, 0); np.rollaxis(t, 2); np.rollaxis(t, m, 1); np.squeeze(@a); np.squeeze(r); np.squeeze(r, @x); np.squeeze([v]); np.expand_dims(@a, 0); np.expand_dims(f, (0, -1)); np.expand_dims(f, @x); np.expand_dims(2, 0); np.expand_dims([1, 2], 0)
np.atleast_1d(@a); np.atleast_1d(2); np.atleast_1d(v, s); np.atleast_2d(@a); np.atleast_2d(2, v); np.atleast_3d(@a); np.atleast_1d([1, 2], v); np.broadcast_to(@a, (2, 3, 4)); np.broadcast_to(@g, 4); np.broadcast_to(v, (m, 4)); np.broadcast_to(2, 3); np.broadcast_to(v, (2, 5)); np.broadcast_to(s, ()); np.broadcast_to([1, 2], (2, 2)); np.broadcast_arrays(v, f); np.broadcast_arrays(v, 2); np.broadcast_arrays(s, n); np.broadcast_arrays(v, c3); np.broadcast_arrays(v, [1, 2, 3, 4]); np.broadcast_shapes(np.shape(v), (3, 1)); np.broadcast(v, f).shape; list(np.broadcast(v, f)); [a for a, b in np.broadcast(v, 2)]; np.broadcast(v, f).iters; next(iter(np.broadcast(v, w))); np.broadcast(v, f).ndim; np.broadcast(v, f).size; np.broadcast(v, f).nd; np.broadcast(v, f).numiter
np.concatenate([v, v]); np.concatenate([f, f], @y); np.concatenate([v, w]); np.concatenate([v, s]); np.concatenate([f, v]); np.concatenate([f, v], None); np.concatenate([v, [1, 2]]); np.concatenate((v, v), dtype=@d); np.concatenate([v, v], dtype=int, casting='unsafe'); np.concatenate([]); np.concatenate(f); np.concatenate([v, v], axis=m - 2); np.concatenate([f, f], axis=z - 1); o = np.zeros(8) $ r = np.concatenate([v, v], out=o) $ return r, o; np.concat([v, w]); np.concatenate([v]); np.concatenate([f, q], 1); np.concatenate([v, np.ones(2, np.float32)]); np.concatenate([h, f])
np.stack([v, w]); np.stack([f, f], @y); np.stack([s, n]); np.stack([s, 2]); np.stack([v, c3]); np.stack(f); np.stack([v, v], axis=m - 1); np.stack([v, w], dtype=np.float32); np.stack([v, [1, 2, 3, 4]]); np.stack([]); np.vstack([v, w]); np.vstack([f, v]); np.vstack(f); np.setdiff1d(v, v); getattr(np, 'row_stack')([v, v]); np.hstack([v, w]); np.hstack([f, f]); np.hstack([s, v]); np.hstack([2, v]); np.dstack([v, w]); np.dstack([f, f]); np.column_stack([v, f.T]); np.column_stack([v, w]); np.block([[f, f], [f, f]]); np.block([v, 2]); np.block([[v], [w]]); np.append(v, 3); np.append(f, f, 0); np.append(f, v); np.append(v, v, m - 2); np.append(2, v); np.append([1, 2], v); np.insert(v, 1, 5); np.insert(f, 0, 5, axis=1); np.insert(v, [0, 2], s); np.insert(v, m, 5); np.delete(v, 1); np.delete(f, 0, 1); np.delete(v, [0, 1]); np.delete(v, m); np.delete(v, slice(1, 3)); np.delete(v, -1)
np.split(v, 2); np.split(v, m); np.split(v, 3); np.split(f, [1, 3], 1); np.split(f, @n, axis=1); np.array_split(v, 3); np.array_split(v, m + 1); np.array_split(f, 2, 1); np.array_split(v, [1, 9]); np.array_split(v, k); np.array_split(v, 0); np.array_split([1, 2, 3], 2); np.array_split(s, 2); np.hsplit(f, 2); np.hsplit(v, 2); np.vsplit(f, 3); np.vsplit(v, 2); np.dsplit(t, 2); np.unstack(f); np.unstack(f, axis=1); np.unstack(s); np.array_split(v, 2.0)
np.tile(@a, 2); np.tile(@g, (2, 1)); np.tile(v, m); np.tile(v, (m, 2)); np.tile(s, (2, 2)); np.tile(v, 0); np.tile(v, z); np.tile(v, ()); np.tile(v, 1); np.tile(2, 3); np.tile([1, 2], 2); np.repeat(@a, 2); np.repeat(@g, 2, @y); np.repeat(v, m); np.repeat(v, k); np.repeat(v, [1, 2, 3, 4]); np.repeat(f, 2, axis=m - 1); np.repeat(v, [1, 2]); np.repeat(2, 3); np.repeat(v, 1.5); np.repeat(v, -1); np.repeat([1, 2], 2); np.repeat(v, z); np.resize(v, (2, 4)); np.resize(@g, 5); np.resize(v, m); np.resize(v, (m, 3)); np.resize(e, 3)
np.pad(@a, 1); np.pad(v, (1, 2)); np.pad(f, ((1, 0), (0, 2))); np.pad(v, m); np.pad(v, 1, constant_values=5); np.pad(v, 1, constant_values=s); np.pad(i, 1, constant_values=2.5); np.pad(v, 1, 'constant', constant_values=(1, 2)); np.pad(v, 2, 'edge'); np.pad(v, 2, 'reflect'); np.pad(v, 2, 'symmetric'); np.pad(v, 2, 'wrap'); np.pad(v, 2, 'linear_ramp'); np.pad(v, 2, 'linear_ramp', end_values=9); np.pad(v, 2, 'maximum'); np.pad(v, 2, 'mean'); np.pad(i, 2, 'mean'); np.pad(v, 2, 'minimum'); np.pad(v, 2, 'median'); np.pad(v, 2, 'empty')[2:-2]; np.pad(v, -1); np.pad(v, 1.5); np.pad(f, {0: 1}); np.pad(v, 1, 'reflect', reflect_type='odd'); np.pad(v, 0); np.pad(v, [1]); np.pad(f, (1,)); np.pad([1, 2], 1); np.pad(u, 1, constant_values=300); np.pad(f, (m, 0)); np.pad(v, 9, 'wrap'); np.pad(f, 2, mode='reflect')
np.take(@a, 0); np.take(@a, [0, -1]); np.take(f, [0, 1], @y); np.take(v, m); np.take(v, z); np.take(v, k); np.take(v, k[:, None]); np.take(f, k % 3, 0); np.take(v, 9); np.take(v, 9, mode='clip'); np.take(v, [9, -9], mode='wrap'); np.take(v, w); np.take(v, [[0, 1], [2, 3]]); np.take(s, 0); np.take(n, 0); np.take([5, 6], k % 2); np.take(v, [True, False]); np.take(v, v > 0); np.take(f, b[0], 1); np.zeros(True) + v; np.sum(f, axis=[0]); np.cumsum(v, False); np.sum(f, keepdims='a'); np.take(v, 1.0); np.take(v, True); np.take(v, b[0]); o = np.zeros(2) $ r = np.take(v, [0, 1], out=o) $ return r, o; np.take(f, np.array(1), axis=0); np.take(f, m, axis=m - 1); np.take(e, [0], axis=0); np.take(v, [])
np.take_along_axis(f, np.argsort(f, 1), 1); np.take_along_axis(f, np.argmax(f, 0, keepdims=True), 0); np.take_along_axis(v, k, 0); np.take_along_axis(v, k, None); np.take_along_axis(f, k, 1); np.take_along_axis(f, i % 3, axis=0); np.take_along_axis(f, f, 0); np.take_along_axis(v, k, m - 2); np.compress([True, False, True], f, 0); np.compress(v > 0, v); np.extract(v > 0, v); np.nonzero(v); np.flatnonzero(v); np.argwhere(v); np.unique(v); np.unique_values(v); np.unique_counts(v); np.unique_inverse(v); np.unique_all(v); np.format_float_scientific(v[0]); np.union1d(v, v); np.in1d(v, v) if hasattr(np, 'in1d') else 0; np.isin(v, [1, 2]); np.isin(i, [1, 2]); np.isin(k, k); np.isin(2, k); np.intersect1d(v, v); np.setxor1d(v, v); np.trim_zeros(v); np.histogram(v); np.histogram2d(v, v); np.bincount(k); np.bincount(k, minlength=4); np.histogram_bin_edges(v); np.histogramdd(f); np.unravel_index(5, (3, 4)); np.unravel_index(k, (2, 2)); np.unravel_index(np.argmax(f), f.shape); np.ravel_multi_index((k, k), (4, 4)); np.ravel_multi_index((1, 2), (3, 4)); np.packbits(b); np.unpackbits(u)
np.diag(v); np.diag(q); np.diag(q, @n); np.diag(v, m); np.diag(f, -1); np.diag(s); np.diag([1, 2]); np.diag(t); np.diagonal(f, @n); np.diagonal(t, 0, 1, 2); np.diagonal(t, axis1=m, axis2=0); np.diagonal(v); np.diagonal([[1, 2], [3, 4]]); np.diagflat(v); np.diagflat(f, 1); np.diagflat(s); np.trace(q); np.trace(f, @n); np.trace(t); np.trace(i, dtype=@d); np.trace(b); np.trace(v); np.tril(q); np.tril(f, @n); np.triu(q); np.triu(f, m); np.tril(v); np.tril(t); np.triu(i); np.tril([[1, 2], [3, 4]]); np.tril(b); np.triu(s); np.tril_indices(3); np.triu_indices(m); f[np.tril_indices(3)]; q[np.triu_indices(3, 1)]; np.tril_indices_from(q); np.triu_indices_from(f); q[np.triu_indices_from(q)]; q[np.diag_indices(3)]; np.diag_indices_from(q); np.mask_indices(3, np.triu)
np.dot(v, v); np.dot(f, v); np.dot(f, f.T); np.dot(2, v); np.dot(s, v); np.dot(n, 3); np.dot(t, q[:3, :3]); np.dot(f, f); np.dot(v, c3); o = np.zeros(3) $ r = np.dot(d, v, out=o) $ return r, o; np.dot(i, k); np.dot(b, b.T); np.dot([1, 2, 3, 4], v); np.dot(u, u.T); np.dot(t, v); np.vdot(v, v); np.vdot(f, f); np.vdot(s, 2); np.vdot(v, c3); np.inner(v, v); np.inner(f, f); np.inner(2, v); np.inner(f, v); np.inner(v, c3); np.outer(v, w); np.outer(f, v); np.outer(s, v); np.outer(2, 3); np.outer(v, [1, 2]); np.outer(v, v, np.zeros((4, 4))); np.matmul(f, v); np.matmul(t, q); np.matmul(v, 2); np.matmul(f, f); v @ 2; f @ f.T; i @ i.T; b @ b.T; h @ h.T; e @ q; e.T @ e; np.matmul(f, f.T, out=np.zeros((3, 3), np.float32)); np.matmul(i, i.T, dtype=float); np.vecdot(f, v); np.vecdot(f, f, axis=0); np.matvec(f, v); np.vecmat(v, f.T); np.matmul(r, f.T); np.matmul(t, t); np.matmul(s, s); np.linalg.matmul(f, v); np.kron(v, w); np.kron(f, q); np.kron(2, v); np.kron(v, f); np.kron(s, s); np.tensordot(f, f, 2); np.tensordot(f, v, 1); np.tensordot(t, f, ([1, 2], [0, 1])); np.tensordot(v, v, 0); np.tensordot(f, f, m); np.tensordot(f, v, (1, 0)); np.tensordot(f, f); np.tensordot(f, q, 1)
np.einsum('ij->ji', f); np.einsum('ij,j', f, v); np.einsum('ij,ij->', f, f); np.einsum('ii', q); np.einsum('ii->i', q); np.einsum('...j,j', t, v); np.einsum('i,j->ij', v, w); np.einsum('ij,jk', f, f); np.einsum('i->', i3); np.einsum(f, [0, 1], [1, 0]); np.einsum('ij', b); np.einsum('i,i', b[0], b[0]); np.einsum(',i', s, v); np.einsum('i', v, dtype=np.float32, casting='unsafe'); np.einsum('i,i', u[0], u[0]); np.einsum('ij->', i); np.einsum('bij,jk->bik', t, f.T); np.einsum('ij,jk,k', d, d.T, c3, optimize=True); np.einsum('i,i', 2, v); np.einsum('i', s); np.einsum_path('ij,jk', f, f.T); np.einsum('ij->i', e); np.einsum('ij->ij', f)[0]
np.linalg.norm(@a); np.linalg.norm(f, axis=@x); np.linalg.norm(v, @n); np.linalg.norm(f, 'fro'); np.linalg.norm(f, 'nuc'); np.linalg.norm(v, np.inf); np.linalg.norm(v, -np.inf); np.linalg.norm(f, 2); np.linalg.norm(f, 1, 1); np.linalg.norm(v, 2.5); np.linalg.norm(f, 2, 0, True); np.linalg.norm(f, keepdims=True); np.linalg.norm(2.0); np.linalg.norm([3, 4]); np.linalg.norm(f, ord=np.inf, axis=(0, 1)); np.linalg.norm(t, axis=(1, 2)); np.linalg.vector_norm(@g); np.linalg.vector_norm(f, axis=1); np.linalg.vector_norm(v, ord=1); np.linalg.matrix_norm(f); np.linalg.matrix_norm(f, ord=1); np.linalg.matrix_power(q, 3); np.linalg.matrix_power(q, m); np.linalg.matrix_power(q, 0); np.linalg.matrix_power(q, -1); np.linalg.multi_dot([f, f.T, q]); np.linalg.multi_dot([v, f.T]); np.linalg.trace(q); np.linalg.diagonal(q); np.linalg.outer(v, w); np.linalg.tensordot(f, v, axes=1); np.linalg.vecdot(v, v); np.linalg.matrix_transpose(f); np.linalg.det(q); np.linalg.inv(q); np.linalg.solve(q, c3); np.linalg.eigh(q); np.linalg.svd(q); np.linalg.qr(q); np.linalg.cholesky(q); np.linalg.lstsq(q, c3); np.linalg.pinv(q); np.linalg.matrix_rank(q); np.linalg.cond(q); np.linalg.slogdet(q); np.linalg.eigvals(q); np.linalg.tensorinv(q); np.linalg.svdvals(q)
np.fft.fft(v); np.fft.rfft(v); np.fft.ifft(v); np.fft.fftshift(v); np.fft.ifftshift(f); np.fft.fftfreq(4) + v; np.fft.fftshift(f, axes=1); np.fft.fft2(f); np.fft.rfftfreq(m)
np.array(@a); np.array(@a, dtype=@d); np.array([v, w]); np.array([s, n]); np.array([s, 2]); np.array(v, ndmin=3); np.array(v, copy=False); np.array([1, 2]) + v[:2]; np.array(s); np.array([[s, 1], [2, n]]); np.array((v, v)); np.array(n); np.array([f, v]); np.array([[v, v], [v, v]]); np.array([v[0], v[1]]); np.array([]) + 1; np.array([v, w], dtype=@d); np.array(@g, ndmin=m); np.array(2.5) + v; np.array(v, order='F')
np.asarray(@a); np.asarray(@g, dtype=@d); np.asarray(2); np.asarray([v, 2 * v]); np.asarray(s); np.asarray(n); np.asarray([n, s]); np.asanyarray(@a); np.ascontiguousarray(@a); np.asfortranarray(@a); np.require(v, requirements='C'); np.require(v, float, ['C', 'A']); np.asarray_chkfinite(v); np.asarray_chkfinite(odd); np.asarray(v, copy=True); np.asarray(v, copy=False); np.ascontiguousarray([v, v]); np.asarray(v, order='F'); np.copy(@a); np.copy(2); np.copy([1, 2]); np.copy([v, v]); np.astype(@g, float); np.astype(v, int, copy=False); np.asmatrix(q); np.bmat([[q, q]]); np.matrix(q)
np.shape(@a); np.ndim(@a); np.size(@a); np.size(f, @y); np.size(f, (0, 1)); np.isscalar(@a); np.iterable(@a); np.shape(2); np.ndim([v, v]); np.size([v, v]); np.shape([v, v]); np.result_type(@a, @o); np.result_type(f, i, 2.5); np.promote_types(f.dtype, i.dtype); np.can_cast(f.dtype, 'f8'); np.can_cast(f, 'f8'); np.common_type(@a); np.common_type(f, i); np.min_scalar_type(@g); np.mintypecode(['f', 'd']); np.isdtype(f.dtype, 'real floating'); np.issubdtype(f.dtype, np.floating); np.issubdtype(f.dtype, float); np.typename('d'); np.finfo(f.dtype).eps; np.finfo(f).eps; np.iinfo(i.dtype).max; np.iinfo(i).max; np.isfortran(@g); np.may_share_memory(v, v); np.shares_memory(v, v[1:]); np.dtype(f.dtype).name; np.iterable(2)
np.apply_along_axis(np.sum, 1, f); np.apply_along_axis(lambda x: x * 2, 0, f); np.apply_over_axes(np.sum, f, [0, 1]); np.vectorize(lambda x: x + 1)(v); np.frompyfunc(lambda x: x, 1, 1)(v); np.fromfunction(lambda a: v[0] + a, (3,)); list(np.ndindex(2, 2)); list(np.ndindex(f.shape)); [f[j] for j in np.ndindex(f.shape)]; list(np.ndenumerate(v)); [x for _, x in np.ndenumerate(f)]; [x + 1 for x in np.nditer(v)]; np.nditer(v); np.nditer([v, None]); np.lib.stride_tricks.as_strided(v, (2, 2), (8, 8)); np.lib.stride_tricks.sliding_window_view(v, 2); np.lib.stride_tricks.sliding_window_view(f, (2, 2)); np.lib.stride_tricks.sliding_window_view(f, 2, axis=@y); np.lib.stride_tricks.sliding_window_view(v, m); np.lib.stride_tricks.sliding_window_view(v, 9); np.lib.stride_tricks.sliding_window_view(f, (2, 2), (0, 0)); np.lib.stride_tricks.broadcast_to(v, (2, 4)) if hasattr(np.lib.stride_tricks, 'broadcast_to') else 0; np.array2string(v); np.array_str(v); np.array_repr(v); np.format_float_positional(v[0]); repr(v[0]); str(v); f'{s}'; hash(n); hash(v); float(s); int(v[0]); complex(s); round(s); {n: 1}; {v.sum()}; np.base_repr(m); np.binary_repr(m); np.binary_repr(3); f'{n:.2f}';  np.from_dlpack(v); np.einsum_path('i,i', v, v)
np.random.default_rng(0).normal(size=4) + v; np.random.rand(4) + v; np.random.default_rng(0).permutation(v); np.random.default_rng(0).shuffle(v); np.random.default_rng(0).choice(v, 2); np.random.shuffle(v); np.random.permutation(v); np.random.default_rng(0).normal(v); np.random.default_rng(0).integers(0, k + 1); np.random.default_rng(0).uniform(0, s); np.random.default_rng(0).multivariate_normal(c3, q @ q.T); np.random.choice(k); np.random.normal(v)
np.ma.masked_array(v); np.ma.masked_where(v > 0, v); np.ma.array(v, mask=v > 0); np.ma.filled(v); np.char.upper('a'); np.rec.array(v); np.strings.upper('a'); np.ma.sum(v); np.ma.masked_invalid(odd); np.ma.average(v)
np.busday_count('2020-01-01', '2020-02-01') + v; np.isnat(v); np.datetime64('2020-01-01'); np.exp(1j * v); v + 1j; v.astype(complex); np.complex64(1) * v; np.array([1j]) * v; v ** 0.5j; np.sqrt(-1 + 0j) * v; np.emath.sqrt(v); np.lib.scimath.sqrt(2.0) * v; np.emath.log(v); np.lib.scimath.power(v, 2)
"""
METHODS = """
T mT real imag shape dtype ndim size itemsize nbytes strides base flat flags ctypes data device
all() all(axis=@x) all(keepdims=True) any() any(axis=@x); argmax() argmax(@y) argmax(axis=0,keepdims=True) argmin() argmin(@y); argpartition(1) argsort() argsort(@y) argsort(kind='stable'); astype(@d) astype('f4') astype(np.float64,copy=False) astype(int,casting='safe') astype(None); byteswap() choose([1,2,3]) clip(0,1) clip(0) clip(max=1) clip(None,0.5) clip(); compress([True]) conj() conjugate() copy() copy('F') copy(order='C'); cumprod() cumprod(@y) cumsum() cumsum(@y) cumsum(dtype=float); diagonal() diagonal(1); dot(2) dot(2.5); dumps(); flatten() flatten('F'); getfield('i1') item() item(0) item(0,1) item(-1); max() max(@x) max(axis=0,keepdims=True) max(initial=2); mean() mean(@x) mean(dtype=float) mean(keepdims=True); min() min(@x) min(initial=0); nonzero() partition(0); prod() prod(@x) prod(dtype=int); ravel() ravel('F') ravel('K'); repeat(2) repeat(2,@y); reshape(-1) reshape((-1,)) reshape(1,-1) reshape(m,-1) reshape(z,-1) reshape((m,-1)) reshape(()) reshape(-1,order='F') reshape([2,-1]) reshape(-1,copy=True) reshape(np.int64(-1)) reshape(None) reshape(2.0); resize(3); round() round(1) round(decimals=2) round(m); searchsorted(1); squeeze() squeeze(@x); std() std(@x) std(ddof=1); sum() sum(@x) sum(axis=0,keepdims=True) sum(dtype=float) sum(initial=1); swapaxes(0,-1) swapaxes(0,1); take(0) take([0,0]) take([0],0) take(m) take(z); tobytes() tolist() to_device('cpu') trace() trace(1) transpose() transpose(1,0) transpose((1,0)) transpose([1,0]) transpose(-1,0) transpose(None) transpose(0); var() var(@x) var(ddof=1) var(keepdims=True); view() view('i1') view(np.ndarray) setflags(write=False) setflags(write=True)
"""
SYNTAX = """
len(@a); [*iter(@a)]; @a[0]; @a[...]; @a[()]; @a[None]; @a[0, ...]; @a[[0]]; @a[m]; @a[z]; @a[True]; @a[:]; @a[-1]; @a[1.0]; @a[0, 0, 0, 0]; @a[..., 0]; @a[None, ...]; @a[1:]; @a[::-1]; abs(@a); -@a; +@a; ~@a; 1 in @a; divmod(@a, 2); divmod(2, @a); @a ** 2; 2 ** @a; @a + 1; 1 + @a; @a / 2; @a // 2; @a % 2; @a == 1; @a != 1; @a < 1; @a >= 2.5; @a << 1; @a & 1; @a @ 2; @a == None; @a != None; None == @a; @a < None; @a + None; @a == 'x'; @a != 'x'; @a + 'x'; @a == [1, 2]; @a == (); @a is None; @a == @a; @a + @a; @a if len(np.shape(@a)) else 0; (@a, [@a]); @a.T + @a.T
"""
STATEMENTS = """
f += 1; f += v; f += f; f *= i; f -= d; f /= 2; f //= 2; f **= 2; f %= 2; i += 1; i += 2.5; i += f; i /= 2; i //= 2; i **= 2; i <<= 1; i &= 3; u += 1; u += 300; u -= 1; u += i; u *= m; u += n; b += b; b |= b; b &= True; b -= b; b += 1; h += 1; h += f; h *= 1e9; s += 1; s *= 2; s += v; n += 1; n *= v; m += 1; m /= 2; v += s; v += n; v += m; z += 1; z += 0.5; p += 100; l |= False; t += f; f += t; v @= q; q @= q; e += 1
f[0] = 1; f[0] = v; f[0] += 1; f[:, 1] = 2; f[0, 0] = s; f[0, 0] = n; f[...] = 3; f[()] = 3; f[...] = v; s[...] = 3; s[()] = 4; s[()] += 1; f[0] = c3; f[b] = 0; f[b] += 1; f[f > 0] = 0; f[f > 0] *= 2; f[b] = f[b] * 2; f[k % 3] = 1; f[[0, 1]] = v; f[[0, 0]] += 1; f[k % 3, k] = v; f[m] = 1; f[z] = 1; f[m, 0] = m; f[5] = 1; f[0, 0, 0] = 1; f[0.5] = 1; f[1:3] = f[0:2]; f[::-1] = f; f[:, ::2] = 0; f[0] = [1, 2, 3, 4]; f[None] = 1; f[np.newaxis, 0] = v; f[-1] = f[0]; f.T[0] = 7; f.reshape(-1)[3] = 9; f.ravel()[3] = 9; f.flat[3] = 9; f.flat = 2; f.flat[:] = v; v[k] = v; v[k] += 1; v[-1] = 2; f[True] = 1; f[False] = 1; f[l] = 1; f[y] = 3; f['a'] = 1; f[0][1] = 5; f[0, :][b[0]] = 1; f[1:][0] = 3; f.T[:] = 1; f.fill(3); f.fill(s); f.sort(); f.sort(0); f.sort(axis=None); f.sort(axis=(0, 1)); i.sort(); v.sort(kind='stable'); f.put([0], 5); v.partition(1); f.resize((4, 3)); f.shape = (4, 3); f.dtype = 'i4'; v.itemset(0) if hasattr(v, 'itemset') else 0; f.real = 2; f.real[0] = 2; f.imag = 2; np.negative(f, f); np.add(f, 1, f); np.exp(f, out=f); f.cumsum(0, out=f); np.clip(f, 0, 1, f); f.clip(0, 1, out=f); f.strides = (4, 8); f.flags.writeable = False; del f; f[0:0] = 1; e[:] = 1; f[0] = np.ones((1, 4)); f[0] = np.ones((1, 1, 4)); f[0] = np.ones((2, 4)); f[:2, :2] = q[:2, :2]; t[:, 0] = f[:2]; t[..., 0] = 1; t[0, ..., 1] = 2; t[[0, 1], :, [0, 1]] = 0; t[:, [0, 1]] = 3
i[0] = 2.7; i[0] = np.nan; i[0] = np.float64('nan'); i[0] = np.inf; i[0] = np.float64('inf'); i[0] = 2**63; i[0] = np.uint64(2**63); i[0] = 1e30; i[0] = np.float64(1e30); i[0] = np.float32(2.7); i[0] = v; i[0] = n; i[0] = s; i[0] = True; i[0] = 1j; i[0] = 'a'; i[0] = '3'; i[0] = None; i[0] = [1.5, 2, 3, 4]; i[0] = [np.nan, 1, 2, 3]; i[0] = np.array(np.nan); i[0] = np.array([np.nan]); u[0] = 256; u[0] = -1; u[0] = np.int64(300); u[0] = np.int64(-1); u[0] = 2.7; u[0] = -2.7; u[0] = 300.5; u[0] = np.nan; u[0] = np.float64(300); u[0] = np.float32(-1); u[0] = m; u[0] = [300, 1, 2, 3]; u[0] = [-1, 1, 2, 3]; u[0] = i[0]; u[0] = np.array(300); u[0] = np.array([300]); u[:] = 300; u.fill(300); u.fill(-1); u.fill(2.5); i.fill(np.nan); i.fill(np.float64('nan')); i[:, 0] = np.nan; i[b] = np.nan; i[b] = 2.5; i[k % 3] = np.nan; i[k % 3] = 1.5; i.flat[0] = np.nan; b[0] = 2; b[0] = np.nan; b[0] = 0.0; b[0] = -1; h[0] = 1e9; h[0] = 2**100; f[0] = 2**200; f[0] = 10**400; f[0] = 1e300; v[0] = 10**400; f[0] = None; f[0] = 'nan'; f[0] = '1.5'; f[0] = 1j; f[0] = 'x'; w[0] = 2**31; w[0] = np.int64(2**31); w[0] = 3e9; w[0] = -1e10; w[0] = np.float64(3e9); np.put(i, 0, np.nan); np.put(i, 0, 1.5); np.putmask(i, i > 0, np.nan); np.copyto(i, np.nan); np.copyto(i, np.nan, 'unsafe'); np.place(i, i > 0, np.nan); np.fill_diagonal(i, np.nan); np.fill_diagonal(i, 1.5); np.fill_diagonal(u, 300); i.put(0, np.nan); np.put_along_axis(i, k[:3, None], np.nan, 1); np.put_along_axis(i, k[:3, None], 1.5, 1); np.add.at(i, 0, 1.5); np.add.at(i, 0, np.nan); np.add.at(u, 0, 300); np.add.at(u, 0, -1)
"""
VALUES = """
u.astype('i1'); i.astype('u1'); i.astype('u8'); (-v).astype('u4'); (v * 1e3).astype('i1'); (f * 300).astype('u1'); (f * -300).astype('u1'); (f * 300).astype('i2'); (f * -3e5).astype('u2'); (f * -3).astype('u4'); (f * -3).astype('u8'); (v * -3).astype('u8'); (h * -9).astype('u4'); odd.astype(bool); b.astype('f2'); b.astype('u1'); v.astype('f2'); (v * 1e6).astype('f2'); (v * 1e300).astype('f4'); i.astype('f2'); v.astype('e').astype('f8'); np.uint32(-v[0]); np.float32(v); np.int64(s); np.int64(v); np.float32(s); np.float64(2) * f; np.uint8(v); np.bool_(v); np.bool_(s); np.float32(n); np.intp(m); np.float64(m)
2 ** i; i ** 2; i ** -1; i ** i; w ** w; k ** -k; 2 ** w; u ** 2; u ** 300; u ** u; u ** -1; b ** 2; b ** b; l ** 2; l ** 3; l ** l; True ** i; 2 ** l; 2.0 ** l; n ** 2; m ** 2; m ** -1; m ** m; m ** 0.5; p ** 2; p ** p; v ** 2; v ** 0.5; v ** -1; v ** k; k ** v; v ** -0.5; odd ** 2; odd ** 0.5; odd ** 3; odd ** -1; odd ** odd; 2 ** odd; odd ** 0; odd ** 1.5; odd ** np.inf; 1 ** odd; s ** 2; s ** s; z ** 2; z ** -1; z ** z; 2 ** z; 2 ** -z; np.power(i, 2); np.power(i, -1); np.power(i, i); np.power(2, -k); np.float_power(i, -1); np.power(z, -2); pow(i, 2); pow(i, 2, 5); i ** 2.0; i ** True; b ** True; i ** p; u ** w; h ** 2; h ** h; f ** 2; f ** 3; f ** n; f ** m; n ** f; np.power(b, 2); np.power(b, b); np.square(b); np.power(l, 2); b ** m; u ** m; b ** u; np.bool_(True) ** u; l ** k
b + b; b - b; b * b; b / b; b // b; b % b; -b; +b; ~b; abs(b); b & b; b << 1; b < b; b == 1; b + 1; b + True; b + 1.5; l + l; l - l; l * l; l + 1; -l; ~l; l & l; l << 1; l + u; l * f; u + 1; u + 300; u - 1; u + -1; u + 1.5; u + i; u + n; u + m; u + s; u + z; u + p; u * 300; u < 300; u == -1; u > -1; u != 256; u + True; u // 0; u % 0; i // 0; i % 0; i / 0; v / 0; v // 0; v % 0; f + 1e300; f * 1e300; h + 1e9; h * 70000; h + n; h + s; f + s; f + n; f + m; f + np.float64(1); f + d; i + np.uint64(1); i + 2**62; u >> 1; u >> 9; u << 9; i >> 65; i << 65; w << w; k << k; -u; ~u; i ^ i; i | 3; i & -1; m + 2**63; m + 1.5; n + 1e300; p + 100; p + 300; p - 201; p * p; -p; ~p; p << 4; p >> 1; p // 7; p % 7; divmod(p, 7); divmod(v, 2); divmod(i, 3); divmod(2, k + 1); abs(p); abs(n); s + s; s + 1; s * 2; -s; s < 2; s == s; s + n; s + m; z + z; z / z; z // 2; z % 2; ~z; z << 1; z & 1; n + n; n < 2; n == n; m + n; m / m; m // 3; m < 2; l == True; s + [1, 2]; s + v; s[...] + 1; s[()] + 1; s.T; s.T + 1; s[None]; s.copy(); +s; s.real; s.imag; s.reshape(()); s.ravel(); s.flat[0]; n.T; n[...]; n[()]; n.copy(); n.reshape(()); n.real; n.imag; n.ravel(); n.astype(float); s.astype(int); s.astype(float); s.astype(float, copy=False); s.squeeze(); s.transpose(); v[0]; v[0] + 1; v[0].T; v[0][()]; v[0][...]; v[0:1]; v[..., 0]; v[..., 0] + 1; f[0, 0]; f[0, ..., 0]; f[(0, 0)]; f[...]; f[()]; v[z]; v[m]; v[np.array(1)]; v[k]; v[k][0]; v.sum(); v.sum()[...]; v.sum().T; v.sum().copy(); v.sum().reshape(()); v.max() - 1; s.sum(); n.sum(); s.max(); n.mean(); s.mean(); s.cumsum(); n.cumsum(); s.argmax(); n.argmax(); s.any(); n.any(); np.sum(s, axis=()); np.sum(s, keepdims=True); np.add(s, s); np.add(n, n); np.add(s, s, out=np.zeros(())); np.exp(s); np.exp(n); np.exp(m); np.where(y, s, s); np.where(l, n, n); np.clip(s, 0, 1); np.clip(n, 0, 1); np.round(s); np.round(n); np.take(v, m); np.take(v, z); np.squeeze(s); np.squeeze(v[:1]); np.transpose(s); np.transpose(n); np.broadcast_to(s, ()); np.copy(s); np.copy(n); np.asarray(n); np.array(n); np.expand_dims(s, 0)[0]; np.stack([s, s])[0]; np.concatenate([v, v])[0]; np.dot(v, v); np.dot(s, s); np.inner(s, s); np.einsum('i,i', v, v); np.einsum('i,i->', v, v); np.tensordot(v, v, 1); np.trace(q); np.matmul(v, v); v @ v; np.vdot(v, v); np.linalg.norm(v); np.linalg.norm(s); np.diag(v)[0, 0]; np.zeros(()); np.ones(()) + 1; np.full((), 2.5); np.zeros_like(s); np.zeros_like(n); np.zeros_like(np.empty(())); np.reshape(v[:1], ()); v[:1].reshape(()); np.ravel(v)[0]; s.item; np.float64(s); np.float64(n); s.sum(keepdims=True); np.mean(s); np.var(s); np.std(n); np.prod(s); np.max(n); np.ptp(s); np.median(s); np.average(s); np.nansum(s); np.nanmax(n); np.cumsum(s); np.diff(v)[0]; np.interp(s, v, v); np.real(s); np.real(n); np.imag(s); np.imag(n); np.conj(s); np.conj(n); s.conj(); n.conj(); np.isreal(n); np.nan_to_num(s); np.nan_to_num(n); np.sinc(s); np.i0(s); np.fix(s); np.fix(n); np.isclose(s, s); np.isclose(n, n); np.heaviside(s, 1); np.select([y], [s]); np.piecewise(s, [y], [1]); np.tril(q)[0, 0]; f.max(axis=(0, 1)); f.max(axis=None, keepdims=True); f.sum((0, 1)); np.count_nonzero(b); np.count_nonzero(s); np.argmax(v); np.argmax(f, 0)[0]; np.any(b); np.all(b); np.logical_and(s, n); np.logical_not(s); v > 0; s > 0; n > 0; (s, n, v[0]); [s, n]; {'a': s, 'b': n}; s; n; v; f; b; m; l; p; z; y; u; h; t; e; (v, v); [v, [v, (v,)]]; None; 2; 2.5; True; 'x'; (); []; {}; v.T; f.T; f[1:]; f[::-1]; f[:, 0]; f.reshape(-1); v[::2]
v == None; v != None; None == v; v is None; v == 'x'; v != 'x'; s == None; n == None; i == None; b == None; v == 'abc'; v == []; v == [1, 2]; v == (1, 2, 3, 4); v == f; v == c3; v < None; v + None; v < 'x'; v == object; v == (); v == {}; v == {1}; v in [v]; 1 in i; None in [1, v.shape]; v == ...; v == NotImplemented; v == int; v == slice(1); v == range(4); v + range(4); v + (1, 2, 3, 4); v == b'x'; v == 2**70; i == 2**70; i < 2**70; i + 2**70; u == 2**70; f == 2**70; v + 2**70; i == 1e30; i < np.inf; i == np.nan; v == 1j; v == True; b == None; v == np.datetime64('2020-01-01'); v == np.str_('x'); v == np.array(['x']); v == np.array([None, 1, 2, 3]); v + np.array([1, 2, 3, 4], object); v * 'x'; 'x' * m; [1] * m; [0] * z; (1, 2)[m - 1]; range(m); list(range(m)); [1, 2, 3][m]; [1, 2, 3][z]; v[m:]; v[:m]; v[z:]; v[1:m]; v[m - 1]; v[:-m]; v[::m]; f[m - 1, 1]; np.zeros((m, m)); v.reshape(m, m); v.reshape(m, -1); v.reshape((m, m)); f.reshape(-1, m); np.ones(m) * 2; np.tile(v, m); np.repeat(v, m); np.roll(v, m); np.split(v, m); np.arange(m); np.arange(m) + 1; np.linspace(0, 1, m); np.eye(m); np.full(m, 2.0); np.broadcast_to(v, (m, 4)); f.sum(m - 2); np.sum(f, axis=m - 1); np.sum(t, axis=m); np.moveaxis(t, m, 0); np.swapaxes(t, m, 0); np.expand_dims(f, m); np.stack([f, f], m); np.concatenate([t, t], m); np.take(v, m); np.diagonal(f, m - 1); np.tril(q, m - 2); np.eye(3, k=m); np.pad(v, m); np.rot90(f, m); np.linalg.matrix_power(q, m); np.vander(v, m); np.diff(v, m); np.round(v, m); np.cumsum(t, m); np.sort(t, m); np.argmax(t, m); np.flip(t, m); np.squeeze(r, m - 1); np.transpose(t, (m, 0, 1)); t.transpose(m, 0, 1); np.unstack(t, axis=m); np.gradient(t, axis=m); np.var(f, ddof=m); np.std(v, ddof=m); [v * j for j in range(m)]; sum(v[j] for j in range(m)); np.array([1, 2, 3])[m]; (lambda: [v for _ in range(m)])(); float(m) * v; int(m) * v; v / m; v * float(2); v * int(3); max(m, 1) * v; min(2, 3) * v; len(v) * v; v * (m > 1); v if m > 1 else -v; v if len(v) else -v; bool(m) * v
"""
UFUNCS = sorted({name for name in np.__all__ if isinstance(getattr(np, name), np.ufunc)})


def programs(every: int = 1) -> Iterator[tuple[str, str]]:
    """(function, text of a program), for the whole table.

    With ``every`` = n only one call in n of a ufunc is made, since all ufuncs share their code. The same holds for combinations
    that another call stands for. The first one taken moves on from call to call. With 19, which shares no factor with most numbers
    of choices, each choice comes up. A call that stands for one program is always there.
    """
    for number, name in enumerate(UFUNCS):
        calls = re.sub(r"\bF\b", f"np.{name}", UFUNC_CALLS.get(getattr(np, name).nin, ""))
        texts = [text for call in calls.split(";") for text in _expanded(call)]
        yield from ((f"np.{name}", text) for text in texts[number % every::every])
    for number, (name, call) in enumerate(_calls()):
        texts = list(_expanded(call))
        yield from ((name, text) for text in texts[number % min(every, len(texts) or 1)::every])


def _calls() -> Iterator[tuple[str, str]]:
    """(function, call), for all that is no table of ufuncs."""
    for line in CALLS.strip().splitlines():
        for call in line.split(";"):
            found = re.search(r"np\.([a-z_A-Z0-9]+(\.[a-z_A-Z0-9]+)*)", call)
            yield found[0] if found else "operator", call
    for call in METHODS.replace(";", " ").split():
        yield f"ndarray.{call.partition('(')[0]}", "@a." + call
    for statement in STATEMENTS.replace("\n", ";").split(";"):
        if statement.strip():
            target = re.search(r"\b[a-z]\b", statement)[0]
            yield "assignment", f"{statement} $ return {target}"
    for call in (SYNTAX + VALUES).replace("\n", ";").split(";"):
        yield "operator", call


def _expanded(call: str) -> Iterator[str]:
    """The programs that a call stands for."""
    holes = list(dict.fromkeys(re.findall(r"@[a-z]\b", call)))
    for values in itertools.product(*(CHOICES[hole].split() for hole in holes)):
        text = call.strip()
        for hole, value in zip(holes, values, strict=True):
            text = text.replace(hole, value)
        if text:
            yield text


@cache
def program(text: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The function of a program's text, as if it stood in a file of its own, and the names of its parameters."""
    lines = [line.strip() for line in text.split("$")] if "return" in text else [f"return {text}"]
    names = tuple(sorted({n.id for n in ast.walk(ast.parse("def f():\n    " + "\n    ".join(lines))) if isinstance(n, ast.Name)} & POOL.keys()))
    source = f"def program({', '.join(names)}):\n    " + "\n    ".join(lines) + "\n"
    space: dict[str, Any] = {"np": np}
    executed(source, space, "program.py")
    return space["program"], names


def outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(), None
        except Exception as error:
            return None, error


def verdict(text: str, target: str = "reference") -> str:
    """What became of a program: ``equal``, ``raises``, ``refused``, or what is wrong."""
    function, names = program(text)
    theirs, ours = (copy.deepcopy([POOL[name] for name in names]) for _ in range(2))
    want, expected = outcome(lambda: function(*theirs))
    got, error = outcome(lambda: ms.jit(function, target=target)(*ours))
    if isinstance(error, ms.MinisitchError):
        return "refused" if re.search(r"program\.py:\d+", str(error)) else f"refused without a line: {error}"
    if error is not None or expected is not None:
        if type(error) is type(expected):
            return "raises"
        return f"gives {error if error is None else repr(error)[:160]}{describe(got) if error is None else ''} where NumPy gives {expected!r:.160}{describe(want) if expected is None else ''}"
    why = differs(got, want) or differs(ours, theirs)
    return f"{why}" if why else "equal"


def describe(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{type(value).__name__} {value.dtype.byteorder.strip('=|')}{value.dtype.name}{list(value.shape)}"
    return type(value).__name__


def differs(got: Any, want: Any) -> str:
    """How two results differ: kind of container, type, dtype, shape, then values; empty where they are equal."""
    if describe(got) != describe(want):
        return f"{describe(got)} for {describe(want)}"
    if isinstance(want, dict):
        return next(filter(None, (differs(got.get(key), want[key]) for key in want)), "" if list(got) == list(want) else "other keys")
    if isinstance(want, list | tuple):
        if len(got) != len(want):
            return f"{len(got)} parts for {len(want)}"
        return next(filter(None, map(differs, got, want)), "")
    if isinstance(want, np.ndarray | np.generic):
        if want.dtype.kind not in "fc":
            same = np.array_equal(got, want)
        else:
            rounding = {2: 4e-3, 4: 3e-6}.get(want.dtype.itemsize, 1e-13)
            same = np.allclose(got, want, rtol=rounding, atol=rounding, equal_nan=True)
        return "" if same else f"{np.ravel(got)[:6]} for {np.ravel(want)[:6]}"
    same = got is want or repr(got) == repr(want) or type(want).__eq__ is object.__eq__ or bool(np.all(got == want))
    return "" if same else f"{got!s:.60} for {want!s:.60}"


if __name__ == "__main__":  # the whole table, which the suite takes a part of: PYTHONPATH=. python tests/numpy_api.py
    for each in dict.fromkeys(text for _, text in programs()):
        if (found := verdict(each)) not in ("equal", "raises", "refused"):
            print(f"{each}: {found}")
