"""All strategies on one program: what each plan costs, by the model and by the clock.

In:  a function and arguments. Out: a ``Comparison``, whose ``rows`` has a row for each strategy.

Times are medians over rounds in which the strategies take turns, after a first run that warms up.
Bytes are those of kernels (``cost.traffic``) and of pipelines. Library calls are not counted, since
they are the same under every strategy.
"""

import copy
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, TypeVar

import numpy as np

from ..device import Device
from ..errors import KernelError, MinisitchError, PlanError, needs
from ..errors.printed import Printed
from ..errors.progress import now, shown
from ..fuse import STRATEGIES, VIEWS
from ..graph import Graph, TensorType
from ..lower import program_of
from ..passes.registry import DEFAULTS, chosen
from ..reference import evaluate
from ..runtime import Executable, Passes, Stages, assemble, lower_program, read_types, settings
from ..runtime.cpu import compile as compiler
from ..runtime.plans import plan_of
from ..runtime.steps import requests
from ..runtime.target import refuse_other_machine
from ..strategies import cost
from ..strategies import optimum as exhaustive
from ..strategies.kitsune.predict import pipeline_traffic, pipeline_us
from ..strategies.prices import shared_kernels
from ..strategies.regions import runs_in_numpy
from ..trace import Program, trace
from ..trace.tracebacks import door
from ..trace.tree import flatten, unflatten

Made = TypeVar("Made")


@dataclass(frozen=True)
class Row:
    """One strategy, with bytes and microseconds of a call.

    ``max_error`` is the largest absolute distance from the reference in float64, relative to the
    largest magnitude of the same output. ``over_optimum`` is the modelled time over that of the
    best plan (``minisitch.strategies.optimum``), or zero if that was not asked for.
    """

    strategy: str
    kernels: int
    library_calls: int
    bytes_read: int
    bytes_written: int
    block_barriers: int
    grid_barriers: int
    modelled_us: float
    measured_us: float
    max_error: float
    over_optimum: float = 0.0


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """The strategies side by side. Prints as a table.

    ``numpy_us`` is the time of the program as NumPy runs it. ``kernel_us`` holds the measured time
    in kernels for each strategy, without library calls and pipelines, and ``graphs`` the graph that
    it planned, since a strategy may rewrite it. ``remark`` says which rows are missing and why.
    """

    name: str
    target: str
    device: Device
    rows: tuple[Row, ...]
    numpy_us: float
    kernel_us: dict[str, float]
    graphs: dict[str, Graph]
    remark: str = ""

    def __getitem__(self, strategy: str) -> Row:
        if found := [r for r in self.rows if r.strategy == strategy]:
            return found[0]
        raise PlanError(f"no row {strategy!r}; there are {', '.join(r.strategy for r in self.rows)}, and .rows has all")

    def __str__(self) -> str:
        table = self._table()
        wide = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join([first.ljust(wide[0]), *(c.rjust(w) for c, w in zip(rest, wide[1:], strict=True))])
                 for first, *rest in table]
        lines.insert(1, "  ".join("-" * w for w in wide))
        return "\n".join([*lines, self.note])

    def _table(self) -> list[tuple[str, ...]]:
        """The headings, then a row a strategy. The last column appears only with the optimum."""
        table = [(*HEADINGS, "over optimum"), *((*_cells(r), f"{r.over_optimum:.2f}x") for r in self.rows)]
        return table if any(r.over_optimum for r in self.rows) else [line[:-1] for line in table]

    @property
    def note(self) -> str:
        """What the table itself does not say."""
        measured = f"NumPy itself: {duration(self.numpy_us)}. " if self.numpy_us else ""
        ran = "No kernel was run: NumPy made the results. " if self.target == "reference" else ""
        return (f"{measured}{ran}Target {self.target}, modelled for {self.device.name}. "
                "A kernel is counted at each of its launches. "
                "Error: largest distance from float64, relative to the largest magnitude."
                f"{self.remark}{self.unrest}")

    @property
    def unrest(self) -> str:
        """A warning if equal library calls took twice as long under one strategy as another.

        They also took a millisecond longer.
        """
        usual = statistics.mode(r.library_calls for r in self.rows)
        taken = [r.measured_us - self.kernel_us[r.strategy] for r in self.rows if r.library_calls == usual > 0 < r.measured_us]
        if not taken or max(taken) <= max(2 * min(taken), 1000):
            return ""
        return (f" The same library calls took {duration(max(0.0, min(taken)))} to "
                f"{duration(max(taken))}: something else keeps this machine busy. "
                "Compare times in kernels, or measure again.")

    @property
    def markdown(self) -> str:
        """The table as Markdown."""
        headings, *rows = ("| " + " | ".join(line) + " |\n" for line in self._table())
        return "".join([headings, "|---" * (headings.count("|") - 1) + "|\n", *rows])

    def _repr_html_(self) -> str:
        headings, *rows = ("".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in line)
                           for kind, line in zip(["th", *["td"] * len(self.rows)], self._table(), strict=True))
        table = f"<thead><tr>{headings}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody>"
        return f'<div class="scroll"><table class="minisitch-compare">{table}</table></div><p>{escape(self.note)}</p>'


