"""The time of a pipeline, tile by tile: a discrete-event simulation.

In:  ``StageLoad``s in the order of their data, the ``Channel``s between them, a ``Device``, and the
blocks of each stage. Out: a ``Simulation``: the makespan, when each stage had which tile, how full
each queue was, what each unit did, and bytes of DRAM.

One kernel holds all stages, each with blocks of its own. A stage runs if its tile is there and its
output has room. ``benchmarks/executions.py`` simulates the paper's two baselines, kernels one after
another, with the same clock.

A *firing* is the time of one stage on one tile, shared by all its blocks. It computes, moves DRAM
bytes and moves L2 bytes at the same time, and ends with the slowest. Firings that move bytes at the
same time share the bandwidth evenly. Queues cost only their bytes, as in the paper's model.

If all stages wait, they wait for each other. This deadlock occurs where paths meet again, as in a
softmax whose division needs every exponential again after the sum. It is refused, with the stages
and the depths that would avoid it.

Before:  exp -> sum, divide (depth 2), sum -> divide; 8 tiles
After:   PipelineError: deadlock at 12 us: exp (tile 2) waits for room in exp -> sum, divide
         (depth 2; divide has given back 0); ... It runs with depths of exp -> sum, divide 8; ...
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ....device import Device
from ....errors import PipelineError
from ....errors.lazy import lazy
from .balance import Channel, Channels, Loads, StageLoad, balance, entries_of, in_dram
from .rates import depths, needed, passed, reads, writes


@dataclass(frozen=True)
class Firing:
    """One tile in one stage. ``lane`` is the kernel's lane: in a pipeline, the stage."""

    stage: str
    tile: int
    lane: int
    start: float  # microseconds
    end: float


@dataclass(frozen=True)
class Moment:
    """A period without changes, and the share of each unit's rate that was used in it."""

    start: float
    end: float
    simt: float
    tensor: float
    dram: float
    l2: float


@dataclass(frozen=True)
class Simulation:
    """One simulated execution."""

    execution: str
    device: Device
    loads: tuple[StageLoad, ...]
    channels: tuple[Channel, ...]
    kernels: int
    makespan_us: float
    firings: tuple[Firing, ...]
    moments: tuple[Moment, ...]
    fills: tuple[tuple[tuple[float, int], ...], ...]  # for each channel: (since when, entries)
    dram_bytes: int
    l2_bytes: int

    @lazy
    def utilisation(self) -> dict[str, float]:
        """For each unit, its work over the work that it could do in the makespan."""
        busy = {unit: sum(getattr(m, unit) * (m.end - m.start) for m in self.moments)
                for unit in ("simt", "tensor")}
        busy["dram"] = self.dram_bytes / self.device.bandwidth * 1e6
        busy["l2"] = self.l2_bytes / self.device.l2_bandwidth * 1e6
        return {unit: us / self.makespan_us for unit, us in busy.items()}


# ---------------------------------------------------------------- the execution
def dataflow(loads: Loads, channels: Channels, device: Device,
             blocks: Mapping[str, float] | None = None) -> Simulation:
    """Simulate one kernel of co-resident stages, with these or ``balance``'s blocks.

    Raises PipelineError if stages would wait for each other.
    """
    blocks = balance(loads, device, channels).blocks if blocks is None else blocks
    idle = [load.name for load in loads if not blocks.get(load.name)]
    if idle:
        raise PipelineError(f"stage {idle[0]} has no blocks, so the others would wait for it "
                            "forever: give each stage one at least")
    outside, lanes = in_dram(channels, device), []
    for load in loads:
        held = blocks[load.name]
        us, draw = load.busy_us(held, device), min(load.share(device), held / device.sms)
        lane = []
        for tile in range(load.tiles):
            dram, cached = load.dram_bytes, load.l2_bytes
            for i, channel in ends(channels, load):
                size = fired_entries(channel, load, tile, loads) * channel.tile_bytes
                written = channel.returned and channel.producer == load.name
                dram += size * (i in outside or written)
                cached += size * (i not in outside)
            lane.append(Task(load, tile, us, draw, dram, dram + cached))
        lanes.append(lane)
    return simulate("dataflow", loads, channels, device, [lanes])


