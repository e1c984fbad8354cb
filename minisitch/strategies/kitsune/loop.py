"""A pipeline on a CPU: stages run tile by tile, so that values between them stay in cache.

In:  the body of a pattern, its ``Pipeline``, a ``Device``. Out: a ``TileLoop`` with the plans of
each round, and its cost. A round has a plan for one tile, one for a smaller last tile, and one for
what follows the last tile.

A CPU has no idle units, so stages do not run at the same time. The gain is locality, which queues
give on a GPU. A tile is an ordinary program: AStitch plans its kernels, products are library calls.
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
    """The plans of a round: for each tile, for a smaller last one, and after the last."""

    values: Round
    tile: FusionPlan
    rest: FusionPlan | None
    after: FusionPlan | None


@dataclass(frozen=True)
class TileLoop:
    """All rounds of tiles. A value that a later round reads is an array in memory."""

    body: Body
    pipeline: Pipeline
    rounds: tuple[RoundPlans, ...]

    @property
    def cut(self) -> Tiling:
        return self.pipeline.cut(self.body.graph)


def tile_loop(body: Body, pipeline: Pipeline, device: Device) -> TileLoop:
    """Plan the tiles of a pipeline for a CPU."""
    found = pipeline.cut(body.graph)
    left = pipeline.units % pipeline.tile

    def plan(graph: Graph) -> FusionPlan:
        return fuse(graph, "astitch", device)

    made = (RoundPlans(r, plan(at_tile(found, pipeline.tile, r)), plan(at_tile(found, left, r)) if left else None,
                       plan(after_tiles(found, r)) if r.after_made else None) for r in rounds_of(found, pipeline.held))
    return TileLoop(body, pipeline, tuple(made))


def loop_traffic(loop: TileLoop) -> Bytes:
    """Bytes to and from memory: inputs and outputs once, values held for a later round both ways.

    Tiles of other values stay in cache.
    """
    graph, held = loop.body.graph, loop.pipeline.held
    inputs = [n for each in loop.rounds for n in graph.inputs if n in _arguments(graph, each)]
    return Bytes(*(sum(graph[v].type.nbytes for v in values) for values in ((*inputs, *held), {*graph.outputs, *held})))


def _arguments(graph: Graph, each: RoundPlans) -> set[int]:
    """The graph's inputs that a round reads."""
    read = {a for n in each.tile.graph.nodes for a in n.args}
    return {i for k, i in enumerate(graph.inputs) if each.tile.graph.inputs[k] in read}


def loop_operations(loop: TileLoop) -> int:
    """Scalar operations of all tiles.

    An element-wise result counts 1, an operand element of a reduction 1, and an element of a
    product 2 x inner.
    """
    graph = loop.body.graph
    return sum(_operations(graph, node) for node in graph.nodes if node.kind != "source" and node.op not in FREE)


def _operations(graph: Graph, node: Node) -> int:
    if node.op == "matmul":
        return 2 * node.type.size * graph[node.args[0]].type.shape[-1]
    return graph[node.args[0]].type.size if node.kind == "reduce" else node.type.size


def loop_us(loop: TileLoop, device: Device) -> float:
    """Modelled microseconds: tiles in cache, inputs and outputs in memory (stores count twice)."""
    whole, total = loop.pipeline.units // loop.pipeline.tile, 0.0
    for each in loop.rounds:
        total += whole * _part_us(each.tile, device) + sum(_part_us(plan, device) for plan in (each.rest, each.after) if plan)
    moved = loop_traffic(loop)
    return total + (moved.total + moved.written) / device.bandwidth * 1e6


def _part_us(plan: FusionPlan, device: Device) -> float:
    return Prices(plan.graph, device).plan_us(plan)
