"""The plan of one kernel: the loop of each sub-root, and how far values travel to their readers.

In:  the sub-roots of a pattern's body, each with its loop. Out: a ``StitchPlan``, which prints.

Each read of a sub-root's value has a *distance*, which only the function ``distance`` decides. The
loop of the reader, the value's scheme, its memory and the barrier follow from it:

    distance   the reader                          its loop        scheme     memory            barrier
    loop       the same thread, in the same loop   the same loop   Local      a register        none
    thread     the same thread, in a later loop    a later phase   Regional   the block's own   none
    block      another thread of the same block    a later phase   Regional   the block's own   block
    grid       another block, or a later level     a later level   Global     global memory     grid

The last column is what the distance asks for. ``kernel.memory`` needs less for the distance
``block``: no barrier if the value is a row-reduce's (all threads have the result) or if a row has
one thread, as always on a CPU; a barrier of the warp if a row has at most 32 threads.

The schemes are AStitch's (2022, section 4). Operations that do not depend on each other are its
Independent scheme. The scheme of a value is that of its farthest reader. A value without a reader
is Local, and it is stored if it is an output. ``stitch.loops`` chooses the loops so that distances
are short.

Regional says here only that one block makes and reads the value. In the paper such a value is in
shared memory. Here ``kernel.memory`` chooses the buffers, and what "the block's own" memory is: a
register of every thread, a row in shared memory, or a row of global memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..device import Device
from ..errors.lazy import lazy
from ..errors.printed import Printed
from ..fuse import Composition, Decision, count
from ..graph import Graph, id_list
from .dominants import Group
from .index import Position
from .mapping import ThreadMap
from .pull import Key, Pull, pull
from .subroots import LoopKey, SegmentKey, SubRoot, makes_locally


# ---------------------------------------------------------------- how far a value travels
class LoopRead(NamedTuple):
    """A sub-root's loop reads another sub-root's ``value`` at a position, from a distance."""

    reader: SubRoot
    value: int
    at: Position
    distance: str  # "loop" | "thread" | "block" | "grid"


def distance(reader: SubRoot, producer: SubRoot, at: Position) -> str:
    """How far the element at ``at`` travels from the loop of ``producer`` to that of ``reader``.

    ``thread``: the thread that makes an element also reads it. That is so if it is read at the
    position where it was made, and both loops have equally many columns: a thread has the same
    columns in both. It is not so if a warp folds each column, for then no thread has columns of its
    own.
    """
    if reader.level != producer.level or not makes_locally(producer, reader.space, at):
        return "grid"
    if producer.result_at != at:
        return "block"
    if producer.role == "map" and producer.loop == reader.loop:
        return "loop"
    return "thread" if producer.cols == reader.cols and not (producer.warps or reader.warps) else "block"


def pulled_by(graph: Graph, sub_roots: Iterable[SubRoot], in_memory: frozenset[int]) -> Pull:
    """All that a loop with these sub-roots computes.

    A combine adds nothing: it reads only partial results.
    """
    roots = [s.root for s in sub_roots if s.role != "combine"]
    own = [s.root for s in sub_roots if s.role == "map"]
    return pull(graph, roots, in_memory, own)


def leaves(graph: Graph, s: SubRoot, in_memory: frozenset[int]) -> list[Key]:
    """The values of other sub-roots that a sub-root's loop reads, each with its position."""
    return [key for key in pulled_by(graph, [s], in_memory).leaves if key[0] in in_memory]


# ---------------------------------------------------------------- threads
Maps = dict[SegmentKey, ThreadMap]  # of each segment its own