def widened(graph: Graph) -> str:
    """The line where float32 becomes float64, and why, or an empty string.

    This doubles the bytes and is often an accident.
    """
    narrow = {n.id for n in graph.nodes if n.type.dtype in ("float16", "float32")}
    first = next((n for n in graph.nodes if n.type.dtype == "float64" and narrow & {*n.args}), None)
    if first is None:
        return ""
    return (f"float64 from {first.where or f'%{first.id}'} on: a narrower float meets a float64 "
            "value there. np.zeros, np.linspace and np.float64(2) make one: write "
            "dtype=np.float32, or a Python number.")


# ---------------------------------------------------------------- how numbers print
def size(n: float) -> str:
    """``12.6 MB``."""
    for unit, power in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= power:
            return f"{n / power:.1f} {unit}"
    return f"{n:.0f} B"


def duration(us: float) -> str:
    """``1.40 ms``, or a dash if nothing was measured."""
    if us <= 0:
        return "-"
    return f"{us / 1e6:.2f} s" if us >= 1e6 else f"{us / 1e3:.2f} ms" if us >= 1e3 else f"{us:.1f} us"


HEADINGS = ("strategy", "kernels", "library calls", "read", "written", "block barriers",
            "grid barriers", "modelled", "measured", "max error")


def _cells(row: Row) -> tuple[str, ...]:
    return (row.strategy, str(row.kernels), str(row.library_calls), size(row.bytes_read),
            size(row.bytes_written), str(row.block_barriers), str(row.grid_barriers),
            duration(row.modelled_us), duration(row.measured_us), f"{row.max_error:.1e}")


