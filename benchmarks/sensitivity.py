"""What other machines would make of the same work: SMs, L2 and DRAM bandwidth scaled, as in Kitsune's sensitivity study.

In:  ``StageLoad``s, ``Channel``s, a ``Device``, and factors (``Scale``). Out: how much faster each execution becomes
by each factor.

The paper doubles SMs and L2 bandwidth and leaves DRAM as it is, since that is where GPUs go: pipelines gain 47% in inference,
kernels one after the other 18 to 26%, because these wait for DRAM already.

Before:  an MLP on an a100, in three executions
After:   (2, 2, 1): each one's makespan on the a100 over that on an a100 with 216 SMs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from minisitch.device import Device
from minisitch.strategies.kitsune.models.balance import Channel, StageLoad

from .executions import executions


@dataclass(frozen=True)
class Scale:
    """How many times a machine's SMs, L2 bandwidth and DRAM bandwidth another one has."""

    sms: float = 1.0
    l2: float = 1.0
    dram: float = 1.0

    def __str__(self) -> str:
        return f"{self.sms:g}x SMs, {self.l2:g}x L2, {self.dram:g}x DRAM"


@dataclass(frozen=True)
class Point:
    """One machine of the study, each execution's makespan on it, and its speed-up."""

    scale: Scale
    us: Mapping[str, float]
    speedup: Mapping[str, float]

    def __str__(self) -> str:
        return f"{self.scale}:  " + "  ".join(f"{name} {gain:.2f}x" for name, gain in self.speedup.items())


PAPER = (Scale(), Scale(sms=2), Scale(l2=2), Scale(dram=2), Scale(sms=2, l2=2), Scale(sms=2, l2=2, dram=2))


def sensitivity(loads: Sequence[StageLoad], channels: Sequence[Channel], device: Device,
                scales: Sequence[Scale] = PAPER) -> tuple[Point, ...]:
    """The speed-up of each execution on each scaled machine over the machine as it is."""
    base = {run.execution: run.makespan_us for run in executions(loads, channels, device)}
    points = []
    for scale in scales:
        other = scaled(device, scale)
        runs = executions([moved(load, device, other) for load in loads], channels, other)
        us = {run.execution: run.makespan_us for run in runs}
        points.append(Point(scale, us, {name: base[name] / us[name] for name in us}))
    return tuple(points)


def scaled(device: Device, scale: Scale) -> Device:
    """The machine that a study supposes."""
    sms = round(device.sms * scale.sms)
    return replace(device, name=f"{device.name} x ({scale.sms:g}, {scale.l2:g}, {scale.dram:g})", sms=sms,
                   flops=device.flops * sms / device.sms, tensor_flops=device.tensor_flops * sms / device.sms,
                   bandwidth=device.bandwidth * scale.dram, l2_bandwidth=device.l2_bandwidth * scale.l2)


def moved(load: StageLoad, device: Device, other: Device) -> StageLoad:
    """The load as another machine sees it: the more of its SMs a tile can use, the shorter it takes."""
    return replace(load, us=load.us * load.share(device) * device.sms / (load.share(other) * other.sms))
