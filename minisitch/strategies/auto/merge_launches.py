"""Which kernels of a plan are restitched: one launch instead of several, where that is modelled cheaper.

In:  kernels in order, or a whole plan, and ``Prices``. Out: as many kernels or fewer, in order.

Greedy: each kernel is tried with the eight before it (``LOOK_BACK``), the last first, and stays with the first with which it is
cheaper than alone. Loops stay as they are, so nothing but the launch and what both read is weighed against barriers and room for
blocks; that is why no margin is asked for, as it is where one way to compute a kernel takes the place of another.

Before:  {%3 by blocks} 12 us, {%9} 11 us, {%12 of %3} 11 us      After:  {%3 by blocks beside %9; barrier; %12} 16 us
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

LOOK_BACK = 8  # kernels before one that it is tried with
MOST_NODES = 1000  # of a kernel that is tried at all: larger ones take long to build


def restitched(kernels: Sequence[Pattern], outside: Set[int], prices: Prices) -> tuple[Pattern, ...]:
    """The kernels in fewer launches. ``outside``: values that others read, or the caller gets.

    A launch that cannot be built, or that would wait for itself, is none.
    """
    graph = prices.graph
    parts = {kernel: [kernel] for kernel in kernels}  # of each launch
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


def restitched_plan(plan: FusionPlan, prices: Prices) -> FusionPlan:
    """The plan with kernels that have equally many library calls before them in fewer launches; no such kernels wait for each other
    through a call."""
    graph = plan.graph
    depth: dict[int, int] = {}  # library calls on the longest way to a value in memory
    levels: dict[int, list[Pattern]] = defaultdict(list)
    readers: dict[int, set[int]] = defaultdict(set)  # levels whose kernels read a value; -1: others do
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
        patterns += restitched(kernels, {o for p in kernels for o in p.outputs} - passed, prices)
    if len(patterns) == len(plan.patterns):
        return plan
    fewer = verify_plan(replace(plan, patterns=in_order(graph, patterns)))
    us, before = (sum(map(prices.pattern_us, p.kernels)) for p in (fewer, plan))
    why = f"{count(len(fewer.kernels), 'kernel')} instead of {len(plan.kernels)}: {us:.4g} us in them instead of {before:.4g}"
    return replace(fewer, decisions=(*plan.decisions, Decision(graph.outputs, "fuse", "restitched", why)))
