"""Items of A6. None of them holds the answer: each says what must be true of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from minisitch.course import NoAnswer, item, second_call
from minisitch.course.graphs import Several, Valued, each_alone
from minisitch.fuse import count as counted

RETURNS = {"best_patterns": list[list[list[int]]]}
ENOUGH = 90  # percent of the optimum


# ---------------------------------------------------------------- cases
@dataclass(frozen=True)
class Vertices:
    """A graph in topological order: who reads a vertex, the bytes that it writes, and what fits into one kernel.

    ``most`` is the largest gain of each vertex, where an item is about it.
    """

    consumers: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    limit: int
    k: int
    variant: str
    most: tuple[int, ...] = ()

    def __str__(self) -> str:
        worth = (
            f"sizes {list(self.sizes)}, limit {self.limit}" if self.limit else "gain(p) = len(p)"
        )
        return f"consumers = {self.given}, k = {self.k}; {worth}"

    @property
    def readers(self) -> dict[int, list[int]]:
        """The graph as `show` draws it."""
        return dict(enumerate(self.given))

    @property
    def given(self) -> list[list[int]]:
        return [list(each) for each in self.consumers]

    def gain(self, pattern: list[int]) -> int:
        """What a kernel of a pattern saves: launches and trips through memory, less what its size costs.

        An edge inside saves one trip. A vertex all of whose neighbours (in the direction in which patterns
        grow) are inside saves another. What is above the limit costs six times.
        """
        if not self.limit:
            return len(pattern)
        inside, saved = set(pattern), 0
        for vertex in inside:
            within = [each for each in self.near[vertex] if each in inside]
            saved += self.sizes[vertex] * len(within)
            if within and len(within) == len(self.near[vertex]):
                saved += self.sizes[vertex]
        over = sum(self.sizes[vertex] for vertex in inside) - self.limit
        return saved + 2 * (len(inside) - 1) - 6 * max(0, over)

    @cached_property
    def near(self) -> list[list[int]]:
        """Where a pattern grows to from each vertex, in this term's variant."""
        if self.variant == "begin":
            return self.given
        return [
            [one for one, readers in enumerate(self.consumers) if vertex in readers]
            for vertex in range(len(self.consumers))
        ]

    @cached_property
    def reached(self) -> list[int]:
        """What each vertex reaches along ``near``, as bits."""
        found = [0] * len(self.consumers)
        for _ in found:
            for vertex, others in enumerate(self.near):
                for other in others:
                    found[vertex] |= found[other] | 1 << other
        return found

    def way_back(self, pattern: list[int]) -> int | None:
        """A vertex outside a pattern on a path that leaves the pattern and comes back."""
        mask = sum(1 << vertex for vertex in set(pattern))
        for vertex, reaches in enumerate(self.reached):
            outside = not mask >> vertex & 1
            if (
                outside
                and reaches & mask
                and any(self.reached[one] >> vertex & 1 for one in pattern)
            ):
                return vertex
        return None

    def unreached(self, vertex: int, pattern: list[int]) -> list[int]:
        """The members of a pattern that do not hang together with a vertex inside the pattern."""
        seen = [vertex]
        for one in seen:
            seen += [each for each in self.near[one] if each in pattern and each not in seen]
        return sorted(set(pattern) - set(seen))


def fewer(case: Vertices) -> Iterator[Vertices]:
    """Without one vertex, then without one edge."""
    for gone in range(len(case.consumers)):
        if len(case.consumers) > 1:
            yield replace(
                case,
                consumers=tuple(
                    tuple(one - (one > gone) for one in readers if one != gone)
                    for vertex, readers in enumerate(case.consumers)
                    if vertex != gone
                ),
                sizes=case.sizes[:gone] + case.sizes[gone + 1 :],
            )
    for vertex, readers in enumerate(case.consumers):
        for gone in readers:
            left = tuple(one for one in readers if one != gone)
            yield replace(
                case, consumers=(*case.consumers[:vertex], left, *case.consumers[vertex + 1 :])
            )


# ---------------------------------------------------------------- items
def _gain(case: Vertices) -> Valued:
    return Valued(case.gain, range(len(case.sizes)), 0)


def _found(case: Vertices, ask) -> tuple[list[list[list[int]]], Valued]:
    gain = _gain(case)
    return ask("best_patterns", case.given, gain, case.k), gain


@item(
    "form",
    "Each vertex has at least one pattern and at most k. A pattern is sorted, and contains its vertex.",
    draw="draw_vertices",
    smaller=fewer,
    visible=4,
    hidden=4,
    size=9,
    hidden_size=12,
)
def form(case, ask):
    found, _ = _found(case, ask)
    if len(found) != len(case.sizes):
        return f"it returns {counted(len(found), 'list')}, and there are {len(case.sizes)} vertices"
    for vertex, patterns in enumerate(found):
        if not 1 <= len(patterns) <= case.k:
            return f"vertex {vertex} has {len(patterns)} patterns"
        for pattern in patterns:
            if pattern != sorted(set(pattern)):
                return f"the pattern {pattern} of vertex {vertex} is not sorted, or lists a vertex twice"
            if strange := [one for one in pattern if not 0 <= one < len(case.sizes)]:
                return f"{strange[0]} is in the pattern {pattern} and is no vertex"
            if vertex not in pattern:
                return f"the pattern {pattern} of vertex {vertex} does not contain it"
    return None


