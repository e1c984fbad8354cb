"""The loops of a kernel and where its values live: buffers, slots, thread maps.

In:  a ``StitchPlan``. Out: a ``Layout``, complete before a statement is written, that ``statements`` reads.

Memory is planned by lifetimes between barriers: the sharing rule of FusionStitching 2018, section
5.2, in its executable form. A buffer may take over bytes once a barrier separates the last read of
the old value from the first write of the new one, or if the thread that reads the old value there last
overwrites it in place.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from ..errors import KernelError
from ..fuse import Decision
from ..ops import SHORT, compute_dtype, itemsize, shuffle_dtype
from ..stitch.index import Key, Pull, pull
from ..stitch.mapping import WARP, ThreadMap, deal, map_rows_as
from ..stitch.place import StitchPlan
from ..stitch.subroots import Sink, Space, makes_near, root
from .ir import MEET_TOGETHER, Buffer, Home


@dataclass
class Loop:
    """The sinks that share one loop, and what they pull."""

    level: int
    space: Space
    phase: int
    cols: int
    serial: int
    chunked: bool
    sinks: list[Sink]
    pulled: Pull
    order: int = 0

    @property
    def warps(self) -> bool:
        """True where a column is not one thread's but a warp's."""
        return any(s.warps for s in self.sinks)


@dataclass(frozen=True)
class Place:
    """Where readers in the same block find a value: ``register``; ``row``, a buffer of the block's own, by row and column; or
    ``global``, a buffer that is indexed as the whole value."""

    where: str  # "register" | "row" | "global"
    buffer: str = ""


@dataclass
class Reads:
    """Who reads a sink's value, gathered over all loops."""

    near: list[tuple[Loop, bool]] = field(default_factory=list)  # (loop, by the thread that wrote it)
    far: bool = False


