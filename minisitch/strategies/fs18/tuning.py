"""Choosing one of the satisfiable schedules (FusionStitching 2018, section 4.3).

In:  schedules, and a price for every operation under each. Out: the cheapest, and how many prices that took.

The sum of prices is no prediction of the kernel's time; it only ranks schedules. A schedule is dropped as soon as
what has been added up is more than the best total: same answer, fewer prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...device import Device

S = TypeVar("S")
P = TypeVar("P")
THREADS = (128, 256, 512)  # of a block: multiples of 32 (at most 1024) that leave room for several blocks an SM


@dataclass(frozen=True)
class Choice(Generic[S]):
    """The cheapest schedule, its summed price in microseconds, and how many prices were asked for."""

    schedule: S
    us: float
    evaluations: int


def tune(schedules: Sequence[S], parts: Sequence[P], price: Callable[[P, S], float], *, prune: bool = True) -> Choice[S]:
    """The first of the schedules with the least sum over all parts; ``prune`` stops a sum that has lost already."""
    best, least, evaluations = schedules[0], math.inf, 0
    for schedule in schedules:
        total = 0.0
        for part in parts:
            total += price(part, schedule)
            evaluations += 1
            if prune and total >= least:
                break
        if total < least:
            best, least = schedule, total
    return Choice(best, least, evaluations)


def thread_counts(device: Device) -> tuple[int, ...]:
    """Block sizes to try; a CPU's block is one core's task, and has no threads."""
    return tuple(t for t in THREADS if t <= device.max_block) or (device.max_block,)
