"""The papers' workloads under every strategy: what is counted, what is modelled, what is measured, and the papers' figures.

    python -m minisitch bench --suite papers [--preset full] [--workload bert_infer,lr] [--strategy xla,auto] [--fresh]
    python -m benchmarks.papers benchmarks/results/FILE.json        (the report on a file that is there)

In:  the programs in ``benchmarks/models/``; each has ``PRESETS``, ``make(preset)`` and ``PAPER``, what the papers
report of it. Out: a table for each, geometric means over each paper's set, and ``benchmarks/results/*.json`` with all samples.

How it is measured. The strategies take turns, so that a busy machine is unfair to none, each round in another order; the medians
count. A turn is a call that does not count, for what ran before leaves its caches and clocks behind; a call whose steps are timed
one by one: *in kernels* is all of them but the library calls, the papers' memory-intensive part; and a whole call. NumPy's has the
first and the last of these. Short calls are made several times.
Whether ``auto`` is *slower than the best single strategy* is asked round by round: of the ratios of both in the same round the
median counts. A machine that changes its clock speed in the middle of a run, and of a round, is unfair to a ratio of medians.
*Kernels* and shared memory are those of the plan for a V100, the papers' machine; the plan for this machine may differ.
*Error* is the largest distance from the program in float64, relative to the largest magnitude of the same output, over all
outputs but those that NumPy in float32 gets wrong by more than a hundredth: these are nothing but rounding (a gradient that is
zero on paper). It is marked where it is more than a hundredth, or a kernel computes something else on the values that it is given.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice, zip_longest
from typing import Any

import numpy as np

from minisitch import STRATEGIES, Program, get_device, trace
from minisitch.errors import MinisitchError
from minisitch.explain.compare import duration, error_of, size, take_turns
from minisitch.reference import evaluate
from minisitch.runtime import Executable, Stages, assemble, choose_device, lower_program
from minisitch.runtime.cpu.compile import Compiled, Request, compile_cpu
from minisitch.runtime.steps import LibraryStep, requests
from minisitch.strategies.cost import kernel_us, library_us, traffic, working_set
from minisitch.trace.tree import flatten

from .kernelwise import wrong_kernels
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

WORKLOADS = ("lr", "w2v", "rnn", "birnn", "speech", "nmt", "bert_train", "bert_infer", "dien_train", "dien_infer",
             "transformer_train", "transformer_infer", "asr", "crnn")
MOST_ROUNDS, FEWEST_ROUNDS = 41, 12  # in twelve each of five strategies and NumPy comes after each other one equally often
LONG_ENOUGH, MOST_REPEATS = 2000.0, 25  # microseconds that the calls of one round take together
NOISE = 0.01  # from this error of NumPy's own in float32 an output is nothing but rounding
FAR = 10  # times NumPy's own error, from where a result is wrong
SLOWER = 1.05  # from where `auto` counts as slower than the best single strategy


# ---------------------------------------------------------------- measuring one workload, in a process of its own
def measure(workload: str, preset: str, strategies: Sequence[str], target: str, seconds: float, **_: Any) -> Record:
    """The record of one workload. A strategy that fails, now or when its results are compared, has its error for a row."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "models"))  # a model imports what it shares with others by name
    model = importlib.import_module(workload)
    fn, args = model.make(preset)
    say("tracing")
    program = trace(fn, args, {})
    leaves = flatten((args, {}))[0]
    rows: dict[str, Record] = {}
    ready: dict[str, Executable] = {}
    compiled: dict[Request, tuple[Compiled, float]] = {}
    for name in strategies:
        try:
            rows[name], ready[name] = prepare(program, name, target, compiled)
        except Exception as problem:  # a mistake of one strategy is a row of the table, and costs no other its row
            rows[name] = failure(problem)
    say("comparing with the reference")
    exact = evaluate(program.graph, [*map(np.asarray, leaves), *program.captured], float64=True)
    own = distances(flatten(fn(*args))[0], exact)
    for name, run in list(ready.items()):
        try:
            rows[name].update(errors(distances(run.outputs([np.array(x) for x in leaves]), exact), own))
            rows[name]["wrong_kernels"] = dict(wrong_kernels(run, leaves))
        except Exception as problem:  # nothing to time where no results are
            rows[name] = failure(problem)
            del ready[name]
    for name, samples in rounds(ready, lambda: fn(*args), leaves, seconds).items():
        rows.setdefault(name, {}).update(samples)
    return {"nodes": len(program.graph), "paper": getattr(model, "PAPER", {}), "peak_mb": peak_bytes() >> 20,
            "noise_outputs": sum(e > NOISE for e in own), "numpy": {**rows.pop("numpy"), **errors(own, own)}, "strategies": rows}


