"""Gradients against JAX, in float64, where JAX is installed: the same functions, with ``np`` exchanged for ``jax.numpy``."""

import numpy as np
import pytest

import minisitch as ms

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

R = np.random.default_rng(1)
X, Y, W, B = R.normal(size=(4, 6)), R.normal(size=(4, 6)), R.normal(size=(6, 6)), R.normal(size=6)
TIES = np.array([[1.0, 1.0, 0.0, 2.0, 2.0, -1.0]] * 4)
AT = np.array([3, 0, 3, 1])


def norm(np, x):
    d = x - np.mean(x, axis=-1, keepdims=True)
    return d / np.sqrt(np.mean(d * d, axis=-1, keepdims=True) + 1e-5)


def softmax(np, x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def gelu(np, x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def lstm(np, x, w):
    h = c = x[0] * 0
    for each in x:
        z = each + h @ w
        c = c / (1 + np.exp(-z)) + np.tanh(z)
        h = np.tanh(c)
    return h


PROGRAMS = {
    "layer norm": (norm, [X]), "softmax": (softmax, [X]), "gelu": (gelu, [X]), "lstm": (lstm, [X, W]),
    "attention": (lambda np, x, w: softmax(np, x @ w @ x.T) @ x, [X, W]),
    "batch norm": (lambda np, x: (x - np.mean(x, 0)) / np.std(x, axis=0), [X]),
    "cross-entropy": (lambda np, x: -np.take_along_axis(np.log(softmax(np, x)), AT[:, None], axis=1), [X]),
    "ties": (lambda np, x: np.max(x, axis=1) + np.min(x) + np.sum(np.maximum(x, 1.0) + np.minimum(x, 2.0), axis=1), [TIES]),
    "sign, clip": (lambda np, x: np.sign(x) * x + np.clip(x, 0, 1), [TIES]),
    "abs": (lambda np, x: np.abs(x), [X]),  # at 0 the derivative is 0, where JAX has 1
    "prod, cumprod": (lambda np, x: np.prod(x, axis=1, keepdims=True) + np.cumprod(x, axis=1), [np.where(TIES == 2, 0, TIES)]),
    "cumsum, sort": (lambda np, x: np.cumsum(x, axis=0) * np.sort(x, axis=1), [X]),
    "powers": (lambda np, x, y: np.abs(x) ** y + np.abs(x) ** 3 + np.power(2.0, y), [X, Y]),
    "binary": (lambda np, x, y: np.arctan2(x, y) + np.hypot(x, y) + x / y + np.logaddexp(x, y) + np.copysign(x, y), [X, Y]),
    "unary": (lambda np, x: np.sin(x) * np.cos(x) + np.tan(x / 4) + np.arctan(x) + np.expm1(x) + np.log1p(x * x) + np.sinh(x), [X]),
    "moves": (lambda np, x: np.roll(np.pad(x, 1), 1, axis=0)[:, ::2] + np.concatenate([x, x[::-1, :]], 0)[2:, :4], [X[:, :6]]),
    "einsum": (lambda np, x, w: np.einsum("ij,jk,lk->il", x, w, x), [X, W]),
    "gather": (lambda np, x: x[AT] * x[:, AT[0]][:, None], [X]),
    "statistics": (lambda np, x: np.var(x, axis=1) + np.linalg.norm(x, axis=1) + np.log(np.sum(np.exp(x), axis=1)), [X]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_jax(name):
    fn, args = PROGRAMS[name]

    def loss(np, *args):
        y = fn(np, *args)
        return np.sum(y * np.sin(np.arange(y.size).reshape(y.shape)))
    numbers = tuple(range(len(args)))
    want = jax.grad(lambda *a: loss(jnp, *a), argnums=numbers)(*args)
    for strategy in ("xla", "astitch"):
        found = ms.jit(ms.grad(lambda *a: loss(np, *a), argnums=numbers).__wrapped__, strategy=strategy, target="python")(*args)
        for g, each in zip(found, want, strict=True):
            np.testing.assert_allclose(g, each, rtol=1e-10, atol=1e-10)


def test_custom_and_stopped_derivatives_are_those_of_jax():
    def of(module, np):
        @module.custom_vjp
        def f(x, y):
            return np.sin(x) * y
        f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda kept, g: (g * kept[1] * 2, g * np.sin(kept[0])))
        stop = module.lax.stop_gradient if module is jax else module.stop_gradient
        return module.grad(lambda x, y: np.sum(f(x, y) * stop(x * y)), argnums=(0, 1))
    for g, each in zip(of(ms, np)(X, Y), of(jax, jnp)(X, Y), strict=True):
        np.testing.assert_allclose(g, each, rtol=1e-12)
