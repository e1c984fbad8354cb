"""Items of A2. None of them holds the answer: each says what must be true of a launch."""

from __future__ import annotations

import functools

import numpy as np

import minisitch as ms
from minisitch.course import KernelRun, item
from minisitch.course.kernels import too_much
from minisitch.reference import evaluate
from minisitch.testing import judge

RETURNS = {"softmax": KernelRun}


SAME = {"draw": "draw", "visible": 3, "hidden": 5, "size": 4, "hidden_size": 6, "cases_of": "rows"}


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
    "work",
    "The result is right, and the threads share the work: the busiest has at most 1.5 times the operations that it has in a "
    "good kernel.",
    weight=2,
    builds=True,
    **SAME,
)
def work(case, ask):
    run = ask("softmax", case)
    return too_much(run, case) or wrong_cell(case, run)


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
    **SAME,
)
def dialect(case, ask):
    ask("softmax", case)


@item(
    "inside",
    "No thread reads or writes outside an array.",
    rules=("out-of-bounds",),
    **SAME,
)
def inside(case, ask):
    ask("softmax", case)


@item(
    "meet",
    "All threads of a block come to the same barriers, and the kernel ends.",
    rules=("divergent-barrier", "lane-mask", "one-wave", "deadlock", "endless"),
    **SAME,
)
def meet(case, ask):
    ask("softmax", case)


@item(
    "no race",
    "Between two threads that touch one cell, and one of them writes, there is a barrier.",
    weight=2,
    rules=("race", "unwritten-read", "wrong-owner"),
    **SAME,
)
def no_race(case, ask):
    ask("softmax", case)


@item(
    "every cell",
    "Every cell of y is written.",
    rules=("unwritten-output",),
    **SAME,
)
def every_cell(case, ask):
    ask("softmax", case)


@item(
    "extremes",
    "It is right for numbers near 1000 and -1000, and where some numbers of a row are -inf.",
    draw="draw_extremes",
    visible=2,
    hidden=3,
)
def extremes(case, ask):
    return wrong_cell(case, ask("softmax", case))


@item("loads", "It loads each number of x at most twice.", **SAME)
def loads(case, ask):
    found = ask("softmax", case).traffic.loads
    most = 2 * case.arrays["x"].size
    return f"{found} loads; {most} are the most" if found > most else None


@item(
    "shared bytes",
    "A block needs at most 4,096 bytes of shared memory.",
    draw="draw_narrow",
    visible=1,
    hidden=1,
    rules=("memory-limit",),
)
def shared_bytes(case, ask):
    ask("softmax", case)


@item("barriers", "A block passes at most 15 barriers.", **SAME)
def barriers(case, ask):
    found = ask("softmax", case).traffic.block_barriers_each
    return f"a block passes {found} barriers" if found > 15 else None
