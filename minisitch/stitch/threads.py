"""The threads of a kernel: one thread map for each segment, and one block size for all.

In:  a ``StitchPlan``. Out: for each segment (its grid barriers and its space) a ``ThreadMap``.

Before:  a segment over rows, with sub-roots of 32 and of 1024 columns
After:   the map of the 1024 columns
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .mapping import ThreadMap, map_rows_as
from .place import StitchPlan
from .subroots import Space, SubRoot

SegmentKey = tuple[int, Space]  # the grid barriers before it, and its tasks
LoopKey = tuple  # its segment, phase, extents and kind, in the order in which loops run


def loops_of(plan: StitchPlan) -> list[tuple[LoopKey, list[SubRoot]]]:
    """The loops of a plan in order, each with the sub-roots that share it.

    Sub-roots share a loop if they have the same segment, phase and extents.
    """
    found: dict[LoopKey, list[SubRoot]] = {}
    for s in plan.sub_roots:
        _, serial, cols = s.extents
        whole_row = s.space.chunks > 1 and s.role != "combine" and cols == s.space.cols
        chunked = s.space.kind == "column" or whole_row
        along = s.along if s.along in ("column", "warp") else ""
        key = (s.level, space_order(s.space), s.phase, serial, cols, chunked, s.role == "combine", along)
        found.setdefault(key, []).append(s)
    return sorted(found.items(), key=lambda item: item[0])


def space_order(space: Space) -> tuple:
    """The order in which the segments of a level run."""
    return space.kind, space.rows, space.chunks, space.slices, space.serial, space.cols


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
    loops = loops_of(plan)
    fixed = {(s.level, s.space): s.thread_map for _, sub_roots in loops for s in sub_roots if s.role == "carry"}
    for _, sub_roots in loops:
        key = sub_roots[0].level, sub_roots[0].space
        found[key] = fixed[key] if key in fixed else _widest(plan, sub_roots, found.get(key))
    return found


def _widest(plan: StitchPlan, sub_roots: list[SubRoot], best: ThreadMap | None) -> ThreadMap:
    """The widest map among a loop's sub-roots and ``best``, the widest of earlier loops.

    Rows that no map splits are mapped for the loop's columns.
    """
    space, cols = sub_roots[0].space, sub_roots[0].extents[2]
    for s in sub_roots:
        if s.thread_map.splits == space.chunks and (best is None or s.thread_map.cols > best.cols):
            best = s.thread_map
    if space.kind == "row" and space.chunks == 1 and (best is None or cols > best.cols):
        wider = map_rows_as(plan.composition, space.rows, cols, plan.device)
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
