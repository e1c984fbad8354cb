"""Bodies that read only windows of values in memory.

In:  a ``Body``. Out: a ``WindowBody``. An input that is only read in windows becomes the part of
its value that these cover.

So the steps of an unrolled loop have equal bodies, although each reads another ``x[t]``, or
``x[t]`` and ``x[t + 1]``. Their kernel is stitched, scheduled and compiled once.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..fuse import Pattern
from ..graph import Graph, Node, Shape
from .body import Body, extract


@dataclass(frozen=True)
class WindowBody(Body):
    """A body whose kernel sees each input from an element on. ``offsets`` has one an input."""

    offsets: tuple[int, ...]


def body_of(graph: Graph, pattern: Pattern) -> WindowBody:
    """The body of a pattern of kind ``kernel``, with windows.

    A pipeline has none, since its products need whole operands. Its body is what ``extract`` makes.
    """
    return read_in_windows(extract(graph, pattern))


def read_in_windows(body: Body) -> WindowBody:
    """Let each input that is only read in windows begin at the first of them.

    Before:  %0 = input of [6,8]; %1 and %2 are its rows 2 and 3
    After:   %0 = input length=16; %1 and %2 are its rows 0 and 1; the offset is 16, two rows

    Ids stay. An input stays as it is if different windows begin at its first element.
    """
    graph, nodes, offsets = body.graph, list(body.graph.nodes), []
    for memory in graph.inputs:
        offsets.append(0)
        slices = [graph[user] for user in graph.users[memory]]
        if not slices or not all(map(_is_window, slices)) or memory in graph.outputs:
            continue
        shape, starts = graph[memory].type.shape, [node.attr("start") for node in slices]
        start = tuple(map(min, zip(*starts, strict=True)))
        first = int(np.ravel_multi_index(start, shape))
        if first or len(set(starts)) == 1:
            offsets[-1] = first
            last = max(int(np.ravel_multi_index(_last_element(node), shape)) for node in slices)
            nodes[memory] = replace(graph[memory], attrs=(("length", last + 1 - first),))
            for node in slices:
                moved = tuple(a - b for a, b in zip(node.attr("start"), start, strict=True))
                attrs = {**node.attributes, "start": moved}
                nodes[node.id] = replace(node, attrs=tuple(sorted(attrs.items())))
    moved_graph = Graph(tuple(nodes), graph.outputs)
    return WindowBody(moved_graph, body.inputs, body.outputs, body.origin, tuple(offsets))


def _is_window(node: Node) -> bool:
    """Whether a node reads a part of its operand, forwards, and at least one element."""
    return node.op == "slice" and min(node.attr("step"), default=0) >= 1 and node.type.size > 0


def _last_element(node: Node) -> Shape:
    """The position of the last element that a slice reads."""
    each = zip(*map(node.attr, ("start", "size", "step")), strict=True)
    return tuple(start + (size - 1) * step for start, size, step in each)