# ---------------------------------------------------------------- comparing
@door
@shown
def compare(fn: Callable[..., Any] | Graph, /, *args: Any, strategies: Sequence[str] | None = None,
            target: str | None = None, device: str | Device | None = None,
            exact: bool | None = None, passes: Passes = None, seconds: float = 2.0, seed: int = 0,
            optimum: bool = False, **kwargs: Any) -> Comparison:
    """Run ``fn`` under every strategy. It may also be a ``Graph``, whose inputs are drawn at random.

    Arrays may be given as types, ``"f32[128,768]"``, and are then drawn at random. ``seconds`` is
    about how long whole calls are measured, in at least three rounds. Measuring single kernels
    takes half as long again. ``optimum`` adds the best plan, and each strategy's modelled distance
    to it, if the program is small enough.

    With the target ``step`` every thread runs in Python: use small shapes.
    With the target ``reference`` no kernel is compiled or run, so ``device`` may be any: times are
    the model's, and errors are NumPy's on the graph that the strategy planned.

    A strategy that raises a MinisitchError, or returns a wrong shape, gets a remark instead of a
    row. If all do, the first error is raised. Raises DeviceError if the target cannot run kernels
    for the device.
    """
    needs("compare(f, x, strategies=('none', 'auto'), seconds=2.0, seed=0)", (strategies or (), Sequence),
          (seconds, int | float), (seed, int))
    plain, _, target, machine, exact, passes = settings(fn, None, target, device, exact, passes)
    strategies = (strategies,) if isinstance(strategies, str) else strategies
    for name in strategies or ():
        settings(plain, name, target, machine, exact, passes)  # refuses an unknown one
    graph = fn if isinstance(fn, Graph) else None
    args = tuple(graph[i].type for i in graph.inputs) if graph else args
    args, kwargs = sample(read_types((args, kwargs)), seed)
    refuse_other_machine(machine, target)
    program = replace(program_of(graph) if graph else trace(plain, args, kwargs), exact=exact)
    failed: dict[str, MinisitchError] = {}
    printed = ("step" if machine.kind == "gpu" else "cpu") if target == "reference" else target
    with shared_kernels(machine):  # what one strategy builds, others do not build again
        lowered = _each(lambda name: lower_program(program, name, printed, machine, decide=plan_of, passes=passes),
                        strategies or STRATEGIES, failed)
        if strategies is None:  # the baselines first
            lowered = dict(sorted(lowered.items(), key=lambda item: -len(item[1].kernels)))
        remark = _add_optimum(lowered, program, printed, machine, passes) if optimum else ""
    if target == "cpu":
        compiler.compile_many([r for stages in lowered.values() for s in stages.sources for r in requests(s)])
    leaves = flatten((args, kwargs))[0]
    inputs = [np.asarray(x) for x in (*leaves, *program.outside(leaves))]
    truth = evaluate(program.graph, inputs, float64=True)
    ready = {} if target == "reference" else _each(lambda name: assemble(lowered[name], target), lowered, failed)
    errors = _each(lambda n: _error(ready[n].outputs(copy.deepcopy(leaves)) if ready else
                                       evaluate(lowered[n].graph, inputs), truth),
                   ready or lowered, failed, "stepping" if target == "step" else "running")
    remark += "".join(f" No row for {n}: {type(why).__name__}: {why}." for n, why in failed.items())
    if whole := [name for name in errors if runs_in_numpy(lowered[name].plan)]:
        remark += f" NumPy runs {', '.join(whole)} one operation at a time (jit: the function): too many kernels to compile."
    remark += f" {note}" if (note := widened(program.graph)) else ""
    other_passes = chosen(passes, machine) != DEFAULTS[machine.kind]
    remark += " auto's plan assumes the default passes." if "auto" in errors and other_passes else ""
    now("measuring")
    measured = target in ("cpu", "cuda")
    calls = {name: _call(ready[name], leaves) for name in errors if measured}
    own = copy.deepcopy((args, kwargs)) if program.mutated else (args, kwargs)
    calls[""] = lambda: evaluate(graph, own[0]) if graph else plain(*own[0], **own[1])
    times = interleaved(calls, seconds) if measured else dict.fromkeys(["", *errors], 0.0)
    rows = tuple(row_of(name, lowered[name], times[name], errors[name]) for name in errors)
    best_us = next((r.modelled_us for r in rows if r.strategy == "optimum"), 0.0)
    rows = tuple(replace(r, over_optimum=r.modelled_us / best_us) for r in rows) if best_us else rows
    each = seconds / 2 / len(errors)
    kernels_us = {name: sum(map(statistics.median, launch_times(ready[name], leaves, each))) if measured else 0.0
                  for name in errors}
    graphs = {name: lowered[name].graph for name in errors}
    return Comparison(getattr(plain, "__name__", "program"), target, machine, rows, times[""], kernels_us, graphs, remark)


def _add_optimum(lowered: dict[str, Stages], program: Program, target: str, device: Device, passes: str | Sequence[str]) -> str:
    """Add the best plan as one more strategy. Returns a remark if there is none."""
    plans = [stages.plan for stages in lowered.values()]
    try:
        lowered["optimum"] = lower_program(program, "optimum", target, device, passes=passes,
                                           decide=lambda graph, _, machine: exhaustive.optimum(graph, machine, plans))
    except (PlanError, KernelError) as refusal:
        return f" No optimum: {refusal}."
    return ""


def sample(value: Any, seed: int = 0) -> Any:
    """Replace each ``TensorType`` by an array: normal numbers, integers 0 to 7, random booleans."""
    random = np.random.default_rng(seed)

    def filled(x: Any) -> Any:
        if not isinstance(x, TensorType):
            return x
        kind = np.dtype(x.dtype).kind
        drawn = random.normal(size=x.shape) if kind == "f" else random.integers(0, 2 if kind == "b" else 8, x.shape)
        return np.asarray(drawn).astype(x.dtype)
    leaves, tree = flatten(value)
    return unflatten(tree, [filled(leaf) for leaf in leaves])


def _call(run: Executable, leaves: Sequence[Any]) -> Callable[[], Any]:
    """A repeatable call, with copies of the arguments that are written to."""
    own = copy.deepcopy(leaves) if run.stages.program.mutated else leaves
    return lambda: run.run(own)


def _each(make: Callable[[str], Made], names: Iterable[str], failed: dict[str, MinisitchError],
          doing: str = "preparing") -> dict[str, Made]:
    """What ``make`` returns for each strategy, which the progress line names.

    Strategies that raise are recorded in ``failed``.
    """
    found: dict[str, Made] = {}
    for name in names:
        now(f"{doing} {name}")
        try:
            found[name] = make(name)
        except MinisitchError as why:
            failed[name] = why
    if failed and not found:
        raise next(iter(failed.values()))
    return found


