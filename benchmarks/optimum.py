"""How far each strategy is from the best plan there is, over random small programs.

    python -m benchmarks.optimum [--device v100] [--programs 100] [--out FILE]

In:  a device. Out: a table, a line a strategy: modelled time over the optimum's (geometric mean, worst), and in how many
programs the strategy's own plan is optimal. No program is run; the same arguments give the same table.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minisitch as ms
from minisitch.fuse import STRATEGIES
from minisitch.simplify import simplify
from minisitch.strategies.ask import fuse
from minisitch.strategies.optimum import PlanSpace, bits, optimum
from minisitch.strategies.prices import Prices
from minisitch.testing import random_graph

from .results import tell

FEWEST = 3  # operations: less is no puzzle


@dataclass(frozen=True)
class Grades:
    """Ratios to the optimum: one a program, for each strategy."""

    device: str
    ratios: dict[str, list[float]]

    def __str__(self) -> str:
        count = len(next(iter(self.ratios.values())))
        lines = [f"{count} random programs of {FEWEST} operations and more, modelled for {self.device}",
                 f"{'strategy':10} {'over optimum':>12} {'worst':>6} {'optimal':>8}"]
        for name, found in sorted(self.ratios.items(), key=lambda item: -np.mean(np.log(item[1]))):
            lines.append(f"{name:10} {np.exp(np.mean(np.log(found))):11.3f}x {max(found):5.2f}x "
                         f"{sum(r < 1.0005 for r in found) / count:8.0%}")
        return "\n".join(lines)


def grade(device: ms.Device, programs: int, first: int = 0) -> Grades:
    """Every strategy on ``programs`` random graphs that are small enough to know the optimum of."""
    ratios: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    seed = first
    while len(ratios["none"]) < programs:
        rng = np.random.default_rng(seed)
        graph = simplify(random_graph(rng, max_nodes=22, max_elements=int(rng.choice([4000, 200_000]))))
        seed += 1
        try:
            space = PlanSpace(graph, device)
        except ms.PlanError:
            continue  # too large
        if len(space.values) < FEWEST or any(graph[v].kind == "source" for v in bits(space.required)):
            continue  # ``make_plan`` gives each constant that is returned a kernel of its own, under every strategy
        plans = {name: fuse(graph, name, device) for name in STRATEGIES}
        best = optimum(graph, device, list(plans.values()))
        least = Prices(best.graph, device).plan_us(best)
        for name, plan in plans.items():
            ratios[name].append(Prices(plan.graph, device).plan_us(plan) / least)
    return Grades(device.name, ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description="How far each strategy is from the best plan, over random small programs.")
    parser.add_argument("--device", default="v100")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    grades = grade(ms.get_device(options.device), options.programs)
    tell(str(grades), options.out)


if __name__ == "__main__":
    main()
