"""BERT, inference, in plain NumPy: embeddings, encoder layers, pooler, classifier.

The papers: FusionStitching 2020 (Table 2) runs batch 32, AStitch (Tables 3 and 4) batch 200, on a V100; neither names the
sequence length or the task. Of TensorFlow's 365 memory-intensive kernels XLA leaves 277 and FusionStitching 77; in
AStitch's set-up XLA launches 64 and AStitch 26.

Faithful: the operators of Google's TensorFlow implementation, in their order: words by gather, token types by a one-hot
product, positions by slice, layernorm by mean and variance, an additive attention mask made from the lengths, softmax,
GELU with erf, the pooler's tanh on the first token, class probabilities.
Cut: 2 layers of 12 and 24 tokens of 128, so that a run takes seconds on a laptop.
"""

from __future__ import annotations

import numpy as np
from bert import bert_layer, layernorm, softmax
from bert import make_weights as make_layer

PRESETS = {  # batch, tokens, hidden, heads, layers, words
    "small": (2, 8, 16, 2, 2, 50),
    "full": (200, 24, 768, 12, 2, 30522),
}
PAPER = {
    "fs20": {"batch": 32, "kernels": {"tensorflow": 365, "xla": 277, "fs20": 77},
             "copies": {"tensorflow": 106, "xla": 94, "fs20": 30},
             "end_to_end_ms": {"tensorflow": 5.86, "xla": 4.02, "fs20": 3.49},
             "memory_ms": {"tensorflow": 0.83, "xla": 0.60, "fs20": 0.40}},
    "astitch": {"batch": 200, "kernels": {"xla": 64, "astitch": 26}, "copies": {"xla": 25, "astitch": 10},
                "speedup_over_tensorflow": {"xla": 1.47, "astitch": 1.65}, "speedup_over_xla": {"astitch": 1.12}},
}


def embed(words, types, weights):
    """Word, token type and position of each token, added up and normalised."""
    one_hot = (types[:, :, None] == np.arange(2)).astype(np.float32)
    x = weights["words"][words] + one_hot @ weights["types"] + weights["positions"][: words.shape[1]]
    return layernorm(x, weights["scale"], weights["shift"])


def bert(words, types, lengths, weights, heads):
    """Class probabilities [batch, 2] of token numbers ``words`` and their ``types`` (0 or 1), both [batch, tokens]."""
    mask = (np.arange(words.shape[1]) < lengths[:, None]).astype(np.float32)
    x = embed(words, types, weights["embedding"])
    for layer in weights["layers"]:
        x = bert_layer(x, mask, layer, heads)
    pooled = np.tanh(x[:, 0] @ weights["pool"] + weights["pool_bias"])
    return softmax(pooled @ weights["classify"] + weights["classify_bias"])


def make_weights(tokens, hidden, layers, words, seed=0):
    """Random float32 weights as a freshly initialised BERT has them."""
    random = np.random.default_rng(seed)

    def normal(*shape, mean=0.0):
        return random.normal(mean, 0.02, shape).astype(np.float32)

    return {"embedding": {"words": normal(words, hidden), "types": normal(2, hidden), "positions": normal(tokens, hidden),
                          "scale": normal(hidden, mean=1.0), "shift": normal(hidden)},
            "layers": [make_layer(hidden, seed + 1 + i) for i in range(layers)],
            "pool": normal(hidden, hidden), "pool_bias": normal(hidden),
            "classify": normal(hidden, 2), "classify_bias": normal(2)}


def make(preset="small", seed=0):
    """The program and its arguments ``(words, types, lengths, weights, heads)``."""
    batch, tokens, hidden, heads, layers, vocabulary = PRESETS[preset]
    random = np.random.default_rng(seed)
    words = random.integers(0, vocabulary, (batch, tokens), dtype=np.int32)
    types = (np.arange(tokens) >= random.integers(1, tokens, (batch, 1))).astype(np.int32)
    lengths = random.integers(tokens // 2, tokens + 1, batch, dtype=np.int32)
    return bert, (words, types, lengths, make_weights(tokens, hidden, layers, vocabulary, seed), heads)
