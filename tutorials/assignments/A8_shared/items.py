"""Items of A8. None of them holds the answer: each says what must be true of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from minisitch.course import item, second_call
from minisitch.course.items import conforms
from minisitch.explain.picture import memory_map

RETURNS = {"share": tuple[dict[int, int], int], "give_up": list[int]}


@dataclass(frozen=True)
class Lives:
    """Buffers: bytes, first and last phase. Offsets are multiples of ``slot``."""

    buffers: dict[int, tuple[int, int, int]]
    slot: int
    variant: str

    def __str__(self) -> str:
        return f"buffers = {self.buffers}, slot = {self.slot}"

    def drawn(self, outcome):
        """Phases from left to right, bytes from top to bottom: each buffer where it was put."""
        offsets, total = outcome.value if conforms(outcome.value, RETURNS["share"]) else ({}, 0)
        put = [
            (str(name), max(0, offsets.get(name, 0)), size, self.phases(name).start, self.phases(name).stop - 1)
            for name, (size, _, _) in self.buffers.items()
        ]
        ends = [start + size for _, start, size, *_ in put]
        return memory_map(put, max([1, total, *ends]), "as you put them", "phase")

    def phases(self, name: int) -> range:
        """The phases in which nobody else may use a buffer's bytes."""
        _, first, last = self.buffers[name]
        return range(first, last + (self.variant == "exclusive"))

    def meet(self, one: int, other: int) -> bool:
        a, b = self.phases(one), self.phases(other)
        return a.start < b.stop and b.start < a.stop

    def live(self) -> int:
        """The most bytes that are live in one phase, each buffer rounded up to whole slots."""
        ends = {phase for name in self.buffers for phase in self.phases(name)}
        return max(
            (
                sum(
                    -(-self.buffers[name][0] // self.slot) * self.slot
                    for name in self.buffers
                    if phase in self.phases(name)
                )
                for phase in ends
            ),
            default=0,
        )


@dataclass(frozen=True)
class Wishes:
    """Buffers that want shared memory: bytes and reads. ``limit`` is in bytes."""

    wishes: dict[int, tuple[int, int]]
    limit: int

    def __str__(self) -> str:
        return f"wishes = {self.wishes}, limit = {self.limit}"

    def drawn(self, outcome):
        """What is kept, one behind the other, and what is given up."""
        gone = outcome.value if conforms(outcome.value, RETURNS["give_up"]) else []
        put, ends = [], [0, 0]
        for name, (size, _) in self.wishes.items():
            column = int(name in gone)
            put.append((f"{name}: {size} B", ends[column], size, column, column))
            ends[column] += size
        title = f"column 0 is kept, column 1 is given up, the limit is {self.limit}"
        return memory_map(put, max(1, self.limit, *ends), title, "column")


def fewer_lives(case: Lives) -> list[Lives]:
    return [
        replace(case, buffers={name: life for name, life in case.buffers.items() if name != gone})
        for gone in case.buffers
        if len(case.buffers) > 1
    ]


def fewer_wishes(case: Wishes) -> list[Wishes]:
    return [
        replace(case, wishes={name: wish for name, wish in case.wishes.items() if name != gone})
        for gone in case.wishes
        if len(case.wishes) > 1
    ]


# ---------------------------------------------------------------- share
@item(
    "every buffer",
    "Every buffer has one offset, and nothing else has.",
    draw="draw_lives",
    smaller=fewer_lives,
    weight=0.5,
)
def every_buffer(case, ask):
    offsets, _ = ask("share", case.buffers, case.slot)
    if wrong := sorted(offsets.keys() ^ case.buffers.keys()):
        return (
            f"{wrong[0]} has {'an offset and is no buffer' if wrong[0] in offsets else 'no offset'}"
        )
    return None


@item(
    "apart",
    "No two buffers that are live together overlap.",
    draw="draw_lives",
    smaller=fewer_lives,
    weight=2,
    hidden=120,
    needs=("every buffer",),
)
def apart(case, ask):
    offsets, _ = ask("share", case.buffers, case.slot)
    return _overlap(case, offsets)


def _overlap(case: Lives, offsets: dict[int, int]) -> str | None:
    spans = {
        name: (offsets[name], offsets[name] + case.buffers[name][0])
        for name in case.buffers
        if name in offsets
    }
    for one in spans:
        for other in spans:
            if (
                one < other
                and case.meet(one, other)
                and spans[one][0] < spans[other][1]
                and spans[other][0] < spans[one][1]
            ):
                return f"buffer {one} has bytes {spans[one]} and buffer {other} has {spans[other]}; both are live in one phase"
    return None


@item(
    "aligned",
    "Offsets are multiples of the slot, and not negative.",
    draw="draw_lives",
    smaller=fewer_lives,
    needs=("every buffer",),
)
def aligned(case, ask):
    offsets, _ = ask("share", case.buffers, case.slot)
    for name, offset in offsets.items():
        if offset % case.slot or offset < 0:
            return f"buffer {name} begins at {offset}; slots have {case.slot} bytes"
    return None


@item(
    "inside",
    "The total is where the last buffer ends: no more and no less.",
    draw="draw_lives",
    smaller=fewer_lives,
    examples="none",
    needs=("every buffer",),
)
def inside(case, ask):
    offsets, total = ask("share", case.buffers, case.slot)
    ends = max(
        (offsets[name] + case.buffers[name][0] for name in case.buffers if name in offsets),
        default=0,
    )
    return None if total == ends else f"the total is {total}, and the last buffer ends at {ends}"


@item(
    "small",
    "Buffers of one size that follow each other need no more than what is live at once.",
    draw="draw_chain",
    smaller=fewer_lives,
    weight=2,
    builds=True,
)
def small(case, ask):
    offsets, total = ask("share", case.buffers, case.slot)
    if offsets.keys() != case.buffers.keys():
        return "not every buffer has an offset"
    total = max([total, *(offsets[name] + size for name, (size, *_) in case.buffers.items())])
    if total > case.live():
        return f"it needs {total} bytes; {case.live()} are live at once"
    return _overlap(case, offsets)


@item(
    "close",
    "On mixed buffers the total is at most 1.5 times what is live at once.",
    draw="draw_lives",
    smaller=fewer_lives,
    weight=2,
    needs=("apart",),
)
def close(case, ask):
    _, total = ask("share", case.buffers, case.slot)
    return (
        None
        if 2 * total <= 3 * case.live()
        else f"it needs {total} bytes; {case.live()} are live at once"
    )


# ---------------------------------------------------------------- give_up
@item("fits", "What is left fits into the limit.", draw="draw_wishes", smaller=fewer_wishes)
def fits(case, ask):
    gone = ask("give_up", case.wishes, case.limit)
    left = sum(size for name, (size, _) in case.wishes.items() if name not in gone)
    return None if left <= case.limit else f"{left} bytes are left, and the limit is {case.limit}"


@item(
    "no more",
    "Nothing is given up that need not be: without the last one it would not fit.",
    draw="draw_wishes",
    smaller=fewer_wishes,
    builds=True,
)
def no_more(case, ask):
    gone = ask("give_up", case.wishes, case.limit)
    if sum(size for name, (size, _) in case.wishes.items() if name not in gone) > case.limit:
        return "what is left does not fit"
    if strange := [name for name in gone if name not in case.wishes or gone.count(name) > 1]:
        return f"{strange[0]} is given up, and is no buffer, or is listed twice"
    left = sum(size for name, (size, _) in case.wishes.items() if name not in gone[:-1])
    return (
        f"buffer {gone[-1]} need not go: {left} bytes fit into {case.limit}"
        if gone and left <= case.limit
        else None
    )


@item(
    "order",
    "Fewest reads a byte go first; of equal ones the larger, then the smaller number.",
    draw="draw_wishes",
    smaller=fewer_wishes,
    weight=2,
    hidden=120,
    needs=("fits",),
    examples="close_call",
)
def order(case, ask):
    gone = ask("give_up", case.wishes, case.limit)
    if strange := [name for name in gone if name not in case.wishes]:
        return f"{strange[0]} is given up, and is no buffer"
    ranked = gone + sorted(set(case.wishes) - set(gone))
    for at, one in enumerate(gone):
        for other in ranked[at + 1 :]:
            (size, reads), (other_size, other_reads) = case.wishes[one], case.wishes[other]
            if (other_reads * size, -other_size, other) < (reads * other_size, -size, one):
                return (
                    f"buffer {one} goes before buffer {other}: {reads} reads of {size} bytes, against {other_reads} reads of "
                    f"{other_size} bytes"
                )
    return None


@item(
    "pure",
    "The functions leave what they are given as it was: a second call with the same objects returns the same.",
    draw="draw_lives",
    smaller=fewer_lives,
    needs=("every buffer", "fits"),
)
def pure(case, ask):
    wishes = {name: (size, 1 + last) for name, (size, _, last) in case.buffers.items()}
    half = sum(size for size, _ in wishes.values()) // 2
    return second_call(ask, "share", case.buffers, case.slot) or second_call(ask, "give_up", wishes, half)
