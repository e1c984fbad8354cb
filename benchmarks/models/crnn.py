"""CRNN, inference, in plain NumPy: which letters are in this picture of a word? Convolutions, two BiLSTMs, CTC.

The papers (V100): FusionStitching 2020 runs batch 8: of TensorFlow's 3,674 memory-intensive kernels XLA leaves 993 and
FusionStitching 311, its best speedup, 2.42 over TensorFlow. AStitch runs batch 1, counts 986 and 297, and takes CRNN for
its ablation: XLA 23.95 ms, with adaptive mapping 21.98, with stitching 20.45, with dominants merged 17.64.

Faithful: the network of Shi, Bai and Yao (2015): seven convolutions of 64 to 512 channels over a picture of 32 x 100,
pooling, batch-norm on the fifth and sixth, two bidirectional LSTMs of 256 a direction over its 24 columns with one product
and one cell a step, a linear layer to 36 letters and a blank, the logarithm of the softmax, the greedy path.
Cut: nothing. Changed: a convolution is a stack of shifted slices (im2col) and a product; in TensorFlow it is one
library call. Batch-norm has its moments given, as it does in inference.
"""

from __future__ import annotations

import numpy as np
from layers import linear, lstm_cell, normal, relu

PRESETS = {  # batch, height, width, channels of the seven convolutions, hidden, classes
    "small": (2, 32, 12, (2, 3, 4, 4, 5, 5, 6), 4, 5),
    "full": (8, 32, 100, (64, 128, 256, 256, 512, 512, 512), 256, 37),
}
PAPER = {
    "fs20": {"batch": 8, "kernels": {"tensorflow": 3674, "xla": 993, "fs20": 311},
             "copies": {"tensorflow": 890, "xla": 406, "fs20": 388},
             "end_to_end_ms": {"tensorflow": 37.10, "xla": 24.88, "fs20": 15.36},
             "memory_ms": {"tensorflow": 6.14, "xla": 11.37, "fs20": 7.69},
             "megabytes_read": {"xla": 667.6, "fs20": 225.8}},
    "astitch": {"batch": 1, "kernels": {"xla": 986, "astitch": 297}, "copies": {"xla": 406, "astitch": 388},
                "speedup_over_tensorflow": {"xla": 1.49, "astitch": 2.03}, "speedup_over_xla": {"astitch": 1.36},
                "ablation_ms": {"xla": 23.95, "adaptive": 21.98, "stitching": 20.45, "merging": 17.64}},
}
POOLED = {0: (2, 2), 1: (2, 2), 3: (2, 1), 5: (2, 1)}  # after which convolution, rows and columns
NORMALISED = (4, 5)


def convolve(x, kernel, bias, sides=3, pad=1):
    """``x`` [batch, height, width, channels] with a window of ``sides`` x ``sides``: a stack of slices, then a product."""
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    height, width = x.shape[1] - sides + 1, x.shape[2] - sides + 1
    slices = [x[:, i:i + height, j:j + width] for i in range(sides) for j in range(sides)]
    return linear(np.stack(slices, axis=3).reshape(len(x), height, width, -1), kernel, bias)[0]


def pool(x, rows, columns):
    """The largest of each ``rows`` x ``columns`` window, windows side by side."""
    batch, height, width, channels = x.shape
    return np.max(x.reshape(batch, height // rows, rows, width // columns, columns, channels), axis=(2, 4))


def batch_norm(x, norm, epsilon=1e-3):
    """Batch-norm with given moments."""
    return (x - norm["mean"]) / np.sqrt(norm["variance"] + epsilon) * norm["scale"] + norm["shift"]


def lstm(steps, weights):
    """What an LSTM says after each of the steps, a list of [batch, features]."""
    state = (np.zeros((len(steps[0]), weights["bias"].size // 4), steps[0].dtype),) * 2
    found = []
    for x in steps:
        state, _ = lstm_cell(x, *state, weights["kernel"], weights["bias"])
        found.append(state[0])
    return found


def bilstm(steps, weights):
    """Both directions side by side."""
    ahead, back = lstm(steps, weights["ahead"]), lstm(steps[::-1], weights["back"])[::-1]
    return [np.concatenate(pair, axis=1) for pair in zip(ahead, back, strict=True)]


def crnn(pictures, weights):
    """For each column the logarithms of the classes' probabilities [batch, columns, classes], and the likeliest class."""
    x = pictures
    for i, layer in enumerate(weights["convolutions"]):
        last = i == len(weights["convolutions"]) - 1
        x = convolve(x, layer["kernel"], layer["bias"], *((2, 0) if last else (3, 1)))
        x, _ = relu(batch_norm(x, layer) if i in NORMALISED else x)
        if i in POOLED:
            x = pool(x, *POOLED[i])
    columns = [x[:, 0, column] for column in range(x.shape[2])]
    for layer in weights["recurrent"]:
        columns = bilstm(columns, layer)
    logits, _ = linear(np.stack(columns, axis=1), weights["out"], weights["out_bias"])
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    result = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return result, np.argmax(result, axis=-1)


def make(preset="small", seed=0):
    """The program and its arguments ``(pictures, weights)``."""
    batch, height, width, channels, hidden, classes = PRESETS[preset]
    random = np.random.default_rng(seed)
    convolutions = []
    for i, (inputs, outputs) in enumerate(zip((1, *channels), channels, strict=False)):
        rows = inputs * (4 if i == len(channels) - 1 else 9)
        layer = {"kernel": normal(random, rows, outputs, scale=(2.0 / rows) ** 0.5), "bias": normal(random, outputs, scale=0.1)}
        if i in NORMALISED:
            layer |= {"mean": normal(random, outputs, scale=0.1), "variance": 1.0 + random.random(outputs, np.float32),
                      "scale": 1.0 + normal(random, outputs, scale=0.1), "shift": normal(random, outputs, scale=0.1)}
        convolutions.append(layer)

    def direction(inputs):
        return {"kernel": normal(random, inputs + hidden, 4 * hidden), "bias": np.zeros(4 * hidden, np.float32)}

    recurrent = [{"ahead": direction(inputs), "back": direction(inputs)} for inputs in (channels[-1], 2 * hidden)]
    weights = {"convolutions": convolutions, "recurrent": recurrent,
               "out": normal(random, 2 * hidden, classes), "out_bias": np.zeros(classes, np.float32)}
    return crnn, (random.random((batch, height, width, 1), np.float32), weights)
