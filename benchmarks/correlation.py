"""How well the cost model orders kernels on this machine: Spearman's rank correlation of modelled and measured time.

    python -m benchmarks.correlation [--seconds 120] [--models FOLDER] [--out FILE]

Every kernel launch of the programs is timed under the strategies of ``PRICED``. A time is the least of several runs, since other
programs only ever add time. The device file is the user's: run ``python -m minisitch calibrate`` first to check new figures.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.__main__ import seconds
from minisitch.device import Device
from minisitch.explain.compare import duration, launch_times
from minisitch.kernel import Kernel
from minisitch.runtime import Executable, assemble, lower_program
from minisitch.runtime.this_machine import BUILT_IN, cpu_with, machine, this_cpu
from minisitch.strategies import cost
from minisitch.trace import trace
from minisitch.trace.tree import flatten

# Functions that make a program's function and arguments. These may be large, so they are made late.
Programs = dict[str, Callable[[], tuple[Callable[..., Any], tuple]]]
PRICED = ("none", "xla", "astitch")  # strategies whose kernels are timed


@dataclass(frozen=True)
class Sample:
    """One kernel, its program and strategy, and the least microseconds it took.

    ``around`` is the working set of the program in bytes.
    """

    program: str
    strategy: str
    kernel: Kernel
    us: float
    around: int = 0

    def modelled(self, device: Device) -> float:
        return cost.kernel_us(replace(self.kernel, device=device), self.around)


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation. Equal values share a rank. NaN if a side has a single value."""
    def ranks(values: Sequence[float]) -> np.ndarray:
        _, which, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[which]

    first, second = (r - r.mean() for r in (ranks(a), ranks(b)))
    scale = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / scale if scale else math.nan


def measured(programs: Programs, device: Device, most: float) -> tuple[list[Sample], list[str]]:
    """Each kernel once, with its least time, and the programs for which ``most`` seconds left no time. One is always run."""
    found: dict[str, Sample] = {}
    began, left_out = time.perf_counter(), []
    for name, make in programs.items():
        if found and time.perf_counter() > began + most:
            left_out.append(name)
            continue
        for sample in timed(name, *make(), device):
            known = found.get(sample.kernel.name)
            found[sample.kernel.name] = sample if known is None or sample.us < known.us else known
    return list(found.values()), left_out


def timed(name: str, fn: Callable[..., Any], args: tuple, device: Device) -> Iterator[Sample]:
    """Each kernel launch of a program under every strategy of ``PRICED``. The first run is left out, because memory is new."""
    program, leaves = trace(fn, args), flatten((args, {}))[0]
    for strategy in PRICED:
        run: Executable = assemble(lower_program(program, strategy, "cpu", device), "cpu")
        around = cost.working_set(run.stages.graph)
        for kernel, us in zip(run.stages.kernels, launch_times(run, leaves, 1.0, fewest=4), strict=True):
            yield Sample(name, strategy, kernel, min(us[1:]), around)


def correlation(samples: Sequence[Sample], device: Device) -> float:
    return spearman([s.us for s in samples], [s.modelled(device) for s in samples])


def report(samples: Sequence[Sample], device: Device, left_out: Sequence[str]) -> Iterable[str]:
    """The correlation with the built-in figures and with this machine's, and the kernels that are farthest off."""
    before, after = correlation(samples, cpu_with(BUILT_IN)), correlation(samples, device)
    yield (f"{machine()}\nrank correlation of modelled and measured time over {len(samples)} kernels: {before:.3f} built-in, "
           f"{after:.3f} with {device.source}")
    yield "\nfarthest off                                                   measured    modelled"
    for s in sorted(samples, key=lambda s: -abs(math.log(s.us / s.modelled(device))))[:10]:
        yield f"  {s.program[:20]:<21}{s.strategy:<9}{s.kernel.name[:30]:<31}{duration(s.us):>10}{duration(s.modelled(device)):>12}"
    if left_out:
        yield f"\nno time was left for {', '.join(left_out)}: give more --seconds"


def models(folder: Path) -> Programs:
    """The programs of a folder's files, with their last and largest preset."""
    sys.path.insert(0, str(folder))
    found: Programs = {}
    for path in sorted(folder.glob("*.py")):
        module = importlib.import_module(path.stem)
        if hasattr(module, "make"):
            preset = list(getattr(module, "PRESETS", None) or [""])[-1]
            found[f"{path.stem} {preset}".strip()] = functools.partial(module.make, preset)
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Time the programs' kernels, print the report, and keep the raw times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.correlation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=seconds, default=120.0, help="about how long to measure (default: 120)")
    parser.add_argument("--models", type=Path, metavar="FOLDER", default=Path(__file__).parent / "models",
                        help="of files that define make(preset) (default: benchmarks/models)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write each kernel's times as JSON")
    options = parser.parse_args(words)
    device = this_cpu()
    samples, left_out = measured(models(options.models), device, options.seconds)
    print(*report(samples, device, left_out), sep="\n")
    if options.out:
        kernels = [[s.program, s.strategy, s.kernel.name, round(s.us, 2), round(s.modelled(device), 2),
                    round(s.modelled(cpu_with(BUILT_IN)), 2)] for s in samples]
        options.out.write_text(json.dumps({"machine": machine(), "left out": left_out, "kernels": kernels}, indent=1) + "\n",
                               encoding="utf-8")


if __name__ == "__main__":
    main()
