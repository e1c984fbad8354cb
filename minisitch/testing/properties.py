"""The properties of each pass that may be swapped. ``testing/seams.py`` checks results by them.

In:  a ``Run``, which calls the function under test, and the arguments of one call. Out: its result.
Raises ``Broken`` with the name of the property and what was seen.

Where the paper fixes a result, so do its properties: a span is the longest path. Where it leaves a
choice, they leave it too: rows may be packed in several ways.
"""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..device import Device
from ..fuse import count
from ..simt.memory import Stamp
from ..stitch.mapping import LONG_ROW, WARP, ThreadMap

PACKAGE = Path(__file__).parent.parent


class Broken(Exception):
    """A result lacks the property ``rule``."""

    def __init__(self, rule: str, seen: str):
        super().__init__(rule, seen)
        self.rule, self.seen = rule, seen


def require(holds: object, rule: str, seen: str) -> None:
    """Raise Broken unless a property holds."""
    if not holds:
        raise Broken(rule, seen)


@dataclass(frozen=True)
class Run:
    """Calls the function under test. ``reference`` is the compiler's own pass."""

    function: Callable[..., Any]
    reference: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result. Raises Broken if it raises anything, or changes its arguments."""
        given = [copy.deepcopy(a) if isinstance(a, dict | list | set) else a for a in args]
        try:
            answer = self.function(*given, **kwargs)
        except Broken:
            raise  # by a function among the arguments
        except (Exception, SystemExit) as error:
            seen = f"{type(error).__name__}: {error}, in {_line(self.function, error)}"
            raise Broken("raises", seen) from error
        require(given == list(args), "pure", "it changes its arguments: work on copies")
        return answer


def _line(function: Callable[..., Any], error: BaseException) -> str:
    """The line of the function that raised, or its first line if it was not called at all."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    frames = [f for f in traceback.extract_tb(error.__traceback__)
              if not Path(f.filename).is_relative_to(PACKAGE)]
    own = [f for f in frames if code and f.filename == code.co_filename] or frames
    if own:
        return f"{Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line}"
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else repr(function)


# ---------------------------------------------------------------- words that several share
def _is(answer: Any, kind: type) -> None:
    seen = type(answer).__name__
    require(isinstance(answer, kind), "type", f"it returns {seen} where {kind.__name__} is expected")


def _are_numbers(found: Iterable[Any], what: str, least: int = 0) -> None:
    for n in found:
        known = type(n) is int and n >= least
        require(known, "type", f"{what} {n!r}; expected a whole number from {least} on")


def _ids(nodes: Iterable[int]) -> str:
    return "{" + " ".join(f"%{n}" for n in nodes) + "}"


def _take(n: int, word: str) -> str:
    """``1 block takes``, ``2 blocks take``."""
    return f"{count(n, word)} take{'s' if n == 1 else ''}"


# ---------------------------------------------------------------- stitch/mapping.py
def check_map_rows(run: Run, rows: int, cols: int, device: Device, *, adaptive: bool = True,
                   whole: bool = False, threads_per_row: int = 0, threads: int = 0) -> ThreadMap:
    """The threads are legal, and cover all rows and columns in one wave. The device is busy."""
    m = run(rows, cols, device, adaptive=adaptive, whole=whole, threads_per_row=threads_per_row,
            threads=threads)
    _is(m, ThreadMap)
    for name in ("blocks", "threads", "rows_per_block", "threads_per_row", "steps", "splits"):
        _are_numbers([getattr(m, name)], name, 1)
    _are_numbers([m.chunk], "chunk")
    block = min(threads or device.max_block, device.max_block)
    _check_legal(m, device, block, threads_per_row)
    require((m.rows, m.cols) == (rows, cols), "covers", f"it maps <{m.rows}, {m.cols}> instead")
    _check_covers(m)
    if not adaptive:
        seen = f"{count(m.blocks, 'block')} of {count(m.rows_per_block, 'row')}"
        alone = m.blocks == max(1, rows) and m.rows_per_block == m.splits == 1
        require(alone, "block a row", f"{seen}; adaptive=False asks for a block a row")
        return m
    wave, may_split = device.wave(m.threads), not (whole or threads_per_row)
    require(m.blocks <= wave, "one wave", f"{count(m.blocks, 'block')}; only {wave} are "
            "resident at once: let each take several tasks in turn")
    require(m.splits == 1 or may_split, "whole", f"{count(m.splits, 'chunk')} of a whole row")
    _check_busy(m, device.wave(block), may_split, chosen=threads_per_row > 0)
    return m


