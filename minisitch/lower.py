"""Every stage of one program: from a traced function to emitted text, and the machine it is meant for.

In:  a ``Program``, the names of a strategy and a target. Out: ``Stages``, each of which prints.

Patterns with equal bodies (twelve equal layers) are stitched, scheduled and emitted once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from . import cpu_emit, cuda_emit
from .device import Device
from .errors.progress import now
from .fuse import Body, Composition, Decision, FusionPlan, count, extract, verify_plan
from .graph import Graph, verify
from .kernel.text import KernelSource
from .ops import itemsize
from .passes.split_reductions import online
from .schedule import Kernel
from .simplify import simplify
from .stitch.compose import compose
from .stitch.place import StitchPlan
from .strategies.cost import beside_library
from .strategies.kitsune.emit import PipelineSource, emit_pipeline
from .strategies.kitsune.loop import TileLoop, tile_loop
from .strategies.kitsune.pipeline import Pipeline
from .strategies.prices import built, digest, shared_kernels
from .strategies.regions import planned
from .trace import Program
from .trace.tree import flatten

STAGES = ("trace", "simplify", "fuse", "stitch", "schedule", "emit")


# ---------------------------------------------------------------- every stage of one program
@dataclass(frozen=True)
class Stages:
    """One program at every stage. ``bodies``, their ``digests``, ``stitches``, ``kernels`` and ``sources`` have one
    entry a kernel pattern of ``plan``, in its order; patterns with equal bodies share one entry's value. ``loops`` has one
    entry a pipeline on a CPU, ``flows`` one on a GPU."""

    program: Program
    graph: Graph
    device: Device
    plan: FusionPlan
    bodies: tuple[Body, ...] = ()
    digests: tuple[str, ...] = ()
    stitches: tuple[StitchPlan, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    sources: tuple[KernelSource, ...] = ()
    loops: tuple[TiledStages, ...] = ()
    flows: tuple[Flow, ...] = ()

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


@dataclass(frozen=True)
class TiledStages:
    """A CPU's pipeline: its loop, and for each round the stages of the program for a tile, for a smaller last one, and for what
    follows them."""

    loop: TileLoop
    rounds: tuple[tuple[Stages, Stages | None, Stages | None], ...]


@dataclass(frozen=True)
class Flow:
    """A GPU's pipeline: its body, and the text of its one kernel."""

    body: Body
    source: PipelineSource

    @property
    def own(self) -> tuple[tuple[str, int], ...]:
        """What each session allocates for it besides the workspace: queues, scratch, counters, each with its bytes."""
        return tuple((a.name, a.size * itemsize(a.dtype)) for a in self.source.arrays if a.name in self.source.resident)

    @property
    def own_bytes(self) -> int:
        return sum(nbytes for _, nbytes in self.own)

    def __str__(self) -> str:
        """The body, stages with their ranges of blocks and queues, the parameters, the kernel's text."""
        source, first = self.source, 0
        lines = [f"# pipeline {source.name}: a program of its own, whose ids are used from here on", str(self.body), "",
                 str(source.pipeline), "", f"{source.name}: {source.grid} blocks of {source.block} threads, all resident; "
                 f"{source.registers} registers a thread, {source.shared_bytes} B of shared memory a block"]
        for stage in source.pipeline.stages:
            lines.append(f"  {stage.name}: {count(stage.blocks, 'block')} from {first} on")
            first += stage.blocks
        lines += [f"  {a.kind} {a.name}: {a.size} x {a.dtype}, {a.size * itemsize(a.dtype)} B" for a in source.arrays]
        return "\n".join([*lines, "", "# after emit, for cuda", source.text.rstrip()])


def program_of(graph: Graph, exact: bool = True) -> Program:
    """A graph that nobody traced, as a program: its inputs are the arguments, its outputs a tuple."""
    leaves = [graph[i].type for i in graph.inputs]
    results = [graph[o].type for o in graph.outputs]
    return Program(graph, flatten((tuple(leaves), {}))[1], flatten(tuple(results))[1], (), (), exact)


