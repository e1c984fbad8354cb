"""Arrays that record who touched each cell, and refuse accesses that break a rule.

In:  accesses by threads, each with the ``Stamp`` of its moment. Out: values, or a ``KernelBug``.

Barriers order the threads of a block or of the grid. Blocks that run side by side are ordered by
*release* and *acquire*: a thread that acquires a counter knows all that the releasing thread knew.
This is NVIDIA's memory model for PTX, without the parts that no kernel of ours uses (sequential
consistency, other scopes than the GPU's and, for atomics in shared memory, the block's):

    add_release(c, i, 1)                            releases
    cuda.threadfence() ... cuda.atomic.add(c, i, 1) of one thread: releases what is before the fence
    load_acquire(c, i)                              acquires
    cuda.atomic.add(c, i, 0) ... cuda.threadfence() of one thread: acquires, for what is after it
    cuda.threadfence_block() does both in the same way, but only among the threads of one block

Two accesses of one cell race when at least one writes, not both are atomic, and neither *happens
before* the other. ``ordered`` is that relation. With barriers alone it does not depend on the order
in which threads are stepped, so every seed finds a race. What atomics order depends on who comes
first. So other threads may run before each atomic, and the seed draws which do. Before a plain
access no other thread needs to run: either barriers or atomics order it, or it is a race.

An atomic operation reads what the ones before it wrote to the cell, so it stands for them: what
comes after it and a fence or barrier comes after all of them. So the last block may reset its
ticket by a plain store.

Each cell keeps its last write and the accesses since. That is enough: an access that is ordered
after this write is ordered after all before it (the argument of FastTrack).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import KernelBug
from .dialect import ORDERED
from .text import KernelProgram, Site
from .values import scalar_type


class Past(NamedTuple):
    """The part of a block's execution that is known to be over.

    That is everything before its ``epoch``-th barrier, and then ``moments[thread]`` moments of
    threads.
    """

    epoch: int
    moments: Mapping[int, int]


Knowledge = Mapping[int, Past]  # block number -> its past: a vector clock
NOTHING: Knowledge = {}


def join(one: Knowledge, other: Knowledge) -> Knowledge:
    """Everything that either knows. It is ``one`` itself if the other adds nothing."""
    if one is other or not other:
        return one
    found = dict(one)
    for block, past in other.items():
        mine = one.get(block)
        if mine is None or mine.epoch < past.epoch:
            found[block] = past
        elif mine.epoch == past.epoch and any(mine.moments.get(thread, 0) < n
                                              for thread, n in past.moments.items()):
            threads = {**mine.moments, **past.moments}
            found[block] = Past(mine.epoch, {t: max(mine.moments.get(t, 0), past.moments.get(t, 0)) for t in threads})
    return one if found == one else found


@dataclass(slots=True)
class Stamp:
    """A moment of one thread, given by the barriers behind it.

    ``moment`` counts the thread's warp barriers (``syncwarp``), whose masks may leave lanes out,
    and its releases. ``seen[lane]`` counts the moments of that lane that this lane knows to be
    over: the warp's vector clock. Block and grid barriers include every thread, so one number is
    enough for each. ``known`` is what the thread has acquired from other blocks.
    """

    block: int
    thread: int
    grid_epoch: int
    block_epoch: int
    moment: int
    seen: tuple[int, ...]
    known: Knowledge


def ordered(before: Stamp, after: Stamp) -> bool:
    """Whether ``before`` happens before ``after``. The moments were stepped in that order.

    Shuffles and votes do not count: they exchange registers and order no memory. Nor are the lanes
    of a warp ordered by running together: since Volta they need not.
    """
    if before.grid_epoch < after.grid_epoch:
        return True
    if before.block == after.block:
        if before.thread == after.thread or before.block_epoch < after.block_epoch:
            return True
        if before.thread // 32 == after.thread // 32 and before.moment < after.seen[before.thread % 32]:
            return True
    past = after.known.get(before.block)
    return past is not None and (before.block_epoch < past.epoch
                                 or before.moment < past.moments.get(before.thread, 0))


LastAccess = tuple[Stamp, int]  # when and by whom, at which site


class Trace(dict[tuple["Memory", int], tuple[LastAccess, list[int]]]):
    """What one thread did since its last barrier: (array, site) -> the access, and its cells.

    ``fenced`` is what it knew at its last fence. ``pending`` is what it will know at its next one.
    Both are kept for fences of the grid and for those of a block.
    """

    __slots__ = ("fenced", "pending", "stamp")

    def __init__(self, stamp: Stamp, before: Trace | None = None):
        self.stamp = stamp
        self.fenced: dict[str, Knowledge] = {} if before is None else before.fenced
        self.pending: dict[str, Knowledge] = {} if before is None else before.pending

    def __missing__(self, key: tuple[Memory, int]) -> tuple[LastAccess, list[int]]:
        entry: tuple[LastAccess, list[int]] = ((self.stamp, key[1]), [])
        self[key] = entry
        return entry

    def renew(self, stamp: Stamp) -> None:
        """The thread's later accesses belong to a new moment."""
        self.stamp = stamp
        for key, (_, cells) in self.items():
            self[key] = (stamp, key[1]), cells

    def acquire(self, clock: Knowledge) -> None:
        """Learn what others have released."""
        known = join(self.stamp.known, clock)
        if known is not self.stamp.known:
            self.renew(replace(self.stamp, known=known))

    def release(self) -> Knowledge:
        """Everything that the thread knows now, for others to learn.

        Its later accesses are not included.
        """
        s = self.stamp
        first = s.thread - s.thread % 32
        moments = {first + lane: n for lane, n in enumerate(s.seen) if n} | {s.thread: s.moment + 1}
        self.renew(replace(s, moment=s.moment + 1))
        return join(s.known, {s.block: Past(s.block_epoch, moments)})

    def fence(self, *scopes: str) -> None:
        """Acquire what earlier atomics have read, and let later ones release everything before."""
        for scope in scopes:
            self.acquire(self.pending.get(scope, NOTHING))
        self.fenced |= dict.fromkeys(scopes, self.release())