def _check_legal(m: ThreadMap, device: Device, most: int, threads_per_row: int) -> None:
    block, row = f"a block of {count(m.threads, 'thread')}", count(m.threads_per_row, "thread")
    require(m.threads <= most, "legal", f"{block}; at most {most} are allowed")
    fits = m.threads == m.rows_per_block * m.threads_per_row
    require(fits, "legal", f"{block} for {count(m.rows_per_block, 'row')} of {row}")
    if device.kind == "cpu":
        require(m.threads == 1, "legal", f"{block}; a CPU has one thread a task")
        return
    require(m.threads % WARP == 0, "legal", f"{block}, which are not whole warps of {WARP}")
    wanted = min(most, threads_per_row) or m.threads_per_row
    require(m.threads_per_row == wanted, "legal", f"{row} a row; {wanted} are asked for")
    power = m.threads_per_row & (m.threads_per_row - 1) == 0
    require(power, "legal", f"{row} a row meet in pairs: expected a power of two")


def _check_covers(m: ThreadMap) -> None:
    cols, tasks = count(m.cols, "column"), count(m.tasks, "task")
    chunks = f"{_take(m.splits, 'chunk')} {m.splits * m.chunk} of {cols}"
    require(m.splits * m.chunk >= m.cols, "covers", chunks)
    require((m.splits - 1) * m.chunk < max(m.cols, 1), "covers", f"{chunks}: the last has none")
    turns = f"{_take(m.blocks, 'block')} {m.blocks * m.steps} of {tasks}"
    require(m.blocks * m.steps >= m.tasks, "covers", turns)
    require((m.steps - 1) * m.blocks < max(m.tasks, 1), "covers", f"{turns}: the last turn has none")


def _check_busy(m: ThreadMap, wave: int, may_split: bool, chosen: bool) -> None:
    """``chosen``: the caller has chosen the threads of a row."""
    seen, most = count(m.blocks, "block"), min(m.tasks, wave)
    require(2 * m.blocks >= most, "busy", f"{seen}, where {most} of {wave} resident ones have work")
    idle = may_split and 0 < 2 * m.tasks <= wave and m.chunk >= 2 * LONG_ROW
    columns = count(m.chunk, "column")
    require(not idle, "busy", f"{seen} of {wave} resident ones, each with {columns}: split the rows")
    require(chosen or m.threads_per_row <= max(WARP, 2 * m.chunk), "busy",
            f"{count(m.threads_per_row, 'thread')} for {columns}: more than half have no work")


# ---------------------------------------------------------------- strategies/fs18/spans.py
def check_spans(run: Run, readers: Mapping[int, Collection[int]]) -> dict[int, int]:
    """Every operation stands right above its highest reader. One that waits for itself has none."""
    found = run(readers)
    _is(found, dict)
    _are_numbers(found.values(), "a span of")
    require(found.keys() <= readers.keys(), "complete", f"{_ids(found.keys() - readers)} too many")
    for node, users in readers.items():
        circling = [user for user in users if user not in found]
        if node not in found:
            require(circling, "complete", f"%{node} has no span, although all its readers have one")
            continue
        require(not circling, "complete", f"%{node} has a span; of its readers {_ids(circling)} have none")
        highest = max(users, key=found.__getitem__, default=None)
        seen, wanted = f"%{node} has span {found[node]}", 0
        if highest is not None:
            wanted = found[highest] + 1
            seen += f", its highest reader %{highest} has {found[highest]}"
        rule = "root" if highest is None else "above" if found[node] < wanted else "tight"
        require(found[node] == wanted, rule, f"{seen}: expected {wanted}")
    return found


# ---------------------------------------------------------------- simt/memory.py
def check_ordered(run: Run, before: Stamp, after: Stamp) -> bool:
    """Whether a barrier, or a release and an acquire, lies between two moments."""
    found, right = run(before, after), run.reference(before, after)
    require(type(found) is bool, "type", f"it returns {found!r} where True or False is expected")
    relation = ("grid barrier" if before.grid_epoch < after.grid_epoch else
                "other block" if before.block != after.block else
                "same thread" if before.thread == after.thread else
                "block barrier" if before.block_epoch < after.block_epoch else
                "same warp" if before.thread // WARP == after.thread // WARP else "same block")
    require(found == right, relation, f"{found}; expected {right}")
    return found
