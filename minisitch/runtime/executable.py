"""A program ready to run: a list of steps over one workspace for each thread.

In:  the stages of a program. Out: an ``Executable``, called with the array leaves of the arguments.

Results share no memory with an argument, the workspace or each other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import GraphError
from ..errors.lazy import lazy
from ..fuse import VIEWS, behind_views, count, view_source
from ..graph import Graph, Node
from ..lower import Stages
from ..reference import Array, evaluate
from ..trace import Program, Unlike
from ..trace.recorder import refuse
from ..trace.tree import flatten, refuse_other_meanings, unflatten
from .call import Call, Workspace, ready, write_call
from .memory import Resident, Slot
from .pool import fresh
from .steps import Step, view


# ---------------------------------------------------------------- the executable
@dataclass(frozen=True)
class IndexCheck:
    """Checks the bounds of an index that comes from an argument. Kernels only clamp indices."""

    source: int  # position among the inputs
    chain: tuple[Node, ...]
    low: int
    high: int
    label: str
    axis: int

    def __call__(self, array: Array) -> None:
        """Raises IndexError as NumPy does, with the user's line."""
        index = view(self.chain, array)
        if index.size and (index.max() >= self.high or index.min() < self.low):
            bad = int(index[(index >= self.high) | (index < self.low)].flat[0])
            error = IndexError(f"index {bad} is out of bounds for axis {self.axis} with size {self.high} (in {self.label})")
            error.of_the_call = True  # type: ignore[attr-defined]  # ``trace.tracebacks`` takes our frames off
            raise error


def index_checks(graph: Graph) -> tuple[IndexCheck, ...]:
    """A check for each gather or scatter whose index is an argument, perhaps wrapped around."""
    position = {node: i for i, node in enumerate(graph.inputs)}
    checks = []
    for node in graph.nodes:
        if node.op not in ("gather", "scatter"):
            continue
        sizes = [graph[node.args[0]].type.shape[a] for a in node.attr("axes")]
        for index, axis, size in zip(node.args[-len(sizes):], node.attr("axes"), sizes,
                                     strict=True):
            source, moves, wraps = _index_source(graph, index, size)
            if source in position:
                chain = (graph[source], *moves)
                checks.append(IndexCheck(position[source], chain, -size if wraps else 0, size,
                                         node.where or f"%{node.id}", axis))
    return tuple(dict.fromkeys(checks))


def _index_source(graph: Graph, index: int, size: int) -> tuple[int, list[Node], bool]:
    """The source of an index: through views, widening casts and ``select(i < 0, i + n, i)``.

    Returns the source, the views after it, and whether negative indices wrap around.
    """
    moves: list[Node] = []
    wraps = False
    while True:
        node = graph[index]
        if node.op in VIEWS:
            moves.insert(0, node)
            index = node.args[0]
        elif node.op == "cast" and np.can_cast(source := graph[node.args[0]].type.dtype,
                                               node.type.dtype) and source != "bool":
            index = node.args[0]
        elif node.op == "select" and _wraps_around(graph, node, size):
            wraps, index = True, node.args[2]
        else:
            return index, moves, wraps


def _wraps_around(graph: Graph, node: Node, size: int) -> bool:
    """Whether the node is ``select(i < 0, i + size, i)``, and no other choice."""
    def is_number(value: int, number: int) -> bool:
        made = graph[behind_views(graph, value)]
        return made.op == "constant" and made.attr("value") == number

    negative, around, index = (graph[a] for a in node.args)
    return (negative.op == "lt" and negative.args[0] == index.id and is_number(negative.args[1], 0)
            and around.op == "add" and index.id in around.args
            and any(is_number(a, size) for a in around.args))


@dataclass(frozen=True)
class Executable:
    """A program ready to run. ``slots`` is its memory, ``steps`` are what it does."""

    stages: Stages
    target: str
    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    workspace: int  # bytes
    residents: tuple[Resident, ...] = ()  # the entries of the workspace
    checks: tuple[IndexCheck, ...] = ()

    def __repr__(self) -> str:
        plan = self.stages.plan
        found = {"kernel": plan.kernels, "library call": plan.library_calls,
                 "pipeline": plan.pipelines}
        made = ", ".join(count(len(found[what]), what) for what in found if found[what])
        return f"<executable of {plan.strategy} for {self.target}: {made or 'no kernel'}>"

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """Run on the array leaves of the arguments. Returns the user's nest of results.

        Raises as ``require_shapes`` does.
        """
        require_shapes(self.stages.program, leaves)
        return self.run(leaves)

    def run(self, leaves: Sequence[Any]) -> Any:
        """The same for leaves of the right shapes, as ``jit`` has them. Others are not noticed."""
        return self.call.function(leaves)

    def outputs(self, leaves: Sequence[Any]) -> list[Array]:
        """Run, and return the graph's outputs in a list. Arguments are not written to.

        Raises as ``require_shapes`` does.
        """
        require_shapes(self.stages.program, leaves)
        return self.call.function(leaves, nested=False)

    @lazy
    def call(self) -> Call:
        """The call as one function, with its text."""
        return write_call(self.stages.program, self.slots, self.steps, self.checks, self.workspace,
                          refuse_overlap)

    def prepare(self, leaves: Sequence[Any]) -> tuple[list[Array], list[Callable[[], Any]]]:
        """The parts of a call, for timing: the flat arrays of all slots, a function for each step.

        Run the steps in order. Values share bytes, so a step may find its operands overwritten if
        it runs alone or twice. Raises IndexError as a call does.
        """
        require_shapes(self.stages.program, leaves)
        inputs, workspace = iter([*leaves, *self.stages.program.outside(leaves)]), Workspace().of(self.workspace)
        arrays = [ready(next(inputs), s.dtype).reshape(-1) if s.place == "input" else
                  fresh((s.size,), s.dtype) if s.place == "output" else
                  workspace[s.index:s.index + s.nbytes].view(s.dtype) for s in self.slots]
        for check in self.checks:
            check(arrays[check.source])
        return arrays, [step.bind(arrays) for step in self.steps]


