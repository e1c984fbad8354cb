"""The layers the papers' models are made of, in plain NumPy: forward with a cache, and a backward written by hand.

``layer(...)`` gives ``(result, cache)``; ``layer_backward(cache, gradient)`` gives the gradients of its array
arguments in their order. The decomposition is that of TensorFlow 1.x under XLA: sigmoid through tanh, cross-entropy
as max, sub, exp, sum, log with a one-hot of the labels from a comparison, a bias gradient as a sum over all rows.
Gradients of an embedding are scattered (``np.add.at``): a library call, as it is in TensorFlow.

Everything works in the dtype of its arguments: float32 in the models, float64 where gradients are checked.
"""

from __future__ import annotations

import numpy as np

from minisitch import erf


# ---------------------------------------------------------------- one value at a time
def sigmoid(x):
    """XLA's form: it needs one tanh and never overflows."""
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def relu(x):
    return np.maximum(x, 0.0), x


def relu_backward(x, gradient):
    return np.where(x > 0.0, gradient, 0.0)


def gelu(x):
    """The Gaussian error linear unit, with erf."""
    half = 0.5 * (1.0 + erf(x * 0.7071067811865476))
    return x * half, (x, half)


def gelu_backward(cache, gradient):
    x, half = cache
    return gradient * (half + x * np.exp(-0.5 * x * x) * 0.3989422804014327)


def dropout(x, uniform, keep=0.9):
    """Zero where ``uniform`` (random numbers in [0, 1), drawn outside) is at least ``keep``; the rest is scaled up."""
    mask = np.floor(uniform + keep) / keep
    return x * mask, mask


def dropout_backward(mask, gradient):
    return gradient * mask


# ---------------------------------------------------------------- rows
def linear(x, weight, bias):
    """``x @ weight + bias`` for ``x`` of any rank."""
    return x @ weight + bias, (x, weight)


def linear_backward(cache, gradient):
    """The gradients of x, weight and bias."""
    x, weight = cache
    rows, columns = x.reshape(-1, weight.shape[0]), gradient.reshape(-1, weight.shape[1])
    return gradient @ weight.T, rows.T @ columns, np.sum(columns, axis=0)


def layernorm(x, scale, shift, epsilon=1e-6):
    """Rows with mean 0 and variance 1, then scaled and shifted."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    rate = 1.0 / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + epsilon)
    normal = centred * rate
    return normal * scale + shift, (normal, rate, scale)


def layernorm_backward(cache, gradient):
    """The gradients of x, scale and shift."""
    normal, rate, scale = cache
    rows = tuple(range(gradient.ndim - 1))
    inner = gradient * scale
    mean = np.mean(inner, axis=-1, keepdims=True)
    along = np.mean(inner * normal, axis=-1, keepdims=True)
    return rate * (inner - mean - normal * along), np.sum(gradient * normal, axis=rows), np.sum(gradient, axis=rows)


def softmax(x):
    """Rows of positive numbers that add up to 1."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    result = e / np.sum(e, axis=-1, keepdims=True)
    return result, result


def softmax_backward(result, gradient):
    return (gradient - np.sum(gradient * result, axis=-1, keepdims=True)) * result


def cross_entropy(logits, labels):
    """The mean of ``-log softmax(logits)[label]`` over all rows; ``labels`` are integers."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    e = np.exp(shifted)
    total = np.sum(e, axis=-1, keepdims=True)
    chosen = (labels[..., None] == np.arange(logits.shape[-1])).astype(logits.dtype)
    loss = np.mean(np.sum(chosen * (np.log(total) - shifted), axis=-1))
    return loss, (e, total, chosen)


def cross_entropy_backward(cache, gradient=1.0):
    """The gradient of logits."""
    e, total, chosen = cache
    return (e / total - chosen) * (gradient / total.size)


# ---------------------------------------------------------------- tables
def embedding(table, tokens):
    """A row of the table for each token."""
    return table[tokens], (table, tokens)


def embedding_backward(cache, gradient):
    """The gradient of the table, zero in rows that no token named."""
    table, tokens = cache
    result = np.zeros_like(table)
    np.add.at(result, tokens, gradient)
    return result


# ---------------------------------------------------------------- attention
def split_heads(x, heads):
    """[batch, length, hidden] to [batch, heads, length, hidden / heads]."""
    batch, length, hidden = x.shape
    return x.reshape(batch, length, heads, hidden // heads).transpose(0, 2, 1, 3)


def join_heads(x):
    """[batch, heads, length, size] to [batch, length, heads * size]."""
    batch, heads, length, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def attention(query, key, value, heads, bias=0.0):
    """Each query looks at all keys; ``bias`` ([batch, 1, queries, keys] or what broadcasts to it) is added to scores.

    All three are [batch, length, hidden] and already projected; keys and values may have another length.
    """
    q, k, v = split_heads(query, heads), split_heads(key, heads), split_heads(value, heads)
    scale = q.shape[-1] ** -0.5
    weights, _ = softmax((q @ k.transpose(0, 1, 3, 2)) * scale + bias)
    return join_heads(weights @ v), (q, k, v, weights, scale)


def attention_backward(cache, gradient):
    """The gradients of query, key and value."""
    q, k, v, weights, scale = cache
    mixed = split_heads(gradient, q.shape[1])
    scores = softmax_backward(weights, mixed @ v.transpose(0, 1, 3, 2)) * scale
    return (join_heads(scores @ k), join_heads(scores.transpose(0, 1, 3, 2) @ q),
            join_heads(weights.transpose(0, 1, 3, 2) @ mixed))


# ---------------------------------------------------------------- recurrent cells
def lstm_cell(x, hidden, cell, kernel, bias, forget=1.0):
    """One step of TensorFlow's BasicLSTMCell: one product for all gates. Gives ``(hidden, cell), cache``."""
    joint = np.concatenate([x, hidden], axis=1)
    gates, product = linear(joint, kernel, bias)
    i, j, f, o = np.split(gates, 4, axis=1)
    i, j, f, o = sigmoid(i), np.tanh(j), sigmoid(f + forget), sigmoid(o)
    state = cell * f + i * j
    squashed = np.tanh(state)
    return (squashed * o, state), (product, x.shape[1], cell, i, j, f, o, squashed)


