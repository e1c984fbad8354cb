"""Arrays that know who touched each cell, and refuse what a GPU would let pass in silence.

In:  accesses by threads, each with the ``Stamp`` of its moment. Out: values, or a ``KernelBug``.

Two accesses of one cell race when at least one writes, not both are atomic, and neither *happens before*
the other. ``ordered`` is that relation, all of it. It does not depend on the order in which the threads
happen to be stepped, so a race is found under every seed. Per cell it is enough to keep the last write
and what came since (the FastTrack argument: who is ordered after that write is ordered after all before).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .text import Program
from .values import scalar_type


@dataclass(slots=True)
class Stamp:
    """A moment of one thread: how many barriers of each reach it has behind it.

    ``warp_epoch`` counts the warp barriers (``syncwarp``) of this lane, whose masks may leave lanes out;
    ``seen[lane]`` says how many of that lane's warp barriers this lane knows to be over. It is the warp's
    vector clock. Block and grid barriers leave nobody out: a number each is enough.
    """

    block: int
    thread: int
    grid_epoch: int
    block_epoch: int
    warp_epoch: int
    seen: tuple[int, ...]

    def __str__(self) -> str:
        return f"block {self.block} thread {self.thread}"


def ordered(before: Stamp, after: Stamp) -> bool:
    """Does ``before`` happen before ``after``? Asked only of moments stepped in that order.

    Shuffles and votes are not here: they exchange registers and order no memory. Nor are the lanes of a
    warp ordered by running together: since Volta they need not.
    """
    if before.grid_epoch < after.grid_epoch:
        return True
    if before.block != after.block:
        return False
    if before.thread == after.thread or before.block_epoch < after.block_epoch:
        return True
    return before.thread // 32 == after.thread // 32 and before.warp_epoch < after.seen[before.thread % 32]


Access = tuple[Stamp, int]  # when and by whom, at which site


class Trace(dict[tuple["Memory", int], tuple[Access, list[int]]]):
    """What one thread did in one moment: (array, site) -> that access, and the cells it touched, in order."""

    __slots__ = ("stamp",)

    def __init__(self, stamp: Stamp):
        self.stamp = stamp

    def __missing__(self, key: tuple[Memory, int]) -> tuple[Access, list[int]]:
        entry: tuple[Access, list[int]] = ((self.stamp, key[1]), [])
        self[key] = entry
        return entry


class Now:
    """The trace of the running thread, for every array to see. One object a launch."""

    __slots__ = ("progress", "trace")

    def __init__(self) -> None:
        self.trace = Trace(Stamp(0, 0, 0, 0, 0, ()))
        self.progress = 0  # grows with each change of memory and each thread that gets somewhere


def _exchange(_old: Any, new: Any) -> Any:
    return new


def _compare_and_swap(old: Any, expected: Any, new: Any) -> Any:
    return new if old == expected else old


ATOMICS: dict[str, Callable[..., Any]] = {
    "add": lambda old, value: old + value, "sub": lambda old, value: old - value,
    "max": max, "min": min, "and_": lambda old, value: old & value, "or_": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value, "exch": _exchange, "cas": _compare_and_swap,
}


class Memory:
    """One array as kernel text sees it. ``space`` is "global", "shared" or "local".

    ``holds_data`` says that every cell may be read at the start. An array that also nobody writes is not
    ``watched``: nothing can go wrong there but the index. ``has_owners`` says that the text has several
    names for it, as when a value takes over the bytes of one that is dead: what was last written under
    one name must not be read under another.
    """

    __slots__ = ("atomics", "convert", "data", "has_owners", "holds_data", "length", "name", "now", "program",
                 "reads", "settled", "shape", "size", "space", "touched", "watched", "wraps", "writes")

    def __init__(self, name: str, array: np.ndarray, space: str, now: Now, program: Program,
                 *, holds_data: bool = False, watched: bool = True, has_owners: bool = False):
        self.name, self.space, self.now, self.program = name, space, now, program
        self.data, self.shape, self.size = array.reshape(-1), array.shape, array.size
        self.length = array.size if array.ndim == 1 else 0  # integers below it are cells as they are
        self.holds_data, self.watched = holds_data, watched or not holds_data
        self.has_owners = has_owners or program.renames_arrays
        self.convert = scalar_type(array.dtype)
        self.wraps = array.dtype.kind in "iu"
        self.writes: dict[int, Access] = {}  # cell -> its last plain write
        self.reads: dict[int, list[Access]] = {}  # cell -> the reads since
        self.atomics: dict[int, list[Access]] = {}  # cell -> the atomic operations since
        self.touched: dict[str, set[int]] = {"load": set(), "store": set()}  # this grid epoch, for the traffic
        self.settled: set[int] = set()  # cells written in earlier epochs

    # ------------------------------------------------------------ what kernel text calls
    def load(self, site: int, index: Any) -> Any:
        """``x[index]``."""
        cell = index if type(index) is int and 0 <= index < self.length else self.cell(site, index)
        access, cells = self.now.trace[self, site]
        cells.append(cell)
        if self.watched:
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
        value = self.data[cell]
        return self.convert(value) if self.wraps else value

    def store(self, site: int, index: Any, value: Any) -> None:
        """``x[index] = value``."""
        cell = index if type(index) is int and 0 <= index < self.length else self.cell(site, index)
        access, cells = self.now.trace[self, site]
        cells.append(cell)
        stamp, write = access[0], self.writes.get(cell)
        if write is not None and write[0] is not stamp and not ordered(write[0], stamp):
            raise self.race(site, cell, write)
        reads = self.reads.pop(cell, None)
        if reads is not None and (len(reads) > 1 or reads[0][0] is not stamp):
            self.require_order(site, cell, reads)
        if self.atomics:
            self.require_order(site, cell, self.atomics.pop(cell, None))
        self.writes[cell] = access
        self.now.progress += 1
        self.data[cell] = self.convert(value) if self.wraps else value

    def atomic(self, site: int, operation: str, index: Any, *operands: Any) -> Any:
        """``cuda.atomic.<operation>(x, index, *operands)``: the old value.

        It races with plain accesses, not with other atomics; by itself it orders nothing else.
        """
        if operation not in ATOMICS:
            raise self.bug("outside-dialect", f"no cuda.atomic.{operation}; known: {sorted(ATOMICS)}", site)
        cell = self.cell(site, index)
        access, cells = self.now.trace[self, site]
        cells.append(cell)
        write = self.writes.get(cell)
        if write is not None:
            self.require_order(site, cell, [write])
        elif operation != "exch":
            self.require_written(site, cell)
        self.require_order(site, cell, self.reads.get(cell))
        self.atomics.setdefault(cell, []).append(access)
        old = self.convert(self.data[cell])
        self.data[cell] = new = self.convert(ATOMICS[operation](old, *operands))
        self.now.progress += int(new != old)
        return old

    # ------------------------------------------------------------ what it refuses
    def cell(self, site: int, index: Any) -> int:
        """The position of ``index`` in row-major order, checked against the shape."""
        indices = index if isinstance(index, tuple) else (index,)
        problem, cell = "", 0
        if len(indices) != len(self.shape):
            problem = f"takes {len(self.shape)} indices, its shape is {self.shape}"
        for i, n in zip(indices, self.shape, strict=False):
            if isinstance(i, bool) or not isinstance(i, int | np.integer):
                problem = "an index must be an integer"
            elif i < 0:
                problem = "a negative index wraps round, in silence"
            elif i >= n:
                problem = f"is outside shape {self.shape}"
            else:
                cell = cell * n + int(i)
        if problem:
            raise self.bug("out-of-bounds", f"{self.name}[{', '.join(map(str, indices))}]: {problem}", site)
        return cell

    def require_written(self, site: int, cell: int) -> None:
        if not self.holds_data and cell not in self.atomics:
            raise self.bug("unwritten-read", f"{self.show(cell)} of {self.space} memory is read before any write", site)

    def require_owner(self, site: int, cell: int, write: Access) -> None:
        reader, writer = self.program.sites[site].array, self.program.sites[write[1]].array
        if reader != writer and reader and writer:
            raise self.program.bug("wrong-owner", f"{self.show(cell)} is read as {reader}, but was last written as "
                                   f"{writer}", (write[1], str(write[0])), (site, str(self.now.trace.stamp)))

    def require_order(self, site: int, cell: int, earlier: list[Access] | None) -> None:
        """All of ``earlier``, accesses of ``cell`` in the order they were stepped, happen before now."""
        if earlier is None:
            return
        stamp, newest = self.now.trace.stamp, earlier[-1][0]
        if newest.grid_epoch < stamp.grid_epoch or (self.space == "shared" and newest.block_epoch < stamp.block_epoch):
            return  # epochs only grow: what the newest has behind it, all have
        for access in earlier:
            if not ordered(access[0], stamp):
                raise self.race(site, cell, access)

    def race(self, site: int, cell: int, earlier: Access) -> Exception:
        sites, (before, earlier_site) = self.program.sites, earlier
        return self.program.bug(
            "race", f"{self.show(cell)}: a {sites[earlier_site].verb} by {before} and a {sites[site].verb} by "
            f"{self.now.trace.stamp} with no barrier between that covers both",
            (earlier_site, str(before)), (site, str(self.now.trace.stamp)))

    def bug(self, rule: str, what: str, site: int) -> Exception:
        return self.program.bug(rule, what, (site, str(self.now.trace.stamp)))

    def show(self, cell: int) -> str:
        position = np.unravel_index(cell, self.shape) if self.shape else ()
        return f"{self.name}[{', '.join(str(int(i)) for i in position)}]"
