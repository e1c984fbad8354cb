"""Items of A5. None of them holds the answer: each says what must be true of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

from minisitch.course import item, second_call, without

RETURNS = {"spans": dict[int, int], "grow": tuple[list[int], list[int]]}


# ---------------------------------------------------------------- cases
@dataclass(frozen=True)
class Values:
    """A graph: each value and who reads it, and what each costs. Ids say nothing about the order.

    ``spans`` are there where they are given to the submission, or are in the handout.
    """

    readers: dict[int, list[int]]
    cost: dict[int, int]
    variant: str
    spans: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"readers = {self.readers}, cost = {self.cost}"

    def step(self, value: int, reader: int) -> int:
        """What the step from a value to one of its readers costs in this term's variant."""
        return self.cost[reader if self.variant == "reader" else value]


@dataclass(frozen=True)
class Growth:
    """A graph, the root to grow from, the producers that do not fit, and the most values that do."""

    graph: Values
    root: int
    misfits: tuple[int, ...]
    most: int

    def __str__(self) -> str:
        rule = f"fits says no to {list(self.misfits)}, and to more than {self.most} values"
        return f"root = {self.root}, readers = {self.graph.readers}, spans = {self.graph.spans}; {rule}"


def fewer_values(case: Values) -> list[Values]:
    """The graph without one value, then with one cost less."""
    found = []
    for left_out in case.readers:
        readers = {
            value: without(users, left_out)
            for value, users in case.readers.items()
            if value != left_out
        }
        cost, spans = ({value: each[value] for value in readers if value in each} for each in (case.cost, case.spans))
        found.append(replace(case, readers=readers, cost=cost, spans=spans))
    found += [
        replace(case, readers={**case.readers, value: without(users, user)})
        for value, users in case.readers.items()
        for user in users
    ]
    found += [
        replace(case, cost={**case.cost, value: less}) for value, cost in case.cost.items()
        for less in (1, 2)
        if less < cost
    ]
    return [each for each in found if each.readers]


def fewer_growths(case: Growth) -> list[Growth]:
    graphs = [graph for graph in fewer_values(case.graph) if case.root in graph.readers]
    found = [replace(case, graph=graph) for graph in graphs]
    found += [
        replace(case, misfits=tuple(without(case.misfits, misfit))) for misfit in case.misfits
    ]
    return found + ([replace(case, most=100)] if case.most < 100 else [])


# ---------------------------------------------------------------- spans
@item(
    "example",
    "The handout's graph has the spans of the handout's table.",
    examples="figure",
)
def example(case, ask):
    found = ask("spans", case.readers, case.cost)
    for value, span in case.spans.items():
        if found.get(value) != span:
            return f"value {value} has span {found.get(value)} here, and {span} in the table"
    return None


@item(
    "every value",
    "Every value has one span, and nothing else has.",
    draw="draw_values",
    smaller=fewer_values,
)
def every_value(case, ask):
    found = ask("spans", case.readers, case.cost)
    if missing := sorted(case.readers.keys() - found.keys()):
        return f"value {missing[0]} has no span; a value that nobody reads is a root and has span 0"
    if extra := sorted(found.keys() - case.readers.keys()):
        return f"{extra[0]} has a span and is no value of the graph"
    return None


@item("roots", "A value that nobody reads has span 0.", draw="draw_values", smaller=fewer_values)
def roots(case, ask):
    found = ask("spans", case.readers, case.cost)
    for value, users in case.readers.items():
        if not users and found.get(value) != 0:
            return (
                f"nobody reads value {value}, and its span is {found.get(value)}; a root has span 0"
            )
    return None


@item(
    "above",
    "A value's span is higher than each reader's, by at least what the step costs.",
    draw="draw_values",
    smaller=fewer_values,
    weight=2,
    builds=True,
)
def above(case, ask):
    found = ask("spans", case.readers, case.cost)
    for value, users in case.readers.items():
        for user in users:
            least = found.get(user, 0) + case.step(value, user)
            if found.get(value, 0) < least:
                return (
                    f"value {value} has span {found.get(value)}; value {user} reads it and has span {found.get(user)}, "
                    f"and the step costs {case.step(value, user)}, so value {value} must have at least {least}"
                )
    return None


