"""DIEN (deep interest evolution network), inference, in plain NumPy: will this user click on this item?

The papers (both on a V100, batch 256): of TensorFlow's 3,680 memory-intensive kernels XLA leaves 2,585 and
FusionStitching 2020 815, and XLA is slower than TensorFlow; AStitch counts 2,579 and 811. AStitch names its irregular
row-reduce, <750000,32>, for which XLA launches 750,000 blocks of 32 threads.

Faithful: the operators of the published TensorFlow implementation (Zhou et al., AAAI 2019) at its sizes: items are a gathered number and
category, a GRU reads the behaviours, attention (80, 40, 1 units) weighs them against the item, an attentional GRU (AUGRU)
reads them again, a dense network with batch-norm and Dice decides; both recurrences mask padded steps as
``dynamic_rnn`` does.
Cut: the recurrences are unrolled 30 of 100 steps. Changed: embeddings are 16 wide instead of 18, and the sum of the
history is weighted by its products with the item and reads 2,930 behaviours, so that the row-reduce has the paper's
shape (256 x 2,930 = 750,080 rows of 32); the papers do not say where theirs comes from.
"""

from __future__ import annotations

import numpy as np

PRESETS = {  # batch, steps, long history, width of an embedding, items, categories, units of attention, units of the network
    "small": (2, 3, 10, 4, 20, 5, (8, 4), (10, 6)),
    "full": (256, 30, 2930, 16, 50000, 1000, (80, 40), (200, 80)),
}
PAPER = {
    "fs20": {"batch": 256, "kernels": {"tensorflow": 3680, "xla": 2585, "fs20": 815}, "copies": {"tensorflow": 225, "xla": 627, "fs20": 422},
             "end_to_end_ms": {"tensorflow": 39.48, "xla": 53.51, "fs20": 24.20},
             "memory_ms": {"tensorflow": 7.55, "xla": 6.12, "fs20": 3.51}},
    "astitch": {"batch": 256, "kernels": {"xla": 2579, "astitch": 811}, "copies": {"xla": 628, "astitch": 422},
                "speedup_over_tensorflow": {"xla": 0.73, "astitch": 1.63}, "speedup_over_xla": {"astitch": 2.23}},
}
PADDING = -(2.0**32) + 1  # the score of a step that is not there


