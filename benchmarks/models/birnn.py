"""A recurrent network that reads the rows of an image in both directions: one training step in plain NumPy.

FusionStitching 2018 trains it: 82% of its time is products, ``fs18`` needs 0.40 of XLA's kernels. The paper
names no shapes; those of the full preset are of the example that it most likely took
(github.com/aymericdamien/TensorFlow-Examples): MNIST as 28 steps of 28 pixels, 128 hidden a direction, batch 128.

Faithful: two BasicLSTMCells unrolled by ``static_bidirectional_rnn``, gradients of every step added up, gradient descent.
Cut: nothing. Where the example classifies ``outputs[-1]``, in which the backward cell has read one row only, this takes
what each direction says after its last row. Labels are integers here, one-hot there.
"""

from __future__ import annotations

import numpy as np
from layers import cross_entropy, cross_entropy_backward, linear, linear_backward, normal, sgd
from rnn import unroll, unroll_backward

PRESETS = {  # batch, steps, pixels a step, hidden, classes
    "small": (4, 2, 5, 6, 3),
    "full": (128, 28, 28, 128, 10),
}
PAPER = {"fs18": {"mode": "train", "library_share": 0.82, "kernel_ratio": 0.40, "fusion_speedup": 1.60,
                  "end_to_end_speedup": 1.09, "predicted_speedup": 1.08, "shared_bytes": {"average": 1376, "largest": 5120},
                  "shrinks": 0, "shared_ratio": 0.0}}


def train(images, labels, weights, rate=0.001):
    """One step of gradient descent on [batch, steps, pixels]. Gives ``(weights, loss)``."""
    steps = [images[:, t] for t in range(images.shape[1])]
    ahead, ahead_caches = unroll(steps, weights["kernel"], weights["bias"])
    back, back_caches = unroll(steps[::-1], weights["back_kernel"], weights["back_bias"])
    logits, product = linear(np.concatenate([ahead, back], axis=1), weights["out"], weights["out_bias"])
    loss, cache = cross_entropy(logits, labels)

    both, out, out_bias = linear_backward(product, cross_entropy_backward(cache))
    ahead, back = np.split(both, 2, axis=1)
    kernel, bias = unroll_backward(ahead_caches, ahead)
    back_kernel, back_bias = unroll_backward(back_caches, back)
    gradients = {"kernel": kernel, "bias": bias, "back_kernel": back_kernel, "back_bias": back_bias,
                 "out": out, "out_bias": out_bias}
    return sgd(weights, gradients, rate), loss


def make(preset="small", seed=0):
    """The program and its arguments ``(images, labels, weights)``."""
    batch, steps, pixels, hidden, classes = PRESETS[preset]
    random = np.random.default_rng(seed)
    images = random.random((batch, steps, pixels), np.float32)
    weights = {"out": normal(random, 2 * hidden, classes, scale=1.0), "out_bias": normal(random, classes, scale=1.0)}
    for direction in ("", "back_"):
        weights[f"{direction}kernel"] = normal(random, pixels + hidden, 4 * hidden)
        weights[f"{direction}bias"] = np.zeros(4 * hidden, np.float32)
    return train, (images, random.integers(0, classes, batch), weights)