def lstm_cell_backward(cache, hidden_gradient, cell_gradient):
    """The gradients of x, hidden, cell, kernel and bias."""
    product, width, cell, i, j, f, o, squashed = cache
    state = cell_gradient + hidden_gradient * o * (1.0 - squashed * squashed)
    gates = np.concatenate([state * j * i * (1.0 - i), state * i * (1.0 - j * j), state * cell * f * (1.0 - f),
                            hidden_gradient * squashed * o * (1.0 - o)], axis=1)
    joint, kernel, bias = linear_backward(product, gates)
    return joint[:, :width], joint[:, width:], state * f, kernel, bias


def gru_cell(x, hidden, gate_kernel, gate_bias, kernel, bias):
    """One step of TensorFlow's GRUCell: reset and update gates, then the candidate. Gives ``hidden, cache``."""
    gates, gate_product = linear(np.concatenate([x, hidden], axis=1), gate_kernel, gate_bias)
    r, u = np.split(sigmoid(gates), 2, axis=1)
    inner, product = linear(np.concatenate([x, r * hidden], axis=1), kernel, bias)
    candidate = np.tanh(inner)
    return u * hidden + (1.0 - u) * candidate, (gate_product, product, x.shape[1], hidden, r, u, candidate)


def gru_cell_backward(cache, gradient):
    """The gradients of x, hidden, gate_kernel, gate_bias, kernel and bias."""
    gate_product, product, width, hidden, r, u, candidate = cache
    inner = gradient * (1.0 - u) * (1.0 - candidate * candidate)
    joint, kernel, bias = linear_backward(product, inner)
    reset = joint[:, width:]
    gates = np.concatenate([reset * hidden * r * (1.0 - r), gradient * (hidden - candidate) * u * (1.0 - u)], axis=1)
    gate_joint, gate_kernel, gate_bias = linear_backward(gate_product, gates)
    return (joint[:, :width] + gate_joint[:, :width], gradient * u + reset * r + gate_joint[:, width:],
            gate_kernel, gate_bias, kernel, bias)


# ---------------------------------------------------------------- optimisers: dictionaries of weights in and out
def sgd(weights, gradients, rate):
    """Each weight a step down its gradient."""
    return {name: weights[name] - rate * gradients[name] for name in gradients}


def momentum(weights, velocities, gradients, rate, decay=0.9):
    """TensorFlow's MomentumOptimizer: ``(weights, velocities)``."""
    new = {name: decay * velocities[name] + gradients[name] for name in gradients}
    return {name: weights[name] - rate * new[name] for name in gradients}, new


def adam(weights, means, squares, gradients, step, rate=0.001, decay=0.9, square_decay=0.999, epsilon=1e-8):
    """TensorFlow's AdamOptimizer: ``(weights, means, squares)``; ``step`` counts from 1 and may be an array."""
    scaled = rate * np.sqrt(1.0 - square_decay ** step) / (1.0 - decay ** step)
    means = {name: decay * means[name] + (1.0 - decay) * g for name, g in gradients.items()}
    squares = {name: square_decay * squares[name] + (1.0 - square_decay) * g * g for name, g in gradients.items()}
    return ({name: weights[name] - scaled * means[name] / (np.sqrt(squares[name]) + epsilon) for name in gradients},
            means, squares)


def clip_by_global_norm(gradients, largest):
    """All gradients scaled down together where their joint length is more than ``largest``; and that length."""
    norm = np.sqrt(sum(np.sum(g * g) for g in gradients.values()))
    scale = largest / np.maximum(norm, largest)
    return {name: g * scale for name, g in gradients.items()}, norm


# ---------------------------------------------------------------- arguments
def normal(random, *shape, scale=None):
    """Random float32 weights, of variance 1 / rows unless ``scale`` is given."""
    return random.normal(0.0, scale or shape[0] ** -0.5, shape).astype(np.float32)
