"""``xla``: thread composition only, the baseline of the papers.

A kernel is one loop over its output, and inlines the operations that lead to it. Each thread
computes what it needs, and reads only its own values (FusionStitching 2020, section 2; AStitch
2022, section 2.3). So a kernel ends at a reduce. It also ends at a heavy element-wise value that is
broadcast, because inlining would evaluate the value once for each copy of an element.

Only a value that ends a kernel is written to memory. ``fs20`` relies on this: an edge of its graph
is a value of one kernel that others read.
"""

from collections.abc import Collection, Mapping, Sequence

from ..device import Device
from ..fuse import (
    MOST_ARGUMENTS,
    VIEWS,
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
            free = node.op in VIEWS and node.id not in in_memory
            cut = None if free else _why_cut(graph, node, landing, in_memory, chain[node.id])
            if node.op in VIEWS and cut and landing:
                viewed.add(behind_views(graph, node.id))
            elif not cut and node.id in viewed:  # each kernel computes the views that it reads
                cut = "read-through-view", f"{node.op} is read through a view that is in memory too"
            if cut:
                cuts[node.id] = cut
            kernels[node.id] = frozenset((node.id,)) if cut else landing
    for value, why in many_positions(graph, cuts).items():
        source = behind_views(graph, value)
        last = source if is_fusible(graph[source]) else value  # a library's result is in memory
        if is_fusible(graph[last]):
            cuts.setdefault(last, ("many-positions", why))
    for crowded in _too_many_arguments(graph, cuts.keys()):
        why = f"the kernel that reads %{crowded} would have more than {MOST_ARGUMENTS} arguments"
        cuts.setdefault(crowded, ("argument-limit", why))
    return make_plan(graph, "xla", *_drawn(graph, cuts), Stitching(adaptive=False))


def _landing(graph: Graph, node: Node, kernels: Sequence[frozenset[int]]) -> frozenset[int]:
    """The last values of all kernels that evaluate this one. ``kernels`` holds later values'."""
    return frozenset().union(*(kernels[u] for u in graph.users[node.id]))


def _drawn(graph: Graph, cuts: Mapping[int, tuple[str, str]]) -> tuple[list[list[int]], list[Decision]]:
    """The members of each kernel, and for each value why it ends one or where it is inlined."""
    members: dict[int, list[int]] = {last: [] for last in sorted(cuts)}
    said: list[Decision] = []
    kernels: list[frozenset[int]] = [frozenset()] * len(graph)
    for node in filter(is_fusible, reversed(graph.nodes)):
        ends = node.id in cuts
        kernels[node.id] = frozenset((node.id,)) if ends else _landing(graph, node, kernels)
        for kernel in kernels[node.id]:
            members[kernel].append(node.id)
        if ends:
            rule, why = cuts[node.id]
            said += [Decision((node.id, u), "keep apart", rule, why)
                     for u in graph.users[node.id] if is_fusible(graph[u])]
        elif node.op not in VIEWS:
            kept = f"%{node.id} {node.op} stays in a register of the kernel that ends at"
            said += [Decision((node.id, k), "fuse", "thread-composition", f"{kept} %{k}")
                     for k in sorted(kernels[node.id])]
    return list(members.values()), said[::-1]


def _why_cut(graph: Graph, node: Node, landing: frozenset[int], in_memory: set[int],
             chain: int) -> tuple[str, str] | None:
    """The rule by which a value ends a kernel, and the reason. None if it ends none."""
    if node.id in in_memory:
        return "needed-in-memory", f"{node.op} is read by a library call or returned"
    if node.kind == "reduce":
        return "reduce-ends-kernel", f"a thread cannot read the {node.op} that other threads fold"
    several = f"would be evaluated in {len(landing)} kernels" if len(landing) > 1 else ""
    if is_heavy(graph, node):
        if stretches(graph, node):
            return "expensive-then-broadcast", f"{node.op} would be evaluated once for each copy of it"
        if several:
            return "expensive-in-several-kernels", f"{node.op} {several}"
    if several and chain > MOST_RECOMPUTED:
        return "recompute-limit", f"the chain up to {node.op} {several}"
    return None


def _too_many_arguments(graph: Graph, roots: Collection[int]) -> list[int]:
    """Values to store so that no kernel has too many arguments: operands with most reads first."""
    reads: list[frozenset[int]] = []
    found: list[int] = []
    for node in graph.nodes:
        mine = frozenset().union(*(reads[a] for a in node.args))
        for operand in sorted(dict.fromkeys(node.args), key=lambda a: -len(reads[a])):
            if len(mine) < MOST_ARGUMENTS or len(reads[operand]) < 2 or not is_fusible(node):
                break
            found.append(behind_views(graph, operand))
            reads[operand] = frozenset((found[-1],))
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
            found[node.id] = min(1000, below + (node.op not in VIEWS))
    return found
