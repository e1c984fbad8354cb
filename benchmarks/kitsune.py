"""Kitsune's workloads: which operators share a pipeline, what off-chip traffic that saves, what the models and this CPU make of it.

    python -m minisitch bench --suite kitsune [--preset full] [--workload nerf,dlrm] [--strategy none,kitsune] [--fresh]
    python -m benchmarks.kitsune benchmarks/results/FILE.json       (the report on a file that is there)

In:  six programs in ``benchmarks/models/``, of the paper's five networks: Llama's two phases are apart; and what the paper
reports of them. Out: tables, and ``benchmarks/results/*.json`` with all samples.

*Operators* are what the published code calls once (``benchmarks/counting.py``): the paper's unit. *Vertical* is ``astitch``: an
operator counts as fused where its nodes lie in a kernel with another's; products are library calls there, never fused.
*Bytes* are what launches move to and from main memory, by the same count as elsewhere: a kernel's touches, a library call's
operands and result, a pipeline's inputs and outputs and those of its queues that L2 cannot hold. They are compared with two
baselines: every operation a launch, as NumPy calls them (``none``), and every operator a launch, as PyTorch calls them, with a
linear layer's bias added inside its product.

*Modelled* is ``benchmarks/executions.py`` for each pipeline, and nothing of it is measured. What lies outside of
pipelines takes a launch and its memory time, a product the larger of that and its arithmetic time. *Sensitivity* is what pipelines
would gain on other machines (``benchmarks/sensitivity.py``): with twice the SMs, L2 bandwidth, DRAM bandwidth.

``--preset full`` counts and models the published sizes, of which only shapes exist here, and measures at the models' ``medium``,
which fits this machine. ``small`` is to try the suite out: such programs are no larger than a tile, so there are no pipelines.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minisitch import STRATEGIES, Program, get_device, trace
from minisitch.device import Device
from minisitch.errors import MinisitchError
from minisitch.explain.compare import duration, size
from minisitch.fuse import VIEWS, FusionPlan, Pattern, is_fusible, make_plan
from minisitch.graph import Graph
from minisitch.reference import evaluate
from minisitch.runtime import assemble, choose_device, lower_program
from minisitch.simplify import simplify
from minisitch.stitch.body import Body, extract
from minisitch.stitch.windows import body_of
from minisitch.strategies.ask import fuse
from minisitch.strategies.cost import library_traffic, traffic
from minisitch.strategies.kitsune.models.balance import Channel, StageLoad
from minisitch.strategies.kitsune.pipeline import Pipeline, Stage
from minisitch.strategies.kitsune.predict import pipeline_traffic, workload
from minisitch.strategies.kitsune.tiles import FINAL
from minisitch.strategies.prices import built
from minisitch.trace.tree import flatten

from .counting import Operator, fused, operators
from .executions import EXECUTIONS, bulk_synchronous, predict
from .papers import distances, error_text, errors, median, rounds, wrong_rows
from .results import (
    ROOT,
    Record,
    Results,
    as_a_program,
    complain,
    geometric_mean,
    run_suite,
    say,
    table,
    where_and_when,
)
from .sensitivity import PAPER as MACHINES
from .sensitivity import sensitivity

WORKLOADS = ("dlrm", "graphcast", "meshgraphnets", "nerf", "llama_context", "llama_token")
MEASURED = ("none", "astitch", "kitsune", "auto")
SIZES = {"full": ("full", "medium")}  # the models' presets that are counted and measured; others are for both
DEVICES = ("a100", "h100", "h200")


# ---------------------------------------------------------------- one workload, in a process of its own
def measure(workload: str, preset: str, strategies: Sequence[str], target: str, seconds: float, **_: Any) -> Record:
    """The record of one workload."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "models"))  # a model imports what it shares with others by name
    model = importlib.import_module(workload)
    say("counting")
    counted, smaller = SIZES.get(preset, (preset, preset))
    fn, args = model.make(counted)
    graph = simplify(trace(fn, args, {}).graph)
    record = {**counts(graph, get_device(DEVICES[0])), "models": {name: modelled(graph, get_device(name)) for name in DEVICES}}
    fn, args = model.make(smaller)
    return {**record, "paper": model.PAPER, "counted_preset": counted, "measured_preset": smaller,
            **measured(trace(fn, args, {}), fn, args, strategies, target, seconds)}


