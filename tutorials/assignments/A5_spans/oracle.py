"""What draws the cases of A5, and knows the spans. It stays at home."""

from __future__ import annotations

from dataclasses import replace

from items import Growth, Values
from minisitch.course import Drawing, prediction


def draw_values(at: Drawing) -> Values:
    """Values in layers; each reads some of the earlier ones. A value may be read many times, or by nobody."""
    ids = at.random.sample(range(3 * at.size), at.size)
    readers: dict[int, list[int]] = {value: [] for value in ids}
    for place, value in enumerate(ids[1:], 1):
        near = ids[max(0, place - 6) : place]
        for producer in at.random.sample(
            near, min(len(near), at.random.choice((0, 1, 1, 2, 2, 3)))
        ):
            readers[producer].append(value)
    order = at.random.sample(ids, len(ids))
    for users in readers.values():
        at.random.shuffle(users)
    return Values(
        {value: readers[value] for value in order},
        {value: at.random.randint(1, 9) for value in order},
        at.variant,
    )


def longest(case: Values) -> dict[int, int]:
    """The spans, found by relaxing every edge until nothing changes."""
    far = dict.fromkeys(case.readers, 0)
    moved = True
    while moved:
        moved = False
        for value, users in case.readers.items():
            for user in users:
                if far[value] < far[user] + case.step(value, user):
                    far[value], moved = far[user] + case.step(value, user), True
    return far


def figure(variant: str) -> list[Values]:
    """The handout's graph and its table."""
    case = Values(FIGURE, FIGURE_COST, variant)
    return [replace(case, spans=longest(case))]


def draw_growth(at: Drawing) -> Growth:
    graph = draw_values(at)
    far = longest(graph)
    # a root with producers above it, in the lower half of the graph
    choices = sorted(far, key=lambda value: (far[value], value))
    producers = [
        value for value in choices if any(value in users for users in graph.readers.values())
    ] or choices
    root = at.random.choice(producers[: max(1, len(producers) // 2)])
    misfits = tuple(sorted(at.random.sample(sorted(far), at.random.choice((0, 1, 2)))))
    return Growth(replace(graph, spans=far), root, misfits, at.random.choice((2, 3, 5, 100)))

FIGURE = {0: [1], 1: [2, 3], 2: [4], 3: [4, 5], 4: [6], 5: [6], 6: []}

FIGURE_COST = {0: 1, 1: 1, 2: 2, 3: 1, 4: 3, 5: 1, 6: 1}


# ---------------------------------------------------------------- predictions
@prediction
def highest_span(at):
    case = draw_values(at)
    return f"{case}. What is the largest span?", max(longest(case).values())


@prediction
def layers(at):
    case = replace(draw_values(at), cost={})
    case = replace(case, cost=dict.fromkeys(case.readers, 1))
    return f"readers = {case.readers}, and every cost is 1. How many layers are there?", len(
        set(longest(case).values())
    )


@prediction
def one_more_edge(at):
    case = draw_values(at)
    far = longest(case)
    value = min(far, key=lambda each: (far[each], each))
    bottom = max(far, key=lambda each: (far[each], -each))
    changed = replace(
        case,
        readers={**case.readers, value: [*case.readers[value], 99], 99: []},
        cost={**case.cost, 99: 10},
    )
    return (
        f"{case}. A new value 99 of cost 10, which nobody reads, reads value {value}. What is the span of value {bottom} now?",
        longest(changed)[bottom],
    )
