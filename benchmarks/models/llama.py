"""Llama 3 8B, forward, in plain NumPy: ``llama_context`` and ``llama_token`` are its two phases.

Faithful: Meta's ``llama3/model.py``: RMSNorm before each half, 32 heads of queries over 8 of keys and values, rotary positions with
base 500,000, a cache of keys and values that each call writes into, SwiGLU of 14,336, a head over 128,256 words; no biases.
Cut: 1 of 32 layers. The angles of the positions and the causal mask are arguments, as they are computed once for all layers.
Operators: 27, as the paper counts: 24 in the layer, embedding, last norm and head.
"""

from __future__ import annotations

import numpy as np
from operators import (
    Arguments,
    add,
    embedding,
    linear,
    matmul,
    mul,
    remember,
    repeat_heads,
    rmsnorm,
    rotary,
    scale,
    silu,
    softmax,
)


def attention(x, weights, cache, angles, mask, heads, start):
    """Grouped-query attention of new positions from ``start`` on to all there are."""
    batch, length, hidden = x.shape
    width = hidden // heads[0]
    query = rotary(linear(x, weights, "query").reshape(batch, length, heads[0], width), *angles)
    key = rotary(linear(x, weights, "key").reshape(batch, length, heads[1], width), *angles)
    value = linear(x, weights, "value").reshape(batch, length, heads[1], width)
    keys, values = remember(cache[0], key, start), remember(cache[1], value, start)
    keys, values = (repeat_heads(each, heads[0] // heads[1]).transpose(0, 2, 1, 3) for each in (keys, values))
    scores = scale(matmul(query.transpose(0, 2, 1, 3), keys.transpose(0, 1, 3, 2)), width**-0.5)
    mixed = matmul(softmax(add(scores, mask)), values)
    return linear(mixed.transpose(0, 2, 1, 3).reshape(batch, length, hidden), weights, "out")


def llama(tokens, weights, cache, angles, mask, heads, start):
    """Logits of the word after each of the tokens [batch, length]; the cache is written into."""
    x = embedding(weights["words"], tokens)
    x = add(x, attention(rmsnorm(x, weights, "attention/norm"), weights, cache, angles, mask, heads, start))
    inner = rmsnorm(x, weights, "feed/norm")
    gate = silu(linear(inner, weights, "gate"))
    x = add(x, linear(mul(gate, linear(inner, weights, "up")), weights, "down"))
    return linear(rmsnorm(x, weights, "norm"), weights, "head")


def program(size, length, start, full, seed=0):
    """The program and its arguments for ``length`` new tokens behind ``start`` old ones."""
    batch, most, hidden, inner, heads, words = size
    give, weights = Arguments(full, seed), {}
    weights["words"] = give.normal(words, hidden)
    width = hidden // heads[0]
    for name in ("attention/norm", "feed/norm", "norm"):
        weights[name] = give.ones(hidden)
    for name, rows, columns in (("query", hidden, hidden), ("key", hidden, heads[1] * width), ("value", hidden, heads[1] * width),
                                ("out", hidden, hidden), ("gate", hidden, inner), ("up", hidden, inner), ("down", inner, hidden),
                                ("head", hidden, words)):
        give.linear(weights, name, rows, columns, bias=False)
    cache = tuple(give.normal(batch, most, heads[1], width) for _ in range(2))
    angle = np.arange(start, start + length)[:, None] * 500000.0 ** (-np.arange(0, width, 2) / width)
    angles = tuple(each.astype(np.float32) for each in (np.cos(angle), np.sin(angle)))
    seen = np.arange(start + length) <= np.arange(start, start + length)[:, None]
    mask = np.where(seen, 0.0, -1e9).astype(np.float32)
    return llama, (give.integers(words, batch, length), weights, cache, angles, mask, heads, start)