def _each(case: Vertices, ask) -> Iterator[tuple[int, list[list[int]]]]:
    found, _ = _found(case, ask)
    for vertex, patterns in enumerate(found[: len(case.sizes)]):
        strange = [one for pattern in patterns for one in pattern if not 0 <= one < len(case.sizes)]
        if strange or not patterns:
            said = f"{strange[0]}, which is no vertex" if strange else "no pattern"
            raise NoAnswer("broken", f"vertex {vertex} has {said}")
        yield vertex, patterns


@item(
    "hangs together",
    "Every member of a pattern hangs together with its vertex inside the pattern, in this term's direction.",
    draw="draw_vertices",
    smaller=fewer,
    visible=4,
    hidden=4,
    size=9,
    hidden_size=12,
)
def hangs_together(case, ask):
    for vertex, patterns in _each(case, ask):
        for pattern in patterns:
            if left := case.unreached(vertex, pattern):
                return f"the pattern {pattern} is one of vertex {vertex}; no path inside it connects {vertex} with {left[0]}"
    return None


@item(
    "closed",
    "No path leaves a pattern and comes back to it.",
    draw="draw_vertices",
    smaller=fewer,
    visible=8,
    hidden=8,
    size=13,
    hidden_size=12,
    weight=2,
)
def closed(case, ask):
    for vertex, patterns in _each(case, ask):
        for pattern in patterns:
            between = case.way_back(pattern)
            if between is not None:
                return f"the pattern {pattern} of vertex {vertex} does not contain {between}, and a path goes through it and back"
    return None


@item(
    "distinct",
    "No pattern is listed twice for a vertex.",
    draw="draw_vertices",
    smaller=fewer,
    visible=4,
    hidden=4,
    size=9,
    hidden_size=12,
    weight=0.5,
)
def distinct(case, ask):
    for vertex, patterns in _each(case, ask):
        for pattern in patterns:
            if patterns.count(pattern) > 1:
                return f"vertex {vertex} has the pattern {pattern} {patterns.count(pattern)} times"
    return None


@item(
    "best first",
    "The patterns of a vertex are listed by their gain, the largest first.",
    draw="draw_vertices",
    smaller=fewer,
    visible=4,
    hidden=4,
    size=9,
    hidden_size=12,
)
def best_first(case, ask):
    for vertex, patterns in _each(case, ask):
        for one, other in zip(patterns, patterns[1:], strict=False):
            if case.gain(one) < case.gain(other):
                return f"vertex {vertex} lists {one} with gain {case.gain(one)} before {other} with gain {case.gain(other)}"
    return None


@item(
    "figure 4",
    "On the paper's figure, where a pattern gains its length, one pattern is the whole figure but vertex 0.",
    examples="figure_4",
)
def figure(case, ask):
    vertex = 1 if case.variant == "begin" else len(case.sizes) - 2
    for number, patterns in _each(case, ask):
        if number == vertex and len(patterns[0]) < len(case.sizes) - 1:
            return f"the best pattern of vertex {vertex} is {patterns[0]}; a larger one is closed"
    return None


def _share(case: Several, ask, percent: int, legal: bool) -> str | None:
    """What is wrong if the best patterns, or the best legal ones, have a smaller share of the largest gains."""
    most = got = 0
    worst = ""
    for graph in case.cases:
        found = list(_each(graph, ask))
        if len(found) != len(graph.sizes):
            return f"it returns {counted(len(found), 'list')}, and there are {len(graph.sizes)} vertices"
        for vertex, patterns in found:
            counted_ones = [
                pattern for pattern in patterns
                if not legal or (vertex in pattern and graph.way_back(pattern) is None and not graph.unreached(vertex, pattern))
            ]
            gain = max(map(graph.gain, counted_ones), default=0)
            got, most = got + gain, most + graph.most[vertex]
            if gain < graph.most[vertex] and not worst:
                worst = f"; for example, the best pattern of vertex {vertex} has a gain of {gain}, and a better one exists"
    return f"they have {100 * got // most}%{worst}" if 100 * got < percent * most else None


@item(
    "grows",
    "Added up over several graphs, legal patterns have at least two thirds of the largest gains that there are.",
    draw="draw_several",
    smaller=each_alone,
    visible=3,
    hidden=3,
    builds=True,
)
def grows(case, ask):
    return _share(case, ask, 66, legal=True)


@item(
    "good",
    f"Added up over several graphs, the best patterns have at least {ENOUGH}% of the largest gains that there are.",
    draw="draw_several",
    smaller=each_alone,
    visible=3,
    hidden=3,
    weight=3,
    needs=("form", "hangs together", "closed"),
)
def good(case, ask):
    return _share(case, ask, ENOUGH, legal=False)


@item(
    "count",
    "The gain is asked at most k * k times a vertex and edge.",
    draw="draw_large",
    smaller=fewer,
    visible=3,
    hidden=4,
    weight=2,
    needs=("good",),
)
def count(case, ask):
    _, gain = _found(case, ask)
    things = len(case.sizes) + sum(map(len, case.consumers))
    if gain.asked <= case.k**2 * things:
        return None
    return f"the gain is asked {gain.asked} times; there are {things} vertices and edges, and k is {case.k}"


@item(
    "again",
    "A second call with the same objects returns the same.",
    draw="draw_vertices",
    smaller=fewer,
    visible=4,
    hidden=4,
    size=9,
    hidden_size=12,
)
def again(case, ask):
    return second_call(ask, "best_patterns", case.given, _gain(case), case.k)
