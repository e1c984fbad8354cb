"""Items of A11. They hold the price of a kernel, and the plan that is to be beaten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from minisitch.course import item, second_call
from minisitch.course.graphs import (
    Operations,
    Several,
    Valued,
    circle,
    each_alone,
    readers,
    smaller_operations,
)

RETURNS = {"plan": list[list[int]]}
# Prices are in the time that one element takes to or from memory. Shared memory holds 600 elements.
LAUNCH, BARRIER, SHARED, SPILL = 300, 600, 600, 4
MOST_OPERATIONS, MOST_ARRAYS = 5, 4  # of a kernel, in one variant and in the other
QUESTIONS = 5  # may be asked, times the square of the number of operations


# ---------------------------------------------------------------- cases
@dataclass(frozen=True)
class Program:
    """A graph, and the values that the program returns.

    ``best`` and ``auto`` are the prices of the best plan and of the plan to beat, where an item is about them.
    """

    ops: Operations
    returned: tuple[int, ...]
    variant: str
    best: int = 0
    auto: int = 0

    def __str__(self) -> str:
        return f"ops = {self.ops}, returned = {list(self.returned)}"

    @cached_property
    def work(self) -> list[int]:
        """The operations that are no inputs, each behind its operands."""
        left = {value: set(operands) for value, (_, operands, _) in self.ops.items()}
        found: list[int] = []
        while left:
            ready = [value for value, waits in left.items() if not waits & left.keys()]
            found += [value for value in ready if self.ops[value][0] != "input"]
            for value in ready:
                del left[value]
        return found

    @cached_property
    def users(self) -> dict[int, list[int]]:
        return readers(self.ops)

    @cached_property
    def reached(self) -> dict[int, set[int]]:
        """What each value reaches."""
        found: dict[int, set[int]] = {}
        for value in reversed(self.work):
            found[value] = set(self.users[value]).union(
                *(found[user] for user in self.users[value])
            )
        return found

    def misfit(self, kernel: list[int]) -> str:
        """Why this term's rule forbids a kernel, or an empty string."""
        if self.variant == "five":
            if len(kernel) <= MOST_OPERATIONS:
                return ""
            return (
                f"the kernel {kernel} has {len(kernel)} operations; {MOST_OPERATIONS} are the most"
            )
        read, written = self.arrays(set(kernel))
        if len(read) + len(written) <= MOST_ARRAYS:
            return ""
        return f"the kernel {kernel} reads {sorted(read)} and writes {sorted(written)}; {MOST_ARRAYS} arrays are the most"

    def arrays(self, inside: set[int]) -> tuple[set[int], set[int]]:
        """The values that a kernel reads from memory, and those that it writes."""
        read = {one for value in inside for one in self.ops[value][1]} - inside
        written = {v for v in inside if v in self.returned or set(self.users[v]) - inside}
        return read, written

    def price(self, kernel: list[int]) -> int:
        """The time of one kernel; -1 if it waits for itself, or is no list of operations.

        A launch, each element that is read from memory or written to it, a barrier for each step from a
        reduce to what reads it, and what finds no place in shared memory. A value needs shared memory
        if it is read behind a barrier. A reduce's own value is small and needs none.
        """
        inside = set(kernel)
        if not inside or not inside <= set(self.work):
            return -1
        behind = set().union(*(self.reached[value] for value in inside)) - inside
        if any(self.reached[value] & inside for value in behind):
            return -1
        sizes = {value: size for value, (_, _, size) in self.ops.items()}
        level: dict[int, int] = {}
        for value in self.work:
            if value in inside:
                makers = [one for one in self.ops[value][1] if one in inside]
                level[value] = max(
                    (level[one] + (self.ops[one][0] == "reduce") for one in makers), default=0
                )
        read, written = self.arrays(inside)
        kept = sum(
            sizes[value]
            for value in inside
            if self.ops[value][0] != "reduce"
            and any(level[user] > level[value] for user in self.users[value] if user in inside)
        )
        moved = sum(sizes[value] for value in [*read, *written])
        return LAUNCH + moved + BARRIER * max(level.values()) + SPILL * max(0, kept - SHARED)

    def total(self, kernels: list[list[int]]) -> int:
        return sum(map(self.price, kernels))

    def apart(self) -> int:
        """The price of one kernel for each operation."""
        return self.total([[value] for value in self.work])

    def problem(self, kernels: list[list[int]]) -> str:
        """Why a plan is not legal, or an empty string."""
        listed = [value for kernel in kernels for value in kernel]
        for value in self.work:
            if listed.count(value) != 1:
                return f"operation {value} is in {listed.count(value)} kernels"
        if strange := sorted(set(listed) - set(self.work)):
            return f"{strange[0]} is in a kernel and is no operation"
        for kernel in kernels:
            if not kernel:
                return "a kernel is empty"
            if self.misfit(kernel):
                return self.misfit(kernel)
            if self.price(kernel) < 0:
                return f"the kernel {kernel} waits for itself: a path leaves it and comes back"
        if waiting := circle(self.ops, kernels):
            return f"of the kernels {[kernels[at] for at in waiting]} none can begin: each waits for another"
        return ""


