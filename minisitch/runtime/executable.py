"""A program ready to run: a flat list of steps over one workspace a thread.

In:  the stages of a program. Out: an ``Executable``, called with the array leaves of the arguments.

Nothing returned shares memory with an argument, the workspace or another result.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..device import Device
from ..errors import DeviceError, MinisitchError
from ..fuse import FREE, Pattern, view_source
from ..graph import Graph, Node
from ..reference import evaluate
from ..trace import Program
from ..trace.tree import unflatten
from .memory import ALIGNMENT, Layout, Resident, Slot
from .stages import Stages
from .steps import CopyStep, KernelStep, LibraryStep, Step, build_kernels, view

Array = np.ndarray
REUSED = (1 << 16, 1 << 26)  # bytes of results whose memory is taken again; below, the allocator does as well


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
            raise IndexError(f"index {bad} is out of bounds for axis {self.axis} with size {self.high} "
                             f"(in {self.label})")


def index_checks(graph: Graph) -> tuple[IndexCheck, ...]:
    """A check for each gather whose index is an argument, wrapped around or not."""
    position = {node: i for i, node in enumerate(graph.inputs)}
    checks = []
    for node in graph.nodes:
        if node.op not in ("gather", "scatter"):
            continue
        sizes = [graph[node.args[0]].type.shape[a] for a in node.attr("axes")]
        for index, axis, size in zip(node.args[-len(sizes):], node.attr("axes"), sizes, strict=True):
            source, moves, wraps = _index_source(graph, index)
            if source in position:
                chain = (graph[source], *moves)
                checks.append(IndexCheck(position[source], chain, -size if wraps else 0, size,
                                         node.where or f"%{node.id}", axis))
    return tuple(dict.fromkeys(checks))


def _index_source(graph: Graph, index: int) -> tuple[int, list[Node], bool]:
    """Back through moves, casts and ``select(i < 0, i + n, i)``: the source, the moves on the way, whether it wraps."""
    moves: list[Node] = []
    wraps = False
    while True:
        node = graph[index]
        if node.op in FREE:
            moves.insert(0, node)
            index = node.args[0]
        elif node.op == "cast" and graph[node.args[0]].type.dtype.startswith(("int", "uint")):
            index = node.args[0]
        elif node.op == "select" and graph[node.args[0]].op == "lt" and graph[node.args[0]].args[0] == node.args[2]:
            wraps, index = True, node.args[2]
        else:
            return index, moves, wraps


class Frame:
    """What one thread keeps between calls: its workspace as ``arrays`` (None for slots that are not in it), the
    calls ``bound`` of steps that touch nothing else, and large results that their users have dropped."""

    def __init__(self, arrays: list[Any], bound: list[Callable[[], Any] | None]) -> None:
        self.arrays, self.bound = arrays, bound
        self._results: dict[int, list[Array]] = {}

    def fresh(self, i: int, slot: Slot) -> Array:
        """Memory for a result that nobody else sees. The system clears new memory page by page, which can cost as
        much as the kernel, so two large arrays a result are kept and taken again once no one refers to them."""
        if not REUSED[0] <= slot.size * slot.dtype.itemsize <= REUSED[1]:
            return np.empty(slot.size, slot.dtype)
        kept = self._results.setdefault(i, [])
        for at in range(len(kept)):
            if sys.getrefcount(kept[at]) == 2:  # the list, and the call's own argument
                return kept[at]
        made = np.empty(slot.size, slot.dtype)
        self._results[i] = [*kept[-1:], made]
        return made


@dataclass(frozen=True)
class Executable:
    """A program ready to run. ``slots`` is its memory, ``steps`` what it does, both fixed; frames are one a thread."""

    stages: Stages
    target: str
    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    workspace: int  # bytes
    residents: tuple[Resident, ...] = ()  # what shares them
    checks: tuple[IndexCheck, ...] = ()
    _frames: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """Run on the array leaves of the arguments, in order; gives back the user's nest of results."""
        program = self.stages.program
        if program.mutated:
            _refuse_overlap(program, leaves)
        return _finish(program, leaves, self.outputs(leaves))

    def outputs(self, leaves: Sequence[Any]) -> list[Array]:
        """One array an output of the graph; writes nothing back into the arguments."""
        arrays, calls = self.prepare(leaves)
        with np.errstate(all="ignore") if self._calls_libraries else nullcontext():
            for call in calls:
                call()
        return [arrays[i].reshape(shape) for i, shape in self._results]

    def prepare(self, leaves: Sequence[Any]) -> tuple[list[Array], list[Callable[[], Any]]]:
        """The array of every slot, and one call a step; fresh memory for the results. Raises IndexError."""
        frame = self._frame()
        arrays = frame.arrays.copy()
        inputs = [*leaves, *self.stages.program.captured]
        for i, slot in self._inputs:
            arrays[i] = _flat(inputs[slot.index], slot.dtype)
        for check in self.checks:
            check(arrays[check.source])
        for i, slot in self._outputs:
            arrays[i] = frame.fresh(i, slot)
        return arrays, [call or step.bind(arrays) for call, step in zip(frame.bound, self.steps, strict=True)]

    @functools.cached_property
    def _inputs(self) -> list[tuple[int, Slot]]:
        return [(i, s) for i, s in enumerate(self.slots) if s.place == "input"]

    @functools.cached_property
    def _outputs(self) -> list[tuple[int, Slot]]:
        return [(i, s) for i, s in enumerate(self.slots) if s.place == "output"]

    @functools.cached_property
    def _results(self) -> list[tuple[int, tuple[int, ...]]]:
        at = {s.index: i for i, s in self._outputs}
        graph = self.stages.graph
        return [(at[n], graph[o].type.shape) for n, o in enumerate(graph.outputs)]

    @functools.cached_property
    def _calls_libraries(self) -> bool:
        return any(isinstance(step, LibraryStep) for step in self.steps)

    def _frame(self) -> Frame:
        """What this thread keeps between calls."""
        try:
            return self._frames.frame
        except AttributeError:
            self._frames.frame = frame = self._new_frame()
            return frame

    def _new_frame(self) -> Frame:
        raw = np.empty(self.workspace + ALIGNMENT, np.uint8)
        raw = raw[-raw.ctypes.data % ALIGNMENT:]
        arrays: list[Any] = [None] * len(self.slots)
        for i, slot in enumerate(self.slots):
            if slot.place == "workspace":
                arrays[i] = raw[slot.index:slot.index + slot.size * slot.dtype.itemsize].view(slot.dtype)
        inside = [all(arrays[s] is not None for s in step.slots) for step in self.steps]
        return Frame(arrays, [step.bind(arrays) if i else None for step, i in zip(self.steps, inside, strict=True)])