def simulate(execution: str, loads: Loads, channels: Channels, device: Device,
             kernels: Sequence[Sequence[Sequence[Task]]]) -> Simulation:
    """Run kernels in turn, the lanes of each side by side, the tasks of a lane in order."""
    return _Simulation(loads, channels, device).run(execution, kernels)


def ends(channels: Channels, load: StageLoad) -> list[tuple[int, Channel]]:
    """The queues that a stage reads, then those that it writes, with their positions."""
    return reads(channels, load.name) + writes(channels, load.name)


def fired_entries(channel: Channel, load: StageLoad, tile: int, loads: Loads) -> int:
    """Entries of a queue that a firing takes or publishes."""
    entries, step = entries_of(channel, loads), passed if load.name == channel.producer else needed
    return step(entries, load, tile + 1) - step(entries, load, tile)


# ---------------------------------------------------------------- time
@dataclass(frozen=True)
class Task:
    """A future firing: its time, its share of its unit, and the bytes it moves."""

    load: StageLoad
    tile: int
    us: float
    draw: float
    dram: int
    l2: int


class _Active:
    """A running firing: what is left of its microseconds, DRAM bytes and L2 bytes."""

    def __init__(self, task: Task, start: float) -> None:
        self.task, self.start = task, start
        self.us, self.dram, self.l2 = task.us, float(task.dram), float(task.l2)

    @property
    def over(self) -> bool:
        return not (self.us or self.dram or self.l2)

    def soonest(self, dram: float, l2: float) -> float:
        """Microseconds until it ends one of these, at these bytes a microsecond."""
        if self.over:
            return 0.0
        return min(self.us or inf, self.dram / dram or inf, self.l2 / l2 or inf)

    def spend(self, step: float, dram: float, l2: float) -> None:
        """Let ``step`` microseconds pass. What would end within rounding ends too."""
        end = step * (1 + 1e-12)
        self.us = self.us - step if self.us > end else 0.0
        self.dram = self.dram - dram * step if self.dram > dram * end else 0.0
        self.l2 = self.l2 - l2 * step if self.l2 > l2 * end else 0.0


