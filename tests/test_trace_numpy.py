"""One-line NumPy programs: the traced graph, evaluated, is what NumPy computes: dtype, shape, values."""

import collections
import types
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.special
from sources import evaluated
from trace_help import check

import minisitch as ms
from minisitch.trace import erf

RNG = np.random.default_rng(7)
NAN, INF = np.nan, np.inf
VALUES = {
    "f": RNG.normal(size=(4, 5)).astype("f4"),
    "g": RNG.normal(size=(4, 5)).astype("f4"),
    "pos": RNG.uniform(0.1, 3, size=(4, 5)).astype("f4"),
    "d": RNG.normal(size=(3, 4)),
    "h": RNG.normal(size=(4, 5)).astype("f2"),
    "i": RNG.integers(-9, 9, (4, 5)),
    "j": RNG.integers(1, 9, (4, 5)),
    "i32": RNG.integers(-9, 9, (4, 5)).astype("i4"),
    "i8": RNG.integers(-100, 100, (4, 5)).astype("i1"),
    "u8": RNG.integers(0, 255, (4, 5)).astype("u1"),
    "u64": RNG.integers(0, 9, (4, 5)).astype("u8"),
    "b": RNG.integers(0, 2, (4, 5)).astype(bool),
    "c": RNG.integers(0, 2, (4, 5)).astype(bool),
    "t": RNG.normal(size=(2, 3, 4)).astype("f4"),
    "q": RNG.normal(size=(2, 1, 3, 4)).astype("f4"),
    "v": RNG.normal(size=5).astype("f4"),
    "w": RNG.normal(size=4).astype("f4"),
    "s": np.array(1.5, "f4"),
    "one": np.ones((1, 1), "f4"),
    "e": np.zeros((0, 3), "f4"),
    "odd": np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.5, 2.5], "f8"),
    "odd2": np.array([1.0, INF, -INF, -0.0, 0.0, NAN, -1.5, 0.5], "f8"),
    "k": np.array([2, 0, -1, 1]),
    "m": RNG.normal(size=(4, 4)).astype("f4"),
}
MATH = """
f + g; f - g; f * g; f / g; f // g; f % g; pos ** g; -f; +f; abs(f); f + 1; 1 - f; 2 * f; 1 / f; f // 0.3; 7 % j
i + j; i - j; i * j; i / j; i // j; i % j; j ** 2; i ** 3; -i; abs(i); i + 1.5; u8 + u8; i8 * i8; u8 - 1; i + u8; i8 + u64
b + c; b * c; b & c; b | c; b ^ c; ~b; b + 1; b * 2.5; b + f; i & j; i | j; i ^ j; ~i; i << 2; i >> 1; u8 >> 3
f < g; f <= g; f == g; f != g; f > 0; i >= 2; b == c; b < c; i < f; u8 == 300; u8 < -1; u8 != -1; i < u64; u64 > i; u64 == i
f ** 2; f ** 3; f ** 4; pos ** 0.5; f ** -1; f ** 1; f ** 0; f ** 2.0; i8 ** 2; b ** 2; 2 ** f; h ** 2; h * h; h + 1; h / 3
np.power(f, 2); np.power(pos, -0.5); np.float_power(i, 2); np.square(i8); np.reciprocal(f); np.reciprocal(j)
np.exp(f); np.exp(i); np.exp(i8); np.exp2(f); np.expm1(f); np.log(pos); np.log1p(pos); np.log2(pos); np.log10(pos)
np.sin(f); np.cos(f); np.tan(f); np.arcsin(f / 9); np.arccos(f / 9); np.arctan(f); np.arctan2(f, g); np.hypot(f, g)
np.sinh(f); np.cosh(f); np.tanh(f); np.arcsinh(f); np.arccosh(pos + 1); np.arctanh(f / 9); np.sqrt(pos); np.cbrt(f)
np.logaddexp(f, g); np.logaddexp(odd, odd2); np.logaddexp2(f, g); np.logaddexp2(odd, odd2); np.heaviside(odd, odd2)
np.floor(f); np.ceil(f); np.trunc(f); np.rint(f); np.floor(i); np.rint(i8); np.round(f); np.round(f, 2); np.around(f, -1); np.round(i8, -1); np.round(i, 2)
np.maximum(f, g); np.minimum(f, 0); np.fmax(odd, odd2); np.fmin(odd, odd2); np.maximum(odd, odd2); np.fmax(i, j)
np.isnan(odd); np.isinf(odd); np.isfinite(odd); np.signbit(odd); np.isnan(i); np.isfinite(i); np.sign(odd); np.sign(i)
np.copysign(f, g); np.nextafter(f, g); np.spacing(f); np.ldexp(f, j); np.frexp(f); np.modf(odd); np.divmod(i, j); divmod(f, g)
np.gcd(i, j); np.lcm(i, j); np.fmod(i, j); np.remainder(f, g); np.floor_divide(i, -j); np.bitwise_count(u8); np.fabs(f)
np.deg2rad(f); np.rad2deg(f); np.radians(f); np.degrees(f); np.positive(f); np.conjugate(f); np.absolute(b); np.invert(u8)
np.logical_and(f, i); np.logical_or(b, f); np.logical_xor(i, j); np.logical_not(odd); np.logical_not(i); np.not_equal(f, i)
np.float64(2) * f; f * np.float32(2); np.float32(2) * h; f * np.sqrt(2 / np.pi); np.int8(3) + i8; f + True; np.uint8(200) + u8
f + v; f * s; f[:, None] + g; v + w[:, None]; q + t; e + 1; one + f; s + 1; s * 2.5; np.add(f, [1, 2, 3, 4, 5]); f + np.arange(5)
np.add(f, g, dtype=np.float64); np.multiply(i, 2, dtype=np.float32); np.add.outer(v, w); np.multiply.outer(w, t)
scipy.special.erf(f); scipy.special.erf(h); erf(f); erf(i); np.isclose(f, g); np.isclose(odd, odd2, equal_nan=True)
np.nan_to_num(odd); np.nan_to_num(odd, nan=3.0, posinf=9.0, neginf=-9.0); np.real(f); np.sinc(f)
np.where(b, f, g); np.where(b, f, 0); np.where(b, 1, f); np.where(f > 0, i, 0.5); np.where(i, f, g); np.where(b, 1.0, 2.0); np.where(v > 0, f, 0)
np.clip(f, -0.5, 0.5); f.clip(0); np.clip(f, None, 0.3); np.clip(i, 0, 3); np.clip(i, 0.5, 3); f.clip(g, pos); np.clip(odd, -1, 1)
np.select([f > 1, f > 0], [f, g], -1.0); np.select([b], [i])
"""
REDUCTIONS = """
np.sum(f); f.sum(); np.add.reduce(f); f.sum(0); f.sum(-1); f.sum((0, 1)); f.sum(axis=1, keepdims=True); t.sum((0, 2)); f.sum(axis=())
np.sum(i8); np.sum(u8); np.sum(b); np.sum(i32, 0); np.sum(h); np.sum(f, dtype=np.float64); np.sum(f, initial=3.0); np.sum(e); np.sum(e, 1)
np.sum(f, where=b); np.sum(f, axis=0, where=b, keepdims=True); np.prod(f, 1); np.prod(i8, 0); np.prod(b); np.multiply.reduce(f, axis=1)
np.max(f); f.max(1); np.amax(i, axis=0); np.max(b, 0); np.min(f, (0, 1)); np.amin(odd); np.maximum.reduce(f, axis=None); np.min(u8, -1)
np.max(f, initial=0.5); np.max(f, where=b, initial=-1.0); np.minimum.reduce(t, axis=(0, 2), keepdims=True); np.max(e, axis=1)
np.mean(f); f.mean(0); f.mean(1, keepdims=True); np.mean(i); np.mean(b); np.mean(h, 0); np.mean(i8, (0, 1)); np.mean(f, where=b); np.mean(s)
np.var(f); f.var(0); np.var(i, 1); np.var(h); np.var(f, ddof=1); np.std(f, axis=1, keepdims=True); np.std(i); np.var(f, correction=1)
np.var(f, axis=0, mean=f.mean(0, keepdims=True)); np.mean(f, dtype=np.float64); np.var(f, where=b); np.std(t, (0, 2))
np.any(b); b.any(0); np.all(f); np.all(b, axis=1, keepdims=True); np.any(i, (0, 1)); np.logical_or.reduce(b); np.logical_and.reduce(f, 1)
np.argmax(f); f.argmax(1); np.argmin(f, 0); np.argmax(odd); np.argmin(odd); np.argmax(i, axis=1, keepdims=True); np.argmax(b, 1); np.argmin(u8)
np.argmax(f, keepdims=True); np.argmax(np.zeros((3, 4)) * d, 0); np.cumsum(f); np.cumsum(i8, 0); f.cumsum(1); np.cumprod(f, -1)
np.cumsum(b); np.add.accumulate(f); np.multiply.accumulate(f, 1); np.ptp(f); np.ptp(i, 0); np.count_nonzero(f > 0); np.count_nonzero(b, axis=1)
np.sort(f); np.sort(i, 0); np.sort(f, axis=None); np.argsort(f); np.argsort(v)
np.nansum(odd); np.nanprod(odd[3:]); np.nansum(i); np.nanvar(i, 1); np.nancumsum(f)
np.average(f); np.average(f, 1); np.average(i, 0)
np.linalg.norm(f); np.linalg.norm(f, axis=1); np.linalg.norm(v, 1); np.linalg.norm(v, np.inf); np.linalg.norm(f, axis=-1, keepdims=True)
np.linalg.norm(f, 1); np.linalg.norm(f, np.inf); np.linalg.norm(f, "fro"); np.linalg.norm(v, 3); np.linalg.norm(i); np.linalg.norm(v, 0)
np.diff(f); np.diff(f, axis=0); np.diff(i, 2); np.diff(b); np.diff(v, prepend=0); np.diff(f, append=g); np.trace(m); np.trace(m, 1)
np.gradient(v); np.gradient(f, axis=0); np.trapezoid(f); np.corrcoef(f); np.cov(f); np.cumulative_sum(v)
np.vander(v, 3); np.polyval([1, 2, 3], f); np.unwrap(v)
"""
SHAPES = """
f.reshape(20); f.reshape(2, -1); f.reshape((5, 4)); np.reshape(f, (2, 2, 5)); f.ravel(); f.flatten(); f.reshape(5, 4, order="F"); f.ravel("F")
f.T; t.transpose(2, 0, 1); np.transpose(t); t.swapaxes(0, 2); np.moveaxis(t, 0, -1); np.moveaxis(t, [0, 1], [2, 0]); np.rollaxis(t, 2); np.rollaxis(t, 0, 3)
np.permute_dims(t, (1, 0, 2)); np.matrix_transpose(t); t.mT; np.expand_dims(f, 1); np.expand_dims(f, (0, -1)); np.squeeze(q); q.squeeze(1)
np.broadcast_to(v, (4, 5)); np.broadcast_to(s, 3); np.broadcast_arrays(v, f)[0]; np.atleast_1d(s); np.atleast_2d(v); np.atleast_3d(f); np.atleast_3d(v)
np.concatenate([f, g]); np.concatenate((f, i), 1); np.concat([f, g], axis=-1); np.concatenate([f, g], None); np.stack([f, g]); np.stack((v, v), -1)
np.vstack([f, v]); np.hstack([f, g]); np.hstack([v, w]); np.dstack([f, g]); np.column_stack([v, v]); np.append(v, 3); np.append(f, g, 0)
np.split(f, 2)[1]; np.split(f, 5, axis=1)[2]; np.array_split(v, 3)[1]; np.split(v, [1, 3])[1]; np.hsplit(f, 5)[0]; np.vsplit(f, 2)[1]; np.unstack(f)[1]
np.tile(v, 2); np.tile(f, (2, 1)); np.tile(v, (2, 3)); np.tile(s, 3); np.repeat(f, 2); np.repeat(f, 3, axis=1); f.repeat(2, 0); np.repeat(v, [0, 1, 2, 3, 1])
np.pad(f, 1); np.pad(f, ((1, 2), (0, 3)), constant_values=7); np.pad(f, 2, mode="edge"); np.pad(f, 2, mode="reflect"); np.pad(f, 3, mode="wrap")
np.pad(f, 2, mode="symmetric"); np.pad(v, (7, 9), mode="reflect"); np.pad(v, (7, 9), "symmetric"); np.pad(v, 1, constant_values=(4, 6)); np.pad(i, (0, 1))
np.flip(f); np.flip(f, 1); np.flipud(f); np.fliplr(f); np.roll(f, 1); np.roll(f, -2, axis=1); np.roll(f, (1, 2), axis=(0, 1)); np.roll(v, 7); np.rot90(f)
np.tril(m); np.triu(m, 1); np.tril(t, -1); np.triu(v); np.diagonal(m); np.diagonal(f, 1); np.diagonal(t, 0, 1, 2); np.diag(v); np.diag(m, -1); np.diag(w, 2)
np.take(f, [0, 2]); np.take(f, [0, -1], axis=1); f.take(k, 0); np.take(f, k, 1, mode="wrap"); np.take(v, 3); np.take(f, [9, -9], mode="clip")
np.take_along_axis(f, np.argsort(f, 1), 1); np.take_along_axis(f, i % 4, 0); np.take_along_axis(f, f.argmax(1, keepdims=True), 1)
np.full_like(f, 3); np.zeros_like(f); np.ones_like(f, dtype=int); np.full_like(f, s); np.empty_like(f) * 0; np.zeros_like(f, shape=(2, 2)); np.copy(f)
np.meshgrid(v, w)[0]; np.meshgrid(v, w, indexing="ij")[1]; np.meshgrid(v, w, sparse=True)[1]; np.cross(t[:, :, :3], t[:, :, 1:]); np.kron(f, one)
np.astype(f, "f8"); np.kron(v, w[:2]); np.kron(m, t[0]); np.resize(v, (2, 4))
np.lib.stride_tricks.sliding_window_view(v, 3); np.lib.stride_tricks.sliding_window_view(f, (2, 3)); np.lib.stride_tricks.sliding_window_view(f, 2, 1)
f.astype(np.float64); f.astype(int); i.astype(bool); f.astype("f2"); b.astype(np.float32); odd.astype(bool); f.copy(); f.real; f.conj(); f.imag
len(f) + f; f.shape[0] * f; f.ndim * v; np.shape(f)[1] * v; np.size(f) * v; np.ndim(f) * v; f.itemsize * v; np.result_type(f, i) == np.float64
"""
PRODUCTS = """
f @ f.T; f @ v; w @ f; v @ v; t @ m; t @ w; m @ t.mT; q @ t.mT; i @ j.T; i8 @ i8.T; b @ c.T; i @ f.T; np.matmul(t, t.mT); m.T @ m
np.dot(f, f.T); v.dot(v); np.dot(s, f); np.dot(t, m); np.dot(t, w); np.dot(t, t.mT); np.inner(f, f); np.inner(v, v); np.outer(v, w); np.vdot(v, v)
np.tensordot(t, m, 1); np.tensordot(t, t, ([0, 1], [0, 1])); np.tensordot(v, w, 0); np.vecdot(f, g); np.matvec(m, w); np.vecmat(w, f)
np.einsum("ij,kj->ik", f, g); np.einsum("ij,ij->i", f, g); np.einsum("ij,ij", f, g); np.einsum("ij->ji", f); np.einsum("ij->", f); np.einsum("ij->j", i8)
np.einsum("bij,bkj->bik", t, t); np.einsum("i,j->ij", v, w); np.einsum("ii->i", m); np.einsum("ii", m); np.einsum("ij,j", f, v); np.einsum("bhid,bhjd->bhij", q, q)
np.einsum("...ij,...kj->...ik", t, t); np.einsum("i...->...", f); np.einsum("ij,jk,kl->il", m, m, f); np.einsum("ab,ab,ab->a", f, g, pos); np.einsum("ij,ik->jk", f, b)
np.einsum(f, [0, 1], v, [1], [0]); np.einsum("ijk,jl->kl", t, d); np.einsum("ijk,ilk->", t, t); np.einsum("ij,jk", m, m); np.einsum("i,i->i", v, v)
np.linalg.multi_dot([m, m, f]); np.linalg.multi_dot([f.T, m, w]); np.float32(2) * f @ f.T; np.ones((3, 4), "f4") @ f; np.ones(4) @ f; np.linalg.outer(v, w)
np.linalg.matrix_power(m, 3); np.linalg.trace(m); np.linalg.vector_norm(f, axis=0)
"""
INDEXING = """
f[1]; f[-1]; f[1:3]; f[::-1]; f[:, ::-2]; f[..., 0]; f[None]; f[1, 2]; f[1:3, 2:4]; f[:, None, 1]; t[..., 1:]; t[0, ..., -1]; f[3:1]; f[-10:10]; s[...]; s[()]
f[[0, 2]]; f[[0, 2], [1, 3]]; f[:, [0, -1]]; f[k]; f[k, k]; f[k[:, None], k]; t[:, [0, 1], 2]; t[[0, 1], :, [1, 2]]; t[0, :, [1, 2]]; t[[[0, 1], [1, 0]]]
t[None, [0, 1], ..., [1, 2]]; t[:, [0, 2], None, 1:]; t[[0, 1], None, [1, 2]]; f[np.array([], int)]; f[i % 4]; v[f.argmax(1)]; f[np.arange(4), f.argmax(1)]
f[u8 % 4]; f[f.argmax() % 4]; t[:, k[0]]; t[k[3], 1:, k[1]]; f[np.array([True, False, True, True])]; f[[True, False, True, False], 1:]; v[np.argsort(v)]
"""
ROWS = [row.strip() for table in (MATH, REDUCTIONS, SHAPES, PRODUCTS, INDEXING) for line in table.strip().splitlines()
        for row in line.split("; ")]


