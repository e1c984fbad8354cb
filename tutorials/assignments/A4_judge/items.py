"""Items of A4. What is true of two moments is asked of the stepper's own judge."""

from __future__ import annotations

import functools
import importlib
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minisitch as ms
from minisitch.course import item, prediction, second_call
from minisitch.course.assignment import data_file
from minisitch.explain.picture import Arrow, Box, layered
from minisitch.simt import step
from minisitch.simt.memory import Past, Stamp
from minisitch.testing.seams import SEAMS

RETURNS = {"ordered": bool, "verdicts": list[bool]}
WARP = 32
MOST_PAIRS = 60  # of one kernel
happens_before = SEAMS["ordered"].reference


def truth(before, after, variant):
    """Whether one moment is over before the other, on this term's machine."""
    in_step = variant == "in_step" and before.block == after.block
    return (in_step and before.thread // WARP == after.thread // WARP) or happens_before(
        before, after
    )


def plain(stamp):
    """A moment as a submission sees it."""
    known = {block: (past.epoch, dict(past.moments)) for block, past in stamp.known.items()}
    return {
        "block": stamp.block,
        "thread": stamp.thread,
        "grid_epoch": stamp.grid_epoch,
        "block_epoch": stamp.block_epoch,
        "moment": stamp.moment,
        "seen": list(stamp.seen),
        "known": known,
    }


def entries(stamp):
    """The entries of a moment. The 32 numbers of ``seen`` are said in short."""
    counted = f"0 but for { {lane: count for lane, count in enumerate(stamp.seen) if count} }"
    return {**plain(stamp), "seen": counted if len(set(stamp.seen)) > 1 else f"all {stamp.seen[0]}"}


def shown(stamp):
    """A moment in words."""
    return ", ".join(f"{name} {value}" for name, value in entries(stamp).items())


@dataclass(frozen=True)
class Pair:
    """Two moments, of which the first came first."""

    before: Stamp
    after: Stamp
    variant: str
    what: str = ""

    def __str__(self):
        said = f"{self.what}\n" if self.what else ""
        return f"{said}  before = {shown(self.before)}\n  after = {shown(self.after)}"

    @property
    def ordered(self):
        return truth(self.before, self.after, self.variant)

    def drawn(self, _):
        """The two moments as boxes, an entry of the dict a line."""
        boxes = [
            Box((name, *(f"{key} {value}"[:60] for key, value in entries(moment).items())))
            for name, moment in (("before", self.before), ("after", self.after))
        ]
        return layered(boxes, [Arrow(0, 1)], str(self.what or "two moments"))


def stamp(block=0, thread=0, grid=0, epoch=0, moment=0, seen=None, known=None):
    """A moment. ``seen`` is a dict of lanes."""
    return Stamp(
        block,
        thread,
        grid,
        epoch,
        moment,
        tuple((seen or {}).get(k, 0) for k in range(WARP)),
        known or {},
    )


# ---------------------------------------------------------------- single pairs
EXAMPLES = (
    ("one thread, twice", stamp(), stamp()),
    ("two threads of a block, no barrier", stamp(thread=40), stamp(thread=3)),
    ("a barrier of the block lies between", stamp(thread=40), stamp(thread=3, epoch=1)),
    ("both come after the same barrier", stamp(thread=40, epoch=1), stamp(thread=3, epoch=1)),
    ("two lanes of a warp, no barrier", stamp(thread=5), stamp(thread=9)),
    (
        "a barrier of the warp lies between",
        stamp(thread=5),
        stamp(thread=9, moment=1, seen={5: 1, 9: 1}),
    ),
    ("the warp's barrier left lane 5 out", stamp(thread=5), stamp(thread=9, moment=1, seen={9: 1})),
    ("two blocks, no barrier", stamp(block=1, epoch=0), stamp(block=0, epoch=3)),
    ("a barrier of the grid lies between", stamp(block=1), stamp(block=0, grid=1)),
    (
        "block 0 has acquired what block 1 released",
        stamp(block=1, thread=7),
        stamp(known={1: Past(0, {7: 1})}),
    ),
    (
        "it has acquired something older",
        stamp(block=1, thread=7, moment=1),
        stamp(known={1: Past(0, {7: 1})}),
    ),
    (
        "it was released after a barrier of block 1",
        stamp(block=1, thread=7),
        stamp(known={1: Past(1, {9: 1})}),
    ),
)