def _flat(x: Any, dtype: np.dtype) -> Array:
    """An argument as a flat, aligned, C-ordered array of the dtype; a copy only where it is not one already."""
    if type(x) is np.ndarray and x.dtype is dtype:
        flags = x.flags
        if flags.c_contiguous and flags.aligned:
            return x.reshape(-1)
    return np.require(np.asarray(x), dtype, ["C", "A"]).reshape(-1)


@dataclass(frozen=True)
class ReferenceExecutable:
    """The program run by ``reference.evaluate``, node by node."""

    program: Program

    def __call__(self, leaves: Sequence[Any]) -> Any:
        program = self.program
        inputs = [np.asarray(x) for x in (*leaves, *program.captured)]
        for check in index_checks(program.graph):
            check(inputs[check.source].reshape(-1))
        if program.mutated:
            _refuse_overlap(program, leaves)
        return _finish(program, leaves, [np.array(r) for r in evaluate(program.graph, inputs)])


def _finish(program: Program, leaves: Sequence[Any], results: Sequence[Array]) -> Any:
    """Write back what the program changed in place, and nest the results as the user did; scalars as NumPy has them."""
    for source, output in program.mutated:
        np.copyto(leaves[source], results[output])
    return unflatten(program.outputs, [r if r.ndim else r[()] for r in results])


def _refuse_overlap(program: Program, leaves: Sequence[Any]) -> None:
    """Arguments that a program writes into must not share memory with others: it read them before it wrote.

    Raises MinisitchError naming the two.
    """
    arrays = [np.asarray(x) for x in (*leaves, *program.captured)]
    names = [dict(program.graph[i].attrs).get("name", f"%{i}") for i in program.graph.inputs]
    for source, _ in program.mutated:
        for other, array in enumerate(arrays):
            if other != source and np.shares_memory(arrays[source], array):
                raise MinisitchError(f"{names[source]} is written to and shares memory with {names[other]}, which a "
                                     f"compiled program cannot follow; pass a copy of one of them")


# ---------------------------------------------------------------- from stages to an executable
def assemble(stages: Stages, target: str, progress: Callable[[int, int, str], None] | None = None) -> Executable:
    """Lay out memory and make the steps of a lowered program. Raises DeviceError as ``refuse_other_machine`` does."""
    refuse_other_machine(stages.device, target)
    launch = build_kernels(stages, target, progress)
    layout = Layout(stages)
    steps: list[Step] = []
    kernels = iter(zip(stages.bodies, stages.digests, stages.kernels, strict=True))
    for pattern in stages.plan.patterns:
        if pattern.kind == "library":
            steps.append(_library_step(stages.graph, pattern, layout))
            continue
        body, key, kernel = next(kernels)
        memory = (*body.inputs, *body.outputs)
        slots = (*(layout.value[v] for v in memory), *layout.scratch.get(len(steps), ()))
        steps.append(KernelStep(kernel.name, launch[key], slots, body.offsets))
    steps += [CopyStep((source, out)) for source, out in layout.copies]
    return Executable(stages, target, tuple(layout.slots), tuple(steps), layout.workspace, layout.residents,
                      index_checks(stages.graph))


def refuse_other_machine(device: Device, target: str) -> None:
    """Raises DeviceError where the target runs no text for such a device: a CPU's for a V100, CUDA text for a CPU."""
    runs = {"cpu": "cpu", "python": "cpu", "cuda": "gpu", "step": "gpu"}.get(target, device.kind)
    if runs != device.kind:
        raise DeviceError(f"kernels scheduled for {device.name}, a {device.kind.upper()}, do not run with target {target!r}; "
                          f"name no device, or take target {('step' if runs == 'cpu' else 'cpu')!r}")


def _library_step(graph: Graph, pattern: Pattern, layout: Layout) -> LibraryStep:
    node = graph[pattern.members[0]]
    chains = tuple(_view_chain(graph, a) for a in node.args)
    slots = (*(layout.value[c[0].id] for c in chains), layout.value[node.id])
    return LibraryStep(node.op, node, chains, slots)


def _view_chain(graph: Graph, value: int) -> tuple[Node, ...]:
    """The value in memory that ``value`` is a view of, then the moves from there to it."""
    chain, source = [], view_source(graph, value)
    while value != source:
        chain.append(graph[value])
        value = graph[value].args[0]
    return (graph[source], *reversed(chain))
