"""From a stitch plan to the loop program: segments, phases, launch configuration.

In:  a ``StitchPlan``. Out: a verified ``Kernel``, ready to be printed for a GPU or a CPU.

``layout`` has decided on loops and memory, ``statements`` fills the phases; here they are put in
order, the warps of a row get a place to meet, traffic is noted, and the launch is configured
(assume, relax, apply: AStitch 2022, 4.5).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .graph import identifier
from .kernel.ir import Buffer, Kernel, Load, Phase, Segment, Store, Touch, statements
from .kernel.layout import Layout, Loop
from .kernel.statements import Names, Statements
from .kernel.verify import verify_kernel
from .ops import compute_dtype, itemsize
from .passes.batch_rows import take_together
from .passes.nest_loops import nest_columns
from .passes.share_row_values import reuse
from .passes.vectorize import widen
from .stitch.index import Index, Loaded, footprint
from .stitch.mapping import MANY_REGISTERS, WARP, ThreadMap
from .stitch.place import StitchPlan
from .stitch.subroots import Space

TILE_ROWS = 64  # that are read across while their lines stay in cache: each has another page for each of its operands


def schedule(plan: StitchPlan) -> Kernel:
    """Build, plan memory, configure the launch, verify.

    Shared memory that does not fit is demoted, largest buffer first, to global scratch (AStitch B7).
    """
    demoted: set[int] = set()
    wanted = 0
    while True:
        layout = Layout(plan, frozenset(demoted))
        kernel = _Builder(layout).build()
        kernel = _launch(widen(kernel) if layout.dealt else kernel)
        wanted = max(wanted, kernel.shared_bytes)
        movable = [b for b in kernel.buffers if b.scope == "shared" and b.node not in demoted and b.role == "kept"]
        if kernel.shared_bytes <= kernel.device.shared_per_block or not movable or kernel.device.kind == "cpu":
            return verify_kernel(replace(kernel, wanted_bytes=wanted))
        demoted.add(max(movable, key=lambda b: (b.size, -b.node)).node)


def as_scheduled(kernel: Kernel, plan: StitchPlan) -> Kernel:
    """The kernel of a plan whose loops are those of ``kernel`` (``layout.asked`` is equal): another name, and other decisions."""
    placed = kernel.decisions[len(kernel.plan.decisions):]
    return replace(kernel, name=_name(plan, kernel.block), plan=plan, decisions=(*plan.decisions, *placed))


def _name(plan: StitchPlan, block: int) -> str:
    """What it computes, in the user's words, and a digest: equal kernels have equal names."""
    nodes = plan.graph.nodes
    words = list(dict.fromkeys(n.via for n in nodes if n.via and n.kind != "source"))
    words = words or list(dict.fromkeys(n.op for n in nodes if n.kind in ("map", "reduce")))
    words = words or [n.op for n in nodes[-1:]]
    text = f"({plan.graph.structure_text}, {plan.composition!r}, {plan.device.name!r}, {block!r})"
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return identifier(re.sub(r"\W", "_", "_".join(words[:2]), flags=re.ASCII)[:32].strip("_") + f"_{digest}")


# Registers a thread that are assumed, as the assembler taught. A grid barrier is a call, and only half of a thread's registers
# outlive a call: column sums over five arrays and four barriers spilled 132 bytes of 32 registers, and of 64 none. What
# lives across are the arrays' addresses and what later segments count with. A float64 value takes two registers. Where no
# grid barrier needs its blocks resident, a block less costs less than a register in memory. Threads that take several columns
# hold them, and half as many make a block.
REGISTERS, CROWDED = 32, 8


def _launch(kernel: Kernel) -> Kernel:
    """All blocks of a kernel with a grid barrier fit in one wave; no thread has fewer registers than were assumed."""
    device, gpu = kernel.device, kernel.device.kind == "gpu"
    grid = max((s.thread_map.blocks for s in kernel.segments), default=1)
    if kernel.grid_barriers and gpu:
        grid = min(grid, device.wave(kernel.block, kernel.shared_bytes, kernel.registers))
    registers = device.relaxed_registers(kernel.block, kernel.shared_bytes, grid, kernel.registers) if gpu else 255
    single = tuple(replace(s, task_barrier="none") if s.tasks <= grid else s for s in kernel.segments)  # none takes a second task
    return replace(kernel, segments=single, grid=max(1, grid), registers=registers)


