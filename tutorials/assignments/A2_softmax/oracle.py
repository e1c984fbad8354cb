"""What draws the launches of A2, and counts the work of right kernels on each. It stays at home."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from minisitch.course import KernelLaunch, prediction
from minisitch.course.assignment import in_variant
from minisitch.course.kernels import measured

THREADS = 64

WIDTHS = (100, 5, 640)  # sizes count up, 2 3 4 and 2 3 4 5 6: so each width comes once


HIDDEN_WIDTHS = (1, 31, 33, 123, 640)


def launch(at, values, what, **more):
    """The kernel on a matrix: a block for each row."""
    x = np.asarray(values, np.float32)
    arrays = {"x": x, "y": np.zeros_like(x)}
    made = KernelLaunch(
        arrays, len(x), THREADS, at.random.randrange(1000), ("x",), ("y",), what=what, **more
    )
    here = Path(__file__).parent
    files = ("solution.py", "alternative.py", "two_levels.py")
    right = [in_variant((here / name).read_text("utf-8"), at.variant) for name in files]
    return measured(made, "softmax", right, (), times=1.5, accesses=2)


def draw(at):
    """Ordinary numbers. The widths are those that are hard: less than a warp, one more, several turns."""
    widths = HIDDEN_WIDTHS if at.hidden else WIDTHS
    cols = widths[at.size % len(widths)]
    rows = 1 + (cols < 200) * at.random.randint(1, 2)
    values = [[at.random.uniform(-4, 4) for _ in range(cols)] for _ in range(rows)]
    return launch(at, values, at.variant)


def draw_extremes(at):
    """Rows of large numbers, rows of small ones, and rows in which some are -inf."""
    cols = at.random.choice((6, 40, 90))
    rows = []
    for low, high in ((900, 1000), (-1000, -900), (-3, 3)):
        rows.append([at.random.uniform(low, high) for _ in range(cols)])
    for col in at.random.sample(range(cols), cols // 2):
        rows[2][col] = -math.inf
    return launch(at, rows, f"{at.variant} of large, small and infinite numbers")


def draw_narrow(at):
    return launch(at, [[at.random.uniform(-4, 4) for _ in range(9)]], at.variant, shared=4096)


# ---------------------------------------------------------------- predictions
@prediction
def columns_of_a_thread(at):
    cols, thread = at.random.randint(65, 640), at.random.randrange(64)
    return (
        f"A row has {cols} columns. 64 threads share it: thread t takes columns t, t + 64, t + 128 and so on. "
        f"How many columns does thread {thread} take?",
        len(range(thread, cols, 64)),
    )


@prediction
def adding_threads(at):
    threads, step = at.random.choice((128, 256, 512)), at.random.randint(2, 5)
    return (
        f"{threads} threads add up {threads} numbers in a tree: in step 1 thread t adds number t + {threads // 2} to number t, "
        f"and each step halves the distance. How many threads add in step {step}?",
        threads >> step,
    )


@prediction
def bytes_read(at):
    rows, cols, times = (
        at.random.randint(2, 9),
        at.random.randint(10, 90),
        at.random.choice((1, 2, 3)),
    )
    return (
        f"A kernel loads every number of a float32 matrix of {rows} rows and {cols} columns {times} times from global memory, "
        "and stores one number for each. How many bytes does it load and store in all?",
        (times + 1) * rows * cols * 4,
    )
