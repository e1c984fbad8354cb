"""The Transformer, one training step for translation, in plain NumPy: forward, gradients by hand, Adam.

The papers (V100, batches of 4,096 tokens): of TensorFlow's 2,497 memory-intensive kernels XLA leaves 903 and
FusionStitching 2020 423; end to end it is 1.34 times as fast as TensorFlow, so is AStitch (XLA 1.23). AStitch counts
1,666 reduces in the graph, a tenth of its operations, and names the irregular row-reduce <64,30000>, for which XLA
launches 64 blocks where a V100 holds 160.

Faithful: Tensor2Tensor's base model: 512 hidden in 8 heads, 2,048 inner, sinusoids, biases of attention from padding and
from causality, dropout before each residual and after each relu, one table of 30,000 words for source, target and
output, cross-entropy against smoothed labels, Adam.
Cut: 1 layer of 6 on each side; 64 sentences of 32 + 32 tokens, 4,096 in all; the loss is of each sentence's last word alone, so
that its softmax has the paper's shape <64,30000>, not <2048,30000>. Left out: dropout of attention's weights. The random
numbers of dropout are arguments; in TensorFlow they are made by a kernel.
"""

from __future__ import annotations

import math

import numpy as np
from layers import adam, dropout_backward
from named import normed, normed_backward
from transformer import (
    dropped,
    encode,
    encode_backward,
    layer,
    layer_backward,
    make_weights,
    padding_bias,
    positions,
)

PRESETS = {  # sentences, source tokens, target tokens, hidden, inner, heads, layers a side, words
    "small": (3, 5, 4, 8, 12, 2, 1, 20),
    "full": (64, 32, 32, 512, 2048, 8, 1, 30000),
}
PAPER = {
    "fs20": {"batch": "4096 tokens", "kernels": {"tensorflow": 2497, "xla": 903, "fs20": 423},
             "copies": {"tensorflow": 522, "xla": 577, "fs20": 369},
             "end_to_end_ms": {"tensorflow": 195.37, "xla": 157.70, "fs20": 145.65},
             "memory_ms": {"tensorflow": 81.03, "xla": 38.33, "fs20": 30.26}},
    "astitch": {"batch": "4096 tokens", "speedup_over_tensorflow": {"xla": 1.23, "astitch": 1.34}},
}


def smoothed_cross_entropy(logits, labels, confidence=0.9):
    """The mean cross-entropy against labels of which 1 - confidence is spread over all other classes."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    e = np.exp(shifted)
    total = np.sum(e, axis=-1, keepdims=True)
    rest = (1.0 - confidence) / (logits.shape[-1] - 1)
    chosen = (labels[:, None] == np.arange(logits.shape[-1])).astype(logits.dtype)
    wanted = chosen * (confidence - rest) + rest
    least = -(confidence * math.log(confidence) + (1.0 - confidence) * math.log(rest))
    return np.mean(np.sum(wanted * (np.log(total) - shifted), axis=-1)) - least, (e, total, wanted)


def smoothed_cross_entropy_backward(cache):
    """The gradient of logits."""
    e, total, wanted = cache
    return (e / total - wanted) / total.size


def forward(batch, weights, noise, heads, count):
    """The loss and what its gradient needs. ``batch`` holds source and target tokens, [sentences, length]."""
    source, target = batch["source"], batch["target"]
    memory, encoder_cache = encode(source, weights, heads, count, noise)
    length, hidden = target.shape[1], memory.shape[2]
    x = np.pad(weights["words"][target[:, :-1]] * hidden**0.5, ((0, 0), (1, 0), (0, 0)))  # each word sees those before it
    x, mask = dropped(x + positions(length, hidden), noise, "decoder")
    biases = (np.triu(np.ones((length, length), np.float32), 1) * -1e9, padding_bias(source))
    caches = []
    for i in range(count):
        x, cache = layer(x, memory, biases, weights, f"decoder/{i}", heads, noise)
        caches.append(cache)
    x, norm = normed(x, weights, "decoder")
    loss, loss_cache = smoothed_cross_entropy(x[:, -1] @ weights["words"].T, target[:, -1])
    return loss, (encoder_cache, mask, caches, norm, x, loss_cache)


def loss_and_gradients(batch, weights, noise, heads, count):
    """The loss of a batch and its gradient for every weight."""
    loss, (encoder_cache, mask, caches, norm, x, loss_cache) = forward(batch, weights, noise, heads, count)
    words, gradients = weights["words"], {}
    logits = smoothed_cross_entropy_backward(loss_cache)
    table = logits.T @ x[:, -1]
    last = np.pad((logits @ words)[:, None], ((0, 0), (x.shape[1] - 1, 0), (0, 0)))
    gradient = normed_backward(norm, last, gradients, "decoder")
    memory = 0.0
    for i in reversed(range(count)):
        gradient, to_memory = layer_backward(caches[i], gradient, gradients, f"decoder/{i}")
        memory = memory + to_memory
    gradient = dropout_backward(mask, gradient)[:, 1:] * x.shape[2] ** 0.5
    np.add.at(table, batch["target"][:, :-1], gradient)
    np.add.at(table, batch["source"], encode_backward(encoder_cache, memory, gradients) * x.shape[2] ** 0.5)
    return loss, {**gradients, "words": table}


def train(batch, weights, means, squares, noise, step, heads, count):
    """The new weights and Adam's moments, then the loss."""
    loss, gradients = loss_and_gradients(batch, weights, noise, heads, count)
    return *adam(weights, means, squares, gradients, step, square_decay=0.98, epsilon=1e-9), loss


def make(preset="small", seed=0):
    """The program and its arguments ``(batch, weights, means, squares, noise, step, heads, count)``."""
    sentences, source, target, hidden, inner, heads, count, vocabulary = PRESETS[preset]
    random = np.random.default_rng(seed)
    batch = {name: random.integers(1, vocabulary, (sentences, length))
             for name, length in (("source", source), ("target", target))}
    batch["source"] *= np.arange(source) < random.integers(source // 2, source + 1, (sentences, 1))  # 0 pads
    noise = {}
    for side, length in (("encoder", source), ("decoder", target)):
        for i in range(count):
            for part in ("self", "memory", "feed", "relu") if side == "decoder" else ("self", "feed", "relu"):
                width = inner if part == "relu" else hidden
                noise[f"{side}/{i}/{part}"] = random.random((sentences, length, width), np.float32)
        noise[side] = random.random((sentences, length, hidden), np.float32)
    weights = make_weights(hidden, inner, count, count, vocabulary, seed)
    zeros = [{name: np.zeros_like(w) for name, w in weights.items()} for _ in range(2)]
    return train, (batch, weights, *zeros, noise, np.float32(1.0), heads, count)