def verdict_of(pair, ask):
    """What is wrong with a verdict about one pair."""
    found = ask("ordered", plain(pair.before), plain(pair.after))
    if found == pair.ordered:
        return None
    return (
        "the first need not be over when the second happens"
        if found
        else "the first is surely over when the second happens"
    )


example = item(
    "example",
    "Twelve pairs of the handout.",
    examples=[
        lambda variant, each=each: Pair(each[1], each[2], variant, each[0]) for each in EXAMPLES
    ],
    visible=0,
)(verdict_of)


def a_moment(at, **fixed):
    """Any moment, but for what is fixed."""
    draw = at.random.randrange
    drawn = {
        "block": draw(4),
        "thread": draw(96),
        "grid": draw(2),
        "epoch": draw(4),
        "moment": draw(3),
    }
    seen = {lane: draw(4) for lane in at.random.sample(range(WARP), 4)}
    return {**drawn, "seen": seen, "known": {}, **fixed}


def draw_same_thread(at):
    first = a_moment(at)
    return pair(
        at,
        first,
        {**first, "epoch": first["epoch"] + at.random.randrange(2), "moment": first["moment"] + 1},
    )


def draw_block_barrier(at):
    first = a_moment(at)
    later = first["epoch"] + at.random.randint(1, 2)
    return pair(at, first, a_moment(at, block=first["block"], grid=first["grid"], epoch=later))


def draw_same_block(at):
    """Threads of two warps, and no barrier between."""
    first = a_moment(at, thread=at.random.randrange(64))
    other = (first["thread"] + at.random.choice((32, at.random.randint(32, 63)))) // WARP * WARP
    same = {each: first[each] for each in ("block", "grid", "epoch")}
    lane = at.random.choice((first["thread"] % WARP, at.random.randrange(WARP)))
    seen = {each: first["moment"] + 1 for each in range(WARP)}
    return pair(
        at, first, a_moment(at, thread=other + lane, seen=seen, **same)
    )


def draw_same_warp(at):
    """Two lanes, of which the second has seen a moment more, or has not."""
    first = a_moment(at)
    lane, base = first["thread"] % WARP, first["thread"] // WARP * WARP
    other = (lane + at.random.randint(1, 31)) % WARP
    same = {each: first[each] for each in ("block", "grid", "epoch")}
    seen = {each: at.random.randrange(5) for each in at.random.sample(range(WARP), 5)}
    seen[lane] = max(0, first["moment"] + at.random.choice((-1, 0, 0, 1, 1, 2)))
    first["seen"] = {other: at.random.randrange(5), lane: at.random.randrange(5)}
    return pair(at, first, a_moment(at, thread=base + other, seen=seen, **same))


def draw_grid_barrier(at):
    first = a_moment(at, grid=0)
    block = at.random.choice((first["block"], first["block"] + 1))
    return pair(
        at,
        first,
        a_moment(
            at,
            block=block,
            grid=1,
            epoch=first["epoch"] + (block == first["block"]) * at.random.randrange(2),
        ),
    )


def draw_other_block(at):
    """Two blocks. The second has acquired nothing, or something of a third block."""
    first = a_moment(at, thread=at.random.randrange(96))
    known = at.random.choice(({}, {9: Past(5, {first["thread"]: 9})}))
    thread = at.random.choice((first["thread"], at.random.randrange(96)))
    epoch = first["epoch"] + at.random.randrange(3)
    seen = {lane: 5 for lane in range(WARP)}
    return pair(
        at,
        first,
        a_moment(
            at,
            block=first["block"] + 1,
            thread=thread,
            grid=first["grid"],
            epoch=epoch,
            seen=seen,
            known=known,
        ),
    )


def draw_release(at):
    """The second has acquired something of the first's block: enough, or too little."""
    first = a_moment(at)
    epoch = max(0, first["epoch"] + at.random.choice((-1, 0, 0, 0, 1)))
    most = first["moment"] + (epoch == first["epoch"] and at.random.randrange(2))
    if epoch > first["epoch"]:
        most = at.random.randrange(2)
    moments = {(first["thread"] + k) % 96: first["moment"] + 1 for k in (1, 2, 32)}
    if most:
        moments[first["thread"]] = most
    known = {first["block"]: Past(epoch, moments)}
    return pair(at, first, a_moment(at, block=first["block"] + 1, grid=first["grid"], known=known))


