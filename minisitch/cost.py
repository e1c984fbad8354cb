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
from .ops import OPS, itemsize

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
        total += segment.rows * phase.cols * phase.serial * each
    return total


def _weight(stmt: object) -> int:
    if not isinstance(stmt, Compute):
        return 0
    return HEAVY_OPERATIONS if OPS[stmt.op].cost == "heavy" else 1


def kernel_us(kernel: Kernel) -> float:
    """Modelled microseconds of one launch.

    A segment takes the larger of its memory and its arithmetic time, stretched by the share of the
    device that its blocks leave idle; launches and barriers are added.
    """
    device = kernel.device
    wave = device.wave(kernel.block, kernel.shared_bytes)
    total = device.launch_us + device.grid_barrier_us * kernel.grid_barriers
    memory = traffic(kernel).total / device.bandwidth
    compute = sum(operations(s) for s in kernel.segments) / device.flops
    busiest = max((min(s.tasks, kernel.grid) for s in kernel.segments), default=1)
    occupancy = min(1.0, busiest / (wave if device.kind == "gpu" else device.sms))
    # A GPU's memory is busy well before all its blocks are: half of them reach about 0.7 of the bandwidth (derived).
    full = math.sqrt(max(occupancy, 1e-3)) if device.kind == "gpu" else max(occupancy, 1 / device.sms)
    barriers = device.block_barrier_us * kernel.block_barriers * max(1, max(
        (-(-s.tasks // kernel.grid) for s in kernel.segments), default=1))
    return total + max(memory, compute) / full * 1e6 + barriers


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
