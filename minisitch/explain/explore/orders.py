"""What a race does to the numbers: a kernel in two orders of its threads that nothing forbids.

In:  a ``KernelTrial`` and the race that was found in its text. Out: two orders for the page, each with
the two accesses as they came, and a number that the launch leaves.

The stepper stops at a race. Here the same text runs to its end and nothing is checked. First all
threads take each line together: of the threads of a block those go on that are furthest behind in
the text, as the hardware did it before 2017. Then one side of the race goes ahead or comes late.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...errors import KernelBug, MinisitchError
from ...simt import SHARED_BYTES
from ...simt.machine import START, WARP, Block, Machine, Thread
from ...simt.memory import Now
from ...simt.record import FilmEvent, Recorded
from ...simt.text import read_program
from ...simt.values import given
from .frames import shown

FAR = 1e-3  # sums in another order differ by less; four digits show it
DEEDS = {"a load": "read", "a store": "write"}
Ahead = Callable[[Thread], int]  # threads with a smaller number go as far as they can first


class Unchecked(Recorded):  # type: ignore[misc,valid-type]
    """An array that takes every access inside its shape."""

    __slots__ = ()

    def load(self, site: int, index: Any, turn: None = None) -> Any:
        return super().load(site, index)

    def store(self, site: int, index: Any, value: Any, turn: None = None) -> None:
        super().store(site, index, value)

    def overwrite(self, access: Any, site: int, cell: int, value: Any) -> None:
        self.data[cell] = self.convert(value) if self.wraps else value
        self.now.progress += 1

    def see(self, *_: Any) -> None:
        """Nothing: any value may be read."""

    require_order = require_written = require_owner = see


class OrderedMachine(Machine):
    """A launch in one order: ``ahead`` first, then who is furthest behind in the text."""

    ahead: Ahead

    def begin(self, ahead: Ahead, backwards: bool) -> None:
        """Set the order of threads, and of blocks: those of a block are through before the next ones."""
        self.ahead, self.kind = ahead, Unchecked
        self.pauses = frozenset(site for site, verb in enumerate(self.verbs) if site in self.pauses or verb in ("load", "store"))
        self.waiting_to_start = list(range(self.blocks))[::1 if backwards else -1]
        self.rng.choice = lambda ready: ready[0]  # type: ignore[method-assign]

    def turn(self, block: Block) -> None:
        while ready := [t for t in block.threads if t.stop[0] == START or self.spins(t)]:
            rank = {thread: (self.ahead(thread), thread.stop[0]) for thread in ready}
            for thread in [thread for thread in ready if rank[thread] == min(rank.values())]:
                self.resume(thread)
            for warp in block.warps if self.meetings else ():
                for thread in self.meet(warp):
                    self.resume(thread)
        super().turn(block)


def orders(trial: Any, text: str, bug: KernelBug) -> list[dict[str, Any]]:
    """Two orders whose results differ, or one if no other number was found. None of another bug."""
    sides = [re.fullmatch(r"block (\d+) thread (\d+)", who) for _, who in bug.places]
    cell = re.search(r" (\w+)\[([\d, ]+)\]", f" {bug}")
    if bug.rule != "race" or cell is None or len(sides) != 2 or not all(sides):
        return []
    found: list[tuple[str, dict[str, Any], list[FilmEvent]]] = []
    pairs: list[list[dict[str, Any]]] = []
    for words, ahead, backwards in _ways([(int(s[1]), int(s[2])) for s in sides if s]):
        try:
            found.append((words, *_launched(trial, text, ahead, backwards)))
        except MinisitchError:
            continue
        if len(found) > 1 and (at := _different(found[0][1], found[-1][1])):
            pairs.append([_told(trial, way, at, cell, bug) for way in (found[0], found[-1])])
            if pairs[-1][0]["did"] != pairs[-1][1]["did"]:  # it shows at the race itself
                break
    if pairs:
        if pairs[-1][0]["right"] and pairs[-1][1]["right"]:  # both are right for all that is known
            pairs[-1] = [{**order, "right": None} for order in pairs[-1]]
        return sorted(pairs[-1], key=lambda order: order["right"] is False)
    return [_told(trial, found[0], None, cell, bug)] if found else []


def _ways(sides: list[tuple[int, int]]) -> Iterator[tuple[str, Ahead, bool]]:
    """In words, in numbers, and whether the last block comes first."""
    yield "All threads take each line together.", lambda _: 0, False
    (block, one), (other_block, other) = sides
    if block != other_block:
        yield "The last block comes first.", lambda _: 0, True
        return
    if one // WARP != other // WARP:
        one, other, who, of = one // WARP, other // WARP, "Warp", lambda t: t.trace.stamp.thread // WARP
    else:
        who, of = "Thread", lambda t: t.trace.stamp.thread
    for each in (one, other):
        yield f"{who} {each} is late: it goes on where the others wait.", lambda t, x=each: of(t) == x, False
        yield f"{who} {each} is ahead: it runs up to the next barrier alone.", lambda t, x=each: of(t) != x, False


def _launched(trial: Any, text: str, ahead: Ahead, backwards: bool) -> tuple[dict[str, Any], list[FilmEvent]]:
    """The arrays that an order leaves, and what each thread did."""
    film: list[FilmEvent] = []
    arrays = trial.fresh()
    program = read_program(text, trial.options.get("name"), frozenset(n for n, a in arrays.items() if isinstance(a, np.ndarray)), True)
    now = Now((trial.grid, 1, 1), (trial.block, 1, 1), film)
    arguments = [Unchecked(name, arrays[name], "global", now, program) if isinstance(arrays[name], np.ndarray)
                 else given(arrays[name]) for name in program.parameters]
    machine = OrderedMachine(program, arguments, now, 0, trial.grid, trial.rounds, trial.options.get("shared", SHARED_BYTES))
    machine.begin(ahead, backwards)
    with np.errstate(all="ignore"):
        machine.run()
    return arrays, film


def _different(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, int] | None:
    """A cell in which two launches differ by more than rounding: of the first such array the farthest."""
    for name in [name for name, each in one.items() if isinstance(each, np.ndarray) and each.size]:
        a, b = (np.nan_to_num(each[name].astype(np.float64), posinf=1e300, neginf=-1e300).reshape(-1) for each in (one, other))
        far = np.abs(a - b) / np.maximum(1e-30, np.maximum(np.abs(a), np.abs(b)))
        if far.max() > FAR:
            return name, int(np.argmax(far))
    return None


def _told(trial: Any, way: tuple[str, dict[str, Any], list[FilmEvent]], at: tuple[str, int] | None,
          cell: re.Match[str], bug: KernelBug) -> dict[str, Any]:
    """One order for the page. ``right`` is None where nobody knows the right number."""
    words, arrays, film = way
    place, did = tuple(map(int, cell[2].split(","))), {}
    for e in film:  # of each side its first access
        for line, who in bug.places:
            deed = re.search(rf"(a load|a store) by {who}\b", str(bug))
            if (e.line, f"block {e.block} thread {e.thread}", e.array, e.cell) == (line, who, cell[1], place) and (
                    deed is None or DEEDS[deed[1]] == e.what):
                did.setdefault(who, f"line {e.line}: thread {e.thread} {e.what}s {cell[1]}[{cell[2]}] = {shown(e.value)}")
    number = ""
    if at is not None:
        name, flat = at
        where = ", ".join(map(str, np.unravel_index(flat, arrays[name].shape)))
        number = f"{name}[{where}] = {shown(arrays[name].reshape(-1)[flat].item())}"
    right = None if trial.wrong is None else not trial.wrong(arrays)
    return {"words": words, "did": list(did.values()), "number": number, "right": right}
