"""Who reads what with views seen through, and which blocks of a value its readers ask for.

In:  a graph. Out: ``OperandReads``: the operations that kernels are made of, and the way from each to what it reads.

Views (reshape, broadcast, transpose, slice) are never fused or scheduled: whoever reads through one computes
another index. That is the paper's bypass of trivial operations: their strict rules refuse nothing by themselves,
only where a block would need another block's *kept* value.

Before:  %1 = sum %0; %2 = broadcast %1; %3 = div %0 %2, cut by rows     After:  %1 is asked for by rows, %0 too
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...fuse import FREE, is_fusible, stored_values
from ...graph import Graph, Node
from ...stitch.block_cuts import Cut, operand_cut


class OperandRead(NamedTuple):
    """A value and the way to it: the reader and its operand's position, then the views in between."""

    source: int
    way: tuple[tuple[Node, int], ...]


class Scattered(NamedTuple):
    """Of a value that no block owns, since its readers do not agree on blocks: they evaluate it again.

    ``places``: how many; ``stretched``: there once for each element that it is broadcast to.
    """

    places: int
    stretched: bool


class OperandReads:
    """The operations of a graph that kernels hold, what each reads and who reads it.

    ``stored`` are values that libraries or the caller read. A stored view is an operation: somebody must write it.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.stored = stored_values(graph)
        self.operations = [n.id for n in graph.nodes if is_fusible(n) and (n.op not in FREE or n.id in self.stored)]
        self.of = {op: tuple(self._read(graph[op], p) for p in range(len(graph[op].args))) for op in self.operations}
        self.readers: dict[int, list[int]] = {op: [] for op in self.operations}
        for op in self.operations:
            for source in self.sources(op):
                self.readers[source].append(op)

    def _read(self, reader: Node, position: int) -> OperandRead:
        way, source = [(reader, position)], reader.args[position]
        while self.graph[source].op in FREE:
            way.append((self.graph[source], 0))
            source = self.graph[source].args[0]
        return OperandRead(source, tuple(way))

    def sources(self, op: int) -> list[int]:
        """The operations that one reads, each once."""
        return [s for s in dict.fromkeys(r.source for r in self.of[op]) if s in self.readers]

    def arguments(self, op: int) -> set[int]:
        """The values that one reads from memory when nothing is fused into it."""
        return {r.source for r in self.of[op] if self.graph[r.source].op not in ("constant", "iota")}

    def asked(self, way: Iterable[tuple[Node, int]], cut: Cut | Scattered) -> Cut | Scattered:
        """What a reader that is cut so asks of the value at the end of a way."""
        for node, position in way:
            shape = self.graph[node.args[position]].type.shape
            stretches = node.op == "gather" or (node.op == "broadcast" and shape != node.type.shape)
            if isinstance(cut, Scattered):
                cut = Scattered(cut.places, cut.stretched or stretches)
            else:
                cut = operand_cut(node, position, shape, cut) or Scattered(1, stretches)
        return cut
