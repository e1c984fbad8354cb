"""The Transformer, inference, in plain NumPy: one sentence is encoded, then translated word by word with a beam.

AStitch runs it at batch 1 on a V100 and has its best result there: 10,132 memory-intensive kernels under XLA, 2,578 of
its own, 4.06 times as fast as TensorFlow (XLA 1.48, TensorRT 0.91). FusionStitching 2020 trains it only.

Faithful: Tensor2Tensor's base model: 512 hidden in 8 heads, 2,048 inner, sinusoids, attention that remembers keys and
values (they grow by concatenation and are gathered when the beam is reordered), a beam of 4 with the length penalty, the
logarithm of a softmax over 30,000 words, sort for the beam's best.
Cut: 1 layer of 6 in the encoder and 2 of 6 in the decoder, 8 words spelled out of about 30.
"""

from __future__ import annotations

import numpy as np
from named import normed
from transformer import ask, encode, feed_forward, make_weights, positions

PRESETS = {  # source tokens, hidden, inner, heads, layers of the encoder and of the decoder, words, beam, steps
    "small": (5, 8, 16, 2, 1, 1, 30, 2, 2),
    "full": (32, 512, 2048, 8, 1, 2, 30000, 4, 8),
}
PAPER = {
    "astitch": {"batch": 1, "kernels": {"xla": 10132, "astitch": 2578}, "copies": {"xla": 5579, "astitch": 1474},
                "speedup_over_tensorflow": {"xla": 1.48, "tensorrt": 0.91, "astitch": 4.06},
                "speedup_over_xla": {"astitch": 2.73}},
}
END = 1  # the token that ends a sentence; 0 pads


def remember(source, weights, heads, encoders, decoders):
    """For each layer of the decoder the projected keys and values of the source [1, length]."""
    memory, _ = encode(source, weights, heads, encoders)
    return [[memory @ weights[f"decoder/{i}/memory/{each}"] for each in ("key", "value")] for i in range(decoders)]


def decode(x, cache, memory, weights, heads):
    """The next word's state for each row of the beam, from the last word's ``x`` [beam, 1, hidden]; and the longer cache."""
    longer = []
    for i, (keys, values) in enumerate(memory):
        name = f"decoder/{i}"
        inner, _ = normed(x, weights, f"{name}/self")
        own = [inner @ weights[f"{name}/self/{each}"] for each in ("key", "value")]
        if cache:
            own = [np.concatenate(pair, axis=1) for pair in zip(cache[i], own, strict=True)]
        longer.append(own)
        x = x + ask(inner, *own, weights, f"{name}/self", heads, 0.0)[0]
        inner, _ = normed(x, weights, f"{name}/memory")
        x = x + ask(inner, keys, values, weights, f"{name}/memory", heads, 0.0)[0]
        inner, _ = normed(x, weights, f"{name}/feed")
        x = x + feed_forward(inner, weights, name)[0]
    return normed(x, weights, "decoder")[0], longer


def translate(source, weights, heads, encoders, decoders, beam, steps):
    """The best ``beam`` translations [beam, steps] of ``source`` [1, length], and their scores, best first."""
    memory = remember(source, weights, heads, encoders, decoders)
    table = weights["words"]
    vocabulary, hidden = table.shape
    places = positions(steps, hidden)
    words = np.zeros(beam, np.int64)
    sentences = np.zeros((beam, 0), np.int64)
    totals = (np.arange(beam) > 0).astype(table.dtype) * -1e9  # at first all rows are the same: one may go on
    ended, cache = np.zeros(beam, bool), None
    for step in range(steps):
        x = (table[words] * hidden**0.5 + places[step])[:, None]
        x, cache = decode(x, cache, memory, weights, heads)
        logits = x[:, 0] @ table.T
        shifted = logits - np.max(logits, axis=-1, keepdims=True)
        chances = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
        stay = (np.arange(vocabulary) != END).astype(table.dtype) * -1e9  # what has ended says END again, at no cost
        chances = totals[:, None] + np.where(ended[:, None], stay, chances)
        penalty = ((5.0 + step + 1.0) / 6.0) ** 0.6
        best = np.argsort(-(chances / penalty).reshape(-1), kind="stable")[:beam]
        rows, words = best // vocabulary, best % vocabulary
        totals = chances.reshape(-1)[best]
        sentences = np.concatenate([sentences[rows], words[:, None]], axis=1)
        ended = ended[rows] | (words == END)
        cache = [[each[rows] for each in pair] for pair in cache]
    return sentences, totals / penalty


def make(preset="small", seed=0):
    """The program and its arguments ``(source, weights, heads, encoders, decoders, beam, steps)``."""
    length, hidden, inner, heads, encoders, decoders, vocabulary, beam, steps = PRESETS[preset]
    source = np.random.default_rng(seed).integers(2, vocabulary, (1, length))
    weights = make_weights(hidden, inner, encoders, decoders, vocabulary, seed)
    return translate, (source, weights, heads, encoders, decoders, beam, steps)
