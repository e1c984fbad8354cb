"""Training steps in plain NumPy: forward, ``ms.vjp`` or ``ms.value_and_grad``, and an update of the parameters."""

import math

import numpy as np

import minisitch as ms
from minisitch.fuse import pattern_inputs

BATCH, LENGTH, WIDTH, HEADS, VOCABULARY = 4, 128, 256, 8, 1000
ROWS = BATCH * LENGTH


def softmax(x, top=ms.stop_gradient):
    e = np.exp(x - top(np.max(x, axis=-1, keepdims=True)))
    return e / np.sum(e, axis=-1, keepdims=True)


def softmax_of_maximum(x):
    return softmax(x, top=np.copy)


def layernorm(x, g, b):
    d = x - np.mean(x, axis=-1, keepdims=True)
    return d / np.sqrt(np.mean(d * d, axis=-1, keepdims=True) + 1e-5) * g + b


def rmsnorm(x, g):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * g


def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def bias_gelu(x, b):
    return gelu(x + b)


def batchnorm(x, g, b):
    d = x - np.mean(x, axis=0)
    return d / np.sqrt(np.mean(d * d, axis=0) + 1e-5) * g + b


def cross_entropy(z, labels):
    p = z - ms.stop_gradient(np.max(z, axis=-1, keepdims=True))
    log = p - np.log(np.sum(np.exp(p), axis=-1, keepdims=True))
    return -np.sum(np.where(labels[:, None] == np.arange(z.shape[-1]), log, 0.0)) / z.shape[0]


def attention(q, k, v, mask):
    def heads(x):
        return np.swapaxes(np.reshape(x, (BATCH, LENGTH, HEADS, WIDTH // HEADS)), 1, 2)
    scores = heads(q) @ np.swapaxes(heads(k), -1, -2) * (1 / math.sqrt(WIDTH // HEADS)) + mask
    return np.reshape(np.swapaxes(softmax(scores) @ heads(v), 1, 2), (BATCH, LENGTH, WIDTH))


def block(x, mask, p):
    h = layernorm(x, p["g1"], p["b1"])
    x = x + attention(h @ p["wq"], h @ p["wk"], h @ p["wv"], mask) @ p["wo"]
    h = layernorm(x, p["g2"], p["b2"])
    return x + gelu(h @ p["w1"] + p["c1"]) @ p["w2"] + p["c2"]


def mlp_loss(p, x, y):
    h = np.maximum(np.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"], 0.0)
    d = h @ p["w3"] + p["b3"] - y
    return np.sum(d * d) / ROWS


def gpt_loss(p, ids, labels, mask):
    x = p["tokens"][ids] + p["places"]
    for each in p["blocks"]:
        x = block(x, mask, each)
    x = layernorm(x, p["g"], p["b"])
    return cross_entropy(np.reshape(x, (ROWS, WIDTH)) @ p["tokens"].T, labels)


# ---------------------------------------------------------------- updates
def adam(p, g, m, v, rate=1e-3):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - rate * (m / (np.sqrt(v) + 1e-8) + 0.01 * p), m, v


def lamb(p, g, m, v, rate=1e-3):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    change = m / (np.sqrt(v) + 1e-6) + 0.01 * p
    norm, moved = np.sqrt(np.sum(p * p)), np.sqrt(np.sum(change * change))
    return p - rate * np.where(norm > 0, norm / moved, 1.0) * change, m, v


# ---------------------------------------------------------------- arguments
RNG = np.random.default_rng(0)


def some(*shape):
    return (RNG.standard_normal(shape) * 0.1).astype(np.float32)


def block_parameters():
    c = WIDTH
    shapes = {"g1": (c,), "b1": (c,), "wq": (c, c), "wk": (c, c), "wv": (c, c), "wo": (c, c), "g2": (c,), "b2": (c,),
              "w1": (c, 4 * c), "c1": (4 * c,), "w2": (4 * c, c), "c2": (c,)}
    return {name: some(*shape) for name, shape in shapes.items()}


def leaves(p):
    """The arrays of a nest, by their places in it."""
    parts = p.items() if isinstance(p, dict) else enumerate(p)
    return [leaf for _, each in parts for leaf in (leaves(each) if isinstance(each, dict | list) else [each])]


def backward(fn, *args, by=None):
    """A layer, and the gradients of its arguments, or of the first ``by``, given one of its result."""
    chosen = args[:by]

    def run(chosen, rest, g):
        value, pull = ms.vjp(lambda *given: fn(*given, *rest), *chosen)
        return value, pull(g)
    return run, (chosen, args[len(chosen):], np.asarray(fn(*args)))


def step(loss, update, p, *data):
    """A training step: the loss, and new parameters and moments."""
    def run(p, m, v, *data):
        value, g = ms.value_and_grad(loss)(p, *data)
        return value, [update(*each) for each in zip(leaves(p), leaves(g), m, v, strict=True)]
    return run, (p, [np.zeros_like(x) for x in leaves(p)], [np.zeros_like(x) for x in leaves(p)], *data)


def mlp(update):
    p = {"w1": some(64, 256), "b1": some(256), "w2": some(256, 256), "b2": some(256), "w3": some(256, 10), "b3": some(10)}
    return step(mlp_loss, update, p, some(ROWS, 64), some(ROWS, 10))


def gpt(layers=2):
    p = {"tokens": some(VOCABULARY, WIDTH), "places": some(LENGTH, WIDTH), "g": some(WIDTH), "b": some(WIDTH),
         "blocks": [block_parameters() for _ in range(layers)]}
    mask = np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)
    return step(gpt_loss, adam, p, RNG.integers(0, VOCABULARY, (BATCH, LENGTH)), RNG.integers(0, VOCABULARY, ROWS), mask)


def gpt_block():
    mask = np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)
    return backward(lambda x, p, mask: block(x, mask, p), some(BATCH, LENGTH, WIDTH), block_parameters(), mask, by=2)


X, WIDE = some(ROWS, WIDTH), some(BATCH, LENGTH, WIDTH)
PROGRAMS = {
    "softmax": lambda: backward(softmax, X), "softmax of its maximum": lambda: backward(softmax_of_maximum, X),
    "layernorm": lambda: backward(layernorm, X, some(WIDTH), some(WIDTH)), "rmsnorm": lambda: backward(rmsnorm, X, some(WIDTH)),
    "gelu": lambda: backward(gelu, X), "bias and gelu": lambda: backward(bias_gelu, X, some(WIDTH)),
    "batchnorm": lambda: backward(batchnorm, X, some(WIDTH), some(WIDTH)),
    "cross-entropy": lambda: (ms.value_and_grad(cross_entropy), (some(ROWS, VOCABULARY), RNG.integers(0, VOCABULARY, ROWS))),
    "attention": lambda: backward(attention, WIDE, WIDE, WIDE, np.zeros((LENGTH, LENGTH), np.float32), by=3),
    "block": gpt_block, "mlp and adam": lambda: mlp(adam), "mlp and lamb": lambda: mlp(lamb), "gpt and adam": gpt,
}


# ---------------------------------------------------------------- what a plan moves and stores
def moved(plan):
    """Bytes that the kernels of a plan read and write."""
    graph = plan.graph
    return sum(graph[v].type.nbytes for p in plan.kernels for v in (*pattern_inputs(graph, p), *p.outputs))