def _error(results: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> float:
    """The largest error over all outputs."""
    return max((error_of(got, want) for got, want in zip(results, exact, strict=True)), default=0.0)


def error_of(got: np.ndarray, exact: np.ndarray) -> float:
    """Largest distance, relative to the largest finite magnitude.

    Infinite if NaN or infinity are at different places. Raises MinisitchError for unequal shapes.
    """
    if got.shape != exact.shape:
        raise MinisitchError(f"an output has shape {got.shape}, but the reference has {exact.shape}")
    if not got.size:
        return 0.0
    with np.errstate(all="ignore"):
        got, exact = got.astype(np.float64), exact.astype(np.float64)
        finite = np.isfinite(exact)
        if not np.array_equal(got[~finite], exact[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
            return float("inf")
        scale = float(np.max(np.abs(exact[finite]), initial=0.0)) or 1.0
        return float(np.max(np.abs(got[finite] - exact[finite]), initial=0.0)) / scale


def interleaved(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Median microseconds of each call. They take turns, so that a busy machine is fair to all."""
    once = {name: _time(call, 1) for name, call in calls.items()}
    repeats = {name: max(1, min(1000, int(2e-4 / max(t, 1e-7)))) for name, t in once.items()}
    whole = sum(once[n] * repeats[n] for n in calls)
    rounds = max(3, min(101, int(seconds / max(whole, 1e-6))))
    times: dict[str, list[float]] = {name: [] for name in calls}  # without the cold first calls
    for order in itertools.islice(take_turns(list(calls)), rounds):
        for name in order:
            times[name].append(_time(calls[name], repeats[name]))
    return {name: float(np.median(t)) * 1e6 for name, t in times.items()}


def take_turns(names: Sequence[Made]) -> Iterator[list[Made]]:
    """An order for each round. Each name has each place and each predecessor equally often.

    These are Williams's designs (1949). A random order is not balanced in few rounds: with one seed
    a strategy ran right after NumPy's long call in two of the first four rounds.
    """
    number = len(names)
    zigzag = [k // 2 if k % 2 == 0 else number - 1 - k // 2 for k in range(number)]
    for turn in itertools.count():
        yield [names[(k + turn) % number] for k in (zigzag if turn // number % 2 == 0 else zigzag[::-1])]


def _time(call: Callable[[], Any], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - began) / repeats


def row_of(name: str, stages: Stages, measured_us: float = 0.0, error: float = 0.0) -> Row:
    """The row of a strategy. A pipeline counts as one kernel."""
    pipelines = [(flow.body.graph, flow.source.pipeline) for flow in stages.flows]
    traffic = [cost.traffic(k) for k in stages.kernels] + [pipeline_traffic(*each, stages.device) for each in pipelines]
    library = stages.plan.library_calls
    modelled = sum(cost.kernel_us(k, cost.working_set(stages.graph)) for k in stages.kernels)
    called = [stages.graph[m] for p in library for m in p.members]
    modelled += sum(cost.library_us(stages.graph, n, stages.device) for n in called if n.kind != "source" and n.op not in VIEWS)
    modelled += sum(pipeline_us(*each, stages.device) for each in pipelines)
    return Row(name, len(stages.kernels) + len(pipelines), len(library), sum(t.read for t in traffic),
               sum(t.written for t in traffic),
               sum(k.block_barriers for k in stages.kernels) + sum(f.source.text.count("cuda.syncthreads()") for f in stages.flows),
               sum(k.grid_barriers for k in stages.kernels) + len(stages.flows), modelled, measured_us, error)


def launch_times(run: Executable, leaves: Sequence[Any], seconds: float, fewest: int = 1) -> list[list[float]]:
    """Microseconds of each kernel launch, in ``fewest`` to 25 runs of the whole program.

    Whole programs are run so that caches hold what they hold in use.
    """
    times: list[list[float]] = [[] for _ in run.steps]
    began = time.perf_counter()
    with np.errstate(all="ignore"):
        for done in range(25):
            if done >= fewest and time.perf_counter() - began > seconds:
                break
            for seen, call in zip(times, run.prepare(leaves)[1], strict=True):
                seen.append(_time(call, 1) * 1e6)
    return [us for pattern, us in zip(run.stages.plan.patterns, times, strict=False) if pattern.kind == "kernel"]
