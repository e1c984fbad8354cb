"""What every result of a pass must be, whoever wrote the pass. ``testing/seams.py`` asks.

In:  ``run``, which calls the pass under test, and the arguments of one call. Out: its result.
Raises ``Broken`` with the name of the property and what was seen.

Where the paper fixes a result, so do its properties (a span is the longest path). Where it leaves a choice, they do not (rows may
be packed in several ways).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..device import Device
from ..fuse import count
from ..stitch.mapping import LONG_ROW, WARP, ThreadMap

Run = Callable[..., Any]


class Broken(Exception):
    """A result lacks the property ``rule``."""

    def __init__(self, rule: str, seen: str):
        super().__init__(rule, seen)
        self.rule, self.seen = rule, seen


def require(holds: object, rule: str, seen: str) -> None:
    """Raise Broken unless a property holds."""
    if not holds:
        raise Broken(rule, seen)


def _is(answer: Any, kind: type, rule: str = "type") -> None:
    require(isinstance(answer, kind), rule, f"it returns {type(answer).__name__} where {kind.__name__} is expected")


def _take(n: int, word: str) -> str:
    """``1 block takes``, ``2 blocks take``."""
    return f"{count(n, word)} take{'s' if n == 1 else ''}"


# ---------------------------------------------------------------- stitch/mapping.py
def check_map_rows(run: Run, rows: int, cols: int, device: Device, *, adaptive: bool = True, whole: bool = False,
                   threads_per_row: int = 0, threads: int = 0) -> ThreadMap:
    """The threads are legal, they cover all rows and columns, in one wave, and keep the device busy."""
    m = run(rows, cols, device, adaptive=adaptive, whole=whole, threads_per_row=threads_per_row, threads=threads)
    _is(m, ThreadMap)
    numbers = ("blocks", "threads", "rows_per_block", "threads_per_row", "steps", "splits", "chunk")
    for name in numbers:
        least = 0 if name == "chunk" else 1
        seen = getattr(m, name)
        require(type(seen) is int and seen >= least, "type", f"{name} is {seen!r}; expected a whole number from {least} on")
    block = min(threads or device.max_block, device.max_block)
    _check_threads(m, device, block, threads_per_row)
    require((m.rows, m.cols) == (rows, cols), "covers", f"it maps <{m.rows}, {m.cols}> instead")
    require(m.splits * m.chunk >= cols, "covers", f"{_take(m.splits, 'chunk')} {m.splits * m.chunk} of "
            f"{count(cols, 'column')}")
    require((m.splits - 1) * m.chunk < max(cols, 1), "covers", f"{count(m.splits, 'chunk')} of {m.chunk} columns for {cols} "
            "columns: the last one is empty")
    require(m.blocks * m.steps >= m.tasks, "covers", f"{_take(m.blocks, 'block')} {m.blocks * m.steps} of {count(m.tasks, 'task')}")
    require((m.steps - 1) * m.blocks < max(m.tasks, 1), "covers", f"{count(m.tasks, 'task')} in {m.steps} turns of "
            f"{count(m.blocks, 'block')}: no block has work in the last one")
    if not adaptive:
        require(m.blocks == max(1, rows) and m.rows_per_block == m.splits == 1, "a block a row",
                f"{count(m.blocks, 'block')}, {m.rows_per_block} rows each; adaptive=False asks for a block a row")
        return m
    wave = device.wave(m.threads)
    require(m.blocks <= wave, "one wave", f"{count(m.blocks, 'block')} of {count(m.threads, 'thread')}, of which {wave} are "
            "resident at once: let each take several tasks in turn")
    require(m.splits == 1 or not (whole or threads_per_row), "whole", f"{count(m.splits, 'chunk')} a row, which must stay whole")
    _check_busy(m, device.wave(block), may_split=not (whole or threads_per_row), chosen=threads_per_row > 0)
    return m


def _check_threads(m: ThreadMap, device: Device, most: int, threads_per_row: int) -> None:
    require(m.threads <= most, "legal", f"a block of {count(m.threads, 'thread')}; at most {most} are allowed")
    require(m.threads == m.rows_per_block * m.threads_per_row, "legal", f"a block of {count(m.threads, 'thread')} for "
            f"{count(m.rows_per_block, 'row')} of {count(m.threads_per_row, 'thread')}")
    if device.kind == "cpu":
        require(m.threads == 1, "legal", f"{m.threads} threads: a CPU has one thread a task")
        return
    require(m.threads % WARP == 0, "legal", f"a block of {count(m.threads, 'thread')}, which are not whole warps of {WARP}")
    wanted = min(most, threads_per_row)
    require(m.threads_per_row == (wanted or m.threads_per_row), "legal", f"{count(m.threads_per_row, 'thread')} a row; "
            f"threads_per_row={threads_per_row} asks for {wanted}")
    require(m.threads_per_row & (m.threads_per_row - 1) == 0, "legal", f"{count(m.threads_per_row, 'thread')} a row; partial "
            "results meet in pairs: expected a power of two")


def _check_busy(m: ThreadMap, wave: int, may_split: bool, chosen: bool) -> None:
    """``chosen``: the caller has chosen the threads of a row."""
    require(2 * m.blocks >= min(m.tasks, wave), "busy", f"{count(m.blocks, 'block')}, although {count(m.tasks, 'task')} would keep "
            f"{min(m.tasks, wave)} of {wave} resident blocks busy")
    idle = may_split and 0 < 2 * m.tasks <= wave and m.chunk >= 2 * LONG_ROW
    require(not idle, "busy", f"{count(m.blocks, 'block')} of {wave} resident ones, each with {m.chunk} columns: split the rows")
    require(chosen or m.threads_per_row <= max(WARP, 2 * m.chunk), "busy", f"{count(m.threads_per_row, 'thread')} for "
            f"{count(m.chunk, 'column')}: more than half of them have nothing to do")


# ---------------------------------------------------------------- strategies/fs18/spans.py
def check_spans(run: Run, readers: Mapping[int, Collection[int]]) -> dict[int, int]:
    """Every operation stands right above its highest reader. What waits for itself has no span."""
    found = run(readers)
    _is(found, dict)
    for node, span in found.items():
        require(node in readers, "complete", f"%{node} has a span, and is none of the operations")
        require(type(span) is int, "type", f"the span of %{node} is {span!r}, no whole number")
    for node, users in readers.items():
        circling = [user for user in users if user not in found]
        if node not in found:
            require(circling, "complete", f"%{node} has no span, although all its readers have one")
            continue
        require(not circling, "complete", f"%{node} has a span, although its reader %{circling[0] if circling else 0} has none")
        highest = max(users, key=found.__getitem__, default=None)
        if highest is None:
            require(found[node] == 0, "root", f"%{node} has span {found[node]}; without a reader it is a root: expected 0")
            continue
        expected = found[highest] + 1
        rule = "above" if found[node] < expected else "tight"
        require(found[node] == expected, rule, f"%{node} has span {found[node]}, its highest reader %{highest} has "
                f"{found[highest]}: expected {expected}")
    return found
