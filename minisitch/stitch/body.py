"""A pattern as a program of its own.

In:  a ``Graph`` and one ``Pattern`` of its plan. Out: a ``Body``, whose graph ``stitch`` gets.

Equal layers of a program have equal bodies. So their kernel is stitched, scheduled and compiled
once.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..fuse import GENERATED, Decision, Pattern, read_in_place
from ..graph import Graph, Ids, Node, id_list


@dataclass(frozen=True)
class Body:
    """A pattern cut out of its graph and renumbered. Equal patterns have equal bodies.

    ``graph`` has one input for each value the pattern reads, and returns the pattern's outputs.
    ``inputs`` and ``outputs`` are these values' ids in the whole graph, and ``origin`` is every
    node's.
    """

    graph: Graph
    inputs: Ids
    outputs: Ids
    origin: Ids

    def __str__(self) -> str:
        """The body's own program, each line with the id it has in the whole graph."""
        lines = [f"{str(node).partition('  # ')[0]:<64}  # %{whole} of the whole"
                 for node, whole in zip(self.graph.nodes, self.origin, strict=True)]
        return "\n".join([*lines, f"return {id_list(self.graph.outputs)}"])

    def in_whole(self, text: str) -> str:
        """A sentence about the body with the ids of the whole graph: ``%3`` becomes ``%17``."""
        return re.sub(r"%(\d+)",
                      lambda found: f"%{self.origin[int(found[1])]}", text)

    def decisions_in_whole(self, decisions: Iterable[Decision]) -> tuple[Decision, ...]:
        """Decisions about the body, with the ids of the whole graph."""
        return tuple(replace(d, at=tuple(self.origin[i] for i in d.at), why=self.in_whole(d.why))
                     for d in decisions)


def extract(graph: Graph, pattern: Pattern) -> Body:
    """Cut a pattern out as a graph whose ids start at zero.

    A constant is placed where the body first reads it, not by its id. Otherwise a constant that
    equal layers share would come at different places in their bodies, and these would differ.

    Before:  pattern {%7 = exp %5, %8 = neg %7} of a 90-node graph
    After:   %0 = input, %1 = exp %0, %2 = neg %1, return %2
    """
    number: dict[int, int] = {}
    nodes: list[Node] = []

    def place(value: int, node: Node) -> None:
        if value not in number:
            number[value] = len(nodes)
            args = tuple(number[a] for a in node.args)
            nodes.append(replace(node, id=len(nodes), args=args))

    inside = set(pattern.members)
    for member in pattern.members:
        if graph[member].op in GENERATED and member not in pattern.outputs:
            continue  # until a node reads it
        for value in (*graph[member].args, member):
            memory = value if value in inside else read_in_place(graph, value)
            place(memory, graph[memory] if memory in inside else Node(0, "input", (), graph[memory].type))
            if memory != value:
                place(value, replace(graph[value], args=(memory,)))
    outputs = tuple(number[o] for o in pattern.outputs)
    origin = tuple(number)
    inputs = tuple(origin[node.id] for node in nodes if node.op == "input")
    return Body(Graph(tuple(nodes), outputs), inputs, pattern.outputs, origin)
