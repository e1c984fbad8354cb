"""How many thread blocks each stage of a pipeline gets: Kitsune's load balance, solved exactly.

In:  what each stage asks of the machine (``StageLoad``), the queues between them (``Channel``), a ``Device``.
Out: a ``Balance``: blocks a stage, tiles a microsecond, and every bound on that rate.

Kitsune's Algorithm 2 is an integer program over a_i, the blocks of stage i, for a pipeline in its steady state:

    maximise T      T <= a_i / #SM / (us_i * utilisation_i)                          for each stage
                    T * DRAM bytes <= DRAM bandwidth,   T * L2 bytes <= L2 bandwidth
                    1 <= a_i,   sum of a_i over SIMT stages = #SM = sum over TENSOR stages

An SM holds a block of each kind, which share it without slowing each other: the paper's assumption. So the kinds do
not compete, and in each the slowest stage is made as fast as can be by giving it, again and again, the next block.
No search is needed: T is a minimum, and a block given to any stage but the slowest cannot raise it.

Before:  up (tensor, 4 us), gelu (simt, 2 us), down (tensor, 4 us) on 108 SMs
After:   54, 108 and 54 blocks; T = 0.125 tiles/us, which ``up`` and ``down`` bound
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from ....device import Device
from ....errors import PipelineError
from ....fuse import Decision, count

Kind = Literal["simt", "tensor"]
KINDS: tuple[Kind, ...] = ("simt", "tensor")


@dataclass(frozen=True)
class StageLoad:
    """What a stage asks of the machine for each of its ``tiles``.

    ``us`` is what a tile takes where the stage has the whole machine to itself, operator after operator;
    ``utilisation`` the part of that time in which its unit works. Beside other stages, with operands on the chip, only
    that part is left: the paper's Speedup is 1 / utilisation. ``parallel`` is how many blocks a tile keeps busy (0: as
    many as there are); a reduction that was not split keeps one.
    """

    name: str
    kind: Kind
    us: float
    dram_bytes: int = 0  # a tile's, to and from DRAM: what the pipeline reads and returns, weights that no cache holds
    l2_bytes: int = 0  # a tile's, that L2 has: beside what comes from DRAM or through queues
    utilisation: float = 1.0
    tiles: int = 1
    parallel: int = 0

    def busy_us(self, blocks: float, device: Device) -> float:
        """What a tile takes in a pipeline in which the stage has so many blocks, its operands on the chip."""
        most = min(self.parallel, device.sms) or device.sms
        return self.us * self.utilisation * most / min(blocks, most)

    def share(self, device: Device) -> float:
        """The part of the machine's SMs that it can use."""
        return (min(self.parallel, device.sms) or device.sms) / device.sms


@dataclass(frozen=True)
class Channel:
    """A queue: what one stage makes and others read, ``entries`` tiles in a whole pass (0: one for each of the producer's).

    Rates are those of synchronous dataflow. A stage that takes 32 tiles and hands over one entry reduces; one that takes 32 tiles
    and reads one entry has it for all of them; one of a single tile that reads 32 entries waits for all.
    """

    producer: str
    consumers: tuple[str, ...]
    tile_bytes: int
    depth: int = 2
    entries: int = 0
    returned: bool = False  # the caller wants it too: it is written to DRAM, once, whoever else reads it

    @property
    def name(self) -> str:
        return f"{self.producer} -> {', '.join(self.consumers)}"

    @property
    def held_bytes(self) -> int:
        """What its ring occupies."""
        return self.depth * self.tile_bytes


@dataclass(frozen=True)
class Bound:
    """One upper bound on the rate of a pipeline: a stage's, or ``DRAM``'s, or ``L2``'s."""

    name: str
    tiles_per_us: float
    why: str


@dataclass(frozen=True)
class Balance:
    """Blocks of each stage, and what bounds the rate: ``bounds`` begins with the one that binds."""

    device: Device
    blocks: Mapping[str, int]
    bounds: tuple[Bound, ...]
    decisions: tuple[Decision, ...]

    @property
    def tiles_per_us(self) -> float:
        return self.bounds[0].tiles_per_us

    def __str__(self) -> str:
        lines = [f"balance on {self.device.name}: {self.tiles_per_us:.4g} tiles/us, bound by {self.bounds[0].name}"]
        lines += [f"  {b.name:12} {b.tiles_per_us:9.4g} tiles/us  {b.why}" for b in self.bounds]
        return "\n".join(lines)


def balance(loads: Sequence[StageLoad], device: Device, channels: Sequence[Channel] = ()) -> Balance:
    """The blocks of each stage that let most tiles through. Raises PipelineError where stages are more than SMs."""
    verify(loads, channels, device)
    blocks: dict[str, int] = {}
    for kind in KINDS:
        blocks |= _deal([load for load in loads if load.kind == kind], kind, device)
    bounds = tuple(sorted(_bounds(loads, channels, device, blocks), key=lambda bound: bound.tiles_per_us))
    why = {bound.name: bound for bound in bounds}
    decisions = [Decision((i,), f"{count(blocks[load.name], 'block')}", "load-balance",
                          f"{load.name}: {why[load.name].why}, {why[load.name].tiles_per_us:.4g} tiles/us; "
                          f"{bounds[0].name} binds at {bounds[0].tiles_per_us:.4g}") for i, load in enumerate(loads)]
    outside = in_dram(channels, device)
    decisions += [Decision((i,), "DRAM", "l2-size", f"queue {channels[i].name} holds {channels[i].held_bytes:,} bytes, and all of "
                           f"them {sum(c.held_bytes for c in channels):,}: L2 has {device.l2_size:,}") for i in sorted(outside)]
    return Balance(device, {load.name: blocks[load.name] for load in loads}, bounds, tuple(decisions))


