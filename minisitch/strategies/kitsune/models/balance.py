"""The number of thread blocks of each stage: Kitsune's load balance, solved exactly.

In:  the work of each stage (``StageLoad``), the queues between them (``Channel``), a ``Device``.
Out: a ``Balance``: blocks of each stage, tiles a microsecond, and every bound on that rate.

Kitsune's Algorithm 2 is an integer program over a_i, the blocks of stage i, for the steady state:

    maximise T      T <= a_i / #SM / us_i                                            for each stage
                    T * DRAM bytes <= DRAM bandwidth,   T * L2 bytes <= L2 bandwidth
                    1 <= a_i,   sum of a_i over SIMT stages = #SM = sum over TENSOR stages

The paper assumes that an SM runs one block of each kind without slowing either. So the kinds do not
compete. Within a kind, each next block goes to the slowest stage. No search is needed: T is a
minimum, and only a block for the slowest stage can raise it.

Before:  up (tensor, 4 us), gelu (simt, 2 us), down (tensor, 4 us) on 108 SMs
After:   54, 108 and 54 blocks; T = 0.125 tiles/us, which ``up`` and ``down`` bound
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from ....device import Device
from ....errors import PipelineError

Kind = Literal["simt", "tensor"]
KINDS: tuple[Kind, ...] = ("simt", "tensor")


@dataclass(frozen=True)
class StageLoad:
    """The work of a stage for each of its ``tiles``.

    ``us`` is the time of a tile if the stage has the whole machine. The paper measures in which
    share of that time a unit works, and counts that share alone. Here a unit works all the time.
    ``parallel`` is the number of blocks that one tile keeps busy (0: all). A reduction that is not
    split keeps one block busy.
    """

    name: str
    kind: Kind
    us: float
    dram_bytes: int = 0  # of a tile: inputs, results, and weights that no cache holds
    l2_bytes: int = 0  # of a tile, besides DRAM's and the queues'
    tiles: int = 1
    parallel: int = 0

    def busy_us(self, blocks: float, device: Device) -> float:
        """Microseconds of a tile in a pipeline in which the stage has this many blocks."""
        most = min(self.parallel, device.sms) or device.sms
        return self.us * most / min(blocks, most)

    def share(self, device: Device) -> float:
        """The share of the machine's SMs that the stage can use."""
        return (min(self.parallel, device.sms) or device.sms) / device.sms


@dataclass(frozen=True)
class Channel:
    """A queue from one stage to others. ``entries`` counts a whole pass (0: one a tile).

    Rates are those of synchronous dataflow. For example, a stage that takes 32 tiles and hands over
    one entry reduces. A stage of 32 tiles that reads one entry uses it for all of them. A stage of
    one tile that reads 32 entries waits for all.
    """

    producer: str
    consumers: tuple[str, ...]
    tile_bytes: int
    depth: int = 2
    entries: int = 0
    returned: bool = False  # the caller gets the value too: it is written to DRAM once

    @property
    def name(self) -> str:
        return f"{self.producer} -> {', '.join(self.consumers)}"

    @property
    def held_bytes(self) -> int:
        """Bytes of its ring."""
        return self.depth * self.tile_bytes


Loads = Sequence[StageLoad]
Channels = Sequence[Channel]


@dataclass(frozen=True)
class Bound:
    """One upper bound on a pipeline's rate, by a stage, ``DRAM`` or ``L2``."""

    name: str
    tiles_per_us: float


@dataclass(frozen=True)
class Balance:
    """Blocks of each stage, and the bounds on the rate, tightest first."""

    device: Device
    blocks: Mapping[str, int]
    bounds: tuple[Bound, ...]

    @property
    def tiles_per_us(self) -> float:
        return self.bounds[0].tiles_per_us


def balance(loads: Loads, device: Device, channels: Channels = ()) -> Balance:
    """The blocks of each stage that give the highest rate.

    ``loads`` have different names, and a producer stands before its consumers. Raises PipelineError
    for a device without a shared L2 cache, and for more stages of a kind than the device has SMs.
    """
    if not (device.l2_size and device.l2_bandwidth):
        raise PipelineError(f"the figures of {device.name} give no L2 cache that all SMs share: "
                            "take a GPU, such as a100")
    blocks: dict[str, int] = {}
    for kind in KINDS:
        blocks |= deal_blocks(_of_kind(loads, kind, device), device)
    bounds = tuple(sorted(_bounds(loads, channels, device, blocks), key=lambda b: b.tiles_per_us))
    return Balance(device, {load.name: blocks[load.name] for load in loads}, bounds)


def pass_tiles(loads: Loads) -> int:
    """The tiles that rates are counted in: the most that any stage takes."""
    return max(load.tiles for load in loads)


def entries_of(channel: Channel, loads: Loads) -> int:
    """The number of entries of a queue in a whole pass."""
    return channel.entries or next(load.tiles for load in loads if load.name == channel.producer)


def in_dram(channels: Channels, device: Device) -> set[int]:
    """Positions of the queues that do not fit into L2, largest first. A larger ring never hits."""
    inside, outside = sum(channel.held_bytes for channel in channels), set[int]()
    for i in sorted(range(len(channels)), key=lambda i: channels[i].held_bytes, reverse=True):
        if inside > device.l2_size:
            outside.add(i)
            inside -= channels[i].held_bytes
    return outside


def _of_kind(loads: Loads, kind: Kind, device: Device) -> list[StageLoad]:
    found = [load for load in loads if load.kind == kind]
    if len(found) > device.sms:
        raise PipelineError(f"{len(found)} {kind} stages need a block each, but {device.name} has "
                            f"{device.sms} SMs: fuse element-wise stages with their producers, "
                            "or make two pipelines of it")
    return found


def deal_blocks(loads: Loads, device: Device) -> dict[str, int]:
    """Deal out one block for each SM to stages of one kind.

    Each goes to the slowest stage that can use one more.
    """
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
    """Whole passes of a stage in a microsecond."""
    busy = load.busy_us(blocks, device) * load.tiles
    return 1 / busy if busy else inf


def _bounds(loads: Loads, channels: Channels, device: Device,
            blocks: Mapping[str, int]) -> list[Bound]:
    tiles = pass_tiles(loads)
    found = [Bound(load.name, tiles * _passes(load, blocks[load.name], device)) for load in loads]
    dram, l2 = pipeline_bytes(loads, channels, device)
    for name, moved, speed in (("DRAM", dram, device.bandwidth), ("L2", l2, device.l2_bandwidth)):
        found.append(Bound(name, tiles * speed / 1e6 / moved if moved else inf))
    return found


def pipeline_bytes(loads: Loads, channels: Channels, device: Device) -> tuple[int, int]:
    """Bytes of a whole pass through DRAM and through L2. All DRAM traffic also passes L2."""
    dram = sum(load.dram_bytes * load.tiles for load in loads)
    l2, outside = sum(load.l2_bytes * load.tiles for load in loads), in_dram(channels, device)
    for i, channel in enumerate(channels):
        written = entries_of(channel, loads) * channel.tile_bytes
        queued = written * (1 + len(channel.consumers))
        dram += queued if i in outside else written * channel.returned
        l2 += queued if i not in outside else 0
    return dram, dram + l2
