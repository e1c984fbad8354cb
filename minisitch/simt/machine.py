"""Threads, warps, blocks and the grid: who runs next, and who waits for whom.

In:  a ``KernelProgram``, its arrays, a launch size, a seed. Out: a ``Traffic``, or a ``KernelBug``.

A block takes *turns*. In a turn each of its threads runs until it waits for the block or the grid,
ends, comes to an atomic operation, or has gone once round a ``while`` loop. The lanes of a shuffle
or a ``syncwarp`` go on within the turn once all have come. The seed draws which of the threads
before an atomic or in a loop go on in the turn. It also draws the order of lanes, warps and blocks.
In a kernel without atomics it decides only what a racy kernel computes, not whether it is refused.
With atomics it decides who comes first.

In *lockstep* the threads of a block take turns at each access: those go on that are least far in the
text. What needs a barrier there is right without one, so the values say what else is wrong.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from functools import reduce
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ..errors import KernelBug, PassError
from .dialect import SHUFFLES, WARP_MEETINGS, in_plain_words
from .memory import NOTHING, Memory, Now, Stamp, Trace, along, join
from .record import FilmEvent, kind_of_memory, plain
from .text import EXIT, FULL_MASK, PAUSES, START, KernelProgram, kernel_bug
from .traffic import Tally, Traffic
from .values import Endless, Widened, dtype_of

WARP = 32
LOCAL_BYTES = 512 * 1024  # the most that one thread has
IN_FLIGHT = 4  # blocks that run side by side if no grid barrier needs all of them
# Turns of each running block without a change of memory, before the search for a deadlock.
PATIENCE = 50
EAGER = (0.25, 0.5, 1.0)  # how likely a paused thread goes on in this turn: drawn for each turn

# (own lane, argument) -> the lane whose value it gets
SOURCE_LANE: dict[str, Callable[[int, int], int]] = {
    "shfl_sync": lambda lane, source: source % WARP,
    "shfl_up_sync": lambda lane, delta: lane - delta if lane >= delta else lane,
    "shfl_down_sync": lambda lane, delta: lane + delta if lane + delta < WARP else lane,
    "shfl_xor_sync": lambda lane, mask: lane ^ mask if lane ^ mask < WARP else lane,
}


Stop = tuple[Any, ...]  # what a thread yields: its site, and its arguments there


class Dim3(NamedTuple):
    """``cuda.threadIdx`` and the like."""

    x: int
    y: int
    z: int


class Thread:
    """One thread: its generator, where it stands (``stop``), and the value it goes on with."""

    __slots__ = ("counts", "generator", "lane", "reply", "stop", "trace")

    def __init__(self, stamp: Stamp):
        self.trace, self.lane = Trace(stamp), stamp.thread % WARP
        self.generator: Generator[Stop, Any, None]
        self.stop: Stop = (START,)
        self.reply: Any = None
        self.counts: defaultdict[str, int] = defaultdict(int)


class Watched:
    """A thread's states while no memory changes. ``repeats``: a state has come a second time.

    One earlier state is kept, and replaced after 1, 2, 4, 8 ... stops. This finds loops of every
    length (Brent's algorithm).
    """

    def __init__(self) -> None:
        self.state: Any = None
        self.stops, self.limit, self.repeats = 0, 1, False

    def see(self, state: tuple[Any, ...]) -> None:
        self.repeats = self.repeats or state == self.state
        self.stops += 1
        if self.stops == self.limit:
            self.state, self.stops, self.limit = state, 0, 2 * self.limit


class Block:
    """One block: its threads in warps, and its shared arrays, unwritten at the start."""

    def __init__(self, index: int, size: int, grid_epoch: int):
        self.index, self.epoch = index, 0
        self.path = 0  # the work of the busiest thread between two barriers, added up
        self.threads = [Thread(Stamp(index, t, grid_epoch, 0, 0, (0,) * WARP, NOTHING))
                        for t in range(size)]
        self.warps = [self.threads[first:first + WARP] for first in range(0, size, WARP)]
        self.shared: dict[int, Memory] = {}
        self.at_grid_barrier = False


class Cuda:
    """The object that one thread sees as ``cuda``."""

    __slots__ = ("block", "blockDim", "blockIdx", "gridDim", "laneid", "machine", "threadIdx")
    warpsize = WARP
    cg = SimpleNamespace(this_grid=lambda: None)  # `.sync()` has become a yield

    def __init__(self, machine: Machine, block: Block, thread: Thread, block_index: Dim3):
        self.machine, self.block = machine, block
        self.blockDim, self.gridDim = machine.block_size, machine.grid_size
        self.threadIdx, self.blockIdx = Dim3(*along(thread.trace.stamp.thread, self.blockDim)), block_index
        self.laneid = thread.lane

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> Any:
        """Rounded twice here, but once on the device."""
        return a * b + c

    def grid(self, dimensions: int) -> int | tuple[int, ...]:
        places = tuple(map(lambda b, n, t: b * n + t, self.blockIdx, self.blockDim, self.threadIdx))
        return places[0] if dimensions == 1 else places[:dimensions]

    def gridsize(self, dimensions: int) -> int | tuple[int, ...]:
        sizes = tuple(map(int.__mul__, self.gridDim, self.blockDim))
        return sizes[0] if dimensions == 1 else sizes[:dimensions]

    def threadfence(self) -> None:
        """Waits for no thread. See ``memory`` for what it orders."""
        self.machine.now.trace.fence("grid", "block")

    def threadfence_block(self) -> None:
        """Orders memory for the threads of the block, see ``memory``."""
        self.machine.now.trace.fence("block")

    def array(self, site: int, name: str, space: str, shape: int | tuple[int, ...], dtype: Any,
              alignment: int = 0) -> Memory:
        """A local array of the thread, or the shared array of a site: one for the whole block.

        It is aligned for every access.
        """
        now, program, known = self.machine.now, self.machine.program, self.block.shared if space == "shared" else {}
        if site not in known:
            owner, most = ("block", self.machine.shared_bytes) if space == "shared" else ("thread", LOCAL_BYTES)
            room = most - sum(array.data.nbytes for array in known.values())
            made = dtype_of(dtype)
            size = made.itemsize * math.prod(shape if isinstance(shape, tuple) else (shape,))
            if size > room:
                raise program.bug("memory-limit", f"{name} takes {size:,} bytes of {space} memory, and the {owner} has "
                                  f"{room:,} left: take a smaller array",
                                  (site, now.who(now.trace.stamp)))
            known[site] = self.machine.kind(name, np.zeros(shape, made), space, now, program)
        return known[site]


class Machine:
    """One launch."""

    def __init__(self, program: KernelProgram, arguments: Sequence[Any], now: Now, seed: int,
                 in_flight: int, rounds: int, shared: int):
        self.program, self.arguments, self.now = program, arguments, now
        self.kind = kind_of_memory(now, program)
        self.arrays = list({id(a): a for a in arguments if isinstance(a, Memory)}.values())
        self.grid_size, self.block_size, self.in_flight = Dim3(*now.grid), Dim3(*now.block), in_flight
        self.blocks, self.shared_bytes = math.prod(now.grid), shared
        self.rng = random.Random(seed)
        self.waiting_to_start = self.rng.sample(range(self.blocks), self.blocks)
        self.running: list[Block] = []
        self.grid_epoch = 0
        self.tally = Tally(program)
        self.verbs = tuple(site.verb for site in program.sites)
        pauses = (*PAUSES, "load", "store") if program.stepwise else PAUSES
        self.pauses = frozenset(site for site, verb in enumerate(self.verbs) if verb in pauses)
        self.first = -1  # in lockstep: where the threads stand that go on in this turn
        self.rounds = program.rounds.left = rounds
        program.rounds.passed.clear()
        self.watching = False
        self.watched: dict[Thread, Watched] = {}
        self.meetings = frozenset(k for k, verb in enumerate(self.verbs) if verb in WARP_MEETINGS)

    def run(self) -> Traffic:
        """Give turns to blocks, in random order, until all have finished."""
        quiet = 0  # turns since memory changed, or a thread came to a place where it waits
        while self.running or self.waiting_to_start:
            while self.waiting_to_start and len(self.running) < self.in_flight:
                self.running.append(self.start(self.waiting_to_start.pop()))
            ready = [block for block in self.running if not block.at_grid_barrier]
            if not ready:
                self.pass_grid_barrier()
                continue
            before = self.now.progress
            self.turn(self.rng.choice(ready))
            quiet = 0 if self.now.progress > before else quiet + 1
            if quiet == 0:
                self.watched.clear()
            self.watching = quiet > PATIENCE * len(self.running)
            if self.watching and all(map(self.goes_in_circles, self.running)):
                threads = [thread for block in self.running for thread in block.threads]
                raise self.program.bug("deadlock", "every thread waits, or goes round a loop in which nothing changes: "
                                       "one must change what they wait for, before it waits itself",
                                       *self.places(threads))
        self.tally.end_epoch(self.arrays)
        self.tally.counts["races"] = len(self.now.races)
        return self.tally.traffic()

    def start(self, index: int) -> Block:
        block, block_index = Block(index, math.prod(self.block_size),
                                   self.grid_epoch), Dim3(*along(index, self.grid_size))
        for thread in block.threads:
            thread.generator = self.program.thread(Cuda(self, block, thread, block_index), *self.arguments)
        return block

    # ------------------------------------------------------------ a turn of one block
    def turn(self, block: Block) -> None:
        """Run the block's threads as far as they get. Let them past a barrier that all reached."""
        if self.program.stepwise:
            self.first = min((thread.stop[0] for thread in block.threads if self.spins(thread)),
                             default=-1)
        for warp in self.rng.sample(block.warps, len(block.warps)):
            self.run_warp(warp)
        if self.pauses and any(map(self.spins, block.threads)):
            return
        self.require_one_stop(block.threads, "the threads of one block")
        for warp in block.warps:
            self.tally.warp((thread.trace, thread.counts) for thread in warp)
        block.path += self.tally.phase([thread.counts for thread in block.threads])
        site = block.threads[0].stop[0]
        if site == EXIT:
            self.running.remove(block)
            self.program.rounds.left = self.rounds
            self.tally.block([thread.counts for thread in block.threads], block.epoch, block.path)
        elif self.verbs[site] == "grid.sync":
            block.at_grid_barrier = True
        else:
            self.film(block.threads, None)
            block.epoch += 1
            self.release(block)

    def run_warp(self, warp: list[Thread]) -> None:
        """Run the lanes of one warp, and again when a shuffle or a warp barrier lets some go on."""
        eager = self.rng.choice(EAGER) if self.pauses else 1.0
        ready = [thread for thread in warp if thread.stop[0] in (START, self.first)
                 or (self.spins(thread) and not self.program.stepwise
                     and self.rng.random() < eager)]
        while ready:
            self.rng.shuffle(ready)
            for thread in ready:
                self.resume(thread)
            ready = self.meet(warp) if self.meetings else []

    def resume(self, thread: Thread) -> None:
        """Run one thread to its next stop."""
        self.now.trace, before = thread.trace, self.program.rounds.work
        try:
            thread.stop = thread.generator.send(thread.reply)
        except StopIteration:
            thread.stop = (EXIT,)
        except KernelBug as bug:
            block = next(block for block in self.running if block.index == thread.trace.stamp.block)
            if bug.rule == "race" and (passed_by := self.uneven(block.threads)):
                raise kernel_bug("race", f"{bug.seen}: {passed_by}, in kernel {bug.kernel}",
                                 self.program.lines, *bug.places,
                                 kernel=bug.kernel) from None
            raise
        except PassError:
            raise
        except (Exception, SystemExit) as error:
            raise self.exception(error, thread) from error
        thread.reply = None
        thread.counts["work"] += self.program.rounds.work - before
        if thread.stop[0] not in self.pauses:
            self.now.progress += 1
        elif self.watching:
            state = (thread.stop[0], *thread.generator.gi_frame.f_locals.values())  # type: ignore[attr-defined]
            self.watched.setdefault(thread, Watched()).see(state)

    def goes_in_circles(self, block: Block) -> bool:
        """True if no thread of the block can change anything before another block does."""
        return all(not self.spins(thread) or (thread in self.watched and self.watched[thread].repeats) for thread in block.threads)

    def release(self, block: Block) -> None:
        """Let the block go on behind a barrier. Each thread knows what any of them had acquired."""
        known = reduce(join, {id(k): k for k in (thread.trace.stamp.known for thread in block.threads)}.values())
        for thread in block.threads:
            s = thread.trace.stamp
            thread.stop = (START,)
            thread.trace = Trace(Stamp(s.block, s.thread, self.grid_epoch, block.epoch, s.moment, s.seen, known), thread.trace)

    def pass_grid_barrier(self) -> None:
        """All running blocks wait for the grid. Let them go, if that is all blocks, at one line."""
        threads = [thread for block in self.running for thread in block.threads]
        here, all_blocks = len(self.running), self.blocks
        if here < all_blocks:
            raise self.program.bug("divergent-barrier", f"{here} of {all_blocks} blocks wait for "
                                   "the grid, the others have ended", *self.places(threads))
        self.require_one_stop(threads, "the threads of the grid")
        self.film(threads, None)
        self.tally.counts["grid_barriers"] += 1
        self.tally.end_epoch(self.arrays)
        self.grid_epoch += 1
        for block in self.running:
            block.at_grid_barrier = False
            self.release(block)

    # ------------------------------------------------------------ exchanges within one warp
    def meet(self, warp: list[Thread]) -> list[Thread]:
        """Complete each shuffle or warp barrier that all its lanes have reached.

        Returns the lanes that go on.
        """
        groups: dict[tuple[int, int], list[Thread]] = {}
        for thread in warp:
            site = thread.stop[0]
            if site in self.meetings:
                mask = self.integer(thread, 1) & FULL_MASK
                if not mask >> thread.lane & 1:
                    raise self.bug("lane-mask", f"lane {thread.lane} calls {self.verbs[site]} with mask {mask:#010x}, "
                                   "which leaves it out: the mask has bit k for lane k", thread)
                groups.setdefault((site, mask), []).append(thread)
        present = (1 << len(warp)) - 1
        released: list[Thread] = []
        for (site, mask), threads in groups.items():
            if len(threads) == (mask & present).bit_count():
                self.exchange(self.verbs[site], threads)
                released += threads
        if groups and not released and not any(self.spins(thread) for thread in warp):
            site, mask = next(iter(groups))
            raise self.program.bug("divergent-barrier", f"{self.verbs[site]} with mask {mask:#010x} waits for lanes that "
                                   "stop elsewhere: call it where all come, or take their bits out of the mask", *self.places(warp))
        return released

    def exchange(self, verb: str, threads: list[Thread]) -> None:
        """Carry out a shuffle, vote or warp barrier of ``threads``, all lanes of one mask."""
        self.tally.counts["warp_barriers" if verb == "syncwarp" else "shuffles"] += 1
        if verb == "syncwarp":
            self.film(threads, None)
            self.join(threads)
            return
        values = {thread.lane: thread.stop[2] for thread in threads}
        for thread in threads:
            if verb in SHUFFLES:
                source = SOURCE_LANE[verb](thread.lane, self.integer(thread, 3))
                if source not in values:
                    raise self.bug("lane-mask", f"lane {thread.lane} takes the value of lane {source}, which takes no "
                                   f"part in this {verb}: add bit {source} to the mask, and let the lane come", thread)
                thread.reply = values[source]
            elif verb == "ballot_sync":
                thread.reply = sum(1 << lane for lane, value in values.items() if value)
            else:
                thread.reply = (any if verb == "any_sync" else all)(values.values())
        self.film(threads)

    def film(self, threads: list[Thread], *value: None) -> None:
        """Record that these threads meet where they stand, each with what it gets."""
        if self.now.film is not None:
            for thread in threads:
                s, site = thread.trace.stamp, self.program.sites[thread.stop[0]]
                reply = plain(thread.reply) if not value else None
                self.now.film.append(FilmEvent(s.block, s.block_epoch + s.grid_epoch, s.thread,
                                               site.line, site.verb, "", "", (), reply))

    def integer(self, thread: Thread, argument: int) -> int:
        """A thread's mask, or its lane argument."""
        value = thread.stop[argument]
        if not isinstance(value, int | np.integer):
            raise self.bug("lane-mask", f"{value!r} is no integer; a mask and a lane are", thread)
        return int(value)

    def join(self, threads: list[Thread]) -> None:
        """A warp barrier. Each lane then knows what any of them knew, and that all have come."""
        self.tally.warp((thread.trace, thread.counts) for thread in threads)
        over = [max(c) for c in zip(*{thread.trace.stamp.seen for thread in threads}, strict=True)]
        for thread in threads:
            over[thread.lane] = thread.trace.stamp.moment + 1
        seen, known = tuple(over), reduce(join, (thread.trace.stamp.known for thread in threads))
        for thread in threads:
            s = thread.trace.stamp
            thread.trace = Trace(Stamp(s.block, s.thread, s.grid_epoch, s.block_epoch,
                                       over[thread.lane], seen, known), thread.trace)

    # ------------------------------------------------------------ refusals
    def spins(self, thread: Thread) -> bool:
        return thread.stop[0] in self.pauses

    def uneven(self, threads: list[Thread]) -> str:
        """Says of a barrier, where some of ``threads`` stand, that the others do not come to it."""
        stands = {self.program.sites[thread.stop[0]].line for thread in threads}
        return next((f"line {line} is a barrier, but only threads with {condition} pass it"
                     for line, condition in self.program.uneven.items() if line in stands), "")

    def require_one_stop(self, threads: list[Thread], who: str) -> None:
        if len({thread.stop[0] for thread in threads}) > 1:
            raise self.program.bug(
                "divergent-barrier", f"{who} stop at different places, and all must reach the same barrier"
                + (f": {passed_by}" if (passed_by := self.uneven(threads)) else ""),
                                   *self.places(threads),
                advice=". Take the barrier out of an if, or a loop, that only some of them take. "
                "A thread returns after the barrier, not before")

    def bug(self, rule: str, what: str, thread: Thread) -> KernelBug:
        return self.program.bug(rule, what, (thread.stop[0], self.now.who(thread.trace.stamp)))

    def places(self, threads: list[Thread]) -> list[tuple[int, str]]:
        """Each site where ``threads`` stand: the first thread there and the number of others."""
        at: dict[tuple[int, str], list[Thread]] = {}
        for thread in threads:
            at.setdefault((thread.stop[0], self.waits_with(thread)), []).append(thread)
        return [(site, f"{self.verbs[site]}: {self.now.who(here[0].trace.stamp)}"
                 + (f" and {len(here) - 1} more" if here[1:] else "") + values)
                for (site, values), here in sorted(at.items(), key=lambda item: item[0])]

    def waits_with(self, thread: Thread) -> str:
        """The numbers in the condition of a thread's while loop, such as the tile it waits for."""
        frame = getattr(thread.generator, "gi_frame", None)
        values = {name: frame.f_locals.get(name) for name in self.program.sites[thread.stop[0]].names} if frame else {}
        return "".join(f", {name} = {value}" for name, value in values.items()
                       if isinstance(value, int | np.number))

    def exception(self, error: BaseException, thread: Thread) -> KernelBug:
        """A Python error out of kernel text: a name without a value, an integer division by zero
        ...
        """
        trace, line = error.__traceback__, 1
        while trace:
            if trace.tb_frame.f_code.co_filename == f"<{self.program.name}>":
                line = trace.tb_lineno
            trace = trace.tb_next
        rule, what = "exception", in_plain_words(error)
        if isinstance(error, Endless) and error.args:
            names = " and ".join(error.args[0]) or "its condition"
            rule, what = "endless", f"nothing in this loop changes {names}, so it never ends"
        elif isinstance(error, Endless):
            rule, (line, times) = "endless", max(self.program.rounds.passed.items(), key=lambda each: each[1])
            what = (f"still running after {self.rounds:,} rounds of loops, all threads together; "
                    f"line {line} was passed {times:,} times. Does its loop end? If it only takes "
                    "long, give a larger rounds=")
        elif isinstance(error, Widened):
            name, first, dtype = error.args
            rule, what = "mixed-dtype", (
                f"{name} is an integer in line {first} and a {dtype} here, so Numba computes it in "
                f"float64: write {name} = np.{dtype}(0) in line {first}")
        return kernel_bug(rule, f"{what}, in kernel {self.program.name}", self.program.lines,
                          (line, self.now.who(thread.trace.stamp)), kernel=self.program.name)
