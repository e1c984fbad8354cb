"""The threads of a kernel: one thread map for each segment, and one block size for all.

In:  a ``StitchPlan``. Out: for each segment (its grid barriers and its space) a ``ThreadMap``.

Before:  a segment over rows, with sub-roots of 32 and of 1024 columns
After:   the map of the 1024 columns
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .mapping import ThreadMap, map_rows_as
from .plan import LoopPlan, StitchPlan
from .subroots import Space

SegmentKey = tuple[int, Space]  # the grid barriers before it, and its tasks


def thread_maps(plan: StitchPlan) -> dict[SegmentKey, ThreadMap]:
    """The map of each segment, all with the kernel's block size.

    These are the maps that a pass chose, if any, else the plan's own.
    """
    if plan.maps:
        return dict(plan.maps)
    maps = own_maps(plan)
    return fill_block(maps, max((m.threads for m in maps.values()), default=1))


def own_maps(plan: StitchPlan) -> dict[SegmentKey, ThreadMap]:
    """The map of each segment by itself.

    It is the map of the segment's column sums, which fixes the number of partial results. A segment
    without column sums has the map of its widest sub-root.
    """
    found: dict[SegmentKey, ThreadMap] = {}
    fixed = {(s.level, s.space): s.thread_map for loop in plan.loops for s in loop.sub_roots if s.role == "carry"}
    for loop in plan.loops:
        key = loop.level, loop.space
        found[key] = fixed[key] if key in fixed else _widest(plan, loop, found.get(key))
    return found


def _widest(plan: StitchPlan, loop: LoopPlan, best: ThreadMap | None) -> ThreadMap:
    """The widest map among a loop's sub-roots and ``best``, the widest of earlier loops.

    Rows that no map splits are mapped for the loop's columns.
    """
    space = loop.space
    for s in loop.sub_roots:
        if s.thread_map.splits == space.chunks and (best is None or s.thread_map.cols > best.cols):
            best = s.thread_map
    if space.kind == "row" and space.chunks == 1 and (best is None or loop.cols > best.cols):
        wider = map_rows_as(plan.composition, space.rows, loop.cols, plan.device)
        best = wider if wider.splits == 1 or best is None else best
    assert best is not None
    return best


def fill_block(maps: Mapping[SegmentKey, ThreadMap], block: int) -> dict[SegmentKey, ThreadMap]:
    """Fill a block with as many rows as it has room for, more or fewer than its segment's own map.

    A chunk of a row takes the whole block. So does a piece in a block composition.
    """
    found = dict(maps)
    for (level, space), m in maps.items():
        whole = space.kind == "block" or m.splits > 1
        if space.kind == "column":
            continue
        if whole or m.threads == block:
            filled = replace(m, threads=block, threads_per_row=block if whole else m.threads_per_row)
        else:
            filled = replace(m, threads=block, rows_per_block=max(1, block // m.threads_per_row))
        found[level, space] = filled
    return found
