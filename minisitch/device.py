"""What a machine has, as data: the numbers that schedules and cost models are computed from.

GPU figures are the vendor's datasheets (V100, A100, H100, H200 product briefs); launch and barrier
costs of the V100 are AStitch's measurements, those of the others are assumed. The ``cpu`` entry is a
default for server cores.
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


def _gpu(name: str, *, sms: int, shared_per_sm: int, bandwidth: float, flops: float, launch_us: float,
         grid_barrier_us: float, source: str) -> Device:
    """What NVIDIA's data-centre GPUs have in common; Numba's static shared memory stops at 48 kB a block."""
    return Device(name, "gpu", sms, threads_per_sm=2048, blocks_per_sm=32, registers_per_sm=65536, shared_per_sm=shared_per_sm,
                  shared_per_block=49152, bandwidth=bandwidth, flops=flops, launch_us=launch_us,
                  grid_barrier_us=grid_barrier_us, block_barrier_us=0.02, source=source)


_ASSUMED = "datasheet; launch and barrier costs assumed below the V100's, not measured"
DEVICES = {d.name: d for d in (
    _gpu("v100", sms=80, shared_per_sm=98304, bandwidth=900e9, flops=15.7e12, launch_us=10.0, grid_barrier_us=2.7,
         source="datasheet; launch and barrier costs as AStitch measured them (table in section 4.4)"),
    _gpu("a100", sms=108, shared_per_sm=167936, bandwidth=1555e9, flops=19.5e12, launch_us=6.0, grid_barrier_us=2.5,
         source=_ASSUMED),
    _gpu("h100", sms=132, shared_per_sm=233472, bandwidth=3350e9, flops=67e12, launch_us=5.0, grid_barrier_us=2.5,
         source=_ASSUMED),
    _gpu("h200", sms=132, shared_per_sm=233472, bandwidth=4800e9, flops=67e12, launch_us=5.0, grid_barrier_us=2.5,
         source=_ASSUMED),
)}


def this_cpu() -> Device:
    """The machine we run on: one block a core at a time, scratch rows that should stay in L2."""
    cores = int(os.environ.get("MINISITCH_THREADS", "0")) or os.cpu_count() or 1
    bandwidth = 28e9 if cores == 1 else 34e9  # copy with ordinary stores; a second core adds little
    return Device("cpu", "cpu", cores, threads_per_sm=8, blocks_per_sm=8, registers_per_sm=1 << 30, shared_per_sm=1 << 21,
                  shared_per_block=1 << 19, bandwidth=bandwidth, flops=40e9 * cores, launch_us=2.0, grid_barrier_us=3.0,
                  block_barrier_us=0.0, max_block=1, source="copy and polynomial-exp rates measured on a two-core x86-64 server")


def get_device(name: str) -> Device:
    """A device by name; KeyError lists the known ones."""
    if name == "cpu":
        return this_cpu()
    if name not in DEVICES:
        raise KeyError(f"unknown device {name!r}; known: cpu, {', '.join(DEVICES)}")
    return DEVICES[name]
