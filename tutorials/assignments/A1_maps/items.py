"""Items of A1. None of them holds the answer: each says what must be true of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from minisitch.course import Drawing, item, prediction, second_call
from minisitch.course.graphs import Operations, circle, draw_operations, readers, smaller_operations
from minisitch.fuse import count as counted

RETURNS = {"fuse_maps": list[list[int]]}
MAPS = ("map", "heavy")


@dataclass(frozen=True)
class Program:
    """A graph, and the values that the program returns. ``kernels`` is the handout's count."""

    ops: Operations
    returned: tuple[int, ...]
    variant: str
    name: str = ""
    kernels: int = 0

    def __str__(self) -> str:
        return f"ops = {self.given}, returned = {list(self.returned)}"

    @property
    def given(self) -> dict[int, tuple[str, list[int]]]:
        """The graph as a submission gets it: without sizes."""
        return {value: (kind, operands) for value, (kind, operands, _) in self.ops.items()}

    def why_not(self, maker: int) -> str:
        """Why an operation may not join its reader; an empty string if it may."""
        users = readers(self.ops)[maker]
        if self.ops[maker][0] not in MAPS:
            return f"operation {maker} is a {self.ops[maker][0]}"
        if len(users) != 1:
            return f"value {maker} has {len(users)} readers"
        if self.ops[users[0]][0] not in MAPS:
            return f"its reader {users[0]} is a {self.ops[users[0]][0]}"
        if maker in self.returned:
            return f"value {maker} is returned"
        if self.variant == "light" and self.ops[maker][0] == "heavy":
            return f"operation {maker} is heavy"
        return ""

    def joining(self) -> list[tuple[int, int]]:
        """The pairs of an operation and its only reader that share a kernel."""
        users = readers(self.ops)
        return [(maker, users[maker][0]) for maker in self.ops if not self.why_not(maker)]


def chain(kinds: str, start: int = 0) -> Operations:
    """Operations that follow each other, one for each letter of ``imhr``."""
    names = {"i": "input", "m": "map", "h": "heavy", "r": "reduce"}
    return {
        start + at: (names[kind], [start + at - 1] if at else [], 64)
        for at, kind in enumerate(kinds)
    }


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
    return Program(ops, found, at.variant)


def fewer(case: Program) -> list[Program]:
    found = [
        replace(case, ops=ops, returned=tuple(value for value in case.returned if value in ops))
        for ops in smaller_operations(case.ops)
        if ops
    ]
    return found + [
        replace(case, returned=tuple(each for each in case.returned if each != value))
        for value in case.returned
    ]


def example(case: Program, light: int):
    """A program of the handout; ``light`` is its number of kernels in that variant."""
    return lambda variant: replace(
        case, variant=variant, kernels=light if variant == "light" else case.kernels
    )


SOFTMAX = chain("irmhrm")
SOFTMAX[2], SOFTMAX[5] = ("map", [0, 1], 64), ("map", [3, 4], 64)
PAIR = chain("immm")
PAIR[3] = ("map", [1], 64)
SQUARE = chain("imhm")
SQUARE[3] = ("map", [2, 2], 64)
PROGRAMS = (
    example(Program(SQUARE, (3,), "", "square", 1), light=2),
    example(Program(SOFTMAX, (5,), "", "softmax", 4), light=4),
    example(Program(PAIR, (2, 3), "", "pair", 3), light=3),
    example(Program(chain("immm"), (2, 3), "", "kept", 2), light=2),
)


def _kernel_of(kernels: list[list[int]]) -> dict[int, int]:
    return {value: at for at, kernel in enumerate(kernels) for value in kernel}


# ---------------------------------------------------------------- items
@item(
    "example", "The handout's programs have as many kernels as the handout says.", examples=PROGRAMS
)
def examples(case, ask):
    found = ask("fuse_maps", case.given, list(case.returned))
    if len(found) == case.kernels:
        return None
    return f"you make {counted(len(found), 'kernel')} of the program {case.name}; the handout's table has {case.kernels}"


@item(
    "partition",
    "Every operation is in exactly one kernel. Inputs are in none.",
    draw=draw_program,
    smaller=fewer,
)
def partition(case, ask):
    found = ask("fuse_maps", case.given, list(case.returned))
    listed = [value for kernel in found for value in kernel]
    for value, (kind, _, _) in case.ops.items():
        count = listed.count(value)
        if count != (kind != "input"):
            return f"{kind} {value} is in {count} kernels"
    if strange := [value for value in listed if value not in case.ops]:
        return f"{strange[0]} is in a kernel and is no operation of the graph"
    return "a kernel is empty" if not all(found) else None


@item(
    "kinds",
    "A reduce shares its kernel with nothing.",
    draw=draw_program,
    smaller=fewer,
    needs=("partition",),
)
def kinds(case, ask):
    for kernel in ask("fuse_maps", case.given, list(case.returned)):
        for value in kernel:
            if case.ops.get(value, ("",))[0] == "reduce" and len(kernel) > 1:
                return f"the kernel {kernel} holds the reduce {value} and other operations"
    return None