Sizes = tuple[int, int, int]  # of a grid in blocks, or of a block in threads: along x, y and z


def along(number: int, sizes: Sizes) -> Sizes:
    """Where a thread or block is, along x, y and z. They are numbered along x first."""
    x, y, _ = sizes
    return number % x, number // x % y, number // (x * y)


class Now:
    """The trace of the running thread, which all arrays see. One object a launch.

    ``film`` is where ``record.Recorded`` arrays put their accesses. ``races`` are the lines of those that
    ``Unjudged`` arrays have seen.
    """

    __slots__ = ("block", "film", "grid", "progress", "races", "trace")

    def __init__(self, grid: Sizes = (1, 1, 1), block: Sizes = (1, 1, 1),
                 film: list[Any] | None = None) -> None:
        self.grid, self.block, self.film = grid, block, film
        self.races: set[tuple[int, ...]] = set()
        self.trace = Trace(Stamp(0, 0, 0, 0, 0, (), NOTHING))
        # grows with each change of memory, and with each thread that gets further
        self.progress = 0

    def who(self, stamp: Stamp) -> str:
        """``block 0 thread 3``. In a launch of two dimensions: ``block (0, 1) thread (3, 0)``."""
        flat = self.grid[1:] == self.block[1:] == (1, 1)
        axes = 3 if self.grid[2] > 1 or self.block[2] > 1 else 2
        places = ((stamp.block, self.grid), (stamp.thread, self.block))
        block, thread = (n if flat else along(n, sizes)[:axes] for n, sizes in places)
        return f"block {block} thread {thread}"


ATOMICS: dict[str, Callable[..., Any]] = {
    "add": lambda old, value: old + value, "sub": lambda old, value: old - value,
    "max": max, "min": min, "and_": lambda old, value: old & value, "exch": lambda old, new: new,
    "or_": lambda old, value: old | value, "xor": lambda old, value: old ^ value,
    "cas": lambda old, expected, new: new if old == expected else old,
}


