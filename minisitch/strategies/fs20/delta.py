"""The delta-evaluator: a quick estimate of what fusing vertices gains (FusionStitching 2020, 5.4).

In:  XLA's plan, whose kernels are the vertices. Out: a ``Gain`` in microseconds for any set of
them, and whether one kernel without grid barriers could hold the set.

    f = T_reduced_mem + T_reduced_calls - T_penalty

If XLA evaluates a light operation in two kernels, it belongs to both vertices. An edge is a value
in memory. The estimate is rough on purpose: 16 registers a thread, the largest shared memory of any
vertex, no lifetimes.

Before:  vertices {sum of rows}, {x / sum}, f32[8192,1024] on a V100
After:   T_reduced_mem 0.07 us, T_reduced_calls 10 us, T_penalty 0 us: worth fusing
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...device import Device
from ...fuse import MOST_ARGUMENTS, FusionPlan, Pattern, is_heavy, pattern_inputs, stored_values
from ...graph import Node
from ...stitch.dominants import is_row_reduce
from .evaluate import CYCLES, FIXED_REGISTERS, bytes_per_cycle, resident_warps
from .explore import Dag, bits

BLOCK = 256  # assumed threads of a block


@dataclass(frozen=True)
class Gain:
    """The three terms, in microseconds."""

    reduced_mem: float
    reduced_calls: float
    penalty: float

    @property
    def us(self) -> float:
        return self.reduced_mem + self.reduced_calls - self.penalty

    def __str__(self) -> str:
        return (f"{self.us:.4g} us = {self.reduced_mem:.4g} memory + {self.reduced_calls:.4g} "
                f"calls - {self.penalty:.4g} penalty")


@dataclass(frozen=True)
class Edge:
    """A value in memory and the vertices that read it. Sets of vertices are bits of an integer."""

    value: int
    readers: int  # a set of vertices
    stored: bool  # must be in memory in any case
    nbytes: int
    warps: float  # for a reduce: warps that share it with its readers; 0 for other values
    refused: int  # the set of readers that would need another block's value
    repeats: int  # how often one kernel would evaluate each element, for its worst reader


@dataclass(frozen=True)
class Vertex:
    """One of XLA's kernels: instructions, bytes, and the warps that share them."""

    work: float  # cycles of all its warps together, without memory
    memory: float  # cycles that the whole device needs for its bytes
    warps: float  # when it runs alone
    shared: int
    reads: int  # a set of values in memory