def failure(problem: Exception) -> Record:
    """The row of a strategy that has no other."""
    return {"error": f"{type(problem).__name__}: {problem}"}


def peak_bytes() -> int:
    """The most memory this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1)


def prepare(program: Program, strategy: str, target: str,
            compiled: dict[Request, tuple[Compiled, float]]) -> tuple[Record, Executable]:
    """Plan and compile under one strategy, for this machine and, without compiling, for a V100.

    ``compiled``: what other strategies have compiled, and the seconds that it took; a function that several need costs each of
    them its time.
    """
    here, v100 = choose_device(target), get_device("v100")
    say(f"{strategy}: planning")
    began = time.perf_counter()
    stages = lower_program(program, strategy, target, here)
    planned = time.perf_counter() - began
    gpu = lower_program(program, strategy, "cuda", v100, stop_after="vectorize")
    wanted = dict.fromkeys(r for source in stages.sources for r in requests(source)) if target == "cpu" else {}
    for at, request in enumerate(wanted):
        say(f"{strategy}: compiling {at + 1} of {len(wanted)}")
        if request not in compiled:
            began = time.perf_counter()
            made = compile_cpu(request.text, request.name, request.dtypes, short=request.short)
            compiled[request] = made, time.perf_counter() - began
    row = {"here": counts(stages), "v100": counts(gpu), "plan_s": round(planned, 3),
           "compile_s": round(sum(compiled[r][1] for r in wanted), 3), "functions": len(wanted),
           "from_disk": sum(compiled[r][0].origin == "disk" for r in wanted),
           "decisions": dict(Counter(f"{d.verdict} [{d.rule}]" for d in gpu.decisions).most_common())}
    return row, assemble(stages, target)


def counts(stages: Stages) -> Record:
    """What a plan comes to on its device: kernels, library calls, bytes, shared memory, barriers, modelled time."""
    moved = [traffic(k) for k in stages.kernels]
    shared = [k.shared_bytes for k in stages.kernels]
    calls = [stages.graph[p.members[0]] for p in stages.plan.library_calls]
    return {"kernels": len(stages.kernels), "library_calls": len(calls),
            "read": sum(m.read for m in moved), "written": sum(m.written for m in moved),
            "shared_average": round(statistics.fmean(shared or [0]), 1), "shared_largest": max(shared, default=0),
            "grid_barriers": sum(k.grid_barriers for k in stages.kernels),
            "kernels_us": round(sum(kernel_us(k, working_set(stages.graph)) for k in stages.kernels), 2),
            "library_us": round(sum(library_us(stages.graph, c, stages.device) for c in calls), 2)}


def distances(got: Sequence[Any], exact: Sequence[np.ndarray]) -> list[float]:
    """For each output the largest distance from float64, relative to its largest magnitude."""
    return [error_of(np.asarray(g), e) for g, e in zip(got, exact, strict=True)]


def errors(each: Sequence[float], numpy_each: Sequence[float]) -> Record:
    """The worst error over the outputs that are more than rounding, and the worst ratio to NumPy's own over all."""
    real = [e for e, own in zip(each, numpy_each, strict=True) if own <= NOISE]
    ratios = [1.0 if e == own else e / max(own, 1e-6) for e, own in zip(each, numpy_each, strict=True)]
    return {"max_error": float(f"{max(real, default=0.0):.2e}"), "of_numpys": float(f"{max(ratios, default=0.0):.2e}")}


