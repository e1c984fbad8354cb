"""Word2Vec, one training step of skip-grams with noise-contrastive estimation, in plain NumPy.

FusionStitching 2018 trains it: 60% of its time is products, ``fs18`` needs 0.82 of XLA's kernels, the least
gain of all: little lies between the gathers, the products and the scatters. The paper names no shapes; those of the full
preset are of the example that it most likely took (github.com/aymericdamien/TensorFlow-Examples).

Faithful: TensorFlow's ``nce_loss``: one gather for true and sampled classes, logits less the logarithm of how often the
sampler draws a class, sigmoid cross-entropy with max, abs, exp and log1p, sparse updates that scatter into the tables
(a library call). Cut: the sampler runs on the CPU in TensorFlow; what it drew comes in as arguments.
"""

from __future__ import annotations

import numpy as np
from layers import embedding, normal, sigmoid

PRESETS = {  # batch, words, size of a vector, sampled classes
    "small": (6, 40, 8, 5),
    "full": (128, 50_000, 200, 64),
}
PAPER = {"fs18": {"mode": "train", "library_share": 0.60, "kernel_ratio": 0.82, "fusion_speedup": 1.15,
                  "end_to_end_speedup": 1.05, "predicted_speedup": 1.05, "shared_bytes": {"average": 96, "largest": 288},
                  "shrinks": 0, "shared_ratio": 0.0}}


def updated(table, rows, gradient, rate):
    """The table after a sparse step of gradient descent: rows named twice take both gradients."""
    table = table.copy()
    np.subtract.at(table, rows, rate * gradient)
    return table


def train(words, contexts, sampled, contexts_expected, sampled_expected, weights, rate=0.1):
    """One step on pairs of a word and one of its context; ``expected``: how often the sampler draws each class.

    Gives ``(weights, loss)``.
    """
    batch = len(words)
    x, _ = embedding(weights["embedding"], words)
    classes = np.concatenate([contexts, sampled])
    kernels, _ = embedding(weights["kernel"], classes)
    biases, _ = embedding(weights["bias"], classes)
    true, noise = kernels[:batch], kernels[batch:]

    true_logits = np.sum(x * true, axis=1) + biases[:batch] - np.log(contexts_expected)
    noise_logits = x @ noise.T + biases[batch:] - np.log(sampled_expected)
    logits = np.concatenate([true_logits[:, None], noise_logits], axis=1)
    labels = np.concatenate([np.ones_like(true_logits)[:, None], np.zeros_like(noise_logits)], axis=1)
    losses = np.maximum(logits, 0.0) - logits * labels + np.log1p(np.exp(-np.abs(logits)))
    loss = np.mean(np.sum(losses, axis=1))

    gradient = (sigmoid(logits) - labels) / batch
    of_true, of_noise = gradient[:, :1], gradient[:, 1:]
    kernel = np.concatenate([of_true * x, of_noise.T @ x])
    bias = np.concatenate([of_true[:, 0], np.sum(of_noise, axis=0)])
    return {"embedding": updated(weights["embedding"], words, of_true * true + of_noise @ noise, rate),
            "kernel": updated(weights["kernel"], classes, kernel, rate),
            "bias": updated(weights["bias"], classes, bias, rate)}, loss


def make(preset="small", seed=0):
    """The program and its arguments ``(words, contexts, sampled, contexts_expected, sampled_expected, weights)``."""
    batch, words, size, count = PRESETS[preset]
    random = np.random.default_rng(seed)
    pairs = random.integers(0, words, (2, batch))
    sampled = np.minimum(np.exp(random.random(count) * np.log(words + 1)).astype(np.int64) - 1, words - 1)

    def expected(classes):
        """Of the log-uniform sampler: word k comes with chance log((k + 2) / (k + 1)) / log(words + 1)."""
        return (count * np.log1p(1 / (classes + 1)) / np.log(words + 1)).astype(np.float32)
    weights = {"embedding": normal(random, words, size, scale=1.0), "kernel": normal(random, words, size, scale=size ** -0.5),
               "bias": np.zeros(words, np.float32)}
    return train, (*pairs, sampled, expected(pairs[1]), expected(sampled), weights)
