"""Llama 3 8B, the context phase: all tokens of the prompt at once. ``llama`` says what is faithful and what is cut.

Kitsune (2025): 27 operators, 19 fused (vertical fusion 10); traffic cut by 49.07% (10.04%), and only 4 to 8% faster, since more
than half of the peak is reached without it.
"""

from __future__ import annotations

import llama

PRESETS = {  # length; batch, length of the cache, hidden, inner, heads of queries and of keys, words
    "full": (2048, (1, 8192, 4096, 14336, (32, 8), 128256)),  # counted, not run: its arguments are shapes
    "small": (5, (1, 9, 16, 24, (4, 2), 30)),
    "medium": (512, (1, 1024, 512, 1792, (8, 2), 4096)),
}
PAPER = {"kitsune": {"operators": 27, "fused": {"vertical": 10, "kitsune": 19},
                     "traffic_cut": {"vertical": 10.04, "kitsune": 49.07}}}


def make(preset="small", seed=0):
    """The program and its arguments ``(tokens, weights, cache, angles, mask, heads, start)``."""
    length, size = PRESETS[preset]
    return llama.program(size, length, 0, preset == "full", seed)
