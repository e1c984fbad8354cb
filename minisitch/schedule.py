"""From a stitch plan to the loop program: segments, phases, launch configuration.

In:  a ``StitchPlan``. Out: a verified ``Kernel``, ready to be printed for a GPU or a CPU.

``kernel.memory`` has decided where values live, and ``kernel.statements`` fills the phases. Here they are put in order, traffic
is noted, and the launch is configured (assume, relax, apply: AStitch 2022, 4.5). The kernel is the plain one: a loop over rows, and
inside it loops over columns, each a column at a time. ``passes`` make it fast.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .graph import identifier
from .kernel.ir import Buffer, Kernel, Load, Phase, Segment, Store, Touch, statements
from .kernel.memory import Layout
from .kernel.statements import Names, Statements
from .kernel.verify import verify_kernel
from .stitch.index import Index, Loaded, footprint
from .stitch.mapping import MANY_REGISTERS, WARP, ThreadMap
from .stitch.plan import LoopPlan, StitchPlan
from .stitch.subroots import Space


def schedule(plan: StitchPlan, rewrite: Callable[[Kernel], Kernel] = lambda kernel: kernel) -> Kernel:
    """Make the plan's kernel, let ``rewrite`` make it faster, and verify it.

    Rows that a block's shared memory has no room for are demoted to global memory, the largest first (AStitch B7). How much
    room there is shows only after ``rewrite``: some passes save shared memory.
    """
    wanted = 0
    while True:
        kernel = rewrite(launch(_Builder(Layout(plan)).build()))
        wanted = max(wanted, kernel.shared_bytes)
        rows = [b for b in kernel.buffers if (b.scope, b.role) == ("shared", "kept") and b.node not in plan.demoted]
        if kernel.shared_bytes <= kernel.device.shared_per_block or not rows or kernel.device.kind == "cpu":
            return verify_kernel(replace(kernel, wanted_bytes=wanted))
        largest = max(rows, key=lambda b: (b.size, -b.node))
        plan = replace(plan, demoted=plan.demoted | {largest.node})


def as_scheduled(kernel: Kernel, plan: StitchPlan) -> Kernel:
    """The kernel of a plan whose ``memory.schedule_key`` is that of ``kernel``: the same loops, another name, other decisions."""
    placed = kernel.decisions[len(kernel.plan.decisions):]
    whole = replace(plan, maps=kernel.plan.maps, demoted=kernel.plan.demoted)
    return replace(kernel, name=_name(plan, kernel.block), plan=whole, decisions=(*plan.decisions, *placed))


def _name(plan: StitchPlan, block: int) -> str:
    """What it computes, in the user's words, and a digest: equal kernels have equal names."""
    nodes = plan.graph.nodes
    words = list(dict.fromkeys(n.via for n in nodes if n.via and n.kind != "source"))
    words = words or list(dict.fromkeys(n.op for n in nodes if n.kind in ("map", "reduce")))
    words = words or [n.op for n in nodes[-1:]]
    text = f"({plan.graph.structure_text}, {plan.composition!r}, {plan.device.name!r}, {block!r})"
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    spelled = re.sub(r"\W", "_", "_".join(words[:2]), flags=re.ASCII)[:32].strip("_")
    return identifier(f"{spelled or 'kernel'}_{digest}")


# Registers a thread that are assumed, as the assembler taught. A grid barrier is a call, and only half of a thread's registers
# outlive a call: column sums over five arrays and four barriers spilled 132 bytes of 32 registers, and of 64 none. What
# lives across are the arrays' addresses and what later segments count with. A float64 value takes two registers. Where no
# grid barrier needs its blocks resident, a block less costs less than a register in memory. Threads that take several columns
# hold them, and half as many make a block.
REGISTERS, CROWDED = 32, 8


def launch(kernel: Kernel) -> Kernel:
    """All blocks of a kernel with a grid barrier fit in one wave; no thread has fewer registers than were assumed."""
    device, gpu = kernel.device, kernel.device.kind == "gpu"
    grid = max((s.thread_map.blocks for s in kernel.segments), default=1)
    assumed = _assumed_registers(kernel)
    if kernel.grid_barriers and gpu:
        grid = min(grid, device.wave(kernel.block, kernel.shared_bytes, assumed))
    registers = device.relaxed_registers(kernel.block, kernel.shared_bytes, grid, assumed) if gpu else 255
    # A block that takes no second task has nothing to wait for after its first.
    single = tuple(replace(s, task_barrier="none") if s.tasks <= grid else s for s in kernel.segments)
    return replace(kernel, segments=single, grid=max(1, grid), registers=registers)


def _assumed_registers(kernel: Kernel) -> int:
    doubles = any(b.dtype == "float64" for b in kernel.buffers)
    crowded = len(kernel.parameters) + kernel.grid_barriers >= CROWDED
    several_columns = bool(kernel.plan.maps)
    many = crowded or doubles or several_columns or not kernel.grid_barriers
    return MANY_REGISTERS if many else REGISTERS


