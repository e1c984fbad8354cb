"""Items of A10. None of them holds the answer: a simulation says what a pipeline does with given depths."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from minisitch.course import KernelLaunch, KernelRun, item, prediction, second_call, without
from minisitch.explain.picture import Arrow, Box, layered
from minisitch.explain.svg import WAIT
from minisitch.simt import ArrayBytes
from minisitch.fuse import count as counted

RETURNS = {"depths": list[int], "relay": KernelRun}
BLOCKS, TILE, DEPTH = 4, 32, 2


# ---------------------------------------------------------------- depths
@dataclass(frozen=True)
class Pipeline:
    """Stages in the order of their data, queues as (writer, readers), and the number of tiles."""

    stages: tuple[str, ...]
    queues: tuple[tuple[int, tuple[int, ...]], ...]
    tiles: int
    variant: str

    def __str__(self):
        return f"stages = {list(self.stages)}, queues = {self.plain()}, tiles = {self.tiles}"

    def plain(self):
        return [(writer, list(readers)) for writer, readers in self.queues]

    def firings(self, depths):
        """How often each stage fires before the pipeline stands still. The order of firings does not matter."""
        fired = [0] * len(self.stages)
        moved = True
        while moved:
            moved = False
            for stage in range(len(self.stages)):
                if fired[stage] < self.tiles and self.waits_for(stage, fired, depths) is None:
                    fired[stage] += 1
                    moved = True
        return fired

    def drawn(self, outcome):
        """Stages and queues, and how far each came with the depths that were returned."""
        depths = outcome.value if isinstance(outcome.value, list) else []
        if len(depths) != len(self.queues):
            depths = [0] * len(self.queues)
        fired = self.firings(depths)
        boxes, edges, places = [], [], {}
        for stage, kind in enumerate(self.stages):
            places[stage] = len(boxes)
            stuck = self.waits_for(stage, fired, depths) if fired[stage] < self.tiles else None
            waits = (f"waits: queue {stuck[0]} is {stuck[1]}",) if stuck else ()
            boxes.append(Box((f"stage {stage}, {kind}", f"fired {fired[stage]} of {self.tiles}", *waits), WAIT if stuck else ""))
            for queue, (writer, _) in enumerate(self.queues):
                if writer == stage:
                    edges.append(Arrow(places[stage], len(boxes)))
                    places["queue", queue] = len(boxes)
                    boxes.append(Box((f"queue {queue}", f"yours: {depths[queue]}"), dashed=True))
        for queue, (_, readers) in enumerate(self.queues):
            edges += [Arrow(places["queue", queue], places[reader]) for reader in readers]
        return layered(boxes, edges, outcome.why)

    def count(self, writer, firings):
        """Entries of a writer's queue that are written, or given back, after so many firings."""
        return firings if self.stages[writer] == "tile" else firings // self.tiles

    def waits_for(self, stage, fired, depths):
        """What keeps a stage from its next firing: a queue, and whether it is empty or full."""
        needed = min(fired[stage] + 1 + (self.variant == "ahead"), self.tiles)
        for place, (writer, readers) in enumerate(self.queues):
            there = self.count(writer, fired[writer])
            if stage in readers and there < (needed if self.stages[writer] == "tile" else 1):
                return place, "empty"
            if stage == writer and self.count(writer, fired[writer] + 1) > there:
                back = min(self.count(writer, fired[each]) for each in readers)
                if there - back >= depths[place]:
                    return place, "full"
        return None

    def stops(self, depths):
        """A sentence about where the pipeline stands still, or nothing if it ends."""
        fired = self.firings(depths)
        for stage, count in enumerate(fired):
            if count < self.tiles:
                place, how = self.waits_for(stage, fired, depths)
                return f"stage {stage} has fired {count} of {self.tiles} times, and queue {place} is {how}"
        return None


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
    return Pipeline(stages, tuple(queues), 1 + at.random.randrange(2 + at.size // 2), at.variant)


def draw_skip(at):
    """A value waits until a total of it is known, past some stages: the shape of a softmax."""
    between = at.random.randint(1, 2 + at.size // 6)
    stages = ("tile",) * between + ("total", "tile")
    queues = [(stage, (stage + 1,)) for stage in range(between - 1)]
    last = between - 1
    queues += [(last, (between, between + 1)), (between, (between + 1,))]
    return Pipeline(stages, tuple(queues), at.random.randint(3, 4 + at.size // 3), at.variant)


def two_places(variant):
    """Tiles wait for the total of stage 2, before stage 1 or behind it."""
    stages = ("tile", "tile", "total", "tile")
    return Pipeline(stages, ((0, (1, 2)), (1, (3,)), (2, (3,))), 4, variant)


def smaller(case):
    if case.tiles > 1:
        yield replace(case, tiles=case.tiles - 1)
    for queue in case.queues:
        if len(case.queues) > 1:
            yield replace(case, queues=tuple(without(case.queues, queue)))
    for place, (writer, readers) in enumerate(case.queues):
        for reader in readers if len(readers) > 1 else ():
            fewer = (writer, tuple(without(readers, reader)))
            yield replace(case, queues=(*case.queues[:place], fewer, *case.queues[place + 1 :]))


def asked(case, ask):
    found = ask("depths", list(case.stages), case.plain(), case.tiles)
    if len(found) != len(case.queues):
        return found, f"it returns {counted(len(found), 'depth')} for {counted(len(case.queues), 'queue')}"
    if any(depth < 1 for depth in found):
        return found, "a queue has at least one entry"
    return found, None


def ends_of(case, ask):
    found, wrong = asked(case, ask)
    return wrong or case.stops(found)


ends = item(
    "ends",
    "With these depths the pipeline does not stop before all stages have fired for all tiles.",
    draw=draw_pipeline,
    examples=[two_places],
    smaller=smaller,
    weight=2,
)(ends_of)
softmax = item(
    "waiting values",
    "A queue holds a value until the total is there that it waits for.",
    draw=draw_skip,
    smaller=smaller,
    visible=6,
    hidden=20,
)(ends_of)


@item(
    "least",
    "With one entry less in any one queue, the pipeline would stop.",
    draw=draw_pipeline,
    examples=[two_places],
    smaller=smaller,
    weight=2,
    needs=("ends",),
)
def least(case, ask):
    found, wrong = asked(case, ask)
    if wrong or case.stops(found):
        return wrong or case.stops(found)
    for place, depth in enumerate(found):
        fewer = [*found[:place], depth - 1, *found[place + 1 :]]
        if depth > 1 and not case.stops(fewer):
            return f"queue {place} has {depth} entries; {depth - 1} would do"
    return None


@item(
    "pure",
    "It leaves what it is given as it was: a second call with the same objects returns the same.",
    draw=draw_pipeline,
    visible=6,
    hidden=10,
    weight=0.5,
    needs=("ends",),
)
def pure(case, ask):
    return second_call(ask, "depths", list(case.stages), case.plain(), case.tiles)


# ---------------------------------------------------------------- relay
def draw_launch(at):
    tiles = at.random.randint(3, 6) if at.hidden else at.random.choice((4, 5))
    x = np.array([at.random.randint(-8, 8) for _ in range(tiles * TILE)], np.float32)
    queue, counters = np.zeros(DEPTH * TILE, np.float32), np.full(2 * DEPTH * TILE, 7, np.int32)
    arrays = {"x": x, "y": np.zeros_like(x), "queue": queue, "counters": counters}
    return KernelLaunch(
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


RELAY = {"draw": draw_launch, "visible": 3, "hidden": 6, "cases_of": "relay"}


@item("relay", "Tile after tile, y is 2 x backwards.", **RELAY)
def relay(case, ask):
    y, x = ask("relay", case).arrays["y"], case.arrays["x"]
    right = 2 * x.reshape(-1, TILE)[:, ::-1].ravel()
    if (y == right).all():
        return None
    cell = int(np.argmax(y != right))
    return f"y[{cell}] is wrong: it holds {y[cell]:g}"


@item(
    "no race",
    "Every read and write of the queue and of the counters is ordered, in whatever order blocks run.",
    weight=2,
    rules=("race", "unwritten-read"),
    needs=("relay",),
    **RELAY,
)
def no_race(case, ask):
    ask("relay", case)


@item(
    "no deadlock",
    "No thread waits for ever, and all threads of a block come to the same barriers.",
    weight=2,
    rules=("deadlock", "divergent-barrier", "endless", "one-wave", "lane-mask"),
    needs=("relay",),
    **RELAY,
)
def no_deadlock(case, ask):
    ask("relay", case)


@item(
    "inside",
    "It keeps to the dialect, stays inside the arrays, and writes all of y.",
    weight=0.5,
    rules=(
        *("outside-dialect", "float64-literal", "mixed-dtype", "exception", "parameters", "too long"),
        *("out-of-bounds", "misaligned", "unwritten-output", "memory-limit", "wrong-owner"),
    ),
    needs=("relay",),
    **RELAY,
)
def inside(case, ask):
    ask("relay", case)


@item(
    "by the queue",
    "Each tile goes through the queue once, and no thread has more than half of them.",
    needs=("relay",),
    **RELAY,
)
def by_the_queue(case, ask):
    traffic = ask("relay", case).traffic
    size = case.arrays["x"].nbytes
    through = traffic.queues.get("queue", ArrayBytes())
    if (through.read, through.written) != (size, size):
        return f"{through.written} bytes are written to the queue and {through.read} read; x has {size}"
    most = -(-case.arrays["x"].size // TILE // 2)
    return f"one thread loads {traffic.thread_loads} numbers; {most} are the most" if traffic.thread_loads > most else None


# ---------------------------------------------------------------- predictions
@prediction
def stands_still(at):
    case = replace(draw_skip(at), tiles=at.random.randint(4, 9))
    fired = case.firings([1] * len(case.queues))
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
