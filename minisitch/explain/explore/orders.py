"""What a race does to the numbers: a kernel in two orders of its threads that nothing forbids.

In:  a ``KernelTrial`` and the race that was found in its text. Out: two orders for the page, each with
the two accesses as they came, and a number that the launch leaves.

The stepper stops at a race. Here the same text runs to its end and nothing is checked. First all
threads take each line together: of the threads of a block those go on that are furthest behind in
the text, as the hardware did it before 2017. Then one side of the race goes ahead or comes late.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ...errors import KernelBug, MinisitchError
from ...simt import SHARED_BYTES
from ...simt.machine import START, WARP, Block, Machine, Thread
from ...simt.memory import Now, Unjudged
from ...simt.record import FilmEvent, Recorded
from ...simt.text import read_program
from ...simt.values import given
from .frames import shown

FAR = 1e-3  # sums in another order differ by less; four digits show it
Deed = tuple[int, int, int, str, str, tuple[int, ...], int]  # block, thread, line, what, array, cell, how often before
Deeds = dict[Deed, tuple[int, FilmEvent]]  # in the order of the launch, numbered


# An array that takes every access inside its shape, and is filmed.
Unchecked = type("Unchecked", (Recorded, Unjudged), {"__slots__": ()})


class ThreadOrder(NamedTuple):
    """An order of threads. One side of a race goes ``ahead`` of all others, or comes late.

    A side is the ``number`` of a warp, or of a thread if ``size`` is 1. ``backwards``: the last block
    comes first.
    """

    words: str
    size: int = 1
    number: int = -1  # of no thread
    ahead: bool = True
    backwards: bool = False


class OrderedMachine(Machine):
    """A launch in one order: of the threads that may go on, those that are furthest behind in the text.

    The threads of a block are through with it before the next block begins.
    """

    order: ThreadOrder

    def turn(self, block: Block) -> None:
        ready = block.threads
        while ready:
            for thread in ready:
                self.resume(thread)
            ready = [thread for warp in block.warps if self.meetings for thread in self.meet(warp)]
            if not ready:
                rank = {t: self.rank(t) for t in block.threads if t.stop[0] == START or self.spins(t)}
                ready = [thread for thread in rank if rank[thread] == min(rank.values())]
        super().turn(block)

    def rank(self, thread: Thread) -> tuple[bool, int]:
        """Threads of the smallest rank go on."""
        return (thread.trace.stamp.thread // self.order.size == self.order.number) != self.order.ahead, thread.stop[0]


class OrderedLaunch(NamedTuple):
    """A launch in one order: its arrays at the end, and every access that it made."""

    words: str
    arrays: dict[str, Any]
    deeds: Deeds


def orders(trial: Any, text: str, bug: KernelBug) -> list[dict[str, Any]]:
    """Two orders whose results differ, or one if no other number was found. None of another bug."""
    sides = [(int(m[1]), int(m[2])) for _, who in bug.places if (m := re.fullmatch(r"block (\d+) thread (\d+)", who))]
    if bug.rule != "race" or len(sides) != 2:  # of a grid of one axis
        return []
    runs: list[OrderedLaunch] = []
    found: list[dict[str, Any]] = []
    for order in _ways(*sides):
        with suppress(MinisitchError):  # this order breaks another rule
            runs.append(_launched(trial, text, order))
            if at := _different(runs[0].arrays, runs[-1].arrays):
                met, at_the_race = _meeting(runs[0], runs[-1], bug)
                found = [_told(trial, run, at, met) for run in (runs[0], runs[-1])]
                if at_the_race:
                    break
    if not found:
        return [_told(trial, run, None, set()) for run in runs[:1]]
    if found[0]["right"] and found[1]["right"]:  # both are right for all that is known
        found = [{**order, "right": None} for order in found]
    return sorted(found, key=lambda order: order["right"] is False)


def _ways(one: tuple[int, int], other: tuple[int, int]) -> Iterator[ThreadOrder]:
    """All together, then each side of the race late and ahead. A side is given by its block and thread."""
    yield ThreadOrder("All threads take each line together.")
    if one[0] != other[0]:
        yield ThreadOrder("The last block comes first.", backwards=True)
        return
    size, who = (WARP, "Warp") if one[1] // WARP != other[1] // WARP else (1, "Thread")
    for number in (one[1] // size, other[1] // size):
        yield ThreadOrder(f"{who} {number} is late: it goes on where the others wait.", size, number, False)
        yield ThreadOrder(f"{who} {number} is ahead: it runs up to the next barrier alone.", size, number)


def _launched(trial: Any, text: str, order: ThreadOrder) -> OrderedLaunch:
    film: list[FilmEvent] = []
    arrays = trial.fresh()
    names = frozenset(name for name, each in arrays.items() if isinstance(each, np.ndarray))
    program = read_program(text, trial.options.get("name"), names, True)
    now = Now((trial.grid, 1, 1), (trial.block, 1, 1), film)
    arguments = [Unchecked(name, arrays[name], "global", now, program) if name in names else given(arrays[name])
                 for name in program.parameters]
    at_once = trial.grid if program.waits_for("grid.sync", "while") else 1
    machine = OrderedMachine(program, arguments, now, 0, at_once, trial.rounds, trial.options.get("shared", SHARED_BYTES))
    machine.order, machine.kind = order, Unchecked
    machine.waiting_to_start = list(range(trial.grid))[::1 if order.backwards else -1]
    with np.errstate(all="ignore"):
        machine.run()
    times: Counter[tuple[Any, ...]] = Counter()
    deeds: Deeds = {}
    for at, e in enumerate(film):
        key = (e.block, e.thread, e.line, e.what, e.array, e.cell)
        deeds[*key, times[key]] = at, e
        times[key] += 1
    return OrderedLaunch(order.words, arrays, deeds)


def _different(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, int] | None:
    """The first cell in which two launches differ by more than rounding."""
    for name in [name for name, each in one.items() if isinstance(each, np.ndarray)]:
        far = ~np.isclose(one[name], other[name], rtol=FAR, atol=0, equal_nan=True)
        if far.any():
            return name, int(np.argmax(far))
    return None


def _meeting(one: OrderedLaunch, other: OrderedLaunch, bug: KernelBug) -> tuple[set[Deed], bool]:
    """A write and another access of its cell that come the other way round in the other launch.

    The second result is whether these are the accesses that the stepper refused, which are preferred.
    """
    found: list[set[Deed]] = []
    for mine, theirs in ((one.deeds, other.deeds), (other.deeds, one.deeds)):
        last: dict[tuple[Any, ...], Deed] = {}  # the last write of each cell so far
        for deed, (_, e) in mine.items():
            cell = (e.array, e.cell, e.block if e.space == "shared" else None)
            before = last.get(cell)
            if before in theirs and deed in theirs and theirs[before] > theirs[deed]:
                found.append({deed, before})
            if e.what == "write":
                last[cell] = deed
    own = {*bug.places}
    refused = [met for met in found if {(line, f"block {b} thread {t}") for b, t, line, *_ in met} == own]
    return next(iter(refused or found), set()), bool(refused)


def _told(trial: Any, run: OrderedLaunch, at: tuple[str, int] | None, met: set[Deed]) -> dict[str, Any]:
    """One order for the page. ``right`` is None where nobody knows the right number."""
    did = [f"line {e.line}: thread {e.thread} {e.what}s {e.array}{list(e.cell)} = {shown(e.value)}"
           for _, e in sorted(run.deeds[deed] for deed in met if deed in run.deeds)]
    number = ""
    if at is not None:
        name, flat = at
        place = [*map(int, np.unravel_index(flat, run.arrays[name].shape))]
        number = f"{name}{place} = {shown(run.arrays[name].reshape(-1)[flat].item())}"
    return {"words": run.words, "did": did, "number": number, "right": None if trial.wrong is None else not trial.wrong(run.arrays)}
