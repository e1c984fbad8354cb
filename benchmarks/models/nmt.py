"""Neural machine translation, inference in plain NumPy: a Transformer encodes a sentence and decodes word by word.

FusionStitching 2018 runs an in-house "NMT": 55% of its time is products, the least of all, and ``fs18`` needs 0.50
of XLA's kernels. Nothing else is said of it, but Fig. 3 shows a piece: softmax over [64 x 8 x 17, 17], then a product with
[64, 8, 17, 128]. That is the attention of 8 heads of 128 over 64 sentences of 17 words: the full preset.

Faithful: that attention; layernorm before each part and a residual after it, as TensorFlow's own Transformer has them; masks
for padding; keys and values of earlier words kept and extended; the likeliest word is fed back by gather.
Cut: 2 encoder and 2 decoder layers of 6, 3 words decoded of 17, no beam, a vocabulary of 8,000.
"""

from __future__ import annotations

import numpy as np
from layers import attention, embedding, layernorm, linear, normal, relu, softmax

PRESETS = {  # sentences, words, hidden, heads, layers, words decoded, vocabulary
    "small": (2, 5, 8, 2, 1, 2, 20),
    "full": (64, 17, 1024, 8, 2, 3, 8000),
}
PAPER = {"fs18": {"mode": "infer", "library_share": 0.55, "kernel_ratio": 0.50, "fusion_speedup": 1.55,
                  "end_to_end_speedup": 1.20, "predicted_speedup": 1.16, "shared_bytes": {"average": 256, "largest": 10432},
                  "shrinks": 0, "shared_ratio": 0.17}}


def normed(name, x, weights):
    """The layernorm of that name."""
    return layernorm(x, weights[f"{name}_scale"], weights[f"{name}_shift"])[0]


def feed_forward(name, x, weights):
    """Expand, rectify, project, on normalised rows; with the residual."""
    inner, _ = linear(normed(f"{name}_ff", x, weights), weights[f"{name}_up"], weights[f"{name}_up_bias"])
    inner, _ = relu(inner)
    return x + linear(inner, weights[f"{name}_down"], weights[f"{name}_down_bias"])[0]


def project(name, x, weights, kinds):
    """Queries, keys or values of one attention: products without a bias."""
    return [x @ weights[f"{name}_{kind}"] for kind in kinds]


def encode(words, bias, weights, heads, layers):
    """Sentences [batch, length] to [batch, length, hidden]."""
    x, _ = embedding(weights["source"], words)
    x = x * weights["source"].shape[1] ** 0.5 + weights["positions"][:words.shape[1]]
    for i in range(layers):
        own = f"encoder{i}_self"
        mixed, _ = attention(*project(own, normed(own, x, weights), weights, "qkv"), heads, bias)
        x = x + mixed @ weights[f"{own}_out"]
        x = feed_forward(f"encoder{i}", x, weights)
    return normed("encoder", x, weights)


def decode_word(words, t, kept, memories, bias, weights, heads):
    """Scores of the next word for each sentence; ``kept``: keys and values of earlier words a layer, extended in place."""
    x, _ = embedding(weights["target"], words[:, None])
    x = x * weights["target"].shape[1] ** 0.5 + weights["positions"][t]
    for i, memory in enumerate(memories):
        own, other = f"decoder{i}_self", f"decoder{i}_other"
        query, *new = project(own, normed(own, x, weights), weights, "qkv")
        kept[i] = [np.concatenate(pair, axis=1) for pair in zip(kept[i], new, strict=True)] if t else new
        mixed, _ = attention(query, *kept[i], heads)
        x = x + mixed @ weights[f"{own}_out"]
        query, = project(other, normed(other, x, weights), weights, "q")
        mixed, _ = attention(query, *memory, heads, bias)
        x = x + mixed @ weights[f"{other}_out"]
        x = feed_forward(f"decoder{i}", x, weights)
    return normed("decoder", x, weights)[:, 0] @ weights["target"].T


def translate(words, lengths, weights, heads, layers, count):
    """The ``count`` likeliest words, one after the other, and each one's probability: two [sentences, count]."""
    padding = np.arange(words.shape[1]) >= lengths[:, None]
    bias = np.where(padding, np.float32(-1e9), np.float32(0.0))[:, None, None, :]
    encoded = encode(words, bias, weights, heads, layers)
    memories = [project(f"decoder{i}_other", encoded, weights, "kv") for i in range(layers)]
    kept, word = [None] * layers, np.zeros(len(words), np.int64)
    said, chances = [], []
    for t in range(count):
        probabilities, _ = softmax(decode_word(word, t, kept, memories, bias, weights, heads))
        word = np.argmax(probabilities, axis=-1)
        said.append(word)
        chances.append(np.max(probabilities, axis=-1))
    return np.stack(said, axis=1), np.stack(chances, axis=1)


def make_weights(hidden, layers, length, vocabulary, random):
    """Random float32 weights by name."""
    weights = {"source": normal(random, vocabulary, hidden, scale=hidden ** -0.5),
               "target": normal(random, vocabulary, hidden, scale=hidden ** -0.5),
               "positions": normal(random, length, hidden, scale=0.1)}
    norms = ["encoder", "decoder"]
    for part in (f"{side}{i}" for side in norms for i in range(layers)):
        kinds = ("self",) if part.startswith("encoder") else ("self", "other")
        shapes = {f"{kind}_{name}": (hidden, hidden) for kind in kinds for name in ("q", "k", "v", "out")}
        for name, shape in {**shapes, "up": (hidden, 4 * hidden), "down": (4 * hidden, hidden)}.items():
            weights[f"{part}_{name}"] = normal(random, *shape)
        for name in ("up", "down"):
            weights[f"{part}_{name}_bias"] = normal(random, weights[f"{part}_{name}"].shape[1], scale=0.02)
        norms = [*norms, f"{part}_ff", *(f"{part}_{kind}" for kind in kinds)]
    for name in norms:
        weights[f"{name}_scale"] = normal(random, hidden, scale=0.02) + np.float32(1.0)
        weights[f"{name}_shift"] = normal(random, hidden, scale=0.02)
    return weights


def make(preset="small", seed=0):
    """The program and its arguments ``(words, lengths, weights, heads, layers, count)``."""
    batch, length, hidden, heads, layers, count, vocabulary = PRESETS[preset]
    random = np.random.default_rng(seed)
    words = random.integers(0, vocabulary, (batch, length))
    lengths = random.integers(length // 2, length + 1, batch)
    return translate, (words, lengths, make_weights(hidden, layers, length, vocabulary, random), heads, layers, count)