@pytest.mark.parametrize("row", ROWS)
def test_one_line(row: str) -> None:
    used = [name for name in VALUES if name in compile(row, row, "eval").co_names]
    namespace = {"np": np, "NAN": NAN, "scipy": scipy, "erf": erf}
    function = evaluated(f"lambda {', '.join(used)}: {row}", namespace)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        check(function, *(VALUES[name] for name in used))


# ---------------------------------------------------------------- what a reader's eye found
def square():
    return np.arange(9.0).reshape(3, 3)


def fills_a_diagonal_backwards(x):
    np.fill_diagonal(np.fliplr(x), 7)
    return x


def fills_an_inner_diagonal(x):
    np.fill_diagonal(x[1:, 1:], 0)
    x.T.flat[1] = 9
    np.put(x.T, [2, 5], -1.0)
    return x


def changes_a_contiguous_copy(x):
    y = np.ascontiguousarray(x.T)
    z = np.asfortranarray(x)
    w = np.ascontiguousarray(x)
    y += 1
    z += 2
    w += 4
    return x, y, z, np.ascontiguousarray(x.sum())


def views_a_scalar(x):
    m = x.max()
    v, w = np.atleast_1d(m), m[None]
    v += 1
    w += 2
    return m, v, w


def adds_where(a, o, m):
    np.add(a, a, out=o, where=m)
    return o