class _Builder:
    """Builds one kernel from its layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.plan, self.device = layout, layout.plan, layout.device
        self.constants: dict[tuple[str, str], tuple[str, str, object]] = {}

    def build(self) -> Kernel:
        """Segments in order; the launch is not configured yet."""
        layout, groups, segments = self.layout, list(self.layout.segments.items()), list[Segment]()
        for number, ((level, _), loops) in enumerate(groups):
            last_of_level = number + 1 < len(groups) and groups[number + 1][0][0] != level
            segments.append(self._segment(loops, "grid" if last_of_level else "none"))
        ranked = {"input": 0, "output": 1, "scratch": 2, "shared": 3}
        buffers = tuple(sorted(layout.buffers.values(), key=lambda b: (ranked[b.scope], b.role == "exchange")))
        return Kernel(_name(self.plan, layout.block), self.plan, self.device, buffers, tuple(self.constants.values()),
                      tuple(segments), 1, layout.block, REGISTERS, touches(segments, layout.buffers),
                      tuple(map(layout.locations, self.plan.sub_roots)), tuple(layout.decisions))

    def _segment(self, loops: Sequence[LoopPlan], barrier: str) -> Segment:
        space, names = loops[0].space, Names(self.constants)
        m = self.layout.maps[loops[0].level, space]
        phases = tuple(self._phase(loop, names, space, m) for loop in loops)
        slice_size = -(-space.serial // space.slices) if space.slices > 1 else max((p.serial for p in loops), default=1)
        carries = tuple(f"a{s.node}" for loop in loops for s in loop.sub_roots if s.role == "carry")
        return Segment(space.kind, space.rows, space.chunks, m.chunk, space.slices, slice_size, m, phases,
                       self._between_tasks(m, loops), barrier, carries)

    def _between_tasks(self, m: ThreadMap, loops: Sequence[LoopPlan]) -> str:
        """The barrier between two tasks of a block, where the next might overwrite what this one still reads.

        After an even number of exchanges the next task begins in the set of exchange buffers that a
        barrier of this task already separates it from.
        """
        if self.device.kind == "cpu":
            return "none"
        crossed = any(self.layout.crossed[loop.order] for loop in loops)
        if m.threads_per_row <= WARP:
            return "warp" if crossed and m.threads_per_row > 1 else "none"
        return "block" if crossed or sum(self.layout.exchanges[loop.order] for loop in loops) % 2 else "none"

    # ------------------------------------------------------------ statements
    def _phase(self, loop: LoopPlan, names: Names, space: Space, m: ThreadMap) -> Phase:
        work = Statements(self.layout, names, loop, space, m)
        folds = [work.combine(s) for s in loop.sub_roots if s.role == "combine"]
        work.evaluate()
        for s in loop.sub_roots:
            if s.role in ("map", "piece"):
                work.store_map(s)
            elif s.role != "combine":
                folds.append(work.fold(s))
        axes = (("col", loop.cols), ("ser", loop.serial))[:1 if loop.serial == 1 else 2]
        outer = int(loop.serial != 1 or any(f.along in ("column", "warp") for f in folds))
        return Phase(loop.cols, loop.serial, loop.chunked, tuple(work.before), tuple(work.body), tuple(folds),
                     self.layout.barriers[loop.order], axes, outer=outer)


# ---------------------------------------------------------------- traffic
def touches(segments: Sequence[Segment], buffers: Mapping[str, Buffer]) -> tuple[Touch, ...]:
    """Which cells of global memory plain segments read and write: what the cost model counts and the stepper checks."""
    accesses: dict[tuple[int, str, bool], dict[Index, int]] = {}  # level, buffer, stores: index -> how often, at most
    level = 0
    for segment in segments:
        for phase in segment.phases:
            trips = segment.rows * phase.cols * phase.serial
            for stmt in statements(phase):
                if isinstance(stmt, Load | Store) and buffers[stmt.buffer].scope != "shared":
                    found = accesses.setdefault((level, stmt.buffer, isinstance(stmt, Store)), {})
                    found[stmt.index] = found.get(stmt.index, 0) + trips
        level += segment.barrier == "grid"
    made = {b.name: -1 for b in buffers.values() if b.scope == "input"}
    found_cells = []
    for level, buffer in sorted({key[:2] for key in accesses}):
        size = buffers[buffer].size
        read, written = (_cells(accesses.get((level, buffer, stores), {}), size) for stores in (False, True))
        if written and made.setdefault(buffer, level) == level:
            read = 0  # what this epoch wrote is still in cache when it is read
        found_cells.append(Touch(level, buffer, read, written))
    return tuple(found_cells)


def _cells(accesses: Mapping[Index, int], size: int) -> int:
    """Cells that accesses touch together; a gather touches no more than it makes, wherever they lie."""
    gathers = {i: trips for i, trips in accesses.items() if any(isinstance(a, Loaded) for _, a in i.terms)}
    plain = footprint([i for i in accesses if i not in gathers], size)
    return min(size, plain + min(footprint(gathers, size), sum(gathers.values())))
