"""DIEN's layers, forward and backward, its weights and its batches: ``dien_infer`` and ``dien_train`` put them together.

As in ``layers``: ``layer(...)`` gives ``(result, cache)``, ``layer_backward(cache, gradient)`` the gradients of what the
layer takes. Weights are one dictionary; a layer's backward adds the gradients of its own to such a dictionary.
"""

from __future__ import annotations

import numpy as np
from layers import gru_cell, gru_cell_backward, linear, linear_backward, normal, sigmoid, softmax, softmax_backward
from named import add_to, dense, dense_backward

PADDING = -(2.0**32) + 1  # the score of a step that is not there


# ---------------------------------------------------------------- dense layers and their activations
def prelu(x, slope):
    """x, or a learned multiple of it where it is negative."""
    return np.maximum(x, 0.0) + slope * np.minimum(x, 0.0), (x, slope)


def prelu_backward(cache, gradient):
    x, slope = cache
    return np.where(x > 0.0, gradient, slope * gradient), np.sum(gradient * np.minimum(x, 0.0), axis=0)


def normalise(x, epsilon):
    """Batch-norm without scale and shift: columns with mean 0 and variance 1 over all rows."""
    rows = tuple(range(x.ndim - 1))
    centred = x - np.mean(x, axis=rows)
    rate = 1.0 / np.sqrt(np.mean(np.square(centred), axis=rows) + epsilon)
    return centred * rate, (centred * rate, rate)


def normalise_backward(cache, gradient):
    result, rate = cache
    rows = tuple(range(result.ndim - 1))
    return rate * (gradient - np.mean(gradient, axis=rows) - result * np.mean(gradient * result, axis=rows))


def batch_norm(x, weights, name):
    """Batch-norm as it is in training; the click probabilities of a test use a batch's own mean as well."""
    centred, cache = normalise(x, 1e-3)
    return centred * weights[f"{name}/scale"] + weights[f"{name}/shift"], (cache, weights[f"{name}/scale"])


def batch_norm_backward(cache, gradient, gradients, name):
    inner, scale = cache
    rows = tuple(range(gradient.ndim - 1))
    add_to(gradients, f"{name}/scale", np.sum(gradient * inner[0], axis=rows))
    add_to(gradients, f"{name}/shift", np.sum(gradient, axis=rows))
    return normalise_backward(inner, gradient * scale)


def dice(x, slope):
    """A PReLU whose bend is a sigmoid of the normalised value (DIEN's data-adaptive activation)."""
    centred, inner = normalise(x, 1e-9)
    gate = sigmoid(centred)
    return slope * (1.0 - gate) * x + gate * x, (x, slope, gate, inner)


def dice_backward(cache, gradient):
    x, slope, gate, inner = cache
    bend = gradient * x * (1.0 - slope) * gate * (1.0 - gate)
    return (gradient * (slope * (1.0 - gate) + gate) + normalise_backward(inner, bend),
            np.sum(gradient * (1.0 - gate) * x, axis=0))


def sigmoid_layers(x, weights, name):
    """Two dense layers with a sigmoid and a third without: the form of the attention and of the auxiliary network."""
    first, cache1 = dense(x, weights, f"{name}/first")
    first = sigmoid(first)
    second, cache2 = dense(first, weights, f"{name}/second")
    second = sigmoid(second)
    third, cache3 = dense(second, weights, f"{name}/third")
    return third, (cache1, cache2, cache3, first, second)


def sigmoid_layers_backward(cache, gradient, gradients, name):
    cache1, cache2, cache3, first, second = cache
    gradient = dense_backward(cache3, gradient, gradients, f"{name}/third") * second * (1.0 - second)
    gradient = dense_backward(cache2, gradient, gradients, f"{name}/second") * first * (1.0 - first)
    return dense_backward(cache1, gradient, gradients, f"{name}/first")


# ---------------------------------------------------------------- embeddings
def embed_items(items, categories, weights):
    """The item's embedding beside its category's."""
    return np.concatenate([weights["items"][items], weights["categories"][categories]], axis=-1)


def embed_items_backward(tables, gradient, items, categories):
    """Add to the gradients of both tables, in place."""
    own, other = np.split(gradient, 2, axis=-1)
    np.add.at(tables["items"], items, own)
    np.add.at(tables["categories"], categories, other)


# ---------------------------------------------------------------- recurrence
def augru_cell(x, hidden, score, gate_kernel, gate_bias, kernel, bias):
    """A GRU's step whose update gate is scaled by ``1 - score`` ([batch, 1])."""
    gates, gate_product = linear(np.concatenate([x, hidden], axis=1), gate_kernel, gate_bias)
    r, u = np.split(sigmoid(gates), 2, axis=1)
    inner, product = linear(np.concatenate([x, r * hidden], axis=1), kernel, bias)
    candidate = np.tanh(inner)
    update = (1.0 - score) * u
    cache = gate_product, product, x.shape[1], hidden, r, u, candidate, score, update
    return update * hidden + (1.0 - update) * candidate, cache


