"""Which memory each value of a kernel has, and the barriers that its readers need.

In:  a ``StitchPlan``. Out: a ``Layout``. It is complete before ``statements`` writes the first
statement.

A value lives where its readers find it. How far away they are is known (``stitch.plan.distance``):

    its readers                       where it lives
    in its own loop                   a register
    in other loops of its block       the first line that fits the value (``Layout._place``):
      a row-reduce                      a register of every thread: all of them have the result
      one column, and one thread a row  a register
      a map that is in global memory    that buffer, unless the composition shares the value
      demoted                           scratch, in global memory: shared memory is full
      else                              a row of shared memory, ``k4``
    in other blocks                   global memory: the output, or else scratch, ``t4``

Partial results lie in scratch (``p4``). The column sums of a block lie in shared memory (``a4``).
The warps of a row exchange their results through shared memory (``w00_f32``).

Barriers stand

    between two loops of a row     ``Layout._make_barriers``
    in a row-reduce                its ``ir.Combine``, if warps exchange results
    between two tasks of a block   ``schedule._between_tasks``
    between two levels             the grid barrier of ``schedule._build``

Each value that a block keeps has bytes of its own here. Passes may change that: ``share_memory``
lets values take turns, ``vectorize`` moves rows to registers, ``keep_in_output`` moves them to an
output. ``nest_loops``, ``column_sweep`` and ``batch_rows`` add rows of a CPU's shared memory.
"""

import math
from itertools import groupby, pairwise

from ..errors import KernelError
from ..fuse import Decision
from ..ops import SHORT, compute_dtype
from ..stitch.mapping import EXCHANGED_AT_ONCE, WARP, ThreadMap
from ..stitch.plan import LoopPlan, StitchPlan
from ..stitch.subroots import SegmentKey, SubRoot
from .ir import Buffer, Location

IN_PARTS = "partial", "carry"  # roles of sub-roots that make partial results


def partial_results(s: SubRoot, m: ThreadMap) -> dict[str, int]:
    """How many partial results a sub-root has: the extents of the variables that number them."""
    space = s.space
    if s.role == "carry":
        return {"part": m.blocks * m.rows_per_block, "col": s.cols}
    if space.kind == "row":
        return {"row": space.rows, "chunk": space.chunks}
    return {"row": space.rows, "slice": space.slices, "col": s.cols}


