"""AStitch's ingredients, one after another: what each of them gains (AStitch 2022, section 6.4).

In:  a graph and a ``Device``. Out: a plan for each step of the series.
"""

from dataclasses import replace

from ..device import Device
from ..fuse import ALL_INGREDIENTS, FusionPlan, Stitching
from ..graph import Graph
from .ask import fuse, within_arguments
from .astitch import stitched


def ablation(graph: Graph, device: Device) -> dict[str, FusionPlan]:
    """Plans with one more ingredient each, to measure what it gains (AStitch 2022, section 6.4).

    First XLA's kernels with XLA's mapping, then with adaptive mapping. Then one stitched kernel for
    each call depth, in which every dominant keeps its own group. Last with merged dominants, which
    is ``astitch`` where nothing is recomputed.
    """
    cut, whole = fuse(graph, "xla", device), within_arguments(stitched(graph))
    return {"xla": cut, "+ adaptive mapping": _composed(cut, ALL_INGREDIENTS),
            "+ stitching": _composed(whole, Stitching(merge=False)), "+ dominant merging": whole}


def _composed(plan: FusionPlan, stitching: Stitching) -> FusionPlan:
    """The same kernels with another composition."""
    return replace(plan, patterns=tuple(replace(p, composition=stitching) if p.kind == "kernel" else p for p in plan.patterns))
