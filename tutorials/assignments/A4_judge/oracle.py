"""What draws the pairs of A4, and asks the stepper's own judge what is true of them. It stays at home."""

from __future__ import annotations

import functools
import importlib
import random
import sys
from pathlib import Path

import numpy as np

import minisitch as ms
from items import WARP, Judged, Pair
from minisitch.course import prediction
from minisitch.course.assignment import data_file
from minisitch.simt import step
from minisitch.simt.memory import Past, Stamp
from minisitch.testing.seams import SEAMS

MOST_PAIRS, MOST_BEFORE = 60, 10  # of one kernel; of one before its race


happens_before = SEAMS["ordered"].reference


def truth(before, after, variant):
    """Whether one moment is over before the other, on this term's machine."""
    in_step = variant == "in_step" and before.block == after.block
    return (in_step and before.thread // WARP == after.thread // WARP) or happens_before(
        before, after
    )


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


def examples(variant):
    """The twelve pairs of the handout."""
    return [judged_pair(before, after, variant, what) for what, before, after in EXAMPLES]


def judged_pair(before, after, variant, what=""):
    return Pair(before, after, truth(before, after, variant), what)


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
    return judged_pair(stamp(**first), stamp(**second), at.variant)


def draw_no_barrier(at):
    return at.random.choice((draw_same_thread, draw_same_block))(at)


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


@functools.cache
def questioned():
    """The good kernels in which the stepper has something to ask."""
    return [place for place in range(len(pool()[0])) if judged(0, place, 0)[1]]


def good_kernel(place, seed, variant):
    name, asked, _ = judged(0, questioned()[place % len(questioned())], seed)
    drawn = random.Random(seed).sample(asked, min(MOST_PAIRS, len(asked)))
    return Judged(name, tuple(judged_pair(*each, variant) for each in drawn))


def racy_kernel(place, seed, variant):
    """A kernel whose race is one on this term's machine: the next one in the pool. The race is one of the pairs."""
    count = len(pool()[1])
    for each in range(place, place + count):
        name, asked, rule = judged(1, each % count, seed)
        if rule == "race" and not truth(*asked[-1], variant):
            before = random.Random(seed).sample(asked[:-1], min(MOST_BEFORE, len(asked) - 1))
            before.insert(random.Random(seed).randint(0, len(before)), asked[-1])
            return Judged(name, tuple(judged_pair(*each, variant) for each in before))
    raise AssertionError("the pool has no race")


def visible_good(variant):
    return [good_kernel(place, 0, variant) for place in (0, 1, 2, 4, -1)]


def draw_good(at):
    return good_kernel(at.size - 2, 1, at.variant)


def visible_racy(variant):
    return [racy_kernel(place, 0, variant) for place in (0, 4, 8, 12, 16, 20)]


def draw_racy(at):
    return racy_kernel(2 * (at.size - 2), 1, at.variant)


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
