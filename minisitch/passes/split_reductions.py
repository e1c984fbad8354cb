"""Two reductions of a long row in one sweep, although the second needs the first's result (CPU only).

In:  a simplified graph and a device. Out: the graph with such pairs in pieces, and the decisions.

A variance needs the mean first, a log-sum-exp the maximum: two reductions, so a row of more than ``LONG`` bytes comes from memory
twice. Here the row is cut into pieces of 512 to 8192 elements, which stay in a cache. Each piece is reduced about its own mean or
maximum, and the results are joined: Chan, Golub and LeVeque 1979 (2.1) for squares, Milakov and Gimelshein 2018 (section 3) for
exponentials. Roundings change; no other pass before the strategies does that.

Before:  %1 = max %0 axes=(1,)                    After:  %1 = reshape %0 to [8,500,8000]
         %3 = sub %0, %1 broadcast                        %2 = max %1 axes=(2,); %3 = max %2 axes=(1,)
         %4 = exp %3                                      %8 = sum exp(%1 - %2) axes=(2,)
         %5 = sum %4 axes=(1,)                            %9 = sum %8 * exp(%2 - %3) axes=(1,)

Left out: rows that no such length divides, and sums whose elements are wanted elsewhere too (softmax, layernorm). Infinities and
NaN stay. A piece of nothing but -inf is taken about 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..device import Device
from ..fuse import Decision
from ..graph import Builder, Graph, Node, TensorType
from .registry import graph_pass

LONG = 1 << 20  # bytes of a row that a core's own cache does not hold beside what else it needs
PIECES = (512, 8192)  # elements of one: long enough to be worth a result of its own, short enough for the nearest cache
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Pair:
    """A sum over a row of something about the row's own maximum or mean."""

    total: Node  # sum of exp(x - max(x)), or of (x - mean(x)) ** 2
    inner: tuple[int, ...]  # what only the sum needs: replaced with it
    first: Node  # max(x), or sum(x)
    about: int  # max(x) or mean(x), an element a row


@graph_pass("split_reductions")
def split_reductions(graph: Graph, device: Device) -> tuple[Graph, tuple[Decision, ...]]:
    """Rewrite each such pair over rows of more than a megabyte; ids of the decisions are those of the new graph."""
    pairs = [pair for node in graph.nodes if device.kind == "cpu" and node.op == "sum" and (pair := _pair(graph, node))]
    if not pairs:
        return graph, ()
    b, new, decisions = Builder(), dict[int, int](), []
    rows: dict[tuple[int, tuple[int, ...]], _Row] = {}
    of_total = {pair.total.id: pair for pair in pairs}
    firsts = {pair.first.id for pair in pairs}
    gone = {i for pair in pairs for i in pair.inner}
    for node in graph.nodes:
        if node.id in gone:
            continue
        if node.id in firsts or node.id in of_total:
            pair = of_total.get(node.id)
            x = (pair.first if pair else node).args[0]
            row = rows.setdefault((x, node.attr("axes")), _Row(b, new[x], len(node.attr("axes"))))
            new[node.id] = row.joined(node, new[pair.about], pair.first.op) if pair else row.whole(node)
            if pair:
                why = f"rows of {row.size} {node.type.dtype} are read once, in pieces of {row.length}"
                decisions.append(Decision((new[node.id],), "fuse", "online", why))
            continue
        source = node.type if node.kind == "source" else None
        new[node.id] = b.add(node.op, [new[a] for a in node.args], type=source, where=node.where, via=node.via, **node.attributes)
    return b.finish(new[o] for o in graph.outputs), tuple(decisions)


def _pair(graph: Graph, total: Node) -> Pair | None:
    """The parts of a sum that needs another reduction of its row; None where it is no such sum or the row is short."""
    outer = tuple(range(graph[total.args[0]].type.rank - len(total.attr("axes"))))
    value = graph[total.args[0]]
    if (value.type.dtype not in DTYPES or total.attr("axes") != tuple(range(len(outer), value.type.rank))
            or _length(math.prod(value.type.shape[len(outer):]), value.type.itemsize) is None):
        return None
    squared = value.op == "mul" and value.args[0] == value.args[1]
    moved = graph[value.args[0]] if value.op == "exp" or squared else value
    spread = graph[moved.args[1]] if moved.op == "sub" else moved
    if spread.op != "broadcast":
        return None
    about = graph[spread.args[0]]
    first = _behind(graph, about)
    scaled = [_behind(graph, graph[a]) for a in first.args] if squared and first.op in ("div", "mul") else []
    if any(node.op == "constant" for node in scaled):
        first = next((node for node in scaled if node.op != "constant"), first)
    if (first.op != ("sum" if squared else "max") or first.args[0] != moved.args[0] or first.attr("axes") != total.attr("axes")
            or not _is_a_row_each(about.type.shape, value.type.shape, len(outer))):
        return None
    inner = (value.id, moved.id)
    if any(set(graph.users[i]) != {user} or i in graph.outputs for i, user in zip(inner, (total.id, value.id), strict=True)):
        return None  # an element's own value is wanted too
    alone = graph.users[spread.id] == (moved.id,) and spread.id not in graph.outputs
    return Pair(total, (*inner, spread.id) if alone else inner, first, about.id)


