"""``astitch``: the whole memory-intensive subgraph between library calls in one kernel (AStitch 2022).

Scope (section 4.1): operations that can reach each other without passing a library call, and
remotely those that cannot reach each other at all, form one *stitch op*. Both are one rule here:
a value's *level* is the number of library calls on the longest path to it; values of one level can
be contracted, because a path that leaves a level through a library call cannot come back to it.
How the pieces meet inside the kernel is ``stitch``'s business; it never refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..device import Device
from ..fuse import FREE, MOST_ARGUMENTS, Decision, FusionPlan, is_fusible, make_plan, stored_values, strategy
from ..graph import Graph, Node


@strategy("astitch")
def astitch(graph: Graph, device: Device) -> FusionPlan:
    """One kernel a level.

    Before:  h = x @ w; a = h + b; s = softmax(a); y = s @ v; z = tanh(y)
    After:   matmul | kernel 0: a and softmax | matmul | kernel 1: tanh
    """
    level = levels(graph)
    stored = stored_values(graph)
    readers = _readers(graph, stored)
    groups: dict[int, list[int]] = {}
    for node in graph.nodes:
        if is_fusible(node) and (node.op not in FREE or node.id in stored):
            groups.setdefault(level[node.id], []).append(node.id)
    decisions: list[Decision] = []
    found: list[list[int]] = []
    for number, members in sorted(groups.items()):
        pieces = _within_arguments(graph, members, stored, readers)
        found += pieces
        decisions.append(Decision(tuple(members), "fuse", "same-level",
                                  f"{len(members)} operations with {number} library calls before them"))
        if len(pieces) > 1:
            decisions.append(Decision(tuple(p[0] for p in pieces), "keep apart", "argument-limit",
                                      f"more than {MOST_ARGUMENTS} kernel arguments: {len(pieces)} kernels"))
    for node in graph.nodes:
        if node.kind == "library":
            decisions.append(Decision((node.id,), "keep apart", "library-call", f"{node.op} is a call between kernels"))
    return make_plan(graph, "astitch", found, decisions)


def levels(graph: Graph) -> list[int]:
    """Library calls on the longest path to each value; a value all of whose users are later moves down to them.

    Moving down saves writing the value and reading it back; it happens only if its operands are no
    larger than itself. Masks, which are computed from nothing, always move.
    """
    level = [0] * len(graph)
    weightless = [n.op in ("constant", "iota") for n in graph.nodes]  # computed without reading memory
    for node in graph.nodes:
        steps = [level[a] + (graph[a].kind == "library") for a in node.args]
        level[node.id] = max(steps, default=0)
        if is_fusible(node):
            weightless[node.id] = all(weightless[a] for a in node.args)
    kept = stored_values(graph)
    for node in reversed(graph.nodes):
        users = graph.users[node.id]
        if not is_fusible(node) or not users or node.id in kept:
            continue
        if any(graph[u].kind == "library" for u in users):
            continue
        target = min(level[u] for u in users)
        fresh = [a for a in dict.fromkeys(node.args)
                 if is_fusible(graph[a]) and level[a] < target and graph[a].op not in FREE and not weightless[a]]
        moved = sum(graph[a].type.nbytes for a in fresh if len(graph.users[a]) == 1 or a in kept)
        if target > level[node.id] and len({level[u] for u in users}) == 1 and \
                (node.op in FREE or moved <= node.type.nbytes):
            level[node.id] = target
    return level


def _readers(graph: Graph, stored: set[int]) -> Counter[int]:
    """How many operations of kernels read each value, through views or not."""
    found: Counter[int] = Counter()
    for node in graph.nodes:
        if node.kind not in ("source", "library") and (node.op not in FREE or node.id in stored):
            found.update(_sources(graph, node))
    return found


def _within_arguments(graph: Graph, members: Sequence[int], stored: set[int], readers: Counter[int]) -> list[list[int]]:
    """Cut a level in pieces, in order, that stay within the argument limit; ascending ids keep it acyclic."""
    pieces, start = [], 0
    while start < len(members):
        end = start + _longest(graph, members[start:], stored, readers)
        pieces.append(list(members[start:end]))
        start = end
    return pieces


def _longest(graph: Graph, members: Sequence[int], stored: set[int], readers: Counter[int]) -> int:
    """How many of the first members one kernel can hold: what it reads and what leaves it are its arguments."""
    waiting: dict[int, int] = {}  # member -> readers that are not inside yet
    reads: set[int] = set()
    leaving, longest = 0, 1
    for count, member in enumerate(members, start=1):
        for value in _sources(graph, graph[member]):
            if value in waiting:
                waiting[value] -= 1
                leaving -= waiting[value] == 0
            else:
                reads.add(value)
        waiting[member] = readers[member] + (member in stored)
        leaving += waiting[member] > 0
        if len(reads) + leaving <= MOST_ARGUMENTS:
            longest = count
        elif len(reads) > MOST_ARGUMENTS:
            break
    return longest


def _sources(graph: Graph, node: Node) -> set[int]:
    """The values in memory or registers that a node reads, through views."""
    found = set()
    for arg in node.args:
        while graph[arg].op in FREE:
            arg = graph[arg].args[0]
        if graph[arg].op not in ("constant", "iota"):
            found.add(arg)
    return found