class Evaluator:
    """Answers questions about sets of vertices of one plan, from shapes alone."""

    def __init__(self, plan: FusionPlan, device: Device) -> None:
        self.plan, self.graph, self.device = plan, plan.graph, device
        self.table, self.rate = CYCLES[device.kind], bytes_per_cycle(device)
        self.library = sum(1 << v for v, p in enumerate(plan.patterns) if p.kind == "library")
        written = {output for pattern in plan.patterns for output in pattern.outputs}
        self.number = {value: k for k, value in enumerate(sorted({*written, *plan.graph.inputs}))}
        readers: dict[int, int] = {}
        for v, p in enumerate(plan.patterns):
            for value in pattern_inputs(self.graph, p):
                readers[value] = readers.get(value, 0) | 1 << v
        stored = stored_values(self.graph)
        self.scattered = {d.at[0] for d in plan.decisions if d.rule == "many-positions"}
        self.edges = [[self._edge(o, readers.get(o, 0), o in stored) for o in p.outputs]
                      for p in plan.patterns]
        self.dag = Dag([[r for e in edges for r in bits(e.readers)] for edges in self.edges])
        self.vertices = [self._vertex(p) for p in plan.patterns]
        self._most = self._resident(0)
        self._scores: dict[int, float] = {}
        self._alone = [self._latency(v, v.warps, self._most, 0) for v in self.vertices]

    # ------------------------------------------------------------ the vertices
    def _vertex(self, pattern: Pattern) -> Vertex:
        """Its instructions and bytes as cycles, and the number of its warps."""
        graph, inputs = self.graph, pattern_inputs(self.graph, pattern)
        nodes, outputs = [graph[m] for m in pattern.members], [graph[o] for o in pattern.outputs]
        read = [graph[a].type.size for n in outputs for a in n.args]
        size = max([n.type.size for n in nodes] + read, default=1)
        computed = (n for n in nodes if n.kind in ("map", "reduce"))
        work = sum(n.type.size * self.table.cost[self._kind(n)] for n in computed)
        nbytes = sum(graph[v].type.nbytes for v in (*inputs, *pattern.outputs))
        warps, shared = size / self.table.width, 128
        if reduce := next((n for n in outputs if n.kind == "reduce"), None):
            if is_row_reduce(graph, reduce):
                warps = self._shared_warps(reduce, True)
            if any(n.kind == "map" and is_heavy(graph, n) and n.type.size == size for n in nodes):
                shared = 4 * size // max(1, reduce.type.size)  # a row is kept for the next loop
        reads = sum(1 << self.number[v] for v in inputs)
        return Vertex(work / self.table.width, nbytes / self.rate, max(1.0, warps), shared, reads)

    def _kind(self, node: Node) -> str:
        heavy = is_heavy(self.graph, node)
        return "divide" if heavy and node.op == "div" else "heavy" if heavy else "light"

    def _edge(self, value: int, readers: int, stored: bool) -> Edge:
        node = self.graph[value]
        row = is_row_reduce(self.graph, node)
        refused, most = 0, 1
        for r in bits(readers):
            ends = [self.graph[o] for o in self.plan.patterns[r].outputs]
            repeats = max((self._repeats(node, end) for end in ends), default=1)
            most = max(most, repeats)
            if (stored and repeats > 1) or not all(self._local(node, row, end) for end in ends):
                refused |= 1 << r
        warps = self._shared_warps(node, row)
        return Edge(value, readers, stored, node.type.nbytes, warps, refused, most)

    def _shared_warps(self, node: Node, row: bool) -> float:
        """Warps that compute a reduce: a block for each row, or a thread for each column."""
        if node.kind != "reduce":
            return 0.0
        if not row:
            return max(1.0, node.type.size / self.table.width)
        columns = self.graph[node.args[0]].type.size // max(1, node.type.size)
        # On a CPU one core computes a row.
        busy = max(1, min(columns // self.table.width, self.device.max_block // 32))
        return float(max(1, node.type.size * busy))

    def _domain(self, output: Node) -> Node:
        """The value whose elements an output's loop visits: a reduce's operand, else itself."""
        return self.graph[output.args[0]] if output.kind == "reduce" else output

    def _local(self, node: Node, row: bool, output: Node) -> bool:
        """Whether a reader's own block could make the value, by shapes. ``stitch`` checks later."""
        domain = self._domain(output)
        if node.kind != "reduce":
            return node.id not in self.scattered  # shifted windows also lie in other blocks
        if not row:  # a thread owns a column, so a reader needs the same columns
            kept = [n for n in node.type.shape if n != 1]
            columns = [n for n in domain.type.shape if n != 1]
            return output.kind != "reduce" and kept == columns[-len(kept):]
        if is_row_reduce(self.graph, output):
            return output.type.size == node.type.size
        return domain.type.size % max(1, node.type.size) == 0

    def _repeats(self, node: Node, output: Node) -> int:
        """How often each element is evaluated, if the reader's rows do not hold the value."""
        shape, domain = node.type.shape, self._domain(output).type
        while shape and shape[-1] == 1:
            shape = shape[:-1]
        # A reader may have other columns of the same rows: after a concatenate or a slice.
        rows = max(1, len(shape) - 1)
        whole = node.type.size >= domain.size or domain.shape[:rows] == shape[:rows]
        held = node.kind == "reduce" or whole
        return 1 if held else domain.size // max(1, node.type.size)

    # ------------------------------------------------------------ sets of vertices
    def allowed(self, mask: int) -> bool:
        """Whether one kernel may hold the set: no library call, local reads, few arguments."""
        if mask & self.library:
            return False
        if not mask & (mask - 1):
            return True
        refused = any([e.refused & mask for v in bits(mask) for e in self.edges[v]])
        return not refused and self.arguments(mask) <= MOST_ARGUMENTS

    def arguments(self, mask: int) -> int:
        """The number of values in memory that one kernel of the set reads or writes."""
        reads, written, leaving = 0, 0, 0
        for v in bits(mask):
            reads |= self.vertices[v].reads
            for e in self.edges[v]:
                written |= 1 << self.number[e.value]
                leaving += e.stored or bool(e.readers & ~mask)
        return (reads & ~written).bit_count() + leaving

    def gain(self, mask: int) -> Gain:
        """The three terms of f for a set of vertices."""
        memory = 0.0
        shared = self.table.shared_rate * self.device.sms
        ids = bits(mask)
        for v in ids:
            for e in self.edges[v]:
                inside = (e.readers & mask).bit_count()
                if inside:
                    saved = e.nbytes * inside + (0 if e.stored or e.readers & ~mask else e.nbytes)
                    alone = inside == 1 and not e.warps
                    instead = 0.0 if alone else e.nbytes * (inside + 1) / shared
                    memory += saved / self.rate - instead
        calls = (len(ids) - 1) * self.device.launch_us
        return Gain(self._us(memory), calls, self._us(self._penalty(mask, ids)))

    def score(self, mask: int) -> float:
        """The value of f in microseconds, remembered because sets are asked for repeatedly."""
        if mask not in self._scores:
            self._scores[mask] = self.gain(mask).us
        return self._scores[mask]

    def _us(self, cycles: float) -> float:
        return cycles / self.table.clock * 1e6

    def _penalty(self, mask: int, ids: Sequence[int]) -> float:
        """Cycles lost by fusing: too few rows, more shared memory, values evaluated repeatedly."""
        shared = min(max([self.vertices[v].shared for v in ids]), self.device.shared_per_block)
        limit: dict[int, float] = {}  # vertex -> warps, if it shares a reduce's rows or columns
        for v in ids:
            for e in self.edges[v]:
                if e.warps and e.readers & mask:
                    for w in (v, *bits(e.readers & mask)):
                        limit[w] = min(limit.get(w, e.warps), e.warps)
        room = self._resident(shared)
        together = 0.0
        for v in ids:
            again = max([e.repeats - 1 for e in self.edges[v] if e.readers & mask], default=0)
            busy = min(limit.get(v, math.inf), self.vertices[v].warps)
            together += self._latency(self.vertices[v], busy, room, again)
        return max(0.0, together - sum(map(self._alone.__getitem__, ids)))

    def _resident(self, shared: int) -> int:
        block = min(BLOCK, self.device.max_block)
        return resident_warps(self.device, block, shared, FIXED_REGISTERS)

    def _latency(self, vertex: Vertex, warps: float, resident: int, again: int) -> float:
        """N_wave * L_warp of one vertex. Memory is busy before all warps are, as in ``cost``."""
        busy = min(warps, resident)
        return vertex.work * (1 + again) / busy + vertex.memory / math.sqrt(busy / self._most)