def fewer(case: Program) -> Iterator[Program]:
    for ops in smaller_operations(case.ops):
        users = readers(ops)
        found = tuple(v for v in ops if v in case.returned or not users[v])
        if any(kind != "input" for kind, _, _ in ops.values()):
            yield replace(case, ops=ops, returned=found)


def _price(case: Program) -> Valued:
    return Valued(case.price, case.work, -1)


def _plan(case: Program, ask) -> tuple[list[list[int]], Valued]:
    price = _price(case)
    return ask("plan", case.ops, list(case.returned), price), price


def _gain(case: Program, kernels: list[list[int]]) -> int:
    """What a plan saves against one kernel for each operation; 0 for a plan that is not legal."""
    return 0 if case.problem(kernels) else case.apart() - case.total(kernels)


# ---------------------------------------------------------------- items
@item(
    "legal",
    "Every operation is in one kernel, every kernel can be built and obeys this term's rule, and none wait for each other.",
    draw="draw_program",
    smaller=fewer,
    visible=10,
    hidden=10,
    size=10,
    hidden_size=12,
    weight=2,
)
def legal(case, ask):
    return case.problem(_plan(case, ask)[0]) or None


@item(
    "saves",
    "A plan is never slower than one kernel for each operation.",
    draw="draw_program",
    smaller=fewer,
    visible=8,
    hidden=4,
    size=9,
    hidden_size=10,
)
def saves(case, ask):
    kernels, _ = _plan(case, ask)
    gain = _gain(case, kernels)
    return (
        f"your plan takes {case.total(kernels)}, and apart they take {case.apart()}"
        if gain < 0
        else None
    )


def _share_of_optimum(case: Several, ask, percent: int) -> str | None:
    got = most = 0
    for program in case.cases:
        got += _gain(program, _plan(program, ask)[0])
        most += program.apart() - program.best
    return (
        f"your plans save {100 * got // most}% of what can be saved"
        if 100 * got < percent * most
        else None
    )


@item(
    "half",
    "Your plans save at least half of what can be saved.",
    draw="draw_small",
    smaller=each_alone,
    visible=1,
    hidden=1,
    weight=2,
    builds=True,
)
def half(case, ask):
    return _share_of_optimum(case, ask, 50)


@item(
    "beats auto",
    "Your plans save more than those of the handout's `auto`.",
    draw="draw_beatable",
    smaller=each_alone,
    visible=1,
    hidden=2,
    weight=3,
)
def beats_auto(case, ask):
    got = most = 0
    for program in case.cases:
        got += _gain(program, _plan(program, ask)[0])
        most += program.apart() - program.auto
    # a single program is a case only in the search for the smallest
    beaten = got > most or (len(case.cases) == 1 and got == most)
    return None if beaten else f"your plans save {got}, and those of auto save {most}"


@item(
    "close",
    "Your plans save at least 95% of what can be saved.",
    draw="draw_small",
    smaller=each_alone,
    visible=1,
    hidden=2,
    weight=3,
)
def close(case, ask):
    return _share_of_optimum(case, ask, 95)


@item(
    "questions",
    f"The price is asked at most {QUESTIONS} times the square of the number of operations.",
    draw="draw_large",
    smaller=fewer,
    visible=1,
    hidden=1,
    seconds=4,
)
def questions(case, ask):
    _, price = _plan(case, ask)
    count = len(case.work)
    if price.asked <= QUESTIONS * count**2:
        return None
    return f"the price is asked {price.asked} times for {count} operations"


@item(
    "large",
    "A large program has a legal plan within four seconds, which saves four fifths of what `auto` saves.",
    draw="draw_large",
    visible=1,
    hidden=1,
    seconds=4,
    weight=2,
)
def large(case, ask):
    kernels, _ = _plan(case, ask)
    if problem := case.problem(kernels):
        return problem
    got, most = _gain(case, kernels), case.apart() - case.auto
    return None if 5 * got >= 4 * most else f"your plan saves {got}, and that of auto saves {most}"


@item(
    "numbers",
    "Other numbers for the same operations save as much, but for a fifth.",
    draw="draw_small",
    visible=1,
    hidden=1,
)
def numbers(case, ask):
    first = second = 0
    for program in case.cases:
        new = {value: 1000 - 3 * value for value in program.ops}
        ops = {
            new[value]: (kind, [new[one] for one in operands], size)
            for value, (kind, operands, size) in reversed(program.ops.items())
        }
        twin = replace(program, ops=ops, returned=tuple(new[one] for one in program.returned))
        first += _gain(program, _plan(program, ask)[0])
        second += _gain(twin, _plan(twin, ask)[0])
    if abs(first - second) * 5 <= max(first, second):
        return None
    return f"your plans save {first}; with other numbers they save {second}"


@item(
    "again",
    "A second call with the same objects returns the same.",
    draw="draw_program",
    smaller=fewer,
    visible=4,
    hidden=4,
    size=9,
    hidden_size=10,
)
def again(case, ask):
    return second_call(ask, "plan", case.ops, list(case.returned), _price(case))
