"""The work of a pipeline's stages on a GPU, in the form that the models need, and what it costs.

In:  the body of a pattern, its ``Pipeline``, a ``Device``. Out: ``StageLoad``s and ``Channel``s for
``models.simulate``; modelled microseconds; bytes of main memory.

Time is operations over the rate of their unit, as in ``cost``. Products run on tensor cores, with
float32 operands rounded to TF32 at half of float16's rate. All else runs on SIMT units. Each stage
reads its inputs once, and outputs are written once. Weights that a stage's blocks read again come
from L2 and are not counted. Nothing here is measured: products reach the datasheet's rate.

A tile of the design belongs to one block. A tile of the models holds as many of these as a balanced
stage has blocks.

``balanced`` sets the blocks of each stage. It also adds a tree of combining stages before a final
stage that would delay the others.

Before:  4,096 rows in 128 tiles of 32, two products, 108 SMs
After:   3 tiles of 54 x 32 rows for 54 blocks of each product
"""

from collections.abc import Sequence
from dataclasses import replace

from ...device import Device
from ...fuse import Decision, behind_views, count, is_heavy
from ...graph import Graph, Node
from ..ask import reads_of
from ..cost import HEAVY_OPERATIONS, Bytes
from .models.balance import KINDS, Channel, StageLoad, balance, in_dram, pass_tiles
from .models.rates import depths
from .models.simulate import dataflow
from .pipeline import Pipeline, Stage, assemble, crossing, firings
from .tiles import FINAL, FOLD