def pass_tiles(loads: Sequence[StageLoad]) -> int:
    """The tiles that rates are counted in: those of the stages that take most."""
    return max(load.tiles for load in loads)


def entries_of(channel: Channel, loads: Sequence[StageLoad]) -> int:
    """How many tiles a queue hands over in a whole pass."""
    return channel.entries or next(load.tiles for load in loads if load.name == channel.producer)


def in_dram(channels: Sequence[Channel], device: Device) -> set[int]:
    """The queues that L2 has no room for, by their place, the largest first: a ring larger than its cache finds nothing in it."""
    inside, outside = sum(channel.held_bytes for channel in channels), set[int]()
    for i in sorted(range(len(channels)), key=lambda i: channels[i].held_bytes, reverse=True):
        if inside > device.l2_size:
            outside.add(i)
            inside -= channels[i].held_bytes
    return outside


def _deal(loads: Sequence[StageLoad], kind: Kind, device: Device) -> dict[str, int]:
    """Deal out one block for each SM: always to the slowest stage of those that have use for one more."""
    if len(loads) > device.sms:
        raise PipelineError(f"{len(loads)} {kind} stages want a block each, and {device.name} has {device.sms} SMs: fuse "
                            "element-wise stages with their producers, or make two pipelines of it")
    blocks = {load.name: 1 for load in loads}
    slowest = [(_passes(load, 1, device), i) for i, load in enumerate(loads)]
    heapq.heapify(slowest)
    left = device.sms - len(loads)
    while left and slowest:
        _, i = heapq.heappop(slowest)
        load = loads[i]
        if blocks[load.name] < (load.parallel or device.sms):
            blocks[load.name] += 1
            left -= 1
            heapq.heappush(slowest, (_passes(load, blocks[load.name], device), i))
    return blocks


def _passes(load: StageLoad, blocks: int, device: Device) -> float:
    """Whole passes that a stage could take in a microsecond."""
    busy = load.busy_us(blocks, device) * load.tiles
    return 1 / busy if busy else inf


def _bounds(loads: Sequence[StageLoad], channels: Sequence[Channel], device: Device, blocks: Mapping[str, int]) -> list[Bound]:
    tiles = pass_tiles(loads)
    found = [Bound(load.name, tiles * _passes(load, blocks[load.name], device),
                   f"{blocks[load.name]} of {device.sms} SMs, {load.busy_us(blocks[load.name], device):.4g} us a tile"
                   + (f", {load.parallel} blocks are all it can use" if blocks[load.name] == load.parallel else ""))
             for load in loads]
    dram, l2 = pipeline_bytes(loads, channels, device)
    for name, moved, bandwidth in (("DRAM", dram, device.bandwidth), ("L2", l2, device.l2_bandwidth)):
        rate = tiles * bandwidth / 1e6 / moved if moved else inf
        found.append(Bound(name, rate, f"{moved / tiles:,.0f} bytes a tile at {bandwidth / 1e9:,.0f} GB/s"))
    return found


def pipeline_bytes(loads: Sequence[StageLoad], channels: Sequence[Channel], device: Device) -> tuple[int, int]:
    """Bytes of a whole pass of the pipeline, through DRAM and through L2: all that DRAM moves goes through L2."""
    dram = sum(load.dram_bytes * load.tiles for load in loads)
    l2, outside = sum(load.l2_bytes * load.tiles for load in loads), in_dram(channels, device)
    for i, channel in enumerate(channels):
        written = entries_of(channel, loads) * channel.tile_bytes
        queued = written * (1 + len(channel.consumers))
        dram += queued if i in outside else written * channel.returned
        l2 += queued if i not in outside else 0
    return dram, dram + l2


# ---------------------------------------------------------------- what is no pipeline
def verify(loads: Sequence[StageLoad], channels: Sequence[Channel], device: Device) -> None:
    """Raises PipelineError where a load, a channel or the device does not make sense; names it and the next step."""
    place = {load.name: i for i, load in enumerate(loads)}
    if not loads or len(place) < len(loads):
        raise PipelineError("a pipeline has at least one stage, and no two of the same name: rename one")
    if not (device.l2_size and device.l2_bandwidth):
        raise PipelineError(f"{device.name} has no L2 cache that all SMs share, by its figures: take a GPU, such as a100")
    for load in loads:
        numbers = (load.us, load.dram_bytes, load.l2_bytes, load.parallel)
        known = load.kind in KINDS and 0 < load.utilisation <= 1 and load.tiles >= 1
        if not known or not all(isfinite(n) and n >= 0 for n in numbers):
            raise PipelineError(f"stage {load.name!r}: kind is simt or tensor, utilisation above 0 and at most 1, tiles at "
                                f"least 1, and nothing is negative; got {load}")
    for channel in channels:
        unknown = [name for name in (channel.producer, *channel.consumers) if name not in place]
        if unknown or not channel.consumers:
            raise PipelineError(f"queue {channel.name}: {unknown[0] + ' is no stage' if unknown else 'nobody reads it'}; "
                                f"stages are {', '.join(place)}")
        if any(place[channel.producer] >= place[consumer] for consumer in channel.consumers):
            raise PipelineError(f"queue {channel.name}: a producer stands before its consumers; put stages in their data's order")
        if channel.depth < 1 or channel.tile_bytes < 0 or channel.entries < 0:
            raise PipelineError(f"queue {channel.name}: depth {channel.depth} is at least 1, sizes are not negative")
