"""BERT, one step of pre-training, in plain NumPy: masked words and next sentence, gradients by hand, Adam.

The papers (V100): FusionStitching 2020 trains at batch 32: of TensorFlow's 561 memory-intensive kernels XLA leaves 200 and
FusionStitching 98, 1.38 times as fast as TensorFlow end to end and 1.04 times as XLA, as products dominate. AStitch
trains at batch 12: 1.28 over TensorFlow, XLA 1.27. Neither says which task; this is the one that Google's code comes with.

Faithful: Google's TensorFlow implementation at the base size: words by gather, token types by a one-hot product,
positions, dropout, layernorm after each residual, GELU with erf, the masked words' logits by the words' own table of
30,522, the pooler and two classes for the next sentence; gradients clipped by their joint norm, Adam with weight decay.
Cut: 2 layers of 12, 64 tokens of 128 with 10 masked words each of 20. Left out: dropout of attention's weights and of the
last layer; the mask of how many words are masked. The random numbers of dropout are arguments; in TensorFlow they are
made by a kernel.
"""

from __future__ import annotations

import numpy as np
from layers import (
    attention,
    attention_backward,
    clip_by_global_norm,
    cross_entropy,
    cross_entropy_backward,
    dropout,
    dropout_backward,
    gelu,
    gelu_backward,
    normal,
)
from named import dense, dense_backward, normed, normed_backward

PRESETS = {  # batch, tokens, masked words, hidden, heads, layers, words
    "small": (2, 6, 2, 8, 2, 1, 20),
    "full": (12, 64, 10, 768, 12, 2, 30522),
}
PAPER = {
    "fs20": {"batch": 32, "kernels": {"tensorflow": 561, "xla": 200, "fs20": 98},
             "copies": {"tensorflow": 102, "xla": 97, "fs20": 20},
             "end_to_end_ms": {"tensorflow": 71.84, "xla": 53.90, "fs20": 51.96},
             "memory_ms": {"tensorflow": 28.45, "xla": 9.56, "fs20": 7.02}},
    "astitch": {"batch": 12, "speedup_over_tensorflow": {"xla": 1.27, "astitch": 1.28}},
}
EPSILON = 1e-12
PARTS = ("query", "key", "value")


# ---------------------------------------------------------------- the encoder
def layer(x, bias, weights, noise, name, heads):
    """Attention and a feed-forward network, each followed by dropout, the residual and a layernorm."""
    projected, products = zip(*(dense(x, weights, f"{name}/{part}") for part in PARTS), strict=True)
    mixed, inner = attention(*projected, heads, bias)
    found, out = dense(mixed, weights, f"{name}/out")
    found, mask1 = dropout(found, noise[f"{name}/out"])
    x, norm1 = normed(x + found, weights, f"{name}/norm1", EPSILON)
    found, up = dense(x, weights, f"{name}/up")
    found, bend = gelu(found)
    found, down = dense(found, weights, f"{name}/down")
    found, mask2 = dropout(found, noise[f"{name}/down"])
    x, norm2 = normed(x + found, weights, f"{name}/norm2", EPSILON)
    return x, (products, inner, out, mask1, norm1, up, bend, down, mask2, norm2)


def layer_backward(cache, gradient, gradients, name):
    """The gradient of x."""
    products, inner, out, mask1, norm1, up, bend, down, mask2, norm2 = cache
    gradient = normed_backward(norm2, gradient, gradients, f"{name}/norm2")
    found = dense_backward(down, dropout_backward(mask2, gradient), gradients, f"{name}/down")
    gradient = gradient + dense_backward(up, gelu_backward(bend, found), gradients, f"{name}/up")
    gradient = normed_backward(norm1, gradient, gradients, f"{name}/norm1")
    found = dense_backward(out, dropout_backward(mask1, gradient), gradients, f"{name}/out")
    for part, product, each in zip(PARTS, products, attention_backward(inner, found), strict=True):
        gradient = gradient + dense_backward(product, each, gradients, f"{name}/{part}")
    return gradient