def unsigned_distance(u):
    return np.abs(-u)


def ignores_a_label(t, i):
    return t[np.where(i < 0, 0, i)], t[i % 4]


def looks_up_bytes(t, i):
    return t[i.astype(np.uint8)]


BYTES = np.array([0, 2], np.uint8)


def picks_by_tuples(x):
    return x[:, (0, 2)], np.take(x, (0, 2), 1), x[BYTES]


@pytest.mark.parametrize(("function", "inputs"), [
    (fills_a_diagonal_backwards, (square(),)),
    (fills_an_inner_diagonal, (square(),)),
    (changes_a_contiguous_copy, (square(),)),
    (views_a_scalar, (square(),)),
    (adds_where, (np.ones(2, np.int8), np.array([1000, 1000]), np.array([True, False]))),
    (adds_where, (np.ones(2, np.float32), np.array([0.1, 0.1]), np.array([True, False]))),
    (unsigned_distance, (np.array([3], np.uint8),)),
    (ignores_a_label, (np.arange(5.0), np.array([-100, 2]))),
    (looks_up_bytes, (np.arange(256.0), np.array([-1, 300]))),
    (picks_by_tuples, (square(),)),
], ids=lambda case: getattr(case, "__name__", ""))
def test_ordinary_programs_mean_what_numpy_means(function, inputs):
    theirs, ours = [x.copy() for x in inputs], [x.copy() for x in inputs]
    wanted, got = function(*theirs), ms.jit(function, target="reference")(*ours)
    for w, g in zip(wanted if isinstance(wanted, tuple) else (wanted,), got if isinstance(got, tuple) else (got,), strict=True):
        np.testing.assert_array_equal(g, w)
        assert np.shape(g) == np.shape(w)
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, its)


