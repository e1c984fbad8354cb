"""The operators of Kitsune's five workloads, in plain NumPy: each function is what their published code calls once.

``linear`` is PyTorch's ``nn.Linear``, ``layernorm`` its ``nn.LayerNorm``, and so on: the unit in which the paper counts.
Forward only. The models call nothing else that computes, so a node of a traced graph belongs to the operator whose line it has.
"""

from __future__ import annotations

import numpy as np

from minisitch.graph import TensorType


# ---------------------------------------------------------------- products
def linear(x, weights, name):
    """The linear layer of this name; its bias, where there is one, is the product's epilogue."""
    product = x @ weights[name]
    return product + weights[f"{name}/bias"] if f"{name}/bias" in weights else product


def matmul(x, y):
    """The product of two computed values."""
    return x @ y


# ---------------------------------------------------------------- one value at a time
def relu(x):
    return np.maximum(x, 0.0)


def silu(x):
    """x times its sigmoid; GraphCast calls it swish."""
    return x / (1.0 + np.exp(-x))


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def add(x, y):
    return x + y


def mul(x, y):
    return x * y


def scale(x, factor):
    return x * factor


# ---------------------------------------------------------------- rows
def layernorm(x, weights, name, epsilon=1e-5):
    """Rows with mean 0 and variance 1, then scaled and shifted."""
    centred = x - np.sum(x, axis=-1, keepdims=True) / x.shape[-1]
    variance = np.sum(centred * centred, axis=-1, keepdims=True) / x.shape[-1]
    return centred / np.sqrt(variance + epsilon) * weights[f"{name}/scale"] + weights[f"{name}/shift"]


def rmsnorm(x, weights, name, epsilon=1e-5):
    """Rows of mean square 1, then scaled."""
    square = np.sum(x * x, axis=-1, keepdims=True) / x.shape[-1]
    return x / np.sqrt(square + epsilon) * weights[name]


def softmax(x):
    """Rows of positive numbers that add up to 1."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def rotary(x, cosines, sines):
    """Rotary position embedding of [batch, length, heads, width]: pairs of neighbours turn by the angle of their position."""
    pairs = x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    cosines, sines = cosines[:, None, :], sines[:, None, :]
    turned = np.stack([even * cosines - odd * sines, even * sines + odd * cosines], axis=-1)
    return turned.reshape(x.shape)


# ---------------------------------------------------------------- moves
def concatenate(*values):
    return np.concatenate(values, axis=-1)


def stack_features(dense, embedded):
    """DLRM's ``torch.cat([x] + ly)``: the dense vector as one more feature, [batch, 1 + features, width]."""
    return np.concatenate([dense[:, None, :], embedded], axis=1)


def pairs_below(products):
    """The entries below the diagonal of each [features, features], [batch, pairs]: DLRM's ``Z[:, li, lj]``."""
    rows, columns = np.tril_indices(products.shape[-1], -1)
    return products[:, rows, columns]


def repeat_heads(x, times):
    """Each key's (or value's) head for so many heads of queries: Llama's ``repeat_kv`` of [batch, length, heads, width]."""
    batch, length, heads, width = x.shape
    return np.broadcast_to(x[:, :, :, None, :], (batch, length, heads, times, width)).reshape(batch, length, heads * times, width)


def remember(cache, new, start):
    """Write what is new into the cache of [batch, most, heads, width] at its place, and give all of it up to there."""
    cache[:, start:start + new.shape[1]] = new
    return cache[:, :start + new.shape[1]]


# ---------------------------------------------------------------- tables and graphs
def embedding(table, rows):
    """A row of the table for each number."""
    return table[rows]


def gather(nodes, ends):
    """For each edge the features of the node at one end of it."""
    return nodes[ends]


def aggregate(edges, ends, count):
    """For each of ``count`` nodes the sum over the edges that end there."""
    total = np.zeros((count, edges.shape[1]), edges.dtype)
    np.add.at(total, ends, edges)
    return total


def edge_inputs(edges, sources, targets, senders, receivers):
    """Each edge's features beside those of its two ends: Modulus' ``concat_efeat``."""
    return np.concatenate([edges, sources[senders], targets[receivers]], axis=1)


def node_inputs(edges, receivers, nodes):
    """The sum over each node's edges beside its own features: Modulus' ``agg_concat_dgl``."""
    total = np.zeros((nodes.shape[0], edges.shape[1]), edges.dtype)
    np.add.at(total, receivers, edges)
    return np.concatenate([total, nodes], axis=1)


# ---------------------------------------------------------------- arguments
class Arguments:
    """Random arguments of realistic scale; only their types where ``full``: such programs are counted, not run."""

    def __init__(self, full, seed=0):
        self.random = None if full else np.random.default_rng(seed)

    def normal(self, *shape, scale=1.0):
        """Normally distributed float32 numbers."""
        return self.random.normal(0.0, scale, shape).astype(np.float32) if self.random else TensorType(shape)

    def uniform(self, *shape):
        """float32 numbers between -1 and 1."""
        return self.random.uniform(-1.0, 1.0, shape).astype(np.float32) if self.random else TensorType(shape)

    def integers(self, below, *shape):
        """Numbers of rows."""
        return self.random.integers(0, below, shape) if self.random else TensorType(shape, "int64")

    def ones(self, *shape):
        return np.ones(shape, np.float32) if self.random else TensorType(shape)

    def zeros(self, *shape):
        return np.zeros(shape, np.float32) if self.random else TensorType(shape)

    def linear(self, weights, name, rows, columns, bias=True):
        """The weights of a linear layer, of variance 2 / rows: a relu behind it keeps the scale."""
        weights[name] = self.normal(rows, columns, scale=(2.0 / rows) ** 0.5)
        if bias:
            weights[f"{name}/bias"] = self.normal(columns, scale=0.1)

    def layernorm(self, weights, name, width):
        weights[f"{name}/scale"], weights[f"{name}/shift"] = self.ones(width), self.zeros(width)
