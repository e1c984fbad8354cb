"""DLRM (deep learning recommendation model), forward, in plain NumPy: will this user click?

Kitsune (2025): 21 operators, of which it fuses 17, as vertical fusion does; its traffic falls by 44.27%, by 22.53% under
vertical fusion.

Faithful: ``facebookresearch/dlrm`` in the sizes of its MLPerf benchmark: 13 numbers through layers of 512, 256 and 128, 26
embedded categories of 128, all pairs' dot products, then layers of 1024, 1024, 512, 256 and 1, relu between them and a sigmoid
at the end.
Changed: the 26 tables lie in one, as FBGEMM has them. Operators: 21, as the paper counts (16 in the layers; embedding, stack,
product, lower triangle, join).
"""

from __future__ import annotations

from operators import (
    Arguments,
    concatenate,
    embedding,
    linear,
    matmul,
    pairs_below,
    relu,
    sigmoid,
    stack_features,
)

PRESETS = {  # batch, dense numbers, categories, rows of the tables, layers below, layers above
    "full": (2048, 13, 26, 26 * 1000000, (512, 256, 128), (1024, 1024, 512, 256, 1)),  # counted, not run: its arguments are shapes
    "small": (6, 5, 3, 40, (8, 4), (8, 1)),
    "medium": (1024, 13, 26, 26 * 10000, (512, 256, 128), (1024, 1024, 512, 256, 1)),
}
PAPER = {"kitsune": {"operators": 21, "fused": {"vertical": 17, "kitsune": 17},
                     "traffic_cut": {"vertical": 22.53, "kitsune": 44.27}}}


def dlrm(dense, categories, weights, below, above):
    """Click probabilities [batch, 1] of numbers [batch, 13] and rows of the table [batch, 26]."""
    x = dense
    for i in range(below):
        x = relu(linear(x, weights, f"below/{i}"))
    features = stack_features(x, embedding(weights["table"], categories))
    x = concatenate(x, pairs_below(matmul(features, features.transpose(0, 2, 1))))
    for i in range(above):
        x = linear(x, weights, f"above/{i}")
        x = sigmoid(x) if i == above - 1 else relu(x)
    return x


def make(preset="small", seed=0):
    """The program and its arguments ``(dense, categories, weights, below, above)``."""
    batch, numbers, count, rows, below, above = PRESETS[preset]
    give = Arguments(preset == "full", seed)
    weights = {"table": give.normal(rows, below[-1], scale=below[-1] ** -0.5)}
    pairs = (count + 1) * count // 2
    for name, first, sizes in (("below", numbers, below), ("above", below[-1] + pairs, above)):
        for i, (before, after) in enumerate(zip((first, *sizes), sizes, strict=False)):
            give.linear(weights, f"{name}/{i}", before, after)
    return dlrm, (give.uniform(batch, numbers), give.integers(rows, batch, count), weights, len(below), len(above))
