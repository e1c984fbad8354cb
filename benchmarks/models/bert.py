"""A BERT encoder layer, forward, in plain NumPy: attention and MLP, each followed by a residual and a layernorm.

``make(preset)`` gives the function and its arguments. "base" is BERT-base at batch 8, sequence 128
(AStitch and FusionStitching measure it); "small" is for tests.
"""

from __future__ import annotations

import numpy as np

from minisitch import erf

PRESETS = {  # batch, sequence, hidden, heads
    "small": (2, 8, 16, 2),
    "base": (8, 128, 768, 12),
}


def layernorm(x, scale, shift, epsilon=1e-12):
    """Rows with mean 0 and variance 1, then scaled and shifted."""
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(np.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * scale + shift


def gelu(x):
    """The Gaussian error linear unit as BERT has it, with erf."""
    return x * 0.5 * (1.0 + erf(x * 0.7071067811865476))


def softmax(x):
    """Rows of positive numbers that add up to 1."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def split_heads(x, heads):
    """[batch, length, hidden] to [batch, heads, length, hidden / heads]."""
    batch, length, hidden = x.shape
    return x.reshape(batch, length, heads, hidden // heads).transpose(0, 2, 1, 3)


def attention(x, mask, weights, heads):
    """Every position looks at all positions that ``mask`` (1 or 0 a token) allows."""
    q, k, v = (split_heads(x @ weights[name] + weights[f"{name}_bias"], heads) for name in ("query", "key", "value"))
    scores = q @ k.transpose(0, 1, 3, 2) / q.shape[-1] ** 0.5
    scores = scores + (1.0 - mask[:, None, None, :]) * -10000.0
    mixed = softmax(scores) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ weights["out"] + weights["out_bias"]


def bert_layer(x, mask, weights, heads=12):
    """One encoder layer; ``x`` is [batch, length, hidden], ``mask`` [batch, length]."""
    x = layernorm(x + attention(x, mask, weights, heads), weights["scale1"], weights["shift1"])
    inner = gelu(x @ weights["up"] + weights["up_bias"])
    return layernorm(x + (inner @ weights["down"] + weights["down_bias"]), weights["scale2"], weights["shift2"])


def make_weights(hidden, seed=0):
    """Random float32 weights as a freshly initialised BERT has them."""
    random = np.random.default_rng(seed)
    sizes = {"query": (hidden, hidden), "key": (hidden, hidden), "value": (hidden, hidden), "out": (hidden, hidden),
             "up": (hidden, 4 * hidden), "down": (4 * hidden, hidden)}
    weights = {}
    for name, shape in sizes.items():
        weights[name] = random.normal(0.0, 0.02, shape).astype(np.float32)
        weights[f"{name}_bias"] = random.normal(0.0, 0.02, shape[1]).astype(np.float32)
    for i in (1, 2):
        weights[f"scale{i}"] = random.normal(1.0, 0.02, hidden).astype(np.float32)
        weights[f"shift{i}"] = random.normal(0.0, 0.02, hidden).astype(np.float32)
    return weights


def make(preset="base", seed=0):
    """The program and its arguments ``(x, mask, weights, heads)``."""
    batch, length, hidden, heads = PRESETS[preset]
    random = np.random.default_rng(seed)
    x = random.normal(0.0, 1.0, (batch, length, hidden)).astype(np.float32)
    mask = (np.arange(length) < random.integers(length // 2, length + 1, (batch, 1))).astype(np.float32)
    return bert_layer, (x, mask, make_weights(hidden, seed), heads)