def test_out_where_keeps_the_rule_of_casting():
    with pytest.raises(TypeError, match="Cannot cast"):
        ms.jit(adds_where, target="reference")(np.ones(2), np.ones(2, np.int8), np.array([True, False]))


def test_an_index_out_of_bounds_is_still_found():
    for index in (np.array([5, 0]), np.array([-6, 0])):
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 5"):
            ms.jit(lambda t, i: t[i], target="reference")(np.arange(5.0), index)


def test_a_real_array_that_changes_during_the_trace_is_read_as_it_was():
    def f(x):
        k = np.linspace(0.0, 1.0, 3)
        y = x + k
        k *= 10
        return y, x + k

    for got, want in zip(ms.jit(f, target="reference")(np.zeros(3)), f(np.zeros(3)), strict=True):
        assert np.array_equal(got, want)


def test_an_assignment_into_an_argument_is_refused():
    def step(p, g):
        p["w"] = p["w"] - g
        return g.sum()

    def in_place(p, g):
        p["w"] -= g
        return g.sum()

    with pytest.raises(ms.TraceError, match="puts something else into a dict or list of its arguments"):
        ms.jit(step, target="reference")({"w": np.ones(3)}, np.ones(3))
    p = {"w": np.ones(3)}
    ms.jit(in_place, target="reference")(p, np.ones(3))
    assert (p["w"] == 0).all()


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_arrays_whose_operators_mean_something_else_are_refused():
    """At the first call, and where a program for the same shape is there already."""
    total = ms.jit(lambda x: x.sum(), target="cpu")
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
    for _ in range(2):
        for odd in (masked, np.matrix([1.0, 2.0, 3.0])):
            with pytest.raises(ms.TraceError, match=r"a (MaskedArray|matrix) among the arrays"):
                total(odd)
        assert total(np.ones(3)) == 3 and total(np.ones((1, 3))) == 3


