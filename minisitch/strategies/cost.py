"""Traffic and modelled time of a kernel, computed from its schedule.

In:  a ``Kernel`` or a library node, and a ``Device``. Out: bytes, microseconds.

Traffic is counted as compulsory traffic. Between two grid barriers each element of a buffer is read
once and written once, because a segment's data is assumed to stay in cache. ``simt`` counts the
same bytes by running the text, and a test holds both counts equal.

The time of each part between grid barriers comes from its memory time and its arithmetic time
(docs/calibration.md compares the model with measurements):

    GPU   the larger of the two, divided by the square root of the busy share of the device;
          launch and barriers are added
    CPU   sqrt(memory^2 + loops^2), because both overlap in part
            memory  bytes over the rate of a cache: the one that holds the program's inputs
                    and outputs, or the kernel's buffers if they are larger. Strided accesses,
                    short runs and rows too long for a core's cache add bytes. So do stores to
                    main memory, unless they bypass the caches.
            loops   trips of the innermost loops times the nanoseconds of their statements
                    (``Device.core_ns``), and the start of each loop
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..cpu_emit import calls
from ..device import LINE, Device
from ..fuse import HEAVY_OPERATIONS
from ..graph import Graph, Node
from ..kernel import Kernel, ir
from ..kernel.nests import accesses, parts, work_of
from ..ops import EXACT, compute_dtype, itemsize, kind_of
from ..stitch.index import Atom, Digit, Index, Loaded, footprint
from ..stitch.mapping import COLUMNS, MANY_REGISTERS

LANES = 16  # float32 elements of a core's widest vector
VECTORS = LANES, 8, 4  # vector widths in float32 elements; the end of a loop uses narrower ones
BRIEF = 16  # an innermost loop of at most this many elements hides the cost of starting its row
PAGE = 4096  # bytes
AHEAD = 512  # most bytes that the hardware prefetches in vain at the end of a run
KEPT = 1 << 20  # a strided loop over more bytes than this finds no line of its last pass in cache


@dataclass(frozen=True)
class Bytes:
    """Bytes read from and written to main memory."""

    read: int
    written: int

    @property
    def total(self) -> int:
        return self.read + self.written


def traffic(kernel: Kernel) -> Bytes:
    """Compulsory main-memory traffic of one launch."""
    parts = traffic_by_level(kernel)
    return Bytes(sum(part.read for part in parts), sum(part.written for part in parts))


def traffic_by_level(kernel: Kernel) -> list[Bytes]:
    """Compulsory traffic of each part between grid barriers.

    Nothing is read of a buffer that is written there for the first time: it is still in cache.
    """
    found, made = [], {b.name for b in kernel.buffers if b.scope == "input"}
    for segments in levels(kernel):
        read = written = 0
        for name, (loads, stores) in _accesses(kernel, segments).items():
            b = kernel.by_name[name]
            stored = _cells(stores, b.size)
            written += stored * itemsize(b.dtype)
            if name in made or not stored:
                read += _cells(loads, b.size) * itemsize(b.dtype)
            if stored:
                made.add(name)
        found.append(Bytes(read, written))
    return found


def _accesses(kernel: Kernel, segments: Sequence[ir.Segment]) -> dict[str, tuple[Counter[Index], Counter[Index]]]:
    """For each buffer in global memory how often each index is read and stored to, at most."""
    found: dict[str, tuple[Counter[Index], Counter[Index]]] = {}
    for segment in segments:
        nests = [(phase.nest, segment.rows * phase.cols * phase.serial) for phase in segment.phases]
        for nest, trips in (*nests, (segment.closing, segment.rows)):
            for a in accesses(segment, nest):
                if kernel.by_name[a.buffer].scope not in ("shared", "register"):
                    found.setdefault(a.buffer, (Counter(), Counter()))[a.stores][_of_all_tasks(a.index)] += trips
    return found


def _of_all_tasks(index: Index) -> Index:
    """An index without the places in a chunk.

    In all tasks together ``start`` and these count what ``start`` alone does.

    Before:  (start // 44) * 62 + c0 * 62 + c1        After:  (start // 44) * 62 + c1
    """
    starts = [(abs(c), a.size) for c, a in index.terms if isinstance(a, Digit) and a.var == "start"]

    def counted(c: int, atom: Atom) -> bool:
        own = isinstance(atom, Digit) and atom.var == "start"
        return own or not any(abs(c) % step == 0 and abs(c) < step * size for step, size in starts)

    return Index(index.const, tuple((c, atom) for c, atom in index.terms if counted(c, atom)))


def _cells(trips: Mapping[Index, int], size: int) -> int:
    """Cells that accesses touch together. A gather touches at most one in each turn of its loop."""
    gathers = {i: n for i, n in trips.items() if any(isinstance(a, Loaded) for _, a in i.terms)}
    plain = footprint(trips.keys() - gathers.keys(), size)
    return min(size, plain + min(footprint(gathers, size), sum(gathers.values())))


def library_traffic(graph: Graph, node: Node) -> Bytes:
    """Each operand read once, the result written once."""
    return Bytes(sum(graph[a].type.nbytes for a in node.args), node.type.nbytes)


def operations(segment: ir.Segment) -> int:
    """Scalar operations of all tasks; a heavy one counts as ``HEAVY_OPERATIONS``."""
    total = 0
    for phase in segment.phases:
        each = sum(_weight(s) for s in parts(phase).body) + len(parts(phase).folds)
        total += segment.rows * (phase.cols * phase.serial * each
                                 + sum(_weight(s) for s in parts(phase).before))
    return total


def _weight(stmt: object) -> int:
    return 0 if not isinstance(stmt, ir.Compute) else HEAVY_OPERATIONS if stmt.heavy else 1


def kernel_us(kernel: Kernel, program_bytes: int = 0) -> float:
    """Modelled microseconds of one launch.

    ``program_bytes`` is the working set of the whole program. It decides which cache serves
    the kernel on a CPU.
    """
    by_level = list(zip(levels(kernel), traffic_by_level(kernel), strict=True))
    return _cpu_us(kernel, by_level, program_bytes) if kernel.device.kind == "cpu" else _gpu_us(kernel, by_level)


def working_set(graph: Graph) -> int:
    """Bytes of a program's inputs and outputs."""
    return sum(graph[v].type.nbytes for v in {*graph.inputs, *graph.outputs})


def levels(kernel: Kernel) -> list[list[ir.Segment]]:
    """The segments in order, split at grid barriers. The segments of one part run side by side."""
    found: list[list[ir.Segment]] = [[]]
    for segment in kernel.segments:
        found[-1].append(segment)
        if segment.barrier == "grid":
            found.append([])
    return found


# ---------------------------------------------------------------- a GPU
def _gpu_us(kernel: Kernel, by_level: Sequence[tuple[list[ir.Segment], Bytes]]) -> float:
    """Launch and barriers, plus the larger of memory and arithmetic time for each part.

    A part takes longer if even its busiest segment leaves some of the device idle.
    """
    device = kernel.device
    total = device.launch_us + device.grid_barrier_us * kernel.grid_barriers
    for segments, moved in by_level:
        compute = sum(map(operations, segments)) / device.flops
        total += max(moved.total / device.bandwidth, compute) / _share(kernel, segments) * 1e6
    waits = sum(p.block_barriers * _turns(kernel, s) for s in kernel.segments for p in s.phases)
    return total + device.block_barrier_us * waits


def _turns(kernel: Kernel, segment: ir.Segment) -> int:
    """How many tasks run one after the other where a resident block is: its own, then others'."""
    registers = MANY_REGISTERS if any(_in_flight(s) > 1 for s in kernel.segments) else 32
    resident = min(kernel.grid, kernel.device.wave(kernel.block, kernel.shared_bytes, registers))
    return max(1, -(-segment.tasks // resident))


def _share(kernel: Kernel, segments: Sequence[ir.Segment]) -> float:
    """Share of the device's rate that the busiest of these segments reaches.

    It follows from the number of resident threads and of loads in flight per thread.
    """
    device, busy = kernel.device, max((s.tasks / _turns(kernel, s) * _in_flight(s) for s in segments), default=1.0)
    occupancy = min(1.0, busy * kernel.block / (device.sms * device.threads_per_sm))
    # Half of the blocks reach about 0.7 of a GPU's bandwidth (derived, not measured).
    return math.sqrt(max(occupancy, 1e-3))


def _in_flight(segment: ir.Segment) -> int:
    """Columns that a thread loads at once. It counts as that many threads of one column."""
    written_out = ("vector", "unrolled")
    return min(COLUMNS, max((math.prod(x.last for x in i.loops if x.by in written_out)
                             for p in segment.phases for i in parts(p).innermost), default=1))


# ---------------------------------------------------------------- a CPU
def _cpu_us(kernel: Kernel, by_level: Sequence[tuple[list[ir.Segment], Bytes]],
            program_bytes: int) -> float:
    """Time of the calls, of joining parallel loops, and of each part between grid barriers.

    A store to main memory first reads its cache line, so it moves twice its bytes. The rates of the
    caches already include this effect.
    """
    device, total = kernel.device, kernel.device.launch_us * len(calls(kernel))
    near = max(program_bytes, sum(b.size * itemsize(b.dtype) for b in kernel.parameters))
    cache = next((at for at in device.caches if near <= at.size), device.caches[-1])
    for segments, moved in by_level:
        loops, dragged, parallel = 0.0, 0, False
        for segment in segments:
            price = _Loops(kernel, segment)
            dragged += _again(kernel, segment)
            cores = min(device.sms, segment.thread_map.blocks if segment.carries else segment.tasks)
            cores = min(cores, int(2 * work_of(segment) // device.serial_below)) if work_of(segment) >= device.serial_below else 1
            loops, dragged, parallel = loops + price.ns / cores, dragged + price.dragged, parallel or cores > 1
            total += device.grid_barrier_us if cores > 1 else 0.0
        fetched = moved.written if cache is device.caches[-1] else 0  # the lines that are stored to
        memory = (moved.total + fetched + dragged) / (cache.all_cores if parallel else cache.one_core) * 1e9
        total += math.hypot(memory, loops) / 1e3
    return total


def _again(kernel: Kernel, segment: ir.Segment) -> int:
    """Bytes that a task's later loops read again because its row exceeds a core's cache."""
    buffers, seen, total = kernel.by_name, set[str](), 0
    for phase in segment.phases:
        loads = {ir.place_of(segment, s)[0] for s in parts(phase).body if isinstance(s, ir.Load)
                 and s.index.variables}
        stores = {ir.place_of(segment, s)[0] for s in parts(phase).body if isinstance(s, ir.Store)}
        columns = phase.serial * (min(segment.chunk, phase.cols) if phase.chunked
                                  and segment.chunks > 1 else phase.cols)
        for buffer in [buffers[name] for name in loads & seen if buffers[name].scope != "shared"]:
            size = itemsize(buffer.dtype)
            total += segment.rows * phase.cols * phase.serial * size if columns * size > kernel.device.shared_per_block else 0
        seen |= loads | stores
    return total


class _Loops:
    """Time of a segment's loops on one core.

    ``ns`` is that time in nanoseconds. ``dragged`` counts the bytes of whole cache lines that
    strided accesses fetch, and bytes that are prefetched in vain.

    Each statement is priced as part of a vector, or as a scalar. A short loop and the end of a
    longer one use narrower vectors, and save half of the lanes that they leave out. If rows are
    batched, no row waits for what another computes once a row.
    """

    def __init__(self, kernel: Kernel, segment: ir.Segment) -> None:
        self.cost, self.ns, self.dragged = dict(kernel.device.core_ns), 0.0, 0
        self.outer: tuple[str, int] | None = None  # variable and trips of the next outer loop
        self.dtype, self.constants = {b.name: b.dtype for b in kernel.buffers}, {name for name, _, _ in kernel.constants}
        self.dtype |= {w.name: self.dtype[w.buffer] for w in segment.windows.values()}
        # Where each row window starts.
        self.starts = {w.name: w.index for w in segment.windows.values()}
        for phase in segment.phases:
            self._phase(segment, phase)

    def _phase(self, segment: ir.Segment, phase: ir.Phase) -> None:
        trips = segment.rows * phase.cols * phase.serial
        extent = {x.var: x.last for i in parts(phase).innermost for x in i.loops
                  if x.by not in ("rows", "unrolled")}
        name, n = next(((name, n) for name, n in reversed(extent.items()) if n > 1),
                       ("ser", phase.serial))
        pieces, before = [(i.loops[-1], i.body) for i in parts(phase).innermost], parts(phase).before
        loops = [(x.last - x.first.const if x.var == name else n, body) for x, body in pieces]
        if all(p.cols * p.serial == 1 for p in segment.phases):  # the loop over rows is innermost
            name, n, before = "row", segment.rows, ()
            loops = [(n, parts(phase).before + parts(phase).body)]
        starts = trips / n if n else 0.0
        around = (*((a, size) for a, size in reversed(extent.items()) if a != name),
                  ("ser", phase.serial), ("row", segment.rows))
        self.outer = next((loop for loop in around if loop[1] > 1 and loop[0] != name),
                          None) if name != "row" else None
        for turns, body in loops:
            self._loop(phase, body, name, turns, starts)
        waits = segment.step == 1
        each_before = [self._compute(s) if isinstance(s, ir.Compute) else self.cost["light"]
                       for s in before]
        row = sum(self._alone(each) if waits else each for each in each_before)
        if n > BRIEF and name != "row":
            row += (self.cost["row"] + self.cost["meet"] * sum(f.along == "row" for f in parts(phase).folds)) * waits
        self.ns += segment.rows * row

    def _loop(self, phase: ir.Phase, body: tuple[ir.Scalar, ...], name: str, n: int,
              starts: float) -> None:
        """Add one loop of ``n`` turns over ``name``, which is started ``starts`` times."""
        vector, alone, once, fits = 0.0, 0.0, 0.0, True
        varying, known = set[str](), set(self.constants)
        for stmt in body:
            each = self._statement(stmt, name, n, int(starts * n), varying)
            if not isinstance(stmt, ir.Store):
                if _is_known(stmt, known):
                    known.add(stmt.target)
                    continue
                if not _varies(stmt, name, varying):
                    once += self._alone(each)
                    continue
                varying.add(stmt.target)
            fits = fits and not (isinstance(stmt, ir.Store) and stmt.guard)
            vector, alone = vector + each, alone + self._alone(each)
        for fold in parts(phase).folds:
            each = self._fold(fold)
            vector, alone = vector + each, alone + self._alone(each)
        vectors_ns, rest = 0.0, n
        for lanes in VECTORS if fits else ():
            vectors_ns += rest // lanes * min((LANES + lanes) / 2 * vector, lanes * alone)
            rest %= lanes
        self.ns += starts * (self.cost["loop"] * (n > 1) + vectors_ns + rest * alone + once)

    def _alone(self, each: float) -> float:
        """Nanoseconds of a scalar statement. Some calls (``math.pow``) are never vectorised."""
        return min(LANES * each, each + self.cost["scalar"])

    def _statement(self, stmt: ir.Scalar, name: str, n: int, trips: int,
                   varying: set[str]) -> float:
        if isinstance(stmt, ir.Compute):
            return self._compute(stmt)
        light = 4 * self.cost["light"]
        if not isinstance(stmt, ir.Load | ir.Store):
            return 2 * light
        dtype = self.dtype[stmt.buffer]
        extra = (self.cost["half"] if dtype == "float16" else 0.0) + 2 * light * len(stmt.guard)
        stride = _stride(stmt.index, name, n)
        if stride is None or not varying.isdisjoint(stmt.index.loaded):
            return self.cost["gathered"] + extra
        distance = abs(stride) * itemsize(dtype)
        if abs(stride) <= 1:
            self.dragged += self._ahead(stmt, n, itemsize(dtype)) * (trips // max(1, n)) * abs(stride)
            return self.cost["load" if isinstance(stmt, ir.Load)
                             else "store"] * itemsize(dtype) + extra
        if distance >= LINE and n * distance > KEPT:
            self.dragged += trips * LINE * (1 if distance < PAGE else 2)
        return self.cost["strided"] + extra

    def _ahead(self, stmt: ir.Load | ir.Store, n: int, size: int) -> int:
        """Bytes prefetched in vain at the end of a run of ``n`` neighbouring elements.

        This happens in a tile of a row's columns, whose next row lies pages away.
        Measured, GB/s of a product of two arrays in tiles of 32, 256 and 2048 columns: 13, 22 and
        40 for arrays of 16384 x 2048, and 31, 39 and 57 for arrays of 2048 x 2048.
        """
        index = self.starts[stmt.buffer] + stmt.index if stmt.buffer in self.starts else stmt.index
        step = _stride(index, *self.outer) if self.outer else None
        return min(n * size, AHEAD) if step and n < abs(step) and abs(step) * size >= PAGE else 0

    def _compute(self, stmt: ir.Compute) -> float:
        held, result = compute_dtype(stmt.operand_dtype), compute_dtype(stmt.dtype)
        known = self.cost.get(f"{stmt.op} {held if kind_of(held) == 'float' else 'int'}")
        rounds = self.cost["half"] if stmt.dtype == "float16" and stmt.op not in EXACT else 0.0
        return (known or self.cost["light"] * max(itemsize(held), itemsize(result))) + rounds

    def _fold(self, fold: ir.Fold) -> float:
        memory = 0.0 if not fold.buffer else self.cost["load"] + self.cost["store"]
        return (self.cost["light"] + memory) * itemsize(compute_dtype(fold.dtype))


def _varies(stmt: ir.Scalar, name: str, varying: set[str]) -> bool:
    """Whether a statement's value changes within the loop over ``name``."""
    return any(name in i.variables for i in ir.indices(stmt)) or not varying.isdisjoint(ir.operands(stmt))


def _is_known(stmt: ir.Scalar, known: set[str]) -> bool:
    """Whether the compiler folds a statement away, such as arithmetic on a padding's zeros."""
    constant = not isinstance(stmt, ir.Load | ir.Store) and not any(i.variables for i in ir.indices(stmt))
    return constant and known.issuperset(ir.operands(stmt))


def _stride(index: Index, name: str, n: int) -> int | None:
    """Elements by which an access moves in each turn of the loop over ``name``; None if uneven."""
    total = 0
    for factor, atom in index.terms:
        if isinstance(atom, Digit) and atom.var == name:
            if atom.stride != 1 or atom.size < n:
                return None
            total += factor
        elif not isinstance(atom, Digit) and name in Index(0, ((1, atom),)).variables:
            return None
    return total


# ---------------------------------------------------------------- library calls
def library_us(graph: Graph, node: Node, device: Device) -> float:
    """Modelled microseconds of a library call: the larger of its memory and arithmetic time.

    On a CPU a batch of matrix products counts one call for each. Other calls (sort, cumsum) count
    as memory traffic only. That is far too fast, but it is the same under every strategy.
    """
    memory, flops, calls = library_traffic(graph, node).total / device.bandwidth, 0.0, 1
    if node.op == "matmul":
        flops = 2.0 * node.type.size * graph[node.args[0]].type.shape[-1]
        calls = math.prod(graph[node.args[1]].type.shape[:-2]) if device.kind == "cpu" else 1
    return calls * device.launch_us + max(memory, flops / device.flops) * 1e6