class _Simulation:
    """The clock, the queues, and what happened."""

    def __init__(self, loads: Loads, channels: Channels, device: Device) -> None:
        self.loads, self.channels, self.device = tuple(loads), tuple(channels), device
        self.entries = [entries_of(channel, loads) for channel in channels]
        self.published = [0] * len(channels)
        self.taken = [dict.fromkeys(channel.consumers, 0) for channel in channels]
        self.reads = {load.name: reads(channels, load.name) for load in loads}
        self.writes = {load.name: writes(channels, load.name) for load in loads}
        self.clock = 0.0
        self.firings: list[Firing] = []
        self.moments: list[Moment] = []
        self.fills: list[list[tuple[float, int]]] = [[(0.0, 0)] for _ in channels]

    def run(self, execution: str, kernels: Sequence[Sequence[Sequence[Task]]]) -> Simulation:
        """Run kernels in turn, the lanes of each side by side, the tasks of a lane in order."""
        for lanes in kernels:
            self.clock += self.device.launch_us
            pending = [deque(lane) for lane in lanes]
            active: dict[int, _Active] = {}
            changed = True  # a firing may start when another has ended
            while active or any(pending):
                for lane, tasks in enumerate(pending) if changed else ():
                    if tasks and lane not in active and self._waits_for(tasks[0]) is None:
                        active[lane] = _Active(tasks.popleft(), self.clock)
                if not active:
                    raise PipelineError(self._deadlock([tasks[0] for tasks in pending if tasks]))
                self._advance(active.values())
                over = [lane for lane, found in active.items() if found.over]
                for lane in over:
                    self._finish(active.pop(lane), lane)
                changed = bool(over)
        moved = [task for lanes in kernels for lane in lanes for task in lane]
        return Simulation(execution, self.device, self.loads, self.channels, len(kernels), self.clock,
                          tuple(self.firings), tuple(self.moments), tuple(map(tuple, self.fills)),
                          sum(task.dram for task in moved), sum(task.l2 for task in moved))

    def _waits_for(self, task: Task) -> tuple[int, str] | None:
        """The queue that a firing waits for, and whether it needs a tile or room. Else None."""
        load, firings = task.load, task.tile + 1
        for i, _ in self.reads[load.name]:
            if self.published[i] < needed(self.entries[i], load, firings):
                return i, "tile"
        for i, channel in self.writes[load.name]:
            if passed(self.entries[i], load, firings) - min(self.taken[i].values()) > channel.depth:
                return i, "room"
        return None

    def _advance(self, active: Iterable[_Active]) -> None:
        """Move the clock to the next moment at which a firing ends something."""
        sharing_dram = sum(found.dram > 0 for found in active)
        sharing_l2 = sum(found.l2 > 0 for found in active)
        dram = self.device.bandwidth / 1e6 / max(1, sharing_dram)  # bytes a microsecond
        l2 = self.device.l2_bandwidth / 1e6 / max(1, sharing_l2)
        step = min(found.soonest(dram, l2) for found in active)
        draws = dict.fromkeys(("simt", "tensor"), 0.0)
        for found in active:
            draws[found.task.load.kind] += found.task.draw * (found.us > 0)
            found.spend(step, dram, l2)
        if step:
            self.moments.append(Moment(
                self.clock, self.clock + step, draws["simt"], draws["tensor"],
                float(sharing_dram > 0), float(sharing_l2 > 0)))
        self.clock += step

    def _finish(self, found: _Active, lane: int) -> None:
        """Publish what a firing made, and give back what it read."""
        load, tile = found.task.load, found.task.tile
        self.firings.append(Firing(load.name, tile, lane, found.start, self.clock))
        for i, _ in self.writes[load.name]:
            self.published[i] = passed(self.entries[i], load, tile + 1)
        for i, _ in self.reads[load.name]:
            self.taken[i][load.name] = passed(self.entries[i], load, tile + 1)
        for i, _ in self.writes[load.name] + self.reads[load.name]:
            fill = self.published[i] - min(self.taken[i].values())
            if self.fills[i][-1][0] == self.clock:
                self.fills[i].pop()
            if not self.fills[i] or self.fills[i][-1][1] != fill:
                self.fills[i].append((self.clock, fill))

    def _deadlock(self, tasks: Sequence[Task]) -> str:
        """The stages that wait, for what, and the depths that would avoid the deadlock."""
        said = []
        for task in tasks:
            found = self._waits_for(task)
            assert found, "a task that waits for nothing has started"
            i, wanted = found
            channel = self.channels[i]
            if wanted == "room":
                last = min(self.taken[i], key=lambda name: self.taken[i][name])
                given = self.taken[i][last]
                wanted = (f"room in {channel.name} (depth {channel.depth}; "
                          f"{last} has given back {given})")
            else:
                wanted = f"a tile of {channel.producer}, which has published {self.published[i]}"
            said.append(f"{task.load.name} (tile {task.tile}) waits for {wanted}")
        enough = depths(self.loads, self.channels)
        short = [(c.name, n) for c, n in zip(self.channels, enough, strict=True) if c.depth < n]
        assert short, "with these depths every stage gets its turn"
        deeper = [f"{name} {depth}" for name, depth in short]
        return (f"deadlock at {self.clock:.4g} us: {'; '.join(said)}. It runs with depths of "
                f"{', '.join(deeper)}; or keep these stages in one, compute again what waits, "
                "or let it go through DRAM")