def pair(at, first, second):
    return Pair(stamp(**first), stamp(**second), at.variant)


def pair_item(name, rule, draw, weight=1.0):
    return item(name, rule, draw=draw, visible=12, hidden=40, weight=weight, needs=("no barrier",))(
        verdict_of
    )


def draw_no_barrier(at):
    return at.random.choice((draw_same_thread, draw_same_block))(at)


no_barrier = item(
    "no barrier",
    "Without a barrier, what a thread did is over when it goes on, and for no thread of another warp.",
    draw=draw_no_barrier,
    visible=12,
    hidden=40,
)(verdict_of)
block_barrier = pair_item(
    "block barrier", "A barrier of the block orders all threads of that block.", draw_block_barrier
)
same_warp = pair_item(
    "same warp",
    "Lanes of a warp are ordered as this term's machine orders them.",
    draw_same_warp,
    2,
)
grid_barrier = pair_item(
    "grid barrier", "A barrier of the grid orders all threads of all blocks.", draw_grid_barrier
)
other_block = pair_item(
    "other block", "Barriers of a block say nothing about other blocks.", draw_other_block
)
release = pair_item(
    "release",
    "What a block has acquired from another is over, and no more than that.",
    draw_release,
    2,
)


# ---------------------------------------------------------------- whole kernels
@functools.cache
def pool():
    """Kernels by name: text, launch and changes. The good ones, and those with a race."""
    folder = str(data_file(Path(__file__).parent, "tests/simt_kernels.py").parent)
    sys.path.insert(0, folder)
    try:
        simt, queue = (importlib.import_module(name) for name in ("simt_kernels", "queue_kernels"))
    finally:
        sys.path.remove(folder)
    handoff = queue.PIPELINES["handoff"]
    good = [(name, case.text, case, {}) for name, case in simt.CASES.items()]
    good.append(("handoff", handoff.text, handoff, {}))
    racy = []
    for mutant in simt.MUTANTS:
        if "race" in mutant.rules:
            case = simt.CASES[mutant.case]
            text = case.text.replace(mutant.old, mutant.new) if mutant.old else case.text
            racy.append((f"{mutant.case}: {mutant.name}", text, case, mutant.launch))
    for mutant in queue.MUTANTS:
        if mutant.pipeline == "handoff" and mutant.rules == ("race",) and mutant.always:
            text = functools.reduce(
                lambda text, change: text.replace(*change), mutant.changes, handoff.text
            )
            racy.append((f"handoff: {mutant.name}", text, handoff, {}))
    return good, racy


@functools.cache
def judged(kind, place, seed):
    """What the stepper asks its judge while it runs a kernel: pairs, the last of which it refuses if there is a race."""
    name, text, case, changes = pool()[kind][place]
    asked = []

    def watched(before, after):
        asked.append((before, after))
        return happens_before(before, after)

    options = {
        "inputs": case.inputs,
        "wave": getattr(case, "wave", None),
        "grid": case.grid,
        "block": case.block,
        **changes,
    }
    try:
        with ms.swapped("ordered", watched):
            step(text, case.make(np.random.default_rng(seed)), seed=seed, **options)
    except ms.KernelBug as bug:
        return name, asked, bug.rule
    return name, asked, ""


@dataclass(frozen=True)
class Judged:
    """Pairs of moments of one kernel, in the order in which the stepper asks about them."""

    name: str
    pairs: tuple[Pair, ...]

    def __str__(self):
        return self.name

    def drawn(self, outcome):
        """The first pair whose verdict is wrong."""
        verdicts = outcome.value or []
        wrong = [pair for pair, verdict in zip(self.pairs, verdicts, strict=False) if verdict != pair.ordered]
        return (wrong or self.pairs)[0].drawn(outcome)


@functools.cache
def questioned():
    """The good kernels in which the stepper has something to ask."""
    return [place for place in range(len(pool()[0])) if judged(0, place, 0)[1]]


