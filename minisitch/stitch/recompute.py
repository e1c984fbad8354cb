"""Which values of a kernel are computed once and kept, although they could be inlined.

In:  a plan of the kernel. Out: more values to give loops to.

A value without a loop is inlined where it is read, so every loop that reads it computes it again.
It is kept instead if several loops read it, and if one of these is true (FusionStitching 2018 B9,
"size requirement"; AStitch 2022, 4.4, operator-level reuse):

- it is *heavy*;
- it is computed from two or more full-size operands, and all loops that read it are in one segment.

Before:  loops %1 max, %5 sum and %7 output; %4 = exp(%0 - %1) is computed in those of %5 and of %7
After:   the loop of %5 also stores %4, and the loop of %7 loads it
"""

from typing import NamedTuple

from ..fuse import is_heavy
from .plan import StitchPlan
from .subroots import SegmentKey

SegmentPhase = tuple[SegmentKey, int]


class KeptValue(NamedTuple):
    """A value that is kept: the first level that needs it, and whether it is heavy."""

    level: int
    heavy: bool


def worth_keeping(plan: StitchPlan) -> dict[int, KeptValue]:
    """Values that several loops need, and that cost more to recompute than to keep.

    Of a chain of such values only the last is kept. A value is the last if one of its users has a
    loop of its own, or if a user is computed in other loops than the value.
    """
    graph, looped = plan.graph, plan.final
    needs = _needs(plan)
    heavy = [False] * len(graph)
    operands = [0] * len(graph)
    keep: dict[int, KeptValue] = {}
    for value, node in enumerate(graph.nodes):
        if node.kind == "source" or value in looped:
            operands[value] = int(node.op == "input" or value in looped)
            continue
        full = {a for a in node.args
                if graph[a].type.size >= node.type.size}
        heavy[value] = is_heavy(graph, node) or any(heavy[a] for a in full)
        operands[value] = sum(operands[a] for a in full)
        places = needs[value]
        last = any(needs[u] != places or u in looped
                   for u in graph.users[value])
        if node.kind != "map" or len(places) < 2 or not last:
            continue
        levels = [level for (level, _), _ in places]
        one_segment = len({segment for segment, _ in places}) == 1
        if heavy[value] or (operands[value] >= 2 and one_segment):
            keep[value] = KeptValue(min(levels), heavy[value])
            heavy[value] = False
            operands[value] = 1
    return keep


def _needs(plan: StitchPlan) -> list[set[SegmentPhase]]:
    """For each value the phases of the loops that compute it."""
    found: list[set[SegmentPhase]] = [set() for _ in plan.graph.nodes]
    for s in plan.sub_roots:
        # a combine computes nothing, and a value with a loop of its own is computed there
        if s.role == "map" or (s.role != "combine"
                               and s.operand not in plan.final):
            found[s.operand].add((s.segment, s.phase))
    for node in reversed(plan.graph.nodes):
        for arg in node.args:
            if arg not in plan.final:
                found[arg] |= found[node.id]
    return found


def pays(plan: StitchPlan, value: int, may_travel: bool) -> bool:
    """Whether keeping a value pays, once the loops of its readers are known.

    Not if no loop reads it. The block that makes it must read it, unless it ``may_travel`` through
    global memory.
    """
    distances = {r.distance for r in plan.reads if r.value == value}
    return bool(distances) and (may_travel or "grid" not in distances)
