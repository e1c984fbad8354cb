"""The shapes that AStitch calls irregular: how adaptive thread mapping cuts them, and what that is worth.

    python -m minisitch bench --suite irregular [--preset full] [--workload 750000x32-softmax]
    python -m benchmarks.irregular benchmarks/results/FILE.json        (the report on a file that is there)

In:  a row sum, a softmax and a layernorm over each shape below. Out: a table a program, and the raw file with the kernels' text.

Each program is one kernel, built in two ways: ``adaptive`` (AStitch's packing of short rows and splitting of long ones) and
``fixed`` (a block a row, as XLA has it). The mapping and the modelled time are a V100's, where they were invented: a CPU core
takes rows in turn either way, and differs only where a row is cut. The preset ``full`` also measures the shape itself;
``small`` measures as many of its rows as make up 65,536 elements.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minisitch import STRATEGIES, Device, FusionPlan, Graph, TensorType, get_device, trace
from minisitch.errors import MinisitchError
from minisitch.explain.compare import duration, error_of
from minisitch.fuse import Stitching
from minisitch.kernel import Kernel
from minisitch.passes.registry import default_kernel
from minisitch.runtime import assemble, choose_device, lower_program
from minisitch.simplify import simplify
from minisitch.stitch.compose import compose
from minisitch.stitch.windows import body_of
from minisitch.strategies.cost import kernel_us, working_set

from .papers import FAR, median, rounds
from .results import Record, Results, as_a_program, complain, run_suite, say, table, where_and_when

SHAPES = {
    "750000x32": "DIEN's row-reduce: rows far too short for a block (AStitch, figure 6a)",
    "64x30000": "a Transformer's vocabulary: too few rows to fill the machine (AStitch, figure 6b)",
    "8704x17": "FusionStitching 2018's softmax",
    "4096x1024": "a Transformer's training batch",
    "11000x123": "short rows of no round length",
    "11000x12345": "long rows of no round length",
    "1x128x768": "one sentence of BERT",
}
SMALL = 1 << 16  # elements that the small preset measures
CHECKED = 64  # rows at either end that are compared with NumPy in float64


def row_sum(x):
    """One number a row."""
    return np.sum(x, axis=-1)


def softmax(x):
    """Rows of positive numbers that add up to 1."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def layernorm(x):
    """Rows with mean 0 and variance 1."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + np.float32(1e-5))


PROGRAMS: dict[str, Callable[..., Any]] = {"sum": row_sum, "softmax": softmax, "layernorm": layernorm}


# ---------------------------------------------------------------- two ways to build one kernel
VARIANTS = {"adaptive": Stitching(), "fixed": Stitching(adaptive=False)}


def planned(graph: Graph, device: Device, variant: str) -> FusionPlan:
    """AStitch's plan, with the ingredients of this variant in its kernels."""
    plan = STRATEGIES["astitch"](graph, device)
    patterns = tuple(replace(p, composition=VARIANTS[variant]) for p in plan.patterns)
    return replace(plan, strategy=variant, patterns=patterns)


def kernels_of(fn: Callable[..., Any], shape: tuple[int, ...], variant: str, device: Device) -> tuple[Kernel, ...]:
    """The kernels of a program on a device, which need not be here."""
    graph = simplify(trace(fn, (TensorType(shape, "float32"),)).graph)
    plan = planned(graph, device, variant)
    return tuple(default_kernel(compose(body_of(graph, p).graph, device, p.composition)) for p in plan.kernels)


def sizes(text: str) -> tuple[int, ...]:
    """``750000x32`` as a shape."""
    return tuple(map(int, text.split("x")))


# ---------------------------------------------------------------- measuring one of them, in a process of its own
def measure(workload: str, preset: str, strategies: list[str], target: str, seconds: float, **_: Any) -> Record:
    """The record of one shape and program."""
    shape_text, _, name = workload.rpartition("-")
    fn, shape = PROGRAMS[name], sizes(shape_text)
    rows = shape if preset == "full" else cut(shape)
    x = np.random.default_rng(0).normal(size=rows).astype(np.float32)
    program = trace(fn, (x,))
    ready, found = {}, {}
    for variant in strategies:
        say(f"{variant}: compiling")
        STRATEGIES[variant] = partial(planned, variant=variant)  # in this process only
        stages = lower_program(program, variant, target, choose_device(target))
        ready[variant] = assemble(stages, target)
        found[variant] = {**mapping(kernels_of(fn, shape, variant, get_device("v100"))),
                          "here_us": round(sum(kernel_us(k, working_set(stages.graph)) for k in stages.kernels), 2),
                          "max_error": error(ready[variant]([x]), x, fn)}
    numpy_row: Record = {"max_error": error(fn(x), x, fn)}
    for variant, samples in rounds(ready, lambda: fn(x), [x], seconds).items():
        (numpy_row if variant == "numpy" else found[variant]).update(samples)
    return {"measured_shape": list(rows), "numpy": numpy_row, "strategies": found}