class Layout:
    """What one kernel looks like before its statements are written; lives for one call of ``schedule``."""

    def __init__(self, plan: StitchPlan, demoted: frozenset[int]) -> None:
        self.plan, self.graph, self.device, self.demoted = plan, plan.graph, plan.device, demoted
        self.final = plan.final
        self.decisions: list[Decision] = list(plan.decisions)
        self.loops = self._make_loops()
        self.segments: dict[tuple[int, Space], list[Loop]] = {}
        for loop in self.loops:
            self.segments.setdefault((loop.level, loop.space), []).append(loop)
        self.loops_of: dict[int, list[int]] = {}  # a sink's loops, first to last
        self.readers: dict[int, list[int]] = {}  # the loops that read a value
        for loop in self.loops:
            for s in loop.sinks:
                self.loops_of.setdefault(s.node, []).append(loop.order)
            for value, _ in loop.pulled.leaves:
                self.readers.setdefault(value, []).append(loop.order)
        self.reads = self._who_reads()
        self.maps = self._segment_maps()
        self.dealt = [key for key in self.maps if self._dealt(key)]
        registers_each = 2 if any(itemsize(n.type.dtype) > 4 for n in self.graph.nodes) else 1
        self.maps |= {key: deal(self.maps[key], self.device, registers_each) for key in self.dealt}
        self.block = self._threads()
        self.maps = {key: m if key[1].kind == "column" else self._widen(m, key[1].kind == "block") for key, m in self.maps.items()}
        self._require_counted_parts()
        self.buffers: dict[str, Buffer] = {}
        self.turn = 0
        self.places: dict[int, Place] = {}
        self.memory: dict[int, str] = {}  # where a value lies in global memory
        self.exchange: dict[tuple[int, int], str] = {}  # where the warps of a row meet: (loop, sink) -> buffer
        self.meetings = [self._meet(loop) for loop in self.loops]  # the block barriers inside each loop's folds
        self.crossed = self._crossings()
        self.barriers = self._make_barriers()
        self._make_buffers()

    # ------------------------------------------------------------ loops
    def _make_loops(self) -> list[Loop]:
        """Sinks of one segment, phase and extent share a loop."""
        found: dict[tuple, list[Sink]] = {}
        for s in self.plan.sinks:
            _, serial, cols = s.extents
            chunked = s.space.kind == "column" or (s.space.chunks > 1 and s.role != "combine" and cols == s.space.cols)
            found.setdefault((s.level, space_order(s.space), s.phase, serial, cols, chunked, s.role == "combine",
                              s.along if s.along in ("column", "warp") else ""), []).append(s)
        loops: list[Loop] = []
        for key, sinks in sorted(found.items(), key=lambda item: item[0]):
            level, _, phase, serial, cols, chunked, *_ = key
            loops.append(Loop(level, sinks[0].space, phase, cols, serial, chunked, sinks, self._pull(sinks), len(loops)))
        return loops

    def _pull(self, sinks: Sequence[Sink]) -> Pull:
        roots = [root(self.graph, s) for s in sinks if s.role != "combine"]
        return pull(self.graph, roots, frozenset(self.final), [root(self.graph, s) for s in sinks if s.role == "map"])

    def alone(self, level: int, space: Space) -> bool:
        """True where one thread makes all of a row: what it keeps no other reads."""
        return self.device.kind == "cpu" or self.maps[level, space].threads_per_row == 1

    def near(self, loop: Loop, key: Key) -> bool:
        """True when the value is made by the block that reads it."""
        producer = self.final[key[0]]
        return producer.level == loop.level and makes_near(producer, loop.space, key[1])

    def _who_reads(self) -> dict[int, Reads]:
        found: dict[int, Reads] = {s.node: Reads() for s in self.plan.sinks}
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

    # ------------------------------------------------------------ thread maps
    def _segment_maps(self) -> dict[tuple[int, Space], ThreadMap]:
        """One map a segment: that of its column sums, whose partial results are counted by it, else of its widest sink."""
        found: dict[tuple[int, Space], ThreadMap] = {}
        fixed = {(s.level, s.space): s.thread_map for loop in self.loops for s in loop.sinks if s.role == "carry"}
        for loop in self.loops:
            key = loop.level, loop.space
            if key in fixed:
                found[key] = fixed[key]
                continue
            best = found.get(key)
            for s in loop.sinks:
                if s.thread_map.splits == loop.space.chunks and (best is None or s.thread_map.cols > best.cols):
                    best = s.thread_map
            if loop.space.kind == "row" and loop.space.chunks == 1 and (best is None or loop.cols > best.cols):
                wider = map_rows_as(self.plan.composition, loop.space.rows, loop.cols, self.device)
                best = wider if wider.splits == 1 or best is None else best
            assert best is not None
            found[key] = best
        return found

    def _dealt(self, key: tuple[int, Space]) -> bool:
        """True if a thread takes several columns: in a GPU's segment of row loops, if it may."""
        return (self.device.kind == "gpu" and self.plan.composition.deals and key[1].kind == "row"
                and all(s.along not in ("column", "warp") and s.role != "carry" for loop in self.segments[key] for s in loop.sinks))

    def _threads(self) -> int:
        """Of a block: as many as the segment with most asks for. Where a row is dealt out in chunks, rows that are packed beside it
        need not fill a block: with 1024 threads a multiprocessor has 64 registers for each, and a chunk's loop spilled them."""
        chunked = any(self.maps[key].splits > 1 for key in self.dealt)
        carries = {(loop.level, loop.space) for loop in self.loops if any(s.role == "carry" for s in loop.sinks)}
        return max((m.threads_per_row if chunked and key[1].kind == "row" and m.splits == 1 and key not in carries else m.threads
                    for key, m in self.maps.items()), default=1)

    def _widen(self, m: ThreadMap, composed: bool) -> ThreadMap:
        """Fill the kernel's block with as many rows as it has room for, more or fewer than the segment asked for. A chunk of a
        row, or a piece in a block composition (``composed``), has all of it."""
        whole = composed or m.splits > 1
        if whole or m.threads == self.block:
            return replace(m, threads=self.block, threads_per_row=self.block if whole else m.threads_per_row)
        return replace(m, threads=self.block, rows_per_block=max(1, self.block // m.threads_per_row))

    def _require_counted_parts(self) -> None:
        """Raises KernelError where column sums have as many partial rows as the row lanes of another block than the kernel's."""
        parts = {s.node: s.extents[1] for s in self.plan.sinks if s.role == "combine"}
        for loop in self.loops:
            m = self.maps[loop.level, loop.space]
            for s in loop.sinks:
                if s.role == "carry" and parts[s.node] != m.blocks * m.rows_per_block:
                    raise KernelError(f"%{s.node} {self.graph[s.node].op}: {parts[s.node]} partial rows were planned, and blocks "
                                      f"of {self.block} threads make {m.blocks * m.rows_per_block}")

    # ------------------------------------------------------------ buffers
    def _make_buffers(self) -> None:
        graph = self.graph
        for k, value in enumerate(graph.inputs):
            t = graph[value].type
            length = dict(graph[value].attrs).get("length")  # of which only a window is read
            self.add(Buffer(f"x{k}", t.dtype, length or t.size, "input", value, window=length is not None))
        self.input_names = {value: f"x{k}" for k, value in enumerate(graph.inputs)}
        for k, value in enumerate(graph.outputs):
            t = graph[value].type
            self.add(Buffer(f"y{k}", t.dtype, t.size, "output", value))
            self.memory.setdefault(value, f"y{k}")
        for s in self.plan.sinks:
            if s.role in ("partial", "carry"):
                self._partial_buffer(s)
        for value, reads in self.reads.items():
            t = graph[value].type
            if reads.far and value not in self.memory:
                self.memory[value] = f"t{value}"
                self.add(Buffer(f"t{value}", compute_dtype(t.dtype), t.size, "scratch", value, why="read by other blocks"))
        for value, reads in self.reads.items():
            if reads.near:
                self.places[value] = self._place(self.final[value], reads)
        self._share()

    def add(self, buffer: Buffer) -> None:
        self.buffers[buffer.name] = buffer

    def _partial_buffer(self, s: Sink) -> None:
        dtype = compute_dtype(self.graph[s.node].type.dtype)
        rows, _, cols = s.extents
        if s.role == "carry":
            m = self.maps[s.level, s.space]
            size = m.blocks * m.rows_per_block * cols
            self.add(Buffer(f"a{s.node}", dtype, m.rows_per_block * cols, "shared", s.node, why="one sum a column", role="carry"))
        else:
            size = rows * s.space.chunks if s.space.kind == "row" else rows * s.space.slices * cols
        self.add(Buffer(f"p{s.node}", dtype, size, "scratch", s.node, why="partial results", role="partial"))

    def _place(self, s: Sink, reads: Reads) -> Place:
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
        if s.role == "map" and (host := self._output_row(s, reads)):
            self._decide(s, "output-row", f"kept in {host}, which the same loop overwrites last")
            return Place("global", host)
        if s.node in self.demoted and not everyone:
            name = f"t{s.node}"
            self.add(Buffer(name, dtype, self.graph[s.node].type.size, "scratch", s.node, why="demoted: shared memory is full"))
            self.memory[s.node] = name
            self._decide(s, "shared-memory", f"demoted to global scratch: {self.device.shared_per_block} B a block")
            return Place("global", name)
        width = min(s.extents[2], m.chunk) if m.splits > 1 else s.extents[2]
        self.add(Buffer(f"k{s.node}", dtype, m.rows_per_block * width, "shared", s.node, why="read again by the same block",
                        role="kept"))
        return Place("row", f"k{s.node}")

    def _output_row(self, s: Sink, reads: Reads) -> str:
        """On a CPU: an output of the same loop shape that is written later can hold the kept row (no extra stream)."""
        if self.device.kind != "cpu" or not all(same for _, same in reads.near):
            return ""
        taken = {p.buffer for p in self.places.values()}
        last = max(loop.order for loop, _ in reads.near)
        for o in self.plan.sinks:
            fits = (o.role == "map" and o.node in self.graph.outputs and o.home == s.home and o.extents == s.extents
                    and (o.level, o.space) == (s.level, s.space) and self.loops_of[o.node][-1] >= last
                    and not self.reads[o.node].near)
            if fits and self.graph[o.node].type.dtype == compute_dtype(self.graph[s.node].type.dtype) \
                    and self.memory[o.node] not in taken and o.domain == s.domain:
                return self.memory[o.node]
        return ""

    def _share(self) -> None:
        """Give buffers whose lives do not meet one slot (FusionStitching 2018, section 5.2, executable form).

        A buffer takes over another's bytes if a barrier separates the old value's last read from
        the new value's first write: a grid barrier for scratch, a block barrier for shared memory.
        """
        for scope, clock in (("scratch", [loop.level for loop in self.loops]), ("shared", self._block_clock())):
            slots: list[list[Buffer]] = []  # those that share bytes: first the largest, which owns them, last the present one
            for b in [b for b in self.buffers.values() if b.scope == scope and b.role != "exchange"]:
                start, _ = self._life(b, clock)
                fits = [k for k, users in enumerate(slots) if users[0].dtype == b.dtype and users[0].size >= b.size > 0
                        and (self._life(users[-1], clock)[1] < start or self._in_place(users[-1], b, clock))]
                slot = min(fits, key=lambda k: slots[k][0].size, default=len(slots))
                if slot == len(slots):
                    slots.append([])
                slots[slot].append(b)
                self.buffers[b.name] = replace(b, slot=slot)

    def _in_place(self, old: Buffer, new: Buffer, clock: Sequence[int]) -> bool:
        """True if every read of ``old`` that no barrier separates from the loop that writes ``new`` is one that the
        writing thread makes of that very element, in that loop or before: in one segment, since another one deals elements out to
        threads in its own way."""
        if {old.role, new.role} != {"kept"} or old.size != new.size or self.final[new.node].role != "map":
            return False
        writer = self.loops_of[new.node][-1]
        late = [(loop, same) for loop, same in self.reads[old.node].near if clock[loop.order] >= clock[writer]]
        home = self.loops[writer].level, self.loops[writer].space
        return bool(late) and all(same and loop.order <= writer and (loop.level, loop.space) == home for loop, same in late)

    def _block_clock(self) -> list[int]:
        """For each loop, the block barriers before it that every warp waits at; a core takes its loops in turn.

        A block that has no task in a segment passes none of its barriers. If it reads in one segment and writes in another it has
        tasks in both, but perhaps not in those between.
        """
        if self.device.kind == "cpu":
            return list(range(len(self.loops)))
        found, now = [], 0
        for k, loop in enumerate(self.loops):
            found.append(now)
            last = k + 1 < len(self.loops) and self.loops[k + 1].level != loop.level
            beside = self._beside(loop)
            if loop.space in (beside[0], beside[-1]):
                now += self.meetings[k] + (self.barriers[k] == "block")
            now += last
        return found

    def _beside(self, loop: Loop) -> list[Space]:
        """The segments of a loop's level: no barrier stands between them."""
        return [space for level, space in self.segments if level == loop.level]

    def _life(self, b: Buffer, clock: Sequence[int]) -> tuple[int, int]:
        """First write and last read of a buffer on a clock of barriers; a block's column sums live as long as its tasks."""
        first = b.role in ("partial", "carry")
        homes = self.loops_of[b.node]
        writer = homes[0 if first else -1]
        if b.role == "carry":
            mine = [clock[x.order] for x in self.segments[self.loops[writer].level, self.loops[writer].space]]
            return min(mine), max(mine)
        if b.role == "partial":
            return clock[writer], clock[homes[-1]]
        readers = [clock[k] for k in self.readers.get(b.node, ())]
        return clock[writer], max([clock[writer], *readers])

    def _decide(self, s: Sink, rule: str, why: str) -> None:
        self.decisions.append(Decision((s.node,), "place", rule, why))

    def home(self, s: Sink) -> tuple[Home, ...]:
        """Where a sink's value lives."""
        if s.role in ("partial", "carry"):
            block = [Home(f"a{s.node}", " of each block")] if s.role == "carry" else []
            return (*block, Home(f"p{s.node}"))
        found, place = [], self.places.get(s.node)
        if place is not None and place.where == "register":
            who = "warp" if self.maps[s.level, s.space].threads_per_row <= WARP else "block"
            found.append(Home(words="register" + ("" if self.alone(s.level, s.space) else f" of every thread ({who} reduce)")))
        elif place is not None:
            mine = self.buffers[place.buffer].node == s.node
            found.append(Home(place.buffer) if mine else Home(words=f"the row of {place.buffer}, which is written last"))
        for name in dict.fromkeys([self.memory.get(s.node), *(f"y{k}" for k, o in enumerate(self.graph.outputs) if o == s.node)]):
            if name and (place is None or name != place.buffer):
                found.append(Home(name, f", the piece of %{s.operand}" if s.role == "piece" else ""))
        return tuple(found) or (Home(words="register"),)

    # ------------------------------------------------------------ barriers
    def _meet(self, loop: Loop) -> int:
        """Give the row folds of a loop their places to meet, two sets in turn, so that one barrier a meeting is enough.

        Segments that no grid barrier separates have sets of their own: a block may have no task in the one between two others.
        """
        wide = [s for s in loop.sinks if s.along == "row"] if self.maps[loop.level, loop.space].threads_per_row > WARP else []
        turn, place = self.turn, self._beside(loop).index(loop.space)
        for k, s in enumerate(wide):
            dtype = shuffle_dtype(self.graph[s.node].type.dtype)
            name = f"w{(turn + k // MEET_TOGETHER) % 2}{k % MEET_TOGETHER}_{SHORT[dtype]}" + (f"_{place}" if place else "")
            self.exchange[loop.order, s.node] = name
            if name not in self.buffers:
                self.add(Buffer(name, dtype, max(1, self.block // WARP), "shared", s.node, EXCHANGE + len(self.buffers),
                                "one partial result a warp", "exchange"))
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
                written |= {s.node for s in loop.sinks}
                if self.meetings[loop.order]:
                    written.clear()
        return found


def asked(plan: StitchPlan) -> tuple[Hashable, ...]:
    """All that a layout takes from a plan; of its composition how rows are mapped, whether threads take several columns, and
    what blocks share."""
    how = plan.composition
    maps = tuple(map_rows_as(how, s.space.rows, s.extents[2], plan.device) for s in plan.sinks if s.space.kind == "row")
    shared = tuple(s.node for s in plan.sinks if how.shares(s.node))
    return plan.graph.structure_text, plan.sinks, maps, plan.device.kind == "gpu" and how.deals, shared


EXCHANGE = 1000  # slots from here on are no one's to share


def space_order(space: Space) -> tuple:
    return space.kind, space.rows, space.chunks, space.slices, space.serial, space.cols
