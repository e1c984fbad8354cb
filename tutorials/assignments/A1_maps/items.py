"""Items of A1. None of them holds the answer: each says what must be true of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from minisitch.course import item, second_call
from minisitch.course.graphs import Operations, circle, readers, smaller_operations
from minisitch.fuse import count as counted

RETURNS = {"fuse_maps": list[list[int]]}
MAPS = ("map", "heavy")


@dataclass(frozen=True)
class Program:
    """A graph, and the values that the program returns. ``kernels`` is the handout's count.

    ``joins`` are pairs of an operation and its only reader that share a kernel: all of a drawn case.
    """

    ops: Operations
    returned: tuple[int, ...]
    variant: str
    name: str = ""
    kernels: int = 0
    joins: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        return f"ops = {self.given}, returned = {list(self.returned)}"

    @property
    def given(self) -> dict[int, tuple[str, list[int]]]:
        """The graph as a submission gets it: without sizes."""
        return {value: (kind, operands) for value, (kind, operands, _) in self.ops.items()}


def fewer(case: Program) -> list[Program]:
    """Smaller programs. What may join goes on to do so."""
    found = [
        replace(
            case, ops=ops, returned=tuple(value for value in case.returned if value in ops),
            joins=tuple((maker, user) for maker, user in case.joins if maker in ops and user in ops),
        )
        for ops in smaller_operations(case.ops)
        if ops
    ]
    return found + [
        replace(case, returned=tuple(each for each in case.returned if each != value))
        for value in case.returned
    ]


def _kernel_of(kernels: list[list[int]]) -> dict[int, int]:
    return {value: at for at, kernel in enumerate(kernels) for value in kernel}


# ---------------------------------------------------------------- items
@item(
    "example", "The handout's programs have as many kernels as the handout says.", examples="programs"
)
def examples(case, ask):
    found = ask("fuse_maps", case.given, list(case.returned))
    if len(found) == case.kernels:
        return None
    return f"you make {counted(len(found), 'kernel')} of the program {case.name}; the handout's table has {case.kernels}"


@item(
    "chains",
    "In chains of maps and reduces, in which nobody else reads a value, maps that follow each other share a kernel.",
    draw="draw_separate",
    hidden=20,
    builds=True,
)
def chains(case, ask):
    found = ask("fuse_maps", case.given, list(case.returned))
    listed = [value for kernel in found for value in kernel]
    if sorted(listed) != sorted(value for value, (kind, _, _) in case.ops.items() if kind != "input"):
        return "not every operation is in exactly one kernel"
    pairs = {(one, other) for kernel in found for one in kernel for other in kernel if one != other}
    for maker, user in case.joins:
        if (maker, user) not in pairs:
            return f"map {user} follows map {maker}, and they do not share a kernel"
    for one, other in sorted(pairs):
        kinds = case.ops[one][0], case.ops[other][0]
        if "reduce" in kinds or not _reaches(case, one, other):
            return f"{kinds[0]} {one} and {kinds[1]} {other} share a kernel"
    return None


def _reaches(case: Program, one: int, other: int) -> bool:
    """Whether joins lead from one operation to the other, in either direction."""
    after = dict(case.joins)
    for value, wanted in ((one, other), (other, one)):
        while value in after:
            value = after[value]
            if value == wanted:
                return True
    return False


@item(
    "partition",
    "Every operation is in exactly one kernel. Inputs are in none.",
    draw="draw_program",
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
    draw="draw_program",
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
    draw="draw_program",
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
    draw="draw_chains",
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
    draw="draw_chains",
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
    for maker, user in case.joins:
        heavy = "heavy" in (case.ops[maker][0], case.ops[user][0])
        if heavy and place.get(maker) != place.get(user):
            return (
                f"operation {maker} may join its only reader {user}: a heavy operation is a map too"
            )
    return None


@item(
    "connected",
    "Operations share a kernel only if values pass between them inside it.",
    draw="draw_program",
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
    draw="draw_program",
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
    draw="draw_chains",
    smaller=fewer,
    hidden=100,
    weight=2,
    needs=("partition",),
)
def maximal(case, ask):
    place = _kernel_of(ask("fuse_maps", case.given, list(case.returned)))
    for maker, user in case.joins:
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
    draw="draw_program",
    smaller=fewer,
    needs=("partition",),
)
def pure(case, ask):
    return second_call(ask, "fuse_maps", case.given, list(case.returned))
