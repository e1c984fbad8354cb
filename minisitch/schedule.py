"""From a stitch plan to the loop IR: statements, buffers, launch configuration.

In:  a ``StitchPlan``. Out: a verified ``Kernel``, ready to be printed for a GPU or a CPU.

Each phase is filled by *pulling*: starting from what its sinks need at the loop's position, every
value is computed where it is read (thread composition) until a value in memory or in a register is
met. Memory is then planned by lifetimes between barriers (the sharing rule of FusionStitching 2018,
section 5.2, in its executable form: a buffer may take over bytes once a barrier separates the last
read of the old value from the first write of the new one).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from .fuse import Decision
from .graph import Node
from .index import Guard, Index, Key, Pull, Within, footprint, linear, pull, variable
from .kernel import (
    Buffer,
    Choose,
    Clamp,
    Compute,
    Fold,
    FromIndex,
    Kernel,
    Load,
    Phase,
    Segment,
    Stmt,
    Store,
    Touch,
    statements,
    verify_kernel,
)
from .loops import nest_columns
from .mapping import ThreadMap, map_rows
from .ops import SHORT, compute_dtype, shuffle_dtype
from .stitch import Sink, Space, StitchPlan, column_of

_FOLDED = ("reduce", "partial", "combine")  # roles whose threads meet to agree on a result


@dataclass
class _Loop:
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


@dataclass(frozen=True)
class _Place:
    """Where readers in the same block find a value: ``register``, or ``buffer`` (with its own index rule)."""

    where: str  # "register" | "row" | "global"
    buffer: str = ""


@dataclass
class _Reads:
    """Who reads a sink's value, gathered over all loops."""

    near: list[tuple[_Loop, bool]] = field(default_factory=list)  # (loop, by the thread that wrote it)
    far: bool = False


def schedule(plan: StitchPlan) -> Kernel:
    """Build, plan memory, configure the launch, verify.

    Shared memory that does not fit is demoted, largest buffer first, to global scratch (AStitch B7).
    """
    demoted: set[int] = set()
    while True:
        builder = _Builder(plan, frozenset(demoted))
        kernel = builder.build()
        limit = kernel.device.shared_per_block
        movable = [b for b in kernel.buffers if b.scope == "shared" and b.node not in demoted and b.name.startswith("k")]
        if kernel.shared_bytes <= limit or not movable or kernel.device.kind == "cpu":
            return verify_kernel(kernel)
        demoted.add(max(movable, key=lambda b: (b.size, -b.node)).node)


