"""Merge kernels of a plan into fewer launches, if the model says that this is cheaper.

In:  kernels in order, or a whole plan, and ``Prices``. Out: as many kernels or fewer, in order.

The search is greedy. Each kernel is tried with up to ``LOOK_BACK`` kernels before it, nearest
first, and joins the first with which it is cheaper than alone. Loops stay as they are. Merging
saves launches and shared reads, and costs barriers and resident blocks. The loops cost the same
before and after, so no margin for the model's error is asked for.

Before:  {%3 by blocks} 12 us, {%9} 11 us, {%12 of %3} 11 us
After:   {%3 by blocks beside %9; barrier; %12} 16 us
"""

from collections import defaultdict
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace

from ...errors import KernelError, PlanError
from ...fuse import (
    MOST_ARGUMENTS,
    Decision,
    FusionPlan,
    Pattern,
    count,
    in_order,
    pattern_inputs,
    returned,
    verify_plan,
)
from ...graph import Graph
from ...stitch.body import extract
from ...stitch.compose import Merging
from ..prices import Prices

LOOK_BACK = 8  # earlier kernels that each kernel is tried with
MOST_NODES = 1000  # of a merged kernel; larger ones take long to build


def one_kernel(graph: Graph, parts: Sequence[Pattern], wanted: Set[int]) -> Pattern:
    """One pattern for several kernels of a plan.

    Each of ``parts`` stands after those that it reads. The pattern returns the outputs in
    ``wanted``, and those that no part reads. A value passed from part to part lies in scratch
    memory and is an argument, too. Raises PlanError if the kernel would have more than
    ``MOST_ARGUMENTS``.
    """
    passed = set().union(*(pattern_inputs(graph, p) for p in parts)) - wanted
    members = tuple(sorted(set().union(*(p.members for p in parts))))
    outputs = tuple(sorted(o for p in parts for o in p.outputs if o not in passed))
    whole = Pattern(members, outputs)
    if (arguments := len(pattern_inputs(graph, whole)) + sum(len(p.outputs) for p in parts)) > MOST_ARGUMENTS:
        raise PlanError(f"one kernel of {count(len(parts), 'part')} would have {arguments} arguments; at most {MOST_ARGUMENTS}")
    new = {of_graph: of_body for of_body, of_graph in enumerate(extract(graph, whole).origin)}

    def placed(part: Pattern) -> Pattern:
        origin = extract(graph, part).origin  # a kernel's composition names nodes of its own body
        members, outputs = (tuple(sorted(new[value] for value in ids)) for ids in (part.members, part.outputs))
        return Pattern(members, outputs, composition=part.composition.renumber(lambda node: new[origin[node]]))

    return replace(whole, composition=Merging(tuple(map(placed, parts))))


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