def fill_block(maps: Maps, block: int) -> Maps:
    """Fill a block with as many rows as it has room for, more or fewer than its segment's own map.

    A chunk of a row takes the whole block. So does a piece in a block composition.

    Before:  a block of 1024 threads; a segment's map has 8 rows of 32 threads
    After:   its map has 32 rows of 32 threads
    """
    found = dict(maps)
    for key, m in maps.items():
        kind = key[1].kind
        if kind == "block" or m.splits > 1:
            found[key] = replace(m, threads=block, threads_per_row=block)
        elif kind == "row":
            found[key] = replace(m, threads=block, rows_per_block=max(1, block // m.threads_per_row))
    return found


# ---------------------------------------------------------------- the plan
@dataclass(frozen=True)
class LoopPlan(LoopKey):
    """The sub-roots that share one loop, what they pull, and what they read of other sub-roots."""

    order: int  # its place among the kernel's loops
    sub_roots: tuple[SubRoot, ...]
    pulled: Pull
    reads: tuple[LoopRead, ...]

    @property
    def warps(self) -> bool:
        """True where a column is not one thread's but a warp's."""
        return self.folds == "warp"


class Scheme(NamedTuple):
    """One of AStitch's schemes, ``local``, ``regional`` or ``global``, and the reason for it."""

    name: str
    why: str = ""


@dataclass(frozen=True, repr=False)
class StitchPlan(Printed):
    """The sub-roots of one kernel in order, and the decisions that gave them their loops."""

    graph: Graph
    device: Device
    composition: Composition
    groups: tuple[Group, ...]
    sub_roots: tuple[SubRoot, ...]
    decisions: tuple[Decision, ...]
    # Of each segment, if a pass has chosen them.
    maps: tuple[tuple[SegmentKey, ThreadMap], ...] = ()
    # values kept in global memory, since shared memory is full
    demoted: frozenset[int] = frozenset()

    @lazy
    def final(self) -> dict[int, SubRoot]:
        """For each node the sub-root that completes its value: the last one that is made for it."""
        return {s.node: s for s in self.sub_roots}

    @property
    def grid_barriers(self) -> int:
        return max((s.level for s in self.sub_roots), default=0)

    @lazy
    def loops(self) -> tuple[LoopPlan, ...]:
        """The loops in order, each with the sub-roots that share it."""
        shared: dict[LoopKey, list[SubRoot]] = {}
        for s in self.sub_roots:
            shared.setdefault(s.loop, []).append(s)
        reads: dict[LoopKey, list[LoopRead]] = {key: [] for key in shared}
        for read in self.reads:
            reads[read.reader.loop].append(read)
        found = []
        for order, key in enumerate(sorted(shared)):
            pulled = pulled_by(self.graph, shared[key], frozenset(self.final))
            found.append(LoopPlan(**vars(key), order=order, sub_roots=tuple(shared[key]),
                                  pulled=pulled, reads=tuple(reads[key])))
        return tuple(found)

    @lazy
    def thread_maps(self) -> Maps:
        """The map of each segment, all with one block size.

        A pass may have chosen them. If not, they follow from the plan's own.
        """
        block = max((m.threads for m in self.own_maps.values()), default=1)
        return dict(self.maps) or fill_block(self.own_maps, block)

    @lazy
    def own_maps(self) -> Maps:
        """The map of each segment by itself.

        It is the map with the most columns. If the segment has column sums, it is theirs, because
        the number of partial results follows from it.
        """
        found: dict[SegmentKey, ThreadMap] = {}
        for s in self.sub_roots:
            if s.segment not in found or s.thread_map.cols > found[s.segment].cols:
                found[s.segment] = s.thread_map
        return found | {s.segment: s.thread_map for s in self.sub_roots if s.role == "carry"}

    @lazy
    def reads(self) -> tuple[LoopRead, ...]:
        """Each read of a sub-root's value in a sub-root's loop, with its distance."""
        final = self.final
        return tuple(LoopRead(s, v, at, distance(s, final[v], at))
                     for s in self.sub_roots for v, at in leaves(self.graph, s, frozenset(final)))

    def scheme(self, s: SubRoot) -> Scheme:
        """The scheme of a sub-root's value, after demotion if it is demoted."""
        if s.role in ("partial", "carry"):
            return Scheme("global", "partial results are combined after a grid barrier")
        found = self._schemes.get(s.node, Scheme("local"))
        if s.node in self.demoted and found.name == "regional":
            return Scheme("global", "shared memory is full")
        return found

    @lazy
    def _schemes(self) -> dict[int, Scheme]:
        """For each value with readers in other loops the scheme of the farthest."""
        found: dict[int, Scheme] = {}
        for reader, value, at, how_far in self.reads:
            if how_far == "grid" and (value not in found or found[value].name != "global"):
                local = makes_locally(self.final[value], reader.space, at)
                reason = "a grid barrier lies in between" if local else "other tasks make it"
                why = f"%{reader.node} {self.graph[reader.node].op} reads it across blocks: {reason}"
                found[value] = Scheme("global", why)
            elif how_far != "loop":
                found.setdefault(value, Scheme("regional", "produced and read by the same block"))
        return found

    def __str__(self) -> str:
        groups = count(len(self.groups), "group") if self.groups else "block composition: no groups"
        barriers = count(self.grid_barriers, "grid barrier")
        lines = [f"# after stitch: {groups}, {count(len(self.sub_roots), 'sub-root')}, {barriers}"]
        for number, group in enumerate(self.groups):
            subs = f", sub-dominants {id_list(group.subdominants)}" if group.subdominants else ""
            lines.append(f"group {number}: {id_list(group.members)}  dominant %{group.dominant}{subs}")
        for s in self.sub_roots:
            rows, serial, cols = s.extents
            role = f"{s.role} %{s.operand}" if s.role == "operand" else s.role
            domain = f"{count(rows, 'row')} x {count(cols, 'col')}"
            domain += f" x {serial} serial" if serial != 1 else ""
            scheme = ": ".join(filter(None, self.scheme(s)))
            lines.append(f"level {s.level} phase {s.phase}: %{s.node} {self.graph[s.node].op} "
                         f"{role} over {domain}  {scheme}")
        return "\n".join(lines)
