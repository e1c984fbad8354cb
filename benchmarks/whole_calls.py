"""Why one whole call of a program takes longer than the next: the strategy, threads that wait for a core, or a slower machine.

    python -m benchmarks.whole_calls bert_infer [--preset full] [--strategy fs18,astitch,auto] [--seconds 60]

In:  a program of ``benchmarks/models/``. Out: a line for each call (its time; for each thread of the process the milliseconds that
it ran and that it waited for a core; the milliseconds that the hypervisor gave to others), then a line for each strategy.

Most of such a call is library calls, the same under every strategy. A call that is slow while its threads ran all the time, waited
for nothing and were robbed of nothing was slow because the processor was: others use its caches, its memory, the second half of its
cores. Linux only: /proc/self/task/*/schedstat and /proc/stat say what threads and the hypervisor did.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from minisitch import trace
from minisitch.explain.compare import take_turns
from minisitch.runtime import assemble, choose_device, lower_program
from minisitch.trace.tree import flatten

from .results import ROOT, table

WORTH_SAYING = 1.0  # milliseconds of a thread


def thread_times() -> dict[str, tuple[float, float]]:
    """Milliseconds that each thread of this process ran, and that it could have run and waited for a core."""
    found = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        ran, waited, _ = path.read_text().split()
        found[path.parent.name] = int(ran) / 1e6, int(waited) / 1e6
    return found


def robbed_ms() -> float:
    """Milliseconds that the hypervisor gave to others, of all cores, while something here wanted to run."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) * 1000 / os.sysconf("SC_CLK_TCK")


def watched(call: Callable[[], object]) -> tuple[float, list[tuple[float, float]], float]:
    """One call: its milliseconds, what each busy thread ran and waited, and what the hypervisor took."""
    before, robbed, began = thread_times(), robbed_ms(), time.perf_counter()
    call()
    took, robbed = (time.perf_counter() - began) * 1e3, robbed_ms() - robbed
    spent = [(ran - before.get(name, (0.0, 0.0))[0], waited - before.get(name, (0.0, 0.0))[1])
             for name, (ran, waited) in thread_times().items()]
    return took, [pair for pair in spent if max(pair) > WORTH_SAYING], robbed


def main() -> None:
    """Print what the module's docstring says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_calls")
    parser.add_argument("workload")
    parser.add_argument("--preset", default="full", choices=("small", "full"))
    parser.add_argument("--strategy", default="xla,fs18,fs20,astitch,auto")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "benchmarks" / "models"))
    fn, args = importlib.import_module(options.workload).make(options.preset)
    program, leaves = trace(fn, args, {}), flatten((args, {}))[0]
    names = options.strategy.split(",")
    ready = {name: assemble(lower_program(program, name, "cpu", choose_device("cpu")), "cpu") for name in names}
    for run in ready.values():
        run(leaves)
    calls: dict[str, list[float]] = {name: [] for name in names}
    until = time.perf_counter() + options.seconds
    for order in take_turns(names):
        if time.perf_counter() > until:
            break
        for name in order:
            ready[name](leaves)  # what ran before leaves its caches behind
            took, threads, robbed = watched(lambda name=name: ready[name](leaves))
            calls[name].append(took)
            said = ", ".join(f"{ran:.0f} + {waited:.0f}" for ran, waited in threads)
            print(f"{name:8} {took:6.0f} ms; threads ran + waited {said}; robbed of {robbed:.0f} ms", flush=True)
    rows = [(name, str(len(each)), *(f"{of(each):.0f} ms" for of in (min, statistics.median, max))) for name, each in calls.items()]
    print("\n" + table([("strategy", "calls", "fastest", "median", "slowest"), *rows]))


if __name__ == "__main__":
    main()