def measured(program: Program, fn: Any, args: Any, strategies: Sequence[str], target: str, seconds: float) -> Record:
    """Times and errors of each strategy, and NumPy's own."""
    leaves = flatten((args, {}))[0]
    rows: dict[str, Record] = {}
    ready = {}
    for name in strategies:
        say(f"{name}: compiling")
        try:
            stages = lower_program(program, name, target, choose_device(target))
            ready[name] = assemble(stages, target)
            rows[name] = {"kernels": len(stages.plan.kernels), "library_calls": len(stages.plan.library_calls),
                          "pipelines": len(stages.plan.pipelines)}
        except Exception as problem:  # a mistake of one strategy is a row of the table, and costs no other its row
            rows[name] = {"error": f"{type(problem).__name__}: {problem}"}
    say("comparing with the reference")
    exact = evaluate(program.graph, [*(np.array(x) for x in leaves), *program.captured], float64=True)
    results = len(flatten(fn(*args))[0])  # arguments that were changed in place come behind them
    own = distances(flatten(fn(*args))[0], exact[:results])
    for name, run in ready.items():
        rows[name].update(errors(distances(run.outputs([np.array(x) for x in leaves])[:results], exact[:results]), own))
    for name, samples in rounds(ready, lambda: fn(*args), leaves, seconds).items():
        rows.setdefault(name, {}).update(samples)
    return {"numpy": {**rows.pop("numpy"), **errors(own, own)}, "strategies": rows}


# ---------------------------------------------------------------- counted
def counts(graph: Graph, device: Device) -> Record:
    """Operators fused and bytes moved by each way to run the program on a device."""
    found = operators(graph)
    vertical, pipelined = fuse(graph, "astitch", device), fuse(graph, "kitsune", device)
    known: dict[tuple[object, ...], int] = {}
    here, there = ({number: n for n, number in enumerate(numbered(graph, known))}, numbered(vertical.graph, known))
    inside = {"vertical": fused(graph, found, [[here[there[n]] for n in p.members] for p in vertical.kernels]),
              "kitsune": fused(graph, found, [p.members for p in pipelines(pipelined)])}
    return {"operators": len(found), "fused": {name: len(each) for name, each in inside.items()},
            "left": [o.name for o in found if o not in inside["kitsune"]],
            "pipelines": [{"stages": len(p.composition.stages), "queues": len(p.composition.queues), "tiles": p.composition.tiles}
                          for p in pipelines(pipelined) if isinstance(p.composition, Pipeline)],
            "bytes": {"none": plan_bytes(fuse(graph, "none", device), device), "operators": operator_bytes(graph, device),
                      "vertical": plan_bytes(vertical, device), "kitsune": plan_bytes(pipelined, device)},
            "refused": [f"[{d.rule}] {d.why}" for d in pipelined.decisions if d.verdict == "keep apart"]}


def pipelines(plan: FusionPlan) -> list[Pattern]:
    return [p for p in plan.patterns if isinstance(p.composition, Pipeline)]


def plan_bytes(plan: FusionPlan, device: Device) -> int:
    """Bytes to and from main memory of all launches."""
    return sum(pattern_bytes(plan.graph, p, device) for p in plan.patterns)


def pattern_bytes(graph: Graph, pattern: Pattern, device: Device) -> int:
    """A kernel's touches, a library call's operands and result; of a pipeline what goes in, comes out, or has no room in L2."""
    if pattern.kind == "library":
        return library_traffic(graph, graph[pattern.members[0]]).total
    if isinstance(pattern.composition, Pipeline):
        return pipeline_traffic(extract(graph, pattern).graph, pattern.composition, device).total
    return traffic(built(body_of(graph, pattern).graph, device, pattern.composition)).total


def operator_plan(graph: Graph) -> FusionPlan:
    """Each operator a kernel; of a linear layer the product is a library call and the bias a kernel."""
    groups = [[n for n in each.nodes if is_fusible(graph[n]) and graph[n].op not in VIEWS] for each in operators(graph)]
    return make_plan(graph, "operators", groups)


def operator_bytes(graph: Graph, device: Device) -> int:
    """Bytes where each operator is one launch: a linear layer's product does not travel before its bias is added."""
    kernels = {n for each in operators(graph) for n in each.nodes if graph[n].op == "matmul"
               and any(is_fusible(graph[m]) and graph[m].op not in VIEWS for m in each.nodes)}
    return plan_bytes(operator_plan(graph), device) - sum(2 * graph[n].type.nbytes for n in kernels)


