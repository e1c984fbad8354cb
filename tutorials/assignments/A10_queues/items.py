"""Items of A10. None of them holds the answer: a simulation says what a pipeline does with given depths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minisitch.course import KernelRun, item, second_call
from minisitch.course.kernels import too_much
from minisitch.explain.picture import Arrow, Box, layered
from minisitch.fuse import count as counted
from minisitch.simt import ArrayBytes

RETURNS = {"depths": list[int], "relay": KernelRun}
TILE = 32


# ---------------------------------------------------------------- depths
@dataclass(frozen=True)
class Pipeline:
    """Stages in the order of their data, queues as (writer, readers), and the number of tiles.

    ``least`` are all depths with which it ends, and of which none could be one less.
    """

    stages: tuple[str, ...]
    queues: tuple[tuple[int, tuple[int, ...]], ...]
    tiles: int
    variant: str
    least: tuple[tuple[int, ...], ...] = ()

    def __str__(self):
        return f"stages = {list(self.stages)}, queues = {self.plain()}, tiles = {self.tiles}"

    def plain(self):
        return [(writer, list(readers)) for writer, readers in self.queues]

    def ends(self, depths):
        """Whether the pipeline ends: some of the least depths are no larger than these."""
        return any(all(map(int.__ge__, depths, least)) for least in self.least)

    def drawn(self, outcome):
        """Stages and queues, with the depths that were returned."""
        depths = outcome.value if isinstance(outcome.value, list) else []
        if len(depths) != len(self.queues):
            depths = [0] * len(self.queues)
        boxes, edges, places = [], [], {}
        for stage, kind in enumerate(self.stages):
            places[stage] = len(boxes)
            boxes.append(Box((f"stage {stage}, {kind}", counted(self.tiles, "tile"))))
            for queue, (writer, _) in enumerate(self.queues):
                if writer == stage:
                    edges.append(Arrow(places[stage], len(boxes)))
                    places["queue", queue] = len(boxes)
                    boxes.append(Box((f"queue {queue}", f"yours: {depths[queue]}"), dashed=True))
        for queue, (_, readers) in enumerate(self.queues):
            edges += [Arrow(places["queue", queue], places[reader]) for reader in readers]
        return layered(boxes, edges, outcome.why)


def asked(case, ask):
    found = ask("depths", list(case.stages), case.plain(), case.tiles)
    if len(found) != len(case.queues):
        return found, f"it returns {counted(len(found), 'depth')} for {counted(len(case.queues), 'queue')}"
    if any(depth < 1 for depth in found):
        return found, "a queue has at least one entry"
    return found, None


def ends_of(case, ask):
    found, wrong = asked(case, ask)
    if wrong or case.ends(found):
        return wrong
    return "with these depths the pipeline stops before every stage has fired for all tiles"


ends = item(
    "ends",
    "With these depths the pipeline does not stop before all stages have fired for all tiles.",
    draw="draw_pipeline",
    examples="two_places",
    weight=2,
)(ends_of)
softmax = item(
    "waiting values",
    "A queue holds a value until the total is there that it waits for.",
    draw="draw_skip",
    visible=6,
    hidden=20,
)(ends_of)


@item(
    "few",
    "All queues together have at most one entry a queue more than they must have, and the pipeline ends.",
    draw="draw_pipeline",
    builds=True,
)
def few(case, ask):
    found, wrong = asked(case, ask)
    if wrong or not case.ends(found):
        return ends_of(case, ask)
    most = len(found) + max(map(sum, case.least))
    return f"they have {sum(found)} entries; {most} are the most" if sum(found) > most else None


@item(
    "least",
    "With one entry less in any one queue, the pipeline would stop.",
    draw="draw_pipeline",
    examples="two_places",
    weight=2,
)
def least(case, ask):
    found, wrong = asked(case, ask)
    if wrong or tuple(found) in case.least:
        return wrong
    for place, depth in enumerate(found):
        if depth > 1 and case.ends([*found[:place], depth - 1, *found[place + 1 :]]):
            return f"queue {place} has {depth} entries; {depth - 1} would do"
    return ends_of(case, ask)


@item(
    "pure",
    "It leaves what it is given as it was: a second call with the same objects returns the same.",
    draw="draw_pipeline",
    visible=6,
    hidden=10,
    weight=0.5,
)
def pure(case, ask):
    return second_call(ask, "depths", list(case.stages), case.plain(), case.tiles)


# ---------------------------------------------------------------- relay


RELAY = {"draw": "draw_launch", "visible": 3, "hidden": 6, "cases_of": "relay"}


@item("relay", "Tile after tile, y is 2 x backwards.", **RELAY)
def relay(case, ask):
    return _wrong_cell(case, ask("relay", case))


def _wrong_cell(case, run):
    y, x = run.arrays["y"], case.arrays["x"]
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
    **RELAY,
)
def no_race(case, ask):
    ask("relay", case)


@item(
    "no deadlock",
    "No thread waits for ever, and all threads of a block come to the same barriers.",
    weight=2,
    rules=("deadlock", "divergent-barrier", "endless", "one-wave", "lane-mask"),
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
    **RELAY,
)
def inside(case, ask):
    ask("relay", case)


@item(
    "by the queue",
    "The result is right, each tile goes through the queue once, and threads and blocks share the work.",
    builds=True,
    **RELAY,
)
def by_the_queue(case, ask):
    run = ask("relay", case)
    size, most = case.arrays["x"].nbytes, case.most["thread_loads"]
    through = run.traffic.queues.get("queue", ArrayBytes())
    if (through.read, through.written) != (size, size):
        return f"{through.written} bytes are written to the queue and {through.read} read; x has {size}"
    shared = max(run.traffic.thread_shared_loads, run.traffic.thread_shared_stores)
    if shared > most:
        return f"one thread has {shared} accesses of shared memory; {most} are the most"
    counts = ("thread_loads", "thread_stores", "block_barriers_each", "grid_barriers")
    return too_much(run, case, counts) or _wrong_cell(case, run)
