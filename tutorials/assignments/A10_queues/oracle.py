"""What draws the cases of A10, and simulates pipelines. It stays at home."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from items import TILE, Pipeline
from minisitch.course import KernelLaunch, prediction
from minisitch.course.assignment import in_variant
from minisitch.course.kernels import measured

BLOCKS, DEPTH = 4, 2


def count(case, writer, firings):
    """Entries of a writer's queue that are written, or given back, after so many firings."""
    return firings if case.stages[writer] == "tile" else firings // case.tiles


def waits_for(case, stage, fired, depths):
    """What keeps a stage from its next firing: a queue, and whether it is empty or full."""
    needed = min(fired[stage] + 1 + (case.variant == "ahead"), case.tiles)
    for place, (writer, readers) in enumerate(case.queues):
        there = count(case, writer, fired[writer])
        if stage in readers and there < (needed if case.stages[writer] == "tile" else 1):
            return place, "empty"
        if stage == writer and count(case, writer, fired[writer] + 1) > there:
            back = min(count(case, writer, fired[each]) for each in readers)
            if there - back >= depths[place]:
                return place, "full"
    return None


def firings(case, depths):
    """How often each stage fires before the pipeline stands still. The order of firings does not matter."""
    fired = [0] * len(case.stages)
    moved = True
    while moved:
        moved = False
        for stage in range(len(case.stages)):
            if fired[stage] < case.tiles and waits_for(case, stage, fired, depths) is None:
                fired[stage] += 1
                moved = True
    return fired


def known(case):
    """The pipeline with its least depths: where it stops with fewer, one of the queues that are full must be deeper."""
    room = [case.tiles] * len(case.queues)

    def alone(place):
        """The least depth of one queue where the others have room for everything."""
        return next(d for d in range(1, case.tiles + 1) if min(firings(case, [*room[:place], d, *room[place + 1 :]])) == case.tiles)

    found, left, seen = [], [tuple(map(alone, range(len(room))))], set()
    while left:
        depths = left.pop(0)  # those of a smaller sum first
        if depths in seen or any(all(map(int.__ge__, depths, least)) for least in found):
            continue
        seen.add(depths)
        fired = firings(case, depths)
        waits = [waits_for(case, stage, fired, depths) for stage, times in enumerate(fired) if times < case.tiles]
        if not waits:
            found.append(depths)
        for place in {place for place, how in waits if how == "full"}:
            left.append((*depths[:place], depths[place] + 1, *depths[place + 1 :]))
    return replace(case, least=tuple(found))


def draw_pipeline(at):
    count = 2 + at.random.randrange(1 + at.size // 2)
    stages = tuple(at.random.choice(("tile", "tile", "total")) for _ in range(count))
    queues = []
    for writer in range(count - 1):
        later = range(writer + 1, count)
        readers = {writer + 1} | {each for each in later if at.random.random() < 0.3}
        queues.append((writer, tuple(sorted(readers))))
        if at.random.random() < 0.25:
            queues.append((writer, (at.random.choice(later),)))
    return known(Pipeline(stages, tuple(queues), 1 + at.random.randrange(2 + at.size // 2), at.variant))


def draw_skip(at):
    """A value waits until a total of it is known, past some stages: the shape of a softmax."""
    between = at.random.randint(1, 2 + at.size // 6)
    stages = ("tile",) * between + ("total", "tile")
    queues = [(stage, (stage + 1,)) for stage in range(between - 1)]
    last = between - 1
    queues += [(last, (between, between + 1)), (between, (between + 1,))]
    return known(Pipeline(stages, tuple(queues), at.random.randint(3, 4 + at.size // 3), at.variant))


def two_places(variant):
    """Tiles wait for the total of stage 2, before stage 1 or behind it."""
    stages = ("tile", "tile", "total", "tile")
    return [known(Pipeline(stages, ((0, (1, 2)), (1, (3,)), (2, (3,))), 4, variant))]


def draw_launch(at):
    tiles = at.random.randint(3, 6) if at.hidden else at.random.choice((4, 5))
    x = np.array([at.random.randint(-8, 8) for _ in range(tiles * TILE)], np.float32)
    queue, counters = np.zeros(DEPTH * TILE, np.float32), np.full(2 * DEPTH * TILE, 7, np.int32)
    arrays = {"x": x, "y": np.zeros_like(x), "queue": queue, "counters": counters}
    launch = KernelLaunch(
        arrays,
        BLOCKS,
        TILE,
        at.random.randrange(1000),
        ("x",),
        ("y",),
        ("queue", "counters"),
        wave=BLOCKS,
        what=f"{tiles} tiles",
    )
    here = Path(__file__).parent
    right = [in_variant((here / name).read_text("utf-8"), at.variant) for name in ("solution.py", "alternative.py")]
    return measured(launch, "relay", right, ("depths",), times=1.25, accesses=1.25)


# ---------------------------------------------------------------- predictions
@prediction
def stands_still(at):
    case = replace(draw_skip(at), tiles=at.random.randint(4, 9))
    fired = firings(case, [1] * len(case.queues))
    return f"{case}. Every queue has one entry. How often does stage 0 fire before the pipeline stands still?", fired[0]


@prediction
def turn_of_an_entry(at):
    depth, tile = at.random.randint(2, 7), at.random.randint(15, 60)
    return (
        f"A ring queue has {depth} entries, and tile t goes into entry t % {depth}. The counter of each entry "
        f"says how often it has been read. What must it be, at least, before tile {tile} may be written?",
        tile // depth,
    )


@prediction
def releases(at):
    tiles, readers = at.random.randint(5, 30), at.random.randint(2, 4)
    return (
        f"{readers} stages read each of {tiles} tiles of one queue. A stage has one block, and thread 0 of it "
        "releases. How many releases are there in all, by the writer and the readers?",
        tiles * (1 + readers),
    )
