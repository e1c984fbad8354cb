"""Threads, warps, blocks and the grid: who runs next, who waits for whom.

In:  a ``Program``, its arrays, a launch size, a seed. Out: a ``Traffic``, or a ``KernelBug``.

A block takes *turns*. In a turn each of its threads runs until it waits for the block or the grid, ends,
or has gone once round a ``while`` loop; lanes that meet in a shuffle or a ``syncwarp`` go on within the
turn. The seed draws the order of lanes, warps and blocks. It decides what a racy kernel computes, never
whether it is refused.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from functools import reduce
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ..errors import KernelBug
from .memory import NOTHING, Memory, Now, Stamp, Trace, join
from .text import EXIT, FULL_MASK, SHUFFLES, START, WARP_MEETINGS, Program, kernel_bug
from .traffic import Tally, Traffic
from .values import dtype_of

WARP = 32
IN_FLIGHT = 4  # blocks that run side by side where no grid barrier makes them all
PATIENCE = 10_000  # turns without progress, for each running block, before that is called a deadlock

SOURCE_LANE: dict[str, Callable[[int, int], int]] = {  # (own lane, argument) -> whose value it gets
    "shfl_sync": lambda lane, source: source % WARP,
    "shfl_up_sync": lambda lane, delta: lane - delta if lane >= delta else lane,
    "shfl_down_sync": lambda lane, delta: lane + delta if lane + delta < WARP else lane,
    "shfl_xor_sync": lambda lane, mask: lane ^ mask if lane ^ mask < WARP else lane,
}


Stop = tuple[Any, ...]  # what a thread yields: its site, and what it brings to a meeting there


class Dim3(NamedTuple):
    """``cuda.threadIdx`` and its like. The dialect uses ``x`` alone."""

    x: int
    y: int = 0
    z: int = 0


class Thread:
    """One thread: its generator, where it stands (``stop``) and what it is told when it goes on."""

    __slots__ = ("counts", "generator", "lane", "reply", "stop", "trace")

    def __init__(self, stamp: Stamp):
        self.trace, self.lane = Trace(stamp), stamp.thread % WARP
        self.generator: Generator[Stop, Any, None]
        self.stop: Stop = (START,)
        self.reply: Any = None
        self.counts: defaultdict[str, int] = defaultdict(int)


class Block:
    """One block: its threads in warps, and its shared arrays, which begin unwritten."""

    def __init__(self, index: int, size: int, grid_epoch: int):
        self.index, self.epoch = index, 0
        self.threads = [Thread(Stamp(index, t, grid_epoch, 0, 0, (0,) * WARP, NOTHING)) for t in range(size)]
        self.warps = [self.threads[first:first + WARP] for first in range(0, size, WARP)]
        self.shared: dict[int, Memory] = {}
        self.at_grid_barrier = False


class Cuda:
    """What one thread calls ``cuda``."""

    __slots__ = ("block", "blockDim", "blockIdx", "gridDim", "laneid", "machine", "threadIdx")
    warpsize = WARP
    cg = SimpleNamespace(this_grid=lambda: None)  # `.sync()` has become a yield

    def __init__(self, machine: Machine, block: Block, thread: Thread, block_index: Dim3):
        self.machine, self.block = machine, block
        self.threadIdx, self.blockIdx = Dim3(thread.trace.stamp.thread), block_index
        self.blockDim, self.gridDim = machine.block_size, machine.grid_size
        self.laneid = thread.lane

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> Any:
        """Rounded twice here, and once on the device."""
        return a * b + c

    def grid(self, dimensions: int) -> int:
        return self.blockIdx.x * self.blockDim.x + self.threadIdx.x

    def gridsize(self, dimensions: int) -> int:
        return self.gridDim.x * self.blockDim.x

    def threadfence(self) -> None:
        """Waits for nobody: it orders two threads only where an atomic of one reads what an atomic of the other wrote."""
        self.machine.now.trace.fence()

    def threadfence_block(self) -> None:
        """Orders nothing here: threads of one block meet at barriers."""

    def shared_array(self, site: int, name: str, shape: int | tuple[int, ...], dtype: Any, alignment: int = 0) -> Memory:
        """The same array for all threads of the block: one a site, as on the device. All begin where any access may."""
        if site not in self.block.shared:
            self.block.shared[site] = self.local_array(site, name, shape, dtype, "shared")
        return self.block.shared[site]

    def local_array(self, site: int, name: str, shape: int | tuple[int, ...], dtype: Any, space: str = "local") -> Memory:
        return Memory(name, np.zeros(shape, dtype_of(dtype)), space, self.machine.now, self.machine.program)


class Machine:
    """One launch."""

    def __init__(self, program: Program, arguments: Sequence[Any], now: Now, grid: int, block: int, seed: int, in_flight: int):
        self.program, self.arguments, self.now = program, arguments, now
        self.arrays = list({id(a): a for a in arguments if isinstance(a, Memory)}.values())
        self.grid_size, self.block_size, self.in_flight = Dim3(grid, 1, 1), Dim3(block, 1, 1), in_flight
        self.rng = random.Random(seed)
        self.waiting_to_start = self.rng.sample(range(grid), grid)
        self.running: list[Block] = []
        self.grid_epoch = 0
        self.tally = Tally(program)
        self.verbs = tuple(site.verb for site in program.sites)
        self.loops = frozenset(site for site, verb in enumerate(self.verbs) if verb == "while")
        self.meetings = frozenset(site for site, verb in enumerate(self.verbs) if verb in WARP_MEETINGS)

    def run(self) -> Traffic:
        """Give turns to blocks, in random order, until all have finished."""
        idle = 0
        while self.running or self.waiting_to_start:
            while self.waiting_to_start and len(self.running) < self.in_flight:
                self.running.append(self.start(self.waiting_to_start.pop()))
            ready = [block for block in self.running if not block.at_grid_barrier]
            if not ready:
                self.pass_grid_barrier()
                continue
            before = self.now.progress
            self.turn(self.rng.choice(ready))
            idle = 0 if self.now.progress > before else idle + 1
            if idle > PATIENCE * len(self.running):
                raise self.deadlock()
        self.tally.end_epoch(self.arrays)
        return self.tally.traffic()

    def start(self, index: int) -> Block:
        block, block_index = Block(index, self.block_size.x, self.grid_epoch), Dim3(index)
        for thread in block.threads:
            thread.generator = self.program.thread(Cuda(self, block, thread, block_index), *self.arguments)
        return block

    # ------------------------------------------------------------ a turn of one block
    def turn(self, block: Block) -> None:
        """Run the block's threads as far as they get; let them past a barrier where all have come."""
        for warp in self.rng.sample(block.warps, len(block.warps)):
            self.run_warp(warp)
        if self.loops and any(map(self.spins, block.threads)):
            return
        self.require_one_stop(block.threads, "the threads of one block")
        for warp in block.warps:
            self.tally.warp(warp)
        site = block.threads[0].stop[0]
        if site == EXIT:
            self.running.remove(block)
            self.tally.block([thread.counts for thread in block.threads], block.epoch)
        elif self.verb(site) == "grid.sync":
            block.at_grid_barrier = True
        else:
            block.epoch += 1
            self.release(block)

    def run_warp(self, warp: list[Thread]) -> None:
        """Run the lanes of one warp, again and again while a shuffle or a warp barrier lets some go on."""
        ready = [thread for thread in warp if thread.stop[0] == START or self.spins(thread)]
        while ready:
            self.rng.shuffle(ready)
            for thread in ready:
                self.resume(thread)
            ready = self.meet(warp) if self.meetings else []

    def resume(self, thread: Thread) -> None:
        """Run one thread to its next stop."""
        self.now.trace = thread.trace
        try:
            thread.stop = thread.generator.send(thread.reply)
        except StopIteration:
            thread.stop = (EXIT,)
        except KernelBug:
            raise
        except Exception as error:
            raise self.exception(error, thread) from error
        thread.reply = None
        if thread.stop[0] not in self.loops:
            self.now.progress += 1

    def release(self, block: Block) -> None:
        """The block goes on behind a barrier, and each of its threads knows what any of them had acquired."""
        known = reduce(join, {id(k): k for k in (thread.trace.stamp.known for thread in block.threads)}.values())
        for thread in block.threads:
            s = thread.trace.stamp
            thread.stop = (START,)
            thread.trace = Trace(Stamp(s.block, s.thread, self.grid_epoch, block.epoch, s.moment, s.seen, known), thread.trace)

    def pass_grid_barrier(self) -> None:
        """All blocks that are left wait for the grid: let them go, if that is all blocks, at one line."""
        threads = [thread for block in self.running for thread in block.threads]
        here, all_blocks = len(self.running), self.grid_size.x
        if here < all_blocks:
            raise self.program.bug("divergent-barrier", f"{here} of {all_blocks} blocks wait for the grid, the others "
                                   "have ended", *self.places(threads))
        self.require_one_stop(threads, "the threads of the grid")
        self.tally.counts["grid_barriers"] += 1
        self.tally.end_epoch(self.arrays)
        self.grid_epoch += 1
        for block in self.running:
            block.at_grid_barrier = False
            self.release(block)

    # ------------------------------------------------------------ meetings within one warp
    def meet(self, warp: list[Thread]) -> list[Thread]:
        """Complete each shuffle or warp barrier whose lanes have all come; return the lanes that go on."""
        groups: dict[tuple[int, int], list[Thread]] = {}
        for thread in warp:
            site = thread.stop[0]
            if site in self.meetings:
                mask = int(thread.stop[1]) & FULL_MASK
                if not mask >> thread.lane & 1:
                    raise self.bug("lane-mask", f"lane {thread.lane} calls {self.verb(site)} with mask {mask:#010x}, "
                                   "which leaves it out", thread)
                groups.setdefault((site, mask), []).append(thread)
        present = (1 << len(warp)) - 1
        released: list[Thread] = []
        for (site, mask), threads in groups.items():
            if len(threads) == (mask & present).bit_count():
                self.exchange(self.verb(site), threads)
                released += threads
        if groups and not released and not any(self.spins(thread) for thread in warp):
            raise self.missing_lanes(warp, groups)
        return released

    def exchange(self, verb: str, threads: list[Thread]) -> None:
        """Do what ``threads``, all lanes of one mask, have come to do together."""
        self.tally.counts["warp_barriers" if verb == "syncwarp" else "shuffles"] += 1
        if verb == "syncwarp":
            self.join(threads)
            return
        values = {thread.lane: thread.stop[2] for thread in threads}
        for thread in threads:
            if verb in SHUFFLES:
                source = SOURCE_LANE[verb](thread.lane, int(thread.stop[3]))
                if source not in values:
                    raise self.bug("lane-mask", f"lane {thread.lane} takes the value of lane {source}, which takes no "
                                   f"part in this {verb}", thread)
                thread.reply = values[source]
            elif verb == "ballot_sync":
                thread.reply = sum(1 << lane for lane, value in values.items() if value)
            else:
                thread.reply = (any if verb == "any_sync" else all)(values.values())

    def join(self, threads: list[Thread]) -> None:
        """A warp barrier: each lane of it learns all that any of them knew, and that they all came."""
        self.tally.warp(threads)
        over = [max(column) for column in zip(*{thread.trace.stamp.seen for thread in threads}, strict=True)]
        for thread in threads:
            over[thread.lane] = thread.trace.stamp.moment + 1
        seen, known = tuple(over), reduce(join, (thread.trace.stamp.known for thread in threads))
        for thread in threads:
            s = thread.trace.stamp
            thread.trace = Trace(Stamp(s.block, s.thread, s.grid_epoch, s.block_epoch, over[thread.lane], seen, known),
                                 thread.trace)

    # ------------------------------------------------------------ refusals
    def verb(self, site: int) -> str:
        return self.verbs[site]

    def spins(self, thread: Thread) -> bool:
        return thread.stop[0] in self.loops

    def require_one_stop(self, threads: list[Thread], who: str) -> None:
        if len({thread.stop[0] for thread in threads}) > 1:
            raise self.program.bug("divergent-barrier", f"{who} stop at different places", *self.places(threads))

    def missing_lanes(self, warp: list[Thread], groups: dict[tuple[int, int], list[Thread]]) -> KernelBug:
        site, mask = next(iter(groups))
        return self.program.bug("divergent-barrier", f"{self.verb(site)} with mask {mask:#010x} waits for lanes that "
                                "stop elsewhere", *self.places(warp))

    def deadlock(self) -> KernelBug:
        threads = [thread for block in self.running for thread in block.threads]
        return self.program.bug("deadlock", f"{PATIENCE} turns of each block, and no thread left its while loop, no "
                                "memory changed", *self.places(threads))

    def bug(self, rule: str, what: str, thread: Thread) -> KernelBug:
        return self.program.bug(rule, what, (thread.stop[0], str(thread.trace.stamp)))

    def places(self, threads: list[Thread]) -> list[tuple[int, str]]:
        """Each site where some of ``threads`` stand, with who stands there (the first, and how many)."""
        at: dict[tuple[int, str], list[Thread]] = {}
        for thread in threads:
            at.setdefault((thread.stop[0], self.waits_with(thread)), []).append(thread)
        return [(site, f"{self.verb(site)}: {here[0].trace.stamp}" + (f" and {len(here) - 1} more" if here[1:] else "") + values)
                for (site, values), here in sorted(at.items(), key=lambda item: item[0])]

    def waits_with(self, thread: Thread) -> str:
        """The numbers that the condition of a thread's while loop is made of: for which tile it waits."""
        frame = getattr(thread.generator, "gi_frame", None)
        values = {name: frame.f_locals.get(name) for name in self.program.sites[thread.stop[0]].names} if frame else {}
        return "".join(f", {name} = {value}" for name, value in values.items() if isinstance(value, int | np.number))

    def exception(self, error: Exception, thread: Thread) -> KernelBug:
        """A Python error out of kernel text: a name without a value, a division of integers by zero ..."""
        trace, line = error.__traceback__, 1
        while trace:
            if trace.tb_frame.f_code.co_filename == f"<{self.program.name}>":
                line = trace.tb_lineno
            trace = trace.tb_next
        return kernel_bug("exception", f"{type(error).__name__}: {error}, in kernel {self.program.name}",
                          self.program.lines, (line, str(thread.trace.stamp)))
