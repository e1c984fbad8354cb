"""A recurrent network over the rows of an image: one LSTM, one training step, in plain NumPy.

FusionStitching 2018 trains it: 80% of its time is products, ``fs18`` needs 0.38 of XLA's kernels. The paper
names no shapes; those of the full preset are of the example that it most likely took
(github.com/aymericdamien/TensorFlow-Examples): MNIST as 28 steps of 28 pixels, 128 hidden, batch 128.

Faithful: BasicLSTMCell unrolled by ``static_rnn``, the last output classified, gradients of every step added up, gradient
descent. Cut: nothing. Labels are integers here, one-hot there.
"""

from __future__ import annotations

import numpy as np
from layers import (
    cross_entropy,
    cross_entropy_backward,
    linear,
    linear_backward,
    lstm_cell,
    lstm_cell_backward,
    normal,
    sgd,
)

PRESETS = {  # batch, steps, pixels a step, hidden, classes
    "small": (4, 4, 5, 6, 3),
    "full": (128, 28, 28, 128, 10),
}
PAPER = {"fs18": {"mode": "train", "library_share": 0.80, "kernel_ratio": 0.38, "fusion_speedup": 1.80,
                  "end_to_end_speedup": 1.08, "predicted_speedup": 1.09, "shared_bytes": {"average": 1344, "largest": 3072},
                  "shrinks": 0, "shared_ratio": 0.0}}


def unroll(steps, kernel, bias):
    """The LSTM over a list of [batch, size] from a zero state: its last output, and a cache a step."""
    hidden = cell = np.zeros((len(steps[0]), len(bias) // 4), np.float32)
    caches = []
    for x in steps:
        (hidden, cell), cache = lstm_cell(x, hidden, cell, kernel, bias)
        caches.append(cache)
    return hidden, caches


def unroll_backward(caches, gradient):
    """The gradients of kernel and bias, from that of the last output."""
    hidden, cell = gradient, np.zeros_like(gradient)
    kernels, biases = [], []
    for cache in reversed(caches):
        _, hidden, cell, kernel, bias = lstm_cell_backward(cache, hidden, cell)
        kernels.append(kernel)
        biases.append(bias)
    return sum(kernels[1:], kernels[0]), sum(biases[1:], biases[0])


def train(images, labels, weights, rate=0.001):
    """One step of gradient descent on [batch, steps, pixels]. Gives ``(weights, loss)``."""
    steps = [images[:, t] for t in range(images.shape[1])]
    last, caches = unroll(steps, weights["kernel"], weights["bias"])
    logits, product = linear(last, weights["out"], weights["out_bias"])
    loss, cache = cross_entropy(logits, labels)

    last, out, out_bias = linear_backward(product, cross_entropy_backward(cache))
    kernel, bias = unroll_backward(caches, last)
    gradients = {"kernel": kernel, "bias": bias, "out": out, "out_bias": out_bias}
    return sgd(weights, gradients, rate), loss


def make(preset="small", seed=0):
    """The program and its arguments ``(images, labels, weights)``."""
    batch, steps, pixels, hidden, classes = PRESETS[preset]
    random = np.random.default_rng(seed)
    images = random.random((batch, steps, pixels), np.float32)
    weights = {"kernel": normal(random, pixels + hidden, 4 * hidden), "bias": np.zeros(4 * hidden, np.float32),
               "out": normal(random, hidden, classes, scale=1.0), "out_bias": normal(random, classes, scale=1.0)}
    return train, (images, random.integers(0, classes, batch), weights)
