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
from dataclasses import replace

from ..device import Device
from ..fuse import (
    ALL_INGREDIENTS,
    FREE,
    MOST_ARGUMENTS,
    Decision,
    FusionPlan,
    Stitching,
    count,
    is_fusible,
    make_plan,
    sources,
    stored_values,
    strategy,
)
from ..graph import Graph
from .xla import xla


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
        why = f"{count(len(members), 'operation')} at level {number}: so many library calls before them or their readers"
        decisions.append(Decision(tuple(members), "fuse", "same-level", why))
        if len(pieces) > 1:
            decisions.append(Decision(tuple(p[0] for p in pieces), "keep apart", "argument-limit",
                                      f"more than {MOST_ARGUMENTS} kernel arguments: {len(pieces)} kernels"))
    for node in graph.nodes:
        if node.kind == "library":
            decisions.append(Decision((node.id,), "keep apart", "library-call", f"{node.op} is a call between kernels"))
    return make_plan(graph, "astitch", found, decisions)


def ablation(graph: Graph, device: Device) -> dict[str, FusionPlan]:
    """What each ingredient buys, one after the other, as the paper's series has it (its section 6.4).

    XLA's kernels with XLA's mapping; the same kernels with adaptive mapping; one kernel a level, stitched, in which
    each dominant keeps its own group; dominants merged, which is ``astitch``.
    """
    cut, whole = xla(graph, device), astitch(graph, device)
    return {"xla": cut, "+ adaptive mapping": _composed(cut, ALL_INGREDIENTS),
            "+ stitching": _composed(whole, Stitching(merge=False)), "+ dominant merging": whole}


def _composed(plan: FusionPlan, stitching: Stitching) -> FusionPlan:
    """The same kernels put together in another way."""
    return replace(plan, patterns=tuple(replace(p, composition=stitching) if p.kind == "kernel" else p for p in plan.patterns))


def levels(graph: Graph) -> list[int]:
    """Library calls on the longest path to each value; a value all of whose users are later moves down to them.

    Moving down saves writing the value and reading it back, and costs reading what it is made of
    down there: it happens if that is no more. Masks, which are made of nothing, always move.
    """
    level = [0] * len(graph)
    for node in graph.nodes:
        level[node.id] = max((level[a] + (graph[a].kind == "library") for a in node.args), default=0)
    kept = stored_values(graph)
    reads = _bytes_read(graph, kept)
    for node in reversed(graph.nodes):
        users = graph.users[node.id]
        if not is_fusible(node) or not users or node.id in kept or any(graph[u].kind == "library" for u in users):
            continue
        later = {level[u] for u in users}
        if len(later) == 1 and min(later) > level[node.id] and (node.op in FREE or reads[node.id] <= 2 * node.type.nbytes):
            level[node.id] = min(later)
    return level


def _bytes_read(graph: Graph, kept: set[int]) -> list[int]:
    """Bytes of memory read to make each value, if operands that only it reads are made along with it."""
    found = [0] * len(graph)
    for node in graph.nodes:
        for arg in dict.fromkeys(node.args):
            operand = graph[arg]
            if operand.op in ("constant", "iota"):
                continue
            if is_fusible(operand) and arg not in kept and (len(graph.users[arg]) == 1 or operand.op in FREE):
                found[node.id] += found[arg]
            elif is_fusible(operand) and arg not in kept:
                found[node.id] += 2 * operand.type.nbytes if found[arg] else 0  # it would be written for this
            else:  # a gather reads so many rows as it gives
                found[node.id] += min(operand.type.nbytes, node.type.nbytes) if node.kind == "move" else operand.type.nbytes
    return found


def _readers(graph: Graph, stored: set[int]) -> Counter[int]:
    """How many operations of kernels read each value, through views or not."""
    found: Counter[int] = Counter()
    for node in graph.nodes:
        if node.kind not in ("source", "library") and (node.op not in FREE or node.id in stored):
            found.update(sources(graph, node))
    return found


def _within_arguments(graph: Graph, members: Sequence[int], stored: set[int], readers: Counter[int]) -> list[list[int]]:
    """Cut a level in pieces that stay within the argument limit, in an order that keeps them acyclic."""
    pieces, start, members = [], 0, _depth_first(graph, members)
    while start < len(members):
        end = start + _longest(graph, members[start:], stored, readers)
        pieces.append(list(members[start:end]))
        start = end
    return pieces


def _depth_first(graph: Graph, members: Sequence[int]) -> list[int]:
    """The members so that what a value is made of stands right before it: a cut then parts as little as it can.

    Before:  m1 m2 v1 v2 w1 w2 (the moments of an optimiser, then its weights)    After:  m1 v1 w1 m2 v2 w2
    """
    inside = set(members)
    operands = {m: sources(graph, graph[m]) & inside for m in members}
    read = frozenset().union(*operands.values())
    order: dict[int, None] = {}
    opened: set[int] = set()
    for last in members:
        pending = [last] if last not in read else []
        while pending:
            fresh = sorted(operands[pending[-1]] - opened)
            opened.add(pending[-1])
            if fresh:
                pending += reversed(fresh)
            else:
                order[pending.pop()] = None
    return list(order)


def _longest(graph: Graph, members: Sequence[int], stored: set[int], readers: Counter[int]) -> int:
    """How many of the first members one kernel can hold: what it reads and what leaves it are its arguments."""
    waiting: dict[int, int] = {}  # member -> readers that are not inside yet
    reads: set[int] = set()
    leaving, longest = 0, 1
    for place, member in enumerate(members, start=1):
        for value in sources(graph, graph[member]):
            if value in waiting:
                waiting[value] -= 1
                leaving -= waiting[value] == 0
            else:
                reads.add(value)
        waiting[member] = readers[member] + (member in stored)
        leaving += waiting[member] > 0
        if len(reads) + leaving <= MOST_ARGUMENTS:
            longest = place
        elif len(reads) > MOST_ARGUMENTS:
            break
    return longest
