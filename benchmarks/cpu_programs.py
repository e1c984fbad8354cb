"""The programs of ``benchmarks/cpu.py``: plain NumPy functions, their shapes, and their arguments.

``np`` is looked up when a function runs, so that a process may put ``jax.numpy`` in its place and run the same text; hence
nothing is written in place. Only NumPy is imported here: other libraries' processes import this file too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MODELS = Path(__file__).resolve().parent / "models"


@dataclass(frozen=True)
class Workload:
    """A program, its shapes in words, and what makes the arguments of one."""

    run: Callable[..., Any]
    shapes: tuple[str, ...]
    make: Callable[..., tuple]


WORKLOADS: dict[str, Workload] = {}
SMALL = ("softmax-1x768", "layernorm-128x768", "int_mix-100000")


def workload(shapes: str, make: Callable[..., tuple], name: str = "") -> Callable[[Callable], Callable]:
    """Register a program under its own name or another."""
    def register(run: Callable) -> Callable:
        WORKLOADS[name or run.__name__] = Workload(run, tuple(shapes.split()), make)
        return run
    return register


def cases(preset: str) -> list[str]:
    """``softmax-8192x1024`` and the others."""
    every = [f"{name}-{shape}" for name, load in WORKLOADS.items() for shape in load.shapes]
    return list(SMALL) if preset == "small" else every + [f"model_{path.stem}-small" for path in sorted(MODELS.glob("*.py"))
                                                       if "def make(" in path.read_text(encoding="utf-8")]


def load(case: str, seed: int = 0) -> tuple[Callable[..., Any], tuple]:
    """The function and the arguments of a case; for one seed the same each time."""
    name, _, shape = case.rpartition("-")
    if name.startswith("model_"):
        sys.path.insert(0, str(MODELS))  # a model imports what it shares with others by name
        return importlib.import_module(name.removeprefix("model_")).make(shape, seed)
    found = WORKLOADS[name]
    return found.run, found.make(np.random.default_rng(seed), *map(int, shape.split("x")))


# ---------------------------------------------------------------- arguments
def one(random, *shape):
    """An array of normal numbers."""
    return (random.standard_normal(shape, np.float32),)


def one_double(random, *shape):
    return (random.standard_normal(shape),)


def two(random, *shape):
    return one(random, *shape) + one(random, *shape)


def rows(random, *shape):
    """An array, and the scale of its columns."""
    return one(random, *shape) + one(random, shape[-1])


def rows_scaled(random, *shape):
    """An array, and the scale and the shift of its columns."""
    return rows(random, *shape) + one(random, shape[-1])


def four_states(random, size):
    """Parameters, gradients, and the two moments of an optimizer."""
    return *two(random, size), random.standard_normal(size, np.float32), random.random(size, np.float32)


def channels(random, batch, channels, *plane):
    """Images, and a scale and a shift for each channel."""
    return one(random, batch, channels, *plane) + one(random, 1, channels, 1, 1) + one(random, 1, channels, 1, 1)


# ---------------------------------------------------------------- rows
@workload("8192x1024 6144x1024 4096x1024 64x30000 750000x32 8704x17 11000x123 11000x12345 256x1024 128x768 1x128x768 1x768 "
          "1x8", one)
@workload("4096x1024 128x768", one_double, "softmax_f64")
def softmax(x):
    """Rows of positive numbers that add up to 1."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


@workload("8192x1024 6144x1024 4096x1024 64x30000 750000x32 8704x17 11000x123 512x768 128x768 1x128x768 1x768", rows_scaled)
@workload("4096x1024", lambda random, *shape: tuple(x.astype(float) for x in rows_scaled(random, *shape)), "layernorm_f64")
def layernorm(x, scale, shift):
    """Rows with mean 0 and variance 1, scaled and shifted."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * scale + shift


@workload("8192x1024 128x768 1x768", rows)
def rmsnorm(x, scale):
    """Rows whose squares have mean 1, scaled."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


@workload("8192x1024 512x768 128x768 1x768",
          lambda random, r, c: (*one(random, r, c), *one(random, c), *one(random, r, c), *one(random, c), *one(random, c)))
def gelu_res_ln(x, bias, residual, scale, shift):
    """A transformer's GELU, residual connection and layernorm."""
    u = x + bias
    h = 0.5 * u * (1 + np.tanh(0.7978845608028654 * (u + 0.044715 * u * u * u))) + residual
    return layernorm(h, scale, shift)


@workload("32x12x128x128 2x12x128x128", lambda random, batch, heads, rows, cols: (
    *one(random, batch, heads, rows, cols), np.where(random.random((batch, 1, 1, cols)) < 0.1, np.float32(-1e9), np.float32(0)),
    (random.random((batch, heads, rows, cols), np.float32) < 0.9).astype(np.float32)))
def attn_scores(scores, mask, keep):
    """Attention scores: scaled, masked, softmax, dropout."""
    return softmax(scores * 0.125 + mask) * (keep * 1.1111112)


@workload("8192x1024 512x30000 256x1000",
          lambda random, rows, classes: (*one(random, rows, classes), random.integers(0, classes, rows, np.int32)))
