"""Items of A6. None of them holds the answer: each says what must be true of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from minisitch.course import Drawing, NoAnswer, item, prediction, second_call
from minisitch.course.graphs import Several, Valued, fewer_of_several
from minisitch.fuse import count as counted

RETURNS = {"best_patterns": list[list[list[int]]]}
ENOUGH = 90  # percent of the optimum


# ---------------------------------------------------------------- cases
@dataclass(frozen=True)
class Vertices:
    """A graph in topological order: who reads a vertex, the bytes that it writes, and what fits into one kernel."""

    consumers: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    limit: int
    k: int
    variant: str

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

    def optimum(self, vertex: int) -> int:
        """The largest gain of all patterns of a vertex, by trying every set of what it reaches."""
        others = [one for one in range(len(self.consumers)) if self.reached[vertex] >> one & 1]
        most = 0
        for choice in range(1 << len(others)):
            pattern = [vertex, *(one for at, one in enumerate(others) if choice >> at & 1)]
            gain = self.gain(pattern)
            if (
                gain > most
                and not self.unreached(vertex, pattern)
                and self.way_back(pattern) is None
            ):
                most = gain
        return most


def mirrored(consumers: Sequence[Sequence[int]]) -> list[list[int]]:
    """The graph with all edges turned around, and its vertices numbered from the other end."""
    count = len(consumers)
    return [
        [count - 1 - one for one in reversed(range(count)) if count - 1 - vertex in consumers[one]]
        for vertex in range(count)
    ]


def draw_vertices(at: Drawing, most_readers: int = 3) -> Vertices:
    """A vertex is read by some of the next four. Some have no reader."""
    count = at.size
    consumers = []
    for vertex in range(count):
        following = range(vertex + 1, min(count, vertex + 5))
        readers = at.random.choice((1, 1, 2, 2, most_readers))
        consumers.append(sorted(at.random.sample(following, min(len(following), readers))))
    sizes = [at.random.randint(1, 9) for _ in range(count)]
    limit = at.random.randint(10, 2 * count + 10)
    if at.variant == "end":
        consumers, sizes = mirrored(consumers), sizes[::-1]
    return Vertices(tuple(map(tuple, consumers)), tuple(sizes), limit, 3, at.variant)


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


def draw_several(at: Drawing) -> Several:
    """Nine graphs of up to nine vertices, for which every pattern can be tried."""
    return Several(
        tuple(replace(draw_vertices(replace(at, size=4 + number % 6)), k=5) for number in range(9))
    )


def draw_large(at: Drawing) -> Vertices:
    """A graph with more patterns than anyone can ask about."""
    return draw_vertices(replace(at, size=16 + at.size % 5))


# The paper's figure 4. It has 8 where this list has 1: each number here is 9 less the paper's.
FIGURE = [[2], [2, 3, 4], [7], [6], [5], [8], [8], [8], [9], []]


def figure_4(variant: str) -> Vertices:
    consumers = FIGURE if variant == "begin" else mirrored(FIGURE)
    return Vertices(tuple(map(tuple, consumers)), (1,) * len(FIGURE), 0, 3, variant)


# ---------------------------------------------------------------- items
def _gain(case: Vertices) -> Valued:
    return Valued(case.gain, range(len(case.sizes)), 0)


def _found(case: Vertices, ask) -> tuple[list[list[list[int]]], Valued]:
    gain = _gain(case)
    return ask("best_patterns", case.given, gain, case.k), gain


@item(
    "form",
    "Each vertex has at least one pattern and at most k. A pattern is sorted, and contains its vertex.",
    draw=draw_vertices,
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
    draw=draw_vertices,
    smaller=fewer,
    visible=4,
    hidden=4,
    size=9,
    hidden_size=12,
    needs=("form",),
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
    draw=draw_vertices,
    smaller=fewer,
    visible=8,
    hidden=8,
    size=13,
    hidden_size=12,
    weight=2,
    needs=("form",),
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
    draw=draw_vertices,
    smaller=fewer,
    visible=4,
    hidden=4,
    size=9,
    hidden_size=12,
    weight=0.5,
    needs=("form",),
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
    draw=draw_vertices,
    smaller=fewer,
    visible=4,
    hidden=4,
    size=9,
    hidden_size=12,
    needs=("form",),
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
    examples=[figure_4],
    needs=("form",),
)
def figure(case, ask):
    vertex = 1 if case.variant == "begin" else len(case.sizes) - 2
    for number, patterns in _each(case, ask):
        if number == vertex and len(patterns[0]) < len(case.sizes) - 1:
            return f"the best pattern of vertex {vertex} is {patterns[0]}; a larger one is closed"
    return None


@item(
    "good",
    f"Added up over several graphs, the best patterns have at least {ENOUGH}% of the largest gains that there are.",
    draw=draw_several,
    smaller=fewer_of_several(fewer),
    visible=3,
    hidden=3,
    weight=3,
    needs=("form", "hangs together", "closed"),
)
def good(case, ask):
    most = got = 0
    worst = ""
    for graph in case.cases:
        for vertex, patterns in _each(graph, ask):
            gain, optimum = max(map(graph.gain, patterns), default=0), graph.optimum(vertex)
            got, most = got + gain, most + optimum
            if gain < optimum and not worst:
                worst = f"; for example, the best pattern of vertex {vertex} has a gain of {gain}, and a better one exists"
    return f"they have {100 * got // most}%{worst}" if 100 * got < ENOUGH * most else None


@item(
    "count",
    "The gain is asked at most k * k times a vertex and edge.",
    draw=draw_large,
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
    draw=draw_vertices,
    smaller=fewer,
    visible=4,
    hidden=4,
    size=9,
    hidden_size=12,
    needs=("form",),
)
def again(case, ask):
    return second_call(ask, "best_patterns", case.given, _gain(case), case.k)


# ---------------------------------------------------------------- predictions
def _small(at: Drawing) -> Vertices:
    return draw_vertices(replace(at, size=6))


@prediction
def gain_of_all(at):
    case = replace(_small(at), limit=15)
    pattern = list(range(len(case.sizes)))
    near = "consumers" if case.variant == "begin" else "producers"
    return (
        f"{case}. For each vertex of a pattern, count the {near} inside it. The vertex saves its size for each of "
        f"them, and once more if all of its {near}, at least one, are inside. Each vertex but one saves 2. What the "
        f"sizes add up to above the limit costs six times. What is the gain of {pattern}?",
        case.gain(pattern),
    )


@prediction
def closed_ones(at):
    case = _small(at)
    patterns = [sorted(at.random.sample(range(6), 3)) for _ in range(5)]
    good_ones = sum(case.way_back(pattern) is None for pattern in patterns)
    return (
        f"consumers = {case.given}. How many of the patterns {patterns} does no path leave and come back to?",
        good_ones,
    )


@prediction
def most_vertices(at):
    case = replace(_small(at), limit=0)
    vertex = 0 if case.variant == "begin" else 5
    return (
        f"consumers = {case.given}, and a pattern gains its length. How many vertices has the best pattern of vertex {vertex}?",
        case.optimum(vertex),
    )
