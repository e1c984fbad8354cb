"""Every stage of one program, from a traced function to emitted text.

In:  a ``Program``, the names of a strategy and a target. Out: ``Stages``. Each stage prints.

Who is called for each stage, in this order:

    simplify   simplify.simplify
    fuse       strategies.regions.planned, which asks the strategy: which operations share a kernel
    stitch     stitch.compose.compose, for each kernel of the plan: which values get loops. All
               others are computed where they are read
    schedule   strategies.prices.scheduled, which calls compose and passes.registry.kernel_of.
               There passes rewrite the plan, schedule.schedule makes the plain kernel, and passes
               rewrite that. At the stop ``schedule`` no pass runs
    emit       cuda_emit.emit or cpu_emit.emit

A strategy has often built a kernel already, to know its price. ``strategies.prices.scheduled`` does
not build it again. Patterns with equal bodies (twelve equal layers) are stitched, scheduled and
emitted once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import cpu_emit, cuda_emit
from .device import Device
from .errors import MinisitchError, needs
from .errors.nearest import near
from .errors.progress import now
from .fuse import Decision, FusionPlan, count, verify_plan
from .graph import Graph
from .kernel import Kernel
from .kernel.text import KernelSource
from .passes.registry import chosen, idle
from .simplify import simplify
from .stitch.body import extract
from .stitch.compose import compose
from .stitch.plan import StitchPlan
from .stitch.windows import WindowBody, body_of
from .strategies.kitsune.emit import Flow, emit_pipeline
from .strategies.kitsune.pipeline import Pipeline
from .strategies.prices import digest, scheduled, shared_kernels
from .strategies.regions import planned
from .trace import Program
from .trace.tree import flatten

STAGES = ("trace", "simplify", "fuse", "stitch", "schedule", "emit")


# ---------------------------------------------------------------- every stage of one program
@dataclass(frozen=True)
class Stages:
    """One program at every stage.

    ``bodies``, their ``digests``, ``stitches``, ``kernels`` and ``sources`` have an entry for each
    kernel pattern of ``plan``, in its order. Patterns with equal bodies share the value of an
    entry. ``flows`` has an entry for each pipeline.

    At the stage ``stitch`` the ``stitches`` are what ``compose`` made. From ``schedule`` on they
    are the plans of the ``kernels``: passes may have rewritten them, and values may have been
    demoted.
    """

    program: Program
    graph: Graph
    device: Device
    plan: FusionPlan
    bodies: tuple[WindowBody, ...] = ()
    digests: tuple[str, ...] = ()
    stitches: tuple[StitchPlan, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    sources: tuple[KernelSource, ...] = ()
    flows: tuple[Flow, ...] = ()

    def at(self, stop_after: str) -> Any:
        """What the stop shows: a Program, a Graph, a FusionPlan, or a tuple, one entry a kernel."""
        shown = {"trace": self.program, "simplify": self.graph, "fuse": self.plan, "stitch": self.stitches, "emit": self.sources}
        return shown.get(stop_after, self.kernels)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions, with node ids of the whole graph; a shared kernel's once."""
        found = dict.fromkeys(self.plan.decisions)
        seen: set[str] = set()
        for body, kernel in zip(self.bodies, self.kernels, strict=True):
            if kernel.name not in seen:
                seen.add(kernel.name)
                found.update(dict.fromkeys(body.decisions_in_whole(kernel.decisions)))
        return tuple(found)


def program_of(graph: Graph, exact: bool = True) -> Program:
    """A graph that was not traced, as a program. Its inputs are arguments, its outputs a tuple."""
    needs("program_of(minisitch.trace(f, (x,)).graph)", (graph, Graph))
    leaves, results = (tuple(graph[i].type for i in ids) for ids in (graph.inputs, graph.outputs))
    return Program(graph, flatten((leaves, {}))[1], flatten(results)[1], (), (), exact)


