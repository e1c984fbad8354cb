"""A pipeline on a CPU: its stages run tile by tile, so that what passes between them stays in a core's cache.

In:  the body of a pattern, its ``Pipeline``, a ``Device``. Out: a ``TileLoop``: a plan for one tile, one for the last tile if
that is smaller, one for what is made of folds after all tiles; and what they cost together.

A CPU has no idle units to fill, so nothing is gained by running stages at the same time; what is gained is the locality
that queues have on a GPU. A tile is a program like any other: AStitch plans its kernels, products are library calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..build import Prices
from ..cost import Bytes
from ..device import Device
from ..fuse import Body, FusionPlan, fuse
from ..graph import Graph
from .pipeline import Pipeline
from .tiles import Cut, after_tiles, at_tile


@dataclass(frozen=True)
class TileLoop:
    """What runs for each tile (``tile``), for a smaller last one (``rest``), and after them (``after``)."""

    body: Body
    pipeline: Pipeline
    tile: FusionPlan
    rest: FusionPlan | None
    after: FusionPlan | None

    @property
    def cut(self) -> Cut:
        return self.pipeline.cut(self.body.graph)

    @property
    def plans(self) -> tuple[FusionPlan, ...]:
        return tuple(plan for plan in (self.tile, self.rest, self.after) if plan)


def tile_loop(body: Body, pipeline: Pipeline, device: Device) -> TileLoop:
    """Plan a pipeline's tiles for a CPU."""
    found = pipeline.cut(body.graph)
    left = pipeline.units % pipeline.tile

    def plan(graph: Graph) -> FusionPlan:
        return fuse(graph, "astitch", device)

    return TileLoop(body, pipeline, plan(at_tile(found, pipeline.tile)), plan(at_tile(found, left)) if left else None,
                    plan(after_tiles(found)) if found.folded else None)


def loop_traffic(loop: TileLoop) -> Bytes:
    """What a pipeline moves to and from memory: its inputs and outputs, once; tiles of what lies between stay in the cache."""
    graph = loop.body.graph
    return Bytes(*(sum(graph[v].type.nbytes for v in set(values)) for values in (graph.inputs, graph.outputs)))


def loop_operations(loop: TileLoop) -> int:
    """Scalar operations of all tiles: of a product two for each element of an operand's row that meets a column."""
    graph = loop.body.graph
    return sum(2 * n.type.size * graph[n.args[0]].type.shape[-1] if n.op == "matmul" else n.type.size for n in graph.nodes)


def loop_us(loop: TileLoop, device: Device) -> float:
    """Modelled microseconds: every tile in cache, and main memory for what goes in and comes out."""
    whole, left = divmod(loop.pipeline.units, loop.pipeline.tile)
    total = whole * _plan_us(loop.tile, device) + (_plan_us(loop.rest, device) if loop.rest and left else 0.0)
    total += _plan_us(loop.after, device) if loop.after else 0.0
    return total + loop_traffic(loop).total / device.bandwidth * 1e6


def _plan_us(plan: FusionPlan, device: Device) -> float:
    return Prices(plan.graph, device).plan_us(plan)
