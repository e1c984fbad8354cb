"""What pipelines are worth on a CPU: nine programs of products under ``astitch`` and ``kitsune``, measured and modelled.

    python -m minisitch bench --suite cpu_pipelines --preset full [--workload mlp-512x64x1024,layers-16384x256] [--fresh]
    python -m benchmarks.cpu_pipelines benchmarks/results/FILE.json      (the report on a file that is there)

In:  programs whose layers are narrow or wide, with few rows and many. Out: a table, and ``benchmarks/results/*.json`` with all
samples, what each plan is modelled to take, and the figures of the device by which both were planned: calibrate first.

``auto`` takes a pipeline by what this showed (``docs/strategies/kitsune.md``). ``--preset small`` only tries it out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from minisitch import Device, Program, trace
from minisitch.errors import MinisitchError
from minisitch.runtime import assemble, choose_device, lower_program
from minisitch.strategies.kitsune.price import plan_with_pipelines_us
from minisitch.strategies.prices import Prices
from minisitch.trace.tree import flatten

from .papers import median, rounds
from .results import Record, Results, as_a_program, complain, run_suite, say, table, where_and_when

STRATEGIES = ("astitch", "kitsune")
Shapes = tuple[tuple[int, ...], ...]


# ---------------------------------------------------------------- the programs
def mlp(x: Any, w: Any, v: Any) -> Any:
    """Two products with a GELU between them."""
    h = x @ w
    return 0.5 * h * (1 + np.tanh(0.7978846 * (h + 0.044715 * h * h * h))) @ v


def seven_layers(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = np.maximum(x @ w, 0)
    return x


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def attention(q: Any, k: Any, v: Any) -> Any:
    return softmax(q @ np.swapaxes(k, -1, -2) * 0.125) @ v


def projected(x: Any, wq: Any, wk: Any, wv: Any, out: Any) -> Any:
    """Four heads of 16 and the products before and behind them."""
    batch, length, width = x.shape
    q, k, v = (np.transpose((x @ w).reshape(batch, length, 4, width // 4), (0, 2, 1, 3)) for w in (wq, wk, wv))
    return np.transpose(attention(q, k, v), (0, 2, 1, 3)).reshape(batch, length, width) @ out


def layers(rows: int, width: int) -> Shapes:
    return ((rows, width), *[(width, width)] * 7)


PROGRAMS: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "mlp-512x64x1024": (mlp, ((512, 64), (64, 1024), (1024, 64))),
    "mlp-8192x64x1024": (mlp, ((8192, 64), (64, 1024), (1024, 64))),
    "mlp-32768x64x1024": (mlp, ((32768, 64), (64, 1024), (1024, 64))),
    "mlp-32768x16x1024": (mlp, ((32768, 16), (16, 1024), (1024, 16))),
    "layers-16384x256": (seven_layers, layers(16384, 256)),
    "layers-65536x256": (seven_layers, layers(65536, 256)),
    "layers-262144x64": (seven_layers, layers(262144, 64)),
    "projected-32x4x128x16": (projected, ((32, 128, 64), *[(64, 64)] * 4)),
    "attention-8x12x512x64": (attention, ((8, 12, 512, 64),) * 3),
}


def arguments(name: str, preset: str) -> list[np.ndarray]:
    """Numbers of the size that keeps a chain of layers near one; ``small`` has a 64th of the rows, four at least."""
    rng = np.random.default_rng(0)
    first, *rest = PROGRAMS[name][1]
    least = first if preset == "full" else (*first[:-2], max(4, first[-2] // 64), first[-1])
    shapes = [least if shape == first else shape for shape in (first, *rest)]
    return [(rng.standard_normal(shape) / shape[-2] ** 0.5).astype(np.float32) if len(shape) == 2 and k else
            rng.standard_normal(shape).astype(np.float32) for k, shape in enumerate(shapes)]


# ---------------------------------------------------------------- one program, in a process of its own
def measure(workload: str, preset: str, strategies: list[str], target: str, seconds: float, device: Device | None = None,
            **_: Any) -> Record:
    """The record of one program."""
    fn, arrays, device = PROGRAMS[workload][0], arguments(workload, preset), device or choose_device(target)
    program, rows, ready = trace(fn, arrays, {}), dict[str, Record](), {}
    for name in strategies:
        say(f"{name}: compiling")
        stages = lower_program(program, name, target, device)
        ready[name] = assemble(stages, target)
        modelled = plan_with_pipelines_us(stages.plan, Prices(stages.graph, stages.device))
        rows[name] = {"modelled_us": round(modelled, 1), "kernels": len(stages.plan.kernels),
                      "pipelines": [str(p.composition) for p in stages.plan.pipelines]}
    samples = rounds(ready, lambda: fn(*arrays), flatten((tuple(arrays), {}))[0], seconds)
    for name, found in samples.items():
        rows.setdefault(name, {}).update(found)
    return {"device": asdict(device), "numpy": rows.pop("numpy"), "strategies": rows, "wrong": disagreement(program, ready, arrays)}


def disagreement(program: Program, ready: Record, arrays: list[np.ndarray]) -> str:
    """Which strategy's results are not close to the first one's; empty if all are."""
    first, *others = ([*run.outputs([np.array(x) for x in (*arrays, *program.captured)])] for run in ready.values())
    names = [name for name, got in zip(list(ready)[1:], others, strict=True)
             if not all(np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(first, got, strict=True))]
    return ", ".join(names)


# ---------------------------------------------------------------- the report
def report(records: dict[str, Record]) -> str:
    """Whole calls in milliseconds, how many times faster the pipelines are, and how many the model said."""
    lines = [("program", *(f"`{name}`" for name in STRATEGIES), "gain", "modelled", "pipelines")]
    for name, r in records.items():
        stitched, piped = (r["strategies"][s] for s in STRATEGIES)
        times = median(stitched, "call_us"), median(piped, "call_us")
        lines.append((name, *(f"{us / 1e3:.3g}" for us in times), f"{times[0] / times[1]:.2f}",
                      f"{stitched['modelled_us'] / piped['modelled_us']:.2f}", str(len(piped["pipelines"]))))
    devices = {r["device"]["source"] for r in records.values()}
    return f"{where_and_when(records)} Planned and modelled by: {'; '.join(sorted(devices))}.\n\n{table(lines)}"


def main(options: argparse.Namespace) -> None:
    """Measure what the results lack and print the report. Raises MinisitchError at the end if a program failed, or is wrong."""
    if options.strategy:
        raise MinisitchError(f"this suite holds {STRATEGIES[1]} against {STRATEGIES[0]}: leave --strategy out")
    results, records, failed = run_suite("cpu_pipelines", dict.fromkeys(PROGRAMS, Path(__file__)), STRATEGIES, options)
    if records:
        print(report(records), end="\n\n")
    print(f"raw results: {results.path}")
    complain(failed, [f"{name}: {r['wrong']} computes something else" for name, r in records.items() if r["wrong"]])


if __name__ == "__main__":
    as_a_program("cpu_pipelines", measure, lambda file: print(report(Results(file).records)))