# ---------------------------------------------------------------- the road
def stage_at(stop_after: str, passes: tuple[str, ...], device: Device) -> tuple[str, tuple[str, ...]]:
    """The stage that a stop belongs to, and which of the passes have run there.

    A stop is the name of a stage or of a pass. At a pass, the passes up to it have run. At
    ``schedule`` none has, at ``emit`` all have. Raises MinisitchError for a name that is neither a
    stage nor a pass that runs here.
    """
    if stop_after in passes:
        return "schedule", passes[:passes.index(stop_after) + 1]
    if stop_after not in STAGES:
        unknown = idle(stop_after, device) or f"unknown stage {stop_after!r}{near(stop_after, (*STAGES, *passes))}"
        raise MinisitchError(f"{unknown}; the stages are {', '.join(STAGES)}; passes that run here: {', '.join(passes) or 'none'}")
    return stop_after, passes if stop_after == "emit" else ()


def lower_program(program: Program, strategy: str, target: str, device: Device, stop_after: str = "emit",
                  decide: Callable[[Graph, str, Device], FusionPlan] = planned, passes: str | Sequence[str] = "default") -> Stages:
    """Take a traced program down the road to the stop ``stop_after``: a stage or a pass.

    ``decide`` asks the strategy. ``runtime.plans.plan_of`` looks on the disk first, and
    ``lambda *_: plan`` takes a plan that is known already. ``passes`` does not change
    the fusion plan: a strategy prices kernels after the default passes. Raises MinisitchError for
    an unknown stop or pass.
    """
    form = "lower_program(minisitch.trace(f, (x,)), 'auto', 'cpu', minisitch.get_device('cpu'))"
    needs(form, (program, Program), (strategy, str), (target, str), (device, Device))
    stage, run = stage_at(stop_after, chosen(passes, device), device)
    if stage == "trace":
        return Stages(program, program.graph, device, FusionPlan(program.graph, strategy, ()))
    now("simplifying")
    graph = simplify(program.graph)
    if stage == "simplify":
        return Stages(program, graph, device, FusionPlan(graph, strategy, ()))
    with shared_kernels(device):  # what a strategy has built to know its price is not built again
        now(f"planning {count(len(graph), 'operation')}")
        plan = verify_plan(decide(graph, strategy, device))
        # A strategy may have taken a small product apart.
        stages = Stages(program, plan.graph, device, plan)
        if stage == "fuse":
            return stages
        now(f"writing {count(len(plan.kernels), 'kernel')}")
        bodies = tuple(body_of(plan.graph, p) for p in plan.kernels)
        keys = tuple(digest(body.graph, p.composition) for body, p in zip(bodies, plan.kernels, strict=True))
        different = {key: (body.graph, device, p.composition) for key, body, p in zip(keys, bodies, plan.kernels, strict=True)}
        stages = replace(stages, bodies=bodies, digests=keys)
        if stage == "stitch":
            stitched = {key: compose(*asked) for key, asked in different.items()}
            return replace(stages, stitches=tuple(map(stitched.__getitem__, keys)))
        kernels = {key: scheduled(*asked, run) for key, asked in different.items()}
    stages = replace(stages, stitches=tuple(kernels[key].plan for key in keys), kernels=tuple(kernels[key] for key in keys))
    if stage == "schedule":
        return stages
    emit = cuda_emit.emit if target in ("cuda", "step") or device.kind == "gpu" else cpu_emit.emit
    sources = {key: emit(kernel, program.exact) for key, kernel in kernels.items()}
    return replace(stages, sources=tuple(sources[key] for key in keys), flows=_flows(stages, run))


# ---------------------------------------------------------------- pipelines
def _flows(stages: Stages, passes: tuple[str, ...]) -> tuple[Flow, ...]:
    """The pipelines, each one kernel."""
    flows = []
    for pattern in stages.plan.pipelines:
        assert isinstance(pattern.composition, Pipeline), "only kitsune makes pipelines"
        body = extract(stages.graph, pattern)
        flows.append(Flow(body, emit_pipeline(body.graph, pattern.composition, stages.device, stages.program.exact, passes=passes)))
    return tuple(flows)
