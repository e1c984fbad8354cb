"""After passing: your spans in the compiler. It asks for those of the paper, whose steps all cost 1."""

import numpy as np

import minisitch as ms


def layernorms(x, w):
    for _ in range(2):
        mean = np.mean(x, axis=1, keepdims=True)
        x = (x - mean) / np.sqrt(np.mean((x - mean) ** 2, axis=1, keepdims=True) + np.float32(1e-5)) * w
    return x


def reward(ask, variant):
    """Compile with your function where the compiler has its own."""
    calls = []

    def mine(readers):
        calls.append(len(readers))
        return ask("spans", {value: list(users) for value, users in readers.items()}, dict.fromkeys(readers, 1))

    def kernels():
        how = {"strategy": "fs18", "target": "cuda", "device": "v100", "stop_after": "fuse"}
        return len(ms.lower(layernorms, "f32[64,256]", "f32[256]", **how).kernels)

    before = kernels()
    with ms.swapped("spans", mine):
        after = kernels()
    return (
        f'ms.swapped("spans", yours): two layernorms. The compiler asked your function {len(calls)} times, about up to '
        f"{max(calls)} operations\n  kernels: {after} with your spans, {before} with its own (minisitch/strategies/fs18/spans.py)"
    )