def augru_cell_backward(cache, gradient):
    """The gradients of x, hidden, gate_kernel, gate_bias, kernel, bias and score."""
    gate_product, product, width, hidden, r, u, candidate, score, update = cache
    inner = gradient * (1.0 - update) * (1.0 - candidate * candidate)
    joint, kernel, bias = linear_backward(product, inner)
    reset, turned = joint[:, width:], gradient * (hidden - candidate)
    gates = np.concatenate([reset * hidden * r * (1.0 - r), turned * (1.0 - score) * u * (1.0 - u)], axis=1)
    gate_joint, gate_kernel, gate_bias = linear_backward(gate_product, gates)
    return (joint[:, :width] + gate_joint[:, :width], gradient * update + reset * r + gate_joint[:, width:],
            gate_kernel, gate_bias, kernel, bias, -np.sum(turned * u, axis=1, keepdims=True))


def gru(x, lengths, weights, name, scores=None):
    """All states [batch, steps, hidden], zero after each row's end, and the last: past its end a row keeps its state."""
    kernels = [weights[f"{name}/{each}"] for each in ("gates", "gates/bias", "candidate", "candidate/bias")]
    state, states, caches = np.zeros_like(x[:, 0]), [], []
    for step in range(x.shape[1]):
        alive = (step < lengths)[:, None]
        if scores is None:
            new, cache = gru_cell(x[:, step], state, *kernels)
        else:
            new, cache = augru_cell(x[:, step], state, scores[:, step, None], *kernels)
        states.append(np.where(alive, new, 0.0))
        state = np.where(alive, new, state)
        caches.append((alive, cache))
    return (np.stack(states, axis=1), state), caches


def gru_backward(caches, states_gradient, state_gradient, gradients, name):
    """The gradients of x and scores (None without them); either incoming gradient may be None."""
    x, scores = [], []
    for step, (alive, cache) in reversed(list(enumerate(caches))):
        new = 0.0 if state_gradient is None else state_gradient
        new = np.where(alive, new if states_gradient is None else new + states_gradient[:, step], 0.0)
        found = gru_cell_backward(cache, new) if len(cache) == 7 else augru_cell_backward(cache, new)
        kept = found[1]
        state_gradient = kept if state_gradient is None else np.where(alive, kept, state_gradient)
        for each, gradient in zip(("gates", "gates/bias", "candidate", "candidate/bias"), found[2:6], strict=True):
            add_to(gradients, f"{name}/{each}", gradient)
        x.append(found[0])
        scores += found[6:]
    return np.stack(x[::-1], axis=1), np.concatenate(scores[::-1], axis=1) if scores else None


# ---------------------------------------------------------------- what the item makes of the history
def attend(item, states, mask, weights):
    """How much each state [batch, steps] matters to the item."""
    query, cache0 = dense(item, weights, "attention/query")
    query, cache1 = prelu(query, weights["attention/slope"])
    queries = np.broadcast_to(query[:, None], states.shape)
    joined = np.concatenate([queries, states, queries - states, queries * states], axis=-1)
    scores, cache2 = sigmoid_layers(joined, weights, "attention")
    result, _ = softmax(np.where(mask, scores[:, :, 0], PADDING))
    return result, (cache0, cache1, cache2, queries, states, mask, result)


def attend_backward(cache, gradient, gradients):
    """The gradients of item and states."""
    cache0, cache1, cache2, queries, states, mask, result = cache
    scores = np.where(mask, softmax_backward(result, gradient), 0.0)
    joined = sigmoid_layers_backward(cache2, scores[:, :, None], gradients, "attention")
    query, state, difference, product = np.split(joined, 4, axis=-1)
    query = np.sum(query + difference + product * states, axis=1)
    query, gradients["attention/slope"] = prelu_backward(cache1, query)
    return dense_backward(cache0, query, gradients, "attention/query"), state - difference + product * queries


def long_interest(item, history, mask):
    """The whole history as one vector: behaviours weighted by their product with the item."""
    scores = np.sum(item[:, None] * history, axis=-1)  # in the full preset a row-reduce <750080,32>
    scores, _ = softmax(np.where(mask, scores, PADDING))
    return np.sum(scores[:, :, None] * history, axis=1), (item, history, mask, scores)


def long_interest_backward(cache, gradient):
    """The gradients of item and history."""
    item, history, mask, scores = cache
    inner = softmax_backward(scores, np.sum(gradient[:, None] * history, axis=-1))
    inner = np.where(mask, inner, 0.0)[:, :, None]
    return np.sum(inner * history, axis=1), scores[:, :, None] * gradient[:, None] + inner * item[:, None]


