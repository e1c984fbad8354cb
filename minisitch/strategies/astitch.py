"""``astitch``: one kernel for all memory-intensive operations between library calls (AStitch 2022).

A *stitch op* (section 4.1) holds operations that reach each other without passing a library call,
and also operations that do not reach each other at all (remote stitching). Both follow from one
rule. The *call depth* of a value is the number of library calls on the longest path to it. Along a
path depths never fall, and they grow behind each library call. So a path between two values of one
depth passes only values of that depth, and no library call. These values can share a kernel.

``call_depths`` then moves a value to the greater depth of its readers, if that moves no more bytes.
Depths still never fall along a path.

One kernel a call depth is simpler than the paper's rule, which joins all operations that make no
circle. It sometimes cuts where the paper does not: in ``h = tanh(a).sum(1); y = (w @ b) + h`` the
sum has depth 0 and the addition depth 1. The sum stays at depth 0: at depth 1 it would read all of
``a``, which is more than storing ``h`` costs.

The stage ``stitch`` decides how values travel inside the kernel. This strategy allows grid
barriers, so ``stitch`` can put any operations together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..device import Device
from ..fuse import (
    FREE,
    MOST_ARGUMENTS,
    Decision,
    FusionPlan,
    count,
    is_fusible,
    make_plan,
    reads_of,
    stored_values,
    strategy,
)
from ..graph import Graph


@strategy("astitch")
def astitch(graph: Graph, device: Device) -> FusionPlan:
    """Make one kernel for each call depth.

    Before:  h = x @ w; a = h + b; s = softmax(a); y = s @ v; z = tanh(y)
    After:   matmul | kernel 0: a and softmax | matmul | kernel 1: tanh
    """
    depth = call_depths(graph)
    stored = stored_values(graph)
    members_at: dict[int, list[int]] = {}
    # For each value, the members that read it, directly or through views.
    readers: Counter[int] = Counter()
    for node in graph.nodes:
        if is_fusible(node) and (node.op not in FREE or node.id in stored):
            members_at.setdefault(depth[node.id], []).append(node.id)
            readers.update(reads_of(graph, node))
    decisions: list[Decision] = []
    found: list[list[int]] = []
    for number, members in sorted(members_at.items()):
        kernels = _within_arguments(graph, members, stored, readers)
        found += kernels
        when = f"made after {count(number, 'library call')}, or read only then" if number else "no library call comes before"
        decisions.append(Decision(tuple(members), "fuse", "same-call-depth",
                                  f"{count(len(members), 'operation')} of call depth {number}: {when}"))
        if len(kernels) > 1:
            decisions.append(Decision(tuple(k[0] for k in kernels), "keep apart", "argument-limit",
                                      f"more than {MOST_ARGUMENTS} kernel arguments: {len(kernels)} kernels"))
    for node in graph.nodes:
        if node.kind == "library":
            decisions.append(Decision((node.id,), "keep apart", "library-call", f"{node.op} is a call between kernels"))
    return make_plan(graph, "astitch", found, decisions)


def call_depths(graph: Graph) -> list[int]:
    """The call depth of each value: library calls on the longest path to it.

    A value moves to the depth of its users if all of them have one greater depth. This saves
    storing the value and reading it again, ``2 * nbytes``. It costs reading its operands on that
    depth. So the value moves if its operands have no more bytes than that. A value that reads no
    memory, such as a causal mask made from iotas, always moves.
    """
    depth = [0] * len(graph)
    for node in graph.nodes:
        depth[node.id] = max((depth[a] + (graph[a].kind == "library") for a in node.args), default=0)
    stored = stored_values(graph)
    reads = _bytes_read(graph, stored)
    for node in reversed(graph.nodes):
        users = graph.users[node.id]
        if not is_fusible(node) or not users or node.id in stored or any(graph[u].kind == "library" for u in users):
            continue
        later = {depth[u] for u in users}
        # a value that stays is written and read: twice its bytes
        if len(later) == 1 and min(later) > depth[node.id] and (node.op in FREE or reads[node.id] <= 2 * node.type.nbytes):
            depth[node.id] = min(later)
    return depth


def _bytes_read(graph: Graph, stored: set[int]) -> list[int]:
    """Bytes that a kernel reads to make each value.

    An operand without other readers is made in the same kernel, and counts with what it reads. An
    operand with several readers would be stored first: twice its bytes.
    """
    found = [0] * len(graph)
    for node in graph.nodes:
        for operand in map(graph.__getitem__, dict.fromkeys(node.args)):
            nbytes = operand.type.nbytes
            if operand.id in stored or operand.op == "input" or operand.kind == "library":
                # a gather reads only as many rows as it returns
                found[node.id] += min(nbytes, node.type.nbytes) if node.kind == "move" else nbytes
            elif len(graph.users[operand.id]) == 1 or operand.op in FREE:
                found[node.id] += found[operand.id]
            elif found[operand.id]:
                found[node.id] += 2 * nbytes  # to be stored first
    return found


def _within_arguments(graph: Graph, members: Sequence[int], stored: set[int], readers: Counter[int]) -> list[list[int]]:
    """Split the members of one depth at the argument limit, in an order that makes no circle."""
    kernels, rest = [], _depth_first(graph, members)
    while rest:
        length = _longest(graph, rest, stored, readers)
        kernels.append(rest[:length])
        rest = rest[length:]
    return kernels


def _depth_first(graph: Graph, members: Sequence[int]) -> list[int]:
    """Order the members so that operands stand right before their readers. A cut then parts few.

    Before:  m1 m2 v1 v2 w1 w2 (the moments of an optimiser, then its weights)
    After:   m1 v1 w1 m2 v2 w2
    """
    inside = set(members)
    operands = {m: reads_of(graph, graph[m]) & inside for m in members}
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
    """How many of the first members fit one kernel: inputs and outputs are its arguments."""
    waiting: dict[int, int] = {}  # member -> readers outside so far
    reads: set[int] = set()
    leaving, longest = 0, 1
    for place, member in enumerate(members, start=1):
        for value in reads_of(graph, graph[member]):
            if value in waiting:
                waiting[value] -= 1
                leaving -= waiting[value] == 0
            else:
                reads.add(value)
        waiting[member] = readers[member] + (member in stored)
        leaving += waiting[member] > 0
        if len(reads) + leaving <= MOST_ARGUMENTS:
            longest = place
        # Reads only grow. Outputs may become fewer again, when all readers of a value are inside.
        elif len(reads) > MOST_ARGUMENTS:
            break
    return longest
