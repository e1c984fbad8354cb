"""ASR (speech recognition, inference) in plain NumPy: convolutions, a pyramid of BiLSTMs that listens, an LSTM that spells.

The papers (V100): FusionStitching 2020 runs batch 8: of TensorFlow's 1,359 memory-intensive kernels XLA leaves 386 and
FusionStitching 187; AStitch runs batch 1 and counts 496 and 218; there memory-intensive operations take 75% of the kernels'
time. Neither says which network it is.

This is the usual one of the time, Listen, Attend and Spell (Chan and others, 2016): 80 features a frame, two convolutions
of stride 2 with batch-norm, two BiLSTMs of 256 a direction with the steps paired between them, masks for utterances of
different lengths everywhere (TensorFlow's ``dynamic_rnn``), an LSTM of 512 with additive attention that takes the
likeliest of 32 characters as its next input.
Cut: 64 frames of several hundred, so 16 and 8 unrolled steps; 12 characters; greedy instead of beam search. Changed: a
convolution is a stack of shifted slices (im2col) and a product; in TensorFlow it is one library call.
"""

from __future__ import annotations

import numpy as np
from layers import linear, lstm_cell, normal, relu, softmax

PRESETS = {  # batch, frames, features, channels, hidden a direction, hidden of the speller, characters spelled, alphabet
    "small": (2, 8, 8, 3, 4, 6, 2, 7),
    "full": (8, 64, 80, 32, 256, 512, 12, 32),
}
PAPER = {
    "fs20": {"batch": 8, "kernels": {"tensorflow": 1359, "xla": 386, "fs20": 187},
             "copies": {"tensorflow": 439, "xla": 257, "fs20": 284},
             "end_to_end_ms": {"tensorflow": 15.89, "xla": 11.10, "fs20": 9.18},
             "memory_ms": {"tensorflow": 3.06, "xla": 4.00, "fs20": 3.10}},
    "astitch": {"batch": 1, "kernels": {"xla": 496, "astitch": 218}, "copies": {"xla": 372, "astitch": 203},
                "speedup_over_tensorflow": {"xla": 1.37, "astitch": 2.44}, "speedup_over_xla": {"astitch": 1.78}},
}


# ---------------------------------------------------------------- listening
def convolve(x, lengths, layer, epsilon=1e-3):
    """A window of 3 x 3 every 2 frames and 2 features, batch-norm with given moments, zeros past each utterance's end.

    ``x`` is [batch, frames, features, channels]; gives also the new lengths.
    """
    x = np.pad(x, ((0, 0), (1, 0), (1, 0), (0, 0)))
    slices = [x[:, i:x.shape[1] - 2 + i:2, j:x.shape[2] - 2 + j:2] for i in range(3) for j in range(3)]
    x, _ = linear(np.stack(slices, axis=3).reshape(*slices[0].shape[:3], -1), layer["kernel"], layer["bias"])
    x, _ = relu((x - layer["mean"]) / np.sqrt(layer["variance"] + epsilon) * layer["scale"] + layer["shift"])
    lengths = (lengths + 1) // 2
    return x * (np.arange(x.shape[1]) < lengths[:, None])[:, :, None, None], lengths


