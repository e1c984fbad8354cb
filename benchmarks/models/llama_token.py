"""Llama 3 8B, the token phase: one more token, which attends to all before it. ``llama`` says what is faithful and what is cut.

Kitsune (2025): 27 operators, 19 fused (vertical fusion 10); traffic cut by 0.07% (0.01%): nearly all of it is weights.
"""

from __future__ import annotations

import llama

PRESETS = {  # tokens before; batch, length of the cache, hidden, inner, heads of queries and of keys, words
    "full": (2047, (1, 8192, 4096, 14336, (32, 8), 128256)),  # counted, not run: its arguments are shapes
    "small": (4, (1, 9, 16, 24, (4, 2), 30)),
    "medium": (511, (1, 1024, 512, 1792, (8, 2), 4096)),
}
PAPER = {"kitsune": {"operators": 27, "fused": {"vertical": 10, "kitsune": 19},
                     "traffic_cut": {"vertical": 0.01, "kitsune": 0.07}}}


def make(preset="small", seed=0):
    """The program and its arguments ``(tokens, weights, cache, angles, mask, heads, start)``."""
    start, size = PRESETS[preset]
    return llama.program(size, 1, start, preset == "full", seed)