class Layout:
    """Where all values of one kernel live; used during one call of ``schedule``."""

    def __init__(self, plan: StitchPlan) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.device = plan.device
        self.final = plan.final
        by_segment = groupby(plan.loops, lambda loop: loop.segment)
        self.segments = {key: list(loops) for key, loops in by_segment}
        self.maps = plan.thread_maps
        self.block = max((m.threads for m in self.maps.values()), default=1)
        self._require_counted_parts()
        self.decisions = list(plan.decisions)
        for s in plan.sub_roots:
            scheme, why = plan.scheme(s)
            if why:
                self.decisions.append(Decision((s.node,), scheme, "locality", why))
        self.buffers: dict[str, Buffer] = {}
        self.turn = 0
        # Where readers in the same block find a value: a buffer, or "" for a register. A row of
        # shared memory is indexed by row and column, and global memory as the whole value.
        self.places: dict[int, str] = {}
        self.memory: dict[int, str] = {}  # where a value lies in global memory
        # the buffer through which the warps of a row exchange the results of a sub-root
        self.exchange_buffers: dict[SubRoot, str] = {}
        # for each loop: how often it exchanges, each time with a block barrier
        self.exchange_counts = list(map(self._exchange, plan.loops))
        self.from_others = list(map(self._from_others, plan.loops))
        self.barriers = self._make_barriers()
        self._make_buffers()

    def one_thread_a_row(self, segment: SegmentKey) -> bool:
        """True if one thread computes a whole row, so no other thread reads what it keeps."""
        return self.device.kind == "cpu" or self.maps[segment].threads_per_row == 1

    def _require_counted_parts(self) -> None:
        """Raises KernelError if blocks of this size do not make as many partial rows as planned."""
        for s in self.plan.sub_roots:
            if s.role != "carry":
                continue
            planned = self.final[s.node].extents.serial
            made = partial_results(s, self.maps[s.segment])["part"]
            if planned != made:
                raise KernelError(f"%{s.node} {self.graph[s.node].op}: {planned} partial rows were planned, "
                                  f"and blocks of {self.block} threads make {made}")

    # ------------------------------------------------------------ buffers
    def _make_buffers(self) -> None:
        for k, value in enumerate(self.graph.inputs):
            self._argument(f"x{k}", value, "input")
        for k, value in enumerate(self.graph.outputs):
            self._argument(f"y{k}", value, "output")
        for s in self.plan.sub_roots:
            if s.role in IN_PARTS:
                self._partial_buffer(s)
        far = {r.value for r in self.plan.reads if r.distance == "grid"}
        for value in self.final:
            if value in far and value not in self.memory:
                self._scratch(value, "read by other blocks")
        near = {r.value for r in self.plan.reads
                if r.distance in ("thread", "block")}
        for value in self.final:
            if value in near:
                self.places[value] = self._place(self.final[value])

    def _argument(self, name: str, value: int, scope: str) -> None:
        """A buffer of the caller's, where a whole value lies, or a window of it."""
        node = self.graph[value]
        length = dict(node.attrs).get("length")  # only a window of an input is read
        size = length or node.type.size
        self.buffers[name] = Buffer(name, node.type.dtype, size,
                                    scope, value, window=bool(length))
        self.memory.setdefault(value, name)

    def _own(self, name: str, size: int, scope: str, node: int, why: str, role: str = "") -> str:
        """A buffer of the kernel's own, in the dtype of the arithmetic. Returns its name."""
        dtype = compute_dtype(self.graph[node].type.dtype)
        self.buffers[name] = Buffer(name, dtype, size, scope,
                                    node, why=why, role=role)
        return name

    def _scratch(self, node: int, why: str) -> None:
        """Global memory for a whole value."""
        self.memory[node] = self._own(f"t{node}", self.graph[node].type.size,
                                      "scratch", node, why)

    def _partial_buffer(self, s: SubRoot) -> None:
        node, m = s.node, self.maps[s.segment]
        if s.role == "carry":
            size = m.rows_per_block * s.cols
            self._own(f"a{node}", size, "shared", node,
                      "one sum a column", "carry")
        size = math.prod(partial_results(s, m).values())
        self._own(f"p{node}", size, "scratch", node,
                  "partial results", "partial")

    def _place(self, s: SubRoot) -> str:
        """Where the readers of the same block find the value (hierarchical data management)."""
        m = self.maps[s.segment]
        node, space, cols = s.node, s.space, s.cols
        alone = s.role == "map" and cols == 1 and self.one_thread_a_row(s.segment)
        if alone or s.along == "row":
            return ""
        # all chunks of a split row repeat this loop, and each keeps the value for itself
        replicated = space.kind == "row" and space.chunks > 1 and cols != space.cols
        stored = s.role == "map" and node in self.memory
        if stored and not replicated and not self.plan.composition.shares(node):
            return self.memory[node]
        if node in self.plan.demoted and not replicated:
            self._scratch(node, "demoted: shared memory is full")
            why = f"demoted to global scratch: {self.device.shared_per_block} B a block"
            self.decisions.append(Decision((node,), "place",
                                           "shared-memory", why))
            return self.memory[node]
        if m.splits > 1:
            cols = min(cols, m.chunk)
        size = m.rows_per_block * cols
        return self._own(f"k{node}", size, "shared", node,
                         "read again by the same block", "kept")

    def stored_in(self, node: int) -> list[str]:
        """The global buffers that a value is stored to."""
        first = [self.memory[node]] if node in self.memory else []
        outputs = [f"y{k}" for k, o in enumerate(self.graph.outputs)
                   if o == node]
        return list(dict.fromkeys([*first, *outputs]))

    def locations(self, s: SubRoot) -> tuple[Location, ...]:
        """Where a sub-root's value lives."""
        if s.role in IN_PARTS:
            block = [Location(f"a{s.node}", " of each block")] if s.role == "carry" else []
            return (*block, Location(f"p{s.node}"))
        found = []
        place = self.places.get(s.node)
        if place == "":
            who = "warp" if self.maps[s.segment].threads_per_row <= WARP else "block"
            every = "" if self.one_thread_a_row(s.segment) else f" of every thread ({who} reduce)"
            found.append(Location(words=f"register{every}"))
        elif place:
            found.append(Location(place))
        part = f", the part of %{s.operand}" if s.role == "operand" else ""
        found += [Location(name, part)
                  for name in self.stored_in(s.node) if name != place]
        return tuple(found) or (Location(words="register"),)

    # ------------------------------------------------------------ barriers
    def _exchange(self, loop: LoopPlan) -> int:
        """Give the row folds of a loop their exchange buffers. Returns how often it exchanges.

        Two sets of buffers take turns: while slow warps still read one set, the next exchange
        writes the other. So one barrier for each exchange is enough. Segments that no
        grid barrier separates have sets of their own, because a block may have no task in one of
        them.
        """
        if self.maps[loop.segment].threads_per_row <= WARP:
            return 0
        beside = [space for level, space in self.segments
                  if level == loop.level]
        suffix = f"_{beside.index(loop.space)}" if loop.space != beside[0] else ""
        folds = [s for s in loop.sub_roots if s.along == "row"]
        for k, s in enumerate(folds):
            taking_turns, slot = divmod(k, EXCHANGED_AT_ONCE)
            dtype = compute_dtype(self.graph[s.node].type.dtype)
            name = f"w{(self.turn + taking_turns) % 2}{slot}_{SHORT[dtype]}{suffix}"
            self.exchange_buffers[s] = name
            if name not in self.buffers:
                warps = self.block // WARP
                self._own(name, warps, "shared", s.node,
                          "one partial result a warp", "exchange")
        count = -(-len(folds) // EXCHANGED_AT_ONCE)
        self.turn += count
        return count

    def _from_others(self, loop: LoopPlan) -> set[int]:
        """The values that a loop reads from memory and that another thread of the row wrote."""
        if self.one_thread_a_row(loop.segment):
            return set()
        return {r.value for r in loop.reads
                if r.distance == "block" and self.final[r.value].along != "row"}

    def _make_barriers(self) -> list[str]:
        """For each loop the barrier that ends it.

        There is one if the next loop reads what another thread has written since the last barrier.
        An exchange between warps has a barrier, too: it comes after the loop over the columns.
        """
        found = ["none"] * len(self.plan.loops)
        for key, loops in self.segments.items():
            written: set[int] = set()
            for loop, after in pairwise(loops):
                written |= {s.node for s in loop.sub_roots}
                if self.exchange_counts[loop.order]:
                    written.clear()
                if self.from_others[after.order] & written:
                    found[loop.order] = "warp" if self.maps[key].threads_per_row <= WARP else "block"
                    written.clear()
        return found