class _Builder:
    """Builds one kernel; lives for one call of ``schedule``."""

    def __init__(self, plan: StitchPlan, demoted: frozenset[int]) -> None:
        self.plan, self.graph, self.device, self.demoted = plan, plan.graph, plan.device, demoted
        self.final = plan.final
        self.constants: dict[tuple[str, str], tuple[str, str, object]] = {}
        self.decisions: list[Decision] = list(plan.decisions)
        self.loops = self._make_loops()
        self.reads = self._who_reads()
        self.maps = self._segment_maps()
        self.block = max((m.threads for m in self.maps.values()), default=1)
        self.maps = {key: self._widen(m) if key[1].kind == "row" else m for key, m in self.maps.items()}
        self.buffers: dict[str, Buffer] = {}
        self.meetings = 0
        self.accesses: dict[tuple[int, str, bool], set[Index]] = {}
        self.places: dict[int, _Place] = {}
        self._make_buffers()

    # ------------------------------------------------------------ loops
    def _make_loops(self) -> list[_Loop]:
        """Sinks of one segment, phase and extent share a loop."""
        widest: dict[tuple[int, Space], int] = {}
        for s in self.plan.sinks:
            if s.role != "combine":
                widest[s.level, s.space] = max(widest.get((s.level, s.space), 0), s.extents[2])
        found: dict[tuple, list[Sink]] = {}
        for s in self.plan.sinks:
            _, serial, cols = s.extents
            chunked = s.space.kind == "column" or (s.space.chunks > 1 and s.role != "combine"
                                                   and cols == widest[s.level, s.space])
            found.setdefault((s.level, _space_order(s.space), s.phase, serial, cols, chunked, s.role == "combine"),
                             []).append(s)
        loops: list[_Loop] = []
        for key, sinks in sorted(found.items(), key=lambda item: item[0]):
            level, _, phase, serial, cols, chunked, _ = key
            loops.append(_Loop(level, sinks[0].space, phase, cols, serial, chunked, sinks, self._pull(sinks), len(loops)))
        return loops

    def _pull(self, sinks: Sequence[Sink]) -> Pull:
        roots: list[Key] = []
        for s in sinks:
            if s.role != "combine":
                node = self.graph[s.node]
                roots.append((s.node if s.role == "map" else node.args[0], s.partition.position(s.domain)))
        own = [root for s, root in zip([s for s in sinks if s.role != "combine"], roots, strict=True) if s.role == "map"]
        return pull(self.graph, roots, self.final.__contains__, own)

    def _near(self, loop: _Loop, key: Key) -> bool:
        """True when the value is made by the block that reads it."""
        producer = self.final[key[0]]
        return (producer.level == loop.level and producer.space == loop.space
                and column_of(producer, key[1]) is not None)

    def _who_reads(self) -> dict[int, _Reads]:
        found: dict[int, _Reads] = {s.node: _Reads() for s in self.plan.sinks}
        for loop in self.loops:
            for key in loop.pulled.leaves:
                if key[0] not in self.final:
                    continue
                if self._near(loop, key):
                    producer = self.final[key[0]]
                    same = producer.home == key[1] and producer.extents[2] == loop.cols
                    found[key[0]].near.append((loop, same))
                else:
                    found[key[0]].far = True
        return found

    # ------------------------------------------------------------ thread maps
    def _segment_maps(self) -> dict[tuple[int, Space], ThreadMap]:
        """One map a segment: that of its widest sink."""
        found: dict[tuple[int, Space], ThreadMap] = {}
        for loop in self.loops:
            key = loop.level, loop.space
            best = found.get(key)
            for s in loop.sinks:
                if s.thread_map.splits == loop.space.chunks and (best is None or s.thread_map.cols > best.cols):
                    best = s.thread_map
            if loop.space.kind == "row" and loop.space.chunks == 1 and (best is None or loop.cols > best.cols):
                wider = map_rows(loop.space.rows, loop.cols, self.device)
                best = wider if wider.splits == 1 or best is None else best
            assert best is not None
            found[key] = best
        return found

    def _widen(self, m: ThreadMap) -> ThreadMap:
        """Fill the kernel's block with more rows when another segment asks for a larger block."""
        if m.splits > 1 or m.threads == self.block:
            return replace(m, threads=self.block, threads_per_row=self.block if m.splits > 1 else m.threads_per_row)
        return replace(m, threads=self.block, rows_per_block=max(1, self.block // m.threads_per_row))

    # ------------------------------------------------------------ buffers
    def _make_buffers(self) -> None:
        graph = self.graph
        for k, value in enumerate(graph.inputs):
            t = graph[value].type
            self._buffer(Buffer(f"x{k}", t.dtype, t.size, "input", value))
        self.input_names = {value: f"x{k}" for k, value in enumerate(graph.inputs)}
        self.memory: dict[int, str] = {}  # where a value lies in global memory
        for k, value in enumerate(graph.outputs):
            t = graph[value].type
            self._buffer(Buffer(f"y{k}", t.dtype, t.size, "output", value))
            self.memory.setdefault(value, f"y{k}")
        for s in self.plan.sinks:
            if s.role in ("partial", "carry"):
                self._partial_buffer(s)
        for value, reads in self.reads.items():
            t = graph[value].type
            if reads.far and value not in self.memory:
                self.memory[value] = f"t{value}"
                self._buffer(Buffer(f"t{value}", compute_dtype(t.dtype), t.size, "scratch", value, why="read by other blocks"))
        for value, reads in self.reads.items():
            if reads.near:
                self.places[value] = self._place(self.final[value], reads)
        self._share()

    def _buffer(self, buffer: Buffer) -> None:
        self.buffers[buffer.name] = buffer

    def _partial_buffer(self, s: Sink) -> None:
        dtype = compute_dtype(self.graph[s.node].type.dtype)
        rows, _, cols = s.extents
        if s.role == "carry":
            m = self.maps[s.level, s.space]
            size = m.blocks * m.rows_per_block * cols
            self._buffer(Buffer(f"a{s.node}", dtype, m.rows_per_block * cols, "shared", s.node, why="one sum a column"))
        else:
            size = rows * s.space.chunks if s.space.kind == "row" else rows * s.space.slices * cols
        self._buffer(Buffer(f"p{s.node}", dtype, size, "scratch", s.node, why="partial results"))

    def _place(self, s: Sink, reads: _Reads) -> _Place:
        """Where the readers of the same block find the value (hierarchical data management)."""
        dtype = compute_dtype(self.graph[s.node].type.dtype)
        m = self.maps[s.level, s.space]
        if s.role in ("reduce", "combine") and s.space.kind == "row":
            return _Place("register")
        if s.role == "map" and s.extents[2] == 1 and self.device.kind == "cpu":
            return _Place("register")
        if s.role == "map" and s.node in self.memory:
            return _Place("global", self.memory[s.node])
        if s.role == "map" and (host := self._output_row(s, reads)):
            self._decide(s, "output-row", f"kept in {host}, which the same loop overwrites last")
            return _Place("global", host)
        if s.node in self.demoted:
            name = f"t{s.node}"
            self._buffer(Buffer(name, dtype, self.graph[s.node].type.size, "scratch", s.node, why="demoted: shared memory is full"))
            self.memory[s.node] = name
            self._decide(s, "shared-memory", f"demoted to global scratch: {self.device.shared_per_block} B a block")
            return _Place("global", name)
        chunk = -(-m.cols // m.splits) if s.space.kind == "row" and m.splits > 1 else m.chunk
        width = min(s.extents[2], chunk) if m.splits > 1 else s.extents[2]
        self._buffer(Buffer(f"k{s.node}", dtype, m.rows_per_block * width, "shared", s.node, why="read again by the same block"))
        return _Place("row", f"k{s.node}")

    def _output_row(self, s: Sink, reads: _Reads) -> str:
        """On a CPU: an output of the same loop shape that is written later can hold the kept row (no extra stream)."""
        if self.device.kind != "cpu" or not all(same for _, same in reads.near):
            return ""
        taken = {p.buffer for p in self.places.values()}
        last = max(loop.phase for loop, _ in reads.near)
        for o in self.plan.sinks:
            fits = (o.role == "map" and o.node in self.graph.outputs and o.home == s.home and o.extents == s.extents
                    and (o.level, o.space) == (s.level, s.space) and o.phase >= last and not self.reads[o.node].near)
            if fits and self.graph[o.node].type.dtype == compute_dtype(self.graph[s.node].type.dtype) \
                    and self.memory[o.node] not in taken and o.domain == s.domain:
                return self.memory[o.node]
        return ""

    def _share(self) -> None:
        """Give buffers whose lives do not meet one slot (FusionStitching 2018, section 5.2, executable form).

        A buffer takes over another's bytes if a barrier separates the old value's last read from
        the new value's first write: a grid barrier for scratch, a block barrier for shared memory.
        """
        for scope, clock in (("scratch", self._grid_clock()), ("shared", self._block_clock())):
            slots: list[tuple[Buffer, int]] = []
            for b in [b for b in self.buffers.values() if b.scope == scope]:
                start, end = self._life(b, clock)
                for k, (owner, last) in enumerate(slots):
                    if owner.dtype == b.dtype and owner.size >= b.size and last < start:
                        self.buffers[b.name] = replace(b, slot=k)
                        slots[k] = owner, end
                        break
                else:
                    self.buffers[b.name] = replace(b, slot=len(slots))
                    slots.append((b, end))

    def _grid_clock(self) -> list[int]:
        """For each loop, the grid barriers before it."""
        return [loop.level for loop in self.loops]

    def _block_clock(self) -> list[int]:
        """For each loop, the block barriers before it that every warp waits at."""
        found, now = [], 0
        for k, loop in enumerate(self.loops):
            m = self.maps[loop.level, loop.space]
            mine = [x for x in self.loops if (x.level, x.space) == (loop.level, loop.space)]
            found.append(now)
            folds = m.threads_per_row > 32 and loop.space.kind == "row" and any(s.role in _FOLDED for s in loop.sinks)
            after = self._barrier_after(mine, mine.index(loop), m) == "block"
            last = k + 1 < len(self.loops) and self.loops[k + 1].level != loop.level
            now += folds + after + last
        return found

    def _life(self, b: Buffer, clock: Sequence[int]) -> tuple[int, int]:
        """First write and last read of a buffer on a clock of barriers; a block's column sums live as long as its tasks."""
        first = b.name[0] in "pa"
        sinks = [s for s in self.plan.sinks if s.node == b.node]
        writer = next(k for k, loop in enumerate(self.loops) if (sinks[0] if first else sinks[-1]) in loop.sinks)
        if b.name[0] == "a":
            mine = [clock[k] for k, x in enumerate(self.loops)
                    if (x.level, x.space) == (self.loops[writer].level, self.loops[writer].space)]
            return min(mine), max(mine)
        if b.name[0] == "p":
            return clock[writer], max(clock[k] for k, x in enumerate(self.loops) if sinks[-1] in x.sinks)
        readers = [clock[k] for k, x in enumerate(self.loops) for key in x.pulled.leaves if key[0] == b.node]
        return clock[writer], max([clock[writer], *readers])

    def _decide(self, s: Sink, rule: str, why: str) -> None:
        self.decisions.append(Decision((s.node,), "place", rule, why))

    # ------------------------------------------------------------ the kernel
    def build(self) -> Kernel:
        keys = sorted({(loop.level, _space_order(loop.space)) for loop in self.loops})
        segments = []
        for number, (level, order) in enumerate(keys):
            loops = [loop for loop in self.loops if loop.level == level and _space_order(loop.space) == order]
            last_of_level = number + 1 < len(keys) and keys[number + 1][0] != level
            segments.append(self._segment(loops, "grid" if last_of_level else "none"))
        ranked = {"input": 0, "output": 1, "scratch": 2, "shared": 3}
        buffers = tuple(sorted(self.buffers.values(), key=lambda b: ranked[b.scope]))
        kernel = Kernel(self._name(), self.plan, self.device, buffers, tuple(self.constants.values()), tuple(segments),
                        1, self.block, 32, self._touches(), tuple(self.decisions))
        wave = self.device.wave(self.block, kernel.shared_bytes)
        grid = max((s.thread_map.blocks for s in segments), default=1)
        if kernel.grid_barriers and self.device.kind == "gpu":
            grid = min(grid, wave)
        registers = self.device.relaxed_registers(self.block, kernel.shared_bytes) if self.device.kind == "gpu" else 255
        return replace(kernel, grid=max(1, grid), registers=registers)

    def _name(self) -> str:
        words = list(dict.fromkeys(n.via for n in self.graph.nodes if n.via and n.kind != "source"))
        words = words or list(dict.fromkeys(n.op for n in self.graph.nodes if n.kind in ("map", "reduce")))
        words = words or [n.op for n in self.graph.nodes[-1:]]
        text = repr((self.graph.structure, self.device.name, self.block))
        digest = hashlib.sha256(text.encode()).hexdigest()[:4]
        return re.sub(r"\W", "_", "_".join(words[:2]))[:32].strip("_") + f"_{digest}"

    def _segment(self, loops: Sequence[_Loop], barrier: str) -> Segment:
        space = loops[0].space
        m = self.maps[loops[0].level, space]
        slice_size = -(-space.serial // space.slices) if space.slices > 1 else max((p.serial for p in loops), default=1)
        self.names: dict[int, int] = {}
        self.crossing: dict[Key, str] = {}
        phases = []
        for k, loop in enumerate(loops):
            barrier_after = self._barrier_after(loops, k, m)
            phases.append(self._phase(loop, space, m, barrier_after))
        self._touch(loops[0].level, phases)
        chunk = m.chunk
        if self.device.kind == "cpu":
            phases, chunk = nest_columns(phases, chunk, space.chunks)
        wide = m.threads_per_row > 32
        shared = any(p.barrier != "none" for p in phases) or (wide and any(f.along == "row" for p in phases for f in p.folds))
        task = "none" if self.device.kind == "cpu" or not shared else "block" if wide else "warp"
        carries = tuple(f"a{s.node}" for loop in loops for s in loop.sinks if s.role == "carry")
        return Segment(space.kind, space.rows, space.chunks, chunk, space.slices, slice_size, m, tuple(phases), task,
                       barrier, carries)

    def _touch(self, level: int, phases: Sequence[Phase]) -> None:
        """Note which cells the phases read and write: what the cost model counts and the stepper checks."""
        for phase in phases:
            for stmt in statements(phase):
                if isinstance(stmt, (Load, Store)) and self.buffers[stmt.buffer].scope != "shared":
                    self.accesses.setdefault((level, stmt.buffer, isinstance(stmt, Store)), set()).add(stmt.index)

    def _touches(self) -> tuple[Touch, ...]:
        found = []
        for level, buffer in sorted({key[:2] for key in self.accesses}):
            size = self.buffers[buffer].size
            read, written = (footprint(self.accesses.get((level, buffer, store), ()), size) for store in (False, True))
            found.append(Touch(level, buffer, read, written))
        return tuple(found)

    def _barrier_after(self, loops: Sequence[_Loop], k: int, m: ThreadMap) -> str:
        """A barrier where a later phase reads what another thread of the block wrote in this one."""
        if self.device.kind == "cpu":
            return "none"
        here = {s.node for s in loops[k].sinks if s.role == "map" or loops[k].space.kind == "column"}
        crossed = any(not same and loop.order > loops[k].order for node in here for loop, same in self.reads[node].near)
        return "none" if not crossed else "warp" if m.threads_per_row <= 32 and m.splits == 1 else "block"

    # ------------------------------------------------------------ statements
    def _phase(self, loop: _Loop, space: Space, m: ThreadMap, barrier: str) -> Phase:
        work = _Statements(self, loop, space, m)
        folds = [work.combine(s) for s in loop.sinks if s.role == "combine"]
        work.evaluate()
        for s in loop.sinks:
            if s.role == "map":
                work.store_map(s)
            elif s.role != "combine":
                folds.append(work.fold(s))
        return Phase(loop.cols, loop.serial, loop.chunked, tuple(work.before), tuple(work.body),
                     self._with_exchange(folds, m), barrier, (("col", loop.cols),))

    def _with_exchange(self, folds: Sequence[Fold], m: ThreadMap) -> tuple[Fold, ...]:
        """Warps of one row meet in shared memory; two sets in turn, so that one barrier a phase is enough."""
        if self.device.kind == "cpu" or m.threads_per_row <= 32:
            return tuple(folds)
        wide = [f for f in folds if f.along == "row"]
        found = []
        for f in folds:
            if f.along != "row":
                found.append(f)
                continue
            dtype = shuffle_dtype(f.dtype)
            name = f"w{self.meetings % 2}{wide.index(f)}_{SHORT[dtype]}"
            if name not in self.buffers:
                self._buffer(Buffer(name, dtype, max(1, self.block // 32), "shared", f.node, 1000 + len(self.buffers),
                                    "one partial result a warp"))
            found.append(replace(f, exchange=name))
        self.meetings += bool(wide)
        return tuple(found)

    def constant(self, dtype: str, value: object) -> str:
        key = (dtype, repr(value))
        if key not in self.constants:
            self.constants[key] = (f"C{len(self.constants)}", dtype, value)
        return self.constants[key][0]


class _Statements:
    """Fills one phase: names for (value, position) pairs, and the statements that compute them."""

    def __init__(self, builder: _Builder, loop: _Loop, space: Space, m: ThreadMap) -> None:
        self.b, self.graph, self.loop, self.space, self.m = builder, builder.graph, loop, space, m
        self.before: list[Stmt] = []
        self.body: list[Stmt] = []
        self.name: dict[Key, str] = {}
        self.moving = {"col", "ser"} if loop.cols != 1 or loop.serial != 1 else {"col", "ser", "row"}

    # -- where a statement goes
    def _once(self, names: Iterable[str]) -> bool:
        """True if it can run once a row: nothing it depends on changes along the loop."""
        if self.loop.cols == 1 and self.loop.serial == 1:
            return self.b.device.kind == "cpu"
        return not self.moving.intersection(names)

    def _emit(self, stmt: Stmt, variables: Iterable[str]) -> None:
        (self.before if self._once(variables) else self.body).append(stmt)

    def _fresh(self, value: int) -> str:
        count = self.b.names.get(value, 0)
        self.b.names[value] = count + 1
        return f"v{value}" if count == 0 else f"v{value}_{count}"

    def _position_variables(self, key: Key) -> frozenset[str]:
        return frozenset().union(*(i.variables for i in key[1])) if key[1] else frozenset()

    # -- pulling
    def evaluate(self) -> None:
        pulled = self.loop.pulled
        clamped: set[str] = set()
        for key in pulled.order:
            variables = self._position_variables(key)
            for name in sorted(variables & pulled.indices.keys()):
                if name not in clamped:
                    clamped.add(name)
                    source, size = pulled.indices[name]
                    self._emit(Clamp(name, self.name[source], size, source[0]), self._position_variables(source))
                    if not self._once(self._position_variables(source)):
                        self.moving.add(name)
            reads = pulled.reads[key]
            self.name[key] = self._leaf(key, variables) if reads is None else self._value(key, reads, variables)

    def _leaf(self, key: Key, variables: frozenset[str]) -> str:
        value, position = key
        node = self.graph[value]
        offset = linear(position, node.type.shape)
        if value not in self.b.final:
            return self._load(key, self.b.input_names[value], offset, node, variables)
        place = self.b.places.get(value)
        if not self.b._near(self.loop, key) or place is None:
            return self._load(key, self.b.memory[value], offset, node, variables)
        if place.where == "register":
            return self.b.crossing[value, ()]
        if place.where == "global":
            return self._load(key, place.buffer, offset, node, variables)
        return self._load(key, place.buffer, self._row_offset(self.b.final[value], position), node, variables)

    def _row_offset(self, s: Sink, position: Sequence[Index]) -> Index:
        """Offset in a row buffer of shared memory: this row's slot, then the column (from the chunk's start)."""
        column = column_of(s, tuple(position))
        assert column is not None
        width = self.b.buffers[f"k{s.node}"].size // self.m.rows_per_block
        if self.space.chunks > 1 and "col" in frozenset().union(*(h.variables for h in s.home)):
            column = column + variable("start", max(2, s.extents[2])) * -1
        return variable("lane_row", self.m.rows_per_block) * width + column

    def _load(self, key: Key, buffer: str, offset: Index, node: Node, variables: frozenset[str]) -> str:
        name = self._fresh(key[0])
        alternatives = self.loop.pulled.guards[key]
        guard: Guard = alternatives[0] if len(alternatives) == 1 else ()
        clamp = len(alternatives) != 1
        inside = frozenset().union(*(c.index.variables for c in guard)) if guard else frozenset()
        if self._once(variables) and not self._once(variables | inside):
            guard, clamp = (), True  # hoisted out of the loop its guard depends on: any element will do
        self._emit(Load(name, buffer, offset, guard, clamp, self.b.buffers[buffer].dtype, node.id), variables)
        return name

    def _value(self, key: Key, reads: Sequence, variables: frozenset[str]) -> str:
        node = self.graph[key[0]]
        if node.op == "constant":
            return self.b.constant(node.type.dtype, node.attr("value"))
        if node.op == "iota":
            name = self._fresh(node.id)
            self._emit(FromIndex(name, key[1][node.attr("axis")], node.type.dtype, node.id), variables)
            return name
        if node.kind == "move":
            return self._choose(node, [r for r in reads if r is not None], variables)
        name = self._fresh(node.id)
        args = tuple(self.name[r.node, r.position] for r in reads)
        operand = self.graph[node.args[-1]].type.dtype
        self._emit(Compute(name, node.op, args, node.type.dtype, operand, node.id), variables)
        return name

    def _choose(self, node: Node, reads: Sequence, variables: frozenset[str]) -> str:
        """A move costs nothing but, where several operands meet, a choice."""
        if node.op == "gather":
            reads = reads[:1]
        result = self.name[reads[0].node, reads[0].position] if node.op == "update" else \
            self.name[reads[-1].node, reads[-1].position]
        pairs = reads[1:] if node.op == "update" else list(reversed(reads[:-1]))
        for read in pairs:
            if not read.guard:
                result = self.name[read.node, read.position]
                continue
            target = self._fresh(node.id)
            self._emit(Choose(target, read.guard, self.name[read.node, read.position], result, node.type.dtype, node.id),
                       variables)
            result = target
        return result

    # -- sinks
    def _replicated(self) -> Guard:
        """Every chunk of a row makes the values of an unchunked phase; only the first may store them."""
        if self.space.kind == "row" and self.space.chunks > 1 and not self.loop.chunked:
            return (Within(variable("chunk", self.space.chunks), 0, 1),)
        return ()

    def store_map(self, s: Sink) -> None:
        value = self.name[s.node, s.home]
        self.b.crossing[s.node, ()] = value
        offset = linear(s.home, self.graph[s.node].type.shape)
        place = self.b.places.get(s.node)
        buffers = dict.fromkeys([self.b.memory.get(s.node, ""), place.buffer if place else ""])
        for k, output in enumerate(self.graph.outputs):
            if output == s.node:
                buffers[f"y{k}"] = None
        for buffer in buffers:
            if buffer:
                row = self.b.buffers[buffer].scope == "shared"
                where = self._row_offset(s, s.home) if row else offset
                self.body.append(Store(buffer, where, value, () if row else self._replicated(), s.node))

    def _result_stores(self, s: Sink, value: str) -> tuple[Store, ...]:
        """Stores of a finished reduce: its place in global memory, and a column's row buffer."""
        buffers = dict.fromkeys([self.b.memory.get(s.node, "")])
        for k, output in enumerate(self.graph.outputs):
            if output == s.node:
                buffers[f"y{k}"] = None
        offset = linear(s.home, self.graph[s.node].type.shape)
        found = [Store(b, offset, value, self._replicated(), s.node) for b in buffers if b]
        place = self.b.places.get(s.node)
        if place is not None and place.where == "row":
            found.append(Store(place.buffer, self._row_offset(s, s.home), value, (), s.node))
        return tuple(found)

    def fold(self, s: Sink) -> Fold:
        node = self.graph[s.node]
        value = self.name[node.args[0], s.partition.position(s.domain)]
        result = f"r{s.node}"
        if s.role == "carry":
            cols = s.extents[2]
            offset = variable("part", max(2, self.m.blocks * self.m.rows_per_block)) * cols + variable("col", cols)
            store = Store(f"p{s.node}", offset, result, (), s.node)
            return Fold(result, node.op, node.type.dtype, value, "carry", s.node, f"a{s.node}", (store,))
        along = "row" if s.space.kind == "row" else "column"
        if s.role == "partial":
            row = variable("row", s.space.rows)
            if along == "row":
                offset = row * s.space.chunks + variable("chunk", s.space.chunks)
            else:
                slices = s.space.slices
                offset = (row * slices + variable("slice", slices)) * s.extents[2] + variable("col", s.extents[2])
            stores: tuple[Store, ...] = (Store(f"p{s.node}", offset, result, (), s.node),)
        else:
            self.b.crossing[s.node, ()] = result
            stores = self._result_stores(s, result)
        return Fold(result, node.op, node.type.dtype, value, along, s.node, self._accumulator(s, along), stores)

    def _accumulator(self, s: Sink, along: str) -> str:
        """A CPU's column reduce sums into a scratch row; a GPU thread holds its column in a register."""
        if along != "column" or self.b.device.kind != "cpu":
            return ""
        dtype = compute_dtype(self.graph[s.node].type.dtype)
        name = f"a{s.node}" if s.role != "combine" else f"c{s.node}"
        width = min(s.extents[2], self.m.chunk)
        self.b._buffer(Buffer(name, dtype, width, "shared", s.node, len(self.b.buffers), "one sum a column"))
        return name

    def combine(self, s: Sink) -> Fold:
        """Fold the partial results; the loop reads them from scratch."""
        node = self.graph[s.node]
        rows, parts = s.domain[0], s.domain[1]
        name = self._fresh(s.node)
        row = variable("row", rows)
        if s.space.kind == "row":
            offset, along = row * parts + variable("col", parts), "row"
        else:
            cols = s.domain[2]
            offset, along = (row * parts + variable("ser", parts)) * cols + variable("col", cols), "column"
        buffer = f"p{s.node}"
        self.body.append(Load(name, buffer, offset, (), False, self.b.buffers[buffer].dtype, s.node))
        result = f"r{s.node}"
        self.b.crossing[s.node, ()] = result
        return Fold(result, node.op, node.type.dtype, name, along, s.node, self._accumulator(s, along),
                    self._result_stores(s, result))


def _space_order(space: Space) -> tuple:
    return space.kind, space.rows, space.chunks, space.slices, space.serial, space.cols