def listen(x, lengths, weights, backwards=False):
    """An LSTM's outputs [batch, steps, hidden]: past its end a row's output is zero and its state stays."""
    hidden = cell = np.zeros((x.shape[0], weights["bias"].size // 4), x.dtype)
    found = []
    for step in reversed(range(x.shape[1])) if backwards else range(x.shape[1]):
        alive = (step < lengths)[:, None]
        (new_hidden, new_cell), _ = lstm_cell(x[:, step], hidden, cell, weights["kernel"], weights["bias"])
        found.append(np.where(alive, new_hidden, 0.0))
        hidden, cell = np.where(alive, new_hidden, hidden), np.where(alive, new_cell, cell)
    return np.stack(found[::-1] if backwards else found, axis=1)


def listen_both(x, lengths, weights):
    """Both directions side by side; the one that goes back stays at zero until the utterance's last frame."""
    return np.concatenate([listen(x, lengths, weights["ahead"]), listen(x, lengths, weights["back"], backwards=True)], axis=-1)


# ---------------------------------------------------------------- spelling
def attend(query, keys, values, bias, weights):
    """Additive attention: what of ``values`` [batch, steps, size] answers the query [batch, hidden]."""
    inner = np.tanh(keys + (query @ weights["query"])[:, None] + weights["attend_bias"])
    scores, _ = softmax(np.sum(inner * weights["attend"], axis=-1) + bias)
    return np.sum(scores[:, :, None] * values, axis=1)


def spell(values, lengths, weights, count):
    """``count`` characters [batch, count] and their probabilities."""
    keys = values @ weights["keys"]
    bias = (np.arange(values.shape[1]) >= lengths[:, None]).astype(values.dtype) * -1e9
    hidden = cell = np.zeros((len(values), weights["speller_bias"].size // 4), values.dtype)
    context = np.zeros_like(values[:, 0])
    letter = np.zeros_like(lengths)
    letters, chances = [], []
    for _ in range(count):
        x = np.concatenate([weights["letters"][letter], context], axis=1)
        (hidden, cell), _ = lstm_cell(x, hidden, cell, weights["speller"], weights["speller_bias"])
        context = attend(hidden, keys, values, bias, weights)
        logits, _ = linear(np.concatenate([hidden, context], axis=1), weights["out"], weights["out_bias"])
        chance, _ = softmax(logits)
        letter = np.argmax(chance, axis=-1)
        letters.append(letter)
        chances.append(chance)
    return np.stack(letters, axis=1), np.stack(chances, axis=1)


def asr(features, lengths, weights, count):
    """The likeliest characters of utterances [batch, frames, features], and the probabilities of each."""
    x = features[:, :, :, None]
    for layer in weights["convolutions"]:
        x, lengths = convolve(x, lengths, layer)
    x = x.reshape(*x.shape[:2], -1)
    x = listen_both(x, lengths, weights["bottom"])
    x, lengths = x.reshape(len(x), x.shape[1] // 2, -1), (lengths + 1) // 2
    x = listen_both(x, lengths, weights["top"])
    return spell(x, lengths, weights, count)


# ---------------------------------------------------------------- arguments
def make(preset="small", seed=0):
    """The program and its arguments ``(features, lengths, weights, count)``."""
    batch, frames, size, channels, hidden, speller, count, alphabet = PRESETS[preset]
    random = np.random.default_rng(seed)

    def convolution(inputs):
        return {"kernel": normal(random, 9 * inputs, channels, scale=(2 / 9 / inputs) ** 0.5),
                "bias": normal(random, channels, scale=0.1), "mean": normal(random, channels, scale=0.1),
                "variance": 1.0 + random.random(channels, np.float32),
                "scale": 1.0 + normal(random, channels, scale=0.1), "shift": normal(random, channels, scale=0.1)}

    def lstm(inputs, units):
        return normal(random, inputs + units, 4 * units), np.zeros(4 * units, np.float32)

    def both(inputs):
        return {name: dict(zip(("kernel", "bias"), lstm(inputs, hidden), strict=True)) for name in ("ahead", "back")}

    weights = {"convolutions": [convolution(1), convolution(channels)],
               "bottom": both(size // 4 * channels), "top": both(4 * hidden),
               "keys": normal(random, 2 * hidden, speller), "query": normal(random, speller, speller),
               "attend": normal(random, speller, scale=0.3), "attend_bias": np.zeros(speller, np.float32),
               "letters": normal(random, alphabet, speller, scale=1.0),
               "out": normal(random, speller + 2 * hidden, alphabet), "out_bias": np.zeros(alphabet, np.float32)}
    weights["speller"], weights["speller_bias"] = lstm(speller + 2 * hidden, speller)
    lengths = random.integers(frames // 2, frames + 1, batch)
    return asr, (normal(random, batch, frames, size, scale=1.0), lengths, weights, count)
