"""Small batched products taken apart, so that a kernel can hold them (FusionStitching 2018, sections 2 and 4.2).

In:  a graph. Out: the graph with small batched matmuls as products and sums, where each node came from, decisions.

Before:  %2 = matmul %0[64,8,17,17] %1[64,8,17,128]
After:   %2 = reshape, broadcast %0 to [64,8,17,17,128]; %3 = reshape, broadcast %1; %4 = mul %2 %3; %5 = sum %4 axes=(3,)

A kernel evaluates the product inside the sum's loop; it is never stored. Whether that beats the library is the
user's choice (strategy ``fs18-dot``): it does where the library is poor, on tiny shapes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...fuse import Decision
from ...graph import Builder, Graph, Node, TensorType
from .fusion import Limits

DTYPES = ("float32", "float64")  # sums of these round as the library's do


@dataclass(frozen=True)
class Apart:
    """A graph without small batched products.

    ``origin[i]`` is the node of the old graph that new node i computes for; ``products`` are the sums that were matmuls.
    """

    graph: Graph
    origin: tuple[int, ...]
    products: frozenset[int]
    decisions: tuple[Decision, ...]


def take_apart(graph: Graph, limits: Limits) -> Apart:
    """Rewrite every matmul of two batches whose entries are small; one with weights is the library's business."""
    b = Builder()
    origin: list[int] = []
    products: set[int] = set()
    new: dict[int, int] = {}
    decisions = []
    for node in graph.nodes:
        operands = [new[a] for a in node.args]
        if node.op == "matmul":
            small, why = _is_small(node, [graph[a].type for a in node.args], limits)
            decisions.append(Decision((node.id,), "fuse" if small else "keep apart", "small-dot" if small else "library-dot", why))
            new[node.id] = _product(b, node, *operands) if small else _copy(b, node, operands)
            products |= {new[node.id]} if small else set()
        else:
            new[node.id] = _copy(b, node, operands)
        origin += [node.id] * (len(b.nodes) - len(origin))
    moved = tuple(Decision(tuple(new[i] for i in d.at), d.verdict, d.rule, d.why) for d in decisions)
    return Apart(b.finish(new[o] for o in graph.outputs), tuple(origin), frozenset(products), moved)


def _is_small(node: Node, operands: list[TensorType], limits: Limits) -> tuple[bool, str]:
    """Whether one entry of the batch is work for one block, and the numbers: its operands' bytes, its multiplications."""
    batches = [math.prod(t.shape[:-2]) for t in operands]
    entries = math.prod(node.type.shape[:-2])
    nbytes = sum(t.shape[-1] * t.shape[-2] * t.itemsize for t in operands)
    work = node.type.shape[-2] * node.type.shape[-1] * operands[0].shape[-1]
    fits = nbytes <= limits.shared and (entries >= limits.device.sms or work <= limits.serial)
    small = fits and entries == min(batches) > 1 and node.type.dtype in DTYPES and node.type.size > 0
    return small, (f"batches of {' and '.join(map(str, batches))}, an entry {nbytes} bytes of operands and {work} multiplications; "
                   f"a kernel takes equal batches of {' and '.join(DTYPES)} with {limits.shared} bytes, and {limits.serial} "
                   f"multiplications where there are fewer entries than SMs")


def _copy(b: Builder, node: Node, operands: list[int]) -> int:
    source = node.type if node.kind == "source" else None
    return b.add(node.op, operands, type=source, where=node.where, via=node.via, **node.attributes)


def _product(b: Builder, node: Node, left: int, right: int) -> int:
    """[..., m, k] @ [..., k, n] as a sum over the axis before the last of [..., m, k, n]."""
    *batch, m, n = node.type.shape
    k = b.type(left).shape[-1]

    def add(op: str, args: list[int], **attrs: Any) -> int:
        return b.add(op, args, where=node.where, via=node.via, **attrs)

    def stretched(value: int, matrix: tuple[int, ...]) -> int:
        outer = b.type(value).shape[:-2]
        padded = (1,) * (len(batch) - len(outer)) + outer
        return add("broadcast", [add("reshape", [value], shape=(*padded, *matrix))], shape=(*batch, m, k, n))

    product = add("mul", [stretched(left, (m, k, 1)), stretched(right, (1, k, n))])
    return add("sum", [product], axes=(len(batch) + 1,), keepdims=False)