def encode(batch, weights, noise, heads, count):
    """The last layer's [batch, tokens, hidden]."""
    tokens = batch["words"]
    one_hot = (batch["types"][:, :, None] == np.arange(2)).astype(weights["types"].dtype)
    x = weights["words"][tokens] + one_hot @ weights["types"] + weights["positions"][: tokens.shape[1]]
    x, norm = normed(x, weights, "embedding", EPSILON)
    x, mask = dropout(x, noise["embedding"])
    bias = (np.arange(tokens.shape[1]) >= batch["lengths"][:, None]).astype(x.dtype)[:, None, None] * -10000.0
    caches = []
    for i in range(count):
        x, cache = layer(x, bias, weights, noise, f"layer{i}", heads)
        caches.append(cache)
    return x, (one_hot, norm, mask, caches)


def encode_backward(cache, gradient, gradients, batch):
    """Write all gradients but that of the words; give the gradient of what was gathered from their table."""
    one_hot, norm, mask, caches = cache
    for i, each in reversed(list(enumerate(caches))):
        gradient = layer_backward(each, gradient, gradients, f"layer{i}")
    gradient = normed_backward(norm, dropout_backward(mask, gradient), gradients, "embedding")
    gradients["positions"] = np.sum(gradient, axis=0)
    gradients["types"] = one_hot.reshape(-1, 2).T @ gradient.reshape(-1, gradient.shape[-1])
    return gradient


# ---------------------------------------------------------------- the two tasks
def masked_words(x, places, labels, weights):
    """How well the words at ``places`` (in all tokens of the batch) are guessed."""
    inner, transform = dense(x.reshape(-1, x.shape[-1])[places], weights, "transform")
    inner, bend = gelu(inner)
    inner, norm = normed(inner, weights, "transform", EPSILON)
    loss, cache = cross_entropy(inner @ weights["words"].T + weights["words/bias"], labels)
    return loss, (x, places, transform, bend, norm, inner, cache, weights["words"])


def masked_words_backward(cache, gradients):
    """The gradient of x."""
    x, places, transform, bend, norm, inner, cache, words = cache
    logits = cross_entropy_backward(cache)
    gradients["words"], gradients["words/bias"] = logits.T @ inner, np.sum(logits, axis=0)
    gradient = gelu_backward(bend, normed_backward(norm, logits @ words, gradients, "transform"))
    result = np.zeros_like(x).reshape(-1, x.shape[-1])
    np.add.at(result, places, dense_backward(transform, gradient, gradients, "transform"))
    return result.reshape(x.shape)


def next_sentence(x, labels, weights):
    """How well the first token tells whether the second sentence follows the first."""
    pooled, pool = dense(x[:, 0], weights, "pool")
    pooled = np.tanh(pooled)
    logits, classify = dense(pooled, weights, "classify")
    loss, cache = cross_entropy(logits, labels)
    return loss, (x.shape[1], pool, pooled, classify, cache)


def next_sentence_backward(cache, gradients):
    """The gradient of x."""
    length, pool, pooled, classify, cache = cache
    gradient = dense_backward(classify, cross_entropy_backward(cache), gradients, "classify")
    gradient = dense_backward(pool, gradient * (1.0 - pooled * pooled), gradients, "pool")
    return np.pad(gradient[:, None], ((0, 0), (0, length - 1), (0, 0)))


# ---------------------------------------------------------------- a step
def loss_and_gradients(batch, weights, noise, heads, count):
    """The loss of both tasks and its gradient for every weight."""
    x, cache = encode(batch, weights, noise, heads, count)
    words_loss, words_cache = masked_words(x, batch["places"], batch["masked"], weights)
    next_loss, next_cache = next_sentence(x, batch["next"], weights)
    gradients = {}
    gradient = masked_words_backward(words_cache, gradients) + next_sentence_backward(next_cache, gradients)
    gradient = encode_backward(cache, gradient, gradients, batch)
    np.add.at(gradients["words"], batch["words"], gradient)
    return words_loss + next_loss, gradients


