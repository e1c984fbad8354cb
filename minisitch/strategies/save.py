"""Save or recompute: what a later kernel makes again instead of reading it from memory.

In:  a graph and the call depth of each value. Out: a graph with copies, and the depths of all.

A value that a kernel behind a library call reads is written once and read there: twice its bytes. A
copy for that depth costs its arithmetic, and reading what it is made of, unless the kernel reads
that anyway. The cheaper is taken by the device's rates, for each value and each depth that reads
it, in the program's order. (Chen et al. 2016, *Training Deep Nets with Sublinear Memory Cost*,
recompute whole segments to save memory. Here the moved bytes decide.)

Before:  depth 1: %2 = add x b, %3 = tanh %2     depth 5: %9 = mul g %3      %3 is stored
After:   depth 1: %2 = add x b, %3 = tanh %2     depth 5: %7 = add x b, %8 = tanh %7, %9 = mul g %8

Reductions, gathers and results of library calls are never made again.
"""

from dataclasses import replace
from typing import NamedTuple

from ..device import Device
from ..fuse import (
    GENERATED,
    HEAVY_OPERATIONS,
    VIEWS,
    Decision,
    is_fusible,
    is_heavy,
    stored_values,
)
from ..graph import Graph, Node

ValueAt = tuple[int, int]  # a value, and the depth of a kernel that has it


class Again(NamedTuple):
    """What it costs to make a value again: microseconds, and the values that are read."""

    us: float
    reads: set[int]


def arithmetic_us(graph: Graph, n: Node, device: Device) -> float:
    """Time to compute a value if its operands are at hand."""
    if n.op in VIEWS:
        return 0.0
    if device.kind == "gpu":
        operations = HEAVY_OPERATIONS if is_heavy(graph, n) else 1
        return n.type.size * operations / device.flops * 1e6
    ns = dict(device.core_ns)
    each = ns.get(f"{n.op} {n.type.dtype}", ns["light"] * n.type.itemsize)
    return n.type.size * each / device.sms / 1e3


class Ledger:
    """What the kernels of each depth read from memory, and what they make again."""

    def __init__(self, graph: Graph, depth: list[int], device: Device) -> None:
        self.graph = graph
        self.depth = depth
        self.device = device
        self.rate = device.bandwidth / 1e6  # bytes a microsecond
        if device.kind == "cpu":
            self.rate = device.caches[-1].all_cores / 1e6
        self.in_memory = {*graph.inputs, *stored_values(graph)}
        self.in_memory.update(n.id for n in graph.nodes if n.kind == "library")
        self.read: dict[int, set[int]] = {d: set() for d in depth}  # what a depth reads anyway
        self.asked: set[ValueAt] = set()  # values that a kernel of a later depth reads
        self.again: dict[ValueAt, Again] = {}
        self.said: list[tuple[ValueAt, str, str]] = []
        for n in graph.nodes:
            for a in n.args if n.kind != "library" else ():
                if a in self.in_memory:
                    self.read[depth[n.id]].add(a)
                if depth[a] < depth[n.id]:
                    self.asked.add((a, depth[n.id]))
        self.later = self._later_depths()

    def _later_depths(self) -> list[set[int]]:
        """For each value the later depths that read it, or what is made of it."""
        later = [set[int]() for _ in self.graph.nodes]
        for value, d in self.asked:
            later[value].add(d)
        for n in reversed(self.graph.nodes):
            if self.may_repeat(n):
                for a in n.args:
                    later[a].update(d for d in later[n.id] if d > self.depth[a])
        return later

    def may_repeat(self, n: Node) -> bool:
        """Whether a copy is worth a thought."""
        computes = is_fusible(n) and n.kind != "reduce" and n.op != "gather"
        return computes and n.id not in self.in_memory

    def decide(self, n: Node, d: int) -> None:
        """Whether depth ``d`` reads a value from memory or makes it again."""
        us = arithmetic_us(self.graph, n, self.device)
        reads: set[int] = set()
        for a in set(n.args):
            if self.graph[a].op not in GENERATED:
                part = self.again.get((a, d), Again(0.0, {a}))
                us += part.us
                reads |= part.reads
        moved = 0
        for value in reads - self.read[d]:
            times = 1 if value in self.in_memory else 2  # it would have to be written, too
            moved += times * self.graph[value].type.nbytes
        again = us + moved / self.rate
        save = 2 * n.type.nbytes / self.rate
        asked = (n.id, d) in self.asked
        if again < save:
            self.again[n.id, d] = Again(0.0 if asked else us, reads)  # once for all its readers
        if asked:
            self.read[d] |= reads if again < save else {n.id}
            verdict, at = ("recompute", d) if again < save else ("save", self.depth[n.id])
            why = (f"{n.op} for depth {d}: {save:.3g} us to save its {n.type.nbytes:,} bytes, "
                   f"{again:.3g} us to make it again")
            self.said.append(((n.id, at), verdict, why))

    def source(self, value: int, reader: Node, d: int) -> ValueAt:
        """Where a reader of depth ``d`` finds a value. Library calls read from memory."""
        own = (value, d) in self.again and reader.kind != "library"
        return value, d if own else self.depth[value]


def save_or_recompute(graph: Graph, depth: list[int],
                      device: Device) -> tuple[Graph, list[int], list[Decision]]:
    """The graph with copies for the depths that make a value again, all depths, and why."""
    ledger = Ledger(graph, depth, device)
    places: list[tuple[Node, int]] = []
    for n in graph.nodes:
        places.append((n, depth[n.id]))
        for d in sorted(ledger.later[n.id]) if ledger.may_repeat(n) else ():
            ledger.decide(n, d)
            if (n.id, d) in ledger.again:
                places.append((n, d))
    needed = {(v, depth[v]) for v in (*graph.outputs, *graph.inputs)}
    for n, d in reversed(places):
        if (n.id, d) in needed:
            needed.update(ledger.source(a, n, d) for a in n.args)
    made: dict[ValueAt, int] = {}
    nodes: list[Node] = []
    for n, d in places:
        if (n.id, d) in needed:
            made[n.id, d] = len(nodes)
            args = tuple(made[ledger.source(a, n, d)] for a in n.args)
            nodes.append(replace(n, id=len(nodes), args=args))
    decisions = [Decision((made[place],), verdict, "bytes-or-arithmetic", why)
                 for place, verdict, why in ledger.said if place in made]
    outputs = tuple(made[o, depth[o]] for o in graph.outputs)
    return Graph(tuple(nodes), outputs), [d for _, d in made], decisions
