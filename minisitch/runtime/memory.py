"""Memory planning: where each value of a program lies in memory during a call.

In:  the stages of a program. Out: a ``MemoryPlan``: arguments, results, and one workspace. Values
that are never live at the same time share the workspace's bytes.
"""

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import needs
from ..fuse import pattern_inputs, read_in_place
from ..graph import TensorType
from ..lower import Stages

ALIGNMENT = 64  # bytes of a cache line, and of the widest vector


# ---------------------------------------------------------------- memory
@dataclass(frozen=True)
class Lifetime:
    """Size of a value in bytes, and when it is first written and last read.

    A moment is the number of a step, in program order.
    """

    nbytes: int
    first: int
    last: int


def plan_memory(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """An offset in bytes for each value, and the total size. Live values never overlap.

    Values are placed by size, largest first, each in the lowest gap that fits. This is best-fit
    decreasing, as in TensorFlow Lite's arena.

    Before:  a 100 bytes, steps 0 to 1; b 100, 1 to 2; c 100, 2 to 3
    After:   a at 0, b at 128, c at 0
    """
    needs("plan_memory([Lifetime(100, 0, 1), Lifetime(100, 1, 2)])", (lifetimes, list | tuple))
    offsets = [0] * len(lifetimes)
    live: dict[int, list[int]] = {}  # moment -> values placed so far that are live then
    total = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first)):
        moments = range(lifetimes[i].first, lifetimes[i].last + 1)
        beside = sorted({j for t in moments for j in live.get(t, ())}, key=offsets.__getitem__)
        start = 0
        for j in beside:
            if start + lifetimes[i].nbytes <= offsets[j]:
                break
            start = max(start, _aligned(offsets[j] + lifetimes[j].nbytes))
        offsets[i] = start
        for moment in moments:
            live.setdefault(moment, []).append(i)
        total = max(total, _aligned(start + lifetimes[i].nbytes))
    return tuple(offsets), total


def _aligned(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def line_start(raw: np.ndarray) -> int:
    """Index of the first byte of ``raw`` that starts a cache line."""
    return -raw.ctypes.data % ALIGNMENT


@dataclass(frozen=True)
class Slot:
    """Where the memory of one value lies during a call. It is flat and in C order.

    ``index`` is a position among the inputs or outputs, or a byte offset in the workspace.
    """

    place: str  # "input" | "output" | "workspace"
    index: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Resident:
    """An entry of the workspace: a value, or a kernel's scratch (``value`` is None)."""

    label: str
    value: int | None
    type: TensorType
    life: Lifetime
    step: int  # the step that writes it
    offset: int = 0


class MemoryPlan:
    """The slot of each value in memory. Values between steps share the workspace."""

    def __init__(self, stages: Stages) -> None:
        graph = stages.graph
        self.slots: list[Slot] = []
        self.value: dict[int, int] = {}  # node -> slot
        self.copies: list[tuple[int, int]] = []  # (from slot, to slot), after all steps
        self.scratch: dict[int, list[int]] = {}  # step -> slots
        for position, node in enumerate(graph.inputs):
            self.value[node] = self._add("input", position, graph[node].type)
        for position, output in enumerate(graph.outputs):
            memory = read_in_place(graph, output)
            slot = self._add("output", position, graph[output].type)
            if memory in self.value:
                self.copies.append((self.value[memory], slot))
            else:
                self.value[memory] = slot
        wanted = list(_residents(stages, self.value))
        offsets, self.workspace = plan_memory([r.life for r in wanted])
        self.residents = tuple(replace(r, offset=o) for r, o in zip(wanted, offsets, strict=True))
        for resident in self.residents:
            slot = self._add("workspace", resident.offset, resident.type)
            if resident.value is None:
                self.scratch.setdefault(resident.step, []).append(slot)
            else:
                self.value[resident.value] = slot

    def _add(self, place: str, index: int, type: TensorType) -> int:
        self.slots.append(Slot(place, index, type.shape, np.dtype(type.dtype)))
        return len(self.slots) - 1


def _residents(stages: Stages, elsewhere: Container[int]) -> Iterator[Resident]:
    """The entries of the workspace: values between patterns, and scratch of kernels."""
    graph, patterns = stages.graph, stages.plan.patterns
    last = {value: step for step, pattern in enumerate(patterns) for value in (*pattern_inputs(graph, pattern), *pattern.outputs)}
    for step, pattern in enumerate(patterns):
        for value in pattern.outputs:
            if value not in elsewhere:
                node = graph[value]
                yield Resident(f"%{value} {node.op}", value, node.type, Lifetime(node.type.nbytes, step, last[value]), step)
    kernels = iter(stages.kernels)
    for step, pattern in enumerate(patterns):
        for buffer in next(kernels).parameters if pattern.kind == "kernel" else ():
            if buffer.scope == "scratch":
                type = TensorType((buffer.size,), buffer.dtype)
                yield Resident(f"scratch {buffer.name}", None, type, Lifetime(type.nbytes, step, step), step)