# ---------------------------------------------------------------- the whole model
def decide(x, weights):
    """Probabilities [batch, 2] of a click and of none."""
    x, cache0 = batch_norm(x, weights, "network")
    x, cache1 = dense(x, weights, "network/first")
    x, cache2 = dice(x, weights["network/slope1"])
    x, cache3 = dense(x, weights, "network/second")
    x, cache4 = dice(x, weights["network/slope2"])
    x, cache5 = dense(x, weights, "network/third")
    result, cache6 = softmax(x)
    return result + 1e-8, (cache0, cache1, cache2, cache3, cache4, cache5, cache6)


def decide_backward(cache, gradient, gradients):
    x = dense_backward(cache[5], softmax_backward(cache[6], gradient), gradients, "network/third")
    x, gradients["network/slope2"] = dice_backward(cache[4], x)
    x = dense_backward(cache[3], x, gradients, "network/second")
    x, gradients["network/slope1"] = dice_backward(cache[2], x)
    x = dense_backward(cache[1], x, gradients, "network/first")
    return batch_norm_backward(cache[0], x, gradients, "network")


def forward(batch, weights):
    """Click probabilities [batch, 2]; ``batch`` holds users, items, recent and long histories of items and categories."""
    user = weights["users"][batch["users"]]
    item = embed_items(batch["items"], batch["categories"], weights)
    recent = embed_items(batch["recent_items"], batch["recent_categories"], weights)
    history = embed_items(batch["long_items"], batch["long_categories"], weights)
    mask = np.arange(recent.shape[1]) < batch["lengths"][:, None]
    (interests, _), gru_cache = gru(recent, batch["lengths"], weights, "gru")
    scores, attend_cache = attend(item, interests, mask, weights)
    (_, evolved), augru_cache = gru(interests, batch["lengths"], weights, "augru", scores)
    long_mask = np.arange(history.shape[1]) < batch["long_lengths"][:, None]
    pooled, long_cache = long_interest(item, history, long_mask)
    result, decide_cache = decide(np.concatenate([user, item, pooled, item * pooled, evolved], axis=1), weights)
    return result, (recent, interests, mask, item, pooled, gru_cache, attend_cache, augru_cache, long_cache, decide_cache)


# ---------------------------------------------------------------- arguments
def make_weights(width, items, categories, attention, auxiliary, network, seed=0):
    """Random float32 weights; the pairs are the units of the two inner layers of the three dense networks."""
    random = np.random.default_rng(seed)
    hidden, weights = 2 * width, {}
    inputs = width + 4 * hidden
    for table, rows in (("users", items), ("items", items), ("categories", categories)):
        weights[table] = normal(random, rows, width, scale=0.3)

    def layer(name, rows, columns, bias=0.0):
        weights[name] = normal(random, rows, columns)
        weights[f"{name}/bias"] = np.full(columns, bias, np.float32)

    for cell in ("gru", "augru"):
        layer(f"{cell}/gates", 2 * hidden, 2 * hidden, 1.0)
        layer(f"{cell}/candidate", 2 * hidden, hidden)
    layer("attention/query", hidden, hidden)
    weights["attention/slope"] = np.full(hidden, 0.1, np.float32)
    for name, rows, (first, second), last in (("attention", 4 * hidden, attention, 1), ("network", inputs, network, 2),
                                              ("auxiliary", 2 * hidden, auxiliary, 2)):
        if name != "attention":
            weights[f"{name}/scale"], weights[f"{name}/shift"] = np.ones(rows, np.float32), np.zeros(rows, np.float32)
        layer(f"{name}/first", rows, first)
        layer(f"{name}/second", first, second)
        layer(f"{name}/third", second, last)
    weights["network/slope1"], weights["network/slope2"] = (np.full(n, 0.1, np.float32) for n in network)
    return weights


def make_batch(batch, steps, history, items, categories, seed=0):
    """Random users, items and histories, and behaviours that were not taken (``others``)."""
    random = np.random.default_rng(seed)

    def numbers(below, *shape, start=0):
        return random.integers(start, below, shape, dtype=np.int32)

    found = {"users": numbers(items, batch), "items": numbers(items, batch), "categories": numbers(categories, batch)}
    for name, length in (("recent", steps), ("long", history), ("other", steps)):
        found[f"{name}_items"] = numbers(items, batch, length)
        found[f"{name}_categories"] = numbers(categories, batch, length)
    return {**found, "lengths": numbers(steps + 1, batch, start=2), "long_lengths": numbers(history + 1, batch, start=1),
            "clicked": numbers(2, batch)}
