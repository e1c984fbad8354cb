"""Block composition: a kernel's loops pass values through shared memory, and blocks never wait.

In:  a pattern's body, a ``Device`` and a ``BlockComposition``. Out: a ``StitchPlan``. Its tasks are
the blocks.

FusionStitching 2018 B5 and B10 (sections 4.2 and 5). A block owns one piece of every scheduled
value. It computes the piece from its own pieces of other values, or from global memory. So no block
waits for another.

Before:  %1 = max %0 axes=(1,)    %0 [8704,17], Triple(split_dim=0, sword=512) of the 8704 maxima
After:   phase 0: %1 max reduce over 512 rows x 17 cols x 17 serial    (a row is a block)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..device import Device
from ..errors import PlanError
from ..fuse import Decision, count
from ..graph import Graph, Node
from .block_cuts import BlockComposition, Triple, triples_of
from .dominants import is_row_reduce
from .index import Key, pull
from .mapping import WARP, ThreadMap
from .place import StitchPlan
from .subroots import Partition, Sink, Space, column_of, result_position


def arrange(graph: Graph, device: Device, composition: BlockComposition) -> StitchPlan:
    """Give each scheduled operation its loop.

    An operation that reads values of other threads of its block runs in a later phase than they do.
    Raises PlanError naming the value: if the schedules disagree on the blocks, if a block reads
    what another one makes, or if a value read in another loop is not kept. The strategy's
    consistency check avoids all three.
    """
    schedules = dict(composition.schedules)
    blocks = _same_blocks(graph, schedules)
    threads = min(composition.threads, device.max_block)
    mapping = ThreadMap(blocks, 0, blocks, threads, 1, threads, 1, 1, 0, "block-composition",
                        f"{count(blocks, 'block')} of {count(threads, 'thread')}, each with its piece of every value")
    made: dict[int, Sink] = {}
    regional: set[int] = set()
    decisions = []
    for value, triple in sorted(schedules.items()):
        sink = _sink(graph, graph[value], triple, Space("block", blocks), mapping)
        phase = 0
        for key in _reads(graph, sink, schedules):
            producer = made[key[0]]
            apart = _apart(graph, sink, producer, key, composition)
            phase = max(phase, producer.phase + apart)
            regional |= {producer.node} if apart else set()
        made[value] = replace(sink, phase=phase)
        each = {"row": "all threads fold it", "warp": "a warp folds each"}.get(sink.along, "a thread makes each")
        why = f"{triple.kind}, axis {triple.split_dim} in {triple.sword}: each of {count(blocks, 'block')} owns " \
              f"{count(graph[value].type.size // blocks, 'element')}; {each}"
        decisions.append(Decision((value,), "map", "block-composition", why))
    sinks = tuple(replace(s, scheme="regional", why="produced and read by the same block") if s.node in regional else s
                  for s in made.values())
    return StitchPlan(graph, device, composition, (), sinks, tuple(decisions))


def _same_blocks(graph: Graph, schedules: Mapping[int, Triple]) -> int:
    """The number of blocks that all schedules agree on.

    Raises PlanError if they disagree, if a reduce or an output has no schedule, or if a triple does
    not fit its value's shape.
    """
    for node in graph.nodes:
        if node.id not in schedules and (node.kind == "reduce" or node.id in graph.outputs):
            raise PlanError(f"%{node.id} {node.op} has no schedule; a block composition schedules every reduce and output")
    counts: dict[int, int] = {}
    for value, triple in schedules.items():
        shape = graph[value].type.shape
        if triple not in triples_of(shape) or 0 in shape:
            raise PlanError(f"{triple} does not cut %{value} {graph[value].op} of shape {shape}; split_dim names an axis, "
                            "sword divides it, kind is row or column, and nothing is empty")
        counts[triple.blocks(shape)] = value
    if len(counts) != 1:
        found = ", ".join(f"{blocks} for %{value}" for blocks, value in sorted(counts.items())) or "none"
        raise PlanError(f"the schedules of a kernel must agree on the number of blocks; here: {found}; give all triples one")
    return next(iter(counts))


def _sink(graph: Graph, node: Node, triple: Triple, space: Space, mapping: ThreadMap) -> Sink:
    """The loop of one operation: its block's piece as columns, reduced axes inside a thread.

    If the piece is a single result, all threads share its fold. If the reduced rows are contiguous
    and at least a warp long, a warp takes each result.
    """
    axes, d = tuple(range(node.type.rank)), triple.split_dim
    before, split, after = axes[:d], axes[d:d + 1], axes[d + 1:]
    rows, cols = (before + split, split + after) if triple.kind == "row" else (split + after, before + split)
    if node.kind != "reduce":
        partition = Partition(rows, (), cols, triple.sword)
        return Sink(node.id, "map", node.type.shape, partition, space, 0, 0, partition.position(node.type.shape), mapping)
    domain, reduced = graph[node.args[0]].type.shape, node.attr("axes")
    axis_of = axes if node.attr("keepdims") else [a for a in range(len(domain)) if a not in reduced]
    rows, cols = (tuple(axis_of[a] for a in axes if axis_of[a] not in reduced) for axes in (rows, cols))
    partition = Partition(rows, reduced, cols, triple.sword)
    _, serial, owned = partition.extents(domain)
    if owned == 1:
        partition = Partition(rows, (), cols + reduced, triple.sword)
    warps = owned > 1 and serial >= WARP <= mapping.threads and is_row_reduce(graph, node)
    return Sink(node.id, "reduce", domain, partition, space, 0, 0, result_position(node, partition.position(domain)), mapping,
                warps=warps)


def _reads(graph: Graph, sink: Sink, schedules: Mapping[int, Triple]) -> Sequence[Key]:
    """The scheduled values read in a sub-root's loop, each with the position it is read at."""
    node = graph[sink.node]
    root = (node.args[0] if sink.role == "reduce" else node.id, sink.partition.position(sink.domain))
    found = pull(graph, [root], frozenset(schedules), own=[root] if sink.role == "map" else [])
    return [key for key in found.leaves if key[0] in schedules]


def _apart(graph: Graph, sink: Sink, producer: Sink, key: Key, composition: BlockComposition) -> bool:
    """Whether a value is read in a later phase than the one that makes it.

    False if the thread that makes an element also reads it, in the same loop. Raises PlanError if
    the reader's block does not own the element, or does not keep it.
    """
    value, at = key
    names = f"%{sink.node} {graph[sink.node].op} reads %{value} {graph[value].op}"
    if column_of(producer, at) is None:
        raise PlanError(f"{names}, of which its block does not own all it needs; their schedules must propagate into each other")
    if producer.role == "map" and producer.extents == sink.extents and producer.home == at:
        return False
    if value not in composition.shared and value not in graph.outputs and producer.along != "row":
        raise PlanError(f"{names} in a loop of its own, but the composition does not keep it: name it in shared")
    return True
