"""The machine code of the benchmarks' kernels, without a GPU: registers, spills, shared memory, barriers, widths.

    python -m benchmarks.assembly [--workload softmax-1x768,model_lr-small] [--architecture sm_90,sm_100] [--jobs 2] [--fresh]
    python -m benchmarks.assembly --report FILE                     (the report on a file that is there)

In:  the cases of the cpu suite, which hold every model with its preset ``small``, and the irregular shapes, lowered by
``astitch``, whose kernels are largest, for a V100; and the pipelines of Kitsune's models, with the preset ``medium`` for an A100.
Out: a line a kernel, the promises of the schedule that its machine code breaks, and a file in ``benchmarks/results/``.
What is in that file already is not assembled again. Takes ``pip install 'minisitch[offline-cuda]'``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minisitch import get_device, trace
from minisitch.errors import MinisitchError
from minisitch.kernel.text import KernelSource
from minisitch.runtime import lower_program
from minisitch.runtime.cuda.offline import ARCHITECTURES, assemble, assemble_pipeline, broken, broken_pipeline, missing
from minisitch.strategies.kitsune.emit import PipelineSource

from . import cpu_programs, irregular, kitsune
from .results import ROOT, Record, Results, code_digest, measure_all, path_of, say

Source = KernelSource | PipelineSource

SINGLE = 32  # bits of a float32
ASTITCH = ("astitch", "v100")
KITSUNE = ("kitsune", "a100")


def workloads() -> dict[str, tuple[str, str]]:
    """The strategy and the device of each workload; each is a case that ``program`` knows."""
    shapes = [f"irregular_{name}-{shape}" for shape in irregular.SHAPES for name in irregular.PROGRAMS]
    plain = [*cpu_programs.cases("full"), *shapes]
    return {**dict.fromkeys(plain, ASTITCH), **{f"model_{name}-medium": KITSUNE for name in kitsune.WORKLOADS}}


def program(workload: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A workload's function and arguments."""
    name, _, shape = workload.rpartition("-")
    if name.startswith("irregular_"):
        fn = irregular.PROGRAMS[name.removeprefix("irregular_")]
        return fn, (np.broadcast_to(np.float32(1), irregular.sizes(shape)),)  # its shape counts, and takes no memory
    return cpu_programs.load(workload)


# ---------------------------------------------------------------- one workload, in a process of its own
def measure(workload: str, architectures: Sequence[str], jobs: int, **_: Any) -> Record:
    """What the different kernels of a workload became on each architecture."""
    say("lowering")
    strategy, device = workloads()[workload]
    fn, args = program(workload)
    stages = lower_program(trace(fn, args), strategy, "cuda", get_device(device))
    if strategy == "kitsune":
        sources: list[Source] = [flow.source for flow in stages.flows]
    else:
        sources = [source for source in stages.sources if source.kernel.grid]
    todo = [(source, architecture) for source in {s.text: s for s in sources}.values() for architecture in architectures]
    kernels = []
    with multiprocessing.get_context("spawn").Pool(min(jobs, max(1, len(todo)))) as pool:
        for row in pool.imap(assembled, todo):
            kernels.append(row)
            say(f"{len(kernels)} of {len(todo)} assembled")
    return {"device": device, "kernels": kernels}


def assembled(job: tuple[Source, str]) -> Record:
    """What one kernel became on one architecture."""
    source, architecture = job
    if isinstance(source, PipelineSource):
        made, threads, at_most = assemble_pipeline(source, architecture), source.block, source.registers
        wrong = broken_pipeline(source, made)
    else:
        made, threads, at_most = assemble(source, architecture), source.kernel.block, source.kernel.registers
        wrong = broken(source, made)
    return {"kernel": made.name, "architecture": architecture, "threads": threads, "registers": made.registers, "at_most": at_most,
            "spill_bytes": made.spill_bytes, "shared_bytes": made.shared_bytes, "block_barriers": made.block_barriers,
            "grid_barriers": made.grid_barriers, "widths": [list(width) for width in made.widths], "broken": list(wrong)}