def cut(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with fewer rows: about ``SMALL`` elements, at least a row."""
    row, rows = shape[-1], math.prod(shape[:-1])
    fewer = max(1, min(rows, SMALL // row))
    return shape if fewer == rows else (fewer, row)


def mapping(kernels: tuple[Kernel, ...]) -> Record:
    """How the first kernel's first loop is cut on its device, what the kernels say in text, and their modelled time."""
    first = kernels[0].segments[0]
    cuts = first.thread_map
    return {"kernels": len(kernels), "rule": cuts.rule, "grid": kernels[0].grid, "block": kernels[0].block,
            "rows_per_block": cuts.rows_per_block, "threads_per_row": cuts.threads_per_row, "steps": cuts.steps,
            "splits": cuts.splits, "wave": kernels[0].device.wave(kernels[0].block, kernels[0].shared_bytes),
            "grid_barriers": sum(k.grid_barriers for k in kernels), "why": cuts.why,
            "v100_us": round(sum(map(kernel_us, kernels)), 2), "text": "\n\n".join(map(str, kernels))}


def error(got: np.ndarray, x: np.ndarray, fn: Callable[..., Any]) -> float:
    """Distance from NumPy in float64 on the first rows and the last, relative to the largest magnitude."""
    worst = 0.0
    for part in (slice(None, CHECKED), slice(-CHECKED, None)):
        exact = fn(x.reshape(-1, x.shape[-1])[part].astype(np.float64))
        worst = max(worst, error_of(got.reshape(-1, *exact.shape[1:])[part], exact))
    return float(f"{worst:.2e}")


# ---------------------------------------------------------------- the report
HEADINGS = ("shape", "mapping", "rule", "blocks x threads", "rows a block", "in turn", "threads a row", "pieces a row", "wave",
            "model V100", "in kernels", "error")


def report(records: dict[str, Record]) -> str:
    """A table a program, then what adaptive mapping wins, modelled on a V100 and measured here."""
    parts = [where_and_when(records)]
    for program in PROGRAMS:
        mine = {name.rpartition("-")[0]: r for name, r in records.items() if name.endswith(f"-{program}")}
        if mine:
            parts.append(f"## {program}\n\n{one_table(mine)}\n\n{gains(mine)}")
    return "\n\n".join(parts)


def one_table(records: dict[str, Record]) -> str:
    """Two lines a shape."""
    lines: list[tuple[str, ...]] = [HEADINGS]
    for shape, record in records.items():
        for variant, row in record["strategies"].items():
            lines.append((shape, variant, row["rule"], f"{row['grid']} x {row['block']}", str(row["rows_per_block"]),
                          str(row["steps"]), str(row["threads_per_row"]), str(row["splits"]), str(row["wave"]),
                          duration(row["v100_us"]), duration(median(row, "in_kernels_us")), f"{row['max_error']:.0e}"))
    return table(lines)


def gains(records: dict[str, Record]) -> str:
    """A line a shape: how many times faster adaptive is than fixed."""
    lines = []
    for shape, record in records.items():
        rows = record["strategies"]
        if set(VARIANTS) <= set(rows):
            modelled = rows["fixed"]["v100_us"] / rows["adaptive"]["v100_us"]
            measured = median(rows["fixed"], "in_kernels_us") / median(rows["adaptive"], "in_kernels_us")
            size = "x".join(map(str, record["measured_shape"]))
            lines.append(f"- {shape}: adaptive is {modelled:.2f} times as fast as fixed modelled on a V100, {measured:.2f} times "
                         f"measured here ({size}). {rows['adaptive']['why']}.")
    return "\n".join(lines)


def main(options: argparse.Namespace) -> None:
    """Measure what the results lack and print the report.

    Raises MinisitchError at the end if a program failed, or its results are wrong.
    """
    variants = options.strategy or list(VARIANTS)
    if unknown := [v for v in variants if v not in VARIANTS]:
        raise MinisitchError(f"unknown mapping {unknown[0]!r}; take one of {', '.join(VARIANTS)}")
    files = {f"{shape}-{program}": Path(__file__) for shape in SHAPES for program in PROGRAMS}
    results, records, failed = run_suite("irregular", files, variants, options)
    if records:
        print(report(records), end="\n\n")
    print(f"raw results: {results.path}")
    wrong = [f"{name}, {variant}: results are wrong" for name, r in records.items() for variant, row in r["strategies"].items()
             if not row["max_error"] <= FAR * max(r["numpy"]["max_error"], 1e-6)]
    complain(failed, wrong)


if __name__ == "__main__":
    as_a_program("irregular", measure, lambda file: print(report(Results(file).records)))
