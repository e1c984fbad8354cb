"""Memory planning: where each value that kernels and library calls exchange is during a call.

In:  the stages of a program. Out: a ``MemoryPlan``: arguments, results, and one workspace whose bytes are
shared by values that are never live together.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..fuse import pattern_inputs, read_in_place
from ..graph import TensorType
from ..kernel.ir import Buffer
from ..lower import Stages

ALIGNMENT = 64  # a cache line, and what the widest vector load likes


# ---------------------------------------------------------------- memory
@dataclass(frozen=True)
class Lifetime:
    """A value of ``nbytes`` bytes, written at the moment ``first`` and last read at ``last``: launches and library calls."""

    nbytes: int
    first: int
    last: int


def plan_memory(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """An offset for each value and the total, so that values that are live together share no byte.

    Largest first, each at the lowest gap that fits (best-fit decreasing, as TensorFlow Lite's arena does).
    Before:  a 100 bytes, steps 0 to 1; b 100, 1 to 2; c 100, 2 to 3     After:  a at 0, b at 128, c at 0
    """
    offsets = [0] * len(lifetimes)
    live: dict[int, list[int]] = {}  # moment -> values placed so far that are live then
    total = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first)):
        moments = range(lifetimes[i].first, lifetimes[i].last + 1)
        beside = sorted({j for moment in moments for j in live.get(moment, ())}, key=offsets.__getitem__)
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
    """The first byte of ``raw`` that starts a cache line."""
    return -raw.ctypes.data % ALIGNMENT


@dataclass(frozen=True)
class Slot:
    """Where the memory of one value is during a call: flat, C-ordered.

    ``index`` is a position among the program's inputs or outputs, or a byte offset in the workspace.
    """

    place: str  # "input" | "output" | "workspace"
    index: int
    shape: tuple[int, ...]  # as the graph has it
    dtype: np.dtype

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Resident:
    """Something that lives in the workspace: a value of the graph, or a kernel's scratch (``value`` is None)."""

    label: str
    value: int | None
    type: TensorType
    life: Lifetime
    step: int  # that writes it
    offset: int = 0


class MemoryPlan:
    """Which slot each value in memory has: arguments, results and, sharing bytes, what lives in between."""

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
    """What lives in the workspace: values that patterns write and others read, and what kernels keep there for themselves.

    On a CPU a kernel is so many launches (``Kernel.calls``). What one is the last to read gives its bytes to what a later one of
    the same kernel writes, and these are in a cache then: a relu, a pooling and the windows of a convolution (15 MB) take
    1.9 ms as one kernel, no more than as two, and took 2.4.
    """
    graph, uses = stages.graph, list(_uses(stages))
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for values, _ in uses:
        for value, moments in values.items():
            first.setdefault(value, moments[0])
            last[value] = moments[-1]
    for step, pattern in enumerate(stages.plan.patterns):
        for value in pattern.outputs:
            if value not in elsewhere:
                node = graph[value]
                yield Resident(f"%{value} {node.op}", value, node.type, Lifetime(node.type.nbytes, first[value], last[value]), step)
    for step, (_, scratch) in enumerate(uses):
        for buffer, moments in scratch:
            type = TensorType((buffer.size,), buffer.dtype)
            yield Resident(f"scratch {buffer.name}", None, type, Lifetime(type.nbytes, moments[0], moments[-1]), step)


Moments = Sequence[int]  # at which something is used, in order
Uses = tuple[dict[int, Moments], list[tuple[Buffer, Moments]]]  # of values, of a kernel's scratch


def _uses(stages: Stages) -> Iterator[Uses]:
    """For each step what it uses, and when: a moment is a launch of a kernel, or a step that is none."""
    kernels, now = iter(zip(stages.bodies, stages.kernels, stages.sources, strict=True)), 0
    for pattern in stages.plan.patterns:
        if pattern.kind != "kernel":
            yield dict.fromkeys([*pattern_inputs(stages.graph, pattern), *pattern.outputs], (now,)), []
            now += 1
            continue
        body, kernel, source = next(kernels)
        launches = source.launches if source.target == "cpu" and kernel.device.kind == "cpu" else ()
        used = [[k for k, launch in enumerate(launches, now) if b.name in launch.buffers] or [now] for b in kernel.parameters]
        values, scratch = (*body.inputs, *body.outputs), [b for b in kernel.parameters if b.scope == "scratch"]
        found: dict[int, Moments] = {}
        for value, moments in zip(values, used[:len(values)], strict=True):
            found[value] = sorted({*found.get(value, ()), *moments})
        yield found, list(zip(scratch, used[len(values):], strict=True))
        now += max(1, len(launches))
