"""Who reads what with views seen through, and which blocks of a value its readers ask for.

In:  a graph. Out: ``Reads``: the operations that kernels are made of, and the way from each to what it reads.

Views (reshape, broadcast, transpose, slice) are never fused or scheduled: whoever reads through one computes
another index. That is the paper's bypass of trivial operations: their strict rules refuse nothing by themselves,
only where a block would need another block's *kept* value.

Before:  %1 = sum %0; %2 = broadcast %1; %3 = div %0 %2, cut by rows     After:  %1 is asked for by rows, %0 too
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...fuse import FREE, is_fusible, stored_values
from ...graph import Graph, Node
from ...triples import Cut, operand_cut


@dataclass(frozen=True)
class Read:
    """A value and the way to it: the reader and its operand's position, then the views in between."""

    source: int
    way: tuple[tuple[Node, int], ...]


# A value whose readers do not agree on blocks is owned by none: whoever reads it evaluates it again. ``blocks`` counts
# the places; stretched means evaluated once for each element it is broadcast to.
SCATTERED, STRETCHED = Cut("scattered", 1), Cut("stretched", 1)


def is_owned(cut: Cut) -> bool:
    """Does each element belong to one block?"""
    return cut.kind in ("row", "column")


class Reads:
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
        self._asked: dict[tuple[int, int, Cut], Cut] = {}

    def _read(self, reader: Node, position: int) -> Read:
        way, source = [(reader, position)], reader.args[position]
        while self.graph[source].op in FREE:
            way.append((self.graph[source], 0))
            source = self.graph[source].args[0]
        return Read(source, tuple(way))

    def sources(self, op: int) -> list[int]:
        """The operations that one reads, each once."""
        return [s for s in dict.fromkeys(r.source for r in self.of[op]) if s in self.readers]

    def arguments(self, op: int) -> set[int]:
        """The values that one reads from memory when nothing is fused into it."""
        return {r.source for r in self.of[op] if self.graph[r.source].op not in ("constant", "iota")}

    def asked(self, read: Read, cut: Cut) -> Cut:
        """The cut of a read's source by a reader that is cut so."""
        reader, position = read.way[0]
        if len(read.way) == 1 and reader.kind == "map":
            return cut
        key = (reader.id, position, cut)
        if key not in self._asked:
            self._asked[key] = self.through(read.way, cut)
        return self._asked[key]

    def through(self, way: Iterable[tuple[Node, int]], cut: Cut) -> Cut:
        """A cut after some steps of a way."""
        for node, position in way:
            shape = self.graph[node.args[position]].type.shape
            stretches = node.op == "gather" or (node.op == "broadcast" and shape != node.type.shape)
            passed = operand_cut(node, position, shape, cut) if is_owned(cut) else None
            if passed is None:
                places = 1 if is_owned(cut) else cut.blocks
                passed = (STRETCHED if stretches or cut.kind == "stretched" else SCATTERED)._replace(blocks=places)
            cut = passed
        return cut
