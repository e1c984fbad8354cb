"""Graphs of operations that items draw and make smaller, and cases of several graphs. Assignments share them.

    {7: ("input", [], 64), 2: ("map", [7, 7], 64), 5: ("reduce", [2], 8)}

A graph is a dict: each operation's number, and a tuple of its kind, its operands and the elements of
its result. Numbers are names: they say nothing about the order. Kinds are "input", "map" (element-wise),
"heavy" (element-wise and slow, such as exp) and "reduce".
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from .items import Drawing

Operations = dict[int, tuple[str, list[int], int]]
COLUMNS = (4, 16, 64)  # elements that a drawn reduce folds into one


def draw_operations(
    at: Drawing, kinds: Sequence[str] = ("map", "map", "heavy", "reduce"), near: int = 4,
    most_inputs: int = 2,
) -> Operations:
    """``at.size`` operations after a few inputs. An operand is one of the ``near`` operations before."""
    inputs = at.random.randint(1, most_inputs)
    count = at.size + inputs
    ids = at.random.sample(range(3 * count), count)
    ops: Operations = {
        each: ("input", [], at.random.choice((64, 512, 4096))) for each in ids[:inputs]
    }
    for place, each in enumerate(ids[inputs:], inputs):
        kind = at.random.choice(kinds)
        before = ids[max(0, place - near) : place]
        arity = 1 if kind == "reduce" else at.random.choice((1, 2))
        operands = [at.random.choice(before) for _ in range(arity)]
        size = max(ops[operand][2] for operand in operands)
        if kind == "reduce":
            size = max(1, size // at.random.choice(COLUMNS))
        ops[each] = (kind, operands, size)
    return {each: ops[each] for each in at.random.sample(ids, count)}


def readers(ops: Operations) -> dict[int, list[int]]:
    """Each operation, and the operations that read it, each once."""
    found: dict[int, list[int]] = {each: [] for each in ops}
    for reader, (_, operands, _) in ops.items():
        for operand in dict.fromkeys(operands):
            found[operand].append(reader)
    return found


def smaller_operations(ops: Operations) -> Iterator[Operations]:
    """Graphs with less in them: one operation removed, one operand dropped, or one kind made plain.

    The readers of a removed operation read its first operand. An input that is read stays.
    """
    used = readers(ops)
    for gone, (_, operands, _) in ops.items():
        if operands or not used[gone]:
            yield {
                each: (kind, [operands[0] if one == gone else one for one in ones], size)
                for each, (kind, ones, size) in ops.items()
                if each != gone
            }
    for each, (kind, ones, size) in ops.items():
        if len(ones) > 1:
            yield {**ops, each: (kind, ones[:1], size)}
            yield {**ops, each: (kind, ones[1:], size)}
        if kind in ("heavy", "reduce"):
            yield {**ops, each: ("map", ones, size)}


def circle(ops: Operations, kernels: Sequence[Sequence[int]]) -> list[int]:
    """Kernels that wait for each other, as places in ``kernels``; an empty list if there are none.

    A kernel waits for each kernel that makes a value that it reads.
    """
    place = {each: at for at, kernel in enumerate(kernels) for each in kernel}
    waits: dict[int, set[int]] = {at: set() for at in range(len(kernels))}
    for each, (_, operands, _) in ops.items():
        if each in place:
            waits[place[each]] |= {place[one] for one in operands if one in place}
    try:
        TopologicalSorter({at: others - {at} for at, others in waits.items()}).prepare()
    except CycleError as problem:
        return sorted(set(problem.args[1]))
    return []


# ---------------------------------------------------------------- what a submission plans for
@dataclass(frozen=True)
class Several:
    """Cases that are judged together: a heuristic may lose a little on one of them. The first is drawn."""

    cases: tuple[Any, ...]

    def __str__(self) -> str:
        return "\n                  ".join(map(str, self.cases))

    def drawn(self, _: Any) -> Any:
        return self.cases[0]


def each_alone(several: Several) -> Iterator[Several]:
    """What makes ``Several`` smaller. One case is not made smaller: what is known of it would be wrong."""
    return (Several((each,)) for each in several.cases if len(several.cases) > 1)


class Valued:
    """The function that a submission asks what some operations are worth together. It counts the questions.

    What is no list of ``known`` numbers is worth ``otherwise``.
    """

    def __init__(self, value: Callable[[list[int]], int], known: Collection[int], otherwise: int) -> None:
        self.value, self.known, self.otherwise, self.asked = value, known, otherwise, 0

    def __call__(self, members: list[int]) -> int:
        self.asked += 1
        plain = type(members) is list and all(type(each) is int and each in self.known for each in members)
        return self.value(members) if plain else self.otherwise
