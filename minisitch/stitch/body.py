"""A pattern as a program of its own.

In:  a ``Graph`` and one ``Pattern`` of its plan. Out: a ``Body``, whose graph ``stitch`` gets.

Equal layers of a program have equal bodies. So their kernel is stitched, scheduled and compiled
once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..fuse import GENERATED, Decision, Pattern, read_in_place
from ..graph import Graph, Ids, Node, Shape, id_list


@dataclass(frozen=True)
class Body:
    """A pattern cut out of its graph and renumbered. Equal patterns have equal bodies.

    ``graph`` has one input for each value the pattern reads, and returns the pattern's outputs.
    ``inputs`` and ``outputs`` are these values' ids in the whole graph, and ``origin`` is every
    node's. ``offsets``: the kernel sees each input from this element on.
    """

    graph: Graph
    inputs: Ids
    outputs: Ids
    origin: Ids
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        """The body's own program, each line with the id it has in the whole graph."""
        lines = [f"{str(node).partition('  # ')[0]:<64}  # %{whole} of the whole"
                 for node, whole in zip(self.graph.nodes, self.origin, strict=True)]
        return "\n".join([*lines, f"return {id_list(self.graph.outputs)}"])

    def in_whole(self, text: str) -> str:
        """A sentence about the body with the ids of the whole graph: ``%3`` becomes ``%17``."""
        return re.sub(r"%(\d+)", lambda found: f"%{self.origin[int(found[1])]}", text)

    def decisions_in_whole(self, decisions: Iterable[Decision]) -> tuple[Decision, ...]:
        """Decisions about the body, with the ids of the whole graph."""
        whole = self.origin
        return tuple(replace(d, at=tuple(whole[i] for i in d.at), why=self.in_whole(d.why)) for d in decisions)


def extract(graph: Graph, pattern: Pattern) -> Body:
    """Cut a kernel pattern out as a graph whose ids start at zero.

    A constant is placed where the body first reads it, not by its id. Otherwise a constant that
    equal layers share would come at different places in their bodies, and these would differ. If a
    value in memory is only read in windows, the body's input is that part of it (``_windows``).

    Before:  pattern {%7 = exp %5, %8 = neg %7} of a 90-node graph
    After:   %0 = input, %1 = exp %0, %2 = neg %1, return %2
    """
    number: dict[int, int] = {}
    nodes: list[Node] = []
    inside = set(pattern.members)
    # the products of a pipeline need whole operands, so it has no windows
    windows = _windows(graph, pattern) if pattern.kind == "kernel" else {}

    def append(value: int, node: Node) -> None:
        number[value] = len(nodes)
        args = tuple(number[a] for a in node.args)
        nodes.append(Node(len(nodes), node.op, args, node.type, node.attrs, node.where, node.via))

    for member in pattern.members:
        node = graph[member]
        if node.op in GENERATED and member not in pattern.outputs:
            continue
        for arg in node.args:
            if arg in inside:
                if arg not in number:  # a constant or an iota: these were skipped above until now
                    append(arg, graph[arg])
                continue
            memory = read_in_place(graph, arg)
            window = windows.get(memory)
            if memory not in number:
                length = (("length", window.length),) if window else ()
                append(memory, Node(0, "input", (), graph[memory].type, length))
            if arg not in number:
                seen = graph[arg].type
                append(arg, Node(0, "reshape", (memory,), seen, (("shape", seen.shape),)))
            if window:  # the reader is a slice
                moved = tuple(a - b for a, b in zip(node.attr("start"), window.start, strict=True))
                node = replace(node, attrs=tuple(sorted({**node.attributes, "start": moved}.items())))
        if member not in number:
            append(member, node)
    outputs, origin = tuple(number[o] for o in pattern.outputs), tuple(number)
    inputs = tuple(origin[node.id] for node in nodes if node.op == "input")
    offsets = tuple(windows[memory].first if memory in windows else 0 for memory in inputs)
    return Body(Graph(tuple(nodes), outputs), inputs, pattern.outputs, origin, offsets)


class ReadWindow(NamedTuple):
    """The part of a value in memory that a pattern reads."""

    first: int  # elements before it
    length: int  # elements from there to its end
    start: Shape  # the position of its first element


def _windows(graph: Graph, pattern: Pattern) -> dict[int, ReadWindow]:
    """The values in memory that a pattern reads only in windows.

    With these the steps of an unrolled loop have equal bodies, although each reads another
    ``x[t]``, or ``x[t]`` and ``x[t + 1]``.
    """
    inside = set(pattern.members)
    read: dict[int, list[tuple[Node, Shape]]] = {}
    for member in pattern.members:
        node = graph[member]
        for arg in node.args:
            if arg not in inside:
                read.setdefault(read_in_place(graph, arg), []).append((node, graph[arg].type.shape))
    found = {}
    for memory, slices in read.items():
        shape = slices[0][1]
        alike = all(other == shape and _is_window(node) for node, other in slices)
        if memory in inside or not alike:
            continue
        starts = [node.attr("start") for node, _ in slices]
        start = tuple(map(min, zip(*starts, strict=True)))
        first = int(np.ravel_multi_index(start, shape))
        if first or all(each == start for each in starts):
            last = max(np.ravel_multi_index(_last_element(node), shape) for node, _ in slices)
            found[memory] = ReadWindow(first, int(last) + 1 - first, start)
    return found


def _is_window(node: Node) -> bool:
    """Whether a node reads a part of its operand, forwards, and at least one element."""
    return node.op == "slice" and min(node.attr("step"), default=0) >= 1 and node.type.size > 0


def _last_element(node: Node) -> Shape:
    """The position of the last element that a slice reads."""
    each = zip(*map(node.attr, ("start", "size", "step")), strict=True)
    return tuple(start + (size - 1) * step for start, size, step in each)
