"""``xla``: thread composition only, the baseline of the papers.

A kernel is one loop over its output, and inlines the operations that lead to it. Each thread
computes what it needs, and reads only its own values (FusionStitching 2020, section 2; AStitch
2022, section 2.3). So a kernel ends at a reduce. It also ends at a heavy element-wise value that is
broadcast, because inlining would evaluate the value once for each copy of an element.

Only a value that ends a kernel is written to memory. ``fs20`` relies on this: an edge of its graph
is a value of one kernel that others read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..device import Device
from ..fuse import (
    FREE,
    MOST_ARGUMENTS,
    Decision,
    FusionPlan,
    Stitching,
    behind_views,
    is_fusible,
    is_heavy,
    make_plan,
    stored_values,
    strategy,
    stretches,
)
from ..graph import Graph, Node
from ..stitch.dominants import many_positions

MOST_RECOMPUTED = 8  # light operations that a second kernel may evaluate again


@strategy("xla")
def xla(graph: Graph, device: Device) -> FusionPlan:
    """Fuse every producer into all of its consumers, unless a rule cuts there.

    Before:  %1 = max %0; %2 = %0 - %1; %3 = exp %2; %4 = sum %3; %5 = %3 / %4
    After:   kernel 0: %1   kernel 1: %2 %3   kernel 2: %4   kernel 3: %5
    """
    in_memory = stored_values(graph)
    viewed: set[int] = set()  # other kernels read these through a view that ends a kernel
    chain = _chain_lengths(graph)
    cuts: dict[int, tuple[str, str]] = {}  # value that ends a kernel -> rule, reason
    kernels: list[frozenset[int]] = [frozenset()] * len(graph)
    for node in reversed(graph.nodes):
        if is_fusible(node):
            landing = _landing(graph, node, kernels)
            free = node.op in FREE and node.id not in in_memory
            rule = "" if free else _why_cut(graph, node, landing, in_memory, chain[node.id])
            if node.op in FREE and rule and landing:
                viewed.add(behind_views(graph, node.id))
            elif not rule and node.id in viewed:
                rule = "read-through-view"  # each kernel computes the views that it reads
            if rule:
                cuts[node.id] = rule, _SENTENCES[rule].format(node.op, len(landing))
            kernels[node.id] = frozenset((node.id,)) if rule else landing
    for value, why in many_positions(graph, cuts).items():
        source = behind_views(graph, value)
        # A library's result is in memory already.
        if cut := next((v for v in (source, value) if is_fusible(graph[v])), None):
            cuts.setdefault(cut, ("many-positions", why))
    for crowded in _too_many_arguments(graph, cuts.keys()):
        why = f"the kernel that reads %{crowded} would have more than {MOST_ARGUMENTS} arguments"
        cuts.setdefault(crowded, ("argument-limit", why))
    members, decisions = _members(graph, cuts), _decisions(graph, cuts)
    return make_plan(graph, "xla", members, decisions, Stitching(adaptive=False))


def _landing(graph: Graph, node: Node, kernels: Sequence[frozenset[int]]) -> frozenset[int]:
    """The last values of all kernels that evaluate this one. ``kernels`` holds later values'."""
    return frozenset().union(*(kernels[u] for u in graph.users[node.id]))


def _decisions(graph: Graph, cuts: Mapping[int, tuple[str, str]]) -> list[Decision]:
    """For each value, why it ends a kernel, or which kernels it is inlined into."""
    found: list[Decision] = []
    kernels: list[frozenset[int]] = [frozenset()] * len(graph)
    for node in filter(is_fusible, reversed(graph.nodes)):
        if node.id in cuts:
            kernels[node.id] = frozenset((node.id,))
            rule, why = cuts[node.id]
            found += [Decision((node.id, u), "keep apart", rule, why)
                      for u in graph.users[node.id] if is_fusible(graph[u])]
            continue
        kernels[node.id] = landing = _landing(graph, node, kernels)
        if node.op not in FREE:
            kept = f"%{node.id} {node.op} stays in a register of the kernel that ends at"
            found += [Decision((node.id, k), "fuse", "thread-composition", f"{kept} %{k}")
                      for k in sorted(landing)]
    return found[::-1]


_SENTENCES = {
    "needed-in-memory": "{0} is read by a library call or returned",
    "read-through-view": "{0} is read through a view that is in memory too",
    "reduce-ends-kernel": "a thread cannot read the {0} that other threads fold",
    "expensive-then-broadcast": "{0} would be evaluated once for each element it is broadcast to",
    "expensive-in-several-kernels": "{0} would be evaluated in {1} kernels",
    "recompute-limit": "the chain up to {0} would be evaluated in {1} kernels",
}


def _why_cut(graph: Graph, node: Node, landing: frozenset[int], in_memory: set[int],
             chain: int) -> str:
    if node.id in in_memory:
        return "needed-in-memory"
    if node.kind == "reduce":
        return "reduce-ends-kernel"
    if is_heavy(graph, node) and stretches(graph, node):
        return "expensive-then-broadcast"
    if len(landing) > 1 and is_heavy(graph, node):
        return "expensive-in-several-kernels"
    return "recompute-limit" if len(landing) > 1 and chain > MOST_RECOMPUTED else ""


def _too_many_arguments(graph: Graph, roots: Collection[int]) -> list[int]:
    """Values to store so that no kernel has too many arguments: operands with most reads first."""
    reads: list[frozenset[int]] = []
    found: list[int] = []
    for node in graph.nodes:
        pending = sorted(dict.fromkeys(node.args), key=lambda a: -len(reads[a]))
        mine = frozenset().union(*(reads[a] for a in pending))
        while (len(mine) >= MOST_ARGUMENTS and pending and len(reads[pending[0]]) > 1
               and is_fusible(node)):
            found.append(behind_views(graph, pending[0]))
            reads[pending[0]] = frozenset((found[-1],))
            pending.pop(0)
            mine = frozenset().union(*(reads[a] for a in node.args))
        leaf = node.op == "input" or node.id in roots or node.kind == "library"
        reads.append(frozenset((node.id,)) if leaf else mine)
    return found


def _chain_lengths(graph: Graph) -> list[int]:
    """For each value, the operations since the last reduce, library call or input."""
    found = [0] * len(graph)
    for node in graph.nodes:
        if is_fusible(node) and node.kind != "reduce":
            below = sum(found[a] for a in dict.fromkeys(node.args))
            found[node.id] = min(1000, below + (node.op not in FREE))
    return found


def _members(graph: Graph, roots: Collection[int]) -> list[list[int]]:
    """Each root with all operations that are inlined into it."""
    found = []
    for root in sorted(roots):
        members, pending = {root}, [root]
        while pending:
            for arg in graph[pending.pop()].args:
                if arg not in members and arg not in roots and is_fusible(graph[arg]):
                    members.add(arg)
                    pending.append(arg)
        found.append(sorted(members))
    return found
