"""Logistic regression, one training step in plain NumPy.

FusionStitching 2018 trains it: 63% of its time is products, ``fs18`` needs 0.43 of XLA's kernels. The paper
names no shapes. Its four public workloads LR, W2V, RNN and BiRNN are, to our reading, the examples of that time at
github.com/aymericdamien/TensorFlow-Examples; the shapes of the full preset are theirs: MNIST, batch 100.

Faithful: operators and shapes; softmax and the logarithm are apart, as the example writes them, not one stable
cross-entropy. Cut: nothing.
"""

from __future__ import annotations

import numpy as np
from layers import linear, linear_backward, normal, sgd, softmax, softmax_backward

PRESETS = {  # batch, pixels, classes
    "small": (8, 20, 5),
    "full": (100, 784, 10),
}
PAPER = {"fs18": {"mode": "train", "library_share": 0.63, "kernel_ratio": 0.43, "fusion_speedup": 1.55,
                  "end_to_end_speedup": 1.18, "predicted_speedup": 1.14, "shared_bytes": {"average": 64, "largest": 128},
                  "shrinks": 0, "shared_ratio": 0.0}}


def train(images, labels, weights, rate=0.01):
    """One step of gradient descent; ``labels`` are one-hot. Gives ``(weights, loss)``."""
    logits, product = linear(images, weights["kernel"], weights["bias"])
    predicted, cache = softmax(logits)
    loss = np.mean(-np.sum(labels * np.log(predicted), axis=1))

    gradient = softmax_backward(cache, -labels / predicted / len(images))
    _, kernel, bias = linear_backward(product, gradient)
    return sgd(weights, {"kernel": kernel, "bias": bias}, rate), loss


def make(preset="small", seed=0):
    """The program and its arguments ``(images, labels, weights)``."""
    batch, pixels, classes = PRESETS[preset]
    random = np.random.default_rng(seed)
    images = random.random((batch, pixels), np.float32)
    labels = np.eye(classes, dtype=np.float32)[random.integers(0, classes, batch)]
    return train, (images, labels, {"kernel": normal(random, pixels, classes), "bias": np.zeros(classes, np.float32)})