@item(
    "tight",
    "A span is no higher than it must be: some reader accounts for it exactly.",
    draw="draw_values",
    smaller=fewer_values,
    weight=2,
    builds=True,
)
def tight(case, ask):
    found = ask("spans", case.readers, case.cost)
    for value, users in case.readers.items():
        reasons = {found.get(user, 0) + case.step(value, user) for user in users}
        if users and found.get(value) not in reasons:
            return f"value {value} has span {found.get(value)}; its readers and their steps account for {sorted(reasons)}"
    return None


@item("deep", "A chain of 5,000 values is no harder than a short one.", examples=[5000])
def deep(case, ask):
    readers = {value: [value + 1] for value in range(case - 1)} | {case - 1: []}
    found = ask("spans", readers, dict.fromkeys(readers, 1), seconds=20)
    return (
        None
        if found.get(0) == case - 1
        else f"the first of {case} values in a chain has span {found.get(0)}, not {case - 1}"
    )


@item(
    "wide",
    "A ladder of 40 steps, in which 2^40 paths lead to the root, takes no time.",
    examples=[40],
)
def wide(case, ask):
    readers = {
        value: [
            other for other in range(2 * (value // 2) + 2, 2 * (value // 2) + 4) if other < 2 * case
        ]
        for value in range(2 * case)
    }
    found = ask("spans", readers, dict.fromkeys(readers, 1), seconds=3)
    return (
        None
        if found.get(0) == case - 1
        else f"the top of a ladder of {case} steps has span {found.get(0)}, not {case - 1}"
    )


# ---------------------------------------------------------------- grow
class _Fits:
    """The function that a submission asks. It keeps the calls."""

    def __init__(self, case: Growth) -> None:
        self.case, self.calls, self.agreed = case, [], set()

    def __call__(self, taken, producer):
        if type(taken) is not list or not all(type(value) is int for value in [*taken, producer]):
            raise TypeError("fits takes a list of values, and a value")
        self.calls.append((list(taken), producer))
        fits = producer not in self.case.misfits and len(taken) < self.case.most
        self.agreed |= {producer} if fits else set()
        return fits


def _grown(case, ask):
    """What grow returns, and the function that it asked."""
    fits = _Fits(case)
    taken, given_up = ask("grow", case.root, case.graph.readers, case.graph.spans, fits)
    return taken, given_up, fits


@item(
    "root first",
    "The list of taken values begins with the root. No value is listed twice, or in both lists.",
    draw="draw_growth",
    smaller=fewer_growths,
)
def root_first(case, ask):
    taken, given_up, _ = _grown(case, ask)
    if taken[:1] != [case.root]:
        return f"the first value taken is {taken[:1]}, not the root {case.root}"
    both = taken + given_up
    twice = [value for value in both if both.count(value) > 1]
    return f"value {twice[0]} is listed {both.count(twice[0])} times" if twice else None


@item(
    "complete",
    "Every producer of a taken value is taken, or given up for a reason. Nothing else is visited.",
    draw="draw_growth",
    smaller=fewer_growths,
    hidden=120,
    weight=2,
    builds=True,
)
def complete(case, ask):
    taken, given_up, fits = _grown(case, ask)
    readers, far = case.graph.readers, case.graph.spans
    if case.root not in taken:
        return f"the root {case.root} is not taken"
    near = {producer for producer, users in readers.items() if set(users) & set(taken)}
    if missed := sorted(near - set(taken) - set(given_up)):
        return f"value {missed[0]} is read by the kernel, and is neither taken nor given up"
    if stray := sorted((set(taken) | set(given_up)) - near - {case.root}):
        return f"value {stray[0]} is visited, and no taken value reads it"
    asked = {producer for _, producer in fits.calls}
    for producer in given_up:
        if (producer not in asked or producer in fits.agreed) and not any(
            user not in taken and far[user] > far[case.root] for user in readers[producer]
        ):
            return (
                f"value {producer} is given up without a reason: fits did not refuse it, and no reader outside the kernel "
                "is above the root's layer"
            )
    for value in taken:
        if value not in fits.agreed and value != case.root:
            return f"value {value} is taken, and fits did not agree to it"
    return None


@item(
    "circle",
    "No path leaves the kernel and comes back to it: else it would wait for itself.",
    draw="draw_growth",
    smaller=fewer_growths,
    hidden=120,
    weight=2,
    needs=("complete",),
)
def circle(case, ask):
    taken, _, _ = _grown(case, ask)
    readers = case.graph.readers
    reached = {
        user: (value, user)
        for value in taken
        for user in readers.get(value, ())
        if user not in taken
    }
    pending = list(reached)
    for value in pending:
        for user in readers[value]:
            if user in taken:
                return (
                    f"{reached[value][0]} is in the kernel, {reached[value][1]} reads it and is not; a path leads back from it "
                    f"to {user}, which is in the kernel"
                )
            if user not in reached:
                reached[user] = reached[value]
                pending.append(user)
    return None


@item(
    "order",
    "Producers are visited nearest layer first; of one layer, the smaller id first.",
    draw="draw_growth",
    smaller=fewer_growths,
    needs=("complete",),
)
def order(case, ask):
    _, _, fits = _grown(case, ask)
    far = case.graph.spans
    keys = [(far[producer], producer) for _, producer in fits.calls if producer in far]
    for earlier, later in pairwise(keys):
        if earlier > later:
            return f"fits is asked about value {earlier[1]} of layer {earlier[0]} before value {later[1]} of layer {later[0]}"
    return None


@item(
    "count",
    "fits is asked at most once about a producer, and never about one that has a reader outside above the root's layer.",
    draw="draw_growth",
    smaller=fewer_growths,
    needs=("complete",),
)
def count(case, ask):
    _, _, fits = _grown(case, ask)
    far, asked = case.graph.spans, [producer for _, producer in fits.calls]
    for taken, producer in fits.calls:
        if asked.count(producer) > 1:
            return f"fits is asked {asked.count(producer)} times about value {producer}; a schedule search is dear"
        outside = [
            user
            for user in case.graph.readers.get(producer, ())
            if user not in taken and far[user] > far[case.root]
        ]
        if outside:
            return f"fits is asked about value {producer}, which value {outside[0]} outside reads too: give it up without asking"
    return None


@item(
    "obeys",
    "What fits agrees to is taken, what it refuses is given up, and it is told what is taken so far.",
    draw="draw_growth",
    smaller=fewer_growths,
    needs=("complete",),
)
def obeys(case, ask):
    taken, given_up, fits = _grown(case, ask)
    so_far = [case.root]
    for told, producer in fits.calls:
        if sorted(told) != sorted(so_far):
            return f"fits is told that {sorted(told)} are taken when it is asked about value {producer}; taken are {sorted(so_far)}"
        if producer not in case.misfits and len(told) < case.most:
            so_far.append(producer)
        elif producer not in given_up:
            return f"fits refuses value {producer}, and it is not among those given up"
    if sorted(taken) == sorted(so_far):
        return None
    return f"taken are {sorted(taken)}; the root and what fits agreed to are {sorted(so_far)}"


@item(
    "pure",
    "The functions leave what they are given as it was: a second call with the same objects returns the same.",
    draw="draw_growth",
    smaller=fewer_growths,
    needs=("tight", "complete"),
)
def pure(case, ask):
    graph = case.graph
    grown = case.root, graph.readers, graph.spans, _Fits(case)
    return second_call(ask, "spans", graph.readers, graph.cost) or second_call(ask, "grow", *grown)