def _inside(case, found, refused):
    """A value that is read inside its own kernel although the rule ``refused`` says that it may not."""
    place = _kernel_of(found)
    for maker, users in readers(case.ops).items():
        for user in users:
            if maker in place and place[maker] == place.get(user) and refused(maker, users):
                return maker, user
    return None


@item(
    "readers",
    "A value with several readers is not read inside its own kernel.",
    draw=draw_program,
    smaller=fewer,
    hidden=100,
    weight=2,
    needs=("partition",),
)
def several_readers(case, ask):
    found = ask("fuse_maps", case.given, list(case.returned))
    pair = _inside(case, found, lambda maker, users: len(users) > 1)
    if pair is None:
        return None
    users = readers(case.ops)[pair[0]]
    return f"value {pair[0]} shares a kernel with its reader {pair[1]}, and its readers are {users}"


@item(
    "returned",
    "A returned value is not read inside its own kernel.",
    draw=draw_chains,
    smaller=fewer,
    needs=("partition",),
)
def returned(case, ask):
    found = ask("fuse_maps", case.given, list(case.returned))
    pair = _inside(case, found, lambda maker, users: maker in case.returned)
    return pair and f"value {pair[0]} is returned, and shares a kernel with its reader {pair[1]}"


@item(
    "this term",
    "This term's rule about heavy operations holds.",
    draw=draw_chains,
    smaller=fewer,
    needs=("partition",),
)
def this_term(case, ask):
    found = ask("fuse_maps", case.given, list(case.returned))
    if case.variant == "light":
        pair = _inside(case, found, lambda maker, users: case.ops[maker][0] == "heavy")
        return (
            pair and f"operation {pair[0]} is heavy, and shares a kernel with its reader {pair[1]}"
        )
    place = _kernel_of(found)
    for maker, user in case.joining():
        heavy = "heavy" in (case.ops[maker][0], case.ops[user][0])
        if heavy and place.get(maker) != place.get(user):
            return (
                f"operation {maker} may join its only reader {user}: a heavy operation is a map too"
            )
    return None


@item(
    "connected",
    "Operations share a kernel only if values pass between them inside it.",
    draw=draw_program,
    smaller=fewer,
    needs=("partition",),
)
def connected(case, ask):
    users = readers(case.ops)
    for kernel in ask("fuse_maps", case.given, list(case.returned)):
        reached = kernel[:1]
        for value in reached:
            near = [*case.ops.get(value, ("", []))[1], *users.get(value, ())]
            reached += [
                each for each in dict.fromkeys(near) if each in kernel and each not in reached
            ]
        if left := sorted(set(kernel) - set(reached)):
            return f"in the kernel {kernel} no value passes between {reached} and {left}"
    return None


@item(
    "circle",
    "No kernels wait for each other.",
    draw=draw_program,
    smaller=fewer,
    hidden=100,
    needs=("partition",),
)
def no_circle(case, ask):
    found = ask("fuse_maps", case.given, list(case.returned))
    if waiting := circle(case.ops, found):
        return (
            f"of the kernels {[found[at] for at in waiting]} none can begin: each waits for another"
        )
    return None


@item(
    "maximal",
    "Every operation that may join its only reader does.",
    draw=draw_chains,
    smaller=fewer,
    hidden=100,
    weight=2,
    needs=("partition",),
)
def maximal(case, ask):
    place = _kernel_of(ask("fuse_maps", case.given, list(case.returned)))
    for maker, user in case.joining():
        if place.get(maker) != place.get(user):
            return f"operation {maker} may join operation {user}: both are maps, and nobody else reads value {maker}"
    return None


@item("deep", "A chain of 5,000 maps is no harder than a short one.", examples=[5000])
def deep(case, ask):
    ops = {0: ("input", [])} | {value: ("map", [value - 1]) for value in range(1, case + 1)}
    found = ask("fuse_maps", ops, [case], seconds=20)
    return None if len(found) == 1 else f"a chain of {case} maps has {len(found)} kernels"


@item(
    "pure",
    "The function leaves what it is given as it was: a second call with the same objects returns the same.",
    draw=draw_program,
    smaller=fewer,
    needs=("partition",),
)
def pure(case, ask):
    return second_call(ask, "fuse_maps", case.given, list(case.returned))


# ---------------------------------------------------------------- predictions
def _count(case: Program) -> int:
    """The number of kernels: each join makes one less."""
    return sum(kind != "input" for kind, _, _ in case.ops.values()) - len(case.joining())


@prediction
def kernels(at):
    case = draw_program(at)
    return f"{case}. How many kernels are there?", _count(case)


@prediction
def through_memory(at):
    case = draw_program(at)
    joined = {maker for maker, _ in case.joining()}
    passed = [
        value
        for value, users in readers(case.ops).items()
        if case.ops[value][0] != "input" and users and value not in joined
    ]
    return f"{case}. How many values does one kernel write and another kernel read?", len(passed)


@prediction
def one_more_returned(at):
    case = draw_chains(at)
    joining = [maker for maker, _ in case.joining()]
    value = joining[0] if joining else case.returned[0]
    changed = replace(case, returned=(*case.returned, value))
    return (
        f"{case}. The program is changed: it returns value {value} too. How many kernels are there now?",
        _count(changed),
    )
