"""What a machine has, as data: the numbers that schedules and cost models are computed from.

GPU figures are the vendors' datasheets (V100, A100, H100, H200 product briefs); launch and barrier
costs of the V100 are AStitch's measurements (papers: AStitch section 4.4). The ``cpu`` entry is a
default for two cores; ``calibrated`` figures replace it when a machine has been measured.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """One machine. Bytes, bytes per second, microseconds; a CPU's "SM" is a core.

    ``shared_per_block`` bounds one block's static shared memory (a CPU's: what should stay in L2).
    """

    name: str
    kind: str  # "gpu" | "cpu"
    sms: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    bandwidth: float  # bytes per second from main memory
    flops: float  # float32 operations per second
    launch_us: float
    grid_barrier_us: float
    block_barrier_us: float
    max_block: int = 1024
    source: str = ""

    def wave(self, block: int, shared: int = 0, registers: int = 32) -> int:
        """Blocks that are resident at once on the whole device (AStitch B8, "assume").

        A grid barrier needs all blocks resident, so no such kernel launches more.
        """
        limits = [self.threads_per_sm // block, self.blocks_per_sm]
        if registers:
            limits.append(self.registers_per_sm // (registers * block))
        if shared:
            limits.append(self.shared_per_sm // shared)
        return max(1, min(limits)) * self.sms

    def relaxed_registers(self, block: int, shared: int, assumed: int = 32) -> int:
        """The most registers a thread may use without losing a resident block (AStitch B8, "relax")."""
        resident = self.wave(block, shared, assumed) // self.sms
        return min(255, self.registers_per_sm // (resident * block))


DEVICES = {d.name: d for d in (
    Device("v100", "gpu", 80, 2048, 32, 65536, 98304, 49152, 900e9, 15.7e12, 10.0, 2.7, 0.02,
           source="NVIDIA V100 datasheet; AStitch barrier table"),
    Device("a100", "gpu", 108, 2048, 32, 65536, 167936, 49152, 1555e9, 19.5e12, 6.0, 2.5, 0.02,
           source="NVIDIA A100 40GB datasheet"),
    Device("h100", "gpu", 132, 2048, 32, 65536, 233472, 49152, 3350e9, 67e12, 5.0, 2.5, 0.02,
           source="NVIDIA H100 SXM datasheet"),
    Device("h200", "gpu", 132, 2048, 32, 65536, 233472, 49152, 4800e9, 67e12, 5.0, 2.5, 0.02,
           source="NVIDIA H200 datasheet"),
)}


def this_cpu() -> Device:
    """The machine we run on: one block a core at a time, scratch rows that should stay in L2."""
    cores = int(os.environ.get("MINISITCH_THREADS", "0")) or os.cpu_count() or 1
    bandwidth = 28e9 if cores == 1 else 34e9  # copy with ordinary stores; a second core adds little
    return Device("cpu", "cpu", cores, 8, 8, 1 << 30, 1 << 21, 1 << 19, bandwidth, 40e9 * cores, 2.0, 3.0, 0.0,
                  max_block=1, source="copy and polynomial-exp rates measured on a two-core x86-64 server")


def get_device(name: str) -> Device:
    """A device by name; KeyError lists the known ones."""
    if name == "cpu":
        return this_cpu()
    if name not in DEVICES:
        raise KeyError(f"unknown device {name!r}; known: cpu, {', '.join(DEVICES)}")
    return DEVICES[name]