# ---------------------------------------------------------------- modelled
def modelled(graph: Graph, device: Device) -> Record:
    """Microseconds of the pipelines, and of the whole program: an operator a launch, vertical fusion, pipelines."""
    plan, found = fuse(graph, "kitsune", device), operators(graph)
    others = {"operators": operator_plan(graph), "vertical": fuse(graph, "astitch", device), "kitsune": plan}
    total = dict.fromkeys(others, 0.0)
    scaled = {str(scale): dict.fromkeys(EXECUTIONS, 0.0) for scale in MACHINES}
    known: dict[tuple[object, ...], int] = {}
    inside: set[int] = set()
    for pattern in pipelines(plan):
        body, pipeline = extract(graph, pattern), pattern.composition
        assert isinstance(pipeline, Pipeline)
        _, vertical, dataflow = predict(body.graph, pipeline, device)
        eager = bulk_synchronous(*workload(body.graph, pipeline, device, launches(found, body, pipeline)), device)
        for way, run in zip(total, (eager, vertical, dataflow), strict=True):
            total[way] += run.makespan_us
        for scale, times in study(*workload(body.graph, pipeline, device), device).items():
            for execution, us in times.items():
                scaled[scale][execution] += us
        inside.update(numbered(plan.graph, known)[member] for member in pattern.members)
    outside = {}
    for way, other in others.items():  # a plan may make a value twice, in a graph of its own
        number = numbered(other.graph, known)
        left = [p for p in other.patterns if not inside.issuperset(number[n] for n in _computing(other.graph, p))]
        outside[way] = sum(outside_us(other.graph, p, device) for p in left)
    return {"pipelines_us": rounded(total), "whole_us": rounded({way: total[way] + outside[way] for way in total}),
            "scaled_us": {scale: rounded(times) for scale, times in scaled.items()}}


@functools.cache  # equal layers
def study(loads: tuple[StageLoad, ...], channels: tuple[Channel, ...], device: Device) -> dict[str, dict[str, float]]:
    """For each machine of the sensitivity study each execution's microseconds."""
    return {str(point.scale): dict(point.us) for point in sensitivity(loads, channels, device)}


def launches(found: Sequence[Operator], body: Body, pipeline: Pipeline) -> tuple[Stage, ...]:
    """A stage for each operator, or for what a pipeline has of it."""
    here = {whole: node for node, whole in enumerate(body.origin)}
    made = []
    for number, each in enumerate(found):
        nodes = tuple(sorted(here[n] for n in each.nodes if n in here and body.graph[here[n]].op not in VIEWS))
        if nodes:
            kind = "tensor" if any(body.graph[n].op == "matmul" for n in nodes) else "simt"
            role = "final" if all(pipeline.axes[n] == FINAL for n in nodes) else "map"
            made.append(Stage(f"{each.name}_{number}", nodes, kind, role))
    return tuple(sorted(made, key=lambda stage: stage.nodes[-1]))


def numbered(graph: Graph, known: dict[tuple[object, ...], int]) -> list[int]:
    """A number for each node: the same for what is computed in the same way, also in other graphs with this ``known``."""
    found: list[int] = []
    for node in graph.nodes:
        made = repr(replace(node, id=0, args=())), *(found[a] for a in node.args)
        found.append(known.setdefault(made, len(known)))
    return found


def _computing(graph: Graph, pattern: Pattern) -> list[int]:
    return [n for n in pattern.members if graph[n].kind != "source" and graph[n].op not in VIEWS] or list(pattern.outputs)


def outside_us(graph: Graph, pattern: Pattern, device: Device) -> float:
    """A launch and memory time; of a product, on tensor cores as in a pipeline, the larger of memory and arithmetic time."""
    moved = pattern_bytes(graph, pattern, device) / device.bandwidth
    node = graph[pattern.members[0]]
    work = 2.0 * node.type.size * graph[node.args[0]].type.shape[-1] / (device.tensor_flops / 2) if node.op == "matmul" else 0.0
    return device.launch_us + max(moved, work) * 1e6


def rounded(times: Record) -> Record:
    return {name: round(us, 2) for name, us in times.items()}


# ---------------------------------------------------------------- the report
def report(records: dict[str, Record]) -> str:
    """What was counted, what is modelled and what was measured, beside the paper's figures."""
    presets = ", ".join(sorted({r["counted_preset"] for r in records.values()}))
    smaller = ", ".join(sorted({r["measured_preset"] for r in records.values()}))
    return "\n\n".join([where_and_when(records), f"## Operators fused ({presets})\n\n{fused_table(records)}",
                        f"## Off-chip traffic cut ({presets})\n\n{traffic_table(records)}",
                        f"## Modelled, times faster than an operator a launch ({presets})\n\n{model_table(records)}",
                        f"## Modelled, times faster on other machines than on an {DEVICES[0]} ({presets})\n\n"
                        f"{sensitivity_table(records)}",
                        f"## Measured on this CPU ({smaller})\n\n{measured_table(records)}"])


def fused_table(records: dict[str, Record]) -> str:
    """Counts and shares, and the paper's."""
    lines = [("", "operators", "paper", "vertical", "paper", "kitsune", "paper", "pipelines", "stages", "left out")]
    for name, r in records.items():
        paper = r["paper"]["kitsune"]
        lines.append((name, str(r["operators"]), str(paper["operators"]), share(r["fused"]["vertical"], r["operators"]),
                      share(paper["fused"]["vertical"], paper["operators"]), share(r["fused"]["kitsune"], r["operators"]),
                      share(paper["fused"]["kitsune"], paper["operators"]), str(len(r["pipelines"])),
                      "+".join(str(p["stages"]) for p in r["pipelines"]), ", ".join(dict.fromkeys(r["left"])) or "-"))
    return table(lines)