def lower_program(program: Program, strategy: str, target: str, device: Device, stop_after: str = "emit",
                  decide: Callable[[Graph, str, Device], FusionPlan] = planned) -> Stages:
    """Take a traced program down the road until ``stop_after`` (``"fuse"`` or later), for the device as it is beside the program's
    library calls. ``decide`` asks the strategy; ``runtime.plans.plan_of`` looks on the disk first."""
    now("simplifying")
    graph, rewritten = online(simplify(program.graph), device)
    verify(graph)
    device = beside_library(graph, device)
    with shared_kernels(device):  # what a strategy has built to know its price is not built again
        now(f"planning {count(len(graph), 'operation')}")
        plan = decide(graph, strategy, device)
        if rewritten and plan.graph == graph:  # else the strategy has taken products apart, and ids mean other nodes
            plan = replace(plan, decisions=(*rewritten, *plan.decisions))
        return lower_plan(program, verify_plan(plan), target, device, stop_after)


def lower_plan(program: Program, plan: FusionPlan, target: str, device: Device, stop_after: str = "emit") -> Stages:
    """The rest of the road, for a plan that is known already."""
    graph = plan.graph  # a strategy may have taken a small product apart, to hold it in a kernel
    stages = Stages(program, graph, device, plan)
    if stop_after == "fuse":
        return stages
    now(f"writing {count(len(plan.kernels), 'kernel')}")
    bodies = tuple(extract(graph, p) for p in plan.kernels)
    pipelines = [(extract(graph, p), p.composition) for p in plan.pipelines]
    exact = program.exact
    loops = tuple(_tiled(body, how, target, device, stop_after, exact) for body, how in pipelines if device.kind == "cpu")
    flows = tuple(_flow(body, how, device, exact) for body, how in pipelines if device.kind == "gpu" and stop_after == "emit")
    emit = cuda_emit.emit if target in ("cuda", "step") else cpu_emit.emit
    compositions = [p.composition for p in plan.kernels]
    keys = tuple(digest(body.graph, how) for body, how in zip(bodies, compositions, strict=True))
    different = {key: (body.graph, how) for key, body, how in zip(keys, bodies, compositions, strict=True)}
    if stop_after == "stitch":
        stitches = {key: compose(body, device, how) for key, (body, how) in different.items()}
        return Stages(program, graph, device, plan, bodies, keys, tuple(stitches[key] for key in keys), loops=loops)
    kernels = {key: built(body, device, how) for key, (body, how) in different.items()}
    sources = {key: emit(k, exact) for key, k in kernels.items()} if stop_after == "emit" else {}
    return Stages(program, graph, device, plan, bodies, keys, tuple(kernels[key].plan for key in keys),
                  tuple(kernels[key] for key in keys), tuple(sources[key] for key in keys if sources), loops, flows)


def _flow(body: Body, pipeline: Composition, device: Device, exact: bool) -> Flow:
    assert isinstance(pipeline, Pipeline), "only kitsune makes pipelines"
    return Flow(body, emit_pipeline(body.graph, pipeline, device, exact))


def _tiled(body: Body, pipeline: Composition, target: str, device: Device, stop_after: str, exact: bool) -> TiledStages:
    """A pipeline's tile as a program of its own, down the same road."""
    assert isinstance(pipeline, Pipeline), "only kitsune makes pipelines"
    loop = tile_loop(body, pipeline, device)

    def lowered(plan: FusionPlan) -> Stages:
        return lower_plan(program_of(plan.graph, exact), plan, target, device, stop_after)

    return TiledStages(loop, tuple((lowered(r.tile), lowered(r.rest) if r.rest else None, lowered(r.after) if r.after else None)
                                   for r in loop.rounds))