def _behind(graph: Graph, node: Node) -> Node:
    """What a value of an element a row is, before it got another shape."""
    while node.op in ("reshape", "broadcast"):
        node = graph[node.args[0]]
    return node


def _is_a_row_each(shape: Sequence[int], rows: Sequence[int], outer: int) -> bool:
    """Whether a broadcast to ``rows`` repeats an element along each row and nothing else."""
    padded = (1,) * (len(rows) - len(shape)) + tuple(shape)
    return padded == (*rows[:outer], *(1 for _ in rows[outer:]))


def _length(size: int, itemsize: int) -> int | None:
    """The longest piece that divides a long row; None if none does."""
    if size * itemsize <= LONG:
        return None
    return next((n for n in range(PIECES[1], PIECES[0] - 1, -1) if size % n == 0), None)


class _Row:
    """A value's rows in pieces, in the new graph."""

    def __init__(self, b: Builder, x: int, axes: int) -> None:
        self.b, self.x = b, x
        shape, self.dtype = b.type(x).shape, b.type(x).dtype
        self.outer, self.size = shape[:len(shape) - axes], math.prod(shape[len(shape) - axes:])
        self.length = _length(self.size, b.type(x).itemsize) or self.size
        self.count = self.size // self.length
        self.made: dict[str, int] = {}

    def whole(self, node: Node) -> int:
        """A maximum or a sum: of the pieces', which stay for ``joined``."""
        parts = self._part(node, node.op)
        return self._add(node, "reshape", self._add(node, node.op, parts, axes=(len(self.outer),), keepdims=False),
                         shape=node.type.shape)

    def joined(self, node: Node, about: int, first: str) -> int:
        """The sum of what is about a value an element a row, from sums about each piece's own."""
        parts = self._part(node, first)
        pieces = (*self.outer, self.count)
        rows = self._add(node, "reshape", about, shape=(*self.outer, 1))
        whole = self._add(node, "broadcast", rows, shape=pieces)
        if first == "max":
            lowest = self._add(node, "eq", parts, self._constant(node, pieces, -math.inf))
            own = self._add(node, "select", lowest, self._constant(node, pieces, 0.0), parts)
            sums = self._sum(node, self._add(node, "exp", self._from(node, own)))
            joined = self._add(node, "mul", sums, self._add(node, "exp", self._add(node, "sub", parts, whole)))
        else:
            length = self._constant(node, pieces, float(self.length))
            own = self._add(node, "div", parts, length)
            near, far = self._from(node, own), self._add(node, "sub", own, whole)
            same = self._add(node, "eq", own, whole)  # also where both have overflowed, which would make NaN of inf
            far = self._add(node, "select", same, self._constant(node, pieces, 0.0), far)
            sums = self._sum(node, self._add(node, "mul", near, near))
            joined = self._add(node, "add", sums, self._add(node, "mul", length, self._add(node, "mul", far, far)))
        total = self._add(node, "sum", joined, axes=(len(self.outer),), keepdims=False)
        return self._add(node, "reshape", total, shape=node.type.shape)

    def _part(self, node: Node, op: str) -> int:
        """A reduction of each piece."""
        if op not in self.made:
            self.made[op] = self._add(node, op, self._pieces(node), axes=(len(self.outer) + 1,), keepdims=False)
        return self.made[op]

    def _sum(self, node: Node, value: int) -> int:
        return self._add(node, "sum", value, axes=(len(self.outer) + 1,), keepdims=False)

    def _from(self, node: Node, own: int) -> int:
        """Each element less its piece's own value."""
        column = self._add(node, "reshape", own, shape=(*self.outer, self.count, 1))
        spread = self._add(node, "broadcast", column, shape=(*self.outer, self.count, self.length))
        return self._add(node, "sub", self._pieces(node), spread)

    def _pieces(self, node: Node) -> int:
        if "x" not in self.made:
            self.made["x"] = self._add(node, "reshape", self.x, shape=(*self.outer, self.count, self.length))
        return self.made["x"]

    def _constant(self, node: Node, shape: tuple[int, ...], value: float) -> int:
        return self.b.add("constant", type=TensorType(shape, self.dtype), where=node.where, via=node.via, value=value)

    def _add(self, node: Node, op: str, *args: int, **attrs: Any) -> int:
        """A new node on the user's line of ``node``."""
        return self.b.add(op, args, where=node.where, via=node.via, **attrs)