# ---------------------------------------------------------------- layers
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x):
    """Rows of positive numbers that add up to 1."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def dense(x, layer):
    """A linear layer with a bias."""
    return x @ layer["w"] + layer["b"]


def prelu(x, slope):
    """x, or a learned multiple of it where it is negative."""
    return np.maximum(x, 0.0) + slope * np.minimum(x, 0.0)


def normalise(x, epsilon):
    """Columns with mean 0 and variance 1 over the batch."""
    mean = np.mean(x, axis=0)
    return (x - mean) / np.sqrt(np.mean(np.square(x - mean), axis=0) + epsilon)


def dice(x, slope):
    """A PReLU whose bend is a sigmoid of the normalised value (DIEN's data-adaptive activation)."""
    gate = sigmoid(normalise(x, 1e-9))
    return slope * (1.0 - gate) * x + gate * x


def embed_items(items, categories, weights):
    """The item's embedding beside its category's."""
    return np.concatenate([weights["items"][items], weights["categories"][categories]], axis=-1)


# ---------------------------------------------------------------- the parts of DIEN
def gru_step(x, state, weights, score=None):
    """A GRU's next state; with ``score`` [batch, 1] it attends: a low score keeps the state (AUGRU)."""
    joined = np.concatenate([x, state], axis=1)
    reset, update = np.split(sigmoid(dense(joined, weights["gates"])), 2, axis=1)
    candidate = np.tanh(dense(np.concatenate([x, reset * state], axis=1), weights["candidate"]))
    if score is not None:
        update = (1.0 - score) * update
    return update * state + (1.0 - update) * candidate


def gru(x, lengths, weights, scores=None):
    """All states [batch, steps, hidden], zero after each row's end, and the last: a row past its end keeps its state."""
    state = np.zeros_like(x[:, 0])
    states = []
    for step in range(x.shape[1]):
        alive = (step < lengths)[:, None]
        new = gru_step(x[:, step], state, weights, None if scores is None else scores[:, step, None])
        states.append(np.where(alive, new, 0.0))
        state = np.where(alive, new, state)
    return np.stack(states, axis=1), state


def attend(item, states, mask, weights):
    """How much each state [batch, steps] matters to the item."""
    query = prelu(dense(item, weights["query"]), weights["slope"])
    query = np.broadcast_to(query[:, None], states.shape)
    x = np.concatenate([query, states, query - states, query * states], axis=-1)
    x = sigmoid(dense(x, weights["first"]))
    x = sigmoid(dense(x, weights["second"]))
    return softmax(np.where(mask, dense(x, weights["third"])[:, :, 0], PADDING))


def long_interest(item, history, mask):
    """The whole history as one vector: behaviours weighted by their product with the item."""
    scores = np.sum(item[:, None] * history, axis=-1)  # the reduce of 750,080 rows of 32
    scores = softmax(np.where(mask, scores, PADDING))
    return np.sum(scores[:, :, None] * history, axis=1)


def decide(x, weights):
    """Probabilities [batch, 2] of a click and of none."""
    x = normalise(x, 1e-3) * weights["scale"] + weights["shift"]
    x = dice(dense(x, weights["first"]), weights["slope1"])
    x = dice(dense(x, weights["second"]), weights["slope2"])
    return softmax(dense(x, weights["third"])) + 1e-8


def dien(batch, weights):
    """Click probabilities [batch, 2]; ``batch`` holds users, items, recent and long histories of items and categories."""
    user = weights["users"][batch["users"]]
    item = embed_items(batch["items"], batch["categories"], weights)
    recent = embed_items(batch["recent_items"], batch["recent_categories"], weights)
    history = embed_items(batch["long_items"], batch["long_categories"], weights)
    mask = np.arange(recent.shape[1]) < batch["lengths"][:, None]
    interests, _ = gru(recent, batch["lengths"], weights["gru"])
    scores = attend(item, interests, mask, weights["attention"])
    _, evolved = gru(interests, batch["lengths"], weights["augru"], scores)
    pooled = long_interest(item, history, np.arange(history.shape[1]) < batch["long_lengths"][:, None])
    return decide(np.concatenate([user, item, pooled, item * pooled, evolved], axis=1), weights["network"])


# ---------------------------------------------------------------- arguments
def make_weights(preset, seed=0):
    """Random float32 weights; a dense layer's are scaled by its inputs."""
    _, _, _, width, items, categories, (first, second), (wide, narrow) = PRESETS[preset]
    random = np.random.default_rng(seed)
    hidden = 2 * width

    def table(rows, columns):
        return random.normal(0.0, 0.3, (rows, columns)).astype(np.float32)

    def layer(rows, columns, bias=0.0):
        return {"w": random.normal(0.0, rows**-0.5, (rows, columns)).astype(np.float32),
                "b": np.full(columns, bias, np.float32)}

    def cell():
        return {"gates": layer(2 * hidden, 2 * hidden, 1.0), "candidate": layer(2 * hidden, hidden)}

    inputs = width + 4 * hidden
    return {"users": table(items, width), "items": table(items, width), "categories": table(categories, width),
            "gru": cell(), "augru": cell(),
            "attention": {"query": layer(hidden, hidden), "slope": np.full(hidden, 0.1, np.float32),
                          "first": layer(4 * hidden, first), "second": layer(first, second), "third": layer(second, 1)},
            "network": {"scale": np.ones(inputs, np.float32), "shift": np.zeros(inputs, np.float32),
                        "first": layer(inputs, wide), "slope1": np.full(wide, 0.1, np.float32),
                        "second": layer(wide, narrow), "slope2": np.full(narrow, 0.1, np.float32), "third": layer(narrow, 2)}}


def make_batch(preset, seed=0):
    """Random users, items and histories."""
    batch, steps, history, _, items, categories, _, _ = PRESETS[preset]
    random = np.random.default_rng(seed)

    def numbers(below, *shape, start=0):
        return random.integers(start, below, shape, dtype=np.int32)

    return {"users": numbers(items, batch), "items": numbers(items, batch), "categories": numbers(categories, batch),
            "recent_items": numbers(items, batch, steps), "recent_categories": numbers(categories, batch, steps),
            "long_items": numbers(items, batch, history), "long_categories": numbers(categories, batch, history),
            "lengths": numbers(steps + 1, batch, start=1), "long_lengths": numbers(history + 1, batch, start=1)}


def make(preset="small", seed=0):
    """The program and its arguments ``(batch, weights)``."""
    return dien, (make_batch(preset, seed), make_weights(preset, seed))
