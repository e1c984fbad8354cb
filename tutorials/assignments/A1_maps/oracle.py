"""What draws the cases of A1, and knows which operations may join. It stays at home."""

from __future__ import annotations

from dataclasses import replace

from items import MAPS, Program
from minisitch.course import Drawing, prediction
from minisitch.course.graphs import Operations, draw_operations, readers


def chain(kinds: str, start: int = 0) -> Operations:
    """Operations that follow each other, one for each letter of ``imhr``."""
    names = {"i": "input", "m": "map", "h": "heavy", "r": "reduce"}
    return {
        start + at: (names[kind], [start + at - 1] if at else [], 64)
        for at, kind in enumerate(kinds)
    }


def why_not(case: Program, maker: int) -> str:
    """Why an operation may not join its reader; an empty string if it may."""
    users = readers(case.ops)[maker]
    if case.ops[maker][0] not in MAPS:
        return f"operation {maker} is a {case.ops[maker][0]}"
    if len(users) != 1:
        return f"value {maker} has {len(users)} readers"
    if case.ops[users[0]][0] not in MAPS:
        return f"its reader {users[0]} is a {case.ops[users[0]][0]}"
    if maker in case.returned:
        return f"value {maker} is returned"
    if case.variant == "light" and case.ops[maker][0] == "heavy":
        return f"operation {maker} is heavy"
    return ""


def joined(case: Program) -> Program:
    """The program with its pairs of an operation and its only reader that share a kernel."""
    users = readers(case.ops)
    joins = tuple((maker, users[maker][0]) for maker in case.ops if not why_not(case, maker))
    return replace(case, joins=joins)


def draw_separate(at: Drawing) -> Program:
    """Three chains of maps and reduces, under numbers that say nothing."""
    ops: Operations = {}
    for _ in range(3):
        kinds = "i" + "".join(at.random.choice("mmmr") for _ in range(at.random.randint(2, at.size + 1))) + "mm"
        ops |= chain(kinds, len(ops))
    new = at.random.sample(range(3 * len(ops)), len(ops))
    ops = {new[value]: (kind, [new[one] for one in ones], size) for value, (kind, ones, size) in ops.items()}
    ends = tuple(value for value, users in readers(ops).items() if not users)
    ops = {value: ops[value] for value in at.random.sample(sorted(ops), len(ops))}
    return joined(Program(ops, ends, at.variant))


def draw_program(at: Drawing) -> Program:
    """Any graph. Each value that nobody reads is returned, and some others are."""
    return _returning(at, draw_operations(at))


def draw_chains(at: Drawing) -> Program:
    """Mostly maps, each with few readers: many operations join."""
    kinds = ("map", "map", "map", "map", "heavy", "reduce")
    return _returning(at, draw_operations(at, kinds, near=2))


def _returning(at: Drawing, ops: Operations) -> Program:
    found = tuple(
        value
        for value, users in readers(ops).items()
        if ops[value][0] != "input" and (not users or at.random.random() < 0.15)
    )
    return joined(Program(ops, found, at.variant))


def programs(variant: str) -> list[Program]:
    """The programs of the handout, each with its number of kernels in this variant."""
    counts = {"square": (1, 2), "softmax": (4, 4), "pair": (3, 3), "kept": (2, 2)}
    graphs = {"square": (SQUARE, (3,)), "softmax": (SOFTMAX, (5,)), "pair": (PAIR, (2, 3)), "kept": (chain("immm"), (2, 3))}
    return [Program(*graphs[name], variant, name, counts[name][variant == "light"]) for name in graphs]


SOFTMAX = chain("irmhrm")


SOFTMAX[2], SOFTMAX[5] = ("map", [0, 1], 64), ("map", [3, 4], 64)


PAIR = chain("immm")


PAIR[3] = ("map", [1], 64)


SQUARE = chain("imhm")


SQUARE[3] = ("map", [2, 2], 64)


def _count(case: Program) -> int:
    """The number of kernels: each join makes one less."""
    return sum(kind != "input" for kind, _, _ in case.ops.values()) - len(case.joins)


# ---------------------------------------------------------------- predictions
@prediction
def kernels(at):
    case = draw_program(at)
    return f"{case}. How many kernels are there?", _count(case)


@prediction
def through_memory(at):
    case = draw_program(at)
    joined = {maker for maker, _ in case.joins}
    passed = [
        value
        for value, users in readers(case.ops).items()
        if case.ops[value][0] != "input" and users and value not in joined
    ]
    return f"{case}. How many values does one kernel write and another kernel read?", len(passed)


@prediction
def one_more_returned(at):
    case = draw_chains(at)
    joining = [maker for maker, _ in case.joins]
    value = joining[0] if joining else case.returned[0]
    changed = replace(case, returned=(*case.returned, value))
    return (
        f"{case}. The program is changed: it returns value {value} too. How many kernels are there now?",
        _count(joined(changed)),
    )