def rounds(ready: dict[str, Executable], numpy_call: Callable[[], Any], leaves: Sequence[Any],
           seconds: float) -> dict[str, Record]:
    """Microseconds of whole calls and of their kernels, a sample a round, for each strategy and for NumPy itself."""
    calls: dict[str, Callable[[], Any]] = {name: lambda run=run: run(leaves) for name, run in ready.items()}
    calls["numpy"] = numpy_call
    found: dict[str, Record] = {name: {"call_us": []} for name in calls}
    steps: dict[str, list[list[float]]] = {name: [] for name in ready}  # a round's times, step by step
    repeats = {}
    for name, call in calls.items():
        call()  # the first call makes its memory
        repeats[name] = max(1, min(MOST_REPEATS, int(LONG_ENOUGH / microseconds(call))))
    began = time.perf_counter()
    for number, order in enumerate(islice(take_turns(list(calls)), MOST_ROUNDS)):
        if number >= FEWEST_ROUNDS and time.perf_counter() - began > seconds:
            break
        say(f"round {number + 1}")
        for name in order:
            if name in ready:
                taken = [in_kernels(ready[name], leaves) for _ in range(repeats[name])]
                steps[name].append([statistics.median(each) for each in zip(*taken, strict=True)])
            else:
                calls[name]()  # does not count; of a strategy ``in_kernels`` makes such a call
            found[name]["call_us"].append(round(statistics.median(microseconds(calls[name]) for _ in range(repeats[name])), 2))
    for name, each_round in steps.items():
        found[name]["in_kernels_us"] = [round(sum(times), 2) for times in each_round]
        found[name]["profile"] = profile(ready[name].stages, [statistics.median(each) for each in zip(*each_round, strict=True)])
    return found


def profile(stages: Stages, us: Sequence[float]) -> list[Record]:
    """For each kernel how often it is launched, and of all launches the bytes, the modelled and the measured time.

    ``us``: the times of all steps but library calls; those that follow the kernels are copies, and pipelines have no kernel here.
    """
    kernels: list[tuple[str, int, float]] = [(k.name, traffic(k).total, kernel_us(k, working_set(stages.graph)))
                                             for k in stages.kernels] if not stages.plan.pipelines else []
    found: dict[str, Record] = {}
    for (name, moved, modelled), measured in zip_longest(kernels, us, fillvalue=("other", 0, 0.0)):
        row = found.setdefault(name, {"kernel": name, "launches": 0, "bytes": 0, "modelled_us": 0.0, "us": 0.0})
        for key, more in (("launches", 1), ("bytes", moved), ("modelled_us", modelled), ("us", measured)):
            row[key] += more
    return [{**row, "modelled_us": round(row["modelled_us"], 1), "us": round(row["us"], 1)} for row in found.values()]


