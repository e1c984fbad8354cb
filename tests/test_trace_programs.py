"""Real programs, written as NumPy users write them, trace unchanged and compute what NumPy computes."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from programs import softmax
from scipy.special import erf
from trace_help import check

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def numbers_do_not_depend_on_the_tests_before():
    global RNG
    RNG = np.random.default_rng(3)


def normal(*shape: int, dtype: str = "f4", scale: float = 1.0) -> np.ndarray:
    return (scale * RNG.normal(size=shape)).astype(dtype)


# ---------------------------------------------------------------- a transformer
def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def layer_norm(x, g, b, eps: float = 1e-5):
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.var(x, axis=-1, keepdims=True)
    return g * (x - mean) / np.sqrt(variance + eps) + b


def linear(x, w, b):
    return x @ w + b


def attention(q, k, v, mask):
    return softmax(q @ k.T / np.sqrt(q.shape[-1]) + mask) @ v


def mha(x, c_attn, c_proj, n_head):
    x = linear(x, **c_attn)
    qkv = np.split(x, 3, axis=-1)
    qkv_heads = list(map(lambda x: np.split(x, n_head, axis=-1), qkv))
    causal_mask = (1 - np.tri(x.shape[0], dtype=x.dtype)) * -1e10
    out_heads = [attention(q, k, v, causal_mask) for q, k, v in zip(*qkv_heads, strict=True)]
    return linear(np.hstack(out_heads), **c_proj)


def transformer_block(x, mlp, attn, ln_1, ln_2, n_head):
    x = x + mha(layer_norm(x, **ln_1), **attn, n_head=n_head)
    hidden = gelu(linear(layer_norm(x, **ln_2), **mlp["c_fc"]))
    return x + linear(hidden, **mlp["c_proj"])


def gpt(inputs, wte, wpe, blocks, ln_f, n_head):
    x = wte[inputs] + wpe[range(len(inputs))]
    for block in blocks:
        x = transformer_block(x, **block, n_head=n_head)
    return layer_norm(x, **ln_f) @ wte.T


def dense(n, m):
    return {"w": normal(n, m, scale=0.2), "b": normal(m, scale=0.2)}


def norm_params(n):
    return {"g": normal(n), "b": normal(n)}


def test_transformer() -> None:
    n = 8
    blocks = [{"mlp": {"c_fc": dense(n, 4 * n), "c_proj": dense(4 * n, n)}, "attn": {"c_attn": dense(n, 3 * n), "c_proj": dense(n, n)},
               "ln_1": norm_params(n), "ln_2": norm_params(n)} for _ in range(2)]
    program = check(gpt, np.array([3, 1, 4, 1]), normal(10, n), normal(6, n), blocks, norm_params(n), n_head=2)
    assert "trace_programs.py" in program.graph.nodes[-1].where
    assert {node.via for node in program.graph.nodes} >= {"softmax", "mean", "var", "layer_norm", "gelu", "linear"}


# ---------------------------------------------------------------- training
class Moments(NamedTuple):
    first: dict
    second: dict


def adam(params, grads, moments, step, rate=1e-3, beta1=0.9, beta2=0.999):
    new_params, first, second = {}, {}, {}
    for name, p in params.items():
        g = grads[name]
        first[name] = beta1 * moments.first[name] + (1 - beta1) * g
        second[name] = beta2 * moments.second[name] + (1 - beta2) * g ** 2
        corrected = first[name] / (1 - beta1 ** step)
        new_params[name] = p - rate * corrected / (np.sqrt(second[name] / (1 - beta2 ** step)) + 1e-8)
    return new_params, Moments(first, second)


def test_adam_on_a_dict_of_parameters() -> None:
    params = {"w": normal(4, 3), "b": normal(3)}
    moments = Moments({k: np.zeros_like(v) for k, v in params.items()}, {k: np.abs(v) for k, v in params.items()})
    check(adam, params, {k: normal(*v.shape) for k, v in params.items()}, moments, 3)


def batch_norm(x, gamma, beta, running_mean, running_var, momentum=0.9, eps=1e-5):
    mean, var = x.mean(axis=0), x.var(axis=0)
    running_mean *= momentum
    running_mean += (1 - momentum) * mean
    running_var[:] = momentum * running_var + (1 - momentum) * var
    return gamma * (x - mean) / np.sqrt(var + eps) + beta


def test_batch_norm_changes_its_running_statistics() -> None:
    program = check(batch_norm, normal(16, 5), normal(5), normal(5), normal(5), np.abs(normal(5)))
    assert program.mutated == ((3, 1), (4, 2))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(xs, h, c, w, u, b):
    n = h.shape[-1]
    outputs = np.zeros((xs.shape[0], n), dtype=xs.dtype)
    for t in range(xs.shape[0]):
        gates = xs[t] @ w + h @ u + b
        i, f, g, o = gates[:n], gates[n:2 * n], gates[2 * n:3 * n], gates[3 * n:]
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs[t] = h
    return outputs, (h, c)


def test_lstm_fills_a_buffer() -> None:
    check(lstm, normal(5, 3), normal(4), normal(4), normal(3, 16), normal(4, 16), normal(16))


def mlp_backward(x, labels, w1, w2):
    hidden = np.maximum(x @ w1, 0)
    probabilities = softmax(hidden @ w2)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).mean()
    d_logits = probabilities.copy()
    d_logits[rows, labels] -= 1
    d_logits /= len(labels)
    d_w2 = hidden.T @ d_logits
    d_hidden = d_logits @ w2.T
    d_hidden[hidden <= 0] = 0
    return loss, x.T @ d_hidden, d_w2


def test_backward_by_hand() -> None:
    check(mlp_backward, normal(6, 4), np.array([0, 2, 1, 1, 0, 2]), normal(4, 5), normal(5, 3))


# ---------------------------------------------------------------- science
def jacobi(u, f, steps):
    for _ in range(steps):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - f[1:-1, 1:-1])
    return u


def test_jacobi() -> None:
    check(jacobi, normal(7, 6, dtype="f8"), normal(7, 6, dtype="f8"), 3)


def grayscott(steps, Du, Dv, F, k, n):
    U = np.zeros((n + 2, n + 2), dtype=np.float32)
    V = np.zeros((n + 2, n + 2), dtype=np.float32)
    u, v = U[1:-1, 1:-1], V[1:-1, 1:-1]
    r = n // 4
    u[...] = 1.0
    U[n // 2 - r:n // 2 + r, n // 2 - r:n // 2 + r] = 0.50
    V[n // 2 - r:n // 2 + r, n // 2 - r:n // 2 + r] = 0.25
    for _ in range(steps):
        Lu = U[0:-2, 1:-1] + U[1:-1, 0:-2] - 4 * U[1:-1, 1:-1] + U[1:-1, 2:] + U[2:, 1:-1]
        Lv = V[0:-2, 1:-1] + V[1:-1, 0:-2] - 4 * V[1:-1, 1:-1] + V[1:-1, 2:] + V[2:, 1:-1]
        uvv = u * v * v
        u += Du * Lu - uvv + F * (1 - u)
        v += Dv * Lv + uvv - (F + k) * v
    return V


def test_grayscott_keeps_views_of_buffers() -> None:
    parameters = [np.float32(p) for p in (0.16, 0.08, 0.035, 0.065)]
    check(grayscott, 4, *parameters, 8)
    check(grayscott, 2, 0.16, 0.08, 0.035, 0.065, 8)


def n_body(position, velocity, mass, dt, softening=0.1):
    x, y, z = position[:, 0:1], position[:, 1:2], position[:, 2:3]
    dx, dy, dz = x.T - x, y.T - y, z.T - z
    inverse = dx**2 + dy**2 + dz**2 + softening**2
    inverse = inverse ** -1.5
    acceleration = np.hstack(((dx * inverse) @ mass, (dy * inverse) @ mass, (dz * inverse) @ mass))
    velocity += acceleration * dt / 2.0
    position += velocity * dt
    kinetic = 0.5 * np.sum(np.sum(mass * velocity**2))
    distance = np.sqrt(dx**2 + dy**2 + dz**2)
    inverted = np.where(distance > 0, 1.0 / np.where(distance > 0, distance, 1), 0)
    potential = np.sum(np.sum(np.triu(-(mass * mass.T) * inverted, 1)))
    return kinetic + potential


def test_n_body() -> None:
    check(n_body, normal(5, 3, dtype="f8"), normal(5, 3, dtype="f8"), np.abs(normal(5, 1, dtype="f8")), 0.01)


def black_scholes(price, strike, time, rate, volatility):
    def cdf(x):
        return 0.5 * (1 + erf(x / math.sqrt(2)))
    d1 = (np.log(price / strike) + (rate + volatility**2 / 2) * time) / (volatility * np.sqrt(time))
    d2 = d1 - volatility * np.sqrt(time)
    call = price * cdf(d1) - strike * np.exp(-rate * time) * cdf(d2)
    return call, call - price + strike * np.exp(-rate * time)


def test_black_scholes() -> None:
    check(black_scholes, *(np.abs(normal(9)) + 0.5 for _ in range(3)), 0.02, 0.3)


def k_means_step(points, centres):
    distance = np.linalg.norm(points[:, None, :] - centres[None], axis=-1)
    nearest = np.argmin(distance, axis=1)
    onehot = (nearest[:, None] == np.arange(len(centres))).astype(points.dtype)
    counts = np.maximum(onehot.sum(axis=0), 1)
    moved = onehot.T @ points / counts[:, None]
    sums = np.zeros_like(centres)
    np.add.at(sums, nearest, points)
    return nearest, moved, sums / counts[:, None], np.abs(moved - centres).max()


def test_k_means_step() -> None:
    check(k_means_step, normal(12, 2), normal(3, 2))


def mandelbrot(re, im, steps):
    x, y, n = re.copy(), im.copy(), np.zeros(re.shape, dtype=int)
    for i in range(steps):
        inside = x * x + y * y < 4
        n[inside] = i
        x[inside], y[inside] = (x * x - y * y + re)[inside], (2 * x * y + im)[inside]
    return n


def test_mandelbrot_with_masks() -> None:
    check(mandelbrot, *np.meshgrid(np.linspace(-2, 1, 6), np.linspace(-1, 1, 5)), 6)


def convolve(images, kernels):
    n, height, width, _ = images.shape
    k = kernels.shape[0]
    out = np.empty((n, height - k + 1, width - k + 1, kernels.shape[3]), dtype=images.dtype)
    for i in range(height - k + 1):
        for j in range(width - k + 1):
            out[:, i, j, :] = np.sum(images[:, i:i + k, j:j + k, :, np.newaxis] * kernels[np.newaxis], axis=(1, 2, 3))
    return np.maximum(out, 0)


def test_convolution_into_an_empty_buffer() -> None:
    check(convolve, normal(2, 4, 4, 2), normal(2, 2, 2, 3))


def covariance(data, n):
    mean = np.mean(data, axis=0)
    data -= mean
    cov = np.zeros((data.shape[1], data.shape[1]), dtype=data.dtype)
    for i in range(data.shape[1]):
        cov[i:, i] = data[:, i] @ data[:, i:] / (n - 1.0)
        cov[i, i:] = cov[i:, i]
    return cov


def test_covariance_changes_its_argument() -> None:
    program = check(covariance, normal(6, 4, dtype="f8"), 6)
    assert program.mutated == ((0, 1),)


def cholesky(a):
    a[0, 0] = np.sqrt(a[0, 0])
    for i in range(1, a.shape[0]):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[j, :j])
            a[i, j] /= a[j, j]
        a[i, i] -= np.dot(a[i, :i], a[i, :i])
        a[i, i] = np.sqrt(a[i, i])


def test_cholesky_in_place() -> None:
    m = normal(5, 5, dtype="f8")
    check(cholesky, m @ m.T + 5 * np.eye(5))


class Model:
    """Weights in an object, a method as the function."""

    def __init__(self) -> None:
        self.weights = [normal(4, 4) for _ in range(2)]

    def __call__(self, x):
        for w in self.weights:
            x = self.layer(x, w)
        return {"features": x, "norm": np.sqrt((x ** 2).sum())}

    def layer(self, x, w):
        return np.tanh(x @ w) + x


@pytest.mark.parametrize("bound", [False, True])
def test_a_model_object(bound: bool) -> None:
    model: Any = Model()
    program = check(model.__call__ if bound else model, normal(3, 4))
    assert [a is b for a, b in zip(program.captured, model.weights, strict=True)] == [True, True]


# ---------------------------------------------------------------- linear algebra and idioms
def lu(a):
    n = a.shape[0]
    for i in range(n):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            a[i, j] -= a[i, :i] @ a[:i, j]


def gram_schmidt(a):
    q, r = np.zeros_like(a), np.zeros((a.shape[1], a.shape[1]), dtype=a.dtype)
    for k in range(a.shape[1]):
        r[k, k] = np.sqrt(np.dot(a[:, k], a[:, k]))
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


def correlation(data, n):
    deviation = np.std(data, axis=0)
    deviation[deviation <= 0.1] = 1.0
    data -= np.mean(data, axis=0)
    data /= np.sqrt(n) * deviation
    corr = np.eye(data.shape[1], dtype=data.dtype)
    for i in range(data.shape[1] - 1):
        corr[i + 1:, i] = corr[i, i + 1:] = data[:, i] @ data[:, i + 1:]
    return corr


def floyd_warshall(path):
    for k in range(path.shape[0]):
        path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))


def durbin(r):
    y = np.empty_like(r)
    alpha, beta = -r[0], 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


@pytest.mark.parametrize("program, sides, more", [
    (lu, (5, 5), ()), (gram_schmidt, (6, 4), ()), (correlation, (6, 4), (6.0,)), (floyd_warshall, (5, 5), ()), (durbin, (5,), ()),
], ids=lambda value: getattr(value, "__name__", ""))
def test_linear_algebra_in_place(program: Any, sides: tuple[int, ...], more: tuple) -> None:
    start = normal(*sides, dtype="f8", scale=0.1)
    check(program, start + np.eye(*sides) if len(sides) == 2 else start, *more)


def rotary(x):
    _, length, width = x.shape
    half = width // 2
    frequency = 1.0 / (10000 ** (np.arange(0, half, dtype=np.float32) / half))
    angle = np.outer(np.arange(length), frequency)
    c, s = np.cos(angle), np.sin(angle)
    x1, x2 = x[..., :half], x[..., half:]
    return np.concatenate([x1 * c - x2 * s, x2 * c + x1 * s], axis=-1).astype(x.dtype)


def causal(x):
    side = x.shape[-1]
    mask = np.triu(np.ones((side, side), dtype=bool), k=1)
    masked, picked = x.copy(), x.copy()
    masked[..., mask] = -np.inf
    rows, columns = np.triu_indices(side, 1)
    picked[:, rows, columns] = 0
    return masked, picked, np.where(mask, -1e9, x)


def top_two(x):
    order = np.argsort(-x, axis=-1)[:, :2]
    best = np.take_along_axis(x, order, axis=-1)
    kept = np.zeros_like(x)
    np.put_along_axis(kept, order, best, axis=-1)
    return order, best, kept, np.eye(6, dtype="f4")[order[:, 0]]


def life(cells):
    n = (cells[:-2, :-2] + cells[:-2, 1:-1] + cells[:-2, 2:] + cells[1:-1, :-2] + cells[1:-1, 2:] + cells[2:, :-2]
         + cells[2:, 1:-1] + cells[2:, 2:])
    birth = (n == 3) & (cells[1:-1, 1:-1] == 0)
    survive = ((n == 2) | (n == 3)) & (cells[1:-1, 1:-1] == 1)
    cells[...] = 0
    cells[1:-1, 1:-1][birth | survive] = 1
    return cells


def idioms(x):
    x[0], x[1] = x[1].copy(), x[0].copy()
    x[[0, 1]] = x[[1, 0]]
    x[1:, 1:] = x[:-1, :-1]
    x.ravel()[3] = 9
    x.T[1:, 0] = 4
    total = 0
    for i, row in enumerate(x):
        total += row.sum()
        row[:] = row * i
    first, second, *rest = x
    return total, first, second, rest, sum(x), list(x[0])


@pytest.mark.parametrize("program, array", [
    (rotary, normal(2, 3, 4)), (causal, normal(2, 3, 3)), (top_two, normal(3, 6)), (life, RNG.integers(0, 2, (7, 7))),
    (idioms, normal(4, 5)),
], ids=lambda value: getattr(value, "__name__", ""))
def test_idioms(program: Any, array: np.ndarray) -> None:
    check(program, array)
