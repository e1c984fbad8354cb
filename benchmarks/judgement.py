"""What each step of ``auto`` buys: modelled time of the papers' workloads with steps left out.

    python -m benchmarks.judgement [--device v100] [--preset small] [--workload NAME,...] [--out FILE]

In:  a device and a preset. Out: a table, a line a workload: modelled time of all kernels under AStitch, and with each step of
``auto`` added in turn, as a share of AStitch's; how many kernels there are; geometric means. Nothing is run; the same
arguments give the same table.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minisitch as ms
from minisitch.graph import Graph
from minisitch.simplify import simplify
from minisitch.strategies.ask import fuse
from minisitch.strategies.auto import Judgement, decide
from minisitch.strategies.prices import Prices
from minisitch.trace import trace

from .papers import WORKLOADS
from .results import ROOT, tell

STEPS = {  # each adds one step to the line before
    "ablate": Judgement(replan=False, merge=False, compare=False),
    "replan": Judgement(merge=False, compare=False),
    "merge": Judgement(compare=False),
    "compare": Judgement(),
}


@dataclass(frozen=True)
class Line:
    """One workload: AStitch's modelled microseconds in kernels, each step's share of them, and the kernels of both."""

    name: str
    us: float
    shares: tuple[float, ...]
    kernels: tuple[int, int]


def measure(name: str, graph: Graph, device: ms.Device) -> Line:
    """Plan one workload under AStitch and under ``auto`` with more and more steps."""
    prices = Prices(graph, device)

    def in_kernels(plan: ms.FusionPlan) -> float:
        return sum(map(prices.pattern_us, plan.kernels))

    stitched = fuse(graph, "astitch", device)
    us = in_kernels(stitched)
    plans = [decide(graph, device, steps) for steps in STEPS.values()]
    return Line(name, us, tuple(in_kernels(p) / us for p in plans), (len(stitched.kernels), len(plans[-1].kernels)))


def table(lines: Sequence[Line], device: str) -> str:
    """The lines under a heading, geometric means below."""
    rows = [f"modelled for {device}; time in kernels as a share of astitch's, steps of auto added in turn",
            f"{'workload':18} {'astitch us':>11} " + " ".join(f"{'+ ' + s:>9}" for s in STEPS) + f" {'kernels':>11}"]
    rows += [f"{x.name:18} {x.us:11.1f} " + " ".join(f"{s:9.3f}" for s in x.shares) + f" {x.kernels[0]:4} -> {x.kernels[1]:3}"
             for x in lines]
    means = np.exp(np.mean(np.log([x.shares for x in lines]), axis=0))
    return "\n".join([*rows, f"{'geometric mean':30} " + " ".join(f"{m:9.3f}" for m in means)])


def lines_of(names: Sequence[str], preset: str, device: ms.Device) -> Iterator[Line]:
    """One workload after the other."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "models"))  # a model imports what it shares with others by name
    for name in names:
        function, arguments = importlib.import_module(name).make(preset)
        yield measure(name, simplify(trace(function, arguments, {}).graph), device)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judgement", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="v100")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--workload", default=",".join(WORKLOADS), metavar="NAME,...")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the table there")
    options = parser.parse_args(words)
    lines = list(lines_of(options.workload.split(","), options.preset, ms.get_device(options.device)))
    tell(table(lines, options.device), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