class _Builder:
    """Builds one kernel from its layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.plan, self.graph, self.device = layout, layout.plan, layout.graph, layout.device
        self.constants: dict[tuple[str, str], tuple[str, str, object]] = {}
        self.accesses: dict[tuple[int, str, bool], dict[Index, int]] = {}  # index -> how often, at most
        self.buffers = dict(layout.buffers)  # and, for a core, the rows it sums up in

    def build(self) -> Kernel:
        """Segments in order, and the registers of a thread that are assumed."""
        groups = list(self.layout.segments.items())
        phases = [self._phases(loops) for _, loops in groups]
        touches = self._touches()
        moved = sum((t.read + t.written) * itemsize(self.buffers[t.buffer].dtype) for t in touches)
        large = len(self.device.levels) > 1 and moved > self.device.levels[-2].size
        segments = []
        for number, ((level, _), loops) in enumerate(groups):
            last_of_level = number + 1 < len(groups) and groups[number + 1][0][0] != level
            segments.append(self._segment(loops, phases[number], large, "grid" if last_of_level else "none"))
        ranked = {"input": 0, "output": 1, "scratch": 2, "shared": 3}
        buffers = tuple(sorted(self.buffers.values(), key=lambda b: (ranked[b.scope], b.role == "exchange")))
        kernel = Kernel(_name(self.plan, self.layout.block), self.plan, self.device, buffers, tuple(self.constants.values()),
                        tuple(segments), 1, self.layout.block, REGISTERS, touches,
                        tuple(map(self.layout.home, self.plan.sinks)), tuple(self.layout.decisions))
        doubles = any(b.dtype == "float64" for b in kernel.buffers)
        crowded = kernel.grid_barriers and len(kernel.parameters) + kernel.grid_barriers >= CROWDED
        many = crowded or doubles or self.layout.dealt or not kernel.grid_barriers
        return replace(kernel, registers=MANY_REGISTERS if many else REGISTERS)

    def _phases(self, loops: Sequence[Loop]) -> list[Phase]:
        """What the loops of a segment do, before a core's columns are split; which cells they touch is noted."""
        space, names = loops[0].space, Names(self.constants)
        m = self.layout.maps[loops[0].level, space]
        phases = reuse([self._phase(loop, names, space, m) for loop in loops], self.layout.input_names.values())
        self._touch(loops[0].level, space.rows, phases)
        return phases

    def _segment(self, loops: Sequence[Loop], phases: Sequence[Phase], large: bool, barrier: str) -> Segment:
        """``large``: no cache holds what the kernel moves."""
        space = loops[0].space
        m = self.layout.maps[loops[0].level, space]
        slice_size = -(-space.serial // space.slices) if space.slices > 1 else max((p.serial for p in loops), default=1)
        chunk = m.chunk
        if self.device.kind == "cpu":
            phases, chunk = nest_columns(phases, chunk, space.chunks, space.kind == "column", large)
            self._lengthen_rows(phases, m.chunk, chunk)
            sweep = math.lcm(*(p.sweep for p in phases))
            slice_size = -(-slice_size // sweep) * sweep if space.slices > 1 else slice_size
        task = "none" if self.device.kind == "cpu" else self._between_tasks(m, loops)
        carries = tuple(f"a{s.node}" for loop in loops for s in loop.sinks if s.role == "carry")
        tile = TILE_ROWS if any(p.block and not p.folds and not p.streams for p in phases) else 0
        segment = Segment(space.kind, space.rows, space.chunks, chunk, space.slices, slice_size, m, tuple(phases), task,
                          barrier, carries, tile)
        if self.device.kind == "cpu" and not tile:
            segment, rows = take_together(segment, self.buffers)
            self.buffers |= {b.name: b for b in rows}
        return segment

    def _between_tasks(self, m: ThreadMap, loops: Sequence[Loop]) -> str:
        """The barrier between two tasks of a block, where the next might overwrite what this one still reads.

        After an even number of meetings the next task begins in the set of exchange buffers that a
        barrier of this task already separates it from.
        """
        slots = [b.slot for b in self.buffers.values() if b.scope == "shared"]
        crossed = any(self.layout.crossed[x.order] for x in loops) or len(slots) != len(set(slots))
        if m.threads_per_row <= WARP:
            return "warp" if crossed and m.threads_per_row > 1 else "none"
        return "block" if crossed or sum(self.layout.meetings[x.order] for x in loops) % 2 else "none"

    def _lengthen_rows(self, phases: Sequence[Phase], old: int, new: int) -> None:
        """Add the rows that cores sum up in; a tile rounded up to whole inner axes needs its kept rows as long."""
        for phase in phases:
            for f in phase.folds:
                if f.along == "column" and f.buffer:
                    width = math.prod(size for _, size in phase.inner)
                    for name, why in ((f.buffer, "one sum a column"), (f.lost, "what rounding took from it")):
                        if name:
                            self.buffers[name] = Buffer(name, compute_dtype(f.dtype), width, "shared", f.node,
                                                        len(self.buffers), why)
            views = {v.name: v.buffer for v in phase.views}
            for b in [self.buffers[views.get(s.buffer, s.buffer)] for s in statements(phase) if isinstance(s, (Load, Store))]:
                if b.scope == "shared" and b.size == old != new:
                    self.buffers[b.name] = replace(b, size=new)

    def _touch(self, level: int, rows: int, phases: Sequence[Phase]) -> None:
        """Note which cells the phases read and write: what the cost model counts and the stepper checks."""
        for phase in phases:
            trips = rows * phase.cols * phase.serial
            for stmt in statements(phase):
                if isinstance(stmt, (Load, Store)) and self.buffers[stmt.buffer].scope != "shared":
                    found = self.accesses.setdefault((level, stmt.buffer, isinstance(stmt, Store)), {})
                    found[stmt.index] = found.get(stmt.index, 0) + trips

    def _touches(self) -> tuple[Touch, ...]:
        found, made = [], {b.name: -1 for b in self.buffers.values() if b.scope == "input"}
        for level, buffer in sorted({key[:2] for key in self.accesses}):
            size = self.buffers[buffer].size
            read, written = (_cells(self.accesses.get((level, buffer, store), {}), size) for store in (False, True))
            if written and made.setdefault(buffer, level) == level:
                read = 0  # what this epoch wrote is still in cache when it is read
            found.append(Touch(level, buffer, read, written))
        return tuple(found)

    # ------------------------------------------------------------ statements
    def _phase(self, loop: Loop, names: Names, space: Space, m: ThreadMap) -> Phase:
        work = Statements(self.layout, names, loop, space, m)
        folds = [work.combine(s) for s in loop.sinks if s.role == "combine"]
        work.evaluate()
        for s in loop.sinks:
            if s.role in ("map", "piece"):
                work.store_map(s)
            elif s.role != "combine":
                folds.append(work.fold(s))
        axes = (("col", loop.cols), ("ser", loop.serial))[:1 if loop.serial == 1 else 2]
        outer = int(loop.serial != 1 or any(f.along in ("column", "warp") for f in folds))
        return Phase(loop.cols, loop.serial, loop.chunked, tuple(work.before), tuple(work.body), tuple(folds),
                     self.layout.barriers[loop.order], axes, outer=outer)


def _cells(accesses: Mapping[Index, int], size: int) -> int:
    """Cells that accesses touch together; a gather touches no more than it makes, wherever they lie."""
    gathers = {i: trips for i, trips in accesses.items() if any(isinstance(a, Loaded) for _, a in i.terms)}
    plain = footprint([i for i in accesses if i not in gathers], size)
    return min(size, plain + min(footprint(gathers, size), sum(gathers.values())))
