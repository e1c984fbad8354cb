"""What draws the cases of A11, and knows the best plans and those to beat. It stays at home."""

from __future__ import annotations

from dataclasses import replace

from items import Program
from minisitch.course import Drawing, prediction
from minisitch.course.graphs import (
    Several,
    circle,
    draw_operations,
    readers,
)


def auto(case: Program) -> list[list[int]]:
    """The plan to beat. Each operation in turn joins the kernel of an operand where that saves most."""
    kernels: list[list[int]] = []
    for at, value in enumerate(case.work):
        rest = [[one] for one in case.work[at + 1 :]]
        best, home = 0, None
        for kernel in kernels:
            joined = [*kernel, value]
            near = set(kernel) & set(case.ops[value][1])
            if not near or case.misfit(joined) or case.price(joined) < 0:
                continue
            saved = case.price(kernel) + case.price([value]) - case.price(joined)
            others = [each for each in kernels if each is not kernel]
            if saved > best and not circle(case.ops, [joined, *others, *rest]):
                best, home = saved, kernel
        if home is None:
            kernels.append([value])
        else:
            home.append(value)
    return kernels


def draw_program(at: Drawing) -> Program:
    kinds = ("map", "map", "map", "heavy", "reduce", "reduce")
    ops = draw_operations(at, kinds, near=3)
    found = tuple(
        value for value, users in readers(ops).items() if not users or at.random.random() < 0.05
    )
    return Program(ops, found, at.variant)


def optimum(case: Program) -> int:
    """The price of the best plan: kernels are launched one after the other, and every next one is tried."""
    count = len(case.work)
    bit = {value: 1 << at for at, value in enumerate(case.work)}
    needs = [sum(bit.get(one, 0) for one in set(case.ops[v][1])) for v in case.work]
    chosen = [[v for v in case.work if bit[v] & mask] for mask in range(1 << count)]
    needed = [0] * (1 << count)
    for mask in range(1, 1 << count):
        low = (mask & -mask).bit_length() - 1
        needed[mask] = needed[mask & mask - 1] | needs[low]
    prices: dict[int, int] = {}
    least = [0] + [-1] * ((1 << count) - 1)
    for done in range(1 << count):
        if least[done] < 0:
            continue
        free = ~done & (1 << count) - 1
        following = free
        while following:
            if following not in prices:
                misfit = case.misfit(chosen[following])
                prices[following] = -1 if misfit else case.price(chosen[following])
            if prices[following] >= 0 and not needed[following] & ~(done | following):
                price = least[done] + prices[following]
                then = done | following
                if least[then] < 0 or price < least[then]:
                    least[then] = price
            following = following - 1 & free
    return least[-1]


def known(case: Program) -> Program:
    """The program with the prices of the best plan and of ``auto``."""
    return replace(case, best=optimum(case), auto=case.total(auto(case)))


def draw_small(at: Drawing) -> Several:
    """Six programs of five to eight operations, whose best plans can be found."""
    sizes = (5, 6, 7, 7, 8, 8)
    return Several(tuple(known(draw_program(replace(at, size=size))) for size in sizes))


def draw_beatable(at: Drawing) -> Several:
    """Four programs of seven or eight operations. The plan of ``auto`` is not the best of any."""
    found: list[Program] = []
    while len(found) < 4:
        program = known(draw_program(replace(at, size=7 + len(found) // 2)))
        if program.auto > program.best:
            found.append(program)
    return Several(tuple(found))


def draw_large(at: Drawing) -> Program:
    case = draw_program(replace(at, size=14 + at.size % 3))
    return replace(case, auto=case.total(auto(case)))


def _drawn(at: Drawing) -> Program:
    return draw_program(replace(at, size=6))


# ---------------------------------------------------------------- predictions
@prediction
def price_of_one(at):
    case = _drawn(at)
    while True:
        kernel = sorted(at.random.sample(case.work, 3))
        if case.price(kernel) >= 0:
            return f"{case}. What is the price of the kernel {kernel}?", case.price(kernel)


@prediction
def price_apart(at):
    case = _drawn(at)
    return f"{case}. What do the operations take, if each has a kernel of its own?", case.apart()


@prediction
def not_built(at):
    case = _drawn(at)
    kernels = [sorted(at.random.sample(case.work, 3)) for _ in range(6)]
    count = sum(case.price(kernel) < 0 for kernel in kernels)
    return f"{case}. How many of the kernels {kernels} cannot be built?", count