WIDEST = 16  # bytes of one access


class Memory:
    """One array as kernel text sees it. ``space`` is "global", "shared" or "local".

    ``holds_data``: every cell may be read at the start. If no thread writes such an array, it is
    not ``watched``: only an index can be wrong. ``has_owners``: the text has several names for the
    array, since a value takes over the bytes of a dead one. What was written last under one name
    must not be read under another. ``is_queue``: the array stays in L2, which matters only for the
    counts.
    """

    __slots__ = ("atomics", "clocks", "convert", "data", "has_owners", "holds_data", "is_queue",
                 "length", "name", "now",
                 "program", "reads", "settled", "shape", "size", "space", "touched", "watched",
                 "wraps", "writes")

    def __init__(self, name: str, array: np.ndarray, space: str, now: Now, program: KernelProgram,
                 *, holds_data: bool = False, watched: bool = True, has_owners: bool = False,
                 is_queue: bool = False):
        self.name, self.space, self.now, self.program = name, space, now, program
        self.data, self.shape, self.size = array.reshape(-1), array.shape, array.size
        self.length = array.size if array.ndim == 1 else 0  # smaller integers are cells as they are
        self.holds_data, self.watched = holds_data, watched or not holds_data
        self.has_owners, self.is_queue = has_owners or program.renames_arrays, is_queue
        self.convert = scalar_type(array.dtype)
        self.wraps = array.dtype.kind in "iub"
        self.writes: dict[int, LastAccess] = {}  # cell -> its last plain write
        self.reads: dict[int, list[LastAccess]] = {}  # cell -> the reads since
        self.atomics: dict[int, list[LastAccess]] = {}  # cell -> the atomic operations since
        # cell -> what was released there for a block, and under -1 for the grid
        self.clocks: dict[int, dict[int, Knowledge]] = {}
        # in this grid epoch, for the traffic
        self.touched: dict[str, set[int]] = {"load": set(), "store": set()}
        self.settled: set[int] = set()  # cells written in earlier epochs

    # ------------------------------------------------------------ what kernel text calls
    def load(self, site: int, index: Any, turn: None = None) -> Any:
        """``x[index]``."""
        cell = index if type(index) is int and 0 <= index < self.length else self.cell(site, index)
        access, cells = self.now.trace[self, site]
        cells.append(cell)
        if self.watched:
            self.see(access, site, cell)
        value = self.data[cell]
        return self.convert(value) if self.wraps else value

    def store(self, site: int, index: Any, value: Any, turn: None = None) -> None:
        """``x[index] = value``."""
        cell = index if type(index) is int and 0 <= index < self.length else self.cell(site, index)
        access, cells = self.now.trace[self, site]
        cells.append(cell)
        self.overwrite(access, site, cell, value)

    def load_wide(self, site: int, index: Any, count: int, held: Memory, near: int,
                  at: Any) -> None:
        """``held[at : at + count] = x[index : index + count]``, one access of ``x``."""
        first = self.aligned(site, index, count)
        access, cells = self.now.trace[self, site]
        cells.append(first)
        if self.watched:
            for cell in range(first, first + count):
                self.see(access, site, cell)
        for k, value in enumerate(self.data[first:first + count]):
            held.store(near, at + k, self.convert(value) if self.wraps else value)

    def store_wide(self, site: int, index: Any, count: int, held: Memory, near: int,
                   at: Any) -> None:
        """``x[index : index + count] = held[at : at + count]``, one access of ``x``."""
        first = self.aligned(site, index, count)
        access, cells = self.now.trace[self, site]
        cells.append(first)
        for k in range(count):
            self.overwrite(access, site, first + k, held.load(near, at + k))

    def see(self, access: LastAccess, site: int, cell: int) -> None:
        """Refuse a read of a cell that is not written, or not surely written yet.

        Records the read.
        """
        stamp = access[0]
        write = self.writes.get(cell)
        if write is None:
            self.require_written(site, cell)
        elif write[0] is not stamp and not ordered(write[0], stamp):
            raise self.race(site, cell, write)
        elif self.has_owners:
            self.require_owner(site, cell, write)
        if self.atomics:
            self.require_order(site, cell, self.atomics.get(cell))
        reads = self.reads.get(cell)
        if reads is None:
            self.reads[cell] = [access]
        elif reads[-1] is not access:
            reads.append(access)

    def overwrite(self, access: LastAccess, site: int, cell: int, value: Any) -> None:
        """Refuse a write that races with another access. Otherwise write."""
        stamp, write = access[0], self.writes.get(cell)
        if write is not None and write[0] is not stamp and not ordered(write[0], stamp):
            raise self.race(site, cell, write)
        reads = self.reads.pop(cell, None)
        if reads is not None and (len(reads) > 1 or reads[0][0] is not stamp):
            self.require_order(site, cell, reads)
        if self.atomics:
            self.require_order(site, cell, self.atomics.pop(cell, None))
            self.clocks.pop(cell, None)
        self.put(access, cell, value)

    def put(self, access: LastAccess, cell: int, value: Any) -> None:
        write, self.writes[cell] = self.writes.get(cell), access
        old = self.data[cell]
        self.data[cell] = self.convert(value) if self.wraps else value
        if write is None or old != self.data[cell]:
            self.now.progress += 1

    def atomic(self, site: int, index: Any, operation: str, *operands: Any,
               turn: None = None) -> Any:
        """``cuda.atomic.<operation>(x, index, *operands)``: the old value.

        It races with plain accesses, but not with other atomics. Without a fence it orders nothing
        else.
        """
        cell = self.atomic_cell(site, index, reads=operation != "exch")
        trace, clocks = self.now.trace, self.clocks.setdefault(cell, {})
        for scope, block in (("grid", -1), ("block", trace.stamp.block)):
            clock = clocks.get(block, NOTHING)
            trace.pending[scope] = join(trace.pending.get(scope, NOTHING), clock)
            clocks[block] = join(clock, trace.fenced.get(scope, NOTHING))
        return self.change(cell, operation, *operands)

    def load_acquire(self, site: int, index: Any, turn: None = None) -> Any:
        """``load_acquire(x, index)``: the value. Now the thread knows what its writers released."""
        cell = self.atomic_cell(site, index)
        trace, clocks = self.now.trace, self.clocks.get(cell, {})
        for block in (-1, trace.stamp.block):
            trace.acquire(clocks.get(block, NOTHING))
        return self.convert(self.data[cell])

    def add_release(self, site: int, index: Any, value: Any, turn: None = None) -> None:
        """``add_release(x, index, value)``: releases what the thread knows."""
        cell = self.atomic_cell(site, index)
        clocks, released = self.clocks.setdefault(cell, {}), self.now.trace.release()
        for block in (-1, self.now.trace.stamp.block):
            clocks[block] = join(clocks.get(block, NOTHING), released)
        self.change(cell, "add", value)

    def change(self, cell: int, operation: str, *operands: Any) -> Any:
        old = self.convert(self.data[cell])
        self.data[cell] = new = self.convert(ATOMICS[operation](old, *operands))
        self.now.progress += int(new != old)
        return old

    def atomic_cell(self, site: int, index: Any, reads: bool = True) -> int:
        """The cell of an atomic operation, after its checks. Records the access."""
        if self.space != "global" and self.program.sites[site].verb in ORDERED:
            raise self.bug("outside-dialect", f"{self.program.sites[site].verb} orders blocks, "
                           f"which share no {self.space} memory; use a global array", site)
        cell = self.cell(site, index)
        access, cells = self.now.trace[self, site]
        cells.append(cell)
        write = self.writes.get(cell)
        if write is not None:
            self.require_order(site, cell, [write])
        elif reads:
            self.require_written(site, cell)
        self.require_order(site, cell, self.reads.get(cell))
        earlier = self.atomics.setdefault(cell, [])
        if not earlier or earlier[-1] is not access:
            earlier.append(access)
        return cell

    # ------------------------------------------------------------ what it refuses
    def aligned(self, site: int, index: Any, count: int) -> int:
        """The first cell of a wide access.

        The access must lie inside the array, and begin at a multiple of its size or of 16 bytes.
        """
        first = self.cell(site, index)
        self.cell(site, index + count - 1)
        size = min(WIDEST, count * self.data.itemsize)
        if first * self.data.itemsize % size:
            raise self.bug("misaligned", f"{self.show(first)} and the {count - 1} behind it are "
                           f"one access of {size} bytes, which does not begin at a multiple of {size}",
                           site)
        return first

    def cell(self, site: int, index: Any) -> int:
        """The position of ``index`` in row-major order, checked against the shape."""
        indices = index if isinstance(index, tuple) else (index,)
        problem, cell = "", 0
        if len(indices) != len(self.shape):
            problem = f": write one index for each axis of shape {self.shape}"
        for i, n in zip(indices, self.shape, strict=False):
            if isinstance(i, bool) or not isinstance(i, int | np.integer):
                problem = ": an index must be an integer: write // instead of /"
            elif i < 0:
                problem = ": a negative index wraps round on the device, in silence"
            elif i >= n:
                problem = f" is outside shape {self.shape}"
            else:
                cell = cell * n + int(i)
        if problem:
            raise self.bug("out-of-bounds", f"{self.name}[{', '.join(map(str, indices))}]{problem}",
                           site)
        return cell

    def require_written(self, site: int, cell: int) -> None:
        if self.holds_data or cell in self.atomics:
            return
        sites = self.program.sites
        here, names = sites[site].line, {self.name, sites[site].array}
        stores = [k for k, s in enumerate(sites)
                  if s.verb in WRITING and s.array in names and s.line != here]
        stores.sort(key=lambda k: (sites[k].line > here, abs(sites[k].line - here)))
        places = [(stores[0], f"writes to {sites[stores[0]].array}")] if stores else []
        advice = f"Is {self.name} an input? Name it in inputs=" if self.space == "global" else "It is empty at first"
        if places and self.space != "local":
            advice = f"Line {sites[stores[0]].line} writes to it: " + (
                "one thread writes and another reads, so put cuda.syncthreads() between the two" if self.space == "shared"
                else "put cuda.syncthreads() between the two, or cuda.cg.this_grid().sync() if another block writes it")
        raise self.program.bug("unwritten-read", f"{self.show(cell)} of {self.space} memory is "
                               "read before any write", *places,
                               (site, self.now.who(self.now.trace.stamp)), advice=f". {advice}")

    def require_owner(self, site: int, cell: int, write: LastAccess) -> None:
        reader, writer = self.program.sites[site].array, self.program.sites[write[1]].array
        if reader != writer and reader and writer:
            raise self.program.bug("wrong-owner", f"{self.show(cell)} is read as {reader}, but was last written as "
                                   f"{writer}", (write[1], self.now.who(write[0])),
                                   (site, self.now.who(self.now.trace.stamp)))

    def require_order(self, site: int, cell: int, earlier: list[LastAccess] | None) -> None:
        """Require that all of ``earlier``, accesses of ``cell`` as stepped, happen before now."""
        if earlier is None:
            return
        stamp, newest = self.now.trace.stamp, earlier[-1][0]
        if newest.grid_epoch < stamp.grid_epoch or (self.space == "shared" and newest.block_epoch < stamp.block_epoch):
            return  # epochs only grow: the newest access has the largest
        covered = False  # by a later atomic operation that is ordered before now
        for access in reversed(earlier):
            changes = self.program.sites[access[1]].verb in ("atomic", "add_release")
            if not (covered and changes) and not ordered(access[0], stamp):
                raise self.race(site, cell, access)
            covered = covered or (changes and access[0] is not stamp)

    def race(self, site: int, cell: int, earlier: LastAccess) -> Exception:
        (before, old), now = earlier, self.now.trace.stamp
        first, second = self.program.sites[old], self.program.sites[site]
        who = self.now.who(before), self.now.who(now)
        queues = ", and no release and acquire," * self.program.has_queues
        advice = _advice(before, now, first, second)
        if before.block != now.block and any("threadfence_block" in line
                                             for line in self.program.lines):
            advice = ". cuda.threadfence_block() orders memory for the threads of one block: write cuda.threadfence()"
        elif before.block != now.block and self.program.waits_for("atomic") and "atomic" not in (first.verb, second.verb):
            advice = f". {FLAGS}{advice}"
        return self.program.bug(
            "race", f"{self.show(cell)}: {ACCESS[first.verb]} by {who[0]} and "
            f"{ACCESS[second.verb]} by {who[1]}, and no barrier{queues} orders the two",
            (old, who[0]), (site, who[1]), advice=advice)

    def bug(self, rule: str, what: str, site: int) -> Exception:
        return self.program.bug(rule, what, (site, self.now.who(self.now.trace.stamp)))

    def show(self, cell: int) -> str:
        position = np.unravel_index(cell, self.shape) if self.shape else ()
        return f"{self.name}[{', '.join(str(int(i)) for i in position)}]"