def workload(graph: Graph, pipeline: Pipeline, device: Device,
             stages: Sequence[Stage] = ()) -> tuple[tuple[StageLoad, ...], tuple[Channel, ...]]:
    """The loads of a pipeline's stages, and the queues between them.

    If ``stages`` are given, they are kernels that run alone. A reducing one then hands over only
    its complete result.
    """
    parted, stages = not stages, stages or pipeline.stages
    most = max(sum(stage.kind == kind for stage in pipeline.stages) for kind in KINDS)
    together = -(-device.sms // most)
    tiles, links = -(-pipeline.tiles // together), crossing(graph, stages)
    parts = firings(stages, links, pipeline.tiles) if parted else [0] * len(stages)
    fired = [tiles if not s.joins else min(n, tiles) if parted else 1
             for s, n in zip(stages, parts, strict=True)]
    makes = []
    for k, s in enumerate(stages):
        before = {n for t in stages[:k] for n in t.nodes} if s.joins else set()
        makes.append([n for n in s.nodes if n not in before])
    whole = {n for n, axis in enumerate(pipeline.axes) if axis in (FOLD, FINAL)}
    returned: dict[int, int] = {}
    for output in graph.outputs:
        node = behind_views(graph, output)
        owners = [k for k, s in enumerate(stages) if node in s.nodes]
        if owners:
            returned[node] = owners[-1] if node in whole else owners[0]
    queued = {(q.node, q.producer) for q in links}
    loads = []
    for k, stage in enumerate(stages):
        written = [n for n, by in returned.items() if by == k and (n, k) not in queued]
        load = _load(graph, stage, fired[k], device, makes[k], written)
        if parted and stage.joins:
            held = sum(graph[n].type.nbytes for n in set(stage.nodes) - set(makes[k]))
            us = load.us + part_us(held, device) * parts[k] / stage.blocks / fired[k]
            load = replace(load, us=us, parallel=stage.blocks)
        elif parted:  # a tile belongs to one block
            most = min(pipeline.tiles, device.sms)
            load = replace(load, us=load.us * device.sms / most, parallel=most)
        loads.append(load)
    channels = []
    for q in links:
        given, size = tiles, graph[q.node].type.nbytes
        if q.node in whole:
            joined = parted and stages[q.producer].role != "final"
            given = fired[q.consumers[0]] if joined else 1
            size *= parts[q.consumers[0]] if joined else 1
        producer, *consumers = (stages[k].name for k in (q.producer, *q.consumers))
        channels.append(Channel(producer, tuple(consumers), -(-size // given), entries=given,
                                returned=returned.get(q.node) == q.producer))
    deep = depths(loads, channels, full_rate=True)
    return tuple(loads), tuple(replace(c, depth=n) for c, n in zip(channels, deep, strict=True))


def part_us(nbytes: int, device: Device) -> float:
    """Microseconds for a block to add a part to a sum: a read from L2 and two block barriers."""
    return nbytes / (device.l2_bandwidth / device.sms) * 1e6 + 2 * device.block_barrier_us


def _load(graph: Graph, stage: Stage, tiles: int, device: Device, makes: Sequence[int],
          written: Sequence[int]) -> StageLoad:
    """A stage's work and bytes, divided evenly among its tiles."""
    nodes = [graph[n] for n in makes]
    us = sum(_us(graph, node, device) for node in nodes)
    inputs: dict[int, int] = {}
    for node in nodes:
        for source in reads_of(graph, node):
            read = graph[source]
            if read.op == "input":  # a gather reads only some rows of a table
                rows = node.type.nbytes if node.op == "gather" else read.type.nbytes
                inputs[source] = max(inputs.get(source, 0), min(read.type.nbytes, rows))
    moved = sum(inputs.values()) + sum(graph[n].type.nbytes for n in written)
    return StageLoad(stage.name, stage.kind, us / tiles, -(-moved // tiles), tiles=tiles)


def product_us(graph: Graph, node: Node, device: Device) -> float:
    """Microseconds of a product on tensor cores at their full rate."""
    rate = device.tensor_flops if node.type.dtype == "float16" else device.tensor_flops / 2
    return 2.0 * node.type.size * graph[node.args[0]].type.shape[-1] / rate * 1e6


def _us(graph: Graph, node: Node, device: Device) -> float:
    """Microseconds of an operation at its unit's full rate."""
    if node.op == "matmul":
        return product_us(graph, node, device)
    elements = graph[node.args[0]].type.size if node.kind == "reduce" else node.type.size
    return elements * (HEAVY_OPERATIONS if is_heavy(graph, node) else 1) / device.flops * 1e6


# ---------------------------------------------------------------- blocks, and trees of reductions
QUEUED = 0.5  # share of L2 for queues; weights, inputs and counters need the rest


def balanced(graph: Graph, pipeline: Pipeline, device: Device) -> tuple[Pipeline, list[Decision]]:
    """Set the thread blocks of each stage by Kitsune's load balance (B7), at most one a tile.

    If a final stage would need longer for its parts than the slowest other stage for its work, it
    gets a tree. Each block of the tree adds up as many parts as it can in that time.

    Before:  sum_2 fan_in -> final_3 final, 512 parts
    After:   sum_2 fan_in -> combine_3, 31 blocks -> final_4 final
    """
    loads, channels = workload(graph, pipeline, device)
    bounds, stages, said = balance(loads, device, channels).bounds, list[Stage](), list[Decision]()
    finals = {s.name for s in pipeline.stages if s.joins}
    rest = pass_tiles(loads) / min(b.tiles_per_us for b in bounds if b.name not in finals)
    for stage, parts in zip(pipeline.stages, pipeline.taken, strict=True):
        if stage.role == "final":
            folds = tuple(n for n in stage.nodes if pipeline.axes[n] == FOLD)
            one = part_us(sum(graph[n].type.nbytes for n in folds), device)
            tree, left = list[int](), parts
            share = max(2, int(rest / one), -(-parts // (device.sms // 2)))
            while left > share and len(loads) + len(tree) < device.sms:
                left = -(-left // share)
                tree.append(left)
            stages += [Stage("combine", folds, "simt", "combine", n) for n in tree]
            blocks = ", then ".join(count(n, "block") for n in (*tree, 1))
            why = (f"one block takes {parts * one:,.0f} us for {count(parts, 'part')}, "
                   f"the other stages {rest:,.0f} us: it adds up {min(share, parts)} meanwhile")
            said.append(Decision(folds, blocks, "reduction-tree", why))
        stages.append(stage)
    found = assemble(pipeline.cut(graph), stages, pipeline.tile)
    loads, channels = workload(graph, found, device)
    dealt = balance(loads, device, channels).blocks
    stages = [s if s.joins else replace(s, blocks=min(dealt[s.name], found.tiles))
              for s in found.stages]
    return assemble(pipeline.cut(graph), stages, pipeline.tile, int(device.l2_size * QUEUED)), said


# ---------------------------------------------------------------- time and traffic of the whole
def pipeline_us(graph: Graph, pipeline: Pipeline, device: Device) -> float:
    """Modelled microseconds of the one kernel."""
    return dataflow(*workload(graph, pipeline, device), device).makespan_us


def pipeline_traffic(graph: Graph, pipeline: Pipeline, device: Device) -> Bytes:
    """Bytes of main memory. Inputs (or only the slices that are read) and outputs count once.

    Queues that do not fit into L2 are written once, and read by each consumer.
    """
    queues = [Channel(str(q.producer), tuple(map(str, q.consumers)), q.tile_bytes, q.depth)
              for q in pipeline.queues]
    read = sum(_read(graph, v) for v in graph.inputs)
    written = sum(graph[v].type.nbytes for v in graph.outputs)
    for i in in_dram(queues, device):
        nbytes = graph[pipeline.queues[i].node].type.nbytes
        read, written = read + nbytes * len(queues[i].consumers), written + nbytes
    return Bytes(read, written)


def _read(graph: Graph, value: int) -> int:
    """Bytes of an input that are read."""
    users, whole = [graph[u] for u in graph.users[value]], graph[value].type.nbytes
    parts = sum(u.type.nbytes for u in users)
    return min(whole, parts) if all(u.op == "slice" for u in users) else whole
