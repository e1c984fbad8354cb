"""From a pattern's body to its kernel, whatever composition its strategy chose; and what that kernel would cost.

In:  a body (``fuse.extract``), a ``Device`` and a ``Composition``. Out: a ``StitchPlan``, a ``Kernel``, microseconds.

Strategies that weigh plans ask here: a pattern's price is the modelled time of the very kernel that
would run, not of a guess at it. Equal bodies are built once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from copy import copy
from weakref import WeakValueDictionary

from ..device import Device
from ..errors import KernelError, PlanError
from ..fuse import ALL_INGREDIENTS, Composition, FusionPlan, Pattern, extract, read_in_place
from ..graph import Graph
from ..kernel.ir import Kernel, Segment
from ..kernel.layout import asked
from ..schedule import as_scheduled, schedule
from ..stitch.compose import compose
from .cost import kernel_us, library_us, working_set


def digest(graph: Graph, composition: Composition = ALL_INGREDIENTS) -> str:
    """The name of a kernel's meaning: equal for structurally equal graphs composed alike (0.0 and -0.0 differ)."""
    return hashlib.sha256(f"({graph.structure_text}, {composition!r})".encode()).hexdigest()


class _Kernels(dict[str, Kernel]):
    """Kernels for one device by digest; a class of its own, since a plain dict cannot be referred to weakly.

    ``bodies``: one graph of each structure, which keeps what is worked out about it for all compositions. ``by_loops``: one
    kernel of all that differ in nothing but their composition's name, as an ablation that changes no loop does.
    """

    def __init__(self) -> None:
        self.bodies: dict[str, Graph] = {}
        self.by_loops: dict[tuple[Hashable, ...], Kernel] = {}
        self.refused: dict[str, PlanError | KernelError] = {}  # what cannot be built, and why
        self.us: dict[tuple[int, int], tuple[tuple[Segment, ...], float]] = {}  # with the loops, so that their id stays theirs

    def price(self, kernel: Kernel, around: int) -> float:
        """Kernels that share their loops take as long."""
        key = id(kernel.segments), around
        if key not in self.us:
            self.us[key] = kernel.segments, kernel_us(kernel, around)
        return self.us[key][1]


_tables: WeakValueDictionary[Device, _Kernels] = WeakValueDictionary()  # each lives as long as somebody uses it


@contextmanager
def shared_kernels(device: Device) -> Iterator[None]:
    """Within it, equal bodies are built once for this device: for their price, and to be run."""
    table = _tables.setdefault(device, _Kernels())
    yield
    del table


def built(graph: Graph, device: Device, composition: Composition) -> Kernel:
    """The kernel of a body. Within ``shared_kernels``, or while some ``Prices`` is in use, equal bodies are built once."""
    known, key = _tables.get(device, _Kernels()), digest(graph, composition)
    if key in known.refused:
        raise copy(known.refused[key])
    if key not in known:
        try:
            plan = compose(known.bodies.setdefault(graph.structure_text, graph), device, composition)
            loops = asked(plan)
            known[key] = as_scheduled(known.by_loops[loops], plan) if loops in known.by_loops else schedule(plan)
        except (PlanError, KernelError) as refused:
            known.refused[key] = copy(refused)  # without its traceback, whose frames keep this table
            raise
        known.by_loops.setdefault(loops, known[key])
    return known[key]


class Prices:
    """Modelled microseconds of patterns of one graph on one device; each different kernel is built once.

    All that are in use at one time share their kernels: those of a strategy that asks others, and those that it asks.
    ``around``: bytes of the program that the graph was cut out of, if it was.
    """

    def __init__(self, graph: Graph, device: Device, around: int = 0) -> None:
        self.graph, self.device, self.around = graph, device, around or working_set(graph)
        self._shared = _tables.setdefault(device, _Kernels())  # keeps the table that ``built`` looks into
        self._by_pattern: dict[Pattern, Kernel] = {}
        self._bodies: dict[tuple[tuple[int, ...], tuple[int, ...], bool], Graph] = {}
        self._us: dict[Pattern, float] = {}

    def body(self, pattern: Pattern) -> Graph:
        """The pattern as a graph of its own, cut out once for all ways to compose it."""
        key = pattern.members, pattern.outputs, pattern.composition.products
        return self._bodies[key] if key in self._bodies else self._bodies.setdefault(key, extract(self.graph, pattern).graph)

    def kernel(self, pattern: Pattern) -> Kernel:
        """The kernel that would run for this pattern (its outputs must be set)."""
        if pattern not in self._by_pattern:
            self._by_pattern[pattern] = built(self.body(pattern), self.device, pattern.composition)
        return self._by_pattern[pattern]

    def pattern_us(self, pattern: Pattern) -> float:
        """Modelled microseconds of one launch or one library call."""
        if pattern not in self._us:
            library = pattern.kind == "library"
            self._us[pattern] = (library_us(self.graph, self.graph[pattern.members[0]], self.device) if library
                                 else self._shared.price(self.kernel(pattern), self.around))
        return self._us[pattern]

    def plan_us(self, plan: FusionPlan) -> float:
        """Modelled microseconds of all launches and calls, one after the other."""
        return sum(map(self.pattern_us, plan.patterns))

    def least_us(self, pattern: Pattern, *, divided: bool = False) -> float:
        """What a pattern takes at least, known before its kernel is built: the launch, reading what it needs all of, writing its
        outputs. ``divided``: what several kernels that compute the same take at least, since these may find what they read in a
        nearer cache."""
        if pattern.kind == "library":
            return self.pattern_us(pattern)
        moved = sum(self.graph[v].type.nbytes for v in {*pattern.outputs, *read_whole(self.graph, pattern)})
        return self.device.launch_us + moved_us(moved, self.device, self.around, divided)


def read_whole(graph: Graph, pattern: Pattern) -> set[int]:
    """Values in memory of which a kernel needs every element, however it is composed.

    Before:  %1 = exp %0; %3 = slice %2; %4 = add %1 %3; write %4      After:  %0
    """
    inside, whole = set(pattern.members), set(pattern.outputs)
    for node in (graph[m] for m in reversed(pattern.members) if m in whole):
        if node.type.size and (node.kind in ("map", "reduce") or node.op in ("broadcast", "reshape", "transpose", "concatenate")):
            whole.update(node.args)
    return {read_in_place(graph, v) for v in whole - inside}


def moved_us(nbytes: int, device: Device, around: int = 0, divided: bool = False) -> float:
    """What moving so many bytes takes at least, in a program that needs ``around`` bytes: as if nothing else were moved, and by one
    kernel unless ``divided``."""
    near = around if divided else max(nbytes, around)
    level = next((at for at in device.levels if near <= at.size), device.levels[-1]) if device.levels else None
    return nbytes / (max(level.one_core, level.all_cores) if level else device.bandwidth) * 1e6