def in_place(change):
    """``change`` is handed an array, and what else it sees of that array's memory counts."""
    def f(x, *others):
        y = change(x, *others)
        y += 1
        return x * 1, y * 1
    return f


@pytest.mark.parametrize("change", [
    lambda x: np.tile(x, 1), lambda x: np.tile(x, (1, 1)), lambda x: np.tile(x, (2, 1)), lambda x: np.asarray(x, order="F"),
    lambda x: np.asarray(x, order="C"), lambda x: np.require(x, requirements="F"), lambda x: np.require(x, requirements=["C"]),
    lambda x: np.asarray(x), lambda x: x.copy(order="F"), lambda x: x.copy(order="K"), lambda x: np.array(x, order="F", copy=None),
    lambda x: np.array(x, order="C", copy=None),
], ids=range(12))
def test_what_is_a_copy_in_numpy_is_one_here(change):
    for shape in ((2, 3), (1, 3), (4,)):
        check(in_place(change), np.arange(np.prod(shape), dtype=np.float32).reshape(shape), exact=True)


@pytest.mark.parametrize(("letters", "shape"), [
    ("ii->i", (3, 3)), ("ij->ji", (2, 3)), ("ij->ij", (2, 3)), ("iji->ji", (2, 3, 2)), ("iijj->ij", (2, 2, 3, 3)), ("iiji->ji", (2, 2, 3, 2)),
    ("i...i->...i", (2, 3, 2)), ("ii->", (3, 3)), ("ij->j", (2, 3))])