def xent_fwd_bwd(logits, labels):
    """Cross-entropy and its gradient: mean loss, and d loss / d logits."""
    top = np.max(logits, axis=-1, keepdims=True)
    e = np.exp(logits - top)
    total = np.sum(e, axis=-1, keepdims=True)
    picked = np.take_along_axis(logits, labels[:, None], axis=-1)
    loss = np.mean(np.log(total) + top - picked)
    hit = labels[:, None] == np.arange(logits.shape[-1])
    return loss, (e / total - hit) / len(logits)


@workload("8192x1024 512x768", lambda random, r, c: (*one(random, r, c), *one(random, r, c), *one(random, c)))
def layernorm_bwd(gradient, x, scale):
    """The gradients of a layernorm's input, scale and shift."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    r = 1 / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
    normed = centred * r
    g = gradient * scale
    dx = (g - np.mean(g, axis=-1, keepdims=True) - normed * np.mean(g * normed, axis=-1, keepdims=True)) * r
    return dx, np.sum(gradient * normed, axis=0), np.sum(gradient, axis=0)


@workload("64x30000 8x4000000", one)
def logsumexp(x):
    """The logarithm of each row's sum of exponentials."""
    top = np.max(x, axis=-1, keepdims=True)
    return (np.log(np.sum(np.exp(x - top), axis=-1, keepdims=True)) + top)[..., 0]


# ---------------------------------------------------------------- optimizers
def moments(gradient, m, v):
    """The moments of Adam, and its step without bias (of the third step or so)."""
    m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient * gradient
    return m, v, m * 1.25 / (np.sqrt(v * 1.5) + 1e-8)


@workload("10000000 100000", four_states)
def adam(p, gradient, m, v):
    """A step of Adam with decoupled weight decay."""
    m, v, step = moments(gradient, m, v)
    return p - 1e-3 * (step + 0.01 * p), m, v


@workload("10000000 1000000", four_states)
def lamb(p, gradient, m, v):
    """A step of LAMB: Adam's, as long as the parameters' norm says."""
    m, v, step = moments(gradient, m, v)
    step = step + 0.01 * p
    return p - 1e-3 * np.sqrt(np.sum(p * p)) / np.sqrt(np.sum(step * step)) * step, m, v


# ---------------------------------------------------------------- elementwise
@workload("16000000 100000 1024", two)
@workload("1000000", lambda random, n: one_double(random, n) + one_double(random, n), "ew20_f64")
def ew20(x, y):
    """Twenty operations, element by element."""
    a = x * 1.5 + y
    b = np.tanh(a)
    c = np.exp(b * -0.5)
    d = c * a - b
    e = np.sqrt(np.abs(d) + 0.1)
    f = np.tanh(e * 0.25 + c)
    g = f * f + 1
    return np.exp(-g) * d / g + e


@workload("4096x2816 64x2816", two)
def swiglu(a, b):
    """A gated linear unit with the sigmoid's own weight."""
    return a / (1 + np.exp(-a)) * b


@workload("8x1024x16x64 1x128x16x64", lambda random, batch, steps, heads, size: (
    *one(random, batch, steps, heads, size), *one(random, steps, size // 2), *one(random, steps, size // 2)))
def rope(x, cos, sin):
    """Rotary embedding: the halves of each head's vector, turned by the position's angles."""
    half = x.shape[-1] // 2
    a, b, cos, sin = x[..., :half], x[..., half:], cos[:, None, :], sin[:, None, :]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


@workload("16000000 100000", lambda random, n: (random.integers(-2**31, 2**31, n, np.int32),))
def int_mix(x):
    """A hash of integers: shifts, exclusive or, products that overflow."""
    x = (x ^ (x >> 16)) * 73244475
    x = (x ^ (x >> 13)) * 1540483477
    return x ^ (x >> 16)


# ---------------------------------------------------------------- columns, channels, everything
@workload("8192x1024 750000x32 512x768", one)
def colsum(x):
    """The sum of each column."""
    return np.sum(x, axis=0)


@workload("8192x1024 512x768", lambda random, r, c: (random.integers(-1000, 1000, (r, c), np.int32),))
def int_rowsum(x):
    """The sum of each row of integers, in 64 bits."""
    return np.sum(x, axis=-1, dtype=np.int64)


@workload("32x64x56x56 1x64x56x56", lambda random, n, c, h, w: (
    *channels(random, n, c, h, w), *one(random, 1, c, 1, 1), random.random((1, c, 1, 1), np.float32) + np.float32(0.5)))
def bn_infer(x, scale, shift, mean, variance):
    """Batch-norm with given statistics, and a ReLU."""
    return np.maximum((x - mean) * (scale / np.sqrt(variance + 1e-5)) + shift, 0)


@workload("32x64x56x56 4x64x28x28", channels)
def bn_train(x, scale, shift):
    """Batch-norm with the batch's own statistics, which are results too."""
    mean = np.mean(x, axis=(0, 2, 3), keepdims=True)
    centred = x - mean
    variance = np.mean(centred * centred, axis=(0, 2, 3), keepdims=True)
    return centred * (scale / np.sqrt(variance + 1e-5)) + shift, mean, variance


@workload("50000000 1000000", one)
@workload("1000000", one_double, "variance_f64")
def variance(x):
    """Of all numbers together."""
    return np.var(x)
