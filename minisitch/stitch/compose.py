"""From a pattern's body to its ``StitchPlan``, by the pattern's composition.

In:  a body (``fuse.extract``), a ``Device`` and a ``Composition``. Out: a ``StitchPlan``.
"""

from __future__ import annotations

from ..device import Device
from ..errors import PlanError
from ..fuse import ALL_INGREDIENTS, Composition, Stitching
from ..graph import Graph
from .blocks import BlockComposition, arrange
from .loops import stitch
from .merge import Merging, merge
from .plan import StitchPlan


def compose(graph: Graph, device: Device, composition: Composition = ALL_INGREDIENTS) -> StitchPlan:
    """Give each sub-root of a body its loop, as the composition asks.

    Raises PlanError for a composition of an unknown class, and where ``stitch``, ``arrange`` or
    ``merge`` does.
    """
    if isinstance(composition, Stitching):
        return stitch(graph, device, composition)
    if isinstance(composition, BlockComposition):
        return arrange(graph, device, composition)
    if isinstance(composition, Merging):
        return merge(graph, device, composition, compose)
    raise PlanError(f"unknown composition {type(composition).__name__}; known: Stitching, BlockComposition, Merging")
