"""Which operation reads which, through views, and which blocks of a value its readers need.

In:  a graph. Out: ``OperandReads``: the operations that kernels hold, and the path to each operand.

Views (reshape, broadcast, transpose, slice) are never fused or scheduled. A reader computes another
index instead. The paper calls this the bypass of trivial operations. A view alone refuses nothing.
Only a block that needs another block's *kept* value does.

Before:  %1 = sum %0; %2 = broadcast %1; %3 = div %0 %2, cut by rows
After:   %1 is asked for by rows, %0 too
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...fuse import GENERATED, VIEWS, operations_of, stored_values
from ...graph import Graph, Node
from .block_cuts import Cut, operand_cut


class OperandRead(NamedTuple):
    """A value and the path to it: the reader with the operand's position, then views."""

    source: int
    way: tuple[tuple[Node, int], ...]


class Scattered(NamedTuple):
    """The cut of a value that no block owns, because its readers ask for different cuts.

    Readers evaluate it again, at ``places`` places. ``stretched``: one of them is a broadcast or a
    gather, and would evaluate it once for each copy.
    """

    places: int
    stretched: bool


class OperandReads:
    """The operations that kernels hold, what each reads, and its readers.

    ``stored`` are values that libraries or the caller read. A stored view is an operation too,
    because it must be written.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.stored = stored_values(graph)
        self.operations = operations_of(graph)
        self.of = {op: tuple(self._read(graph[op], p) for p in range(len(graph[op].args)))
                   for op in self.operations}
        self.readers: dict[int, list[int]] = {op: [] for op in self.operations}
        for op in self.operations:
            for source in self.sources(op):
                self.readers[source].append(op)

    def _read(self, reader: Node, position: int) -> OperandRead:
        way, source = [(reader, position)], reader.args[position]
        while self.graph[source].op in VIEWS:
            way.append((self.graph[source], 0))
            source = self.graph[source].args[0]
        return OperandRead(source, tuple(way))

    def sources(self, op: int) -> list[int]:
        """The operations that one reads, each once."""
        return [s for s in dict.fromkeys(r.source for r in self.of[op]) if s in self.readers]

    def arguments(self, op: int) -> set[int]:
        """The values that an operation reads from memory if nothing is fused into it."""
        return {r.source for r in self.of[op] if self.graph[r.source].op not in GENERATED}

    def asked(self, way: Iterable[tuple[Node, int]], cut: Cut | Scattered) -> Cut | Scattered:
        """The cut that a reader with this cut needs of the value at the end of a path."""
        for node, position in way:
            shape = self.graph[node.args[position]].type.shape
            stretches = node.op == "gather" or (node.op == "broadcast" and shape != node.type.shape)
            if isinstance(cut, Scattered):
                cut = Scattered(cut.places, cut.stretched or stretches)
            else:
                cut = operand_cut(node, position, shape, cut) or Scattered(1, stretches)
        return cut
