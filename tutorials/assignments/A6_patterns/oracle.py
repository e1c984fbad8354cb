"""What draws the cases of A6, and knows the largest gains. It stays at home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from items import Vertices
from minisitch.course import Drawing, prediction
from minisitch.course.graphs import Several


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


def optimum(case: Vertices, vertex: int) -> int:
    """The largest gain of all patterns of a vertex, by trying every set of what it reaches."""
    others = [one for one in range(len(case.consumers)) if case.reached[vertex] >> one & 1]
    most = 0
    for choice in range(1 << len(others)):
        pattern = [vertex, *(one for at, one in enumerate(others) if choice >> at & 1)]
        gain = case.gain(pattern)
        if (
            gain > most
            and not case.unreached(vertex, pattern)
            and case.way_back(pattern) is None
        ):
            most = gain
    return most


def draw_several(at: Drawing) -> Several:
    """Nine graphs of up to nine vertices, for which every pattern can be tried."""
    graphs = [replace(draw_vertices(replace(at, size=4 + number % 6)), k=5) for number in range(9)]
    return Several(
        tuple(replace(each, most=tuple(optimum(each, vertex) for vertex in range(len(each.sizes)))) for each in graphs)
    )


def draw_large(at: Drawing) -> Vertices:
    """A graph with more patterns than anyone can ask about."""
    return draw_vertices(replace(at, size=16 + at.size % 5))


# The paper's figure 4. It has 8 where this list has 1: each number here is 9 less the paper's.
FIGURE = [[2], [2, 3, 4], [7], [6], [5], [8], [8], [8], [9], []]


def figure_4(variant: str) -> list[Vertices]:
    consumers = FIGURE if variant == "begin" else mirrored(FIGURE)
    return [Vertices(tuple(map(tuple, consumers)), (1,) * len(FIGURE), 0, 3, variant)]


def _small(at: Drawing) -> Vertices:
    return draw_vertices(replace(at, size=6))


# ---------------------------------------------------------------- predictions
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
        optimum(case, vertex),
    )
