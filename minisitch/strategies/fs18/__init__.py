"""``fs18``: fuse operations between library calls by *block composition* (FusionStitching 2018).

The paper is arXiv 1811.05213. Each operation of a kernel may have a loop of its own, and the loops
of a block exchange values through shared memory. So a reduce no longer ends a kernel. A kernel ends
if no schedule cuts all its operations into independent blocks.

The files: ``spans`` puts the operations into layers. ``layers`` fuses them. ``fusion`` keeps the
satisfiable schedules: ``reads`` finds which blocks of a value are read, and ``block_cuts`` makes
the cut of an operand from that of a result. ``compose`` takes the cheapest schedule by the prices
of ``library``, and fits the shared memory. ``dots`` takes products apart, for ``fs18-dot``.

Before:  softmax: max, broadcast, sub, exp, sum, broadcast, div
After:   1 kernel, exp evaluated once

``fs18-dot`` also puts small batched products into kernels. The paper leaves that to the user.
"""

from collections.abc import Iterable
from dataclasses import replace

from ...device import Device
from ...fuse import Decision, FusionPlan, make_plan, strategy
from ...graph import Graph
from ...stitch.windows import body_of
from ..astitch import call_depths
from .compose import THREAD, compose_kernel
from .dots import take_apart
from .fusion import Fusion, Limits
from .layers import Sweeper
from .reads import OperandReads


@strategy("fs18")
def fs18(graph: Graph, device: Device) -> FusionPlan:
    """Fuse between library calls. Matrix products are library calls."""
    return plan(graph, "fs18", Limits(device))


@strategy("fs18-dot")
def fs18_dot(graph: Graph, device: Device) -> FusionPlan:
    """The same, with small batched products inside kernels."""
    apart, products, decisions = take_apart(graph, Limits(device))
    return plan(apart, "fs18-dot", Limits(device, products=products), decisions)


def plan(graph: Graph, name: str, limits: Limits, decisions: Iterable[Decision] = ()) -> FusionPlan:
    """Fuse each part between library calls, then compose each kernel."""
    reads = OperandReads(graph)
    found = list(decisions)
    fusions: list[Fusion] = []
    for operations in slabs(graph, reads):
        sweeper = Sweeper(reads, operations, limits)
        fusions += sweeper.run()
        found += sweeper.decisions.values()
    found += [Decision((n.id,), "keep apart", "library-call",
                       f"{n.op} to {n.type} is a call between kernels")
              for n in graph.nodes if n.kind == "library"]
    drawn = make_plan(graph, name, [sorted(f.members) for f in fusions], (), THREAD)
    owner = {output: fusion for fusion in fusions for output in fusion.outputs}
    patterns = []
    for pattern in drawn.patterns:
        if pattern.outputs[0] in owner:
            composition, why = compose_kernel(owner[pattern.outputs[0]], body_of(graph, pattern))
            found += why
            pattern = replace(pattern, composition=composition)
        patterns.append(pattern)
    return replace(drawn, patterns=tuple(patterns), decisions=tuple(found))


def slabs(graph: Graph, reads: OperandReads) -> list[list[int]]:
    """Operations with equally many library calls before them, in execution order.

    The paper cuts at layers that hold a library call. Counting calls cuts at the same places, also
    with branches of unequal length. No path leaves such a part and returns.
    """
    depth = call_depths(graph)
    found: dict[int, list[int]] = {}
    for op in reads.operations:
        found.setdefault(depth[op], []).append(op)
    return [ops for _, ops in sorted(found.items())]
