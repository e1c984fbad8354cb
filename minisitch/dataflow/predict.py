"""What the three executions of a designed pipeline would take on a GPU: from a ``Pipeline`` to the models' loads and queues.

In:  the body of a pattern, its ``Pipeline``, a ``Device``. Out: three ``Run``s: every operation a kernel, classic fusion, dataflow.

Work is operations over the rate of their unit, both as ``cost`` has them: products run on tensor cores (float32 operands
rounded to TF32, at half of float16's rate), everything else on SIMT units. Inputs are read once by each stage that needs
them, outputs written once; what a stage's blocks read again, its weights, comes from L2 and is not counted. Nothing here
is measured, and a product reaches the datasheet's rate.

A tile of the design is one block's; a tile of the models is as many of those as a balanced stage has blocks.

Before:  4,096 rows in 128 tiles of 32, two products, 108 SMs
After:   3 tiles of 54 x 32 rows for 54 blocks of each product
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cost import HEAVY_OPERATIONS
from ..device import Device
from ..fuse import FREE, is_heavy, sources
from ..graph import Graph, Node
from .balance import KINDS, Channel, Kind, Load
from .pipeline import Pipeline, Stage
from .simulate import Run, bulk_synchronous, dataflow, vertical
from .tiles import FINAL, FOLD


def predict(graph: Graph, pipeline: Pipeline, device: Device) -> tuple[Run, Run, Run]:
    """Every operation a kernel (the paper's baseline), products with their epilogues and fused SIMT stages, and the pipeline."""
    eager = workload(graph, pipeline, device, operators(graph, pipeline))
    stages = workload(graph, pipeline, device)
    return bulk_synchronous(*eager, device), vertical(*stages, device), dataflow(*stages, device)


def operators(graph: Graph, pipeline: Pipeline) -> tuple[Stage, ...]:
    """A stage for each operation."""
    role = {FOLD: "fan_in", FINAL: "final"}
    return tuple(Stage(f"{node.op}_{node.id}", (node.id,), "tensor" if node.op == "matmul" else "simt",
                       role.get(pipeline.axes[node.id] or 0, "map"))
                 for node in graph.nodes if node.kind != "source" and node.op not in FREE)


def workload(graph: Graph, pipeline: Pipeline, device: Device,
             stages: Sequence[Stage] = ()) -> tuple[tuple[Load, ...], tuple[Channel, ...]]:
    """What the stages of a pipeline ask of a device, or those that are given, and the queues between them."""
    stages = stages or pipeline.stages
    together = -(-device.sms // max(sum(stage.kind == kind for stage in pipeline.stages) for kind in KINDS))
    tiles = -(-pipeline.tiles // together)
    home: dict[int, Stage] = {}
    last: dict[int, Stage] = {}
    readers: dict[int, list[str]] = {}
    for stage in stages:
        for node in stage.nodes:
            home.setdefault(node, stage)  # who makes it, or a fold's parts
            last[node] = stage  # who has it whole
    for stage in stages:
        makes = [node for node in stage.nodes if home[node] is stage]
        for node in sorted({source for made in makes for source in sources(graph, graph[made])}.union(stage.nodes)):
            if node in home and home[node] is not stage:
                readers.setdefault(node, []).append(stage.name)
    returned = {through_views(graph, output) for output in graph.outputs}
    written = {node: last[node] for node in returned if node in last and (last[node] is not home[node] or node not in readers)}
    loads = tuple(_load(graph, stage, tiles, device, home, [n for n, by in written.items() if by is stage]) for stage in stages)
    depth = {queue.node: queue.depth for queue in pipeline.queues}
    channels = []
    for node, names in readers.items():
        whole = pipeline.axes[node] in (FOLD, FINAL)
        producer, entries = home[node].name, 1 if whole else tiles
        channels.append(Channel(producer, tuple(names), -(-graph[node].type.nbytes // entries), min(entries, depth.get(node, 2)),
                                entries, node in returned and node not in written))
    return loads, tuple(channels)


def _load(graph: Graph, stage: Stage, tiles: int, device: Device, home: dict[int, Stage], written: Sequence[int]) -> Load:
    """A stage's work and bytes, dealt out evenly to its tiles."""
    tiles = 1 if stage.role == "final" else tiles
    nodes = [graph[n] for n in stage.nodes if home[n] is stage]
    us = sum(_us(graph, node, device) for node in nodes)
    inputs: dict[int, int] = {}
    for node in nodes:
        for source in sources(graph, node):
            if graph[source].op == "input":  # of a table only what is looked up
                size = min(graph[source].type.nbytes, node.type.nbytes) if node.op == "gather" else graph[source].type.nbytes
                inputs[source] = max(inputs.get(source, 0), size)
    moved = sum(inputs.values()) + sum(graph[n].type.nbytes for n in written)
    kind: Kind = "tensor" if stage.kind == "tensor" else "simt"
    return Load(stage.name, kind, us / tiles, -(-moved // tiles), tiles=tiles)


def _us(graph: Graph, node: Node, device: Device) -> float:
    """What an operation takes at its unit's full rate."""
    if node.op == "matmul":
        rate = device.tensor_flops if node.type.dtype == "float16" else device.tensor_flops / 2
        return 2.0 * node.type.size * graph[node.args[0]].type.shape[-1] / rate * 1e6
    elements = graph[node.args[0]].type.size if node.kind == "reduce" else node.type.size
    return elements * (HEAVY_OPERATIONS if is_heavy(graph, node) else 1) / device.flops * 1e6


def through_views(graph: Graph, node: int) -> int:
    """The value that a view shows."""
    while graph[node].op in FREE:
        node = graph[node].args[0]
    return node
