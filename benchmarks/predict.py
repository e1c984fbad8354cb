"""How much faster a whole program gets when its fusable part does (FusionStitching 2018, section 6).

In:  the share of the time that is fusable, and the speed-up of that part. Out: the speed-up of all of it, twice:
the paper's predictor, and Amdahl's law, which it approximates.

Before:  speech: 28% fusable, 3.5 times faster       After:  the paper 1.20, exactly 1.25
"""

from __future__ import annotations


def paper_speedup(fusable: float, speedup: float) -> float:
    """``1 + r (1 - 1/s)``: the time saved, as if it were added to a rate."""
    return 1 + fusable * (1 - 1 / speedup)


def exact_speedup(fusable: float, speedup: float) -> float:
    """``1 / (1 - r + r/s)``: the old time over the new one. The paper's is its first-order term, and never above it."""
    return 1 / (1 - fusable + fusable / speedup)