def good_kernel(place, seed, variant):
    name, asked, _ = judged(0, questioned()[place % len(questioned())], seed)
    drawn = random.Random(seed).sample(asked, min(MOST_PAIRS, len(asked)))
    return Judged(name, tuple(Pair(*each, variant) for each in drawn))


def racy_kernel(place, seed, variant):
    """A kernel whose race is one on this term's machine: the next one in the pool."""
    count = len(pool()[1])
    for each in range(place, place + count):
        name, asked, rule = judged(1, each % count, seed)
        if rule == "race" and not truth(*asked[-1], variant):
            return Judged(name, (Pair(*asked[-1], variant),))
    raise AssertionError("the pool has no race")


def verdicts_of(case, ask):
    """The verdicts about all pairs of a kernel, and the first pair whose verdict is wrong."""
    moments = [plain(each) for pair in case.pairs for each in (pair.before, pair.after)]
    found = ask("verdicts", moments, [(2 * k, 2 * k + 1) for k in range(len(case.pairs))])
    if len(found) != len(case.pairs):
        return f"verdicts returns {len(found)} verdicts for {len(case.pairs)} pairs; leave that function as it is"
    wrong = [
        pair for pair, verdict in zip(case.pairs, found, strict=True) if verdict != pair.ordered
    ]
    if not wrong:
        return None
    said = (
        "is a good kernel, and your judge refuses it"
        if wrong[0].ordered
        else "has a race, and your judge accepts it"
    )
    return f"{case.name} {said}:\n{wrong[0]}"


KERNELS = {"needs": ("no barrier",), "weight": 2}


@item(
    "good kernels",
    "Kernels without a race are accepted: tree sums, softmax, a scan, a histogram, blocks that hand over by a queue.",
    examples=[
        lambda variant, place=place: good_kernel(place, 0, variant) for place in (0, 1, 2, 4, -1)
    ],
    draw=lambda at: good_kernel(at.size - 2, 1, at.variant),
    visible=0,
    hidden=11,
    hidden_size=12,
    **KERNELS,
)
def good_kernels(case, ask):
    return verdicts_of(case, ask)


@item(
    "racy kernels",
    "Kernels with a race are refused where the race is.",
    examples=[
        lambda variant, place=place: racy_kernel(place, 0, variant)
        for place in (0, 4, 8, 12, 16, 20)
    ],
    draw=lambda at: racy_kernel(2 * (at.size - 2), 1, at.variant),
    visible=0,
    hidden=26,
    hidden_size=27,
    **KERNELS,
)
def racy_kernels(case, ask):
    return verdicts_of(case, ask)


@item(
    "pure",
    "It leaves what it is given as it was: a second call with the same objects returns the same.",
    draw=draw_release,
    visible=6,
    hidden=12,
    weight=0.5,
    needs=("no barrier",),
)
def pure(case, ask):
    return second_call(ask, "ordered", plain(case.before), plain(case.after))


# ---------------------------------------------------------------- predictions
@prediction
def three_verdicts(at):
    pairs = [
        draw(at)
        for draw in at.random.sample(
            (draw_same_warp, draw_release, draw_other_block, draw_same_block), 3
        )
    ]
    return (
        "Which of these pairs are ordered? Answer with a list of three, each True or False.\n"
        + "\n".join(map(str, pairs)),
        [each.ordered for each in pairs],
    )


@prediction
def ordered_pairs(at):
    threads, lanes = at.random.choice((64, 96, 128)), at.random.choice((8, 16))
    groups = threads // lanes
    return (
        f"On a GPU of today, {threads} threads of a block each write a cell. Then each passes a "
        f"cuda.syncwarp whose mask names its group of {lanes} neighbouring lanes, and reads a cell. "
        "How many pairs of a write and a read, of two different threads, are ordered?",
        groups * lanes * (lanes - 1),
    )


@prediction
def over_at_a_barrier(at):
    blocks, threads = at.random.randint(2, 5), at.random.choice((32, 64))
    return (
        f"{blocks} blocks of {threads} threads each write a cell in every thread, pass cuda.syncthreads(), "
        "and read a cell. How many pairs of a write and a read, of two different threads, are ordered?",
        blocks * threads * (threads - 1),
    )
