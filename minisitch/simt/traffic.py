"""The cost of a launch: accesses, bytes, sectors, bank conflicts, barriers.

In:  the traces of the threads of each warp. Out: a ``Traffic``.

A warp executes one instruction for its 32 lanes at once. The trace of each lane has the cells that
each site touched since the last barrier. The n-th visits of all lanes to one site count as one
instruction.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, zip_longest
from typing import NamedTuple

from ..device import SECTOR
from .memory import WIDEST, Memory, Trace
from .text import KernelProgram

BANKS, WORD = 32, 4  # shared memory: 32 banks of 4-byte words


class LineTraffic(NamedTuple):
    """Accesses by one line of the text, of all threads together."""

    loads: int = 0
    stores: int = 0
    shared_loads: int = 0
    shared_stores: int = 0
    atomics: int = 0


class ArrayBytes(NamedTuple):
    """Bytes loaded from one array, and bytes stored to it."""

    read: int = 0
    written: int = 0


@dataclass(frozen=True)
class Traffic:
    """The counts of one launch.

    - ``loads`` and ``stores`` are accesses of global memory by one thread each, also wide ones. An
      atomic operation is a load and a store of its cell, but for the counters of queues. Local arrays
      are not counted.
    - ``sectors_*`` are the 32-byte pieces that a warp asks for at once.
    - ``bank_conflicts`` are the extra turns of a warp's shared accesses.
    - ``touched`` is the least that any cache needs: each cell counts once per array, direction and
      grid epoch (the time between two grid barriers). A cell that is first written in an epoch is
      not fetched in it. An atomic counts in both directions.
    - ``atomics`` includes the reads of a counter by a thread that waits for it.
    - ``queues`` are the bytes through arrays that stay in L2: every access, and none of
      ``touched``.
    - ``thread_*`` are the largest counts of one thread. ``work`` are operations of the text: those of
      a loop's body in each of its rounds.
    - ``races`` are pairs of lines, in lockstep; elsewhere the first race is refused.
    - ``critical_path`` is the work of the busiest thread between two barriers, added up over a block.
    """

    loads: int = 0
    stores: int = 0
    bytes_loaded: int = 0
    bytes_stored: int = 0
    sectors_loaded: int = 0
    sectors_stored: int = 0
    shared_loads: int = 0
    shared_stores: int = 0
    bank_conflicts: int = 0
    atomics: int = 0
    shuffles: int = 0  # per warp: one for its 32 lanes; also votes
    warp_barriers: int = 0  # per warp
    block_barriers: int = 0  # per block, summed over the blocks
    block_barriers_each: int = 0  # the most that one block executed
    grid_barriers: int = 0
    thread_loads: int = 0
    thread_stores: int = 0
    thread_shared_loads: int = 0
    thread_shared_stores: int = 0
    work: int = 0
    thread_work: int = 0
    critical_path: int = 0
    races: int = 0
    touched: Mapping[str, ArrayBytes] = field(default_factory=dict)
    queues: Mapping[str, ArrayBytes] = field(default_factory=dict)
    by_line: Mapping[int, LineTraffic] = field(default_factory=dict)

    @property
    def bytes_read(self) -> int:
        """Compulsory bytes from global memory."""
        return sum(array.read for array in self.touched.values())

    @property
    def bytes_written(self) -> int:
        """Compulsory bytes to global memory."""
        return sum(array.written for array in self.touched.values())

    def __str__(self) -> str:
        """The nonzero counts as a table, then the compulsory bytes by array."""
        names = [e.name for e in fields(self) if e.type is int and getattr(self, e.name)]
        lines = [f"{name.replace('_', ' '):<22}{getattr(self, name):>12,}" for name in names]
        lines += [f"{name:<22}{array.read:>12,} bytes read, {array.written:,} written" for name, array in self.touched.items()]
        lines += [f"{name:<22}{a.read:>12,} bytes read, {a.written:,} written, in L2" for name, a in self.queues.items()]
        return "\n".join(lines)


COUNTED = {("global", "load"): "loads", ("global", "store"): "stores",
           ("shared", "load"): "shared_loads", ("shared", "store"): "shared_stores",
           ("global", "atomic"): "atomics", ("shared", "atomic"): "atomics",
           ("global", "load_acquire"): "atomics", ("global", "add_release"): "atomics"}
PAST = {"load": "loaded", "store": "stored"}
WAYS = {"atomic": ("load", "store"), "add_release": ("load", "store"), "load_acquire": ("load",)}


class Tally:
    """Adds up counts while a launch runs."""

    def __init__(self, program: KernelProgram):
        self.program = program
        self.counted = {space: [COUNTED.get((space, s.verb)) for s in program.sites] for space in ("global", "shared", "local")}
        self.counts: Counter[str] = Counter()
        self.by_line: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self.touched: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.queues: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def warp(self, threads: Iterable[tuple[Trace, dict[str, int]]]) -> None:
        """Count what lanes of one warp did since their last common barrier."""
        instructions: defaultdict[tuple[Memory, int], list[list[int]]] = defaultdict(list)
        for trace, counts in threads:
            for (memory, site), (_, cells) in trace.items():
                what = self.counted[memory.space][site]
                if what:
                    instructions[memory, site].append(cells)
                    columns = self.program.sites[site].columns
                    counts[what] += len(cells) * (_accesses(columns, memory.data.itemsize) if columns > 1 else 1)
                    if self.program.sites[site].verb == "atomic" and not memory.is_queue:
                        for way in WAYS["atomic"]:
                            counts[COUNTED[memory.space, way]] += len(cells)
        for (memory, site), lanes in instructions.items():
            self._instruction(memory, site, lanes)

    def _instruction(self, memory: Memory, site: int, lanes: list[list[int]]) -> None:
        line, verb, columns = (s := self.program.sites[site]).line, s.verb, s.columns
        what, total = COUNTED[memory.space, verb], sum(map(len, lanes))
        itemsize = memory.data.itemsize
        self.counts[what] += total * _accesses(columns, itemsize)
        if verb == "atomic" and not memory.is_queue:
            for way in WAYS[verb]:
                self.counts[COUNTED[memory.space, way]] += total
        self.by_line[line][what] += total * _accesses(columns, itemsize)
        if memory.space == "shared":
            self.counts["bank_conflicts"] += sum(_bank_conflicts(row, itemsize, columns) for row in zip_longest(*lanes))
        else:
            for way in WAYS.get(verb, (verb,)):
                if memory.is_queue:
                    self.queues[memory.name][way] += total * columns * itemsize
                else:
                    memory.touched[way].update(chain(*lanes))
                    for column in range(1, columns):
                        memory.touched[way].update(cell + column for cell in chain(*lanes))
            if what != "atomics":
                self.counts[f"bytes_{PAST[verb]}"] += total * columns * itemsize
                self.counts[f"sectors_{PAST[verb]}"] += sum(_sectors(row, itemsize, columns) for row in zip_longest(*lanes))

    def phase(self, threads: Sequence[dict[str, int]]) -> int:
        """The work of the busiest thread of a block since the last barrier."""
        most = max(counts["work"] - counts["work before"] for counts in threads)
        for counts in threads:
            counts["work before"] = counts["work"]
        return most

    def block(self, threads: Sequence[Mapping[str, int]], barriers: int, path: int) -> None:
        """Count a block that has ended: its threads' counts, its barriers, its critical path."""
        self.counts["critical_path"] = max(self.counts["critical_path"], path)
        self.counts["work"] += sum(counts["work"] for counts in threads)
        for what in ("loads", "stores", "shared_loads", "shared_stores", "work"):
            most = max(counts.get(what, 0) for counts in threads)
            self.counts[f"thread_{what}"] = max(self.counts[f"thread_{what}"], most)
        self.counts["block_barriers"] += barriers
        self.counts["block_barriers_each"] = max(self.counts["block_barriers_each"], barriers)

    def end_epoch(self, arrays: Iterable[Memory]) -> None:
        """End a grid epoch: cells that are touched later count again."""
        for memory in arrays:
            if memory.is_queue:
                continue
            loads, stores = memory.touched["load"], memory.touched["store"]
            made_here = set() if memory.holds_data else stores - memory.settled
            self.touched[memory.name]["load"] += len(loads - made_here) * memory.data.itemsize
            self.touched[memory.name]["store"] += len(stores) * memory.data.itemsize
            memory.settled |= stores
            loads.clear()
            stores.clear()

    def traffic(self) -> Traffic:
        return Traffic(
            **self.counts,
            touched={name: ArrayBytes(w["load"], w["store"]) for name, w in self.touched.items()},
            queues={name: ArrayBytes(ways["load"], ways["store"]) for name, ways in sorted(self.queues.items())},
            by_line={line: LineTraffic(**counts) for line, counts in sorted(self.by_line.items())})


def _accesses(columns: int, itemsize: int) -> int:
    return max(1, columns * itemsize // WIDEST)


def _sectors(cells: Iterable[int | None], itemsize: int, columns: int = 1) -> int:
    return len({(cell + column) * itemsize // SECTOR for cell in cells if cell is not None
                for column in range(0, columns, WIDEST // itemsize)})


def _bank_conflicts(cells: Sequence[int | None], itemsize: int, columns: int = 1) -> int:
    """Turns beyond the first: the most distinct words of one bank, less one.

    Equal words count once. A wide access is made for the lanes whose words fill 128 bytes, in turn.
    """
    lanes = max(1, 4 * BANKS // (columns * itemsize)) if columns > 1 else len(cells)
    return sum(_turns(cells[k:k + lanes], itemsize, columns) - 1 for k in range(0, len(cells), lanes))


def _turns(cells: Sequence[int | None], itemsize: int, columns: int) -> int:
    words = {(cell + column) * itemsize // WORD for cell in cells if cell is not None for column in range(columns)}
    return max(Counter(word % BANKS for word in words).values(), default=1)
