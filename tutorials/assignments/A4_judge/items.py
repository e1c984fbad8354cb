"""Items of A4. What is true of two moments is asked of the stepper's own judge."""

from __future__ import annotations

from dataclasses import dataclass

from minisitch.course import item, second_call
from minisitch.explain.picture import Arrow, Box, layered
from minisitch.simt.memory import Stamp

RETURNS = {"ordered": bool, "verdicts": list[bool]}
WARP = 32


def plain(stamp):
    """A moment as a submission sees it."""
    known = {block: (epoch, dict(moments)) for block, (epoch, moments) in stamp.known.items()}
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
    """Two moments, of which the first came first. ``ordered``: on this term's machine it is over before the second."""

    before: Stamp
    after: Stamp
    ordered: bool
    what: str = ""

    def __str__(self):
        said = f"{self.what}\n" if self.what else ""
        return f"{said}  before = {shown(self.before)}\n  after = {shown(self.after)}"

    def drawn(self, _):
        """The two moments as boxes, an entry of the dict a line."""
        boxes = [
            Box((name, *(f"{key} {value}"[:60] for key, value in entries(moment).items())))
            for name, moment in (("before", self.before), ("after", self.after))
        ]
        return layered(boxes, [Arrow(0, 1)], str(self.what or "two moments"))


# ---------------------------------------------------------------- single pairs


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
    examples="examples",
    visible=0,
)(verdict_of)


def pair_item(name, rule, draw, weight=1.0):
    return item(name, rule, draw=draw, visible=12, hidden=40, weight=weight, builds=name == "release")(verdict_of)


no_barrier = item(
    "no barrier",
    "Without a barrier, what a thread did is over when it goes on, and for no thread of another warp.",
    draw="draw_no_barrier",
    visible=12,
    hidden=40,
    builds=True,
)(verdict_of)
block_barrier = pair_item(
    "block barrier", "A barrier of the block orders all threads of that block.", "draw_block_barrier"
)
same_warp = pair_item(
    "same warp",
    "Lanes of a warp are ordered as this term's machine orders them.",
    "draw_same_warp",
    2,
)
grid_barrier = pair_item(
    "grid barrier", "A barrier of the grid orders all threads of all blocks.", "draw_grid_barrier"
)
other_block = pair_item(
    "other block", "Barriers of a block say nothing about other blocks.", "draw_other_block"
)
release = pair_item(
    "release",
    "What a block has acquired from another is over, and no more than that.",
    "draw_release",
    2,
)


# ---------------------------------------------------------------- whole kernels


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


KERNELS = {"weight": 2}


@item(
    "good kernels",
    "Kernels without a race are accepted: tree sums, softmax, a scan, a histogram, blocks that hand over by a queue.",
    examples="visible_good",
    draw="draw_good",
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
    examples="visible_racy",
    draw="draw_racy",
    builds=True,
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
    draw="draw_release",
    visible=6,
    hidden=12,
    weight=0.5,
)
def pure(case, ask):
    return second_call(ask, "ordered", plain(case.before), plain(case.after))
