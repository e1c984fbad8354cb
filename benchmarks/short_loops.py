"""What loops of few turns cost, and what the model says: eight programs over arrays of 2 to 100 columns, on one core.

    MINISITCH_THREADS=1 python -m benchmarks.short_loops [--elements 65536]

Out: a line for each program, with the columns, the least microseconds its one kernel took, and the modelled ones; then for each
number of columns how many times too high the model is (geometric mean), and the mean factor by which it errs, either way.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from collections.abc import Callable, Sequence

import numpy as np

import minisitch as ms
from benchmarks.papers import in_kernels
from minisitch.runtime import assemble, choose_device, lower_program
from minisitch.strategies import cost
from minisitch.trace.tree import flatten

COLUMNS = (2, 3, 4, 5, 8, 10, 12, 16, 17, 24, 32, 40, 64, 100)
TURNS = 40
Array = np.ndarray


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# Of x, a row w, indices of rows, and a table with the columns of x.
PROGRAMS: dict[str, Callable[[Array, Array, Array, Array], Array]] = {
    "relu": lambda x, w, rows, table: np.maximum(x * w + w, 0),
    "centred": lambda x, w, rows, table: x - x.mean(-1, keepdims=True),
    "softmax": lambda x, w, rows, table: softmax(x),
    "looked up": lambda x, w, rows, table: table[rows] * x,
    "beside": lambda x, w, rows, table: np.concatenate([table[rows], x], 1),
    "transposed": lambda x, w, rows, table: x.T * 2.0,
    "exp": lambda x, w, rows, table: np.exp(x * w + w),
    "masked sum": lambda x, w, rows, table: np.where(x > 0, x, w).sum(-1),
}


def measured(fn: Callable[..., Array], columns: int, elements: int) -> tuple[float, float]:
    """The least microseconds of the one kernel of ``fn``, and the modelled ones."""
    random, rows = np.random.default_rng(0), elements // columns
    args = (random.random((rows, columns), np.float32) - np.float32(0.5), random.random(columns, np.float32),
            random.integers(0, 100, rows), random.random((100, columns), np.float32))
    stages = lower_program(ms.trace(fn, args), "astitch", "cpu", choose_device("cpu"))
    (kernel,), run, leaves = stages.kernels, assemble(stages, "cpu"), flatten((args, {}))[0]
    run(leaves)
    return min(in_kernels(run, leaves)[0] for _ in range(TURNS)), cost.kernel_us(kernel)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.short_loops", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--elements", type=int, default=1 << 16, help="of each array (default: %(default)s)")
    parser.add_argument("--columns", default=",".join(map(str, COLUMNS)), help="(default: %(default)s)")
    given = parser.parse_args(words)
    elements, widths = given.elements, [int(n) for n in given.columns.split(",")]
    if os.environ.get("MINISITCH_THREADS") != "1":
        parser.error("set MINISITCH_THREADS=1: these are loops of one core")
    logs: dict[int, list[float]] = {columns: [] for columns in widths}
    for name, fn in PROGRAMS.items():
        shown = []
        for columns in widths:
            us, modelled = measured(fn, columns, elements)
            logs[columns].append(math.log(modelled / us))
            shown.append(f"{columns}: {us:.0f} ({modelled:.0f})")
        print(f"{name:11} {', '.join(shown)}", flush=True)
    print("modelled over measured: " + ", ".join(f"{n}: {math.exp(statistics.mean(each)):.2f}" for n, each in logs.items()))
    print(f"it errs by a factor of {math.exp(statistics.mean(abs(x) for each in logs.values() for x in each)):.2f}")


if __name__ == "__main__":
    main()
