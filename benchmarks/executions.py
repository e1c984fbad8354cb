"""The paper's two baselines beside a pipeline: the same work as kernels one after the other, in the model's time.

In:  the body of a pattern, its ``Pipeline``, a ``Device``; or ``StageLoad``s and ``Channel``s. Out: three ``Simulation``s.

    bulk-synchronous   a kernel a stage; every intermediate goes through DRAM
    vertical           a kernel a group of stages, which takes a tile through all of them before the next tile; what stays
                       inside a group never leaves its SM, and units take turns. A product is a kernel of its own
    dataflow           the pipeline (``minisitch.strategies.kitsune.models.simulate``)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minisitch.device import Device
from minisitch.errors import PipelineError
from minisitch.fuse import VIEWS
from minisitch.graph import Graph
from minisitch.strategies.kitsune.models.balance import Channel, StageLoad, entries_of
from minisitch.strategies.kitsune.models.rates import depths, reads, sequence
from minisitch.strategies.kitsune.models.simulate import Simulation, Task, dataflow, ends, fired_entries, simulate
from minisitch.strategies.kitsune.pipeline import Pipeline, Role, Stage
from minisitch.strategies.kitsune.predict import workload
from minisitch.strategies.kitsune.tiles import FINAL, FOLD

EXECUTIONS = ("bulk-synchronous", "vertical", "dataflow")
LOW = 1 / 3  # share of a unit's rate below which Kitsune counts it as idle


def predict(graph: Graph, pipeline: Pipeline, device: Device) -> tuple[Simulation, Simulation, Simulation]:
    """Every operation a kernel (the paper's baseline), products with their epilogues and fused SIMT stages, and the pipeline."""
    eager = workload(graph, pipeline, device, operators(graph, pipeline))
    fused = workload(graph, pipeline, device, [s for s in pipeline.stages if s.role != "combine"])
    return bulk_synchronous(*eager, device), vertical(*fused, device), dataflow(*workload(graph, pipeline, device), device)


def operators(graph: Graph, pipeline: Pipeline) -> tuple[Stage, ...]:
    """A stage for each operation."""
    role: dict[int, Role] = {FOLD: "fan_in", FINAL: "final"}
    return tuple(Stage(f"{node.op}_{node.id}", (node.id,), "tensor" if node.op == "matmul" else "simt",
                       role.get(pipeline.axes[node.id] or 0, "map"))
                 for node in graph.nodes if node.kind != "source" and node.op not in VIEWS)


def bulk_synchronous(loads: Sequence[StageLoad], channels: Sequence[Channel], device: Device) -> Simulation:
    """A kernel a stage."""
    return replace(vertical(loads, channels, device, [(load.name,) for load in loads]), execution="bulk-synchronous")


def vertical(loads: Sequence[StageLoad], channels: Sequence[Channel], device: Device,
             groups: Sequence[Sequence[str]] | None = None) -> Simulation:
    """A kernel a group; ``groups`` are in the order of their data, by default ``vertical_groups``'."""
    groups = vertical_groups(loads, channels) if groups is None else groups
    if sorted(name for group in groups for name in group) != sorted(load.name for load in loads):
        raise PipelineError(f"groups hold every stage once; got {groups}")
    place = {name: number for number, group in enumerate(groups) for name in group}
    for channel in channels:
        if (reader := min(place[name] for name in channel.consumers)) < place[channel.producer]:
            raise PipelineError(f"group {reader} reads {channel.name}, which group {place[channel.producer]} makes: put the groups "
                                "in the order of their data")
    kernels = [[_together([load for load in loads if load.name in group], loads, channels, device)] for group in groups]
    unbounded = [replace(c, depth=max(c.depth, entries_of(c, loads))) for c in channels]
    return replace(simulate("vertical", loads, unbounded, device, kernels), channels=tuple(channels))


def both_low(run: Simulation) -> float:
    """The share of the time in which SMs and DRAM both are below a third of their rates."""
    low = sum(m.end - m.start for m in run.moments if max(m.simt, m.tensor) < LOW and m.dram < LOW)
    idle = run.makespan_us - sum(m.end - m.start for m in run.moments)  # launches
    return (low + idle) / run.makespan_us


def line(run: Simulation) -> str:
    """One execution with its figures."""
    used = "  ".join(f"{unit} {part:4.0%}" for unit, part in run.utilisation.items())
    return (f"{run.execution:16} {run.makespan_us:9.2f} us  {run.kernels:2} kernels  {run.dram_bytes:13,} DRAM bytes  "
            f"{used}  both low {both_low(run):4.0%}")


def executions(loads: Sequence[StageLoad], channels: Sequence[Channel],
               device: Device) -> tuple[Simulation, Simulation, Simulation]:
    """The same work in all three ways."""
    return bulk_synchronous(loads, channels, device), vertical(loads, channels, device), dataflow(loads, channels, device)


def vertical_groups(loads: Sequence[StageLoad], channels: Sequence[Channel]) -> list[tuple[str, ...]]:
    """What classic fusion makes: neighbouring SIMT stages in one kernel, each product alone.

    Stages with equally many products before them may be joined: a path that leaves them through a product cannot come back.
    """
    level, root = {load.name: 0 for load in loads}, {load.name: load.name for load in loads}
    kind = {load.name: load.kind for load in loads}
    for load in loads:
        producers = [channel.producer for _, channel in reads(channels, load.name)]
        level[load.name] = max((level[p] + (kind[p] == "tensor") for p in producers), default=0)
        for producer in producers:
            if load.kind == kind[producer] == "simt" and level[load.name] == level[producer]:
                old, new = root[producer], root[load.name]
                root = {name: new if group == old else group for name, group in root.items()}
    groups: dict[str, list[str]] = {}
    for load in sorted(loads, key=lambda load: (level[load.name], load.kind == "tensor")):
        groups.setdefault(root[load.name], []).append(load.name)
    return [tuple(group) for group in groups.values()]


def _together(group: Sequence[StageLoad], loads: Sequence[StageLoad], channels: Sequence[Channel], device: Device) -> list[Task]:
    """The firings of one kernel, in turn on the whole machine.

    What crosses to another kernel is written once, and read once by each. So is what stays inside, if its entries in flight
    are more than the shared memory of all SMs: an MLP's wide hidden layer.
    """
    names = {load.name for load in group}
    inner = {i: replace(c, consumers=tuple(name for name in c.consumers if name in names), entries=entries_of(c, loads))
             for i, c in enumerate(channels) if c.producer in names and not names.isdisjoint(c.consumers)}
    held = zip(inner, depths(group, list(inner.values())), strict=True)
    kept = {i for i, entries in held if entries * channels[i].tile_bytes <= device.sms * device.shared_per_sm}

    def moved(load: StageLoad, tile: int) -> int:
        total = load.dram_bytes
        for i, channel in ends(channels, load):
            if load.name == channel.producer:
                travels = channel.returned or i not in kept or not names.issuperset(channel.consumers)
            else:  # of several readers in a kernel the first fetches it
                travels = i not in kept and load.name == next(name for name in channel.consumers if name in names)
            total += travels * fired_entries(channel, load, tile, loads) * channel.tile_bytes
        return total

    tasks = []
    for load, tile in sequence(group, list(inner.values())):
        dram = moved(load, tile)
        tasks.append(Task(load, tile, load.us, load.share(device), dram, load.l2_bytes + dram))
    return tasks
