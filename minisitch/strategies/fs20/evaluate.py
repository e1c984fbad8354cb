"""The latency-evaluator: waves of warps times cycles of a warp (FusionStitching 2020, section 6.3).

In:  a ``Kernel``. Out: microseconds, and the registers that a thread needs.

    L = N_wave * L_warp
    N_wave = N_warp / resident warps
    L_warp = sum over kinds of instructions: count * cycles

The counts come from the loop program: statements, index terms, shuffles, barriers. The evaluator
ranks schedules on a GPU, where templates differ. On a CPU they do not, and ``Prices`` rank plans.
Only the delta-evaluator uses the CPU's cycles below.

Before:  softmax <64,30000>, 8 blocks of 8 warps, a warp a row
         the same, 64 blocks of 32 warps, a block a row
After:   938 turns of each loop, 1 wave
         30 turns of each loop, 1 wave
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...device import SECTOR, Device
from ...kernel import Kernel
from ...kernel.ir import Compute, Load, Scalar, Segment, Store, operands, place_of
from ...kernel.nests import parts
from ...ops import itemsize
from ...stitch.index import Digit, Index
from ...stitch.mapping import WARP

# A thread's addresses and loop counters. The delta-evaluator assumes no others (the paper's).
FIXED_REGISTERS = 16


@dataclass(frozen=True)
class Cycles:
    """Cycles of one instruction of a GPU's warp or a CPU's vector, of ``width`` elements each."""

    width: int
    clock: float  # cycles a second
    cost: Mapping[str, float]
    shared_rate: float  # bytes a cycle of one SM's shared memory, or of one core's cache
    source: str


CYCLES = {
    "gpu": Cycles(32, 1.5e9, {"light": 4, "divide": 36, "heavy": 18, "shared": 19, "cached": 193,
                              "memory": 400, "shuffle": 23, "barrier": 30}, 128,
                  "Volta micro-benchmarks (Jia and others 2018), quoted from memory: "
                  "orders of magnitude, not measured here"),
    "cpu": Cycles(8, 3e9, {"light": 1, "divide": 8, "heavy": 25, "shared": 2, "cached": 4,
                           "memory": 4, "shuffle": 3, "barrier": 0}, 32,
                  "assumed: eight lanes of AVX2, three instructions for a step of a polynomial"),
}


def latency_us(kernel: Kernel) -> float:
    """Modelled microseconds of one launch on a GPU: segments, grid barriers, and the launch."""
    device = kernel.device
    cycles = sum(segment_cycles(kernel, s) for s in kernel.segments)
    barriers = device.grid_barrier_us * kernel.grid_barriers
    return device.launch_us + barriers + cycles / CYCLES["gpu"].clock * 1e6


def segment_cycles(kernel: Kernel, segment: Segment) -> float:
    """``N_wave * L_warp`` of one segment."""
    warps = max(1, kernel.block // 32)
    registers = FIXED_REGISTERS + live_registers(kernel)
    resident = resident_warps(kernel.device, kernel.block, kernel.shared_bytes, registers)
    resident = min(resident, kernel.grid * warps)
    cost = dict(CYCLES["gpu"].cost)
    active = min(resident, segment.tasks * warps)
    cost["memory"] = max(cost["memory"], active * SECTOR * 4 / bytes_per_cycle(kernel.device))
    latency = sum(cost[kind] * n for kind, n in instructions(kernel, segment).items())
    return max(1.0, segment.tasks * warps / resident) * latency


def resident_warps(device: Device, block: int, shared: int, registers: int) -> int:
    """The warps (on a CPU: cores) of the whole device that run at once. The paper's occupancy."""
    if device.kind != "gpu":
        return device.sms
    return device.wave(block, shared, registers) * (block // 32)


def bytes_per_cycle(device: Device) -> float:
    return device.bandwidth / CYCLES[device.kind].clock


# ---------------------------------------------------------------- instructions of a warp for a task
def instructions(kernel: Kernel, segment: Segment) -> dict[str, float]:
    """How often a warp issues each kind of instruction for one task of a segment.

    A memory access counts once for 128 bytes. Lanes that read far apart count once for each sector.
    An element that the segment has read before comes from the cache.
    """
    by_row = segment.space.kind == "row" and segment.chunks == 1
    lanes = segment.thread_map.threads_per_row if by_row else kernel.block

    across = "row" if lanes == 1 else "col"
    sizes = {b.name: (b.scope, itemsize(b.dtype)) for b in kernel.buffers}
    seen: set[tuple[str, Index]] = set()
    found: defaultdict[str, float] = defaultdict(float)
    for phase in segment.phases:
        chunked = phase.chunked and segment.chunks > 1
        columns = min(segment.chunk, phase.cols) if chunked else phase.cols
        serial = -(-phase.serial // segment.slices)
        turns = -(-columns // lanes) * serial
        once = ((s, 1) for s in parts(phase).before)
        for stmt, trips in [*once, *((s, turns) for s in parts(phase).body)]:
            for kind, n in _costs(segment, stmt, sizes, seen, across).items():
                found[kind] += n * trips
        found["light"] += len(parts(phase).folds) * turns
        for fold in parts(phase).folds:  # shuffles within a warp, then shared memory across warps
            steps = fold.lanes.bit_length() - 1
            if fold.exchange:  # each warp stores and loads once
                steps += (lanes // WARP).bit_length() - 1
                found["shared"] += 2
            found["shuffle"] += steps
            found["light"] += steps
        found["barrier"] += phase.block_barriers
    return found


def _costs(segment: Segment, stmt: Scalar, sizes: Mapping[str, tuple[str, int]],
           seen: set[tuple[str, Index]], across: str) -> dict[str, float]:
    if isinstance(stmt, Compute):
        kind = "heavy" if stmt.heavy else "light"
        return {"divide" if stmt.op == "div" else kind: 1}
    if not isinstance(stmt, (Load, Store)):
        return {"light": 1}
    where = place_of(segment, stmt)
    scope, size = sizes[where[0]]
    terms = len(where[1].terms)
    if scope == "shared":
        return {"light": terms, "shared": 1}
    kind = "cached" if where in seen else "memory"
    seen.add(where)
    return {"light": terms, kind: _sectors(where[1], across, size) / 4}


def _sectors(index: Index, across: str, size: int) -> float:
    """Sectors that a warp touches: 1 for the same element, 4 for neighbours, at most 32."""
    steps = [c * a.stride if isinstance(a, Digit) else 32 for c, a in index.terms
             if across in (a.var if isinstance(a, Digit) else "col row")]
    step = min((abs(s) for s in steps), default=0)
    return min(32.0, max(1.0, step * size * 32 / SECTOR))


# ---------------------------------------------------------------- registers
Event = tuple[frozenset[str], frozenset[str]]  # names that a step defines, names that it reads


def live_registers(kernel: Kernel) -> int:
    """The most values alive at once in a thread (the lifetime analysis of section 6.3)."""
    constants = frozenset(name for name, _, _ in kernel.constants)
    lives = ([(d, r - constants) for d, r in events(s)] for s in kernel.segments)
    return max(map(most_alive, lives), default=0)


def events(segment: Segment) -> list[Event]:
    """What a thread defines and reads, in order. Two turns of each loop show what stays alive."""
    found: list[Event] = []
    for phase in segment.phases:
        held = [f for f in parts(phase).folds if not f.buffer]
        found += [(frozenset((f.result,)), frozenset()) for f in held]
        turn = [_event(s) for s in parts(phase).body]
        turn += [(frozenset((f.result,)), frozenset((f.result, f.value))) for f in held]
        found += [*map(_event, parts(phase).before), *turn, *turn]
        found += map(_event, parts(phase).after)
    return found


def _event(stmt: Scalar) -> Event:
    defined = frozenset() if isinstance(stmt, Store) else frozenset((stmt.target,))
    return defined, frozenset(operands(stmt))


def most_alive(steps: Sequence[Event]) -> int:
    """The most values alive at once, by one walk backwards: alive from definition to last read."""
    alive: frozenset[str] = frozenset()
    most = 0
    for defined, read in reversed(steps):
        most = max(most, len(alive | defined))
        alive = (alive - defined) | read
    return max(most, len(alive))
