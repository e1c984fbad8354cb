"""What a gathered row costs by its length, its table's size, and how many turns ahead it is asked for: on one core.

    MINISITCH_THREADS=1 python -m benchmarks.gathers [--rows 64,256,800] [--tables 3,40] [--out FILE]

Out: for each row and table, nanoseconds a row of one kernel, products of gathered rows with a few others summed up: medians of
rounds in which the distances take turns. ``0 turns`` asks for nothing ahead, ``chosen`` as ``minisitch/prefetch.py`` does, whose
constants are from here; though from any table, also from those that it leaves alone.

Each sample gathers other rows of the table than the one before it, so a row is near only where the table is.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

from minisitch import get_device, prefetch, trace
from minisitch.explain.compare import take_turns
from minisitch.runtime import Executable, assemble, lower_program

from .results import Bar, surroundings, table, tell

ROW_BYTES = (16, 64, 256, 800, 2048, 4096)
TABLE_MB = (0.25, 1.0, 3.0, 8.0, 40.0, 160.0)
TURNS = (0, 2, 4, 8, 16, 32, None)  # None: as chosen
READ, MOST_ROWS = 4 << 20, 1 << 16  # bytes, and rows, that a sample gathers at most
ROUNDS = 14  # each distance comes after each other one twice
OTHERS = 64  # rows to multiply with: they stay in the nearest cache
Array = np.ndarray


def products(data: Array, ids: Array, others: Array) -> Array:
    """``data`` [n, width], ``ids`` [rows / 64, 64], ``others`` [64, width]."""
    return (data[ids] * others).sum(axis=-1)


def asking(turns: int | None, args: Sequence[Array]) -> Executable:
    """The compiled program that asks for rows so many turns ahead, from any table."""
    device = replace(get_device("cpu"), name=f"cpu asking {turns} turns ahead", shared_per_block=1 << 60 if turns == 0 else 1)
    distances = {} if turns is None else {"FEWEST_AHEAD": turns, "MOST_AHEAD": turns}
    with patch.dict(vars(prefetch), distances):
        return assemble(lower_program(trace(products, tuple(args)), "astitch", "cpu", device), "cpu")


def nanoseconds(row_bytes: int, table_bytes: int) -> dict[int | None, float]:
    """A row's, by the turns that it is asked for ahead."""
    random, width = np.random.default_rng(0), row_bytes // 4
    data = random.random((max(1, table_bytes // row_bytes), width), np.float32)
    blocks = max(1, min(READ // row_bytes, MOST_ROWS) // OTHERS)
    others = random.random((OTHERS, width), np.float32)
    draws = [random.integers(0, len(data), (blocks, OTHERS)) for _ in TURNS]
    runs = {turns: asking(turns, (data, draws[0], others)) for turns in TURNS}
    for run in runs.values():
        np.testing.assert_allclose(run.outputs([data, draws[0], others])[0], products(data, draws[0], others), rtol=1e-4)
    samples: dict[int | None, list[float]] = {turns: [] for turns in TURNS}
    for _, order in zip(range(ROUNDS), take_turns(list(TURNS)), strict=False):
        for ids, turns in zip(draws, order, strict=True):
            (call,) = runs[turns].prepare([data, ids, others])[1]
            began = time.perf_counter()
            call()
            samples[turns].append((time.perf_counter() - began) / ids.size * 1e9)
    return {turns: statistics.median(each) for turns, each in samples.items()}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gathers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default=",".join(map(str, ROW_BYTES)), help="bytes, multiples of 4 (default: %(default)s)")
    parser.add_argument("--tables", default=",".join(map(str, TABLE_MB)), help="megabytes (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the table here")
    given = parser.parse_args(words)
    if os.environ.get("MINISITCH_THREADS") != "1":
        parser.error("set MINISITCH_THREADS=1: these are rows of one core")
    cases = [(int(row), float(mb)) for row in given.rows.split(",") for mb in given.tables.split(",")]
    rows = [["bytes of a row", "MB of the table", *("chosen" if turns is None else f"{turns} turns" for turns in TURNS)]]
    with Bar(len(cases)) as bar:
        for number, (row, mb) in enumerate(cases):
            bar.show(number, f"rows of {row} bytes from {mb} MB")
            rows.append([str(row), f"{mb:g}", *(f"{ns:.1f}" for ns in nanoseconds(row, int(mb * 2**20)).values())])
            bar.finished(f"{row} bytes, {mb} MB", "")
    here = surroundings()
    head = f"Nanoseconds a row, {here['machine']}, {here['date']}, Numba {here['numba']}, load {here['load']}."
    tell(f"{head}\n\n{table(rows)}\n", given.out)


if __name__ == "__main__":
    main(sys.argv[1:])