def adam_with_decay(weights, means, squares, gradients, rate=1e-4, decay=0.9, square_decay=0.999, epsilon=1e-6):
    """BERT's optimiser: Adam without the correction of the first steps; matrices decay."""
    means = {name: decay * means[name] + (1.0 - decay) * g for name, g in gradients.items()}
    squares = {name: square_decay * squares[name] + (1.0 - square_decay) * g * g for name, g in gradients.items()}
    updates = {name: means[name] / (np.sqrt(squares[name]) + epsilon) for name in gradients}
    updates = {name: u if weights[name].ndim == 1 else u + 0.01 * weights[name] for name, u in updates.items()}
    return {name: weights[name] - rate * u for name, u in updates.items()}, means, squares


def train(batch, weights, means, squares, noise, heads, count):
    """The new weights and Adam's moments, then the loss."""
    loss, gradients = loss_and_gradients(batch, weights, noise, heads, count)
    gradients, _ = clip_by_global_norm(gradients, 1.0)
    return *adam_with_decay(weights, means, squares, gradients), loss


# ---------------------------------------------------------------- arguments
def make_weights(tokens, hidden, count, vocabulary, seed=0):
    """Random float32 weights as a freshly initialised BERT has them."""
    random = np.random.default_rng(seed)
    weights = {}

    def matrix(name, rows, columns, bias=True):
        weights[name] = normal(random, rows, columns, scale=0.02)
        if bias:
            weights[f"{name}/bias"] = np.zeros(columns, np.float32)

    def norm(name):
        weights[f"{name}/scale"], weights[f"{name}/shift"] = np.ones(hidden, np.float32), np.zeros(hidden, np.float32)

    for name, rows in (("words", vocabulary), ("types", 2), ("positions", tokens)):
        matrix(name, rows, hidden, bias=False)
    norm("embedding")
    for i in range(count):
        for part in (*PARTS, "out"):
            matrix(f"layer{i}/{part}", hidden, hidden)
        norm(f"layer{i}/norm1")
        matrix(f"layer{i}/up", hidden, 4 * hidden)
        matrix(f"layer{i}/down", 4 * hidden, hidden)
        norm(f"layer{i}/norm2")
    matrix("transform", hidden, hidden)
    norm("transform")
    weights["words/bias"] = np.zeros(vocabulary, np.float32)
    matrix("pool", hidden, hidden)
    matrix("classify", hidden, 2)
    return weights


def make_batch(batch, tokens, masked, vocabulary, seed=0):
    """Random words, of which ``masked`` a row are to be guessed."""
    random = np.random.default_rng(seed)
    places = np.sort(random.permuted(np.tile(np.arange(tokens), (batch, 1)), axis=1)[:, :masked], axis=1)
    return {"words": random.integers(0, vocabulary, (batch, tokens)),
            "types": (np.arange(tokens) >= random.integers(1, tokens, (batch, 1))).astype(np.int32),
            "lengths": random.integers(tokens // 2, tokens + 1, batch),
            "places": (places + tokens * np.arange(batch)[:, None]).reshape(-1),
            "masked": random.integers(0, vocabulary, batch * masked), "next": random.integers(0, 2, batch)}


def make(preset="small", seed=0):
    """The program and its arguments ``(batch, weights, means, squares, noise, heads, count)``."""
    batch, tokens, masked, hidden, heads, count, vocabulary = PRESETS[preset]
    random = np.random.default_rng(seed)
    weights = make_weights(tokens, hidden, count, vocabulary, seed)
    zeros = [{name: np.zeros_like(w) for name, w in weights.items()} for _ in range(2)]
    names = ["embedding", *(f"layer{i}/{part}" for i in range(count) for part in ("out", "down"))]
    noise = {name: random.random((batch, tokens, hidden), np.float32) for name in names}
    return train, (make_batch(batch, tokens, masked, vocabulary, seed), weights, *zeros, noise, heads, count)
