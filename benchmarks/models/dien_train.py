"""DIEN (deep interest evolution network), one training step, in plain NumPy: forward, gradients by hand, Adam.

The papers (both on a V100, batch 256): this is FusionStitching 2020's largest workload: 10,406 memory-intensive kernels
a step in TensorFlow, 6,842 under XLA, which is slower than TensorFlow, and 2,109 under FusionStitching. AStitch gives
the training times alone: 1.40 times as fast as TensorFlow, XLA 0.77.

Faithful: the model of ``dien_infer`` and the auxiliary loss: a small network (100, 50, 2 units) tells from each state of
the GRU the behaviour that came next from one that did not; both cross-entropies are of softmax + 1e-8; gradients of the
embedding tables are scattered sums; Adam for every weight.
Cut: the recurrences are unrolled 10 of 100 steps. Changed: as in ``dien_infer``; the row-reduce <750080,32> comes twice
here, forward and for the gradient of the softmax.
"""

from __future__ import annotations

import numpy as np
from dien import (
    attend_backward,
    batch_norm,
    batch_norm_backward,
    decide_backward,
    embed_items,
    embed_items_backward,
    forward,
    gru_backward,
    long_interest_backward,
    make_batch,
    make_weights,
    sigmoid_layers,
    sigmoid_layers_backward,
)
from layers import adam, embedding_backward, softmax, softmax_backward

PRESETS = {  # batch, steps, long history, width, items, categories, units: attention, auxiliary network, network
    "small": (4, 2, 10, 4, 20, 5, (8, 4), (6, 5), (10, 6)),
    "full": (256, 10, 2930, 16, 50000, 1000, (80, 40), (100, 50), (200, 80)),
}
PAPER = {
    "fs20": {"batch": 256, "kernels": {"tensorflow": 10406, "xla": 6842, "fs20": 2109},
             "copies": {"tensorflow": 1391, "xla": 1996, "fs20": 1395},
             "end_to_end_ms": {"tensorflow": 137.56, "xla": 177.16, "fs20": 97.72},
             "memory_ms": {"tensorflow": 32.54, "xla": 37.50, "fs20": 35.84}},
    "astitch": {"batch": 256, "speedup_over_tensorflow": {"xla": 0.77, "astitch": 1.40}},
}


def auxiliary_loss(states, clicked, others, mask, weights):
    """The mean cross-entropy of telling the next behaviour (``clicked``) from another, given the state before."""
    loss, caches = 0.0, []
    for behaviours, is_click in ((clicked, True), (others, False)):
        x = np.concatenate([states, behaviours], axis=-1)
        x, norm_cache = batch_norm(x, weights, "auxiliary")
        x, layers_cache = sigmoid_layers(x, weights, "auxiliary")
        likely, _ = softmax(x)
        chance = likely[:, :, 0] + 1e-8
        chance = chance if is_click else 1.0 - chance
        loss = loss - np.mean(np.log(chance) * mask)
        caches.append((norm_cache, layers_cache, likely, chance, is_click))
    return loss, (caches, mask)


def auxiliary_loss_backward(cache, gradients):
    """The gradients of states, clicked and others."""
    caches, mask = cache
    found = []
    for norm_cache, layers_cache, likely, chance, is_click in caches:
        inner = -mask / chance / mask.size
        inner = (inner if is_click else -inner)[:, :, None] * (np.arange(2) == 0)
        inner = sigmoid_layers_backward(layers_cache, softmax_backward(likely, inner), gradients, "auxiliary")
        found.append(np.split(batch_norm_backward(norm_cache, inner, gradients, "auxiliary"), 2, axis=-1))
    (states, clicked), (more, others) = found
    return states + more, clicked, others


def loss_and_gradients(batch, weights):
    """The loss of a batch and its gradient for every weight."""
    result, cache = forward(batch, weights)
    recent, interests, mask, item, pooled, gru_cache, attend_cache, augru_cache, long_cache, decide_cache = cache
    other = embed_items(batch["other_items"], batch["other_categories"], weights)
    there = mask[:, 1:].astype(recent.dtype)
    auxiliary, auxiliary_cache = auxiliary_loss(interests[:, :-1], recent[:, 1:], other[:, 1:], there, weights)
    wanted = (batch["clicked"][:, None] != np.arange(2)).astype(result.dtype)
    loss = auxiliary - np.mean(np.log(result) * wanted)

    gradients = {}
    inner = decide_backward(decide_cache, -wanted / result / result.size, gradients)
    width, hidden = weights["users"].shape[1], item.shape[1]
    user, to_item, to_pooled, product, evolved = np.split(inner, [width + i * hidden for i in range(4)], axis=1)
    from_augru, scores = gru_backward(augru_cache, None, evolved, gradients, "augru")
    from_attention, to_interests = attend_backward(attend_cache, scores, gradients)
    from_long, history = long_interest_backward(long_cache, to_pooled + product * item)
    states, clicked, others = auxiliary_loss_backward(auxiliary_cache, gradients)
    to_interests = to_interests + from_augru + np.pad(states, ((0, 0), (0, 1), (0, 0)))
    to_recent, _ = gru_backward(gru_cache, to_interests, None, gradients, "gru")
    shifted = ((0, 0), (1, 0), (0, 0))
    to_recent = to_recent + np.pad(clicked, shifted)
    to_item = to_item + product * pooled + from_attention + from_long

    gradients["users"] = embedding_backward((weights["users"], batch["users"]), user)
    tables = {name: np.zeros_like(weights[name]) for name in ("items", "categories")}
    for name, gradient in (("", to_item), ("recent_", to_recent), ("other_", np.pad(others, shifted)), ("long_", history)):
        embed_items_backward(tables, gradient, batch[f"{name}items"], batch[f"{name}categories"])
    return loss, {**gradients, **tables}


def train(batch, weights, means, squares, step):
    """The new weights and Adam's moments, then the loss."""
    loss, gradients = loss_and_gradients(batch, weights)
    return *adam(weights, means, squares, gradients, step), loss


def make(preset="small", seed=0):
    """The program and its arguments ``(batch, weights, means, squares, step)``."""
    batch, steps, history, width, items, categories, *units = PRESETS[preset]
    weights = make_weights(width, items, categories, *units, seed)
    zeros = [{name: np.zeros_like(w) for name, w in weights.items()} for _ in range(2)]
    return train, (make_batch(batch, steps, history, items, categories, seed), weights, *zeros, np.float32(1.0))
