"""The Transformer's layers, forward and backward, and its weights: ``transformer_infer`` and ``transformer_train`` use them.

As in ``layers``: ``layer(...)`` gives ``(result, cache)``, ``layer_backward(cache, gradient)`` the gradients of what the
layer takes. Weights are one dictionary; a layer's backward writes the gradients of its own to such a dictionary.
The form is Tensor2Tensor's: normalise, then the layer, then dropout and the residual.
"""

from __future__ import annotations

import math

import numpy as np
from layers import (
    attention,
    attention_backward,
    dropout,
    dropout_backward,
    normal,
    relu,
    relu_backward,
)
from named import dense, dense_backward, normed, normed_backward


# ---------------------------------------------------------------- words and positions
def embed(tokens, table):
    """Rows of the table, scaled up; the sinusoids of the positions are added."""
    length, hidden = tokens.shape[-1], table.shape[1]
    return table[tokens] * hidden**0.5 + positions(length, hidden)


def positions(length, hidden):
    """Sines and cosines of the position, [length, hidden], with periods from 6 to 60,000."""
    rates = np.exp(np.arange(hidden // 2, dtype=np.float32) * (-math.log(1e4) / (hidden // 2 - 1)))
    angles = np.arange(length, dtype=np.float32)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def padding_bias(tokens):
    """What is added to the scores of keys: 0, or -1e9 where the token is the padding, 0; [batch, 1, 1, keys]."""
    return (tokens == 0).astype(np.float32)[:, None, None] * -1e9


# ---------------------------------------------------------------- layers
def product_backward(x, weight, gradient):
    """The gradients of x and weight of ``x @ weight``."""
    rows, columns = x.reshape(-1, weight.shape[0]), gradient.reshape(-1, weight.shape[1])
    return gradient @ weight.T, rows.T @ columns


def dropped(x, noise, name):
    """Dropout with the random numbers of this name; nothing without noise."""
    return dropout(x, noise[name]) if noise else (x, 1.0)


def ask(x, keys, values, weights, name, heads, bias):
    """Attention of ``x`` to projected keys and values."""
    mixed, inner = attention(x @ weights[f"{name}/query"], keys, values, heads, bias)
    return mixed @ weights[f"{name}/out"], (mixed, inner)


def attend(x, memory, weights, name, heads, bias):
    """Attention of ``x`` to ``memory``, both [batch, length, hidden]."""
    kernels = [weights[f"{name}/{each}"] for each in ("query", "key", "value", "out")]
    result, cache = ask(x, memory @ kernels[1], memory @ kernels[2], weights, name, heads, bias)
    return result, (x, memory, kernels, cache)


def attend_backward(cache, gradient, gradients, name):
    """The gradients of x and memory."""
    x, memory, (query, key, value, out), (mixed, inner) = cache
    gradient, gradients[f"{name}/out"] = product_backward(mixed, out, gradient)
    to_query, to_key, to_value = attention_backward(inner, gradient)
    to_x, gradients[f"{name}/query"] = product_backward(x, query, to_query)
    from_key, gradients[f"{name}/key"] = product_backward(memory, key, to_key)
    from_value, gradients[f"{name}/value"] = product_backward(memory, value, to_value)
    return to_x, from_key + from_value


def feed_forward(x, weights, name, noise=None):
    """Up, rectify, drop, down."""
    inner, up = dense(x, weights, f"{name}/up")
    inner, kink = relu(inner)
    inner, mask = dropped(inner, noise, f"{name}/relu")
    result, down = dense(inner, weights, f"{name}/down")
    return result, (up, kink, mask, down)


def feed_forward_backward(cache, gradient, gradients, name):
    up, kink, mask, down = cache
    inner = dropout_backward(mask, dense_backward(down, gradient, gradients, f"{name}/down"))
    return dense_backward(up, relu_backward(kink, inner), gradients, f"{name}/up")


def layer(x, memory, biases, weights, name, heads, noise=None):
    """A layer of the decoder; of the encoder, if ``memory`` is None. ``biases`` are the scores' own and the memory's."""
    caches = []
    for part in ("self", "memory", "feed"):
        if part == "memory" and memory is None:
            continue
        inner, norm = normed(x, weights, f"{name}/{part}")
        if part == "feed":
            found, cache = feed_forward(inner, weights, name, noise)
        else:
            found, cache = attend(inner, inner if part == "self" else memory, weights, f"{name}/{part}", heads,
                                  biases[part == "memory"])
        found, mask = dropped(found, noise, f"{name}/{part}")
        x = x + found
        caches.append((part, norm, cache, mask))
    return x, caches


def layer_backward(caches, gradient, gradients, name):
    """The gradients of x and memory (None for the encoder)."""
    to_memory = None
    for part, norm, cache, mask in reversed(caches):
        found = dropout_backward(mask, gradient)
        if part == "feed":
            found = feed_forward_backward(cache, found, gradients, name)
        else:
            found, other = attend_backward(cache, found, gradients, f"{name}/{part}")
            if part == "self":
                found = found + other
            else:
                to_memory = other
        gradient = gradient + normed_backward(norm, found, gradients, f"{name}/{part}")
    return gradient, to_memory


def encode(source, weights, heads, count, noise=None):
    """The memory [batch, length, hidden] of source tokens: ``count`` layers and a layernorm."""
    x, mask = dropped(embed(source, weights["words"]), noise, "encoder")
    bias, caches = padding_bias(source), []
    for i in range(count):
        x, cache = layer(x, None, (bias,), weights, f"encoder/{i}", heads, noise)
        caches.append(cache)
    x, norm = normed(x, weights, "encoder")
    return x, (mask, caches, norm)


def encode_backward(cache, gradient, gradients):
    """The gradient of the embedded source."""
    mask, caches, norm = cache
    gradient = normed_backward(norm, gradient, gradients, "encoder")
    for i, each in reversed(list(enumerate(caches))):
        gradient, _ = layer_backward(each, gradient, gradients, f"encoder/{i}")
    return dropout_backward(mask, gradient)


# ---------------------------------------------------------------- arguments
def make_weights(hidden, inner, encoders, decoders, vocabulary, seed=0):
    """Random float32 weights as Tensor2Tensor starts with; one table of words for source, target and output."""
    random = np.random.default_rng(seed)
    weights = {"words": normal(random, vocabulary, hidden, scale=hidden**-0.5)}

    def norm(name):
        weights[f"{name}/scale"], weights[f"{name}/shift"] = np.ones(hidden, np.float32), np.zeros(hidden, np.float32)

    for side, count in (("encoder", encoders), ("decoder", decoders)):
        for i in range(count):
            for part in ("self", "memory") if side == "decoder" else ("self",):
                for each in ("query", "key", "value", "out"):
                    weights[f"{side}/{i}/{part}/{each}"] = normal(random, hidden, hidden)
                norm(f"{side}/{i}/{part}")
            norm(f"{side}/{i}/feed")
            for each, (rows, columns) in (("up", (hidden, inner)), ("down", (inner, hidden))):
                weights[f"{side}/{i}/{each}"] = normal(random, rows, columns)
                weights[f"{side}/{i}/{each}/bias"] = np.zeros(columns, np.float32)
        norm(side)
    return weights
