"""A pipeline on a CPU: its stages run tile by tile, so that what passes between them stays in a core's cache.

In:  the body of a pattern, its ``Pipeline``, a ``Device``. Out: a ``TileLoop``: for each round a plan for one tile, one for the
last tile if that is smaller, one for what is made of folds after all tiles; and what they cost together.

A CPU has no idle units to fill, so nothing is gained by running stages at the same time; what is gained is the locality
that queues have on a GPU. A tile is a program like any other: AStitch plans its kernels, products are library calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...device import Device
from ...fuse import FREE, Body, FusionPlan, fuse
from ...graph import Graph, Node
from ..cost import Bytes
from ..prices import Prices
from .pipeline import Pipeline
from .tiles import Round, Tiling, after_tiles, at_tile, rounds_of


@dataclass(frozen=True)
class RoundPlans:
    """What runs for each tile of a round (``tile``), for a smaller last one (``rest``), and after them (``after``)."""

    values: Round
    tile: FusionPlan
    rest: FusionPlan | None
    after: FusionPlan | None


@dataclass(frozen=True)
class TileLoop:
    """All tiles, round after round; a value that a later round reads is an array in memory."""

    body: Body
    pipeline: Pipeline
    rounds: tuple[RoundPlans, ...]

    @property
    def cut(self) -> Tiling:
        return self.pipeline.cut(self.body.graph)


def tile_loop(body: Body, pipeline: Pipeline, device: Device) -> TileLoop:
    """Plan a pipeline's tiles for a CPU."""
    found = pipeline.cut(body.graph)
    left = pipeline.units % pipeline.tile

    def plan(graph: Graph) -> FusionPlan:
        return fuse(graph, "astitch", device)

    made = (RoundPlans(r, plan(at_tile(found, pipeline.tile, r)), plan(at_tile(found, left, r)) if left else None,
                       plan(after_tiles(found, r)) if r.after_made else None) for r in rounds_of(found, pipeline.held))
    return TileLoop(body, pipeline, tuple(made))


def loop_traffic(loop: TileLoop) -> Bytes:
    """What a pipeline moves to and from memory: its inputs and outputs, once, and what it holds for a later round both ways;
    tiles of what lies between stay in the cache."""
    graph, held = loop.body.graph, loop.pipeline.held
    inputs = [n for each in loop.rounds for n in graph.inputs if n in _arguments(graph, each)]
    return Bytes(*(sum(graph[v].type.nbytes for v in values) for values in ((*inputs, *held), {*graph.outputs, *held})))


def _arguments(graph: Graph, each: RoundPlans) -> set[int]:
    """The graph's inputs that a round reads."""
    read = {a for n in each.tile.graph.nodes for a in n.args}
    return {i for k, i in enumerate(graph.inputs) if each.tile.graph.inputs[k] in read}


def loop_operations(loop: TileLoop) -> int:
    """Scalar operations of all tiles: one for each element that is computed, or that a reduction takes in; of a product two for
    each pair of elements that meet, which is 2 x inner for each element of the result."""
    graph = loop.body.graph
    return sum(_operations(graph, node) for node in graph.nodes if node.kind != "source" and node.op not in FREE)


def _operations(graph: Graph, node: Node) -> int:
    if node.op == "matmul":
        return 2 * node.type.size * graph[node.args[0]].type.shape[-1]
    return graph[node.args[0]].type.size if node.kind == "reduce" else node.type.size


def loop_us(loop: TileLoop, device: Device) -> float:
    """Modelled microseconds: every tile in cache, and main memory for what goes in and comes out, which is fetched before it is
    stored to."""
    whole, total = loop.pipeline.units // loop.pipeline.tile, 0.0
    for each in loop.rounds:
        total += whole * _part_us(each.tile, device) + sum(_part_us(plan, device) for plan in (each.rest, each.after) if plan)
    moved = loop_traffic(loop)
    return total + (moved.total + moved.written) / device.bandwidth * 1e6


def _part_us(plan: FusionPlan, device: Device) -> float:
    return Prices(plan.graph, device).plan_us(plan)
