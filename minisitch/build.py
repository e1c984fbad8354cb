"""From a pattern's body to its kernel, whatever composition its strategy chose; and what that kernel would cost.

In:  a body (``fuse.extract``), a ``Device`` and a ``Composition``. Out: a ``StitchPlan``, a ``Kernel``, microseconds.

Strategies that weigh plans ask here: a pattern's price is the modelled time of the very kernel that
would run, not of a guess at it. Equal bodies are built once.
"""

from __future__ import annotations

import hashlib

from .blocks import arrange
from .cost import kernel_us, library_us
from .device import Device
from .errors import PlanError
from .fuse import ALL_INGREDIENTS, Composition, FusionPlan, Pattern, Stitching, extract
from .graph import Graph
from .kernel import Kernel
from .schedule import schedule
from .stitch import StitchPlan, stitch
from .triples import BlockComposition


def compose(graph: Graph, device: Device, composition: Composition = ALL_INGREDIENTS) -> StitchPlan:
    """Give each sink of a body its loop, in the way the composition asks for."""
    if isinstance(composition, Stitching):
        return stitch(graph, device, composition)
    if isinstance(composition, BlockComposition):
        return arrange(graph, device, composition)
    raise PlanError(f"nothing here builds a {type(composition).__name__}; known: Stitching, BlockComposition")


def digest(graph: Graph, composition: Composition = ALL_INGREDIENTS) -> str:
    """The name of a kernel's meaning: equal for structurally equal graphs composed alike (0.0 and -0.0 differ)."""
    return hashlib.sha256(repr((graph.structure, composition)).encode()).hexdigest()


class Prices:
    """Modelled microseconds of patterns of one graph on one device; each different kernel is built once.

    ``known``: prices of a graph that this one was cut out of; kernels that are built for one serve both.
    """

    def __init__(self, graph: Graph, device: Device, known: Prices | None = None) -> None:
        self.graph, self.device = graph, device
        self._kernels: dict[str, Kernel] = known._kernels if known else {}
        self._by_pattern: dict[Pattern, Kernel] = {}

    def kernel(self, pattern: Pattern) -> Kernel:
        """The kernel that would run for this pattern (its outputs must be set)."""
        if pattern not in self._by_pattern:
            body = extract(self.graph, pattern).graph
            key = digest(body, pattern.composition)
            if key not in self._kernels:
                self._kernels[key] = schedule(compose(body, self.device, pattern.composition))
            self._by_pattern[pattern] = self._kernels[key]
        return self._by_pattern[pattern]

    def pattern_us(self, pattern: Pattern) -> float:
        """Modelled microseconds of one launch or one library call."""
        if pattern.kind == "library":
            return library_us(self.graph, self.graph[pattern.members[0]], self.device)
        return kernel_us(self.kernel(pattern))

    def plan_us(self, plan: FusionPlan) -> float:
        """Modelled microseconds of all launches and calls, one after the other."""
        return sum(map(self.pattern_us, plan.patterns))
