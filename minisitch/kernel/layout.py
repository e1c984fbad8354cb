"""The loops of a kernel and where its values live: buffers, slots, thread maps.

In:  a ``StitchPlan``. Out: a ``Layout``, complete before a statement is written, that ``statements`` reads.

Each value that a block keeps has bytes of its own here; ``passes.share_memory`` lets values take turns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from ..errors import KernelError
from ..fuse import Decision
from ..ops import SHORT, compute_dtype, shuffle_dtype
from ..stitch.index import Key, Pull, pull
from ..stitch.mapping import WARP, map_rows_as
from ..stitch.place import StitchPlan
from ..stitch.subroots import Space, SubRoot, makes_near, root
from ..stitch.threads import loops_of, thread_maps
from .ir import MEET_TOGETHER, Buffer, Home


@dataclass
class Loop:
    """The sub-roots that share one loop, and what they pull."""

    level: int
    space: Space
    phase: int
    cols: int
    serial: int
    chunked: bool
    sub_roots: list[SubRoot]
    pulled: Pull
    order: int = 0

    @property
    def warps(self) -> bool:
        """True where a column is not one thread's but a warp's."""
        return any(s.warps for s in self.sub_roots)


@dataclass(frozen=True)
class Place:
    """Where readers in the same block find a value: ``register``; ``row``, a buffer of the block's own, by row and column; or
    ``global``, a buffer that is indexed as the whole value."""

    where: str  # "register" | "row" | "global"
    buffer: str = ""


@dataclass
class Reads:
    """Who reads a sub-root's value, gathered over all loops."""

    near: list[tuple[Loop, bool]] = field(default_factory=list)  # (loop, by the thread that wrote it)
    far: bool = False


