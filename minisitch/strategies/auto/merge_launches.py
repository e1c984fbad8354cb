"""Merge kernels of a plan into fewer launches, if the model says that this is cheaper.

In:  kernels in order, or a whole plan, and ``Prices``. Out: as many kernels or fewer, in order.

The search is greedy. Each kernel is tried with up to ``LOOK_BACK`` kernels before it, nearest
first, and joins the first with which it is cheaper than alone. Loops stay as they are. Merging
saves launches and shared reads, and costs barriers and resident blocks. The loops cost the same
before and after, so no margin for the model's error is asked for.

Before:  {%3 by blocks} 12 us, {%9} 11 us, {%12 of %3} 11 us
After:   {%3 by blocks beside %9; barrier; %12} 16 us
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace

from ...errors import KernelError, PlanError
from ...fuse import Decision, FusionPlan, Pattern, count, in_order, pattern_inputs, returned, verify_plan
from ...stitch.merge import one_kernel
from ..prices import Prices

LOOK_BACK = 8  # earlier kernels that each kernel is tried with
MOST_NODES = 1000  # of a merged kernel; larger ones take long to build


def merged(kernels: Sequence[Pattern], outside: Set[int], prices: Prices) -> tuple[Pattern, ...]:
    """The kernels in fewer launches. ``outside``: values that something else reads or returns.

    Kernels are not merged if the merged kernel cannot be built, or if a value would leave it and
    come back.
    """
    graph = prices.graph
    parts = {kernel: [kernel] for kernel in kernels}  # launch -> kernels in it
    reads = {kernel: set(pattern_inputs(graph, kernel)) for kernel in kernels}
    found: list[Pattern] = []
    for k, kernel in enumerate(kernels):
        found.append(kernel)
        for other in reversed(found[-1 - LOOK_BACK:-1]):
            if len(other.members) + len(kernel.members) > MOST_NODES:
                continue
            rest = [p for p in (*found[:-1], *kernels[k + 1:]) if p is not other]
            with suppress(PlanError, KernelError):
                both = [*parts[other], kernel]
                together = one_kernel(graph, both, set(outside).union(*(reads[p] for p in rest)))
                in_order(graph, [*rest, together])
                if prices.pattern_us(together) < prices.pattern_us(other) + prices.pattern_us(kernel):
                    parts[together], reads[together] = both, set(pattern_inputs(graph, together))
                    found = [*(p for p in found[:-1] if p is not other), together]
                    break
    return in_order(graph, found)


def merged_plan(plan: FusionPlan, prices: Prices) -> FusionPlan:
    """The plan with kernels merged that have equally many library calls before them.

    No path between two such kernels passes a library call.
    """
    graph = plan.graph
    depth: dict[int, int] = {}  # value in memory -> library calls on the longest path to it
    levels: dict[int, list[Pattern]] = defaultdict(list)
    readers: dict[int, set[int]] = defaultdict(set)  # value -> levels that read it (-1: a call)
    for pattern in plan.patterns:
        reads = pattern_inputs(graph, pattern)
        level = max((depth[v] for v in reads if v in depth), default=0)
        calls = pattern.kind != "kernel"
        if not calls:
            levels[level].append(pattern)
        for value in reads:
            readers[value].add(-1 if calls else level)
        depth |= dict.fromkeys(pattern.outputs, level + calls)
    patterns = [p for p in plan.patterns if p.kind != "kernel"]
    for level, kernels in levels.items():
        passed = {o for p in kernels for o in p.outputs if not readers[o] - {level}} - returned(graph)
        patterns += merged(kernels, {o for p in kernels for o in p.outputs} - passed, prices)
    if len(patterns) == len(plan.patterns):
        return plan
    fewer = verify_plan(replace(plan, patterns=in_order(graph, patterns)))
    us, before = (sum(map(prices.pattern_us, p.kernels)) for p in (fewer, plan))
    why = f"{count(len(fewer.kernels), 'kernel')} instead of {len(plan.kernels)}: {us:.4g} us in them instead of {before:.4g}"
    return replace(fewer, decisions=(*plan.decisions, Decision(graph.outputs, "fuse", "merged", why)))