def test_an_einsum_that_computes_nothing_is_a_view(letters, shape):
    """``np.einsum("ii->i", a)[:] = 1`` is how NumPy's documentation writes to a diagonal."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    check(in_place(lambda x: np.einsum(letters, x)), x, exact=True)
    check(in_place(lambda x: np.einsum(letters, x, dtype=np.float64)), x, exact=True)
    check(lambda x: (np.einsum(letters, x).reshape(-1), np.einsum(letters, x).T + 1), x, exact=True)


@pytest.mark.parametrize("change", [
    lambda x: np.asarray(x.T, order="C"), lambda x: np.require(x.T, requirements="C"), lambda x: np.asarray(x.T),
    lambda x: np.ravel(np.einsum("ii->i", x)), lambda x: np.einsum("ii->i", x)[::2], lambda x: np.ravel(x.T[0]), lambda x: x[0].ravel(),
    lambda x: np.ascontiguousarray(x[np.array([0, 2]), 0]), lambda x: x.T.astype(np.float32, order="C"), lambda x: np.array(x.T, order="F"),
], ids=range(10))
def test_what_is_a_copy_of_a_transposed_array_is_one_here(change):
    check(in_place(change), np.arange(9, dtype=np.float32).reshape(3, 3), exact=True)


@pytest.mark.parametrize("make", [
    lambda x: np.zeros(x.shape, order="F"), lambda x: np.full(x.shape, 1.0, order="F"),
    lambda x: np.ones(x.shape, order="F"), lambda x: np.array(x, order="F"), lambda x: x.astype(x.dtype, order="F"),
], ids=range(5))
def test_a_layout_that_is_not_known_is_read_and_refused_to_be_written_flat(make):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def flat(x, how):
        y = make(x)
        z = how(y)
        z += 1
        return y

    check(lambda x: (make(x) + 1, make(x).reshape(-1), make(x)[0].ravel()), x)
    for how in (lambda y: y.reshape(-1), lambda y: y[0].ravel()):
        with pytest.raises(ms.TraceError, match="memory layout"):
            ms.jit(lambda x, how=how: flat(x, how), target="reference")(x)


@pytest.mark.parametrize("see", [
    np.diagonal, np.diag, lambda x: np.diagonal(x, 1), lambda x: np.diagonal(x, -2), lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 0),
    lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3)), lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 1).T[0],
    lambda x: np.lib.stride_tricks.sliding_window_view(x.T, (1, 2, 2), (0, 1, 0)),
], ids=range(8))
def test_what_is_a_read_only_view_sees_later_changes_and_takes_none(see):
    x = np.arange(16, dtype=np.float32).reshape(4, 4)

    def later(x):
        y = see(x)
        first = y * 2
        x[1:3] += 10
        return y, first, y.reshape(-1), np.ravel(y)

    def written(x):
        see(x)[...] = 1

    check(later, x, exact=True)
    with pytest.raises(ValueError, match="read-only"):
        written(x)
    with pytest.raises(ValueError, match="read-only"):
        ms.jit(written, target="reference")(x)


@dataclass
class State:
    step: int
    weight: object


def test_a_result_that_hides_traced_arrays_in_an_object_is_refused():
    for hides in (lambda x: State(1, x + 1), lambda x: (x, [State(1, x * 2)]), lambda x: types.SimpleNamespace(y=x)):
        with pytest.raises(ms.TraceError, match=r"a (State|SimpleNamespace) that it has made.*tuple"):
            ms.jit(hides, target="reference")(np.ones(3))
    with pytest.raises(ms.TraceError, match="a State that it has made.*every call would return the same object"):
        ms.jit(lambda x: (State(3, None), x), target="reference")(np.ones(3))


def test_an_einsum_casts_into_out_only_where_it_is_told_to():
    x = np.ones((2, 3))
    with pytest.raises(TypeError, match="safe"):
        ms.jit(lambda x: np.einsum("ij->ji", x, out=np.zeros((3, 2), np.float32)), target="reference")(x)
    check(lambda x: np.einsum("ij->ji", x, out=np.zeros((3, 2), np.float32), casting="same_kind"), x)


def test_an_array_of_one_position_copies_and_a_scalar_looks():
    x = np.zeros((3, 2))
    check(in_place(lambda x, i: x[i]), x, np.array(1), exact=True)
    check(in_place(lambda x, i: x[i, :]), x, np.array(1), exact=True)
    check(in_place(lambda x: x[np.array(2)]), x, exact=True)
    check(in_place(lambda x: x[np.int64(2)]), x, exact=True)
    check(in_place(lambda x: x[np.argmax(x[:, 0])]), x, exact=True)


def test_a_copy_in_fortrans_order_is_not_written_through_a_reshape():
    def f(x):
        flat = x.copy(order="F").reshape(-1)
        flat += 1
        return flat

    with pytest.raises(ms.TraceError, match="a reshape of a transposed result is written to"):
        ms.jit(f, target="reference")(np.zeros((2, 3)))


@pytest.mark.parametrize("how", [lambda y: y.ravel(), lambda y: y.reshape(-1), lambda y: y.T.reshape(-1), lambda y: y.T.ravel(), lambda y: y.T[0]])
def test_a_copy_that_asfortranarray_makes_is_in_fortrans_order(how):
    def f(x):
        y = np.asfortranarray(x)
        z = how(y)
        z += 1
        return x, y, z

    check(f, np.arange(6.0).reshape(2, 3), exact=True)


@pytest.mark.parametrize("values", [[1.0, 2.0], [7.0], 3.0, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], []])
def test_put_repeats_its_values(values):
    def f(x):
        np.put(x, [0, 3, 1, 2], values)
        x.put([[4]], 9)
        return x * 1

    check(f, np.zeros(5), exact=True)
    with pytest.raises(ms.TraceError, match="np.put with mode='clip': positions are checked"):
        ms.jit(lambda x: np.put(x, 9, 1.0, mode="clip"), target="reference")(np.zeros(3))


def test_an_extreme_of_nothing_is_where_it_starts():
    for f in (np.max, np.min):
        check(lambda x, f=f: f(x, axis=0, initial=0.5), np.zeros((0, 3), np.float32))
        check(lambda x, f=f: f(x, axis=(0, 1), initial=2, keepdims=True), np.zeros((4, 0), np.int16))
        check(lambda x, f=f: f(x, initial=1.0), np.zeros(0))


def test_bounds_that_an_integer_cannot_pass_are_none():
    for dtype in (np.uint8, np.int8, np.int64):
        x = np.arange(-4, 4).astype(dtype)
        for low, high in ((-1, 300), (None, 1 << 70), (-(1 << 70), 2), (0, 100), (-1000, 1000)):
            check(lambda x, low=low, high=high: np.clip(x, low, high), x)


def test_many_halves_are_counted_exactly():
    x = np.random.default_rng(0).random(70_000).astype(np.float16)
    for f in (np.var, np.std, np.mean, lambda x: np.mean(x[:3001] / 64, dtype=np.float16)):
        check(f, x)


def test_unsigned_numbers_that_fall():
    check(lambda x: x + np.arange(3, 0, -1, dtype=np.uint8), np.zeros(3))
    check(lambda x: x + np.arange(200, 0, -7, dtype=np.uint16)[:3], np.zeros(3, np.int32))


def test_a_scalar_and_an_array_of_one_in_a_named_tuple_are_two_programs():
    Pair = collections.namedtuple("Pair", "a")

    def f(p):
        b = p.a
        b += 1
        return p.a * 1

    g = ms.jit(f, target="reference")
    assert g(Pair(np.array(1, np.float32))) == 2 and g(Pair(np.float32(1))) == 1


@pytest.mark.parametrize("odd", [1j, "a", None, [2 + 1j]])
def test_erf_takes_real_numbers(odd):
    with pytest.raises(TypeError, match="Cannot cast"):
        erf(odd)
