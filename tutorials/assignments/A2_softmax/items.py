"""Items of A2. None of them holds the answer: each says what must be true of a launch."""

from __future__ import annotations

import functools
import math

import numpy as np

import minisitch as ms
from minisitch.course import KernelLaunch, KernelRun, item, prediction
from minisitch.reference import evaluate
from minisitch.testing import judge

RETURNS = {"softmax": KernelRun}
THREADS = 64
WIDTHS = (5, 100, 70)
HIDDEN_WIDTHS = (1, 31, 33, 123, 640)


def launch(at, values, what, **more):
    """The kernel on a matrix: a block for each row."""
    x = np.asarray(values, np.float32)
    arrays = {"x": x, "y": np.zeros_like(x)}
    return KernelLaunch(
        arrays, len(x), THREADS, at.random.randrange(1000), ("x",), ("y",), what=what, **more
    )


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


SAME = {"draw": draw, "visible": 3, "hidden": 5, "size": 4, "hidden_size": 6, "cases_of": "rows"}
# Sizes count up, 2 3 4 and 2 3 4 5 6: so each width comes once.


@functools.cache
def meaning(variant, rows, cols):
    """The graph of what is asked for."""

    def weights(x):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return e / np.sum(e, axis=-1, keepdims=True)

    def logs(x):
        far = x - np.max(x, axis=-1, keepdims=True)
        return far - np.log(np.sum(np.exp(far), axis=-1, keepdims=True))

    return ms.trace(
        {"weights": weights, "logs": logs}[variant], [np.zeros((rows, cols), np.float32)]
    ).graph


def wrong_cell(case, run):
    """A sentence about the cell that is furthest off, without its right value."""
    x, y = case.arrays["x"], run.arrays["y"]
    graph = meaning(case.what.partition(" ")[0], *x.shape)
    if all(verdict.ok for verdict in judge(graph, [x], [y])):
        return None
    (exact,) = evaluate(graph, [x], float64=True)
    with np.errstate(all="ignore"):
        far = np.abs(np.nan_to_num(y - exact, nan=np.inf, posinf=np.inf))
    far[(y == exact) | (np.isnan(y) & np.isnan(exact))] = 0
    row, col = map(int, np.unravel_index(np.argmax(far), far.shape))
    return f"y[{row}, {col}] is {y[row, col]:g}, which is wrong; x[{row}, {col}] is {x[row, col]:g}"


@item("right", "Every number is as close to the exact one as rounding allows.", weight=2, **SAME)
def right(case, ask):
    return wrong_cell(case, ask("softmax", case))


@item(
    "dialect",
    "The text keeps to the dialect, with the parameters (x, y).",
    weight=0.5,
    rules=(
        "outside-dialect",
        "float64-literal",
        "mixed-dtype",
        "exception",
        "parameters",
        "too long",
    ),
    needs=("right",),
    **SAME,
)
def dialect(case, ask):
    ask("softmax", case)


@item(
    "inside",
    "No thread reads or writes outside an array.",
    rules=("out-of-bounds",),
    needs=("right",),
    **SAME,
)
def inside(case, ask):
    ask("softmax", case)


@item(
    "meet",
    "All threads of a block come to the same barriers, and the kernel ends.",
    rules=("divergent-barrier", "lane-mask", "one-wave", "deadlock", "endless"),
    needs=("right",),
    **SAME,
)
def meet(case, ask):
    ask("softmax", case)


@item(
    "no race",
    "Between two threads that touch one cell, and one of them writes, there is a barrier.",
    weight=2,
    rules=("race", "unwritten-read", "wrong-owner"),
    needs=("right",),
    **SAME,
)
def no_race(case, ask):
    ask("softmax", case)


@item(
    "every cell",
    "Every cell of y is written.",
    rules=("unwritten-output",),
    needs=("right",),
    **SAME,
)
def every_cell(case, ask):
    ask("softmax", case)


@item(
    "extremes",
    "It is right for numbers near 1000 and -1000, and where some numbers of a row are -inf.",
    draw=draw_extremes,
    visible=2,
    hidden=3,
)
def extremes(case, ask):
    return wrong_cell(case, ask("softmax", case))


@item("loads", "It loads each number of x at most twice.", needs=("right",), **SAME)
def loads(case, ask):
    found = ask("softmax", case).traffic.loads
    most = 2 * case.arrays["x"].size
    return f"{found} loads; {most} are the most" if found > most else None


@item(
    "work",
    "The threads share the work: no thread loads more than twice its share of the columns.",
    needs=("right",),
    **SAME,
)
def work(case, ask):
    found = ask("softmax", case).traffic.thread_loads
    most = 2 * -(-case.arrays["x"].shape[1] // THREADS)
    return f"one thread loads {found} numbers; {most} are the most" if found > most else None


@item(
    "shared bytes",
    "A block needs at most 4,096 bytes of shared memory.",
    draw=draw_narrow,
    visible=1,
    hidden=1,
    rules=("memory-limit",),
    needs=("right",),
)
def shared_bytes(case, ask):
    ask("softmax", case)


@item("barriers", "A block passes at most 15 barriers.", needs=("right",), **SAME)
def barriers(case, ask):
    found = ask("softmax", case).traffic.block_barriers_each
    return f"a block passes {found} barriers" if found > 15 else None


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