def microseconds(call: Callable[[], Any]) -> float:
    """One call on the clock."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e6


def in_kernels(run: Executable, leaves: Sequence[Any]) -> list[float]:
    """One call whose steps are timed one by one: microseconds of all but the library calls.

    It is run once before, untimed: the system clears new memory page by page at the first touch, which for large results
    costs more than the kernel, and now this strategy and now that one.
    """
    with np.errstate(all="ignore"):
        calls = run.prepare(leaves)[1]
        for call in calls:
            call()
        times = [microseconds(call) for call in calls]
    return [us for us, step in zip(times, run.steps, strict=True) if not isinstance(step, LibraryStep)]


# ---------------------------------------------------------------- the report
HEADINGS = ("", "kernels", "of xla's", "paper", "here", "calls", "bytes", "shared avg / max", "plan", "compile", "in kernels",
            "xla's over it", "whole call", "model here", "model V100", "error")


def report(records: dict[str, Record]) -> str:
    """All tables, geometric means, and where ``auto`` is slower than another strategy."""
    parts = [f"## {name} ({record['preset']})\n\n{one_table(record)}\n\n{paper_lines(record['paper'])}"
             for name, record in records.items()]
    return "\n\n".join([where_and_when(records), *parts, means(records), profiles(records), beside_the_best(records),
                        slower(records)])


def one_table(record: Record) -> str:
    """A line for each strategy, then NumPy's own."""
    lines: list[Sequence[str]] = [HEADINGS]
    for name, row in record["strategies"].items():
        if "error" in row:
            lines.append((name, row["error"], *[""] * (len(HEADINGS) - 2)))
            continue
        here, gpu = row["here"], row["v100"]
        lines.append((name, str(gpu["kernels"]), number(kernel_ratio(record, name)), number(paper_ratio(record["paper"], name)),
                      str(here["kernels"]), str(here["library_calls"]), size(here["read"] + here["written"]),
                      f"{gpu['shared_average']:.0f} / {gpu['shared_largest']}", duration(row["plan_s"] * 1e6), compile_text(row),
                      duration(median(row, "in_kernels_us")), number(speedup(record, name, "in_kernels_us")),
                      duration(median(row, "call_us")), duration(here["kernels_us"] + here["library_us"]),
                      duration(gpu["kernels_us"] + gpu["library_us"]), error_text(row)))
    numpy_cells = dict(zip(HEADINGS, ("NumPy", *["-"] * (len(HEADINGS) - 1)), strict=True))
    numpy_cells["whole call"] = duration(median(record["numpy"], "call_us"))
    numpy_cells["error"] = f"{record['numpy']['max_error']:.1e}"
    return table([*lines, tuple(numpy_cells.values())])


def number(value: float | None) -> str:
    """Two digits behind the point; a dash for what there is not."""
    return f"{value:.2f}" if value else "-"


def compile_text(row: Record) -> str:
    """The seconds it took one core, where nothing was found on the disk."""
    return "cached" if row["from_disk"] else duration(row["compile_s"] * 1e6)


def error_text(row: Record) -> str:
    """The error, marked where it is far from NumPy's own."""
    return f"{row['max_error']:.1e}" + ("" if agrees(row) else " WRONG")


def agrees(row: Record) -> bool:
    """Each kernel is right on the values that it is given, and no output that is more than rounding is far from float64.

    Where kernels were not looked at: within ten times NumPy's own distance, in every output.
    """
    return not row["wrong_kernels"] and row["max_error"] <= NOISE if "wrong_kernels" in row else row["of_numpys"] <= FAR


def median(row: Record, what: str) -> float:
    return statistics.median(row[what]) if row.get(what) else 0.0


def kernel_ratio(record: Record, name: str) -> float | None:
    """Kernels on a V100 against ``xla``'s."""
    row, xla = record["strategies"].get(name, {}), record["strategies"].get("xla", {})
    return row["v100"]["kernels"] / xla["v100"]["kernels"] if "v100" in row and xla.get("v100", {}).get("kernels") else None


def speedup(record: Record, name: str, what: str) -> float | None:
    """How many times faster than ``xla``."""
    row, xla = record["strategies"].get(name, {}), record["strategies"].get("xla", {})
    return median(xla, what) / median(row, what) if median(row, what) and median(xla, what) else None


def paper_ratio(paper: Record, name: str) -> float | None:
    """The kernels against XLA's that the paper of this strategy reports."""
    figures = paper.get(name, {})
    kernels = figures.get("kernels", {})
    return figures.get("kernel_ratio") or (kernels[name] / kernels["xla"] if name in kernels and "xla" in kernels else None)


def paper_lines(paper: Record) -> str:
    """The papers' figures as they stand in the model's file, a line a paper."""
    return "\n".join(f"paper, {name}: {words(figures)}" for name, figures in paper.items())


