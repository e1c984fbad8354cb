"""The machine code of the workloads' kernels, without a GPU: registers, spills, shared memory, barriers, widths.

    python -m benchmarks.assembly [--workload lr,w2v] [--strategy astitch] [--architecture sm_90] [--jobs 2] [--out FILE]
    python -m benchmarks.assembly --report FILE                     (the report on a file that is there)

In:  the programs in ``benchmarks/models/``, each with its preset ``small``, lowered for a V100. Out: a line a kernel, the
promises of the schedule that its machine code breaks, and the same as JSON. Takes ``pip install 'minisitch[offline-cuda]'``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

from minisitch import get_device
from minisitch.offline import ARCHITECTURES, assemble, broken, missing
from minisitch.runtime import lower
from minisitch.source import KernelSource

from .papers import WORKLOADS
from .results import ROOT

SINGLE = 4  # bytes of a float32


def sources(workload: str, strategy: str) -> list[KernelSource]:
    """The different kernels of a workload."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "models"))  # a model imports what it shares with others by name
    fn, args = importlib.import_module(workload).make("small")
    found = lower(fn, *args, strategy=strategy, target="cuda", device=get_device("v100"))
    return list({source.text: source for source in found}.values())


def record(job: tuple[str, str, int, str]) -> dict[str, Any]:
    """What one kernel became on one architecture."""
    workload, strategy, number, architecture = job
    source = _known.setdefault((workload, strategy), None) or sources(workload, strategy)
    _known[workload, strategy] = source
    kernel, began = source[number].kernel, time.perf_counter()
    made = assemble(source[number], architecture)
    return {"workload": workload, "strategy": strategy, "kernel": kernel.name, "architecture": architecture,
            "operations": len(kernel.graph), "threads": kernel.block, "blocks": kernel.grid, "registers": made.registers,
            "at_most": kernel.registers, "spill_bytes": made.spill_bytes, "shared_bytes": made.shared_bytes,
            "block_barriers": made.block_barriers, "grid_barriers": made.grid_barriers,
            "widths": [list(width) for width in made.widths], "broken": list(broken(source[number], made)),
            "seconds": round(time.perf_counter() - began, 2)}


_known: dict[tuple[str, str], Any] = {}


def report(records: list[dict[str, Any]]) -> str:
    """Sums, then a line a kernel and architecture."""
    wrong = [r for r in records if r["broken"]]
    lines = [f"{len({r['kernel'] for r in records})} kernels, {len(records)} assemblies, "
             f"{len({r['kernel'] for r in wrong})} kernels break a promise, {sum(r['seconds'] for r in records):.0f} s", "",
             f"{'':12}{'assemblies':>11}{'registers':>11}{'most':>6}{'spilling':>10}{'wide accesses':>15}"]
    for architecture in sorted({r["architecture"] for r in records}, key=lambda a: int(a[3:])):
        mine = [r for r in records if r["architecture"] == architecture]
        accesses = [(bits, count) for r in mine for what, bits, count in r["widths"] if what in ("LDG", "STG")]
        wide = sum(count for bits, count in accesses if bits > 8 * SINGLE) / max(1, sum(count for _, count in accesses))
        lines.append(f"{architecture:12}{len(mine):11}{sum(r['registers'] for r in mine) / len(mine):11.1f}"
                     f"{max(r['registers'] for r in mine):6}{sum(r['spill_bytes'] > 0 for r in mine):10}{wide:15.1%}")
    lines += ["", *(f"{r['workload']} {r['kernel']} {r['architecture']}: {why}" for r in wrong for why in r["broken"]), ""]
    lines.append(f"{'workload':18}{'kernel':22}{'architecture':14}{'threads':>8}{'registers':>16}{'spilled':>9}{'shared':>8}"
                 "  barriers  accesses")
    for r in records:
        widths = " ".join(f"{what}.{bits}x{count}" for what, bits, count in r["widths"])
        lines.append(f"{r['workload']:18}{r['kernel']:22}{r['architecture']:14}{r['threads']:8}"
                     f"{r['registers']:9} of {r['at_most']:3}{r['spill_bytes']:9}{r['shared_bytes']:8}"
                     f"{r['block_barriers']:5} +{r['grid_barriers']:2}  {widths}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Assemble and print, or print what a file holds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assembly", description="The kernels' machine code, without a GPU.")
    parser.add_argument("--workload", default=",".join(WORKLOADS), help="some of the suite (default: all)")
    parser.add_argument("--strategy", default="astitch", help="some strategies (default: astitch, whose kernels are largest)")
    parser.add_argument("--architecture", default=",".join(ARCHITECTURES), help=f"some of {', '.join(ARCHITECTURES)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--out", type=Path, help="where to write the records as JSON")
    parser.add_argument("--report", type=Path, metavar="FILE", help="print the report on such a file")
    options = parser.parse_args(arguments)
    if options.report:
        print(report(json.loads(options.report.read_text(encoding="utf-8"))))
        return
    if problem := missing():
        sys.exit(problem)
    jobs = [(workload, strategy, number, architecture)
            for workload in options.workload.split(",") for strategy in options.strategy.split(",")
            for number in range(len(sources(workload, strategy))) for architecture in options.architecture.split(",")]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        records = pool.map(record, jobs, chunksize=8)
    if options.out:
        options.out.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    print(report(records))


if __name__ == "__main__":
    main()
