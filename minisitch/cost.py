"""Traffic and modelled time of a kernel, from the numbers its schedule already holds.

In:  a ``Kernel`` or a library node, and a ``Device``. Out: bytes, microseconds.

The traffic is compulsory traffic: between two grid barriers each cell of a buffer is fetched and
written once, since a segment's working set is meant to stay in cache. ``simt`` counts the same
quantity by running the text; a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .device import Device
from .graph import Graph, Node
from .kernel import Compute, Kernel, Segment
from .ops import itemsize

HEAVY_OPERATIONS = 16  # scalar operations a heavy one counts for (a polynomial of that length)


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
    size = {b.name: itemsize(b.dtype) for b in kernel.buffers}
    return Bytes(sum(t.read * size[t.buffer] for t in kernel.touches),
                 sum(t.written * size[t.buffer] for t in kernel.touches))


def library_traffic(graph: Graph, node: Node) -> Bytes:
    """Each operand read once, the result written once."""
    return Bytes(sum(graph[a].type.nbytes for a in node.args), node.type.nbytes)


def operations(segment: Segment) -> int:
    """Scalar operations of all tasks, a heavy one counted as ``HEAVY_OPERATIONS``."""
    total = 0
    for phase in segment.phases:
        each = sum(_weight(s) for s in phase.body) + len(phase.folds)
        total += segment.rows * (phase.cols * phase.serial * each + sum(_weight(s) for s in phase.before))
    return total


def _weight(stmt: object) -> int:
    if not isinstance(stmt, Compute):
        return 0
    return HEAVY_OPERATIONS if stmt.heavy else 1


def kernel_us(kernel: Kernel) -> float:
    """Modelled microseconds of one launch: between two grid barriers the larger of memory and arithmetic time.

    Each is stretched by the share of the device that the busiest segment of that time leaves idle; the
    launch and the barriers are added.
    """
    device = kernel.device
    size = {b.name: itemsize(b.dtype) for b in kernel.buffers}
    moved: dict[int, int] = {}
    for t in kernel.touches:
        moved[t.level] = moved.get(t.level, 0) + (t.read + t.written) * size[t.buffer]
    total = device.launch_us + device.grid_barrier_us * kernel.grid_barriers
    for segments, level in zip(epochs(kernel), sorted(moved), strict=False):
        memory = moved[level] / device.bandwidth
        compute = sum(map(operations, segments)) / device.flops
        total += max(memory, compute) / _share(kernel, segments) * 1e6
    turns = max((-(-s.tasks // kernel.grid) for s in kernel.segments), default=1)
    return total + device.block_barrier_us * kernel.block_barriers * turns


def epochs(kernel: Kernel) -> list[list[Segment]]:
    """The segments between grid barriers, in order."""
    found: list[list[Segment]] = [[]]
    for segment in kernel.segments:
        found[-1].append(segment)
        if segment.barrier == "grid":
            found.append([])
    return found


def _share(kernel: Kernel, segments: Sequence[Segment]) -> float:
    """The part of the device's rate that the busiest of these segments can draw."""
    device, busiest = kernel.device, max((min(s.tasks, kernel.grid) for s in segments), default=1)
    if device.kind == "cpu":
        return min(1.0, max(1, busiest) / device.sms)
    occupancy = min(1.0, busiest / device.wave(kernel.block, kernel.shared_bytes))
    # A GPU's memory is busy well before all its blocks are: half of them reach about 0.7 of the bandwidth (derived).
    return math.sqrt(max(occupancy, 1e-3))


def library_us(graph: Graph, node: Node, device: Device) -> float:
    """Modelled microseconds of a library call: the larger of its memory and arithmetic time."""
    moved = library_traffic(graph, node).total
    flops = 0
    if node.op == "matmul":
        flops = 2 * node.type.size * graph[node.args[0]].type.shape[-1]
    return device.launch_us + max(moved / device.bandwidth, flops / _matmul_flops(device)) * 1e6


def _matmul_flops(device: Device) -> float:
    """BLAS reaches about three times the arithmetic rate of a core's element-wise loops (measured: demo, two cores)."""
    return device.flops * (3 if device.kind == "cpu" else 1)


def plan_us(kernels: Sequence[Kernel], library: Sequence[tuple[Graph, Node]], device: Device) -> float:
    """Modelled microseconds of all launches, one after the other."""
    return sum(map(kernel_us, kernels)) + sum(library_us(g, n, device) for g, n in library)
