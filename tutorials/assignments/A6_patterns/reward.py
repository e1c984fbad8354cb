"""After passing: your patterns in the compiler."""

import numpy as np

import minisitch as ms
from minisitch.strategies.fs20.explore import Candidate, bits


def layernorm(x, scale):
    mean = np.mean(x, axis=1, keepdims=True)
    variance = np.mean((x - mean) ** 2, axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + np.float32(1e-5)) * scale


def reward(ask, variant):
    """Compile with your function where the compiler has its own. What is not allowed gains nothing good."""
    if variant != "begin":
        return "The compiler's patterns begin at their vertex, so this term's function has no place in it."
    asked = []

    def mine(dag, score, allowed, best):
        def mask_of(pattern):
            return sum(1 << v for v in pattern)

        def gain(pattern):
            asked.append(pattern)
            return round(1000 * score(mask_of(pattern))) if allowed(mask_of(pattern)) else -(10**9)

        def candidate(mask):
            below, above = 0, 0
            for v in bits(mask):
                below, above = below | dag.below[v], above | dag.above[v]
            return Candidate(mask, below, above, score(mask))

        found = ask("best_patterns", [list(consumers) for consumers in dag.consumers], gain, best)
        kept = [[mask_of(pattern) for pattern in patterns if allowed(mask_of(pattern))] for patterns in found]
        return [sorted(map(candidate, masks), key=lambda each: each.rank) for masks in kept]

    def plan():
        how = {"strategy": "fs20", "target": "cuda", "device": "v100", "stop_after": "fuse"}
        return len(ms.lower(layernorm, "f32[128,1024]", "f32[1024]", **how).kernels)

    own = plan()
    with ms.swapped("pattern_reduction", mine):
        yours = plan()
    return (
        f'ms.swapped("pattern_reduction", yours): a layernorm. Your function asked for {len(asked)} gains of patterns\n'
        f"  kernels: {yours} with your patterns, {own} with the compiler's own (minisitch/strategies/fs20/explore.py)"
    )