# ---------------------------------------------------------------- the report
def report(records: dict[str, Record]) -> str:
    """Sums, then a line a kernel and architecture."""
    rows = [(workload, row) for workload, record in records.items() for row in record["kernels"]]
    wrong = [(workload, row) for workload, row in rows if row["broken"]]
    lines = [f"{len(records)} workloads, {len({r['kernel'] for _, r in rows})} kernels, {len(rows)} assemblies, "
             f"{len({r['kernel'] for _, r in wrong})} kernels break a promise", "",
             f"{'':12}{'assemblies':>11}{'registers':>11}{'most':>6}{'spilling':>10}{'wide accesses':>15}"]
    for architecture in sorted({r["architecture"] for _, r in rows}, key=lambda a: int(a[3:])):
        mine = [r for _, r in rows if r["architecture"] == architecture]
        accesses = [(bits, count) for r in mine for what, bits, count in r["widths"] if what in ("LDG", "STG")]
        wide = sum(count for bits, count in accesses if bits > SINGLE) / max(1, sum(count for _, count in accesses))
        lines.append(f"{architecture:12}{len(mine):11}{sum(r['registers'] for r in mine) / len(mine):11.1f}"
                     f"{max(r['registers'] for r in mine):6}{sum(r['spill_bytes'] > 0 for r in mine):10}{wide:15.1%}")
    lines += ["", *(f"{workload} {r['kernel']} {r['architecture']}: {why}" for workload, r in wrong for why in r["broken"]), ""]
    lines.append(f"{'workload':28}{'kernel':34}{'architecture':14}{'threads':>8}{'registers':>16}{'spilled':>9}{'shared':>8}"
                 "  barriers  accesses")
    for workload, r in rows:
        widths = " ".join(f"{what}.{bits}x{count}" for what, bits, count in r["widths"])
        lines.append(f"{workload:28}{r['kernel']:34}{r['architecture']:14}{r['threads']:8}"
                     f"{r['registers']:9} of {r['at_most']:3}{r['spill_bytes']:9}{r['shared_bytes']:8}"
                     f"{r['block_barriers']:5} +{r['grid_barriers']:2}  {widths}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Assemble what the results lack and print the report. Raises MinisitchError at the end if a workload failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assembly", description="The kernels' machine code, without a GPU.")
    parser.add_argument("--workload", type=lambda text: text.split(","), help="some of them (default: all)")
    parser.add_argument("--architecture", type=lambda text: text.split(","), default=list(ARCHITECTURES),
                        help=f"some of {', '.join(ARCHITECTURES)} (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--fresh", action="store_true", help="assemble again what the file holds")
    parser.add_argument("--out", type=Path, help="the file of the results")
    parser.add_argument("--report", type=Path, metavar="FILE", help="print the report on such a file")
    options = parser.parse_args(arguments)
    if options.report:
        print(report(Results(options.report).records))
        return
    if problem := missing():
        raise MinisitchError(problem)
    chosen = options.workload or list(workloads())
    if unknown := [name for name in chosen if name not in workloads()]:
        raise MinisitchError(f"unknown workload {unknown[0]!r}; take some of {', '.join(workloads())}")
    code = code_digest(ROOT / "minisitch" / "offline.py")
    wanted = {name: {"architectures": options.architecture, "code": code} for name in chosen}
    results = Results(options.out or path_of("assembly", "all"), options.fresh)
    failed = measure_all("assembly", results, wanted, options.fresh, {"jobs": options.jobs})
    print(report({name: results.records[name] for name in chosen if name not in failed}), end="\n\n")
    print(f"raw results: {results.path}")
    if failed:
        raise MinisitchError("; ".join(f"{name} failed: {problem}" for name, problem in failed.items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        say(measure(**json.loads(sys.argv[2])))
    else:
        try:
            main()
        except MinisitchError as problem:
            sys.exit(f"error: {problem}")
