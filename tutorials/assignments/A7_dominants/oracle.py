"""What draws the cases of A7, and knows the groups and what is preferred. It stays at home."""

from __future__ import annotations

from dataclasses import replace

from items import MANY, Body, Shape, body
from minisitch.course import Drawing, prediction
from minisitch.course.graphs import draw_operations

MOST_DRAWS = 8  # until a group has two reduces of different ranks


def draw_body(at: Drawing) -> Body:
    ops = draw_operations(at)
    heavy = [v for v, op in ops.items() if op[0] == "heavy" and at.random.random() < 0.5]
    return body(ops, heavy, at.variant)


def rank(case: Body, value: int) -> tuple[int, int, int]:
    """What decides between two candidates: the smaller rank is preferred."""
    kind, operands, size = case.ops[value]
    if kind == "reduce":
        return 0, -(case.ops[operands[0]][2] if case.variant == "reads" else size), value
    return (1 if kind == "heavy" else 2), 0, value


def groups_of(case: Body) -> list[list[int]]:
    """The groups, found by passing the smallest number along until nothing changes."""
    label, near, moved = {value: value for value in case.ops}, case.near(), True
    while moved:
        least = {
            value: min([label[value], *(label[one] for one in near[value])]) for value in near
        }
        moved, label = least != label, least
    return [
        [each for each in label if label[each] == first]
        for first in sorted(set(label.values()))
    ]


def draw_small(at: Drawing) -> Body:
    """A graph of a few operations with at least two groups."""
    while True:
        case = draw_body(replace(at, size=4))
        if len(groups_of(case)) > 1:
            return case


def draw_large(at: Drawing) -> Shape:
    """A matrix with much more in it than the device does at once, and rows that fit into a block."""
    shape = draw_shape(at)
    cols = at.random.randint(8, shape.most_threads)
    rows = MANY * shape.wave * shape.most_threads // cols + at.random.randint(1, 99)
    return replace(shape, rows=rows, cols=cols)


def figure_9(variant: str) -> list[Body]:
    return [Body(_FIGURE, (6, 8, 11, 13), variant, _FIGURE_GROUPS)]


def draw_reduces(at: Drawing) -> Body:
    """Several reduces and heavy candidates of different sizes, close together: two of them share a group."""
    for _ in range(MOST_DRAWS):
        kinds = ("map", "map", "heavy", "reduce", "reduce")
        ops = draw_operations(replace(at, size=at.size + 4), kinds, near=7, most_inputs=4)
        heavy = [v for v, op in ops.items() if op[0] == "heavy" and at.random.random() < 0.7]
        made = body(ops, heavy, at.variant)
        ranks = [[rank(made, one) for one in ids if one in made.candidates] for ids in groups_of(made)]
        if any(len({size for kind, size, _ in each if kind == 0}) > 1 for each in ranks):
            break
    return replace(made, preferred=tuple(sorted(made.candidates, key=lambda one: rank(made, one))))


def draw_shape(at: Drawing) -> Shape:
    wave = at.random.choice((4, 30, 160, 264))
    most = at.random.choice((128, 256, 512, 1024))
    near = (wave - 1, wave, wave + 1, 2 * wave + 1)
    rows = at.random.choice((*near, at.random.randint(1, 40), int(2 ** at.random.uniform(0, 18))))
    edges = (1, 3, 17, 31, 32, 33, 48, most - 1, most, most + 1, 3 * most + 5)
    cols = at.random.choice((*edges, int(2 ** at.random.uniform(0, 16))))
    return Shape(rows, cols, at.random.choice((16, 32, 64)), most, wave, at.variant)


def draw_long(at: Drawing) -> Shape:
    """Few long rows."""
    shape = draw_shape(at)
    rows = at.random.randint(1, max(1, shape.wave // 2))
    return replace(
        shape,
        rows=rows,
        cols=shape.most_threads * at.random.randint(2, 40) + at.random.randint(1, 99),
    )


_FIGURE = {
    1: ("input", [], 512),
    2: ("input", [], 8),
    3: ("input", [], 512),
    4: ("map", [2], 512),
    5: ("map", [1, 4], 512),
    6: ("reduce", [5], 8),
    7: ("map", [6, 2], 8),
    8: ("heavy", [7], 8),
    9: ("map", [8], 512),
    10: ("map", [3, 9], 512),
    11: ("reduce", [10], 8),
    12: ("map", [11], 512),
    13: ("map", [9, 12], 512),
}


_FIGURE_GROUPS = (
    (6, frozenset((1, 2, 4, 5, 6, 7, 8))),
    (11, frozenset((3, 9, 10, 11, 12, 13))),
)


def _v100(variant: str, rows: int, cols: int, *paper: int) -> Shape:
    return Shape(rows, cols, 32, 1024, 160, variant, paper)


def empty(variant: str) -> list[Shape]:
    return [_v100(variant, *shape) for shape in ((0, 32), (100, 0), (0, 0), (0, 5000))]


def no_rows_or_columns(variant: str) -> list[Shape]:
    return [_v100(variant, *shape) for shape in ((0, 32), (100, 0))]


def borders(variant: str) -> list[Shape]:
    return [_v100(variant, *shape) for shape in ((159, 1024), (160, 30000), (5000, 4096), (10, 1000))]


def papers_shapes(variant: str) -> list[Shape]:
    return [
        _v100(variant, 750_000, 32, 160, 1024, 32, 32, 147, 1, 32),
        _v100(variant, 64, 30_000, 128, 1024, 1, 1024, 1, 2, 15_000),
    ]


# ---------------------------------------------------------------- predictions
@prediction
def count_groups(at):
    case = draw_body(replace(at, size=8))
    return f"{case}. How many groups are there?", len(groups_of(case))


@prediction
def which_dominant(at):
    while True:
        case = draw_reduces(replace(at, size=8))
        largest = max(groups_of(case), key=lambda members: (len(members), -min(members)))
        inside = [value for value in largest if value in case.candidates]
        if len(inside) > 1:
            break
    first = min(inside, key=lambda value: rank(case, value))
    return f"{case}. What is the dominant of the group {sorted(largest)}?", first


@prediction
def steps_in_turn(at):
    case = draw_shape(at)
    rows, cols = at.random.randint(10_000, 400_000), at.random.choice((20, 50, 100, 200, 400))
    case = replace(case, rows=rows, cols=cols, most_threads=1024)
    per_row = 1 << (cols - 1).bit_length()
    per_row = max(case.warp, per_row) if case.variant == "reads" else per_row
    tasks = -(-rows // (1024 // per_row))
    return f"{case}. How many steps does your map have?", -(-tasks // case.wave)
