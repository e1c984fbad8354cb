"""The performance library: times of operations under schedules (FusionStitching 2018, 4.3).

In:  an ``Entry`` (operation, types, block cut, threads, device). Out: microseconds.

The paper compiles and runs a kernel for each missing entry, so a first compile is slow. Here this
is done only within ``calibrate.measured_operations``. Otherwise a formula answers, so that plans
are the same on every machine.

Before:  Entry(sum [8704,17] -> [8704,1], BlockCut(0, 512), 256 threads, v100)
After:   11.7 us, by the formula
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...device import SECTOR, Device
from ...graph import Graph, Node, TensorType
from ...ops import OPS
from ...stitch.blocks import BlockCut
from ..cost import HEAVY_OPERATIONS

LOOP_START_US = 0.02  # for a block's loop on a CPU (measured: loops over 16 elements)


@dataclass(frozen=True)
class Entry:
    """All that a price depends on."""

    op: str
    attrs: tuple[tuple[str, object], ...]
    operands: tuple[TensorType, ...]
    result: TensorType
    block_cut: BlockCut
    threads: int
    device: Device

    @property
    def work(self) -> int:
        """Elements that its loops visit."""
        return max([self.result.size, *(t.size for t in self.operands)])

    @property
    def key(self) -> str:
        """The price's name in a file, one line of text."""
        what = f"{self.op} {dict(self.attrs)} {' '.join(map(str, self.operands))} -> {self.result}"
        return f"{what} | {self.block_cut} | {self.threads} threads | {self.device.name}"


def entry_of(graph: Graph, node: Node, block_cut: BlockCut, threads: int, device: Device) -> Entry:
    """The entry of a graph's node."""
    operands = tuple(graph[a].type for a in node.args)
    return Entry(node.op, node.attrs, operands, node.type, block_cut, threads, device)


def model_us(entry: Entry) -> float:
    """The larger of memory and arithmetic time, over the share of the device that is busy."""
    blocks = entry.block_cut.blocks(entry.result.shape)
    moved = entry.result.nbytes + sum(t.nbytes for t in entry.operands)
    weight = HEAVY_OPERATIONS if OPS[entry.op].cost == "heavy" else 1
    compute = entry.work * weight / entry.device.flops
    modelled = _cpu_us if entry.device.kind == "cpu" else _gpu_us
    return modelled(entry, blocks, moved / _coalesced(entry), compute)


def _gpu_us(entry: Entry, blocks: int, moved: float, compute: float) -> float:
    """Half of the resident blocks reach about 0.7 of a GPU's rate, as in ``cost``."""
    device = entry.device
    own = max(1, entry.result.size // blocks)
    elements = entry.work // blocks if own == 1 else own  # all threads fold a single result
    threads = max(elements, 1) / (math.ceil(max(elements, 1) / entry.threads) * entry.threads)
    turns = blocks / device.wave(entry.threads)
    busy = min(1.0, threads) * math.sqrt(min(1.0, turns))
    one = max(moved / device.bandwidth, compute) / max(busy, 1e-3) * 1e6
    return one + device.block_barrier_us * math.ceil(turns)


def _cpu_us(entry: Entry, blocks: int, moved: float, compute: float) -> float:
    """Blocks are tasks of cores. A block's data comes from the smallest cache that holds it."""
    device = entry.device
    cache = next((at for at in device.caches if moved / blocks <= at.size), device.caches[-1])
    busy = blocks / (math.ceil(blocks / device.sms) * device.sms)
    return max(moved / cache.all_cores, compute) / busy * 1e6 + LOOP_START_US * blocks / device.sms


def _coalesced(entry: Entry) -> float:
    """Share of the fetched bytes that a block uses."""
    if entry.block_cut.kind == "row":
        return 1.0
    shape = entry.result.shape
    run = shape[-1] // entry.block_cut.sword if entry.block_cut.split_dim == len(shape) - 1 else 1
    return min(1.0, run * entry.result.itemsize / SECTOR)


# Functions that measure an entry. The last is asked. ``calibrate.measured_operations`` adds one.
MEASURING: list[Callable[[Entry], float]] = []


def price(entry: Entry) -> float:
    """Microseconds of an operation under a schedule, from a measurement if there is one."""
    return MEASURING[-1](entry) if MEASURING and entry.device.kind == "cpu" else model_us(entry)
