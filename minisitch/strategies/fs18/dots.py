"""Expand small batched products, so that a kernel can hold them (FusionStitching 2018, 2 and 4.2).

In:  a graph. Out: the graph with small batched matmuls as products and sums, the ids of these sums,
and the decisions.

Before:  %2 = matmul %0[64,8,17,17] %1[64,8,17,128]
After:   %2 = reshape, broadcast %0 to [64,8,17,17,128]; %3 = reshape, broadcast %1;
         %4 = mul %2 %3; %5 = sum %4 axes=(3,)

A kernel evaluates the product inside the sum's loop and never stores it. The user chooses this with
strategy ``fs18-dot``. It pays if the library is slow, as on tiny shapes.
"""

import math
from typing import Any

from ...fuse import Decision
from ...graph import Graph, Node, TensorType
from ...trace.builder import Builder
from .fusion import Limits

DTYPES = ("float32", "float64")  # their sums round as the library's do


def take_apart(graph: Graph, limits: Limits) -> tuple[Graph, frozenset[int], tuple[Decision, ...]]:
    """Expand every matmul of two batches with small entries. One with weights stays a library call.

    Returns the new graph, the sums that were matmuls, and the decisions, with ids of the new graph.
    """
    b = Builder()
    new: dict[int, int] = {}
    products: set[int] = set()
    decisions = []
    for node in graph.nodes:
        operands = [new[a] for a in node.args]
        small, why = False, ""
        if node.op == "matmul":
            small, why = _is_small(node, [graph[a].type for a in node.args], limits)
        if small:
            new[node.id] = _product(b, node, *operands)
            products.add(new[node.id])
        else:
            source = node.type if node.kind == "source" else None
            # An input keeps its name only; a window's length belongs to the old graph.
            attributes = {k: v for k, v in node.attributes.items()
                          if node.op != "input" or k == "name"}
            new[node.id] = b.add(node.op, operands, type=source, where=node.where, via=node.via,
                                 **attributes)
        if why:
            rule = ("fuse", "small-dot") if small else ("keep apart", "library-dot")
            decisions.append(Decision((new[node.id],), *rule, why))
    return b.finish(new[o] for o in graph.outputs), frozenset(products), tuple(decisions)


def _is_small(node: Node, operands: list[TensorType], limits: Limits) -> tuple[bool, str]:
    """Whether one block can compute an entry of the batch, and a sentence with the numbers."""
    batches = [math.prod(t.shape[:-2]) for t in operands]
    entries = math.prod(node.type.shape[:-2])
    nbytes = sum(t.shape[-1] * t.shape[-2] * t.itemsize for t in operands)
    work = node.type.shape[-2] * node.type.shape[-1] * operands[0].shape[-1]
    fits = nbytes <= limits.shared and (entries >= limits.device.sms or work <= limits.serial)
    fits = fits and entries == min(batches) > 1
    small = fits and node.type.dtype in DTYPES and node.type.size > 0
    return small, (f"batches of {' and '.join(map(str, batches))}, an entry {nbytes} bytes of "
                   f"operands and {work} multiplications; a kernel takes equal batches of "
                   f"{' and '.join(DTYPES)} with {limits.shared} bytes, and {limits.serial} "
                   "multiplications where there are fewer entries than SMs")


def _product(b: Builder, node: Node, left: int, right: int) -> int:
    """[..., m, k] @ [..., k, n] as a sum over the axis before the last of [..., m, k, n]."""
    *batch, m, n = node.type.shape
    k = b.type(left).shape[-1]

    def add(op: str, args: list[int], **attrs: Any) -> int:
        return b.add(op, args, where=node.where, via=node.via, **attrs)

    def stretched(value: int, matrix: tuple[int, ...]) -> int:
        outer = b.type(value).shape[:-2]
        padded = (1,) * (len(batch) - len(outer)) + outer
        reshaped = add("reshape", [value], shape=(*padded, *matrix))
        return add("broadcast", [reshaped], shape=(*batch, m, k, n))

    product = add("mul", [stretched(left, (m, k, 1)), stretched(right, (1, k, n))])
    return add("sum", [product], axes=(len(batch) + 1,), keepdims=False)
