"""From a stitch plan to the loop program: segments and phases.

In:  a ``StitchPlan``. Out: a verified ``Kernel``, ready to be printed for a GPU or a CPU.

``kernel.memory`` has decided where values live, and ``kernel.statements`` fills the phases. This
file puts the phases in order, and ``kernel.launch`` chooses how many blocks there are. The kernel
is the plain one: a loop over rows, and in it loops that take one column after the other. ``passes``
make it fast.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest

from .errors import needs
from .graph import identifier
from .kernel import Kernel, ir
from .kernel.launch import with_launch
from .kernel.memory import Layout
from .kernel.statements import Constants, Names, Statements, Stores
from .kernel.verify import verify_kernel
from .stitch.index import ZERO, Digit, Guard, Index, Within, in_order, variable, whole
from .stitch.mapping import EXCHANGED_AT_ONCE, WARP
from .stitch.plan import LoopPlan, StitchPlan
from .stitch.subroots import SegmentKey


def schedule(plan: StitchPlan, rewrite: Callable[[Kernel], Kernel] = lambda kernel: kernel) -> Kernel:
    """Make the plan's kernel, let ``rewrite`` make it faster, and verify it.

    If a block's shared memory has too little room, rows are demoted to global memory, the largest
    first (AStitch B7). That is decided after ``rewrite``, because some passes save shared memory.

    Only the rewritten kernel is verified. Raises KernelError if it is wrong.
    """
    needs("schedule(minisitch.lower(f, x, stop_after='stitch')[0])", (plan, StitchPlan))
    wanted = 0
    while True:
        kernel = rewrite(with_launch(_build(Layout(plan))))
        wanted = max(wanted, kernel.shared_bytes)
        rows = [b for b in kernel.buffers if b.role == "kept"
                and b.node not in plan.demoted]
        fits = kernel.device.kind == "cpu" or kernel.shared_bytes <= kernel.device.shared_per_block
        if fits or not rows:
            return verify_kernel(replace(kernel, wanted_bytes=wanted))
        largest = max(rows, key=lambda b: (b.size, -b.node))
        plan = replace(plan, demoted=plan.demoted | {largest.node})


def _name(plan: StitchPlan, block: int) -> str:
    """What it computes, in the user's words, and a digest. Equal kernels have equal names.

    Kernels of one plan may have one name though their passes differ. ``Kernel.passes`` tells them
    apart.
    """
    nodes = plan.graph.nodes
    words = [n.via for n in nodes if n.via and n.kind != "source"]
    words = words or [n.op for n in nodes if n.kind in ("map", "reduce")]
    words = words or [n.op for n in nodes[-1:]]
    two = list(dict.fromkeys(words))[:2]
    text = f"({plan.graph.structure}, {plan.composition!r}, {plan.device.name!r}, {block!r})"
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    spelled = re.sub(r"\W", "_", "_".join(two), flags=re.ASCII)[:32].strip("_")
    return identifier(f"{spelled or 'kernel'}_{digest}")


def _build(layout: Layout) -> Kernel:
    """Segments in order; the launch is not configured yet."""
    constants: Constants = {}
    keys, segments = list(layout.segments), list[ir.Segment]()
    for key, after in zip_longest(keys, keys[1:]):
        barrier = "grid" if after and after[0] != key[0] else "none"
        segments.append(_segment(layout, Names(constants), key, barrier))
    order = "input", "output", "scratch", "shared"
    buffers = sorted(layout.buffers.values(),
                     key=lambda b: (order.index(b.scope), b.role == "exchange"))
    return Kernel(
        _name(layout.plan, layout.block), layout.plan, layout.device, tuple(buffers),
        tuple(constants.values()), tuple(segments), grid=0, block=layout.block, registers=0,
        locations=tuple(map(layout.locations, layout.plan.sub_roots)),
        decisions=tuple(layout.decisions))


def _segment(layout: Layout, names: Names, key: SegmentKey, barrier: str) -> ir.Segment:
    _, space = key
    m = layout.maps[key]
    slice_size = -(-space.serial // space.slices)
    segment = ir.Segment(space, m, slice_size, (), _between_tasks(layout, key), barrier)
    nests = _SegmentNests(layout, names, segment)
    phases = tuple(map(nests.phase, layout.segments[key]))
    return replace(segment, phases=phases, opening=nests.opening, closing=nests.closing)


def _between_tasks(layout: Layout, key: SegmentKey) -> str:
    """The barrier between two tasks of a block, if the next may overwrite what this one reads.

    Exchanges use two sets of buffers in turn. After an even number of them the next task uses the
    first set again. A barrier of this task came after the last use of that set.
    """
    orders = [loop.order for loop in layout.segments[key]]
    waits = any(layout.from_others[order] for order in orders)
    exchanges = sum(layout.exchange_counts[order] for order in orders)
    if layout.one_thread_a_row(key) or not (waits or exchanges % 2):
        return "none"
    return "warp" if layout.maps[key].threads_per_row <= WARP else "block"


class _SegmentNests:
    """Writes the nests of one segment: its phases, and what is before and after its tasks."""

    def __init__(self, layout: Layout, names: Names, segment: ir.Segment) -> None:
        self.layout, self.names, self.segment = layout, names, segment
        self.gpu = layout.device.kind == "gpu"
        self.who = "threads" if self.gpu else "one"  # who takes the columns of a row
        # Where not every thread has a row: the guard of those that have one.
        self.live: Guard = (Within(whole("row"), 0, segment.rows),) if self.gpu and segment.ragged else ()
        # Who stores a result, by who folds it (``LoopKey.folds``): a guard, or none for all.
        first_lane = (Within(whole("lane"), 0, 1), *self.live) if self.gpu else ()
        first_of_warp = (Within(Index(0, ((1, Digit("thread", 1, WARP)),)), 0, 1),)
        self.one: dict[str, Guard] = {"": first_lane, "column": (), "warp": first_of_warp}
        self.opening: ir.Nest = ()
        self.closing: ir.Nest = ()

    def phase(self, loop: LoopPlan) -> ir.Phase:
        """One loop of the plan, with what is before and after it.

        A fold over columns is around their loop, and one over reduced rows is inside it:

            before                        before
            Start                         for col:
            for col:                          Start
                body, Accumulate              for ser:
            Combine, stores                       body, Accumulate
            barrier                           Combine, stores
                                          barrier
        """
        work = Statements(self.layout, self.names, loop)
        found = work.fill()
        body = (*work.body, *(ir.Accumulate(fold) for fold, _ in found))
        folds, stores = list[ir.Fold](), list[ir.Store]()
        for fold, stored in found:
            if fold.along == "carry":
                self._carry(fold, stored, loop.cols)
            else:
                folds.append(fold)
                stores += stored
        starts, ends = map(ir.Start, folds), self._ends(loop, folds, stores)
        if loop.serial != 1 or loop.folds:
            inner = (*starts, *self._reduced_rows(loop, body), *ends)
            nest: ir.Nest = (self._columns(loop, inner),)
        else:
            nest = (*starts, self._columns(loop, body), *ends)
        before = (ir.If(self.live, tuple(work.before)),) if self.live and work.before else work.before
        barrier = self.layout.barriers[loop.order]
        barriers = () if barrier == "none" else (ir.Barrier(barrier),)
        return ir.Phase(loop.cols, loop.serial, loop.chunked, (*before, *nest, *barriers))

    def _columns(self, loop: LoopPlan, body: ir.Nest) -> ir.Loop:
        """The loop over the columns of a task, which the threads of a row share."""
        columns = ir.Loop("col", ZERO, loop.cols, body, by="warps" if loop.warps else self.who, within=self.live)
        if not (loop.chunked and self.segment.chunks > 1):
            return columns
        inside = (Within(whole("col"), 0, loop.cols),)
        return replace(columns, first=variable("start", loop.cols), turns=self.segment.chunk, within=inside)

    def _reduced_rows(self, loop: LoopPlan, body: ir.Nest) -> ir.Nest:
        """The body in a loop over the reduced rows of a column. One row needs no loop."""
        if loop.serial == 1:
            return body
        rows = ir.Loop("ser", ZERO, loop.serial, body, by="lanes" if loop.warps else "one")
        return (ir.of_slice(rows, self.segment) if self.segment.slices > 1 else rows,)

    def _ends(self, loop: LoopPlan, folds: Sequence[ir.Fold], stores: Sequence[ir.Store]) -> ir.Nest:
        """The ends of folds. All threads that fold a row or a column have its result. One stores it."""
        firsts = range(0, len(folds), EXCHANGED_AT_ONCE)
        combines = [ir.Combine(tuple(folds[k:k + EXCHANGED_AT_ONCE])) for k in firsts]
        one = self.one[loop.folds]
        return (*combines, ir.If(one, tuple(stores))) if one and stores else (*combines, *stores)

    def _carry(self, fold: ir.Fold, stores: Stores, cols: int) -> None:
        """A block's column sums start before its tasks. Afterwards each row lane stores its part.

        A row lane is the place of a row among the rows that a block takes at once (``lane_row``).
        """
        loop = ir.Loop("col", ZERO, cols, (ir.Start(fold),), by=self.who)
        if self.gpu:
            rows = self.segment.thread_map.rows_per_block
            lane_row = [whole("lane_row")] if rows > 1 else []
            part = in_order(whole("part_block") * rows, *lane_row)
            self.closing = self.closing or (ir.Let("part", part),)
        self.opening = (*self.opening, loop)
        self.closing = (*self.closing, replace(loop, body=(ir.Combine((fold,)), *stores)))