def share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})"


def traffic_table(records: dict[str, Record]) -> str:
    """Bytes, and by how much less they are than under the two baselines."""
    lines = [("", "an operation a launch", "vertical", "kitsune", "an operator a launch", "vertical", "kitsune", "paper: vertical",
              "kitsune")]
    for name, r in records.items():
        cells = [cut(r, base, way) if way else size(r["bytes"][base])
                 for base in ("none", "operators") for way in ("", "vertical", "kitsune")]
        paper = r["paper"]["kitsune"]["traffic_cut"]
        lines.append((name, *cells, f"{paper['vertical']:.1f}%", f"{paper['kitsune']:.1f}%"))
    return table(lines)


def cut(record: Record, base: str, way: str) -> str:
    return f"{100 * (1 - record['bytes'][way] / record['bytes'][base]):.1f}%"


def model_table(records: dict[str, Record]) -> str:
    """Times faster, in the pipelines and in the whole program."""
    columns = (("pipelines_us", "vertical"), ("pipelines_us", "kitsune"), ("whole_us", "kitsune"))
    lines = [("", *(f"{device}: {what}" for device in DEVICES for what in ("vertical", "kitsune", "whole")))]
    gains: list[list[float]] = []
    for name, r in records.items():
        times = [(r["models"][device][part], way) for device in DEVICES for part, way in columns]
        gains.append([us["operators"] / us[way] if us[way] else 1.0 for us, way in times])
        lines.append((name, *(f"{g:.2f}" for g in gains[-1])))
    lines.append(("geometric mean", *(f"{geometric_mean(each):.2f}" for each in zip(*gains, strict=True))))
    return table(lines)


def sensitivity_table(records: dict[str, Record]) -> str:
    """How many times faster the work of the pipelines is on each machine: a stage a launch, vertical fusion, a pipeline."""
    studies = {name: r["models"][DEVICES[0]].get("scaled_us", {}) for name, r in records.items()}
    scales = [str(scale) for scale in MACHINES[1:]]
    lines = [("", *scales)]
    for name, times in studies.items():
        base = times.get(str(MACHINES[0]), {})
        lines.append((name, *(" / ".join(f"{base[way] / times[scale][way]:.2f}" for way in EXECUTIONS if base.get(way)) or "-"
                              for scale in scales)))
    return table(lines) + f"\n\nEach cell: {', '.join(EXECUTIONS)}. The pipelines' own work; nothing where there are none."


def measured_table(records: dict[str, Record]) -> str:
    """Whole calls: medians, and how many times faster than NumPy and than the other strategies ``kitsune`` is."""
    names = list(dict.fromkeys(n for r in records.values() for n in r["strategies"]))
    others = [n for n in names if n != "kitsune"]
    lines = [("", "NumPy", *names, *(f"kitsune over {n}" for n in ("NumPy", *others)), "pipelines", "error")]
    gains: list[list[float]] = []
    for name, r in records.items():
        times = {"NumPy": median(r["numpy"], "call_us"), **{n: median(r["strategies"].get(n, {}), "call_us") for n in names}}
        mine, row = times.get("kitsune", 0.0), r["strategies"].get("kitsune", {})
        gains.append([times[n] / mine if mine else 0.0 for n in ("NumPy", *others)])
        lines.append((name, *(duration(us) if us else "-" for us in times.values()), *(f"{g:.2f}" if g else "-" for g in gains[-1]),
                      str(row.get("pipelines", "-")), error_text(row) if "max_error" in row else row.get("error", "-")))
    means = [geometric_mean(each) if all(each) else 0.0 for each in zip(*gains, strict=True)]
    lines.append(("geometric mean", *[""] * (1 + len(names)), *(f"{m:.2f}" if m else "-" for m in means), "", ""))
    return table(lines)


# ---------------------------------------------------------------- the suite
def main(options: argparse.Namespace) -> None:
    """Measure what the results lack and print the report.

    Raises MinisitchError at the end if a workload failed, or a strategy, or its results are wrong.
    """
    strategies = options.strategy or list(MEASURED)
    if unknown := [name for name in strategies if name not in STRATEGIES]:
        raise MinisitchError(f"unknown strategy {unknown[0]!r}; take one of {', '.join(STRATEGIES)}")
    files = {name: ROOT / "benchmarks" / "models" / f"{name}.py" for name in WORKLOADS}
    results, records, failed = run_suite("kitsune", files, strategies, options)
    if records:
        print(report(records), end="\n\n")
    print(f"raw results: {results.path}")
    complain(failed, wrong_rows(records))


if __name__ == "__main__":
    as_a_program("kitsune", measure, lambda file: print(report(Results(file).records)))
