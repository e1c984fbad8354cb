"""What draws the launches of A3, and counts the work of right kernels on each. It stays at home."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from items import NAMES, Six
from minisitch import KernelBug
from minisitch.course import KernelLaunch, prediction
from minisitch.course.assignment import in_variant
from minisitch.course.kernels import measured
from minisitch.simt import step

GIVEN, *RIGHT = (
    Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("given.py", "solution.py", "alternative.py")
)


def integers(at, count, low=-8, high=8):
    return np.array([at.random.randint(low, high) for _ in range(count)], np.float32)


def case(name, at):
    """A launch of one kernel. Sums of small whole numbers are exact in any order."""
    blocks = at.random.randint(1, 4) if at.hidden else at.random.randint(2, 3)
    seed, given = at.random.randrange(1000), in_variant(GIVEN, at.variant)
    block, inputs = 64, ("x",)
    x = integers(at, 64 * blocks)
    rest = {"y": np.zeros_like(x)}
    if name == "tree_sum":
        x, block = integers(at, 128 * blocks), 128
        rest = {"y": np.zeros(blocks, np.float32)}
    elif name == "warp_sum":
        rest = {"y": np.zeros(2 * blocks, np.float32)}
    elif name == "histogram":
        x, inputs = integers(at, at.random.randint(90, 150), 0, 7).astype(np.int32), ("x", "bins")
        rest = {"bins": np.zeros(8, np.int32)}
    elif name == "grid_sum":
        x, block = integers(at, at.random.randint(200, 260)), 32
        rest = {"part": np.zeros(blocks, np.float32), "y": np.zeros_like(x)}
    outputs = () if name == "histogram" else ("y",)
    arrays = {"x": x, **rest}
    launch = KernelLaunch(
        arrays, blocks, block, seed, inputs, outputs, wave=blocks, what=name, given=given
    )
    return measured(launch, name, [in_variant(text, at.variant) for text in RIGHT], (), times=1.25, accesses=1)


draw_turns, draw_tree_sum, draw_warp_sum, draw_histogram, draw_scan, draw_grid_sum = (
    functools.partial(case, name) for name in NAMES
)


def draw_all(at):
    return Six({name: case(name, at) for name in NAMES})


# ---------------------------------------------------------------- predictions
@prediction
def verdict(at):
    distance, barrier = at.random.choice((1, 5, 16, 31)), at.random.choice((True, False))
    text = (
        "def kernel(x, y):\n"
        "    thread = cuda.threadIdx.x\n"
        "    s = cuda.shared.array(32, np.float32)\n"
        f"    s[(thread + {distance}) % 32] = x[thread]\n"
        + "    cuda.syncthreads()\n" * barrier
        + f"    y[thread] = s[(thread + {at.random.choice((distance, 0))}) % 32]\n"
    )
    try:
        step(text, [np.zeros(32, np.float32), np.zeros(32, np.float32)], 1, 32)
        answer = True
    except KernelBug:
        answer = False
    return f"32 threads run this. Does the stepper accept it? Answer True or False.\n{text}", answer


@prediction
def cells_of_others(at):
    threads, distance = at.random.choice((64, 96, 128)), at.random.randint(3, 31)
    return (
        f"{threads} threads each write s[thread], and pass cuda.syncwarp(). Then each reads s[(thread + {distance}) % {threads}]. "
        "How many of them read a cell that a thread of another warp wrote?",
        sum(t // 32 != (t + distance) % threads // 32 for t in range(threads)),
    )


@prediction
def barriers_of_a_scan(at):
    threads, blocks = at.random.choice((32, 128, 256, 512)), at.random.randint(2, 9)
    return (
        f"scan runs with {threads} threads a block and steps 1, 2, 4 up to {threads // 2}, on {blocks} blocks. How many times does "
        "a block pass a barrier, counted over all blocks together?",
        blocks * (1 + (threads - 1).bit_length()),
    )