@dataclass(frozen=True, repr=False)
class ReferenceExecutable:
    """A program that ``reference.evaluate`` runs, node by node."""

    program: Program

    def __call__(self, leaves: Sequence[Any]) -> Any:
        program = self.program
        inputs = [np.asarray(x) for x in (*leaves, *program.outside(leaves))]
        for check in index_checks(program.graph):
            check(inputs[check.source].reshape(-1))
        refuse_overlap(program, leaves)
        try:
            results = evaluate(program.graph, inputs)
        except ValueError as error:  # NumPy's own of values, where a kernel goes on: an integer to a negative power
            if not program.unlike:
                raise
            raise Unlike(str(error)) from None
        return finish(program, leaves, [np.array(r) for r in results])

    run = __call__  # NumPy notices other shapes


@dataclass(frozen=True, repr=False)
class NumpyExecutable:
    """A program that would take too long to compile. The user's function runs as it is.

    ``function()`` is that function. Results share no memory with an argument.
    """

    stages: Stages
    function: Callable[[], Callable[..., Any]]

    def __call__(self, leaves: Sequence[Any]) -> Any:
        for leaf in leaves:
            refuse_other_meanings(leaf)
        plain = [leaf if isinstance(leaf, np.ndarray | np.generic | int | float)
                 else np.asarray(leaf) for leaf in leaves]
        args, kwargs = unflatten(self.stages.program.inputs, plain)
        with np.errstate(all="ignore"):
            results, nest = flatten(self.function()(*args, **kwargs))
        return unflatten(nest, [np.array(x) if isinstance(x, np.ndarray) else x for x in results])

    run = __call__


def finish(program: Program, leaves: Sequence[Any], results: Sequence[Array]) -> Any:
    """Write arguments that the program changed, and nest the results as the user did."""
    program.check(results)
    for source, output in program.mutated:
        np.copyto(leaves[source], results[output])
    return unflatten(program.outputs, results)


def require_shapes(program: Program, leaves: Sequence[Any]) -> None:
    """Raise GraphError if these are not the arrays that a program takes, each in its shape.

    A kernel has no bounds of its own: it would read outside a smaller array.
    """
    graph = program.graph
    types = [graph[i].type for i in graph.inputs[:len(graph.inputs) - len(program.captured)]]
    if not isinstance(leaves, list | tuple) or [np.shape(leaf) for leaf in leaves] != [type_.shape for type_ in types]:
        given = [np.shape(leaf) for leaf in leaves] if isinstance(leaves, list | tuple) else type(leaves).__name__
        raise GraphError(f"the program takes a list of arrays [{', '.join(map(str, types))}], not {given}; give "
                         "each in its order and shape")


def refuse_overlap(program: Program, leaves: Sequence[Any]) -> None:
    """Refuse an argument that is written to and shares memory with another argument.

    A program reads all arguments before it writes. Raises TraceError with both names and the user's
    line. The same for an argument that must lie in C order and does not. Raises Unlike for one that
    is read-only: NumPy raises where it is first written to.
    """
    for source, where in program.in_rows:
        if not np.asarray(leaves[source]).flags.c_contiguous:
            name = program.graph[program.graph.inputs[source]].attributes.get("name")
            raise refuse(f"how the argument {name} lies in memory decides what NumPy does here",
                         "the program is compiled for arrays in C order, and this one is not",
                         f"Pass np.ascontiguousarray({name}); or write .copy() behind a reshape",
                         (where, ""))
    arrays = [np.asarray(x) for x in (*leaves, *program.outside(leaves))]
    for source, _ in program.mutated:
        if not arrays[source].flags.writeable:
            raise Unlike("an argument that is written to is read-only; pass a copy")
        for other, array in enumerate(arrays):
            if other != source and np.may_share_memory(arrays[source], array) and np.shares_memory(arrays[source], array):
                names = [dict(program.graph[i].attrs).get("name", f"%{i}")
                         for i in program.graph.inputs]
                with_what = names[other] if other < len(leaves) else "an array that the function reads from outside"
                raise refuse(f"{names[source]} is written to and shares memory with {with_what}",
                             "a compiled program cannot follow that",
                             "Write f(x, x.copy()): pass a copy of one of them")


def view_chain(graph: Graph, value: int) -> tuple[Node, ...]:
    """The stored value that ``value`` is a view of, then the views from there to ``value``."""
    chain, source = [], view_source(graph, value)
    while value != source:
        chain.append(graph[value])
        value = graph[value].args[0]
    return (graph[source], *reversed(chain))
