"""A speech recogniser's acoustic model, one training step in plain NumPy: a feed-forward network with memory.

FusionStitching 2018 trains an in-house "Speech": 72% of its time is products, ``fs18`` needs 0.25 of XLA's
kernels, the best of all, and runs them 3.5 times as fast. Nothing else is said of it. This is our choice: the acoustic model
that the paper's house published in the same year (deep feed-forward sequential memory networks, Zhang and others, 2018),
with a layernorm in each layer and 4,096 classes, for which the paper's shared memory speaks: at most 16,416 bytes, a row of
4,096 numbers and 8 more, and 9,504 on average, more than a row of 2,048.

Faithful: 80 features a frame, 2,048 hidden, 512 in the memory, memory blocks that add learned multiples of earlier and later
frames and skip to the next block, frame-wise cross-entropy, clipping by global norm, momentum.
Cut: 4 of 10 layers, 5 + 5 frames of memory of 20 + 20, 8 utterances of 64 frames.
"""

from __future__ import annotations

import numpy as np
from layers import (
    clip_by_global_norm,
    cross_entropy,
    cross_entropy_backward,
    layernorm,
    layernorm_backward,
    linear,
    linear_backward,
    momentum,
    normal,
    relu,
    relu_backward,
)

PRESETS = {  # utterances, frames, features, hidden, memory, layers, order (frames back, and as many ahead), classes
    "small": (2, 6, 5, 12, 8, 1, 2, 7),
    "full": (8, 64, 80, 2048, 512, 4, 5, 4096),
}
PAPER = {"fs18": {"mode": "train", "library_share": 0.72, "kernel_ratio": 0.25, "fusion_speedup": 3.50,
                  "end_to_end_speedup": 1.18, "predicted_speedup": 1.20, "shared_bytes": {"average": 9504, "largest": 16416},
                  "shrinks": 3, "shared_ratio": 0.01}}


def windows(x, order):
    """``x`` [batch, frames, size] moved by -order to order frames, zeros coming in: a list of 2 * order + 1 arrays."""
    frames = x.shape[1]
    padded = np.pad(x, ((0, 0), (order, order), (0, 0)))
    return [padded[:, k:k + frames] for k in range(2 * order + 1)]


def memory(x, taps):
    """``x`` plus learned multiples, ``taps`` [2 * order + 1, size], of the frames around."""
    around = windows(x, len(taps) // 2)
    return sum((tap * each for tap, each in zip(taps, around, strict=True)), x), (around, taps)


def memory_backward(cache, gradient):
    """The gradients of x and taps."""
    around, taps = cache
    back = windows(gradient, len(taps) // 2)[::-1]
    x = sum((tap * each for tap, each in zip(taps, back, strict=True)), gradient)
    return x, np.stack([np.sum(gradient * each, axis=(0, 1)) for each in around])


def layer(x, skipped, weights, i):
    """Expand, normalise, rectify, project, remember; ``skipped`` (the last layer's result, if any) is added."""
    inner, first = linear(x, weights[f"up{i}"], weights[f"up_bias{i}"])
    inner, norm = layernorm(inner, weights[f"scale{i}"], weights[f"shift{i}"])
    inner, kink = relu(inner)
    inner, second = linear(inner, weights[f"down{i}"], weights[f"down_bias{i}"])
    result, taps = memory(inner, weights[f"taps{i}"])
    return result if skipped is None else result + skipped, (first, norm, kink, second, taps)


def layer_backward(cache, gradient, gradients, i):
    """Write the gradients of the layer's weights; give that of its x."""
    first, norm, kink, second, taps = cache
    gradient, gradients[f"taps{i}"] = memory_backward(taps, gradient)
    gradient, gradients[f"down{i}"], gradients[f"down_bias{i}"] = linear_backward(second, gradient)
    gradient, gradients[f"scale{i}"], gradients[f"shift{i}"] = layernorm_backward(norm, relu_backward(kink, gradient))
    gradient, gradients[f"up{i}"], gradients[f"up_bias{i}"] = linear_backward(first, gradient)
    return gradient


def train(features, labels, weights, velocities, rate=0.01):
    """One step on [utterances, frames, features] and a label a frame. Gives ``(weights, velocities, loss)``."""
    count = sum(name.startswith("taps") for name in weights)
    x, caches = features, []
    for i in range(count):
        x, cache = layer(x, x if i else None, weights, i)
        caches.append(cache)
    logits, product = linear(x, weights["out"], weights["out_bias"])
    loss, cache = cross_entropy(logits, labels)

    gradients = {}
    gradient, gradients["out"], gradients["out_bias"] = linear_backward(product, cross_entropy_backward(cache))
    for i in reversed(range(count)):
        through = layer_backward(caches[i], gradient, gradients, i)
        gradient = through + gradient if i else through
    gradients, _ = clip_by_global_norm(gradients, 5.0)
    return *momentum(weights, velocities, gradients, rate), loss


def make(preset="small", seed=0):
    """The program and its arguments ``(features, labels, weights, velocities)``."""
    utterances, frames, size, hidden, width, count, order, classes = PRESETS[preset]
    random = np.random.default_rng(seed)
    weights = {"out": normal(random, width, classes), "out_bias": np.zeros(classes, np.float32)}
    for i in range(count):
        weights |= {f"up{i}": normal(random, width if i else size, hidden), f"up_bias{i}": np.zeros(hidden, np.float32),
                    f"scale{i}": np.ones(hidden, np.float32), f"shift{i}": np.zeros(hidden, np.float32),
                    f"down{i}": normal(random, hidden, width), f"down_bias{i}": np.zeros(width, np.float32),
                    f"taps{i}": normal(random, 2 * order + 1, width)}
    velocities = {name: normal(random, *w.shape, scale=0.01) for name, w in weights.items()}
    features = normal(random, utterances, frames, size, scale=1.0)
    return train, (features, random.integers(0, classes, (utterances, frames)), weights, velocities)
