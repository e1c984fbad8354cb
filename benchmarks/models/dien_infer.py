"""DIEN (deep interest evolution network), inference, in plain NumPy: will this user click on this item?

The papers (both on a V100, batch 256): of TensorFlow's 3,680 memory-intensive kernels XLA leaves 2,585 and
FusionStitching 2020 815, and XLA is slower than TensorFlow; AStitch counts 2,579 and 811. AStitch names its irregular
row-reduce, <750000,32>, for which XLA launches 750,000 blocks of 32 threads.

Faithful: the operators of the published TensorFlow implementation (Zhou et al., AAAI 2019) and its layer sizes: an item
is a gathered number beside a gathered category, a GRU reads the behaviours, attention (80, 40, 1 units) weighs its
states against the item, an attentional GRU (AUGRU) reads them again, a dense network (200, 80, 2) with batch-norm and
Dice decides; both recurrences mask padded steps as ``dynamic_rnn`` does.
Cut: the recurrences are unrolled 30 of 100 steps. Changed: embeddings are 16 wide instead of 18, and the sum of the
history is weighted by its products with the item and reads 2,930 behaviours, so that one row-reduce has the paper's
shape (256 x 2,930 = 750,080 rows of 32); the papers do not say where theirs comes from. Not there: TensorFlow's loop
counters, conditions and tensor arrays, a few kernels more a step.
"""

from __future__ import annotations

from dien import forward, make_batch, make_weights

PRESETS = {  # batch, steps, long history, width of an embedding, items, categories, units of attention, units of the network
    "small": (4, 3, 10, 4, 20, 5, (8, 4), (10, 6)),
    "full": (256, 30, 2930, 16, 50000, 1000, (80, 40), (200, 80)),
}
PAPER = {
    "fs20": {"batch": 256, "kernels": {"tensorflow": 3680, "xla": 2585, "fs20": 815},
             "copies": {"tensorflow": 225, "xla": 627, "fs20": 422},
             "end_to_end_ms": {"tensorflow": 39.48, "xla": 53.51, "fs20": 24.20},
             "memory_ms": {"tensorflow": 7.55, "xla": 6.12, "fs20": 3.51}},
    "astitch": {"batch": 256, "kernels": {"xla": 2579, "astitch": 811}, "copies": {"xla": 628, "astitch": 422},
                "speedup_over_tensorflow": {"xla": 0.73, "astitch": 1.63}, "speedup_over_xla": {"astitch": 2.23}},
}
TRAINING_ONLY = ("auxiliary", "other", "clicked")  # what begins so


def dien(batch, weights):
    """Click probabilities [batch, 2]."""
    return forward(batch, weights)[0]


def make(preset="small", seed=0):
    """The program and its arguments ``(batch, weights)``."""
    batch, steps, history, width, items, categories, attention, network = PRESETS[preset]
    values = make_batch(batch, steps, history, items, categories, seed)
    weights = make_weights(width, items, categories, attention, (1, 1), network, seed)
    return dien, tuple({k: v for k, v in d.items() if not k.startswith(TRAINING_ONLY)} for d in (values, weights))