def words(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{k.replace('_', ' ')} {f'({words(v)})' if isinstance(v, dict) else words(v)}" for k, v in value.items())
    return str(value)


def means(records: dict[str, Record]) -> str:
    """Geometric means over the workloads of which a paper gives kernels, for every strategy; last the paper's own."""
    sets = {paper: [r for r in records.values() if paper_ratio(r["paper"], paper)] for paper in ("fs18", "fs20", "astitch")}
    sets["all"] = list(records.values())
    names = list(dict.fromkeys(n for r in records.values() for n in r["strategies"]))
    parts = []
    for title, measured in (("Kernels against xla's, on a V100", kernel_ratio),
                            ("Times faster than xla in kernels, here", lambda r, n: speedup(r, n, "in_kernels_us")),
                            ("Times faster than xla in the whole call, here", lambda r, n: speedup(r, n, "call_us"))):
        lines = [("", *(f"{paper}: {len(found)}" for paper, found in sets.items()))]
        lines += [(name, *(number(mean_of(measured(r, name) for r in found)) for found in sets.values())) for name in names]
        if measured is kernel_ratio:
            lines.append(("the paper", *(number(mean_of(paper_ratio(r["paper"], p) for r in found)) for p, found in sets.items())))
        parts.append(f"## {title}: geometric means over each paper's workloads\n\n{table(lines)}")
    return "\n\n".join(parts)


def mean_of(found: Any) -> float | None:
    """The geometric mean, if every workload has the figure."""
    values = list(found)
    return geometric_mean(values) if values and all(values) else None


def profiles(records: dict[str, Record], name: str = "auto") -> str:
    """A table: how much faster than ``xla`` a strategy's kernels are, as the product of how many times fewer bytes they move and
    how many times faster each; then its three largest kernels."""
    lines = [("", "xla", name, "times faster", "fewer bytes", "times the rate", "xla's rate", f"{name}'s rate",
              "largest kernels: share of the time, rate")]
    found: list[tuple[float, float]] = []
    for workload, record in records.items():
        rows = [record["strategies"].get(n, {}) for n in ("xla", name)]
        times = [median(row, "in_kernels_us") for row in rows]
        if not all(times):
            continue
        moved = [row["here"]["read"] + row["here"]["written"] for row in rows]
        fewer, rates = moved[0] / moved[1], [b / us / 1e3 for b, us in zip(moved, times, strict=True)]
        found.append((fewer, rates[1] / rates[0]))
        largest = sorted(rows[1].get("profile", []), key=lambda p: -p["us"])[:3]
        lines.append((workload, *map(duration, times), number(times[0] / times[1]), number(fewer), number(rates[1] / rates[0]),
                      *(f"{rate:.1f} GB/s" for rate in rates),
                      "; ".join(f"{p['kernel']} x{p['launches']} {p['us'] / times[1]:.0%}, {p['bytes'] / p['us'] / 1e3:.1f} GB/s"
                                for p in largest if p["us"])))
    if found:
        fewer, faster = (geometric_mean(each) for each in zip(*found, strict=True))
        lines.append(("geometric mean", "", "", number(fewer * faster), number(fewer), number(faster), "", "", ""))
    return (f"## Where the time in kernels goes: {name} against xla, here\n\nTimes faster = how many times fewer bytes, times how "
            f"many times faster each of them.\n\n{table(lines)}")


def paired(row: Record, other: Record, what: str) -> float:
    """How many times the other's time a row took, the median over the rounds: both were measured in each."""
    return statistics.median(mine / its for mine, its in zip(row[what], other[what], strict=True))


def best_single(record: Record, what: str) -> tuple[str, float]:
    """The single strategy whose time ``auto`` took most times in the same round, and how many; no name where either is missing."""
    rows = {name: row for name, row in record["strategies"].items() if median(row, what)}
    auto = rows.pop("auto", None)
    times = {name: paired(auto, row, what) for name, row in rows.items()} if auto else {}
    return max(times.items(), key=lambda item: item[1], default=("", 0.0))


def beside_the_best(records: dict[str, Record]) -> str:
    """A table: ``auto`` and the best single strategy, in kernels and in the whole call."""
    lines = [("", "rounds", "auto in kernels", "best other", "takes", "auto over it", "best other in whole calls", "auto over it")]
    for workload, record in records.items():
        (name, times), (whole, whole_times) = best_single(record, "in_kernels_us"), best_single(record, "call_us")
        if name:
            auto, other = record["strategies"]["auto"], record["strategies"][name]
            lines.append((workload, str(len(auto["in_kernels_us"])), duration(median(auto, "in_kernels_us")), name,
                          duration(median(other, "in_kernels_us")), number(times), whole, number(whole_times)))
    return ("## auto and the best single strategy, here\n\nTimes are medians. A ratio is that of both times in the same round, the "
            f"median of all rounds.\n\n{table(lines)}")


def slower(records: dict[str, Record]) -> str:
    """The workloads on which ``auto`` takes more than 5% longer than the best single strategy does in the same round."""
    lines = []
    for workload, record in records.items():
        for what, where in (("in_kernels_us", "in kernels"), ("call_us", "in the whole call")):
            best, times = best_single(record, what)
            if times > SLOWER:
                mine, its = (duration(median(record["strategies"][name], what)) for name in ("auto", best))
                equal = in_equal_kernels(record["strategies"]["auto"], record["strategies"][best]) if where == "in kernels" else ""
                lines.append(f"{workload}: {where} {mine}, {best} {its}, {times:.2f} times in the same round{equal}")
    asked = any("auto" in r["strategies"] for r in records.values())
    return "\n".join(["## Where auto is more than 5% slower than the best single strategy\n",
                      *(lines or ["nowhere" if asked else "auto was not measured"])])


def in_equal_kernels(row: Record, other: Record) -> str:
    """What a row's kernels take more than another's, as far as they are the same compiled code, launched equally often, under both
    strategies: a kernel's name holds a digest of all it does. For that part a plan matters only by what its other kernels leave in
    the caches."""
    mine, its = ({p["kernel"]: p for p in r.get("profile", []) if p["kernel"] != "other"} for r in (row, other))
    equal = [name for name in mine if name in its and mine[name]["launches"] == its[name]["launches"]]
    more = sum(mine[name]["us"] - its[name]["us"] for name in equal)
    rest = sum(p["us"] for p in mine.values()) - sum(p["us"] for p in its.values()) - more
    found = f"; {len(equal)} of {len(mine)} kernels are the same under both: they {more:+.1f} us, the others {rest:+.1f}"
    return found if equal else ""


def wrong_rows(records: dict[str, Record]) -> list[str]:
    """The strategies that failed on a workload, or computed something else."""
    return [f"{name} under {strategy}: {row.get('wrong_kernels') or 'an error, or results that are wrong, see the table'}"
            for name, record in records.items() for strategy, row in record["strategies"].items()
            if "error" in row or not agrees(row)]


# ---------------------------------------------------------------- the suite
def main(options: argparse.Namespace) -> None:
    """Measure what the results lack and print the report of what was asked for.

    Raises MinisitchError at the end if a workload failed, or a strategy, or its results are wrong.
    """
    files = {name: ROOT / "benchmarks" / "models" / f"{name}.py" for name in WORKLOADS}
    strategies = options.strategy or sorted(STRATEGIES, key=lambda s: {"none": 0, "xla": 1, "auto": 3}.get(s, 2))  # baselines first
    if unknown := [name for name in strategies if name not in STRATEGIES]:
        raise MinisitchError(f"unknown strategy {unknown[0]!r}; take one of {', '.join(STRATEGIES)}")
    results, records, failed = run_suite("papers", {n: f for n, f in files.items() if f.is_file()}, strategies, options)
    if records:
        print(report(records), end="\n\n")
    print(f"raw results: {results.path}")
    complain(failed, wrong_rows(records))


if __name__ == "__main__":
    as_a_program("papers", measure, lambda file: print(report(Results(file).records)))