class Layout:
    """What one kernel looks like before its statements are written; lives for one call of ``schedule``."""

    def __init__(self, plan: StitchPlan) -> None:
        self.plan, self.graph, self.device = plan, plan.graph, plan.device
        self.final = plan.final
        self.decisions: list[Decision] = list(plan.decisions)
        self.loops = self._make_loops()
        self.segments: dict[tuple[int, Space], list[Loop]] = {}
        for loop in self.loops:
            self.segments.setdefault((loop.level, loop.space), []).append(loop)
        self.loops_of: dict[int, list[int]] = {}  # a sub-root's loops, first to last
        self.readers: dict[int, list[int]] = {}  # the loops that read a value
        for loop in self.loops:
            for s in loop.sub_roots:
                self.loops_of.setdefault(s.node, []).append(loop.order)
            for value, _ in loop.pulled.leaves:
                self.readers.setdefault(value, []).append(loop.order)
        self.reads = self._who_reads()
        self.maps = thread_maps(plan)
        self.block = max((m.threads for m in self.maps.values()), default=1)
        self._require_counted_parts()
        self.buffers: dict[str, Buffer] = {}
        self.turn = 0
        self.places: dict[int, Place] = {}
        self.memory: dict[int, str] = {}  # where a value lies in global memory
        self.exchange: dict[tuple[int, int], str] = {}  # where the warps of a row meet: (loop, sub-root) -> buffer
        self.meetings = [self._meet(loop) for loop in self.loops]  # the block barriers inside each loop's folds
        self.crossed = self._crossings()
        self.barriers = self._make_barriers()
        self._make_buffers()

    # ------------------------------------------------------------ loops
    def _make_loops(self) -> list[Loop]:
        """The loops in order, each with what it pulls."""
        loops: list[Loop] = []
        for (level, _, phase, serial, cols, chunked, *_), sub_roots in loops_of(self.plan):
            pulled = self._pull(sub_roots)
            loops.append(Loop(level, sub_roots[0].space, phase, cols, serial, chunked, sub_roots, pulled, len(loops)))
        return loops

    def _pull(self, sub_roots: Sequence[SubRoot]) -> Pull:
        roots = [root(self.graph, s) for s in sub_roots if s.role != "combine"]
        return pull(self.graph, roots, frozenset(self.final), [root(self.graph, s) for s in sub_roots if s.role == "map"])

    def alone(self, level: int, space: Space) -> bool:
        """True where one thread makes all of a row: what it keeps no other reads."""
        return self.device.kind == "cpu" or self.maps[level, space].threads_per_row == 1

    def near(self, loop: Loop, key: Key) -> bool:
        """True when the value is made by the block that reads it."""
        producer = self.final[key[0]]
        return producer.level == loop.level and makes_near(producer, loop.space, key[1])

    def _who_reads(self) -> dict[int, Reads]:
        found: dict[int, Reads] = {s.node: Reads() for s in self.plan.sub_roots}
        for loop in self.loops:
            for key in loop.pulled.leaves:
                if key[0] not in self.final:
                    continue
                if self.near(loop, key):
                    producer = self.final[key[0]]
                    same = (producer.home == key[1] and producer.extents[2] == loop.cols and not loop.warps and not producer.warps)
                    found[key[0]].near.append((loop, same))
                else:
                    found[key[0]].far = True
        return found

    def _require_counted_parts(self) -> None:
        """Raises KernelError where column sums have as many partial rows as the row lanes of another block than the kernel's."""
        parts = {s.node: s.extents[1] for s in self.plan.sub_roots if s.role == "combine"}
        for loop in self.loops:
            m = self.maps[loop.level, loop.space]
            for s in loop.sub_roots:
                if s.role == "carry" and parts[s.node] != m.blocks * m.rows_per_block:
                    raise KernelError(f"%{s.node} {self.graph[s.node].op}: {parts[s.node]} partial rows were planned, and blocks "
                                      f"of {self.block} threads make {m.blocks * m.rows_per_block}")

    # ------------------------------------------------------------ buffers
    def _make_buffers(self) -> None:
        graph = self.graph
        for k, value in enumerate(graph.inputs):
            t = graph[value].type
            length = dict(graph[value].attrs).get("length")  # only a window of it is read
            self.add(Buffer(f"x{k}", t.dtype, length or t.size, "input", value, window=length is not None))
        self.input_names = {value: f"x{k}" for k, value in enumerate(graph.inputs)}
        for k, value in enumerate(graph.outputs):
            t = graph[value].type
            self.add(Buffer(f"y{k}", t.dtype, t.size, "output", value))
            self.memory.setdefault(value, f"y{k}")
        for s in self.plan.sub_roots:
            if s.role in ("partial", "carry"):
                self._partial_buffer(s)
        for value, reads in self.reads.items():
            t = graph[value].type
            if reads.far and value not in self.memory:
                self.memory[value] = f"t{value}"
                self.add(Buffer(f"t{value}", compute_dtype(t.dtype), t.size, "scratch", value, why="read by other blocks"))
        for value, reads in self.reads.items():
            if reads.near:
                self.places[value] = self._place(self.final[value])

    def add(self, buffer: Buffer) -> None:
        """A buffer with bytes of its own."""
        self.buffers[buffer.name] = replace(buffer, slot=len(self.buffers))

    def _partial_buffer(self, s: SubRoot) -> None:
        dtype = compute_dtype(self.graph[s.node].type.dtype)
        rows, _, cols = s.extents
        if s.role == "carry":
            m = self.maps[s.level, s.space]
            size = m.blocks * m.rows_per_block * cols
            self.add(Buffer(f"a{s.node}", dtype, m.rows_per_block * cols, "shared", s.node, why="one sum a column", role="carry"))
        else:
            size = rows * s.space.chunks if s.space.kind == "row" else rows * s.space.slices * cols
        self.add(Buffer(f"p{s.node}", dtype, size, "scratch", s.node, why="partial results", role="partial"))

    def _place(self, s: SubRoot) -> Place:
        """Where the readers of the same block find the value (hierarchical data management)."""
        dtype = compute_dtype(self.graph[s.node].type.dtype)
        m = self.maps[s.level, s.space]
        if s.along == "row":
            return Place("register")
        if s.role == "map" and s.extents[2] == 1 and self.alone(s.level, s.space):
            return Place("register")
        everyone = s.space.chunks > 1 and s.space.kind == "row" and s.extents[2] != s.space.cols  # each chunk makes its own
        if s.role == "map" and s.node in self.memory and not everyone and not self.plan.composition.shares(s.node):
            return Place("global", self.memory[s.node])
        if s.node in self.plan.demoted and not everyone:
            name = f"t{s.node}"
            self.add(Buffer(name, dtype, self.graph[s.node].type.size, "scratch", s.node, why="demoted: shared memory is full"))
            self.memory[s.node] = name
            self._decide(s, "shared-memory", f"demoted to global scratch: {self.device.shared_per_block} B a block")
            return Place("global", name)
        width = min(s.extents[2], m.chunk) if m.splits > 1 else s.extents[2]
        self.add(Buffer(f"k{s.node}", dtype, m.rows_per_block * width, "shared", s.node, why="read again by the same block",
                        role="kept"))
        return Place("row", f"k{s.node}")

    def _decide(self, s: SubRoot, rule: str, why: str) -> None:
        self.decisions.append(Decision((s.node,), "place", rule, why))

    def home(self, s: SubRoot) -> tuple[Home, ...]:
        """Where a sub-root's value lives."""
        if s.role in ("partial", "carry"):
            block = [Home(f"a{s.node}", " of each block")] if s.role == "carry" else []
            return (*block, Home(f"p{s.node}"))
        found, place = [], self.places.get(s.node)
        if place is not None and place.where == "register":
            who = "warp" if self.maps[s.level, s.space].threads_per_row <= WARP else "block"
            found.append(Home(words="register" + ("" if self.alone(s.level, s.space) else f" of every thread ({who} reduce)")))
        elif place is not None:
            found.append(Home(place.buffer))
        for name in dict.fromkeys([self.memory.get(s.node), *(f"y{k}" for k, o in enumerate(self.graph.outputs) if o == s.node)]):
            if name and (place is None or name != place.buffer):
                found.append(Home(name, f", the piece of %{s.operand}" if s.role == "piece" else ""))
        return tuple(found) or (Home(words="register"),)

    # ------------------------------------------------------------ barriers
    def _meet(self, loop: Loop) -> int:
        """Give the row folds of a loop their places to meet, two sets in turn, so that one barrier a meeting is enough.

        Segments that no grid barrier separates have sets of their own: a block may have no task in the one between two others.
        """
        wide = [s for s in loop.sub_roots if s.along == "row"] if self.maps[loop.level, loop.space].threads_per_row > WARP else []
        beside = [space for level, space in self.segments if level == loop.level]
        turn, place = self.turn, beside.index(loop.space)
        for k, s in enumerate(wide):
            dtype = shuffle_dtype(self.graph[s.node].type.dtype)
            name = f"w{(turn + k // MEET_TOGETHER) % 2}{k % MEET_TOGETHER}_{SHORT[dtype]}" + (f"_{place}" if place else "")
            self.exchange[loop.order, s.node] = name
            if name not in self.buffers:
                self.add(Buffer(name, dtype, max(1, self.block // WARP), "shared", s.node,
                                why="one partial result a warp", role="exchange"))
        self.turn += -(-len(wide) // MEET_TOGETHER)
        return self.turn - turn

    def _crossings(self) -> list[set[int]]:
        """For each loop, the values it reads from memory that another thread of the row wrote."""
        found: list[set[int]] = [set() for _ in self.loops]
        for value, reads in self.reads.items():
            for loop, same in reads.near:
                if not (same or self.alone(loop.level, loop.space) or self.final[value].along == "row"):
                    found[loop.order].add(value)
        return found

    def _make_barriers(self) -> list[str]:
        """The barrier after each loop: before one that reads what another thread wrote since they last met."""
        found = ["none"] * len(self.loops)
        for key, loops in self.segments.items():
            written: set[int] = set()
            for before, loop in zip((loops[0], *loops), loops, strict=False):
                if self.crossed[loop.order] & written:
                    found[before.order] = "warp" if self.maps[key].threads_per_row <= WARP else "block"
                    written.clear()
                written |= {s.node for s in loop.sub_roots}
                if self.meetings[loop.order]:
                    written.clear()
        return found


def asked(plan: StitchPlan) -> tuple[Hashable, ...]:
    """All that a layout takes from a plan; of its composition how rows are mapped, whether threads take several columns, and
    what blocks share."""
    how = plan.composition
    maps = tuple(map_rows_as(how, s.space.rows, s.extents[2], plan.device) for s in plan.sub_roots if s.space.kind == "row")
    shared = tuple(s.node for s in plan.sub_roots if how.shares(s.node))
    return plan.graph.structure_text, plan.sub_roots, maps, plan.device.kind == "gpu" and how.deals, shared

