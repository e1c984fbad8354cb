"""A program ready to run: a flat list of steps over one workspace a thread, written out as one function.

In:  the stages of a program. Out: an ``Executable``, called with the array leaves of the arguments.

Nothing returned shares memory with an argument, the workspace or another result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..fuse import FREE, behind_views, view_source
from ..graph import Graph, Node
from ..lower import Stages
from ..reference import Array, evaluate
from ..trace import Program
from ..trace.recorder import refuse
from ..trace.tree import unflatten
from .call import Call, Workspace, ready, write_call
from .memory import Resident, Slot
from .pool import fresh
from .steps import Step, view


# ---------------------------------------------------------------- the executable
@dataclass(frozen=True)
class IndexCheck:
    """Kernels clamp indices; an index that comes straight from an argument is checked before they run."""

    source: int  # position among the inputs
    chain: tuple[Node, ...]
    low: int
    high: int
    label: str
    axis: int

    def __call__(self, array: Array) -> None:
        """Raises IndexError as NumPy does, naming the line."""
        index = view(self.chain, array)
        if index.size and (index.max() >= self.high or index.min() < self.low):
            bad = int(index[(index >= self.high) | (index < self.low)].flat[0])
            raise IndexError(f"index {bad} is out of bounds for axis {self.axis} with size {self.high} (in {self.label})")


def index_checks(graph: Graph) -> tuple[IndexCheck, ...]:
    """A check for each gather whose index is an argument, wrapped around or not."""
    position = {node: i for i, node in enumerate(graph.inputs)}
    checks = []
    for node in graph.nodes:
        if node.op not in ("gather", "scatter"):
            continue
        sizes = [graph[node.args[0]].type.shape[a] for a in node.attr("axes")]
        for index, axis, size in zip(node.args[-len(sizes):], node.attr("axes"), sizes, strict=True):
            source, moves, wraps = _index_source(graph, index, size)
            if source in position:
                chain = (graph[source], *moves)
                checks.append(IndexCheck(position[source], chain, -size if wraps else 0, size, node.where or f"%{node.id}", axis))
    return tuple(dict.fromkeys(checks))


def _index_source(graph: Graph, index: int, size: int) -> tuple[int, list[Node], bool]:
    """Back through moves, casts that keep the value and ``select(i < 0, i + n, i)``: the source, the moves on the way, whether it
    wraps."""
    moves: list[Node] = []
    wraps = False
    while True:
        node = graph[index]
        if node.op in FREE:
            moves.insert(0, node)
            index = node.args[0]
        elif node.op == "cast" and np.can_cast(source := graph[node.args[0]].type.dtype, node.type.dtype) and source != "bool":
            index = node.args[0]
        elif node.op == "select" and _wraps_around(graph, node, size):
            wraps, index = True, node.args[2]
        else:
            return index, moves, wraps


def _wraps_around(graph: Graph, node: Node, size: int) -> bool:
    """``select(i < 0, i + size, i)``, and not another choice, as of what a label of -100 stands for."""
    def is_number(value: int, number: int) -> bool:
        made = graph[behind_views(graph, value)]
        return made.op == "constant" and made.attr("value") == number

    negative, around, index = (graph[a] for a in node.args)
    return (negative.op == "lt" and negative.args[0] == index.id and is_number(negative.args[1], 0)
            and around.op == "add" and index.id in around.args and any(is_number(a, size) for a in around.args))


@dataclass(frozen=True)
class Executable:
    """A program ready to run. ``slots`` is its memory, ``steps`` what it does, both fixed; a workspace is one a thread."""

    stages: Stages
    target: str
    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    workspace: int  # bytes
    residents: tuple[Resident, ...] = ()  # what shares them
    checks: tuple[IndexCheck, ...] = ()

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """Run on the array leaves of the arguments, in order; gives back the user's nest of results."""
        return self.call.function(leaves)

    def outputs(self, leaves: Sequence[Any]) -> list[Array]:
        """One array an output of the graph; writes nothing back into the arguments."""
        return self.call.function(leaves, nested=False)

    def write_to(self, outputs: Sequence[Array], leaves: Sequence[Any]) -> None:
        """As ``outputs``, into C-ordered arrays that are there already."""
        self.call.function(leaves, False, outputs)

    @functools.cached_property
    def call(self) -> Call:
        """What a call does, written out."""
        return write_call(self.stages.program, self.slots, self.steps, self.checks, self.workspace, refuse_overlap)

    def prepare(self, leaves: Sequence[Any]) -> tuple[list[Array], list[Callable[[], Any]]]:
        """A call taken apart, to be timed: the flat array of every slot, and one call a step. Raises IndexError.

        To be run in order: values share bytes, so a step alone may find its operands overwritten, by itself, too.
        """
        inputs, workspace = iter([*leaves, *self.stages.program.outside(leaves)]), Workspace().of(self.workspace)
        arrays = [ready(next(inputs), s.dtype).reshape(-1) if s.place == "input" else
                  fresh((s.size,), s.dtype) if s.place == "output" else
                  workspace[s.index:s.index + s.size * s.dtype.itemsize].view(s.dtype) for s in self.slots]
        for check in self.checks:
            check(arrays[check.source])
        return arrays, [step.bind(arrays) for step in self.steps]


@dataclass(frozen=True)
class ReferenceExecutable:
    """The program run by ``reference.evaluate``, node by node."""

    program: Program

    def __call__(self, leaves: Sequence[Any]) -> Any:
        program = self.program
        inputs = [np.asarray(x) for x in (*leaves, *program.outside(leaves))]
        for check in index_checks(program.graph):
            check(inputs[check.source].reshape(-1))
        if program.mutated:
            refuse_overlap(program, leaves)
        return finish(program, leaves, [np.array(r) for r in evaluate(program.graph, inputs)])


def finish(program: Program, leaves: Sequence[Any], results: Sequence[Array]) -> Any:
    """Write back what the program changed in place, and nest the results as the user did; scalars as NumPy has them."""
    program.check(results)
    for source, output in program.mutated:
        np.copyto(leaves[source], results[output])
    return unflatten(program.outputs, results)


def refuse_overlap(program: Program, leaves: Sequence[Any]) -> None:
    """Arguments that a program writes into must not share memory with others: it read them before it wrote.

    Raises TraceError naming the two, and the user's line of the call.
    """
    arrays = [np.asarray(x) for x in (*leaves, *program.outside(leaves))]
    for source, _ in program.mutated:
        for other, array in enumerate(arrays):
            if other != source and np.may_share_memory(arrays[source], array) and np.shares_memory(arrays[source], array):
                names = [dict(program.graph[i].attrs).get("name", f"%{i}") for i in program.graph.inputs]
                raise refuse(f"{names[source]} is written to and shares memory with {names[other]}",
                             "a compiled program cannot follow that", "Write f(x, x.copy()): pass a copy of one of them")


def view_chain(graph: Graph, value: int) -> tuple[Node, ...]:
    """The value in memory that ``value`` is a view of, then the moves from there to it."""
    chain, source = [], view_source(graph, value)
    while value != source:
        chain.append(graph[value])
        value = graph[value].args[0]
    return (graph[source], *reversed(chain))
