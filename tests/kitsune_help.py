"""What the tests of Kitsune's pipelines share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from minisitch.device import DEVICES
from minisitch.graph import Graph, Node, TensorType
from minisitch.strategies.kitsune.tiles import FINAL, FOLD, Tiling, resized
from minisitch.trace.builder import Builder

A100 = DEVICES["a100"]
CENTRED = """%0: f32[512,64] = input name='x'
%1: f32[64,32] = input name='w'
%2: f32[512,32] = matmul %0 %1
%3: f32[1,1] = sum %2 axes=(0, 1) keepdims=True
%4: f32[512,32] = broadcast %3 shape=(512, 32)
%5: f32[512,32] = sub %2 %4
return %5"""


@st.composite
def layers(draw):
    """Programs of products and what stands between them: linear layers, scores, gradients, sums over rows and over columns.

    Random programs of everything hardly ever hold two products that meet.
    """
    b = Builder()
    sides = st.sampled_from((2, 3, 4))
    rows = draw(sides)
    values = [b.add("input", type=TensorType((rows, draw(sides)), "float32"), name="x")]
    kinds = ["linear", "linear", "tanh", "scores", "gradient", "add", "column sums", "less row maximum", "less column sum"]

    def like(value):
        return [v for v in values if b.type(v) == b.type(value)]

    first = draw(st.sampled_from([["linear"], ["linear", "less column sum"]]))
    for number, kind in enumerate([*first, *draw(st.lists(st.sampled_from(kinds), min_size=3, max_size=6))]):
        x = draw(st.sampled_from(values[-2:]))
        height, width = b.type(x).shape
        y = draw(st.sampled_from(like(x)))
        if kind == "linear":
            weight = b.add("input", type=TensorType((width, draw(sides)), "float32"), name=f"w{number}")
            made = b.add("matmul", [x, weight])
        elif kind == "scores":
            made = b.add("matmul", [x, b.add("transpose", [y], perm=(1, 0))])
        elif kind == "gradient":
            made = b.add("matmul", [b.add("transpose", [x], perm=(1, 0)), y])
        elif kind == "tanh":
            made = b.add("tanh", [x])
        elif kind == "add":
            made = b.add("add", [x, y])
        elif kind == "column sums":
            made = b.add("sum", [x], axes=(0,), keepdims=True)
        else:  # what is subtracted is complete within a tile of rows, or only after the last of them
            op, axis = ("max", 1) if kind == "less row maximum" else ("sum", 0)
            reduced = b.add(op, [x], axes=(axis,), keepdims=True)
            made = b.add("sub", [x, b.add("broadcast", [reduced], shape=(height, width))])
        values.append(made)
    return b.finish(dict.fromkeys([values[-1], draw(st.sampled_from(values[1:]))]))


def part(found, node, array, first, last):
    """A tile's part of a value, as a view."""
    axis = found.axes[node]
    if axis is None or axis < 0:
        return array
    each = array.shape[axis] // found.units
    return array[(slice(None),) * axis + (slice(first * each, last * each),)]


def gated(x, w, v):
    return (x @ w) * np.exp(x @ v)


# ---------------------------------------------------------------- the tiles of a cut as programs, to be run by the reference
def at_tile(found: Tiling, units: int) -> Graph:
    """The program for a tile of ``units`` units: the tiled outputs, then the parts of folds."""
    small = Graph(tuple(resized(n, found, units) for n in found.graph.nodes), found.graph.outputs)
    return _program(small, (), (*tiled_outputs(found), *found.folded))


def after_tiles(found: Tiling) -> Graph:
    """The program after the last tile: what is made of folds. Its inputs are the graph's, then the folds."""
    return _program(found.graph, found.folded, complete_outputs(found))


def tiled_outputs(found: Tiling) -> list[int]:
    return [o for o in dict.fromkeys(found.graph.outputs) if found.tiled(o)]


def complete_outputs(found: Tiling) -> list[int]:
    return [o for o in dict.fromkeys(found.graph.outputs) if found.axes[o] in (FOLD, FINAL)]


def _program(graph: Graph, given: Sequence[int], results: Sequence[int]) -> Graph:
    """The program that makes ``results`` from the graph's inputs and the given values."""
    needed, nodes, number = _needed(graph, results, given), list[Node](), dict[int, int]()
    for node in [*(graph[i] for i in (*graph.inputs, *given)), *(n for n in graph.nodes if n.id in needed)]:
        if node.id not in number:
            number[node.id] = len(nodes)
            nodes.append(Node(len(nodes), "input", (), node.type) if node.id in given else
                         replace(node, id=len(nodes), args=tuple(number[a] for a in node.args)))
    return Graph(tuple(nodes), tuple(number[r] for r in results))


def _needed(graph: Graph, results: Sequence[int], stop: Collection[int] = ()) -> set[int]:
    found, pending = set(results), [r for r in results if r not in stop]
    while pending:
        for arg in graph[pending.pop()].args:
            if arg not in found:
                found.add(arg)
                if arg not in stop:
                    pending.append(arg)
    return found
