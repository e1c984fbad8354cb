"""What a sweep over a row costs that is in the nearest cache, where a kernel waits for the last one: layernorm by hand.

    python -m benchmarks.sweeps [--rows 3072]

Out: a line each for a copy, for layernorm in two sweeps (sum and squares together, shifted by the row's first element) and in
three (mean, variance, result; what minisitch emits), and for three over one row that stays in the nearest cache: nanoseconds
a row of 1024 float32 on one core, the least and the median of 40 turns. docs/performance.md has what it found.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numba
import numpy as np

COLUMNS, TURNS = 1024, 40
F32 = np.float32
SMALL = F32(1e-5)
jit = numba.njit(fastmath=True, error_model="numpy")


@jit
def copy(x, y, scale, shift):
    for row in range(len(x)):
        source, result = x[row], y[row]
        for col in range(COLUMNS):
            result[col] = source[col] * F32(1.5)


@jit
def two_sweeps(x, y, scale, shift):
    for row in range(len(x)):
        source, result = x[row], y[row]
        first, total, squares = source[0], F32(0), F32(0)
        for col in range(COLUMNS):
            centred = source[col] - first
            total += centred
            squares += centred * centred
        mean = total / F32(COLUMNS)
        rate = F32(1) / np.sqrt(squares / F32(COLUMNS) - mean * mean + SMALL)
        for col in range(COLUMNS):
            result[col] = (source[col] - (first + mean)) * rate * scale[col] + shift[col]


@jit
def _row_in_three_sweeps(source, result, scale, shift):
    total, squares = F32(0), F32(0)
    for col in range(COLUMNS):
        total += source[col]
    mean = total / F32(COLUMNS)
    for col in range(COLUMNS):
        squares += (source[col] - mean) * (source[col] - mean)
    rate = F32(1) / np.sqrt(squares / F32(COLUMNS) + SMALL)
    for col in range(COLUMNS):
        result[col] = (source[col] - mean) * rate * scale[col] + shift[col]


@jit
def three_sweeps(x, y, scale, shift):
    for row in range(len(x)):
        _row_in_three_sweeps(x[row], y[row], scale, shift)


@jit
def three_sweeps_of_one_row(x, y, scale, shift):
    for row in range(len(x)):
        _row_in_three_sweeps(x[row % 2], y[row % 2], scale, shift)


WAYS: tuple[Callable[..., None], ...] = (copy, two_sweeps, three_sweeps, three_sweeps_of_one_row)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweeps", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=3072, help="of 1024 columns (default: %(default)s, 12.6 MB)")
    rows = parser.parse_args(words).rows
    x = np.random.default_rng(0).standard_normal((rows, COLUMNS), F32)
    arguments = x, np.empty_like(x), np.ones(COLUMNS, F32), np.zeros(COLUMNS, F32)
    taken: dict[str, list[float]] = {way.__name__: [] for way in WAYS}
    for way in WAYS:
        way(*arguments)
    for _ in range(TURNS):
        for way in WAYS:
            began = time.perf_counter()
            way(*arguments)
            taken[way.__name__].append((time.perf_counter() - began) / max(1, rows) * 1e9)
    for name, each in taken.items():
        print(f"{name:24} {min(each):6.0f} ns a row at best, {statistics.median(each):6.0f} in the median")


if __name__ == "__main__":
    main()
