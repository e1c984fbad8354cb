"""``fs18``: whole subgraphs between library calls, met in shared memory (FusionStitching 2018, arXiv 1811.05213).

Each operation of a kernel may have a loop of its own; loops of one block meet in shared memory (*block composition*).
So a reduce no longer ends a kernel; what does is that no schedule cuts all operations into blocks that need
nothing of each other. ``spans`` layers the operations, ``layers`` fuses them, ``fusion`` keeps the satisfiable
schedules, ``tuning`` takes the cheapest by the prices of ``library``, ``shared`` plans what blocks keep.

Before:  softmax: max, broadcast, sub, exp, sum, broadcast, div     After:  1 kernel, exp evaluated once

``fs18-dot`` also takes small batched products into kernels (the paper leaves that to the user).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...build import digest
from ...device import Device
from ...fuse import Decision, FusionPlan, Pattern, Stitching, extract, make_plan, strategy
from ...graph import Graph
from ...triples import BlockComposition
from ..astitch import levels
from . import library
from .compose import ROWS, THREAD, Composed, compose_kernel, settle
from .dots import take_apart
from .fusion import Fusion, Limits
from .layers import Sweeper
from .reads import Reads

__all__ = ["ROWS", "THREAD", "fs18", "fs18_dot", "plan", "slabs"]


@strategy("fs18")
def fs18(graph: Graph, device: Device) -> FusionPlan:
    """One slab after the other; matrix products are library calls."""
    return plan(graph, "fs18", Limits(device))


@strategy("fs18-dot")
def fs18_dot(graph: Graph, device: Device) -> FusionPlan:
    """The same, with small batched products inside kernels."""
    apart = take_apart(graph, Limits(device))
    return plan(apart.graph, "fs18-dot", Limits(device, products=apart.products), apart.decisions)


def plan(graph: Graph, name: str, limits: Limits, decisions: Iterable[Decision] = ()) -> FusionPlan:
    """Fuse each slab, then give every kernel its composition."""
    reads = Reads(graph)
    found = list(decisions)
    fusions: list[Fusion] = []
    for operations in slabs(graph, reads):
        slab = Sweeper(reads, operations, limits).run()
        fusions += slab.kernels
        found += slab.decisions
    found += [Decision((n.id,), "keep apart", "library-call", f"{n.op} is a call between kernels")
              for n in graph.nodes if n.kind == "library"]
    drawn = make_plan(graph, name, [sorted(f.members) for f in fusions], (), THREAD)
    owner = {output: fusion for fusion in fusions for output in fusion.outputs}
    composed: dict[str, BlockComposition | Stitching] = {}
    patterns = []
    for pattern in drawn.patterns:
        if pattern.kind == "kernel" and pattern.outputs[0] in owner:
            pattern = _with_composition(graph, pattern, owner[pattern.outputs[0]], composed, found)
        patterns.append(pattern)
    library.save()
    return replace(drawn, patterns=tuple(patterns), decisions=tuple(found))


def slabs(graph: Graph, reads: Reads) -> list[list[int]]:
    """Operations with equally many library calls before them, in execution order: nothing is fused across a call.

    The paper cuts at layers that hold a library call; counting the calls draws the same line through
    branches of unequal length, and no path leaves a slab and comes back.
    """
    level = levels(graph)
    found: dict[int, list[int]] = {}
    for op in reads.operations:
        found.setdefault(level[op], []).append(op)
    return [ops for _, ops in sorted(found.items())]


def _with_composition(graph: Graph, pattern: Pattern, fusion: Fusion, known: dict[str, BlockComposition | Stitching],
                      decisions: list[Decision]) -> Pattern:
    """Equal bodies are tuned once, so they compose alike."""
    body = extract(graph, pattern)
    key = digest(body.graph)
    if key not in known:
        made = compose_kernel(fusion)
        decisions += made.decisions
        number = {whole: i for i, whole in enumerate(body.origin)}
        known[key] = THREAD
        if made.schedules:
            known[key], rule, why = settle(body.graph, fusion.limits.device, _in_body(made, number))
            if rule:
                decisions.append(Decision((fusion.roots[0],), "compose", rule, body.in_whole(why)))
    return replace(pattern, composition=known[key])


def _in_body(made: Composed, number: dict[int, int]) -> BlockComposition:
    """A kernel's composition with the ids of its body."""
    return BlockComposition(tuple((number[v], triple) for v, triple in made.schedules),
                            tuple(number[v] for v in made.shared.values), made.threads)
