"""GPT-2 blocks over bytes, forward with the loss: the demo's program at several sizes.

``make(preset)`` gives the function and its arguments; the weights are made here.
"""

from __future__ import annotations

import numpy as np

from minisitch.explain.demo import gpt, make_batch, make_weights

PRESETS = {  # batch, sequence, hidden
    "small": (1, 32, 32),
    "demo": (4, 256, 256),
    "base": (4, 512, 768),
}


def make(preset="base", seed=0):
    """The program and its arguments ``(tokens, targets, weights)``; the text is random bytes."""
    batch, length, hidden = PRESETS[preset]
    text = np.random.default_rng(seed).integers(0, 256, batch * length + 1, dtype=np.uint8).tobytes()
    return gpt, (*make_batch(text, batch, length), make_weights(hidden, length, seed=seed))
