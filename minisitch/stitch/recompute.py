"""Which values of a kernel are computed once and kept, although they could be inlined.

In:  a kernel's body, the values that have loops, and which loop evaluates what. Out: more values to
give loops to.

A value without a loop is inlined where it is read, so every loop that reads it computes it again.
It is kept instead if several loops read it, and if one of these is true (FusionStitching 2018 B9,
"size requirement"; AStitch 2022, 4.4, operator-level reuse):

- it is *heavy*;
- it is computed from two or more full-size operands, and all loops that read it are in one segment.

Before:  loops %1 max, %5 sum and %7 output; %4 = exp(%0 - %1) is computed in those of %5 and of %7
After:   %4 has a loop, that of %5, from which %7 takes it
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from ..fuse import is_heavy
from ..graph import Graph
from .plan import StitchPlan

# its level, its tasks, its phase (``subroots.LoopKey``)
ReadingLoop = tuple[int, Hashable, int]


def worth_keeping(graph: Graph, looped: Collection[int], loops: Sequence[tuple[int, ReadingLoop]]) -> dict[int, int]:
    """Values that several loops need, and that cost more to recompute than to keep.

    Returns value -> first level. ``looped`` are the values that already have loops. ``loops`` are
    pairs of a value and the loop that evaluates it. Of a chain of such values only the last is
    kept: the one with a user that is a sub-root, or that other loops need.
    """
    needs = _needs(graph, looped, loops)
    heavy, operands = [False] * len(graph), [0] * len(graph)
    keep: dict[int, int] = {}
    for node in graph.nodes:
        if node.kind == "source" or node.id in looped:
            operands[node.id] = int(node.op == "input" or node.id in looped)
            continue
        full = [a for a in dict.fromkeys(node.args) if graph[a].type.size >= node.type.size]
        heavy[node.id] = any(heavy[a] for a in full) or is_heavy(graph, node)
        operands[node.id] = sum(operands[a] for a in full)
        places = needs[node.id]
        frontier = any(needs[u] != places or u in looped for u in graph.users[node.id])
        if node.kind != "map" or len(places) < 2 or not frontier:
            continue
        spread = len({(level, space) for level, space, _ in places}) > 1
        if heavy[node.id] or (operands[node.id] >= 2 and not spread):
            keep[node.id] = min(level for level, _, _ in places)
            heavy[node.id], operands[node.id] = False, 1
    return keep


def _needs(graph: Graph, looped: Collection[int], loops: Sequence[tuple[int, ReadingLoop]]) -> list[set[ReadingLoop]]:
    """For each value the loops that compute it. ``loops`` says where each computation starts."""
    own: list[set[ReadingLoop]] = [set() for _ in graph.nodes]
    for value, loop in loops:
        own[value].add(loop)
    found = [set(o) for o in own]
    for node in reversed(graph.nodes):
        for arg in node.args:
            found[arg] |= own[node.id] if node.id in looped else found[node.id]
    return found


def pays(plan: StitchPlan, value: int, barriers: bool) -> bool:
    """Whether keeping a value pays, once the loops of its readers are known.

    Not if no loop reads it. A light value must be read by the block that makes it. A heavy one may
    also travel through global memory, if grid barriers are allowed.
    """
    distances = [r.distance for r in plan.reads if r.value == value]
    return bool(distances) and ("grid" not in distances or (barriers and _is_costly(plan.graph, value, plan.final)))


def _is_costly(graph: Graph, value: int, stops: Collection[int]) -> bool:
    """True if computing ``value`` takes a heavy operation on at least as many elements.

    ``stops`` are values that are already there, and are not computed.
    """
    pending, seen = [value], {value}
    while pending:
        node = graph[pending.pop()]
        if node.kind == "map" and is_heavy(graph, node):
            return True
        fresh = [a for a in node.args if a not in stops and a not in seen and graph[a].type.size >= graph[value].type.size]
        seen.update(fresh)
        pending += fresh
    return False