class Unjudged(Memory):
    """An array whose accesses are in order, because threads take turns. Races are noted, and not refused."""

    __slots__ = ()

    def see(self, access: LastAccess, site: int, cell: int) -> None:
        with self.noting():
            super().see(access, site, cell)

    def overwrite(self, access: LastAccess, site: int, cell: int, value: Any) -> None:
        before = self.writes.get(cell)
        with self.noting():
            super().overwrite(access, site, cell, value)
        if self.writes.get(cell) is before:
            self.reads.pop(cell, None)
            self.put(access, cell, value)

    @contextmanager
    def noting(self) -> Iterator[None]:
        try:
            yield
        except KernelBug as bug:
            places: tuple[tuple[int, str], ...] = bug.places
            self.now.races.add(tuple(sorted(line for line, _ in places)))


WRITING = ("store", "atomic", "add_release")
ACCESS = {"load": "a load", "store": "a store", "atomic": "an atomic operation",
          "load_acquire": "an acquire", "add_release": "a release"}


FLAGS = ("After a flag, a ticket or a lock, data needs cuda.threadfence(): before the atomic operation that tells of it, and after "
         "the one that asks")


def _advice(before: Stamp, now: Stamp, first: Site, second: Site) -> str:
    """What to write against a race."""
    plain = [site for site in (first, second) if site.verb in ("load", "store")]
    if len(plain) < 2:
        instead = {"load": ("cuda.atomic.add(x, i, 0)", "load_acquire(x, i)"),
                   "store": ("cuda.atomic.exch(x, i, value)",
                             "add_release(x, i, value)")}[plain[0].verb]
        return (": an atomic operation protects a cell only from atomic operations. Write "
                f"{instead['atomic' not in (first.verb, second.verb)]} on line {plain[0].line}, or a barrier between the two")
    if before.block != now.block:
        return (". Blocks do not wait for each other at cuda.syncthreads(): let one block own the cell, use cuda.atomic.add, "
                "or wait at cuda.cg.this_grid().sync()")
    if first.verb == second.verb:
        return ": let one thread write the cell, or use cuda.atomic.add"
    if first.line == second.line:
        return (": put cuda.syncthreads() where all threads pass it: before the next round of a loop, or between "
                "reading (into a variable) and storing. To add up in one cell, use cuda.atomic.add")
    above, below = sorted((first.line, second.line))
    again = f", in a loop also after line {below}" if second.line == above else ""
    return f": put cuda.syncthreads() between line {above} and line {below}{again}, where all threads pass it"
