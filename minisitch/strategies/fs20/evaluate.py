"""The latency-evaluator: waves of warps, cycle by cycle (FusionStitching 2020, section 6.3).

In:  a ``Kernel``. Out: microseconds, and the registers a thread needs.

    L = N_wave * L_warp         N_wave = N_warp / resident warps        L_warp = sum over kinds of count * cycles

Every count is read off the loop program that will be printed: statements, index terms, shuffles, barriers. It ranks
schedules of a GPU, where templates differ; on a CPU they do not, and ``build.Prices`` (measured there) ranks plans: of
a CPU's cycles only the delta-evaluator asks.

Before:  softmax <64,30000>, 8 blocks of 8 warps, a warp a row      After:  938 turns of each loop, 1 wave
         the same, 64 blocks of 32 warps, a block a row                     30 turns of each loop, 1 wave
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...device import SECTOR, Device
from ...kernel.ir import Compute, Kernel, Load, Segment, Stmt, Store, meetings, operands
from ...ops import itemsize
from ...stitch.index import Digit, Index
from ...stitch.mapping import WARP

FIXED_REGISTERS = 16  # a thread's addresses and loop counters; the delta-evaluator assumes no others (the paper's figure)


@dataclass(frozen=True)
class Cycles:
    """Cycles of one instruction of a warp (a GPU) or a vector of a core (a CPU); ``width`` elements each."""

    width: int
    clock: float  # cycles a second
    cost: Mapping[str, float]
    shared_rate: float  # bytes a cycle that one SM or core exchanges with shared memory, or its cache
    source: str


CYCLES = {
    "gpu": Cycles(32, 1.5e9, {"light": 4, "divide": 36, "heavy": 18, "shared": 19, "cached": 193, "memory": 400, "shuffle": 23,
                              "barrier": 30}, 128,
                  "Volta micro-benchmarks (Jia and others 2018), quoted from memory: orders of magnitude, not measured here"),
    "cpu": Cycles(8, 3e9, {"light": 1, "divide": 8, "heavy": 25, "shared": 2, "cached": 4, "memory": 4, "shuffle": 3, "barrier": 0},
                  32, "assumed: eight lanes of AVX2, three instructions for a step of a polynomial"),
}


def latency_us(kernel: Kernel) -> float:
    """Modelled microseconds of one launch on a GPU: its segments in turn, its grid barriers, the launch itself."""
    device = kernel.device
    cycles = sum(segment_cycles(kernel, s) for s in kernel.segments)
    return device.launch_us + device.grid_barrier_us * kernel.grid_barriers + cycles / CYCLES["gpu"].clock * 1e6


def segment_cycles(kernel: Kernel, segment: Segment) -> float:
    """``N_wave * L_warp`` of one segment."""
    warps = max(1, kernel.block // 32)
    resident = resident_warps(kernel.device, kernel.block, kernel.shared_bytes, FIXED_REGISTERS + live_registers(kernel))
    resident = min(resident, kernel.grid * warps)
    cost = dict(CYCLES["gpu"].cost)
    active = min(resident, segment.tasks * warps)
    cost["memory"] = max(cost["memory"], active * SECTOR * 4 / bytes_per_cycle(kernel.device))
    return max(1.0, segment.tasks * warps / resident) * sum(cost[kind] * n for kind, n in instructions(kernel, segment).items())


def resident_warps(device: Device, block: int, shared: int, registers: int) -> int:
    """The paper's occupancy, as warps (cores) of the whole device that run at once."""
    return device.wave(block, shared, registers) * (block // 32) if device.kind == "gpu" else device.sms


def bytes_per_cycle(device: Device) -> float:
    return device.bandwidth / CYCLES[device.kind].clock


# ---------------------------------------------------------------- instructions of one warp for one task
def instructions(kernel: Kernel, segment: Segment) -> dict[str, float]:
    """How often each kind of instruction is issued by a warp for one task of a segment.

    A memory access counts once for 128 bytes: lanes that read far apart count for each of their sectors. What the
    segment has read before comes from the cache.
    """
    lanes = segment.thread_map.threads_per_row if segment.kind == "row" and segment.chunks == 1 else kernel.block

    across = "row" if lanes == 1 else "col"
    sizes = {b.name: (b.scope, itemsize(b.dtype)) for b in kernel.buffers}
    seen: set[tuple[str, Index]] = set()
    found: defaultdict[str, float] = defaultdict(float)
    for phase in segment.phases:
        chunked = phase.chunked and segment.chunks > 1
        columns = min(segment.chunk, phase.cols) if chunked else phase.cols
        serial = -(-phase.serial // segment.slices)
        views = {v.name: (v.buffer, v.base) for v in phase.views}
        turns = -(-columns // lanes) * serial
        for stmt, trips in [*((s, 1) for s in phase.before), *((s, turns) for s in phase.body)]:
            for kind, n in _costs(stmt, views, sizes, seen, across).items():
                found[kind] += n * trips
        found["light"] += len(phase.folds) * turns
        for fold in phase.folds:  # lanes meet by shuffles, warps in shared memory and by shuffles again
            steps = fold.lanes.bit_length() - 1
            if fold.exchange:  # a store and a load, by each warp
                steps += (lanes // WARP).bit_length() - 1
                found["shared"] += 2
            found["shuffle"] += steps
            found["light"] += steps
        found["barrier"] += len(meetings(segment, phase)) + (phase.barrier == "block")
    return found


def _costs(stmt: Stmt, views: Mapping[str, tuple[str, Index]], sizes: Mapping[str, tuple[str, int]],
           seen: set[tuple[str, Index]], across: str) -> dict[str, float]:
    if isinstance(stmt, Compute):
        return {"heavy" if stmt.heavy and stmt.op != "div" else "divide" if stmt.op == "div" else "light": 1}
    if not isinstance(stmt, (Load, Store)):
        return {"light": 1}
    buffer, base = views.get(stmt.buffer, (stmt.buffer, Index()))
    scope, size = sizes[buffer]
    terms = len(stmt.index.terms) + len(base.terms)
    if scope == "shared":
        return {"light": terms, "shared": 1}
    where = buffer, stmt.index + base
    kind = "cached" if where in seen else "memory"
    seen.add(where)
    return {"light": terms, kind: _sectors(where[1], across, size) / 4}


def _sectors(index: Index, across: str, size: int) -> float:
    """Sectors that the lanes of a warp touch together: 1 if all read one element, 4 if neighbours do, at most 32."""
    steps = [c * a.stride if isinstance(a, Digit) else 32 for c, a in index.terms
             if across in (a.var if isinstance(a, Digit) else "col row")]
    step = min((abs(s) for s in steps), default=0)
    return min(32.0, max(1.0, step * size * 32 / SECTOR))


# ---------------------------------------------------------------- registers
Event = tuple[frozenset[str], frozenset[str]]  # names that a step defines, names that it reads


def live_registers(kernel: Kernel) -> int:
    """The most values that are alive at once in a thread: the lifetime analysis of the paper's section 6.3."""
    constants = frozenset(name for name, _, _ in kernel.constants)
    return max((most_alive([(d, r - constants) for d, r in events(s)]) for s in kernel.segments), default=0)


def events(segment: Segment) -> list[Event]:
    """What a thread defines and reads, in order; two turns of each loop show what lives from turn to turn."""
    found: list[Event] = []
    for phase in segment.phases:
        held = [f for f in phase.folds if not f.buffer]
        found += [(frozenset((f.result,)), frozenset()) for f in held]
        turn = [_event(s) for s in phase.body]
        turn += [(frozenset((f.result,)), frozenset((f.result, f.value))) for f in held]
        found += [*map(_event, phase.before), *turn, *turn]
        found += [_event(s) for f in held for s in f.stores]
    return found


def _event(stmt: Stmt) -> Event:
    return frozenset() if isinstance(stmt, Store) else frozenset((stmt.target,)), frozenset(operands(stmt))


def most_alive(steps: Sequence[Event]) -> int:
    """A value is alive from the step that defines it to the last that reads it: one walk backwards."""
    alive: frozenset[str] = frozenset()
    most = 0
    for defined, read in reversed(steps):
        most = max(most, len(alive | defined))
        alive = (alive - defined) | read
    return max(most, len(alive))
