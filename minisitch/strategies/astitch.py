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

from collections.abc import Sequence

from ..device import Device
from ..fuse import (
    VIEWS,
    Decision,
    FusionPlan,
    count,
    is_fusible,
    make_plan,
    operations_of,
    stored_values,
    strategy,
)
from ..graph import Graph
from .save import save_or_recompute


@strategy("astitch")
def astitch(graph: Graph, device: Device) -> FusionPlan:
    """Make one kernel for each call depth. Later depths recompute what is cheaper to make again.

    Before:  h = x @ w; a = h + b; s = softmax(a); y = s @ v; z = tanh(y)
    After:   matmul | kernel 0: a and softmax | matmul | kernel 1: tanh
    """
    return stitched(*save_or_recompute(graph, call_depths(graph), device))


def stitched(graph: Graph, depth: Sequence[int] = (), decisions: Sequence[Decision] = ()) -> FusionPlan:
    """One kernel for each depth of a graph, by default its call depths."""
    kernels: dict[int, list[int]] = {}
    depth, said = depth or call_depths(graph), list(decisions)
    for operation in operations_of(graph):
        kernels.setdefault(depth[operation], []).append(operation)
    for number, members in sorted(kernels.items()):
        when = f"made after {count(number, 'library call')}, or read only then" if number else "no library call comes before"
        said.append(Decision(tuple(members), "fuse", "same-call-depth",
                             f"{count(len(members), 'operation')} of call depth {number}: {when}"))
    said += [Decision((n.id,), "keep apart", "library-call", f"{n.op} is a call between kernels")
             for n in graph.nodes if n.kind == "library"]
    return make_plan(graph, "astitch", kernels.values(), said)


def call_depths(graph: Graph) -> list[int]:
    """The call depth of each value: library calls on the longest path to it.

    A value moves to the depth of its users if all of them have one greater depth. This saves
    storing the value and reading it again, ``2 * nbytes``. It costs reading on that depth what the
    value is made of (``_bytes_read``). So the value moves if these are no more bytes. A view costs
    nothing and moves, as does a causal mask made from iotas, which reads no memory.
    """
    depth = [0] * len(graph)
    for node in graph.nodes:
        before = [depth[a] + (graph[a].kind == "library") for a in node.args]
        depth[node.id] = max(before, default=0)
    stored = stored_values(graph)
    reads = _bytes_read(graph, stored)
    for node in reversed(graph.nodes):
        later = {depth[user] for user in graph.users[node.id]}
        # a value that stays is written and read: twice its bytes
        saves = node.op in VIEWS or reads[node.id] <= 2 * node.type.nbytes
        if is_fusible(node) and node.id not in stored and saves and len(later) == 1:
            depth[node.id] = later.pop()
    return depth


def _bytes_read(graph: Graph, stored: set[int]) -> list[int]:
    """Bytes that a kernel reads to make each value.

    An operand without other readers is made in the same kernel, and counts with what it reads. An
    operand with several readers would be stored first: twice its bytes.
    """
    found = [0] * len(graph)
    for node in graph.nodes:
        for operand in [graph[a] for a in set(node.args)]:
            nbytes = operand.type.nbytes
            if operand.id in stored or operand.op == "input" or operand.kind == "library":
                # a gather reads only as many rows as it returns
                found[node.id] += min(nbytes, node.type.nbytes) if node.kind == "move" else nbytes
            elif len(graph.users[operand.id]) == 1 or operand.op in VIEWS:
                found[node.id] += found[operand.id]
            elif found[operand.id]:
                found[node.id] += 2 * nbytes  # to be stored first
    return found
